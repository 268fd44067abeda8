#!/usr/bin/env python3
"""Compare controllers on simulated plants that are observed by ticks, and print a Markdown table.

Runs the example plants_by_tick of crates/control, built with optimisation, once for each
controller and once more with the best limit of each phase held from the beginning, which is what
can be reached. Virtual time: the figures depend on the seeds, and not on the machine.

With --older DIR it runs `tidegate simulate --by-tick` instead, once for each seed and each plant of
experiments/plants, which were made for one decision a second. DIR keeps the result of each run:
what is there is not run again, so that the work can be stopped and continued. With --show nothing
is run, and the table has what DIR has.
"""

import argparse
import concurrent.futures
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys

from compare.machine import ROOT, commit
from compare.script import head, row

PROGRAM = ROOT / "target/release/examples/plants_by_tick"
PLANT = re.compile(r"^(?P<share>[\d.]+) worst (?P<worst>[\d.]+) soon (?P<soon>[\d.NaN]+) "
                   r"limit x +(?P<limit>[\d.]+) \[.*\] (?P<name>\S+)")
TOTAL = re.compile(r"plants mean (?P<mean>[\d.]+) worst plant (?P<plant>[\d.]+) "
                   r"worst run (?P<run>[\d.]+) p5 (?P<p5>[\d.]+) median (?P<median>[\d.]+); "
                   r"below .90 (?P<below90>\d+) below .97 (?P<below97>\d+); "
                   r"soon (?P<soon>[\d.NaN]+) limit x (?P<limit>[\d.]+)")
ROWS = {"mean share": "mean", "worst plant": "plant", "worst run": "run",
        "5th percentile of runs": "p5", "median run": "median", "plants below 0.90": "below90",
        "plants below 0.97": "below97", "band within 5 s": "soon", "limit over lowest": "limit"}


# Quantiles of Student's distribution for 95 % intervals, by degrees of freedom from 1 up.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179,
           2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064)
OLDER = ROOT / "experiments/plants"


def runs(controller, seeds, first, what):
    """The rows by plant and the totals of one controller."""
    best = controller == "best limit"
    environment = {**os.environ, **({"LIMIT": "best"} if best else {})}
    arguments = ["paired-comparison" if best else controller, str(seeds), str(first)]
    text = subprocess.run([PROGRAM, *arguments, *map(str, what)], env=environment, check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    plants = {row["name"]: row for row in map(PLANT.match, text.splitlines()) if row}
    total = TOTAL.search(text)
    if not total:
        raise SystemExit(f"{sys.argv[0]}: no summary in: {text[-300:]}")
    return plants, total


def build(*what):
    """Build a program."""
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", *what], cwd=ROOT, check=True)


def simulated(tidegate, plant, seed, directory):
    """The measures of one run of the default controller on one of the older plants."""
    out = directory / f"{plant.stem}-{seed}"
    if not (out / "simulate.json").exists():
        subprocess.run([tidegate, "simulate", "--by-tick", "--controllers", "paired-comparison",
                        "--seeds", "1", "--seed", str(seed), "--plants", plant, "--out", out],
                       check=True, stdout=subprocess.DEVNULL)
    return measures(out)


def measures(out):
    """The measures of a run by its directory; None if it has not been made."""
    try:
        text = (out / "simulate.json").read_text()
    except FileNotFoundError:
        return None
    return json.loads(text)["cells"][0]["result"]["mean"]


def half_interval(values):
    """Half of the 95 % interval of a mean, by Student's distribution; None of a single value."""
    if len(values) < 2:
        return None
    quantile = STUDENT[min(len(values) - 1, len(STUDENT)) - 1]
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def print_older(plants, seeds, directory):
    """The table of the older plants, and what they have in common."""
    means = []
    print(head("lrrrrr", "plant", "runs", "throughput", "95 % interval", "worst run",
               "limit over the lowest in the band"))
    for plant in plants:
        found = [measures(directory / f"{plant.stem}-{seed}") for seed in seeds]
        shares = [100 * run["throughput"] for run in found if run]
        if not shares:
            continue
        limits = [math.log(run["limit_ratio"]) for run in found if run and "limit_ratio" in run]
        half, limit = half_interval(shares), math.exp(statistics.mean(limits)) if limits else None
        means.append(statistics.mean(shares))
        print(row(plant.stem, len(shares), f"{means[-1]:.1f}",
                  "–" if half is None else f"± {half:.1f}", f"{min(shares):.1f}",
                  "–" if limit is None else f"{limit:.2f}"))
    if means:
        print(f"\nThe mean over {len(means)} plants is {statistics.mean(means):.1f}; "
              f"{sum(mean < 90 for mean in means)} of them are below 90.")


def older(options):
    """Run what is missing of the older plants, and print their table."""
    plants = [pathlib.Path(plant) for plant in options.plants]
    seeds = range(options.first, options.first + options.seeds)
    if not options.show:
        build("tidegate-cli")
        work = [(plant, seed) for seed in seeds for plant in plants]
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda run: simulated(ROOT / "target/release/tidegate", *run,
                                                options.older), work))
    print_older(plants, seeds, options.older)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--controllers", nargs="+",
                        default=["paired-comparison", "gaussian-process"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=101, help="the first seed")
    parser.add_argument("--older", type=pathlib.Path, metavar="DIR",
                        help="the older plants instead, with the result of each run in DIR")
    parser.add_argument("--show", action="store_true", help="with --older: print what DIR has")
    parser.add_argument("plants", nargs="*", help="files of plants, or random:N")
    options = parser.parse_args()
    folder = OLDER if options.older else ROOT / "experiments/plants-by-tick"
    options.plants = options.plants or sorted(folder.glob("*.toml"))
    if options.older:
        older(options)
        return
    build("tidegate-control", "--example", "plants_by_tick")
    names = [*options.controllers, "best limit"]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        found = dict(zip(names, pool.map(
            lambda name: runs(name, options.seeds, options.first, options.plants), names)))
    print(f"Code: {commit().removeprefix(', ')}.\n")
    if not any(str(plant).startswith("random:") for plant in options.plants):
        columns = [column for name in options.controllers
                   for column in (f"{name}: share", "worst", "soon", "limit")]
        print(head("l" + "r" * (len(columns) + 1), "plant", *columns, "best limit"))
        for plant in found["best limit"][0]:
            cells = [found[name][0][plant][key] for name in options.controllers
                     for key in ("share", "worst", "soon", "limit")]
            print(row(plant, *cells, found["best limit"][0][plant]["share"]))
        print()
    print(head("l" + "r" * len(names), "over the plants", *names))
    for title, key in ROWS.items():
        print(row(title, *(found[name][1][key] for name in names)))


if __name__ == "__main__":
    try:
        main()
    except (OSError, subprocess.SubprocessError) as error:
        sys.exit(f"by_tick: {error}")
