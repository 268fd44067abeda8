//! Recovery after a kill, and opening after a clean shutdown.
//!
//! # A log to recover from
//! A process of its own, this program with the part `write-log`, makes a store without a background
//! writer and with a buffer that holds everything, so that after its last checkpoint no page goes
//! to disk and recovery has to make every change again. It writes so much log, says how much,
//! waits, and is killed by SIGKILL. The directory is copied for each repetition, because recovery
//! changes it. One transaction is left under way, so that there is something to undo.
//!
//! # What the time is made of
//! Beside the time that opening takes stands the processor time of this process and what it read
//! and wrote by system calls. Where processor time is close to the time, the processor is what
//! bounds recovery.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tidegate_engine::disk::{Disk, FileDisk, IoMode};
use tidegate_engine::wal::LogId;
use tidegate_engine::{Durability, Store, StoreOptions, TreeHandle, TxnError, TxnOptions};

use crate::progress::Progress;
use crate::report::{Report, verdict};
use crate::rows::{self, Keys, ROW_BYTES};
use crate::statistics::{Summary, count};
use crate::used::Used;
use crate::{Plan, Result, Stop};

/// The least log that is replayed in a second, in MiB.
const RECOVERY_MIN: f64 = 100.0;

/// The most milliseconds that opening takes after a clean shutdown.
const OPEN_MAX: f64 = 50.0;

/// Rows of a transaction that writes the log.
const BATCH: u64 = 1_000;

/// Rows of the transaction that is under way when the process is killed.
const UNFINISHED: u64 = 1_000;

/// What writes the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Rows are appended to an empty tree.
    Appends,
    /// Random rows of a tree get other values.
    Updates,
}

impl Pattern {
    fn name(self) -> &'static str {
        match self {
            Pattern::Appends => "appends",
            Pattern::Updates => "updates",
        }
    }
}

/// A log to recover from, and by how large a buffer.
struct Case {
    pattern: Pattern,
    buffer_bytes: usize,
    log_mib: u64,
    note: &'static str,
}

/// A buffer that holds every page that is changed here.
const LARGE_BUFFER: usize = 2 << 30;

/// What the killed process has said.
struct Killed {
    log_mib: f64,
    entries: u64,
}

/// One recovery.
struct Recovered {
    time: Duration,
    used: Used,
    records: u64,
    redone: u64,
}

/// Recovery and opening, measured and written down.
pub(crate) fn measure(
    plan: &Plan,
    directory: &Path,
    stop: &Stop,
    report: &mut Report,
) -> Result<()> {
    let default = StoreOptions::default().buffer_bytes;
    let cases = [
        Case {
            pattern: Pattern::Appends,
            buffer_bytes: LARGE_BUFFER,
            log_mib: 512,
            note: "appended rows, buffer holds all",
        },
        Case {
            pattern: Pattern::Updates,
            buffer_bytes: LARGE_BUFFER,
            log_mib: 512,
            note: "random updates, buffer holds all",
        },
        Case {
            pattern: Pattern::Updates,
            buffer_bytes: default,
            // Less, because random pages that are not in the buffer take a while.
            log_mib: 64,
            note: "random updates, default buffer",
        },
    ];
    let mut progress = Progress::new(cases.len() * (plan.rounds + 1) + plan.rounds + 1, stop);
    report.heading("Recovery");
    report.paragraph(&format!(
        "A process writes log without writing a page and is killed by SIGKILL with a transaction \
         of {UNFINISHED} rows under way; `Store::open` is timed on copies of what it left. It \
         looks for the end of the log, reads it twice (analysis, redo), makes every change again, \
         rolls back, writes all pages twice (doublewrite), and takes a checkpoint: all of that is \
         in the time. Log and pages are in the system's cache of files. The updated tree has {} \
         rows of {ROW_BYTES} bytes; the default buffer is {} MiB.",
        count(plan.rows as f64),
        default >> 20
    ));
    let mut lines = Vec::new();
    for case in &cases {
        lines.push(case.measure(plan, directory, &mut progress)?);
    }
    report.table(
        &[
            "log",
            "MiB",
            "records",
            "pages' changes redone",
            "seconds",
            "MiB of log/s",
            "processor, s",
            "read, MiB",
            "written, MiB",
            "bound by",
            "target 100 MiB/s",
        ],
        &lines,
    );
    measure_opening(plan, directory, &mut progress, report)
}

impl Case {
    fn options(&self) -> StoreOptions {
        StoreOptions::default().buffer_bytes(self.buffer_bytes).buffer_bytes_max(self.buffer_bytes)
    }

    fn measure(
        &self,
        plan: &Plan,
        directory: &Path,
        progress: &mut Progress,
    ) -> Result<Vec<String>> {
        let (original, copy) = (directory.join("killed"), directory.join("copy"));
        progress.step(&format!("recovery, {}: writing the log", self.note))?;
        let killed = self.write_and_kill(&original, plan)?;
        let mut all = Vec::new();
        for _ in 0..plan.rounds {
            progress.step(&format!("recovery, {}: recovering", self.note))?;
            copy_directory(&original, &copy)?;
            all.push(self.recover(&copy, &killed)?);
            fs::remove_dir_all(&copy)?;
        }
        fs::remove_dir_all(&original)?;
        let summary =
            |of: &dyn Fn(&Recovered) -> f64| Summary::of(&all.iter().map(of).collect::<Vec<_>>());
        let write = |of: &dyn Fn(&Recovered) -> f64, digits: usize| {
            let written = summary(of).map(|it| it.write(|number| format!("{number:.digits$}")));
            written.unwrap_or_default()
        };
        let speed = |one: &Recovered| killed.log_mib / one.time.as_secs_f64();
        let is_met = summary(&speed).is_some_and(|speed| speed.median >= RECOVERY_MIN);
        let busy = summary(&|one| one.used.processor_s / one.time.as_secs_f64());
        let bound = match busy.map_or(0.0, |busy| busy.median) {
            busy if busy > 0.85 => format!("the processor ({:.0} %)", busy * 100.0),
            busy => format!("waiting for the disk ({:.0} %)", (1.0 - busy) * 100.0),
        };
        let (records, redone) = all.first().map_or((0, 0), |first| (first.records, first.redone));
        Ok(vec![
            self.note.into(),
            count(killed.log_mib),
            count(records as f64),
            count(redone as f64),
            write(&|one| one.time.as_secs_f64(), 2),
            write(&speed, 0),
            write(&|one| one.used.processor_s, 2),
            write(&|one| one.used.read_mib, 0),
            write(&|one| one.used.written_mib, 0),
            bound,
            verdict(is_met).into(),
        ])
    }

    /// Starts the process that writes the log, and kills it when it has.
    fn write_and_kill(&self, directory: &Path, plan: &Plan) -> Result<Killed> {
        fs::create_dir(directory)?;
        let mib = if plan.is_quick { 16 } else { self.log_mib };
        let mut writer = Command::new(std::env::current_exe()?)
            .arg("write-log")
            .args(["--pattern", self.pattern.name(), "--mib", &mib.to_string()])
            .args(["--rows", &plan.rows.to_string(), "--seed", &plan.seed.to_string()])
            .arg("--dir")
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let said = read_line(writer.stdout.take());
        end(&mut writer)?;
        let line = said?;
        let mut words = line.split_whitespace().map(str::parse::<u64>);
        let (Some(Ok(bytes)), Some(Ok(entries))) = (words.next(), words.next()) else {
            return Err("the process that writes the log has failed".into());
        };
        Ok(Killed { log_mib: bytes as f64 / f64::from(1 << 20), entries })
    }

    fn recover(&self, directory: &Path, killed: &Killed) -> Result<Recovered> {
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::open(directory, IoMode::Buffered)?);
        let options = self.options();
        let (begin, before) = (Instant::now(), Used::now()?);
        let store = Store::open(&disk, &options)?;
        let (time, used) = (begin.elapsed(), Used::now()?.since(&before));
        let recovery = store.recovery();
        let entries: u64 = store.check()?.iter().map(|(_, shape)| shape.entries).sum();
        if entries != killed.entries || recovery.rolled_back != 1 {
            let expected = killed.entries;
            return Err(format!(
                "recovery has left {entries} rows of {expected} and has rolled back {} \
                 transactions and not 1: the store is wrong",
                recovery.rolled_back
            )
            .into());
        }
        Ok(Recovered { time, used, records: recovery.records, redone: recovery.redone })
    }
}

fn read_line(stdout: Option<ChildStdout>) -> Result<String> {
    let mut line = String::new();
    BufReader::new(stdout.ok_or("the process has no stdout")?).read_line(&mut line)?;
    Ok(line)
}

fn end(process: &mut Child) -> Result<()> {
    process.kill()?;
    process.wait()?;
    Ok(())
}

/// The process that is killed: writes so much log, says how many bytes and rows, and waits.
pub(crate) fn write_log(directory: &Path, pattern: Pattern, mib: u64, plan: &Plan) -> Result<()> {
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::create(directory, IoMode::Buffered)?);
    let options = StoreOptions::default()
        .buffer_bytes(LARGE_BUFFER)
        .buffer_bytes_max(LARGE_BUFFER)
        .background(false);
    let store = Store::create(&disk, LogId(1), &options)?;
    let tree = store.create_tree("rows")?;
    let mut entries = match pattern {
        Pattern::Appends => 0,
        Pattern::Updates => plan.rows,
    };
    load(&store, &tree, 0..entries, &Stop::default())?;
    store.flush()?;
    let begin = store.log_statistics().record_bytes;
    let mut unfinished = store.begin(TxnOptions::default());
    for key in 0..UNFINISHED {
        // Above all others.
        let key = u64::MAX - key;
        unfinished.insert(&tree, &rows::key_bytes(key), &rows::value(key, 0))?;
    }
    let mut keys = Keys::new(plan.seed, 0, plan.rows);
    while store.log_statistics().record_bytes - begin < mib << 20 {
        match pattern {
            Pattern::Appends => {
                load(&store, &tree, entries..entries + BATCH, &Stop::default())?;
                entries += BATCH;
            }
            Pattern::Updates => update(&store, &tree, &mut keys)?,
        }
    }
    // Synced: everything before it is on disk as well.
    let mut last = store.begin(TxnOptions::default());
    last.put(&tree, &rows::key_bytes(0), &rows::value(0, 1))?;
    last.commit()?;
    println!("{} {entries}", store.log_statistics().record_bytes - begin);
    std::io::stdout().flush()?;
    // Until the kill, or until nobody is there to kill.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(unfinished);
    Ok(())
}

/// Appends rows, many to a transaction, and does not wait for the disk.
fn load(store: &Store, tree: &TreeHandle, keys: std::ops::Range<u64>, stop: &Stop) -> Result<()> {
    let options = TxnOptions::default().durability(Durability::Lazy);
    let mut keys = keys.peekable();
    while keys.peek().is_some() {
        stop.check()?;
        let mut transaction = store.begin(options);
        for key in keys.by_ref().take(usize::try_from(BATCH)?) {
            transaction.insert(tree, &rows::key_bytes(key), &rows::value(key, 0))?;
        }
        transaction.commit()?;
    }
    Ok(())
}

fn update(store: &Store, tree: &TreeHandle, keys: &mut Keys) -> std::result::Result<(), TxnError> {
    let options = TxnOptions::default().durability(Durability::Lazy);
    let mut transaction = store.begin(options);
    for version in 1..=BATCH {
        let key = keys.next();
        transaction.update(tree, &rows::key_bytes(key), &rows::value(key, version))?;
    }
    transaction.commit()
}

fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// How long `Store::open` takes after `Store::close`, with at least 1 GiB of data.
fn measure_opening(
    plan: &Plan,
    directory: &Path,
    progress: &mut Progress,
    report: &mut Report,
) -> Result<()> {
    let directory = directory.join("opened");
    fs::create_dir(&directory)?;
    let bytes: u64 = if plan.is_quick { 32 << 20 } else { 1 << 30 };
    progress.step("opening: loading the data")?;
    let disk: Arc<dyn Disk> = Arc::new(FileDisk::create(&directory, IoMode::Buffered)?);
    let options = StoreOptions::default();
    let store = Store::create(&disk, LogId(1), &options)?;
    let tree = store.create_tree("rows")?;
    load(&store, &tree, 0..bytes.div_ceil(ROW_BYTES), progress.stop())?;
    drop(tree);
    store.close()?;
    let (mut opened, mut read) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        progress.step("opening: after a clean shutdown")?;
        let begin = Instant::now();
        let store = Store::open(&disk, &options)?;
        opened.push(milliseconds(begin));
        let tree = store.tree("rows").ok_or("the tree is not there")?;
        let mut transaction = store.begin(TxnOptions::default());
        if transaction.get(&tree, &rows::key_bytes(0))?.is_none() {
            return Err("a row is not there after opening".into());
        }
        read.push(milliseconds(begin));
        drop((transaction, tree));
        store.close()?;
    }
    let pages = fs::metadata(directory.join("data.pages"))?.len();
    report.paragraph(&format!(
        "Opening after a clean shutdown: {} rows, `data.pages` has {} MiB.",
        count(bytes.div_ceil(ROW_BYTES) as f64),
        count((pages >> 20) as f64)
    ));
    for (what, numbers) in [("`Store::open`", &opened), ("until the first row is read", &read)] {
        let Some(summary) = Summary::of(numbers) else {
            continue;
        };
        let written = summary.write(|number| format!("{number:.1}"));
        let verdict = verdict(summary.median < OPEN_MAX);
        report.item(&format!("{what}: {written} ms, target below {OPEN_MAX:.0} ms: {verdict}"));
    }
    fs::remove_dir_all(&directory)?;
    Ok(())
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
