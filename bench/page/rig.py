"""A proxy with its page, under load, with clients whose names are hostile."""

import contextlib
import json
import os
import subprocess
import urllib.request

from compare import servers
from compare.processes import started, wait_until

TOKEN = "a-token-for-the-check"
# What a page must show and not obey; in names of users and databases PostgreSQL allows all of it.
HOSTILE = '<img src=x onerror="document.title=1">\'&amp;'


class Proxy:
    """A running proxy with an admin interface."""

    def __init__(self, port, admin, process):
        self.port, self.admin, self.process = port, admin, process

    @property
    def url(self):
        """Where the page is."""
        return f"http://127.0.0.1:{self.admin}/"

    def status(self):
        """The document."""
        with urllib.request.urlopen(f"{self.url}status.json", timeout=10) as answer:
            return json.load(answer)


@contextlib.contextmanager
def proxy(directory, server, program, *, control="paired-comparison", threads=1):
    """A proxy before a server, with the token for orders."""
    port, admin = servers.free_port(), servers.free_port()
    (directory / "token").write_text(TOKEN)
    (directory / "tidegate.toml").write_text(f"""\
listen = ["127.0.0.1:{port}"]
admin_listen = "127.0.0.1:{admin}"
admin_token_file = "token"
threads = {threads}
[high_priority]
applications = ["till"]
[databases."*"]
upstream = "postgres://127.0.0.1:{server.port}"
control = "{control}"
max_mpl = 400
""")
    log = directory / "proxy.log"
    command = [program, "proxy", "-c", directory / "tidegate.toml"]
    with log.open("w") as output, started(command, stdout=output, stderr=output) as process:
        wait_until(lambda: servers.accepts(admin), process, log)
        yield Proxy(port, admin, process)


@contextlib.contextmanager
def load(server, port, clients, application="pgbench", *, threads=2, seconds=3600, more=()):
    """Clients of pgbench at a port, until the block ends."""
    arguments = ["-n", "-c", clients, "-j", min(threads, clients), "-T", seconds, *more]
    command = server.command("pgbench", *arguments, "postgres")
    command[command.index("-h") + 1] = "127.0.0.1"
    command[command.index("-p") + 1] = str(port)
    environment = {**os.environ, "PGAPPNAME": application}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    with started(command, **quiet) as process:
        yield process


@contextlib.contextmanager
def hostile_client(server, port):
    """A client with a hostile user, database and application, inside a transaction."""
    quoted = HOSTILE.replace('"', '""')
    server.sql(f'CREATE ROLE "{quoted}" LOGIN SUPERUSER', f'CREATE DATABASE "{quoted}"')
    words = HOSTILE.replace("\\", "\\\\").replace("'", "\\'")
    target = f"host=127.0.0.1 port={port} user='{words}' dbname='{words}' " \
             f"application_name='{words}'"
    command = ["psql", "-X", target, "-c", "SELECT pg_sleep(600)"]
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield process
