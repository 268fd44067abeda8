//! The databases under test: start, stop, connect, inspect.
//!
//! [`postgres`] runs a private PostgreSQL server, and [`client`] speaks to any; [`mariadb`] and
//! [`mysql`] do the same for MariaDB; [`embedded`] is the engine that Tidegate carries with it;
//! [`process`] guards other programs an experiment starts,
//! such as a proxy. Whatever is started here is stopped when its handle is dropped, also when the
//! owner panics, and always by its own process id.
//!
//! Never here: what is run against a database (that is `workload`) and when (that is `lab`).

mod account;
pub mod client;
pub mod connection;
pub mod embedded;
pub mod isolation;
pub mod mariadb;
pub mod mysql;
pub mod postgres;
pub mod process;
pub mod sqlite;
mod stream;
