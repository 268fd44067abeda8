"""Thrashing points that were not reached: TP = inf is a censored value, not a missing one.

Throughput is known at the MPLs that were measured and nowhere else. A batchset that thrashed has
its thrashing point (TP) in an interval between two of them, and one that never did has it above the
largest, if anywhere. A regression on the batchsets that thrashed (the study's, Suh, Snodgrass,
Currim 2017, Section 9) leaves out those with the largest TP, and so finds effects that are too
small; with few MPLs it also takes the lower end of a wide interval for the point.

* `kaplan_meier`: the share not yet thrashing against MPL, with bands.
* `regress`: accelerated failure time models (Weibull, log-normal, log-logistic) and the tobit
  model, of intervals and censored values, with nonlinear terms and errors by cluster.
* `thrashes`: logistic regression on thrashing at all, with Firth's remedy at separation.
* `compare`, `bias`: the naive regression beside the censored one, and its bias where the truth is
  known.

Example
-------
>>> from tidegate_analysis import censored
>>> fit = censored.regress(samples, ["numProcs", "PK", "ATPT"], cluster="dbms")  # doctest: +SKIP
>>> print(fit)                                                                   # doctest: +SKIP

Limits
------
Censoring must not tell more than the MPL at which it happened: all are measured up to the same MPL,
or up to one chosen without looking at throughput. A batchset that never would thrash has TP = inf
under no distribution here; where many are such, read `thrashes` beside `regress`. Samples of one
DBMS are not independent: name it as `cluster`, or as a fixed effect in `on`.
"""

from tidegate_analysis.censored._aft import AFT, CensoredRegression, naive, regress
from tidegate_analysis.censored._compare import bias, compare, seen
from tidegate_analysis.censored._logistic import Logistic, thrashes
from tidegate_analysis.censored._predictor import CensoredOptions, LinearPredictor
from tidegate_analysis.censored._survival import kaplan_meier

__all__ = [
    "AFT",
    "CensoredOptions",
    "CensoredRegression",
    "LinearPredictor",
    "Logistic",
    "bias",
    "compare",
    "kaplan_meier",
    "naive",
    "regress",
    "seen",
    "thrashes",
]
