//! The gate used by tasks of a machine that draws its schedules, while the limit changes, tickets
//! are dropped, deadlines pass, and permits are lent.
//!
//! In every schedule no more permits count than the highest limit allows, who waits is woken,
//! and no permit is lost: at the end the gate is empty and lets in as many as its limit says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_control::{Mpl, SplitMix64};
use tidegate_gate::{Admission, Claim, Class, Gate, Limits, Outcome, Permit, Request};
use tidegate_gate::{Ticket, Waker};
use tidegate_runtime::sync::{Condvar, Mutex};
use tidegate_runtime::{clock, entropy, explore, run_all, thread};

const LIMIT_MAX: u32 = 2;
const TASKS: usize = 3;

/// Where a task sleeps until its ticket can be claimed.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.is_rung.lock() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_rung = self.is_rung.lock();
        while !*is_rung {
            self.changed.wait(&mut is_rung);
        }
        *is_rung = false;
    }
}

struct Shared {
    gate: Gate,
    bells: Vec<Bell>,
    /// Permits that count, as their holders see it.
    counting: AtomicU32,
    ended: AtomicU32,
}

struct Client {
    shared: Arc<Shared>,
    waker: Waker,
    number: usize,
    random: SplitMix64,
}

impl Client {
    fn is_one_in(&mut self, count: u32) -> bool {
        self.random.next_below(count) == 0
    }

    fn transaction(&mut self) {
        let now = clock::now();
        let class = Class::ALL[usize::from(self.is_one_in(2))];
        let deadline = self.is_one_in(4).then(|| now + Duration::from_micros(2));
        let token = self.number as u64;
        let request = Request { wait_until: deadline, ..Request::new(class, token, &self.waker) };
        match self.shared.gate.request(&request, now) {
            Admission::Granted(permit) => self.work(permit),
            Admission::Queued(ticket) => self.queue(ticket),
            Admission::Refused(full) => panic!("there is room for all: {full:?}"),
        }
    }

    fn queue(&mut self, mut ticket: Ticket) {
        if self.is_one_in(3) {
            thread::point();
            return drop(ticket);
        }
        loop {
            // What rings may be meant for an earlier ticket, which was dropped.
            self.shared.bells[self.number].wait();
            match ticket.claim() {
                Claim::Granted(permit) => return self.work(permit),
                Claim::Expired | Claim::Late(_) => return,
                Claim::Waiting(kept) => ticket = kept,
            }
        }
    }

    fn work(&mut self, mut permit: Permit) {
        let counting = self.shared.counting.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(counting <= LIMIT_MAX + 1, "{counting} count, and one may have been lent");
        thread::point();
        self.shared.counting.fetch_sub(1, Ordering::SeqCst);
        if self.is_one_in(3) {
            permit.lend(clock::now());
            thread::point();
            if self.is_one_in(2) {
                permit.resume(clock::now());
            }
        }
        self.shared.ended.fetch_add(1, Ordering::SeqCst);
        if self.is_one_in(2) {
            drop(permit);
        } else {
            permit.finish(Outcome::Completed, clock::now());
        }
    }
}

fn gate(limit: u32) -> Gate {
    let (mpl, mpl_max) = (Mpl::at_least_one(limit), Mpl::at_least_one(LIMIT_MAX + 1));
    Gate::new(Limits { mpl, mpl_max, waiting_max: 2 * TASKS }, clock::now())
}

/// Lets deadlines pass and changes the limit, and ends with the highest.
fn keep_changing(gate: &Gate) {
    for limit in [1, LIMIT_MAX, 1, LIMIT_MAX] {
        gate.expire(clock::now());
        gate.set_limit(Mpl::at_least_one(limit), clock::now());
        let _ = gate.discount(clock::now());
    }
}

fn permits() {
    let bells = (0..TASKS).map(|_| Bell::default()).collect();
    let (counting, ended) = (AtomicU32::new(0), AtomicU32::new(0));
    let shared = Arc::new(Shared { gate: gate(1), bells, counting, ended });
    let heard = Arc::downgrade(&shared);
    let waker: Waker = Arc::new(move |token| {
        if let Some(shared) = heard.upgrade() {
            shared.bells[usize::try_from(token).expect("a number of a task")].ring();
        }
    });
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for number in 0..TASKS {
        let (shared, waker) = (Arc::clone(&shared), Arc::clone(&waker));
        let mut client = Client { shared, waker, number, random: SplitMix64::new(entropy()) };
        bodies.push(Box::new(move || (0..2).for_each(|_| client.transaction())));
    }
    let changed = Arc::clone(&shared);
    bodies.push(Box::new(move || keep_changing(&changed.gate)));
    run_all(bodies);
    check_empty(&shared);
}

fn check_empty(shared: &Shared) {
    let seen = shared.gate.snapshot();
    assert_eq!((seen.outstanding, seen.idle, seen.waiting), (0, 0, 0), "left behind");
    let ended: u64 = seen.classes.iter().map(|class| class.completions + class.failures).sum();
    // A permit that was granted to a ticket in the moment in which it was dropped ends as failed.
    assert!(ended >= u64::from(shared.ended.load(Ordering::SeqCst)), "an end was not counted");
    let nobody: Waker = Arc::new(|_| {});
    let request = Request::new(Class::Normal, 0, &nobody);
    let permits: Vec<_> =
        (0..=LIMIT_MAX).map(|_| shared.gate.request(&request, clock::now())).collect();
    let granted = permits.iter().filter(|asked| matches!(asked, Admission::Granted(_))).count();
    assert_eq!(granted, LIMIT_MAX as usize, "a permit was lost or made");
}

#[test]
fn no_permit_is_lost_in_any_drawn_schedule() {
    println!("{}", explore("gate, permits", 500, permits));
}

#[test]
#[ignore = "soak: 50,000 schedules"]
fn no_permit_is_lost_in_many_drawn_schedules() {
    println!("{}", explore("gate, permits", 50_000, permits));
}
