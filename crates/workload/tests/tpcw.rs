//! TPC-W on a real database: a SQLite file that is loaded, shopped in, checked, and broken.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]
#![allow(clippy::print_stdout, reason = "a test prints its seed and what it found")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_subject::connection::{Transactional, check, load, run};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::tpcw::{Interaction, Mix, Scale, Tpcw};
use tidegate_workload::workload::{Client, Depth, Transaction, Workload};
use tidegate_workload::{
    Conflict, Connection, Demand, Dialect, Failure, Reply, Session, Statement, Value, Wants, finish,
};

const CONDITIONS: [&str; 7] = [
    "tpcw order totals",
    "tpcw order lines",
    "tpcw payments",
    "tpcw carts",
    "tpcw stock",
    "tpcw references",
    "tpcw population",
];

fn small() -> Scale {
    Scale::new(1_000, 1).unwrap()
}

fn open(file: &Path) -> SqliteConnection {
    let connection = SqliteConnection::open(file, Duration::from_secs(60)).unwrap();
    connection.batch("PRAGMA synchronous = OFF").unwrap();
    connection
}

/// A loaded shop, in a directory that is removed with it.
fn shop(mix: Mix) -> (TempDir, SqliteConnection, Tpcw) {
    let directory = tempfile::tempdir().unwrap();
    let mut connection = open(&directory.path().join("shop.db"));
    connection.batch("PRAGMA journal_mode = MEMORY").unwrap();
    let workload = Tpcw::new(small(), mix);
    load(&mut connection, &workload, &AtomicBool::new(false), &mut |_| {}).unwrap();
    (directory, connection, workload)
}

/// The conditions that do not hold.
fn violated(connection: &mut SqliteConnection, workload: &Tpcw, depth: Depth) -> Vec<&'static str> {
    let conditions = check(connection, workload, depth).unwrap();
    let names: Vec<&str> = conditions.iter().map(|condition| condition.name).collect();
    assert_eq!(names, CONDITIONS);
    conditions
        .iter()
        .filter(|condition| condition.violation.is_some())
        .inspect(|condition| println!("{}: {:?}", condition.name, condition.violation))
        .map(|condition| condition.name)
        .collect()
}

fn count(connection: &mut SqliteConnection, sql: &str) -> i64 {
    let statement = Statement::written(sql.to_owned());
    connection.run(&statement, &[], Wants::Rows).unwrap().rows.int(0, 0).unwrap()
}

/// Runs interactions of some clients in turn, and counts them by kind.
fn go_shopping(
    connection: &mut SqliteConnection,
    clients: &mut [Box<dyn Client>],
    interactions: u32,
) -> [u32; 14] {
    let mut counts = [0; 14];
    for _ in 0..interactions {
        for client in clients.iter_mut() {
            let transaction = client.next();
            counts[transaction.kind()] += 1;
            run(connection, Arc::clone(&transaction)).unwrap_or_else(|failure| {
                panic!("{transaction:?}: {failure}");
            });
        }
    }
    counts
}

#[test]
fn every_mix_leaves_the_shop_consistent() {
    const SEED: u64 = 2_026;
    println!("seed {SEED}");
    for mix in Mix::ALL {
        let (_directory, mut connection, workload) = shop(mix);
        assert_eq!(violated(&mut connection, &workload, Depth::Full), [""; 0]);
        let mut clients: Vec<_> = (0..10).map(|number| workload.client(number, 10, SEED)).collect();
        let counts = go_shopping(&mut connection, &mut clients, 300);
        assert_eq!(violated(&mut connection, &workload, Depth::Full), [""; 0]);
        for interaction in Interaction::ALL {
            let expected = f64::from(mix.share(interaction)) * 0.3;
            let found = f64::from(counts[interaction.place()]);
            // Pages depend on the ones before: twice six standard deviations, and ten.
            let bound = 12.0 * expected.sqrt() + 10.0;
            assert!((found - expected).abs() < bound, "{mix:?} {interaction:?}: {counts:?}");
        }
        // Each confirmation is an order.
        let sold = count(&mut connection, "SELECT COUNT(*) FROM orders") - 2_592;
        assert_eq!(sold, i64::from(counts[Interaction::BuyConfirm.place()]));
        assert!(sold > 0);
        // A browser of the browsing mix gets to sign up too seldom for so few interactions.
        let signed_up = count(&mut connection, "SELECT COUNT(*) FROM customer") - 2_880;
        assert!(signed_up > 0 || mix == Mix::Browsing, "{mix:?}");
        let newest = count(&mut connection, "SELECT MAX(o_id) FROM orders");
        assert_eq!(newest, 2_592 + sold, "numbers have no gaps");
    }
}

#[test]
fn a_later_run_goes_on_with_its_numbers() {
    let (_directory, mut connection, workload) = shop(Mix::Ordering);
    for seed in [1, 2] {
        let mut clients: Vec<_> = (0..3).map(|number| workload.client(number, 3, seed)).collect();
        go_shopping(&mut connection, &mut clients, 100);
    }
    // As a process that starts anew does.
    let anew = Tpcw::new(small(), Mix::Ordering);
    go_shopping(&mut connection, &mut [anew.client(0, 1, 3)], 100);
    assert_eq!(violated(&mut connection, &anew, Depth::Full), [""; 0]);
}

#[test]
fn threads_take_no_book_twice() {
    let (directory, connection, workload) = shop(Mix::Ordering);
    drop(connection);
    let file = directory.path().join("shop.db");
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (file, workload) = (&file, &workload);
            scope.spawn(move || {
                let mut connection = open(file);
                go_shopping(&mut connection, &mut [workload.client(number, 3, 77)], 200);
            });
        }
    });
    assert_eq!(violated(&mut open(&file), &workload, Depth::Full), [""; 0]);
}

#[test]
fn planted_violations_are_found_by_name() {
    let (_directory, mut connection, workload) = shop(Mix::Ordering);
    let mut clients: Vec<_> = (0..4).map(|number| workload.client(number, 4, 9)).collect();
    go_shopping(&mut connection, &mut clients, 100);
    let newest = count(&mut connection, "SELECT MAX(o_id) FROM orders");
    assert!(newest > 2_592);
    let cases = [
        (format!("UPDATE orders SET o_total = o_total + 1 WHERE o_id = {newest}"), vec![0, 2]),
        ("UPDATE orders SET o_tax = o_tax + 1 WHERE o_id = 17".to_owned(), vec![0]),
        (format!("UPDATE order_line SET ol_cost = ol_cost + 9 WHERE ol_o_id = {newest}"), vec![0]),
        (format!("DELETE FROM order_line WHERE ol_o_id = {newest}"), vec![0, 1, 4]),
        ("UPDATE order_line SET ol_id = 6 WHERE ol_o_id = 1 AND ol_id = 1".to_owned(), vec![1]),
        ("UPDATE order_line SET ol_o_id = 99999 WHERE ol_o_id = 1".to_owned(), vec![0, 1, 4]),
        (format!("DELETE FROM orders WHERE o_id = {newest}"), vec![1, 2]),
        (format!("DELETE FROM cc_xacts WHERE cx_o_id = {newest}"), vec![2]),
        ("UPDATE cc_xacts SET cx_xact_amt = 0 WHERE cx_o_id = 1".to_owned(), vec![2]),
        ("INSERT INTO shopping_cart_line VALUES (1, 1001, 1)".to_owned(), vec![3]),
        ("INSERT INTO shopping_cart_line VALUES (999999, 1, 1)".to_owned(), vec![3]),
        ("UPDATE shopping_cart_line SET scl_qty = 0".to_owned(), vec![3]),
        ("UPDATE item SET i_stock = i_stock + 1 WHERE i_id = 500".to_owned(), vec![4]),
        ("UPDATE item SET i_stock = i_stock - 21 WHERE i_id = 500".to_owned(), vec![4]),
        ("UPDATE item SET i_stock = i_stock + 21 WHERE i_id = 500".to_owned(), vec![4]),
        ("UPDATE item SET i_a_id = 251 WHERE i_id = 3".to_owned(), vec![5]),
        ("UPDATE customer SET c_addr_id = 0 WHERE c_id = 2880".to_owned(), vec![5]),
        ("UPDATE orders SET o_c_id = 0 WHERE o_id = 1".to_owned(), vec![5]),
        ("DELETE FROM author WHERE a_id = 250".to_owned(), vec![5, 6]),
        ("INSERT INTO country VALUES (93, 'NOWHERE', 1, 'NONE')".to_owned(), vec![6]),
    ];
    for (sql, expected) in cases {
        println!("{sql}");
        connection.batch("SAVEPOINT before").unwrap();
        connection.batch(&sql).unwrap();
        let session = Session::immediate(&mut connection);
        let conditions = finish(workload.check(session, Depth::Full)).unwrap();
        let found: Vec<&str> = conditions
            .iter()
            .filter(|condition| condition.violation.is_some())
            .map(|condition| condition.name)
            .collect();
        let expected: Vec<&str> = expected.iter().map(|place: &usize| CONDITIONS[*place]).collect();
        assert_eq!(found, expected, "{sql}: {conditions:?}");
        connection.batch("ROLLBACK TO before; RELEASE before").unwrap();
    }
    assert_eq!(violated(&mut connection, &workload, Depth::Full), [""; 0]);
}

#[test]
fn the_quick_check_looks_at_the_orders_of_clients() {
    let (_directory, mut connection, workload) = shop(Mix::Ordering);
    connection.batch("UPDATE orders SET o_tax = 0 WHERE o_id = 2592").unwrap();
    assert_eq!(violated(&mut connection, &workload, Depth::Quick), [""; 0]);
    assert_eq!(violated(&mut connection, &workload, Depth::Full), [CONDITIONS[0]]);
    connection
        .batch(
            "INSERT INTO cc_xacts SELECT 2593, cx_type, cx_num, cx_name, cx_expire, \
         cx_auth_id, cx_xact_amt, cx_xact_date, cx_co_id FROM cc_xacts WHERE cx_o_id = 1",
        )
        .unwrap();
    assert_eq!(violated(&mut connection, &workload, Depth::Quick), [CONDITIONS[2]]);
}

/// Counts the rows of lists, by a part of their statements.
struct Watching<'c> {
    connection: &'c mut SqliteConnection,
    lists: Vec<(&'static str, Demand)>,
}

impl Connection for Watching<'_> {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        let reply = self.connection.run(statement, values, wants)?;
        let sql = statement.sql(Dialect::Sqlite);
        for (part, rows) in &mut self.lists {
            if sql.contains(*part) {
                rows.add(f64::from(u32::try_from(reply.count).unwrap()));
            }
        }
        Ok(reply)
    }
}

#[test]
fn lists_are_as_long_as_the_population_makes_them() {
    let (_directory, mut connection, workload) = shop(Mix::Browsing);
    // 1,000 items have 24 subjects, 201 words in titles, and 101 in the names of 250 authors.
    let expected = [
        ("i_pub_date DESC, i_title LIMIT 50", 41.7),
        ("ORDER BY sold DESC LIMIT 50", 41.7),
        ("i_title LIKE ?", 1_000.0 / 201.0),
        ("a_lname LIKE ?", 1_000.0 / 101.0),
        ("FROM item WHERE i_id IN (?, ?, ?, ?, ?)", 5.0),
    ];
    let lists = expected.map(|(part, _)| (part, Demand::new())).to_vec();
    let mut watching = Watching { connection: &mut connection, lists };
    let mut client = workload.client(0, 1, 8);
    for _ in 0..5_000 {
        let transaction = client.next();
        finish(Arc::clone(&transaction).run(Session::immediate(&mut watching))).unwrap();
        transaction.committed();
    }
    for ((part, expected), (_, rows)) in expected.iter().zip(&watching.lists) {
        let mean = rows.mean().unwrap();
        println!("{part}: {mean:.1} rows, {} times", rows.count());
        assert!(rows.count() > 100, "{part}: {rows:?}");
        // Some words are asked for more often than others, and some are in more titles.
        assert!((0.6..1.5).contains(&(mean / expected)), "{part}: {mean}, expected {expected}");
    }
}

/// Refuses a statement of a transaction, or its commit, once.
struct Refusing<'c> {
    connection: &'c mut SqliteConnection,
    statements: u32,
    refused: Option<u32>,
    phases: Vec<usize>,
}

/// The commit, where others are numbers of statements.
const COMMIT: u32 = 0;

impl Refusing<'_> {
    fn refuses(&mut self, statement: u32) -> Result<(), Failure> {
        match self.refused.take_if(|number| *number == statement) {
            Some(_) => Err(Failure::Conflict(Conflict::Deadlock)),
            None => Ok(()),
        }
    }
}

impl Connection for Refusing<'_> {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        wants: Wants,
    ) -> Result<Reply, Failure> {
        self.statements += 1;
        self.refuses(self.statements)?;
        self.connection.run(statement, values, wants)
    }

    fn phase(&mut self, number: usize) {
        self.phases.push(number);
    }
}

impl Transactional for Refusing<'_> {
    fn begin(&mut self) -> Result<(), Failure> {
        self.connection.begin()
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.refuses(COMMIT)?;
        self.connection.commit()
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        self.connection.rollback()
    }

    fn dialect(&self) -> Dialect {
        self.connection.dialect()
    }
}

#[test]
fn a_transaction_that_failed_anywhere_can_be_run_again_or_given_up() {
    let (_directory, mut connection, workload) = shop(Mix::Ordering);
    let mut client = workload.client(0, 1, 31);
    let mut refused = 0;
    for number in 0..2_000 {
        let transaction: Arc<dyn Transaction> = client.next();
        let mut refusing = Refusing {
            connection: &mut connection,
            statements: 0,
            refused: Some(number % 23),
            phases: vec![0],
        };
        let end = run(&mut refusing, Arc::clone(&transaction));
        let phases = workload.kinds()[transaction.kind()].phases.len();
        assert!(refusing.phases.is_sorted() && refusing.phases.iter().all(|phase| *phase < phases));
        match end {
            Ok(_) => {}
            Err(Failure::Conflict(Conflict::Deadlock)) => {
                refused += 1;
                // Every other one is given up.
                if number % 2 == 0 {
                    run(&mut connection, transaction).unwrap();
                }
            }
            Err(other) => panic!("{transaction:?}: {other}"),
        }
    }
    assert!(refused > 300, "{refused}");
    assert_eq!(violated(&mut connection, &workload, Depth::Full), [""; 0]);
}
