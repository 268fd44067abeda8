"""Tables and names of columns become arrays that a regression can be computed from, or an error.

Whatever would make a regression meaningless is refused here, before any number is computed, with
the column named: unknown, missing, infinite, constant, a linear combination of others, more
parameters than samples.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate_analysis.errors import SampleError, ShapeError

Array: TypeAlias = npt.NDArray[np.floating]

#: A column is a combination of others when what they leave of it is below this share.
COLLINEAR = 1e-9


def numbers(table: pd.DataFrame, name: str) -> Array:
    """Return a column as finite numbers.

    Raises
    ------
    ShapeError
        There is no such column, or it holds text.
    SampleError
        A value is missing or infinite.

    """
    given = column(table, name)
    values = pd.to_numeric(given, errors="coerce").astype("float64").to_numpy()
    text = np.isnan(values) & given.notna().to_numpy()
    if text.any():
        raise ShapeError(
            f"column `{name}` holds `{given[text].iloc[0]}`, which is no number",
            "give a column of numbers",
        )
    for what, wrong in (("missing", np.isnan(values)), ("infinite", np.isinf(values))):
        if wrong.any():
            raise SampleError(
                f"`{name}` is {what} in {int(wrong.sum())} of {len(values)} samples",
                "leave those samples out; a TP of inf (never thrashed) is a censored value, for "
                "which there is survival regression",
            )
    return values


def column(table: pd.DataFrame, name: str) -> pd.Series:
    """Return a column, or an error that lists those that there are."""
    if name not in table:
        there = ", ".join(str(each) for each in table.columns)
        raise ShapeError(f"there is no column `{name}`", f"choose one of {there}")
    found = table[name]
    if isinstance(found, pd.DataFrame):
        raise ShapeError(f"there are {found.shape[1]} columns `{name}`", "rename all but one")
    return found


def indicators(table: pd.DataFrame, name: str) -> tuple[list[str], Array]:
    """Return a column as it enters a regression: numbers as they are, text as 0/1 columns.

    A text of L values becomes L − 1 columns, which compare with the first value in sorted order.
    """
    values = column(table, name)
    if pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return [name], numbers(table, name)[:, None]
    if values.isna().any():
        raise SampleError(
            f"`{name}` is missing in {int(values.isna().sum())} samples", "leave those samples out"
        )
    levels = sorted(values.astype(str).unique())
    if len(levels) < 2:
        raise SampleError(
            f"`{name}` is constant ({levels[0]})" if levels else "there are no samples",
            "leave it out, or give samples in which it varies",
        )
    matrix = (values.astype(str).to_numpy()[:, None] == np.array(levels[1:])).astype(np.float64)
    return [f"{name}[{level}]" for level in levels[1:]], matrix


def codes(table: pd.DataFrame, name: str) -> tuple[npt.NDArray[np.intp], list[str]]:
    """Return each sample's group as a number from 0, and the names of the groups."""
    values = column(table, name)
    if values.isna().any():
        raise SampleError(
            f"`{name}` is missing in {int(values.isna().sum())} samples", "leave those samples out"
        )
    labels, names = pd.factorize(values, sort=True)
    return labels, [str(each) for each in names]


def refuse_unusable(matrix: Array, names: Sequence[str], what: str) -> None:
    """Refuse a design matrix that has no unique least-squares solution with an error left over.

    Parameters
    ----------
    matrix
        Columns of the regression, without the intercept.
    names
        Their names.
    what
        What the regression is, for messages, such as ``regression of TP``.

    Raises
    ------
    SampleError
        Too few samples, or a column that is constant or a linear combination of others.

    """
    samples, width = matrix.shape
    if samples < width + 3:
        raise SampleError(
            f"{what} has {width + 1} parameters, but there are only {samples} samples",
            f"collect at least {width + 3} samples, or leave variables out",
        )
    centred = matrix - matrix.mean(axis=0)
    size = np.linalg.norm(centred, axis=0)
    for name, spread, largest in zip(names, size, np.abs(matrix).max(axis=0), strict=True):
        if spread <= 1e-12 * max(float(largest), 1e-300) * np.sqrt(samples):
            raise SampleError(f"{what}: `{name}` is constant", "leave it out, or vary it")
    if width == 0:
        return
    left = np.abs(np.diag(np.linalg.qr(centred / size, mode="r")))
    for position in np.flatnonzero(left < COLLINEAR).tolist():
        before = ", ".join(f"`{each}`" for each in names[:position])
        raise SampleError(
            f"{what}: `{names[position]}` is a linear combination of {before}",
            "leave one of them out: their effects cannot be told apart",
        )
