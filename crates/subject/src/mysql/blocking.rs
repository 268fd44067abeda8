//! A blocking client for loading, checking and tests: one query at a time.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tidegate_workload::{
    Connection as Runs, Dialect, Failure, Reply, Rows, Statement, Table, Value, Wants, render_value,
};

use super::{
    Connection, Event, Host, ProtocolError, QUIT, ServerError, TextRow, TransactionStatus, Url,
    UrlError, encode_query,
};
use crate::connection::Transactional;
use crate::detection::{Whereabouts, whereabouts};
use crate::isolation::Isolation;
use crate::stream::{CONNECT_TIMEOUT, Stream};

const READ_LEN: usize = 16 * 1024;

/// How long the text of an INSERT grows before the next row goes into another one. Far below the
/// 16 MiB that a server takes by default, and far above what a round trip costs.
const INSERT_LEN: usize = 256 * 1024;

/// A row's columns as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// Why a client could not connect or a query has no result.
#[derive(Debug, Error)]
pub enum ClientError {
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
    Server(#[from] ServerError),
    /// The server's bytes make no sense.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Server(error) => error.into(),
            broken => Failure::Lost(broken.to_string()),
        }
    }
}

/// A logged-in connection that runs one query at a time.
pub struct BlockingClient {
    stream: Stream,
    connection: Connection,
    status: TransactionStatus,
    /// Whether what comes next is the answer to what is sent next.
    is_usable: bool,
    out: Vec<u8>,
    /// Where statements are written before they become messages.
    text: Vec<u8>,
    buffer: Box<[u8]>,
}

impl BlockingClient {
    /// Connects and logs in, at the server's own isolation level; see [`Url`] for the form of
    /// `url`.
    ///
    /// # Errors
    /// The URL, the way to the server, or the server refuses; see [`ClientError`].
    pub fn connect(url: &str) -> Result<Self, ClientError> {
        Self::connect_at(url, None)
    }

    /// As [`BlockingClient::connect`], for transactions at an isolation level.
    ///
    /// # Errors
    /// As [`BlockingClient::connect`].
    pub fn connect_at(url: &str, isolation: Option<Isolation>) -> Result<Self, ClientError> {
        let url: Url = url.parse()?;
        let stream = match &url.host {
            Host::Tcp(host) => Stream::tcp(host, url.port),
            Host::Unix(path) => Stream::unix(path),
        };
        let stream =
            stream.map_err(|source| ClientError::Connect { url: url.to_string(), source })?;
        stream.set_timeout(Some(CONNECT_TIMEOUT))?;
        let mut client = BlockingClient {
            stream,
            connection: Connection::start(&url, isolation),
            status: TransactionStatus::Idle,
            is_usable: true,
            out: Vec::new(),
            text: Vec::new(),
            buffer: vec![0; READ_LEN].into_boxed_slice(),
        };
        client.answer(&mut |_| {})?;
        client.stream.set_timeout(None)?;
        Ok(client)
    }

    /// Where the server is.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        whereabouts(&self.stream)
    }

    /// Gives up on an answer that takes longer than `timeout`, and so on the connection; `None`
    /// waits for ever, the default.
    ///
    /// # Errors
    /// The timeout is zero.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<(), ClientError> {
        Ok(self.stream.set_timeout(timeout)?)
    }

    /// Runs one statement and returns its rows.
    ///
    /// # Errors
    /// The server reports an error, after which the client can still be used, or the connection
    /// broke, after which it cannot.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, ClientError> {
        let mut rows = Vec::new();
        self.run_text(sql.as_bytes(), &mut |row| {
            let text = |value| String::from_utf8_lossy(value).into_owned();
            rows.push(row.map(|value| value.map(text)).collect());
        })?;
        Ok(rows)
    }

    /// The first column of the first row of `sql`; empty when there is none or it is NULL.
    ///
    /// # Errors
    /// As [`BlockingClient::query`].
    pub fn value(&mut self, sql: &str) -> Result<String, ClientError> {
        let first = self.query(sql)?.into_iter().flatten().next().flatten();
        Ok(first.unwrap_or_default())
    }

    /// Runs a statement and returns how many rows it changed.
    fn run_text(
        &mut self,
        sql: &[u8],
        on_row: &mut dyn FnMut(TextRow<'_>),
    ) -> Result<u64, ClientError> {
        self.out.clear();
        encode_query(&mut self.out, sql);
        self.answer(on_row)
    }

    /// Sends what is in `out` and reads until the server is ready again.
    fn answer(&mut self, on_row: &mut dyn FnMut(TextRow<'_>)) -> Result<u64, ClientError> {
        if !std::mem::take(&mut self.is_usable) {
            return Err(ClientError::Closed);
        }
        let mut count = 0;
        let mut error = None;
        let mut ready = None;
        while ready.is_none() {
            self.stream.write_all(&self.out)?;
            self.out.clear();
            let len = match self.stream.read(&mut self.buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if len == 0 {
                return Err(error.map_or(ClientError::Closed, ClientError::Server));
            }
            let bytes = &self.buffer[..len];
            self.connection.receive(bytes, &mut self.out, |event, _| match event {
                Event::Row(row) => on_row(row),
                Event::Complete(changed) => count += changed,
                Event::Error(packet) => error = Some(ServerError::from(packet)),
                Event::Ready(status) => ready = Some(status),
            })?;
        }
        self.is_usable = true;
        self.status = ready.unwrap_or(self.status);
        error.map_or(Ok(count), |error| Err(error.into()))
    }

    /// Runs what is in `text`, without rows.
    fn run_written(&mut self) -> Result<u64, ClientError> {
        let text = std::mem::take(&mut self.text);
        let result = self.run_text(&text, &mut |_| {});
        self.text = text;
        result
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        // A courtesy; the server notices the closed socket as well.
        let _ = self.stream.write_all(QUIT);
    }
}

impl Runs for BlockingClient {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        statement.render(Dialect::MariaDb, values, &mut text);
        let mut reply = Reply::default();
        let changed = self.run_text(&text, &mut |row| {
            reply.count += 1;
            if wants == Wants::Rows {
                if reply.rows.width() == 0 {
                    reply.rows = Rows::new(row.len());
                }
                push(&mut reply.rows, row);
            }
        });
        self.text = text;
        reply.count += changed?;
        Ok(reply)
    }
}

fn push(rows: &mut Rows, row: TextRow<'_>) {
    for value in row {
        match value {
            Some(text) => rows.push_text(text),
            None => rows.push(&Value::Null),
        }
    }
}

impl Transactional for BlockingClient {
    fn begin(&mut self) -> Result<(), Failure> {
        Ok(self.run_text(b"BEGIN", &mut |_| {}).map(drop)?)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        Ok(self.run_text(b"COMMIT", &mut |_| {}).map(drop)?)
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        if self.status == TransactionStatus::Idle {
            return Ok(());
        }
        Ok(self.run_text(b"ROLLBACK", &mut |_| {}).map(drop)?)
    }

    fn dialect(&self) -> Dialect {
        Dialect::MariaDb
    }

    /// Inserts many rows by each statement.
    fn insert(&mut self, table: &Table, rows: &[Vec<Value<'static>>]) -> Result<(), Failure> {
        let columns: Vec<&str> = table.columns.iter().map(|column| column.name).collect();
        let head = format!("INSERT INTO {} ({}) VALUES ", table.name, columns.join(", "));
        let mut rows = rows.iter().peekable();
        while rows.peek().is_some() {
            self.text.clear();
            self.text.extend_from_slice(head.as_bytes());
            while let Some(row) = rows.next_if(|_| self.text.len() < INSERT_LEN) {
                if self.text.len() > head.len() {
                    self.text.extend_from_slice(b", ");
                }
                write_row(row, &mut self.text);
            }
            self.run_written()?;
        }
        Ok(())
    }
}

fn write_row(row: &[Value<'_>], out: &mut Vec<u8>) {
    out.push(b'(');
    for (place, value) in row.iter().enumerate() {
        if place > 0 {
            out.extend_from_slice(b", ");
        }
        render_value(value, out);
    }
    out.push(b')');
}
