//! A log against a map from positions to payloads.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_engine::disk::SimulatedDisk;
use tidegate_engine::wal::{Log, LogError, Lsn};

use crate::{Random, create, for_seeds, new_disk, open, records};

const STEPS: usize = 300;

struct Model {
    disk: Arc<SimulatedDisk>,
    /// Open except within a step.
    log: Option<Log>,
    records: BTreeMap<Lsn, Vec<u8>>,
    random: Random,
    numbers: u64,
}

impl Model {
    fn new(seed: u64) -> Model {
        let disk = new_disk(seed);
        let log = Some(create(&disk));
        Model { disk, log, records: BTreeMap::new(), random: Random::new(seed), numbers: 0 }
    }

    fn log(&self) -> &Log {
        self.log.as_ref().expect("an open log")
    }

    fn some_lsn(&mut self) -> Lsn {
        let known: Vec<Lsn> = self.records.keys().copied().collect();
        self.random.pick_any(&known).copied().unwrap_or_default()
    }

    fn append(&mut self) {
        self.numbers += 1;
        let payload = crate::payload(&mut self.random, self.numbers);
        let end = self.log().end();
        let appended = if self.random.index(2) == 0 {
            self.log().append(&payload)
        } else {
            self.log().append_with(payload.len(), |bytes| bytes.extend_from_slice(&payload))
        };
        let lsn = appended.expect("room");
        assert!(lsn >= end && self.log().end() > lsn);
        assert!(self.records.keys().next_back().is_none_or(|last| *last < lsn));
        self.records.insert(lsn, payload);
    }

    fn force(&mut self) {
        let lsn = self.some_lsn();
        self.log().force(lsn).expect("a disk without faults");
        assert!(self.log().durable() > lsn);
    }

    fn read(&mut self) {
        let lsn = self.some_lsn();
        if let Some(payload) = self.records.get(&lsn) {
            assert_eq!(self.log().read(lsn).expect("a record"), *payload);
        }
        // Positions between records, and after them.
        let near = Lsn(lsn.0 + self.random.index(5_000) as u64);
        if !self.records.contains_key(&near) {
            let read = self.log().read(near);
            let refused =
                matches!(read, Err(LogError::NoRecord { .. } | LogError::Truncated { .. }));
            assert!(refused, "{near}: {read:?}");
        }
    }

    fn scan(&mut self) {
        let from = self.some_lsn();
        self.check_from(from);
    }

    fn check_from(&self, from: Lsn) {
        let expected = self.records.range(from..).map(|(lsn, bytes)| (*lsn, bytes.clone()));
        assert_eq!(records(self.log(), from), expected.collect::<Vec<_>>());
    }

    fn truncate(&mut self) {
        let lsn = self.some_lsn();
        self.log().truncate_before(lsn).expect("a disk without faults");
        let begin = self.log().begin();
        assert!(self.records.is_empty() || begin <= lsn);
        self.records.retain(|lsn, _| *lsn >= begin);
    }

    /// Ends the process, after writing everything or not.
    fn reopen(&mut self) {
        let kept = match self.random.index(3) {
            0 => self.log().write_out(Lsn(u64::MAX)).map(|()| Lsn(u64::MAX)),
            1 => self.log().seal().map(|()| Lsn(u64::MAX)),
            _ => Ok(self.log().durable()),
        };
        let kept = kept.expect("a disk without faults");
        // The first not kept may be in the file already; then it must be whole.
        drop(self.log.take());
        let known: Vec<Lsn> = self.records.keys().copied().filter(|lsn| *lsn < kept).collect();
        let from = self.random.pick_any(&known).copied().unwrap_or_default();
        let (log, tail) = open(&self.disk, from);
        assert_eq!(log.durable(), tail.end);
        assert!(!tail.is_torn);
        self.records.retain(|lsn, _| *lsn < tail.end);
        assert!(known.iter().all(|lsn| self.records.contains_key(lsn)));
        assert_eq!(tail.records, self.records.range(from..).count() as u64);
        self.log = Some(log);
        self.check_from(Lsn::ZERO);
    }

    fn step(&mut self) {
        match self.random.index(20) {
            0..10 => self.append(),
            10..12 => self.force(),
            12 => self.log().write_out(self.log().end()).expect("a disk without faults"),
            13..16 => self.read(),
            16 => self.scan(),
            17 => self.truncate(),
            18 => self.reopen(),
            _ => self.log().force(Lsn(u64::MAX)).expect("a disk without faults"),
        }
    }
}

#[test]
fn a_log_does_what_a_map_does() {
    for_seeds(0..30, |seed| {
        let mut model = Model::new(seed);
        for _ in 0..STEPS {
            model.step();
        }
        model.check_from(Lsn::ZERO);
    });
}
