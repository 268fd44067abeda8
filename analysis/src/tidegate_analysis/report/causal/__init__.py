"""The causal chapter of a report: what moves the thrashing point, by how much, through what.

Sections for experiments of the scenario `thrash`, made for `report.write(..., more=makers())`:
samples and advice; the study's hypotheses and models beside ours; mediation; assumption checks;
what batchsets that never thrashed say. Reads and updates are apart throughout, as in the study.

Where a sample is too small, constant or collinear for something, a sentence says so in its place.

Source: Suh, Snodgrass, Currim 2017, Sections 8 and 9.
"""

from collections.abc import Callable, Sequence
from typing import Final

from tidegate_analysis.report._parts import Section
from tidegate_analysis.report.causal._assumptions import checked
from tidegate_analysis.report.causal._censored import never_thrashed
from tidegate_analysis.report.causal._group import Experiment, experiment
from tidegate_analysis.report.causal._mediation import mechanisms
from tidegate_analysis.report.causal._moves import what_moves
from tidegate_analysis.report.causal._paths import path_models
from tidegate_analysis.results import Results

__all__ = ["makers"]

_SECTIONS: Final[Sequence[Callable[[Experiment], Section]]] = (
    what_moves,
    path_models,
    mechanisms,
    checked,
    never_thrashed,
)


def makers() -> list[Callable[[Results, int], Section]]:
    """Return the makers of the chapter's sections for one report: they share loaded samples."""
    # The results are kept beside what was made of them: the identity of results that no longer
    # exist may be given to others.
    known: dict[tuple[int, int], tuple[Results, Experiment]] = {}

    def load(results: Results, number: int) -> Experiment:
        key = (id(results), number)
        if key not in known:
            known[key] = results, experiment(results, number)
        return known[key][1]

    return [_maker(section, load) for section in _SECTIONS]


def _maker(
    section: Callable[[Experiment], Section], load: Callable[[Results, int], Experiment]
) -> Callable[[Results, int], Section]:
    def make(results: Results, number: int) -> Section:
        found = load(results, number)
        if found.problem and section is not what_moves:
            # The first section says why there is none.
            return Section(section.__name__, "")
        return section(found)

    make.__name__ = section.__name__
    return make
