"""What happens in the course of an execution: limit, throughput, response time, latencies.

Where a controller sets the limit, each batchset has a figure with a line for each limit that it
starts with. Elsewhere a single figure shows the batchset that loses most, at its best level and at
its last, which is where steadiness is in question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.colors import PowerNorm

from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Figure, Paragraph, Part, Section
from tidegate_analysis.report._view import BATCHSET, NOTHING, View, records

MOST_FIGURES: Final = 12
MOST_POINTS: Final = 400
#: Points of a line.
FEWEST_INTERVALS: Final = 2
ONE_INTERVAL: Final = (
    "each execution that is looked at has one interval, so there is no course that could be drawn; "
    "a longer `ctl` or a shorter `interval` gives more"
)
NAMES: Final = {"limit": "limit, MPL", "tps": "throughput, tps", "ms": "response time, ms"}


@dataclass(frozen=True)
class TimeFigure:
    """Executions that are drawn together, each with the name of its line."""

    name: str
    label: str
    lines: Mapping[int, str]
    exchanged_at: tuple[float, ...] = ()


def groups(view: View) -> list[TimeFigure]:
    """Return which executions are looked at one by one: the first repetition of each level."""
    first = view.done.sort_values("repetition", kind="stable")
    first = first.drop_duplicates([*BATCHSET, "mpl"]).sort_values([*BATCHSET, "mpl"])
    labels = view.batchsets.set_index(BATCHSET)["label"].to_dict()
    if view.is_controlled:
        return [
            TimeFigure(
                f"time-{run}-{batchset}",
                labels[run, batchset],
                {int(r["execution"]): f"from {r['mpl']}" for r in records(rows)},
                _exchanged(rows.iloc[0]),
            )
            for (run, batchset), rows in first.groupby(BATCHSET)
        ]
    if view.scenario == "deteriorate":
        last = first.drop_duplicates(BATCHSET, keep="last").head(len(style.COLOURS))
        lines = {int(r["execution"]): labels[r["run"], r["batchset"]] for r in records(last)}
        return [TimeFigure("time", "", lines)]
    # One without its last level lost most: what collapsed is what is dropped.
    order = view.summary.sort_values("loss", ascending=False, na_position="first", kind="stable")
    worst = order.iloc[0]
    own = first[(first["run"] == worst["run"]) & (first["batchset"] == worst["batchset"])]
    ends = own[own["mpl"].isin([worst["best_mpl"], worst["last_mpl"]])]
    lines = {int(r["execution"]): f"MPL {words.number(r['mpl'])}" for r in records(ends)}
    return [TimeFigure("time", str(worst["label"]), lines)]


def _exchanged(row: pd.Series) -> tuple[float, ...]:
    """Return when something was exchanged: half way, where the treatment says so."""
    treatment = str(row["treatment"])
    is_exchanged = '"exchange":' in treatment and '"exchange":null' not in treatment
    return (float(row["seconds"]) / 2,) if is_exchanged else ()


def singles(view: View) -> dict[int, str]:
    """Return at most four executions that are looked at alone, with their names."""
    every = groups(view)
    if view.is_controlled:
        firsts = [(group, next(iter(group.lines.items()))) for group in every]
    else:
        firsts = [(every[0], line) for line in every[0].lines.items()]
    return {
        execution: ", ".join(text for text in (group.label, name) if text)
        for group, (execution, name) in firsts[:4]
    }


def over_time(view: View) -> Section:
    """Return time series of limit, throughput and response time, with switches marked."""
    title = "Over time"
    if view.done.empty:
        return Section("time", title, missing=NOTHING)
    every = groups(view)
    drawn = every[:MOST_FIGURES]
    chosen = [execution for group in drawn for execution in group.lines]
    intervals = view.selected(view.results.intervals, chosen)
    if intervals.empty:
        return Section("time", title, missing="no interval was kept")
    if _has_no_course(intervals):
        return Section("time", title, missing=ONE_INTERVAL)
    limits = pd.DataFrame({"execution": []})
    if view.is_controlled:
        limits = view.selected(view.results.limits, chosen)
    parts: list[Part] = [_series(view, group, intervals, limits) for group in drawn]
    if len(every) > len(drawn):
        parts.append(
            Paragraph(f"The first {len(drawn)} of {len(every):,} batchsets are drawn; the exported "
                      "tables intervals and limits have all.")
        )  # fmt: skip
    return Section("time", title, parts)


def _has_no_course(table: pd.DataFrame) -> bool:
    """Return whether no execution has as many intervals as a line has points."""
    return bool(table.groupby("execution")["interval"].nunique().max() < FEWEST_INTERVALS)


def _lines(group: TimeFigure, intervals: pd.DataFrame, limits: pd.DataFrame) -> pd.DataFrame:
    """Return the group's executions in long form: line, s, tps, ms, limit."""
    pieces = []
    for execution, name in group.lines.items():
        seen = intervals[intervals["execution"] == execution].sort_values("until_s")
        if len(seen) < FEWEST_INTERVALS:
            continue
        until = seen["until_s"].to_numpy(dtype=float)
        length = np.diff(until, prepend=0.0)
        piece = pd.DataFrame(
            {
                "line": name,
                "s": until,
                "tps": seen["transactions"].to_numpy() / np.where(length > 0, length, np.nan),
                "ms": seen["mean_ms"].to_numpy(dtype=float),
            }
        )
        decided = limits[limits["execution"] == execution]
        if len(decided):
            decided = decided.sort_values("at_s")
            at = decided["at_s"].to_numpy(dtype=float)
            place = np.clip(np.searchsorted(at, until), 0, len(at) - 1)
            piece["limit"] = decided["limit"].to_numpy(dtype=float)[place]
        step = -(-len(piece) // MOST_POINTS)
        if step > 1:
            blocks = np.arange(len(piece)) // step
            piece = piece.drop(columns="line").groupby(blocks).mean().assign(line=name)
        pieces.append(piece)
    return pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame()


@style.styled
def _series(view: View, group: TimeFigure, intervals: pd.DataFrame, limits: pd.DataFrame) -> Part:
    rows = _lines(group, intervals, limits)
    if rows.empty:
        return Paragraph(f"{group.label}: {ONE_INTERVAL}.")
    names = {column: title for column, title in NAMES.items() if column in rows}
    figure = style.empty(7.2, 1.5 * len(names) + 0.6)
    axes = figure.subplots(len(names), 1, sharex=True, squeeze=False).ravel()
    for index, (name, line) in enumerate(rows.groupby("line", sort=False)):
        for panel, column in zip(axes, names, strict=True):
            panel.plot(
                line["s"], line[column], linewidth=1.0, **style.line(index),
                label=str(name) if panel is axes[0] else None,
                drawstyle="steps-pre" if column == "limit" else "default",
            )  # fmt: skip
    for panel, title in zip(axes, names.values(), strict=True):
        panel.set_ylabel(title.replace(", ", ",\n"))
        style.thousands(panel)
        for at in group.exchanged_at:
            panel.axvline(at, color=style.INK, linestyle="--", linewidth=0.9)
    axes[-1].set_xlabel("time, s")
    figure.legend(loc="outside lower center", ncols=2 if view.scenario == "deteriorate" else 6)
    alt = words.sentence(f"{group.label}: {_course(rows)}" if group.label else _course(rows))
    what = (
        "limit, throughput and response time"
        if "limit" in names
        else "throughput and response time"
    )
    where = f"{group.label}: " if group.label else ""
    caption = words.sentence(f"{where}{what} over time, first repetition")
    if group.exchanged_at:
        caption += f"; the dashed line, at {words.number(group.exchanged_at[0])} s, is the switch"
    title = f"Over time: {group.label}".removesuffix(": ")
    return style.drawn(figure, group.name, title, caption + ".", alt)


def _course(rows: pd.DataFrame) -> str:
    """Say what each line is in the second half of the time."""
    said = []
    for name, line in rows.groupby("line", sort=False):
        half = line[line["s"] > line["s"].max() / 2]
        text = f"{name}: {words.number(half['tps'].mean())} tps"
        if "limit" in half and half["limit"].notna().any():
            limit = half["limit"]
            text += (
                f" at limit {words.number(limit.mean())} in the mean, from "
                f"{words.between(float(limit.min()), float(limit.max()))}"
            )
        said.append(text)
    return "in the second half of the time, " + "; ".join(said) + "."


def heat(view: View) -> Section:
    """Return how latencies are spread, interval by interval."""
    title = "Latencies over time"
    if view.done.empty:
        return Section("heat", title, missing=NOTHING)
    picked = singles(view)
    seen = view.selected(view.results.histograms, list(picked))
    if seen.empty:
        return Section("heat", title, missing="no histogram of latencies was kept")
    if _has_no_course(seen):
        return Section("heat", title, missing=ONE_INTERVAL)
    return Section("heat", title, [_heat_map(view, picked, seen)])


@style.styled
def _heat_map(view: View, picked: Mapping[int, str], seen: pd.DataFrame) -> Figure:
    length = float(view.about["interval_s"])
    edges = _edges(seen)
    said = []
    figure, axes = style.panels(len(picked), 1 if len(picked) == 1 else 2, height=2.6)
    image = None
    for panel, (execution, label) in zip(axes, picked.items(), strict=True):
        own = seen[seen["execution"] == execution]
        image = _shade(panel, own, edges, length)
        said.append(f"{label}: {_spread(own)}")
    figure.supxlabel("time, s", fontsize=9)
    figure.supylabel("latency, ms", fontsize=9)
    if image is not None:
        figure.colorbar(
            image, ax=axes, label="% of the interval's transactions", shrink=0.8, extend="max"
        )
    style.titles(figure, axes, list(picked.values()), 9)
    caption = (
        "Latencies over time: each column is an interval, each row a range of latencies, bright "
        "is where most transactions of the interval were. "
        + ("The first of each batchset's executions, at most four."
           if view.is_controlled
           else "Executions: those of the time series above.")
    )  # fmt: skip
    return style.drawn(figure, "heat", "Latencies over time", caption, said)


def _edges(seen: pd.DataFrame) -> np.ndarray:
    """Return the bounds of the ranges of latencies; one of a thousand may be below the first."""
    counts = seen.groupby("latency_us")["transactions"].sum().sort_index()
    place = int(np.searchsorted(counts.cumsum() / counts.sum(), 0.001))
    ends = np.maximum(np.array([counts.index[place], counts.index[-1]], dtype=float) / 1e3, 1e-3)
    return np.geomspace(ends[0] * 0.9, ends[1] * 1.1, 49)


def _shade(panel: Any, own: pd.DataFrame, edges: np.ndarray, length: float) -> Any:
    """Draw one heat map; an interval is scaled to its own transactions."""
    last = int(own["interval"].max()) if len(own) else 1
    counts, _, _ = np.histogram2d(
        np.maximum(own["latency_us"] / 1e3, edges[0]),
        own["interval"],
        bins=(edges, np.linspace(0.5, last + 0.5, min(last, 240) + 1)),
        weights=own["transactions"],
    )
    total = counts.sum(axis=0, keepdims=True)
    share = 100 * counts / np.where(total > 0, total, np.nan)
    image = panel.imshow(
        share, origin="lower", aspect="auto", interpolation="nearest",
        norm=PowerNorm(0.5, 0, 50),
        extent=(0, last * length, 0, len(edges) - 1),
    )  # fmt: skip
    panel.grid(visible=False)
    decades = 10.0 ** np.arange(np.floor(np.log10(edges[0])), np.ceil(np.log10(edges[-1])))
    steps = (1.0,) if edges[-1] / edges[0] > 300 else (1.0, 2.0, 5.0)
    ticks = np.sort(np.outer(decades, steps).ravel())
    ticks = ticks[(ticks >= edges[0]) & (ticks <= edges[-1])]
    if len(ticks) < 2:  # all latencies are nearly alike
        ticks = edges[[0, -1]]
    places = np.interp(np.log(ticks), np.log(edges), np.arange(len(edges)))
    panel.set_yticks(places, [words.value(tick) for tick in ticks])
    return image


def _spread(own: pd.DataFrame) -> str:
    """Say between which latencies nine of ten transactions are."""
    order = own.groupby("latency_us")["transactions"].sum().sort_index()
    if order.empty:
        return "nothing was kept"
    share = order.cumsum() / order.sum()
    ends = [float(share.index[int(np.searchsorted(share, q))]) / 1e3 for q in (0.05, 0.95)]
    return f"nine of ten transactions take from {words.between(ends[0], ends[1], 'ms')}"


__all__: Sequence[str] = ["TimeFigure", "groups", "heat", "over_time", "singles"]
