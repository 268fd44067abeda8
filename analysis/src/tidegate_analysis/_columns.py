"""Columns of a frame become arrays that can be computed with, or an error that names the column.

Refuses before any number is computed what would make it meaningless: a column that is unknown or
holds text, values that are missing or infinite, columns that are constant or that others add up
to, and fewer samples than a regression has parameters.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate_analysis.errors import SampleError, ShapeError

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

#: A column is a combination of others when what they leave of it is below this share.
_COLLINEAR = 1e-9


def column(table: pd.DataFrame, name: str) -> pd.Series:
    """Return a column.

    Raises `ShapeError`: there is no such column, or there are several.
    """
    if name not in table:
        raise ShapeError(
            f"the samples have no column `{name}`",
            f"add it, or use one of {', '.join(map(str, table.columns))}",
        )
    found = table[name]
    if isinstance(found, pd.DataFrame):
        raise ShapeError(
            f"the samples have {found.shape[1]} columns `{name}`", "rename all but one"
        )
    return found


def numbers(table: pd.DataFrame, name: str, *, infinite: bool = False) -> Array:
    """Return a column as numbers, none of them missing.

    - infinite: Whether an infinite value means something; else it is refused.

    Raises `ShapeError`: there is no such column, or it holds text. Raises `SampleError`: a value is
    missing or infinite.
    """
    values = floats(column(table, name))
    if missing := int(np.isnan(values).sum()):
        raise SampleError(
            f"`{name}` is missing in {missing} of {len(values)} samples", "leave those samples out"
        )
    if not infinite and (without_end := int(np.isinf(values).sum())):
        raise SampleError(
            f"`{name}` is infinite in {without_end} of {len(values)} samples",
            "keep only samples that thrashed and say so, or use the models for censored values "
            "(survival regression, `censored`), which keep all of them",
        )
    return values


def floats(values: pd.Series) -> Array:
    """Return a column as numbers, NaN where one is missing; what is no number is refused."""
    found = np.asarray(pd.to_numeric(values, errors="coerce").astype("float64"), dtype=np.float64)
    text = np.isnan(found) & values.notna().to_numpy()
    if text.any():
        raise ShapeError(
            f"`{values.name}` holds `{values[text].iloc[0]}`, which is no number",
            "give a column of numbers",
        )
    return found


def codes(table: pd.DataFrame, name: str, *, sort: bool = False) -> tuple[Codes, list[str]]:
    """Return the group of each sample as a number from 0, and the names of the groups.

    - table, name: A frame and the column that groups its rows.
    - sort: Whether groups are numbered by name, or as they come.
    """
    labels, names = pd.factorize(column(table, name), sort=sort)
    if missing := int((labels < 0).sum()):
        raise SampleError(f"`{name}` is missing in {missing} samples", "leave those samples out")
    return labels, [str(each) for each in names]


def is_numeric(values: pd.Series) -> bool:
    """Return whether a column holds numbers or yes/no."""
    return bool(pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values))


def indicators(table: pd.DataFrame, name: str) -> tuple[list[str], Array]:
    """Return a column as it enters a regression: numbers as they are, text as 0/1 columns.

    A text of L values becomes L - 1 columns, which compare with the first value in sorted order.
    """
    values = column(table, name)
    if is_numeric(values):
        return [name], numbers(table, name)[:, None]
    labels, levels = codes(table, name, sort=True)
    if len(levels) < 2:
        raise SampleError(
            f"`{name}` is constant ({levels[0]})" if levels else "there are no samples",
            "leave it out, or give samples in which it varies",
        )
    matrix = np.eye(len(levels))[labels][:, 1:]
    return [f"{name}[{level}]" for level in levels[1:]], matrix


def refuse_unusable(matrix: Array, names: Sequence[str], what: str) -> None:
    """Refuse a design matrix that has no unique least-squares solution with an error left over.

    - matrix: Columns of the regression, without the intercept.
    - what: What the regression is, for messages, such as ``regression of TP``.

    Raises `SampleError`: too few samples, or a column that is constant or a linear combination of
    others.
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
    for position in np.flatnonzero(left < _COLLINEAR).tolist():
        before = ", ".join(f"`{each}`" for each in names[:position])
        raise SampleError(
            f"{what}: `{names[position]}` is a linear combination of {before}",
            "leave one of them out: their effects cannot be told apart",
        )


def refuse_level(level: float, name: str = "the level of confidence") -> None:
    """Refuse a level of confidence, or of significance, that is no probability."""
    if not 0 < level < 1:
        raise SampleError(f"{name} is {level}", "give a number between 0 and 1, such as 0.95")


def generator(seed: int) -> np.random.Generator:
    """Return the source of random draws that a seed gives."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise SampleError(f"seed {seed!r}", "give a whole number from 0") from error
