"""Points of curves, and least squares of the scalability law, for many curves at once.

The law is ``X(N) = N / D(N)`` with ``D(N) = a + b (N - 1) + c N (N - 1)``, where λ = 1/a, σ = b/a,
κ = c/a: D is linear. Its bounds, 0 <= σ <= 1 and κ >= 0, are planes in (a, b, c), which make a cone
of three edges: linear growth, a flat curve, and a = b = 0, the limit of infinite λ, where
``X(N) = (λ/κ) / (N - 1)`` is the steepest fall of the law (out of reach where MPL 1 was measured:
throughput would be infinite there). A bounded least squares estimate is the free one of the space
or of one of the faces: the best of those that keep to the bounds. Each is found by Levenberg's and
Marquardt's method, from the linear regression of N/X on the columns of D, or from the best of a
grid of laws where that is nearer: a curve of two humps has two minima.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate_analysis._columns import Array, Flags
from tidegate_analysis.errors import AnalysisError, SampleError, ShapeError

#: The face of infinite λ.
COHERENCY_ALONE: Final = "coherency alone"
#: Faces of the bounds: rows are what is free of (a, b, c).
FACES: Final[dict[str, tuple[tuple[float, ...], ...]]] = {
    "law": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "amdahl": ((1, 0, 0), (0, 1, 0)),
    "no contention": ((1, 0, 0), (0, 0, 1)),
    "linear": ((1, 0, 0),),
    "full contention": ((1, 1, 0), (0, 0, 1)),
    "flat": ((1, 1, 0),),
    COHERENCY_ALONE: ((0, 0, 1),),
}


#: The edges of the cone that the bounds make, and the face between each set of them, as bits.
EDGES: Final = ("linear", "flat", COHERENCY_ALONE)
BETWEEN: Final = {
    1: "linear",
    2: "flat",
    3: "amdahl",
    4: COHERENCY_ALONE,
    5: "no contention",
    6: "full contention",
    7: "law",
}


@dataclass(frozen=True)
class LawFits:
    """Estimates of many data sets: (a, b, c) in rows, sums of squares, and the face of each."""

    abc: Array
    squares: Array
    face: npt.NDArray[np.str_]


def columns(mpl: Array) -> Array:
    """Return the columns of D at these MPLs."""
    return np.column_stack([np.ones_like(mpl), mpl - 1, mpl * (mpl - 1)])


def on_face(face: str, mpl: Array, tps: Array, weights: Array) -> LawFits:
    """Return the estimates on one face, whether they keep to the bounds or not.

    - tps, weights: Throughput and weight of each point, a row for each data set.
    """
    basis = np.array(FACES[face])
    design = columns(mpl) @ basis.T
    scale = np.linalg.norm(design, axis=0)
    of = (design / scale, mpl, tps, weights)
    theta = _descend(_nearest_start(*of), *of)
    abc = theta / scale @ basis
    squares = (weights * (tps - mpl / (abc @ columns(mpl).T)) ** 2).sum(axis=1)
    return LawFits(abc, squares, np.full(len(tps), face))


def bounded(mpl: Array, tps: Array, weights: Array) -> LawFits:
    """Return the estimates within the bounds."""
    free = on_face("law", mpl, tps, weights)
    outside = ~_feasible(free.abc) | _negligible(free.abc, mpl)
    abc, face = free.abc.copy(), free.face.astype("<U15")
    squares = np.where(outside, np.inf, free.squares)
    rounding = 1e-20 * (weights * tps**2).sum(axis=1)[outside]
    if outside.any():
        for name in _bounds_at(mpl):
            part = on_face(name, mpl, tps[outside], weights[outside])
            least = squares[outside] * (1 - 1e-10) - rounding
            better = _feasible(part.abc) & ((part.squares < least) | np.isinf(least))
            rows = np.flatnonzero(outside)[better]
            abc[rows], squares[rows], face[rows] = part.abc[better], part.squares[better], name
        rows = np.flatnonzero(outside)
        within = _inside(mpl, tps[rows], weights[rows], squares[rows])
        better = within.squares < squares[rows]
        rows = rows[better]
        abc[rows], squares[rows] = within.abc[better], within.squares[better]
        face[rows] = within.face[better]
    return LawFits(abc, squares, face)


def _inside(mpl: Array, tps: Array, weights: Array, squares: Array) -> LawFits:
    """Minima within the bounds, where a grid has a law nearer than these sums of squares.

    An estimate that is beyond the bounds, of the space or of a face, may not be the only minimum.
    """
    edges = np.array([FACES[name][0] for name in EDGES], dtype=np.float64)
    design = columns(mpl) @ edges.T
    scale = np.linalg.norm(design, axis=0)
    theta = _searched(design / scale, mpl, tps, weights)
    found = _squares(theta, design / scale, mpl, tps, weights)
    near = found < squares * (1 - 1e-10)
    if near.any():
        of = (design / scale, mpl, tps[near], weights[near])
        theta[near] = _descend(theta[near], *of, least=0.0)
        found[near] = _squares(theta[near], *of)
    free = (theta > 0) @ (1 << np.arange(len(EDGES)))
    face = np.array([BETWEEN.get(int(each), "law") for each in free])
    return LawFits(theta / scale @ edges, np.where(near, found, np.inf), face)


def _bounds_at(mpl: Array) -> list[str]:
    """Return the faces with finite throughput at these MPLs, those of one parameter first."""
    names = sorted(list(FACES)[1:], key=lambda name: len(FACES[name]))
    return [name for name in names if name != COHERENCY_ALONE or mpl.min() > 1]


def _feasible(abc: Array) -> Flags:
    a, b, c = abc.T
    return np.asarray((a >= 0) & (b >= 0) & (c >= 0) & (b <= a * (1 + 1e-12)) & (a + c > 0))


def _negligible(abc: Array, mpl: Array) -> Flags:
    """Return whether κ, or all but κ, is no more than rounding."""
    last, first = (columns(mpl[[place]])[0] * abc for place in (mpl.argmax(), mpl.argmin()))
    no_kappa = last[:, 2] < 1e-12 * last.sum(axis=1)
    return np.asarray(no_kappa | (first[:, :2].sum(axis=1) < 1e-12 * first.sum(axis=1)))


def _start(design: Array, mpl: Array, tps: Array, weights: Array) -> Array:
    """Return the weighted linear regression of N/X, or a flat curve where that gives none."""
    held = np.maximum(tps, 1e-3 * np.abs(tps).max(axis=1, keepdims=True))
    pull = weights * held**4 / mpl**2  # Var(N/X) = Var(X) N²/X⁴
    normal = np.einsum("bn,nj,nk->bjk", pull, design, design, optimize=True)
    side = (pull * mpl / held) @ design
    ridge = 1e-13 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(design.shape[1])
    theta = np.linalg.solve(normal + ridge, side[..., None])[..., 0]
    wrong = (theta @ design.T <= 0).any(axis=1)
    theta[wrong] = np.maximum(theta[wrong], 0)
    wrong = (theta @ design.T <= 0).any(axis=1)
    theta[wrong] = np.median(mpl / held, axis=1)[wrong, None] / design.sum(axis=1).mean()
    return np.asarray(theta)


def _searched(design: Array, mpl: Array, tps: Array, weights: Array) -> Array:
    """Return the nearest of a grid of laws that turn between the MPLs, each at its best scale."""
    others = design.shape[1] - 1
    count = 40 if others > 1 else 400
    sizes = np.r_[0.0, np.geomspace(0.1, 10 * (mpl.max() / mpl.min()) ** 2, count)]
    grid = np.array([(1.0, *rest) for rest in product(sizes, repeat=others)])
    shapes = mpl / (grid @ design.T)
    along, size = (weights * tps) @ shapes.T, weights @ (shapes**2).T
    best = (np.maximum(along, 0.0) ** 2 / size).argmax(axis=1)[:, None]
    with np.errstate(divide="ignore"):  # no law is near throughput below 0
        scale = np.take_along_axis(size, best, 1) / np.take_along_axis(along, best, 1)
    return np.asarray(grid[best[:, 0]] * scale)


def _nearest_start(design: Array, mpl: Array, tps: Array, weights: Array) -> Array:
    of = (design, mpl, tps, weights)
    regression, searched = _start(*of), _searched(*of)
    nearer = _squares(searched, *of) < _squares(regression, *of)
    return np.where(nearer[:, None], searched, regression)


def _squares(theta: Array, design: Array, mpl: Array, tps: Array, weights: Array) -> Array:
    """Return the sums of squares; infinite where throughput is not positive at each MPL."""
    below = theta @ design.T
    with np.errstate(divide="ignore"):
        found = (weights * (tps - mpl / below) ** 2).sum(axis=1)
    return np.where((below > 0).all(axis=1), found, np.inf)


def _descend(
    theta: Array,
    design: Array,
    mpl: Array,
    tps: Array,
    weights: Array,
    *,
    least: float = -np.inf,
) -> Array:
    """Return the minimum below a start; coefficients do not go below `least`."""
    shared = np.eye(design.shape[1])
    products = (design[:, :, None] * design[:, None, :]).reshape(len(design), -1)
    energy = (weights * tps**2).sum(axis=1)
    squares = _squares(theta, design, mpl, tps, weights)
    damping = np.full(len(tps), 1e-4)
    for _ in range(200):
        below = theta @ design.T
        slope = -mpl / below**2  # times a row of the design, the derivative of throughput
        normal = ((weights * slope**2) @ products).reshape(-1, *shared.shape)
        side = (weights * slope * (tps - mpl / below)) @ design
        diagonal = np.einsum("bjj->bj", normal)[..., None] * shared
        tiny = 1e-300 * shared
        step = np.linalg.solve(normal + damping[:, None, None] * diagonal + tiny, side[..., None])
        there = np.maximum(theta + step[..., 0], least)
        after = _squares(there, design, mpl, tps, weights)
        gained = after <= squares
        hoped = (step[..., 0] * side).sum(axis=1)  # what the step would gain on a straight law
        theta = np.where(gained[:, None], there, theta)
        squares = np.where(gained, after, squares)
        damping = np.clip(np.where(gained, damping / 10, damping * 10), 1e-14, 1e14)
        if (hoped <= np.maximum(1e-20 * energy, 1e-15 * squares)).all():
            break
    return theta


@dataclass(frozen=True)
class Curve:
    """Points of a throughput curve, checked and in the order of their MPLs."""

    mpl: Array
    tps: Array
    weights: Array

    @property
    def levels(self) -> Array:
        """The different MPLs."""
        return np.unique(self.mpl)


def checked(curve: pd.DataFrame, mpl: str, tps: str, weights: str | None) -> Curve:
    """Return the points of a curve, all positive, at four MPLs or more."""
    points = positive(curve, [mpl, tps, *([] if weights is None else [weights])])
    order = np.argsort(points[:, 0], kind="stable")
    points = points[order]
    weight = np.ones(len(points)) if weights is None else points[:, 2] / points[:, 2].mean()
    found = Curve(points[:, 0], points[:, 1], weight)
    if found.levels.size < 4:
        raise SampleError(
            f"the curve has {found.levels.size} MPLs, and the law three parameters",
            "measure at four MPLs or more, below and above the peak",
        )
    if found.levels[0] < 1:
        raise SampleError(f"an MPL is {found.levels[0]:g}", "MPLs are 1 or more")
    return found


def positive(table: pd.DataFrame, names: Sequence[str]) -> Array:
    """Return columns as numbers, all finite and above 0."""
    for name in names:
        if name not in table:
            raise ShapeError(
                f"the curve has no column `{name}`", f"add it, or name one of {list(table)}"
            )
    as_numbers = [pd.to_numeric(table[name], errors="coerce").to_numpy() for name in names]
    numbers = np.column_stack(as_numbers).astype(np.float64)
    if len(numbers) == 0:
        raise SampleError("the curve has no point", "choose a batchset with executions")
    wrong = np.argwhere(~(np.isfinite(numbers) & (numbers > 0)))
    if wrong.size:
        row, column = map(int, wrong[0])
        raise SampleError(
            f"`{names[column]}` of point {row + 1} is {table[names[column]].iloc[row]}, not a "
            "number above 0",
            "leave out executions that failed, as step 2 of the analysis protocol does",
        )
    return numbers


def each(
    table: pd.DataFrame,
    by: Sequence[str],
    work: Callable[[pd.DataFrame], dict[str, object]],
    columns: Sequence[str],
) -> pd.DataFrame:
    """Return a row for each group of a table; ``problem`` says why one could not be worked with."""
    names = [by] if isinstance(by, str) else list(by)
    missing = [name for name in names if name not in table]
    if missing or not names:
        raise ShapeError(
            f"the curves have no column {missing}",
            f"name some of {list(table)} that tell them apart",
        )
    if table.empty:
        raise SampleError("there is no curve", "choose a run with retained batchsets")
    rows = []
    for key, group in table.groupby(names, sort=True, dropna=False):
        row: dict[str, object] = dict(zip(names, key, strict=True))
        try:
            row |= work(group) | {"problem": ""}
        except AnalysisError as error:
            row |= {"problem": str(error)}
        rows.append(row)
    return pd.DataFrame(rows).reindex(columns=[*names, *columns, "problem"])


def mpls_of(mpls: Sequence[float] | Array) -> Array:
    where = np.asarray(mpls, dtype=np.float64)
    if where.ndim != 1 or where.size == 0 or not (np.isfinite(where) & (where >= 1)).all():
        raise SampleError(f"MPLs are {mpls}", "give a list of numbers, 1 or more")
    return where
