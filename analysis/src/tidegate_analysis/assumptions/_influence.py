"""Outliers: samples without which the regression would be another.

Cook's distance of sample i measures how far all fitted values move when it is left out:

    D_i = e_i² h_i / (k σ̂² (1 − h_i)²)

with leverage h_i, the i-th diagonal element of the hat matrix, and k parameters.

Cut-offs, stated because there is no law behind them: D > 1 counts as an outlier (Cook and Weisberg
1982, p. 118; the study's rule); D > 4/n is worth a look; leverage above 2k/n is high (Hoaglin and
Welsch 1978); a studentised residual beyond ±3 is large.
"""

import numpy as np
import pandas as pd

from tidegate_analysis.assumptions._regression import Regression


def influence(fit: Regression) -> pd.DataFrame:
    """Return what each sample does to the regression, in the order of samples.

    Returns
    -------
    pandas.DataFrame
        ``fitted, residual, leverage, studentised`` (residual over its standard error with the
        sample left out), ``cook``, and yes/no: ``outlier`` (D > 1), ``look`` (D > 4/n),
        ``high_leverage`` (h > 2k/n). A sample of leverage 1, which alone decides a parameter,
        has NaN and counts as an outlier; one without which the fit is exact has an infinite
        studentised residual.

    """
    n, k = fit.samples, fit.parameters
    free = 1 - fit.leverage
    alone = free < 1e-12
    free = np.where(alone, np.nan, free)
    squares = float(fit.residuals @ fit.residuals)
    without = np.sqrt(np.maximum(squares - fit.residuals**2 / free, 0) / (n - k - 1))
    with np.errstate(divide="ignore"):
        studentised = fit.residuals / (without * np.sqrt(free))
    cook = fit.residuals**2 * fit.leverage / (k * fit.sigma**2 * free**2)
    return pd.DataFrame(
        {
            "fitted": fit.fitted,
            "residual": fit.residuals,
            "leverage": fit.leverage,
            "studentised": studentised,
            "cook": cook,
            "outlier": alone | (cook > 1),
            "look": alone | (cook > 4 / n),
            "high_leverage": fit.leverage > 2 * k / n,
        }
    )
