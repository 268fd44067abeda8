//! Databases in our own process have no procedures: what would be called runs in its place.

use std::sync::mpsc;
use std::time::Duration;

use tidegate_gate::Class;
use tidegate_subject::connection::run;
use tidegate_subject::embedded::{ClassPriorities, EngineDatabase, Serving};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::Ending;
use tidegate_workload::tpcc::{Form, Tpcc};
use tidegate_workload::workload::Workload;

use super::super::{NEVER, fixed, load, store};
use super::same::{Tables, rows};
use super::tpcc;

/// Transactions of the only terminal: three decks of a hundred.
const TRANSACTIONS: usize = 300;

/// Both forms leave the same rows behind, and undo the same orders.
fn assert_same(course: impl Fn(&Tpcc) -> (Vec<Ending>, Tables)) {
    let [statements, procedures] =
        [Form::Statements, Form::Procedures].map(|form| course(&tpcc(200, form)));
    assert!(statements.0.contains(&Ending::Rollback));
    assert!(statements == procedures);
}

#[test]
fn sqlite_runs_what_would_be_called() {
    assert_same(|workload| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tpcc.db");
        let mut connection = SqliteConnection::open(&path, Duration::from_secs(10)).unwrap();
        connection.batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF").unwrap();
        load(&mut connection, workload);
        let mut terminal = workload.client(0, 1, 54);
        let one = |_| run(&mut connection, terminal.next()).unwrap();
        let endings = (0..TRANSACTIONS).map(one).collect();
        (endings, rows(&mut connection, workload))
    });
}

/// The engine's server is given a whole transaction as one request, in either form.
#[test]
fn the_embedded_engine_runs_what_would_be_called() {
    assert_same(|workload| {
        let mut store = store();
        store.load(workload, &NEVER).unwrap();
        let (algorithm, setting) = fixed(1);
        let (priorities, observer) = (ClassPriorities::default(), Box::new(|_: &_| ()));
        let service = store
            .serve(Serving {
                algorithm,
                setting: &setting,
                arms: Vec::new(),
                priorities,
                seed: 1,
                observer,
            })
            .unwrap();
        let mut terminal = workload.client(0, 1, 54);
        let one = |_| {
            let (answer, answered) = mpsc::channel();
            let transaction = terminal.next();
            service.submit(&transaction, Class::Normal, move |end| answer.send(end).unwrap());
            answered.recv().unwrap().unwrap().ending
        };
        let endings = (0..TRANSACTIONS).map(one).collect();
        drop(service);
        (endings, rows(&mut store.connect(), workload))
    });
}
