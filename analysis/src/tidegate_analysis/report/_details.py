"""What stands beside throughput and latency: kinds of transactions, classes, trees."""

import json
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Figure, Part, Section, Table
from tidegate_analysis.report._time import singles
from tidegate_analysis.report._view import BATCHSET, NOTHING, View, records


def kinds(view: View) -> Section:
    """Return latencies of each kind of transaction, in the executions of the time series."""
    title = "Kinds of transactions"
    if view.done.empty:
        return Section("kinds", title, missing=NOTHING)
    table = view.results.kinds(view.number)
    table = table[table["committed"] + table["rolled_back"] > 0]
    if len(table["kind"].unique()) < 2:
        return Section(
            "kinds", title, missing="there is one kind of transaction, whose latency is above"
        )
    seen = set(table["execution"])
    picked = {execution: name for execution, name in singles(view).items() if execution in seen}
    if not picked:
        return Section("kinds", title, missing="the executions looked at had no transaction")
    parts: list[Part] = [_ranges(table[table["execution"].isin(picked)], picked)]
    intervals = view.selected(view.results.interval_kinds, list(picked))
    if len(intervals):
        parts.append(_boxes(intervals, picked))
    return Section("kinds", title, parts)


@style.styled
def _ranges(table: pd.DataFrame, picked: dict[int, str]) -> Figure:
    """Return percentiles of each kind as bars with ticks."""
    said = []
    figure, axes = style.panels(len(picked), 1 if len(picked) == 1 else 2, height=2.4)
    for panel, (execution, label) in zip(axes, picked.items(), strict=True):
        own = table[table["execution"] == execution].reset_index(drop=True)
        rows = own.index.to_numpy()
        panel.hlines(rows, own["p50_ms"], own["p95_ms"], color=style.COLOURS[0], lw=7)
        panel.hlines(rows, own["p95_ms"], own["p99_ms"], color=style.COLOURS[0], lw=1.2)
        panel.plot(own["p99_ms"], rows, "|", color=style.COLOURS[0], markersize=8)
        panel.plot(own["mean_ms"], rows, "D", color=style.COLOURS[1], markersize=4)
        panel.set_yticks(rows, own["kind"].astype(str))
        style.logarithmic(panel, "x")
        panel.set_ylim(len(own) - 0.5, -0.5)
        if len(own):
            slow = own.loc[own["p95_ms"].idxmax()]
            said.append(
                f"{label}: the slowest kind is {slow['kind']}, half of which take more than "
                f"{words.number(slow['p50_ms'])} ms and one of twenty more than "
                f"{words.number(slow['p95_ms'])} ms"
            )
    figure.supxlabel("latency, ms", fontsize=9)
    style.titles(figure, axes, list(picked.values()), 9)
    caption = (
        "Latency of each kind of transaction: the bar goes from the median to the 95th percentile, "
        "the line to the 99th; the diamond is the mean; logarithmic."
    )
    return style.drawn(figure, "kinds", "Latency of each kind of transaction", caption, said)


@style.styled
def _boxes(intervals: pd.DataFrame, picked: dict[int, str]) -> Figure:
    """Return a box for each kind: its mean latency, interval by interval."""
    said = []
    figure, axes = style.panels(len(picked), 1 if len(picked) == 1 else 2, height=2.4)
    for panel, (execution, label) in zip(axes, picked.items(), strict=True):
        own = intervals[intervals["execution"] == execution]
        each = {str(k): part["mean_ms"].dropna() for k, part in own.groupby("kind")}
        if not each:
            panel.set_visible(False)
            continue
        panel.boxplot(
            list(each.values()), orientation="horizontal", tick_labels=list(each),
            medianprops={"color": style.COLOURS[1]}, boxprops={"color": style.INK},
            whiskerprops={"color": style.INK}, capprops={"color": style.INK},
            flierprops={"marker": ".", "markersize": 2, "markeredgecolor": style.INK},
        )  # fmt: skip
        style.logarithmic(panel, "x")
        medians = [f"{kind} {words.number(means.median())} ms" for kind, means in each.items()]
        said.append(f"{label}: medians are {words.enumeration(medians)}")
    figure.supxlabel("mean latency of an interval, ms", fontsize=9)
    style.titles(figure, axes, list(picked.values()), 9)
    caption = (
        "Mean latency of each kind, interval by interval: quartiles and median, whiskers to the "
        "last value within one and a half times their distance; logarithmic."
    )
    title = "Mean latency of each kind, interval by interval"
    return style.drawn(figure, "boxes", title, caption, said)


def classes(view: View) -> Section:
    """Return what high and normal transactions see, with and without priority."""
    title = "Priority: high against normal"
    if view.scenario != "priority":
        return Section("classes", title, missing="it is for scenario `priority`")
    seen = view.results.classes(view.number)
    if seen.empty:
        return Section("classes", title, missing="no execution kept what its classes saw")
    table = per_class(view, seen)
    return Section("classes", title, [_classes(view, table), _class_table(view, table)])


def per_class(view: View, seen: pd.DataFrame) -> pd.DataFrame:
    """Return mean latency of each class, batchset and level, a column for each class."""
    seen = seen[seen["execution"].isin(view.done["execution"])]
    table = seen.pivot_table(index=[*BATCHSET, "mpl"], columns="class", values="mean_ms")
    table = table.reset_index().rename_axis(columns=None)
    curves = view.curves[[*BATCHSET, "mpl", "label", "priority", "subject", "tps"]]
    return table.merge(curves, on=[*BATCHSET, "mpl"])


def at_loss(rows: pd.DataFrame, loss: float) -> tuple[float, pd.Series, pd.Series] | None:
    """Return the lowest limit that keeps all but a share of throughput, and what classes saw.

    - rows: What `per_class` returns, of one run.
    - loss: The share of the throughput of no limit, which is the last level without priority.

    Returns the limit, the row with priority at it, and the row without priority and limit; None
    where one of them was not measured.
    """
    without = rows[rows["priority"] == "priority not given"].sort_values("mpl")
    given = rows[rows["priority"] == "priority given"].set_index("mpl")
    if without.empty or not {"high", "normal"} <= set(rows):
        return None
    free = without.iloc[-1]
    kept = without[without["tps"] >= (1 - loss) * free["tps"]]["mpl"]
    if kept.empty or kept.iloc[0] not in given.index:
        return None
    at = given.loc[kept.iloc[0]]
    if pd.isna(at["high"]) or pd.isna(at["normal"]):
        return None
    return float(kept.iloc[0]), at, free


@style.styled
def _classes(view: View, table: pd.DataFrame) -> Figure:
    each = list(table.groupby(BATCHSET, sort=True))[:8]
    said = []
    figure, axes = style.panels(len(each), 1 if len(each) == 1 else 2, height=2.6)
    for panel, (_, rows) in zip(axes, each, strict=True):
        label = str(rows["label"].iloc[0])
        for index, name in enumerate(name for name in ("high", "normal") if name in rows):
            in_legend = name if panel is axes[0] else None
            look = style.line(index, marker=True)
            panel.plot(rows["mpl"], rows[name], label=in_legend, **look)
        style.logarithmic(panel, "y")
        style.levels(panel, rows["mpl"])
        if {"high", "normal"} <= set(rows):
            ratio = rows["normal"] / rows["high"]
            at = int(ratio.to_numpy().argmax()) if ratio.notna().any() else 0
            said.append(
                f"{label}: high is up to {words.number(ratio.iloc[at])} times faster than "
                f"normal, at MPL {words.number(rows['mpl'].iloc[at])}"
            )
    figure.supxlabel("MPL", fontsize=9)
    figure.supylabel("mean latency, ms", fontsize=9)
    figure.legend(loc="outside upper center", ncols=2)
    labels = [str(rows["label"].iloc[0]) for _, rows in each]
    style.titles(figure, axes, labels, 9)
    title = "Mean latency of the two classes"
    caption = f"{title} against MPL; logarithmic."
    return style.drawn(figure, "classes", title, caption, said)


def _class_table(view: View, table: pd.DataFrame) -> Table:
    rows = [
        (
            row["label"],
            words.number(row["mpl"]),
            words.number(row["tps"]),
            words.number(row.get("high", np.nan)),
            words.number(row.get("normal", np.nan)),
            words.number(row.get("normal", np.nan) / row.get("high", np.nan)),
        )
        for row in records(table)
    ]
    header = ("batchset", "MPL", "tps", "high, mean ms", "normal, mean ms", "normal / high")
    return Table("class-table", "What the two classes see", header, rows)


MOST_TREES: Final = 6


def trees(view: View) -> Section:
    """Return fill factor and reads of the trees over time, and the leaves in the order of keys."""
    title = "Trees: fill factor and reads"
    if view.scenario != "deteriorate":
        return Section("trees", title, missing="it is for scenario `deteriorate`")
    seen = view.results.trees(view.number)
    if seen.empty:
        return Section("trees", title, missing="no tree was looked at: the subject has none to see")
    labels = view.batchsets.set_index(BATCHSET)["label"].to_dict()
    first = seen.sort_values("repetition").drop_duplicates(BATCHSET)["execution"]
    seen = seen[seen["execution"].isin(first)].sort_values(["execution", "tree", "look"])
    seen = seen.assign(
        label=[labels[key] for key in zip(seen["run"], seen["batchset"], strict=True)]
    )
    ends = seen.groupby(["label", "tree"])["fill"].agg(["first", "last"])
    change = (ends["last"] - ends["first"]).abs().groupby("tree").max()
    names = sorted(change.sort_values(ascending=False).head(MOST_TREES).index)
    parts: list[Part] = [_fills(seen, names, ends), _reads(seen, names)]
    # The tree that moved most among those that have leaves to show.
    sizes = seen.groupby("tree")["leaves"].max()
    large = change[sizes >= min(20, int(sizes.max()))]
    most = str(large.idxmax())
    leaves = _leaves(seen[seen["tree"] == most], most)
    return Section("trees", title, [*parts, *([leaves] if leaves else [])])


def _tree_panels(seen: pd.DataFrame, names: list[str], column: str) -> tuple[Any, Any]:
    figure, axes = style.panels(len(names), min(3, len(names)), height=2.0)
    for panel, tree in zip(axes, names, strict=True):
        for index, (label, rows) in enumerate(seen[seen["tree"] == tree].groupby("label")):
            panel.plot(
                rows["at_s"], rows[column], linewidth=1.2, **style.line(index),
                label=str(label) if panel is axes[0] else None,
            )  # fmt: skip
        panel.set_title(tree)
    for panel in axes[-min(3, len(axes)) :]:
        panel.set_xlabel("time, s")
    figure.legend(loc="outside lower center", ncols=2)
    return figure, axes


@style.styled
def _fills(seen: pd.DataFrame, names: list[str], ends: pd.DataFrame) -> Figure:
    said = [
        f"{row['tree']}, {row['label']}: from {words.percent(row['first'])} to "
        f"{words.percent(row['last'])}"
        for row in records(ends.reset_index())
        if row["tree"] in names
    ]
    figure, axes = _tree_panels(seen.assign(percent=100 * seen["fill"]), names, "percent")
    for panel in axes:
        panel.set_ylim(0, 100)
    figure.supylabel("fill of the leaves, %", fontsize=9)
    alt = "Fill factor: " + "; ".join(said[:12]) + "."
    caption = f"Fill factor of the leaves over time; the {len(names)} trees in which it moves most."
    return style.drawn(figure, "fills", "Fill factor over time", caption, alt)


@style.styled
def _reads(seen: pd.DataFrame, names: list[str]) -> Figure:
    each = seen.groupby(["execution", "tree"])
    # The last look comes when the execution is over, perhaps at once after another: no time to
    # make a rate of.
    time = each["at_s"].diff()
    rate = each["physical_reads"].diff() / time
    table = seen.assign(rate=rate.where((rate >= 0) & (time >= time.median() / 2)))
    mean = table[table["tree"].isin(names)].groupby(["tree", "label"])["rate"].mean()
    said = [
        f"{row['tree']}, {row['label']}: {words.number(row['rate'])} a second"
        for row in records(mean.reset_index())
    ]
    figure, axes = _tree_panels(table, names, "rate")
    for panel in axes:
        style.thousands(panel)
    figure.supylabel("pages read, a second", fontsize=9)
    alt = "Pages read in the mean: " + "; ".join(said[:12]) + "."
    caption = "Pages read from disk, from look to look."
    return style.drawn(figure, "reads", "Pages read over time", caption, alt)


@style.styled
def _leaves(seen: pd.DataFrame, tree: str) -> Figure | None:
    """Return the fill of each leaf of a tree in the order of keys, at the last look."""
    kept = seen[seen["fills"].notna()].drop_duplicates("label", keep="last")
    each = {str(row["label"]): np.asarray(json.loads(row["fills"]), dtype=float)
            for row in records(kept)}  # fmt: skip
    each = {label: fills for label, fills in each.items() if len(fills)}
    if not each:
        return None
    said = [
        f"{label}: {words.percent(float((fills < 0.6).mean()))} of {len(fills):,} leaves are less "
        "than 60 % full"
        for label, fills in each.items()
    ]
    figure, axes = style.panels(len(each), 1, height=1.4)
    for panel, fills in zip(axes, each.values(), strict=True):
        panel.plot(100 * fills, ".", color=style.COLOURS[0], markersize=3)
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.set_ylim(0, 105)
    figure.supxlabel("leaf, in the order of keys", fontsize=9)
    figure.supylabel("fill, %", fontsize=9)
    style.titles(figure, axes, list(each), 9)
    title = f"Fill of each leaf of {tree}"
    return style.drawn(figure, "leaves", title, f"{title} at the last look.", said)
