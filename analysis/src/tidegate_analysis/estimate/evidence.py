"""Exploratory and confirmatory samples, kept apart.

A model whose paths were chosen with some samples fits those samples too well: the tests that kept a
path are no evidence for it any more. So the study ran everything twice. Here the two kinds of
samples are two types. `refine` takes `Exploratory` and nothing else, and what it returns remembers
which samples it saw (hashes of them, see `model.Fingerprint`, which also go into the model's file).
`confirm` takes `Confirmatory` and refuses samples that the model has seen.

Two samples are the same when all variables of the initial model and all numbers of the study's have
the same values in both, to the last bit. ATPT is measured, so that does not happen by accident.
Where values alone do not tell samples apart, as in a table of levels and counts, they are not
compared. Samples are also the same when they are of the same run of the same experiment, by number.
Numbers of two stores are not related: say which store samples come from, when there are two.

`split` makes the two of one table: whole runs (or whole DBMSs) go to one side, because samples of
one run are not independent of each other.

Source: Suh, Snodgrass, Currim 2017, Section 9.1 ("completely separate").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from tidegate_analysis._columns import column, floats, generator
from tidegate_analysis.errors import SampleError
from tidegate_analysis.model.structure import Fingerprint, Model

_RUN: Final = ("experiment", "run")
_NUMBERS: Final = ("numProcs", "PK", "SF", "ROSE", "ATPT", "TP")

#: Values tell samples apart when at least this part of them is different from all others.
_TELLING: Final = 0.9


@dataclass(frozen=True, eq=False)
class Exploratory:
    """Samples to choose a model with.

    - store: What tells their numbers of experiments and runs from those of other stores.
    """

    samples: pd.DataFrame
    store: str = ""


@dataclass(frozen=True, eq=False)
class Confirmatory:
    """Samples to test a chosen model with; as `Exploratory`."""

    samples: pd.DataFrame
    store: str = ""


Evidence = Exploratory | Confirmatory


def fingerprint(evidence: Evidence, model: Model) -> Fingerprint:
    """Return what lets these samples, and those seen before, be recognised in another table.

    Raises `SampleError`: they have neither a measured column nor numbers of runs.
    """
    samples, before = evidence.samples, model.refined_with
    numbers = {name for name in _NUMBERS if name in samples}
    columns = tuple(sorted(numbers | {v.name for v in model.variables}))
    columns = before.columns if before else columns
    rows, runs = _rows(samples, columns), _runs(evidence)
    if len(rows) < _TELLING * len(samples):
        rows = frozenset()
    if not rows and not runs:
        raise SampleError(
            "nothing tells these samples from others, so no test could refuse them later",
            "add the columns `experiment` and `run`, or one that is measured, such as `ATPT`",
        )
    if before:
        rows, runs = rows | before.rows, runs | before.runs
    return Fingerprint(columns, rows, runs)


def refuse_seen(confirmatory: Confirmatory, model: Model) -> None:
    """Refuse samples that took part in choosing the model's paths.

    Raises `SampleError`: samples, or runs, are among those that the model was refined with.
    """
    known = model.refined_with
    if known is None:
        return
    rows = len(_rows(confirmatory.samples, known.columns) & known.rows)
    if rows:
        raise SampleError(
            f"{rows} of these samples were used to refine model `{model.name}`",
            "confirm it with samples of other runs; `split` makes two sets of one",
        )
    runs = sorted(_runs(confirmatory) & known.runs)
    if runs:
        store, experiment, run = runs[0]
        raise SampleError(
            f"run {run} of experiment {experiment}{f' of {store}' if store else ''} was used to "
            f"refine model `{model.name}` ({len(runs)} such runs)",
            "confirm it with samples of other runs, or say which `store` each set comes from",
        )


def seen(samples: pd.DataFrame, model: Model) -> tuple[str, ...]:
    """Return what to say of samples of no kind that may have chosen the model's paths."""
    try:
        refuse_seen(Confirmatory(samples), model)
    except SampleError as error:
        return (f"{error.problem}, and p-values are no evidence for paths that they chose",)
    return ()


def split(
    samples: pd.DataFrame, *, seed: int, by: str = "run", share: float = 0.5, store: str = ""
) -> tuple[Exploratory, Confirmatory]:
    """Split one table of samples in two.

    - by: ``run``: whole runs, drawn inside each DBMS so that each is on both sides where it has two
      runs; or a column, such as ``dbms``, whose values stay together.
    - share: Part of the units that become exploratory; at least one goes to each side.

    Raises `SampleError`: a column is not there, there are not two units to split, or the seed is
    none.
    """
    if not 0 < share < 1:
        raise SampleError(f"share is {share}", "give a number between 0 and 1")
    unit = [c for c in _RUN if c in samples] if by == "run" else [by]
    missing = [c for c in ([*unit, "run"] if by == "run" else [by]) if c not in samples]
    if missing:
        raise SampleError(
            f"the samples have no column `{missing[0]}` to split by",
            "add it, or give another column as `by`",
        )
    stratum = ["dbms"] if by == "run" and "dbms" in samples else []
    units = samples[[*stratum, *unit]].drop_duplicates(unit).reset_index(drop=True)
    if len(units) < 2:
        raise SampleError(
            f"the samples have one `{by}` only, which cannot be split",
            "measure a second one, or split by another column",
        )
    chosen = _chosen(units[stratum[0]] if stratum else None, len(units), seed, share)
    exploratory = units.loc[chosen, unit].assign(_chosen=True)
    side = samples[unit].merge(exploratory, on=unit, how="left")["_chosen"].notna().to_numpy()
    return Exploratory(samples[side], store), Confirmatory(samples[~side], store)


def _chosen(strata: pd.Series | None, count: int, seed: int, share: float) -> np.ndarray:
    """Order units at random, strata in turn, and take the first ones."""
    draw = generator(seed)
    order = draw.permutation(count)
    if strata is not None:
        shuffled = strata.iloc[order]
        turn = shuffled.groupby(shuffled, sort=False).cumcount()
        size = shuffled.groupby(shuffled, sort=False).transform("size")
        # The place of a unit in its stratum, from 0 to 1, in the middle of its step.
        order = order[np.argsort((turn.to_numpy() + 0.5) / size.to_numpy(), kind="stable")]
    return order[: min(max(round(share * count), 1), count - 1)]


def _rows(samples: pd.DataFrame, columns: Sequence[str]) -> frozenset[int]:
    missing = [name for name in columns if name not in samples]
    if missing:
        raise SampleError(
            f"the samples have no column `{missing[0]}`, by which they are recognised",
            "add it: it is a variable of the model",
        )
    values = pd.DataFrame({name: floats(column(samples, name)) for name in columns})
    return frozenset(pd.util.hash_pandas_object(values + 0.0, index=False).tolist())


def _runs(evidence: Evidence) -> frozenset[tuple[str, int, int]]:
    samples = evidence.samples
    if not all(name in samples for name in _RUN):
        return frozenset()
    given = samples[list(_RUN)].dropna().drop_duplicates()
    pairs = given.apply(pd.to_numeric, errors="coerce")
    for name in _RUN:
        if wrong := given.loc[~(pairs[name] % 1 == 0), name].tolist():
            raise SampleError(
                f"`{name}` holds `{wrong[0]}`, which is no number of one",
                "give whole numbers, as the laboratory does, or leave that column out",
            )
    pairs = pairs.astype("int64")
    return frozenset((evidence.store, e, r) for e, r in pairs.itertuples(index=False))
