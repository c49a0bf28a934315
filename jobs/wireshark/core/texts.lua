-- Prints identifiers and texts as the tables do.

local function guid_text(data)
	local a, b, c, d = unpack("<I4I2I2", data)
	return format("%08x-%04x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x", a, b, c, string.byte(data, d, d + 7))
end

local function message_id_text(data)
	return guid_text(sub(data, 1, 16)) .. "\\" .. format("%d", (unpack("<I4", data, 17)))
end

local function utf8_char(code)
	if code < 0x80 then
		return string.char(code)
	elseif code < 0x800 then
		return string.char(0xC0 + floor(code / 64), 0x80 + code % 64)
	elseif code < 0x10000 then
		return string.char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
	end
	return string.char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
		0x80 + code % 64)
end

-- Returns UTF-16LE up to its NUL as UTF-8, and whether all of it is valid; what is not becomes U+FFFD.
local function decode_utf16(data)
	local out, valid, ended, at = {}, true, false, 1
	while at <= #data do
		local low, high = string.byte(data, at, at + 1)
		local code = low + 256 * (high or 0)
		at = at + 2
		if not high then
			code, valid = 0xFFFD, false
		elseif code >= 0xD800 and code < 0xDC00 then
			local next_low, next_high = string.byte(data, at, at + 1)
			if next_high and next_high >= 0xDC and next_high < 0xE0 then
				code = 0x10000 + (code - 0xD800) * 1024 + next_low + 256 * next_high - 0xDC00
				at = at + 2
			else
				code, valid = 0xFFFD, false
			end
		elseif code >= 0xDC00 and code < 0xE000 then
			code, valid = 0xFFFD, false
		end
		ended = ended or code == 0
		if not ended then
			out[#out + 1] = utf8_char(code)
		end
	end
	return table.concat(out), valid
end

-- The same names come again and again.
local texts, text_count = {}, 0
local function utf16(data)
	local known = texts[data]
	if not known then
		if text_count >= 10000 then
			texts, text_count = {}, 0
		end
		known = { decode_utf16(data) }
		if #data <= 1024 then
			texts[data], text_count = known, text_count + 1
		end
	end
	return known[1], known[2]
end

local function direct_name(text)
	return "DIRECT=" .. (string.upper(sub(text, 1, 7)) == "DIRECT=" and sub(text, 8) or text)
end

local function private_name(queue)
	return format("PRIVATE=%s\\%08x", guid_text(queue), (unpack("<I4", queue, 17)))
end

local function public_name(queue)
	return "PUBLIC=" .. guid_text(queue)
end

local function sender_id_text(kind, data)
	if kind == SenderIdType.QUEUE_MANAGER and #data == WIRE.GUID_SIZE then
		return guid_text(data)
	end
	local revision, count = string.byte(data, 1, 2)
	if kind ~= SenderIdType.SID or #data < 8 or revision ~= 1 or #data ~= 8 + 4 * count then
		return nil
	end
	local high, low = unpack(">I2I4", data, 3)
	local authority = high > 0 and format("0x%04x%08x", high, low) or format("%d", low)
	local parts = { "S-1", authority }
	for index = 1, count do
		parts[#parts + 1] = format("%d", (unpack("<I4", data, 5 + 4 * index)))
	end
	return table.concat(parts, "-")
end
