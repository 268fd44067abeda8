"""The law fitted to a curve: parameters, peak, bands, how well it fits, and what it cannot say."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from tidegate_analysis._columns import Array, refuse_level
from tidegate_analysis.errors import SampleError
from tidegate_analysis.scalability._inference import (
    MOST,
    PARAMETERS,
    covariance_on,
    criteria,
    derivatives,
    flags_of,
    intervals_of,
    lack_of_fit_p,
    parameters,
    r2_of,
    student,
    throughput,
)
from tidegate_analysis.scalability._least_squares import (
    FACES,
    Curve,
    LawFits,
    bounded,
    checked,
    columns,
    each,
    mpls_of,
    on_face,
)


@dataclass(frozen=True)
class Law:
    """Gunther's universal scalability law of one curve.

    - lambda_: λ, throughput of one client, tps; inf where throughput falls at least as fast as the
      law can, so that only λ/κ is known.
    - sigma, kappa: σ, contention, and κ, coherency (crosstalk): shares of 1. NaN and inf where λ is
      inf.
    - intervals: ``parameter`` (lambda, sigma, kappa, peak), ``estimate``, ``se`` (delta method; NaN
      at a bound), ``low``, ``high``.
    - r2: Share of the (weighted) variance of throughput.
    - aicc: Akaike's criterion with the small-sample term of ``law``, ``amdahl`` (κ = 0) and
      ``linear`` (σ = κ = 0): inf where points are too few for it. The smallest is best.
    - lack_of_fit: p of the F test that means at each MPL are on the law; NaN without repetitions.
    - face: Which bounds hold: ``law`` when none does.
    - flags: What the data cannot say, in sentences.
    - abc: Coefficients of N/X by 1, N - 1 and N(N - 1): (1, σ, κ)/λ, finite also where λ is not.
    """

    lambda_: float
    sigma: float
    kappa: float
    intervals: pd.DataFrame
    r2: float
    aicc: dict[str, float]
    lack_of_fit: float
    face: str
    flags: tuple[str, ...]
    level: float
    curve: Curve = field(repr=False)
    abc: Array = field(repr=False)

    @property
    def peak(self) -> float:
        """The MPL N* of the largest throughput, ``sqrt((1 - σ)/κ)``.

        Infinite where κ = 0; 0 where σ = 1 or λ is inf, so the law falls everywhere; NaN where it
        is flat.
        """
        return float(parameters(self.abc[None])[0, 3])

    @property
    def peak_tps(self) -> float:
        return throughput(self.abc, self.peak)

    @property
    def best(self) -> str:
        """The model of the smallest AICc; ``undecided`` where points are too few for one."""
        if not np.isfinite(list(self.aicc.values())).all():
            return "undecided"
        return min(self.aicc, key=lambda name: self.aicc[name])

    def to_frame(self) -> pd.DataFrame:
        """Return the parameters and the peak with their intervals."""
        return self.intervals.copy()

    def at(self, mpls: Sequence[float] | Array) -> pd.DataFrame:
        """Return throughput of the law at these MPLs with a pointwise band: mpl, tps, low, high.

        The delta method on N/X, where the law is linear, turned back into throughput: so the band
        is never negative, and has no upper end where the data give none.
        """
        where = mpls_of(mpls)
        basis = np.array(FACES[self.face])
        below = columns(where) @ self.abc
        covariance, degrees = covariance_on(self.curve, self.abc, self.face)
        turn = columns(where) @ basis.T
        half = student(self.level, degrees) * np.sqrt(
            np.einsum("ij,jk,ik->i", turn, covariance, turn)
        )
        ends = {"tps": below, "low": below + half, "high": np.maximum(below - half, 0.0)}
        with np.errstate(divide="ignore"):  # no end, or λ infinite and MPL 1
            return pd.DataFrame({"mpl": where, **{end: where / d for end, d in ends.items()}})

    def bootstrap(
        self,
        *,
        kind: Literal["residual", "pairs"] = "residual",
        draws: int = 1000,
        seed: int = 0,
        mpls: Sequence[float] | None = None,
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Percentile intervals of the parameters and of the curve.

        - kind: ``residual``: residuals, rescaled by their leverage, are drawn anew. ``pairs``:
          points are drawn anew, within each MPL where all have repetitions: one fewer than there
          are, as means of all would vary too little (Rao and Wu 1988, JASA 83).
        - mpls: Where to give the curve; the measured MPLs unless given.

        Both are frames:
        - parameters: ``parameter``, ``estimate``, ``low``, ``high``, and ``at_bound``, the share of
          draws in which it is at a bound (of λ: infinite; of the peak: in which there is none). A
          draw that does not know a parameter counts for both ends.
        - curve: ``mpl``, ``tps``, ``low``, ``high``.
        """
        rng = np.random.default_rng(seed)
        found = _redraw(self, kind, draws, rng)
        where = self.curve.levels if mpls is None else mpls_of(mpls)
        tail = [0.5 - self.level / 2, 0.5 + self.level / 2]
        values = parameters(found.abc)
        unknown = np.isnan(values)
        least, most = np.where(unknown, 0.0, values), np.where(unknown, MOST, values)
        lambda_, sigma, kappa, peak = values.T
        share = [
            float(np.isinf(lambda_).mean()),
            float((np.isin(sigma, [0, 1]) | np.isnan(sigma)).mean()),
            float(((kappa == 0) | np.isinf(kappa)).mean()),
            float((~np.isfinite(peak) | (peak == 0)).mean()),
        ]
        table = pd.DataFrame(
            {
                "parameter": PARAMETERS,
                "estimate": self.intervals["estimate"],
                "low": _quantile(least, tail[0]),
                "high": _quantile(most, tail[1]),
                "at_bound": share,
            }
        )
        with np.errstate(divide="ignore"):
            drawn = where / (found.abc @ columns(where).T)
        curve = self.at(where)[["mpl", "tps"]].assign(
            low=_quantile(drawn, tail[0]), high=_quantile(drawn, tail[1])
        )
        return table, curve

    def __str__(self) -> str:
        """Return the parameters under a line about the whole, and the flags."""
        scores = ", ".join(f"{name} {value:.1f}" for name, value in self.aicc.items())
        head = (
            f"X(N) = λN / (1 + σ(N-1) + κN(N-1)): {self.curve.mpl.size} points at "
            f"{self.curve.levels.size} MPLs, R² = {self.r2:.4f}, AICc: {scores}"
        )
        table = self.intervals.to_string(index=False, float_format="{:.4g}".format)
        return "\n".join([head, table, *self.flags])


def fit(
    curve: pd.DataFrame,
    *,
    mpl: str = "mpl",
    tps: str = "tps",
    weights: str | None = None,
    level: float = 0.95,
) -> Law:
    """Fit the law to one curve by weighted nonlinear least squares, 0 <= σ <= 1 and κ >= 0.

    - curve: A row for each execution, or for each batch with its mean.
    - mpl, tps, weights: Columns: MPL; throughput; weight, such as repetitions over variance (all 1
      unless given).

    Raises `SampleError`: fewer than four MPLs, or a throughput or MPL that is not positive.

    Intervals are Fieller's, from the estimate without bounds, cut to the bounds: each parameter
    and N*² is a ratio of the coefficients of N/X. So they hold at a bound as well, and an interval
    has no end where the data give none.
    """
    refuse_level(level)
    points = checked(curve, mpl, tps, weights)
    row = (points.mpl, points.tps[None], points.weights[None])
    found, free = bounded(*row), on_face("law", *row)
    lambda_, sigma, kappa, _ = map(float, parameters(found.abc)[0])
    intervals = intervals_of(points, found, free, level)
    lack = lack_of_fit_p(points, float(found.squares[0]))
    return Law(
        lambda_=lambda_,
        sigma=sigma,
        kappa=kappa,
        intervals=intervals,
        r2=r2_of(points, float(found.squares[0])),
        aicc=criteria(points, float(found.squares[0])),
        lack_of_fit=lack,
        face=str(found.face[0]),
        flags=flags_of(points, found, free, intervals, lack),
        level=level,
        curve=points,
        abc=found.abc[0],
    )


def fit_all(
    curves: pd.DataFrame,
    by: Sequence[str],
    *,
    mpl: str = "mpl",
    tps: str = "tps",
    weights: str | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Fit the law to each curve of a table.

    - by: Columns that tell the curves apart, such as ``["experiment", "run", "batchset"]``.
    - mpl, tps, weights, level: As for `fit`.

    Returns a row for each curve: the columns of `by`; ``points``, ``mpls``; each of lambda, sigma,
    kappa, peak with ``_low`` and ``_high``; ``peak_tps``; ``r2``; ``aicc_law``, ``aicc_amdahl``,
    ``aicc_linear``, ``best``; ``lack_of_fit``; ``flags``, a text; ``problem``, why a curve could
    not be fitted, else empty. With a column ``TP`` in the curves also ``TP``, ``peak_over_tp`` (for
    a finite TP), ``tp_in_interval`` (whether the interval of the peak holds it). Throughput falls
    sharply above its peak, so a TP is rather above N* than below.
    """
    ends = [f"{name}{end}" for name in PARAMETERS for end in ("", "_low", "_high")]
    fits = ["peak_tps", "r2", "aicc_law", "aicc_amdahl", "aicc_linear", "best", "lack_of_fit"]
    compared = ["TP", "peak_over_tp", "tp_in_interval"] if "TP" in curves else []
    return each(
        curves,
        by,
        lambda group: _row(group, fit_options=(mpl, tps, weights, level)),
        ["points", "mpls", *ends, *fits, "flags", *compared],
    )


def _row(group: pd.DataFrame, fit_options: tuple[str, str, str | None, float]) -> dict[str, object]:
    mpl, tps, weights, level = fit_options
    law = fit(group, mpl=mpl, tps=tps, weights=weights, level=level)
    row: dict[str, object] = {"points": law.curve.mpl.size, "mpls": law.curve.levels.size}
    numbers = law.intervals[["estimate", "low", "high"]].to_numpy(dtype=np.float64)
    for name, (estimate, low, high) in zip(PARAMETERS, numbers, strict=True):
        row |= {name: estimate, f"{name}_low": low, f"{name}_high": high}
    row |= {"peak_tps": law.peak_tps, "r2": law.r2}
    row |= {f"aicc_{name}": value for name, value in law.aicc.items()}
    row |= {"best": law.best, "lack_of_fit": law.lack_of_fit, "flags": "; ".join(law.flags)}
    if "TP" in group:
        tp = float(group["TP"].iloc[0])
        low, high = numbers[3, 1:]
        row |= {
            "TP": tp,
            "peak_over_tp": law.peak / tp if np.isfinite(tp) else np.nan,
            "tp_in_interval": bool(low <= tp <= high),
        }
    return row


def _quantile(values: Array, share: float) -> Array:
    """Return a quantile of each column; it is an order statistic, since some may be infinite."""
    return np.asarray(np.quantile(values, share, axis=0, method="inverted_cdf"))


def _redraw(law: Law, kind: str, draws: int, rng: np.random.Generator) -> LawFits:
    if draws < 2:
        raise SampleError(f"{draws} bootstrap draws give no interval", "take 1000")
    curve, abc = law.curve, law.abc
    count = curve.mpl.size
    if kind == "residual":
        slopes = derivatives(curve, abc, law.face)
        q, _ = np.linalg.qr(slopes / np.linalg.norm(slopes, axis=0))
        spared = np.maximum(1 - (q**2).sum(axis=1), 1 / count)
        centre = curve.mpl / (columns(curve.mpl) @ abc)
        residuals = np.sqrt(curve.weights / spared) * (curve.tps - centre)
        residuals = residuals - residuals.mean()
        drawn = residuals[rng.integers(0, count, (draws, count))] / np.sqrt(curve.weights)
        return bounded(curve.mpl, centre + drawn, np.tile(curve.weights, (draws, 1)))
    if kind != "pairs":
        raise SampleError(f"there is no bootstrap {kind!r}", "use 'residual' or 'pairs'")
    times = _pairs(curve, draws, rng)
    return bounded(curve.mpl, np.tile(curve.tps, (len(times), 1)), times * curve.weights)


def _pairs(curve: Curve, draws: int, rng: np.random.Generator) -> Array:
    """Return how often each point is drawn; draws with fewer than four MPLs are left out."""
    _, place, repeated = np.unique(curve.mpl, return_inverse=True, return_counts=True)
    if (repeated > 1).all():
        # A level counts as much as it has points, whatever number of them is drawn.
        parts = [n / (n - 1) * rng.multinomial(n - 1, np.full(n, 1 / n), draws) for n in repeated]
        return np.hstack(parts)  # points are in the order of their MPLs
    count = curve.mpl.size
    times = rng.multinomial(count - 1, np.full(count, 1 / count), size=draws)
    seen = times @ np.eye(len(repeated))[place] > 0
    enough = seen.sum(axis=1) >= 4
    if enough.sum() < 2:
        raise SampleError(
            "hardly any draw of points has four MPLs", "use kind='residual', or measure more MPLs"
        )
    return np.asarray(times[enough], dtype=np.float64)
