//! From ticks to a measurement: what is washed out, and how long it takes to know something.

use crate::{Observation, Timing};

/// What a finished window says about the limit that it was measured at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct WindowSample {
    pub(crate) limit: u32,
    /// ln of transactions per second.
    pub(crate) ln_x: f64,
    /// Variance of `ln_x`.
    pub(crate) variance: f64,
    /// Length of the window, seconds, and of what was washed out before it.
    pub(crate) seconds: f64,
    pub(crate) washed_s: f64,
    pub(crate) completions: f64,
    /// Share of the time in which somebody waited.
    pub(crate) waiting: f64,
    /// Permits out and transactions present, averaged over the window.
    pub(crate) running: f64,
    pub(crate) present: f64,
}

impl WindowSample {
    /// Whether the limit held throughput where it was, or the number of clients did, which are
    /// always the same: then throughput is that of so many inside.
    pub(crate) fn is_saturated(&self, ceiling: u32) -> bool {
        self.waiting >= 0.8 || self.running >= 0.9 * f64::from(ceiling)
    }

    pub(crate) fn tps(&self) -> f64 {
        libm::exp(self.ln_x)
    }
}

/// How long a window has to be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Want {
    pub(crate) seconds: f64,
    pub(crate) completions: f64,
    pub(crate) longest_s: f64,
}

impl Want {
    /// What there is, however little.
    pub(crate) const NOW: Want = Want { seconds: 0.0, completions: 0.0, longest_s: 0.0 };
}

/// The ticks since the last move.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettlingWindow {
    /// Seconds since the limit was changed; completions and seconds since the population fitted.
    since_s: f64,
    fits_s: f64,
    fits: f64,
    has_fitted: bool,
    is_washed: bool,
    washed_s: f64,
    seconds: f64,
    completions: f64,
    running_s: f64,
    present_s: f64,
    waiting_s: f64,
    /// Number, sum and sum of squares of the times in the database of what ended.
    times: (f64, f64, f64),
}

impl SettlingWindow {
    /// A window after a move of the limit: nothing counts before the transition is over.
    pub(crate) fn after_move() -> SettlingWindow {
        SettlingWindow::default()
    }

    /// A window in which everything counts: there is no transition, or who reads it knows of it.
    pub(crate) fn settled() -> SettlingWindow {
        SettlingWindow { is_washed: true, ..SettlingWindow::default() }
    }

    /// A further window at the same limit.
    pub(crate) fn next(&self) -> SettlingWindow {
        SettlingWindow {
            is_washed: self.is_washed,
            since_s: self.since_s,
            ..SettlingWindow::default()
        }
    }

    /// Adds a tick. `residence_s` is the present estimate of the time in the database,
    /// `patience_s` the shortest transition.
    pub(crate) fn add(&mut self, seen: &Observation, residence_s: f64, patience_s: f64) {
        let seconds = seen.interval.as_secs_f64();
        self.since_s += seconds;
        if self.is_washed {
            self.seconds += seconds;
            self.completions += seen.completions as f64;
            self.running_s += seconds * seen.running_mean;
            self.present_s += seconds * seen.concurrency_mean;
            self.waiting_s += seconds * seen.waiting_share;
            let Timing { count, mean_s, variance_s2, .. } = seen.in_database;
            let count = count as f64;
            self.times.0 += count;
            self.times.1 += count * mean_s;
            self.times.2 += count * (variance_s2 + mean_s * mean_s);
            return;
        }
        self.washed_s += seconds;
        let limit = f64::from(seen.limit.get());
        if self.has_fitted {
            self.fits_s += seconds;
            self.fits += seen.completions as f64;
        }
        self.has_fitted |= f64::from(seen.running) <= limit * 1.02 + 1.0;
        // What was begun before the move has ended once as many have ended as are inside; where
        // that takes no time worth speaking of, a part is enough.
        let turnover = if residence_s > 0.2 { 0.7 } else { 0.3 };
        let inside = f64::from(seen.running).min(limit);
        let is_over = self.has_fitted
            && self.since_s >= patience_s
            && (residence_s < 0.02
                || self.fits >= turnover * inside
                || self.fits_s >= residence_s + 0.05);
        if is_over || self.since_s > 60.0 {
            self.is_washed = true;
        }
    }

    /// Completions since the move, washed out or not, is 0.
    pub(crate) fn is_washed(&self) -> bool {
        self.is_washed
    }

    /// Seconds since the limit was changed.
    pub(crate) fn since_s(&self) -> f64 {
        self.since_s
    }

    pub(crate) fn completions(&self) -> f64 {
        self.completions
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Throughput by Little's law from the times of transactions that all take about as long: they
    /// end in bursts, so that a count depends on where the window begins.
    fn by_times(&self, running: f64) -> Option<(f64, f64)> {
        let (count, sum, squares) = self.times;
        let mean_s = sum / count;
        let variation = squares / count / (mean_s * mean_s) - 1.0;
        // Those that end first after a move are the short ones.
        let has_turned = count >= 0.25 * running;
        let is_regular =
            count >= 4.0 && has_turned && mean_s > 0.05 && variation < 0.05 && running > 0.0;
        is_regular.then(|| (libm::log(running / mean_s), variation.max(0.01) / count))
    }

    /// The measurement, if the window is long enough. `noise` is the variance of the speed of a
    /// tick of 100 ms.
    pub(crate) fn sample(&self, limit: u32, want: Want, noise: f64) -> Option<WindowSample> {
        let enough = self.completions >= want.completions && self.seconds >= want.seconds;
        if !self.is_washed || self.seconds <= 0.0 || !(enough || self.seconds >= want.longest_s) {
            return None;
        }
        let completions = self.completions.max(0.5);
        let running = self.running_s / self.seconds;
        let (ln_x, variance) = self.by_times(running).unwrap_or_else(|| {
            let variance = 1.0 / completions + noise * 0.1 / self.seconds;
            (libm::log(completions / self.seconds), variance)
        });
        Some(WindowSample {
            limit,
            ln_x,
            variance,
            seconds: self.seconds,
            washed_s: self.washed_s,
            completions: self.completions,
            waiting: self.waiting_s / self.seconds,
            running,
            present: self.present_s / self.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::observed;

    /// 100 ms in which so many of those inside end, after about as long each.
    fn tick(limit: u32, completions: u64, mean_s: f64) -> Observation {
        let in_database = Timing { count: completions, mean_s, ..Timing::default() };
        Observation {
            interval: Duration::from_millis(100),
            in_database,
            running_mean: f64::from(limit),
            ..observed(limit, 400, completions)
        }
    }

    fn tps(ticks: &[Observation]) -> f64 {
        let mut window = SettlingWindow::settled();
        for seen in ticks {
            window.add(seen, 0.1, 0.0);
        }
        let limit = ticks.first().expect("a tick").limit.get();
        window.sample(limit, Want::NOW, 0.01).expect("what there is").tps()
    }

    #[test]
    fn the_first_to_end_after_a_move_do_not_stand_for_those_inside() {
        let first = tps(&[tick(256, 25, 0.08)]);
        assert!((first - 250.0).abs() < 1e-6, "{first}");
    }

    #[test]
    fn where_all_take_as_long_throughput_follows_from_their_times() {
        let ticks = [tick(10, 0, 0.0), tick(10, 9, 0.1), tick(10, 10, 0.1)];
        let steady = tps(&ticks);
        assert!((steady - 100.0).abs() < 1e-6, "{steady}");
    }
}
