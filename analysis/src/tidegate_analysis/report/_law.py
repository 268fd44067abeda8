"""The scalability law beside what was measured.

`tidegate_analysis.scalability` fits Gunther's law to a curve; this draws it and says what it says.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis import scalability
from tidegate_analysis.errors import AnalysisError
from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Figure, Paragraph, Part, Section, Table
from tidegate_analysis.report._throughput import _wrapped, chosen
from tidegate_analysis.report._view import View, records

_FEWEST_LEVELS: Final = 4

#: A batchset's row of the summary, and its law.
_Fit = tuple[dict[str, Any], scalability.Law]


def law(view: View) -> Section:
    """Return the law of each batchset that is drawn, its peak, and what it cannot say."""
    title = "Scalability law"
    if view.is_controlled or view.curves.empty:
        return Section("law", title, missing="there are no curves of fixed levels")
    if int(view.summary["levels"].max()) < _FEWEST_LEVELS:
        why = f"it has three parameters, so a curve needs {_FEWEST_LEVELS} levels"
        return Section("law", title, missing=why)
    shown = chosen(view)
    fits, problems = _fitted(view, shown)
    parts: list[Part] = []
    if fits:
        parts += [_drawn(view, fits), _numbers(fits)]
    if problems:
        parts.append(Paragraph("Not fitted: " + words.enumeration(problems, 4) + "."))
    return Section("law", title, parts)


def _own(view: View, row: dict[str, Any]) -> pd.DataFrame:
    is_own = (view.done["run"] == row["run"]) & (view.done["batchset"] == row["batchset"])
    own: pd.DataFrame = view.done[is_own]
    return own


def _fitted(
    view: View, shown: pd.DataFrame
) -> tuple[list[tuple[dict[str, Any], scalability.Law]], list[str]]:
    """Return the fit of each batchset, and why others have none."""
    fits, problems = [], []
    for row in records(shown):
        try:
            fits.append((row, scalability.fit(_own(view, row)[["mpl", "tps"]])))
        except AnalysisError as error:
            problems.append(f"{row['label']} ({error.problem})")
    return fits, problems


def _drawn(view: View, fits: Sequence[_Fit]) -> Figure:
    columns = 1 if len(fits) == 1 else 2 if len(fits) <= 4 else 3 if len(fits) <= 9 else 4
    said = []
    with style.style():
        figure, axes = style.panels(len(fits), columns, height=3.4 if columns == 1 else 1.9)
        for panel, (row, found) in zip(axes, fits, strict=True):
            own = _own(view, row)
            places = np.geomspace(max(1.0, own["mpl"].min()), own["mpl"].max(), 80)
            curve = found.at(places)
            high = curve["high"].clip(upper=2 * own["tps"].max())
            panel.fill_between(
                curve["mpl"], curve["low"], high, color=style.COLOURS[2], alpha=0.2, lw=0
            )
            panel.plot(curve["mpl"], curve["tps"], color=style.COLOURS[2])
            panel.plot(own["mpl"], own["tps"], "o", color=style.INK, alpha=0.6, markersize=2.6)
            style.levels(panel, own["mpl"], ticks=4 if columns > 2 else 10)
            style.thousands(panel, 1.4 * own["tps"].max())
            panel.set_title(_wrapped(row["label"], 7.2 / columns), fontsize=9 if columns < 3 else 7)
            said.append(f"{row['label']}: {_peak(found)}, R² {words.number(found.r2)}")
        figure.supxlabel("MPL", fontsize=9)
        figure.supylabel("throughput, tps", fontsize=9)
        alt = ". ".join(said[:8]) + "."
        svg = style.svg(figure, "The scalability law beside what was measured", alt)
    caption = (
        "Gunther's universal scalability law fitted to each curve, with its 95 % band; every "
        "execution as a dot."
    )
    return Figure("law", caption, alt, svg)


def _peak(found: scalability.Law) -> str:
    if not np.isfinite(found.peak) or found.peak <= 0:
        return "the law has no peak"
    peak = f"the law's peak is {words.number(found.peak_tps)} tps at MPL"
    return f"{peak} {words.number(found.peak)}"


def _numbers(fits: Sequence[_Fit]) -> Table:
    rows = []
    for row, found in fits:
        ends = found.intervals.set_index("parameter")
        texts = [
            f"{words.number(ends.loc[name, 'estimate'])} ({words.number(ends.loc[name, 'low'])} to "
            f"{words.number(ends.loc[name, 'high'])})"
            for name in ("lambda", "sigma", "kappa", "peak")
        ]
        rows.append(
            (row["label"], *texts, words.number(row["TP"]), words.number(found.r2),
             "; ".join(found.flags))
        )  # fmt: skip
    header = ("batchset", "λ, tps", "σ", "κ", "peak, MPL", "TP", "R²", "what it cannot say")
    return Table(
        "law-numbers",
        "The law's parameters with 95 % intervals",
        header,
        rows,
        "λ is the throughput of one client, σ contention, κ coherency. The law is smooth: a "
        "thrashing point is where throughput first falls sharply, and is rather above the peak.",
    )
