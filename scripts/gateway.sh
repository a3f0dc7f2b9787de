#!/usr/bin/env bash
# How many frames a gateway passes a second, beside plain forwarding:
#
#   scripts/gateway.sh [SECONDS]   each case takes so long (3 by default); ends with 1 if one passes nothing
#
# A host, a gateway, a gateway and a host in network namespaces, joined by veth. The host sends RoCEv2 frames
# of one connection with 1,024 bytes of payload as fast as one process can. What the other host gets, without
# repairs, is counted: through two bridges of the kernel; through two gateways without repairs, and with some;
# through two that make a tunnel, in clear and encrypted. All share this machine's processors, so the figures are a lower bound.
# `cargo bench -p lacuna-gateway` has the cost of a frame by itself.
#
# For a path that loses packets see part `gateway` of scripts/rxe.sh.
#
# Needs root, `ip` and python3; without them it says so and ends with 0. Builds the release binary unless
# LACUNA names one.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3}
for tool in ip python3 unshare; do
    command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 0; }
done
if [ "$(id -u)" != 0 ] || ! unshare -mn true 2>/dev/null; then
    echo "skipped: needs root and network namespaces"
    exit 0
fi
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-target}/release/lacuna
fi
LACUNA=$(realpath "$LACUNA")
export LACUNA seconds
# All namespaces end with the last process in them.
exec unshare -mn --pid --fork --kill-child --mount-proc bash -s <<'INSIDE'
set -euo pipefail
mount --make-rprivate /
mount -t tmpfs none /run
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/send.py" <<'PYTHON'
import socket, struct, sys, time, zlib

def frame(psn):
    place = psn % 64
    opcode = 6 if place == 0 else 8 if place == 63 else 7
    packet = struct.pack(">BBHII", opcode, 0, 0xFFFF, 0x1234, psn)
    packet += bytes(16 if place == 0 else 0) + bytes([psn & 255]) * 1024
    udp_bytes = 8 + len(packet) + 4
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + udp_bytes, 1, 0x4000, 64, 17, 0,
                     bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]))
    total = sum(struct.unpack(">10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack(">H", 0xFFFF - total) + ip[12:]
    udp = struct.pack(">HHHH", 0xC012, 4791, udp_bytes, 0)
    masked = b"\xff" * 8 + ip[:1] + b"\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    masked += udp[:6] + b"\xff\xff" + packet[:4] + b"\xff" + packet[5:]
    return b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0" + ip + udp + packet + struct.pack("<I", zlib.crc32(masked))

frames = [frame(psn) for psn in range(1 << 15)]
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind((sys.argv[1], 0))
end = time.time() + float(sys.argv[2])
while time.time() < end:
    for frame in frames:
        try:
            raw.send(frame)
        except OSError:
            pass
        if time.time() >= end:
            break
PYTHON

cat >"$work/count.py" <<'PYTHON'
import socket, sys, time

raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)
raw.bind((sys.argv[1], 0))
raw.settimeout(2)
data = repairs = 0
first = last = 0
buffer = bytearray(2048)
try:
    while True:
        raw.recv_into(buffer)
        if buffer[12:14] != b"\x08\0" or buffer[36:38] != b"\x12\xb7":
            continue
        last = time.time()
        first = first or last
        if buffer[42] == 0x1F:
            repairs += 1
        else:
            data += 1
except TimeoutError:
    pass
rate = data / (last - first) if last > first else 0
print(f"{rate / 1e3:7.0f} thousand frames/s arrived, {repairs} repairs reached the host")
sys.exit(data == 0)
PYTHON

for name in ha ga gb hb; do
    ip netns add $name
    ip -n $name link set lo up
done
ip link add a1 netns ha type veth peer name a0 netns ga
ip link add w0 netns ga type veth peer name w1 netns gb
ip link add b0 netns gb type veth peer name b1 netns hb
for pair in "ha a1" "ga a0" "ga w0" "gb w1" "gb b0" "hb b1"; do
    set -- $pair
    ip -n $1 link set $2 up
done
ip -n hb link set b1 promisc on
failed=0

measure() {
    local name=$1
    printf '%-34s' "$name"
    ip netns exec hb python3 "$work/count.py" b1 >"$work/count" &
    local counter=$!
    sleep 0.5
    ip netns exec ha python3 "$work/send.py" a1 "$seconds"
    wait $counter || failed=1
    cat "$work/count"
}

# Frames that a gateway took.
frames() {
    grep -o "\"$2_frames\":[0-9]*" "$work/$1" | cut -d: -f2
}

gateways() {
    local name=$1 near_remote=$2 far_remote=$3 shim=$4
    shift 4
    ip netns exec ga "$LACUNA" -q --json lowar gateway --local a0 --remote $near_remote --shim $shim "$@" >"$work/near" 2>/dev/null &
    local near=$!
    ip netns exec gb "$LACUNA" -q --json lowar gateway --local b0 --remote $far_remote --shim $shim "$@" >"$work/far" 2>/dev/null &
    local far=$!
    sleep 0.5
    measure "$name"
    local ticks=$(awk '{ print $14 + $15 }' /proc/$near/stat) tocks=$(awk '{ print $14 + $15 }' /proc/$far/stat)
    kill -INT $near $far
    wait $near $far || true
    awk -v ticks="$ticks" -v tocks="$tocks" -v near="$(frames near local)" -v far="$(frames far remote)" 'BEGIN {
        printf "%34s%.2f us of a processor a frame at the near end, %.2f at the far end\n", "",
            1e4 * ticks / near, 1e4 * tocks / far }'
}

for place in "ga a0 w0" "gb w1 b0"; do
    set -- $place
    ip -n $1 link add bridge type bridge
    ip -n $1 link set $2 master bridge
    ip -n $1 link set $3 master bridge
    ip -n $1 link set bridge up
done
sleep 0.5
measure "two bridges of the kernel"
ip -n ga link del bridge
ip -n gb link del bridge
gateways "two gateways, inline, no repairs" w0 w1 off
gateways "two gateways, inline, 32:1" w0 w1 32:1
gateways "two gateways, inline, 8:1" w0 w1 8:1
ip -n ga address add 10.77.0.1/24 dev w0
ip -n gb address add 10.77.0.2/24 dev w1
# Unless the environment says who is trusted.
unset LACUNA_TOKEN_FILE LACUNA_INSECURE
"$LACUNA" -q key token "$work/token"
gateways "two gateways, a tunnel, 32:1" 10.77.0.2 10.77.0.1 32:1 --insecure
gateways "the same, encrypted" 10.77.0.2 10.77.0.1 32:1 --token "$work/token"
exit $failed
INSIDE
