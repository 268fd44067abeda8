//! What clients do: transactions as statements, no driver code.
//!
//! A [`workload::Workload`] has tables with their rows, clients that draw transactions, and a
//! check. A [`workload::Transaction`] is an `async` function that asks its [`Session`] for rows, so
//! that the same logic runs over sockets, over blocking libraries and inside the embedded engine; a
//! [`Statement`] is SQL with the exceptions of each [`Dialect`] beside it.
//!
//! Never here: sockets, clocks, threads. [`tpcb`] and [`point_select`] share the tables of
//! [`pgbench`]; every other workload has its own.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    clippy::return_self_not_must_use,
    reason = "only our own rooms call it; a comment says what names, types and errors do not"
)]

mod demand;
pub mod ds2;
pub mod pgbench;
pub mod point_select;
mod procedure;
mod random;
mod session;
mod statement;
mod table;
pub mod thrash;
pub mod tpcb;
pub mod tpcc;
pub mod tpcw;
mod value;
pub mod workload;
pub mod xmark;

pub use demand::Demand;
pub use procedure::Procedure;
pub use random::Random;
pub use session::{
    Conflict, Connection, Driver, Ending, Failure, Reply, Running, Session, Wants, finish, poll,
};
pub use statement::{Dialect, Statement, render_value};
pub use table::{Column, Index, Table, Type};
pub use value::{Rows, Value};
