#!/usr/bin/env python3
"""Measure what it costs to keep the response time of a class, and whether it is kept.

One private PostgreSQL, pgbench as the clients: a few of the class `high`, and many others, with a
transaction that works and waits, so that throughput rises with the limit, and response time too.
First fixed limits, then each controller without a goal and with it, one after the other. Prints a
Markdown table of the second half of each run: the throughput of all, the 95th percentile of the
response time that the clients of the class saw and the share of them above the goal, and the mean
limit. The tables are no test: the exit code is 0 whatever they show.
"""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import time

from compare import script, servers
from compare.loads import pgbench_command
from compare.processes import Failed, started, unprivileged

SCALE = 10
SCRIPT = f"""\
\\set aid random(1, {100_000 * SCALE})
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
SELECT sum(i) FROM generate_series(1, 1000) i;
SELECT pg_sleep(0.005);
COMMIT;
"""
CONFIG = """\
listen = ["127.0.0.1:0"]
journal = "{journal}"
high_priority = {{ users = [], applications = ["urgent"] }}
[databases."*"]
upstream = "postgres://127.0.0.1:{upstream}"
control = "{control}"
{keep}
"""
FIXED = [2, 4, 8, 12, 16, 24, 32, 64]
CONTROLLERS = ["gaussian-process", "hill-climbing", "paired-comparison", "fixed:100"]


class Load:
    """pgbench in one class, with a line for each transaction."""

    def __init__(self, directory, name, clients):
        self.directory, self.name, self.clients = pathlib.Path(directory, name), name, clients
        self.directory.mkdir()
        self.directory.chmod(0o777)

    def start(self, port, seconds, file):
        command = pgbench_command(port, "-M", "prepared", "-c", self.clients, "-T", seconds,
                                  "-f", file, "-l")
        return started(command, cwd=self.directory, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, env={**os.environ, "PGAPPNAME": self.name},
                       **unprivileged())

    def latencies_s(self, since, until):
        """Those of the transactions that ended between two moments of the epoch."""
        latencies = []
        for path in self.directory.glob("pgbench_log.*"):
            for line in path.read_text().splitlines():
                _, _, latency_us, _, second, microsecond = line.split()[:6]
                if since <= int(second) + int(microsecond) / 1e6 < until:
                    latencies.append(int(latency_us) / 1e6)
        return latencies


def measure(server, control, keep, seconds, options):
    """One run; a row's numbers."""
    with script.directory() as place, contextlib.ExitStack() as stack:
        (place / "script.sql").write_text(SCRIPT)
        journal, config = place / "journal.jsonl", place / "tidegate.toml"
        config.write_text(CONFIG.format(journal=journal, upstream=server.port, control=control,
                                        keep=f'keep = "{keep}"' if keep else ""))
        proxy = servers.proxy(place, options.tidegate, "-c", config, "--log-level", "warn")
        endpoint = dataclasses.replace(stack.enter_context(proxy), journal=journal)
        loads = [Load(place, "urgent", options.high), Load(place, "other", options.normal)]
        begin = time.time()
        runs = [stack.enter_context(load.start(endpoint.port, int(seconds), place / "script.sql"))
                for load in loads]
        for run in runs:
            _, error = run.communicate(timeout=seconds + 60)
            if run.returncode:
                raise Failed(f"pgbench: {error.strip()[-300:]}")
        middle, end = begin + seconds / 2, begin + seconds
        high, normal = (load.latencies_s(middle, end) for load in loads)
        later = [row for row in endpoint.intervals()
                 if row["at"] - endpoint.since >= seconds / 2]
        limits = [row["limit"] for row in later]
        return {"tps": (len(high) + len(normal)) / (end - middle), "high": sorted(high),
                "limit": sum(limits) / max(1, len(limits)),
                "warned": "no limit keeps" in (place / "log").read_text(errors="replace")}


def row(name, keep, result, goal_s):
    high = result["high"]
    p95_ms = 1e3 * high[int(0.95 * len(high))] if high else float("nan")
    late = sum(latency > goal_s for latency in high) / max(1, len(high))
    said = ", said that no limit keeps it" if result["warned"] else ""
    return script.row(name, f"{keep or '–'}{said}", f"{result['tps']:,.0f}", f"{p95_ms:.1f}",
                      f"{100 * late:.1f} %", f"{result['limit']:.1f}")


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--goal-ms", type=float, default=30, help="p95 of the class high")
    parser.add_argument("--fixed", nargs="*", type=int, default=FIXED, help="limits")
    parser.add_argument("--controllers", nargs="+", default=CONTROLLERS)
    parser.add_argument("--seconds", type=float, default=120, help="of each controller's run")
    parser.add_argument("--fixed-seconds", type=float, default=20, help="of each fixed limit's")
    parser.add_argument("--high", type=int, default=4, help="clients of the class high")
    parser.add_argument("--normal", type=int, default=120, help="other clients")
    options = script.parsed(parser)
    goal_s, keep = options.goal_ms / 1e3, f"high:p95={options.goal_ms:g}ms"
    plan = [(f"fixed:{limit}", None, options.fixed_seconds) for limit in options.fixed]
    plan += [(name, one, options.seconds) for name in options.controllers for one in (None, keep)]
    rows = []
    with script.private_server(SCALE) as server:
        for control, one, seconds in plan:
            rows.append(row(control, one, measure(server, control, one, seconds, options), goal_s))
            script.say(rows[-1])
    about = (f"{script.where(options)}; {options.high} clients of the class high, "
             f"{options.normal} others; second half of {options.fixed_seconds:g} s for each fixed "
             f"limit, of {options.seconds:g} s for each controller.")
    columns = ("controller", "kept", "tps", "p95, ms", f"above {options.goal_ms:g} ms",
               "mean limit")
    script.print_table(about, "llrrrr", columns, rows)


if __name__ == "__main__":
    script.run(main)
