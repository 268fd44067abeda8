//! The tables of an export: their columns, and where their rows come from.

use super::{Last, Scope, Table, real, whole, words};

/// Where a batchset's executions are found; `b` is the batchset.
macro_rules! of_batchset {
    ($columns:literal, $from:literal) => {
        concat!(
            "SELECT r.experiment, r.number, b.number, x.mpl, x.repetition, x.id, ",
            $columns,
            " FROM run r JOIN batchset b ON b.run = r.id JOIN execution x ON x.batchset = b.id ",
            $from,
            " WHERE b.id = ?"
        )
    };
}

/// The same of what was measured and counts, with its host; `m` is the measurement.
macro_rules! of_measured {
    ($columns:literal, $from:literal) => {
        concat!(
            "SELECT r.experiment, r.number, b.number, x.mpl, x.repetition, x.id, k.host, ",
            $columns,
            " FROM run r JOIN batchset b ON b.run = r.id JOIN execution x ON x.batchset = b.id ",
            "JOIN measurement m ON m.execution = x.id JOIN attempt a ON a.id = m.attempt ",
            "JOIN start s ON s.id = a.start JOIN machine k ON k.id = s.machine ",
            $from,
            " WHERE b.id = ?"
        )
    };
}

/// The columns by which an execution is found, and then others.
macro_rules! with_execution {
    ($($column:expr),* $(,)?) => {
        &[
            whole("experiment"), whole("run"), whole("batchset"), whole("mpl"),
            whole("repetition"), whole("execution"), $($column),*
        ]
    };
}

/// The same with the host that measured it.
macro_rules! with_host {
    ($($column:expr),* $(,)?) => { with_execution![words("host"), $($column),*] };
}

/// Every table, in the order in which they are written.
pub(in super::super) static TABLES: [Table; 17] = [
    EXPERIMENT,
    EXECUTIONS,
    ATTEMPTS,
    KINDS,
    PHASES,
    INTERVALS,
    INTERVAL_KINDS,
    HISTOGRAMS,
    LIMITS,
    CLASSES,
    TREES,
    TROUBLES,
    CONDITIONS,
    ANALYSES,
    TAP_COUNTS,
    TAP_DROPS,
    THRASHING_POINTS,
];

const EXPERIMENT: Table = Table {
    name: "experiment",
    scope: Scope::Experiment,
    columns: &[
        whole("experiment"),
        words("name"),
        words("scenario"),
        words("preset"),
        words("subjects"),
        whole("seed"),
        whole("began_us"),
        words("host"),
        words("cpu"),
        whole("machine_processors"),
        whole("memory_mib"),
        words("kernel"),
        words("tidegate"),
        words("build"),
        words("file"),
        real("ctl_s"),
        real("warmup_s"),
        real("pause_s"),
        real("connect_limit_s"),
        real("interval_s"),
        whole("repetitions"),
    ],
    keys: 1,
    last: Last::File,
    sql: "SELECT e.id, e.name, e.scenario, e.preset, e.subjects, e.seed, e.began_us, k.host, \
          k.cpu, k.processors, k.memory_mib, k.kernel, c.version, c.build, e.file \
          FROM experiment e JOIN machine k ON k.id = e.machine JOIN code c ON c.id = e.code \
          WHERE e.id = ?",
};

const EXECUTIONS: Table = Table {
    name: "executions",
    scope: Scope::Batchset,
    columns: with_host![
        words("name"),
        words("scenario"),
        words("preset"),
        words("subject"),
        whole("processors_planned"),
        whole("primary_key"),
        words("isolation"),
        words("settings_planned"),
        words("workload"),
        words("treatment"),
        whole("attempts"),
        whole("failures"),
        whole("attempt"),
        whole("seed"),
        whole("began_us"),
        whole("ended_us"),
        words("version"),
        words("settings"),
        whole("processors"),
        words("cpu"),
        whole("machine_processors"),
        whole("memory_mib"),
        words("kernel"),
        words("tidegate"),
        words("build"),
        real("connect_s"),
        real("seconds"),
        whole("clients"),
        whole("transactions"),
        real("tps"),
        real("mean_ms"),
        real("p50_ms"),
        real("p95_ms"),
        real("p99_ms"),
        real("max_ms"),
        whole("retries"),
        whole("stragglers"),
        whole("overdue"),
        whole("connection_losses"),
        real("client_cpu_us"),
        real("client_core_share"),
        real("subject_cpu_us"),
        real("subject_core_share"),
        whole("other_executors"),
        words("workload_values"),
        whole("scale"),
        whole("rows"),
        real("sf_percent"),
        real("rose_percent"),
        words("placement"),
        whole("reads"),
        whole("updates"),
        whole("changes"),
        whole("joins"),
    ],
    keys: 7,
    last: Last::Workload,
    sql: of_batchset!(
        "k.host, e.name, e.scenario, e.preset, r.subject, r.processors, r.primary_key, \
         r.isolation, r.settings, b.workload, b.treatment, \
         (SELECT COUNT(*) FROM attempt t WHERE t.execution = x.id), \
         (SELECT COUNT(*) FROM failure f, attempt t WHERE f.attempt = t.id \
         AND t.execution = x.id), m.attempt, a.seed, a.began_us, m.ended_us, s.version, \
         s.settings, m.processors, k.cpu, k.processors, k.memory_mib, k.kernel, c.version, \
         c.build, m.connect_s, m.seconds, m.clients, m.transactions, m.tps, m.mean_ms, m.p50_ms, \
         m.p95_ms, m.p99_ms, m.max_ms, m.retries, m.stragglers, m.overdue, m.connection_losses, \
         m.client_cpu_us, m.client_core_share, m.subject_cpu_us, m.subject_core_share, \
         m.other_executors, b.spec",
        "JOIN experiment e ON e.id = r.experiment LEFT JOIN measurement m ON m.execution = x.id \
         LEFT JOIN attempt a ON a.id = m.attempt LEFT JOIN start s ON s.id = a.start \
         LEFT JOIN machine k ON k.id = s.machine LEFT JOIN code c ON c.id = s.code"
    ),
};

const ATTEMPTS: Table = Table {
    name: "attempts",
    scope: Scope::Batchset,
    columns: with_host![
        whole("attempt"),
        whole("number"),
        whole("seed"),
        whole("began_us"),
        words("version"),
        words("cpu"),
        words("kernel"),
        words("tidegate"),
        words("build"),
        words("outcome"),
        words("reason"),
    ],
    keys: 8,
    last: Last::Plain,
    sql: of_batchset!(
        "k.host, a.id, a.number, a.seed, a.began_us, s.version, k.cpu, k.kernel, c.version, \
         c.build, CASE WHEN m.attempt IS NOT NULL THEN 'measured' WHEN t.attempt IS NOT NULL \
         THEN 'superseded' WHEN f.attempt IS NOT NULL THEN 'failed' ELSE 'cut off' END, f.reason",
        "JOIN attempt a ON a.execution = x.id JOIN start s ON s.id = a.start \
         JOIN machine k ON k.id = s.machine JOIN code c ON c.id = s.code \
         LEFT JOIN measurement m ON m.attempt = a.id \
         LEFT JOIN measurement_taken t ON t.attempt = a.id LEFT JOIN failure f ON f.attempt = a.id"
    ),
};

const KINDS: Table = Table {
    name: "kinds",
    scope: Scope::Batchset,
    columns: with_host![
        words("workload"),
        words("kind"),
        whole("committed"),
        whole("rolled_back"),
        real("mean_ms"),
        real("p50_ms"),
        real("p95_ms"),
        real("p99_ms"),
        real("max_ms"),
    ],
    keys: 9,
    last: Last::Plain,
    sql: of_measured!(
        "q.workload, q.kind, q.committed, q.rolled_back, q.mean_ms, q.p50_ms, q.p95_ms, \
         q.p99_ms, q.max_ms",
        "JOIN kind q ON q.attempt = a.id"
    ),
};

const PHASES: Table = Table {
    name: "phases",
    scope: Scope::Batchset,
    columns: with_host![
        words("workload"),
        words("kind"),
        words("phase"),
        whole("transactions"),
        real("mean_ms"),
        real("p50_ms"),
        real("p95_ms"),
        real("p99_ms"),
        real("max_ms"),
    ],
    // Those of a kind stay in their own order.
    keys: 9,
    last: Last::Report,
    sql: of_measured!("m.report", ""),
};

const INTERVALS: Table = Table {
    name: "intervals",
    scope: Scope::Batchset,
    columns: with_host![
        whole("interval"),
        real("until_s"),
        whole("transactions"),
        real("mean_ms"),
        real("p99_ms"),
    ],
    keys: 8,
    last: Last::Plain,
    sql: of_measured!(
        "i.number, i.until_s, i.transactions, i.mean_ms, i.p99_ms",
        "JOIN interval_seen i ON i.attempt = a.id"
    ),
};

const INTERVAL_KINDS: Table = Table {
    name: "interval_kinds",
    scope: Scope::Batchset,
    columns: with_host![
        whole("interval"),
        words("workload"),
        words("kind"),
        real("until_s"),
        whole("transactions"),
        real("mean_ms"),
        real("p99_ms"),
    ],
    keys: 10,
    last: Last::Plain,
    sql: of_measured!(
        "q.number, q.workload, q.kind, i.until_s, q.transactions, q.mean_ms, q.p99_ms",
        "JOIN interval_seen i ON i.attempt = a.id \
         JOIN interval_kind q ON q.attempt = i.attempt AND q.number = i.number"
    ),
};

const HISTOGRAMS: Table = Table {
    name: "histograms",
    scope: Scope::Batchset,
    columns: with_host![whole("interval"), whole("latency_us"), whole("transactions")],
    keys: 9,
    last: Last::Histogram,
    sql: of_measured!("i.number, i.histogram", "JOIN interval_seen i ON i.attempt = a.id"),
};

const LIMITS: Table = Table {
    name: "limits",
    scope: Scope::Batchset,
    columns: with_host![
        whole("number"),
        real("at_s"),
        real("interval_s"),
        whole("limit"),
        whole("next_limit"),
        words("reason"),
        real("tps"),
        real("concurrency"),
    ],
    keys: 8,
    last: Last::Plain,
    sql: of_measured!(
        "l.number, l.at_s, l.interval_s, l.mpl, l.next_mpl, l.reason, l.tps, l.concurrency",
        "JOIN limit_seen l ON l.attempt = a.id"
    ),
};

const CLASSES: Table = Table {
    name: "classes",
    scope: Scope::Batchset,
    columns: with_host![
        words("class"),
        whole("transactions"),
        real("mean_ms"),
        real("p50_ms"),
        real("p95_ms"),
        real("p99_ms"),
        real("max_ms"),
    ],
    keys: 8,
    last: Last::Plain,
    sql: of_measured!(
        "q.class, q.transactions, q.mean_ms, q.p50_ms, q.p95_ms, q.p99_ms, q.max_ms",
        "JOIN class_seen q ON q.attempt = a.id"
    ),
};

const TREES: Table = Table {
    name: "trees",
    scope: Scope::Batchset,
    columns: with_host![
        whole("look"),
        words("tree"),
        real("at_s"),
        whole("leaves"),
        whole("entries"),
        real("fill"),
        whole("logical_reads"),
        whole("physical_reads"),
        whole("writes"),
        words("fills"),
    ],
    keys: 9,
    last: Last::Plain,
    sql: of_measured!(
        "t.number, t.tree, t.at_s, t.leaves, t.entries, t.fill, t.logical_reads, \
         t.physical_reads, t.writes, t.fills",
        "JOIN tree_seen t ON t.attempt = a.id"
    ),
};

const TROUBLES: Table = Table {
    name: "troubles",
    scope: Scope::Batchset,
    columns: with_host![words("trouble"), words("what"), whole("times")],
    keys: 9,
    last: Last::Plain,
    sql: of_measured!("t.kind, t.what, t.times", "JOIN trouble t ON t.attempt = a.id"),
};

const CONDITIONS: Table = Table {
    name: "conditions",
    scope: Scope::Batchset,
    columns: &[
        whole("experiment"),
        whole("run"),
        whole("batchset"),
        whole("check"),
        whole("start"),
        words("host"),
        words("condition"),
        whole("holds"),
        words("violation"),
    ],
    keys: 4,
    last: Last::Plain,
    sql: "SELECT r.experiment, r.number, b.number, y.id, y.start, k.host, y.condition, \
          CASE WHEN y.violation IS NULL THEN 1 ELSE 0 END, y.violation \
          FROM run r JOIN batchset b ON b.run = r.id JOIN consistency y ON y.batchset = b.id \
          JOIN start s ON s.id = y.start JOIN machine k ON k.id = s.machine \
          WHERE b.id = ?",
};

const ANALYSES: Table = Table {
    name: "analyses",
    scope: Scope::Experiment,
    columns: &[
        whole("experiment"),
        whole("analysis"),
        words("protocol"),
        words("rule"),
        whole("found_us"),
        words("tidegate"),
        words("build"),
    ],
    keys: 2,
    last: Last::Plain,
    sql: "SELECT y.experiment, y.id, y.protocol, y.rule, y.found_us, c.version, c.build \
          FROM analysis y JOIN code c ON c.id = y.code WHERE y.experiment = ?",
};

const TAP_COUNTS: Table = Table {
    name: "tap_counts",
    scope: Scope::Experiment,
    columns: &[
        whole("experiment"),
        whole("analysis"),
        words("step"),
        words("name"),
        words("part"),
        words("level"),
        whole("number"),
        whole("checked"),
        whole("found"),
        whole("batchsets"),
    ],
    keys: 6,
    last: Last::Plain,
    sql: "SELECT y.experiment, y.id, q.step, q.name, q.part, q.level, q.number, q.checked, \
          q.found, q.batchsets FROM analysis y JOIN tap_count q ON q.analysis = y.id \
          WHERE y.experiment = ?",
};

const TAP_DROPS: Table = Table {
    name: "tap_drops",
    scope: Scope::Batchset,
    columns: with_execution![whole("analysis"), words("step"), words("name"), words("why"),],
    keys: 9,
    last: Last::Plain,
    sql: "SELECT r.experiment, r.number, b.number, x.mpl, x.repetition, x.id, d.analysis, d.step, \
          d.name, d.why FROM run r JOIN batchset b ON b.run = r.id \
          JOIN tap_drop d ON d.batchset = b.id LEFT JOIN execution x ON x.id = d.execution \
          WHERE b.id = ?",
};

const THRASHING_POINTS: Table = Table {
    name: "thrashing_points",
    scope: Scope::Batchset,
    columns: &[
        whole("experiment"),
        whole("run"),
        whole("batchset"),
        whole("id"),
        whole("analysis"),
        whole("found_us"),
        words("protocol"),
        words("rule"),
        whole("thrashing_point"),
        whole("low"),
        whole("high"),
        real("atpt_ms"),
        words("caveats"),
    ],
    keys: 4,
    last: Last::Plain,
    sql: "SELECT r.experiment, r.number, b.number, p.id, p.analysis, p.found_us, p.protocol, \
          p.rule, p.mpl, p.low, p.high, p.atpt_ms, p.caveats \
          FROM run r JOIN batchset b ON b.run = r.id JOIN thrashing_point p ON p.batchset = b.id \
          WHERE b.id = ?",
};
