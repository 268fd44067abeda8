//! What a transaction pays at the gate, in nanoseconds.
//!
//! Plain loops instead of a framework: each figure is the lowest and the median of many short
//! batches, because on a shared machine the mean measures the neighbours. A name, or a part of one,
//! on the command line runs only those.
//!
//! ```text
//! cargo bench -p tidegate-gate --bench acquire_release
//! ```

#![expect(clippy::print_stdout, reason = "printing figures is what a benchmark is for")]

use std::hint::black_box;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_control::Mpl;
use tidegate_gate::{Admission, Claim, Class, Gate, Limits, Outcome, Permit, Request, Waker};

const BATCHES: usize = 500;
const BATCH: u32 = 2_000;

/// A name, and what prints its figures under that name.
type Benchmark = (&'static str, fn(&str));

fn main() {
    let benchmarks: [Benchmark; 9] = [
        ("clock, read twice", clock),
        ("floor: 2 clock reads, 2 mutex locks", floor),
        ("acquire + release", uncontended),
        ("acquire + release, time given", uncontended_time_given),
        ("handover: queue, finish, wake, claim", handover),
        ("floor, 2 threads", floor_two_threads),
        ("acquire + release, 2 threads", contended),
        ("observe", observe),
        ("snapshot", snapshot),
    ];
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!("{:<38} {:>9} {:>9}", "ns", "lowest", "median");
    for (name, run) in benchmarks {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part)) {
            run(name);
        }
    }
}

/// Times batches of `operation` and prints what one operation took.
fn measure(name: &str, mut operation: impl FnMut()) {
    let mut nanoseconds: Vec<f64> = (0..BATCHES)
        .map(|_| {
            let start = Instant::now();
            (0..BATCH).for_each(|_| operation());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
        })
        .collect();
    print(name, &mut nanoseconds);
}

fn print(name: &str, nanoseconds: &mut [f64]) {
    nanoseconds.sort_by(f64::total_cmp);
    let (lowest, median) = (nanoseconds[0], nanoseconds[nanoseconds.len() / 2]);
    println!("{name:<38} {lowest:>9.1} {median:>9.1}");
}

fn gate(limit: u32) -> Gate {
    let mpl = Mpl::at_least_one(limit);
    let waiting_max = 16;
    Gate::new(Limits { mpl, mpl_max: Mpl::at_least_one(1_000), waiting_max }, Instant::now())
}

fn nobody() -> Waker {
    Arc::new(|token| {
        black_box(token);
    })
}

fn ask(gate: &Gate, waker: &Waker, now: Instant) -> Admission {
    let request = Request::new(Class::Normal, 1, waker);
    gate.request(black_box(&request), now)
}

fn granted(gate: &Gate, waker: &Waker, now: Instant) -> Permit {
    match ask(gate, waker, now) {
        Admission::Granted(permit) => permit,
        other => panic!("the gate is not busy: {other:?}"),
    }
}

fn clock(name: &str) {
    measure(name, || {
        black_box(Instant::now());
        black_box(Instant::now());
    });
}

fn floor(name: &str) {
    let counter = Mutex::new(0_u64);
    measure(name, || {
        visit(&counter);
        visit(&counter);
    });
}

/// The least a gate could do at a call: read the clock, take a lock, change a number.
fn visit(counter: &Mutex<u64>) {
    black_box(Instant::now());
    *counter.lock().expect("nobody panics") += 1;
}

fn uncontended(name: &str) {
    let (gate, waker) = (gate(8), nobody());
    measure(name, || {
        let permit = black_box(granted(&gate, &waker, Instant::now()));
        permit.finish(Outcome::Completed, Instant::now());
    });
}

fn uncontended_time_given(name: &str) {
    let (gate, waker) = (gate(8), nobody());
    let start = Instant::now();
    let end = start + Duration::from_micros(900);
    measure(name, || {
        let permit = black_box(granted(&gate, &waker, start));
        permit.finish(Outcome::Completed, end);
    });
}

/// One permit for two: each transaction queues, is handed the permit of the one before, claims it.
fn handover(name: &str) {
    let (gate, waker) = (gate(1), nobody());
    let mut running = Some(granted(&gate, &waker, Instant::now()));
    measure(name, || {
        let Admission::Queued(ticket) = ask(&gate, &waker, Instant::now()) else {
            panic!("the permit is out")
        };
        if let Some(permit) = running.take() {
            permit.finish(Outcome::Completed, Instant::now());
        }
        let Claim::Granted(permit) = ticket.claim() else { panic!("the permit was handed over") };
        running = Some(permit);
    });
}

/// Times batches of `operation` on two threads at once: what it takes one of them.
fn measure_two_threads(name: &str, operation: impl Fn() + Sync) {
    let barrier = Barrier::new(2);
    let batch = || {
        barrier.wait();
        let start = Instant::now();
        (0..BATCH).for_each(|_| operation());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
    };
    let batches = || (0..BATCHES).map(|_| batch()).collect::<Vec<f64>>();
    let mut nanoseconds = thread::scope(|scope| {
        let other = scope.spawn(batches);
        let mut all = batches();
        all.extend(other.join().expect("the other thread does not panic"));
        all
    });
    print(name, &mut nanoseconds);
}

fn floor_two_threads(name: &str) {
    let counter = Mutex::new(0_u64);
    measure_two_threads(name, || {
        visit(&counter);
        visit(&counter);
    });
}

/// Permits are enough, so that only the lock is contended.
fn contended(name: &str) {
    let (gate, waker) = (gate(8), nobody());
    measure_two_threads(name, || {
        let permit = black_box(granted(&gate, &waker, Instant::now()));
        permit.finish(Outcome::Completed, Instant::now());
    });
}

/// A second of transactions of many lengths.
fn fill(gate: &Gate, waker: &Waker) {
    let now = Instant::now();
    for micros in 1..2_000 {
        let permit = granted(gate, waker, now);
        permit.finish(Outcome::Completed, now + Duration::from_micros(micros));
    }
}

/// Prints what `look` takes at a gate with an interval's transactions and others before them.
fn measure_look(name: &str, look: impl Fn(&Gate)) {
    let (gate, waker) = (gate(8), nobody());
    let mut nanoseconds = Vec::with_capacity(BATCHES);
    for _ in 0..BATCHES {
        let _ = gate.observe(Instant::now());
        fill(&gate, &waker);
        let start = Instant::now();
        look(&gate);
        nanoseconds.push(start.elapsed().as_secs_f64() * 1e9);
    }
    // The first had nothing before its interval.
    print(name, &mut nanoseconds[1..]);
}

fn observe(name: &str) {
    measure_look(name, |gate| {
        black_box(gate.observe(Instant::now()));
    });
}

fn snapshot(name: &str) {
    measure_look(name, |gate| {
        black_box(gate.snapshot());
    });
}
