//! A blocking client for loading, checking and tests: one query at a time.

use std::time::Duration;

use tidegate_workload::{
    Connection as Runs, Dialect, Failure, Reply, Rows, Statement, Table, Value, Wants, render_value,
};

use super::{
    Connection, Event, ProtocolError, QUIT, ServerError, TextRow, TransactionStatus, encode_query,
};
use crate::channel::{self, Channel};
use crate::connection::Transactional;
use crate::detection::Whereabouts;
use crate::isolation::Isolation;
use crate::mariadb::SCHEME;
use crate::url::Url;

/// How long the text of an INSERT grows before the next row goes into another one. Far below the
/// 16 MiB that a server takes by default, and far above what a round trip costs.
const INSERT_LEN: usize = 256 * 1024;

/// A row's columns as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// Why a client could not connect or a query has no result.
pub type ClientError = channel::ClientError<ServerError, ProtocolError>;

/// A logged-in connection that runs one query at a time.
pub struct BlockingClient {
    channel: Channel,
    connection: Connection,
    status: TransactionStatus,
    /// Where statements are written before they become messages.
    text: Vec<u8>,
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
        let url = Url::of(&SCHEME, url)?;
        let mut client = BlockingClient {
            channel: Channel::connect(&url)?,
            connection: Connection::start(&url, isolation),
            status: TransactionStatus::Idle,
            text: Vec::new(),
        };
        client.answer(&mut |_| {})?;
        client.set_timeout(None)?;
        Ok(client)
    }

    /// Where the server is.
    pub(crate) fn whereabouts(&self) -> Whereabouts {
        self.channel.whereabouts()
    }

    /// Gives up on an answer that takes longer than `timeout`, and so on the connection; `None`
    /// waits for ever, the default.
    ///
    /// # Errors
    /// The timeout is zero.
    pub fn set_timeout(&self, timeout: Option<Duration>) -> Result<(), ClientError> {
        Ok(self.channel.set_timeout(timeout)?)
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
        self.channel.out.clear();
        encode_query(&mut self.channel.out, sql);
        self.answer(on_row)
    }

    /// Sends what is in `out` and reads until the server is ready again.
    fn answer(&mut self, on_row: &mut dyn FnMut(TextRow<'_>)) -> Result<u64, ClientError> {
        let connection = &mut self.connection;
        let (mut count, mut error, mut ready) = (0, None, None);
        self.channel.exchange(|bytes, out| {
            let received = connection.receive(bytes, out, |event, _| match event {
                Event::Row(row) => on_row(row),
                Event::Complete(changed) => count += changed,
                Event::Error(packet) => error = Some(ServerError::from(packet)),
                Event::Ready(status) => ready = Some(status),
            });
            received.map_err(ClientError::Protocol)?;
            match error.take_if(|_| bytes.is_empty()) {
                Some(error) => Err(ClientError::Server(error)),
                None => Ok(ready.is_some()),
            }
        })?;
        self.status = ready.unwrap_or(self.status);
        error.map_or(Ok(count), |error| Err(ClientError::Server(error)))
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
        self.channel.close(QUIT);
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
