"""Equal variance of residuals: Breusch–Pagan, and the score test of non-constant variance.

All three ask whether squared residuals can be predicted. Breusch and Pagan (1979) regress
e²/σ̂² (σ̂² = Σe²/n) on the explanatory variables; half the explained sum of squares is χ² with as
many degrees of freedom as there are variables, if errors are normal. Koenker (1981) studentises
it: n·R² of that regression, which needs no normality, and is R's default (``lmtest::bptest``). The
score test of Cook and Weisberg (1983), ``car::ncvTest``, which the study used, takes the fitted
values as the only predictor: it sees variance that grows with the level of y, with one degree of
freedom.

References
----------
T. S. Breusch, A. R. Pagan, Econometrica 47 (1979) 1287–1294. R. Koenker, J. Econometrics 17 (1981)
107–112. R. D. Cook, S. Weisberg, Biometrika 70 (1983) 1–10.
"""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from tidegate_analysis.assumptions._regression import Regression
from tidegate_analysis.assumptions.inputs import Array
from tidegate_analysis.errors import SampleError


@dataclass(frozen=True)
class VarianceTest:
    """A χ² test of equal variance: statistic, degrees of freedom, p-value."""

    statistic: float
    freedom: int
    p: float


def breusch_pagan(fit: Regression, *, studentised: bool = True) -> VarianceTest:
    """Test whether the variance of residuals depends on the explanatory variables.

    Parameters
    ----------
    fit
        The regression.
    studentised
        Koenker's version, which does not need normal errors; else the original.

    """
    freedom = fit.parameters - 1
    if freedom == 0:
        raise SampleError(
            "the regression has no explanatory variable", "give one to predict the variance from"
        )
    explained, total = _explained(fit, fit.basis)
    statistic = fit.samples * explained / total if studentised else explained / 2
    return VarianceTest(statistic, freedom, float(stats.chi2.sf(statistic, freedom)))


def non_constant_variance(fit: Regression) -> VarianceTest:
    """Test whether the variance of residuals depends on the fitted values (``car::ncvTest``)."""
    if np.ptp(fit.fitted) == 0:
        raise SampleError("all fitted values are equal", "give variables that explain something")
    basis = np.linalg.qr(np.column_stack([np.ones(fit.samples), fit.fitted]))[0]
    statistic = _explained(fit, basis)[0] / 2
    return VarianceTest(statistic, 1, float(stats.chi2.sf(statistic, 1)))


def _explained(fit: Regression, basis: Array) -> tuple[float, float]:
    """Return the explained and the total sum of squares of e²/σ̂² on the columns of a basis."""
    scaled = fit.residuals**2 / np.mean(fit.residuals**2) - 1
    predicted = basis.T @ scaled
    return float(predicted @ predicted), float(scaled @ scaled)
