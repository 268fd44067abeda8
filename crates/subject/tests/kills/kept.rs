//! What has to be in the tables after a run with kills.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use tidegate_subject::connection::{Connector, Transactional, check};
use tidegate_workload::tpcc::{NEW_ORDER, PAYMENT, Scale, Tpcc};
use tidegate_workload::workload::{Depth, Workload};
use tidegate_workload::{Statement, Wants};

use super::crowd::Count;

/// Orders, and payments, that TPC-C starts with: one of each customer.
const STARTED_WITH: u64 = 2 * 10 * 60;

/// Two warehouses with 200 items and ten times 60 customers each.
pub(super) fn tpcc() -> Tpcc {
    Tpcc::new(Scale::new(2).unwrap().reduced(200, 60).unwrap())
}

/// All conditions of the workload hold.
pub(super) fn assert_consistent(connector: &dyn Connector, workload: &dyn Workload) {
    let mut connection = connector.connect().unwrap();
    let conditions = check(&mut *connection, workload, Depth::Full).unwrap();
    assert!(!conditions.is_empty());
    for condition in &conditions {
        assert_eq!(condition.violation, None, "{}: {}", workload.name(), condition.name);
    }
    println!("{}: {} conditions hold", workload.name(), conditions.len());
}

/// All twelve conditions hold, what was committed is there and nothing that nobody sent, and no
/// change of the stock is lost.
pub(super) fn assert_tpcc(connector: &dyn Connector, workload: &dyn Workload, sent: &Sent) {
    assert_consistent(connector, workload);
    let mut connection = connector.connect().unwrap();
    let mut number = |sql| number(&mut *connection, sql);
    for (what, sql, sent) in [
        ("orders", "SELECT COUNT(*) FROM orders", &sent.orders),
        ("payments", "SELECT COUNT(*) FROM history", &sent.payments),
    ] {
        let found = number(sql) - STARTED_WITH;
        assert!(sent.contains(&found), "{found} {what}, and {sent:?} were sent");
    }
    let sold = number("SELECT SUM(ol_quantity) FROM order_line WHERE ol_o_id > 60");
    assert!(sold > 0);
    assert_eq!(number("SELECT SUM(s_ytd) FROM stock"), sold);
}

fn number(connection: &mut dyn Transactional, sql: &'static str) -> u64 {
    let reply = connection.run(&Statement::new(sql), &[], Wants::Rows).unwrap();
    u64::try_from(reply.rows.int(0, 0).unwrap()).unwrap()
}

/// How many transactions may have been committed: those reported so, and at most the doubtful ones.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) orders: RangeInclusive<u64>,
    pub(super) payments: RangeInclusive<u64>,
}

impl Sent {
    pub(super) fn by(counts: &[Count]) -> Self {
        let range = |count: &Count| {
            let committed = count.committed.load(Ordering::Relaxed);
            committed..=committed + count.doubtful.load(Ordering::Relaxed)
        };
        Sent { orders: range(&counts[NEW_ORDER]), payments: range(&counts[PAYMENT]) }
    }
}
