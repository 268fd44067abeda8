"""Estimation of structural causal models: coefficients, effects, refinement, fit.

`regress` fits one equation, `fit` all equations of a model, `effects` traces its paths. `refine`
drops paths with exploratory samples, `confirm` tests what is left with confirmatory ones.
`structural` asks whether the paths that are not there are rightly absent.

>>> from tidegate_analysis.model import simulate, study
>>> exploratory, confirmatory = split(simulate(study("refined, read"), 560, seed=1), seed=2)
>>> refined = refine(study("refined, read"), exploratory).model
>>> found = confirm(refined, confirmatory, errors="hc3")
>>> float(effects(found).of("numProcs", "TP")["effect"].round(2))
0.4
"""

from tidegate_analysis.estimate.effects import Effects, Trace, effects, totals, trace
from tidegate_analysis.estimate.evidence import Confirmatory, Exploratory, fingerprint, split
from tidegate_analysis.estimate.paths import PathFit, confirm, fit, overall_fit, stars
from tidegate_analysis.estimate.refine import Refinement, compare, refine
from tidegate_analysis.estimate.regression import Regression, RegressionOptions, regress
from tidegate_analysis.estimate.sem import Structural, structural

__all__ = [
    "Confirmatory",
    "Effects",
    "Exploratory",
    "PathFit",
    "Refinement",
    "Regression",
    "RegressionOptions",
    "Structural",
    "Trace",
    "compare",
    "confirm",
    "effects",
    "fingerprint",
    "fit",
    "overall_fit",
    "refine",
    "regress",
    "split",
    "stars",
    "structural",
    "totals",
    "trace",
]
