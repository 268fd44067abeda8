"""The clients: our own closed loop (`tidegate load`) and pgbench."""

import json
import os
import re
import signal
import subprocess
import time

from .processes import Failed, cpu_s, find_program, started, time_limit

# Beside warm-up and measured time: connecting, and up to 15 s in which stragglers end.
OWN_LIMIT_S = 90
PGBENCH_LIMIT_S = 120


def own(program, endpoint, run, seed):
    """Our own client. The pooler's CPU time is read whenever the client reports its progress.

    A report comes every second of the measured time and gives the transactions since the last
    one, so that CPU time and transactions are of the same seconds. Two reports are needed.
    """
    command = [
        program, "load", "--json", "--workload", run.workload, "--clients", run.clients,
        "--warmup", f"{run.warmup_s}s", "--duration", f"{run.seconds}s", "--seed", seed,
        "--url", f"postgres://postgres@127.0.0.1:{endpoint.port}/postgres",
    ]
    samples, messages = [], []
    with time_limit(run.warmup_s + run.seconds + OWN_LIMIT_S), \
            started(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env={**os.environ, "NO_COLOR": "1"}) as client:
        for line in client.stderr:
            progress = re.search(r"measuring .*tps=([0-9.]+)", line)
            if progress:
                cpu = cpu_s(endpoint.process) if endpoint.process else None
                samples.append((time.monotonic(), float(progress[1]), cpu))
            else:
                messages.append(line)
        text = client.stdout.read()
        if client.wait() != 0:
            raise Failed("".join(messages)[-300:].strip() or "the client failed without a word")
    report = json.loads(text)
    began = samples[0][0] - 1 if samples else None
    return {
        "tps": report["tps"], "client_us": report["client_cpu_us"],
        "proxy_us": proxy_us(samples) if endpoint.process else None,
        "stragglers": report["stragglers"], "p95_ms": report["latency"]["p95_ms"],
        "complaints": complaints(report), "path": path(endpoint.intervals(), began),
    }


def proxy_us(samples):
    """CPU microseconds per transaction from the first to the last sample."""
    transactions = sum(tps * (now - before) for (before, _, _), (now, tps, _)
                       in zip(samples, samples[1:]))
    if not transactions:
        return None
    return (samples[-1][2] - samples[0][2]) * 1e6 / transactions


def complaints(report):
    """What should not happen in a run, in words; empty when all is well."""
    found = [f"{count} errors {code}" for code, count in report["errors"].items()]
    if report["connection_losses"]:
        found.append(f"{report['connection_losses']} connections lost")
    return ", ".join(found)


def path(intervals, began):
    """Limits before the measured time began and in it; all in it when the time is not known."""
    cut = next((i for i, row in enumerate(intervals) if began is None or row["at"] >= began),
               len(intervals))
    limits = [row["limit"] for row in intervals]
    return {"warmup": limits[:cut], "measured": limits[cut:]}


def pgbench(endpoint, run, seed):
    """pgbench, one thread: first for the warm-up, then measured.

    pgbench knows no warm-up, so it is a run of its own, through the same pooler. The time given
    to pgbench includes its connecting, the tps that it prints does not.
    """
    kind = "select-only" if run.workload == "select-only" else "tpcb-like"
    arguments = ["-M", run.protocol, "-b", kind, "-c", run.clients, "-j", 1,
                 "--random-seed", seed]
    pgbench_once(endpoint.port, run.warmup_s, arguments)
    began = time.monotonic()
    found = pgbench_once(endpoint.port, run.seconds, arguments)
    if found["tps"] is None:
        raise Failed("pgbench completed no transaction in the time given")
    return {**found, "path": path(endpoint.intervals(), began)}


def pgbench_once(port, seconds, arguments):
    """One pgbench run of some seconds; no tps when no transaction was completed."""
    text, _ = finished(pgbench_command(port, "-T", max(1, round(seconds)), *arguments), seconds)
    tps, _, troubles = pgbench_report(text)
    return {"tps": tps, "complaints": troubles}


def pgbench_command(port, *arguments):
    """The command line of pgbench on a local port, without its own vacuum."""
    return [find_program("pgbench"), "-n", *arguments,
            "-h", "127.0.0.1", "-p", port, "-U", "postgres", "postgres"]


def finished(command, seconds, name="pgbench"):
    """What a client printed, to standard output and standard error, that runs for some seconds."""
    with time_limit(seconds + PGBENCH_LIMIT_S), \
            started(command, stop_with=(signal.SIGINT,), stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, env={**os.environ, "NO_COLOR": "1"}) as client:
        text, messages = client.communicate()
    if client.returncode:
        raise Failed(messages[-300:].strip() or f"{name} failed without a word")
    return text, messages


def pgbench_report(text):
    """Transactions per second, without the time to connect; transactions; what went wrong."""
    tps = re.search(r"^tps = ([0-9.]+) \(without initial", text, re.MULTILINE)
    count = re.search(r"^number of transactions actually processed: (\d+)", text, re.MULTILINE)
    failed = re.search(r"^number of failed transactions: ([1-9]\d*)", text, re.MULTILINE)
    return (float(tps[1]) if tps else None, int(count[1]) if count else None,
            f"{failed[1]} failed" if failed else "")


def pgbench_progress(messages):
    """(second, transactions per second) of each line of progress."""
    rows = re.findall(r"^progress: ([\d.]+) s, ([\d.]+) tps", messages, re.MULTILINE)
    return [(float(at), float(tps)) for at, tps in rows]
