"""The statements that make a store, for examples and tests; the laboratory's own are in Rust.

They are those of ``crates/lab/src/store/schema.rs``, step by step, and a test holds the two
together. The laboratory also makes triggers that refuse changes, which a reader never meets.
"""

from typing import Final

#: What is measured of an execution, but for what its keys are and what later steps added.
_MEASURED: Final = (
    "ended_us bigint NOT NULL, connect_s {real} NOT NULL, seconds {real} NOT NULL, clients integer "
    "NOT NULL, transactions bigint NOT NULL, tps {real} NOT NULL, mean_ms {real} NOT NULL, p50_ms "
    "{real} NOT NULL, p95_ms {real} NOT NULL, p99_ms {real} NOT NULL, max_ms {real} NOT NULL, "
    "retries bigint NOT NULL, stragglers integer NOT NULL, overdue bigint NOT NULL, "
    "connection_losses integer NOT NULL, client_cpu_us {real} NOT NULL, client_core_share {real} "
    "NOT NULL, processors integer NOT NULL, other_executors integer NOT NULL, report text NOT NULL"
)

#: What is planned, tried and measured.
_FIRST: Final = (
    "CREATE TABLE machine (id {id}, host text NOT NULL, cpu text NOT NULL, processors integer "
    "NOT NULL, memory_mib bigint NOT NULL, kernel text NOT NULL, UNIQUE (host, cpu, processors,"
    " memory_mib, kernel))",
    "CREATE TABLE code (id {id}, version text NOT NULL, build text NOT NULL, UNIQUE (version, "
    "build))",
    "CREATE TABLE experiment (id {id}, name text NOT NULL, scenario text NOT NULL, preset text "
    "NOT NULL, subjects text NOT NULL, seed bigint NOT NULL, file text NOT NULL, machine "
    "integer NOT NULL REFERENCES machine (id), code integer NOT NULL REFERENCES code (id), "
    "began_us bigint NOT NULL)",
    "CREATE TABLE run (id {id}, experiment integer NOT NULL REFERENCES experiment (id), number "
    "integer NOT NULL, subject text NOT NULL, processors integer NOT NULL, primary_key integer "
    "NOT NULL, isolation text NOT NULL, settings text NOT NULL, UNIQUE (experiment, number))",
    "CREATE TABLE batchset (id {id}, run integer NOT NULL REFERENCES run (id), number integer "
    "NOT NULL, workload text NOT NULL, spec text NOT NULL, treatment text NOT NULL, UNIQUE "
    "(run, number))",
    "CREATE TABLE execution (id {id}, batchset integer NOT NULL REFERENCES batchset (id), mpl "
    "integer NOT NULL, repetition integer NOT NULL, place integer NOT NULL, UNIQUE (batchset, "
    "mpl, repetition))",
    "CREATE TABLE start (id {id}, run integer NOT NULL REFERENCES run (id), machine integer NOT"
    " NULL REFERENCES machine (id), code integer NOT NULL REFERENCES code (id), version text "
    "NOT NULL, settings text NOT NULL, processors integer NOT NULL, began_us bigint NOT NULL)",
    "CREATE TABLE attempt (id {id}, execution integer NOT NULL REFERENCES execution (id), "
    "number integer NOT NULL, start integer NOT NULL REFERENCES start (id), seed bigint NOT "
    "NULL, began_us bigint NOT NULL, UNIQUE (execution, number))",
    "CREATE TABLE failure (attempt integer PRIMARY KEY REFERENCES attempt (id), reason text NOT"
    " NULL)",
    "CREATE TABLE measurement (attempt integer PRIMARY KEY REFERENCES attempt (id), execution "
    f"integer NOT NULL UNIQUE REFERENCES execution (id), {_MEASURED})",
    "CREATE TABLE kind (attempt integer NOT NULL REFERENCES attempt (id), workload text NOT "
    "NULL, kind text NOT NULL, committed bigint NOT NULL, rolled_back bigint NOT NULL, mean_ms "
    "{real} NOT NULL, p50_ms {real} NOT NULL, p95_ms {real} NOT NULL, p99_ms {real} NOT NULL, "
    "max_ms {real} NOT NULL, PRIMARY KEY (attempt, workload, kind))",
    "CREATE TABLE interval_seen (attempt integer NOT NULL REFERENCES attempt (id), number "
    "integer NOT NULL, until_s {real} NOT NULL, transactions bigint NOT NULL, mean_ms {real} "
    "NOT NULL, p99_ms {real} NOT NULL, histogram text NOT NULL, PRIMARY KEY (attempt, number))",
    "CREATE TABLE limit_seen (attempt integer NOT NULL REFERENCES attempt (id), number integer "
    "NOT NULL, at_s {real} NOT NULL, interval_s {real} NOT NULL, mpl integer NOT NULL, next_mpl"
    " integer NOT NULL, reason text NOT NULL, tps {real} NOT NULL, concurrency {real} NOT NULL,"
    " PRIMARY KEY (attempt, number))",
    "CREATE TABLE class_seen (attempt integer NOT NULL REFERENCES attempt (id), class text NOT "
    "NULL, transactions bigint NOT NULL, mean_ms {real} NOT NULL, p50_ms {real} NOT NULL, "
    "p95_ms {real} NOT NULL, p99_ms {real} NOT NULL, max_ms {real} NOT NULL, PRIMARY KEY "
    "(attempt, class))",
    "CREATE TABLE tree_seen (attempt integer NOT NULL REFERENCES attempt (id), number integer "
    "NOT NULL, tree text NOT NULL, at_s {real} NOT NULL, leaves bigint NOT NULL, entries bigint"
    " NOT NULL, fill {real} NOT NULL, logical_reads bigint NOT NULL, physical_reads bigint NOT "
    "NULL, writes bigint NOT NULL, fills text, PRIMARY KEY (attempt, number, tree))",
    "CREATE TABLE trouble (attempt integer NOT NULL REFERENCES attempt (id), kind text NOT "
    "NULL, what text NOT NULL, times bigint NOT NULL, PRIMARY KEY (attempt, kind, what))",
    "CREATE TABLE consistency (id {id}, start integer NOT NULL REFERENCES start (id), batchset "
    "integer NOT NULL REFERENCES batchset (id), condition text NOT NULL, violation text)",
    "CREATE TABLE thrashing_point (id {id}, batchset integer NOT NULL REFERENCES batchset (id),"
    " protocol text NOT NULL, rule text NOT NULL, mpl integer, low integer NOT NULL, high "
    "integer, caveats text NOT NULL, found_us bigint NOT NULL)",
)

#: What an analysis counted, dropped and found; kinds of transactions interval by interval.
_ANALYSES: Final = (
    "CREATE TABLE analysis (id {id}, experiment integer NOT NULL REFERENCES experiment (id), "
    "protocol text NOT NULL, rule text NOT NULL, code integer NOT NULL REFERENCES code (id), "
    "found_us bigint NOT NULL)",
    "CREATE TABLE tap_count (analysis integer NOT NULL REFERENCES analysis (id), step text NOT "
    "NULL, name text NOT NULL, part text NOT NULL, level text NOT NULL, number integer, checked"
    " bigint NOT NULL, found bigint NOT NULL, batchsets bigint, PRIMARY KEY (analysis, step, "
    "name, part, level))",
    "CREATE TABLE tap_drop (id {id}, analysis integer NOT NULL REFERENCES analysis (id), step "
    "text NOT NULL, name text NOT NULL, batchset integer NOT NULL REFERENCES batchset (id), "
    "execution integer REFERENCES execution (id), why text NOT NULL)",
    "CREATE TABLE interval_kind (attempt integer NOT NULL REFERENCES attempt (id), number "
    "integer NOT NULL, workload text NOT NULL, kind text NOT NULL, transactions bigint NOT "
    "NULL, mean_ms {real} NOT NULL, p99_ms {real} NOT NULL, PRIMARY KEY (attempt, number, "
    "workload, kind))",
    "ALTER TABLE thrashing_point ADD COLUMN analysis integer REFERENCES analysis (id)",
    "ALTER TABLE thrashing_point ADD COLUMN atpt_ms {real}",
)

#: The times in force, with the preset and the defaults of the program that planned.
_TIMES: Final = (
    "ALTER TABLE experiment ADD COLUMN ctl_s {real}",
    "ALTER TABLE experiment ADD COLUMN warmup_s {real}",
    "ALTER TABLE experiment ADD COLUMN pause_s {real}",
    "ALTER TABLE experiment ADD COLUMN connect_limit_s {real}",
    "ALTER TABLE experiment ADD COLUMN interval_s {real}",
)

#: What the subject's processes worked.
_SUBJECT_CPU: Final = (
    "ALTER TABLE measurement ADD COLUMN subject_cpu_us {real}",
    "ALTER TABLE measurement ADD COLUMN subject_core_share {real}",
)

#: The columns of a measurement, before its host was kept.
_TAKEN: Final = (
    *("attempt", "execution"),
    *(column.split()[0] for column in _MEASURED.split(", ")),
    *("subject_cpu_us", "subject_core_share"),
)

#: Which host measured: what counts of a batchset is the last series of one host.
_HOSTS: Final = (
    "CREATE TABLE series (id {id}, batchset integer NOT NULL REFERENCES batchset (id), number "
    "integer NOT NULL, host text NOT NULL, UNIQUE (batchset, number))",
    "INSERT INTO series (batchset, number, host) SELECT l.batchset, 1, k.host FROM (SELECT "
    "x.batchset AS batchset, MAX(m.attempt) AS attempt FROM measurement m JOIN execution x ON "
    "x.id = m.execution GROUP BY x.batchset) l JOIN attempt a ON a.id = l.attempt JOIN start s "
    "ON s.id = a.start JOIN machine k ON k.id = s.machine",
    "CREATE TABLE measurement_taken (attempt integer PRIMARY KEY REFERENCES attempt (id), "
    "execution integer NOT NULL REFERENCES execution (id), series integer NOT NULL REFERENCES "
    f"series (id), {_MEASURED}, subject_cpu_us {{real}}, subject_core_share {{real}}, UNIQUE "
    "(execution, series))",
    f"INSERT INTO measurement_taken ({', '.join(_TAKEN)}, series) SELECT m.{', m.'.join(_TAKEN)}, "
    "s.id FROM measurement m JOIN execution x ON x.id = m.execution JOIN series s ON s.batchset = "
    "x.batchset",
    "DROP TABLE measurement",
    f"CREATE VIEW measurement AS SELECT {', '.join(_TAKEN)} FROM measurement_taken m WHERE NOT "
    "EXISTS (SELECT 1 FROM series s JOIN series n ON n.batchset = s.batchset AND n.number > "
    "s.number WHERE s.id = m.series)",
    "CREATE TABLE turn (id {id}, experiment integer NOT NULL REFERENCES experiment (id), place "
    "integer NOT NULL, run integer NOT NULL UNIQUE REFERENCES run (id), host text NOT NULL, "
    "UNIQUE (experiment, place))",
)

#: Views for exports, which a reader of tables does not need.
_EXPORTS: Final = ()

#: How probable each thrashing point is, and none.
_POSTERIORS: Final = (
    "CREATE TABLE thrashing_posterior (point integer PRIMARY KEY REFERENCES thrashing_point (id), "
    "model text NOT NULL, draws integer NOT NULL, seed bigint NOT NULL, noise {real} NOT NULL, "
    "noise_measured integer NOT NULL)",
    "CREATE TABLE thrashing_outcome (point integer NOT NULL REFERENCES thrashing_posterior (point),"
    " number integer NOT NULL, mpl integer, low integer NOT NULL, high integer, prior {real} NOT "
    "NULL, probability {real} NOT NULL, PRIMARY KEY (point, number))",
)

#: What transactions locked in documents, and what a store in the laboratory's process read and
#: wrote.
_LOCKING: Final = (
    "CREATE TABLE locking_seen (attempt integer NOT NULL REFERENCES attempt (id), workload text "
    "NOT NULL, kind text NOT NULL, runs bigint NOT NULL, requests bigint NOT NULL, locks bigint "
    "NOT NULL, conversions bigint NOT NULL, escalations bigint NOT NULL, waits bigint NOT NULL, "
    "request_ms {real} NOT NULL, block_ms {real} NOT NULL, deadlocks bigint NOT NULL, timeouts "
    "bigint NOT NULL, preemptions bigint NOT NULL, PRIMARY KEY (attempt, workload, kind))",
    "CREATE TABLE store_seen (attempt integer PRIMARY KEY REFERENCES attempt (id), page_reads "
    "bigint NOT NULL, page_writes bigint NOT NULL, log_syncs bigint NOT NULL, log_bytes bigint "
    "NOT NULL)",
    "CREATE TABLE conflict_seen (attempt integer NOT NULL REFERENCES attempt (id), cause text NOT "
    "NULL, place text NOT NULL, times bigint NOT NULL, PRIMARY KEY (attempt, cause, place))",
)

#: The steps from an empty database; `{id}` and `{real}` differ between databases.
STEPS: Final[tuple[tuple[str, ...], ...]] = (
    _FIRST,
    _ANALYSES,
    _TIMES,
    _SUBJECT_CPU,
    _HOSTS,
    _EXPORTS,
    _POSTERIORS,
    _LOCKING,
)


def statements(version: int) -> list[str]:
    """Return what makes a store of a version in SQLite."""
    made = ["CREATE TABLE schema_version (version integer PRIMARY KEY)"]
    for number, step in enumerate(STEPS[:version], start=1):
        made += [
            one.replace("{id}", "integer PRIMARY KEY AUTOINCREMENT").replace("{real}", "real")
            for one in step
        ]
        made.append(f"INSERT INTO schema_version VALUES ({number})")
    return made
