"""Why throughput collapses, and what to do about it: analysis of the laboratory's results.

>>> import tidegate_analysis as ta
>>> results = ta.load("results.db")          # doctest: +SKIP
>>> results.curves(experiment=1)             # doctest: +SKIP
"""

from tidegate_analysis.errors import AnalysisError

__all__ = ["AnalysisError"]
__version__ = "0.1.0"
