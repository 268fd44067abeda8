"""How strong an unobserved common cause of mediator and outcome must be to explain ACME away.

The mediator was not randomised, so the errors of both models may be correlated: ρ. If they are, the
outcome's regression puts into the mediator's effect b what belongs to the common cause. With s₁ and
s₂ the norms of both models' residuals, what it puts there is

    κ(ρ) = ρ / √(1 − ρ²) · s₂ / s₁,

so that with a the treatment's effect on the mediator and c the interaction

    ACME(t; ρ) = (treated − control) · a · (b − κ(ρ) + c t).

This is where the generalised least squares of R's medsens() arrive (Imai, Keele, Yamamoto 2010,
Section 5): the outcome's model has every variable of the mediator's, so the mediator's estimates do
not depend on ρ, and the outcome's move along the mediator's residuals. Without interaction it is
their Theorem 4. ACME is 0 where κ(ρ) = b + c t.

ρ² is also the product of the shares of *unexplained* variance of M and Y that the common cause
explains, and ρ² (1 − R²_M) (1 − R²_Y) that of the shares of *all* their variance.

Example: ACME is 28, and 0 at ρ = −0.2. A common cause that moves mediator and outcome in opposite
directions and explains 20 % of what is left unexplained in each would be enough.

The interval is the delta method's. Given ρ, a, b and the ratio of norms are independent in large
samples, and the ratio's variance is 1/n of its square; medsens() takes the ratio for known, so its
intervals are too narrow where ρ is large.

Limits. Both models linear, errors normal. Moderators without a value are taken at their means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis._columns import Array, refuse_level
from tidegate_analysis._weighted import WeightedModel
from tidegate_analysis.errors import AnalysisError
from tidegate_analysis.mediation._mechanism import Mechanism, MediationDesign, design


@dataclass(frozen=True)
class Sensitivity:
    """ACME as it would be under correlations of the two models' errors.

    - table: A row for each ρ: ``rho, acme_control, low_control, high_control, acme_treated,
      low_treated, high_treated, r2_unexplained`` (ρ²), ``r2_total``.
    - rho_control, rho_treated: Where ACME under control and under treatment is 0.
    - r2_mediator, r2_outcome: Share of variance that each model explains.
    """

    table: pd.DataFrame = field(repr=False)
    rho_control: float
    rho_treated: float
    r2_mediator: float
    r2_outcome: float
    mechanism: Mechanism
    at: Mapping[str, float]
    level: float

    @property
    def r2_unexplained(self) -> float:
        """Product of shares of unexplained variance at which ACME (treated) is 0: ρ²."""
        return self.rho_treated**2

    @property
    def r2_total(self) -> float:
        """Product of shares of all variance at which ACME (treated) is 0."""
        return self.rho_treated**2 * (1 - self.r2_mediator) * (1 - self.r2_outcome)

    def to_frame(self) -> pd.DataFrame:
        return self.table

    def __str__(self) -> str:
        return (
            f"ACME is 0 if the errors of {self.mechanism.mediator} and {self.mechanism.outcome} "
            f"correlate by {self.rho_treated:.3f}: a common cause whose shares of their "
            f"unexplained variance multiply to {self.r2_unexplained:.3f}, of all variance to "
            f"{self.r2_total:.3f}."
        )


def sensitivity(
    samples: pd.DataFrame,
    mechanism: Mechanism,
    *,
    at: Mapping[str, float] | None = None,
    rho: Sequence[float] | None = None,
    level: float = 0.95,
) -> Sensitivity:
    """Compute ACME for correlations of the errors that an unobserved common cause would leave.

    - samples, mechanism: As of `mediate`; both models linear.
    - at: Values of moderators; others are taken at their means.
    - rho: Correlations to try; from −0.9 to 0.9 in steps of 0.1.
    """
    if not mechanism.linear:
        raise AnalysisError(
            "the sensitivity analysis is one of two linear models",
            "use linear models, for a yes/no outcome as a linear probability",
        )
    refuse_level(level)
    grid = np.linspace(-0.9, 0.9, 19) if rho is None else np.asarray(rho, dtype=np.float64)
    if grid.ndim != 1 or not len(grid) or not (np.abs(grid) < 1).all():
        raise AnalysisError(
            f"correlations {grid.ravel()[:5].tolist()}", "give some between −1 and 1"
        )
    made = design(samples, mechanism, None)
    mediator = WeightedModel(made.of_mediator(), made.mediator, "linear", mechanism.mediator)
    outcome = WeightedModel(made.of_outcome(), made.outcome, "linear", mechanism.outcome)
    on_mediator, on_outcome = _contrasts(made, {} if at is None else at)
    a, a_error = _combination(mediator, on_mediator)
    ratio = np.linalg.norm(outcome.residuals) / np.linalg.norm(mediator.residuals)
    kappa = grid / np.sqrt(1 - grid**2) * ratio
    quantile = stats.norm.ppf((1 + level) / 2)
    table, zero = pd.DataFrame({"rho": grid}), {}
    for world, contrast in zip(("control", "treated"), on_outcome, strict=True):
        b, b_error = _combination(outcome, contrast)
        acme = a * (b - kappa)
        variance = ((b - kappa) * a_error) ** 2 + a**2 * (b_error**2 + kappa**2 / made.samples)
        table[f"acme_{world}"] = acme
        table[f"low_{world}"] = acme - quantile * np.sqrt(variance)
        table[f"high_{world}"] = acme + quantile * np.sqrt(variance)
        zero[world] = float(b / np.hypot(b, ratio))
    r2 = [1 - float(np.var(each.residuals) / np.var(each.y)) for each in (mediator, outcome)]
    table["r2_unexplained"] = grid**2
    table["r2_total"] = grid**2 * (1 - r2[0]) * (1 - r2[1])
    held = {} if at is None else dict(at)
    return Sensitivity(
        table, zero["control"], zero["treated"], r2[0], r2[1], mechanism, held, level
    )


def _combination(model: WeightedModel, contrast: Array) -> tuple[float, float]:
    """Return a combination of a model's coefficients, and its standard error."""
    error = np.linalg.norm(contrast @ model.covariance_root(None))
    return float(contrast @ model.original(model.start[None, :])[0]), float(error)


def _contrasts(made: MediationDesign, at: Mapping[str, float]) -> tuple[Array, tuple[Array, Array]]:
    """Return the combinations of coefficients that ACME is a product of.

    The treatment's effect on the mediator over the contrast, and the mediator's effect on the
    outcome under control and under treatment.
    """
    rows, mechanism = made.at(at), made.mechanism
    by_treatment, by_mediator = rows.by_treatment.mean(axis=0), rows.by_mediator.mean(axis=0)
    before = np.zeros(made.background.shape[1])
    step = mechanism.treated - mechanism.control
    on_mediator = np.concatenate([before, step * by_treatment])
    before = np.zeros(len(on_mediator))
    on_outcome = [
        np.concatenate([before, by_mediator, [level] if mechanism.interaction else []])
        for level in (mechanism.control, mechanism.treated)
    ]
    return on_mediator, (on_outcome[0], on_outcome[1])
