"""Results in memory, with the columns of docs/results.md, and how tests read a report of them."""

import json
from collections.abc import Mapping
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tidegate_analysis import report
from tidegate_analysis.report._advice import advice
from tidegate_analysis.report._parts import adjusted_claims
from tidegate_analysis.report._view import View
from tidegate_analysis.store import TABLES

HILL = {1: 300.0, 4: 900.0, 16: 1_000.0, 64: 990.0, 256: 400.0}
KEY = ["experiment", "run", "batchset", "mpl", "repetition", "execution"]
BATCH = KEY[:4]
#: Columns that no part of a report asks for.
_NOT_ASKED = ("host", "found_us", "atpt_ms")
COLUMNS: Mapping[str, list[str]] = {
    {"thrashing_points": "points", "tap_drops": "drops"}.get(name, name): [
        column for column in table.columns if column not in _NOT_ASKED
    ]
    for name, table in TABLES.items()
}

#: Whose rows are those of the latest analysis.
_LATEST = {
    "latest_points": "points",
    "latest_drops": "drops",
    "latest_posteriors": "thrashing_posteriors",
}


class StandIn:
    """What the report asks of results, answered from frames."""

    def __init__(self, about: Mapping[str, Any], executions: pd.DataFrame) -> None:
        self.about = dict(about)
        self.table = executions
        self.frames = {name: pd.DataFrame(columns=columns) for name, columns in COLUMNS.items()}

    def __getattr__(self, name: str) -> Any:
        frames = self.__dict__.get("frames", {})
        name = _LATEST.get(name, name)
        if name not in frames:
            raise AttributeError(name)

        def rows(
            experiment: int | None = None, *, run: int | None = None, batchset: int | None = None
        ) -> pd.DataFrame:
            table = frames[name]
            for column, value in (("run", run), ("batchset", batchset)):
                if value is not None:
                    table = table[table[column] == value]
            return table

        return rows

    def experiment(self, experiment: int | None = None) -> pd.DataFrame:
        wanted = experiment in (None, self.about["experiment"])
        return pd.DataFrame([self.about] if wanted else [])

    def executions(self, experiment: int | None = None, **_: Any) -> pd.DataFrame:
        return self.table

    def curves(
        self, experiment: int | None = None, *, executions: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        table = self.table if executions is None else executions
        done = table[table["tps"].notna()]
        table = done.groupby(BATCH, as_index=False).agg(
            subject=("subject", "first"), n=("tps", "size"), tps=("tps", "mean"),
            tps_sd=("tps", "std"), mean_ms=("mean_ms", "mean"), p50_ms=("p50_ms", "mean"),
            p95_ms=("p95_ms", "mean"), p99_ms=("p99_ms", "mean"),
        )  # fmt: skip
        half = 2.0 * table["tps_sd"]
        table = table.assign(tps_low=table["tps"] - half, tps_high=table["tps"] + half)
        points = self.frames["points"]
        known = points["thrashing_point"].astype("float64")
        points = points.assign(TP=known.where(points["high"].notna(), np.inf))
        return table.merge(points[[*BATCH[:3], "TP"]], on=BATCH[:3], how="left")


def about(scenario: str = "characterise", name: str = "made", **changes: Any) -> dict[str, Any]:
    return {
        "experiment": 1, "name": name, "scenario": scenario, "preset": "", "subjects": "embedded",
        "seed": 7, "began_us": 1_700_000_000_000_000, "cpu": "A <b>processor</b>",
        "machine_processors": 2, "memory_mib": 8192, "kernel": "6.1", "tidegate": "0.1.0",
        "build": "abc", "file": "", "ctl_s": 2.0, "warmup_s": 1.0, "pause_s": 0.0,
        "connect_limit_s": 60.0, "interval_s": 1.0, "repetitions": 3,
    } | changes  # fmt: skip


def execution(number: int, tps: float, **changes: Any) -> dict[str, Any]:
    """Return a row of executions; `treatment` and `values` are given as they are."""
    values = {"kind": "tpcb", "scale": 10}
    treatment = {"admission": {"mpl": "clients"}, "arrivals": "closed", "priority": None,
                 "buffer": None, "exchange": None, "aging": None}  # fmt: skip
    row = {
        "experiment": 1, "run": 1, "batchset": 1, "mpl": 1, "repetition": 1, "execution": number,
        "host": None, "subject": "embedded", "processors_planned": 0, "primary_key": 1,
        "isolation": "", "settings_planned": "{}", "workload": "tpcb", "attempts": 1, "failures": 0,
        "attempt": float(number), "seed": number, "began_us": 1.7e15 + 1e7 * number,
        "ended_us": 1.7e15 + 1e7 * number + 5e6, "version": "1", "settings": "[]",
        "processors": 2.0, "cpu": "A <b>processor</b>", "machine_processors": 2.0,
        "memory_mib": 8192.0, "kernel": "6.1", "tidegate": "0.1.0", "build": "abc",
        "seconds": 2.0, "clients": 100.0, "transactions": 2 * tps, "tps": tps,
        "mean_ms": 4.0, "p50_ms": 3.0, "p95_ms": 9.0, "p99_ms": 20.0, "max_ms": 50.0,
        "stragglers": 0.0, "overdue": 0.0, "connection_losses": 0.0, "client_core_share": 0.2,
        "other_executors": 0.0,
    }  # fmt: skip
    row |= {key: value for key, value in changes.items() if key not in ("values", "treatment")}
    values |= changes.get("values", {})
    row["workload_values"] = json.dumps(values)
    row |= {kind: values.get(kind) for kind in ("reads", "updates", "changes", "joins")}
    row["treatment"] = json.dumps(treatment | changes.get("treatment", {}), separators=(",", ":"))
    return row


def curve(tps: Mapping[int, float], repetitions: int = 3, noise: float = 0.01, **changes: Any
          ) -> StandIn:  # fmt: skip
    """Return an experiment of one batchset with these throughputs, by MPL."""
    rng = np.random.default_rng(1)
    rows = []
    for mpl, mean in tps.items():
        for repetition in range(1, repetitions + 1):
            seen = mean * np.exp(noise * rng.standard_normal())
            rows.append(execution(len(rows) + 1, seen, mpl=mpl, repetition=repetition, **changes))
    return with_intervals(StandIn(about(), pd.DataFrame(rows)))


def with_intervals(made: StandIn) -> StandIn:
    """Add two intervals to each execution, with histograms."""
    keys = made.table[KEY]
    intervals, histograms = [], []
    for number in (1, 2):
        tps = made.table["tps"].fillna(0)
        intervals.append(keys.assign(interval=number, until_s=float(number), transactions=tps,
                                     mean_ms=4.0, p99_ms=20.0))  # fmt: skip
        histograms += [
            keys.assign(interval=number, latency_us=latency, transactions=tps / 2)
            for latency in (2_000, 6_000)
        ]
    made.frames["intervals"] = pd.concat(intervals, ignore_index=True)
    made.frames["histograms"] = pd.concat(histograms, ignore_index=True)
    return made


def design(
    effect: Mapping[str, float],
    *,
    noise: float = 0.02,
    subjects: tuple[str, ...] = ("embedded",),
    processors: tuple[int, ...] = (1, 2),
    of_run: float = 0.0,
    seed: int = 2,
) -> StandIn:
    """Return a thrash experiment: processors × keys × 4 SFs × 4 ROSEs, four MPLs.

    Each factor multiplies throughput by its effect: `numProcs` with each doubling, `PK`, `sf`. Each
    run has noise of its own by `of_run`. Points are in proportion to processors.
    """
    rng = np.random.default_rng(seed)
    rows, points, run, place = [], [], 0, 0
    for subject in subjects:
        for given, key in product(processors, (1, 0)):
            run += 1
            befell = np.exp(of_run * rng.standard_normal())
            for batchset in range(1, 17):
                sf, rose = (0.25, 0.5, 0.75, 1.0)[(batchset - 1) // 4], 25 * (batchset % 4 + 1)
                times = effect.get("numProcs", 1.0) ** np.log2(given)
                times *= effect.get("PK", 1.0) ** key * effect.get("sf", 1.0) ** (sf < 1)
                for mpl, shape in {50: 0.8, 100: 1.0, 200: 0.5, 400: 0.3}.items():
                    place += 1
                    tps = 500 * befell * shape * times * np.exp(noise * rng.standard_normal())
                    rows.append(
                        execution(
                            place, tps, run=run, batchset=batchset, mpl=mpl, subject=subject,
                            processors_planned=given, processors=float(given), primary_key=key,
                            workload="thrash",
                            values={"kind": "thrash", "updates": 1, "reads": 0, "sf": sf,
                                    "rose": rose},
                        )
                    )  # fmt: skip
                low = 100 * given
                points.append((1, run, batchset, len(points), 1, "tap v2", "equation-1 v1", low,
                               low, 2 * low, "[]"))  # fmt: skip
    made = StandIn(about("thrash", repetitions=1), pd.DataFrame(rows))
    made.frames["points"] = pd.DataFrame(points, columns=COLUMNS["points"])
    return made


def controlled(name: str = "autotuning-sensitivity-c") -> StandIn:
    """Return a switch experiment: two controllers, two limits to start with."""
    rows, limits = [], []
    for batchset, c in ((1, 0.1), (2, 0.9)):
        control = f"study-hill-climbing:c={c}"
        for mpl in (4, 64):
            number = len(rows) + 1
            rows.append(
                execution(
                    number, 100.0 / c, batchset=batchset, mpl=mpl, repetition=1,
                    treatment={"admission": {"mpl": "control", "clients": 100, "control": control},
                               "exchange": {"Workload": {"kind": "tpcb"}}},
                )
            )  # fmt: skip
            limits += [
                (1, 1, batchset, mpl, 1, number, int(at), at, 1.0, mpl, 20, "why", 90.0, 9.0)
                for at in (1.0, 2.0)
            ]
    made = with_intervals(StandIn(about("switch", name), pd.DataFrame(rows)))
    made.frames["limits"] = pd.DataFrame(limits, columns=COLUMNS["limits"])
    return made


def priority(**inside: bool) -> StandIn:
    """Return a priority experiment: limits 5 and 100, with and without, three repetitions.

    - inside: Whether the high class goes first also at these places inside the database.
    """
    rows, classes = [], []
    for batchset, is_given in ((1, True), (2, False)):
        for mpl, tps in ((5, 97.0), (100, 100.0)):
            for repetition in (1, 2, 3):
                number = len(rows) + 1
                rows.append(
                    execution(
                        number, tps + repetition / 10, batchset=batchset, mpl=mpl,
                        repetition=repetition,
                        treatment={"admission": {"mpl": "limit", "clients": 100},
                                   "priority": {"high_percent": 10.0, "is_given": is_given,
                                                **inside}},
                    )
                )  # fmt: skip
                high, normal = (10.0, 120.0) if is_given else (100.0, 100.0)
                key = (1, 1, batchset, mpl, repetition, number)
                classes.append((*key, "high", 10, high, high, high, high, high))
                classes.append((*key, "normal", 90, normal, normal, normal, normal, normal))
    made = with_intervals(
        StandIn(about("priority", "scheduling-figure-11-open"), pd.DataFrame(rows))
    )
    made.frames["classes"] = pd.DataFrame(classes, columns=COLUMNS["classes"])
    return made


def deteriorating() -> StandIn:
    """Return a deteriorate experiment: two splits, one level, three looks at a tree."""
    rows, trees = [], []
    for batchset, split, last in ((1, "half", 0.5), (2, "adaptive", 0.9)):
        rows.append(
            execution(batchset, 100.0 * last, batchset=batchset, mpl=20,
                      treatment={"aging": {"split": split}, "buffer": "2MB"})
        )  # fmt: skip
        for look, fill in ((1, 0.93), (2, 0.7), (3, last)):
            fills = json.dumps([fill] * 40) if look != 2 else None
            trees.append((1, 1, batchset, 20, 1, batchset, look, "orders", float(look), 40, 400,
                          fill, 50 * look, 20 * look, 5, fills))  # fmt: skip
    made = with_intervals(StandIn(about("deteriorate"), pd.DataFrame(rows)))
    made.frames["trees"] = pd.DataFrame(trees, columns=COLUMNS["trees"])
    return made


def sentences(results: StandIn) -> list[report.Sentence]:
    (section,) = adjusted_claims([advice(View(results, 1))])
    (part,) = section.parts
    assert isinstance(part, report.Advice)
    return [each for each in part.sentences if isinstance(each, report.Sentence)]


def about_of(results: StandIn, what: str) -> report.Sentence:
    return next(sentence for sentence in sentences(results) if sentence.about == what)


def figure(section: report.Section, name: str) -> report.Figure:
    return next(p for p in section.parts if isinstance(p, report.Figure) and p.name == name)


def table(section: report.Section, name: str) -> report.Table:
    return next(p for p in section.parts if isinstance(p, report.Table) and p.name == name)


class Page(HTMLParser):
    """What a page refers to, and how it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.identifiers: list[str] = []
        self.images: list[str | None] = []
        self.tags: list[str] = []
        self.data: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
            if given.get(name):
                self.references.append(str(given[name]))
        if given.get("id"):
            self.identifiers.append(str(given["id"]))
        if tag == "svg":
            self.images.append(given.get("aria-label"))

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def written(results: StandIn, out: Path, **options: object) -> tuple[str, Page]:
    paths = report.write(results, [1], out, **options)  # type: ignore[arg-type]
    assert paths[0] == out / "report.html"
    text = paths[0].read_text("utf-8")
    page = Page()
    page.feed(text)
    return text, page
