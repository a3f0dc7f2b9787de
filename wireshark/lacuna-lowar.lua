-- Wireshark dissector for LoWAR's packets: repairs of a reliable connection's messages, announcements and
-- requests. They are the packets of RoCEv2 (UDP port 4791) that begin with 0x1F where the others have their
-- opcode. Everything else goes to Wireshark's own dissector, as before.
--
--     tshark -X lua_script:wireshark/lacuna-lowar.lua -r capture.pcap -Y lowar
--
-- or copy this file to the folder of personal Lua plugins (Help, About, Folders). Wireshark 3.6 or later.
-- Layout: crates/lacuna-wire/src/rc/repair.rs.

local REPAIR_OPCODE = 0x1f
local ROCE_PORT = 4791
local HEADER_BYTES = 16
local TRAILER_BYTES = 4

local REPAIR, ANNOUNCE, REQUEST = 1, 2, 3
local TYPES = { [REPAIR] = "Repair", [ANNOUNCE] = "Announcement", [REQUEST] = "Request" }
local CODES = { [0] = "XOR", [1] = "MDS" }
local CLASSES = {
    [0] = "SEND",
    [1] = "SEND with immediate",
    [2] = "SEND with invalidate",
    [3] = "RDMA WRITE",
    [4] = "RDMA WRITE with immediate",
    [5] = "RDMA READ response",
}

local lowar = Proto("lowar", "LoWAR repair shim")

local field = {
    opcode = ProtoField.uint8("lowar.opcode", "Opcode", base.HEX),
    qpn = ProtoField.uint24("lowar.qpn", "Destination queue pair", base.HEX),
    kind = ProtoField.uint8("lowar.type", "Type", base.DEC, TYPES),
    block = ProtoField.uint16("lowar.r", "Packets of a full block (r)", base.DEC),
    repairs = ProtoField.uint16("lowar.c", "Repairs of a full block (c)", base.DEC),
    has_first = ProtoField.bool("lowar.has_first", "The message begins with the block", 8, nil, 0x80),
    has_last = ProtoField.bool("lowar.has_last", "The message ends with the block", 8, nil, 0x40),
    code = ProtoField.uint8("lowar.code", "Code", base.DEC, CODES, 0x20),
    class = ProtoField.uint8("lowar.class", "Message", base.DEC, CLASSES, 0x0f),
    first_psn = ProtoField.uint24("lowar.first_psn", "First packet number of the block (bPSN)", base.DEC),
    index = ProtoField.uint8("lowar.isn", "Which repair of the block (ISN)", base.DEC),
    packets = ProtoField.uint16("lowar.packets", "Packets of the block", base.DEC),
    last_bytes = ProtoField.uint16("lowar.last_bytes", "Payload bytes of the message's last packet", base.DEC),
    round = ProtoField.uint8("lowar.round", "Round", base.DEC),
    sum = ProtoField.bytes("lowar.sum", "Sum of the packets behind their BTH"),
    trailer = ProtoField.uint32("lowar.icrc", "Trailer (ICRC)", base.HEX),
    covers = ProtoField.string("lowar.covers", "Covers packet numbers"),
    off = ProtoField.bool("lowar.off", "No repairs are asked for"),
}
lowar.fields = field

local malformed = ProtoExpert.new(
    "lowar.malformed", "No such LoWAR packet", expert.group.MALFORMED, expert.severity.ERROR)
lowar.experts = { malformed }

-- The numbers that a repair is the sum of.
local function covered(first_psn, packets, repairs, index, is_mds)
    local psn = function(place) return (first_psn + place) % 0x1000000 end
    if is_mds then
        return string.format("%d to %d", psn(0), psn(packets - 1))
    end
    local numbers = {}
    for place = index, packets - 1, repairs do
        numbers[#numbers + 1] = psn(place)
    end
    return table.concat(numbers, ", ")
end

function lowar.dissector(buffer, pinfo, root)
    local bytes = buffer:len()
    if bytes < HEADER_BYTES + TRAILER_BYTES then
        local tree = root:add(lowar, buffer())
        tree:add_proto_expert_info(malformed, "Shorter than header and trailer")
        return bytes
    end
    pinfo.cols.protocol = "LoWAR"
    local kind = buffer(4, 1):uint()
    local block, repairs = buffer(5, 1):uint() + 1, buffer(6, 1):uint() + 1
    local is_mds = bit.band(buffer(7, 1):uint(), 0x20) ~= 0
    local index = buffer(11, 1):uint()
    local is_off = kind == REQUEST and index == 0xff
    local strength = string.format("%s(%d, %d)", is_mds and "MDS" or "XOR", block, repairs)
    local name = TYPES[kind] or string.format("Type %d", kind)
    local tree = root:add(lowar, buffer(), "LoWAR " .. name)

    tree:add(field.opcode, buffer(0, 1))
    tree:add(field.qpn, buffer(1, 3))
    tree:add(field.kind, buffer(4, 1))
    local info = string.format("LoWAR %s QP=0x%06x ", name, buffer(1, 3):uint())
    if is_off then
        tree:add(field.off, buffer(11, 1), true)
        info = info .. "off"
    elseif TYPES[kind] then
        tree:add(field.block, buffer(5, 1), block)
        tree:add(field.repairs, buffer(6, 1), repairs)
        tree:add(field.code, buffer(7, 1))
        info = info .. strength
    else
        tree:add_proto_expert_info(malformed, "No such type")
    end
    if kind == ANNOUNCE then
        tree:add(field.class, buffer(7, 1))
        tree:add(field.first_psn, buffer(8, 3))
        info = info .. string.format(" from PSN %d on", buffer(8, 3):uint())
    elseif kind == REPAIR then
        local first_psn, packets = buffer(8, 3):uint(), buffer(12, 1):uint() + 1
        tree:add(field.has_first, buffer(7, 1))
        tree:add(field.has_last, buffer(7, 1))
        tree:add(field.class, buffer(7, 1))
        tree:add(field.first_psn, buffer(8, 3))
        tree:add(field.index, buffer(11, 1))
        tree:add(field.packets, buffer(12, 1), packets)
        tree:add(field.last_bytes, buffer(13, 2))
        tree:add(field.round, buffer(15, 1))
        if index >= repairs or packets > block then
            tree:add_proto_expert_info(malformed, "More repairs or packets than a block has")
        else
            tree:add(field.covers, covered(first_psn, packets, repairs, index, is_mds)):set_generated()
        end
        info = info .. string.format(" PSN %d, %d packets, repair %d", first_psn, packets, index)
    end
    local sum_bytes = bytes - HEADER_BYTES - TRAILER_BYTES
    if sum_bytes > 0 then
        tree:add(field.sum, buffer(HEADER_BYTES, sum_bytes))
    end
    tree:add(field.trailer, buffer(bytes - TRAILER_BYTES, TRAILER_BYTES))
    pinfo.cols.info = info
    return bytes
end

-- Stands before the dissector that the port has, which gets all that is not LoWAR's.
local ports = DissectorTable.get("udp.port")
local roce = ports:get_dissector(ROCE_PORT)
local front = Proto("lowar_roce", "RoCEv2 with LoWAR")

function front.dissector(buffer, pinfo, root)
    if buffer:len() > 0 and buffer(0, 1):uint() == REPAIR_OPCODE then
        return lowar.dissector(buffer, pinfo, root)
    end
    if roce then
        return roce:call(buffer, pinfo, root)
    end
    return 0
end

ports:add(ROCE_PORT, front)
