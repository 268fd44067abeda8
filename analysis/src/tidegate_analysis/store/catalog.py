"""The tables that a source gives: their columns, and where a database has them.

The columns are those of an export (``docs/results.md``, "Exports"), so that a store and its export
give the same frames. A statement gives the columns in their order; what it cannot give by itself is
derived from its last column, as `derived` says.

Of what belongs to attempts there may be millions of rows, so their statements give the attempt's
number in place of the columns that say which execution it was and which host measured it, and
those are looked up in `PLACES`. What was measured and no longer counts, since another host measured
the batchset anew (version 5), is in `attempts` only.

A store of schema version 1 has neither analyses nor kinds by interval: these tables are empty
there, and thrashing points have NULL for what they lack. Before version 3 an experiment's times are
in its file only. What version 4 added, the work
of the subject's processes, is NULL before. Version 6 has each table as a view, which a test holds
to be the same; they are read from the tables, which older stores have, too. Posteriors of thrashing
points came with version 7. Locks in documents, which version 8 added, are not in exports.
"""

from dataclasses import dataclass
from typing import Final, Literal

import pyarrow as pa

#: What a cell holds: a whole number that is always there, one that may be NULL, a number with a
#: point, or text. The last two may always be NULL.
Kind = Literal["whole", "whole?", "number", "text"]

#: What is made of the last column that a statement gives.
Derived = Literal["", "workload", "settings", "histogram"]

ARROW: Final[dict[Kind, pa.DataType]] = {
    "whole": pa.int64(),
    "whole?": pa.int64(),
    "number": pa.float64(),
    "text": pa.string(),
}

#: What rows belong to.
Scope = Literal["experiment", "batchset", "attempt"]

#: The versions of the schema that can be read.
VERSIONS: Final = (1, 2, 3, 4, 5, 6, 7, 8)


@dataclass(frozen=True)
class ExportTable:
    """A table of an export.

    - name: As its file is called.
    - columns: Kinds by name, in order.
    - keys: So many of the first columns are a row's key; rows are sorted by them.
    - sql: What gives it, without a condition and in no order.
    - scope: What its rows belong to, and so the tables that the statement has: `e`, the experiment;
      `r` and `b` too, the run and the batchset; or only `q`, with the number of an attempt.
    - since: The version of the schema that brought it.
    - older: What gives it in versions up to a number, where that differs.
    - derived: What is made of the last column that the statement gives.
    """

    name: str
    columns: dict[str, Kind]
    keys: int
    sql: str
    scope: Scope = "batchset"
    since: int = 1
    older: tuple[int, str] | None = None
    derived: Derived = ""

    def schema(self) -> pa.Schema:
        """Return the columns as Arrow has them."""
        return pa.schema([(name, ARROW[kind]) for name, kind in self.columns.items()])

    def given(self) -> dict[str, Kind]:
        """Return the columns that the statement gives."""
        given = dict(self.columns)
        if self.scope == "attempt":
            own = list(given.items())[len(PLACE) :]
            given = {"attempt": "whole", **dict(own)}
        if self.derived == "histogram":
            return {"attempt": "whole", "interval": "whole", "histogram": "text"}
        names = list(given)
        last = _LAST.get(self.derived, names[-1])
        return {name: given[name] for name in names[: names.index(last) + 1]}

    def sorted_by(self) -> list[str]:
        """Return the columns that the statement's rows are sorted by."""
        keys = list(self.columns)[: self.keys]
        given = self.given()
        if self.scope == "attempt":
            keys = ["attempt", *keys[len(PLACE) :]]
        return [name for name in keys if name in given]


#: The columns that an execution is found by.
_EXECUTION: Final = ("experiment", "run", "batchset", "mpl", "repetition", "execution")

#: The columns that say which execution a row is of, and which host measured it.
PLACE: Final = (*_EXECUTION, "host")

#: The last column that is given, where others are derived from it.
_LAST: Final = {"settings": "file", "workload": "workload_values"}


def _columns(*groups: str) -> dict[str, Kind]:
    """Return columns from lines that begin with a kind and go on with names."""
    columns: dict[str, Kind] = {}
    for group in groups:
        kind, *names = group.split()
        columns.update(dict.fromkeys(names, kind))  # type: ignore[arg-type]
    return columns


_KEY = f"whole {' '.join(_EXECUTION)}"
_BATCHSET_KEY = "whole experiment run batchset"
_LATENCY = "number mean_ms p50_ms p95_ms p99_ms max_ms"


def _of_executions(columns: str, joins: str) -> str:
    return (
        f"SELECT e.id, r.number, b.number, x.mpl, x.repetition, x.id, {columns} "
        "FROM experiment e JOIN run r ON r.experiment = e.id JOIN batchset b ON b.run = r.id "
        f"JOIN execution x ON x.batchset = b.id {joins}"
    )


def _of_batchsets(columns: str, joins: str) -> str:
    return (
        f"SELECT e.id, r.number, b.number, {columns} FROM experiment e "
        f"JOIN run r ON r.experiment = e.id JOIN batchset b ON b.run = r.id {joins}"
    )


_EXPERIMENT = ExportTable(
    "experiment",
    _columns(
        "whole experiment",
        "text name scenario preset subjects",
        "whole seed began_us",
        "text host cpu",
        "whole machine_processors memory_mib",
        "text kernel tidegate build file",
        "number ctl_s warmup_s pause_s connect_limit_s interval_s",
        "whole repetitions",
    ),
    keys=1,
    scope="experiment",
    derived="settings",
    sql="SELECT e.id, e.name, e.scenario, e.preset, e.subjects, e.seed, e.began_us, k.host, "
    "k.cpu, k.processors, k.memory_mib, k.kernel, c.version, c.build, e.file "
    "FROM experiment e JOIN machine k ON k.id = e.machine JOIN code c ON c.id = e.code",
)


def _executions(subject_cpu: str) -> str:
    return _of_executions(
        "k.host, e.name, e.scenario, e.preset, r.subject, r.processors, r.primary_key, "
        "r.isolation, r.settings, b.workload, b.treatment, "
        "(SELECT COUNT(*) FROM attempt t WHERE t.execution = x.id), "
        "(SELECT COUNT(*) FROM failure f, attempt t WHERE f.attempt = t.id "
        "AND t.execution = x.id), m.attempt, a.seed, a.began_us, m.ended_us, s.version, "
        "s.settings, m.processors, k.cpu, k.processors, k.memory_mib, k.kernel, c.version, "
        "c.build, m.connect_s, m.seconds, m.clients, m.transactions, m.tps, m.mean_ms, m.p50_ms, "
        "m.p95_ms, m.p99_ms, m.max_ms, m.retries, m.stragglers, m.overdue, m.connection_losses, "
        f"m.client_cpu_us, m.client_core_share, {subject_cpu}, m.other_executors, b.spec",
        "LEFT JOIN measurement m ON m.execution = x.id LEFT JOIN attempt a ON a.id = m.attempt "
        "LEFT JOIN start s ON s.id = a.start LEFT JOIN machine k ON k.id = s.machine "
        "LEFT JOIN code c ON c.id = s.code",
    )


_EXECUTIONS = ExportTable(
    "executions",
    _columns(
        _KEY,
        "text host name scenario preset subject",
        "whole processors_planned primary_key",
        "text isolation settings_planned workload treatment",
        "whole attempts failures",
        "whole? attempt seed began_us ended_us",
        "text version settings",
        "whole? processors",
        "text cpu",
        "whole? machine_processors memory_mib",
        "text kernel tidegate build",
        "number connect_s seconds",
        "whole? clients transactions",
        "number tps mean_ms p50_ms p95_ms p99_ms max_ms",
        "whole? retries stragglers overdue connection_losses",
        "number client_cpu_us client_core_share subject_cpu_us subject_core_share",
        "whole? other_executors",
        "text workload_values",
        "whole? scale rows",
        "number sf_percent rose_percent",
        "text placement",
        "whole? reads updates changes joins",
    ),
    keys=7,
    derived="workload",
    sql=_executions("m.subject_cpu_us, m.subject_core_share"),
    older=(3, _executions("NULL, NULL")),
)


def _attempts(outcome: str, joins: str) -> str:
    return _of_executions(
        "k.host, a.id, a.number, a.seed, a.began_us, s.version, k.cpu, k.kernel, c.version, "
        f"c.build, CASE WHEN m.attempt IS NOT NULL THEN 'measured' {outcome}"
        "WHEN f.attempt IS NOT NULL THEN 'failed' ELSE 'cut off' END, f.reason",
        "JOIN attempt a ON a.execution = x.id JOIN start s ON s.id = a.start "
        "JOIN machine k ON k.id = s.machine JOIN code c ON c.id = s.code "
        f"LEFT JOIN measurement m ON m.attempt = a.id {joins}"
        "LEFT JOIN failure f ON f.attempt = a.id",
    )


_ATTEMPTS = ExportTable(
    "attempts",
    _columns(
        _KEY,
        "text host",
        "whole attempt number seed began_us",
        "text version cpu kernel tidegate build outcome reason",
    ),
    keys=8,
    sql=_attempts(
        "WHEN t.attempt IS NOT NULL THEN 'superseded' ",
        "LEFT JOIN measurement_taken t ON t.attempt = a.id ",
    ),
    older=(4, _attempts("", "")),
)

#: What columns are called in the store, where that is not their name.
_STORED: Final = {
    "interval": "number",
    "look": "number",
    "limit": "mpl",
    "next_limit": "next_mpl",
    "trouble": "kind",
}


def _of_attempts(name: str, rows: str, keys: int, *columns: str) -> ExportTable:
    """Return a table of what attempts measured: rows of the store, the first columns as keys."""
    own = _columns(*columns)
    stored = ", ".join(f"q.{_STORED.get(column, column)}" for column in own)
    return ExportTable(
        name,
        _columns(_KEY, "text host") | own,
        keys=len(PLACE) + keys,
        scope="attempt",
        sql=f"SELECT q.attempt, {stored} FROM {rows} q",
    )


_KINDS = _of_attempts(
    "kinds", "kind", 2, "text workload kind", "whole committed rolled_back", _LATENCY
)

_OF_INTERVAL: Final = ("number until_s", "whole transactions", "number mean_ms p99_ms")

_INTERVALS = _of_attempts("intervals", "interval_seen", 1, "whole interval", *_OF_INTERVAL)

_INTERVAL_KINDS = ExportTable(
    "interval_kinds",
    _columns(_KEY, "text host", "whole interval", "text workload kind", *_OF_INTERVAL),
    keys=10,
    since=2,
    scope="attempt",
    sql="SELECT q.attempt, q.number, q.workload, q.kind, i.until_s, q.transactions, q.mean_ms, "
    "q.p99_ms FROM interval_kind q "
    "JOIN interval_seen i ON i.attempt = q.attempt AND i.number = q.number",
)

_HISTOGRAMS = ExportTable(
    "histograms",
    _columns(_KEY, "text host", "whole interval latency_us transactions"),
    keys=9,
    derived="histogram",
    scope="attempt",
    sql="SELECT q.attempt, q.number, q.histogram FROM interval_seen q",
)

_LIMITS = _of_attempts(
    "limits", "limit_seen", 1, "whole number", "number at_s interval_s", "whole limit next_limit",
    "text reason", "number tps concurrency",
)  # fmt: skip

_CLASSES = _of_attempts("classes", "class_seen", 1, "text class", "whole transactions", _LATENCY)

_TREES = _of_attempts(
    "trees", "tree_seen", 2, "whole look", "text tree", "number at_s", "whole leaves entries",
    "number fill", "whole logical_reads physical_reads writes", "text fills",
)  # fmt: skip

_TROUBLES = _of_attempts("troubles", "trouble", 2, "text trouble what", "whole times")

_CONDITIONS = ExportTable(
    "conditions",
    _columns(
        _BATCHSET_KEY, "whole check start", "text host condition", "whole holds", "text violation"
    ),
    keys=4,
    sql=_of_batchsets(
        "y.id, y.start, k.host, y.condition, CASE WHEN y.violation IS NULL THEN 1 ELSE 0 END, "
        "y.violation",
        "JOIN consistency y ON y.batchset = b.id JOIN start s ON s.id = y.start "
        "JOIN machine k ON k.id = s.machine",
    ),
)

_ANALYSES = ExportTable(
    "analyses",
    _columns(
        "whole experiment analysis", "text protocol rule", "whole found_us", "text tidegate build"
    ),
    keys=2,
    scope="experiment",
    since=2,
    sql="SELECT e.id, y.id, y.protocol, y.rule, y.found_us, c.version, c.build "
    "FROM experiment e JOIN analysis y ON y.experiment = e.id JOIN code c ON c.id = y.code",
)

_TAP_COUNTS = ExportTable(
    "tap_counts",
    _columns(
        "whole experiment analysis",
        "text step name part level",
        "whole? number",
        "whole checked found",
        "whole? batchsets",
    ),
    keys=6,
    scope="experiment",
    since=2,
    sql="SELECT e.id, y.id, q.step, q.name, q.part, q.level, q.number, q.checked, q.found, "
    "q.batchsets FROM experiment e JOIN analysis y ON y.experiment = e.id "
    "JOIN tap_count q ON q.analysis = y.id",
)

_TAP_DROPS = ExportTable(
    "tap_drops",
    _columns(
        _BATCHSET_KEY, "whole? mpl repetition execution", "whole analysis", "text step name why"
    ),
    keys=9,
    since=2,
    sql=_of_batchsets(
        "x.mpl, x.repetition, x.id, d.analysis, d.step, d.name, d.why",
        "JOIN tap_drop d ON d.batchset = b.id LEFT JOIN execution x ON x.id = d.execution",
    ),
)

_THRASHING_POINTS = ExportTable(
    "thrashing_points",
    _columns(
        _BATCHSET_KEY,
        "whole id",
        "whole? analysis",
        "whole found_us",
        "text protocol rule",
        "whole? thrashing_point",
        "whole low",
        "whole? high",
        "number atpt_ms",
        "text caveats",
    ),
    keys=4,
    sql=_of_batchsets(
        "p.id, p.analysis, p.found_us, p.protocol, p.rule, p.mpl, p.low, p.high, p.atpt_ms, "
        "p.caveats",
        "JOIN thrashing_point p ON p.batchset = b.id",
    ),
    older=(
        1,
        _of_batchsets(
            "p.id, NULL, p.found_us, p.protocol, p.rule, p.mpl, p.low, p.high, NULL, p.caveats",
            "JOIN thrashing_point p ON p.batchset = b.id",
        ),
    ),
)

_THRASHING_POSTERIORS = ExportTable(
    "thrashing_posteriors",
    _columns(
        _BATCHSET_KEY,
        "whole point outcome",
        "whole? analysis thrashing_point",
        "whole low",
        "whole? high",
        "number prior probability",
        "text model",
        "whole draws seed",
        "number noise",
        "whole noise_measured",
    ),
    keys=5,
    since=7,
    sql=_of_batchsets(
        "q.point, o.number, p.analysis, o.mpl, o.low, o.high, o.prior, o.probability, q.model, "
        "q.draws, q.seed, q.noise, q.noise_measured",
        "JOIN thrashing_point p ON p.batchset = b.id "
        "JOIN thrashing_posterior q ON q.point = p.id JOIN thrashing_outcome o ON o.point = p.id",
    ),
)

#: The numbers of the attempts that count and are chosen, without a condition.
ATTEMPTS_OF: Final = (
    "SELECT m.attempt FROM experiment e JOIN run r ON r.experiment = e.id "
    "JOIN batchset b ON b.run = r.id JOIN execution x ON x.batchset = b.id "
    "JOIN measurement m ON m.execution = x.id"
)

#: Where each attempt that counts belongs: its number after the columns of `PLACE`.
PLACES: Final = ExportTable(
    "attempts",
    _columns(_KEY, "text host", "whole attempt"),
    keys=8,
    sql=_of_executions(
        "k.host, m.attempt",
        "JOIN measurement m ON m.execution = x.id JOIN attempt a ON a.id = m.attempt "
        "JOIN start s ON s.id = a.start JOIN machine k ON k.id = s.machine",
    ),
)

#: Every table of an export, by name.
TABLES: Final[dict[str, ExportTable]] = {
    table.name: table
    for table in (
        _EXPERIMENT,
        _EXECUTIONS,
        _ATTEMPTS,
        _KINDS,
        _INTERVALS,
        _INTERVAL_KINDS,
        _HISTOGRAMS,
        _LIMITS,
        _CLASSES,
        _TREES,
        _TROUBLES,
        _CONDITIONS,
        _ANALYSES,
        _TAP_COUNTS,
        _TAP_DROPS,
        _THRASHING_POINTS,
        _THRASHING_POSTERIORS,
    )
}
