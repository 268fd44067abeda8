"""What moves the thrashing point, in sentences; and of which samples they are.

A sentence is a claim only where the censored regression, which has all samples, shows the effect
with samples of one DBMS (of one run, where there is one DBMS) depending on each other, and the path
model of the samples that thrashed, where it can be estimated, does not contradict its direction.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis import estimate
from tidegate_analysis.errors import AnalysisError
from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import (
    Advice,
    Claim,
    Paragraph,
    Part,
    Section,
    Sentence,
    Table,
)
from tidegate_analysis.report._view import records
from tidegate_analysis.report.causal._censored import RegressionPair, compared, effect, unit
from tidegate_analysis.report.causal._group import FACTORS, Experiment, Group, attempt

RULES: Final = (
    "A factor is said to move the thrashing point where the censored regression over all retained "
    "samples, on all factors that vary among those that thrashed, too, and were seen in all, shows "
    "it: p below 0.05 after Holm's adjustment for the number of sentences with a p-value about "
    "this experiment, those under Advice included.",
    "DBMSs are clusters where samples are of several, and runs where they are of one: what befell "
    "one of them befell all its samples. Where one cluster alone decides an effect, nothing is "
    "claimed.",
    "Where the refined path model, estimated on the samples that thrashed, has a total effect in "
    "the other direction, nothing is claimed; where it cannot be estimated, or has no such effect, "
    "the censored regression decides alone.",
    "Few clusters say little of others: with G of them intervals have G − 1 degrees of freedom. Of "
    "a factor that is the same in all samples of a cluster, as processors and keys are in a run, "
    "only clusters tell: there it is one less for each such factor, and with fewer than "
    f"{inference.FEWEST_FREE} nothing is claimed. With one DBMS it is that one alone that a "
    "sentence is about.",
)
_ABOUT: Final = {
    "numProcs": "processors",
    "PK": "primary keys",
    "SF": "size of transactions",
    "ROSE": "range of rows",
}


def what_moves(experiment: Experiment) -> Section:
    """Return of which samples this chapter is, and what they show about factors."""
    title = "What moves the thrashing point"
    if experiment.problem:
        return Section("causal", title, missing=experiment.problem)
    sentences = [sentence for group in experiment.groups for sentence in _claims(group)]
    cautions = [*_cautions(experiment), *_shared_processors(experiment)]
    parts: list[Part] = [_samples(experiment), *map(Paragraph, cautions)]
    if sentences:
        parts.append(Advice(sentences, RULES))
    parts += attempt("how samples are spread over DBMSs", lambda: [_by_dbms(experiment)])
    return Section("causal", title, parts)


def _samples(experiment: Experiment) -> Table:
    rows = [
        (
            f"{group.name}s",
            f"{len(group.retained):,}",
            f"{len(group.thrashed):,} ({words.percent(len(group.thrashed) / len(group.retained))})",
            f"{len(group.retained) - len(group.thrashed):,}",
            f"{group.dbms}",
            words.number(group.retained.drop_duplicates(["experiment", "run"]).shape[0]),
            ", ".join(group.varied()) or "none",
        )
        for group in experiment.groups
    ]
    left_out = ""
    if experiment.left_out:
        batchsets = words.count(experiment.left_out, "batchset")
        left_out = f" {batchsets} of other mixes than reads or updates alone are in neither group."
    header = ("group", "samples retained", "thrashed", "never", "DBMSs", "runs", "factors that "
              "vary")  # fmt: skip
    return Table(
        "causal-samples",
        "The samples of the models: batchset instances that the analysis protocol retained",
        header,
        rows,
        "Path models, mediation and assumption checks are of those that thrashed, as in the study."
        + left_out,
    )


def _by_dbms(experiment: Experiment) -> Table:
    table = pd.concat([group.retained for group in experiment.groups])
    counts = table.groupby(["dbms", "mode"])["thrashed"].agg(["sum", "size"]).reset_index()
    rows = [
        (row["dbms"], f"{row['mode']}s", f"{int(row['sum']):,}", f"{int(row['size']):,}")
        for row in records(counts)
    ]
    header = ("DBMS", "group", "thrashed", "of")
    return Table("causal-dbms", "Samples by DBMS", header, rows)


def _cautions(experiment: Experiment) -> list[str]:
    names = sorted({str(n) for group in experiment.groups for n in group.retained["dbms"]})
    if len(names) == 1:
        return [
            f"All samples are of one DBMS, {names[0]}: nothing here says what holds for others. "
            "Claims take its runs as independent of each other; path models, as the study's, take "
            "its samples so."
        ]
    return [
        f"The samples are of {len(names)} DBMSs, and those of one are not independent of each "
        f"other: for what holds beyond these DBMSs, n is nearer to {len(names)} than to the number "
        "of samples. p-values that take samples as independent, as the study's do, are too small."
    ]


def _shared_processors(experiment: Experiment) -> list[str]:
    """Return what else differs with numProcs, where the largest set is the whole machine."""
    seen = pd.concat([group.retained["numProcs"] for group in experiment.groups])
    return [words.SHARED_PROCESSORS] if words.shares_all(seen, experiment.processors) else []


def _claims(group: Group) -> list[Sentence | Claim]:
    """Return a sentence about each factor that the experiment varies."""
    factors = [name for name in FACTORS if len(group.retained[name].unique()) > 1]
    if not factors:
        return []
    found: RegressionPair | AnalysisError
    try:
        found = compared(group, group.varied())
    except AnalysisError as error:
        found = error
    return [_claim(group, factor, found) for factor in factors]


def _claim(group: Group, factor: str, found: RegressionPair | AnalysisError) -> Sentence | Claim:
    """Return a sentence about a factor, by the regression on all of them or why there is none."""
    try:
        group.need_thrashed()
        group.need_seen([factor])
    except AnalysisError as error:
        return _cannot(group, factor, str(error))
    if len(group.thrashed[factor].unique()) == 1:
        return _alike(group, factor)
    if isinstance(found, AnalysisError):
        return _cannot(group, factor, str(found))
    what = "DBMS" if group.clusters == "dbms" else "run"
    if found.clusters is None:
        why = f"samples of one {what} depend on each other, and {found.problem}"
        return _cannot(group, factor, why)
    row = next(row for row in records(found.table) if row["term"] == factor)
    if not row["degrees"] >= inference.FEWEST_FREE:
        n = words.count(group.retained[group.clusters].nunique(), what, f"{what}s")
        free = words.count(int(np.nan_to_num(row["degrees"])), "degree")
        fewest = inference.FEWEST_FREE
        why = f"{n} leave {free} of freedom to tell an effect by, fewer than {fewest}"
        return _cannot(group, factor, why)
    return Claim(float(row["censored_p"]), partial(_sentence, group, factor, row))


def _alike(group: Group, factor: str) -> Sentence:
    """Return that all that thrashed are alike in a factor, and where to see what it does."""
    value = group.thrashed[factor].iloc[0]
    alike = group.retained[factor] == value
    others = len(group.retained) - int(alike.sum())
    why = (
        f"all samples that thrashed have {factor} {words.value(value)}. Whether they thrash at all "
        f"differs with it: {len(group.thrashed):,} of {int(alike.sum()):,} with that value do, and "
        f"none of {others:,} with another"
    )
    return _cannot(group, factor, why, f"causal-logistic-{group.name}")


def _cannot(group: Group, factor: str, why: str, anchor: str = "causal-samples") -> Sentence:
    about = _ABOUT[factor]
    text = (
        f"{group.name}s: this sample cannot show that {factor} ({about}) moves the thrashing "
        f"point: {why}"
    )
    return Sentence(about, text.rstrip(".") + ".", "not shown", anchor)


def _total(group: Group, factor: str) -> pd.Series | None:
    """Return the total effect on TP in MPL; None where the refined model gives none."""
    if factor not in group.refined.exogenous:
        return None
    try:
        return estimate.effects(group.fit, scale="raw").of(factor, "TP")
    except AnalysisError:
        return None  # The chapter on path models says why.


def _sentence(group: Group, factor: str, row: Mapping[str, Any], p: float) -> Sentence:
    about, (_, each) = _ABOUT[factor], unit(group, factor)
    change = effect(group, row, "censored")
    is_up = bool(row["censored"] > 0)
    clusters = "DBMSs" if group.clusters == "dbms" else "runs"
    behind = {
        "total effect on TP, censored regression": f"{change}, adjusted p {words.p_value(p)}",
        "samples": f"{group.of}; {len(group.thrashed):,} thrashed",
        "clusters": f"{clusters}, {group.retained[group.clusters].nunique()}",
        "degrees of freedom": words.number(row["degrees"]),
    }
    in_mpl, agrees, path = "", True, _total(group, factor)
    if path is None and factor in group.refined.exogenous:
        behind["total effect, refined model, samples that thrashed"] = "cannot be estimated"
    if path is not None:
        agrees = bool((path["effect"] > 0) == is_up)
        said = (
            f"{words.number(path['effect'])} MPL (95 % interval "
            f"{words.between(path['low'], path['high'])}) for each unit of {factor}"
        )
        behind["total effect, refined model, samples that thrashed"] = said
        in_mpl = f" In the refined model of those that thrashed its total effect is {said}."
    anchor = f"causal-censored-total-{group.name}"
    interval = f"total effect {change.replace('(', '(95 % interval ')}"
    if inference.is_shown(p) and agrees:
        goes = "up" if is_up else "down"
        text = f"{group.name}s: {each} moves the thrashing point {goes}: {interval}, {group.of}."
        return Sentence(about, text + in_mpl, "shown", anchor, behind)
    why = f"{interval}, adjusted p {words.p_value(p)}, {group.of}."
    if inference.is_shown(p):
        why += " The refined model of those that thrashed has it in the other direction."
    text = f"{group.name}s: this sample cannot show that {each} moves the thrashing point: {why}"
    return Sentence(about, text + in_mpl, "not shown", anchor, behind)
