-- Walks packets by the tables above. A packet is parsed to a list of parts and then shown, because only the headers
-- after a body show where the body ends.

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
