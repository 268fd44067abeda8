"""The study's tables: descriptive ones, correlations, and the pipeline that makes them all."""

from tidegate_analysis.published import Part
from tidegate_analysis.published import tables as published
from tidegate_analysis.tables.correlation import (
    INITIAL,
    LEVELS,
    REFINED,
    Correlation,
    Hypothesis,
    correlate,
    holm,
    hypotheses,
)
from tidegate_analysis.tables.descriptive import (
    checks,
    outcome,
    table_3,
    table_5,
    table_6,
    table_7,
    table_8,
)
from tidegate_analysis.tables.figure import figure_6
from tidegate_analysis.tables.markdown import markdown
from tidegate_analysis.tables.study import Diagram, Study, run

__all__ = [
    "INITIAL",
    "LEVELS",
    "REFINED",
    "Correlation",
    "Diagram",
    "Hypothesis",
    "Part",
    "Study",
    "checks",
    "correlate",
    "figure_6",
    "holm",
    "hypotheses",
    "markdown",
    "outcome",
    "published",
    "run",
    "table_3",
    "table_5",
    "table_6",
    "table_7",
    "table_8",
]
