"""The regression whose assumptions are checked: least squares with an intercept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd
from statsmodels.stats.outliers_influence import OLSInfluence

from tidegate_analysis._columns import Array, Codes, codes, indicators, numbers, refuse_unusable
from tidegate_analysis._linear import Fitted, least_squares
from tidegate_analysis.errors import SampleError, ShapeError


@dataclass(frozen=True)
class CheckedRegression:
    """A least-squares regression, and what the checks read of it.

    - y, X: The outcome, and the design matrix with its first column of ones.
    - names: Of the columns of X.
    - terms: For each variable, the columns of X that it became: several for a text.
    - groups, group_names: The group of each sample, where there are groups, and what the groups are
      called.
    """

    y: Array = field(repr=False)
    X: Array = field(repr=False)
    names: tuple[str, ...]
    terms: dict[str, tuple[int, ...]] = field(repr=False)
    groups: Codes | None = field(default=None, repr=False)
    group_names: tuple[str, ...] = ()

    @cached_property
    def fit(self) -> Fitted:
        return least_squares(self.X, self.y)

    @cached_property
    def influence(self) -> OLSInfluence:
        return OLSInfluence(self.fit)

    @property
    def coefficients(self) -> Array:
        return np.asarray(self.fit.params)

    @property
    def fitted(self) -> Array:
        return np.asarray(self.fit.fittedvalues)

    @property
    def residuals(self) -> Array:
        return np.asarray(self.fit.resid)

    @property
    def sigma(self) -> float:
        """Residual standard error, with n - k degrees of freedom."""
        return float(np.sqrt(self.fit.scale))

    @property
    def samples(self) -> int:
        return len(self.y)

    @property
    def exact(self) -> bool:
        """Whether nothing is left over: residuals are rounding errors."""
        return self.sigma <= 1e-10 * float(np.std(self.y))

    @property
    def parameters(self) -> int:
        """Number of coefficients, k, the intercept's included."""
        return int(self.X.shape[1])


def regression(
    X: pd.DataFrame | Array,
    y: pd.Series | Array | str,
    *,
    names: Sequence[str] | None = None,
    groups: pd.Series | npt.NDArray[np.generic] | str | None = None,
) -> CheckedRegression:
    """Fit y on the columns of X and an intercept.

    - X: Explanatory variables: a table, or an array with a column for each; without an intercept.
      Text in a table becomes 0/1 columns.
    - y: The outcome; or the name of its column when X is a table that has it.
    - names: The columns to use of a table, or the names of an array's columns.
    - groups: The group of each sample (the DBMS), or the name of its column in X.

    Raises `ShapeError`: lengths differ, or a column is unknown or text where numbers are needed.
    Raises `SampleError`: a value is missing or infinite, a column is constant or collinear, samples
    are too few.
    """
    table, outcome, label = _table(X, y, names)
    taken = {label, groups if isinstance(groups, str) else None}
    chosen = [each for each in (names or table.columns) if each not in taken]
    response = numbers(outcome, label)
    if len(table) != len(response):
        raise ShapeError(
            f"X has {len(table)} rows, y has {len(response)}", "give a row of X for each value of y"
        )
    columns: list[str] = []
    blocks: list[Array] = []
    terms: dict[str, tuple[int, ...]] = {}
    for each in chosen:
        new, block = indicators(table, each)
        terms[each] = tuple(range(1 + len(columns), 1 + len(columns) + len(new)))
        columns += new
        blocks.append(block)
    matrix = np.hstack(blocks) if blocks else np.empty((len(response), 0))
    refuse_unusable(response[:, None], [label], "regression")
    refuse_unusable(matrix, columns, f"regression of {label}")
    labels, group_names = _groups(table, groups, len(response))
    design = np.column_stack([np.ones(len(response)), matrix])
    fit = CheckedRegression(response, design, ("intercept", *columns), terms, labels, group_names)
    if fit.exact:
        raise SampleError(
            f"the variables predict `{label}` without error", "leave out what defines it"
        )
    return fit


def _table(
    X: pd.DataFrame | Array, y: pd.Series | Array | str, names: Sequence[str] | None
) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    """Return the explanatory variables, a table with the outcome, and the outcome's name."""
    if isinstance(X, pd.DataFrame):
        table = X
    else:
        array = np.asarray(X, dtype=np.float64)
        array = array[:, None] if array.ndim == 1 else array
        labels = list(names) if names else [f"x{i + 1}" for i in range(array.shape[1])]
        if len(labels) != array.shape[1]:
            raise ShapeError(
                f"X has {array.shape[1]} columns, names has {len(labels)}", "name each column"
            )
        table = pd.DataFrame(array, columns=labels)
    if isinstance(y, str):
        return table, table, y
    label = str(y.name) if isinstance(y, pd.Series) and y.name is not None else "y"
    return table, pd.DataFrame({label: np.asarray(y)}), label


def _groups(
    table: pd.DataFrame, groups: pd.Series | npt.NDArray[np.generic] | str | None, samples: int
) -> tuple[Codes | None, tuple[str, ...]]:
    if groups is None:
        return None, ()
    if isinstance(groups, str):
        labels, names = codes(table, groups, sort=True)
    else:
        labels, names = codes(pd.DataFrame({"groups": np.asarray(groups)}), "groups", sort=True)
    if len(labels) != samples:
        raise ShapeError(
            f"groups has {len(labels)} values, y has {samples}", "give the group of each sample"
        )
    return labels, tuple(names)
