"""Published figures beside ours, from `tidegate_analysis.published`.

Machines, systems and scales differ, so numbers are put side by side and curves are drawn as shares
of their own best; what agrees is the shape.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis.errors import AnalysisError
from tidegate_analysis.published import experiments
from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._details import at_loss, per_class
from tidegate_analysis.report._parts import Part, Section, Table
from tidegate_analysis.report._view import BATCHSET, NOTHING, View, records

Entry = Mapping[str, Any]


def published_figures(view: View) -> Section:
    title = "Published figures beside ours"
    entry = experiments().get(view.name)
    if entry is None:
        why = f"no study published figures for an experiment called {view.name}"
        return Section("published", title, missing=why)
    if view.done.empty:
        return Section("published", title, missing=NOTHING)
    parts: list[Part] = []
    if "figures" in entry:
        rows = [(f["what"], f["published"], _ours(view, f)) for f in entry["figures"]]
        header = ("what", "published", "ours")
        parts.append(Table("published", "Published figures beside ours", header, rows,
                           f"Source: {entry['source']}. Shapes and directions compare; absolute "
                           "speeds do not."))  # fmt: skip
    if "curve" in entry:
        parts += _curve(view, entry["curve"], str(entry["source"]))
    return Section("published", title, parts)


def _ours(view: View, figure: Entry) -> str:
    own = _where(view, figure.get("where", {}))
    if own.empty:
        return "not part of this experiment"
    return MEASURES[figure["measure"]](view, own, figure)


def _where(view: View, where: Mapping[str, str]) -> pd.DataFrame:
    """Return the batchsets whose values begin with those asked for, with how they went."""
    table = _planned(view, where)
    return table.merge(view.summary.drop(columns=["label", "subject"]), on=BATCHSET)


def _planned(view: View, where: Mapping[str, str]) -> pd.DataFrame:
    table = view.batchsets
    for name, value in where.items():
        if name not in table:
            return table.iloc[:0]
        texts = table[name].astype(str)
        table = table[(texts == value) | texts.str.startswith(f"{value}:")]
    return table


def _of(view: View, own: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    return table.merge(own[BATCHSET], on=BATCHSET)


def _range(view: View, own: pd.DataFrame, _: Entry) -> str:
    """Return the levels with 90 % of the best throughput, as shares of the clients."""
    curves = _of(view, own, view.curves)
    mean = curves.groupby("mpl")["tps"].mean()
    good = mean.index[mean >= 0.9 * mean.max()]
    clients = float(view.done["clients"].max())
    low, high = float(good.min()), float(good.max())
    return (
        f"{words.percent(low / clients)} to {words.percent(high / clients)} "
        f"({words.number(low)} to {words.number(high)} of {words.number(clients)})"
    )


def _best(_: View, own: pd.DataFrame, __: Entry) -> str:
    top = own.loc[own["best_tps"].idxmax()]
    return f"{words.number(top['best_tps'])} tps at MPL {words.number(top['best_mpl'])}"


def _near_best(_: View, own: pd.DataFrame, __: Entry) -> str:
    lowest, highest = own["good_mpl"].min(), own["good_mpl"].max()
    text = words.number(lowest)
    return text if lowest == highest else f"{text} to {words.number(highest)}"


def _limit(view: View, own: pd.DataFrame, _: Entry) -> str:
    """Return the mean limit in the second half, as a share of the clients, too."""
    limits = _decisions(view, own)
    late = limits[limits["at_s"] > limits["seconds"] / 2]
    if late.empty:
        return "no decision was kept"
    mean, clients = float(late["limit"].mean()), float(view.done["clients"].max())
    return f"{words.number(mean)} ({words.percent(mean / clients)} of the clients)"


def _halves(view: View, own: pd.DataFrame, _: Entry) -> str:
    """Return mean limit and throughput in the last quarter of each half."""
    limits = _decisions(view, own)
    if limits.empty:
        return "no decision was kept"
    at = limits["at_s"] / limits["seconds"]
    ends = [limits[at.between(0.25, 0.5)], limits[at > 0.75]]
    mean = [words.number(part["limit"].mean()) for part in ends]
    tps = [words.number(part["tps"].mean()) for part in ends]
    return f"{mean[0]}, then {mean[1]}; {tps[0]}, then {tps[1]} tps (second half of each)"


def _decisions(view: View, own: pd.DataFrame) -> pd.DataFrame:
    done = _of(view, own, view.done)
    limits = view.selected(view.results.limits, list(done["execution"]))
    return limits.merge(done[["execution", "seconds"]], on="execution")


def _ratio(view: View, own: pd.DataFrame, figure: Entry) -> str:
    """Return the ratio of the mean throughputs of two groups of batchsets."""
    other = _where(view, figure["over"])
    if other.empty:
        return "not part of this experiment"
    means = [_of(view, rows, view.done)["tps"].mean() for rows in (own, other)]
    return f"{words.number(means[0] / means[1])} ({words.number(means[0])} over " + (
        f"{words.number(means[1])} tps)"
    )


def _point(_: View, own: pd.DataFrame, __: Entry) -> str:
    known = own[own["TP"].notna()]
    if known.empty:
        return "not analysed"
    points = [
        words.number(tp) if np.isfinite(tp) else f"none up to {words.number(last)}"
        for tp, last in zip(known["TP"], known["last_mpl"], strict=True)
    ]
    return words.enumeration(points)


def _thrashing(_: View, own: pd.DataFrame, __: Entry) -> str:
    known = own[own["TP"].notna()]
    if known.empty:
        return "not analysed"
    found = int(np.isfinite(known["TP"]).sum())
    return f"{found:,} of {len(known):,} ({words.percent(found / len(known))})"


def _retained(view: View, own: pd.DataFrame, figure: Entry) -> str:
    planned = _planned(view, figure.get("where", {}))
    measured = len(planned.merge(view.measured[BATCHSET].drop_duplicates(), on=BATCHSET))
    known = int(own["TP"].notna().sum())
    return f"{known:,} of {measured:,} ({words.percent(known / measured)})"


def _subjects(_: View, own: pd.DataFrame, __: Entry) -> str:
    known = own[own["TP"].notna()]
    if known.empty:
        return "not analysed"
    thrashing = known[np.isfinite(known["TP"])]["subject"].nunique()
    return f"{thrashing} of {known['subject'].nunique()}"


def _executions(view: View, own: pd.DataFrame, _: Entry) -> str:
    return words.number(len(_of(view, own, view.measured)))


def _check(view: View, _: pd.DataFrame, figure: Entry) -> str:
    counts = view.results.tap_counts(view.number)
    counts = counts[(counts["step"].astype(str) == "1") & (counts["name"] == figure["name"])]
    if counts.empty:
        return "not analysed"
    row = counts.sort_values("analysis").iloc[-1]
    share = f" ({words.percent(row['found'] / row['checked'])})" if row["checked"] else ""
    return f"{words.number(row['found'])} of {words.number(row['checked'])}{share}"


def _priority(view: View, own: pd.DataFrame, figure: Entry) -> str:
    return _at_loss(view, own, figure, lambda at, _: words.number(at["normal"] / at["high"]))


def _suffering(view: View, own: pd.DataFrame, figure: Entry) -> str:
    def said(at: pd.Series, free: pd.Series) -> str:
        return words.slower(float(at["normal"] / free["normal"]))

    return _at_loss(view, own, figure, said)


def _at_loss(
    view: View, own: pd.DataFrame, figure: Entry, said: Callable[[pd.Series, pd.Series], str]
) -> str:
    """Return what is said of the lowest limit that keeps all but a share of the throughput."""
    seen = view.results.classes(view.number)
    if seen.empty:
        return "not kept"
    texts = []
    for _, rows in per_class(view, seen).groupby("run"):
        if found := at_loss(rows, figure["loss"]):
            texts.append(f"{said(found[1], found[2])} at MPL {words.number(found[0])}")
    return words.enumeration(texts) or "not measured with and without priority"


def _half_full(view: View, own: pd.DataFrame, figure: Entry) -> str:
    done = _of(view, own, view.done)
    trees = view.selected(view.results.trees, list(done["execution"]))
    trees = trees[trees["tree"].str.contains(figure["tree"]) & trees["fills"].notna()]
    if trees.empty:
        return "not looked at"
    texts = []
    for tree, rows in trees.groupby("tree"):
        fills = np.asarray(json.loads(rows.sort_values("look").iloc[-1]["fills"]), dtype=float)
        if len(fills):
            texts.append(f"{tree}: {words.percent(float((fills < 0.6).mean()))}")
    return words.enumeration(texts) or "no leaf"


Measure = Callable[[View, pd.DataFrame, Entry], str]

#: How ours is found, by what `published.toml` calls it.
MEASURES: Final[Mapping[str, Measure]] = {
    "range": _range,
    "best": _best,
    "near_best": _near_best,
    "limit": _limit,
    "halves": _halves,
    "ratio": _ratio,
    "point": _point,
    "thrashing": _thrashing,
    "retained": _retained,
    "subjects": _subjects,
    "executions": _executions,
    "check": _check,
    "priority": _priority,
    "suffering": _suffering,
    "half_full": _half_full,
}

#: What a curve's x axis is called.
_AXES: Final = {
    "c": "C",
    "gamma": "Γ",
    "delta": "Δ, transactions",
    "buffer": "memory for pages, MB",
}


def _x(row: Mapping[Any, Any], name: str) -> float:
    """Return a batchset's place on the axis: its memory, or a parameter of its controller."""
    text = str(row.get("buffer" if name == "buffer" else "control") or "")
    found = re.search(
        r"([\d.]+)\s*MB" if name == "buffer" else rf"\b{name}=([\d.]+)", text, re.IGNORECASE
    )
    return float(found.group(1)) if found else float("nan")


@style.styled
def _curve(view: View, curve: Entry, source: str) -> list[Part]:
    """Return a published curve beside ours, each as a share of its own best, and the numbers."""
    done = view.done.merge(view.batchsets, on=BATCHSET, suffixes=("", "_of_batchset"))
    done = done.assign(x=[_x(row, curve["x"]) for row in records(done)])
    ours = done.dropna(subset=["x"]).groupby("x")["tps"].mean()
    if ours.empty:
        raise AnalysisError(
            f"no batchset has a value of {_AXES[curve['x']]}",
            "run the experiment from its own file",
        )
    xs, ys = np.asarray(curve["xs"], float), np.asarray(curve["throughput"], float)
    figure = style.empty(7.2, 3.4)
    axes = figure.subplots()
    axes.plot(xs, 100 * ys / ys.max(), color=style.COLOURS[1], marker="s", linestyle="--",
              label="published")  # fmt: skip
    axes.plot(ours.index, 100 * ours / ours.max(), color=style.COLOURS[0], marker="o",
              label="ours")  # fmt: skip
    axes.set(xlabel=_AXES[curve["x"]], ylabel="throughput, % of its own best")
    if curve["x"] == "buffer":
        style.levels(axes, [*xs, *ours.index])
    style.thousands(axes)
    figure.legend(loc="outside lower center", ncols=2)
    where = _AXES[curve["x"]].split(",")[0]
    theirs = words.curve(xs, ys, "throughput", "a minute", where)
    own = words.curve(ours.index, ours, "throughput", "tps", where)
    alt = f"Published: {theirs}. Ours: {own}."
    caption = f"Published curve beside ours, each as a share of its own best. Source: {source}."
    figure_ = style.drawn(figure, "published-curve", "Published curve beside ours", caption, alt)
    return [figure_, _curve_table(curve, ours, _limits(view, done))]


def _limits(view: View, done: pd.DataFrame) -> pd.Series:
    """Return the mean limit in the second half for each place on the axis."""
    limits = view.selected(view.results.limits, list(done["execution"]))
    limits = limits.merge(done[["execution", "seconds", "x"]], on="execution")
    return limits[limits["at_s"] > limits["seconds"] / 2].groupby("x")["limit"].mean()


def _curve_table(curve: Entry, ours: pd.Series, own_limits: pd.Series) -> Table:
    limits = curve.get("limit", [float("nan")] * len(curve["xs"]))
    theirs = {float(x): (float(y), float(n)) for x, y, n in zip(
        curve["xs"], curve["throughput"], limits, strict=True)}  # fmt: skip
    nothing = (float("nan"), float("nan"))
    rows = [
        (
            words.number(x),
            words.number(theirs.get(x, nothing)[0]),
            words.number(theirs.get(x, nothing)[1]),
            words.number(float(ours.get(x, float("nan")))),
            words.number(float(own_limits.get(x, float("nan")))),
        )
        for x in sorted({*theirs, *(float(x) for x in ours.index)})
    ]
    header = (
        _AXES[curve["x"]], "published, a minute", "published, threads", "ours, tps", "ours, limit",
    )  # fmt: skip
    return Table("published-numbers", "The numbers of both curves", header, rows)
