"""The causal chapter: what was planted is shown, and what a sample cannot show is said."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from tidegate_analysis import censored, estimate, examples, load, mediation, model, report
from tidegate_analysis.assumptions import _checks
from tidegate_analysis.errors import SampleError
from tidegate_analysis.report import _throughput
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import (
    Advice,
    Figure,
    Paragraph,
    Section,
    Sentence,
    Table,
    adjusted_claims,
)
from tidegate_analysis.report.causal import makers
from tidegate_analysis.results import Results
from tidegate_analysis.tables import REFINED, hypotheses

#: What numbers are written with, as Python reads them.
PLAIN = str.maketrans({"−": "-", ",": None, "∞": "inf"})
NAMES = ["causal", "paths", "mediation", "assumptions", "censored"]


class OfSamples:
    """Results with an experiment of which there are only these samples."""

    def __init__(self, samples: pd.DataFrame, scenario: str = "thrash", left_out: int = 0) -> None:
        self._samples = samples
        self._scenario = scenario
        self._left_out = left_out
        self.loaded = 0

    def experiment(self, _: int) -> pd.DataFrame:
        return pd.DataFrame({"scenario": [self._scenario]})

    def samples(self, _: int) -> pd.DataFrame:
        self.loaded += 1
        return self._samples

    def latest_points(self, _: int) -> pd.DataFrame:
        return pd.DataFrame(index=range(len(self._samples) + self._left_out))

    def outcomes(self, _: pd.DataFrame) -> None:
        """Their points are taken as exact."""


def made(results: object) -> list[Section]:
    return [maker(results, 1) for maker in makers()]  # type: ignore[arg-type]


def table(sections: Sequence[Section], name: str) -> Table:
    (found,) = (
        p for s in sections for p in s.parts if isinstance(p, Table) and p.name == f"causal-{name}"
    )
    return found


def figures(sections: Sequence[Section]) -> dict[str, Figure]:
    return {p.name: p for s in sections for p in s.parts if isinstance(p, Figure)}


def sentences(sections: Sequence[Section]) -> list[Sentence]:
    parts = [part for section in adjusted_claims(sections) for part in section.parts]
    said = [x for part in parts if isinstance(part, Advice) for x in part.sentences]
    return [sentence for sentence in said if isinstance(sentence, Sentence)]


def cannot(sections: Sequence[Section]) -> list[str]:
    texts = [p.text for s in sections for p in s.parts if isinstance(p, Paragraph)]
    return [text for text in texts if text.startswith("This sample cannot show")]


@pytest.fixture(scope="module")
def results(example: Path) -> Results:
    return load(example)


@pytest.fixture(scope="module")
def chapter(results: Results) -> list[Section]:
    return made(results)


def test_all_of_it_is_there(chapter: list[Section]) -> None:
    assert [section.name for section in chapter] == NAMES
    assert all(section.parts for section in chapter)
    assert cannot(chapter) == []
    names = [p.name for s in chapter for p in s.parts if isinstance(p, Table | Figure)]
    assert len(names) == len(set(names))
    drawn = figures(chapter)
    assert len(drawn) == 2 * 4 + 1
    for figure in drawn.values():
        ElementTree.fromstring(figure.svg)
        assert len(figure.alt) > 40
        assert "&" not in figure.alt


def test_samples_are_counted(chapter: list[Section], results: Results) -> None:
    samples = results.samples(1)
    for row in table(chapter, "samples").rows:
        own = samples[samples["mode"] + "s" == row[0]]
        thrashed = own["thrashed"].sum()
        assert row[1] == f"{len(own)}" and row[2].startswith(f"{thrashed} ")
        assert row[3] == f"{len(own) - thrashed}"
        assert row[4:6] == ("3", "18")
    assert any("of 3 DBMSs, and those of one are not" in str(part) for part in chapter[0].parts)
    assert "other mixes" not in table(chapter, "samples").note
    mixed = made(OfSamples(planted(3), left_out=7))
    assert "7 batchsets of other mixes than reads or updates" in table(mixed, "samples").note


def test_numbers_are_those_of_the_modules(chapter: list[Section], results: Results) -> None:
    samples = results.samples(1)
    group = samples[samples["mode"] == "read"]
    thrashed = group[group["thrashed"]]
    r = hypotheses(thrashed, REFINED["read"])["r"]
    for row, value in zip(table(chapter, "hypotheses-read").rows, r, strict=True):
        assert row[3].startswith(f"{value:.3f} ".replace("-", "−"))
    assert [row[-1] for row in table(chapter, "hypotheses-read").rows][:2] == ["0.310", "−0.320"]
    fit = estimate.fit(model.study("refined, read"), thrashed)
    explained = {row[0]: row[1:] for row in table(chapter, "r2-read").rows}
    assert explained["R² of TP"] == (f"{fit.r_squared['TP']:.3f}", "0.140")
    assert explained["fit of the model"] == (f"{fit.overall_fit:.3f}", "0.390")
    totals = {row[:2]: row[-1] for row in table(chapter, "effects-read").rows}
    assert totals["numProcs → TP", "total"] == "0.435"
    asked = mediation.Mechanism(
        "numProcs", "ATPT", "TP", control=1, treated=4, covariates=["PK", "SF", "ROSE", "dbms"]
    )
    acme = mediation.mediate(thrashed, asked, clusters="run").acme.estimate
    first = table(chapter, "mediation").rows[0]
    assert first[:2] == ("reads: numProcs → ATPT → TP", "1 to 4")
    assert first[3].startswith(f"{acme:.0f} ")
    by_rose = replace(asked, covariates=["PK", "SF", "dbms"], moderators={"ROSE": "both"})
    difference = mediation.moderation(
        thrashed, by_rose, {"ROSE": 100}, {"ROSE": 25}, clusters="run"
    )
    first = table(chapter, "moderation").rows[0]
    assert first[3] == "ROSE 25 and 100"
    assert first[6].startswith(f"{words.number(difference.acme.estimate)} (")
    assert len(table(chapter, "moderation").rows) == 2 * 3
    factors = ["numProcs", "PK", "SF", "ROSE"]
    both = censored.compare(group, factors, cluster="dbms").set_index("term")
    direct = [row[0] for row in table(chapter, "censored-direct-read").rows]
    assert direct[2:] == [
        "SF 1 % instead of 0.01 %", "ROSE 100 % instead of 25 %", "a standard deviation of ATPT"
    ]  # fmt: skip
    row = table(chapter, "censored-total-read").rows[1]
    assert float(row[2].split(" ")[0]) == pytest.approx(
        100 * np.expm1(both.loc["PK", "censored"]), abs=0.5
    )


def test_a_row_of_a_path_table_is_one_inference(chapter: list[Section]) -> None:
    """p is below 0.05 exactly where the interval beside it leaves out 0, for both kinds."""
    kinds, rows = set(), []
    for sections in (chapter, *(made(OfSamples(planted(5, seed))) for seed in range(1, 5))):
        for found in (p for s in sections for p in s.parts if isinstance(p, Table)):
            if found.name.startswith("causal-paths-"):
                assert sum("interval" in name for name in found.header) == 1
                assert sum(name == "p" or name.startswith("p,") for name in found.header) == 1
                place = found.header.index("p")
                rows += [(row, row[place - 1], row[place]) for row in found.rows]
                kinds |= {row[place - 2] for row in found.rows}
    assert kinds == {"independent", "clusters: DBMSs"} and len(rows) > 20
    for row, interval, p in rows:
        numbers = re.findall(r"−?(?:[\d.,]+|∞)", interval)
        _, low, high = (float(x.translate(PLAIN)) for x in numbers)
        # What rounds to 0.050, or to an end of 0, is on the edge.
        if p != "0.050" and low * high != 0:
            assert (p.startswith("below") or float(p) < 0.05) == (low > 0 or high < 0), row


def test_every_sentence_points_to_something(chapter: list[Section]) -> None:
    names = {p.name for s in chapter for p in s.parts if isinstance(p, Table | Figure)}
    found = sentences(chapter)
    assert len(found) == 8
    assert {sentence.anchor for sentence in found} <= names
    for sentence in found:
        is_claim = "this sample cannot show" not in sentence.text
        assert (sentence.kind == "shown") == is_claim


def planted(dbms: int, seed: int = 2) -> pd.DataFrame:
    """Return samples of updates whose TP falls by a fifth with each processor, censored at 1000."""
    rng = np.random.default_rng(seed)
    grid = pd.MultiIndex.from_product(
        [[f"d{i}" for i in range(dbms)], [1, 2, 4], [0, 1], [0.25, 1.0], [25, 50, 75, 100]],
        names=["dbms", "numProcs", "PK", "SF", "ROSE"],
    ).to_frame(index=False)
    n = len(grid)
    atpt = 900 - 60 * grid["numProcs"] + rng.normal(0, 60, n)
    log_tp = np.log(1400) - 0.2 * grid["numProcs"] + rng.normal(0, 0.25, n)
    seen = censored.seen(np.exp(log_tp.to_numpy()), np.arange(100.0, 1001, 100))
    run = grid.groupby(["dbms", "numProcs", "PK"], sort=False).ngroup() + 1
    return grid.assign(experiment=1, run=run, mode="update", ATPT=atpt).join(seen)


@pytest.mark.parametrize("dbms", [1, 5])
def test_a_planted_effect_is_shown_and_what_is_not_there_is_not(dbms: int) -> None:
    sections = made(OfSamples(planted(dbms)))
    processors, *others = sentences(sections)
    assert [sentence.about for sentence in others] == [
        "primary keys", "size of transactions", "range of rows"
    ]  # fmt: skip
    assert processors.kind == "shown"
    assert "a further processor moves the thrashing point down" in processors.text
    effect = re.search(r"total effect −(\d+) %", processors.text)
    # exp(−0.2) − 1 is −18 %.
    assert effect and abs(int(effect.group(1)) - 18) <= 4
    assert {sentence.kind for sentence in others} == {"not shown"}
    assert processors.numbers["clusters"] == ("runs, 6" if dbms == 1 else "DBMSs, 5")
    said = "of one DBMS, d0: nothing here says" if dbms == 1 else "of 5 DBMSs, and those of one"
    assert any(said in str(part) for part in sections[0].parts)
    taken_as = {row[3] for row in table(sections, "paths-update").rows}
    assert taken_as == ({"independent"} if dbms == 1 else {"independent", "clusters: DBMSs"})


def test_uncertain_points_are_regressed_beside_exact_ones() -> None:
    samples = planted(6)
    count = len(samples)
    certain = samples[["low", "high"]].assign(sample=range(count), prior=0.05, probability=1.0)
    # A point may also be one that the rule did not find.
    other = certain.assign(low=samples["low"].max(), high=np.inf, prior=0.6, probability=0.3)
    doubtful = pd.concat([certain.assign(probability=0.7), other])

    class Uncertain(OfSamples):
        given: pd.DataFrame

        def outcomes(self, table: pd.DataFrame) -> pd.DataFrame:
            places = np.flatnonzero(self._samples.index.isin(table.index))
            found = self.given[self.given["sample"].isin(places)]
            return found.assign(sample=np.searchsorted(places, found["sample"]))

    found = {}
    for name, given in (("certain", certain), ("doubtful", doubtful)):
        results = Uncertain(samples)
        results.given = given
        found[name] = table(made(results), "censored-total-update")
    plain = table(made(OfSamples(samples)), "censored-total-update")
    assert "exact" not in " ".join(plain.header)
    for name, one in found.items():
        assert one.header[-1] == "censored, the rule's points as exact"
        assert [row[-1] for row in one.rows] == [row[2] for row in plain.rows], name
        assert "posterior over prior" in one.note
    assert [row[2] for row in found["certain"].rows] == [row[2] for row in plain.rows]
    assert [row[2] for row in found["doubtful"].rows] != [row[2] for row in plain.rows]


def test_what_one_dbms_alone_decides_is_not_claimed() -> None:
    frame = planted(4)
    alone = frame["dbms"] == "d0"
    never = {"TP": np.inf, "low": 1000.0, "high": np.inf, "thrashed": False}
    for name, value in never.items():
        frame[name] = frame[name].where(alone, value)
    sections = made(OfSamples(frame))
    for sentence in sentences(sections):
        assert sentence.kind == "not shown"
        assert "samples of one DBMS depend on each other, and" in sentence.text
    note = table(sections, "censored-total-update").note
    assert "Samples are taken as independent, which they are not" in note


@pytest.mark.parametrize(("processors", "keys"), [((1, 2), (0, 1)), ((1, 2, 4), (0,))])
def test_few_runs_show_nothing_of_what_is_the_same_in_a_run(
    processors: tuple[int, ...], keys: tuple[int, ...]
) -> None:
    """Four runs of two factors, or three of one, leave one degree of freedom."""
    frame = planted(1)
    frame = frame[frame["numProcs"].isin(processors) & frame["PK"].isin(keys)]
    found = sentences(made(OfSamples(frame)))
    runs = len(processors) * len(keys)
    for sentence in found[: len(keys)]:
        assert sentence.kind == "not shown"
        assert f"{runs} runs leave 1 degree of freedom to tell an effect by" in sentence.text
    # SF and ROSE vary within runs.
    assert found[-1].numbers["degrees of freedom"] == f"{runs - 1}"


def test_a_factor_is_claimed_where_no_path_model_can_be_estimated() -> None:
    """Reads with one number of processors, which the refined model has."""
    frame = planted(5)
    frame = frame[frame["numProcs"] == 2].reset_index(drop=True).assign(mode="read")
    noise = np.random.default_rng(1).normal(0, 0.2, len(frame))
    seen = censored.seen(np.exp(6 + 0.6 * frame["PK"] + noise), np.arange(100.0, 1001, 100))
    frame[seen.columns] = seen
    sections = made(OfSamples(frame))
    keys, *others = sentences(sections)
    assert keys.about == "primary keys" and keys.kind == "shown"
    assert keys.numbers["total effect, refined model, samples that thrashed"] == (
        "cannot be estimated"
    )
    assert {sentence.kind for sentence in others} == {"not shown"}
    assert any("the refined model of reads" in text for text in cannot(sections))


def test_two_dbms_are_too_few_for_any_claim() -> None:
    for sentence in sentences(made(OfSamples(planted(2)))):
        assert sentence.kind == "not shown"
        assert "2 DBMSs leave 1 degree of freedom to tell an effect by" in sentence.text


def test_what_all_that_thrashed_are_alike_in_is_seen_elsewhere() -> None:
    frame = planted(3)
    never = {"TP": np.inf, "low": 1000.0, "high": np.inf, "thrashed": False}
    for name, value in never.items():
        frame[name] = frame[name].where(frame["PK"] == 0, value)
    sections = made(OfSamples(frame))
    _, keys, *_ = sentences(sections)
    n = int(frame["thrashed"].sum())
    assert "all samples that thrashed have PK 0. Whether they thrash at all differs" in keys.text
    assert f"{n} of 72 with that value do, and none of 72 with another" in keys.text
    assert keys.kind == "not shown" and keys.anchor == "causal-logistic-update"
    assert "PK" in [row[0] for row in table(sections, "logistic-update").rows]


def test_processors_that_were_not_seen_are_in_no_model() -> None:
    frame = planted(4)
    frame["numProcs"] = frame["numProcs"].astype(float).where(frame["dbms"] != "d1")
    sections = made(OfSamples(frame))
    processors, *others = sentences(sections)
    assert processors.kind == "not shown"
    assert "moves the thrashing point: the processors of d1 were not seen" in processors.text
    assert [s.numbers["clusters"] for s in others] == ["DBMSs, 4"] * 3
    assert "numProcs" not in str(table(sections, "samples").rows)
    said = cannot(sections)
    assert sum("the processors of d1 were not seen" in text for text in said) >= 5
    assert [row[0] for row in table(sections, "logistic-update").rows] == ["PK", "SF", "ROSE"]
    first = table(sections, "mediation").rows[0]
    assert first[0] == "updates: PK → ATPT → TP"


def test_smoke_noise_that_runs_of_one_dbms_have_in_common_is_hardly_ever_an_effect() -> None:
    """The whole way; the rates are tested in test_censored.py, of what it is made of."""
    wrong, samples = 0, 40
    for seed in range(samples):
        frame = planted(1, seed)
        rng = np.random.default_rng(seed)
        befell = rng.normal(0, 0.4, 7)[frame["run"]]
        log_tp = np.log(700) + befell + rng.normal(0, 0.1, len(frame))
        seen = censored.seen(np.exp(log_tp), np.arange(100.0, 1001, 100))
        frame[seen.columns] = seen
        section = makers()[0](OfSamples(frame), 1)  # type: ignore[arg-type]
        claims = [s for s in sentences([section]) if s.about in ("processors", "primary keys")]
        wrong += any(sentence.kind == "shown" for sentence in claims)
    # 5 % of samples, and no more than three standard errors above it.
    assert wrong <= samples * 0.05 + 3 * np.sqrt(samples * 0.05 * 0.95)


def test_a_factor_between_another_and_the_thrashing_point_is_held_constant() -> None:
    """SF acts on ATPT and TP, ATPT on nothing: nothing of processors goes through it."""
    frame = planted(3)
    rng = np.random.default_rng(5)
    n = len(frame)
    atpt = 2000 * frame["SF"] - 60 * frame["numProcs"] + rng.normal(0, 30, n)
    log_tp = 6.2 - 1.2 * frame["SF"] + 0.02 * frame["numProcs"] + rng.normal(0, 0.2, n)
    frame = frame.assign(ATPT=atpt)
    seen = censored.seen(np.exp(log_tp.to_numpy()), np.arange(20.0, 2001, 20))
    frame[seen.columns] = seen
    first = table(made(OfSamples(frame)), "mediation").rows[0]
    low, high = re.findall(r"[−\d.,]+", first[3])[1:]
    assert float(low.replace("−", "-")) < 0 < float(high)


def test_models_are_tested_for_what_they_leave_out(
    chapter: list[Section], results: Results
) -> None:
    samples = results.samples(1)
    thrashed = samples[(samples["mode"] == "read") & samples["thrashed"]]
    alone, beside, initial = table(chapter, "structural-read").rows
    assert alone[1] == "0 (0)" and alone[2:6] == ("–",) * 4
    assert alone[-1] == "leaves no path out, so nothing can be tested"
    fit = estimate.fit(model.study("refined, read"), thrashed)
    found = estimate.structural(fit, beside=["SF", "ROSE"])
    assert beside[0] == "refined, read: SF and ROSE act on nothing"
    assert beside[1:4] == (
        f"{words.number(found.chi2)} (4)", words.p_value(found.p), words.number(found.indices.cfi)
    )  # fmt: skip
    assert ("do not contradict" in beside[-1]) == (found.p >= 0.05)
    assert initial[0].startswith("initial, read") and "(2)" in initial[1]


def test_a_factor_that_a_model_wrongly_leaves_out_contradicts_it() -> None:
    said = {}
    for name, slope in (("nothing", 0.0), ("SF", -400.0)):
        rng = np.random.default_rng(8)
        frame = planted(3)
        tp = 900 - 60 * frame["numProcs"] + slope * frame["SF"] + rng.normal(0, 60, len(frame))
        frame = frame.assign(TP=tp, low=tp, high=tp + 1, thrashed=True)
        paths = makers()[NAMES.index("paths")](OfSamples(frame), 1)  # type: ignore[arg-type]
        rows = {row[0]: row for row in table([paths], "structural-update").rows}
        said[name] = rows["refined, update: PK, SF and ROSE act on nothing"]
    assert "do not contradict" in said["nothing"][-1]
    assert said["SF"][2] == "below 0.001"
    assert "something it leaves out is there, and by the indices" in said["SF"][-1]


def test_a_bend_is_found_and_a_straight_line_stands() -> None:
    rng = np.random.default_rng(3)
    frame = planted(5)
    procs = frame["numProcs"]
    log_tp = 5.4 + 0.9 * procs - 0.2 * procs**2 + rng.normal(0, 0.1, len(frame))
    seen = censored.seen(np.exp(log_tp.to_numpy()), np.arange(20.0, 1001, 20))
    bent = frame.assign(**{name: seen[name] for name in seen.columns})
    section = makers()[NAMES.index("censored")](OfSamples(bent), 1)  # type: ignore[arg-type]
    bends = table([section], "bends-update")
    rows = {row[0].split(" ")[0]: row for row in bends.rows}
    assert list(rows) == ["numProcs", "ROSE", "ATPT"]
    # The vertex is at 2.25 processors, the halves meet at 2.5.
    assert rows["numProcs"][0] == "numProcs 2.50"
    assert "its effect turns within its range" in rows["numProcs"][-1]
    lower, upper = (re.match(r"[−\d.]+", text) for text in rows["numProcs"][1:3])
    # exp(0.9 · 1.5 − 0.2 · (2.5² − 1)) − 1 and exp(0.9 · 1.5 − 0.2 · (4² − 2.5²)) − 1.
    assert lower and abs(float(lower.group()) - 35) < 8
    assert upper and abs(float(upper.group().replace("−", "-")) + 45) < 8
    assert rows["ROSE"][-1].startswith("no bend is seen")
    assert "the two values of PK and SF everything is straight" in bends.note


def test_what_is_too_few_for_a_test_is_refused_in_its_row() -> None:
    few = planted(1)[lambda t: t["thrashed"]].head(25)
    sections = made(OfSamples(few))
    rows = table(sections, "structural-update").rows
    assert any("not tested: " in row[-1] for row in rows)
    for row in table(sections, "bends-update").rows:
        assert row[1:4] == ("–",) * 3
        assert re.search(r"not tested: \d coefficients need \d+ samples that thrashed", row[-1])
    two = planted(3).assign(ATPT=lambda t: 1.0 + t["PK"])
    alike = made(OfSamples(two[two["numProcs"] < 4].assign(ROSE=25.0)))
    assert any("through two points everything is straight" in text for text in cannot(alike))


def test_correlated_errors_have_their_correction_beside_them() -> None:
    frame = planted(3).sort_values(["dbms", "run"], ignore_index=True)
    drift = 80 * np.sin(np.arange(len(frame)) / 6)
    sections = made(OfSamples(frame.assign(ATPT=frame["ATPT"] + drift)))
    rows = table(sections, "correction-update").rows
    names = [row[0] for row in rows]
    assert "ATPT: intercept[d0]" in names and "ATPT: numProcs" in names
    least_squares = {row[0]: row[1] for row in rows}
    assert least_squares["ATPT: intercept[d0]"] == "–" != least_squares["ATPT: numProcs"]
    before, after = map(float, rows[0][-1].split(", then "))
    assert before < 1.5 < after
    within = table(sections, "independence-update").rows
    assert [row[0] for row in within][:3] == ["ATPT: d0", "ATPT: d1", "ATPT: d2"]


def test_a_correction_that_is_missing_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def settles_not(_: object) -> None:
        raise SampleError("ρ has not settled", "look for a trend")

    monkeypatch.setattr(_checks, "cochrane_orcutt", settles_not)
    frame = planted(3).sort_values(["dbms", "run"], ignore_index=True)
    drift = 80 * np.sin(np.arange(len(frame)) / 6)
    sections = made(OfSamples(frame.assign(ATPT=frame["ATPT"] + drift)))
    note = table(sections, "assumptions-update").note
    said = "Of ATPT there is no Cochrane–Orcutt estimate: ρ has not settled: look for a trend."
    assert said in note


def test_a_dbms_that_cannot_be_tested_alone_says_why() -> None:
    frame = planted(3)
    frame["ATPT"] = frame["ATPT"].where(frame["dbms"] != "d1", 900.0)
    rows = {row[0]: row for row in table(made(OfSamples(frame)), "independence-update").rows}
    assert rows["ATPT: d1"][2:] == ("–", "not tested: the outcome is the same in all its samples")
    assert "not tested" not in rows["ATPT: d0"][3]


def test_a_correlation_that_would_grow_is_a_reason_and_no_number() -> None:
    frame = planted(3).sort_values(["dbms", "run"], ignore_index=True)
    place = frame[frame["thrashed"]].groupby("dbms").cumcount().reindex(frame.index, fill_value=0)
    sections = made(OfSamples(frame.assign(ATPT=frame["ATPT"] + 1.5**place)))
    note = table(sections, "assumptions-update").note
    assert re.search(
        r"Of ATPT there is no Cochrane–Orcutt estimate: .* correlated by ρ = 1\.", note
    )
    tables = [p for s in sections for p in s.parts if isinstance(p, Table)]
    corrected = [row[0] for t in tables if t.name == "causal-correction-update" for row in t.rows]
    assert not any(name.startswith("ATPT") for name in corrected)


def test_what_refinement_lost_is_told_for_each_equation_and_the_model(
    chapter: list[Section], results: Results
) -> None:
    samples = results.samples(1)
    thrashed = samples[(samples["mode"] == "read") & samples["thrashed"]].reset_index(drop=True)
    half, _ = estimate.split(thrashed, seed=1)
    lost = estimate.refine(model.study("initial, read"), half).comparison()
    shown = table(chapter, "lost-read")
    assert [row[0] for row in shown.rows] == [*lost["outcome"]] == [*lost["outcome"][:-1], "model"]
    for row, wanted in zip(shown.rows, lost.to_dict("records"), strict=True):
        assert row[3] == words.number(wanted["r2_lost"])
        assert row[9] == words.number(wanted["aic_refined"])
        if wanted["df1"]:
            assert row[6].startswith(f"{words.number(wanted['LR'])} ({wanted['df1']:.0f})")
            assert row[7] == words.p_value(wanted["p_LR"])
        else:
            assert row[4:8] == ("–",) * 4
    assert shown.rows[-1][4:6] == ("–", "–")  # F is of one equation


class OnMachine(OfSamples):
    """Samples of a machine of which something is known."""

    def __init__(self, samples: pd.DataFrame, processors: int) -> None:
        super().__init__(samples)
        self._processors = processors

    def experiment(self, number: int) -> pd.DataFrame:
        return super().experiment(number).assign(machine_processors=self._processors)


@pytest.mark.parametrize(("machine", "is_said"), [(4, True), (8, False)])
def test_a_dbms_that_gets_the_whole_machine_shares_it_with_the_clients(
    machine: int, is_said: bool
) -> None:
    first = makers()[0]
    section = first(OnMachine(planted(3), machine), 1)  # type: ignore[arg-type]
    said = [p.text for p in section.parts if isinstance(p, Paragraph)]
    assert (words.SHARED_PROCESSORS in said) == is_said
    one = planted(3)[lambda t: t["numProcs"] == 4]
    section = first(OnMachine(one, 4), 1)  # type: ignore[arg-type]
    assert words.SHARED_PROCESSORS not in str(section.parts)


def test_smoke_in_noise_claims_are_rare() -> None:
    wrong, samples = 0, 40
    for seed in range(samples):
        frame = planted(5, seed)
        rng = np.random.default_rng(seed)
        shuffled = frame.assign(
            numProcs=rng.permutation(frame["numProcs"]), PK=rng.permutation(frame["PK"])
        )
        first = makers()[0]
        section = first(OfSamples(shuffled), 1)  # type: ignore[arg-type]
        wrong += any(sentence.kind == "shown" for sentence in sentences([section]))
    # 5 % of samples, and no more than three standard errors above it.
    assert wrong <= samples * 0.05 + 3 * np.sqrt(samples * 0.05 * 0.95)


def test_a_sample_that_is_too_small_says_so_in_place_of_everything() -> None:
    few = planted(1).groupby("thrashed").head(3)
    sections = made(OfSamples(few))
    assert all(sentence.kind == "not shown" for sentence in sentences(sections))
    said = cannot(sections)
    assert len(said) >= 6
    # What cannot be shown, why, and what to do.
    assert all(re.search(r": .+\. [A-Z`].+\.$", text) for text in said)


def test_samples_of_which_none_or_all_thrashed() -> None:
    frame = planted(3)
    never = made(OfSamples(frame[~frame["thrashed"]]))
    assert sum("0 of " in text for text in cannot(never)) >= 6
    assert all(sentence.kind == "not shown" for sentence in sentences(never))
    assert "fewer than half thrash" in figures(never)["causal-survival"].alt
    always = made(OfSamples(frame[frame["thrashed"]]))
    assert any("whether updates thrash at all" in text for text in cannot(always))
    assert table(always, "samples").rows[0][3] == "0"


def test_a_factor_that_is_constant_is_left_out() -> None:
    sections = made(OfSamples(planted(3).assign(PK=1)))
    about = [sentence.about for sentence in sentences(sections)]
    assert about == ["processors", "size of transactions", "range of rows"]
    assert any("PK → ATPT" in text and "is the same" in text for text in cannot(sections))


def test_any_part_of_a_sample_makes_a_chapter() -> None:
    whole = planted(3)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        part = whole
        for name in ("dbms", "numProcs", "PK"):
            if rng.random() < 0.3:
                part = part[part[name] == rng.choice(part[name].unique())]
        part = part.sample(min(len(part), int(rng.choice([1, 4, 8, 20, 60]))), random_state=seed)
        if seed % 4 == 0:
            part = part.assign(ATPT=2.0 * part["numProcs"])
        sections = made(OfSamples(part))
        assert [section.name for section in sections] == NAMES, seed
        assert all(section.parts for section in sections), seed


def test_other_scenarios_have_no_such_chapter() -> None:
    results = OfSamples(planted(3), scenario="priority")
    sections = made(results)
    assert "scenario `thrash`, and this is `priority`" in sections[0].missing
    assert not any(section.parts or section.missing for section in sections[1:])
    assert results.loaded == 0


def test_an_experiment_that_was_not_analysed_says_what_to_do(tmp_path: Path) -> None:
    design = examples.ExampleDesign(subjects=("alpha",), processors=(1,), repetitions=1)
    store = examples.write_store(tmp_path / "new.db", design, analysed=False)
    sections = made(load(store))
    assert "`tidegate lab tap 1`" in sections[0].missing


def test_samples_are_loaded_once() -> None:
    results = OfSamples(planted(1).head(30))
    made(results)
    assert results.loaded == 1


def test_the_chapter_is_in_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other chapters' panels take most of the time.
    monkeypatch.setattr(_throughput, "MOST_PANELS", 1)
    design = examples.ExampleDesign(
        subjects=("alpha",), processors=(1, 4), read_sf=(0.1,), update_sf=(1.0,), repetitions=1
    )
    results = load(examples.write_store(tmp_path / "small.db", design))
    report.write(results, [1], tmp_path, more=makers())
    page = (tmp_path / "report.html").read_text()
    for name in NAMES:
        assert f'id="e1-s-{name}"' in page
    static = re.sub(r"(?s)<script.*?</script>", "", page)
    ids = re.findall(r'\sid="([^"]+)"', static)
    assert len(ids) == len(set(ids))
    assert not re.search(r"<svg[^>]*role=[^>]*role=", static)
    advice = pd.read_csv(tmp_path / "data" / "advice.csv")
    assert advice["sentence"].str.contains("move the thrashing point|moves the").any()
