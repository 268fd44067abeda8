#!/usr/bin/env python3
"""Show what each parameter of the default controller is worth on simulated plants.

Each parameter takes each of its values, the others stay. The plants are the families of
experiments/plants-by-tick with the seeds 1 to 6, and random ones of the seeds 1 to 100: those that
parameters may be chosen on. Virtual time: the same figures on every machine. Prints a Markdown
page. The figures of results use other seeds.
"""

import argparse
import sys

from by_tick import build, runs
from compare.machine import ROOT, commit
from compare.script import head, row

NAME = "paired-comparison"
VALUES = {
    "price": [0.01, 0.02, 0.03, 0.05],
    "cold": [4, 8, 16],
    "error": [0.05, 0.2, 0.4],
    "futile": [0.5, 1, 2],
    "probe-price": [0.002, 0.005, 0.02],
    "stale": [8, 15, 30],
    "stale-far": [30, 60, 120],
}


def main():
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    build()
    families = sorted(ROOT.glob("experiments/plants-by-tick/*.toml"))
    print("# Parameters of the default controller\n")
    print("```text\npython3 bench/parameters.py > docs/results/parameters.md\n```\n")
    print(f"{__doc__.split(chr(10), 2)[2].strip()}\n\nMade by {commit().removeprefix(', ')}.\n")
    print(head("lrrrrrrrr", "parameter", "value", "families: mean", "worst plant", "worst run",
               "soon", "limit x", "random: mean", "5th percentile"))
    for key, values in VALUES.items():
        for value in values:
            controller = f"{NAME}:{key}={value}"
            of = runs(controller, 6, 1, families)[1]
            random = runs(controller, 1, 1, ["random:100"])[1]
            cells = [of[name] for name in ("mean", "plant", "run", "soon", "limit")]
            print(row(f"`{key}`", value, *cells, random["mean"], random["p5"]), flush=True)
            print(f"{controller}: {of['mean']}, {random['mean']}", file=sys.stderr)


if __name__ == "__main__":
    main()
