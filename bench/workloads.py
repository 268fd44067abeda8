#!/usr/bin/env python3
"""Compare automatic limits with fixed ones and with no proxy, on workloads unlike each other.

One private PostgreSQL; pgbench is the client. For each workload fixed limits are measured, from 1
up in powers of two, and no proxy; the best three again, and the best of both rounds is the
reference. Then each controller runs from each start limit, with a run of the reference before and
after it, and one of no proxy. Prints a Markdown table.

The rule of judgement: *settled* is throughput of the second half of a run over the mean of the
references beside it; *whole* is throughput from the first second over the same; *direct* is settled
over the run without a proxy in the same turn; *95 % after* is the second at whose end the mean of
three seconds first reaches 95 % of what the same run settles at. For a load that arrives by itself,
*added ms* is the mean latency minus that of the run without a proxy. The exit code is 0 whatever
they show.
"""

import dataclasses
import pathlib
import re
import statistics
import time

from compare import loads, script
from compare.idle import raise_file_limit

TPCB = """\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
    VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""
POINT = """\\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
"""
THINK = """\\set aid random(1, 100000 * :scale)
BEGIN;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
\\sleep {ms} ms
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
COMMIT;
"""
TABLES = """CREATE TABLE thrash (k int PRIMARY KEY, v int NOT NULL, filler text NOT NULL);
INSERT INTO thrash SELECT g, 0, repeat('x', 100) FROM generate_series(1, 30000) g;
CREATE TABLE hot (k int PRIMARY KEY, v int NOT NULL);
INSERT INTO hot SELECT g, 0 FROM generate_series(1, 3) g;
CREATE TABLE grown (k bigserial PRIMARY KEY, v int NOT NULL, w int NOT NULL);
CREATE INDEX grown_v ON grown (v);
CREATE INDEX grown_w ON grown (w);
VACUUM ANALYZE""".split(";\n")


@dataclasses.dataclass
class Workload:
    """What pgbench runs: scripts with weights, and by how many clients."""

    scripts: list
    clients: int
    options: list = dataclasses.field(default_factory=list)
    scale: int = 1
    # Seconds on and off, for a load that comes and goes.
    bursts: tuple = ()


RANGE = "\\set k random(1, 29970)\nSELECT sum(v) FROM thrash WHERE k BETWEEN :k AND :k + 30;\n"
RANGE_UPDATE = ("\\set k random(1, 29920)\n"
                "UPDATE thrash SET v = v + 1 WHERE k BETWEEN :k AND :k + 75;\n")
HOT = ("\\set k random(1, 3)\nBEGIN;\nSELECT v FROM hot WHERE k = :k FOR UPDATE;\n"
       "UPDATE hot SET v = v + 1 WHERE k = :k;\nCOMMIT;\n")
INSERT = ("\\set v random(1, 1000000)\nINSERT INTO grown (v, w) VALUES (:v, 1000000 - :v);\n")
SORT = ("SET work_mem = '64kB';\n"
        "SELECT max(n) FROM (SELECT row_number() OVER (ORDER BY md5(g::text)) n "
        "FROM generate_series(1, 5000) g) sorted;\n")
REPORT = "SELECT count(*) FROM generate_series(1, 8000000);\n"
WORKLOADS = {
    "tpcb-1": Workload([(TPCB, 1)], 256),
    "tpcb-50": Workload([(TPCB, 1)], 256, scale=50),
    "range-read": Workload([(RANGE, 1)], 256),
    "range-update": Workload([(RANGE_UPDATE, 1)], 256),
    "hot-rows": Workload([(HOT, 1)], 100),
    "insert": Workload([(INSERT, 1)], 200),
    "sort": Workload([(SORT, 1)], 100),
    "reports": Workload([(POINT, 5000), (REPORT, 1)], 100),
    "idle-20ms": Workload([(THINK.format(ms=20), 1)], 200),
    "idle-1s": Workload([(THINK.format(ms=1000), 1)], 300),
    "open-load": Workload([(TPCB, 1)], 64, options=["--rate", "300"]),
    "open-point": Workload([(POINT, 1)], 16, options=["--rate", "500"]),
    "bursts": Workload([(TPCB, 1)], 128, bursts=(20, 20)),
    "one-client": Workload([(TPCB, 1)], 1),
    "point-read": Workload([(POINT, 1)], 64),
}


def pgbench(port, workload, seconds, directory):
    """Throughput of each second, and the mean latency in milliseconds."""
    files = []
    for number, (text, weight) in enumerate(workload.scripts):
        path = pathlib.Path(directory, f"script-{number}.sql")
        path.write_text(text)
        files += ["-f", f"{path}@{weight}"]
    command = loads.pgbench_command(
        port, "-T", max(1, round(seconds)), "-P", 1, "-c", workload.clients, "-j", 1,
        "-D", f"scale={workload.scale}", *workload.options, *files)
    text, messages = loads.finished(command, seconds)
    latency = re.search(r"^latency average = ([\d.]+) ms", text, re.MULTILINE)
    rows = [tps for _, tps in loads.pgbench_progress(messages)]
    return rows, float(latency[1]) if latency else float("nan")


def measure(port, workload, seconds, directory):
    """One run, with its pauses left out of what is counted."""
    if not workload.bursts:
        return pgbench(port, workload, seconds, directory)
    on, off = workload.bursts
    rows, latencies = [], []
    for burst in range(max(1, round(seconds / on))):
        if burst:
            time.sleep(off)
        tps, latency = pgbench(port, workload, on, directory)
        rows += tps
        latencies.append(latency)
    return rows, statistics.fmean(latencies)


def level(server):
    """Give the next run the tables that all others had."""
    server.level()
    server.sql("VACUUM thrash", "VACUUM hot", "TRUNCATE grown", "CHECKPOINT")


def run(server, options, workload, seconds, control, start=None):
    """A run on levelled tables, behind a proxy of its own with `control`, or without a proxy."""
    level(server)
    return behind(server, options, workload, seconds, control, start)


def behind(server, options, workload, seconds, control, start=None):
    """Throughput of each second, mean latency, and the decisions of the proxy's journal."""
    arguments = [] if start is None else ["--start-mpl", start]
    with script.connection(server, options, control, *arguments) as (endpoint, directory):
        rows, latency = measure(endpoint.port, workload, seconds, directory)
        return rows, latency, endpoint.intervals()


def mean(values):
    return statistics.fmean(values) if values else float("nan")


def settled(rows):
    """Mean throughput of the second half."""
    return mean(rows[len(rows) // 2:])


def soon(rows):
    """The second at whose end throughput first reaches 95 % of what it settles at."""
    wanted = 0.95 * settled(rows)
    for end in range(1, len(rows) + 1):
        if mean(rows[max(0, end - 3):end]) >= wanted:
            return end
    return len(rows)


def sweep(server, options, name, workload):
    """The best fixed limit, and a line about all of them."""
    limits = [1 << power for power in range(10) if 1 << power <= max(1, workload.clients)]
    found = {}

    def once(limit, seconds):
        rows, *_ = run(server, options, workload, seconds, limit and f"fixed:{limit}")
        found.setdefault(limit, []).append(mean(rows[2:]))
        script.say(f"{name}: {limit or 'direct'}: {found[limit][-1]:.0f} tps")

    seconds = options.sweep
    for limit in (*limits, None):
        once(limit, seconds)
    for limit in sorted(limits, key=lambda limit: -found[limit][0])[:3]:
        once(limit, seconds)
    best = max(limits, key=lambda limit: mean(found[limit]))
    cells = [f"{limit or 'direct'}: {mean(tps):.0f}" for limit, tps in found.items()]
    return best, f"- {name}, {workload.clients} clients: " + ", ".join(cells)


def judge(server, options, name, workload):
    """Rows of the table for one workload."""
    best, line = sweep(server, options, name, workload)
    lines = []

    def reference():
        rows, *_ = run(server, options, workload, options.seconds / 2, f"fixed:{best}")
        return settled(rows)

    before = reference()
    for start in options.starts:
        direct, direct_ms, _ = run(server, options, workload, options.seconds / 2, None)
        for control in options.controllers:
            rows, ms, decisions = run(server, options, workload, options.seconds, control, start)
            limits = [row["limit"] for row in decisions]
            after = reference()
            base = (before + after) / 2
            path = " ".join(f"{limit}" for limit, last in zip(limits, [None, *limits])
                            if limit != last)
            shown = path if len(path) < 60 else f"{path[:40]} .. {path[-15:]}"
            added = f"{ms - direct_ms:+.2f}" if "--rate" in workload.options else ""
            lines.append(script.row(
                name, control, start, best, f"{settled(rows) / base:.3f}",
                f"{mean(rows) / base:.3f}", f"{settled(rows) / settled(direct):.3f}", soon(rows),
                added, shown))
            script.say(lines[-1])
            before = after
    return line, lines


def by_scale(names):
    """A server for each scale that the workloads have, with the workloads of that scale."""
    for scale in sorted({WORKLOADS[name].scale for name in names}):
        with script.private_server(scale, *TABLES) as server:
            yield server, [name for name in names if WORKLOADS[name].scale == scale]


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--controllers", nargs="+", default=["paired-comparison"])
    parser.add_argument("--starts", nargs="+", type=int, default=[1, 8, 64, 500])
    parser.add_argument("--seconds", type=int, default=30, help="of a controller's run")
    parser.add_argument("--sweep", type=int, default=8, help="of a fixed limit's, 2 not counted")
    options = script.parsed(parser)
    raise_file_limit(4_000)
    swept, table = [], []
    for server, names in by_scale(options.workloads):
        for name in names:
            line, lines = judge(server, options, name, WORKLOADS[name])
            swept.append(line)
            table += lines
    print(f"{script.where(options)}; {options.seconds} s for each run of a controller.\n")
    print("Throughput at fixed limits, tps:\n")
    columns = ("workload", "controller", "start", "best", "settled", "whole", "direct",
               "95 % after", "added ms", "limits")
    script.print_table("\n".join(swept), "llrrrrrrrl", columns, table)


if __name__ == "__main__":
    script.run(main)
