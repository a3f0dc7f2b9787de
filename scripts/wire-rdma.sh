#!/usr/bin/env bash
# Packets of `--wire rdma` are what RDMA cards make and take, by another decoder's word:
#
#   scripts/wire-rdma.sh           ends with 1 if any packet is not
#
# Two hosts in network namespaces of their own. `perf` and `send` go from one to the other, over IPv4
# with segmentation offload and without, and over IPv6 with both, also over a path that loses packets.
# tshark captures what is on the wire, below the kernel's segmentation, and decodes it: every packet
# but Lacuna's control packets (UD SEND) must be an RDMA WRITE Only with Immediate with RETH and ImmDt.
# tshark does not check ICRCs, so Python does, with zlib's CRC-32 over the frame's own headers.
#
# Needs root, `ip`, `tc`, python3 and tshark (`apt-get install tshark`); without them it says so and
# ends with 0. Builds the release binary unless LACUNA names one.
set -euo pipefail
# All on networks of its own namespaces, which nobody else can reach.
export LACUNA_INSECURE=1
cd "$(dirname "$0")/.."
for tool in ip tc python3 tshark; do
    command -v $tool >/dev/null ||
        { echo "skipped: needs $tool (apt-get install iproute2 python3 tshark)"; exit 0; }
done
near=lacuna-wire-$$-a far=lacuna-wire-$$-b
work=$(mktemp -d "${TMPDIR:-/tmp}/lacuna-wire.XXXXXX")
server= capture= failed=0

clean() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    [ -z "$capture" ] || kill "$capture" 2>/dev/null || true
    for host in $near $far; do ip netns del $host 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

if ! ip netns add $near 2>/dev/null || ! ip netns add $far; then
    echo "skipped: needs root and network namespaces"
    exit 0
fi
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-target}/release/lacuna
fi
lacuna=$(realpath "$LACUNA")
head -c 20000001 /dev/urandom >"$work/file"

ip -n $near link add eth0 type veth peer name eth0 netns $far
for host in $near $far; do
    ip -n $host link set lo up
    # The kernel cuts bundles itself, before the capture, as it does for a card that cannot.
    ip -n $host link set eth0 gso_max_segs 1 up
done
ip -n $near address add 10.78.0.1/24 dev eth0
ip -n $far address add 10.78.0.2/24 dev eth0
ip -n $near address add fd78::1/64 dev eth0 nodad
ip -n $far address add fd78::2/64 dev eth0 nodad

cat >"$work/check.py" <<'PYTHON'
"""Checks a capture: check.py CAPTURE UNCUT SENT NAME

UNCUT: yes if the sender had no segmentation offload. SENT: packets that must be in it at least.
"""
import collections, struct, subprocess, sys, zlib

capture, uncut, sent, name = sys.argv[1], sys.argv[2] == "yes", int(sys.argv[3]), sys.argv[4]
WRITE, CONTROL = 0x2B, 0x64


def frames():
    """Number, IP packet and where UDP begins, of each UDP packet in a pcap file of Ethernet."""
    with open(capture, "rb") as file:
        magic, *_, link = struct.unpack("<IHHIIII", file.read(24))
        assert (magic, link) == (0xA1B2C3D4, 1), "a pcap file of Ethernet"
        number = 0
        while header := file.read(16):
            _, _, stored, length = struct.unpack("<IIII", header)
            frame = file.read(stored)
            number += 1
            assert stored == length, f"frame {number} was cut short"
            kind, packet = frame[12:14], frame[14:]
            if kind == b"\x08\x00" and packet[9] == 17:
                yield number, packet[: struct.unpack_from("!H", packet, 2)[0]], 20
            elif kind == b"\x86\xdd" and packet[6] == 17:
                yield number, packet[: 40 + struct.unpack_from("!H", packet, 4)[0]], 40


def icrc(packet, udp):
    """By InfiniBand's annex A17: what routers change counts as ones."""
    masked = bytearray(packet[:-4])
    if udp == 20:
        changing = [1, 8, 10, 11]
    else:
        masked[0] |= 0x0F
        changing = [1, 2, 3, 7]
    for at in changing + [udp + 6, udp + 7, udp + 8 + 4]:
        masked[at] = 0xFF
    return zlib.crc32(b"\xff" * 8 + bytes(masked))


packets = {number: (packet, udp) for number, packet, udp in frames()}
ports = collections.Counter(struct.unpack_from("!H", packet, udp + 2)[0] for packet, udp in packets.values())
port = ports.most_common(1)[0][0]  # the receiver's socket
fields = ["frame.number", "infiniband.bth.opcode", "infiniband.bth.padcnt", "infiniband.reth.dmalen",
          "infiniband.reth.va", "infiniband.immdt", "infiniband.invariant.crc", "_ws.malformed"]
command = ["tshark", "-r", capture, "-o", f"infiniband.rroce.port:{port}", "-Y", "udp", "-T", "fields"]
for field in fields:
    command += ["-e", field]
decoded = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout

wrong, writes, controls, identifications = [], 0, 0, collections.Counter()
for line in decoded.decode().splitlines():
    number, opcode, pad, dma_bytes, address, immediate, crc, malformed = (line + "\t" * 8).split("\t")[:8]
    packet, udp = packets.pop(int(number))
    if malformed or not opcode:
        wrong.append(f"frame {number}: tshark cannot decode it")
        continue
    if int(opcode, 0) == CONTROL:
        controls += 1
        continue
    if int(opcode, 0) != WRITE or not address or not immediate or not crc:
        wrong.append(f"frame {number}: opcode {opcode}, RETH {address}, immediate {immediate}")
        continue
    writes += 1
    # UDP, BTH, RETH, ImmDt; pad, ICRC.
    if int(dma_bytes, 0) != len(packet) - udp - 8 - 12 - 16 - 4 - int(pad, 0) - 4:
        wrong.append(f"frame {number}: RETH says {dma_bytes} bytes")
    on_wire = struct.unpack("<I", packet[-4:])[0]
    # tshark prints the bytes in their order.
    if struct.unpack(">I", packet[-4:])[0] != int(crc, 0) and on_wire != int(crc, 0):
        wrong.append(f"frame {number}: tshark sees the ICRC {crc} elsewhere")
    if on_wire != icrc(packet, udp):
        wrong.append(f"frame {number}: ICRC {on_wire:08x} instead of {icrc(packet, udp):08x}")
    if udp == 20:
        identifications[struct.unpack_from("!H", packet, 4)[0]] += 1
if packets:
    wrong.append(f"tshark does not show {len(packets)} packets")
if writes < sent:
    wrong.append(f"{sent} packets were sent, only {writes} captured")
if identifications and (set(identifications) == {0}) != uncut:
    wrong.append(f"identifications {sorted(identifications)}: segmentation offload is not what it should be")
highest = f", identifications 0 to {max(identifications)}" if identifications else ""
print(f"{'FAILED ' if wrong else 'ok     '} {name}: {writes} RDMA WRITE Only with Immediate, ICRCs right: "
      f"{writes - sum('ICRC' in line for line in wrong)}; {controls} control packets{highest}")
print(*(f"        {line}" for line in wrong[:5]), sep="\n", end="\n" if wrong else "")
sys.exit(1 if wrong else 0)
PYTHON

# Waits until a file has a line.
await() {
    local tries=0
    until grep -q "$2" "$1"; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || { echo "no '$2' in:"; cat "$1"; exit 1; }
        sleep 0.02
    done
}

# begin PROGRAM...: starts the receiving end, and the capture.
begin() {
    ip netns exec $far "$@" >"$work/server.out" 2>"$work/server" &
    server=$!
    await "$work/server" "listening on"
    rm -f "$work/capture"
    ip netns exec $near tshark -q -i eth0 -F pcap -B 64 -f udp -w "$work/capture" 2>"$work/tshark" &
    capture=$!
    # It makes the file once it captures.
    local tries=0
    until [ -e "$work/capture" ]; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || { echo "no capture:"; cat "$work/tshark"; exit 1; }
        sleep 0.02
    done
    sleep 0.2
}

# end UNCUT SENT NAME: ends them, and checks what was captured.
end() {
    sleep 0.5
    kill -INT $capture
    wait $capture || true
    capture=
    kill $server 2>/dev/null || true
    wait $server 2>/dev/null || true
    server=
    grep -q "dropped" "$work/tshark" && { cat "$work/tshark"; failed=1; }
    python3 "$work/check.py" "$work/capture" "$@" || failed=1
}

# perf NAME HOST OPTIONS...: with `share`, so many per cent of the packets that it sends are captured.
perf() {
    local name=$1 host=$2 uncut=no sent
    shift 2
    [[ " $* " != *" --no-offload "* ]] || uncut=yes
    begin "$lacuna" perf server
    if ! ip netns exec $near "$lacuna" perf client "$host" --wire rdma --json --validate --rate 200mbit \
        --size 1MiB --iters 10 --warmup 0 "$@" >"$work/perf.json" 2>"$work/client"; then
        echo "FAILED  $name:"
        cat "$work/client" "$work/server"
        failed=1
    fi
    grep -q "wire rdma" "$work/client" || { echo "FAILED  $name: it does not say so"; failed=1; }
    read -r sent parity < <(python3 -c 'import json, sys
result = json.load(open(sys.argv[1]))
assert result["validated"] and result["wire"] == "rdma"
assert result["rejected_packets"] == 0, result
print(result["sent_packets"], result["parity_packets"])' "$work/perf.json")
    end $uncut $((sent * ${share:-100} / 100)) "$name ($parity of parity)"
}

# send NAME HOST: a file.
send() {
    rm -rf "$work/in"
    begin "$lacuna" recv --dir "$work/in"
    ip netns exec $near "$lacuna" send --wire rdma --rate 200mbit "$work/file" "$2" >"$work/client" 2>&1 ||
        { cat "$work/client"; failed=1; }
    cmp "$work/file" "$work/in/file" || failed=1
    # So many of the longest that fit.
    end no $((20000001 / 1436)) "$1"
}

for host in 10.78.0.2 fd78::2; do
    family=IPv4
    [[ $host != *:* ]] || family=IPv6
    perf "perf, sr, $family, segmentation offload" $host --mode sr
    perf "perf, ec, $family, segmentation offload" $host --mode ec
    perf "perf, sr, $family, no offload" $host --mode sr --no-offload
    perf "perf, ec, $family, no offload" $host --mode ec --no-offload
    ip -n $near link set eth0 mtu 9000
    ip -n $far link set eth0 mtu 9000
    perf "perf, ec, $family, segmentation offload, link of 9000 bytes" $host --mode ec
    ip -n $near link set eth0 mtu 1500
    ip -n $far link set eth0 mtu 1500
    # A link of less than the rate, with a short queue.
    tc -n $near qdisc add dev eth0 root tbf rate 190mbit burst 16kb limit 64kb
    share=80 perf "perf, ec, $family, segmentation offload, losses" $host --mode ec
    tc -n $near qdisc del dev eth0 root
    send "send, $family, segmentation offload" $host
done
exit $failed
