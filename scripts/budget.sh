#!/usr/bin/env bash
# What a packet costs, step by step: `perf` samples of both ends of a bulk transfer over loopback,
# grouped by what the functions do. Prints the table of bench/README.md, nanoseconds per packet.
#
#   scripts/budget.sh [MTU [MODE]]     packets of 4096 bytes and mode sr unless said
#
# Needs Linux, `perf` and two cores; builds the release binary unless LACUNA names one.
set -euo pipefail
mtu=${1:-4096} mode=${2:-sr} rate_hz=4000
command -v perf >/dev/null || { echo "budget.sh: install perf (Debian: linux-perf)" >&2; exit 2; }
root=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release --manifest-path "$root/Cargo.toml" -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-$root/target}/release/lacuna
fi
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$dir"' EXIT

record() { perf record --quiet --freq $rate_hz --output "$dir/$1" "${@:2}"; }
record receiver taskset -c 0 "$LACUNA" perf server --once --listen 127.0.0.1:7466 \
    >/dev/null 2>"$dir/log" &
server=$!
for _ in $(seq 100); do grep -q 7466 "$dir/log" && break; sleep 0.1; done
record sender taskset -c 1 "$LACUNA" perf client 127.0.0.1:7466 --mtu "$mtu" --mode "$mode" \
    --duration 3s --json >"$dir/json" 2>/dev/null
wait "$server"
server=

packets=$(grep -o '"sent_packets": *[0-9]*' "$dir/json" | grep -o '[0-9]*$' | head -1)
echo "packets of $mtu bytes, mode $mode: $(grep -o '"gbit_per_s": *[0-9.]*' "$dir/json" | head -1 |
    sed 's/.*: *//; s/\(\..\).*/\1/') Gbit/s, ns per packet"
for end in sender receiver; do
    # Only the library's thread: the application's own is not what a packet costs.
    perf report --input "$dir/$end" --comm lacuna-0 --no-children --show-nr-samples \
        --sort sym --stdio 2>/dev/null |
        awk -v end=$end -v ns=$((1000000000 / rate_hz)) -v packets="$packets" '
            $1 !~ /%$/ { next }
            {
                symbol = $0; sub(/^[^[]*\[.\] /, "", symbol)
                if ($3 == "[k]") {
                    step = symbol ~ /^_copy_(from|to)_iter/ ? "kernel: payload copied" : "kernel: all else"
                } else if (symbol ~ /crc/) step = "payload summed, and copied meanwhile"
                else if (symbol ~ /memmove|memcpy/) step = "other copies"
                else if (symbol ~ /Packetizer|packetize|Transmit|Template|Segment|Burst|DataHeader/) step = "headers, trailers, placing"
                else if (symbol ~ /clock_gettime|Timespec/) step = "clock"
                else step = "protocol, worker, system call entry"
                count[step] += $2; all += $2
            }
            END {
                for (step in count) printf "  %-10s %-38s %5.0f\n", end, step, count[step] * ns / packets
                printf "  %-10s %-38s %5.0f\n", end, "all", all * ns / packets
            }' | sort -k1,1r -k2
done
