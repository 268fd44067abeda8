//! Transactions side by side: they take turns where they mean to change the same rows.

use std::sync::{Arc, Barrier};
use std::thread;

use tidegate_engine::{Isolation, Store, TxnOptions};
use tidegate_subject::connection::Transactional;
use tidegate_subject::embedded::sql::{Catalog, StoreConnection};
use tidegate_workload::{Conflict, Failure, Type};

use super::{index, query, run, store, table};

const THREADS: usize = 4;
const ROUNDS: usize = 40;

fn connect(store: &Arc<Store>, isolation: Isolation) -> StoreConnection {
    let columns = [("id", Type::Int), ("kind", Type::Int), ("count", Type::Int)];
    let counter = table("counter", &columns, &["id"], vec![index("by_kind", &["kind"], false)]);
    let catalog = Arc::new(Catalog::open(store, &[counter]).unwrap());
    let options = TxnOptions::default().isolation(isolation);
    StoreConnection::new(Arc::clone(store), catalog, options)
}

fn fill(connection: &mut StoreConnection) {
    for id in 0..5 {
        let values = [id.into(), (id % 2).into(), 0.into()];
        run(connection, "INSERT INTO counter (id, kind, count) VALUES (?, ?, ?)", &values).unwrap();
    }
}

/// What two that meet would read in S and then write: by key, by an index, by a range.
const CHANGES: [&[&str]; 4] = [
    &[
        "SELECT count FROM counter WHERE id = 2 FOR UPDATE",
        "UPDATE counter SET count = count + 1 WHERE id = 2",
    ],
    &["UPDATE counter SET count = count + 1 WHERE kind = 0"],
    &[
        "SELECT count FROM counter WHERE kind = 0 ORDER BY count FOR UPDATE",
        "UPDATE counter SET count = count + 1 WHERE kind = 0",
    ],
    &["UPDATE counter SET count = count + 1 WHERE id >= 1 AND id < 4"],
];

#[test]
fn those_that_read_for_update_do_not_deadlock() {
    for isolation in [Isolation::Serializable, Isolation::ReadCommitted] {
        for change in CHANGES {
            let store = store();
            let mut connection = connect(&store, isolation);
            fill(&mut connection);
            let barrier = Barrier::new(THREADS);
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        let mut connection = connect(&store, isolation);
                        barrier.wait();
                        for _ in 0..ROUNDS {
                            connection.begin().unwrap();
                            for sql in change {
                                run(&mut connection, sql, &[]).unwrap();
                                thread::yield_now();
                            }
                            connection.commit().unwrap();
                        }
                    });
                }
            });
            assert_eq!(store.locks().statistics().deadlocks, 0, "{isolation:?} {change:?}");
            let count = query(&mut connection, "SELECT count FROM counter WHERE id = 2", &[]);
            assert_eq!(count, [(THREADS * ROUNDS).to_string()], "{isolation:?} {change:?}");
        }
    }
}

#[test]
fn a_deadlock_is_a_conflict_and_the_other_goes_on() {
    let store = store();
    let mut one = connect(&store, Isolation::Serializable);
    let mut other = connect(&store, Isolation::Serializable);
    fill(&mut one);
    let update = "UPDATE counter SET count = count + 1 WHERE id = ?";
    one.begin().unwrap();
    other.begin().unwrap();
    run(&mut one, update, &[0.into()]).unwrap();
    run(&mut other, update, &[1.into()]).unwrap();
    let ends = thread::scope(|scope| {
        let end = |mut connection: StoreConnection, id: i32| {
            let done = run(&mut connection, update, &[id.into()]);
            if done.is_ok() {
                connection.commit().unwrap();
            } else {
                connection.rollback().unwrap();
            }
            done
        };
        let one = scope.spawn(move || end(one, 1));
        let other = scope.spawn(move || end(other, 0));
        [one.join().unwrap(), other.join().unwrap()]
    });
    let lost = ends.iter().filter(|end| **end == Err(Failure::Conflict(Conflict::Deadlock)));
    assert_eq!(lost.count(), 1, "{ends:?}");
    assert_eq!(ends.iter().filter(|end| end.is_ok()).count(), 1);
    let mut connection = connect(&store, Isolation::Serializable);
    assert_eq!(query(&mut connection, "SELECT SUM(count) FROM counter", &[]), ["2"]);
}

#[test]
fn of_two_that_insert_what_must_be_unique_one_is_refused() {
    for round in 0..20 {
        let store = store();
        let columns = [("id", Type::Int), ("name", Type::Varchar(9))];
        let person = table("person", &columns, &["id"], vec![index("by_name", &["name"], true)]);
        let catalog = Arc::new(Catalog::open(&store, &[person]).unwrap());
        let barrier = Barrier::new(2);
        let refused = thread::scope(|scope| {
            let insert = |id: i32| {
                let options = TxnOptions::default().isolation(Isolation::ReadCommitted);
                let mut connection =
                    StoreConnection::new(Arc::clone(&store), Arc::clone(&catalog), options);
                barrier.wait();
                run(&mut connection, "INSERT INTO person (id, name) VALUES (?, 'a')", &[id.into()])
            };
            let threads = [1, 2].map(|id| scope.spawn(move || insert(id)));
            threads.map(|thread| thread.join().unwrap())
        });
        let duplicates = refused
            .iter()
            .filter(|end| matches!(end, Err(Failure::Refused { code, .. }) if code == "23505"));
        assert_eq!(duplicates.count(), 1, "round {round}: {refused:?}");
    }
}
