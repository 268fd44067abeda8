"""Frames as tables of Markdown."""

import math

import pandas as pd


def markdown(table: pd.DataFrame) -> str:
    """Return a frame as a table of Markdown, its index left out.

    Numbers have three significant digits, whole ones all of theirs and a comma for each thousand; a
    missing value is an en dash.
    """
    head = [str(name).replace("_", " ") for name in table.columns]
    lines = [head, ["---"] * len(head)]
    lines += [[_cell(value) for value in row] for row in table.itertuples(index=False)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: object) -> str:
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool) or type(value).__name__ == "bool":
        return "yes" if value else "no"
    if not isinstance(value, (int, float)) and not hasattr(value, "dtype"):
        return str(value).replace("|", "\\|")
    number = float(value)  # type: ignore[arg-type]
    if math.isinf(number):
        return "∞" if number > 0 else "−∞"
    if number == round(number):
        return f"{number:,.0f}"
    return f"{number:.3g}" if 1e-4 <= abs(number) < 1e3 else _large_or_small(number)


def _large_or_small(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1e3 else f"{number:.1e}"
