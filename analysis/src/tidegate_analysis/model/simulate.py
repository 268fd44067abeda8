"""Samples drawn from a model whose truth is known: what an estimate should give back.

Everything is drawn in standard units and only then given its unit. An exogenous variable takes one
of its levels, each equally likely and independently of the others, and is standardised by the mean
and deviation of *that distribution*, not of the draw. An endogenous variable is::

    z_v = sum of b_p z_p over its paths + sum of b_xm z_x z_m over its moderators + e_v

and the variance of e_v is whatever its equation leaves of 1. So each z has variance 1 and the b are
standardised coefficients in the population, exactly; in a sample they scatter.

Example: the study's refined update model has numProcs -> ATPT -0.34, numProcs -> TP -0.37 and
ATPT -> TP -0.13. Then var(e_ATPT) = 1 - 0.34² = 0.88, and TP's equation explains
0.37² + 0.13² + 2 (-0.37)(-0.13)(-0.34) = 0.12.

DBMSs differ. With `dbms_share` that part of each error's variance is common to all samples of a
DBMS (a random intercept: how slow it is); with `dbms_slopes` each DBMS has coefficients of its own
with that standard deviation around the given ones. Both are taken out of the error, so that the
variances stay 1. They are what makes classical standard errors too small.

Limits: levels are drawn for each sample, while in an experiment all batchsets of a run have the
same numProcs and PK, which makes samples of a run more alike than these are. A moderated path must
begin at an exogenous variable and its moderator must be one, else the variance of the product has
no simple form.

Source: Suh, Snodgrass, Currim 2017, Section 5 (levels), Eq. (1) (thrashing points on a grid);
Bollen 1989, chapter 4 (implied covariance).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from tidegate_analysis._columns import Array
from tidegate_analysis.errors import ModelError, SampleError
from tidegate_analysis.model.structure import Edge, Model

#: Levels of the study's confirmatory experiment for batchsets that read; see `study_design`.
STUDY_DESIGN: Final[Mapping[str, tuple[float, ...]]] = {
    "numProcs": (1, 2, 4, 6, 8),
    "PK": (0, 1),
    "SF": (0.01, 0.1, 1),
    "ROSE": (25, 50, 75, 100),
}

#: Mean and standard deviation given to endogenous variables. The study prints neither; these keep
#: nearly all thrashing points inside its MPLs and all times positive.
STUDY_UNITS: Final[Mapping[str, tuple[float, float]]] = {"ATPT": (3000.0, 500.0), "TP": (550, 200)}

#: MPLs of a batchset: 100, 200, ..., 1000.
STUDY_GRID: Final = tuple(range(100, 1001, 100))

_SUBJECTS: Final = ("mysql", "postgres", "x", "y", "z")


def study_design(mode: str | None) -> Mapping[str, tuple[float, ...]]:
    """Return the levels of the study's experiment for a group: updates have an SF of their own."""
    if mode == "update":
        return {**STUDY_DESIGN, "SF": (0.25, 0.5, 0.75, 1)}
    return STUDY_DESIGN


def simulate(
    model: Model,
    n: int,
    *,
    seed: int | Sequence[int],
    coefficients: Mapping[Edge, float] | None = None,
    design: Mapping[str, Sequence[float]] | None = None,
    units: Mapping[str, tuple[float, float]] = STUDY_UNITS,
    dbms: int | Sequence[str] = _SUBJECTS,
    dbms_share: float = 0.0,
    dbms_slopes: float = 0.0,
    grid: Sequence[float] | None = None,
    outcome: str = "TP",
) -> pd.DataFrame:
    """Draw samples from a model.

    - model: Its paths give the form and, where they state them, the coefficients.
    - coefficients: Standardised, by edge, such as ``{("PK", "TP"): 0.26}``; moderators by ``(from,
      to, by)``. They go before those of the model.
    - design: Levels of each exogenous variable; the study's by default. Columns of the design that
      the model does not use are drawn, too.
    - units: Mean and standard deviation of each endogenous variable; standard units where not
      given.
    - dbms: Names of DBMSs, or how many; samples are dealt to them in turn.
    - dbms_share: Part of each error's variance that is common to a DBMS, from 0 to 1.
    - dbms_slopes: Standard deviation of coefficients between DBMSs.
    - grid: MPLs of a batchset, rising. Then `outcome` is mapped to them as an experiment would: TP
      is the largest of them not above the latent value, infinite from the last one on, and the
      first one below the first (`low` is 0 there). None: the latent value itself.
    - outcome: The variable that becomes TP, low, high and thrashed.

    Returns the columns of `shapes.SAMPLES` and any other variable of the model.

    Raises `ModelError`: a coefficient or the levels of a variable are not given, the coefficients
    explain more than everything, or a product has no simple variance. Raises `SampleError`: `n` or
    the grid makes no sense.
    """
    names = [f"dbms{i + 1}" for i in range(dbms)] if isinstance(dbms, int) else list(dbms)
    _check(n, names, dbms_share, grid)
    levels = {**study_design(model.mode), **(design or {})}
    truth = _coefficients(model, coefficients or {})
    noise = noise_variances(model, truth, slopes=dbms_slopes)
    draw = np.random.default_rng(seed)
    subject = np.arange(n) % len(names)
    raw = {name: draw.choice(values, n) for name, values in levels.items()}
    z = {name: _standard(raw[name], levels, name) for name in levels}
    if absent := [name for name in model.exogenous if name not in z]:
        raise ModelError(
            f"no levels for `{absent[0]}` of model `{model.name}`", "give them in the design"
        )
    for name in model.endogenous:
        common = np.sqrt(noise[name] * dbms_share) * draw.standard_normal(len(names))
        own = np.sqrt(noise[name] * (1 - dbms_share)) * draw.standard_normal(n)
        z[name] = common[subject] + own
        for edge in _into(model, name):
            slopes = truth[edge] + dbms_slopes * draw.standard_normal(len(names))
            z[name] += slopes[subject] * np.prod([z[c] for c in _causes(edge)], axis=0)
    frame = _identified(n, names, model.mode or "read").assign(**raw)
    for name in model.endogenous:
        mean, deviation = units.get(name, (0.0, 1.0))
        frame[name] = mean + deviation * z[name]
    return _thrashing(frame, outcome, grid) if outcome in frame else frame


def _check(n: int, names: Sequence[str], share: float, grid: Sequence[float] | None) -> None:
    if n < 1:
        raise SampleError(f"{n} samples asked for", "ask for at least one")
    if not names:
        raise SampleError("no DBMS to deal samples to", "give at least one")
    if not 0 <= share <= 1:
        raise SampleError(f"dbms_share is {share}", "give a number from 0 to 1")
    if grid is not None and (len(grid) < 2 or list(grid) != sorted(set(grid))):
        raise SampleError("the grid of MPLs does not rise", "give at least two rising values")


def _identified(n: int, names: Sequence[str], mode: str) -> pd.DataFrame:
    """Number samples as an experiment would: a run has one DBMS and 28 batchsets."""
    place, subject = np.divmod(np.arange(n), len(names))
    return pd.DataFrame(
        {
            "experiment": 1,
            "run": 1 + subject + len(names) * (place // 28),
            "batchset": 1 + place % 28,
            "dbms": np.array(names, dtype=object)[subject],
            "mode": mode,
        }
    )


def noise_variances(
    model: Model, coefficients: Mapping[Edge, float], *, slopes: float = 0.0
) -> dict[str, float]:
    """Return the variance of each error that gives every endogenous variable variance 1.

    Exogenous variables are independent of each other. `slopes` is the standard deviation of
    coefficients between DBMSs, which explains some variance, too.
    """
    products = sorted({_product(m.edge) for m in model.moderators})
    place = {name: i for i, name in enumerate([*model.order(), *products])}
    covariance = np.eye(len(place))
    noise: dict[str, float] = {}
    for name in model.endogenous:
        edges = _into(model, name)
        weights = np.zeros(len(place))
        for edge in edges:
            if len(edge) > 2 and not {edge[0], edge[2]} <= set(model.exogenous):
                raise ModelError(
                    f"model `{model.name}`: {edge[0]}:{edge[2]} is a product with an endogenous "
                    "variable, whose variance has no simple form",
                    "simulate a model whose moderated paths begin at exogenous variables",
                )
            weights[place[edge[0] if len(edge) == 2 else _product(edge)]] = coefficients[edge]
        covariances = covariance @ weights
        explained = float(weights @ covariances) + slopes**2 * len(edges)
        if explained >= 1:
            raise ModelError(
                f"model `{model.name}`: the coefficients explain {explained:.2f} of `{name}`",
                "make them smaller: standardised coefficients leave something to the error",
            )
        i = place[name]
        covariance[i, :] = covariance[:, i] = covariances
        covariance[i, i] = 1.0
        noise[name] = 1.0 - explained
    return noise


def _product(edge: Edge) -> str:
    """Name the product of a moderated path, whichever of the two moderates."""
    return ":".join(sorted((edge[0], edge[2])))


def _coefficients(model: Model, given: Mapping[Edge, float]) -> dict[Edge, float]:
    stated = {p.edge: p.coefficient for p in model.paths}
    stated |= {m.edge: m.coefficient for m in model.moderators}
    if unknown := sorted(given.keys() - stated.keys()):
        raise ModelError(
            f"model `{model.name}` has no path {' -> '.join(unknown[0])}",
            "give coefficients of its paths and moderators only",
        )
    found = {edge: given.get(edge, known) for edge, known in stated.items()}
    missing = [edge for edge, value in found.items() if value is None]
    if missing:
        raise ModelError(
            f"model `{model.name}`: no coefficient for {_edges(missing)}",
            "give it in the model's file or in `coefficients`, 0 for no effect",
        )
    return {edge: float(value) for edge, value in found.items() if value is not None}


def _edges(edges: Iterable[Edge]) -> str:
    return ", ".join(f"{e[0]} -> {e[1]}" + (f" by {e[2]}" if len(e) > 2 else "") for e in edges)


def _into(model: Model, name: str) -> list[Edge]:
    edges = [p.edge for p in model.paths] + [m.edge for m in model.moderators]
    return [edge for edge in edges if edge[1] == name]


def _causes(edge: Edge) -> tuple[str, ...]:
    return (edge[0], *edge[2:])


def _standard(drawn: Array, levels: Mapping[str, Sequence[float]], name: str) -> Array:
    values = np.asarray(levels[name], float)
    if values.std() == 0:
        raise ModelError(f"`{name}` has one level only", "give it at least two in the design")
    standard: Array = (drawn - values.mean()) / values.std()
    return standard


def _thrashing(frame: pd.DataFrame, outcome: str, grid: Sequence[float] | None) -> pd.DataFrame:
    latent = frame[outcome].to_numpy(float)
    if grid is None:
        frame["low"], frame["high"], frame["thrashed"] = latent, latent, True
        return frame
    mpls = np.asarray(grid, float)
    place = np.searchsorted(mpls, latent, side="right")
    edges = np.concatenate([[0.0], mpls, [np.inf]])
    frame["low"], frame["high"] = edges[place], edges[place + 1]
    frame["thrashed"] = place < len(mpls)
    point = np.maximum(frame["low"].to_numpy(), mpls[0])
    frame[outcome] = np.where(frame["thrashed"], point, np.inf)
    return frame
