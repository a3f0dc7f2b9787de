#!/usr/bin/env bash
# The C programs of the tests against a library that is instrumented itself, which
# cargo's tests cannot have: races and stray accesses inside of the library show
# here, those of the programs in tests/programs.rs.
#
#   crates/lacuna-capi/tests/sanitize.sh address
#   crates/lacuna-capi/tests/sanitize.sh thread
#
# Needs a nightly compiler; for `thread` with the component rust-src, because the
# standard library's own synchronisation must be seen too.
set -euo pipefail
cd "$(dirname "$0")/../../.."
case "${1:-}" in
address) sanitizer=address runtime=asan std=() ;;
thread) sanitizer=thread runtime=tsan std=(-Zbuild-std) ;;
*)
    sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
triple=x86_64-unknown-linux-gnu
target="${CARGO_TARGET_DIR:-target}/c-$sanitizer"
RUSTFLAGS="-Zsanitizer=$sanitizer -Cdebuginfo=1" CARGO_TARGET_DIR="$target" \
    cargo +nightly rustc --locked --quiet "${std[@]}" --target "$triple" -p lacuna-capi --lib \
    --crate-type staticlib -- -Copt-level=1
runtime="$(rustc +nightly --print sysroot)/lib/rustlib/$triple/lib/librustc-nightly_rt.$runtime.a"

built="$target/programs"
mkdir -p "$built"
# One runtime for both languages, that of Rust: the C compiler's own is not linked.
build() {
    local program="$built/$(basename "$1" .c)"
    cc -std=c11 -g -O1 -pthread "-fsanitize=$sanitizer" -Icrates/lacuna-capi/include -c "$1" \
        -o "$program.o"
    cc -pthread "$program.o" -o "$program" \
        "$target/$triple/debug/liblacuna_capi.a" -Wl,--whole-archive "$runtime" \
        -Wl,--no-whole-archive -rdynamic -lgcc_s -lutil -lrt -lpthread -lm -ldl
}
# The leak checker needs ptrace, which containers often refuse; valgrind looks for
# leaks in the tests.
export ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS="halt_on_error=1 second_deadlock_stack=1"
for name in every_call misuse endpoint_misuse endpoint semantics; do
    build "crates/lacuna-capi/tests/c/$name.c"
    for workers in 0 2; do
        echo "== $name, $workers workers, $sanitizer sanitizer"
        LACUNA_SDR_WORKERS=$workers timeout 600 "$built/$name" | tail -1
    done
done
for name in bounded one_sided completion_queue datagram group; do
    build "crates/lacuna-capi/tests/c/$name.c"
    for progress in threads manual; do
        echo "== $name, $progress, $sanitizer sanitizer"
        timeout 600 "$built/$name" $progress | tail -1
    done
done
# The thread sanitizer follows no child that has threads of its own.
if [ "$sanitizer" = address ]; then
    build crates/lacuna-capi/tests/c/fork.c
    for arguments in threads manual "sdr udp:127.0.0.1" "sdr mem"; do
        echo "== fork $arguments, $sanitizer sanitizer"
        # shellcheck disable=SC2086 # one or two arguments
        timeout 600 "$built/fork" $arguments | tail -1
    done
fi
