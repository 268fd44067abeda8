"""What a report is made of: sections of paragraphs, tables and figures.

Sentences may wait for their p-values to be adjusted for each other. All claims about an experiment
are one family, whatever section they are in: what is said of it does not depend on which other
experiments are on the page.

A part of the report is a function that takes results and the number of an experiment and returns
a `Section`. Parts know nothing of HTML; the page knows nothing of experiments.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate_analysis.report import _words as words
from tidegate_analysis.report._inference import Ratio
from tidegate_analysis.tables import holm


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
    """A figure: a print-ready SVG, and words that say what it shows.

    - name: Its name in links, and that of its file; unique in an experiment.
    - alt: What can be seen, made from the data, for those who do not see it.
    """

    name: str
    caption: str
    alt: str
    svg: str


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Sentence:
    """A sentence of advice with the numbers behind it.

    - kind: ``shown``: the sample shows it. ``not shown``: the sample cannot show it. ``warning``:
      something stands against the sample itself.
    - anchor: Name of the table or figure that it is read from.
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
    sentence: Callable[[float], Sentence]


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


def adjusted_claims(sections: Sequence[Section]) -> list[Section]:
    """Return an experiment's sections with sentences in place of claims, by Holm's adjustment."""
    adjusted = iter(holm([claim.p for claim in _claims(sections)]).tolist())

    def said(waiting: Sentence | Claim) -> Sentence:
        sentence = waiting.sentence(next(adjusted)) if isinstance(waiting, Claim) else waiting
        return replace(sentence, text=words.sentence(sentence.text))

    def of(part: Part) -> Part:
        if not isinstance(part, Advice):
            return part
        return replace(part, sentences=[said(waiting) for waiting in part.sentences])

    return [replace(section, parts=[of(part) for part in section.parts]) for section in sections]


def _claims(sections: Sequence[Section]) -> Iterator[Claim]:
    for section in sections:
        for part in section.parts:
            if isinstance(part, Advice):
                yield from (each for each in part.sentences if isinstance(each, Claim))


def ratio_text(ratio: Ratio) -> str:
    """Return a ratio as one of the numbers behind a sentence."""
    return f"{words.number(ratio.value)}, {words.between(ratio.low, ratio.high)}, n = {ratio.n}"
