#!/usr/bin/env python3
"""Hand a proxy under load over to a new process, 50 times: errors, and the longest pauses.

200 clients of pgbench run through a proxy on a private PostgreSQL, once undisturbed and once while
SIGUSR2 lets a new process take over again and again, each as soon as the process before has ended.
pgbench's log has the end of every transaction, from which the pauses come: the longest time in
which no client completed a transaction (the proxy as a whole), and the longest time in which one
client completed none (that of the client that had to wait longest). Prints Markdown.

The rule, stated before the run: no client sees an error, and no pause of the proxy as a whole is
longer than 50 ms; where the undisturbed run has one that is longer, because the machine does other
things, the longest with hand-overs is at most 50 ms longer than that. A client's own pause is shown
beside it. The exit code is 1 if the rule is not kept.
"""

import contextlib
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

from compare import script, servers
from compare.loads import pgbench_command
from compare.processes import Failed, wait_until

PAUSE_MAX_MS = 50
SCALE = 10
LOADS = [("select-only", "simple"), ("select-only", "prepared"),
         ("tpcb-like", "simple"), ("tpcb-like", "prepared")]
READY = re.compile(r"the new process accepts clients.*process=(\d+)")
TAKEN = "has taken over from the process before"


class Chain:
    """The processes that take over from one another; the first is a child, the others are not."""

    def __init__(self, endpoint, log):
        self.current, self.log, self.took_ms = endpoint.process.pid, log, []
        self.first = endpoint.process

    def text(self):
        """The log of all of them."""
        return self.log.read_text(errors="replace")

    def is_alive(self, pid):
        """Whether a process is there; the first one is waited for, or it would stay a zombie."""
        if pid == self.first.pid:
            return self.first.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False

    def hand_over(self):
        """Let a new process take over, and wait until the old one has ended."""
        old, before, began = self.current, self.text().count(TAKEN), time.monotonic()
        os.kill(old, signal.SIGUSR2)
        deadline = began + 60
        while self.text().count(TAKEN) == before or self.is_alive(old):
            if time.monotonic() > deadline:
                raise Failed(f"no hand-over: {self.text()[-1000:]}")
            time.sleep(0.01)
        self.took_ms.append((time.monotonic() - began) * 1e3)
        self.current = int(READY.findall(self.text())[-1])

    def end(self):
        """End the last one, by its process id."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.current, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while self.is_alive(self.current):
            if time.monotonic() > deadline:
                os.kill(self.current, signal.SIGKILL)
            time.sleep(0.02)


def completions(directory, cut_s):
    """(time, client) of each transaction's end, in order, without the beginning and the end."""
    rows = []
    for path in pathlib.Path(directory).glob("run.*"):
        # pgbench is killed at the end, and its last line may be half a line.
        for line in path.read_text().split("\n")[:-1]:
            client, _, _, _, seconds, micros = line.split()[:6]
            rows.append((int(seconds) + int(micros) / 1e6, int(client)))
    rows.sort()
    if not rows:
        raise Failed("pgbench completed no transaction")
    first, last = rows[0][0] + cut_s, rows[-1][0] - cut_s
    return [row for row in rows if first <= row[0] <= last]


def pauses(rows):
    """The longest pauses in milliseconds: of all clients together, and of each client."""
    of_all = max(after[0] - before[0] for before, after in zip(rows, rows[1:]))
    last, of_client = {}, {}
    for at, client in rows:
        if client in last:
            of_client[client] = max(of_client.get(client, 0), at - last[client])
        last[client] = at
    longest = sorted(of_client.values())
    return of_all * 1e3, statistics.median(longest) * 1e3, longest[-1] * 1e3


def measure(server, options, load, hand_overs):
    """One run; its errors, throughput and pauses."""
    kind, protocol = load
    with script.directory() as own, contextlib.ExitStack() as stack:
        proxy = servers.proxy(own, options.tidegate, "--listen", "127.0.0.1:0",
                              "--upstream", f"postgres://127.0.0.1:{server.port}")
        endpoint = stack.enter_context(proxy)
        chain = Chain(endpoint, own / "log")
        stack.callback(chain.end)
        seconds = options.seconds
        command = pgbench_command(
            endpoint.port, "-b", kind, "-M", protocol, "-c", options.clients, "-j", 1,
            "-s", SCALE, "-T", 100_000 if hand_overs else seconds, "--log",
            f"--log-prefix={own}/run")
        with subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              text=True) as pgbench:
            try:
                wait_until(lambda: any(own.glob("run.*")), pgbench, own / "log")
                time.sleep(2)
                for _ in range(hand_overs):
                    chain.hand_over()
                    time.sleep(options.gap)
                    if pgbench.poll() is not None:
                        raise Failed(f"pgbench has ended: {pgbench.stdout.read()[-500:]}")
                if hand_overs:
                    time.sleep(2)
                    pgbench.send_signal(signal.SIGTERM)
                    pgbench.wait(30)
                else:
                    pgbench.wait(seconds + 60)
            finally:
                pgbench.kill()
            said = pgbench.stdout.read()
        errors = len(re.findall(r"error|aborted|FATAL|terminated", said))
        errors += len(re.findall(r" ERROR ", chain.text()))
        rows = completions(own, 1)
        of_all, client_median, client_max = pauses(rows)
        tps = len(rows) / (rows[-1][0] - rows[0][0])
        return {"load": " ".join(load), "hand_overs": hand_overs, "tps": tps, "errors": errors,
                "all_ms": of_all, "client_median_ms": client_median, "client_ms": client_max,
                "took_ms": chain.took_ms, "said": said[-300:] if errors else ""}


def shown(run):
    """A row of the table."""
    took = f"{statistics.median(run['took_ms']):.0f} ({max(run['took_ms']):.0f})" \
        if run["took_ms"] else "-"
    return script.row(run["load"], run["hand_overs"], f"{run['tps']:,.0f}", run["errors"],
                      f"{run['all_ms']:.0f}", f"{run['client_median_ms']:.0f}",
                      f"{run['client_ms']:.0f}", took)


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--hand-overs", type=int, default=50)
    parser.add_argument("--gap", type=float, default=0.3, help="seconds between hand-overs")
    parser.add_argument("--seconds", type=int, default=40, help="length of an undisturbed run")
    parser.add_argument("--loads", type=int, default=len(LOADS), help="only so many of the loads")
    options = script.parsed(parser)
    rows, broken = [], []
    with script.private_server(SCALE) as server:
        for load in LOADS[:options.loads]:
            base, run = (measure(server, options, load, count)
                         for count in (0, options.hand_overs))
            for one in (base, run):
                rows.append(shown(one))
                script.say(rows[-1] + one["said"])
            allowed = max(PAUSE_MAX_MS, base["all_ms"] + PAUSE_MAX_MS)
            if base["all_ms"] <= PAUSE_MAX_MS:
                allowed = PAUSE_MAX_MS
            if run["errors"] or run["all_ms"] > allowed:
                broken.append(" ".join(load))
    load_average = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    about = (f"{script.where(options)}, {os.cpu_count()} processors, load average at the end "
             f"{load_average}; {options.clients} clients, scale {SCALE}.")
    columns = ("pgbench", "hand-overs", "tps", "errors", "longest pause of all, ms",
               "of a client, median, ms", "of a client, longest, ms",
               "a hand-over takes, median (longest), ms")
    script.print_table(about, "lrrrrrrr", columns, rows)
    print(f"\nThe rule is {'broken: ' + ', '.join(broken) if broken else 'kept'}.")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    script.run(main)
