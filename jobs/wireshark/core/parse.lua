-- Parses a packet to a list of parts: headers, and fields without a fixed place.

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
		read_header(p, internal.header, at)
		p.packet_type = internal.packet_type
	end
	if #p.raw ~= p.size then
		fail("bytes_missing", #p.raw)
	end
end
