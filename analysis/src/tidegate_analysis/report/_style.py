"""One style for all static figures, and what makes their bytes the same each time.

Colours are those of Okabe and Ito (2008), which people who see fewer colours tell apart, without
yellow, which is lost on white. Markers and dashes differ, too, so that nothing hangs on colour. In
the page a colour is replaced by a CSS variable, so that a figure follows the page into dark mode;
the file for print keeps it.
"""

import html
import io
import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Figure as Drawn

INK: Final = "#1b2026"
GRID: Final = "#d5dae0"
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

STYLE: Final[Any] = {
    "svg.hashsalt": "tidegate",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "figure.facecolor": "none",
    "image.cmap": "cividis",
}

_NOTHING: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}


#: Makes a function draw in our style.
styled: Final = mpl.rc_context(STYLE)


def style() -> Any:
    """Return a context in which figures have our style."""
    return mpl.rc_context(STYLE)


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def line(index: int, *, marker: bool = False) -> dict[str, Any]:
    """Return how the line of that number looks: its colour, its dashes, and its marker if asked."""
    look = {"color": colour(index), "linestyle": DASHES[index % len(DASHES)]}
    return look | ({"marker": MARKERS[index % len(MARKERS)]} if marker else {})


def empty(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches; axes keep out of each other's way."""
    return Figure(figsize=(width, height), layout="constrained")


def panels(count: int, columns: int, width: float = 7.2, height: float = 1.9) -> tuple[Any, ...]:
    """Return a figure of small multiples, and its axes in reading order; unused ones are hidden."""
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = empty(width, max(2.8, height * rows))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in axes[count:]:
        unused.set_visible(False)
    return figure, list(axes[:count])


#: How much of an axes' width a title takes: another font than ours may be a little wider.
TITLE_ROOM: Final = 0.95


def titles(figure: Figure, axes: Sequence[Axes], labels: Sequence[str], size: float) -> None:
    """Give each axes its title, broken into lines that are no wider than the axes.

    Layout does not make room for the width of a title, and what is wider than its axes is cut at
    the edge of the figure. So this is called when all else is drawn, and measures.
    """
    figure.draw_without_rendering()
    font = FontProperties(family=STYLE["font.sans-serif"], size=size)
    for panel, label in zip(axes, labels, strict=True):
        room = TITLE_ROOM * panel.get_window_extent().width * 72 / figure.dpi
        panel.set_title("\n".join(_lines(label, font, room)), fontsize=size)


def _lines(label: str, font: FontProperties, room: float) -> list[str]:
    """Break a label after commas, and inside a piece that is too wide alone at its spaces."""

    def width(text: str) -> float:
        return float(TextPath((0, 0), text, prop=font).get_extents().width)

    pieces = [f"{piece}," for piece in label.split(", ")]
    pieces[-1] = pieces[-1].removesuffix(",")
    lines = [""]
    for piece in pieces:
        parts = [piece] if width(piece) <= room else piece.split(" ")
        for part in parts:
            joined = f"{lines[-1]} {part}".lstrip()
            if lines[-1] and width(joined) > room:
                lines.append(part)
            else:
                lines[-1] = joined
    return lines


def levels(axes: Axes, values: Any, ticks: int = 10) -> None:
    """Make the x axis one of levels: logarithmic where they span a factor of 16 or more."""
    shown = sorted({float(value) for value in values})
    places = np.asarray(shown)
    if len(shown) > 1 and shown[0] > 0 and shown[-1] / shown[0] >= 16:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        places = np.log(places)
    axes.set_xticks([shown[index] for index in _apart(places, ticks)])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: words.number(x)))


def _apart(places: np.ndarray, ticks: int) -> list[int]:
    """Return which places have a tick, from the last backwards, so that names do not touch."""
    room = (places[-1] - places[0]) / ticks if len(places) > 1 else 0.0
    kept = [len(places) - 1]
    for index in range(len(places) - 2, -1, -1):
        if places[kept[-1]] - places[index] >= 0.99 * room:
            kept.append(index)
    return kept[::-1]


def logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, its numbers as they are read, between decades where it is short."""
    if not np.isfinite(axes.dataLim.minposx if which == "x" else axes.dataLim.minposy):
        return  # nothing in it is more than nothing
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    low, high = sorted(axes.get_xlim() if which == "x" else axes.get_ylim())
    steps = (1.0,) if low > 0 and high / low > 300 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=steps, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: words.value(value)))


def thousands(axes: Axes, most: float = np.inf) -> None:
    """Write the numbers at the y axis as they are read, from nothing to what is drawn, or `most`.

    With two repetitions an interval is many times as wide as what was measured; `most` keeps it
    from making all else small.
    """
    top = min(axes.dataLim.y1, most)
    if np.isfinite(top) and top > 0:
        axes.set_ylim(0, 1.06 * top)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: words.number(y)))


def svg(figure: Figure, title: str, alt: str) -> str:
    """Return a figure as an SVG document with a title and a description, and no date."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata=_NOTHING, transparent=True)
    text = buffer.getvalue().decode()
    text = text[text.index("<svg") :]
    head = text.index(">") + 1
    words_ = f"<title>{html.escape(title)}</title><desc>{html.escape(alt)}</desc>"
    return f"{text[:head]}\n {words_}{text[head:]}"


def drawn(figure: Figure, name: str, title: str, caption: str, seen: str | Sequence[str]) -> Drawn:
    """Return a figure of the report; what is seen in it is a text, or sentences without stops."""
    alt = seen if isinstance(seen, str) else ". ".join(seen) + "."
    return Drawn(name, caption, alt, svg(figure, title, alt))


def inline(document: str, prefix: str, alt: str) -> str:
    """Return an SVG document as an element of a page: own ids, its colours those of the page."""
    seen: set[str] = set()

    def own(match: re.Match[str]) -> str:
        # An identifier that comes again is that of the same shape, drawn in another panel.
        name = match.group(1)
        is_new = name not in seen
        seen.add(name)
        return f' id="{prefix}-{name}"' if is_new else ""

    text = re.sub(r'\sid="([^"]+)"', own, document)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    text = re.sub(r"(?s)<title>.*?</desc>", "", text, count=1)
    for index, colour in enumerate(COLOURS):
        text = text.replace(colour, f"var(--c{index + 1})")
    text = text.replace(INK, "var(--ink)").replace(GRID, "var(--grid)")
    end = text.index(">")
    head = re.sub(r' (?:width|height)="[^"]+"', "", text[:end]).replace(
        "<svg", f'<svg role="img" aria-label="{html.escape(alt, quote=True)}"', 1
    )
    return head + text[end:]
