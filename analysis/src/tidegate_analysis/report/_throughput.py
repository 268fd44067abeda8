"""Throughput and latency against MPL, all batchsets at a glance, and the scalability law.

Where there are more batchsets than panels, panels are those of batchsets evenly spaced from the one
that loses least of its best throughput at the last level to the one that loses most, so that they
are neither the prettiest nor the worst; the picture at a glance has all of them. A batchset without
its last level counts as one that loses most: the protocol drops what collapsed.
"""

from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tidegate_analysis import scalability
from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Figure, Paragraph, Part, Section, Table
from tidegate_analysis.report._view import BATCHSET, NOTHING, View, records

MOST_PANELS: Final = 24
MOST_TOGETHER: Final = 7


def throughput(view: View) -> Section:
    """Return throughput against MPL: comparison, small multiples, thrashing points, numbers."""
    title = f"Throughput against {view.level}"
    if view.curves.empty:
        return Section("throughput", title, missing=NOTHING)
    if not view.has_curves or view.is_controlled:
        return Section("throughput", "Throughput", [settings(view), _setting_numbers(view)])
    shown = chosen(view)
    parts: list[Part] = [comparison(view)]
    if len(view.summary) > 1:
        parts.append(small_multiples(view, shown))
        if len(view.summary) > len(shown):
            left_out = len(view.summary) - len(shown)
            parts += [
                Paragraph(
                    f"{left_out:,} of {len(view.summary):,} batchsets have no panel of their own: "
                    f"those drawn are evenly spaced from the one that loses least at the last "
                    f"level to the one that loses most{_without_last(view)}. The next figure has "
                    f"all of them, and so has the file data/curves.csv."
                ),
                at_a_glance(view),
            ]
    if view.summary["TP"].notna().sum() > 1:
        parts.append(thrashing_points(view))
    parts.append(numbers(view))
    return Section("throughput", title, parts)


def _without_last(view: View) -> str:
    """Return how many batchsets are taken to lose most, since the last level is not there."""
    without = int(view.summary["loss"].isna().sum())
    if not without:
        return ""
    return f"; {words.count(without, 'batchset')} of unknown loss there count as losing more"


def chosen(view: View) -> pd.DataFrame:
    """Return the batchsets that are drawn one by one, in the order of the plan."""
    summary = view.summary
    if len(summary) <= MOST_PANELS:
        return summary
    order = summary.sort_values("loss", kind="stable")
    places = np.unique(np.linspace(0, len(order) - 1, MOST_PANELS).round().astype(int))
    return order.iloc[places].sort_values(BATCHSET)


def comparison(view: View) -> Figure:
    """Return batchsets in one figure; where there are too many, the subjects' typical shapes."""
    if len(view.summary) <= MOST_TOGETHER:
        return _together(view)
    return _subjects(view)


@style.styled
def _together(view: View) -> Figure:
    figure = style.empty(7.2, 3.8)
    axes = figure.subplots()
    for index, (_, curve) in enumerate(view.curves.groupby(BATCHSET)):
        _draw(axes, curve, index, str(curve["label"].iloc[0]))
        if len(view.summary) == 1:
            _dots(axes, view.done)
    style.levels(axes, view.curves["mpl"])
    style.thousands(axes, 1.4 * view.done["tps"].max())
    axes.set(xlabel=view.level, ylabel="throughput, tps")
    if len(view.summary) > 1:
        figure.legend(loc="outside lower center", ncols=1 if len(view.summary) > 4 else 2)
    alt = ". ".join(_curve_text(view, row) for row in records(view.summary)) + "."
    name = f"Throughput against {view.level}"
    caption = f"Throughput against {view.level}: mean of the repetitions"
    if view.curves["n"].max() > 1:
        caption += ", with the 95 % t interval of the mean as a band where there is more than one"
    if len(view.summary) == 1:
        caption += "; every repetition is a dot"
    caption += f"{_crosses(view.summary)}."
    return style.drawn(figure, "throughput", name, caption, alt)


def _crosses(shown: pd.DataFrame) -> str:
    """Return what a cross is, where one is drawn."""
    return "; a cross marks a thrashing point" if np.isfinite(shown["TP"]).any() else ""


def _curve_text(view: View, row: dict[str, Any]) -> str:
    """Return how a batchset's curve goes, with its thrashing point."""
    curve = view.curves[
        (view.curves["run"] == row["run"]) & (view.curves["batchset"] == row["batchset"])
    ]
    text = words.curve(curve["mpl"], curve["tps"], "throughput", "tps", view.level)
    if np.isfinite(row["TP"]):
        text += f"; the thrashing point is {words.number(row['TP'])}"
    return f"{row['label']}: {text}"


def _draw(axes: Any, curve: pd.DataFrame, index: int, label: str | None = None) -> None:
    """Draw a mean with its band and, where there is one, its thrashing point."""
    if {"tps_low", "tps_high"} <= set(curve) and curve["tps_low"].notna().any():
        low = curve["tps_low"].clip(lower=0)
        band = {"color": style.colour(index), "alpha": 0.2, "lw": 0}
        axes.fill_between(curve["mpl"], low, curve["tps_high"], **band)
    axes.plot(curve["mpl"], curve["tps"], label=label, **style.line(index, marker=True))
    if "TP" in curve and np.isfinite(curve["TP"].iloc[0]):
        at = curve[curve["mpl"] == curve["TP"].iloc[0]]
        axes.plot(at["mpl"], at["tps"], "x", color=style.INK, markersize=9, markeredgewidth=1.8)


def _dots(axes: Any, executions: pd.DataFrame) -> None:
    """Draw every repetition."""
    axes.plot(
        executions["mpl"], executions["tps"], "o", color=style.INK, alpha=0.55, markersize=2.6,
        markeredgewidth=0, zorder=3,
    )  # fmt: skip


@style.styled
def _subjects(view: View) -> Figure:
    """Return each subject's throughput as a share of each batchset's best: median and quartiles."""
    curves = view.curves.copy()
    curves["share"] = curves["tps"] / curves.groupby(BATCHSET)["tps"].transform("max")
    groups = curves.groupby(["subject", "mpl"])["share"]
    quartiles = {q: groups.quantile(q) for q in (0.25, 0.5, 0.75)}
    table = pd.DataFrame(quartiles | {"n": groups.size()}).reset_index()
    sizes = view.batchsets.groupby("subject").size()
    said = []
    figure = style.empty(7.2, 3.8)
    axes = figure.subplots()
    for index, (subject, part) in enumerate(table.groupby("subject")):
        colour = style.colour(index)
        axes.fill_between(
            part["mpl"], 100 * part[0.25], 100 * part[0.75], color=colour, alpha=0.15, lw=0
        )
        axes.plot(
            part["mpl"], 100 * part[0.5], color=colour, label=subject,
            marker=style.MARKERS[index % len(style.MARKERS)],
        )  # fmt: skip
        said.append(
            f"{subject}: half of the {_of_all(int(part['n'].iloc[-1]), sizes[subject])} at "
            f"{view.level} {words.number(float(part['mpl'].iloc[-1]))} keep "
            f"{words.percent(float(part[0.5].iloc[-1]))} or more of their best throughput there"
        )
    style.levels(axes, curves["mpl"])
    style.thousands(axes)
    axes.set(xlabel=view.level, ylabel="throughput, % of the batchset's best")
    figure.legend(loc="outside lower center", ncols=5)
    caption = (
        "Comparison of subjects: throughput as a share of the best of the same batchset, median "
        f"over the batchsets, with the quartiles as a band; {len(view.summary):,} batchsets."
    )
    least = records(table.assign(of=table["subject"].map(sizes)))
    row = min(least, key=lambda one: one["n"] / one["of"])
    if row["n"] < row["of"]:
        caption += (
            " Each level has those that were measured there and not dropped: the fewest, "
            f"{_of_all(row['n'], row['of'])}, of {row['subject']} at {view.level} "
            f"{words.number(row['mpl'])}. What collapsed is dropped first."
        )
    return style.drawn(figure, "throughput", "Comparison of subjects", caption, said)


def _of_all(n: int, of: int) -> str:
    """Return how many batchsets of how many, where it is not all of them."""
    return words.count(of, "batchset") if n == of else f"{n:,} of {words.count(of, 'batchset')}"


@style.styled
def small_multiples(view: View, shown: pd.DataFrame) -> Figure:
    """Return a panel for each chosen batchset with every repetition."""
    columns = 1 if len(shown) == 1 else 2 if len(shown) <= 4 else 3 if len(shown) <= 9 else 4
    grouped = dict(tuple(view.curves.groupby(BATCHSET)))
    points = dict(tuple(view.done.groupby(BATCHSET)))
    figure, axes = style.panels(len(shown), columns, height=3.4 if columns == 1 else 1.9)
    for panel, row in zip(axes, records(shown), strict=True):
        key = (row["run"], row["batchset"])
        repetitions = points[key]
        _draw(panel, grouped[key], 0)
        _dots(panel, repetitions)
        style.levels(panel, grouped[key]["mpl"], ticks=4)
        style.thousands(panel, 1.4 * repetitions["tps"].max())
    figure.supxlabel(view.level, fontsize=9)
    figure.supylabel("throughput, tps", fontsize=9)
    style.titles(figure, axes, list(shown["label"]), 9 if columns < 3 else 7)
    alt = ". ".join(_curve_text(view, row) for row in records(shown)[:8]) + "."
    if len(shown) > 8:
        alt += f" And {len(shown) - 8} more, which the table lists."
    caption = "Throughput of each batchset: every repetition as a dot, the mean as a line"
    if shown["n"].max() > 1:
        caption += ", its 95 % interval as a band where there are repetitions"
    caption += f"{_crosses(shown)}."
    return style.drawn(figure, "batchsets", "Throughput of each batchset", caption, alt)


@style.styled
def at_a_glance(view: View) -> Figure:
    """Return all batchsets as rows of shades: throughput as a share of the batchset's best."""
    order = view.summary.sort_values(["subject", "loss"], kind="stable")
    table = view.curves.pivot_table(index=BATCHSET, columns="mpl", values="tps")
    table = table.loc[list(zip(order["run"], order["batchset"], strict=True))]
    share = table.div(table.max(axis=1), axis=0)
    sizes = order.groupby("subject").size()
    ends = sizes.cumsum()
    figure = style.empty(7.2, 4.6)
    axes = figure.subplots()
    image = axes.imshow(
        100 * share.to_numpy(), aspect="auto", interpolation="nearest", vmin=0, vmax=100
    )
    axes.set_xticks(range(share.shape[1]), [words.number(mpl) for mpl in share.columns])
    axes.set_yticks(ends - sizes / 2 - 0.5, [str(subject) for subject in sizes.index])
    axes.hlines(ends[:-1] - 0.5, -0.5, share.shape[1] - 0.5, color="white", lw=1.5)
    axes.grid(visible=False)
    axes.set(xlabel=view.level)
    figure.colorbar(image, label="throughput, % of the batchset's best", shrink=0.8)
    alt = "; ".join(
        f"{subject}: {int((loss > 0.5).sum()):,} of "
        f"{words.count(int(loss.notna().sum()), 'batchset')} with the last level lose more "
        f"than half of their best throughput there"
        for subject, loss in order.groupby("subject")["loss"]
    )
    caption = (
        f"All {len(order):,} batchsets at a glance: a row is a batchset, sorted by subject and by "
        "what it loses; bright is its best throughput, dark is none, white is not measured or "
        "dropped."
    )
    return style.drawn(figure, "glance", "All batchsets at a glance", caption, alt)


@style.styled
def thrashing_points(view: View) -> Figure:
    """Return how many batchsets have which thrashing point, by subject; ∞ is one that has none."""
    known = view.summary[view.summary["TP"].notna()]
    counts = pd.crosstab(known["subject"], known["TP"])
    counts = counts.reindex(columns=sorted({*view.curves["mpl"].unique(), np.inf}), fill_value=0)
    figure = style.empty(7.2, 3.0)
    axes = figure.subplots()
    base = np.zeros(counts.shape[1])
    for index, (subject, row) in enumerate(counts.iterrows()):
        colour = style.colour(index)
        axes.bar(range(len(row)), row, bottom=base, color=colour, label=str(subject), width=0.8)
        base += row.to_numpy()
    names = [words.number(mpl) if np.isfinite(mpl) else "none" for mpl in counts.columns]
    axes.set_xticks(range(len(names)), names)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="thrashing point, MPL", ylabel="batchsets")
    figure.legend(loc="outside lower center", ncols=5)
    finite = known[np.isfinite(known["TP"])]
    alt = f"{len(finite):,} of {words.count(len(known), 'analysed batchset')} thrashed" + (
        f", half of them at MPL {words.number(finite['TP'].median())} or below."
        if len(finite)
        else "."
    )
    caption = (
        "Thrashing points: how many batchsets have which. One that has none up to the last level "
        "is not without one: its point is censored there. One at the lowest level may lie below "
        "it: throughput is not known to have held anywhere."
    )
    return style.drawn(figure, "points", "Thrashing points", caption, alt)


def numbers(view: View) -> Table:
    rows = [
        (
            row["label"],
            words.number(row["n"]),
            words.number(row["best_mpl"]),
            words.number(row["best_tps"]),
            words.number(row["good_mpl"]),
            words.number(row["last_mpl"]),
            words.number(row["last_tps"]),
            words.percent(row["loss"]),
            words.number(row["TP"]),
        )
        for row in records(view.summary)
    ]
    where = view.level
    return Table(
        "curves",
        f"Throughput of the batchsets by {where}",
        (
            "batchset", "repetitions, at least", f"best {where}", "tps there",
            f"lowest {where} with 95 % of it", f"last {where}", "tps there", "loss", "TP",
        ),
        rows,
        "loss: at the last level of the plan; – is that it was not measured, or dropped. TP: ∞ is "
        "none up to the last level; – is that the batchset was not analysed or not retained. All "
        "levels: data/curves.csv.",
    )  # fmt: skip


@style.styled
def settings(view: View) -> Figure:
    """Return the throughput of each execution, a row for each batchset: controllers, or splits."""
    shown = chosen(view)
    points = dict(tuple(view.done.groupby(BATCHSET)))
    said = []
    figure = style.empty(7.2, 1.0 + 0.34 * len(shown))
    axes = figure.subplots()
    for place, row in enumerate(records(shown)):
        tps = points[row["run"], row["batchset"]]["tps"]
        axes.plot(tps, [place] * len(tps), "o", color=style.INK, alpha=0.55, markersize=4)
        axes.plot(tps.mean(), place, "D", color=style.COLOURS[1], markersize=6)
        said.append(
            f"{row['label']}: {words.number(tps.mean())} tps in the mean of "
            f"{words.count(len(tps), 'execution')}"
        )
    axes.set_yticks(range(len(shown)), list(shown["label"]))
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(0, 1.05 * max(float(view.done["tps"].max()), 1e-9))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: words.number(x)))
    axes.set_xlabel("throughput, tps")
    caption = "Throughput of each execution as a dot, and of each batchset's mean as a diamond."
    return style.drawn(figure, "throughput", "Throughput", caption, said)


def _setting_numbers(view: View) -> Table:
    tps = view.done.groupby(BATCHSET)["tps"].agg(["size", "mean", "min", "max"])
    rows = [
        (row["label"], *(words.number(tps.loc[(row["run"], row["batchset"]), name])
                         for name in ("size", "mean", "min", "max")))
        for row in records(view.summary)
    ]  # fmt: skip
    header = ("batchset", "executions", "tps, mean", "lowest", "highest")
    return Table("curves", "Throughput", header, rows, "All levels: data/curves.csv.")


LATENCIES: Final = {"p50_ms": "median", "mean_ms": "mean", "p95_ms": "95 %", "p99_ms": "99 %"}


@style.styled
def latency(view: View) -> Section:
    """Return latency percentiles by MPL."""
    title = f"Latency against {view.level}"
    if view.curves.empty:
        return Section("latency", title, missing=NOTHING)
    if not view.has_curves:
        return Section("latency", title, missing="each batchset has one level only")
    if view.is_controlled:
        why = "a level is where a controller starts; response time over time is under Over time"
        return Section("latency", title, missing=why)
    shown = chosen(view).head(12) if len(view.summary) <= 12 else chosen(view).iloc[::2]
    columns = 1 if len(shown) == 1 else 2 if len(shown) <= 4 else 3
    said = []
    figure, axes = style.panels(len(shown), columns, height=3.4 if columns == 1 else 2.0)
    for panel, row in zip(axes, records(shown), strict=True):
        curve = view.curves[
            (view.curves["run"] == row["run"]) & (view.curves["batchset"] == row["batchset"])
        ]
        for index, (column, name) in enumerate(LATENCIES.items()):
            panel.plot(
                curve["mpl"], curve[column].where(curve[column] > 0),
                label=name if panel is axes[0] else None, **style.line(index, marker=True),
            )  # fmt: skip
        style.logarithmic(panel, "y")
        style.levels(panel, curve["mpl"], ticks=5 if columns > 1 else 10)
        ends = curve["p99_ms"].to_numpy()
        said.append(
            f"{row['label']}: the 99th percentile goes from {words.number(ends[0])} ms at "
            f"{view.level} {words.number(curve['mpl'].iloc[0])} to {words.number(ends[-1])} ms "
            f"at {words.number(curve['mpl'].iloc[-1])}"
        )
    figure.supxlabel(view.level, fontsize=9)
    figure.supylabel("latency, ms", fontsize=9)
    figure.legend(loc="outside upper center", ncols=4)
    style.titles(figure, axes, list(shown["label"]), 9 if columns < 3 else 7)
    alt = ". ".join(said[:8]) + "."
    caption = (
        "Latency percentiles, from the moment a transaction was due, retries included; means over "
        "the repetitions; logarithmic."
    )
    parts: list[Part] = [style.drawn(figure, "latency", "Latency percentiles", caption, alt)]
    if len(shown) < len(view.summary):
        parts.append(
            Paragraph(f"{len(shown)} of {len(view.summary):,} batchsets are drawn; the numbers of "
                      "all are in data/curves.csv.")
        )  # fmt: skip
    return Section("latency", title, parts)


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


@style.styled
def _drawn(view: View, shown: pd.DataFrame) -> Figure:
    columns = 1 if len(shown) == 1 else 2 if len(shown) <= 4 else 3 if len(shown) <= 9 else 4
    said = []
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
    caption = (
        "Gunther's universal scalability law fitted to each curve, with its 95 % band; every "
        "execution as a dot."
    )
    return style.drawn(figure, "law", "The scalability law beside what was measured", caption, alt)


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
