"""The command line: ``python -m tidegate_analysis COMMAND``.

| exit code | when |
| --- | --- |
| 0 | it is done |
| 1 | it cannot be done: one line on standard error says why and what to do |
| 2 | the command line is wrong |
| 130 | it was interrupted |

What is asked for goes to standard output, and what is being done to standard error where that is a
terminal. A reader that goes away, such as `head`, ends it quietly.
"""

import argparse
import importlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tidegate_analysis.errors import AnalysisError, StoreError
from tidegate_analysis.results import Results, load
from tidegate_analysis.tables import study

_INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; its exit code.

    Parameters
    ----------
    arguments
        Those after the program's name; `None` is the process' own.

    """
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
        sys.stdout.flush()
    except AnalysisError as error:
        _print_error(f"error: {' '.join(str(error).split())}")
        return 1
    except KeyboardInterrupt:
        _print_error("interrupted")
        return _INTERRUPTED
    except BrokenPipeError:
        # What is left in the buffer has nowhere to go, and Python would complain at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidegate-analysis",
        description="Why throughput collapses: tables and reports of the laboratory's results.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    usage = "%(prog)s [OPTIONS] [STORE] RUN..."
    tables = commands.add_parser(
        "tables",
        usage=usage,
        help="print the study's Tables 3 and 5 to 10 of experiments",
        description="Print the study's Tables 3 and 5 to 10 of experiments that `tidegate lab tap` "
        "has analysed, each by itself.",
    )
    _add_source(tables)
    tables.add_argument("--out", type=Path, metavar="DIR", help="write them as CSV files there")
    tables.add_argument(
        "--method",
        choices=["pearson", "spearman", "kendall"],
        default="pearson",
        help="whose correlation (default: the study's, pearson)",
    )
    tables.add_argument(
        "--holm", action="store_true", help="show p-values corrected for several hypotheses beside"
    )
    tables.set_defaults(command=_tables)
    report = commands.add_parser(
        "report",
        usage=usage.replace("[OPTIONS]", "[OPTIONS] --out DIR"),
        help="write a page with all figures and advice",
        description="Write a page with all figures, tables and advice about experiments.",
    )
    _add_source(report)
    report.add_argument("--out", type=Path, required=True, metavar="DIR", help="write it there")
    report.set_defaults(command=_report)
    return parser


def _add_source(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "what",
        nargs="+",
        metavar="[STORE] RUN",
        help="a store or the directory of an export, where --store does not name it; then the "
        "numbers of experiments, as `tidegate lab list` shows them",
    )
    command.add_argument(
        "--store",
        metavar="STORE",
        help="a file, a directory, or postgres://user:password@host:port/database "
        "(default: the environment variable TIDEGATE_STORE)",
    )


def _source(options: argparse.Namespace, show: "_Progress") -> tuple[Results, list[int]]:
    """Return the results and the numbers of the experiments that were asked for."""
    store, what = options.store, list(options.what)
    if store is None and not what[0].isdecimal():
        store = what.pop(0)
    if not what:
        raise StoreError(f"no experiment of {store} is named", "give its number, such as 1")
    wrong = next((word for word in what if not word.isdecimal()), None)
    if wrong is not None:
        raise StoreError(
            f"`{wrong}` is no number of an experiment", "see `tidegate lab list` for numbers"
        )
    return load(store, progress=show.rows), [int(word) for word in dict.fromkeys(what)]


def _tables(options: argparse.Namespace) -> None:
    show = _Progress()
    results, experiments = _source(options, show)
    for experiment in experiments:
        found = study.run(
            results,
            experiment,
            method=options.method,
            correction="holm" if options.holm else "none",
            say=show.say,
        )
        show.clear()
        if options.out is not None:
            found.write(options.out / f"experiment-{experiment}")
        _print(found.markdown())


def _report(options: argparse.Namespace) -> None:
    show = _Progress()
    results, experiments = _source(options, show)
    # Reports need libraries that tables do not, and loading them takes seconds.
    write: Callable[..., list[Path]]
    write = importlib.import_module("tidegate_analysis.report").write
    written = write(results, experiments, options.out, progress=show.say)
    show.clear()
    _print("\n".join(map(str, written)))


class _Progress:
    """What is being done, in one line of a terminal that is written over; nothing elsewhere."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._doing = "experiments"
        self._last = time.monotonic()

    def say(self, doing: str) -> None:
        """Show what is being done."""
        self._doing = doing
        self._last = time.monotonic()
        self._show(doing)

    def rows(self, table: str, count: int) -> None:
        """Show how many rows have been read, twice a second at most."""
        now = time.monotonic()
        if now - self._last > 0.5:
            self._last = now
            self._show(f"{self._doing} ({count:,} rows of {table})")

    def clear(self) -> None:
        """Leave the line empty."""
        self._show("")

    def _show(self, text: str) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _print_error(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    sys.stderr.write(f"{text}\n")
