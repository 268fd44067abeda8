"""Why throughput collapses, and what to do about it: analysis of the laboratory's results.

>>> import tidegate_analysis as ta
>>> results = ta.load("results.db")                              # doctest: +SKIP
>>> results.curves(experiment=1)                                 # doctest: +SKIP
>>> print(ta.tables.run(results, experiment=1).markdown())       # doctest: +SKIP
>>> ta.report.write(results, [1], "out/report")                  # doctest: +SKIP

Everything that estimates takes *samples*, a frame with a row for each batchset instance (`shapes`),
which may as well come from a file or from a simulation:

>>> reads = ta.model.study("refined, read")
>>> samples = ta.model.simulate(reads, 148, seed=1)
>>> fit = ta.estimate.fit(reads, samples, errors="hc3")
>>> sorted(fit.r_squared)
['ATPT', 'TP']

| module | what it answers |
| --- | --- |
| `results` | what did the laboratory measure? (`load`, `Results`) |
| `tables` | the study's Tables 3 and 5 to 10, correlations against hypotheses |
| `model` | structural causal models as files, diagrams, simulated samples |
| `estimate` | path coefficients, effects, refinement, fit |
| `mediation` | how much of an effect goes through a mediator? |
| `assumptions` | may a regression be believed? |
| `censored` | what do batchsets that never thrashed say? |
| `scalability` | the scalability law, and what holding the best level gains |
| `report` | one page of all of it, with advice |
| `examples` | stores with planted truth, to try things on |

Modules are loaded when they are first looked at: some take seconds.
"""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tidegate_analysis.errors import AnalysisError
from tidegate_analysis.results import Results, load

if TYPE_CHECKING:
    from tidegate_analysis import (
        assumptions,
        censored,
        estimate,
        examples,
        mediation,
        model,
        report,
        scalability,
        tables,
    )

__all__ = [
    "AnalysisError",
    "Results",
    "assumptions",
    "censored",
    "estimate",
    "examples",
    "load",
    "mediation",
    "model",
    "report",
    "scalability",
    "tables",
]
__version__ = "0.1.0"

_LAZY: Final = frozenset(__all__) - {"AnalysisError", "Results", "load"}


def __getattr__(name: str) -> ModuleType:
    if name in _LAZY:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
