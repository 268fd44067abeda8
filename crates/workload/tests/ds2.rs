//! The DVD store on a real database file: its transactions run, from several threads too, the check
//! holds afterwards, and finds what is planted.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidegate_subject::connection::{check, load, run};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::ds2::{Ds2, Options, Scale, Search};
use tidegate_workload::workload::{Client, Depth, Workload};
use tidegate_workload::{Connection, Ending, Statement, Wants};

const SEED: u64 = 2_005;

fn open(path: &Path) -> SqliteConnection {
    let connection = SqliteConnection::open(path, Duration::from_secs(60)).unwrap();
    connection.batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
    connection
}

fn loaded(options: Options, path: &Path) -> (Ds2, SqliteConnection) {
    let store = Ds2::new(options).unwrap();
    let mut connection = open(path);
    load(&mut connection, &store, &AtomicBool::new(false), &mut |_| ()).unwrap();
    (store, connection)
}

fn violations(connection: &mut SqliteConnection, store: &Ds2, depth: Depth) -> Vec<String> {
    let conditions = check(connection, store, depth).unwrap();
    assert_eq!(conditions.len(), if depth == Depth::Full { 7 } else { 6 });
    let found = conditions.into_iter().filter_map(|condition| {
        condition.violation.map(|violation| format!("{}: {violation}", condition.name))
    });
    found.collect()
}

fn assert_consistent(connection: &mut SqliteConnection, store: &Ds2) {
    for depth in [Depth::Quick, Depth::Full] {
        assert_eq!(violations(connection, store, depth), [""; 0], "{depth:?}");
    }
}

fn number(connection: &mut SqliteConnection, sql: &str) -> i64 {
    let sql = Statement::written(sql.to_owned());
    connection.run(&sql, &[], Wants::Rows).unwrap().rows.int(0, 0).unwrap()
}

/// Transactions done, by kind, and how many of them were rolled back.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    kinds: [u32; 6],
    rolled_back: u32,
}

fn work(connection: &mut SqliteConnection, client: &mut dyn Client, count: usize) -> Done {
    let mut done = Done::default();
    for _ in 0..count {
        let transaction = client.next();
        let ending = run(connection, transaction.clone()).unwrap();
        done.kinds[transaction.kind()] += 1;
        done.rolled_back += u32::from(ending == Ending::Rollback);
    }
    done
}

#[test]
fn a_long_run_has_its_shares_and_stays_consistent() {
    println!("seed {SEED}");
    for search in [Search::Prefix, Search::Word] {
        let directory = tempfile::tempdir().unwrap();
        let options = Options { search, ..Options::new(Scale::TINY) };
        let (store, mut connection) = loaded(options, &directory.path().join("ds2"));
        assert_consistent(&mut connection, &store);
        let done = work(&mut connection, store.client(0, 1, SEED).as_mut(), 10_000);
        // A cycle is 5 transactions in the mean: 2,000 cycles, of which 400 are a registration.
        let [login, register, .., purchase] = done.kinds;
        assert!(purchase.abs_diff(2_000) < 120 && register.abs_diff(400) < 110, "{done:?}");
        assert!(login + register - purchase <= 1, "{done:?}");
        assert_eq!(done.rolled_back, 0, "{done:?}");
        assert!(number(&mut connection, "SELECT COUNT(*) FROM reorder") > 0);
        let orders = number(&mut connection, "SELECT COUNT(*) FROM orders");
        assert_eq!(orders, 240 + i64::from(purchase - done.rolled_back));
        assert_consistent(&mut connection, &store);
    }
}

#[test]
fn two_purchases_in_a_hundred_find_too_few_units() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new(Scale { products: 10_000, ..Scale::TINY });
    let (store, mut connection) = loaded(options, &directory.path().join("ds2"));
    let done = work(&mut connection, store.client(0, 1, SEED).as_mut(), 10_000);
    // Of 2,000 purchases 40 where every product is as at the start, and 20 where those with one or
    // two units have been filled up; six standard deviations of the first are 38.
    assert!((3..78).contains(&done.rolled_back), "{done:?}");
    assert_consistent(&mut connection, &store);
}

#[test]
fn no_update_of_several_threads_is_lost() {
    println!("seed {SEED}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ds2");
    let (store, mut connection) = loaded(Options::new(Scale::TINY), &path);
    // The second time, the clients begin anew and find the keys of the first time.
    let mut orders = 240;
    let mut customers = 200;
    for _ in 0..2 {
        let all = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (store, path, all) = (&store, &path, &all);
                scope.spawn(move || {
                    let mut client = store.client(number, 4, SEED);
                    let done = work(&mut open(path), client.as_mut(), 1_000);
                    all.lock().unwrap().push(done);
                });
            }
        });
        for done in all.into_inner().unwrap() {
            orders += i64::from(done.kinds[5] - done.rolled_back);
            customers += i64::from(done.kinds[1]);
        }
        assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM orders"), orders);
        assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM customers"), customers);
        assert_consistent(&mut connection, &store);
    }
}

#[test]
fn a_purchase_without_stock_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, mut connection) = loaded(Options::new(Scale::TINY), &directory.path().join("ds2"));
    // Enough of all but the last product, which is then the one that fails, after the others.
    connection.batch("UPDATE inventory SET quan_in_stock = 9 * (prod_id < 50)").unwrap();
    let sums = "SELECT SUM(quan_in_stock) * 1000003 + SUM(sales) FROM inventory";
    let mut client = store.client(0, 1, SEED);
    let mut failed = 0;
    while failed < 5 {
        let transaction = client.next();
        let counts = ["orders", "orderlines", "cust_hist", "reorder"]
            .map(|table| number(&mut connection, &format!("SELECT COUNT(*) FROM {table}")));
        let before = number(&mut connection, sums);
        let ending = run(&mut connection, transaction).unwrap();
        if ending == Ending::Commit {
            continue;
        }
        failed += 1;
        let after = ["orders", "orderlines", "cust_hist", "reorder"]
            .map(|table| number(&mut connection, &format!("SELECT COUNT(*) FROM {table}")));
        assert_eq!((counts, before), (after, number(&mut connection, sums)));
    }
}

#[test]
fn a_name_that_is_taken_registers_nobody_and_they_buy_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (store, mut connection) = loaded(Options::new(Scale::TINY), &directory.path().join("ds2"));
    let first = (1_i64 << 32).to_string();
    connection
        .batch(&format!("UPDATE customers SET username = 'newuser{first}' WHERE customerid = 7"))
        .unwrap();
    let mut client = store.client(0, 1, SEED);
    let mut next = |kind| loop {
        let transaction = client.next();
        if transaction.kind() == kind {
            return transaction;
        }
    };
    assert_eq!(run(&mut connection, next(1)), Ok(Ending::Rollback));
    assert_eq!(run(&mut connection, next(5)), Ok(Ending::Rollback));
    assert_eq!(number(&mut connection, "SELECT COUNT(*) FROM customers"), 200);
    assert_consistent(&mut connection, &store);
}

/// What to break, the condition that is then violated, and whether sums show it.
const PLANTED: [(&str, &[&str], bool); 11] = [
    ("UPDATE orders SET totalamount = totalamount + 1 WHERE orderid = 3", &["order amounts"], true),
    (
        "UPDATE orders SET netamount = netamount + 5, totalamount = totalamount + 5 \
         WHERE orderid = 9",
        &["order amounts"],
        false,
    ),
    (
        "DELETE FROM orderlines WHERE orderid = 8 AND orderlineid = 1",
        &["order amounts", "order lines", "purchase history", "stock sold"],
        true,
    ),
    ("INSERT INTO orderlines VALUES (999, 1, 5, 2, 0)", &["order lines", "stock sold"], true),
    ("UPDATE cust_hist SET prod_id = 51 WHERE orderid = 4", &["purchase history"], true),
    ("DELETE FROM cust_hist WHERE orderid = 4", &["purchase history"], true),
    (
        "UPDATE cust_hist SET customerid = 1 + customerid % 200 WHERE orderid = 4",
        &["purchase history"],
        false,
    ),
    (
        "UPDATE orders SET customerid = 777 WHERE orderid = 4",
        &["purchase history", "order customers"],
        false,
    ),
    (
        "UPDATE orders SET customerid = 0 WHERE orderid = 4; \
         UPDATE cust_hist SET customerid = 0 WHERE orderid = 4",
        &["order lines", "purchase history", "order customers"],
        false,
    ),
    // As after a lost update: two sold, one of them written down.
    (
        "UPDATE inventory SET sales = sales - 1, quan_in_stock = quan_in_stock + 1 \
         WHERE prod_id = 20",
        &["stock sold"],
        true,
    ),
    (
        "UPDATE inventory SET quan_in_stock = -1 WHERE prod_id = 20",
        &["stock left", "stock not negative"],
        true,
    ),
];

#[test]
fn planted_violations_are_found_by_name() {
    for (plant, expected, is_in_sums) in PLANTED {
        let directory = tempfile::tempdir().unwrap();
        let (store, mut connection) =
            loaded(Options::new(Scale::TINY), &directory.path().join("ds2"));
        work(&mut connection, store.client(0, 1, SEED).as_mut(), 200);
        connection.batch(plant).unwrap();
        let found = violations(&mut connection, &store, Depth::Full);
        let names: Vec<_> = found
            .iter()
            .map(|violation| violation.strip_prefix("DS2 ").unwrap().split(':').next().unwrap())
            .collect();
        assert_eq!(names, expected, "{plant}: {found:?}");
        let quick = violations(&mut connection, &store, Depth::Quick);
        assert_eq!(!quick.is_empty(), is_in_sums, "{plant}: {quick:?}");
    }
}
