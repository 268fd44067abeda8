"""Points of throughput curves, checked; and tables of many curves."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidegate_analysis.errors import AnalysisError, SampleError, ShapeError
from tidegate_analysis.scalability._least_squares import Floats


@dataclass(frozen=True)
class Curve:
    """Points of a throughput curve, checked and in the order of their MPLs."""

    mpl: Floats
    tps: Floats
    weights: Floats

    @property
    def levels(self) -> Floats:
        """The different MPLs."""
        return np.unique(self.mpl)


def checked(curve: pd.DataFrame, mpl: str, tps: str, weights: str | None) -> Curve:
    """The points of a curve, all positive, at four MPLs or more."""
    points = positive(curve, [mpl, tps, *([] if weights is None else [weights])])
    order = np.argsort(points[:, 0], kind="stable")
    points = points[order]
    weight = np.ones(len(points)) if weights is None else points[:, 2] / points[:, 2].mean()
    found = Curve(points[:, 0], points[:, 1], weight)
    if found.levels.size < 4:
        raise SampleError(
            f"the curve has {found.levels.size} MPLs, and the law three parameters",
            "measure at four MPLs or more, below and above the peak",
        )
    if found.levels[0] < 1:
        raise SampleError(f"an MPL is {found.levels[0]:g}", "MPLs are 1 or more")
    return found


def positive(table: pd.DataFrame, names: Sequence[str]) -> Floats:
    """Columns as numbers, all finite and above 0."""
    for name in names:
        if name not in table:
            raise ShapeError(
                f"the curve has no column `{name}`", f"add it, or name one of {list(table)}"
            )
    as_numbers = [pd.to_numeric(table[name], errors="coerce").to_numpy() for name in names]
    numbers = np.column_stack(as_numbers).astype(np.float64)
    if len(numbers) == 0:
        raise SampleError("the curve has no point", "choose a batchset with executions")
    wrong = np.argwhere(~(np.isfinite(numbers) & (numbers > 0)))
    if wrong.size:
        row, column = map(int, wrong[0])
        raise SampleError(
            f"`{names[column]}` of point {row + 1} is {table[names[column]].iloc[row]}, not a "
            "number above 0",
            "leave out executions that failed, as step 2 of the analysis protocol does",
        )
    return numbers


def each(
    table: pd.DataFrame,
    by: Sequence[str],
    work: Callable[[pd.DataFrame], dict[str, object]],
    columns: Sequence[str],
) -> pd.DataFrame:
    """A row for each group of a table; ``problem`` says why one could not be worked with."""
    names = [by] if isinstance(by, str) else list(by)
    missing = [name for name in names if name not in table]
    if missing or not names:
        raise ShapeError(
            f"the curves have no column {missing}",
            f"name some of {list(table)} that tell them apart",
        )
    if table.empty:
        raise SampleError("there is no curve", "choose a run with retained batchsets")
    rows = []
    for key, group in table.groupby(names, sort=True, dropna=False):
        row: dict[str, object] = dict(zip(names, key, strict=True))
        try:
            row |= work(group) | {"problem": ""}
        except AnalysisError as error:
            row |= {"problem": str(error)}
        rows.append(row)
    return pd.DataFrame(rows).reindex(columns=[*names, *columns, "problem"])


def mpls_of(mpls: Sequence[float] | Floats) -> Floats:
    where = np.asarray(mpls, dtype=np.float64)
    if where.ndim != 1 or where.size == 0 or not (np.isfinite(where) & (where >= 1)).all():
        raise SampleError(f"MPLs are {mpls}", "give a list of numbers, 1 or more")
    return where
