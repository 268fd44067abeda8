"""What holding the MPL at the best measured level gains over letting all clients in.

The level with the largest mean has that mean partly by luck (the winner's curse), so the ratio of
the largest mean to the last one is too large. Here the level is chosen by all repetitions but one,
and measured by the one left out, in turn: its luck had no say. The estimate is therefore of what
holding at the *chosen* level gains, which is a little less than what the truly best one would.

The interval is a bootstrap of that whole procedure, choice included, with residuals of log
throughput drawn from all levels together: three repetitions of one level alone are too few to draw
from. It takes the relative spread of repetitions to be the same at every level, starts from means
shrunk to the spread of the true levels, and is widened from the normal to Student's t. Quantiles of
the error are added as they are (the percentile interval): reflected about the estimate they cover
less, 0.92 to 0.96 in simulations of three shapes of curve where these cover 0.95 to 0.97.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis._columns import Array
from tidegate_analysis.errors import SampleError
from tidegate_analysis.scalability._least_squares import each, positive


@dataclass(frozen=True)
class Gain:
    """Throughput at the best level over throughput with all clients let in.

    - best: The MPL with the largest mean (geometric) throughput.
    - clients: The MPL that stands for letting all in.
    - ratio, low, high: The gain as a factor, free of the winner's curse, with its interval.
    - naive: The largest mean over the mean at `clients`: never below 1.
    - chosen: Share of bootstrap draws that chose `best`: near 1 where the peak is sharp.
    - repetitions: Fewest executions at a level.
    """

    best: float
    clients: float
    ratio: float
    low: float
    high: float
    naive: float
    chosen: float
    repetitions: int

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame([self._row()])

    def __str__(self) -> str:
        return (
            f"MPL held at {self.best:g} instead of {self.clients:g}: {self.ratio:.3g} times the "
            f"throughput ({self.low:.3g} to {self.high:.3g}; by the largest mean {self.naive:.3g})"
        )

    def _row(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class _Folds:
    """Log throughput as repetitions by levels, some of which may share a fold."""

    levels: Array
    place: np.ndarray[tuple[int], np.dtype[np.intp]]
    fold: np.ndarray[tuple[int], np.dtype[np.intp]]
    count: int

    def sums(self, values: Array) -> tuple[Array, Array]:
        """Return sums by level and fold, for each row of values; and how many each sum has."""
        cell = self.place * self.count + self.fold
        size = self.levels.size * self.count
        which = np.zeros((cell.size, size))
        which[np.arange(cell.size), cell] = 1.0
        shape = (self.levels.size, self.count)
        return (values @ which).reshape(-1, *shape), which.sum(axis=0).reshape(shape)


def gain(
    executions: pd.DataFrame,
    *,
    clients: float | None = None,
    mpl: str = "mpl",
    tps: str = "tps",
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Gain:
    """Return the gain of the best measured MPL over letting all clients in.

    - executions: A row for each execution of one batchset, at least two for each MPL.
    - clients: The measured MPL that stands for all clients; the largest unless given. Levels above
      it are left out.

    Raises `SampleError`: one repetition only, one MPL only, or a throughput that is not positive.
    """
    if not 0 < level < 1 or draws < 2:
        raise SampleError(
            f"the level is {level}, the draws {draws}", "give a level between 0 and 1, 1000 draws"
        )
    points = positive(executions, [mpl, tps])
    last = float(points[:, 0].max()) if clients is None else float(clients)
    folds, log = _folds(points, last)
    mean = _means(*folds.sums(log[None]))[0]
    rng = np.random.default_rng(seed)
    residuals = _residuals(log, mean, folds)
    truth = _shrunk(mean, folds, residuals)
    drawn = truth[folds.place] + residuals[rng.integers(0, log.size, (draws, log.size))]
    estimate, _ = _crossed(folds, log[None])
    estimates, choices = _crossed(folds, drawn)
    tail = 0.5 + level / 2
    wider = stats.t.ppf(tail, log.size - mean.size) / stats.norm.ppf(tail)
    error = (estimates - (truth[choices] - truth[-1])) * wider
    ends = estimate[0] + np.quantile(error, [1 - tail, tail])
    best = int(mean.argmax())
    return Gain(
        best=float(folds.levels[best]),
        clients=last,
        ratio=float(np.exp(estimate[0])),
        low=float(np.exp(ends[0])),
        high=float(np.exp(ends[1])),
        naive=float(np.exp(mean[best] - mean[-1])),
        chosen=float((choices == best).mean()),
        repetitions=folds.count,
    )


def gain_all(
    executions: pd.DataFrame,
    by: Sequence[str],
    *,
    mpl: str = "mpl",
    tps: str = "tps",
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the gain of each batchset: the columns of `by`, those of `Gain`, and ``problem``."""
    return each(
        executions,
        by,
        lambda group: gain(group, mpl=mpl, tps=tps, level=level, draws=draws, seed=seed)._row(),
        [field.name for field in fields(Gain)],
    )


def _folds(points: Array, last: float) -> tuple[_Folds, Array]:
    points = points[points[:, 0] <= last]
    points = points[np.argsort(points[:, 0], kind="stable")]
    levels, place, counts = np.unique(points[:, 0], return_inverse=True, return_counts=True)
    if levels.size < 2 or levels[-1] != last:
        raise SampleError(
            f"the MPLs up to {last:g} are {levels.tolist()}",
            "measure at two or more, and let `clients` be one of them",
        )
    if counts.min() < 2:
        raise SampleError(
            f"MPL {levels[counts.argmin()]:g} was executed once, so luck in the best level cannot "
            "be told from gain",
            "give executions, not means, and execute each batch twice or more",
        )
    order = np.arange(place.size) - np.concatenate([[0], np.cumsum(counts)])[place]
    count = int(counts.min())
    return _Folds(levels, place, order % count, count), np.log(points[:, 1])


def _means(sums: Array, counts: Array) -> Array:
    return np.asarray(sums.sum(axis=2) / counts.sum(axis=1))


def _residuals(log: Array, mean: Array, folds: _Folds) -> Array:
    """Return the residuals of all levels, each widened by what its own mean took from it."""
    counts = np.bincount(folds.place)[folds.place]
    return np.asarray((log - mean[folds.place]) * np.sqrt(counts / (counts - 1)))


def _shrunk(mean: Array, folds: _Folds, residuals: Array) -> Array:
    """Return the means with the spread that the true levels have, for the bootstrap to start from.

    Measured means are farther apart than true ones, by their own noise; as they are, draws would
    choose the same level too often.
    """
    noise = float(residuals.var() / np.bincount(folds.place).mean())
    spread = float(mean.var(ddof=1))
    share = max(spread - noise, 0.0) / spread if spread > 0 else 0.0
    return np.asarray(mean.mean() + np.sqrt(share) * (mean - mean.mean()))


def _crossed(
    folds: _Folds, values: Array
) -> tuple[Array, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Return the cross-fitted log gain of each row, and the level that its repetitions choose."""
    sums, counts = folds.sums(values)
    total, number = sums.sum(axis=2, keepdims=True), counts.sum(axis=1, keepdims=True)
    others = (total - sums) / (number - counts)
    measured = sums / counts
    choice = others.argmax(axis=1)[:, None, :]
    at_choice = np.take_along_axis(measured, choice, axis=1)[:, 0, :]
    estimate = (at_choice - measured[:, -1, :]).mean(axis=1)
    return estimate, _means(sums, counts).argmax(axis=1)
