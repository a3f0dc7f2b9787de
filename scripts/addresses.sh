#!/usr/bin/env bash
# Every kind of address, through every way in: perf, send and recv, probe, the Rust library
# (crates/lacuna/examples/reliable.rs), lacuna.h (examples/c/reliable.c) and sdr.h (examples/c/nack.c),
# each between two network namespaces joined by two links:
#
#   IPv4 alone, IPv6 switched off; IPv6 alone; both; link-local addresses alone, which both links have
#   and which therefore need their interface; a kernel without IPv6 (sockets of it are refused).
#
#   scripts/addresses.sh [NAME...]     only checks whose names contain one of these
#
# Prints a line per check, PASS or FAIL, and ends with 1 if any failed. Needs root, for network
# namespaces; without them it says so and ends with 0. Builds what it runs, unless LACUNA, RELIABLE and
# LIBRARY name the program, the example and liblacuna_capi.a.
set -uo pipefail
# All on networks of its own namespaces, which nobody else can reach.
export LACUNA_INSECURE=1
cd "$(dirname "$0")/.."
wanted=("$@")
a=lacadr-$$-a b=lacadr-$$-b
work=$(mktemp -d "${TMPDIR:-/tmp}/lacuna-addresses.XXXXXX")
server= passed=0 failed=0

clean() {
    [ -z "$server" ] || kill "$server" 2>/dev/null
    for ns in $a $b; do
        ip netns delete $ns 2>/dev/null
        rm -rf "/etc/netns/$ns"
    done
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

if ! command -v ip >/dev/null || ! ip netns add $a 2>"$work/why" || ! ip netns add $b; then
    echo "SKIP: no network namespaces here: $(cat "$work/why" 2>/dev/null)"
    exit 0
fi

# ---- programs ----

target=${CARGO_TARGET_DIR:-target}/debug
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --locked -p lacuna-cli || exit 1
    LACUNA=$target/lacuna
fi
if [ -z "${RELIABLE:-}" ]; then
    cargo build --quiet --locked -p lacuna --example reliable || exit 1
    RELIABLE=$target/examples/reliable
fi
if [ -z "${LIBRARY:-}" ] && command -v cc >/dev/null; then
    cargo build --quiet --locked -p lacuna-capi || exit 1
    LIBRARY=$target/liblacuna_capi.a
fi
lacuna=$(realpath "$LACUNA") reliable=$(realpath "$RELIABLE")
has_c=
if command -v cc >/dev/null; then
    has_c=1
    for program in reliable nack; do
        cc -O1 -Icrates/lacuna-capi/include -o "$work/c-$program" "examples/c/$program.c" \
            "$LIBRARY" -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc || exit 1
    done
else
    echo "SKIP: no C compiler, so nothing through the C library"
fi
head -c 300000 /dev/urandom >"$work/file"

# ---- checks ----

# Whether a check is asked for.
is_wanted() {
    [ ${#wanted[@]} -gt 0 ] || return 0
    local word
    for word in "${wanted[@]}"; do [[ $1 != *"$word"* ]] || return 0; done
    return 1
}

# result NAME STATUS [FILE...]: a line for it; what the ends said if it failed.
result() {
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
        echo "PASS $1"
        return
    fi
    failed=$((failed + 1))
    echo "FAIL $1"
    shift 2
    local file
    for file in "$@"; do sed "s|^|     ${file##*/}: |" "$file"; done
}

# serve PROGRAM...: starts it in namespace a and waits until it listens.
serve() {
    # Before it starts: what the one before it said must not be taken for this one's.
    : >"$work/server"
    ip netns exec $a "$@" >>"$work/server" 2>&1 &
    server=$!
    local tries=0
    until grep -q "listening on" "$work/server"; do
        tries=$((tries + 1))
        if [ $tries -ge 500 ] || ! kill -0 $server 2>/dev/null; then
            kill $server 2>/dev/null
            wait $server 2>/dev/null
            server=
            return 1
        fi
        sleep 0.02
    done
}

# Waits for the server's own end, a while; ends it otherwise. Its status.
served() {
    local tries=0
    while kill -0 $server 2>/dev/null && [ $tries -lt 500 ]; do
        tries=$((tries + 1))
        sleep 0.02
    done
    kill $server 2>/dev/null
    wait $server 2>/dev/null
    local status=$?
    server=
    return $status
}

# check NAME EXPECTED SERVER -- CLIENT: both end well, and the server's output has EXPECTED.
check() {
    local name=$1 expected=$2 status=0
    shift 2
    is_wanted "$name" || return 0
    local before=()
    while [ "$1" != -- ]; do before+=("$1"); shift; done
    shift
    : >"$work/client"
    if serve "${before[@]}"; then
        timeout 60 ip netns exec $b "$@" >"$work/client" 2>&1 || status=1
        served || status=1
        grep -qF -- "$expected" "$work/server" || { echo "(expected: $expected)" >>"$work/server"; status=1; }
    else
        status=1
    fi
    result "$name" $status "$work/server" "$work/client"
}

# refused NAME CODE EXPECTED PROGRAM...: it ends with this code and says this.
refused() {
    local name=$1 code=$2 expected=$3
    shift 3
    is_wanted "$name" || return 0
    timeout 60 ip netns exec $b "$@" >"$work/client" 2>&1
    [ $? = "$code" ] && grep -qF -- "$expected" "$work/client"
    result "$name" $? "$work/client"
}

# in_brackets HOST: as it is written before a port.
in_brackets() { case $1 in *:*) echo "[$1]" ;; *) echo "$1" ;; esac; }

probe=(--time 50ms --trials 1 --payload 200 --rate 1mbit)

# every_way NAME LISTEN SAID HOST SEEN DEVICE_A DEVICE_B: all ways in. LISTEN is the address to listen
# at, or "" for the commands' defaults; SAID what follows "listening on"; HOST the server as the client
# knows it; SEEN the client as the server has to show it; DEVICE_A and DEVICE_B the devices of sdr.h.
every_way() {
    local name=$1 listen=$2 said=$3 host=$4 seen=$5 device_a=$6 device_b=$7
    local at host_in
    host_in=$(in_brackets "$host")
    at() { [ -z "$listen" ] || echo "--listen $(in_brackets "$listen"):$1"; }
    # shellcheck disable=SC2046
    {
        check "$name: perf" "listening on $said" "$lacuna" perf server --once $(at 7402) -- \
            "$lacuna" perf client "$host" -n 100 -s 1MiB --validate
        check "$name: perf, who is served" "$seen" "$lacuna" perf server --once $(at 7402) -- \
            "$lacuna" perf client "$host_in:7402" -n 1 -s 1KiB --channels 2
        rm -rf "$work/in"
        check "$name: send" "listening on $said" \
            "$lacuna" recv --once --dir "$work/in" $(at 7400) -- "$lacuna" send "$work/file" "$host"
        ! is_wanted "$name: send" || result "$name: send, what came" \
            "$(cmp -s "$work/file" "$work/in/file"; echo $?)"
        check "$name: probe" "listening on $said" "$lacuna" probe server --once $(at 7403) -- \
            "$lacuna" probe client "$host" "${probe[@]}"
        check "$name: probe, who is served" "$seen" "$lacuna" probe server --once $(at 7403) -- \
            "$lacuna" probe client "$host_in:7403" "${probe[@]}" --flows 3
    }
    local address
    address=$(in_brackets "${listen:-::}"):7412
    check "$name: Rust library" "$seen" "$reliable" server "$address" -- \
        "$reliable" client "$host_in:7412"
    [ -n "$has_c" ] || return 0
    check "$name: lacuna.h" "every byte checked" "$work/c-reliable" server "$address" -- \
        "$work/c-reliable" client "$host_in:7412"
    check "$name: Rust to lacuna.h" "every byte checked" "$work/c-reliable" server "$address" -- \
        "$reliable" client "$host_in:7412"
    check "$name: sdr.h" "" "$work/c-nack" receiver --device "$device_a" -- \
        "$work/c-nack" sender "$host" --messages 20 --device "$device_b"
}

# ---- networks ----

# network FAMILIES: two links between the namespaces with addresses of those.
network() {
    local families=$1 ns link
    for ns in $a $b; do
        ip netns delete $ns
        ip netns add $ns
        ip -n $ns link set lo up
    done
    for link in 0 1; do
        ip link add name near$link netns $a type veth peer name far$link netns $b
    done
    case $families in
    *6*) ;;
    *) for ns in $a $b; do
        ip netns exec $ns sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
    done ;;
    esac
    for link in 0 1; do
        # The same link-local addresses on both links: only the interface tells them apart.
        ip -n $a link set near$link addrgenmode none up
        ip -n $b link set far$link addrgenmode none up
        case $families in
        *6*)
            ip -n $a address add fe80::a/64 dev near$link nodad
            ip -n $b address add fe80::b/64 dev far$link nodad
            ;;
        esac
    done
    case $families in
    *4*)
        ip -n $a address add 10.76.0.1/24 dev near0
        ip -n $b address add 10.76.0.2/24 dev far0
        ip -n $a route add default via 10.76.0.2
        ip -n $b route add default via 10.76.0.1
        ;;
    esac
    case $families in
    *6g*)
        ip -n $a address add fd76::1/64 dev near0 nodad
        ip -n $b address add fd76::2/64 dev far0 nodad
        ip -n $a -6 route add default via fd76::2
        ip -n $b -6 route add default via fd76::1
        ;;
    esac
}

# names LINE...: what a name means to the client's host.
names() {
    mkdir -p /etc/netns/$b
    printf '%s\n' "$@" >/etc/netns/$b/hosts
}

everywhere="IPv6 and IPv4)"

network 4
every_way "IPv4 alone" "" "[::]:74" 10.76.0.1 "10.76.0.2:" udp udp
check "IPv4 alone: said" "$everywhere" "$lacuna" perf server --once -- "$lacuna" perf client 10.76.0.1 -n 1
names "2001:db8::1 peer" "10.76.0.1 peer"
check "IPv4 alone: a name with both" "10.76.0.2:" "$lacuna" perf server --once -- \
    "$lacuna" perf client peer -n 1
check "IPv4 alone: a name with both, probe" "10.76.0.2:" "$lacuna" probe server --once -- \
    "$lacuna" probe client peer "${probe[@]}"

# A kernel that was built or started without IPv6 makes no such socket.
if command -v python3 >/dev/null; then
    cat >"$work/no-ipv6.py" <<'PYTHON'
"""Runs a program for which socket(AF_INET6) fails with EAFNOSUPPORT, by a filter of system calls."""
import ctypes, errno, os, platform, struct, sys
call = {"x86_64": 41, "aarch64": 198}.get(platform.machine())
if call is None:
    sys.exit(77)
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
code = [  # BPF: the number of the call, its first argument
    (0x20, 0, 0, 0), (0x15, 0, 3, call), (0x20, 0, 0, 16), (0x15, 0, 1, 10),
    (0x06, 0, 0, ERRNO | errno.EAFNOSUPPORT), (0x06, 0, 0, ALLOW),
]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(text))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
    sys.exit(77)
os.execv(sys.argv[1], sys.argv[1:])
PYTHON
    without=(python3 "$work/no-ipv6.py")
    "${without[@]}" "$lacuna" --version >/dev/null 2>&1
    if [ $? = 77 ]; then
        echo "SKIP: no filter of system calls, so no kernel without IPv6"
    else
        check "no IPv6 in the kernel: perf" "listening on 0.0.0.0:7402 (IPv4 alone)" \
            "${without[@]}" "$lacuna" perf server --once -- \
            "${without[@]}" "$lacuna" perf client 10.76.0.1 -n 1
        rm -rf "$work/in"
        check "no IPv6 in the kernel: send" "listening on 0.0.0.0:7400 (IPv4 alone)" \
            "${without[@]}" "$lacuna" recv --once --dir "$work/in" -- \
            "${without[@]}" "$lacuna" send "$work/file" peer
        check "no IPv6 in the kernel: probe" "listening on 0.0.0.0:7403 (UDP, IPv4 alone)" \
            "${without[@]}" "$lacuna" probe server --once -- \
            "${without[@]}" "$lacuna" probe client 10.76.0.1 "${probe[@]}"
        check "no IPv6 in the kernel: Rust library" "listening on 0.0.0.0:7412" \
            "${without[@]}" "$reliable" server -- "${without[@]}" "$reliable" client 10.76.0.1:7412
        if [ -n "$has_c" ]; then
            check "no IPv6 in the kernel: lacuna.h" "every byte checked" \
                "${without[@]}" "$work/c-reliable" server -- \
                "${without[@]}" "$work/c-reliable" client 10.76.0.1:7412
            check "no IPv6 in the kernel: sdr.h" "" "${without[@]}" "$work/c-nack" receiver -- \
                "${without[@]}" "$work/c-nack" sender 10.76.0.1 --messages 20
        fi
        refused "no IPv6 in the kernel: an address of it" 5 "cannot" \
            "${without[@]}" "$lacuna" perf server --listen "[::1]:7402"
    fi
else
    echo "SKIP: no python3, so no kernel without IPv6"
fi

network 6g
every_way "IPv6 alone" "" "[::]:74" fd76::1 "[fd76::2]:" udp udp
names "10.76.0.9 peer" "fd76::1 peer"
check "IPv6 alone: a name with both" "[fd76::2]:" "$lacuna" perf server --once -- \
    "$lacuna" perf client peer -n 1
check "IPv6 alone: a name with both, probe" "[fd76::2]:" "$lacuna" probe server --once -- \
    "$lacuna" probe client peer "${probe[@]}"
# What the system's default for sockets of IPv6 is does not matter.
for ns in $a $b; do ip netns exec $ns sysctl -qw net.ipv6.bindv6only=1; done
check "IPv6 alone: bindv6only" "$everywhere" "$lacuna" perf server --once -- \
    "$lacuna" perf client fd76::1 -n 1

network 46g
every_way "both, by IPv4" "" "[::]:74" 10.76.0.1 "10.76.0.2:" udp udp
every_way "both, by IPv6" "" "[::]:74" fd76::1 "[fd76::2]:" udp:fd76::1 udp:fd76::2
every_way "both, a mapped address" "" "[::]:74" ::ffff:10.76.0.1 "10.76.0.2:" udp udp
check "IPv4 is asked for" "listening on 0.0.0.0:7402 (IPv4 alone)" \
    "$lacuna" perf server --once --listen 0.0.0.0:7402 -- "$lacuna" perf client 10.76.0.1 -n 1
for ns in $a $b; do ip netns exec $ns sysctl -qw net.ipv6.bindv6only=1; done
check "both, bindv6only" "10.76.0.2:" "$lacuna" recv --once --dir "$work/in2" -- \
    "$lacuna" send "$work/file" 10.76.0.1
# Packets to a peer of IPv4 are as large whether the server takes IPv6 beside it or not.
if is_wanted "packets of IPv4"; then
    sizes=
    for listen in "[::]:7402" 0.0.0.0:7402; do
        serve "$lacuna" perf server --once --listen "$listen"
        ip netns exec $b "$lacuna" perf client 10.76.0.1 -n 1 --json >"$work/client" 2>&1
        sizes+=$(grep -o '"mtu_bytes":[0-9]*' "$work/client")" "
        served
    done
    read -r first second <<<"$sizes"
    [ -n "$first" ] && [ "$first" = "$second" ]
    result "packets of IPv4 are as large beside IPv6" $? "$work/client"
fi
refused "nobody listens over IPv6" 3 "refused" "$lacuna" perf client fd76::1

network 6
linked="fe80::a%far1"
every_way "link-local" fe80::a%near1 "[fe80::a%near1]:74" "$linked" "[fe80::b%near1]:" \
    udp:fe80::a%near1 udp:fe80::b%far1
every_way "link-local, all addresses" "" "[::]:74" "$linked" "[fe80::b%near1]:" \
    udp:fe80::a%near1 udp:fe80::b%far1
number=$(ip -n $b -o link show dev far1 | cut -d: -f1)
check "link-local, by number" "[fe80::b%near1]:" "$lacuna" perf server --once -- \
    "$lacuna" perf client "fe80::a%$number" -n 1
refused "link-local, no interface" 2 "fe80::a is link-local" "$lacuna" perf client fe80::a
refused "link-local, no such interface" 2 'no network interface "far9"' \
    "$lacuna" probe client "[fe80::a%far9]:7403"
refused "link-local, another interface" 5 "no interface has this address" \
    "$lacuna" recv --dir "$work/in" --listen "[fe80::a%far1]:7400"
# The other link leads to the same host, which listens on the first alone.
if is_wanted "link-local, the other link"; then
    serve "$lacuna" perf server --listen "[fe80::a%near1]:7402"
    refused "link-local, the other link" 3 "cannot reach [fe80::a%far0]:7402" \
        "$lacuna" perf client "fe80::a%far0" -n 1
    kill $server
    wait $server 2>/dev/null
    server=
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ]
