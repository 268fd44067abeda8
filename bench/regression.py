#!/usr/bin/env python3
"""Run PostgreSQL's own regression tests directly and through Tidegate in both modes.

Fetches the source of the installed PostgreSQL and the headers of its server with apt-get, by a
configuration of its own in a private directory, and installs nothing. Each way has a fresh server.
Prints Markdown: how many tests pass, and for each that does not the first line that differs.
Everything started here is stopped here, by its process id.
"""

import argparse
import contextlib
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time

from compare import processes, script, servers
from compare.machine import ROOT, commit, version
from compare.processes import Failed, catch_signals, find_program, started, time_limit, unprivileged
from compare.script import head, row, say

# Name, mode of the proxy, and how many clients at most.
WAYS = {
    "direct": (None, 20),
    "session mode": ("session", 20),
    "transaction mode": ("transaction", 20),
    "transaction mode, one client": ("transaction", 1),
}
# Why tests do not pass in transaction mode; each needs one server process for all its statements,
# in a way that does not keep a client on its connection.
REASONS = {
    "constraints": "`currval` of a sequence belongs to a session",
    "sequence": "`currval` and `lastval` of a sequence belong to a session",
    "triggers": "C functions of the tests keep plans and switches in the server process",
    "guc": "what is reserved for plpgsql depends on whether the server process has loaded it",
    "temp": "the server process has had a temporary schema before, so that this does not make one",
    "stats": "counts statements and flushes of one server process",
}
RUN_LIMIT_S = 1200
STEP_LIMIT_S = 300
RESULT = re.compile(r"^(?:test|\s+) *([\w.]+) +\.\.\. +(ok|FAILED|failed)", re.MULTILINE)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, metavar="WAY", default=list(WAYS),
                        help=f"only these of: {', '.join(WAYS)}")
    parser.add_argument("--tests", nargs="+", metavar="NAME", default=[],
                        help="only these tests, and what they need")
    parser.add_argument("--directory", type=pathlib.Path, default=ROOT / "out" / "regression",
                        help="where the source and the differences go")
    parser.add_argument("--log-level", default="warn", help="of the proxies")
    script.add_outputs(parser)
    options = parser.parse_args()
    script.check_programs(parser, options)
    options.tidegate, options.directory = options.tidegate.resolve(), options.directory.resolve()
    for program in ("apt-get", "dpkg-deb", "cc"):
        if not find_program(program):
            parser.error(f"{program} is not installed")
    return options


run_quietly = functools.partial(processes.run_quietly, limit_s=STEP_LIMIT_S)


def fetch(directory):
    """Return the directory of the tests, with what their C functions need beside it."""
    major = re.search(r"\) (\d+)", version("postgres"))[1]
    installed = run_quietly("dpkg-query", "-W", "-f", "${Version}", f"postgresql-{major}")
    source = directory / f"postgresql-{installed}"
    if not source.exists():
        say(f"fetching the source of PostgreSQL {installed}")
        parts = directory / "apt" / "parts"
        parts.mkdir(parents=True, exist_ok=True)
        (directory / "apt" / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        for path in pathlib.Path("/etc/apt/sources.list.d").glob("*.sources"):
            text = re.sub(r"(?m)^Types:.*$", "Types: deb-src", path.read_text())
            (parts / path.name).write_text(text)
        private = ["-q", "-o", f"Dir::Etc::sourceparts={parts}", "-o",
                   "Dir::Etc::sourcelist=/dev/null", "-o",
                   f"Dir::State::lists={directory / 'apt' / 'lists'}"]
        run_quietly("apt-get", *private, "update")
        run_quietly("apt-get", *private, "source", "--download-only",
                    f"postgresql-{major}={installed}", cwd=directory)
        run_quietly("apt-get", "-q", "download", f"postgresql-server-dev-{major}={installed}",
                    cwd=directory)
        for package in directory.glob(f"postgresql-server-dev-{major}_*.deb"):
            run_quietly("dpkg-deb", "-x", package, directory / "dev")
        unpacked = directory / "unpacked"
        for archive in directory.glob(f"postgresql-{major}_*.orig.tar.*"):
            with tarfile.open(archive) as files:
                members = [m for m in files if "/src/test/regress/" in m.name]
                files.extractall(unpacked, members, filter="data")
        next(unpacked.iterdir()).rename(source)
    return source / "src" / "test" / "regress", directory / "dev", major


def library(tests, dev, major, directory):
    """Build the C functions that tests call; the server's own modules are beside them."""
    found = directory / "modules"
    found.mkdir(exist_ok=True)
    headers = dev / "usr" / "include" / "postgresql"
    run_quietly("cc", "-O1", "-shared", "-fPIC", "-w", "-I", headers / major / "server", "-I",
                headers / "internal", "-I", "/usr/include/postgresql/internal", "-o",
                found / "regress.so", tests / "regress.c")
    for name in ("autoinc", "refint"):
        shutil.copy(f"/usr/lib/postgresql/{major}/lib/{name}.so", found)
    return found


@contextlib.contextmanager
def endpoint(mode, server, directory, options):
    """Start a proxy in a mode, or give the server's own port."""
    if mode is None:
        yield servers.Endpoint(server.port)
        return
    given = ["--listen", "127.0.0.1:0", "--mode", mode, "--log-level", options.log_level,
             "--upstream", f"postgres://127.0.0.1:{server.port}?sslmode=disable"]
    with servers.proxy(directory, options.tidegate, *given) as found:
        yield found
        if found.process.poll() is not None:
            raise Failed("the proxy ended by itself: "
                         f"{(directory / 'log').read_text(errors='replace')[-500:]}")


def schedule(tests, options):
    """Return the arguments that say what is run."""
    if not options.tests:
        return [f"--schedule={tests / 'parallel_schedule'}"]
    return ["test_setup", *options.tests]


def measure(way, options, tests, modules, major):
    """Run all tests in one way; return the outcome of each and the first line of its difference."""
    mode, clients = WAYS[way]
    rights, began = unprivileged(), time.monotonic()
    with script.directory("tidegate-regression-") as directory, \
            servers.postgres(directory) as server, \
            endpoint(mode, server, directory, options) as found:
        # The server writes into this, too.
        own = directory / "own"
        shutil.copytree(tests, own / "tests")
        shutil.copytree(modules, own / "modules")
        if rights:
            run_quietly("chown", "-R", f"{rights['user']}:{rights['group']}", own)
        output = own / "output"
        command = [f"/usr/lib/postgresql/{major}/lib/pgxs/src/test/regress/pg_regress",
                   f"--inputdir={own / 'tests'}", f"--outputdir={output}",
                   f"--dlpath={own / 'modules'}", f"--bindir=/usr/lib/postgresql/{major}/bin",
                   "--host=127.0.0.1", f"--port={found.port}", "--user=postgres",
                   "--encoding=UTF8", "--no-locale", f"--max-connections={clients}",
                   f"--max-concurrent-tests={max(clients, 20)}", *schedule(own / "tests", options)]
        kept = {name: text for name, text in os.environ.items() if not name.startswith("PG")}
        text = ""
        with started(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=own,
                     env={**kept, "PGPASSWORD": "unused"}, **rights) as process:
            with contextlib.suppress(Failed), time_limit(RUN_LIMIT_S):
                for line in process.stdout:
                    text += line
        outcomes = {name: said == "ok" for name, said in RESULT.findall(text)}
        kept_at = options.directory / way.replace(", ", "-").replace(" ", "-")
        shutil.rmtree(kept_at, ignore_errors=True)
        shutil.copytree(output, kept_at, dirs_exist_ok=True) if output.exists() else None
        if not outcomes:
            raise Failed(f"{way}: {text[-500:]}")
    good = sum(outcomes.values())
    seconds = time.monotonic() - began
    say(f"{way}: {good} of {len(outcomes)} tests passed, {seconds:.0f} s")
    return {"way": way, "outcomes": outcomes, "seconds": seconds,
            "why": differences(kept_at / "regression.diffs")}


def differences(path):
    """Return the first line that a test has printed and should not, or has not and should."""
    found, name = {}, None
    text = path.read_text(errors="replace") if path.exists() else ""
    for line in text.splitlines():
        if line.startswith("diff "):
            name = pathlib.Path(line.split()[-1]).stem
        elif name and name not in found and line[:1] in "+-" and line[:3] not in ("+++", "---"):
            found[name] = line.strip()
    return found


def measure_all(options, known):
    """Run every way; written down as they come."""
    options.directory.mkdir(parents=True, exist_ok=True)
    tests, dev, major = fetch(options.directory)
    modules = library(tests, dev, major, options.directory)
    runs = []
    for way in options.ways:
        runs.append(measure(way, options, tests, modules, major))
        script.keep(runs, known, options)
    return runs


def table(columns, rows):
    """Return a table of text as Markdown."""
    return "\n".join([head("l" * len(columns), *columns), *(row(*cells) for cells in rows)])


def document(runs, known, _notes):
    """Return the whole report."""
    rows = [[run["way"], f"{sum(run['outcomes'].values())} of {len(run['outcomes'])}",
             f"{run['seconds']:.0f} s"] for run in runs]
    failed = []
    for name in dict.fromkeys(name for run in runs for name in run["outcomes"]):
        ways = [run for run in runs if not run["outcomes"].get(name, False)]
        if ways:
            why = ways[-1]["why"].get(name, "did not end").replace("|", "\\|")
            failed.append([f"`{name}`", "; ".join(run["way"] for run in ways), f"`{why:.90}`",
                           REASONS.get(name, "**unexplained**")])
    blocks = ["# PostgreSQL's regression tests, directly and through Tidegate",
              "\n".join(f"- {name}: {text}" for name, text in known.items()),
              table(["how", "passed", "time"], rows), "## What does not pass"]
    columns = ["test", "how", "first line that differs (the last way's)", "reason"]
    blocks.append(table(columns, failed) if failed else "Nothing.")
    return "\n\n".join(blocks) + "\n"


def main():
    options = arguments()
    catch_signals()
    words = " ".join(f"'{word}'" if " " in word else word for word in sys.argv[1:])
    known = {"command": f"`bench/regression.py {words}`".replace(" `", "`"),
             "programs": f"{version(options.tidegate)}{commit()}; {version('postgres')}"}
    script.report(measure_all, document, known, [], options)


if __name__ == "__main__":
    main()
