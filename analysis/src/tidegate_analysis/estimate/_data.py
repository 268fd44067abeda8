"""The matrices of one equation, made of a frame of samples.

Refuses columns that are constant or that others add up to, and fewer samples than parameters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tidegate_analysis._columns import Array, Codes, codes, numbers
from tidegate_analysis.errors import SampleError
from tidegate_analysis.model.structure import TIMES

#: Below this share of the largest singular value a matrix of standardised columns is collinear.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class EquationDesign:
    """Matrices of one regression.

    - outcome, terms: Names: the column explained, and the terms that explain it.
    - X: The terms: columns, or products of columns less their means.
    - scales: Standard deviation of each term; of a product, the product of the two.
    - nuisance: The intercept, or an indicator for each group when groups have intercepts of their
      own; indicators of blocks after them.
    - groups: The group of each sample, or all zero.
    """

    outcome: str
    terms: tuple[str, ...]
    y: Array
    X: Array
    scales: Array
    nuisance: Array
    groups: Codes

    @property
    def full(self) -> Array:
        """Terms, then nuisance."""
        return np.hstack([self.X, self.nuisance])


def factors(terms: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that terms are made of."""
    return tuple(dict.fromkeys(name for term in terms for name in term.split(TIMES)))


def product(columns: Sequence[Array]) -> Array:
    """Multiply columns less their means; one column stays as it is."""
    if len(columns) == 1:
        return columns[0]
    result: Array = np.prod([column - column.mean() for column in columns], axis=0)
    return result


def design(
    samples: pd.DataFrame,
    outcome: str,
    terms: Sequence[str],
    *,
    cluster: str | None = None,
    intercepts: bool = False,
    block: str | None = None,
) -> EquationDesign:
    """Make the matrices of a regression of `outcome` on `terms`.

    - samples, outcome, terms: ``a:b`` is the product of two columns less their means.
    - intercepts: Whether each group has an intercept of its own.
    - block: Column whose values have effects of their own beside that, such as the host.

    Raises `SampleError`: nothing can be estimated from this; the message says why and what to do.
    """
    if len(samples) == 0:
        raise SampleError("the table of samples is empty", "load or keep at least some samples")
    if outcome in factors(terms):
        raise SampleError(f"`{outcome}` explains itself", "leave it out of the terms")
    values = {name: numbers(samples, name) for name in (outcome, *factors(terms))}
    groups = np.zeros(len(samples), np.intp)
    if cluster is not None:
        groups = codes(samples, cluster)[0]
    nuisance = np.eye(int(groups.max()) + 1)[groups] if intercepts else np.ones((len(samples), 1))
    if block is not None:
        nuisance = _with_blocks(nuisance, codes(samples, block)[0])
    parameters = len(terms) + nuisance.shape[1]
    if len(samples) <= parameters:
        raise SampleError(
            f"{len(samples)} samples for the {parameters} parameters of `{outcome}`",
            "collect more samples or drop terms: a regression needs more samples than parameters",
        )
    for name, column in values.items():
        if np.ptp(column) == 0:
            raise SampleError(
                f"`{name}` is {column[0]:g} in all {len(column)} samples",
                "leave it out: what does not vary explains nothing and cannot be explained",
            )
    columns = [product([values[f] for f in term.split(TIMES)]) for term in terms]
    X = np.column_stack(columns) if columns else np.empty((len(samples), 0))
    scales = [np.prod([values[f].std(ddof=1) for f in term.split(TIMES)]) for term in terms]
    refuse_collinear(X, terms, nuisance, cluster if intercepts else None, block)
    return EquationDesign(
        outcome, tuple(terms), values[outcome], X, np.array(scales, float), nuisance, groups
    )


def _with_blocks(nuisance: Array, blocks: Codes) -> Array:
    """Append an indicator for each block but those that the columns before add up to."""
    for column in np.eye(int(blocks.max()) + 1)[blocks].T:
        left = column - nuisance @ np.linalg.lstsq(nuisance, column, rcond=None)[0]
        if np.linalg.norm(left) > _TOLERANCE * np.linalg.norm(column):
            nuisance = np.column_stack([nuisance, column])
    return nuisance


def refuse_exact(data: EquationDesign, rss: float) -> None:
    """Refuse an outcome that its terms give without any error."""
    if rss <= 1e-20 * np.square(data.y - data.y.mean()).sum():
        raise SampleError(
            f"`{data.outcome}` follows exactly from {_named(data.terms)}",
            "leave out what it was computed from: there is no error to estimate with",
        )


def refuse_collinear(
    X: Array,
    terms: Sequence[str],
    nuisance: Array,
    cluster: str | None,
    block: str | None = None,
) -> None:
    """Refuse terms that add up to each other, naming them.

    What the nuisance columns explain is taken out first. The null space of what is left says which
    terms take part.
    """
    if X.shape[1] == 0:
        return
    left = X - nuisance @ np.linalg.lstsq(nuisance, X, rcond=None)[0]
    size = np.linalg.norm(left, axis=0)
    within = [t for t, s, x in zip(terms, size, X.T, strict=True) if s <= 1e-9 * _spread(x)]
    if within:
        if block is not None and nuisance.shape[1] > 1:
            raise SampleError(
                f"{_named(within)} cannot be told from `{block}`: each of its levels was measured "
                f"by other values of `{block}`",
                f"measure all its levels on each `{block}`, or leave it out",
            )
        where = f" in each `{cluster}`" if cluster else ""
        raise SampleError(
            f"{_named(within)} is constant{where}",
            "leave it out" + (", or give no intercepts of their own to groups" if cluster else ""),
        )
    _, strength, directions = np.linalg.svd(np.linalg.qr(left / size, mode="r"))
    rank = int((strength > _TOLERANCE * strength[0]).sum())
    if rank < X.shape[1]:
        share = np.abs(directions[rank:]).max(axis=0)
        guilty = [t for t, s in zip(terms, share, strict=True) if s > 1e-6]
        raise SampleError(
            f"{_named(guilty)} are perfectly collinear", "leave one of them out: each says the same"
        )


def _spread(x: Array) -> float:
    return float(np.linalg.norm(x - x.mean())) or 1.0


def _named(terms: Sequence[str]) -> str:
    quoted = [f"`{term}`" for term in terms]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} and {quoted[-1]}"
