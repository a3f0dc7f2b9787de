#!/usr/bin/env bash
# What was true when a transfer began changes under it:
#
#   scripts/moves.sh               every change; ends with 1 if any fails
#   scripts/moves.sh CHANGE        flap, address, route, nat or stopped
#
# C sends 60 MB at 100 Mbit/s to D over two routers, R and S, in network namespaces. Meanwhile
#
#   flap      C's link goes down for a second and comes up again
#   address   C's address is replaced by another one, as by DHCP
#   route     C's route to D moves from R to S
#   nat       R, which translates C's addresses, forgets its table and uses other ports
#   stopped   both ends are stopped for 35 seconds, longer than a silent peer is waited for
#
# The file has to arrive, without a new connection, in little more than the time that the change
# itself takes. Needs root, `ip` and `iptables`; without them it says so and ends with 0. Builds the
# release binary unless LACUNA names one.
set -euo pipefail
# All on networks of its own namespaces, which nobody else can reach.
export LACUNA_INSECURE=1
cd "$(dirname "$0")/.."
for tool in ip iptables bc; do
    command -v $tool >/dev/null || { echo "skipped: needs $tool"; exit 0; }
done
if [ "$(id -u)" != 0 ] || ! ip netns add moves-try 2>/dev/null; then
    echo "skipped: needs root and network namespaces"
    exit 0
fi
ip netns del moves-try
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-target}/release/lacuna
fi
lacuna=$(realpath "$LACUNA")
work=$(mktemp -d "${TMPDIR:-/tmp}/lacuna-moves.XXXXXX")
c=moves-c r=moves-r s=moves-s d=moves-d left=moves-left right=moves-right
hosts="$c $r $s $d $left $right"
started=()

clean() {
    for process in "${started[@]}"; do kill -CONT "$process" && kill "$process"; done 2>/dev/null || true
    for name in $hosts; do ip netns del "$name" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT

in_host() { ip netns exec "$@"; }

# Joins a host's interface, with an address, to a segment.
join() {
    ip -n "$1" link add "$2" type veth peer name "to-$1" netns "$3"
    ip -n "$1" address add "$4" dev "$2"
    ip -n "$3" link set "to-$1" master segment
    ip -n "$3" link set "to-$1" up
    ip -n "$1" link set "$2" up
}

# C is on one segment with R and S, D on another one.
make_hosts() {
    local name
    for name in $hosts; do
        ip netns del "$name" 2>/dev/null || true
        ip netns add "$name"
        ip -n "$name" link set lo up
    done
    for name in $left $right; do
        ip -n $name link add segment type bridge
        ip -n $name link set segment up
    done
    join $c eth0 $left 10.79.1.2/24
    join $r in $left 10.79.1.11/24
    join $s in $left 10.79.1.12/24
    join $d eth0 $right 10.79.2.2/24
    join $r out $right 10.79.2.11/24
    join $s out $right 10.79.2.12/24
    for name in $r $s; do
        in_host $name sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0
    done
    ip -n $c route add default via 10.79.1.11
    ip -n $d route add default via 10.79.2.11
    if [ "$1" = nat ]; then
        in_host $r iptables -t nat -A POSTROUTING -o out -j MASQUERADE
    fi
}

change() {
    case $1 in
    flap)
        ip -n $c link set eth0 down
        sleep 1
        ip -n $c link set eth0 up
        ip -n $c route replace default via 10.79.1.11
        ;;
    address)
        ip -n $c address add 10.79.1.7/24 dev eth0
        ip -n $c address del 10.79.1.2/24 dev eth0
        ip -n $c address replace 10.79.1.7/24 dev eth0
        ip -n $c route replace default via 10.79.1.11
        ;;
    route)
        ip -n $c route replace default via 10.79.1.12
        ip -n $d route replace default via 10.79.2.12
        ip -n $r link set out down
        ;;
    nat)
        # Packets of UDP get another port from now on; those of TCP go on.
        in_host $r iptables -t nat -I POSTROUTING -o out -p udp -j MASQUERADE --to-ports 20000-20100
        in_host $r conntrack -D -p udp >/dev/null 2>&1 || true
        ;;
    stopped)
        kill -STOP "$sender" "$receiver"
        sleep 35
        kill -CONT "$sender" "$receiver"
        ;;
    esac
}

try() {
    local what=$1 extra_s=${2:-0}
    make_hosts "$what"
    rm -rf "$work/in"
    mkdir "$work/in"
    ip netns exec $d "$lacuna" recv --listen 0.0.0.0:7400 --dir "$work/in" --json \
        >"$work/recv.json" 2>"$work/recv.log" &
    receiver=$!
    started+=($receiver)
    until grep -q 7400 "$work/recv.log"; do sleep 0.02; done
    local start=$(date +%s.%N) status=0
    ip netns exec $c "$lacuna" send --rate 100mbit --json "$work/file" 10.79.2.2 \
        >"$work/send.json" 2>"$work/send.log" &
    sender=$!
    started+=($sender)
    sleep 1.5
    change "$what"
    timeout 90 tail --pid=$sender -f /dev/null || kill $sender
    wait $sender || status=$?
    local end=$(date +%s.%N)
    kill $receiver 2>/dev/null || true
    wait $receiver 2>/dev/null || true
    local same=no again
    cmp -s "$work/file" "$work/in/file" && same=yes
    again=$(grep -o '"reconnects":[0-9]*' "$work/send.json" | tail -1 | cut -d: -f2)
    # 60 MB at 100 Mbit/s are 5 s.
    [ -z "${SHOW:-}" ] || cat "$work/send.log" "$work/recv.log"
    awk -v took="$(echo "$end - $start" | bc)" -v extra="$extra_s" -v status="$status" -v same="$same" \
        -v again="${again:-?}" -v what="$what" 'BEGIN {
        fits = status == 0 && same == "yes" && again == "0" && took < 5 + extra + 4
        printf "%s %s: exit %d, same bytes: %s, new connections: %s, %.1f s\n",
            fits ? "ok     " : "FAILED ", what, status, same, again, took
        exit !fits }'
}

head -c 60000000 /dev/urandom >"$work/file"
failed=0
for what in ${1:-flap address route nat stopped}; do
    case $what in
    flap) try flap 2 || failed=1 ;;
    stopped) try stopped 35 || failed=1 ;;
    nat)
        if command -v conntrack >/dev/null; then
            try nat || failed=1
        else
            echo "skipped nat: needs conntrack"
        fi
        ;;
    *) try "$what" || failed=1 ;;
    esac
done
exit $failed
