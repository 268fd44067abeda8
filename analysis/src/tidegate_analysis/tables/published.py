"""The study's figures, to stand beside ours; ``published.toml`` says where each is printed."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any, Final, Literal

#: The two experiments of the study, which it keeps apart.
Part = Literal["exploratory", "confirmatory"]

PARTS: Final[tuple[Part, ...]] = ("exploratory", "confirmatory")


def published(part: Part | None, *names: str) -> dict[str, Any]:
    """Return a table of figures, empty where the study has none."""
    found: Any = _figures().get(part, {}) if part is not None else {}
    for name in names:
        found = found.get(name, {})
    return dict(found)


@cache
def _figures() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("published.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
