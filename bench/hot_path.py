#!/usr/bin/env python3
"""What a transaction costs in the proxy: system calls, allocations, copies, and processor time.

pgbench's point select on a private PostgreSQL through Tidegate and PgBouncer, each with 20
connections to the server. Counts are differences of two runs that differ in their number of
transactions alone, so that start and connecting are left out: system calls by strace, calls of the
allocator and of memcpy by a library that is loaded before the C library (bench/count_calls.c).
Where processor time goes is sampled by perf, in a run of its own. Needs cc, strace and perf;
prints Markdown. The figures are no test: the exit code is 0 whatever they show.
"""

import collections
import contextlib
import dataclasses
import os
import re
import signal
import struct
import subprocess
import time

from compare import idle, script, servers
from compare.loads import pgbench_command
from compare.processes import run_quietly, started
from pooling import Certificate, endpoint

SUBJECTS = ("PgBouncer", "Tidegate")
# Transactions of a client in the shorter and in the longer run.
SHORT, LONG = 100, 600
PROFILE_S = 8
LIMIT_S = 300
# Functions with less than this share of the samples are left out.
SHARE_LEAST = 0.4


@dataclasses.dataclass(frozen=True)
class Load:
    """Point selects: the protocol, the number of clients, and whether they come by TLS."""

    protocol: str
    clients: int
    tls: bool

    def __str__(self):
        tls = ", TLS" if self.tls else ""
        return f"{self.protocol}, {self.clients} client{'s' * (self.clients > 1)}{tls}"


LOADS = [Load("simple", 1, False), Load("simple", 64, False), Load("prepared", 64, False),
         Load("simple", 64, True)]


def run(found, load, *how_long):
    """One run of pgbench."""
    command = pgbench_command(found.port, "-b", "select-only", "-M", load.protocol,
                              "-c", load.clients, "-j", 1, *how_long)
    environment = {**os.environ, "PGSSLMODE": "require" if load.tls else "disable"}
    run_quietly(*command, limit_s=LIMIT_S, env=environment)


def differ(load, count):
    """What a transaction adds: `count(transactions)` gives numbers by name for one run."""
    short, long = count(SHORT), count(LONG)
    transactions = (LONG - SHORT) * load.clients
    return {name: (long[name] - short.get(name, 0)) / transactions for name in long}


def system_calls(found, load):
    """System calls a transaction, by name."""

    def count(transactions):
        with script.directory() as place:
            output = place / "strace"
            command = ["strace", "-f", "-q", "-c", "-U", "name,calls", "-o", output,
                       "-p", found.process.pid]
            with started(command, stop_with=(signal.SIGINT,), stderr=subprocess.DEVNULL):
                time.sleep(0.5)
                run(found, load, "-t", transactions)
            lines = [line.split() for line in output.read_text().splitlines()]
            return collections.Counter({words[0]: int(words[1]) for words in lines
                                        if len(words) == 2 and words[1].isdigit()
                                        and words[0] != "total"})

    return differ(load, count)


def library_calls(found, load, path):
    """Allocations, releases and copies a transaction, and their bytes."""

    def count(transactions):
        before = struct.unpack("8q", path.read_bytes())
        run(found, load, "-t", transactions)
        after = struct.unpack("8q", path.read_bytes())
        return {index: now - then for index, (then, now) in enumerate(zip(before, after))}

    return differ(load, count)


@contextlib.contextmanager
def counted(place, name, server, certificate, load, options):
    """A subject whose calls are counted, and the file of its counters."""
    library, path = place / "count_calls.so", place / "counters"
    if not library.exists():
        source = script.ROOT / "bench" / "count_calls.c"
        run_quietly("cc", "-O2", "-fPIC", "-shared", "-fno-builtin", "-o", library, source,
                    limit_s=60)
    path.write_bytes(bytes(64))
    path.chmod(0o666)
    os.environ.update(LD_PRELOAD=str(library), COUNT_CALLS=str(path))
    try:
        subject = endpoint(name, server, certificate, load.tls, options)
        found = subject.__enter__()
    finally:
        del os.environ["LD_PRELOAD"], os.environ["COUNT_CALLS"]
    with contextlib.ExitStack() as stack:
        stack.push(subject)
        yield found, path


def profile(found, load, place):
    """Shares of the samples: by where the code is, and by function outside the kernel."""
    data = place / "perf.data"
    command = ["perf", "record", "-q", "-F", 2999, "-o", data, "-p", found.process.pid]
    with started(command, stop_with=(signal.SIGINT,), stderr=subprocess.DEVNULL):
        run(found, load, "-T", PROFILE_S)

    def report(*more):
        text = run_quietly("perf", "report", "--stdio", "-i", data, *more, limit_s=120,
                           env={**os.environ, "LC_ALL": "C"})
        rows = re.findall(r"^\s+([\d.]+)%\s+(\S.*?)\s*$", text, re.MULTILINE)
        return [(float(share), name) for share, name in rows]

    objects = report("--sort", "dso")
    outside = ",".join(name for _, name in objects if "kernel" not in name)
    functions = report("--sort", "symbol", "--dsos", outside)
    return objects, [(share, name) for share, name in functions if share >= SHARE_LEAST]


def measure(load, server, certificate, options, place):
    """The rows of both subjects, and the profile of Tidegate."""
    rows, profiled = [], None
    for name in SUBJECTS:
        with endpoint(name, server, certificate, load.tls, options) as found:
            run(found, load, "-t", SHORT)
            calls = system_calls(found, load)
            if name == "Tidegate":
                profiled = profile(found, load, place)
        with counted(place, name, server, certificate, load, options) as (found, path):
            run(found, load, "-t", SHORT)
            library = library_calls(found, load, path)
        named = {call: count for call, count in calls.items() if count >= 0.005}
        text = ", ".join(f"{call} {count:.2f}" for call, count in
                         sorted(named.items(), key=lambda item: -item[1]))
        made = library[0] + library[2]
        rows.append(script.row(load, name, f"{sum(calls.values()):.2f}", text, f"{made:.2f}",
                               f"{library[1] + library[3]:.0f}", f"{library[6]:.2f}",
                               f"{library[7]:.0f}"))
        script.say(rows[-1])
    return rows, profiled


def show_profile(load, profiled):
    """Where processor time goes, as text."""
    objects, functions = profiled
    print(f"\n{load}: " + ", ".join(f"{name} {share:.1f} %" for share, name in objects
                                    if share >= SHARE_LEAST) + ". Outside the kernel:\n")
    print(script.head("lr", "function", "share of samples, %"))
    for share, name in functions:
        function = name.removeprefix("[.] ").split("  ")[0]
        print(script.row(f"`{function}`", f"{share:.2f}"))


def main():
    parser = script.parser(__doc__)
    options = script.parsed(parser)
    idle.raise_file_limit(script.FILES)
    rows, profiles = [], []
    with script.directory() as place:
        certificate = Certificate(place)
        with servers.postgres(place, 10) as server:
            for load in LOADS:
                found, profiled = measure(load, server, certificate, options, place)
                rows += found
                profiles.append((load, profiled))
    about = f"{script.where(options)}, {script.version('pgbouncer')}; a transaction, on the mean."
    columns = ("load", "pooler", "system calls", "which", "allocations", "bytes", "copies",
               "bytes copied")
    script.print_table(about, "llrlrrrr", columns, rows)
    print("\n## Processor time of Tidegate")
    for load, profiled in profiles:
        show_profile(load, profiled)


if __name__ == "__main__":
    script.run(main)
