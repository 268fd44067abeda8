//! Tidegate beside LMDB, redb and `SQLite`.
//!
//! In each round each engine makes a database in a fresh directory, loads it, is measured and is
//! thrown away; the order of the engines is drawn anew for each round. So what drifts with time
//! hits all of them. A ratio is taken within a round, whose measurements are close in time.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use tidegate_control::SplitMix64;
use tidegate_engine::Isolation;

use crate::engines::{Engine, Kind, Memory};
use crate::measure::{Done, LOAD_BATCH, Reads, SCAN_ROWS, Subject};
use crate::progress::Progress;
use crate::report::{Report, verdict};
use crate::rows::ROW_BYTES;
use crate::statistics::{Summary, count, ratio};
use crate::{Plan, Result, Stop};

/// Rows of a transaction that reads, and of one of the mix.
const BATCH: usize = 100;

/// What is measured, in the order in which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Metric {
    Load,
    LoadAndSettle,
    Reads,
    ReadsOnTwo,
    ReadsByOne,
    ReadsCommitted,
    ReadsCommittedOnTwo,
    Scans,
    ScansCommitted,
    FullScan,
    FullScanCommitted,
    Commits,
    CommitsOf32,
    SmallReads,
    SmallMix,
}

impl Metric {
    fn title(self) -> String {
        match self {
            Metric::Load => format!("load, {LOAD_BATCH} rows a commit"),
            Metric::LoadAndSettle => "load, until all is in its place".into(),
            Metric::Reads => format!("random reads, {BATCH} a transaction"),
            Metric::ReadsOnTwo => format!("random reads, {BATCH} a transaction, 2 threads"),
            Metric::ReadsByOne => "random reads, 1 a transaction".into(),
            Metric::ReadsCommitted => format!("random reads, {BATCH}, read committed"),
            Metric::ReadsCommittedOnTwo => {
                format!("random reads, {BATCH}, read committed, 2 threads")
            }
            Metric::Scans => format!("scans of {SCAN_ROWS} rows"),
            Metric::ScansCommitted => format!("scans of {SCAN_ROWS} rows, read committed"),
            Metric::FullScan => "scan of all rows".into(),
            Metric::FullScanCommitted => "scan of all rows, read committed".into(),
            Metric::Commits => "durable commits of one row".into(),
            Metric::CommitsOf32 => "durable commits of one row, 32 threads".into(),
            Metric::SmallReads => format!("data twice the cache: random reads, {BATCH}"),
            Metric::SmallMix => {
                format!("data twice the cache: {BATCH} rows a commit, half of them replaced")
            }
        }
    }
}

/// What the engine must reach: this metric of ours, divided by the peer's.
struct Target {
    metric: Metric,
    peer: Kind,
    at_least: f64,
}

#[rustfmt::skip]
const TARGETS: [Target; 12] = [
    Target { metric: Metric::Load, peer: Kind::Redb, at_least: 1.0 },
    Target { metric: Metric::Reads, peer: Kind::Lmdb, at_least: 0.8 },
    Target { metric: Metric::ReadsOnTwo, peer: Kind::Lmdb, at_least: 0.8 },
    Target { metric: Metric::Reads, peer: Kind::Sqlite, at_least: 2.0 },
    Target { metric: Metric::ReadsOnTwo, peer: Kind::Sqlite, at_least: 2.0 },
    Target { metric: Metric::Scans, peer: Kind::Lmdb, at_least: 0.7 },
    Target { metric: Metric::FullScan, peer: Kind::Lmdb, at_least: 0.7 },
    Target { metric: Metric::CommitsOf32, peer: Kind::Lmdb, at_least: 3.0 },
    Target { metric: Metric::CommitsOf32, peer: Kind::Redb, at_least: 3.0 },
    Target { metric: Metric::CommitsOf32, peer: Kind::Sqlite, at_least: 3.0 },
    Target { metric: Metric::SmallReads, peer: Kind::Sqlite, at_least: 1.0 },
    Target { metric: Metric::SmallMix, peer: Kind::Sqlite, at_least: 1.0 },
];

/// Measurements of our own that the peers have no counterpart of: a target is told for them too.
const READ_COMMITTED: [(Metric, Metric); 4] = [
    (Metric::ReadsCommitted, Metric::Reads),
    (Metric::ReadsCommittedOnTwo, Metric::ReadsOnTwo),
    (Metric::ScansCommitted, Metric::Scans),
    (Metric::FullScanCommitted, Metric::FullScan),
];

/// Figures by what and whose, one for each round.
type Figures = BTreeMap<(Metric, Kind), Vec<f64>>;

/// The whole comparison.
struct Comparison<'p> {
    plan: &'p Plan,
    directory: &'p Path,
    stop: &'p Stop,
    progress: Progress,
    /// Rows or commits a second.
    rates: Figures,
    /// Microseconds of the processor for each.
    costs: Figures,
    /// The sum of what was read, by the first who read it in a round.
    sums: BTreeMap<(usize, Metric), (Kind, u64)>,
    round: usize,
}

/// Runs it and writes it down.
pub(crate) fn measure(
    plan: &Plan,
    directory: &Path,
    stop: &Stop,
    report: &mut Report,
) -> Result<()> {
    // Steps of ours, of each of the three peers, and of two with a small cache.
    let steps = 12 + 3 * 8 + 2 * 3;
    let progress = Progress::new(plan.rounds * steps, stop);
    let mut comparison = Comparison {
        plan,
        directory,
        stop,
        progress,
        rates: BTreeMap::new(),
        costs: BTreeMap::new(),
        sums: BTreeMap::new(),
        round: 0,
    };
    for round in 0..plan.rounds {
        comparison.round = round;
        let mut chance = SplitMix64::new(plan.seed.wrapping_add(round as u64));
        for kind in shuffled(Kind::ALL, &mut chance) {
            comparison.in_memory(kind)?;
        }
        for kind in shuffled([Kind::Tidegate, Kind::Sqlite], &mut chance) {
            comparison.small_cache(kind)?;
        }
    }
    comparison.write(report);
    Ok(())
}

fn shuffled<const N: usize>(mut kinds: [Kind; N], chance: &mut SplitMix64) -> [Kind; N] {
    for at in (1..N).rev() {
        let other = chance.next_bits() % (at as u64 + 1);
        kinds.swap(at, usize::try_from(other).unwrap_or(at));
    }
    kinds
}

impl Comparison<'_> {
    fn data_bytes(&self) -> usize {
        usize::try_from(self.plan.rows * ROW_BYTES).unwrap_or(usize::MAX / 8)
    }

    fn create(&self, kind: Kind, cache_bytes: usize) -> Result<Box<dyn Engine>> {
        let directory = self.directory.join("database");
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir(&directory)?;
        let data_bytes = self.data_bytes() * 4 + (64 << 20);
        kind.create(&directory, Memory { cache_bytes, data_bytes })
    }

    /// Everything with a cache that holds all.
    fn in_memory(&mut self, kind: Kind) -> Result<()> {
        let engine = self.create(kind, self.data_bytes() * 2 + (64 << 20))?;
        let (plan, stop) = (self.plan, self.stop);
        let seed = plan.seed.wrapping_add(self.round as u64);
        let subject = Subject { engine: &*engine, rows: plan.rows, seed, stop };
        self.step(kind, Metric::Load)?;
        let (loaded, settled) = subject.load()?;
        self.note(kind, Metric::Load, loaded)?;
        self.note(kind, Metric::LoadAndSettle, settled)?;

        let reads = |threads, batch, isolation| {
            let each = if batch == 1 { plan.rows / 4 } else { plan.rows };
            Reads { threads, each, batch, isolation }
        };
        let strict = Isolation::Serializable;
        let read = |reads| subject.random_reads(reads);
        self.run(kind, Metric::Reads, || read(reads(1, BATCH, strict)))?;
        self.run(kind, Metric::ReadsOnTwo, || read(reads(2, BATCH, strict)))?;
        self.run(kind, Metric::ReadsByOne, || read(reads(1, 1, strict)))?;
        let scans = plan.rows / SCAN_ROWS;
        self.run(kind, Metric::Scans, || subject.short_scans(scans, strict))?;
        self.run(kind, Metric::FullScan, || subject.full_scan(strict))?;
        if kind == Kind::Tidegate {
            let lax = Isolation::ReadCommitted;
            self.run(kind, Metric::ReadsCommitted, || read(reads(1, BATCH, lax)))?;
            self.run(kind, Metric::ReadsCommittedOnTwo, || read(reads(2, BATCH, lax)))?;
            self.run(kind, Metric::ScansCommitted, || subject.short_scans(scans, lax))?;
            self.run(kind, Metric::FullScanCommitted, || subject.full_scan(lax))?;
        }
        let time = Duration::from_secs_f64(plan.seconds);
        self.run(kind, Metric::Commits, || subject.commits(1, time))?;
        self.run(kind, Metric::CommitsOf32, || subject.commits(32, time))
    }

    /// Reads and writes with a cache that holds half.
    fn small_cache(&mut self, kind: Kind) -> Result<()> {
        let engine = self.create(kind, self.data_bytes() / 2)?;
        let seed = self.plan.seed.wrapping_add(self.round as u64);
        let rows = self.plan.rows;
        let subject = Subject { engine: &*engine, rows, seed, stop: self.stop };
        self.progress.step(&self.label(kind, "load for the small cache"))?;
        subject.load()?;
        let isolation = Isolation::Serializable;
        let reads = Reads { threads: 1, each: rows / 2, batch: BATCH, isolation };
        self.run(kind, Metric::SmallReads, || subject.random_reads(reads))?;
        let time = Duration::from_secs_f64(self.plan.seconds);
        self.run(kind, Metric::SmallMix, || subject.mix(time, BATCH))
    }

    fn label(&self, kind: Kind, what: &str) -> String {
        format!("round {}/{}, {}: {what}", self.round + 1, self.plan.rounds, kind.name())
    }

    fn step(&mut self, kind: Kind, metric: Metric) -> Result<()> {
        let label = self.label(kind, &metric.title());
        self.progress.step(&label)
    }

    fn run(
        &mut self,
        kind: Kind,
        metric: Metric,
        measure: impl FnOnce() -> Result<Done>,
    ) -> Result<()> {
        self.step(kind, metric)?;
        let done = measure().map_err(|error| self.label(kind, &error.to_string()))?;
        self.note(kind, metric, done)
    }

    /// Keeps a rate, and sees to it that all engines have read the same.
    fn note(&mut self, kind: Kind, metric: Metric, done: Done) -> Result<()> {
        self.rates.entry((metric, kind)).or_default().push(done.rate());
        self.costs.entry((metric, kind)).or_default().push(done.processor_us());
        let is_same_work = !matches!(metric, Metric::SmallMix);
        let &mut (other, sum) = self.sums.entry((self.round, metric)).or_insert((kind, done.sum));
        if is_same_work && sum != done.sum {
            let (what, other) = (metric.title(), other.name());
            return Err(self.label(kind, &format!("{what}: {other} has read otherwise")).into());
        }
        Ok(())
    }

    fn write(&self, report: &mut Report) {
        report.heading("Beside other engines");
        write_conditions(self.plan, self.data_bytes(), report);
        self.write_targets(report);
        report.paragraph("Rates: rows per second, or commits per second where it says commits.");
        write_figures(&self.rates, report);
        report.paragraph(
            "Processor time of the whole process for each row or commit, in microseconds: what is \
             left of the time is waiting, mostly for the disk.",
        );
        write_figures(&self.costs, report);
    }

    fn write_targets(&self, report: &mut Report) {
        let mut lines = Vec::new();
        for target in &TARGETS {
            let lax = READ_COMMITTED.iter().find(|(_, strict)| *strict == target.metric);
            for ours in [Some(target.metric), lax.map(|(lax, _)| *lax)].into_iter().flatten() {
                let (ours_key, peer_key) = ((ours, Kind::Tidegate), (target.metric, target.peer));
                let speed = ratios(&self.rates, ours_key, peer_key);
                // The peer's by ours: what costs less is better.
                let thrift = ratios(&self.costs, peer_key, ours_key);
                let Some(speed) = speed else {
                    continue;
                };
                lines.push(vec![
                    ours.title(),
                    target.peer.name().into(),
                    speed.write(ratio),
                    thrift.map_or("–".into(), |thrift| thrift.write(ratio)),
                    ratio(target.at_least),
                    verdict(speed.median >= target.at_least).into(),
                ]);
            }
        }
        report.paragraph(
            "How many times a peer's rate ours is: the median of the rounds, with the lowest and \
             the highest. Beside it, how many times ours a peer's processor time is: that leaves \
             out the disk, and much of what other processes do to a machine that is not idle.",
        );
        let header = ["measurement", "peer", "ratio", "by processor time", "target", "verdict"];
        report.table(&header, &lines);
    }
}

/// One figure divided by another, round by round.
fn ratios(figures: &Figures, above: (Metric, Kind), below: (Metric, Kind)) -> Option<Summary> {
    let (above, below) = (figures.get(&above)?, figures.get(&below)?);
    let pairs = above.iter().zip(below).filter(|(_, below)| **below > 0.0);
    Summary::of(&pairs.map(|(above, below)| above / below).collect::<Vec<_>>())
}

/// A line for each measurement, a column for each engine.
fn write_figures(figures: &Figures, report: &mut Report) {
    let mut metrics: Vec<Metric> = figures.keys().map(|(metric, _)| *metric).collect();
    metrics.dedup();
    let cell = |metric, kind| {
        let summary = Summary::of(figures.get(&(metric, kind)).map_or(&[], Vec::as_slice));
        summary.map_or("–".to_owned(), |summary| summary.write(count))
    };
    let lines: Vec<Vec<String>> = metrics
        .into_iter()
        .map(|metric| {
            let cells = Kind::ALL.map(|kind| cell(metric, kind));
            [&[metric.title()][..], &cells].concat()
        })
        .collect();
    let header: Vec<&str> = ["measurement"].into_iter().chain(Kind::ALL.map(Kind::name)).collect();
    report.table(&header, &lines);
}

/// What has to be known to read the tables.
fn write_conditions(plan: &Plan, data_bytes: usize, report: &mut Report) {
    let mib = |bytes: usize| bytes >> 20;
    report.paragraph(&format!(
        "{} rows of {ROW_BYTES} bytes: keys of 8, values of 192 that are random. Every commit is \
         durable before it returns, for all: one `fdatasync` or more of each, shared where an \
         engine can share it. Every value read is read whole, as a sum of its words, and the sums \
         of all engines are compared. Measured in {} rounds; in each, every engine loads a new \
         database and is measured, in an order drawn from the seed.",
        count(plan.rows as f64),
        plan.rounds
    ));
    report.item(&format!(
        "caches: {} MiB for ours, redb and each connection of SQLite, which holds all rows; LMDB \
         maps its file. Where the data are twice the cache, it has {} MiB, which is half of keys \
         and values; I/O is ordinary, so the system's cache of files serves both engines, and a \
         page that is not in the engine's own costs a copy from there and not a disk",
        mib(data_bytes * 2 + (64 << 20)),
        mib(data_bytes / 2)
    ));
    report.item(
        "reads: every thread has read all rows once before the clock starts. A transaction of \
         ours is serializable (strict two-phase locks on keys and gaps) unless it says read \
         committed; those of the others read a snapshot, which is as consistent for a transaction \
         that only reads",
    );
    report.item(
        "writes: LMDB, redb and SQLite let one transaction write at a time, so that 32 threads \
         take turns. SQLite's turns are taken at a mutex of this process, before one connection \
         that all writes go through (`BEGIN IMMEDIATE`, `synchronous = FULL`)",
    );
    report.item(
        "SQLite's table has the key as `INTEGER PRIMARY KEY`; redb's keys are its `u64`; ours and \
         LMDB's are 8 bytes in big-endian order. LMDB loads with `MDB_APPEND`",
    );
}
