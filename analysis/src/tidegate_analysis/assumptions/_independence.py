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
group's first sample has no predecessor: differences do not reach across two DBMS.

Limits. A Durbin–Watson statistic below 2 because DBMS differ from each other is not a matter of
time: the remedy for that is errors clustered by DBMS, or the DBMS as a variable.

References
----------
J. Durbin, G. S. Watson, Testing for serial correlation in least squares regression, Biometrika 37
(1950) 409–428 and 38 (1951) 159–178. D. Cochrane, G. H. Orcutt, Application of least squares
regression to relationships containing auto-correlated error terms, JASA 44 (1949) 32–61. J. Fox,
S. Weisberg, An R Companion to Applied Regression.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from tidegate_analysis.assumptions._regression import Regression
from tidegate_analysis.assumptions.inputs import Array, refuse_unusable
from tidegate_analysis.errors import AnalysisError, SampleError

#: Positions of samples, or yes/no for each.
Rows: TypeAlias = npt.NDArray[np.intp | np.bool_]

#: Cells of a matrix that is held at once.
CELLS = 4_000_000


@dataclass(frozen=True)
class DurbinWatson:
    """A Durbin–Watson statistic.

    Attributes
    ----------
    statistic
        From 0 to 4; 2 without correlation of neighbours.
    autocorrelation
        Of neighbouring residuals.
    p
        Two-sided, bootstrapped. A multiple of 2/draws; 0 means below that.
    samples
        Number of residuals.

    """

    statistic: float
    autocorrelation: float
    p: float
    samples: int


def durbin_watson(
    fit: Regression,
    *,
    draws: int = 1000,
    seed: int = 0,
    method: Literal["resample", "normal"] = "resample",
) -> DurbinWatson:
    """Test whether neighbouring residuals are correlated.

    Parameters
    ----------
    fit
        The regression, its samples in the order of their measurement.
    draws
        Number of bootstrap draws.
    seed
        Of the draws.
    method
        Draw errors from the residuals, or from a normal distribution.

    """
    if draws < 1:
        raise AnalysisError(f"{draws} draws", "ask for at least 100")
    rng = np.random.default_rng(seed)
    observed = _statistic(fit.residuals[:, None])[0]
    larger = 0
    step = max(1, CELLS // fit.samples)
    for start in range(0, draws, step):
        shape = (fit.samples, min(step, draws - start))
        if method == "resample":
            errors = rng.choice(fit.residuals, size=shape)
        else:
            errors = rng.normal(scale=fit.sigma, size=shape)
        # The fitted values lie in the space of X, so they drop out of the new residuals.
        again = errors - fit.basis @ (fit.basis.T @ errors)
        larger += int((_statistic(again) > observed).sum())
    share = larger / draws
    residuals = fit.residuals
    correlation = float(residuals[1:] @ residuals[:-1] / (residuals @ residuals))
    return DurbinWatson(float(observed), correlation, 2 * min(share, 1 - share), fit.samples)


def durbin_watson_by_group(fit: Regression, *, draws: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Return the Durbin–Watson statistic of a regression of each group (DBMS) of its own.

    Variables that do not vary in a group are left out there. A group with too few samples has NaN.

    Returns
    -------
    pandas.DataFrame
        A row for each group: ``group, samples, statistic, autocorrelation, p``.

    """
    rows = []
    labels = np.zeros(fit.samples, dtype=np.intp) if fit.groups is None else fit.groups
    for number, name in enumerate(fit.group_names):
        inside = labels == number
        tested = _of_group(fit, inside, draws, seed)
        rows.append(
            {
                "group": name,
                "samples": int(inside.sum()),
                "statistic": tested.statistic if tested else np.nan,
                "autocorrelation": tested.autocorrelation if tested else np.nan,
                "p": tested.p if tested else np.nan,
            }
        )
    columns = ["group", "samples", "statistic", "autocorrelation", "p"]
    return pd.DataFrame(rows, columns=columns)


def _of_group(fit: Regression, inside: Rows, draws: int, seed: int) -> DurbinWatson | None:
    X = fit.X[inside]
    varying = [0, *(np.flatnonzero(np.ptp(X[:, 1:], axis=0) > 0) + 1)] if len(X) else [0]
    names = tuple(fit.names[position] for position in varying)
    try:
        refuse_unusable(X[:, varying[1:]], names[1:], "regression of a group")
        refuse_unusable(fit.y[inside][:, None], ["y"], "regression of a group")
    except SampleError:
        return None
    part = Regression(fit.y[inside], X[:, varying], names, {})
    return None if part.exact else durbin_watson(part, draws=draws, seed=seed)


def _statistic(residuals: Array) -> Array:
    """Durbin–Watson statistic of each column."""
    found: Array = (np.diff(residuals, axis=0) ** 2).sum(axis=0) / (residuals**2).sum(axis=0)
    return found


@dataclass(frozen=True)
class CochraneOrcutt:
    """A regression corrected for correlated errors.

    Attributes
    ----------
    rho
        Correlation of neighbouring errors.
    iterations
        Until ρ moved by less than 1e-8.
    coefficients
        A row for each: ``name, estimate, error, t, p``, of the original variables.
    before, after
        Durbin–Watson statistic of the first residuals and of those left.

    """

    rho: float
    iterations: int
    coefficients: pd.DataFrame = field(repr=False)
    before: float
    after: float

    def to_frame(self) -> pd.DataFrame:
        """Return the coefficients."""
        return self.coefficients


def cochrane_orcutt(fit: Regression, *, iterations: int = 200) -> CochraneOrcutt:
    """Estimate the regression again under errors that follow e_i = ρ e_{i−1} + u_i.

    Parameters
    ----------
    fit
        The regression. Where it has groups, differences stay within them: samples of a group are
        taken in the order given, also when other groups' lie between them.
    iterations
        At most.

    Raises
    ------
    SampleError
        ρ does not settle, or differences leave too few samples.

    """
    if fit.groups is None:
        rows = np.arange(fit.samples)
        now, before = rows[1:], rows[:-1]
    else:
        order = np.argsort(fit.groups, kind="stable")
        same = fit.groups[order][1:] == fit.groups[order][:-1]
        now, before = order[1:][same], order[:-1][same]
    if len(now) <= fit.parameters + 1:
        raise SampleError(
            f"Cochrane–Orcutt leaves {len(now)} differences for {fit.parameters} parameters",
            "collect more samples of each group",
        )
    beta, rho = fit.coefficients, np.inf
    for number in range(1, iterations + 1):
        errors = fit.y - fit.X @ beta
        last, rho = rho, float(errors[now] @ errors[before] / (errors[before] @ errors[before]))
        if abs(rho - last) < 1e-8:
            return _corrected(fit, now, before, rho, number)
        X, y = fit.X[now] - rho * fit.X[before], fit.y[now] - rho * fit.y[before]
        beta = np.linalg.lstsq(X, y)[0]
    raise SampleError(
        f"Cochrane–Orcutt has not settled after {iterations} rounds (ρ = {rho:.3f})",
        "look for a trend in the residuals: the model lacks a variable",
    )


def _corrected(
    fit: Regression, now: Rows, before: Rows, rho: float, iterations: int
) -> CochraneOrcutt:
    X = fit.X[now] - rho * fit.X[before]
    y = fit.y[now] - rho * fit.y[before]
    basis, triangle = np.linalg.qr(X)
    beta = np.linalg.solve(triangle, basis.T @ y)
    left = y - X @ beta
    freedom = len(y) - X.shape[1]
    inverse = np.linalg.inv(triangle)
    error = np.sqrt(left @ left / freedom * (inverse**2).sum(axis=1))
    table = pd.DataFrame({"name": fit.names, "estimate": beta, "error": error})
    table["t"] = beta / error
    table["p"] = 2 * stats.t.sf(np.abs(beta / error), freedom)
    raw = fit.residuals
    first = float(((raw[now] - raw[before]) ** 2).sum() / (raw @ raw))
    if fit.groups is None:
        return CochraneOrcutt(rho, iterations, table, first, float(_statistic(left[:, None])[0]))
    same = fit.groups[now][1:] == fit.groups[now][:-1]
    after = float((np.diff(left)[same] ** 2).sum() / (left @ left))
    return CochraneOrcutt(rho, iterations, table, first, after)
