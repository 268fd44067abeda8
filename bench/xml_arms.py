#!/usr/bin/env python3
"""Compare the way to lock that is chosen while it runs with every fixed one, on four mixes.

Reads the stores that `tidegate lab run` filled with `experiments/xml-arms-fixed.toml`,
`xml-arms-best.toml`, `xml-arms-chosen.toml` and `xml-over-time.toml`, with each of their presets
but `published`, takes the latest experiment of each name and preset, and writes a Markdown page.
With `--run PROGRAM` it runs them first.
"""

import argparse
import json
import math
import pathlib
import re
import sqlite3
import statistics
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = ["xml-arms-fixed", "xml-arms-best", "xml-arms-chosen"]
OVER_TIME = "xml-over-time"
MIXES = {
    "": "the study's",
    "read-mostly": "read-mostly",
    "updates": "updates with high skew",
    "long-readers": "with long readers",
}
LONG_READERS = ["long-readers"]

# Quantiles of Student's distribution, 97.5 %, by degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]

EXECUTIONS = """
SELECT b.number, b.treatment, x.mpl, m.attempt, m.tps, m.p99_ms
FROM measurement m JOIN execution x ON x.id = m.execution JOIN batchset b ON b.id = x.batchset
JOIN run r ON r.id = b.run WHERE r.experiment = ? ORDER BY b.number, x.mpl, x.repetition
"""

SECONDS = """
SELECT b.treatment, s.until_s, s.transactions
FROM interval_seen s JOIN measurement m ON m.attempt = s.attempt
JOIN execution x ON x.id = m.execution JOIN batchset b ON b.id = x.batchset
JOIN run r ON r.id = b.run WHERE r.experiment = ? ORDER BY b.number, s.number
"""

DEADLOCKS = """
SELECT b.treatment, SUM(l.runs), SUM(l.deadlocks)
FROM locking_seen l JOIN measurement m ON m.attempt = l.attempt
JOIN execution x ON x.id = m.execution JOIN batchset b ON b.id = x.batchset
JOIN run r ON r.id = b.run WHERE r.experiment = ? GROUP BY b.number
"""

LATEST = "SELECT MAX(id) FROM experiment WHERE name = ? AND preset = ?"

REASONS = "SELECT interval_s, reason FROM limit_seen WHERE attempt = ? AND at_s > 0"

INTRODUCTION = """# The way to lock, chosen while it runs

The workload `xmark` on the XML store, on a machine in virtual time with {processors} processors,
32 clients before a gate, by {build}. The document has factor 0.1 and is in memory. A sync
of the log takes {log_disk}, and processors are 20 times slower than those whose costs were
fitted; both are **modelled**. In virtual time the figures are the same whatever the host does,
and however the program was optimised.

- *Fixed*: each way to lock at each limit of a grid, {fixed} times for {fixed_s:g} s after
  {fixed_after_s:g} s.
- *Best fixed*: the best of these, measured again as *chosen* is, {best} times for {best_s:g} s
  after {best_after_s:g} s, so that both have the same state of the document, and that the best is
  measured by other executions than those that it was chosen by. Its choice stands in
  `experiments/xml-arms-best.toml`.
- *Chosen*: begins with X and chooses among the same ways beside the limit
  ([control.md](../control.md#arms)), {chosen} times for {chosen_s:g} s after {chosen_after_s:g}
  s, the time for the first search. What later comparisons cost is in the measured time.

Auctions and mailboxes keep {keep} bidders and mails, or as many as they begin with
([xmark.md](../xmark.md)): otherwise the document would grow, and what is measured later would be
slower. In the mix with long readers, which is the read-mostly one otherwise, one transaction in
173 reads location and name of all items of a region.

The rule: on each mix *chosen* reaches 0.95 of the best fixed choice, and on the mix with long
readers its 99th percentile is below that of serial X at the limit of the grid at which X is
fastest. The mixes were settled after a pilot: on the study's mix with long readers the 99th
percentile is Register's, because each append holds the end of the list of persons until the log is
synced, and with 32 clients most of them wait there. *Best fixed* was added when the first figures
had shown that throughput after 100 s is up to 6 % below that after 2 s by the same choice, because
mailboxes fill up to the number that they keep.

```text
cargo build --release -p tidegate-cli
bench/xml_arms.py xml-arms.db --run target/release/tidegate
```
"""


NOTE = """## Chosen against fixed

Means ± half of the 95 % interval, and ratios with their 95 % intervals. X is serial X at the limit
of the grid at which its throughput is highest. *Rule met*: 0.95 of the best, and the 99th
percentile where the rule asks for it. *In force* is the share of the measured time.
"""

OVER_TIME_NOTE = """## Over time

Transactions a second of 32 clients, all of which may run at once, from the first second on, with
8 processors of the speed that was fitted and a sync of the log of 1.5 ms; one execution each.
Aborts are the share of all runs that a deadlock ended.

By commit `b176938c` taDOM3+ fell from 13,057 transactions in the first second to 755 in the
twelfth. `buffer_percent = 100` gave the store memory for twice the pages of the beginning, and
after three seconds the document had outgrown it: pages were read and written, 8 ms each. With
preventive locks, and so without deadlocks, it fell as much, to 1,004; without time for pages it
went from 12,214 to 10,530, because lists grew. Now 100 % is all memory that the store may use, and
with `keep` lists stay as long as they are. 83 % of the runs of Register and Add Item were ended by
deadlocks then. A run that is repeated now claims first what the one before was ended over.
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


def latest(stores, name, preset):
    """A store that has an experiment, and the number of the latest one there."""
    for store in stores:
        found = store.execute(LATEST, (name, preset)).fetchone()[0]
        if found is not None:
            return store, found
    raise SystemExit(f"no store has experiment {name} with preset {preset or 'none'}; run it")


def read(stores, name, preset):
    """A store with an experiment, its cells by way to lock and limit, and the ways to choose."""
    store, found = latest(stores, name, preset)
    cells, arms = {}, []
    for _, treatment, mpl, attempt, tps, p99_ms in store.execute(EXECUTIONS, (found,)):
        cells.setdefault((locking(treatment), mpl), Sample()).add(attempt, tps, p99_ms)
        arms = json.loads(treatment).get("arms") or []
    return store, cells, [locking(json.dumps({"locking": arm})) for arm in arms]


def over_time(stores):
    """A table of the throughput in each second by each way to lock."""
    store, found = latest(stores, OVER_TIME, "")
    ways, before_s = {}, {}
    for treatment, until_s, transactions in store.execute(SECONDS, (found,)):
        way = locking(treatment)
        tps = transactions / (until_s - before_s.get(way, 0.0))
        ways.setdefault(way, []).append((until_s, tps))
        before_s[way] = until_s
    aborts = {
        locking(treatment): f"{100 * deadlocks / runs:.2f}"
        for treatment, runs, deadlocks in store.execute(DEADLOCKS, (found,))
    }
    seconds = [f"to {until_s:.0f} s" for until_s, _ in next(iter(ways.values()))]
    rows = [["way to lock", *seconds, "aborts, %"]]
    rows += [[way, *(f"{tps:.0f}" for _, tps in seen), aborts[way]] for way, seen in ways.items()]
    return table(rows) + "\n"


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
    _, again, _ = read(stores, FILES[1], preset)
    store, cells, arms = read(stores, FILES[2], preset)
    ((best, best_sample),) = again.items()
    (chosen,) = cells.values()
    serial = max((cell for cell in fixed if cell[0] == "x"),
                 key=lambda cell: statistics.fmean(fixed[cell].tps))
    text, quotient = ratio(chosen.tps, best_sample.tps)
    p99, p99_quotient = ratio(chosen.p99_ms, fixed[serial].p99_ms)
    met = ["yes" if quotient >= 0.95 else "no"]
    if preset in LONG_READERS:
        met.append("yes" if p99_quotient < 1 else "no")
    summary.append([MIXES[preset], f"{best[0]} at {best[1]}", mean(best_sample.tps),
                    mean(chosen.tps), text, mean(best_sample.p99_ms, 1),
                    mean(fixed[serial].p99_ms, 1), mean(chosen.p99_ms, 1), p99, ", ".join(met),
                    in_force(store, chosen.attempts, arms)])
    limits = sorted({mpl for _, mpl in fixed})
    ways = list(dict.fromkeys(way for way, _ in fixed))
    rows = [["way to lock", *(f"tps at {limit}" for limit in limits),
             *(f"p99 at {limit}, ms" for limit in limits)]]
    rows += [[way, *(mean(fixed[way, limit].tps) for limit in limits),
              *(mean(fixed[way, limit].p99_ms) for limit in limits)] for way in ways]
    return f"## Fixed on the mix: {MIXES[preset]}\n\n{table(rows)}\n"


def times(name):
    """The measured time and the warm-up of an experiment file, seconds, and its tables."""
    with (ROOT / "experiments" / f"{name}.toml").open("rb") as file:
        spec = tomllib.load(file)
    return *(float(spec[key].removesuffix("s")) for key in ("ctl", "warmup")), spec


def page(stores):
    summary = [["mix", "best fixed", "tps", "chosen, tps", "chosen / best fixed",
                "p99 of best fixed, ms", "p99 of X, ms", "p99 of chosen, ms", "p99: chosen / X",
                "rule met", "in force"]]
    parts = [mix(stores, preset, summary) for preset in MIXES]
    build = stores[0].execute("SELECT build FROM code ORDER BY id DESC").fetchone()[0]
    values = {}
    for word, name in zip(("fixed", "best", "chosen"), FILES, strict=True):
        values[word] = len(next(iter(read(stores, name, "")[1].values())).tps)
        values[f"{word}_s"], values[f"{word}_after_s"], spec = times(name)
    head = INTRODUCTION.format(
        build=named(build), processors=spec["machine"]["processors"],
        log_disk=spec["machine"]["log_disk"].replace("ms", " ms"), keep=spec["workload"]["keep"],
        **values)
    return "\n".join([head, NOTE, table(summary), "", *parts, OVER_TIME_NOTE, over_time(stores)])


def run(program, store):
    presets = [(name, preset) for name in FILES for preset in MIXES]
    presets.append((OVER_TIME, ""))
    for name, preset in presets:
        chosen = ["--preset", preset] if preset else []
        file = ROOT / "experiments" / f"{name}.toml"
        subprocess.run([program, "lab", "--store", store, "run", file, *chosen], check=True)


def named(build):
    """Return the words for a build, which the laboratory names by its commit."""
    commit, dirty, _ = build.partition("-dirty")
    return f"commit `{commit}`" + " with changes that were not committed" * bool(dirty)


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
