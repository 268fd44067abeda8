"""Numbers and curves in words, and what was published beside ours."""

from pathlib import Path

import numpy as np
import pytest
from report_stand_in import (
    HILL,
    curve,
    written,
)

from tidegate_analysis.published import experiments as published
from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._published import MEASURES


@pytest.mark.parametrize(
    ("value", "text"),
    [(3450.4, "3,450"), (0.01234, "0.0123"), (12.34, "12.3"), (0.0, "0"), (float("inf"), "∞"),
     (float("nan"), "–"), (-2.5, "−2.50"), (999.6, "1,000")],
)  # fmt: skip
def test_numbers_are_written_as_they_are_read(value: float, text: str) -> None:
    assert words.number(value) == text


@pytest.mark.parametrize(
    ("y", "text"),
    [
        ([1.0, 3450.0, 1683.0], "X rises to 3,450 tps at MPL 16 and falls to 1,683 at 256"),
        ([1.0, 2.0, 3.0], "X rises from 1 at 1 to 3 tps at MPL 256, the last level"),
        ([3.0, 2.0, 1.0], "X is highest at the first level, 3 tps at MPL 1, and is 1 at 256"),
        ([float("nan")] * 3, "X was not measured"),
    ],
)  # fmt: skip
def test_a_curve_in_words(y: list[float], text: str) -> None:
    assert words.curve([1, 16, 256], y, "X", "tps", "MPL") == text


def test_ratios_by_hand() -> None:
    # Logs differ by ln 2 with no spread within: the ratio is 2 and its interval nothing but it.
    ratio = inference.of_repetitions([2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert ratio is not None and (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2, 2))
    # Pairs whose logs are ±1 about ln 3: t = ln 3 / (sd/√n).
    logs = np.log(3) + np.array([1.0, -1.0] * 4)
    pairs = inference.of_pairs(np.exp(logs), np.ones(8))
    assert pairs is not None
    half = 2.3646 * np.sqrt(8 / 7) / np.sqrt(8)
    assert pairs.low == pytest.approx(3 * np.exp(-half), rel=1e-4)
    assert inference.of_pairs([1.0] * 5, [2.0] * 5) is None
    assert inference.of_repetitions([1.0, 2.0, 0.0], [1.0, 1.0, 1.0]) is None


def test_wilson_by_hand() -> None:
    # z = 1.96, 5 of 10: centre 0.5, half width 0.2634.
    assert inference.share(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_published_figures_name_measures_that_are_there() -> None:
    for name, entry in published().items():
        assert entry["source"], name
        assert {figure["measure"] for figure in entry.get("figures", [])} <= set(MEASURES), name
        points = entry.get("curve", {"xs": [], "throughput": []})
        assert len(points["xs"]) == len(points["throughput"]), name


def test_published_figures_are_of_experiments_that_are_there() -> None:
    folder = Path(__file__).parents[2] / "experiments"
    assert set(published()) <= {file.stem for file in folder.glob("*.toml")}


def test_the_optimal_range_is_put_beside_the_published_one(tmp_path: Path) -> None:
    made = curve(HILL)
    made.about["name"] = "autotuning-tpcc1-bigmem-curve"
    _, page = written(made, tmp_path)
    text = "".join(page.data)
    assert "13 % to 56 % (67 to 278 of 500)" in text
    assert "16 % to 64 % (16 to 64 of 100)" in text
