"""Advice: claims where the sample shows something, and nothing where it does not."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from report_stand_in import (
    COLUMNS,
    HILL,
    KEY,
    StandIn,
    about_of,
    controlled,
    curve,
    design,
    figure,
    priority,
    sentences,
    written,
)
from scipy import stats

from tidegate_analysis import report, scalability
from tidegate_analysis.report import _factors
from tidegate_analysis.report import _inference as inference
from tidegate_analysis.report._levels import _group_gain, held
from tidegate_analysis.report._parts import adjusted_claims
from tidegate_analysis.report._throughput import throughput
from tidegate_analysis.report._time import groups
from tidegate_analysis.report._treatments import _best_setting
from tidegate_analysis.report._view import View


def test_a_level_within_five_per_cent_is_advised_where_repetitions_show_it() -> None:
    # 64 has 99 % of the best and is above it; 4 has 90 %: too little.
    sentence = about_of(curve(HILL), "which MPL to set")
    assert sentence.kind == "shown"
    assert sentence.text.startswith("Set MPL 16: it gives 1,0")
    gain = about_of(curve(HILL), "what Tidegate would gain")
    assert gain.kind == "shown"
    assert "gives 2.5" in gain.text and "Little's law" in gain.text


def test_noise_that_hides_the_lowest_level_is_said() -> None:
    near = {1: 970.0, 4: 1_000.0, 16: 500.0}
    sure = about_of(curve(near, repetitions=8, noise=0.002), "which MPL to set")
    assert sure.text.startswith("Set MPL 1: ")
    unsure = about_of(curve(near, repetitions=3, noise=0.1), "which MPL to set")
    assert unsure.kind == "not shown"
    assert "MPL 4 is best" in unsure.text or "MPL 1 is best" in unsure.text


@pytest.mark.parametrize("repetitions", [1, 2])
def test_too_few_repetitions_show_nothing(repetitions: int) -> None:
    found = sentences(curve(HILL, repetitions=repetitions))
    assert [sentence.kind for sentence in found] == ["not shown"]
    assert "his sample cannot show which MPL is best" in found[0].text


def test_a_flat_curve_shows_no_gain() -> None:
    flat = dict.fromkeys((1, 4, 16, 64), 1_000.0)
    gain = about_of(curve(flat, repetitions=5, noise=0.05), "what Tidegate would gain")
    assert gain.kind == "not shown"


def test_flat_curves_are_said_to_gain_in_few_of_many_samples() -> None:
    rng = np.random.default_rng(5)
    wrong, samples, levels = 0, 200, 6
    for _ in range(samples):
        flat = np.exp(0.05 * rng.standard_normal((levels, 5)))
        table = pd.DataFrame({"mpl": np.repeat(np.arange(1, levels + 1), 5), "tps": flat.ravel()})
        found = scalability.gain(table, draws=400)
        wrong += found.best != levels and found.low > 1
    # 2.5 % on that side, and no more than three standard errors above it.
    assert wrong <= samples * 0.025 + 3 * np.sqrt(samples * 0.025 * 0.975)


def ratio_in(sentence: report.Sentence) -> float:
    """Return the ratio that a sentence claims."""
    found = re.search(r"gives ([\d.]+) times", sentence.text)
    assert found, sentence.text
    return float(found.group(1))


@pytest.mark.parametrize(
    ("factor", "about", "planted"),
    [("PK", "primary keys", 1.5), ("PK", "primary keys", 0.7), ("numProcs", "processors", 0.7)],
)
def test_a_planted_effect_is_found_and_others_are_not(
    factor: str, about: str, planted: float
) -> None:
    found = sentences(design({factor: planted}, processors=(1, 2, 4, 8)))
    shown = [s for s in found if s.kind == "shown" and "times the best throughput" in s.text]
    assert {s.about for s in shown if "too little" not in s.text} == {about}
    (sentence,) = (s for s in shown if s.about == about)
    doublings, batchsets = (3, 32) if factor == "numProcs" else (1, 64)
    assert ratio_in(sentence) == pytest.approx(planted**doublings, rel=0.02)
    assert sentence.numbers["runs"] == "8" and "8 runs" in sentence.text
    assert sentence.numbers["batchsets at each level"] == f"{batchsets} of {batchsets}"


@pytest.mark.parametrize(("times", "rows"), [(1.4, 0.35), (4.0, 1.0), (8.0, 2.0)])
def test_shorter_transactions_are_compared_at_equal_work(times: float, rows: float) -> None:
    """A quarter of the rows each: so many times the transactions are a quarter of it in rows."""
    found = [s for s in sentences(design({"sf": times})) if s.about == "shorter transactions"]
    (sentence,) = (s for s in found if "rows a second" in s.text)
    if rows == 1.0:
        assert sentence.kind == "not shown" or "too little" in sentence.text
    else:
        assert sentence.kind == "shown" and "transactions a second times SF" in sentence.text
        assert ratio_in(sentence) == pytest.approx(rows, rel=0.02)


@pytest.mark.parametrize("levels", [2, 4])
def test_noise_of_blocks_is_shown_as_often_as_promised(levels: int) -> None:
    """What is asked of runs that differ in keys, in processors, or of SFs within runs."""
    rng = np.random.default_rng(8)
    samples, wrong = 2_000, 0
    place = np.log2(np.arange(1, levels + 1)) / np.log2(levels)
    for _ in range(samples):
        logs = 2 * rng.standard_normal((4, 1)) + rng.standard_normal((4, levels))
        found = inference.of_blocks(logs, place)
        assert found is not None
        wrong += inference.is_shown(found.p)
    assert abs(wrong / samples - 0.05) <= 3 * np.sqrt(0.05 * 0.95 / samples)


@pytest.mark.parametrize(("blocks", "levels"), [(8, 2), (20, 2), (10, 4)])
def test_noise_of_blocks_moves_thrashing_points_no_more_often_than_promised(
    blocks: int, levels: int
) -> None:
    """Mean ranks of runs, some of them alike, in the numbers of blocks that files have."""
    rng = np.random.default_rng(12)
    samples, wrong = 300, 0
    slope = np.log2(np.arange(1, levels + 1))
    slope -= slope.mean()
    for _ in range(samples):
        ranks = rng.integers(0, 5, (blocks, levels)).astype(float)
        p = inference.permuted(ranks, lambda drawn: np.abs((drawn @ slope).sum(axis=-1)), draws=499)
        wrong += inference.is_shown(p)
    assert wrong <= samples * 0.05 + 3 * np.sqrt(samples * 0.05 * 0.95)


def test_runs_are_the_values_of_shorter_transactions() -> None:
    """The effect of SF hangs on keys: four runs say two things, and their batchsets no more."""
    made = design({"sf": 4.0})
    is_short = made.table["workload_values"].map(lambda text: json.loads(text)["sf"] == 0.25)
    made.table.loc[is_short & (made.table["primary_key"] == 0), "tps"] *= 3
    (ratio,) = [
        s for s in sentences(made)
        if s.about == "shorter transactions" and "rows a second" in s.text
    ]  # fmt: skip
    # Logarithms of 1, 1, 3 and 3: by 16 pairs of batchsets t is 4.
    assert ratio.kind == "not shown" and "4 runs" in ratio.text
    assert ratio.numbers["runs"] == "4" and "n = 4" in ratio.numbers["ratio"]


def test_smoke_noise_that_runs_have_in_common_is_hardly_ever_an_effect() -> None:
    """The whole way; the rates are tested above, of what it is made of."""
    wrong, samples = 0, 40
    for seed in range(samples):
        made = design({}, processors=(1, 2, 4, 8), of_run=0.2, seed=seed)
        found = [s for s in sentences(made) if "best throughput" in s.text]
        assert {s.about for s in found} == {"processors", "primary keys"}
        wrong += any(s.kind == "shown" for s in found)
    # 5 % of samples, and no more than three standard errors above it.
    assert wrong <= samples * 0.05 + 3 * np.sqrt(samples * 0.05 * 0.95)


def test_too_few_runs_show_nothing() -> None:
    """Two pairs of runs are two values, however many batchsets they have."""
    found = [s for s in sentences(design({"PK": 1.5})) if s.about == "primary keys"]
    assert found and all(s.kind == "not shown" for s in found)
    assert "4 runs that differ in nothing else are too few" in found[0].text
    assert ", by design: the experiment plans no more of this DBMS" in found[0].text
    assert "the ratio in them is 1.5" in found[0].text


def test_runs_that_are_still_to_be_measured_are_not_missing_by_design() -> None:
    made = design({"PK": 1.5}, processors=(1, 2, 4, 8))
    later = made.table["processors_planned"] > 2
    columns = ["tps", "transactions", "attempt"]
    made.table.loc[later, columns] = np.nan
    found = [s for s in sentences(made) if s.about == "primary keys"]
    assert "4 runs that differ in nothing else are too few; the ratio" in found[0].text
    assert "by design" not in found[0].text


def test_several_dbms_show_together_what_two_pairs_of_runs_of_each_cannot() -> None:
    """Each DBMS is a value: one in which keys do the opposite takes the claim back."""

    def together(made: StandIn) -> report.Sentence:
        found = [
            s for s in sentences(made) if s.about == "primary keys" and "in the mean" in s.text
        ]
        (sentence,) = found
        return sentence

    made = design({"PK": 2.0}, subjects=("a", "b", "c", "d"))
    shown = together(made)
    assert shown.kind == "shown" and "4 DBMSs together, update: a primary key" in shown.text
    assert ratio_in(shown) == pytest.approx(2, rel=0.02)
    assert "n = 4" in shown.numbers["ratio"] and shown.numbers["runs"] == "16"
    other = (made.table["subject"] == "d") & (made.table["primary_key"] == 1)
    made.table.loc[other, "tps"] /= 5
    assert together(made).kind == "not shown"
    two = together(design({"PK": 2.0}, subjects=("a", "b")))
    assert two.kind == "not shown" and "2 DBMSs are too few" in two.text


def of_points(made: StandIn, about: str) -> report.Sentence:
    """Return the sentence about a factor and the thrashing points of all DBMSs."""
    found = [s for s in sentences(made) if "the thrashing point" in s.text and s.about == about]
    (sentence,) = found
    return sentence


def test_thrashing_points_that_move_with_processors_are_said_to() -> None:
    """Four DBMSs, two numbers of processors, keys: as small as an experiment file is."""
    made = design({}, subjects=("a", "b", "c", "d"))
    processors = of_points(made, "processors")
    assert (
        "4 DBMSs together, update: 2 processors instead of 1 processor raises the thrashing "
        in (processors.text)
    )
    assert "it rises in 128, falls in 0 and stays in 0 of 128 batchsets" in processors.text
    assert processors.numbers["runs"] == "16"
    keys = of_points(made, "primary keys")
    assert keys.kind == "not shown" and "stays in 128 of 128" in keys.text
    shorter = of_points(made, "shorter transactions")
    assert shorter.kind == "not shown" and shorter.numbers["runs"] == "16"
    few = of_points(design({}), "processors")
    assert few.kind == "not shown" and "rises in 32" in few.text
    assert few.text.startswith("Embedded, update: ") and "4 runs are too few for a test" in few.text


def test_keys_and_sf_that_move_thrashing_points_are_said_to() -> None:
    made = design({}, subjects=("a", "b", "c", "d"))
    points = made.frames["points"]
    of_run = made.table.drop_duplicates("run").set_index("run")["primary_key"]
    keyed = points["run"].map(of_run).eq(1)
    points.loc[keyed, ["low", "high", "thrashing_point"]] //= 2
    assert "lowers the thrashing point: it rises in 0, falls in 128" in (
        of_points(made, "primary keys").text
    )
    # SF is 0.25 in the first four batchsets of a run, and 1 in the last.
    shortest = points["batchset"] <= 4
    points.loc[shortest, ["low", "high", "thrashing_point"]] *= 2
    shorter = of_points(made, "shorter transactions").text
    assert "raises the thrashing point: it rises in 64, falls in 0" in shorter
    assert "16 runs" in shorter


def test_few_runs_that_fall_and_many_batchsets_that_rise_are_no_direction() -> None:
    """Ten runs without exception against five in which twelve batchsets of twenty rise."""
    rows = [
        (f"{run}", value, batchset, low + value * way)
        for run in range(15)
        for batchset in range(1 if run < 10 else 20)
        for way in [-100 if run < 10 or batchset < 8 else 100]
        for low in [500]
        for value in (0, 1)
    ]
    table = pd.DataFrame(rows, columns=["subject", "PK", "batchset", "TP"])
    table = table.assign(isolation="", settings="", numProcs="1", mode="update")
    keys = [name for name in table if name not in ("PK", "TP")]
    factor = next(one for one in _factors._FACTORS if one.name == "PK")
    compared = _factors._FactorLevels(factor, table, keys, np.array([0.0, 1.0]), 15)
    claim = _factors._points(compared)
    assert isinstance(claim, report.Claim) and claim.p < 0.05
    said = claim.sentence(claim.p)
    assert said.kind == "not shown" and "rises in 60, falls in 50" in said.text
    assert "the numbers of these moves and their sizes disagree" in said.text


def test_no_number_is_no_evidence() -> None:
    nothing = float("nan")
    assert not inference.is_shown(nothing) and not inference.is_shown(0.05)
    assert inference.permuted([[0.1, 0.2]] * 9, lambda t: np.full(len(t), nothing), draws=99) == 1
    own = {"isolation": "", "settings": "", "numProcs": "1", "mode": "read"}
    keys = ["subject", *own]
    table = pd.DataFrame({"subject": list("aabbccddeeff"), "PK": [0.0, 1.0] * 6, **own})
    table["TP"] = 100 + table["PK"]
    factor = next(one for one in _factors._FACTORS if one.name == "PK")
    claim = _factors._points(_factors._FactorLevels(factor, table, keys, np.array([0.0, 1.0]), 6))
    assert isinstance(claim, report.Claim)
    assert claim.sentence(0.04).kind == "shown" and claim.sentence(nothing).kind == "not shown"


def thrashing_in(
    shares: Mapping[str, float], processors: tuple[int, ...] = (1, 2, 4, 8), seed: int = 1
) -> StandIn:
    """Return a design whose subjects thrash in so large a share of their batchsets."""
    made = design({}, subjects=tuple(shares), processors=processors)
    points = made.frames["points"]
    subjects = made.table.drop_duplicates("run").set_index("run")["subject"]
    chance = points["run"].map(subjects).map(shares)
    thrashes = np.random.default_rng(seed).random(len(points)) < chance
    points.loc[~thrashes, "high"] = None
    return made


def test_dbmss_that_thrash_unequally_are_said_to() -> None:
    made = thrashing_in({"a": 0.9, "b": 0.4, "c": 0.45})
    # Each has its own settings.
    made.table.loc[made.table["subject"] == "b", "settings_planned"] = '{"buffers": "256MB"}'
    made.table.loc[made.table["subject"] == "c", "isolation"] = "serializable"
    difference = sentences(made)[-1]
    assert difference.kind == "shown"
    assert "over 128 batchsets of 8 runs that all have" in difference.text
    assert "In this sample a does most often" in difference.text
    # One run of each shows nothing, and a subject that was hardly analysed is not in it.
    points = made.frames["points"]
    first = made.table.drop_duplicates(["subject", "run"]).groupby("subject")["run"].min()
    made.frames["points"] = points[points["run"].isin(first)]
    one = sentences(made)[-1]
    assert one.kind == "not shown" and "1 run of each can be compared" in one.text
    made.frames["points"] = points[(points["run"] > first["b"] - 1) | (points["run"] == 1)].drop(
        index=points.index[points["run"] == 1][5:]
    )
    assert "a thrashes in" in "".join(s.text.lower() for s in sentences(made))
    assert "a" not in sentences(made)[-1].numbers


def spread(tables: np.ndarray) -> np.ndarray:
    found: np.ndarray = tables.mean(axis=-2).var(axis=-1)
    return found


def test_the_permutation_holds_its_level_and_finds_what_is_there() -> None:
    rng = np.random.default_rng(3)
    samples, wrong = 200, 0
    for _ in range(samples):
        of_run = rng.random((6, 1))
        shares = rng.binomial(16, np.repeat(of_run, 3, axis=1)) / 16
        wrong += inference.permuted(shares, spread, draws=499) <= 0.05
    assert wrong <= samples * 0.05 + 3 * np.sqrt(samples * 0.05 * 0.95)
    assert inference.permuted([[0.1, 0.2, 0.3]], spread) == 1
    assert inference.permuted(np.tile([0.1, 0.5, 0.9], (5, 1)), spread) < 0.01


def test_blocks_of_two_are_the_paired_t_and_of_more_a_line() -> None:
    pairs = np.array([[1.0, 1.3], [0.2, 0.4], [0.5, 0.95], [2.0, 2.2]])
    ours = inference.of_blocks(pairs, np.array([0.0, 1.0]))
    known = stats.ttest_rel(pairs[:, 1], pairs[:, 0])
    interval = known.confidence_interval()
    assert ours is not None and ours.p == pytest.approx(known.pvalue)
    assert np.log([ours.low, ours.high]) == pytest.approx([interval.low, interval.high])
    # Least squares with an intercept for each block.
    place, blocks = np.array([0.0, 0.3, 1.0]), np.array([[1.0, 1.2, 1.9], [0.3, 0.2, 1.1]])
    design = np.column_stack([np.tile(place, 2), np.repeat(np.eye(2), 3, axis=0)])
    fit = sm.OLS(blocks.ravel(), design).fit()
    ours = inference.of_blocks(blocks, place)
    assert ours is not None and ours.p == pytest.approx(fit.pvalues[0])
    assert np.log([ours.low, ours.high]) == pytest.approx(fit.conf_int()[0])
    assert inference.of_blocks(pairs[:2], np.array([0.0, 1.0])) is None


def test_a_limit_for_many_batchsets_has_no_winners_curse() -> None:
    """Flat curves: a level that others chose gains nothing, and the best of all seems to."""
    rng = np.random.default_rng(4)
    samples, wrong, luck = 400, 0, []
    for _ in range(samples):
        index = pd.MultiIndex.from_product([range(3), range(4)], names=["run", "batchset"])
        table = pd.DataFrame(np.exp(0.05 * rng.standard_normal((12, 8))), index=index)
        best = np.log(table).mean().to_numpy().argmax()
        gain = _group_gain("", table, float(best), 7.0, {}, those="all 12 batchsets")
        said = gain.sentence(gain.p) if isinstance(gain, report.Claim) else gain
        wrong += said.kind == "shown"
        luck.append(float(np.log(table).mean().max() - np.log(table[7]).mean()))
    assert wrong <= samples * 0.025 + 3 * np.sqrt(samples * 0.025 * 0.975)
    assert np.mean(luck) > 0.01
    table[3] *= 1.3
    gain = _group_gain("", table, 3.0, 7.0, {}, those="all 12 batchsets")
    assert isinstance(gain, report.Claim)
    said = gain.sentence(gain.p)
    assert said.kind == "shown" and "one limit for all 12 batchsets, 3 here" in said.text


def test_levels_are_chosen_by_other_runs() -> None:
    """The first run has all of its own luck at level 1, the second at level 2."""
    index = pd.MultiIndex.from_tuples([(1, 1), (1, 2), (2, 1), (2, 2)], names=["run", "batchset"])
    table = pd.DataFrame({1: [9.0, 9, 1, 2], 2: [3.0, 4, 8, 8], 3: [1.0, 1, 1, 1]}, index=index)
    assert held(table).tolist() == [3, 4, 1, 2]
    # Of one run, by the other batchset.
    assert held(table.loc[[1]]).tolist() == [9, 9]


def test_which_setting_is_best_counts_all_pairs() -> None:
    """Nine settings alike: the best of them is better than another in few samples."""
    rng = np.random.default_rng(6)
    samples, wrong = 200, 0
    for _ in range(samples):
        each = {f"c={i}": np.exp(0.05 * rng.standard_normal(5)) for i in range(9)}
        wrong += _best_setting("", each, 36).kind == "shown"
    assert wrong <= samples * 0.05 + 3 * np.sqrt(samples * 0.05 * 0.95)
    each["c=0"] *= 2
    assert _best_setting("", each, 36).kind == "shown"


def test_priority_is_claimed_where_repetitions_show_it() -> None:
    def told(normal: tuple[float, ...]) -> list[report.Sentence]:
        made = priority()
        rows = made.frames["classes"]
        given = (rows["batchset"] == 1) & (rows["class"] == "normal")
        rows.loc[given, "mean_ms"] = [x for _ in range(2) for x in normal]
        return [s for s in sentences(made) if s.about == "priority"]

    # In the mean slower than 100 ms, by chance.
    faster, slower = told((80.0, 150.0, 130.0))[:2]
    assert faster.kind == "shown" and slower.kind == "not shown"
    assert "cannot show a difference: in it normal transactions were 16 % slower" in slower.text
    assert all(s.kind == "shown" for s in told((119.0, 120.0, 121.0)))


def test_claims_of_an_experiment_are_one_family() -> None:
    def claim(p: float) -> report.Claim:
        return report.Claim(p, lambda q: report.Sentence("a", f"p is {q:.3f}", "shown", ""))

    sections = [
        report.Section("one", "One", [report.Advice([claim(0.01), claim(0.04)], ())]),
        report.Section("two", "Two", [report.Advice([claim(0.03)], ())]),
    ]
    texts = [
        each.text
        for section in adjusted_claims(sections)
        for part in section.parts
        if isinstance(part, report.Advice)
        for each in part.sentences
        if isinstance(each, report.Sentence)
    ]
    assert texts == ["P is 0.030", "P is 0.060", "P is 0.060"]


def dropping(made: StandIn, executions: Sequence[int]) -> StandIn:
    """Return the results after an analysis that dropped these executions."""
    rows = made.table[made.table["execution"].isin(executions)]
    made.frames["drops"] = rows[KEY].assign(
        analysis=1, step="2", name="connection_time_limit", why="too long"
    )
    return made


def test_executions_that_the_protocol_dropped_are_in_nothing(tmp_path: Path) -> None:
    made = curve(HILL)
    last = made.table.loc[made.table["mpl"] == 256, "execution"].tolist()
    _, page = written(dropping(made, last), tmp_path)
    text = "".join(page.data)
    assert "15 executions of 15 planned" in text
    assert "dropped 3 executions of 15 (connection time limit 3)" in text
    assert "is the last level" not in text and "loss" in text
    table = pd.read_csv(tmp_path / "data" / "curves.csv")
    assert table["mpl"].tolist() == [1, 4, 16, 64]
    assert scalability.fit(View(made, 1).done).curve.levels.tolist() == [1, 4, 16, 64]
    gain = about_of(made, "what Tidegate would gain")
    assert "better than 64" in gain.text or "where 64 would come" in gain.text
    everything = dropping(curve(HILL), made.table["execution"].tolist())
    _, page = written(everything, tmp_path / "all")
    assert "the analysis protocol dropped all that were" in "".join(page.data)


def test_what_collapsed_and_was_dropped_is_counted(tmp_path: Path) -> None:
    """Half of the batchsets lose their last level to the protocol: what is left are the others."""
    made = design({})
    rows = made.table
    lost = rows[(rows["mpl"] == 400) & (rows["batchset"] % 2 == 1)]
    dropping(made, lost["execution"].tolist())
    view = View(made, 1)
    assert view.summary["loss"].isna().sum() == 32
    assert view.summary["loss"].dropna().between(0.6, 0.8).all()
    assert groups(view)[0].label in set(view.summary.loc[view.summary["loss"].isna(), "label"])
    set_to = about_of(made, "which MPL to set")
    assert "over 32 of 64 batchsets (the others lack a level), set MPL 100" in set_to.text
    gain = about_of(made, "what Tidegate would gain")
    assert "one limit for 32 of 64 batchsets" in gain.text
    assert gain.numbers["batchsets with all levels"] == "32 of 64"
    section = throughput(view)
    drawn = figure(section, "throughput")
    assert "the fewest, 32 of 64 batchsets, of embedded at MPL 400" in drawn.caption
    assert "half of the 32 of 64 batchsets at MPL 400 keep" in drawn.alt
    glance = figure(section, "glance")
    assert "32 of 32 batchsets with the last level lose more than half" in glance.alt
    assert "white is not measured or dropped" in glance.caption
    said = "".join(part.text for part in section.parts if isinstance(part, report.Paragraph))
    assert "32 batchsets of unknown loss there count as losing more" in said
    assert "the fewest" not in figure(throughput(View(design({}), 1)), "throughput").caption


def test_violated_conditions_and_a_busy_load_generator_are_warnings() -> None:
    made = curve(HILL)
    made.table["client_core_share"] = 0.99
    made.frames["conditions"] = pd.DataFrame(
        [(1, 1, 1, 1, 1, "sums agree", 0, "they do not")], columns=COLUMNS["conditions"]
    )
    warnings = {s.about for s in sentences(made) if s.kind == "warning"}
    assert warnings == {"consistency", "load generator"}


@pytest.mark.parametrize(("machine", "is_said"), [(4, True), (8, False)])
def test_processors_up_to_all_of_the_machine_are_a_warning(machine: int, is_said: bool) -> None:
    made = design({}, processors=(1, 2, 4))
    made.table["machine_processors"] = float(machine)
    found = {s.about: s for s in sentences(made) if s.kind == "warning"}
    assert ("shared processors" in found) == is_said
    if is_said:
        assert "cannot be told from that" in found["shared processors"].text


def test_every_sentence_points_to_something(tmp_path: Path) -> None:
    for name, made in (("a", curve(HILL)), ("b", controlled())):
        text, _ = written(made, tmp_path / name)
        listed = text[text.index('<ul class="advice">') : text.index('<details class="rules">')]
        assert listed.count("<li ") == listed.count('<a href="#e1-')
