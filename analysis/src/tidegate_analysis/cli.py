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
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, get_args

import pandas as pd

from tidegate_analysis import estimate, model, shapes
from tidegate_analysis.errors import AnalysisError, StoreError
from tidegate_analysis.estimate.regression import Effect, Errors
from tidegate_analysis.model.diagram import describe
from tidegate_analysis.results import Results, load
from tidegate_analysis.tables import figure_6, study
from tidegate_analysis.tables.markdown import markdown

_INTERRUPTED: Final = 130
_USAGE: Final = "%(prog)s [OPTIONS] [STORE] RUN..."


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; its exit code.

    - arguments: Those after the program's name; `None` is the process' own.
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
        description="Why throughput collapses: tables, models and reports of the laboratory's "
        "results.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_tables(commands)
    _add_report(commands)
    _add_estimate(commands)
    _add_diagram(commands)
    return parser


_Commands = argparse._SubParsersAction  # argparse has no other name for it


def _add_tables(commands: "_Commands[argparse.ArgumentParser]") -> None:
    tables = commands.add_parser(
        "tables",
        usage=_USAGE,
        help="print the study's Tables 3 and 5 to 10 of experiments",
        description="Print the study's Tables 3 and 5 to 10 of experiments that `tidegate lab tap` "
        "has analysed, each by itself. With --out, Fig. 6 is drawn, too.",
    )
    _add_source(tables)
    tables.add_argument("--out", type=Path, metavar="DIR", help="write CSV and SVG files there")
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


def _add_report(commands: "_Commands[argparse.ArgumentParser]") -> None:
    report = commands.add_parser(
        "report",
        usage=_USAGE.replace("[OPTIONS]", "[OPTIONS] --out DIR"),
        help="write a page with all figures and advice",
        description="Write a page with all figures, tables and advice about experiments.",
    )
    _add_source(report)
    report.add_argument("--out", type=Path, required=True, metavar="DIR", help="write it there")
    report.set_defaults(command=_report)


def _add_estimate(commands: "_Commands[argparse.ArgumentParser]") -> None:
    fit = commands.add_parser(
        "estimate",
        usage="%(prog)s --model MODEL [OPTIONS] ([STORE] RUN... | --samples FILE)",
        help="estimate a model's path coefficients",
        description="Estimate the paths of a model, and direct, indirect and total effects, on the "
        "samples that thrashed: of experiments, each by itself, or of a file. A model that was "
        "refined is tested: samples that took part in refining it are refused.",
    )
    _add_source(fit, nargs="*")
    fit.add_argument(
        "--samples", type=Path, metavar="FILE", help="a CSV or Parquet file, a row for each sample"
    )
    _add_model(fit, "--model", required=True)
    fit.add_argument(
        "--errors",
        choices=get_args(Errors),
        default="classical",
        help="what standard errors believe of samples (default: the study's, classical)",
    )
    fit.add_argument(
        "--effect",
        choices=get_args(Effect),
        default="none",
        help="what each DBMS has of its own (default: none)",
    )
    fit.add_argument("--out", type=Path, metavar="DIR", help="write CSV and SVG files there")
    fit.set_defaults(command=_estimate)


def _add_diagram(commands: "_Commands[argparse.ArgumentParser]") -> None:
    diagram = commands.add_parser(
        "diagram",
        help="draw a model's hypotheses",
        description="Draw a model as a path diagram (SVG). Without --out it is said in words.",
    )
    _add_model(diagram, "model")
    diagram.add_argument("--out", type=Path, metavar="FILE.svg", help="write it there")
    diagram.set_defaults(command=_diagram)


def _add_model(command: argparse.ArgumentParser, name: str, **options: bool) -> None:
    command.add_argument(
        name,
        metavar="MODEL",
        help=f"one of the study's, {', '.join(_NAMES)}, or a file of one",
        **options,  # type: ignore[arg-type]
    )


def _add_source(command: argparse.ArgumentParser, nargs: str = "+") -> None:
    command.add_argument(
        "what",
        nargs=nargs,
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
            diagram=None if options.out is None else figure_6,
            progress=show.say,
        )
        show.clear()
        if options.out is not None:
            found.write(options.out / f"experiment-{experiment}")
        _print(found.markdown())


def _report(options: argparse.Namespace) -> None:
    show = _Progress()
    results, experiments = _source(options, show)
    # Reports need libraries that tables do not, and loading them takes seconds.
    from tidegate_analysis import report  # noqa: PLC0415
    from tidegate_analysis.report.causal import makers  # noqa: PLC0415

    written = report.write(results, experiments, options.out, more=makers(), progress=show.say)
    show.clear()
    _print("\n".join(map(str, written)))


def _estimate(options: argparse.Namespace) -> None:
    asked = _model(options.model)
    for name, samples in _samples(options):
        chosen, left_out = _usable(asked, samples, name)
        # A refined model comes with hashes of the samples that chose its paths: they are refused.
        evidence = estimate.Confirmatory(chosen)
        fit = estimate.fit(asked, evidence, errors=options.errors, effect=options.effect)
        effects = estimate.effects(fit).to_frame()
        _print(f"# {asked.name}: {name}\n")
        r2 = ", ".join(f"R²({variable}) = {value:.3f}" for variable, value in fit.r_squared.items())
        _print(f"n = {fit.n}{left_out}; {r2}, fit = {fit.overall_fit:.3f}\n")
        for caution in fit.cautions:
            _print(f"Take care: {caution}.\n")
        _print(f"## Paths\n\n{markdown(fit.paths())}")
        # The wild bootstrap tests coefficients only.
        of = " (errors: cluster)" if options.errors == "wild" else ""
        _print(f"## Effects, in standard deviations{of}\n\n{markdown(effects)}")
        if options.out is not None:
            files = {
                "paths.csv": fit.paths().to_csv(index=False),
                "effects.csv": effects.to_csv(index=False),
                "hypotheses.svg": model.draw(asked),
                "estimated.svg": fit.diagram(),
            }
            for file, text in files.items():
                _write(options.out / name.replace(" ", "-") / file, text)


def _diagram(options: argparse.Namespace) -> None:
    asked = _model(options.model)
    if options.out is None:
        _print(f"{asked.name}: {describe(asked)}")
    else:
        _write(options.out, model.draw(asked))


_NAMES: Final = {name.replace(", ", "-"): name for name in model.STUDIES}


def _model(name: str) -> model.Model:
    """Return a model of the study by its name, or that of a file."""
    if name in _NAMES or name in model.STUDIES:
        return model.study(_NAMES.get(name, name))
    if not Path(name).exists() and not name.endswith(".toml"):
        raise AnalysisError(
            f"no model is called `{name}`", f"use one of {', '.join(_NAMES)}, or a file of one"
        )
    return model.read(name)


def _samples(options: argparse.Namespace) -> Iterator[tuple[str, pd.DataFrame]]:
    """Give the samples that were asked for, with what they are called."""
    if (options.samples is None) == (not options.what):
        raise AnalysisError(
            "it is not said what to estimate from" if options.samples is None
            else "both experiments and a file of samples are named",
            "name experiments by their numbers, or a file with --samples",
        )  # fmt: skip
    if options.samples is not None:
        yield options.samples.name, shapes.read(options.samples)
        return
    show = _Progress()
    results, experiments = _source(options, show)
    for experiment in experiments:
        show.say(f"experiment {experiment}: samples")
        samples = results.samples(experiment)
        show.clear()
        yield f"experiment {experiment}", samples


def _usable(asked: model.Model, samples: pd.DataFrame, name: str) -> tuple[pd.DataFrame, str]:
    """Return the samples of the model's group that thrashed, and how many are left out."""
    if asked.mode and "mode" in samples:
        samples = samples[samples["mode"] == asked.mode]
        if samples.empty:
            raise AnalysisError(
                f"{name} has no sample with mode `{asked.mode}`",
                f"give samples of that group, or a model of another than `{asked.name}`",
            )
    if "TP" not in samples:
        return samples, ""
    thrashed = samples[samples["TP"] != float("inf")]
    left_out = len(samples) - len(thrashed)
    if thrashed.empty:
        raise AnalysisError(
            f"none of the {left_out} samples of {name} thrashed",
            "measure larger MPLs; `tidegate_analysis.censored` says what those samples do show",
        )
    return thrashed, f" ({left_out} that never thrashed are left out)" if left_out else ""


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AnalysisError(
            f"{file} cannot be written: {error.strerror}", "give another place with --out"
        ) from error


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
