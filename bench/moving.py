#!/usr/bin/env python3
"""Time the commands of docs/from-pgbouncer.md: from a pgbouncer.ini to a proxy that is monitored.

Starts a private PostgreSQL, writes a configuration of PgBouncer for it, and runs the commands of
the page one after the other. Prints a row for each with its time, and ends with exit code 1 when
one of them fails or all together take longer than five minutes. Everything started here is stopped
here, by its process id.
"""

import subprocess
import sys
import time
import urllib.request

from compare import script, servers
from compare.processes import Failed, catch_signals, find_program, started, wait_until
from compare.script import head, row, say

LIMIT_S = 300
INI = """
[databases]
postgres = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
pool_mode = transaction
admin_users = boss
default_pool_size = 20
max_client_conn = 500
"""


def timed(steps, what, action):
    """Do something, and note how long it took."""
    began = time.monotonic()
    found = action()
    steps.append((what, time.monotonic() - began))
    return found


def command(*words):
    """Run a command; its output is an error's text if it fails."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise Failed(f"{words}: {done.stderr[-500:]}")
    return done.stdout


def move(options):
    """Run the commands of the page; return each with its time in seconds."""
    steps = []
    with script.directory("tidegate-moving-") as directory, \
            servers.postgres(directory) as server:
        port, admin = servers.free_port(), servers.free_port()
        ini, toml, log = (directory / name for name in ("pgbouncer.ini", "tidegate.toml", "log"))
        ini.write_text(INI.format(server=server.port, port=port))
        tidegate, psql = options.tidegate, find_program("psql")
        timed(steps, "tidegate import", lambda: command(tidegate, "import", ini, "-o", toml))
        toml.write_text(f'admin_listen = "127.0.0.1:{admin}"\n{toml.read_text()}')
        timed(steps, "tidegate check-config", lambda: command(tidegate, "check-config", toml))
        with log.open("w") as output, \
                started([tidegate, "proxy", "-c", toml], stdout=output, stderr=output) as process:
            timed(steps, "tidegate proxy, until it serves",
                  lambda: wait_until(lambda: servers.accepts(port), process, log))

            def ask(user, database, *sql):
                words = [word for text in sql for word in ("-c", text)]
                return command(psql, "-X", "-h", "127.0.0.1", "-p", port, "-U", user,
                               "-d", database, *words)

            timed(steps, "psql, a query", lambda: ask("postgres", "postgres", "SELECT 1"))
            timed(steps, "psql, the console",
                  lambda: ask("boss", "pgbouncer", "SHOW POOLS", "SHOW LIMIT"))
            with timed(steps, "/metrics", lambda: urllib.request.urlopen(
                    f"http://127.0.0.1:{admin}/metrics", timeout=LIMIT_S)) as page:
                if b"tidegate_limit" not in page.read():
                    raise Failed("/metrics has no tidegate_limit")
    return steps


def main():
    options = script.parsed(script.parser(__doc__))
    catch_signals()
    try:
        steps = move(options)
    except (Failed, OSError, subprocess.SubprocessError) as failure:
        sys.exit(f"error: {failure}")
    total = sum(seconds for _, seconds in steps)
    say(head("lr", "command", "seconds"))
    for what, seconds in [*steps, ("all", total)]:
        say(row(what, f"{seconds:.2f}"))
    if total > LIMIT_S:
        sys.exit(f"{total:.0f} s are more than {LIMIT_S}")


if __name__ == "__main__":
    main()
