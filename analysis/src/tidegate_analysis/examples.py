"""Stores with planted truth, to try things on: no database system was measured for these.

Throughput of a batchset is X(N) = C·N/(N + 150) up to its thrashing point, and three quarters of
that and falling behind it, with noise of 1 %. The capacity C doubles with four times the
processors, is half as large again with primary keys in the read group, and varies by DBMS and by
itself. The thrashing point rises with processors and primary keys in the read group, falls with
processors in the update group, rises in both where C is larger than the processors and keys make
it, and varies by itself; where it is above all levels, throughput never falls. So signs and paths
are those of the study's refined models, sizes are not.

Example
-------
>>> import tempfile
>>> from tidegate_analysis import examples, load
>>> with tempfile.TemporaryDirectory() as directory:
...     one = examples.ExampleDesign(repetitions=1)
...     path = examples.write_store(f"{directory}/example.db", one)
...     len(load(path).executions(1))
5040

"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis.errors import StoreError
from tidegate_analysis.store.schema import statements

_BEGAN_US: Final = 1_700_000_000_000_000
_ROWS: Final = 1_000_000
#: The last version of the schema without an experiment's times.
_TIMES_BEFORE: Final = 2
#: The last version of the schema without the work of a subject's processes.
_SUBJECT_CPU_BEFORE: Final = 3
#: The last version of the schema without series of measurements.
_SERIES_BEFORE: Final = 4
_PROTOCOL: Final = ("tap v2", "equation-1 v1")


@dataclass(frozen=True)
class ExampleDesign:
    """What is varied, as in an experiment file of the scenario `thrash`.

    - processors, primary_key: What runs differ in, besides.
    - read_sf, update_sf, rose: What batchsets differ in: SF of each group and ROSE, in per cent.
    - mpl: Levels, rising.
    """

    subjects: tuple[str, ...] = ("alpha", "beta", "gamma")
    processors: tuple[int, ...] = (1, 2, 4)
    primary_key: tuple[bool, ...] = (True, False)
    read_sf: tuple[float, ...] = (0.01, 0.1, 1.0)
    update_sf: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)
    rose: tuple[float, ...] = (25.0, 50.0, 75.0, 100.0)
    mpl: tuple[int, ...] = tuple(range(100, 1001, 100))
    repetitions: int = 3
    intervals: int = 0
    ctl_s: int = 120

    def runs(self) -> list[tuple[str, int, bool]]:
        """Return subject, processors and primary keys of each run."""
        return list(product(self.subjects, self.processors, self.primary_key))

    def batchsets(self) -> list[tuple[str, float, float]]:
        """Return mode, SF and ROSE of each batchset of a run."""
        sets = [("read", sf) for sf in self.read_sf] + [("update", sf) for sf in self.update_sf]
        return [(mode, sf, rose) for (mode, sf), rose in product(sets, self.rose)]


def write_store(
    path: str | Path,
    design: ExampleDesign | None = None,
    *,
    seed: int = 1,
    version: int = 5,
    analysed: bool = True,
) -> Path:
    """Write a store with one experiment, which is done and analysed.

    - path: A file that is not there yet.
    - version: Of the schema: 1 to 5.
    - analysed: Whether thrashing points and counts are in it.

    Raises `StoreError`: the file is there, or cannot be written.
    """
    path, design = Path(path), design or ExampleDesign()
    if path.exists():
        raise StoreError(f"{path} is there already", "give the name of a file that is not")
    tps = _throughput(design, np.random.default_rng(seed))
    try:
        with closing(sqlite3.connect(path)) as connection, connection:
            for statement in statements(version):
                connection.execute(statement)
            _add_plan(connection, design, seed, version)
            _add_measurements(connection, design, tps, version)
            if analysed:
                _add_analysis(connection, design, tps, version)
    except sqlite3.Error as error:
        raise StoreError(f"{path} cannot be written: {error}", "give another path") from error
    return path


def _throughput(design: ExampleDesign, rng: np.random.Generator) -> np.ndarray:
    """Return TPS by batchset of all runs, level and repetition."""
    rows = [(*run, mode) for run in design.runs() for mode, _, _ in design.batchsets()]
    dbms = np.array([design.subjects.index(row[0]) for row in rows])
    procs = np.log2([row[1] for row in rows])
    keys = np.array([row[2] for row in rows], dtype="float64")
    is_read = np.array([row[3] == "read" for row in rows])
    speed = rng.normal(0, 0.2, len(design.subjects))[dbms] + rng.normal(0, 0.4, len(rows))
    capacity = 400 * np.exp(0.5 * np.log(2) * procs + 0.4 * keys * is_read + speed)
    drift = np.where(is_read, 130 * (procs - 1.5) + 180 * (keys - 0.5), -130 * (procs - 1.5))
    point = 850 + drift + 200 * speed + rng.normal(0, 200, len(rows))
    mpl = np.array(design.mpl, dtype="float64")
    point = np.clip(point, mpl[0], None)[:, np.newaxis]
    level = mpl[np.newaxis, :]
    last = np.where(level <= point, level, 0).max(axis=1, keepdims=True)
    held = level <= last
    reached = np.where(held, level, last)
    tps = capacity[:, np.newaxis] * reached / (reached + 150)
    tps = np.where(held, tps, 0.75 * tps * (last / level) ** 0.1)
    shape = (*tps.shape, design.repetitions)
    return np.asarray(tps[:, :, np.newaxis] * np.exp(rng.normal(0, 0.01, shape)))


def equation_1(tps: np.ndarray) -> np.ndarray:
    """Return the place of the thrashing point in each row, −1 for none (Eq. (1)).

    - tps: Mean throughput, batchsets by rising levels.

    >>> equation_1(np.array([[100, 200, 190, 120, 110, 130], [100, 120, 130, 135, 136, 130]]))
    array([ 2, -1])
    """
    falls = tps[:, :-1] > 1.2 * tps[:, 1:]
    # The best of all that come after the next level.
    best = np.maximum.accumulate(tps[:, ::-1], axis=1)[:, ::-1]
    after = np.concatenate([best[:, 2:], np.full((len(tps), 1), -np.inf)], axis=1)
    lasts = falls & (tps[:, :-1] > after)
    return np.where(lasts.any(axis=1), lasts.argmax(axis=1), -1)


def bounds(places: np.ndarray, mpl: np.ndarray) -> pd.DataFrame:
    """Return TP, low, high and thrashed as the protocol gives them for places of `equation_1`.

    The fall from the lowest level began somewhere below the second: `low` is 0 there.

    >>> bounds(np.array([1, 0, -1]), np.array([8, 32, 128]))
         TP    low   high  thrashed
    0  32.0   32.0  128.0      True
    1   8.0    0.0   32.0      True
    2   inf  128.0    inf     False
    """
    levels = np.asarray(mpl, dtype=np.float64)
    thrashed = places >= 0
    at, after = levels[places], levels[np.clip(places + 1, 0, len(levels) - 1)]
    return pd.DataFrame(
        {
            "TP": np.where(thrashed, at, np.inf),
            "low": np.where(thrashed, np.where(places == 0, 0.0, at), levels[-1]),
            "high": np.where(thrashed, after, np.inf),
            "thrashed": thrashed,
        }
    )


def _add_plan(
    connection: sqlite3.Connection, design: ExampleDesign, seed: int, version: int
) -> None:
    """Add the experiment, and all that it plans; ids count from 1 in the order of the plan."""
    file = (
        f'name = "example"\nscenario = "thrash"\nsubjects = {json.dumps(design.subjects)}\n'
        f"processors = {list(design.processors)}\nmpl = {list(design.mpl)}\n"
        f'ctl = "{design.ctl_s}s"\nrepetitions = {design.repetitions}\n\n[factors]\n'
        f"rows = {_ROWS}\nprimary_key = {json.dumps(design.primary_key)}\n"
        f"read_sf = {list(design.read_sf)}\nupdate_sf = {list(design.update_sf)}\n"
        f"rose = {list(design.rose)}\n"
    )
    subjects = ",".join(design.subjects)
    _insert(connection, "machine", [(1, "example", "none", 8, 16384, "none")])
    _insert(connection, "code", [(1, "0.1.0", "example")])
    row = (1, "example", "thrash", "", subjects, seed, file, 1, 1, _BEGAN_US)
    times = (design.ctl_s, 1, 0, 60, 1) if version > _TIMES_BEFORE else ()
    _insert(connection, "experiment", [row + times])
    runs = [
        (number, 1, number, subject, processors, int(keys), "", "{}")
        for number, (subject, processors, keys) in enumerate(design.runs(), start=1)
    ]
    _insert(connection, "run", runs)
    starts = [(n, n, 1, 1, "0", "[]", processors, _BEGAN_US) for n, _, _, _, processors, *_ in runs]
    _insert(connection, "start", starts)
    sets = design.batchsets()
    batchsets = [
        (place * len(sets) + number, place + 1, number, "thrash", _spec(keys, *one), "{}")
        for place, (_, _, keys) in enumerate(design.runs())
        for number, one in enumerate(sets, start=1)
    ]
    _insert(connection, "batchset", batchsets)
    in_run = len(sets) * len(design.mpl) * design.repetitions
    executions = product(range(1, len(batchsets) + 1), design.mpl, range(design.repetitions))
    _insert(
        connection,
        "execution",
        (
            (place + 1, batchset, mpl, repetition + 1, place % in_run)
            for place, (batchset, mpl, repetition) in enumerate(executions)
        ),
    )


def _spec(keys: bool, mode: str, sf: float, rose: float) -> str:
    spec = {"kind": "thrash", "rows": _ROWS, "primary_key": keys, "sf": sf, "rose": rose}
    weights = {"reads": int(mode == "read"), "updates": int(mode == "update")}
    return json.dumps(spec | {"placement": "random"} | weights | {"changes": 0, "joins": 0})


def _add_measurements(
    connection: sqlite3.Connection, design: ExampleDesign, tps: np.ndarray, version: int
) -> None:
    """Add an attempt and a measurement for each execution; all have the same number."""
    seen = list(_measured(design, tps))
    lasted_us = design.ctl_s * 1_000_000
    in_run = len(design.batchsets()) * len(design.mpl) * design.repetitions
    attempts = [
        (one, one, 1, (one - 1) // in_run + 1, one * 7919, _BEGAN_US + one * (lasted_us + 1))
        for one in range(1, len(seen) + 1)
    ]
    _insert(connection, "attempt", attempts)
    subject_cpu = (150.0, 0.75) if version > _SUBJECT_CPU_BEFORE else ()
    in_batchset = len(design.mpl) * design.repetitions
    if version > _SERIES_BEFORE:
        count = len(seen) // in_batchset
        _insert(connection, "series", ((n, n, 1, "example") for n in range(1, count + 1)))
    _insert(
        connection,
        "measurement_taken" if version > _SERIES_BEFORE else "measurement",
        (
            (
                *(one, one),
                *((((one - 1) // in_batchset + 1),) if version > _SERIES_BEFORE else ()),
                *(attempts[one - 1][-1] + lasted_us, 0.1, design.ctl_s, mpl),
                *(count, count / design.ctl_s, mean, *tails, 0, 0, 0, 0, 20.0, 0.1),
                *(processors, 0, "{}"),
                *subject_cpu,
            )
            for one, (mpl, processors, _, count, mean, tails) in enumerate(seen, start=1)
        ),
    )
    _insert(
        connection,
        "kind",
        (
            (one, "thrash", mode, count, 0, mean, *tails)
            for one, (_, _, mode, count, mean, tails) in enumerate(seen, start=1)
        ),
    )
    parts = design.intervals
    intervals = (
        (one, number, design.ctl_s * number / parts, count // parts, mean, tails[2])
        for one, (_, _, _, count, mean, tails) in enumerate(seen, start=1)
        for number in range(1, parts + 1)
    )
    _insert(
        connection,
        "interval_seen",
        ((*row, f"[[{row[4] * 1e3:.0f},{row[3]}]]") for row in intervals),
    )
    if version > 1:
        kinds = (
            (one, number, "thrash", mode, count // parts, mean, tails[2])
            for one, (_, _, mode, count, mean, tails) in enumerate(seen, start=1)
            for number in range(1, parts + 1)
        )
        _insert(connection, "interval_kind", kinds)


def _measured(
    design: ExampleDesign, tps: np.ndarray
) -> Iterator[tuple[int, int, str, int, float, Any]]:
    """Give MPL, processors, mode, transactions, mean and tails of the latency, by execution."""
    sets = product(design.runs(), design.batchsets())
    for ((_, processors, _), (mode, _, _)), of_batchset in zip(sets, tps, strict=True):
        for mpl, of_batch in zip(design.mpl, of_batchset, strict=True):
            for one in of_batch:
                count = round(one * design.ctl_s)
                # Little's law: each of so many clients always waits for an answer.
                mean = mpl * design.ctl_s * 1e3 / count
                yield mpl, processors, mode, count, mean, (0.7 * mean, 3 * mean, 4 * mean, 9 * mean)


def _add_analysis(
    connection: sqlite3.Connection, design: ExampleDesign, tps: np.ndarray, version: int
) -> None:
    mpl = np.array(design.mpl)
    places = equation_1(tps.mean(axis=2))
    sets = np.arange(1, len(tps) + 1)
    found = bounds(places, mpl)
    tp, low, high = (found[name].to_numpy() for name in ("TP", "low", "high"))
    counts = np.round(tps * design.ctl_s)
    time_ms = (mpl * design.ctl_s * 1e3)[:, np.newaxis] * np.ones(design.repetitions)
    atpt = time_ms.sum() / counts.sum(axis=(1, 2))
    rows = [
        (
            *(number, number, *_PROTOCOL, None if place < 0 else int(at), int(held)),
            *(None if place < 0 else int(to), "[]", _BEGAN_US, 1, mean)[: 3 if version == 1 else 5],
        )
        for number, place, at, held, to, mean in zip(
            *(column.tolist() for column in (sets, places, tp, low, high, atpt)), strict=True
        )
    ]
    if version > 1:
        _insert(connection, "analysis", [(1, 1, *_PROTOCOL, 1, _BEGAN_US)])
        _insert(connection, "tap_count", _counts(design, places))
    _insert(connection, "thrashing_point", rows)


_CHECKS: Final = [
    ("missing_batches", 1, "batch"),
    ("processor_configuration", 2, "execution"),
    ("missed_executions", 3, "execution"),
    ("other_executors", 4, "execution"),
    ("other_dbms_processes", 5, "execution"),
    ("zero_tps", 6, "execution"),
    ("connection_time_limit", 7, "execution"),
    ("abnormal_atpt", 8, "execution"),
    ("transient_thrashing", 9, "batchset"),
    ("not_steady", 10, "execution"),
    ("unjudged_atpt", None, "execution"),
]

_DROPS: Final = [
    ("2", "faulty_executions"),
    ("3-(i)", "incomplete"),
    ("3-(ii)", "transient_thrashing"),
    ("3-(iii)", "transient_thrashing_retained"),
]


def _counts(design: ExampleDesign, places: np.ndarray) -> list[tuple[Any, ...]]:
    """Return what the protocol counts where there is nothing to complain of."""
    batches = len(places) * len(design.mpl)
    of = {"batchset": len(places), "batch": batches, "execution": batches * design.repetitions}
    rows: list[tuple[Any, ...]] = [
        (1, "0", "executed", "", level, None, count, count, None) for level, count in of.items()
    ]
    rows += [
        (1, "1", name, "", level, number, of[level], 0, None if number is None else 0)
        for name, number, level in _CHECKS
    ]
    rows += [
        (1, step, name, "", level, None, count, 0, None)
        for step, name in _DROPS
        for level, count in of.items()
    ]
    modes = np.array([mode for mode, _, _ in design.batchsets()] * len(design.runs()))
    for mode in ("read", "update"):
        chosen = places[modes == mode]
        found = int((chosen >= 0).sum())
        rows.append((1, "4", "thrashing", mode, "batchset", None, len(chosen), found, None))
    return rows


def _insert(connection: sqlite3.Connection, table: str, rows: Any) -> None:
    """Add rows that have all columns, in their order."""
    rows = iter(rows)
    first = next(rows, None)
    if first is None:
        return
    sql = f"INSERT INTO {table} VALUES ({', '.join('?' * len(first))})"
    connection.execute(sql, first)
    connection.executemany(sql, rows)
