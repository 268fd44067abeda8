//! PostgreSQL clients: a connection without I/O, and a small blocking client on top of it.

mod blocking;
mod connection;
mod transactional;

pub use blocking::{BlockingClient, ClientError, Row};
pub use connection::{Connection, Event, ProtocolError, ServerError, count, undoes, undone};
pub use tidegate_wire::backend::{TransactionStatus, command_complete, data_row};
pub use tidegate_wire::frontend::{TERMINATE, encode_query};
