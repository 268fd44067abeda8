//! A blocking client for loading, checking and tests: one query at a time, rows as text.

use std::time::Duration;

use tidegate_wire::{Malformed, frontend};

use super::{Connection, Event, ProtocolError, ServerError, TransactionStatus, data_row};
use crate::channel::{self, Channel};
use crate::detection::Whereabouts;
use crate::postgres::SCHEME;
use crate::url::Url;

/// A row's columns as text; `None` is NULL.
pub type Row = Vec<Option<String>>;

/// Why a client could not connect or a query has no result.
pub type ClientError = channel::ClientError<ServerError, ProtocolError>;

/// A logged-in connection that runs one query at a time.
pub struct BlockingClient {
    channel: Channel,
    connection: Connection,
}

impl BlockingClient {
    /// Connects and logs in; see [`Url`] for the form of `url`.
    ///
    /// # Errors
    /// The URL, the way to the server, or the server refuses; see [`ClientError`].
    pub fn connect(url: &str) -> Result<Self, ClientError> {
        Self::connect_as(url, "tidegate")
    }

    /// As [`BlockingClient::connect`], under the name of an application, by which others know the
    /// session from its beginning.
    pub(crate) fn connect_as(url: &str, application: &str) -> Result<Self, ClientError> {
        let url = Url::of(&SCHEME, url)?;
        let mut channel = Channel::connect(&url)?;
        let connection = Connection::start(&url, application, &mut channel.out);
        let mut client = BlockingClient { channel, connection };
        client.round_trip()?;
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

    /// Runs `sql`, which may hold several statements, and returns the rows of all of them.
    ///
    /// # Errors
    /// The server reports an error, after which the client can still be used, or the connection
    /// broke, after which it cannot.
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, ClientError> {
        frontend::encode_query(&mut self.channel.out, sql.as_bytes());
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
        frontend::encode_query(&mut self.channel.out, sql);
        self.exchange(on_event)
    }

    /// Sends what is in `out` and hands over what comes until the server is ready again.
    fn exchange(
        &mut self,
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<TransactionStatus, ClientError> {
        let connection = &mut self.connection;
        let (mut error, mut ready) = (None, None);
        self.channel.exchange(|bytes, out| {
            let mut is_cut_short = false;
            let received = connection.receive(bytes, out, |event, _| match event {
                Event::Row(payload) if !is_whole(payload) => is_cut_short = true,
                Event::Row(_) | Event::Complete(_) => on_event(event),
                Event::Error(payload) => error = Some(ServerError::read(payload)),
                Event::Ready(status) => ready = Some(status),
            });
            received.map_err(ClientError::Protocol)?;
            if is_cut_short {
                let malformed = Malformed { message: "DataRow", field: "column" };
                return Err(ClientError::Protocol(malformed.into()));
            }
            match error.take_if(|_| bytes.is_empty()) {
                Some(error) => Err(ClientError::Server(error)),
                None => Ok(ready.is_some()),
            }
        })?;
        match error {
            Some(error) => Err(ClientError::Server(error)),
            None => Ok(ready.unwrap_or(TransactionStatus::Idle)),
        }
    }
}

impl Drop for BlockingClient {
    fn drop(&mut self) {
        self.channel.close(frontend::TERMINATE);
    }
}

/// Whether a row has as many columns as it says.
fn is_whole(payload: &[u8]) -> bool {
    let said = payload.first_chunk().map(|count| usize::from(u16::from_be_bytes(*count)));
    data_row(payload).is_ok_and(|columns| Some(columns.count()) == said)
}

fn row(payload: &[u8]) -> Row {
    let text = |column: &[u8]| String::from_utf8_lossy(column).into_owned();
    data_row(payload)
        .map_or_else(|_| Row::new(), |columns| columns.map(|column| column.map(text)).collect())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::thread;

    use tidegate_wire::authentication::encode_ok;
    use tidegate_wire::backend::encode_ready_for_query;

    use super::*;
    use crate::stream::CONNECT_TIMEOUT;

    /// A row of so many columns that has only the first, and the end of its query.
    fn answer(columns: u8) -> Vec<u8> {
        let mut bytes = vec![b'D', 0, 0, 0, 11, 0, columns, 0, 0, 0, 1, b'x'];
        encode_ready_for_query(&mut bytes, TransactionStatus::Idle);
        bytes
    }

    /// A server for one client, which answers its first query when told to.
    fn serve(listener: &TcpListener, answer: &[u8], is_time: &mpsc::Receiver<()>) -> TcpStream {
        let (mut socket, _) = listener.accept().unwrap();
        let mut buffer = [0; 1_024];
        assert!(socket.read(&mut buffer).unwrap() > 0);
        let mut login = Vec::new();
        encode_ok(&mut login);
        encode_ready_for_query(&mut login, TransactionStatus::Idle);
        socket.write_all(&login).unwrap();
        assert!(socket.read(&mut buffer).unwrap() > 0);
        is_time.recv().unwrap();
        socket.write_all(answer).unwrap();
        socket
    }

    /// What the first query comes to, and the second after it, with an answer that comes in time or
    /// too late.
    fn two_queries(answer: Vec<u8>, is_late: bool) -> [Result<Vec<Row>, ClientError>; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, is_time) = mpsc::channel();
        let server = thread::spawn(move || serve(&listener, &answer, &is_time));
        let mut client = BlockingClient::connect(&format!("postgres://a@127.0.0.1:{port}/d"));
        let client = client.as_mut().unwrap();
        if is_late {
            client.set_timeout(Some(Duration::from_millis(50))).unwrap();
        } else {
            tell.send(()).unwrap();
        }
        let first = client.query("SELECT 1");
        if is_late {
            tell.send(()).unwrap();
        }
        let _socket = server.join().unwrap();
        client.set_timeout(Some(CONNECT_TIMEOUT)).unwrap();
        [first, client.query("SELECT 2")]
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_that_of_the_next_query() {
        let [first, second] = two_queries(answer(1), true);
        assert!(matches!(first, Err(ClientError::Io(_))), "{first:?}");
        assert!(matches!(second, Err(ClientError::Closed)), "{second:?}");
    }

    #[test]
    fn a_row_that_is_cut_short_is_an_error() {
        let [first, second] = two_queries(answer(2), false);
        assert!(matches!(first, Err(ClientError::Protocol(_))), "{first:?}");
        assert!(matches!(second, Err(ClientError::Closed)), "{second:?}");
    }
}
