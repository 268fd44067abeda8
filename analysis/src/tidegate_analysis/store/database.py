"""The result store: a file of SQLite, or a database of PostgreSQL.

A store is only read: SQLite opens it so, and PostgreSQL is told. Each table is one statement on a
connection of its own, so that a laboratory that is writing the same store never waits for a
notebook that has it open; tables read one after the other may differ by what was written between.

Rows come in portions that become columns at once, so that a table of millions costs little more
than its columns.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from tidegate_analysis.errors import StoreError
from tidegate_analysis.store.catalog import (
    ARROW,
    ATTEMPTS_OF,
    PLACE,
    PLACES,
    VERSIONS,
    ExportTable,
    Kind,
)
from tidegate_analysis.store.settings import TIMES, settings
from tidegate_analysis.store.source import Progress, Selection, json_object

#: Rows that are Python objects at a time.
PORTION: Final = 65_536

_COLUMN_OF: Final = {"experiment": "e.id", "run": "r.number", "batchset": "b.number"}

_NO_STORE = "give the path of a store that `tidegate lab run` wrote, or of an export's directory"

_Rows = Iterator[list[tuple[Any, ...]]]


class Database:
    """What the two databases have in common."""

    name: str
    version: int
    #: What stands for a value in a statement.
    _mark: str
    #: The order of texts by their bytes.
    _bytewise: str

    def portions(self, sql: str, values: Sequence[int] = ()) -> _Rows:
        """Give the rows of a statement, portion by portion."""
        raise NotImplementedError

    def read(
        self, table: ExportTable, selection: Selection, progress: Progress | None = None
    ) -> pa.Table:
        """See `Source`."""
        if table.since > self.version:
            return table.schema().empty_table()
        found = self._given(table, selection, progress)
        if table.scope == "attempt":
            found = _with_places(found, self._given(PLACES, selection))
        found = _DERIVE[table.derived](found, table)
        if table.derived == "settings" and self.version >= _TIMES_SINCE:
            found = self._with_times(found)
        return found

    def _with_times(self, found: pa.Table) -> pa.Table:
        """Return experiments with the times of the store, where it has them."""
        rows = self.portions(f"SELECT id, {', '.join(TIMES)} FROM experiment")
        stored = {experiment: times for portion in rows for experiment, *times in portion}
        experiments = found["experiment"].to_pylist()
        for place, name in enumerate(TIMES):
            times = [stored[experiment][place] for experiment in experiments]
            column = pc.coalesce(pa.array(times, type=pa.float64()), found[name])
            found = found.set_column(found.column_names.index(name), name, column)
        return found

    def _given(
        self, table: ExportTable, selection: Selection, progress: Progress | None = None
    ) -> pa.Table:
        """Return the columns that the statement gives, sorted."""
        given = table.given()
        schema = pa.schema([(name, ARROW[kind]) for name, kind in given.items()])
        chosen = selection.chosen()
        batches: list[pa.RecordBatch] = []
        seen = 0
        for rows in self.portions(self._statement(table, chosen), tuple(chosen.values())):
            batches.append(_batch(rows, schema, f"{self.name}, table {table.name}"))
            seen += len(rows)
            if progress is not None:
                progress(table.name, seen)
        return pa.Table.from_batches(batches, schema=schema)

    def _statement(self, table: ExportTable, chosen: dict[str, int]) -> str:
        """Return the table's statement with what is chosen, in its order."""
        sql = table.sql
        if table.older is not None and self.version <= table.older[0]:
            sql = table.older[1]
        which = " AND ".join(f"{_COLUMN_OF[name]} = {self._mark}" for name in chosen)
        if table.scope == "attempt":
            # Also of all: what no longer counts has its rows there, too.
            which = f"q.attempt IN ({ATTEMPTS_OF}{f' WHERE {which}' if which else ''})"
        if which:
            sql = f"{sql} WHERE {which}"
        given = table.given()
        # Databases differ in the order of texts, and in where NULL comes.
        order = [
            f'"{name}"{f" COLLATE {self._bytewise}" if given[name] == "text" else ""}'
            f"{' NULLS FIRST' if given[name] == 'whole?' else ''}"
            for name in table.sorted_by()
        ]
        names = ", ".join(f'"{name}"' for name in given)
        return f"WITH found ({names}) AS ({sql}) SELECT * FROM found ORDER BY {', '.join(order)}"

    def _checked_version(self) -> int:
        """Return the version of the schema, or say why it cannot be read."""
        found = [version for rows in self.portions(_VERSIONS) for (version,) in rows]
        version = max(found, default=0)
        if version not in VERSIONS:
            known = f"{min(VERSIONS)} to {max(VERSIONS)}"
            raise StoreError(
                f"{self.name} is of schema version {version}, and this package reads {known}",
                "use the analysis that came with the Tidegate that wrote it"
                if version > max(VERSIONS)
                else _NO_STORE,
            )
        return version


_VERSIONS = "SELECT version FROM schema_version"

#: The version of the schema that keeps an experiment's times.
_TIMES_SINCE: Final = 3


class Sqlite(Database):
    """A store in a file."""

    _mark, _bytewise = "?", "BINARY"

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self.version = self._checked_version()

    def portions(self, sql: str, values: Sequence[int] = ()) -> _Rows:
        """See `Database`."""
        try:
            with contextlib.closing(self._open()) as connection:
                cursor = connection.execute(sql, values)
                while rows := cursor.fetchmany(PORTION):
                    yield rows
        except sqlite3.Error as error:
            raise self._failed(error) from error

    def _open(self) -> sqlite3.Connection:
        uri = f"{self._path.resolve().as_uri()}?mode=ro"
        return sqlite3.connect(uri, uri=True, timeout=30)

    def _failed(self, error: sqlite3.Error) -> StoreError:
        message = str(error)
        if "not a database" in message or "no such table: schema_version" in message:
            return StoreError(f"{self.name} is not a result store", _NO_STORE)
        if "locked" in message:
            return StoreError(f"{self.name} is being written to", "try again in a moment")
        return StoreError(
            f"{self.name} cannot be read: {message}",
            "see to it that it is whole and that you may read it and its directory",
        )


class Postgres(Database):
    """A store in a database of PostgreSQL."""

    _mark, _bytewise = "%s", '"C"'

    def __init__(self, url: str) -> None:
        self.name = _without_password(url)
        self._url = url
        self.version = self._checked_version()

    def portions(self, sql: str, values: Sequence[int] = ()) -> _Rows:
        """See `Database`."""
        try:
            with psycopg.connect(self._url) as connection:
                connection.read_only = True
                with connection.cursor(name="rows") as cursor:
                    cursor.itersize = PORTION
                    # The text is this module's own.
                    cursor.execute(sql.encode(), values)
                    while rows := cursor.fetchmany(PORTION):
                        yield rows
        except psycopg.errors.UndefinedTable as error:
            raise StoreError(f"{self.name} is not a result store", _NO_STORE) from error
        except psycopg.Error as error:
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise StoreError(
                f"{self.name} cannot be read: {lines[0]}",
                "see to it that the server runs and that the URL is right",
            ) from error


def _without_password(url: str) -> str:
    try:
        parts = urlsplit(url)
        place = parts.hostname or "localhost"
        return f"the store {parts.path.lstrip('/')} on {place}"
    except ValueError:
        return "the store"


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema, what: str) -> pa.RecordBatch:
    try:
        columns = [
            pa.array(values, type=field.type)
            for values, field in zip(zip(*rows, strict=True), schema, strict=True)
        ]
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise StoreError(f"{what} is damaged: {error}", "use another copy of the store") from error
    return pa.record_batch(columns, schema=schema)


def _with_places(found: pa.Table, places: pa.Table) -> pa.Table:
    """Return rows of attempts with the columns of their executions, in the order of those.

    Both are sorted, the rows by attempt and the places by execution.
    """
    attempts = places["attempt"].to_numpy()
    by_number = np.argsort(attempts)
    place = by_number[np.searchsorted(attempts, found["attempt"].to_numpy(), sorter=by_number)]
    rows = np.argsort(place, kind="stable")
    place = place[rows]
    columns = {name: places[name].take(pa.array(place)) for name in PLACE}
    columns |= {name: found[name].take(rows) for name in found.column_names[1:]}
    return pa.table(columns)


def _as_found(found: pa.Table, _: ExportTable) -> pa.Table:
    return found


def _with_settings(found: pa.Table, table: ExportTable) -> pa.Table:
    """Append what the experiment's file says, with its preset and defaults."""
    pairs = zip(found["file"].to_pylist(), found["preset"].to_pylist(), strict=True)
    values = [settings(file, preset) for file, preset in pairs]
    return _appended(found, table, values)


#: Where a workload's description has the columns that are taken from it.
_VALUES: Final = {"sf_percent": "sf", "rose_percent": "rose"}


def _with_workload(found: pa.Table, table: ExportTable) -> pa.Table:
    """Append what the workload's description says by name, each description read once."""
    texts = pc.dictionary_encode(found["workload_values"].combine_chunks())
    names = list(table.columns)[found.num_columns :]
    specs = [json_object(t, "a workload's description") for t in texts.dictionary.to_pylist()]
    values = [{name: _value(spec, name, table.columns[name]) for name in names} for spec in specs]
    schema = pa.schema([table.schema().field(name) for name in names])
    columns = pa.Table.from_pylist(values, schema=schema).take(texts.indices)
    for name in names:
        found = found.append_column(schema.field(name), columns[name])
    return found


def _value(spec: dict[str, Any], name: str, kind: Kind) -> object:
    """Return what a workload says by that name: another workload's may be of another kind."""
    value = spec.get(_VALUES.get(name, name))
    kinds = {"number": (int, float), "text": (str,)}.get(kind, (int,))
    return value if isinstance(value, kinds) and not isinstance(value, bool) else None


def _appended(found: pa.Table, table: ExportTable, values: list[dict[str, float]]) -> pa.Table:
    for name in list(table.columns)[found.num_columns :]:
        field = table.schema().field(name)
        column = pa.array([row[name] for row in values], type=field.type)
        found = found.append_column(field, column)
    return found


def _with_histogram(found: pa.Table, _: ExportTable) -> pa.Table:
    """Make a row of each pair of latency and count."""
    texts = found[found.num_columns - 1].to_pylist()
    try:
        # Read by the portion: one call for many small texts.
        read = [
            pairs
            for start in range(0, len(texts), PORTION)
            for pairs in json.loads(f"[{','.join(texts[start : start + PORTION])}]")
        ]
        lengths = np.fromiter(map(len, read), dtype=np.int64, count=len(read))
        flat = np.array([pair for pairs in read for pair in pairs], dtype=np.int64).reshape(-1, 2)
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"a histogram is damaged: {error}", "use another copy of the store"
        ) from error
    rows = np.repeat(np.arange(len(read)), lengths)
    keys = found.select(list(range(found.num_columns - 1))).take(pa.array(rows))
    keys = keys.append_column("latency_us", pa.array(flat[:, 0]))
    return keys.append_column("transactions", pa.array(flat[:, 1]))


_DERIVE: Final = {
    "": _as_found,
    "settings": _with_settings,
    "workload": _with_workload,
    "histogram": _with_histogram,
}
