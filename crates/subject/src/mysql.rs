//! MariaDB clients: a connection without I/O, and a blocking client on top of it.
//!
//! Called after the protocol, which MySQL shares; the SQL is MariaDB's.

mod blocking;
mod connection;
mod error;

pub use blocking::{BlockingClient, ClientError, Row};
pub use connection::{Connection, Event, ProtocolError};
pub use error::{ErrorPacket, ServerError};
pub use tidegate_wire::backend::TransactionStatus;
pub use tidegate_wire::mysql::packet::{QUIT, encode_query};
pub use tidegate_wire::mysql::response::TextRow;
