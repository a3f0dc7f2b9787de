# In the virtual machine of scripts/rxe.sh: guest.sh PART. Prints `ok PART` if all is well.
set -euo pipefail
part=$1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
share=/mnt/share
cd /tmp
ip link set lo up

fail() {
    echo "FAILED: $*"
    exit 0
}

# rxe on `va` in the first namespace (it works in no other), us on `vb` in the namespace `ours`.
hosts() {
    ip netns add ours
    ip link add va mtu 4500 type veth peer name vb mtu 4500 netns ours
    ip address add 10.99.0.1/24 dev va
    ip -6 address add fd99::1/64 dev va nodad
    ip link set va up
    ip -n ours address add 10.99.0.2/24 dev vb
    ip -n ours -6 address add fd99::2/64 dev vb nodad
    ip -n ours link set lo up
    ip -n ours link set vb up
    rdma link add rxe0 type rxe netdev va || fail "no rxe device"
}

# The index of an address among the device's.
gid_of() {
    local want=$1 index gid
    for index in $(seq 0 20); do
        gid=$(cat /sys/class/infiniband/rxe0/ports/1/gids/$index 2>/dev/null) || break
        [ "$gid" = "$want" ] && { echo "$index"; return; }
    done
    fail "rxe has no address $want"
}

connection() {
    local name=$1 gid=$2 theirs=$3 own=$4 mtu=$5 shim=$6 peer ours
    rm -f rxe.info ours.info
    $share/peer rxe0 "$gid" "$own" "$mtu" rxe.info ours.info >peer.out 2>&1 &
    peer=$!
    ip netns exec ours $share/roce_peer "$own" "$theirs" "$mtu" ours.info rxe.info $shim >ours.out 2>&1 &
    ours=$!
    local code=0
    wait $ours || code=1
    [ $code = 0 ] || kill $peer 2>/dev/null || true
    wait $peer || code=1
    cat peer.out ours.out
    [ $code = 0 ] || fail "$name"
    echo "rxe: $name passed"
}

writes() {
    local name=$1 gid=$2 theirs=$3 own=$4 peer ours code=0
    rm -f rxe.info ours.info rxe.info.ready
    $share/uc_peer rxe0 "$gid" "$own" rxe.info ours.info >peer.out 2>&1 &
    peer=$!
    ip netns exec ours $share/roce_writes "$own" "$theirs" ours.info rxe.info >ours.out 2>&1 &
    ours=$!
    wait $ours || code=1
    [ $code = 0 ] || kill $peer 2>/dev/null || true
    wait $peer || code=1
    cat peer.out ours.out
    [ $code = 0 ] || fail "$name"
    echo "rxe: writes over $name passed"
}

# Two hosts in the first namespace, rxe on `va` and `vb`, joined through two gateways' namespaces:
#
#     va - a0 near w0 -- lossy, 10 ms each way -- w1 far b0 - vb
#
# The kernel hands packets between its own addresses over no wire; rules send them out nevertheless, and
# take those that come back (the first rule, of local addresses, goes).
two_hosts() {
    local name
    ip netns add near
    ip netns add far
    ip link add va address 02:00:00:00:00:0a type veth peer name a0 netns near
    ip link add vb address 02:00:00:00:00:0b type veth peer name b0 netns far
    ip -n near link add w0 type veth peer name w1 netns far
    for name in va vb; do
        sysctl -qw net.ipv4.conf.$name.accept_local=1 net.ipv4.conf.$name.rp_filter=0
    done
    sysctl -qw net.ipv4.conf.all.rp_filter=0
    ip address add 10.98.0.1/32 dev va
    ip address add 10.98.0.2/32 dev vb
    ip link set va up
    ip link set vb up
    for name in a0 w0; do ip -n near link set $name up; done
    for name in w1 b0; do ip -n far link set $name up; done
    ip neighbour add 10.98.0.2 lladdr 02:00:00:00:00:0b dev va
    ip neighbour add 10.98.0.1 lladdr 02:00:00:00:00:0a dev vb
    ip route add 10.98.0.2/32 dev va src 10.98.0.1 table 100
    ip route add 10.98.0.1/32 dev vb src 10.98.0.2 table 101
    ip rule add pref 10 iif va lookup local
    ip rule add pref 11 iif vb lookup local
    ip rule add pref 20 to 10.98.0.2 lookup 100
    ip rule add pref 21 to 10.98.0.1 lookup 101
    ip rule add pref 30 lookup local
    ip rule del pref 0
    rdma link add rxe0 type rxe netdev va || fail "no rxe device"
    rdma link add rxe1 type rxe netdev vb || fail "no second rxe device"
}

# Starts both gateways with this strength, on a path that loses this much.
gateways() {
    local strength=$1 loss=$2
    ip netns exec near tc qdisc replace dev w0 root netem limit 100000 delay 10ms loss "$loss"
    ip netns exec far tc qdisc replace dev w1 root netem limit 100000 delay 10ms loss "$loss"
    rm -f near.json far.json
    ip netns exec near $share/lacuna -q --json lowar gateway --local a0 --remote w0 --shim "$strength" \
        >near.json 2>near.err &
    near=$!
    ip netns exec far $share/lacuna -q --json lowar gateway --local b0 --remote w1 --shim "$strength" \
        >far.json 2>far.err &
    far=$!
    sleep 2
    kill -0 $near $far || { cat near.err far.err; fail "a gateway did not start"; }
}

# A program of perftest, unmodified, from the one host to the other; its MB/s.
perftest() {
    local program=$1 server
    shift
    timeout 120 "$program" -d rxe1 -x 1 -F "$@" >server.out 2>&1 &
    server=$!
    # Its port for the talk before, 18515, once it listens.
    for _ in $(seq 100); do
        grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 && break
        sleep 0.2
    done
    timeout 120 "$program" -d rxe0 -x 1 -F "$@" 10.98.0.2 >client.out 2>&1 || { kill $server 2>/dev/null || true; }
    wait $server || true
    awk '$1 ~ /^[0-9]+$/ && NF == 5 { rate = $4 } END { print rate ? rate : "failed" }' client.out
}

# One figure of a gateway's counters.
counter() {
    grep -o "\"$2\":[0-9]*" "$1" | cut -d: -f2
}

case $part in
gateway)
    two_hosts
    cat /sys/class/infiniband/rxe0/ports/1/gids/1
    for loss in 0% 0.1% 1%; do
        repairs=32:1
        [ $loss != 1% ] || repairs=8:1
        for strength in off $repairs; do
            gateways $strength $loss
            write=$(perftest ib_write_bw -s 65536 -n 400)
            send=$(perftest ib_send_bw -s 65536 -n 400)
            read=$(perftest ib_read_bw -s 65536 -n 100)
            kill -INT $near $far
            wait $near $far || true
            echo "rxe: loss $loss, repairs $strength: ib_write_bw $write MB/s, ib_send_bw $send MB/s, ib_read_bw $read MB/s;" \
                "recovered $(counter far.json packets_recovered) there and $(counter near.json packets_recovered) here, given up $(counter far.json gaps_given_up)," \
                "round trip $(counter near.json round_trip_ns) ns"
            if [ $strength = off ]; then
                plain=$write
            else
                echo "rxe: loss $loss: $(awk -v with="$write" -v without="$plain" 'BEGIN { printf "%.2f", with / without }')" \
                    "times the rate of ib_write_bw without repairs"
                [ "$write" != failed ] && [ "$send" != failed ] && [ "$read" != failed ] || { cat client.out; fail "perftest with gateways"; }
                [ $loss = 0% ] || [ "$(counter far.json packets_recovered)" -gt 0 ] || { cat near.json far.json; fail "nothing was recovered"; }
            fi
        done
    done
    ;;
rc)
    hosts
    v4=$(gid_of 0000:0000:0000:0000:0000:ffff:0a63:0001)
    v6=$(gid_of fd99:0000:0000:0000:0000:0000:0000:0001)
    connection "IPv4, MTU 1024" "$v4" 10.99.0.1 10.99.0.2 1024 off
    connection "IPv4, MTU 4096" "$v4" 10.99.0.1 10.99.0.2 4096 off
    connection "IPv6, MTU 1024" "$v6" fd99::1 fd99::2 1024 off
    # rxe drops repairs, which it does not know, and goes on.
    connection "IPv4, MTU 1024, with repairs" "$v4" 10.99.0.1 10.99.0.2 1024 lowar:8:1
    tc qdisc add dev va root netem loss 2%
    ip netns exec ours tc qdisc add dev vb root netem loss 2%
    connection "IPv4, MTU 1024, 2 % lost both ways" "$v4" 10.99.0.1 10.99.0.2 1024 off
    ;;
uc)
    hosts
    writes "IPv4" "$(gid_of 0000:0000:0000:0000:0000:ffff:0a63:0001)" 10.99.0.1 10.99.0.2
    writes "IPv6" "$(gid_of fd99:0000:0000:0000:0000:0000:0000:0001)" fd99::1 fd99::2
    ;;
*) fail "no part $part: gateway, rc, uc" ;;
esac
echo "ok $part"
