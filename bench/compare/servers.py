"""The private PostgreSQL server and the poolers before it. Loopback only, free ports."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from .processes import Failed, find_program, started, undisturbed, unprivileged, wait_until

# What is not PostgreSQL's default.
POSTGRES_SETTINGS = {"max_connections": 1100, "shared_buffers": "256MB"}
# So that every subject starts with the same database: what its predecessor has left running is
# ended, dead row versions go, and no checkpoint is due. `pgbench` does the first three itself.
LEVEL = [
    "TRUNCATE pgbench_history",
    "VACUUM pgbench_branches",
    "VACUUM pgbench_tellers",
    "VACUUM pgbench_accounts",
    "CHECKPOINT",
]
OTHERS = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
SQL_LIMIT_S = 120

PGBOUNCER_INI = """\
[databases]
postgres = host=127.0.0.1 port={upstream}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 12000
log_connections = 0
log_disconnections = 0
"""


@dataclasses.dataclass
class Endpoint:
    """Where a load connects, and the pooler's process when there is one."""

    port: int
    process: subprocess.Popen | None = None
    journal: pathlib.Path | None = None
    # The journal counts seconds from here, on the monotonic clock.
    since: float = 0.0

    def intervals(self):
        """The journal's control intervals, `at` on the monotonic clock."""
        if self.journal is None or not self.journal.exists():
            return []
        lines = self.journal.read_text().splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        # The other lines say how the limit is found.
        return [{"at": self.since + row["at_s"], **row} for row in rows
                if row["line"] == "decision"]


def free_port():
    """A port nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port):
    """Whether somebody listens at a port."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class PrivatePostgres:
    """A running server; `sql` goes by its own Unix-domain socket, so it cannot be another's."""

    def __init__(self, directory, port, process):
        self.directory, self.port, self.process = directory, port, process

    def command(self, program, *arguments):
        """A client program's command line."""
        return [find_program(program), "-h", self.directory, "-p", str(self.port),
                "-U", "postgres", *map(str, arguments)]

    def sql(self, *statements):
        """Run statements one by one; the rows as text."""
        options = [word for sql in statements for word in ("-c", sql)]
        command = [*self.command("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", *options), "postgres"]
        done = subprocess.run([str(word) for word in command], text=True, timeout=SQL_LIMIT_S,
                              stdin=subprocess.DEVNULL, capture_output=True)
        if done.returncode:
            raise RuntimeError(f"PostgreSQL: {done.stderr.strip()}")
        return done.stdout.strip()

    def level(self):
        """Give the next run the database that all others had."""
        deadline = time.monotonic() + SQL_LIMIT_S
        while self.sql(f"SELECT count(pg_terminate_backend(pid)) {OTHERS}") != "0":
            if time.monotonic() > deadline:
                raise RuntimeError("PostgreSQL: sessions of the last run do not end")
            time.sleep(0.1)
        self.sql(*LEVEL)


@contextlib.contextmanager
def postgres(parent, scale=1, more=None):
    """Start a private server with pgbench's tables at a scale, and more settings."""
    directory, rights = pathlib.Path(parent, "postgres"), unprivileged()
    directory.mkdir()
    if rights:
        shutil.chown(directory, rights["user"], rights["group"])
    data, log, port = directory / "data", directory / "log", free_port()
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE,
             "stdin": subprocess.DEVNULL, "text": True, "timeout": SQL_LIMIT_S}
    with undisturbed():
        subprocess.run([find_program("initdb"), "-D", data, "-U", "postgres", "-A", "trust",
                        "--no-sync", "--no-instructions"], cwd=directory, **quiet, **rights)
    settings = {**POSTGRES_SETTINGS, **(more or {}), "port": port, "listen_addresses": "127.0.0.1",
                "unix_socket_directories": directory}
    command = [find_program("postgres"), "-D", data]
    command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    # SIGINT: end all sessions and stop; SIGQUIT: stop at once.
    with log.open("w") as output, \
            started(command, stop_with=(signal.SIGINT, signal.SIGQUIT), cwd=directory,
                    stdout=output, stderr=output, **rights) as process:
        server = PrivatePostgres(directory, port, process)

        def ready():
            with contextlib.suppress(RuntimeError):
                return server.sql("SELECT 'ready'")

        wait_until(ready, process, log)
        pgbench = server.command("pgbench", "-i", "-q", "-s", scale, "postgres")
        subprocess.run(pgbench, **quiet)
        yield server


@contextlib.contextmanager
def direct(server, _directory):
    """No pooler: clients connect to PostgreSQL."""
    yield Endpoint(server.port)


@contextlib.contextmanager
def pgbouncer(server, directory, pool, more=()):
    """PgBouncer in transaction mode with a pool of `pool` connections, and more settings."""
    rights, port = unprivileged(), free_port()
    users, ini, log = directory / "users.txt", directory / "pgbouncer.ini", directory / "log"
    users.write_text('"postgres" ""\n')
    text = PGBOUNCER_INI.format(upstream=server.port, port=port, users=users, pool=pool)
    ini.write_text("\n".join([text, *more, ""]))
    with log.open("w") as output, \
            started([find_program("pgbouncer"), "-q", ini], cwd=directory, stdout=output,
                    stderr=output, **rights) as process:
        wait_until(lambda: accepts(port), process, log)
        yield Endpoint(port, process)


@contextlib.contextmanager
def tidegate(server, directory, program, *arguments, has_journal=True):
    """Tidegate in transaction mode, its default."""
    journal = directory / "journal.jsonl"
    given = ["--listen", "127.0.0.1:0", "--log-level", "warn",
             "--upstream", f"postgres://127.0.0.1:{server.port}",
             *(["--journal", journal] if has_journal else []), *arguments]
    with proxy(directory, program, *given) as endpoint:
        yield dataclasses.replace(endpoint, journal=journal if has_journal else None)


@contextlib.contextmanager
def proxy(directory, program, *arguments):
    """`tidegate proxy` with these arguments, which let it choose its port; its log is `log`."""
    log, since = directory / "log", time.monotonic()
    with log.open("w") as output, \
            started([program, "proxy", *arguments], stdout=output, stderr=output,
                    env={**os.environ, "NO_COLOR": "1"}) as process:

        def address():
            return re.search(r"listening on \S+:(\d+)\n", log.read_text(errors="replace"))

        port = int(wait_until(address, process, log)[1])
        yield Endpoint(port, process, since=since)


@contextlib.contextmanager
def subject(which, server, parent, program, seed):
    """Start what a subject names; its files are removed at the end."""
    directory = pathlib.Path(parent, "subject")
    directory.mkdir()
    directory.chmod(0o755)
    try:
        if which.kind == "tidegate":
            manager = tidegate(server, directory, program, "--seed", seed,
                               *which.arguments)
        elif which.kind == "pgbouncer":
            manager = pgbouncer(server, directory, *which.arguments)
        else:
            manager = direct(server, directory)
        with manager as endpoint:
            yield endpoint
            if endpoint.process and endpoint.process.poll() is not None:
                raise Failed(f"{which.name} ended by itself, with {endpoint.process.returncode}")
    finally:
        with undisturbed():
            shutil.rmtree(directory)
