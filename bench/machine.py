"""Compares executions on a machine in virtual time with real ones.

    bench/machine.py TIDEGATE [FILE ...] [--store DIRECTORY] > docs/results/machine.md

TIDEGATE is the program, built for speed; FILE an experiment with the subjects `embedded` and
`embedded-in-virtual-time`, by default `experiments/machine-*.toml`. The costs of work are those
fitted to small loads (`bench/costs.py`); nothing is fitted to what is compared here. The rule,
stated before the run: at each level the throughput in virtual time is within 15 % of the median of
the real executions, and the mean response time within 20 %.

Run it while nothing else runs: real executions and their clients have all processors.
"""

import argparse
import csv
import os
import platform
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


def execute(tidegate: Path, file: Path, place: Path) -> list[dict[str, str]]:
    """Runs an experiment and returns its executions."""
    store = place / f"{file.stem}.db"
    environment = os.environ | {"TMPDIR": str(place)}
    subprocess.run(
        [tidegate, "lab", "run", file, "--store", store],
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
    wanted = parser.parse_args()
    files = wanted.files or sorted((ROOT / "experiments").glob("machine-*.toml"))
    print("# A machine in virtual time beside this one\n")
    print("```text\nbench/machine.py TIDEGATE --store DIRECTORY\n```\n")
    print(f"{processor()}, {os.cpu_count()} processors, commit `{commit()}`; files in memory.")
    print("Errors beyond the bound are marked (**).\n")
    for file in files:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(dir=wanted.store) as place:
            executions = execute(wanted.tidegate.resolve(), file, Path(place))
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
