"""Mediation against the formulas, R's mediate() and medsens(), and simulated truth."""

import sys
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from conftest import FULL_SIZE, Coverage, golden_samples, read_golden
from scipy import special, stats
from statsmodels.stats.mediation import Mediation as OtherMediation

from tidegate_analysis._weighted import WeightedModel
from tidegate_analysis.errors import AnalysisError, ModelError, SampleError, ShapeError
from tidegate_analysis.mediation import Effect, Mechanism, mediate, moderation, sensitivity
from tidegate_analysis.mediation._mediate import EFFECTS

SAMPLES = golden_samples("mediation")
R = read_golden("mediation")
PLAIN = Mechanism("numProcs", "ATPT", "TP", control=1, treated=8, covariates=["PK"])
INTERACTION = replace(PLAIN, interaction=True)
MODERATED = Mechanism("numProcs", "ATPT", "TP", control=1, treated=8, moderators={"PK": "both"})


def report(line: object) -> None:
    """Say what was measured: figures of the full size go into documents (pytest -s)."""
    sys.stdout.write(f"{line}\n")


def least_squares(outcome: str, *columns: np.ndarray) -> np.ndarray:
    """Coefficients by another program."""
    X = np.column_stack([np.ones(len(SAMPLES)), *columns])
    return np.asarray(sm.OLS(SAMPLES[outcome].to_numpy(), X).fit().params)


T, M, PK = (SAMPLES[name].to_numpy(dtype=float) for name in ("numProcs", "ATPT", "PK"))


# --- formulas -------------------------------------------------------------------------------------


def test_without_interaction_acme_is_the_product_and_total_the_regression_without_mediator() -> (
    None
):
    a = least_squares("ATPT", PK, T)[2]
    beta = least_squares("TP", PK, T, M)
    total = least_squares("TP", PK, T)[2]
    found = mediate(SAMPLES, PLAIN, method="bootstrap", draws=100)
    assert found.acme.estimate == pytest.approx(7 * a * beta[3], rel=1e-9)
    assert found.ade.estimate == pytest.approx(7 * beta[2], rel=1e-9)
    assert found.total.estimate == pytest.approx(7 * total, rel=1e-9)
    assert found.proportion.estimate == pytest.approx(a * beta[3] / total, rel=1e-9)
    assert found.effects["ACME", "control"] == found.effects["ACME", "treated"]
    assert found.to_frame()["effect"].tolist() == ["ACME", "ADE", "total", "proportion"]


def test_with_interaction_effects_depend_on_the_exposure_as_the_formula_says() -> None:
    alpha = least_squares("ATPT", PK, T)
    _, _, direct, b, c = least_squares("TP", PK, T, M, T * M)
    found = mediate(SAMPLES, INTERACTION, method="bootstrap", draws=100).effects
    for exposure, t in (("control", 1), ("treated", 8)):
        mean = alpha[0] + alpha[1] * PK.mean() + alpha[2] * t
        acme = 7 * alpha[2] * (b + c * t)
        assert found["ACME", exposure].estimate == pytest.approx(acme, rel=1e-9)
        assert found["ADE", exposure].estimate == pytest.approx(7 * (direct + c * mean), rel=1e-9)
    both = found["ACME", "control"].estimate + found["ADE", "treated"].estimate
    assert found["total", ""].estimate == pytest.approx(both, rel=1e-9)


@pytest.mark.parametrize("whose", ["treatment", "mediator", "both"])
def test_moderated_effects_are_the_formula_at_a_value_and_its_mean_over_samples(whose: str) -> None:
    first, second = whose in {"treatment", "both"}, whose in {"mediator", "both"}
    alpha = least_squares("ATPT", PK, T, *([T * PK] if first else []))
    columns = [PK, T, *([T * PK] if first else []), M, *([M * PK] if second else []), T * M]
    beta = least_squares("TP", *columns)
    on_mediator = lambda w: 7 * (alpha[2] + (alpha[3] * w if first else 0))  # noqa: E731
    place = 4 if first else 3

    def on_outcome(w):
        return beta[place] + (beta[place + 1] * w if second else 0) + 8 * beta[-1]

    asked = replace(INTERACTION, covariates=(), moderators={"PK": whose})
    for held, expected in (
        ({"PK": 1.0}, on_mediator(1) * on_outcome(1)),
        ({}, np.mean(on_mediator(PK) * on_outcome(PK))),
    ):
        found = mediate(SAMPLES, asked, at=held, method="bootstrap", draws=100)
        assert found.effects["ACME", "treated"].estimate == pytest.approx(expected, rel=1e-9)


def logit(outcome: str, *columns: np.ndarray) -> np.ndarray:
    X = np.column_stack([np.ones(len(SAMPLES)), *columns])
    return np.asarray(sm.Logit(SAMPLES[outcome].to_numpy(), X).fit(disp=0, tol=1e-12).params)


def test_a_yes_no_outcome_is_averaged_over_the_mediators_error() -> None:
    """Against the plain mean over many draws of that error, for each sample."""
    asked = replace(PLAIN, outcome="thrashed", outcome_model="logit")
    alpha = least_squares("ATPT", PK, T)
    beta = logit("thrashed", PK, T, M)
    X = np.column_stack([np.ones(len(T)), PK, T])
    sigma = np.sqrt(((M - X @ alpha) ** 2).sum() / (len(T) - 3))
    noise = sigma * np.random.default_rng(6).standard_normal((len(T), 20_000))

    def mean_outcome(t: float, t_of_mediator: float) -> float:
        mediator = (alpha[0] + alpha[1] * PK + alpha[2] * t_of_mediator)[:, None] + noise
        return special.expit(
            (beta[0] + beta[1] * PK + beta[2] * t)[:, None] + beta[3] * mediator
        ).mean()

    found = mediate(SAMPLES, asked, method="bootstrap", draws=100).effects
    expected = mean_outcome(1, 8) - mean_outcome(1, 1)
    assert found["ACME", "control"].estimate == pytest.approx(expected, abs=2e-4)
    expected = mean_outcome(8, 8) - mean_outcome(1, 8)
    assert found["ADE", "treated"].estimate == pytest.approx(expected, abs=2e-4)


def test_a_yes_no_mediator_is_averaged_over_both_values() -> None:
    asked = replace(PLAIN, mediator="slow", mediator_model="logit", interaction=True)
    alpha = logit("slow", PK, T)
    slow = SAMPLES["slow"].to_numpy(dtype=float)
    _, _, direct, b, c = least_squares("TP", PK, T, slow, T * slow)
    chance = [special.expit(alpha[0] + alpha[1] * PK + alpha[2] * t) for t in (1, 8)]
    found = mediate(SAMPLES, asked, method="bootstrap", draws=200).effects
    acme = (b + 8 * c) * (chance[1] - chance[0]).mean()
    assert found["ACME", "treated"].estimate == pytest.approx(acme, rel=1e-7)
    ade = 7 * (direct + c * chance[0].mean())
    assert found["ADE", "control"].estimate == pytest.approx(ade, rel=1e-7)


def test_an_average_over_samples_is_that_of_the_mean_sample_when_all_is_linear() -> None:
    """The short cut through the mean row draws the mean of the errors: same distribution."""
    short = mediate(SAMPLES, INTERACTION, draws=20_000).draws
    # A moderator with no value given forces the long way; held at its values nothing changes.
    asked = replace(INTERACTION, covariates=(), moderators={"PK": "mediator"})
    long = mediate(SAMPLES, asked, draws=20_000, seed=1).draws
    held = [mediate(SAMPLES, asked, at={"PK": w}, draws=20_000, seed=1).draws for w in (0, 1)]
    share = PK.mean()
    mixed = (1 - share) * held[0]["ACME treated"] + share * held[1]["ACME treated"]
    np.testing.assert_allclose(long["ACME treated"], mixed, rtol=1e-9)
    assert short["ADE treated"].std() > 0


def test_a_text_covariate_is_a_level_for_each_of_its_values() -> None:
    by_text = mediate(SAMPLES, replace(PLAIN, covariates=["dbms"]), method="bootstrap", draws=100)
    columns = [(SAMPLES["dbms"] == name).to_numpy(dtype=float) for name in ("beta", "delta")]
    columns += [(SAMPLES["dbms"] == name).to_numpy(dtype=float) for name in ("epsilon", "gamma")]
    product = least_squares("ATPT", *columns, T)[5] * least_squares("TP", *columns, T, M)[6]
    assert by_text.acme.estimate == pytest.approx(7 * product, rel=1e-9)


# --- R's mediate() --------------------------------------------------------------------------------

NAMES = dict(
    zip(
        EFFECTS, ["d0", "d1", "d.avg", "z0", "z1", "z.avg", "tau", "n0", "n1", "n.avg"], strict=True
    )
)


def agrees(found: Effect, draws: pd.Series, expected: dict[str, float], sims: int) -> None:
    """Two simulations of one distribution differ by Monte Carlo error: 4.5 standard errors.

    That of a share of draws is √(q(1 − q)/N), so their 2.5 % quantile must lie between two of our
    quantiles near 2.5 %; nothing is assumed of the distribution, a ratio's has heavy tails.
    """
    each = 1 / len(draws) + 1 / sims
    width = (found.high - found.low) / (2 * 1.96)
    assert found.estimate == pytest.approx(expected["estimate"], abs=4.5 * width * np.sqrt(each))
    for share, theirs in ((0.025, expected["low"]), (0.975, expected["high"])):
        slack = 4.5 * np.sqrt(share * (1 - share) * each)
        low, high = draws.quantile([share - slack, share + slack])
        assert low <= theirs <= high
    share = max(expected["p"] / 2, 1 / sims)
    chance = 4.5 * 2 * np.sqrt(share * (1 - share) * each)
    assert found.p == pytest.approx(expected["p"], abs=chance + 2 / len(draws))


@pytest.mark.parametrize(
    ("name", "asked", "options"),
    [
        ("plain", PLAIN, {}),
        ("interaction", INTERACTION, {}),
        ("moderated_at_0", MODERATED, {"at": {"PK": 0}}),
        ("moderated_at_1", MODERATED, {"at": {"PK": 1}}),
        ("bootstrap", PLAIN, {"method": "bootstrap"}),
        ("bootstrap_interaction", INTERACTION, {"method": "bootstrap"}),
        ("logit_outcome", replace(PLAIN, outcome="thrashed", outcome_model="logit"), {}),
    ],
)
def test_effects_are_those_of_mediate(name: str, asked: Mechanism, options: dict) -> None:
    draws = 20_000 if asked.linear else 4_000
    sims = R["resamples"] if "bootstrap" in name else R["sims" if asked.linear else "sims_logit"]
    found = mediate(SAMPLES, asked, draws=draws, **options)
    expected = R[name] if name in R else R["moderated"][name.removeprefix("moderated_")]
    for effect, theirs in NAMES.items():
        drawn = found.draws[" ".join(effect).strip()]
        agrees(found.effects[effect], drawn, expected[theirs], sims)


def test_clustered_effects_are_those_of_a_jackknife_and_wider_than_mediates() -> None:
    """ADE is linear in the parameters: a regression without each DBMS, and t(4)."""
    X = np.column_stack([T, np.ones(len(T)), PK, M])
    y, dbms = SAMPLES["TP"].to_numpy(), SAMPLES["dbms"].to_numpy()
    best = sm.OLS(y, X).fit().params[0]
    without = [sm.OLS(y[dbms != d], X[dbms != d]).fit().params[0] for d in np.unique(dbms)]
    half = 7 * stats.t.ppf(0.975, 4) * np.sqrt(4 / 5 * np.square(np.array(without) - best).sum())
    found = mediate(SAMPLES, PLAIN, clusters="dbms", draws=40_000).ade
    assert found.estimate == pytest.approx(7 * best)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.05)
    theirs = R["clustered"]["z.avg"]
    assert found.high - found.low > 1.3 * (theirs["high"] - theirs["low"])


def test_a_jackknife_of_a_yes_no_outcome_is_that_of_its_fits() -> None:
    """One step of Newton's method from the estimate, beside fits without each cluster."""
    X = np.column_stack([np.ones(len(T)), T, PK])
    y, codes = SAMPLES["thrashed"].to_numpy(dtype=float), np.arange(len(T)) % 20
    root = WeightedModel(X, y, "logit", "thrashed").covariance_root(codes)
    without = [sm.Logit(y[codes != c], X[codes != c]).fit(disp=0).params for c in range(20)]
    apart = np.array(without) - sm.Logit(y, X).fit(disp=0).params
    np.testing.assert_allclose(np.diag(root @ root.T), 19 / 20 * (apart**2).sum(axis=0), rtol=0.1)


@pytest.mark.parametrize("method", ["quasi-bayesian", "bootstrap"])
def test_clusters_that_leave_an_effect_no_degree_of_freedom_are_refused(method: str) -> None:
    groups = np.arange(len(SAMPLES)) % 3
    few = SAMPLES.assign(run=groups, numProcs=2.0**groups, PK=(groups == 1).astype(float))
    said = "3 clusters by `run` leave no degree of freedom .* each: `numProcs`: add samples"
    with pytest.raises(SampleError, match=said):
        mediate(few, PLAIN, clusters="run", method=method)
    # A covariate that the clusters determine is no effect: compared is inside clusters.
    inside = replace(PLAIN, covariates=["dbms"])
    assert np.isfinite(mediate(SAMPLES, inside, clusters="dbms").acme.high)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("logit_mediator", replace(PLAIN, mediator="slow", mediator_model="logit")),
        (
            "logit_both",
            Mechanism(
                "numProcs",
                "slow",
                "thrashed",
                1,
                8,
                ["PK"],
                mediator_model="logit",
                outcome_model="logit",
            ),
        ),
    ],
)
def test_a_yes_no_mediator_has_the_effects_of_mediate_without_its_noise(
    name: str, asked: Mechanism
) -> None:
    """mediate() draws the mediator independently under both exposures: ACME has more variance."""
    found = mediate(SAMPLES, asked, draws=4_000)
    for effect in (("ACME", "average"), ("ADE", "average"), ("total", "")):
        expected = R[name][NAMES[effect]]
        error = expected["sd"] * np.sqrt(1 / 4_000 + 1 / R["sims_logit"])
        assert found.effects[effect].estimate == pytest.approx(
            expected["estimate"], abs=4.5 * error
        )
    ours = found.draws["ACME average"].std()
    assert ours < R[name]["d.avg"]["sd"]


def test_bca_is_that_of_r_boot() -> None:
    found = mediate(SAMPLES, PLAIN, method="bootstrap", interval="bca", draws=20_000).acme
    expected = R["bca"]
    assert found.estimate == pytest.approx(expected["estimate"], rel=1e-9)
    error = expected["sd"] * np.sqrt(1 / 20_000 + 1 / expected["resamples"])
    # BCa's bias correction is itself simulated: twice the error of a plain quantile.
    assert found.low == pytest.approx(expected["low"], abs=2 * 4.5 * 2.67 * error)
    assert found.high == pytest.approx(expected["high"], abs=2 * 4.5 * 2.67 * error)


def test_moderation_is_the_difference_of_mediate_at_one_seed() -> None:
    found = moderation(SAMPLES, MODERATED, {"PK": 1}, {"PK": 0}, draws=20_000)
    drawn = found.first.draws - found.second.draws
    expected = R["moderated"]["difference"]
    agrees(found.acme, drawn["ACME average"], expected["d1"], R["sims"])
    agrees(found.ade, drawn["ADE average"], expected["z0"], R["sims"])
    apart = found.first.acme.estimate - found.second.acme.estimate
    assert found.acme.estimate == pytest.approx(apart, rel=1e-9)


def test_what_two_values_of_a_moderator_share_cancels_which_modmed_misses() -> None:
    """test.modmed() subtracts independent simulations: its interval is wider."""
    expected = R["partly_moderated"]
    asked = replace(MODERATED, moderators={"PK": "mediator"})
    found = moderation(SAMPLES, asked, {"PK": 1}, {"PK": 0}, draws=20_000)
    drawn = (found.first.draws - found.second.draws)["ACME average"]
    agrees(found.acme, drawn, expected["difference"]["d1"], R["sims_logit"])
    width = found.acme.high - found.acme.low
    assert width < 0.97 * (expected["modmed"]["high"] - expected["modmed"]["low"])
    apart = [mediate(SAMPLES, asked, at={"PK": w}, draws=20_000, seed=w).draws for w in (0, 1)]
    independent = (apart[1] - apart[0])["ACME average"].quantile([0.025, 0.975])
    assert width < 0.97 * np.ptp(independent)


@pytest.mark.parametrize("way", ["quasi-bayesian", "bca"])
def test_what_is_not_moderated_does_not_differ(way: str) -> None:
    """PK moderates the mediator's effect only: ADE is the same with and without it."""
    asked = replace(MODERATED, moderators={"PK": "mediator"})
    found = moderation(SAMPLES, asked, {"PK": 1}, {"PK": 0}, **WAYS[way])
    assert (found.ade.estimate, found.ade.low, found.ade.high, found.ade.p) == (0, 0, 0, 1)
    assert found.acme.estimate != 0
    assert "{'PK': 1} minus {'PK': 0}" in str(found)


# --- sensitivity ----------------------------------------------------------------------------------


def norms_ratio() -> float:
    X = np.column_stack([np.ones(len(T)), PK, T])
    left = sm.OLS(M, X).fit().resid, sm.OLS(SAMPLES["TP"].to_numpy(), np.column_stack([X, M])).fit()
    return float(np.linalg.norm(left[1].resid) / np.linalg.norm(left[0]))


@pytest.mark.parametrize(
    ("name", "asked"), [("sensitivity", PLAIN), ("sensitivity_interaction", INTERACTION)]
)
def test_sensitivity_is_that_of_medsens(name: str, asked: Mechanism) -> None:
    expected = R[name]
    found = sensitivity(SAMPLES, asked)
    table = found.to_frame()
    np.testing.assert_allclose(table["rho"], expected["rho"], atol=1e-12)
    # medsens() is for one unit of treatment, and ACME(1) is under one; it iterates to 1e-4.
    scale = np.abs(expected["d0"]).max()
    if asked is PLAIN:
        np.testing.assert_allclose(
            table["acme_treated"] / 7, expected["d1"], rtol=1e-3, atol=1e-3 * scale
        )
    else:
        at_one = sensitivity(SAMPLES, replace(asked, control=0, treated=1)).to_frame()
        for world, theirs in (("control", "d0"), ("treated", "d1")):
            np.testing.assert_allclose(
                at_one[f"acme_{world}"], expected[theirs], rtol=1e-3, atol=1e-3 * scale
            )
    if asked is PLAIN:
        # medsens() takes the ratio of residuals' norms for known, and divides by n − 1.
        kappa = table["rho"] / np.sqrt(1 - table["rho"] ** 2) * norms_ratio()
        a = 7 * least_squares("ATPT", PK, T)[2]
        width = (table["high_treated"] - table["low_treated"]) / (2 * 1.959964)
        known = np.sqrt(width**2 - a**2 * kappa**2 / len(T)) / 7
        theirs = (np.array(expected["high_d1"]) - expected["low_d1"]) / (2 * 1.959964)
        np.testing.assert_allclose(known, theirs, rtol=0.02)
    assert found.r2_mediator == pytest.approx(expected["R2_mediator"], rel=1e-9)
    assert found.r2_outcome == pytest.approx(expected["R2_outcome"], rel=1e-9)
    np.testing.assert_allclose(table["r2_total"], expected["R2_tilde"], rtol=1e-8, atol=1e-15)


def test_sensitivity_is_theorem_4_of_imai_keele_yamamoto() -> None:
    """δ(ρ) = a σ₂/σ₁ (ρ̃ − ρ √((1 − ρ̃²)/(1 − ρ²))), with errors of the models without M."""
    X = np.column_stack([np.ones(len(T)), PK, T])
    first, second = sm.OLS(M, X).fit(), sm.OLS(SAMPLES["TP"].to_numpy(), X).fit()
    spread = np.std(first.resid), np.std(second.resid)
    tilde = np.corrcoef(first.resid, second.resid)[0, 1]
    found = sensitivity(SAMPLES, PLAIN)
    rho = found.to_frame()["rho"].to_numpy()
    root = np.sqrt((1 - tilde**2) / (1 - rho**2))
    acme = 7 * first.params[2] * spread[1] / spread[0] * (tilde - rho * root)
    np.testing.assert_allclose(found.to_frame()["acme_treated"], acme, rtol=1e-6, atol=1e-6)
    assert found.rho_treated == pytest.approx(tilde, abs=1e-7)
    assert found.r2_unexplained == pytest.approx(tilde**2, abs=1e-7)
    assert found.rho_control == found.rho_treated
    assert f"{tilde:.3f}" in str(found)


def test_at_rho_0_sensitivity_is_mediation() -> None:
    found = sensitivity(SAMPLES, INTERACTION, rho=[0.0]).to_frame().iloc[0]
    expected = mediate(SAMPLES, INTERACTION, draws=20_000).effects["ACME", "treated"]
    exact = mediate(SAMPLES, INTERACTION, method="bootstrap", draws=100)
    assert found["acme_treated"] == pytest.approx(
        exact.effects["ACME", "treated"].estimate, rel=1e-9
    )
    width = expected.high - expected.low
    assert found["high_treated"] - found["low_treated"] == pytest.approx(width, rel=0.06)


def test_the_planted_common_cause_is_undone_at_its_correlation() -> None:
    """With an unobserved cause of both, ACME is biased; at the true ρ it is the truth."""
    rng = np.random.default_rng(12)
    n = 20_000
    t, cause = rng.choice([1.0, 2.0, 4.0, 8.0], n), rng.normal(size=n)
    m = -0.5 * t + cause + rng.normal(size=n)
    y = t + 0.8 * m + 2 * cause + rng.normal(size=n)
    frame = pd.DataFrame({"t": t, "m": m, "y": y})
    asked = Mechanism("t", "m", "y", control=1, treated=8)
    rho = 2 / np.sqrt(2 * 5)
    row = sensitivity(frame, asked, rho=[0.0, rho]).to_frame()
    assert row["acme_treated"].iloc[0] < -5
    assert row["acme_treated"].iloc[1] == pytest.approx(7 * -0.5 * 0.8, abs=0.15)


@pytest.mark.parametrize("data_sets", [100, pytest.param(1000, marks=FULL_SIZE)])
def test_intervals_at_the_true_correlation_cover(covers: Coverage, data_sets: int) -> None:
    rng = np.random.default_rng(55)
    rho, inside = 0.8, 0
    for _ in range(data_sets):
        errors = rng.multivariate_normal([0, 0], [[1, 2 * rho], [2 * rho, 4]], size=150)
        t = rng.choice([1.0, 2.0, 4.0, 8.0], 150)
        m = -0.5 * t + errors[:, 0]
        frame = pd.DataFrame({"t": t, "m": m, "y": t + 0.8 * m + errors[:, 1]})
        asked = Mechanism("t", "m", "y", control=1, treated=8)
        row = sensitivity(frame, asked, rho=[rho]).to_frame().iloc[0]
        inside += row["low_treated"] <= 7 * -0.5 * 0.8 <= row["high_treated"]
    covers({"sensitivity: ACME at the true ρ": inside / data_sets}, data_sets)


# --- simulation with known truth ------------------------------------------------------------------

TRUTH = {"on_mediator": -0.25, "direct": 0.3, "b": 0.5, "both": 0.05}


def simulated(rng: np.random.Generator, n: int, both: float = TRUTH["both"]) -> pd.DataFrame:
    t = rng.choice([1.0, 2.0, 4.0, 8.0], n)
    w = rng.integers(0, 2, n).astype(float)
    m = 2 - 0.25 * t + 0.5 * w + rng.normal(size=n)
    y = 1 + 0.3 * t - 0.4 * w + 0.5 * m + both * t * m + rng.normal(scale=1.5, size=n)
    return pd.DataFrame({"t": t, "w": w, "m": m, "y": y})


def truth(frame: pd.DataFrame) -> tuple[float, float]:
    """ACME and ADE under treatment 8, for the samples' mean of the covariate."""
    mean = 2 - 0.25 * 8 + 0.5 * frame["w"].mean()
    return 7 * -0.25 * (0.5 + 0.05 * 8), 7 * (0.3 + 0.05 * mean)


ASKED = Mechanism("t", "m", "y", control=1, treated=8, covariates=["w"], interaction=True)
WAYS = {
    "quasi-bayesian": {},
    "percentile": {"method": "bootstrap"},
    "bca": {"method": "bootstrap", "interval": "bca"},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("data_sets", [100, pytest.param(1000, marks=FULL_SIZE)])
def test_95_percent_intervals_cover_the_truth(covers: Coverage, way: str, data_sets: int) -> None:
    rng = np.random.default_rng(2010)
    inside = np.zeros(2)
    for number in range(data_sets):
        frame = simulated(rng, 200)
        found = mediate(frame, ASKED, draws=500, seed=number, **WAYS[way]).effects
        for i, (name, value) in enumerate(zip(("ACME", "ADE"), truth(frame), strict=True)):
            each = found[name, "treated"]
            inside[i] += each.low <= value <= each.high
    acme, ade = inside / data_sets
    covers({f"mediation, {way}: ACME": acme, f"mediation, {way}: ADE": ade}, data_sets)


@pytest.mark.parametrize("data_sets", [60, pytest.param(1000, marks=FULL_SIZE)])
def test_clustered_intervals_cover_where_plain_ones_do_not(
    covers: Coverage, data_sets: int
) -> None:
    """Treatment and errors belong to clusters of 10 samples; 40 clusters."""
    rng = np.random.default_rng(31)
    labels = np.repeat(np.arange(40), 10)
    asked = Mechanism("t", "m", "y", control=1, treated=8)
    ways = {
        "plain": {},
        "clustered": {"clusters": "dbms"},
        "resampled": {"clusters": "dbms", "method": "bootstrap"},
    }
    inside = dict.fromkeys(ways, 0)
    for number in range(data_sets):
        t = rng.choice([1.0, 2.0, 4.0, 8.0], 40)[labels]
        m = -0.5 * t + rng.normal(size=40)[labels] + rng.normal(size=400)
        y = 0.3 * t + 0.5 * m + rng.normal(size=40)[labels] + rng.normal(size=400)
        frame = pd.DataFrame({"t": t, "m": m, "y": y, "dbms": labels.astype(str)})
        for way, options in ways.items():
            found = mediate(frame, asked, draws=500, seed=number, **options).acme
            inside[way] += found.low <= 7 * -0.5 * 0.5 <= found.high
    share = {f"mediation, {way}: ACME": count / data_sets for way, count in inside.items()}
    why = "samples of a cluster are taken as independent, which they are not: it is to fail"
    plain = "mediation, plain: ACME"
    covers({plain: share.pop(plain)}, data_sets, 0, 0.8, why)
    resampled = "mediation, resampled: ACME"
    narrow = "percentiles of 40 resampled clusters are a little narrow; a report draws normals"
    low = 0.91 if data_sets == 1000 else None
    covers({resampled: share.pop(resampled)}, data_sets, low, why=narrow)
    covers(share, data_sets)


@pytest.mark.parametrize("data_sets", [60, pytest.param(1000, marks=FULL_SIZE)])
def test_a_reports_runs_of_several_dbmss_cover(covers: Coverage, data_sets: int) -> None:
    """13 runs of 5 DBMSs, whose processors and keys are a run's; processors move nothing."""
    rng = np.random.default_rng(13)
    runs = np.repeat(np.arange(13), 8)
    subject = np.arange(13) % 5
    dbms = np.array(list("abcde"))[subject][runs]
    asked = Mechanism("numProcs", "ATPT", "TP", 1, 8, ["PK", "SF", "dbms"])
    inside = dict.fromkeys(("ACME", "ADE", "total"), 0)
    for number in range(data_sets):
        made = pd.DataFrame({"run": runs, "dbms": dbms})
        made["numProcs"] = rng.choice([1.0, 2.0, 4.0, 8.0], 13)[runs]
        # Each DBMS has runs with keys and runs without.
        made["PK"] = (np.arange(13) // 5 + rng.integers(2, size=5)[subject])[runs] % 2.0
        made["SF"] = rng.choice([1.0, 2.0, 4.0], len(runs))
        own = rng.normal(scale=0.5, size=(2, 13))[:, runs]
        made["ATPT"] = made["SF"] - made["PK"] + own[0] + rng.normal(size=len(runs))
        made["TP"] = 0.5 * made["ATPT"] + made["PK"] + own[1] + rng.normal(size=len(runs))
        found = mediate(made, asked, clusters="run", draws=500, seed=number)
        for name, each in zip(inside, (found.acme, found.ade, found.total), strict=True):
            inside[name] += each.low <= 0 <= each.high
    shares = {f"mediation, 13 runs of 5 DBMSs: {of}": n / data_sets for of, n in inside.items()}
    why = "of so few runs the jackknife errs on the wide side"
    covers(shares, data_sets, high=1, why=why)


@pytest.mark.parametrize("data_sets", [60, pytest.param(1000, marks=FULL_SIZE)])
def test_moderation_has_its_level_and_finds_what_is_there(covers: Coverage, data_sets: int) -> None:
    asked = Mechanism("t", "m", "y", control=1, treated=8, moderators={"w": "both"})
    rng = np.random.default_rng(77)
    found = []
    for depends in (0.0, 0.8):
        count = 0
        for number in range(data_sets):
            frame = simulated(rng, 200, both=0)
            frame["y"] += depends * frame["w"] * frame["m"]
            both = moderation(frame, asked, {"w": 1}, {"w": 0}, draws=500, seed=number)
            count += both.acme.p < 0.05
        found.append(count / data_sets)
    report(f"moderation: power {found[1]:.3f}")
    covers({"moderation: no difference of ACME, where there is none": 1 - found[0]}, data_sets)
    assert found[1] > 0.5


def power_of_both(data_sets: int, draws: int) -> tuple[float, float]:
    """Share of data sets in which ACME is found by us and by statsmodels; n = 300.

    One processor more: the contrast that statsmodels can make, 0 against 1.
    """
    rng = np.random.default_rng(2014)
    asked = Mechanism("t", "m", "y")
    ours = theirs = 0
    for number in range(data_sets):
        t = rng.choice([1.0, 2.0, 4.0, 8.0], 300)
        m = -0.11 * t + rng.normal(size=300)
        y = 0.1 * t + 0.4 * m + rng.normal(size=300)
        frame = pd.DataFrame({"t": t, "m": m, "y": y})
        ours += mediate(frame, asked, draws=draws, seed=number).acme.p < 0.05
        ones = np.ones(300)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            other = OtherMediation(
                sm.OLS(y, np.column_stack([ones, t, m])),
                sm.OLS(m, np.column_stack([ones, t])),
                (1, 1),
                2,
            ).fit(n_rep=draws, rng=number)
        simulated_effects = other.indirect_effects[0].mean(axis=0)
        low, high = np.quantile(simulated_effects, [0.025, 0.975])
        theirs += low > 0 or high < 0
    return ours / data_sets, theirs / data_sets


@pytest.mark.parametrize(
    ("data_sets", "draws"), [(12, 150), pytest.param(120, 200, marks=FULL_SIZE)]
)
def test_one_error_for_both_exposures_keeps_the_power_that_two_lose(
    data_sets: int, draws: int
) -> None:
    ours, theirs = power_of_both(data_sets, draws)
    report(f"power over {data_sets} data sets: ours {ours:.2f}, statsmodels {theirs:.2f}")
    assert ours >= 0.85
    assert theirs <= 0.6


def test_draws_follow_from_the_seed() -> None:
    first, again, other = (mediate(SAMPLES, INTERACTION, seed=seed) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first.draws, again.draws)
    assert not first.draws.equals(other.draws)


def test_what_to_keep_in_mind_is_said() -> None:
    found = mediate(SAMPLES, replace(PLAIN, treated=16), clusters="dbms", at={"PK": 2})
    text = " ".join(found.cautions)
    assert "5 clusters" in text
    assert "numProcs = 16 lies outside the samples' 1 to 8" in text
    assert "PK = 2 lies outside" in text
    assert "numProcs → ATPT → TP, 1 against 16, PK = 2" in str(found)
    assert "< 0.002" in str(mediate(SAMPLES, PLAIN))
    weak = SAMPLES.assign(TP=np.random.default_rng(1).normal(size=len(SAMPLES)))
    assert "proportion means little" in mediate(weak, PLAIN).cautions[0]


def test_resamples_that_cannot_be_fitted_are_counted_or_refused() -> None:
    rare = SAMPLES.assign(PK=np.where(np.arange(len(SAMPLES)) < 4, 1.0, 0.0))
    found = mediate(rare, PLAIN, method="bootstrap", draws=2000)
    lost = 2000 - len(found.draws)
    # A resample of 160 misses all four with probability (156/160)^160 = 0.0174.
    assert 5 < lost < 80
    assert f"{lost} of 2000 resamples" in found.cautions[0]
    rare["PK"] = np.where(np.arange(len(SAMPLES)) < 1, 1.0, 0.0)
    with pytest.raises(SampleError, match="cannot be fitted"):
        mediate(rare, PLAIN, method="bootstrap", draws=2000)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"numProcs": 4.0}, SampleError, "`numProcs` is constant"),
        ({"ATPT": 9.0}, SampleError, "`ATPT` is constant"),
        ({"TP": 9.0}, SampleError, "`TP` is constant"),
        ({"TP": 500 + 20 * T - 2 * M}, SampleError, "`TP` follows exactly from the other variab"),
        ({"PK": 1.0}, SampleError, "`PK` is constant"),
        ({"PK": T * 2}, SampleError, "linear combination"),
        ({"ATPT": T * 2 + PK}, SampleError, "`ATPT` is a linear combination"),
        ({"TP": np.where(T > 4, np.inf, 500.0)}, SampleError, "survival"),
        ({"ATPT": np.where(T > 4, np.nan, M)}, SampleError, "missing"),
        ({"numProcs": "four"}, ShapeError, "no number"),
    ],
)
def test_bad_samples_are_refused_with_what_to_do(
    change: dict, error: type[AnalysisError], message: str
) -> None:
    for method in ("quasi-bayesian", "bootstrap"):
        with pytest.raises(error, match=message):
            mediate(SAMPLES.assign(**change), PLAIN, method=method)
    with pytest.raises(error, match=message):
        sensitivity(SAMPLES.assign(**change), PLAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"treated": 1}, "two values of `numProcs` that differ"),
        ({"treated": np.nan}, "two values"),
        ({"covariates": ["PK", "ATPT"]}, "`ATPT` has two roles"),
        ({"covariates": "PK"}, "list of columns"),
        ({"moderators": {"ROSE": "all"}}, "treatment, mediator or both"),
        ({"outcome_model": "probit"}, "linear or logit"),
    ],
)
def test_bad_mechanisms_are_refused(change: dict, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        replace(PLAIN, **change)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": {"SF": 1}}, "covariates, moderators: PK"),
        ({"at": {"PK": np.inf}}, "finite"),
        ({"method": "bayes"}, "quasi-bayesian or bootstrap"),
        ({"interval": "normal"}, "percentile or bca"),
        ({"interval": "bca"}, "bootstrap"),
        ({"draws": 3}, "100 at least"),
        ({"level": 95}, "between 0 and 1"),
        ({"seed": -1}, "whole number"),
        ({"clusters": "subject"}, "no column `subject`"),
        ({"clusters": "PK"}, "2 clusters"),
    ],
)
def test_bad_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        mediate(SAMPLES, PLAIN, **options)


def test_other_bad_requests() -> None:
    with pytest.raises(ShapeError, match="no column `ROSE`"):
        mediate(SAMPLES, replace(PLAIN, covariates=["ROSE"]))
    with pytest.raises(SampleError, match="only 5 samples"):
        mediate(SAMPLES.head(5), PLAIN)
    with pytest.raises(SampleError, match="only 0 samples"):
        mediate(SAMPLES.head(0), PLAIN)
    with pytest.raises(SampleError, match="no samples"):
        mediate(SAMPLES.head(0), replace(PLAIN, covariates=["dbms"]))
    twice = pd.concat([SAMPLES, SAMPLES[["TP"]]], axis=1)
    with pytest.raises(ShapeError, match="2 columns `TP`"):
        mediate(twice, PLAIN)
    with pytest.raises(SampleError, match="missing in 1"):
        mediate(SAMPLES.assign(TP=SAMPLES["TP"].round().astype("Int64").shift()), PLAIN)
    with pytest.raises(SampleError, match="other than 0 and 1"):
        mediate(SAMPLES, replace(PLAIN, outcome_model="logit"))
    split = SAMPLES.assign(thrashed=(T > 4).astype(float))
    with pytest.raises(SampleError, match="separate"):
        mediate(split, replace(PLAIN, outcome="thrashed", outcome_model="logit"))
    with pytest.raises(AnalysisError, match="two linear models"):
        sensitivity(SAMPLES, replace(PLAIN, outcome="thrashed", outcome_model="logit"))
    with pytest.raises(AnalysisError, match="correlations"):
        sensitivity(SAMPLES, PLAIN, rho=[1.0])
    with pytest.raises(AnalysisError, match="differ"):
        moderation(SAMPLES, MODERATED, {"PK": 1}, {"PK": 1})
