#!/usr/bin/env python3
"""Show what each parameter of the default controller is worth on simulated plants.

Each parameter takes each of its values, the others stay. The plants are the families of
experiments/plants-by-tick with the seeds 1 to 6, and random ones of the seeds 1 to 100: those that
parameters may be chosen on. Virtual time: the same figures on every machine. Prints a Markdown
page. The figures of results use other seeds.
"""

import re
import subprocess
import sys

from compare.machine import ROOT, commit

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
PROGRAM = ["cargo", "run", "--quiet", "--release", "-p", "tidegate-control", "--example",
           "plants_by_tick", "--"]
TOTAL = re.compile(r"mean ([\d.]+) worst plant ([\d.]+) worst run ([\d.]+) p5 ([\d.]+) .*"
                   r"soon ([\d.]+) limit x ([\d.]+)")


def score(controller, seeds, what):
    """The summary of a controller's runs on plants."""
    command = [*PROGRAM, controller, str(seeds), "1", *what]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = TOTAL.search(done.stdout.splitlines()[-1])
    if not found:
        raise SystemExit(f"parameters: no summary in: {done.stdout[-300:]}")
    return found.groups()


def main():
    families = sorted(str(path.relative_to(ROOT))
                      for path in (ROOT / "experiments/plants-by-tick").glob("*.toml"))
    print("# Parameters of the default controller\n")
    print("```text\npython3 bench/parameters.py > docs/results/parameters.md\n```\n")
    print(f"{__doc__.split(chr(10), 2)[2].strip()}\n\nMade by {commit().removeprefix(', ')}.\n")
    print("| parameter | value | families: mean | worst plant | worst run | soon | limit x | "
          "random: mean | 5th percentile |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for key, values in VALUES.items():
        for value in values:
            controller = f"{NAME}:{key}={value}"
            mean, plant, run, _, soon, limit = score(controller, 6, families)
            random_mean, _, _, low, _, _ = score(controller, 1, ["random:100"])
            print(f"| `{key}` | {value} | {mean} | {plant} | {run} | {soon} | {limit} | "
                  f"{random_mean} | {low} |", flush=True)
            print(f"{controller}: {mean}, {random_mean}", file=sys.stderr)


if __name__ == "__main__":
    main()
