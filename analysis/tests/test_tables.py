"""The study's tables, its pipeline, and the command line."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import DATA

from tidegate_analysis import cli, examples
from tidegate_analysis.errors import SampleError, StoreError
from tidegate_analysis.published import PARTS
from tidegate_analysis.published import tables as published
from tidegate_analysis.results import load
from tidegate_analysis.tables import descriptive, markdown, study


def counts_of_the_study() -> pd.DataFrame:
    """What `tap_counts` would say of the study's confirmatory experiment."""
    of = {"batchset": 1400, "batch": 14_000, "execution": 70_000}
    levels = {"missing_batches": "batch", "transient_thrashing": "batchset"}
    rows = [
        ("1", name, "", levels.get(name, "execution"), number, found)
        for (name, found), number in zip(
            published("confirmatory", "checks").items(), range(1, 10), strict=True
        )
    ]
    table = pd.DataFrame(rows, columns=["step", "name", "part", "level", "number", "found"])
    table["checked"] = table["level"].map(of)
    steps = [
        ("2", "faulty_executions", "execution", 70_000, 3_073),
        ("2", "faulty_executions", "batchset", 1_400, 0),
        ("3-(i)", "incomplete", "execution", 66_927, 2_000),
        ("3-(i)", "incomplete", "batchset", 1_400, 61),
        ("3-(ii)", "transient_thrashing", "execution", 64_927, 0),
        ("3-(ii)", "transient_thrashing", "batchset", 1_339, 0),
        ("3-(iii)", "transient_thrashing_retained", "execution", 64_927, 0),
        ("3-(iii)", "transient_thrashing_retained", "batchset", 1_339, 0),
    ]
    more = pd.DataFrame(steps, columns=["step", "name", "level", "checked", "found"])
    groups = [("4", "thrashing", "read", 500, 148), ("4", "thrashing", "update", 839, 334)]
    last = pd.DataFrame(groups, columns=["step", "name", "part", "checked", "found"])
    table = pd.concat([table, more, last.assign(level="batchset")], ignore_index=True)
    return table.assign(experiment=1, analysis=2, batchsets=np.nan)


def test_tables_5_to_8_are_the_studys_where_the_counts_are() -> None:
    counts = counts_of_the_study()
    five = descriptive.table_5(counts, part="confirmatory")
    assert five["number"].tolist() == [1, 2, 3, 4, 5]
    assert five["violations"].tolist() == [0] * 5
    six = descriptive.table_6(counts, part="confirmatory")
    assert six["violations"].tolist() == [25, 2434, 679]
    assert six["percent"].round(3).tolist() == [0.036, 3.477, 0.970]
    assert six["percent"].tolist() == pytest.approx(six["percent_published"].tolist())
    seven = descriptive.table_7(counts, part="confirmatory")
    assert seven[["number", "violations", "checked"]].to_numpy().tolist() == [[9, 0, 1400]]
    eight = descriptive.table_8(counts, part="confirmatory").set_index("after")
    assert eight.loc["start", ["executions", "batchsets"]].tolist() == [70_000, 1400]
    assert eight.loc["2", "executions"] == 66_927
    assert eight.loc["2", "executions_percent"] == pytest.approx(4.39, abs=0.005)
    assert eight["batchsets"].tolist() == eight["batchsets_published"].tolist()
    outcome = descriptive.outcome(counts, part="confirmatory").set_index("group")
    assert outcome["thrashed"].tolist() == outcome["thrashed_published"].tolist() == [148, 334, 482]
    assert outcome.loc["all", "percent"] == pytest.approx(36, abs=0.05)
    assert outcome.loc["all", "retained"] == outcome.loc["all", "retained_published"] == 1339


def test_the_latest_analysis_counts() -> None:
    counts = counts_of_the_study()
    older = counts.assign(analysis=1, found=1)
    both = pd.concat([older, counts])
    assert descriptive.table_6(both)["violations"].tolist() == [25, 2434, 679]
    with pytest.raises(SampleError, match="experiments 1, 2 are mixed"):
        descriptive.table_6(pd.concat([counts, counts.assign(experiment=2)]))
    with pytest.raises(SampleError, match="no counts of the analysis protocol"):
        descriptive.table_8(counts.iloc[:0])


def test_the_exploratory_part_has_what_the_study_printed_of_it() -> None:
    eight = descriptive.table_8(counts_of_the_study(), part="exploratory").set_index("after")
    assert eight.loc["2", "batchsets_published"] == 1112
    assert np.isnan(eight.loc["3-(i)", "batchsets_published"])
    six = descriptive.table_6(counts_of_the_study(), part="exploratory")
    assert six["violations_published"].isna().all()


def test_published_figures_agree_with_each_other() -> None:
    for part in PARTS:
        figures = published(part)
        assert figures["batchsets"] == 28 * figures["runs"]
        assert figures["batches"] == 10 * figures["batchsets"]
    assert published("exploratory")["executions"] == 3 * 11_200
    assert published("confirmatory")["executions"] == 5 * 14_000
    assert published(None) == {}


def test_table_3_counts_what_was_executed() -> None:
    executions = load(DATA / "parquet").executions()
    table = descriptive.table_3(executions, part="exploratory")
    # One of the 16 planned was never done.
    assert table["ours"].tolist()[:4] == [2, 4, 8, 15]
    done = executions[executions["attempt"].notna()]
    hours = ((done["ended_us"] - done["began_us"]) / 3.6e9).sum()
    assert table["ours"].iloc[4] == pytest.approx(hours)
    assert table["published"].tolist() == [40, 1120, 11200, 33600, 3127]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567, "1,234,567"), (0.03571, "0.0357"), (2434.5, "2,434"), (float("nan"), "–"),
        (None, "–"), (np.inf, "∞"), (True, "yes"), (np.False_, "no"), (1e-9, "1.0e-09"), (0, "0"),
        ("a|b", "a\\|b"), (-0.5, "-0.5"), (np.int64(7), "7"),
    ],
)  # fmt: skip
def test_cells_of_markdown(value: object, text: str) -> None:
    table = pd.DataFrame({"the_value": pd.Series([value], dtype=object)})
    assert markdown(table) == f"| the value |\n| --- |\n| {text} |\n"


def test_the_pipeline_finds_what_was_planted(example: Path, tmp_path: Path) -> None:
    found = study.run(load(example), 1, correction="holm")
    assert list(found.tables) == [
        "table-3", "table-5", "table-6", "table-7", "table-8", "step-4", "table-9", "table-10",
    ]  # fmt: skip
    assert found.part == "confirmatory"
    nine, ten = found.tables["table-9"], found.tables["table-10"]
    assert nine["sign"].tolist() == ["+", "-", "-", "+", "-"]
    assert nine["supported"].all()
    assert nine["r_published"].tolist() == [0.31, -0.32, -0.26, 0.21, -0.55]
    assert ten["sign"].tolist() == ["-", "-", "-"]
    assert {"p_holm", "supported_holm"} <= set(nine)
    samples = load(example).samples(1)
    thrashed = samples[samples["thrashed"] & (samples["mode"] == "read")]
    assert nine["n"].tolist() == [len(thrashed)] * 5
    assert nine["r"].iloc[0] == pytest.approx(thrashed["numProcs"].corr(thrashed["TP"]))
    paths = found.write(tmp_path / "out")
    assert {path.name for path in paths} == {f"{name}.csv" for name in found.tables} | {"tables.md"}
    again = pd.read_csv(tmp_path / "out" / "table-9.csv")
    assert again["r"].tolist() == pytest.approx(nine["r"].tolist(), rel=1e-12)
    text = (tmp_path / "out" / "tables.md").read_text()
    assert "## Table 10: hypotheses about the update group" in text
    assert re.search(r"\| numProcs \| \*\*H1: 0\.\d\d\\\*\*\*", text)


def test_a_diagram_is_drawn_of_each_group(example: Path, tmp_path: Path) -> None:
    seen = {}

    def diagram(group: str, samples: pd.DataFrame) -> str:
        seen[group] = samples
        if group == "update":
            raise SampleError("nothing varies", "vary something")
        return "<svg/>"

    found = study.run(load(example), 1, diagram=diagram)
    assert found.figures == {"figure-6-read": "<svg/>"}
    assert found.notes["figure-6-update"] == "Not there, because nothing varies: vary something."
    assert all(samples["thrashed"].all() for samples in seen.values())
    found.write(tmp_path)
    assert (tmp_path / "figure-6-read.svg").read_text() == "<svg/>"


def test_a_table_that_cannot_be_made_leaves_a_note(store: Path) -> None:
    found = study.run(load(store), 1)
    assert "table-9" not in found.tables
    assert found.notes["table-9"].startswith("Not there, because 0 samples are too few")
    assert "## Table 9: hypotheses about the read group\n\nNot there" in found.markdown()
    eight = found.tables["table-8"].set_index("after")
    assert eight["executions"].tolist() == [15, 13, 11, 11, 11]
    assert eight["batchsets"].tolist() == [4, 4, 3, 3, 3]


def test_a_store_of_version_1_has_no_counts(tmp_path: Path) -> None:
    path = examples.write_store(tmp_path / "old.db", version=1)
    found = study.run(load(path), 1)
    assert list(found.tables) == ["table-3", "table-9", "table-10"]
    assert "a store of schema version 1 has none" in found.notes["table-5"]


def test_equation_1_by_the_examples_of_the_laboratory() -> None:
    """Those of ``tap/curve.rs``; −1 is none."""
    cases = [
        ([90.0, 80.0, 70.0, 60.0, 51.0], -1),
        ([100.0, 120.0, 100.0, 90.0], -1),
        ([100.0, 120.1, 100.0, 90.0], 1),
        ([100.0, 200.0, 190.0, 120.0, 110.0, 130.0], 2),
        ([100.0, 200.0, 190.0, 120.0, 110.0, 190.0], -1),
        ([100.0, 50.0, 110.0, 120.0], -1),
        ([100.0, 50.0, 200.0, 100.0], 2),
        ([100.0, 50.0, 20.0, 60.0, 55.0], 0),
        ([10.0, 20.0, 10.0], 1),
    ]
    for tps, expected in cases:
        assert examples.equation_1(np.array([tps])).tolist() == [expected], tps


def test_an_example_is_the_same_from_the_same_seed(tmp_path: Path) -> None:
    design = examples.ExampleDesign(subjects=("one",), processors=(1,), repetitions=1)
    tables = [
        load(examples.write_store(tmp_path / f"{n}.db", design, seed=seed)).curves()
        for n, seed in enumerate([1, 1, 2])
    ]
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert not tables[0].equals(tables[2])
    with pytest.raises(StoreError, match=r"0.db is there already"):
        examples.write_store(tmp_path / "0.db")


def test_the_command_line_prints_and_writes(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tables", str(example), "1", "--out", str(tmp_path), "--holm"]) == 0
    printed, progress = capsys.readouterr()
    assert printed.startswith("# Experiment 1: example\n")
    assert progress == ""
    assert printed.strip() == (tmp_path / "experiment-1" / "tables.md").read_text().strip()


def test_the_store_may_be_named_in_three_ways(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["tables", str(store), "1"]) == 0
    first = capsys.readouterr().out
    assert cli.main(["tables", "--store", str(store), "1"]) == 0
    assert capsys.readouterr().out == first
    monkeypatch.setenv("TIDEGATE_STORE", str(store))
    assert cli.main(["tables", "1", "1"]) == 0
    assert capsys.readouterr().out == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tables", "{data}/nothing.db", "1"], "there is no "),
        (["tables", "{data}/csv"], "no experiment of .*csv is named: give its number"),
        (["tables", "{data}/csv", "1", "x"], "`x` is no number of an experiment"),
        (["tables", "{data}/csv", "9"], "has no experiment 9; it has 1"),
        (["tables", "--store", "{data}/make.py", "1"], "make.py is not a result store"),
        (["tables", "postgres://127.0.0.1:1/lab", "1"], "the store lab on 127.0.0.1 cannot be"),
        (["tables", "{data}/csv", "1", "--out", "{data}/make.py"], "cannot be written to"),
    ],
)
def test_errors_are_one_line_with_code_1(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([word.format(data=DATA) for word in words]) == 1
    printed, error = capsys.readouterr()
    assert printed == ""
    assert re.match(rf"error: .*{message}", error)
    assert error.count("\n") == 1


def test_a_wrong_command_line_has_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["tables"])
    assert end.value.code == 2
    assert "the following arguments are required" in capsys.readouterr().err


def program(*words: str) -> list[str]:
    return [sys.executable, "-m", "tidegate_analysis", *words]


def test_a_reader_that_goes_away_ends_it_quietly(example: Path) -> None:
    words = program("tables", str(example), "1")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        error = process.stderr.read()
        assert process.wait() == 0
    assert error == b""


def test_an_interruption_is_one_line(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from tidegate_analysis import cli\n"
        "from tidegate_analysis.tables import study\n"
        "def slow(*_, **__):\n"
        f"    open({str(tmp_path / 'began')!r}, 'w').close()\n"
        "    time.sleep(600)\n"
        "study.run = slow\n"
        f"sys.exit(cli.main(['tables', {str(DATA / 'csv')!r}, '1']))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    try:
        while not (tmp_path / "began").exists() and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=300)
    finally:
        process.kill()
    assert (process.returncode, error) == (130, b"interrupted\n")
