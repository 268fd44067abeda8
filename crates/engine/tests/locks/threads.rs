//! Threads against one lock table, with what must be true whatever they do:
//!
//! - nobody holds a mode beside another that does not go with it, in either order;
//! - a number changed under an exclusive lock alone loses no change;
//! - everybody gets through in the end, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::lock::multi_granularity::{IS, IX, S, SIX, U, X};
use tidegate_engine::lock::{
    Hierarchy, LockError, LockManager, LockSettings, Locker, LockerId, Mode, ModeTable, Priorities,
    Priority, Victim, Wait,
};

use crate::random::Random;

const KEYS: u32 = 6;
const THREADS: u64 = 6;
const COMMITS: u64 = 150;

/// 0 is the tree; the others are its keys.
type Resource = u32;

struct Arena {
    manager: Arc<LockManager<Resource>>,
    /// Who holds what, as the threads see it.
    holders: Vec<Mutex<Vec<(LockerId, Mode)>>>,
    numbers: Vec<AtomicU64>,
    /// A wait this long is a lost one.
    wait: Wait,
}

impl Arena {
    fn new(settings: LockSettings, has_whole: bool, wait: Wait) -> Arena {
        let modes = ModeTable::multi_granularity();
        let manager = if has_whole {
            let hierarchy = Hierarchy { is_whole: |at: &Resource| *at == 0, escalation: None };
            LockManager::with_hierarchy(modes, settings, hierarchy)
        } else {
            LockManager::new(modes, settings)
        };
        Arena {
            manager,
            holders: (0..=KEYS).map(|_| Mutex::default()).collect(),
            numbers: (0..=KEYS).map(|_| AtomicU64::new(0)).collect(),
            wait,
        }
    }

    fn lock(
        &self,
        locker: &mut Locker<Resource>,
        at: Resource,
        mode: Mode,
    ) -> Result<(), LockError> {
        locker.lock(&at, mode, self.wait)?;
        let (id, held) = (locker.id(), locker.held(&at).expect("just locked"));
        let modes = self.manager.modes();
        let mut holders = self.holders[at as usize].lock();
        holders.retain(|(holder, _)| *holder != id);
        for (holder, other) in &*holders {
            let go = modes.is_compatible(held, *other) || modes.is_compatible(*other, held);
            assert!(go, "{id} holds {} beside {holder}", modes.name(held));
        }
        holders.push((id, held));
        Ok(())
    }

    fn release(&self, locker: &mut Locker<Resource>) {
        for holders in &self.holders {
            holders.lock().retain(|(holder, _)| *holder != locker.id());
        }
        locker.release_all();
    }

    /// Adds one, slowly, to what only the holder of an exclusive lock may touch.
    fn add(&self, at: Resource) {
        let number = &self.numbers[at as usize];
        let before = number.load(Ordering::Relaxed);
        thread::yield_now();
        number.store(before + 1, Ordering::Relaxed);
    }

    /// Returns the key that was written, if one was.
    fn transaction(
        &self,
        locker: &mut Locker<Resource>,
        random: &mut Random,
    ) -> Result<Option<Resource>, LockError> {
        let key = 1 + Resource::try_from(random.index(KEYS as usize)).expect("a key");
        match random.index(8) {
            0 => self.lock(locker, 0, S)?,
            1 => {
                self.lock(locker, 0, SIX)?;
                self.lock(locker, key, X)?;
                self.add(key);
                return Ok(Some(key));
            }
            2 => {
                self.lock(locker, 0, IS)?;
                for other in 1..=KEYS {
                    self.lock(locker, other, S)?;
                }
            }
            read @ 3..=5 => {
                self.lock(locker, 0, IX)?;
                self.lock(locker, key, if read == 3 { S } else { U })?;
                thread::yield_now();
                self.lock(locker, key, X)?;
                self.add(key);
                return Ok(Some(key));
            }
            6 => {
                self.lock(locker, 0, IX)?;
                self.lock(locker, 1 + key % KEYS, X)?;
                self.lock(locker, key, X)?;
                self.add(key);
                return Ok(Some(key));
            }
            _ => {
                self.lock(locker, 0, S)?;
                self.lock(locker, 0, X)?;
                self.add(0);
                return Ok(Some(0));
            }
        }
        Ok(None)
    }

    /// Commits so many transactions; returns how often it wrote, and tried again.
    fn worker(&self, seed: u64, may_time_out: bool) -> (u64, u64) {
        let mut random = Random::new(seed);
        let (mut written, mut retries) = (0, 0);
        for _ in 0..COMMITS {
            let priority = Priority([0, 0, 1, 3][random.index(4)]);
            let mut locker = self.manager.locker(priority);
            loop {
                let done = self.transaction(&mut locker, &mut random);
                // The write that came before an error is not taken back: errors come before writes.
                self.release(&mut locker);
                match done {
                    Ok(write) => {
                        written += u64::from(write.is_some());
                        break;
                    }
                    Err(LockError::TimedOut) if !may_time_out => panic!("a lost wait"),
                    Err(_) => retries += 1,
                }
            }
        }
        (written, retries)
    }
}

fn run(name: &str, settings: LockSettings, detect: bool, wait: Wait) {
    for has_whole in [false, true] {
        run_once(&format!("{name}, whole {has_whole}"), settings, has_whole, detect, wait);
    }
}

fn run_once(name: &str, settings: LockSettings, has_whole: bool, detect: bool, wait: Wait) {
    let may_time_out = wait == Wait::AsSet;
    let arena = Arena::new(settings, has_whole, wait);
    let detector = detect.then(|| {
        arena.manager.start_detector(Duration::from_millis(1)).expect("a thread can be started")
    });
    let (written, retries) = thread::scope(|scope| {
        let arena = &arena;
        let spawn = |seed| scope.spawn(move || arena.worker(seed, may_time_out));
        let workers: Vec<_> = (0..THREADS).map(spawn).collect();
        workers.into_iter().fold((0, 0), |(written, retries), worker| {
            let (more_written, more_retries) = worker.join().expect("no thread panics");
            (written + more_written, retries + more_retries)
        })
    });
    drop(detector);
    let numbers: u64 = arena.numbers.iter().map(|number| number.load(Ordering::Relaxed)).sum();
    assert_eq!(numbers, written, "{name}");
    assert_eq!(arena.manager.dump(), [], "{name}");
    let seen = arena.manager.statistics();
    assert_eq!(
        (seen.held, seen.waiting, seen.asleep, seen.held_by_waiting),
        (0, 0, 0, 0),
        "{name}"
    );
    assert_eq!(seen.deadlocks + seen.timeouts + seen.preemptions, retries, "{name}");
    assert!(seen.waits > 0, "{name}: the threads never met");
}

#[test]
fn threads_find_the_table_in_order() {
    // Far more than any wait lasts: a thread that is never woken fails the test, not hangs it.
    let lost = Wait::For(Duration::from_secs(60));
    let plain = LockSettings { buckets: 4, ..LockSettings::default() };
    let checked = LockSettings { check_on_block: true, ..plain };
    let youngest = LockSettings { victim: Victim::Youngest, ..checked };
    let preempting = LockSettings { priorities: Priorities::PreemptOnWait, ..plain };
    let both = LockSettings { priorities: Priorities::PreemptOnWait, ..checked };
    let timed = LockSettings { timeout: Some(Duration::from_micros(300)), ..plain };
    run("detector", plain, true, lost);
    run("check on block", checked, false, lost);
    run("check on block, youngest, and detector", youngest, true, lost);
    run("preempt on wait, detector", preempting, true, lost);
    run("preempt on wait, check on block", both, false, lost);
    run("timeouts alone", timed, false, Wait::AsSet);
}

#[test]
fn a_locker_that_is_dropped_gives_back_what_it_held() {
    let manager = LockManager::new(ModeTable::multi_granularity(), LockSettings::default());
    let panicked = thread::spawn({
        let manager = Arc::clone(&manager);
        move || {
            let mut locker = manager.locker(Priority::default());
            locker.lock(&1, X, Wait::Forever).expect("nobody is there");
            // Not `panic!`, whose message would look like a failure in the test's output.
            std::panic::resume_unwind(Box::new("a bug in the transaction"));
        }
    });
    assert!(panicked.join().is_err());
    let mut next = manager.locker(Priority::default());
    assert_eq!(next.try_lock(&1, X), Ok(true));
}
