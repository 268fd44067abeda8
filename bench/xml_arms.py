#!/usr/bin/env python3
"""Compare the way to lock that is chosen while it runs with every fixed one, on four mixes.

Reads the stores that `tidegate lab run experiments/xml-arms-fixed.toml` and
`experiments/xml-arms-chosen.toml` filled, with each of their presets, takes the latest experiment
of each name and preset, and writes a Markdown page. With `--run PROGRAM` it runs them first.
"""

import argparse
import json
import math
import pathlib
import re
import sqlite3
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ["xml-arms-fixed", "xml-arms-chosen"]
MIXES = {
    "": "the study's",
    "read-mostly": "read-mostly",
    "updates": "updates with high skew",
    "long-readers": "with long readers",
}

# Quantiles of Student's distribution, 97.5 %, by degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]

EXECUTIONS = """
SELECT b.number, b.treatment, x.mpl, m.attempt, m.tps, m.p99_ms
FROM measurement m JOIN execution x ON x.id = m.execution JOIN batchset b ON b.id = x.batchset
JOIN run r ON r.id = b.run WHERE r.experiment = ? ORDER BY b.number, x.mpl, x.repetition
"""

LATEST = "SELECT MAX(id) FROM experiment WHERE name = ? AND preset = ?"

REASONS = "SELECT interval_s, reason FROM limit_seen WHERE attempt = ? AND at_s > 0"

INTRODUCTION = """# The way to lock, chosen while it runs

The workload `xmark` on the XML store, on a machine in virtual time with 8 processors, 32 clients
before a gate, by build `{build}`. The document has factor 0.1 and is in memory; a sync of the log
takes 1.5 ms, which is **modelled**. Each fixed way to lock was measured at each limit of a grid,
{fixed} times for a second. *Chosen* begins with X and chooses among the same ways beside the limit
([control.md](../control.md#arms)); it was measured {chosen} times for 20 s after 20 s. Its time
for later comparisons is in the measured time. The best fixed choice is known from the same
executions that it is compared by, which favours it. The mix with long readers has one transaction
in 36 that reads location and name of all items of a region.

```text
cargo build --release -p tidegate-cli
bench/xml_arms.py xml-arms.db --run target/release/tidegate
```
"""


class Sample:
    """Throughput (tps) and 99th percentile (ms) of the executions of one cell."""

    def __init__(self):
        self.tps, self.p99_ms, self.attempts = [], [], []

    def add(self, attempt, tps, p99_ms):
        self.attempts.append(attempt)
        self.tps.append(tps)
        self.p99_ms.append(p99_ms)


def half_width(values):
    if len(values) < 2:
        return math.nan
    degrees = min(len(values) - 1, len(STUDENT))
    return STUDENT[degrees - 1] * statistics.stdev(values) / math.sqrt(len(values))


def mean(values, digits=0):
    return f"{statistics.fmean(values):.{digits}f} ± {half_width(values):.{digits}f}"


def ratio(values, others):
    """The ratio of two means with its 95 % interval, by the variances of their logarithms."""
    quotient = statistics.fmean(values) / statistics.fmean(others)
    errors = [half_width(each) / statistics.fmean(each) for each in (values, others)]
    reach = math.exp(math.hypot(*errors))
    return f"{quotient:.3f} [{quotient / reach:.3f}, {quotient * reach:.3f}]", quotient


def locking(treatment):
    spec = json.loads(treatment)["locking"]
    words = [spec["protocol"]]
    if spec["depth"] is not None:
        words.append(str(spec["depth"]))
    if spec["escalation"]:
        words.append(spec["escalation"]["policy"])
    return "/".join(words)


def read(stores, name, preset):
    """A store with an experiment, its cells by way to lock and limit, and the ways to choose."""
    for store in stores:
        found = store.execute(LATEST, (name, preset)).fetchone()[0]
        if found is not None:
            break
    else:
        raise SystemExit(f"no store has experiment {name} with preset {preset or 'none'}; run it")
    cells, arms = {}, []
    for _, treatment, mpl, attempt, tps, p99_ms in store.execute(EXECUTIONS, (found,)):
        cells.setdefault((locking(treatment), mpl), Sample()).add(attempt, tps, p99_ms)
        arms = json.loads(treatment).get("arms") or []
    return store, cells, [locking(json.dumps({"locking": arm})) for arm in arms]


def in_force(store, attempts, arms):
    """Shares of the measured time for which each arm was in force, the longest first."""
    seconds = {}
    for attempt in attempts:
        for interval_s, reason in store.execute(REASONS, (attempt,)):
            arm = int(re.match(r"arm (\d+):", reason)[1])
            seconds[arm] = seconds.get(arm, 0.0) + interval_s
    total = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return ", ".join(f"{arms[arm]} {100 * time / total:.0f} %" for arm, time in ordered[:3])


def table(rows):
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "| --- " * len(rows[0]) + "|")
    return "\n".join(lines)


def mix(stores, preset, summary):
    _, fixed, _ = read(stores, FILES[0], preset)
    store, cells, arms = read(stores, FILES[1], preset)
    (chosen,) = cells.values()
    best = max(fixed, key=lambda cell: statistics.fmean(fixed[cell].tps))
    serial = max((cell for cell in fixed if cell[0] == "x"),
                 key=lambda cell: statistics.fmean(fixed[cell].tps))
    text, _ = ratio(chosen.tps, fixed[best].tps)
    p99, _ = ratio(chosen.p99_ms, fixed[serial].p99_ms)
    summary.append([MIXES[preset], f"{best[0]} at {best[1]}", mean(fixed[best].tps),
                    mean(chosen.tps), text, mean(fixed[serial].p99_ms, 1),
                    mean(chosen.p99_ms, 1), p99, in_force(store, chosen.attempts, arms)])
    limits = sorted({mpl for _, mpl in fixed})
    ways = list(dict.fromkeys(way for way, _ in fixed))
    rows = [["way to lock", *(str(limit) for limit in limits)]]
    rows += [[way, *(mean(fixed[way, limit].tps) for limit in limits)] for way in ways]
    return f"## The mix: {MIXES[preset]}\n\nTransactions a second at each limit.\n\n{table(rows)}\n"


def page(stores):
    summary = [["mix", "best fixed", "tps", "chosen, tps", "chosen / best fixed", "p99 of X, ms",
                "p99 of chosen, ms", "chosen / X", "in force"]]
    parts = [mix(stores, preset, summary) for preset in MIXES]
    build = stores[0].execute("SELECT build FROM code ORDER BY id DESC").fetchone()[0]
    counts = [len(next(iter(read(stores, name, "")[1].values())).tps) for name in FILES]
    head = INTRODUCTION.format(build=build, fixed=counts[0], chosen=counts[1])
    note = ("Means ± half of the 95 % interval, and ratios with their 95 % intervals. X is serial "
            "X at the limit\nof the grid at which its throughput is highest. *In force* is the "
            "share of the measured time.\n")
    return "\n".join([head, "## Chosen against fixed\n", note, table(summary), "", *parts])


def run(program, store):
    for name in FILES:
        for preset in MIXES:
            chosen = ["--preset", preset] if preset else []
            file = ROOT / "experiments" / f"{name}.toml"
            subprocess.run([program, "lab", "--store", store, "run", file, *chosen], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+", type=pathlib.Path)
    parser.add_argument("--run", type=pathlib.Path, metavar="PROGRAM", help="run them first")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/results/xml-arms.md")
    options = parser.parse_args()
    if options.run:
        run(options.run, options.stores[0])
    options.out.write_text(page([sqlite3.connect(store) for store in options.stores]))
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
