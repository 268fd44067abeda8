"""Fits what work costs on this processor: the tables of `crates/subject/src/embedded/costs.rs`.

    bench/costs.py PROGRAM [--runs 3] [--store DIRECTORY] [--write] > docs/results/costs.md

PROGRAM is the built example `work_costs` of `tidegate-subject`. It repeats small transactions on
the real engine and says how often each operation was done, and in how much processor time. For each
size of the tables the costs are those whose products with the counts are nearest to the times, by
least squares of relative errors, none below 0 (Lawson and Hanson's algorithm, `scipy`). The loads
are not those of TPC-B, TPC-C or TPC-W, on which the costs are tried (`bench/machine.py`).

It needs the environment of `analysis` (`make analysis`). `--write` replaces the tables.
"""

import argparse
import csv
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

ROOT = Path(__file__).resolve().parent.parent
RUST = ROOT / "crates/subject/src/embedded/costs.rs"
SIZES = [("small", 1_000), ("medium", 30_000), ("large", 1_000_000)]
# What the clients' thread does for a transaction is no work of the database.
CLIENT = "client"
# How long a processor takes to leave idleness is no processor time.
LATENCY = "latency"
# They touch no data: their figures are the medians over all sizes.
WITHOUT_DATA = [
    CLIENT,
    LATENCY,
    "served",
    "channel on one processor",
    "channel on two processors",
]

# Nanoseconds of operations that the program does not do, which stay as they are.
KEPT = {"node_read": 570.0, "node_write": 3200.0}

HEAD = """//! What work costs on a processor, by the size of the data.
//!
//! Made by `bench/costs.py`, which says how. The processor is {processor}.
//! Those of nodes are fitted to the medians of the eight transactions of `xmark` with one client,
//! on a machine that was not idle (`docs/results/xml-figures.md`).

use tidegate_runtime::work::OPERATIONS;

/// What work costs on data of a size.
pub(super) struct CostTable {{
    pub(super) name: &'static str,
    /// In nanoseconds, in the order of `Operation::ALL`.
    pub(super) costs: [f64; OPERATIONS],
    /// What a client's own work for a transaction takes, in nanoseconds.
    pub(super) client: f64,
    /// How long an idle processor takes until it runs a task that was woken, in nanoseconds.
    pub(super) wake_latency: f64,
}}

/// From the smallest data to the largest.
pub(super) const TABLES: [CostTable; {count}] = [
"""


def measure(program: Path, rows: int, runs: int, store: Path | None) -> dict[str, np.ndarray]:
    """For each load the median batch: nanoseconds and counts of a transaction, by column."""
    batches: dict[str, list[list[float]]] = {}
    for run in range(runs):
        print(f"{rows} rows, run {run + 1} of {runs}", file=sys.stderr)
        with tempfile.TemporaryDirectory(dir=store) as place:
            output = subprocess.run(
                [program, str(rows)],
                check=True,
                capture_output=True,
                text=True,
                env=os.environ | {"TMPDIR": place},
            ).stdout
        for line in list(csv.reader(output.splitlines()))[1:]:
            times = float(line[1])
            batches.setdefault(line[0], []).append([float(cell) / times for cell in line[2:]])
    return {name: np.median(np.array(rows), axis=0) for name, rows in batches.items()}


def names(program: Path) -> list[str]:
    """The operations in the order of the columns."""
    listed = subprocess.run([program, "--names"], check=True, capture_output=True, text=True)
    return listed.stdout.strip().split(",")[3:]


def fit(loads: dict[str, np.ndarray]) -> np.ndarray:
    table = np.array(list(loads.values()))
    return nnls(table[:, 1:] / table[:, :1], np.ones(len(table)))[0]


def errors(loads: dict[str, np.ndarray], costs: np.ndarray) -> dict[str, float]:
    return {name: float(load[1:] @ costs / load[0] - 1) for name, load in loads.items()}


def left_out(loads: dict[str, np.ndarray]) -> dict[str, float]:
    """The error of each load by the costs that are fitted to the others."""
    found = {}
    for name, load in loads.items():
        others = {other: value for other, value in loads.items() if other != name}
        found |= errors({name: load}, fit(others))
    return found


def root_mean_square(values: list[float]) -> float:
    return statistics.fmean(value * value for value in values) ** 0.5


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return found[0] if found else platform.machine()


def rust(fits: dict[str, tuple[np.ndarray, float, float]], operations: list[str]) -> str:
    text = HEAD.format(processor=processor(), count=len(fits))
    for name, (costs, client, latency) in fits.items():
        text += f'    CostTable {{\n        name: "{name}",\n        costs: [\n'
        for operation, cost in zip(operations, costs, strict=True):
            cost = KEPT.get(operation, cost)
            text += f"            {grouped(cost)}, // {operation}\n"
        text += f"        ],\n        client: {grouped(client)},\n"
        text += f"        wake_latency: {grouped(latency)},\n    }},\n"
    return text + "];\n"


def grouped(cost: float) -> str:
    whole, part = f"{cost:.2f}".split(".")
    return f"{int(whole):_}.{part.rstrip('0') or '0'}"


def commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--store", type=Path, help="a directory in memory for the databases")
    parser.add_argument("--write", action="store_true", help="replace the tables of the program")
    wanted = parser.parse_args()
    operations = names(wanted.program)
    fits, pages = {}, {}
    measured = [measure(wanted.program, rows, wanted.runs, wanted.store) for _, rows in SIZES]
    for name in WITHOUT_DATA:
        pooled = np.median([loads[name] for loads in measured], axis=0)
        for loads in measured:
            loads[name] = pooled
    for (name, _), loads in zip(SIZES, measured, strict=True):
        client, latency = (float(loads.pop(name)[0]) for name in (CLIENT, LATENCY))
        costs = fit(loads)
        fits[name] = (costs, client - costs[operations.index("wake_up")], latency)
        pages[name] = (loads, errors(loads, costs), left_out(loads))
    print("# What work costs\n")
    print("```text\nbench/costs.py PROGRAM --runs", wanted.runs, "--write\n```\n")
    print(f"{processor()}, {os.cpu_count()} processors, commit `{commit()}`. Files in memory.\n")
    print("Nanoseconds of processor time by operation, for tables of", end=" ")
    print(", ".join(f"{rows:,} ({name})" for name, rows in SIZES), "rows:\n")
    print("| operation |", " | ".join(fits), "|\n| --- |" + " ---: |" * len(fits))
    for at, operation in enumerate(operations):
        print(f"| {operation} |", " | ".join(f"{fit[0][at]:,.1f}" for fit in fits.values()), "|")
    print("| a client's own |", " | ".join(f"{fit[1]:,.1f}" for fit in fits.values()), "|")
    print("| latency of a wake-up |", " | ".join(f"{fit[2]:,.1f}" for fit in fits.values()), "|\n")
    print("Errors of the fit, and of each load by the costs fitted to the other loads:\n")
    print("| size | loads | root mean square | worst | left out: root mean square | worst |")
    print("| --- | ---: | ---: | --- | ---: | --- |")
    for name, (_, own, others) in pages.items():
        row = [name, str(len(own))]
        for found in (own, others):
            worst = max(found, key=lambda load, found=found: abs(found[load]))
            row.append(f"{root_mean_square(list(found.values())):.1%}")
            row.append(f"{found[worst]:+.0%} ({worst})")
        print("|", " | ".join(row), "|")
    print("\nMicroseconds of processor time for a transaction of each load, and the error:\n")
    print("| load |", " | ".join(f"{name} | error" for name in pages), "|")
    print("| --- |" + " ---: | ---: |" * len(pages))
    for load in pages[SIZES[0][0]][0]:
        cells = [
            f"{loads[load][0] / 1000:,.2f} | {own[load]:+.1%}" for loads, own, _ in pages.values()
        ]
        print(f"| {load} |", " | ".join(cells), "|")
    if wanted.write:
        RUST.write_text(rust(fits, operations))


if __name__ == "__main__":
    main()
