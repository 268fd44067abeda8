"""The naive regression beside the censored one, and what its bias is.

The naive regression takes the samples that thrashed and drops the others. But a sample is dropped
*because* its thrashing point is large, so what is left has been selected by the outcome: effects
shrink towards zero (truncation; Greene, *Econometric Analysis*, 7th ed., Section 19.2), and may
vanish. It also takes TP for the lower end of its interval.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, Unpack

import numpy as np
import pandas as pd

from tidegate_analysis._columns import Array
from tidegate_analysis.censored._aft import AFT, checked_distribution, naive, regress
from tidegate_analysis.censored._design import design, intervals
from tidegate_analysis.censored._families import ERRORS, Distribution
from tidegate_analysis.censored._predictor import CensoredKeywords
from tidegate_analysis.errors import AnalysisError, SampleError

Scale = Literal["log", "mpl"]


def compare(
    samples: pd.DataFrame,
    on: Sequence[str],
    *,
    scale: Scale = "log",
    distribution: Distribution | Literal["best"] = "best",
    tp: str = "TP",
    outcomes: pd.DataFrame | None = None,
    **options: Unpack[CensoredKeywords],
) -> pd.DataFrame:
    """Return least squares over the thrashing samples beside the censored regression over all.

    - samples, on, distribution, outcomes, **options: As for `regress`. Least squares take the
      samples' own TP, whatever else it may be.
    - scale: ``log``: both are of log TP, so a coefficient is a change of log MPL. ``mpl``: both are
      of TP, as the study's regression is, and the distribution is ``gaussian`` (tobit).

    Returns a row for each coefficient: ``term``; ``naive``, ``naive_low``, ``naive_high``,
    ``naive_p``; the same of ``censored``; ``difference`` (naive - censored); ``ratio`` (naive /
    censored: below 1 where the naive effect has shrunk); ``same_sign``; ``naive_n``,
    ``censored_n``; ``distribution``; ``degrees`` of freedom of the censored interval and p.
    """
    family = _family(scale, distribution)
    plain = naive(samples, on, logarithm=scale == "log", tp=tp, **options)
    full = regress(samples, on, distribution=family, outcomes=outcomes, **options)
    wanted = ["estimate", "low", "high", "p"]
    left = plain.to_frame().set_index("term")[wanted]
    right = full.to_frame().set_index("term")[wanted]
    left.columns = pd.Index(["naive", "naive_low", "naive_high", "naive_p"])
    right.columns = pd.Index(["censored", "censored_low", "censored_high", "censored_p"])
    table = right.join(left)[[*left.columns, *right.columns]].reset_index()
    table["difference"] = table["naive"] - table["censored"]
    table["ratio"] = table["naive"] / table["censored"]
    table["same_sign"] = np.sign(table["naive"]) == np.sign(table["censored"])
    return table.assign(
        naive_n=plain.n,
        censored_n=full.n,
        distribution=full.distribution,
        degrees=full.degrees,
    )


def bias(
    samples: pd.DataFrame,
    on: Sequence[str],
    *,
    truth: Mapping[str, float] | None = None,
    sigma: float | None = None,
    distribution: Distribution = "lognormal",
    mpls: Sequence[float] | None = None,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> pd.DataFrame:
    """Simulate what the naive and the censored regression find when the truth is known.

    Each draw keeps the columns of the samples, draws new thrashing points from the truth, sees them
    through the MPLs that were measured, and fits both regressions.

    - samples, on: Columns to keep. Unless a truth is given, `regress` of these samples is the
      truth.
    - truth: Coefficients by term, ``intercept`` and all of `on`, of log TP (of TP for
      ``gaussian``).
    - sigma: Scale of the error, with `truth`.
    - mpls: MPLs at which each sample is measured; those of the samples' intervals unless given.

    Returns a row for each coefficient: ``term``, ``truth``; ``naive_mean``, ``naive_bias``,
    ``naive_coverage`` (share of intervals that hold the truth); the same of ``censored``;
    ``naive_error``, ``censored_error`` (simulation standard errors of the means);
    ``censored_share``, the mean share of samples that do not thrash; ``draws`` that could be
    fitted.
    """
    checked_distribution(distribution)
    if draws < 2:
        raise SampleError(f"{draws} simulated data sets show no bias", "take 1000")
    plan = design(samples, on)
    if truth is None:
        fit = regress(samples, on, distribution=distribution)
        beta, scale = fit.parameters[:-1], fit.sigma
    else:
        beta, scale = _truth(plan.names, truth, sigma)
    levels = _levels(samples, mpls)
    rng = np.random.default_rng(seed)
    noise = ERRORS[distribution].draw(rng, (draws, len(samples)))
    y = plan.matrix @ beta + scale * noise
    points = y if distribution == "gaussian" else np.exp(y)
    columns = samples[list(on)].reset_index(drop=True)
    drawn = (columns.join(seen(row, levels)) for row in points)
    found = [_both(one, on, distribution, level) for one in drawn]
    kept = np.array([row for row in found if row is not None])  # draws × 2 × terms × 3
    if len(kept) < max(2, draws // 2):
        raise SampleError(
            f"only {len(kept)} of {draws} simulated data sets could be fitted",
            "simulate more samples, or a truth under which more of them thrash",
        )
    share = float((points >= levels[-1]).mean())
    return _summary(plan.names, beta, kept).assign(censored_share=share, draws=len(kept))


def _family(
    scale: Scale, distribution: Distribution | Literal["best"]
) -> Distribution | Literal["best"]:
    if scale == "mpl" and distribution in ("best", "gaussian"):
        return "gaussian"
    if scale == "log" and distribution in ("best", *AFT):
        return distribution
    raise SampleError(
        f"scale={scale!r} with distribution={distribution!r}",
        f"use scale='log' with 'best' or one of {list(AFT)}, or scale='mpl'",
    )


def _truth(
    names: tuple[str, ...], truth: Mapping[str, float], sigma: float | None
) -> tuple[Array, float]:
    if set(truth) != set(names) or sigma is None or not sigma > 0:
        raise SampleError(
            f"the truth has {sorted(truth)} and sigma = {sigma}",
            f"give a coefficient for each of {list(names)}, and sigma above 0",
        )
    return np.array([truth[name] for name in names]), sigma


def _levels(samples: pd.DataFrame, mpls: Sequence[float] | None) -> Array:
    if mpls is None:
        found = intervals(samples)
        ends = np.concatenate([found.low, found.high])
        levels = np.unique(ends[np.isfinite(ends) & (ends > 0)])
    else:
        levels = np.unique(np.asarray(mpls, dtype=np.float64))
    if levels.size < 2 or not (np.isfinite(levels).all() and levels[0] > 0):
        raise SampleError(f"the MPLs are {levels.tolist()}", "give two or more, all above 0")
    return levels


def seen(points: Array, mpls: Array) -> pd.DataFrame:
    """Return TP, low, high and thrashed as a curve measured at these MPLs shows them.

    A point below the second MPL is seen as TP = the first MPL, in the interval from 0 to the
    second: a curve that falls from its first level does not show whether it had held there.
    """
    place = np.searchsorted(mpls[1:], points, side="right")
    ends = np.concatenate([[0.0], mpls[1:], [np.inf]])
    low, high = ends[place], ends[place + 1]
    tp = np.where(np.isinf(high), np.inf, np.where(low > 0, low, mpls[0]))
    return pd.DataFrame({"TP": tp, "low": low, "high": high, "thrashed": np.isfinite(tp)})


def _both(
    drawn: pd.DataFrame, on: Sequence[str], distribution: Distribution, level: float
) -> Array | None:
    """Return the estimate, low and high of each term by both regressions, or None if one fails."""
    try:
        plain = naive(drawn, on, logarithm=distribution != "gaussian", level=level)
        full = regress(drawn, on, distribution=distribution, level=level)
    except AnalysisError:
        return None
    if plain.design.names != full.design.names:
        return None
    wanted = ["estimate", "low", "high"]
    return np.array([plain.to_frame()[wanted], full.to_frame()[wanted]])


def _summary(names: tuple[str, ...], beta: Array, kept: Array) -> pd.DataFrame:
    mean = kept[..., 0].mean(axis=0)
    error = kept[..., 0].std(axis=0, ddof=1) / np.sqrt(len(kept))
    covered = ((kept[..., 1] <= beta) & (beta <= kept[..., 2])).mean(axis=0)
    table = pd.DataFrame({"term": names, "truth": beta})
    for place, which in enumerate(("naive", "censored")):
        table[f"{which}_mean"] = mean[place]
        table[f"{which}_bias"] = mean[place] - beta
        table[f"{which}_coverage"] = covered[place]
        table[f"{which}_error"] = error[place]
    return table
