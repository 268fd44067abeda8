//! The tables of an export: their columns, and where their rows come from.

use std::cmp::Ordering;

use serde_json::Value;
use tidegate_workload::Rows;

use crate::experiment::Experiment;
use crate::store::read::{float, int, text};
use crate::store::{Store, StoreError};

/// What one cell holds.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// Nothing.
    Null,
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Real(f64),
    /// Text.
    Text(String),
}

/// What the cells of a column hold, where they hold something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Int,
    Real,
    Text,
}

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

const fn whole(name: &'static str) -> Column {
    Column { name, kind: Kind::Int }
}

const fn real(name: &'static str) -> Column {
    Column { name, kind: Kind::Real }
}

const fn words(name: &'static str) -> Column {
    Column { name, kind: Kind::Text }
}

/// What one `?` in a table's statement stands for, and how often it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Experiment,
    Batchset,
}

/// What becomes of the last column that the statement gives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    /// It is a column like another.
    Plain,
    /// It is a workload's description: the columns after it are taken from there.
    Workload,
    /// It is an experiment's file: the columns after it are taken from what it says.
    File,
    /// It is a histogram: each of its pairs is a row.
    Histogram,
}

pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) scope: Scope,
    pub(super) columns: &'static [Column],
    /// So many of the first columns are a row's key. Rows are sorted by them.
    keys: usize,
    last: Last,
    sql: &'static str,
}

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

/// The columns by which an execution is found, and then others.
macro_rules! with_execution {
    ($($column:expr),* $(,)?) => {
        &[
            whole("experiment"), whole("run"), whole("batchset"), whole("mpl"),
            whole("repetition"), whole("execution"), $($column),*
        ]
    };
}

/// Every table, in the order in which they are written.
pub(super) static TABLES: [Table; 9] = [
    EXPERIMENT,
    EXECUTIONS,
    ATTEMPTS,
    KINDS,
    INTERVALS,
    HISTOGRAMS,
    TROUBLES,
    CONDITIONS,
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
    sql: "SELECT e.id, e.name, e.scenario, e.preset, e.subjects, e.seed, e.began_us, k.cpu, \
          k.processors, k.memory_mib, k.kernel, c.version, c.build, e.file \
          FROM experiment e JOIN machine k ON k.id = e.machine JOIN code c ON c.id = e.code \
          WHERE e.id = ?",
};

const EXECUTIONS: Table = Table {
    name: "executions",
    scope: Scope::Batchset,
    columns: with_execution![
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
    keys: 6,
    last: Last::Workload,
    sql: of_batchset!(
        "e.name, e.scenario, e.preset, r.subject, r.processors, r.primary_key, r.isolation, \
         r.settings, b.workload, b.treatment, \
         (SELECT COUNT(*) FROM attempt t WHERE t.execution = x.id), \
         (SELECT COUNT(*) FROM failure f, attempt t WHERE f.attempt = t.id \
         AND t.execution = x.id), m.attempt, a.seed, a.began_us, m.ended_us, s.version, \
         s.settings, m.processors, k.cpu, k.processors, k.memory_mib, k.kernel, c.version, \
         c.build, m.connect_s, m.seconds, m.clients, m.transactions, m.tps, m.mean_ms, m.p50_ms, \
         m.p95_ms, m.p99_ms, m.max_ms, m.retries, m.stragglers, m.overdue, m.connection_losses, \
         m.client_cpu_us, m.client_core_share, m.other_executors, b.spec",
        "JOIN experiment e ON e.id = r.experiment LEFT JOIN measurement m ON m.execution = x.id \
         LEFT JOIN attempt a ON a.id = m.attempt LEFT JOIN start s ON s.id = a.start \
         LEFT JOIN machine k ON k.id = s.machine LEFT JOIN code c ON c.id = s.code"
    ),
};

const ATTEMPTS: Table = Table {
    name: "attempts",
    scope: Scope::Batchset,
    columns: with_execution![
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
    keys: 7,
    last: Last::Plain,
    sql: of_batchset!(
        "a.id, a.number, a.seed, a.began_us, s.version, k.cpu, k.kernel, c.version, c.build, \
         CASE WHEN m.attempt IS NOT NULL THEN 'measured' WHEN f.attempt IS NOT NULL \
         THEN 'failed' ELSE 'cut off' END, f.reason",
        "JOIN attempt a ON a.execution = x.id JOIN start s ON s.id = a.start \
         JOIN machine k ON k.id = s.machine JOIN code c ON c.id = s.code \
         LEFT JOIN measurement m ON m.attempt = a.id LEFT JOIN failure f ON f.attempt = a.id"
    ),
};

const KINDS: Table = Table {
    name: "kinds",
    scope: Scope::Batchset,
    columns: with_execution![
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
    keys: 8,
    last: Last::Plain,
    sql: of_batchset!(
        "q.workload, q.kind, q.committed, q.rolled_back, q.mean_ms, q.p50_ms, q.p95_ms, \
         q.p99_ms, q.max_ms",
        "JOIN attempt a ON a.execution = x.id JOIN kind q ON q.attempt = a.id"
    ),
};

const INTERVALS: Table = Table {
    name: "intervals",
    scope: Scope::Batchset,
    columns: with_execution![
        whole("interval"),
        real("until_s"),
        whole("transactions"),
        real("mean_ms"),
        real("p99_ms"),
    ],
    keys: 7,
    last: Last::Plain,
    sql: of_batchset!(
        "i.number, i.until_s, i.transactions, i.mean_ms, i.p99_ms",
        "JOIN attempt a ON a.execution = x.id JOIN interval_seen i ON i.attempt = a.id"
    ),
};

const HISTOGRAMS: Table = Table {
    name: "histograms",
    scope: Scope::Batchset,
    columns: with_execution![whole("interval"), whole("latency_us"), whole("transactions")],
    keys: 8,
    last: Last::Histogram,
    sql: of_batchset!(
        "i.number, i.histogram",
        "JOIN attempt a ON a.execution = x.id JOIN interval_seen i ON i.attempt = a.id"
    ),
};

const TROUBLES: Table = Table {
    name: "troubles",
    scope: Scope::Batchset,
    columns: with_execution![words("trouble"), words("what"), whole("times")],
    keys: 8,
    last: Last::Plain,
    sql: of_batchset!(
        "t.kind, t.what, t.times",
        "JOIN attempt a ON a.execution = x.id JOIN trouble t ON t.attempt = a.id"
    ),
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
        words("condition"),
        whole("holds"),
        words("violation"),
    ],
    keys: 4,
    last: Last::Plain,
    sql: "SELECT r.experiment, r.number, b.number, y.id, y.start, y.condition, \
          CASE WHEN y.violation IS NULL THEN 1 ELSE 0 END, y.violation \
          FROM run r JOIN batchset b ON b.run = r.id JOIN consistency y ON y.batchset = b.id \
          WHERE b.id = ?",
};

const THRASHING_POINTS: Table = Table {
    name: "thrashing_points",
    scope: Scope::Batchset,
    columns: &[
        whole("experiment"),
        whole("run"),
        whole("batchset"),
        whole("analysis"),
        whole("found_us"),
        words("protocol"),
        words("rule"),
        whole("thrashing_point"),
        whole("low"),
        whole("high"),
        words("caveats"),
    ],
    keys: 4,
    last: Last::Plain,
    sql: "SELECT r.experiment, r.number, b.number, p.id, p.found_us, p.protocol, p.rule, p.mpl, \
          p.low, p.high, p.caveats \
          FROM run r JOIN batchset b ON b.run = r.id JOIN thrashing_point p ON p.batchset = b.id \
          WHERE b.id = ?",
};

impl Store {
    /// The rows of a table that belong to an experiment or a batchset, sorted.
    pub(super) fn rows(
        &mut self,
        table: &Table,
        experiment: &Experiment,
        of: i64,
    ) -> Result<Vec<Vec<Cell>>, StoreError> {
        let found = self.query(table.sql, &[of.into()])?;
        let mut rows = Vec::new();
        for place in 0..found.len() {
            let row = cells(table, &found, place)?;
            match table.last {
                Last::Plain => rows.push(row),
                Last::Workload => rows.push(with_workload(row)?),
                Last::File => rows.push(with_settings(row, experiment)),
                Last::Histogram => rows.extend(buckets(row)?),
            }
        }
        rows.sort_by(|one, other| by_keys(&one[..table.keys], &other[..table.keys]));
        Ok(rows)
    }
}

/// What the statement gives of a row.
fn cells(table: &Table, found: &Rows, row: usize) -> Result<Vec<Cell>, StoreError> {
    let of_kind = |(place, kind)| {
        Ok(match kind {
            _ if found.is_null(row, place) => Cell::Null,
            Kind::Int => Cell::Int(int(found, row, place)?),
            Kind::Real => Cell::Real(float(found, row, place)?),
            Kind::Text => Cell::Text(text(found, row, place)),
        })
    };
    // A histogram stands where its first column will be.
    let is_histogram = |place| table.last == Last::Histogram && place + 1 == found.width();
    let kind = |(place, column): (usize, &Column)| {
        (place, if is_histogram(place) { Kind::Text } else { column.kind })
    };
    table.columns.iter().take(found.width()).enumerate().map(kind).map(of_kind).collect()
}

/// The order in which databases agree: by number, or byte by byte.
fn by_keys(one: &[Cell], other: &[Cell]) -> Ordering {
    let pairs = one.iter().zip(other);
    let orders = pairs.map(|pair| match pair {
        (Cell::Int(one), Cell::Int(other)) => one.cmp(other),
        (Cell::Text(one), Cell::Text(other)) => one.cmp(other),
        _ => Ordering::Equal,
    });
    orders.fold(Ordering::Equal, Ordering::then)
}

/// The row and what its last cell, a workload's description, says by name.
fn with_workload(mut row: Vec<Cell>) -> Result<Vec<Cell>, StoreError> {
    let spec = match row.last() {
        Some(Cell::Text(spec)) => parsed(spec, "a workload")?,
        _ => Value::Null,
    };
    let whole = |name| spec[name].as_i64().map_or(Cell::Null, Cell::Int);
    let real = |name| spec[name].as_f64().map_or(Cell::Null, Cell::Real);
    let placement = spec["placement"].as_str().map(str::to_owned);
    row.extend([whole("scale"), whole("rows"), real("sf"), real("rose")]);
    row.push(placement.map_or(Cell::Null, Cell::Text));
    row.extend([whole("reads"), whole("updates"), whole("changes"), whole("joins")]);
    Ok(row)
}

/// The row and what the experiment's file, with its preset and defaults, says of all executions.
fn with_settings(mut row: Vec<Cell>, experiment: &Experiment) -> Vec<Cell> {
    let Experiment { ctl, warmup, pause, connect, interval, .. } = experiment;
    let times = [ctl, warmup, pause, connect, interval];
    row.extend(times.map(|time| Cell::Real(time.as_secs_f64())));
    row.push(Cell::Int(experiment.repetitions.into()));
    row
}

/// A row for each pair of latency and count in the last cell.
fn buckets(mut row: Vec<Cell>) -> Result<Vec<Vec<Cell>>, StoreError> {
    let pairs: Vec<(i64, i64)> = match row.pop() {
        Some(Cell::Text(pairs)) => parsed(&pairs, "a histogram")?,
        _ => Vec::new(),
    };
    let bucket = |(latency_us, count)| {
        let mut bucket = row.clone();
        bucket.extend([Cell::Int(latency_us), Cell::Int(count)]);
        bucket
    };
    Ok(pairs.into_iter().map(bucket).collect())
}

fn parsed<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(format!("{what}: {error}")))
}
