#!/usr/bin/env python3
"""All-reduce of f32 sums over loopback: Lacuna beside Open MPI (TCP) and PyTorch's Gloo, on one machine.

    bench/collectives.py [--rounds N] [--cells 2x64M,4x1M] [--json FILE]

In each round each library runs once in each cell, in an order that turns around from round to round. Its processes start
anew, form their group and warm up; then a number of operations is timed, back to back, each by the rank that it took
longest. The median of these is the round's figure; the table has the median over all rounds, the range, and the median of
the ratios within rounds, Lacuna to the better of the others (of their medians over all rounds).

What a library needs is installed below target/collectives (Debian's packages of Open MPI, unpacked; torch in a virtual
environment), or skipped and named. LACUNA names a release binary; without, one is built.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/collectives"))
import install  # noqa: E402

# Ranks, bytes, warm-up, operations, and the goal: the most that Lacuna's time may be of the better one's.
CELLS = {
    "2x64M": (2, 64 << 20, 3, 15, 1 / 1.25),
    "4x64M": (4, 64 << 20, 3, 10, 1 / 1.05),
    "2x1M": (2, 1 << 20, 20, 100, 1.4),
    "4x1M": (4, 1 << 20, 20, 100, 1.5),
    "2x8K": (2, 8 << 10, 200, 2000, 1.2),
}
# A round of one library in one cell takes seconds; whoever hangs is given up.
PATIENCE_S = 120


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def output(command: list, environment: dict[str, str]) -> str:
    done = subprocess.run(
        list(map(str, command)), env=os.environ | environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


def median_of_line(text: str, skipped: int) -> float:
    times_us = [float(word) for word in text.splitlines()[-1].split()[1:]]
    return statistics.median(times_us[skipped:])


class Lacuna:
    def __init__(self, program: Path, options: list[str]):
        self.program, self.options = program, options
        self.version = output([program, "--version"], {}).strip()

    def time_us(self, ranks: int, size_bytes: int, warmup: int, count: int) -> float:
        command = [self.program, "collective", "bench", "--json", "--quiet", "--ranks", ranks, "-b", f"{size_bytes}B"]
        command += ["-e", f"{size_bytes}B", "-w", warmup, "-n", count, *self.options]
        return json.loads(output(command, {}))["time_us"]["p50"]


class Mpi:
    def __init__(self, mpi: install.Mpi):
        self.mpi, self.version = mpi, mpi.version

    def time_us(self, ranks: int, size_bytes: int, warmup: int, count: int) -> float:
        command = [*self.mpi.launcher, "-n", ranks, self.mpi.program, f"{size_bytes}:{warmup}:{count}"]
        return median_of_line(output(command, self.mpi.environment), 0)


class Gloo:
    def __init__(self, gloo: install.Gloo):
        self.gloo, self.version = gloo, f"Gloo of PyTorch {gloo.version}"

    def time_us(self, ranks: int, size_bytes: int, warmup: int, count: int) -> float:
        script = ROOT / "bench/collectives/gloo_all_reduce.py"
        common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        common |= {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [str(self.gloo.python), str(script), f"{size_bytes}:{warmup}:{count}"]
        others = []
        try:
            for rank in range(1, ranks):
                environment = os.environ | common | {"RANK": str(rank)}
                others.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
            text = output(command, common | {"RANK": "0"})
            for other in others:
                other.wait(PATIENCE_S)
        finally:
            for other in others:
                if other.poll() is None:
                    other.kill()
                    other.wait()
        return median_of_line(text, warmup)


def contestants(directory: Path, lacuna_options: list[str]) -> tuple[dict, list[str]]:
    """Lacuna and whoever else can be had; and what is skipped."""
    directory.mkdir(parents=True, exist_ok=True)
    found, skipped = {"Lacuna": Lacuna(install.lacuna_program(), lacuna_options)}, []
    for name, make in (
        ("Open MPI", lambda: Mpi(install.open_mpi(directory))),
        ("Gloo", lambda: Gloo(install.gloo(directory))),
    ):
        try:
            found[name] = make()
        except install.Missing as missing:
            skipped.append(f"{name}: {missing}")
    return found, skipped


def measure(found: dict, cells: list[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    times_us = {cell: {name: [] for name in found} for cell in cells}
    for number in range(rounds):
        order = list(found) if number % 2 == 0 else list(reversed(found))
        for cell in cells:
            for name in order:
                times_us[cell][name].append(found[name].time_us(*CELLS[cell][:4]))
        print(f"round {number + 1} of {rounds}; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    return times_us


def show(us: float) -> str:
    return f"{us / 1e3:.2f} ms" if us >= 1e3 else f"{us:.1f} us"


def table(times_us: dict[str, dict[str, list[float]]]) -> list[str]:
    lines = [f"{'ranks x bytes':>13}  {'library':<9} {'median':>10} {'range':>24}  Lacuna / better"]
    for cell, by_name in times_us.items():
        medians = {name: statistics.median(times) for name, times in by_name.items()}
        others = [name for name in medians if name != "Lacuna"]
        for name, times in by_name.items():
            span = f"{show(min(times))} - {show(max(times))}"
            line = f"{cell:>13}  {name:<9} {show(medians[name]):>10} {span:>24}"
            if name == "Lacuna" and others:
                better = min(others, key=lambda other: medians[other])
                ratios = [own / other for own, other in zip(times, by_name[better])]
                ratio, goal = statistics.median(ratios), CELLS[cell][4]
                word = "met" if ratio <= goal else "missed"
                line += f"  {ratio:.2f} of {better} (goal {goal:.2f}: {word})"
            lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--cells", default=",".join(CELLS), help=f"some of {','.join(CELLS)}")
    parser.add_argument("--json", type=Path, help="write all rounds there")
    parser.add_argument("lacuna", nargs="*", help="further options of lacuna collective bench, behind --")
    args = parser.parse_args()
    cells = args.cells.split(",")
    if unknown := [cell for cell in cells if cell not in CELLS]:
        parser.error(f"there is no cell {unknown[0]}: use {', '.join(CELLS)}")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found, skipped = contestants(target / "collectives", args.lacuna)
    for name, contestant in found.items():
        print(f"{name}: {contestant.version}")
    for reason in skipped:
        print(f"skipped: {reason}")
    print(f"{os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f} at the start")
    times_us = measure(found, cells, args.rounds)
    print("\n".join(table(times_us)))
    if args.json:
        args.json.write_text(json.dumps(times_us, indent=1))


if __name__ == "__main__":
    main()
