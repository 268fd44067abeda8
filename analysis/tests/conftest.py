"""Stores that tests share, and the mark of full sizes."""

import os

# Matrices here are small: threads cost more than they gain. It counts only before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tidegate_analysis import examples

#: Simulations of the sizes at which figures are reported. The same tests run at smaller sizes
#: always; `make soak` sets TIDEGATE_SLOW and runs these as well.
FULL_SIZE = pytest.mark.skipif(
    "TIDEGATE_SLOW" not in os.environ, reason="takes long at full size: make soak runs it"
)

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the laboratory made; its exports are in `DATA`."""
    path = tmp_path_factory.mktemp("laboratory") / "store with a space?.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(gzip.decompress((DATA / "store.sql.gz").read_bytes()).decode())
    return path


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 3 DBMSes with planted truth, 18 runs of 28 batchsets."""
    path = tmp_path_factory.mktemp("example") / "example.db"
    return examples.write_store(path, examples.Design(repetitions=2))
