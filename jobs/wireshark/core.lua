-- Walks packets by the tables above. A packet is parsed to a list of parts and then shown, because the end of a body
-- shows only from the headers after it.

local msmq = Proto("msmq", "Message Queuing (MSMQ) Binary Protocol")
msmq.fields = F
EXPERTS.unframed = ProtoExpert.new("msmq.unframed", "In no packet: the capture began later, misses bytes, or the " ..
	"header is damaged", expert.group.SEQUENCE, expert.severity.NOTE)
do
	local experts = {}
	for _, info in pairs(EXPERTS) do
		experts[#experts + 1] = info
	end
	msmq.experts = experts
end

local BASE = H.BaseHeader.size
local NULL_GUID = string.rep("\0", WIRE.GUID_SIZE)
local SIGNATURE = Struct.pack("<I4", WIRE.SIGNATURE)
local format, sub, unpack = string.format, string.sub, Struct.unpack

local function r4(size)
	return size + -size % 4
end

-- The values of a packet by column; those of bits come from their flag word.
local VALUES = {
	__index = function(values, column)
		local bits = BITS[column]
		return bits and floor(values[bits[1]] / bits[2]) % bits[3]
	end,
}

-- Texts --------------------------------------------------------------------------------------------------------------

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

-- Parsing ------------------------------------------------------------------------------------------------------------

local function fail(fault, offset)
	error({ fault = fault, offset = offset }, 0)
end

local function need(p, offset, size, fault)
	if offset + size > p.limit then
		fail(fault, math.min(offset, p.limit))
	elseif offset + size > #p.raw then
		fail("bytes_missing", #p.raw)
	end
end

local function take(p, offset, size, fault)
	need(p, offset, size, fault)
	return sub(p.raw, offset + 1, offset + size)
end

-- Reads the fixed part of a header; returns where it ends.
local function read_header(p, header, offset, fault)
	need(p, offset, header.size, fault or "header_beyond_packet")
	local values, columns = { unpack(header.format, p.raw, offset + 1) }, header.columns
	for index = 1, #columns do
		p.v[columns[index]] = values[index]
	end
	p.parts[#p.parts + 1] = { header = header, offset = offset }
	return offset + header.size
end

-- Notes a field that has no fixed place; `text` is its value, nil for the bytes themselves, false for none.
local function note(p, header, column, offset, size, text)
	if size > 0 then
		p.parts[#p.parts + 1] = { owner = header, column = column, offset = offset, size = size, text = text }
	end
end

local function read_guids(p, header, offset)
	for _, guid in ipairs(header.guids) do
		if p.v[guid.when] == guid.value then
			need(p, offset, WIRE.GUID_SIZE, "header_beyond_packet")
			note(p, header, guid.column, offset, WIRE.GUID_SIZE)
			offset = offset + WIRE.GUID_SIZE
		end
	end
	return offset
end

local function read_queue(p, column, hosts, offset)
	local kind, content, name, place = p.v[column .. "_type"], nil, nil, offset
	if kind == QueueType.DIRECT then
		local count = unpack("<I2", take(p, offset, 2, "name_beyond_packet"))
		if count % 2 == 1 then
			fail("name_odd_length", offset)
		end
		content = take(p, offset + 2, count, "name_beyond_packet")
		local text, valid = utf16(content)
		if not valid then
			fail("name_not_utf16", offset)
		end
		name = direct_name(text)
		offset = offset + r4(2 + count)
		note(p, H.UserHeader, column, place, 2 + count, name)
		return offset, content, name
	end
	local size = QUEUE_NAME_SIZES[kind]
	content = take(p, offset, size, "name_beyond_packet")
	if kind == QueueType.PUBLIC then
		name = public_name(content)
	elseif kind == QueueType.PRIVATE then
		name = private_name(content)
	elseif size > 0 and hosts[kind] then
		name = private_name(hosts[kind] .. content)
	end
	note(p, H.UserHeader, column, offset, size, name or false)
	return offset + size, content, name
end

local read = {} -- by header: reads it at an offset and returns where it ends

function read.UserHeader(p, header, offset)
	local at, v = read_header(p, header, offset), p.v
	if not LEGAL_DESTINATION_TYPES[v.destination_queue_type] then
		fail("illegal_destination_type", at - 4)
	elseif not LEGAL_ADMIN_TYPES[v.admin_queue_type] then
		fail("illegal_admin_type", at - 4)
	end
	v.null_address = v.queue_manager_address == NULL_GUID and 1 or 0
	local hosts = {
		[QueueType.PRIVATE_ON_SOURCE] = v.source_queue_manager,
		[QueueType.PRIVATE_ON_DESTINATION] = v.queue_manager_address,
	}
	local contents, names = {}, {}
	for _, column in ipairs(QUEUES) do
		at, contents[column], names[column] = read_queue(p, column, hosts, at)
		if column == "admin_queue" then
			local kind = v.admin_queue_type
			local host = kind == QueueType.PRIVATE and sub(contents.admin_queue, 1, WIRE.GUID_SIZE) or hosts[kind]
			hosts[QueueType.PRIVATE_ON_ADMIN_HOST] = host
		end
	end
	if v.response_queue_type == QueueType.SAME_AS_ADMIN and names.admin_queue then
		note(p, header, "response_queue", offset + header.size - 4, 4, names.admin_queue)
	end
	p.destination = names.destination_queue
	if v.destination_queue_type == QueueType.DIRECT then
		local suffix = WIRE.ORDER_QUEUE_SUFFIX
		p.to_order_queue = sub(string.lower(names.destination_queue), -#suffix) == suffix
	elseif v.destination_queue_type == QueueType.PRIVATE_ON_DESTINATION then
		p.to_order_queue = unpack("<I4", contents.destination_queue) == WIRE.ORDER_QUEUE_ID
	end
	return read_guids(p, header, at)
end

function read.SecurityHeader(p, header, offset)
	local at, v = read_header(p, header, offset), p.v
	local last = at
	for _, item in ipairs(SECURITY_ITEMS) do
		last = last + r4(v[item.size])
	end
	if last > p.limit then
		fail("security_beyond_packet", offset)
	end
	for _, item in ipairs(SECURITY_ITEMS) do
		local size, text = v[item.size], nil
		local data = take(p, at, size, "security_beyond_packet")
		if item.column == "sender_id" then
			text = sender_id_text(v.sender_id_type, data) or false
		elseif item.column == "provider_name" then
			text = size >= 4 and utf16(sub(data, 5))
			note(p, header, "provider_type", at, size >= 4 and 4 or 0)
		end
		note(p, header, item.column, at, size, text)
		at = at + r4(size)
	end
	return last
end

function read.MessagePropertiesHeader(p, header, offset)
	local at, v = read_header(p, header, offset), p.v
	local size = 2 * v.label_length
	p.body = at + size + v.extension_size
	if p.body + v.body_size > p.limit then
		fail("body_beyond_packet", offset)
	end
	local label = take(p, at, size, "body_beyond_packet")
	p.label = size > 0 and utf16(label) or nil
	note(p, header, "label", at, size, p.label)
	need(p, at + size, v.extension_size, "body_beyond_packet")
	note(p, header, "message_properties_header.extension_data", at + size, v.extension_size)
	note(p, header, "message_properties_header.message_body", p.body, math.min(v.body_size, #p.raw - p.body))
	return p.body
end

local function read_soap_half(p, header, offset, section, column)
	local at = read_header(p, header, offset, "section_beyond_packet")
	if p.v[header.columns[1]] ~= section then
		table.remove(p.parts)
		return nil, at
	end
	local size = 2 * p.v[column .. "_length"]
	local data = take(p, at, size, "section_beyond_packet")
	note(p, header, column, at, size, (utf16(data)))
	return at + size
end

function read.SoapHeader(p, header, offset)
	local at = read_soap_half(p, header, offset, SectionId.SOAP_HEADER, "soap_header")
	if not at then
		fail("bad_section", offset)
	end
	-- Each half is padded to a multiple of 4, or the first is not.
	local last = read_soap_half(p, H.SoapBody, r4(at), SectionId.SOAP_BODY, "soap_body")
		or r4(at) > at and read_soap_half(p, H.SoapBody, at, SectionId.SOAP_BODY, "soap_body")
	if not last then
		fail("bad_section", at)
	end
	return math.min(r4(last), p.limit)
end

-- Returns the bytes of the UTF-16LE string at an index with its NUL; without one, all whole units.
local function terminated_size(data, start)
	local found = string.find(data, "\0\0", start + 1, true)
	while found and (found - 1 - start) % 2 == 1 do
		found = string.find(data, "\0\0", found + 1, true)
	end
	return found and found + 1 - start or #data - start - (#data - start) % 2
end

local function read_elements(p, column, offset, last, count)
	local data, place = take(p, offset, last - offset, "section_beyond_packet"), 0
	for _ = 1, count do
		local start = offset + place
		if place + 2 > #data then
			fail("section_beyond_packet", start)
		end
		local kind, size, name = unpack("<I2", data, place + 1), nil, nil
		if kind == FormatType.DIRECT then
			place = place + 2
			size = terminated_size(data, place)
		elseif FORMAT_NAME_SIZES[kind] then
			place, size = r4(place + 2), FORMAT_NAME_SIZES[kind]
		else
			fail("unknown_format_type", start)
		end
		if place + size > #data then
			fail("section_beyond_packet", start)
		end
		local content = sub(data, place + 1, place + size)
		if kind == FormatType.DIRECT then
			local text, valid = utf16(content)
			if not valid then
				fail("name_not_utf16", start)
			end
			name = direct_name(text)
		elseif kind == FormatType.PRIVATE then
			name = private_name(content)
		else
			name = (kind == FormatType.PUBLIC and "PUBLIC=" or "DL=") .. guid_text(content)
		end
		p.parts[#p.parts + 1] = { header = H.MQFFormatNameElement, offset = start }
		note(p, H.MQFFormatNameElement, column, offset + place, size, name)
		place = place + size
	end
end

function read.MultiQueueFormatHeader(p, _, offset)
	local expected = 1
	while expected <= #LISTS and offset + H.MQFAddressHeader.size <= p.limit do
		local mark = #p.parts
		local at, v = read_header(p, H.MQFAddressHeader, offset, "section_beyond_packet"), p.v
		local found
		for index = expected, #LISTS do
			found = found or (LISTS[index].id == v.header_id and index)
		end
		if not found then
			p.parts[mark + 1] = nil
			break
		end
		local last = offset + v.header_size
		if last < at or last > p.limit then
			fail("section_beyond_packet", offset)
		end
		read_elements(p, LISTS[found].column, at, last, v.element_count)
		offset, expected = math.min(r4(last), p.limit), found + 1
	end
	local header = H.MQFSignatureHeader
	local at = read_header(p, header, offset, "section_beyond_packet")
	if p.v[header.columns[1]] ~= SectionId.SIGNATURE then
		fail("bad_section", offset)
	end
	local size = p.v.multi_queue_signature_size
	need(p, at, size, "section_beyond_packet")
	note(p, header, "mqf_signature_header.signature", at, size)
	return math.min(r4(at + size), p.limit)
end

local function read_present(p, names, offset)
	for _, name in ipairs(names) do
		local header = H[name]
		if p.v[header.when] == header.value then
			if read[name] then
				offset = read[name](p, header, offset)
			else
				offset = read_guids(p, header, read_header(p, header, offset))
			end
		elseif name == "MessagePropertiesHeader" then
			fail("no_message_properties", BASE + H.UserHeader.size - 4)
		end
	end
	return offset
end

local BEFORE_BODY, AFTER_BODY = {}, {}
do
	local list = BEFORE_BODY
	for _, name in ipairs(USER_HEADERS) do
		if name ~= "SessionHeader" then
			list[#list + 1] = name
		end
		list = name == "MessagePropertiesHeader" and AFTER_BODY or list
	end
end

-- The headers after the body begin after AllocationBodySize or after MessageSize bytes. The first of them counts after
-- which the headers end exactly at their limit, else the first after which they can be read.
local function read_after_body(p)
	local v, mark = p.v, #p.parts
	local sizes, best, failure = { math.max(v.body_size, v.allocation_body_size), v.body_size }, nil, nil
	local function attempt(size)
		for index = #p.parts, mark + 1, -1 do
			p.parts[index] = nil
		end
		return pcall(read_present, p, AFTER_BODY, math.min(r4(p.body + size), p.limit))
	end
	local last
	for _, size in ipairs(sizes) do
		if p.body + size <= p.limit then
			local done, found = attempt(size)
			if done then
				if not best or found == p.limit then
					best, last = size, found
				end
				if found == p.limit then
					break
				end
			else
				failure = found
			end
		end
	end
	if not best then
		error(failure, 0)
	elseif last ~= p.limit then
		p.broken.trailing_bytes = true
		attempt(best)
	end
	if best < v.allocation_body_size then
		p.broken.allocation_not_sent = true
	end
end

local function read_user_shaped(p)
	local v = p.v
	if v.has_session_header == 1 then
		p.limit = p.size - H.SessionHeader.size
	end
	read_present(p, BEFORE_BODY, BASE)
	read_after_body(p)
	if v.has_session_header == 1 then
		local at = p.limit
		p.limit = p.size
		read_header(p, H.SessionHeader, at)
	end
	local class = v.message_class
	local final = class >= MessageClass.MQMSG_CLASS_ACK_RECEIVE
	if (final or class == MessageClass.MQMSG_CLASS_ORDER_ACK) and v.body_size == WIRE.ACK_BODY_SIZE
		and p.label == WIRE.ORDER_ACK_LABEL and p.to_order_queue then
		read_header(p, final and H.FinalAckBody or H.OrderAckBody, p.body)
		return final and "final_ack" or "order_ack"
	end
	local is_administration = final or class == MessageClass.MQMSG_CLASS_REPORT
		or class == MessageClass.MQMSG_CLASS_ACK_REACH_QUEUE
	return is_administration and "administration" or "user_message"
end

local function read_packet(p)
	local at, v = read_header(p, H.BaseHeader, 0), p.v
	if v.version_number ~= WIRE.VERSION or v.signature ~= WIRE.SIGNATURE then
		fail("bad_signature", 0)
	end
	local extra = p.size - v.packet_size
	local fits = extra == 0 or v.has_session_header == 1 and extra == H.SessionHeader.size
	if v.packet_size > WIRE.MAX_PACKET_SIZE or not fits then
		fail("size_mismatch", 8)
	end
	if v.internal == 0 then
		p.packet_type = read_user_shaped(p)
	else
		at = read_header(p, H.InternalHeader, at)
		local internal = INTERNAL[v.internal_type]
		if not internal then
			fail("unknown_internal_type", at - 2)
		end
		at = read_header(p, internal.header, at)
		p.packet_type = internal.packet_type
		p.broken.trailing_bytes = at ~= p.size or nil
	end
	if #p.raw ~= p.size then
		fail("bytes_missing", #p.raw)
	end
	RULES[p.packet_type](v, p.broken)
end

-- Showing ------------------------------------------------------------------------------------------------------------

msmq.prefs.only = Pref.string("Only these fields", "", "Names of fields without msmq., separated by commas: the " ..
	"others are not added, which makes tshark -T fields faster. Empty: all fields.")

-- Which fields are asked for stays the same in each pass of tshark; in Wireshark it can change with every packet.
local asked = { [false] = {}, [true] = {} }
local only = nil -- the fields of the preference, if any

function msmq.prefs_changed()
	asked, only = { [false] = {}, [true] = {} }, nil
	for column in string.gmatch(msmq.prefs.only, "[%w_.]+") do
		only = only or {}
		only[column] = true
	end
	for column in pairs(only and F or {}) do
		only[column] = only[column] or false
	end
end

-- A view is where the fields of a packet go: `tree`, whether all of them are shown, and else which are asked for.
local in_wireshark = gui_enabled()
local function new_view(tree, pinfo)
	local cache = in_wireshark and {} or asked[pinfo.visited]
	return { tree = tree, visible = not only and tree.visible, asked = only or cache }
end

local function is_asked(view, column)
	if view.visible then
		return true
	end
	local known = view.asked[column]
	if known == nil then
		known = view.tree:referenced(F[column])
		view.asked[column] = known
	end
	return known
end

-- The fields of a header's fixed part that are asked for, and bits outside a visible tree, which count as fields.
local function asked_fields(view, header)
	if view.visible then
		return header.fields
	end
	local found = view.asked[header.name]
	if not found then
		found = {}
		for _, one in ipairs(header.fields) do
			if is_asked(view, one.column) then
				found[#found + 1] = one
			end
			for _, bits in ipairs(one.bits) do
				if is_asked(view, bits) then
					found[#found + 1] = { column = bits, offset = one.offset, size = one.size }
				end
			end
		end
		view.asked[header.name] = found
	end
	return found
end

-- Adds what is not on the wire itself.
local function derive(view, column, range, value)
	if is_asked(view, column) then
		view.tree:add(F[column], range, value):set_generated()
	end
end

local function show_header(p, tvb, view, part)
	local header, branch = part.header, view.tree
	if view.visible then
		branch = branch:add(tvb(part.offset, header.size), header.title)
	end
	for _, one in ipairs(asked_fields(view, header)) do
		local offset = part.offset + one.offset
		local range, item = tvb(offset, one.size), nil
		if one.is_text then
			item = branch:add(F[one.column], range, message_id_text(sub(p.raw, offset + 1, offset + one.size)))
		else
			item = branch:add_le(F[one.column], range)
		end
		if view.visible then
			for _, bits in ipairs(one.bits) do
				item:add_le(F[bits], range)
			end
		end
	end
	return branch
end

local function show_part(tvb, view, branch, part)
	if part.text == false then
		if view.visible then
			branch:add(tvb(part.offset, part.size), format("%s: %d bytes", part.column, part.size))
		end
	elseif is_asked(view, part.column) then
		local field, range = F[part.column], tvb(part.offset, part.size)
		if part.text then
			branch:add(field, range, part.text)
		else
			branch:add_le(field, range)
		end
	end
end

local TITLES = {}
for packet_type in pairs(RULES) do
	TITLES[packet_type] = string.gsub("_" .. packet_type, "_(%l)", string.upper)
end

local function sequence_text(v)
	return os.date("!%Y-%m-%dT%H:%M:%SZ", v.tx_sequence_timestamp) .. format("#%d", v.tx_sequence_ordinal)
end

local function summary(p)
	local v, title = p.v, TITLES[p.packet_type]
	if not title then
		return "Undecodable packet"
	elseif v.tx_sequence_number then
		title = format("%s %s %d after %d", title, sequence_text(v), v.tx_sequence_number, v.previous_tx_sequence_number)
	elseif v.message_id_ordinal then
		title = format("%s %d", title, v.message_id_ordinal)
	end
	return p.destination and title .. " to " .. p.destination or title
end

local function show_derived(p, tvb, view)
	local v = p.v
	derive(view, "packet_type", tvb(0, BASE), p.packet_type)
	if v.message_id_ordinal and is_asked(view, "message_id") then
		local id = guid_text(v.source_queue_manager) .. format("\\%d", v.message_id_ordinal)
		derive(view, "message_id", tvb(BASE, H.UserHeader.size), id)
	end
	if p.body then
		derive(view, "body_offset", tvb(0, BASE), p.body)
	end
	if v.source_guid and is_asked(view, "acknowledged_message_id") then
		local id = guid_text(v.source_guid) .. format("\\%d", v.acknowledged_message_id_ordinal)
		derive(view, "acknowledged_message_id", tvb(p.body, H.FinalAckBody.size), id)
	end
end

local function show(p, tvb, view)
	local branches = {}
	if not p.fault then
		show_derived(p, tvb, view)
	end
	for _, part in ipairs(p.parts) do
		local header = part.header
		if header then
			branches[header] = show_header(p, tvb, view, part)
			if header.sequence_at and is_asked(view, "tx_sequence_id") then
				local range = tvb(part.offset + header.sequence_at, 8)
				local item = branches[header]:add_le(F.tx_sequence_id, range)
				if view.visible then
					item:append_text(" (" .. sequence_text(p.v) .. ")")
				end
			end
		else
			show_part(tvb, view, branches[part.owner] or view.tree, part)
		end
	end
	for code in pairs(p.broken) do
		view.tree:add_proto_expert_info(EXPERTS[code])
		derive(view, "violations", tvb(0, BASE), code)
	end
	if p.fault then
		local fault = p.fault
		local text = format("%s, at byte %d of the packet", fault.fault, fault.offset)
		view.tree:add_proto_expert_info(EXPERTS[fault.fault], text)
		derive(view, "fault", tvb(0, math.min(BASE, #p.raw)), fault.fault)
	end
end

for _, header in pairs(H) do
	for _, one in ipairs(header.fields) do
		if one.column == "tx_sequence_ordinal" then
			header.sequence_at = one.offset
		end
	end
end

-- Dissects the packet of `size` bytes at an offset; fewer may be captured.
local function dissect_packet(tvb, pinfo, tree, offset, size)
	local captured = math.min(size, tvb:len() - offset)
	if captured <= 0 then
		return
	end
	local range = tvb(offset, captured)
	local p = {
		raw = range:raw(), size = size, limit = size, v = setmetatable({}, VALUES), parts = {}, broken = {},
	}
	local done, problem = pcall(read_packet, p)
	if not done then
		if type(problem) ~= "table" then
			error(problem, 0)
		end
		p.fault, p.packet_type, p.broken = problem, nil, {}
	end
	local text = summary(p)
	local item = tree:add(msmq, range, "Message Queuing, " .. text)
	show(p, range:tvb(), new_view(item, pinfo))
	return text
end

-- Framing ------------------------------------------------------------------------------------------------------------

local function is_like_header(tvb, offset)
	return offset + 8 <= tvb:len() and tvb(offset, 1):uint() == WIRE.VERSION
		and tvb(offset + 4, 4):le_uint() == WIRE.SIGNATURE
end

-- Returns the bytes on the stream of the packet whose header is at an offset; nil for no valid header. PacketSize does
-- not count the SessionHeader after a UserMessage, but counts the one in a SessionAck.
local function packet_extent(tvb, offset)
	local version, _, flags, signature, size = unpack(H.BaseHeader.format, tvb:raw(offset, BASE))
	if version ~= WIRE.VERSION or signature ~= WIRE.SIGNATURE or size < BASE or size > WIRE.MAX_PACKET_SIZE then
		return nil
	end
	local v = setmetatable({ base_flags = flags }, VALUES)
	if v.has_session_header == 0 then
		return size
	end
	local outside = v.internal == 0 or size == BASE + H.InternalHeader.size
	local expected = outside and size + H.SessionHeader.size or size
	local other = outside and size or size + H.SessionHeader.size
	if offset + expected + BASE <= tvb:len() and not is_like_header(tvb, offset + expected)
		and is_like_header(tvb, offset + other) then
		return other
	end
	return expected
end

-- Returns the bytes from an offset up to the next valid header, or all.
local function unframed_size(tvb, offset)
	local rest, from = tvb:raw(offset), 2
	while true do
		local found = string.find(rest, SIGNATURE, from + 4, true)
		if not found then
			return #rest
		end
		local at = found - 5 -- of the header, in `rest`, from 0
		if at > 0 and at + BASE <= #rest and packet_extent(tvb, offset + at) then
			return at
		end
		from = found - 3
	end
end

function msmq.dissector(tvb, pinfo, tree)
	local offset, captured, reported = 0, tvb:len(), tvb:reported_len()
	local summaries = {}
	while offset < captured do
		local left = reported - offset
		local size
		if captured - offset >= BASE then
			size = packet_extent(tvb, offset)
		elseif left < BASE and pinfo.can_desegment > 0 then
			pinfo.desegment_offset, pinfo.desegment_len = offset, DESEGMENT_ONE_MORE_SEGMENT
			break
		end
		if size and size > left and pinfo.can_desegment > 0 then
			pinfo.desegment_offset, pinfo.desegment_len = offset, size - left
			break
		end
		if size then
			summaries[#summaries + 1] = dissect_packet(tvb, pinfo, tree, offset, size)
		else
			size = captured - offset >= BASE and unframed_size(tvb, offset) or captured - offset
			local range = tvb(offset, size)
			tree:add(msmq, range, format("Message Queuing, %d bytes in no packet", size))
				:add_proto_expert_info(EXPERTS.unframed)
		end
		offset = offset + size
	end
	pinfo.cols.protocol = "MSMQ"
	if #summaries > 0 then
		pinfo.cols.info = table.concat(summaries, "; ")
	end
	return captured
end

local ping = Proto("msmq_ping", "Message Queuing (MSMQ) Ping")

function ping.dissector(tvb, pinfo, tree)
	local header = H.Ping
	if tvb:reported_len() ~= header.size or tvb:len() < header.size
		or tvb(2, 2):le_uint() ~= WIRE.PING_SIGNATURE then
		return 0
	end
	local is_response = pinfo.src_port == WIRE.PING_PORT
	local text = is_response and "Ping response" or "Ping request"
	local item = tree:add(msmq, tvb(), "Message Queuing, " .. text)
	local view = new_view(item, pinfo)
	show_header({ raw = tvb:raw() }, tvb, view, { header = header, offset = 0 })
	derive(view, "is_response", tvb(), is_response)
	pinfo.cols.protocol = "MSMQ"
	pinfo.cols.info = text
	return header.size
end

DissectorTable.get("tcp.port"):add(1801, msmq)
DissectorTable.get("udp.port"):add(WIRE.PING_PORT, ping)
