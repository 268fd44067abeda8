#!/usr/bin/env python3
"""Memory of a pooler for each client that has logged in, run a query, and does nothing since.

Tidegate beside PgBouncer, clients without and with TLS, on a private PostgreSQL: the resident
memory of the pooler's process before and with the clients. Prints Markdown. The figures are no
test: the exit code is 0 whatever they show.
"""

from compare import idle, script, servers
from pooling import Certificate, endpoint


def main():
    parser = script.parser(__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    options = script.parsed(parser)
    rows = []
    with script.directory() as place:
        certificate = Certificate(place)
        with servers.postgres(place) as server:
            for tls in (None, idle.tls_context()):
                for name in ("PgBouncer", "Tidegate"):
                    with endpoint(name, server, certificate, bool(tls), options) as found:
                        memory = idle.measure(found, options.clients, tls)
                    rows.append(script.row(
                        name, "TLS" if tls else "plain", f"{memory['clients']:,}",
                        f"{memory['before_kib']:,}", f"{memory['after_kib']:,}",
                        f"{memory['kib_per_client']:.2f}"))
                    script.say(rows[-1])
    about = f"{script.where(options)}, {script.version('pgbouncer')}."
    columns = ("pooler", "clients by", "clients", "before, KiB", "with them, KiB", "KiB a client")
    script.print_table(about, "llrrrr", columns, rows)


if __name__ == "__main__":
    script.run(main)
