"""Estimates and intervals of mediation: draws of parameters, effects of each, quantiles.

`statsmodels.stats.mediation` has no clusters, no difference between values of a moderator and no
BCa, contrasts 0 with 1 only, and draws the mediator's error under both exposures apart, which costs
power. So this is ours; the tests compare the two.

Effects from parameters: the mediation formula
----------------------------------------------
Y(t, m) is the outcome under treatment t with the mediator at m, M(t) the mediator under t. With
control 0 and treated 1 the effects are means over samples of

    ACME(t) = Y(t, M(1)) − Y(t, M(0))        ADE(t) = Y(1, M(t)) − Y(0, M(t))
    total   = Y(1, M(1)) − Y(0, M(0)) = ACME(1) + ADE(0) = ACME(0) + ADE(1)

A linear model's mediator is its mean and an error. Both M(0) and M(1) of a sample have the *same*
error, as it is one sample in two worlds; drawn twice, the difference of two errors, which is
nothing but noise, would be added to every effect (Imai, Keele, Tingley 2010, algorithm 1: the draw
belongs to the sample). A yes/no mediator needs no draw: Y is averaged over both values.

Draws and intervals
-------------------
Quasi-Bayesian (King, Tomz, Wittenberg 2000; Imai, Keele, Tingley 2010, algorithm 1): parameters of
both models are drawn from the normal distribution that large samples give them, and the mediator's
error is drawn once for each sample. Fast; right when the estimates are about normal. The estimate
is the mean of the draws, of the proportion their median, as in mediate().

With clusters a covariance is the jackknife's over clusters, and knows as much as there are of them,
so parameters are drawn from Student's t: for each model with the fewest degrees of freedom that a
coefficient of the treatment or the mediator has, see `_clusters`. Its draws reach so far where
these are few that their mean is noise: the estimate is then that of the parameters as they are
estimated.

Bootstrap (algorithm 2): samples, or whole clusters, are drawn with replacement and both models
fitted again. The estimate is that of the samples themselves. Intervals are percentiles, or BCa
(Efron 1987), which corrects for the bias of the median and for skewness; its acceleration is
computed from the samples left out one at a time.

Where this leaves R's mediate()
-------------------------------
* A yes/no mediator is averaged over both values; mediate() draws it twice, independently.
* The bootstrap integrates over the mediator's error; mediate() draws it, which adds noise to ADE
  where there is an interaction.
* BCa: mediate() takes the acceleration from the resamples, and centres at their mean. Both differ
  from Efron's definition, which is used here.
* With clusters mediate() takes the sandwich and draws normals, as if there were many: with 13 runs
  of 5 DBMSs, whose processors and keys are a run's, 95 % intervals of a total effect covered as
  little as 70 %.
* `moderation` subtracts effects computed from the same draws; test.modmed() means to, but restores
  the random seed into a local variable, so its two simulations are independent and its interval is
  too wide where both values share a parameter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypedDict, Unpack, get_args

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis import _clusters
from tidegate_analysis._columns import Array, refuse_level
from tidegate_analysis._weighted import CELLS, WeightedFits, WeightedModel, logistic
from tidegate_analysis.errors import AnalysisError, SampleError
from tidegate_analysis.mediation._mechanism import (
    Mechanism,
    MediationDesign,
    degrees,
    design,
)

#: Nodes of the quadrature over the mediator's error.
NODES = 21


def effects(
    rows: MediationDesign, mediator: WeightedFits, outcome: WeightedFits, seed: int | None
) -> Array:
    """Return ACME(0), ACME(1), ADE(0), ADE(1) for each row of parameters.

    - rows: Over which effects are averaged.
    - mediator, outcome: Parameters of the two models, row for row.
    - seed: Of the draw of the mediator's error for each sample and row of parameters; or None to
      integrate over the error exactly (its mean when the outcome is linear, else Gauss–Hermite
      quadrature).
    """
    step = max(1, CELLS // (4 * rows.samples))
    rng = None if seed is None else np.random.default_rng([seed, 1])
    found = [
        _part(rows, mediator.of(slice(i, i + step)), outcome.coefficients[i : i + step], rng)
        for i in range(0, len(outcome.coefficients), step)
    ]
    return np.concatenate(found)


def _part(
    rows: MediationDesign, mediator: WeightedFits, beta: Array, rng: np.random.Generator | None
) -> Array:
    width = rows.background.shape[1]
    base = rows.background @ mediator.coefficients[:, :width].T
    slope = rows.by_treatment @ mediator.coefficients[:, width:].T
    levels = (rows.mechanism.control, rows.mechanism.treated)
    predictors = [base + level * slope for level in levels]
    mean = np.zeros((2, 2, len(beta)))
    for worlds in _mediators(rows, predictors, mediator.sigma, rng):
        for t, level in enumerate(levels):
            for m, (weight, values) in enumerate(worlds):
                mean[t, m] += (weight * _outcome(rows, beta, level, values)).mean(axis=0)
    return np.stack(
        [
            mean[0, 1] - mean[0, 0],
            mean[1, 1] - mean[1, 0],
            mean[1, 0] - mean[0, 0],
            mean[1, 1] - mean[0, 1],
        ],
        axis=1,
    )


#: A weight, and values of the mediator, of each sample for each row of parameters.
World: TypeAlias = tuple[Array | float, Array | float]


def _mediators(
    rows: MediationDesign,
    predictors: Sequence[Array],
    sigma: Array,
    rng: np.random.Generator | None,
) -> Iterator[list[World]]:
    """Yield the mediator under control and under treatment; several times, if it is averaged."""
    if rows.mechanism.mediator_model == "logit":
        chances = [logistic(predictor) for predictor in predictors]
        yield [(1 - chance, 0.0) for chance in chances]
        yield [(chance, 1.0) for chance in chances]
    elif rng is not None:
        scale = sigma / np.sqrt(rows.averaged)
        error = scale * rng.standard_normal(predictors[0].shape)
        yield [(1.0, predictor + error) for predictor in predictors]
    elif rows.mechanism.outcome_model == "linear":
        yield [(1.0, predictor) for predictor in predictors]
    else:
        nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            yield [(float(weight), predictor + node * sigma) for predictor in predictors]


def _outcome(rows: MediationDesign, beta: Array, level: float, mediator: Array | float) -> Array:
    """Return the mean outcome of each row and parameters, at a treatment and a mediator."""
    ends = np.cumsum([each.shape[1] for each in (rows.background, rows.by_treatment)])
    end = ends[1] + rows.by_mediator.shape[1]
    slope = rows.by_mediator @ beta[:, ends[1] : end].T
    if rows.mechanism.interaction:
        slope = slope + level * beta[:, end]
    predictor: Array = (
        rows.background @ beta[:, : ends[0]].T
        + level * (rows.by_treatment @ beta[:, ends[0] : ends[1]].T)
        + mediator * slope
    )
    return predictor if rows.mechanism.outcome_model == "linear" else logistic(predictor)


Method: TypeAlias = Literal["quasi-bayesian", "bootstrap"]
Interval: TypeAlias = Literal["percentile", "bca"]

#: The effects, in the order of rows: names and the exposure they are meant under.
EFFECTS = (
    ("ACME", "control"),
    ("ACME", "treated"),
    ("ACME", "average"),
    ("ADE", "control"),
    ("ADE", "treated"),
    ("ADE", "average"),
    ("total", ""),
    ("proportion", "control"),
    ("proportion", "treated"),
    ("proportion", "average"),
)
#: More resamples than this share without a fit are not left out silently.
UNUSABLE = 0.05


class MediationKeywords(TypedDict, total=False):
    """The fields of `MediationOptions` as keywords; what is not given has its default."""

    method: Method
    interval: Interval
    clusters: str | None
    draws: int
    level: float
    seed: int


@dataclass(frozen=True)
class MediationOptions:
    """How intervals are made.

    - method: ``quasi-bayesian`` or ``bootstrap``.
    - interval: ``percentile``, or with the bootstrap ``bca``.
    - clusters: A column, such as ``dbms``, whose values' samples are not independent of each other:
      covariance by jackknife and draws of Student's t, or resampling of clusters. Refused where
      they leave an effect no degree of freedom.
    - draws: Number of draws or resamples; at least 1,000 for intervals to be reported.
    """

    method: Method = "quasi-bayesian"
    interval: Interval = "percentile"
    clusters: str | None = None
    draws: int = 1000
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise AnalysisError(f"method `{self.method}`", "say quasi-bayesian or bootstrap")
        if self.interval not in get_args(Interval):
            raise AnalysisError(f"interval `{self.interval}`", "say percentile or bca")
        if self.interval == "bca" and self.method != "bootstrap":
            raise AnalysisError("BCa corrects a bootstrap", 'add method="bootstrap"')
        if self.draws < 100:
            raise AnalysisError(f"{self.draws} draws", "ask for 100 at least, 1000 for a report")
        refuse_level(self.level)
        if self.seed < 0:
            raise AnalysisError(f"seed {self.seed}", "give a whole number from 0")


@dataclass(frozen=True)
class Effect:
    """An estimate with its interval.

    - estimate, low, high: In units of the outcome; of the proportion, none.
    - p: Twice the smaller share of draws on one side of 0, as mediate() has it. A multiple of
      2/draws: 0 means below that.
    """

    estimate: float
    low: float
    high: float
    p: float


class _ThroughAndAround:
    """What effects, and differences of them, have in common."""

    effects: Mapping[tuple[str, str], Effect]

    @property
    def acme(self) -> Effect:
        """Average causal mediation effect: through the mediator."""
        return self.effects["ACME", "average"]

    @property
    def ade(self) -> Effect:
        """Average direct effect: not through the mediator."""
        return self.effects["ADE", "average"]


@dataclass(frozen=True)
class Mediation(_ThroughAndAround):
    """Effects of a treatment through a mediator and around it.

    - at: Variables held at values; effects are averaged over the samples' values of others.
    - effects: By name and exposure, see `EFFECTS`.
    - draws: Of the effects, a column for each; behind the intervals.
    - samples, clusters: Number of samples, and of clusters or None.
    """

    mechanism: Mechanism
    at: Mapping[str, float]
    effects: Mapping[tuple[str, str], Effect]
    draws: pd.DataFrame = field(repr=False)
    options: MediationOptions
    samples: int
    clusters: int | None
    cautions: tuple[str, ...] = ()

    @property
    def total(self) -> Effect:
        return self.effects["total", ""]

    @property
    def proportion(self) -> Effect:
        """Share of the total effect that goes through the mediator."""
        return self.effects["proportion", "average"]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each effect: ``effect, exposure, estimate, low, high, p``.

        Where effects do not differ between control and treatment there are four rows.
        """
        return _frame(self.effects, self.mechanism.one_effect)

    def __str__(self) -> str:
        mechanism = self.mechanism
        path = f"{mechanism.treatment} → {mechanism.mediator} → {mechanism.outcome}"
        held = "".join(f", {name} = {value:g}" for name, value in self.at.items())
        contrast = f"{mechanism.control:g} against {mechanism.treated:g}"
        table = _printed(self.to_frame(), len(self.draws))
        return "\n".join([f"{path}, {contrast}{held}", table, *self.cautions])


@dataclass(frozen=True)
class Moderation(_ThroughAndAround):
    """How the effects differ between two values of moderators: first minus second.

    - first, second: Effects at the two values, from the same draws.
    - effects: Their differences: ACME and ADE.
    """

    first: Mediation
    second: Mediation
    effects: Mapping[tuple[str, str], Effect]

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each difference: ``effect, exposure, estimate, low, high, p``."""
        return _frame(self.effects, self.first.mechanism.one_effect)

    def __str__(self) -> str:
        parts = f"{dict(self.first.at)} minus {dict(self.second.at)}"
        return f"{parts}\n{_printed(self.to_frame(), len(self.first.draws))}"


def mediate(
    samples: pd.DataFrame,
    mechanism: Mechanism,
    *,
    at: Mapping[str, float] | None = None,
    **options: Unpack[MediationKeywords],
) -> Mediation:
    """Estimate how much of a treatment's effect goes through a mediator.

    - mechanism: Treatment, mediator, outcome, contrast, covariates, moderators.
    - at: Values at which moderators or covariates are held; others are averaged over.
    - **options: The fields of `MediationOptions`.

    Raises `AnalysisError`: see `Mechanism` and the messages: each says what to do.

    Effects are causal only if treatment is as good as randomised given the covariates, and the
    mediator given both (sequential ignorability). An experiment assures the first, not the second:
    see `sensitivity`.
    """
    return _ParameterDraws(samples, mechanism, MediationOptions(**options)).mediation(
        {} if at is None else at
    )


def moderation(
    samples: pd.DataFrame,
    mechanism: Mechanism,
    first: Mapping[str, float],
    second: Mapping[str, float],
    **options: Unpack[MediationKeywords],
) -> Moderation:
    """Test whether effects differ between two values of moderators (moderated mediation).

    - samples, mechanism, **options: As of `mediate`. Both effects come from the same draws, so that
      what they share cancels.
    - first, second: Values of moderators, such as ``{"PK": 1}`` and ``{"PK": 0}``.
    """
    if not first or dict(first) == dict(second):
        raise AnalysisError(
            f"moderation between {dict(first)} and {dict(second)}",
            'give two values of a moderator that differ, such as {"PK": 1} and {"PK": 0}',
        )
    run = _ParameterDraws(samples, mechanism, MediationOptions(**options))
    differences = run.summary(run.evaluate(first) - run.evaluate(second))
    kept = {name: differences[name] for name in EFFECTS if name[0] in ("ACME", "ADE")}
    return Moderation(run.mediation(first), run.mediation(second), kept)


@dataclass(frozen=True)
class _EffectValues:
    """Effects in the order of `EFFECTS`: estimates, for each draw, without each sample."""

    point: Array
    draws: Array
    left_out: Array | None

    def __sub__(self, other: "_EffectValues") -> "_EffectValues":
        left_out = None
        if self.left_out is not None and other.left_out is not None:
            left_out = _apart(self.left_out, other.left_out)
        draws = _apart(self.draws, other.draws)
        return _EffectValues(_apart(self.point, other.point), draws, left_out)


def _apart(first: Array, second: Array) -> Array:
    """Return the difference, 0 where only rounding is left of it."""
    return np.where(np.isclose(first, second, rtol=1e-11, atol=0), 0, first - second)


class _ParameterDraws:
    """One set of parameter draws, from which effects at any values of moderators are computed."""

    def __init__(
        self,
        samples: pd.DataFrame,
        mechanism: Mechanism,
        options: MediationOptions,
    ) -> None:
        self.design = design(samples, mechanism, options.clusters)
        self.degrees = degrees(self.design)
        self.options = options
        self.cautions = _cautions(self.design, options.method)
        made, asked = self.design, mechanism
        self.models = (
            WeightedModel(made.of_mediator(), made.mediator, asked.mediator_model, asked.mediator),
            WeightedModel(made.of_outcome(), made.outcome, asked.outcome_model, asked.outcome),
        )
        self.point = self._fit(np.ones((1, self.design.samples)))
        rng = np.random.default_rng(options.seed)
        if options.method == "bootstrap":
            self.drawn = self._resampled(rng, options.draws)
        else:
            self.drawn = self._asymptotic(rng, options.draws)
        self.left_out = self._jackknife() if options.interval == "bca" else None

    def _fit(self, weights: Array) -> tuple[WeightedFits, WeightedFits]:
        return self.models[0].fit(weights), self.models[1].fit(weights)

    def _asymptotic(
        self, rng: np.random.Generator, draws: int
    ) -> tuple[WeightedFits, WeightedFits]:
        """Draw the parameters of each model: normal, or with clusters Student's t."""
        drawn = []
        for model, point, free in zip(self.models, self.point, self.degrees, strict=True):
            root = model.covariance_root(self.design.clusters)
            away = rng.standard_normal((draws, len(root))) @ root.T
            if free is not None:
                away /= np.sqrt(rng.chisquare(free, (draws, 1)) / free)
            drawn.append(WeightedFits(point.coefficients + away, np.repeat(point.sigma, draws)))
        return drawn[0], drawn[1]

    def _resampled(self, rng: np.random.Generator, draws: int) -> tuple[WeightedFits, WeightedFits]:
        """Fit both models to the same resamples."""
        labels = self.design.clusters
        units = self.design.samples if labels is None else _clusters.count(labels)
        counts = rng.multinomial(units, np.full(units, 1 / units), size=draws).astype(np.float64)
        mediator, outcome = self._fit(counts if labels is None else counts[:, labels])
        both = np.hstack([mediator.coefficients, outcome.coefficients])
        usable = np.asarray(np.isfinite(both).all(axis=1), dtype=bool)
        lost = draws - int(usable.sum())
        if lost > UNUSABLE * draws:
            raise SampleError(
                f"{lost} of {draws} resamples cannot be fitted: a variable hardly varies in them",
                "collect more samples, leave that variable out, or use quasi-bayesian draws",
            )
        if lost:
            self.cautions += (f"{lost} of {draws} resamples could not be fitted and are left out.",)
        return mediator.of(usable), outcome.of(usable)

    def _jackknife(self) -> tuple[WeightedFits, WeightedFits]:
        """Fit both models without each sample, or each cluster."""
        labels = self.design.clusters
        units = np.arange(self.design.samples) if labels is None else labels
        return self._fit((units[None, :] != np.unique(units)[:, None]).astype(np.float64))

    def evaluate(self, at: Mapping[str, float]) -> _EffectValues:
        """Return the effects at values of moderators."""
        rows = self.design.at(at)
        noise = None if self.options.method == "bootstrap" else self.options.seed
        point = _all_effects(effects(rows, *self.point, seed=None))[0]
        draws = _all_effects(effects(rows, *self.drawn, seed=noise))
        if self.options.method == "quasi-bayesian":
            if self.design.clusters is None:
                point = draws.mean(axis=0)
            point[7:9] = np.median(draws[:, 7:9], axis=0)
            point[9] = point[7:9].mean()
        if self.left_out is None:
            return _EffectValues(point, draws, None)
        return _EffectValues(point, draws, _all_effects(effects(rows, *self.left_out, seed=None)))

    def summary(self, values: _EffectValues) -> dict[tuple[str, str], Effect]:
        """Return estimates, intervals and p-values."""
        tail = (1 - self.options.level) / 2
        found = {}
        for number, name in enumerate(EFFECTS):
            draws, point = values.draws[:, number], float(values.point[number])
            tails = np.array([tail, 1 - tail])
            if values.left_out is not None:
                tails = _bca(draws, point, values.left_out[:, number], tails)
            low, high = np.quantile(draws, tails)
            found[name] = Effect(point, float(low), float(high), _p_value(draws, point))
        return found

    def mediation(self, at: Mapping[str, float]) -> Mediation:
        """Return the effects at values of moderators, with what to say about them."""
        values = self.evaluate(at)
        found = self.summary(values)
        cautions = self.cautions + _outside(self.design, at)
        total = found["total", ""]
        if total.low <= 0 <= total.high:
            cautions += ("The total effect may be 0: its proportion means little.",)
        labels = self.design.clusters
        return Mediation(
            mechanism=self.design.mechanism,
            at=dict(at),
            effects=found,
            draws=pd.DataFrame(values.draws, columns=[" ".join(name).strip() for name in EFFECTS]),
            options=self.options,
            samples=self.design.samples,
            clusters=None if labels is None else _clusters.count(labels),
            cautions=cautions,
        )


def _cautions(made: MediationDesign, method: Method) -> tuple[str, ...]:
    """Return what the design alone gives reason to say."""
    if made.clusters is None:
        return ()
    groups = _clusters.count(made.clusters)
    if groups >= _clusters.FEW:
        return ()
    if method == "bootstrap":
        return (f"Resampling {groups} clusters gives intervals that are often too narrow.",)
    return (f"A jackknife over {groups} clusters is of few: take its intervals as approximate.",)


def _outside(made: MediationDesign, at: Mapping[str, float]) -> tuple[str, ...]:
    """Return a caution for each value that no sample comes near."""
    mechanism = made.mechanism
    asked = [
        (mechanism.treatment, made.treatment, mechanism.control),
        (mechanism.treatment, made.treatment, mechanism.treated),
        *((name, made.background[:, made.where[name]], value) for name, value in at.items()),
    ]
    return tuple(
        f"{name} = {value:g} lies outside the samples' {seen.min():g} to {seen.max():g}."
        for name, seen, value in asked
        if not seen.min() <= value <= seen.max()
    )


def _all_effects(four: Array) -> Array:
    """Return a column for each of `EFFECTS` from ACME and ADE under both exposures."""
    through, around = four[:, :2], four[:, 2:]
    total = four.sum(axis=1, keepdims=True) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        share = through / total
    parts = [
        each for pair in (through, around) for each in (pair, pair.mean(axis=1, keepdims=True))
    ]
    return np.hstack([*parts, total, share, share.mean(axis=1, keepdims=True)])


def _p_value(draws: Array, point: float) -> float:
    if point == 0:
        return 1.0
    return min(1.0, 2 * min(float((draws > 0).mean()), float((draws < 0).mean())))


def _bca(draws: Array, point: float, left_out: Array, tails: Array) -> Array:
    """Return the shares of draws between which a BCa interval lies (Efron 1987, Section 3)."""
    if np.ptp(draws) == 0:
        return tails
    below = float((draws < point).mean())
    left_out = left_out[np.isfinite(left_out)]
    away = left_out.mean() - left_out
    squares = float((away**2).sum())
    if not 0 < below < 1 or squares == 0:
        raise SampleError(
            "BCa needs resamples on both sides of the estimate, and samples that matter",
            'use interval="percentile", or more draws',
        )
    bias = stats.norm.ppf(below)
    acceleration = float((away**3).sum()) / (6 * squares**1.5)
    shifted = bias + stats.norm.ppf(tails)
    adjusted: Array = stats.norm.cdf(bias + shifted / (1 - acceleration * shifted))
    return adjusted


def _frame(found: Mapping[tuple[str, str], Effect], one_effect: bool) -> pd.DataFrame:
    columns = ["effect", "exposure", "estimate", "low", "high", "p"]
    rows = [
        (name, "" if one_effect else exposure, each.estimate, each.low, each.high, each.p)
        for (name, exposure), each in found.items()
        if not one_effect or exposure in ("", "average")
    ]
    return pd.DataFrame(rows, columns=columns)


def _printed(table: pd.DataFrame, draws: int) -> str:
    """Return a table as text; a p-value of 0 as what it is below."""
    chances = [f"{p:.3f}" if p > 0 else f"< {2 / draws:.2g}" for p in table["p"]]
    return table.assign(p=chances).to_string(index=False)
