#!/usr/bin/env python3
"""Compare concurrent updates on the XML store with BaseX: the updating transactions of XMark.

Both have the same document and run the same transactions with several clients, in turns within one
run (`crates/subject/examples/xml_updates.rs`, which starts and stops BaseX). At the end all
documents are checked. Prints Markdown. Needs Java and Debian's package basex.
"""

import argparse
import collections
import os
import pathlib
import platform
import shlex
import statistics
import subprocess
import sys

from compare import script
from compare.machine import ROOT, commit, processor
from compare.processes import Failed, started
from compare.script import head, row, say
from xml_basex import basex_version, duration, ratio_cells

BASEX = "basex"
TARGET = 5.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--factor", type=float, default=0.1, help="of the XMark document")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10, help="at least 6, for the intervals")
    parser.add_argument("--count", type=int, default=100, help="transactions a client and round")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the report to this file")
    options = parser.parse_args()
    if options.rounds < 6:
        parser.error("fewer than 6 rounds give no interval of 95 %")
    return options


def measure(options):
    """Side -> for each round seconds and conflicts."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / "release" / "examples" / "xml_updates"
    if not os.access(program, os.X_OK):
        raise Failed(f"no program {program}: "
                     "cargo build --release -p tidegate-subject --example xml_updates")
    told = (options.factor, options.seed, options.clients, options.rounds, options.count)
    figures = collections.defaultdict(list)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started([program, *told], **pipes) as process:
        for line in process.stdout:
            number, side, seconds, conflicts = line.rstrip("\n").split("\t")
            if side == BASEX:
                say(f"round {number} of {options.rounds}")
            # Round 0 warms up.
            if int(number):
                figures[side].append((float(seconds), int(conflicts)))
        said = process.stderr.read().strip()
        if process.wait():
            raise Failed(f"xml_updates: {said}")
    return figures


def side_row(side, rounds, theirs, count):
    """A row of the table: a side with its ratio to BaseX in the same round."""
    seconds = [each[0] for each in rounds]
    own, ratio, judged = ratio_cells(seconds, [each[0] for each in theirs], TARGET)
    rate = count / statistics.median(seconds)
    conflicts = sum(each[1] for each in rounds) / (len(rounds) * count)
    return row(side, own, f"{rate:,.0f}", f"{conflicts:.1%}", ratio, judged)


def report(options, facts, figures):
    """The page, as Markdown."""
    theirs = figures[BASEX]
    count = options.clients * options.count
    lines = ["# Concurrent updates beside BaseX", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", RULES, "", head("lrrrrl", "side", "a round", "transactions a second",
                                  "attempts ended by a conflict", "ratio", "verdict")]
    median = statistics.median(each[0] for each in theirs)
    lines.append(row("BaseX", duration(median), f"{count / median:,.0f}", "", "1", ""))
    lines += [side_row(side, rounds, theirs, count)
              for side, rounds in sorted(figures.items()) if side != BASEX]
    return "\n".join(lines) + "\n"


RULES = f"""\
Each client runs the updating transactions of the [workload xmark](../xmark.md) one behind the
other: Place Bid 9, Change User Info 4, Add Mail 4, Register 1, Add Item 1, with low skew, by
navigation. In a round every side runs the same transactions, in changing order, on a document of
its own. A ratio is the time of BaseX over ours in the same round: above 1, ours is faster. The
table has the median over the rounds, with an interval that holds the true median with a
probability of at least 0.95 (order statistics). The target is a ratio of {TARGET:g}. It is
**met** if the whole interval reaches it, **missed** if none of it does, and else undecided. A
transaction that a conflict ends is run again until it is committed, which is in the time.

After the last round all documents are checked, that of BaseX too: each price is the sum of its
bids, every reference leads somewhere, and all have the same numbers of everything.

**Durability.** BaseX writes its files at the end of each update (`AUTOFLUSH`) and syncs none; it
has no log. `synced`: ours syncs its log before a commit returns, which is more. `lazy`: ours
writes and syncs its log a moment later; a crash of the program may lose the last moment, and
never part of a transaction. **Where it runs.** Ours runs in the process of its clients; BaseX is
asked by a query for each transaction over a connection of its own for each client, on the same
machine."""


def run_all(options):
    facts = {
        "command": f"`bench/xml_updates.py {shlex.join(sys.argv[1:])}`".replace(" `", "`"),
        "seed": f"{options.seed}, XMark factor {options.factor:g}, {options.rounds} rounds, "
                f"{options.clients} clients with {options.count} transactions each",
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} processors, "
                   f"{platform.system()} {platform.release()}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "versions": f"Tidegate{commit()}, {basex_version()}",
    }
    return report(options, facts, measure(options))


def main():
    options = arguments()
    try:
        text = run_all(options)
    except (OSError, subprocess.SubprocessError) as error:
        raise Failed(str(error)) from error
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    script.run(main)
