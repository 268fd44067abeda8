"""What the studies published, to stand beside ours; ``published.toml`` says where it is printed."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

#: The two experiments of the thrashing study, which it keeps apart.
Part = Literal["exploratory", "confirmatory"]

PARTS: Final[tuple[Part, ...]] = ("exploratory", "confirmatory")


def tables(part: Part | None, *names: str) -> dict[str, Any]:
    """Return figures of the thrashing study's tables, empty where it has none."""
    found: Any = _file()["tables"].get(part, {}) if part is not None else {}
    for name in names:
        found = found.get(name, {})
    return dict(found)


def experiments() -> Mapping[str, Mapping[str, Any]]:
    """Return what was published, by the name of the experiment that reproduces it."""
    found: Mapping[str, Mapping[str, Any]] = _file()["experiments"]
    return found


@cache
def _file() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
