"""What the regressions of this folder have in common: tables, tests and curves of coefficients."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis import _clusters
from tidegate_analysis.censored._design import Design, Term
from tidegate_analysis.censored._samples import Codes, Floats
from tidegate_analysis.errors import SampleError


@dataclass(frozen=True)
class Linear:
    """Estimated coefficients of a linear predictor.

    Attributes
    ----------
    design
        The columns and the matrix.
    parameters, covariance
        The coefficients in the order of the design's names; a scale may follow.
    degrees
        Degrees of freedom of Student's t for the interval and test of each coefficient: of
        clusters, see `_clusters.degrees`; inf is the normal.
    level
        Of the confidence intervals.
    n, thrashed
        Number of samples, and of those among them that thrashed.
    clusters
        Number of clusters; None when samples were taken as independent.
    notes
        What a reader must know, in sentences.

    """

    design: Design = field(repr=False)
    parameters: Floats = field(repr=False)
    covariance: Floats = field(repr=False)
    degrees: Floats
    level: float
    n: int
    thrashed: int
    clusters: int | None
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """A row for each coefficient: estimate, se, low, high, p, and the estimate per SD of x."""
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
        """Wald's test of each bent column: that all its q coefficients but the straight one are 0.

        χ² where there are no clusters (F for least squares). A covariance from clusters is an
        estimate on their degrees of freedom, G - 1 or fewer, so there the statistic is Hotelling's,
        F with q and so many less q - 1 (Pustejovsky and Tipton 2018, *Journal of Business &
        Economic Statistics* 36). Columns: ``column``, ``bend``, ``statistic``, ``degrees`` (q),
        ``p``.

        Raises
        ------
        SampleError
            There are no more clusters than coefficients to test, or they say nothing of some.

        """
        bent = [term for term in self.design.terms if term.bend is not None]
        rows = [(term.column, term.bend, *self._bent(term)) for term in bent]
        return pd.DataFrame(rows, columns=["column", "bend", "statistic", "degrees", "p"])

    def _bent(self, term: Term) -> tuple[float, int, float]:
        """The statistic, its degrees of freedom, and p."""
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
        """The curve of a column of numbers: the predictor's change from a reference value.

        Parameters
        ----------
        column
            Name of a column.
        at
            Values of it; 50 evenly over those in the samples unless given.
        reference
            Where the change is 0; the median of the samples unless given.

        Returns
        -------
        DataFrame
            ``column`` (its values), ``change``, ``low``, ``high`` (pointwise).

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

    def _quantile(self, degrees: Floats | float) -> Floats:
        return np.asarray(stats.t.ppf(0.5 + self.level / 2, degrees))

    def _sd(self) -> Floats:
        spread = np.asarray(self.design.matrix.std(axis=0, ddof=1))
        spread[0] = np.nan  # an intercept has no standard deviation
        return spread


def checked_level(level: float) -> float:
    """The level of confidence, when it is one."""
    if not 0 < level < 1:
        raise SampleError(f"the level of confidence is {level}", "give one between 0 and 1: 0.95")
    return level


def _checked(column: str, given: Sequence[float]) -> Floats:
    """Values of a column that a curve is asked for, when they are numbers."""
    asked = pd.Series(np.asarray(given, dtype=object).ravel())
    values = pd.to_numeric(asked, errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(values).all():
        raise SampleError(
            f"`{column}` at {given!r} has no effect to show", "give a list of finite numbers"
        )
    return values


def _wald(values: Floats, covariance: Floats, column: str) -> float:
    """Wald's statistic, where the covariance has one."""
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


def of_coefficients(plan: Design, codes: Codes | None, independent: float) -> Floats:
    """The degrees of freedom of each coefficient, by clusters or of independent samples."""
    if codes is None:
        return np.full(len(plan.names), float(independent))
    return _clusters.degrees(plan.matrix, codes)


def few_clusters(count: int, errors: str) -> tuple[str, ...]:
    """What to say about intervals from so few clusters."""
    if count >= _clusters.FEW:
        return ()
    return (
        f"standard errors are a {errors} over {count} clusters with t on {count - 1} degrees of "
        "freedom, fewer for columns that are the same in all samples of a cluster: with so few, "
        "take intervals as approximate",
    )
