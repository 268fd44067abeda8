"""Advice in plain words, each sentence with the numbers behind it.

A sentence is a claim only where the sample can bear it: enough repetitions or pairs, and an
interval that excludes the opposite. Else the sentence says that the sample cannot show it, and
why. `RULES` says so to the reader in the same words.

What it cannot know: pairs of batchsets of one run share whatever befell that run, and batchsets of
one DBMS are not independent of each other; a sentence says how many runs its pairs are from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis import scalability
from tidegate_analysis.errors import SampleError
from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._claims import ratio_said, settled
from tidegate_analysis.report._details import at_loss, per_class
from tidegate_analysis.report._factors import factors, thrashing
from tidegate_analysis.report._inference import (
    FEWEST_PAIRS,
    FEWEST_REPETITIONS,
    FEWEST_SHARES,
    NEAR,
)
from tidegate_analysis.report._parts import Advice, Section, Sentence
from tidegate_analysis.report._view import BATCHSET, View, records

#: With more batchsets than this, or without repetitions of them, there is a sentence for each
#: subject and kind of workload.
MOST_BATCHSETS: Final = 12

RULES: Final = (
    f"A level needs {FEWEST_REPETITIONS} repetitions before a sentence is made of a single "
    f"batchset, a comparison {FEWEST_PAIRS} pairs of batchsets, a share {FEWEST_SHARES} batchsets.",
    "An effect is claimed where its 95 % interval excludes that there is none. The interval is "
    "widened (Bonferroni) where a level was picked because it was the best of several, and "
    "p-values are adjusted for the number of tests on this page (Holm).",
    "The gain of a batchset's best level is that of a level chosen by all repetitions but one and "
    "measured by that one, in turn: what was best by luck gains nothing. Its interval is a "
    "bootstrap of all of that.",
    "“Within 5 % of the best” is claimed where the intervals of all other levels' ratios to it end "
    "below 1/0.95.",
    "Ratios are of geometric means. Pairs of batchsets differ in nothing but the factor; those of "
    "one run share what befell that run, and those of one DBMS are not independent of each other, "
    "so an interval over pairs may be too narrow.",
    "What holds here holds for this machine, these versions, settings and workloads.",
)


def advice(view: View) -> Section:
    """Return what a database administrator can take from the experiment."""
    title = "Advice"
    if view.done.empty:
        return Section("advice", title, missing="nothing was measured that advice could rest on")
    claims = [*factors(view), *thrashing(view)]
    sentences = [
        *_warnings(view),
        *_levels(view),
        *_settings(view),
        *_priority(view),
        *settled(claims),
    ]
    if not any(sentence.kind != "warning" for sentence in sentences):
        sentences.append(
            Sentence(
                "this experiment",
                f"Scenario {view.scenario} with these levels varies nothing that a sentence "
                "could be made of; its figures are below.",
                "not shown",
                "curves",
            )
        )
    sentences = [replace(each, text=words.sentence(each.text)) for each in sentences]
    return Section("advice", title, [Advice(sentences, RULES)])


# Against the sample itself.


def _warnings(view: View) -> list[Sentence]:
    done = view.done
    said = []

    def warn(about: str, rows: int, text: str, anchor: str = "about") -> None:
        if rows:
            said.append(Sentence(about, text, "warning", anchor, {"executions": f"{rows:,}"}))

    formula = int((done["subject"] == "simulated").sum())
    warn("simulated", formula, "The subject `simulated` is a formula: nothing here is about a "
         "database.")  # fmt: skip
    broken = view.results.conditions(view.number)
    violated = int((~broken["holds"].astype(bool)).sum()) if len(broken) else 0
    warn(
        "consistency", violated,
        f"{words.count(violated, 'consistency condition')} did not hold: throughput of a database "
        "that breaks its rules is not to be compared.", "conditions",
    )  # fmt: skip
    busy = int((done["client_core_share"] > 0.9).sum())
    warn(
        "load generator", busy,
        f"In {words.count(busy, 'execution')} the load generator took more than 90 % of a "
        "processor core: throughput there may be its limit and not the database's.",
    )  # fmt: skip
    others = int((done["other_executors"] > 0).sum())
    warn(
        "other experiments", others,
        f"{words.count(others, 'execution')} ran while another experiment was running on the "
        "machine.",
    )  # fmt: skip
    lost = int((done["connection_losses"] > 0).sum())
    warn("lost connections", lost, f"In {words.count(lost, 'execution')} clients lost their "
         "connection, so there were fewer clients than the level says.")  # fmt: skip
    planned = done["processors_planned"]
    other = int(((planned > 0) & (done["processors"] != planned)).sum())
    warn(
        "processors", other,
        f"In {words.count(other, 'execution')} the subject was seen to have another number of "
        "processors than was planned.",
    )  # fmt: skip
    return said


# Which level, and what a gate would gain.


def _levels(view: View) -> list[Sentence]:
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
class _One:
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
    own = view.done[(view.done["run"] == row["run"]) & (view.done["batchset"] == row["batchset"])]
    one = _One(f"{row['label']}: " if len(view.summary) > 1 else "", row, own)
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


def _set(one: _One) -> Sentence:
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
        numbers = {"ratio_to_the_best": ratio_said(ratio)}
        text += f", {words.percent(ratio.value)} of the best, which is at MPL {words.number(best)}"
        text += f" (95 % interval {words.percent(ratio.low)} to {words.percent(ratio.high)})."
    if best == row["last_mpl"]:
        text += (
            f" The best is the last level, MPL {words.number(best)}: this sample cannot show where "
            "throughput would fall."
        )
    return one.sentence(about, text, "shown", **numbers)


def _gain(one: _One) -> Sentence:
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


def _little(one: _One) -> str:
    """Say what clients would wait, queue included, where a level is a number of clients."""
    treatment, row = str(one.executions["treatment"].iloc[0]), one.row
    if '"mpl":"clients"' not in treatment or '"closed"' not in treatment:
        return ""
    held, free = (1e3 * row["last_mpl"] / row[tps] for tps in ("best_tps", "last_tps"))
    return (
        f" By Little's law {words.number(row['last_mpl'])} clients would then wait "
        f"{words.number(held)} ms in the mean, queue included, instead of {words.number(free)} ms."
    )


def _of_group(view: View, names: tuple[Any, ...], rows: pd.DataFrame) -> list[Sentence]:
    """Return which MPL to set for a subject and a kind of workload, from many batchsets."""
    subject, mode = (str(name) for name in names)
    label = f"{subject}, {mode}"
    table = rows.pivot_table(index=BATCHSET, columns="mpl", values="tps")
    table = table[(table > 0).all(axis=1)]
    k, last = table.shape[1], float(table.columns[-1]) if table.shape[1] else 0.0
    if len(table) < FEWEST_PAIRS or k < 2:
        text = (
            f"{label}: this sample cannot show which MPL is best: "
            f"{words.count(len(table), 'batchset')} with throughput at every level, fewer than "
            f"{FEWEST_PAIRS}."
        )
        return [Sentence("which MPL to set", text, "not shown", "curves")]
    mean = np.exp(np.log(table).mean())
    best = float(mean.idxmax())
    behind = {
        "batchsets": f"{len(table):,}",
        "levels": f"{k}",
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
            f"{label}: this sample cannot show one MPL that is within 5 % of the best for all "
            f"{len(table):,} batchsets together. In the mean MPL {words.number(best)} is best."
        )
        sentence = Sentence(about, text, "not shown", "curves", behind)
    else:
        text = (
            f"{label}: over {len(table):,} batchsets, set MPL {words.number(chosen)}: in the mean "
            f"{words.number(mean[chosen])} tps, {words.percent(mean[chosen] / mean[best])} of the "
            f"best level, {words.number(best)}."
        )
        sentence = Sentence(about, text, "shown", "curves", behind)
    return [sentence, _group_gain(label, table, best, last, behind)]


def _group_gain(
    label: str, table: pd.DataFrame, best: float, last: float, behind: dict[str, str]
) -> Sentence:
    about = "what Tidegate would gain"
    ratio = inference.of_pairs(table[best], table[last], table.shape[1]) if best != last else None
    if ratio is None or ratio.low <= 1:
        why = (
            f"the best level is the last, MPL {words.number(last)}"
            if ratio is None
            else f"the ratio of throughputs is {words.number(ratio.value)}, with a 95 % interval "
            f"from {words.between(ratio.low, ratio.high)}"
        )
        text = f"{label}: this sample cannot show that a limit would gain anything: {why}."
        return Sentence(about, text, "not shown", "curves", behind)
    text = (
        f"{label}: one limit of {words.number(best)} for all {ratio.n:,} batchsets would give "
        f"{words.number(ratio.value)} times the throughput of MPL {words.number(last)} (95 % "
        f"interval {words.between(ratio.low, ratio.high)}), if the gate itself costs nothing."
    )
    return Sentence(about, text, "shown", "curves", behind | {"ratio": ratio_said(ratio)})


# Controllers and priority.


def _settings(view: View) -> list[Sentence]:
    """Return which controller, or which split of trees, has the highest throughput."""
    if not view.is_controlled and view.scenario != "deteriorate":
        return []
    name = "control" if view.is_controlled else "split"
    others = [factor for factor in view.factors if factor != name]
    table = view.batchsets.astype(dict.fromkeys(others, str))
    varied = [factor for factor in others if len(table[factor].unique()) > 1]
    done = view.done[[*BATCHSET, "tps"]].merge(table, on=BATCHSET)
    said = []
    for values, rows in done.groupby(others):
        where = [value for factor, value in zip(others, values, strict=True) if factor in varied]
        label = f"{', '.join(str(value) for value in where if value)}: " if where else ""
        each = {str(setting): own["tps"].to_numpy() for setting, own in rows.groupby(name)}
        if len(each) > 1:
            said.append(_best_setting(label, each))
    return said


def _best_setting(label: str, each: dict[str, np.ndarray]) -> Sentence:
    order = sorted(each, key=lambda setting: -each[setting].mean())
    best, about = order[0], "which setting"
    behind = {
        setting: f"{words.number(each[setting].mean())} tps, n = {len(each[setting])}"
        for setting in order
    }
    fewest = min(len(values) for values in each.values())
    if fewest < FEWEST_REPETITIONS:
        text = (
            f"{label}this sample cannot show which is best: there "
            f"{'is' if fewest == 1 else 'are'} {words.count(fewest, 'execution')} of one, fewer "
            f"than {FEWEST_REPETITIONS}. In what was measured, {best} has the highest mean, "
            f"{words.number(each[best].mean())} tps, and {order[-1]} the lowest, "
            f"{words.number(each[order[-1]].mean())} tps."
        )
        return Sentence(about, text, "not shown", "curves", behind)
    worse = []
    for setting in order[1:]:
        ratio = inference.of_repetitions(each[best], each[setting], len(each))
        if ratio and ratio.low > 1:
            worse.append(f"{setting} ({words.number(ratio.value)} times)")
    rest = len(order) - 1 - len(worse)
    text = f"{label}{best} has the highest mean, {words.number(each[best].mean())} tps."
    if worse:
        text += f" It is better than {words.enumeration(worse)}."
    if rest:
        text += f" This sample cannot tell it from {rest} of the other {len(order) - 1}."
    return Sentence(about, text, "shown" if worse else "not shown", "curves", behind)


def _priority(view: View) -> list[Sentence]:
    """Return how much better the high class fares at the limits that lose 5 and 20 per cent."""
    if view.scenario != "priority":
        return []
    seen = view.results.classes(view.number)
    if seen.empty:
        return []
    table = per_class(view, seen)
    said = []
    for (subject, run), rows in table.groupby(["subject", "run"]):
        where = f"{subject}, run {run}" if len(table["run"].unique()) > 1 else str(subject)
        said += [
            sentence
            for loss in (0.05, 0.2)
            if (sentence := _with_priority(where, rows, loss, view)) is not None
        ]
    return said


def _with_priority(where: str, rows: pd.DataFrame, loss: float, view: View) -> Sentence | None:
    """Return what priority does at the lowest limit that keeps all but a share of throughput."""
    found = at_loss(rows, loss)
    if found is None:
        return None
    mpl, at, free = found
    times, n = float(at["normal"] / at["high"]), int(view.curves["n"].min())
    worse = words.slower(float(at["normal"] / free["normal"]))
    behind = {
        "limit": words.number(mpl),
        "high, mean": f"{words.number(at['high'])} ms",
        "normal, mean": f"{words.number(at['normal'])} ms",
        "normal without priority and limit": f"{words.number(free['normal'])} ms",
        "repetitions": f"{n}",
    }
    text = (
        f"{where}: at MPL {words.number(mpl)}, the lowest that keeps {words.percent(1 - loss)} of "
        f"the throughput of no limit, high transactions were {words.number(times)} times faster "
        f"than normal ones, and normal ones {worse} than without priority and limit."
    )
    if n < FEWEST_REPETITIONS:
        text += (
            f" Each level was measured {words.count(n, 'time')}: this sample cannot show how much "
            "of that is noise."
        )
    kind = "shown" if n >= FEWEST_REPETITIONS else "not shown"
    return Sentence("priority", text, kind, "class-table", behind)


__all__: Sequence[str] = ["RULES", "advice"]
