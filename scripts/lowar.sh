#!/usr/bin/env bash
# What LoWAR's shim keeps of a lossy long path, really: perf over `lacuna wan` at 1 Gbit/s, MTU 1024.
#
#   scripts/lowar.sh [PART …]      ends with 1 if a figure falls short of what is wanted
#
#   goodput  WRITEs of 1 MB back to back by one queue pair, 40 and 80 ms, beside the closed forms
#   many     the same by 16 queue pairs, and how much is kept up to a loss of 1e-2
#   single   WRITEs of 1 MiB one by one: mean time and p99
#   bursts   bursts of exactly 2 to 8 packets, and the chain of the paper's figure 11
#   small    messages of 1 to 64 KiB, 128 in flight
#   auto     lowar:auto over a path that changes, 120 s, beside the best fixed strengths
#   cpu      processor time with the shim and without it, over the path and over loopback
#
# All parts if none is named: an hour and a half. SEEDS (5) and SECONDS_EACH (20) make it shorter. The machine
# should have nothing else to do. Needs root, namespaces and python3; without them it says so and ends with 0.
# Builds the release binary unless LACUNA names one.
set -euo pipefail
# All on networks of its own namespaces, which nobody else can reach.
export LACUNA_INSECURE=1
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || { echo "skipped: needs python3"; exit 0; }
if [ "$(id -u)" != 0 ] || ! unshare -mn true 2>/dev/null; then
    echo "skipped: needs root and network namespaces"
    exit 0
fi
if [ -z "${LACUNA:-}" ]; then
    cargo build --quiet --release -p lacuna-cli
    LACUNA=${CARGO_TARGET_DIR:-target}/release/lacuna
fi
LACUNA=$(realpath "$LACUNA") exec python3 - "$@" <<'PYTHON'
import json, os, random, subprocess, sys, tempfile

LACUNA = os.environ["LACUNA"]
SEEDS = int(os.environ.get("SEEDS", 5))
SECONDS = float(os.environ.get("SECONDS_EACH", 20))
RATE = 1e9
PARTS = ["goodput", "many", "single", "bursts", "small", "auto", "cpu"]
short = 0


def say(text):
    print(text, flush=True)


def wanted(name, value, least, most=None):
    """A line with a figure and what is wanted of it."""
    global short
    fits = value >= least and (most is None or value <= most)
    short += not fits
    range_ = f"at least {least:g}" if most is None else f"{least:g} to {most:g}"
    if least == float("-inf"):
        range_ = f"at most {most:g}"
    say(f"  {'ok   ' if fits else 'SHORT'} {name}: {value:.3f} ({range_})")


def perf(path, client, seed=1):
    """One run through the emulated path; what the client says."""
    command = [LACUNA, "wan", "run", "-q", "--rate", "1gbit", "--overhead", "0", "--seed", str(seed), *path, "--"]
    command += [LACUNA, "perf", "server", "--once", "-q", "--"]
    command += [LACUNA, "perf", "client", "10.77.0.1", "-q", "--json", "--qp", "rc", "--verb", "write", "-m", "1024"]
    command += ["--rate", "1gbit", "--cc", "fixed", *client]
    done = subprocess.run(command, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("{") and "gbit_per_s" in line:
            return json.loads(line)
    raise SystemExit(f"{' '.join(command)}\nsaid nothing: {done.stderr}")


def goodput(path, shim, *more, seeds=SEEDS, size="1MB", depth=64):
    """Gbit/s, pooled over seeds."""
    client = ["-s", size, "-t", str(depth), "-D", f"{SECONDS}s", "--shim", shim, *more]
    runs = [perf(path, client, seed) for seed in range(1, seeds + 1)]
    return sum(run["gbit_per_s"] for run in runs) / len(runs)


def lossy(loss, rtt_ms):
    return ["--rtt", f"{rtt_ms}ms"] + (["--loss", f"{loss:g}"] if loss else [])


def window(rtt_ms, share=1.0):
    return RATE * share * rtt_ms / 1e3 / 8 / (1024 + 16 + 28)


def fails(r, loss):
    """Blocks of LoWAR(r, 1) that are not recovered, a packet: two of its r + 1 packets are lost, or more."""
    none, one = (1 - loss) ** (r + 1), (r + 1) * loss * (1 - loss) ** r
    return (1 - none - one) / r


def part_goodput():
    shims = ["off", "lowar:32:1"]
    seen = {}
    for rtt_ms, losses in [(40, [0, 1e-4, 2e-4, 5e-4, 1e-3]), (80, [0, 1e-4, 1e-3])]:
        for loss in losses:
            for shim in shims:
                seen[rtt_ms, loss, shim] = goodput(lossy(loss, rtt_ms), shim)
    for rtt_ms, losses in [(40, [1e-4, 2e-4, 5e-4, 1e-3]), (80, [1e-4, 1e-3])]:
        lossless = seen[rtt_ms, 0, "off"]
        for loss in losses:
            off, on = seen[rtt_ms, loss, "off"], seen[rtt_ms, loss, "lowar:32:1"]
            say(f"{rtt_ms} ms, {loss:g}: {off:.3f} Gbit/s, with (32, 1) {on:.3f}")
            form = lossless / (1 + loss * window(rtt_ms))
            wanted("go-back-N over its closed form", off / form, 0.93, 1.05)
            share = 32 / 33
            form = lossless * share / (1 + fails(32, loss) * window(rtt_ms) * share)
            wanted("(32, 1) over its closed form", on / form, 0.93, 1.05)
            least = {(40, 1e-4): 1.35, (40, 2e-4): 1.75, (40, 5e-4): 3.0, (40, 1e-3): 4.7, (80, 1e-4): 1.75, (80, 1e-3): 7.6}
            wanted("(32, 1) over go-back-N", on / off, least[rtt_ms, loss])
    for rtt_ms in [40, 80]:
        lossless = seen[rtt_ms, 0, "off"]
        say(f"{rtt_ms} ms, no loss: {lossless:.3f} Gbit/s")
        wanted("(32, 1) over what it leaves", seen[rtt_ms, 0, "lowar:32:1"] / lossless * 33 / 32, 0.96)


def part_many():
    many = ["--queue-pairs", "16"]
    for rtt_ms, least in [(40, 1.20), (80, 1.43)]:
        off, on = [goodput(lossy(1e-3, rtt_ms), shim, *many, depth=8) for shim in ["off", "lowar:32:1"]]
        say(f"16 queue pairs, {rtt_ms} ms, 1e-3: {off:.3f} Gbit/s, with (32, 1) {on:.3f}")
        wanted("(32, 1) over go-back-N", on / off, least)
    for shim, cells in [("lowar:32:1", [(5e-3, 0.85), (1e-2, 0.63)]), ("lowar:8:1", [(1e-2, 0.84)])]:
        lossless = goodput(lossy(0, 40), shim, *many, depth=8)
        for loss, least in cells:
            on = goodput(lossy(loss, 40), shim, *many, depth=8)
            say(f"16 queue pairs, 40 ms, {loss:g}, {shim}: {on:.3f} of {lossless:.3f} Gbit/s")
            wanted("kept of the lossless goodput", on / lossless, least)


def part_single():
    messages = os.environ.get("MESSAGES", "2000")

    def run(loss, shim):
        client = ["-s", "1MiB", "-t", "1", "-n", messages, "--warmup", "20", "--shim", shim]
        result = perf(lossy(loss, 40), client)
        return result["mean_us"] / 1e3, result["p99_us"] / 1e3

    shims = ["lowar:32:1", "lowar:8:1"]
    lossless = {shim: run(0, shim) for shim in ["off", *shims]}
    for loss, least in [(1e-4, 1.065), (5e-4, 1.36)]:
        off, on = run(loss, "off"), run(loss, "lowar:32:1")
        say(f"1 MiB one by one, {loss:g}: mean {off[0]:.2f} ms, with (32, 1) {on[0]:.2f} ms; p99 {off[1]:.2f} and {on[1]:.2f} ms")
        wanted("go-back-N's mean over (32, 1)'s", off[0] / on[0], least)
        wanted("p99 of (32, 1) above lossless, ms", on[1] - lossless["lowar:32:1"][1], float("-inf"), 2)
    on = run(1e-3, "lowar:8:1")
    say(f"1 MiB one by one, 1e-3: (8, 1) mean {on[0]:.2f}, p99 {on[1]:.2f} ms")
    wanted("p99 of (8, 1) above lossless, ms", on[1] - lossless["lowar:8:1"][1], float("-inf"), 2)


def part_bursts():
    shim = "lowar:64:8"
    lossless = goodput(lossy(0, 40), shim, seeds=1)
    with tempfile.TemporaryDirectory() as folder:
        for length in range(2, 9):
            trace = os.path.join(folder, f"bursts-{length}")
            chance = random.Random(length)
            lost, packets = [], 0
            while packets < 4_000_000:
                ahead = int(chance.expovariate(1e-4))
                lost.append("0\n" * ahead + "1\n" * length)
                packets += ahead + length
            with open(trace, "w") as file:
                file.write("".join(lost))
            seen = goodput(["--rtt", "40ms", "--loss-trace", trace], shim, seeds=1)
            say(f"bursts of {length}, one in 10,000 packets: {seen:.3f} of {lossless:.3f} Gbit/s")
            wanted("(64, 8) kept of the lossless goodput", seen / lossless, 0.98)
    for high, least in [(0.3, 0.90), (0.7, 0.84)]:
        # The paper's chain: the high state lasts 8 packets, and begins at one packet in 10,000.
        seen = goodput(["--rtt", "40ms", "--gilbert", f"0,{high},1e-4,0.125"], shim, seeds=SEEDS)
        say(f"chain, mean 8, {high} lost in the high state: {seen:.3f} of {lossless:.3f} Gbit/s")
        wanted("(64, 8) kept of the lossless goodput", seen / lossless, least)


def part_small():
    for size, least in [("1KiB", 0.98), ("2KiB", 0.98), ("4KiB", 0.98), ("8KiB", 0.98), ("16KiB", 0.96), ("64KiB", 0.90)]:
        for shim, least in [("lowar:32:1", least)] + ([("lowar:8:1", 0.96)] if size == "64KiB" else []):
            lossless, seen = [goodput(lossy(loss, 40), shim, seeds=1 if loss == 0 else SEEDS, size=size, depth=128) for loss in [0, 1e-3]]
            say(f"{size}, 128 in flight, 1e-3, {shim}: {seen:.4f} of {lossless:.4f} Gbit/s")
            wanted("kept of the lossless rate", seen / lossless, least)


def part_auto():
    changes = ["--loss", "1e-4"]
    for at in range(10, 120, 10):
        changes += ["--at", f"{at}s loss={['1e-4', '1e-2', '1e-3'][at // 10 % 3]}"]
    global SECONDS
    before, SECONDS = SECONDS, 120
    seen = {shim: goodput(["--rtt", "40ms", *changes], shim, seeds=1) for shim in ["lowar:auto", "lowar:16:1", "lowar:32:1", "lowar:mds:64:8"]}
    SECONDS = before
    for shim, rate in seen.items():
        say(f"loss of 1e-4, 1e-2 and 1e-3 in turns of 10 s, {shim}: {rate:.3f} Gbit/s")
    auto = seen.pop("lowar:auto")
    wanted("auto over the best of them", auto / max(seen.values()), 0.99)


def part_cpu():
    def cost(shim):
        client = ["-s", "1MB", "-t", "64", "-D", f"{SECONDS}s", "--shim", shim]
        return perf(lossy(0, 40), client)["cpu_s_per_gbyte"]

    def loopback(shim, port):
        server = subprocess.Popen([LACUNA, "perf", "server", "--once", "-q", "--listen", f"127.0.0.1:{port}"])
        client = [LACUNA, "perf", "client", f"127.0.0.1:{port}", "-q", "--json", "--qp", "rc", "--verb", "write"]
        client += ["-s", "1MB", "-m", "1024", "-n", "4000", "--warmup", "50", "--shim", shim]
        done = subprocess.run(client, capture_output=True, text=True)
        server.wait()
        return json.loads(done.stdout)["cpu_s_per_gbyte"]

    for name, run, most in [("over the path", cost, 1.15), ("over loopback", None, 1.4)]:
        pairs = []
        for turn in range(SEEDS):
            if run:
                pairs.append((run("off"), run("lowar:32:1")))
            else:
                pairs.append((loopback("off", 7810 + 2 * turn), loopback("lowar:32:1", 7811 + 2 * turn)))
        ratios = sorted(on / off for off, on in pairs)
        say(f"processor time {name}, s a GB: " + ", ".join(f"{off:.3f} and {on:.3f}" for off, on in pairs))
        wanted("median with (32, 1) over that without", ratios[len(ratios) // 2], float("-inf"), most)


chosen = sys.argv[1:] or PARTS
for part in chosen:
    if part not in PARTS:
        raise SystemExit(f"no part {part}: use {', '.join(PARTS)}")
for part in chosen:
    say(f"== {part}")
    globals()[f"part_{part}"]()
say(f"{short} figures fall short" if short else "all as wanted")
sys.exit(short > 0)
PYTHON
