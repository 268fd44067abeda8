"""How many batchsets are not yet thrashing at an MPL.

Where no MPL of one sample lies strictly inside the interval of another, as when all were measured
at the same MPLs, the maximum likelihood estimate is Kaplan and Meier's, with a thrashing point in
[low, high) as an event at `high`, where it is first seen, and Greenwood's variance holds. lifelines
computes it, with bands on the log(-log) scale.

Else it is Turnbull's (1976, JRSS B 38): mass only on the innermost intervals, found by
self-consistency. Its band has every share whose likelihood, with the masses below and above the MPL
at their best, is not too far below the maximum (Thomas and Grunkemeier 1975, JASA 70, for Kaplan
and Meier's). Percentiles of a bootstrap cover less than they promise: 0.925 of 95 % was seen.
lifelines has Turnbull's estimate but no bands, and takes intervals as closed, so that [100, 200)
and [200, 300) would share 200.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from lifelines import KaplanMeierFitter
from scipy import stats

from tidegate_analysis._columns import Array, Flags, refuse_level
from tidegate_analysis.censored._design import Intervals, columns_there, intervals

#: Halvings of a share for the end of a band: to a millionth.
HALVINGS: Final = 20

COLUMNS: Final = ("mpl", "not_thrashing", "low", "high", "at_risk", "thrashed", "method")


def kaplan_meier(
    samples: pd.DataFrame,
    by: str | Sequence[str] | None = None,
    *,
    low: str = "low",
    high: str = "high",
    level: float = 0.95,
) -> pd.DataFrame:
    """Return the share of batchsets that are not yet thrashing, against MPL.

    - samples: A row for each batchset: `shapes.SAMPLES`, or any frame with the columns named.
    - by: Columns whose values are groups with a curve of their own.
    - low, high: Columns of the interval that holds TP; `high` is inf where no fall was seen.

    Returns the columns of `by`, then ``mpl``; ``not_thrashing``, the estimated share with TP at or
    above that MPL, so not seen to have fallen there; ``low``, ``high``, its band; ``at_risk``,
    samples measured up to there and not seen to fall before; ``thrashed``, samples that had fallen
    there by their `high`; ``method``, ``kaplan-meier`` or ``turnbull``. Begins at MPL 0 with a
    share of 1.

    Greenwood's band has no width while nobody has thrashed, and none once all have. There the band
    is of an exact binomial: down to ``(α/2)^(1/n)`` and up to ``1 - (α/2)^(1/n)``, for n samples
    at risk, and n in all.
    """
    refuse_level(level)
    names = [] if by is None else [by] if isinstance(by, str) else list(by)
    columns_there(samples, [low, high, *names])
    if not names:
        return _curve(intervals(samples, low, high), level)
    parts = []
    for key, group in samples.groupby(names, sort=True, dropna=False):
        part = _curve(intervals(group, low, high), level)
        for place, (name, value) in enumerate(zip(names, key, strict=True)):
            part.insert(place, name, np.full(len(part), value))
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _curve(found: Intervals, level: float) -> pd.DataFrame:
    return _kaplan_meier(found, level) if _disjoint(found) else _turnbull(found, level)


def _disjoint(found: Intervals) -> bool:
    """Return whether no end of an interval lies strictly inside another that is finite."""
    ends = np.unique(np.concatenate([found.low, found.high[found.thrashed]]))
    first = np.searchsorted(ends, found.low[found.thrashed])
    last = np.searchsorted(ends, found.high[found.thrashed])
    return bool((last - first == 1).all())


def _kaplan_meier(found: Intervals, level: float) -> pd.DataFrame:
    time = np.where(found.thrashed, found.high, found.low)
    fitter = KaplanMeierFitter(alpha=1 - level).fit(time, found.thrashed)
    mpls = np.unique(np.append(time, 0.0))
    band = fitter.confidence_interval_.reindex(mpls, method="ffill").to_numpy()
    share = fitter.survival_function_at_times(mpls).to_numpy(dtype=np.float64)
    curve = _SurvivalCurve(mpls, share, band[:, 0], band[:, 1])
    return curve.to_frame(found, level, "kaplan-meier")


def _turnbull(found: Intervals, level: float) -> pd.DataFrame:
    high = np.where(found.thrashed, found.high, np.inf)
    pairs, counts = np.unique(np.column_stack([found.low, high]), axis=0, return_counts=True)
    left, right = _innermost(pairs)
    inside = (pairs[:, [0]] <= left) & (right <= pairs[:, [1]])
    masses = _Masses(inside.astype(np.float64), counts.astype(np.float64))
    mass, most = masses.best()
    ends = np.concatenate([left, right])
    mpls = np.unique(np.append(ends[np.isfinite(ends)], 0.0))
    late = left >= mpls[:, None]
    share = (late @ mass).clip(0, 1)
    least = most - float(stats.chi2.ppf(level, 1)) / 2
    low, high = (masses.ends(late, share, outer, least) for outer in (0.0, 1.0))
    return _SurvivalCurve(mpls, share, low, high).to_frame(found, level, "turnbull")


def _innermost(pairs: Array) -> tuple[Array, Array]:
    """Return the intervals from a low to the next high with neither between: all mass is in these.

    At equal MPLs a high comes before a low, since the intervals are half-open.
    """
    lows = np.unique(pairs[:, 0])
    highs = np.unique(pairs[:, 1])
    right = highs[np.searchsorted(highs, lows, side="right")]
    latest = np.append(lows[1:], np.inf) >= right
    return lows[latest], right[latest]


@dataclass(frozen=True)
class _Masses:
    """Masses on the innermost intervals, and their likelihood.

    - inside: 1 where an innermost interval, a column, is in a pair of low and high, a row.
    - counts: Samples of each pair.
    """

    inside: Array
    counts: Array

    def best(self) -> tuple[Array, float]:
        """Return Turnbull's estimate, and its log-likelihood."""
        total = self.counts.sum()
        mass = self._climbed(1, lambda expected: expected / total, 1e-9)
        mass = np.where(mass < 1e-9, 0.0, mass)
        return mass[0], float(self._log_likelihood(mass)[0])

    def ends(self, late: Flags, share: Array, outer: float, least: float) -> Array:
        """Return the farthest shares towards `outer` whose log-likelihood is `least` or more.

        Each row of `late` says which intervals are late, and `share` their mass at its best. By
        halving, as the log-likelihood falls from there on either side.
        """
        found = np.full_like(share, outer)
        # Where no mass can be moved that way there is nothing to find.
        rows = late.any(axis=1) & ~late.all(axis=1) & (np.abs(share - outer) > 1e-9)
        within, beyond = share[rows], found[rows]
        for _ in range(HALVINGS):
            middle = (within + beyond) / 2
            likely = self._held(late[rows], middle) >= least
            within, beyond = np.where(likely, middle, within), np.where(likely, beyond, middle)
        found[rows] = within
        return found

    def _held(self, late: Flags, share: Array) -> Array:
        """Return the largest log-likelihood in each row, given the late share, not 0 or 1."""

        def held(expected: Array) -> Array:
            of_late = (expected * late).sum(axis=1, keepdims=True)
            of_early = (expected * ~late).sum(axis=1, keepdims=True)
            part = share[:, None]
            return np.asarray(expected * np.where(late, part / of_late, (1 - part) / of_early))

        return self._log_likelihood(self._climbed(len(share), held, 1e-6))

    def _climbed(self, rows: int, normalised: Callable[[Array], Array], tolerance: float) -> Array:
        """Return the maximum for each row by the EM algorithm, from a start with mass everywhere.

        Each step makes masses of the samples expected in each interval, as `normalised` says.
        """
        width = self.inside.shape[1]
        mass = normalised(np.full((rows, width), 1 / width))
        for _ in range(20_000):
            after = normalised(mass * ((self.counts / (mass @ self.inside.T)) @ self.inside))
            apart = float(np.abs(after - mass).max())
            mass = after
            if apart < tolerance:
                break
        return mass

    def _log_likelihood(self, mass: Array) -> Array:
        return np.asarray(np.log(mass @ self.inside.T) @ self.counts)


@dataclass(frozen=True)
class _SurvivalCurve:
    mpls: Array
    share: Array
    low: Array
    high: Array

    def to_frame(self, found: Intervals, level: float, method: str) -> pd.DataFrame:
        """Return the frame of `kaplan_meier`, with exact bands where the share is 0 or 1."""
        last = np.where(found.thrashed, found.high, found.low)
        at_risk = (last[:, None] >= self.mpls).sum(axis=0)
        fallen = (found.high[:, None] <= self.mpls).sum(axis=0)
        tail = 0.5 - level / 2
        none, every = self.share > 1 - 1e-12, self.share < 1e-12
        low = np.where(none, tail ** (1 / np.maximum(at_risk, 1)), np.where(every, 0.0, self.low))
        high = np.where(none, 1.0, np.where(every, 1 - tail ** (1 / found.low.size), self.high))
        low[0] = 1.0  # at MPL 0 by definition
        values = (self.mpls, self.share, low, high, at_risk, fallen, method)
        return pd.DataFrame(dict(zip(COLUMNS, values, strict=True)))
