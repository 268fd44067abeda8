//! Procedures through the server: answers, limits, conflicts, panics.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockError;
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, StoreOptions, TxnError};
use tidegate_engine_server::{CallError, Procedure, RequestHandler, Server, ServerOptions};
use tidegate_gate::Class;

/// Returns a procedure that adds 1 to a counter, and returns the counter.
fn add(store: &Store) -> Procedure {
    let tree = store.create_tree("counters").unwrap();
    Box::new(move |transaction, key| {
        let old = transaction
            .get(&tree, key)?
            .map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
        transaction.put(&tree, key, &(old + 1).to_le_bytes())?;
        Ok((old + 1).to_le_bytes().to_vec())
    })
}

fn store() -> Arc<Store> {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1, Faults::default()));
    Arc::new(Store::create(&disk, LogId(1), &StoreOptions::default()).unwrap())
}

fn server(
    store: &Arc<Store>,
    limit: u32,
    procedures: Vec<(&str, impl Into<RequestHandler>)>,
    options: ServerOptions,
) -> Server {
    let limit = Mpl::at_least_one(limit);
    let setting = Setting {
        bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(100)).unwrap(),
        start: limit,
        resources: Resources { cpus: 2, disks: 1 },
    };
    let controller = Algorithm::Fixed(limit).controller(&setting);
    let procedures = procedures.into_iter().map(|(name, code)| (name.to_owned(), code));
    Server::start(Arc::clone(store), procedures, controller, options, Box::new(|_| ())).unwrap()
}

#[test]
fn every_call_counts_once_whatever_conflicts_there_are() {
    let store = store();
    let server = server(&store, 8, vec![("add", add(&store))], ServerOptions::default());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    server.call("add", b"one", Class::Normal).unwrap();
                }
            });
        }
    });
    let last = server.call("add", b"one", Class::Normal).unwrap();
    assert_eq!(last, 401_u64.to_le_bytes());
    drop(server);
    assert_eq!(store.locks().statistics().held, 0);
}

#[test]
fn a_handler_begins_and_commits_by_itself_and_is_run_again_after_a_conflict() {
    let store = store();
    let tree = store.create_tree("counters").unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let handler = {
        let (store, runs) = (Arc::clone(&store), Arc::clone(&runs));
        RequestHandler::new(move |attempt, key| {
            let mut transaction = store.begin(attempt.options());
            attempt.began(&transaction);
            transaction.put(&tree, key, b"1")?;
            if runs.fetch_add(1, Ordering::SeqCst) < 2 {
                return Err(TxnError::Conflict(LockError::Deadlock));
            }
            let locks = transaction.lock_count();
            transaction.commit()?;
            attempt.committed(locks);
            Ok(key.to_vec())
        })
    };
    let server = server(&store, 1, vec![("put", handler)], ServerOptions::default());
    assert_eq!(server.call("put", b"key", Class::Normal).unwrap(), b"key");
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    drop(server);
    assert_eq!(store.locks().statistics().held, 0);
}

#[test]
fn no_more_run_at_once_than_the_limit_says() {
    let store = store();
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let code: Procedure = {
        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
        Box::new(move |_, _| {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(2));
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(Vec::new())
        })
    };
    let server = server(&store, 3, vec![("rest", code)], ServerOptions::default());
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..10 {
                    server.call("rest", b"", Class::Normal).unwrap();
                }
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(server.workers() <= 3, "{}", server.workers());
    assert_eq!(server.gate().outstanding, 0);
}

#[test]
fn what_goes_wrong_is_told_and_the_server_goes_on() {
    let store = store();
    let panics: Procedure = Box::new(|_, _| panic!("on purpose"));
    let procedures = vec![("add", add(&store)), ("panic", panics)];
    let server = server(&store, 1, procedures, ServerOptions::default());
    let unknown = server.call("subtract", b"", Class::Normal);
    assert!(matches!(unknown, Err(CallError::NoProcedure(name)) if name == "subtract"));
    let panicked = server.call("panic", b"", Class::Normal);
    assert!(matches!(panicked, Err(CallError::Panicked)));
    let too_long = server.call("add", &[7; 5_000], Class::Normal);
    assert!(matches!(too_long, Err(CallError::Failed(_))));
    server.call("add", b"key", Class::Normal).unwrap();
    assert_eq!(server.gate().outstanding, 0, "no permit is lost");
}

#[test]
fn who_waits_too_long_or_is_one_too_many_is_refused() {
    let store = store();
    let barrier = Arc::new(Barrier::new(2));
    let code: Procedure = {
        let barrier = Arc::clone(&barrier);
        Box::new(move |_, _| {
            barrier.wait();
            barrier.wait();
            Ok(Vec::new())
        })
    };
    let options = ServerOptions {
        waiting_max: 1,
        queue_timeout: Some(Duration::from_millis(50)),
        ..ServerOptions::default()
    };
    let server = server(&store, 1, vec![("hold", code)], options);
    thread::scope(|scope| {
        let holder = scope.spawn(|| server.call("hold", b"", Class::Normal));
        barrier.wait();
        let waiter = scope.spawn(|| server.call("hold", b"", Class::Normal));
        while server.gate().waiting == 0 && !waiter.is_finished() {
            thread::yield_now();
        }
        let one_too_many = server.call("hold", b"", Class::High);
        let is_refused = matches!(one_too_many, Err(CallError::Full(1) | CallError::Expired));
        assert!(is_refused, "{one_too_many:?}");
        assert!(matches!(waiter.join().unwrap(), Err(CallError::Expired)));
        barrier.wait();
        holder.join().unwrap().unwrap();
    });
}

/// Four requests that run until they are told to end hold every permit; others run all the same.
#[test]
fn requests_that_run_for_long_do_not_stop_the_others() {
    let store = store();
    let (end, ended) = (Arc::new(Barrier::new(9)), Arc::new(AtomicU32::new(0)));
    let hold: Procedure = {
        let (end, ended) = (Arc::clone(&end), Arc::clone(&ended));
        Box::new(move |_, _| {
            end.wait();
            ended.fetch_add(1, Ordering::SeqCst);
            Ok(Vec::new())
        })
    };
    let procedures = vec![("hold", hold), ("add", add(&store))];
    let server = server(&store, 4, procedures, ServerOptions::default());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| server.call("hold", b"", Class::Normal).unwrap());
        }
        while server.gate().outstanding < 4 {
            thread::yield_now();
        }
        for _ in 0..10 {
            server.call("add", b"one", Class::Normal).unwrap();
        }
        assert_eq!(ended.load(Ordering::SeqCst), 0, "the holders are still there");
        while server.gate().outstanding < 8 {
            thread::yield_now();
        }
        assert!(server.gate().discounted >= 4, "{:?}", server.gate());
        end.wait();
    });
    let left = server.gate();
    assert_eq!((left.outstanding, left.discounted), (0, 0), "every permit is back");
}
