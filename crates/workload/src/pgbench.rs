//! The tables of PostgreSQL's `pgbench`, and the check of their sums.
//!
//! Names, columns, row counts and keys are pgbench's own (PostgreSQL documentation, chapter
//! "pgbench"), so that pgbench can run on them and the other way round.

use crate::workload::Condition;
use crate::{Column, Failure, Session, Statement, Table, Type, Value};

/// Branches per unit of scale.
pub const BRANCHES: u32 = 1;
/// Tellers per unit of scale.
pub const TELLERS: u32 = 10;
/// Accounts per unit of scale.
pub const ACCOUNTS: u32 = 100_000;

/// The size of the tables: number of branches, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale(u32);

impl Scale {
    /// The largest scale whose account numbers fit PostgreSQL's `int`.
    pub const MAX: u32 = i32::MAX.cast_unsigned() / ACCOUNTS;

    /// One branch.
    pub const ONE: Scale = Scale(1);

    /// A scale, or `None` unless it is in `1..=Scale::MAX`.
    pub const fn new(scale: u32) -> Option<Self> {
        if 1 <= scale && scale <= Self::MAX { Some(Scale(scale)) } else { None }
    }

    /// The number of branches.
    pub fn get(self) -> u32 {
        self.0
    }

    /// The highest key of a table with `per_unit` rows per unit of scale; the lowest is 1.
    pub fn last(self, per_unit: u32) -> i32 {
        i32::try_from(self.0 * per_unit).expect("the highest scale keeps keys within 32 bits")
    }
}

/// A table whose rows have a number and a balance.
struct Numbered {
    name: &'static str,
    key: &'static str,
    balance: &'static str,
    filler: u16,
    per_unit: u32,
}

/// The tables with balances; the first has no branch but is one.
const NUMBERED: [Numbered; 3] = [
    Numbered {
        name: "pgbench_branches",
        key: "bid",
        balance: "bbalance",
        filler: 88,
        per_unit: BRANCHES,
    },
    Numbered {
        name: "pgbench_tellers",
        key: "tid",
        balance: "tbalance",
        filler: 84,
        per_unit: TELLERS,
    },
    Numbered {
        name: "pgbench_accounts",
        key: "aid",
        balance: "abalance",
        filler: 84,
        per_unit: ACCOUNTS,
    },
];

/// The tables: branches, tellers, accounts, and the history, which has no key.
pub fn tables() -> Vec<Table> {
    let history = Table {
        name: "pgbench_history",
        columns: vec![
            Column::nullable("tid", Type::Int),
            Column::nullable("bid", Type::Int),
            Column::nullable("aid", Type::Int),
            Column::nullable("delta", Type::Int),
            Column::nullable("mtime", Type::Timestamp),
            Column::nullable("filler", Type::Char(22)),
        ],
        primary_key: vec![],
        indexes: vec![],
    };
    NUMBERED.iter().map(Numbered::table).chain([history]).collect()
}

/// The rows of the table with this place in [`tables`].
pub fn rows(scale: Scale, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send> {
    let Some(table) = NUMBERED.get(table) else {
        return Box::new(std::iter::empty());
    };
    let numbers = (1..=scale.last(table.per_unit)).zip(0..);
    Box::new(numbers.map(move |(number, index)| table.row(number, index)))
}

impl Numbered {
    fn is_branch(&self) -> bool {
        self.per_unit == BRANCHES
    }

    fn table(&self) -> Table {
        let mut columns = vec![Column::new(self.key, Type::Int)];
        if !self.is_branch() {
            columns.push(Column::nullable("bid", Type::Int));
        }
        columns.push(Column::nullable(self.balance, Type::Int));
        columns.push(Column::nullable("filler", Type::Char(self.filler)));
        Table { name: self.name, columns, primary_key: vec![self.key], indexes: vec![] }
    }

    /// Row `number`, which has so many before it.
    fn row(&self, number: i32, index: u32) -> Vec<Value<'static>> {
        let filler = if self.is_branch() { Value::Null } else { "".into() };
        let mut row = vec![number.into(), Value::Int(0), filler];
        if !self.is_branch() {
            row.insert(1, Value::Int(i64::from(index / self.per_unit + 1)));
        }
        row
    }
}

/// The sums every transaction changes alike: `TPC-B`'s consistency condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    pub accounts: i64,
    pub tellers: i64,
    pub branches: i64,
    /// Sum of all changes in the history.
    pub history: i64,
    /// Rows in the history, one for each committed transaction.
    pub history_rows: i64,
}

impl Sums {
    /// Adds up, while nobody changes the tables.
    pub async fn read(session: &Session<'_>) -> Result<Self, Failure> {
        const ACCOUNTS: Statement = Statement::new("SELECT SUM(abalance) FROM pgbench_accounts");
        const TELLERS: Statement = Statement::new("SELECT SUM(tbalance) FROM pgbench_tellers");
        const BRANCHES: Statement = Statement::new("SELECT SUM(bbalance) FROM pgbench_branches");
        const HISTORY: Statement = Statement::new("SELECT SUM(delta) FROM pgbench_history");
        const ROWS: Statement = Statement::new("SELECT COUNT(*) FROM pgbench_history");
        Ok(Sums {
            accounts: number(session, &ACCOUNTS).await?,
            tellers: number(session, &TELLERS).await?,
            branches: number(session, &BRANCHES).await?,
            history: number(session, &HISTORY).await?,
            history_rows: number(session, &ROWS).await?,
        })
    }

    /// Whether all four sums are equal, so that no transaction was applied in part.
    pub fn consistent(&self) -> bool {
        [self.tellers, self.branches, self.history].iter().all(|&sum| sum == self.accounts)
    }

    pub fn condition(&self) -> Condition {
        Condition {
            name: "TPC-B sums",
            violation: (!self.consistent()).then(|| format!("the sums differ: {self:?}")),
        }
    }
}

/// The number in the one row of an answer; a sum of no rows is none.
async fn number(session: &Session<'_>, statement: &Statement) -> Result<i64, Failure> {
    let rows = session.query_some(statement, &[], "the row of a sum").await?;
    rows.sum(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_where_account_numbers_do() {
        assert_eq!(Scale::new(0), None);
        assert_eq!(Scale::new(Scale::MAX + 1), None);
        let largest = Scale::new(Scale::MAX).unwrap();
        assert_eq!(largest.last(ACCOUNTS), 2_147_400_000);
    }

    #[test]
    fn the_tables_are_pgbenchs() {
        let names: Vec<_> = tables().iter().map(|table| table.name).collect();
        let expected =
            ["pgbench_branches", "pgbench_tellers", "pgbench_accounts", "pgbench_history"];
        assert_eq!(names, expected);
        let scale = Scale::new(2).unwrap();
        for (table, (place, count)) in tables().iter().zip([2, 20, 200_000, 0].iter().enumerate()) {
            assert_eq!(rows(scale, place).count(), *count, "{}", table.name);
            assert!(rows(scale, place).all(|row| row.len() == table.columns.len()));
        }
        let last = rows(scale, 2).last().unwrap();
        assert_eq!(last, [Value::Int(200_000), Value::Int(2), Value::Int(0), "".into()]);
        assert_eq!(rows(scale, 1).nth(10).unwrap()[..2], [Value::Int(11), Value::Int(2)]);
    }

    #[test]
    fn one_sum_that_differs_is_named() {
        let equal = Sums { accounts: -7, tellers: -7, branches: -7, history: -7, history_rows: 3 };
        assert_eq!(equal.condition().violation, None);
        for wrong in [
            Sums { accounts: 1, ..equal },
            Sums { tellers: 1, ..equal },
            Sums { branches: 1, ..equal },
            Sums { history: 1, ..equal },
        ] {
            assert!(!wrong.consistent());
            assert!(wrong.condition().violation.unwrap().contains("differ"));
        }
    }
}
