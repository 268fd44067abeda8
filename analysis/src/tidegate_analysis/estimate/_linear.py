"""Least squares, the covariances of its coefficients, and a random intercept by REML.

The three covariances of coefficients b = (X'X)⁻¹X'y with residuals e, leverages h and k columns:

===========  ==================================================  ====================
classical    e'e/(n-k) (X'X)⁻¹                                   t(n-k)
HC3          (X'X)⁻¹ [sum x x' e²/(1-h)²] (X'X)⁻¹                t(n-k)
CR1          (X'X)⁻¹ [sum over groups s s'] (X'X)⁻¹ · c          t(G-1) or fewer
===========  ==================================================  ====================

with s the sum of x e over a group and c = G/(G-1) · (n-1)/(n-k), see `_clusters`, and there
for where degrees of freedom are fewer. HC3: MacKinnon and White 1985. CR1 and its t(G-1): Cameron
and Miller 2015, Section VI. With a handful of groups CR1 is often too sure of itself; `_wild` is
for those.

A random intercept makes var(y) = σ²(I + λJ) inside each group. For a given λ, subtracting a share
of each group's mean whitens the data, so REML is a search over one number.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tidegate_analysis._clusters import meat, sums
from tidegate_analysis.errors import SampleError
from tidegate_analysis.estimate._data import Array, Codes, Design


@dataclass(frozen=True)
class Least:
    """A least squares fit: coefficients, (X'X)⁻¹, residuals and leverages."""

    coefficients: Array
    inverse: Array
    residuals: Array
    leverages: Array

    @property
    def rss(self) -> float:
        """Sum of squared residuals."""
        return float(self.residuals @ self.residuals)


def least(X: Array, y: Array) -> Least:
    """Fit by QR; X has full rank, which `_data.design` saw to."""
    Q, R = np.linalg.qr(X)
    inverse_root = np.linalg.inv(R)
    coefficients = inverse_root @ (Q.T @ y)
    inverse = inverse_root @ inverse_root.T
    return Least(coefficients, inverse, y - X @ coefficients, np.square(Q).sum(axis=1))


def influence(X: Array, fit: Least, errors: str, *, lenient: bool = False) -> Array:
    """Return what each sample adds to each coefficient, times n.

    The squares of its columns, added over samples (or over groups of them) and divided by n², are
    the variances in the table above: sums of squares for HC3, those by group for CR1. The classical
    one is no sum over samples. A sample that alone determines a coefficient adds nothing to it when
    `lenient`, else HC3 does not exist.
    """
    residuals = fit.residuals
    if errors == "hc3":
        alone = fit.leverages > 1 - 1e-9
        if alone.any() and not lenient:
            row = int(np.argmax(fit.leverages))
            raise SampleError(
                f"sample {row + 1} alone determines a coefficient, so HC3 errors do not exist",
                "drop the term that only it has, or use classical errors",
            )
        residuals = np.where(alone, 0.0, residuals / np.where(alone, 1.0, 1 - fit.leverages))
    result: Array = len(X) * (X * residuals[:, None]) @ fit.inverse
    return result


def gathered(influences: Array, groups: Codes | None, columns: int) -> Array:
    """Return the covariance that influences give; by group when there are groups."""
    n = len(influences)
    if groups is None:
        return influences.T @ influences / n**2
    return meat(influences, groups, columns) / n**2


@dataclass(frozen=True)
class RandomIntercept:
    """A fit with a random intercept for each group."""

    coefficients: Array
    covariance: Array
    residual_variance: float
    group_variance: float
    log_likelihood: float


def random_intercept(data: Design) -> RandomIntercept:
    """Fit by REML; the log-likelihood is that of maximum likelihood, so fits compare."""
    X, y, groups = data.full, data.y, data.groups
    ratio = _best_ratio(X, y, groups, reml=True)
    fit, _ = _whitened(X, y, groups, ratio)
    variance = fit.rss / (len(y) - X.shape[1])
    ratio_ml = _best_ratio(X, y, groups, reml=False)
    return RandomIntercept(
        fit.coefficients,
        variance * fit.inverse,
        variance,
        ratio * variance,
        -0.5 * _deviance(X, y, groups, ratio_ml, reml=False),
    )


def _whitened(X: Array, y: Array, groups: Codes, ratio: float) -> tuple[Least, Array]:
    sizes = np.bincount(groups).astype(float)
    share = 1 - 1 / np.sqrt(1 + sizes * ratio)
    both = np.column_stack([X, y])
    means = sums(both, groups) / sizes[:, None]
    both = both - (share[:, None] * means)[groups]
    return least(both[:, :-1], both[:, -1]), sizes


def _deviance(X: Array, y: Array, groups: Codes, ratio: float, *, reml: bool) -> float:
    """Return -2 log-likelihood with σ² at its best (REML: less the constant log|X'X|)."""
    fit, sizes = _whitened(X, y, groups, ratio)
    df = len(y) - X.shape[1] if reml else len(y)
    deviance = df * (np.log(2 * np.pi * fit.rss / df) + 1) + np.log1p(sizes * ratio).sum()
    if reml:
        deviance -= np.linalg.slogdet(fit.inverse)[1]
    return float(deviance)


def _best_ratio(X: Array, y: Array, groups: Codes, *, reml: bool) -> float:
    """Search λ over a grid of λ/(1+λ), then near the best; the edge 0 is no group variance."""

    def at(share: float) -> float:
        return _deviance(X, y, groups, share / (1 - share), reml=reml)

    grid = np.concatenate([[0.0], np.linspace(0.001, 0.999, 14)])
    values = [at(share) for share in grid]
    i = int(np.argmin(values))
    low, high = grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)]
    found = optimize.minimize_scalar(
        at, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    share = float(found.x) if found.fun < values[i] else float(grid[i])
    return share / (1 - share)
