//! What a load run counts.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::{Latency, Stage};

/// The longest latency told apart, in microseconds: an hour.
const LATENCY_MAX_US: u64 = 3_600_000_000;

/// Counters shared by all clients; which ones move depends on the stage.
pub(super) struct Tally {
    pub(super) stage: Stage,
    pub(super) warmup_transactions: u64,
    pub(super) transactions: u64,
    pub(super) late_commits: u64,
    pub(super) retries: u64,
    pub(super) errors: BTreeMap<String, u64>,
    latency_us: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        Tally {
            stage: Stage::Connecting,
            warmup_transactions: 0,
            transactions: 0,
            late_commits: 0,
            retries: 0,
            errors: BTreeMap::new(),
            latency_us: Histogram::new_with_max(LATENCY_MAX_US, 3)
                .expect("an hour in microseconds at three digits is a valid range"),
        }
    }

    /// A transaction that took `latency` was committed.
    pub(super) fn commit(&mut self, latency: Duration) {
        match self.stage {
            Stage::Connecting | Stage::Warmup => self.warmup_transactions += 1,
            Stage::Measuring => {
                self.transactions += 1;
                let latency = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                self.latency_us.saturating_record(latency);
            }
            Stage::Draining => self.late_commits += 1,
        }
    }

    /// Transactions committed at any time.
    pub(super) fn committed(&self) -> u64 {
        self.warmup_transactions + self.transactions + self.late_commits
    }

    /// A statement failed.
    pub(super) fn error(&mut self, code: String) {
        *self.errors.entry(code).or_default() += 1;
    }

    pub(super) fn latency(&self) -> Latency {
        let ms = |us: u64| us as f64 / 1e3;
        let quantile = |quantile| ms(self.latency_us.value_at_quantile(quantile));
        Latency {
            mean_ms: self.latency_us.mean() / 1e3,
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: ms(self.latency_us.max()),
        }
    }
}
