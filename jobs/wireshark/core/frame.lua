-- Cuts a stream into packets.

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

for _, port in ipairs(PORTS) do
	DissectorTable.get("tcp.port"):add(port, msmq)
end
