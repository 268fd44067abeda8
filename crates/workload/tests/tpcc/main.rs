//! TPC-C on real databases: loaded, run, checked, and checked after somebody tampered with it.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test may fail, and says its seed")]

mod postgres;
mod sqlite;

use std::sync::atomic::AtomicBool;

use tidegate_subject::connection::{Transactional, check, load};
use tidegate_workload::tpcc::{Scale, Tpcc};
use tidegate_workload::workload::{Condition, Depth};

/// Two warehouses with 200 items and ten times 60 customers each.
fn small() -> Tpcc {
    Tpcc::new(Scale::new(2).unwrap().reduced(200, 60).unwrap())
}

fn load_into<C: Transactional>(connection: &mut C, workload: &Tpcc) -> u64 {
    let mut rows = 0;
    load(connection, workload, &AtomicBool::new(false), &mut |loaded| rows = loaded).unwrap();
    rows
}

/// The names of the conditions that do not hold, without the clause's number.
fn violated(conditions: &[Condition]) -> Vec<u32> {
    let number = |condition: &Condition| {
        condition.name.strip_prefix("TPC-C 3.3.2.").unwrap().parse().unwrap()
    };
    conditions.iter().filter(|condition| condition.violation.is_some()).map(number).collect()
}

/// All twelve conditions hold.
fn assert_consistent<C: Transactional>(connection: &mut C, workload: &Tpcc) {
    let conditions = check(connection, workload, Depth::Full).unwrap();
    assert_eq!(conditions.len(), 12);
    assert!(violated(&conditions).is_empty(), "{conditions:#?}");
}
