"""What ran, where, when, with which versions and seeds, and what is missing."""

from typing import Any, Final

import pandas as pd

from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Paragraph, Part, Section, Table
from tidegate_analysis.report._view import BATCHSET, View, records

MOST: Final = 12


def header(view: View) -> Section:
    """Return what ran and what is missing."""
    about, done = view.about, view.measured
    rows = [
        ("experiment", f"{view.number}: {view.name}, scenario {view.scenario}"),
        ("preset", str(about.get("preset") or "none")),
        ("subjects", _versions(view)),
        ("machine", _machines(view)),
        ("Tidegate", _distinct(done, ["tidegate", "build"])),
        ("seed", _whole(about.get("seed"))),
        ("planned", words.moment(float(about["began_us"]))),
        ("measured", _when(done)),
        ("design", _design(view)),
        ("an execution", _timing(about)),
    ]
    parts: list[Part] = [
        Table(
            "about",
            "The experiment, its machine and versions",
            ("", ""),
            [row for row in rows if row[1]],
        )
    ]
    parts += [Paragraph(text) for text in missing(view)]
    return Section("about", "What ran", parts)


def _whole(value: Any) -> str:
    return "–" if value is None or pd.isna(value) else str(int(value))


def _distinct(table: pd.DataFrame, columns: list[str]) -> str:
    texts = table[columns].astype(str).agg(" ".join, axis=1).drop_duplicates()
    return words.enumeration(sorted(texts), MOST) if len(texts) else "–"


def _versions(view: View) -> str:
    """Return each subject with the versions that were seen."""
    if view.measured.empty:
        return str(view.about.get("subjects") or "–")
    seen = view.measured.drop_duplicates(["subject", "version"])
    versions = [f"{row.subject} ({row.version})" for row in seen.itertuples()]
    return words.enumeration(sorted(versions), MOST)


def _machines(view: View) -> str:
    table = view.measured if len(view.measured) else pd.DataFrame([dict(view.about)])
    seen = table.drop_duplicates(["cpu", "machine_processors", "memory_mib", "kernel"])
    return words.enumeration(
        [
            f"{row['cpu']}, {words.count(int(row['machine_processors']), 'processor')}, "
            f"{words.number(float(row['memory_mib']) / 1024)} GiB, kernel {row['kernel']}"
            for row in records(seen.head(MOST))
        ]
    )


def _when(done: pd.DataFrame) -> str:
    if done.empty:
        return "nothing yet"
    first, last = float(done["began_us"].min()), float(done["ended_us"].max())
    return f"{words.moment(first)} to {words.moment(last)}"


def _design(view: View) -> str:
    table = view.executions
    batchsets = len(table.drop_duplicates(BATCHSET))
    batches = len(table.drop_duplicates([*BATCHSET, "mpl"]))
    return (
        f"{words.count(table['run'].nunique(), 'run')}, {words.count(batchsets, 'batchset')}, "
        f"{words.count(batches, 'batch', 'batches')}, {words.count(len(table), 'execution')}, "
        f"of which {len(view.measured):,} are done"
    )


def _timing(about: Any) -> str:
    ctl, warmup = words.duration(about["ctl_s"]), words.duration(about["warmup_s"])
    times = words.count(int(about["repetitions"]), "time")
    return f"{ctl} measured after {warmup} of warm-up, each batch {times}"


def missing(view: View) -> list[str]:
    """Return sentences that say what the experiment does not have."""
    said = []
    planned, done = len(view.executions), len(view.measured)
    if planned == 0:
        return ["The experiment has no execution: nothing was planned."]
    if done == 0:
        return [
            f"None of {words.count(planned, 'execution')} was measured, so there is nothing to "
            f"report: `tidegate lab resume {view.number}` runs them."
        ]
    if done < planned:
        said.append(
            f"{words.count(planned - done, 'execution')} of {planned:,} "
            f"{'is' if planned - done == 1 else 'are'} missing; "
            f"`tidegate lab resume {view.number}` tries them."
        )
    failures = int(view.executions["failures"].sum())
    if failures:
        said.append(
            f"{words.count(failures, 'attempt')} failed before an execution was measured or given "
            "up; reasons are under Troubles."
        )
    said += _of_hosts(view)
    if int(view.curves["n"].max() if len(view.curves) else 0) == 1:
        said.append(
            "Each level was measured once. How much a repetition would differ is not known, so "
            "this sample cannot tell a small effect from noise."
        )
    return said


def _of_hosts(view: View) -> list[str]:
    """Return who measured, where several hosts did, and what cannot be told from them."""
    hosts = sorted(view.measured["host"].dropna().unique())
    if len(hosts) < 2:
        return []
    said = [f"{len(hosts)} hosts measured: {words.enumeration(hosts)}."]
    of_batchset = view.measured.groupby(BATCHSET)["host"].nunique()
    if several := int((of_batchset > 1).sum()):
        said.append(
            f"Several hosts measured {words.count(several, 'batchset')}: a difference between its "
            "levels may be one between hosts."
        )
    counts = view.results.tap_counts(view.number)
    if len(counts):
        latest = counts[counts["analysis"] == counts["analysis"].max()]
        found = latest[(latest["name"] == "confounded_with_host") & (latest["found"] > 0)]
        said += [
            f"The factor `{factor}` cannot be told from the hosts: some of its levels were "
            "measured on other hosts than the rest, so an effect of it may be theirs."
            for factor in found["part"]
        ]
    return said
