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
from tidegate_analysis.report._parts import Advice, Figure, Paragraph, Part, Section, Table

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
        """Return the parts of all sections."""
        return [part for section in self.sections for part in section.parts]

    def file(self, part: Figure | Table) -> str:
        """Return the name of a figure's or a table's file."""
        return f"{self.number}-{part.name}.{'svg' if isinstance(part, Figure) else 'csv'}"


def figures(chapters: Sequence[Chapter]) -> Iterator[tuple[str, Figure]]:
    """Return all figures with the names of their files."""
    for chapter in chapters:
        yield from ((chapter.file(p), p) for p in chapter.parts if isinstance(p, Figure))


def tables(chapters: Sequence[Chapter]) -> Iterator[tuple[str, Table]]:
    """Return all tables with the names of their files."""
    for chapter in chapters:
        yield from ((chapter.file(p), p) for p in chapter.parts if isinstance(p, Table))


def page(chapters: Sequence[Chapter], title: str, summary: str) -> str:
    """Return the HTML of a report."""
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
    own = f"e{chapter.number}"
    match part:
        case Paragraph(text):
            return {"type": "Paragraph", "text": text}
        case Table():
            more = ""
            if len(part.rows) > MOST_ROWS:
                more = f"The first {MOST_ROWS} of {len(part.rows):,} rows; all are in the file."
            return {"type": "Table", "id": f"{own}-{part.name}", "caption": part.caption,
                    "header": part.header, "rows": part.rows[:MOST_ROWS],
                    "note": " ".join(filter(None, (part.note, more))),
                    "file": chapter.file(part)}  # fmt: skip
        case Figure():
            number = next(counter)
            return {
                "type": "Figure",
                "id": f"{own}-{part.name}",
                "number": f"Figure {chapter.number}.{number}",
                "svg": Markup(style.inline(part.svg, f"{own}-{part.name}", part.alt)),
                "caption": part.caption,
                "alt": part.alt,
                "file": chapter.file(part),
            }
        case Advice():
            return {
                "type": "Advice",
                "rules": part.rules,
                "sentences": [_sentence(sentence, names) for sentence in part.sentences],
            }


def _sentence(sentence: Any, names: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    href, where = names.get(sentence.anchor, ("", ""))
    return {"about": sentence.about, "text": sentence.text, "kind": sentence.kind,
            "numbers": sentence.numbers, "href": href, "where": where}  # fmt: skip
