"""Stores that tests share, the mark of full sizes, and a record of what intervals cover.

Where the environment's TIDEGATE_COVERAGE names a file, each coverage that a test finds is kept in
it with its bounds; `benchmarks/coverage.py` makes a table of it.
"""

import os

# Matrices here are small: threads cost more than they gain. It counts only before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gzip
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from tidegate_analysis import examples

#: Simulations of the sizes at which figures are reported. The same tests run at smaller sizes
#: always; `make soak` sets TIDEGATE_SLOW and runs these as well.
FULL_SIZE = pytest.mark.skipif(
    "TIDEGATE_SLOW" not in os.environ, reason="takes long at full size: make soak runs it"
)

#: From so many data sets on a coverage is what is promised, and not a look at it.
FULL_SETS = 1000
#: What 95 % intervals are to cover.
PROMISED = (0.93, 0.97)

DATA = Path(__file__).parent / "data"
_GOLDEN = Path(__file__).parents[1] / "golden"


def read_golden(name: str) -> Any:
    """What R found: golden/NAME.json."""
    return json.loads((_GOLDEN / f"{name}.json").read_text())


def golden_samples(name: str) -> pd.DataFrame:
    """What R read: golden/NAME.csv, with thrashing points as floats, and rows numbered."""
    table = pd.read_csv(_GOLDEN / f"{name}.csv")
    points = [column for column in ("high", "TP") if column in table]
    return table.astype(dict.fromkeys(points, float)).assign(row=range(len(table)))


@pytest.fixture(scope="module")
def golden(request: pytest.FixtureRequest) -> Any:
    """What R found for the module's `GOLDEN`."""
    return read_golden(request.module.GOLDEN)


@pytest.fixture(scope="module")
def samples(request: pytest.FixtureRequest) -> pd.DataFrame:
    """What R read for the module's `GOLDEN`."""
    return golden_samples(request.module.GOLDEN)


#: The least that has all tables: one DBMS, two runs of 28 batchsets, each execution once.
SMALL = examples.ExampleDesign(subjects=("one",), processors=(1,), repetitions=1)


def edit(store: Path, *statements: str) -> Path:
    """Change a store."""
    with closing(sqlite3.connect(store)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    return store


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
    return examples.write_store(path, examples.ExampleDesign(repetitions=2))


class Coverage:
    """Takes shares of simulated data sets whose interval held the truth, and keeps them."""

    def __init__(self, test: str) -> None:
        self._test = test

    def __call__(
        self,
        found: Mapping[str, float],
        sets: int,
        low: float | None = None,
        high: float | None = None,
        why: str = "",
    ) -> None:
        """Keep shares by what they are of, and fail where one is out of bounds.

        Bounds are 93 to 97 %; of fewer than 1,000 data sets, what a share of 95 % leaves once in
        10,000 tests. Others can be given, with the reason why where they are looser.
        """
        usual = PROMISED if sets >= FULL_SETS else stats.binom.interval(0.9999, sets, 0.95)
        unit = 1 if sets >= FULL_SETS else sets
        low = usual[0] / unit if low is None else low
        high = usual[1] / unit if high is None else high
        assert why or sets < FULL_SETS or (low >= PROMISED[0] and high <= PROMISED[1]), "say why"
        rows = [
            {"test": self._test, "what": what, "sets": sets, "coverage": round(float(share), 4),
             "low": round(low, 4), "high": round(high, 4), "why": why}
            for what, share in found.items()
        ]  # fmt: skip
        if name := os.environ.get("TIDEGATE_COVERAGE"):
            _keep(Path(name), rows)
        wrong = [row for row in rows if not low <= found[row["what"]] <= high]
        assert not wrong, wrong


def _keep(file: Path, rows: list[dict]) -> None:
    """Add rows to a file; of what is there already, the larger number of data sets stays."""
    known = json.loads(file.read_text()) if file.exists() else []
    table = {(row["test"].split("::")[0], row["what"]): row for row in known}
    for row in rows:
        key = (row["test"].split("::")[0], row["what"])
        if row["sets"] >= table.get(key, row)["sets"]:
            table[key] = row
    file.write_text(json.dumps(list(table.values()), indent=1, ensure_ascii=False) + "\n")


@pytest.fixture
def covers(request: pytest.FixtureRequest) -> Coverage:
    """Take the coverages that a test finds."""
    return Coverage(request.node.nodeid.removeprefix("tests/"))
