"""What moves the thrashing point, in sentences; and of which samples they are.

A sentence is a claim only where the censored regression, which has all samples, shows the effect,
and the path model of the samples that thrashed does not contradict its direction.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pandas as pd

from tidegate_analysis import estimate
from tidegate_analysis.errors import AnalysisError
from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._claims import Claim, settled
from tidegate_analysis.report._parts import Advice, Paragraph, Part, Section, Sentence, Table
from tidegate_analysis.report._view import records
from tidegate_analysis.report.causal._censored import CAUSES, change, compared
from tidegate_analysis.report.causal._group import Experiment, Group, attempt

RULES: Final = (
    "A factor is said to move the thrashing point where the censored regression over all retained "
    "samples shows it: p below 0.05 after Holm's adjustment for the number of sentences here, with "
    "DBMSs as clusters where there are several.",
    "Where the refined path model, estimated on the samples that thrashed, has a total effect in "
    "the other direction, nothing is claimed.",
    "Few DBMSs say little of other DBMSs: with G of them intervals have G − 1 degrees of freedom, "
    "and with one it is that one alone that a sentence is about.",
)
_SAID: Final = {
    "numProcs": ("processors", "a further processor"),
    "PK": ("primary keys", "a primary key"),
}


def what_moves(experiment: Experiment) -> Section:
    """Return of which samples this chapter is, and what they show about factors."""
    title = "What moves the thrashing point"
    if experiment.problem:
        return Section("causal", title, missing=experiment.problem)
    claims = [
        claim
        for group in experiment.groups
        for factor in CAUSES
        if (claim := _claim(group, factor)) is not None
    ]
    sentences = settled(claims)
    parts: list[Part] = [_samples(experiment), *map(Paragraph, _cautions(experiment))]
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
    header = ("group", "samples retained", "thrashed", "never", "DBMSs", "runs", "factors that "
              "vary")  # fmt: skip
    return Table(
        "causal-samples",
        "The samples of the models: batchset instances that the analysis protocol retained",
        header,
        rows,
        "Path models, mediation and assumption checks are of those that thrashed, as in the study.",
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
            f"All samples are of one DBMS, {names[0]}: nothing here says what holds for others, "
            "and its samples are taken as independent of each other."
        ]
    return [
        f"The samples are of {len(names)} DBMSs, and those of one are not independent of each "
        f"other: for what holds beyond these DBMSs, n is nearer to {len(names)} than to the number "
        "of samples. p-values that take samples as independent, as the study's do, are too small."
    ]


def _claim(group: Group, factor: str) -> Claim | None:
    """Return a sentence about a factor; None where the experiment does not vary it."""
    if len(group.retained[factor].unique()) < 2:
        return None
    about, _ = _SAID[factor]
    try:
        found = compared(group, group.varied(CAUSES))
        path = _total(group, factor)
    except AnalysisError as error:
        return Claim(None, _cannot(group, factor, str(error)))
    row = next((row for row in records(found.table) if row["term"] == factor), None)
    if row is None:
        why = f"all samples that thrashed are alike in {about}"
        return Claim(None, _cannot(group, factor, why))
    clusters = "clusters" if found.clusters else "not taken as clusters"
    return Claim(
        float(row["censored_p"]),
        lambda p: _sentence(group, factor, row | {"dbms": clusters}, path, p),
    )


def _cannot(group: Group, factor: str, why: str) -> Callable[[float], Sentence]:
    about, _ = _SAID[factor]
    text = f"{group.name}s: this sample cannot show whether {about} move the thrashing point: {why}"
    sentence = Sentence(
        about, words.sentence(text.rstrip(".") + "."), "not shown", "causal-samples"
    )
    return lambda _: sentence


def _total(group: Group, factor: str) -> pd.Series | None:
    """Return the total effect on TP in MPL; None where the refined model has no such path."""
    if factor not in group.refined.exogenous:
        return None
    return estimate.effects(group.fit, scale="raw").of(factor, "TP")


def _sentence(
    group: Group, factor: str, row: Mapping[str, Any], path: pd.Series | None, p: float
) -> Sentence:
    about, each = _SAID[factor]
    effect = change(row["censored"], row["censored_low"], row["censored_high"])
    is_up = bool(row["censored"] > 0)
    behind = {
        "total effect on TP, censored regression": f"{effect}, adjusted p {words.p_value(p)}",
        "samples": f"{len(group.retained):,}, of which {len(group.thrashed):,} thrashed",
        "DBMSs": f"{group.dbms}, {row['dbms']}",
    }
    in_mpl, agrees = "", True
    if path is not None:
        agrees = bool((path["effect"] > 0) == is_up)
        said = (
            f"{words.number(path['effect'])} MPL (95 % interval "
            f"{words.between(path['low'], path['high'])})"
        )
        behind["total effect, refined model, samples that thrashed"] = said
        in_mpl = f" In the refined model of those that thrashed its total effect is {said}."
    anchor = f"causal-censored-total-{group.name}"
    interval = f"total effect of {each} "
    interval += effect.replace("(", "(95 % interval ")
    basis = f"{len(group.retained):,} samples of {words.count(group.dbms, 'DBMS', 'DBMSs')}"
    if p < inference.ALPHA and agrees:
        goes = "up" if is_up else "down"
        text = f"{group.name}s: {each} moves the thrashing point {goes}: {interval}, {basis}."
        return Sentence(about, words.sentence(text + in_mpl), "shown", anchor, behind)
    why = f"{interval}, adjusted p {words.p_value(p)}, {basis}."
    if p < inference.ALPHA:
        why += " The refined model of those that thrashed has it in the other direction."
    text = f"{group.name}s: this sample cannot show that {about} move the thrashing point: {why}"
    return Sentence(about, words.sentence(text + in_mpl), "not shown", anchor, behind)
