"""Correlations against theory, against R, and against their own promises."""

from typing import Literal

import numpy as np
import pandas as pd
import pytest
from conftest import Coverage, read_golden
from scipy import stats

from tidegate_analysis.errors import SampleError, ShapeError
from tidegate_analysis.tables import correlation
from tidegate_analysis.tables.correlation import REFINED, Hypothesis, Method, correlate

GOLDEN = read_golden("correlation")


def draws(seed: int, n: int) -> np.ndarray:
    """What the R script draws: Lehmer's generator, exact in 53 bits."""
    out = []
    for _ in range(n):
        seed = 16807 * seed % 2147483647
        out.append(seed / 2147483647)
    return np.array(out)


def data(n: int, weight: float, form: str) -> pd.DataFrame:
    x = draws(42, n)
    y = weight * x + draws(4711, n)
    if form == "levels":
        x, y = np.floor(5 * x), 100 * np.floor(4 * y)
    if form == "binary":
        x = np.floor(2 * x)
    return pd.DataFrame({"x": x, "y": y})


@pytest.mark.parametrize("case", GOLDEN["tests"], ids=lambda c: f"{c['method']}-{c['n']}")
def test_r_finds_the_same(case: dict) -> None:
    table = data(case["n"], case["weight"], case["form"])
    found = correlate(table, "x", "y", method=case["method"])
    assert found.r == pytest.approx(case["r"], rel=1e-10)
    assert found.p == pytest.approx(case["p"], rel=1e-8)
    if "low" in case:
        assert (found.low, found.high) == pytest.approx((case["low"], case["high"]), rel=1e-10)


def test_holm_is_that_of_r() -> None:
    assert correlation.holm(GOLDEN["p"]) == pytest.approx(GOLDEN["holm"], rel=1e-12)


@pytest.mark.parametrize("way", ["none", "holm"])
def test_no_hypothesis_is_no_table(way: Literal["none", "holm"]) -> None:
    with pytest.raises(SampleError, match="there is no hypothesis to test: give some"):
        correlation.hypotheses(planted(), [], correction=way)


def test_holm_by_hand() -> None:
    # 0.01 · 3, 0.03 · 2, and 0.04 · 1 raised to the one before.
    assert correlation.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert correlation.holm([0.9, 0.8]) == pytest.approx([1, 1])


def test_pearson_by_hand() -> None:
    # Deviations (-1, 0, 1, 0, 0) and (-1, 0, 0, 1, 0): 1 / √(2 · 2), t = 0.5 · √3 / √0.75 = 1.
    table = pd.DataFrame({"x": [0, 1, 2, 1, 1], "y": [0, 1, 1, 2, 1]})
    found = correlate(table, "x", "y")
    assert found.r == pytest.approx(0.5)
    assert found.p == pytest.approx(2 * stats.t.sf(1, 3))
    assert found.low == pytest.approx(np.tanh(np.arctanh(0.5) - 1.959964 / np.sqrt(2)), abs=1e-6)
    assert found.sign == "+"


@pytest.mark.parametrize("method", ["pearson", "spearman", "kendall"])
def test_a_straight_line_is_one_with_no_doubt(method: Method) -> None:
    table = pd.DataFrame({"x": np.arange(10.0), "y": 3 - 2 * np.arange(10.0)})
    found = correlate(table, "x", "y", method=method)
    assert (found.r, found.low, found.high) == pytest.approx((-1, -1, -1))
    assert found.p < 0.001


@pytest.mark.parametrize(
    ("r", "name"),
    [
        (0, "none"), (0.0999, "none"), (0.1, "low"), (-0.26, "low"), (0.3, "medium"),
        (-0.4999, "medium"), (-0.5, "high"), (1, "high"),
    ],
)  # fmt: skip
def test_levels_begin_where_cohen_has_them(r: float, name: str) -> None:
    assert correlation.level(r) == name


def truth(method: Method, rho: float) -> float:
    """Theory of the bivariate normal distribution (Kruskal 1958)."""
    if method == "pearson":
        return rho
    return 6 / np.pi * np.arcsin(rho / 2) if method == "spearman" else 2 / np.pi * np.arcsin(rho)


def coverage(method: Method, rho: float, sets: int, n: int = 80) -> float:
    rng = np.random.default_rng(20260101)
    true, inside = truth(method, rho), 0
    for _ in range(sets):
        values = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], n)
        found = correlate(pd.DataFrame(values, columns=["x", "y"]), "x", "y", method=method)
        inside += found.low <= true <= found.high
    return inside / sets


@pytest.mark.parametrize("method", ["pearson", "spearman", "kendall"])
def test_intervals_cover_what_is_true(covers: Coverage, method: Method) -> None:
    covers({f"correlation, {method}": coverage(method, -0.4, 1000)}, 1000)


def test_no_correlation_is_significant_as_often_as_it_should_be() -> None:
    rng = np.random.default_rng(7)
    tables = [pd.DataFrame(rng.normal(size=(50, 2)), columns=["x", "y"]) for _ in range(500)]
    significant = np.mean([correlate(table, "x", "y").p < 0.05 for table in tables])
    # Three standard errors of 5 % of 500.
    assert significant == pytest.approx(0.05, abs=0.0293)


def planted(n: int = 4000) -> pd.DataFrame:
    """Samples with the study's update correlations, but for noise of the draw."""
    names = ["numProcs", "TP", "ATPT"]
    cov = np.array([[1, -0.36, -0.16], [-0.36, 1, -0.13], [-0.16, -0.13, 1]])
    values = np.random.default_rng(3).multivariate_normal([0, 0, 0], cov, n)
    return pd.DataFrame(values, columns=names)


def test_planted_hypotheses_are_supported_and_the_opposite_is_not() -> None:
    found = correlation.hypotheses(planted(), REFINED["update"], correction="holm")
    assert found["supported"].tolist() == [True, True, True]
    assert found["supported_holm"].tolist() == [True, True, True]
    assert found["r"].tolist() == pytest.approx([-0.36, -0.16, -0.13], abs=0.05)
    # The study calls 0.36 low; by Cohen it is medium, and supported all the same.
    assert found["level"].tolist() == ["medium", "low", "low"]
    opposite = Hypothesis("H1", "numProcs", "TP", "+", "low")
    found = correlation.hypotheses(planted(), [opposite])
    assert found["significant"].tolist() == [True]
    assert found["supported"].tolist() == [False]


def test_the_printed_layout_is_that_of_table_10() -> None:
    table = correlation.as_printed(correlation.hypotheses(planted(), REFINED["update"]))
    assert table.columns.tolist() == ["variable", "TP", "ATPT"]
    assert table["variable"].tolist() == ["numProcs", "ATPT"]
    assert table["TP"].iloc[0].startswith("**H1: -0.3")
    assert table["TP"].iloc[0].endswith("\\***")
    assert table["ATPT"].iloc[1] is None


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"x": [1, 1, 1, 1, 1], "y": [1, 2, 3, 4, 5]}, "`x` is 1 in all 5 samples"),
        ({"x": [1, 2, 3, 4], "y": [1, 2, 3, 5]}, "4 samples are too few"),
        ({"x": [], "y": []}, "0 samples are too few"),
        ({"x": [1, 2, 3, 4, np.inf], "y": [1, 2, 3, 4, 5]}, "`x` is inf in row 5"),
        ({"x": [1, 2, None, 4, 5], "y": [1, 2, 3, 4, 5]}, "`x` is nan in row 3"),
        ({"x": ["a", 2, 3, 4, 5], "y": [1, 2, 3, 4, 5]}, "`x` is a in row 1"),
        ({"y": [1, 2, 3, 4, 5]}, "no column `x`: it has y"),
    ],
)
def test_what_cannot_be_tested_is_said(table: dict, message: str) -> None:
    with pytest.raises((SampleError, ShapeError), match=message):
        correlate(pd.DataFrame(table), "x", "y")


def test_options_are_checked() -> None:
    table = data(30, 0.5, "plain")
    with pytest.raises(SampleError, match="confidence of 95"):
        correlate(table, "x", "y", confidence=95)
    with pytest.raises(SampleError, match="no correlation `pearl`"):
        correlate(table, "x", "y", method="pearl")  # type: ignore[arg-type]
