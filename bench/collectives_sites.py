#!/usr/bin/env python3
"""All-reduce between sites, over paths that `lacuna wan run` emulates: one process for each site, in a host of its own.

    bench/collectives_sites.py star [--rate 1gbit] [--rtt-ms 40] [--loss 1e-3] [--operations 40]
    bench/collectives_sites.py ring [--rate 1gbit] [--rtt-ms 25] [--losses 1e-4,1e-3,1e-2] [--operations 150]

star: four sites, 16 MiB of f32, Lacuna in mode auto beside PyTorch's Gloo over TCP with bbr and large windows, each over
the same losses. The round trip and the loss are from site to site: half of each is on each of the two links between.
Warm connections; the first operation, cold, is printed apart. Goal: 1.7 times faster in the mean.

ring: four sites, each with a link to the next, the schedule ring; mean and median against the time that the model of the
ring expects (`cargo run -p lacuna-schedule --example expected`), for a link's rate without headers and chunks as large as
those that are passed on: each chunk waits only for its own losses, a round trip for each. Goal: within 10 %.

Times are those of each operation on the site that it took longest. What the links did is printed, too: frames that the
emulator did not read in time mean that this machine is too slow, and that a lower --rate is the truer test. Needs what
`lacuna wan run` needs: root, or user namespaces. LACUNA names a release binary; without, one is built.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/collectives"))
import install  # noqa: E402

SITES = 4
BYTES = 16 << 20
WARMUP = 5
# What a packet carries, what the link charges besides, and what is passed on at once.
PACKET_BYTES, OVERHEAD_BYTES, CHUNK_BYTES = 1400, 62, 64 << 10
# Windows that no bandwidth times delay of these paths fills.
SYSCTLS = [
    "net.ipv4.tcp_rmem=4096 8388608 268435456",
    "net.ipv4.tcp_wmem=4096 8388608 268435456",
    "net.ipv4.tcp_congestion_control=bbr",
]
UNITS = {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3}


def bits_per_s(rate: str) -> float:
    for unit, factor in UNITS.items():
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * factor
    sys.exit(f"{rate} is no rate: use 1gbit or 200mbit")


class Run:
    """One command at every site, and what became of it."""

    def __init__(self, lacuna: Path, topology: str, links: list[str], seed: int, command: list):
        words = [lacuna, "wan", "run", "--json", "--quiet", "--topology", topology, "--hosts", SITES, "--seed", seed, *links]
        words += [word for sysctl in SYSCTLS for word in ("--sysctl", sysctl)]
        done = subprocess.run(
            [str(word) for word in [*words, "--", *command]],
            capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        if done.returncode != 0:
            sys.exit(f"{command[0]} over a {topology} ended with {done.returncode}: {done.stderr.strip()[-800:]}")
        self.result = json.loads(done.stdout)
        self.said = self.result["hosts"][0]["program"]["stdout"].splitlines()[-1]

    def links(self) -> str:
        ways = self.result["ways"]
        total = {name: sum(way[name] for way in ways) for name in ("sent_packets", "delivered_bytes", "lost", "queue_dropped")}
        slow = sum(host["device_dropped_frames"] for host in self.result["hosts"])
        elapsed_s = self.result["elapsed_s"]
        programs_s = sum(host["program"]["user_s"] + host["program"]["system_s"] for host in self.result["hosts"])
        return (
            f"{total['sent_packets']} packets over links, {total['lost']} lost, {total['queue_dropped']} dropped in queues, "
            f"{slow} frames not read in time; processor {(programs_s + self.result['emulator_cpu_s']) / elapsed_s:.2f} of "
            f"{os.cpu_count()} cores, {self.result['emulator_cpu_s'] / elapsed_s:.2f} of it the emulator's"
        )


def by_lacuna(lacuna: Path, topology: str, links: list[str], seed: int, operations: int, options: list[str]):
    """The first operation, mean and median of the others in milliseconds, the schedule, and the run."""
    command = [lacuna, "collective", "bench", "--json", "--quiet", "-b", f"{BYTES}B", "-e", f"{BYTES}B"]
    command += ["-w", WARMUP, "-n", operations, *options]
    run = Run(lacuna, topology, links, seed, command)
    row = json.loads(run.said)
    if row["wrong"]:
        sys.exit(f"wrong results: {run.said}")
    times = row["time_us"]
    return row["first_us"] / 1e3, times["mean"] / 1e3, times["p50"] / 1e3, row["algorithm"], run


def by_gloo(lacuna: Path, gloo: install.Gloo, links: list[str], seed: int, operations: int):
    script = ROOT / "bench/collectives/gloo_all_reduce.py"
    run = Run(lacuna, "star", links, seed, [gloo.python, script, f"{BYTES}:{WARMUP}:{operations}"])
    times_ms = [float(word) / 1e3 for word in run.said.split()[1:]]
    warm = times_ms[WARMUP:]
    return times_ms[0], statistics.mean(warm), statistics.median(warm), run


def star(lacuna: Path, args: argparse.Namespace) -> None:
    # Two links from site to site.
    links = ["--rate", args.rate, "--rtt", f"{args.rtt_ms / 2}ms", "--loss", f"{1 - (1 - args.loss) ** 0.5:.3e}"]
    links += ["--queue", f"{args.rtt_ms}ms"]
    print(f"star of {SITES}, {args.rate}, {args.rtt_ms} ms and {args.loss} from site to site, {BYTES >> 20} MiB, mode auto")
    try:
        gloo = install.gloo(args.directory)
    except install.Missing as missing:
        gloo = None
        print(f"skipped: Gloo: {missing}")
    for seed in range(args.seed, args.seed + args.rounds):
        first, mean, median, algorithm, run = by_lacuna(lacuna, "star", links, seed, args.operations, args.lacuna)
        print(f"  Lacuna ({algorithm}): mean {mean:.1f} ms, median {median:.1f} ms; cold first {first:.1f} ms")
        print(f"    {run.links()}", flush=True)
        if gloo is None:
            continue
        first, other_mean, other_median, run = by_gloo(lacuna, gloo, links, seed, args.operations)
        print(f"  Gloo of PyTorch {gloo.version}, bbr: mean {other_mean:.1f} ms, median {other_median:.1f} ms; cold first {first:.1f} ms")
        print(f"    {run.links()}")
        ratio = other_mean / mean
        word = "met" if ratio >= 1.7 else "missed"
        print(f"  Lacuna is {ratio:.2f} times faster in the mean (goal 1.70: {word}), {other_median / median:.2f} in the median", flush=True)


def expected_ms(args: argparse.Namespace, loss: float) -> float:
    words = [SITES, BYTES, bits_per_s(args.rate), args.rtt_ms / 1e3, loss, PACKET_BYTES, OVERHEAD_BYTES, CHUNK_BYTES]
    command = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "lacuna-schedule", "--example", "expected", "--"]
    done = subprocess.run([*command, *map(str, words)], cwd=ROOT, capture_output=True, text=True, check=True)
    times_s = dict(line.split() for line in done.stdout.splitlines())
    return float(times_s["ring"]) * 1e3


def ring(lacuna: Path, args: argparse.Namespace) -> None:
    print(f"ring of {SITES}, {args.rate}, {args.rtt_ms} ms between neighbours, {BYTES >> 20} MiB, mode auto unless told, schedule ring{' '.join(['', *args.lacuna])}")
    for loss in map(float, args.losses.split(",")):
        links = ["--rate", args.rate, "--rtt", f"{args.rtt_ms}ms", "--loss", loss]
        options = ["--algorithm", "ring", *args.lacuna]
        model = expected_ms(args, loss)
        first, mean, median, _, run = by_lacuna(lacuna, "ring", links, args.seed, args.operations, options)
        off = max(abs(mean / model - 1), abs(median / model - 1))
        word = "met" if off <= 0.1 else "missed"
        print(
            f"  loss {loss:.0e}: model {model:.1f} ms; mean {mean:.1f} ms ({mean / model:.3f}), median {median:.1f} ms "
            f"({median / model:.3f}), cold first {first:.1f} ms; within 10 %: {word}"
        )
        print(f"    {run.links()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="star|ring")
    for name, run, rtt_ms, operations in (("star", star, 40, 40), ("ring", ring, 25, 150)):
        command = commands.add_parser(name, help=f"see above; {operations} operations")
        command.set_defaults(run=run)
        command.add_argument("--rate", default="1gbit", help="of each way of each link")
        command.add_argument("--rtt-ms", type=float, default=rtt_ms)
        command.add_argument("--operations", type=int, default=operations)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("lacuna", nargs="*", help="further options of lacuna collective bench, behind --")
        if name == "star":
            command.add_argument("--loss", type=float, default=1e-3)
            command.add_argument("--rounds", type=int, default=1, help="with a seed of its own each")
        else:
            command.add_argument("--losses", default="1e-4,1e-3,1e-2")
    args = parser.parse_args()
    # The hosts are alone on their network.
    os.environ["LACUNA_INSECURE"] = "1"
    args.directory = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "collectives"
    args.directory.mkdir(parents=True, exist_ok=True)
    args.run(install.lacuna_program(), args)


if __name__ == "__main__":
    main()
