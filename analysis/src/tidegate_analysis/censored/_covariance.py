"""Covariances of estimates by maximum likelihood, by cluster or not."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from tidegate_analysis import _clusters
from tidegate_analysis.censored._samples import Codes, Floats
from tidegate_analysis.errors import SampleError

Robust = Literal["sandwich", "jackknife"]


def inverse(information: Floats) -> Floats:
    """The covariance that an information matrix gives."""
    return np.linalg.inv(information).astype(np.float64)


def sandwich(bread: Floats, scores: Floats, codes: Codes) -> Floats:
    """Liang and Zeger's sandwich with sums of scores by cluster, times G/(G - 1).

    Parameters
    ----------
    bread
        The inverse of the information.
    scores
        The gradient of each sample's log-likelihood at the estimate.
    codes
        The cluster of each sample, 0, 1, …

    """
    return np.asarray(bread @ _clusters.meat(scores, codes) @ bread)


def jackknife(without: Callable[[Codes], Floats], estimate: Floats, codes: Codes) -> Floats:
    """CV3: from the estimates with each cluster left out, about the estimate with all.

    Parameters
    ----------
    without
        The estimate from these rows alone.
    estimate
        That from all.
    codes
        The cluster of each sample, 0, 1, …

    """
    kept = (np.flatnonzero(codes != code) for code in range(_clusters.count(codes)))
    return _clusters.jackknife(np.array([without(rows) for rows in kept]), estimate)


def checked_errors(errors: Robust) -> Robust:
    """The standard errors by cluster, when there are some of this name."""
    if errors not in ("sandwich", "jackknife"):
        raise SampleError(
            f"there are no standard errors {errors!r}", "use 'jackknife' or 'sandwich'"
        )
    return errors
