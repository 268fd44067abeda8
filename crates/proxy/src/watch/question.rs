//! What the watch asks a server, and how the answers read.

use std::fmt::Write;
use std::time::Duration;

use tidegate_wire::frontend;

use super::link::{APPLICATION, Row};
use super::maturity::Holder;
use super::view::Activity;

/// Waits for the log or a page to be written or read by another session, which are waits for the
/// disk although the server lists them elsewhere. The names are those of versions 10 to 17.
const WAITS_FOR_IO: &str = "'WALWrite', 'WALWriteLock', 'BufferIO', 'BufferIo', 'buffer_io'";

/// How long the server lets a question run, in case its answer is no longer waited for.
const STATEMENT_TIMEOUT: &str = "5s";

/// The questions to one server, as bytes.
pub(super) struct Questions {
    sessions_sql: String,
    locks_sql: String,
    sessions: Vec<u8>,
    locks: Vec<u8>,
}

impl Questions {
    /// The questions about the sessions of these databases; `None` is every database.
    pub(super) fn new(counted: Option<&[String]>) -> Questions {
        let ours = ours(counted);
        Questions {
            sessions_sql: sessions_sql(&ours),
            locks_sql: locks_sql(&ours),
            sessions: execute("sessions"),
            locks: execute("locks"),
        }
    }

    /// Prepares the connection. The answer is for [`Sight::read`].
    pub(super) fn prepare(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, sql) in [("sessions", &self.sessions_sql), ("locks", &self.locks_sql)] {
            frontend::encode_parse(
                &mut out,
                name.as_bytes(),
                &frontend::definition(sql.as_bytes()),
            );
        }
        let sql = format!(
            "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE'), \
             current_setting('track_activities') = 'on', \
             set_config('statement_timeout', '{STATEMENT_TIMEOUT}', false)"
        );
        frontend::encode_parse(&mut out, b"", &frontend::definition(sql.as_bytes()));
        frontend::encode_bind_text(&mut out, b"", std::iter::empty());
        frontend::encode_execute(&mut out);
        out.extend_from_slice(frontend::SYNC);
        out
    }

    /// What each session does. The answer is for [`sessions`].
    pub(super) fn sessions(&self) -> &[u8] {
        &self.sessions
    }

    /// Who holds how many locks. The answer is for [`locks`].
    pub(super) fn locks(&self) -> &[u8] {
        &self.locks
    }
}

fn execute(statement: &str) -> Vec<u8> {
    let mut out = Vec::new();
    frontend::encode_bind_text(&mut out, statement.as_bytes(), std::iter::empty());
    frontend::encode_execute(&mut out);
    out.extend_from_slice(frontend::SYNC);
    out
}

/// The condition that a session is a client's, in one of these databases.
fn ours(counted: Option<&[String]>) -> String {
    let mut sql = format!(
        "pid <> pg_backend_pid() AND usesysid IS NOT NULL \
         AND application_name <> {} \
         AND coalesce(backend_type, '') IN ('', 'client backend', 'parallel worker')",
        literal(APPLICATION)
    );
    if let Some(names) = counted {
        let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
        let _ = write!(
            sql,
            " AND datid IN (SELECT oid FROM pg_database WHERE datname IN ({}))",
            names.join(", ")
        );
    }
    sql
}

/// A string constant, whatever `standard_conforming_strings` is.
fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// Microseconds since the server began to work on the question.
const TOOK: &str = "(extract(epoch FROM clock_timestamp() - statement_timestamp()) * 1e6)::bigint";

fn sessions_sql(ours: &str) -> String {
    let contention = "wait_event_type LIKE 'LWLock%' OR wait_event_type = 'BufferPin'";
    format!(
        "SELECT count(*) FILTER (WHERE active AND wait_event_type IS NULL), \
         count(*) FILTER (WHERE active AND wait_event_type = 'Lock'), \
         count(*) FILTER (WHERE active AND NOT for_io AND ({contention})), \
         count(*) FILTER (WHERE active AND (for_io OR wait_event_type = 'IO')), \
         count(*) FILTER (WHERE active AND wait_event_type = 'Client'), \
         count(*) FILTER (WHERE active), \
         count(*) FILTER (WHERE state LIKE 'idle in transaction%'), \
         count(*) FILTER (WHERE hidden), \
         {TOOK} \
         FROM (SELECT state, wait_event_type, \
         coalesce(state, '') IN ('active', 'fastpath function call') AS active, \
         coalesce(wait_event, '') IN ({WAITS_FOR_IO}) AS for_io, \
         state = 'disabled' OR query = '<insufficient privilege>' AS hidden \
         FROM pg_stat_get_activity(NULL) WHERE {ours}) AS seen"
    )
}

fn locks_sql(ours: &str) -> String {
    format!(
        "SELECT session.pid || ' ' || held.virtualtransaction, \
         count(*) FILTER (WHERE held.granted AND held.locktype <> 'virtualxid'), \
         bool_or(NOT held.granted), \
         bool_or(session.state LIKE 'idle%'), \
         {TOOK} \
         FROM (SELECT pid, state FROM pg_stat_get_activity(NULL) \
         WHERE {ours} AND backend_type = 'client backend') AS session \
         JOIN pg_lock_status() AS held USING (pid) \
         GROUP BY session.pid, held.virtualtransaction"
    )
}

/// What the watch may see.
pub(super) struct Sight {
    /// It may see the sessions of other users.
    pub(super) sees_all: bool,
    /// The server keeps track of what sessions do.
    pub(super) is_tracked: bool,
}

impl Sight {
    /// Reads the answer to [`Questions::prepare`].
    pub(super) fn read(rows: &[Row]) -> Sight {
        let is_true = |column| rows.first().is_some_and(|row| row.is_true(column));
        Sight { sees_all: is_true(0), is_tracked: is_true(1) }
    }
}

fn took(row: &Row, column: usize) -> Duration {
    // A clock that is set back gives a negative time.
    Duration::from_micros(row.number(column).unwrap_or(0))
}

/// Reads what sessions do, and how long the server took to tell; `None` if it is unreadable.
pub(super) fn sessions(rows: &[Row]) -> Option<(Activity, Duration)> {
    let row = rows.first()?;
    let count = |column| row.number::<u32>(column);
    let [processor, lock, lwlock, io, client, active] =
        [count(0)?, count(1)?, count(2)?, count(3)?, count(4)?, count(5)?];
    let known = [processor, lock, lwlock, io, client]
        .iter()
        .fold(0_u32, |sum, &count| sum.saturating_add(count));
    let activity = Activity {
        processor,
        lock,
        lwlock,
        io,
        client,
        other: active.saturating_sub(known),
        idle_in_transaction: count(6)?,
        hidden: count(7)?,
    };
    Some((activity, took(row, 8)))
}

/// Reads who holds how many locks, and how long the server took to tell if there is a row to say
/// so; `None` if it is unreadable.
pub(super) fn locks(rows: &[Row]) -> Option<(Vec<Holder>, Option<Duration>)> {
    let holder = |row: &Row| {
        Some(Holder {
            transaction: row.text(0)?.to_owned(),
            locks: row.number(1)?,
            is_waiting: row.is_true(2),
            is_idle: row.is_true(3),
        })
    };
    let holders = rows.iter().map(holder).collect::<Option<Vec<Holder>>>()?;
    Some((holders, rows.last().map(|row| took(row, 4))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_nonsense_is_not() {
        let row = Row::of(&["1", "2", "3", "4", "5", "21", "7", "8", "140"]);
        let (activity, took) = sessions(&[row]).unwrap();
        assert_eq!(activity.other, 6);
        assert_eq!((activity.idle_in_transaction, activity.hidden), (7, 8));
        assert_eq!(took, Duration::from_micros(140));
        assert!(sessions(&[]).is_none());
        assert!(sessions(&[Row::of(&["1", "2"])]).is_none());
        let back = Row::of(&["0", "0", "0", "0", "0", "0", "0", "0", "-5"]);
        assert_eq!(sessions(&[back]).unwrap().1, Duration::ZERO);
    }

    #[test]
    fn the_holders_of_locks_are_read() {
        let rows =
            [Row::of(&["9 3/4", "5", "t", "f", "300"]), Row::of(&["8 1/2", "0", "f", "t", "301"])];
        let (holders, took) = locks(&rows).unwrap();
        assert_eq!(took, Some(Duration::from_micros(301)));
        assert_eq!((holders[0].locks, holders[0].is_waiting, holders[0].is_idle), (5, true, false));
        assert_eq!(holders[1].transaction, "8 1/2");
        assert_eq!(locks(&[]).unwrap(), (Vec::new(), None));
        assert!(locks(&[Row::of(&["9 3/4", "many", "t", "f", "1"])]).is_none());
    }

    #[test]
    fn names_of_databases_are_constants_in_the_question() {
        let names = ["it's".to_owned(), "a\\'b".to_owned()];
        let questions = Questions::new(Some(&names));
        assert!(questions.sessions_sql.contains("datname IN ('it''s', E'a\\\\''b')"));
        assert!(!Questions::new(None).sessions_sql.contains("datname"));
    }
}
