"""Regressions, effects and fit indices: against R, against theory, against the study."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from conftest import FULL_SETS, FULL_SIZE, Coverage
from scipy import stats

from tidegate_analysis.errors import AnalysisError, ModelError, SampleError, ShapeError
from tidegate_analysis.estimate import (
    effects,
    fit,
    overall_fit,
    regress,
    stars,
    structural,
    totals,
    trace,
)
from tidegate_analysis.estimate._wild import weights, wild
from tidegate_analysis.model import STUDIES, Model, Path, Variable, simulate, study
from tidegate_analysis.model.simulate import noise_variances

GOLDEN = "estimate"
X = ["numProcs", "PK", "ATPT"]
TABLE = ["coefficient", "se", "statistic", "p"]


def close(found: object, expected: object, rel: float = 1e-8) -> None:
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), rtol=rel)


class TestAgainstR:
    @pytest.mark.parametrize(
        ("key", "options"),
        [
            ("hc3", {"errors": "hc3"}),
            ("cr1", {"errors": "cluster"}),
            ("fixed", {"effect": "fixed"}),
            ("fixed_cr1", {"effect": "fixed", "errors": "cluster"}),
        ],
    )
    def test_errors_and_fixed_effects(self, samples, golden, key, options) -> None:
        found = regress(samples, "TP", X, **options)
        close(found.to_frame()[TABLE], list(golden[key].values()))

    def test_lm(self, samples, golden) -> None:  # type: ignore[no-untyped-def]
        found, known = regress(samples, "TP", X), golden["lm"]
        close(found.to_frame()[TABLE], list(known["table"].values()))
        close(found.to_frame()[["low", "high"]], list(known["interval"].values()))
        close(found.standardised.coefficients, known["standardised"])
        of = found.explained
        close(of.intercept, known["intercept"])
        close([of.r_squared, of.adjusted_r_squared], [known["r2"], known["adjusted"]])
        close([of.log_likelihood, of.aic], [known["log_likelihood"], known["aic"]])
        fixed = regress(samples, "TP", X, effect="fixed").explained
        assert fixed.r_squared == pytest.approx(golden["fixed_r2"])

    def test_lme(self, samples, golden) -> None:  # type: ignore[no-untyped-def]
        found = regress(samples, "TP", X, effect="random")
        columns = ["coefficient", "se", "df", "statistic", "p"]
        close(found.to_frame()[columns], list(golden["random"].values()), 1e-6)
        group, residual = golden["random_variances"]
        of = found.explained
        assert of.group_share == pytest.approx(group / (group + residual), rel=1e-5)
        assert of.log_likelihood == pytest.approx(golden["random_log_likelihood_ml"], abs=1e-6)
        assert of.aic == pytest.approx(golden["random_aic_ml"], abs=1e-6)

    def test_products(self, samples, golden) -> None:  # type: ignore[no-untyped-def]
        terms = ["numProcs", "SF", "PK", "ROSE", "numProcs:ROSE", "SF:PK"]
        found = regress(samples, "ATPT", terms)
        close(found.to_frame()[TABLE], list(golden["product"].values()))

    def test_the_wild_bootstrap_by_brute_force(self, samples, golden) -> None:
        found = regress(samples, "TP", X, errors="wild")
        known = golden["wild"]
        close(found.p_values, [known[name] for name in X])
        data = samples[X].to_numpy(float)
        design = np.column_stack([data, np.ones(180)])
        codes = pd.factorize(samples["dbms"])[0]
        for j, name, beta in ((0, "numProcs_at_5", 5.0), (1, "PK_at_200", 200.0)):
            y = samples["TP"].to_numpy() - beta * data[:, j]
            moved = wild(design, y, codes, j, W=weights(5, 0, 0), confidence=0.95)
            assert moved.p == pytest.approx(known[name], rel=1e-9)

    def test_distribution_free_errors_of_standardised_coefficients(self, samples, golden) -> None:
        # Each sample a cluster: CR1 is the plain sandwich of lavaan's robust.sem, times n/(n-k).
        found = fit(study("refined, read"), samples, errors="cluster", cluster="row")
        known = golden["sem_refined"]
        for row in found.paths().to_dict("records"):
            expected = known[f"{row['from']}->{row['to']}"]
            k = found.regressions[row["to"]].explained.parameters
            assert row["standardised"] == pytest.approx(expected["est"], rel=1e-9)
            se = row["standardised_se"] / np.sqrt(180 / (180 - k))
            assert se == pytest.approx(expected["se"], rel=1e-6)
        effect = effects(found)
        for pair, kind, name in (
            (("numProcs", "TP"), "indirect", "indirect"),
            (("numProcs", "TP"), "total", "total"),
            (("PK", "TP"), "total", "totalPK"),
        ):
            row = effect.of(*pair, kind)
            assert row["effect"] == pytest.approx(known[name]["est"], rel=1e-9)
            se = row["se"] / np.sqrt(180 / 176)
            assert se == pytest.approx(known[name]["se"], rel=1e-6)

    @pytest.mark.parametrize("key", ["sem_over", "sem_initial", "sem_beside"])
    def test_lavaans_fit_indices(self, samples, golden, key) -> None:
        models = {"sem_over": over_identified(), "sem_initial": study("initial, read")}
        model = models.get(key, study("refined, read"))
        beside = ("SF", "ROSE") if key == "sem_beside" else ()
        found, known = structural(fit(model, samples), beside=beside), golden[key]
        assert (found.df, found.baseline_df) == (known["df"], known["baseline.df"])
        close(
            [found.chi2, found.p, found.baseline_chi2, found.indices.cfi, found.indices.srmr],
            [known[k] for k in ("chisq", "pvalue", "baseline.chisq", "cfi", "srmr")],
            1e-7,
        )
        rmsea = [found.indices.rmsea, found.indices.rmsea_low, found.indices.rmsea_high]
        expected = [known[k] for k in ("rmsea", "rmsea.ci.lower", "rmsea.ci.upper")]
        # R's search for the interval's ends stops early, which shows where one is near 0.
        np.testing.assert_allclose(rmsea, expected, atol=5e-6)
        # lavaan saw ATPT / 500 and TP / 200.
        shift = 180 * (np.log(500) + np.log(200))
        assert found.likelihood.log_likelihood + shift == pytest.approx(known["logl"], abs=1e-5)
        assert found.likelihood.aic - 2 * shift == pytest.approx(known["aic"], abs=1e-5)
        assert found.likelihood.bic - 2 * shift == pytest.approx(known["bic"], abs=1e-5)


def over_identified() -> Model:
    names = {"numProcs": "exogenous", "PK": "exogenous", "SF": "exogenous"}
    names |= {"ATPT": "mediator", "TP": "outcome"}
    paths = ["numProcs ATPT", "PK ATPT", "SF ATPT", "numProcs TP", "ATPT TP"]
    return Model(
        "over-identified",
        tuple(Variable(name, name, role) for name, role in names.items()),  # type: ignore[arg-type]
        tuple(Path(*path.split(), sign="+") for path in paths),  # type: ignore[arg-type]
    )


class TestTheStudysArithmetic:
    """Section 9.3.4, from the coefficients and error variances that Fig. 6 prints."""

    @pytest.mark.parametrize(
        ("name", "source", "total"),
        [
            ("refined, read", "numProcs", 0.44),
            ("refined, read", "PK", 0.38),
            ("refined, read", "ATPT", -0.28),
            ("refined, update", "numProcs", -0.33),
            ("refined, update", "ATPT", -0.13),
        ],
    )
    def test_total_effects(self, name: str, source: str, total: float) -> None:
        model = study(name)
        known = model.coefficients
        table = totals(model, known).set_index(["from", "to"])
        assert round(table.loc[(source, "TP"), "total"], 2) == total
        traces = trace(model, known, source, "TP")
        assert round(sum(t.effect for t in traces), 2) == total

    def test_a_trace_reads_like_the_text(self) -> None:
        model = study("refined, read")
        known = model.coefficients
        direct, through = trace(model, known, "numProcs", "TP")
        assert str(direct) == "numProcs -> TP: 0.34 = 0.34"
        assert str(through) == "numProcs -> ATPT -> TP: -0.34 × -0.28 = 0.10"

    def test_fits(self) -> None:
        read = overall_fit([1 - 0.84**2, 1 - 0.93**2])
        assert round(read, 2) == 0.39
        assert round(overall_fit([0.29, 0.14]), 2) == 0.39
        # The study prints 0.23; its printed digits give 0.22, and errors that round to them 0.23.
        update = overall_fit([1 - 0.96**2, 1 - 0.92**2])
        assert round(update, 2) == 0.22
        lowest, highest = 1 - (0.965 * 0.925) ** 2, 1 - (0.955 * 0.915) ** 2
        assert lowest < 0.225 < highest
        assert round(overall_fit([1 - 0.956**2, 1 - 0.918**2]), 2) == 0.23
        assert (round(0.956, 2), round(0.918, 2)) == (0.96, 0.92)

    def test_error_coefficients_and_fit_of_a_fitted_model(self) -> None:
        found = fit(study("refined, read"), simulate(study("refined, read"), 148, seed=3))
        e = found.error_coefficients
        assert e["TP"] == pytest.approx(np.sqrt(1 - found.r_squared["TP"]))
        assert found.overall_fit == pytest.approx(1 - e["ATPT"] ** 2 * e["TP"] ** 2)


def hits(name: str, n: int, seeds: range, **options: object) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Count over simulated data sets how often paths and effects are found and covered."""
    model = study(name)
    known = model.coefficients
    truth = totals(model, known).set_index(["from", "to"])
    paths, traced = [], []
    for seed in seeds:
        found = fit(model, simulate(model, n, seed=seed), **options)  # type: ignore[arg-type]
        paths += [
            (f"{row['from']} -> {row['to']}", row["supported"], row["standardised_low"]
             < known[row["from"], row["to"]] < row["standardised_high"])
            for row in found.paths().to_dict("records")
        ]  # fmt: skip
        for row in effects(found).table.to_dict("records"):
            effect = truth.loc[(row["from"], row["to"]), row["kind"]]
            label = f"{row['kind']} {row['from']} -> {row['to']}"
            right = row["effect"] * effect > 0 and row["p"] < 0.05
            traced.append((label, right, row["low"] < effect < row["high"]))
    columns = ["name", "found", "covered"]
    return tuple(
        pd.DataFrame(rows, columns=columns).astype({"found": float}).groupby("name").mean()
        for rows in (paths, traced)
    )  # type: ignore[return-value]


def binomial(share: float, n: int) -> tuple[float, float]:
    """Bounds that a right share leaves about once in 10,000 tests."""
    return tuple(stats.binom.interval(0.9999, n, share) / np.array(n))  # type: ignore[return-value]


class TestPlantedTruth:
    """Data from the refined models, with the study's coefficients and numbers of samples."""

    @pytest.mark.parametrize("count", [80, pytest.param(2000, marks=FULL_SIZE)])
    @pytest.mark.parametrize(("name", "n"), [("refined, read", 148), ("refined, update", 334)])
    def test_every_sign_and_effect_is_found_and_covered(
        self, covers: Coverage, name: str, n: int, count: int
    ) -> None:
        # 2,000 and not 1,000: the smallest true coverage here is 0.943 (indirect effects by the
        # delta method, n = 148), and one of 1,000 data sets would leave the bounds by chance.
        paths, traced = hits(name, n, range(20_000, 20_000 + count))
        both = pd.concat([paths, traced])
        covers({f"{name}, n = {n}: {of}": share for of, share in both["covered"].items()}, count)
        weak = both.index.str.contains("ATPT -> TP|indirect") & (n == 334)
        assert (both.loc[~weak, "found"] > 0.85).all(), both
        # Honest: at n = 334 a path of -0.13 is missed one time in three. Theory: its standard
        # error is sqrt((1-R²)/(n (1-r²))) = 0.0546, so power is P(Z > 1.96 - 0.13/0.0546) = 0.66.
        assert both.loc[weak, "found"].between(*binomial(0.65, count)).all(), both

    def test_the_studys_own_sizes_give_every_sign_in_most_data_sets(self) -> None:
        for name, n in (("refined, read", 148), ("refined, update", 334)):
            model = study(name)
            signs = [
                (found := fit(model, simulate(model, n, seed=s)).paths())["coefficient"].gt(0)
                == (found["sign"] == "+")
                for s in range(40)
            ]
            assert np.mean([all(s) for s in signs]) > 0.9

    @pytest.mark.parametrize("count", [50, pytest.param(1000, marks=FULL_SIZE)])
    def test_the_bootstrap_of_effects_covers(self, covers: Coverage, count: int) -> None:
        draws = 1000 if count >= FULL_SETS else 300
        model = study("refined, read")
        known = model.coefficients
        truth = totals(model, known).set_index(["from", "to"])
        hits: dict[str, int] = {}
        for seed in range(count):
            found = effects(
                fit(model, simulate(model, 148, seed=seed)),
                method="bootstrap", draws=draws, seed=seed,
            )  # fmt: skip
            for row in found.table.query("to == 'TP'").to_dict("records"):
                name = f"effects, bootstrap: {row['kind']} {row['from']} -> TP"
                inside = row["low"] < truth.loc[(row["from"], "TP"), row["kind"]] < row["high"]
                hits[name] = hits.get(name, 0) + bool(inside)
        covers({name: hit / count for name, hit in hits.items()}, count)

    @pytest.mark.parametrize("count", [100, pytest.param(1000, marks=FULL_SIZE)])
    def test_hc3_covers_where_the_variance_depends_on_a_term(
        self, covers: Coverage, count: int
    ) -> None:
        draw, hits = np.random.default_rng(3), {"classical": 0, "hc3": 0}
        for _ in range(count):
            x = draw.choice([1.0, 2.0, 4.0, 8.0], 60)
            data = pd.DataFrame({"x": x, "y": x * (0.5 + draw.standard_normal(60))})
            for errors in hits:
                found = regress(data, "y", ["x"], errors=errors)  # type: ignore[arg-type]
                hits[errors] += bool(found.raw.low[0] < 0.5 < found.raw.high[0])
        share = {name: hit / count for name, hit in hits.items()}
        why = "the variance is taken to be the same everywhere, which it is not: it is to fail"
        covers({"variance that grows, classical": share["classical"]}, count, 0, 0.93, why)
        covers({"variance that grows, hc3": share["hc3"]}, count)

    @pytest.mark.parametrize("count", [100, pytest.param(1000, marks=FULL_SIZE)])
    def test_the_interval_of_rmsea_covers(self, covers: Coverage, count: int) -> None:
        """Of the model without PK -> TP, where that path is 0.15; with df = 1."""
        n = 300
        model = study("refined, read")
        less = model.without([("PK", "TP")])
        coefficients = model.coefficients
        coefficients["PK", "TP"] = 0.15
        # What PK adds to TP beside numProcs and ATPT, which tells a part of PK.
        error = noise_variances(model, coefficients)
        alone = error["ATPT"] / (error["ATPT"] + coefficients["PK", "ATPT"] ** 2)
        truth = np.sqrt(np.log1p(0.15**2 * alone / error["TP"]))
        hits = 0
        for seed in range(count):
            data = simulate(model, n, seed=seed, coefficients=coefficients)
            found = structural(fit(less, data))
            hits += found.indices.rmsea_low <= truth <= found.indices.rmsea_high
        low, high = (0.87, 0.93) if count >= FULL_SETS else tuple(binomial(0.9, count))
        covers({"RMSEA, 90 %": hits / count}, count, low, high, "an interval of 90 %")


class TestGroups:
    """Samples of one DBMS resemble each other: who notices?"""

    @pytest.mark.parametrize("count", [80, pytest.param(1000, marks=FULL_SIZE)])
    def test_cluster_errors_cover_where_classical_ones_do_not(
        self, covers: Coverage, count: int
    ) -> None:
        model = study("refined, read")
        options: dict[str, dict[str, str]] = {
            "classical": {}, "cluster": {"errors": "cluster"}, "fixed": {"effect": "fixed"},
            "random": {"effect": "random"}, "wild": {"errors": "wild"},
        }  # fmt: skip
        # Thousands of draws for each data set.
        few_draw_it = count if count >= FULL_SETS else count // 4
        covered: dict[str, list[bool]] = {name: [] for name in options}
        for seed in range(count):
            data = simulate(model, 148, seed=seed, dbms_share=0.3, units={})
            for name, chosen in options.items():
                if name == "wild" and seed >= few_draw_it:
                    continue
                found = regress(data, "TP", X, **chosen)  # type: ignore[arg-type]
                covered[name].append(bool(found.raw.low[2] < -0.28 < found.raw.high[2]))
        share = {f"5 DBMSs, {name}": float(np.mean(of)) for name, of in covered.items()}
        why = "samples of one DBMS are taken as independent, which they are not: it is to fail"
        covers({"5 DBMSs, classical": share.pop("5 DBMSs, classical")}, count, 0, 0.85, why)
        covers({"5 DBMSs, wild": share.pop("5 DBMSs, wild")}, few_draw_it)
        few = "of few clusters the sandwich is known to be small: for them there is `wild`"
        low = 0.92 if count >= FULL_SETS else None
        covers({"5 DBMSs, cluster": share.pop("5 DBMSs, cluster")}, count, low, why=few)
        covers(share, count)

    @FULL_SIZE
    def test_slopes_that_differ_need_cluster_errors_and_no_intercepts_help(
        self, covers: Coverage
    ) -> None:
        model = study("refined, read")
        covered: dict[str, list[bool]] = {"classical": [], "fixed": [], "cluster": []}
        for seed in range(1000):
            data = simulate(model, 300, seed=seed, dbms=20, dbms_slopes=0.15, units={})
            for name, chosen in (
                ("classical", {}),
                ("fixed", {"effect": "fixed"}),
                ("cluster", {"errors": "cluster"}),
            ):
                found = regress(data, "TP", X, **chosen)  # type: ignore[arg-type]
                covered[name].append(bool(found.raw.low[2] < -0.28 < found.raw.high[2]))
        share = {f"20 DBMSs, slopes, {name}": float(np.mean(of)) for name, of in covered.items()}
        cluster = {"20 DBMSs, slopes, cluster": share.pop("20 DBMSs, slopes, cluster")}
        why = "slopes are taken to be those of all DBMSs, which they are not: it is to fail"
        covers(share, 1000, 0, 0.91, why)
        covers(cluster, 1000)

    def test_few_clusters_come_with_a_caution(self, samples: pd.DataFrame) -> None:
        found = regress(samples, "TP", X, errors="cluster")
        assert found.df.tolist() == [4, 4, 4]
        assert "5 groups may be too small" in found.cautions[0]
        assert "Take care" in str(found)
        assert not regress(samples, "TP", X, errors="cluster", cluster="row").cautions

    @pytest.mark.parametrize("errors", ["cluster", "wild"])
    @pytest.mark.parametrize(("groups", "columns"), [(2, ["a"]), (3, ["a", "b"])])
    def test_clusters_that_their_columns_saturate_are_refused(
        self, errors: Literal["cluster", "wild"], groups: int, columns: list[str]
    ) -> None:
        """Such columns go through the means of clusters: errors would be 0 where nothing is."""
        draw = np.random.default_rng(1)
        codes = np.repeat(np.arange(groups), 30)
        data = pd.DataFrame({"dbms": codes, "x": draw.normal(size=codes.size)})
        data["y"] = draw.normal(size=groups)[codes] + draw.normal(size=codes.size)
        data["a"], data["b"] = codes == 1, codes == 2
        data = data.astype(float)
        said = "leave no degree of freedom for .* each: `a`.*: add samples of more of them"
        with pytest.raises(SampleError, match=f"{groups} clusters by `dbms` {said}"):
            regress(data, "y", ["x", *columns], errors=errors)
        # What varies inside clusters has degrees of freedom, and so has one such column fewer.
        assert regress(data, "y", ["x"], errors=errors).df.tolist() == [groups - 1]
        if len(columns) > 1:
            assert regress(data, "y", ["x", "a"], errors=errors).df.tolist() == [2, 1]

    @pytest.mark.parametrize("count", [80, pytest.param(1000, marks=FULL_SIZE)])
    def test_a_column_of_whole_clusters_is_covered(self, covers: Coverage, count: int) -> None:
        """12 clusters that differ in two columns: 9 degrees of freedom, and not 11."""
        draw, codes = np.random.default_rng(7), np.repeat(np.arange(12), 10)
        covered = {"a": 0, "x": 0}
        for _ in range(count):
            a, b, own = draw.normal(size=(3, 12))
            x, noise = draw.normal(size=(2, 120))
            data = pd.DataFrame({"dbms": codes, "a": a[codes], "b": b[codes], "x": x})
            data["y"] = 0.5 * data["a"] + 0.3 * x + own[codes] + noise
            found = regress(data, "y", ["a", "b", "x"], errors="cluster")
            assert found.df.tolist() == [9, 9, 11]
            for name, i, truth in (("a", 0, 0.5), ("x", 2, 0.3)):
                covered[name] += bool(found.raw.low[i] < truth < found.raw.high[i])
        share = {f"12 clusters, cluster: {of}": c / count for of, c in covered.items()}
        whole = {name: share.pop(name) for name in list(share) if name.endswith("a")}
        few = "CR1 is too small for what is the same in all samples of a cluster, of few most so"
        covers(whole, count, 0.86 if count >= FULL_SETS else None, why=few)
        covers(share, count)

    def test_an_effect_has_the_fewest_degrees_of_freedom_of_its_chains(self) -> None:
        data = simulate(study("refined, read"), 200, seed=1, dbms=10, dbms_share=0.2)
        data["PK"] = data["dbms"].str.slice(4).astype(int) % 2
        found = fit(study("refined, read"), data, errors="cluster")
        table = effects(found).to_frame().set_index(["from", "to", "kind"])
        for edge, kind, free in (
            (("PK", "TP"), "indirect", 8),
            (("PK", "ATPT"), "direct", 8),
            (("numProcs", "TP"), "total", 9),
        ):
            row = table.loc[(*edge, kind)]
            reach = stats.t.ppf(0.975, free)
            assert row["high"] - row["effect"] == pytest.approx(reach * row["se"])

    @pytest.mark.parametrize("groups", [2, 3, 4])
    def test_the_wild_bootstrap_says_how_small_its_p_can_be(self, groups: int) -> None:
        """The strongest effect there is, and p is 6 of 6^G: the weights that are all the same."""
        draw = np.random.default_rng(groups)
        x = draw.standard_normal(20 * groups)
        data = pd.DataFrame({"x": x, "y": 5 * x + 0.1 * draw.standard_normal(x.size)})
        data["dbms"] = np.repeat(list("abcd")[:groups], 20)
        found = regress(data, "y", ["x"], errors="wild")
        floor = 6.0 ** (1 - groups)
        assert found.p_values[0] == pytest.approx(floor)
        (caution,) = found.cautions
        assert f"with {groups} groups" in caution and f"p below {floor:.2g}" in caution
        assert ("no ends" in caution) == (groups == 2) == bool(np.isinf(found.raw.low[0]))
        assert "Take care: with" in str(found)

    def test_five_groups_and_more_need_no_such_caution(self, samples: pd.DataFrame) -> None:
        assert not regress(samples, "TP", X, errors="wild").cautions
        many = samples.assign(dbms=samples.index % 12)
        assert not regress(many, "TP", X, errors="wild").cautions
        few = regress(many, "TP", X, errors="wild", draws=99)
        assert "99 data sets, the wild bootstrap cannot give a p below 0.01" in few.cautions[0]
        # What was observed is one of the data sets that are drawn: p is never 0.
        strong = many.assign(TP=100 * many["numProcs"] + many["TP"] / 1e6)
        assert regress(strong, "TP", X, errors="wild").p_values[0] == pytest.approx(1 / 9999)

    def test_webb_weights(self) -> None:
        W = weights(5, 10, 1)
        assert W.shape == (7776, 5)  # all of them, whatever was asked for
        np.testing.assert_allclose(W.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose((W**2).mean(axis=0), 1)
        many = weights(8, 500, 1)
        assert many.shape == (500, 8)
        assert (many == weights(8, 500, 1)).all()

    def test_the_wild_interval_is_what_the_wild_test_does_not_reject(
        self, samples: pd.DataFrame
    ) -> None:
        found = regress(samples, "TP", X, errors="wild")
        for end, outwards in ((found.raw.low[1], -1), (found.raw.high[1], 1)):
            for step, rejected in ((0.5 * outwards, True), (-0.5 * outwards, False)):
                moved = samples.assign(TP=samples["TP"] - (end + step) * samples["PK"])
                p = regress(moved, "TP", X, errors="wild").p_values[1]
                assert (p <= 0.05) == rejected

    def test_a_variable_of_whole_groups_has_the_degrees_of_freedom_of_groups(self) -> None:
        data = simulate(study("refined, read"), 200, seed=1, dbms=10, dbms_share=0.2)
        data["size"] = data["dbms"].str.slice(4).astype(float)
        found = regress(data, "TP", ["numProcs", "size"], effect="random")
        assert found.df.tolist() == [200 - 10 - 1, 10 - 1 - 1]
        with pytest.raises(SampleError, match="`size` is constant in each `dbms`"):
            regress(data, "TP", ["numProcs", "size"], effect="fixed")


class TestEffects:
    def test_delta_and_bootstrap_agree(self, samples: pd.DataFrame) -> None:
        found = fit(study("refined, read"), samples, errors="hc3")
        delta = effects(found).to_frame()
        drawn = effects(found, method="bootstrap", draws=4000, seed=2).to_frame()
        np.testing.assert_allclose(drawn["effect"], delta["effect"])
        np.testing.assert_allclose(drawn["se"], delta["se"], rtol=0.08)
        np.testing.assert_allclose(drawn["low"], delta["low"], atol=0.025)
        again = effects(found, method="bootstrap", draws=4000, seed=2).to_frame()
        assert drawn.equals(again)

    def test_bootstrap_by_weights_is_bootstrap_by_rows(self, samples: pd.DataFrame) -> None:
        """The moments of a draw are those of the table that the draw describes."""
        from tidegate_analysis.estimate._data import design
        from tidegate_analysis.estimate.effects import _refit

        terms = ["numProcs", "PK", "ROSE", "numProcs:ROSE"]
        W = np.random.default_rng(4).multinomial(180, np.full(180, 1 / 180), 5).astype(float)
        data = design(samples, "ATPT", terms)
        centred = samples.assign(
            product=(samples["numProcs"] - samples["numProcs"].mean())
            * (samples["ROSE"] - samples["ROSE"].mean())
        )
        raw = _refit(samples, data, W, raw=True)
        standardised = _refit(samples, data, W, raw=False)
        for i, row in enumerate(W):
            drawn = centred.loc[np.repeat(np.arange(180), row.astype(int))]
            expected = regress(drawn, "ATPT", [*terms[:3], "product"])
            np.testing.assert_allclose(raw[i], expected.raw.coefficients, rtol=1e-8)
            np.testing.assert_allclose(
                standardised[i][:3], expected.standardised.coefficients[:3], rtol=1e-8
            )

    def test_raw_effects_are_in_units(self, samples: pd.DataFrame) -> None:
        found = fit(study("refined, read"), samples)
        raw = effects(found, scale="raw")
        standard = effects(found)
        ratio = samples["numProcs"].std() / samples["TP"].std()
        row = raw.of("numProcs", "TP")
        assert row["effect"] * ratio == pytest.approx(standard.of("numProcs", "TP")["effect"])
        # Total effects of a just identified model are the regression without the mediator.
        alone = regress(samples, "TP", ["numProcs", "PK"])
        assert row["effect"] == pytest.approx(alone.raw.coefficients[0])
        assert row["se"] == pytest.approx(alone.raw.errors[0], rel=0.1)

    @pytest.mark.parametrize("n", [12, 60])
    def test_a_direct_effect_in_units_leaves_out_0_where_its_path_is_significant(
        self, n: int
    ) -> None:
        model = study("refined, read")
        significant = []
        for seed in range(30):
            found = fit(model, simulate(model, n, seed=seed))
            raw = effects(found, scale="raw")
            for path in found.paths().to_dict("records"):
                direct = raw.of(path["from"], path["to"], "direct")
                same = ["se", "low", "high", "p"]
                close(direct[same], [path[column] for column in same])
                significant.append(path["p"] < 0.05)
                assert (direct["low"] > 0 or direct["high"] < 0) == significant[-1]
        assert 0 < sum(significant) < len(significant)

    def test_an_indirect_effect_in_units_has_sobels_error(self, samples: pd.DataFrame) -> None:
        """sqrt(a² se_b² + b² se_a²), of two regressions (Sobel 1982)."""
        first, second = regress(samples, "ATPT", X[:2]), regress(samples, "TP", X)
        found = effects(fit(study("refined, read"), samples), scale="raw")
        for i, source in enumerate(X[:2]):
            a, b = first.raw.coefficients[i], second.raw.coefficients[2]
            error = np.hypot(a * second.raw.errors[2], b * first.raw.errors[i])
            row = found.of(source, "TP", "indirect")
            close([row["effect"], row["se"]], [a * b, error])

    def test_only_effects_that_chains_give_are_listed(self, samples: pd.DataFrame) -> None:
        table = effects(fit(over_identified(), samples)).to_frame()
        kinds = table.groupby(["from", "to"])["kind"].apply(list).to_dict()
        assert kinds["PK", "TP"] == ["indirect", "total"]
        assert kinds["numProcs", "TP"] == ["direct", "indirect", "total"]
        assert kinds["ATPT", "TP"] == ["direct", "total"]
        with pytest.raises(SampleError, match="no direct effect of `PK` on `TP`"):
            effects(fit(over_identified(), samples)).of("PK", "TP", "direct")

    @pytest.mark.parametrize(
        "options",
        [{"errors": "cluster"}, {"effect": "fixed"}, {"effect": "random"}, {"errors": "wild"}],
    )
    def test_groups_reach_the_effects(self, samples: pd.DataFrame, options: dict[str, str]) -> None:
        found = fit(study("refined, read"), samples, **options)  # type: ignore[arg-type]
        table = effects(found).to_frame()
        assert (table["se"] > 0).all()
        if "effect" in options:
            direct = effects(found).of("PK", "ATPT", "direct")
            expected = found.paths().query("`from` == 'PK' and to == 'ATPT'")["standardised_se"]
            assert direct["se"] == pytest.approx(expected.item(), rel=1e-6)
        if options == {"effect": "fixed"}:
            drawn = effects(found, method="bootstrap", draws=2000, seed=1).to_frame()
            np.testing.assert_allclose(drawn["se"], table["se"], rtol=0.15)
        if options == {"effect": "random"}:
            with pytest.raises(SampleError, match="cannot be bootstrapped here: use the delta"):
                effects(found, method="bootstrap")

    def test_a_bootstrap_has_a_seed_from_0(self, samples: pd.DataFrame) -> None:
        with pytest.raises(SampleError, match="seed -1: give a whole number from 0"):
            effects(fit(study("refined, read"), samples), method="bootstrap", seed=-1)

    def test_groups_with_intercepts_cannot_be_drawn(self, samples: pd.DataFrame) -> None:
        found = fit(study("refined, read"), samples, effect="fixed", errors="cluster")
        with pytest.raises(SampleError, match="cannot be drawn again"):
            effects(found, method="bootstrap")


class TestStructural:
    def test_a_just_identified_model_says_that_nothing_is_tested(
        self, samples: pd.DataFrame
    ) -> None:
        found = structural(fit(study("refined, read"), samples))
        assert (found.df, found.chi2, found.indices.cfi, found.indices.rmsea) == (0, 0, 1, 0)
        np.testing.assert_allclose(found.implied, found.observed, atol=1e-6)
        assert "cannot be tested" in str(found)

    def test_chi2_rejects_a_right_model_as_often_as_it_says(self) -> None:
        """Data from reads without PK -> TP, judged by the model without it."""
        model = study("refined, read").without([("PK", "TP")])
        p = np.array([structural(fit(model, simulate(model, 300, seed=s))).p for s in range(120)])
        low, high = binomial(0.05, 120)
        assert low <= (p < 0.05).mean() <= high
        assert stats.kstest(p, "uniform").pvalue > 1e-4

    def test_what_is_beside_a_model_is_tested_as_by_regressions(
        self, samples: pd.DataFrame
    ) -> None:
        """chi² is the likelihood ratio of both equations with and without what was left out."""
        found = structural(fit(study("refined, read"), samples), beside=["SF", "ROSE"])
        ratio = sum(
            np.log(
                regress(samples, outcome, terms).explained.rss
                / regress(samples, outcome, [*terms, "SF", "ROSE"]).explained.rss
            )
            for outcome, terms in (("ATPT", ["numProcs", "PK"]), ("TP", ["numProcs", "PK", "ATPT"]))
        )
        assert (found.df, found.chi2) == (4, pytest.approx(len(samples) * ratio))
        with pytest.raises(ModelError, match="has `PK` itself"):
            structural(fit(study("refined, read"), samples), beside=["PK"])

    def test_what_no_equation_sees_is_refused_here(self, samples: pd.DataFrame) -> None:
        model = Model(
            "two causes that are one",
            (*(Variable(n, n, "exogenous") for n in ("SF", "PK")),
             Variable("ATPT", "P", "mediator"), Variable("TP", "T", "outcome")),
            (Path("SF", "ATPT", "+"), Path("PK", "TP", "+"), Path("ATPT", "TP", "-")),
        )  # fmt: skip
        with pytest.raises(SampleError, match="`SF` and `PK` are perfectly collinear"):
            structural(fit(model, samples.assign(SF=2 * samples["PK"])))

    def test_a_covariance_matrix_that_is_singular_is_refused(self, samples: pd.DataFrame) -> None:
        few = fit(study("refined, read"), samples.sample(6, random_state=1))
        with pytest.raises(SampleError, match="6 samples have no covariance matrix of 6 variables"):
            structural(few, beside=["SF", "ROSE"])
        assert structural(few).df == 0
        copied = samples.assign(copy=3 * samples["ATPT"])
        with pytest.raises(SampleError, match="`copy` and `ATPT` are perfectly collinear"):
            structural(fit(study("refined, read"), copied), beside=["copy"])

    def test_effects_of_groups_have_no_covariance_structure(self, samples: pd.DataFrame) -> None:
        with pytest.raises(ModelError, match="fitted with effects of groups"):
            structural(fit(study("refined, read"), samples, effect="random"))


Change = Callable[[pd.DataFrame], pd.DataFrame]

BAD: list[tuple[Change, dict[str, object], str]] = [
    (lambda d: d.assign(PK=1), {}, "`PK` is 1 in all 180 samples: leave it out"),
    (lambda d: d.assign(TP=300), {}, "`TP` is 300 in all 180 samples"),
    (lambda d: d.assign(PK=3 * d["numProcs"] + 1), {}, "`numProcs` and `PK` are perfectly coll"),
    (lambda d: d.assign(ATPT=d["PK"] - d["numProcs"]), {}, "`numProcs`, `PK` and `ATPT` are perf"),
    (lambda d: d.head(4), {}, "4 samples for the 4 parameters of `TP`: collect more samples"),
    (lambda d: d.head(0), {}, "the table of samples is empty"),
    (lambda d: d.drop(columns="PK"), {}, "have no column `PK`: add it, or use one of dbms"),
    (lambda d: d.assign(PK="yes"), {}, "`PK` holds `yes`, which is no number"),
    (lambda d: d.assign(PK=d["PK"].where(d.index > 2)), {}, "`PK` is missing in 3 of 180"),
    (lambda d: d.assign(TP=d["TP"].where(d.index > 8, np.inf)), {},
     "`TP` is infinite in 9 of 180 samples: keep only samples that thrashed and say so, or use the "
     "models for censored values"),
    (lambda d: d.assign(dbms="x"), {"errors": "cluster"}, "all samples are of one `dbms`"),
    (lambda d: d.assign(dbms="x"), {"errors": "wild"}, "all samples are of one `dbms`"),
    (lambda d: d.assign(dbms="x"), {"effect": "random"}, "all samples are of one `dbms`"),
    (lambda d: d.drop(columns="dbms"), {"errors": "cluster"}, "no column `dbms`: add it"),
    (lambda d: d.assign(dbms=d["dbms"].where(d.index > 0)), {"effect": "fixed"}, "missing in 1 sa"),
    (lambda d: pd.concat([d, d]).assign(dbms=range(360)), {"errors": "wild"},
     "the wild bootstrap is for few groups, and these are 360: use cluster errors"),
    (lambda d: d.assign(dbms=d.index % 8), {"errors": "wild", "seed": -1},
     "seed -1: give a whole number from 0"),
    (lambda d: d, {"errors": "wild", "draws": 0}, "0 data sets of the wild bootstrap: draw at"),
    (lambda d: d, {"errors": "robust"}, "no errors are called `robust`: use one of classical"),
    (lambda d: d, {"effect": "mixed"}, "no effect are called `mixed`: use one of none"),
    (lambda d: d, {"effect": "random", "errors": "hc3"}, "a random effect with hc3 errors"),
    (lambda d: d.assign(TP=3 * d["PK"] - d["ATPT"]), {}, "`TP` follows exactly from `numProcs`, "),
    (lambda d: d.assign(TP=3 * d["PK"]), {"effect": "random"}, "`TP` follows exactly from"),
    (lambda d: d.assign(PK=d["PK"].astype("Int64").where(d.index > 1)), {}, "missing in 2 of 180"),
    (lambda d: pd.concat([d, d[["PK"]]], axis=1), {}, "the samples have 2 columns `PK`"),
    (lambda d: d.assign(PK=(d.index == 7) * 1.0), {"errors": "hc3"}, "sample 8 alone determines"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "options", "message"), BAD, ids=[m[:30] for *_, m in BAD])
def test_bad_samples_are_refused_with_advice(
    samples: pd.DataFrame, change: Change, options: dict[str, object], message: str
) -> None:
    is_of_shape = any(said in message for said in ("no column", "no number", "2 columns"))
    kind: type[AnalysisError] = ShapeError if is_of_shape else SampleError
    with pytest.raises(kind, match=message):
        regress(change(samples), "TP", X, **options)  # type: ignore[arg-type]


def test_a_term_that_follows_from_the_groups_is_named(samples: pd.DataFrame) -> None:
    both = samples.assign(size=samples["dbms"].str.len() + samples["PK"])
    with pytest.raises(SampleError, match="`PK` and `size` are perfectly collinear"):
        regress(both, "TP", ["PK", "size"], effect="fixed")
    with pytest.raises(SampleError, match="`TP` explains itself"):
        regress(samples, "TP", ["TP", "PK"])
    with pytest.raises(SampleError, match="confidence is 95"):
        regress(samples, "TP", X, confidence=95)


def test_samples_of_another_group_are_refused(samples: pd.DataFrame) -> None:
    with pytest.raises(SampleError, match=r'is about updates, .*keep those with mode == "update"'):
        fit(study("refined, update"), samples)


def test_tables_say_what_was_hypothesised(samples: pd.DataFrame) -> None:
    found = fit(study("initial, read"), samples)
    table = found.paths().set_index(["from", "to", "by"])
    assert len(table) == 10
    row = table.loc[("PK", "TP", "")]
    assert (row["hypothesis"], row["sign"], row["level"]) == ("III-(b)", "+", "high")
    assert row["supported"] and row["stars"] == "***"
    # Significant, but the other way than hypothesised.
    assert not table.loc[("numProcs", "TP", "")]["supported"]
    assert table["supported"].isna().sum() == 2
    assert "numProcs" in str(found)
    assert [stars(p) for p in (0.05, 0.049, 0.009, 0.0009)] == ["", "*", "**", "***"]


@pytest.mark.parametrize("name", STUDIES)
def test_intercepts_and_units_do_not_change_standardised_results(name: str) -> None:
    model = study(name)
    rest = {p.edge: 0.1 for p in model.paths if p.coefficient is None}
    rest |= {m.edge: 0.1 for m in model.moderators}
    data = simulate(model, 200, seed=9, coefficients=rest)
    moved = data.assign(ATPT=data["ATPT"] / 1e6 + 5, TP=1e5 * data["TP"], SF=data["SF"] * 40 - 3)
    one, other = fit(model, data), fit(model, moved)
    columns = ["standardised", "standardised_se", "p"]
    np.testing.assert_allclose(one.paths()[columns], other.paths()[columns], rtol=1e-5, atol=1e-9)


def test_traces_add_up_to_what_matrices_give() -> None:
    """Random models: six variables, each pair connected or not."""
    for seed in range(25):
        draw = np.random.default_rng(seed)
        names = [f"v{i}" for i in range(6)]
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        edges = [pair for pair in pairs if draw.random() < 0.5] or pairs[:1]
        ends = {end for edge in edges for end in edge}
        roles = {
            n: ("mediator" if any(a == n for a, _ in edges) else "outcome")
            if any(b == n for _, b in edges)
            else "exogenous"
            for n in names
            if n in ends
        }
        # Written in any order: causes still come first.
        shuffled = [edges[i] for i in draw.permutation(len(edges))]
        model = Model(
            f"seed {seed}",
            tuple(Variable(n, n, role) for n, role in reversed(roles.items())),
            tuple(Path(a, b, "+") for a, b in shuffled),
        )
        known = {edge: float(draw.standard_normal()) for edge in edges}
        for row in totals(model, known).to_dict("records"):
            traces = trace(model, known, row["from"], row["to"])
            assert traces
            assert row["total"] == pytest.approx(sum(t.effect for t in traces))
            assert row["direct"] == known.get((row["from"], row["to"]), 0)


def array(values: list[float]) -> npt.NDArray[np.float64]:
    return np.array(values)


def test_a_regression_by_hand() -> None:
    """y = 1, 3, 2, 6 on x = 0, 1, 2, 3: slope 7/5, rss 3.8, se = sqrt(1.9/5)."""
    found = regress(pd.DataFrame({"x": [0, 1, 2, 3], "y": [1, 3, 2, 6]}), "y", ["x"])
    assert found.raw.coefficients == pytest.approx([1.4])
    assert found.explained.intercept == pytest.approx(0.9)
    assert found.explained.rss == pytest.approx(4.2)
    assert found.raw.errors == pytest.approx([np.sqrt(2.1 / 5)])
    assert found.explained.r_squared == pytest.approx(1 - 4.2 / 14)
    np.testing.assert_allclose(found.residuals, array([0.1, 0.7, -1.7, 0.9]))
