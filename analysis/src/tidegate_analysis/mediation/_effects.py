"""Effects from parameters: the mediation formula.

Y(t, m) is the outcome under treatment t with the mediator at m, M(t) the mediator under t. With
control 0 and treated 1 the effects are means over samples of

    ACME(t) = Y(t, M(1)) − Y(t, M(0))        ADE(t) = Y(1, M(t)) − Y(0, M(t))
    total   = Y(1, M(1)) − Y(0, M(0)) = ACME(1) + ADE(0) = ACME(0) + ADE(1)

A linear model's mediator is its mean and an error. Both M(0) and M(1) of a sample have the *same*
error, as it is one sample in two worlds; drawn twice, the difference of two errors, which is
nothing but noise, would be added to every effect (Imai, Keele, Tingley 2010, algorithm 1: the draw
belongs to the sample). A yes/no mediator needs no draw: Y is averaged over both values.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from tidegate_analysis.assumptions.inputs import Array
from tidegate_analysis.mediation._fit import CELLS, Fits, logistic
from tidegate_analysis.mediation._mechanism import Design

#: Nodes of the quadrature over the mediator's error.
NODES = 21


def effects(rows: Design, mediator: Fits, outcome: Fits, seed: int | None) -> Array:
    """Return ACME(0), ACME(1), ADE(0), ADE(1) for each row of parameters.

    Parameters
    ----------
    rows
        Over which effects are averaged.
    mediator, outcome
        Parameters of the two models, row for row.
    seed
        Of the draw of the mediator's error for each sample and row of parameters; or None to
        integrate over the error exactly (its mean when the outcome is linear, else
        Gauss–Hermite quadrature).

    """
    step = max(1, CELLS // (4 * rows.samples))
    rng = None if seed is None else np.random.default_rng([seed, 1])
    found = [
        _part(rows, mediator.of(slice(i, i + step)), outcome.coefficients[i : i + step], rng)
        for i in range(0, len(outcome.coefficients), step)
    ]
    return np.concatenate(found)


def _part(rows: Design, mediator: Fits, beta: Array, rng: np.random.Generator | None) -> Array:
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
    rows: Design, predictors: Sequence[Array], sigma: Array, rng: np.random.Generator | None
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


def _outcome(rows: Design, beta: Array, level: float, mediator: Array | float) -> Array:
    """Mean outcome of each row for each row of parameters, at a treatment and a mediator."""
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
