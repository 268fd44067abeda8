//! How many pages the store reads and writes on several disks, on a machine in virtual time.
//!
//! 200,000 rows of 400 bytes, a buffer that holds few of them, and transactions that each read, or
//! change, 4 rows drawn at random and commit lazily. Pages are striped over the disks, each of
//! which serves in the order of arrival: the positioning time for each transfer, and the time for
//! its bytes at 160 MB/s. The doublewrite file is on the same disks. The log's disk and the
//! processors take no time. A cell is transactions a second / pages of the tree read and written a
//! second, counted for so many seconds after some of warming up. The same command prints the same
//! figures.
//!
//! ```text
//! cargo bench -p tidegate-engine --bench disks -- updates 256 8 10
//! ```
//!
//! Arguments: `updates` or `reads`; frames of the buffer; positioning time in ms; seconds a cell;
//! number of writers (default: 48); `atomic` for no doublewrite; then the disks of the table
//! (default: 1,4,48,4096) and its threads (default: 1,4,20,60,200), each a list; then an empty
//! directory. With a directory the machine is the system's, its files are there and written
//! directly, and disks and positioning time do not count.

#![allow(clippy::disallowed_methods, reason = "the arguments are the system's")]
#![expect(clippy::print_stdout, reason = "printing figures is what a benchmark is for")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_engine::disk::{Disk, FileDisk, IoMode, MemoryDisk, TimedDisk};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Durability, Store, StoreOptions, TreeHandle, TxnError, TxnOptions};
use tidegate_runtime::{Hardware, Machine, Service, clock, thread};

const ROWS: u64 = 200_000;
const ROW_BYTES: usize = 400;
const KEYS: usize = 4;

/// What is asked for on the command line.
struct Wanted {
    updates: bool,
    options: StoreOptions,
    position: Duration,
    seconds: u64,
    disks: Vec<u32>,
    threads: Vec<u64>,
    directory: Option<PathBuf>,
}

impl Wanted {
    fn parse() -> Wanted {
        let given: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
        let word = |at: usize| given.get(at).map(String::as_str);
        let list = |at: usize, default: &[u32]| match word(at) {
            Some(list) => list.split(',').map(|item| item.parse().unwrap()).collect(),
            None => default.to_vec(),
        };
        let number = |at: usize, default: u32| list(at, &[default])[0];
        let options = StoreOptions::default();
        let bytes = number(1, 256) as usize * options.page_size.bytes();
        Wanted {
            updates: word(0) != Some("reads"),
            options: options
                .buffer_bytes(bytes)
                .buffer_bytes_max(bytes)
                .io_writers(number(4, 48) as usize)
                .doublewrite(word(5) != Some("atomic")),
            position: Duration::from_millis(number(2, 8).into()),
            seconds: number(3, 10).into(),
            disks: list(6, &[1, 4, 48, 4096]),
            threads: list(7, &[1, 4, 20, 60, 200]).into_iter().map(u64::from).collect(),
            directory: word(8).map(PathBuf::from),
        }
    }

    fn hardware(&self, disks: u32) -> Hardware {
        Hardware {
            data_disks: disks,
            stripe_bytes: self.options.page_size.bytes() as u64,
            data: Service::Constant { latency: self.position, bytes_per_s: 160e6 },
            ..Hardware::with_processors(2)
        }
    }
}

fn fill(disk: &Arc<dyn Disk>) {
    let store = Store::create(disk, LogId(1), &StoreOptions::default()).unwrap();
    let tree = store.create_tree("rows").unwrap();
    let rows = (0..ROWS).map(|row| (row.to_be_bytes(), [7; ROW_BYTES]));
    store.bulk_load(&tree, 90, rows).unwrap();
    drop(tree);
    store.close().unwrap();
}

/// What threads share.
struct Load {
    store: Store,
    tree: TreeHandle,
    updates: bool,
    is_over: AtomicBool,
    done: AtomicU64,
    failed: AtomicU64,
    /// The first error.
    error: OnceLock<String>,
}

impl Load {
    fn work(&self, thread: u64) {
        let mut draw = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * thread + 1);
        while !self.is_over.load(Ordering::Relaxed) {
            let mut keys = [(); KEYS].map(|()| {
                // xorshift64
                draw ^= draw << 13;
                draw ^= draw >> 7;
                draw ^= draw << 17;
                draw % ROWS
            });
            // Two transactions that change the same rows wait for each other in one order.
            keys.sort_unstable();
            let result = self.transact(keys);
            let counter = if result.is_ok() { &self.done } else { &self.failed };
            counter.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = result {
                self.error.get_or_init(|| error.to_string());
            }
        }
    }

    fn transact(&self, keys: [u64; KEYS]) -> Result<(), TxnError> {
        let mut transaction = self.store.begin(TxnOptions::default().durability(Durability::Lazy));
        for key in keys {
            if self.updates {
                transaction.put(&self.tree, &key.to_be_bytes(), &[8; ROW_BYTES])?;
            } else {
                transaction.get(&self.tree, &key.to_be_bytes())?;
            }
        }
        transaction.commit()
    }

    /// Returns transactions and pages until now.
    fn counts(&self) -> [u64; 2] {
        let io = self.tree.io();
        [self.done.load(Ordering::Relaxed), io.physical_reads + io.writes]
    }
}

/// What comes of a load.
struct Cell {
    transactions_per_s: f64,
    pages_per_s: f64,
    failed: u64,
    error: Option<String>,
}

fn measure(disk: &Arc<dyn Disk>, wanted: &Wanted, threads: u64) -> Cell {
    let store = Store::open(disk, &wanted.options).unwrap();
    let load = Arc::new(Load {
        tree: store.tree("rows").unwrap(),
        store,
        updates: wanted.updates,
        is_over: AtomicBool::new(false),
        done: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        error: OnceLock::new(),
    });
    let start = |number: u64| {
        let load = Arc::clone(&load);
        thread::spawn("client", move || load.work(number)).unwrap()
    };
    let clients: Vec<_> = (0..threads).map(start).collect();
    let wait = |seconds| thread::sleep(Duration::from_secs(seconds));
    wait(wanted.seconds.div_ceil(2));
    let (began, before) = (clock::now(), load.counts());
    wait(wanted.seconds);
    let (time, after) = (clock::now() - began, load.counts());
    load.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    let rate = |at: usize| (after[at] - before[at]) as f64 / time.as_secs_f64();
    Cell {
        transactions_per_s: rate(0),
        pages_per_s: rate(1),
        failed: load.failed.load(Ordering::Relaxed),
        error: load.error.get().cloned(),
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.0} / {:.0}", self.transactions_per_s, self.pages_per_s)?;
        let Some(error) = &self.error else { return Ok(()) };
        write!(formatter, ", {} failed: {error}", self.failed)
    }
}

/// Measures on a machine in virtual time, or in a directory.
fn main() {
    let wanted = Arc::new(Wanted::parse());
    let memory = Arc::new(MemoryDisk::new());
    let disk: Arc<dyn Disk> = match &wanted.directory {
        Some(path) => Arc::new(FileDisk::create(path, IoMode::Direct).unwrap()),
        None => Arc::clone(&memory) as Arc<dyn Disk>,
    };
    fill(&disk);
    let head = wanted.threads.iter().map(|threads| format!(" {threads} |"));
    println!("| disks \\ threads |{}", head.collect::<String>());
    println!("| ---: |{}", " ---: |".repeat(wanted.threads.len()));
    for &disks in &wanted.disks {
        let cells = wanted.threads.iter().map(|&threads| {
            if wanted.directory.is_some() {
                return format!(" {} |", measure(&disk, &wanted, threads));
            }
            let (fork, theirs) = (memory.fork(), Arc::clone(&wanted));
            let body = move || {
                let timed: Arc<dyn Disk> = Arc::new(TimedDisk::new(Arc::new(fork)));
                measure(&timed, &theirs, threads)
            };
            let report = Machine::new(wanted.hardware(disks), 1).run(body).unwrap();
            format!(" {} |", report.value)
        });
        println!("| {disks} |{}", cells.collect::<String>());
    }
}
