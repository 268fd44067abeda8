"""The study's descriptive tables: 3, and 5 to 8, and what its Step 4 found.

All of them are frames with the numbers as numbers. Where `published` names a part of the study, a
second set of columns that end in ``_published`` has its figures; NaN where it printed none.

References
----------
Suh, Snodgrass, Currim (2017), Sections 6.5, 7.1 and 9.1.

"""

from functools import partial
from typing import Final

import numpy as np
import pandas as pd

from tidegate_analysis.errors import SampleError
from tidegate_analysis.published import Part
from tidegate_analysis.published import tables as published

#: The checks in the study's words, with its number and its table; the tenth is ours.
CHECKS: Final = {
    "missing_batches": (1, 5, "missing batches"),
    "processor_configuration": (2, 5, "inconsistent processor configuration"),
    "missed_executions": (3, 5, "missed batch executions"),
    "other_executors": (4, 5, "other executors"),
    "other_dbms_processes": (5, 5, "other DBMS processes"),
    "zero_tps": (6, 6, "zero TPS at the starting MPL"),
    "connection_time_limit": (7, 6, "connection time limit violations"),
    "abnormal_atpt": (8, 6, "abnormal ATPT"),
    "transient_thrashing": (9, 7, "transient thrashing"),
    "not_steady": (10, 6, "no steady state"),
}

#: The steps of the protocol that drop something, by the name of their count.
_DROPPING: Final = {
    "2": "faulty_executions",
    "3-(i)": "incomplete",
    "3-(ii)": "transient_thrashing",
    "3-(iii)": "transient_thrashing_retained",
}

_HOUR_US: Final = 3.6e9


def table_3(executions: pd.DataFrame, *, part: Part | None = None) -> pd.DataFrame:
    """Return what was executed: runs, batchsets, batches, executions, and their hours.

    Only what has at least one execution that is done is counted. Hours are the sum over executions
    from the beginning of the attempt to when its measurement was written; making tables and pauses
    are not in it.

    - executions: `Results.executions` of one experiment.
    """
    done = executions[executions["attempt"].notna()]
    run, batchset = ["experiment", "run"], ["experiment", "run", "batchset"]
    rows = {
        "runs": ("experiment runs", len(done.drop_duplicates(run))),
        "batchsets": ("batchset instances", len(done.drop_duplicates(batchset))),
        "batches": ("batch instances", len(done.drop_duplicates([*batchset, "mpl"]))),
        "executions": ("batch executions", len(done)),
        "hours": ("total hours", float((done["ended_us"] - done["began_us"]).sum() / _HOUR_US)),
    }
    table = pd.DataFrame(rows.values(), columns=["what", "ours"])
    table["ours"] = table["ours"].astype("float64")
    if part is not None:
        figures = published(part)
        table["published"] = [figures[name] for name in rows]
    return table


def checks(counts: pd.DataFrame, table: int, *, part: Part | None = None) -> pd.DataFrame:
    """Return the checks of Step 1 that the study has in one of its Tables 5 to 7.

    - counts: `Results.tap_counts` of one experiment; the latest analysis is taken.
    - table: 5, 6 or 7.

    Returns the columns number, check, violations, checked, percent, batchsets (in how many
    violations are).
    """
    counts = latest(counts)
    counts = counts[counts["step"] == "1"].set_index("name")
    names = [name for name, (_, of, _) in CHECKS.items() if of == table and name in counts.index]
    found = counts.loc[names]
    rows = pd.DataFrame(
        {
            "number": [CHECKS[name][0] for name in names],
            "check": [CHECKS[name][2] for name in names],
            "violations": found["found"].to_numpy(),
            "checked": found["checked"].to_numpy(),
            "percent": _percent(found["found"], found["checked"]),
            "batchsets": found["batchsets"].to_numpy(),
        }
    )
    figures = published(part, "checks")
    if part is not None:
        rows["violations_published"] = [figures.get(name, np.nan) for name in names]
    if figures:
        of = published(part)["batchsets" if table == 7 else "executions"]
        rows["percent_published"] = 100 * rows["violations_published"] / of
    return rows


#: The checks of the experiment as a whole, of batch executions (and our tenth), of batchsets.
table_5, table_6, table_7 = (partial(checks, table=number) for number in (5, 6, 7))


def table_8(counts: pd.DataFrame, *, part: Part | None = None) -> pd.DataFrame:
    """Return how many batch executions and batchset instances each step left.

    - counts: `Results.tap_counts` of one experiment; the latest analysis is taken.

    Returns the columns after (a step), executions, executions_percent (dropped in it), batchsets,
    batchsets_percent.
    """
    counts = latest(counts)
    found = {
        (str(step), str(name), str(level)): (int(checked), int(lost))
        for step, name, level, checked, lost in counts[
            ["step", "name", "level", "checked", "found"]
        ].itertuples(index=False)
    }
    rows = [_left("start", found, "2", lost=False)]
    rows += [_left(step, found, step) for step in _DROPPING]
    table = pd.DataFrame(rows)
    if part is not None:
        steps = published(part, "steps")
        for level in ("executions", "batchsets"):
            figures = [steps.get(step, {}).get(level, np.nan) for step in table["after"]]
            table[f"{level}_published"] = figures
    return table


def _left(
    after: str, counts: dict[tuple[str, str, str], tuple[int, int]], step: str, *, lost: bool = True
) -> dict[str, object]:
    """Return what was left after a step, or was there before it."""
    row: dict[str, object] = {"after": after}
    for level in ("execution", "batchset"):
        checked, found = counts[step, _DROPPING[step], level]
        found = found if lost else 0
        row[f"{level}s"] = checked - found
        row[f"{level}s_percent"] = 100 * found / checked if checked else 0.0
    return row


def outcome(counts: pd.DataFrame, *, part: Part | None = None) -> pd.DataFrame:
    """Return Step 4: of how many retained batchset instances a thrashing point was found.

    - counts: `Results.tap_counts` of one experiment; the latest analysis is taken.
    - part: The study's part whose figures stand beside. It prints what its groups retained only as
      a sum.

    Returns the columns group, retained, thrashed, percent; the last row is all groups.
    """
    counts = latest(counts)
    found = counts[counts["step"] == "4"]
    rows = pd.DataFrame(
        {
            "group": [*found["part"], "all"],
            "retained": [*found["checked"], found["checked"].sum()],
            "thrashed": [*found["found"], found["found"].sum()],
        }
    )
    rows["percent"] = _percent(rows["thrashed"], rows["retained"])
    if part is not None:
        figures = published(part, "thrashing")
        retained = published(part, "steps")["3-(iii)"]["batchsets"]
        figures["all"] = sum(figures.values())
        rows["thrashed_published"] = [figures.get(group, np.nan) for group in rows["group"]]
        rows["retained_published"] = np.where(rows["group"] == "all", retained, np.nan)
    return rows


def latest(counts: pd.DataFrame) -> pd.DataFrame:
    """Return the counts of the latest analysis of the only experiment there is.

    Raises `SampleError`: there is no count, or there are counts of several experiments.
    """
    if counts.empty:
        raise SampleError(
            "no counts of the analysis protocol are there",
            "apply it with `tidegate lab tap EXPERIMENT`; a store of schema version 1 has none",
        )
    experiments = counts["experiment"].unique()
    if len(experiments) > 1:
        raise SampleError(
            f"counts of experiments {', '.join(map(str, experiments))} are mixed",
            "give those of one experiment, since the study keeps its two apart",
        )
    found: pd.DataFrame = counts[counts["analysis"] == counts["analysis"].max()]
    return found


def _percent(part: pd.Series, whole: pd.Series) -> np.ndarray:
    parts, wholes = part.to_numpy(dtype="float64"), whole.to_numpy(dtype="float64")
    return np.asarray(np.divide(100 * parts, wholes, out=np.zeros_like(parts), where=wholes > 0))
