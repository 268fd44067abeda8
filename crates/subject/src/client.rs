//! PostgreSQL clients: a connection without I/O, and a blocking client on top of it.

mod connection;

use tidegate_wire::{Malformed, frontend};
use tidegate_workload::Dialect;

use crate::blocking::{self, Answer, Protocol};
use crate::url::{self, Url};

pub use crate::blocking::Row;
pub use connection::{Connection, Event, ProtocolError, ServerError, count, undoes, undone};
pub use tidegate_wire::backend::{TransactionStatus, command_complete, data_row};
pub use tidegate_wire::frontend::{TERMINATE, encode_query};

/// A logged-in connection that runs one query at a time.
pub type BlockingClient = blocking::BlockingClient<Connection>;

/// Why a client could not connect or a query has no result.
pub type ClientError = blocking::ClientError<ServerError, ProtocolError>;

impl Protocol for Connection {
    const PROTOCOL: url::Protocol = url::Protocol::Postgres;
    const DIALECT: Dialect = Dialect::Postgres;
    const COUNTS_ROWS: bool = true;
    const FAREWELL: &'static [u8] = TERMINATE;

    type ServerError = ServerError;
    type Error = ProtocolError;

    fn start(url: &Url, application: &str, out: &mut Vec<u8>) -> Self {
        Connection::start(url, application, out)
    }

    fn encode_query(out: &mut Vec<u8>, sql: &[u8]) {
        frontend::encode_query(out, sql);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        mut on_answer: impl FnMut(Answer<'_, '_, ServerError>),
    ) -> Result<(), ProtocolError> {
        let mut malformed = None;
        self.receive(bytes, out, |event, _| match event {
            Event::Row(payload) => match whole_row(payload) {
                Ok(mut columns) => on_answer(Answer::Row(&mut columns)),
                Err(error) => malformed = Some(error),
            },
            Event::Complete(payload) => {
                on_answer(Answer::Complete { count: count(payload), is_undone: undoes(payload) });
            }
            Event::Error(payload) => on_answer(Answer::Error(ServerError::read(payload))),
            Event::Ready(status) => on_answer(Answer::Ready(status)),
        })?;
        malformed.map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Reads a row that has as many columns as it says.
fn whole_row(payload: &[u8]) -> Result<impl Iterator<Item = Option<&[u8]>>, Malformed> {
    let said = payload.first_chunk().map(|count| usize::from(u16::from_be_bytes(*count)));
    if Some(data_row(payload)?.count()) == said {
        return data_row(payload);
    }
    Err(Malformed { message: "DataRow", field: "column" })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

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
