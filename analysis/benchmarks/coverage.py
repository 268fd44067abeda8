"""A table of the coverages that tests found, as Markdown.

    cd analysis
    TIDEGATE_SLOW=1 TIDEGATE_COVERAGE=coverage.json .venv/bin/python -m pytest
    .venv/bin/python benchmarks/coverage.py coverage.json

A run of fewer data sets (without ``TIDEGATE_SLOW``) takes no row's place that has more.
"""

import json
import sys
from pathlib import Path


def main() -> None:
    """Print the table of the file that is named."""
    if len(sys.argv) != 2:
        sys.exit("usage: coverage.py FILE, where TIDEGATE_COVERAGE=FILE was set for pytest")
    rows = sorted(json.loads(Path(sys.argv[1]).read_text()), key=lambda row: str(row["test"]))
    print("| test | interval of | data sets | coverage | bounds | why these |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows:
        file = row["test"].split("::")[0]
        bounds = f"{row['low']:.3g} to {row['high']:.3g}"
        cells = (
            file,
            row["what"],
            f"{row['sets']:,}",
            f"{row['coverage']:.3f}",
            bounds,
            row["why"],
        )
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
