"""The shapes of the tables that this package works on.

`SAMPLES` is what statistics are made of: a row for each batchset instance that the analysis
protocol retained. Everything that estimates takes samples and nothing else, so samples may as well
come from a CSV file, from another laboratory, or from a simulation.

Four columns of a sample tell of its thrashing point, and different methods read different ones. So
a table in which they contradict each other is refused: it would give as many answers as methods.

Names of variables are the study's (Suh, Snodgrass, Currim 2017, Section 3.2); all other columns are
lower case.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Final, Literal

import numpy as np
import pandas as pd

from tidegate_analysis.errors import ShapeError

Type = Literal["whole", "number", "text", "yes/no"]


@dataclass(frozen=True)
class Column:
    """A column of a shape: its type, what it means, whether it must be there and have a value."""

    type: Type
    meaning: str
    required: bool = True
    may_be_missing: bool = False


Shape = Mapping[str, Column]

SAMPLES: Final[Shape] = {
    "experiment": Column("whole", "number of the experiment in its store", required=False),
    "run": Column("whole", "number of the run in the experiment", required=False),
    "batchset": Column("whole", "number of the batchset in the run", required=False),
    "host": Column("text", "the host that measured it", required=False, may_be_missing=True),
    "dbms": Column("text", "the DBMS: samples of one are not independent of each other"),
    "mode": Column("text", "`read` or `update`: the study's two groups"),
    "numProcs": Column(
        "number", "processors given to the DBMS; missing where not seen", may_be_missing=True
    ),
    "PK": Column("number", "1 with primary keys, 0 without"),
    "SF": Column("number", "percent of the rows that a transaction touches"),
    "ROSE": Column("number", "percent of the rows that it may touch"),
    "ATPT": Column("number", "average transaction processing time of the batchset, ms"),
    "TP": Column("number", "thrashing point, an MPL; inf when it never thrashed"),
    "low": Column(
        "number", "throughput held up to this MPL; 0 when it fell from the lowest (left-censored)"
    ),
    "high": Column("number", "it had fallen at this MPL; inf when it never did"),
    "thrashed": Column("yes/no", "whether TP is finite"),
}

#: The values of `mode`.
MODES: Final = ("read", "update")


@dataclass(frozen=True)
class _Rule:
    """What columns of one row owe each other: which rows break it, and what to do."""

    columns: tuple[str, ...]
    problem: str
    broken: Callable[[pd.DataFrame], pd.Series]
    advice: str


def _says_thrashed(table: pd.DataFrame, column: str) -> pd.Series:
    said: pd.Series = table[column] if column == "thrashed" else np.isfinite(table[column])
    return said


def _agree(one: str, other: str) -> _Rule:
    return _Rule(
        (one, other),
        f"`{one}` and `{other}` contradict each other",
        lambda t: _says_thrashed(t, one) != _says_thrashed(t, other),
        "correct one of them: a sample thrashed when, and only when, `TP` and `high` are finite",
    )


def _too_high(table: pd.DataFrame) -> pd.Series:
    """TP is `high` only where throughput fell at the first MPL, or where TP is known exactly."""
    low, tp, high = (table[name] for name in ("low", "TP", "high"))
    ends = (tp == high) & (low > 0) & (low < high)
    return (high < np.inf) & ((tp > high) | ends)


_RULES: Final = (
    _Rule(
        ("mode",),
        f"`mode` is not one of {', '.join(MODES)}",
        lambda t: ~t["mode"].isin(MODES),
        "use these, in lower case, and another column for groups of your own",
    ),
    _agree("thrashed", "TP"),
    _agree("thrashed", "high"),
    _agree("TP", "high"),
    _Rule(
        ("low", "high"),
        "`low` is above `high`",
        lambda t: t["low"] > t["high"],
        "correct them: throughput held up to `low`, and had fallen at `high`",
    ),
    _Rule(
        ("low", "TP"),
        "`TP` is below `low`",
        lambda t: t["TP"] < t["low"],
        "correct them: throughput held up to `low`, so TP is at least that",
    ),
    _Rule(
        ("low", "TP", "high"),
        "`TP` is not below `high`",
        _too_high,
        "correct them: TP is the last MPL before the fall, `high` the one where it had fallen",
    ),
)


def check(table: pd.DataFrame, shape: Shape, what: str) -> pd.DataFrame:
    """Return the table with the shape's columns in their types, or say what to do.

    Columns that the shape does not name are kept as they are.

    - what: What the table is, for messages, such as ``samples.csv``.

    Raises `ShapeError`: a required column is missing, a value is missing or is not of its type, or
    columns of a sample contradict each other.
    """
    table = table.copy()
    for name, column in shape.items():
        if name not in table:
            if column.required:
                raise ShapeError(f"{what} has no column `{name}`", f"add it: {column.meaning}")
            continue
        table[name] = _typed(table[name], name, column, what)
    for rule in _RULES:
        if all(name in table and shape.get(name) is SAMPLES[name] for name in rule.columns):
            _refuse_broken(table, rule, what)
    return table


def _refuse_broken(table: pd.DataFrame, rule: _Rule, what: str) -> None:
    broken = np.flatnonzero(rule.broken(table).to_numpy())
    if broken.size:
        raise ShapeError(
            f"{what}: {rule.problem} in {broken.size} of {len(table)} rows, first in row "
            f"{broken[0] + 1}",
            rule.advice,
        )


def read(file: str | PathLike[str], shape: Shape = SAMPLES) -> pd.DataFrame:
    """Read a table from a CSV or Parquet file; columns that the shape knows have its types.

    Columns of the shape that are not there are not asked for: a model of one's own may do without.
    Numbers are read to the last bit, by which samples that were used before are recognised; pandas'
    own default may give the number beside.

    Raises `ShapeError`: it cannot be read, is empty, or `check` refuses it.
    """
    path = Path(file)
    if path.suffix not in (".csv", ".parquet"):
        raise ShapeError(f"{path} is neither .csv nor .parquet", "convert it to one of them")
    try:
        table = (
            pd.read_csv(path, float_precision="round_trip")
            if path.suffix == ".csv"
            else pd.read_parquet(path)
        )
    except FileNotFoundError as error:
        raise ShapeError(f"there is no {path}", "give the path of a table of samples") from error
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ShapeError(
            f"{path} cannot be read: {reason}", f"give a table as {path.suffix}"
        ) from error
    if table.empty:
        raise ShapeError(f"{path} has no row", "give a table with a row for each sample")
    there = {name: column for name, column in shape.items() if name in table}
    return check(table, there, str(path))


def _typed(values: pd.Series, name: str, column: Column, what: str) -> pd.Series:
    missing = values.isna()
    if missing.any() and not column.may_be_missing:
        row = int(np.flatnonzero(missing.to_numpy())[0])
        raise ShapeError(
            f"{what}, row {row + 1}: `{name}` is missing", "give it a value or leave the row out"
        )
    if column.type == "text":
        return values.map(str, na_action="ignore")
    numbers = pd.to_numeric(values, errors="coerce").astype("float64")
    wrong = numbers.isna() & ~missing
    if column.type == "whole":
        wrong |= numbers.notna() & (numbers % 1 != 0)
    if column.type == "yes/no":
        wrong |= numbers.notna() & ~numbers.isin([0, 1])
    if wrong.any():
        row = int(np.flatnonzero(wrong.to_numpy())[0])
        raise ShapeError(
            f"{what}, row {row + 1}: `{name}` is {values.iloc[row]}, not a {column.type}",
            f"correct it: {column.meaning}",
        )
    if column.type == "yes/no" and not missing.any():
        return numbers.astype(bool)
    if column.type == "whole" and not missing.any():
        return numbers.astype("int64")
    return numbers
