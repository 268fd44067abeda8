"""A page needs nothing but itself, and holds what was measured or why not."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from report_stand_in import (
    HILL,
    Page,
    StandIn,
    about,
    controlled,
    curve,
    design,
    deteriorating,
    execution,
    priority,
    written,
)

from tidegate_analysis import report
from tidegate_analysis.errors import AnalysisError, SampleError, StoreError
from tidegate_analysis.report._view import View


@dataclass(frozen=True)
class Hill:
    """The report of a curve that rises and falls."""

    text: str
    page: Page
    out: Path


@pytest.fixture(scope="module")
def hill(tmp_path_factory: pytest.TempPathFactory) -> Hill:
    out = tmp_path_factory.mktemp("hill")
    return Hill(*written(curve(HILL), out), out)


def test_a_page_needs_nothing_but_itself(hill: Hill) -> None:
    text, page = hill.text, hill.page
    assert all(reference.startswith(("#", "data:")) for reference in page.references)
    style = text[text.index("<style>") : text.index("</style>")]
    assert "url(" not in style and "@import" not in style
    assert "default-src 'none'" in text
    assert "script" not in page.tags


def test_links_lead_to_something_and_identifiers_are_unique(hill: Hill) -> None:
    page = hill.page
    assert len(page.identifiers) == len(set(page.identifiers))
    links = {reference[1:] for reference in page.references if reference.startswith("#")}
    assert links <= set(page.identifiers)


#: What a caption names, and how the figure shows it.
DRAWN: Mapping[str, str] = {
    "band": r'id="(FillBetween)?PolyCollection',
    "cross": r"stroke-width: 1\.8",
    "dashed line": r"stroke-dasharray",
}


MADE: Mapping[str, Callable[[], StandIn]] = {
    "a hill": lambda: curve(HILL),
    "a hill, once": lambda: curve(HILL, repetitions=1),
    "many batchsets": lambda: design({}),
    "a controller": controlled,
    "aging": deteriorating,
    "classes": priority,
}


def _figures(made: StandIn) -> list[report.Figure]:
    sections = [maker(View(made, 1)) for maker in (*report._BEFORE, *report._AFTER)]
    parts = [part for section in sections for part in section.parts]
    return [part for part in parts if isinstance(part, report.Figure)]


@pytest.mark.parametrize("name", MADE)
def test_figures_show_what_their_captions_say(name: str) -> None:
    found = _figures(MADE[name]())
    assert found
    for each in found:
        for word, drawn in DRAWN.items():
            if word in each.caption:
                assert re.search(drawn, each.svg), f"{each.name}: no {word}: {each.caption}"


def test_text_of_a_store_is_text_in_the_page(hill: Hill) -> None:
    text, page = hill.text, hill.page
    assert "A <b>processor</b>" in "".join(page.data)
    assert "<b>processor" not in text


def test_every_figure_says_what_it_shows(hill: Hill) -> None:
    page = hill.page
    assert page.images and all(page.images)
    assert any("throughput rises to" in str(alt) and "at MPL 16" in str(alt) for alt in page.images)


def test_figures_for_print_are_svg_with_title_and_description(hill: Hill) -> None:
    files = sorted((hill.out / "figures").glob("*.svg"))
    assert files
    for file in files:
        root = ElementTree.fromstring(file.read_text("utf-8"))
        names = [child.tag.rpartition("}")[2] for child in root]
        assert names[:2] == ["title", "desc"]


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    made = curve(HILL)
    first, second = (report.write(made, [1], tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == [path.name for path in second]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_data_are_beside_the_page(hill: Hill) -> None:
    table = pd.read_csv(hill.out / "data" / "curves.csv")
    assert table["mpl"].tolist() == list(HILL)
    assert "sentence" in pd.read_csv(hill.out / "data" / "advice.csv")


def test_every_table_is_beside_the_page(hill: Hill, tmp_path: Path) -> None:
    named = set(re.findall(r"data/(1-[a-z-]+\.csv)", "".join(hill.page.data)))
    assert named == {path.name for path in (hill.out / "data").glob("1-*.csv")}
    assert len(named) == hill.page.tags.count("table") > 2
    written(design({}), tmp_path)
    points = pd.read_csv(tmp_path / "data" / "1-tap-points.csv")
    assert len(points) == 64 and set(points["TP"]) == {100, 200}
    assert len(pd.read_csv(tmp_path / "data" / "1-law-numbers.csv")) == 64


def test_a_controller_has_its_limit_over_time_with_the_switch(tmp_path: Path) -> None:
    _, page = written(controlled(), tmp_path)
    text = "".join(page.data)
    assert "the dashed line, at 1 s, is the switch" in text
    assert any("at limit 4 in the mean" in str(alt) for alt in page.images)
    assert "Published curve beside ours" in text
    assert (tmp_path / "figures" / "1-time-1-2.svg").exists()


def test_many_batchsets_are_drawn_in_part_and_all_at_a_glance(tmp_path: Path) -> None:
    _, page = written(design({}), tmp_path)
    text = "".join(page.data)
    assert "40 of 64 batchsets have no panel of their own" in text
    assert "24 of 64 batchsets are drawn" in text
    assert "The first 60 of 64 rows; all are in the file. data/1-law-numbers.csv" in text
    assert (tmp_path / "figures" / "1-glance.svg").exists()


def test_what_an_experiment_has_not_is_said(hill: Hill) -> None:
    page = hill.page
    text = "".join(page.data)
    assert "the experiment was not analysed; `tidegate lab tap 1` does it" in text
    assert "it is for scenario `deteriorate`" in text


def test_an_experiment_without_measurements_says_so(tmp_path: Path) -> None:
    made = curve(HILL)
    made.table["tps"] = np.nan
    _, page = written(made, tmp_path)
    text = "".join(page.data)
    assert "None of 15 executions was measured" in text
    assert "`tidegate lab resume 1`" in text


def test_an_empty_experiment_says_so(tmp_path: Path) -> None:
    columns = list(execution(1, 1.0))
    made = StandIn(about(), pd.DataFrame(columns=columns))
    _, page = written(made, tmp_path)
    assert "nothing was planned" in "".join(page.data)


def test_missing_executions_are_counted(tmp_path: Path) -> None:
    made = curve(HILL)
    made.table.loc[[0, 1], "tps"] = np.nan
    _, page = written(made, tmp_path)
    assert "2 executions of 15 are missing" in "".join(page.data)


@pytest.mark.parametrize(
    ("experiments", "message"),
    [([], "no experiment was asked for"), ([9], "experiment 9 is not in the store")],
)
def test_wrong_requests_are_refused(experiments: list[int], message: str, tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=message):
        report.write(curve(HILL), experiments, tmp_path)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AnalysisError, match="cannot be written"):
        report.write(curve(HILL), [1], tmp_path / "file" / "out")


def test_further_sections_are_shown_or_their_reason(tmp_path: Path) -> None:
    def diagram(_: report.Results, number: int) -> report.Section:
        svg = '<svg xmlns="http://www.w3.org/2000/svg"><path id="arrow" d=""/></svg>'
        figure = report.Figure("paths", "The model's paths.", f"PK raises TP in {number}", svg)
        return report.Section("paths", "Path diagram", [figure])

    def estimates(_: report.Results, __: int) -> report.Section:
        raise SampleError("3 samples for 4 parameters", "measure more batchsets")

    text, page = written(curve(HILL), tmp_path, more=[diagram, estimates])
    assert "PK raises TP in 1" in page.images
    assert 'id="e1-paths-arrow"' in text
    assert "Estimates: 3 samples for 4 parameters: measure more batchsets." in re.sub(
        r"\s+", " ", "".join(page.data)
    )


def test_a_damaged_store_ends_the_report(tmp_path: Path) -> None:
    def damaged(_: report.Results, __: int) -> report.Section:
        raise StoreError("the store is damaged", "use another copy")

    with pytest.raises(StoreError):
        report.write(curve(HILL), [1], tmp_path, more=[damaged])


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    report.write(curve(HILL), [1], tmp_path, progress=told.append)
    assert told[0] == "experiment 1: header" and told[-1] == "writing the page"
