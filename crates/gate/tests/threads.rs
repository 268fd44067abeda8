//! The gate under real threads.
//!
//! Why not loom: the gate has one mutex and no atomics, and every call is one critical section
//! under it, followed at most by wakes. So whatever the threads do equals some sequence of calls,
//! and the model test tries those. Two things are left for threads to get wrong: that a wake, which
//! comes after the lock, is lost or finds a gate that moved on; and that a call is in truth two
//! critical sections. The first test below interleaves calls where such a gap would be, and the
//! second throws threads at all of it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_control::{Mpl, SplitMix64};
use tidegate_gate::{Admission, Claim, Class, Gate, Limits, Outcome, Permit, Request};
use tidegate_gate::{Snapshot, Ticket, Waker};

const SEED: u64 = 20_060_403;
const THREADS: usize = 8;
const TRANSACTIONS: u64 = 20_000;
const LIMIT_MAX: u32 = 5;
/// Permits out at once, with those that are lent.
const OUT_MAX: u32 = 6;
/// Fewer than the threads, so that some are refused while the limit is low.
const WAITING_MAX: usize = 5;
/// Far longer than any wait here; only a lost wake takes it.
const PATIENCE: Duration = Duration::from_secs(60);

fn gate(limit: u32, mpl_max: u32, waiting_max: usize) -> Gate {
    let (mpl, mpl_max) = (Mpl::at_least_one(limit), Mpl::at_least_one(mpl_max));
    Gate::new(Limits { mpl, mpl_max, waiting_max }, Instant::now())
}

/// A waker runs where a change is half announced: some of the granted are told, some not yet.
/// Whoever asks at that moment must find the change whole.
#[test]
fn nobody_overtakes_the_queue_while_a_higher_limit_is_announced() {
    let now = Instant::now();
    let gate = gate(1, 1, 8);
    let latecomer: Arc<OnceLock<Admission>> = Arc::default();
    let nobody: Waker = Arc::new(|_| {});
    let waker: Waker = {
        let (gate, latecomer, nobody) = (gate.clone(), Arc::clone(&latecomer), nobody.clone());
        Arc::new(move |_| {
            latecomer.get_or_init(|| gate.request(&request(Class::High, None, 9, &nobody), now));
        })
    };
    let ask = |token| gate.request(&request(Class::Normal, None, token, &waker), now);
    let _running = ask(0);
    let _waiting = [ask(1), ask(2)];
    gate.set_limit(Mpl::at_least_one(3), now);
    assert!(matches!(latecomer.get(), Some(Admission::Queued(_))));
    assert_eq!((gate.snapshot().outstanding, gate.snapshot().waiting), (3, 1));
}

/// A waker may own what uses the gate when it is dropped, here a permit.
#[test]
fn a_ticket_that_owns_its_waker_is_dropped_without_a_deadlock() {
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let (now, gate) = (Instant::now(), gate(1, 1, 1));
        let nobody: Waker = Arc::new(|_| {});
        let Admission::Granted(permit) = gate.request(&request(Class::High, None, 0, &nobody), now)
        else {
            panic!("the gate is empty")
        };
        let owner: Waker = Arc::new(move |_| assert!(format!("{permit:?}").contains("Permit")));
        let ticket = gate.request(&request(Class::High, None, 1, &owner), now);
        drop(owner);
        drop(ticket);
        done.send(gate.snapshot()).expect("the test waits");
    });
    let seen = await_message(&finished, "the gate waits for itself");
    assert_eq!((seen.outstanding, seen.waiting, seen.withdrawn), (0, 0, 1));
}

fn request(class: Class, deadline: Option<Instant>, token: u64, waker: &Waker) -> Request<'_> {
    Request { wait_until: deadline, ..Request::new(class, token, waker) }
}

fn await_message<T>(receiver: &Receiver<T>, complaint: &str) -> T {
    match receiver.recv_timeout(2 * PATIENCE) {
        Ok(message) => message,
        Err(RecvTimeoutError::Timeout) => panic!("{complaint}"),
        Err(RecvTimeoutError::Disconnected) => panic!("the thread panicked, see above"),
    }
}

/// Where a thread sleeps until its ticket can be claimed.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().expect("no ringer panics") = true;
        self.changed.notify_one();
    }

    /// Sleeps until the bell has rung since the last call; tells whether it did in time.
    fn sleep(&self) -> bool {
        let rung = self.rung.lock().expect("no ringer panics");
        let (mut rung, _) = self
            .changed
            .wait_timeout_while(rung, PATIENCE, |rung| !*rung)
            .expect("no ringer panics");
        std::mem::take(&mut rung)
    }
}

/// What the threads share beside the gate.
struct Floor {
    gate: Gate,
    bells: Vec<Bell>,
    running: AtomicU32,
    busy: AtomicBool,
    /// Transactions that began under the permit of the one before them.
    continued: AtomicU64,
}

struct Worker {
    floor: Arc<Floor>,
    waker: Waker,
    index: usize,
    random: SplitMix64,
}

impl Worker {
    fn one_in(&mut self, n: u64) -> bool {
        self.random.next_bits().is_multiple_of(n)
    }

    fn transaction(&mut self) {
        let class = Class::ALL[usize::from(self.one_in(2))];
        let now = Instant::now();
        // A deadline of now: expired by whichever call comes next, if not granted before.
        let deadline = self.one_in(8).then_some(now);
        let request = request(class, deadline, self.index as u64, &self.waker);
        match self.floor.gate.request(&request, now) {
            Admission::Granted(permit) => self.run(permit),
            Admission::Queued(ticket) if self.one_in(16) => drop(ticket),
            Admission::Queued(ticket) => {
                if let Some(permit) = self.wait(ticket) {
                    self.run(permit);
                }
            }
            Admission::Refused(full) => {
                assert_eq!(full.waiting as usize, WAITING_MAX);
                thread::yield_now();
            }
        }
    }

    /// The blocking wait that a thread builds from a ticket and a waker.
    fn wait(&self, mut ticket: Ticket) -> Option<Permit> {
        loop {
            // A ring may be for an earlier ticket of this thread, dropped as it was granted.
            let rung = self.floor.bells[self.index].sleep();
            match ticket.claim() {
                Claim::Granted(permit) => {
                    assert!(rung, "thread {}: granted, never woken, seed {SEED}", self.index);
                    return Some(permit);
                }
                Claim::Expired | Claim::Late(_) => {
                    assert!(rung, "thread {}: expired, never woken, seed {SEED}", self.index);
                    return None;
                }
                Claim::Waiting(kept) => ticket = kept,
            }
            let seen = || self.floor.gate.snapshot();
            assert!(rung, "thread {} waits for ever, seed {SEED}: {:?}", self.index, seen());
        }
    }

    fn run(&mut self, mut permit: Permit) {
        let running = 1 + self.floor.running.fetch_add(1, Ordering::SeqCst);
        assert!(running <= OUT_MAX, "{running} run at once, seed {SEED}");
        if self.one_in(8) {
            thread::yield_now();
        }
        if self.one_in(4) {
            permit.lend(Instant::now());
            thread::yield_now();
            // Some end while they are lent.
            if self.one_in(2) {
                permit.resume(Instant::now());
            }
        }
        if self.one_in(16) {
            permit.next_transaction(Outcome::Completed, Instant::now());
            self.floor.continued.fetch_add(1, Ordering::Relaxed);
        }
        self.floor.running.fetch_sub(1, Ordering::SeqCst);
        if self.one_in(16) {
            drop(permit);
        } else {
            permit.finish(Outcome::Completed, Instant::now());
        }
    }
}

/// Moves the limit and lets deadlines pass while others work; the ends it saw in its observations.
fn keep_changing(floor: &Floor) -> u64 {
    let mut random = SplitMix64::new(SEED);
    let mut ends = 0;
    while floor.busy.load(Ordering::Relaxed) {
        let now = Instant::now();
        let level = 1 + u32::try_from(random.next_bits() % u64::from(LIMIT_MAX)).expect("is small");
        floor.gate.set_limit(Mpl::at_least_one(level), now);
        floor.gate.expire(now);
        if random.next_bits().is_multiple_of(64) {
            let observation = floor.gate.observe(now);
            ends += observation.completions + observation.failures;
        }
        thread::yield_now();
    }
    let observation = floor.gate.observe(Instant::now());
    ends + observation.completions + observation.failures
}

fn start_workers(floor: &Arc<Floor>) -> Receiver<usize> {
    let (done, finished) = mpsc::channel();
    let heard = Arc::clone(floor);
    let ring = move |token| heard.bells[usize::try_from(token).expect("a position")].ring();
    let waker: Waker = Arc::new(ring);
    for index in 0..THREADS {
        let mut worker = Worker {
            floor: Arc::clone(floor),
            waker: Arc::clone(&waker),
            index,
            random: SplitMix64::new(SEED + 1 + index as u64),
        };
        let done = done.clone();
        thread::spawn(move || {
            (0..TRANSACTIONS).for_each(|_| worker.transaction());
            done.send(index).expect("the test waits");
        });
    }
    finished
}

#[test]
fn nothing_is_lost_between_threads() {
    println!("seed {SEED}");
    let floor = Arc::new(Floor {
        gate: gate(LIMIT_MAX, OUT_MAX, WAITING_MAX),
        bells: (0..THREADS).map(|_| Bell::default()).collect(),
        running: AtomicU32::new(0),
        busy: AtomicBool::new(true),
        continued: AtomicU64::new(0),
    });
    let finished = start_workers(&floor);
    let shared = Arc::clone(&floor);
    let changer = thread::spawn(move || keep_changing(&shared));
    for _ in 0..THREADS {
        await_message(&finished, "a thread neither works nor waits: is the gate's lock stuck?");
    }
    floor.busy.store(false, Ordering::Relaxed);
    let observed = changer.join().expect("the changer does not panic");

    let seen = floor.gate.snapshot();
    println!("{}", summary(&seen));
    assert_eq!((seen.outstanding, seen.waiting), (0, 0), "left behind");
    assert_eq!((seen.idle, seen.discounted), (0, 0), "left behind");
    assert!(seen.lendings > 0, "nothing was lent: the test has lost its edge");
    let ended: u64 = seen.classes.iter().map(|class| class.completions + class.failures).sum();
    let granted: u64 = seen.classes.iter().map(|class| class.in_queue.count()).sum();
    assert_eq!(granted, ended, "every grant ends once");
    assert_eq!(observed, ended, "every end is in one interval");
    let asked = THREADS as u64 * TRANSACTIONS + floor.continued.load(Ordering::Relaxed);
    let turned_away = seen.refused + seen.expired + seen.withdrawn;
    assert_eq!(asked, ended + turned_away, "every request has one end");
    for (what, count) in
        [("refused", seen.refused), ("expired", seen.expired), ("withdrawn", seen.withdrawn)]
    {
        assert!(count > 0, "no request was {what}: the test has lost its edge");
    }
}

fn summary(seen: &Snapshot) -> String {
    let classes = seen.classes.iter().zip(Class::ALL);
    let classes = classes.map(|(totals, class)| {
        let (name, well, badly) = (class.name(), totals.completions, totals.failures);
        format!("{name}: completed {well}, failed {badly}")
    });
    format!(
        "refused {}, expired {}, withdrawn {}; {}",
        seen.refused,
        seen.expired,
        seen.withdrawn,
        classes.collect::<Vec<_>>().join("; ")
    )
}
