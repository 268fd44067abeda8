//! What the watch asks a server, the connection by which it does, and how the answers read.

use crate::tls::settings::Connector;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token, Waker};
use tidegate_wire::backend::{self, tag};
use tidegate_wire::error_response::field;
use tidegate_wire::frame::{HEADER_LEN, frame};
use tidegate_wire::{frontend, startup};

use crate::handshake::{Credentials, Handshake, Progress, UpstreamError};
use crate::hosts::Peer;
use crate::net::{Connection, ReadOutcome};
use crate::shared::Server;

use super::maturity::LockHolder;
use super::samples::Activity;

/// Waits for the log or a page to be written or read by another session, which are waits for the
/// disk although the server lists them elsewhere. The names are those of versions 10 to 17.
const WAITS_FOR_IO: &str = "'WALWrite', 'WALWriteLock', 'BufferIO', 'BufferIo', 'buffer_io'";

/// How long the server lets a query run, in case its answer is no longer awaited.
const STATEMENT_TIMEOUT: &str = "5s";

/// The queries to one server, as bytes.
pub(super) struct WatchQueries {
    sessions_sql: String,
    locks_sql: String,
    sessions: Vec<u8>,
    locks: Vec<u8>,
}

impl WatchQueries {
    /// Returns the queries about the sessions of these databases; `None` is every database.
    pub(super) fn new(counted: Option<&[String]>) -> WatchQueries {
        let ours = ours(counted);
        WatchQueries {
            sessions_sql: sessions_sql(&ours),
            locks_sql: locks_sql(&ours),
            sessions: execute("sessions"),
            locks: execute("locks"),
        }
    }

    /// Prepares the connection. The answer is for [`Visibility::read`].
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

    /// Returns the query what each session does. The answer is for [`sessions`].
    pub(super) fn sessions(&self) -> &[u8] {
        &self.sessions
    }

    /// Returns the query which transaction holds how many locks. The answer is for [`locks`].
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

/// Returns the condition that a session is a client's, in one of these databases.
fn ours(counted: Option<&[String]>) -> String {
    let mut sql = format!(
        "pid <> pg_backend_pid() AND usesysid IS NOT NULL \
         AND application_name <> {} \
         AND coalesce(backend_type, '') IN ('', 'client backend', 'parallel worker')",
        literal(APPLICATION)
    );
    if let Some(names) = counted {
        let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
        let names = names.join(", ");
        sql.extend([" AND datid IN (SELECT oid FROM pg_database WHERE datname IN (", &names, "))"]);
    }
    sql
}

/// Returns a string constant, whatever `standard_conforming_strings` is.
fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// Microseconds since the server began to work on the query.
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

/// What the server lets the watch see.
pub(super) struct Visibility {
    /// It may see the sessions of other users.
    pub(super) sees_all: bool,
    /// The server keeps track of what sessions do.
    pub(super) is_tracked: bool,
}

impl Visibility {
    /// Reads the answer to [`WatchQueries::prepare`].
    pub(super) fn read(rows: &[Row]) -> Visibility {
        let is_true = |column| rows.first().is_some_and(|row| row.is_true(column));
        Visibility { sees_all: is_true(0), is_tracked: is_true(1) }
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
pub(super) fn locks(rows: &[Row]) -> Option<(Vec<LockHolder>, Option<Duration>)> {
    let holder = |row: &Row| {
        Some(LockHolder {
            transaction: row.text(0)?.to_owned(),
            locks: row.number(1)?,
            is_waiting: row.is_true(2),
            is_idle: row.is_true(3),
        })
    };
    let holders = rows.iter().map(holder).collect::<Option<Vec<LockHolder>>>()?;
    Some((holders, rows.last().map(|row| took(row, 4))))
}

const STOP: Token = Token(0);
const SERVER: Token = Token(1);

/// The longest answer, bytes. One row for each of 1,000 transactions takes 60 kB.
const ANSWER_MAX: usize = 4 << 20;

/// The name of this connection in `pg_stat_activity`.
pub(super) const APPLICATION: &str = "tidegate watch";

/// Why a connection ends.
pub(crate) enum SessionEnd {
    /// The watch is stopped.
    Stopped,
    /// It failed.
    Failed(UpstreamError),
}

impl<E: Into<UpstreamError>> From<E> for SessionEnd {
    fn from(error: E) -> SessionEnd {
        SessionEnd::Failed(error.into())
    }
}

/// Lets the thread wait for the server, for time to pass, and for the order to stop.
pub(crate) struct WatchPoll {
    poll: Poll,
    events: Events,
}

impl WatchPoll {
    /// Returns a poll, and what ends every wait at it from then on.
    pub(crate) fn new() -> io::Result<(WatchPoll, Waker)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), STOP)?;
        Ok((WatchPoll { poll, events: Events::with_capacity(4) }, waker))
    }

    /// Waits for the server's socket. Returns whether there was an event before the deadline.
    fn wait(&mut self, deadline: Instant) -> Result<bool, SessionEnd> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.poll.poll(&mut self.events, Some(left)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            if self.events.iter().any(|event| event.token() == STOP) {
                return Err(SessionEnd::Stopped);
            }
            if !self.events.is_empty() {
                return Ok(true);
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Waits for the server's socket, but not beyond the deadline.
    fn wait_for_server(&mut self, deadline: Instant) -> Result<(), SessionEnd> {
        if self.wait(deadline)? { Ok(()) } else { Err(UpstreamError::TimedOut.into()) }
    }

    /// Waits until this moment, whatever the server sends.
    pub(crate) fn sleep_until(&mut self, moment: Instant) -> Result<(), SessionEnd> {
        while self.wait(moment)? {}
        Ok(())
    }
}

/// A connection, and where it leads.
pub(crate) struct WatchConnection(Connection, Peer);

impl WatchConnection {
    /// Connects to a host of the server.
    pub(crate) fn open(
        watch_poll: &mut WatchPoll,
        (server, connector): (&Server, Option<Arc<Connector>>),
        peer: Peer,
        deadline: Instant,
    ) -> Result<WatchConnection, SessionEnd> {
        let mut connection = server.connect(peer, connector)?;
        connection.register(watch_poll.poll.registry(), SERVER)?;
        watch_poll.wait_for_server(deadline)?;
        connection.connected()?;
        Ok(WatchConnection(connection, peer))
    }

    pub(super) fn peer(&self) -> Peer {
        self.1
    }

    /// Logs in to a database, by the name of an application, and waits until the server is ready.
    pub(crate) fn log_in(
        &mut self,
        watch_poll: &mut WatchPoll,
        credentials: &Credentials,
        (database, application): (&str, &str),
        deadline: Instant,
    ) -> Result<(), SessionEnd> {
        let parameters = [
            ("user", &*credentials.user),
            ("database", database),
            ("application_name", application),
        ];
        let mut out = Vec::new();
        let parameters = parameters.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        startup::encode_startup(&mut out, parameters);
        let mut handshake = Handshake::new();
        loop {
            self.0.send(&out)?;
            out.clear();
            let (tag, payload) = self.receive(watch_poll, deadline)?;
            let (message, tls) = ((tag, &*payload), self.0.encryption());
            if handshake.message(message, credentials, tls, &mut out)? == Progress::Ready {
                return Ok(());
            }
        }
    }

    /// Sends a request that ends in one ReadyForQuery. Returns the rows of its answer.
    pub(crate) fn rows(
        &mut self,
        watch_poll: &mut WatchPoll,
        request: &[u8],
        deadline: Instant,
    ) -> Result<Vec<Row>, SessionEnd> {
        self.0.send(request)?;
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            let (tag, payload) = match (self.receive(watch_poll, deadline), &mut refused) {
                // A server that ends the connection says why before.
                (Err(SessionEnd::Failed(_)), Some(_)) => (tag::READY_FOR_QUERY, Vec::new()),
                (received, _) => received?,
            };
            match tag {
                tag::DATA_ROW => rows.push(Row::read(&payload)?),
                tag::ERROR => {
                    let (code, message) = (field(&payload, b'C'), field(&payload, b'M'));
                    refused = Some(UpstreamError::Refused { code, message });
                }
                tag::READY_FOR_QUERY => return refused.map_or(Ok(rows), |error| Err(error.into())),
                _ => {}
            }
        }
    }

    /// Ends the session. The connection is closed when this is dropped.
    pub(crate) fn leave(mut self) {
        self.0.send_last(frontend::TERMINATE);
    }

    /// Returns the next message: its type and payload.
    fn receive(
        &mut self,
        watch_poll: &mut WatchPoll,
        deadline: Instant,
    ) -> Result<(u8, Vec<u8>), SessionEnd> {
        loop {
            self.0.flush()?;
            let head = frame(&self.0.inbox).map_err(|error| invalid(&error.to_string()))?;
            if let Some(head) = head
                && self.0.inbox.len() >= head.len
            {
                let payload = self.0.inbox[HEADER_LEN..head.len].to_vec();
                self.0.inbox.drain(..head.len);
                return Ok((head.tag, payload));
            }
            if self.0.inbox.len() > ANSWER_MAX {
                return Err(invalid("the answer is too long").into());
            }
            let mut chunk = [0; 8 * 1024];
            match self.0.read(&mut chunk) {
                ReadOutcome::Bytes { count, .. } => {
                    self.0.inbox.extend_from_slice(&chunk[..count]);
                }
                ReadOutcome::Nothing => watch_poll.wait_for_server(deadline)?,
                ReadOutcome::Closed => return Err(UpstreamError::Closed.into()),
            }
        }
    }
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A row of an answer, as text; NULL is empty.
pub(crate) struct Row(Vec<String>);

impl Row {
    fn read(payload: &[u8]) -> Result<Row, tidegate_wire::Malformed> {
        let text = |column: Option<&[u8]>| {
            String::from_utf8_lossy(column.unwrap_or_default()).into_owned()
        };
        Ok(Row(backend::data_row(payload)?.map(text).collect()))
    }

    /// Returns the number of columns.
    pub(crate) fn columns(&self) -> usize {
        self.0.len()
    }

    /// Returns the text of a column, if there is one.
    pub(crate) fn text(&self, column: usize) -> Option<&str> {
        self.0.get(column).map(String::as_str)
    }

    /// Returns the number in a column, if there is one.
    pub(crate) fn number<N: std::str::FromStr>(&self, column: usize) -> Option<N> {
        self.text(column)?.parse().ok()
    }

    /// Returns whether a column is true.
    pub(crate) fn is_true(&self, column: usize) -> bool {
        self.text(column) == Some("t")
    }

    #[cfg(test)]
    pub(crate) fn of(columns: &[&str]) -> Row {
        Row(columns.iter().map(|column| (*column).to_owned()).collect())
    }
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
    fn names_of_databases_are_constants_in_the_query() {
        let names = ["it's".to_owned(), "a\\'b".to_owned()];
        let queries = WatchQueries::new(Some(&names));
        assert!(queries.sessions_sql.contains("datname IN ('it''s', E'a\\\\''b')"));
        assert!(!WatchQueries::new(None).sessions_sql.contains("datname"));
    }
}
