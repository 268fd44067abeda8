"""Where the parts of a path diagram go: geometry only, no drawing.

Layers go from left to right, exogenous variables first; a variable stands one layer behind the last
of its causes (Sugiyama's longest path). A path that skips a layer would cross the boxes in it, so
the layer gets a *lane* for it, above or below its boxes, at the height where the path begins.
Labels look for a place along their path where they touch no box, no other label, and as few other
paths as can be.

All numbers are pixels, y grows downwards. Widths of text are estimated from above (a character of a
sans serif is below 0.62 em on average), so what fits here fits in the browser.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tidegate_analysis.model.structure import Edge, Model

Point = tuple[float, float]

FONT: Final = 14.0
SMALL: Final = 12.0
_CHARACTER: Final = 0.62
_PAD: Final = 12.0
_BOX: Final = 46.0
_GAP: Final = 30.0
_HEAD: Final = 24.0
_LANE: Final = 40.0
_BETWEEN: Final = 190.0
_MARGIN: Final = 16.0


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> Point:
        return (self.x + self.width / 2, self.y + self.height / 2)

    def overlaps(self, other: "Box", gap: float = 0.0) -> bool:
        """Tell whether the two share a point, or come nearer than the gap."""
        return (
            self.x < other.right + gap
            and other.x < self.right + gap
            and self.y < other.bottom + gap
            and other.y < self.bottom + gap
        )


@dataclass(frozen=True)
class Label:
    """A text and the rectangle that it fills."""

    text: str
    box: Box


@dataclass(frozen=True)
class Line:
    """The route of a path: corners, where its label stands, and where a moderator meets it."""

    edge: Edge
    points: tuple[Point, ...]
    label: Label | None = None


@dataclass(frozen=True)
class Layout:
    """All parts of a diagram.

    - constructs: Frames around the variables of a construct in one layer; the label is the
      construct's.
    - lines: Of paths, then of moderators.
    """

    width: float
    height: float
    constructs: tuple[tuple[Label, Box], ...]
    variables: Mapping[str, Box]
    lines: tuple[Line, ...]
    joints: Mapping[Edge, Point] = field(default_factory=dict)


def text_width(text: str, size: float) -> float:
    """Return an upper estimate of a text's width."""
    return len(text) * size * _CHARACTER


def layout(model: Model, texts: Mapping[str, Sequence[str]], labels: Mapping[Edge, str]) -> Layout:
    """Place everything.

    - texts: Lines of text in the box of each variable.
    - labels: Text on each path and moderator; an empty one takes no place.
    """
    layers = _layers(model)
    columns = [[name for name in model.order() if layers[name] == i] for i in _range(layers)]
    columns = [_by_construct(model, column) for column in columns]
    widths = [_column_width(model, column, texts) for column in columns]
    lanes = _lanes(model, layers)
    heights = [_column_height(model, c) + _LANE * len(lanes[i]) for i, c in enumerate(columns)]
    top, tallest = _MARGIN, max(heights)
    x = _MARGIN
    variables: dict[str, Box] = {}
    frames: list[tuple[Label, Box]] = []
    rails: dict[tuple[int, Edge], tuple[float, float, float]] = {}
    for i, column in enumerate(columns):
        above, below = _sides(lanes[i], variables, model)
        y = top + (tallest - heights[i]) / 2
        for edge in above:
            rails[i, edge] = (x, x + widths[i], y + 0.6 * _LANE)
            y += _LANE
        boxes, found, y = _place(model, column, (x, y), widths[i])
        variables |= boxes
        frames += found
        for edge in below:
            rails[i, edge] = (x, x + widths[i], y + 0.75 * _LANE)
            y += _LANE
        x += widths[i] + _BETWEEN
    width, height = x - _BETWEEN + _MARGIN, top + tallest + _MARGIN
    routes = _routes(model, layers, variables, rails)
    obstacles = [*variables.values(), *(frame for _, frame in frames)]
    lines, joints = _labelled(model, routes, labels, obstacles, variables)
    return Layout(width, height, tuple(frames), variables, lines, joints)


def _layers(model: Model) -> dict[str, int]:
    layers: dict[str, int] = {}
    for name in model.order():
        layers[name] = max((layers[parent] + 1 for parent in model.parents(name)), default=0)
    return layers


def _range(layers: Mapping[str, int]) -> range:
    return range(max(layers.values()) + 1)


def _by_construct(model: Model, column: Sequence[str]) -> list[str]:
    """Bring variables of one construct together, else in the order of the file."""
    file = [v.name for v in model.variables if v.name in column]
    constructs = list(dict.fromkeys(model[name].construct for name in file))
    return sorted(file, key=lambda name: constructs.index(model[name].construct))


def _groups(model: Model, column: Sequence[str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name in column:
        groups.setdefault(model[name].construct, []).append(name)
    return list(groups.values())


def _column_width(model: Model, column: Sequence[str], texts: Mapping[str, Sequence[str]]) -> float:
    heads = [text_width(model[name].construct, SMALL) for name in column]
    inner = [
        max(text_width(line, FONT if i == 0 else SMALL) for i, line in enumerate(texts[name]))
        for name in column
    ]
    return max(*heads, *(w + 2 * _PAD for w in inner)) + 2 * _PAD


def _column_height(model: Model, column: Sequence[str]) -> float:
    groups = _groups(model, column)
    frames = sum(_HEAD + len(group) * (_BOX + _PAD) for group in groups)
    return frames + _GAP * (len(groups) - 1)


def _place(
    model: Model,
    column: Sequence[str],
    corner: Point,
    width: float,
) -> tuple[dict[str, Box], list[tuple[Label, Box]], float]:
    """Put the constructs of a column below each other; return also where the next thing may go."""
    variables: dict[str, Box] = {}
    frames: list[tuple[Label, Box]] = []
    x, y = corner
    for group in _groups(model, column):
        construct = model[group[0]].construct
        height = _HEAD + len(group) * (_BOX + _PAD)
        head = Box(x + _PAD, y + 5, text_width(construct, SMALL), SMALL * 1.2)
        frames.append((Label(construct, head), Box(x, y, width, height)))
        for i, name in enumerate(group):
            top = y + _HEAD + i * (_BOX + _PAD)
            variables[name] = Box(x + _PAD, top, width - 2 * _PAD, _BOX)
        y += height + _GAP
    return variables, frames, y - _GAP


def _lanes(model: Model, layers: Mapping[str, int]) -> list[list[Edge]]:
    """For each layer the paths that pass it."""
    return [
        [p.edge for p in model.paths if layers[p.source] < i < layers[p.target]]
        for i in _range(layers)
    ]


def _sides(
    edges: Iterable[Edge], variables: Mapping[str, Box], model: Model
) -> tuple[list[Edge], list[Edge]]:
    """Split lanes into those above the boxes and below, by the height at which paths begin."""
    ordered = sorted(edges, key=lambda edge: (variables[edge[0]].y, edge[1]))
    half = math.ceil(len(ordered) / 2)
    return ordered[:half], ordered[half:]


def _routes(
    model: Model,
    layers: Mapping[str, int],
    variables: Mapping[str, Box],
    lanes: Mapping[tuple[int, Edge], tuple[float, float, float]],
) -> dict[Edge, tuple[Point, ...]]:
    """Return the corners of each path: from a right side, along lanes, to a left side."""
    passing = {
        edge: [
            point
            for i in range(layers[edge[0]] + 1, layers[edge[1]])
            for left, right, y in [lanes[i, edge]]
            for point in ((left, y), (right, y))
        ]
        for edge in (p.edge for p in model.paths)
    }
    aims = {
        edge: (
            corners[0] if corners else variables[edge[1]].middle,
            corners[-1] if corners else variables[edge[0]].middle,
        )
        for edge, corners in passing.items()
    }
    routes: dict[Edge, tuple[Point, ...]] = {}
    for edge, corners in passing.items():
        leaving = sorted((e for e in passing if e[0] == edge[0]), key=lambda e: aims[e][0][1])
        coming = sorted((e for e in passing if e[1] == edge[1]), key=lambda e: aims[e][1][1])
        source, target = variables[edge[0]], variables[edge[1]]
        begin = (source.right, _port(source, leaving.index(edge), len(leaving)))
        end = (target.x, _port(target, coming.index(edge), len(coming)))
        routes[edge] = (begin, *corners, end)
    return routes


def _port(box: Box, place: int, count: int) -> float:
    """Spread the ends of paths over a side."""
    return box.y + box.height * (place + 1) / (count + 1)


def _labelled(
    model: Model,
    routes: Mapping[Edge, tuple[Point, ...]],
    labels: Mapping[Edge, str],
    obstacles: list[Box],
    variables: Mapping[str, Box],
) -> tuple[tuple[Line, ...], dict[Edge, Point]]:
    """Put moderators on their paths, and labels beside all lines."""
    joints = {}
    routes = dict(routes)
    for i, moderator in enumerate(model.moderators):
        source = variables[moderator.by]
        joint = _along(routes[moderator.path], 0.34 + 0.08 * (i % 2))
        joints[moderator.edge] = joint
        y = source.y + source.height * (0.12 if joint[1] < source.y else 0.88)
        begin = (source.right, y) if joint[0] > source.right else (source.x, y)
        routes[moderator.edge] = (begin, joint)
    taken = list(obstacles)
    lines = []
    for edge, points in routes.items():
        text = labels.get(edge, "")
        if not text:
            lines.append(Line(edge, points))
            continue
        others = [route for other, route in routes.items() if other != edge]
        box = _free_place(points, text, taken, others)
        taken.append(box)
        lines.append(Line(edge, points, Label(text, box)))
    return tuple(lines), joints


def _free_place(
    points: Sequence[Point], text: str, taken: Sequence[Box], others: Sequence[Sequence[Point]]
) -> Box:
    """Return the best rectangle beside a line: free of boxes, crossing few lines, mid-way."""
    width, height = text_width(text, SMALL) + 6, SMALL * 1.4
    best, best_cost = None, math.inf
    for share in [0.5 + sign * step / 40 for step in range(19) for sign in (1, -1)]:
        x, y = _along(points, share)
        for dx, dy in _offsets(width, height):
            box = Box(x + dx - width / 2, y + dy - height / 2, width, height)
            cost = 1000.0 * sum(box.overlaps(other, 2) for other in taken)
            cost += 30.0 * sum(_crosses(box, route) for route in [points, *others])
            cost += 20.0 * abs(share - 0.5) + 0.05 * (abs(dx) + abs(dy))
            if cost < best_cost:
                best, best_cost = box, cost
    if best is None:  # There is always a first candidate.
        x, y = points[0]
        best = Box(x, y, width, height)
    return best


def _offsets(width: float, height: float) -> list[Point]:
    near = [(0.0, s * height * f) for f in (0.7, 1.0, 1.4, 1.8) for s in (-1, 1)]
    beside = [
        (sx * (width / 2 + 6), sy * height * f)
        for f in (0.0, 0.6, 0.9)
        for sx in (-1, 1)
        for sy in (-1, 1)
    ]
    return near + beside


def _along(points: Sequence[Point], share: float) -> Point:
    """Return the point at a share of the route's length."""
    lengths = [math.dist(a, b) for a, b in pairwise(points)]
    left = share * sum(lengths)
    for (a, b), length in zip(pairwise(points), lengths, strict=True):
        if left <= length:
            part = left / length if length else 0.0
            return (a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1]))
        left -= length
    return points[-1]


def _crosses(box: Box, route: Sequence[Point]) -> bool:
    return any(_cuts(box, a, b) for a, b in pairwise(route))


def _cuts(box: Box, a: Point, b: Point) -> bool:
    """Tell whether a segment touches a box (Liang and Barsky's clipping)."""
    enter, leave = 0.0, 1.0
    for start, delta, low, high in (
        (a[0], b[0] - a[0], box.x, box.right),
        (a[1], b[1] - a[1], box.y, box.bottom),
    ):
        if delta == 0:
            if not low <= start <= high:
                return False
            continue
        first, last = sorted(((low - start) / delta, (high - start) / delta))
        enter, leave = max(enter, first), min(leave, last)
    return enter <= leave
