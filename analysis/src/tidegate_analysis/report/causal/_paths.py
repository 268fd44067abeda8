"""The study's hypotheses and refined models on our samples, beside what the study published.

The refined models were chosen with the study's samples, so ours test them. Refinement, which
chooses paths, has half of our runs; what it leaves is tested with the other half. Whether a model
rightly leaves paths out is asked of its covariance matrix.
"""

import html
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from tidegate_analysis import estimate, model
from tidegate_analysis.errors import AnalysisError, SampleError
from tidegate_analysis.published import tables as published
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._inference import ALPHA
from tidegate_analysis.report._parts import Figure, Paragraph, Part, Section, Table
from tidegate_analysis.report._view import records
from tidegate_analysis.report.causal._group import (
    FEWEST_PER_COEFFICIENT,
    Experiment,
    Group,
    attempt,
    estimated,
)
from tidegate_analysis.tables import REFINED, hypotheses

#: What is usual for a model that fits (Hu and Bentler 1999).
GOOD_CFI: Final = 0.95
GOOD_RMSEA: Final = 0.06
GOOD_SRMR: Final = 0.08


def path_models(experiment: Experiment) -> Section:
    """Return correlations, the refined models estimated, their effects, and refinement."""
    parts: list[Part] = []
    for group in experiment.groups:
        parts += attempt(f"the hypotheses about {group.name}s", partial(_hypotheses, group))
        parts += attempt(f"the refined model of {group.name}s", partial(_model, group))
        parts += attempt(
            f"whether models of {group.name}s rightly leave paths out", partial(_structural, group)
        )
        parts += attempt(
            f"which paths of the initial model of {group.name}s to keep",
            partial(_refinement, group, experiment.number),
        )
    return Section("paths", "Path models beside the study's", parts)


def _hypotheses(group: Group) -> list[Part]:
    group.need_model(group.refined)
    found = hypotheses(group.thrashed, REFINED[group.name])
    known = published("confirmatory", "correlations", group.name)
    rows = [
        (
            row["hypothesis"],
            f"{row['cause']} → {row['effect']}",
            f"{row['sign_expected'].replace('-', '−')}, {row['level_expected']}",
            estimated(row["r"], row["low"], row["high"]),
            words.p_value(row["p"]),
            row["level"],
            "yes" if row["supported"] else "no",
            words.number(known.get(row["hypothesis"])),
        )
        for row in records(found)
    ]
    header = ("", "correlation", "expected", "r (95 % interval)", "p", "level", "supported",
              "published r")  # fmt: skip
    table = Table(
        f"causal-hypotheses-{group.name}",
        f"Hypotheses about {group.name}s: n = {len(group.thrashed):,} samples that thrashed",
        header,
        rows,
        "As the study's Tables 9 and 10: Pearson's r, each sample taken as independent. Levels "
        "are Cohen's: 0.1, 0.3, 0.5.",
    )
    return [table]


def _model(group: Group) -> list[Part]:
    group.need_model(group.refined)
    fit = group.fit
    return [
        _diagram(
            f"causal-model-{group.name}",
            model.draw(group.refined),
            f"The study's refined model of {group.name}s, before estimation: hypotheses and signs.",
        ),
        _diagram(
            f"causal-fit-{group.name}",
            fit.diagram(),
            f"The same, estimated on our {fit.n:,} {group.name} samples that thrashed: "
            "standardised coefficients; stars: p below 0.05, 0.01, 0.001.",
        ),
        _coefficients(group),
        _explained(group),
        _effects(group),
    ]


def _diagram(name: str, svg: str, caption: str) -> Figure:
    """Return a path diagram as a figure: the page says in its own way what it shows."""
    found = re.search(r"<desc[^>]*>(.*?)</desc>", svg, re.DOTALL)
    alt = html.unescape(found.group(1)) if found else caption
    plain = re.sub(r' role="img" aria-labelledby="[^"]*"', "", svg, count=1)
    return Figure(name, caption, alt, re.sub(r'<(title|desc) id="[^"]*">', r"<\1>", plain))


def _coefficients(group: Group) -> Table:
    """Return a row for each inference about a path: an interval and a p of one covariance."""
    clustered, said = _clustered(group)
    rows = [
        line
        for row in records(group.fit.paths())
        for line in _inferences(group, row, clustered.get((row["from"], row["to"])))
    ]
    header = ("", "path", "expected", "samples taken as", "in units (95 % interval)", "p",
              "supported", "standardised", "published")  # fmt: skip
    note = (
        "Coefficients by least squares, as in the study, whose model it is: SF and ROSE, which the "
        "study found not to be significant, are not held constant. Published and standardised are "
        "in standard deviations, units are those of the variables. A row is one inference: its "
        "interval leaves out 0 exactly where its p is below 0.05. Independent: also of one "
        "variance, as in the study. Clusters: samples of one DBMS may depend on each other (wild "
        f"cluster bootstrap). {said}"
    ).strip()
    if group.block is not None:
        note += " Several hosts measured: their differences are held constant, as blocks."
    name = f"causal-paths-{group.name}"
    return Table(name, f"Paths of the refined model of {group.name}s", header, rows, note)


def _inferences(
    group: Group, row: dict[str, Any], clustered: dict[str, Any] | None
) -> list[tuple[str, ...]]:
    """Return the rows of a path: samples as independent, and by DBMS where that can be."""
    published_one = group.refined.path(row["from"], row["to"]).coefficient
    path = (row["hypothesis"], f"{row['from']} → {row['to']}", row["sign"].replace("-", "−"))
    standardised = (words.number(row["standardised"]), words.number(published_one))
    every = [("independent", row), ("clusters: DBMSs", clustered)]
    return [
        (
            *path,
            how,
            estimated(one["coefficient"], one["low"], one["high"]),
            words.p_value(one["p"]),
            "yes" if one["supported"] else "no",
            *standardised,
        )
        for how, one in every
        if one is not None
    ]


def _clustered(group: Group) -> tuple[dict[tuple[str, str], dict[str, Any]], str]:
    """Return the paths with DBMSs as clusters, and what to keep in mind or why there are none."""
    if group.by_dbms is None:
        return {}, "All samples that thrashed are of one DBMS, so nothing is known of others."
    try:
        fit = estimate.fit(group.refined, group.thrashed, errors="wild", block=group.block)
    except AnalysisError as error:
        return {}, f"That cannot be computed here: {error.problem}."
    cautions = dict.fromkeys(c for one in fit.regressions.values() for c in one.cautions)
    paths = {(row["from"], row["to"]): row for row in records(fit.paths())}
    return paths, " ".join(f"{words.sentence(caution)}." for caution in cautions)


def _explained(group: Group) -> Table:
    known = published("confirmatory", "models", group.name)
    rows = [
        (f"R² of {name}", words.number(value), words.number(known["r2"].get(name)))
        for name, value in group.fit.r_squared.items()
    ]
    rows.append(
        ("fit of the model", words.number(group.fit.overall_fit), words.number(known["fit"]))
    )
    return Table(
        f"causal-r2-{group.name}",
        f"What the refined model of {group.name}s explains",
        ("", "ours", "published"),
        rows,
        "The fit is 1 less the product of the unexplained shares (Section 9.3.4). Published R² are "
        "those of the study's text; the paths of its Fig. 6(a) would explain 0.39 of TP of reads.",
    )


def _effects(group: Group) -> Table:
    published_effects = records(estimate.totals(group.refined, group.refined.coefficients))
    theirs = {(row["from"], row["to"]): row for row in published_effects}
    ours = estimate.effects(group.fit).to_frame()
    raw = estimate.effects(group.fit, scale="raw").to_frame()
    rows = [
        (
            f"{row['from']} → {row['to']}",
            row["kind"],
            words.number(row["effect"]),
            estimated(unit["effect"], unit["low"], unit["high"]),
            words.number(theirs[row["from"], row["to"]][row["kind"]]),
        )
        for row, unit in zip(records(ours), records(raw), strict=True)
        if row["to"] == "TP"
    ]
    header = ("", "effect", "in standard deviations", "in MPL for each unit (95 % interval)",
              "published")  # fmt: skip
    return Table(
        f"causal-effects-{group.name}",
        f"Direct, indirect and total effects on the thrashing point of {group.name}s",
        header,
        rows,
        "Intervals by the delta method, of the covariance that takes samples as independent, as in "
        "the first row of each path above. Published: computed from the coefficients of Fig. 6, "
        "and so in standard deviations.",
    )


def _structural(group: Group) -> list[Part]:
    """Return whether the covariances of the samples are those that models leave."""
    group.need_thrashed()
    tests: dict[str, Callable[[], estimate.Structural]] = {
        f"{group.refined.name}: as it is": partial(estimate.structural, group.fit)
    }
    if beside := [name for name in group.varied() if name not in group.refined.exogenous]:
        name = f"{group.refined.name}: {words.enumeration(beside)} act on nothing"
        tests[name] = partial(estimate.structural, group.fit, beside=beside)
    initial = model.study(f"initial, {group.name}")
    tests[f"{initial.name}: its products act on ATPT alone"] = lambda: estimate.structural(
        estimate.fit(initial, group.thrashed)
    )
    return [_fits(group, [_judged(group, name, test) for name, test in tests.items()])]


def _judged(group: Group, name: str, test: Callable[[], estimate.Structural]) -> tuple[str, ...]:
    """Return the row of a model: its indices and what they say, or why there are none."""
    n, none = len(group.thrashed), ("–",) * 5
    try:
        found = test()
    except AnalysisError as error:
        return (name, *none, f"not tested: {error.problem}")
    if found.df == 0:
        return (name, "0 (0)", *none[1:], "leaves no path out, so nothing can be tested")
    parameters = found.likelihood.parameters
    needed = FEWEST_PER_COEFFICIENT * parameters
    if n < needed:
        why = f"not tested: {parameters} parameters need {needed} samples, and here are {n}"
        return (name, *none, why)
    return (
        name,
        f"{words.number(found.chi2)} ({found.df})",
        words.p_value(found.p),
        words.number(found.indices.cfi),
        estimated(found.indices.rmsea, found.indices.rmsea_low, found.indices.rmsea_high),
        words.number(found.indices.srmr),
        _says(found),
    )


def _says(found: estimate.Structural) -> str:
    """Return what chi² says of a model, and whether what it misses is large."""
    if found.p >= ALPHA:
        return "samples do not contradict it, which is no proof of it"
    of = found.indices
    usual = of.cfi > GOOD_CFI and of.rmsea < GOOD_RMSEA and of.srmr < GOOD_SRMR
    much = "by the indices a little" if usual else "and by the indices it is not small"
    return f"independent samples would contradict it: something it leaves out is there, {much}"


def _fits(group: Group, rows: Sequence[tuple[str, ...]]) -> Table:
    header = ("model", "χ² (df)", "p", "CFI", "RMSEA (90 % interval)", "SRMR", "what it says")
    return Table(
        f"causal-structural-{group.name}",
        f"Whether models of {group.name}s rightly leave paths out: n = {len(group.thrashed):,} "
        "samples that thrashed",
        header,
        rows,
        "The covariances that a model implies against those of the samples (maximum likelihood, as "
        f"lavaan). Usual for a good fit: CFI above {GOOD_CFI}, RMSEA below {GOOD_RMSEA}, SRMR "
        f"below {GOOD_SRMR} (Hu and Bentler 1999). p takes samples as independent, which those of "
        "one DBMS are not, and errors as normal: it is too small where they are not.",
    )


def _refinement(group: Group, seed: int) -> Sequence[Part]:
    initial = model.study(f"initial, {group.name}")
    group.need_model(initial)
    exploratory, confirmatory = estimate.split(group.thrashed, seed=seed)
    coefficients = 1 + max(len(initial.terms(name)) for name in initial.endogenous)
    n = min(len(exploratory.samples), len(confirmatory.samples))
    needed = FEWEST_PER_COEFFICIENT * coefficients
    if n < needed:
        raise SampleError(
            f"half of the runs has {n} samples that thrashed, and {needed} are needed, "
            f"{FEWEST_PER_COEFFICIENT} for each coefficient of an equation",
            "measure more runs",
        )
    found = estimate.refine(initial, exploratory)
    confirmed = estimate.confirm(found.model, confirmatory)
    caption = (
        f"The study's initial model of {group.name}s, refined on half of our runs "
        f"(n = {len(exploratory.samples):,}): paths that are not significant are dropped, dashed."
    )
    kept = ", ".join(f"R²({name}) {words.number(r2)}" for name, r2 in confirmed.r_squared.items())
    return [
        _diagram(f"causal-refined-{group.name}", found.diagram(), caption),
        _kept(group, found, confirmed),
        _lost(group, found),
        Paragraph(
            f"On the other half of the runs (n = {confirmed.n:,}), which took no part in the "
            f"choice, the refined model of {group.name}s has {kept}, fit "
            f"{words.number(confirmed.overall_fit)}."
        ),
    ]


def _kept(group: Group, found: estimate.Refinement, confirmed: estimate.PathFit) -> Table:
    tested = {(row["from"], row["to"], row["by"]): row for row in records(confirmed.paths())}
    rows = []
    for row in records(found.initial.paths()):
        edge = (row["from"], row["to"], row["by"])
        by = f", moderated by {row['by']}" if row["by"] else ""
        first = (words.number(row["standardised"]), words.p_value(row["p"]))
        second: tuple[str, ...] = ("dropped", "", "")
        if edge in tested:
            one = tested[edge]
            second = ("kept", words.number(one["standardised"]), words.p_value(one["p"]))
        rows.append((f"{edge[0]} → {edge[1]}{by}", *first, *second))
    return Table(
        f"causal-refinement-{group.name}",
        f"Refinement of the initial model of {group.name}s",
        ("path", "exploratory", "p", "", "confirmatory", "p"),
        rows,
        "Standardised coefficients; those of the confirmatory half are of the refined model.",
    )


def _lost(group: Group, found: estimate.Refinement) -> Table:
    """Return what the dropped paths take from each equation and from the model."""
    rows = [
        (
            str(row["outcome"]),
            *(words.number(row[f"r2_{which}"]) for which in ("initial", "refined", "lost")),
            _statistic(row["F"], row["df1"], row["df2"]),
            words.p_value(row["p_F"]),
            _statistic(row["LR"], row["df1"]),
            words.p_value(row["p_LR"]),
            *(words.number(row[f"aic_{which}"]) for which in ("initial", "refined")),
        )
        for row in records(found.comparison())
    ]
    header = ("equation", "R², initial", "refined", "lost", "F (df)", "p", "LR (df)", "p",
              "AIC, initial", "refined")  # fmt: skip
    return Table(
        f"causal-lost-{group.name}",
        f"What the refinement of the initial model of {group.name}s lost",
        header,
        rows,
        "On the exploratory half, which chose what to drop, samples taken as independent: a p "
        "above 0.05 is no proof that nothing was lost. R² of the model is its fit (Section 9.3.4). "
        "LR is the likelihood ratio; the smaller AIC is the better.",
    )


def _statistic(value: float, *degrees: float) -> str:
    """Return a statistic with its degrees of freedom; – where nothing was dropped."""
    if math.isnan(value) or degrees[0] == 0:
        return "–"
    return f"{words.number(value)} ({', '.join(words.number(each) for each in degrees)})"
