"""How much of the effect of processors and of primary keys goes through ATPT (Section 9.3.3)."""

from functools import partial
from typing import Final

from tidegate_analysis import mediation
from tidegate_analysis.errors import SampleError
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Paragraph, Part, Section, Table
from tidegate_analysis.report.causal._group import Experiment, Group, attempt

_TREATMENTS: Final = ("numProcs", "PK")
_CAUTION: Final = (
    "What goes through ATPT is causal only if nothing unobserved moves both ATPT and the thrashing "
    "point. The experiment set processors and keys, but not ATPT, so it cannot assure that. ρ is "
    "how strongly the errors of both would have to correlate for nothing to go through ATPT: the "
    "nearer to 0, the less it takes."
)


def mechanisms(experiment: Experiment) -> Section:
    """Return what goes through ATPT, and what around it, for each group and factor."""
    parts: list[Part] = []
    rows: list[tuple[str, ...]] = []

    def add(group: Group, treatment: str, path: str) -> list[Part]:
        rows.append(_row(group, treatment, path))
        return []

    for group in experiment.groups:
        for treatment in _TREATMENTS:
            path = f"{group.name}s: {treatment} → ATPT → TP"
            what = f"how much goes through ATPT ({path})"
            parts += attempt(what, partial(add, group, treatment, path))
    if rows:
        parts = [_table(rows), Paragraph(_CAUTION), *parts]
    return Section("mediation", "What goes through ATPT", parts)


def mechanism(group: Group, treatment: str) -> mediation.Mechanism:
    """Return the mechanism of a factor, over the whole range of it, within DBMSs.

    Raises
    ------
    SampleError
        Too few thrashed, or the factor is the same in all that did.

    """
    group.need_thrashed()
    values = group.thrashed[treatment]
    if len(values.unique()) < 2:
        raise SampleError(f"`{treatment}` is the same in all samples that thrashed", "vary it")
    others = [name for name in group.varied(_TREATMENTS) if name != treatment]
    return mediation.Mechanism(
        treatment,
        "ATPT",
        "TP",
        control=float(values.min()),
        treated=float(values.max()),
        covariates=[*others, *([group.clusters] if group.clusters else [])],
    )


def _row(group: Group, treatment: str, path: str) -> tuple[str, ...]:
    asked = mechanism(group, treatment)
    found = mediation.mediate(group.thrashed, asked)
    rho = mediation.sensitivity(group.thrashed, asked).rho_treated
    return (
        path,
        f"{words.number(asked.control)} to {words.number(asked.treated)}",
        f"{found.samples:,}",
        *(_said(effect) for effect in (found.acme, found.ade, found.total)),
        _share(found),
        words.number(rho, 2),
    )


def _said(effect: mediation.Effect) -> str:
    return f"{words.number(effect.estimate)} ({words.between(effect.low, effect.high)})"


def _share(found: mediation.Mediation) -> str:
    """Return the share that goes through, where there is a total that it is a share of."""
    acme, total = found.acme, found.total
    if total.low <= 0 <= total.high:
        return "no total effect shown"
    if acme.estimate * total.estimate < 0:
        return "against the total"
    return words.percent(found.proportion.estimate)


def _table(rows: list[tuple[str, ...]]) -> Table:
    header = ("mechanism", "from, to", "n", "through ATPT (ACME), MPL", "around it (ADE), MPL",
              "total, MPL", "share through", "ρ where ACME is 0")  # fmt: skip
    return Table(
        "causal-mediation",
        "Causal mediation: the effect on the thrashing point of changing a factor over its range",
        header,
        rows,
        "95 % intervals, quasi-Bayesian, 1,000 draws (Imai, Keele, Tingley 2010). Samples that "
        "thrashed; the other factor and, where there are several, the DBMS are held constant.",
    )
