//! A process with an open store is killed (`kill -9`), again and again, and nothing it acknowledged
//! is lost.
//!
//! The test starts itself a second time as the child (`child`), which runs transactions from six
//! threads on a directory of this machine and says of each when its commit has returned (`load`
//! has what they do). After a number of acknowledgements that is drawn, the parent kills the child.
//! Sometimes it then starts another that stops in the middle of recovery (`halting`), at a write,
//! a sync or a rename that is drawn, and kills that too. Then it opens the store itself:
//!
//! * every transaction that was acknowledged and synced is there, and at most one more of each
//!   worker than was acknowledged at all;
//! * of each everything is there or nothing: the slots in both trees are what all transactions up
//!   to the last made of them, the journal has exactly the last ones, the accounts add up to 0;
//! * all trees and the maps of free pages are sound;
//! * opening it once more finds nothing to do.
//!
//! The same directory serves the next round.
//!
//! # Limits
//! A killed process leaves what it wrote in the page cache, and the next one finds it there, synced
//! or not. So this tests what a program can be in the middle of, with threads, a real file system
//! and a lock that the system has to let go. What a disk loses is for the simulated one.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "shown when a test fails")]

mod child;
mod halting;
#[path = "../common/hooked.rs"]
mod hooked;
mod load;
#[path = "../../fuzz/src/random.rs"]
mod random;

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidegate_engine::disk::{Disk, FileDisk, IoMode};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Store, Transaction, TreeHandle, TxnOptions};

use random::Random;

use load::{JOURNALED, Slots, Trees, WORKERS, balance, journal_key, last_number};

/// A child that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that has the store open, and is killed at the latest when this is dropped.
struct Child {
    process: process::Child,
    lines: Receiver<String>,
    reader: Option<JoinHandle<()>>,
}

impl Child {
    /// Starts the test of this name again, as a child.
    fn start(test: &str, directory: &Path, halt_after: Option<u64>) -> Child {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--include-ignored"]);
        command.env(child::DIRECTORY, directory);
        if let Some(number) = halt_after {
            command.env(child::HALT_AFTER, number.to_string());
        }
        // Its input ends when this process does.
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let (sender, lines) = channel();
        let reader = thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Child { process, lines, reader: Some(reader) }
    }

    /// What the child says next; `None` when it has said all.
    fn next(&self) -> Option<Said> {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    let said = said(&line);
                    if said.is_some() {
                        return said;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => panic!("the child says nothing any more"),
            }
        }
    }

    /// Kills it. What it had said and was not read yet goes to `acknowledged`.
    fn kill(mut self, acknowledged: &mut Acknowledged) {
        self.process.kill().unwrap();
        while let Some(said) = self.next() {
            acknowledged.note(said);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

/// What a child can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Opened,
    Halted,
    Done { worker: usize, number: u64, is_synced: bool },
}

/// Reads a line; what the test harness says means nothing.
fn said(line: &str) -> Option<Said> {
    let mut words = line.split(' ');
    let first = words.next()?;
    match first {
        "opened" => Some(Said::Opened),
        "halted" => Some(Said::Halted),
        "synced" | "lazy" => {
            let (worker, number) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            Some(Said::Done { worker, number, is_synced: first == "synced" })
        }
        "failed" => panic!("the child: {line}"),
        _ => None,
    }
}

/// The last transaction of each worker of which the child said that it is done.
#[derive(Default)]
struct Acknowledged {
    synced: [u64; WORKERS as usize],
    any: [u64; WORKERS as usize],
    count: u64,
}

impl Acknowledged {
    fn note(&mut self, said: Said) {
        if let Said::Done { worker, number, is_synced } = said {
            self.count += 1;
            self.any[worker] = self.any[worker].max(number);
            if is_synced {
                self.synced[worker] = self.synced[worker].max(number);
            }
        }
    }
}

/// What all rounds came to.
#[derive(Debug, Default)]
struct Totals {
    acknowledged: u64,
    redone: u64,
    rolled_back: usize,
    halted: u32,
}

struct Subject<'a> {
    test: &'a str,
    directory: &'a Path,
    random: Random,
    slots: [Slots; WORKERS as usize],
    totals: Totals,
}

impl Subject<'_> {
    fn round(&mut self) {
        let mut acknowledged = Acknowledged::default();
        let child = Child::start(self.test, self.directory, None);
        let wanted = self.random.below(300);
        while acknowledged.count < wanted {
            let said = child.next();
            acknowledged.note(said.unwrap_or_else(|| panic!("the child has ended by itself")));
        }
        child.kill(&mut acknowledged);
        for _ in 0..self.random.below(4) {
            self.kill_in_recovery(&mut acknowledged);
        }
        self.totals.acknowledged += acknowledged.count;
        self.verify(&acknowledged);
    }

    /// Starts a child that is to stop while it opens the store, and kills it there.
    fn kill_in_recovery(&mut self, acknowledged: &mut Acknowledged) {
        let halt_after = 1 + self.random.below(14);
        let child = Child::start(self.test, self.directory, Some(halt_after));
        match child.next() {
            Some(Said::Halted) => self.totals.halted += 1,
            // There was less to do; it is killed as soon as it works.
            Some(Said::Opened) => {}
            other => panic!("{other:?} while the child opened the store"),
        }
        child.kill(acknowledged);
    }

    fn verify(&mut self, acknowledged: &Acknowledged) {
        let disk = FileDisk::open(self.directory, IoMode::Buffered).unwrap();
        let disk = Arc::new(disk) as Arc<dyn Disk>;
        let options = child::options().background(false);
        let store = Store::open(&disk, &options).unwrap();
        let recovery = store.recovery();
        println!("{} acknowledged, {recovery:?}", acknowledged.count);
        self.totals.redone += recovery.redone;
        self.totals.rolled_back += recovery.rolled_back;
        self.compare(&store, acknowledged);
        drop(store);
        let store = Store::open(&disk, &options).unwrap();
        let again = store.recovery();
        assert_eq!((again.repaired_pages, again.redone, again.rolled_back), (0, 0, 0));
        self.compare(&store, acknowledged);
    }

    fn compare(&mut self, store: &Store, acknowledged: &Acknowledged) {
        store.check().unwrap();
        let trees = Trees::of(store).unwrap();
        let mut transaction = store.begin(TxnOptions::default());
        let (mut slots, mut journal) = (BTreeMap::new(), Vec::new());
        for (worker, known) in (0..WORKERS).zip(&mut self.slots) {
            let at = usize::from(worker);
            let last = last_number(&mut transaction, &trees, worker).unwrap();
            let at_least = acknowledged.synced[at].max(known.number);
            let at_most = acknowledged.any[at].max(known.number) + 1;
            let range = at_least..=at_most;
            assert!(range.contains(&last), "worker {worker}: {last} is not in {range:?}");
            known.advance(worker, last);
            slots.extend(known.values.clone());
            let first = (last + 1).saturating_sub(JOURNALED).max(1);
            journal.extend((first..=last).map(|number| journal_key(worker, number).to_vec()));
        }
        let mut read = |tree| entries(&mut transaction, tree);
        let [left, right] = [read(&trees.left), read(&trees.right)];
        assert!(left == slots, "{} slots on the left, not {}", left.len(), slots.len());
        assert!(right == slots, "{} slots on the right, not {}", right.len(), slots.len());
        assert!(read(&trees.journal).into_keys().eq(journal), "the journal is another");
        let accounts = read(&trees.accounts);
        assert_eq!(accounts.values().map(|value| balance(Some(value))).sum::<i64>(), 0);
    }
}

fn entries(transaction: &mut Transaction, tree: &TreeHandle) -> BTreeMap<Vec<u8>, Vec<u8>> {
    transaction.entries(tree).unwrap().map(Result::unwrap).collect()
}

fn kill_again_and_again(test: &str, seed: u64, rounds: usize) {
    println!("seed {seed}");
    let directory = tempfile::tempdir().unwrap();
    let disk = FileDisk::create(directory.path(), IoMode::Buffered).unwrap();
    let disk = Arc::new(disk) as Arc<dyn Disk>;
    Store::create(&disk, LogId(seed), &child::options()).unwrap().close().unwrap();
    drop(disk);
    let mut subject = Subject {
        test,
        directory: directory.path(),
        random: Random::new(seed),
        slots: Default::default(),
        totals: Totals::default(),
    };
    (0..rounds).for_each(|_| subject.round());
    println!("{:?}", subject.totals);
    let Totals { acknowledged, redone, rolled_back, halted } = subject.totals;
    assert!(acknowledged > 0 && redone > 0 && rolled_back > 0 && halted > 0);
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    child::run_if_asked();
    kill_again_and_again("what_a_killed_process_acknowledged_is_there", 1, 5);
}

#[test]
#[ignore = "soak: a process is killed a hundred times and more"]
fn what_a_process_killed_a_hundred_times_acknowledged_is_there() {
    child::run_if_asked();
    let test = "what_a_process_killed_a_hundred_times_acknowledged_is_there";
    kill_again_and_again(test, 2, 100);
}
