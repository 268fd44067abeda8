//! A blocking client for loading, checking and tests: one query at a time, rows as text.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tidegate_wire::frontend;

use super::{
    Connection, Event, Host, ProtocolError, ServerError, TransactionStatus, Url, UrlError, data_row,
};
use crate::detection::{Whereabouts, whereabouts};
use crate::stream::{CONNECT_TIMEOUT, Stream};

const READ_LEN: usize = 16 * 1024;

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
    /// The server ended the connection without a word.
    #[error("the server closed the connection")]
    Closed,
    /// The server refused the login or the query.
    #[error("the server says: {0}")]
    Server(#[from] ServerError),
    /// The server's bytes make no sense.
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
}

/// A logged-in connection that runs one query at a time.
pub struct BlockingClient {
    stream: Stream,
    connection: Connection,
    out: Vec<u8>,
    buffer: Box<[u8]>,
}

impl BlockingClient {
    /// Connects and logs in; see [`Url`] for the form of `url`.
    ///
    /// # Errors
    /// The URL, the way to the server, or the server refuses; see [`ClientError`].
    pub fn connect(url: &str) -> Result<Self, ClientError> {
        let url: Url = url.parse()?;
        let stream = match (url.socket_path(), &url.host) {
            (Some(path), _) => Stream::unix(&path),
            (None, Host::Tcp(host)) => Stream::tcp(host, url.port),
            (None, Host::Unix(_)) => Err(io::ErrorKind::InvalidInput.into()),
        };
        let stream =
            stream.map_err(|source| ClientError::Connect { url: url.to_string(), source })?;
        stream.set_timeout(Some(CONNECT_TIMEOUT))?;
        let mut out = Vec::new();
        let connection = Connection::start(&url, "tidegate", &mut out);
        let mut client = BlockingClient {
            stream,
            connection,
            out,
            buffer: vec![0; READ_LEN].into_boxed_slice(),
        };
        client.round_trip()?;
        client.stream.set_timeout(None)?;
        Ok(client)
    }

    /// Where the server is.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        whereabouts(&self.stream)
    }

    /// Gives up on an answer that takes longer than `timeout`; `None` waits for ever, the default.
    ///
    /// # Errors
    /// The timeout is zero.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<(), ClientError> {
        Ok(self.stream.set_timeout(timeout)?)
    }

    /// Runs `sql`, which may hold several statements, and returns the rows of all of them.
    ///
    /// # Errors
    /// The server reports an error, after which the client can still be used, or the connection
    /// broke, after which it cannot.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, ClientError> {
        frontend::encode_query(&mut self.out, sql.as_bytes());
        self.round_trip()
    }

    /// The first column of the first row of `sql`; empty when there is none or it is NULL.
    ///
    /// # Errors
    /// As [`BlockingClient::query`].
    pub fn value(&mut self, sql: &str) -> Result<String, ClientError> {
        let first = self.query(sql)?.into_iter().flatten().next().flatten();
        Ok(first.unwrap_or_default())
    }

    /// Sends what is in `out` and collects rows until the server is ready again.
    fn round_trip(&mut self) -> Result<Vec<Row>, ClientError> {
        let mut rows = Vec::new();
        self.exchange(|event| {
            if let Event::Row(payload) = event {
                rows.push(row(payload));
            }
        })?;
        Ok(rows)
    }

    /// Runs `sql`, which is text, and hands over what the server says of it.
    pub(super) fn run(
        &mut self,
        sql: &[u8],
        on_event: impl FnMut(Event<'_>),
    ) -> Result<TransactionStatus, ClientError> {
        frontend::encode_query(&mut self.out, sql);
        self.exchange(on_event)
    }

    /// Sends what is in `out` and hands over what comes until the server is ready again.
    fn exchange(
        &mut self,
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<TransactionStatus, ClientError> {
        let mut error = None;
        let mut ready = None;
        while ready.is_none() {
            self.stream.write_all(&self.out)?;
            self.out.clear();
            let count = self.stream.read(&mut self.buffer)?;
            if count == 0 {
                return Err(error.map_or(ClientError::Closed, ClientError::Server));
            }
            let bytes = &self.buffer[..count];
            self.connection.receive(bytes, &mut self.out, |event, _| match event {
                Event::Row(_) | Event::Complete(_) => on_event(event),
                Event::Error(payload) => error = Some(ServerError::read(payload)),
                Event::Ready(status) => ready = Some(status),
            })?;
        }
        match error {
            Some(error) => Err(ClientError::Server(error)),
            None => Ok(ready.unwrap_or(TransactionStatus::Idle)),
        }
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        // A courtesy; the server notices the closed socket as well.
        let _ = self.stream.write_all(frontend::TERMINATE);
    }
}

fn row(payload: &[u8]) -> Row {
    let text = |column: &[u8]| String::from_utf8_lossy(column).into_owned();
    data_row(payload)
        .map_or_else(|_| Row::new(), |columns| columns.map(|column| column.map(text)).collect())
}
