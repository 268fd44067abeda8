"""What the tables of the causal chapter say about how far they may be believed."""

import numpy as np
import pandas as pd
import pytest

from tidegate_analysis.model import simulate, study
from tidegate_analysis.model.simulate import STUDY_GRID
from tidegate_analysis.report.causal._censored import _logistic
from tidegate_analysis.report.causal._group import Group
from tidegate_analysis.report.causal._paths import _coefficients


def group(dbms: int, n: int = 240) -> Group:
    return Group("read", simulate(study("refined, read"), n, seed=1, dbms=dbms, grid=STUDY_GRID))


@pytest.mark.parametrize(
    ("dbms", "said"),
    [
        (1, "All samples that thrashed are of one DBMS, so nothing is known of others."),
        (2, "cannot give a p below 0.17, so that nothing can be significant"),
        (3, "With 3 groups, and so 216 data sets, the wild bootstrap cannot give a p below 0.028."),
        (5, "samples of one DBMS may depend on each other (wild cluster bootstrap)."),
        (220, "cannot be computed here: the wild bootstrap is for few groups, and these are"),
    ],
)
def test_paths_say_what_so_few_dbms_cannot_show(dbms: int, said: str) -> None:
    table = _coefficients(group(dbms, 500 if dbms > 200 else 240))
    assert said in table.note
    assert not table.note.endswith(" ")
    taken_as = {row[3] for row in table.rows}
    assert (taken_as == {"independent"}) == (dbms in (1, 220))
    if dbms == 5:
        assert table.note.endswith(said)


def retained(thrashed: "pd.Series[bool]", table: pd.DataFrame) -> Group:
    return Group("read", table.assign(SF=1.0, ROSE=100.0, thrashed=thrashed))


def test_a_factor_that_tells_thrashing_perfectly_has_an_interval() -> None:
    """In three DBMSs: clusters that do not differ must not make it look certain."""
    table = pd.DataFrame(
        {"PK": [0, 1] * 30, "numProcs": [1, 1, 8, 8] * 15, "dbms": list("abc") * 20}
    )
    (found,) = _logistic(retained(table["PK"] == 0, table))
    assert "Firth's penalised likelihood" in found.note
    assert "taken as independent, not by `dbms`" in found.note
    odds, low, high = _numbers(next(row[1] for row in found.rows if row[0] == "PK"))
    assert low < odds / 5 < odds * 5 < high


def test_what_one_dbms_alone_decides_is_said_not_to_be_by_dbms() -> None:
    table = pd.DataFrame(
        {"PK": [0, 1] * 30, "numProcs": [1, 1, 8, 8] * 15, "dbms": list("aabbcc") * 10}
    )
    other = (table["dbms"] == "a") & (np.arange(60) < 30)
    (found,) = _logistic(retained((table["PK"] == 0) ^ other, table))
    assert "maximum likelihood" in found.note
    assert "taken as independent, not by DBMS: with one cluster left out" in found.note


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.replace("(", "").replace(")", "").split() if part != "to"]
