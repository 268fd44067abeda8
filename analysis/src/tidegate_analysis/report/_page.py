"""The page: sections of experiments become one HTML file that needs nothing else.

Styles and figures are inside, and it has no script; a Content-Security-Policy in the page forbids
it to load anything.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jinja2
from markupsafe import Markup

from tidegate_analysis import __version__
from tidegate_analysis.report import _style as style
from tidegate_analysis.report._parts import Advice, Figure, Part, Section, Table

#: Rows of a table that the page shows; its CSV file has all.
MOST_ROWS: Final = 60


@dataclass(frozen=True)
class Chapter:
    """An experiment's sections: those that hold something, and why others do not."""

    number: int
    title: str
    sections: Sequence[Section]

    @property
    def parts(self) -> list[Part]:
        return [part for section in self.sections for part in section.parts]

    def file(self, part: Figure | Table) -> str:
        """Return the name of a figure's or a table's file."""
        return f"{self.number}-{part.name}.{'svg' if isinstance(part, Figure) else 'csv'}"


def files(chapters: Sequence[Chapter]) -> Iterator[tuple[str, Figure | Table]]:
    """Return all figures and tables with the names of their files."""
    for chapter in chapters:
        yield from ((chapter.file(p), p) for p in chapter.parts if isinstance(p, Figure | Table))


def page(chapters: Sequence[Chapter], title: str, summary: str) -> str:
    templates = jinja2.PackageLoader("tidegate_analysis.report", "templates")
    environment = jinja2.Environment(
        loader=templates,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html").render(
        title=title,
        summary=summary,
        css=Markup(templates.get_source(environment, "report.css")[0]),
        experiments=[_chapter(chapter) for chapter in chapters],
        version=__version__,
    )


def _chapter(chapter: Chapter) -> dict[str, Any]:
    own = f"e{chapter.number}"
    held = [section for section in chapter.sections if section.parts]
    names = _names(chapter)
    counter = iter(range(1, 1_000))
    return {
        "id": own,
        "title": chapter.title,
        "sections": [
            {
                "id": f"{own}-s-{section.name}",
                "title": section.title,
                "parts": [_part(part, chapter, names, counter) for part in section.parts],
            }
            for section in held
        ],
        "missing": [
            (section.title, section.missing.rstrip("."))
            for section in chapter.sections
            if not section.parts and section.missing
        ],
    }


def _names(chapter: Chapter) -> Mapping[str, tuple[str, str]]:
    """Return identifier and caption of all tables and figures that a sentence may point to."""
    return {
        part.name: (f"e{chapter.number}-{part.name}", section.title)
        for section in chapter.sections
        for part in section.parts
        if isinstance(part, Table | Figure)
    }


def _part(
    part: Part, chapter: Chapter, names: Mapping[str, tuple[str, str]], counter: Iterator[int]
) -> dict[str, Any]:
    shown: dict[str, Any] = {"type": type(part).__name__, **vars(part)}
    if isinstance(part, Table | Figure):
        shown |= {"id": f"e{chapter.number}-{part.name}", "file": chapter.file(part)}
    match part:
        case Table() if len(part.rows) > MOST_ROWS:
            more = f"The first {MOST_ROWS} of {len(part.rows):,} rows; all are in the file."
            shown |= {"rows": part.rows[:MOST_ROWS], "note": f"{part.note} {more}".lstrip()}
        case Figure():
            shown["number"] = f"Figure {chapter.number}.{next(counter)}"
            shown["svg"] = Markup(style.inline(part.svg, shown["id"], part.alt))
        case Advice():
            shown["sentences"] = [_sentence(sentence, names) for sentence in part.sentences]
    return shown


def _sentence(sentence: Any, names: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    href, where = names.get(sentence.anchor, ("", ""))
    return {**vars(sentence), "href": href, "where": where}
