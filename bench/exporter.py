#!/usr/bin/env python3
"""Run a public exporter of PgBouncer's metrics against Tidegate's console.

Installs prometheus-pgbouncer-exporter from PyPI into a private directory, starts a private
PostgreSQL, a proxy and the exporter, runs pgbench, and checks that every metric that the exporter
makes of PgBouncer 1.24 is there, that nothing has failed, and that the counts are those of pgbench.
Ends with exit code 1 if not. Everything started here is stopped here, by its process id.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import urllib.request
import venv

from compare import processes, script, servers
from compare.machine import ROOT
from compare.processes import Failed, catch_signals, started, wait_until
from compare.script import say

EXPORTER = "prometheus-pgbouncer-exporter==2.1.2"
# The versions that the exporter asks for are too old for the Pythons of today.
MODULES = ("psycopg2-binary", "prometheus_client", "python-json-logger", "PyYAML")
INSTALL_LIMIT_S = 300
TRANSACTIONS = 200
CLIENTS = 4
# What it makes of PgBouncer 1.24; `reserve_pool` has another name there since 1.24.
METRICS = """
pgbouncer_up
pgbouncer_stats_transactions_total pgbouncer_stats_queries_total
pgbouncer_stats_transactions_duration_microseconds_total
pgbouncer_stats_waiting_duration_microseconds_total
pgbouncer_stats_queries_duration_microseconds_total
pgbouncer_stats_received_bytes_total pgbouncer_stats_sent_bytes_total
pgbouncer_pools_client_active_connections pgbouncer_pools_client_waiting_connections
pgbouncer_pools_server_active_connections pgbouncer_pools_server_idle_connections
pgbouncer_pools_server_used_connections pgbouncer_pools_server_testing_connections
pgbouncer_pools_server_login_connections pgbouncer_pools_client_maxwait_seconds
pgbouncer_databases_database_pool_size pgbouncer_databases_database_current_connections
pgbouncer_databases_database_max_connections
pgbouncer_config_max_client_conn pgbouncer_config_max_user_connections
""".split()


def install(directory):
    """Return the Python of a virtual environment that has the exporter."""
    python = directory / "bin" / "python"
    if not python.exists():
        venv.create(directory, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    processes.run_quietly(*pip, *MODULES, limit_s=INSTALL_LIMIT_S)
    processes.run_quietly(*pip, "--no-deps", EXPORTER, limit_s=INSTALL_LIMIT_S)
    return python


def scrape(port):
    """Return the exporter's page, or None while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return None


def total(page, name):
    """Return the sum of a metric's samples; None if there is none."""
    samples = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", page, re.M)
    return sum(map(float, samples)) if samples else None


def mistakes(page, log):
    """Yield what is wrong with a page and the exporter's log."""
    for name in METRICS:
        if total(page, name) is None:
            yield f"{name} is missing"
    if total(page, "pgbouncer_up") != 1:
        yield f"pgbouncer_up is not 1: {log.read_text()[-500:]}"
    if "ERROR" in log.read_text():
        yield f"the exporter's log has an error: {log.read_text()[-500:]}"
    done = total(page, "pgbouncer_stats_transactions_total")
    # Each client of pgbench asks for the tables' sizes first.
    wanted = range(TRANSACTIONS * CLIENTS, TRANSACTIONS * CLIENTS + 10)
    if done not in wanted:
        yield f"{done} transactions, not {wanted.start} to {wanted.stop}"


def check(options):
    """Run the exporter and return what is wrong."""
    python = install(options.directory)
    with script.directory("tidegate-exporter-") as directory, \
            servers.postgres(directory) as server:
        own = directory / "proxy"
        own.mkdir()
        file = own / "tidegate.toml"
        file.write_text('listen = ["127.0.0.1:0"]\nadmin_listen = "127.0.0.1:0"\n'
                        'stats_users = ["watcher"]\n[databases."*"]\n'
                        f'upstream = "postgres://127.0.0.1:{server.port}"\n')
        with servers.proxy(own, options.tidegate, "-c", file) as found:
            subprocess.run([processes.find_program("pgbench"), "-h", "127.0.0.1",
                            "-p", str(found.port), "-U", "postgres", "-n", "-S",
                            "-c", str(CLIENTS), "-t", str(TRANSACTIONS), "postgres"],
                           check=True, capture_output=True, timeout=INSTALL_LIMIT_S)
            port, log = servers.free_port(), directory / "exporter.log"
            config = directory / "exporter.yml"
            config.write_text(f"exporter_host: 127.0.0.1\nexporter_port: {port}\npgbouncers:\n"
                              f"  - dsn: postgresql://watcher:@127.0.0.1:{found.port}/pgbouncer\n")
            exporter = [python, "-c", "from prometheus_pgbouncer_exporter.cli import main; main()",
                        "--config", config]
            with log.open("w") as out, started(exporter, stdout=out, stderr=out) as process:
                wait_until(lambda: scrape(port) is not None, process, log)
                page = scrape(port)
            return list(mistakes(page or "", log))


def main():
    """Check, and end with what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tidegate", type=pathlib.Path,
                        default=ROOT / "target" / "release" / "tidegate")
    parser.add_argument("--directory", type=pathlib.Path,
                        default=ROOT / "out" / "conformance" / "exporter")
    options = parser.parse_args()
    catch_signals()
    try:
        wrong = check(options)
    except (Failed, OSError, subprocess.SubprocessError) as failure:
        sys.exit(f"error: {failure}")
    if wrong:
        sys.exit("\n".join(wrong))
    say(f"{EXPORTER}: {len(METRICS)} metrics, no errors")


if __name__ == "__main__":
    main()
