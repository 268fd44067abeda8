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
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis import _clusters
from tidegate_analysis.errors import SampleError
from tidegate_analysis.estimate import _linear
from tidegate_analysis.estimate._data import Array, Design, design, refuse_exact
from tidegate_analysis.estimate._wild import smallest, weights, wild
from tidegate_analysis.model.structure import TIMES

Errors = Literal["classical", "hc3", "cluster", "wild"]
Effect = Literal["none", "fixed", "random"]

#: A smallest p above this, the strictest level that tables mark, is worth a caution.
_STRICTEST: Final = 0.001
_MANY_CLUSTERS: Final = 200


@dataclass(frozen=True, eq=False)
class Regression:
    """A fitted linear equation.

    Parameters
    ----------
    outcome, terms
        What is explained, and by what. The arrays below have an entry for each term.
    n, parameters
        Samples, and coefficients including intercepts.
    errors, effect, confidence
        As asked for.
    coefficients, standard_errors, df, statistics, p_values, low, high
        Of the terms in their units: t tests with `df` degrees of freedom, and intervals.
    standardised, standardised_errors, standardised_low, standardised_high
        In standard deviations of the outcome for each standard deviation of the term.
    intercept
        Mean of the outcome where all terms are 0; with effects of groups, the mean over samples.
    r_squared, adjusted_r_squared
        With a random effect, the part explained by the terms (Nakagawa and Schielzeth 2013).
    log_likelihood, aic
        Of maximum likelihood; the AIC counts variances, as R does.
    rss
        Sum of squared residuals.
    group_share
        With a random effect, the part of the unexplained variance between groups.
    residuals, fitted
        Of each sample; with a random effect, about the mean of all groups.
    cautions
        What a reader has to know.
    covariance, influence, raw_influence
        Covariance of the raw coefficients; each sample's influence on the standardised and the raw
        coefficients, n times (empty with a random effect; the raw one with classical errors, too).

    """

    outcome: str
    terms: tuple[str, ...]
    n: int
    parameters: int
    errors: Errors
    effect: Effect
    confidence: float
    coefficients: Array
    standard_errors: Array
    df: Array
    statistics: Array
    p_values: Array
    low: Array
    high: Array
    standardised: Array
    standardised_errors: Array
    standardised_low: Array
    standardised_high: Array
    intercept: float
    r_squared: float
    adjusted_r_squared: float
    log_likelihood: float
    aic: float
    rss: float
    group_share: float
    residuals: Array = field(repr=False)
    fitted: Array = field(repr=False)
    cautions: tuple[str, ...]
    covariance: Array = field(repr=False)
    influence: Array = field(repr=False)
    raw_influence: Array = field(repr=False)

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each term."""
        return pd.DataFrame(
            {
                "term": self.terms,
                "coefficient": self.coefficients,
                "se": self.standard_errors,
                "statistic": self.statistics,
                "df": self.df,
                "p": self.p_values,
                "low": self.low,
                "high": self.high,
                "standardised": self.standardised,
                "standardised_se": self.standardised_errors,
                "standardised_low": self.standardised_low,
                "standardised_high": self.standardised_high,
            }
        )

    def __str__(self) -> str:
        head = (
            f"{self.outcome} ~ {' + '.join(self.terms) or '1'}: n = {self.n}, "
            f"R² = {self.r_squared:.3f}, adjusted {self.adjusted_r_squared:.3f}; "
            f"errors {self.errors}, effect of groups {self.effect}"
        )
        table = self.to_frame().to_string(index=False, float_format=lambda x: f"{x:.4g}")
        return "\n".join([head, table, *(f"Take care: {caution}." for caution in self.cautions)])


def regress(
    samples: pd.DataFrame,
    outcome: str,
    terms: Sequence[str],
    *,
    errors: Errors = "classical",
    effect: Effect = "none",
    cluster: str = "dbms",
    confidence: float = 0.95,
    draws: int = 9999,
    seed: int = 0,
    block: str | None = None,
) -> Regression:
    """Regress a column on others.

    Parameters
    ----------
    samples
        A row for each sample.
    outcome, terms
        Names of columns; ``a:b`` is a product.
    errors, effect
        See the module.
    cluster
        Column that groups samples; needed when errors or effects go by group.
    confidence
        Of intervals.
    draws, seed
        Data sets of the wild bootstrap when there are too many groups to make all, and their seed.
    block
        Column whose values have an effect of their own that is held constant, such as ``host``
        where several hosts measured. It takes part in no errors: those go by `cluster`.

    Raises
    ------
    SampleError
        Nothing can be estimated from the samples, clusters leave a term no degree of freedom, or
        the options contradict each other.

    Examples
    --------
    >>> import pandas as pd
    >>> samples = pd.DataFrame({"numProcs": [1, 2, 4, 8], "TP": [300, 400, 500, 900]})
    >>> regress(samples, "TP", ["numProcs"]).coefficients.round(1).tolist()
    [84.3]

    """
    check_options(errors, effect, confidence)
    if effect == "random" and block is not None:
        raise SampleError("a block beside a random effect", "use a fixed effect, or no block")
    by_group = errors in ("cluster", "wild") or effect != "none"
    data = design(
        samples,
        outcome,
        terms,
        cluster=cluster if by_group else None,
        intercepts=effect == "fixed",
        block=block,
    )
    if by_group and data.groups.max() == 0:
        raise SampleError(
            f"all samples are of one `{cluster}`",
            "take samples of at least two, or use classical or HC3 errors without an effect",
        )
    if effect == "random":
        return _random(data, confidence)
    return _fixed(
        samples,
        data,
        errors=errors,
        effect=effect,
        cluster=cluster,
        confidence=confidence,
        chance=(draws, seed),
    )


def check_options(errors: str, effect: str, confidence: float) -> None:
    """Refuse options that are not there or do not go together."""
    for given, known, what in ((errors, Errors, "errors"), (effect, Effect, "effect")):
        if given not in get_args(known):
            raise SampleError(
                f"no {what} are called `{given}`", f"use one of {', '.join(get_args(known))}"
            )
    if effect == "random" and errors != "classical":
        raise SampleError(
            f"a random effect with {errors} errors",
            "use classical errors with it: the effect already describes the groups",
        )
    if not 0 < confidence < 1:
        raise SampleError(f"confidence is {confidence}", "give a number between 0 and 1")


def _fixed(
    samples: pd.DataFrame,
    data: Design,
    *,
    errors: Errors,
    effect: Effect,
    cluster: str,
    confidence: float,
    chance: tuple[int, int],
) -> Regression:
    """Fit by least squares, groups having no or fixed effects."""
    X, k, terms = data.full, data.full.shape[1], len(data.terms)
    fit = _linear.least(X, data.y)
    refuse_exact(data, fit.rss)
    n = len(data.y)
    clustered = errors in ("cluster", "wild")
    groups = data.groups if clustered else None
    df = _clustered_degrees(data, cluster) if clustered else np.full(terms, float(n - k))
    if errors == "classical":
        raw, covariance = np.empty((0, k)), fit.rss / (n - k) * fit.inverse
    else:
        raw = _linear.influence(X, fit, errors)
        covariance = _linear.gathered(raw, groups, k)
    # Enlarged residuals: they cover better in small samples, with classical errors, too.
    single = raw if clustered else _linear.influence(X, fit, "hc3", lenient=True)
    influence = _standardised_influence(samples, data, fit.coefficients[:terms], single[:, :terms])
    standardised_covariance = _linear.gathered(influence, groups, k)
    W = _weights(data, chance) if errors == "wild" else None
    return _result(
        data,
        fit.coefficients,
        covariance,
        standardised_covariance,
        df,
        confidence=confidence,
        parameters=k,
        errors=errors,
        effect=effect,
        log_likelihood=-0.5 * n * (np.log(2 * np.pi * fit.rss / n) + 1),
        variances=1,
        influences=(influence, raw[:, :terms]),
        exact=None if W is None else _wild_tests(data, confidence, W),
        cautions=_cautions(data, df, confidence, W) if clustered else (),
    )


def _clustered_degrees(data: Design, cluster: str) -> Array:
    """Return the degrees of freedom of each term, refused where clusters leave it none."""
    free = _clusters.degrees(data.full, data.groups)[: len(data.terms)]
    _clusters.refuse_saturated(free, data.terms, cluster, _clusters.count(data.groups))
    return free


def _random(data: Design, confidence: float) -> Regression:
    """Fit with a random intercept for each group."""
    refuse_exact(data, _linear.least(data.full, data.y).rss)
    fit = _linear.random_intercept(data)
    terms = len(data.terms)
    groups = int(data.groups.max()) + 1
    sizes = np.bincount(data.groups)
    means = _clusters.sums(data.X, data.groups) / sizes[:, None]
    inner = np.abs(data.X - means[data.groups]).max(axis=0) > 1e-9 * data.scales
    within = len(data.y) - groups - int(inner.sum())
    between = groups - 1 - int((~inner).sum())
    if within < 1 or (between < 1 and not inner.all()):
        raise SampleError(
            f"{len(data.y)} samples in {groups} groups are too few for these terms",
            "collect more of them, or drop terms",
        )
    ratio = data.scales / data.y.std(ddof=1)
    covariance = fit.covariance
    share = fit.group_variance / (fit.group_variance + fit.residual_variance)
    caution = (
        ("the variance between groups is estimated as 0: the same as no effect",)
        if fit.group_variance == 0
        else ()
    )
    return _result(
        data,
        fit.coefficients,
        covariance,
        covariance[:terms, :terms] * np.outer(ratio, ratio),
        np.where(inner, within, between).astype(float),
        confidence=confidence,
        parameters=data.full.shape[1],
        errors="classical",
        effect="random",
        log_likelihood=fit.log_likelihood,
        variances=2,
        influences=(np.empty((0, terms)), np.empty((0, terms))),
        exact=None,
        cautions=caution,
        random=(fit.group_variance + fit.residual_variance, share),
    )


def _result(
    data: Design,
    b: Array,
    covariance: Array,
    standardised_covariance: Array,
    df: Array,
    *,
    confidence: float,
    parameters: int,
    errors: Errors,
    effect: Effect,
    log_likelihood: float,
    variances: int,
    influences: tuple[Array, Array],
    exact: Array | None,
    cautions: tuple[str, ...],
    random: tuple[float, float] | None = None,
) -> Regression:
    """Put tests and intervals together; `exact` holds p, low and high of the wild bootstrap."""
    terms, n = len(data.terms), len(data.y)
    coefficients = b[:terms]
    ratio = data.scales / data.y.std(ddof=1)
    se = np.sqrt(np.diag(covariance)[:terms])
    standardised_se = np.sqrt(np.diag(standardised_covariance))
    reach = stats.t.ppf(0.5 + confidence / 2, df)
    with np.errstate(divide="ignore"):
        statistics = coefficients / se
    p = 2 * stats.t.sf(np.abs(statistics), df)
    low, high = coefficients - reach * se, coefficients + reach * se
    standardised = coefficients * ratio
    bounds = standardised - reach * standardised_se, standardised + reach * standardised_se
    if exact is not None:
        p, low, high = exact
        bounds = low * ratio, high * ratio
    fitted = data.full @ b
    residuals = data.y - fitted
    rss, r_squared = float(residuals @ residuals), _r_squared(data.y, fitted, random)
    return Regression(
        outcome=data.outcome,
        terms=data.terms,
        n=n,
        parameters=parameters,
        errors=errors,
        effect=effect,
        confidence=confidence,
        coefficients=coefficients,
        standard_errors=se,
        df=df,
        statistics=statistics,
        p_values=np.asarray(p),
        low=low,
        high=high,
        standardised=standardised,
        standardised_errors=standardised_se,
        standardised_low=bounds[0],
        standardised_high=bounds[1],
        intercept=float(np.mean(data.nuisance @ b[terms:])),
        r_squared=r_squared,
        adjusted_r_squared=1 - (1 - r_squared) * (n - 1) / (n - parameters),
        log_likelihood=float(log_likelihood),
        aic=-2 * float(log_likelihood) + 2 * (parameters + variances),
        rss=rss,
        group_share=random[1] if random else 0.0,
        residuals=residuals,
        fitted=fitted,
        cautions=cautions,
        covariance=covariance[:terms, :terms],
        influence=influences[0],
        raw_influence=influences[1],
    )


def _r_squared(y: Array, fitted: Array, random: tuple[float, float] | None) -> float:
    """Return the explained part; with a random effect, of explained and unexplained variance."""
    if random is None:
        return float(1 - np.square(y - fitted).sum() / np.square(y - y.mean()).sum())
    explained = float(np.var(fitted, ddof=1))
    return explained / (explained + random[0])


def _standardised_influence(samples: pd.DataFrame, data: Design, b: Array, raw: Array) -> Array:
    """Carry influences over to b·s_x/s_y: those on log s_x and log s_y come in."""
    deviation = data.y.std(ddof=1)
    result = np.empty_like(raw)
    outcome = _log_deviation(data.y)
    for i, term in enumerate(data.terms):
        ratio = data.scales[i] / deviation
        own = sum(_log_deviation(samples[f].to_numpy(float)) for f in term.split(TIMES))
        result[:, i] = ratio * (raw[:, i] + b[i] * (own - outcome))
    return result


def _log_deviation(x: Array) -> Array:
    """Return each sample's influence on log s_x."""
    centred = x - x.mean()
    result: Array = 0.5 * (np.square(centred) / np.mean(np.square(centred)) - 1)
    return result


def _weights(data: Design, chance: tuple[int, int]) -> Array:
    if chance[0] < 1:
        raise SampleError(f"{chance[0]} data sets of the wild bootstrap", "draw at least 999")
    if (count := _clusters.count(data.groups)) > _MANY_CLUSTERS:
        raise SampleError(
            f"the wild bootstrap is for few groups, and these are {count}",
            "use cluster errors, which are good with so many",
        )
    return weights(count, *chance)


def _wild_tests(data: Design, confidence: float, W: Array) -> Array:
    X = data.full
    tests = [
        wild(X, data.y, data.groups, j, W=W, confidence=confidence) for j in range(len(data.terms))
    ]
    return np.array([(t.p, t.low, t.high) for t in tests]).reshape(-1, 3).T


def _cautions(data: Design, df: Array, confidence: float, W: Array | None) -> tuple[str, ...]:
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
