"""A directory that `tidegate lab export` wrote: CSV, Parquet or JSON.

CSV and Parquet are a file for each table; JSON is one document, which is read as a whole, so for
more than some thousand executions the others are better. In CSV an empty field is NULL and ``""``
is empty text, and both are kept apart.

An export says nothing of a version. Where thrashing points have no `id`, it is of schema version
1: `analysis` was the point's own number then, and tables that came later have no file. Exports of
version 2 and above are read alike: columns and tables that are not in the catalog are left out, and
posteriors, which came with version 7, are none where they have no file.
"""

import functools
import json
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from tidegate_analysis.errors import StoreError
from tidegate_analysis.store.catalog import TABLES, ExportTable
from tidegate_analysis.store.source import Progress, Selection

Format = Literal["parquet", "csv", "json"]

_DOCUMENT: Final = "experiment.json"


class Export:
    """A directory with the files of an export."""

    def __init__(self, directory: Path) -> None:
        self.name = str(directory)
        self._directory = directory
        self._format = self._find_format()
        self.version = 2 if "id" in self._read(TABLES["thrashing_points"]).column_names else 1

    def read(
        self, table: ExportTable, selection: Selection, progress: Progress | None = None
    ) -> pa.Table:
        """See `Source`."""
        if self.version == 1 < table.since or self._is_older_than(table):
            return table.schema().empty_table()
        found = self._read(table)
        if table.name == "thrashing_points" and self.version == 1:
            found = found.rename_columns(
                ["id" if name == "analysis" else name for name in found.column_names]
            )
            found = found.append_column("analysis", pa.nulls(len(found), pa.int64()))
            found = found.append_column("atpt_ms", pa.nulls(len(found), pa.float64()))
        found = self._shaped(_with_later(found, table), table)
        for name, value in selection.chosen().items():
            found = found.filter(pc.equal(found[name], value))
        if progress is not None:
            progress(table.name, len(found))
        return found

    def _find_format(self) -> Format:
        formats: tuple[Format, ...] = ("parquet", "csv")
        for form in formats:
            if (self._directory / f"executions.{form}").is_file():
                return form
        if (self._directory / _DOCUMENT).is_file():
            return "json"
        raise StoreError(
            f"{self.name} has no executions.parquet, executions.csv or {_DOCUMENT}",
            "give the directory that `tidegate lab export` wrote, or the path of a store",
        )

    def _read(self, table: ExportTable) -> pa.Table:
        """Return the table as it is there."""
        if self._format == "json":
            return self._from_document(table)
        path = self._directory / f"{table.name}.{self._format}"
        try:
            if self._format == "parquet":
                return pyarrow.parquet.read_table(path)
            return _read_csv(path, table)
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.name} has no {path.name}",
                "export the experiment again, with a Tidegate that writes it",
            ) from error
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise StoreError(
                f"{path} cannot be read: {reason}", "export the experiment again"
            ) from error

    def _is_older_than(self, table: ExportTable) -> bool:
        """Return whether the export was written before there was a table of the later ones."""
        if table.name not in _LATER_TABLES:
            return False
        if self._format == "json":
            return table.name not in self._document
        return not (self._directory / f"{table.name}.{self._format}").is_file()

    def _from_document(self, table: ExportTable) -> pa.Table:
        rows = self._document.get(table.name)
        if not isinstance(rows, list):
            raise StoreError(
                f"{self.name}/{_DOCUMENT} has no {table.name}", "export the experiment again"
            )
        names = list(rows[0]) if rows else list(table.columns)
        kinds = table.schema()
        fields = [kinds.field(name) for name in names if name in table.columns]
        try:
            return pa.Table.from_pylist(rows, schema=pa.schema(fields))
        except pa.ArrowException as error:
            raise self._damaged(error) from error

    @functools.cached_property
    def _document(self) -> dict[str, Any]:
        try:
            text = (self._directory / _DOCUMENT).read_text(encoding="utf-8")
            document = json.loads(text)
        except (OSError, ValueError) as error:
            raise self._damaged(error) from error
        return document if isinstance(document, dict) else {}

    def _damaged(self, error: Exception) -> StoreError:
        path = self._directory / _DOCUMENT
        return StoreError(f"{path} cannot be read: {error}", "export the experiment again")

    def _shaped(self, found: pa.Table, table: ExportTable) -> pa.Table:
        """Return the columns of the catalog, in their types; a newer export may have more."""
        missing = [name for name in table.columns if name not in found.column_names]
        if missing:
            raise StoreError(
                f"{self.name}: {table.name} has no column `{missing[0]}`",
                "export the experiment again",
            )
        try:
            return found.select(list(table.columns)).cast(table.schema())
        except pa.ArrowException as error:
            raise StoreError(
                f"{self.name}: {table.name} has a column of another type: {error}",
                "export the experiment again",
            ) from error


#: Tables that exports of version 2 and above did not always have.
_LATER_TABLES: Final = ("thrashing_posteriors",)

#: Columns that exports did not always have: `host` came with schema version 5, the work of
#: the subject's processes with 4.
_LATER: Final = ("host", "subject_cpu_us", "subject_core_share")


def _with_later(found: pa.Table, table: ExportTable) -> pa.Table:
    """Return the table with the columns that older exports do not have, NULL."""
    for name in _LATER:
        if name in table.columns and name not in found.column_names:
            kind = table.schema().field(name).type
            found = found.append_column(name, pa.nulls(len(found), kind))
    return found


def _read_csv(path: Path, table: ExportTable) -> pa.Table:
    types = {field.name: field.type for field in table.schema()}
    return pyarrow.csv.read_csv(
        path,
        # A file of an experiment may stand in one field.
        read_options=pyarrow.csv.ReadOptions(block_size=16 << 20),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
