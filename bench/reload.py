#!/usr/bin/env python3
"""Reload the proxy's configuration under pgbench clients, and look for errors and pauses.

200 clients of pgbench (TPC-B-like transactions, and selects) run through a proxy before a private
PostgreSQL. Each run has two halves of the same length: in one the configuration is exchanged 50
times by SIGHUP, in the other nothing happens; which comes first changes from run to run. Two
series: in one, configurations differ in bounds, times, users, databases and addresses; in the other
in the user on the server, so that each reload replaces all connections. From pgbench's log of every
transaction come the longest gap between two completions, over all clients, and for each client its
longest transaction. Prints Markdown. Ends with exit code 1 if a client has failed or a reload has
not been put in force.

The rule, stated before the run: no client fails, every reload is put in force, and no gap of a half
with reloads is longer than 50 ms, or, where the machine is not quiet, than the longest gap of the
half without them in the same run.
"""

import dataclasses
import itertools
import re
import signal
import statistics
import subprocess
import sys
import time

from compare import script, servers
from compare.loads import pgbench_command, pgbench_report
from compare.processes import Failed, started

RELOADS = 50
PAUSE_MS = 50
# The two halves, and what is left out at the beginning of the first: connecting.
WARM_UP_S = 3
LIMIT_S = 120
KEPT, REPLACED = "connections kept", "connections replaced"
LOADS = {"TPC-B": ["-b", "tpcb-like"], "select": ["-b", "select-only"]}


@dataclasses.dataclass
class Half:
    """What pgbench's clients saw in one half of a run; times in milliseconds."""

    transactions: int
    tps: float
    gap: float
    gaps_over: int
    # The longest transaction of each client.
    longest: list[float]


def configurations(series, server, port, extra):
    """The texts of a series that are put in force in turn; all serve the same clients."""
    top = f'listen = ["127.0.0.1:{port}"%s]\nadmin_listen = "127.0.0.1:0"\n'
    upstream = f"127.0.0.1:{server.port}/postgres"
    control = 'control = "fixed:20"\n'
    own = '[databases.postgres]\nupstream = "postgres://%s"\n' + control
    first = top % "" + own % upstream
    if series == REPLACED:
        return [first, top % "" + own % f"other@{upstream}"]
    return [
        first,
        top % "" + "waiting_max = 5000\n" + own % upstream
        + "max_database_connections = 60\nmax_clients = 900\n"
        + '[timeouts]\nqueue = "90s"\nserver_idle = "20s"\n[users.postgres]\nmax_clients = 800\n',
        top % f', "127.0.0.1:{extra}"' + own % upstream
        + f'[databases."*"]\nupstream = "postgres://127.0.0.1:{server.port}"\n' + control,
    ]


def read(directory, begin_s, end_s):
    """What the logs of pgbench's threads say of the time between two moments."""
    completions, longest = [], {}
    for path in directory.glob("pgbench_log.*"):
        for line in path.read_text().splitlines():
            client, _, micros, _, seconds, fraction = line.split()[:6]
            at = int(seconds) + int(fraction) / 1e6
            if begin_s <= at < end_s:
                completions.append(at)
                key = (path.name, client)
                longest[key] = max(longest.get(key, 0.0), int(micros) / 1e3)
    completions.sort()
    gaps = [(late - early) * 1e3 for early, late in zip(completions, completions[1:])]
    return Half(len(completions), len(completions) / (end_s - begin_s), max(gaps, default=0.0),
                sum(gap > PAUSE_MS for gap in gaps), sorted(longest.values()))


def reload_often(process, file, texts, end_s):
    """Put the texts in force in turn until a moment, evenly; returns how often."""
    begin_s = time.time()
    for number in range(RELOADS):
        file.write_text(texts[(number + 1) % len(texts)])
        process.send_signal(signal.SIGHUP)
        due = begin_s + (number + 1) * (end_s - begin_s) / RELOADS
        time.sleep(max(0.0, due - time.time()))
    return RELOADS


def run_once(options, load, series, reloads_first):
    """One run: its two halves, without and with reloads, and what went wrong."""
    with script.private_server(options.scale, "CREATE ROLE other LOGIN SUPERUSER") as server, \
            script.directory("tidegate-reload-") as own:
        file, port = own / "tidegate.toml", servers.free_port()
        texts = configurations(series, server, port, servers.free_port())
        file.write_text(texts[0])
        with servers.proxy(own, options.tidegate, "-c", file) as endpoint:
            seconds = WARM_UP_S + 2 * options.seconds
            command = pgbench_command(endpoint.port, *LOADS[load], "-c", options.clients, "-j", 1,
                                      "-T", seconds, "-l")
            with started(command, cwd=own, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE) as client:
                time.sleep(WARM_UP_S)
                begin_s = time.time()
                middle_s, end_s = begin_s + options.seconds, begin_s + 2 * options.seconds
                if not reloads_first:
                    time.sleep(options.seconds)
                reload_often(endpoint.process, file, texts, middle_s if reloads_first else end_s)
                text, messages = client.communicate(timeout=LIMIT_S + seconds)
            log = (own / "log").read_text(errors="replace")
        halves = [read(own, begin_s, middle_s), read(own, middle_s, end_s)]
        quiet, reloaded = reversed(halves) if reloads_first else halves
    troubles = [pgbench_report(text)[2]] if client.returncode == 0 else [messages.strip()[-300:]]
    in_force = len(re.findall("configuration reloaded", log))
    if in_force != RELOADS:
        refused = re.findall(r"not reloaded.*", log)[:1]
        troubles.append(f"{in_force} of {RELOADS} reloads in force {refused}")
    return quiet, reloaded, [it for it in troubles if it]


def shown(halves, of, form):
    """Median, lowest and highest of a figure."""
    values = [of(half) for half in halves]
    return (f"{statistics.median(values):{form}} "
            f"[{min(values):{form}}–{max(values):{form}}]")


def rows(load, series, runs):
    """The two rows of a load and a series."""
    for name, which in (("without", 0), (f"{RELOADS} reloads", 1)):
        halves = [run[which] for run in runs]
        yield script.row(
            load, series, name,
            shown(halves, lambda half: half.tps, ",.0f"),
            shown(halves, lambda half: half.gap, ".1f"),
            shown(halves, lambda half: half.gaps_over, ".0f"),
            shown(halves, lambda half: statistics.median(half.longest), ".0f"),
            shown(halves, lambda half: half.longest[-1], ".0f"))


def main():
    """Measure and print."""
    parser = script.parser(__doc__)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=20, help="each half of a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scale", type=int, default=10)
    options = script.parsed(parser)
    table, verdicts, troubles = [], [], []
    for load, series in itertools.product(LOADS, (KEPT, REPLACED)):
        runs = []
        for number in range(options.runs):
            runs.append(run_once(options, load, series, number % 2 == 1))
            troubles += runs[-1][2]
            script.say(f"{load}, {series}, run {number + 1}: {runs[-1][1].gap:.1f} ms, "
                       f"without {runs[-1][0].gap:.1f} ms {runs[-1][2]}")
        table += rows(load, series, runs)
        kept = sum(run[1].gap <= max(PAUSE_MS, run[0].gap) for run in runs)
        below = sum(run[1].gap <= PAUSE_MS for run in runs)
        verdicts.append(f"{load}, {series}: no gap over {PAUSE_MS} ms in {below} of "
                        f"{len(runs)} runs, by the rule kept in {kept}.")
    about = (f"{script.where(options)}; {options.clients} clients, pgbench scale {options.scale}, "
             f"halves of {options.seconds} s, {options.runs} runs: median, lowest and highest.")
    script.print_table(about, "lllrrrrr", ("load", "series", "half", "tps", "longest gap, ms",
                                          f"gaps over {PAUSE_MS} ms",
                                          "longest transaction of a client, median, ms",
                                          "longest of all, ms"), table)
    failed = "; ".join(troubles) or "none"
    print(f"\nErrors: {failed}. {' '.join(verdicts)}")
    if troubles:
        raise Failed(failed)


if __name__ == "__main__":
    script.run(main)
    sys.exit(0)
