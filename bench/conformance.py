#!/usr/bin/env python3
"""Run the checks of bench/clients directly and through Tidegate, in both modes, plain and with TLS.

Starts a private PostgreSQL and a proxy for each way, installs the clients into a private directory
with their package managers, and prints Markdown: a row for each client, and one for each check that
is not as it is directly. Ends with exit code 1 when one of those has no reason in
bench/clients/reasons.json. Everything started here is stopped here, by its process id.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys

from compare import processes, script, servers
from compare.machine import ROOT, commit, version
from compare.processes import Failed, catch_signals, find_program, started, time_limit
from compare.script import head, row, say

CLIENTS = ROOT / "bench" / "clients"
# A client that hangs is stopped after this; its other checks have no result.
CLIENT_LIMIT_S = 600
INSTALL_LIMIT_S = 900
PASSWORD = "secret"
POSTGRESQL_JDBC = "org.postgresql:postgresql:42.7.4"
MAVEN_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
NO_RESULT = "error: the client ended before this check"


@dataclasses.dataclass(frozen=True)
class Way:
    """How clients reach the server: `mode` is None for directly."""

    name: str
    mode: str | None = None
    has_tls: bool = False


DIRECT = Way("direct")
WAYS = (DIRECT, Way("session", "session"), Way("session, TLS", "session", True),
        Way("transaction", "transaction"), Way("transaction, TLS", "transaction", True))


run_quietly = functools.partial(processes.run_quietly, limit_s=INSTALL_LIMIT_S)


def needed(*programs):
    """Raise Failed unless these programs are there."""
    for program in programs:
        if not find_program(program):
            raise Failed(f"{program} is not installed")


class Client:
    """A program of bench/clients; `arguments` follow its path."""

    def __init__(self, name, path):
        self.name, self.path = name, CLIENTS / path

    def install(self, _directory):
        """Bring what the program needs into a directory of this client's own."""

    def command(self, _directory):
        """Return the words that run the program."""
        return [sys.executable, self.path]


class Python(Client):
    """Clients from PyPI, in a virtual environment for all of them; or as they are installed."""

    def __init__(self, name, path, *modules):
        super().__init__(name, path)
        self.modules = modules

    def install(self, directory):
        environment = directory / "python"
        versions = (self.path.parent / "requirements.txt").read_text()
        if not is_stamped(environment, versions):
            run_quietly(sys.executable, "-m", "venv", "--clear", environment)
            run_quietly(environment / "bin" / "python", "-m", "pip", "install", "--quiet", "-r",
                        self.path.parent / "requirements.txt")
            stamp(environment, versions)

    def command(self, directory):
        if directory is not None:
            return [directory / "python" / "bin" / "python", self.path]
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                raise Failed(f"Python's package {module} is not installed")
        return [sys.executable, self.path]


class Node(Client):
    """Clients from npm."""

    def install(self, directory):
        needed("node", "npm")
        own = directory / "node"
        versions = (self.path.parent / "package.json").read_text()
        if not is_stamped(own, versions):
            own.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.path.parent / "package.json", own)
            run_quietly("npm", "install", "--silent", "--no-audit", "--no-fund", cwd=own)
            stamp(own, versions)

    def command(self, directory):
        return ["env", f"NODE_PATH={directory / 'node' / 'node_modules'}", "node", self.path]


class Go(Client):
    """Clients from the Go module proxy, built here."""

    def install(self, directory):
        needed("go")
        (directory / "go").mkdir(parents=True, exist_ok=True)
        run_quietly("go", "build", "-p", "1", "-o", directory / "go" / "checks", ".",
                    cwd=self.path)

    def command(self, directory):
        return [directory / "go" / "checks"]


class Java(Client):
    """Clients from Maven Central; Java compiles the one source file itself."""

    def install(self, directory):
        needed("java", "mvn")
        if not self.jar(directory).exists():
            run_quietly("mvn", "-q", "-B", f"-Dmaven.repo.local={directory / 'maven'}", MAVEN_COPY,
                        f"-Dartifact={POSTGRESQL_JDBC}", f"-DoutputDirectory={directory / 'java'}")

    def jar(self, directory):
        """Return where the driver is."""
        _, name, number = POSTGRESQL_JDBC.split(":")
        return directory / "java" / f"{name}-{number}.jar"

    def command(self, directory):
        return ["java", "-Xmx2g", "-cp", self.jar(directory), self.path]


class Rust(Client):
    """Clients from crates.io, built here."""

    def install(self, directory):
        needed("cargo")
        run_quietly("cargo", "build", "--locked", "--target-dir", directory / "rust",
                    "--manifest-path", self.path / "Cargo.toml")

    def command(self, directory):
        return [directory / "rust" / "debug" / "checks"]


def is_stamped(directory, text):
    """Tell whether what `text` names has been installed in a directory."""
    with contextlib.suppress(OSError):
        return (directory / "installed").read_text() == text
    return False


def stamp(directory, text):
    """Note that what `text` names has been installed."""
    (directory / "installed").write_text(text)


ALL = (
    Client("psql and pgbench", "libpq/check_psql.py"),
    Python("psycopg 3", "python/check_psycopg.py", "psycopg", "psycopg_pool"),
    Python("psycopg2", "python/check_psycopg2.py", "psycopg2"),
    Python("asyncpg", "python/check_asyncpg.py", "asyncpg"),
    Python("SQLAlchemy", "python/check_sqlalchemy.py", "sqlalchemy", "psycopg", "psycopg2"),
    Java("pgjdbc", "java/Checks.java"),
    Node("node-postgres", "node/check_pg.js"),
    Go("pgx", "go"),
    Rust("tokio-postgres", "rust"),
)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [client.name for client in ALL]
    parser.add_argument("--clients", nargs="+", choices=names, metavar="NAME", default=names,
                        help=f"only these of: {', '.join(names)}")
    parser.add_argument("--checks", nargs="+", metavar="NAME", default=[], help="only these checks")
    parser.add_argument("--ways", nargs="+", choices=[way.name for way in WAYS], metavar="WAY",
                        default=[way.name for way in WAYS],
                        help="only these beside direct: session, transaction, each also with TLS")
    parser.add_argument("--megabytes", type=int, default=50, help="size of large values")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "out" / "conformance",
                        help="where clients are installed")
    parser.add_argument("--as-installed", action="store_true",
                        help="install nothing; clients that are not there are skipped")
    parser.add_argument("--log-level", default="warn", help="of the proxies")
    script.add_outputs(parser)
    options = parser.parse_args()
    script.check_programs(parser, options)
    options.tidegate = options.tidegate.resolve()
    return options


def authority(directory):
    """Make an authority `ca.crt` and a certificate of localhost, `tls.crt` with `tls.key`."""
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = directory / "names"
    names.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    run_quietly("openssl", "req", "-x509", *new_key, "-keyout", directory / "ca.key", "-out",
                directory / "ca.crt", "-days", "2", "-subj", "/CN=checks")
    run_quietly("openssl", "req", *new_key, "-keyout", directory / "tls.key", "-out",
                directory / "tls.csr", "-subj", "/CN=localhost")
    run_quietly("openssl", "x509", "-req", "-in", directory / "tls.csr", "-CA",
                directory / "ca.crt", "-CAkey", directory / "ca.key", "-CAcreateserial", "-out",
                directory / "tls.crt", "-days", "2", "-extfile", names)


@contextlib.contextmanager
def endpoint(way, server, directory, options):
    """Start what a way needs. Clients of a proxy log in by SCRAM, with TLS bound to it."""
    if way.mode is None:
        yield servers.Endpoint(server.port)
        return
    own = directory / way.name.replace(", ", "-")
    own.mkdir()
    users = own / "users.txt"
    users.write_text(f'"postgres" "{PASSWORD}"\n')
    given = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--log-level",
             options.log_level, "--users-file", users, "--mode", way.mode, "--upstream",
             f"postgres://127.0.0.1:{server.port}?sslmode=disable"]
    if way.has_tls:
        given += ["--tls-certificate", directory / "tls.crt", "--tls-key", directory / "tls.key",
                  "--tls-mode", "require"]
    with servers.proxy(own, options.tidegate, *given) as found:
        yield found
        if found.process.poll() is not None:
            raise Failed(f"the proxy ended by itself, with {found.process.returncode}: "
                         f"{(own / 'log').read_text()[-500:]}")


def variables(way, port, directory, options):
    """Return the environment of a client."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**kept, "PGHOST": "localhost", "PGPORT": str(port), "PGUSER": "postgres",
            "PGPASSWORD": PASSWORD, "PGDATABASE": "postgres",
            "PGSSLMODE": "verify-full" if way.has_tls else "disable",
            "PGSSLROOTCERT": str(directory / "ca.crt"),
            "CHECK_MEGABYTES": str(options.megabytes), "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1"}


def run_client(client, way, port, directory, options):
    """Return a client's version and the outcome of each check."""
    installed = None if options.as_installed else options.directory
    command = [*client.command(installed), *options.checks]
    found, log = {}, directory / "client.log"
    with log.open("w") as errors, \
            started(command, stdout=subprocess.PIPE, stderr=errors,
                    env=variables(way, port, directory, options)) as process:
        try:
            with time_limit(CLIENT_LIMIT_S):
                for line in process.stdout:
                    name, _, outcome = line.strip().partition(" ")
                    found[name] = outcome
                code = process.wait()
        except Failed:
            found["hangs"] = f"error: still running after {CLIENT_LIMIT_S} s"
            code = 0
    if code:
        said = " ".join(log.read_text().split())[-200:]
        found["exit"] = f"error: exit code {code}: {said}"
    return found.pop("version", "unknown"), found


def all_ways(client, options, directory, ports):
    """Run a client in every way; return its row for the report."""
    outcomes = {}
    for way, port in ports.items():
        number, outcomes[way.name] = run_client(client, way, port, directory, options)
        bad = {name: said for name, said in outcomes[way.name].items() if said != "ok"}
        good = len(outcomes[way.name]) - len(bad)
        say(f"{client.name}, {way.name}: {good} ok")
        for name, said in bad.items():
            say(f"    {name} {said}")
    return {"client": client.name, "version": number, "outcomes": outcomes}


def measure_all(options, known):
    """Run all clients; a client that cannot be installed is skipped with the reason."""
    runs = []
    chosen = [client for client in ALL if client.name in options.clients]
    ways = [way for way in WAYS if way is DIRECT or way.name in options.ways]
    with script.directory("tidegate-conformance-") as directory, \
            servers.postgres(directory) as server, contextlib.ExitStack() as stack:
        authority(directory)
        ports = {way: stack.enter_context(endpoint(way, server, directory, options)).port
                 for way in ways}
        for client in chosen:
            try:
                if not options.as_installed:
                    client.install(options.directory)
                elif type(client) not in (Client, Python):
                    raise Failed("it is installed without --as-installed only")
                runs.append(all_ways(client, options, directory, ports))
            except (Failed, OSError) as failure:
                reason = " ".join(str(failure).split())
                say(f"{client.name} is skipped: {reason}")
                runs.append({"client": client.name, "skipped": reason})
            script.keep(runs, known, options)
    return runs


def differences(runs):
    """Yield (client, check, way, directly, outcome) wherever a way is not as direct."""
    for run in runs:
        outcomes = run.get("outcomes", {})
        direct = outcomes.get(DIRECT.name, {})
        for name in dict.fromkeys(name for found in outcomes.values() for name in found):
            wanted = direct.get(name, NO_RESULT)
            for way, found in outcomes.items():
                outcome = found.get(name, NO_RESULT)
                if outcome != wanted and not (is_bad(outcome) and is_bad(wanted)):
                    yield run["client"], name, way, wanted, outcome


def is_bad(outcome):
    """Tell whether a check failed."""
    return outcome != "ok"


def reason(known, client, check, way):
    """Return why a check differs, if that is known: by client and check, else by check."""
    mode = way.partition(",")[0]
    for key in (f"{client}: {check}", check):
        if key in known.get(mode, {}):
            return known[mode][key]
    return None


def table(columns, rows):
    """Return a table of text as Markdown."""
    return "\n".join([head("l" * len(columns), *columns), *(row(*cells) for cells in rows)])


def counts(run):
    """Return a client's row of the first table."""
    if "skipped" in run:
        return [run["client"], f"skipped: {run['skipped']}", *["–"] * len(WAYS)]
    cells = []
    for way in WAYS:
        found = run["outcomes"].get(way.name)
        good = sum(outcome == "ok" for outcome in found.values()) if found else 0
        cells.append(f"{good} of {len(found)}" if found else "–")
    return [run["client"], run["version"], *cells]


def document(runs, known, notes):
    """Return the whole report."""
    reasons = json.loads((CLIENTS / "reasons.json").read_text())
    rows = [[client, f"`{check}`", way, wanted, outcome.replace("|", "\\|"),
             reason(reasons, client, check, way) or "**unexplained**"]
            for client, check, way, wanted, outcome in differences(runs)]
    both = [[run["client"], f"`{name}`", outcome.replace("|", "\\|")]
            for run in runs for name, outcome in run.get("outcomes", {}).get("direct", {}).items()
            if is_bad(outcome)]
    blocks = ["# Clients, directly and through Tidegate",
              "\n".join(f"- {name}: {text}" for name, text in known.items()), *notes,
              "Checks that are ok, of those that the client has. What each checks is in "
              "[bench/clients](../../bench/clients/README.md). Directly the server trusts its "
              "clients; through Tidegate they log in by SCRAM, and with TLS they verify the "
              "certificate and its host.",
              table(["client", "version", *(way.name for way in WAYS)], map(counts, runs)),
              "## What is not as it is directly"]
    blocks.append(table(["client", "check", "way", "directly", "through Tidegate", "reason"], rows)
                  if rows else "Nothing.")
    if both:
        blocks += ["## What fails directly", table(["client", "check", "directly"], both)]
    return "\n\n".join(blocks) + "\n"


def facts(options):
    """Return where and how it was run."""
    words = " ".join(f"'{word}'" if " " in word else word for word in sys.argv[1:])
    return {"command": f"`bench/conformance.py {words}`".replace(" `", "`"),
            "programs": f"{version(options.tidegate)}{commit()}; {version('postgres')}",
            "size of large values": f"{options.megabytes} MB"}


def main():
    options = arguments()
    catch_signals()
    unexplained = []

    def checked(runs, known, notes):
        reasons = json.loads((CLIENTS / "reasons.json").read_text())
        unexplained.extend(row for row in differences(runs) if not reason(reasons, *row[:3]))
        return document(runs, known, notes)

    script.report(measure_all, checked, facts(options), [], options)
    if unexplained:
        sys.exit(f"{len(unexplained)} differences have no reason in bench/clients/reasons.json")


if __name__ == "__main__":
    main()
