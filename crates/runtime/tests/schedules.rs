//! Errors of concurrent programs are found by drawn schedules, and the mended programs pass them.
//!
//! Each program exists twice. `WRONG` has one of the usual errors; without it the error is mended.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test's helpers fail the test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tidegate_runtime::sync::{Condvar, Mutex, RwLock};
use tidegate_runtime::thread::{self, point};
use tidegate_runtime::{Strategy, clock, search};

/// Schedules in which each error has to be found.
const WITHIN: u64 = 10_000;
/// Schedules that each mended program passes in the tests of every day.
const CLEAN: u64 = 300;

type Program = fn();

/// Runs bodies as tasks and waits for all of them.
fn run<const N: usize>(bodies: [Box<dyn FnOnce() + Send>; N]) {
    let tasks = bodies.map(|body| thread::spawn("task", body).unwrap());
    for task in tasks {
        task.join().unwrap();
    }
}

/// A counter is read and written, not added to.
fn lost_update<const WRONG: bool>() {
    let count = Arc::new(AtomicU32::new(0));
    let add = |count: Arc<AtomicU32>| {
        Box::new(move || {
            if WRONG {
                let before = count.load(Ordering::SeqCst);
                point();
                count.store(before + 1, Ordering::SeqCst);
            } else {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }) as Box<dyn FnOnce() + Send>
    };
    run([add(Arc::clone(&count)), add(Arc::clone(&count))]);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// Two locks are taken in either order.
fn lock_order<const WRONG: bool>() {
    let locks = Arc::new([Mutex::new(0), Mutex::new(0)]);
    let take = |locks: Arc<[Mutex<u32>; 2]>, first: usize| {
        Box::new(move || {
            let mut one = locks[first].lock();
            let mut other = locks[1 - first].lock();
            *one += 1;
            *other += 1;
        }) as Box<dyn FnOnce() + Send>
    };
    run([take(Arc::clone(&locks), 0), take(locks, usize::from(WRONG))]);
}

/// A list is found not empty under one lock and taken from under another.
fn check_then_act<const WRONG: bool>() {
    let list = Arc::new(Mutex::new(vec![7]));
    let take = |list: Arc<Mutex<Vec<u32>>>| {
        Box::new(move || {
            if WRONG {
                let is_there = !list.lock().is_empty();
                if is_there {
                    list.lock().pop().expect("it was there");
                }
            } else {
                list.lock().pop();
            }
        }) as Box<dyn FnOnce() + Send>
    };
    run([take(Arc::clone(&list)), take(list)]);
}

/// A waiter does not look again at the condition after it was woken.
fn wait_without_loop<const WRONG: bool>() {
    let shared = Arc::new((Mutex::new(0_u32), Condvar::new()));
    let consume = |shared: Arc<(Mutex<u32>, Condvar)>| {
        Box::new(move || {
            let (count, changed) = &*shared;
            let mut count = count.lock();
            if WRONG {
                if *count == 0 {
                    changed.wait(&mut count);
                }
            } else {
                while *count == 0 {
                    changed.wait(&mut count);
                }
            }
            *count = count.checked_sub(1).expect("something is there");
        }) as Box<dyn FnOnce() + Send>
    };
    let theirs = Arc::clone(&shared);
    let produce = Box::new(move || {
        for _ in 0..2 {
            *theirs.0.lock() += 1;
            theirs.1.notify_one();
        }
    });
    run([consume(Arc::clone(&shared)), consume(shared), produce]);
}

/// The condition is looked at outside the lock that its notifier holds.
fn lost_wake_up<const WRONG: bool>() {
    let shared = Arc::new((Mutex::new(()), Condvar::new(), AtomicBool::new(false)));
    let theirs = Arc::clone(&shared);
    let wait = Box::new(move || {
        let (lock, changed, is_done) = &*theirs;
        if WRONG {
            if !is_done.load(Ordering::SeqCst) {
                changed.wait(&mut lock.lock());
            }
        } else {
            let mut guard = lock.lock();
            while !is_done.load(Ordering::SeqCst) {
                changed.wait(&mut guard);
            }
        }
    });
    let notify = Box::new(move || {
        let guard = shared.0.lock();
        shared.2.store(true, Ordering::SeqCst);
        drop(guard);
        shared.1.notify_all();
    });
    run([wait, notify]);
}

/// A notification for one of two kinds of waiters reaches the other kind.
fn wrong_waiter<const WRONG: bool>() {
    let shared = Arc::new((Mutex::new([false; 2]), Condvar::new()));
    let wait = |shared: Arc<(Mutex<[bool; 2]>, Condvar)>, kind: usize| {
        Box::new(move || {
            let mut flags = shared.0.lock();
            while !flags[kind] {
                shared.1.wait(&mut flags);
            }
        }) as Box<dyn FnOnce() + Send>
    };
    let (first, second) = (wait(Arc::clone(&shared), 0), wait(Arc::clone(&shared), 1));
    let notify = Box::new(move || {
        for kind in [0, 1] {
            shared.0.lock()[kind] = true;
            if WRONG {
                shared.1.notify_one();
            } else {
                shared.1.notify_all();
            }
        }
    });
    run([first, second, notify]);
}

/// A waiter whose time is over lets go of the lock between looking whether it was granted and
/// leaving.
fn granted_and_timed_out<const WRONG: bool>() {
    #[derive(Default)]
    struct State {
        is_granted: bool,
        has_left: bool,
        holders: u32,
    }
    let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
    let theirs = Arc::clone(&shared);
    let wait = Box::new(move || {
        let deadline = clock::now() + Duration::from_micros(3);
        let mut state = theirs.0.lock();
        while !state.is_granted && clock::now() < deadline {
            theirs.1.wait_until(&mut state, deadline);
        }
        let is_granted = state.is_granted;
        if WRONG {
            drop(state);
            state = theirs.0.lock();
        }
        if is_granted {
            state.holders += 1;
        } else {
            state.has_left = true;
        }
    });
    let theirs = Arc::clone(&shared);
    let grant = Box::new(move || {
        thread::sleep(Duration::from_micros(3));
        let mut state = theirs.0.lock();
        if state.has_left {
            state.holders += 1;
        } else {
            state.is_granted = true;
            theirs.1.notify_one();
        }
    });
    run([wait, grant]);
    assert_eq!(shared.0.lock().holders, 1, "the waiter or the giver holds it");
}

/// A reader lets go of its lock to become a writer, and acts on what it has read.
fn upgrade<const WRONG: bool>() {
    let value = Arc::new(RwLock::new(None));
    let count = Arc::new(AtomicU32::new(0));
    let make = |value: Arc<RwLock<Option<u32>>>, count: Arc<AtomicU32>| {
        Box::new(move || {
            let is_missing = value.read().is_none();
            if is_missing {
                let mut value = value.write();
                if WRONG || value.is_none() {
                    *value = Some(count.fetch_add(1, Ordering::SeqCst));
                }
            }
        }) as Box<dyn FnOnce() + Send>
    };
    let one = make(Arc::clone(&value), Arc::clone(&count));
    run([one, make(value, Arc::clone(&count))]);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Replaces the head of the stack below, if it is still `from`.
fn swap(stack: &(AtomicU32, [AtomicU32; 4]), from: u32, to: u32, wrong: bool) -> bool {
    let version = if wrong { 0 } else { (from >> 8) + 1 };
    let new = version << 8 | to;
    stack.0.compare_exchange(from, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// A stack without locks whose pop does not see that a node was taken out and put back.
fn put_back<const WRONG: bool>() {
    // The head is a version and a node's number; `next` gives what is below each node.
    let stack = Arc::new((AtomicU32::new(2), [const { AtomicU32::new(0) }; 4]));
    stack.1[2].store(1, Ordering::SeqCst);
    let pop = |stack: &(AtomicU32, [AtomicU32; 4])| loop {
        let head = stack.0.load(Ordering::SeqCst);
        let node = head & 0xff;
        if node == 0 {
            return 0;
        }
        point();
        let next = stack.1[node as usize].load(Ordering::SeqCst);
        point();
        if swap(stack, head, next, WRONG) {
            return node;
        }
    };
    let push = |stack: &(AtomicU32, [AtomicU32; 4]), node: u32| loop {
        let head = stack.0.load(Ordering::SeqCst);
        stack.1[node as usize].store(head & 0xff, Ordering::SeqCst);
        point();
        if swap(stack, head, node, WRONG) {
            return;
        }
    };
    let taken = Arc::new(Mutex::new(Vec::new()));
    let (ours, list) = (Arc::clone(&stack), Arc::clone(&taken));
    let one = Box::new(move || {
        let node = pop(&ours);
        list.lock().push(node);
    });
    let (ours, list) = (Arc::clone(&stack), Arc::clone(&taken));
    let other = Box::new(move || {
        let (first, second) = (pop(&ours), pop(&ours));
        if first != 0 {
            push(&ours, first);
        }
        list.lock().push(second);
    });
    run([one, other]);
    let mut all = taken.lock().clone();
    loop {
        match pop(&stack) {
            0 => break,
            node => all.push(node),
        }
        assert!(all.len() < 10, "the stack has a circle");
    }
    all.retain(|node| *node != 0);
    all.sort_unstable();
    assert_eq!(all, [1, 2], "each node is once somewhere");
}

/// A value is said to be there before it is.
fn publication<const WRONG: bool>() {
    let shared = Arc::new((AtomicBool::new(false), AtomicU32::new(0)));
    let theirs = Arc::clone(&shared);
    let publish = Box::new(move || {
        if WRONG {
            theirs.0.store(true, Ordering::SeqCst);
            point();
            theirs.1.store(7, Ordering::SeqCst);
        } else {
            theirs.1.store(7, Ordering::SeqCst);
            point();
            theirs.0.store(true, Ordering::SeqCst);
        }
    });
    let read = Box::new(move || {
        if shared.0.load(Ordering::SeqCst) {
            point();
            assert_eq!(shared.1.load(Ordering::SeqCst), 7);
        }
    });
    run([publish, read]);
}

macro_rules! programs {
    ($($name:ident),*) => {
        const PROGRAMS: &[(&str, Program, Program)] =
            &[$((stringify!($name), $name::<true> as Program, $name::<false> as Program)),*];
    };
}

programs!(
    lost_update,
    lock_order,
    check_then_act,
    wait_without_loop,
    lost_wake_up,
    wrong_waiter,
    granted_and_timed_out,
    upgrade,
    put_back,
    publication
);

fn random(seed: u64) -> Strategy {
    Strategy::Random { seed }
}

fn priorities(seed: u64) -> Strategy {
    Strategy::Priorities { seed, changes: 2, steps: 40 }
}

#[test]
fn every_error_is_found_and_found_again() {
    for (name, wrong, _) in PROGRAMS {
        for strategy in [random, priorities] {
            let found = search((0..WITHIN).map(strategy), wrong).expect_err(name);
            println!("{name}: {found}");
            let again = search([found.strategy], wrong).expect_err(name);
            assert_eq!(found, again, "{name}");
        }
    }
}

#[test]
fn mended_programs_pass() {
    for (name, _, mended) in PROGRAMS {
        for strategy in [random, priorities] {
            search((0..CLEAN).map(strategy), mended)
                .unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }
}

#[test]
#[ignore = "soak: a hundred thousand schedules of each program"]
fn mended_programs_pass_a_hundred_thousand_schedules() {
    for (name, _, mended) in PROGRAMS {
        search((0..50_000).flat_map(|seed| [random(seed), priorities(seed)]), mended)
            .unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}
