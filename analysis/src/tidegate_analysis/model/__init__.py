"""Structural causal models as data: read, check, draw, simulate.

`Model` is the thing itself; `study` gives the four of Suh, Snodgrass and Currim (2017), `read` one
of your own from a small TOML file. `draw` makes a path diagram, `simulate` samples with a known
truth.
"""

from tidegate_analysis.model.diagram import draw
from tidegate_analysis.model.files import STUDIES, parse, read, study, to_toml, write
from tidegate_analysis.model.simulate import STUDY_DESIGN, simulate
from tidegate_analysis.model.structure import Fingerprint, Model, Moderator, Path, Variable

__all__ = [
    "STUDIES",
    "STUDY_DESIGN",
    "Fingerprint",
    "Model",
    "Moderator",
    "Path",
    "Variable",
    "draw",
    "parse",
    "read",
    "simulate",
    "study",
    "to_toml",
    "write",
]
