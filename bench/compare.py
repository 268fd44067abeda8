#!/usr/bin/env python3
"""Compare Tidegate with PgBouncer and with no pooler, on a private PostgreSQL server.

Parts: tpcb, pgbench, small, cpu, idle (see bench/compare/plan.py). Subjects take turns (A B C ...,
A B C ...), each run with a fresh pooler and a levelled database. Prints Markdown: a table per
part, then the targets, each met or missed. That is never the exit code: a benchmark is no test,
and its figures mean something on an idle machine only. Everything started here is stopped here,
by its process id, also on Ctrl-C; every step has a time limit.
"""

import argparse
import os
import time

from compare import idle, loads, plan, report, script, servers
from compare.machine import commit, version
from compare.processes import Failed, catch_signals, find_program
from compare.script import say

# Times where the command line gives none, in seconds.
FULL_TIMES = {"seconds": 10.0, "warmup": 3.0, "settle": 45, "repetitions": 3}
QUICK_TIMES = {"seconds": 3.0, "warmup": 1.0, "settle": 4.0, "repetitions": 1}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=plan.PARTS, default=list(plan.PARTS))
    parser.add_argument("--subjects", nargs="+", metavar="NAME", default=[],
                        help="only these, as the tables name them; cells with fewer than two "
                             "of them are left out")
    parser.add_argument("--quick", action="store_true",
                        help="two minutes: shows that it works, not what is true")
    parser.add_argument("--seconds", type=float,
                        help="measured time of a run; the pooler's CPU needs 3 or more")
    parser.add_argument("--warmup", type=float, help="uncounted time before it")
    parser.add_argument("--settle", type=float, help="the same under automatic control")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--seed", type=int, default=1)
    script.add_outputs(parser)
    options = parser.parse_args()
    for name, value in (QUICK_TIMES if options.quick else FULL_TIMES).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
        elif getattr(options, name) <= 0:
            parser.error(f"--{name} must be more than 0")
    script.check_programs(parser, options)
    return options


def measure(run, server, directory, options, repetition):
    """One run: what it gave, or why it failed."""
    seed = options.seed + repetition
    outcome = {"part": run.part, "subject": run.subject.name, "clients": run.clients,
               "workload": run.workload, "protocol": run.protocol, "repetition": repetition,
               "automatic": plan.is_automatic(run.subject), "seed": seed,
               "load_before": os.getloadavg()[0]}
    server.level()
    try:
        with servers.subject(run.subject, server, directory, options.tidegate, seed) as endpoint:
            if run.part == "idle":
                found = idle.measure(endpoint, run.clients)
            elif run.protocol:
                found = loads.pgbench(endpoint, run, seed)
            else:
                found = loads.own(options.tidegate, endpoint, run, seed)
    except Failed as failure:
        if server.process.poll() is not None:
            raise RuntimeError("PostgreSQL has ended by itself") from failure
        return {**outcome, "failure": str(failure)}
    return {**outcome, **found}


def summary(run):
    """A run's result in a few words."""
    if run.get("failure"):
        return f"failed: {' '.join(run['failure'].split())}"
    if run["part"] == "idle":
        return f"{run['kib_per_client']:.1f} KiB per client"
    cpu = f", pooler {run['proxy_us']:.1f} µs" if run.get("proxy_us") else ""
    return f"{run['tps']:.0f} tps{cpu}" + (f" ({run['complaints']})" if run["complaints"] else "")


def order(cells, repetitions):
    """(repetition, run) as they are run: the subjects of a cell take turns."""
    for cell in cells:
        # Memory is counted, not timed: once is enough.
        rounds = 1 if cell and cell[0].part == "idle" else repetitions
        yield from ((repetition, run) for repetition in range(rounds) for run in cell)


def measure_all(options, known):
    """All runs, with progress on standard error; written down as they come."""
    cells = plan.cells(options, bool(find_program("pgbouncer")))
    todo = list(order(cells, options.repetitions))
    left_s = sum(run.planned_s() for _, run in todo)
    say(f"{len(todo)} runs, about {left_s / 60:.0f} minutes")
    runs, done_s, began = [], 0.0, time.monotonic()
    with script.directory("tidegate-bench-") as directory, servers.postgres(directory) as server:
        for number, (repetition, run) in enumerate(todo, 1):
            runs.append(measure(run, server, directory, options, repetition))
            script.keep(runs, known, options)
            done_s, left_s = done_s + run.planned_s(), left_s - run.planned_s()
            minutes = max(left_s, 0) * (time.monotonic() - began) / done_s / 60
            load = f"{run.part} {run.clients} clients {run.protocol}".strip()
            say(f"{number}/{len(todo)} {load}, {run.subject.name}, repetition "
                f"{repetition + 1}: {summary(runs[-1])}; about {minutes:.1f} min left")
    return runs


def facts(options):
    """Where and how it was measured."""
    return script.facts(
        "compare.py", options,
        poolers=f"{version('pgbouncer')}; {version(options.tidegate)}{commit()}",
        times=f"{options.seconds:g} s measured after {options.warmup:g} s of warm-up, "
              f"{options.settle:g} s under automatic control; "
              f"repetitions: {options.repetitions}, the subjects taking turns")


def notes(options):
    """What a reader must know before the figures."""
    found = []
    if not find_program("pgbouncer"):
        found.append("**PgBouncer is not installed** (scripts/setup-postgres pgbouncer): "
                     "its rows and the targets that need it are missing.")
    if options.quick:
        found.append("**Quick run**: too short and too few subjects to judge by.")
    return found + script.busy()


def main():
    options = arguments()
    catch_signals()
    script.report(measure_all, report.document, facts(options), notes(options), options)


if __name__ == "__main__":
    main()
