//! SQL on the embedded engine: as much of it as the workloads are written in.
//!
//! # Mechanism
//! A statement's text is parsed (`parse`) and planned (`plan`, `join`, `access`) once; all workers
//! share the plan. It is run within a transaction of the engine, which the caller begins and ends,
//! so that a workload's transaction with all its statements can be a stored procedure: [`run`] is
//! one. A row is a key and a value in a tree (`catalog`), encoded such that keys are in the order
//! of their columns (`encode`).
//!
//! | part of SQL | here |
//! | --- | --- |
//! | `SELECT` | columns and sums, `COUNT`, `SUM`, `MIN`, `MAX`, inner joins |
//! | at its end | `GROUP BY`, `ORDER BY`, `LIMIT`, `FOR UPDATE` |
//! | `WHERE` | comparisons, `BETWEEN`, `IN` a list, `LIKE`, `IS NULL`, all to hold together |
//! | `UPDATE`, `DELETE` | of one table |
//! | `INSERT` | values |
//! | values | `?`, numbers, texts, `NULL`, `CURRENT_TIMESTAMP`, with `+`, `-` and `*` |
//!
//! The grammar is at the head of `parse`. Everything else is refused by an error that says where.
//!
//! # Locks
//! `SELECT` reads as the isolation level says. `UPDATE`, `DELETE` and `SELECT .. FOR UPDATE` lock
//! the rows they read, and the entries of indexes that lead to them, in U to the end of the
//! transaction: of two that mean to change the same row one waits before it has read it, and they
//! do not meet in a deadlock. All rows that the plan reads are locked so, also those that a
//! condition then leaves out; without an index that is the whole table, as in other databases that
//! lock rows.
//!
//! # Example
//! `UPDATE tellers SET balance = balance + ? WHERE id = ?` is planned as: primary key, point id,
//! for update. It takes U on one key, reads the row, writes it, which makes the lock X, and changes
//! no index, because none has the balance.
//!
//! # Where this leaves SQL
//! * **NULL comes first** in an order, as in SQLite and MariaDB; PostgreSQL has it last.
//! * **Text is in the order of its bytes**, and `LIKE` tells large letters from small.
//! * **`SUM` is a number of 64 bits**, and an error beyond.
//! * **A statement that fails is undone**, and the transaction can go on, as in most databases;
//!   PostgreSQL's cannot.
//! * **A text is no number**: comparing one with the other is an error, not a conversion.
//!
//! # Limits
//! A row has to fit a quarter of a page, a key an eighth (see the engine). Sorting, grouping and
//! hashed joins are done in memory. There are no statistics: the price of a way to read a table is
//! guessed from its shape.

mod access;
mod aggregate;
mod ast;
mod catalog;
mod connection;
mod encode;
mod error;
mod evaluate;
mod execute;
mod explain;
mod join;
mod load;
mod moment;
mod output;
mod parse;
mod plan;
mod read;
mod scope;
mod token;
mod write;

pub use catalog::Catalog;
pub use connection::{RunError, SqlConnection, StoreConnection, run};
pub use error::SqlError;
pub use load::load;
