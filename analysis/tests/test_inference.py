"""Tests and intervals of advice against R (golden/inference.R), theory, and their own coverage."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import Coverage, read_golden
from scipy import stats

from tidegate_analysis import load, scalability
from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report._inference import Ratio

GOLDEN = read_golden("inference")
#: Of what R and SciPy compute with the same formula.
SAME = 1e-9


def is_rs(ratio: Ratio | None, known: Mapping[str, Any]) -> None:
    assert ratio is not None
    found = (ratio.value, ratio.low, ratio.high, ratio.p)
    assert found == pytest.approx([known[x] for x in ("value", "low", "high", "p")], rel=SAME)


@pytest.mark.parametrize("known", GOLDEN["welch"])
def test_ratios_of_repetitions_are_those_of_t_test(known: Mapping[str, Any]) -> None:
    is_rs(inference.of_repetitions(known["a"], known["b"], known["k"]), known)


@pytest.mark.parametrize("known", GOLDEN["paired"])
def test_ratios_of_pairs_are_those_of_t_test(known: Mapping[str, Any]) -> None:
    is_rs(inference.of_pairs(known["a"], known["b"], known["k"]), known)


@pytest.mark.parametrize("known", GOLDEN["blocks"])
def test_ratios_of_blocks_are_those_of_lm(known: Mapping[str, Any]) -> None:
    is_rs(inference.of_blocks(known["logs"], np.array(known["place"], dtype=float)), known)


def test_shares_are_those_of_r() -> None:
    for known in GOLDEN["wilson"]:
        found = inference.share(known["found"], known["of"])
        assert found == pytest.approx((known["low"], known["high"]), rel=SAME, abs=1e-12)


def spread(drawn: np.ndarray) -> np.ndarray:
    return np.asarray(drawn.mean(axis=-2).var(axis=-1))


def slope(drawn: np.ndarray) -> np.ndarray:
    place = np.arange(drawn.shape[-1]) - (drawn.shape[-1] - 1) / 2
    return np.abs((drawn @ place).sum(axis=-1))


STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"spread": spread, "slope": slope}


@pytest.mark.parametrize("known", GOLDEN["permuted"])
def test_permutations_are_a_sample_of_all_that_r_counts(known: Mapping[str, Any]) -> None:
    found = inference.permuted(known["table"], STATISTICS[known["statistic"]])
    # Four standard errors of a share of 9,999 draws, and the one that was seen.
    slack = 4 * np.sqrt(known["p"] * (1 - known["p"]) / 9_999) + 1e-4
    assert abs(found - known["p"]) <= slack


@pytest.mark.parametrize("known", GOLDEN["curves"])
def test_intervals_of_curves_are_those_of_t_test(example: Path, known: Mapping[str, Any]) -> None:
    results = load(example)
    executions = results.executions(1)
    batch = executions.groupby(["batchset", "mpl"], sort=False).ngroup() == 0
    one = executions[batch].head(1)
    repeated = pd.concat([one] * len(known["tps"]), ignore_index=True).assign(tps=known["tps"])
    row = results.curves(1, executions=repeated).iloc[0]
    found = row[["tps", "tps_sd", "tps_low", "tps_high"]].tolist()
    assert found == pytest.approx([known[x] for x in ("mean", "sd", "low", "high")], rel=SAME)


@pytest.mark.parametrize("known", GOLDEN["gain"])
def test_the_gain_is_what_r_makes_of_its_description(known: Mapping[str, Any]) -> None:
    tps = np.array(known["tps"])
    mpl = np.repeat(100.0 * np.arange(1, len(tps) + 1), tps.shape[1])
    table = pd.DataFrame({"mpl": mpl, "tps": tps.ravel()})
    found = scalability.gain(table, draws=20_000)
    assert found.best == 100 * known["best"]
    assert (found.ratio, found.naive) == pytest.approx((known["ratio"], known["naive"]), rel=SAME)
    # Both draw 20,000 times: quantiles vary by some hundredths of the interval's width.
    width = np.log(known["high"] / known["low"])
    ends = np.log([found.low, found.high]) - np.log([known["low"], known["high"]])
    assert np.abs(ends).max() <= 0.03 * width
    assert found.chosen == pytest.approx(known["chosen"], abs=0.02)


def test_a_coverage_is_kept_and_fails_out_of_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "coverage.json"
    monkeypatch.setenv("TIDEGATE_COVERAGE", str(file))
    covers = Coverage("test_some.py::test_one")
    covers({"right": 0.94}, 1_000)
    covers({"right": 0.99, "few": 0.88}, 100)
    with pytest.raises(AssertionError, match="wrong"):
        covers({"wrong": 0.92}, 1_000)
    with pytest.raises(AssertionError, match="say why"):
        covers({"right": 0.92}, 1_000, 0.9)
    covers({"known": 0.91}, 1_000, 0.9, why="few clusters")
    kept = {row["what"]: (row["sets"], row["coverage"]) for row in json.loads(file.read_text())}
    # What fewer data sets found takes the place of nothing.
    assert kept == {
        "right": (1_000, 0.94), "few": (100, 0.88), "wrong": (1_000, 0.92), "known": (1_000, 0.91)
    }  # fmt: skip


# --- own coverage ---------------------------------------------------------------------------------

SETS = 1_000


def covered(ratios: list[Ratio | None], truth: float) -> float:
    inside = [ratio is not None and ratio.low <= truth <= ratio.high for ratio in ratios]
    return sum(inside) / len(inside)


def test_intervals_of_ratios_cover(covers: Coverage) -> None:
    rng = np.random.default_rng(11)

    def logs(mean: float, sd: float, *shape: int) -> np.ndarray:
        return np.log(mean) + sd * rng.standard_normal(shape)

    place, sets = np.array([0.0, 0.3, 1.0]), range(SETS)
    found = {
        "ratio, 5 and 4 repetitions": [
            inference.of_repetitions(np.exp(logs(200, 0.2, 5)), np.exp(logs(100, 0.05, 4)))
            for _ in sets
        ],
        "ratio, 8 pairs": [
            inference.of_pairs(np.exp(logs(200, 0.1, 8) + own), np.exp(logs(100, 0.1, 8) + own))
            for own in (logs(1, 0.5, 8) for _ in sets)
        ],
        "ratio, 3 blocks of 3 runs": [
            inference.of_blocks(logs(1, 1, 3, 1) + np.log(2) * place + logs(1, 0.1, 3, 3), place)
            for _ in sets
        ],
    }
    covers({name: covered(ratios, 2) for name, ratios in found.items()}, SETS)


def test_the_interval_of_a_share_covers(covers: Coverage) -> None:
    """Not simulated: all counts that there are, with their probabilities."""
    ends = np.array([inference.share(found, 40) for found in range(41)])
    shares = {}
    for truth in (0.1, 0.3, 0.5):
        inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        shares[f"share of {truth:.0%} of 40, exactly"] = float(
            stats.binom.pmf(np.arange(41), 40, truth)[inside].sum()
        )
    covers(shares, SETS)


def test_intervals_of_curves_cover(covers: Coverage, example: Path) -> None:
    results = load(example)
    executions = results.executions(1)
    tps = np.random.default_rng(12).normal(1000, 80, len(executions))
    curves = results.curves(1, executions=executions.assign(tps=tps))
    inside = curves["tps_low"].le(1000) & curves["tps_high"].ge(1000)
    repetitions = int(curves["n"].iloc[0])
    covers({f"curves, {repetitions} repetitions": inside.mean()}, len(curves))


def test_claims_by_permutation_are_as_rare_as_they_should_be(covers: Coverage) -> None:
    rng, sets = np.random.default_rng(13), 400
    tables = rng.normal(size=(sets, 4, 3)) + rng.normal(size=(sets, 4, 1))
    permuted = [
        inference.permuted(table, spread, draws=499, seed=i) for i, table in enumerate(tables)
    ]
    right = {
        "permutation: not significant, where nothing is there": np.mean(np.array(permuted) >= 0.05)
    }
    covers(right, sets)
