#!/usr/bin/env bash
# The completion-time model beside the transport, as a Markdown table:
#
#   scripts/model-against-transport.sh [LOSSES [SIZES [MODES]]]
#
# Every argument is a list in quotes; without them: "1e-4 1e-3 1e-2", "1MiB 8MiB 32MiB" and
# "auto sr sr:rto ec:mds:32:8 ec:xor:32:8". The transport is `lacuna demo` over its emulated path of
# 1 Gbit/s and 25 ms, the model `lacuna model` at the same setting: headers and repairs take link
# time, a loss is a packet's. A row is measured three times, with 5 to 40 messages and other losses
# each, and shows the run in the middle: on a shared machine a pause of a second now and then doubles
# the mean of one run, and of one only.
#
# Builds the release binary unless LACUNA names one. Ends with 1 if a mean is more than 10 % off.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-target}/release/lacuna
fi
lacuna=$(realpath "$LACUNA")
losses=${1:-1e-4 1e-3 1e-2}
sizes=${2:-1MiB 8MiB 32MiB}
modes=${3:-auto sr sr:rto ec:mds:32:8 ec:xor:32:8}
path=(--rate 1gbit --rtt 25ms --chunk 4KiB)

# The number behind a name in a line of JSON.
number() { sed -n 's/.*"'"$1"'":\([0-9.eE+-]*\).*/\1/p' <<<"$2" | head -n 1; }

# What the model calls a mode of the transport.
model() {
    case $1 in
    auto) echo --mode auto ;;
    sr) echo --mode sr --rto-rtts 1 ;;
    sr:rto) echo --mode sr --rto-rtts 3 ;;
    ec:*)
        local IFS=:
        # shellcheck disable=SC2086
        set -- $1
        echo --mode ec --code "$2" --k "$3" --m "$4" --streamed --rto-rtts 1
        ;;
    esac
}

off=0
echo '| loss | size | mode | messages | measured mean | model mean | deviation | measured p50 | model p50 |'
echo '|---|---|---|---|---|---|---|---|---|'
for loss in $losses; do
    for size in $sizes; do
        for mode in $modes; do
            # shellcheck disable=SC2046
            expected=$("$lacuna" model $(model "$mode" | tr '\n' ' ') "${path[@]}" --mtu 4096 \
                --loss "$loss" --loss-per packet --size "$size" --headers --wire-time --json)
            mean_s=$(number mean_s "$expected")
            runs=$(awk -v s="$mean_s" 'BEGIN { n = int(2.5 / s)
                if (n < 5) n = 5; if (n > 40) n = 40; print n }')
            middle=$(for seed in 1 2 3; do
                measured=$("$lacuna" demo "${path[@]}" --mtu 4096 --loss "$loss" --size "$size" \
                    --mode "$mode" --runs "$runs" --seed "$seed" --json --no-plot --quiet) ||
                    { echo "a run failed: $loss $size $mode, seed $seed" >&2; continue; }
                echo "$(number mean "$measured") $(number p50 "$measured")"
            done | sort -n | sed -n 2p)
            row=$(awk -v loss="$loss" -v size="$size" -v mode="$mode" -v runs="$runs" \
                -v mean="${middle% *}" -v p50="${middle#* }" \
                -v model="$mean_s" -v model50="$(number p50_s "$expected")" 'BEGIN {
                    deviation = (mean / (model * 1e3) - 1) * 100
                    printf "| %s | %s | `%s` | 3 x %d | %.1f ms | %.1f ms | %+.1f %% | %.1f ms | %.1f ms |\n",
                        loss, size, mode, runs, mean, model * 1e3, deviation, p50, model50 * 1e3
                    exit deviation > 10 || deviation < -10 }') || off=1
            echo "$row"
        done
    done
done
exit $off
