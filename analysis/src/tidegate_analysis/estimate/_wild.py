"""The wild cluster bootstrap-t, for samples in few groups.

statsmodels has no bootstrap by cluster, wild or other: this is ours.

To test b_j = β: fit under that hypothesis, give the residuals of each *group* one common random
weight, and see how often the t statistic (with CR1) of such data exceeds the one observed (Cameron,
Gelbach, Miller 2008). The weights are Webb's (2014): ±√½, ±1, ±√(3/2), each one time in six. With
two weights five groups would allow 16 different values of |t| only; with six, 6⁵ = 7,776 data sets
can be made, and then all of them are, so the result has no chance in it; else what was observed is
one of the data sets, so that p is never 0 (Davison and Hinkley 1997, Section 4.2). The interval is
the set of β that are not rejected.

**The smallest p.** Weights that are all the same, w = c·1, multiply the residuals of every group by
c: b less its hypothesis and its standard error are c times the observed ones, and t is the same up
to its sign. So six of the 6^G data sets tie with the observed one whatever it is, and p is at least
6^(1-G): 1/6 with two groups, 1/36 with three, 1/216 with four. With two groups nothing is
significant at 0.05, and the interval has no ends.

No data set is made in full. Let x be column j less what the others explain, M the projection off
all columns, and e the residuals under the hypothesis. Everything the statistic needs is, by group::

    a_g  = x_g'e_g                         (the numerator is sum w_g a_g)
    A_gh = a_g [g = h] - x_g'X_g (X'X)⁻¹ X_h'e_h   (the score of group g is sum over h of A_gh w_h)

and e is linear in β, so a new β costs two additions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy import optimize

from tidegate_analysis._clusters import sums
from tidegate_analysis._columns import Array, Codes, generator
from tidegate_analysis._linear import covariance, least_squares

_WEIGHTS = np.sqrt([0.5, 1.0, 1.5])
_SIX = np.concatenate([-_WEIGHTS, _WEIGHTS])

#: Up to this many data sets all are made.
_ALL = 6**5


@dataclass(frozen=True)
class Wild:
    """P value of b_j = 0, and the β not rejected."""

    p: float
    low: float
    high: float


def weights(groups: int, draws: int, seed: int) -> Array:
    """Return Webb weights, a row for each data set: all there are when they are few."""
    if 6**groups <= max(_ALL, draws):
        return np.array(list(product(_SIX, repeat=groups)))
    drawn = generator(seed).choice(_SIX, (draws, groups))
    drawn[0] = 1.0  # what was observed
    return drawn


def smallest(W: Array) -> float:
    """Return the p below which no data can come: the share of data sets that tie with any."""
    return float((W[:, :1] == W).all(axis=1).mean())


def wild(X: Array, y: Array, groups: Codes, j: int, *, W: Array, confidence: float) -> Wild:
    """Test column j of X and give the interval of its coefficient.

    - X, y, groups: The regression, groups numbered from 0.
    - W: What `weights` returned.
    """
    others = np.delete(X, j, axis=1)
    x = X[:, j] - others @ np.linalg.lstsq(others, X[:, j], rcond=None)[0]
    e = y - others @ np.linalg.lstsq(others, y, rcond=None)[0]
    fit, count = least_squares(X, y), W.shape[1]
    b, se = float(fit.params[j]), float(np.sqrt(covariance(fit, "cluster", groups)[j, j]))
    factor = count / (count - 1) * (len(X) - 1) / fit.df_resid
    reach = sums(x[:, None] * X, groups) @ fit.normalized_cov_params
    parts = [_parts(X, groups, x, residuals, reach) for residuals in (e, x)]
    numerators = [W @ a for a, _ in parts]
    scores = [W @ A.T for _, A in parts]

    def p(beta: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (numerators[0] - beta * numerators[1]) / np.sqrt(
                factor * np.square(scores[0] - beta * scores[1]).sum(axis=1)
            )
        return float(np.mean(~(np.abs(t) < abs(b - beta) / se * (1 - 1e-9))))

    alpha = 1 - confidence
    return Wild(p(0.0), _edge(p, b, -se, alpha), _edge(p, b, se, alpha))


def _parts(X: Array, groups: Codes, x: Array, e: Array, reach: Array) -> tuple[Array, Array]:
    a = sums((x * e)[:, None], groups)[:, 0]
    return a, np.diag(a) - reach @ sums(X * e[:, None], groups).T


def _edge(p: Callable[[float], float], b: float, step: float, alpha: float) -> float:
    """Walk from b until β is rejected, then look for where that begins; none is infinite."""
    for reach in (2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0):
        if p(b + reach * step) <= alpha:
            found = optimize.brentq(
                lambda share: p(b + share * step) - alpha, 0.0, reach, xtol=1e-4
            )
            return b + float(found) * step
    return float(np.copysign(np.inf, step))
