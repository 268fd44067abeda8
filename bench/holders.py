#!/usr/bin/env python3
"""Measure how long a point select waits beside transactions that are open for long.

One private PostgreSQL; for each family of holders a proxy for every controller, all at the same
time, each with its own holders and its own point selects. The holders begin together, and from
that moment a point select arrives every --period seconds, whether those before it have ended or
not; its wait is counted from its arrival. Prints a Markdown table: the 99th percentile and the
longest wait by family and controller. What was not answered when the time was over counts with
the time it had waited until then. The tables are no test: the exit code is 0 whatever they show.
"""

import asyncio
import contextlib
import re
import struct
import subprocess
import time

from compare import script, servers
from compare.idle import STARTUP, message, raise_file_limit
from compare.processes import Failed

SCALE = 1
ACCOUNTS = 100_000 * SCALE
# 200 MB in rows of 100 kB.
LARGE = "SELECT repeat('x', 100000) FROM generate_series(1, 2000)"
# For each family: how many holders, what one sends, whether it reads the answer, and whether it
# begins again when it is through.
FAMILIES = {
    "20 idle": (20, "BEGIN; SELECT 1", True, False),
    "30 idle": (30, "BEGIN; SELECT 1", True, False),
    "4 of 25 s": (4, "SELECT pg_sleep(25)", True, True),
    "8 of 20 s": (8, "SELECT pg_sleep(20)", True, True),
    "20 unread": (20, LARGE, False, False),
}
# Controllers that go by the server's locks.
NEED_LOCKS = ("half-and-half", "conflict-ratio")
# Connections for point selects: more than ever wait at once, unless everything stands still.
STRANGERS = 24
SPARE_FILES = 200


class Client:
    """A connection through the simple query protocol."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, port):
        # A small buffer: what is not read is not taken off the proxy's hands either.
        client = cls(*await asyncio.open_connection("127.0.0.1", port, limit=16 * 1024))
        client.writer.write(STARTUP)
        await client.until_ready()
        return client

    async def until_ready(self):
        kind = b""
        while kind != b"Z":
            kind, length = struct.unpack("!ci", await self.reader.readexactly(5))
            body = await self.reader.readexactly(length - 4)
            if kind == b"E":
                raise Failed(f"a client was told: {body!r}")

    def send(self, sql):
        self.writer.write(message(b"Q", sql.encode() + b"\0"))

    async def query(self, sql):
        self.send(sql)
        await self.until_ready()

    def close(self):
        self.writer.transport.abort()


class Site:
    """A proxy's clients: holders, and point selects that arrive on a schedule."""

    def __init__(self, port, family, options):
        self.port, self.family, self.options = port, FAMILIES[family], options
        self.waits, self.errors, self.number = [], 0, 0

    async def run(self):
        count, *_ = self.family
        holders = [await Client.connect(self.port) for _ in range(count)]
        self.free = asyncio.Queue()
        for _ in range(STRANGERS):
            self.free.put_nowait(await Client.connect(self.port))
        tasks = [asyncio.create_task(self.hold(holder)) for holder in holders]
        self.end = time.monotonic() + self.options.seconds
        selects, due = [], time.monotonic()
        while due < self.end:
            await asyncio.sleep(max(0, due - time.monotonic()))
            selects.append(asyncio.create_task(self.select(due)))
            due += self.options.period
        await asyncio.sleep(max(0, self.end - time.monotonic()))
        for task in (*tasks, *selects):
            task.cancel()
        await asyncio.gather(*tasks, *selects, return_exceptions=True)
        for client in holders:
            client.close()

    async def hold(self, holder):
        _, sql, reads, again = self.family
        holder.send(sql)
        while reads:
            await holder.until_ready()
            if not again:
                return
            holder.send(sql)

    async def select(self, due):
        client = None
        try:
            client = await self.free.get()
            self.number = self.number % ACCOUNTS + 1
            await client.query(f"SELECT abalance FROM pgbench_accounts WHERE aid = {self.number}")
            self.waits.append(time.monotonic() - due)
            self.free.put_nowait(client)
        except asyncio.CancelledError:
            self.waits.append(time.monotonic() - due)
            raise
        except (Failed, OSError, asyncio.IncompleteReadError) as error:
            self.errors += 1
            self.waits.append(self.options.seconds)
            script.say(f"a point select failed: {error}")


def controllers(program, start):
    """Every name that `--control` knows, and a fixed limit."""
    text = subprocess.run([program, "proxy", "--help"], capture_output=True, text=True).stdout
    names = re.search(r"chooses the limit: ([\w\s,-]+), or\s+fixed:N", text)
    if not names:
        raise Failed(f"{program} proxy --help names no controllers")
    return [*re.findall(r"[\w-]+", names[1]), f"fixed:{start}"]


@contextlib.contextmanager
def proxies(server, names, options):
    """A proxy for each controller; their ports by name."""
    with contextlib.ExitStack() as stack:
        ports = {}
        for name in names:
            arguments = [] if name.startswith("fixed") else ["--start-mpl", options.start]
            arguments += ["--watch", "--watch-user", "postgres"] if name in NEED_LOCKS else []
            proxy = script.connection(server, options, name, *arguments, has_journal=False)
            ports[name] = stack.enter_context(proxy)[0].port
        yield ports


async def measure(ports, family, options):
    sites = {name: Site(port, family, options) for name, port in ports.items()}
    # One after another would take the family's time for each.
    await asyncio.gather(*(site.run() for site in sites.values()))
    return sites


def quantile(waits, share):
    ordered = sorted(waits)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(names, results):
    """Rows of controllers, a pair of columns for each family."""
    columns = [column for family in results for column in (f"{family}, p99", "max")]
    lines = [script.head("l" + "r" * len(columns), "controller", *columns)]
    for name in names:
        waits = [sites[name].waits for sites in results.values()]
        cells = [value for own in waits for value in (quantile(own, 0.99), max(own))]
        lines.append(script.row(name, *(f"{value:.2f}" for value in cells)))
    return "\n".join(lines)


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--controllers", nargs="+", help="instead of all")
    parser.add_argument("--seconds", type=float, default=60, help="of each family")
    parser.add_argument("--period", type=float, default=0.1, help="between two point selects")
    parser.add_argument("--start", type=int, default=4, help="the limit to begin with")
    options = script.parsed(parser)
    names = options.controllers or controllers(options.tidegate, options.start)
    raise_file_limit(len(names) * 200 + SPARE_FILES)
    results = {}
    servers.POSTGRES_SETTINGS["max_connections"] = 60 * len(names) + 20
    with script.private_server(SCALE) as server:
        for family in options.families:
            with proxies(server, names, options) as ports:
                results[family] = asyncio.run(measure(ports, family, options))
            script.say(f"{family}: measured")
    selects = sum(len(site.waits) for sites in results.values() for site in sites.values())
    errors = sum(site.errors for sites in results.values() for site in sites.values())
    print(f"{script.where(options)}, {options.seconds:g} s each, a point select every "
          f"{options.period:g} s, start limit {options.start}, {len(names)} proxies at once; "
          f"{selects} point selects, {errors} failed. Waits in seconds.\n")
    print(table(names, results))


if __name__ == "__main__":
    script.run(main)
