"""What the batchsets that never thrashed say: the censored regression beside the naive one."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tidegate_analysis import censored
from tidegate_analysis.errors import SampleError
from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Figure, Paragraph, Part, Section, Table
from tidegate_analysis.report._view import records
from tidegate_analysis.report.causal._group import FACTORS, Experiment, Group, attempt

#: What a unit of a factor is called, where it is one.
_UNITS: Final = {"numProcs": "a further processor", "PK": "a primary key"}


@dataclass(frozen=True)
class Compared:
    """The naive and the censored regression of log TP.

    Attributes
    ----------
    clusters
        The column of the clusters; None where the samples do not allow any.
    problem
        Why they do not.

    """

    table: pd.DataFrame
    clusters: str | None
    problem: str = ""


def never_thrashed(experiment: Experiment) -> Section:
    """Return the censored regression beside the naive one, survival, and what thrashes at all."""
    parts: list[Part] = [
        Paragraph(
            "A regression on the batchsets that thrashed leaves out those with the largest "
            "thrashing points, because they are the largest; so it finds effects too small. The "
            "censored regression has all samples: of those that never thrashed it takes that "
            "their point is above the last level, of the others between which two levels it is."
        )
    ]
    parts += attempt("when batchsets begin to thrash", partial(_survival, experiment))
    for group in experiment.groups:
        parts += attempt(
            f"what moves the thrashing point of {group.name}s, those that never thrashed included",
            partial(_regressions, group),
        )
        parts += attempt(
            f"what decides whether {group.name}s thrash at all", partial(_logistic, group)
        )
    return Section("censored", "Batchsets that never thrashed", parts)


def compared(group: Group, on: list[str]) -> Compared:
    """Return both regressions, with clusters where the samples allow it.

    Raises
    ------
    SampleError
        Too few thrashed, no factor varies, or nothing can be estimated.

    """
    group.need_thrashed()
    if not on:
        raise SampleError("no factor varies among samples that thrashed", "vary processors or keys")
    try:
        table = censored.compare(group.retained, on, cluster=group.clusters)
    except SampleError as error:
        return Compared(censored.compare(group.retained, on), None, error.problem)
    return Compared(table, group.clusters)


def unit(group: Group, name: str) -> tuple[float, str]:
    """Return the change of a variable whose effect is said, and what it is called.

    One processor, or keys against none; of SF and ROSE the range that was tried, of what was
    measured a standard deviation.
    """
    if name in _UNITS:
        return 1.0, _UNITS[name]
    values = group.retained[name]
    if name not in FACTORS:
        return float(values.std()), f"a standard deviation of {name}"
    low, high = float(values.min()), float(values.max())
    return high - low, f"{name} {words.value(high)} % instead of {words.value(low)} %"


def _regressions(group: Group) -> list[Part]:
    factors = group.varied()
    parts: list[Part] = [_compared(group, factors, "total")]
    parts += attempt(
        f"effects on the thrashing point of {group.name}s at equal ATPT",
        lambda: [_compared(group, [*factors, "ATPT"], "direct")],
    )
    return parts


def _compared(group: Group, on: list[str], kind: str) -> Table:
    found = compared(group, on)
    rows = [_row(group, row) for row in records(found.table) if row["term"] != "intercept"]
    first = found.table.iloc[0]
    naive_n, n = int(first["naive_n"]), int(first["censored_n"])
    header = (
        "for each", f"thrashing samples only (n = {naive_n:,})", f"censored (n = {n:,})", "p",
        "naive over censored", "naive less censored, log TP",
    )  # fmt: skip
    what = "Total effects" if kind == "total" else "Effects at equal ATPT"
    note = (
        f"Change of TP, {first['distribution']} errors (the least AIC), 95 % intervals. "
        + (f"A standard deviation of ATPT is {words.number(unit(group, 'ATPT')[0])} ms. "
           if kind == "direct" else "")
        + "What the naive estimate is less than the censored one is its bias, as far as the "
        "censored one is right. "
    )  # fmt: skip
    if found.clusters:
        what_are = "DBMSs" if found.clusters == "dbms" else "runs"
        note += f"Errors: jackknife over {what_are}."
    else:
        note += f"Samples are taken as independent, which they are not: {found.problem}."
    return Table(
        f"causal-censored-{kind}-{group.name}",
        f"{what} on the thrashing point of {group.name}s: censored and naive regression",
        header,
        rows,
        note,
    )


def effect(group: Group, row: Mapping[str, Any], which: str) -> str:
    """Return the effect of a unit of a variable in one of the regressions, with its interval."""
    size, _ = unit(group, row["term"])
    return change(*(size * row[which + end] for end in ("", "_low", "_high")))


def _row(group: Group, row: dict[str, Any]) -> tuple[str, ...]:
    size, name = unit(group, row["term"])
    ratio = words.number(row["ratio"], 2) if row["same_sign"] else "other sign"
    bias = words.number(size * row["difference"], 2)
    effects = (effect(group, row, which) for which in ("naive", "censored"))
    return (name, *effects, words.p_value(row["censored_p"]), ratio, bias)


def change(value: float, low: float, high: float) -> str:
    """Return a coefficient of log TP as the change of TP that it is."""
    texts = [words.percent(float(np.expm1(min(x, 50.0)))) for x in (value, low, high)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def _survival(experiment: Experiment) -> list[Part]:
    said = []
    with style.style():
        figure, axes = style.panels(len(experiment.groups), 2, height=2.9)
        for panel, group in zip(axes, experiment.groups, strict=True):
            said.append(_drawn(panel, group))
        names = axes[0].get_legend_handles_labels()
        figure.legend(*names, loc="outside lower center", ncols=3)
        alt = " ".join(said)
        svg = style.svg(figure, "Share of batchsets that are not yet thrashing", alt)
    caption = (
        "Share of batchsets that are not yet seen to thrash, against MPL (Kaplan and Meier): all "
        "of a group with the 95 % band, and each DBMS. What is left at the end never thrashed."
    )
    return [Figure("causal-survival", caption, alt, svg)]


def _drawn(axes: Axes, group: Group) -> str:
    whole = censored.kaplan_meier(group.retained)
    each = censored.kaplan_meier(group.retained, by="dbms")
    whole, each = _to_the_edge(whole, []), _to_the_edge(each, ["dbms"])
    x = whole["mpl"]
    axes.fill_between(
        x, whole["low"], whole["high"], step="post", color=style.INK, alpha=0.12, linewidth=0
    )
    axes.step(x, whole["not_thrashing"], where="post", color=style.INK, linewidth=2.2, label="all")
    ends = []
    for place, (name, curve) in enumerate(each.groupby("dbms")):
        look: dict[str, Any] = {
            "color": style.COLOURS[place % len(style.COLOURS)],
            "linestyle": style.DASHES[place % len(style.DASHES)],
        }
        axes.step(curve["mpl"], curve["not_thrashing"], where="post", label=str(name), **look)
        ends.append(f"{name} {words.percent(float(curve['not_thrashing'].iloc[-1]))}")
    axes.set(ylim=(0, 1.03), xlabel="MPL", ylabel="not yet thrashing", title=f"{group.name}s")
    left = words.percent(float(whole["not_thrashing"].iloc[-1]))
    half = whole[whole["not_thrashing"] <= 0.5]
    middle = (
        f"half of them thrash by MPL {words.number(half['mpl'].iloc[0])}"
        if len(half)
        else "fewer than half thrash"
    )
    last = words.number(float(x.iloc[-2]))
    return (
        f"{words.sentence(group.name)}s: {middle}; at MPL {last} {left} do not: "
        f"{words.enumeration(ends)}."
    )


def _to_the_edge(curves: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return curves that go on a little behind the last MPL, so that a fall at it is seen."""
    last = curves.drop_duplicates(by, keep="last") if by else curves.tail(1)
    return pd.concat([curves, last.assign(mpl=1.05 * float(curves["mpl"].max()))])


def _logistic(group: Group) -> list[Part]:
    seen = group.retained[list(FACTORS)].dropna(axis="columns")
    on = [str(name) for name in seen if len(seen[name].unique()) > 1]
    if not on:
        raise SampleError("no factor varies", "vary processors, keys, SF or ROSE")
    found, independent = _thrashes(group, on)
    rows = [
        (
            row["term"],
            f"{words.number(row['odds'])} ({words.between(row['odds_low'], row['odds_high'])})",
            words.p_value(row["p"]),
        )
        for row in records(found.to_frame())
        if row["term"] != "intercept"
    ]
    method = "maximum likelihood" if found.method == "ml" else "Firth's penalised likelihood"
    notes = "".join(f" {words.sentence(note)}." for note in found.notes)
    table = Table(
        f"causal-logistic-{group.name}",
        f"Whether {group.name}s thrash at all: {found.thrashed:,} of {found.n:,} do",
        ("factor", "odds ratio for each unit (95 % interval)", "p"),
        rows,
        f"Logistic regression by {method}. An odds ratio above 1 is for thrashing.{notes}"
        f"{independent}",
    )
    return [table]


def _thrashes(group: Group, on: list[str]) -> tuple[censored.Logistic, str]:
    """Return the regression, by clusters where they allow it, and why if they do not."""
    try:
        return censored.thrashes(group.retained, on, cluster=group.clusters), ""
    except SampleError as error:
        clusters = "DBMS" if group.clusters == "dbms" else group.clusters
        why = f" Samples are taken as independent, not by {clusters}: {error.problem}."
    return censored.thrashes(group.retained, on), why
