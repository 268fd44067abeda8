"""Which controller, split or priority does what: settings compared by their executions."""

from functools import partial

import numpy as np
import pandas as pd

from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._details import at_loss, per_class
from tidegate_analysis.report._inference import FEWEST_REPETITIONS, Ratio
from tidegate_analysis.report._parts import Claim, Sentence, ratio_text
from tidegate_analysis.report._view import BATCHSET, View


def settings(view: View) -> list[Sentence]:
    """Return which controller, or which split of trees, has the highest throughput."""
    if not view.is_controlled and view.scenario != "deteriorate":
        return []
    name = "control" if view.is_controlled else "split"
    others = [factor for factor in view.factors if factor != name]
    table = view.batchsets.astype(dict.fromkeys(others, str))
    varied = [factor for factor in others if len(table[factor].unique()) > 1]
    done = view.done[[*BATCHSET, "tps"]].merge(table, on=BATCHSET)
    found = []
    for values, rows in done.groupby(others):
        where = [value for factor, value in zip(others, values, strict=True) if factor in varied]
        label = f"{', '.join(str(value) for value in where if value)}: " if where else ""
        each = {str(setting): own["tps"].to_numpy() for setting, own in rows.groupby(name)}
        if len(each) > 1:
            found.append((label, each))
    pairs = sum(len(each) * (len(each) - 1) // 2 for _, each in found)
    return [_best_setting(label, each, pairs) for label, each in found]


def _best_setting(label: str, each: dict[str, np.ndarray], comparisons: int) -> Sentence:
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
        ratio = inference.of_repetitions(each[best], each[setting], comparisons)
        if ratio and ratio.low > 1:
            worse.append(f"{setting} ({words.number(ratio.value)} times)")
    rest = len(order) - 1 - len(worse)
    text = f"{label}{best} has the highest mean, {words.number(each[best].mean())} tps."
    if worse:
        text += f" It is better than {words.enumeration(worse)}."
    if rest:
        text += f" This sample cannot tell it from {rest} of the other {len(order) - 1}."
    return Sentence(about, text, "shown" if worse else "not shown", "curves", behind)


def priority(view: View) -> list[Sentence | Claim]:
    """Return how much better the high class fares at the limits that lose 5 and 20 per cent."""
    if view.scenario != "priority":
        return []
    seen = view.results.classes(view.number)
    if seen.empty:
        return []
    table = per_class(view, seen)
    keys = [*BATCHSET, "mpl", "execution"]
    seen = seen[seen["execution"].isin(view.done["execution"])]
    each = seen.pivot_table(index=keys, columns="class", values="mean_ms").reset_index()
    said: list[Sentence | Claim] = []
    for (subject, run), rows in table.groupby(["subject", "run"]):
        where = f"{subject}, run {run}" if len(table["run"].unique()) > 1 else str(subject)
        for loss in (0.05, 0.2):
            said += _with_priority(where, rows, each[each["run"] == run], loss)
    return said


def _with_priority(
    where: str, rows: pd.DataFrame, each: pd.DataFrame, loss: float
) -> list[Sentence | Claim]:
    """Return what priority does at the lowest limit that keeps all but a share of throughput."""
    found = at_loss(rows, loss)
    if found is None:
        return []
    mpl, at, free = found
    here = each[each["batchset"].eq(at["batchset"]) & each["mpl"].eq(mpl)]
    there = each[each["batchset"].eq(free["batchset"]) & each["mpl"].eq(free["mpl"])]
    limit = (
        f"{where}: at MPL {words.number(mpl)}, the lowest that keeps {words.percent(1 - loss)} of "
        "the throughput of no limit in the mean, "
    )
    behind = {
        "limit": words.number(mpl),
        "high, mean": f"{words.number(at['high'])} ms",
        "normal, mean": f"{words.number(at['normal'])} ms",
        "normal without priority and limit": f"{words.number(free['normal'])} ms",
        "repetitions": f"{min(len(here), len(there))}",
    }
    times = inference.of_pairs(here["normal"], here["high"], fewest=FEWEST_REPETITIONS)
    worse = inference.of_repetitions(here["normal"], there["normal"])
    if times is None or worse is None:
        text = limit + (
            "this sample cannot show what priority does: there are fewer than "
            f"{FEWEST_REPETITIONS} repetitions. In what was measured, high transactions were "
            f"{words.number(at['normal'] / at['high'])} times faster than normal ones, and normal "
            f"ones {words.slower(at['normal'] / free['normal'])} than without priority and limit."
        )
        return [Sentence("priority", text, "not shown", "class-table", behind)]
    faster = f"high transactions were {words.number(times.value)} times faster than normal ones"
    slower = f"normal transactions were {words.slower(worse.value)} than without priority and limit"
    return [
        Claim(ratio.p, partial(_of_classes, limit, text, ratio, behind))
        for text, ratio in ((faster, times), (slower, worse))
    ]


def _of_classes(limit: str, text: str, ratio: Ratio, behind: dict[str, str], p: float) -> Sentence:
    numbers = behind | {"ratio of latencies": ratio_text(ratio), "p, adjusted": words.p_value(p)}
    tested = (
        f"95 % interval of the ratio {words.between(ratio.low, ratio.high)}, adjusted p "
        f"{words.p_value(p)}"
    )
    if not inference.is_shown(p):
        said = f"{limit}this sample cannot show a difference: in it {text} ({tested})."
        return Sentence("priority", said, "not shown", "class-table", numbers)
    return Sentence("priority", f"{limit}{text} ({tested}).", "shown", "class-table", numbers)
