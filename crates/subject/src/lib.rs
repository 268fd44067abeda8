//! The databases under test: start, stop, connect, inspect.
//!
//! [`postgres`] and [`firebird`] run a private server; [`sqlite`] keeps a private file, and
//! [`embedded`] is the engine that Tidegate carries with it; [`client`] speaks to any PostgreSQL.
//! [`process`] guards other programs an experiment starts, such as a proxy; [`processors`] says
//! which processors a server may use, [`detection`] finds other databases. Whatever is started here
//! is stopped when its handle is dropped, also when the owner panics, and always by its own process
//! id.
//!
//! Never here: what is run against a database (that is `workload`) and when (that is `lab`).

pub mod client;
pub mod connection;
pub mod detection;
pub mod embedded;
pub mod firebird;
pub mod postgres;
pub mod process;
pub mod processors;
pub mod sqlite;
