"""A path model of observed variables as a structural equation model: does it fit at all.

R² says how much a model explains; this says whether what it *leaves out* is really not there. A
model with p variables implies a covariance matrix Σ, and maximum likelihood compares it with the
observed one S (Jöreskog 1973; Bollen 1989, chapter 4)::

    F = ln|Σ| - ln|S| + tr(S Σ⁻¹) - p,     chi² = n F,     df = moments - parameters

For a recursive model with independent errors nothing has to be searched: least squares, equation by
equation, is maximum likelihood, the trace is p, and |Σ| is the product of the residual variances
and the determinant of the exogenous covariances. So chi² = n (sum ln ψ + ln|S_xx| - ln|S|).

The indices are lavaan's, with n and not n-1 (Hu and Bentler 1999 for what is usual):

- CFI = 1 - max(chi² - df, 0) / max(chi²_b - df_b, chi² - df, 0), against the baseline b in which
  endogenous variables relate to nothing; above 0.95 is usual.
- RMSEA = sqrt(max(chi² - df, 0) / (n df)) with the 90 % interval from the noncentral chi²; below
  0.06 is usual.
- SRMR, the root mean square of the residual correlations; below 0.08 is usual.

Limits: the study's refined models have a path between every pair that is not exogenous. They are
just identified: df = 0, every index perfect, and *nothing is tested*. They can be tested `beside`
the variables that they left out, which by them act on nothing. Products with moderators are taken
as further exogenous variables, so they must be of exogenous ones. Normal theory: the p of chi²
assumes normal errors and independent samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from tidegate_analysis._columns import Array, numbers
from tidegate_analysis.errors import ModelError, SampleError
from tidegate_analysis.estimate._data import factors, product, refuse_collinear
from tidegate_analysis.estimate.paths import PathFit
from tidegate_analysis.model.structure import TIMES


@dataclass(frozen=True)
class FitIndices:
    """Indices of a model's fit: see the module; the interval of RMSEA has 90 %."""

    cfi: float
    rmsea: float
    rmsea_low: float
    rmsea_high: float
    srmr: float


@dataclass(frozen=True)
class ModelLikelihood:
    """Log-likelihood of all variables, given the exogenous ones, and its criteria.

    `parameters` is how many were estimated: coefficients, and an error of each equation.
    """

    log_likelihood: float
    aic: float
    bic: float
    parameters: int


@dataclass(frozen=True, eq=False)
class Structural:
    """Fit of a model's implied covariance matrix.

    - chi2, df, p: The model against the saturated one; p is missing when df is 0.
    - baseline_chi2, baseline_df: The baseline against the saturated one.
    - names, observed, implied: Variables, and their covariances (divided by n).
    """

    chi2: float
    df: int
    p: float
    baseline_chi2: float
    baseline_df: int
    indices: FitIndices
    likelihood: ModelLikelihood
    names: tuple[str, ...]
    observed: Array
    implied: Array

    def __str__(self) -> str:
        if self.df == 0:
            return "just identified (df = 0): this model cannot be tested, only its paths"
        of = self.indices
        return (
            f"chi² = {self.chi2:.2f}, df = {self.df}, p = {self.p:.3f}; CFI {of.cfi:.3f}, "
            f"RMSEA {of.rmsea:.3f} [{of.rmsea_low:.3f}, {of.rmsea_high:.3f}], SRMR {of.srmr:.3f}"
        )


def structural(fit: PathFit, *, beside: Sequence[str] = ()) -> Structural:
    """Return how well the covariances that a fitted model implies agree with those observed.

    - beside: Columns of its samples that are taken as further exogenous variables, without a path:
      that they act on nothing is tested, too.

    Raises `ModelError`: a moderated path or its moderator is endogenous, or the fit has effects of
    groups, about which the covariance matrix of all samples says nothing; or the model has a
    variable of `beside` itself. Raises `SampleError`: there are no more samples than variables, or
    some add up to others: what is observed has no determinant to compare with.
    """
    model = fit.model
    if fit.options.effect != "none":
        raise ModelError(
            f"model `{model.name}` is fitted with effects of groups",
            "fit it without an effect for its covariance structure",
        )
    if known := [v.name for v in model.variables if v.name in beside]:
        raise ModelError(
            f"model `{model.name}` has `{known[0]}` itself", "name variables that it leaves out"
        )
    products = dict.fromkeys(t for v in model.endogenous for t in model.terms(v) if TIMES in t)
    exogenous = (*model.exogenous, *products, *dict.fromkeys(beside))
    if inside := [f for t in exogenous for f in factors([t]) if f in model.endogenous]:
        raise ModelError(
            f"model `{model.name}` has a product with the endogenous variable `{inside[0]}`",
            "judge it by its R² and tests of coefficients: it has no implied covariance matrix",
        )
    names = (*exogenous, *model.endogenous)
    values = {name: numbers(fit.samples, name) for name in factors(names)}
    data = np.column_stack([product([values[f] for f in name.split(TIMES)]) for name in names])
    if fit.n <= len(names):
        raise SampleError(
            f"{fit.n} samples have no covariance matrix of {len(names)} variables and products",
            f"collect more than {len(names)} samples, and many more for a test that says something",
        )
    refuse_collinear(data, names, np.ones((fit.n, 1)), None)
    S = np.cov(data, rowvar=False, ddof=0)
    implied, psi = _implied(fit, names, S[: len(exogenous), : len(exogenous)])
    return _indices(fit, names, S, implied, psi)


def _implied(fit: PathFit, names: tuple[str, ...], Sxx: Array) -> tuple[Array, Array]:
    place = {name: i for i, name in enumerate(names)}
    B = np.zeros((len(names), len(names)))
    Psi = np.zeros_like(B)
    Psi[: len(Sxx), : len(Sxx)] = Sxx
    psi = np.array([fit.regressions[name].explained.rss / fit.n for name in names[len(Sxx) :]])
    for name, variance in zip(names[len(Sxx) :], psi, strict=True):
        equation = fit.regressions[name]
        B[place[name], [place[t] for t in equation.terms]] = equation.raw.coefficients
        Psi[place[name], place[name]] = variance
    T = np.linalg.inv(np.eye(len(names)) - B)
    return T @ Psi @ T.T, psi


def _indices(
    fit: PathFit, names: tuple[str, ...], S: Array, implied: Array, psi: Array
) -> Structural:
    n, p, y = fit.n, len(names), len(psi)
    x = p - y
    # ln|S| less that of the exogenous part, which no model restricts.
    observed = float(np.linalg.slogdet(S)[1] - np.linalg.slogdet(S[:x, :x])[1])
    df = y * x + y * (y - 1) // 2 - sum(len(fit.model.terms(name)) for name in names[x:])
    chi2 = max(0.0, n * (float(np.log(psi).sum()) - observed)) if df else 0.0
    baseline = n * (float(np.log(np.diag(S)[x:]).sum()) - observed)
    baseline_df = y * x + y * (y - 1) // 2
    over, over_baseline = max(chi2 - df, 0.0), max(baseline - baseline_df, chi2 - df, 0.0)
    low, high = _rmsea_interval(chi2, df, n)
    deviations = np.sqrt(np.diag(S))
    residual = ((S - implied) / np.outer(deviations, deviations))[np.tril_indices(p)]
    log_likelihood = -0.5 * n * (y * np.log(2 * np.pi) + float(np.log(psi).sum()) + y)
    parameters = sum(len(fit.model.terms(name)) for name in names[x:]) + y
    return Structural(
        chi2=chi2,
        df=df,
        p=float(stats.chi2.sf(chi2, df)) if df else np.nan,
        baseline_chi2=baseline,
        baseline_df=baseline_df,
        indices=FitIndices(
            cfi=1 - over / over_baseline if over_baseline > 0 else 1.0,
            rmsea=float(np.sqrt(over / (n * df))) if df else 0.0,
            rmsea_low=low,
            rmsea_high=high,
            srmr=float(np.sqrt(np.mean(np.square(residual)))),
        ),
        likelihood=ModelLikelihood(
            log_likelihood=log_likelihood,
            aic=-2 * log_likelihood + 2 * parameters,
            bic=-2 * log_likelihood + np.log(n) * parameters,
            parameters=parameters,
        ),
        names=names,
        observed=S,
        implied=implied,
    )


def _rmsea_interval(chi2: float, df: int, n: int) -> tuple[float, float]:
    """Return the RMSEA whose noncentral chi² has the observed one at its 95th, 5th percentile."""
    if df == 0:
        return 0.0, 0.0

    def bound(level: float) -> float:
        if stats.chi2.cdf(chi2, df) < level:
            return 0.0
        top = chi2 + 20 * np.sqrt(chi2 + df) + 100
        at = optimize.brentq(lambda c: stats.ncx2.cdf(chi2, df, c) - level, 1e-12, top)
        return float(np.sqrt(at / (n * df)))

    return bound(0.95), bound(0.05)
