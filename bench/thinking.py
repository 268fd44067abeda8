#!/usr/bin/env python3
"""Measure the throughput of transactions whose clients think inside them.

One private PostgreSQL, pgbench as the clients: a transaction reads a range, its client thinks, and
it changes a row. For each think time: direct connections, a proxy with each fixed limit, and a
proxy for each controller, one after the other, in rounds. Prints a Markdown table: transactions per
second, and what they are of the best fixed limit and of direct connections in the same round,
medians of the rounds. The tables are no test: the exit code is 0 whatever they show.
"""

import statistics

from compare import loads, script
from compare.processes import Failed

SCALE = 1
SCRIPT = """\
\\set from random(1, 99000)
\\set aid random(1, 100000)
BEGIN;
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :from AND :from + {rows};
\\sleep {think} ms
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
COMMIT;
"""
DIRECT = "direct"


def load(port, think_ms, clients, warmup, options, directory):
    """Transactions per second after the warm-up."""
    file = directory / f"think-{think_ms}.sql"
    file.write_text(SCRIPT.format(think=think_ms, rows=options.rows))
    seconds = warmup + options.seconds
    command = loads.pgbench_command(port, "-f", file, "-c", clients, "-j", 2, "-M", "prepared",
                                    "-T", seconds, "-P", 1)
    _, messages = loads.finished(command, seconds)
    tps = [value for at, value in loads.pgbench_progress(messages) if at > warmup + 0.5]
    if not tps:
        raise Failed(f"pgbench: {messages.strip()[-300:]}")
    return statistics.fmean(tps)


def measure(think_ms, clients, server, options):
    """Throughput of every subject, a list with one value for each round."""
    names = [DIRECT, *(f"fixed:{limit}" for limit in options.limits), *options.controllers]
    results = {name: [] for name in names}
    for turn in range(options.rounds):
        for name in names if turn % 2 == 0 else reversed(names):
            server.level()
            warmup = options.warmup if name == DIRECT or name.startswith("fixed") \
                else options.settle
            control = None if name == DIRECT else name
            with script.connection(server, options, control, has_journal=False) as (end, directory):
                tps = load(end.port, think_ms, clients, warmup, options, directory)
            results[name].append(tps)
            script.say(f"{think_ms} ms, {name}: {tps:.1f} tps")
    return results


def table(results):
    """Rows of subjects, with both ratios."""
    fixed = [values for name, values in results.items() if name.startswith("fixed")]
    best = [max(values) for values in zip(*fixed)]
    lines = [script.head("lrrr", "subject", "tps", "of the best fixed", "of direct")]
    for name, values in results.items():
        ratios = [statistics.median(value / base for value, base in zip(values, bases))
                  for bases in (best, results[DIRECT])]
        lines.append(script.row(name, f"{statistics.median(values):.1f}",
                                *(f"{ratio:.3f}" for ratio in ratios)))
    return "\n".join(lines)


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--think-ms", type=int, nargs="+", default=[20, 1000])
    parser.add_argument("--clients", type=int, nargs="+", default=[64, 300],
                        help="for each think time")
    parser.add_argument("--limits", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--controllers", nargs="*", default=["paired-comparison"])
    parser.add_argument("--rows", type=int, default=1000, help="that a transaction reads")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20, help="measured")
    parser.add_argument("--warmup", type=int, default=5, help="seconds before")
    parser.add_argument("--settle", type=int, default=60, help="seconds before, with a controller")
    options = script.parsed(parser)
    if len(options.clients) != len(options.think_ms):
        parser.error("--clients needs as many numbers as --think-ms")
    tables = {}
    with script.private_server(SCALE) as server:
        for think_ms, clients in zip(options.think_ms, options.clients):
            results = measure(think_ms, clients, server, options)
            tables[f"{clients} clients that think for {think_ms} ms"] = table(results)
    print(f"{script.where(options)}, {options.rounds} rounds of {options.seconds} s.")
    for title, text in tables.items():
        print(f"\n{title}:\n\n{text}")


if __name__ == "__main__":
    script.run(main)
