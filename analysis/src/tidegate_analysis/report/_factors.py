"""What processors, primary keys and shorter transactions do, and which DBMS thrashes.

Factors are compared by pairs of batchsets that differ in nothing else: ratios of best throughputs
by the paired t, thrashing points by the sign test. Processors and keys are properties of runs, so
what befell one run befell all its batchsets alike: their pairs are averaged over each pair of runs
first, and pairs of runs are what is counted. A shorter transaction does less, so SFs are compared
by the rows that are touched in a second.

Shares of batchsets that thrash have Wilson's interval. DBMSs are compared over the batchsets that
all of them have, run by run, by permutation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._claims import ratio_said
from tidegate_analysis.report._inference import FEWEST_PAIRS, FEWEST_RUNS, FEWEST_SHARES, NEAR
from tidegate_analysis.report._parts import Claim, Sentence
from tidegate_analysis.report._view import BATCHSET, View

#: What is the same in all batchsets of a run, besides its subject.
_OF_RUN: Final = ("numProcs", "PK", "isolation", "settings")


@dataclass(frozen=True)
class _Factor:
    """A factor: its column, how a value is said, and whether less of it is to be tried."""

    name: str
    about: str
    unit: Callable[[float], str]
    is_less: bool = False

    @property
    def pairs(self) -> str:
        """Return what a pair is of."""
        return "pair of runs" if self.name in _OF_RUN else "pair of batchsets"

    def counted(self, n: int) -> str:
        """Return a number of pairs in words."""
        return words.count(n, self.pairs, self.pairs.replace("pair", "pairs"))


_FACTORS: Final = (
    _Factor("numProcs", "processors", lambda v: words.count(int(v), "processor")),
    _Factor("PK", "primary keys", lambda v: "a primary key" if v else "no primary key"),
    _Factor("sf", "shorter transactions", lambda v: f"an SF of {words.value(v)} %", is_less=True),
)


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
        for sentence in _compared(view, factor, names, rows)
    ]


def _compared(
    view: View, factor: _Factor, names: tuple[Any, ...], rows: pd.DataFrame
) -> list[Sentence | Claim]:
    values = sorted({float(value) for value in rows[factor.name].dropna()})
    if len(values) < 2:
        return []
    low, high = (values[-1], values[0]) if factor.is_less else (values[0], values[-1])
    keys = [name for name in view.factors if name != factor.name]
    rows = rows.assign(**{name: rows[name].astype(str) for name in keys})
    here, there = (rows[rows[factor.name].astype(float) == value] for value in (low, high))
    pairs = here.merge(there, on=keys, suffixes=("_low", "_high"))
    said = f"{', '.join(map(str, names))}: {factor.unit(high)} instead of {factor.unit(low)}"
    work = high / low if factor.is_less else 1.0
    found = [_throughput(factor, said, pairs, work)]
    analysed = pairs[pairs["TP_low"].notna() & pairs["TP_high"].notna()]
    if len(analysed):
        found.append(_point(factor, said, analysed))
    return found


def _by_unit(factor: _Factor, pairs: pd.DataFrame, values: pd.Series) -> pd.Series:
    """Return a value for each pair that counts: of runs, the mean over their batchsets."""
    if factor.name not in _OF_RUN:
        return values
    return values.groupby([pairs["run_low"], pairs["run_high"]]).mean()


def _behind(pairs: pd.DataFrame) -> dict[str, str]:
    runs = len(pairs.drop_duplicates(["run_low", "run_high"]))
    return {"pairs of batchsets": f"{len(pairs):,}", "pairs of runs": f"{runs:,}"}


def _throughput(factor: _Factor, said: str, pairs: pd.DataFrame, work: float) -> Sentence | Claim:
    pairs = pairs[(pairs["best_tps_low"] > 0) & (pairs["best_tps_high"] > 0)]
    logs = (work * pairs["best_tps_high"] / pairs["best_tps_low"]).map(np.log)
    ratios = np.exp(_by_unit(factor, pairs, logs))
    fewest = FEWEST_RUNS if factor.name in _OF_RUN else FEWEST_PAIRS
    ratio = inference.of_pairs(ratios, np.ones(len(ratios)), fewest=fewest)
    what = "the rows a second at the best MPL" if factor.is_less else "the best throughput"
    behind = _behind(pairs)
    if ratio is None:
        there = "is" if len(ratios) == 1 else "are"
        text = (
            f"{said}: this sample cannot show what that does to {what}; there {there} "
            f"{factor.counted(len(ratios))} that differ in nothing else, fewer than {fewest}."
        )
        return Sentence(factor.about, text, "not shown", "curves", behind)
    behind["ratio of rows a second" if factor.is_less else "ratio of best throughputs"] = (
        ratio_said(ratio)
    )
    interval = f"95 % interval {words.between(ratio.low, ratio.high)}, {factor.counted(ratio.n)}"

    def sentence(p: float) -> Sentence:
        numbers = behind | {"p, adjusted": words.p_value(p)}
        if p > inference.ALPHA:
            text = (
                f"{said}: this sample cannot show an effect on {what}; the ratio is "
                f"{words.number(ratio.value)} ({interval}, adjusted p {words.p_value(p)})."
            )
            return Sentence(factor.about, text, "not shown", "curves", numbers)
        text = (
            f"{said} gives {words.number(ratio.value)} times {what} ({interval}, "
            f"adjusted p {words.p_value(p)})."
        )
        if factor.is_less:
            text += " Rows a second are transactions a second times SF: the same work."
        if abs(ratio.value - 1) < 1 - NEAR:
            text += " That is less than 5 %: too little to act on."
        return Sentence(factor.about, text, "shown", "curves", numbers)

    return Claim(ratio.p, sentence)


def _point(factor: _Factor, said: str, pairs: pd.DataFrame) -> Sentence | Claim:
    high, low = pairs["TP_high"], pairs["TP_low"]
    signs = (high > low).astype(int) - (high < low).astype(int)
    moved = _by_unit(factor, pairs, signs)
    rises, falls, of = int((moved > 0).sum()), int((moved < 0).sum()), len(moved)
    behind = _behind(pairs) | {
        f"TP {goes}, of batchsets": f"{int((signs == sign).sum()):,}"
        for goes, sign in (("rises", 1), ("falls", -1), ("stays", 0))
    }
    most = " in most of their batchsets" if factor.name in _OF_RUN else ""
    seen = (
        f"of {factor.counted(of)} the thrashing point rises{most} in {rises}, falls in {falls} and "
        f"stays in {of - rises - falls}"
    )

    def cannot(why: str) -> str:
        return f"{said}: this sample cannot show where the thrashing point goes: {seen} ({why})."

    if of < FEWEST_PAIRS:
        text = cannot(f"fewer than {FEWEST_PAIRS} {factor.pairs.replace('pair', 'pairs')}")
        return Sentence(factor.about, text, "not shown", "tap-points", behind)

    def sentence(p: float) -> Sentence:
        numbers = behind | {"p, adjusted": words.p_value(p)}
        test = f"adjusted p of the sign test {words.p_value(p)}"
        if p > inference.ALPHA:
            return Sentence(factor.about, cannot(test), "not shown", "tap-points", numbers)
        goes = "raises" if rises > falls else "lowers"
        text = f"{said} {goes} the thrashing point: {seen} ({test})."
        return Sentence(factor.about, text, "shown", "tap-points", numbers)

    return Claim(inference.sign_test(rises, falls), sentence)


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
    if len(shares) < 2:
        text = (
            "this sample cannot show that some DBMSs thrash more often than others: "
            f"{words.count(len(shares), 'run')} of each can be compared."
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

    return Claim(inference.permuted(shares.to_numpy()), sentence)
