//! Calls in each other's way.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tidegate_subject::connection::{Transactional, run};
use tidegate_subject::database::Database;
use tidegate_workload::tpcc::{Form, PAYMENT, Tpcc};
use tidegate_workload::workload::{Depth, Transaction, Workload};
use tidegate_workload::{Conflict, Ending, Failure, Session, Statement, Wants, finish};

use super::super::{assert_consistent, insist};
use super::{Server, fill, firebird, mariadb, number, postgres, tpcc};

const CLIENTS: usize = 4;

/// Transactions of each client.
const TRANSACTIONS: usize = 150;

/// So few that orders of different districts meet in deadlocks.
const ITEMS: u32 = 15;

fn execute(connection: &mut dyn Transactional, sql: &'static str) {
    connection.run(&Statement::new(sql), &[], Wants::Count).unwrap();
}

/// All conditions hold, and no change of the stock is lost, of which they know nothing.
fn assert_kept(server: &dyn Database, workload: &Tpcc) {
    let mut connection = server.session().unwrap();
    assert_eq!(assert_consistent(&mut *connection, workload, Depth::Full), 12);
}

/// Gives all customers bad credit and an empty past, so that each payment leaves a note.
fn forget_the_past(server: &dyn Database) {
    let mut connection = server.session().unwrap();
    connection.begin().unwrap();
    execute(&mut *connection, "UPDATE customer SET c_credit = 'BC', c_data = ''");
    connection.commit().unwrap();
}

/// Each payment since then has its note of six numbers in a customer's past, as long as all of them
/// fit.
fn assert_noted(server: &dyn Database) {
    let paid = "SELECT c_payment_cnt, c_data FROM customer WHERE c_payment_cnt > 1";
    let mut connection = server.session().unwrap();
    let rows = connection.run(&Statement::new(paid), &[], Wants::Rows).unwrap().rows;
    let mut notes = 0;
    for row in 0..rows.len() {
        // All customers start with one payment.
        let payments = rows.int(row, 0).unwrap() - 1;
        let past = rows.text(row, 1).unwrap();
        if past.len() < 480 {
            let numbers = i64::try_from(past.split_whitespace().count()).unwrap();
            assert_eq!(numbers, payments * 6, "{payments} payments are noted as `{past}`");
            notes += payments;
        }
    }
    assert!(notes > 0);
}

fn clients_at_once_keep_all_conditions(server: Server, form: Form, seed: u64) {
    let Some(server) = server else { return };
    println!("{form:?}, seed {seed}");
    let workload = tpcc(ITEMS, form);
    fill(&*server, &workload);
    forget_the_past(&*server);
    let work = |number| {
        let mut terminal = workload.client(number, CLIENTS, seed);
        let mut connection = server.session().unwrap();
        let one = |_| insist(&mut *connection, &terminal.next()).1;
        (0..TRANSACTIONS).map(one).sum::<usize>()
    };
    let conflicts: usize = thread::scope(|scope| {
        let work = &work;
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || work(number))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    println!("{conflicts} conflicts");
    assert_kept(&*server, &workload);
    assert_noted(&*server);
    let sold = number(&*server, "SELECT SUM(ol_quantity) FROM order_line WHERE ol_o_id > 30");
    assert!(sold > 0);
    assert_eq!(number(&*server, "SELECT SUM(s_ytd) FROM stock"), sold);
}

#[test]
fn clients_at_once_keep_all_conditions_on_postgres() {
    clients_at_once_keep_all_conditions(postgres(), Form::Procedures, 61);
}

#[test]
fn clients_at_once_keep_all_conditions_on_mariadb() {
    clients_at_once_keep_all_conditions(mariadb(), Form::Procedures, 62);
}

/// At its own level, REPEATABLE READ.
#[test]
fn clients_at_once_keep_all_conditions_by_statements_on_mariadb() {
    clients_at_once_keep_all_conditions(mariadb(), Form::Statements, 64);
}

#[test]
fn clients_at_once_keep_all_conditions_on_firebird() {
    clients_at_once_keep_all_conditions(firebird(), Form::Procedures, 63);
}

/// The first payment of a terminal.
fn payment(workload: &Tpcc) -> Arc<dyn Transaction> {
    let mut terminal = workload.client(0, 1, 71);
    std::iter::repeat_with(|| terminal.next())
        .find(|transaction| transaction.kind() == PAYMENT)
        .unwrap()
}

/// Locks every customer, so that a payment has changed its warehouse when it comes to wait.
fn lock_customers(server: &dyn Database) -> Box<dyn Transactional> {
    let mut connection = server.session().unwrap();
    connection.begin().unwrap();
    execute(&mut *connection, "UPDATE customer SET c_payment_cnt = c_payment_cnt");
    connection
}

/// A call that gave way has changed nothing, and can be made again.
fn assert_undone(server: &dyn Database, connection: &mut dyn Transactional, workload: &Tpcc) {
    assert_kept(server, workload);
    let payments = number(server, "SELECT COUNT(*) FROM history");
    assert_eq!(run(connection, payment(workload)), Ok(Ending::Commit));
    assert_eq!(number(server, "SELECT COUNT(*) FROM history"), payments + 1);
    assert_kept(server, workload);
}

/// A call waits for a lock until it may not any more.
fn a_call_that_waits_too_long_is_undone(server: Server, patience: &'static str) {
    let Some(server) = server else { return };
    let workload = tpcc(ITEMS, Form::Procedures);
    fill(&*server, &workload);
    let mut connection = server.session().unwrap();
    execute(&mut *connection, patience);
    let mut other = lock_customers(&*server);
    let ending = run(&mut *connection, payment(&workload));
    assert!(matches!(ending, Err(Failure::Conflict(_))), "{ending:?}");
    other.rollback().unwrap();
    assert_undone(&*server, &mut *connection, &workload);
}

#[test]
fn a_call_that_waits_too_long_is_undone_on_postgres() {
    a_call_that_waits_too_long_is_undone(postgres(), "SET lock_timeout = '50ms'");
}

#[test]
fn a_call_that_waits_too_long_is_undone_on_mariadb() {
    a_call_that_waits_too_long_is_undone(mariadb(), "SET innodb_lock_wait_timeout = 1");
}

/// The rows that a call is to lock have changed since its transaction began.
#[test]
fn a_call_that_comes_too_late_is_undone_on_firebird() {
    let Some(server) = firebird() else { return };
    let workload = tpcc(ITEMS, Form::Procedures);
    fill(&*server, &workload);
    let mut connection = server.session().unwrap();
    connection.begin().unwrap();
    let mut other = lock_customers(&*server);
    other.commit().unwrap();
    let late = finish(payment(&workload).run(Session::immediate(&mut *connection)));
    assert!(matches!(late, Err(Failure::Conflict(_))), "{late:?}");
    // The statement has undone itself: what is committed now is nothing.
    connection.commit().unwrap();
    assert_undone(&*server, &mut *connection, &workload);
}

/// Runs a payment that waits for a customer, does something meanwhile, and returns what came of
/// the payment.
fn meanwhile(
    server: &dyn Database,
    connection: &mut dyn Transactional,
    workload: &Tpcc,
    act: impl FnOnce(),
) -> Result<Ending, Failure> {
    thread::scope(|scope| {
        let call = scope.spawn(|| run(connection, payment(workload)));
        let waits = "SELECT COUNT(*) FROM information_schema.innodb_lock_waits";
        while number(server, waits) == 0 {
            assert!(!call.is_finished(), "the payment waited for nobody");
            // The server shows what it saw last to whoever looks again within 100 ms.
            thread::sleep(Duration::from_millis(250));
        }
        act();
        call.join().unwrap()
    })
}

/// A payment that waits for its customer notes itself before what the one it waits for has noted.
#[test]
fn a_payment_keeps_the_note_it_has_waited_for_on_mariadb() {
    const NOTED: &str = "UPDATE customer SET c_credit = 'BC', c_data = 'of another warehouse'";
    let Some(server) = mariadb() else { return };
    for form in [Form::Statements, Form::Procedures] {
        let workload = tpcc(ITEMS, form);
        fill(&*server, &workload);
        let mut connection = server.session().unwrap();
        let mut other = lock_customers(&*server);
        let ending = meanwhile(&*server, &mut *connection, &workload, || {
            execute(&mut *other, NOTED);
            other.commit().unwrap();
        });
        assert_eq!(ending, Ok(Ending::Commit));
        let noted = |like| format!("SELECT COUNT(*) FROM customer WHERE c_data LIKE '{like}'");
        assert_eq!(number(&*server, noted("% of another warehouse")), 1, "{form:?}");
        assert_eq!(number(&*server, noted("of another warehouse")), 600 - 1, "{form:?}");
    }
}

/// Of two in a circle the one that has changed fewer rows gives way: the payment.
#[test]
fn a_call_in_a_circle_is_undone_on_mariadb() {
    let Some(server) = mariadb() else { return };
    let workload = tpcc(ITEMS, Form::Procedures);
    fill(&*server, &workload);
    let mut connection = server.session().unwrap();
    let mut other = lock_customers(&*server);
    let ending = meanwhile(&*server, &mut *connection, &workload, || {
        execute(&mut *other, "UPDATE warehouse SET w_ytd = w_ytd");
    });
    assert_eq!(ending, Err(Failure::Conflict(Conflict::Deadlock)));
    other.rollback().unwrap();
    assert_undone(&*server, &mut *connection, &workload);
}

/// A call that is killed while it waits undoes itself. Between two statements of its procedure no
/// handler of MariaDB's would run and the transaction stay open, as it is left here by hand: the
/// next call takes it back.
#[test]
fn a_call_that_is_killed_leaves_nothing_to_the_next_one_on_mariadb() {
    let Some(server) = mariadb() else { return };
    let workload = tpcc(ITEMS, Form::Procedures);
    fill(&*server, &workload);
    let mut connection = server.session().unwrap();
    let id = Statement::new("SELECT CONNECTION_ID()");
    let id = connection.run(&id, &[], Wants::Rows).unwrap().rows.int(0, 0).unwrap();
    let mut other = lock_customers(&*server);
    let ending = meanwhile(&*server, &mut *connection, &workload, || {
        let kill = Statement::written(format!("KILL QUERY {id}"));
        server.session().unwrap().run(&kill, &[], Wants::Count).unwrap();
    });
    assert_eq!(ending, Err(Failure::Stopped));
    other.rollback().unwrap();
    assert_undone(&*server, &mut *connection, &workload);
    connection.begin().unwrap();
    execute(&mut *connection, "UPDATE warehouse SET w_ytd = w_ytd + 1");
    assert_undone(&*server, &mut *connection, &workload);
}
