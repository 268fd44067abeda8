"""Regression of thrashing points that are intervals or censored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, Unpack

import numpy as np
import pandas as pd

from tidegate_analysis import _clusters
from tidegate_analysis._columns import Array, Codes, numbers
from tidegate_analysis._linear import least_squares, sandwich
from tidegate_analysis.censored._design import (
    CensoredDesign,
    Intervals,
    clusters,
    design,
    full_rank,
    intervals,
    some_thrashed,
    uncertain,
)
from tidegate_analysis.censored._families import (
    ERRORS,
    Candidates,
    Distribution,
    Maximum,
    maximise,
)
from tidegate_analysis.censored._predictor import (
    CensoredKeywords,
    CensoredOptions,
    LinearPredictor,
    few_clusters,
    jackknife,
    of_coefficients,
)
from tidegate_analysis.errors import SampleError

#: Accelerated failure time models, among which the AIC may choose.
AFT: Final[tuple[Distribution, ...]] = ("weibull", "lognormal", "loglogistic")


@dataclass(frozen=True)
class CensoredRegression(LinearPredictor):
    """A regression ``y = xβ + σε`` of interval-censored thrashing points.

    The last of `parameters` is log σ.

    - choices: ``distribution``, ``loglik`` of the intervals, ``aic``, best first. All four
      distributions give probabilities to the same intervals, so their criteria compare.
    """

    choices: pd.DataFrame

    @property
    def distribution(self) -> Distribution:
        """``weibull``, ``lognormal``, ``loglogistic``: y = log TP; or ``gaussian``: y = TP."""
        name: Distribution = self.choices["distribution"].iloc[0]
        return name

    @property
    def loglik(self) -> float:
        return float(self.choices["loglik"].iloc[0])

    @property
    def aic(self) -> float:
        return float(self.choices["aic"].iloc[0])

    @property
    def sigma(self) -> float:
        """σ; Weibull's shape is 1/σ."""
        return float(np.exp(self.parameters[-1]))

    @property
    def r2(self) -> float:
        """Share of the variance of the latent y that xβ has (McKelvey and Zavoina 1975).

        What R² of the naive regression is compared with.
        """
        explained, latent = self._variances()
        return explained / latent

    def to_frame(self) -> pd.DataFrame:
        """As `LinearPredictor`, and ``standardised`` and acceleration factors.

        ``standardised`` is β·sd(x)/sd(y) for the latent y, to be read as a path coefficient.
        ``factor``, ``factor_low``, ``factor_high`` are exp β: by how much the thrashing point is
        multiplied when x grows by 1 (missing for ``gaussian``).
        """
        table = super().to_frame()
        table["standardised"] = table["per_sd"] / np.sqrt(self._variances()[1])
        change = table[["estimate", "low", "high"]].to_numpy()
        logarithm = self.distribution != "gaussian"
        with np.errstate(over="ignore"):
            factor = np.exp(change) if logarithm else np.full_like(change, np.nan)
        table[["factor", "factor_low", "factor_high"]] = factor
        return table

    def median(self, samples: pd.DataFrame) -> pd.DataFrame:
        """Return the median thrashing point of such samples, an MPL: ``median``, ``low``, ``high``.

        The interval is of the median (delta method), not of a single thrashing point.
        """
        centre = ERRORS[self.distribution].median
        x = self.design.at(samples)
        value = x @ self.parameters[:-1] + self.sigma * centre
        turn = np.column_stack([x, np.full(len(x), self.sigma * centre)])
        found = self._about(value, turn)
        if self.distribution != "gaussian":
            found = np.exp(found)
        return pd.DataFrame(found, columns=["median", "low", "high"], index=samples.index)

    def __str__(self) -> str:
        """Return the table under a line about the whole, and the notes."""
        of = "TP" if self.distribution == "gaussian" else "log TP"
        head = (
            f"{of}, {self.distribution}: {self.n} samples, {self.thrashed} thrashed, "
            f"σ = {self.sigma:.4g}, AIC = {self.aic:.1f}, R² of the latent = {self.r2:.3f}"
        )
        table = self.to_frame().to_string(index=False, float_format="{:.4g}".format)
        return "\n".join([head, table, *self.notes])

    def _variances(self) -> tuple[float, float]:
        """Return the variance of xβ and that of the latent y."""
        explained = float((self.design.matrix @ self.parameters[:-1]).var(ddof=1))
        return explained, explained + self.sigma**2 * ERRORS[self.distribution].variance


@dataclass(frozen=True)
class _Scaled:
    """Data of mean 0 and standard deviation 1, with the way back: θ = back·θ' + shift."""

    matrix: Array
    low: Array
    high: Array
    back: Array
    shift: Array
    candidates: Candidates | None

    def fit(self, distribution: Distribution, samples: Codes | None = None) -> Maximum:
        """Return the maximum in the scaled parameters, over all samples or some."""
        rows, candidates = self.of(samples)
        return maximise(
            ERRORS[distribution], self.matrix[rows], self.low[rows], self.high[rows], candidates
        )

    def of(self, samples: Codes | None) -> tuple[Codes, Candidates | None]:
        """Return the rows of all samples or some, and of which each is where they have several."""
        if samples is None:
            return np.arange(len(self.matrix)), self.candidates
        if self.candidates is None:
            return samples, None
        return self.candidates.take(samples)


def regress(
    samples: pd.DataFrame,
    on: Sequence[str],
    *,
    distribution: Distribution | Literal["best"] = "best",
    outcomes: pd.DataFrame | None = None,
    **options: Unpack[CensoredKeywords],
) -> CensoredRegression:
    """Regress the thrashing point on columns, with TP = inf as censored and not as missing.

    - samples: A row for each batchset: `shapes.SAMPLES`, or any frame with the columns named.
    - on: Columns: numbers, yes/no, or texts (as dummies; ``dbms`` among them is a fixed effect).
    - distribution: Of the error; ``best`` takes the accelerated failure time model of the smallest
      AIC and says so in `notes`. ``gaussian`` is the tobit model on the MPL itself.
    - outcomes: What each thrashing point may be, where it is uncertain, such as `Results.outcomes`
      gives; see below. The samples' own `low` and `high` are not looked at then.
    - **options: The fields of `CensoredOptions`.

    Raises `SampleError`: all samples are censored, a column is constant or tells thrashing
    perfectly, or samples are too few.

    TP in [low, high) contributes ``F(high) - F(low)``, TP = inf contributes ``1 - F(low)``
    (Klein and Moeschberger, *Survival Analysis*, 2nd ed., Sections 3.5 and 12). The intervals do
    not know that the AIC chose the distribution.

    A sample whose point is uncertain contributes the sum over its outcomes k of ``(F(high_k) -
    F(low_k)) · probability_k / prior_k``. By Bayes' rule the ratio is the likelihood of its
    measurements under the outcome, so the sum is the likelihood of the coefficients given the
    measurements: an uncertain point counts for less, one that is certain for what it did before,
    and the prior of the curve, which knows nothing of columns, is taken out again. (Points drawn
    from the posteriors, as in multiple imputation, would pull coefficients to 0, since they are
    drawn without the columns.) It is assumed that columns change a curve through its point only.
    """
    chosen = CensoredOptions(**options)
    found = intervals(samples, chosen.low, chosen.high)
    candidates = None
    thrashed = int(found.thrashed.sum())
    if outcomes is not None:
        found, candidates = uncertain(outcomes, len(samples))
        thrashed = round(float(outcomes.loc[np.isfinite(outcomes["high"]), "probability"].sum()))
    some_thrashed(found)
    plan = design(samples, on, chosen.nonlinear, chosen.knots)
    full_rank(plan, len(samples), len(plan.names) + 1)
    codes = clusters(samples, chosen.cluster)
    fits = {
        name: (scaled, scaled.fit(name))
        for name in (AFT if distribution == "best" else (checked_distribution(distribution),))
        for scaled in [_scaled(plan, found, name, candidates)]
    }
    choices = _choices(fits, len(plan.names) + 1)
    name: Distribution = choices["distribution"].iloc[0]
    scaled, maximum = fits[name]
    notes = _notes(found, choices) if candidates is None else _notes(None, choices)
    covariance = np.linalg.inv(maximum.information).astype(np.float64)
    if codes is not None:
        if chosen.errors == "sandwich":
            covariance = sandwich(covariance, maximum.scores, codes)
        else:
            covariance = jackknife(partial(_without, scaled, name), maximum.parameters, codes)
        notes += few_clusters(_clusters.count(codes), chosen.errors)
    return CensoredRegression(
        design=plan,
        parameters=scaled.back @ maximum.parameters + scaled.shift,
        covariance=scaled.back @ covariance @ scaled.back.T,
        degrees=of_coefficients(plan, codes, np.inf),
        level=chosen.level,
        thrashed=thrashed,
        clusters=None if codes is None else _clusters.count(codes),
        notes=notes,
        choices=choices,
    )


def checked_distribution(name: Distribution) -> Distribution:
    """Return the distribution, when there is one of this name."""
    if name not in ERRORS:
        raise SampleError(
            f"there is no distribution {name!r}", f"name one of {[*ERRORS]}, or 'best'"
        )
    return name


def outcome(found: Intervals, distribution: Distribution) -> tuple[Array, Array]:
    """Return the ends of y: log TP, or TP itself; unknown ends infinite."""
    if distribution == "gaussian":
        return np.where(found.low > 0, found.low, -np.inf), found.high
    with np.errstate(divide="ignore"):
        return np.log(found.low), np.log(found.high)


def _scaled(
    plan: CensoredDesign,
    found: Intervals,
    distribution: Distribution,
    candidates: Candidates | None,
) -> _Scaled:
    low, high = outcome(found, distribution)
    middle = np.where(np.isfinite(low), low, high)
    centre, spread = float(middle.mean()), float(middle.std()) or 1.0
    matrix, back_to_columns = plan.standardised()
    count = len(plan.names)
    back = np.eye(count + 1)
    back[:count, :count] = spread * back_to_columns
    shift = np.zeros(count + 1)
    shift[0], shift[-1] = centre, np.log(spread)
    return _Scaled(
        matrix=matrix if candidates is None else matrix[candidates.sample],
        low=(low - centre) / spread,
        high=(high - centre) / spread,
        back=back,
        shift=shift,
        candidates=candidates,
    )


def _choices(fits: Mapping[Distribution, tuple[_Scaled, Maximum]], parameters: int) -> pd.DataFrame:
    rows = [
        (name, maximum.loglik, 2 * parameters - 2 * maximum.loglik)
        for name, (_, maximum) in fits.items()
    ]
    table = pd.DataFrame(rows, columns=["distribution", "loglik", "aic"])
    return table.sort_values("aic", ignore_index=True)


def _notes(found: Intervals | None, choices: pd.DataFrame) -> tuple[str, ...]:
    notes = []
    if len(choices) > 1:
        rest = ", ".join(
            f"{row.distribution} {row.aic:.1f}" for row in choices.iloc[1:].itertuples()
        )
        notes.append(
            f"AIC chose {choices['distribution'].iloc[0]} ({choices['aic'].iloc[0]:.1f}) over "
            f"{rest}; the intervals do not know of the choice"
        )
    if found is not None and found.thrashed.all():
        notes.append("every sample thrashed: nothing is censored at the largest MPL")
    return tuple(notes)


def _without(scaled: _Scaled, distribution: Distribution, samples: Codes) -> Array:
    """Return the parameters from these samples alone."""
    rows, _ = scaled.of(samples)
    matrix = scaled.matrix[rows]
    advice = "use errors='sandwich', or leave out the column that one cluster alone decides"
    if np.linalg.matrix_rank(matrix) < matrix.shape[1] or not np.isfinite(scaled.high[rows]).any():
        raise SampleError(
            "with one cluster left out, a column is constant or nothing thrashed", advice
        )
    try:
        return scaled.fit(distribution, samples).parameters
    except SampleError as error:
        raise SampleError(f"with one cluster left out, {error.problem}", advice) from error


def naive(
    samples: pd.DataFrame,
    on: Sequence[str],
    *,
    logarithm: bool,
    tp: str = "TP",
    **options: Unpack[CensoredKeywords],
) -> LinearPredictor:
    """Regress TP, or its logarithm, over the samples that thrashed, by least squares.

    This is what the study does.

    Intervals are those of least squares: t on n - p degrees of freedom, or with clusters the
    sandwich with t as in `regress`.
    """
    chosen = CensoredOptions(**options)
    values = numbers(samples, tp, infinite=True)
    rows = np.isfinite(values)
    if not rows.any():
        raise SampleError("no sample has a finite TP", "measure larger MPLs")
    if logarithm and (values[rows] <= 0).any():
        raise SampleError(f"`{tp}` is not above 0", "give MPLs of at least 1")
    thrashing = samples[rows]
    y = np.log(values[rows]) if logarithm else values[rows]
    plan = design(thrashing, on, chosen.nonlinear, chosen.knots)
    full_rank(plan, len(y), len(plan.names), "samples that thrashed")
    codes = clusters(thrashing, chosen.cluster)
    fit = least_squares(plan.matrix, y)
    covariance = np.asarray(fit.cov_params())
    if codes is not None:
        scores = plan.matrix * fit.resid[:, None]
        covariance = sandwich(fit.normalized_cov_params, scores, codes)
    return LinearPredictor(
        design=plan,
        parameters=fit.params,
        covariance=covariance,
        degrees=of_coefficients(plan, codes, fit.df_resid),
        level=chosen.level,
        thrashed=len(y),
        clusters=None if codes is None else _clusters.count(codes),
        notes=(f"{len(samples) - len(y)} samples that never thrashed are left out",),
    )
