"""Resident memory of a pooler that holds many clients which have run a query and now do nothing.

Each is a bare socket that speaks just enough of the protocol.
"""

import contextlib
import pathlib
import re
import resource
import socket
import ssl
import struct

from .processes import Failed, time_limit



def message(kind, body):
    """A message of the protocol; the length counts itself."""
    return kind + struct.pack("!i", len(body) + 4) + body


# Protocol 3.0.
STARTUP = message(b"", struct.pack("!i", 3 << 16) + b"user\0postgres\0database\0postgres\0\0")
QUERY = message(b"Q", b"SELECT 1\0")
SSL_REQUEST = message(b"", struct.pack("!i", 80877103))
SPARE_FILES = 200
LIMIT_S = 120


def raise_file_limit(wanted):
    """Let this process and its children open as many files as may be had, up to `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = wanted if hard == resource.RLIM_INFINITY else hard
    if soft < wanted:
        # Only root may raise the hard limit, and not in every container.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
            return wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def tls_context():
    """Client side of TLS that takes any certificate: one context, so that sessions are alike."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def idle_client(port, tls=None):
    """The socket of a client that has logged in, by TLS with a context, and run one query."""
    connection = socket.create_connection(("127.0.0.1", port), 30)
    if tls:
        connection.sendall(SSL_REQUEST)
        if connection.recv(1) != b"S":
            raise Failed("TLS was refused")
        connection = tls.wrap_socket(connection)
    with connection.makefile("rb") as stream:
        for message in (STARTUP, QUERY):
            connection.sendall(message)
            skip_until_ready(stream)
    return connection


def skip_until_ready(stream):
    """Read messages up to ReadyForQuery."""
    kind = b""
    while kind != b"Z":
        head = stream.read(5)
        if len(head) < 5:
            raise Failed("the connection was closed")
        kind, length = struct.unpack("!ci", head)
        body = stream.read(length - 4)
        if kind == b"E":
            raise Failed(f"an idle client was told: {body!r}")


def resident_kib(process):
    """Resident memory of a process in KiB, counted page by page: VmRSS in `status` may lag."""
    rollup = pathlib.Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return int(re.search(r"^Rss:\s+(\d+) kB", rollup, re.MULTILINE)[1])


def measure(endpoint, clients, tls=None):
    """Resident memory before and with the clients. One client has come and gone before that."""
    files = raise_file_limit(clients + SPARE_FILES)
    clients = min(clients, files - SPARE_FILES)
    with contextlib.ExitStack() as connections, time_limit(LIMIT_S):
        idle_client(endpoint.port, tls).close()
        before = resident_kib(endpoint.process)
        for _ in range(clients):
            connections.enter_context(idle_client(endpoint.port, tls))
        after = resident_kib(endpoint.process)
    return {"clients": clients, "before_kib": before, "after_kib": after,
            "kib_per_client": (after - before) / clients}
