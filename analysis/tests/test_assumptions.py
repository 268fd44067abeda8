"""Assumption checks against R (car, lmtest), theory, and their own rates under the null."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from conftest import FULL_SIZE, Coverage, golden_samples, read_golden
from scipy import stats

from tidegate_analysis import assumptions
from tidegate_analysis._columns import Array
from tidegate_analysis.assumptions import _checks
from tidegate_analysis.assumptions._checks import _within
from tidegate_analysis.errors import AnalysisError, SampleError, ShapeError

R = read_golden("assumptions")
SAMPLES = golden_samples("assumptions")
VARIABLES = ["numProcs", "PK", "SF", "ROSE"]
FIT = assumptions.regression(SAMPLES, "TP", names=VARIABLES, groups="dbms")


# --- R --------------------------------------------------------------------------------------------


def test_durbin_watson_is_that_of_car() -> None:
    expected = R["durbin_watson"]
    found = assumptions.durbin_watson(FIT, draws=20_000)
    normal = assumptions.durbin_watson(FIT, draws=20_000, method="normal")
    assert found.statistic == pytest.approx(expected["statistic"], rel=1e-10)
    assert found.autocorrelation == pytest.approx(expected["autocorrelation"], rel=1e-10)
    # Two bootstraps of 20,000: the standard error of their difference is below 0.0015 for p = 0.01.
    assert found.p == pytest.approx(expected["p"], abs=0.005)
    assert normal.p == pytest.approx(expected["p_exact"], abs=0.003)
    calm = assumptions.regression(SAMPLES, "calm", names=VARIABLES)
    found = assumptions.durbin_watson(calm, draws=20_000)
    assert found.statistic == pytest.approx(R["durbin_watson_calm"]["statistic"], rel=1e-10)
    assert found.p == pytest.approx(R["durbin_watson_calm"]["p"], abs=0.011)


def test_durbin_watson_of_each_dbms_is_that_of_its_own_regression() -> None:
    found = assumptions.durbin_watson_by_group(FIT)
    assert list(found["group"]) == ["alpha", "beta", "gamma"]
    for group, statistic in zip(found["group"], found["statistic"], strict=True):
        assert statistic == pytest.approx(R["durbin_watson_by_group"][group], rel=1e-10)


def test_variance_tests_are_those_of_lmtest_and_car() -> None:
    for found, expected in (
        (assumptions.breusch_pagan(FIT), R["breusch_pagan"]),
        (assumptions.breusch_pagan(FIT, studentised=False), R["breusch_pagan_original"]),
        (assumptions.non_constant_variance(FIT), R["non_constant_variance"]),
    ):
        assert found.statistic == pytest.approx(expected["statistic"], rel=1e-9)
        assert found.p == pytest.approx(expected["p"], rel=1e-8)


def test_inflation_factors_are_those_of_car_also_for_a_text() -> None:
    found = assumptions.inflation(FIT).set_index("name")
    for name, factor in R["vif"].items():
        assert found.loc[name, "vif"] == pytest.approx(factor, rel=1e-9)
        assert found.loc[name, "root"] == pytest.approx(np.sqrt(factor), rel=1e-9)
    with_dbms = assumptions.regression(SAMPLES, "TP", names=[*VARIABLES, "dbms"])
    found = assumptions.inflation(with_dbms).set_index("name")
    for name, expected in R["gvif"].items():
        assert found.loc[name, "vif"] == pytest.approx(expected["GVIF"], rel=1e-9)
        assert found.loc[name, "columns"] == expected["Df"]
        assert found.loc[name, "root"] == pytest.approx(expected["GVIF^(1/(2*Df))"], rel=1e-9)


def test_influence_is_that_of_r() -> None:
    found = assumptions.influence(FIT)
    np.testing.assert_allclose(found["cook"], R["cook"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["leverage"], R["leverage"], rtol=1e-9)
    np.testing.assert_allclose(found["studentised"], R["studentised"], rtol=1e-9, atol=1e-10)
    assert found["cook"].argmax() == 16, "the planted outlier is the 17th sample"


def test_normality_is_that_of_r() -> None:
    found = assumptions.shapiro_wilk(FIT)
    assert found.statistic == pytest.approx(R["shapiro"]["statistic"], rel=1e-6)
    assert found.p == pytest.approx(R["shapiro"]["p"], rel=1e-3)
    points = assumptions.quantiles(FIT)
    np.testing.assert_allclose(points["theoretical"], R["qq"]["theoretical"], rtol=1e-9)
    slope = np.diff(points["line"]) / np.diff(points["theoretical"])
    np.testing.assert_allclose(slope, R["qq"]["slope"], rtol=1e-9)


def test_cochrane_orcutt_is_the_iteration_written_out_in_r_and_glsar_at_its_rho() -> None:
    expected = R["orcutt"]
    fit = assumptions.regression(SAMPLES, "TP", names=VARIABLES)
    found = assumptions.cochrane_orcutt(fit)
    assert found.rho == pytest.approx(expected["rho"], abs=1e-8)
    np.testing.assert_allclose(found.coefficients["estimate"], expected["estimate"], rtol=1e-6)
    np.testing.assert_allclose(found.coefficients["error"], expected["error"], rtol=1e-6)
    np.testing.assert_allclose(found.coefficients["p"], expected["p"], rtol=1e-4, atol=1e-15)
    assert found.after == pytest.approx(expected["after"], rel=1e-6)
    other = sm.GLSAR(fit.y, fit.X, rho=found.rho).fit()
    np.testing.assert_allclose(found.coefficients["estimate"], other.params, rtol=1e-8)
    np.testing.assert_allclose(found.coefficients["error"], other.bse, rtol=1e-6)


# --- theory and simulation ------------------------------------------------------------------------


def uniform(p_values: list[float]) -> float:
    """p-value of a Kolmogorov–Smirnov test that p-values are uniform."""
    return float(stats.kstest(p_values, "uniform").pvalue)


def under_the_null(data_sets: int, n: int) -> list[assumptions.CheckedRegression]:
    rng = np.random.default_rng(20)
    return [
        assumptions.regression(rng.normal(size=(n, 3)), rng.normal(size=n))
        for _ in range(data_sets)
    ]


@pytest.mark.parametrize("data_sets", [200, pytest.param(1000, marks=FULL_SIZE)])
def test_p_values_are_uniform_when_nothing_is_wrong(covers: Coverage, data_sets: int) -> None:
    fits = under_the_null(data_sets, 150)
    tests = {
        "Durbin–Watson": [
            assumptions.durbin_watson(fit, draws=1000, seed=i).p for i, fit in enumerate(fits)
        ],
        "studentised": [assumptions.breusch_pagan(fit).p for fit in fits],
        "score": [assumptions.non_constant_variance(fit).p for fit in fits],
        "Shapiro": [assumptions.shapiro_wilk(fit).p for fit in fits],
    }
    for name, p_values in tests.items():
        assert uniform(p_values) > 0.001, name
        share = float(np.mean(np.array(p_values) >= 0.05))
        covers({f"{name}: not significant, where nothing is wrong": share}, data_sets)


def test_planted_violations_are_found() -> None:
    rng = np.random.default_rng(4)
    n = 300
    x = np.column_stack([rng.uniform(0, 4, n), rng.normal(size=n)])
    noise = rng.normal(size=n)
    wave = np.zeros(n)
    for i in range(1, n):
        wave[i] = 0.6 * wave[i - 1] + noise[i]
    alike = x[:, :1] + rng.normal(scale=0.05, size=(n, 1))
    planted = {
        "Durbin–Watson": (x, x @ [1.0, 2.0] + wave),
        "Breusch–Pagan (studentised)": (x, x @ [1.0, 2.0] + noise * x[:, 0]),
        "non-constant variance score": (x, x @ [5.0, 0.0] + noise * x[:, 0]),
        "largest √VIF": (np.hstack([x, alike]), x @ [1.0, 2.0] + noise),
        "largest Cook's distance": (
            np.vstack([x, [[12.0, 5.0]]]),
            np.append(x @ [1.0, 2.0] + noise, -40.0),
        ),
    }
    for test, (X, y) in planted.items():
        checks = assumptions.check(X, y)
        assert checks[test].verdict == "fails", test
        assert checks[test].advice != "Nothing to do."
    skewed = assumptions.check(x[:60], x[:60] @ [1.0, 2.0] + np.exp(2 * noise[:60]))
    assert skewed["Shapiro–Wilk"].verdict == "fails"
    assert (
        assumptions.check(x, x @ [1.0, 2.0] + np.exp(2 * noise))["Shapiro–Wilk"].verdict == "look"
    )


def test_cochrane_orcutt_gives_back_the_planted_correlation_and_effects() -> None:
    rng = np.random.default_rng(8)
    n = 4000
    x = rng.normal(size=(n, 2))
    error = np.zeros(n)
    for i, new in enumerate(rng.normal(size=n)[1:], start=1):
        error[i] = 0.7 * error[i - 1] + new
    found = assumptions.cochrane_orcutt(assumptions.regression(x, 3 + x @ [1.0, -2.0] + error))
    assert found.rho == pytest.approx(0.7, abs=4 * np.sqrt((1 - 0.49) / n))
    assert found.before == pytest.approx(0.6, abs=0.1)
    assert found.after == pytest.approx(2, abs=0.13)
    np.testing.assert_allclose(found.to_frame()["estimate"][1:], [1, -2], atol=0.06)


def test_differences_do_not_reach_across_groups() -> None:
    """Interleaved series: each DBMS' samples follow each other, whatever lies between them."""
    rng = np.random.default_rng(9)
    n, groups = 600, 3
    error = np.zeros((n, groups))
    for i in range(1, n):
        error[i] = 0.8 * error[i - 1] + rng.normal(size=groups)
    x = rng.normal(size=(n * groups, 1))
    y = 2 * x[:, 0] + error.ravel()
    labels = np.tile(["a", "b", "c"], n)
    within = assumptions.cochrane_orcutt(assumptions.regression(x, y, groups=labels))
    across = assumptions.cochrane_orcutt(assumptions.regression(x, y))
    assert within.rho == pytest.approx(0.8, abs=0.06)
    assert abs(across.rho) < 0.1
    assert within.after == pytest.approx(2, abs=0.2)


def test_each_group_has_an_intercept_of_its_own_in_the_correction() -> None:
    """As least squares of the differences written out, at a ρ that is that of their residuals."""
    rng = np.random.default_rng(10)
    labels = np.tile(["a", "b", "c"], 40)
    x = rng.normal(size=(120, 2))
    drift = np.repeat(rng.normal(size=(40, 3)).cumsum(axis=0)[:, :1], 3, axis=1).ravel()
    y = x @ [1.0, -2.0] + 10.0 * (labels == "b") + 0.3 * drift + rng.normal(size=120)
    # One sample more, of a group that has no other.
    labels, x, y = np.append(labels, "d"), np.vstack([x, [[0.0, 0.0]]]), np.append(y, 1000.0)
    found = assumptions.cochrane_orcutt(assumptions.regression(x, y, groups=labels))
    table = found.coefficients
    assert list(table["name"]) == ["intercept[a]", "intercept[b]", "intercept[c]", "x1", "x2"]
    parts = []
    for group in "abc":
        own = np.column_stack([np.full(40, name == group, dtype=float) for name in "abc"])
        own = np.column_stack([own, x[labels == group], y[labels == group]])
        parts.append((own[1:], own[:-1]))
    now, before = (np.vstack(side) for side in zip(*parts, strict=True))
    other = sm.OLS(*np.hsplit(now - found.rho * before, [5])[::-1]).fit()
    np.testing.assert_allclose(table["estimate"], other.params, rtol=1e-7)
    np.testing.assert_allclose(table["error"], other.bse, rtol=1e-7)
    np.testing.assert_allclose(table["p"], other.pvalues, rtol=1e-6, atol=1e-300)
    errors, last = (side[:, 5] - side[:, :5] @ table["estimate"] for side in (now, before))
    assert found.rho == pytest.approx(float(errors @ last / (last @ last)), abs=1e-6)


@pytest.mark.parametrize(
    ("rho", "data_sets"),
    [
        (0.0, 200),
        pytest.param(0.0, 2000, marks=FULL_SIZE),
        pytest.param(0.5, 2000, marks=FULL_SIZE),
    ],
)
def test_what_groups_differ_by_is_no_correlation_of_neighbours(
    covers: Coverage, rho: float, data_sets: int
) -> None:
    """Four DBMSs of 40 samples, of levels far apart: ρ and slopes are those within them."""
    rng = np.random.default_rng(11)
    labels = np.tile(list("abcd"), 40)
    slopes, hits, found_rho = np.array([1.0, -2.0]), np.zeros(2), []
    for _ in range(data_sets):
        x = rng.normal(size=(160, 2))
        error = rng.normal(size=(40, 4))
        error[0] /= np.sqrt(1 - rho**2)
        for i in range(1, 40):
            error[i] += rho * error[i - 1]
        offset = np.tile(rng.normal(scale=10, size=4), 40)
        y = x @ slopes + offset + error.ravel()
        fit = assumptions.cochrane_orcutt(assumptions.regression(x, y, groups=labels))
        table = fit.coefficients.iloc[4:]
        half = stats.t.ppf(0.975, 156 - 6) * table["error"].to_numpy()
        hits += np.abs(table["estimate"].to_numpy() - slopes) <= half
        found_rho.append(fit.rho)
    assert np.abs(found_rho).max() < 1
    # Nickell: an intercept for each T = 40 samples makes ρ too small by about (1 + ρ)/T.
    assert np.mean(found_rho) == pytest.approx(rho - (1 + rho) / 40, abs=0.015)
    shares = {f"Cochrane–Orcutt, ρ = {rho:g}, groups: x{i + 1}": hits[i] for i in range(2)}
    covers({name: share / data_sets for name, share in shares.items()}, data_sets)


@pytest.mark.parametrize(
    ("labels", "advice"), [(None, "name them in `groups`"), (["a", "b"], "within the groups")]
)
def test_errors_that_grow_are_no_autocorrelation(labels: list[str] | None, advice: str) -> None:
    rng = np.random.default_rng(12)
    x = rng.normal(size=(80, 1))
    growing = np.repeat(1.15 ** np.arange(40), 2) + 0.01 * rng.normal(size=80)
    groups = None if labels is None else np.tile(labels, 40)
    y = x[:, 0] + (growing if groups is not None else 1.07 ** np.arange(80))
    y = y + 0.001 * rng.normal(size=80)
    fit = assumptions.regression(x, y, groups=groups)
    with pytest.raises(SampleError, match=r"correlated by ρ = 1\.\d\d, and grow") as caught:
        assumptions.cochrane_orcutt(fit)
    assert advice in caught.value.advice


def test_a_variable_that_is_the_same_within_groups_has_no_correction() -> None:
    rng = np.random.default_rng(13)
    labels = np.repeat(list("abcd"), 10)
    x = np.column_stack([rng.normal(size=40), np.repeat([1.0, 2.0, 4.0, 8.0], 10)])
    y = x @ [1.0, 1.0] + rng.normal(size=40)
    with pytest.raises(SampleError, match="cannot tell a variable from the intercepts") as caught:
        assumptions.cochrane_orcutt(assumptions.regression(x, y, groups=labels))
    assert "do not vary within groups" in caught.value.advice
    alone = assumptions.regression(x, y, groups=np.arange(40))
    with pytest.raises(SampleError, match="leaves 0 differences"):
        assumptions.cochrane_orcutt(alone)


def test_leverage_cook_and_vif_by_hand() -> None:
    """Four points: x = 0, 1, 2, 5; the mean is 2, the sum of squares 14."""
    x, y = np.array([0.0, 1, 2, 5]), np.array([0.0, 1, 2, 9])
    fit = assumptions.regression(x, y)
    found = assumptions.influence(fit)
    leverage = 0.25 + np.array([4, 1, 0, 9]) / 14
    np.testing.assert_allclose(found["leverage"], leverage)
    slope = ((x - 2) @ (y - 3)) / 14
    residual = y - 3 - slope * (x - 2)
    cook = residual**2 * leverage / (2 * (residual @ residual / 2) * (1 - leverage) ** 2)
    np.testing.assert_allclose(found["cook"], cook)
    assert assumptions.inflation(fit)["root"].tolist() == [1]
    pair = assumptions.regression(
        np.column_stack([x, [0.0, 2.0, 1.0, 3.0]])[[0, 1, 2, 3, 3, 2]], np.append(y, [8.0, 1.0])
    )
    r = np.corrcoef(pair.X[:, 1], pair.X[:, 2])[0, 1]
    np.testing.assert_allclose(assumptions.inflation(pair)["vif"], 1 / (1 - r**2))


def test_the_pictures_are_those_of_the_residuals() -> None:
    bins = assumptions.histogram(FIT, bins=12)
    assert bins["count"].sum() == FIT.samples
    assert (bins["density"] * (bins["right"] - bins["left"])).sum() == pytest.approx(1)
    assert (bins["normal"] * (bins["right"] - bins["left"])).sum() == pytest.approx(1, abs=0.05)
    points = assumptions.quantiles(FIT)
    np.testing.assert_array_equal(points["residual"], np.sort(FIT.residuals))


def test_checks_say_everything_in_one_table_and_in_words() -> None:
    checks = assumptions.check(SAMPLES, "TP", names=VARIABLES, groups="dbms")
    table = checks.to_frame()
    assert set(table["assumption"]) == {
        "independent residuals",
        "equal variance",
        "no multicollinearity",
        "no outliers",
        "normal residuals",
    }
    assert checks["Durbin–Watson"].verdict == "fails"
    assert checks.correction is not None
    assert "Durbin–Watson 1.46" in str(checks)
    assert checks.failed == tuple(each for each in checks if each.verdict == "fails")
    assert checks.inflation["root"].max() == checks["largest √VIF"].statistic


def test_a_correction_that_cannot_be_computed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert assumptions.check(SAMPLES, "TP", names=VARIABLES, groups="dbms").uncorrected == ""

    def settles_not(_: assumptions.CheckedRegression) -> assumptions.CochraneOrcutt:
        raise SampleError("ρ has not settled", "look for a trend")

    monkeypatch.setattr(_checks, "cochrane_orcutt", settles_not)
    checks = assumptions.check(SAMPLES, "TP", names=VARIABLES, groups="dbms")
    assert checks.correction is None
    assert checks.uncorrected == "ρ has not settled: look for a trend"
    assert "no Cochrane–Orcutt estimate: ρ has not settled: look" in str(checks)


def test_a_text_enters_as_indicators_and_a_group_is_no_variable() -> None:
    fit = assumptions.regression(SAMPLES[["numProcs", "dbms"]], SAMPLES["TP"])
    assert fit.names == ("intercept", "numProcs", "dbms[beta]", "dbms[gamma]")
    fit = assumptions.regression(SAMPLES[["numProcs", "dbms"]], SAMPLES["TP"], groups="dbms")
    assert fit.names == ("intercept", "numProcs")


def test_a_group_that_is_too_small_has_no_statistic() -> None:
    labels = np.where(np.arange(len(SAMPLES)) < 5, "few", "many")
    fit = assumptions.regression(SAMPLES, "TP", names=VARIABLES, groups=labels)
    found = assumptions.durbin_watson_by_group(fit).set_index("group")
    assert np.isnan(found.loc["few", "statistic"])
    assert found.loc["few", "samples"] == 5
    assert "parameters, but there are only 5 samples" in found.loc["few", "problem"]
    assert np.isfinite(found.loc["many", "statistic"])
    assert found.loc["many", "problem"] == ""


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda x, _: np.full(len(x), 7.0), "the outcome is the same in all its samples"),
        (lambda x, _: 3 - 2 * x[:, 0], "the outcome follows from a, b without error"),
        (lambda x, y: y, "its regression: `b` is a linear combination of `a`"),
    ],
)
def test_a_group_that_is_not_too_small_says_what_else_is_wrong(
    made: Callable[[Array, Array], Array], said: str
) -> None:
    """Sixteen samples are enough; what ails them is another matter."""
    rng = np.random.default_rng(14)
    x, labels = rng.normal(size=(32, 2)), np.repeat(["odd", "sound"], 16)
    y = x @ [1.0, 1.0] + rng.normal(size=32)
    y[:16] = made(x[:16], y[:16])
    if "combination" in said:
        x[:16, 1] = 2 * x[:16, 0]
    table = pd.DataFrame(x, columns=["a", "b"]).assign(TP=y, dbms=labels)
    fit = assumptions.regression(table, "TP", names=["a", "b"], groups="dbms")
    found = assumptions.durbin_watson_by_group(fit).set_index("group")
    assert found.loc["odd", "problem"] == said
    assert found.loc["odd", "samples"] == 16
    assert found.loc[["odd"], ["statistic", "autocorrelation", "p"]].isna().all(axis=None)
    assert found.loc["sound", "problem"] == "" and np.isfinite(found.loc["sound", "p"])


@pytest.mark.parametrize(
    ("p", "said"),
    [
        ([], ""),
        ([np.nan, np.nan], "No DBMS can be tested alone."),
        ([0.2, 0.6], "Tested within each DBMS, it does not show there: either DBMS differ"),
        ([0.2, np.nan], "Tested within 1 of 2 DBMS, it does not show there: either"),
        ([0.01, np.nan], "Tested within 1 of 2 DBMS, it shows for a."),
    ],
)
def test_what_does_not_show_within_a_dbms_is_no_proof(p: list[float], said: str) -> None:
    table = pd.DataFrame({"group": list("ab")[: len(p)], "p": p})
    assert _within(table, 0.05).strip().startswith(said)


def test_too_few_samples_of_each_dbms_give_no_cause() -> None:
    """Residuals that are alike in each DBMS: the pool shows it, three samples of one cannot."""
    rng = np.random.default_rng(5)
    x, labels = rng.normal(size=24), np.repeat(list("abcdefgh"), 3)
    y = x + rng.normal(size=24) + 3.0 * np.repeat([0, 1, 2, 3, 3, 2, 1, 0], 3)
    check = assumptions.check(x[:, None], y, groups=labels)["Durbin–Watson"]
    assert check.verdict == "fails"
    assert "No DBMS can be tested alone" in check.meaning
    assert "differ" not in check.meaning


# --- bad input ------------------------------------------------------------------------------------

RNG = np.random.default_rng(3)
GOOD = RNG.normal(size=(30, 2))
OUTCOME = GOOD @ [1.0, 1.0] + RNG.normal(size=30)


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        (np.column_stack([GOOD, np.ones(30)]), OUTCOME, SampleError, "`x3` is constant"),
        (np.column_stack([GOOD, GOOD @ [1, 2]]), OUTCOME, SampleError, "linear combination"),
        (GOOD, np.ones(30), SampleError, "`y` is constant"),
        (GOOD, GOOD @ [1, 2] + 3, SampleError, "without error"),
        (GOOD[:4], OUTCOME[:4], SampleError, "only 4 samples"),
        (GOOD[:0], OUTCOME[:0], SampleError, "only 0 samples"),
        (GOOD, np.append(OUTCOME[:-1], np.inf), SampleError, "infinite in 1 of 30"),
        (GOOD, np.append(OUTCOME[:-1], np.nan), SampleError, "missing in 1 of 30"),
        (np.where(GOOD > 1, np.nan, GOOD), OUTCOME, SampleError, "missing"),
        (GOOD[:20], OUTCOME, ShapeError, "20 rows"),
        (GOOD[:, :0], OUTCOME, SampleError, "no column"),
        (pd.DataFrame(GOOD, columns=["a", "b"]), "TP", ShapeError, "no column `TP`"),
        (pd.DataFrame({"a": ["x"] * 30}), pd.Series(OUTCOME), SampleError, "constant"),
        (pd.DataFrame({"a": GOOD[:, 0]}), pd.Series(["x"] * 30), ShapeError, "no number"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    X: pd.DataFrame, y: pd.Series, error: type[AnalysisError], message: str
) -> None:
    with pytest.raises(error, match=message):
        assumptions.check(X, y)


def test_other_bad_requests() -> None:
    with pytest.raises(ShapeError, match="groups has 3 values"):
        assumptions.check(GOOD, OUTCOME, groups=np.array(["a", "b", "c"]))
    with pytest.raises(ShapeError, match="name each column"):
        assumptions.check(GOOD, OUTCOME, names=["one"])
    with pytest.raises(AnalysisError, match="level"):
        assumptions.check(GOOD, OUTCOME, level=5)
    with pytest.raises(AnalysisError, match="choose one of"):
        assumptions.check(GOOD, OUTCOME)["Durbin"]
    rng = np.random.default_rng(1)
    with pytest.raises(SampleError, match="5000"):
        assumptions.shapiro_wilk(
            assumptions.regression(rng.normal(size=(5001, 1)), rng.normal(size=5001))
        )
