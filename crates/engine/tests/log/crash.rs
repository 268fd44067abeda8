//! Crashes at random moments, several in the life of one log.

use std::sync::Arc;

use tidegate_engine::disk::{Crash, Disk, Faults, SimulatedDisk};
use tidegate_engine::wal::{Log, LogError, Lsn};

use crate::{Random, SETTINGS, create, for_seeds, new_disk, new_log, open, records};

/// A log, and what its user knows of it.
struct Story {
    random: Random,
    disk: Arc<SimulatedDisk>,
    /// Everything appended that may still be there, in order.
    appended: Vec<(Lsn, Vec<u8>)>,
    /// The first so many are durable.
    forced: usize,
    /// Where to open, like a checkpoint: a record that is durable, or zero.
    checkpoint: Lsn,
    numbers: u64,
}

impl Story {
    fn new(seed: u64) -> Story {
        let disk = new_disk(seed);
        drop(create(&disk));
        let (appended, forced) = (Vec::new(), 0);
        Story {
            random: Random::new(seed),
            disk,
            appended,
            forced,
            checkpoint: Lsn::ZERO,
            numbers: 0,
        }
    }

    fn step(&mut self, log: &Log) -> Result<(), LogError> {
        match self.random.index(16) {
            0..9 => {
                self.numbers += 1;
                let payload = crate::payload(&mut self.random, self.numbers);
                // An error is an error of making room: the record is not in the log.
                let lsn = log.append(&payload)?;
                self.appended.push((lsn, payload));
            }
            9..12 => {
                if let Some((lsn, _)) = self.random.pick_any(&self.appended) {
                    log.force(*lsn)?;
                    self.note_durable(log);
                }
            }
            12 => log.write_out(log.end())?,
            13 => log.seal()?,
            14 => {
                // A checkpoint is taken, and made known, only after it is durable.
                if let Some((lsn, _)) = self.random.pick_any(&self.appended[..self.forced]) {
                    self.checkpoint = self.checkpoint.max(*lsn);
                }
            }
            _ => log.truncate_before(self.checkpoint)?,
        }
        Ok(())
    }

    fn note_durable(&mut self, log: &Log) {
        let durable = log.durable();
        self.forced = self.appended.iter().filter(|(lsn, _)| *lsn < durable).count();
    }

    /// Works until the machine stops.
    fn live(&mut self, log: &Log) {
        let operations = self.random.index(60) as u64;
        self.disk.set_faults(Faults { crash_after: Some(operations), ..Faults::default() });
        for _ in 0..200 {
            if let Err(error) = self.step(log) {
                // Removing files does not close the log, but the machine is off.
                assert!(self.disk.is_off(), "{error}");
                break;
            }
        }
        // What others have forced, and seals, is durable too.
        self.note_durable(log);
    }

    /// The machine starts again.
    fn recover(&mut self) -> Log {
        let crashes = [Crash::Random, Crash::Random, Crash::Weak, Crash::Lost, Crash::Kept];
        let crash = crashes[self.random.index(crashes.len())];
        self.disk = Arc::new(self.disk.crash(crash));
        let from = if self.random.index(4) == 0 { Lsn::ZERO } else { self.checkpoint };
        // A truncation that a crash undid in part may leave older segments and a hole.
        let from = from.max(self.checkpoint);
        let (log, tail) = open(&self.disk, from);
        let found = records(&log, from);
        let expected: Vec<_> =
            self.appended.iter().filter(|(lsn, _)| *lsn >= from).cloned().collect();
        assert!(expected.starts_with(&found), "{crash:?}: not a prefix of what was appended");
        let before = self.appended.len() - expected.len();
        let kept = before + found.len();
        assert!(kept >= self.forced, "{crash:?}: {kept} of {} forced", self.forced);
        self.appended.truncate(kept);
        self.forced = kept;
        assert_eq!(tail.records, found.len() as u64);
        assert_eq!(tail.last, found.last().map(|(lsn, _)| *lsn));
        self.open_again(log, from, tail.end)
    }

    /// A second open finds the same and leaves the disk as it is, also after a crash right after
    /// the first.
    fn open_again(&self, log: Log, from: Lsn, end: Lsn) -> Log {
        let image = self.disk.image();
        let crashed = Arc::new(self.disk.crash(Crash::Random));
        let (_, again) = open(&crashed, from);
        assert_eq!(again.end, end);
        drop(log);
        let (log, again) = open(&self.disk, from);
        assert_eq!(again.end, end);
        assert!(!again.is_torn);
        assert_eq!(self.disk.image(), image);
        log
    }
}

/// Eight lives and crashes of one log.
fn live_and_recover(seed: u64) {
    let mut story = Story::new(seed);
    let mut log = open(&story.disk, Lsn::ZERO).0;
    for _ in 0..8 {
        story.live(&log);
        drop(log);
        log = story.recover();
    }
}

#[test]
fn a_log_keeps_what_was_forced_and_a_prefix_of_the_rest() {
    for_seeds(0..300, live_and_recover);
}

#[test]
#[ignore = "soak: 80,000 crashes"]
fn a_log_keeps_what_was_forced_through_many_crashes() {
    for_seeds(1_000..11_000, live_and_recover);
}

#[test]
fn opening_can_be_interrupted_anywhere() {
    for_seeds(0..100, |seed| {
        let mut story = Story::new(seed);
        let log = open(&story.disk, Lsn::ZERO).0;
        story.live(&log);
        drop(log);
        let crashed = story.disk.crash(Crash::Random);
        for operations in 0.. {
            let disk = Arc::new(crashed.fork());
            disk.set_faults(Faults { crash_after: Some(operations), ..Faults::default() });
            let opened = Log::open(Arc::clone(&disk) as Arc<dyn Disk>, SETTINGS, story.checkpoint);
            let Err(error) = opened else { break };
            assert!(matches!(error, LogError::Io { .. }), "{error}");
            story.disk = Arc::new(disk.crash(Crash::Weak));
            let (forced, appended) = (story.forced, story.appended.clone());
            story.recover();
            (story.forced, story.appended) = (forced, appended);
        }
    });
}

#[test]
fn creating_can_be_interrupted_anywhere() {
    for_seeds(0..40, |seed| {
        for operations in 0..10 {
            let faults = Faults { crash_after: Some(operations), ..Faults::default() };
            let disk = Arc::new(SimulatedDisk::new(seed, faults));
            let created = Log::create(Arc::clone(&disk) as Arc<dyn Disk>, SETTINGS).map(drop);
            let disk = Arc::new(disk.crash(Crash::Weak));
            match Log::open(Arc::clone(&disk) as Arc<dyn Disk>, SETTINGS, Lsn::ZERO) {
                Ok((_, tail)) => assert_eq!((tail.end, tail.records), (Lsn(512), 0)),
                Err(LogError::Missing { .. }) => {
                    created.expect_err("what was created is there");
                    drop(create(&disk));
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn what_survives_beyond_a_hole_never_comes_back() {
    let (disk, log) = new_log(1);
    // Of these two only the second arrives; nobody forced either.
    let first = log.append(&[1; 600]).expect("room");
    let second = log.append(&[2; 600]).expect("room");
    log.write_out(second).expect("a disk without faults");
    drop(log);
    disk.corrupt("log-0000000000000000.wal", first.0, 100).expect("a file");

    let (log, tail) = open(&disk, Lsn::ZERO);
    assert_eq!((tail.end, tail.records, tail.is_torn), (first, 0, true));
    // The log grows exactly up to where the second lies.
    assert_eq!(log.append(&[3; 600]).expect("room"), first);
    assert_eq!(log.end(), second);
    log.force(first).expect("a disk without faults");
    drop(log);
    let (log, _) = open(&disk, Lsn::ZERO);
    assert_eq!(records(&log, Lsn::ZERO), [(first, vec![3; 600])]);
}

#[test]
fn what_a_killed_process_wrote_is_durable_after_opening() {
    let (disk, log) = new_log(1);
    let lsn = log.append(&[1; 3_000]).expect("room");
    let next = log.append(&[2; 3_000]).expect("room");
    log.write_out(next).expect("a disk without faults");
    drop(log);
    let killed = Arc::new(disk.crash(Crash::Kept));
    let (_log, tail) = open(&killed, Lsn::ZERO);
    assert_eq!(tail.records, 2);
    let lost = Arc::new(killed.crash(Crash::Lost));
    let (log, tail) = open(&lost, Lsn::ZERO);
    assert_eq!(tail.last, Some(next));
    assert_eq!(records(&log, lsn).len(), 2);
}
