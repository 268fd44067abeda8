"""Make estimate.csv, the samples of estimate.R: run it here, with the package on the path.

Drawn from the study's initial model for reads, with DBMSs that differ, so that no two ways to
estimate agree by chance.
"""

from tidegate_analysis.model import simulate, study

COEFFICIENTS = {
    ("SF", "ATPT"): 0.15,
    ("SF", "TP"): -0.1,
    ("ROSE", "TP"): 0.05,
    ("numProcs", "ATPT", "ROSE"): 0.12,
    ("SF", "ATPT", "PK"): -0.1,
}

if __name__ == "__main__":
    samples = simulate(
        study("initial, read"), 180, seed=2017, coefficients=COEFFICIENTS, dbms_share=0.3
    )
    columns = ["dbms", "mode", "numProcs", "PK", "SF", "ROSE", "ATPT", "TP"]
    samples[columns].round(4).to_csv("estimate.csv", index=False)
