"""Regression of censored thrashing points against theory, R, lifelines, and own coverage."""

import lifelines
import numpy as np
import pandas as pd
import pytest
from censored_samples import MPLS, ON, cover_by_cluster, design, lognormal, se
from conftest import FULL_SIZE
from numpy.testing import assert_allclose
from scipy import stats

from tidegate_analysis import _clusters, censored, examples
from tidegate_analysis.errors import AnalysisError, SampleError

GOLDEN = "censored"


def left_censored_coverage(sets):
    """Coverage by samples that are seen through measured curves: our rule's, and the old one's.

    A curve rises a little up to its point, falls to a half beyond it, and goes on falling, also
    where all levels are beyond it. 120 samples at MPL 8, 32, 128 and 512; seeds 0 to `sets` − 1.
    """
    mpls, truth = np.array([8.0, 32, 128, 512]), {"numProcs": 0.7, "PK": -1.0}
    hits, lowest, thrashed = np.zeros((2, 2)), 0, 0
    for seed in range(sets):
        rng = np.random.default_rng(seed)
        x = pd.DataFrame({"numProcs": rng.choice([1.0, 2.0], 120), "PK": rng.integers(0, 2, 120)})
        mean = 3.3 + sum(x[name].to_numpy() * beta for name, beta in truth.items())
        points = np.exp(mean + 1.5 * rng.standard_normal(120))[:, np.newaxis]
        held = 1 + 0.01 * np.log(mpls)
        tps = 1000 * np.where(mpls <= points, held, 0.5 * (mpls / points) ** -0.3)
        table = x.join(examples.bounds(examples.equation_1(tps), mpls))
        pd.testing.assert_frame_equal(table, x.join(censored.seen(points[:, 0], mpls)))
        old = table.assign(low=table["low"].where(table["low"] > 0, table["TP"]))
        lowest += (table["low"] == 0).sum()
        thrashed += table["thrashed"].sum()
        for place, seen in enumerate((table, old)):
            found = censored.regress(seen, [*truth], distribution="lognormal").to_frame()
            found = found.set_index("term")
            hits[place] += [
                found.loc[name, "low"] <= beta <= found.loc[name, "high"]
                for name, beta in truth.items()
            ]
    return hits / sets, lowest / thrashed


@pytest.mark.parametrize("sets", [60, pytest.param(1000, marks=FULL_SIZE)])
def test_a_point_at_the_lowest_level_is_left_censored(covers, sets):
    (ours, old), share = left_censored_coverage(sets)
    covers(dict(zip(("left-censored: numProcs", "left-censored: PK"), ours, strict=True)), sets)
    names = ("as intervals from the lowest: numProcs", "as intervals from the lowest: PK")
    why = f"{share:.0%} of the points are at the lowest level: it is to fail"
    covers(dict(zip(names, old, strict=True)), sets, 0, 0.92, why)


@pytest.mark.parametrize("distribution", ["weibull", "lognormal", "loglogistic", "gaussian"])
def test_regression_is_that_of_survreg(samples, golden, distribution):
    fit = censored.regress(samples, ON, distribution=distribution)
    want = golden["aft"][distribution]
    assert_allclose(fit.parameters, want["coefficients"] + want["log_sigma"], rtol=1e-6)
    assert_allclose(se(fit), want["se"], rtol=1e-6)
    assert_allclose([fit.loglik, fit.aic], want["loglik"] + want["aic"], rtol=1e-9)


@pytest.mark.parametrize(
    ("distribution", "fitter", "location"),
    [
        ("weibull", lifelines.WeibullAFTFitter, "lambda_"),
        ("lognormal", lifelines.LogNormalAFTFitter, "mu_"),
        ("loglogistic", lifelines.LogLogisticAFTFitter, "alpha_"),
    ],
)
def test_regression_is_that_of_lifelines(samples, distribution, fitter, location):
    fit = censored.regress(samples, ON, distribution=distribution)
    table = samples[[*ON, "low", "high"]].assign(
        low=np.maximum(samples["low"].to_numpy(dtype=float), 1e-9)
    )
    other = fitter().fit_interval_censoring(table, "low", "high", formula="numProcs + PK + ATPT")
    names = ["Intercept", *ON]
    assert_allclose(fit.parameters[:-1], other.params_[location][names], rtol=2e-3, atol=1e-4)
    assert fit.loglik >= other.log_likelihood_ - 1e-6  # ours is the maximum


def test_narrow_intervals_give_least_squares():
    rng = np.random.default_rng(4)
    x = design(80, 4)
    y = 500 + 20 * x["numProcs"] + 30 * x["PK"] + 40 * rng.standard_normal(80)
    fit = censored.regress(
        x.assign(low=y - 1e-3, high=y + 1e-3), ["numProcs", "PK"], distribution="gaussian"
    )
    matrix = np.column_stack([np.ones(80), x["numProcs"], x["PK"]])
    best, squares, *_ = np.linalg.lstsq(matrix, y, rcond=None)
    assert_allclose(fit.parameters[:-1], best, rtol=1e-5)
    assert_allclose(fit.sigma, np.sqrt(squares[0] / 80), rtol=1e-5)
    assert any("every sample thrashed" in note for note in fit.notes)


def test_clusters_as_in_r(samples, golden):
    for errors in ("sandwich", "jackknife"):
        fit = censored.regress(samples, ON, distribution="lognormal", cluster="dbms", errors=errors)
        assert_allclose(se(fit), golden[errors], rtol=1e-5)
        assert set(fit.degrees) == {5}
        assert fit.clusters == 6
        assert any("6 clusters" in note for note in fit.notes)


def test_degrees_of_freedom_by_hand():
    """Six clusters; one column varies within them, two between them only."""
    codes = np.repeat(np.arange(6), 4)
    within = np.tile([0.0, 1.0], 12)
    between = np.array([1.0, 1, 2, 2, 4, 4])[codes], np.array([0.0, 1, 0, 1, 0, 1])[codes]
    matrix = np.column_stack([np.ones(24), within, *between])
    assert _clusters.degrees(matrix, codes).tolist() == [3, 5, 3, 3]
    assert _clusters.degrees(matrix[:, :3], codes).tolist() == [4, 5, 4]
    # As many coefficients as clusters: nothing is left.
    few = codes < 3
    assert np.isnan(_clusters.degrees(matrix[few], codes[few])[[0, 2, 3]]).all()
    assert _clusters.degrees(matrix[few], codes[few])[1] == 2


def test_noise_between_few_runs_is_shown_no_more_often_than_promised():
    """Two processors, with and without keys: four runs, each with noise that is all its own."""
    rng = np.random.default_rng(9)
    sets, wrong, as_if = 400, 0, 0
    codes = np.repeat(np.arange(4), 4)
    table = pd.DataFrame({"numProcs": 1 + codes // 2, "PK": codes % 2, "run": codes})
    options = {"distribution": "lognormal", "cluster": "run"}
    for _ in range(sets):
        y = np.exp(6 + 0.5 * rng.standard_normal(4)[codes] + 0.1 * rng.standard_normal(16))
        seen = table.assign(low=0.99 * y, high=1.01 * y)
        fit = censored.regress(seen, ["numProcs", "PK"], **options)
        row = fit.to_frame().set_index("term").loc["PK"]
        assert fit.degrees.tolist() == [1, 1, 1]
        wrong += row["p"] < 0.05
        as_if += 2 * stats.t.sf(abs(row["estimate"] / row["se"]), 3) < 0.05
    # Cauchy's distribution over √3, by t with 1 and with 3 degrees of freedom: 2.9 and 11.4 %.
    for found, rate in ((wrong, 0.0288), (as_if, 0.1143)):
        assert abs(found / sets - rate) <= 3 * np.sqrt(rate * (1 - rate) / sets)


def test_a_spline_and_its_test_as_in_r(samples, golden):
    fit = censored.regress(samples, ON, distribution="weibull", nonlinear={"ATPT": "spline"})
    want = golden["spline"]
    assert_allclose(fit.design.terms[2].knots, want["knots"], rtol=1e-12)
    assert_allclose(fit.parameters[:-1], want["coefficients"], rtol=1e-6)
    test = fit.nonlinearity().iloc[0]
    assert_allclose([test["statistic"], test["p"]], want["wald"] + want["p"], rtol=1e-5)


def test_a_bend_by_clusters_is_hotellings():
    """The statistic is T² of the jackknife's covariance, and at most G - 1 columns have one."""
    table = lognormal(400, 8).assign(four=np.arange(400) % 4, two=np.arange(400) % 2)
    options = {"distribution": "lognormal", "nonlinear": {"ATPT": "spline"}}
    fit = censored.regress(table, ON, cluster="four", **options)
    test = fit.nonlinearity().iloc[0]
    b, v = fit.parameters[4:6], fit.covariance[4:6, 4:6]
    t2 = b @ np.linalg.inv(v) @ b
    assert fit.design.names[4:] == ("ATPT'", "ATPT''")
    assert_allclose(test["statistic"], t2 * (4 - 2) / (3 * 2))
    assert_allclose(test["p"], stats.f.sf(test["statistic"], 2, 2))
    few = censored.regress(table, ON, cluster="two", **options)
    with pytest.raises(SampleError, match="2 clusters cannot test the 2 bent columns of `ATPT`"):
        few.nonlinearity()
    bent = {"distribution": "lognormal", "nonlinear": {"ATPT": "quadratic"}}
    one = censored.regress(table, ON, cluster="two", **bent)
    place = one.design.names.index("ATPT²")
    assert_allclose(one.nonlinearity()["p"].item(), one.to_frame()["p"][place])  # t² is F


def test_clusters_that_say_nothing_of_a_bend_do_not_test_it(samples):
    """Two clusters that are copies: three in number, two in what they tell."""
    half = samples[samples["dbms"].isin(["a", "b", "c"])]
    table = pd.concat([half, half.assign(dbms=half["dbms"] + "2")], ignore_index=True)
    fit = censored.regress(
        table, ON, distribution="weibull", nonlinear={"ATPT": "spline"}, knots=5,
        cluster="dbms", errors="sandwich",
    )  # fmt: skip
    with pytest.raises(SampleError, match="have no covariance that a test could use"):
        fit.nonlinearity()


def test_a_bend_is_found_and_a_line_is_not_bent():
    x = design(400, 8)
    rng = np.random.default_rng(9)
    y = 5.5 + 0.02 * (x["numProcs"] - 4) ** 2 + 0.3 * rng.standard_normal(400)
    bent = x.join(censored.seen(np.exp(y.to_numpy()), MPLS))
    found = censored.regress(bent, ["numProcs", "PK"], nonlinear={"numProcs": "quadratic"})
    assert found.nonlinearity()["p"].item() < 1e-4
    assert found.design.names == ("intercept", "numProcs", "numProcs²", "PK")
    straight = censored.regress(lognormal(400, 8), ON, nonlinear={"numProcs": "quadratic"})
    assert straight.nonlinearity()["p"].item() > 0.05
    curve = found.effect("numProcs", [1, 2, 4, 8], reference=4)
    assert_allclose(curve["change"], [0.18, 0.08, 0, 0.32], atol=0.08)
    assert curve.loc[2, ["change", "low", "high"]].tolist() == [0, 0, 0]


def test_the_aic_chooses_and_says_so(samples):
    fit = censored.regress(samples, ON)
    assert fit.choices["aic"].is_monotonic_increasing
    assert fit.distribution == fit.choices["distribution"].iloc[0] == "lognormal"
    assert "AIC chose lognormal" in fit.notes[0]
    assert "AIC chose lognormal" in str(fit)


def test_scales_of_a_coefficient(samples):
    fit = censored.regress(samples, ON, distribution="loglogistic")
    table = fit.to_frame().set_index("term")
    row, sd = table.loc["PK"], samples["PK"].std()
    assert_allclose(row["factor"], np.exp(row["estimate"]))
    assert_allclose(row["per_sd"], row["estimate"] * sd)
    explained = (fit.design.matrix @ fit.parameters[:-1]).var(ddof=1)
    noise = fit.sigma**2 * np.pi**2 / 3
    assert_allclose(row["standardised"], row["per_sd"] / np.sqrt(explained + noise))
    assert_allclose(fit.r2, explained / (explained + noise))


@pytest.mark.parametrize("distribution", ["weibull", "lognormal", "gaussian"])
def test_half_of_the_probability_is_below_the_median(samples, distribution):
    fit = censored.regress(samples, ON, distribution=distribution)
    who = samples.head(3)
    median = fit.median(who)
    assert (median["low"] < median["median"]).all()
    assert (median["median"] < median["high"]).all()
    centre = fit.design.at(who) @ fit.parameters[:-1]
    y = median["median"] if distribution == "gaussian" else np.log(median["median"])
    z = (y - centre) / fit.sigma
    half = np.exp(-np.exp(z)) if distribution == "weibull" else 0.5 + z
    assert_allclose(half, 0.5, atol=1e-12)


def test_texts_become_fixed_effects(samples):
    fit = censored.regress(samples, [*ON, "dbms"], distribution="lognormal")
    assert [name for name in fit.design.names if "dbms" in name] == [
        f"dbms[{name}]" for name in "bcdef"
    ]


def test_naive_is_that_of_lm(samples, golden):
    want = golden["naive"]
    fit = censored.naive(samples, ON, logarithm=True)
    table = fit.to_frame()
    assert_allclose(fit.parameters, want["coefficients"], rtol=1e-9)
    assert_allclose(
        table[["se", "low", "high"]].to_numpy().T, [want["se"], want["low"], want["high"]]
    )
    clustered = censored.naive(samples, ON, logarithm=True, cluster="dbms")
    assert_allclose(se(clustered), want["cluster_se"], rtol=1e-9)


def test_compare_is_on_one_scale(samples):
    for scale, distribution in (("log", "lognormal"), ("mpl", "gaussian")):
        table = censored.compare(samples, ON, scale=scale)
        plain = censored.naive(samples, ON, logarithm=scale == "log").to_frame()
        full = censored.regress(samples, ON, distribution=distribution).to_frame()
        assert table["term"].tolist() == ["intercept", *ON]
        assert_allclose(table["naive"], plain["estimate"])
        assert_allclose(table["censored_low"], full["low"])
        assert_allclose(table["ratio"], plain["estimate"] / full["estimate"])
        assert set(table["naive_n"]) == {218}
        assert set(table["censored_n"]) == {240}


TRUTH = {"intercept": 6.4, "numProcs": 0.05, "PK": 0.25, "ATPT": -0.01}


TRUTH_MPL = {"intercept": 700, "numProcs": 25, "PK": 150, "ATPT": -5}


def check_bias(covers, distribution, draws, on_mpl=False):
    table = censored.bias(
        design(300, 1),
        ON,
        truth=TRUTH_MPL if on_mpl else TRUTH,
        sigma=400.0 if on_mpl else 0.5,
        distribution=distribution,
        mpls=MPLS,
        draws=draws,
        seed=1,
    ).set_index("term")
    assert (table["draws"] == draws).all()
    for which, of, *bounds in (
        ("censored", table),
        ("naive", table.loc[ON], 0, 0.9, "those with the largest TP are left out: it is to fail"),
    ):
        shares = of[f"{which}_coverage"].items()
        covers({f"{which}, {distribution}: {term}": x for term, x in shares}, draws, *bounds)
    far = table["censored_bias"].abs() / table["censored_error"]
    assert (far < 4).all(), table
    effects = table.loc[ON]
    assert (effects["naive_mean"] / effects["truth"] < 0.85).all(), table  # shrunk


def test_the_naive_regression_is_biased_and_the_censored_is_not(covers):
    check_bias(covers, "lognormal", 100)


@FULL_SIZE
@pytest.mark.parametrize("distribution", ["weibull", "lognormal", "loglogistic", "gaussian"])
def test_coverage_of_the_regression_at_full_size(covers, distribution):
    check_bias(covers, distribution, 1000, on_mpl=distribution == "gaussian")


def predictions_covered(sets):
    """Coverage of medians of two batchsets, and of a curve between two values (Weibull)."""
    asked = pd.DataFrame({"numProcs": [1.0, 8.0], "PK": [0, 1], "ATPT": [15.0, 30.0]})

    def line(x):
        return (6.4 + 0.05 * x["numProcs"] + 0.25 * x["PK"] - 0.01 * x["ATPT"]).to_numpy()

    medians, hits = np.exp(line(asked) + 0.5 * np.log(np.log(2))), np.zeros(3)
    for seed in range(0, 2 * sets, 2):
        x = design(200, seed)
        error = np.log(np.random.default_rng(seed + 1).exponential(size=200))
        table = x.join(censored.seen(np.exp(line(x) + 0.5 * error), MPLS))
        fit = censored.regress(table, ON, distribution="weibull")
        found, curve = fit.median(asked), fit.effect("numProcs", [8], reference=1)
        hits[:2] += found["low"].le(medians) & found["high"].ge(medians)
        hits[2] += curve["low"].item() <= 7 * 0.05 <= curve["high"].item()
    return hits / sets


@pytest.mark.parametrize("sets", [40, pytest.param(1000, marks=FULL_SIZE)])
def test_predictions_cover(covers, sets):
    places = ("median, numProcs 1", "median, numProcs 8", "curve, numProcs 1 to 8")
    found = zip(places, predictions_covered(sets), strict=True)
    covers({f"censored, weibull: {of}": share for of, share in found}, sets)


def test_bias_takes_the_estimate_for_truth_unless_given_one(samples):
    table = censored.bias(samples, ON, draws=20)
    fit = censored.regress(samples, ON, distribution="lognormal")
    assert_allclose(table["truth"], fit.parameters[:-1])
    assert 0 < table["censored_share"].iloc[0] < 0.3


def straight_found_straight(sets, cluster, clusters=5, each=60):
    """Share of data sets in which a straight effect is not found to bend."""
    rng = np.random.default_rng(9)
    codes, straight = np.repeat(np.arange(clusters), each), 0
    for _ in range(sets):
        procs = rng.choice([1.0, 2.0, 4.0, 8.0], codes.size)
        effect = 0.05 + cluster * 0.03 * rng.standard_normal(clusters)[codes]
        points = np.exp(6.2 + effect * procs + 0.5 * rng.standard_normal(codes.size))
        table = censored.seen(points, MPLS).assign(numProcs=procs, dbms=codes)
        fit = censored.regress(
            table,
            ["numProcs"],
            distribution="lognormal",
            nonlinear={"numProcs": "quadratic"},
            cluster="dbms" if cluster else None,
        )
        straight += fit.nonlinearity()["p"].item() >= 0.05
    return straight / sets


@pytest.mark.parametrize("sets", [50, pytest.param(1000, marks=FULL_SIZE)])
def test_a_straight_effect_is_seldom_found_to_bend(covers, sets):
    covers({"bend: not found in what is straight": straight_found_straight(sets, False)}, sets)
    found = straight_found_straight(sets, True)
    covers({"bend: not found in what is straight, 5 clusters": found}, sets)


def clustered_coverage(sets, clusters=6, each=50):
    """Coverage of the effect of PK without and with clusters, whose effects differ by DBMS."""
    rng = np.random.default_rng(2)
    codes = np.repeat(np.arange(clusters), each)
    hits = np.zeros(3)
    for _ in range(sets):
        pk = rng.integers(0, 2, codes.size)
        effect = 0.25 + 0.15 * rng.standard_normal(clusters)[codes]
        y = 6.3 + effect * pk + 0.2 * rng.standard_normal(clusters)[codes]
        points = np.exp(y + 0.5 * rng.standard_normal(codes.size))
        table = censored.seen(points, MPLS).assign(PK=pk, dbms=codes)
        for place, options in enumerate(
            ({}, {"cluster": "dbms", "errors": "sandwich"}, {"cluster": "dbms"})
        ):
            fit = censored.regress(table, ["PK"], distribution="lognormal", **options)
            low, high = fit.to_frame()[["low", "high"]].iloc[1]
            hits[place] += low <= 0.25 <= high
    return hits / sets


@pytest.mark.parametrize("sets", [40, pytest.param(1000, marks=FULL_SIZE)])
def test_intervals_by_cluster_cover(covers, sets):
    cover_by_cluster(covers, "censored, 6 clusters", clustered_coverage(sets), sets, 0.90)


def mended(change):
    return change(lognormal(60, 3))


BAD = {
    "one interval": (lambda t: t.assign(low=100, high=200), "nothing tells them apart"),
    "all censored": (lambda t: t.assign(high=np.inf, TP=np.inf, low=1000.0), "none of the 60"),
    "constant": (lambda t: t.assign(PK=1), "`PK` is 1 in every sample"),
    "collinear": (
        lambda t: t.assign(ATPT=2 * t["PK"] + t["numProcs"]),
        "determined by the columns",
    ),
    "too few": (lambda t: t.head(5).assign(PK=[0, 1, 0, 1, 1]), "5 samples cannot give 5 param"),
    "none": (lambda t: t.head(0), "there is no sample"),
    "missing column": (lambda t: t.drop(columns="PK"), "no column `PK`"),
    "missing value": (
        lambda t: t.assign(ATPT=t["ATPT"].where(t.index > 0)),
        "`ATPT` is missing in 1 of 60",
    ),
    "infinite value": (lambda t: t.assign(ATPT=t["ATPT"].where(t.index > 3, np.inf)), "is inf"),
    "not a number": (lambda t: t.assign(low="x"), "`low` holds `x`, which is no number"),
    "upside down": (lambda t: t.assign(high=t["low"]), "no interval of MPLs"),
    "nothing known": (lambda t: t.assign(low=0.0, high=np.inf), "says nothing"),
    "separated": (
        lambda t: t.assign(
            PK=t["thrashed"].astype(int), low=500.0, high=np.where(t["thrashed"], 600, np.inf)
        ),
        "no maximum",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_regression_says_what_is_wrong(name):
    change, message = BAD[name]
    with pytest.raises(AnalysisError) as caught:
        censored.regress(mended(change), ON)
    assert message in str(caught.value)
    assert caught.value.advice


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution": "cauchy"}, "no distribution"),
        ({"level": 1.5}, "level of confidence"),
        ({"nonlinear": {"SF": "spline"}}, "not in the regression"),
        ({"nonlinear": {"PK": "quadratic"}}, "cannot be bent"),
        ({"nonlinear": {"ATPT": "spline"}, "knots": 9}, "cannot be bent"),
        ({"cluster": "one"}, "one value"),
        ({"cluster": "two", "errors": "guess"}, "no standard errors"),
        ({"cluster": "PK"}, "one cluster left out"),
    ],
)
def test_regression_refuses_options_that_mean_nothing(options, message):
    table = lognormal(60, 3).assign(one="a", two=np.arange(60) % 2)
    with pytest.raises(SampleError, match=message):
        censored.regress(table, ON, **options)


@pytest.mark.parametrize(
    ("on", "message"), [("PK", "give a list"), ([], "give a list"), (["PK", "PK"], "give a list")]
)
def test_columns_are_a_list(on, message):
    with pytest.raises(SampleError, match=message):
        censored.regress(lognormal(60, 3), on)


def test_none_censored_is_no_error():
    table = lognormal(80, 5, centre=5.0)
    assert table["thrashed"].all()
    assert "every sample thrashed" in " ".join(censored.regress(table, ON).notes)
    with pytest.raises(SampleError, match="all of the 80 samples thrash"):
        censored.thrashes(table, ON)


def test_only_censored_samples_say_at_least():
    table = pd.DataFrame({"PK": [0, 1, 0, 1], "low": [800.0, 1000, 1000, 900], "high": np.inf})
    with pytest.raises(SampleError, match="at least MPL 800 to 1000"):
        censored.regress(table, ["PK"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truth": {"PK": 1.0}, "sigma": 1.0}, "the truth has"),
        ({"truth": TRUTH}, "sigma"),
        ({"draws": 1}, "no bias"),
        ({"mpls": [100.0]}, "two or more"),
        ({"truth": {**TRUTH, "intercept": 20.0}, "sigma": 0.1, "draws": 4}, "could be fitted"),
    ],
)
def test_bias_refuses(options, message):
    with pytest.raises(SampleError, match=message):
        censored.bias(lognormal(60, 3), ON, **options)


def test_compare_refuses_two_scales():
    with pytest.raises(SampleError, match="scale='log' with 'best'"):
        censored.compare(lognormal(60, 3), ON, scale="mpl", distribution="weibull")


def test_a_value_that_no_sample_had_has_no_prediction(samples):
    known = sorted(samples["dbms"].unique())
    median = censored.regress(samples, ["PK", "dbms"], distribution="weibull").median
    chance = censored.thrashes(samples, ["PK", "dbms"]).probability
    for predicted in (median, chance):
        alike = samples.head(2).assign(dbms=known[1])
        assert len(predicted(alike)) == 2
        said = f"`dbms` is oracle in a sample.*: name one of {known[0]}, {known[1]}"
        with pytest.raises(SampleError, match=said):
            predicted(alike.assign(dbms=["oracle", known[0]]))


def test_effects_are_of_columns_of_numbers(samples):
    fit = censored.regress(samples, ["PK", "dbms"], distribution="weibull")
    with pytest.raises(SampleError, match="is a text"):
        fit.effect("dbms")
    for asked in ({"at": ["a"]}, {"at": [1, np.nan]}, {"reference": np.inf}):
        with pytest.raises(SampleError, match=r"`PK` at .*: give a list of finite numbers"):
            fit.effect("PK", **asked)
    with pytest.raises(SampleError, match="not in this regression"):
        fit.effect("SF")
