//! The DVD store and the thrashing study on a real PostgreSQL server, where transactions run at the
//! same time in truth: no update is lost, at either isolation level, and the check holds.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::sync::atomic::AtomicBool;

use tidegate_subject::client::{BlockingClient, ClientError};
use tidegate_subject::connection::{Transactional, check, load, run};
use tidegate_subject::postgres::{Authentication, Options as ServerOptions, Postgres};
use tidegate_workload::ds2::{self, Ds2, Scale, Search};
use tidegate_workload::thrash::{Mix, Options, Placement, Share, Thrash};
use tidegate_workload::workload::{Depth, Workload};
use tidegate_workload::{
    Conflict, Connection, Dialect, Ending, Failure, Reply, Rows, Statement, Value, Wants,
};

const SEED: u64 = 1_999;

const CLIENTS: usize = 8;

/// Gives the server text with the values in it, and counts changed rows by having them returned.
struct Client {
    client: BlockingClient,
    begin: &'static str,
}

impl Connection for Client {
    fn run(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        _: Wants,
    ) -> Result<Reply, Failure> {
        let mut sql = Vec::new();
        statement.render(Dialect::Postgres, values, &mut sql);
        let mut sql = String::from_utf8(sql).unwrap();
        if ["INSERT", "UPDATE", "DELETE"].iter().any(|verb| sql.starts_with(verb)) {
            sql.push_str(" RETURNING 1");
        }
        let found = self.client.query(&sql).map_err(failure)?;
        let mut rows = Rows::new(found.first().map_or(0, Vec::len));
        for cell in found.iter().flatten() {
            match cell {
                Some(text) => rows.push_text(text.as_bytes()),
                None => rows.push(&Value::Null),
            }
        }
        Ok(Reply { count: found.len() as u64, rows })
    }
}

impl Transactional for Client {
    fn begin(&mut self) -> Result<(), Failure> {
        self.client.query(self.begin).map(drop).map_err(failure)
    }

    fn commit(&mut self) -> Result<(), Failure> {
        self.client.query("COMMIT").map(drop).map_err(failure)
    }

    fn rollback(&mut self) -> Result<(), Failure> {
        self.client.query("ROLLBACK").map(drop).map_err(failure)
    }

    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn failure(error: ClientError) -> Failure {
    let ClientError::Server(refusal) = &error else { return Failure::Lost(error.to_string()) };
    match refusal.code.as_str() {
        "40P01" => Failure::Conflict(Conflict::Deadlock),
        "40001" => Failure::Conflict(Conflict::Serialization),
        code => Failure::Refused { code: code.to_owned(), message: error.to_string() },
    }
}

/// Runs transactions of several clients at once, each again until it has no conflict, and returns
/// how many were committed of each kind, and how many conflicts there were.
fn work(
    server: &Postgres,
    workload: &dyn Workload,
    begin: &'static str,
    count: usize,
) -> (Vec<u32>, u32) {
    let connect = || Client { client: server.connect().unwrap(), begin };
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
        connection.client.query(&table.drop()).unwrap();
    }
    (committed, conflicts)
}

fn server() -> Postgres {
    let settings = vec![("fsync".into(), "off".into())];
    Postgres::start(ServerOptions { settings, authentication: Authentication::Trust }).unwrap()
}

#[test]
fn the_store_loses_no_update() {
    println!("seed {SEED}");
    let server = server();
    for (begin, search) in
        [("BEGIN", Search::Prefix), ("BEGIN ISOLATION LEVEL REPEATABLE READ", Search::Word)]
    {
        let store = Ds2::new(ds2::Options { search, ..ds2::Options::new(Scale::TINY) }).unwrap();
        let (committed, conflicts) = work(&server, &store, begin, 500);
        println!("{begin}: {committed:?} committed, {conflicts} conflicts");
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
            let (committed, conflicts) = work(&server, &study, "BEGIN", 200);
            println!("{placement:?} {primary_key}: {committed:?}, {conflicts} conflicts");
            assert_eq!(committed.iter().sum::<u32>(), 1_600);
        }
    }
}
