//! What a lock costs, in nanoseconds.
//!
//! Plain loops instead of a framework: each figure is the lowest and the median of many short
//! batches, because on a shared machine the mean measures the neighbours. Figures for two threads
//! are the time one thread takes for one operation while the other does the same, and `scale` is
//! how many times one thread's throughput the two of them have: 2 is perfect. A name, or a part of
//! one, on the command line runs only those.
//!
//! ```text
//! cargo bench -p tidegate-engine --bench locks
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]
#![expect(clippy::print_stdout, reason = "printing figures is what a benchmark is for")]

use std::hint::{self, black_box};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use tidegate_engine::lock::multi_granularity::{IS, IX, S, X};
use tidegate_engine::lock::{
    Hierarchy, LockManager, LockSettings, Locker, Mode, ModeTable, Priority, Wait,
};

const BATCHES: u32 = 400;
/// Short beside the time slice of a scheduler, so that threads that begin together stay together.
const BATCH: u32 = 5_000;

/// What the engine locks, or about that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Resource {
    Store,
    Tree(u32),
    Key(u32, u64),
}

type Table = Arc<LockManager<Resource>>;

/// Makes what a thread, given by its number, repeats.
type Setup = fn(&Table, u64) -> Box<dyn FnMut()>;

fn main() {
    let table = table();
    let benchmarks: [(&str, Setup); 12] = [
        ("floor: two mutexes", floor),
        ("floor: of 4,096 that both visit", visits),
        ("control: 4,096 keys, own tables", own_table),
        ("lock + unlock, one key", |table, thread| {
            one_resource(table, Resource::Key(1, thread), X)
        }),
        ("lock + unlock, 256 keys", |table, thread| keys(table, thread, 256)),
        ("lock + unlock, 4,096 keys", |table, thread| keys(table, thread, 4_096)),
        ("lock + unlock, new keys", |table, thread| keys(table, thread, 1 << 31)),
        ("lock again what is held", lock_again),
        ("lock + release_all, per key of 16", release_all),
        ("new locker, store, tree, 4 keys", new_locker),
        ("store, tree, 4 keys", same_locker),
        ("hot: IS on one resource", |table, _| one_resource(table, Resource::Tree(7), IS)),
    ];
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    println!("{:<36} {:>8} {:>8} | {:>8} {:>8}", "ns", "lowest", "median", "2 threads", "scale");
    for (name, setup) in benchmarks {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part)) {
            compare(name, &|thread| setup(&table, thread));
        }
    }
}

fn table() -> Table {
    let is_whole = |resource: &Resource| matches!(resource, Resource::Store | Resource::Tree(_));
    let hierarchy = Hierarchy { is_whole, escalation: None };
    LockManager::with_hierarchy(ModeTable::multi_granularity(), LockSettings::default(), hierarchy)
}

/// The least a lock and an unlock could cost behind latches.
fn floor(_: &Table, _: u64) -> Box<dyn FnMut()> {
    let mutex = Mutex::new(0_u64);
    Box::new(move || {
        *black_box(&mutex).lock() += 1;
        *black_box(&mutex).lock() += 1;
    })
}

/// A cache line pair with a mutex.
#[derive(Default)]
#[repr(align(128))]
struct Padded(Mutex<u64>);

/// As [`floor`], but each time with another mutex of as many as the lock table has buckets. Both
/// threads come to all of them, as to the buckets of keys of their own: what this does not scale
/// is the price of moving one pair of cache lines from processor to processor.
fn visits(_: &Table, thread: u64) -> Box<dyn FnMut()> {
    static MUTEXES: LazyLock<Vec<Padded>> =
        LazyLock::new(|| (0..4_096).map(|_| Padded::default()).collect());
    let mutexes = LazyLock::force(&MUTEXES);
    let mut number = 0;
    Box::new(move || {
        number = (number + 1) % 4_096;
        let mixed = (thread << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mutex = &mutexes[usize::try_from(mixed >> 52).unwrap_or(0)].0;
        *black_box(mutex).lock() += 1;
        *black_box(mutex).lock() += 1;
    })
}

/// Each thread has a lock table of its own: what this does not scale is not the table's sharing.
fn own_table(_: &Table, thread: u64) -> Box<dyn FnMut()> {
    let table = table();
    keys(&table, thread, 4_096)
}

fn one_resource(table: &Table, resource: Resource, mode: Mode) -> Box<dyn FnMut()> {
    let mut locker = table.locker(Priority::default());
    Box::new(move || {
        lock(&mut locker, resource, mode);
        locker.unlock(black_box(&resource));
    })
}

/// Keys of the thread's own, one after the other.
fn keys(table: &Table, thread: u64, count: u64) -> Box<dyn FnMut()> {
    let mut locker = table.locker(Priority::default());
    let mut number = 0;
    Box::new(move || {
        number = (number + 1) % count;
        let key = Resource::Key(1, thread << 32 | number);
        lock(&mut locker, key, X);
        locker.unlock(black_box(&key));
    })
}

fn lock_again(table: &Table, thread: u64) -> Box<dyn FnMut()> {
    let mut locker = table.locker(Priority::default());
    let key = Resource::Key(1, thread);
    lock(&mut locker, key, X);
    Box::new(move || lock(&mut locker, key, S))
}

fn release_all(table: &Table, thread: u64) -> Box<dyn FnMut()> {
    let mut locker = table.locker(Priority::default());
    let mut number = 0;
    Box::new(move || {
        number += 1;
        lock(&mut locker, Resource::Key(1, thread << 32 | number), X);
        if number % 16 == 0 {
            locker.release_all();
        }
    })
}

fn new_locker(table: &Table, thread: u64) -> Box<dyn FnMut()> {
    let table = Arc::clone(table);
    Box::new(move || transaction(&mut table.locker(Priority::default()), thread))
}

fn same_locker(table: &Table, thread: u64) -> Box<dyn FnMut()> {
    let mut locker = table.locker(Priority::default());
    Box::new(move || {
        transaction(&mut locker, thread);
        locker.release_all();
    })
}

fn lock(locker: &mut Locker<Resource>, resource: Resource, mode: Mode) {
    let granted = locker.lock(black_box(&resource), black_box(mode), Wait::Forever);
    granted.expect("nobody is in the way for good");
}

fn transaction(locker: &mut Locker<Resource>, thread: u64) {
    lock(locker, Resource::Store, IX);
    lock(locker, Resource::Tree(1), IX);
    for key in 0..4 {
        lock(locker, Resource::Key(1, thread << 32 | key), X);
    }
}

/// Runs on one thread and on two, and prints both.
fn compare(name: &str, setup: &(dyn Fn(u64) -> Box<dyn FnMut()> + Sync)) {
    let (mut one, mut two) = (on_threads(1, setup), on_threads(2, setup));
    one.sort_by(f64::total_cmp);
    two.sort_by(f64::total_cmp);
    let (lowest, median) = (one[0], one[one.len() / 2]);
    let both = two[two.len() / 2];
    let scale = 2.0 * median / both;
    println!("{name:<36} {lowest:>8.1} {median:>8.1} | {both:>9.1} {scale:>8.2}");
}

/// What an operation took in each batch of each thread; the batches of the threads begin together.
fn on_threads(threads: u32, setup: &(dyn Fn(u64) -> Box<dyn FnMut()> + Sync)) -> Vec<f64> {
    let arrived = AtomicU32::new(0);
    let run = |thread: u64| {
        let mut operation = setup(thread);
        let batch = |number| {
            arrived.fetch_add(1, Ordering::AcqRel);
            // Not a barrier that sleeps: who wakes second would find the first one done.
            while arrived.load(Ordering::Acquire) < threads * (number + 1) {
                hint::spin_loop();
            }
            let start = Instant::now();
            (0..BATCH).for_each(|_| operation());
            start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH)
        };
        (0..BATCHES).map(batch).collect::<Vec<f64>>()
    };
    thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> =
            (0..u64::from(threads)).map(|thread| scope.spawn(move || run(thread))).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    })
}
