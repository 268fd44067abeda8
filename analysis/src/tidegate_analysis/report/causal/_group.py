"""The samples that the models are about: those of reads and those of updates, each by itself.

The study treats the two as two populations with a model of their own (Section 8), and so do all
parts of this chapter. What they share is here: the samples of a group, which of them thrashed,
which factors vary, and of how many DBMSs and runs they are. Samples of one DBMS are not independent
of each other, and with one DBMS those of one run are not: whatever befell it befell them all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pandas as pd

from tidegate_analysis import estimate, model
from tidegate_analysis.errors import AnalysisError, SampleError, StoreError
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Paragraph, Part
from tidegate_analysis.results import Results

GROUPS: Final = ("read", "update")
#: What an experiment may vary, of what the models are about.
FACTORS: Final = ("numProcs", "PK", "SF", "ROSE")
#: Fewer samples that thrashed than this show nothing of what moves them.
FEWEST_THRASHED: Final = 5
#: Samples for each coefficient, below which paths are not chosen, models not tested and bends not
#: sought (Harrell 2015, Section 4.4, asks for 10 to 20).
FEWEST_PER_COEFFICIENT: Final = 10
#: The scenario whose batchsets these are.
SCENARIO: Final = "thrash"


@dataclass(frozen=True)
class Group:
    """The retained samples of reads or of updates.

    - outcomes: What the thrashing point of each may be, as `Results.outcomes` has it; None where
      that is not known.
    """

    name: str
    retained: pd.DataFrame
    outcomes: pd.DataFrame | None = None

    @cached_property
    def thrashed(self) -> pd.DataFrame:
        """Return those that thrashed, which the study's models are about."""
        return self.retained[self.retained["thrashed"]].reset_index(drop=True)

    @cached_property
    def refined(self) -> model.Model:
        return model.study(f"refined, {self.name}")

    @cached_property
    def fit(self) -> estimate.PathFit:
        """Return the refined model, estimated as the study does."""
        return estimate.fit(self.refined, self.thrashed, block=self.block)

    @property
    def block(self) -> str | None:
        """Return the column of hosts, where several measured what thrashed and all are known."""
        hosts = self.thrashed.get("host")
        if hosts is None or hosts.isna().any() or hosts.nunique() < 2:
            return None
        return "host"

    @property
    def dbms(self) -> int:
        """Return how many DBMSs the samples are of."""
        return int(self.retained["dbms"].nunique())

    @property
    def clusters(self) -> str:
        """Return the column of what is independent: DBMSs, or the runs of one."""
        return "dbms" if self.dbms > 1 else "run"

    @property
    def by_dbms(self) -> str | None:
        """Return the column that tells DBMSs apart; None where all that thrashed are of one."""
        return "dbms" if len(self.thrashed["dbms"].unique()) > 1 else None

    @property
    def of(self) -> str:
        """Return of what the samples are, in words."""
        runs = words.count(self.retained["run"].nunique(), "run")
        dbms = words.count(self.dbms, "DBMS", "DBMSs")
        return f"{len(self.retained):,} samples of {runs} and {dbms}"

    def need_thrashed(self) -> None:
        """Refuse a group of which too few thrashed.

        Raises `SampleError`: with how many did.
        """
        if len(self.thrashed) < FEWEST_THRASHED:
            raise SampleError(
                f"{len(self.thrashed)} of {len(self.retained)} samples of {self.name}s thrashed, "
                f"fewer than {FEWEST_THRASHED}",
                "measure more batchsets, or larger MPLs",
            )

    def need_seen(self, names: Sequence[str]) -> None:
        """Refuse columns that are missing in a sample.

        Raises `SampleError`: with the DBMSs whose samples lack it.
        """
        for name in names:
            lacking = self.retained.loc[self.retained[name].isna(), "dbms"]
            if len(lacking):
                what = "the processors" if name == "numProcs" else f"`{name}`"
                raise SampleError(
                    f"{what} of {words.enumeration(sorted(set(lacking)))} were not seen",
                    "measure servers that the laboratory starts, or give a table of samples that "
                    "has them",
                )

    def need_model(self, of: model.Model) -> None:
        """Refuse a group of which too few thrashed, or that lacks a variable of a model."""
        self.need_thrashed()
        self.need_seen([name for name in FACTORS if name in of.exogenous])

    def varied(self, names: Sequence[str] = FACTORS) -> list[str]:
        """Return the factors that vary in all samples and in those that thrashed, none missing."""
        tables = (self.retained, self.thrashed)
        return [
            name
            for name in names
            if all(table[name].notna().all() and len(table[name].unique()) > 1 for table in tables)
        ]


@dataclass(frozen=True)
class Experiment:
    """The groups of an experiment, or why there are none.

    - left_out: Batchsets that were retained, but are neither reads alone nor updates alone.
    - processors: Those of the machine; None where that is not known.
    """

    number: int
    groups: Sequence[Group] = ()
    left_out: int = 0
    problem: str = ""
    processors: int | None = None


def experiment(results: Results, number: int) -> Experiment:
    """Return the groups of an experiment of the scenario `thrash`.

    Raises `StoreError`: the store does not have the experiment, or is damaged.
    """
    about = results.experiment(number).iloc[0]
    scenario = str(about["scenario"])
    if scenario != SCENARIO:
        why = f"they are about the scenario `{SCENARIO}`, and this is `{scenario}`"
        return Experiment(number, problem=why)
    try:
        samples = results.samples(number)
    except SampleError as error:
        return Experiment(number, problem=str(error))
    found = {name: samples[samples["mode"] == name] for name in GROUPS}
    groups = [Group(n, table, results.outcomes(table)) for n, table in found.items() if len(table)]
    left_out = len(results.latest_points(number)) - len(samples)
    machine = about.get("machine_processors")
    return Experiment(
        number, groups, left_out, processors=None if machine is None else int(machine)
    )


def attempt(what: str, make: Callable[[], Sequence[Part]]) -> list[Part]:
    """Return parts, or a sentence that says why the sample cannot show them."""
    try:
        return list(make())
    except StoreError:
        raise
    except AnalysisError as error:
        advice = words.sentence(error.advice)
        return [Paragraph(f"This sample cannot show {what}: {error.problem}. {advice}.")]


def estimated(value: float, low: float, high: float) -> str:
    """Return an estimate with its interval."""
    return f"{words.number(value)} ({words.between(low, high)})"
