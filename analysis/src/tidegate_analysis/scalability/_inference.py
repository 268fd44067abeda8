"""What a fitted law is worth: intervals, goodness of fit, and what the data cannot say."""

from typing import Final

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis._columns import Array
from tidegate_analysis.scalability._least_squares import (
    COHERENCY_ALONE,
    FACES,
    Curve,
    LawFits,
    columns,
    on_face,
)

PARAMETERS: Final = ("lambda", "sigma", "kappa", "peak")
#: The largest value of each; the smallest is 0.
MOST: Final = (np.inf, 1.0, np.inf, np.inf)
_A, _B, _C = np.eye(3)


def parameters(abc: Array) -> Array:
    """Return (λ, σ, κ, N*) for each row of (a, b, c)."""
    a, b, c = abc.T
    rising = np.maximum(a - b, 0.0)
    # 0/0: a flat law has no peak, and one of infinite λ any σ.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.column_stack([1 / a, b / a, c / a, np.sqrt(rising / c)])


def throughput(abc: Array, mpl: float) -> float:
    """Return throughput of the law at an MPL, in the limit at inf; NaN at no MPL."""
    a, b, c = map(float, abc)
    if mpl >= 1 and np.isfinite(mpl):
        return mpl / (a + b * (mpl - 1) + c * mpl * (mpl - 1))
    if np.isinf(mpl):
        return 1 / b if b > 0 else np.inf
    if mpl < 1:
        return 1 / a if a > 0 else np.inf
    return np.nan


def student(level: float, degrees: float) -> float:
    return float(stats.t.ppf(0.5 + level / 2, degrees))


def derivatives(curve: Curve, abc: Array, face: str) -> Array:
    """Return the weighted derivatives of throughput by what is free on the face."""
    below = columns(curve.mpl) @ abc
    turn = columns(curve.mpl) @ np.array(FACES[face]).T
    return np.asarray(turn * (-np.sqrt(curve.weights) * curve.mpl / below**2)[:, None])


def covariance_on(curve: Curve, abc: Array, face: str) -> tuple[Array, int]:
    """Return the covariance of what is free on the face, and its degrees of freedom."""
    slopes = derivatives(curve, abc, face)
    residuals = curve.tps - curve.mpl / (columns(curve.mpl) @ abc)
    degrees = curve.mpl.size - slopes.shape[1]
    variance = float((curve.weights * residuals**2).sum()) / degrees
    scale = np.linalg.norm(slopes, axis=0)
    _, upper = np.linalg.qr(slopes / scale)
    half = np.linalg.pinv(upper) / scale[:, None]
    return np.asarray(half @ half.T * variance), degrees


def intervals_of(curve: Curve, found: LawFits, free: LawFits, level: float) -> pd.DataFrame:
    abc = free.abc[0]
    covariance, degrees = covariance_on(curve, abc, "law")
    t = student(level, degrees)
    half = t * float(np.sqrt(covariance[0, 0]))
    lambda_ = (
        1 / (abc[0] + half) if abc[0] + half > 0 else np.inf,
        1 / (abc[0] - half) if abc[0] > half else np.inf,
    )
    sigma = within(ratio(_B, _A, abc, covariance, t), 0.0, 1.0)
    kappa = within(ratio(_C, _A, abc, covariance, t), 0.0, np.inf)
    square = within(ratio(_A - _B, _C, abc, covariance, t), 0.0, np.inf)
    if square is None:  # no N* agrees: the curve is convex, or falls from the first client on
        square = (np.inf, np.inf) if abc[2] < 0 else (0.0, 0.0)
    face = str(found.face[0])
    if face == COHERENCY_ALONE:
        sigma, kappa = (0.0, 1.0), kappa or (np.inf, np.inf)
    ends = [
        lambda_,
        sigma or ((0.0, 0.0) if abc[1] < 0 else (1.0, 1.0)),
        kappa or (0.0, 0.0),
        (float(np.sqrt(square[0])), float(np.sqrt(square[1]))),
    ]
    estimate = parameters(found.abc)[0]
    return pd.DataFrame(
        {
            "parameter": PARAMETERS,
            "estimate": estimate,
            "se": _errors(curve, found.abc[0], face),
            "low": [min(low, value) for (low, _), value in zip(ends, estimate, strict=True)],
            "high": [max(high, value) for (_, high), value in zip(ends, estimate, strict=True)],
        }
    )


def _errors(curve: Curve, abc: Array, face: str) -> Array:
    """Return the standard errors of (λ, σ, κ, N*) by the delta method; NaN at a bound."""
    if face == COHERENCY_ALONE:
        return np.full(len(PARAMETERS), np.nan)
    a, b, c = map(float, abc)
    turns = [[-1 / a**2, 0, 0], [-b / a**2, 1 / a, 0], [-c / a**2, 0, 1 / a], [np.nan] * 3]
    if c > 0 and a > b:
        peak = np.sqrt((a - b) / c)
        turns[3] = [1 / (2 * peak * c), -1 / (2 * peak * c), -peak / (2 * c)]
    basis = np.array(FACES[face])
    covariance, _ = covariance_on(curve, abc, face)
    turn = np.array(turns) @ basis.T
    variance = np.einsum("ij,jk,ik->i", turn, covariance, turn)
    free = np.array([True, 0 < b < a, c > 0, c > 0 and a > b])
    return np.where(free, np.sqrt(np.maximum(variance, 0)), np.nan)


def r2_of(curve: Curve, squares: float) -> float:
    mean = np.average(curve.tps, weights=curve.weights)
    total = float((curve.weights * (curve.tps - mean) ** 2).sum())
    return 1 - squares / total if total > 0 else np.nan


def criteria(curve: Curve, squares: float) -> dict[str, float]:
    """Return AICc of the law, of Amdahl's and of linear growth, the error's variance counted."""
    row = (curve.mpl, curve.tps[None], curve.weights[None])
    amdahl = on_face("amdahl", *row)
    a, b, _ = amdahl.abc[0]
    within_bounds = [name for name in ("linear", "flat") if not 0 <= b <= a]
    simpler = {name: float(on_face(name, *row).squares[0]) for name in ("linear", *within_bounds)}
    bounded_amdahl = min(simpler.values()) if within_bounds else float(amdahl.squares[0])
    found = {"law": (squares, 3), "amdahl": (bounded_amdahl, 2), "linear": (simpler["linear"], 1)}
    return {name: _aicc(curve.mpl.size, *value) for name, value in found.items()}


def _aicc(points: int, squares: float, parameters: int) -> float:
    count = parameters + 1
    if points - count - 1 <= 0:
        return np.inf
    spread = max(squares / points, 1e-300)
    return float(
        points * np.log(spread) + 2 * count + 2 * count * (count + 1) / (points - count - 1)
    )


def lack_of_fit_p(curve: Curve, squares: float) -> float:
    """Return the F test of the law against a mean of its own for each MPL."""
    pure, rest = _pure(curve)
    if rest == 0 or pure <= 0:
        return np.nan
    return _f_test(squares, pure, curve.levels.size - 3, rest)


def is_flat(curve: Curve, squares: float, free: float) -> bool:
    """Return whether points leave a flat curve by no more than chance.

    What is left of a flat curve is compared with what is left of a mean for each MPL; without
    repetitions, of the law without bounds.
    """
    if squares <= 1e-20 * float((curve.weights * curve.tps**2).sum()):
        return True
    pure, rest = _pure(curve)
    if rest > 0 and pure > 0:
        return _f_test(squares, pure, curve.levels.size - 1, rest) >= 0.05
    return _f_test(squares, free, 2, curve.mpl.size - 3) >= 0.05


def _pure(curve: Curve) -> tuple[float, int]:
    """Return the squares of what is left of a mean for each MPL, and their degrees of freedom."""
    _, place = np.unique(curve.mpl, return_inverse=True)
    weight = np.bincount(place, curve.weights)
    mean = np.bincount(place, curve.weights * curve.tps) / weight
    pure = float((curve.weights * (curve.tps - mean[place]) ** 2).sum())
    return pure, curve.mpl.size - len(weight)


def _f_test(squares: float, less: float, more: int, rest: int) -> float:
    """Return how likely `more` parameters make squares less by chance, with `rest` degrees left."""
    gained = max(squares - less, 0.0) / more
    return float(stats.f.sf(gained / max(less / rest, 1e-300), more, rest))


def flags_of(
    curve: Curve, found: LawFits, free: LawFits, intervals: pd.DataFrame, lack: float
) -> tuple[str, ...]:
    face = str(found.face[0])
    if face == COHERENCY_ALONE:
        flags = [_steepest(curve, found)]
    elif face == "flat":
        flags = [_flat(curve, found, free), *_unknown(curve, intervals)]
    else:
        flags = [*_peak_unlimited(curve, intervals), *_unknown(curve, intervals)]
    if lack < 0.05:
        flags.append(f"the means leave the law by more than chance (lack of fit p = {lack:.2g})")
    return tuple(flags)


def _steepest(curve: Curve, found: LawFits) -> str:
    known = 1 / float(found.abc[0, 2])
    return (
        f"throughput falls at least as fast as the law can, from MPL {curve.levels[0]:g} on, the "
        "smallest measured: λ is not identified, nor are σ and κ, only "
        f"λ/κ = {known:{',.0f' if known >= 1000 else '.3g'}} tps of its steepest curve, "
        "(λ/κ)/(N - 1)"
    )


def _flat(curve: Curve, found: LawFits, free: LawFits) -> str:
    if is_flat(curve, float(found.squares[0]), float(free.squares[0])):
        return "throughput differs between MPLs by no more than chance: no peak is seen"
    return (
        "throughput differs between MPLs by more than chance, and yet no curve of the law is "
        "nearer than a flat one: it is not of the law's form"
    )


def _peak_unlimited(curve: Curve, intervals: pd.DataFrame) -> list[str]:
    """That κ may be 0, where it may."""
    first, (_, _, kappa_low, peak_low) = curve.levels[0], intervals["low"].to_numpy()
    if kappa_low > 0:
        return []
    return [
        "κ may be 0 (no coherency cost seen), so the peak has no finite upper limit: it is "
        + (f"at MPL {peak_low:.0f} or above" if peak_low > first else "anywhere")
    ]


def _unknown(curve: Curve, intervals: pd.DataFrame) -> list[str]:
    """Return what the MPLs measured are too few or too far off for."""
    numbers = intervals[["estimate", "low", "high"]].to_numpy(dtype=np.float64)
    (_, least, most), peak = numbers[0], numbers[3, 0]
    first, last = curve.levels[0], curve.levels[-1]
    flags = []
    if numbers[1, 2] == 0:
        flags.append("throughput grows faster than the number of clients: no law of contention")
    if np.isfinite(peak) and peak > last:
        flags.append(f"the peak is beyond MPL {last:g}, the largest measured: extrapolated")
    if peak < first:
        flags.append(f"the peak is below MPL {first:g}, the smallest measured: extrapolated")
    if most > 10 * least:
        flags.append(
            f"no MPL near 1 was measured (the smallest is {first:g}), so λ and σ are hardly "
            "known apart"
        )
    return flags


def ratio(
    top: Array, bottom: Array, centre: Array, covariance: Array, t: float
) -> list[tuple[float, float]]:
    """Fieller's set for ``top·θ / bottom·θ``: its parts, in order, infinite ends included.

    All values of the ratio that a test at t would not reject: one finite interval where the
    denominator is surely not 0; else everything but an interval, or everything
    (Fieller 1954, JRSS B 16).
    """
    u, v = float(top @ centre), float(bottom @ centre)
    uu, vv = float(top @ covariance @ top), float(bottom @ covariance @ bottom)
    uv = float(top @ covariance @ bottom)
    square, half, rest = v**2 - t**2 * vv, -(u * v - t**2 * uv), u**2 - t**2 * uu
    inside = half**2 - square * rest
    if square == 0 or inside < 0:
        return [(-np.inf, np.inf)]
    roots = sorted([(-half - np.sqrt(inside)) / square, (-half + np.sqrt(inside)) / square])
    if square > 0:
        return [(roots[0], roots[1])]
    return [(-np.inf, roots[0]), (roots[1], np.inf)]


def within(parts: list[tuple[float, float]], low: float, high: float) -> tuple[float, float] | None:
    """Return the smallest interval that holds what the parts have in [low, high], or None."""
    kept = [(max(a, low), min(b, high)) for a, b in parts if a <= high and b >= low]
    return (kept[0][0], kept[-1][1]) if kept else None
