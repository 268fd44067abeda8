"""Whether the study's refined models are found in data that were simulated from them.

Simulates from each model with the study's path coefficients and its number of samples, fits the
model to each data set, and prints as Markdown what was planted, what was found in the mean, and in
which share of data sets its sign was right and its p below 0.05; then the study's own arithmetic.

    cd analysis && .venv/bin/python benchmarks/planted_truth.py [DATA_SETS]
"""

import sys
from typing import Final

import pandas as pd

from tidegate_analysis.estimate import effects, fit, overall_fit, totals
from tidegate_analysis.model import simulate, study

#: Samples that the study had of each kind, Section 9.3.
STUDIES: Final = {"refined, read": 148, "refined, update": 334}
FIRST_SEED: Final = 20_000
EFFECT: Final = ["from", "to", "kind"]

#: What Section 9.3.4 and Fig. 6 print: total effects on TP, and error coefficients with the fit.
TOTALS: Final = (
    ("refined, read", "numProcs", 0.44),
    ("refined, read", "PK", 0.38),
    ("refined, update", "numProcs", -0.33),
)
FITS: Final = (("refined, read", (0.84, 0.93), 0.39), ("refined, update", (0.96, 0.92), 0.23))


def known(name: str) -> pd.DataFrame:
    """Effects that the study's coefficients give."""
    model = study(name)
    table = totals(model, model.coefficients)
    kinds = ["direct", "indirect", "total"]
    return table.melt(["from", "to"], kinds, "kind", "planted").set_index(EFFECT)


def found(name: str, samples: int, sets: int) -> pd.DataFrame:
    """Effects of each data set, and whether they are significant."""
    model = study(name)
    tables = (
        effects(fit(model, simulate(model, samples, seed=seed))).table
        for seed in range(FIRST_SEED, FIRST_SEED + sets)
    )
    return pd.concat(tables).join(known(name), on=EFFECT)


def summary(name: str, samples: int, sets: int) -> list[str]:
    """Rows of what was planted and found."""
    table = found(name, samples, sets)
    table["right"] = table["effect"] * table["planted"] > 0
    table["significant"] = table["right"] & (table["p"] < 0.05)
    means = table.groupby(EFFECT, sort=False)[["planted", "effect", "right", "significant"]].mean()
    return [
        f"| {name}, n = {samples} | {row['kind']} {row['from']} → {row['to']} | "
        f"{row['planted']:.2f} | {row['effect']:.2f} | {row['right']:.1%} | "
        f"{row['significant']:.1%} |"
        for row in means.reset_index().to_dict("records")
    ]


def arithmetic() -> list[str]:
    """Rows of the study's own numbers, from its coefficients."""
    rows = []
    for name, source, printed in TOTALS:
        value = known(name)["planted"][source, "TP", "total"]
        rows.append(f"| {name} | total {source} → TP | {value:.3f} | {printed} |")
    for name, errors, printed in FITS:
        value = overall_fit([1 - error**2 for error in errors])
        rows.append(
            f"| {name} | fit, of errors {errors[0]} and {errors[1]} | {value:.3f} | {printed} |"
        )
    return rows


def main() -> None:
    """Simulate, fit, and print."""
    sets = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| model | effect | planted | found, mean | sign right | significant |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for name, samples in STUDIES.items():
        print("\n".join(summary(name, samples, sets)))
    print("\n| model | the study's arithmetic | ours | printed |")
    print("| --- | --- | ---: | ---: |")
    print("\n".join(arithmetic()))


if __name__ == "__main__":
    main()
