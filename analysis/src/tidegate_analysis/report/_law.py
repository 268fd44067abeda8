"""The scalability law beside what was measured.

`tidegate_analysis.scalability` fits Gunther's law to a curve; this draws it and says what it says.
"""

from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis import scalability
from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Figure, Paragraph, Part, Section, Table
from tidegate_analysis.report._throughput import chosen
from tidegate_analysis.report._view import BATCHSET, View, records

_FEWEST_LEVELS: Final = 4


def law(view: View) -> Section:
    """Return the law of each batchset, its peak, and what it cannot say; some of them drawn."""
    title = "Scalability law"
    if view.is_controlled or view.curves.empty:
        return Section("law", title, missing="there are no curves of fixed levels")
    if int(view.summary["levels"].max()) < _FEWEST_LEVELS:
        why = f"it has three parameters, so a curve needs {_FEWEST_LEVELS} levels"
        return Section("law", title, missing=why)
    executions = view.done[[*BATCHSET, "mpl", "tps"]]
    fits = scalability.fit_all(executions, BATCHSET).merge(
        view.summary[[*BATCHSET, "label", "TP"]], on=BATCHSET
    )
    fitted, others = (fits[(fits["problem"] == "") == is_fitted] for is_fitted in (True, False))
    parts: list[Part] = []
    if len(fitted):
        shown = fitted.merge(chosen(view)[BATCHSET], on=BATCHSET)
        if len(shown) < len(fitted):
            parts.append(
                Paragraph(
                    f"{len(shown)} of {len(fitted):,} batchsets are drawn, as in the figures above."
                )
            )
        parts += [*([_drawn(view, shown)] if len(shown) else []), _numbers(fitted)]
    if len(others):
        problems = [f"{row['label']} ({row['problem']})" for row in records(others)]
        parts.append(Paragraph("Not fitted: " + words.enumeration(problems, 4) + "."))
    return Section("law", title, parts)


def _drawn(view: View, shown: pd.DataFrame) -> Figure:
    columns = 1 if len(shown) == 1 else 2 if len(shown) <= 4 else 3 if len(shown) <= 9 else 4
    said = []
    with style.style():
        figure, axes = style.panels(len(shown), columns, height=3.4 if columns == 1 else 1.9)
        for panel, row in zip(axes, records(shown), strict=True):
            own = view.own(row)
            found = scalability.fit(own)
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
            said.append(f"{row['label']}: {_peak(found)}, R² {words.number(found.r2)}")
        figure.supxlabel("MPL", fontsize=9)
        figure.supylabel("throughput, tps", fontsize=9)
        style.titles(figure, axes, list(shown["label"]), 9 if columns < 3 else 7)
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


def _numbers(fitted: pd.DataFrame) -> Table:
    def said(row: dict[str, Any], name: str) -> str:
        value, low, high = (row[name + end] for end in ("", "_low", "_high"))
        return f"{words.number(value)} ({words.between(low, high)})"

    rows = [
        (
            row["label"],
            *(said(row, name) for name in ("lambda", "sigma", "kappa", "peak")),
            words.number(row["TP"]),
            words.number(row["r2"]),
            row["flags"],
        )
        for row in records(fitted)
    ]
    header = ("batchset", "λ, tps", "σ", "κ", "peak, MPL", "TP", "R²", "what it cannot say")
    return Table(
        "law-numbers",
        f"The law's parameters with 95 % intervals: {words.count(len(rows), 'batchset')}",
        header,
        rows,
        "λ is the throughput of one client, σ contention, κ coherency. The law is smooth: a "
        "thrashing point is where throughput first falls sharply, and is rather above the peak.",
    )
