"""Refinement, and the wall between exploratory and confirmatory samples."""

from pathlib import Path as File

import numpy as np
import pandas as pd
import pytest
from conftest import golden_samples, read_golden

from tidegate_analysis import shapes
from tidegate_analysis.errors import ModelError, SampleError, ShapeError
from tidegate_analysis.estimate import (
    Confirmatory,
    Exploratory,
    compare,
    confirm,
    fingerprint,
    fit,
    refine,
    regress,
    split,
)
from tidegate_analysis.model import read, simulate, study, write

NOTHING = {
    ("SF", "ATPT"): 0.0, ("SF", "TP"): 0.0, ("ROSE", "TP"): 0.0,
    ("numProcs", "ATPT", "ROSE"): 0.0, ("SF", "ATPT", "PK"): 0.0,
}  # fmt: skip
STUDYS = {
    ("numProcs", "ATPT"): -0.34, ("PK", "ATPT"): -0.42, ("numProcs", "TP"): 0.34,
    ("PK", "TP"): 0.26, ("ATPT", "TP"): -0.28,
}  # fmt: skip
INITIAL = study("initial, read")


def samples(n: int = 400, seed: int = 1, **more: float) -> pd.DataFrame:
    return simulate(INITIAL, n, seed=seed, coefficients={**NOTHING, **STUDYS}, **more)


@pytest.mark.parametrize("rule", ["all at once", "one at a time"])
def test_the_initial_model_refines_to_the_studys_refined_one(rule: str) -> None:
    """Truth is Fig. 6(a); five null hypotheses at 5 % keep one by chance in 23 % of data sets."""
    refined = {p.edge for p in study("refined, read").paths}
    exact, kept_all = [], []
    for seed in range(16):
        found = refine(INITIAL, Exploratory(samples(seed=seed)), rule=rule)
        edges = {p.edge for p in found.model.paths}
        kept_all.append(refined <= edges)
        exact.append(refined == edges and not found.model.moderators)
        assert {p.edge for p in INITIAL.paths} - edges == {e for e in found.edges if len(e) == 2}
    assert np.mean(kept_all) > 0.9
    assert 0.5 < np.mean(exact) < 0.98


def test_a_moderated_path_stays_while_its_product_does() -> None:
    strong = {**NOTHING, **STUDYS, ("numProcs", "ATPT"): 0.0, ("numProcs", "ATPT", "ROSE"): 0.4}
    data = simulate(INITIAL, 400, seed=2, coefficients=strong)
    found = refine(INITIAL, Exploratory(data))
    assert [m.edge for m in found.model.moderators] == [("numProcs", "ATPT", "ROSE")]
    assert ("numProcs", "ATPT") in {p.edge for p in found.model.paths}
    assert found.model.formula("ATPT") == "ATPT ~ numProcs + PK + ROSE + numProcs:ROSE"


def test_one_at_a_time_keeps_what_all_at_once_loses() -> None:
    """Two measures of one cause: each hides the other."""
    from tidegate_analysis.model import Model, Path, Variable

    draw = np.random.default_rng(3)
    a = draw.standard_normal(200)
    data = pd.DataFrame({"a": a, "b": a + 0.05 * draw.standard_normal(200)})
    data["c"] = draw.standard_normal(200)
    data["y"] = 0.3 * a + 0.5 * data["c"] + draw.standard_normal(200)
    model = Model(
        "two measures",
        (*(Variable(n, n, "exogenous") for n in "abc"), Variable("y", "y", "outcome")),
        tuple(Path(n, "y", "+") for n in "abc"),
    )
    at_once = refine(model, Exploratory(data))
    in_turn = refine(model, Exploratory(data), rule="one at a time")
    assert {p.source for p in at_once.model.paths} == {"c"}
    assert len(in_turn.model.paths) == 2
    assert 'class="dropped"' in at_once.diagram()
    assert 'class="dropped"' not in at_once.refined.diagram()
    lost = at_once.comparison().set_index("outcome")
    assert lost.loc["y", "p_F"] < 0.01  # and the comparison says that it was a mistake


def test_the_comparison_is_rs_anova() -> None:
    golden = read_golden("estimate")["nested"]
    data = golden_samples("estimate")
    gone = [("numProcs", "ATPT", "ROSE"), ("SF", "ATPT"), ("SF", "TP"), ("ROSE", "TP")]
    less = INITIAL.without(gone)
    table = compare(fit(INITIAL, data), fit(less, data)).set_index("outcome")
    row = table.loc["ATPT"]
    assert row["F"] == pytest.approx(golden["F"], rel=1e-8)
    assert row["p_F"] == pytest.approx(golden["p"], rel=1e-8)
    assert row["LR"] == pytest.approx(golden["LR"], rel=1e-8)
    assert (row["df1"], row["df2"]) == (4, 173)
    np.testing.assert_allclose([row["aic_initial"], row["aic_refined"]], golden["aic"])
    np.testing.assert_allclose([row["r2_initial"], row["r2_refined"]], golden["r2"])
    whole = table.loc["model"]
    assert whole["LR"] == pytest.approx(table.loc[["ATPT", "TP"], "LR"].sum())
    assert whole["df1"] == 6
    with pytest.raises(ModelError, match="other terms"):
        compare(fit(less, data), fit(INITIAL, data))
    with pytest.raises(ModelError, match="different samples"):
        compare(fit(INITIAL, data), fit(less, data.head(100)))


def test_an_equation_that_loses_all_its_terms_is_compared_with_its_mean() -> None:
    model = study("refined, read")
    data = samples()
    gone = model.without([("numProcs", "ATPT"), ("PK", "ATPT")])
    row = compare(fit(model, data), fit(gone, data)).set_index("outcome").loc["ATPT"]
    expected = regress(data, "ATPT", ["numProcs", "PK"])
    assert row["r2_refined"] == pytest.approx(0)
    r2 = expected.explained.r_squared
    assert row["F"] == pytest.approx(r2 / 2 / ((1 - r2) / 397))


def test_random_effects_compare_by_likelihood() -> None:
    found = refine(INITIAL, Exploratory(samples(dbms_share=0.3)), effect="random")
    table = found.comparison().set_index("outcome")
    assert table["F"].isna().all()
    assert (table["LR"].dropna() >= 0).all()


class TestTheWall:
    def test_each_side_takes_its_own_kind_only(self) -> None:
        data = samples()
        for wrong in (data, Confirmatory(data)):
            with pytest.raises(SampleError, match="refined with exploratory samples only"):
                refine(INITIAL, wrong)  # type: ignore[arg-type]
        for wrong in (data, Exploratory(data)):
            with pytest.raises(SampleError, match="needs samples marked as such"):
                confirm(INITIAL, wrong)  # type: ignore[arg-type]

    def test_the_samples_that_refined_a_model_cannot_confirm_it(self, tmp_path: File) -> None:
        data = samples()
        model = refine(INITIAL, Exploratory(data)).model
        write(model, tmp_path / "refined.toml")
        # Neither in another order, nor renumbered, nor a few of them, nor after a file.
        disguised = data.sample(frac=1, random_state=1).assign(run=900, experiment=7)
        for again in (model, read(tmp_path / "refined.toml")):
            for seen in (data, disguised, pd.concat([samples(seed=2), disguised.head(1)])):
                with pytest.raises(SampleError, match="of these samples were used to refine"):
                    confirm(again, Confirmatory(seen, "elsewhere"))
                with pytest.raises(SampleError, match="were used to refine"):
                    fit(again, Confirmatory(seen, "elsewhere"))
        # A plain look is allowed, and says what it is.
        plain = fit(model, data)
        assert "400 of these samples were used to refine model" in plain.cautions[0]
        assert "Take care: 400 of these samples" in str(plain)
        assert not fit(model, samples(seed=2).assign(experiment=2)).cautions
        assert not fit(INITIAL, data).cautions

    def test_nor_when_they_come_back_from_a_file(self, tmp_path: File) -> None:
        """By their numbers alone, every one of them: without those of experiments and runs."""
        data = samples()
        model = refine(INITIAL, Exploratory(data)).model
        data.drop(columns=["experiment", "run"]).to_csv(tmp_path / "again.csv", index=False)
        again = shapes.read(tmp_path / "again.csv")
        with pytest.raises(SampleError, match=f"{len(data)} of these samples were used to refine"):
            confirm(model, Confirmatory(again))

    def test_other_samples_of_the_same_runs_cannot_either(self) -> None:
        model = refine(INITIAL, Exploratory(samples(), "a.db")).model
        other = samples(seed=2)
        with pytest.raises(SampleError, match=r"run 1 of experiment 1 of a.db was used .*15 such"):
            confirm(model, Confirmatory(other, "a.db"))
        found = confirm(model, Confirmatory(other, "b.db"))
        assert found.paths()["supported"].dtype == "boolean"

    @pytest.mark.parametrize("column", ["experiment", "run"])
    @pytest.mark.parametrize("value", ["first", 1.5, np.inf])
    def test_numbers_of_runs_are_numbers(self, column: str, value: object) -> None:
        odd = samples(50).astype({column: object})
        odd.loc[7, column] = value
        with pytest.raises(SampleError, match=f"`{column}` holds `{value}`, which is no number"):
            fingerprint(Exploratory(odd), INITIAL)
        known = refine(INITIAL, Exploratory(samples(seed=2).assign(experiment=2))).model
        with pytest.raises(SampleError, match=f"`{column}` holds `{value}`, which is no number"):
            confirm(known, Confirmatory(odd))

    def test_text_among_the_values_that_samples_are_known_by_is_refused(self) -> None:
        odd = samples(50).astype({"ATPT": object})
        odd.loc[7, "ATPT"] = "slow"
        with pytest.raises(ShapeError, match="`ATPT` holds `slow`, which is no number"):
            fingerprint(Exploratory(odd), INITIAL)

    def test_a_second_refinement_remembers_the_first(self) -> None:
        first, second = samples(seed=1), samples(seed=2).assign(experiment=2)
        model = refine(INITIAL, Exploratory(first)).model
        twice = refine(model, Exploratory(second)).model
        for seen in (first, second):
            with pytest.raises(SampleError, match="used to refine"):
                confirm(twice, Confirmatory(seen))

    def test_samples_that_look_like_others_are_told_by_their_runs(self) -> None:
        """Levels and thrashing points on a grid: equal rows are no evidence of equal samples."""
        model = study("refined, update").without([("numProcs", "ATPT"), ("ATPT", "TP")])
        keep = ["experiment", "run", "numProcs", "TP"]
        one, two = (
            simulate(study("refined, update"), 300, seed=s, grid=range(100, 5000, 100))[keep]
            for s in (1, 2)
        )
        refined = refine(model, Exploratory(one)).model
        confirm(refined, Confirmatory(two.assign(experiment=2)))
        with pytest.raises(SampleError, match="run 1 of experiment 1 was used"):
            confirm(refined, Confirmatory(two))
        with pytest.raises(SampleError, match="nothing tells these samples from others"):
            refine(model, Exploratory(one.drop(columns="run")))

    def test_a_confirmatory_table_needs_the_columns_that_samples_are_known_by(self) -> None:
        model = refine(INITIAL, Exploratory(samples())).model
        with pytest.raises(SampleError, match="no column `SF`, by which they are recognised"):
            confirm(model, Confirmatory(samples(seed=2).drop(columns="SF")))

    def test_a_refined_model_is_confirmed_with_the_other_half(self) -> None:
        exploratory, confirmatory = split(samples(560), seed=4)
        found = refine(INITIAL, exploratory)
        tested = confirm(found.model, confirmatory, errors="hc3")
        assert tested.n == len(confirmatory.samples)
        assert tested.options.errors == "hc3"


class TestSplit:
    def test_runs_stay_whole_and_every_dbms_is_on_both_sides(self) -> None:
        data = samples(560)
        assert data.groupby("run")["dbms"].nunique().eq(1).all()
        a, b = split(data, seed=3)
        assert set(a.samples["run"]).isdisjoint(b.samples["run"])
        assert len(a.samples) + len(b.samples) == 560
        assert a.samples.groupby("dbms")["run"].nunique().tolist() == [2] * 5
        again, _ = split(data, seed=3)
        assert a.samples.equals(again.samples)
        other, _ = split(data, seed=5)
        assert not a.samples.equals(other.samples)

    def test_by_dbms_and_by_share(self) -> None:
        a, b = split(samples(100), seed=1, by="dbms", share=0.2)
        assert (a.samples["dbms"].nunique(), b.samples["dbms"].nunique()) == (1, 4)
        a, b = split(samples(100), seed=1, by="dbms", share=0.001)
        assert len(set(a.samples["dbms"])) == 1

    @pytest.mark.parametrize(
        ("change", "by", "message"),
        [
            ({"run": 1}, "run", "have one `run` only"),
            ({}, "lab", "no column `lab` to split by"),
        ],
    )
    def test_what_cannot_be_split(self, change: dict[str, int], by: str, message: str) -> None:
        with pytest.raises(SampleError, match=message):
            split(samples(50).assign(**change), seed=1, by=by)

    @pytest.mark.parametrize("seed", [-1, "one", 0.5])
    def test_a_seed_is_a_whole_number(self, seed: int) -> None:
        with pytest.raises(SampleError, match=r"seed .*: give a whole number from 0"):
            split(samples(50), seed=seed)

    def test_a_table_without_runs_says_so(self) -> None:
        with pytest.raises(SampleError, match="no column `run` to split by"):
            split(samples(50).drop(columns="run"), seed=1)
        with pytest.raises(SampleError, match="share is 1"):
            split(samples(50), seed=1, share=1)


def test_a_rule_that_is_not_there_is_refused() -> None:
    with pytest.raises(ModelError, match="no rule is called `some`: use one of: all at once; one"):
        refine(INITIAL, Exploratory(samples()), rule="some")  # type: ignore[arg-type]
    empty = simulate(
        INITIAL, 60, seed=1, coefficients={p.edge: 0.0 for p in INITIAL.paths} | NOTHING
    )
    with pytest.raises(ModelError, match="no path left"):
        refine(INITIAL, Exploratory(empty), alpha=1e-9)
