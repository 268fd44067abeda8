"""The regression whose assumptions are checked: least squares with an intercept."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate_analysis.assumptions.inputs import (
    Array,
    codes,
    indicators,
    numbers,
    refuse_unusable,
)
from tidegate_analysis.errors import SampleError, ShapeError


@dataclass(frozen=True)
class Regression:
    """A least-squares regression, and what the checks read of it.

    Attributes
    ----------
    y, X
        The outcome, and the design matrix with its first column of ones.
    names
        Of the columns of X.
    terms
        For each variable, the columns of X that it became: several for a text.
    fitted, residuals, leverage
        Of each sample; leverage is the diagonal of the hat matrix.
    sigma
        Residual standard error, with n − k degrees of freedom.

    """

    y: Array = field(repr=False)
    X: Array = field(repr=False)
    names: tuple[str, ...]
    terms: dict[str, tuple[int, ...]] = field(repr=False)
    groups: npt.NDArray[np.intp] | None = field(default=None, repr=False)
    group_names: tuple[str, ...] = ()
    coefficients: Array = field(init=False)
    fitted: Array = field(init=False, repr=False)
    residuals: Array = field(init=False, repr=False)
    leverage: Array = field(init=False, repr=False)
    basis: Array = field(init=False, repr=False)
    sigma: float = field(init=False)

    def __post_init__(self) -> None:
        """Compute the fit from an orthonormal basis of the columns of X."""
        basis, triangle = np.linalg.qr(self.X)
        projected = basis.T @ self.y
        fitted = basis @ projected
        residuals = self.y - fitted
        residuals = residuals - basis @ (basis.T @ residuals)
        derived = {
            "basis": basis,
            "coefficients": np.linalg.solve(triangle, projected),
            "fitted": fitted,
            "residuals": residuals,
            "leverage": (basis**2).sum(axis=1),
            "sigma": float(np.sqrt(residuals @ residuals / (len(self.y) - self.X.shape[1]))),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def samples(self) -> int:
        """Number of samples, n."""
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
) -> Regression:
    """Fit y on the columns of X and an intercept.

    Parameters
    ----------
    X
        Explanatory variables: a table, or an array with a column for each; without an intercept.
        Text in a table becomes 0/1 columns.
    y
        The outcome; or the name of its column when X is a table that has it.
    names
        The columns to use of a table, or the names of an array's columns.
    groups
        The group of each sample (the DBMS), or the name of its column in X.

    Raises
    ------
    ShapeError
        Lengths differ, or a column is unknown or text where numbers are needed.
    SampleError
        A value is missing or infinite, a column is constant or collinear, samples are too few.

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
    fit = Regression(response, design, ("intercept", *columns), terms, labels, group_names)
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
) -> tuple[npt.NDArray[np.intp] | None, tuple[str, ...]]:
    if groups is None:
        return None, ()
    if isinstance(groups, str):
        labels, names = codes(table, groups)
    else:
        labels, names = codes(pd.DataFrame({"groups": np.asarray(groups)}), "groups")
    if len(labels) != samples:
        raise ShapeError(
            f"groups has {len(labels)} values, y has {samples}", "give the group of each sample"
        )
    return labels, tuple(names)
