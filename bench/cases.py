#!/usr/bin/env python3
"""Measure two cases that misled automatic limits: a switch of workload, and analysts who join.

One private PostgreSQL; pgbench is the client. *switch*: TPC-B on one branch and reads of ranges in
turn, each for --phase seconds, by 128 clients behind one proxy that runs all the time. Each phase
is compared with the best fixed limit of its workload, measured before and after. *analysts*: 60
clients update three hot rows; after --phase seconds 8 sessions begin that each run queries of some
seconds of processor time, for twice as long, and leave. Throughput of the short transactions
before, beside and after them, behind a proxy and without one. Prints Markdown tables; the exit
code is 0 whatever they show.
"""

import dataclasses
import threading
import time

from compare import script
from compare.idle import raise_file_limit
from compare.processes import Failed
from workloads import TABLES, WORKLOADS, Workload, mean, pgbench, run, settled

PHASES = ("tpcb-1", "range-read")
CLIENTS = 128
LIMITS = (2, 4, 8, 16, 32)
ANALYSTS = Workload([("SELECT count(*) FROM generate_series(1, 20000000);\n", 1)], 8)


def best_fixed(server, options, workload):
    """The throughput of the best fixed limit, with the limit."""
    found = {}
    for limit in LIMITS:
        rows, *_ = run(server, options, workload, 6, f"fixed:{limit}")
        found[limit] = mean(rows[2:])
    limit = max(found, key=found.get)
    return limit, found[limit]


def switch(server, options):
    """Rows of the table for the workloads in turn."""
    workloads = [dataclasses.replace(WORKLOADS[name], clients=CLIENTS) for name in PHASES]
    before = [best_fixed(server, options, workload) for workload in workloads]
    measured = []
    with script.connection(server, options, options.control) as (proxy, directory):
        for turn in range(options.turns):
            rows, _ = pgbench(proxy.port, workloads[turn % 2], options.phase, directory)
            measured.append((turn, rows))
            script.say(f"switch: {PHASES[turn % 2]}: {mean(rows):.0f} tps")
    after = [best_fixed(server, options, workload) for workload in workloads]
    lines = [script.head("rllrrr", "phase", "workload", "best fixed before, after", "tps", "whole",
                         "settled")]
    for turn, rows in measured:
        (limit, one), (other_limit, other) = before[turn % 2], after[turn % 2]
        base = (one + other) / 2
        lines.append(script.row(
            turn + 1, PHASES[turn % 2], f"{one:.0f} at {limit}, {other:.0f} at {other_limit}",
            f"{mean(rows):.0f}", f"{mean(rows) / base:.3f}", f"{settled(rows) / base:.3f}"))
    return lines


def beside_analysts(port, options, directory):
    """Throughput of each second, and when the analysts came and when the last had gone."""
    times = []

    def come():
        time.sleep(options.phase)
        times.append(time.monotonic() - begun)
        with script.directory() as own:
            pgbench(port, ANALYSTS, 2 * options.phase, own)
        times.append(time.monotonic() - begun)

    hot = dataclasses.replace(WORKLOADS["hot-rows"], clients=60)
    begun = time.monotonic()
    analysts = threading.Thread(target=come)
    analysts.start()
    rows, _ = pgbench(port, hot, 5 * options.phase, directory)
    analysts.join()
    if len(times) < 2:
        raise Failed("the analysts' pgbench failed; its message is above")
    return rows, times


def analysts(server, options):
    """Rows of the table for the analysts who join."""
    lines = [script.head("lrrrrr", "way", "before", "beside them", "worst 5 s beside them", "after",
                         "worst 5 s after")]
    for control in (None, options.control) * 2:
        server.level()
        with script.connection(server, options, control) as (endpoint, directory):
            rows, times = beside_analysts(endpoint.port, options, directory)
        came, gone = (round(at) for at in times)
        parts = [rows[2:came], rows[came:gone], rows[gone:]]
        worst = [min((mean(part[at:at + 5]) for at in range(max(1, len(part) - 4))), default=0)
                 for part in parts]
        figures = [mean(parts[0]), mean(parts[1]), worst[1], mean(parts[2]), worst[2]]
        lines.append(script.row(control or "direct", *(f"{tps:.0f}" for tps in figures)))
        script.say(lines[-1])
    return lines


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--control", default="paired-comparison")
    parser.add_argument("--phase", type=int, default=30, help="seconds of a phase")
    parser.add_argument("--turns", type=int, default=4, help="phases of the switch")
    options = script.parsed(parser)
    raise_file_limit(4_000)
    with script.private_server(1, *TABLES) as server:
        switched, joined = switch(server, options), analysts(server, options)
    print(f"{script.where(options)}.")
    print("\n## A switch of workload\n")
    print("\n".join(switched))
    print("\n## Analysts who join\n")
    print("\n".join(joined))


if __name__ == "__main__":
    script.run(main)
