"""Thrashing points as intervals, checked; and clusters as codes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate_analysis.errors import SampleError, ShapeError

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Intervals:
    """Where the thrashing point of each sample lies: above `low`, up to `high` (inf: unknown).

    `low` is 0 where throughput fell from the first MPL on, so that it is not known to have held
    anywhere (left-censored).
    """

    low: Floats
    high: Floats

    @property
    def thrashed(self) -> Flags:
        """Whether an end is known."""
        return np.isfinite(self.high)

    def take(self, rows: Flags | Codes) -> "Intervals":
        """The intervals of these rows."""
        return Intervals(self.low[rows], self.high[rows])


def columns_there(samples: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise unless there are rows, and every column named."""
    for name in names:
        if name not in samples:
            raise ShapeError(
                f"the samples have no column `{name}`", f"add it, or name one of {list(samples)}"
            )
    if samples.empty:
        raise SampleError("there is no sample", "choose a run with retained batchsets")


def numbers(samples: pd.DataFrame, name: str, *, infinite: bool = False) -> Floats:
    """A column as numbers, none missing, and none infinite unless that means something."""
    columns_there(samples, [name])
    values = pd.to_numeric(samples[name], errors="coerce").to_numpy(dtype=np.float64)
    bad = np.isnan(values) if infinite else ~np.isfinite(values)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise SampleError(
            f"`{name}` of sample {row + 1} is {samples[name].iloc[row]}, which is no number to "
            "compute with",
            "give it a value or leave the sample out",
        )
    return values


def intervals(samples: pd.DataFrame, low: str = "low", high: str = "high") -> Intervals:
    """The interval of each sample's thrashing point."""
    columns_there(samples, [low, high])
    found = Intervals(numbers(samples, low), numbers(samples, high, infinite=True))
    bad = (found.low < 0) | (found.high <= found.low)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise SampleError(
            f"the thrashing point of sample {row + 1} is from {found.low[row]:g} to "
            f"{found.high[row]:g}, no interval of MPLs",
            f"give `{low}` an MPL of at least 0 and `{high}` a greater one, or inf",
        )
    if not (found.low[~found.thrashed] > 0).all():
        raise SampleError(
            f"a sample that never thrashed has `{low}` = 0, and so says nothing",
            f"give `{low}` the largest MPL that was measured, or leave the sample out",
        )
    return found


def some_thrashed(found: Intervals) -> None:
    """Raise when every sample is censored: then no size of effect is in the data."""
    if not found.thrashed.any():
        raise SampleError(
            f"none of the {found.low.size} samples thrashed, so TP cannot be regressed: all that "
            f"is known is that it is at least MPL {found.low.min():g} to {found.low.max():g}",
            "measure larger MPLs until some batchsets thrash",
        )
    if np.ptp(found.low) == 0 and (found.high == found.high[0]).all():
        raise SampleError(
            f"all {found.low.size} thrashing points are from MPL {found.low[0]:g} to "
            f"{found.high[0]:g}, so nothing tells them apart",
            "measure at MPLs between these two, or below",
        )


def clusters(samples: pd.DataFrame, name: str | None) -> Codes | None:
    """The cluster of each sample as 0, 1, …; None when samples are taken as independent."""
    if name is None:
        return None
    columns_there(samples, [name])
    codes, found = pd.factorize(samples[name])
    if (codes < 0).any():
        raise SampleError(f"`{name}` is missing in a sample", "give it a value or leave it out")
    if len(found) < 2:
        raise SampleError(
            f"`{name}` has one value, so nothing is known about how its values differ",
            "estimate without clusters, or add samples of another",
        )
    return codes
