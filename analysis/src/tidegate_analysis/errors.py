"""The one kind of error that users of this package meet.

Every message says what is wrong *and what to do*. The command line prints it in one line and ends
with exit code 1; a notebook sees an ordinary exception. Anything else that is raised is a defect of
this package.
"""


class AnalysisError(Exception):
    """Data or a request that cannot be worked with; the message says what to do.

    - problem: What is wrong, naming file, column, row or value.
    - advice: What to do about it, an imperative sentence.
    """

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(f"{problem}: {advice}")
        self.problem = problem
        self.advice = advice


class StoreError(AnalysisError):
    """A store or an export that cannot be read as one."""


class ShapeError(AnalysisError):
    """A table that does not have the columns, types or values that a shape asks for."""


class ModelError(AnalysisError):
    """A structural causal model, or a file of one, that means nothing."""


class SampleError(AnalysisError):
    """Samples from which nothing can be estimated: too few, constant, collinear."""
