#!/usr/bin/env python3
"""Compare controllers on simulated plants that are observed by ticks, and print a Markdown table.

Runs the example plants_by_tick of crates/control, built with optimisation, once for each
controller and once more with the best limit of each phase held from the beginning, which is what
can be reached. Virtual time: the figures depend on the seeds, and not on the machine.
"""

import argparse
import concurrent.futures
import os
import re
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


def build():
    """Build the program."""
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "tidegate-control",
                    "--example", "plants_by_tick"], cwd=ROOT, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--controllers", nargs="+",
                        default=["paired-comparison", "gaussian-process"])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=101, help="the first seed")
    parser.add_argument("plants", nargs="*", help="files of plants, or random:N",
                        default=sorted(ROOT.glob("experiments/plants-by-tick/*.toml")))
    options = parser.parse_args()
    build()
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
