"""Direct, indirect and total effects, by tracing paths.

The effect of a variable along a chain of paths is the product of their coefficients; the indirect
effect is the sum over all chains, the total effect adds the direct path (Wright 1934). In matrices,
with B holding the coefficient of column's effect on row (Bollen 1989, chapter 8)::

    T = (I - B)⁻¹,   total = T - I,   indirect = total - B

The study's read model: numProcs -> TP is 0.34 directly and (-0.34)(-0.28) = 0.10 through ATPT,
together 0.44.

**Delta method.** The total effect's derivative by one coefficient is again a product,
dT_ts/dB_ij = T_ti T_js, and the covariance of all coefficients comes with the fit. The
intervals are of Student's t, with the fewest degrees of freedom that a coefficient of the effect's
chains has in its equation; the wild bootstrap tests coefficients only, so effects of a fit with it
have clustered errors.

**Bootstrap.** Samples are drawn again with replacement (groups of them when errors are
clustered, inside groups when groups have intercepts), the model is refitted from weighted moments,
all draws at once, and intervals are percentiles. An indirect effect is a product, whose
distribution is skewed: prefer these intervals for it when n is small.

Moderated paths count with their effect at the moderators' means.

Source: Suh, Snodgrass, Currim 2017, Section 9.3.4.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis._columns import Array, Flags, generator
from tidegate_analysis._weighted import WeightedModel
from tidegate_analysis.errors import SampleError
from tidegate_analysis.estimate._data import EquationDesign, design, factors
from tidegate_analysis.estimate.paths import PathFit
from tidegate_analysis.model.structure import Edge, Model

KINDS: Final = ("direct", "indirect", "total")

#: Draws are made in pieces of about this many numbers, to bound memory.
_PIECE: Final = 2_000_000


@dataclass(frozen=True)
class Trace:
    """One chain of paths from a variable to another, and the product of its coefficients."""

    chain: tuple[str, ...]
    coefficients: tuple[float, ...]

    @property
    def effect(self) -> float:
        """The product."""
        return float(np.prod(self.coefficients))

    def __str__(self) -> str:
        product = " × ".join(f"{b:.2f}" for b in self.coefficients)
        return f"{' -> '.join(self.chain)}: {product} = {self.effect:.2f}"


def trace(
    model: Model, coefficients: Mapping[Edge, float], source: str, target: str
) -> tuple[Trace, ...]:
    """Return all chains of paths from `source` to `target`, the shortest first.

    - coefficients: Of each path, by its ends.
    """
    chains = [[source]]
    found = []
    while chains:
        chain = chains.pop(0)
        if chain[-1] == target and len(chain) > 1:
            found.append(chain)
            continue
        chains += [[*chain, p.target] for p in model.paths if p.source == chain[-1]]
    return tuple(
        Trace(
            tuple(chain),
            tuple(float(coefficients[edge]) for edge in pairwise(chain)),
        )
        for chain in found
    )


def totals(model: Model, coefficients: Mapping[Edge, float]) -> pd.DataFrame:
    """Return direct, indirect and total effects for known coefficients, such as published ones.

    >>> from tidegate_analysis.model import study
    >>> model = study("refined, update")
    >>> found = totals(model, model.coefficients).query("`from` == 'numProcs' and to == 'TP'")
    >>> found["total"].round(2).item()
    -0.33
    """
    values = np.array([coefficients[path.edge] for path in model.paths])
    pairs, kinds = _effects(model, values[None, :])
    frame = pd.DataFrame(pairs, columns=["from", "to"])
    return frame.assign(**{kind: kinds[kind][0] for kind in KINDS})


@dataclass(frozen=True, eq=False)
class Effects:
    """Effects with their uncertainty.

    - table: A row for each pair of variables that chains connect, and each of `KINDS`: from, to,
      kind, effect, se, low, high, p.
    - method: ``delta`` or ``bootstrap``.
    - standardised: Whether effects are in standard deviations, or in the units of the variables.
    """

    table: pd.DataFrame
    method: str
    standardised: bool
    traces: Mapping[Edge, tuple[Trace, ...]]

    def to_frame(self) -> pd.DataFrame:
        """Return the table."""
        return self.table.copy()

    def of(self, source: str, target: str, kind: str = "total") -> pd.Series:
        """Return one row."""
        found = self.table.query("`from` == @source and to == @target and kind == @kind")
        if found.empty:
            raise SampleError(
                f"there is no {kind} effect of `{source}` on `{target}`",
                "name two variables that paths connect, and one of " + ", ".join(KINDS),
            )
        return found.iloc[0]

    def __str__(self) -> str:
        return self.table.to_string(index=False, float_format=lambda x: f"{x:.3g}")


def effects(
    fit: PathFit,
    *,
    method: Literal["delta", "bootstrap"] = "delta",
    scale: Literal["standardised", "raw"] = "standardised",
    draws: int = 2000,
    seed: int = 0,
) -> Effects:
    """Return direct, indirect and total effects of a fitted model.

    - fit: A fitted model; its options say what groups samples.
    - method: See the module.
    - scale: In standard deviations, or in units: MPL for each processor more.

    Raises `SampleError`: a bootstrap of a random effect, which is not supported.
    """
    raw = scale == "raw"
    values, covariance, df = fit.joint(raw=raw)
    pairs, kinds = _effects(fit.model, values[None, :])
    there = _there(fit.model, pairs)
    confidence = fit.options.confidence
    if method == "bootstrap":
        drawn = _effects(fit.model, _bootstrap(fit, draws, seed, raw=raw))[1]
        spread = {kind: _percentiles(drawn[kind], confidence) for kind in KINDS}
    else:
        fewest = _fewest(fit.model, df)
        spread = {
            kind: _delta(kinds[kind][0], gradient, covariance, fewest[kind], confidence)
            for kind, gradient in _gradients(fit.model, values).items()
        }
    # A kind that no chain gives is not an effect of 0 but none.
    rows = [
        (*pair, kind, kinds[kind][0, i], *(column[i] for column in spread[kind]))
        for i, pair in enumerate(pairs)
        for kind in KINDS
        if there[kind][i]
    ]
    columns = ["from", "to", "kind", "effect", "se", "low", "high", "p"]
    table = pd.DataFrame(rows, columns=columns)
    known = {path.edge: float(b) for path, b in zip(fit.model.paths, values, strict=True)}
    chains: dict[Edge, tuple[Trace, ...]] = {pair: trace(fit.model, known, *pair) for pair in pairs}
    return Effects(table, method, not raw, chains)


def _places(model: Model) -> tuple[dict[str, int], Array]:
    """Return the place of each variable, and row and column in B of each path."""
    place = {name: i for i, name in enumerate(model.order())}
    cells = np.array([(place[p.target], place[p.source]) for p in model.paths])
    return place, cells


def _effects(model: Model, values: Array) -> tuple[list[tuple[str, str]], dict[str, Array]]:
    """Return pairs that chains connect and, for each draw (row), their effects by kind."""
    place, cells = _places(model)
    size = len(place)
    B = np.zeros((len(values), size, size))
    B[:, cells[:, 0], cells[:, 1]] = values
    total = np.linalg.inv(np.eye(size) - B) - np.eye(size)
    pairs = _pairs(model)
    rows = [place[target] for _, target in pairs]
    columns = [place[source] for source, _ in pairs]
    kinds = {"direct": B, "indirect": total - B, "total": total}
    return pairs, {kind: matrix[:, rows, columns] for kind, matrix in kinds.items()}


def _pairs(model: Model) -> list[tuple[str, str]]:
    """Return causes and effects that chains connect, effects in causal order."""
    causes: dict[str, set[str]] = {}
    for name in model.order():
        sources = model.sources(name)
        causes[name] = set(sources).union(*(causes[source] for source in sources))
    return [(s, t) for t in model.endogenous for s in model.order() if s in causes[t]]


def _there(model: Model, pairs: list[tuple[str, str]]) -> dict[str, Flags]:
    """Tell for each pair which kinds of effects chains give."""
    edges = {path.edge for path in model.paths}
    ones = dict.fromkeys(edges, 1.0)
    indirect = [any(len(t.chain) > 2 for t in trace(model, ones, *pair)) for pair in pairs]
    return {
        "direct": np.array([pair in edges for pair in pairs], bool),
        "indirect": np.array(indirect, bool),
        "total": np.ones(len(pairs), bool),
    }


def _gradients(model: Model, values: Array) -> dict[str, Array]:
    """Return derivatives of the effects (rows) by the coefficients of paths (columns)."""
    place, cells = _places(model)
    B = np.zeros((len(place), len(place)))
    B[cells[:, 0], cells[:, 1]] = values
    T = np.linalg.inv(np.eye(len(place)) - B)
    pairs, _ = _effects(model, values[None, :])
    rows = np.array([place[target] for _, target in pairs])
    columns = np.array([place[source] for source, _ in pairs])
    total = T[np.ix_(rows, cells[:, 0])] * T[np.ix_(cells[:, 1], columns)].T
    direct = (rows[:, None] == cells[:, 0]) & (columns[:, None] == cells[:, 1])
    return {"direct": direct.astype(float), "indirect": total - direct, "total": total}


def _fewest(model: Model, df: Array) -> dict[str, Array]:
    """Return for each effect the fewest degrees of freedom of a coefficient in its chains."""
    # With coefficients of 1 a derivative counts the chains that a coefficient is in.
    chains = _gradients(model, np.ones_like(df))
    return {kind: np.where(count > 0.5, df, np.inf).min(axis=1) for kind, count in chains.items()}


def _delta(
    effect: Array, gradient: Array, covariance: Array, df: Array, confidence: float
) -> tuple[Array, Array, Array, Array]:
    se = np.sqrt(np.einsum("ij,jk,ik->i", gradient, covariance, gradient))
    reach = stats.t.ppf(0.5 + confidence / 2, df)
    with np.errstate(divide="ignore", invalid="ignore"):
        p = np.asarray(2 * stats.t.sf(np.abs(effect / se), df))
    return se, effect - reach * se, effect + reach * se, p


def _percentiles(drawn: Array, confidence: float) -> tuple[Array, Array, Array, Array]:
    low, high = np.quantile(drawn, [0.5 - confidence / 2, 0.5 + confidence / 2], axis=0)
    below = np.minimum((drawn <= 0).mean(axis=0), (drawn >= 0).mean(axis=0))
    p = np.minimum(1.0, 2 * np.maximum(below, 1 / len(drawn)))
    return drawn.std(axis=0, ddof=1), low, high, p


def _bootstrap(fit: PathFit, draws: int, seed: int, *, raw: bool) -> Array:
    """Return coefficients of all paths (columns) in each draw (rows), from weighted moments."""
    by_group = fit.options.effect == "fixed"
    if fit.options.effect == "random":
        raise SampleError(
            "effects of a fit with random effects cannot be bootstrapped here",
            "use the delta method, or a fixed effect",
        )
    if by_group and fit.clusters() is not None:
        raise SampleError(
            "whole groups cannot be drawn again when each has an intercept of its own",
            "use the delta method, or classical errors",
        )
    if draws < 2:
        raise SampleError(f"{draws} bootstrap draws", "ask for some thousands")
    designs = {
        name: design(
            fit.samples,
            name,
            fit.model.terms(name),
            cluster=fit.options.cluster if by_group else None,
            intercepts=by_group,
            block=fit.options.block,
        )
        for name in fit.model.endogenous
    }
    draw = generator(seed)
    pieces = max(1, draws * fit.n // _PIECE)
    found = []
    for size in (len(part) for part in np.array_split(np.arange(draws), pieces)):
        W = _weights(fit, size, draw)
        columns = {
            (name, term): value
            for name, data in designs.items()
            for term, value in zip(data.terms, _refit(fit.samples, data, W, raw=raw).T, strict=True)
        }
        found.append(np.column_stack([columns[p.target, p.source] for p in fit.model.paths]))
    drawn: Array = np.vstack(found)
    usable = np.isfinite(drawn).all(axis=1)
    if usable.mean() < 0.95:
        raise SampleError(
            f"{int((~usable).sum())} of {draws} bootstrap draws leave nothing to estimate from",
            "use the delta method: too few samples, or groups, differ in some variable",
        )
    return np.asarray(drawn[usable])


def _weights(fit: PathFit, draws: int, draw: np.random.Generator) -> Array:
    """Return how often each sample is in each draw."""
    codes = fit.clusters()
    if codes is not None:
        count = int(codes.max()) + 1
        drawn = draw.multinomial(count, np.full(count, 1 / count), draws)
        return np.asarray(drawn[:, codes], float)
    if fit.options.effect == "fixed":
        W = np.zeros((draws, fit.n))
        for rows in fit.samples.groupby(fit.options.cluster).indices.values():
            W[:, rows] = draw.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), draws)
        return W
    return draw.multinomial(fit.n, np.full(fit.n, 1 / fit.n), draws).astype(float)


def _refit(samples: pd.DataFrame, data: EquationDesign, W: Array, *, raw: bool) -> Array:
    """Return coefficients in each draw; not a number where a draw left terms collinear."""
    model = WeightedModel(data.full, data.y, "linear", data.outcome)
    b = model.fit(W).coefficients[:, : len(data.terms)]
    if raw:
        return b
    scales = [
        np.prod([_deviations(samples[f].to_numpy(float), W) for f in factors([term])], axis=0)
        for term in data.terms
    ]
    standardised: Array = b * np.column_stack(scales) / _deviations(data.y, W)[:, None]
    return standardised


def _deviations(x: Array, W: Array) -> Array:
    """Return the standard deviation of a column in each draw."""
    x = x - x.mean()
    total = W.sum(axis=1)
    deviations: Array = np.sqrt((W @ np.square(x)) / total - np.square(W @ x / total))
    return deviations
