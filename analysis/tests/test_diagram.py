"""Path diagrams: nothing lies on anything else, nothing comes from elsewhere."""

import itertools
import xml.etree.ElementTree as ET

import pytest

from tidegate_analysis.model import STUDIES, Model, Path, Variable, draw, study
from tidegate_analysis.model._layout import Box, _cuts
from tidegate_analysis.model.diagram import describe, geometry

SVG = "{http://www.w3.org/2000/svg}"


def estimates(model: Model) -> dict[tuple[str, ...], tuple[float, float]]:
    edges = [p.edge for p in model.paths] + [m.edge for m in model.moderators]
    return {edge: (-0.123 * (-1) ** i, 0.0001) for i, edge in enumerate(edges)}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("name", STUDIES)
def test_boxes_and_labels_do_not_overlap(name: str, after: bool) -> None:
    model = study(name)
    r2 = dict.fromkeys(model.endogenous, 0.29) if after else None
    plan = geometry(model, estimates(model) if after else None, r_squared=r2)
    frames = [frame for _, frame in plan.constructs]
    labels = [line.label.box for line in plan.lines if line.label]
    expected = len(model.paths) + (len(model.moderators) if after else 0)
    assert len(labels) == expected
    for a, b in itertools.combinations([*frames, *labels], 2):
        assert not a.overlaps(b), (a, b)
    for a, b in itertools.combinations(plan.variables.values(), 2):
        assert not a.overlaps(b)
    # Each variable is in a frame, below its heading; everything is on the paper.
    for box in plan.variables.values():
        frame, head = next((f, h.box) for h, f in plan.constructs if f.overlaps(box))
        assert frame.x <= box.x and box.right <= frame.right and box.bottom <= frame.bottom
        assert not head.overlaps(box) and head.right <= frame.right
    for box in [*frames, *labels]:
        assert box.x >= 0 and box.y >= 0 and box.right <= plan.width and box.bottom <= plan.height


@pytest.mark.parametrize("name", STUDIES)
def test_paths_run_from_left_to_right_and_through_no_box_of_another(name: str) -> None:
    model = study(name)
    plan = geometry(model)
    for line in plan.lines:
        if len(line.edge) == 2:
            source, target = (plan.variables[end] for end in line.edge)
            assert line.points[0][0] == source.right and line.points[-1][0] == target.x
        others = [box for v, box in plan.variables.items() if v not in line.edge]
        for a, b in itertools.pairwise(line.points):
            assert not any(_cuts(box, a, b) for box in others)


def test_a_moderators_arrow_ends_on_the_path_that_it_moderates() -> None:
    plan = geometry(study("initial, read"))
    for edge, (x, y) in plan.joints.items():
        (path,) = [line.points for line in plan.lines if line.edge == edge[:2]]
        near = Box(x - 0.5, y - 0.5, 1, 1)
        assert any(_cuts(near, a, b) for a, b in itertools.pairwise(path))


def test_the_same_model_gives_the_same_bytes_and_needs_nothing_from_elsewhere() -> None:
    model = study("initial, update")
    text = draw(model, estimates(model), dropped=[("SF", "TP")])
    assert text == draw(model, estimates(model), dropped=[("SF", "TP")])
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    ids = {element.get("id") for element in root.iter()}
    assert set((root.get("aria-labelledby") or "").split()) <= ids
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-color-scheme:dark" in text
    assert "nan" not in text


def test_it_shows_hypotheses_before_and_estimates_after() -> None:
    model = study("refined, read")
    before = "".join(ET.fromstring(draw(model)).itertext())
    assert "H3 −" in before
    assert "R²" not in before
    known = {("ATPT", "TP"): (-0.28, 0.004), ("PK", "ATPT"): (-0.42, 1e-9)}
    text = draw(model, known, dropped=[("numProcs", "ATPT")], r_squared={"ATPT": 0.29})
    after = "".join(ET.fromstring(text).itertext())
    assert "−0.28**" in after and "−0.42***" in after and "R² = 0.29" in after
    widths = {
        "".join(g.itertext()): float(g.find(f"{SVG}polyline").get("stroke-width"))
        for g in ET.fromstring(text).iter(f"{SVG}g")
    }
    assert widths["−0.42***"] > widths["−0.28**"]
    (dropped,) = [g for g in ET.fromstring(text).iter(f"{SVG}g") if g.get("class") == "dropped"]
    assert dropped.find(f"{SVG}polyline").get("stroke-dasharray")  # type: ignore[union-attr]
    assert describe(model, known, [("numProcs", "ATPT")]).splitlines() == [
        "numProcs to TP: hypothesised positive. "
        "numProcs to ATPT: dropped, not significant. "
        "ATPT to TP: standardised coefficient -0.28, p = 0.004. "
        "PK to TP: hypothesised positive. "
        "PK to ATPT: standardised coefficient -0.42, p < 0.001."
    ]


def test_names_cannot_break_out_of_the_picture() -> None:
    model = Model(
        'a<b>&"c"',
        (Variable("<x>", "&co", "exogenous"), Variable("y", "Y", "outcome", '"u"')),
        (Path("<x>", "y", "+", hypothesis="<script>"),),
    )
    root = ET.fromstring(draw(model))
    assert "<x>" in "".join(root.itertext())
    assert not list(root.iter(f"{SVG}script"))
