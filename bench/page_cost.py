#!/usr/bin/env python3
"""Measure what the page and `tidegate top` cost the proxy under 2,000 clients.

One proxy (a release build) stands before a private PostgreSQL with pgbench's tables at scale 1.
2,000 clients of pgbench run select-only transactions at a rate that the machine sustains, so that
the proxy does the same work throughout. Blocks of the same length alternate: in some the page is
open in headless Chromium and `tidegate top` is open in a terminal, in the others nobody looks. The
order within each pair is drawn from a seed. A block's figure is the processor time of the proxy's
process, all threads, over the block's time; Chromium and `top` are not counted.

The rule, stated before the run: the mean of the paired differences, with its 95 % interval by
Student's t, is at most 0.01 of a processor. It is judged on the mean, and the interval is given.

    bench/page_cost.py --tidegate target/release/tidegate --markdown docs/results/page.md
"""

import argparse
import contextlib
import math
import os
import pathlib
import pty
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from compare import processes, script, servers
from compare.machine import commit, processor, version
from compare.processes import Failed, catch_signals, started
from compare.script import say
from page import chromium, rig

CLIENTS = 2000
RULE = 0.01
# Quantiles of Student's t for a 95 % interval, by pairs less one.
STUDENT = {5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201, 13: 2.160, 15: 2.131, 19: 2.093, 23: 2.069}


@contextlib.contextmanager
def terminal_with_top(program, admin):
    """`tidegate top` in a terminal of its own, whose output is read and thrown away."""
    ours, theirs = pty.openpty()
    ended = threading.Event()

    def read():
        with contextlib.suppress(OSError):
            while not ended.is_set() and os.read(ours, 1 << 16):
                pass

    try:
        command = [program, "top", f"127.0.0.1:{admin}"]
        with started(command, stdin=theirs, stdout=theirs, stderr=theirs):
            reader = threading.Thread(target=read, daemon=True)
            reader.start()
            yield
            ended.set()
    finally:
        os.close(theirs)
        os.close(ours)


@contextlib.contextmanager
def watched(proxy, program):
    """The page in a browser and `top` in a terminal, both at work."""
    with tempfile.TemporaryDirectory() as profile, \
            chromium.browser(chromium.find(), profile) as tab, \
            terminal_with_top(program, proxy.admin):
        tab.show(proxy.url, 1360, 900)
        tab.until('document.body && document.body.dataset.ready === "yes"')
        yield
        if tab.said:
            raise Failed(f"the console says {tab.said}")


def block(proxy, seconds):
    """The share of a processor that the proxy uses in a block, and the transactions a second."""
    def completed():
        return sum(it["completed"] for it in proxy.status()["servers"][0]["classes"])

    before, cpu, begun = completed(), processes.cpu_s(proxy.process), time.monotonic()
    time.sleep(seconds)
    cpu, lasted = processes.cpu_s(proxy.process) - cpu, time.monotonic() - begun
    return cpu / lasted, (completed() - before) / lasted


def measure(proxy, options):
    """Pairs of blocks: without and with somebody who looks."""
    draw, pairs = random.Random(options.seed), []
    for number in range(options.pairs):
        pair = {}
        for is_watched in draw.sample([False, True], 2):
            with watched(proxy, options.tidegate) if is_watched else contextlib.nullcontext():
                time.sleep(2)
                pair[is_watched] = block(proxy, options.seconds)
        pairs.append(pair)
        (without, tps), (with_them, _) = pair[False], pair[True]
        say(f"pair {number + 1}: {without:.4f} without, {with_them:.4f} with, {tps:.0f} tps")
    return pairs


def report(pairs, options, full):
    """The page of results."""
    differences = [pair[True][0] - pair[False][0] for pair in pairs]
    mean = statistics.mean(differences)
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    reach = STUDENT.get(len(differences) - 1, 2.6) * error
    without = statistics.mean(pair[False][0] for pair in pairs)
    with_them = statistics.mean(pair[True][0] for pair in pairs)
    verdict = "kept" if mean <= RULE else "not kept"
    lines = [
        "# What the page and `tidegate top` cost",
        "",
        __doc__.split("\n\n", 1)[1].rsplit("\n\n", 1)[0].strip(),
        "",
        "```", "bench/page_cost.py --tidegate target/release/tidegate --markdown "
        f"docs/results/page.md --pairs {options.pairs} --seconds {options.seconds}", "```",
        "",
        "| pair | without, processors | with | difference | tps without | tps with |",
        "| ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for number, pair in enumerate(pairs, 1):
        (one, tps), (other, tps_with) = pair[False], pair[True]
        lines.append(f"| {number} | {one:.4f} | {other:.4f} | {other - one:+.4f} "
                     f"| {tps:.0f} | {tps_with:.0f} |")
    lines += [
        "",
        f"**{mean * 100:.2f} % of a processor** (95 % interval {(mean - reach) * 100:.2f} to "
        f"{(mean + reach) * 100:.2f} %), from {without:.4f} to {with_them:.4f} processors. The "
        f"rule of at most 1 % is {verdict}. The whole document had {full / 1000:.0f} kB.",
        "",
        f"{version(options.tidegate)}{commit()}, {version('postgres')}, {processor()}; "
        f"seed {options.seed}, {CLIENTS} clients, blocks of {options.seconds} s, "
        f"{options.pairs} pairs; load average at the start {options.load:.1f}.",
        "",
    ]
    return "\n".join(lines)


def main(options):
    """Start everything, and measure."""
    if chromium.find() is None:
        sys.exit("there is no Chromium: apt-get install chromium")
    with script.directory("tidegate-page-") as directory, \
            servers.postgres(directory, 1) as server, \
            rig.proxy(directory, server, options.tidegate) as proxy:
        rate = ["-S", "-R", options.rate]
        with rig.load(server, proxy.port, CLIENTS, more=rate):
            say("the clients connect")
            processes.wait_until(lambda: proxy.status()["clients"]["connected"] >= CLIENTS,
                                 proxy.process, directory / "proxy.log", limit_s=120)
            time.sleep(20)
            pairs = measure(proxy, options)
            full = len(subprocess.check_output(["curl", "-s", f"{proxy.url}status.json"]))
    text = report(pairs, options, full)
    print(text)
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tidegate", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=int, default=15, help="length of a block")
    parser.add_argument("--rate", type=int, default=1500, help="transactions a second")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--markdown", type=pathlib.Path)
    catch_signals()
    given = parser.parse_args()
    given.load = os.getloadavg()[0]
    main(given)
