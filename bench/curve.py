#!/usr/bin/env python3
"""Count how many intervals of the what-if curve hold on PostgreSQL.

One private PostgreSQL; pgbench is the client, with the workloads of bench/workloads.py. For each
workload a controller runs behind a proxy. Then some of the limits that its last curve tells are set
by `fixed:N`, in an order drawn from the seed, without a change to the database in between, and
throughput is measured for 10 s after a warm-up. Prints a Markdown table: the interval, what was
measured, and how many held. The exit code is 0 whatever it shows.
"""

import random
import statistics

from compare import script
from compare.idle import raise_file_limit
from workloads import WORKLOADS, behind, by_scale, level

HORIZON_S = 10


def last_curve(decisions):
    """The rows of the last curve whose throughput is known."""
    curves = [row["curve"] for row in decisions if "curve" in row]
    if not curves:
        return []
    return [row for row in curves[-1]["rows"] if row["throughput_tps"]]


def holds(interval, value):
    return interval["low"] <= value <= interval["high"]


def text(interval, unit=1.0):
    return f"{interval['low'] * unit:.4g} to {interval['high'] * unit:.4g}"


def judge(server, options, name, draws):
    """A line of the table for each limit that was tried, and which of the intervals held."""
    workload = WORKLOADS[name]
    level(server)
    *_, decisions = behind(server, options, workload, options.seconds, options.controller)
    known = last_curve(decisions)
    tried = draws.sample(known, min(options.limits, len(known)))
    lines, held = [], []
    for row in tried:
        seconds = options.warmup + HORIZON_S
        rows, *_ = behind(server, options, workload, seconds, f"fixed:{row['limit']}")
        tps = statistics.fmean(rows[-HORIZON_S:])
        is_held = holds(row["throughput_tps"], tps)
        response = row["response_s"]
        # Little's law for clients that do not think.
        response_s = workload.clients / tps if tps else float("inf")
        held.append((is_held, response and holds(response, response_s)))
        shown = text(response, 1e3) if response else "not known"
        lines.append(script.row(
            name, row["limit"], text(row["throughput_tps"]), f"{tps:.4g}",
            "yes" if is_held else "**no**", shown, f"{1e3 * response_s:.4g}"))
        script.say(lines[-1])
    return lines, held


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS,
                        default=["tpcb-1", "tpcb-50", "range-read", "range-update", "hot-rows",
                                 "sort", "insert", "reports", "point-read", "one-client"])
    parser.add_argument("--controller", default="paired-comparison")
    parser.add_argument("--seconds", type=int, default=60, help="of the controller's run")
    parser.add_argument("--limits", type=int, default=5, help="tried at most, of each curve")
    parser.add_argument("--warmup", type=int, default=3, help="seconds before those that count")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = script.parsed(parser)
    raise_file_limit(4_000)
    draws, table, held = random.Random(options.seed), [], []
    for server, names in by_scale(options.workloads * options.rounds):
        for name in names:
            lines, own = judge(server, options, name, draws)
            table += lines
            held += own
    about = (f"{script.where(options)}; {options.controller} for {options.seconds} s, seed "
             f"{options.seed}.")
    columns = ("workload", "limit", "90 % interval, tps", "measured, tps", "held",
               "response time, ms", "measured, ms")
    script.print_table(about, "lrrrlrr", columns, table)
    responses = [response for _, response in held if response is not None]
    print(f"\nOf {len(held)} intervals of throughput {sum(own for own, _ in held)} held; of "
          f"{len(responses)} of response time {sum(responses)}.")


if __name__ == "__main__":
    script.run(main)
