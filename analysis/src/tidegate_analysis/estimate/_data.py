"""From a frame of samples to the matrices of a regression, or a message that says what to do.

Everything that could make a number silent or a library fail is refused here: columns that are not
there or not numbers, values missing or infinite, columns that are constant or that others add up
to, and fewer samples than parameters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate_analysis.errors import SampleError
from tidegate_analysis.model.structure import TIMES

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]

#: Below this share of the largest singular value a matrix of standardised columns is collinear.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Design:
    """Matrices of one regression.

    Parameters
    ----------
    outcome, terms
        Names: the column explained, and the terms that explain it.
    y
        Values of the outcome.
    X
        The terms: columns, or products of columns less their means.
    scales
        Standard deviation of each term; of a product, the product of the two.
    nuisance
        The intercept, or an indicator for each group when groups have intercepts of their own;
        indicators of blocks after them.
    groups
        The group of each sample, or all zero.

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


def generator(seed: int) -> np.random.Generator:
    """Return the source of random draws that a seed gives."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError) as error:
        raise SampleError(f"seed {seed!r}", "give a whole number from 0") from error


def factors(terms: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that terms are made of."""
    return tuple(dict.fromkeys(name for term in terms for name in term.split(TIMES)))


def numbers(samples: pd.DataFrame, column: str) -> Array:
    """Return a column as finite numbers, or say what is in the way."""
    if column not in samples:
        raise SampleError(
            f"the samples have no column `{column}`",
            f"add it, or use one of {', '.join(map(str, samples.columns))}",
        )
    if not isinstance(samples[column], pd.Series):
        raise SampleError(f"the samples have several columns `{column}`", "rename all but one")
    if missing := int(samples[column].isna().sum()):
        raise SampleError(
            f"`{column}` is missing in {missing} of {len(samples)} samples", "leave those rows out"
        )
    try:
        values = samples[column].to_numpy(dtype=np.float64)
    except (TypeError, ValueError):
        raise SampleError(
            f"`{column}` holds other things than numbers", "convert it first"
        ) from None
    if infinite := int(np.isinf(values).sum()):
        raise SampleError(
            f"`{column}` is infinite in {infinite} of {len(values)} samples",
            "keep only samples that thrashed and say so, or use the models for censored values, "
            "which keep all of them",
        )
    return values


def groups(samples: pd.DataFrame, column: str) -> Codes:
    """Return the group of each sample, numbered from 0."""
    if column not in samples:
        raise SampleError(
            f"the samples have no column `{column}` to group them by",
            "add it, or name another column as `cluster`",
        )
    codes, _ = pd.factorize(samples[column])
    if (codes < 0).any():
        raise SampleError(
            f"`{column}` is missing in {int((codes < 0).sum())} samples", "leave those rows out"
        )
    return codes


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
) -> Design:
    """Make the matrices of a regression of `outcome` on `terms`.

    Parameters
    ----------
    samples, outcome, terms
        ``a:b`` is the product of two columns less their means.
    cluster
        Column that groups the samples.
    intercepts
        Whether each group has an intercept of its own.
    block
        Column whose values have effects of their own beside that, such as the host.

    Raises
    ------
    SampleError
        Nothing can be estimated from this; the message says why and what to do.

    """
    if len(samples) == 0:
        raise SampleError("the table of samples is empty", "load or keep at least some samples")
    if outcome in factors(terms):
        raise SampleError(f"`{outcome}` explains itself", "leave it out of the terms")
    values = {name: numbers(samples, name) for name in (outcome, *factors(terms))}
    codes = groups(samples, cluster) if cluster is not None else np.zeros(len(samples), np.intp)
    nuisance = np.eye(int(codes.max()) + 1)[codes] if intercepts else np.ones((len(samples), 1))
    if block is not None:
        nuisance = _with_blocks(nuisance, groups(samples, block))
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
    return Design(
        outcome, tuple(terms), values[outcome], X, np.array(scales, float), nuisance, codes
    )


def _with_blocks(nuisance: Array, codes: Codes) -> Array:
    """Append an indicator for each block but those that the columns before add up to."""
    for column in np.eye(int(codes.max()) + 1)[codes].T:
        left = column - nuisance @ np.linalg.lstsq(nuisance, column, rcond=None)[0]
        if np.linalg.norm(left) > _TOLERANCE * np.linalg.norm(column):
            nuisance = np.column_stack([nuisance, column])
    return nuisance


def refuse_exact(data: Design, rss: float) -> None:
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
