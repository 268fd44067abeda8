"""Tables are refused where they would give silent numbers."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tidegate_analysis import shapes
from tidegate_analysis.errors import ShapeError


def sample(**changes: object) -> pd.DataFrame:
    row: dict[str, object] = {
        "dbms": "postgres", "mode": "read", "numProcs": 2, "PK": True, "SF": 1.0, "ROSE": 100,
        "ATPT": 3.5, "TP": float("inf"), "low": 1000, "high": float("inf"), "thrashed": 0,
    }  # fmt: skip
    row.update(changes)
    return pd.DataFrame([row])


def test_types_are_those_of_the_shape() -> None:
    checked = shapes.check(sample(), shapes.SAMPLES, "samples")
    assert checked["PK"].tolist() == [1.0]
    assert checked["thrashed"].tolist() == [False]
    assert checked["dbms"].tolist() == ["postgres"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SF": None}, "samples, row 1: `SF` is missing"),
        ({"ATPT": "fast"}, "row 1: `ATPT` is fast, not a number"),
        ({"thrashed": 2}, "`thrashed` is 2, not a yes/no"),
    ],
)
def test_wrong_values_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        shapes.check(sample(**changes), shapes.SAMPLES, "samples")


def test_processors_that_were_not_seen_are_missing() -> None:
    assert shapes.check(sample(numProcs=None), shapes.SAMPLES, "samples")["numProcs"].isna().all()


def test_a_missing_column_is_named_with_its_meaning() -> None:
    table = sample().drop(columns="ROSE")
    with pytest.raises(ShapeError, match=r"no column `ROSE`: add it: percent of the rows"):
        shapes.check(table, shapes.SAMPLES, "samples")


THRASHED = {"TP": 400.0, "low": 400, "high": 500, "thrashed": 1}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "Update"}, "`mode` is not one of read, update in 1 of 3 rows, first in row 3"),
        ({"thrashed": 0}, "`thrashed` and `TP` contradict each other in 1 of 3 rows"),
        ({"TP": np.inf}, "`thrashed` and `TP` contradict"),
        ({"high": np.inf}, "`thrashed` and `high` contradict"),
        ({"low": 600}, "`low` is above `high`"),
        ({"low": 450}, "`TP` is below `low`"),
        ({"TP": 501.0}, "`TP` is not below `high`"),
        ({"TP": 500.0}, "`TP` is not below `high`"),
    ],
)
def test_columns_of_a_sample_do_not_contradict_each_other(
    changes: dict[str, object], message: str
) -> None:
    good = pd.concat([sample(), sample(**THRASHED)])
    bad = sample(**{**THRASHED, **changes})
    shapes.check(good, shapes.SAMPLES, "samples")
    with pytest.raises(ShapeError, match=message):
        shapes.check(pd.concat([good, bad]), shapes.SAMPLES, "samples")


@pytest.mark.parametrize(
    ("low", "tp", "high"),
    [
        (400.0, 400.0, 500.0),  # throughput fell between two levels
        (300.0, 400.0, 500.0),  # and one between was not measured
        (0.0, 100.0, 100.0),  # it had fallen at the first level
        (437.5, 437.5, 437.5),  # simulated, and known exactly
    ],
)
def test_what_a_thrashing_point_may_look_like(low: float, tp: float, high: float) -> None:
    row = sample(TP=tp, low=low, high=high, thrashed=1)
    assert shapes.check(row, shapes.SAMPLES, "samples")["TP"].item() == tp


def test_what_is_not_there_contradicts_nothing(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    sample(TP=400.0).drop(columns="thrashed").to_csv(file, index=False)
    with pytest.raises(ShapeError, match="`TP` and `high` contradict each other in 1 of 1"):
        shapes.read(file)
    sample(TP=400.0).drop(columns=["thrashed", "high"]).assign(low=400).to_csv(file, index=False)
    assert shapes.read(file)["TP"].item() == 400


def test_numbers_survive_a_file_to_the_last_bit(tmp_path: Path) -> None:
    """One in ten or so does not survive pandas' own way of reading."""
    numbers = np.random.default_rng(1).lognormal(3, 1, 1000)
    written = pd.concat([sample()] * 1000, ignore_index=True).assign(ATPT=numbers)
    written.to_csv(tmp_path / "samples.csv", index=False)
    assert shapes.read(tmp_path / "samples.csv")["ATPT"].tolist() == numbers.tolist()
