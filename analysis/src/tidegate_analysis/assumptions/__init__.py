"""Whether a linear regression may be believed: its five assumptions, each tested and explained.

The study tests independence of residuals (Durbin–Watson), equal variance (score test),
multicollinearity (√VIF), outliers (Cook's distance) and normality (histogram), Section 9.2.
`check` does all of that for a table and names of columns, `regression` makes the fit that single
tests take.

>>> import numpy as np
>>> rng = np.random.default_rng(7)
>>> X = rng.normal(size=(120, 2))
>>> checks = check(X, X @ [3.0, 1.0] + rng.normal(size=120), names=["numProcs", "ATPT"])
>>> [each.verdict for each in checks if each.assumption == "no multicollinearity"]
['holds']
"""

from tidegate_analysis.assumptions._checks import Check, Checks, check
from tidegate_analysis.assumptions._independence import (
    CochraneOrcutt,
    DurbinWatson,
    cochrane_orcutt,
    durbin_watson,
    durbin_watson_by_group,
)
from tidegate_analysis.assumptions._regression import CheckedRegression, regression
from tidegate_analysis.assumptions._tests import (
    NormalityTest,
    VarianceTest,
    breusch_pagan,
    histogram,
    inflation,
    influence,
    jarque_bera,
    non_constant_variance,
    quantiles,
    shapiro_wilk,
)

__all__ = [
    "Check",
    "CheckedRegression",
    "Checks",
    "CochraneOrcutt",
    "DurbinWatson",
    "NormalityTest",
    "VarianceTest",
    "breusch_pagan",
    "check",
    "cochrane_orcutt",
    "durbin_watson",
    "durbin_watson_by_group",
    "histogram",
    "inflation",
    "influence",
    "jarque_bera",
    "non_constant_variance",
    "quantiles",
    "regression",
    "shapiro_wilk",
]
