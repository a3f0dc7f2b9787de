#!/usr/bin/env bash
# What `lacuna send` and `lacuna recv` promise, tried in full over loopback:
#
#   scripts/transfer.sh big [BYTES]           one file (10 GiB): time, and memory of both ends
#   scripts/transfer.sh resume [BYTES] [N]    one file (3 GiB), either end killed N (20) times
#   scripts/transfer.sh small [N]             N (100,000) files of 1 to 4 KiB
#   scripts/transfer.sh sparse [BYTES]        one file (3 GiB) of which 4 KiB are data
#
# Builds the release binary unless LACUNA names one; uses a folder below
# ${TMPDIR:-/tmp} with room for the data twice, which is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-target}/release/lacuna
fi
lacuna=$(realpath "$LACUNA")
work=$(mktemp -d "${TMPDIR:-/tmp}/lacuna-transfer.XXXXXX")
receiver=
trap 'kill $receiver 2>/dev/null || true; rm -rf "$work"' EXIT

# Starts a receiver on a free port; sets $receiver and $address.
start_receiver() {
    : >"$work/recv.log"
    "$lacuna" recv --listen 127.0.0.1:0 --dir "$work/in" "$@" 2>"$work/recv.log" &
    receiver=$!
    local tries=0
    until address=$(grep -om1 '127\.0\.0\.1:[0-9]*' "$work/recv.log"); do
        tries=$((tries + 1))
        [ $tries -lt 500 ] || { cat "$work/recv.log" >&2; exit 1; }
        sleep 0.02
    done
}

peak_kib() { awk '/VmHWM/ { print $2 }' "/proc/$1/status" 2>/dev/null || echo 0; }

case "${1:-}" in
big)
    bytes=${2:-$((10 << 30))}
    head -c "$bytes" /dev/urandom >"$work/file"
    start_receiver
    start=$(date +%s.%N)
    "$lacuna" send --quiet "$work/file" "$address" &
    sender=$!
    sent=0
    while kill -0 $sender 2>/dev/null; do
        now=$(peak_kib $sender); [ "${now:-0}" -le "$sent" ] || sent=$now
        sleep 0.2
    done
    wait $sender
    end=$(date +%s.%N)
    cmp "$work/file" "$work/in/file"
    awk -v b="$bytes" -v s="$start" -v e="$end" -v tx="$sent" -v rx="$(peak_kib $receiver)" 'BEGIN {
        printf "%.0f bytes in %.1f s: %.2f Gbit/s; peak memory: sender %.0f MiB, receiver %.0f MiB\n",
            b, e - s, b * 8 / (e - s) / 1e9, tx / 1024, rx / 1024 }'
    ;;
resume)
    bytes=${2:-$((3 << 30))}
    times=${3:-20}
    head -c "$bytes" /dev/urandom >"$work/file"
    for i in $(seq "$times"); do
        start_receiver
        "$lacuna" send --quiet --retry 0s "$work/file" "$address" 2>"$work/send.log" &
        sender=$!
        # A random point in time, and either end in turn.
        sleep "0.$(printf %02d $((RANDOM % 40 + 5)))"
        if [ $((i % 2)) = 0 ]; then kill -9 $sender; else kill -9 $receiver; fi 2>/dev/null || true
        wait $sender 2>/dev/null || true
        kill -9 $receiver 2>/dev/null || true
        wait $receiver 2>/dev/null || true
        part=$(find "$work/in" -name '*.lacuna-part' -printf '%s' 2>/dev/null || true)
        echo "kill $i: ${part:-0} of $bytes bytes kept"
    done
    start_receiver
    "$lacuna" send --quiet --json "$work/file" "$address"
    cmp "$work/file" "$work/in/file" && echo "the content is right after $times kills"
    ;;
small)
    count=${2:-100000}
    mkdir "$work/tree"
    awk -v n="$count" 'BEGIN { for (i = 0; i < n; i++) print i }' | (
        cd "$work/tree"
        while read -r i; do
            folder=$((i / 1000))
            [ $((i % 1000)) != 0 ] || mkdir "$folder"
            printf '%*s' $((1024 + (i * 7919) % 3072)) "$i" >"$folder/$i"
        done
    )
    start_receiver
    start=$(date +%s.%N)
    "$lacuna" send --quiet "$work/tree" "$address"
    end=$(date +%s.%N)
    diff -r "$work/tree" "$work/in/tree"
    awk -v n="$count" -v s="$start" -v e="$end" 'BEGIN {
        printf "%d files in %.1f s: %.0f files/s\n", n, e - s, n / (e - s) }'
    ;;
sparse)
    bytes=${2:-$((3 << 30))}
    truncate -s "$bytes" "$work/file"
    head -c 4096 /dev/urandom | dd of="$work/file" bs=4096 seek=$((bytes / 8192)) conv=notrunc status=none
    start_receiver
    start=$(date +%s.%N)
    "$lacuna" send --quiet "$work/file" "$address"
    end=$(date +%s.%N)
    cmp "$work/file" "$work/in/file"
    awk -v b="$bytes" -v s="$start" -v e="$end" -v tx="$(du -k "$work/file" | cut -f1)" \
        -v rx="$(du -k "$work/in/file" | cut -f1)" 'BEGIN {
        printf "%.0f bytes in %.1f s; room: sender %d KiB, receiver %d KiB\n", b, e - s, tx, rx }'
    ;;
*)
    sed -n '2,10p' "$0" | sed 's/^# \{0,1\}//'
    exit 2
    ;;
esac
