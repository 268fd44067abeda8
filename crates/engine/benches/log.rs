//! What the log costs: appending, forcing in groups, reading back, opening.
//!
//! What is compared is measured in turns, because a disk and a shared machine change their speed
//! from one second to the next. Files are made in the build directory, or where `LOG_BENCH_DIR`
//! says: on a tmpfs a sync costs nothing, which shows the processor's part. A name, or a part of
//! one, on the command line runs only those.
//!
//! ```text
//! cargo bench -p tidegate-engine --bench log
//! ```

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]
#![expect(clippy::print_stdout, reason = "printing figures is what a benchmark is for")]

use std::cell::Cell;
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_engine::disk::{Disk, FileDisk, IoMode};
use tidegate_engine::wal::{Log, LogSettings, Lsn};

/// The size of the records, in bytes.
const PAYLOAD: [u8; 200] = [7; 200];

/// Bytes such a record takes in the log.
const STORED: usize = 216;

/// How long commits are counted in each turn.
const SPAN: Duration = Duration::from_secs(1);

/// A name, and what prints its figures.
type Benchmark = (&'static str, fn());

/// Something to compare: a name, and what measures it once.
type Contestant<'a> = (String, Box<dyn Fn() -> f64 + 'a>);

fn main() {
    let benchmarks: [Benchmark; 6] = [
        ("append, ns", append),
        ("append and write, threads, MiB/s", append_and_write),
        ("read, MiB/s", read),
        ("syncs of one thread by kind of file, 1/s", syncs),
        ("durable commits, 1/s", commits),
        ("open, ms", open),
    ];
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, run) in benchmarks {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part)) {
            println!("{name:<44} {:>10} {:>10} {:>10}", "lowest", "median", "highest");
            run();
        }
    }
}

/// Measures them in turns, and prints how the figures are spread.
fn compare(turns: usize, contestants: &[Contestant]) {
    let mut figures = vec![Vec::new(); contestants.len()];
    for _ in 0..turns {
        for ((_, measure), figures) in contestants.iter().zip(&mut figures) {
            figures.push(measure());
        }
    }
    for ((name, _), mut figures) in contestants.iter().zip(figures) {
        figures.sort_by(f64::total_cmp);
        let (lowest, highest) = (figures[0], figures[turns - 1]);
        println!("  {name:<42} {lowest:>10.1} {:>10.1} {highest:>10.1}", figures[turns / 2]);
    }
}

fn directory() -> TempDir {
    let place = std::env::var("LOG_BENCH_DIR").unwrap_or(env!("CARGO_TARGET_TMPDIR").into());
    TempDir::new_in(place).expect("a directory")
}

fn disk(directory: &TempDir) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(directory.path(), IoMode::Buffered).expect("a disk"))
}

fn create(directory: &TempDir) -> Log {
    Log::create(disk(directory), LogSettings::default()).expect("a log")
}

fn append_records(log: &Log, count: usize) {
    for _ in 0..count {
        log.append(&PAYLOAD).expect("room");
    }
}

fn mebibytes(log: &Log) -> f64 {
    log.statistics().record_bytes as f64 / f64::from(1 << 20)
}

/// Batches that fit in the buffer, so that nothing is written while the clock runs.
fn append() {
    const BATCH: u32 = 20_000;
    let directory = directory();
    let log = create(&directory);
    let measure = |append: &dyn Fn() -> Lsn| {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(append());
        }
        let nanoseconds = start.elapsed().as_secs_f64() * 1e9 / f64::from(BATCH);
        log.force(log.end()).expect("room on the disk");
        log.truncate_before(log.durable()).expect("a disk");
        nanoseconds
    };
    let append = |bytes: &[u8]| log.append(black_box(bytes)).expect("room");
    let with = || {
        let write = |bytes: &mut Vec<u8>| bytes.extend_from_slice(black_box(&PAYLOAD));
        log.append_with(PAYLOAD.len(), write).expect("room")
    };
    compare(
        40,
        &[
            ("append of 40 bytes".into(), Box::new(|| measure(&|| append(&[7; 40])))),
            ("append of 200 bytes".into(), Box::new(|| measure(&|| append(&PAYLOAD)))),
            ("append_with of 200 bytes".into(), Box::new(|| measure(&with))),
        ],
    );
}

/// More than fits in the buffer.
fn append_and_write() {
    const RECORDS: usize = 500_000;
    let with_threads = |threads: usize| -> Contestant {
        let measure = move || {
            let directory = directory();
            let log = create(&directory);
            let start = Instant::now();
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| append_records(&log, RECORDS / threads));
                }
            });
            mebibytes(&log) / start.elapsed().as_secs_f64()
        };
        (format!("{threads} threads"), Box::new(measure))
    };
    compare(5, &[1, 2, 4].map(with_threads));
}

fn read() {
    const RECORDS: usize = 500_000;
    let directory = directory();
    let log = create(&directory);
    append_records(&log, RECORDS);
    log.force(log.end()).expect("a disk");
    let mebibytes = mebibytes(&log);
    let lent = || {
        let mut reader = log.reader(Lsn::ZERO);
        let mut count = 0;
        while let Some((_, payload)) = reader.read_next().expect("a record") {
            count += usize::from(payload.len() == PAYLOAD.len());
        }
        count
    };
    let measure = |count: &dyn Fn() -> usize| {
        let start = Instant::now();
        assert_eq!(count(), RECORDS);
        mebibytes / start.elapsed().as_secs_f64()
    };
    let lsns: Vec<Lsn> = log.reader(Lsn::ZERO).map(|record| record.expect("a record").0).collect();
    let by_lsn = || lsns.iter().filter(|lsn| log.read(**lsn).is_ok()).count();
    compare(
        5,
        &[
            ("reader, records lent".into(), Box::new(|| measure(&lent))),
            ("reader, records in vectors".into(), {
                Box::new(|| measure(&|| log.reader(Lsn::ZERO).count()))
            }),
            ("each record by its LSN".into(), Box::new(|| measure(&by_lsn))),
        ],
    );
}

/// Writes of one record and syncs, one after the other, in a file that was made some way.
fn plain_loop(make: fn(&Path)) -> f64 {
    let directory = directory();
    let path = directory.path().join("plain");
    make(&path);
    let file = OpenOptions::new().write(true).open(&path).expect("a file");
    file.sync_all().expect("a disk");
    let start = Instant::now();
    let mut count: u32 = 0;
    while start.elapsed() < SPAN {
        let offset = u64::from(count) * STORED as u64;
        file.write_all_at(&[7; STORED], offset).expect("room");
        file.sync_data().expect("a disk");
        count += 1;
    }
    f64::from(count) / start.elapsed().as_secs_f64()
}

fn make_growing(path: &Path) {
    File::create(path).expect("a file");
}

fn make_long(path: &Path) {
    File::create(path).and_then(|file| file.set_len(16 << 20)).expect("a file");
}

fn make_zeroed(path: &Path) {
    fs::write(path, vec![0; 16 << 20]).expect("a file");
}

fn syncs() {
    compare(
        7,
        &[
            ("a file that grows".into(), Box::new(|| plain_loop(make_growing))),
            ("length set before".into(), Box::new(|| plain_loop(make_long))),
            ("zeros written before".into(), Box::new(|| plain_loop(make_zeroed))),
        ],
    );
}

/// Threads that append a record and force it, over and over.
fn commit(threads: u32, group: &Cell<f64>) -> f64 {
    let directory = directory();
    let log = create(&directory);
    let is_over = AtomicBool::new(false);
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let lsn = log.append(&PAYLOAD).expect("room");
                    log.force(lsn).expect("a disk");
                }
            });
        }
        thread::sleep(SPAN);
        is_over.store(true, Ordering::Relaxed);
    });
    group.set(group.get().max(log.statistics().mean_group()));
    log.statistics().records as f64 / start.elapsed().as_secs_f64()
}

fn commits() {
    const THREADS: [u32; 4] = [1, 2, 8, 32];
    let groups = THREADS.map(|_| Cell::new(0.0));
    let of_log = THREADS.iter().zip(&groups).map(|(threads, group)| -> Contestant {
        (format!("{threads} threads"), Box::new(|| commit(*threads, group)))
    });
    let plain = || plain_loop(make_zeroed);
    let mut contestants: Vec<Contestant> =
        vec![("a plain loop of writes and syncs".into(), Box::new(plain))];
    contestants.extend(of_log);
    compare(7, &contestants);
    for (threads, group) in THREADS.iter().zip(&groups) {
        println!("  {threads} threads: up to {:.1} commits in a group", group.get());
    }
}

/// How long it takes to find the end from a checkpoint a mebibyte before it, after a seal.
fn open() {
    let with_last_segment = |is_used_again: bool| -> Contestant {
        let directory = directory();
        let log = create(&directory);
        let append = |mebibytes: usize| {
            append_records(&log, (mebibytes << 20) / STORED);
            log.force(log.end()).expect("a disk");
            log.durable()
        };
        append(70);
        if is_used_again {
            log.truncate_before(log.durable()).expect("a disk");
            append(30);
        }
        let from = append(1);
        append(1);
        log.seal().expect("a disk");
        drop(log);
        let measure = move || {
            let start = Instant::now();
            drop(Log::open(disk(&directory), LogSettings::default(), from).expect("a log"));
            start.elapsed().as_secs_f64() * 1e3
        };
        let kind = if is_used_again { "used again" } else { "new" };
        (format!("last segment {kind}"), Box::new(measure))
    };
    compare(9, &[false, true].map(with_last_segment));
}
