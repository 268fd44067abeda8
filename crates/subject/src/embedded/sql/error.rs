//! What can be wrong with a statement, each with its SQLSTATE (the SQL standard's codes, and
//! PostgreSQL's where the standard has none).

use thiserror::Error;
use tidegate_engine::TxnError;
use tidegate_engine::lock::LockError;
use tidegate_workload::{Conflict, Failure};

/// Why a statement is not done.
#[derive(Debug, Error)]
pub enum SqlError {
    /// Its text is not of the SQL that the embedded engine knows.
    #[error(
        "expected {expected} and found {found} at character {at}; the embedded engine knows a part \
         of SQL only, see its module `sql`"
    )]
    NotSupported {
        /// What could stand there.
        expected: &'static str,
        /// What does.
        found: String,
        /// Which character of the text it is, counted from 1.
        at: usize,
    },
    /// No table has that name.
    #[error("there is no table {name} (at character {at})")]
    UnknownTable {
        /// The name.
        name: String,
        /// Which character of the text it is, counted from 1.
        at: usize,
    },
    /// No column has that name.
    #[error("there is no column {name} (at character {at})")]
    UnknownColumn {
        /// The name.
        name: String,
        /// Which character of the text it is, counted from 1.
        at: usize,
    },
    /// Several tables have a column of that name.
    #[error("several tables have a column {name}; say which (at character {at})")]
    AmbiguousColumn {
        /// The name.
        name: String,
        /// Which character of the text it is, counted from 1.
        at: usize,
    },
    /// A column is neither grouped by nor within an aggregate.
    #[error("{what} is neither in GROUP BY nor within an aggregate")]
    NotGrouped {
        /// The expression.
        what: String,
    },
    /// An aggregate stands where there is no group.
    #[error("an aggregate stands in {place}, where rows are looked at one by one")]
    MisplacedAggregate {
        /// The part of the statement.
        place: &'static str,
    },
    /// A `?` has no value.
    #[error("the statement has a value for {given} places and asks for number {asked}")]
    MissingValue {
        /// How many there are.
        given: usize,
        /// Which one is asked for, counted from 1.
        asked: usize,
    },
    /// Text where a number is needed, or the other way round.
    #[error("{what} cannot be {done}")]
    WrongType {
        /// The value, shortened.
        what: String,
        /// What was to be done with it.
        done: &'static str,
    },
    /// A number is beyond its column or beyond 64 bits.
    #[error("{what} does not fit {place}")]
    OutOfRange {
        /// The number or the operation.
        what: String,
        /// Where it was to go.
        place: String,
    },
    /// A text is longer than its column.
    #[error("a text of {len} characters does not fit column {column} of {max}")]
    TooLong {
        /// The column.
        column: String,
        /// Characters of the text.
        len: usize,
        /// Characters of the column.
        max: usize,
    },
    /// A column that always holds something would hold nothing.
    #[error("column {column} of table {table} must not be NULL")]
    NotNull {
        /// The table.
        table: String,
        /// The column.
        column: String,
    },
    /// Two rows would have the same key.
    #[error("a row of table {table} has these values of {key} already")]
    Duplicate {
        /// The table.
        table: String,
        /// Its primary key or its index.
        key: String,
    },
    /// Bytes in a tree are no row.
    #[error("a row of table {table} cannot be read: its bytes do not fit the table's columns")]
    Damaged {
        /// The table.
        table: String,
    },
    /// The engine cannot do it.
    #[error(transparent)]
    Engine(#[from] TxnError),
}

impl SqlError {
    /// Its SQLSTATE.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            SqlError::NotSupported { .. } => "42601",
            SqlError::UnknownTable { .. } => "42P01",
            SqlError::UnknownColumn { .. } => "42703",
            SqlError::AmbiguousColumn { .. } => "42702",
            SqlError::NotGrouped { .. } | SqlError::MisplacedAggregate { .. } => "42803",
            SqlError::MissingValue { .. } => "07001",
            SqlError::WrongType { .. } => "42804",
            SqlError::OutOfRange { .. } => "22003",
            SqlError::TooLong { .. } => "22001",
            SqlError::NotNull { .. } => "23502",
            SqlError::Duplicate { .. } => "23505",
            SqlError::Damaged { .. } => "XX001",
            SqlError::Engine(_) => "XX000",
        }
    }

    /// What it means for a transaction.
    #[must_use]
    pub fn failure(&self) -> Failure {
        match self {
            SqlError::Engine(TxnError::Conflict(conflict)) => Failure::Conflict(match conflict {
                LockError::Deadlock => Conflict::Deadlock,
                LockError::TimedOut => Conflict::LockTimeout,
                LockError::Preempted => Conflict::Serialization,
            }),
            _ => Failure::Refused { code: self.code().to_owned(), message: self.to_string() },
        }
    }
}
