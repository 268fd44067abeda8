//! What a load run counts.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use tidegate_gate::Class;
use tidegate_subject::embedded::NodeLocking;
use tidegate_workload::workload::Kind;
use tidegate_workload::{Conflict, Ending};

use super::{Latency, Stage};

/// The longest latency told apart, in microseconds: an hour.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// Counters shared by all clients; which ones move depends on the stage.
pub(super) struct Tally {
    pub(super) stage: Stage,
    pub(super) warmup_transactions: u64,
    pub(super) transactions: u64,
    pub(super) late_commits: u64,
    pub(super) conflicts: BTreeMap<Conflict, u64>,
    pub(super) errors: BTreeMap<String, u64>,
    /// What the first of them said.
    pub(super) first_error: Option<String>,
    kinds: Vec<OfKind>,
    /// Of each class, in the order of `Class::ALL`.
    classes_us: [Histogram<u64>; 2],
    latency_us: Histogram<u64>,
}

/// The counters of a kind of transaction.
struct OfKind {
    kind: Kind,
    workload: &'static str,
    committed: u64,
    rolled_back: u64,
    latency_us: Histogram<u64>,
    /// Of the transactions done since the interval began.
    interval_us: Histogram<u64>,
    /// What those of the measured time have locked, where that is known.
    locking: Option<NodeLocking>,
    phases_us: Vec<Histogram<u64>>,
}

/// What was seen of a kind of transaction in the measured time.
#[derive(Clone, Debug, Serialize)]
pub struct KindReport {
    pub workload: &'static str,
    pub kind: &'static str,
    pub committed: u64,
    /// Transactions that rolled themselves back, which is an end like another.
    pub rolled_back: u64,
    /// How long they took, retries included.
    pub latency: Latency,
    /// How long their phases took, of those that were not run again, by name: of the phases that
    /// were timed, and empty when there is one phase.
    pub phases: Vec<PhaseOfKind>,
    /// What they locked in documents; `None` where they lock no nodes.
    pub locking: Option<LockingReport>,
}

/// What transactions of a kind have locked, all together, those runs included that ended in a
/// conflict.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LockingReport {
    pub runs: u64,
    /// Requests of locks.
    pub requests: u64,
    /// Locks that were held at the ends of runs.
    pub locks: u64,
    pub conversions: u64,
    pub escalations: u64,
    /// Requests that waited.
    pub waits: u64,
    /// Time that requests took, waits included, in milliseconds.
    pub request_ms: f64,
    /// Time that requests waited for others, in milliseconds.
    pub block_ms: f64,
    /// Runs that ended in a deadlock.
    pub deadlocks: u64,
    /// Runs that ended because a lock was not granted in time.
    pub timeouts: u64,
    /// Runs that gave way to a higher priority.
    pub preemptions: u64,
}

impl From<NodeLocking> for LockingReport {
    fn from(locking: NodeLocking) -> LockingReport {
        LockingReport {
            runs: locking.runs,
            requests: locking.requests,
            locks: locking.locks,
            conversions: locking.conversions,
            escalations: locking.escalations,
            waits: locking.waits,
            request_ms: locking.request_time.as_secs_f64() * 1e3,
            block_ms: locking.block_time.as_secs_f64() * 1e3,
            deadlocks: locking.deadlocks,
            timeouts: locking.timeouts,
            preemptions: locking.preemptions,
        }
    }
}

/// What was seen of a scheduling class in the measured time.
#[derive(Clone, Debug, Serialize)]
pub struct ClassReport {
    pub class: &'static str,
    /// Transactions that came to their end.
    pub transactions: u64,
    /// How long they took, retries included.
    pub latency: Latency,
}

/// How long a phase of a kind of transaction took.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseOfKind {
    pub phase: &'static str,
    /// Transactions of which it was timed.
    pub transactions: u64,
    pub latency: Latency,
}

/// What was seen in one interval of the measured time.
#[derive(Clone, Debug, Serialize)]
pub struct IntervalReport {
    /// When it ended, in seconds of the measured time.
    pub until_s: f64,
    /// Transactions that came to their end.
    pub transactions: u64,
    pub latency: Latency,
    /// The same in full: latencies in microseconds, to three digits, and how many had each.
    #[serde(skip)]
    pub histogram: Vec<(u64, u64)>,
    /// Each kind of transaction that came to its end in it.
    #[serde(skip)]
    pub kinds: Vec<IntervalKind>,
}

/// What was seen of a kind of transaction in one interval.
#[derive(Clone, Debug, PartialEq)]
pub struct IntervalKind {
    pub workload: &'static str,
    pub kind: &'static str,
    /// Transactions that came to their end.
    pub transactions: u64,
    pub mean_ms: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub p99_ms: f64,
}

/// A transaction that has come to its end.
pub(super) struct Ended<'a> {
    pub(super) kind: usize,
    pub(super) class: Class,
    pub(super) ending: Ending,
    /// Since it was scheduled.
    pub(super) latency: Duration,
    /// How long each of its phases took; nothing where that is not known.
    pub(super) phases: &'a [Duration],
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(LATENCY_MAX_US, 3)
        .expect("an hour in microseconds at three digits is a valid range")
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

fn latency(histogram: &Histogram<u64>) -> Latency {
    let ms = |us: u64| us as f64 / 1e3;
    let quantile = |quantile| ms(histogram.value_at_quantile(quantile));
    Latency {
        mean_ms: histogram.mean() / 1e3,
        p50_ms: quantile(0.5),
        p95_ms: quantile(0.95),
        p99_ms: quantile(0.99),
        max_ms: ms(histogram.max()),
    }
}

impl Tally {
    pub(super) fn new() -> Self {
        Tally {
            stage: Stage::Connecting,
            warmup_transactions: 0,
            transactions: 0,
            late_commits: 0,
            conflicts: BTreeMap::new(),
            errors: BTreeMap::new(),
            first_error: None,
            kinds: Vec::new(),
            classes_us: [histogram(), histogram()],
            latency_us: histogram(),
        }
    }

    /// Makes counters for the kinds of a workload, where there are none; the place of the first.
    pub(super) fn add_kinds(&mut self, workload: &'static str, kinds: &[Kind]) -> usize {
        if let Some(place) = self.kinds.iter().position(|counted| counted.workload == workload) {
            return place;
        }
        let first = self.kinds.len();
        self.kinds.extend(kinds.iter().map(|&kind| OfKind {
            kind,
            workload,
            committed: 0,
            rolled_back: 0,
            latency_us: histogram(),
            interval_us: histogram(),
            locking: None,
            phases_us: match kind.phases.len() {
                0 | 1 => Vec::new(),
                count => vec![histogram(); count],
            },
        }));
        first
    }

    /// A kind's names, the workload's first.
    pub(super) fn kind(&self, place: usize) -> (&'static str, &'static str) {
        self.kinds.get(place).map_or(("", ""), |counted| (counted.workload, counted.kind.name))
    }

    /// A transaction has come to its end.
    pub(super) fn ended(&mut self, ended: &Ended<'_>) {
        match self.stage {
            Stage::Connecting | Stage::Ready | Stage::Warmup => {
                self.warmup_transactions += 1;
            }
            Stage::Measuring => self.measured(ended),
            Stage::Draining => self.late_commits += 1,
        }
    }

    fn measured(&mut self, ended: &Ended<'_>) {
        self.transactions += 1;
        record(&mut self.latency_us, ended.latency);
        record(&mut self.classes_us[ended.class.index()], ended.latency);
        let Some(of_kind) = self.kinds.get_mut(ended.kind) else { return };
        match ended.ending {
            Ending::Commit => of_kind.committed += 1,
            Ending::Rollback => of_kind.rolled_back += 1,
        }
        record(&mut of_kind.latency_us, ended.latency);
        record(&mut of_kind.interval_us, ended.latency);
        for (histogram, &time) in of_kind.phases_us.iter_mut().zip(ended.phases) {
            record(histogram, time);
        }
    }

    /// Counts what a transaction of a kind has locked, if it is one of the measured time.
    pub(super) fn locked(&mut self, kind: usize, locking: &NodeLocking) {
        if self.stage == Stage::Measuring
            && let Some(of_kind) = self.kinds.get_mut(kind)
        {
            *of_kind.locking.get_or_insert_default() += *locking;
        }
    }

    /// Transactions that came to their end at any time.
    pub(super) fn total(&self) -> u64 {
        self.warmup_transactions + self.transactions + self.late_commits
    }

    /// A transaction gave way to another, and is to run again.
    pub(super) fn conflict(&mut self, conflict: Conflict) {
        *self.conflicts.entry(conflict).or_default() += 1;
    }

    /// Counts a transaction that failed, and keeps the text of the first.
    pub(super) fn error(&mut self, code: String, text: impl FnOnce() -> String) {
        self.first_error.get_or_insert_with(text);
        *self.errors.entry(code).or_default() += 1;
    }

    pub(super) fn latency(&self) -> Latency {
        latency(&self.latency_us)
    }

    /// What was seen since the interval before ended; the next begins. A transaction is counted
    /// with its kind, and the kinds are added up only here.
    pub(super) fn end_interval(&mut self, until_s: f64) -> IntervalReport {
        let mut seen = histogram();
        let mut kinds = Vec::new();
        for of_kind in self.kinds.iter_mut().filter(|of_kind| !of_kind.interval_us.is_empty()) {
            kinds.push(of_kind.in_interval());
            // All have the same range.
            let _ = seen.add(&of_kind.interval_us);
            of_kind.interval_us.reset();
        }
        IntervalReport {
            until_s,
            transactions: seen.len(),
            latency: latency(&seen),
            histogram: seen
                .iter_recorded()
                .map(|value| (value.value_iterated_to(), value.count_at_value()))
                .collect(),
            kinds,
        }
    }

    pub(super) fn classes(&self) -> Vec<ClassReport> {
        let report = |(class, seen): (Class, &Histogram<u64>)| ClassReport {
            class: class.name(),
            transactions: seen.len(),
            latency: latency(seen),
        };
        Class::ALL.into_iter().zip(&self.classes_us).map(report).collect()
    }

    pub(super) fn kinds(&self) -> Vec<KindReport> {
        let phase = |(&phase, histogram): (&&'static str, &Histogram<u64>)| PhaseOfKind {
            phase,
            transactions: histogram.len(),
            latency: latency(histogram),
        };
        let phases = |of_kind: &OfKind| {
            let phases = of_kind.kind.phases.iter().zip(&of_kind.phases_us);
            // What was never timed did not take no time.
            phases.filter(|(_, histogram)| !histogram.is_empty()).map(phase).collect()
        };
        let report = |of_kind: &OfKind| KindReport {
            workload: of_kind.workload,
            kind: of_kind.kind.name,
            committed: of_kind.committed,
            rolled_back: of_kind.rolled_back,
            latency: latency(&of_kind.latency_us),
            phases: phases(of_kind),
            locking: of_kind.locking.map(LockingReport::from),
        };
        self.kinds.iter().map(report).collect()
    }
}

impl OfKind {
    fn in_interval(&self) -> IntervalKind {
        let seen = &self.interval_us;
        IntervalKind {
            workload: self.workload,
            kind: self.kind.name,
            transactions: seen.len(),
            mean_ms: seen.mean() / 1e3,
            p99_ms: seen.value_at_quantile(0.99) as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 2] =
        [Kind { name: "read", phases: &["all"] }, Kind { name: "write", phases: &["all"] }];

    #[test]
    fn only_the_phases_that_were_timed_are_told() {
        const ORDER: [Kind; 1] = [Kind { name: "order", phases: &["I", "II"] }];
        let mut tally = Tally::new();
        tally.add_kinds("one", &ORDER);
        tally.stage = Stage::Measuring;
        let mut end = |phases: &[Duration]| {
            let (class, ending) = (Class::Normal, Ending::Commit);
            tally.ended(&Ended { kind: 0, class, ending, latency: Duration::from_secs(1), phases });
            let told = |phase: &PhaseOfKind| (phase.phase, phase.transactions);
            tally.kinds()[0].phases.iter().map(told).collect::<Vec<_>>()
        };
        let ms = Duration::from_millis;
        assert!(end(&[]).is_empty());
        // Taken back before the second phase.
        assert_eq!(end(&[ms(3)]), [("I", 1)]);
        assert_eq!(end(&[ms(3), ms(4)]), [("I", 2), ("II", 1)]);
        assert_eq!(end(&[]), [("I", 2), ("II", 1)]);
    }

    #[test]
    fn an_interval_is_the_sum_of_its_kinds_and_begins_anew() {
        let mut tally = Tally::new();
        assert_eq!((tally.add_kinds("one", &KINDS), tally.add_kinds("two", &KINDS)), (0, 2));
        let end = |tally: &mut Tally, kind, us| {
            let latency = Duration::from_micros(us);
            let (class, ending) = (Class::Normal, Ending::Commit);
            tally.ended(&Ended { kind, class, ending, latency, phases: &[] });
        };
        tally.stage = Stage::Warmup;
        end(&mut tally, 0, 900);
        tally.stage = Stage::Measuring;
        for (kind, us) in [(0, 100), (0, 300), (3, 500)] {
            end(&mut tally, kind, us);
        }
        let of = |report: &IntervalReport| {
            let kind = |kind: &IntervalKind| {
                let name = format!("{} {}", kind.workload, kind.kind);
                (name, kind.transactions, kind.mean_ms, kind.p99_ms)
            };
            report.kinds.iter().map(kind).collect::<Vec<_>>()
        };
        let first = tally.end_interval(1.0);
        let expected =
            [("one read".to_owned(), 2, 0.2, 0.3), ("two write".to_owned(), 1, 0.5, 0.5)];
        assert_eq!(of(&first), expected);
        assert_eq!(first.histogram, [(100, 1), (300, 1), (500, 1)]);
        assert_eq!(
            (first.transactions, first.latency.mean_ms, first.latency.max_ms),
            (3, 0.3, 0.5)
        );
        end(&mut tally, 1, 700);
        assert_eq!(of(&tally.end_interval(2.0)), [("one write".to_owned(), 1, 0.7, 0.7)]);
        let empty = tally.end_interval(3.0);
        assert_eq!((of(&empty), empty.transactions, empty.histogram), (vec![], 0, vec![]));
    }
}
