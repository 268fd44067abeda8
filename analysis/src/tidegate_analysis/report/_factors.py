"""What processors, primary keys and shorter transactions do, and which DBMS thrashes.

Factors are compared by pairs of batchsets that differ in nothing else: ratios of best throughputs
by the paired t, thrashing points by the sign test. Shares of batchsets that thrash have Wilson's
interval, and DBMSs are compared by Fisher's test or chi².
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._claims import Claim, ratio_said
from tidegate_analysis.report._inference import FEWEST_PAIRS, FEWEST_SHARES, NEAR
from tidegate_analysis.report._parts import Sentence
from tidegate_analysis.report._view import BATCHSET, View


@dataclass(frozen=True)
class _Factor:
    """A factor: its column, how a value is said, and whether less of it is to be tried."""

    name: str
    about: str
    unit: Callable[[float], str]
    is_less: bool = False


_FACTORS: Final = (
    _Factor("numProcs", "processors", lambda v: words.count(int(v), "processor")),
    _Factor("PK", "primary keys", lambda v: "a primary key" if v else "no primary key"),
    _Factor("sf", "shorter transactions", lambda v: f"an SF of {words.value(v)} %", is_less=True),
)


def factors(view: View) -> list[Claim]:
    """Return what each factor does to the best throughput, and to the thrashing point."""
    if view.is_controlled or not view.has_curves:
        return []
    table = view.summary.drop(columns=["subject", "label"]).merge(view.batchsets, on=BATCHSET)
    return [
        claim
        for factor in _FACTORS
        if factor.name in table
        for names, rows in table[table[factor.name] != "all"].groupby(["subject", "mode"])
        for claim in _compared(view, factor, names, rows)
    ]


def _compared(
    view: View, factor: _Factor, names: tuple[Any, ...], rows: pd.DataFrame
) -> list[Claim]:
    values = sorted({float(value) for value in rows[factor.name].dropna()})
    if len(values) < 2:
        return []
    low, high = (values[-1], values[0]) if factor.is_less else (values[0], values[-1])
    keys = [name for name in view.factors if name != factor.name]
    rows = rows.assign(**{name: rows[name].astype(str) for name in keys})
    here, there = (rows[rows[factor.name].astype(float) == value] for value in (low, high))
    pairs = here.merge(there, on=keys, suffixes=("_low", "_high"))
    where = ", ".join(str(name) for name in names)
    runs = len(pairs.drop_duplicates(["run_low", "run_high"]))
    said = f"{where}: {factor.unit(high)} instead of {factor.unit(low)}"
    claims = [_throughput_claim(factor, said, pairs, runs)]
    analysed = pairs[pairs["TP_low"].notna() & pairs["TP_high"].notna()]
    if len(analysed):
        claims.append(_point_claim(factor, said, analysed, runs))
    return claims


def _throughput_claim(factor: _Factor, said: str, pairs: pd.DataFrame, runs: int) -> Claim:
    ratio = inference.of_pairs(pairs["best_tps_high"], pairs["best_tps_low"])
    behind = {"pairs of batchsets": f"{len(pairs):,}", "from pairs of runs": f"{runs:,}"}
    if ratio is None:
        text = (
            f"{said}: this sample cannot show what that does to throughput; there "
            f"{'is' if len(pairs) == 1 else 'are'} {words.count(len(pairs), 'pair')} of batchsets "
            f"that differ in nothing else, fewer than {FEWEST_PAIRS}."
        )
        return Claim(None, lambda _: Sentence(factor.about, text, "not shown", "curves", behind))
    behind["ratio of best throughputs"] = ratio_said(ratio)

    def sentence(p: float) -> Sentence:
        numbers = behind | {"p, adjusted": words.p_value(p)}
        interval = f"95 % interval {words.between(ratio.low, ratio.high)}, {ratio.n} pairs"
        if p > inference.ALPHA:
            text = (
                f"{said}: this sample cannot show an effect on the best throughput; the ratio is "
                f"{words.number(ratio.value)} ({interval}, adjusted p {words.p_value(p)})."
            )
            return Sentence(factor.about, text, "not shown", "curves", numbers)
        text = (
            f"{said} gives {words.number(ratio.value)} times the best throughput ({interval}, "
            f"adjusted p {words.p_value(p)})."
        )
        if abs(ratio.value - 1) < 1 - NEAR:
            text += " That is less than 5 %: too little to act on."
        return Sentence(factor.about, text, "shown", "curves", numbers)

    return Claim(ratio.p, sentence)


def _point_claim(factor: _Factor, said: str, pairs: pd.DataFrame, runs: int) -> Claim:
    rises = int((pairs["TP_high"] > pairs["TP_low"]).sum())
    falls = int((pairs["TP_high"] < pairs["TP_low"]).sum())
    p_value = inference.sign_test(rises, falls) if len(pairs) >= FEWEST_PAIRS else None
    behind = {
        "pairs": f"{len(pairs):,}", "from pairs of runs": f"{runs:,}", "TP rises": f"{rises}",
        "TP falls": f"{falls}", "TP stays": f"{len(pairs) - rises - falls}",
    }  # fmt: skip

    def sentence(p: float) -> Sentence:
        seen = (
            f"of {words.count(len(pairs), 'pair')} of batchsets the thrashing point rises in "
            f"{rises}, falls in {falls} and stays in {len(pairs) - rises - falls}"
        )
        numbers = behind | {"p, adjusted": words.p_value(p)}
        if p > inference.ALPHA:
            why = (
                f"fewer than {FEWEST_PAIRS} pairs"
                if len(pairs) < FEWEST_PAIRS
                else f"adjusted p of the sign test {words.p_value(p)}"
            )
            text = (
                f"{said}: this sample cannot show where the thrashing point goes: {seen} ({why})."
            )
            return Sentence(factor.about, text, "not shown", "tap-points", numbers)
        goes = "raises" if rises > falls else "lowers"
        test = f"adjusted p of the sign test {words.p_value(p)}"
        text = f"{said} {goes} the thrashing point: {seen} ({test})."
        return Sentence(factor.about, text, "shown", "tap-points", numbers)

    return Claim(p_value, sentence)


def thrashing(view: View) -> list[Claim]:
    """Return how often each DBMS thrashes, and whether they differ."""
    known = view.summary[view.summary["TP"].notna()]
    if known.empty or view.is_controlled:
        return []
    counts = known.assign(is_finite=np.isfinite(known["TP"])).groupby("subject")["is_finite"]
    found = {str(s): (int(v.sum()), len(v)) for s, v in counts}
    if max(of for _, of in found.values()) < FEWEST_SHARES:
        return []
    claims = [Claim(None, _kept(_share(subject, *n))) for subject, n in found.items()]
    if len(found) > 1:
        p_value = inference.independence([(n, of - n) for n, of in found.values()])
        claims.append(Claim(p_value, lambda p: _difference(found, p)))
    return claims


def _kept(sentence: Sentence) -> Callable[[float], Sentence]:
    """Return a sentence that does not depend on a p-value."""
    return lambda _: sentence


def _share(subject: str, thrashed: int, of: int) -> Sentence:
    text = f"{subject} thrashes in {thrashed:,} of {of:,} analysed batchsets"
    about = "which DBMS thrashes"
    behind = {"thrashed": f"{thrashed:,}", "analysed": f"{of:,}"}
    if of < FEWEST_SHARES:
        text += "; that is too few for this sample to show a share."
        return Sentence(about, text, "not shown", "tap-points", behind)
    low, high = inference.share(thrashed, of)
    text += f", {words.percent(thrashed / of)} (95 % interval {words.percent(low)} to "
    return Sentence(about, text + f"{words.percent(high)}).", "shown", "tap-points", behind)


def _difference(found: dict[str, tuple[int, int]], p: float) -> Sentence:
    order = sorted(found, key=lambda subject: -found[subject][0] / found[subject][1])
    shares = {s: f"{found[s][0]:,} of {found[s][1]:,}" for s in order} | {
        "p, adjusted": words.p_value(p)
    }
    about = "which DBMS thrashes"
    if p > inference.ALPHA:
        text = (
            f"this sample cannot show that some DBMSs thrash more often than others (adjusted p "
            f"{words.p_value(p)})."
        )
        return Sentence(about, text, "not shown", "tap-points", shares)
    text = (
        f"the DBMSs do not thrash equally often (adjusted p {words.p_value(p)}): {order[0]} most "
        f"often, {order[-1]} least."
    )
    return Sentence(about, text, "shown", "tap-points", shares)
