"""Distributions of the error in ``y = xβ + σε``, and the likelihood of an interval.

With y = log TP, the smallest extreme value makes TP Weibull, the logistic log-logistic and the
normal log-normal: the accelerated failure time models. With y = TP the normal gives the tobit model
for intervals.

The likelihood of ``low < y <= high`` is ``F(z_high) - F(z_low)``. In Olsen's parameters ``γ = β/σ``
and ``τ = 1/σ``, with ``z = τy - xγ``, its logarithm is concave for each of these densities
(Burridge 1981, *Empirical Bayes for interval data*, JRSS B 43): Newton's method with halved steps
finds the one maximum, from anywhere.

Where a thrashing point is uncertain, a sample may lie in one of several intervals, and its
likelihood is their sum, each times how far the measurements favour it: their probability under it,
but for a factor. The sum's logarithm need not be concave. Newton's method goes by the information
there would be if the intervals were known (Dempster, Laird and Rubin 1977) where the observed one
(Louis 1982, *Finding the observed information matrix when using the EM algorithm*, JRSS B 44) is
not positive; errors are by the observed one.

lifelines has the accelerated failure time models for intervals, too, and the tests compare with it.
They are ours all the same: it takes intervals as closed and has no normal distribution of TP
itself, gives neither the score of each sample, which errors by cluster are made of, nor a message
where the likelihood has no maximum, and stops its gradient search at three digits.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from scipy import special

from tidegate_analysis._columns import Array, Codes
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


#: Steps after which there is no maximum; a sum of intervals may take many.
_STEPS = 500


@dataclass(frozen=True)
class Maximum:
    """The most likely (β, log σ), with what inference about it needs."""

    parameters: Array
    information: Array
    scores: Array
    loglik: float


@dataclass(frozen=True)
class Candidates:
    """Of which sample each interval is a candidate, and how far the measurements favour it.

    - sample: The place of its sample, from 0, rising; each sample has at least one.
    - log_weight: The logarithm of the probability of what was measured of the sample if its point
      is in this interval, but for a term that all of a sample share.
    """

    sample: Codes
    log_weight: Array

    @property
    def starts(self) -> Codes:
        """Where the candidates of each sample begin."""
        return np.searchsorted(self.sample, np.unique(self.sample))

    def take(self, rows: Codes) -> tuple[Codes, "Candidates"]:
        """Return which candidates are of some samples, and these as candidates by themselves."""
        chosen = np.flatnonzero(np.isin(self.sample, rows))
        _, sample = np.unique(self.sample[chosen], return_inverse=True)
        return chosen, Candidates(sample, self.log_weight[chosen])


def maximise(
    error: ErrorDistribution,
    matrix: Array,
    low: Array,
    high: Array,
    candidates: Candidates | None = None,
) -> Maximum:
    """Fit ``y = xβ + σε`` to intervals by Newton's method on standardised data.

    - error: The distribution of ε.
    - matrix: x, its first column 1 and all others of mean 0 and standard deviation 1 or so.
    - low, high: The ends of each y, infinite where unknown, of mean 0 and standard deviation 1 or
      so.
    - candidates: Of which sample each row is, where samples have several; else each is one.
    """
    count = matrix.shape[1]
    data = _Data(matrix, low, high, candidates)
    at = np.append(np.zeros(count), 1.0)
    found = _likelihood(error, at, data)
    for _ in range(_STEPS):
        step = found.step()
        if step is None:
            break
        gain = float(found.gradient @ step)
        if gain < 1e-18 * (1 + abs(found.value)):
            return _natural(at, found)
        at, better = _halved(error, at, step, found.value, data)
        if better is None:
            if gain < 1e-10 * (1 + abs(found.value)):
                return _natural(at, found)
            break
        found = better
    raise _no_maximum()


def _no_maximum() -> SampleError:
    return SampleError(
        "the likelihood of the thrashing points has no maximum: a column, or several together, "
        "tell perfectly which samples thrash, or where",
        "leave that column out, or use `thrashes` with method='firth'",
    )


@dataclass(frozen=True)
class _Data:
    matrix: Array
    low: Array
    high: Array
    candidates: Candidates | None


@dataclass(frozen=True)
class _Likelihood:
    """The log-likelihood of (γ, τ), with its gradient and that of each sample.

    - information: Minus the Hessian.
    - complete: The same if it were known which of its intervals each sample is in: positive.
    """

    value: float
    gradient: Array
    information: Array
    complete: Array
    scores: Array

    def step(self) -> Array | None:
        """Return a step that goes up; None where there is none."""
        for matrix in (self.information, self.complete):
            try:
                factor = np.linalg.cholesky(matrix)
            except np.linalg.LinAlgError:
                continue
            half = np.linalg.solve(factor, self.gradient)
            return np.asarray(np.linalg.solve(factor.T, half), dtype=np.float64)
        return None


def _halved(
    error: ErrorDistribution, at: Array, step: Array, value: float, data: _Data
) -> tuple[Array, _Likelihood | None]:
    """Return the longest of the steps 1, ½, ¼ … that gains, with the likelihood there."""
    for halvings in range(40):
        there = at + step * 0.5**halvings
        if there[-1] > 0:
            found = _likelihood(error, there, data)
            if found.value > value:
                return there, found
    return at, None


def _natural(at: Array, found: _Likelihood) -> Maximum:
    """From Olsen's (γ, τ) to (β, log σ) = (γ/τ, -log τ), all at the maximum."""
    count = at.size - 1
    if np.linalg.eigvalsh(found.information)[0] < 1e-7 * len(found.scores):
        raise _no_maximum()
    gamma, tau = at[:-1], at[-1]
    back = np.zeros((count + 1, count + 1))  # d(γ, τ) / d(β, log σ)
    back[:-1, :-1] = np.eye(count) * tau
    back[:-1, -1] = -gamma
    back[-1, -1] = -tau
    return Maximum(
        parameters=np.append(gamma / tau, -np.log(tau)),
        information=back.T @ found.information @ back,
        scores=found.scores @ back,
        loglik=found.value,
    )


def log_mass(error: ErrorDistribution, low: Array, high: Array) -> Array:
    """Return the logarithm of F(high) - F(low), without cancellation in either tail."""
    with np.errstate(all="ignore"):
        below, above = error.log_below(high), error.log_above(low)
        left = below + np.log(-np.expm1(error.log_below(low) - below))
        right = above + np.log(-np.expm1(error.log_above(high) - above))
    return np.where(low > 0, right, left)


def _likelihood(error: ErrorDistribution, at: Array, data: _Data) -> _Likelihood:
    """Return the log-likelihood of (γ, τ), and what the next step needs."""
    tau, centre = at[-1], data.matrix @ at[:-1]
    ends = [tau * data.low - centre, tau * data.high - centre]
    mass = log_mass(error, *ends)
    values, shares = _of_samples(mass, data.candidates)
    if not np.isfinite(values).all():
        nowhere = np.eye(at.size)
        return _Likelihood(-np.inf, at, nowhere, nowhere, data.matrix)
    scores = np.zeros((len(data.matrix), at.size))
    curvature = np.zeros((at.size, at.size))
    possible = np.isfinite(mass)
    for sign, end, y in ((-1.0, ends[0], data.low), (1.0, ends[1], data.high)):
        known = np.isfinite(end) & possible
        z = np.where(known, end, 0.0)
        with np.errstate(over="ignore", invalid="ignore"):
            weight = np.where(known, sign * np.exp(error.log_density(z) - mass), 0.0)
            slope = np.where(weight != 0, error.slope(z), 0.0)
        turn = np.column_stack([-data.matrix, np.where(known, y, 0.0)])
        scores += weight[:, None] * turn
        curvature += (turn * (shares * weight * slope)[:, None]).T @ turn
    complete = scores.T @ (shares[:, None] * scores) - curvature
    if data.candidates is not None:
        scores = np.add.reduceat(shares[:, None] * scores, data.candidates.starts)
    return _Likelihood(
        float(values.sum()), scores.sum(axis=0), scores.T @ scores - curvature, complete, scores
    )


def _of_samples(mass: Array, candidates: Candidates | None) -> tuple[Array, Array]:
    """Return the log-likelihood of each sample, and the share of each interval in its sample's."""
    if candidates is None:
        return mass, np.ones_like(mass)
    logs, starts = mass + candidates.log_weight, candidates.starts
    largest = np.maximum.reduceat(logs, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.exp(logs - largest[candidates.sample])
        values = largest + np.log(np.add.reduceat(relative, starts))
        shares = np.exp(logs - values[candidates.sample])
    return np.where(np.isnan(values), -np.inf, values), shares
