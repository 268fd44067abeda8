"""Regressions of thrashing points that are uncertain: sums over what each may be."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import DATA, Coverage
from report_stand_in import StandIn, about, execution, table
from scipy import optimize, stats

from tidegate_analysis import censored
from tidegate_analysis.censored._predictor import CensoredKeywords
from tidegate_analysis.errors import AnalysisError
from tidegate_analysis.report._protocol import tap
from tidegate_analysis.report._view import View
from tidegate_analysis.results import load

LEVELS = np.arange(100.0, 1001.0, 100.0)
#: The ends of all that a point may be: levels but the last, and none.
LOW = np.concatenate([[0.0], LEVELS[1:]])
HIGH = np.concatenate([LEVELS[1:], [np.inf]])
BETA, SIGMA = (np.log(450.0), 0.3), 0.4


def drawn(n: int, error: float, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return samples whose intervals are seen wrongly with a probability, and their outcomes.

    What is seen instead is any of the intervals, so the likelihood of each is known, and with any
    prior so is its posterior.
    """
    x = np.tile([-1.0, 0.0, 1.0], n)[:n]
    point = np.exp(BETA[0] + BETA[1] * x + SIGMA * rng.standard_normal(n))
    place = np.searchsorted(HIGH, point, side="right")
    wrong = rng.random(n) < error
    place = np.where(wrong, rng.integers(0, len(LOW), n), place)
    likelihood = np.full((n, len(LOW)), error / len(LOW))
    likelihood[np.arange(n), place] += 1 - error
    prior = rng.dirichlet(np.full(len(LOW), 3.0), n)
    posterior = likelihood * prior
    posterior /= posterior.sum(axis=1, keepdims=True)
    samples = pd.DataFrame({"x": x, "low": LOW[place], "high": HIGH[place]})
    outcomes = pd.DataFrame(
        {
            "sample": np.repeat(np.arange(n), len(LOW)),
            "low": np.tile(LOW, n),
            "high": np.tile(HIGH, n),
            "prior": prior.ravel(),
            "probability": posterior.ravel(),
        }
    )
    return samples, outcomes


def minus_loglik(theta: np.ndarray, samples: pd.DataFrame, outcomes: pd.DataFrame) -> float:
    """Return minus the log-likelihood of a log-normal point, written down at once."""
    centre = theta[0] + theta[1] * samples["x"].to_numpy()[outcomes["sample"]]
    with np.errstate(divide="ignore"):
        ends = [np.log(outcomes[end].to_numpy()) for end in ("low", "high")]
    low, high = (stats.norm.cdf((end - centre) / np.exp(theta[2])) for end in ends)
    each = (high - low) * outcomes["probability"] / outcomes["prior"]
    return -float(np.log(np.bincount(outcomes["sample"], weights=each)).sum())


@pytest.mark.parametrize("error", [0.0, 0.2, 0.5])
def test_it_is_the_maximum_of_the_sum(error: float) -> None:
    samples, outcomes = drawn(90, error, np.random.default_rng(3))
    fit = censored.regress(samples, ["x"], distribution="lognormal", outcomes=outcomes)
    start = np.array([*BETA, np.log(SIGMA)])
    found = optimize.minimize(
        minus_loglik, start, (samples, outcomes), method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
    )  # fmt: skip
    np.testing.assert_allclose(fit.parameters, found.x, atol=1e-5)

    def gradient(theta: np.ndarray) -> np.ndarray:
        return optimize.approx_fprime(theta, minus_loglik, 1e-5, samples, outcomes)

    step = 1e-3 * np.eye(3)
    hessian = [(gradient(found.x + s) - gradient(found.x - s)) / 2e-3 for s in step]
    np.testing.assert_allclose(fit.covariance, np.linalg.inv(hessian), rtol=0.02, atol=1e-5)


def test_points_that_are_certain_are_regressed_as_before() -> None:
    samples, outcomes = drawn(60, 0.0, np.random.default_rng(4))
    groups = samples.assign(dbms=np.arange(60) % 6)
    every: list[CensoredKeywords] = [
        {},
        {"cluster": "dbms"},
        {"cluster": "dbms", "errors": "sandwich"},
    ]
    for options in every:
        plain = censored.regress(groups, ["x"], **options)
        summed = censored.regress(groups, ["x"], outcomes=outcomes, **options)
        np.testing.assert_allclose(summed.parameters, plain.parameters, atol=1e-7)
        np.testing.assert_allclose(summed.covariance, plain.covariance, rtol=1e-5)
        assert summed.thrashed == plain.thrashed


def test_priors_of_curves_are_taken_out_again() -> None:
    """Whatever the priors were: the same measurements, the same coefficients."""
    samples, outcomes = drawn(60, 0.3, np.random.default_rng(5))
    likelihood = outcomes["probability"] / outcomes["prior"]
    flat = likelihood.groupby(outcomes["sample"]).transform(lambda each: each / each.sum())
    other = outcomes.assign(prior=1 / len(LOW), probability=flat)
    shuffled = other.sample(frac=1, random_state=1)
    fits = [censored.regress(samples, ["x"], outcomes=one) for one in (outcomes, other, shuffled)]
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.parameters, fits[0].parameters, atol=1e-6)


def test_uncertain_points_cover(covers: Coverage) -> None:
    """Where one point in four is read wrongly, and the posteriors know how often."""
    sets, held, exact = 200, 0, 0
    rng = np.random.default_rng(6)
    for _ in range(sets):
        samples, outcomes = drawn(90, 0.25, rng)
        for given in (outcomes, None):
            fit = censored.regress(samples, ["x"], distribution="lognormal", outcomes=given)
            row = fit.to_frame().set_index("term").loc["x"]
            is_held = row["low"] <= BETA[1] <= row["high"]
            held += bool(is_held and given is not None)
            exact += bool(is_held and given is None)
    covers({"x, points uncertain": held / sets}, sets)
    assert exact < held - 10, (exact, held)


def test_outcomes_that_are_none_are_refused() -> None:
    samples, outcomes = drawn(12, 0.2, np.random.default_rng(7))
    for wrong, message in [
        (outcomes[outcomes["sample"] != 3], "of other samples than the 12"),
        (outcomes.assign(sample=outcomes["sample"] + 1), "of other samples than the 12"),
        (outcomes.assign(prior=0.0), "no probabilities"),
        (outcomes.assign(probability=outcomes["probability"] / 2), "no probabilities"),
        (outcomes.drop(columns="prior"), "no column `prior`"),
    ]:
        with pytest.raises(AnalysisError, match=message):
            censored.regress(samples, ["x"], outcomes=wrong)


def test_outcomes_are_those_of_the_samples(store: Path) -> None:
    results = load(store)
    samples = results.samples()
    found = results.outcomes(samples)
    assert found is not None
    sums = found.groupby("sample")[["prior", "probability"]].sum()
    assert len(sums) == len(samples)
    np.testing.assert_allclose(sums, 1.0)
    # The outcome that the rule found is one of them.
    for place, row in enumerate(samples.to_dict("records")):
        of = found[found["sample"] == place]
        assert ((of["low"] == row["low"]) & (of["high"] == row["high"])).sum() == 1
    other = results.outcomes(samples.iloc[::-1])
    assert other is not None
    assert (other["sample"].nunique(), len(other)) == (len(samples), len(found))
    pd.testing.assert_frame_equal(load(DATA / "csv").outcomes(samples), found)
    old = results.outcomes(samples.assign(batchset=99))
    assert old is None


def posterior(point: int, probabilities: dict[float, float], measured: int) -> list[dict]:
    levels = [100.0, 200.0, 300.0]
    return [
        {
            "experiment": 1, "run": 1, "batchset": point, "point": point, "outcome": number,
            "analysis": 1.0, "thrashing_point": level, "low": 300.0 if np.isnan(level) else level,
            "high": np.nan if np.isnan(level) else level + 100, "prior": 0.3, "probability": p,
            "model": "posterior v1", "draws": 4000, "seed": 20, "noise": 0.071,
            "noise_measured": measured,
        }
        for number, (level, p) in enumerate(
            {**dict.fromkeys(levels[:2], 0.0), np.nan: 0.0, **probabilities}.items(), start=1
        )
    ]  # fmt: skip


def test_the_report_says_how_certain_points_are() -> None:
    rows = [
        execution(number, tps, batchset=batchset, mpl=mpl)
        for batchset in (1, 2)
        for number, (mpl, tps) in enumerate([(100, 90.0), (200, 100.0), (300, 70.0)], 3 * batchset)
    ]
    results = StandIn(about(), pd.DataFrame(rows))
    point = {
        "experiment": 1, "run": 1, "analysis": 1.0, "protocol": "tap v2", "rule": "equation-1 v1",
        "thrashing_point": 200.0, "low": 200.0, "high": 300.0, "caveats": "[]",
    }  # fmt: skip
    results.frames["points"] = pd.DataFrame([point | {"batchset": n, "id": n} for n in (1, 2)])
    section = tap(View(results, 1))  # type: ignore[arg-type]
    assert "before schema version 7" in table(section, "tap-points").note
    results.frames["thrashing_posteriors"] = pd.DataFrame(
        posterior(1, {200.0: 0.96, np.nan: 0.04}, 1)
    )
    section = tap(View(results, 1))  # type: ignore[arg-type]
    found = table(section, "tap-points")
    assert found.rows[0][3:7] == ("4 %", "200 (96 %)", "200", "7.1 %")
    assert found.rows[1][3:7] == ("–", "–", "–", "–")
    assert "4,000 draws from seed 20" in found.note
    assert "one execution" not in found.note
    results.frames["thrashing_posteriors"] = pd.DataFrame(
        posterior(2, {100.0: 0.05, 200.0: 0.4, np.nan: 0.55}, 0)
    )
    section = tap(View(results, 1))  # type: ignore[arg-type]
    found = table(section, "tap-points")
    assert found.rows[1][3:7] == ("55 %", "none (55 %)", "200, none", "7.1 %, not measured")
    assert "conditional" in found.note
