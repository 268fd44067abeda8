"""The few tests and intervals that advice rests on, and what is too few for them.

Throughputs are compared as ratios: the interval is one of the difference of mean logarithms, so a
ratio is one of geometric means. Repetitions are compared by Welch's t (Welch 1947), pairs by the
paired t, blocks of runs by a line with an intercept for each, counts of rises and falls by the sign
test, shares by Wilson's interval (Wilson 1927), and what has no distribution of its own by
permutation within blocks. Where a level was picked because it was best among k,
intervals are Bonferroni's for k comparisons; p-values of an experiment are adjusted by Holm (1979),
see `tables.holm`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

#: Fewer repetitions of a level than this say nothing of noise.
FEWEST_REPETITIONS: Final = 3
#: Fewer pairs of batchsets than this say nothing of a limit for all of them.
FEWEST_PAIRS: Final = 6
#: Fewer degrees of freedom among runs than this, those of three pairs, say nothing of a factor.
FEWEST_FREE: Final = 2
#: Fewer batchsets than this give no share of those that thrash.
FEWEST_SHARES: Final = 10
ALPHA: Final = 0.05
#: From this share of the best on, a level is as good.
NEAR: Final = 0.95


@dataclass(frozen=True)
class Ratio:
    """A ratio with its interval, the p-value of its being 1, and how many values it is made of."""

    value: float
    low: float
    high: float
    p: float
    n: int


def is_shown(p: float) -> bool:
    """Return whether a p-value shows something; one that is not a number shows nothing."""
    return p < ALPHA


def of_repetitions(a: ArrayLike, b: ArrayLike, comparisons: int = 1) -> Ratio | None:
    """Return the ratio of two settings' values; None where there are too few repetitions."""
    x, y = _logs(a), _logs(b)
    if x is None or y is None or min(len(x), len(y)) < FEWEST_REPETITIONS:
        return None
    vx, vy = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    difference, error = float(x.mean() - y.mean()), float(np.sqrt(vx + vy))
    freedom = np.inf
    if error > 0:
        freedom = (vx + vy) ** 2 / (vx**2 / (len(x) - 1) + vy**2 / (len(y) - 1))
    return _ratio(difference, error, freedom, min(len(x), len(y)), comparisons)


def of_pairs(
    a: ArrayLike, b: ArrayLike, comparisons: int = 1, fewest: int = FEWEST_PAIRS
) -> Ratio | None:
    """Return the ratio of paired values; None where there are fewer pairs than `fewest`.

    Pairs in which one of the two is nothing have no ratio, and are left out.
    """
    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    usable = np.isfinite(x) & np.isfinite(y) & (x > 0) & (y > 0)
    logs = np.log(x[usable] / y[usable])
    if len(logs) < fewest:
        return None
    error = float(logs.std(ddof=1) / np.sqrt(len(logs)))
    return _ratio(float(logs.mean()), error, len(logs) - 1, len(logs), comparisons)


def of_blocks(logs: ArrayLike, place: np.ndarray) -> Ratio | None:
    """Return the ratio between the places 0 and 1; None where there are too few values.

    - logs: A row for each block of runs that differ in one factor only, a column for each level of
      it.
    - place: Where each level is: the line through all blocks has an intercept for each of them.
      With two levels this is the paired t.
    """
    values, x = np.asarray(logs, dtype=float), place - place.mean()
    freedom = free(*values.shape)
    if freedom < FEWEST_FREE:
        return None
    apart = values - values.mean(axis=1, keepdims=True)
    weight = len(values) * float(x @ x)
    slope = float((apart @ x).sum()) / weight
    error = float(np.sqrt(((apart - slope * x) ** 2).sum() / freedom / weight))
    return _ratio(slope, error, freedom, values.size, 1)


def free(blocks: int, levels: int) -> int:
    """Return the degrees of freedom of a line through blocks with an intercept each."""
    return blocks * (levels - 1) - 1


def _logs(values: ArrayLike) -> np.ndarray | None:
    x = np.asarray(values, dtype=float)
    return np.log(x) if len(x) and np.all(np.isfinite(x) & (x > 0)) else None


def _ratio(difference: float, error: float, freedom: float, n: int, comparisons: int) -> Ratio:
    if error <= 1e-12:
        p = 1.0 if abs(difference) <= 1e-12 else 0.0
        value = float(np.exp(difference))
        return Ratio(value, value, value, p, n)
    half = float(stats.t.ppf(1 - ALPHA / comparisons / 2, freedom)) * error
    p = float(2 * stats.t.sf(abs(difference / error), freedom))
    ends = np.exp([difference, difference - half, difference + half])
    return Ratio(float(ends[0]), float(ends[1]), float(ends[2]), min(1.0, p * comparisons), n)


def share(found: int, of: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    interval = stats.binomtest(found, of).proportion_ci(1 - ALPHA, method="wilson")
    return float(interval.low), float(interval.high)


def permuted(
    values: ArrayLike,
    statistic: Callable[[np.ndarray], np.ndarray],
    draws: int = 9_999,
    seed: int = 0,
) -> float:
    """Return the p-value of columns being alike, where rows were measured apart.

    - statistic: What is large where columns differ, of each table of an array of tables. Each row
      is permuted by itself, so what a row has of its own does not count.
    """
    table = np.asarray(values, dtype=float)[np.newaxis]
    mixed = np.random.default_rng(seed).permuted(np.repeat(table, draws, axis=0), axis=2)
    # A statistic that is not a number is no evidence.
    as_large = ~(statistic(mixed) < statistic(table)[0] - 1e-12)
    return float((1 + as_large.sum()) / (1 + draws))


def arrangements(values: ArrayLike) -> float:
    """Return the probability of one arrangement of columns within all rows."""
    rows, columns = np.shape(values)
    return math.exp(-rows * math.lgamma(columns + 1))
