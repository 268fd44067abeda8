"""Multicollinearity: by how much correlation among variables inflates the variance of an effect.

The variance inflation factor of a variable is 1/(1 − R²) of its regression on the others; its root
says by how much the standard error grows. The study asks for √VIF < 2. For a text variable, which
is several 0/1 columns, Fox and Monette's generalised factor is used,

    GVIF = det R₁ · det R₂ / det R,

with R the correlations of all columns, R₁ those of the variable's own and R₂ those of the others;
GVIF^(1/(2·columns)) compares with √VIF, and is √VIF when there is one column.

References
----------
J. Fox, G. Monette, Generalized collinearity diagnostics, JASA 87 (1992) 178–183.
"""

import numpy as np
import pandas as pd

from tidegate_analysis.assumptions._regression import Regression


def inflation(fit: Regression) -> pd.DataFrame:
    """Return the variance inflation factor of each variable.

    Returns
    -------
    pandas.DataFrame
        A row for each variable: ``name``, ``columns`` (number of), ``vif``, ``root`` (√VIF, or its
        like for several columns). One variable alone has 1.

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
