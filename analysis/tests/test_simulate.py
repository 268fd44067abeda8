"""Simulated samples have the truth that was planted."""

import numpy as np
import pytest

from tidegate_analysis import shapes
from tidegate_analysis.errors import ModelError, SampleError
from tidegate_analysis.estimate import fit
from tidegate_analysis.model import STUDIES, simulate, study
from tidegate_analysis.model.simulate import STUDY_GRID, noise_variances

REST = {
    ("SF", "ATPT"): 0.2, ("SF", "TP"): -0.1, ("ROSE", "TP"): 0.1,
    ("numProcs", "ATPT", "ROSE"): 0.2, ("SF", "ATPT", "PK"): -0.15, ("PK", "ATPT"): -0.3,
    ("PK", "TP"): 0.25,
}  # fmt: skip


def given(name: str) -> dict[tuple[str, ...], float]:
    return REST if name.startswith("initial") else {}


@pytest.mark.parametrize("name", STUDIES)
def test_a_large_sample_has_the_given_standardised_coefficients(name: str) -> None:
    model = study(name)
    samples = simulate(model, 200_000, seed=1, coefficients=given(name), units={})
    found = fit(model, samples)
    truth = {p.edge: p.coefficient for p in model.paths} | given(name)
    # The standard error of a standardised coefficient is below 1/sqrt(n) = 0.0022.
    for edge, (value, _) in found.estimates().items():
        assert value == pytest.approx(truth[edge], abs=0.009), edge
    for variable in model.endogenous:
        assert samples[variable].var() == pytest.approx(1.0, abs=0.02)


def test_noise_is_what_the_equations_leave() -> None:
    model = study("refined, update")
    noise = noise_variances(model, model.coefficients)
    assert noise["ATPT"] == pytest.approx(1 - 0.34**2)
    explained = 0.37**2 + 0.13**2 - 2 * 0.37 * 0.13 * 0.34
    assert noise["TP"] == pytest.approx(1 - explained)


def test_the_published_coefficients_of_reads_explain_more_than_the_published_r2() -> None:
    """Section 9.3.2 says 14 % of TP and 29 % of ATPT; the paths of Fig. 6(a) give 39 % and 29 %."""
    model = study("refined, read")
    noise = noise_variances(model, model.coefficients)
    assert round(1 - noise["ATPT"], 2) == 0.29
    assert round(1 - noise["TP"], 2) == 0.39


def test_samples_have_the_shape_and_the_same_seed_gives_the_same() -> None:
    model = study("refined, read")
    a, b = (simulate(model, 50, seed=7, grid=STUDY_GRID) for _ in range(2))
    assert a.equals(b)
    assert not a.equals(simulate(model, 50, seed=8, grid=STUDY_GRID))
    shapes.check(a, shapes.SAMPLES, "simulated")
    assert a["dbms"].nunique() == 5
    assert set(simulate(study("refined, update"), 50, seed=1)["SF"]) == {0.25, 0.5, 0.75, 1}


def test_the_grid_censors_as_an_experiment_does() -> None:
    model = study("refined, read")
    units = {"ATPT": (3000.0, 500.0), "TP": (550.0, 400.0)}
    latent = simulate(model, 2000, seed=3, units=units)["TP"].to_numpy()
    seen = simulate(model, 2000, seed=3, units=units, grid=STUDY_GRID)
    held, fell = seen["low"].to_numpy(), seen["high"].to_numpy()
    assert ((held <= latent) | (latent < 100)).all()
    assert (latent < fell).all()
    assert (seen["thrashed"] == (latent < 1000)).all()
    assert np.isinf(seen.loc[~seen["thrashed"], ["TP", "high"]]).all(axis=None)
    thrashed = seen[seen["thrashed"]]
    assert (thrashed["TP"] == np.maximum(thrashed["low"], 100)).all()
    assert (thrashed["high"] - thrashed["low"] == 100).all()
    assert {0.0, 1000.0} <= set(held)


def test_dbms_share_is_the_intraclass_correlation_of_errors() -> None:
    model = study("refined, update")
    samples = simulate(model, 20_000, seed=5, dbms=1000, dbms_share=0.3, units={})
    found = fit(model, samples, effect="random")
    assert found.regressions["ATPT"].explained.group_share == pytest.approx(0.3, abs=0.02)
    assert samples["ATPT"].var() == pytest.approx(1.0, abs=0.05)
    slopes = simulate(model, 20_000, seed=6, dbms=1000, dbms_slopes=0.2, units={})
    assert slopes["TP"].var() == pytest.approx(1.0, abs=0.05)
    each = slopes.groupby("dbms")[["numProcs", "ATPT"]].cov().iloc[::2, 1]
    by_dbms = each.to_numpy() / slopes["numProcs"].var() * slopes["numProcs"].std()
    # 20 samples each: the spread of estimated slopes is that of the truth and sampling.
    assert np.mean(by_dbms) == pytest.approx(-0.34, abs=0.03)
    assert np.std(by_dbms) > 0.25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coefficients": {("PK", "ATPT"): -0.99}}, "the coefficients explain 1.10 of `ATPT`"),
        ({"coefficients": {("TP", "PK"): 0.1}}, "has no path TP -> PK"),
        ({"design": {"PK": [1]}}, "`PK` has one level only"),
        ({"grid": [100]}, "grid of MPLs does not rise"),
        ({"grid": [200, 100]}, "grid of MPLs does not rise"),
        ({"n": 0}, "0 samples asked for"),
        ({"dbms": 0}, "no DBMS"),
        ({"dbms_share": 1.5}, "dbms_share is 1.5"),
    ],
)
def test_what_cannot_be_simulated_is_refused(options: dict[str, object], message: str) -> None:
    arguments = {"n": 10, "seed": 1, **options}
    with pytest.raises((ModelError, SampleError), match=message):
        simulate(study("refined, read"), **arguments)  # type: ignore[arg-type]


def test_coefficients_that_are_nowhere_are_asked_for() -> None:
    with pytest.raises(ModelError, match="no coefficient for SF -> ATPT, SF -> TP, ROSE -> TP, n"):
        simulate(study("initial, read"), 10, seed=1)
