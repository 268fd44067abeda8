"""Samples of censored thrashing points with a known truth."""

import numpy as np
import pandas as pd

from tidegate_analysis import censored

ON = ["numProcs", "PK", "ATPT"]


MPLS = np.arange(100.0, 1001, 100)


def se(fit):
    return np.sqrt(np.diag(fit.covariance))


def design(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "numProcs": rng.choice([1.0, 2, 4, 8], n),
            "PK": rng.integers(0, 2, n),
            "ATPT": np.exp(rng.normal(3, 0.6, n)),
        }
    )


def lognormal(n, seed, centre=6.4, sigma=0.5):
    """Samples of a log-normal truth: 0.05 for each processor, 0.25 for a primary key."""
    x = design(n, seed)
    rng = np.random.default_rng(seed + 1)
    mean = centre + 0.05 * x["numProcs"] + 0.25 * x["PK"] - 0.01 * x["ATPT"]
    points = np.exp(mean.to_numpy() + sigma * rng.standard_normal(n))
    return x.join(censored.seen(points, MPLS))


TAKEN_AS_INDEPENDENT = "samples of a cluster are taken as independent: it is to fail"


def cover_by_cluster(covers, name, found, sets, most):
    """Errors by cluster cover; those that take samples as independent do so at `most`."""
    plain, sandwich, jackknife = found
    covers({f"{name}, none": plain}, sets, 0, most, TAKEN_AS_INDEPENDENT)
    covers({f"{name}, sandwich": sandwich}, sets)
    covers({f"{name}, jackknife": jackknife}, sets)
