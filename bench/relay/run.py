#!/usr/bin/env python3
"""Compare I/O runtimes for a relay by the CPU time each takes per round trip.

Builds the package, then measures every variant at every number of clients, taking turns
(A B C ..., A B C ...) so that a neighbour's load falls on all alike. Prints Markdown tables of
medians [min-max] and of ratios to mio, each ratio taken within its own repetition.

The CPU time is the process's own clock in nanoseconds, user and system, all threads; it is read
when the clients start and when they stop. Loopback only. Everything started here is stopped here,
by its process id, also on Ctrl-C; every step has a time limit.
"""

import argparse
import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from compare import script
from compare.processes import Failed, cpu_s, started, time_limit

# Name in the tables -> (kind of upstream, arguments of the relay). The first is the reference.
VARIANTS = {
    "mio": ("tcp", ["--runtime", "mio"]),
    "tokio current-thread": ("tcp", ["--runtime", "tokio-current-thread"]),
    "tokio multi-thread": ("tcp", ["--runtime", "tokio-multi-thread"]),
    "io_uring": ("tcp", ["--runtime", "io-uring"]),
    "mio, Unix upstream": ("unix", ["--runtime", "mio"]),
    "mio, read first": ("tcp", ["--runtime", "mio", "--read-first"]),
    "mio, one event per poll": ("tcp", ["--runtime", "mio", "--events-per-poll", "1"]),
}
REFERENCE = next(iter(VARIANTS))
SYSCALLS = [
    "read", "write", "recvfrom", "sendto", "epoll_wait", "epoll_pwait", "futex", "io_uring_enter",
]
STEP_LIMIT_S = 30
BUILD_LIMIT_S = 600


def build():
    """Return the path of the release binary."""
    command = ["cargo", "build", "--release", "--quiet", "--message-format=json", "-j1"]
    built = subprocess.run(command, cwd=HERE, check=True, stdout=subprocess.PIPE, text=True,
                           timeout=BUILD_LIMIT_S)
    messages = map(json.loads, built.stdout.splitlines())
    return next(m["executable"] for m in messages if m.get("executable"))


@contextlib.contextmanager
def ready(*command, cpu=None):
    """Run a command, give (process, its first line of output), stop it at the end.

    The process is bound to the processor `cpu`, when one is given.
    """
    bind = None if cpu is None else lambda: os.sched_setaffinity(0, {cpu})
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                 preexec_fn=bind) as process:
        line = process.stdout.readline().strip()
        if not line:
            raise Failed(f"ended before it was ready: {' '.join(map(str, command))}")
        yield process, line.removeprefix("listening ")


@contextlib.contextmanager
def counting_syscalls(process, counts):
    """Fill `counts` with the process's system calls, by name and in total, counted by perf."""
    events = ["raw_syscalls:sys_enter"] + [f"syscalls:sys_enter_{name}" for name in SYSCALLS]
    command = ["perf", "stat", "-x,", "-e", ",".join(events), "-p", process.pid]
    with started(command, stderr=subprocess.PIPE) as perf:
        time.sleep(0.3)  # perf attaches
        yield
        perf.send_signal(signal.SIGINT)
        for line in perf.communicate()[1].splitlines():
            count, _, event = line.split(",")[:3]
            if count.isdigit():
                counts[event.partition("sys_enter")[2].removeprefix("_") or "all"] = int(count)


def measure(binary, echo, variant, clients, options, count=False):
    """One run: a fresh relay and client. CPU in microseconds per round trip."""
    seconds = 1.0 if count else options.seconds
    load_cpu, relay_cpu = (0, 1) if options.pin else (None, None)
    upstream_kind, arguments = VARIANTS[variant]
    server, upstream = echo[upstream_kind]
    relay_command = [binary, "relay", "--listen", "127.0.0.1:0", "--upstream", upstream, *arguments]
    with time_limit(seconds + STEP_LIMIT_S), \
            ready(*relay_command, cpu=relay_cpu) as (relay, address):
        client_command = [binary, "client", "--connect", address, "--connections", clients,
                          "--seconds", seconds]
        with ready(*client_command, cpu=load_cpu) as (client, _):
            time.sleep(0.2)  # the relay accepts the last of the connections
            processes = {"relay": relay, "client": client, "echo": server}
            counts = {}
            counting = counting_syscalls(relay, counts) if count else contextlib.nullcontext()
            with counting:
                before = {name: cpu_s(process) for name, process in processes.items()}
                client.stdin.write("go\n")
                client.stdin.flush()
                line = client.stdout.readline()
                after = {name: cpu_s(process) for name, process in processes.items()}
            if not line:
                raise Failed(f"{variant}, {clients} clients: the client failed")
            result = json.loads(line)
    for name in processes:
        result[f"{name}_us"] = (after[name] - before[name]) * 1e6 / result["trips"]
    result["syscalls"] = {name: value / result["trips"] for name, value in counts.items()}
    return {"variant": variant, "clients": clients, **result}


def spread(values, form="{:.2f}"):
    """Median [min-max]."""
    low, middle, high = (form.format(f(values)) for f in (min, statistics.median, max))
    return f"{middle} [{low}-{high}]"


def quartiles(values):
    """Lower and upper quartile; a single value has none."""
    if len(values) < 2:
        return "-"
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{low:.2f}-{high:.2f}"


def print_table(columns, rows):
    """Markdown; the first two columns name the row, the others are figures."""
    print("\n| " + " | ".join(columns) + " |\n|--:|---" + "|--:" * (len(columns) - 2) + "|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")


def by_yardstick(run):
    """The relay's CPU time as a multiple of client's and echo server's for the same round trips.

    Their work is the same under every variant, so this cancels how fast the processor was just
    then: a busy neighbour on the other hardware thread makes all three slower alike.
    """
    return run["relay_us"] / (run["client_us"] + run["echo_us"])


def summary(rows, reference):
    """The figures of one variant, beside the reference's of the same repetitions."""
    pairs = list(zip(rows, reference))
    ratios = [own["relay_us"] / base["relay_us"] for own, base in pairs]
    normalised = [by_yardstick(own) / by_yardstick(base) for own, base in pairs]
    p50, p99 = (statistics.median(row[k] for row in rows) / 1000 for k in ("p50_us", "p99_us"))
    others = statistics.median(row["client_us"] + row["echo_us"] for row in rows)
    return [
        spread([row["relay_us"] for row in rows]), spread(ratios), quartiles(ratios),
        spread(normalised), spread([row["trips_per_s"] for row in rows], "{:.0f}"),
        f"{p50:.2f} / {p99:.2f}", f"{others:.1f}",
    ]


def report(runs, counted):
    """One row per number of clients and variant."""
    groups = {}
    for run in runs:
        groups.setdefault((run["clients"], run["variant"]), []).append(run)
    print_table(
        ["clients", "variant", "relay CPU, µs a trip", "ratio to mio", "its quartiles",
         "ratio by yardstick", "trips/s", "p50 / p99, ms", "client + echo CPU, µs a trip"],
        [[clients, variant, *summary(rows, groups[clients, REFERENCE])]
         for (clients, variant), rows in groups.items()],
    )
    rows = []
    for run in counted:
        calls = dict(run["syscalls"])
        total = calls.pop("all", 0)
        named = ", ".join(f"{n} {c:.2f}" for n, c in calls.items() if c >= 0.005)
        rows.append([run["clients"], run["variant"], f"{total:.2f}", named])
    if rows:
        print_table(["clients", "variant", "system calls a trip", "of these"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 512, 2000])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--pin", action="store_true",
                        help="relay on processor 1, client and echo server on processor 0")
    parser.add_argument("--json", type=pathlib.Path, help="also write every run to this file")
    options = parser.parse_args()
    if REFERENCE not in options.variants:
        parser.error(f"--variants must include {REFERENCE}: the ratios are to it")

    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    binary = build()
    runs, counted = [], []
    load_cpu = 0 if options.pin else None
    signal.alarm(STEP_LIMIT_S)
    with tempfile.TemporaryDirectory() as directory, \
            ready(binary, "echo-server", "--listen", "127.0.0.1:0", cpu=load_cpu) as tcp, \
            ready(binary, "echo-server", "--listen", f"{directory}/echo", cpu=load_cpu) as unix:
        echo = {"tcp": tcp, "unix": unix}
        for repetition in range(options.repetitions):
            for clients in options.clients:
                for variant in options.variants:
                    run = measure(binary, echo, variant, clients, options)
                    runs.append({"repetition": repetition, **run})
                    print(f"{repetition} {clients:5} {variant:24} {run['relay_us']:6.2f} µs "
                          f"{run['trips_per_s']:8.0f}/s load {os.getloadavg()[0]:.1f}",
                          file=sys.stderr)
        if shutil.which("perf"):
            counted = [measure(binary, echo, variant, clients, options, count=True)
                       for clients in options.clients for variant in options.variants]
        else:
            print("perf is not installed: system calls are not counted", file=sys.stderr)
    if options.json:
        options.json.write_text(json.dumps({"runs": runs, "counted": counted}, indent=1))
    report(runs, counted)


if __name__ == "__main__":
    script.run(main)
