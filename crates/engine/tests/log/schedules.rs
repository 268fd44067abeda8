//! A log used by tasks of a machine that draws its schedules, and a power failure at some moment.
//!
//! What a force has confirmed by then is on the disk, in the order of the log and without a gap,
//! and nobody waits for ever: for a sync, for room in the buffer, or for the flusher.

use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_engine::disk::{Crash, Faults, SimulatedDisk};
use tidegate_engine::wal::{Log, Lsn};
use tidegate_runtime::{entropy, explore, run_all, thread};

use crate::{Random, new_log, open, records};

/// What the tasks know of the log. Its mutex is never held where the machine may switch.
#[derive(Default)]
struct Journal {
    appended: Vec<(Lsn, Vec<u8>)>,
    /// Records that a force has confirmed.
    confirmed: Vec<Lsn>,
}

struct Shared {
    disk: Arc<SimulatedDisk>,
    log: Log,
    journal: Mutex<Journal>,
}

impl Shared {
    fn new() -> Arc<Shared> {
        let (disk, log) = new_log(entropy());
        Arc::new(Shared { disk, log, journal: Mutex::default() })
    }

    /// Appends records and has some of them confirmed.
    fn write(&self, random: &mut Random) {
        let mut before = Lsn::ZERO;
        for _ in 0..3 {
            // Two or three records fill the buffer and the segment.
            let mut bytes = random.draw().to_le_bytes().to_vec();
            bytes.resize(*random.pick(&[8, 40, 1_500, 2_500]), 0x55);
            let lsn = self.log.append(&bytes).expect("room");
            assert!(lsn > before, "a task's records are in its order");
            before = lsn;
            self.journal.lock().appended.push((lsn, bytes));
            match random.index(6) {
                0 => self.log.force_soon().expect("an open log"),
                1 => self.log.write_out(lsn).expect("a disk without faults"),
                2 => self.log.seal().expect("a disk without faults"),
                3 => {}
                _ => self.confirm(lsn),
            }
        }
    }

    fn confirm(&self, lsn: Lsn) {
        self.log.force(lsn).expect("a disk without faults");
        assert!(self.log.durable() > lsn, "a force makes durable");
        self.journal.lock().confirmed.push(lsn);
    }

    /// The power fails: what was confirmed before, and the disk that is found.
    fn crash(&self) -> (Vec<Lsn>, Arc<SimulatedDisk>) {
        let confirmed = self.journal.lock().confirmed.clone();
        (confirmed, Arc::new(self.disk.crash(Crash::Lost)))
    }
}

/// Checks what is found on a disk after a power failure.
fn check(journal: &Journal, confirmed: &[Lsn], disk: &Arc<SimulatedDisk>) {
    let found = records(&open(disk, Lsn::ZERO).0, Lsn::ZERO);
    let mut appended = journal.appended.clone();
    appended.sort();
    assert!(appended.starts_with(&found), "not a prefix of what was appended");
    for lsn in confirmed {
        assert!(found.iter().any(|(at, _)| at == lsn), "the record {lsn} was confirmed, and lost");
    }
}

/// Three that write and commit, and the end of the power at some moment.
fn commits() {
    let shared = Shared::new();
    let crashed = Arc::new(Mutex::new(None));
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..3 {
        let (shared, mut random) = (Arc::clone(&shared), Random::new(entropy()));
        bodies.push(Box::new(move || shared.write(&mut random)));
    }
    let (ours, place, wait) = (Arc::clone(&shared), Arc::clone(&crashed), entropy() % 200);
    bodies.push(Box::new(move || {
        (0..wait).for_each(|_| thread::point());
        let found = ours.crash();
        *place.lock() = Some(found);
    }));
    run_all(bodies);
    let (confirmed, disk) = crashed.lock().take().expect("the power has failed");
    check(&shared.journal.lock(), &confirmed, &disk);
    let Shared { disk, log, journal } = Arc::into_inner(shared).expect("the tasks have ended");
    // The end does what was asked for soon.
    let journal = journal.into_inner();
    drop(log);
    let confirmed: Vec<Lsn> = journal.confirmed.clone();
    check(&journal, &confirmed, &Arc::new(disk.crash(Crash::Lost)));
}

/// A sync or a write fails at some moment: who waits is told, and what was confirmed stays.
fn failures() {
    let (disk, log) = new_log(entropy());
    let log = Arc::new(log);
    let confirmed = Arc::new(Mutex::new(Vec::new()));
    disk.set_faults(Faults { fail_after: Some(entropy() % 8), ..Faults::default() });
    let bodies = (0..3).map(|task: u64| {
        let (log, confirmed) = (Arc::clone(&log), Arc::clone(&confirmed));
        move || {
            for number in 0..3 {
                let bytes = [task.to_le_bytes(), u64::to_le_bytes(number)].concat();
                let Ok(lsn) = log.append(&bytes) else { return };
                if log.force(lsn).is_err() {
                    log.append(&bytes).expect_err("the log is closed");
                    return;
                }
                confirmed.lock().push((lsn, bytes));
            }
        }
    });
    run_all(bodies.collect::<Vec<_>>());
    disk.set_faults(Faults::default());
    let found = records(&open(&Arc::new(disk.crash(Crash::Lost)), Lsn::ZERO).0, Lsn::ZERO);
    for record in &*confirmed.lock() {
        assert!(found.contains(record), "the record {} was confirmed, and lost", record.0);
    }
}

const PROGRAMS: [(&str, fn()); 2] = [("log, commits", commits), ("log, failures", failures)];

#[test]
fn what_is_confirmed_is_durable_in_every_drawn_schedule() {
    for (name, program) in PROGRAMS {
        println!("{}", explore(name, 200, program));
    }
}

#[test]
#[ignore = "soak: 20,000 schedules of each program"]
fn what_is_confirmed_is_durable_in_many_drawn_schedules() {
    for (name, program) in PROGRAMS {
        println!("{}", explore(name, 20_000, program));
    }
}
