#!/usr/bin/env bash
# The path becomes narrower under a transfer, in all forms:
#
#   scripts/narrow.sh              every form; ends with 1 if any fails
#   scripts/narrow.sh FORM         icmp, hole, link or control, over IPv4 and IPv6
#
# Three hosts C - R - D in network namespaces, links of 1,500 bytes. While C sends, one becomes
# shorter (1,400 bytes):
#
#   icmp      R's link to D, and R says so as routers do
#   hole      the same, and nobody says so: packets that are too long vanish
#   link      C's own link
#   control   IPv4 only: R's link to C and to D become so short (700 bytes) that long reports vanish
#
# What is tried: `perf client` in the modes auto, sr, raw and ec, at a given rate and at the rate that
# it finds, `send`, and the libraries for Rust and C with their examples `reliable`. Every message has to
# come through (in raw: those after it), at the speed of before but for a few per cent. Needs root, `ip` and `iptables`; without them it says so
# and ends with 0. Builds the release binary unless LACUNA names one.
set -euo pipefail
# All on networks of its own namespaces, which nobody else can reach.
export LACUNA_INSECURE=1
cd "$(dirname "$0")/.."
for tool in ip iptables ip6tables tc cc python3; do
    command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 0; }
done
if [ "$(id -u)" != 0 ] || ! ip netns add lacuna-narrow-try 2>/dev/null; then
    echo "skipped: needs root and network namespaces"
    exit 0
fi
ip netns del lacuna-narrow-try
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-target}/release/lacuna
fi
lacuna=$(realpath "$LACUNA")
debug=${CARGO_TARGET_DIR:-target}/debug
if [ -z "${RELIABLE:-}" ]; then
    cargo build --quiet -p lacuna --example reliable
    RELIABLE=$debug/examples/reliable
fi
if [ -z "${LIBRARY:-}" ]; then
    cargo build --quiet -p lacuna-capi
    LIBRARY=$debug/liblacuna_capi.a
fi
reliable=$(realpath "$RELIABLE")
work=$(mktemp -d "${TMPDIR:-/tmp}/lacuna-narrow.XXXXXX")
cc -O1 -Icrates/lacuna-capi/include -o "$work/c-reliable" examples/c/reliable.c "$LIBRARY" \
    -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
c=lacuna-narrow-c r=lacuna-narrow-r d=lacuna-narrow-d
started=()
failed=0

clean() {
    kill "${started[@]}" 2>/dev/null || true
    for host in $c $r $d; do ip netns del $host 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT

in_c() { ip netns exec $c "$@"; }
in_r() { ip netns exec $r "$@"; }

make_hosts() {
    local name end
    for name in $c $r $d; do
        ip netns del $name 2>/dev/null || true
        ip netns add $name
        ip -n $name link set lo up
    done
    ip -n $r link add to-c type veth peer name eth0 netns $c
    ip -n $r link add to-d type veth peer name eth0 netns $d
    ip -n $c address add 10.77.1.2/24 dev eth0
    ip -n $r address add 10.77.1.1/24 dev to-c
    ip -n $r address add 10.77.2.1/24 dev to-d
    ip -n $d address add 10.77.2.2/24 dev eth0
    ip -n $c address add fd77:1::2/64 dev eth0 nodad
    ip -n $r address add fd77:1::1/64 dev to-c nodad
    ip -n $r address add fd77:2::1/64 dev to-d nodad
    ip -n $d address add fd77:2::2/64 dev eth0 nodad
    for end in "$c eth0" "$r to-c" "$r to-d" "$d eth0"; do ip -n ${end% *} link set "${end#* }" up; done
    in_r sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    ip -n $c route add default via 10.77.1.1
    ip -n $d route add default via 10.77.2.1
    ip -n $c -6 route add default via fd77:1::1
    ip -n $d -6 route add default via fd77:2::1
}

# Narrows the path in a form.
narrow() {
    case $1 in
    icmp) ip -n $r link set to-d mtu 1400 ;;
    hole)
        in_r iptables -A OUTPUT -p icmp -j DROP
        in_r ip6tables -A OUTPUT -p icmpv6 --icmpv6-type packet-too-big -j DROP
        ip -n $r link set to-d mtu 1400
        ;;
    link) ip -n $c link set eth0 mtu 1400 ;;
    control)
        in_r iptables -A OUTPUT -p icmp -j DROP
        ip -n $r link set to-d mtu 700
        ip -n $r link set to-c mtu 700
        ;;
    esac
}

# Waits until a server's log has a line.
await() {
    local tries=0
    until grep -q "$2" "$1"; do
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || { echo "no '$2' in:"; cat "$1"; exit 1; }
        sleep 0.02
    done
}

verdict() {
    if [ "$1" = ok ]; then echo "ok      $2"; else echo "FAILED  $2"; failed=1; fi
}

# perf: form, address, words of the client.
perf() {
    local form=$1 host=$2 any=0.0.0.0
    shift 2
    [[ $host != *:* ]] || any=[::]
    make_hosts
    ip netns exec $d "$lacuna" perf server --listen "$any:7402" 2>"$work/server.log" &
    local server=$!
    started+=($server)
    await "$work/server.log" 7402
    ip netns exec $c "$lacuna" perf client "$host" --json --size 1MiB --inflight 2 --duration 5s "$@" \
        >"$work/perf.json" 2>"$work/perf.log" &
    local client=$!
    started+=($client)
    sleep 2
    narrow "$form"
    local status=0
    timeout 60 tail --pid=$client -f /dev/null || status=124
    wait $client || status=$?
    kill $server 2>/dev/null || true
    wait $server 2>/dev/null || true
    python3 - "$work/perf.json" "$status" "$form $host $*" <<'PY'
import json, sys
text, status, what = open(sys.argv[1]).read(), int(sys.argv[2]), sys.argv[3]
result = json.loads(text) if text.strip() else {}
missing = result.get("missing_share") or 0
rate, worst = result.get("gbit_per_s", 0), result.get("max_us", 0) / 1e6
fits = status == 0 and result.get("iterations", 0) > 0 and worst < 1.5 and missing < 0.3
print(f"{'ok     ' if fits else 'FAILED '} perf {what}: exit {status}, {rate:.3f} Gbit/s, slowest message {worst:.3f} s, missing {missing:.4f}")
sys.exit(0 if fits else 1)
PY
}

# send: form, address.
send() {
    local form=$1 host=$2 any=0.0.0.0
    [[ $host != *:* ]] || any=[::]
    make_hosts
    head -c 60000000 /dev/urandom >"$work/file"
    rm -rf "$work/in"
    mkdir "$work/in"
    ip netns exec $d "$lacuna" recv --listen "$any:7400" --dir "$work/in" >/dev/null 2>"$work/recv.log" &
    local server=$!
    started+=($server)
    await "$work/recv.log" 7400
    local status=0
    (sleep 1.5 && narrow "$form") &
    in_c timeout 60 "$lacuna" send --rate 100mbit --json "$work/file" "$host" >"$work/send.json" 2>"$work/send.log" ||
        status=$?
    wait $!
    kill $server 2>/dev/null || true
    wait $server 2>/dev/null || true
    local same=no took
    cmp -s "$work/file" "$work/in/file" && same=yes
    took=$(grep -o '"seconds":[0-9.]*' "$work/send.json" | tail -1 | cut -d: -f2)
    # 60 MB at 100 Mbit/s are 4.9 s, with headers of packets in two pieces 5.3.
    awk -v took="${took:-0}" -v status="$status" -v same="$same" -v what="$form $host" 'BEGIN {
        fits = status == 0 && same == "yes" && took < 8
        printf "%s send %s: exit %d, same bytes: %s, %.1f s\n", fits ? "ok     " : "FAILED ", what, status, same, took
        exit !fits }'
}

# A library's example: form, address, name, program. It moves 60 MB as fast as it can, so the link is
# made slow.
library() {
    local form=$1 host=$2 name=$3 program=$4 at=$2:7412
    [[ $host != *:* ]] || at=[$host]:7412
    make_hosts
    ip netns exec $c tc qdisc add dev eth0 root tbf rate 100mbit burst 64kb latency 50ms
    ip netns exec $d "$program" server >"$work/server.log" 2>&1 &
    local server=$!
    started+=($server)
    sleep 1
    local start=$(date +%s.%N) status=0
    (sleep 1.5 && narrow "$form") &
    in_c timeout 60 "$program" client "$at" >"$work/client.log" 2>&1 || status=$?
    wait $!
    local end=$(date +%s.%N)
    kill $server 2>/dev/null || true
    wait $server 2>/dev/null || true
    awk -v s="$start" -v e="$end" -v status="$status" -v what="$name $form $host" 'BEGIN {
        took = e - s
        fits = status == 0 && took < 8
        printf "%s %s: exit %d, %.1f s\n", fits ? "ok     " : "FAILED ", what, status, took
        exit !fits }' || { cat "$work/client.log" "$work/server.log"; return 1; }
}

forms=${1:-icmp hole link control}
for form in $forms; do
    for host in 10.77.2.2 fd77:2::2; do
        # IPv6 has no links so short.
        [ "$form" != control ] || [ "$host" = 10.77.2.2 ] || continue
        for words in "--mode auto --rate 100mbit" "--mode sr" "--mode raw --rate 100mbit" "--mode ec --rate 100mbit"; do
            perf "$form" "$host" $words || failed=1
        done
        send "$form" "$host" || failed=1
        library "$form" "$host" rust "$reliable" || failed=1
        library "$form" "$host" c "$work/c-reliable" || failed=1
    done
done
exit $failed
