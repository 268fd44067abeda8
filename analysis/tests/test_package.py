"""The package as a notebook sees it, and the commands for models."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import tidegate_analysis as ta
from tidegate_analysis import cli, estimate, model, shapes
from tidegate_analysis.errors import ShapeError
from tidegate_analysis.tables import figure_6, study


def test_everything_that_is_exported_is_there(example: Path) -> None:
    assert all(hasattr(ta, name) for name in ta.__all__)
    assert set(ta.__all__) <= set(dir(ta))
    assert len(ta.load(example).curves(1)) == 18 * 28 * 10
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ta.nothing


def test_what_takes_seconds_is_loaded_when_it_is_looked_at() -> None:
    code = (
        "import sys, tidegate_analysis as ta\n"
        "late = ('matplotlib', 'lifelines', 'jinja2', 'tidegate_analysis.report')\n"
        "assert not set(late) & set(sys.modules)\n"
        "ta.report\n"
        "assert set(late) - {'lifelines'} <= set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_are_limited_before_numpy_is_loaded() -> None:
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"


def test_figure_6_is_the_refined_model_of_the_samples_that_thrashed(
    example: Path, tmp_path: Path
) -> None:
    results = ta.load(example)
    found = study.run(results, 1, diagram=figure_6)
    samples = results.samples(1)
    for group in ("read", "update"):
        svg = found.figures[f"figure-6-{group}"]
        ElementTree.fromstring(svg)
        thrashed = samples[(samples["mode"] == group) & samples["thrashed"]]
        fit = estimate.fit(model.study(f"refined, {group}"), thrashed)
        for value, _ in fit.estimates().values():
            assert f"{value:.2f}".replace("-", "\u2212") in svg
    assert "![Fig. 6(a)" in found.markdown()
    assert tmp_path / "figure-6-read.svg" in found.write(tmp_path)


def test_tables_draws_figure_6_where_it_can_be_written(
    example: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["tables", str(example), "1"]) == 0
    assert "figure-6" not in capsys.readouterr().out
    assert cli.main(["tables", str(example), "1", "--out", str(tmp_path)]) == 0
    assert "figure-6-update.svg" in capsys.readouterr().out
    assert (tmp_path / "experiment-1" / "figure-6-update.svg").exists()


def test_a_model_is_said_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diagram", "refined-update"]) == 0
    assert "numProcs to TP: hypothesised negative." in capsys.readouterr().out
    own = tmp_path / "own.toml"
    model.write(model.study("refined, read"), own)
    assert cli.main(["diagram", str(own), "--out", str(tmp_path / "own.svg")]) == 0
    assert (tmp_path / "own.svg").read_text() == model.draw(model.study("refined, read"))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_model_is_estimated_from_a_file(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refined = model.study("refined, update")
    samples = model.simulate(refined, 334, seed=3)
    file = tmp_path / f"samples.{suffix}"
    if suffix == "csv":
        samples.to_csv(file, index=False)
    else:
        samples.to_parquet(file)
    words = ["estimate", "--samples", str(file), "--model", "refined-update", "--errors", "hc3"]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "n = 334" in printed and "## Effects" in printed
    folder = tmp_path / "out" / file.name
    paths = pd.read_csv(folder / "paths.csv")
    expected = estimate.fit(refined, samples, errors="hc3").paths()
    assert paths["standardised"].tolist() == pytest.approx(expected["standardised"].tolist())
    assert paths["p"].tolist() == pytest.approx(expected["p"].tolist())
    effects = pd.read_csv(folder / "effects.csv")
    assert set(effects["kind"]) == {"direct", "indirect", "total"}
    for name in ("hypotheses.svg", "estimated.svg"):
        ElementTree.fromstring((folder / name).read_text())


def test_a_model_is_estimated_on_those_that_thrashed(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = ta.load(example).samples(1)
    reads = samples[samples["mode"] == "read"]
    words = ["estimate", str(example), "1", "--model", "refined, read", "--errors", "cluster"]
    assert cli.main(words) == 0
    printed = capsys.readouterr().out
    assert f"n = {reads['thrashed'].sum()} ({(~reads['thrashed']).sum()} that never" in printed
    assert "Take care: cluster errors from 3 groups" in printed


def test_samples_that_refined_a_model_do_not_test_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    initial = model.study("initial, read")
    truth = model.study("refined, read").coefficients
    truth = {p.edge: truth.get(p.edge, 0.0) for p in initial.paths}
    truth |= {m.edge: 0.0 for m in initial.moderators}
    samples = model.simulate(initial, 560, seed=1, coefficients=truth)
    exploratory, confirmatory = estimate.split(samples, seed=2)
    model.write(estimate.refine(initial, exploratory).model, tmp_path / "refined.toml")
    words = ["estimate", "--model", str(tmp_path / "refined.toml"), "--samples"]
    for name, half in (("seen", exploratory), ("new", confirmatory)):
        half.samples.to_csv(tmp_path / f"{name}.csv", index=False)
    assert cli.main([*words, str(tmp_path / "seen.csv")]) == 1
    printed, error = capsys.readouterr()
    assert printed == ""
    assert f"{len(exploratory.samples)} of these samples were used to refine model" in error
    assert cli.main([*words, str(tmp_path / "new.csv")]) == 0
    assert f"n = {len(confirmatory.samples)}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["diagram", "refined-write"], "no model is called `refined-write`: use one of initial-r"),
        (["diagram", "{tmp}/none.toml"], "none.toml cannot be read"),
        (["diagram", "refined-read", "--out", "{tmp}/own.csv/x.svg"], "x.svg cannot be written"),
        (["estimate", "--model", "refined-read"], "it is not said what to estimate from"),
        (["estimate", "1", "--samples", "a.csv", "--model", "refined-read"], "both experiments"),
        (["estimate", "--samples", "{tmp}/a.csv", "--model", "refined-read"], "there is no "),
        (["estimate", "--samples", "{tmp}/a.txt", "--model", "refined-read"], "neither .csv nor"),
        (["estimate", "--samples", "{tmp}/own.csv", "--model", "refined-read"],
         "own.csv has no sample with mode `read`"),
        (["estimate", "--samples", "{tmp}/never.csv", "--model", "refined-update"],
         "none of the 3 samples of never.csv thrashed"),
        (["estimate", "--samples", "{tmp}/own.csv", "--model", "refined-update"], "too few|sample"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = model.simulate(model.study("refined, update"), 334, seed=1).head(3)
    own.to_csv(tmp_path / "own.csv", index=False)
    own.assign(TP=np.inf, high=np.inf, thrashed=False).to_csv(tmp_path / "never.csv", index=False)
    assert cli.main([word.format(tmp=tmp_path) for word in words]) == 1
    printed, error = capsys.readouterr()
    assert printed == ""
    assert re.match(rf"error: .*({message})", error)
    assert error.count("\n") == 1


def test_a_file_of_samples_has_types_and_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "samples.csv"
    file.write_text("numProcs,TP,thrashed,mine\n1,inf,0,a\n2,300,1,b\n")
    table = shapes.read(file)
    assert table["TP"].tolist() == [float("inf"), 300.0]
    assert table["thrashed"].tolist() == [False, True]
    assert table["mine"].tolist() == ["a", "b"]
    file.write_text("numProcs,TP\nmany,300\n")
    with pytest.raises(ShapeError, match="row 1: `numProcs` is many, not a number"):
        shapes.read(file)
    file.write_text("numProcs,TP\n")
    with pytest.raises(ShapeError, match="has no row"):
        shapes.read(file)
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(ShapeError, match="cannot be read"):
        shapes.read(tmp_path / "broken.parquet")
