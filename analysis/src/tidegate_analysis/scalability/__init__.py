"""How throughput grows and falls with the MPL, and what holding it at its best would gain.

Gunther's universal scalability law (*Guerrilla Capacity Planning*, 2007, Chapters 4 and 5) is

    X(N) = λN / (1 + σ(N - 1) + κN(N - 1)).

One client gives λ. Waiting for what is shared (σ) bends the curve towards λ/σ; agreeing with each
other (κ), such as over locks and cache lines, costs with the square of N and turns it down, from
``N* = sqrt((1 - σ)/κ)`` on. κ = 0 is Amdahl's law, σ = κ = 0 is linear growth.

SciPy fits such a curve, but one at a time, with bounds on single parameters only, and gives no
interval at a bound: faces of bounds, thousands of draws at once and Fieller's intervals are ours.

* `fit`, `fit_all`: the law by bounded least squares, with intervals, bands, bootstrap, goodness of
  fit, and flags for what a curve cannot say.
* `gain`, `gain_all`: throughput at the best measured MPL over throughput with all clients let in.

Example
-------
>>> from tidegate_analysis import scalability
>>> law = scalability.fit(curve)                                       # doctest: +SKIP
>>> print(law)                                                         # doctest: +SKIP
>>> print(scalability.gain(executions))                                # doctest: +SKIP

Limits
------
The law is smooth: past its peak it falls slowly, and a collapse within one step of the MPL is
not of its form (`lack_of_fit` sees that, where batches were repeated). N* is where throughput is
largest, and the thrashing point where its first sharp fall begins: N* is below it, or thrashing is
no matter of coherency. Curves that begin at MPL 100 say little of λ and σ apart. The law falls no
faster than 1/(N - 1): a curve that does, from its first MPL on, gets that limit, in which λ and κ
are infinite and their ratio alone is known. Executions of one batch are taken as independent.
"""

from tidegate_analysis.scalability._gain import Gain, gain, gain_all
from tidegate_analysis.scalability._law import Law, fit, fit_all

__all__ = ["Gain", "Law", "fit", "fit_all", "gain", "gain_all"]
