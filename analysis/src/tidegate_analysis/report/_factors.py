"""What processors, primary keys and shorter transactions do, and which DBMS thrashes.

Processors and keys are properties of runs, and what befell one run befell all its batchsets alike.
So a run is one value: the mean of log throughput, or of the rank of the thrashing point, over the
batchsets that all levels of the factor have. Runs that differ in the factor only are a block. The
ratio is the slope of a line through the blocks, in logarithms of processors, with an intercept for
each block: for two levels the paired t. Thrashing points are tested by permutation within blocks.

SF differs within runs, so batchsets that differ in nothing else are pairs. A shorter transaction
does less: what is compared by the paired t is the rows that are touched in a second. Thrashing
points are compared by the sign test.

Shares of batchsets that thrash have Wilson's interval. DBMSs are compared over the batchsets that
all of them have, run by run, by permutation.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._claims import ratio_said
from tidegate_analysis.report._inference import FEWEST_PAIRS, FEWEST_SHARES, NEAR, Ratio
from tidegate_analysis.report._parts import Claim, Sentence
from tidegate_analysis.report._view import BATCHSET, View

#: What is the same in all batchsets of a run, besides its subject.
_OF_RUN: Final = ("numProcs", "PK", "isolation", "settings")


@dataclass(frozen=True)
class _Factor:
    """A factor: its column, how a value is said, and whether it is one of runs."""

    name: str
    about: str
    unit: Callable[[float], str]
    is_of_run: bool = True


_FACTORS: Final = (
    _Factor("numProcs", "processors", lambda v: words.count(int(v), "processor")),
    _Factor("PK", "primary keys", lambda v: "a primary key" if v else "no primary key"),
    _Factor("sf", "shorter transactions", lambda v: f"an SF of {words.value(v)} %", False),
)


@dataclass(frozen=True)
class _Comparison:
    """Two values of a factor in batchsets of a subject and a kind of workload.

    Attributes
    ----------
    said
        Which values, in words.
    throughput
        What is compared, in words.
    of
        The values that the sample has of it, in words.
    numbers
        How many batchsets and runs are behind it.

    """

    about: str
    said: str
    throughput: str
    of: str
    numbers: Mapping[str, str]


def factors(view: View) -> list[Sentence | Claim]:
    """Return what each factor does to the best throughput, and to the thrashing point."""
    if view.is_controlled or not view.has_curves:
        return []
    table = view.summary.drop(columns=["subject", "label"]).merge(view.batchsets, on=BATCHSET)
    return [
        sentence
        for factor in _FACTORS
        if factor.name in table
        for names, rows in table[table[factor.name] != "all"].groupby(["subject", "mode"])
        for sentence in _compared(view, factor, ", ".join(map(str, names)), rows)
    ]


def _compared(
    view: View, factor: _Factor, where: str, rows: pd.DataFrame
) -> list[Sentence | Claim]:
    rows = rows[rows[factor.name].notna()]
    keys = [name for name in view.factors if name != factor.name]
    same = dict.fromkeys(keys, str) | {factor.name: float}
    rows = rows.astype(same)
    if len(rows[factor.name].unique()) < 2:
        return []
    return (_of_runs if factor.is_of_run else _of_pairs)(factor, where, rows, keys)


def _said(factor: _Factor, where: str, to: float, instead_of: float) -> str:
    return f"{where}: {factor.unit(to)} instead of {factor.unit(instead_of)}"


def _of_runs(
    factor: _Factor, where: str, rows: pd.DataFrame, keys: list[str]
) -> list[Sentence | Claim]:
    levels = np.sort(rows[factor.name].unique())
    place = np.log(levels) if factor.name == "numProcs" else levels
    place = (place - place[0]) / (place[-1] - place[0])
    slope = place - place.mean()

    def by_level(column: str) -> pd.DataFrame:
        """Return a row for each batchset that was measured at all levels."""
        table = rows.pivot_table(index=keys, columns=factor.name, values=column)
        return table.reindex(columns=levels).dropna()

    def by_run(table: pd.DataFrame) -> pd.DataFrame:
        return table.groupby(level=[name for name in _OF_RUN if name != factor.name]).mean()

    def comparison(table: pd.DataFrame, runs: pd.DataFrame) -> _Comparison:
        numbers = {"batchsets at each level": f"{len(table):,}", "runs": f"{runs.size:,}"}
        said = _said(factor, where, levels[-1], levels[0])
        of = words.count(runs.size, "run")
        return _Comparison(factor.about, said, "the best throughput", of, numbers)

    logs = by_level("best_tps").where(lambda tps: tps > 0).dropna().map(np.log)
    runs = by_run(logs)
    seen = _geometric((runs.iloc[:, -1] - runs.iloc[:, 0]).map(np.exp))
    found = [_ratio(comparison(logs, runs), inference.of_blocks(runs, place), seen)]
    if rows["TP"].notna().any() and len(points := by_level("TP")):
        runs = by_run(points.rank(axis=1))
        way = float((runs.to_numpy() @ slope).sum())
        p_value = None
        # What both ends of a line could have by chance.
        if 2 * inference.arrangements(runs) <= inference.ALPHA:
            p_value = inference.permuted(runs, lambda drawn: np.abs((drawn @ slope).sum(axis=-1)))
        first, last = (points.iloc[:, at].to_numpy() for at in (0, -1))
        moved = (last > first).astype(float) - (last < first)
        found.append(_point(comparison(points, runs), moved, way, p_value))
    return found


def _of_pairs(
    factor: _Factor, where: str, rows: pd.DataFrame, keys: list[str]
) -> list[Sentence | Claim]:
    low, high = rows[factor.name].min(), rows[factor.name].max()
    less, more = (rows[rows[factor.name] == value] for value in (low, high))
    pairs = less.merge(more, on=keys, suffixes=("_less", "_more"))
    numbers = {"pairs of batchsets": f"{len(pairs):,}", "runs": f"{pairs['run_less'].nunique():,}"}
    comparison = _Comparison(
        factor.about,
        _said(factor, where, low, high),
        "the rows a second, transactions a second times SF",
        _pairs(len(pairs)),
        numbers,
    )
    rows_less, rows_more = low * pairs["best_tps_less"], high * pairs["best_tps_more"]
    seen = _geometric(rows_less / rows_more)
    found = [_ratio(comparison, inference.of_pairs(rows_less, rows_more), seen)]
    known = pairs[pairs["TP_less"].notna() & pairs["TP_more"].notna()]
    if len(known):
        rises, falls = (known["TP_less"] > known["TP_more"], known["TP_less"] < known["TP_more"])
        moved = rises.to_numpy().astype(float) - falls.to_numpy()
        p_value = inference.sign_test(int(rises.sum()), int(falls.sum()))
        way, is_enough = float(moved.sum()), len(moved) >= FEWEST_PAIRS
        of = replace(comparison, of=_pairs(len(known)))
        found.append(_point(of, moved, way, p_value if is_enough else None))
    return found


def _pairs(n: int) -> str:
    return words.count(n, "pair of batchsets", "pairs of batchsets")


def _geometric(ratios: pd.Series) -> float:
    return float(np.exp(np.log(ratios[(ratios > 0) & np.isfinite(ratios)]).mean()))


def _ratio(of: _Comparison, ratio: Ratio | None, seen: float) -> Sentence | Claim:
    """Return what a factor does to throughput; without an interval, no more than was seen."""
    if ratio is None:
        text = (
            f"{of.said}: this sample cannot show what that does to {of.throughput}: {of.of} that "
            f"differ in nothing else are too few; the ratio in them is {words.number(seen)}."
        )
        return Sentence(of.about, text, "not shown", "curves", of.numbers)

    def sentence(p: float) -> Sentence:
        numbers = {**of.numbers, "ratio": ratio_said(ratio), "p, adjusted": words.p_value(p)}
        interval = (
            f"95 % interval {words.between(ratio.low, ratio.high)}, {of.of}, adjusted p "
            f"{words.p_value(p)}"
        )
        if p > inference.ALPHA:
            text = (
                f"{of.said}: this sample cannot show an effect on {of.throughput}; the ratio is "
                f"{words.number(ratio.value)} ({interval})."
            )
            return Sentence(of.about, text, "not shown", "curves", numbers)
        text = f"{of.said} gives {words.number(ratio.value)} times {of.throughput} ({interval})."
        if abs(ratio.value - 1) < 1 - NEAR:
            text += " That is less than 5 %: too little to act on."
        return Sentence(of.about, text, "shown", "curves", numbers)

    return Claim(ratio.p, sentence)


def _point(
    of: _Comparison, moved: np.ndarray, way: float, p_value: float | None
) -> Claim | Sentence:
    """Return where a factor moves thrashing points; without a p-value, no more than was seen."""
    rises, falls, stays = (int((moved == sign).sum()) for sign in (1, -1, 0))
    seen = f"it rises in {rises}, falls in {falls} and stays in {stays} of {_pairs(len(moved))}"
    cannot = f"{of.said}: this sample cannot show where the thrashing point goes: {seen}"
    if p_value is None:
        text = f"{cannot}, and {of.of} are too few for a test."
        return Sentence(of.about, text, "not shown", "tap-points", of.numbers)

    def sentence(p: float) -> Sentence:
        numbers = {**of.numbers, "p, adjusted": words.p_value(p)}
        basis = f"{of.of}, adjusted p {words.p_value(p)}"
        if p > inference.ALPHA:
            return Sentence(of.about, f"{cannot} ({basis}).", "not shown", "tap-points", numbers)
        goes = "raises" if way > 0 else "lowers"
        text = f"{of.said} {goes} the thrashing point: {seen} ({basis})."
        return Sentence(of.about, text, "shown", "tap-points", numbers)

    return Claim(p_value, sentence)


def thrashing(view: View) -> list[Sentence | Claim]:
    """Return how often each DBMS thrashes, and whether they differ."""
    known = view.summary[view.summary["TP"].notna()]
    if known.empty or view.is_controlled:
        return []
    known = known.assign(thrashes=np.isfinite(known["TP"]).astype(float))
    each = known.groupby("subject")["thrashes"]
    sizes = each.size()
    enough = [str(subject) for subject in sizes.index[sizes >= FEWEST_SHARES]]
    if not enough:
        return []
    found: list[Sentence | Claim] = [
        _share(str(subject), int(values.sum()), len(values)) for subject, values in each
    ]
    if len(enough) > 1:
        found.append(_difference(view, known[known["subject"].isin(enough)]))
    return found


def _share(subject: str, thrashed: int, of: int) -> Sentence:
    text = f"{subject} thrashes in {thrashed:,} of {of:,} analysed batchsets"
    about = "which DBMS thrashes"
    behind = {"thrashed": f"{thrashed:,}", "analysed": f"{of:,}"}
    if of < FEWEST_SHARES:
        text += "; that is too few for this sample to show a share."
        return Sentence(about, text, "not shown", "tap-points", behind)
    low, high = inference.share(thrashed, of)
    text += f", {words.percent(thrashed / of)} (95 % interval {words.percent(low)} to "
    text += f"{words.percent(high)}, batchsets taken as independent)."
    return Sentence(about, text, "shown", "tap-points", behind)


def _difference(view: View, known: pd.DataFrame) -> Sentence | Claim:
    """Return whether DBMSs differ, over batchsets that all have, with runs as what varies."""
    about, keys = "which DBMS thrashes", [name for name in view.factors if name != "subject"]
    values = view.batchsets[[*BATCHSET, *keys]].astype(dict.fromkeys(keys, str))
    table = known[[*BATCHSET, "subject", "thrashes"]].merge(values, on=BATCHSET)
    common = table.pivot_table(index=keys, columns="subject", values="thrashes").dropna()
    shares = common.groupby(level=list(_OF_RUN)).mean()
    order = list(shares.mean().sort_values(ascending=False, kind="stable").index)
    behind = {
        "batchsets that all have": f"{len(common):,}",
        "runs of each": f"{len(shares):,}",
    } | {str(s): f"{words.number(common[s].sum())} of them" for s in order}
    # Any order of the DBMSs in all runs alike could be by chance.
    if math.factorial(len(order)) * inference.arrangements(shares) > inference.ALPHA:
        text = (
            "this sample cannot show that some DBMSs thrash more often than others: "
            f"{words.count(len(shares), 'run')} of each can be compared, too few for a test."
        )
        return Sentence(about, text, "not shown", "tap-points", behind)
    basis = f"over {len(common):,} batchsets of {words.count(len(shares), 'run')} that all have"

    def sentence(p: float) -> Sentence:
        numbers = behind | {"p, adjusted": words.p_value(p)}
        if p > inference.ALPHA:
            text = (
                "this sample cannot show that some DBMSs thrash more often than others "
                f"({basis}, adjusted p {words.p_value(p)})."
            )
            return Sentence(about, text, "not shown", "tap-points", numbers)
        text = (
            f"the DBMSs do not thrash equally often ({basis}, adjusted p {words.p_value(p)}). In "
            f"this sample {order[0]} does most often and {order[-1]} least; which of them differ "
            "was not tested."
        )
        return Sentence(about, text, "shown", "tap-points", numbers)

    p_value = inference.permuted(shares, lambda drawn: drawn.mean(axis=-2).var(axis=-1))
    return Claim(p_value, sentence)
