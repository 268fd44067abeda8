"""What the regressions of this folder have in common: options, tables, tests, curves of columns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis import _clusters
from tidegate_analysis._columns import Array, Codes, refuse_level
from tidegate_analysis.censored._design import Bend, CensoredDesign, Term
from tidegate_analysis.errors import SampleError

Robust = Literal["sandwich", "jackknife"]


class CensoredKeywords(TypedDict, total=False):
    """The fields of `CensoredOptions` as keywords; what is not given has its default."""

    nonlinear: Mapping[str, Bend] | None
    knots: int
    cluster: str | None
    errors: Robust
    low: str
    high: str
    level: float


@dataclass(frozen=True)
class CensoredOptions:
    """How thrashing points are regressed.

    - nonlinear: Columns that are bent, such as ``{"ATPT": "spline"}``; see
      `LinearPredictor.nonlinearity`.
    - knots: Number of knots of a spline, 3 to 5.
    - cluster: Column whose values are clusters, such as ``dbms``; None takes samples as
      independent.
    - errors: Standard errors with clusters: ``jackknife`` (CV3: a fit without each cluster) or
      ``sandwich`` (Liang and Zeger's, times G/(G - 1)). Both with t on clusters - 1 degrees of
      freedom, or fewer for columns that vary between clusters only; see `_clusters`.
    - low, high: Columns of the interval that holds TP; `high` is inf where no fall was seen.
    """

    nonlinear: Mapping[str, Bend] | None = None
    knots: int = 4
    cluster: str | None = None
    errors: Robust = "jackknife"
    low: str = "low"
    high: str = "high"
    level: float = 0.95

    def __post_init__(self) -> None:
        """Refuse a level that is no probability, and unknown errors."""
        refuse_level(self.level)
        if self.errors not in ("sandwich", "jackknife"):
            raise SampleError(
                f"there are no standard errors {self.errors!r}", "use 'jackknife' or 'sandwich'"
            )


@dataclass(frozen=True)
class LinearPredictor:
    """Estimated coefficients of a linear predictor.

    - design: The columns and the matrix.
    - parameters, covariance: The coefficients in the order of the design's names; a scale may
      follow.
    - degrees: Degrees of freedom of Student's t for the interval and test of each coefficient: of
      clusters, see `_clusters.degrees`; inf is the normal.
    - thrashed: Number of samples that thrashed.
    - clusters: Number of clusters; None when samples were taken as independent.
    - notes: What a reader must know, in sentences.
    """

    design: CensoredDesign = field(repr=False)
    parameters: Array = field(repr=False)
    covariance: Array = field(repr=False)
    degrees: Array
    level: float
    thrashed: int
    clusters: int | None
    notes: tuple[str, ...]

    @property
    def n(self) -> int:
        return len(self.design.matrix)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each coefficient: term, estimate, se, low, high, p, per_sd."""
        count = len(self.design.names)
        estimate = self.parameters[:count]
        se = np.sqrt(np.diag(self.covariance)[:count])
        half = self._quantile(self.degrees) * se
        with np.errstate(divide="ignore", invalid="ignore"):
            p = 2 * stats.t.sf(np.abs(estimate / se), self.degrees)
        return pd.DataFrame(
            {
                "term": self.design.names,
                "estimate": estimate,
                "se": se,
                "low": estimate - half,
                "high": estimate + half,
                "p": p,
                "per_sd": estimate * self._sd(),
            }
        )

    def nonlinearity(self) -> pd.DataFrame:
        """Test for each bent column that all its q coefficients but the straight one are 0 (Wald).

        χ² where there are no clusters (F for least squares). A covariance from clusters is an
        estimate on their degrees of freedom, G - 1 or fewer, so there the statistic is Hotelling's,
        F with q and so many less q - 1 (Pustejovsky and Tipton 2018, *Journal of Business &
        Economic Statistics* 36). Columns: ``column``, ``bend``, ``statistic``, ``degrees`` (q),
        ``p``.

        Raises `SampleError`: there are no more clusters than coefficients to test, or they say
        nothing of some.
        """
        bent = [term for term in self.design.terms if term.bend is not None]
        rows = [(term.column, term.bend, *self._bent(term)) for term in bent]
        return pd.DataFrame(rows, columns=["column", "bend", "statistic", "degrees", "p"])

    def _bent(self, term: Term) -> tuple[float, int, float]:
        """Return the statistic, its degrees of freedom, and p."""
        places = self.design.positions(term.column)[1:]
        count, free = len(places), float(self.degrees[places].min())
        if self.clusters is not None and not count <= free:
            raise SampleError(
                f"{self.clusters} clusters cannot test the {count} bent columns of `{term.column}` "
                "at once",
                "bend it as 'quadratic' or with fewer knots, or estimate without clusters",
            )
        wald = _wald(self.parameters[places], self.covariance[np.ix_(places, places)], term.column)
        if not np.isfinite(free):
            return wald, count, float(stats.chi2.sf(wald, count))
        if self.clusters is not None:
            wald *= (free - count + 1) / free
            free -= count - 1
        return wald / count, count, float(stats.f.sf(wald / count, count, free))

    def effect(
        self, column: str, at: Sequence[float] | None = None, reference: float | None = None
    ) -> pd.DataFrame:
        """Return the curve of a column of numbers: the predictor's change from a reference value.

        - at: Values of it; 50 evenly over those in the samples unless given.
        - reference: Where the change is 0; the median of the samples unless given.

        Returns the columns ``column`` (its values), ``change``, ``low``, ``high`` (pointwise).
        """
        places = self.design.positions(column)
        term = next(term for term in self.design.terms if term.column == column)
        if term.dummies:
            raise SampleError(f"`{column}` is a text", "read its coefficients: it has no curve")
        x = self.design.matrix[:, places[0]]
        values = np.linspace(x.min(), x.max(), 50) if at is None else _checked(column, at)
        zero = np.array([np.median(x)]) if reference is None else _checked(column, [reference])
        turn = term.basis(values) - term.basis(zero)
        change = turn @ self.parameters[places]
        block = self.covariance[np.ix_(places, places)]
        least = self._quantile(self.degrees[places].min())
        half = least * np.sqrt(np.einsum("ij,jk,ik->i", turn, block, turn))
        return pd.DataFrame(
            {column: values, "change": change, "low": change - half, "high": change + half}
        )

    def _about(self, value: Array, turn: Array) -> Array:
        """Return values, and the ends of their intervals by the delta method, as three columns."""
        variance = np.einsum("ij,jk,ik->i", turn, self.covariance, turn)
        half = self._quantile(self.degrees.min()) * np.sqrt(variance)
        return np.column_stack([value, value - half, value + half])

    def _quantile(self, degrees: Array | float) -> Array:
        return np.asarray(stats.t.ppf(0.5 + self.level / 2, degrees))

    def _sd(self) -> Array:
        spread = np.asarray(self.design.matrix.std(axis=0, ddof=1))
        spread[0] = np.nan  # an intercept has no standard deviation
        return spread


def _checked(column: str, given: Sequence[float]) -> Array:
    """Return values of a column that a curve is asked for, when they are numbers."""
    asked = pd.Series(np.asarray(given, dtype=object).ravel())
    values = pd.to_numeric(asked, errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise SampleError(
            f"`{column}` at {given!r} has no effect to show", "give a list of finite numbers"
        )
    return values


def _wald(values: Array, covariance: Array, column: str) -> float:
    """Return Wald's statistic, where the covariance has one."""
    sd = np.sqrt(np.diag(covariance))
    correlation = covariance / np.maximum(np.outer(sd, sd), 1e-300)
    if np.linalg.eigvalsh(correlation)[0] < 1e-9:
        raise SampleError(
            f"the bent columns of `{column}` have no covariance that a test could use: some of "
            "them, together, are the same in each cluster",
            "bend it as 'quadratic' or with fewer knots, or estimate without clusters",
        )
    scaled = values / sd
    return float(scaled @ np.linalg.solve(correlation, scaled))


def of_coefficients(plan: CensoredDesign, codes: Codes | None, independent: float) -> Array:
    """Return the degrees of freedom of each coefficient, by clusters or of independent samples."""
    if codes is None:
        return np.full(len(plan.names), float(independent))
    return _clusters.degrees(plan.matrix, codes)


def few_clusters(count: int, errors: str) -> tuple[str, ...]:
    """Return what to say about intervals from so few clusters."""
    if count >= _clusters.FEW:
        return ()
    return (
        f"standard errors are a {errors} over {count} clusters with t on {count - 1} degrees of "
        "freedom, fewer for columns that are the same in all samples of a cluster: with so few, "
        "take intervals as approximate",
    )


def jackknife(without: Callable[[Codes], Array], estimate: Array, codes: Codes) -> Array:
    """CV3: from the estimates with each cluster left out, about the estimate with all.

    - without: The estimate from these rows alone.
    - estimate: That from all.
    - codes: The cluster of each sample, 0, 1, …
    """
    kept = (np.flatnonzero(codes != code) for code in range(_clusters.count(codes)))
    return _clusters.jackknife(np.array([without(rows) for rows in kept]), estimate)
