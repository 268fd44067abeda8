#!/usr/bin/env python3
"""Measure what locks on nodes cost: an uncontended path, and a transaction of XMark.

Needs `cargo build --release -p tidegate-cli` and `cargo build --release -p tidegate-xml --example
lock_costs`. Prints Markdown.
"""

import argparse
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from compare import script
from compare.machine import ROOT, commit, processor
from compare.processes import Failed
from compare.script import head, row, say

PATH_TARGET, TRANSACTION_TARGET = 1000, 50.0
PROTOCOLS = ("X", "MGL", "taDOM3+", "taDOM3+/3")
SUMMARY = re.compile(r"took ([\d.]+) locks, was ([\d.]+) .s in requests for locks, "
                     r"and waited ([\d.]+)")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3, help="of each run of XMark")
    parser.add_argument("--factor", type=float, default=0.1, help="of the XMark document")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the report to this file")
    return parser.parse_args()


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def quartiles(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:,.1f} [{low:,.1f}, {high:,.1f}]"


def paths(program, rounds):
    """Protocol and mode -> the medians of each round, of the three requests; and their locks."""
    found = {}
    for number in range(rounds):
        say(f"paths {number + 1} of {rounds}")
        for line in run(program, "200").splitlines()[2:]:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            key = (cells[0], cells[1], cells[2], cells[4])
            medians = [float(cells[at].split()[1]) for at in (3, 5, 6)]
            found.setdefault(key, []).append(medians)
    return found


def transactions(program, options, directory):
    """Protocol and clients -> locks, time in the lock manager and waits of each round."""
    document, store = directory / "site.xml", directory / "store"
    run(program, "xml", "generate", "--factor", str(options.factor), "--output", document)
    run(program, "xml", "load", store, document, "--index", "names=name",
        "--index", "ids=cas text //@id")
    found = {}
    for number in range(options.rounds):
        say(f"transactions {number + 1} of {options.rounds}")
        for clients in (1, 8):
            for protocol in PROTOCOLS:
                # Bids of a run before make the auctions in the middle longer.
                fresh = directory / "fresh"
                shutil.copytree(store, fresh)
                said = run(program, "xml", "xmark", fresh, document.name, "--clients", str(clients),
                           "--seconds", str(options.seconds), "--locking", protocol,
                           "--seed", str(1000 * number + clients))
                shutil.rmtree(fresh)
                locks, request, block = map(float, SUMMARY.search(said).groups())
                found.setdefault((protocol, clients), []).append((locks, request - block, block))
    return found


def verdict(values, target):
    return "met" if statistics.quantiles(values, n=4)[2] <= target else "missed"


def report(facts, measured_paths, measured_transactions):
    lines = ["# What locks on nodes cost", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", RULES, "", "## A path of locks", "",
              head("llrrrr", "protocol", "mode", "first, ns", "sibling, ns", "again, ns",
                   "verdict")]
    for (protocol, mode, first, sibling), rounds in measured_paths.items():
        columns = list(zip(*rounds))
        cells = [quartiles(column) for column in columns]
        lines.append(row(protocol, mode, f"{cells[0]} ({first} locks)",
                         f"{cells[1]} ({sibling} lock)", cells[2],
                         verdict(columns[0], PATH_TARGET)))
    lines += ["", "## A transaction of XMark", "",
              head("lrrrrrr", "protocol", "clients", "locks", "lock manager, µs", "ns a lock",
                   "waits, µs", "verdict")]
    for (protocol, clients), rounds in measured_transactions.items():
        locks, manager, block = zip(*rounds)
        each = [1000 * cost / count for cost, count in zip(manager, locks)]
        lines.append(row(protocol, clients, quartiles(locks), quartiles(manager), quartiles(each),
                         quartiles(block), verdict(manager, TRANSACTION_TARGET)))
    return "\n".join(lines) + "\n"


RULES = f"""\
**A path.** In each transaction a node with eight ancestors is locked (`first`: the document, the
eight, and the node), then its sibling, then the first again; 12,800 transactions a round, whose
paths differ, and nobody else. What the clock takes is taken off. The target is {PATH_TARGET:,} ns
for the first, in which the transaction also enters the lock space. **A transaction.** The mix of
the study at low skew, by navigation, without preventive locks, in real time, each run on a document
as it was loaded. Bids make auctions longer while it runs, and who bids goes through them from child
to child: at high skew that is most of the locks of a small document, so it is no measure of the
study's, which has 120,000 auctions. The lock manager's
share is the time in requests for nodes and gaps less the waits; with eight clients on two
processors it holds moments in which the thread was not running. The target is
{TRANSACTION_TARGET:g} µs. Printed are the median over the rounds and the quartiles; a target is
met if the upper quartile reaches it. The sides take turns within each round."""


def main():
    options = arguments()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    facts = {
        "command": f"`bench/xml_lock_costs.py {' '.join(sys.argv[1:])}`".replace(" `", "`"),
        "seed": f"of each round, XMark factor {options.factor:g}, {options.rounds} rounds",
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} processors, "
                   f"{platform.system()} {platform.release()}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "versions": f"Tidegate{commit()}",
    }
    found = paths(target / "examples" / "lock_costs", options.rounds)
    with tempfile.TemporaryDirectory() as directory:
        mix = transactions(target / "tidegate", options, pathlib.Path(directory))
    text = report(facts, found, mix)
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    script.run(main)
