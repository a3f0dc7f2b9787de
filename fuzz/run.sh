#!/bin/sh
# Builds one fuzz target and runs it for a number of seconds: fuzz/run.sh TARGET SECONDS
#
# This is what `cargo fuzz run` does, without needing cargo-fuzz: coverage counters from LLVM's
# sanitizer pass, libFuzzer's main from the libfuzzer-sys crate, the address sanitizer.
# README.md says where inputs come from and where they go.
set -eu

if [ $# -ne 2 ]; then
    echo "usage: $0 TARGET SECONDS" >&2
    exit 2
fi
name=$1
seconds=$2
fuzz=$(cd "$(dirname "$0")" && pwd)
triple=x86_64-unknown-linux-gnu
target_dir=${CARGO_TARGET_DIR:-$fuzz/target}

if [ ! -f "$fuzz/fuzz_targets/$name.rs" ]; then
    echo "$0: no fuzz target $name; there are:" >&2
    ls "$fuzz/fuzz_targets" | sed 's/\.rs$//' >&2
    exit 2
fi

# One codegen unit: with several, counters of a function that was split may be discarded.
RUSTFLAGS="-Cpasses=sancov-module \
-Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares \
-Zsanitizer=address -Ccodegen-units=1 --cfg fuzzing" \
    cargo +nightly build --release --manifest-path "$fuzz/Cargo.toml" \
    --target "$triple" --target-dir "$target_dir" --bin "$name"

# libFuzzer adds what it finds to the first folder and only reads the second.
grown="$target_dir/corpus/$name"
artifacts="$fuzz/artifacts/$name/"
mkdir -p "$grown" "$artifacts"
exec "$target_dir/$triple/release/$name" \
    "$grown" "$fuzz/corpus/$name" \
    -artifact_prefix="$artifacts" \
    -max_total_time="$seconds" \
    -rss_limit_mb=1024 -malloc_limit_mb=256 -timeout=5 -max_len=4096 \
    -print_final_stats=1
