//! A workload on the engine: loaded, run as procedures of its server, checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use tidegate_engine::{TxnError, TxnOptions};
use tidegate_engine_server::{Procedure, Server, ServerOptions};
use tidegate_gate::Class;
use tidegate_subject::connection::{self, LoadError};
use tidegate_subject::embedded::sql::{RunError, StoreConnection, load, run};
use tidegate_subject::phases::PhaseClock;
use tidegate_workload::workload::{Depth, Transaction, Workload};
use tidegate_workload::{Ending, Failure};

use super::super::bank::{Bank, MOVE};
use super::super::{NEVER, assert_consistent, fixed};
use super::{query, store};

fn refused(_: Failure) -> TxnError {
    TxnError::OtherStore
}

#[test]
fn its_transactions_are_procedures_and_what_it_checks_holds() {
    let store = store();
    let bank = Bank { accounts: 20, busy: 20 };
    let mut loaded = 0;
    let catalog = Arc::new(load(&store, &bank, &NEVER, &mut |rows| loaded = rows).unwrap());
    assert_eq!(loaded, 20);

    let mut client = bank.client(0, 1, 5);
    let mut moves = std::iter::repeat_with(|| client.next()).filter(|next| next.kind() == MOVE);
    let works: Vec<Arc<dyn Transaction>> = moves.by_ref().take(400).collect();
    let given = works.clone();
    let shared = Arc::clone(&catalog);
    let procedure: Procedure = Box::new(move |transaction, number| {
        let work = &given[usize::from_le_bytes(number.try_into().unwrap())];
        let mut clock = PhaseClock::new(Instant::now());
        match run(transaction, &shared, Arc::clone(work), &mut clock) {
            Ok(ending) => Ok(vec![u8::from(ending == Ending::Commit)]),
            Err(RunError::Engine(error)) => Err(error),
            Err(RunError::Failure(failure)) => Err(refused(failure)),
        }
    });
    let (algorithm, setting) = fixed(8);
    let server = Server::start(
        Arc::clone(&store),
        [("run".to_owned(), procedure)],
        algorithm.controller(&setting),
        ServerOptions::default(),
        Box::new(|_| ()),
    )
    .unwrap();
    let (answered, answers) = mpsc::channel();
    for number in 0..works.len() {
        let answered = answered.clone();
        server.submit("run", &number.to_le_bytes(), Class::Normal, move |answer| {
            answered.send(answer.unwrap()[0]).unwrap();
        });
    }
    drop(answered);
    let committed = answers.iter().filter(|&is_committed| is_committed == 1).count();
    drop(server);
    assert!((300..400).contains(&committed), "{committed}");

    let mut connection = StoreConnection::new(store, catalog, TxnOptions::default());
    assert_eq!(assert_consistent(&mut connection, &bank, Depth::Full), 1);
    let noted = query(&mut connection, "SELECT COUNT(*) FROM moves", &[]);
    assert_eq!(noted, [committed.to_string()]);
    // And through the connection that has transactions of its own.
    assert_eq!(connection::run(&mut connection, moves.next().unwrap()).map(drop), Ok(()));
    assert_consistent(&mut connection, &bank, Depth::Quick);
}

#[test]
fn what_is_loaded_is_found_by_key_and_by_index() {
    let store = store();
    let bank = Bank { accounts: 5_000, busy: 1 };
    let catalog = Arc::new(load(&store, &bank, &NEVER, &mut |_| ()).unwrap());
    store.check().unwrap();
    let mut connection = StoreConnection::new(store, catalog, TxnOptions::default());
    for (sql, expected) in [
        ("SELECT id, branch, cents FROM account WHERE id = 4999", "4999 1 1000"),
        ("SELECT COUNT(*), SUM(cents), MIN(id), MAX(id) FROM account", "5000 5000000 0 4999"),
        ("SELECT COUNT(*), MIN(id), MAX(id) FROM account WHERE branch = 3", "714 3 4994"),
        ("SELECT COUNT(*) FROM account a, account b WHERE a.cents = b.cents AND a.id < 3", "15000"),
    ] {
        assert_eq!(query(&mut connection, sql, &[]), [expected], "{sql}");
    }
}

#[test]
fn loading_can_be_cancelled_and_goes_only_into_empty_tables() {
    let bank = Bank { accounts: 5_000, busy: 1 };
    let cancel = AtomicBool::new(false);
    let stop = &mut |rows| cancel.store(rows >= 2_000, Ordering::Relaxed);
    let end = load(&store(), &bank, &cancel, stop);
    assert!(matches!(end, Err(LoadError::Cancelled)), "{end:?}");
    let store = store();
    load(&store, &bank, &NEVER, &mut |_| ()).unwrap();
    let again = load(&store, &bank, &NEVER, &mut |_| ());
    assert!(matches!(again, Err(LoadError::Table { table: "account", .. })), "{again:?}");
}
