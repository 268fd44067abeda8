//! The databases under test: start, stop, connect, inspect.
//!
//! [`database`] says what a database is, and lists the DBMSs: [`postgres`], [`mariadb`] and
//! [`firebird`] with private servers ([`server`]), [`sqlite`] with a private file, and
//! [`embedded`], the engine that Tidegate carries with it; [`embedded_xml`], an auction site on the
//! XML store, and [`basex`], which it is compared with. [`client`] and [`mysql`] speak to any
//! server of PostgreSQL's and MariaDB's kind, where a [`url`](mod@url) says; a [`guest`] makes a
//! database of its own on a server that somebody else runs; [`connection`] is what connections have
//! in common; [`settings`] are what a database is started with, and `scratch` makes directories;
//! [`phases`] times the parts of a transaction. [`process`] guards other programs an experiment
//! starts, such as a proxy; [`processors`] says which processors a server may use, and
//! [`detection`] finds other databases on the machine. Whatever is started here is stopped when its
//! handle is dropped, also when the owner panics, and always by its own process id.
//!
//! Never here: what is run against a database (that is `workload`) and when (that is `lab`).

mod account;
pub mod basex;
pub mod blocking;
pub mod client;
pub mod connection;
pub mod database;
pub mod detection;
pub mod embedded;
pub mod embedded_xml;
pub mod firebird;
pub mod guest;
pub mod isolation;
pub mod mariadb;
pub mod mysql;
pub mod phases;
pub mod postgres;
pub mod process;
pub mod processors;
mod scratch;
pub mod server;
pub mod settings;
pub mod sqlite;
mod stream;
pub mod url;
