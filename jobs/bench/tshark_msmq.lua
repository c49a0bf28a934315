-- The benchmark's peer: what a user of tshark would write to get at transactional messages. UserMessages of MS-MQQB over
-- TCP 1801, put together by tshark's own reassembly, with the fields that acceptance is judged by ([MS-MQQB] 3.1.5.8.6).
--   tshark -X lua_script:tshark_msmq.lua -r CAPTURE -Y msmq.number -T fields -e frame.number -e msmq.number ...

local msmq = Proto("msmq", "Message Queuing, binary protocol")
local fields = msmq.fields
fields.source = ProtoField.guid("msmq.source", "SourceQueueManager")
fields.destination = ProtoField.guid("msmq.destination", "QueueManagerAddress")
fields.sent = ProtoField.uint32("msmq.sent", "SentTime")
fields.message = ProtoField.uint32("msmq.message", "MessageID")
fields.queue = ProtoField.string("msmq.queue", "DestinationQueue")
fields.sequence = ProtoField.uint64("msmq.sequence", "TxSequenceID")
fields.number = ProtoField.uint32("msmq.number", "TxSequenceNumber")
fields.previous = ProtoField.uint32("msmq.previous", "PreviousTxSequenceNumber")

local BASE, USER, SIGNATURE = 16, 48, 0x524F494C
local INTERNAL, SESSION_HEADER = 0x0008, 0x0010
local TRANSACTION, CONNECTOR = 0x00100000, 0x00400000
local NAME_BYTES = { [0] = 0, 0, 4, 4, 4, 16, 20 } -- by DQ, AQ, RQ ([MS-MQMQ] 2.2.19.2); 7 is a direct format name

local function name_bytes(packet, at, kind)
	if kind ~= 7 then
		return NAME_BYTES[kind]
	end
	return bit.band(2 + packet(at, 2):le_uint() + 3, bit.bnot(3))
end

local function dissect(packet, pinfo, tree)
	pinfo.cols.protocol = "MSMQ"
	local branch = tree:add(msmq, packet())
	if bit.band(packet(2, 2):le_uint(), INTERNAL) ~= 0 or packet:len() < BASE + USER then
		return packet:len()
	end
	branch:add_le(fields.source, packet(16, 16))
	branch:add_le(fields.destination, packet(32, 16))
	branch:add_le(fields.sent, packet(52, 4))
	branch:add_le(fields.message, packet(56, 4))
	local flags, at = packet(60, 4):le_uint(), BASE + USER
	for nth = 0, 2 do
		local kind = bit.band(bit.rshift(flags, 10 + 3 * nth), 7)
		local bytes = name_bytes(packet, at, kind)
		if nth == 0 and kind == 7 then
			branch:add(fields.queue, packet(at + 2, packet(at, 2):le_uint()), packet(at + 2, packet(at, 2):le_uint()):le_ustringz())
		end
		at = at + bytes
	end
	if bit.band(flags, CONNECTOR) ~= 0 then
		at = at + 16
	end
	if bit.band(flags, TRANSACTION) ~= 0 then
		branch:add_le(fields.sequence, packet(at + 4, 8))
		branch:add_le(fields.number, packet(at + 12, 4))
		branch:add_le(fields.previous, packet(at + 16, 4))
	end
	return packet:len()
end

local function length(buffer, _, offset)
	if buffer(offset + 4, 4):le_uint() ~= SIGNATURE then
		return buffer:len() - offset
	end
	local flags, size = buffer(offset + 2, 2):le_uint(), buffer(offset + 8, 4):le_uint()
	if bit.band(flags, INTERNAL) == 0 and bit.band(flags, SESSION_HEADER) ~= 0 then
		size = size + 16
	end
	return size
end

function msmq.dissector(buffer, pinfo, tree)
	dissect_tcp_pdus(buffer, tree, BASE, length, dissect)
end

DissectorTable.get("tcp.port"):add(1801, msmq)
