"""Sentences whose p-values have to be adjusted for each other before any of them is said."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate_analysis.report import _words as words
from tidegate_analysis.report._inference import Ratio
from tidegate_analysis.report._parts import Sentence
from tidegate_analysis.tables import holm


@dataclass(frozen=True)
class Claim:
    """A sentence that waits for its p-value to be adjusted; no p-value where nothing is tested."""

    p: float | None
    said: Callable[[float], Sentence]


def settled(claims: Sequence[Claim]) -> list[Sentence]:
    """Return the sentences of claims, their p-values adjusted for there being several (Holm)."""
    adjusted = iter(holm([claim.p for claim in claims if claim.p is not None]))
    return [claim.said(1.0 if claim.p is None else float(next(adjusted))) for claim in claims]


def ratio_said(ratio: Ratio) -> str:
    """Return a ratio as one of the numbers behind a sentence."""
    return f"{words.number(ratio.value)}, {words.between(ratio.low, ratio.high)}, n = {ratio.n}"
