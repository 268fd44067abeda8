"""Tables are refused where they would give silent numbers."""

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


def test_a_missing_column_is_named_with_its_meaning() -> None:
    table = sample().drop(columns="ROSE")
    with pytest.raises(ShapeError, match=r"no column `ROSE`: add it: percent of the rows"):
        shapes.check(table, shapes.SAMPLES, "samples")
