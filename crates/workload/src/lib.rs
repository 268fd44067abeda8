//! What clients do: transactions as statements, no driver code.
//!
//! A [`Workload`] draws transactions from a seeded [`Draw`]; a [`Transaction`] writes its
//! statements one after the other as SQL text into a buffer the driver reuses. Each statement is a
//! round trip of the simple query protocol, as with `pgbench -M simple`. For a database that has
//! the transaction as a stored procedure, it gives the procedure's name and its values as bytes,
//! and the whole transaction is one round trip.
//!
//! Never here: sockets, clocks, threads. [`pgbench`] holds the tables of the first two workloads
//! and how to check them; [`thrash`] has tables of its own.

mod demand;
mod draw;
pub mod pgbench;
pub mod point_select;
mod session;
mod statement;
mod table;
pub mod thrash;
pub mod tpcb;
pub mod tpcw;
mod value;
mod words;
pub mod workload;

use std::fmt;
use std::str::FromStr;

pub use demand::Demand;
pub use draw::Draw;
pub use session::{
    Conflict, Connection, Driver, Ending, Failure, Reply, Running, Session, Wants, finish, poll,
};
pub use statement::{Dialect, Statement, render_value};
pub use table::{Column, Index, Table, Type};
pub use value::{Rows, Value};

/// A kind of transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// [`tpcb`]: seven statements, three updates of which one is of a very hot row.
    Tpcb,
    /// [`point_select`]: one read by primary key.
    PointSelect,
    /// [`thrash`]: a range of rows read or updated.
    Thrash(thrash::Thrash),
}

impl Workload {
    /// The next transaction, with its values drawn for pgbench's tables of the given scale; the
    /// other workloads know the size of their tables.
    #[must_use]
    pub fn transaction(self, scale: pgbench::Scale, draw: &mut Draw) -> Transaction {
        match self {
            Workload::Tpcb => Transaction::Tpcb(tpcb::Tpcb::draw(scale, draw)),
            Workload::PointSelect => {
                Transaction::PointSelect(point_select::PointSelect::draw(scale, draw))
            }
            Workload::Thrash(thrash) => {
                Transaction::Thrash(thrash::RangeAccess::draw(thrash, draw))
            }
        }
    }

    /// The name used on command lines and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Workload::Tpcb => "tpcb",
            Workload::PointSelect => "point-select",
            Workload::Thrash(thrash) => thrash.name(),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not of a workload on pgbench's tables, the ones a user can load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWorkload;

impl fmt::Display for UnknownWorkload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown workload; there are tpcb and point-select")
    }
}

impl std::error::Error for UnknownWorkload {}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(text: &str) -> Result<Self, UnknownWorkload> {
        [Workload::Tpcb, Workload::PointSelect]
            .into_iter()
            .find(|workload| workload.name() == text)
            .ok_or(UnknownWorkload)
    }
}

/// One transaction with its values; running it again runs the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// See [`tpcb`].
    Tpcb(tpcb::Tpcb),
    /// See [`point_select`].
    PointSelect(point_select::PointSelect),
    /// See [`thrash`].
    Thrash(thrash::RangeAccess),
}

impl Transaction {
    /// How many statements the transaction has, at least one.
    #[must_use]
    pub fn statements(&self) -> usize {
        match self {
            Transaction::Tpcb(_) => tpcb::STATEMENTS,
            Transaction::PointSelect(_) => point_select::STATEMENTS,
            Transaction::Thrash(_) => thrash::STATEMENTS,
        }
    }

    /// The name of the procedure that runs it, in a database that has it as one; see
    /// [`Transaction::encode`].
    #[must_use]
    pub fn procedure(&self) -> &'static str {
        match self {
            Transaction::Tpcb(_) => tpcb::PROCEDURE,
            Transaction::PointSelect(_) => point_select::PROCEDURE,
            Transaction::Thrash(_) => thrash::PROCEDURE,
        }
    }

    /// Appends the values as bytes, the procedure's arguments.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Transaction::Tpcb(transaction) => transaction.encode(out),
            Transaction::PointSelect(transaction) => transaction.encode(out),
            Transaction::Thrash(transaction) => transaction.encode(out),
        }
    }

    /// Appends the text of statement `index`, counted from 0; nothing beyond the last.
    pub fn write_statement(&self, index: usize, out: &mut Vec<u8>) {
        match self {
            Transaction::Tpcb(transaction) => transaction.write_statement(index, out),
            Transaction::PointSelect(transaction) if index == 0 => transaction.write(out),
            Transaction::Thrash(transaction) if index == 0 => transaction.write(out),
            Transaction::PointSelect(_) | Transaction::Thrash(_) => {}
        }
    }
}

/// Appends formatted text.
fn append(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    use std::io::Write;
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_as_bytes_and_others_are_refused() {
        use thrash::{Rows, Thrash};
        let mut draw = Draw::new(11, 0);
        for workload in [
            Workload::Tpcb,
            Workload::PointSelect,
            Workload::Thrash(Thrash::read(Rows::SMALL)),
            Workload::Thrash(Thrash::update(Rows::SMALL)),
        ] {
            let decode = |bytes: &[u8]| match workload {
                Workload::Tpcb => tpcb::Tpcb::decode(bytes).map(Transaction::Tpcb),
                Workload::PointSelect => {
                    point_select::PointSelect::decode(bytes).map(Transaction::PointSelect)
                }
                Workload::Thrash(_) => thrash::RangeAccess::decode(bytes).map(Transaction::Thrash),
            };
            for _ in 0..100 {
                let transaction = workload.transaction(pgbench::Scale::ONE, &mut draw);
                let mut bytes = Vec::new();
                transaction.encode(&mut bytes);
                assert_eq!(decode(&bytes), Some(transaction));
                assert_eq!(decode(&bytes[1..]), None);
                bytes.extend([0; 4]);
                assert_eq!(decode(&bytes), None);
            }
        }
        // A table, then a column, that is not there.
        for wrong in
            [[0, 2, 0, 0, 1, 0], [0, 0, 6, 0, 1, 0], [2, 0, 0, 0, 1, 0], [0, -1, 0, 0, 1, 0]]
        {
            let bytes: Vec<u8> = wrong.iter().flat_map(|word: &i32| word.to_le_bytes()).collect();
            assert_eq!(thrash::RangeAccess::decode(&bytes), None, "{wrong:?}");
        }
    }
}
