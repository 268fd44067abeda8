"""Stores and exports give the same frames, and say what is wrong with them."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from conftest import DATA, SMALL, edit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidegate_analysis
from tidegate_analysis import examples, shapes
from tidegate_analysis.errors import SampleError, StoreError
from tidegate_analysis.results import Results, load, mode
from tidegate_analysis.store import TABLES, ExportTable, Selection, open_source, schema
from tidegate_analysis.store.catalog import PLACE, VERSIONS
from tidegate_analysis.store.settings import seconds

ROOT = Path(__file__).parents[2]


def frame(results: Results, name: str, **which: int) -> pd.DataFrame:
    result = getattr(results, name)(**which)
    assert isinstance(result, pd.DataFrame)
    return result


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_a_store_and_its_export_give_the_same(store: Path, name: str, form: str) -> None:
    found = frame(load(store), name)
    exported = frame(load(DATA / form), name)
    assert len(found) > 0
    pd.testing.assert_frame_equal(found, exported, check_exact=True)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_columns_are_those_of_the_laboratory(store: Path, table: ExportTable) -> None:
    head = (DATA / "csv" / f"{table.name}.csv").read_text(encoding="utf-8").splitlines()[0]
    found = frame(load(store), table.name)
    assert found.columns.tolist() == head.split(",")
    types = {"whole": "int64", "whole?": "float64", "number": "float64", "text": "object"}
    for name, kind in table.columns.items():
        assert str(found[name].dtype) == ("Int64" if name == "seed" else types[kind]), name


def test_awkward_values_come_through(store: Path) -> None:
    results = load(store)
    troubles = results.troubles()
    assert troubles["what"].tolist() == ["Z", 'ä, "quoted" | and\r\n', "", "40001", "NULL"]
    seeds = results.attempts()["seed"].tolist()
    assert {-1, 2**63 - 1} <= set(seeds)
    outcomes = results.attempts().groupby("outcome").size()
    assert outcomes.to_dict() == {"measured": 15, "failed": 1, "cut off": 1}
    executions = results.executions()
    (undone,) = executions[executions["attempt"].isna()].to_dict("records")
    assert (undone["batchset"], undone["mpl"]) == (2, 128)
    assert np.isnan(undone["tps"])
    assert undone["version"] is None
    assert undone["sf_percent"] == 1.0
    assert results.conditions()["holds"].tolist().count(0) == 1
    first = results.experiment().iloc[0]
    assert (first["ctl_s"], first["warmup_s"], first["pause_s"]) == (2, 0.5, 60.5)
    assert (first["connect_limit_s"], first["interval_s"], first["repetitions"]) == (90, 1, 2)


@pytest.mark.parametrize("source", ["store", "csv", "parquet", "json"])
def test_rows_of_a_run_or_a_batchset(store: Path, source: str) -> None:
    results = load(store if source == "store" else DATA / source)
    for name in ("executions", "intervals", "histograms", "kinds", "interval_kinds"):
        everything = frame(results, name)
        chosen = everything[(everything["run"] == 2) & (everything["batchset"] == 1)]
        found = frame(results, name, experiment=1, run=2, batchset=1)
        assert 0 < len(found) < len(everything)
        pd.testing.assert_frame_equal(found, chosen.reset_index(drop=True))
    assert results.intervals(run=77).empty
    assert results.intervals(run=77).columns.tolist() == results.intervals().columns.tolist()


def test_intervals_add_up_to_what_their_execution_counts(example: Path, tmp_path: Path) -> None:
    design = examples.ExampleDesign(subjects=("one",), repetitions=1, intervals=4)
    results = load(examples.write_store(tmp_path / "intervals.db", design))
    executions = results.executions().set_index("execution")
    intervals = results.intervals()
    assert len(intervals) == 4 * len(executions)
    assert intervals.equals(intervals.sort_values(["run", "batchset", "mpl", "repetition"]))
    sums = intervals.groupby("execution")["transactions"].sum()
    lost = executions["transactions"] - sums
    assert ((lost >= 0) & (lost < 4)).all()
    counts = results.histograms().groupby(["execution", "interval"])["transactions"].sum()
    assert counts.tolist() == intervals["transactions"].tolist()


TEXT = st.one_of(
    st.none(),
    st.sampled_from(["", "NULL", "nan", '"', ",", "\n", "\r\n", '""', "1", " ", "ä|µ", "null"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
)


@given(
    rows=st.lists(
        st.tuples(TEXT, st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1)), max_size=6
    )
)
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_value_comes_through_csv_and_parquet_alike(
    tmp_path: Path, rows: list[tuple[str | None, float, int]]
) -> None:
    """A table with these values in two forms, written as the laboratory writes them."""
    columns = TABLES["attempts"].columns
    lines: list[dict[str, object]] = []
    for place, (text, _, seed) in enumerate(rows):
        whole = {name: place for name, kind in columns.items() if kind == "whole"}
        lines.append(whole | dict.fromkeys(["version", "cpu", "reason"], text) | {"seed": seed})
    table = pa.Table.from_pylist(lines, schema=TABLES["attempts"].schema())
    limits = {name: 1 for name, kind in TABLES["limits"].columns.items() if kind == "whole"}
    numbers = pa.Table.from_pylist(
        [limits | dict.fromkeys(["at_s", "tps"], number) for _, number, _ in rows],
        schema=TABLES["limits"].schema(),
    )
    results = {}
    for form in ("csv", "parquet"):
        directory = tmp_path / form
        shutil.copytree(DATA / form, directory, dirs_exist_ok=True)
        for name, one in (("attempts", table), ("limits", numbers)):
            write(one, directory / f"{name}.{form}")
        results[form] = load(directory)
    for name in ("attempts", "limits"):
        one, other = (frame(results[form], name) for form in ("csv", "parquet"))
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert results["csv"].attempts()["reason"].tolist() == [text for text, _, _ in rows]
    assert results["csv"].limits()["tps"].tolist() == [number for _, number, _ in rows]


def write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
        return
    lines = [",".join(table.column_names)]
    lines += [",".join(cell(value) for value in row.values()) for row in table.to_pylist()]
    path.write_bytes(("\n".join(lines) + "\n").encode())


def cell(value: object) -> str:
    """As ``export/csv.rs`` writes it."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    quoted = not value or any(sign in value for sign in '",\r\n')
    return '"' + value.replace('"', '""') + '"' if quoted else value


def test_samples_are_those_of_the_latest_analysis(store: Path) -> None:
    samples = load(store).samples(1)
    # The second analysis dropped the batchset whose executions took too long.
    assert samples[["run", "batchset"]].to_numpy().tolist() == [[1, 1], [2, 1], [2, 2]]
    assert samples["mode"].tolist() == ["read", "read", "update"]
    assert samples["PK"].tolist() == [1, 0, 0]
    assert samples["numProcs"].tolist() == [2, 2, 2]
    assert samples["ATPT"].tolist() == pytest.approx(
        [264.51827577158167, 390.3803753509234, 897.6568950303229]
    )
    assert samples["TP"].tolist() == [np.inf] * 3
    assert samples["low"].tolist() == [128] * 3
    assert samples["high"].tolist() == [np.inf] * 3
    assert not samples["thrashed"].any()
    assert set(samples["rule"]) == {"equation-1 v1"}
    again = load(DATA / "parquet").samples(1)
    pd.testing.assert_frame_equal(samples, again)


@pytest.mark.parametrize(
    ("mix", "expected"),
    [
        ({"reads": 1, "updates": 0, "changes": 0, "joins": 0}, "read"),
        ({"reads": 0.0, "updates": 3.0}, "update"),
        ({"reads": 9, "updates": 1, "changes": 0, "joins": 0}, None),
        ({"reads": 0, "updates": 0, "changes": 1, "joins": 0}, None),
        ({"reads": 1, "updates": 0, "changes": 0, "joins": 1}, None),
        ({"reads": np.nan, "updates": None}, None),
        ({}, None),
    ],
)
def test_groups_are_of_one_kind_of_transaction(
    mix: dict[str, float | None], expected: str | None
) -> None:
    assert mode(mix) == expected


def test_dropped_executions_are_in_no_curve(store: Path) -> None:
    results = load(store)
    drops = results.latest_drops(1)
    assert sorted(drops["execution"].dropna()) == [5, 13]
    assert set(drops["analysis"]) == {2}
    curves = results.curves(1).set_index(["run", "batchset", "mpl"])
    # The one that a batch has, and one of two of another.
    assert (1, 2, 128) not in curves.index
    assert curves.loc[(2, 1, 4), "n"] == 1
    assert (curves.drop(index=(2, 1, 4))["n"] == 2).all()


def test_versions_of_the_schema_are_said_once() -> None:
    """In `store.VERSIONS`; what is said elsewhere becomes untrue with the next version."""
    said = re.compile(r"versions? (than )?\d+ to \d+|schema, \d+ to \d+")
    for file in sorted(Path(tidegate_analysis.__file__).parent.rglob("*.py")):
        found = said.search(file.read_text("utf-8"))
        assert found is None, f"{file.name}: {found and found.group()}"


def test_a_point_at_the_lowest_level_is_left_censored(tmp_path: Path) -> None:
    path = examples.write_store(tmp_path / "points.db", examples.ExampleDesign(repetitions=2))
    samples = load(path).samples(1)
    lowest = samples["TP"] == min(examples.ExampleDesign().mpl)
    edit(
        path,  # as analyses before `tap v2` kept them
        "UPDATE thrashing_point SET low = mpl, protocol = 'tap v1' WHERE low = 0",
        "UPDATE thrashing_point SET mpl = 100, low = 100, high = 200, protocol = 'tap v1'"
        " WHERE batchset <= 3",
    )
    old = load(path).samples(1)
    first = old["TP"] == 100
    assert first.sum() == lowest.sum() + (~lowest[:3]).sum()
    assert (old["low"][first] == 0).all() and (old["high"][first] == 200).all()
    assert (old["low"][~first] > 0).all()
    points = load(path).curves(1).set_index(["run", "batchset"])["TP"]
    assert points.loc[(1, 1)].eq(100).all()


def test_samples_keep_what_was_planted(example: Path) -> None:
    samples = load(example).samples(1)
    assert list(shapes.SAMPLES) == samples.columns.tolist()[: len(shapes.SAMPLES)]
    assert len(samples) == 18 * 28
    thrashed = samples[samples["thrashed"]]
    assert 0 < len(thrashed) < len(samples)
    assert (thrashed["high"] == thrashed["TP"] + 100).all()
    assert np.isinf(samples.loc[~samples["thrashed"], ["TP", "high"]]).all(axis=None)
    assert sorted(samples["SF"].unique()) == [0.01, 0.1, 0.25, 0.5, 0.75, 1.0]


def test_atpt_of_an_old_store_is_computed(tmp_path: Path) -> None:
    design = examples.ExampleDesign(subjects=("one",), processors=(1, 2), repetitions=2)
    old = load(examples.write_store(tmp_path / "old.db", design, version=1))
    new = load(examples.write_store(tmp_path / "new.db", design, version=2))
    assert (old.version, new.version) == (1, 2)
    assert old.thrashing_points()["atpt_ms"].isna().all()
    for name in ("analyses", "tap_counts", "tap_drops", "interval_kinds"):
        assert frame(old, name).empty
        assert frame(old, name).columns.tolist() == frame(new, name).columns.tolist()
    pd.testing.assert_frame_equal(old.samples(), new.samples(), rtol=1e-12)
    pd.testing.assert_frame_equal(old.curves(), new.curves())


def test_what_a_newer_store_has_beside_is_left_out(tmp_path: Path) -> None:
    older = load(examples.write_store(tmp_path / "older.db", SMALL, version=3))
    newer = load(examples.write_store(tmp_path / "newer.db", SMALL, version=4))
    assert (older.version, newer.version) == (3, 4)
    # What it has of the subject's processes is missing in the older, and nothing else differs.
    work = ["subject_cpu_us", "subject_core_share"]
    assert older.executions()[work].isna().all(axis=None)
    assert newer.executions()[work].notna().all(axis=None)
    for name in TABLES:
        frames = [
            frame(store, name).drop(columns=work, errors="ignore") for store in (older, newer)
        ]
        pd.testing.assert_frame_equal(*frames)


def test_times_are_the_stores_where_it_has_them(tmp_path: Path) -> None:
    old = examples.write_store(tmp_path / "old.db", SMALL, version=2)
    new = examples.write_store(tmp_path / "new.db", SMALL, version=3)
    pd.testing.assert_frame_equal(load(old).experiment(), load(new).experiment())
    # A default of the program that planned it, and what one of before did not write.
    edit(new, "UPDATE experiment SET warmup_s = 2.5, interval_s = NULL")
    first = load(new).experiment().iloc[0]
    times = ["ctl_s", "warmup_s", "pause_s", "connect_limit_s", "interval_s", "repetitions"]
    assert first[times].tolist() == [SMALL.ctl_s, 2.5, 0, 60, 1, 1]


def test_samples_are_of_the_studys_groups_only(tmp_path: Path) -> None:
    design = examples.ExampleDesign(subjects=("one",), processors=(1,), primary_key=(True,))
    path = examples.write_store(tmp_path / "mixed.db", design)
    before = load(path).samples(1)
    mixes = [("changes", 1), ("joins", 2), ("updates", 1), ("reads", 3)]
    for batchset, (weight, to) in enumerate(mixes, start=1):
        spec = f"json_set(spec, '$.{weight}', {to})"
        edit(path, f"UPDATE batchset SET spec = {spec} WHERE id = {batchset}")
    results = load(path)
    after = results.samples(1)
    assert len(results.latest_points(1)) == len(before)
    # The first three also do something else now; the fourth reads more.
    expected = before[before["batchset"] > 3].reset_index(drop=True)
    pd.testing.assert_frame_equal(after, expected)


def test_an_old_export_is_read(tmp_path: Path) -> None:
    """Version 1 called the point's number `analysis`, and had fewer tables."""
    old = tmp_path / "old"
    shutil.copytree(DATA / "csv", old)
    for name in ("analyses", "tap_counts", "tap_drops", "interval_kinds", "limits"):
        (old / f"{name}.csv").unlink()
    points = load(DATA / "csv").thrashing_points()
    was = points.drop(columns=["analysis", "atpt_ms"]).rename(columns={"id": "analysis"})
    was["thrashing_point"] = was["high"] = None
    was.to_csv(old / "thrashing_points.csv", index=False)
    results = load(old)
    assert results.version == 1
    assert results.thrashing_points()["id"].tolist() == points["id"].tolist()
    # The latest row of each batchset, since nothing says what an analysis was.
    assert results.latest_points()["id"].tolist() == [5, 2, 6, 7]
    with pytest.raises(StoreError, match=r"no limits.csv: export the experiment again"):
        results.limits()


def test_curves_by_hand(tmp_path: Path) -> None:
    path = examples.write_store(
        tmp_path / "one.db",
        examples.ExampleDesign(
            subjects=("one",), processors=(1,), primary_key=(True,), mpl=(10, 20, 30)
        ),
    )
    of = "WHERE execution IN (SELECT id FROM execution WHERE batchset = 1 AND mpl = 10"
    measured = [(10.0, 100, 2.0), (20.0, 300, 6.0), (30.0, 600, 1.0)]
    for repetition, (tps, transactions, mean_ms) in enumerate(measured, start=1):
        edit(
            path,
            f"UPDATE measurement_taken SET tps = {tps}, transactions = {transactions}, "
            f"mean_ms = {mean_ms} {of} AND repetition = {repetition})",
        )
    edit(
        path,
        "DELETE FROM measurement_taken WHERE execution IN (5, 6, 7, 8, 9)",
        "DELETE FROM thrashing_point WHERE batchset = 2",
    )
    curves = load(path).curves(1).set_index(["batchset", "mpl"])
    row = curves.loc[1, 10]
    assert (row["n"], row["tps"], row["tps_sd"]) == (3, 20, 10)
    # t(0.975, 2) = 4.302653, times 10/√3.
    assert row["tps_high"] - 20 == pytest.approx(4.302653 * 10 / np.sqrt(3), rel=1e-6)
    assert 20 - row["tps_low"] == pytest.approx(4.302653 * 10 / np.sqrt(3), rel=1e-6)
    # (100·2 + 300·6 + 600·1) / 1000.
    assert row["mean_ms"] == pytest.approx(2.6)
    single = curves.loc[1, 20]
    assert single["n"] == 1
    assert np.isnan([single["tps_sd"], single["tps_low"], single["tps_high"]]).all()
    assert (1, 30) not in curves.index
    assert curves.loc[2, "TP"].isna().all()
    assert curves.loc[1, "TP"].notna().all()


def test_loading_one_experiment_binds_to_it(store: Path) -> None:
    results = load(store, experiment=1)
    assert results.experiments == [1]
    assert results.experiment()["name"].tolist() == ["tiny"]
    with pytest.raises(StoreError, match=r"has no experiment 2; it has 1"):
        results.executions(2)
    with pytest.raises(StoreError, match=r"has no experiment 7; it has 1: see `tidegate lab list`"):
        load(store, experiment=7)


def test_a_store_is_never_written_to(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    shutil.copy(store, path)
    before = path.read_bytes()
    results = load(path)
    results.executions()
    results.histograms()
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["kept.db"]


def test_the_environment_names_the_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_STORE", raising=False)
    with pytest.raises(StoreError, match="no store is named: give its path or set TIDEGATE_STORE"):
        load()
    monkeypatch.setenv("TIDEGATE_STORE", str(store))
    assert load().experiments == [1]


def empty(path: Path, version: int) -> Path:
    return edit(path, *schema.statements(3), f"INSERT INTO schema_version VALUES ({version})")


def test_what_is_no_store_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no .*nothing.db: give the path"):
        load(tmp_path / "nothing.db")
    text = tmp_path / "text.db"
    text.write_text("this is no database, but long enough to look like one" * 10)
    with pytest.raises(StoreError, match=r"text.db is not a result store"):
        load(text)
    other = tmp_path / "other.db"
    edit(other, "CREATE TABLE t (a)")
    with pytest.raises(StoreError, match=r"other.db is not a result store"):
        load(other)
    last = VERSIONS[-1]
    said = f"of schema version {last + 1}, and this package reads 1 to {last}"
    with pytest.raises(StoreError, match=said):
        load(empty(tmp_path / "newer.db", last + 1))
    with pytest.raises(StoreError, match=r"has no experiment: run one with `tidegate lab run"):
        load(empty(tmp_path / "empty.db", 0))
    with pytest.raises(StoreError, match=r"has no executions.parquet, executions.csv or experi"):
        load(tmp_path)


def test_a_damaged_export_is_said(tmp_path: Path) -> None:
    for form in ("csv", "json", "parquet"):
        shutil.copytree(DATA / form, tmp_path / form)
    (tmp_path / "csv" / "kinds.csv").write_text("experiment,run\n1,one\n")
    with pytest.raises(StoreError, match=r"kinds.csv cannot be read"):
        load(tmp_path / "csv").kinds()
    (tmp_path / "csv" / "kinds.csv").write_text("experiment,run\n1,1\n")
    with pytest.raises(StoreError, match="kinds has no column `batchset`"):
        load(tmp_path / "csv").kinds()
    (tmp_path / "parquet" / "kinds.parquet").write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=r"kinds.parquet cannot be read"):
        load(tmp_path / "parquet").kinds()
    (tmp_path / "json" / "experiment.json").write_text(json.dumps({"executions": []}))
    with pytest.raises(StoreError, match="has no thrashing_points"):
        load(tmp_path / "json")


def test_a_damaged_store_is_said(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.db"
    shutil.copy(store, path)
    edit(
        path,
        "UPDATE batchset SET spec = '{' WHERE id = 1",
        "UPDATE interval_seen SET histogram = '[[1,' WHERE attempt = 1",
        "UPDATE limit_seen SET tps = 'fast'",
        "UPDATE experiment SET preset = 'none'",
    )
    with pytest.raises(StoreError, match="the experiment file in the store cannot be read"):
        load(path)
    edit(path, "UPDATE experiment SET preset = ''")
    results = load(path)
    with pytest.raises(StoreError, match="a workload's description is damaged"):
        results.executions()
    with pytest.raises(StoreError, match="a histogram is damaged"):
        results.histograms()
    with pytest.raises(StoreError, match="table limits is damaged"):
        results.limits()


def test_another_workloads_values_of_another_kind_are_none(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "kinds.db"
    shutil.copy(store, path)
    spec = {"kind": "ds2", "scale": "medium", "rows": 1.5, "sf": 2, "placement": 3, "reads": True}
    edit(path, f"UPDATE batchset SET spec = '{json.dumps(spec)}'")
    row = load(path).executions().iloc[0]
    assert row["sf_percent"] == 2
    assert row[["scale", "rows", "reads", "joins"]].isna().all()
    assert row["placement"] is None


def test_samples_that_are_not_there_are_said(store: Path, tmp_path: Path) -> None:
    fresh = examples.write_store(tmp_path / "fresh.db", SMALL, analysed=False)
    with pytest.raises(SampleError, match=r"experiment 1 was not analysed: .*lab tap 1`"):
        load(fresh).samples(1)
    done = examples.write_store(tmp_path / "done.db", SMALL)
    edit(done, "DELETE FROM thrashing_point")
    with pytest.raises(SampleError, match="retained no batchset: see in `tap_drops`"):
        load(done).samples(1)
    other = examples.write_store(tmp_path / "other.db", SMALL)
    edit(other, 'UPDATE batchset SET spec = \'{"kind":"tpcb","scale":10}\'')
    with pytest.raises(SampleError, match="none of the 56 batchsets that were retained"):
        load(other).samples(1)


def test_all_processors_are_those_that_were_seen(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "all.db"
    shutil.copy(store, path)
    edit(path, "UPDATE run SET processors = 0", "UPDATE measurement_taken SET processors = 3")
    assert set(load(path).samples()["numProcs"]) == {3.0}
    assert set(load(path).curves()["processors"]) == {3.0}
    # At a server that was there before they are not seen, which is kept as 0.
    edit(path, "UPDATE measurement_taken SET processors = 0")
    assert load(path).samples()["numProcs"].isna().all()
    assert load(path).curves()["processors"].isna().all()


@pytest.mark.parametrize(
    ("words", "expected"),
    [("2s", 2), ("500ms", 0.5), ("2min", 120), ("1h 30min", 5400), ("1min500ms", 60.5), ("0s", 0)],
)
def test_lengths_of_time(words: str, expected: float) -> None:
    assert seconds(words) == expected


@pytest.mark.parametrize("words", ["", "2", "soon", "1.5s", "2s and more", "-1s"])
def test_what_is_no_length_of_time(words: str) -> None:
    with pytest.raises(ValueError, match="is no length of time"):
        seconds(words)


def test_the_schema_is_the_laboratorys() -> None:
    """Statement by statement; the laboratory may be a step behind where it is older."""
    source = ROOT / "crates" / "lab" / "src" / "store" / "schema.rs"
    if not source.is_file():
        pytest.skip("the laboratory is not beside this package")
    literals = re.findall(r'"((?:CREATE TABLE [a-z_]+ \(|ALTER TABLE)[^"]*)"', source.read_text())
    theirs = [re.sub(r"\\\n\s*", "", literal) for literal in literals]
    tables = re.compile(r"CREATE TABLE [a-z_]+ \(|ALTER TABLE")
    ours = [one for step in schema.STEPS for one in step if tables.match(one)]
    assert theirs in (ours, list(schema.STEPS[0]))


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.name)
def test_views_of_the_laboratory_have_what_is_read(
    store: Path, tmp_path: Path, table: ExportTable
) -> None:
    """Column by column and row by row, but for what is made of a JSON text in the last column."""
    views = ROOT / "crates" / "lab" / "src" / "store" / "exports.sql"
    if not views.is_file():
        pytest.skip("the laboratory is not beside this package")
    given = list(table.given())
    if table.scope == "attempt":
        given = [*PLACE, *given[1:]]
    with closing(sqlite3.connect(shutil.copy(store, tmp_path / "newer.db"))) as connection:
        text = views.read_text("utf-8")
        for name in re.findall(r"CREATE VIEW (\w+)", text):
            connection.execute(f"DROP VIEW IF EXISTS {name}")
        connection.executescript(text)
        cursor = connection.execute(f"SELECT * FROM export_{table.name}")
        assert [name for name, *_ in cursor.description] == given
        rows = [dict(zip(given, row, strict=True)) for row in cursor]
    if table.derived != "histogram":
        read = open_source(store).read(table, Selection()).select(given).to_pylist()
        assert sorted(rows, key=str) == sorted(read, key=str)


def test_an_experiment_of_which_nothing_is_done(tmp_path: Path) -> None:
    design = examples.ExampleDesign(subjects=("one",), processors=(1,), repetitions=1, mpl=(10, 20))
    path = examples.write_store(tmp_path / "planned.db", design, analysed=False)
    edit(path, *(f"DELETE FROM {table}" for table in ("kind", "measurement_taken", "attempt")))
    results = load(path)
    assert len(results.executions()) == 2 * 28 * 2
    assert results.curves().empty
    assert {"tps_low", "TP"} <= set(results.curves())
    assert results.executions(run=77).empty
    with pytest.raises(SampleError, match="was not analysed"):
        results.samples(1)
