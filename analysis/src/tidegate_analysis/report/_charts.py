"""Interactive charts: Vega-Lite specifications that take a static figure's place.

They are plain dictionaries with their data inside; nothing is loaded when the page is read. A name
in the legend can be clicked: the others fade.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from tidegate_analysis.report import _style as style
from tidegate_analysis.report._view import records

Chart = dict[str, Any]

#: Rows of data in a chart, at most.
MOST_ROWS: Final = 6_000


def throughput(
    curves: pd.DataFrame,
    level: str,
    title: str = "throughput, tps",
    repetitions: pd.DataFrame | None = None,
    band_ends: tuple[str, str] = ("95 % from", "to"),
) -> Chart:
    """Return throughput against MPL with bands, means, thrashing points, and every repetition.

    A band is drawn where `curves` has `tps_low` and `tps_high`; `band_ends` says what they are. A
    column that is not there is not drawn and not told.
    """
    x = _levels(curves["mpl"], level)
    y = {"field": "tps", "type": "quantitative", "title": title}
    rows = _records(curves, ["label", "mpl", "tps", "tps_low", "tps_high", "n", "TP"])
    tips = [
        {"field": "label", "title": "batchset"},
        {"field": "mpl", "title": level},
        {"field": "tps", "title": "tps", "format": ",.4~r"},
        {"field": "tps_low", "title": band_ends[0], "format": ",.4~r"},
        {"field": "tps_high", "title": band_ends[1], "format": ",.4~r"},
        {"field": "n", "title": "repetitions"},
    ]
    tips = [tip for tip in tips if tip["field"] in curves]
    band = {
        "transform": [{"filter": "isValid(datum.tps_low)"}],
        "mark": {"type": "area", "opacity": 0.2},
        "encoding": {
            "x": x,
            "y": {"field": "tps_low", "type": "quantitative", "title": y["title"]},
            "y2": {"field": "tps_high"},
            "color": _colour(),
        },
    }
    line = {
        "mark": {"type": "line", "point": {"size": 45}},
        "params": [_PICKED],
        "encoding": {"x": x, "y": y, "color": _colour(), "opacity": _FADING, "tooltip": tips},
    }
    mark = {
        "transform": [{"filter": "datum.TP == datum.mpl"}],
        "mark": {"type": "point", "shape": "cross", "angle": 45, "size": 180, "filled": True},
        "encoding": {
            "x": x, "y": y, "color": {"value": "#808890"},
            "tooltip": [{"field": "TP", "title": "thrashing point"}],
        },
    }  # fmt: skip
    layers = [band, line, mark] if "tps_low" in curves else [line, mark]
    if repetitions is not None:
        dot: Chart = {
            "data": {"values": _records(repetitions, ["mpl", "tps", "repetition"])},
            "mark": {"type": "circle", "size": 18, "opacity": 0.55},
            "encoding": {
                "x": x, "y": y, "color": {"value": "#808890"},
                "tooltip": [{"field": "repetition"}, {"field": "tps", "format": ",.4~r"}],
            },
        }  # fmt: skip
        layers.append(dot)
    return _chart(rows, {"layer": layers}, 320)


def latency(curves: pd.DataFrame, level: str) -> Chart:
    """Return latency percentiles against MPL, a line for each batchset; one percentile at once."""
    names = {"p50_ms": "median", "mean_ms": "mean", "p95_ms": "95 %", "p99_ms": "99 %"}
    long = curves.melt(["label", "mpl"], list(names), var_name="which", value_name="ms")
    long["which"] = long["which"].map(names)
    chosen = {
        "name": "percentile",
        "value": "99 %",
        "bind": {"input": "select", "options": list(names.values()), "name": "latency: "},
    }
    body = {
        "params": [chosen, _PICKED],
        "transform": [{"filter": "datum.which == percentile && datum.ms > 0"}],
        "mark": {"type": "line", "point": {"size": 45}},
        "encoding": {
            "x": _levels(curves["mpl"], level),
            "y": {
                "field": "ms",
                "type": "quantitative",
                "title": "latency, ms",
                "scale": {"type": "log"},
            },
            "color": _colour(),
            "opacity": _FADING,
            "tooltip": [
                {"field": "label", "title": "batchset"},
                {"field": "mpl", "title": level},
                {"field": "ms", "title": "ms", "format": ",.4~r"},
            ],
        },
    }
    return _chart(_records(long, ["label", "mpl", "which", "ms"]), body, 300)


def over_time(rows: pd.DataFrame, names: Mapping[str, str], marks: Sequence[float]) -> Chart:
    """Return columns over time below each other, a line for each `line`; dragging zooms all."""
    columns = ["line", "s", *names]
    step = -(-len(rows) // MOST_ROWS)
    data = _records(rows.iloc[::step], columns)
    views = [
        _timed(column, title, index, marks) for index, (column, title) in enumerate(names.items())
    ]
    zoom = {
        "name": "zoom",
        "select": {"type": "interval", "encodings": ["x"]},
        "bind": "scales",
        "views": [f"time{index}" for index in range(len(views))],
    }
    return {"data": {"values": data}, "params": [zoom], "vconcat": views, "config": _CONFIG}


def _timed(column: str, title: str, index: int, marks: Sequence[float]) -> Chart:
    """Return one column over time, with a dashed line wherever something was exchanged."""
    time = {"field": "s", "type": "quantitative", "title": "time, s", "scale": {"zero": True}}
    tips = [
        {"field": "line", "title": "line"},
        {"field": "s", "title": "s"},
        {"field": column, "title": title, "format": ",.4~r"},
    ]
    line = {
        "name": f"time{index}",
        "mark": {"type": "line", "strokeWidth": 1.3},
        "encoding": {
            "x": time,
            "y": {"field": column, "type": "quantitative", "title": title},
            "color": _colour("line"),
            "tooltip": tips,
        },
    }
    rules = [
        {
            "data": {"values": [{"s": mark}]},
            "mark": {"type": "rule", "strokeDash": [4, 3], "color": "#808890"},
            "encoding": {"x": time},
        }
        for mark in marks
    ]
    return {"width": 560, "height": 130, "layer": [line, *rules]}


_PICKED: Final[Chart] = {
    "name": "picked",
    "select": {"type": "point", "fields": ["label"]},
    "bind": "legend",
}
_FADING: Final[Chart] = {"condition": {"param": "picked", "value": 1}, "value": 0.12}
_CONFIG: Final[Chart] = {"background": "transparent", "legend": {"labelLimit": 420}}


def _colour(field: str = "label") -> Chart:
    return {
        "field": field,
        "type": "nominal",
        "sort": None,
        "title": None,
        "scale": {"range": list(style.COLOURS)},
        "legend": {"orient": "bottom", "columns": 1, "symbolOpacity": 1},
    }


def _levels(levels: pd.Series, title: str) -> Chart:
    shown = sorted({float(level) for level in levels})
    x: Chart = {"field": "mpl", "type": "quantitative", "title": title}
    x["axis"] = {"values": shown, "labelOverlap": True, "format": ",~r"}
    if shown[0] > 0 and shown[-1] / shown[0] >= 16:
        x["scale"] = {"type": "log", "base": 2}
    return x


def _records(table: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows with four significant digits, which is what a screen can show."""
    rows = table[[name for name in columns if name in table]]
    return [{name: _plain(value) for name, value in row.items()} for row in records(rows)]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(f"{value:.5g}")
    return value.item() if hasattr(value, "item") else value


def _chart(rows: list[dict[str, Any]], body: Mapping[str, Any], height: int) -> Chart:
    return {
        "data": {"values": rows},
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": _CONFIG,
        **body,
    }
