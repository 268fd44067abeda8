"""A random intercept for each group, by REML.

It makes var(y) = σ²(I + λJ) inside each group. For a given λ, subtracting a share of each group's
mean whitens the data, so REML is a search over one number, and λ = 0 is found exactly. `MixedLM` of
statsmodels stops earlier there and warns, so this is ours.
"""

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from tidegate_analysis._clusters import sums
from tidegate_analysis._columns import Array, Codes
from tidegate_analysis._linear import Fitted, least_squares
from tidegate_analysis.estimate._data import EquationDesign


@dataclass(frozen=True)
class RandomIntercept:
    """A fit with a random intercept for each group."""

    coefficients: Array
    covariance: Array
    residual_variance: float
    group_variance: float
    log_likelihood: float


def random_intercept(data: EquationDesign) -> RandomIntercept:
    """Fit by REML; the log-likelihood is that of maximum likelihood, so fits compare."""
    X, y, groups = data.full, data.y, data.groups
    ratio = _best_ratio(X, y, groups, reml=True)
    fit, _ = _whitened(X, y, groups, ratio)
    variance = fit.ssr / (len(y) - X.shape[1])
    ratio_ml = _best_ratio(X, y, groups, reml=False)
    return RandomIntercept(
        fit.params,
        variance * fit.normalized_cov_params,
        variance,
        ratio * variance,
        -0.5 * _deviance(X, y, groups, ratio_ml, reml=False),
    )


def _whitened(X: Array, y: Array, groups: Codes, ratio: float) -> tuple[Fitted, Array]:
    sizes = np.bincount(groups).astype(float)
    share = 1 - 1 / np.sqrt(1 + sizes * ratio)
    both = np.column_stack([X, y])
    means = sums(both, groups) / sizes[:, None]
    both = both - (share[:, None] * means)[groups]
    return least_squares(both[:, :-1], both[:, -1]), sizes


def _deviance(X: Array, y: Array, groups: Codes, ratio: float, *, reml: bool) -> float:
    """Return -2 log-likelihood with σ² at its best (REML: less the constant log|X'X|)."""
    fit, sizes = _whitened(X, y, groups, ratio)
    df = len(y) - X.shape[1] if reml else len(y)
    deviance = df * (np.log(2 * np.pi * fit.ssr / df) + 1) + np.log1p(sizes * ratio).sum()
    if reml:
        deviance -= np.linalg.slogdet(fit.normalized_cov_params)[1]
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
