#!/usr/bin/env python3
"""An hour of mixed load with faults through the proxy: are memory and descriptors flat?

Loads of several kinds go on all the time on a private PostgreSQL: point selects with prepared
statements, TPC-B with the simple protocol, clients that connect anew for each transaction, and
clients by TLS. Every few seconds something goes wrong, drawn from the seed: a load is killed or
stopped for a while, sessions of the server are cancelled or terminated, clients connect and say
nothing, the server restarts. At the end of each round (five minutes) the loads stop for a moment,
and what the proxy still has is noted: resident memory, descriptors, permits, clients, connections.
At the end the sums of TPC-B have to agree. Prints Markdown.

The rule, stated before the run: from the second round on, memory grows by less than 8 MiB over all
rounds; within a minute of the end of any round, no permit is out, no client waits, and the
descriptors that are no connections to the server are back to fewer than 10 above those before the
load; the sums agree. How many connections to the server there are depends on what the last seconds
of a round did; the proxy counts them, and the server bounds them. The exit code is 1 if the rule
is not kept.
"""

import contextlib
import dataclasses
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from compare import idle, script, servers
from compare.loads import pgbench_command
from compare.processes import Failed, started, stop, unprivileged, wait_until
from pooling import Certificate

GROWTH_MAX_KIB, FILES_MAX = 8 * 1024, 10
FAULT_EVERY_S = 3
QUIET_LIMIT_S = 60
CONNECTIONS = "tidegate_server_connections"
OUTSTANDING = ("tidegate_permits_out", "tidegate_waiting", "tidegate_clients")
SUMS = """SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(bbalance) FROM
pgbench_branches), (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT coalesce(sum(delta), 0) FROM
pgbench_history)"""


@dataclasses.dataclass(frozen=True)
class Load:
    """pgbench's script, number of clients, more options, and whether by TLS."""

    script: str
    clients: int
    more: tuple = ()
    tls: bool = False


LOADS = [
    Load("select-only", 64, ("-M", "prepared")),
    Load("select-only", 32, ("-M", "extended"), tls=True),
    Load("tpcb-like", 24, ("-M", "simple")),
    Load("tpcb-like", 8, ("-M", "prepared"), tls=True),
    Load("select-only", 4, ("-C",)),
    Load("select-only", 2, ("-C",), tls=True),
]


class Loads:
    """All loads, each of which is begun anew when it has ended."""

    def __init__(self, port, rate):
        self.port, self.rate, self.running, self.begun = port, rate, {}, 0

    def keep_going(self):
        """Begin what has ended, because of a fault or by itself."""
        for load in LOADS:
            process = self.running.get(load)
            if process is None or process.poll() is not None:
                command = pgbench_command(
                    self.port, "-b", load.script, "-c", load.clients, "-j", 1, "-T", 100_000,
                    "-R", self.rate, *load.more)
                environment = {**os.environ, "PGSSLMODE": "require" if load.tls else "disable"}
                self.running[load] = subprocess.Popen(
                    [str(word) for word in command], env=environment, stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
                self.begun += 1

    def end(self):
        """Kill all."""
        for process in self.running.values():
            process.send_signal(signal.SIGCONT)
            stop(process, signal.SIGKILL)
        self.running.clear()


class World:
    """What faults happen to."""

    def __init__(self, server, loads, stack):
        self.server, self.loads, self.stack = server, loads, stack
        self.silent, self.stopped = [], []

    def kill_load(self, draw):
        """Kill one load: its clients are gone wherever they were."""
        draw.choice(list(self.loads.running.values())).kill()

    def stop_load(self, draw):
        """One load's clients neither read nor write for a while."""
        process = draw.choice(list(self.loads.running.values()))
        process.send_signal(signal.SIGSTOP)
        self.stopped.append(process)

    def terminate_sessions(self, draw):
        """The server ends some sessions."""
        self.server.sql(f"SELECT pg_terminate_backend(pid) {servers.OTHERS} "
                        f"LIMIT {draw.randint(1, 10)}")

    def cancel_statements(self, draw):
        """The server cancels what some sessions do."""
        self.server.sql(f"SELECT pg_cancel_backend(pid) {servers.OTHERS} "
                        f"LIMIT {draw.randint(1, 10)}")

    def silent_clients(self, draw):
        """Clients connect, or begin a message, and say nothing more."""
        beginnings = [b"", idle.STARTUP[:6], idle.SSL_REQUEST, idle.STARTUP]
        for _ in range(draw.randint(1, 50)):
            client = socket.create_connection(("127.0.0.1", self.loads.port), 10)
            client.sendall(draw.choice(beginnings))
            self.silent.append(client)

    def unfinished_transactions(self, draw):
        """Clients begin a transaction and are gone, some of them without a word."""
        for _ in range(draw.randint(1, 10)):
            client = idle.idle_client(self.loads.port)
            client.sendall(idle.message(b"Q", b"BEGIN; UPDATE pgbench_branches SET filler = ''\0"))
            if draw.random() < 0.5:
                client.close()
            else:
                self.silent.append(client)

    def restart_server(self, draw):
        """The server ends all sessions and starts again."""
        process = self.server.process
        stop(process, draw.choice([signal.SIGINT, signal.SIGQUIT]))
        log = pathlib.Path(self.server.directory, "log")
        with log.open("a") as output:
            self.server.process = self.stack.enter_context(started(
                process.args, stop_with=(signal.SIGINT, signal.SIGQUIT),
                cwd=self.server.directory, stdout=output, stderr=output, **unprivileged()))

        def ready():
            with contextlib.suppress(RuntimeError):
                return self.server.sql("SELECT 'ready'")

        wait_until(ready, self.server.process, log, 120)

    def mend(self):
        """End what is still wrong."""
        for client in self.silent:
            client.close()
        for process in self.stopped:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        self.silent.clear()
        self.stopped.clear()


def numbers(admin):
    """The metrics without labels, and those of all labels together, by name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = {}
    for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? ([-\d.e+]+)$", text, re.MULTILINE):
        found[name] = found.get(name, 0.0) + float(value)
    return found


def files_of(process):
    """Open descriptors of a process."""
    return len(os.listdir(f"/proc/{process.pid}/fd"))


def one_round(world, draw, seconds, counts):
    """Loads and faults for some seconds."""
    end = time.monotonic() + seconds
    faults = [world.kill_load, world.stop_load, world.terminate_sessions, world.cancel_statements,
              world.silent_clients, world.unfinished_transactions]
    restart_at = time.monotonic() + seconds * draw.uniform(0.2, 0.8)
    while time.monotonic() < end:
        world.loads.keep_going()
        time.sleep(FAULT_EVERY_S)
        fault = draw.choice(faults)
        if time.monotonic() > restart_at:
            fault, restart_at = world.restart_server, float("inf")
        # A client of ours may be one of those that a fault of before has hit.
        with contextlib.suppress(OSError, Failed, RuntimeError):
            fault(draw)
        counts[fault.__name__] = counts.get(fault.__name__, 0) + 1
        if draw.random() < 0.3:
            world.mend()
    world.mend()
    world.loads.end()


def other_files(process, found):
    """Open descriptors of the proxy that are no connections to the server."""
    return files_of(process) - int(found.get(CONNECTIONS, 0))


def quiet(process, admin, files_before):
    """Wait until nobody has anything; return the metrics then, or at the end of patience.

    Clients that have not logged in are in no metric, but have descriptors.
    """
    deadline = time.monotonic() + QUIET_LIMIT_S
    while True:
        found = numbers(admin)
        is_quiet = (not any(found.get(name, 0) for name in OUTSTANDING)
                    and other_files(process, found) < files_before + FILES_MAX)
        if is_quiet or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def judge(rounds, sums, files_before):
    """What does not keep the rule, in words."""
    found = []
    for index, row in enumerate(rounds, 1):
        left = {name: row[name] for name in OUTSTANDING if row[name]}
        if left:
            found.append(f"round {index}: left behind {left}")
        if row["others"] >= files_before + FILES_MAX:
            found.append(f"round {index}: {row['others']} other descriptors")
    later = rounds[1:] or rounds
    if max(row["rss"] for row in later) - later[0]["rss"] >= GROWTH_MAX_KIB:
        found.append("memory grows")
    if len(set(sums.split("|"))) != 1:
        found.append(f"the sums of TPC-B differ: {sums}")
    return found


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--round-seconds", type=int, default=300)
    parser.add_argument("--rate", type=int, default=250, help="transactions a second of each load")
    parser.add_argument("--seed", type=int, default=1)
    options = script.parsed(parser)
    idle.raise_file_limit(script.FILES)
    draw, counts, rounds = random.Random(options.seed), {}, []
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(script.directory())
        certificate, admin = Certificate(place), servers.free_port()
        server = stack.enter_context(servers.postgres(place, 10))
        found = stack.enter_context(servers.proxy(
            place, options.tidegate, "--listen", "127.0.0.1:0", "--log-level", "error",
            "--admin-listen", f"127.0.0.1:{admin}", "--tls-certificate", certificate.path,
            "--tls-key", certificate.key,
            "--upstream", f"postgres://127.0.0.1:{server.port}?sslmode=disable"))
        world = World(server, Loads(found.port, options.rate), stack)
        stack.callback(world.loads.end)
        before, files_before = 0, other_files(found.process, numbers(admin))
        for index in range(1, options.rounds + 1):
            one_round(world, draw, options.round_seconds, counts)
            row = quiet(found.process, admin, files_before)
            done = row["tidegate_transactions_total"]
            others, connections = other_files(found.process, row), int(row[CONNECTIONS])
            row = {name: row.get(name, 0.0) for name in OUTSTANDING}
            row |= {"rss": idle.resident_kib(found.process), "others": others,
                    "connections": connections, "done": done - before}
            before = done
            rounds.append(row)
            script.say(f"round {index} of {options.rounds}: {row}")
        sums = server.sql(SUMS)
    about = (f"{script.where(options)}; seed {options.seed}, {options.rounds} rounds of "
             f"{options.round_seconds} s, {options.rate} transactions a second of each of "
             f"{len(LOADS)} loads. Faults: "
             + ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
             + f". Loads begun: {world.loads.begun}. Sums of TPC-B: {sums}.")
    columns = ("round", "transactions", "resident memory, KiB", "connections to the server",
               "other descriptors", "permits out", "waiting", "clients")
    rows = [script.row(index, f"{row['done']:,.0f}", f"{row['rss']:,}", row["connections"],
                       row["others"], *(f"{row[name]:.0f}" for name in OUTSTANDING))
            for index, row in enumerate(rounds, 1)]
    script.print_table(about, "rrrrrrrr", columns, rows)
    complaints = judge(rounds, sums, files_before)
    print(f"\n{'The rule is kept.' if not complaints else '; '.join(complaints)}")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    script.run(main)
