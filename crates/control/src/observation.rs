//! What a controller is told at the end of each control interval.

use std::fmt;
use std::time::Duration;

/// Multiprogramming level: transactions allowed inside the database at once. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mpl(u32);

impl Mpl {
    /// The smallest level: transactions run one after the other.
    pub const ONE: Mpl = Mpl(1);

    /// `level` transactions at once; zero, which would stop the database, becomes one.
    #[must_use]
    pub const fn at_least_one(level: u32) -> Mpl {
        if level == 0 { Mpl::ONE } else { Mpl(level) }
    }

    /// The level as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Mpl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The durations of one stage of the transactions that ended in an interval, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timing {
    /// Number of durations.
    pub count: u64,
    /// Arithmetic mean, seconds; 0 when there are none.
    pub mean_s: f64,
    /// Variance of the population, seconds squared; 0 when there are none.
    pub variance_s2: f64,
    /// Median, seconds.
    pub p50_s: f64,
    /// 95th percentile, seconds.
    pub p95_s: f64,
    /// 99th percentile, seconds.
    pub p99_s: f64,
}

/// What one scheduling class did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassObservation {
    /// Transactions that ended well.
    pub completions: u64,
    /// Transactions that ended in an error or were abandoned.
    pub failures: u64,
    /// Time between the grant of the permit and its return.
    pub in_database: Timing,
    /// Time between the request for a permit and its grant.
    pub in_queue: Timing,
}

/// One control interval, (t(i-1), t(i)] in the notation of the auto-tuning study (Table 3.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Length of the interval.
    pub interval: Duration,
    /// The limit that was in force, `n*(t_i)`.
    pub limit: Mpl,
    /// Permits out plus transactions waiting at the end of the interval, `n(t_i)`.
    pub concurrency: u32,
    /// The highest concurrency seen at any moment of the interval.
    pub concurrency_peak: u32,
    /// The concurrency averaged over the time of the interval.
    pub concurrency_mean: f64,
    /// The share of the interval's time in which a transaction was waiting, from 0 to 1: whether it
    /// was the limit that held throughput where it was, or the load.
    pub waiting_share: f64,
    /// Transactions that ended well, all classes; `P(t_i)` is this over the interval.
    pub completions: u64,
    /// Transactions that ended in an error or were abandoned, all classes.
    pub failures: u64,
    /// Time inside the database, all classes.
    pub in_database: Timing,
    /// Time in the queue, all classes.
    pub in_queue: Timing,
    /// The same for each class, highest class first.
    pub classes: Vec<ClassObservation>,
}

impl Observation {
    /// Completed transactions per second, `P(t_i)`; 0 for an interval without length.
    #[must_use]
    pub fn throughput_tps(&self) -> f64 {
        let seconds = self.interval.as_secs_f64();
        if seconds > 0.0 { self.completions as f64 / seconds } else { 0.0 }
    }

    /// Time from request to end by Little's law, concurrency over throughput, in seconds; 0 when
    /// nothing completed. Unlike the times of the transactions that ended, it does not remember
    /// the queue of earlier intervals.
    #[must_use]
    pub fn response_time_s(&self) -> f64 {
        let throughput = self.throughput_tps();
        if throughput > 0.0 { self.concurrency_mean / throughput } else { 0.0 }
    }
}
