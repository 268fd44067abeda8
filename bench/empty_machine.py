#!/usr/bin/env python3
"""Time the way from an empty machine with a pgbouncer.ini to a Tidegate that is monitored.

A Debian of its own is booted, with PostgreSQL, PgBouncer and their configuration; nothing of ours
is on it but the package that `make package` has built. The commands of docs/from-pgbouncer.md are
run there one after the other. The rule, stated before: each succeeds, a query and the console
answer through the old port, Prometheus has scraped the proxy and evaluated the alert rules of the
package, if it has some, and all commands together take at most five minutes in every round. Needs
root and the network, and that ports 5432, 6432, 9090 and 9432 are free.
"""

import argparse
import pathlib
import shutil
import statistics
import sys
import time

from compare.machine import ROOT, commit, processor
from compare.processes import catch_signals
from compare.script import head, row, say

sys.path.insert(0, str(ROOT / "packaging"))

import machine  # noqa: E402
from build import OUT, version  # noqa: E402

LIMIT_S = 300
INI = """\
[databases]
shop = host=127.0.0.1 port=5432 dbname=shop
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = 6432
unix_socket_dir = /var/run/postgresql
auth_type = scram-sha-256
auth_file = /etc/pgbouncer/userlist.txt
admin_users = boss
stats_users = stats
pool_mode = transaction
default_pool_size = 20
max_client_conn = 500
"""
USERS = "app", "boss", "stats"
ASK = "PGPASSWORD=secret psql -X -At -h 127.0.0.1 -p 6432"
SCRAPE = """\
  - job_name: tidegate
    scrape_interval: 5s
    static_configs: [{ targets: ["127.0.0.1:9432"] }]
"""
# What an administrator types, and what each is for.
COMMANDS = (
    ("apt-get -q update", "the lists of Debian's packages"),
    ("apt-get -q install -y /var/tmp/tidegate.deb", "the package"),
    ("tidegate import /etc/pgbouncer/pgbouncer.ini > /etc/tidegate/tidegate.toml",
     "PgBouncer's configuration"),
    ("install -m 640 -g tidegate /etc/pgbouncer/userlist.txt /etc/tidegate/users.txt",
     "its users"),
    ("sed -i -e 's#^users_file = .*#users_file = \"users.txt\"#' "
     "-e '1i admin_listen = \"127.0.0.1:9432\"' /etc/tidegate/tidegate.toml",
     "their place, and where metrics are"),
    ("runuser -u tidegate -- tidegate check-config /etc/tidegate/tidegate.toml", "a check"),
    ("systemctl disable --now pgbouncer", "the port becomes free"),
    ("systemctl enable --now tidegate", "it runs"),
    (f"{ASK} -U app shop -c 'SELECT 1'", "a query"),
    (f"{ASK} -U boss pgbouncer -c 'SHOW POOLS' -c 'SHOW LIMIT'", "the console"),
    ("apt-get -q install -y --no-install-recommends prometheus", "Prometheus"),
    (f"cat >> /etc/prometheus/prometheus.yml <<'end'\n{SCRAPE}end", "what it scrapes"),
    ("sed -i 's#^rule_files:#&\\n  - /usr/share/tidegate/monitoring/*.rules.yml#' "
     "/etc/prometheus/prometheus.yml", "its alert rules"),
    ("promtool check config /etc/prometheus/prometheus.yml && systemctl restart prometheus",
     "it scrapes"),
    ("until promtool query instant http://127.0.0.1:9090 'up{job=\"tidegate\"} == 1' "
     "| grep -q tidegate; do sleep 0.5; done", "the proxy is seen"),
    ("test ! -e /usr/share/tidegate/monitoring || until wget -qO- "
     "http://127.0.0.1:9090/api/v1/rules | grep -q '\"health\":\"ok\"'; do sleep 0.5; done",
     "the alert rules, if there are any, are evaluated"),
)


def prepare(host):
    """What is there before: a server with a database, and PgBouncer in front of it."""
    for user in USERS:
        host.run(f"runuser -u postgres -- psql -c \"CREATE ROLE {user} LOGIN PASSWORD 'secret'\"")
    host.run("runuser -u postgres -- psql -c 'CREATE DATABASE shop OWNER app'")
    host.path("/etc/pgbouncer/pgbouncer.ini").write_text(INI)
    users = "".join(f'"{user}" "secret"\n' for user in USERS)
    host.path("/etc/pgbouncer/userlist.txt").write_text(users)
    host.run("systemctl restart pgbouncer")
    host.run(f"{ASK} -U app shop -c 'SELECT 1'")
    package = next(OUT.glob(f"tidegate_{version()}_*.deb"))
    shutil.copy(package, host.path("/var/tmp/tidegate.deb"))


def measure(archive):
    """The time of each command, in seconds, in a new machine."""
    with machine.booted(archive) as host:
        prepare(host)
        times = []
        for command, purpose in COMMANDS:
            began = time.monotonic()
            said = host.run(command)
            times.append(time.monotonic() - began)
            say(f"{times[-1]:7.2f} s  {purpose}")
            if command.startswith(ASK):
                say(said.rstrip())
        return times, host.run("psql --version; dpkg-query -W prometheus pgbouncer")


def page(rounds, versions):
    """What is written down."""
    totals = [sum(times) for times in rounds]
    lines = [
        "# From an empty machine to a Tidegate that is monitored\n",
        f"`bench/empty_machine.py --rounds {len(rounds)}`, tidegate {version()}{commit()}, "
        f"{processor()}; {'; '.join(versions.split(chr(10))).strip('; ')}.\n",
        __doc__.split("\n\n", 1)[1].replace("\n", " ").strip() + "\n",
        head("llr", "command", "what for", "seconds, median (range)")]
    for index, (command, purpose) in enumerate(COMMANDS):
        times = [times[index] for times in rounds]
        shown = command.split("\n")[0].replace("|", "\\|")
        lines.append(row(f"`{shown}`", purpose, f"{statistics.median(times):.2f} "
                         f"({min(times):.2f} to {max(times):.2f})"))
    lines.append(row("all", "", f"**{statistics.median(totals):.0f}** "
                     f"({min(totals):.0f} to {max(totals):.0f})"))
    kept = "kept" if max(totals) <= LIMIT_S else "**broken**"
    lines += ["", f"The bound of {LIMIT_S} s is {kept} in {len(rounds)} rounds. Reading the "
              "imported file comes on top. Grafana is not in Debian: its dashboard is checked "
              "elsewhere."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="new machines")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the page to this file")
    options = parser.parse_args()
    catch_signals()
    absent = machine.missing()
    if absent:
        sys.exit(f"error: not found: {', '.join(absent)}")
    archive = machine.image("ca-certificates", "pgbouncer", "postgresql", "wget")
    rounds = []
    for number in range(options.rounds):
        say(f"round {number + 1}")
        try:
            times, versions = measure(archive)
        except machine.MachineError as error:
            sys.exit(f"error: {error}")
        rounds.append(times)
    text = page(rounds, versions)
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)
    if max(map(sum, rounds)) > LIMIT_S:
        sys.exit(1)


if __name__ == "__main__":
    main()
