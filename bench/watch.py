#!/usr/bin/env python3
"""Measure what it costs to watch a server, and how soon the bottleneck is told.

One private PostgreSQL and a proxy with `--watch`. For each load: the processor time of the watching
session on the server and of the watching thread in the proxy, as the kernel counts it, as a share
of one processor; what the proxy says that the watch costs; and the time from the moment when all
clients are connected until `/metrics` names the load's bottleneck. Prints a Markdown table. The
table is no test: the exit code is 0 whatever it shows.
"""

import contextlib
import os
import pathlib
import re
import subprocess
import time
import urllib.request

from compare import script, servers
from compare.loads import pgbench_command
from compare.processes import Failed, started, wait_until

SCALE = 1
COMPUTE = """\
DO $$ DECLARE x int := 0; BEGIN FOR i IN 1..300000 LOOP x := x + i % 7; END LOOP; END $$;
"""
ONE_ROW = """\
BEGIN;
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
\\sleep 1 ms
COMMIT;
"""
IDLE = """\
BEGIN;
SELECT 1;
\\sleep 100000 ms
COMMIT;
"""
# For each load: pgbench's own script or ours, and the bottleneck that has to be named, if one is.
LOADS = {
    "none": (None, "nothing"),
    "point reads": ("-S", None),
    "TPC-B": ("-b tpcb-like", None),
    "compute": (COMPUTE, "processors"),
    "one row": (ONE_ROW, "locks"),
    "idle in transaction": (IDLE, "clients"),
}
TOLD_LIMIT_S = 20
PAUSE_S = 0.02


class Metrics:
    """What the proxy says of itself."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/metrics"

    def found(self, pattern):
        """The group of a pattern in the page; None where nothing matches."""
        with urllib.request.urlopen(self.url, timeout=5) as answer:
            found = re.search(pattern, answer.read().decode(), re.MULTILINE)
        return found[1] if found else None

    def get(self, name):
        """The value of the first sample of this name; None without one."""
        value = self.found(rf"^{name}(?:\{{[^\n]*\}})? (\S+)$")
        return None if value is None else float(value)

    def bottleneck(self):
        return self.found(r'^tidegate_server_bottleneck\{.*bottleneck="(\w+)"\} 1$')


def cpu_s(path):
    """Seconds that a task was on a processor."""
    return int(pathlib.Path(path, "schedstat").read_text().split()[0]) / 1e9


def watching_thread(process):
    """The proxy's thread that watches."""
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "tidegate-watch":
            return task
    raise Failed("the proxy has no thread that watches")


def watching_session(server):
    """The session's process on the server."""
    sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'tidegate watch'"
    return pathlib.Path("/proc", server.sql(sql))


@contextlib.contextmanager
def proxy(options, server, directory):
    admin = servers.free_port()
    arguments = ["--admin-listen", f"127.0.0.1:{admin}", "--control", f"fixed:{options.limit}",
                 "--watch", "--watch-user", "postgres"]
    with servers.tidegate(server, directory, options.tidegate, *arguments,
                          has_journal=False) as endpoint:
        log, metrics = directory / "log", Metrics(admin)
        wait_until(lambda: servers.accepts(admin), endpoint.process, log)
        wait_until(lambda: metrics.get("tidegate_watch_up"), endpoint.process, log)
        yield endpoint.port, metrics, endpoint.process


@contextlib.contextmanager
def load(text, port, options, directory):
    """Clients, if the load has any; they are killed at the end."""
    if text is None:
        yield
        return
    arguments = text.split()
    if not text.startswith("-"):
        (directory / "script.sql").write_text(text)
        arguments = ["-f", directory / "script.sql"]
    command = pgbench_command(port, "-c", options.clients, "-j", 2, "-M", "prepared", "-T", 3600,
                              *arguments)
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield


def told_after(metrics, expected, clients):
    """Seconds from when all are connected until the bottleneck is named; None if it never is."""
    deadline = time.monotonic() + TOLD_LIMIT_S
    while metrics.get("tidegate_clients") < clients and time.monotonic() < deadline:
        time.sleep(PAUSE_S)
    begin = time.monotonic()
    while time.monotonic() < deadline:
        if metrics.bottleneck() == expected:
            return time.monotonic() - begin
        time.sleep(PAUSE_S)
    return None


def measure(name, server, options):
    """A row of the table."""
    text, expected = LOADS[name]
    with script.directory() as directory, \
            proxy(options, server, directory) as (port, metrics, process), \
            load(text, port, options, directory):
        told = None
        if expected:
            told = told_after(metrics, expected, options.clients if text else 0)
        time.sleep(options.warmup)
        tasks = [watching_session(server), watching_thread(process)]
        samples = metrics.get("tidegate_watch_samples_total")
        before, begin = [cpu_s(task) for task in tasks], time.monotonic()
        time.sleep(options.seconds)
        elapsed = time.monotonic() - begin
        session, thread = [(cpu_s(task) - used) / elapsed for task, used in zip(tasks, before)]
        samples = (metrics.get("tidegate_watch_samples_total") - samples) / elapsed
        said, bottleneck = metrics.get("tidegate_watch_cost"), metrics.bottleneck()
    seconds = "" if not expected else "never" if told is None else f"{told:.2f}"
    shares = [f"{share:.3%}".replace("%", " %")
              for share in (session, thread, session + thread, said)]
    return script.row(name, f"{samples:.1f}", *shares, bottleneck, seconds)


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--limit", type=int, default=64, help="of the proxy")
    parser.add_argument("--seconds", type=int, default=20, help="measured, of each load")
    parser.add_argument("--warmup", type=int, default=5, help="seconds before")
    options = script.parsed(parser)
    rows = []
    with script.private_server(SCALE) as server:
        for name in options.loads:
            rows.append(measure(name, server, options))
            script.say(f"{name}: measured")
    average = " ".join(f"{value:.1f}" for value in os.getloadavg())
    about = (f"{script.where(options)}, {options.clients} clients, limit {options.limit}, "
             f"{options.seconds} s each; load average at the end {average}.")
    columns = ("load", "samples/s", "session", "thread", "together", "by its own account",
               "bottleneck", "told after, s")
    script.print_table(about, "lrrrrrlr", columns, rows)


if __name__ == "__main__":
    script.run(main)
