//! A blocking client of PostgreSQL and MariaDB, for loading, checking and tests: one query at a
//! time and its answer. What is particular about a protocol is its [`Protocol`].

use std::error::Error;
use std::io;
use std::time::Duration;

use thiserror::Error;
use tidegate_wire::backend::TransactionStatus;
use tidegate_workload::{
    Connection, Dialect, Failure, Reply, Statement, Table, Value, Wants, render_value,
};

use crate::connection::Transactional;
use crate::detection::{Whereabouts, whereabouts};
use crate::stream::{CONNECT_TIMEOUT, Stream};
use crate::url::{self, Url, UrlError};

const READ_LEN: usize = 16 * 1024;

/// How long the text of an INSERT grows before the next row goes into another one. Far below the
/// 16 MiB that MariaDB takes by default, and far above what a round trip costs.
const INSERT_LEN: usize = 256 * 1024;

/// A row's columns as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// A protocol, as a blocking client speaks it: a connection without I/O.
pub trait Protocol: Sized + Send {
    /// Which one it is.
    const PROTOCOL: url::Protocol;
    /// What statements are written in.
    const DIALECT: Dialect;
    /// Whether the count of a statement that returns rows is that of its rows, and not 0.
    const COUNTS_ROWS: bool;
    /// The message that ends a connection.
    const FAREWELL: &'static [u8];

    /// What a server says that it could not do.
    type ServerError: Error + Into<Failure>;
    /// Why the client cannot go on with a server.
    type Error: Error;

    /// Returns a connection about to log in as `url` says, by the name of an application where the
    /// protocol has such names. What is to be sent first is appended to `out`.
    fn start(url: &Url, application: &str, out: &mut Vec<u8>) -> Self;

    /// Appends a query.
    fn encode_query(out: &mut Vec<u8>, sql: &[u8]);

    /// Takes in what arrived, calls `on_answer` for each part of an answer in order and appends to
    /// `out` what the login has to answer.
    ///
    /// # Errors
    /// The connection is of no further use.
    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        on_answer: impl FnMut(Answer<'_, '_, Self::ServerError>),
    ) -> Result<(), Self::Error>;
}

/// Part of a server's answer.
pub enum Answer<'a, 'r, E> {
    /// The columns of a row; `None` is NULL.
    Row(&'a mut dyn Iterator<Item = Option<&'r [u8]>>),
    /// A statement is done.
    Complete {
        /// How many rows it changed.
        count: u64,
        /// Whether it has undone the transaction.
        is_undone: bool,
    },
    /// A statement or the login failed.
    Error(E),
    /// The server waits for a query; the first of these ends the login.
    Ready(TransactionStatus),
}

/// What came of a query.
#[derive(Default)]
struct Outcome {
    count: u64,
    is_undone: bool,
}

/// A logged-in connection that runs one query at a time.
pub struct BlockingClient<P: Protocol> {
    stream: Stream,
    /// What is sent next.
    out: Vec<u8>,
    buffer: Box<[u8]>,
    /// Whether what comes next is the answer to what is sent next.
    is_usable: bool,
    protocol: P,
    status: TransactionStatus,
}

/// What comes of something that is asked of a server.
pub type Answered<T, P> =
    Result<T, ClientError<<P as Protocol>::ServerError, <P as Protocol>::Error>>;

/// Is handed the columns of each row.
type OnRow<'f> = dyn FnMut(&mut dyn Iterator<Item = Option<&[u8]>>) + 'f;

impl<P: Protocol> BlockingClient<P> {
    /// Connects and logs in; see [`Url`] for the form of `url`.
    ///
    /// # Errors
    /// The URL, the way to the server, or the server refuses; see [`ClientError`].
    pub fn connect(url: &str) -> Answered<Self, P> {
        Self::connect_as(url, "tidegate")
    }

    /// As [`BlockingClient::connect`], by the name of an application, by which others know the
    /// session from its beginning.
    pub(crate) fn connect_as(url: &str, application: &str) -> Answered<Self, P> {
        let url: Url = url.parse()?;
        if url.protocol()? != P::PROTOCOL {
            return Err(UrlError::Scheme.into());
        }
        let stream = Stream::connect(&url)
            .map_err(|source| ClientError::Connect { url: url.to_string(), source })?;
        stream.set_timeout(Some(CONNECT_TIMEOUT))?;
        let mut out = Vec::new();
        let protocol = P::start(&url, application, &mut out);
        let buffer = vec![0; READ_LEN].into_boxed_slice();
        let status = TransactionStatus::Idle;
        let mut client = BlockingClient { stream, out, buffer, is_usable: true, protocol, status };
        client.exchange(&mut |_| {})?;
        client.set_timeout(None)?;
        Ok(client)
    }

    /// Returns where the server is.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        whereabouts(&self.stream)
    }

    /// Gives up on an answer that takes longer than `timeout`, and so on the connection; `None`
    /// waits for ever, the default.
    ///
    /// # Errors
    /// The timeout is zero.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Answered<(), P> {
        Ok(self.stream.set_timeout(timeout)?)
    }

    /// Runs `sql` and returns its rows. PostgreSQL takes several statements, and returns the rows
    /// of all of them.
    ///
    /// # Errors
    /// The server reports an error, after which the client can still be used, or the connection
    /// broke, after which it cannot.
    pub fn query(&mut self, sql: &str) -> Answered<Vec<Row>, P> {
        let mut rows = Vec::new();
        self.run_text(sql.as_bytes(), &mut |row| {
            let text = |value| String::from_utf8_lossy(value).into_owned();
            rows.push(row.map(|value| value.map(text)).collect());
        })?;
        Ok(rows)
    }

    /// Returns the first column of the first row of `sql`; empty when there is none or it is NULL.
    ///
    /// # Errors
    /// As [`BlockingClient::query`].
    pub fn value(&mut self, sql: &str) -> Answered<String, P> {
        let first = self.query(sql)?.into_iter().flatten().next().flatten();
        Ok(first.unwrap_or_default())
    }

    fn run_text(&mut self, sql: &[u8], on_row: &mut OnRow<'_>) -> Answered<Outcome, P> {
        self.out.clear();
        P::encode_query(&mut self.out, sql);
        self.exchange(on_row)
    }

    /// Sends what is in `out` and reads until the server is ready again.
    fn exchange(&mut self, on_row: &mut OnRow<'_>) -> Answered<Outcome, P> {
        if !std::mem::take(&mut self.is_usable) {
            return Err(ClientError::Closed);
        }
        let (mut outcome, mut error, mut ready) = (Outcome::default(), None, None);
        loop {
            self.stream.write_all(&self.out)?;
            self.out.clear();
            let count = match self.stream.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let bytes = &self.buffer[..count];
            let received = self.protocol.receive(bytes, &mut self.out, |answer| match answer {
                Answer::Row(columns) => {
                    outcome.count += u64::from(!P::COUNTS_ROWS);
                    on_row(columns);
                }
                Answer::Complete { count, is_undone } => {
                    outcome.count += count;
                    outcome.is_undone |= is_undone;
                }
                Answer::Error(said) => error = Some(said),
                Answer::Ready(status) => ready = Some(status),
            });
            received.map_err(ClientError::Protocol)?;
            match (ready, error.take_if(|_| count == 0 || ready.is_some())) {
                (None, Some(error)) => return Err(ClientError::Server(error)),
                (None, None) if count == 0 => return Err(ClientError::Closed),
                (None, None) => {}
                (Some(status), error) => {
                    (self.is_usable, self.status) = (true, status);
                    return error.map_or(Ok(outcome), |error| Err(ClientError::Server(error)));
                }
            }
        }
    }
}

impl<P: Protocol> Drop for BlockingClient<P> {
    fn drop(&mut self) {
        // A courtesy: the server notices the closed socket as well.
        let _ = self.stream.write_all(P::FAREWELL);
    }
}

impl<P: Protocol> Connection for BlockingClient<P> {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        let mut sql = Vec::new();
        statement.render(P::DIALECT, values, &mut sql);
        let mut reply = Reply::default();
        let outcome = self.run_text(&sql, &mut |columns| {
            if wants == Wants::Rows {
                reply.rows.push_row(columns);
            }
        })?;
        reply.count = outcome.count;
        Ok(reply)
    }
}

impl<P: Protocol> Transactional for BlockingClient<P> {
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(self.run_text(b"BEGIN", &mut |_| {}).map(drop)?)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        let outcome = self.run_text(b"COMMIT", &mut |_| {})?;
        if outcome.is_undone { Err(crate::client::undone()) } else { Ok(()) }
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        if self.status == TransactionStatus::Idle {
            return Ok(());
        }
        Ok(self.run_text(b"ROLLBACK", &mut |_| {}).map(drop)?)
    }

    fn dialect(&self) -> Dialect {
        P::DIALECT
    }

    /// Inserts many rows by each statement.
    fn insert(&mut self, table: &Table, rows: &[Vec<Value<'static>>]) -> Result<(), Failure> {
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
        let head = format!("INSERT INTO {} ({}) VALUES ", table.name, columns.join(", "));
        let mut rows = rows.iter().peekable();
        while rows.peek().is_some() {
            let mut sql = head.clone().into_bytes();
            let mut separator = "(";
            while let Some(row) = rows.next_if(|_| sql.len() < INSERT_LEN) {
                for value in row {
                    sql.extend_from_slice(separator.as_bytes());
                    render_value(value, &mut sql);
                    separator = ", ";
                }
                separator = "), (";
            }
            sql.push(b')');
            self.run_text(&sql, &mut |_| {})?;
        }
        Ok(())
    }
}

/// Why a client could not connect or a query has no result; `S` is a server's error, `P` one of
/// the protocol.
#[derive(Debug, Error)]
pub enum ClientError<S: Error, P: Error> {
    /// The URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// No connection came about.
    #[error("cannot connect to {url}: {source}")]
    Connect {
        /// Where to, without the password.
        url: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the server broke: {0}")]
    Io(#[from] io::Error),
    /// The server ended the connection without a word, or an earlier query broke it.
    #[error("the connection to the server is closed")]
    Closed,
    /// The server refused the login or the query.
    #[error("the server says: {0}")]
    Server(S),
    /// The server's bytes make no sense.
    #[error("{0}")]
    Protocol(P),
}

impl<S: Error, P: Error> ClientError<S, P> {
    /// Returns the error without the place, which the caller names.
    pub(crate) fn reason(&self) -> String {
        match self {
            ClientError::Connect { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }
}

impl<S: Error + Into<Failure>, P: Error> From<ClientError<S, P>> for Failure {
    fn from(error: ClientError<S, P>) -> Self {
        match error {
            ClientError::Server(error) => error.into(),
            broken => Failure::Lost(broken.to_string()),
        }
    }
}

/// The beginning of a message whose end has not arrived.
#[derive(Debug, Default)]
pub(crate) struct Partial(pub(crate) Vec<u8>);

impl Partial {
    /// Hands over what was kept and what arrived. `take` returns how many bytes the whole messages
    /// at its front took; the rest is kept.
    pub(crate) fn receive<E>(
        &mut self,
        bytes: &[u8],
        take: impl FnOnce(&[u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        if self.0.is_empty() {
            let used = take(bytes)?;
            self.0.extend_from_slice(&bytes[used..]);
            return Ok(());
        }
        self.0.extend_from_slice(bytes);
        let used = take(&self.0)?;
        self.0.drain(..used);
        Ok(())
    }
}
