"""Covariances of estimates when samples of one cluster are not independent."""

from typing import Literal

import numpy as np

from tidegate_analysis.censored._samples import Codes, Floats

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
    count = int(codes.max()) + 1
    sums = np.zeros((count, scores.shape[1]))
    np.add.at(sums, codes, scores)
    return np.asarray(bread @ (sums.T @ sums) @ bread * (count / (count - 1)))


def jackknife(without: Floats, estimate: Floats) -> Floats:
    """CV3: from the estimates with each cluster left out, about the estimate with all.

    MacKinnon, Nielsen, Webb (2023), *Cluster-robust inference: A guide to empirical practice*,
    Journal of Econometrics 232, recommend it when clusters are few.
    """
    count = len(without)
    apart = without - estimate
    return np.asarray((count - 1) / count * apart.T @ apart)
