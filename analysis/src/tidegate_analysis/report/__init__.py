"""Reports: one HTML page that needs nothing else, figures for print, and their data.

>>> from tidegate_analysis import load, report            # doctest: +SKIP
>>> report.write(load("results.db"), [1], "out/report")   # doctest: +SKIP

A report has for each experiment: what ran and what is missing; advice in plain words, each sentence
with the numbers behind it; throughput and latency against MPL; what happened in the course of an
execution; kinds, classes and trees where the scenario has them; what the analysis protocol counted;
published figures beside ours. A section for which an experiment has not the data is left out, and
the page says why. Where the experiment was analysed, executions that the latest analysis dropped
are in no curve, fit or sentence of advice, and the page says how many they are.

`write` takes more sections: functions of results and an experiment's number. What they raise as an
`AnalysisError` is why they are left out. `tidegate_analysis.report.causal.makers` gives those of
the chapter on what moves the thrashing point, which the command line adds.

The page is for reading. Beside it, in ``data/``, are a CSV file for each of its tables with all
rows, the sentences of advice with the numbers behind them, and unrounded what curves and thrashing
points are drawn from. What happens in the course of an execution is in the store and its exports.
"""

import csv
import io
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pandas as pd

from tidegate_analysis.errors import AnalysisError, StoreError
from tidegate_analysis.report import (
    _advice,
    _details,
    _header,
    _page,
    _protocol,
    _published,
    _throughput,
    _time,
)
from tidegate_analysis.report._page import Chapter
from tidegate_analysis.report._parts import (
    Advice,
    Claim,
    Figure,
    Paragraph,
    Part,
    Section,
    Sentence,
    Table,
    adjusted_claims,
)
from tidegate_analysis.report._style import style, svg
from tidegate_analysis.report._view import View
from tidegate_analysis.results import Results

__all__ = [
    "Advice",
    "Claim",
    "Figure",
    "Paragraph",
    "Part",
    "Results",
    "Section",
    "SectionMaker",
    "Sentence",
    "Table",
    "style",
    "svg",
    "write",
]

#: Makes a section of the results of an experiment.
SectionMaker = Callable[[Results, int], Section]

_BEFORE: Final[Sequence[Callable[[View], Section]]] = (
    _header.header,
    _advice.advice,
    _throughput.throughput,
    _throughput.law,
    _throughput.latency,
    _time.over_time,
    _time.heat,
    _details.kinds,
    _details.classes,
    _details.trees,
    *_protocol.PARTS,
)
_AFTER: Final[Sequence[Callable[[View], Section]]] = (_published.published_figures,)


def write(
    results: Results,
    experiments: Sequence[int],
    out: str | Path,
    *,
    more: Sequence[SectionMaker] = (),
    progress: Callable[[str], None] | None = None,
) -> list[Path]:
    """Write a report of experiments into a directory.

    - results: What `tidegate_analysis.load` returns.
    - out: A directory; it is made where it is not there. Files in it are replaced.
    - more: Makers of further sections, which come before the published figures.
    - progress: Called with a line of text before each step.

    Returns the files written, `report.html` first.

    Raises `AnalysisError`: no experiment was asked for, one is not in the store, or the directory
    cannot be written.
    """
    if not experiments:
        raise AnalysisError("no experiment was asked for", "give the number of at least one")
    views = [View(results, int(number)) for number in dict.fromkeys(experiments)]
    tell = progress or (lambda _: None)
    chapters = [_chapter(view, more, tell) for view in views]
    tell("writing the page")
    names = ", ".join(view.name for view in views)
    summary = (
        f"{sum(len(view.measured) for view in views):,} executions of "
        f"{sum(len(view.executions) for view in views):,} planned."
    )
    files = {"report.html": _page.page(chapters, f"Tidegate: report on {names}", summary)}
    parts = list(_page.files(chapters))
    files |= {f"figures/{name}": one.svg for name, one in parts if isinstance(one, Figure)}
    files |= {f"data/{name}": _csv(one) for name, one in parts if isinstance(one, Table)}
    files |= _data(views, chapters)
    return _written(Path(out), files)


def _chapter(view: View, more: Sequence[SectionMaker], tell: Callable[[str], None]) -> Chapter:
    makers: list[tuple[str, Callable[[View], Section]]] = [
        *((_named(maker), maker) for maker in _BEFORE),
        *((_named(maker), partial(_further, maker)) for maker in more),
        *((_named(maker), maker) for maker in _AFTER),
    ]
    sections = []
    # An experiment that is not there is an error, not a section without data.
    title = f"Experiment {view.number}: {view.name}"
    for name, maker in makers:
        tell(f"experiment {view.number}: {name}")
        try:
            sections.append(maker(view))
        except StoreError:
            raise
        except AnalysisError as error:
            sections.append(Section(name, name.capitalize(), missing=str(error)))
    return Chapter(view.number, title, adjusted_claims(sections))


def _named(maker: Callable[..., Section]) -> str:
    return getattr(maker, "__name__", "section").strip("_").replace("_", " ")


def _further(maker: SectionMaker, view: View) -> Section:
    return maker(view.results, view.number)


def _csv(table: Table) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows])
    return text.getvalue()


def _data(views: Sequence[View], chapters: Sequence[Chapter]) -> dict[str, str]:
    """Return what curves and sentences are made of, as CSV."""
    curves = [view.curves for view in views if len(view.curves)]
    points = [view.points for view in views if len(view.points)]
    sentences = [
        {
            "experiment": chapter.number,
            "about": sentence.about,
            "kind": sentence.kind,
            "sentence": sentence.text,
            "numbers": "; ".join(f"{k}: {v}" for k, v in sentence.numbers.items()),
        }
        for chapter in chapters
        for section in chapter.sections
        for part in section.parts
        if isinstance(part, Advice)
        for sentence in part.sentences
        if isinstance(sentence, Sentence)  # all are: claims are adjusted_claims
    ]
    tables = {"curves": curves, "points": points, "advice": [pd.DataFrame(sentences)]}
    return {
        f"data/{name}.csv": pd.concat(frames).to_csv(index=False, lineterminator="\n")
        for name, frames in tables.items()
        if any(len(frame) for frame in frames)
    }


def _written(out: Path, files: dict[str, str]) -> list[Path]:
    paths = []
    try:
        for name, text in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            paths.append(path)
    except OSError as error:
        raise AnalysisError(
            f"{error.filename or out} cannot be written: {error.strerror}",
            "give a directory that can be, with --out",
        ) from error
    return paths
