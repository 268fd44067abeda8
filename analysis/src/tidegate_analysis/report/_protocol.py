"""What the analysis protocol counted, which conditions were checked, and what went wrong."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pandas as pd

from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Paragraph, Part, Section, Table
from tidegate_analysis.report._view import BATCHSET, View, records

#: The names of the protocol's counts, as the study says them.
CHECKS: Final = {
    "executed": "executed, of what was planned",
    "missing_batches": "missing batches",
    "processor_configuration": "inconsistent processor configuration",
    "missed_executions": "missed batch executions",
    "other_executors": "other executors",
    "other_dbms_processes": "other DBMS processes",
    "zero_tps": "zero TPS",
    "connection_time_limit": "connection time limit",
    "abnormal_atpt": "abnormal ATPT",
    "not_steady": "no steady state",
    "unjudged_atpt": "ATPT not judged: too few repetitions",
    "transient_thrashing": "transient thrashing",
    "several_hosts": "batchsets of several hosts",
    "confounded_with_host": "cannot be told from the host",
    "faulty_executions": "dropped for a violation",
    "incomplete": "without all MPLs",
    "transient_thrashing_retained": "transient thrashing among what is left",
    "thrashing": "thrashed, of what was retained",
}
#: Levels whose plural is not made with an s.
_PLURALS: Final = {"batch": "batches"}


def tap(view: View) -> Section:
    """Return what each step of the thrashing analysis protocol counted, and thrashing points."""
    title = "Thrashing analysis protocol"
    counts = view.results.tap_counts(view.number)
    if counts.empty and view.points.empty:
        return Section(
            "tap", title,
            missing=f"the experiment was not analysed; `tidegate lab tap {view.number}` does it",
        )  # fmt: skip
    parts: list[Part] = []
    if counts.empty:
        parts.append(
            Paragraph(
                f"The store has thrashing points but not what the protocol counted: they are of an "
                f"older Tidegate. `tidegate lab tap {view.number}` applies the protocol again."
            )
        )
    else:
        latest = counts[counts["analysis"] == counts["analysis"].max()]
        parts += [_checks(latest), _steps(latest)]
    parts.append(_points(view))
    return Section("tap", title, parts)


def _checks(counts: pd.DataFrame) -> Table:
    """Return step 1, the study's Tables 5 to 7."""
    checks = counts[counts["step"].astype(str) == "1"].sort_values("number", kind="stable")
    rows = [
        (
            words.number(row["number"]),
            CHECKS.get(row["name"], row["name"]) + (f": {row['part']}" if row["part"] else ""),
            words.number(row["found"]),
            f"{words.number(row['checked'])} {_PLURALS.get(row['level'], row['level'] + 's')}",
            words.percent(row["found"] / row["checked"]) if row["checked"] else "–",
            words.number(row["batchsets"]),
        )
        for row in records(checks)
    ]
    return Table(
        "checks",
        "Step 1: sanity checks",
        ("check", "violation", "found", "looked at", "share", "in so many batchsets"),
        rows,
        "1 to 5 are of the whole experiment, 6 to 8 of executions, 9 of batchsets; these numbers "
        "are the study's. 10 and 11 are ours. 10 is of executions: by Little's law a transaction "
        "took longer in the mean than the warm-up, or than a fifth of the measured time. 11 is of "
        "batchsets. Where several hosts measured, the last lines say which factors cannot be told "
        "from them.",
    )


def _steps(counts: pd.DataFrame) -> Table:
    """Return steps 0 and 2 to 4, the study's Table 8: what is left after each."""
    rows = []
    for row in records(
        counts[counts["step"].astype(str) != "1"].sort_values("step", kind="stable")
    ):
        step, checked, found = str(row["step"]), row["checked"], row["found"]
        left = words.number(checked - found) if step.startswith(("2", "3")) else "–"
        what = CHECKS.get(row["name"], row["name"]) + (f", {row['part']}" if row["part"] else "")
        numbers = (words.number(found), words.number(checked), left)
        rows.append((step, what, str(row["level"]), *numbers))
    return Table(
        "steps",
        "Steps 2 to 4: what was dropped, and what thrashed",
        ("step", "what", "counted in", "found", "of", "left"),
        rows,
        "Step 0 is what was executed; step 4 finds the thrashing points.",
    )


def _points(view: View) -> Table:
    """Return the thrashing points, each with how certain it is."""
    labels = view.batchsets.set_index(BATCHSET)["label"].to_dict()
    points = view.points.sort_values(BATCHSET)
    certain = {number: _certainty(found) for number, found in view.posteriors.groupby("point")}
    rows = []
    for row in records(points):
        thrashes = not pd.isna(row["high"])
        caveats = "" if row["caveats"] in (None, "", "[]") else str(row["caveats"]).strip("[]")
        rows.append(
            (
                labels[row["run"], row["batchset"]],
                words.number(row["thrashing_point"]) if thrashes else "∞",
                _where(row),
                *certain.get(row["id"], ("–", "–", "–", "–")),
                caveats.replace('"', ""),
            )
        )
    rules = words.enumeration(sorted({str(rule) for rule in points["rule"]}))
    protocols = words.enumeration(sorted({str(name) for name in points["protocol"]}))
    return Table(
        "tap-points",
        "Thrashing points of the batchsets that were retained",
        (
            "batchset", "TP", "where", "P(none)", "most probable",
            f"{words.percent(CREDIBLE)} credible set", "noise between executions", "against it",
        ),
        rows,
        f"Protocol {protocols}, rule {rules}. {_about(view)}",
    )  # fmt: skip


#: The probability of the outcomes that are told of.
CREDIBLE: Final = 0.9


def _certainty(outcomes: pd.DataFrame) -> tuple[str, str, str, str]:
    """Return P(none), the most probable outcome, the credible set and the noise, in words.

    - outcomes: Those of one thrashing point.
    """
    outcomes = outcomes.sort_values("outcome")
    none = float(outcomes.loc[outcomes["high"].isna(), "probability"].sum())
    order = outcomes.sort_values("probability", ascending=False, kind="stable")
    before = order["probability"].cumsum() - order["probability"]
    # Probabilities are counts of draws: their sums are exact to a rounding error.
    chosen = outcomes.loc[order.index[before < CREDIBLE - 1e-9].sort_values()]
    names = ["none" if pd.isna(mpl) else words.number(mpl) for mpl in chosen["thrashing_point"]]
    best = records(order)[0]
    name = "none" if pd.isna(best["thrashing_point"]) else words.number(best["thrashing_point"])
    noise = words.percent(float(best["noise"]))
    return (
        words.percent(none),
        f"{name} ({words.percent(float(best['probability']))})",
        ", ".join(names),
        noise if best["noise_measured"] else f"{noise}, not measured",
    )


def _about(view: View) -> str:
    """Return what the posteriors are, or why there are none."""
    found = view.posteriors
    if found.empty:
        return (
            "How certain they are is not known: they were found before schema version 7. "
            f"`tidegate lab tap {view.number}` finds them again."
        )
    models = words.enumeration(sorted({str(model) for model in found["model"]}))
    draws = words.enumeration(sorted({words.number(draws) for draws in found["draws"]}))
    seeds = words.enumeration(sorted({str(seed) for seed in found["seed"]}))
    text = (
        "The probabilities are those of the same rule applied to the true throughputs, given the "
        f"executions ({models}, {draws} draws from seed {seeds})."
    )
    if not found["noise_measured"].all():
        text += (
            " Where noise was not measured, each level has one execution: the noise is by its "
            "prior and the roughness of the curve, and the probabilities are conditional on that."
        )
    return text


def _where(row: Mapping[str, Any]) -> str:
    """Return the interval of a thrashing point in words; `low` is 0 where it has no beginning."""
    low, high = words.number(row["low"]), words.number(row["high"])
    if pd.isna(row["high"]):
        return f"censored at {low}"
    if row["low"] == 0:
        return f"fallen at {high}, from the lowest level: left-censored"
    return f"held at {low}, fallen at {high}"


def conditions(view: View) -> Section:
    """Return which consistency conditions of the workloads were checked, and whether they hold."""
    title = "Consistency conditions"
    seen = view.results.conditions(view.number)
    if seen.empty:
        return Section("conditions", title, missing="no condition was checked")
    groups = seen.assign(broken=~seen["holds"].astype(bool)).groupby("condition")["broken"]
    rows = [
        (str(name), words.number(len(broken)), words.number(int(broken.sum())))
        for name, broken in groups
    ]
    parts: list[Part] = [
        Table("conditions", "Consistency conditions", ("condition", "checked", "violated"), rows)
    ]
    violations = seen[~seen["holds"].astype(bool)]["violation"].dropna().astype(str).unique()
    if len(violations):
        parts.append(Paragraph("Violations: " + words.enumeration(list(violations), 10) + "."))
    return Section("conditions", title, parts)


def troubles(view: View) -> Section:
    """Return errors, conflicts, failures and other things that went wrong."""
    title = "Troubles"
    parts: list[Part] = []
    seen = view.results.troubles(view.number)
    if len(seen):
        seen = seen.merge(view.batchsets[[*BATCHSET, "subject"]], on=BATCHSET)
        table = seen.groupby(["subject", "trouble", "what"]).agg(
            times=("times", "sum"), executions=("execution", "nunique"),
            low=("mpl", "min"), high=("mpl", "max"),
        )  # fmt: skip
        table = table.sort_values("times", ascending=False).reset_index()
        rows = [
            (
                row["subject"], row["trouble"], str(row["what"]), words.number(row["times"]),
                words.number(row["executions"]), words.between(row["low"], row["high"]),
            )
            for row in records(table)
        ]  # fmt: skip
        header = ("subject", "kind", "what", "times", "executions", "MPLs")
        note = "The most frequent first."
        parts.append(Table("troubles", "What the clients met", header, rows, note))
    attempts = view.results.attempts(view.number)
    failed = attempts[attempts["outcome"] != "measured"]
    if len(failed):
        reasons = failed.assign(reason=failed["reason"].fillna("cut off")).groupby("reason").size()
        reasons = reasons.sort_values(ascending=False)
        counts = [(str(reason), words.number(times)) for reason, times in reasons.items()]
        parts.append(
            Table("failures", "Attempts that came to nothing", ("reason", "times"), counts)
        )
    if not parts:
        return Section(
            "troubles", title, missing="there was none: no error, no conflict, no failed attempt"
        )
    return Section("troubles", title, parts)


PARTS: Final[Sequence[Any]] = (tap, conditions, troubles)
