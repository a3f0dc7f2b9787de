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

case $part in
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
*) fail "no part $part here yet" ;;
esac
echo "ok $part"
