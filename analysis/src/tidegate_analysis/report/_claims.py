"""Sentences whose p-values are adjusted for each other before any of them is said.

All claims about an experiment are one family, whatever section they are in: what is said of it does
not depend on which other experiments are on the page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidegate_analysis.report import _words as words
from tidegate_analysis.report._inference import Ratio
from tidegate_analysis.report._parts import Advice, Claim, Part, Section, Sentence
from tidegate_analysis.tables import holm


def settled(sections: Sequence[Section]) -> list[Section]:
    """Return an experiment's sections with sentences in place of claims, by Holm's adjustment."""
    adjusted = iter(holm([claim.p for claim in _claims(sections)]).tolist())

    def said(waiting: Sentence | Claim) -> Sentence:
        sentence = waiting.said(next(adjusted)) if isinstance(waiting, Claim) else waiting
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


def ratio_said(ratio: Ratio) -> str:
    """Return a ratio as one of the numbers behind a sentence."""
    return f"{words.number(ratio.value)}, {words.between(ratio.low, ratio.high)}, n = {ratio.n}"
