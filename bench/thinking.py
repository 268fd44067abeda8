#!/usr/bin/env python3
"""Measure the throughput of transactions whose clients think inside them.

One private PostgreSQL, pgbench as the clients: a transaction reads a range, its client thinks, and
it changes a row. For each think time: direct connections, a proxy with each fixed limit, and a
proxy for each controller, one after the other, in rounds. Prints a Markdown table: transactions per
second, and what they are of the best fixed limit and of direct connections in the same round,
medians of the rounds. The tables are no test: the exit code is 0 whatever they show.
"""

import argparse
import contextlib
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from compare import servers
from compare.machine import ROOT, commit, processor, version
from compare.processes import Failed, catch_signals, find_program, started, wait_until

SCALE = 1
SCRIPT = """\
\\set from random(1, 99000)
\\set aid random(1, 100000)
BEGIN;
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :from AND :from + {rows};
\\sleep {think} ms
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
COMMIT;
"""
DIRECT = "direct"
RUN_LIMIT_S = 60


def load(port, think_ms, clients, seconds, warmup, options, directory):
    """Transactions per second after the warm-up."""
    script = pathlib.Path(directory, f"think-{think_ms}.sql")
    script.write_text(SCRIPT.format(think=think_ms, rows=options.rows))
    command = [find_program("pgbench"), "-n", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres",
               "-f", str(script), "-c", str(clients), "-j", "2", "-M", "prepared",
               "-T", str(warmup + seconds), "-P", "1", "postgres"]
    done = subprocess.run(command, capture_output=True, text=True,
                          timeout=warmup + seconds + RUN_LIMIT_S)
    rows = re.findall(r"progress: ([\d.]+) s, ([\d.]+) tps", done.stderr)
    tps = [float(value) for at, value in rows if float(at) > warmup + 0.5]
    if done.returncode or not tps:
        raise Failed(f"pgbench: {done.stderr.strip()[-300:]}")
    return statistics.fmean(tps)


@contextlib.contextmanager
def subject(program, name, server, directory):
    """The port to connect to: the server's own, or a proxy's whose `--control` is `name`."""
    if name == DIRECT:
        yield server.port
        return
    port, log = servers.free_port(), pathlib.Path(directory, f"{name.replace(':', '-')}.log")
    command = [program, "proxy", "--listen", f"127.0.0.1:{port}", "--control", name,
               "--upstream", f"postgres://127.0.0.1:{server.port}"]
    with log.open("w") as output, started(command, stdout=output, stderr=output) as process:
        wait_until(lambda: servers.accepts(port), process, log)
        yield port


def measure(think_ms, clients, server, directory, options):
    """Throughput of every subject, a list with one value for each round."""
    names = [DIRECT, *(f"fixed:{limit}" for limit in options.limits), *options.controllers]
    results = {name: [] for name in names}
    for turn in range(options.rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            server.level()
            warmup = options.warmup if name == DIRECT or name.startswith("fixed") \
                else options.settle
            with subject(options.tidegate, name, server, directory) as port:
                tps = load(port, think_ms, clients, options.seconds, warmup, options, directory)
            results[name].append(tps)
            print(f"{think_ms} ms, {name}: {tps:.1f} tps", file=sys.stderr)
    return results


def table(results):
    """Rows of subjects, with both ratios."""
    fixed = [values for name, values in results.items() if name.startswith("fixed")]
    best = [max(values) for values in zip(*fixed)]
    lines = ["| subject | tps | of the best fixed | of direct |", "| --- | ---: | ---: | ---: |"]
    for name, values in results.items():
        ratios = [statistics.median(value / base for value, base in zip(values, bases))
                  for bases in (best, results[DIRECT])]
        lines.append(f"| {name} | {statistics.median(values):.1f} | {ratios[0]:.3f} | "
                     f"{ratios[1]:.3f} |")
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tidegate", type=pathlib.Path, default=ROOT / "target/release/tidegate")
    parser.add_argument("--think-ms", type=int, nargs="+", default=[20, 1000])
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 300],
                        help="for each think time")
    parser.add_argument("--limits", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--controllers", nargs="*", default=["paired-comparison"])
    parser.add_argument("--rows", type=int, default=1000, help="that a transaction reads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="measured")
    parser.add_argument("--warmup", type=int, default=5, help="seconds before")
    parser.add_argument("--settle", type=int, default=60, help="seconds before, with a controller")
    options = parser.parse_args()
    if len(options.clients) != len(options.think_ms):
        parser.error("--clients needs as many numbers as --think-ms")
    return options


def main():
    options = arguments()
    catch_signals()
    options.tidegate = options.tidegate.resolve()
    tables = {}
    # The server's user has to reach its directory.
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        with servers.postgres(directory, SCALE) as server:
            for think_ms, clients in zip(options.think_ms, options.clients):
                results = measure(think_ms, clients, server, directory, options)
                tables[f"{clients} clients that think for {think_ms} ms"] = table(results)
    print(f"{version(options.tidegate)}{commit()}, {version('postgres')}, {processor()}, "
          f"{options.rounds} rounds of {options.seconds} s.")
    for title, text in tables.items():
        print(f"\n{title}:\n\n{text}")


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"thinking: {error}")
