//! Databases without a process of their own: another process of this test holds them and is killed.
//!
//! The test runs itself again, and tells that process by a variable of its environment which
//! directory the database is in. Of each transaction that was committed the child says which kind
//! it is of, one line each, until it is killed; what it was about to say then is what is doubtful.

use std::fmt::Debug;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tidegate_engine::disk::{Disk, FileDisk, IoMode};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, StoreOptions, TxnOptions};
use tidegate_subject::connection::{Connector, Interrupter, Transactional, load};
use tidegate_subject::embedded::sql::{self, Catalog, StoreConnection};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::tpcc::{NEW_ORDER, PAYMENT};
use tidegate_workload::workload::Workload;
use tidegate_workload::{Connection, Failure, Statement, Wants};

use super::crowd::{Count, Crowd};
use super::kept::{Sent, assert_tpcc};
use super::{CLIENTS, tpcc};

/// Where the child finds the directory.
const DIRECTORY: &str = "TIDEGATE_TEST_KILLS_DIRECTORY";

/// What the child's lines begin with, which no line of the test runner does.
const COMMITTED: &str = "committed kind ";

/// A database in a directory, within our own process.
pub(super) trait Local: Connector + Sized {
    /// Makes it with the tables of a workload.
    fn create(directory: &Path, workload: &dyn Workload) -> Self;

    /// Opens what somebody left.
    fn open(directory: &Path, workload: &dyn Workload) -> Self;

    /// Interrupts what all clients are at; whether they can be.
    fn interrupt(&self) -> bool {
        false
    }

    /// Looks whether its files are sound.
    fn examine(&self);
}

/// A SQLite file.
pub(super) struct File {
    path: PathBuf,
    interrupters: Mutex<Vec<Interrupter>>,
}

impl Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("path", &self.path).finish_non_exhaustive()
    }
}

impl File {
    fn sql(&self, sql: &str) -> SqliteConnection {
        let connection = SqliteConnection::open(&self.path, Duration::from_secs(30)).unwrap();
        connection.batch(sql).unwrap();
        connection
    }
}

impl Connector for File {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        let connection = self.sql("PRAGMA synchronous = OFF");
        self.interrupters.lock().unwrap().extend(connection.interrupter());
        Ok(Box::new(connection))
    }
}

impl Local for File {
    fn create(directory: &Path, workload: &dyn Workload) -> Self {
        let file = File::open(directory, workload);
        let mut connection = file.sql("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF");
        load(&mut connection, workload, &AtomicBool::new(false), &mut |_| {}).unwrap();
        file
    }

    fn open(directory: &Path, _: &dyn Workload) -> Self {
        File { path: directory.join("data.sqlite"), interrupters: Mutex::default() }
    }

    fn interrupt(&self) -> bool {
        self.interrupters.lock().unwrap().iter().for_each(|interrupt| interrupt());
        true
    }

    fn examine(&self) {
        let examine = Statement::new("PRAGMA integrity_check");
        let reply = self.sql("").run(&examine, &[], Wants::Rows).unwrap();
        let lines: Vec<_> = (0..reply.rows.len()).map(|row| reply.rows.text(row, 0)).collect();
        assert_eq!(lines, [Some("ok")]);
    }
}

/// A store of the embedded engine.
pub(super) struct Engine {
    store: Arc<Store>,
    catalog: Arc<Catalog>,
}

impl Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("catalog", &self.catalog).finish_non_exhaustive()
    }
}

fn disk(directory: &Path) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(directory, IoMode::Buffered).unwrap())
}

fn options() -> StoreOptions {
    // So few pages that many are written before their transactions are committed.
    StoreOptions::default().buffer_bytes(2 << 20).buffer_bytes_max(2 << 20)
}

impl Connector for Engine {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        let (store, catalog) = (Arc::clone(&self.store), Arc::clone(&self.catalog));
        Ok(Box::new(StoreConnection::new(store, catalog, TxnOptions::default())))
    }
}

impl Local for Engine {
    fn create(directory: &Path, workload: &dyn Workload) -> Self {
        let store = Store::create(&disk(directory), LogId(7), &options()).unwrap();
        let catalog = sql::load(&store, workload, &AtomicBool::new(false), &mut |_| {}).unwrap();
        Engine { store: Arc::new(store), catalog: Arc::new(catalog) }
    }

    fn open(directory: &Path, workload: &dyn Workload) -> Self {
        let store = Store::open(&disk(directory), &options()).unwrap();
        let catalog = Catalog::open(&store, &workload.tables()).unwrap();
        Engine { store: Arc::new(store), catalog: Arc::new(catalog) }
    }

    fn examine(&self) {
        self.store.check().unwrap();
    }
}

/// The other process; it is killed when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It can only fail when it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs this test's other part on a directory until it has committed so many transactions, and
/// kills it. What it said by then is added to `counts`.
fn kill_after(transactions: usize, test: &str, directory: &Path, counts: &[Count]) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let output = child.0.stdout.take().unwrap();
    let mut said = 0;
    for line in BufReader::new(output).lines() {
        let line = line.unwrap();
        let Some(kind) = line.strip_prefix(COMMITTED) else { continue };
        counts[kind.parse::<usize>().unwrap()].committed.fetch_add(1, Ordering::Relaxed);
        said += 1;
        if said == transactions {
            child.0.kill().unwrap();
        }
    }
    assert!(said >= transactions, "the other process ended by itself after {said} transactions");
    for kind in [NEW_ORDER, PAYMENT] {
        counts[kind].doubtful.fetch_add(CLIENTS as u64, Ordering::Relaxed);
    }
}

/// The other process's part: transactions for ever, each told when it is committed.
fn be_killed(database: &impl Local, seed: u64) {
    let workload = tpcc();
    let crowd = Crowd::new(&workload, database, &[]).telling(|kind| {
        // Nobody listens any more: nobody is left to kill us either.
        if writeln!(std::io::stdout(), "{COMMITTED}{kind}").is_err() {
            std::process::exit(1);
        }
    });
    crowd.work(seed, |crowd| {
        loop {
            crowd.wait_for(1);
        }
    });
}

fn tpcc_survives<L: Local>(test: &str, rounds: u64, transactions: u64, seed: u64) {
    let workload = tpcc();
    if let Some(directory) = std::env::var_os(DIRECTORY) {
        return be_killed(&L::open(Path::new(&directory), &workload), seed + 500);
    }
    let directory = tempfile::tempdir().unwrap();
    let database = L::create(directory.path(), &workload);
    let counts = clients_are_killed(&database, &workload, transactions, seed);
    drop(database);
    for _ in 0..rounds {
        kill_after(usize::try_from(transactions).unwrap(), test, directory.path(), &counts);
        let database = L::open(directory.path(), &workload);
        database.examine();
        assert_tpcc(&database, &workload, &Sent::by(&counts));
    }
}

/// Interrupts clients now and then while so many transactions are done.
pub(super) fn interrupt(crowd: &Crowd<'_>, database: &impl Local, transactions: u64) {
    for _ in 0..transactions / 10 {
        crowd.wait_for(10);
        // Not every moment has a statement that is running.
        for _ in 0..10 {
            if !database.interrupt() {
                break;
            }
            thread::sleep(Duration::from_micros(300));
        }
    }
    assert_eq!(
        crowd.losses() > 0,
        database.interrupt(),
        "clients are interrupted where they can be"
    );
}

/// Transactions in our own process, some of whose clients vanish or are interrupted.
fn clients_are_killed<L: Local>(
    database: &L,
    workload: &dyn Workload,
    transactions: u64,
    seed: u64,
) -> Vec<Count> {
    let crowd = Crowd::new(workload, database, &[]);
    crowd.work(seed, |crowd| interrupt(crowd, database, transactions));
    assert_tpcc(database, workload, &Sent::by(&crowd.counts));
    crowd.counts
}

#[test]
fn tpcc_on_sqlite_survives_kills() {
    let test = "children::tpcc_on_sqlite_survives_kills";
    tpcc_survives::<File>(test, 2, 300, 44);
}

#[test]
fn tpcc_on_the_embedded_engine_survives_kills() {
    let test = "children::tpcc_on_the_embedded_engine_survives_kills";
    tpcc_survives::<Engine>(test, 2, 300, 45);
}

#[test]
#[ignore = "soak: twenty kills of a process with a SQLite file"]
fn tpcc_on_sqlite_survives_many_kills() {
    let test = "children::tpcc_on_sqlite_survives_many_kills";
    tpcc_survives::<File>(test, 20, 2_000, 1_044);
}

#[test]
#[ignore = "soak: twenty kills of a process with the embedded engine"]
fn tpcc_on_the_embedded_engine_survives_many_kills() {
    let test = "children::tpcc_on_the_embedded_engine_survives_many_kills";
    tpcc_survives::<Engine>(test, 20, 2_000, 1_045);
}
