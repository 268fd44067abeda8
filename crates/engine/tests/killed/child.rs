//! The process that is killed. It says on its standard output what it has done, a line for each:
//!
//! | line | when |
//! | --- | --- |
//! | `opened` | the store is open |
//! | `halted` | the disk has stopped in the middle of the opening, as it was told to |
//! | `synced <worker> <number>` | the commit of the transaction has returned; it is durable |
//! | `lazy <worker> <number>` | the same, of one that is durable a little later |
//! | `failed <why>` | something that should not be |
//!
//! A line is one write, and shorter than what a pipe takes whole. The process ends when nobody
//! holds its standard input any more, so that it does not outlive a parent that is killed itself.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{env, panic, process, thread};

use tidegate_engine::disk::{Disk, FileDisk, IoMode};
use tidegate_engine::wal::LogSettings;
use tidegate_engine::{Durability, Isolation, PageSize, Store, StoreOptions, TxnError, TxnOptions};

use super::Random;
use super::halting::halting;
use super::load::{Trees, WORKERS, apply, last_number};

/// Names the directory, and so says that this process is a child.
pub(crate) const DIRECTORY: &str = "TIDEGATE_TEST_KILLED_DIRECTORY";

/// After how many changes of files the disk stops while the store is opened; not at all if unset.
pub(crate) const HALT_AFTER: &str = "TIDEGATE_TEST_KILLED_HALT_AFTER";

/// How the store is kept: a buffer far smaller than the data, and checkpoints all the time.
pub(crate) fn options() -> StoreOptions {
    StoreOptions::default()
        .page_size(PageSize::new(4096).unwrap())
        .buffer_bytes(64 * 4096)
        .buffer_bytes_max(64 * 4096)
        .log(LogSettings {
            segment_bytes: 128 << 10,
            buffer_bytes: 64 << 10,
            lazy_sync: Duration::from_millis(20),
            ..LogSettings::default()
        })
        .checkpoint_bytes(100 << 10)
}

/// What a process that is a child does instead of a test.
pub(crate) fn run_if_asked() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    // The test harness has begun a line.
    say("");
    thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        process::exit(2);
    });
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        hook(info);
        fail("it panicked");
    }));
    if let Err(error) = run(Path::new(&directory)) {
        fail(&error.to_string());
    }
    fail("nothing more to do");
}

fn fail(why: &str) -> ! {
    say(&format!("failed {why}"));
    process::exit(1);
}

/// Says something, or ends: without a parent there is nothing to do.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    if out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        process::exit(2);
    }
}

fn run(directory: &Path) -> Result<(), TxnError> {
    let disk = FileDisk::open(directory, IoMode::Buffered).map_err(|source| {
        tidegate_engine::StoreError::Io { action: "open the directory", source }
    })?;
    let halt_after = env::var(HALT_AFTER).ok().and_then(|number| number.parse().ok());
    let (disk, never_halt) = halting(Arc::new(disk), halt_after, || say("halted"));
    // Whoever halts must be who opens, or it is not known where.
    let options = options().background(halt_after.is_none());
    let store = Store::open(&(Arc::new(disk) as Arc<dyn Disk>), &options)?;
    never_halt();
    say("opened");
    let trees = Trees::of(&store)?;
    let seed = u64::from(process::id());
    // They go on until the process is killed, or one of them fails.
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (store, trees) = (&store, &trees);
            let draw = Random::new(seed * 100 + u64::from(worker));
            scope.spawn(move || {
                if let Err(error) = work(store, trees, worker, draw) {
                    fail(&error.to_string());
                }
            });
        }
    });
    Ok(())
}

/// Runs one transaction after the other, from the first that is not in the journal.
fn work(store: &Store, trees: &Trees, worker: u8, mut draw: Random) -> Result<(), TxnError> {
    let first = next_number(store, trees, worker)?;
    for number in first.. {
        if number.is_multiple_of(7) {
            let mut transaction = store.begin(TxnOptions::default());
            match apply(&mut transaction, trees, worker, number, &mut draw) {
                Ok(()) => transaction.roll_back()?,
                Err(error) if error.is_retryable() => drop(transaction),
                Err(error) => return Err(error),
            }
        }
        let is_lazy = number.is_multiple_of(3);
        let durability = if is_lazy { Durability::Lazy } else { Durability::Synced };
        loop {
            let mut transaction = store.begin(TxnOptions::default().durability(durability));
            let applied = apply(&mut transaction, trees, worker, number, &mut draw);
            match applied.and_then(|()| transaction.commit()) {
                Ok(()) => break,
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error),
            }
        }
        say(&format!("{} {worker} {number}", if is_lazy { "lazy" } else { "synced" }));
    }
    Ok(())
}

fn next_number(store: &Store, trees: &Trees, worker: u8) -> Result<u64, TxnError> {
    // Nobody else writes this worker's keys, so there is nothing to wait for.
    let isolation = Isolation::ReadUncommitted;
    let mut transaction = store.begin(TxnOptions::default().isolation(isolation));
    Ok(last_number(&mut transaction, trees, worker)? + 1)
}
