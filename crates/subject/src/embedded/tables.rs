//! The tables as trees: keys, rows, how they are filled and summed.
//!
//! A row has as many bytes as PostgreSQL's, without its header. Keys are numbers, the highest byte
//! first, so that their order is that of the numbers.
//!
//! | tree | key | value |
//! | --- | --- | --- |
//! | accounts, tellers, branches | number, 4 bytes | balance 8, branch 4, filler 80 |
//! | history | transaction's number, 8 bytes | teller, branch, account, delta 4, µs 8, filler 22 |
//! | thrash | `id1`, 4 bytes | four integers 4 each, two strings 90 each |
//!
//! pgbench's history has no key, and rows go where there is room. Here they go to the end.

use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_engine::{Direction, Durability, Isolation, Store, TreeHandle, TxnError, TxnOptions};
use tidegate_workload::Draw;
use tidegate_workload::pgbench::{ACCOUNTS, BRANCHES, Scale, Sums, TELLERS};
use tidegate_workload::thrash::{INTEGERS, Rows, STRING_LEN, STRINGS, TABLES, Value};
use tidegate_workload::tpcb::Tpcb;

use super::EmbeddedError;

/// Bytes of a row with a balance, without its key.
const ROW_LEN: usize = 92;
const BALANCE: Range<usize> = 0..8;
const BRANCH: Range<usize> = 8..12;
const _: () = assert!(BRANCH.end <= ROW_LEN);

/// Bytes of a row of the history, and where its amount is.
const HISTORY_LEN: usize = 46;
const DELTA: Range<usize> = 12..16;
const TIME: Range<usize> = 16..24;
const _: () = assert!(TIME.end <= HISTORY_LEN);

/// Bytes of a row of the thrash tables, without its key.
const THRASH_LEN: usize = 4 * INTEGERS + STRING_LEN * STRINGS;

/// Rows that one transaction puts into a table.
const BATCH: usize = 1_000;

/// The thrash tables are the same each time.
const THRASH_SEED: u64 = 5;

/// The trees of the tables that are loaded.
#[derive(Clone, Default)]
pub(super) struct Trees {
    pub(super) pgbench: Option<Pgbench>,
    pub(super) thrash: Option<Vec<TreeHandle>>,
}

/// pgbench's tables.
#[derive(Clone)]
pub(super) struct Pgbench {
    pub(super) accounts: TreeHandle,
    pub(super) tellers: TreeHandle,
    pub(super) branches: TreeHandle,
    pub(super) history: TreeHandle,
}

/// The key of a number, which is not negative.
pub(super) fn key(number: i32) -> [u8; 4] {
    number.to_be_bytes()
}

/// The balance in a row; `None` when it has none.
pub(super) fn balance(row: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(row.get(BALANCE)?.try_into().ok()?))
}

/// Changes the balance in a row that has one.
pub(super) fn set_balance(row: &mut [u8], balance: i64) {
    set(row, BALANCE, &balance.to_le_bytes());
}

/// The row that a transaction leaves in the history, at a time since 1970.
pub(super) fn history_row(values: &Tpcb, time: Duration) -> [u8; HISTORY_LEN] {
    let mut row = [0; HISTORY_LEN];
    let numbers = [values.teller, values.branch, values.account, values.delta];
    for (number, field) in numbers.iter().zip(row.chunks_exact_mut(4)) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    set(&mut row, TIME, &micros.to_le_bytes());
    row
}

/// Where a column is in a row of the thrash tables.
pub(super) fn column(place: usize) -> Range<usize> {
    match place.checked_sub(INTEGERS) {
        None => 4 * place..4 * place + 4,
        Some(string) => {
            let from = 4 * INTEGERS + STRING_LEN * string;
            from..from + STRING_LEN
        }
    }
}

/// Changes a column of a row of the thrash tables.
pub(super) fn set_column(row: &mut [u8], place: usize, value: Value) {
    match value {
        Value::Integer(number) => set(row, column(place), &number.to_le_bytes()),
        Value::Letters(letters) => set(row, column(place), &letters),
    }
}

fn set(row: &mut [u8], field: Range<usize>, bytes: &[u8]) {
    if let Some(field) = row.get_mut(field).filter(|field| field.len() == bytes.len()) {
        field.copy_from_slice(bytes);
    }
}

/// Makes pgbench's tables.
pub(super) fn load_pgbench(
    store: &Store,
    scale: Scale,
    cancel: &AtomicBool,
) -> Result<Pgbench, EmbeddedError> {
    let row = |branch: u32| {
        let mut row = vec![0; ROW_LEN];
        set(&mut row, BRANCH, &branch.to_le_bytes());
        row
    };
    let numbered = |per_unit: u32| {
        let rows = (1..=scale.last(per_unit)).zip(0..);
        rows.map(move |(number, index): (i32, u32)| (number, row(index / per_unit + 1)))
    };
    Ok(Pgbench {
        branches: load(store, "branches", numbered(BRANCHES), cancel)?,
        tellers: load(store, "tellers", numbered(TELLERS), cancel)?,
        accounts: load(store, "accounts", numbered(ACCOUNTS), cancel)?,
        history: load(store, "history", std::iter::empty(), cancel)?,
    })
}

/// Makes the thrash study's tables.
pub(super) fn load_thrash(
    store: &Store,
    rows: Rows,
    cancel: &AtomicBool,
) -> Result<Vec<TreeHandle>, EmbeddedError> {
    let last = i32::try_from(rows.get()).unwrap_or(i32::MAX);
    let load_table = |(name, stream): (&&str, u64)| {
        let mut draw = Draw::new(THRASH_SEED, stream);
        load(store, name, (0..last).map(|number| (number, thrash_row(&mut draw))), cancel)
    };
    TABLES.iter().zip(0..).map(load_table).collect()
}

fn thrash_row(draw: &mut Draw) -> Vec<u8> {
    let mut row = vec![0; THRASH_LEN];
    let (integers, letters) = row.split_at_mut(4 * INTEGERS);
    for field in integers.chunks_exact_mut(4) {
        field.copy_from_slice(&draw.between(0, i32::MAX).to_le_bytes());
    }
    letters.fill_with(|| b'a' + u8::try_from(draw.between(0, 25)).unwrap_or(0));
    row
}

/// Makes a tree with these rows.
fn load(
    store: &Store,
    name: &str,
    mut rows: impl Iterator<Item = (i32, Vec<u8>)>,
    cancel: &AtomicBool,
) -> Result<TreeHandle, EmbeddedError> {
    let tree = store.create_tree(name)?;
    let options = TxnOptions { durability: Durability::Lazy, ..TxnOptions::default() };
    loop {
        if cancel.load(Ordering::Relaxed) {
            return Err(EmbeddedError::Cancelled);
        }
        let mut transaction = store.begin(options);
        let mut count = 0;
        for (number, row) in rows.by_ref().take(BATCH) {
            transaction.put(&tree, &key(number), &row)?;
            count += 1;
        }
        transaction.commit()?;
        if count < BATCH {
            return Ok(tree);
        }
    }
}

/// The sums of pgbench's tables, while nobody changes them.
pub(super) fn sums(store: &Store, trees: &Pgbench) -> Result<Sums, TxnError> {
    let sum = |tree: &TreeHandle| sum(store, tree, balance).map(|(sum, _)| sum);
    let amount = |row: &[u8]| {
        let delta = row.get(DELTA).and_then(|field| field.try_into().ok());
        delta.map(|delta| i64::from(i32::from_le_bytes(delta)))
    };
    let (history, history_rows) = self::sum(store, &trees.history, amount)?;
    Ok(Sums {
        accounts: sum(&trees.accounts)?,
        tellers: sum(&trees.tellers)?,
        branches: sum(&trees.branches)?,
        history,
        history_rows,
    })
}

/// The sum of a number in each row, and how many rows there are.
fn sum(
    store: &Store,
    tree: &TreeHandle,
    number: impl Fn(&[u8]) -> Option<i64>,
) -> Result<(i64, i64), TxnError> {
    let isolation = Isolation::ReadUncommitted;
    let mut transaction = store.begin(TxnOptions { isolation, ..TxnOptions::default() });
    let all = (Bound::Unbounded, Bound::Unbounded);
    let mut cursor = transaction.cursor(tree, all, Direction::Up)?;
    let (mut sum, mut rows) = (0, 0);
    while let Some((_, row)) = cursor.next(&mut transaction)? {
        sum += number(row).unwrap_or(0);
        rows += 1;
    }
    Ok((sum, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_is_that_of_numbers() {
        for (low, high) in [(0, 1), (1, 2), (255, 256), (65_535, 65_536), (1, i32::MAX)] {
            assert!(key(low) < key(high), "{low} and {high}");
        }
    }

    #[test]
    fn rows_are_as_long_as_postgresqls_and_hold_what_they_should() {
        let mut row = vec![7; ROW_LEN];
        set_balance(&mut row, -5);
        assert_eq!((row.len() + 4, balance(&row)), (96, Some(-5)));
        assert_eq!((row[8], balance(&row[..7])), (7, None));

        let values = Tpcb { account: 3, branch: 1, teller: 2, delta: -9 };
        let row = history_row(&values, Duration::from_micros(258));
        assert_eq!(row[..4], [2, 0, 0, 0]);
        assert_eq!(row[DELTA], (-9_i32).to_le_bytes());
        assert_eq!(row[TIME], [2, 1, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn columns_of_the_thrash_tables_fill_200_bytes_with_the_key() {
        assert_eq!((column(0), column(3), column(4)), (0..4, 12..16, 16..106));
        assert_eq!((column(5), THRASH_LEN + 4), (106..196, 200));
        let row = thrash_row(&mut Draw::new(1, 0));
        let mut other = row.clone();
        set_column(&mut other, 5, Value::Letters([b'x'; STRING_LEN]));
        assert_eq!((&other[..106], &other[106..]), (&row[..106], &[b'x'; STRING_LEN][..]));
        set_column(&mut other, 1, Value::Integer(258));
        assert_eq!(other[4..8], [2, 1, 0, 0]);
    }
}
