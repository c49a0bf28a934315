-- Shows the parts of a packet as fields.

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
local function derive(view, column, tvb, size, value)
	if is_asked(view, column) then
		view.tree:add(F[column], tvb(0, math.min(size, tvb:len())), value):set_generated()
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

local last_timestamp, last_date -- sequences of one queue manager differ in the ordinal only
local function sequence_text(v)
	if v.tx_sequence_timestamp ~= last_timestamp then
		last_timestamp = v.tx_sequence_timestamp
		last_date = os.date("!%Y-%m-%dT%H:%M:%SZ", last_timestamp)
	end
	return format("%s#%d", last_date, v.tx_sequence_ordinal)
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
	derive(view, "packet_type", tvb, BASE, p.packet_type)
	if v.message_id_ordinal and is_asked(view, "message_id") then
		local id = guid_text(v.source_queue_manager) .. format("\\%d", v.message_id_ordinal)
		derive(view, "message_id", tvb, BASE + H.UserHeader.size, id)
	end
	if p.body then
		derive(view, "body_offset", tvb, BASE, p.body)
	end
	if v.source_guid and is_asked(view, "acknowledged_message_id") then
		local id = guid_text(v.source_guid) .. format("\\%d", v.acknowledged_message_id_ordinal)
		derive(view, "acknowledged_message_id", tvb, p.size, id)
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
		derive(view, "violations", tvb, BASE, code)
	end
	if p.fault then
		local fault = p.fault
		local text = format("%s, at byte %d of the packet", fault.fault, fault.offset)
		view.tree:add_proto_expert_info(EXPERTS[fault.fault], text)
		derive(view, "fault", tvb, BASE, fault.fault)
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
	elseif not IS_MESSAGE[p.packet_type] then
		p.broken = {}
	elseif not only or only.violations then
		mark_violations(p.v, p.broken)
	end
	local text = summary(p)
	local item = tree:add(msmq, range, "Message Queuing, " .. text)
	show(p, range:tvb(), new_view(item, pinfo))
	return text
end
