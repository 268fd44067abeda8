"""Which MPL to set, and what holding it gains over letting all clients in.

Of a single batchset by its repetitions; of many batchsets of a subject and a kind of workload
together, by batchsets as pairs. A level that was picked because it was best is never measured by
what picked it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis import scalability
from tidegate_analysis.errors import SampleError
from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._inference import FEWEST_PAIRS, FEWEST_REPETITIONS, NEAR
from tidegate_analysis.report._parts import Claim, Sentence, ratio_text
from tidegate_analysis.report._view import BATCHSET, View, records

#: With more batchsets than this, or without repetitions of them, there is a sentence for each
#: subject and kind of workload.
MOST_BATCHSETS: Final = 12


def levels(view: View) -> list[Sentence | Claim]:
    """Return which MPL to set, and what holding it would gain, of each batchset or group."""
    if view.is_controlled or view.scenario == "deteriorate" or not view.has_curves:
        return []
    few, once = len(view.summary), int(view.summary["n"].min()) < FEWEST_REPETITIONS
    if few < FEWEST_PAIRS or (few <= MOST_BATCHSETS and not once):
        return [
            sentence for row in records(view.summary) if row["levels"] > 1
            for sentence in _of_batchset(view, row)
        ]  # fmt: skip
    groups = view.curves.groupby(["subject", "mode"])
    return [sentence for names, rows in groups for sentence in _of_group(view, names, rows)]


@dataclass(frozen=True)
class _Batchset:
    """A batchset that sentences are made of: its row of the summary, and its executions."""

    label: str
    row: dict[str, Any]
    executions: pd.DataFrame

    @property
    def each(self) -> dict[float, np.ndarray]:
        """Return the throughputs of each level."""
        groups = self.executions.groupby("mpl")["tps"]
        return {float(str(mpl)): tps.to_numpy() for mpl, tps in groups}

    @property
    def behind(self) -> dict[str, str]:
        """Return the numbers that all of its sentences rest on."""
        said = {name: words.number(v) for name, v in self.row.items() if not isinstance(v, str)}
        return {
            "best mean": f"{said['best_tps']} tps at MPL {said['best_mpl']}",
            "last level": f"{said['last_tps']} tps at MPL {said['last_mpl']}",
            "repetitions, at least": said["n"],
            "levels": said["levels"],
        }

    def sentence(self, about: str, text: str, kind: str, **numbers: str) -> Sentence:
        """Return a sentence about the batchset."""
        numbers = {name.replace("_", " "): value for name, value in numbers.items()}
        return Sentence(about, self.label + text, kind, "curves", self.behind | numbers)


def _of_batchset(view: View, row: dict[str, Any]) -> list[Sentence]:
    """Return which MPL to set for a batchset, and what that gains, from its repetitions."""
    one = _Batchset(f"{row['label']}: " if len(view.summary) > 1 else "", row, view.own(row))
    if row["n"] >= FEWEST_REPETITIONS:
        return [_set(one), _gain(one)]
    text = (
        f"this sample cannot show which MPL is best, or what setting it gains: a level was "
        f"measured {words.count(int(row['n']), 'time')}, fewer than {FEWEST_REPETITIONS}. In what "
        f"was measured, MPL {words.number(row['good_mpl'])} is the lowest within 5 % of the best, "
        f"{words.number(row['best_tps'])} tps at MPL {words.number(row['best_mpl'])}; the last "
        f"level, {words.number(row['last_mpl'])}, has {words.number(row['last_tps'])} tps."
    )
    return [one.sentence("which MPL to set", text, "not shown")]


def _near(
    levels: Sequence[float], ratio: Callable[[float, float], inference.Ratio | None]
) -> float | None:
    """Return the lowest level that is shown to be within 5 % of each other one, if there is one."""
    for level in sorted(levels):
        found = [ratio(other, level) for other in levels if other != level]
        if all(each is not None and each.high <= 1 / NEAR for each in found):
            return level
    return None


def _set(one: _Batchset) -> Sentence:
    """Return the lowest level that is shown to be within 5 % of the best."""
    each, row, about = one.each, one.row, "which MPL to set"
    k, best = len(each), float(row["best_mpl"])
    chosen = _near(list(each), lambda a, b: inference.of_repetitions(each[a], each[b], k))
    if chosen is None:
        text = (
            f"this sample cannot show which MPL is within 5 % of the best, because repetitions "
            f"differ too much. In the means MPL {words.number(best)} is best, "
            f"{words.number(row['best_tps'])} tps, and MPL {words.number(row['good_mpl'])} the "
            "lowest within 5 % of it."
        )
        return one.sentence(about, text, "not shown")
    text = f"set MPL {words.number(chosen)}: it gives {words.number(each[chosen].mean())} tps"
    numbers = {}
    if chosen == best:
        text += ", the best that was measured."
    elif ratio := inference.of_repetitions(each[chosen], each[best], k):
        numbers = {"ratio_to_the_best": ratio_text(ratio)}
        text += f", {words.percent(ratio.value)} of the best, which is at MPL {words.number(best)}"
        text += f" (95 % interval {words.percent(ratio.low)} to {words.percent(ratio.high)})."
    if best == row["last_mpl"]:
        text += (
            f" The best is the last level, MPL {words.number(best)}: this sample cannot show where "
            "throughput would fall."
        )
    return one.sentence(about, text, "shown", **numbers)


def _gain(one: _Batchset) -> Sentence:
    """Return what holding the best level gains over letting in as many as at the last.

    The level is chosen by all repetitions but one and measured by that one, in turn, so the gain is
    free of the luck by which the best was best (see `scalability.gain`).
    """
    about, row = "what Tidegate would gain", one.row
    last = float(row["last_mpl"])
    try:
        gain = scalability.gain(one.executions[["mpl", "tps"]], level=1 - inference.ALPHA)
    except SampleError as error:
        text = f"this sample cannot show what a limit would gain: {error.problem}."
        return one.sentence(about, text, "not shown")
    best = gain.best
    if best == last:
        text = f"this sample shows no gain from a limit: the last level, MPL {words.number(last)}, "
        return one.sentence(about, text + "is the best.", "not shown")
    held, free = (words.number(one.each[level].mean()) for level in (best, last))
    said = f"{words.number(gain.ratio)}, {words.between(gain.low, gain.high)}"
    if gain.low <= 1:
        text = (
            f"this sample cannot show that a limit of {words.number(best)} is better than "
            f"{words.number(last)}: the ratio of throughputs is {words.number(gain.ratio)}, with "
            f"a 95 % interval from {words.between(gain.low, gain.high)}."
        )
        return one.sentence(about, text, "not shown", ratio=said)
    text = (
        f"holding MPL {words.number(best)} where {words.number(last)} would come gives "
        f"{words.number(gain.ratio)} times the throughput (95 % interval "
        f"{words.between(gain.low, gain.high)}): {held} tps instead of {free}, if the gate itself "
        "costs nothing."
    )
    return one.sentence(about, text + _little(one), "shown", ratio=said)


def _little(one: _Batchset) -> str:
    """Say what clients would wait, queue included, where a level is a number of clients."""
    treatment, row = str(one.executions["treatment"].iloc[0]), one.row
    if '"mpl":"clients"' not in treatment or '"closed"' not in treatment:
        return ""
    held, free = (1e3 * row["last_mpl"] / row[tps] for tps in ("best_tps", "last_tps"))
    return (
        f" By Little's law {words.number(row['last_mpl'])} clients would then wait "
        f"{words.number(held)} ms in the mean, queue included, instead of {words.number(free)} ms."
    )


def _of_group(view: View, names: tuple[Any, ...], rows: pd.DataFrame) -> list[Sentence | Claim]:
    """Return which MPL to set for a subject and a kind of workload, from many batchsets."""
    subject, mode = (str(name) for name in names)
    label = f"{subject}, {mode}"
    table = rows.pivot_table(index=BATCHSET, columns="mpl", values="tps")
    planned = view.batchsets["subject"].eq(subject) & view.batchsets["mode"].eq(mode)
    of = int(planned.sum())
    table = table[(table > 0).all(axis=1)]
    k, last = table.shape[1], float(table.columns[-1]) if table.shape[1] else 0.0
    if len(table) < FEWEST_PAIRS or k < 2:
        text = (
            f"{label}: this sample cannot show which MPL is best: {len(table):,} of "
            f"{words.count(of, 'batchset')} with throughput at every level, fewer than "
            f"{FEWEST_PAIRS}."
        )
        return [Sentence("which MPL to set", text, "not shown", "curves")]
    those = f"all {len(table):,} batchsets"
    if len(table) < of:
        those = f"{len(table):,} of {of:,} batchsets (the others lack a level)"
    mean = np.exp(np.log(table).mean())
    best = float(mean.idxmax())
    behind = {
        "batchsets with all levels": f"{len(table):,} of {of:,}",
        "levels": f"{k} of {view.executions['mpl'].nunique()}",
        "best level, geometric mean": f"{words.number(mean[best])} tps at MPL {words.number(best)}",
        "last level": f"{words.number(mean[last])} tps at MPL {words.number(last)}",
    }
    about = "which MPL to set"
    chosen = _near(
        [float(mpl) for mpl in table.columns],
        lambda a, b: inference.of_pairs(table[a], table[b], k),
    )
    if chosen is None:
        text = (
            f"{label}: this sample cannot show one MPL that is within 5 % of the best for {those} "
            f"together. In the mean MPL {words.number(best)} is best."
        )
        sentence = Sentence(about, text, "not shown", "curves", behind)
    else:
        text = (
            f"{label}: over {those}, set MPL {words.number(chosen)}: in the mean "
            f"{words.number(mean[chosen])} tps, {words.percent(mean[chosen] / mean[best])} of the "
            f"best level, {words.number(best)}."
        )
        sentence = Sentence(about, text, "shown", "curves", behind)
    return [sentence, _group_gain(label, table, best, last, behind, those=those)]


def _group_gain(
    label: str, table: pd.DataFrame, best: float, last: float, behind: dict[str, str], *, those: str
) -> Sentence | Claim:
    about = "what Tidegate would gain"
    # Choices of different runs are not independent of each other; the bound for all levels is.
    ratio = inference.of_pairs(held(table), table[last], table.shape[1])
    if best == last or ratio is None:
        text = (
            f"{label}: this sample cannot show that a limit would gain anything: the best level is "
            f"the last, MPL {words.number(last)}."
        )
        return Sentence(about, text, "not shown", "curves", behind)
    interval = f"95 % interval {words.between(ratio.low, ratio.high)}"

    def sentence(p: float) -> Sentence:
        numbers = behind | {"ratio": ratio_text(ratio), "p, adjusted": words.p_value(p)}
        if not (inference.is_shown(p) and ratio.value > 1):
            text = (
                f"{label}: this sample cannot show that a limit would gain anything: the ratio of "
                f"throughputs is {words.number(ratio.value)} ({interval}, adjusted p "
                f"{words.p_value(p)})."
            )
            return Sentence(about, text, "not shown", "curves", numbers)
        text = (
            f"{label}: one limit for {those}, {words.number(best)} here, would "
            f"give {words.number(ratio.value)} times the throughput of MPL {words.number(last)} "
            f"({interval}, adjusted p {words.p_value(p)}), if the gate itself costs nothing."
        )
        return Sentence(about, text, "shown", "curves", numbers)

    return Claim(ratio.p, sentence)


def held(table: pd.DataFrame) -> np.ndarray:
    """Return each batchset's throughput at the level that is best for batchsets of other runs.

    - table: Throughput by batchset (run, number) and level. Of one run, the level is that of all
      other batchsets.
    """
    values = table.to_numpy()
    logs = np.log(values)
    runs = table.index.get_level_values("run").to_numpy()
    fold = runs if len(np.unique(runs)) > 1 else np.arange(len(runs))
    own = pd.DataFrame(logs).groupby(fold).transform("sum").to_numpy()
    chosen = (logs.sum(axis=0) - own).argmax(axis=1)
    return np.asarray(values[np.arange(len(values)), chosen])
