"""How strong an unobserved common cause of mediator and outcome must be to explain ACME away.

The mediator was not randomised, so the errors of both models may be correlated: ρ. Were ρ known,
the two models could be estimated together with it (Imai, Keele, Yamamoto 2010, Section 5). Here ρ
is tried from −1 to 1, as R's medsens() does: the errors' standard deviations come from the last
residuals, the coefficients from generalised least squares with those and ρ, until nothing moves.
The ρ at which ACME is 0 is the strength that would explain it away; without interaction it is the
correlation of the errors of M and Y when M is left out of the model of Y (Theorem 4).

ρ² is also the product of the shares of *unexplained* variance of M and Y that the common cause
explains, and ρ² (1 − R²_M) (1 − R²_Y) that of the shares of *all* their variance.

Example: ACME is 28, and 0 at ρ = −0.2. A common cause that moves mediator and outcome in opposite
directions and explains 20 % of what is left unexplained in each would be enough.

Limits. Both models linear. The interval at a given ρ takes the errors' standard deviations for
known, as medsens() does, but keeps the covariance of the two models' coefficients, which medsens()
leaves out: it is not 0 unless ρ is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy import optimize, stats

from tidegate_analysis.assumptions.inputs import Array
from tidegate_analysis.errors import AnalysisError, SampleError
from tidegate_analysis.mediation._mechanism import Design, Mechanism, design

#: Beyond it nothing is left to estimate from.
EDGE = 0.99


@dataclass(frozen=True)
class Sensitivity:
    """ACME as it would be under correlations of the two models' errors.

    Attributes
    ----------
    table
        A row for each ρ: ``rho, acme_control, low_control, high_control, acme_treated,
        low_treated, high_treated, r2_unexplained`` (ρ²), ``r2_total``.
    rho_control, rho_treated
        Where ACME under control and under treatment is 0; NaN when nowhere.
    r2_mediator, r2_outcome
        Share of variance that each model explains.
    mechanism, at, level
        What was asked.

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
        """Return a row for each ρ."""
        return self.table

    def __str__(self) -> str:
        if np.isnan(self.rho_treated):
            return "No correlation of the errors makes ACME 0."
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
    clusters: str | None = None,
    level: float = 0.95,
) -> Sensitivity:
    """Compute ACME for correlations of the errors that an unobserved common cause would leave.

    Parameters
    ----------
    samples, mechanism
        As of `mediate`; both models linear.
    at
        Values of moderators; others are taken at their means.
    rho
        Correlations to try; from −0.9 to 0.9 in steps of 0.1.
    clusters
        A column whose values' samples are not independent: intervals from the sandwich.
    level
        Of the intervals.

    """
    if not mechanism.linear:
        raise AnalysisError(
            "the sensitivity analysis is one of two linear models",
            "use linear models, for a yes/no outcome as a linear probability",
        )
    if not 0 < level < 1:
        raise AnalysisError(f"level {level}", "give a probability between 0 and 1, such as 0.95")
    grid = np.linspace(-0.9, 0.9, 19) if rho is None else np.asarray(rho, dtype=np.float64)
    if grid.ndim != 1 or not len(grid) or not (np.abs(grid) <= EDGE).all():
        raise AnalysisError(
            f"correlations {list(grid.ravel()[:5])}", f"give some from −{EDGE} to {EDGE}"
        )
    system = _System(design(samples, mechanism, clusters), {} if at is None else at)
    quantile = stats.norm.ppf((1 + level) / 2)
    rows = []
    for each in grid:
        row = {"rho": each}
        beta, covariance = system.solve(float(each))
        for world, name in enumerate(("control", "treated")):
            value, slope = system.acme(beta, world)
            error = float(np.sqrt(slope @ covariance @ slope))
            row[f"acme_{name}"] = value
            row[f"low_{name}"] = value - quantile * error
            row[f"high_{name}"] = value + quantile * error
        rows.append(row)
    table = pd.DataFrame(rows)
    table["r2_unexplained"] = table["rho"] ** 2
    unexplained = (1 - system.r2_mediator) * (1 - system.r2_outcome)
    table["r2_total"] = table["r2_unexplained"] * unexplained
    return Sensitivity(
        table=table,
        rho_control=system.zero(0),
        rho_treated=system.zero(1),
        r2_mediator=system.r2_mediator,
        r2_outcome=system.r2_outcome,
        mechanism=mechanism,
        at={} if at is None else dict(at),
        level=level,
    )


class _System:
    """Both models as one system with correlated errors."""

    def __init__(self, made: Design, at: Mapping[str, float]) -> None:
        self.y = (made.mediator, made.outcome)
        parts = [np.linalg.qr(each) for each in (made.of_mediator(), made.of_outcome())]
        self.bases = (parts[0][0], parts[1][0])
        self.triangles = (parts[0][1], parts[1][1])
        self.clusters = made.clusters
        self.cross = self.bases[0].T @ self.bases[1]
        self.right = [[basis.T @ y for y in self.y] for basis in self.bases]
        self.start = np.concatenate([self.right[0][0], self.right[1][1]])
        variances = [np.mean((y - y.mean()) ** 2) for y in self.y]
        residuals = self._residuals(self.start)
        self.r2_mediator, self.r2_outcome = (
            float(1 - np.mean(left**2) / all_of)
            for left, all_of in zip(residuals, variances, strict=True)
        )
        self.contrast = _contrast(made, at, self.triangles)

    def _residuals(self, beta: Array) -> tuple[Array, Array]:
        width = self.bases[0].shape[1]
        return (
            self.y[0] - self.bases[0] @ beta[:width],
            self.y[1] - self.bases[1] @ beta[width:],
        )

    def solve(self, rho: float) -> tuple[Array, Array]:
        """Return the coefficients in the bases under a correlation, and their covariance."""
        beta = self.start
        for _ in range(10_000):
            left = self._residuals(beta)
            weight = _weight(left, rho)
            normal = self._normal(weight)
            found = np.linalg.solve(normal, self._right(weight))
            moved = np.abs(found - beta).max() / np.abs(found).max()
            beta = found
            if moved < 1e-10:
                return beta, self._covariance(normal, weight, beta)
        raise SampleError(
            f"the models do not settle under a correlation of {rho:.2f}",
            "try correlations closer to 0",
        )

    def _normal(self, weight: Array) -> Array:
        first, second = (np.eye(basis.shape[1]) for basis in self.bases)
        return np.block(
            [
                [weight[0, 0] * first, weight[0, 1] * self.cross],
                [weight[0, 1] * self.cross.T, weight[1, 1] * second],
            ]
        )

    def _right(self, weight: Array) -> Array:
        return np.concatenate(
            [weight[i, 0] * self.right[i][0] + weight[i, 1] * self.right[i][1] for i in (0, 1)]
        )

    def _covariance(self, normal: Array, weight: Array, beta: Array) -> Array:
        bread = np.linalg.inv(normal)
        if self.clusters is None:
            return bread
        left = np.stack(self._residuals(beta))
        weighted = weight @ left
        scores = np.hstack(
            [basis * each[:, None] for basis, each in zip(self.bases, weighted, strict=True)]
        )
        sums = np.zeros((int(self.clusters.max()) + 1, scores.shape[1]))
        np.add.at(sums, self.clusters, scores)
        return bread @ sums.T @ sums @ bread

    def acme(self, beta: Array, world: int) -> tuple[float, Array]:
        """Return ACME under control (0) or treatment (1), and its derivative by coefficients."""
        on_mediator, on_outcome = self.contrast[0], self.contrast[1][world]
        width = len(on_mediator)
        a, b = on_mediator @ beta[:width], on_outcome @ beta[width:]
        return float(a * b), np.concatenate([b * on_mediator, a * on_outcome])

    def zero(self, world: int) -> float:
        """Return the correlation at which ACME is 0, NaN when there is none."""

        def value(rho: float) -> float:
            return self.acme(self.solve(rho)[0], world)[0]

        if value(-EDGE) * value(EDGE) > 0:
            return float("nan")
        return float(optimize.brentq(value, -EDGE, EDGE, xtol=1e-10))


def _weight(left: tuple[Array, Array], rho: float) -> Array:
    """Inverse of the errors' covariance under a correlation."""
    samples = len(left[0])
    spread = [np.sqrt(each @ each / (samples - 1)) for each in left]
    both = rho * spread[0] * spread[1]
    found: Array = np.linalg.inv(np.array([[spread[0] ** 2, both], [both, spread[1] ** 2]]))
    return found


def _contrast(
    made: Design, at: Mapping[str, float], triangles: tuple[Array, Array]
) -> tuple[Array, tuple[Array, Array]]:
    """Return rows that give, from coefficients in the bases, what ACME is a product of.

    The treatment's effect on the mediator over the contrast, and the mediator's effect on the
    outcome under control and under treatment.
    """
    rows = made.at(at)
    mechanism = made.mechanism
    width = rows.background.shape[1]
    moderators = rows.by_treatment.mean(axis=0), rows.by_mediator.mean(axis=0)
    on_mediator = np.concatenate(
        [np.zeros(width), (mechanism.treated - mechanism.control) * moderators[0]]
    )
    on_outcome = [
        np.concatenate([np.zeros(width + len(moderators[0])), moderators[1], [level]])
        for level in (mechanism.control, mechanism.treated)
    ]
    end = None if mechanism.interaction else -1
    both = [np.linalg.solve(triangles[1].T, each[:end]) for each in on_outcome]
    return np.linalg.solve(triangles[0].T, on_mediator), (both[0], both[1])
