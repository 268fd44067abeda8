"""What the batchsets that never thrashed say: the censored regression beside the naive one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from tidegate_analysis import censored
from tidegate_analysis.errors import SampleError
from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Paragraph, Part, Section, Table
from tidegate_analysis.report._view import records
from tidegate_analysis.report.causal._group import (
    FACTORS,
    FEWEST_PER_COEFFICIENT,
    Experiment,
    Group,
    attempt,
)
from tidegate_analysis.tables import holm

#: What a unit of a factor is called, where it is one.
_UNITS: Final = {"numProcs": "a further processor", "PK": "a primary key"}
_UNCERTAIN: Final = (
    "Points are uncertain: the censored regression takes of each sample all that its point may be, "
    "each as far as the measurements favour it (posterior over prior); the naive one, and the last "
    "column, take the point by the rule. "
)


@dataclass(frozen=True)
class RegressionPair:
    """The naive and the censored regression of log TP.

    - table: As `censored.compare` has it, with uncertain points where posteriors are known.
    - by_rule: The same with the points of the rule as if they were exact, where `table` does
      otherwise.
    - clusters: The column of the clusters; None where the samples do not allow any.
    - problem: Why they do not.
    """

    table: pd.DataFrame
    clusters: str | None
    problem: str = ""
    by_rule: pd.DataFrame | None = None


def never_thrashed(experiment: Experiment) -> Section:
    """Return the censored regression beside the naive one, survival, and what thrashes at all."""
    parts: list[Part] = [
        Paragraph(
            "A regression on the batchsets that thrashed leaves out those with the largest "
            "thrashing points, because they are the largest; so it finds effects too small. The "
            "censored regression has all samples: of those that never thrashed it takes that "
            "their point is above the last level, of those that fell from the lowest level that "
            "it is below the second, and of the others between which two levels it is."
        )
    ]
    parts += attempt("when batchsets begin to thrash", partial(_survival, experiment))
    for group in experiment.groups:
        parts += attempt(
            f"what moves the thrashing point of {group.name}s, those that never thrashed included",
            partial(_regressions, group),
        )
        parts += attempt(
            f"whether effects on the thrashing point of {group.name}s are straight",
            partial(_bends, group),
        )
        parts += attempt(
            f"what decides whether {group.name}s thrash at all", partial(_logistic, group)
        )
    return Section("censored", "Batchsets that never thrashed", parts)


def compared(group: Group, on: list[str]) -> RegressionPair:
    """Return both regressions, with clusters where the samples allow it.

    Raises `SampleError`: too few thrashed, no factor varies, or nothing can be estimated.
    """
    group.need_thrashed()
    if not on:
        raise SampleError("no factor varies among samples that thrashed", "vary processors or keys")
    clusters: str | None = group.clusters
    problem = ""
    fit = partial(censored.compare, group.retained, on)
    try:
        table = fit(cluster=clusters, outcomes=group.outcomes)
    except SampleError as error:
        clusters, problem = None, error.problem
        table = fit(outcomes=group.outcomes)
    by_rule = None if group.outcomes is None else _by_rule(partial(fit, cluster=clusters))
    return RegressionPair(table, clusters, problem, by_rule)


def _by_rule(fit: Callable[[], pd.DataFrame]) -> pd.DataFrame | None:
    """Return the regression of exact points; None where it cannot be fitted."""
    try:
        return fit()
    except SampleError:
        return None


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
    header: tuple[str, ...] = (
        "for each", f"thrashing samples only (n = {naive_n:,})", f"censored (n = {n:,})", "p",
        "naive over censored", "naive less censored, log TP",
    )  # fmt: skip
    if group.outcomes is not None:
        header = (*header, "censored, the rule's points as exact")
        rows = [(*row, exact) for row, exact in zip(rows, _exact(group, found), strict=True)]
    what = "Total effects" if kind == "total" else "Effects at equal ATPT"
    note = (
        f"Change of TP, {first['distribution']} errors (the least AIC), 95 % intervals. "
        + (f"A standard deviation of ATPT is {words.number(unit(group, 'ATPT')[0])} ms. "
           if kind == "direct" else "")
        + "What the naive estimate is less than the censored one is its bias, as far as the "
        "censored one is right. "
    )  # fmt: skip
    if group.outcomes is not None:
        note += _UNCERTAIN
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


def _exact(group: Group, found: RegressionPair) -> list[str]:
    """Return the effects with the rule's points as exact, in the order of the table."""
    terms = [str(term) for term in found.table["term"] if term != "intercept"]
    if found.by_rule is None:
        return ["–"] * len(terms)
    rows = {str(row["term"]): row for row in records(found.by_rule)}
    return [effect(group, rows[term], "censored") for term in terms]


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


def _bends(group: Group) -> list[Part]:
    """Return whether each variable has the same effect in both halves of its range."""
    group.need_thrashed()
    factors = group.varied()
    asked = dict.fromkeys(factors, factors) | {"ATPT": [*factors, "ATPT"]}
    found: dict[str, _Bend | str] = {}
    for name, on in asked.items():
        if group.retained[name].nunique() > 2:
            try:
                found[name] = _bent(group, name, on)
            except SampleError as error:
                found[name] = error.problem
    if not found:
        raise SampleError(
            f"{words.enumeration(list(asked))} have two values at most, and through two points "
            "everything is straight",
            "measure at three values or more",
        )
    tested = [bend for bend in found.values() if isinstance(bend, _Bend)]
    adjusted = iter(holm([bend.p for bend in tested]).tolist())
    rows = [
        bend.row(next(adjusted))
        if isinstance(bend, _Bend)
        else (name, "–", "–", "–", f"not tested: {bend}")
        for name, bend in found.items()
    ]
    header = ("halves meet at", "lower half: TP", "upper half: TP", "p of the bend", "what it says")
    note = (
        "Censored regressions as above, one for each row, with the square of one variable added: "
        "factors without ATPT, ATPT at equal factors. Change of TP over each half of what lies "
        "between the 5th and the 95th percentile, 95 % intervals; p is adjusted for the rows of "
        "this table (Holm). A square is the simplest bend: it has no corner and no step. "
    )
    if two := [name for name in asked if name not in found]:
        note += f"Through the two values of {words.enumeration(two)} everything is straight. "
    if apart := [bend.problem for bend in tested if bend.problem]:
        note += f"Samples are taken as independent, which they are not: {apart[0]}."
    caption = f"Whether effects on the thrashing point of {group.name}s are straight"
    return [Table(f"causal-bends-{group.name}", caption, header, rows, note.strip())]


@dataclass(frozen=True)
class _Bend:
    """The changes of log TP over both halves of a variable's range, with their intervals.

    - middle: Where the halves meet.
    - p: Of both halves being alike.
    - problem: Why samples were taken as independent, where they were.
    """

    name: str
    middle: float
    lower: tuple[float, float, float]
    upper: tuple[float, float, float]
    p: float
    problem: str

    def row(self, p: float) -> tuple[str, ...]:
        """Return the row of the table, with the adjusted p."""
        if p >= inference.ALPHA:
            says = "no bend is seen: the straight line stands, as far as these samples can tell"
        elif self.lower[0] * self.upper[0] < 0:
            says = "bends: its effect turns within its range, and no one number stands for it"
        else:
            more = "lower" if abs(self.lower[0]) > abs(self.upper[0]) else "upper"
            says = f"bends: it counts for more in the {more} half of its range"
        if self.problem:
            says = f"as if samples were independent: {says}"
        where = f"{self.name} {words.number(self.middle)}"
        return (where, change(*self.lower), change(*self.upper), words.p_value(p), says)


def _bent(group: Group, name: str, on: list[str]) -> _Bend:
    """Return the bend of one variable, by clusters where the samples allow it."""
    coefficients = len(on) + 2
    if len(group.thrashed) < FEWEST_PER_COEFFICIENT * coefficients:
        raise SampleError(
            f"{coefficients} coefficients need {FEWEST_PER_COEFFICIENT * coefficients} samples "
            f"that thrashed, and here are {len(group.thrashed)}",
            "measure more batchsets",
        )
    asked = partial(
        censored.regress,
        group.retained,
        on,
        outcomes=group.outcomes,
        nonlinear={name: "quadratic"},
    )
    problem = ""
    try:
        fit = asked(cluster=group.clusters)
        tested = fit.nonlinearity()
    except SampleError as error:
        problem = error.problem
        fit = asked()
        tested = fit.nonlinearity()
    low, high = np.quantile(group.retained[name], [0.05, 0.95]).tolist()
    middle = (low + high) / 2
    return _Bend(
        name,
        middle,
        _moved(fit, name, low, middle),
        _moved(fit, name, middle, high),
        float(tested["p"].iloc[0]),
        problem,
    )


def _moved(
    fit: censored.CensoredRegression, name: str, start: float, end: float
) -> tuple[float, float, float]:
    found = fit.effect(name, at=[end], reference=start).iloc[0]
    return float(found["change"]), float(found["low"]), float(found["high"])


@style.styled
def _survival(experiment: Experiment) -> list[Part]:
    said = []
    figure, axes = style.panels(len(experiment.groups), 2, height=2.9)
    for panel, group in zip(axes, experiment.groups, strict=True):
        said.append(_drawn(panel, group))
    names = axes[0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=3)
    alt = " ".join(said)
    caption = (
        "Share of batchsets that are not yet seen to thrash, against MPL (Kaplan and Meier): all "
        "of a group with the 95 % band, and each DBMS. What is left at the end never thrashed."
    )
    title = "Share of batchsets that are not yet thrashing"
    return [style.drawn(figure, "causal-survival", title, caption, alt)]


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
        look = {"where": "post", "label": str(name), **style.line(place)}
        axes.step(curve["mpl"], curve["not_thrashing"], **look)
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
