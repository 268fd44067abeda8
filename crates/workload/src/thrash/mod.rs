//! The range transactions of the causal study of thrashing (Suh, Snodgrass and Currim, 2017), and
//! the others that it asks for.
//!
//! # Mechanism
//! Two tables of `rows` rows, each row 200 bytes: five integers and two strings of 90 characters.
//! `id1` counts the rows from 0. A transaction is one statement on one of the tables, drawn
//! (Section 5 of the study):
//!
//! ```sql
//! SELECT <column> FROM <table> WHERE id1 >= a AND id1 < b;
//! UPDATE <table> SET <column> = <value> WHERE id1 >= a AND id1 < b;
//! ```
//!
//! With c rows, the share SF of the rows a transaction touches and the share ROSE of the rows that
//! it may touch, `a` is drawn from [0, c·ROSE − c·SF] and `b` is `a` + c·SF. A small ROSE is a hot
//! spot. Without a primary key on `id1` (PK) every statement reads the whole table.
//!
//! # Example
//! 30,000 rows, SF 0.25 %, ROSE 25 %: 75 rows from the first 7,500 of a table. Two transactions on
//! one table meet when their `a` are less than 75 apart, so for 2 % of the pairs; of 256
//! transactions at once each meets, in the mean, 2.5 others and waits for the locks of some.
//!
//! # What the study asks for
//! SF and ROSE explained nothing in its data, and Section 7.3 suspects the way they were made into
//! transactions. So there are other ways, see [`Options`]:
//!
//! * **Placement.** A random `a` touches the rows in the middle of the region more often than
//!   those at its ends. [`Placement::Rotation`] gives each transaction the chunk of c·SF rows
//!   after the last one's: client n begins with chunk n and goes on from chunk to chunk. Rows at
//!   the end of the region that do not fill a chunk are left out. [`Placement::Discrete`] lists
//!   single rows, `id1 IN (..)`: the region is cut into c·SF pieces, and of each one row is drawn.
//! * **SF** from one row to all of them.
//! * **Reads and updates mixed**, by weights.
//! * **Joins**: both tables, equal in `id1`, over the rows of a transaction in the first of them.
//! * **Insertions and deletions**, which the study left out because they change the table's size.
//!   Here they do not: each client has one `id1` above the table, its own, and deletes and inserts
//!   the row there by turns. A table has at most one row more for each client, and no other
//!   transaction asks for it.
//!
//! # Where this leaves the study
//! * **Every transaction is drawn anew.** In the study a client is given one and repeats it. A
//!   handful of clients would then meet always or never, by the luck of the draw.
//! * **`id1` is neither read nor set.** The column is drawn from the other six. A new `id1` would
//!   move a row out of its range, and the ranges would run empty.
//! * **Strings are letters, all of 90.** The study says 200 bytes a row, 180 of them strings, and
//!   calls the strings variable in size, but gives no sizes.
//!
//! # Limits
//! * Updates are not a sum that could be checked afterwards: the check finds rows that are lost,
//!   doubled or moved, and each read finds as many rows as it asks for.
//! * Two updates on one table can deadlock when the server visits the rows of their ranges in
//!   different orders, which it does once updated rows have moved or when plans differ; the loser
//!   is run again and counted.
//! * Insertions take their places beside each other, so that clients meet on a page and not in a
//!   row. Two clients of one number at once would insert one row twice, which the key refuses;
//!   without a key, the deletion that follows removes both.
//! * A list has at most [`LIST_MAX`] values, and [`LIST_MAX_FIREBIRD`] on Firebird, which takes
//!   longer ones from its version 5 on: 3 % and 0.15 % of a million rows. More is refused before
//!   tables are made.

mod client;
mod options;
mod statements;
mod tables;

use std::sync::Arc;

pub use options::{
    CLIENTS_MAX, ContradictoryOptions, LIST_MAX, LIST_MAX_FIREBIRD, Mix, Options, Placement,
    ROWS_MAX, Share,
};

use crate::workload::{Client, Condition, Depth, Kind, Unfit, Workload};
use crate::{Dialect, Running, Session, Table, Value};
use client::StudyClient;
use statements::Statements;

const PHASES: &[&str] = &["statement"];

const KINDS: [Kind; 5] = [
    Kind { name: "read", phases: PHASES },
    Kind { name: "update", phases: PHASES },
    Kind { name: "insert", phases: PHASES },
    Kind { name: "delete", phases: PHASES },
    Kind { name: "join", phases: PHASES },
];

#[derive(Clone, Debug)]
pub struct Thrash {
    options: Options,
    statements: Arc<Statements>,
}

impl Thrash {
    /// The workload with these options.
    pub fn new(options: Options) -> Result<Self, ContradictoryOptions> {
        options.validate()?;
        Ok(Thrash { statements: Arc::new(Statements::new(&options)), options })
    }

    pub fn options(&self) -> &Options {
        &self.options
    }
}

impl Workload for Thrash {
    fn name(&self) -> &'static str {
        "thrash"
    }

    fn kinds(&self) -> &'static [Kind] {
        &KINDS
    }

    fn validate(&self, dialect: Dialect) -> Result<(), Unfit> {
        self.options.validate_on(dialect)
    }

    fn tables(&self) -> Vec<Table> {
        tables::tables(&self.options)
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        Box::new((0..self.options.rows).map(move |id1| tables::row(table, id1)))
    }

    fn client(&self, number: usize, _clients: usize, seed: u64) -> Box<dyn Client> {
        let statements = self.statements.clone();
        Box::new(StudyClient::new(self.options.clone(), statements, number, seed))
    }

    fn check<'d>(&self, session: Session<'d>, depth: Depth) -> Running<'d, Vec<Condition>> {
        let rows = self.options.rows;
        Box::pin(async move { tables::check(rows, &session, depth).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_key_there_is_no_index_at_all() {
        for (primary_key, ending) in [(true, "PRIMARY KEY (id1))"), (false, "str2 varchar(90))")] {
            let study = Thrash::new(Options { primary_key, ..Options::read() }).unwrap();
            for table in study.tables() {
                assert!(table.create(Dialect::Postgres).ends_with(ending));
                assert!(table.create_indexes().is_empty());
            }
        }
    }

    #[test]
    fn rows_count_from_0_are_200_bytes_and_repeat() {
        let study = Thrash::new(Options { rows: 1_000, ..Options::read() }).unwrap();
        let rows: Vec<_> = study.rows(1).collect();
        assert_eq!(rows.len(), 1_000);
        for (id1, row) in (0_i64..).zip(&rows) {
            assert_eq!(row[0], Value::Int(id1));
            let bytes = |value: &Value<'_>| match value {
                Value::Int(number) => i32::try_from(*number).map(|_| 4).unwrap(),
                Value::Text(text) => text.len(),
                Value::Null => 0,
            };
            assert_eq!(row.iter().map(bytes).sum::<usize>(), 200);
        }
        assert_eq!(rows, study.rows(1).collect::<Vec<_>>());
        assert_ne!(rows, study.rows(0).collect::<Vec<_>>());
        assert_ne!(rows[0][1..], rows[1][1..]);
    }
}
