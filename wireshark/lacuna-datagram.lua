-- Wireshark dissector for packets of datagram queue pairs (datagram-iWARP): DDP segments with RDMAP operations, one
-- in each datagram of UDP. They have no port of their own. A packet is recognized by its versions, its opcode and its
-- CRC32C, and from then on all packets between its two ports are shown, damaged ones as well:
--
--     tshark -X lua_script:wireshark/lacuna-datagram.lua -r capture.pcap -Y lacuna_ddp
--     tshark -X lua_script:wireshark/lacuna-datagram.lua -r capture.pcap -d udp.port==7407,lacuna_ddp
--
-- or copy this file to the folder of personal Lua plugins (Help, About, Folders). Wireshark 3.6 or later.
-- Layout: docs/datagram-packets.md.

local TAGGED_BYTES, UNTAGGED_BYTES, TRAILER_BYTES = 30, 18, 4
local REQUEST_BYTES = 32
local FRAME_BYTES, RANGE_BYTES, STRETCH_BYTES = 8, 8, 16
local READ_REQUEST, SEND, SEND_SOLICITED, WRITE_RECORD, CONTROL = 0x1, 0x3, 0x5, 0xc, 0xe
local OPERATIONS = {
    [READ_REQUEST] = "READ request",
    [SEND] = "Send",
    [SEND_SOLICITED] = "Send with Solicited Event",
    [WRITE_RECORD] = "Write-Record",
    [CONTROL] = "Control",
}
local QUEUE_OF = { [READ_REQUEST] = 1, [SEND] = 0, [SEND_SOLICITED] = 0, [CONTROL] = 3 }
local RELIABLE_QUEUE, GROUP_QUEUE, GROUP_MAX = 4, 0x80000000, 0xffffff
local QUEUES = { [0] = "Sends", [1] = "READs", [3] = "Control", [4] = "Reliable" }
local REPORT, ERROR, CANCEL, SENT, MISSING, BEGIN, ASK, ACKNOWLEDGE, PROBE = 1, 2, 3, 4, 5, 6, 7, 8, 9
local KINDS = {
    [REPORT] = "Report",
    [ERROR] = "Error",
    [CANCEL] = "Cancel",
    [SENT] = "Sent",
    [MISSING] = "Missing",
    [BEGIN] = "Begin",
    [ASK] = "Ask",
    [ACKNOWLEDGE] = "Acknowledge",
    [PROBE] = "Probe",
}
-- Bytes behind a frame's number, at least.
local REST_BYTES = {
    [REPORT] = 12,
    [ERROR] = 1,
    [CANCEL] = 5,
    [SENT] = 4,
    [MISSING] = 0,
    [BEGIN] = 12,
    [ASK] = 12,
    [ACKNOWLEDGE] = 36,
    [PROBE] = 12,
}
local SPACES = {
    [0] = "Send",
    [1] = "READ",
    [2] = "Write-Record",
    [3] = "reliable message",
    [4] = "group Send",
    [5] = "group Write-Record",
}
local REASONS = {
    [1] = "no buffer",
    [2] = "key",
    [3] = "bounds",
    [4] = "rights",
    [5] = "busy",
    [6] = "cancelled",
    [7] = "deadline",
}
local BAD, GOOD, UNVERIFIED = 0, 1, 2
local VERDICTS = { [BAD] = "Bad", [GOOD] = "Good", [UNVERIFIED] = "Unverified" }

local ddp = Proto("lacuna_ddp", "Datagram-iWARP")

local field = {
    tagged = ProtoField.bool("lacuna_ddp.tagged", "Tagged", 8, nil, 0x80),
    last = ProtoField.bool("lacuna_ddp.last", "Last segment of its message", 8, nil, 0x40),
    ddp_reserved = ProtoField.uint8("lacuna_ddp.reserved", "Reserved", base.HEX, nil, 0x3c),
    ddp_version = ProtoField.uint8("lacuna_ddp.version", "DDP version", base.DEC, nil, 0x03),
    rdmap_version = ProtoField.uint8("lacuna_ddp.rdmap_version", "RDMAP version", base.DEC, nil, 0xc0),
    rdmap_reserved = ProtoField.uint8("lacuna_ddp.rdmap_reserved", "Reserved", base.HEX, nil, 0x30),
    opcode = ProtoField.uint8("lacuna_ddp.opcode", "Opcode", base.HEX, OPERATIONS, 0x0f),
    stag = ProtoField.uint32("lacuna_ddp.stag", "STag", base.HEX),
    offset = ProtoField.uint64("lacuna_ddp.offset", "Tagged offset", base.DEC),
    queue = ProtoField.uint32("lacuna_ddp.queue", "Queue number", base.DEC, QUEUES),
    number = ProtoField.uint32("lacuna_ddp.number", "Message number (MSN)", base.DEC),
    length = ProtoField.uint32("lacuna_ddp.length", "Bytes of the message", base.DEC),
    place = ProtoField.uint32("lacuna_ddp.place", "Place in the message (MO)", base.DEC),
    flags = ProtoField.uint8("lacuna_ddp.flags", "Flags", base.HEX),
    solicited = ProtoField.bool("lacuna_ddp.solicited", "Solicited", 8, nil, 0x01),
    answer = ProtoField.bool("lacuna_ddp.answer", "Answers a READ", 8, nil, 0x02),
    named = ProtoField.bool("lacuna_ddp.named", "The STag is a region's name", 8, nil, 0x04),
    reliable = ProtoField.bool("lacuna_ddp.reliable", "Sent until it has come", 8, nil, 0x08),
    group = ProtoField.uint24("lacuna_ddp.group", "Group (0 is none)", base.DEC),
    payload = ProtoField.bytes("lacuna_ddp.payload", "Payload"),
    payload_bytes = ProtoField.uint32("lacuna_ddp.payload_bytes", "Payload bytes", base.DEC),
    sink_stag = ProtoField.uint32("lacuna_ddp.read.sink_stag", "Sink STag", base.HEX),
    sink_offset = ProtoField.uint64("lacuna_ddp.read.sink_offset", "Sink offset", base.DEC),
    asked = ProtoField.uint32("lacuna_ddp.read.length", "Bytes that are wanted", base.DEC),
    source_stag = ProtoField.uint32("lacuna_ddp.read.source_stag", "Source STag", base.HEX),
    source_offset = ProtoField.uint64("lacuna_ddp.read.source_offset", "Source offset", base.DEC),
    time_left = ProtoField.uint32("lacuna_ddp.read.time_left", "Time left (us; 0 is no limit)", base.DEC),
    kind = ProtoField.uint8("lacuna_ddp.frame.kind", "Kind", base.DEC, KINDS),
    space = ProtoField.uint8("lacuna_ddp.frame.space", "Messages", base.DEC, SPACES),
    frame_bytes = ProtoField.uint16("lacuna_ddp.frame.length", "Bytes of the body", base.DEC),
    about = ProtoField.uint32("lacuna_ddp.frame.number", "Message number", base.DEC),
    all_bytes = ProtoField.uint64("lacuna_ddp.frame.bytes", "Bytes in all", base.DEC),
    waited = ProtoField.uint32("lacuna_ddp.frame.waited", "Time that this waited (us)", base.DEC),
    unused = ProtoField.uint32("lacuna_ddp.probe.unused", "Room for the report", base.DEC),
    reason = ProtoField.uint8("lacuna_ddp.reason", "Reason", base.DEC, REASONS),
    cancel_key = ProtoField.uint32("lacuna_ddp.cancel.key", "Key that its segments name", base.HEX),
    sent_group = ProtoField.uint32("lacuna_ddp.sent.group", "Group (0 is none)", base.DEC),
    instance = ProtoField.uint32("lacuna_ddp.instance", "Instance", base.HEX),
    token = ProtoField.uint64("lacuna_ddp.token", "Token", base.HEX),
    record = ProtoField.uint32("lacuna_ddp.acknowledge.record", "Receiver's record", base.HEX),
    horizon_number = ProtoField.uint32("lacuna_ddp.acknowledge.horizon_number", "Horizon, message", base.DEC),
    horizon_place = ProtoField.uint32("lacuna_ddp.acknowledge.horizon_place", "Horizon, place", base.DEC),
    latest_number = ProtoField.uint32("lacuna_ddp.acknowledge.latest_number", "Latest segment, message", base.DEC),
    latest_place = ProtoField.uint32("lacuna_ddp.acknowledge.latest_place", "Latest segment, place", base.DEC),
    from_number = ProtoField.uint32("lacuna_ddp.acknowledge.from_number", "Missing from, message", base.DEC),
    from_place = ProtoField.uint32("lacuna_ddp.acknowledge.from_place", "Missing from, place", base.DEC),
    to_number = ProtoField.uint32("lacuna_ddp.acknowledge.to_number", "Up to, without, message", base.DEC),
    to_place = ProtoField.uint32("lacuna_ddp.acknowledge.to_place", "Up to, without, place", base.DEC),
    missing_begin = ProtoField.uint32("lacuna_ddp.missing.begin", "From", base.DEC),
    missing_end = ProtoField.uint32("lacuna_ddp.missing.end", "Up to, without", base.DEC),
    unknown = ProtoField.bytes("lacuna_ddp.frame.unknown", "Unknown"),
    trailer = ProtoField.uint32("lacuna_ddp.trailer", "Trailer (CRC32C)", base.HEX),
    computed = ProtoField.uint32("lacuna_ddp.trailer.computed", "Computed", base.HEX),
    verdict = ProtoField.uint8("lacuna_ddp.trailer.status", "Trailer status", base.DEC, VERDICTS),
}
ddp.fields = field

local malformed = ProtoExpert.new(
    "lacuna_ddp.malformed", "No such packet", expert.group.MALFORMED, expert.severity.ERROR)
local damaged = ProtoExpert.new(
    "lacuna_ddp.damaged", "The trailer does not match", expert.group.CHECKSUM, expert.severity.ERROR)
ddp.experts = { malformed, damaged }

-- CRC32C, a byte at a time (RFC 3720).
local TABLE = {}
for byte = 0, 255 do
    local crc = byte
    for _ = 1, 8 do
        local carry = bit.band(crc, 1)
        crc = bit.rshift(crc, 1)
        if carry == 1 then
            crc = bit.bxor(crc, 0x82f63b78)
        end
    end
    TABLE[byte] = crc
end

local function crc32c(text)
    local crc = 0xffffffff
    for at = 1, #text do
        crc = bit.bxor(bit.rshift(crc, 8), TABLE[bit.band(bit.bxor(crc, text:byte(at)), 0xff)])
    end
    -- The operations give signed numbers.
    return bit.bxor(crc, 0xffffffff) % 0x100000000
end

-- What the trailer should be, and what it is; nothing of a packet that was captured in part.
local function trailers(buffer)
    local covered = buffer:len() - TRAILER_BYTES
    if buffer:len() < buffer:reported_len() or covered <= 0 then
        return nil
    end
    return crc32c(buffer(0, covered):raw()), buffer(covered, TRAILER_BYTES):le_uint()
end

local function hex(range)
    return string.format("0x%08x", range:uint())
end

-- Whether segments of an operation are for this queue; nil if they are tagged.
local function is_queue_of(opcode, queue)
    local own = QUEUE_OF[opcode]
    if queue == own then
        return true
    elseif own == nil or queue == nil or opcode == CONTROL then
        return false
    end
    local group = queue - GROUP_QUEUE
    return queue == RELIABLE_QUEUE or own == 0 and group > 0 and group <= GROUP_MAX
end

local function add_request(tree, buffer)
    tree:add(field.sink_stag, buffer(0, 4))
    tree:add(field.sink_offset, buffer(4, 8))
    tree:add(field.asked, buffer(12, 4))
    tree:add(field.source_stag, buffer(16, 4))
    tree:add(field.source_offset, buffer(20, 8))
    tree:add(field.time_left, buffer(28, 4))
    local time_left = buffer(28, 4):uint()
    return string.format(": %d bytes of STag %s at %s%s", buffer(12, 4):uint(), hex(buffer(16, 4)),
        tostring(buffer(20, 8):uint64()), time_left > 0 and string.format(" within %d us", time_left) or "")
end

-- Adds one frame with all its bytes; its line for the info column.
local function add_frame(tree, frame)
    local kind, space, bytes = frame(0, 1):uint(), frame(1, 1):uint(), frame:len()
    local name = KINDS[kind] or string.format("Kind %d", kind)
    local rest = bytes - FRAME_BYTES
    local is_known = KINDS[kind] and SPACES[space] and rest >= REST_BYTES[kind]
    tree = tree:add(frame, name)
    tree:add(field.kind, frame(0, 1))
    tree:add(field.space, frame(1, 1))
    tree:add(field.frame_bytes, frame(2, 2))
    if not is_known then
        tree:append_text(" (skipped)")
        if bytes > 4 then
            tree:add(field.unknown, frame(4, bytes - 4))
        end
        return name .. " (skipped)"
    end
    tree:add(field.about, frame(4, 4))
    local number = frame(4, 4):uint()
    local line = string.format("%s of %s %d", name, SPACES[space], number)
    local used = REST_BYTES[kind]
    if kind == REPORT then
        tree:add(field.all_bytes, frame(8, 8))
        tree:add(field.waited, frame(16, 4))
        line = string.format("Report to probe %d: %s bytes in all", number, tostring(frame(8, 8):uint64()))
    elseif kind == PROBE then
        tree:add(field.all_bytes, frame(8, 8))
        tree:add(field.unused, frame(16, 4))
        line = string.format("Probe %d", number)
    elseif kind == SENT then
        tree:add(field.sent_group, frame(8, 4))
        local group = frame(8, 4):uint()
        line = string.format("Sent up to %s %d", SPACES[space], number)
        line = line .. (group > 0 and string.format(" of group %d", group) or "")
    elseif kind == BEGIN or kind == ASK then
        tree:add(field.instance, frame(8, 4))
        tree:add(field.token, frame(12, 8))
        line = string.format("%s at %s %d", name, SPACES[space], number)
        line = line .. (frame(8, 4):uint() > 0 and " of instance " .. hex(frame(8, 4)) or "")
    elseif kind == ACKNOWLEDGE then
        tree:add(field.instance, frame(8, 4))
        tree:add(field.record, frame(12, 4))
        tree:add(field.horizon_number, frame(16, 4))
        tree:add(field.horizon_place, frame(20, 4))
        tree:add(field.latest_number, frame(24, 4))
        tree:add(field.latest_place, frame(28, 4))
        tree:add(field.all_bytes, frame(32, 8))
        tree:add(field.waited, frame(40, 4))
        local count = math.floor((rest - used) / STRETCH_BYTES)
        for at = FRAME_BYTES + used, FRAME_BYTES + used + (count - 1) * STRETCH_BYTES, STRETCH_BYTES do
            tree:add(field.from_number, frame(at, 4))
            tree:add(field.from_place, frame(at + 4, 4))
            tree:add(field.to_number, frame(at + 8, 4))
            tree:add(field.to_place, frame(at + 12, 4))
        end
        used = used + count * STRETCH_BYTES
        line = string.format("%s before %s %d, up to %d at %d", name, SPACES[space], number, frame(16, 4):uint(),
            frame(20, 4):uint())
        line = line .. (count > 0 and string.format(" but for %d stretches", count) or "")
    elseif kind == ERROR or kind == CANCEL then
        tree:add(field.reason, frame(8, 1))
        local reason = frame(8, 1):uint()
        line = line .. ": " .. (REASONS[reason] or string.format("reason %d", reason))
        if kind == CANCEL then
            tree:add(field.cancel_key, frame(9, 4))
        end
    elseif kind == MISSING then
        local count = math.floor(rest / RANGE_BYTES)
        used = count * RANGE_BYTES
        for at = FRAME_BYTES, FRAME_BYTES + used - RANGE_BYTES, RANGE_BYTES do
            tree:add(field.missing_begin, frame(at, 4))
            tree:add(field.missing_end, frame(at + 4, 4))
        end
        line = line .. string.format(": %d ranges", count)
    end
    if rest > used then
        tree:add(field.unknown, frame(FRAME_BYTES + used, rest - used))
    end
    tree:append_text(line:sub(#name + 1))
    return line
end

local function add_control(tree, buffer)
    local lines, at, bytes = {}, 0, buffer:len()
    while at < bytes do
        local body = at + 4 <= bytes and buffer(at + 2, 2):uint()
        if not body or at + 4 + body > bytes then
            tree:add_proto_expert_info(malformed, "A control frame is cut off")
            lines[#lines + 1] = "cut off"
            break
        end
        lines[#lines + 1] = add_frame(tree, buffer(at, 4 + body))
        at = at + 4 + body
    end
    return ": " .. table.concat(lines, "; ")
end

function ddp.dissector(buffer, pinfo, root)
    local bytes = buffer:len()
    pinfo.cols.protocol = "DDP/UDP"
    local tree = root:add(ddp, buffer())
    if bytes < UNTAGGED_BYTES + TRAILER_BYTES then
        tree:add_proto_expert_info(malformed, "Shorter than headers and trailer")
        pinfo.cols.info = "Shorter than headers and trailer"
        return bytes
    end
    local first, second = buffer(0, 1):uint(), buffer(1, 1):uint()
    local is_tagged, is_last = bit.band(first, 0x80) ~= 0, bit.band(first, 0x40) ~= 0
    local opcode = bit.band(second, 0x0f)
    local name = OPERATIONS[opcode] or string.format("Opcode 0x%x", opcode)
    tree:add(field.tagged, buffer(0, 1))
    tree:add(field.last, buffer(0, 1))
    tree:add(field.ddp_reserved, buffer(0, 1))
    tree:add(field.ddp_version, buffer(0, 1))
    tree:add(field.rdmap_version, buffer(1, 1))
    tree:add(field.rdmap_reserved, buffer(1, 1))
    tree:add(field.opcode, buffer(1, 1))
    if bit.band(first, 0x03) ~= 1 or bit.rshift(second, 6) ~= 1 then
        tree:add_proto_expert_info(malformed, "The versions are not 1 and 1")
    elseif not OPERATIONS[opcode] then
        tree:add_proto_expert_info(malformed, "No operation has this opcode")
    end

    local header = is_tagged and TAGGED_BYTES or UNTAGGED_BYTES
    local payload = bytes - header - TRAILER_BYTES
    if buffer:len() < buffer:reported_len() then
        -- What is there; the trailer is not.
        payload = math.max(bytes - header, 0)
    end
    if payload < 0 then
        tree:add_proto_expert_info(malformed, "Shorter than headers and trailer")
        pinfo.cols.info = name .. ", shorter than headers and trailer"
        return bytes
    end
    local number, length, place, words
    local flags = {}
    if is_tagged then
        tree:add(field.stag, buffer(2, 4))
        tree:add(field.offset, buffer(6, 8))
        tree:add(field.number, buffer(14, 4))
        tree:add(field.length, buffer(18, 4))
        tree:add(field.place, buffer(22, 4))
        local bits = tree:add(field.flags, buffer(26, 1))
        bits:add(field.solicited, buffer(26, 1))
        bits:add(field.answer, buffer(26, 1))
        bits:add(field.named, buffer(26, 1))
        bits:add(field.reliable, buffer(26, 1))
        tree:add(field.group, buffer(27, 3))
        number, length, place = buffer(14, 4):uint(), buffer(18, 4):uint(), buffer(22, 4):uint()
        local set = buffer(26, 1):uint()
        for at, word in ipairs({ "solicited", "answer", "named", "reliable" }) do
            if bit.band(set, 2 ^ (at - 1)) ~= 0 then
                flags[#flags + 1] = word
            end
        end
        words = string.format(" to STag %s at %s", hex(buffer(2, 4)), tostring(buffer(6, 8):uint64()))
        local group = buffer(27, 3):uint()
        words = words .. (group > 0 and string.format(" of group %d", group) or "")
    else
        tree:add(field.length, buffer(2, 4))
        tree:add(field.queue, buffer(6, 4))
        tree:add(field.number, buffer(10, 4))
        tree:add(field.place, buffer(14, 4))
        number, length, place = buffer(10, 4):uint(), buffer(2, 4):uint(), buffer(14, 4):uint()
        words = ""
        local group = buffer(6, 4):uint() - GROUP_QUEUE
        if group > 0 and group <= GROUP_MAX then
            tree:add(field.group, buffer(7, 3))
            words = string.format(" to group %d", group)
        elseif buffer(6, 4):uint() == RELIABLE_QUEUE then
            flags[#flags + 1] = "reliable"
        end
    end
    if OPERATIONS[opcode] then
        local queue = not is_tagged and buffer(6, 4):uint() or nil
        if not is_queue_of(opcode, queue) then
            tree:add_proto_expert_info(malformed, "The operation is not for this queue, or not for memory")
        end
    end
    local is_cut = buffer:len() < buffer:reported_len()
    local whole = buffer:reported_len() - header - TRAILER_BYTES
    if place + whole > length or is_last ~= (place + whole == length) or (whole == 0 and length > 0) then
        tree:add_proto_expert_info(malformed, "The segment is not within its message, or is wrongly the last")
    end
    tree:add(field.payload_bytes, whole):set_generated()
    if is_last then
        table.insert(flags, 1, "last")
    end

    local part = payload > 0 and buffer(header, payload) or nil
    local is_whole = place == 0 and whole == length
    if opcode == READ_REQUEST and is_whole and payload == REQUEST_BYTES then
        words = add_request(tree, part:tvb()) .. (buffer(6, 4):uint() == RELIABLE_QUEUE and " [reliable]" or "")
    elseif opcode == CONTROL and is_whole and part then
        words = add_control(tree, part:tvb())
    else
        if part then
            tree:add(field.payload, part)
        end
        words = string.format(", bytes %d to %d of %d%s", place, place + whole, length, words)
        if #flags > 0 then
            words = words .. " [" .. table.concat(flags, ", ") .. "]"
        end
    end

    local expected, found = trailers(buffer)
    local verdict = UNVERIFIED
    if expected then
        verdict = expected == found and GOOD or BAD
        local range = buffer(bytes - TRAILER_BYTES, TRAILER_BYTES)
        local trailer = tree:add_le(field.trailer, range)
        trailer:add(field.verdict, range, verdict):set_generated()
        if verdict == BAD then
            trailer:add(field.computed, range, expected):set_generated()
            tree:add_proto_expert_info(damaged)
        end
    else
        tree:add(field.verdict, verdict):set_generated()
    end
    local info = string.format("%s %d%s", name, number, words)
    if opcode == CONTROL then
        info = name .. words
    end
    if verdict == BAD then
        info = info .. " [trailer does not match]"
    elseif is_cut then
        info = info .. " [captured in part]"
    end
    pinfo.cols.info = info
    return bytes
end

-- Other protocols hardly ever have this CRC32C behind these two bytes.
local function recognize(buffer, pinfo, root)
    if buffer:len() < UNTAGGED_BYTES + TRAILER_BYTES then
        return false
    end
    local first, second = buffer(0, 1):uint(), buffer(1, 1):uint()
    if bit.band(first, 0x03) ~= 1 or bit.rshift(second, 6) ~= 1 or not OPERATIONS[bit.band(second, 0x0f)] then
        return false
    end
    local expected, found = trailers(buffer)
    if expected == nil or expected ~= found then
        return false
    end
    pinfo.conversation = ddp
    ddp.dissector(buffer, pinfo, root)
    return true
end

ddp:register_heuristic("udp", recognize)
DissectorTable.get("udp.port"):add_for_decode_as(ddp)
