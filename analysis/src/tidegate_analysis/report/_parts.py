"""What a report is made of: sections of paragraphs, tables and figures.

A part of the report is a function that takes results and the number of an experiment and returns
a `Section`. Parts know nothing of HTML; the page knows nothing of experiments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """A table: its name in links, a caption, the columns' names, and rows of what is shown.

    The page shows the first rows of a long one; the CSV file beside it has all.
    """

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure: a print-ready SVG, words that say what it shows, and perhaps an interactive chart.

    Attributes
    ----------
    name
        Its name in links, and that of its file; unique in an experiment.
    caption
        What is drawn, and how.
    alt
        What can be seen, made from the data, for those who do not see it.
    svg
        The whole SVG document.
    chart
        A Vega-Lite specification that takes the SVG's place where scripts run, or None.

    """

    name: str
    caption: str
    alt: str
    svg: str
    chart: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Paragraph:
    """Plain text."""

    text: str


@dataclass(frozen=True)
class Sentence:
    """A sentence of advice with the numbers behind it.

    Attributes
    ----------
    about
        What it is about, in a few words.
    text
        The sentence.
    kind
        ``shown``: the sample shows it. ``not shown``: the sample cannot show it. ``warning``:
        something stands against the sample itself.
    anchor
        Name of the table or figure that it is read from.
    numbers
        The numbers behind it, by name.

    """

    about: str
    text: str
    kind: str
    anchor: str
    numbers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Claim:
    """A sentence that waits for its p-value to be adjusted for the others of its experiment."""

    p: float
    said: Callable[[float], Sentence]


@dataclass(frozen=True)
class Advice:
    """Sentences, and the rules that they were made by."""

    sentences: Sequence[Sentence | Claim]
    rules: Sequence[str]


Part = Table | Figure | Paragraph | Advice


@dataclass(frozen=True)
class Section:
    """A part of the report: what it holds, or a sentence that says why it holds nothing."""

    name: str
    title: str
    parts: Sequence[Part] = ()
    missing: str = ""
