"""Path diagrams as SVG, before estimation and after it.

Before, each path shows its hypothesised sign and the hypothesis' name. After, it shows the
standardised coefficient with its stars, and its line is the heavier the larger the coefficient;
paths that refinement dropped are dashed and grey, and endogenous variables show their R². A
moderator's arrow ends on the path that it moderates.

The picture is one self-contained element: no font, script or style from elsewhere, a title and a
description for those who do not see it, colours for light and dark surroundings. The same model
gives the same bytes.

Limits: made for models of some ten variables; it places boxes in the order of the file and does not
search for the order with the fewest crossings.
"""

import math
import re
from collections.abc import Collection, Mapping
from html import escape
from typing import Final

from tidegate_analysis.model._layout import FONT, SMALL, Label, Layout, Line, Point, layout
from tidegate_analysis.model.structure import Edge, Model

#: Standardised coefficient and p, by edge.
Estimates = Mapping[Edge, tuple[float, float]]

_STYLE: Final = """
.tg-path text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:#1c2024}
.tg-path .paper{fill:#ffffff}.tg-path .frame{fill:#f3f5f7;stroke:#aab2bb}
.tg-path .box{fill:#ffffff;stroke:#3b4550}.tg-path .quiet{fill:#59636e}
.tg-path .line{fill:none;stroke:#1f5fa8}.tg-path .head{fill:#1f5fa8}
.tg-path .minus .line{stroke:#a8431f}.tg-path .minus .head{fill:#a8431f}
.tg-path .dropped .line{stroke:#8b949e}.tg-path .dropped .head{fill:#8b949e}
.tg-path .dropped text{fill:#59636e}
.tg-path .plain .line{stroke:#59636e}.tg-path .plain .head{fill:#59636e}
@media(prefers-color-scheme:dark){.tg-path text{fill:#e6e9ec}.tg-path .paper{fill:#14171a}
.tg-path .frame{fill:#1d2226;stroke:#56606a}.tg-path .box{fill:#14171a;stroke:#a9b3bd}
.tg-path .quiet{fill:#a9b3bd}.tg-path .line{stroke:#79b4f2}.tg-path .head{fill:#79b4f2}
.tg-path .minus .line{stroke:#f2a179}.tg-path .minus .head{fill:#f2a179}
.tg-path .dropped .line{stroke:#7d8790}.tg-path .dropped .head{fill:#7d8790}
.tg-path .dropped text{fill:#a9b3bd}
.tg-path .plain .line{stroke:#a9b3bd}.tg-path .plain .head{fill:#a9b3bd}}
""".replace("\n", "")

_HEAD_LENGTH: Final = 9.0


def draw(
    model: Model,
    estimates: Estimates | None = None,
    *,
    r_squared: Mapping[str, float] | None = None,
    dropped: Collection[Edge] = (),
    title: str | None = None,
) -> str:
    """Return a path diagram as SVG.

    - model: What to draw. To show dropped paths draw the initial model.
    - estimates: Standardised coefficient and p of each edge, as `PathFit.estimates` returns them;
      without them hypotheses are drawn.
    - title: The model's name by default.
    """
    title = title or model.name
    texts = _variable_texts(model, r_squared or {})
    plan = layout(model, texts, label_texts(model, estimates, dropped))
    name = "tg-" + (re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "model")
    width, height = _number(plan.width), _number(plan.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tg-path" role="img" '
        f'aria-labelledby="{name}-title {name}-desc" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" style="max-width:100%;height:auto">',
        f'<title id="{name}-title">{escape(title)}</title>',
        f'<desc id="{name}-desc">{escape(describe(model, estimates, dropped))}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for label, frame in plan.constructs:
        parts.append(
            f'<rect class="frame" x="{_number(frame.x)}" y="{_number(frame.y)}" '
            f'width="{_number(frame.width)}" height="{_number(frame.height)}" rx="8"/>'
        )
        parts.append(
            f'<text class="quiet" x="{_number(label.box.x)}" '
            f'y="{_number(label.box.bottom - 3)}" font-size="{_number(SMALL)}">'
            f"{escape(label.text)}</text>"
        )
    parts += [_line(line, model, estimates, dropped) for line in plan.lines]
    parts += [_variable(name, plan, texts[name]) for name in plan.variables]
    return "\n".join([*parts, "</svg>"]) + "\n"


def geometry(
    model: Model,
    estimates: Estimates | None = None,
    *,
    r_squared: Mapping[str, float] | None = None,
    dropped: Collection[Edge] = (),
) -> Layout:
    """Return where `draw` puts everything."""
    return layout(
        model, _variable_texts(model, r_squared or {}), label_texts(model, estimates, dropped)
    )


def label_texts(
    model: Model, estimates: Estimates | None, dropped: Collection[Edge]
) -> dict[Edge, str]:
    """Return the text on each edge."""
    texts = {}
    for edge in [p.edge for p in model.paths] + [m.edge for m in model.moderators]:
        if estimates is not None and edge in estimates and edge not in dropped:
            value, p = estimates[edge]
            texts[edge] = f"{_signed(value)}{'*' * sum(p < x for x in (0.05, 0.01, 0.001))}"
        elif edge in dropped:
            texts[edge] = "n.s."
        elif len(edge) == 2:
            path = model.path(*edge)
            sign = "\u2212" if path.sign == "-" else "+"
            texts[edge] = f"{path.hypothesis} {sign}".strip()
        else:
            texts[edge] = ""
    return texts


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "\u2212")


def _variable_texts(model: Model, r_squared: Mapping[str, float]) -> dict[str, list[str]]:
    return {
        v.name: [
            v.name,
            *(
                [f"R² = {r_squared[v.name]:.2f}"]
                if v.name in r_squared
                else [v.unit] * bool(v.unit)
            ),
        ]
        for v in model.variables
    }


def _variable(name: str, plan: Layout, texts: list[str]) -> str:
    box = plan.variables[name]
    x, y = box.middle
    first = f'font-size="{_number(FONT)}" font-weight="600"'
    other = f'font-size="{_number(SMALL)}" class="quiet"'
    rows = [
        f'<text x="{_number(x)}" y="{_number(y + 5 + (i - (len(texts) - 1) / 2) * 17)}" '
        f'text-anchor="middle" {other if i else first}>{escape(text)}</text>'
        for i, text in enumerate(texts)
    ]
    return (
        f'<rect class="box" x="{_number(box.x)}" y="{_number(box.y)}" '
        f'width="{_number(box.width)}" height="{_number(box.height)}" rx="4"/>' + "".join(rows)
    )


def _line(line: Line, model: Model, estimates: Estimates | None, dropped: Collection[Edge]) -> str:
    weight = 1.5
    kind = ""
    if line.edge in dropped:
        kind = "dropped"
    elif estimates is not None and line.edge in estimates:
        value = estimates[line.edge][0]
        weight = 1.2 + 6.0 * min(abs(value), 1.0)
        kind = "minus" if value < 0 else "plus"
    elif len(line.edge) == 2:
        kind = "minus" if model.path(*line.edge).sign == "-" else "plus"
    dashes = ' stroke-dasharray="6 5"' if kind == "dropped" else ""
    tip, before = line.points[-1], line.points[-2]
    size = _HEAD_LENGTH + weight
    shaft = (*line.points[:-1], _towards(tip, before, size * 0.8))
    way = " ".join(f"{_number(x)},{_number(y)}" for x, y in shaft)
    parts = [
        f'<polyline class="line" points="{way}" stroke-width="{_number(weight)}"{dashes} '
        'stroke-linejoin="round"/>',
        f'<polygon class="head" points="{_arrow(tip, before, size)}"/>',
    ]
    if line.label is not None:
        parts.append(_text(line.label))
    return f'<g class="{kind or "plain"}">{"".join(parts)}</g>'


def _text(label: Label) -> str:
    x, y = label.box.middle
    return (
        f'<text x="{_number(x)}" y="{_number(y + SMALL * 0.35)}" text-anchor="middle" '
        f'font-size="{_number(SMALL)}">{escape(label.text)}</text>'
    )


def _towards(a: Point, b: Point, distance: float) -> Point:
    length = math.dist(a, b) or 1.0
    return (a[0] + (b[0] - a[0]) / length * distance, a[1] + (b[1] - a[1]) / length * distance)


def _arrow(tip: Point, before: Point, size: float) -> str:
    base = _towards(tip, before, size)
    across = ((tip[1] - base[1]) * 0.4, (base[0] - tip[0]) * 0.4)
    corners = (
        tip,
        (base[0] + across[0], base[1] + across[1]),
        (base[0] - across[0], base[1] - across[1]),
    )
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in corners)


def describe(
    model: Model, estimates: Estimates | None = None, dropped: Collection[Edge] = ()
) -> str:
    """Return the diagram in words, a sentence for each path."""
    sentences = []
    for path in model.paths:
        if path.edge in dropped:
            what = "dropped, not significant"
        elif estimates is not None and path.edge in estimates:
            value, p = estimates[path.edge]
            size = "< 0.001" if p < 0.001 else f"= {p:.3f}"
            what = f"standardised coefficient {value:.2f}, p {size}"
        else:
            what = f"hypothesised {'positive' if path.sign == '+' else 'negative'}"
        sentences.append(f"{path.source} to {path.target}: {what}.")
    sentences += [
        f"{m.by} moderates the path from {m.source} to {m.target}"
        f"{' (dropped)' if m.edge in dropped else ''}."
        for m in model.moderators
    ]
    return " ".join(sentences)


def _number(value: float) -> str:
    """Write a coordinate: one decimal at most, and never -0."""
    return f"{round(value, 1) + 0.0:g}"
