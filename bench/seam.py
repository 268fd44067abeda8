"""What it costs that everything which waits goes through `crates/runtime`.

    bench/seam.py BEFORE AFTER [--turns 20]

BEFORE and AFTER are checkouts in which these were built:

    cargo build --release -p tidegate-cli
    cargo bench --no-run -p tidegate-engine --bench locks --bench log \\
        -p tidegate-gate --bench acquire_release

Both run in turns, the one that goes first changing each time. Of the benchmarks of locks, log and
gate the lowest time of each run counts; of TPC-C (4 warehouses, a tenth of the items and customers,
one client, so that no transaction waits for another) the processor time of the whole process for a
transaction, from two runs of different length, so that the load of the tables is left out. The
rule, stated before the run: the seam costs at most 1 % where the median of the ratios AFTER /
BEFORE is at most 1.01; the interval is that of 95 % of 10,000 resamplings of the turns.
"""

import argparse
import json
import os
import platform
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOCKS = ["lock + unlock, one key", "new locker, store, tree, 4 keys", "store, tree, 4 keys"]
GATE = [
    "acquire + release",
    "acquire + release, time given",
    "handover: queue, finish, wake, claim",
]

EXPERIMENT = """
name = "seam"
scenario = "characterise"
subjects = ["embedded"]
mpl = [1]
ctl = "{ctl}"
warmup = "200ms"
repetitions = 1
seed = {seed}

[workload]
kind = "tpcc"
warehouses = 4
items = 10000
customers = 300
mix = "standard"

[subject.embedded]
settings = {{ buffer_bytes = "1073741824" }}
"""


def program(checkout: Path, pattern: str) -> Path:
    """The benchmark of this name that was built last."""
    found = [path for path in checkout.glob(f"target/release/deps/{pattern}-*") if not path.suffix]
    if not found:
        sys.exit(f"{checkout} has no {pattern} in target/release/deps; build it as --help says")
    return max(found, key=lambda path: path.stat().st_mtime)


def lowest(output: str, names: list[str]) -> dict[str, float]:
    """The lowest time that a benchmark printed for each name."""
    figures = {}
    for name in names:
        line = re.search(rf"^\s*{re.escape(name)}\s+([0-9.]+)", output, re.MULTILINE)
        if line is None:
            sys.exit(f"no figure of {name!r} in:\n{output}")
        figures[name] = float(line[1])
    return figures


def run(command: list[str], **more: object) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def micro(checkout: Path) -> dict[str, float]:
    figures = lowest(run([program(checkout, "locks"), "--bench", "key"]), LOCKS)
    appends = ["append of 40 bytes", "append of 200 bytes"]
    with tempfile.TemporaryDirectory() as place:
        output = run(
            [program(checkout, "log"), "--bench", "append, ns"],
            env=os.environ | {"LOG_BENCH_DIR": place},
        )
    figures |= lowest(output, appends)
    return figures | lowest(run([program(checkout, "acquire_release"), "--bench"]), GATE)


def execute(checkout: Path, ctl: float, seed: int, place: Path) -> tuple[float, float]:
    """The processor time of an execution in seconds, and how many transactions it did."""
    file, store = place / "seam.toml", place / f"{seed}-{ctl}-{time.monotonic_ns()}.db"
    file.write_text(EXPERIMENT.format(ctl=f"{ctl}s", seed=seed))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = run(
        [checkout / "target/release/tidegate", "lab", "run", file, "--store", store],
        env=os.environ | {"TMPDIR": str(place)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took, lowest(output, ["1"])["1"] * ctl


def tpcc(checkout: Path, seed: int, place: Path) -> float:
    """Microseconds of processor time for a transaction."""
    (short, few), (long, many) = (execute(checkout, ctl, seed, place) for ctl in (0.5, 3.0))
    return (long - short) / (many - few) * 1e6


def interval(ratios: list[float]) -> tuple[float, float]:
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(10_000))
    return medians[249], medians[9_749]


def commit(checkout: Path) -> str:
    return run(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--store", type=Path, help="a directory in memory for the databases")
    wanted = parser.parse_args()
    sides = [wanted.before.resolve(), wanted.after.resolve()]
    figures: list[list[dict[str, float]]] = [[], []]
    with tempfile.TemporaryDirectory(dir=wanted.store) as place:
        for turn in range(wanted.turns):
            for side in (0, 1) if turn % 2 == 0 else (1, 0):
                found = micro(sides[side])
                found["TPC-C, processor time"] = tpcc(sides[side], turn + 1, Path(place))
                figures[side].append(found)
            print(f"turn {turn + 1} of {wanted.turns}", file=sys.stderr)
    print(f"Commit `{commit(sides[0])}` (before) and commit `{commit(sides[1])}` (after),")
    print(f"{platform.machine()}, {os.cpu_count()} processors, {wanted.turns} turns.\n")
    print("| | before | after | ratio | 95 % |\n| --- | ---: | ---: | ---: | --- |")
    for name in figures[0][0]:
        before, after = ([found[name] for found in side] for side in figures)
        ratios = [late / early for early, late in zip(before, after, strict=True)]
        low, high = interval(ratios)
        unit = "µs" if name.startswith("TPC-C") else "ns"
        print(
            f"| {name}, {unit} | {statistics.median(before):.1f} | {statistics.median(after):.1f} "
            f"| {statistics.median(ratios):.4f} | {low:.4f} to {high:.4f} |"
        )
    print(f"\n<!-- {json.dumps(figures)} -->", file=sys.stderr)


if __name__ == "__main__":
    main()
