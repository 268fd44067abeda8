//! MariaDB clients: a connection without I/O, and a blocking client on top of it.
//!
//! Called after the protocol, which MySQL shares; the SQL is MariaDB's.

mod connection;
mod error;

use tidegate_workload::Dialect;

use crate::blocking::{self, Answer, Protocol};
use crate::url::{self, Url};

pub use crate::blocking::Row;
pub use connection::{Connection, Event, ProtocolError};
pub use error::{ErrorPacket, ServerError};
pub use tidegate_wire::backend::TransactionStatus;
pub use tidegate_wire::mysql::packet::{QUIT, encode_query};
pub use tidegate_wire::mysql::response::TextRow;

/// A logged-in connection that runs one query at a time.
pub type BlockingClient = blocking::BlockingClient<Connection>;

/// Why a client could not connect or a query has no result.
pub type ClientError = blocking::ClientError<ServerError, ProtocolError>;

impl Protocol for Connection {
    const PROTOCOL: url::Protocol = url::Protocol::MySql;
    const DIALECT: Dialect = Dialect::MariaDb;
    const COUNTS_ROWS: bool = false;
    const FAREWELL: &'static [u8] = QUIT;

    type ServerError = ServerError;
    type Error = ProtocolError;

    /// The server speaks first, so there is nothing to send.
    fn start(url: &Url, _: &str, _: &mut Vec<u8>) -> Self {
        Connection::start(url)
    }

    fn encode_query(out: &mut Vec<u8>, sql: &[u8]) {
        encode_query(out, sql);
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        mut on_answer: impl FnMut(Answer<'_, '_, ServerError>),
    ) -> Result<(), ProtocolError> {
        self.receive(bytes, out, |event, _| match event {
            Event::Row(mut columns) => on_answer(Answer::Row(&mut columns)),
            Event::Complete(count) => on_answer(Answer::Complete { count, is_undone: false }),
            Event::Error(packet) => on_answer(Answer::Error(packet.into())),
            Event::Ready(status) => on_answer(Answer::Ready(status)),
        })
    }
}
