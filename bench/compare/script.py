"""What the measuring scripts have in common: options, the private server, and the page."""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import shlex
import subprocess
import sys
import tempfile

from . import idle, servers
from .machine import ROOT, commit, processor, version
from .processes import Failed, catch_signals, find_program

# What a run with thousands of clients on either side of a pooler holds open, and then some.
FILES = 20_000


def parser(doc):
    """The options of a script that says what it does in its first line."""
    found = argparse.ArgumentParser(description=doc.splitlines()[0])
    found.add_argument("--tidegate", type=pathlib.Path, default=ROOT / "target/release/tidegate")
    return found


def parsed(parser):
    """The options given, the program's path resolved."""
    options = parser.parse_args()
    options.tidegate = options.tidegate.resolve()
    return options


def add_outputs(parser):
    """Add the options of the scripts that `make` runs: the program, and files to write."""
    parser.add_argument("--tidegate", type=pathlib.Path, help="the program [default: built last]")
    parser.add_argument("--json", type=pathlib.Path, help="write every run to this file")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the report to this file")


def check_programs(parser, options):
    """Find the program that was built last, and refuse to begin without it or PostgreSQL."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    options.tidegate = options.tidegate or ROOT / target / "release" / "tidegate"
    if not os.access(options.tidegate, os.X_OK):
        parser.error(f"no program {options.tidegate}: cargo build --release -p tidegate-cli")
    missing = [name for name in ("initdb", "postgres", "psql", "pgbench")
               if not find_program(name)]
    if missing:
        parser.error(f"not found: {', '.join(missing)}; scripts/setup-postgres installs them")


def facts(name, options, **others):
    """Where and how it was measured, by what it is called in the report."""
    scale = getattr(options, "scale", 1)
    settings = ", ".join(f"{key} = {value}" for key, value in servers.POSTGRES_SETTINGS.items())
    return {
        "command": f"`bench/{name} {shlex.join(sys.argv[1:])}`".replace(" `", "`"),
        "seed": options.seed,
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} processors, "
                   f"{platform.system()} {platform.release()}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "server": f"{version('postgres')}, {settings}, else defaults; "
                  f"pgbench tables, scale {scale}",
        **others,
    }


def busy():
    """A note for the report where the machine is not idle now."""
    return ["**The machine was not idle** when this began."] if os.getloadavg()[0] > 0.5 else []


def report(measure_all, document, known, notes, options):
    """Measure, with notes before it on standard error; print the report and write it to its file.

    Parameters: `measure_all(options, known)` gives the runs, `document(runs, known, notes)` text.
    """
    for note in notes:
        say(note)
    idle.raise_file_limit(FILES)
    try:
        runs = measure_all(options, known)
    except (RuntimeError, Failed, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"error: {error}")
    text = document(runs, known, notes)
    print(text, end="")
    if options.markdown:
        options.markdown.parent.mkdir(parents=True, exist_ok=True)
        options.markdown.write_text(text)


def keep(runs, known, options):
    """Write the runs so far to the file that was asked for."""
    if options.json:
        options.json.write_text(json.dumps({**known, "runs": runs}, indent=1) + "\n")


@contextlib.contextmanager
def directory(prefix=None):
    """A temporary directory that the server's user can reach."""
    with tempfile.TemporaryDirectory(prefix=prefix) as path:
        os.chmod(path, 0o755)
        yield pathlib.Path(path)


@contextlib.contextmanager
def private_server(scale=1, *statements):
    """A private PostgreSQL with pgbench's tables at a scale, after these statements."""
    with directory() as parent, servers.postgres(parent, scale) as server:
        if statements:
            server.sql(*statements)
        yield server


@contextlib.contextmanager
def connection(server, options, control, *arguments, has_journal=True):
    """Where clients connect, and a directory: the server, or a proxy of its own with `control`."""
    with directory() as own, contextlib.ExitStack() as stack:
        endpoint = servers.Endpoint(server.port)
        if control is not None:
            proxy = servers.tidegate(server, own, options.tidegate, "--control", control,
                                     *arguments, has_journal=has_journal)
            endpoint = stack.enter_context(proxy)
        yield endpoint, own


def where(options):
    """The program, the server and the processor, as the first words under a page's tables."""
    return f"{version(options.tidegate)}{commit()}, {version('postgres')}, {processor()}"


def say(text):
    """Print progress."""
    print(text, file=sys.stderr, flush=True)


def row(*cells):
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(align, *columns):
    """The first two rows of a Markdown table; `align` has an l or an r for each column."""
    return f"{row(*columns)}\n{row(*('---' if side == 'l' else '---:' for side in align))}"


def print_table(about, align, columns, rows):
    """Print what was measured and how, and a table."""
    print(f"{about}\n")
    print(head(align, *columns))
    print("\n".join(rows))


def run(main):
    """Run a script; a failure ends it with a line that names the script."""
    catch_signals()
    try:
        main()
    except Failed as error:
        sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {error}")
