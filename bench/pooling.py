#!/usr/bin/env python3
"""Compare the proxy as a connection pooler with PgBouncer and with no pooler, with and without TLS.

pgbench on a private PostgreSQL: point selects by the simple protocol and with prepared statements,
at several numbers of clients, and TPC-B at four. Both poolers have as many connections to the
server. Subjects take turns in each repetition; ratios are of runs of one repetition. Prints
Markdown: throughput, the pooler's CPU time a transaction, and the 99th percentile of the
response time. The figures are no test: the exit code is 0 whatever they show.

With prepared statements PgBouncer has to be 1.21 or later; scripts/setup-pgbouncer builds one.
"""

import contextlib
import dataclasses
import os
import re
import statistics
import subprocess
import time

from compare import idle, script, servers
from compare.loads import pgbench_command
from compare.processes import Failed, cpu_s, started, time_limit, unprivileged

CONNECTIONS = 20
SUBJECTS = ("direct", "PgBouncer", "Tidegate")
# Of the transactions, so many are in pgbench's log, of which the percentile is taken.
SAMPLED = 0.2
# Beside warm-up and measured time: connecting thousands of clients by TLS.
CONNECT_LIMIT_S = 120
OPENSSL = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
           "-nodes", "-days", "30", "-subj", "/CN=localhost")


@dataclasses.dataclass(frozen=True)
class Load:
    """What pgbench does: its script and protocol, the number of clients, and whether by TLS."""

    script: str
    protocol: str
    clients: int
    tls: bool


class Certificate:
    """A certificate and its key, for every server here."""

    def __init__(self, directory):
        self.path, self.key = directory / "certificate.pem", directory / "key.pem"
        subprocess.run([*OPENSSL, "-keyout", self.key, "-out", self.path], check=True,
                       capture_output=True, timeout=30)
        rights = unprivileged()
        if rights:
            os.chown(self.key, rights["user"], rights["group"])
        self.key.chmod(0o600)


@contextlib.contextmanager
def endpoint(name, server, certificate, tls, options):
    """Start one subject."""
    with script.directory() as place:
        if name == "direct":
            yield servers.Endpoint(server.port)
        elif name == "PgBouncer":
            more = ["server_tls_sslmode = disable"]
            if tls:
                more += ["client_tls_sslmode = require",
                         f"client_tls_cert_file = {certificate.path}",
                         f"client_tls_key_file = {certificate.key}"]
            with servers.pgbouncer(server, place, CONNECTIONS, more) as found:
                yield found
        else:
            files = ["--tls-certificate", certificate.path, "--tls-key", certificate.key]
            upstream = f"postgres://127.0.0.1:{server.port}?sslmode=disable"
            arguments = ["--listen", "127.0.0.1:0", "--log-level", "warn", "--upstream", upstream,
                         "--control", f"fixed:{CONNECTIONS}", *(files if tls else [])]
            with servers.proxy(place, options.tidegate, *arguments) as found:
                yield found


def measure(found, load, options, seed):
    """One run: throughput, the pooler's CPU microseconds a transaction, and the percentile."""
    with script.directory() as place:
        prefix = place / "log"
        command = pgbench_command(
            found.port, "-b", load.script, "-M", load.protocol, "-c", load.clients, "-j", 1,
            "-T", options.warmup + options.seconds, "-P", 1, "--progress-timestamp", "-l",
            "--sampling-rate", SAMPLED, "--log-prefix", prefix, "--random-seed", seed)
        environment = {**os.environ, "PGSSLMODE": "require" if load.tls else "disable"}
        samples, words = [], []
        with time_limit(options.warmup + options.seconds + CONNECT_LIMIT_S), \
                started(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                        env=environment) as client:
            for line in client.stderr:
                progress = re.match(r"progress: ([\d.]+) s, ([\d.]+) tps", line)
                if progress:
                    cpu = cpu_s(found.process) if found.process else 0.0
                    samples.append((time.time(), float(progress[2]), cpu))
                else:
                    words.append(line)
            if client.wait():
                raise Failed(f"pgbench: {''.join(words)[-300:].strip()}")
        samples = samples[options.warmup - 1:]
        if len(samples) < 2:
            raise Failed("pgbench has reported nothing: give it more --seconds")
        latencies = read_latencies_ms(prefix, samples[0][0], samples[-1][0])
        done = sum(now[1] * (now[0] - before[0]) for before, now in zip(samples, samples[1:]))
        return {"tps": done / (samples[-1][0] - samples[0][0]),
                "cpu_us": (samples[-1][2] - samples[0][2]) * 1e6 / done,
                "p99_ms": latencies[int(0.99 * len(latencies))]}


def read_latencies_ms(prefix, since, until):
    """Those of the logged transactions that ended between two moments, sorted."""
    found = []
    for path in prefix.parent.glob(f"{prefix.name}.*"):
        for line in path.read_text().splitlines():
            fields = line.split()
            if since <= int(fields[4]) + int(fields[5]) / 1e6 < until:
                found.append(int(fields[2]) / 1e3)
    if not found:
        raise Failed("pgbench has logged no transaction: give it more --seconds")
    return sorted(found)


def cell(figures):
    """Median, with the lowest and the highest."""
    middle = statistics.median(figures)
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    low, high = min(figures), max(figures)
    spread = f" [{low:,.{digits}f}–{high:,.{digits}f}]" if len(figures) > 1 else ""
    return f"{middle:,.{digits}f}{spread}"


def ratio(runs, key):
    """Tidegate over PgBouncer, run by run."""
    return cell([run["Tidegate"][key] / run["PgBouncer"][key] for run in runs])


def row(load, runs):
    """A row of the table."""
    name = "TPC-B" if load.script != "select-only" else load.protocol
    cells = [f"{name}{', TLS' if load.tls else ''}", load.clients]
    has_direct = all("direct" in run for run in runs)
    cells += [cell([run[name]["tps"] for run in runs]) if name != "direct" or has_direct else "–"
              for name in SUBJECTS]
    cells += [ratio(runs, "tps"), ratio(runs, "cpu_us")]
    cells += [cell([run[name]["p99_ms"] for run in runs]) for name in SUBJECTS[1:]]
    return script.row(*cells)


def repetition(load, server, certificate, options, seed):
    """Each subject once."""
    found = {}
    # In turn from another end, so that what drifts favours none.
    for name in SUBJECTS if seed % 2 else reversed(SUBJECTS):
        server.level()
        with endpoint(name, server, certificate, load.tls, options) as at:
            try:
                found[name] = measure(at, load, options, seed)
            except Failed as failure:
                # A server with thousands of clients of its own may be too busy to be measured.
                if name != "direct":
                    raise
                script.say(f"direct, {load.clients} clients: {failure}")
    return found


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--clients", nargs="+", type=int, default=[1, 64, 512, 2000])
    parser.add_argument("--protocols", nargs="+", default=["simple", "prepared"])
    parser.add_argument("--tls", nargs="+", choices=["off", "on"], default=["off", "on"])
    parser.add_argument("--seconds", type=int, default=6, help="measured time of a run")
    parser.add_argument("--warmup", type=int, default=2, help="uncounted time before it")
    parser.add_argument("--repetitions", type=int, default=3)
    options = script.parsed(parser)
    idle.raise_file_limit(script.FILES)
    loads = [Load("select-only", protocol, clients, tls == "on") for tls in options.tls
             for protocol in options.protocols for clients in options.clients]
    loads += [Load("tpcb-like", "simple", 4, tls == "on") for tls in options.tls]
    rows = []
    with script.directory() as place:
        certificate = Certificate(place)
        settings = {"max_connections": max(options.clients) + 100, "ssl": "on",
                    "ssl_cert_file": certificate.path, "ssl_key_file": certificate.key}
        with servers.postgres(place, 10, settings) as server:
            for load in loads:
                runs = [repetition(load, server, certificate, options, seed)
                        for seed in range(1, options.repetitions + 1)]
                rows.append(row(load, runs))
                script.say(rows[-1])
    about = (f"{script.where(options)}, {script.version('pgbouncer')}; {CONNECTIONS} connections "
             f"to the server; {options.seconds} s after {options.warmup} s of warm-up, "
             f"{options.repetitions} times: median, lowest and highest.")
    columns = ("load", "clients", "direct, tps", "PgBouncer, tps", "Tidegate, tps",
               "tps to PgBouncer's", "CPU to PgBouncer's", "PgBouncer, p99 ms", "Tidegate, p99 ms")
    script.print_table(about, "lrrrrrrrr", columns, rows)


if __name__ == "__main__":
    script.run(main)
