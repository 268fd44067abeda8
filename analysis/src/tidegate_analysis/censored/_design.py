"""Samples as intervals of thrashing points and columns of a regression, checked.

A quadratic term is ``(x - mean)²``, so that the linear coefficient beside it is the slope at the
mean. A restricted cubic spline with k knots is linear beyond its outer knots and adds k - 2 columns
``x'``, ``x''``, … to x (Harrell, *Regression Modeling Strategies*, 2nd ed., Section 2.4.5, with his
normalisation by the squared distance of the outer knots and his default quantiles for knots).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd

from tidegate_analysis._columns import Array, Codes, Flags, codes, column, is_numeric, numbers
from tidegate_analysis.censored._families import Candidates
from tidegate_analysis.errors import SampleError


@dataclass(frozen=True)
class Intervals:
    """Where the thrashing point of each sample lies: above `low`, up to `high` (inf: unknown).

    `low` is 0 where throughput fell from the first MPL on, so that it is not known to have held
    anywhere (left-censored).
    """

    low: Array
    high: Array

    @property
    def thrashed(self) -> Flags:
        """Whether an end is known."""
        return np.isfinite(self.high)

    def take(self, rows: Flags | Codes) -> "Intervals":
        return Intervals(self.low[rows], self.high[rows])


def columns_there(samples: pd.DataFrame, names: Sequence[str]) -> None:
    """Raise unless there are rows, and every column named."""
    for name in names:
        column(samples, name)
    if samples.empty:
        raise SampleError("there is no sample", "choose a run with retained batchsets")


def intervals(samples: pd.DataFrame, low: str = "low", high: str = "high") -> Intervals:
    """Return the interval of each sample's thrashing point."""
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


def uncertain(outcomes: pd.DataFrame, samples: int) -> tuple[Intervals, Candidates]:
    """Return the intervals that points of samples may be in, and how far each is favoured.

    - outcomes: `sample`, the place of its sample from 0; `low`, `high`, `prior`, `probability`.
    - samples: How many samples there are.

    Raises `SampleError`: a sample has no outcome, or what it has are no probabilities.
    """
    table = outcomes[outcomes["probability"] > 0].sort_values("sample", kind="stable")
    found = intervals(table)
    sample = numbers(table, "sample").astype(np.intp)
    if not np.array_equal(np.unique(sample), np.arange(samples)):
        raise SampleError(
            f"the outcomes are of other samples than the {samples} that are regressed",
            "give outcomes of these: `Results.outcomes` makes them",
        )
    prior, probability = numbers(table, "prior"), numbers(table, "probability")
    sums = np.bincount(sample, weights=probability)
    if (prior <= 0).any() or (prior > 1).any() or np.abs(sums - 1).max() > 1e-6:
        raise SampleError(
            "`prior` or `probability` of the outcomes are no probabilities",
            "give priors above 0, and probabilities of each sample that are 1 together",
        )
    return found, Candidates(sample, np.log(probability) - np.log(prior))


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
    """Return the cluster of each sample as 0, 1, …; None when samples are taken as independent."""
    if name is None:
        return None
    labels, found = codes(samples, name)
    if len(found) < 2:
        raise SampleError(
            f"`{name}` has one value, so nothing is known about how its values differ",
            "estimate without clusters, or add samples of another",
        )
    return labels


Bend = Literal["quadratic", "spline"]

#: Harrell's Table 2.3: at which quantiles of a column its knots are.
KNOTS: Final[Mapping[int, tuple[float, ...]]] = {
    3: (0.10, 0.50, 0.90),
    4: (0.05, 0.35, 0.65, 0.95),
    5: (0.05, 0.275, 0.5, 0.725, 0.95),
}


@dataclass(frozen=True)
class Term:
    """A column of samples and how it enters: straight, bent, or as dummies of its values."""

    column: str
    bend: Bend | None = None
    centre: float = 0.0
    knots: tuple[float, ...] = ()
    dummies: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Names of the columns in the regression."""
        if self.dummies:
            return [f"{self.column}[{value}]" for value in self.dummies[1:]]
        if self.bend == "quadratic":
            return [self.column, f"{self.column}²"]
        return [self.column + "'" * order for order in range(max(1, len(self.knots) - 1))]

    def columns(self, samples: pd.DataFrame) -> Array:
        """Return the columns in the regression, a row for each sample."""
        if self.dummies:
            texts = samples[self.column].astype(str).to_numpy()
            if (unseen := ~np.isin(texts, self.dummies)).any():
                raise SampleError(
                    f"`{self.column}` is {texts[unseen][0]} in a sample, of which the regression "
                    "has seen none",
                    f"name one of {', '.join(self.dummies)}",
                )
            return np.column_stack([texts == value for value in self.dummies[1:]]).astype(float)
        return self.basis(numbers(samples, self.column))

    def basis(self, x: Array) -> Array:
        """Return the columns at values of a column of numbers."""
        if self.bend == "quadratic":
            return np.column_stack([x, (x - self.centre) ** 2])
        if self.bend == "spline":
            return np.column_stack([x, _spline(x, np.asarray(self.knots))])
        return x[:, None]


@dataclass(frozen=True)
class CensoredDesign:
    """The matrix of a regression, its first column the intercept."""

    terms: tuple[Term, ...]
    names: tuple[str, ...]
    matrix: Array

    def at(self, samples: pd.DataFrame) -> Array:
        """Return the same columns for other samples."""
        columns_there(samples, [term.column for term in self.terms])
        return _matrix(self.terms, samples)

    def standardised(self) -> tuple[Array, Array]:
        """Return the standardised matrix, and the map from its coefficients to those of this."""
        mean, sd = self.matrix.mean(axis=0), self.matrix.std(axis=0)
        mean[0], sd[0] = 0.0, 1.0
        back = np.diag(1 / sd)
        back[0, 1:] = -mean[1:] / sd[1:]
        return (self.matrix - mean) / sd, back

    def positions(self, column: str) -> list[int]:
        """Return where a column of samples is in the matrix."""
        for term in self.terms:
            if term.column == column:
                return [self.names.index(name) for name in term.names]
        raise SampleError(
            f"`{column}` is not in this regression",
            f"name one of {[term.column for term in self.terms]}",
        )


def design(
    samples: pd.DataFrame,
    on: Sequence[str],
    nonlinear: Mapping[str, Bend] | None = None,
    knots: int = 4,
) -> CensoredDesign:
    bends = dict(nonlinear or {})
    if isinstance(on, str) or not on or len(set(on)) != len(on):
        raise SampleError(f"`on` is {on!r}", "give a list of different columns to regress on")
    columns_there(samples, on)
    if set(bends) - set(on):
        raise SampleError(
            f"{sorted(set(bends) - set(on))} is nonlinear, but not in the regression",
            "name it in `on`, too",
        )
    terms = tuple(_term(samples, column, bends.get(column), knots) for column in on)
    names = ("intercept", *(name for term in terms for name in term.names))
    return CensoredDesign(terms, names, _matrix(terms, samples))


def _matrix(terms: tuple[Term, ...], samples: pd.DataFrame) -> Array:
    return np.column_stack([np.ones(len(samples)), *(term.columns(samples) for term in terms)])


def _term(samples: pd.DataFrame, column: str, bend: Bend | None, knots: int) -> Term:
    values = samples[column]
    if values.nunique(dropna=False) < 2:
        raise SampleError(
            f"`{column}` is {values.iloc[0]} in every sample, so its effect cannot be seen",
            "leave it out, or add samples in which it differs",
        )
    if not is_numeric(values):
        if bend is not None or values.isna().any():
            raise SampleError(
                f"`{column}` is a text, {'which cannot bend' if bend else 'missing in a sample'}",
                "take it as it is, and give it a value in each sample",
            )
        return Term(column, dummies=tuple(sorted(values.astype(str).unique())))
    x = numbers(samples, column)
    if bend is None:
        return Term(column)
    return _bent(column, bend, x, knots)


def _bent(column: str, bend: Bend, x: Array, knots: int) -> Term:
    if bend == "quadratic" and np.unique(x).size > 2:
        return Term(column, bend, centre=float(x.mean()))
    if bend == "spline" and knots in KNOTS:
        places = np.unique(np.quantile(x, KNOTS[knots]))
        if places.size == knots:
            return Term(column, bend, knots=tuple(map(float, places)))
    raise SampleError(
        f"`{column}` has {np.unique(x).size} different values, and cannot be bent as {bend!r} "
        f"with {knots} knots",
        f"use 'quadratic' (3 values or more), 'spline' with {min(KNOTS)} to {max(KNOTS)} knots, "
        "or leave it straight",
    )


def _spline(x: Array, knots: Array) -> Array:
    """Harrell's truncated powers, all but the linear column."""
    last, before = knots[-1], knots[-2]
    up = np.maximum(x[:, None] - knots, 0) ** 3
    slopes = (last - knots[:-2]) / (last - before)
    bent = up[:, :-2] - up[:, [-2]] * slopes + up[:, [-1]] * (slopes - 1)
    return np.asarray(bent / (last - knots[0]) ** 2)


def full_rank(found: CensoredDesign, rows: int, parameters: int, what: str = "samples") -> None:
    """Raise when there are too few rows, or a column is a combination of those before it."""
    if rows <= parameters:
        raise SampleError(
            f"{rows} {what} cannot give {parameters} parameters",
            "add samples, or take fewer columns",
        )
    matrix = found.matrix
    scaled = matrix / np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
    fixed = np.abs(np.diag(np.linalg.qr(scaled, mode="r"))) < 1e-9
    if fixed.any():
        name = found.names[int(np.flatnonzero(fixed)[0])]
        raise SampleError(
            f"`{name}` is determined by the columns before it (among these {what}), so their "
            "effects cannot be told apart",
            "leave one of them out",
        )
