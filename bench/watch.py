#!/usr/bin/env python3
"""Measure what it costs to watch a server, and how soon the bottleneck is told.

One private PostgreSQL and a proxy with `--watch`. For each load: the processor time of the watching
session on the server and of the watching thread in the proxy, as the kernel counts it, as a share
of one processor; what the proxy says that the watch costs; and the time from the moment when all
clients are connected until `/metrics` names the load's bottleneck. Prints a Markdown table. The
table is no test: the exit code is 0 whatever it shows.
"""

import argparse
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

from compare import servers
from compare.machine import ROOT, commit, processor, version
from compare.processes import Failed, catch_signals, find_program, started, wait_until

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

    def get(self, name, label=""):
        """The value of the first sample of this name with this label; None without one."""
        with urllib.request.urlopen(self.url, timeout=5) as answer:
            page = answer.read().decode()
        found = re.search(rf"^{name}(?:\{{[^\n]*{label}[^\n]*\}})? (\S+)$", page, re.MULTILINE)
        return float(found[1]) if found else None

    def bottleneck(self):
        with urllib.request.urlopen(self.url, timeout=5) as answer:
            page = answer.read().decode()
        found = re.search(r'^tidegate_server_bottleneck\{.*bottleneck="(\w+)"\} 1$', page,
                          re.MULTILINE)
        return found[1] if found else None


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
    port, admin = servers.free_port(), servers.free_port()
    log = pathlib.Path(directory, "proxy.log")
    command = [options.tidegate, "proxy", "--listen", f"127.0.0.1:{port}",
               "--admin-listen", f"127.0.0.1:{admin}", "--control", f"fixed:{options.limit}",
               "--upstream", f"postgres://127.0.0.1:{server.port}",
               "--watch", "--watch-user", "postgres"]
    with log.open("w") as output, started(command, stdout=output, stderr=output) as process:
        wait_until(lambda: servers.accepts(port) and servers.accepts(admin), process, log)
        metrics = Metrics(admin)
        wait_until(lambda: metrics.get("tidegate_watch_up"), process, log)
        yield port, metrics, process


@contextlib.contextmanager
def load(script, port, options, directory):
    """Clients, if the load has any; they are killed at the end."""
    if script is None:
        yield
        return
    if script.startswith("-"):
        arguments = script.split()
    else:
        path = pathlib.Path(directory, "script.sql")
        path.write_text(script)
        arguments = ["-f", path]
    command = [find_program("pgbench"), "-n", "-h", "127.0.0.1", "-p", port, "-U", "postgres",
               "-c", options.clients, "-j", 2, "-M", "prepared", "-T", 3600, *arguments,
               "postgres"]
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


def measure(name, server, directory, options):
    """A row of the table."""
    script, expected = LOADS[name]
    with proxy(options, server, directory) as (port, metrics, process), \
            load(script, port, options, directory):
        told = None
        if expected:
            told = told_after(metrics, expected, options.clients if script else 0)
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
    return (f"| {name} | {samples:.1f} | {session:.3%} | {thread:.3%} | {session + thread:.3%} | "
            f"{said:.3%} | {bottleneck} | {seconds} |").replace("%", " %")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tidegate", type=pathlib.Path, default=ROOT / "target/release/tidegate")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--limit", type=int, default=64, help="of the proxy")
    parser.add_argument("--seconds", type=int, default=20, help="measured, of each load")
    parser.add_argument("--warmup", type=int, default=5, help="seconds before")
    return parser.parse_args()


def main():
    options = arguments()
    catch_signals()
    options.tidegate = options.tidegate.resolve()
    rows = []
    # The server's user has to reach its directory.
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory).chmod(0o755)
        with servers.postgres(directory, SCALE) as server:
            for name in options.loads:
                rows.append(measure(name, server, directory, options))
                print(f"{name}: measured", file=sys.stderr)
    average = " ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{version(options.tidegate)}{commit()}, {version('postgres')}, {processor()}, "
          f"{options.clients} clients, limit {options.limit}, {options.seconds} s each; load "
          f"average at the end {average}.\n")
    print("| load | samples/s | session | thread | together | by its own account | bottleneck | "
          "told after, s |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |")
    print("\n".join(rows))


if __name__ == "__main__":
    try:
        main()
    except Failed as error:
        sys.exit(f"watch: {error}")
