"""Logistic regression on thrashing against theory, R (golden/censored.R), and own coverage."""

import numpy as np
import pandas as pd
import pytest
from censored_samples import ON, cover_by_cluster, lognormal, se
from conftest import FULL_SIZE
from numpy.testing import assert_allclose
from scipy import special, stats

from tidegate_analysis import censored
from tidegate_analysis.errors import SampleError

GOLDEN = "censored"


def test_logistic_is_that_of_glm(samples, golden):
    want = golden["logistic"]
    fit = censored.thrashes(samples, ON)
    assert fit.method == "ml"
    assert_allclose(fit.parameters, want["coefficients"], rtol=1e-6)
    assert_allclose(se(fit), want["se"], rtol=1e-6)
    assert_allclose([fit.loglik, fit.aic], want["loglik"] + want["aic"], rtol=1e-9)
    for errors, name in (("sandwich", "cluster_se"), ("jackknife", "jackknife_se")):
        clustered = censored.thrashes(samples, ON, cluster="dbms", errors=errors)
        assert_allclose(se(clustered), want[name], rtol=1e-6)
        assert (clustered.clusters, set(clustered.degrees)) == (6, {5})
        assert f"are a {errors} over 6 clusters" in clustered.notes[-1]
    chance = fit.probability(samples)["probability"]
    assert_allclose(chance.sum(), samples["thrashed"].sum())  # the score equation of the intercept


@pytest.mark.parametrize(
    ("name", "on"), [("firth", ["PK", "ATPT"]), ("firth_separated", ["sep", "ATPT"])]
)
def test_firth_is_the_penalised_maximum_in_r(samples, golden, name, on):
    few = samples.iloc[::3].copy()
    few["sep"] = (few["thrashed"] == 1) & (np.arange(len(few)) % 2 == 1)
    fit = censored.thrashes(few, on, method="auto" if "sep" in on else "firth")
    table, want = fit.to_frame(), golden[name]
    assert fit.method == "firth"
    assert fit.separated == (("sep",) if "sep" in on else ())
    assert_allclose(fit.parameters, want["coefficients"], rtol=1e-5)
    assert_allclose(table["low"], want["low"], rtol=1e-4)
    assert_allclose(table["high"], want["high"], rtol=1e-4)
    assert_allclose(table["p"], want["p"], rtol=1e-4)
    assert_allclose(fit.loglik, want["loglik"][0], rtol=1e-8)


@pytest.mark.parametrize("cells", [(5, 3, 2, 7), (6, 0, 3, 4), (5, 0, 0, 5)])
def test_firth_adds_a_half_to_each_cell_of_a_table(cells):
    a, b, c, d = cells
    table = pd.DataFrame(
        {
            "PK": [1] * (a + b) + [0] * (c + d),
            "thrashed": [1] * a + [0] * b + [1] * c + [0] * d,
        }
    )
    fit = censored.thrashes(table, ["PK"], method="firth")
    want = np.log((a + 0.5) * (d + 0.5) / ((b + 0.5) * (c + 0.5)))
    assert_allclose(fit.parameters[1], want, rtol=1e-7)
    low, high = fit.to_frame()[["low", "high"]].iloc[1]
    assert low < want < high
    assert np.isfinite([low, high]).all()


def logistic_coverage(sets, n, method):
    rng = np.random.default_rng(6)
    hits, chance = np.zeros(2), special.expit(0.3 + 0.8)
    for _ in range(sets):
        x = rng.standard_normal(n)
        y = rng.random(n) < special.expit(0.3 + 0.8 * x)
        fit = censored.thrashes(pd.DataFrame({"x": x, "thrashed": y}), ["x"], method=method)
        low, high = fit.to_frame()[["low", "high"]].iloc[1]
        hits[0] += low <= 0.8 <= high
        band = fit.probability(pd.DataFrame({"x": [1.0]}))
        hits[1] += band["low"].item() <= chance <= band["high"].item()
    return hits / sets


@pytest.mark.parametrize(
    ("sets", "sets_of_firth"), [(100, 25), pytest.param(1000, 4000, marks=FULL_SIZE)]
)
def test_intervals_of_log_odds_cover(covers, sets, sets_of_firth):
    odds, chance = logistic_coverage(sets, 150, "ml")
    covers({"log-odds, n = 150": odds, "probability, n = 150": chance}, sets)
    odds, _ = logistic_coverage(sets_of_firth, 30, "firth")
    high = None if sets_of_firth >= 1000 else 1
    covers({"log-odds, n = 30, Firth": odds}, sets_of_firth, high=high)


def test_separation_with_clusters_takes_samples_as_independent():
    """Without keys all thrash and with keys none, in three DBMSs: the scores all vanish."""
    table = pd.DataFrame(
        {"PK": [0, 1] * 30, "numProcs": [1, 1, 8, 8] * 15, "dbms": list("abc") * 20}
    ).assign(thrashed=lambda t: t["PK"] == 0)
    for on in (["PK"], ["PK", "numProcs"]):
        plain = censored.thrashes(table, on)
        fit = censored.thrashes(table, on, cluster="dbms")
        assert (fit.method, fit.clusters, set(fit.degrees)) == ("firth", None, {np.inf})
        assert "taken as independent, not by `dbms`" in fit.notes[-1]
        pd.testing.assert_frame_equal(fit.to_frame(), plain.to_frame())
        row = fit.to_frame().set_index("term").loc["PK"]
        assert row["odds_high"] < 0.05
        assert row["odds_low"] < row["odds"] / 10 < row["odds_high"]  # an interval of some width
        assert 0 < row["p"] < 0.001


def test_a_cluster_that_decides_alone_is_an_error():
    """In one DBMS some are other than the rest: without it, keys tell thrashing perfectly."""
    table = pd.DataFrame({"PK": [0, 1] * 30, "dbms": list("aabbcc") * 10})
    other = (table["dbms"] == "a") & (table.index < 30)
    table["thrashed"] = (table["PK"] == 0) ^ other
    assert censored.thrashes(table, ["PK"]).method == "ml"
    with pytest.raises(SampleError, match="with one cluster left out"):
        censored.thrashes(table, ["PK"], cluster="dbms")
    with pytest.raises(SampleError, match="no standard errors 'guess'"):
        censored.thrashes(table, ["PK"], errors="guess")


def clustered_logistic_coverage(sets, clusters=5, each=60):
    """Coverage of the log-odds of PK, independent and by cluster, where its effect differs.

    Samples of a cluster depend on each other through a common part of a latent normal variable, so
    that each by itself follows the logistic model exactly (a Gaussian copula).
    """
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(clusters), each)
    hits = np.zeros(3)
    for _ in range(sets):
        pk = rng.integers(0, 2, codes.size)
        common, slope = rng.standard_normal((2, clusters))
        own = rng.standard_normal(codes.size)
        latent = np.sqrt([0.1, 0.1, 0.8]) @ [common[codes], slope[codes] * (2 * pk - 1), own]
        y = stats.norm.cdf(latent) < 1 / (1 + np.exp(0.5 - pk))
        table = pd.DataFrame({"PK": pk, "thrashed": y, "dbms": codes})
        for place, options in enumerate(
            ({}, {"cluster": "dbms", "errors": "sandwich"}, {"cluster": "dbms"})
        ):
            fit = censored.thrashes(table, ["PK"], **options)
            low, high = fit.to_frame()[["low", "high"]].iloc[1]
            hits[place] += low <= 1 <= high
    return hits / sets


@pytest.mark.parametrize("sets", [60, pytest.param(1000, marks=FULL_SIZE)])
def test_intervals_of_log_odds_by_cluster_cover(covers, sets):
    cover_by_cluster(covers, "log-odds, 5 clusters", clustered_logistic_coverage(sets), sets, 0.85)


def test_separation_is_an_error_or_firth():
    table = lognormal(60, 3).assign(PK=lambda t: t["thrashed"].astype(int))
    with pytest.raises(SampleError, match="PK tell perfectly"):
        censored.thrashes(table, ON, method="ml")
    fit = censored.thrashes(table, ON)
    assert (fit.method, fit.separated) == ("firth", ("PK",))
    assert "perfect separation by PK" in fit.notes[0]
    assert np.isfinite(fit.to_frame().drop(columns="term").drop(index=0).to_numpy()).all()
