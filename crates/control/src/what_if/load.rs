//! The load: whether it fills the limit, how many are present, and what it asks for if not.

use std::collections::VecDeque;

use crate::Observation;

/// The load is that of the last seconds; a block is longer.
const MEMORY_S: f64 = 3.0;
const BLOCK_S: f64 = 10.0;

/// Clients have left if those of the last moment, seconds, are fewer than this share of those of
/// the last seconds.
const NOW_S: f64 = 0.25;
const LEFT: f64 = 0.7;

/// Somebody waits for at least this share of the time if the limit holds throughput.
const BINDING: f64 = 0.8;

/// Nobody waits, but for this share of the time, if the load does.
const FREE: f64 = 0.2;

/// The number inside is constant if its mean is this share of its peak.
const CONSTANT: f64 = 0.9;

/// The number of clients is constant, and none thinks, if the mean present is this share of the
/// peak.
const UNCHANGED: f64 = 0.99;

/// Weight of the assumption about a load's changes from one block to the next, in blocks, and the
/// weight of older blocks.
const ASSUMED: f64 = 3.0;
const KEPT: f64 = 0.95;

/// What holds throughput where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldBy {
    /// The limit, or a number of clients that all run.
    Limit,
    /// Partly the limit.
    Both,
    /// The load.
    Load,
}

/// Sums over some intervals.
#[derive(Clone, Copy, Debug, Default)]
struct LoadSums {
    seconds: f64,
    completions: f64,
    running_s: f64,
    present_s: f64,
    waiting_s: f64,
    peak: u32,
}

/// The load of the last seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentLoad {
    recent: VecDeque<LoadSums>,
    /// ln X and ln of the response time of the last block.
    before: Option<(f64, f64)>,
    /// Sums of squared changes of both between blocks, and their weight.
    changes: (f64, f64),
    weight: f64,
}

/// A mean and a variance of logarithms.
pub(super) type Normal = (f64, f64);

impl RecentLoad {
    pub(super) fn take(&mut self, seen: &Observation) {
        let seconds = seen.interval.as_secs_f64();
        self.recent.push_back(LoadSums {
            seconds,
            completions: seen.completions as f64,
            running_s: seconds * seen.running_mean,
            present_s: seconds * seen.concurrency_mean,
            waiting_s: seconds * seen.waiting_share,
            peak: seen.concurrency_peak,
        });
        let mut all: f64 = self.recent.iter().map(|sums| sums.seconds).sum();
        while let Some(first) = self.recent.front()
            && all - first.seconds >= BLOCK_S
        {
            all -= first.seconds;
            self.recent.pop_front();
        }
    }

    /// Sums over the last seconds, at least so many.
    fn sums_of(&self, seconds: f64) -> LoadSums {
        let mut sum = LoadSums::default();
        for one in self.recent.iter().rev() {
            if sum.seconds >= seconds {
                break;
            }
            sum = LoadSums {
                seconds: sum.seconds + one.seconds,
                completions: sum.completions + one.completions,
                running_s: sum.running_s + one.running_s,
                present_s: sum.present_s + one.present_s,
                waiting_s: sum.waiting_s + one.waiting_s,
                peak: sum.peak.max(one.peak),
            };
        }
        sum
    }

    fn sums(&self) -> LoadSums {
        self.sums_of(MEMORY_S)
    }

    pub(super) fn held(&self) -> HeldBy {
        let sums = self.sums();
        let waiting = sums.waiting_s / sums.seconds;
        let is_constant = sums.running_s >= CONSTANT * f64::from(sums.peak) * sums.seconds;
        if waiting >= BINDING || is_constant {
            HeldBy::Limit
        } else if waiting >= FREE {
            HeldBy::Both
        } else {
            HeldBy::Load
        }
    }

    /// Whether the number that runs or waits does not change, so that it is that of the clients,
    /// and they do not think.
    pub(super) fn is_constant(&self) -> bool {
        let sums = self.sums();
        sums.present_s >= UNCHANGED * f64::from(sums.peak) * sums.seconds
    }

    /// Transactions that run or wait, and those that run, in the mean.
    pub(super) fn present(&self) -> (f64, f64) {
        let mean = |sums: LoadSums| {
            let seconds = sums.seconds.max(1e-9);
            (sums.present_s / seconds, sums.running_s / seconds)
        };
        let (before, now) = (mean(self.sums()), mean(self.sums_of(NOW_S)));
        if now.0 < LEFT * before.0 { now } else { before }
    }

    /// The most that ran or waited.
    pub(super) fn peak(&self) -> f64 {
        f64::from(self.sums().peak)
    }

    /// Ends a block: how much it differs from the one before is how well the load can be foretold.
    pub(super) fn end_block(&mut self) {
        let now = self.logarithms();
        if let (Some(now), Some(before)) = (now, self.before) {
            let squares = ((now.0 - before.0).powi(2), (now.1 - before.1).powi(2));
            self.changes = (KEPT * self.changes.0 + squares.0, KEPT * self.changes.1 + squares.1);
            self.weight = KEPT * self.weight + 1.0;
        }
        self.before = now.or(self.before);
    }

    fn logarithms(&self) -> Option<(f64, f64)> {
        let sums = self.sums_of(BLOCK_S);
        let is_some = sums.completions > 0.0 && sums.present_s > 0.0;
        is_some.then(|| {
            let response_s = sums.present_s / sums.completions;
            (libm::log(sums.completions / sums.seconds), libm::log(response_s))
        })
    }

    /// ln X and ln of the response time of the next block, if nothing holds the load back.
    pub(super) fn next(&self) -> Option<(Normal, Normal)> {
        let (ln_x, ln_response) = self.logarithms()?;
        // Two blocks of independent arrivals, and a tenth that may have changed.
        let assumed = 2.0 / self.sums_of(BLOCK_S).completions + 0.01;
        let variance = |squares: f64| (ASSUMED * assumed + squares) / (ASSUMED + self.weight);
        Some(((ln_x, variance(self.changes.0)), (ln_response, variance(self.changes.1))))
    }
}
