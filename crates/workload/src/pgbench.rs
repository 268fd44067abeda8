//! The tables of PostgreSQL's `pgbench`, filled by the server, and the check of their sums.
//!
//! Names, columns, fill factors, row counts and keys are pgbench's own (PostgreSQL documentation,
//! chapter "pgbench"), so that pgbench can run on them and the other way round.

use crate::append;

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
    #[must_use]
    pub const fn new(scale: u32) -> Option<Self> {
        if 1 <= scale && scale <= Self::MAX { Some(Scale(scale)) } else { None }
    }

    /// The number of branches.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    /// The highest key of a table with `per_unit` rows per unit of scale; the lowest is 1.
    #[must_use]
    pub fn last(self, per_unit: u32) -> i32 {
        // Within i32 for every table, by the bound on the scale.
        i32::try_from(self.0 * per_unit).unwrap_or(i32::MAX)
    }
}

/// Statements that make the tables anew, each to be run on its own: VACUUM cannot share a
/// transaction.
#[must_use]
pub fn load_statements(scale: Scale) -> Vec<String> {
    let (branches, tellers, accounts) =
        (scale.last(BRANCHES), scale.last(TELLERS), scale.last(ACCOUNTS));
    vec![
        "DROP TABLE IF EXISTS \
         pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers"
            .to_owned(),
        "CREATE TABLE pgbench_history \
         (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22))"
            .to_owned(),
        "CREATE TABLE pgbench_tellers \
         (tid int NOT NULL, bid int, tbalance int, filler char(84)) WITH (fillfactor=100)"
            .to_owned(),
        "CREATE TABLE pgbench_accounts \
         (aid int NOT NULL, bid int, abalance int, filler char(84)) WITH (fillfactor=100)"
            .to_owned(),
        "CREATE TABLE pgbench_branches \
         (bid int NOT NULL, bbalance int, filler char(88)) WITH (fillfactor=100)"
            .to_owned(),
        format!(
            "INSERT INTO pgbench_branches (bid, bbalance) \
             SELECT bid, 0 FROM generate_series(1, {branches}) AS bid"
        ),
        format!(
            "INSERT INTO pgbench_tellers (tid, bid, tbalance) \
             SELECT tid, (tid - 1) / {TELLERS} + 1, 0 FROM generate_series(1, {tellers}) AS tid"
        ),
        format!(
            "INSERT INTO pgbench_accounts (aid, bid, abalance, filler) \
             SELECT aid, (aid - 1) / {ACCOUNTS} + 1, 0, '' \
             FROM generate_series(1, {accounts}) AS aid"
        ),
        "VACUUM ANALYZE pgbench_branches".to_owned(),
        "VACUUM ANALYZE pgbench_tellers".to_owned(),
        "VACUUM ANALYZE pgbench_accounts".to_owned(),
        "VACUUM ANALYZE pgbench_history".to_owned(),
        "ALTER TABLE pgbench_branches ADD PRIMARY KEY (bid)".to_owned(),
        "ALTER TABLE pgbench_tellers ADD PRIMARY KEY (tid)".to_owned(),
        "ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid)".to_owned(),
    ]
}

/// Statements that give two runs on the same tables the same start: dead versions of the hot rows
/// gone, and no checkpoint left over from the run before. Each is to be run on its own.
pub const LEVEL_STATEMENTS: [&str; 3] =
    ["VACUUM pgbench_branches", "VACUUM pgbench_tellers", "CHECKPOINT"];

/// A query whose one row holds the sums that [`Sums::read`] takes.
pub const SUMS_QUERY: &str = "\
    SELECT (SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts), \
           (SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers), \
           (SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches), \
           (SELECT coalesce(sum(delta), 0) FROM pgbench_history), \
           (SELECT count(*) FROM pgbench_history)";

/// The sums every transaction changes alike: `TPC-B`'s consistency condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Sum of all account balances.
    pub accounts: i64,
    /// Sum of all teller balances.
    pub tellers: i64,
    /// Sum of all branch balances.
    pub branches: i64,
    /// Sum of all changes in the history.
    pub history: i64,
    /// Rows in the history, one for each committed transaction.
    pub history_rows: i64,
}

impl Sums {
    /// The sums in the row [`SUMS_QUERY`] returns; `None` when it is not that row.
    #[must_use]
    pub fn read(row: &[Option<String>]) -> Option<Self> {
        let number = |column: &Option<String>| column.as_deref()?.parse().ok();
        let [accounts, tellers, branches, history, history_rows] = row else {
            return None;
        };
        Some(Sums {
            accounts: number(accounts)?,
            tellers: number(tellers)?,
            branches: number(branches)?,
            history: number(history)?,
            history_rows: number(history_rows)?,
        })
    }

    /// Whether all four sums are equal, so that no transaction was applied in part.
    #[must_use]
    pub fn consistent(&self) -> bool {
        [self.tellers, self.branches, self.history].iter().all(|&sum| sum == self.accounts)
    }
}

/// Appends pgbench's select by primary key, which both workloads run.
pub(crate) fn write_select(account: i32, out: &mut Vec<u8>) {
    append(out, format_args!("SELECT abalance FROM pgbench_accounts WHERE aid = {account};"));
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
    fn sums_are_read_and_compared() {
        let row = |texts: [&str; 5]| texts.map(|text| Some(text.to_owned()));
        let equal = Sums::read(&row(["-7", "-7", "-7", "-7", "3"])).unwrap();
        assert!(equal.consistent());
        for wrong in 0..4 {
            let mut texts = ["5"; 5];
            texts[wrong] = "6";
            assert!(!Sums::read(&row(texts)).unwrap().consistent());
        }
        assert_eq!(Sums::read(&row(["x", "1", "1", "1", "1"])), None);
        assert_eq!(Sums::read(&[None, None]), None);
    }
}
