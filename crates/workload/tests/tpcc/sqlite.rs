//! On a SQLite file.

use std::time::Duration;

use tempfile::TempDir;
use tidegate_subject::connection::{Transactional, check, run};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::tpcc::{DELIVERY, Mix, NEW_ORDER, PAYMENT, Scale, Tpcc};
use tidegate_workload::workload::{Condition, Depth, Workload};
use tidegate_workload::{
    Connection, Dialect, Ending, Failure, Reply, Session, Statement, Value, Wants, finish,
};

use super::{assert_consistent, load_into, small, violated};

fn open(directory: &TempDir) -> SqliteConnection {
    let path = directory.path().join("tpcc.db");
    let connection = SqliteConnection::open(&path, Duration::from_secs(10)).unwrap();
    // What is lost with the power is not tested here.
    connection.batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
    connection
}

fn number(connection: &mut impl Connection, sql: &str) -> i64 {
    let statement = Statement::written(sql.to_owned());
    connection.run(&statement, &[], Wants::Rows).unwrap().rows.int(0, 0).unwrap()
}

/// Notes the phases that a transaction enters.
struct Watched {
    connection: SqliteConnection,
    phases: Vec<usize>,
}

impl Connection for Watched {
    fn run(&mut self, sql: &Statement, of: &[Value<'_>], wants: Wants) -> Result<Reply, Failure> {
        self.connection.run(sql, of, wants)
    }

    fn phase(&mut self, number: usize) {
        self.phases.push(number);
    }
}

impl Transactional for Watched {
    fn begin(&mut self) -> Result<(), Failure> {
        self.connection.begin()
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.connection.commit()
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        self.connection.rollback()
    }

    fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }
}

/// What came of a run.
#[derive(Debug, Default)]
struct Counts {
    /// Transactions of each kind.
    kinds: [usize; 5],
    undone: usize,
}

/// Runs so many transactions of each of three clients in turn.
fn run_mix(connection: &mut Watched, workload: &Tpcc, each: usize, seed: u64) -> Counts {
    println!("seed {seed}");
    let mut clients: Vec<_> = (0..3).map(|number| workload.client(number, 3, seed)).collect();
    let mut counts = Counts::default();
    for _ in 0..each {
        for client in &mut clients {
            let transaction = client.next();
            let kind = transaction.kind();
            let said = format!("{transaction:?}");
            connection.phases.clear();
            let ending = run(connection, transaction).unwrap();
            counts.kinds[kind] += 1;
            counts.undone += usize::from(ending == Ending::Rollback);
            let is_unplaceable = said.contains("is_unplaceable: true");
            assert_eq!(ending == Ending::Rollback, is_unplaceable, "{said}");
            let last = workload.kinds()[kind].phases.len() - 1;
            assert_eq!(connection.phases.iter().max(), Some(&last), "{said}");
        }
    }
    counts
}

#[test]
fn a_run_keeps_all_conditions_and_the_mix() {
    let directory = tempfile::tempdir().unwrap();
    let mut connection = Watched { connection: open(&directory), phases: Vec::new() };
    for (mix, seed) in [(Mix::STANDARD, 20_260), (Mix::PAYMENT_HEAVY, 20_261)] {
        let workload = Tpcc { mix, ..small() };
        let rows = load_into(&mut connection, &workload);
        // Items, warehouses, stock, districts; then customers, history and orders, 18 new orders
        // of each district, and lines.
        let lines = u64::try_from(number(&mut connection, "SELECT COUNT(*) FROM order_line"));
        assert_eq!(rows, 200 + 2 + 400 + 20 + 3 * 1_200 + 20 * 18 + lines.unwrap());
        assert_consistent(&mut connection, &workload);
        let counts = run_mix(&mut connection, &workload, 1_000, seed);
        assert_eq!(counts.kinds, mix.shares().map(|share| usize::from(share) * 30));
        assert_done(&mut connection, &counts);
        assert_consistent(&mut connection, &workload);
        for table in workload.tables() {
            connection.connection.batch(&table.drop()).unwrap();
        }
    }
}

/// What the transactions did is in the tables.
fn assert_done(connection: &mut Watched, counts: &Counts) {
    let orders = counts.kinds[NEW_ORDER];
    // A hundredth, within six standard deviations of a binomial.
    let (mean, bound) = (orders as f64 / 100.0, 6.0 * (orders as f64 * 0.0099).sqrt());
    assert!(counts.undone > 0 && (counts.undone as f64 - mean).abs() < bound, "{counts:?}");
    let mut count = |sql: &str| usize::try_from(number(connection, sql)).unwrap();
    assert_eq!(count("SELECT COUNT(*) FROM orders"), 1_200 + orders - counts.undone);
    assert_eq!(count("SELECT COUNT(*) FROM history"), 1_200 + counts.kinds[PAYMENT]);
    let delivered = count("SELECT SUM(c_delivery_cnt) FROM customer");
    assert!(delivered <= counts.kinds[DELIVERY] * 10 && delivered > counts.kinds[DELIVERY] * 5);
    let sold = count("SELECT SUM(ol_quantity) FROM order_line WHERE ol_o_id > 60");
    assert_eq!(count("SELECT SUM(s_ytd) FROM stock"), sold);
    let lines = count("SELECT COUNT(*) FROM order_line WHERE ol_o_id > 60");
    assert_eq!(count("SELECT SUM(s_order_cnt) FROM stock"), lines);
    let remote = count("SELECT COUNT(*) FROM order_line WHERE ol_w_id <> ol_supply_w_id");
    assert_eq!(count("SELECT SUM(s_remote_cnt) FROM stock"), remote);
    assert!(remote > 0 && count("SELECT COUNT(*) FROM stock WHERE s_quantity < 10") == 0);
    let noted = "SELECT COUNT(*) FROM customer WHERE c_credit = 'BC' AND c_payment_cnt > 1";
    let past = format!("{noted} AND c_data LIKE c_id || ' ' || c_d_id || ' ' || c_w_id || ' %'");
    assert_eq!(count(noted), count(&past));
}

/// What is done to the tables, and the conditions that do not hold then.
const TAMPERING: &[(&str, &[u32])] = &[
    ("UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 2", &[1, 8]),
    ("UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = 1 AND d_id = 3", &[2]),
    ("DELETE FROM new_order WHERE no_w_id = 1 AND no_d_id = 4 AND no_o_id = 50", &[3, 5, 11]),
    ("INSERT INTO new_order VALUES (2, 10, 61)", &[2, 5, 11]),
    ("INSERT INTO new_order VALUES (2, 10, 42)", &[5, 11]),
    (
        "DELETE FROM order_line WHERE ol_w_id = 1 AND ol_d_id = 1 AND ol_o_id = 60 \
         AND ol_number = 5",
        &[4, 6],
    ),
    ("INSERT INTO order_line VALUES (1, 1, 61, 1, 1, 1, NULL, 1, 1, 'x')", &[4, 7]),
    ("DELETE FROM orders WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 60", &[2, 4, 5, 7, 11]),
    ("UPDATE orders SET o_carrier_id = 1 WHERE o_w_id = 2 AND o_d_id = 7 AND o_id = 43", &[5, 7]),
    (
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 1; \
         UPDATE orders SET o_ol_cnt = o_ol_cnt - 1 WHERE o_w_id = 1 AND o_d_id = 1 AND o_id = 2",
        &[6],
    ),
    (
        "UPDATE order_line SET ol_delivery_d = NULL \
         WHERE ol_w_id = 1 AND ol_d_id = 2 AND ol_o_id = 3 AND ol_number = 4",
        &[7],
    ),
    (
        "UPDATE warehouse SET w_ytd = w_ytd + 5 WHERE w_id = 1; \
         UPDATE district SET d_ytd = d_ytd + 5 WHERE d_w_id = 1 AND d_id = 10",
        &[8, 9],
    ),
    (
        "UPDATE district SET d_ytd = d_ytd + 5 WHERE d_w_id = 1 AND d_id = 9; \
         UPDATE district SET d_ytd = d_ytd - 5 WHERE d_w_id = 1 AND d_id = 10",
        &[9],
    ),
    (
        "UPDATE customer SET c_balance = c_balance + 1, c_ytd_payment = c_ytd_payment - 1 \
         WHERE c_w_id = 2 AND c_d_id = 5 AND c_id = 60",
        &[10],
    ),
    (
        "UPDATE history SET h_amount = h_amount + 1 \
         WHERE h_c_w_id = 2 AND h_c_d_id = 5 AND h_c_id = 60",
        &[8, 9, 10],
    ),
    ("UPDATE customer SET c_delivery_cnt = 1 WHERE c_w_id = 2 AND c_d_id = 5 AND c_id = 60", &[11]),
    (
        "UPDATE customer SET c_ytd_payment = c_ytd_payment + 1 \
         WHERE c_w_id = 1 AND c_d_id = 6 AND c_id = 1",
        &[12],
    ),
];

/// What is found when the tables are tampered with, which is then undone.
fn tampered(
    connection: &mut SqliteConnection,
    workload: &Tpcc,
    sql: &str,
    depth: Depth,
) -> Vec<Condition> {
    connection.begin().unwrap();
    connection.batch(sql).unwrap();
    let found = finish(workload.check(Session::immediate(connection), depth)).unwrap();
    connection.rollback().unwrap();
    found
}

#[test]
fn tampering_is_found_by_the_conditions_it_violates() {
    let directory = tempfile::tempdir().unwrap();
    let mut connection = open(&directory);
    let workload = small();
    load_into(&mut connection, &workload);
    for (sql, expected) in TAMPERING {
        let found = tampered(&mut connection, &workload, sql, Depth::Full);
        assert_eq!(violated(&found), *expected, "{sql}: {found:#?}");
        let quick = tampered(&mut connection, &workload, sql, Depth::Quick);
        assert_eq!(quick.len(), 4);
        let expected: Vec<u32> = expected.iter().copied().filter(|&number| number <= 4).collect();
        assert_eq!(violated(&quick), expected, "{sql}: {quick:#?}");
    }
    let all: std::collections::BTreeSet<u32> =
        TAMPERING.iter().flat_map(|(_, found)| *found).copied().collect();
    assert_eq!(all, (1..=12).collect());
    assert_consistent(&mut connection, &workload);
}

#[test]
fn a_violation_says_where_and_how_often() {
    let directory = tempfile::tempdir().unwrap();
    let mut connection = open(&directory);
    let workload = small();
    load_into(&mut connection, &workload);
    let sql = "UPDATE orders SET o_ol_cnt = 0 WHERE o_w_id = 2 AND o_d_id = 3 AND o_id <= 4; \
               UPDATE district SET d_next_o_id = 100 WHERE d_w_id = 1 AND d_id = 2";
    let found = tampered(&mut connection, &workload, sql, Depth::Full);
    let told = |place: usize| found[place].violation.clone().unwrap();
    let place = "warehouse 1, district 2";
    assert_eq!(
        told(1),
        format!("{place}: D_NEXT_O_ID - 1 is 99, the highest O_ID 60, the highest NO_O_ID 60")
    );
    assert!(told(5).starts_with("warehouse 2, district 3: order 1 has "), "{}", told(5));
    assert!(told(5).ends_with("lines, its O_OL_CNT is 0; and 3 more"), "{}", told(5));
}

/// Orders are read a thousand at a time.
#[test]
fn orders_of_several_pages_are_all_looked_at() {
    let directory = tempfile::tempdir().unwrap();
    let mut connection = open(&directory);
    let workload = Tpcc::new(Scale::new(1).unwrap().reduced(10, 1_001).unwrap());
    load_into(&mut connection, &workload);
    assert_consistent(&mut connection, &workload);
    for order in [1, 1_000, 1_001] {
        for (sql, expected) in [
            ("UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE o_d_id = 9 AND o_id =", &[4, 6][..]),
            ("UPDATE order_line SET ol_o_id = -5 WHERE ol_d_id = 9 AND ol_o_id =", &[6, 7]),
            ("UPDATE order_line SET ol_o_id = 1002 WHERE ol_d_id = 9 AND ol_o_id =", &[6, 7]),
        ] {
            let found =
                tampered(&mut connection, &workload, &format!("{sql} {order}"), Depth::Full);
            assert_eq!(violated(&found), expected, "{sql} {order}: {found:#?}");
        }
    }
    let conditions = check(&mut connection, &workload, Depth::Quick).unwrap();
    assert_eq!((conditions.len(), violated(&conditions)), (4, Vec::new()));
}

#[test]
fn missing_warehouses_and_districts_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut connection = open(&directory);
    let workload = small();
    load_into(&mut connection, &workload);
    for (sql, expected) in [
        ("DELETE FROM warehouse WHERE w_id = 2", "each warehouse"),
        ("DELETE FROM district WHERE d_id = 10", "ten districts of each warehouse"),
    ] {
        connection.begin().unwrap();
        connection.batch(sql).unwrap();
        let found = finish(workload.check(Session::immediate(&mut connection), Depth::Quick));
        assert_eq!(found, Err(Failure::Unexpected(expected)));
        connection.rollback().unwrap();
    }
}

#[test]
#[ignore = "soak: loads 600,000 rows"]
fn a_whole_warehouse_is_filled_as_the_specification_says() {
    let directory = tempfile::tempdir().unwrap();
    let mut connection = Watched { connection: open(&directory), phases: Vec::new() };
    let workload = Tpcc::new(Scale::new(1).unwrap());
    load_into(&mut connection, &workload);
    for (table, rows) in [
        ("item", 100_000),
        ("warehouse", 1),
        ("stock", 100_000),
        ("district", 10),
        ("customer", 30_000),
        ("history", 30_000),
        ("orders", 30_000),
        ("new_order", 9_000),
    ] {
        assert_eq!(number(&mut connection, &format!("SELECT COUNT(*) FROM {table}")), rows);
    }
    // Ten lines an order in the mean, with a standard deviation of 3.16.
    let lines = number(&mut connection, "SELECT COUNT(*) FROM order_line");
    assert!(lines.abs_diff(300_000) < 3_300, "{lines}");
    assert_consistent(&mut connection, &workload);
    run_mix(&mut connection, &workload, 1_000, 20_262);
    assert_consistent(&mut connection, &workload);
}
