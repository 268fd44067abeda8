//! What is done to an engine while the clock runs.
//!
//! Each thread has its session and has read every row by it once before the clock starts, so that
//! caches are as warm as they get. The time is that from the first thread's start to the last
//! one's end. Processor time is that of the whole process, with an engine's threads in the
//! background, and in ticks of 10 ms: it says what an engine costs also where another process
//! has the processors.

use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_engine::Isolation;

use crate::engines::{Engine, Operation, Session};
use crate::rows::Keys;
use crate::used::Used;
use crate::{Result, Stop};

/// Rows of a transaction of the load.
pub(crate) const LOAD_BATCH: u64 = 10_000;

/// Rows that one short scan reads.
pub(crate) const SCAN_ROWS: u64 = 100;

/// How much was done in which time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// Rows read or transactions committed, as the measurement says.
    count: u64,
    time: Duration,
    /// In seconds.
    processor_s: f64,
    /// Of what was read: the same for each engine.
    pub(crate) sum: u64,
}

impl Done {
    /// In a second.
    pub(crate) fn rate(&self) -> f64 {
        self.count as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Processor time for each, in microseconds.
    pub(crate) fn processor_us(&self) -> f64 {
        self.processor_s * 1e6 / (self.count as f64).max(1.0)
    }
}

/// An engine with so many rows, under measurement.
pub(crate) struct Subject<'e> {
    /// It.
    pub(crate) engine: &'e dyn Engine,
    /// Rows it has, or will have.
    pub(crate) rows: u64,
    /// What choices follow from.
    pub(crate) seed: u64,
    /// Whether to go on.
    pub(crate) stop: &'e Stop,
}

/// Random reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// Threads that read at once.
    pub(crate) threads: u64,
    /// Rows that each of them reads.
    pub(crate) each: u64,
    /// Rows of a transaction.
    pub(crate) batch: usize,
    /// That of ours.
    pub(crate) isolation: Isolation,
}

impl Subject<'_> {
    /// Appends all rows; what was loaded when the last commit returned, and when everything was
    /// written to its place.
    pub(crate) fn load(&self) -> Result<(Done, Done)> {
        let mut session = self.engine.session(Isolation::Serializable)?;
        let (begin, before) = (Instant::now(), Used::now()?);
        let done = || -> Result<Done> {
            let processor_s = Used::now()?.since(&before).processor_s;
            Ok(Done { count: self.rows, time: begin.elapsed(), processor_s, sum: 0 })
        };
        for batch in batches(self.rows, LOAD_BATCH) {
            self.stop.check()?;
            session.append(batch)?;
        }
        let loaded = done();
        self.engine.settle()?;
        Ok((loaded?, done()?))
    }

    /// Random rows, many to a transaction.
    pub(crate) fn random_reads(&self, reads: Reads) -> Result<Done> {
        let prepare = |_| self.warm(reads.isolation);
        let work = |thread: u64, mut session: Box<dyn Session + '_>| {
            let mut keys = Keys::new(self.seed, thread, self.rows);
            let mut batch = vec![0; reads.batch];
            let (mut count, mut sum) = (0, 0_u64);
            while count < reads.each {
                self.stop.check()?;
                batch.fill_with(|| keys.next());
                sum = sum.wrapping_add(session.read(&batch)?);
                count += batch.len() as u64;
            }
            Ok((count, sum))
        };
        on_threads(reads.threads, &prepare, &work)
    }

    /// Short scans from random keys, a transaction each.
    pub(crate) fn short_scans(&self, scans: u64, isolation: Isolation) -> Result<Done> {
        let prepare = |_| self.warm(isolation);
        let work = |thread, mut session: Box<dyn Session + '_>| {
            let from = self.rows.saturating_sub(SCAN_ROWS);
            let mut keys = Keys::new(self.seed, thread, from);
            let mut sum = 0_u64;
            for _ in 0..scans {
                self.stop.check()?;
                sum = sum.wrapping_add(session.scan(keys.next(), SCAN_ROWS)?);
            }
            Ok((scans * SCAN_ROWS, sum))
        };
        on_threads(1, &prepare, &work)
    }

    /// All rows in one transaction.
    pub(crate) fn full_scan(&self, isolation: Isolation) -> Result<Done> {
        let prepare = |_| self.warm(isolation);
        let work =
            |_, mut session: Box<dyn Session + '_>| Ok((self.rows, session.scan(0, u64::MAX)?));
        on_threads(1, &prepare, &work)
    }

    /// Transactions that replace one random row and are durable.
    pub(crate) fn commits(&self, threads: u64, time: Duration) -> Result<Done> {
        let prepare = |_| self.engine.session(Isolation::Serializable);
        let work = |thread, session| self.until(time, thread, session, 1, &|_| true);
        on_threads(threads, &prepare, &work)
    }

    /// Durable transactions of `batch` rows, of which half are replaced and half read; rows in
    /// which time.
    pub(crate) fn mix(&self, time: Duration, batch: usize) -> Result<Done> {
        let prepare = |_| self.engine.session(Isolation::Serializable);
        let work = |thread, session| {
            let (transactions, sum) = self.until(time, thread, session, batch, &Keys::toss)?;
            Ok((transactions * batch as u64, sum))
        };
        on_threads(1, &prepare, &work)
    }

    /// Writes until the time is over; how many transactions, and the sum of what they read.
    fn until(
        &self,
        time: Duration,
        thread: u64,
        mut session: Box<dyn Session + '_>,
        batch: usize,
        is_replaced: &dyn Fn(&mut Keys) -> bool,
    ) -> Result<(u64, u64)> {
        let mut keys = Keys::new(!self.seed, thread, self.rows);
        let mut operations = Vec::with_capacity(batch);
        let (begin, mut count, mut sum) = (Instant::now(), 0, 0_u64);
        while begin.elapsed() < time {
            self.stop.check()?;
            operations.clear();
            for _ in 0..batch {
                let key = keys.next();
                let replaces = is_replaced(&mut keys);
                // No version is given twice by a thread.
                let version = (count + 1) << 8 | thread;
                operations.push(if replaces {
                    Operation::Replace(key, version)
                } else {
                    Operation::Read(key)
                });
            }
            sum = sum.wrapping_add(session.write(&operations)?);
            count += 1;
        }
        Ok((count, sum))
    }

    /// A session by which every row was read once.
    fn warm(&self, isolation: Isolation) -> Result<Box<dyn Session + '_>> {
        let mut session = self.engine.session(isolation)?;
        for batch in batches(self.rows, LOAD_BATCH) {
            self.stop.check()?;
            session.scan(batch.start, LOAD_BATCH)?;
        }
        Ok(session)
    }
}

/// The numbers below `count`, in ranges of `step`.
fn batches(count: u64, step: u64) -> impl Iterator<Item = Range<u64>> {
    (0..count.div_ceil(step)).map(move |batch| batch * step..count.min((batch + 1) * step))
}

/// What a thread has done: a count and a sum.
type Part = (u64, u64);

/// Prepares so many threads, then lets them work at once.
fn on_threads<P>(
    threads: u64,
    prepare: &(impl Fn(u64) -> Result<P> + Sync),
    work: &(impl Fn(u64, P) -> Result<Part> + Sync),
) -> Result<Done> {
    let barrier = Barrier::new(usize::try_from(threads)? + 1);
    let run = |thread| {
        let prepared = prepare(thread);
        // Also who has failed comes here: the others wait for all.
        barrier.wait();
        let begin = Instant::now();
        let part = prepared.and_then(|prepared| work(thread, prepared));
        (begin, Instant::now(), part)
    };
    let mut before = Ok(Used::default());
    let ended: Vec<_> = thread::scope(|scope| {
        let run = &run;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        barrier.wait();
        before = Used::now();
        running.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")).collect()
    });
    let processor_s = Used::now()?.since(&before?).processor_s;
    let mut done = Done { count: 0, time: Duration::ZERO, processor_s, sum: 0 };
    let mut span: Option<(Instant, Instant)> = None;
    for thread in ended {
        let (begin, end, part) = thread?;
        let (count, sum) = part?;
        done.count += count;
        done.sum = done.sum.wrapping_add(sum);
        span = Some(span.map_or((begin, end), |(first, last)| (first.min(begin), last.max(end))));
    }
    done.time = span.map_or(Duration::ZERO, |(first, last)| last - first);
    Ok(done)
}
