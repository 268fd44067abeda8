#!/usr/bin/env python3
"""Compare our load generator with pgbench, on a private PostgreSQL server.

Both run pgbench's own scripts as simple queries from one thread: the TPC-B-like transaction of
seven statements, BEGIN and END counted, and the point select. They take turns (pgbench, ours,
ours, pgbench), each with a levelled database: dead row versions gone, a checkpoint taken. Neither
has a warm-up to speak of. Prints Markdown: a table per workload, then the targets, each met or
missed. That is never the exit code: a benchmark is no test, and its figures mean something on an
idle machine only. Everything started here is stopped here, by its process id, also on Ctrl-C.
"""

import argparse
import contextlib
import functools
import json
import os
import resource
import statistics
import time

from compare import loads, report, script, servers
from compare.machine import commit, version
from compare.processes import Failed, catch_signals
from compare.script import say

# pgbench's names of the workloads, and ours.
WORKLOADS = {"tpcb-like": "tpcb", "select-only": "point-select"}
CLIENTS = (4, 64, 1000)
PGBENCH, OURS = "pgbench", "tidegate load"
# A round is two pairs, in which each is the first once.
ROUND = (PGBENCH, OURS, OURS, PGBENCH)
# Up to here the two should measure the same, within so much.
SAME_UP_TO, SAME = 64, 0.05
# Starting and levelling, for the time left only.
OVERHEAD_S = 3
# The time given to pgbench includes its connecting, so it gets about that much more.
CONNECT_S = 0.004


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--clients", nargs="+", type=int, default=list(CLIENTS))
    parser.add_argument("--seconds", type=int, default=10, help="measured time of a run")
    parser.add_argument("--rounds", type=int, default=3, help="of two pairs each")
    parser.add_argument("--scale", type=int, default=10, help="of pgbench's tables")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--apart", action="store_true",
                        help="the server on one processor, the client on another")
    script.add_outputs(parser)
    options = parser.parse_args()
    if min(*options.clients, options.seconds, options.rounds, options.scale) < 1:
        parser.error("clients, seconds, rounds and scale must be at least 1")
    if max(options.clients) > servers.POSTGRES_SETTINGS["max_connections"] - 20:
        parser.error("more clients than the server takes")
    if options.apart and len(os.sched_getaffinity(0)) < 2:
        parser.error("--apart needs two processors")
    script.check_programs(parser, options)
    return options


def command(subject, workload, clients, port, options, seed):
    """The command line of a run."""
    if subject == PGBENCH:
        seconds = options.seconds + round(clients * CONNECT_S)
        return loads.pgbench_command(port, "-M", "simple", "-b", workload, "-c", clients, "-j", 1,
                                     "-T", seconds, "--random-seed", seed)
    return [options.tidegate, "load", "--json", "--workload", WORKLOADS[workload],
            "--scale", options.scale, "--clients", clients, "--warmup", "1ms",
            "--duration", f"{options.seconds}s", "--seed", seed,
            "--url", f"postgres://postgres@127.0.0.1:{port}/postgres"]


def read_pgbench(text):
    """Transactions per second, without the time to connect; transactions; what went wrong."""
    tps, count, troubles = loads.pgbench_report(text)
    if tps is None or count is None:
        raise Failed("pgbench completed no transaction in the time given")
    return tps, count, troubles


def read_ours(text):
    """The same of our own report."""
    found = json.loads(text)
    return found["tps"], found["transactions"], loads.complaints(found)


def children_cpu_s():
    """CPU time, user and system, of all children that have ended and been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_once(subject, words, seconds):
    """One run: transactions per second, the client's CPU time a transaction, troubles.

    The CPU time is that of the whole process, its start and its connections included.
    """
    before = children_cpu_s()
    text, _ = loads.finished(words, seconds, subject)
    tps, count, troubles = (read_pgbench if subject == PGBENCH else read_ours)(text)
    if not count:
        raise Failed("no transaction was completed")
    return {"tps": tps, "client_us": (children_cpu_s() - before) * 1e6 / count,
            "troubles": troubles}


def plan(options):
    """(workload, clients, pair, subject) in the order they are run."""
    for workload in options.workloads:
        for clients in options.clients:
            for number, subject in enumerate(ROUND * options.rounds):
                yield workload, clients, number // 2, subject


@contextlib.contextmanager
def database(directory, options):
    """The server. When it is to be apart, it has the first processor, and clients the last."""
    processors = sorted(os.sched_getaffinity(0))
    if options.apart:
        os.sched_setaffinity(0, processors[:1])
    with servers.postgres(directory, options.scale) as server:
        if options.apart:
            os.sched_setaffinity(0, processors[-1:])
        yield server


def measure_all(options, known):
    """All runs, with progress on standard error; written down as they come."""
    todo, runs, began = list(plan(options)), [], time.monotonic()
    say(f"{len(todo)} runs, about {len(todo) * (options.seconds + OVERHEAD_S) / 60:.0f} minutes")
    with script.directory("tidegate-client-") as directory:
        with database(directory, options) as server:
            for number, (workload, clients, pair, subject) in enumerate(todo, 1):
                run = {"workload": workload, "clients": clients, "pair": pair,
                       "subject": subject, "load_before": os.getloadavg()[0]}
                seed = options.seed + pair
                server.level()
                try:
                    words = command(subject, workload, clients, server.port, options, seed)
                    run.update(run_once(subject, words, options.seconds))
                    outcome = f"{run['tps']:.0f} tps, {run['client_us']:.1f} µs {run['troubles']}"
                except Failed as failure:
                    run["failure"] = " ".join(str(failure).split())
                    outcome = f"failed: {run['failure']}"
                runs.append(run)
                script.keep(runs, known, options)
                minutes = (len(todo) - number) * (time.monotonic() - began) / number / 60
                say(f"{number}/{len(todo)} {workload}, {clients} clients, {subject}: {outcome}; "
                    f"about {minutes:.1f} min left")
    return runs


class Cell:
    """The runs of one workload at one number of clients."""

    def __init__(self, runs, workload, clients):
        self.workload, self.clients = workload, clients
        self.runs = [run for run in runs if (run["workload"], run["clients"]) == (workload, clients)
                     and "failure" not in run]

    def of(self, subject, key):
        """Pair -> figure."""
        return {run["pair"]: run[key] for run in self.runs if run["subject"] == subject}

    def ratios(self):
        """Our tps to pgbench's, pair by pair."""
        ours, theirs = self.of(OURS, "tps"), self.of(PGBENCH, "tps")
        return [ours[pair] / theirs[pair] for pair in sorted(ours) if pair in theirs]


def ratio_text(ratios):
    """Median, and lowest and highest."""
    if not ratios:
        return "–"
    form = "{:.3f}".format
    return form(statistics.median(ratios)) + report.bracket(ratios, form)


def cell_row(cell):
    """A row of a workload's table."""
    figures = [cell.of(subject, key) for key in ("tps", "client_us") for subject in (PGBENCH, OURS)]
    return [f"{cell.clients:,}", *map(report.spread, figures[:2]), ratio_text(cell.ratios()),
            *map(report.spread, figures[2:])]


def target(cell):
    """What is asked of a cell, and whether it is so."""
    ratios = cell.ratios()
    middle = statistics.median(ratios)
    if cell.clients <= SAME_UP_TO:
        wanted, met = f"{1 - SAME:g} to {1 + SAME:g}", abs(middle - 1) <= SAME
    else:
        wanted, met = "> 1", middle > 1
    name = f"{cell.workload}, {cell.clients:,} clients: tps, {OURS} / {PGBENCH}"
    return [name, ratio_text(ratios), wanted, "met" if met else "**missed**"]


def troubles(runs):
    """Runs that failed, and what went wrong in those that did not."""
    said = [(run, run.get("failure") or run["troubles"]) for run in runs]
    return [f"- {run['workload']}, {run['clients']} clients, {run['subject']}, pair "
            f"{run['pair'] + 1}: {what}" for run, what in said if what]


def document(options, runs, known, notes):
    """The whole report."""
    columns = ["clients", *(f"{subject}, tps" for subject in (PGBENCH, OURS)), "ratio",
               *(f"{subject}, CPU, µs/transaction" for subject in (PGBENCH, OURS))]
    cells = [Cell(runs, workload, clients) for workload in options.workloads
             for clients in options.clients]
    blocks = ["# Our load generator beside pgbench",
              "\n".join(f"- {name}: {value}" for name, value in known.items()), *notes,
              "Figures are medians over the runs, a ratio the median over the pairs; in brackets "
              "the lowest and the highest. The runs of a pair follow each other, and who is first "
              "alternates. The CPU time is that of the client's whole process, its start and its "
              "connections included. pgbench lets the transactions end that run when the time is "
              "up, and counts them; ours does not wait for them. The time given to pgbench "
              "includes its connecting, the tps that it prints does not; so it is given 4 ms more "
              "for each client."]
    for workload in options.workloads:
        rows = [cell_row(cell) for cell in cells if cell.workload == workload]
        blocks += [f"## {workload}", report.table(columns, rows)]
    rows = [target(cell) for cell in cells if cell.ratios()]
    blocks += ["## Targets", report.table(["target", "measured", "wanted", ""], rows)]
    if found := troubles(runs):
        blocks += ["## Troubles", "\n".join(found)]
    return "\n\n".join(blocks) + "\n"


def facts(options):
    """Where and how it was measured."""
    found = script.facts(
        "client.py", options,
        clients=f"{version('pgbench')}; {version(options.tidegate)}{commit()}"
                f"{', on a processor of their own' if options.apart else ''}",
        times=f"{options.seconds} s a run, {2 * options.rounds} pairs")
    return {**found, "seed": f"{options.seed}, and one more with each pair"}


def main():
    options = arguments()
    catch_signals()
    script.report(measure_all, functools.partial(document, options), facts(options),
                  script.busy(), options)


if __name__ == "__main__":
    main()
