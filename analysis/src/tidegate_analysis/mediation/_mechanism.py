"""What is asked of the data: which variable acts on which, through which, moderated by which.

Two models are behind it, with T the treatment, M the mediator, Y the outcome, X covariates and W
moderators:

    M = α₀ + α_X X + α_W W + T (γ₀ + γ_W W)                               + error
    Y = β₀ + β_X X + β_W W + T (β_T + β_TW W) + M (β_M + β_MW W) + β_TM T M + error

A moderator of the treatment's effects has the products T W in both models, one of the mediator's
effect has M W in the model of Y; `interaction` adds T M. Either model may be logistic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

import numpy as np
import pandas as pd

from tidegate_analysis import _clusters
from tidegate_analysis._columns import (
    Array,
    Codes,
    codes,
    indicators,
    numbers,
    refuse_unusable,
)
from tidegate_analysis._weighted import Kind
from tidegate_analysis.errors import ModelError, SampleError

Moderates: TypeAlias = Literal["treatment", "mediator", "both"]


@dataclass(frozen=True)
class Mechanism:
    """A treatment that acts on an outcome, directly and through a mediator.

    - control, treated: The two values of the treatment that are contrasted, such as 1 and 8
      processors. Effects are those of going from the first to the second.
    - covariates: Columns that both models hold constant. Text becomes 0/1 columns: ``dbms`` gives
      each DBMS a level of its own.
    - moderators: Columns on which effects depend, and whose: the ``treatment`` (on mediator and
      outcome), the ``mediator`` (on the outcome), or ``both``. They are covariates too.
    - interaction: Whether the mediator's effect depends on the treatment.
    - mediator_model, outcome_model: ``linear``, or ``logit`` for a column of 0 and 1.

    >>> Mechanism("numProcs", "ATPT", "TP", control=1, treated=8, moderators={"PK": "both"}).treated
    8
    """

    treatment: str
    mediator: str
    outcome: str
    control: float = 0.0
    treated: float = 1.0
    covariates: Sequence[str] = ()
    moderators: Mapping[str, Moderates] = field(default_factory=dict)
    interaction: bool = False
    mediator_model: Kind = "linear"
    outcome_model: Kind = "linear"

    def __post_init__(self) -> None:
        """Refuse what means nothing whatever the data are."""
        if isinstance(self.covariates, str):
            raise ModelError(
                f"covariates is the text `{self.covariates}`", "give a list of columns"
            )
        roles = [self.treatment, self.mediator, self.outcome, *self.covariates, *self.moderators]
        for name in roles:
            if roles.count(name) > 1:
                raise ModelError(f"`{name}` has two roles", "give each column one role")
        if not np.isfinite([self.control, self.treated]).all() or self.control == self.treated:
            raise ModelError(
                f"the contrast is between {self.control} and {self.treated}",
                f"give two values of `{self.treatment}` that differ, such as 1 and 8",
            )
        for name, whose in self.moderators.items():
            if whose not in get_args(Moderates):
                raise ModelError(
                    f"moderator `{name}` has `{whose}`", "say treatment, mediator or both"
                )
        for kind in (self.mediator_model, self.outcome_model):
            if kind not in get_args(Kind):
                raise ModelError(f"model `{kind}`", "say linear or logit")

    @property
    def one_effect(self) -> bool:
        """Whether effects are the same under control and under treatment."""
        return not self.interaction and self.outcome_model == "linear"

    @property
    def linear(self) -> bool:
        """Whether both models are."""
        return self.mediator_model == self.outcome_model == "linear"

    def moderating(self, whose: str) -> list[str]:
        """Return the moderators of the treatment's or of the mediator's effects."""
        return [name for name, of in self.moderators.items() if of in (whose, "both")]


@dataclass(frozen=True)
class MediationDesign:
    """The columns of both models. Each field has a row for each sample.

    - background: Ones, covariates, moderators.
    - by_treatment, by_mediator: Ones and the moderators with which the treatment, the mediator is
      multiplied.
    - where: Column of `background` of each numeric variable.
    - clusters, clustered_by: The cluster of each sample, and the column that says so.
    - averaged: Number of samples that a row stands for the mean of.
    """

    mechanism: Mechanism
    treatment: Array
    mediator: Array
    outcome: Array
    background: Array
    by_treatment: Array
    by_mediator: Array
    names: tuple[str, ...]
    where: Mapping[str, int]
    clusters: Codes | None
    clustered_by: str = ""
    averaged: int = 1

    @property
    def samples(self) -> int:
        return len(self.background)

    def of_mediator(self) -> Array:
        return np.hstack([self.background, self.treatment[:, None] * self.by_treatment])

    def of_outcome(self) -> Array:
        blocks = [self.of_mediator(), self.mediator[:, None] * self.by_mediator]
        if self.mechanism.interaction:
            blocks.append((self.treatment * self.mediator)[:, None])
        return np.hstack(blocks)

    def at(self, values: Mapping[str, float]) -> "MediationDesign":
        """Return the rows over which effects are averaged, with variables held at values.

        When both models are linear and no moderator varies, effects are linear in each row: their
        mean is the effect in the mean row, and that one row is returned.

        Raises `ModelError`: a variable is neither a covariate nor a moderator, or a value is not
        finite.
        """
        background = self.background.copy()
        for name, value in values.items():
            if name not in self.where:
                there = ", ".join(self.where) or "none"
                raise ModelError(
                    f"`{name}` cannot be held at {value}",
                    f"numeric covariates, moderators: {there}",
                )
            if not np.isfinite(value):
                raise ModelError(f"`{name}` is held at {value}", "give a finite number")
            background[:, self.where[name]] = value
        by_treatment, by_mediator = _products(self.mechanism, background, self.where)
        held = replace(
            self, background=background, by_treatment=by_treatment, by_mediator=by_mediator
        )
        if self.mechanism.linear and set(self.mechanism.moderators) <= set(values):
            return replace(
                held,
                background=background.mean(axis=0, keepdims=True),
                by_treatment=held.by_treatment[:1],
                by_mediator=held.by_mediator[:1],
                averaged=self.samples,
            )
        return held


def design(samples: pd.DataFrame, mechanism: Mechanism, clusters: str | None) -> MediationDesign:
    """Return the columns of both models.

    Raises `ShapeError`: a column is unknown or is text where numbers are needed. Raises
    `SampleError`: a value is missing or infinite; treatment, mediator or outcome is constant;
    columns are collinear; samples are too few; a logit model's column is not 0 and 1.
    """
    main = {
        name: numbers(samples, name)
        for name in (mechanism.treatment, mechanism.mediator, mechanism.outcome)
    }
    names = ["intercept"]
    blocks: list[Array] = [np.ones((len(samples), 1))]
    where: dict[str, int] = {}
    for name in mechanism.covariates:
        new, block = indicators(samples, name)
        if new == [name]:
            where[name] = len(names)
        names += new
        blocks.append(block)
    for name in mechanism.moderators:
        where[name] = len(names)
        names.append(name)
        blocks.append(numbers(samples, name)[:, None])
    background = np.hstack(blocks)
    labels = None if clusters is None else _labels(samples, clusters)
    by_treatment, by_mediator = _products(mechanism, background, where)
    treatment, mediator, outcome = main.values()
    made = MediationDesign(
        mechanism=mechanism,
        treatment=treatment,
        mediator=mediator,
        outcome=outcome,
        background=background,
        names=tuple(names),
        where=where,
        clusters=labels,
        clustered_by=clusters or "",
        by_treatment=by_treatment,
        by_mediator=by_mediator,
    )
    _refuse(made)
    return made


def _products(
    mechanism: Mechanism, background: Array, where: Mapping[str, int]
) -> tuple[Array, Array]:
    """Return what the treatment and what the mediator is multiplied with."""
    chosen = [
        [0, *(where[name] for name in mechanism.moderating(whose))]
        for whose in ("treatment", "mediator")
    ]
    return background[:, chosen[0]], background[:, chosen[1]]


def degrees(made: MediationDesign) -> tuple[float | None, float | None]:
    """Return the degrees of freedom of the mediator's and the outcome's model; None: infinite.

    The fewest of the coefficients of the treatment, the mediator and their products; what clusters
    say of covariates does not matter.

    Raises `SampleError`: clusters leave such a coefficient none.
    """
    if made.clusters is None:
        return None, None
    names, before = _effect_names(made.mechanism), made.background.shape[1]
    fewest = []
    for matrix in (made.of_mediator(), made.of_outcome()):
        free = _clusters.degrees(matrix, made.clusters)[before:]
        _clusters.refuse_saturated(
            free, names[: len(free)], made.clustered_by, _clusters.count(made.clusters)
        )
        fewest.append(float(free.min()))
    return fewest[0], fewest[1]


def _effect_names(mechanism: Mechanism) -> list[str]:
    """Return what the columns after the background of the outcome's model are called."""
    treatment, mediator = mechanism.treatment, mechanism.mediator
    names = [treatment, *(f"{treatment}·{each}" for each in mechanism.moderating("treatment"))]
    names += [mediator, *(f"{mediator}·{each}" for each in mechanism.moderating("mediator"))]
    return [*names, f"{treatment}·{mediator}"] if mechanism.interaction else names


def _labels(samples: pd.DataFrame, name: str) -> Codes:
    labels, groups = codes(samples, name, sort=True)
    if len(groups) < 3:
        raise SampleError(
            f"`{name}` has {len(groups)} clusters", "give 3 at least, or do without clusters"
        )
    return labels


def _refuse(made: MediationDesign) -> None:
    """Refuse columns from which the two models cannot be estimated."""
    mechanism = made.mechanism
    for name, values, kind in (
        (mechanism.treatment, made.treatment, "linear"),
        (mechanism.mediator, made.mediator, mechanism.mediator_model),
        (mechanism.outcome, made.outcome, mechanism.outcome_model),
    ):
        refuse_unusable(values[:, None], [name], "mediation")
        if kind == "logit" and not np.isin(values, (0.0, 1.0)).all():
            raise SampleError(
                f"`{name}` has a logit model, but values other than 0 and 1",
                "use a linear model, or make it a yes/no column",
            )
    names = [*made.names[1:], *_effect_names(mechanism)]
    first = made.of_mediator()[:, 1:]
    refuse_unusable(first, names[: first.shape[1]], f"model of `{mechanism.mediator}`")
    refuse_unusable(made.of_outcome()[:, 1:], names, f"model of `{mechanism.outcome}`")
