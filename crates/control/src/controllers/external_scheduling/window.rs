//! Observation windows: control intervals at one limit, taken together until they say enough.
//!
//! The intervals of a window are its batches. Of k batches with mean x and sample deviation s the
//! 95 % confidence interval is x ± t·s/√k, with t of Student's distribution for k − 1 degrees of
//! freedom. Batches of a hundred transactions and more are as good as independent, where single
//! transactions are not: those that run together wait for one another. Three intervals of 980,
//! 1,000 and 1,020 tps give 1,000 ± 4.17·20/√3 = 1,000 ± 48.

use super::ExternalSchedulingSettings;
use crate::{Mpl, Observation};

/// Of few batches some happen to agree, and their interval is narrow by chance.
const MIN_INTERVALS: u32 = 5;

/// In windows with this share of waiting and more the limit holds throughput where it is, not the
/// load.
const SATURATED_SHARE: f64 = 0.9;

/// One quantity of a window, interval by interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Batches {
    count: u32,
    mean: f64,
    /// Sum of the squared distances from the mean.
    squares: f64,
}

/// Control intervals at one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ObservationWindow {
    intervals: u32,
    completions: u64,
    tps: Batches,
    response_s: Batches,
    concurrency: Batches,
    running: Batches,
    waiting_share: Batches,
    /// Not complete before this many intervals.
    at_least: u32,
}

/// What a complete window showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WindowMeasurement {
    pub(super) limit: Mpl,
    pub(super) tps: Estimate,
    pub(super) response_s: Estimate,
    /// Transactions running and waiting, in the mean.
    pub(super) concurrency: f64,
    /// Transactions running, in the mean.
    pub(super) running: f64,
    /// The limit held throughput where it was.
    pub(super) is_saturated: bool,
}

/// A mean and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) mean: f64,
    /// Half the width of the interval.
    pub(super) half_width: f64,
}

impl Batches {
    fn add(&mut self, value: f64) {
        self.count = self.count.saturating_add(1);
        let distance = value - self.mean;
        self.mean += distance / f64::from(self.count);
        self.squares += distance * (value - self.mean);
    }

    fn estimate(self) -> Estimate {
        let (count, freedom) = (f64::from(self.count), f64::from(self.count) - 1.0);
        let half_width = if freedom > 0.0 {
            student_95(freedom) * (self.squares / freedom / count).sqrt()
        } else {
            f64::INFINITY
        };
        Estimate { mean: self.mean, half_width }
    }
}

impl Estimate {
    /// Half the width of the interval as a share of the mean.
    pub(super) fn spread(self) -> f64 {
        self.half_width / self.mean
    }

    /// Whether the interval meets that of `other` when none is taken for narrower than `floor`, a
    /// share of its mean.
    pub(super) fn meets(self, other: Estimate, floor: f64) -> bool {
        let half_width = |estimate: Estimate| estimate.half_width.max(floor * estimate.mean);
        (self.mean - other.mean).abs() <= half_width(self) + half_width(other)
    }
}

impl ObservationWindow {
    pub(super) fn add(&mut self, observation: &Observation) {
        self.intervals = self.intervals.saturating_add(1);
        self.completions = self.completions.saturating_add(observation.completions);
        self.tps.add(observation.throughput_tps());
        self.response_s.add(observation.response_time_s());
        self.concurrency.add(observation.concurrency_mean);
        self.running.add(observation.running_mean);
        self.waiting_share.add(observation.waiting_share);
    }

    /// Whether the window says enough, or has lasted long enough.
    pub(super) fn is_complete(&self, settings: &ExternalSchedulingSettings) -> bool {
        if self.intervals < self.at_least {
            return false;
        }
        let is_narrow = |batches: Batches| batches.estimate().spread() <= settings.half_width;
        let is_narrow = is_narrow(self.tps) && (self.is_saturated() || is_narrow(self.response_s));
        let says_enough = self.intervals >= MIN_INTERVALS
            && self.completions >= settings.min_completions
            && is_narrow;
        says_enough || self.intervals >= settings.max_intervals.max(1)
    }

    pub(super) fn seen(&self, limit: Mpl) -> WindowMeasurement {
        WindowMeasurement {
            limit,
            tps: self.tps.estimate(),
            response_s: self.response_s.estimate(),
            concurrency: self.concurrency.mean,
            running: self.running.mean,
            is_saturated: self.is_saturated(),
        }
    }

    pub(super) fn intervals(&self) -> u32 {
        self.intervals
    }

    /// Makes a complete window twice as long; true the first time.
    pub(super) fn extend(&mut self) -> bool {
        let is_first = self.at_least == 0;
        if is_first {
            self.at_least = self.intervals.saturating_mul(2);
        }
        is_first
    }

    fn is_saturated(&self) -> bool {
        self.waiting_share.mean >= SATURATED_SHARE
    }
}

/// The 97.5 % quantile of Student's distribution, by its expansion around the normal one
/// (Abramowitz and Stegun, 26.7.5): 3 % low at 2 degrees of freedom, below 1 % from 3 on.
fn student_95(freedom: f64) -> f64 {
    const NORMAL: f64 = 1.959_964;
    NORMAL + (2.3723 + (2.8225 + 2.5558 / freedom) / freedom) / freedom
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::observed;

    const SETTINGS: ExternalSchedulingSettings = ExternalSchedulingSettings::DEFAULT;

    fn window(completions: &[u64]) -> ObservationWindow {
        let mut window = ObservationWindow::default();
        for &count in completions {
            window.add(&observed(10, 40, count));
        }
        window
    }

    /// Table values of t for 2, 3, 4, 9 and 30 degrees of freedom.
    #[test]
    fn students_quantile_is_near_the_table() {
        for (freedom, table, error) in
            [(2.0, 4.303, 0.032), (3.0, 3.182, 0.01), (4.0, 2.776, 0.003), (9.0, 2.262, 0.001)]
        {
            let t = student_95(freedom);
            assert!((t / table - 1.0).abs() < error, "{t} for {table}");
        }
        assert!((student_95(30.0) - 2.042).abs() < 0.001);
    }

    /// The example of the module's head: deviation 20, t = 4.17 for two degrees of freedom.
    #[test]
    fn three_intervals_give_a_mean_and_a_confidence_interval() {
        let seen = window(&[980, 1_000, 1_020]).seen(Mpl::ONE);
        assert!((seen.tps.mean - 1_000.0).abs() < 1e-9);
        assert!((seen.tps.half_width - 48.1).abs() < 0.1, "{:?}", seen.tps);
        // 40 transactions throughout: 40/980, 40/1,000 and 40/1,020 s.
        assert!((seen.response_s.mean - 0.04001).abs() < 1e-5);
    }

    #[test]
    fn a_window_lasts_until_it_is_narrow_and_not_for_ever() {
        let table = [
            (vec![1_000; 4], false, "four intervals, however steady"),
            (vec![1_000; 5], true, "five steady ones"),
            (vec![19; 5], false, "95 transactions"),
            (vec![20; 5], true, "100 transactions"),
            // Deviation 50 and 35 of 1,000: 2.77·50/√5 is 6.2 %, 2.77·35/√5 is 4.4 %.
            (vec![950, 950, 1_000, 1_050, 1_050], false, "6 %"),
            (vec![965, 965, 1_000, 1_035, 1_035], true, "4 %"),
            ([500, 1_500].repeat(4), false, "eight uneven ones"),
            ([500, 1_500].repeat(5), true, "ten uneven ones: the longest window"),
        ];
        for (completions, complete, case) in table {
            assert_eq!(window(&completions).is_complete(&SETTINGS), complete, "{case}");
        }
    }

    /// Steady throughput, uneven concurrency: only where nobody waits does response time count.
    #[test]
    fn response_time_must_be_narrow_too_where_the_limit_does_not_bind() {
        for (waiting_share, complete) in [(1.0, true), (0.5, false)] {
            let mut window = ObservationWindow::default();
            for concurrency in [5, 5, 10, 15, 15] {
                let mut seen = observed(20, concurrency, 1_000);
                seen.waiting_share = waiting_share;
                window.add(&seen);
            }
            assert_eq!(window.is_complete(&SETTINGS), complete, "{waiting_share}");
        }
    }

    #[test]
    fn an_extended_window_takes_as_many_intervals_again() {
        let mut window = window(&[1_000; 6]);
        assert!(window.extend());
        for _ in 0..6 {
            assert!(!window.is_complete(&SETTINGS));
            window.add(&observed(10, 40, 1_000));
        }
        assert!(window.is_complete(&SETTINGS));
        assert!(!window.extend(), "once is enough");
    }

    #[test]
    fn confidence_intervals_meet_or_do_not() {
        let estimate = |mean, half_width| Estimate { mean, half_width };
        let table = [
            (estimate(100.0, 5.0), estimate(108.0, 4.0), 0.0, true),
            (estimate(100.0, 5.0), estimate(110.0, 4.0), 0.0, false),
            (estimate(100.0, 0.0), estimate(110.0, 0.0), 0.05, true),
            (estimate(100.0, 0.0), estimate(111.0, 0.0), 0.05, false),
        ];
        for (left, right, floor, meets) in table {
            assert_eq!(left.meets(right, floor), meets);
            assert_eq!(right.meets(left, floor), meets);
        }
    }
}
