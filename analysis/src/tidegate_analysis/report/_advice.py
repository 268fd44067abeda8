"""Advice in plain words, each sentence with the numbers behind it.

A sentence is a claim only where the sample can bear it: enough repetitions or pairs, and a test or
an interval that excludes the opposite. Else the sentence says that the sample cannot show it, and
why. `RULES` says so to the reader in the same words.

What it cannot know: batchsets of one DBMS are not independent of each other. What a sentence says
is of the DBMSs, settings and machine that were measured.
"""

from typing import Final

from tidegate_analysis.report import _words as words
from tidegate_analysis.report._factors import factors, thrashing
from tidegate_analysis.report._inference import (
    FEWEST_FREE,
    FEWEST_PAIRS,
    FEWEST_REPETITIONS,
    FEWEST_SHARES,
)
from tidegate_analysis.report._levels import levels
from tidegate_analysis.report._parts import Advice, Claim, Section, Sentence
from tidegate_analysis.report._protocol import CHECKS
from tidegate_analysis.report._treatments import priority, settings
from tidegate_analysis.report._view import NOTHING, View

RULES: Final = (
    f"A level needs {FEWEST_REPETITIONS} repetitions before a sentence is made of a single "
    f"batchset, a limit for many {FEWEST_PAIRS} batchsets with all levels, a share {FEWEST_SHARES} "
    f"batchsets, a ratio of processors, keys or SFs {FEWEST_FREE} degrees of freedom among runs.",
    "What befell a run befell all its batchsets, so a run is one value: the mean over its "
    "batchsets. Runs of one DBMS that differ in processors or keys only are a block; SF differs "
    "within runs, and there each run is a block, with the least SF and the greatest. Ratios are by "
    "a line through the blocks of one DBMS, in logarithms of processors, with an intercept for "
    "each block.",
    "Thrashing points are compared by permutation within the blocks of all DBMSs together, where "
    "these are enough to show anything: what is said is of their mean, and need not hold for each. "
    "A batchset's point rises or falls as the slope of its own line does; where most go one way "
    "and the mean the other, nothing is claimed.",
    "Shorter transactions do less each, so they are compared by rows a second.",
    "The best throughput of a batchset is the largest mean of its levels, measured by the "
    "repetitions that picked it: it is a little too large, and the more so the more levels are "
    "left.",
    "Where a sentence has a p-value, it is a claim when that is below 0.05. p-values are adjusted "
    "(Holm) for the number of all that belong to this experiment, those about what moves the "
    "thrashing point included; the 95 % intervals beside them are not adjusted for that.",
    "What to set, what a single batchset gains and which setting is best are claimed where "
    "intervals exclude the opposite. They are widened (Bonferroni) for the number of levels, or "
    "of pairs of settings, but not for there being several such sentences: of twenty, one may be "
    "chance.",
    "“Within 5 % of the best” is claimed where the intervals of all other levels' ratios to it end "
    "below 1/0.95.",
    "A gain is that of a level chosen without what measures it, so what was best by luck gains "
    "nothing: for a batchset by all repetitions but one, in turn, with a bootstrap of all of that "
    "as its interval; for one limit of many batchsets by the batchsets of all other runs, or by "
    "all others where there is one run, with p and interval widened (Bonferroni) for the number of "
    "levels.",
    "A limit for many batchsets is of those that have throughput at every level. The others, as "
    "far as they collapsed, would gain more.",
    "DBMSs are compared over the batchsets that all of them have, each with its own isolation and "
    "settings, by permutation among the runs that differ in the DBMS only.",
    "Ratios are of geometric means. Batchsets of one DBMS are not independent of each other, so an "
    "interval over pairs of them may be too narrow.",
    "What holds here holds for this machine, these versions, settings and workloads.",
)


def advice(view: View) -> Section:
    """Return what a database administrator can take from the experiment."""
    title = "Advice"
    if view.done.empty:
        return Section("advice", title, missing=NOTHING)
    warnings = _warnings(view)
    sentences: list[Sentence | Claim] = [
        *levels(view),
        *settings(view),
        *priority(view),
        *factors(view),
        *thrashing(view),
    ]
    if not sentences:
        sentences.append(
            Sentence(
                "this experiment",
                f"Scenario {view.scenario} with these levels varies nothing that a sentence "
                "could be made of; its figures are below.",
                "not shown",
                "curves",
            )
        )
    return Section("advice", title, [Advice([*warnings, *sentences], RULES)])


# Against the sample itself.


def _warnings(view: View) -> list[Sentence]:
    done = view.done
    said = []

    def warn(about: str, rows: int, text: str, anchor: str = "about") -> None:
        if rows:
            said.append(Sentence(about, text, "warning", anchor, {"executions": f"{rows:,}"}))

    formula = int((done["subject"] == "simulated").sum())
    warn("simulated", formula, "The subject `simulated` is a formula: nothing here is about a "
         "database.")  # fmt: skip
    broken = view.results.conditions(view.number)
    violated = int((~broken["holds"].astype(bool)).sum()) if len(broken) else 0
    warn(
        "consistency", violated,
        f"{words.count(violated, 'consistency condition')} did not hold: throughput of a database "
        "that breaks its rules is not to be compared.", "conditions",
    )  # fmt: skip
    # SQLite works in the clients' threads: their share is the database's as well.
    is_apart = ~done["subject"].str.startswith("sqlite")
    busy = int((is_apart & (done["client_core_share"] > 0.9)).sum())
    warn(
        "load generator", busy,
        f"In {words.count(busy, 'execution')} the load generator took more than 90 % of a "
        "processor core: throughput there may be its limit and not the database's.",
    )  # fmt: skip
    cut_off = int((done["stragglers"] > 0.05 * done["transactions"]).sum())
    warn(
        "stragglers", cut_off,
        f"In {words.count(cut_off, 'execution')} more than 5 % as many transactions as had ended "
        "were still running at the end: response times and ATPT there are of the faster ones.",
    )  # fmt: skip
    others = int((done["other_executors"] > 0).sum())
    warn(
        "other experiments", others,
        f"{words.count(others, 'execution')} ran while another experiment was running on the "
        "machine.",
    )  # fmt: skip
    lost = int((done["connection_losses"] > 0).sum())
    warn("lost connections", lost, f"In {words.count(lost, 'execution')} clients lost their "
         "connection, so there were fewer clients than the level says.")  # fmt: skip
    planned = done["processors_planned"]
    other = int(((planned > 0) & (done["processors"] != planned)).sum())
    warn(
        "processors", other,
        f"In {words.count(other, 'execution')} the subject was seen to have another number of "
        "processors than was planned.",
    )  # fmt: skip
    machine = done["machine_processors"].min()
    all_given = done["processors"] >= machine
    if words.shares_all(done["processors"], machine):
        warn("shared processors", int(all_given.sum()), words.SHARED_PROCESSORS)
    kept = view.points["caveats"].astype(str).str.contains("not-steady")
    warn(
        "no steady state", int(kept.sum()),
        f"In {words.count(int(kept.sum()), 'batchset')} executions that are no steady state were "
        "kept, because that was asked for (`--keep-unsteady`): a transaction took longer in the "
        "mean than the warm-up or a fifth of the measured time, so that throughput there is of "
        "the transactions that happened to end first.", "tap-points",
    )  # fmt: skip
    if len(view.dropped):
        said.append(_dropped(view))
    return said


def _dropped(view: View) -> Sentence:
    """Return how many executions nothing here is made of, and why."""
    reasons = view.dropped.groupby("name")["execution"].nunique().sort_values(ascending=False)
    why = {CHECKS.get(str(name), str(name)): f"{n:,}" for name, n in reasons.items()}
    n, of = view.dropped["execution"].nunique(), len(view.measured)
    text = (
        f"The analysis protocol dropped {words.count(n, 'execution')} of {of:,} "
        f"({words.enumeration([f'{name} {times}' for name, times in why.items()])}): curves, "
        "advice, the law and gains are made of the others, which may lack the levels where things "
        "went wrong."
    )
    return Sentence("dropped executions", text, "warning", "steps", why)
