//! The DVD store and the thrashing study on a real PostgreSQL server, where transactions run at the
//! same time in truth: no update is lost, at either isolation level, and the check holds.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::atomic::AtomicBool;

use tidegate_subject::client::BlockingClient;
use tidegate_subject::connection::{check, load, run};
use tidegate_subject::postgres::{Authentication, Options as ServerOptions, Postgres};
use tidegate_workload::ds2::{self, Ds2, Scale, Search};
use tidegate_workload::thrash::{Mix, Options, Placement, Share, Thrash};
use tidegate_workload::workload::{Depth, Workload};
use tidegate_workload::{Ending, Failure};

const SEED: u64 = 1_999;

const CLIENTS: usize = 8;

/// Connects, for transactions of an isolation level.
fn connect(server: &Postgres, level: &str) -> BlockingClient {
    let mut client = server.connect().unwrap();
    let set = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
    client.query(&set).unwrap();
    client
}

/// Runs transactions of several clients at once, each again until it has no conflict, and returns
/// how many were committed of each kind, and how many conflicts there were.
fn work(
    server: &Postgres,
    workload: &dyn Workload,
    level: &'static str,
    count: usize,
) -> (Vec<u32>, u32) {
    let connect = || connect(server, level);
    let mut connection = connect();
    load(&mut connection, workload, &AtomicBool::new(false), &mut |_| ()).unwrap();
    let mut committed = vec![0; workload.kinds().len()];
    let mut conflicts = 0;
    std::thread::scope(|scope| {
        let one = |number| {
            let mut client = workload.client(number, CLIENTS, SEED);
            let mut connection = connect();
            let (mut committed, mut conflicts) = (vec![0; workload.kinds().len()], 0);
            for _ in 0..count {
                let transaction = client.next();
                let ending = loop {
                    match run(&mut connection, transaction.clone()) {
                        Err(Failure::Conflict(_)) => conflicts += 1,
                        done => break done.unwrap(),
                    }
                };
                committed[transaction.kind()] += u32::from(ending == Ending::Commit);
            }
            (committed, conflicts)
        };
        let threads: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || one(number))).collect();
        for thread in threads {
            let (more, again) = thread.join().unwrap();
            committed.iter_mut().zip(more).for_each(|(sum, count)| *sum += count);
            conflicts += again;
        }
    });
    for depth in [Depth::Quick, Depth::Full] {
        for condition in check(&mut connection, workload, depth).unwrap() {
            assert_eq!(condition.violation, None, "{}", condition.name);
        }
    }
    for table in workload.tables() {
        connection.query(&table.drop()).unwrap();
    }
    (committed, conflicts)
}

fn server() -> Postgres {
    let settings = vec![("fsync".into(), "off".into())];
    Postgres::start(ServerOptions {
        settings,
        authentication: Authentication::Trust,
        ..ServerOptions::default()
    })
    .unwrap()
}

#[test]
fn the_store_loses_no_update() {
    println!("seed {SEED}");
    let server = server();
    for (level, search) in [("READ COMMITTED", Search::Prefix), ("REPEATABLE READ", Search::Word)] {
        let store = Ds2::new(ds2::Options { search, ..ds2::Options::new(Scale::TINY) }).unwrap();
        let (committed, conflicts) = work(&server, &store, level, 500);
        println!("{level}: {committed:?} committed, {conflicts} conflicts");
        // Eight clients with a hundred purchases each.
        assert!(committed[5] > 600, "{committed:?}");
    }
}

#[test]
fn the_study_keeps_its_rows() {
    println!("seed {SEED}");
    let server = server();
    for placement in [Placement::Random, Placement::Rotation, Placement::Discrete] {
        for primary_key in [true, false] {
            let study = Thrash::new(Options {
                rows: 600,
                primary_key,
                sf: Share::from_percent(2.0).unwrap(),
                rose: Share::from_percent(25.0).unwrap(),
                placement,
                mix: Mix { reads: 3, updates: 3, changes: 3, joins: 1 },
            })
            .unwrap();
            let (committed, conflicts) = work(&server, &study, "READ COMMITTED", 200);
            println!("{placement:?} {primary_key}: {committed:?}, {conflicts} conflicts");
            assert_eq!(committed.iter().sum::<u32>(), 1_600);
        }
    }
}
