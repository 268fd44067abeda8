r"""A structural causal model: variables, the paths between them, and what moderates a path.

A model is a claim made before the data are seen: these variables, grouped in constructs, act on
each other along these paths, in this direction, about this strongly. Each variable with paths into
it has one linear equation, in the sense of path analysis (Wright 1934; Bollen 1989, chapter 4)::

    numProcs --(-)--> ATPT --(-)--> TP        ATPT = b1 numProcs + e1
        \---------(+)--------------^          TP   = b2 numProcs + b3 ATPT + e2

A moderator changes the strength of a path: in the study's initial model the effect of numProcs on
ATPT depends on ROSE. It enters the equation as the product of the two, *and by itself*, although
the figure draws no path from it: without the second term the product would stand for both
(Cohen, Cohen, West, Aiken 2003, Section 7.2).

Limits: paths form no cycle, errors of different equations are taken to be independent, and every
relation is linear but for the products.

Source: Suh, Snodgrass, Currim 2017, Sections 4 and 8.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Final, Literal, get_args

from tidegate_analysis.errors import ModelError

Role = Literal["exogenous", "mediator", "outcome"]
Sign = Literal["+", "-"]
Level = Literal["low", "medium", "high"]

#: A path by its two ends, or a moderated path by its ends and the moderator.
Edge = tuple[str, ...]

#: Joins the factors of a product, as in R: ``numProcs:ROSE``.
TIMES: Final = ":"


@dataclass(frozen=True)
class Variable:
    """A variable of a model.

    - name: Name of the column that holds it.
    - construct: What it stands for, such as ``Resource complexity``: variables of one construct are
      drawn together.
    - role: ``exogenous`` (set by the experiment: no path into it), ``mediator`` (paths into it and
      out of it) or ``outcome`` (paths into it only).
    - unit: Of its values, for people.
    """

    name: str
    construct: str
    role: Role
    unit: str = ""


@dataclass(frozen=True)
class Path:
    """A hypothesis: `source` acts on `target`, with this sign and about this strength.

    - sign: ``+`` or ``-``: the hypothesised direction.
    - level: The hypothesised strength of the correlation, if any was stated.
    - hypothesis: Its name, such as ``H1``.
    - coefficient: A standardised coefficient that is known: a published one, or the truth of a
      simulation.
    """

    source: str
    target: str
    sign: Sign
    level: Level | None = None
    hypothesis: str = ""
    coefficient: float | None = None

    @property
    def edge(self) -> Edge:
        """Its two ends, which name it: a model has at most one path between them."""
        return (self.source, self.target)

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True)
class Moderator:
    """The path from `source` to `target` depends on the variable `by`."""

    source: str
    target: str
    by: str
    coefficient: float | None = None

    @property
    def edge(self) -> Edge:
        """Both ends of the path and the moderator."""
        return (self.source, self.target, self.by)

    @property
    def path(self) -> Edge:
        """The path that it moderates."""
        return (self.source, self.target)

    @property
    def term(self) -> str:
        """The product that stands for it in the equation of `target`."""
        return f"{self.source}{TIMES}{self.by}"

    def __str__(self) -> str:
        return f"{self.source} -> {self.target} by {self.by}"


@dataclass(frozen=True)
class Fingerprint:
    """The samples that a model was refined with, recognisable but not readable.

    - columns: Columns whose values were hashed.
    - rows: A 64-bit hash of each sample.
    - runs: ``(store, experiment, run)`` of each sample, where the samples say so.
    """

    columns: tuple[str, ...]
    rows: frozenset[int]
    runs: frozenset[tuple[str, int, int]] = frozenset()


@dataclass(frozen=True)
class Model:
    """A structural causal model, valid by construction.

    - mode: ``read`` or ``update`` when it is about one of the study's two groups.
    - refined_with: Samples that took part in choosing its paths, which therefore cannot confirm it.

    Raises `ModelError`: it means nothing: an unknown variable, a cycle, a path twice, ...

    >>> from tidegate_analysis.model import study
    >>> study("refined, update").formula("TP")
    'TP ~ numProcs + ATPT'
    """

    name: str
    variables: tuple[Variable, ...]
    paths: tuple[Path, ...]
    moderators: tuple[Moderator, ...] = ()
    mode: str | None = None
    source: str = ""
    refined_with: Fingerprint | None = None

    def __post_init__(self) -> None:
        _check_names(self)
        _check_paths(self)
        _check_moderators(self)
        _sorted(self)
        _check_roles(self)

    def __getitem__(self, name: str) -> Variable:
        for variable in self.variables:
            if variable.name == name:
                return variable
        raise ModelError(
            f"model `{self.name}` has no variable `{name}`",
            f"use one of {_listed(v.name for v in self.variables)}",
        )

    @property
    def exogenous(self) -> tuple[str, ...]:
        """Variables that the model does not explain."""
        return tuple(v.name for v in self.variables if v.role == "exogenous")

    @property
    def endogenous(self) -> tuple[str, ...]:
        """Variables that it explains, causes before effects."""
        return tuple(name for name in self.order() if self[name].role != "exogenous")

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Variables that act on no other."""
        return tuple(v.name for v in self.variables if v.role == "outcome")

    @property
    def coefficients(self) -> dict[Edge, float]:
        """The coefficients of its paths, all of which have to be known.

        Raises `ModelError`: a path states none.
        """
        if unknown := [str(path) for path in self.paths if path.coefficient is None]:
            raise ModelError(
                f"model `{self.name}` states no coefficient for {_listed(unknown)}",
                "give it in the model's file, 0 for no effect",
            )
        return {path.edge: float(path.coefficient or 0.0) for path in self.paths}

    def path(self, source: str, target: str) -> Path:
        """Return the path between two variables."""
        for path in self.paths:
            if path.edge == (source, target):
                return path
        raise ModelError(
            f"model `{self.name}` has no path {source} -> {target}",
            f"use one of {_listed(map(str, self.paths))}",
        )

    def sources(self, variable: str) -> tuple[str, ...]:
        """Return the variables with a path into this one, in the order of the variables."""
        found = {p.source for p in self.paths if p.target == variable}
        return tuple(v.name for v in self.variables if v.name in found)

    def parents(self, variable: str) -> tuple[str, ...]:
        """Return what its equation depends on: sources of its paths, then their moderators."""
        self[variable]
        sources = self.sources(variable)
        by = (m.by for m in self.moderators if m.target == variable)
        return tuple(dict.fromkeys([*sources, *by]))

    def terms(self, variable: str) -> tuple[str, ...]:
        """Return the terms of its equation: parents, then products with moderators."""
        products = (m.term for m in self.moderators if m.target == variable)
        return (*self.parents(variable), *products)

    def formula(self, variable: str) -> str:
        """Return its equation as R writes it; an exogenous variable has only a mean."""
        return f"{variable} ~ {' + '.join(self.terms(variable)) or '1'}"

    def order(self) -> tuple[str, ...]:
        """Return all variables, causes before effects; ties in the order of the file."""
        return _sorted(self)

    def without(self, edges: Iterable[Edge]) -> "Model":
        """Return the model less some paths or moderators, and less variables then unconnected.

        Moderators of a path that goes, go with it. Roles follow the paths that stay: a mediator
        that nothing acts on any more is exogenous.

        Raises `ModelError`: no path stays, or an edge is not there.
        """
        edges = set(edges)
        known = {p.edge for p in self.paths} | {m.edge for m in self.moderators}
        if edges - known:
            raise ModelError(
                f"model `{self.name}` has no path {' -> '.join(sorted(edges - known)[0])}",
                "name a path or a moderator of the model",
            )
        paths = tuple(p for p in self.paths if p.edge not in edges)
        if not paths:
            raise ModelError(
                f"model `{self.name}` would have no path left", "keep at least one path"
            )
        kept = {p.edge for p in paths}
        moderators = tuple(m for m in self.moderators if m.edge not in edges and m.path in kept)
        variables = tuple(
            replace(v, role=_role(v.name, paths))
            for v in self.variables
            if v.name in {end for p in paths for end in p.edge} | {m.by for m in moderators}
        )
        return replace(self, variables=variables, paths=paths, moderators=moderators)


def _role(name: str, paths: Sequence[Path]) -> Role:
    if all(p.target != name for p in paths):
        return "exogenous"
    return "mediator" if any(p.source == name for p in paths) else "outcome"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


def _sorted(model: Model) -> tuple[str, ...]:
    """Order variables by paths and moderators, those that may come together as in the file."""
    parents = {v.name: model.parents(v.name) for v in model.variables}
    sorter = TopologicalSorter(parents)
    try:
        sorter.prepare()
    except CycleError as error:
        raise ModelError(
            f"model `{model.name}` has a cycle through {_listed(error.args[1][1:])}",
            "remove or turn one of its paths: effects cannot cause their causes",
        ) from None
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=list(parents).index)
        order += ready
        sorter.done(*ready)
    return tuple(order)


def _check_names(model: Model) -> None:
    names = [v.name for v in model.variables]
    for number, variable in enumerate(model.variables, 1):
        where = f"model `{model.name}`, variable {number}"
        if not variable.name or TIMES in variable.name:
            raise ModelError(
                f"{where}: `{variable.name}` is not a name", f"name a column, without `{TIMES}`"
            )
        if variable.name in names[: number - 1]:
            raise ModelError(
                f"{where}: `{variable.name}` is there already", "keep one of the two entries"
            )
        if variable.role not in get_args(Role):
            raise ModelError(
                f"{where} ({variable.name}): role is `{variable.role}`",
                f"make it one of {_listed(get_args(Role))}",
            )


def _check_known(model: Model, where: str, names: Iterable[str]) -> None:
    known = [v.name for v in model.variables]
    for name in names:
        if name not in known:
            raise ModelError(
                f"{where}: unknown variable `{name}`",
                f"declare it, or use one of {_listed(known)}",
            )


def _check_paths(model: Model) -> None:
    if not model.paths:
        raise ModelError(f"model `{model.name}` has no path", "add a [[path]]")
    for number, path in enumerate(model.paths, 1):
        where = f"model `{model.name}`, path {number} ({path})"
        _check_known(model, where, path.edge)
        if path.source == path.target:
            raise ModelError(f"{where}: a path from a variable to itself", "remove it")
        if path.edge in [p.edge for p in model.paths[: number - 1]]:
            raise ModelError(f"{where}: this path is there already", "keep one of the two entries")
        if path.sign not in get_args(Sign):
            raise ModelError(f"{where}: sign is `{path.sign}`", "make it + or -")
        if path.level is not None and path.level not in get_args(Level):
            raise ModelError(
                f"{where}: level is `{path.level}`",
                f"make it one of {_listed(get_args(Level))}, or leave it out",
            )
        _check_coefficient(path.coefficient, where)


def _check_coefficient(coefficient: float | None, where: str) -> None:
    if coefficient is not None and not math.isfinite(coefficient):
        raise ModelError(f"{where}: coefficient is {coefficient}", "give a finite number")


def _check_moderators(model: Model) -> None:
    paths = [p.edge for p in model.paths]
    for number, moderator in enumerate(model.moderators, 1):
        where = f"model `{model.name}`, moderator {number} ({moderator})"
        _check_known(model, where, moderator.edge)
        if moderator.path not in paths:
            raise ModelError(
                f"{where}: there is no path {moderator.source} -> {moderator.target}",
                "moderate a path of the model, or add this one",
            )
        if moderator.by in moderator.path:
            raise ModelError(
                f"{where}: a path cannot be moderated by its own end", "name another variable"
            )
        if moderator.edge in [m.edge for m in model.moderators[: number - 1]]:
            raise ModelError(
                f"{where}: this moderator is there already", "keep one of the two entries"
            )
        turned = (moderator.by, moderator.target, moderator.source)
        if turned in [m.edge for m in model.moderators[: number - 1]]:
            raise ModelError(
                f"{where}: its product {moderator.term} is that of another moderator",
                "keep one of the two entries: they are the same hypothesis",
            )
        _check_coefficient(moderator.coefficient, where)


def _check_roles(model: Model) -> None:
    moderating = {m.by for m in model.moderators}
    for number, variable in enumerate(model.variables, 1):
        where = f"model `{model.name}`, variable {number} ({variable.name})"
        found = _role(variable.name, model.paths)
        if variable.role == "outcome" and found == "exogenous":
            raise ModelError(f"{where}: an outcome without a path into it", "add a [[path]] to it")
        if variable.name not in moderating | {end for p in model.paths for end in p.edge}:
            raise ModelError(
                f"{where}: neither on a path nor a moderator", "add a path or leave it out"
            )
        if variable.role != found:
            raise ModelError(
                f"{where}: role is `{variable.role}`, but by its paths it is `{found}`",
                f'write role = "{found}", or correct the paths',
            )
