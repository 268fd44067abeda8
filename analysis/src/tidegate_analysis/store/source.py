"""What a source of results is: something that gives the tables of an export."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from tidegate_analysis.errors import StoreError
from tidegate_analysis.store.catalog import ExportTable

#: Told how many rows of a table have been read so far.
Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class Selection:
    """Which rows are wanted; `None` is all. Runs and batchsets go by their numbers."""

    experiment: int | None = None
    run: int | None = None
    batchset: int | None = None

    def chosen(self) -> dict[str, int]:
        """Return the columns that are fixed, and to what."""
        return {name: value for name, value in vars(self).items() if value is not None}


def json_object(text: str, what: str) -> dict[str, Any]:
    """Return the object that a text of a store is."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise StoreError(f"{what} is damaged: {error}", "use another copy of the store") from error
    if not isinstance(found, dict):
        raise StoreError(f"{what} is `{text}`, no object", "use another copy of the store")
    return found


class Source(Protocol):
    """A store or an export."""

    @property
    def name(self) -> str:
        """What it is, for messages; without a password."""

    @property
    def version(self) -> int:
        """The version of its schema."""

    def read(
        self, table: ExportTable, selection: Selection, progress: Progress | None = None
    ) -> pa.Table:
        """Return rows of a table with the columns of the catalog, sorted by their keys."""
