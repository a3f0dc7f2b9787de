#!/usr/bin/env bash
# Lacuna's packets against a kernel's: RDMA over Ethernet in software (rdma_rxe) in a virtual machine.
#
#   scripts/rxe.sh [PART …]        ends with 1 if a part fails
#
#   rc      our reliable connection against rxe's, both ways: SEND, WRITE, WRITE with immediate, READ, over IPv4
#           and IPv6 and with two MTUs; atomic operations of rxe to us
#   uc      packets of `--wire rdma` against rxe's UC queue pairs, both ways, IPv4 and IPv6
#   gateway two rxe hosts over a lossy path, with two gateways and without (`lacuna lowar gateway`)
#
# All parts if none is named. The machine is emulated (no KVM), so it needs no rights; a part takes a minute or
# two. The kernel is Debian's, which has the modules; it is fetched once into LACUNA_RXE (by default
# ~/.cache/lacuna-rxe) with `apt-get download` and needs 500 MB there. The guest sees this machine's files,
# read only, so programs need no copy.
#
# Needs, and says what is missing: qemu-system-x86_64, busybox, cpio, modprobe, dpkg-deb, apt-get, gcc,
# libibverbs (apt-get install qemu-system-x86 busybox-static cpio kmod rdma-core ibverbs-providers
# libibverbs-dev perftest iproute2). Without them it says so and ends with 0.
set -euo pipefail
cd "$(dirname "$0")/.."
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(rc uc gateway)

for tool in qemu-system-x86_64 busybox cpio modprobe dpkg-deb gcc ip rdma tc; do
    command -v $tool >/dev/null || PATH=$PATH:/sbin:/usr/sbin command -v $tool >/dev/null ||
        { echo "skipped: needs $tool (see the head of $0)"; exit 0; }
done
[ -e /usr/include/infiniband/verbs.h ] ||
    { echo "skipped: needs libibverbs-dev (see the head of $0)"; exit 0; }
PATH=$PATH:/sbin:/usr/sbin

cache=${LACUNA_RXE:-${XDG_CACHE_HOME:-$HOME/.cache}/lacuna-rxe}
mkdir -p "$cache"
cache=$(realpath "$cache")
work=$(mktemp -d "${TMPDIR:-/tmp}/lacuna-rxe.XXXXXX")
machine=
clean() {
    [ -z "$machine" ] || kill "$machine" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

kernel() {
    [ ! -e "$cache/ready" ] || return 0
    local package
    package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image/{print $2; exit}')
    [ -n "$package" ] || { echo "skipped: apt knows no linux-image-amd64"; exit 0; }
    echo "fetching $package into $cache"
    (cd "$cache" && { ls "$package"_*.deb >/dev/null 2>&1 || apt-get download -qq "$package" 2>/dev/null; }) ||
        { echo "skipped: $package cannot be fetched"; exit 0; }
    rm -rf "$cache/root"
    dpkg-deb -x "$cache/$package"_*.deb "$cache/root"
    depmod -b "$cache/root" "${package#linux-image-}"
    echo "${package#linux-image-}" >"$cache/ready"
}

# A root with busybox and the modules; all else comes from this machine's files.
image() {
    local version root=$work/root name file
    version=$(cat "$cache/ready")
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,share,host,modules}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for name in sh mount insmod chroot poweroff mkdir cat grep cut sync; do
        ln -s busybox "$root/bin/$name"
    done
    : >"$root/modules/list"
    # crc32_generic has to be there for the ICRC; nothing asks for it by name.
    for name in crc32_generic virtio_pci virtio_rng 9pnet_virtio 9p overlay rdma_ucm rdma_rxe veth sch_netem; do
        modprobe -d "$cache/root" -S "$version" --show-depends "$name" 2>/dev/null |
            awk '$1 == "insmod" { print $2 }' | while read -r file; do
            grep -qx "$(basename "$file")" "$root/modules/list" && continue
            cp "$file" "$root/modules/"
            basename "$file" >>"$root/modules/list"
        done
    done
    cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
for module in $(cat /modules/list); do insmod /modules/$module || echo "cannot load $module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,ro host /host
mkdir -p /tmp/upper /tmp/work /tmp/all
mount -t overlay -o lowerdir=/host,upperdir=/tmp/upper,workdir=/tmp/work overlay /tmp/all
for name in proc sys dev; do mount -o bind /$name /tmp/all/$name; done
mkdir -p /tmp/all/run /tmp/all/tmp /tmp/all/mnt/share
mount -t tmpfs tmp /tmp/all/run
mount -t tmpfs tmp /tmp/all/tmp
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /tmp/all/mnt/share
chroot /tmp/all /bin/bash /mnt/share/guest.sh $(cat /proc/cmdline | grep -o 'part=[^ ]*' | cut -d= -f2) \
    >/dev/ttyS0 2>&1
sync
poweroff -f
INIT
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs.gz"
}

# Boots the machine for a part; its output goes on, and `ok PART` in it says that the part has passed.
boot() {
    local part=$1 version
    version=$(cat "$cache/ready")
    timeout "${LACUNA_RXE_SECONDS:-900}" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -m 2048 -smp 2 \
        -kernel "$cache/root/boot/vmlinuz-$version" -initrd "$work/initramfs.gz" \
        -append "console=ttyS0 no_timer_check quiet loglevel=3 panic=-1 part=$part" -nographic -no-reboot -nic none \
        -object rng-random,id=rng,filename=/dev/urandom -device virtio-rng-pci,rng=rng \
        -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
        -virtfs local,path="$work/share",mount_tag=share,security_model=none \
        </dev/null >"$work/$part.log" 2>&1 &
    machine=$!
    wait "$machine" || true
    machine=
    tr -d '\r' <"$work/$part.log" | grep -aE '^(rxe|peer|roce_peer|ok|FAILED)' || true
    grep -aq "^ok $part" "$work/$part.log" && return 0
    echo "part $part failed; the end of its log:"
    tail -30 "$work/$part.log"
    return 1
}

kernel
mkdir -p "$work/share"
cp scripts/rxe/guest.sh "$work/share/"
for name in peer uc_peer; do
    gcc -O1 -Wall -o "$work/share/$name" "scripts/rxe/$name.c" -libverbs
done
cargo build --quiet --release -p lacuna --example roce_peer --example roce_writes
target=$(realpath "${CARGO_TARGET_DIR:-target}")
cp "$target/release/examples/roce_peer" "$target/release/examples/roce_writes" "$work/share/"
for part in "${parts[@]}"; do
    case $part in
    rc | uc) ;;
    gateway)
        cargo build --quiet --release -p lacuna-cli
        cp "$target/release/lacuna" "$work/share/" ;;
    *) echo "no part is called $part: rc, uc, gateway" >&2; exit 2 ;;
    esac
done
image
failed=0
for part in "${parts[@]}"; do
    boot "$part" || failed=1
done
exit "$failed"
