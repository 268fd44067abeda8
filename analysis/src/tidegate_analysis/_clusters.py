"""Covariances of estimates when samples of one cluster are not independent of each other.

An estimate moves by what each sample adds to it, its *score* times the inverse of the information.
Samples of one cluster, such as a DBMS, may move it together; so scores are added up by cluster
first, and only the sums are taken as independent (Liang and Zeger 1986)::

    V = A⁻¹ (c · sum over clusters of s s') A⁻¹

Three corrections are in use here, by the names of MacKinnon, Nielsen and Webb (2023). The first two
are computed by statsmodels (`_linear`), which has no jackknife over clusters and gives all
coefficients G-1 degrees of freedom; what it lacks is here:

===========  =====================================================  ==========================
sandwich     c = G/(G-1)                                            of maximum likelihood
CR1          c = G/(G-1) · (n-1)/(n-k)                              of least squares
CV3          no scores: the estimates without each cluster          where clusters are few
===========  =====================================================  ==========================

Limits
------
All three know as much as there are clusters. The sums of scores add up to 0, so the sandwich of G
clusters has rank G - 1 at most, and the jackknife rank G: a single coefficient has an interval
(by Student's t on G - 1 degrees of freedom), but a test of G coefficients at once has not.

Of a column that is the same in all samples of each cluster, as keys are in a run, only the G
clusters tell, as in a regression of their means. So the degrees of freedom of its coefficient are
those of that regression: less than G - 1 by one for each such column (Donald and Lang 2007). Four
clusters that differ in two columns leave 1, not 3; where none is left the columns fit the clusters
exactly, so that standard errors are 0 whatever is true, and `refuse_saturated` says so.

References
----------
K.-Y. Liang, S. L. Zeger, Biometrika 73 (1986) 13-22. S. G. Donald, K. Lang, Inference with
difference-in-differences and other panel data, Review of Economics and Statistics 89 (2007)
221-233. A. C. Cameron, D. L. Miller, A practitioner's guide to cluster-robust inference, Journal of
Human Resources 50 (2015) 317-372. J. G. MacKinnon, M. Ø. Nielsen, M. D. Webb, Cluster-robust
inference: a guide to empirical practice, Journal of Econometrics 232 (2023) 272-299.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tidegate_analysis._columns import Array, Codes
from tidegate_analysis.errors import SampleError

#: Fewer clusters than this are few: results by cluster come with a caution. Cameron and Miller
#: (2015, Section VI) find that few ends somewhere from 20 to 50, the more the less alike they are.
FEW: Final = 30


def count(codes: Codes) -> int:
    """Return how many clusters there are; the codes of samples are 0, 1, 2 …, none left out."""
    return int(codes.max()) + 1


def sums(values: Array, codes: Codes) -> Array:
    """Add up rows by cluster."""
    total = np.zeros((count(codes), values.shape[1]))
    np.add.at(total, codes, values)
    return total


def degrees(matrix: Array, codes: Codes) -> Array:
    """Return the degrees of freedom of each coefficient of a regression on these columns.

    Those of a column that varies within clusters, and those of one that does not, see above; NaN
    where there are none.
    """
    first = matrix[np.unique(codes, return_index=True)[1]]
    is_between = (matrix == first[codes]).all(axis=0)
    free = np.full(matrix.shape[1], count(codes) - 1.0)
    free[is_between] -= (is_between & (np.ptp(matrix, axis=0) > 0)).sum()
    found: Array = np.where(free > 0, free, np.nan)
    return found


def refuse_saturated(free: Array, names: Sequence[str], by: str, clusters: int) -> None:
    """Refuse coefficients for which `degrees` found none.

    - free, names: Degrees of freedom of coefficients, and what they are called.
    - by, clusters: The column of the clusters, and how many there are.
    """
    if without := [f"`{name}`" for name, left in zip(names, free, strict=True) if np.isnan(left)]:
        raise SampleError(
            f"{clusters} clusters by `{by}` leave no degree of freedom for what is the same in all "
            f"samples of each: {', '.join(without)}",
            "add samples of more of them, drop such a column, or take samples as independent",
        )


def jackknife(without: Array, estimate: Array) -> Array:
    """CV3: from the estimates without each cluster, about the estimate with all."""
    clusters = len(without)
    apart = without - estimate
    found: Array = (clusters - 1) / clusters * apart.T @ apart
    return found
