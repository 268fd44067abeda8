"""How many batchsets are not yet thrashing at an MPL.

Where no MPL of one sample lies strictly inside the interval of another, as when all were measured
at the same MPLs, the maximum likelihood estimate is Kaplan and Meier's, with a thrashing point in
[low, high) as an event at `high`, where it is first seen, and Greenwood's variance holds. lifelines
computes it, with bands on the log(-log) scale.

Else it is Turnbull's (1976, JRSS B 38): mass only on the innermost intervals, found by
self-consistency, for all bootstrap draws at once. lifelines has Turnbull's estimate but no bands,
and takes intervals as closed, so that [100, 200) and [200, 300) would share 200.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
from lifelines import KaplanMeierFitter

from tidegate_analysis.censored._linear import checked_level
from tidegate_analysis.censored._samples import Flags, Floats, Intervals, columns_there, intervals

COLUMNS: Final = ("mpl", "not_thrashing", "low", "high", "at_risk", "thrashed", "method")


def kaplan_meier(
    samples: pd.DataFrame,
    by: str | Sequence[str] | None = None,
    *,
    low: str = "low",
    high: str = "high",
    level: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """The share of batchsets that are not yet thrashing, against MPL.

    Parameters
    ----------
    samples
        A row for each batchset: `shapes.SAMPLES`, or any frame with the columns named.
    by
        Columns whose values are groups with a curve of their own.
    low, high
        Columns of the interval that holds TP; `high` is inf where no fall was seen.
    level
        Of the pointwise bands.
    draws, seed
        Bootstrap draws for the bands of Turnbull's estimate.

    Returns
    -------
    DataFrame
        The columns of `by`, then ``mpl``; ``not_thrashing``, the estimated share with TP at or
        above that MPL, so not seen to have fallen there; ``low``, ``high``, its band; ``at_risk``,
        samples measured up to there and not seen to fall before; ``thrashed``, samples that had
        fallen there by their `high`; ``method``, ``kaplan-meier`` or ``turnbull``. Begins at MPL 0
        with a share of 1.

    Notes
    -----
    Greenwood's band has no width while nobody has thrashed, and none once all have. There the band
    is of an exact binomial: down to ``(α/2)^(1/n)`` and up to ``1 - (α/2)^(1/n)``, for n samples
    at risk, and n in all.

    """
    checked_level(level)
    names = [] if by is None else [by] if isinstance(by, str) else list(by)
    columns_there(samples, [low, high, *names])
    if not names:
        return _curve(intervals(samples, low, high), level, draws, seed)
    parts = []
    for key, group in samples.groupby(names, sort=True, dropna=False):
        part = _curve(intervals(group, low, high), level, draws, seed)
        for place, (name, value) in enumerate(zip(names, key, strict=True)):
            part.insert(place, name, np.full(len(part), value))
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _curve(found: Intervals, level: float, draws: int, seed: int) -> pd.DataFrame:
    if _disjoint(found):
        return _kaplan_meier(found, level)
    return _turnbull(found, level, draws, seed)


def _disjoint(found: Intervals) -> bool:
    """Whether no end of an interval lies strictly inside another that is finite."""
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
    curve = _Curve(mpls, share, band[:, 0], band[:, 1])
    return curve.to_frame(found, level, "kaplan-meier")


def _turnbull(found: Intervals, level: float, draws: int, seed: int) -> pd.DataFrame:
    high = np.where(found.thrashed, found.high, np.inf)
    pairs, which = np.unique(np.column_stack([found.low, high]), axis=0, return_inverse=True)
    left, right = _innermost(pairs)
    inside = (pairs[:, [0]] <= left) & (right <= pairs[:, [1]])
    counts = np.bincount(which.ravel(), minlength=len(pairs))
    rng = np.random.default_rng(seed)
    chances = counts / counts.sum()
    weights = np.vstack([counts, rng.multinomial(counts.sum(), chances, size=draws)])
    mass = np.vstack(
        [
            _self_consistent(inside, weights[:1].astype(np.float64), 1e-9),
            _self_consistent(inside, weights[1:].astype(np.float64), 1e-6),
        ]
    )
    ends = np.concatenate([left, right])
    mpls = np.unique(np.append(ends[np.isfinite(ends)], 0.0))
    share = mass @ (left[:, None] >= mpls)
    tails = np.quantile(share[1:], [0.5 - level / 2, 0.5 + level / 2], axis=0)
    return _Curve(mpls, share[0], *tails).to_frame(found, level, "turnbull")


def _innermost(pairs: Floats) -> tuple[Floats, Floats]:
    """The intervals from a low to the next high with neither between: all mass is in these.

    At equal MPLs a high comes before a low, since the intervals are half-open.
    """
    lows = np.unique(pairs[:, 0])
    highs = np.unique(pairs[:, 1])
    right = highs[np.searchsorted(highs, lows, side="right")]
    latest = np.append(lows[1:], np.inf) >= right
    return lows[latest], right[latest]


def _self_consistent(inside: Flags, weights: Floats, tolerance: float) -> Floats:
    """Turnbull's estimate for each row of weights, by the EM algorithm on all at once."""
    cover = inside.astype(np.float64)
    mass = np.full((len(weights), cover.shape[1]), 1 / cover.shape[1])
    total = weights.sum(axis=1, keepdims=True)
    for _ in range(20_000):
        chance = mass @ cover.T
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(weights > 0, weights / chance, 0.0)
        after = mass * (shares @ cover) / total
        apart = float(np.abs(after - mass).max())
        mass = after
        if apart < tolerance:
            break
    return np.where(mass < 1e-9, 0.0, mass)


@dataclass(frozen=True)
class _Curve:
    mpls: Floats
    share: Floats
    low: Floats
    high: Floats

    def to_frame(self, found: Intervals, level: float, method: str) -> pd.DataFrame:
        """The frame of `kaplan_meier`, with exact bands where the share is 0 or 1."""
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
