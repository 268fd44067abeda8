//! What passed through the gate: for the controller by interval, for metrics since the start.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tidegate_control::{ClassObservation, Timing};

use crate::request::{Outcome, RefusalReason};

/// Longest duration told apart, microseconds; longer ones count as this long in quantiles.
const LONGEST_US: u64 = 3_600_000_000;

/// Quantiles are good to 1 %.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Returns a duration in microseconds; one of more than 500,000 years as the highest number.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Durations of one stage, in microseconds.
#[derive(Clone, Debug)]
struct Durations {
    histogram: Histogram<u64>,
    sum_s: f64,
    sum_of_squares_s2: f64,
    /// Infinite while there are none.
    shortest_s: f64,
}

impl Durations {
    fn new() -> Self {
        Durations {
            histogram: Histogram::new_with_bounds(1, LONGEST_US, SIGNIFICANT_DIGITS)
                .expect("the bounds are constants that hdrhistogram accepts"),
            sum_s: 0.0,
            sum_of_squares_s2: 0.0,
            shortest_s: f64::INFINITY,
        }
    }

    fn record(&mut self, duration: Duration) {
        self.histogram.saturating_record(micros(duration));
        let seconds = duration.as_secs_f64();
        self.sum_s += seconds;
        self.sum_of_squares_s2 += seconds * seconds;
        self.shortest_s = self.shortest_s.min(seconds);
    }

    fn add(&mut self, other: &Durations) {
        self.histogram.add(&other.histogram).expect("both histograms have the same bounds");
        self.sum_s += other.sum_s;
        self.sum_of_squares_s2 += other.sum_of_squares_s2;
        self.shortest_s = self.shortest_s.min(other.shortest_s);
    }

    fn clear(&mut self) {
        self.histogram.reset();
        self.sum_s = 0.0;
        self.sum_of_squares_s2 = 0.0;
        self.shortest_s = f64::INFINITY;
    }

    fn timing(&self) -> Timing {
        let count = self.histogram.len();
        if count == 0 {
            return Timing::default();
        }
        let mean_s = self.sum_s / count as f64;
        let quantile_s = |quantile| self.histogram.value_at_quantile(quantile) as f64 / 1e6;
        Timing {
            count,
            mean_s,
            // Rounding may leave less than nothing.
            variance_s2: (self.sum_of_squares_s2 / count as f64 - mean_s * mean_s).max(0.0),
            min_s: self.shortest_s,
            p50_s: quantile_s(0.50),
            p95_s: quantile_s(0.95),
            p99_s: quantile_s(0.99),
        }
    }
}

/// Durations since the start, for a metrics page.
#[derive(Clone, Debug)]
pub struct DurationTotals(Durations);

impl DurationTotals {
    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.histogram.len()
    }

    /// Their sum in seconds.
    #[must_use]
    pub fn sum_s(&self) -> f64 {
        self.0.sum_s
    }

    /// Returns how many durations were at most `bound`, to the histogram's resolution of 1 %.
    #[must_use]
    pub fn count_within(&self, bound: Duration) -> u64 {
        self.0.histogram.count_between(0, micros(bound))
    }
}

/// What one class did since the start.
#[derive(Clone, Debug)]
pub struct ClassTotals {
    /// Transactions that ended well.
    pub completions: u64,
    /// Transactions that ended in an error or were abandoned.
    pub failures: u64,
    /// Time between grant and return, without the time for which the permit was lent.
    pub in_database: DurationTotals,
    /// Time between request and grant.
    pub in_queue: DurationTotals,
    /// The two together, of the transactions that ended.
    pub response: DurationTotals,
    /// Requests refused at once, by reason, in the order of [`RefusalReason::ALL`].
    pub refused: [u64; RefusalReason::ALL.len()],
    /// Requests that waited for as long as they may.
    pub expired: u64,
    /// Requests that could no longer be done in time when they had waited.
    pub late: u64,
    /// Requests withdrawn while waiting.
    pub withdrawn: u64,
    /// Requests that went before others because they had waited for longer than the ageing time.
    pub aged: u64,
    /// Transactions waiting now.
    pub waiting: u32,
    /// Permits that count now.
    pub running: u32,
}

/// Requests of one class that got no permit, or got it by ageing, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestCounts {
    pub(crate) refused: [u64; RefusalReason::ALL.len()],
    pub(crate) expired: u64,
    pub(crate) late: u64,
    pub(crate) withdrawn: u64,
    pub(crate) aged: u64,
}

impl RequestCounts {
    pub(crate) fn refuse(&mut self, reason: RefusalReason) {
        self.refused[reason as usize] += 1;
    }
}

/// Counts and durations of one class.
#[derive(Clone, Debug)]
struct ClassTally {
    completions: u64,
    failures: u64,
    in_database: Durations,
    in_queue: Durations,
    response: Durations,
    /// Responses that took longer than they should.
    late: u64,
}

impl ClassTally {
    fn new() -> Self {
        ClassTally {
            completions: 0,
            failures: 0,
            in_database: Durations::new(),
            in_queue: Durations::new(),
            response: Durations::new(),
            late: 0,
        }
    }

    fn add(&mut self, other: &ClassTally) {
        self.completions += other.completions;
        self.failures += other.failures;
        self.in_database.add(&other.in_database);
        self.in_queue.add(&other.in_queue);
        self.response.add(&other.response);
        self.late += other.late;
    }

    fn clear(&mut self) {
        self.completions = 0;
        self.failures = 0;
        self.in_database.clear();
        self.in_queue.clear();
        self.response.clear();
        self.late = 0;
    }

    fn observation(&self) -> ClassObservation {
        ClassObservation {
            completions: self.completions,
            failures: self.failures,
            in_database: self.in_database.timing(),
            in_queue: self.in_queue.timing(),
            response: self.response.timing(),
            late: self.late,
        }
    }
}

/// How many transactions there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PopulationCounts {
    /// Permits that count.
    pub(crate) running: u32,
    /// Lent permits.
    pub(crate) idle: u32,
    /// Discounted permits.
    pub(crate) discounted: u32,
    pub(crate) waiting: u32,
}

/// How many transactions there were, over the time of an interval.
#[derive(Debug)]
pub(crate) struct PopulationTime {
    /// Up to when the sums go.
    until: Instant,
    /// Concurrency times seconds.
    concurrency_s: f64,
    /// Permits that count times seconds.
    running_s: f64,
    /// Lent permits times seconds.
    idle_s: f64,
    /// Discounted permits times seconds.
    discounted_s: f64,
    /// Seconds in which somebody waited.
    waiting_s: f64,
}

/// An interval's means over its time.
#[derive(Debug, Default)]
pub(crate) struct PopulationMeans {
    pub(crate) concurrency: f64,
    pub(crate) running: f64,
    pub(crate) idle: f64,
    pub(crate) discounted: f64,
    /// The share of the time in which somebody waited.
    pub(crate) waiting_share: f64,
}

impl PopulationTime {
    pub(crate) fn new(now: Instant) -> Self {
        PopulationTime {
            until: now,
            concurrency_s: 0.0,
            running_s: 0.0,
            idle_s: 0.0,
            discounted_s: 0.0,
            waiting_s: 0.0,
        }
    }

    /// Up to when the time is accounted for.
    pub(crate) fn until(&self) -> Instant {
        self.until
    }

    /// Up to `now` there have been so many, since the last call.
    pub(crate) fn advance(&mut self, now: Instant, present: PopulationCounts) {
        let PopulationCounts { running, idle, discounted, waiting } = present;
        let passed_s = now.saturating_duration_since(self.until).as_secs_f64();
        debug_assert!(self.until <= now, "the gate's time never goes back");
        self.until = now;
        self.concurrency_s += passed_s * (f64::from(running) + f64::from(waiting));
        self.running_s += passed_s * f64::from(running);
        self.idle_s += passed_s * f64::from(idle);
        self.discounted_s += passed_s * f64::from(discounted);
        if waiting > 0 {
            self.waiting_s += passed_s;
        }
    }

    /// Returns the means of an interval of this length, which ends here.
    pub(crate) fn end_interval(&mut self, interval: Duration) -> PopulationMeans {
        let ended = std::mem::replace(self, PopulationTime::new(self.until));
        let length_s = interval.as_secs_f64();
        if length_s <= 0.0 {
            return PopulationMeans::default();
        }
        debug_assert!(ended.waiting_s <= length_s + 1e-6, "it was waited during the interval");
        PopulationMeans {
            concurrency: ended.concurrency_s / length_s,
            running: ended.running_s / length_s,
            idle: ended.idle_s / length_s,
            discounted: ended.discounted_s / length_s,
            waiting_share: ended.waiting_s / length_s,
        }
    }
}

/// How long the parts of a transaction took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionTimes {
    pub(crate) in_queue: Duration,
    pub(crate) in_database: Duration,
}

/// The current interval, and everything before it.
#[derive(Debug)]
pub(crate) struct ClassStatistics {
    interval: ClassTally,
    earlier: ClassTally,
    /// The longest response time that is not late.
    within: Duration,
    pub(crate) requests: RequestCounts,
}

impl ClassStatistics {
    pub(crate) fn new() -> Self {
        let within = Duration::MAX;
        ClassStatistics {
            interval: ClassTally::new(),
            earlier: ClassTally::new(),
            within,
            requests: RequestCounts::default(),
        }
    }

    /// From now on a response is late when it is longer than this.
    pub(crate) fn count_late(&mut self, within: Duration) {
        self.within = within;
    }

    /// Records the wait for a permit; an exception goes into the totals alone.
    pub(crate) fn record_wait(&mut self, in_queue: Duration, is_exception: bool) {
        let tally = if is_exception { &mut self.earlier } else { &mut self.interval };
        tally.in_queue.record(in_queue);
    }

    /// Counts the end of a transaction. The time of one whose permit was discounted, or that has
    /// met an outage, is an exception that is to teach a controller nothing: it goes into the
    /// totals alone.
    pub(crate) fn record_end(
        &mut self,
        outcome: Outcome,
        spent: TransactionTimes,
        is_exception: bool,
    ) {
        match outcome {
            Outcome::Completed => self.interval.completions += 1,
            Outcome::Failed => self.interval.failures += 1,
        }
        let tally = if is_exception { &mut self.earlier } else { &mut self.interval };
        let response = spent.in_queue + spent.in_database;
        tally.in_database.record(spent.in_database);
        tally.response.record(response);
        tally.late += u64::from(response > self.within);
    }

    pub(crate) fn completions(&self) -> u64 {
        self.interval.completions
    }

    /// Moves what the interval has so far into the totals: no controller is to learn it.
    pub(crate) fn drop_interval(&mut self) {
        let ClassTally { completions, failures, in_queue, .. } = &self.interval;
        if completions + failures + in_queue.histogram.len() == 0 {
            return;
        }
        self.earlier.add(&self.interval);
        self.interval.clear();
    }

    /// Returns all that was counted, with what waits and runs now.
    pub(crate) fn totals(&self, waiting: u32, running: u32) -> ClassTotals {
        let mut all = self.earlier.clone();
        all.add(&self.interval);
        ClassTotals {
            completions: all.completions,
            failures: all.failures,
            in_database: DurationTotals(all.in_database),
            in_queue: DurationTotals(all.in_queue),
            response: DurationTotals(all.response),
            refused: self.requests.refused,
            expired: self.requests.expired,
            late: self.requests.late,
            withdrawn: self.requests.withdrawn,
            aged: self.requests.aged,
            waiting,
            running,
        }
    }
}

/// Ends the interval of all classes: each class by itself, and all together.
pub(crate) fn end_interval(
    classes: &mut [ClassStatistics],
) -> (Vec<ClassObservation>, ClassObservation) {
    let mut together = ClassTally::new();
    let mut each = Vec::with_capacity(classes.len());
    for class in classes {
        each.push(class.interval.observation());
        together.add(&class.interval);
        class.earlier.add(&class.interval);
        class.interval.clear();
    }
    (each, together.observation())
}
