"""Normality of residuals: two tests, and the data of the two pictures.

Shapiro and Wilk's W (1965; Royston's 1995 algorithm) is the stronger test and takes from 3 to 5,000
values, R's limit too; Jarque and Bera's (1980) looks at skewness and kurtosis only and has no
limit, but its χ² distribution is one of large samples: below 2,000 or so it rejects too seldom.
With many samples both find departures that do no harm, which is why the study looked at a picture
(Fig. 7): the histogram with the normal curve over it. The Q–Q picture shows the tails better.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis.assumptions._regression import Regression
from tidegate_analysis.errors import AnalysisError, SampleError

#: Beyond it, the p-value of Shapiro–Wilk is an extrapolation.
SHAPIRO_LIMIT = 5000


@dataclass(frozen=True)
class NormalityTest:
    """A test of normality: statistic and p-value."""

    statistic: float
    p: float


def shapiro_wilk(fit: Regression) -> NormalityTest:
    """Test whether residuals are normal; 3 to 5,000 samples."""
    if not 3 <= fit.samples <= SHAPIRO_LIMIT:
        raise SampleError(
            f"Shapiro–Wilk takes 3 to {SHAPIRO_LIMIT} samples, not {fit.samples}",
            "use jarque_bera, and the Q–Q picture",
        )
    found = stats.shapiro(fit.residuals)
    return NormalityTest(float(found.statistic), float(found.pvalue))


def jarque_bera(fit: Regression) -> NormalityTest:
    """Test whether residuals have the skewness and the kurtosis of a normal distribution."""
    found = stats.jarque_bera(fit.residuals)
    return NormalityTest(float(found.statistic), float(found.pvalue))


def histogram(fit: Regression, *, bins: int | str = "fd") -> pd.DataFrame:
    """Return the histogram of residuals with the normal curve of their mean and deviation.

    Parameters
    ----------
    fit
        The regression.
    bins
        Their number, or a rule of `numpy.histogram_bin_edges`; ``fd`` is Freedman and Diaconis'.

    Returns
    -------
    pandas.DataFrame
        A row for each bin: ``left, right, count, density``, and ``normal``, the normal density
        at its middle.

    """
    if isinstance(bins, int) and bins < 1:
        raise AnalysisError(f"{bins} bins", "ask for one at least")
    counts, edges = np.histogram(fit.residuals, bins=bins)
    width = np.diff(edges)
    middle = edges[:-1] + width / 2
    return pd.DataFrame(
        {
            "left": edges[:-1],
            "right": edges[1:],
            "count": counts,
            "density": counts / (counts.sum() * width),
            "normal": stats.norm.pdf(middle, scale=np.std(fit.residuals, ddof=1)),
        }
    )


def quantiles(fit: Regression) -> pd.DataFrame:
    """Return the points of the normal Q–Q picture, as R's ``qqnorm`` and ``qqline`` place them.

    Returns
    -------
    pandas.DataFrame
        A row for each sample, ascending: ``theoretical`` (normal quantile), ``residual``, and
        ``line``, the height of the line through both quartiles.

    """
    n = fit.samples
    shift = 3 / 8 if n <= 10 else 1 / 2
    theoretical = stats.norm.ppf((np.arange(1, n + 1) - shift) / (n + 1 - 2 * shift))
    low, high = np.quantile(fit.residuals, [0.25, 0.75])
    slope = (high - low) / (stats.norm.ppf(0.75) - stats.norm.ppf(0.25))
    line = (low + high) / 2 + slope * theoretical
    return pd.DataFrame(
        {"theoretical": theoretical, "residual": np.sort(fit.residuals), "line": line}
    )
