"""Distributions of the error in ``y = xβ + σε``, and the likelihood of an interval.

With y = log TP, the smallest extreme value makes TP Weibull, the logistic log-logistic and the
normal log-normal: the accelerated failure time models. With y = TP the normal gives the tobit model
for intervals.

The likelihood of ``low < y <= high`` is ``F(z_high) - F(z_low)``. In Olsen's parameters ``γ = β/σ``
and ``τ = 1/σ``, with ``z = τy - xγ``, its logarithm is concave for each of these densities
(Burridge 1981, *Empirical Bayes for interval data*, JRSS B 43): Newton's method with halved steps
finds the one maximum, from anywhere.

lifelines has the accelerated failure time models for intervals, too, and the tests compare with it.
They are ours all the same: it takes intervals as closed and has no normal distribution of TP
itself, gives neither the score of each sample, which errors by cluster are made of, nor a message
where the likelihood has no maximum, and stops its gradient search at three digits.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from scipy import special

from tidegate_analysis._columns import Array
from tidegate_analysis.errors import SampleError

Distribution = Literal["weibull", "lognormal", "loglogistic", "gaussian"]


class ErrorDistribution(Protocol):
    """A standard distribution of ε."""

    variance: float
    median: float

    def log_below(self, z: Array) -> Array:
        """Return the logarithm of F(z)."""

    def log_above(self, z: Array) -> Array:
        """Return the logarithm of 1 - F(z)."""

    def log_density(self, z: Array) -> Array:
        """Return the logarithm of f(z)."""

    def slope(self, z: Array) -> Array:
        """Return the derivative of log f at z."""

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        """Return random errors."""


class _NormalError:
    variance = 1.0
    median = 0.0

    def log_below(self, z: Array) -> Array:
        return np.asarray(special.log_ndtr(z))

    def log_above(self, z: Array) -> Array:
        return np.asarray(special.log_ndtr(-z))

    def log_density(self, z: Array) -> Array:
        return np.asarray(-0.5 * z**2 - 0.5 * np.log(2 * np.pi))

    def slope(self, z: Array) -> Array:
        return -z

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.standard_normal(size)


class _LogisticError:
    variance = float(np.pi**2 / 3)
    median = 0.0

    def log_below(self, z: Array) -> Array:
        return np.asarray(special.log_expit(z))

    def log_above(self, z: Array) -> Array:
        return np.asarray(special.log_expit(-z))

    def log_density(self, z: Array) -> Array:
        return np.asarray(special.log_expit(z) + special.log_expit(-z))

    def slope(self, z: Array) -> Array:
        return np.asarray(1 - 2 * special.expit(z))

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return rng.logistic(size=size)


class _SmallestExtremeError:
    variance = float(np.pi**2 / 6)
    median = float(np.log(np.log(2)))

    def log_below(self, z: Array) -> Array:
        return np.log(-np.expm1(-np.exp(z)))

    def log_above(self, z: Array) -> Array:
        return -np.exp(z)

    def log_density(self, z: Array) -> Array:
        return z - np.exp(z)

    def slope(self, z: Array) -> Array:
        return 1 - np.exp(z)

    def draw(self, rng: np.random.Generator, size: tuple[int, ...]) -> Array:
        return np.log(rng.exponential(size=size))


ERRORS: dict[Distribution, ErrorDistribution] = {
    "weibull": _SmallestExtremeError(),
    "lognormal": _NormalError(),
    "loglogistic": _LogisticError(),
    "gaussian": _NormalError(),
}


@dataclass(frozen=True)
class Maximum:
    """The most likely (β, log σ), with what inference about it needs."""

    parameters: Array
    information: Array
    scores: Array
    loglik: float


def maximise(error: ErrorDistribution, matrix: Array, low: Array, high: Array) -> Maximum:
    """Fit ``y = xβ + σε`` to intervals by Newton's method on standardised data.

    - error: The distribution of ε.
    - matrix: x, its first column 1 and all others of mean 0 and standard deviation 1 or so.
    - low, high: The ends of each y, infinite where unknown, of mean 0 and standard deviation 1 or
      so.
    """
    count = matrix.shape[1]
    at = np.append(np.zeros(count), 1.0)
    value, gradient, information, scores = _likelihood(error, at, matrix, low, high)
    for _ in range(200):
        try:
            step: Array = np.linalg.solve(information, gradient).astype(np.float64)
        except np.linalg.LinAlgError:
            break
        if gradient @ step < 1e-18 * (1 + abs(value)):
            return _natural(at, value, information, scores)
        at, found = _halved(error, at, step, value, (matrix, low, high))
        if found is None:
            if gradient @ step < 1e-10 * (1 + abs(value)):
                return _natural(at, value, information, scores)
            break
        value, gradient, information, scores = found
    raise _no_maximum()


def _no_maximum() -> SampleError:
    return SampleError(
        "the likelihood of the thrashing points has no maximum: a column, or several together, "
        "tell perfectly which samples thrash, or where",
        "leave that column out, or use `thrashes` with method='firth'",
    )


_Likelihood = tuple[float, Array, Array, Array]


def _halved(
    error: ErrorDistribution, at: Array, step: Array, value: float, data: tuple[Array, Array, Array]
) -> tuple[Array, _Likelihood | None]:
    """Return the longest of the steps 1, ½, ¼ … that gains, with the likelihood there."""
    for halvings in range(40):
        there = at + step * 0.5**halvings
        if there[-1] > 0:
            found = _likelihood(error, there, *data)
            if found[0] > value:
                return there, found
    return at, None


def _natural(at: Array, value: float, information: Array, scores: Array) -> Maximum:
    """From Olsen's (γ, τ) to (β, log σ) = (γ/τ, -log τ), all at the maximum."""
    count = at.size - 1
    if np.linalg.eigvalsh(information)[0] < 1e-7 * len(scores):
        raise _no_maximum()
    gamma, tau = at[:-1], at[-1]
    back = np.zeros((count + 1, count + 1))  # d(γ, τ) / d(β, log σ)
    back[:-1, :-1] = np.eye(count) * tau
    back[:-1, -1] = -gamma
    back[-1, -1] = -tau
    return Maximum(
        parameters=np.append(gamma / tau, -np.log(tau)),
        information=back.T @ information @ back,
        scores=scores @ back,
        loglik=value,
    )


def log_mass(error: ErrorDistribution, low: Array, high: Array) -> Array:
    """Return the logarithm of F(high) - F(low), without cancellation in either tail."""
    with np.errstate(all="ignore"):
        below, above = error.log_below(high), error.log_above(low)
        left = below + np.log(-np.expm1(error.log_below(low) - below))
        right = above + np.log(-np.expm1(error.log_above(high) - above))
    return np.where(low > 0, right, left)


def _likelihood(
    error: ErrorDistribution, at: Array, matrix: Array, low: Array, high: Array
) -> _Likelihood:
    """Return the log-likelihood of (γ, τ), its gradient, minus its Hessian, each row's gradient."""
    tau, centre = at[-1], matrix @ at[:-1]
    ends = [tau * low - centre, tau * high - centre]
    mass = log_mass(error, *ends)
    if not np.isfinite(mass).all():
        return -np.inf, at, np.eye(at.size), matrix
    scores = np.zeros((len(matrix), at.size))
    curvature = np.zeros((at.size, at.size))
    for sign, end, y in ((-1.0, ends[0], low), (1.0, ends[1], high)):
        known = np.isfinite(end)
        z = np.where(known, end, 0.0)
        with np.errstate(over="ignore"):
            weight = np.where(known, sign * np.exp(error.log_density(z) - mass), 0.0)
            slope = np.where(weight != 0, error.slope(z), 0.0)
        turn = np.column_stack([-matrix, np.where(known, y, 0.0)])
        scores += weight[:, None] * turn
        curvature += (turn * (weight * slope)[:, None]).T @ turn
    return float(mass.sum()), scores.sum(axis=0), scores.T @ scores - curvature, scores
