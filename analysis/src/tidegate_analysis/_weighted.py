"""Fits of one model to many weightings of the same samples at once.

A bootstrap resample is a vector of counts, a jackknife sample one of ones with a zero, and the
samples themselves are all ones: so each is a row of weights, and one routine fits them all. It
works in an orthonormal basis of the design matrix, X = Q R: there the weighted normal equations
Qᵀ W Q are close to the unit matrix, and forming them loses no digits. statsmodels fits one
weighting at a time: minutes for thousands of them, so this is ours.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from tidegate_analysis._clusters import jackknife, sums
from tidegate_analysis._columns import Array, Codes, Flags
from tidegate_analysis.errors import SampleError

Kind: TypeAlias = Literal["linear", "logit"]

#: Cells of a matrix that is held at once.
CELLS = 4_000_000
#: A weighting's normal equations count as singular below it.
SINGULAR = 1e-8
#: An outcome is determined by the others when they leave this share of its variance, or less.
EXACT = 1e-20


@dataclass(frozen=True)
class WeightedFits:
    """Fits of a model, one to each row of weights.

    - coefficients: A row for each weighting; NaN where it has no fit.
    - sigma: Residual standard error of each; 0 for a logit model.
    """

    coefficients: Array
    sigma: Array

    def of(self, chosen: slice | Flags) -> "WeightedFits":
        """Return some of the fits."""
        return WeightedFits(self.coefficients[chosen], self.sigma[chosen])


class WeightedModel:
    """A linear or logit regression of y on X, ready to be fitted to weightings of its samples.

    Raises `SampleError`: a logit model whose two outcomes are separated by the variables, or a
    linear one without any error.
    """

    def __init__(self, X: Array, y: Array, kind: Kind, name: str) -> None:
        self.kind = kind
        self.y = y
        self.basis, self.triangle = np.linalg.qr(X)
        self.parameters = X.shape[1]
        width = self.parameters
        self.squares = (self.basis[:, :, None] * self.basis[:, None, :]).reshape(-1, width**2)
        self.start = np.zeros(width)
        if kind == "linear":
            self.start = self.basis.T @ y
        else:
            found = self._logit(np.ones((1, len(y))))[0]
            if np.isnan(found).any():
                raise SampleError(
                    f"the variables separate the two values of `{name}` (or nearly so)",
                    "leave out the variable that decides it, or collect more samples",
                )
            self.start = found
        self.residuals = y - self._mean(self.start)
        if self.residuals @ self.residuals <= EXACT * np.square(y - y.mean()).sum():
            raise SampleError(
                f"`{name}` follows exactly from the other variables",
                "leave out what it was computed from: there is no error to estimate with",
            )

    def _mean(self, projected: Array) -> Array:
        predictor = projected @ self.basis.T
        return predictor if self.kind == "linear" else logistic(predictor)

    def fit(self, weights: Array) -> WeightedFits:
        """Fit the model to each row of weights."""
        step = max(1, CELLS // len(self.y))
        parts = [self._fit(weights[i : i + step]) for i in range(0, len(weights), step)]
        return WeightedFits(
            np.concatenate([part.coefficients for part in parts]),
            np.concatenate([part.sigma for part in parts]),
        )

    def _fit(self, weights: Array) -> WeightedFits:
        if self.kind == "logit":
            return WeightedFits(self.original(self._logit(weights)), np.zeros(len(weights)))
        # Around the fit to all samples: small numbers, and the sum of squares without cancellation.
        slope = (weights * self.residuals) @ self.basis
        change = solve(self._normal(weights), slope)
        left = weights @ self.residuals**2 - (change * slope).sum(axis=1)
        freedom = np.maximum(weights.sum(axis=1) - self.parameters, 1)
        sigma = np.sqrt(np.maximum(left, 0) / freedom)
        return WeightedFits(self.original(self.start + change), sigma)

    def _normal(self, weights: Array) -> Array:
        found: Array = weights @ self.squares
        return found.reshape(-1, self.parameters, self.parameters)

    def _logit(self, weights: Array) -> Array:
        """Newton's method, for all weightings at once; NaN where it does not converge."""
        found = np.tile(self.start, (len(weights), 1))
        change = np.full(len(found), np.inf)
        for _ in range(30):
            chance = logistic(found @ self.basis.T)
            slope = (weights * (self.y - chance)) @ self.basis
            step = solve(self._normal(weights * chance * (1 - chance)), slope)
            found = found + step
            change = np.abs(step).max(axis=1) / (1 + np.abs(found).max(axis=1))
            if not (change > 1e-10).any():
                break
        found[~(change <= 1e-6)] = np.nan
        return found

    def original(self, projected: Array) -> Array:
        """Return the coefficients of the columns of X from those of the basis."""
        found: Array = np.linalg.solve(self.triangle, projected.T).T
        return found

    def _without(self, weights: Array, clusters: Codes) -> Array:
        """Return the coefficients of the basis without each cluster, by one Newton step.

        Of a linear model they are exact. A column that is constant without a cluster, as the
        indicator of a DBMS without its only run, does not move the coefficients of others.
        """
        scores = sums(self.basis * self.residuals[:, None], clusters)
        inside = np.arange(len(scores))[:, None] == clusters
        rest = self._normal(np.where(inside, 0.0, weights))
        steps = np.linalg.pinv(rest, rcond=SINGULAR, hermitian=True) @ scores[:, :, None]
        return np.asarray(self.start - steps[:, :, 0])

    def covariance_root(self, clusters: Codes | None) -> Array:
        """Return L with L Lᵀ the covariance of the coefficients of X.

        The textbook's covariance; or with clusters the jackknife's, CV3 of `_clusters`.
        """
        if self.kind == "linear":
            weights = np.ones(len(self.y))
            spread = self.residuals @ self.residuals / (len(self.y) - self.parameters)
        else:
            chance = self._mean(self.start)
            weights, spread = chance * (1 - chance), 1.0
        if clusters is None:
            covariance = np.linalg.inv(self._normal(weights[None, :])[0]) * spread
        else:
            covariance = jackknife(self._without(weights, clusters), self.start)
        values, vectors = np.linalg.eigh(covariance)
        return np.linalg.solve(self.triangle, vectors * np.sqrt(np.maximum(values, 0)))


def logistic(predictor: Array) -> Array:
    """Return 1 / (1 + exp(−x)) without overflow."""
    return 0.5 * (1 + np.tanh(predictor / 2))


def solve(matrices: Array, right: Array) -> Array:
    """Solve many small symmetric systems; NaN where one is singular."""
    usable = np.asarray(
        np.isfinite(matrices).all(axis=(1, 2)) & np.isfinite(right).all(axis=1), dtype=np.bool_
    )
    matrices = np.where(usable[:, None, None], matrices, np.eye(matrices.shape[1]))
    usable &= np.linalg.eigvalsh(matrices)[:, 0] > SINGULAR
    matrices = np.where(usable[:, None, None], matrices, np.eye(matrices.shape[1]))
    found = np.asarray(np.linalg.solve(matrices, right[:, :, None])[:, :, 0], dtype=np.float64)
    found[~usable] = np.nan
    return found
