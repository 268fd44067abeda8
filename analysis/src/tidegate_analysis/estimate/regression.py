"""Multiple linear regression with errors that fit how the samples were made.

Samples of one DBMS resemble each other (the study's Durbin-Watson values of 1.4 and 1.1 show it),
so classical standard errors promise too much. The options say what is believed instead:

``errors="classical"``
    Samples are independent, with the same variance: what R's ``summary(lm)`` prints.
``errors="hc3"``
    Independent, but the variance may depend on the terms.
``errors="cluster"``
    Anything may happen inside a DBMS; DBMSs are independent. CR1 with t(G-1), or fewer degrees of
    freedom for terms that are the same in all samples of a DBMS, see `_clusters`: where none is
    left the regression is refused. Below about 30 DBMSs often too sure of itself, and a caution in
    the result says so.
``errors="wild"``
    The same belief, tested by the wild cluster bootstrap-t (see `_wild`): for few DBMSs. With two
    to four of them its p-values have a floor that a caution names.
``effect="fixed"``
    Each DBMS has an intercept of its own: compares only inside DBMSs.
``effect="random"``
    Intercepts of DBMSs are drawn from a normal distribution (REML). Degrees of freedom are those
    of R's nlme: samples less groups less terms that vary inside groups; groups less one less the
    others.

A product ``a:b`` is made of columns less their means, so the coefficients of a and b are effects at
the other's mean. Its standardised coefficient is that of the product of the two standardised
columns (Friedrich 1982).

**Standard errors of standardised coefficients** are not the raw ones times a ratio, because the
deviations in that ratio are estimates, too. Each sample's influence on b·s_x/s_y is added up, which
assumes no distribution (Browne 1984; Yuan and Chan 2011): with residuals enlarged as in HC3, or as
they are and by group when errors are clustered. With a random effect, or the wild bootstrap's
interval, the deviations are taken as given. So a standardised interval and the p-value, which is of
the raw coefficient and its errors as asked for, are two answers: with classical errors and few
samples one may leave out 0 where the other is above 0.05. p decides, and `low` and `high` agree
with it.

Source: Suh, Snodgrass, Currim 2017, Sections 7.2.3 and 9.3.2; Cohen, Cohen, West, Aiken 2003.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypedDict, Unpack, get_args

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis import _clusters
from tidegate_analysis._columns import Array, Codes, refuse_level
from tidegate_analysis._linear import Fitted, covariance, least_squares, leverages, sandwich
from tidegate_analysis.errors import SampleError
from tidegate_analysis.estimate._data import EquationDesign, design, refuse_exact
from tidegate_analysis.estimate._random import random_intercept
from tidegate_analysis.estimate._wild import smallest, weights, wild
from tidegate_analysis.model.structure import TIMES

Errors = Literal["classical", "hc3", "cluster", "wild"]
Effect = Literal["none", "fixed", "random"]

#: A smallest p above this, the strictest level that tables mark, is worth a caution.
_STRICTEST: Final = 0.001
_MANY_CLUSTERS: Final = 200


class RegressionKeywords(TypedDict, total=False):
    """The fields of `RegressionOptions` as keywords; what is not given has its default."""

    errors: Errors
    effect: Effect
    cluster: str
    confidence: float
    draws: int
    seed: int
    block: str | None


@dataclass(frozen=True)
class RegressionOptions:
    """How an equation is estimated.

    - errors, effect: See the module.
    - cluster: Column that groups samples; needed when errors or effects go by group.
    - draws, seed: Data sets of the wild bootstrap when there are too many groups to make all, and
      their seed.
    - block: Column whose values have an effect of their own that is held constant, such as ``host``
      where several hosts measured. It takes part in no errors: those go by `cluster`.

    Raises `SampleError`: the options contradict each other.
    """

    errors: Errors = "classical"
    effect: Effect = "none"
    cluster: str = "dbms"
    confidence: float = 0.95
    draws: int = 9999
    seed: int = 0
    block: str | None = None

    def __post_init__(self) -> None:
        """Refuse options that are not there or do not go together."""
        for given, known, what in (
            (self.errors, Errors, "errors"),
            (self.effect, Effect, "effect"),
        ):
            if given not in get_args(known):
                raise SampleError(
                    f"no {what} are called `{given}`", f"use one of {', '.join(get_args(known))}"
                )
        if self.effect == "random" and self.errors != "classical":
            raise SampleError(
                f"a random effect with {self.errors} errors",
                "use classical errors with it: the effect already describes the groups",
            )
        if self.effect == "random" and self.block is not None:
            raise SampleError("a block beside a random effect", "use a fixed effect, or no block")
        refuse_level(self.confidence)

    @property
    def is_clustered(self) -> bool:
        """Whether errors go by group."""
        return self.errors in ("cluster", "wild")

    @property
    def is_grouped(self) -> bool:
        """Whether errors or effects go by group."""
        return self.is_clustered or self.effect != "none"


@dataclass(frozen=True, eq=False)
class Estimates:
    """Coefficients on one scale: an entry of each array for each term.

    - coefficients, covariance, low, high: The coefficients, their covariance and intervals.
    - influence: Each sample's influence on each of them, times n; empty with a random effect, and
      of raw coefficients with classical errors.
    """

    coefficients: Array
    covariance: Array = field(repr=False)
    low: Array
    high: Array
    influence: Array = field(repr=False)

    @property
    def errors(self) -> Array:
        """The standard errors."""
        errors: Array = np.sqrt(np.diag(self.covariance))
        return errors


@dataclass(frozen=True)
class Explained:
    """How much of the outcome an equation explains.

    - parameters: Coefficients, including intercepts.
    - intercept: Mean of the outcome where all terms are 0; with effects of groups, the mean over
      samples.
    - r_squared, adjusted_r_squared: With a random effect, the part explained by the terms (Nakagawa
      and Schielzeth 2013).
    - log_likelihood, aic: Of maximum likelihood; the AIC counts variances, as R does.
    - rss: Sum of squared residuals.
    - group_share: With a random effect, the part of the unexplained variance between groups.
    """

    parameters: int
    intercept: float
    r_squared: float
    adjusted_r_squared: float
    log_likelihood: float
    aic: float
    rss: float
    group_share: float


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted linear equation.

    - outcome, terms: What is explained, and by what. The arrays below have an entry for each term.
    - raw: Coefficients in the units of the columns.
    - standardised: In standard deviations of the outcome for each standard deviation of the term.
    - df, statistics, p_values: The t tests of the raw coefficients.
    - residuals, fitted: Of each sample; with a random effect, about the mean of all groups.
    """

    outcome: str
    terms: tuple[str, ...]
    options: RegressionOptions
    raw: Estimates
    standardised: Estimates
    df: Array
    statistics: Array
    p_values: Array
    explained: Explained
    residuals: Array = field(repr=False)
    fitted: Array = field(repr=False)
    cautions: tuple[str, ...]

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.residuals)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each term."""
        raw, standardised = self.raw, self.standardised
        return pd.DataFrame(
            {
                "term": self.terms,
                "coefficient": raw.coefficients,
                "se": raw.errors,
                "statistic": self.statistics,
                "df": self.df,
                "p": self.p_values,
                "low": raw.low,
                "high": raw.high,
                "standardised": standardised.coefficients,
                "standardised_se": standardised.errors,
                "standardised_low": standardised.low,
                "standardised_high": standardised.high,
            }
        )

    def __str__(self) -> str:
        head = (
            f"{self.outcome} ~ {' + '.join(self.terms) or '1'}: n = {self.n}, "
            f"R² = {self.explained.r_squared:.3f}, "
            f"adjusted {self.explained.adjusted_r_squared:.3f}; "
            f"errors {self.options.errors}, effect of groups {self.options.effect}"
        )
        table = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4g}")
        return "\n".join([head, table, *(f"Take care: {caution}." for caution in self.cautions)])


def regress(
    samples: pd.DataFrame, outcome: str, terms: Sequence[str], **options: Unpack[RegressionKeywords]
) -> Regression:
    """Regress a column on others.

    - outcome, terms: Names of columns; ``a:b`` is a product.
    - **options: The fields of `RegressionOptions`.

    Raises `ShapeError`: a column is unknown or holds text. Raises `SampleError`: nothing can be
    estimated from the samples, clusters leave a term no degree of freedom, or the options
    contradict each other.

    >>> import pandas as pd
    >>> samples = pd.DataFrame({"numProcs": [1, 2, 4, 8], "TP": [300, 400, 500, 900]})
    >>> regress(samples, "TP", ["numProcs"]).raw.coefficients.round(1).tolist()
    [84.3]
    """
    return regress_with(samples, outcome, terms, RegressionOptions(**options))


def regress_with(
    samples: pd.DataFrame, outcome: str, terms: Sequence[str], options: RegressionOptions
) -> Regression:
    """Do the same with options that are made already."""
    data = design(
        samples,
        outcome,
        terms,
        cluster=options.cluster if options.is_grouped else None,
        intercepts=options.effect == "fixed",
        block=options.block,
    )
    if options.is_grouped and data.groups.max() == 0:
        raise SampleError(
            f"all samples are of one `{options.cluster}`",
            "take samples of at least two, or use classical or HC3 errors without an effect",
        )
    if options.effect == "random":
        return _assembled(data, options, _random(data))
    return _assembled(data, options, _fixed(samples, data, options))


@dataclass(frozen=True, eq=False)
class _Solution:
    """What a way of fitting found: coefficients of all columns, and covariances of the terms.

    `exact` has p, low and high of each term by the wild bootstrap; `variances` with a random effect
    that between groups and that inside them.
    """

    coefficients: Array
    covariance: Array
    standardised_covariance: Array
    df: Array
    log_likelihood: float
    cautions: tuple[str, ...]
    influence: Array
    raw_influence: Array
    exact: Array | None = None
    variances: tuple[float, float] | None = None


def _fixed(samples: pd.DataFrame, data: EquationDesign, options: RegressionOptions) -> _Solution:
    """Fit by least squares, groups having no or fixed effects."""
    X, k, terms = data.full, data.full.shape[1], len(data.terms)
    fit = least_squares(X, data.y)
    refuse_exact(data, fit.ssr)
    groups = data.groups if options.is_clustered else None
    df = np.full(terms, float(fit.df_resid)) if groups is None else _degrees(data, options.cluster)
    found = covariance(fit, "cluster" if options.errors == "wild" else options.errors, groups)
    # Enlarged residuals: they cover better in small samples, with classical errors, too.
    raw = _influence(fit, enlarged=groups is None)[:, :terms]
    influence = _standardised_influence(samples, data, fit.params[:terms], raw)
    W = _weights(data, options) if options.errors == "wild" else None
    return _Solution(
        coefficients=fit.params,
        covariance=found[:terms, :terms],
        standardised_covariance=gathered(influence, groups, k),
        df=df,
        log_likelihood=float(fit.llf),
        cautions=() if groups is None else _cautions(data, df, options.confidence, W),
        influence=influence,
        raw_influence=np.empty((0, terms)) if options.errors == "classical" else raw,
        exact=None if W is None else _wild_tests(data, options.confidence, W),
    )


def _influence(fit: Fitted, *, enlarged: bool) -> Array:
    """Return what each sample adds to each coefficient, times n.

    The squares of its columns, added over samples (or over groups of them) and divided by n², are
    variances: those of HC3 with enlarged residuals, those by group of CR1 without. A sample that
    alone determines a coefficient adds nothing to it.
    """
    residuals = fit.resid
    if enlarged:
        free = 1 - leverages(fit)
        alone = free < 1e-9
        residuals = np.where(alone, 0.0, residuals / np.where(alone, 1.0, free))
    X = fit.model.exog
    result: Array = len(X) * (X * residuals[:, None]) @ fit.normalized_cov_params
    return result


def gathered(influences: Array, groups: Codes | None, columns: int) -> Array:
    """Return the covariance that influences give; by group, with CR1's correction, if grouped."""
    n, width = influences.shape
    if groups is None:
        return np.asarray(influences.T @ influences / n**2)
    found = sandwich(np.eye(width) / n, influences, groups)
    return np.asarray(found * ((n - 1) / (n - columns)))


def _degrees(data: EquationDesign, cluster: str) -> Array:
    """Return the degrees of freedom of each term, refused where clusters leave it none."""
    free = _clusters.degrees(data.full, data.groups)[: len(data.terms)]
    _clusters.refuse_saturated(free, data.terms, cluster, _clusters.count(data.groups))
    return free


def _random(data: EquationDesign) -> _Solution:
    """Fit with a random intercept for each group."""
    refuse_exact(data, least_squares(data.full, data.y).ssr)
    fit = random_intercept(data)
    terms = len(data.terms)
    groups = _clusters.count(data.groups)
    means = _clusters.sums(data.X, data.groups) / np.bincount(data.groups)[:, None]
    inner = np.abs(data.X - means[data.groups]).max(axis=0) > 1e-9 * data.scales
    within = len(data.y) - groups - int(inner.sum())
    between = groups - 1 - int((~inner).sum())
    if within < 1 or (between < 1 and not inner.all()):
        raise SampleError(
            f"{len(data.y)} samples in {groups} groups are too few for these terms",
            "collect more of them, or drop terms",
        )
    caution = "the variance between groups is estimated as 0: the same as no effect"
    found, ratio = fit.covariance[:terms, :terms], _ratio(data)
    return _Solution(
        coefficients=fit.coefficients,
        covariance=found,
        standardised_covariance=found * np.outer(ratio, ratio),
        df=np.where(inner, within, between).astype(float),
        log_likelihood=fit.log_likelihood,
        cautions=(caution,) if fit.group_variance == 0 else (),
        influence=np.empty((0, terms)),
        raw_influence=np.empty((0, terms)),
        variances=(fit.group_variance, fit.residual_variance),
    )


def _ratio(data: EquationDesign) -> Array:
    """Return what makes a raw coefficient a standardised one."""
    ratio: Array = data.scales / data.y.std(ddof=1)
    return ratio


def _assembled(data: EquationDesign, options: RegressionOptions, found: _Solution) -> Regression:
    """Put tests and intervals together."""
    ratio, b = _ratio(data), found.coefficients[: len(data.terms)]
    reach = np.asarray(stats.t.ppf(0.5 + options.confidence / 2, found.df))
    raw = _estimates(b, found.covariance, reach, found.raw_influence)
    standardised = _estimates(b * ratio, found.standardised_covariance, reach, found.influence)
    with np.errstate(divide="ignore"):
        statistics = b / raw.errors
    p = 2 * stats.t.sf(np.abs(statistics), found.df)
    if found.exact is not None:
        p, low, high = found.exact
        raw = replace(raw, low=low, high=high)
        standardised = replace(standardised, low=low * ratio, high=high * ratio)
    fitted = data.full @ found.coefficients
    return Regression(
        outcome=data.outcome,
        terms=data.terms,
        options=options,
        raw=raw,
        standardised=standardised,
        df=found.df,
        statistics=statistics,
        p_values=np.asarray(p),
        explained=_explained(data, found, fitted),
        residuals=data.y - fitted,
        fitted=fitted,
        cautions=found.cautions,
    )


def _estimates(values: Array, covariance: Array, reach: Array, influence: Array) -> Estimates:
    half = reach * np.sqrt(np.diag(covariance))
    return Estimates(values, covariance, values - half, values + half, influence)


def _explained(data: EquationDesign, found: _Solution, fitted: Array) -> Explained:
    """Return R² and likelihood; with a random effect, of explained and unexplained variance."""
    n, parameters, y = len(data.y), data.full.shape[1], data.y
    rss = float(np.square(y - fitted).sum())
    if found.variances is None:
        r_squared, share = float(1 - rss / np.square(y - y.mean()).sum()), 0.0
    else:
        explained, unexplained = float(np.var(fitted, ddof=1)), sum(found.variances)
        r_squared, share = explained / (explained + unexplained), found.variances[0] / unexplained
    variances = 1 if found.variances is None else 2
    return Explained(
        parameters=parameters,
        intercept=float(np.mean(data.nuisance @ found.coefficients[len(data.terms) :])),
        r_squared=r_squared,
        adjusted_r_squared=1 - (1 - r_squared) * (n - 1) / (n - parameters),
        log_likelihood=found.log_likelihood,
        aic=-2 * found.log_likelihood + 2 * (parameters + variances),
        rss=rss,
        group_share=share,
    )


def _standardised_influence(
    samples: pd.DataFrame, data: EquationDesign, b: Array, raw: Array
) -> Array:
    """Carry influences over to b·s_x/s_y: those on log s_x and log s_y come in."""
    ratio, result = _ratio(data), np.empty_like(raw)
    outcome = _log_deviation(data.y)
    for i, term in enumerate(data.terms):
        own = sum(_log_deviation(samples[f].to_numpy(float)) for f in term.split(TIMES))
        result[:, i] = ratio[i] * (raw[:, i] + b[i] * (own - outcome))
    return result


def _log_deviation(x: Array) -> Array:
    """Return each sample's influence on log s_x."""
    centred = x - x.mean()
    result: Array = 0.5 * (np.square(centred) / np.mean(np.square(centred)) - 1)
    return result


def _weights(data: EquationDesign, options: RegressionOptions) -> Array:
    if options.draws < 1:
        raise SampleError(f"{options.draws} data sets of the wild bootstrap", "draw at least 999")
    if (count := _clusters.count(data.groups)) > _MANY_CLUSTERS:
        raise SampleError(
            f"the wild bootstrap is for few groups, and these are {count}",
            "use cluster errors, which are good with so many",
        )
    return weights(count, options.draws, options.seed)


def _wild_tests(data: EquationDesign, confidence: float, W: Array) -> Array:
    X = data.full
    tests = [
        wild(X, data.y, data.groups, j, W=W, confidence=confidence) for j in range(len(data.terms))
    ]
    return np.array([(t.p, t.low, t.high) for t in tests]).reshape(-1, 3).T


def _cautions(
    data: EquationDesign, df: Array, confidence: float, W: Array | None
) -> tuple[str, ...]:
    """Return what so few groups cannot do, with CR1 or with the wild bootstrap's weights."""
    count = _clusters.count(data.groups)
    if W is not None:
        floor = smallest(W)
        if floor <= _STRICTEST:
            return ()
        caution = (
            f"with {count} groups, and so {len(W):,} data sets, the wild bootstrap cannot give a p "
            f"below {floor:.2g}"
        )
        if floor > 1 - confidence:
            caution += ", so that nothing can be significant and intervals have no ends"
        return (caution,)
    if count >= _clusters.FEW:
        return ()
    least = min(df, default=count - 1)
    return (
        f"cluster errors from {count} groups may be too small even with t({least:.0f}); "
        "compare errors='wild'",
    )
