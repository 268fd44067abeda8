//! What a controller is told at the end of each control interval.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ServerObservation;

/// Multiprogramming level: transactions allowed inside the database at once. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Mpl(u32);

/// A record with a level that none can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a limit is 0, and the lowest is 1")]
pub struct LimitZero;

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

impl TryFrom<u32> for Mpl {
    type Error = LimitZero;

    fn try_from(level: u32) -> Result<Mpl, LimitZero> {
        if level == 0 { Err(LimitZero) } else { Ok(Mpl(level)) }
    }
}

impl From<Mpl> for u32 {
    fn from(level: Mpl) -> u32 {
        level.get()
    }
}

impl fmt::Display for Mpl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The durations of one stage of the transactions that ended in an interval, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Number of durations.
    pub count: u64,
    /// Arithmetic mean, seconds; 0 when there are none.
    pub mean_s: f64,
    /// Variance of the population, seconds squared; 0 when there are none.
    pub variance_s2: f64,
    /// The shortest, seconds; 0 when there are none.
    pub min_s: f64,
    /// Median, seconds.
    pub p50_s: f64,
    /// 95th percentile, seconds.
    pub p95_s: f64,
    /// 99th percentile, seconds.
    pub p99_s: f64,
}

/// What one scheduling class did in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassObservation {
    /// Transactions that ended well.
    pub completions: u64,
    /// Transactions that ended in an error or were abandoned.
    pub failures: u64,
    /// Time between the grant of the permit and its return, without the time for which its client
    /// was idle and it did not count.
    pub in_database: Timing,
    /// Time between the request for a permit and its grant.
    pub in_queue: Timing,
    /// The two together for each transaction that ended: the time between the request and the
    /// return of the permit. Without numbers in a journal that was written before it was measured.
    #[serde(default)]
    pub response: Timing,
    /// Of `response`, those that were longer than the response time to keep for the class; 0 where
    /// there is none.
    #[serde(default)]
    pub late: u64,
}

/// What the lock manager of the database held at the end of an interval, or on average over it
/// where it is sampled. A transaction is *mature* once it holds a quarter of the locks it will ask
/// for (Carey, Krishnamurthi and Livny, 1990).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockObservation {
    /// Mature transactions that run.
    pub mature_running: u32,
    /// Mature transactions that wait for a lock.
    pub mature_blocked: u32,
    /// Other transactions that run.
    pub young_running: u32,
    /// Other transactions that wait for a lock.
    pub young_blocked: u32,
    /// Locks held by all transactions.
    pub locks_held: u64,
    /// Locks held by the transactions that run.
    pub locks_held_by_running: u64,
}

/// One control interval, (t(i-1), t(i)] in the notation of the auto-tuning study (Table 3.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Length of the interval.
    pub interval: Duration,
    /// The limit that was in force, `n*(t_i)`.
    pub limit: Mpl,
    /// Permits that count against the limit at the end of the interval.
    pub running: u32,
    /// Permits out at the end of the interval that do not count, because their clients are idle
    /// inside their transactions. They are in no other number of the population. 0 in a journal
    /// that was written before they were told apart, where they are among those that count.
    #[serde(default)]
    pub idle: u32,
    /// The same, averaged over the time of the interval.
    #[serde(default)]
    pub idle_mean: f64,
    /// Permits out at the end of the interval that do not count, because they have been out far
    /// longer than usual: see [`OverdueRule`](crate::OverdueRule). They are in no other number of
    /// the population.
    #[serde(default)]
    pub discounted: u32,
    /// The same, averaged over the time of the interval.
    #[serde(default)]
    pub discounted_mean: f64,
    /// Permits that count plus transactions waiting at the end of the interval, `n(t_i)`.
    pub concurrency: u32,
    /// The highest concurrency seen at any moment of the interval.
    pub concurrency_peak: u32,
    /// The concurrency averaged over the time of the interval.
    pub concurrency_mean: f64,
    /// The permits that count, averaged over the time of the interval: the MPL at which the
    /// database really worked, above the limit while a lowered limit takes effect, below it under a
    /// light load.
    pub running_mean: f64,
    /// The share of the interval's time in which a transaction was waiting, from 0 to 1: whether it
    /// was the limit that held throughput where it was, or the load.
    pub waiting_share: f64,
    /// Transactions that ended well, all classes; `P(t_i)` is this over the interval.
    pub completions: u64,
    /// Transactions that ended in an error or were abandoned, all classes.
    pub failures: u64,
    /// Time inside the database, all classes: that for which permits counted, so that throughput
    /// times its mean is `running_mean` (Little's law). Transactions whose permits were discounted
    /// are among the completions and failures and have no duration here.
    pub in_database: Timing,
    /// Time in the queue, all classes.
    pub in_queue: Timing,
    /// The state of the lock manager, where the database tells it.
    pub locks: Option<LockObservation>,
    /// What the sessions of the server did, where they are watched. Absent in a journal that was
    /// written before they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerObservation>,
    /// The same for each class, highest class first.
    pub classes: Vec<ClassObservation>,
}

impl Observation {
    /// Returns an interval at `limit` in which nothing ran or waited.
    #[must_use]
    pub fn empty(interval: Duration, limit: Mpl) -> Observation {
        Observation {
            interval,
            limit,
            running: 0,
            idle: 0,
            idle_mean: 0.0,
            discounted: 0,
            discounted_mean: 0.0,
            concurrency: 0,
            concurrency_peak: 0,
            concurrency_mean: 0.0,
            running_mean: 0.0,
            waiting_share: 0.0,
            completions: 0,
            failures: 0,
            in_database: Timing::default(),
            in_queue: Timing::default(),
            locks: None,
            server: None,
            classes: Vec::new(),
        }
    }

    /// Whether its numbers can be times, shares and populations. Others are no evidence: one that
    /// is not a number would be in every estimate from then on.
    pub(crate) fn is_sound(&self) -> bool {
        const MOST: f64 = 1e12;
        let Timing { mean_s, variance_s2, .. } = self.in_database;
        let numbers = [
            self.interval.as_secs_f64(),
            self.running_mean,
            self.concurrency_mean,
            self.waiting_share,
            mean_s,
            variance_s2,
        ];
        numbers.into_iter().all(|number| (0.0..=MOST).contains(&number))
    }

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
