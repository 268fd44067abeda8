"""Causal mediation: how much of a treatment's effect on an outcome goes through a mediator.

The study asks it of processors, through ATPT, to the thrashing point, moderated by primary keys and
ROSE (Sections 7.2.2, 9.3.3). `Mechanism` says what is asked, `mediate` answers, `moderation` tests
whether the answer depends on a moderator, `sensitivity` says how strong an unobserved common cause
would have to be to explain it away.

>>> import numpy as np, pandas as pd
>>> rng = np.random.default_rng(5)
>>> numProcs = rng.choice([1.0, 2.0, 4.0, 8.0], size=300)
>>> ATPT = 100 - 5 * numProcs + rng.normal(scale=10, size=300)
>>> TP = 500 + 20 * numProcs - 2 * ATPT + rng.normal(scale=30, size=300)
>>> samples = pd.DataFrame({"numProcs": numProcs, "ATPT": ATPT, "TP": TP})
>>> found = mediate(samples, Mechanism("numProcs", "ATPT", "TP", control=1, treated=8))
>>> round(found.acme.estimate), found.acme.p     # the truth is 7 · −5 · −2 = 70
(74, 0.0)

References
----------
K. Imai, L. Keele, D. Tingley, A general approach to causal mediation analysis, Psychological
Methods 15 (2010) 309–334. K. Imai, L. Keele, T. Yamamoto, Identification, inference and sensitivity
analysis for causal mediation effects, Statistical Science 25 (2010) 51–71. D. Tingley et al.,
mediation: R package for causal mediation analysis, J. Statistical Software 59:5 (2014). B. Efron,
Better bootstrap confidence intervals, JASA 82 (1987) 171–185.
"""

from tidegate_analysis.mediation._mechanism import Mechanism
from tidegate_analysis.mediation._mediate import Effect, Mediation, Moderation, mediate, moderation
from tidegate_analysis.mediation._sensitivity import Sensitivity, sensitivity

__all__ = [
    "Effect",
    "Mechanism",
    "Mediation",
    "Moderation",
    "Sensitivity",
    "mediate",
    "moderation",
    "sensitivity",
]
