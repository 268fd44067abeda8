"""Where results come from: a store in SQLite or PostgreSQL, or the files of an export."""

import os
from pathlib import Path

from tidegate_analysis.errors import StoreError
from tidegate_analysis.store.catalog import TABLES, VERSIONS, ExportTable
from tidegate_analysis.store.database import Postgres, Sqlite
from tidegate_analysis.store.export import Export
from tidegate_analysis.store.source import Progress, Selection, Source

__all__ = ["TABLES", "VERSIONS", "ExportTable", "Progress", "Selection", "Source", "open_source"]

#: Names the store where no other is given, as `tidegate report` does.
VARIABLE = "TIDEGATE_STORE"


def open_source(source: str | Path | None) -> Source:
    """Return what gives the tables of a store or an export.

    - source: The path of a store, ``postgres://user:password@host:port/database``, or the directory
      of an export. `None` is what the environment variable ``TIDEGATE_STORE`` names.

    Raises `StoreError`: there is nothing, it is something else, or it is of a version that cannot
    be read.
    """
    if source is None:
        source = os.environ.get(VARIABLE) or None
    if source is None:
        raise StoreError("no store is named", f"give its path or set {VARIABLE}")
    if str(source).startswith(("postgres://", "postgresql://")):
        return Postgres(str(source))
    path = Path(source)
    if path.is_dir():
        return Export(path)
    if not path.is_file():
        raise StoreError(
            f"there is no {path}",
            "give the path of a store that `tidegate lab run` wrote, or of an export's directory",
        )
    return Sqlite(path)
