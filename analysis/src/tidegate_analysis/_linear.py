"""The linear core: least squares and logit by statsmodels, with robust and cluster covariances.

Every regression of this package is fitted here. Results are statsmodels' own: `params`, `resid`,
`ssr`, `normalized_cov_params` and so on. The covariances of coefficients b = (X'X)⁻¹X'y with
residuals e, leverages h, k columns and G clusters are

===========  ==================================================  ====================
classical    e'e/(n-k) (X'X)⁻¹                                   t(n-k)
HC3          (X'X)⁻¹ [sum x x' e²/(1-h)²] (X'X)⁻¹                t(n-k)
CR1          (X'X)⁻¹ [sum over groups s s'] (X'X)⁻¹ · c          t(G-1) or fewer
===========  ==================================================  ====================

with s the sum of x e over a group and c = G/(G-1) · (n-1)/(n-k). HC3: MacKinnon and White 1985.
CR1 and its t(G-1): Cameron and Miller 2015, Section VI.

What statsmodels lacks is ours, each where it is used: degrees of freedom of columns that are the
same in all samples of a cluster, and the jackknife over clusters (`_clusters`); the wild cluster
bootstrap (`estimate._wild`); covariances of standardised coefficients (`estimate.regression`); a
random intercept by REML whose variance may be exactly 0 (`estimate._random`: `MixedLM` stops
earlier and warns there); many weightings of the same samples at once (`_weighted`); Firth's
penalty (`censored._logistic`); interval-censored times (`censored._families`); the scalability law.
"""

import warnings
from typing import Any, Literal

import numpy as np
from statsmodels.discrete.discrete_model import Logit
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.sandwich_covariance import cov_cluster
from statsmodels.tools.sm_exceptions import ConvergenceWarning

from tidegate_analysis import _clusters
from tidegate_analysis._columns import Array, Codes, Flags
from tidegate_analysis.errors import SampleError

#: statsmodels has no types.
Fitted = Any


def least_squares(X: Array, y: Array) -> Fitted:
    """Fit y on the columns of X, which have full rank."""
    return OLS(y, X).fit()


def logit(X: Array, y: Flags) -> Fitted:
    """Fit the log-odds of y on the columns of X by maximum likelihood.

    Raises `SampleError`: the likelihood has no maximum that can be found.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = Logit(y.astype(float), X).fit(maxiter=200, tol=1e-10, disp=0)
    if not found.mle_retvals["converged"]:
        raise SampleError(
            "logistic regression did not converge",
            "leave out columns that nearly repeat each other",
        )
    return found


def leverages(fit: Fitted) -> Array:
    """Return the diagonal of the hat matrix."""
    X = fit.model.exog
    found: Array = np.einsum("ij,jk,ik->i", X, fit.normalized_cov_params, X)
    return found


def covariance(
    fit: Fitted, errors: Literal["classical", "hc3", "cluster"], groups: Codes | None = None
) -> Array:
    """Return the covariance of least-squares coefficients: see the module.

    Raises `SampleError`: HC3 is asked for, and a sample alone determines a coefficient.
    """
    if errors == "cluster":
        found = cov_cluster(fit, groups)
    elif errors == "hc3":
        alone = leverages(fit)
        if alone.max() > 1 - 1e-9:
            raise SampleError(
                f"sample {int(alone.argmax()) + 1} alone determines a coefficient, so HC3 errors "
                "do not exist",
                "drop the term that only it has, or use classical errors",
            )
        found = fit.cov_HC3
    else:
        found = fit.cov_params()
    return np.asarray(found, dtype=np.float64)


def sandwich(bread: Array, scores: Array, groups: Codes) -> Array:
    """Return Liang and Zeger's covariance of maximum likelihood, times G/(G-1).

    - bread: The inverse of the information.
    - scores: The gradient of each sample's log-likelihood at the estimate.
    - groups: The cluster of each sample, 0, 1, …
    """
    count = _clusters.count(groups)
    found = cov_cluster((scores, bread), groups, use_correction=False)
    return np.asarray(found * (count / (count - 1)), dtype=np.float64)
