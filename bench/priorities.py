#!/usr/bin/env python3
"""Measure what priorities give and cost at the proxy: strict order, weights, ageing, overload.

One private PostgreSQL with pgbench's tables at scale 1, and a proxy for each run. The rules, stated
before any run:

- priority: TPC-B, --clients clients, 10 % of the transactions high by a comment. In pairs with the
  same load whose comments count for nothing, in alternating order. The mean of the high class is at
  least 12 times shorter than that of the low one; throughput is at least 95 %, the mean of the low
  class at most 1.16 times, and that of all at most 1.06 times of those without priorities.
- weights: three classes with 1, 2 and 7, all of them waiting all the time; once with equal
  transactions, once with transactions of 2, 6 and 20 ms. Each class's share of the permits over
  time is within 5 % of its weight's.
- ageing: 6 high clients at a limit of 2, and 2 normal ones. The longest wait of a normal
  transaction is at most the ageing time and the longest transaction.
- overload: arrivals at ten times the sustainable rate, whether those before them have ended or not;
  time from the arrival. Admitted throughput is at least 95 % of the peak, the 99th percentile of
  the high class at most 2 times that without load, and each refusal is counted by the proxy under
  the reason that its client was told.

Prints a page; the exit code is 0 whatever it shows.
"""

import asyncio
import contextlib
import os
import pathlib
import re
import statistics
import struct
import subprocess
import time
import urllib.request

from compare import script, servers
from compare.idle import STARTUP, message, raise_file_limit
from compare.loads import pgbench_command
from compare.processes import Failed, started, unprivileged

TPCB = """\
\\set aid random(1, 100000)
\\set bid 1
\\set tid random(1, 10)
\\set delta random(-5000, 5000)
BEGIN /*tidegate_class='{name}'*/;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
  VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""
CONFIG = """\
listen = ["127.0.0.1:0"]
admin_listen = "127.0.0.1:{admin}"
{top}
[databases."*"]
upstream = "postgres://127.0.0.1:{upstream}"
control = "{control}"
{sections}
"""


class Proxy:
    """A proxy of one run: where clients connect, and its metrics."""

    def __init__(self, port, admin):
        self.port, self.admin = port, admin

    def metrics(self):
        """The samples of the page, by name and labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def by_class(self, name, **labels):
        """A metric by class, summed over the labels that are not given."""
        found = {}
        for sample, value in self.metrics().items():
            if not sample.startswith(name + "{"):
                continue
            has = dict(re.findall(r'(\w+)="([^"]*)"', sample))
            if all(has.get(key) == wanted for key, wanted in labels.items()):
                found[has["class"]] = found.get(has["class"], 0) + value
        return found


@contextlib.contextmanager
def proxy(server, options, control, top="", sections=""):
    with script.directory() as place, contextlib.ExitStack() as stack:
        admin, config = servers.free_port(), place / "tidegate.toml"
        config.write_text(CONFIG.format(admin=admin, upstream=server.port, control=control,
                                        top=top, sections=sections))
        run = servers.proxy(place, options.tidegate, "-c", config, "--log-level", "warn")
        yield Proxy(stack.enter_context(run).port, admin), place


@contextlib.contextmanager
def pgbench(place, name, port, clients, seconds, *scripts):
    """pgbench with scripts and their weights, with a line for each transaction."""
    directory = pathlib.Path(place, name)
    directory.mkdir()
    directory.chmod(0o777)
    files = []
    for index, (text, weight) in enumerate(scripts):
        path = directory / f"{index}.sql"
        path.write_text(text)
        files += ["-f", f"{path}@{weight}"]
    command = pgbench_command(port, "-n", "-c", clients, "-T", seconds, *files, "-l")
    with started(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                 env={**os.environ, "PGAPPNAME": name}, **unprivileged()) as process:
        yield directory, process


def finish(process, seconds):
    _, error = process.communicate(timeout=seconds + 120)
    if process.returncode:
        raise Failed(f"pgbench: {error.strip()[-300:]}")


def latencies(directory, since):
    """Latencies in seconds of transactions that ended after a moment, by the script's number."""
    found = {}
    for path in directory.glob("pgbench_log.*"):
        for line in path.read_text().splitlines():
            _, _, latency_us, number, second, microsecond = line.split()[:6]
            if int(second) + int(microsecond) / 1e6 >= since:
                found.setdefault(int(number), []).append(int(latency_us) / 1e6)
    return found


def priority_once(server, options, choice):
    top = f'scheduling = {{ classes = ["high", "low"], class_choice = "{choice}" }}'
    scripts = [(TPCB.format(name=name), weight) for name, weight in (("high", 1), ("low", 9))]
    with proxy(server, options, options.control, top) as (at, place), \
            pgbench(place, "load", at.port, options.clients, options.seconds, *scripts) as run:
        directory, process = run
        begin = time.time() + options.seconds / 5
        finish(process, options.seconds)
        seen = latencies(directory, begin)
    high, low = seen[0], seen[1]
    return {"high": statistics.fmean(high), "low": statistics.fmean(low),
            "all": statistics.fmean(high + low),
            "tps": (len(high) + len(low)) / (options.seconds * 4 / 5)}


def interval(values):
    """Mean and 95 % interval, by Student's t."""
    t = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.2f}"
    half = t.get(len(values), 2.0) * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.2f} [{mean - half:.2f}–{mean + half:.2f}]"


def priority(server, options):
    pairs = []
    for repeat in range(options.repeats):
        order = ["any", "none"] if repeat % 2 == 0 else ["none", "any"]
        runs = {choice: priority_once(server, options, choice) for choice in order}
        pairs.append((runs["any"], runs["none"]))
        script.say(f"priority: {pairs[-1]}")
    figures = [
        ("low over high, mean response", "≥ 12", [a["low"] / a["high"] for a, _ in pairs]),
        ("throughput over without", "≥ 0.95", [a["tps"] / b["tps"] for a, b in pairs]),
        ("low over without", "≤ 1.16", [a["low"] / b["low"] for a, b in pairs]),
        ("all over without", "≤ 1.06", [a["all"] / b["all"] for a, b in pairs]),
    ]
    means = f"{statistics.fmean(b['tps'] for _, b in pairs):,.0f} tps without"
    print(f"\n## Priority\n\n{options.clients} clients, `{options.control}`, "
          f"{options.repeats} pairs of {options.seconds} s, the first fifth of each left out; "
          f"{means}.\n")
    print(script.head("lrr", "figure", "rule", "mean and 95 % interval"))
    for name, rule, values in figures:
        print(script.row(name, rule, interval(values)))


def weights(server, options):
    print("\n## Weights 1 : 2 : 7\n\nThe share of the permits over time, from the time in the "
          f"database by class, over {options.seconds} s; 20 clients of each class, `fixed:4`.\n")
    print(script.head("lrrrr", "transactions", "class", "weight's share", "measured", "off"))
    sections = "\n".join(f'[classes.{name}]\nweight = {weight}\napplications = ["{name}"]'
                         for name, weight in (("one", 1), ("two", 2), ("seven", 7)))
    top = 'scheduling = { policy = "weights", classes = ["one", "two", "seven"] }'
    for what, lengths in (("5 ms each", (5, 5, 5)), ("2, 6 and 20 ms", (2, 6, 20)),
                          ("20, 6 and 2 ms", (20, 6, 2))):
        with proxy(server, options, "fixed:4", top, sections) as (at, place), \
                contextlib.ExitStack() as stack:
            runs = []
            for name, length in zip(("one", "two", "seven"), lengths, strict=True):
                text = f"SELECT pg_sleep({length / 1000});\n"
                load = pgbench(place, name, at.port, 20, options.seconds + 4, (text, 1))
                runs.append(stack.enter_context(load)[1])
            time.sleep(2)
            before = at.by_class("tidegate_database_seconds_sum")
            time.sleep(options.seconds)
            after = at.by_class("tidegate_database_seconds_sum")
            for run in runs:
                finish(run, options.seconds)
        used = {name: after[name] - before[name] for name in after}
        for name, weight in (("one", 1), ("two", 2), ("seven", 7)):
            share, wanted = used[name] / sum(used.values()), weight / 10
            print(script.row(what, name, f"{wanted:.0%}", f"{share:.2%}",
                             f"{share / wanted - 1:+.1%}"))


def ageing(server, options):
    sections = '[classes.high]\nageing = "1s"\napplications = ["high"]\n' \
               '[classes.normal]\nageing = "1s"'
    text = "SELECT pg_sleep(0.05);\n"
    with proxy(server, options, "fixed:2", sections=sections) as (at, place), \
            pgbench(place, "high", at.port, 6, options.seconds, (text, 1)) as high, \
            pgbench(place, "normal", at.port, 2, options.seconds, (text, 1)) as normal:
        begin = time.time()
        for _, process in (high, normal):
            finish(process, options.seconds)
        waits = latencies(normal[0], begin)[0]
        others = latencies(high[0], begin)[0]
    print(f"\n## Ageing\n\n6 high clients and 2 normal ones at a limit of 2, transactions of "
          f"50 ms, ageing after 1 s, {options.seconds} s. {len(others):,} high and "
          f"{len(waits):,} normal transactions; the longest response of a normal one was "
          f"{max(waits):.3f} s. It holds "
          f"its own 50 ms: the wait was at most {max(waits) - 0.05:.3f} s, and the rule is "
          f"1 s and the longest transaction, which was at least 50 ms.")


# More than ever wait or run at once.
CONNECTIONS = 200


class Client:
    """A connection through the simple query protocol."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port):
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client.writer.write(STARTUP)
        await client.answer()
        return client

    async def answer(self):
        """The SQLSTATE and the message of an error, if there was one."""
        error, kind = None, b""
        while kind != b"Z":
            kind, length = struct.unpack("!ci", await self.reader.readexactly(5))
            body = await self.reader.readexactly(length - 4)
            if kind == b"E":
                fields = {part[:1]: part[1:].decode() for part in body.split(b"\0") if part}
                error = fields.get(b"C", ""), fields.get(b"M", "")
        return error

    async def query(self, sql):
        self.writer.write(message(b"Q", sql.encode() + b"\0"))
        return await self.answer()


class Arrivals:
    """Transactions that arrive at a rate, whether those before them have ended or not."""

    def __init__(self, port):
        self.port, self.idle, self.done, self.refused = port, [], {}, {}

    async def one(self, due, kind, sql):
        client = self.idle.pop() if self.idle else await Client.connect(self.port)
        error = await client.query(sql)
        self.idle.append(client)
        if error is None:
            self.done.setdefault(kind, []).append((due, time.monotonic()))
        else:
            reason = "late" if "in time" in error[1] else "full"
            key = (kind, error[0], reason)
            self.refused[key] = self.refused.get(key, 0) + 1

    async def run(self, rates, seconds):
        """Rates by kind, with the SQL of each."""
        # Opening connections is not what is measured.
        self.idle = [await Client.connect(self.port) for _ in range(CONNECTIONS)]
        begin, tasks = time.monotonic(), []
        due = sorted((begin + number / rate, kind, sql) for kind, (rate, sql) in rates.items()
                     for number in range(int(rate * seconds)))
        for at, kind, sql in due:
            left = at - time.monotonic()
            if left > 0:
                await asyncio.sleep(left)
            tasks.append(asyncio.create_task(self.one(at, kind, sql)))
        await asyncio.gather(*tasks)
        lasted = time.monotonic() - begin
        for client in self.idle:
            client.writer.close()
        return lasted


def p99(pairs):
    times = sorted(end - due for due, end in pairs)
    return times[int(0.99 * len(times))]


def overload(server, options):
    """Transactions of 160 ms at a limit of 8: 50 a second are sustainable."""
    limit, length_s = 8, 0.16
    peak = limit / length_s
    sections = '[classes.low]\nwaiting_max = 50\ndeadline = "2s"\n[classes.high]\ndeadline = "5s"'
    top = 'scheduling = { classes = ["high", "low"] }'
    sql = {kind: f"SELECT pg_sleep({length_s}) /*tidegate_class='{kind}'*/"
           for kind in ("high", "low")}
    with proxy(server, options, f"fixed:{limit}", top, sections) as (at, _):
        quiet = Arrivals(at.port)
        asyncio.run(quiet.run({"high": (peak / 10, sql["high"])}, options.seconds))
        full = Arrivals(at.port)
        rates = {"high": (0.3 * peak, sql["high"]), "low": (9.7 * peak, sql["low"])}
        begin = at.by_class("tidegate_transactions_total", outcome="completed")
        lasted = asyncio.run(full.run(rates, options.overload_seconds))
        end = at.by_class("tidegate_transactions_total", outcome="completed")
        counted = {}
        for sample, value in at.metrics().items():
            if sample.startswith("tidegate_class_refused_total") and value:
                counted[sample.split("{")[1][:-1]] = int(value)
    reached = sum(end.values()) - sum(begin.values())
    print(f"\n## Overload\n\nTransactions of {length_s * 1e3:.0f} ms at `fixed:{limit}`: "
          f"{peak:.0f} a second are possible. {10 * peak:,.0f} arrivals a second for "
          f"{options.overload_seconds} s (it took the clients {lasted:.1f} s), 3 % of them high. "
          "The low class has a deadline of 2 s and a queue of 50.\n")
    print(script.head("lrr", "figure", "rule", "measured"))
    print(script.row("admitted throughput over the peak", "≥ 0.95",
                     f"{reached / lasted / peak:.3f}"))
    ratio = p99(full.done["high"]) / p99(quiet.done["high"])
    print(script.row("p99 of high over that without load", "≤ 2",
                     f"{ratio:.2f} ({p99(full.done['high']) * 1e3:.1f} ms over "
                     f"{p99(quiet.done['high']) * 1e3:.1f} ms)"))
    told = sum(full.refused.values())
    print(script.row("refusals told over counted", "1", f"{told} / {sum(counted.values())}"))
    print(f"\nClients were told: {full.refused}. The proxy counted: {counted}.")


PARTS = {"priority": priority, "weights": weights, "ageing": ageing, "overload": overload}


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--control", default="fixed:4", help="of the part priority")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--overload-seconds", type=int, default=60)
    options = script.parsed(parser)
    raise_file_limit(20_000)
    print(f"# Priorities at the proxy\n\nMade by `bench/priorities.py`: {script.where(options)}; "
          f"load average at the start {os.getloadavg()[0]:.1f}.")
    with script.private_server(1) as server:
        for part in options.parts:
            PARTS[part](server, options)


if __name__ == "__main__":
    script.run(main)
