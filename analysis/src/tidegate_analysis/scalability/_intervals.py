"""Intervals of ratios of estimates, which may have no finite end."""

import numpy as np

from tidegate_analysis.scalability._least_squares import Floats


def ratio(
    top: Floats, bottom: Floats, centre: Floats, covariance: Floats, t: float
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
    """The smallest interval that holds what the parts have in [low, high]; None when nothing."""
    kept = [(max(a, low), min(b, high)) for a, b in parts if a <= high and b >= low]
    return (kept[0][0], kept[-1][1]) if kept else None
