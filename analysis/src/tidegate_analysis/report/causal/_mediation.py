"""How much of the effect of processors and of primary keys goes through ATPT (Section 9.3.3).

The experiment's other factors are held constant: they are causes of ATPT and of the thrashing
point, and what is measured in between would otherwise carry their effect, too. Whether what goes
through ATPT depends on ROSE or PK is the study's moderated mediation (Section 7.2.2).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tidegate_analysis import mediation
from tidegate_analysis._clusters import FEW
from tidegate_analysis.errors import SampleError
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Paragraph, Part, Section, Table
from tidegate_analysis.report.causal._group import Experiment, Group, attempt

_TREATMENTS: Final = ("numProcs", "PK")
#: What may moderate the mediation of each treatment (Section 7.2.2).
_MODERATORS: Final[Mapping[str, tuple[str, ...]]] = {"numProcs": ("ROSE", "PK"), "PK": ("ROSE",)}
#: A jackknife is taken over no fewer runs than this; with fewer than `_clusters.FEW` a caution says
#: that it is of few. Student's t has the degrees of freedom that runs leave.
FEWEST_RUNS: Final = 10
_CAUTION: Final = (
    "What goes through ATPT is causal only if nothing but the factors moves both ATPT and the "
    "thrashing point. The experiment set the factors, but not ATPT, so it cannot assure that. ρ is "
    "how strongly the errors of both would have to correlate for nothing to go through ATPT: the "
    "nearer to 0, the less it takes."
)
_ERRORS: Final = (
    "95 % intervals, quasi-Bayesian, 1,000 draws (Imai, Keele, Tingley 2010). Samples that "
    "thrashed; the other factors that vary, SF and ROSE among them, and where there are several "
    "the DBMS are held constant. Runs are clusters where "
    f"{FEWEST_RUNS} or more thrashed: errors are then by jackknife, and draws of Student's t with "
    "the degrees of freedom that runs leave (Donald, Lang 2007), with a caution where fewer than "
    f"{FEW} did; else samples of one DBMS are taken as independent of each other, which makes "
    "intervals too narrow."
)

_Row = tuple[str, ...]
#: A row, and what to keep in mind when reading it.
_Found = tuple[_Row, tuple[str, ...]]


def mechanisms(experiment: Experiment) -> Section:
    """Return what goes through ATPT, and what around it, for each group and factor."""
    through: list[_Row] = []
    moderated: list[_Row] = []
    cautions: dict[str, list[str]] = {}
    problems: list[Part] = []

    def add(rows: list[_Row], path: str, make: Callable[[], _Found]) -> list[Part]:
        row, said = make()
        rows.append((path, *row))
        for caution in said:
            cautions.setdefault(caution, []).append(path)
        return []

    for group in experiment.groups:
        for treatment in _TREATMENTS:
            path = f"{group.name}s: {treatment} → ATPT → TP"
            make = partial(_through, group, treatment)
            what = f"how much goes through ATPT ({path})"
            problems += attempt(what, partial(add, through, path, make))
            for by in _MODERATORS[treatment]:
                make = partial(_moderated, group, treatment, by)
                what = f"whether what goes through ATPT depends on {by} ({path})"
                problems += attempt(what, partial(add, moderated, path, make))
    parts: list[Part] = []
    if through:
        parts += [_table(through), Paragraph(_CAUTION)]
    if moderated:
        parts.append(_moderation_table(moderated))
    parts += [Paragraph(f"{words.enumeration(of)}: {said}") for said, of in cautions.items()]
    return Section("mediation", "What goes through ATPT", [*parts, *problems])


def mechanism(group: Group, treatment: str, by: str = "") -> mediation.Mechanism:
    """Return the mechanism of a factor, over the whole range of it, within DBMSs.

    Raises `SampleError`: too few thrashed, or the factor or the moderator is missing, or the same
    in all that did.
    """
    group.need_thrashed()
    asked = [name for name in (treatment, by) if name]
    group.need_seen(asked)
    for name in asked:
        if len(group.thrashed[name].unique()) < 2:
            raise SampleError(f"`{name}` is the same in all samples that thrashed", "vary it")
    values = group.thrashed[treatment]
    others = [name for name in group.varied() if name not in (treatment, by)]
    return mediation.Mechanism(
        treatment,
        "ATPT",
        "TP",
        control=float(values.min()),
        treated=float(values.max()),
        covariates=[*others, *([group.by_dbms] if group.by_dbms else [])],
        moderators={by: "both"} if by else {},
    )


def clusters(group: Group) -> str | None:
    """Return the column of the runs, where there are enough of them."""
    return "run" if group.thrashed["run"].nunique() >= FEWEST_RUNS else None


def _through(group: Group, treatment: str) -> _Found:
    asked = mechanism(group, treatment)
    found = mediation.mediate(group.thrashed, asked, clusters=clusters(group))
    rho = mediation.sensitivity(group.thrashed, asked).rho_treated
    row = (
        *_contrast(group, asked),
        *(_estimate_text(effect) for effect in (found.acme, found.ade, found.total)),
        _share(found),
        words.number(rho, 2),
    )
    return row, found.cautions


def _moderated(group: Group, treatment: str, by: str) -> _Found:
    asked = mechanism(group, treatment, by)
    values = group.thrashed[by]
    low, high = float(values.min()), float(values.max())
    found = mediation.moderation(
        group.thrashed, asked, {by: high}, {by: low}, clusters=clusters(group)
    )
    row = (
        *_contrast(group, asked),
        f"{by} {words.value(low)} and {words.value(high)}",
        *(_estimate_text(effect) for effect in (found.second.acme, found.first.acme, found.acme)),
        words.p_value(found.acme.p),
    )
    return row, found.first.cautions


def _contrast(group: Group, asked: mediation.Mechanism) -> _Row:
    runs = words.count(group.thrashed["run"].nunique(), "run")
    contrast = f"{words.number(asked.control)} to {words.number(asked.treated)}"
    return contrast, f"{len(group.thrashed):,} of {runs}"


def _estimate_text(effect: mediation.Effect) -> str:
    return f"{words.number(effect.estimate)} ({words.between(effect.low, effect.high)})"


def _share(found: mediation.Mediation) -> str:
    """Return the share that goes through, where there is a total that it is a share of."""
    acme, total = found.acme, found.total
    if total.low <= 0 <= total.high:
        return "no total effect shown"
    if acme.estimate * total.estimate < 0:
        return "against the total"
    return words.percent(found.proportion.estimate)


def _table(rows: list[_Row]) -> Table:
    header = ("mechanism", "from, to", "n", "through ATPT (ACME), MPL", "around it (ADE), MPL",
              "total, MPL", "share through", "ρ where ACME is 0")  # fmt: skip
    return Table(
        "causal-mediation",
        "Causal mediation: the effect on the thrashing point of changing a factor over its range",
        header,
        rows,
        _ERRORS,
    )


def _moderation_table(rows: list[_Row]) -> Table:
    header = ("mechanism", "from, to", "n", "moderator at", "ACME at the first, MPL",
              "at the second, MPL", "second less first", "p")  # fmt: skip
    return Table(
        "causal-moderation",
        "Moderated mediation: whether what goes through ATPT depends on ROSE or PK",
        header,
        rows,
        "The moderator may change the effects of the factor and of ATPT. p-values are not adjusted "
        "for there being several. The study found none that was significant (Section 7.2.2). "
        "Otherwise as the table above.",
    )
