//! Several threads at one log.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use tidegate_engine::disk::{Crash, Disk};
use tidegate_engine::wal::{Log, LogError, LogSettings, Lsn};

use crate::hooked::{Change, Hook, HookedDisk};
use crate::{SETTINGS, new_disk, new_log, open, records};

const THREADS: u64 = 8;

#[test]
fn records_of_many_threads_are_in_one_order() {
    const EACH: u64 = 400;
    let (disk, log) = new_log(1);
    let appended = thread::scope(|scope| {
        let work = |thread: u64| {
            let log = &log;
            move || {
                let append = |number: u64| {
                    let mut payload = thread.to_le_bytes().to_vec();
                    payload.extend(number.to_le_bytes());
                    payload.resize(16 + usize::try_from(number % 90).expect("small"), 7);
                    let lsn = log.append(&payload).expect("room");
                    if number.is_multiple_of(3) {
                        log.force(lsn).expect("a disk without faults");
                        assert!(log.durable() > lsn);
                    }
                    if number.is_multiple_of(16) {
                        assert_eq!(log.read(lsn).expect("a record"), payload);
                    }
                    (lsn, payload)
                };
                (0..EACH).map(append).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    for of_thread in &appended {
        assert!(of_thread.is_sorted(), "a thread's records are in its order");
    }
    let durable = log.durable();
    let mut expected: Vec<_> = appended.into_iter().flatten().collect();
    expected.sort();
    assert_eq!(records(&log, Lsn::ZERO), expected);
    let statistics = log.statistics();
    assert_eq!(statistics.records, THREADS * EACH);
    assert!(statistics.syncs <= statistics.forces);
    drop(log);

    expected.retain(|(lsn, _)| *lsn < durable);
    let disk = Arc::new(disk.crash(Crash::Lost));
    assert_eq!(records(&open(&disk, Lsn::ZERO).0, Lsn::ZERO)[..expected.len()], expected);
}

/// What syncs wait for while it is shut.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    is_shut: bool,
    is_broken: bool,
    waiting: usize,
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.state.lock().expect("no panic"));
        self.changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn(&GateState) -> bool) {
        let state = self.state.lock().expect("no panic");
        drop(self.changed.wait_while(state, |state| !is_so(state)).expect("no panic"));
    }

    fn pass(&self) -> io::Result<()> {
        self.change(|state| state.waiting += 1);
        self.wait_until(|state| !state.is_shut);
        self.change(|state| state.waiting -= 1);
        let is_broken = self.state.lock().expect("no panic").is_broken;
        if is_broken { Err(io::Error::other("broken")) } else { Ok(()) }
    }
}

fn gated() -> (Log, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let at_gate = Arc::clone(&gate);
    let hook: Hook = Arc::new(move |change| match change {
        Change::Sync => at_gate.pass(),
        _ => Ok(()),
    });
    let disk = HookedDisk { disk: new_disk(1), hook };
    (Log::create(Arc::new(disk), SETTINGS).expect("a new log"), gate)
}

fn wait_for(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// While one thread syncs, seven come, who then need one more sync together.
fn commit_in_groups(break_disk: bool) -> (Log, Vec<Result<(), LogError>>) {
    let (log, gate) = gated();
    gate.change(|state| state.is_shut = true);
    let results = thread::scope(|scope| {
        let commit = |number: u64| {
            let log = &log;
            scope.spawn(move || {
                let lsn = log.append(&number.to_le_bytes()).expect("room");
                assert_eq!(log.read(lsn).expect("in memory"), number.to_le_bytes());
                log.force(lsn)
            })
        };
        let first = commit(0);
        gate.wait_until(|state| state.waiting == 1);
        // What is being written can be read.
        assert_eq!(log.read(Lsn(512)).expect("in memory"), 0_u64.to_le_bytes());
        let others: Vec<_> = (1..THREADS).map(commit).collect();
        wait_for(|| log.statistics().forces == THREADS);
        assert_eq!(log.durable(), Lsn(512));
        gate.change(|state| (state.is_shut, state.is_broken) = (false, break_disk));
        let all = std::iter::once(first).chain(others);
        all.map(|thread| thread.join().expect("no panic")).collect()
    });
    (log, results)
}

#[test]
fn one_sync_serves_all_who_came_during_the_last() {
    let (log, results) = commit_in_groups(false);
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    assert_eq!(log.statistics().syncs, 2);
    assert_eq!(log.statistics().mean_group().to_bits(), 4.0_f64.to_bits());
}

#[test]
fn a_failed_sync_is_told_to_all() {
    let (log, results) = commit_in_groups(true);
    assert!(matches!(results[0], Err(LogError::Io { .. })), "{results:?}");
    let failed = |result: &Result<(), LogError>| matches!(result, Err(LogError::Failed { .. }));
    assert!(results[1..].iter().all(failed), "{results:?}");
    assert_eq!(log.durable(), Lsn(512));
}

#[test]
fn appending_waits_for_room_while_another_syncs() {
    let (log, gate) = gated();
    let first = log.append(&[0; 100]).expect("room");
    gate.change(|state| state.is_shut = true);
    thread::scope(|scope| {
        let forcing = scope.spawn(|| log.force(first));
        gate.wait_until(|state| state.waiting == 1);
        // More than the buffer: two of these threads have to wait for the sync.
        let appending: Vec<_> = (0..4).map(|_| scope.spawn(|| log.append(&[1; 1_500]))).collect();
        wait_for(|| log.statistics().records == 3);
        gate.change(|state| state.is_shut = false);
        forcing.join().expect("no panic").expect("a disk without faults");
        for thread in appending {
            thread.join().expect("no panic").expect("room in the end");
        }
    });
    assert_eq!(records(&log, Lsn::ZERO).len(), 5);
}

#[test]
fn lazily_synced_records_become_durable() {
    let (_, log) = new_log(1);
    for number in 0_u64..20 {
        let lsn = log.append(&number.to_le_bytes()).expect("room");
        log.force_soon().expect("an open log");
        wait_for(|| log.durable() > lsn);
    }
    assert_eq!(log.statistics().syncs, 20);
}

#[test]
fn dropping_does_what_was_asked_for_soon() {
    let disk = new_disk(1);
    // It would be some days before it came to it.
    let settings = LogSettings { lazy_sync: Duration::from_secs(1 << 20), ..SETTINGS };
    let opened = Log::create(Arc::clone(&disk) as Arc<dyn Disk>, settings);
    let log = opened.expect("a new log");
    let lsn = log.append(b"asked").expect("room");
    log.force_soon().expect("an open log");
    drop(log);
    let disk = Arc::new(disk.crash(Crash::Lost));
    assert_eq!(records(&open(&disk, Lsn::ZERO).0, lsn).len(), 1);
}
