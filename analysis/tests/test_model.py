"""Models as data: what they say about themselves, and how a wrong one is refused."""

import re
from pathlib import Path as File

import pytest

from tidegate_analysis.errors import ModelError
from tidegate_analysis.model import (
    STUDIES,
    Fingerprint,
    Model,
    Moderator,
    Path,
    Variable,
    parse,
    read,
    study,
    to_toml,
    write,
)

SMALL = """
name = "small"
[[variable]]
name = "a"
construct = "A"
role = "exogenous"
[[variable]]
name = "m"
construct = "M"
role = "mediator"
[[variable]]
name = "y"
construct = "Y"
role = "outcome"
[[path]]
from = "a"
to = "m"
sign = "+"
[[path]]
from = "m"
to = "y"
sign = "-"
level = "low"
"""
MODERATOR = '[[moderator]]\nfrom = "a"\nto = "m"\nby = "w"\n'
W = '[[variable]]\nname = "w"\nconstruct = "W"\nrole = "exogenous"\n'


def test_the_studys_models_say_what_the_figures_show() -> None:
    initial, refined = study("initial, read"), study("refined, read")
    assert initial.formula("ATPT") == (
        "ATPT ~ numProcs + SF + PK + ROSE + numProcs:ROSE + SF:PK"  # ROSE only moderates
    )
    assert initial.formula("TP") == "TP ~ numProcs + ROSE + SF + PK + ATPT"
    assert initial.parents("ATPT") == ("numProcs", "SF", "PK", "ROSE")
    assert refined.order() == ("numProcs", "PK", "ATPT", "TP")
    assert refined.endogenous == ("ATPT", "TP")
    assert refined.formula("numProcs") == "numProcs ~ 1"
    # Table 4, and the one sign that the data turned (Section 8.1).
    assert refined.path("PK", "TP").level == "medium"
    assert initial.path("numProcs", "TP").sign == "-"
    assert refined.path("numProcs", "TP").sign == "+"
    assert study("refined, update").path("ATPT", "TP").level == "low"


def test_the_two_initial_models_differ_in_group_and_coefficients_only() -> None:
    read_paths, update_paths = study("initial, read").paths, study("initial, update").paths
    assert [(p.edge, p.sign, p.level, p.hypothesis) for p in read_paths] == [
        (p.edge, p.sign, p.level, p.hypothesis) for p in update_paths
    ]
    assert [p.coefficient for p in update_paths] == [
        -0.29, -0.45, None, None, None, None, None, -0.11,
    ]  # fmt: skip


@pytest.mark.parametrize("name", STUDIES)
def test_a_model_survives_its_file(name: str, tmp_path: File) -> None:
    model = study(name)
    seen = Fingerprint(("TP",), frozenset({1, 2**63}), frozenset({('a "store"\\', 1, 2)}))
    for one in (model, Model(**{**vars(model), "refined_with": seen, "name": "ünïcode"})):
        write(one, tmp_path / "model.toml")
        assert read(tmp_path / "model.toml") == one
        assert parse(to_toml(one)) == one


def test_a_dropped_path_takes_its_moderator_and_lonely_variables_with_it() -> None:
    initial = study("initial, read")
    gone = [("numProcs", "ATPT", "ROSE"), ("SF", "ATPT"), ("SF", "TP"), ("ROSE", "TP")]
    less = initial.without(gone)
    refined = study("refined, read")
    assert {p.edge for p in less.paths} == {p.edge for p in refined.paths}
    assert less.moderators == ()
    assert {v.name for v in less.variables} == {v.name for v in refined.variables}
    alone = refined.without([("numProcs", "ATPT"), ("PK", "ATPT")])
    assert alone["ATPT"].role == "exogenous"
    with pytest.raises(ModelError, match="no path left: keep at least one"):
        refined.without([p.edge for p in refined.paths])
    with pytest.raises(ModelError, match="has no path TP -> PK"):
        refined.without([("TP", "PK")])


WRONG = [
    (SMALL.replace('to = "y"', 'to = "z"'), r"f.toml: .*path 2 \(m -> z\): unknown variable `z`: "
     "declare it, or use one of a, m, y"),
    (SMALL + '[[path]]\nfrom = "y"\nto = "m"\nsign = "+"\n', "a cycle through .*m"),
    (SMALL + '[[path]]\nfrom = "a"\nto = "m"\nsign = "+"\n', r"path 3 \(a -> m\): this path is "),
    (SMALL + '[[path]]\nfrom = "a"\nto = "a"\nsign = "+"\n', "from a variable to itself"),
    (SMALL.replace('sign = "-"', 'sign = "minus"'), r"path 2 .*sign is `minus`: make it \+ or -"),
    (SMALL.replace('"low"', '"tiny"'), "level is `tiny`: make it one of low, medium, high"),
    (SMALL + W + MODERATOR.replace('"m"', '"y"'), r"moderator 1 .*there is no path a -> y"),
    (SMALL + MODERATOR.replace('"w"', '"a"'), "cannot be moderated by its own end"),
    (SMALL + W + MODERATOR * 2, "moderator 2 .*is there already"),
    (SMALL + MODERATOR, "moderator 1 .*unknown variable `w`"),
    (SMALL + MODERATOR.replace('"w"', '"y"'), "a cycle through"),
    (SMALL + W, r"variable 4 \(w\): neither on a path nor a moderator"),
    (SMALL + W.replace("exogenous", "outcome"), "an outcome without a path into it"),
    (SMALL.replace('"mediator"', '"exogenous"'), r"by its paths it is `mediator`"),
    (SMALL.replace('"mediator"', '"middle"'), r"variable 2 \(m\): role is `middle`"),
    (SMALL.replace('name = "m"', 'name = "a"'), "variable 2: `a` is there already"),
    (SMALL.replace('name = "m"', 'name = "a:b"'), "without `:`"),
    (SMALL.replace("level", "levle"), "path 2: unknown key `levle`: .*known are from, to"),
    (SMALL.replace('sign = "+"\n', ""), "path 1: `sign` is missing: add it"),
    (SMALL.replace('sign = "+"', "sign = 1"), "`sign` is 1: make it a str"),
    (SMALL + "coefficient = true\n", "`coefficient` is True: make it a float"),
    (SMALL + "coefficient = nan\n", "coefficient is nan: give a finite number"),
    ("name = 'x'", "model `x` has no path"),
    ("name = x", "f.toml is not TOML .*line 1"),
    ("name = 'x'\nvariable = ['a']", "variable 1 is not a table"),
    ("mode = 'read'", "f.toml: `name` is missing"),
    (SMALL + "[refined_with]\ncolumns = ['a']\nrows = ['xyz']\n", "not what `write` wrote"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[m[:40] for _, m in WRONG])
def test_a_wrong_file_is_refused_by_name_and_entry(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        parse(text, "f.toml")
    assert str(caught.value).startswith("f.toml")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ModelError, match=r"nowhere\.toml cannot be read"):
        read("nowhere.toml")
    with pytest.raises(ModelError, match="no study model `final`: use one of initial, read;"):
        study("final")


def test_two_moderators_that_are_one_product_are_refused() -> None:
    a, b, y = (
        Variable(n, n, r) for n, r in (("a", "exogenous"), ("b", "exogenous"), ("y", "outcome"))
    )  # type: ignore[arg-type]
    paths = (Path("a", "y", "+"), Path("b", "y", "+"))
    with pytest.raises(ModelError, match=re.escape("product b:a is that of another moderator")):
        Model("m", (a, b, y), paths, (Moderator("a", "y", "b"), Moderator("b", "y", "a")))
    with pytest.raises(ModelError, match="has no variable `q`: use one of a, b, y"):
        Model("m", (a, b, y), paths).parents("q")
