"""Logistic regression on whether a batchset thrashes at all.

With few DBMSes a column, or several together, often tell thrashing perfectly. Then maximum
likelihood has no finite estimate. Firth's penalty, half the logarithm of the determinant of the
information (Jeffreys' prior), always has one, and takes the first-order bias away besides (Firth
1993, *Biometrika* 80; Heinze and Schemper 2002, *Statistics in Medicine* 21, for separation and for
intervals by the profile of the penalised likelihood).

statsmodels fits the likelihood, and has neither the penalty, its profile nor a test of
separation: these are ours.

Samples of one DBMS are not independent: with clusters, errors are by jackknife (CV3) or sandwich,
see `_clusters`. Both learn from how clusters differ. Where a column tells thrashing perfectly they
do not differ: the scores of Firth's likelihood nearly vanish, all of them, and its estimate hardly
moves without a cluster, so that either would give an interval of hardly any width around a number
that the penalty chose. There intervals are by the profile, which takes samples as independent, and
a note says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Unpack

import numpy as np
import pandas as pd
from scipy import optimize, special, stats

from tidegate_analysis import _clusters
from tidegate_analysis._columns import Array, Codes, Flags, numbers
from tidegate_analysis._linear import logit, sandwich
from tidegate_analysis.censored._design import CensoredDesign, clusters, design, full_rank
from tidegate_analysis.censored._predictor import (
    CensoredKeywords,
    CensoredOptions,
    LinearPredictor,
    few_clusters,
    jackknife,
    of_coefficients,
)
from tidegate_analysis.errors import SampleError

Method = Literal["auto", "ml", "firth"]


@dataclass(frozen=True)
class Logistic(LinearPredictor):
    """Logistic regression on thrashing.

    - method: ``ml`` or ``firth``: what was used.
    - loglik: Log-likelihood, penalised for ``firth``.
    - separated: Columns of the regression that together tell thrashing perfectly, or for some
      samples.
    - profile: For ``firth``: low, high and p of each coefficient by its profile.
    """

    method: Literal["ml", "firth"]
    loglik: float
    separated: tuple[str, ...]
    profile: Array | None = field(repr=False)

    @property
    def aic(self) -> float:
        """2 × parameters - 2 × `loglik`."""
        return 2 * len(self.parameters) - 2 * self.loglik

    def to_frame(self) -> pd.DataFrame:
        """As `LinearPredictor`, and odds ratios ``odds``, ``odds_low``, ``odds_high``."""
        table = super().to_frame()
        if self.profile is not None:
            table[["low", "high", "p"]] = self.profile
        with np.errstate(over="ignore"):
            odds = np.exp(table[["estimate", "low", "high"]].to_numpy())
        table[["odds", "odds_low", "odds_high"]] = odds
        return table

    def probability(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Return the probability that such samples thrash: ``probability``, ``low``, ``high``."""
        x = self.design.at(samples)
        found = special.expit(self._about(x @ self.parameters, x))
        return pd.DataFrame(found, columns=["probability", "low", "high"], index=samples.index)

    def __str__(self) -> str:
        """Return the table under a line about the whole, and the notes."""
        head = f"thrashes, {self.method}: {self.n} samples, {self.thrashed} thrashed"
        table = self.to_frame().to_string(index=False, float_format="{:.4g}".format)
        return "\n".join([head, table, *self.notes])


@dataclass(frozen=True)
class _Penalised:
    """Firth's penalised likelihood at some coefficients."""

    parameters: Array
    loglik: float
    information: Array
    gradient: Array


def thrashes(
    samples: pd.DataFrame,
    on: Sequence[str],
    *,
    method: Method = "auto",
    thrashed: str = "thrashed",
    **options: Unpack[CensoredKeywords],
) -> Logistic:
    """Regress whether a batchset thrashes on columns.

    - samples: A row for each batchset: `shapes.SAMPLES`, or any frame with the columns named.
    - on: As for `regress`.
    - method: ``ml`` is maximum likelihood, an error at perfect separation; ``firth`` is Firth's
      penalised likelihood; ``auto`` is ``ml``, and ``firth`` at perfect separation with a note of
      it.
    - thrashed: Column of yes/no.
    - **options: As for `regress`. With ``firth`` samples are taken as independent whatever
      `cluster` says, and a note says so.

    Raises `SampleError`: all samples thrash, or none; separation with ``ml``, or without one of the
    clusters; a constant or redundant column.
    """
    chosen = CensoredOptions(**options)
    y = _outcome(samples, thrashed)
    plan = design(samples, on, chosen.nonlinear, chosen.knots)
    full_rank(plan, len(samples), len(plan.names))
    codes = clusters(samples, chosen.cluster)
    apart = separated(plan, y)
    used = _method(method, apart)
    scaled, back = plan.standardised()
    profile = None
    notes = _notes(apart, used)
    if used == "firth":
        best = _newton(scaled, y)
        parameters, covariance = back @ best.parameters, np.linalg.inv(best.information)
        profile, codes = _profiles(plan, y, parameters, chosen.level), None
        notes += _not_clustered(chosen.cluster)
        loglik = _penalised(plan.matrix, y, parameters).loglik
    else:
        fit = logit(scaled, y)
        parameters, covariance, loglik = back @ fit.params, fit.cov_params(), float(fit.llf)
        if codes is not None:
            if chosen.errors == "sandwich":
                covariance = sandwich(covariance, fit.model.score_obs(fit.params), codes)
            else:
                covariance = jackknife(partial(_without, scaled, y), fit.params, codes)
            notes += few_clusters(_clusters.count(codes), chosen.errors)
    return Logistic(
        design=plan,
        parameters=parameters,
        covariance=back @ covariance @ back.T,
        degrees=of_coefficients(plan, codes, np.inf),
        level=chosen.level,
        thrashed=int(y.sum()),
        clusters=None if codes is None else _clusters.count(codes),
        notes=notes,
        method=used,
        loglik=loglik,
        separated=apart,
        profile=profile,
    )


def _without(matrix: Array, y: Flags, rows: Codes) -> Array:
    """Return the coefficients from these rows alone, by maximum likelihood."""
    matrix, y = matrix[rows], y[rows]
    redundant = np.linalg.matrix_rank(matrix) < matrix.shape[1]
    if redundant or y.all() or not y.any() or any(_directions(matrix, y)):
        raise SampleError(
            "with one cluster left out, a column is constant, or thrashing is told perfectly: that "
            "cluster alone decides a coefficient",
            "leave out the column that it decides, or estimate without clusters and say so",
        )
    return np.asarray(logit(matrix, y).params)


def _not_clustered(cluster: str | None) -> tuple[str, ...]:
    if cluster is None:
        return ()
    return (
        f"samples are taken as independent, not by `{cluster}`: Firth's likelihood has no errors "
        f"by cluster, and as far as samples of one `{cluster}` are alike, intervals are too narrow "
        "and p too small",
    )


def separated(plan: CensoredDesign, y: Flags) -> tuple[str, ...]:
    """Return the columns that tell y perfectly, or for some samples, by a linear programme.

    Some β with ``xβ >= 0`` wherever y and ``xβ <= 0`` elsewhere, not all 0, means that maximum
    likelihood diverges along it (Albert and Anderson 1984; Konis 2007).
    """
    scaled, _ = plan.standardised()
    if not any(_directions(scaled, y)):
        return ()
    for term in plan.terms:
        places = plan.positions(term.column)
        if any(_directions(scaled[:, [0, *places]], y)):
            return tuple(term.names)
    used = _directions(scaled, y)[1:]
    return tuple(name for name, is_used in zip(plan.names[1:], used, strict=True) if is_used)


def _directions(matrix: Array, y: Flags) -> list[bool]:
    """Return which coefficients maximum likelihood takes to infinity; none where it is finite."""
    signed = np.where(y, 1.0, -1.0)[:, None] * matrix
    found = optimize.linprog(
        -signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(len(y)), bounds=(-1, 1), method="highs"
    )
    if found.x is None or float(signed.sum(axis=0) @ found.x) < 1e-7:
        return [False] * matrix.shape[1]
    return [bool(used) for used in np.abs(found.x) > 1e-7]


def _outcome(samples: pd.DataFrame, name: str) -> Flags:
    values = numbers(samples, name)
    if not np.isin(values, [0, 1]).all():
        raise SampleError(f"`{name}` is neither yes nor no in a sample", "make it true or false")
    if values.min() == values.max():
        all_or_none = "all" if values.all() else "none"
        raise SampleError(
            f"{all_or_none} of the {len(values)} samples thrash, so nothing tells them apart",
            "add samples that do and samples that do not",
        )
    return np.asarray(values == 1)


def _method(method: Method, apart: tuple[str, ...]) -> Literal["ml", "firth"]:
    if method not in ("auto", "ml", "firth"):
        raise SampleError(f"there is no method {method!r}", "use 'auto', 'ml' or 'firth'")
    if method == "ml" and apart:
        raise SampleError(
            f"{', '.join(apart)} tell perfectly which samples thrash, or for some of them: maximum "
            "likelihood has no finite estimate",
            "use method='firth', or leave them out",
        )
    return "firth" if method == "firth" or apart else "ml"


def _notes(apart: tuple[str, ...], used: str) -> tuple[str, ...]:
    if not apart:
        return ()
    return (
        f"perfect separation by {', '.join(apart)}: estimates are Firth's ({used}), and the size "
        "of these effects depends on his penalty; their direction does not",
    )


def _penalised(matrix: Array, y: Flags, at: Array) -> _Penalised:
    """Firth's likelihood, its gradient, and the information at these coefficients."""
    z = matrix @ at
    p = special.expit(z)
    weights = p * special.expit(-z)
    information = (matrix * weights[:, None]).T @ matrix
    try:
        root = np.linalg.cholesky(information)
    except np.linalg.LinAlgError:
        return _Penalised(at, -np.inf, information, (y - p) @ matrix)
    leverage = weights * (np.linalg.solve(root, matrix.T) ** 2).sum(axis=0)
    loglik = float(special.log_expit(np.where(y, z, -z)).sum() + np.log(np.diag(root)).sum())
    return _Penalised(at, loglik, information, (y - p + leverage * (0.5 - p)) @ matrix)


def _newton(
    matrix: Array, y: Flags, free: Codes | None = None, start: Array | None = None
) -> _Penalised:
    """Return the maximum over the free coefficients, by Newton's method with halved steps."""
    at = np.zeros(matrix.shape[1]) if start is None else start.copy()
    free = np.arange(at.size) if free is None else free
    state = _penalised(matrix, y, at)
    for _ in range(200):
        gradient = state.gradient[free]
        if free.size == 0 or np.abs(gradient).max() < 1e-9:
            return state
        curvature = _curvature(matrix, y, state, free)
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        step *= min(1.0, 5 / max(np.abs(step).max(), 1e-300))
        for halvings in range(30):
            there = at.copy()
            there[free] += step * 0.5**halvings
            found = _penalised(matrix, y, there)
            if found.loglik > state.loglik:
                break
        else:
            return state  # no step gains: the maximum, as far as arithmetic sees
        at, state = there, found
    raise SampleError(
        "logistic regression did not converge", "leave out columns that nearly repeat each other"
    )


def _curvature(matrix: Array, y: Flags, state: _Penalised, free: Codes) -> Array:
    """Return minus the Hessian of the penalised likelihood, from differences of its gradient.

    The information alone leaves the penalty out, and converges slowly where that is what there is.
    Where the Hessian is not definite the information is the safe one.
    """
    width = 1e-5
    rows = []
    for place in free:
        turn = np.zeros_like(state.parameters)
        turn[place] = width
        ahead = _penalised(matrix, y, state.parameters + turn).gradient[free]
        behind = _penalised(matrix, y, state.parameters - turn).gradient[free]
        rows.append((behind - ahead) / (2 * width))
    hessian = np.array(rows)
    hessian = (hessian + hessian.T) / 2
    definite = bool(np.isfinite(hessian).all()) and np.linalg.eigvalsh(hessian)[0] > 0
    return hessian if definite else state.information[np.ix_(free, free)]


def _profiles(plan: CensoredDesign, y: Flags, estimate: Array, level: float) -> Array:
    """Return low, high and p of each coefficient by the profile of the penalised likelihood."""
    spread = plan.matrix.std(axis=0)
    spread[0] = 1.0  # scaled, but not centred: the intercept keeps its meaning
    profile = _Profile(plan.matrix / spread, y, estimate * spread)
    limit = float(stats.chi2.ppf(level, 1)) / 2
    found = np.array([profile.ends(place, limit) for place in range(estimate.size)])
    found[:, :2] /= spread[:, None]
    return found


class _Profile:
    """By how much the penalised likelihood falls when one coefficient is held.

    Followed outwards from the maximum, each fit starting at the one before: far out the penalised
    likelihood can have other maxima.
    """

    def __init__(self, matrix: Array, y: Flags, best: Array) -> None:
        self._matrix, self._y, self._best = matrix, y, best
        top = _penalised(matrix, y, best)
        self._top, self._last = top.loglik, best
        self._widths = np.sqrt(np.diag(np.linalg.pinv(top.information)))

    def ends(self, place: int, limit: float) -> tuple[float, float, float]:
        """Return where the fall reaches the limit on either side, and the p value of 0."""
        self._last = self._best
        for part in np.linspace(1, 0, 6)[1:]:
            fall = self._fall(place, float(part * self._best[place]))
        p = float(stats.chi2.sf(2 * max(fall, 0.0), 1))
        return self._end(place, limit, -1.0), self._end(place, limit, 1.0), p

    def _fall(self, place: int, value: float) -> float:
        """Return the fall with this coefficient at this value, and all others at their best."""
        start = self._last.copy()
        start[place] = value
        others = np.delete(np.arange(start.size), place)
        fit = _newton(self._matrix, self._y, others, start)
        self._last = fit.parameters
        return self._top - fit.loglik

    def _end(self, place: int, limit: float, side: float) -> float:
        """Return where the fall passes the limit, by the Illinois method on its square root.

        A try that passes the limit is forgotten: the next begins at the last one inside.
        """
        self._last = self._best
        best, width = float(self._best[place]), side * float(self._widths[place])
        inner, outer, before = 0.0, 1.0, 0.0
        below, above = -np.sqrt(limit), np.nan
        for _ in range(80):
            share = 1.0 if np.isnan(above) else np.clip(below / (below - above), 0.02, 0.98)
            middle = inner + share * (outer - inner)
            inside = self._last
            gap = np.sqrt(max(self._fall(place, best + middle * width), 0.0)) - np.sqrt(limit)
            if abs(gap) < 1e-8 or outer - inner < 1e-9:
                return best + middle * width
            if gap < 0:
                above = above / 2 if before < 0 else above
                inner, below = middle, gap
                outer = 1.5 * outer if np.isnan(above) else outer
            else:
                below = below / 2 if before > 0 else below
                outer, above, self._last = middle, gap, inside
            before = 0.0 if np.isnan(above) else gap
        return side * np.inf
