"""What processors, primary keys and shorter transactions do, and which DBMS thrashes.

What befell a run befell all its batchsets alike, so a run is one value: the mean of log throughput,
or of the rank of the thrashing point, over the batchsets that all levels of the factor have. Runs
that differ in processors or keys only are a block. SF differs within runs: there a run is a block,
with a value for the least SF and one for the greatest.

A ratio is of one DBMS: the slope of a line through the blocks, in logarithms of processors, with an
intercept for each block; for two levels the paired t. The ratio of several DBMSs together has the
mean of each as a block, so that it is about DBMSs, and not about runs of these. A shorter
transaction does less, so what is compared there is the rows that are touched in a second.

Thrashing points are compared by permutation within the blocks of all DBMSs together. One DBMS has
few blocks: in no experiment file more than five for keys, too few to show anything.

Shares of batchsets that thrash have Wilson's interval. DBMSs are compared over the batchsets that
all of them have, run by run, by permutation; isolation and settings are the DBMS's own there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._inference import FEWEST_SHARES, NEAR
from tidegate_analysis.report._parts import Claim, Sentence, ratio_text
from tidegate_analysis.report._view import BATCHSET, View

#: What is the same in all batchsets of a run: what is varied, and what a DBMS has of its own.
_VARIED: Final = ("numProcs", "PK")
_OWN: Final = ("subject", "isolation", "settings")


@dataclass(frozen=True)
class _Factor:
    """A factor: its column, how a value is said, and whether it is one of runs."""

    name: str
    about: str
    unit: Callable[[float], str]
    is_of_run: bool = True

    @property
    def of_block(self) -> list[str]:
        """Return what runs of a block have alike."""
        return [name for name in (*_OWN, *_VARIED) if name != self.name]


_FACTORS: Final = (
    _Factor("numProcs", "processors", lambda v: words.count(int(v), "processor")),
    _Factor("PK", "primary keys", lambda v: "a primary key" if v else "no primary key"),
    _Factor("sf", "shorter transactions", lambda v: f"an SF of {words.value(v)} %", False),
)


@dataclass(frozen=True)
class _FactorLevels:
    """Batchsets of one mode at the levels of a factor.

    - rows: The batchsets, of one DBMS or of all.
    - keys: What they are matched by.
    - levels: The values, from the one that others are compared with to the one that is told of.
    - planned: Blocks of runs that the experiment has for it, measured or not.
    """

    factor: _Factor
    rows: pd.DataFrame
    keys: list[str]
    levels: np.ndarray
    planned: int

    @property
    def place(self) -> np.ndarray:
        """Return where the levels are on the line, from 0 to 1."""
        x = np.log(self.levels) if self.factor.name == "numProcs" else self.levels
        place: np.ndarray = (x - x[0]) / (x[-1] - x[0])
        return place

    @property
    def slope(self) -> np.ndarray:
        """Return the weights of values that make a line's slope."""
        place = self.place
        weights: np.ndarray = place - place.mean()
        return weights

    def by_level(self, column: str) -> tuple[pd.DataFrame, int]:
        """Return a row for each batchset measured at all levels, and of how many there are."""
        table = self.rows.pivot_table(index=self.keys, columns=self.factor.name, values=column)
        table = table.reindex(columns=self.levels)
        return table.dropna(), len(table)

    def by_run(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the means of blocks: runs that differ in the factor only, or runs."""
        return table.groupby(level=self.factor.of_block).mean()

    def comparison(self, table: pd.DataFrame) -> str:
        """Return which values are compared, and in which DBMSs of the table."""
        found = table if len(table) else self.rows.set_index(self.keys)
        subjects = found.index.unique("subject")
        who = subjects[0] if len(subjects) == 1 else f"{len(subjects)} DBMSs together"
        to, instead_of = (self.factor.unit(self.levels[at]) for at in (-1, 0))
        return f"{who}, {self.rows['mode'].iloc[0]}: {to} instead of {instead_of}"

    def runs(self, blocks: pd.DataFrame) -> int:
        """Return how many runs the blocks are made of."""
        return blocks.size if self.factor.is_of_run else len(blocks)

    def numbers(self, found: int, of: int, blocks: pd.DataFrame) -> dict[str, str]:
        """Return how many batchsets and runs are behind what is said."""
        runs = f"{self.runs(blocks):,}"
        return {"batchsets at each level": f"{found:,} of {of:,}", "runs": runs}


def factors(view: View) -> list[Sentence | Claim]:
    """Return what each factor does to the best throughput, and to the thrashing point."""
    if view.is_controlled or not view.has_curves:
        return []
    table = view.summary.drop(columns=["subject", "label"]).merge(view.batchsets, on=BATCHSET)
    found: list[Sentence | Claim] = []
    for factor in _FACTORS:
        if factor.name not in table:
            continue
        rows = table[(table[factor.name] != "all") & table[factor.name].notna()]
        for _, own in rows.groupby(["subject", "mode"]):
            if compared := _compared(view, factor, own):
                found.append(_throughput(compared))
        for _, own in rows.groupby("mode"):
            if len(own["subject"].unique()) > 1 and (compared := _compared(view, factor, own)):
                found.append(_throughput(compared))
        for _, own in rows[rows["TP"].notna()].groupby("mode"):
            if compared := _compared(view, factor, own):
                found.append(_points(compared))
    return found


def _compared(view: View, factor: _Factor, rows: pd.DataFrame) -> _FactorLevels | None:
    """Return the batchsets at the factor's levels, where there are two levels."""
    keys = [name for name in view.factors if name != factor.name]
    rows = rows.astype(dict.fromkeys(keys, str) | {factor.name: float})
    levels = np.sort(rows[factor.name].unique())
    if len(levels) < 2:
        return None
    if not factor.is_of_run:
        # The shortest transactions instead of the longest.
        levels = levels[[-1, 0]]
    of_them = view.batchsets["subject"].isin(rows["subject"].unique())
    blocks = view.batchsets.loc[of_them, factor.of_block].astype(str).drop_duplicates()
    return _FactorLevels(factor, rows, keys, levels, len(blocks))


def _throughput(compared: _FactorLevels) -> Sentence | Claim:
    """Return what a factor does to throughput; without an interval, no more than was seen."""
    table, of = compared.by_level("best_tps")
    table = table.where(table > 0).dropna()
    what = "the best throughput"
    if not compared.factor.is_of_run:
        table = table * compared.levels
        what = "the rows a second, transactions a second times SF"
    blocks = compared.by_run(table.map(np.log))
    compares, n = compared.comparison(table), compared.runs(blocks)
    values = words.count(n, "run")
    numbers = compared.numbers(len(table), of, blocks)
    apart = " that differ in nothing else" if compared.factor.is_of_run else ""
    if len(compared.rows["subject"].unique()) > 1:
        blocks = blocks.groupby(level="subject").mean()
        n, apart = len(blocks), ""
        values = words.count(n, "DBMS", "DBMSs")
        what += ", in the mean"
    ratio = inference.of_blocks(blocks, compared.place)
    if ratio is None:
        few = f"{values}{apart} are too few{_by_design(compared) if apart else ''}"
        text = f"{compares}: this sample cannot show what that does to {what}: {few}"
        return Sentence(
            compared.factor.about, text + _observed_ratio(blocks), "not shown", "curves", numbers
        )

    def sentence(p: float) -> Sentence:
        said = ratio_text(replace(ratio, n=n))
        behind = {**numbers, "ratio": said, "p, adjusted": words.p_value(p)}
        interval = (
            f"95 % interval {words.between(ratio.low, ratio.high)}, {values}, "
            f"adjusted p {words.p_value(p)}"
        )
        about = compared.factor.about
        if not inference.is_shown(p):
            text = (
                f"{compares}: this sample cannot show an effect on {what}; the ratio is "
                f"{words.number(ratio.value)} ({interval})."
            )
            return Sentence(about, text, "not shown", "curves", behind)
        text = f"{compares} gives {words.number(ratio.value)} times {what} ({interval})."
        if abs(ratio.value - 1) < 1 - NEAR:
            text += " That is less than 5 %: too little to act on."
        return Sentence(about, text, "shown", "curves", behind)

    return Claim(ratio.p, sentence)


def _by_design(compared: _FactorLevels) -> str:
    """Return that all runs of the experiment would be too few, where they would."""
    if inference.free(compared.planned, len(compared.levels)) >= inference.FEWEST_FREE:
        return ""
    return ", by design: the experiment plans no more of this DBMS"


def _observed_ratio(blocks: pd.DataFrame) -> str:
    """Return the ratio between the ends of the blocks, for what it is worth."""
    if blocks.empty:
        return "."
    seen = float(np.exp((blocks.iloc[:, -1] - blocks.iloc[:, 0]).mean()))
    return f"; the ratio in them is {words.number(seen)}."


def _points(compared: _FactorLevels) -> Claim | Sentence:
    """Return where a factor moves the thrashing points of all DBMSs, and of how many batchsets."""
    table, of = compared.by_level("TP")
    ranks = table.rank(axis=1)
    slope = compared.slope
    blocks = compared.by_run(ranks)
    numbers = compared.numbers(len(table), of, blocks)
    runs = words.count(compared.runs(blocks), "run")
    each = np.sign((ranks.to_numpy() @ slope).round(9))
    rises, falls, stays = (int((each == sign).sum()) for sign in (1, -1, 0))
    seen = (
        f"it rises in {rises}, falls in {falls} and stays in {stays} of "
        f"{words.count(len(table), 'batchset')} that have all levels"
    )
    about, compares = compared.factor.about, compared.comparison(table)
    cannot = f"{compares}: this sample cannot show where the thrashing point goes: {seen}"
    # What both ends of a line could have by chance.
    if not inference.is_shown(2 * inference.arrangements(blocks)):
        text = f"{cannot}, and {runs} are too few for a test."
        return Sentence(about, text, "not shown", "tap-points", numbers)
    direction = float((blocks.to_numpy() @ slope).sum())
    p_value = inference.permuted(blocks, lambda drawn: np.abs((drawn @ slope).sum(axis=-1)))

    def sentence(p: float) -> Sentence:
        behind = {**numbers, "p, adjusted": words.p_value(p)}
        basis = f"{runs}, adjusted p {words.p_value(p)}"
        if not inference.is_shown(p):
            return Sentence(about, f"{cannot} ({basis}).", "not shown", "tap-points", behind)
        if direction * (rises - falls) <= 0:
            text = f"{cannot}; the numbers of these moves and their sizes disagree ({basis})."
            return Sentence(about, text, "not shown", "tap-points", behind)
        goes = "raises" if direction > 0 else "lowers"
        text = f"{compares} {goes} the thrashing point: {seen} ({basis})."
        return Sentence(about, text, "shown", "tap-points", behind)

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
    about, keys = "which DBMS thrashes", [name for name in view.factors if name not in _OWN]
    values = view.batchsets[[*BATCHSET, *keys]].astype(dict.fromkeys(keys, str))
    table = known[[*BATCHSET, "subject", "thrashes"]].merge(values, on=BATCHSET)
    common = table.pivot_table(index=keys, columns="subject", values="thrashes").dropna()
    shares = common.groupby(level=list(_VARIED)).mean()
    order = list(shares.mean().sort_values(ascending=False, kind="stable").index)
    behind = {
        "batchsets that all have": f"{len(common):,}",
        "runs of each": f"{len(shares):,}",
    } | {str(s): f"{words.number(common[s].sum())} of them" for s in order}
    # Any order of the DBMSs in all runs alike could be by chance.
    if not inference.is_shown(math.factorial(len(order)) * inference.arrangements(shares)):
        text = (
            "this sample cannot show that some DBMSs thrash more often than others: "
            f"{words.count(len(shares), 'run')} of each can be compared, too few for a test."
        )
        return Sentence(about, text, "not shown", "tap-points", behind)
    basis = f"over {len(common):,} batchsets of {words.count(len(shares), 'run')} that all have"

    def sentence(p: float) -> Sentence:
        numbers = behind | {"p, adjusted": words.p_value(p)}
        if not inference.is_shown(p):
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
