"""Survival curves of thrashing points against R, lifelines, and their own coverage."""

import lifelines
import numpy as np
import pandas as pd
import pytest
from censored_samples import MPLS, lognormal
from conftest import FULL_SIZE
from numpy.testing import assert_allclose
from scipy import optimize, stats

from tidegate_analysis import censored
from tidegate_analysis.errors import ShapeError

GOLDEN = "censored"


def test_kaplan_meier_is_that_of_survfit(samples, golden):
    whole = censored.kaplan_meier(samples)
    parts = censored.kaplan_meier(samples, by="PK")
    curves = {"all": whole, "PK=0": parts[parts["PK"] == 0], "PK=1": parts[parts["PK"] == 1]}
    for name, curve in curves.items():
        want = pd.DataFrame(golden["kaplan_meier"][name])
        found = curve[curve["mpl"] > 0]
        assert set(found["method"]) == {"kaplan-meier"}
        assert found["mpl"].tolist() == want["mpl"].tolist()
        assert_allclose(found["not_thrashing"], want["share"], rtol=1e-10)
        assert_allclose(found["low"], want["low"], rtol=1e-6)
        assert_allclose(found["high"], want["high"], rtol=1e-6)
        assert found["at_risk"].tolist() == want["at_risk"].tolist()


def overlapping(golden):
    pair = golden["turnbull"]
    return pd.DataFrame(
        {
            "low": np.array(pair["low"], dtype=float),
            "high": [float(end) if end else np.inf for end in pair["high"]],
        }
    )


def test_turnbull_is_a_maximum_of_the_likelihood(golden):
    table = overlapping(golden)
    curve = censored.kaplan_meier(table)
    assert set(curve["method"]) == {"turnbull"}
    # Kuhn and Tucker: on each cell between two MPLs the gradient is n where there is mass, and
    # nowhere above n (Gentleman and Geyer 1994).
    edges = np.append(curve["mpl"].to_numpy(), np.inf)
    mass = -np.diff(np.append(curve["not_thrashing"], 0))
    inside = (table["low"].to_numpy()[:, None] <= edges[:-1]) & (
        edges[1:] <= table["high"].to_numpy()[:, None]
    )
    gradient = (inside / (inside @ mass)[:, None]).sum(axis=0)
    assert (gradient <= 14 + 1e-3).all()
    assert_allclose(gradient[mass > 1e-4], 14, atol=1e-3)


def test_turnbull_is_that_of_survfit_and_lifelines(golden):
    table = overlapping(golden)
    curve = censored.kaplan_meier(table).set_index("mpl")["not_thrashing"]
    fit = golden["turnbull"]
    for mpl in (100, 200, 250, 300, 400, 500, 600):
        at = max(place for place, time in enumerate(fit["fit_time"]) if time <= mpl)
        assert_allclose(curve[mpl], fit["fit_surv"][at], atol=5e-4)  # R stops early
    half_open = lifelines.KaplanMeierFitter().fit_interval_censoring(
        table["low"], table["high"] - 1e-3, tol=1e-10
    )
    other = half_open.survival_function_["NPMLE_estimate_upper"]
    for mpl in (100, 200, 300, 400, 600):
        assert_allclose(curve[mpl], other[mpl], atol=2e-3)


def test_the_band_of_turnbull_is_the_binomial_s_where_no_interval_lies_across():
    """All know whether they fell before 200 or after: its share is a binomial's alone."""
    table = pd.DataFrame(
        {"low": [0, 0, 100, 200, 200, 300] * 5, "high": [200, 100, 200, 400, 300, 400] * 5}
    )
    curve = censored.kaplan_meier(table).set_index("mpl")
    assert set(curve["method"]) == {"turnbull"}
    low, high = curve.loc[200, ["low", "high"]].astype(float)

    def fall(share):
        return 2 * (30 * np.log(0.5) - 15 * np.log(share) - 15 * np.log(1 - share))

    assert curve.loc[200, "not_thrashing"] == pytest.approx(0.5)
    assert low < 0.5 < high
    assert_allclose([fall(low), fall(high)], stats.chi2.ppf(0.95, 1), rtol=1e-4)


def test_the_band_of_turnbull_is_where_the_likelihood_has_fallen(golden):
    """Beside a general optimiser that holds the share and moves the masses."""
    table = overlapping(golden)
    curve = censored.kaplan_meier(table)
    edges = np.append(curve["mpl"].to_numpy(), np.inf)
    inside = (table["low"].to_numpy()[:, None] <= edges[:-1]) & (
        edges[1:] <= table["high"].to_numpy()[:, None]
    )
    top = np.log(inside @ -np.diff(np.append(curve["not_thrashing"], 0))).sum()
    found = curve.set_index("mpl").loc[[200.0, 300.0, 400.0]]
    for mpl, row in found.iterrows():
        late = edges[:-1] >= mpl
        for end in (row["low"], row["high"]):
            held = optimize.minimize(
                lambda mass: -np.log(np.maximum(inside @ mass, 1e-12)).sum(),
                np.where(late, end / late.sum(), (1 - end) / (~late).sum()),
                bounds=[(0, 1)] * late.size,
                constraints=[
                    {"type": "eq", "fun": lambda mass: mass.sum() - 1},
                    {"type": "eq", "fun": lambda mass, late=late, end=end: mass[late].sum() - end},
                ],
                options={"ftol": 1e-12, "maxiter": 500},
            )
            assert_allclose(2 * (top + held.fun), stats.chi2.ppf(0.95, 1), rtol=2e-3)


def survival_coverage(sets, n, mpls_of):
    rng = np.random.default_rng(12)
    hits, truth = np.zeros(3), np.exp(-np.array([200, 400, 800]) / 600)
    for _ in range(sets):
        points = rng.exponential(600, n)
        table = mpls_of(rng, points)
        curve = censored.kaplan_meier(table).set_index("mpl")
        found = curve.reindex([200.0, 400.0, 800.0], method="ffill")  # a step function
        hits += (found["low"] <= truth) & (truth <= found["high"])
    return hits / sets


def same_mpls(_rng, points):
    return censored.seen(points, MPLS)


def two_grids(_rng, points):
    """Half of the batchsets measured at every MPL, half at every other: intervals overlap."""
    half = len(points) // 2
    parts = [censored.seen(points[:half], MPLS), censored.seen(points[half:], MPLS[1::2])]
    return pd.concat(parts, ignore_index=True)


@pytest.mark.parametrize(("n", "mpls_of"), [(60, same_mpls), (80, two_grids)])
@pytest.mark.parametrize("sets", [50, pytest.param(4000, marks=FULL_SIZE)])
def test_bands_of_survival_cover(covers, n, mpls_of, sets):
    found = survival_coverage(sets, n, mpls_of)
    method = "Kaplan–Meier" if mpls_of is same_mpls else "Turnbull"
    places = (f"{method} at MPL {mpl}" for mpl in (200, 400, 800))
    covers(dict(zip(places, found, strict=True)), sets)


def test_bands_where_none_and_where_all_have_thrashed():
    table = pd.DataFrame({"low": [100.0] * 6, "high": [200.0] * 6})
    curve = censored.kaplan_meier(table).set_index("mpl")
    assert curve.loc[200, "not_thrashing"] == 0
    assert_allclose(curve.loc[200, ["low", "high"]].astype(float), [0, 1 - 0.025 ** (1 / 6)])
    held = censored.kaplan_meier(table.assign(high=np.inf)).set_index("mpl")
    assert_allclose(held.loc[100, ["low", "high"]].astype(float), [0.025 ** (1 / 6), 1])


def test_a_curve_needs_its_columns():
    with pytest.raises(ShapeError, match="no column `system`"):
        censored.kaplan_meier(lognormal(20, 3), by="system")
