#!/usr/bin/env python3
"""How fast XML is loaded, with how much memory, and how large it becomes.

Documents of the generator of XMark are loaded durably into new stores, without indexes and with a
name index and a content-and-structure index of all texts. In each round the disk is written to
beside that, plainly and with one sync at the end, because its speed changes. Every load is a
process of its own, so that its peak of memory is its own. Prints Markdown. The figures are no test:
the exit code is 0 whatever they show. Build the examples first:

    cargo build --release -p tidegate-xml --example load_speed --example xmark
"""

import argparse
import os
import pathlib
import platform
import re
import resource
import shlex
import statistics
import subprocess
import sys
import time

from compare import script
from compare.machine import ROOT, commit, processor
from compare.processes import Failed

INDEXES = ("--index", "name", "--index", "cas text")
CASES = {"without indexes": (), "with both indexes": INDEXES}
SIZES = {
    "as by default (90 %)": INDEXES,
    "`--fill 100`": ("--fill", "100"),
    "`--fill 100 --virtual`: without records of inner nodes": ("--fill", "100", "--virtual"),
}
INDEX_TREES = {"xml index 0.0": "index `name`, ", "xml index 0.1": "index `cas text`, "}
RAW_BYTES = 512 << 20
LIMIT_S = 3600


def run(program, *arguments, stdout=subprocess.PIPE):
    """What an example has written, and how much processor time it took, in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([program, *map(str, arguments)], stdout=stdout, stderr=subprocess.PIPE,
                          text=True, timeout=LIMIT_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise Failed(f"{shlex.join(map(str, done.args))}: {done.stderr}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_raw(directory):
    """The speed of one plain write with a sync, in MB/s."""
    path, block = directory / "raw", bytes(1 << 20)
    begun = time.monotonic()
    try:
        with path.open("wb") as file:
            for _ in range(RAW_BYTES // len(block)):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        return RAW_BYTES / (time.monotonic() - begun) / 1e6
    finally:
        path.unlink(missing_ok=True)


def number(pattern, text):
    """The number that a pattern finds in a text."""
    return float(re.search(pattern, text).group(1))


def load(programs, text, more):
    """One parse and one load: their speeds in MB/s, processor time in s, peak of memory in MiB."""
    output, processor_s = run(programs / "load_speed", text, "--rounds", 1, *more)
    return {
        "parse": number(r"parse alone: ([\d.]+)", output),
        "load": number(r"load durably: ([\d.]+)", output),
        "processor": processor_s,
        "peak": number(r"MiB, ([\d.]+) MiB beside", output),
        "nodes": number(r"loaded (\d+) nodes", output),
    }


def spread(values, digits=0):
    """The cells of the median, and of the lowest and highest."""
    median, low, high = statistics.median(values), min(values), max(values)
    return f"{median:.{digits}f}", f"{low:.{digits}f} to {high:.{digits}f}"


def speeds(programs, text, rounds):
    """Measure a text: rows of the speeds, and those of the disk."""
    found, raw = {name: [] for name in CASES}, []
    for at in range(rounds):
        raw.append(write_raw(text.parent))
        for name, more in CASES.items():
            found[name].append(load(programs, text, more))
        script.say(f"{text.name}: round {at + 1} of {rounds}")
    size = text.stat().st_size
    about = f"{size / 1e6:,.0f} MB, {found['without indexes'][0]['nodes']:,.0f} nodes"
    parsed = [one["parse"] for runs in found.values() for one in runs]
    rows = [script.row(about, "parse alone", *spread(parsed), "", "")]
    for name, runs in found.items():
        used = statistics.median(one["processor"] for one in runs) / (size / 1e6)
        peak = max(one["peak"] for one in runs)
        rows.append(script.row("", f"load durably {name}", *spread([one["load"] for one in runs]),
                               f"{used * 1e3:.0f}", f"{peak:.0f}"))
    return [*rows, script.row("", "plain write of 512 MiB and a sync", *spread(raw), "", "")]


def sizes(programs, text):
    """Rows of what trees take beside the text."""
    rows = []
    for name, more in SIZES.items():
        output, _ = run(programs / "load_speed", text, "--rounds", 1, *more)
        for tree, size, times, full in re.findall(
                r"  (xml .*): leaves of (\d+) bytes, ([\d.]+) times the text, ([\d.]+) %", output):
            what = INDEX_TREES.get(tree, "") + name
            rows.append(script.row(what, f"{int(size):,}", times, f"{full} %"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--factors", type=float, nargs="+", default=[0.2, 1, 10])
    parser.add_argument("--rounds", type=int, nargs="+", default=[5, 5, 3],
                        help="rounds of each factor")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--programs", type=pathlib.Path,
                        default=ROOT / "target/release/examples")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "target",
                        help="where texts and stores are made, and removed")
    options = parser.parse_args()
    if len(options.rounds) != len(options.factors) or min(options.rounds) < 1:
        parser.error("as many --rounds as --factors, each at least 1")
    before = os.getloadavg()[0]
    rows, size_rows = [], []
    for factor, rounds in zip(options.factors, options.rounds):
        text = options.directory / f"xmark-{factor:g}.xml"
        try:
            with text.open("w") as file:
                run(options.programs / "xmark", "--factor", factor, "--seed", options.seed,
                    stdout=file)
            rows += speeds(options.programs, text, rounds)
            size_rows = size_rows or sizes(options.programs, text)
        finally:
            text.unlink(missing_ok=True)
    page(options, before, rows, size_rows)


def page(options, before, rows, size_rows):
    """Print what was measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    print("# Loading XML\n")
    print(f"- machine: {processor()}, {len(os.sched_getaffinity(0))} processors, "
          f"{memory:.1f} GiB of memory, {platform.system()} {platform.release()}")
    print(f"- load average: {before:.1f} before, {os.getloadavg()[0]:.1f} at the end{commit()}")
    print(f"- command: `{shlex.join(['bench/xml_load.py', *sys.argv[1:]])}`")
    print(f"- XMark with seed {options.seed}, factors "
          f"{', '.join(f'{factor:g}' for factor in options.factors)}; "
          f"{', '.join(map(str, options.rounds))} rounds; a buffer of 32 MiB\n")
    print(script.head("llrrrr", "text", "work", "MB/s, median", "lowest and highest",
                      "processor time, ms/MB", "peak memory beside the buffer, MiB"))
    print("\n".join(rows))
    print(f"\nProcessor time is that of all threads, and of a parse before the load.\n\n"
          f"Sizes at factor {options.factors[0]:g}:\n")
    print(script.head("lrrr", "leaves", "bytes", "times the text", "full"))
    print("\n".join(size_rows))


if __name__ == "__main__":
    script.run(main)
