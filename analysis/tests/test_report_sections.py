"""Sections of the report: single scenarios, and figures that are drawn right."""

import re

import pandas as pd
import pytest
from report_stand_in import (
    COLUMNS,
    HILL,
    KEY,
    curve,
    design,
    deteriorating,
    figure,
    priority,
    sentences,
    table,
)

from tidegate_analysis import report
from tidegate_analysis.errors import StoreError
from tidegate_analysis.report import _style as style
from tidegate_analysis.report._details import classes, kinds, trees
from tidegate_analysis.report._protocol import tap, troubles
from tidegate_analysis.report._published import published_figures
from tidegate_analysis.report._throughput import law
from tidegate_analysis.report._time import heat, over_time
from tidegate_analysis.report._view import View


def test_classes_are_compared_with_and_without_priority() -> None:
    section = classes(View(priority(), 1))
    assert "high is up to 12 times faster than normal" in figure(section, "classes").alt
    assert table(section, "class-table").rows[0][-1] == "12"
    faster, slower, *_ = [s for s in sentences(priority()) if s.about == "priority"]
    assert faster.kind == slower.kind == "shown"
    # MPL 5 keeps 97 of 100 tps; normal goes from 100 ms to 120 ms.
    assert "at MPL 5" in faster.text and "at MPL 5" in slower.text
    assert "12 times faster" in faster.text and "20 % slower" in slower.text
    rows = table(published_figures(View(priority(), 1)), "published").rows
    assert rows[0][2] == "12 at MPL 5" and rows[2][2] == "20 % slower at MPL 5"


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ({}, {"priority given", "priority not given"}),
        ({"locks": False, "processors": False}, {"priority given", "priority not given"}),
        ({"locks": True}, {"priority at the gate and in lock queues", "priority in lock queues"}),
        (
            {"locks": True, "processors": True},
            {
                "priority at the gate, in lock queues and on processors",
                "priority in lock queues and on processors",
            },
        ),
    ],
)
def test_a_priority_is_named_by_where_it_counts(
    inside: dict[str, bool], expected: set[str]
) -> None:
    assert set(View(priority(**inside), 1).curves["priority"]) == expected


def test_trees_are_shown_over_time_and_leaf_by_leaf() -> None:
    section = trees(View(deteriorating(), 1))
    assert "orders, split half: from 93 % to 50 %" in figure(section, "fills").alt
    assert "20 a second" in figure(section, "reads").alt
    assert "split half: 100 % of 40 leaves are less than 60 % full" in figure(section, "leaves").alt


def test_kinds_have_percentiles_and_boxes() -> None:
    made = curve(HILL, repetitions=1)
    keys = made.table[KEY]
    values = {"mean_ms": 5.0, "p50_ms": 4.0, "p95_ms": 9.0, "p99_ms": 12.0, "max_ms": 20.0}
    made.frames["kinds"] = pd.concat(
        keys.assign(workload="tpcc", kind=kind, committed=n, rolled_back=0, **values)
        for kind, n in (("payment", 10), ("new-order", 10), ("delivery", 0))
    )
    made.frames["interval_kinds"] = pd.concat(
        keys.assign(interval=i, workload="tpcc", kind="payment", until_s=i, transactions=5,
                    mean_ms=float(i), p99_ms=9.0)
        for i in (1, 2, 3)
    )  # fmt: skip
    section = kinds(View(made, 1))
    assert "delivery" not in figure(section, "kinds").svg
    assert "medians are payment 2 ms" in figure(section, "boxes").alt


def test_counts_of_the_latest_analysis_are_tables() -> None:
    made = design({})
    rows = [
        (1, 1, "1", "zero_tps", "", "execution", 6, 10, 9, 3),
        (1, 2, "1", "zero_tps", "", "execution", 6, 200, 5, 2),
        (1, 2, "1", "missing_batches", "", "batch", 1, 100, 0, 0),
        (1, 2, "1", "transient_thrashing", "", "batchset", 9, 64, 0, 0),
        (1, 2, "2", "faulty_executions", "", "execution", None, 200, 5, None),
        (1, 2, "4", "thrashing", "update", "batchset", None, 64, 32, None),
    ]
    made.frames["tap_counts"] = pd.DataFrame(rows, columns=COLUMNS["tap_counts"])
    section = tap(View(made, 1))
    assert list(table(section, "checks").rows) == [
        ("1", "missing batches", "0", "100 batches", "0 %", "0"),
        ("6", "zero TPS", "5", "200 executions", "2.5 %", "2"),
        ("9", "transient thrashing", "0", "64 batchsets", "0 %", "0"),
    ]
    assert ("2", "dropped for a violation", "execution", "5", "200", "195") in table(
        section, "steps"
    ).rows
    assert len(table(section, "tap-points").rows) == 64


@pytest.mark.parametrize(("text", "said"), [("{", "is damaged"), ("[]", r"is `\[\]`, no object")])
def test_a_treatment_that_is_none_is_no_empty_one(text: str, said: str) -> None:
    made = curve(HILL)
    made.table["treatment"] = text
    with pytest.raises(StoreError, match=f"`treatment` of execution 1 {said}"):
        _ = View(made, 1).batchsets


def test_troubles_are_counted() -> None:
    made = curve(HILL, repetitions=1)
    made.frames["troubles"] = made.table[KEY].assign(trouble="conflict", what="40P01", times=2)
    assert table(troubles(View(made, 1)), "troubles").rows == [
        ("embedded", "conflict", "40P01", "10", "5", "1 to 256")
    ]


def test_the_law_is_drawn_or_said_to_be_missing() -> None:
    section = law(View(curve(HILL), 1))
    assert "the law's peak is" in figure(section, "law").alt


def test_a_collapse_is_not_called_a_flat_curve() -> None:
    falls = {8: 3_550.0, 32: 120.0, 128: 50.0, 512: 28.0}
    section = law(View(curve(falls), 1))
    (row,) = table(section, "law-numbers").rows
    assert row[1].startswith("∞") and row[2] == "– (0 to 1)"
    assert "falls at least as fast as the law can, from MPL 8 on" in row[-1]
    assert "by no more than chance" not in row[-1]
    assert "the law has no peak" in figure(section, "law").alt


def test_one_interval_is_said_to_be_no_course() -> None:
    made = curve(HILL)
    for name in ("intervals", "histograms"):
        frame = made.frames[name]
        made.frames[name] = frame[frame["interval"] == 1]
    for maker in (over_time, heat):
        section = maker(View(made, 1))
        assert not section.parts and "one interval" in section.missing


def test_titles_are_inside_their_figure() -> None:
    label = "postgres, 2 processors, no primary key, update, SF 0.25 %, ROSE 100 %"
    labels = [label, "a", f"{label}, of one very long piece that has no comma where it could end"]
    with style.style():
        for columns, size in ((2, 9.0), (4, 7.0)):
            figure, axes = style.panels(4, columns)
            own = [labels[place % 3] for place in range(4)]
            style.titles(figure, axes, own, size)
            figure.draw_without_rendering()
            for panel, text in zip(axes, own, strict=True):
                assert panel.get_title().replace("\n", " ") == text
                title, edge = panel.title.get_window_extent(), figure.bbox
                assert title.width <= panel.get_window_extent().width, (columns, text)
                assert edge.x0 <= title.x0 and title.x1 <= edge.x1 and title.y1 <= edge.y1


def test_latencies_that_are_alike_have_an_axis() -> None:
    made = curve(HILL)
    made.frames["histograms"]["latency_us"] = 4_000
    (found,) = heat(View(made, 1)).parts
    assert isinstance(found, report.Figure)
    numbers = re.findall(r">([\d.]+)</text>", found.svg)
    assert {"3.6", "4.4"} <= set(numbers), numbers
