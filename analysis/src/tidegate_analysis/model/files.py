"""Models as files: a small TOML format, read strictly.

::

    name = "my model"                 # and optionally: mode = "read", source = "..."

    [[variable]]
    name = "numProcs"                 # the column
    construct = "Resource complexity" # variables of one construct are drawn together
    role = "exogenous"                # or "mediator", "outcome"
    unit = "processors"               # optional

    [[path]]
    from = "numProcs"
    to = "TP"
    sign = "+"                        # or "-"
    level = "low"                     # optional: "low", "medium", "high"
    hypothesis = "H1"                 # optional
    coefficient = 0.34                # optional: a known standardised coefficient

    [[moderator]]                     # optional: the path from..to depends on `by`
    from = "numProcs"
    to = "TP"
    by = "ROSE"

A refined model also keeps a table ``[refined_with]``, written by `write`: hashes of the samples
that chose its paths, by which a confirmatory test refuses them.

A key that the format does not know is an error, as it is most likely a slip of the pen. Errors name
the file and the entry.
"""

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from os import PathLike
from pathlib import Path as File
from typing import Any, Final

from tidegate_analysis.errors import ModelError
from tidegate_analysis.model.structure import Fingerprint, Model, Moderator, Path, Variable

#: The study's four models: Fig. 3 and Table 1; Fig. 6 and Table 4.
STUDIES: Final = ("initial, read", "initial, update", "refined, read", "refined, update")

_TEXT: Final = (str,)
_NUMBER: Final = (int, float)
_TOP: Final = {
    "name": _TEXT, "mode": _TEXT, "source": _TEXT, "variable": (list,), "path": (list,),
    "moderator": (list,), "refined_with": (dict,),
}  # fmt: skip
_VARIABLE: Final = {"name": _TEXT, "construct": _TEXT, "role": _TEXT, "unit": _TEXT}
_PATH: Final = {
    "from": _TEXT, "to": _TEXT, "sign": _TEXT, "level": _TEXT, "hypothesis": _TEXT,
    "coefficient": _NUMBER,
}  # fmt: skip
_MODERATOR: Final = {"from": _TEXT, "to": _TEXT, "by": _TEXT, "coefficient": _NUMBER}
_REFINED: Final = {"columns": (list,), "rows": (list,), "runs": (list,)}


def study(name: str) -> Model:
    """Return one of the study's models: see `STUDIES`."""
    if name not in STUDIES:
        raise ModelError(f"no study model `{name}`", f"use one of {'; '.join(STUDIES)}")
    file = name.replace(", ", "-") + ".toml"
    text = resources.files("tidegate_analysis.model").joinpath("studies", file).read_text("utf-8")
    return parse(text, file)


def read(file: str | PathLike[str]) -> Model:
    """Read a model's file.

    Raises `ModelError`: the file cannot be read, or means nothing; the message names file and
    entry.
    """
    try:
        text = File(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{file} cannot be read ({error})", "give the file of a model") from None
    return parse(text, str(file))


def parse(text: str, file: str = "model") -> Model:
    """Make a model of a file's text; `file` names it in messages."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ModelError(f"{file} is not TOML ({error})", "correct that line") from None
    _check(table, _TOP, ("name",), file)
    entries = {
        kind: _entries(table, kind, known, required, file)
        for kind, known, required in (
            ("variable", _VARIABLE, ("name", "construct", "role")),
            ("path", _PATH, ("from", "to", "sign")),
            ("moderator", _MODERATOR, ("from", "to", "by")),
        )
    }
    try:
        return Model(
            name=table["name"],
            variables=tuple(Variable(**entry) for entry in entries["variable"]),
            paths=tuple(Path(**_ends(entry)) for entry in entries["path"]),
            moderators=tuple(Moderator(**_ends(entry)) for entry in entries["moderator"]),
            mode=table.get("mode"),
            source=table.get("source", ""),
            refined_with=_fingerprint(table.get("refined_with"), file),
        )
    except ModelError as error:
        raise ModelError(f"{file}: {error.problem}", error.advice) from None


def _entries(
    table: Mapping[str, Any],
    kind: str,
    known: Mapping[str, tuple[type, ...]],
    required: tuple[str, ...],
    file: str,
) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = table.get(kind, [])
    for number, entry in enumerate(entries, 1):
        where = f"{file}: {kind} {number}"
        if not isinstance(entry, dict):
            raise ModelError(f"{where} is not a table", f"begin it with [[{kind}]]")
        _check(entry, known, required, where)
    return entries


def _check(
    table: Mapping[str, Any],
    known: Mapping[str, tuple[type, ...]],
    required: tuple[str, ...],
    where: str,
) -> None:
    for key, value in table.items():
        if key not in known:
            raise ModelError(
                f"{where}: unknown key `{key}`", f"correct it: known are {', '.join(known)}"
            )
        if not isinstance(value, known[key]) or isinstance(value, bool):
            raise ModelError(
                f"{where}: `{key}` is {value!r}", f"make it a {known[key][-1].__name__}"
            )
    for key in required:
        if key not in table:
            raise ModelError(f"{where}: `{key}` is missing", "add it")


def _ends(entry: Mapping[str, Any]) -> dict[str, Any]:
    renamed = {"from": "source", "to": "target"}
    return {renamed.get(key, key): value for key, value in entry.items()}


def _fingerprint(table: Mapping[str, Any] | None, file: str) -> Fingerprint | None:
    if table is None:
        return None
    where = f"{file}: refined_with"
    _check(table, _REFINED, ("columns", "rows"), where)
    try:
        return Fingerprint(
            columns=tuple(str(column) for column in table["columns"]),
            rows=frozenset(int(row, 16) for row in table["rows"]),
            runs=frozenset((str(s), int(e), int(r)) for s, e, r in table.get("runs", [])),
        )
    except (TypeError, ValueError):
        raise ModelError(
            f"{where} is not what `write` wrote", "restore it, or refine the model again"
        ) from None


def write(model: Model, file: str | PathLike[str]) -> None:
    """Write a model to a file that `read` gives back equal."""
    try:
        File(file).write_text(to_toml(model), "utf-8")
    except OSError as error:
        raise ModelError(f"{file} cannot be written ({error})", "name a file elsewhere") from None


def to_toml(model: Model) -> str:
    """Return a model in the format of this module."""
    parts = [_table("", {"name": model.name, "mode": model.mode, "source": model.source})]
    parts += [_table("[[variable]]", vars(variable)) for variable in model.variables]
    parts += [_table("[[path]]", vars(path)) for path in model.paths]
    parts += [_table("[[moderator]]", vars(moderator)) for moderator in model.moderators]
    if (known := model.refined_with) is not None:
        rows = [f"{row:016x}" for row in sorted(known.rows)]
        runs = [list(run) for run in sorted(known.runs)]
        entries = {"columns": list(known.columns), "rows": rows, "runs": runs}
        parts.append(_table("[refined_with]", entries))
    return "\n".join(parts)


def _table(head: str, entries: Mapping[str, Any]) -> str:
    renamed = {"source": "from", "target": "to"} if "target" in entries else {}
    lines = [head] if head else []
    lines += [
        # A JSON string, number or list of them is a TOML one, too.
        f"{renamed.get(key, key)} = {json.dumps(value, ensure_ascii=False)}"
        for key, value in entries.items()
        if value is not None and value != ""
    ]
    return "\n".join(lines) + "\n"
