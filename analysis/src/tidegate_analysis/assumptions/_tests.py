"""Tests of one assumption each: multicollinearity, outliers, equal variance, normality.

Multicollinearity
-----------------
The variance inflation factor of a variable is 1/(1 - R²) of its regression on the others; its root
says by how much the standard error grows. The study asks for √VIF < 2. For a text variable, which
is several 0/1 columns, Fox and Monette's (1992) generalised factor is used, which statsmodels
lacks,

    GVIF = det R₁ · det R₂ / det R,

with R the correlations of all columns, R₁ those of the variable's own and R₂ those of the others;
GVIF^(1/(2·columns)) compares with √VIF, and is √VIF when there is one column.

Outliers
--------
Cook's distance of sample i measures how far all fitted values move when it is left out:

    D_i = e_i² h_i / (k σ̂² (1 - h_i)²)

with leverage h_i, the i-th diagonal element of the hat matrix, and k parameters. Cut-offs, stated
because there is no law behind them: D > 1 counts as an outlier (Cook and Weisberg 1982, p. 118; the
study's rule); D > 4/n is worth a look; leverage above 2k/n is high (Hoaglin and Welsch 1978); a
studentised residual beyond ±3 is large.

Equal variance
--------------
All tests ask whether squared residuals can be predicted. Breusch and Pagan (1979) regress e²/σ̂²
(σ̂² = Σe²/n) on the explanatory variables; half the explained sum of squares is χ² with as many
degrees of freedom as there are variables, if errors are normal. Koenker (1981) studentises it:
n·R² of that regression, which needs no normality, and is R's default (``lmtest::bptest``). The
score test of Cook and Weisberg (1983), ``car::ncvTest``, which the study used, takes the fitted
values as the only predictor: it sees variance that grows with the level of y, with one degree of
freedom.

Normality
---------
Shapiro and Wilk's W (1965; Royston's 1995 algorithm) is the stronger test and takes from 3 to 5,000
values, R's limit too; Jarque and Bera's (1980) looks at skewness and kurtosis only and has no
limit, but its χ² distribution is one of large samples: below 2,000 or so it rejects too seldom.
With many samples both find departures that do no harm, which is why the study looked at a picture
(Fig. 7): the histogram with the normal curve over it. The Q–Q picture shows the tails better.

References
----------
T. S. Breusch, A. R. Pagan, Econometrica 47 (1979) 1287–1294. R. Koenker, J. Econometrics 17 (1981)
107–112. R. D. Cook, S. Weisberg, Biometrika 70 (1983) 1–10. J. Fox, G. Monette, Generalized
collinearity diagnostics, JASA 87 (1992) 178–183.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats
from statsmodels.stats.diagnostic import het_breuschpagan

from tidegate_analysis.assumptions._regression import CheckedRegression
from tidegate_analysis.errors import AnalysisError, SampleError

#: Beyond it, the p-value of Shapiro–Wilk is an extrapolation.
SHAPIRO_LIMIT = 5000


@dataclass(frozen=True)
class VarianceTest:
    """A χ² test of equal variance: statistic, degrees of freedom, p-value."""

    statistic: float
    freedom: int
    p: float


@dataclass(frozen=True)
class NormalityTest:
    """A test of normality: statistic and p-value."""

    statistic: float
    p: float


def inflation(fit: CheckedRegression) -> pd.DataFrame:
    """Return the variance inflation factor of each variable.

    Returns a row for each variable: ``name``, ``columns`` (number of), ``vif``, ``root`` (√VIF, or
    its like for several columns). One variable alone has 1.
    """
    rows = []
    columns = fit.X[:, 1:]
    correlations = np.atleast_2d(np.corrcoef(columns, rowvar=False))
    everything = np.linalg.slogdet(correlations)[1] if columns.shape[1] else 0.0
    for name, positions in fit.terms.items():
        own = np.array(positions) - 1
        others = np.setdiff1d(np.arange(columns.shape[1]), own)
        parts = [np.linalg.slogdet(correlations[np.ix_(each, each)])[1] for each in (own, others)]
        factor = float(np.exp(sum(parts) - everything))
        rows.append((name, len(own), factor, factor ** (1 / (2 * len(own)))))
    return pd.DataFrame(rows, columns=["name", "columns", "vif", "root"])


def influence(fit: CheckedRegression) -> pd.DataFrame:
    """Return what each sample does to the regression, in the order of samples.

    Returns the columns ``fitted, residual, leverage, studentised`` (residual over its standard
    error with the sample left out), ``cook``, and yes/no: ``outlier`` (D > 1), ``look`` (D > 4/n),
    ``high_leverage`` (h > 2k/n). A sample of leverage 1, which alone decides a parameter, has NaN
    and counts as an outlier; one without which the fit is exact has an infinite studentised
    residual.
    """
    n, k = fit.samples, fit.parameters
    leverage = np.asarray(fit.influence.hat_matrix_diag)
    alone = 1 - leverage < 1e-12
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(alone, np.nan, fit.influence.resid_studentized_internal)
        # What is left of the variance without the sample: statsmodels fits it n times.
        studentised = inner * np.sqrt((n - k - 1) / np.maximum(n - k - inner**2, 0))
        cook = np.where(alone, np.nan, fit.influence.cooks_distance[0])
    return pd.DataFrame(
        {
            "fitted": fit.fitted,
            "residual": fit.residuals,
            "leverage": leverage,
            "studentised": studentised,
            "cook": cook,
            "outlier": alone | (cook > 1),
            "look": alone | (cook > 4 / n),
            "high_leverage": leverage > 2 * k / n,
        }
    )


def breusch_pagan(fit: CheckedRegression, *, studentised: bool = True) -> VarianceTest:
    """Test whether the variance of residuals depends on the explanatory variables.

    - studentised: Koenker's version, which does not need normal errors; else the original.
    """
    if fit.parameters == 1:
        raise SampleError(
            "the regression has no explanatory variable", "give one to predict the variance from"
        )
    found = het_breuschpagan(fit.residuals, fit.X, robust=studentised)
    return VarianceTest(float(found[0]), fit.parameters - 1, float(found[1]))


def non_constant_variance(fit: CheckedRegression) -> VarianceTest:
    """Test whether the variance of residuals depends on the fitted values (``car::ncvTest``)."""
    if np.ptp(fit.fitted) == 0:
        raise SampleError("all fitted values are equal", "give variables that explain something")
    columns = np.column_stack([np.ones(fit.samples), fit.fitted])
    found = het_breuschpagan(fit.residuals, columns, robust=False)
    return VarianceTest(float(found[0]), 1, float(found[1]))


def shapiro_wilk(fit: CheckedRegression) -> NormalityTest:
    """Test whether residuals are normal; 3 to 5,000 samples."""
    if not 3 <= fit.samples <= SHAPIRO_LIMIT:
        raise SampleError(
            f"Shapiro–Wilk takes 3 to {SHAPIRO_LIMIT} samples, not {fit.samples}",
            "use jarque_bera, and the Q–Q picture",
        )
    found = stats.shapiro(fit.residuals)
    return NormalityTest(float(found.statistic), float(found.pvalue))


def jarque_bera(fit: CheckedRegression) -> NormalityTest:
    """Test whether residuals have the skewness and the kurtosis of a normal distribution."""
    found = stats.jarque_bera(fit.residuals)
    return NormalityTest(float(found.statistic), float(found.pvalue))


def histogram(fit: CheckedRegression, *, bins: int | str = "fd") -> pd.DataFrame:
    """Return the histogram of residuals with the normal curve of their mean and deviation.

    - bins: Their number, or a rule of `numpy.histogram_bin_edges`; ``fd`` is Freedman and
      Diaconis'.

    Returns a row for each bin: ``left, right, count, density``, and ``normal``, the normal density
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


def quantiles(fit: CheckedRegression) -> pd.DataFrame:
    """Return the points of the normal Q–Q picture, as R's ``qqnorm`` and ``qqline`` place them.

    Returns a row for each sample, ascending: ``theoretical`` (normal quantile), ``residual``, and
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
