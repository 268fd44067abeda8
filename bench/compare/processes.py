"""Processes that are always stopped again, by their own process id.

A signal becomes an exception, so that every `finally` is run. It must not come between the start
of a process and the note that it has to be stopped, nor stop the stopping: inside `undisturbed`
it waits, and once one has been delivered, further ones are ignored.
"""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import time

UNPRIVILEGED_USER = "postgres"
STOP_LIMIT_S = 20


class Failed(Exception):
    """One run could not be done; the others can."""


class _Signals:
    """Whether signals wait, and the one that waits."""

    depth = 0
    waiting: int | None = None


def _deliver(number):
    if number != signal.SIGALRM:
        for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(ending, signal.SIG_IGN)
        # A shell's exit code for a process that a signal has ended.
        sys.exit(128 + number)
    raise Failed("took too long")


def _on_signal(number, _frame):
    if _Signals.depth:
        # An end that is wanted goes before a time limit.
        if number != signal.SIGALRM or _Signals.waiting is None:
            _Signals.waiting = number
    else:
        _deliver(number)


def catch_signals():
    """Turn signals into exceptions: SystemExit, or Failed for the alarm of `time_limit`."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        signal.signal(number, _on_signal)


@contextlib.contextmanager
def undisturbed():
    """Make signals wait until the block's end."""
    _Signals.depth += 1
    try:
        yield
    finally:
        _Signals.depth -= 1
        if not _Signals.depth and _Signals.waiting is not None:
            number, _Signals.waiting = _Signals.waiting, None
            _deliver(number)


@contextlib.contextmanager
def time_limit(seconds):
    """Raise Failed in a block that takes longer."""
    signal.alarm(int(seconds) + 1)
    try:
        yield
    finally:
        signal.alarm(0)


def find_program(name):
    """Path of a program in PATH, where Debian keeps servers, or beside PostgreSQL; or None."""
    servers = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *map(str, servers)])
    return shutil.which(name, path=path)


def unprivileged():
    """Arguments for subprocess that give up root's rights; PostgreSQL and PgBouncer refuse them."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam(UNPRIVILEGED_USER)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def stop(process, *signals):
    """End a process, with the next of `signals` when one does not help, and wait for it."""
    for number in (*signals, signal.SIGKILL):
        if process.poll() is not None:
            return
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_LIMIT_S)


@contextlib.contextmanager
def started(command, *, stop_with=(signal.SIGTERM,), **options):
    """Run a command, stop it at the end of the block."""
    process = None
    try:
        with undisturbed():
            process = subprocess.Popen(
                [str(word) for word in command], text=True, start_new_session=True,
                **{"stdin": subprocess.DEVNULL, **options},
            )
        yield process
    finally:
        if process is not None:
            with undisturbed():
                stop(process, *stop_with)
                for pipe in (process.stdin, process.stdout, process.stderr):
                    if pipe:
                        pipe.close()


def run_quietly(*command, limit_s, **options):
    """Run a step for some seconds at most; return its output, which is shown if it fails."""
    done = subprocess.run([str(word) for word in command], text=True, timeout=limit_s,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, **options)
    if done.returncode:
        raise Failed(f"{command[0]}: {done.stdout.strip()[-400:]}")
    return done.stdout


def wait_until(ready, process, log, limit_s=30):
    """Return what `ready()` gives as soon as that is true; Failed when the process has ended."""
    deadline = time.monotonic() + limit_s
    while not (answer := ready()):
        if process.poll() is not None or time.monotonic() > deadline:
            tail = log.read_text(errors="replace").strip()[-500:]
            raise Failed(f"{pathlib.Path(process.args[0]).name} does not start: {tail}")
        time.sleep(0.02)
    return answer


def cpu_s(process):
    """CPU seconds of another process, all threads: its CPU clock, see clock_getcpuclockid(3)."""
    return time.clock_gettime((~process.pid << 3) | 2)
