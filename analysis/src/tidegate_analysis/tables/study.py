"""The study's pipeline: from a store to its Tables 3 and 5 to 10, and Fig. 6.

An experiment is taken by itself, since the study keeps exploration and confirmation apart: nothing
here pools two. What one table lacks does not keep the others away: a group in which nothing
thrashed, or in which TP is constant, leaves a note in place of its table.

Where this leaves the study
---------------------------
The study's Tables 9 and 10 are about samples that thrashed, and so are these; each says how many it
left out, because TP = ∞ is censored and not missing.

References
----------
Suh, Snodgrass, Currim (2017), Sections 6.5, 7.1, 9.1 and 9.3.1.

"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import pandas as pd

from tidegate_analysis.errors import AnalysisError, SampleError, StoreError
from tidegate_analysis.published import Part
from tidegate_analysis.published import tables as published
from tidegate_analysis.results import Results
from tidegate_analysis.tables import correlation, descriptive
from tidegate_analysis.tables.correlation import REFINED, Method
from tidegate_analysis.tables.markdown import markdown

#: Draws a group's path diagram as SVG, from its name and its samples that thrashed.
Diagram = Callable[[str, pd.DataFrame], str]

_HEADINGS: Final = {
    "table-3": "Table 3: what was executed",
    "table-5": "Table 5: checks of the experiment",
    "table-6": "Table 6: checks of batch executions",
    "table-7": "Table 7: check of batchset instances",
    "table-8": "Table 8: what each step left",
    "step-4": "Step 4: thrashing points",
    "table-9": "Table 9: hypotheses about the read group",
    "table-10": "Table 10: hypotheses about the update group",
    "figure-6-read": "Fig. 6(a): the refined model of the read group",
    "figure-6-update": "Fig. 6(b): the refined model of the update group",
}

_GROUPS: Final = {"read": "table-9", "update": "table-10"}


@dataclass(frozen=True)
class Study:
    """The tables of an experiment.

    - tables: Frames by name: ``table-3``, ``table-5`` to ``table-8``, ``step-4``, ``table-9``,
      ``table-10``, as far as there are.
    - notes: What is to be known about a table, or why it is missing, by its name.
    - figures: SVG by name: ``figure-6-read`` and ``figure-6-update``, where a diagram was asked
      for.
    """

    experiment: int
    name: str
    part: Part | None
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)

    def markdown(self) -> str:
        """Return all tables as Markdown."""
        parts = [f"# Experiment {self.experiment}: {self.name}\n"]
        for name, heading in _HEADINGS.items():
            if name.startswith("figure") and name not in self.figures | self.notes:
                continue
            parts.append(f"## {heading}\n")
            if name in self.notes:
                parts.append(f"{self.notes[name]}\n")
            if name in self.figures:
                parts.append(f"![{heading}]({name}.svg)\n")
            if name in self.tables:
                table = self.tables[name]
                if "hypothesis" in table:
                    parts.append(markdown(correlation.as_printed(table)))
                parts.append(markdown(table))
        return "\n".join(parts)

    def write(self, out: Path) -> list[Path]:
        """Write a CSV file for each table, an SVG for each figure, and all as ``tables.md``.

        - out: A directory, made where it is not there.

        Raises `StoreError`: a file cannot be written.
        """
        texts = {f"{name}.csv": table.to_csv(index=False) for name, table in self.tables.items()}
        texts |= {f"{name}.svg": figure for name, figure in self.figures.items()}
        texts["tables.md"] = self.markdown()
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name, text in texts.items():
                (out / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise StoreError(
                f"{out} cannot be written to: {error.strerror}", "give another directory"
            ) from error
        return [out / name for name in texts]


def run(
    results: Results,
    experiment: int,
    *,
    part: Part | Literal["by name"] | None = "by name",
    method: Method = "pearson",
    correction: Literal["none", "holm"] = "none",
    diagram: Diagram | None = None,
    progress: Callable[[str], None] | None = None,
) -> Study:
    """Make the study's tables of an experiment.

    - results: A store or an export whose experiment was analysed by `tidegate lab tap`.
    - part: The study's part whose figures stand beside ours. By its name, an experiment called
      exploratory stands beside the study's, and all others beside its confirmatory one.
    - method, correction: As in `correlation.hypotheses`.
    - diagram: Draws Fig. 6, for each group that has samples: `figure_6`, or a function of your own.

    Raises `StoreError`: the source does not have the experiment, or is damaged. Raises
    `SampleError`: it was never analysed, or no batchset was retained.
    """
    progress = progress or (lambda _: None)
    name = str(results.experiment(experiment)["name"].iloc[0])
    if part == "by name":
        part = "exploratory" if "exploratory" in name else "confirmatory"
    study = Study(experiment, name, part)
    progress(f"experiment {experiment}: executions")
    executions = results.executions(experiment)
    study.tables["table-3"] = descriptive.table_3(executions, part=part)
    progress(f"experiment {experiment}: the analysis protocol")
    _describe(study, results.tap_counts(experiment))
    samples = results.samples(experiment, executions=executions)
    for group in _GROUPS:
        progress(f"experiment {experiment}: {group} group")
        chosen = samples[samples["mode"] == group]
        _correlate(study, group, chosen, method, correction)
        if diagram is not None:
            _draw(study, group, chosen, diagram)
    return study


def _describe(study: Study, counts: pd.DataFrame) -> None:
    tables: dict[str, Callable[..., pd.DataFrame]] = {
        "table-5": descriptive.table_5,
        "table-6": descriptive.table_6,
        "table-7": descriptive.table_7,
        "table-8": descriptive.table_8,
        "step-4": descriptive.outcome,
    }
    for name, make in tables.items():
        try:
            study.tables[name] = make(counts, part=study.part)
        except SampleError as error:
            study.notes[name] = f"Not there, because {error}."


def _correlate(
    study: Study,
    group: str,
    samples: pd.DataFrame,
    method: Method,
    correction: Literal["none", "holm"],
) -> None:
    table, thrashed = _GROUPS[group], samples[samples["thrashed"]]
    try:
        found = correlation.hypotheses(
            thrashed, REFINED[group], method=method, correction=correction
        )
    except AnalysisError as error:
        study.notes[table] = f"Not there, because {error}."
        return
    if study.part is not None:
        figures = published(study.part, "correlations", group)
        found["r_published"] = [figures.get(name, float("nan")) for name in found["hypothesis"]]
    study.tables[table] = found
    study.notes[table] = (
        f"{len(thrashed)} of {len(samples)} retained samples thrashed and are in it; correlations "
        "say nothing of the others, whose TP is above what was tried."
    )


def _draw(study: Study, group: str, samples: pd.DataFrame, diagram: Diagram) -> None:
    name = f"figure-6-{group}"
    try:
        study.figures[name] = diagram(group, samples[samples["thrashed"]])
    except AnalysisError as error:
        study.notes[name] = f"Not there, because {error}."
