#!/usr/bin/env python3
"""Records what real clients and a real PostgreSQL server say to each other.

Starts a private server on a free loopback port, puts a TCP tap before it, runs psql, pgbench and a
few bare sockets through the tap, and writes each connection's two byte streams beside this
script as
NAME.frontend and NAME.backend. Run it again only to add a scenario; the recordings are committed.

    python3 capture.py            (as root it runs the server as user postgres)
"""

import glob
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
USER = "postgres"
PASSWORD = "correct horse"


def program(name):
    found = shutil.which(name)
    candidates = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    if not found and not candidates:
        raise SystemExit(f"{name} not found: install PostgreSQL")
    return found or candidates[-1]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Server:
    """A private server; password authentication for the roles md5_user and scram_user only."""

    def __init__(self, directory):
        self.data = os.path.join(directory, "data")
        self.port = free_port()
        self.as_user = {"user": USER, "group": USER, "extra_groups": []} if os.getuid() == 0 else {}
        if self.as_user:
            shutil.chown(directory, USER, USER)
        self.run("initdb", "-D", self.data, "-U", USER, "-A", "trust", "--no-sync")
        methods = [("md5", "md5"), ("scram", "scram-sha-256"), ("clear", "password")]
        hba = [f"host all {role}_user 127.0.0.1/32 {method}" for role, method in methods]
        hba.append("host all all 127.0.0.1/32 trust")
        pathlib.Path(self.data, "pg_hba.conf").write_text("\n".join(hba) + "\n")
        self.process = subprocess.Popen(
            [program("postgres"), "-D", self.data, "-p", str(self.port), "-h", "127.0.0.1",
             "-k", "", "-F"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory,
            **self.as_user)
        for _ in range(100):
            command = [program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
            ready = subprocess.run(command)
            if ready.returncode == 0:
                return
            time.sleep(0.1)
        raise SystemExit("the server did not start")

    def run(self, name, *arguments):
        subprocess.run([program(name), *arguments], check=True, cwd="/", stdout=subprocess.DEVNULL,
                       **self.as_user)

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=30)


class Tap:
    """Forwards connections to the server and keeps each one's two streams, in order of arrival."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.connections = []
        self.threads = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.server_port))
            streams = {"frontend": bytearray(), "backend": bytearray()}
            self.connections.append(streams)
            for source, sink, name in [(client, server, "frontend"), (server, client, "backend")]:
                thread = threading.Thread(target=self.copy, args=(source, sink, streams[name]))
                self.threads.append(thread)
                thread.start()

    @staticmethod
    def copy(source, sink, record):
        try:
            while chunk := source.recv(65536):
                record += chunk
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def save(self, *names):
        """Waits for the connections' ends and names them in order of arrival."""
        for thread in self.threads:
            thread.join(timeout=20)
        for name, streams in zip(names, self.connections, strict=True):
            for side, record in streams.items():
                (HERE / f"{name}.{side}").write_bytes(record)
                print(f"{name}.{side}: {len(record)} bytes")
        self.connections.clear()
        self.threads.clear()


def psql(tap, *commands, user=USER, password=PASSWORD, settings="", stdin=None):
    address = f"host=127.0.0.1 port={tap.port} user={user} dbname=postgres {settings}"
    arguments = [part for command in commands for part in ("-c", command)]
    subprocess.run([program("psql"), "-X", "-q", "-At", *arguments, address], input=stdin, cwd="/",
                   env={"PGPASSWORD": password, "PATH": os.environ["PATH"]},
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20)


def pgbench(tap, mode, script):
    subprocess.run([program("pgbench"), "-n", "-M", mode, "-t", "3", "-f", script,
                    "-h", "127.0.0.1",
                    "-p", str(tap.port), "-U", USER, "postgres"], check=True, timeout=20,
                   env={"PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL)


def message(tag, payload):
    return tag + struct.pack(">I", len(payload) + 4) + payload


def startup(version, parameters):
    pairs = b"".join(text.encode() + b"\0" for text in parameters) + b"\0"
    return struct.pack(">II", len(pairs) + 8, version) + pairs


def bare(tap, *parts):
    """Sends the parts at once and reads until the server closes."""
    with socket.create_connection(("127.0.0.1", tap.port)) as connection:
        connection.sendall(b"".join(parts))
        connection.settimeout(20)
        while connection.recv(65536):
            pass


def sessions(tap, directory):
    psql(tap, "CREATE TABLE t (k int PRIMARY KEY, v text);"
              " INSERT INTO t VALUES (1, 'one'), (2, NULL)",
         "SELECT * FROM t ORDER BY k; SELECT 'second' AS result", ";",
         "BEGIN", "UPDATE t SET v = 'uno' WHERE k = 1", "COMMIT")
    tap.save("simple")
    psql(tap, "SELECT 1/0", "BEGIN", "SELECT * FROM missing", "SELECT 1", "ROLLBACK",
         "DO $$ BEGIN RAISE NOTICE 'heard'; END $$", "LISTEN news", "NOTIFY news, 'payload'",
         "SET application_name = 'renamed'")
    tap.save("errors_and_notices")
    psql(tap, "COPY t FROM STDIN", stdin=b"3\tthree\n4\t\\N\n")
    psql(tap, "COPY t TO STDOUT", "COPY (SELECT * FROM t) TO STDOUT (FORMAT binary)")
    psql(tap, "COPY t FROM STDIN", stdin=b"not a number\tx\n")
    tap.save("copy_in", "copy_out", "copy_error")
    psql(tap, "\\lo_import " + os.path.join(directory, "object"))
    tap.save("function_call")

    script = os.path.join(directory, "script.sql")
    pathlib.Path(script).write_text(
        "\\set k random(1, 2)\nBEGIN;\nUPDATE t SET v = v WHERE k = :k;\n"
        "SELECT k, v FROM t WHERE k = :k;\nEND;\n")
    for mode in ["simple", "extended", "prepared"]:
        pgbench(tap, mode, script)
        # pgbench looks at the server over a connection of its own first.
        tap.connections.pop(0)
        tap.save(f"pgbench_{mode}")

    for role in ["md5", "scram", "clear"]:
        psql(tap, "SELECT 1", user=f"{role}_user")
        tap.save(f"auth_{role}")
    psql(tap, "SELECT 1", user="scram_user", password="wrong")
    tap.save("auth_refused")
    psql(tap, "SELECT 1", settings="dbname=missing sslmode=disable")
    tap.save("unknown_database")


def bare_sessions(tap):
    login = startup(3 << 16, ["user", USER, "database", "postgres"])
    parse = message(b"P", b"s\0SELECT g, $1 || g FROM generate_series(1, 5) g\0"
                    + struct.pack(">hI", 1, 25))
    bind = message(b"B", b"p\0s\0" + struct.pack(">hhhi", 1, 0, 1, 2) + b"ab"
                   + struct.pack(">hh", 1, 0))
    limited = message(b"E", b"p\0" + struct.pack(">i", 2))
    bare(tap, login, parse, message(b"D", b"Ss\0"), bind, message(b"D", b"Pp\0"), limited, limited,
         message(b"H", b""), message(b"C", b"Pp\0"), message(b"S", b""),
         message(b"P", b"\0DELETE FROM t WHERE false\0" + struct.pack(">h", 0)),
         message(b"D", b"S\0"),
         message(b"S", b""), message(b"B", b"\0missing\0" + struct.pack(">hhh", 0, 0, 0)),
         message(b"E", b"\0" + struct.pack(">i", 0)), message(b"S", b""), message(b"C", b"Ss\0"),
         message(b"S", b""), message(b"X", b""))
    tap.save("pipelined")
    bare(tap, startup((3 << 16) + 2, ["user", USER, "_pq_.one", "1", "_pq_.two", "2"]),
         message(b"X", b""))
    tap.save("negotiate_protocol")
    bare(tap, login, message(b"Q", b"COPY t FROM STDIN\0"),
         message(b"d", b"9\tn"), message(b"d", b"ine\n"),
         message(b"f", b"changed my mind\0"), message(b"X", b""))
    tap.save("copy_fail")
    bare(tap, struct.pack(">IIII", 16, (1234 << 16) + 5678, 1, 2))
    tap.save("cancel")


def main():
    directory = tempfile.mkdtemp(prefix="wire-captures-")
    server = None
    try:
        server = Server(directory)
        tap = Tap(server.port)
        pathlib.Path(directory, "object").write_bytes(b"a large object, not very large")
        kinds = [("md5", "md5"), ("scram", "scram-sha-256"), ("clear", "scram-sha-256")]
        psql(tap, *[f"SET password_encryption = '{kind}';"
                    f" CREATE ROLE {role}_user LOGIN PASSWORD '{PASSWORD}'"
                    for role, kind in kinds])
        tap.connections.clear()
        sessions(tap, directory)
        bare_sessions(tap)
    finally:
        if server:
            server.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
