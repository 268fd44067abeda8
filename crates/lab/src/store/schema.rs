//! The tables of the result store, as numbered steps from an empty database.
//!
//! A step, once released, is never changed: a store knows which steps it has gone through, and a
//! newer program goes through the rest. `docs/results.md` describes the tables.

use tidegate_workload::Dialect;

/// The version that this program writes and reads: the number of the last step.
pub const VERSION: usize = STEPS.len();

/// The steps. `{id}` is a number that the database gives out, `{real}` a number of 64 bits with a
/// point.
const STEPS: [&[&str]; 8] =
    [FIRST, ANALYSES, TIMES, SUBJECT_CPU, HOSTS, EXPORTS, POSTERIORS, LOCKING];

/// What is planned, tried and measured.
const FIRST: &[&str] = &[
    "CREATE TABLE machine (id {id}, host text NOT NULL, cpu text NOT NULL, \
     processors integer NOT NULL, memory_mib bigint NOT NULL, kernel text NOT NULL, \
     UNIQUE (host, cpu, processors, memory_mib, kernel))",
    "CREATE TABLE code (id {id}, version text NOT NULL, build text NOT NULL, \
     UNIQUE (version, build))",
    "CREATE TABLE experiment (id {id}, name text NOT NULL, scenario text NOT NULL, \
     preset text NOT NULL, subjects text NOT NULL, seed bigint NOT NULL, file text NOT NULL, \
     machine integer NOT NULL REFERENCES machine (id), \
     code integer NOT NULL REFERENCES code (id), began_us bigint NOT NULL)",
    "CREATE TABLE run (id {id}, experiment integer NOT NULL REFERENCES experiment (id), \
     number integer NOT NULL, subject text NOT NULL, processors integer NOT NULL, \
     primary_key integer NOT NULL, isolation text NOT NULL, settings text NOT NULL, \
     UNIQUE (experiment, number))",
    "CREATE TABLE batchset (id {id}, run integer NOT NULL REFERENCES run (id), \
     number integer NOT NULL, workload text NOT NULL, spec text NOT NULL, \
     treatment text NOT NULL, UNIQUE (run, number))",
    "CREATE TABLE execution (id {id}, batchset integer NOT NULL REFERENCES batchset (id), \
     mpl integer NOT NULL, repetition integer NOT NULL, place integer NOT NULL, \
     UNIQUE (batchset, mpl, repetition))",
    "CREATE TABLE start (id {id}, run integer NOT NULL REFERENCES run (id), \
     machine integer NOT NULL REFERENCES machine (id), \
     code integer NOT NULL REFERENCES code (id), version text NOT NULL, settings text NOT NULL, \
     processors integer NOT NULL, began_us bigint NOT NULL)",
    "CREATE TABLE attempt (id {id}, execution integer NOT NULL REFERENCES execution (id), \
     number integer NOT NULL, start integer NOT NULL REFERENCES start (id), \
     seed bigint NOT NULL, began_us bigint NOT NULL, UNIQUE (execution, number))",
    "CREATE TABLE failure (attempt integer PRIMARY KEY REFERENCES attempt (id), \
     reason text NOT NULL)",
    "CREATE TABLE measurement (attempt integer PRIMARY KEY REFERENCES attempt (id), \
     execution integer NOT NULL UNIQUE REFERENCES execution (id), ended_us bigint NOT NULL, \
     connect_s {real} NOT NULL, seconds {real} NOT NULL, clients integer NOT NULL, \
     transactions bigint NOT NULL, tps {real} NOT NULL, mean_ms {real} NOT NULL, \
     p50_ms {real} NOT NULL, p95_ms {real} NOT NULL, p99_ms {real} NOT NULL, \
     max_ms {real} NOT NULL, retries bigint NOT NULL, stragglers integer NOT NULL, \
     overdue bigint NOT NULL, connection_losses integer NOT NULL, client_cpu_us {real} NOT NULL, \
     client_core_share {real} NOT NULL, processors integer NOT NULL, \
     other_executors integer NOT NULL, report text NOT NULL)",
    "CREATE TABLE kind (attempt integer NOT NULL REFERENCES attempt (id), \
     workload text NOT NULL, kind text NOT NULL, committed bigint NOT NULL, \
     rolled_back bigint NOT NULL, mean_ms {real} NOT NULL, p50_ms {real} NOT NULL, \
     p95_ms {real} NOT NULL, p99_ms {real} NOT NULL, max_ms {real} NOT NULL, \
     PRIMARY KEY (attempt, workload, kind))",
    "CREATE TABLE interval_seen (attempt integer NOT NULL REFERENCES attempt (id), \
     number integer NOT NULL, until_s {real} NOT NULL, transactions bigint NOT NULL, \
     mean_ms {real} NOT NULL, p99_ms {real} NOT NULL, histogram text NOT NULL, \
     PRIMARY KEY (attempt, number))",
    "CREATE TABLE limit_seen (attempt integer NOT NULL REFERENCES attempt (id), \
     number integer NOT NULL, at_s {real} NOT NULL, interval_s {real} NOT NULL, \
     mpl integer NOT NULL, next_mpl integer NOT NULL, reason text NOT NULL, tps {real} NOT NULL, \
     concurrency {real} NOT NULL, PRIMARY KEY (attempt, number))",
    "CREATE TABLE class_seen (attempt integer NOT NULL REFERENCES attempt (id), \
     class text NOT NULL, transactions bigint NOT NULL, mean_ms {real} NOT NULL, \
     p50_ms {real} NOT NULL, p95_ms {real} NOT NULL, p99_ms {real} NOT NULL, \
     max_ms {real} NOT NULL, PRIMARY KEY (attempt, class))",
    "CREATE TABLE tree_seen (attempt integer NOT NULL REFERENCES attempt (id), \
     number integer NOT NULL, tree text NOT NULL, at_s {real} NOT NULL, leaves bigint NOT NULL, \
     entries bigint NOT NULL, fill {real} NOT NULL, logical_reads bigint NOT NULL, \
     physical_reads bigint NOT NULL, writes bigint NOT NULL, fills text, \
     PRIMARY KEY (attempt, number, tree))",
    "CREATE TABLE trouble (attempt integer NOT NULL REFERENCES attempt (id), \
     kind text NOT NULL, what text NOT NULL, times bigint NOT NULL, \
     PRIMARY KEY (attempt, kind, what))",
    "CREATE TABLE consistency (id {id}, start integer NOT NULL REFERENCES start (id), \
     batchset integer NOT NULL REFERENCES batchset (id), condition text NOT NULL, \
     violation text)",
    "CREATE TABLE thrashing_point (id {id}, batchset integer NOT NULL REFERENCES batchset (id), \
     protocol text NOT NULL, rule text NOT NULL, mpl integer, low integer NOT NULL, high integer, \
     caveats text NOT NULL, found_us bigint NOT NULL)",
];

/// What an analysis counted, dropped and found; kinds of transactions interval by interval.
const ANALYSES: &[&str] = &[
    "CREATE TABLE analysis (id {id}, experiment integer NOT NULL REFERENCES experiment (id), \
     protocol text NOT NULL, rule text NOT NULL, code integer NOT NULL REFERENCES code (id), \
     found_us bigint NOT NULL)",
    "CREATE TABLE tap_count (analysis integer NOT NULL REFERENCES analysis (id), \
     step text NOT NULL, name text NOT NULL, part text NOT NULL, level text NOT NULL, \
     number integer, checked bigint NOT NULL, found bigint NOT NULL, batchsets bigint, \
     PRIMARY KEY (analysis, step, name, part, level))",
    "CREATE TABLE tap_drop (id {id}, analysis integer NOT NULL REFERENCES analysis (id), \
     step text NOT NULL, name text NOT NULL, \
     batchset integer NOT NULL REFERENCES batchset (id), \
     execution integer REFERENCES execution (id), why text NOT NULL)",
    "CREATE TABLE interval_kind (attempt integer NOT NULL REFERENCES attempt (id), \
     number integer NOT NULL, workload text NOT NULL, kind text NOT NULL, \
     transactions bigint NOT NULL, mean_ms {real} NOT NULL, p99_ms {real} NOT NULL, \
     PRIMARY KEY (attempt, number, workload, kind))",
    "ALTER TABLE thrashing_point ADD COLUMN analysis integer REFERENCES analysis (id)",
    "ALTER TABLE thrashing_point ADD COLUMN atpt_ms {real}",
];

/// The times in force, with the preset and the defaults of the program that planned.
const TIMES: &[&str] = &[
    "ALTER TABLE experiment ADD COLUMN ctl_s {real}",
    "ALTER TABLE experiment ADD COLUMN warmup_s {real}",
    "ALTER TABLE experiment ADD COLUMN pause_s {real}",
    "ALTER TABLE experiment ADD COLUMN connect_limit_s {real}",
    "ALTER TABLE experiment ADD COLUMN interval_s {real}",
];

/// What the subject's processes worked.
const SUBJECT_CPU: &[&str] = &[
    "ALTER TABLE measurement ADD COLUMN subject_cpu_us {real}",
    "ALTER TABLE measurement ADD COLUMN subject_core_share {real}",
];

/// Which host measured: all of a batchset is one host's, and the runs go to hosts by their levels.
///
/// A `series` is what one host measured of a batchset. A host that goes on with another's batchset
/// begins a series, and only the last counts: `measurement`, a table in the versions before, shows
/// it. Measurements of older stores are one series of each batchset, whatever hosts made them.
const HOSTS: &[&str] = &[
    "CREATE TABLE series (id {id}, batchset integer NOT NULL REFERENCES batchset (id), number \
     integer NOT NULL, host text NOT NULL, UNIQUE (batchset, number))",
    "INSERT INTO series (batchset, number, host) SELECT l.batchset, 1, k.host FROM (SELECT \
     x.batchset AS batchset, MAX(m.attempt) AS attempt FROM measurement m JOIN execution x ON \
     x.id = m.execution GROUP BY x.batchset) l JOIN attempt a ON a.id = l.attempt JOIN start s \
     ON s.id = a.start JOIN machine k ON k.id = s.machine",
    "CREATE TABLE measurement_taken (attempt integer PRIMARY KEY REFERENCES attempt (id), \
     execution integer NOT NULL REFERENCES execution (id), series integer NOT NULL REFERENCES \
     series (id), ended_us bigint NOT NULL, connect_s {real} NOT NULL, seconds {real} NOT NULL, \
     clients integer NOT NULL, transactions bigint NOT NULL, tps {real} NOT NULL, mean_ms \
     {real} NOT NULL, p50_ms {real} NOT NULL, p95_ms {real} NOT NULL, p99_ms {real} NOT NULL, \
     max_ms {real} NOT NULL, retries bigint NOT NULL, stragglers integer NOT NULL, overdue \
     bigint NOT NULL, connection_losses integer NOT NULL, client_cpu_us {real} NOT NULL, \
     client_core_share {real} NOT NULL, processors integer NOT NULL, other_executors integer \
     NOT NULL, report text NOT NULL, subject_cpu_us {real}, subject_core_share {real}, UNIQUE \
     (execution, series))",
    "INSERT INTO measurement_taken (attempt, execution, ended_us, connect_s, seconds, clients, \
     transactions, tps, mean_ms, p50_ms, p95_ms, p99_ms, max_ms, retries, stragglers, overdue, \
     connection_losses, client_cpu_us, client_core_share, processors, other_executors, report, \
     subject_cpu_us, subject_core_share, series) SELECT m.attempt, m.execution, m.ended_us, \
     m.connect_s, m.seconds, m.clients, m.transactions, m.tps, m.mean_ms, m.p50_ms, m.p95_ms, \
     m.p99_ms, m.max_ms, m.retries, m.stragglers, m.overdue, m.connection_losses, \
     m.client_cpu_us, m.client_core_share, m.processors, m.other_executors, m.report, \
     m.subject_cpu_us, m.subject_core_share, s.id FROM measurement m JOIN execution x ON x.id = \
     m.execution JOIN series s ON s.batchset = x.batchset",
    "DROP TABLE measurement",
    "CREATE VIEW measurement AS SELECT attempt, execution, ended_us, connect_s, seconds, \
     clients, transactions, tps, mean_ms, p50_ms, p95_ms, p99_ms, max_ms, retries, stragglers, \
     overdue, connection_losses, client_cpu_us, client_core_share, processors, other_executors, \
     report, subject_cpu_us, subject_core_share FROM measurement_taken m WHERE NOT EXISTS \
     (SELECT 1 FROM series s JOIN series n ON n.batchset = s.batchset AND n.number > s.number \
     WHERE s.id = m.series)",
    "CREATE TABLE turn (id {id}, experiment integer NOT NULL REFERENCES experiment (id), place \
     integer NOT NULL, run integer NOT NULL UNIQUE REFERENCES run (id), host text NOT NULL, \
     UNIQUE (experiment, place))",
];

/// The tables of an export as views. The text has a statement up to each `;` that ends a line.
const EXPORTS: &[&str] = &[include_str!("exports.sql")];

/// How probable each thrashing point is, and none, beside the one of the rule.
const POSTERIORS: &[&str] = &[
    "CREATE TABLE thrashing_posterior (point integer PRIMARY KEY REFERENCES thrashing_point (id), \
     model text NOT NULL, draws integer NOT NULL, seed bigint NOT NULL, noise {real} NOT NULL, \
     noise_measured integer NOT NULL)",
    "CREATE TABLE thrashing_outcome (point integer NOT NULL \
     REFERENCES thrashing_posterior (point), number integer NOT NULL, mpl integer, \
     low integer NOT NULL, high integer, prior {real} NOT NULL, probability {real} NOT NULL, \
     PRIMARY KEY (point, number))",
    "CREATE VIEW export_thrashing_posteriors AS SELECT r.experiment, r.number AS run, \
     b.number AS batchset, q.point, o.number AS outcome, p.analysis, o.mpl AS thrashing_point, \
     o.low, o.high, o.prior, o.probability, q.model, q.draws, q.seed, q.noise, q.noise_measured \
     FROM run r JOIN batchset b ON b.run = r.id JOIN thrashing_point p ON p.batchset = b.id \
     JOIN thrashing_posterior q ON q.point = p.id JOIN thrashing_outcome o ON o.point = q.point",
];

/// What transactions locked in documents, and what a store in our process read and wrote.
const LOCKING: &[&str] = &[
    "CREATE TABLE locking_seen (attempt integer NOT NULL REFERENCES attempt (id), \
     workload text NOT NULL, kind text NOT NULL, runs bigint NOT NULL, requests bigint NOT NULL, \
     locks bigint NOT NULL, conversions bigint NOT NULL, escalations bigint NOT NULL, \
     waits bigint NOT NULL, request_ms {real} NOT NULL, block_ms {real} NOT NULL, \
     deadlocks bigint NOT NULL, timeouts bigint NOT NULL, preemptions bigint NOT NULL, \
     PRIMARY KEY (attempt, workload, kind))",
    "CREATE TABLE store_seen (attempt integer PRIMARY KEY REFERENCES attempt (id), \
     page_reads bigint NOT NULL, page_writes bigint NOT NULL, log_syncs bigint NOT NULL, \
     log_bytes bigint NOT NULL)",
    "CREATE TABLE conflict_seen (attempt integer NOT NULL REFERENCES attempt (id), \
     cause text NOT NULL, place text NOT NULL, times bigint NOT NULL, \
     PRIMARY KEY (attempt, cause, place))",
];

/// The tables of each step whose rows are added and never changed.
const APPEND_ONLY: [&[&str]; STEPS.len()] = [
    &[
        "machine",
        "code",
        "experiment",
        "run",
        "batchset",
        "execution",
        "start",
        "attempt",
        "failure",
        "measurement",
        "kind",
        "interval_seen",
        "limit_seen",
        "class_seen",
        "tree_seen",
        "trouble",
        "consistency",
    ],
    &["analysis", "tap_count", "tap_drop", "interval_kind", "thrashing_point"],
    &[],
    &[],
    &["series", "measurement_taken", "turn"],
    &[],
    &["thrashing_posterior", "thrashing_outcome"],
    &["locking_seen", "store_seen", "conflict_seen"],
];

/// The statement that makes the table of versions, where it is not there.
pub(super) const VERSIONS: &str =
    "CREATE TABLE IF NOT EXISTS schema_version (version integer PRIMARY KEY)";

/// The statements that lead from version `from` to the next.
pub(super) fn step(from: usize, dialect: Dialect) -> Option<Vec<String>> {
    let (id, real) = match dialect {
        Dialect::Postgres => {
            ("integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "double precision")
        }
        _ => ("integer PRIMARY KEY AUTOINCREMENT", "real"),
    };
    let statements = STEPS.get(from)?.iter().flat_map(|text| text.split_terminator(";\n"));
    let mut all: Vec<String> =
        statements.map(|statement| statement.replace("{id}", id).replace("{real}", real)).collect();
    if from == 0 && dialect == Dialect::Postgres {
        all.push(REFUSE_CHANGE.to_owned());
    }
    all.extend(APPEND_ONLY.get(from)?.iter().flat_map(|table| guards(table, dialect)));
    Some(all)
}

/// What PostgreSQL's guards call.
const REFUSE_CHANGE: &str = "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME; END $$";

/// What makes the database refuse changes of a table's rows.
fn guards(table: &str, dialect: Dialect) -> [String; 2] {
    ["UPDATE", "DELETE"].map(|change| {
        let name = format!("{table}_no_{}", change.to_lowercase());
        match dialect {
            Dialect::Postgres => format!(
                "CREATE TRIGGER {name} BEFORE {change} ON {table} \
                 FOR EACH ROW EXECUTE FUNCTION refuse_change()"
            ),
            _ => format!(
                "CREATE TRIGGER {name} BEFORE {change} ON {table} \
                 BEGIN SELECT RAISE(ABORT, 'rows of {table} are never changed'); END"
            ),
        }
    })
}

#[cfg(test)]
mod tests {
    use tidegate_subject::connection::Transactional;
    use tidegate_subject::postgres::{self, Postgres};
    use tidegate_subject::sqlite::SqliteConnection;
    use tidegate_workload::{Statement, Wants};

    use super::*;
    use crate::store::Store;

    /// An experiment of one execution and its thrashing point, as the first version wrote them, and
    /// a second execution of the batchset, which another host had measured.
    const OLD: [&str; 11] = [
        "INSERT INTO machine (host, cpu, processors, memory_mib, kernel) \
         VALUES ('h', 'c', 1, 1, 'k')",
        "INSERT INTO code (version, build) VALUES ('0', 'b')",
        "INSERT INTO experiment (name, scenario, preset, subjects, seed, file, machine, code, \
         began_us) VALUES ('old', 'thrash', '', 'simulated', 1, '', 1, 1, 1)",
        "INSERT INTO run (experiment, number, subject, processors, primary_key, isolation, \
         settings) VALUES (1, 1, 'simulated', 1, 1, '', '{}')",
        "INSERT INTO batchset (run, number, workload, spec, treatment) \
         VALUES (1, 1, 'thrash', '{}', '{}')",
        "INSERT INTO execution (batchset, mpl, repetition, place) VALUES (1, 100, 1, 0)",
        "INSERT INTO thrashing_point (batchset, protocol, rule, mpl, low, high, caveats, found_us) \
         VALUES (1, 'tap v1', 'equation-1 v1', 100, 100, 200, '[]', 5)",
        "INSERT INTO machine (host, cpu, processors, memory_mib, kernel) \
         VALUES ('another', 'c', 1, 1, 'k')",
        "INSERT INTO execution (batchset, mpl, repetition, place) VALUES (1, 200, 1, 1)",
        "INSERT INTO start (run, machine, code, version, settings, processors, began_us) \
         VALUES (1, 1, 1, 'v', '[]', 1, 1), (1, 2, 1, 'v', '[]', 1, 2)",
        "INSERT INTO attempt (execution, number, start, seed, began_us) \
         VALUES (1, 1, 1, 1, 1), (2, 1, 2, 1, 2)",
    ];

    /// What the first version wrote of these attempts.
    const MEASURED: &str = "INSERT INTO measurement (attempt, execution, ended_us, connect_s, \
         seconds, clients, transactions, tps, mean_ms, p50_ms, p95_ms, p99_ms, max_ms, \
         retries, stragglers, overdue, connection_losses, client_cpu_us, client_core_share, \
         processors, other_executors, report) \
         SELECT id, execution, 3, 0, 1, 1, 7, 7, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0, '{}' \
         FROM attempt";

    fn execute(connection: &mut dyn Transactional, sql: &str) -> Result<u64, String> {
        let reply = connection.run(&Statement::written(sql.to_owned()), &[], Wants::Rows);
        let reply = reply.map_err(|failure| failure.to_string())?;
        Ok(reply.rows.int(0, 0).map_or(reply.count, i64::cast_unsigned))
    }

    /// A store of the first version keeps its rows, and is of the newest when it was opened.
    fn brought_up_to_date(connection: &mut dyn Transactional, place: &str) {
        let steps = step(0, connection.dialect()).unwrap();
        let version = "INSERT INTO schema_version (version) VALUES (1)".to_owned();
        for sql in [VERSIONS.to_owned()].into_iter().chain(steps).chain([version]) {
            execute(connection, &sql).unwrap();
        }
        for sql in OLD.into_iter().chain([MEASURED]) {
            execute(connection, sql).unwrap();
        }
        for _ in 0..2 {
            drop(Store::open(place).unwrap());
            for (expected, sql) in [
                (VERSION as u64, "SELECT MAX(version) FROM schema_version"),
                (1, "SELECT COUNT(*) FROM thrashing_point WHERE analysis IS NULL AND mpl = 100"),
                (0, "SELECT COUNT(*) FROM analysis"),
                (1, "SELECT COUNT(*) FROM experiment WHERE ctl_s IS NULL AND interval_s IS NULL"),
                (0, "SELECT COUNT(subject_cpu_us) + COUNT(subject_core_share) FROM measurement"),
                // All of a batchset is one series, and counts, whichever host measured it.
                (14, "SELECT CAST(SUM(transactions) AS bigint) FROM measurement"),
                (1, "SELECT COUNT(*) FROM series WHERE host = 'another' AND number = 1"),
                (0, "SELECT COUNT(*) FROM turn"),
                (2, "SELECT COUNT(*) FROM export_executions"),
                (0, "SELECT COUNT(*) FROM export_thrashing_posteriors"),
                (0, "SELECT COUNT(*) FROM locking_seen"),
            ] {
                assert_eq!(execute(connection, sql), Ok(expected), "{sql}");
            }
        }
        for table in ["thrashing_point", "series", "measurement_taken"] {
            let refused = execute(connection, &format!("DELETE FROM {table}")).unwrap_err();
            assert!(refused.contains("never changed"), "{table}: {refused}");
        }
    }

    #[test]
    fn an_older_file_is_brought_up_to_date() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("old.db");
        let mut connection = SqliteConnection::open(&path, std::time::Duration::ZERO).unwrap();
        brought_up_to_date(&mut connection, path.to_str().unwrap());
    }

    #[test]
    fn an_older_database_is_brought_up_to_date() {
        if let Err(error) = Postgres::find() {
            println!("skipped: {error}");
            return;
        }
        let server = Postgres::start(postgres::Options::default()).unwrap();
        brought_up_to_date(&mut server.connect().unwrap(), &server.url());
    }

    /// The steps that are in stores somewhere, by a hash of their text (FNV-1a). Who changes one
    /// makes stores that call themselves the same and are not: write another step instead.
    #[test]
    fn released_steps_are_as_they_were_released() {
        let hash = |step: &&[&str]| {
            let bytes = step.iter().flat_map(|statement| statement.bytes().chain([0]));
            bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        let found: Vec<u64> = STEPS.iter().map(hash).collect();
        let released = [
            0x9d81_360c_7514_3fbb,
            0xdaad_03b8_2a15_d9ed,
            0x27b1_0c51_4f5f_da33,
            0x402b_18fa_9437_5367,
            0xaf4e_27a4_8f8c_df23,
            0xbf26_fc36_4946_8cdd,
            0x8f10_5a7e_2143_f020,
            0xe38f_d8f9_c4dc_b3a0,
        ];
        assert_eq!(found, released);
    }
}
