"""Compares executions on a machine in virtual time with real ones.

    bench/machine.py TIDEGATE [FILE ...] [--store DIRECTORY]
    bench/machine.py TIDEGATE --speed [--store DIRECTORY]

TIDEGATE is the program, built for speed; FILE an experiment with the subjects `embedded` and
`embedded-in-virtual-time`, by default `bench/machine/*.toml`. The costs of work are those
fitted to small loads (`bench/costs.py`); nothing is fitted to what is compared here. The rule,
stated before the run: at each level the throughput in virtual time is within 15 % of the median of
the real executions, and the mean response time within 20 %. Each real run loads its tables anew,
because transactions let them grow, and in virtual time each execution has its own.

With `--speed` it takes the processor time of the program for a TPC-C transaction of 100 clients, in
virtual time and really (the difference of a long execution and a short one, so that the load of the
tables is left out), and the time of a curve of 20 levels. The rule: at most 1.3 times the real
time, at least 5,000 transactions a second, and the curve within a minute.

Run it while nothing else runs: real executions and their clients have all processors.
"""

import argparse
import csv
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REAL, VIRTUAL = "embedded", "embedded-in-virtual-time"
BOUNDS = {"tps": 0.15, "mean_ms": 0.20}

Figures = dict[tuple[str, int], list[float]]


def execute(tidegate: Path, file: Path, subject: str, place: Path) -> list[dict[str, str]]:
    """Runs an experiment on a subject, whose tables it loads, and returns its executions."""
    place = Path(tempfile.mkdtemp(dir=place))
    store = place / f"{file.stem}.db"
    environment = os.environ | {"TMPDIR": str(place)}
    subprocess.run(
        [tidegate, "lab", "run", file, "--subject", subject, "--store", store],
        check=True,
        env=environment,
        stdout=sys.stderr,
    )
    out = place / file.stem
    export = [tidegate, "lab", "export", "1", "--out", out, "--store", store]
    subprocess.run(export, check=True, stdout=sys.stderr)
    with (out / "executions.csv").open() as table:
        return list(csv.DictReader(table))


def figures(executions: list[dict[str, str]], column: str) -> Figures:
    found: Figures = {}
    for execution in executions:
        key = (execution["subject"], int(execution["mpl"]))
        found.setdefault(key, []).append(float(execution[column]))
    return found


def compare(executions: list[dict[str, str]]) -> tuple[list[str], dict[str, list[float]]]:
    """Returns the lines of a table, and the errors by column."""
    by_column = {column: figures(executions, column) for column in BOUNDS}
    errors: dict[str, list[float]] = {column: [] for column in BOUNDS}
    lines = [
        "| clients | real, tps | quartiles | virtual | error | real, ms | quartiles | virtual "
        "| error |",
        "| ---: | ---: | --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for mpl in sorted({mpl for _, mpl in by_column["tps"]}):
        cells = [str(mpl)]
        for column, digits in (("tps", 0), ("mean_ms", 3)):
            real = by_column[column][REAL, mpl]
            virtual = statistics.median(by_column[column][VIRTUAL, mpl])
            low, middle, high = statistics.quantiles(real, n=4, method="inclusive")
            error = virtual / middle - 1
            errors[column].append(error)
            mark = "" if abs(error) <= BOUNDS[column] else " **"
            cells += [
                f"{middle:,.{digits}f}",
                f"{low:,.{digits}f} to {high:,.{digits}f}",
                f"{virtual:,.{digits}f}",
                f"{error:+.0%}{mark}",
            ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines, errors


SPEED = """
name = "speed"
scenario = "characterise"
subjects = ["{subject}"]
mpl = {levels}
ctl = "{ctl}ms"
warmup = "50ms"
interval = "{ctl}ms"
repetitions = 1
seed = 1
{machine}
[workload]
kind = "tpcc"
warehouses = 4
items = 10000
customers = 300
mix = "standard"

[subject.{subject}]
settings = {{ buffer_bytes = "1073741824" }}
"""
MACHINE = """
[machine]
processors = 2
quantum = "3ms"
log_disk = "none"
clients = "on"
"""


def spend(
    tidegate: Path, subject: str, levels: list[int], ctl: int, place: Path
) -> tuple[float, float, list[float]]:
    """Runs an experiment; returns its processor time, its time, and transactions by execution."""
    machine = MACHINE if subject == VIRTUAL else ""
    place = Path(tempfile.mkdtemp(dir=place))
    file = place / "speed.toml"
    file.write_text(SPEED.format(subject=subject, levels=levels, ctl=ctl, machine=machine))
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    executions = execute(tidegate, file, subject, place)
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, took, [float(execution["transactions"]) for execution in executions]


def speed(tidegate: Path, place: Path) -> None:
    print("| 100 clients | µs of processor time a transaction | transactions a second |")
    print("| --- | ---: | ---: |")
    costs = {}
    for subject in (REAL, VIRTUAL):
        samples = []
        for _ in range(5):
            short, long = (spend(tidegate, subject, [100], ctl, place) for ctl in (200, 1500))
            samples.append((long[0] - short[0]) / (long[2][0] - short[2][0]) * 1e6)
        costs[subject] = statistics.median(samples)
        low, high = min(samples), max(samples)
        print(
            f"| {subject} | {costs[subject]:.0f} ({low:.0f} to {high:.0f}) "
            f"| {1e6 / costs[subject]:,.0f} |"
        )
    levels = [5 * level for level in range(1, 21)]
    _, took, transactions = spend(tidegate, VIRTUAL, levels, 500, place)
    print(f"\nRatio {costs[VIRTUAL] / costs[REAL]:.2f}. A curve of 20 levels with", end=" ")
    print(f"{min(transactions):,.0f} to {max(transactions):,.0f} transactions each took", end=" ")
    print(f"{took:.0f} s, with the load of the tables, which is done once.")


def commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tidegate", type=Path)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--store", type=Path, help="a directory in memory for the databases")
    parser.add_argument("--runs", type=int, default=7, help="real executions of each level")
    parser.add_argument("--speed", action="store_true", help="take the time of the program")
    wanted = parser.parse_args()
    if wanted.speed:
        print(f"{processor()}, {os.cpu_count()} processors, commit `{commit()}`.\n")
        with tempfile.TemporaryDirectory(dir=wanted.store) as place:
            return speed(wanted.tidegate.resolve(), Path(place))
    files = wanted.files or sorted((ROOT / "bench/machine").glob("*.toml"))
    print("# A machine in virtual time beside this one\n")
    print("```text\nbench/machine.py TIDEGATE --store DIRECTORY\n```\n")
    print(f"{processor()}, {os.cpu_count()} processors, commit `{commit()}`; files in memory.")
    print("Errors beyond the bound are marked (**).\n")
    for file in files:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=wanted.store) as place:
            executions = []
            for subject in [REAL] * wanted.runs + [VIRTUAL]:
                executions += execute(wanted.tidegate.resolve(), file, subject, Path(place))
        lines, errors = compare(executions)
        print(f"## {file.stem}\n")
        print("\n".join(lines))
        print()
        for column, name in (("tps", "throughput"), ("mean_ms", "mean response time")):
            bound = BOUNDS[column]
            within = sum(abs(error) <= bound for error in errors[column])
            print(
                f"- {name}: {within} of {len(errors[column])} levels within {bound:.0%}; median "
                f"error {statistics.median(map(abs, errors[column])):.0%}"
            )
        print(f"- {time.monotonic() - began:.0f} s\n", flush=True)


if __name__ == "__main__":
    main()
