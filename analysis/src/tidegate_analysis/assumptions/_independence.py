"""Independence of residuals: Durbin–Watson, for all samples and for each DBMS, and a remedy.

The Durbin–Watson statistic compares each residual with the one before it,

    d = Σ (e_i − e_{i−1})² / Σ e_i²  ≈  2 (1 − r),

where r is their correlation: 2 when there is none, toward 0 when neighbours are alike, toward 4
when they alternate. The order of samples therefore matters: give them in the order in which they
were measured. Its exact distribution depends on X, so the p-value is bootstrapped, as R's
``car::durbinWatsonTest`` does: residuals are drawn with replacement, added to the fitted values,
and the regression is made again.

The study found 1.4 (read) and 1.1 (update) and named the Cochrane–Orcutt estimate as a remedy
(Section 9.2). That estimate takes the residuals for an autoregression e_i = ρ e_{i−1} + u_i, and
regresses y_i − ρ y_{i−1} on x_i − ρ x_{i−1}, again and again until ρ stands still. Here a
group's first sample has no predecessor: differences do not reach across two DBMS. And each DBMS has
an intercept of its own: with a common one, what a DBMS differs by from the others would be in all
its residuals and count as correlation of neighbours, up to a ρ beyond 1. An intercept for each of
few samples makes ρ too small, by about (1 + ρ)/T for T samples a DBMS (Nickell 1981).

Limits. A Durbin–Watson statistic below 2 because DBMS differ from each other is not a matter of
time: the remedy for that is errors clustered by DBMS, or the DBMS as a variable. ρ of 1 and
beyond is refused: errors that grow from sample to sample are a trend, and p would mean nothing.

References
----------
J. Durbin, G. S. Watson, Testing for serial correlation in least squares regression, Biometrika 37
(1950) 409–428 and 38 (1951) 159–178. D. Cochrane, G. H. Orcutt, Application of least squares
regression to relationships containing auto-correlated error terms, JASA 44 (1949) 32–61. J. Fox,
S. Weisberg, An R Companion to Applied Regression. S. Nickell, Biases in dynamic models with fixed
effects, Econometrica 49 (1981) 1417–1426.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from statsmodels.stats.stattools import durbin_watson as statistic_of

from tidegate_analysis._columns import Array, Flags, refuse_unusable
from tidegate_analysis._linear import Fitted, least_squares
from tidegate_analysis.assumptions._regression import CheckedRegression
from tidegate_analysis.errors import AnalysisError, SampleError

#: Cells of a matrix that is held at once.
CELLS = 4_000_000


@dataclass(frozen=True)
class DurbinWatson:
    """A Durbin–Watson statistic.

    - statistic: From 0 to 4; 2 without correlation of neighbours.
    - autocorrelation: Of neighbouring residuals.
    - p: Two-sided, bootstrapped. A multiple of 2/draws; 0 means below that.
    """

    statistic: float
    autocorrelation: float
    p: float
    samples: int


def durbin_watson(
    fit: CheckedRegression,
    *,
    draws: int = 1000,
    seed: int = 0,
    method: Literal["resample", "normal"] = "resample",
) -> DurbinWatson:
    """Test whether neighbouring residuals are correlated.

    - fit: The regression, its samples in the order of their measurement.
    - method: Draw errors from the residuals, or from a normal distribution.
    """
    if draws < 1:
        raise AnalysisError(f"{draws} draws", "ask for at least 100")
    rng = np.random.default_rng(seed)
    observed, pinv = statistic_of(fit.residuals), fit.fit.model.pinv_wexog
    larger = 0
    step = max(1, CELLS // fit.samples)
    for start in range(0, draws, step):
        shape = (fit.samples, min(step, draws - start))
        if method == "resample":
            errors = rng.choice(fit.residuals, size=shape)
        else:
            errors = rng.normal(scale=fit.sigma, size=shape)
        # The fitted values lie in the space of X, so they drop out of the new residuals.
        again = errors - fit.X @ (pinv @ errors)
        larger += int((statistic_of(again) > observed).sum())
    share = larger / draws
    residuals = fit.residuals
    correlation = float(residuals[1:] @ residuals[:-1] / (residuals @ residuals))
    return DurbinWatson(float(observed), correlation, 2 * min(share, 1 - share), fit.samples)


def durbin_watson_by_group(
    fit: CheckedRegression, *, draws: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Return the Durbin–Watson statistic of a regression of each group (DBMS) of its own.

    Variables that do not vary in a group are left out there. A group without a regression of its
    own has NaN, and the problem.

    Returns a row for each group: ``group, samples, statistic, autocorrelation, p``, and
    ``problem``, why it could not be tested, else empty.
    """
    rows = []
    labels = np.zeros(fit.samples, dtype=np.intp) if fit.groups is None else fit.groups
    for number, name in enumerate(fit.group_names):
        inside = labels == number
        row: dict[str, object] = {"group": name, "samples": int(inside.sum())}
        try:
            tested = durbin_watson(_of_group(fit, inside), draws=draws, seed=seed)
            found = ("statistic", "autocorrelation", "p")
            row |= {each: getattr(tested, each) for each in found} | {"problem": ""}
        except SampleError as error:
            row |= {"problem": error.problem}
        rows.append(row)
    columns = ["group", "samples", "statistic", "autocorrelation", "p", "problem"]
    return pd.DataFrame(rows).reindex(columns=columns)


def _of_group(fit: CheckedRegression, inside: Flags) -> CheckedRegression:
    """Return the regression of one group, or why it has none."""
    X, y = fit.X[inside], fit.y[inside]
    varying = [0, *(np.flatnonzero(np.ptp(X[:, 1:], axis=0) > 0) + 1)] if len(X) else [0]
    names = tuple(fit.names[position] for position in varying)
    refuse_unusable(X[:, varying[1:]], names[1:], "its regression")
    if np.ptp(y) <= 1e-12 * np.abs(y).max():
        raise SampleError("the outcome is the same in all its samples", "vary what acts on it")
    part = CheckedRegression(y, X[:, varying], names, {})
    if part.exact:
        raise SampleError(
            f"the outcome follows from {', '.join(names[1:])} without error",
            "collect more samples, in which something is left over",
        )
    return part


@dataclass(frozen=True)
class CochraneOrcutt:
    """A regression corrected for correlated errors.

    - rho: Correlation of neighbouring errors.
    - iterations: Until ρ moved by less than 1e-8.
    - coefficients: A row for each: ``name, estimate, error, t, p``, of the original variables. With
      groups there is an intercept for each that has two samples or more.
    - before, after: Durbin–Watson statistic of the first residuals and of those left, within
      groups.
    """

    rho: float
    iterations: int
    coefficients: pd.DataFrame = field(repr=False)
    before: float
    after: float

    def to_frame(self) -> pd.DataFrame:
        return self.coefficients


def cochrane_orcutt(fit: CheckedRegression, *, iterations: int = 200) -> CochraneOrcutt:
    """Estimate the regression again under errors that follow e_i = ρ e_{i−1} + u_i.

    - fit: The regression. Where it has groups, each has an intercept of its own, and differences
      stay within them: samples of a group are taken in the order given, also when other groups' lie
      between them. A group of one sample has no part in it.

    Raises `SampleError`: ρ does not settle or reaches 1, differences leave too few samples, or a
    variable does not vary within groups.
    """
    series = _series(fit)
    width = series.X.shape[1]
    if series.follows.sum() <= width + 1:
        raise SampleError(
            f"Cochrane–Orcutt leaves {series.follows.sum()} differences for {width} parameters",
            "collect more samples of each group",
        )
    found, rho = _fitted(series.X, series.y), np.inf
    beta, first = found.params, found.resid
    if np.std(first) <= 1e-10 * np.std(series.y):
        raise SampleError(
            "with an intercept for each group the variables predict the outcome without error",
            "collect more samples of each group",
        )
    for number in range(1, iterations + 1):
        errors = series.y - series.X @ beta
        now, before = errors[1:][series.follows], errors[:-1][series.follows]
        last, rho = rho, float(now @ before / (before @ before))
        if abs(rho - last) < 1e-8:
            _refuse_growth(rho, fit.groups is not None)
            return _corrected(series, rho, number, first)
        beta = _fitted(*series.differences(rho)).params
    raise SampleError(
        f"Cochrane–Orcutt has not settled after {iterations} rounds (ρ = {rho:.3f})",
        "look for a trend in the residuals: the model lacks a variable",
    )


@dataclass(frozen=True)
class _Series:
    """Samples group by group, each group with an intercept of its own.

    ``follows`` says of each sample but the first whether the one before it is of its group.
    """

    y: Array
    X: Array
    names: tuple[str, ...]
    follows: Flags

    def differences(self, rho: float) -> tuple[Array, Array]:
        """Return X and y less ρ times those of the sample before in the group."""
        X, y = (of[1:] - rho * of[:-1] for of in (self.X, self.y))
        return X[self.follows], y[self.follows]


def _series(fit: CheckedRegression) -> _Series:
    if fit.groups is None:
        return _Series(fit.y, fit.X, fit.names, np.ones(fit.samples - 1, dtype=np.bool_))
    several = np.flatnonzero(np.bincount(fit.groups) > 1)
    order = np.argsort(fit.groups, kind="stable")
    order = order[np.isin(fit.groups[order], several)]
    labels = fit.groups[order]
    intercepts = (labels[:, None] == several).astype(np.float64)
    names = tuple(f"intercept[{fit.group_names[group]}]" for group in several)
    X = np.column_stack([intercepts, fit.X[order, 1:]])
    return _Series(fit.y[order], X, (*names, *fit.names[1:]), labels[1:] == labels[:-1])


def _refuse_growth(rho: float, grouped: bool) -> None:
    """Refuse ρ of 1 or beyond: such errors have no variance that p-values could be made of."""
    if abs(rho) < 1:
        return
    advice = (
        "look for a trend within the groups, or fit each group by itself: the model lacks a "
        "variable, or the groups differ in more than their level"
        if grouped
        else "if the samples are of groups that differ, such as DBMSs, name them in `groups`, so "
        "that each has an intercept of its own; else look for a trend: the model lacks a variable"
    )
    raise SampleError(
        f"neighbouring errors would be correlated by ρ = {rho:.2f}, and grow from sample to sample",
        advice,
    )


def _fitted(X: Array, y: Array) -> Fitted:
    """Return least squares, where all columns can be told apart."""
    size = np.linalg.norm(X, axis=0)
    if np.linalg.matrix_rank(X / np.where(size > 0, size, 1)) < X.shape[1]:
        raise SampleError(
            "Cochrane–Orcutt cannot tell a variable from the intercepts of the groups",
            "leave out variables that do not vary within groups",
        )
    return least_squares(X, y)


def _corrected(series: _Series, rho: float, iterations: int, first: Array) -> CochraneOrcutt:
    found = _fitted(*series.differences(rho))
    table = pd.DataFrame({"name": series.names, "estimate": found.params, "error": found.bse})
    table["t"], table["p"] = found.tvalues, found.pvalues
    left = found.resid
    before = float((np.diff(first)[series.follows] ** 2).sum() / (first @ first))
    # Of two differences that follow each other, both are of one group.
    same = np.diff(np.flatnonzero(series.follows)) == 1
    after = float((np.diff(left)[same] ** 2).sum() / (left @ left))
    return CochraneOrcutt(rho, iterations, table, before, after)
