//! What the limiters of this room share: limits of their own, and an interval read as a window.

use std::ops::Range;

use super::LatencyReason;
use crate::{Bounds, Mpl, Observation, Reason};

/// Returns what is left in `bounds` of the limits that a published limiter chooses from, which are
/// a part of its rule: those in both; where there are none, the bound that is nearest.
///
/// # Panics
/// If `lowest` is above `highest`, which no settings that were read can have.
pub(super) fn range(lowest: Mpl, highest: Mpl, bounds: Bounds) -> Bounds {
    assert!(lowest <= highest, "the lowest limit of the rule, {lowest}, is above {highest}");
    Bounds::new(bounds.clamp(lowest), bounds.clamp(highest)).expect("clamping keeps the order")
}

/// Whether `seconds` can be the duration of a transaction: neither less than the nanosecond in
/// which the published limiters count, nor more than thirty years, nor no number at all.
pub(super) fn is_latency(seconds: f64) -> bool {
    const LATENCIES_S: Range<f64> = 1e-9..1e9;
    LATENCIES_S.contains(&seconds)
}

/// `value` cut to the range from `min` to `max`; `min` when it is no number.
pub(super) fn cut(value: f64, min: f64, max: f64) -> f64 {
    if value > min { value.min(max) } else { min }
}

/// What one control interval says to a limiter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LatencyWindow {
    /// The latency that the limiter looks at, seconds; [`is_latency`].
    pub(super) rtt_s: f64,
    /// The most permits that were out at once, as far as the limit allowed; at least 1.
    pub(super) inflight: u32,
    /// Transactions that the latency was taken from.
    pub(super) samples: u64,
}

impl LatencyWindow {
    /// Reads an interval as the window of a limiter that looks at the latency `rtt_s` and decides
    /// nothing on fewer transactions than `min_samples` or a latency below `min_rtt_s`.
    ///
    /// # Errors
    /// The reason to hold, when the interval says too little.
    pub(super) fn read(
        observation: &Observation,
        rtt_s: f64,
        min_samples: u64,
        min_rtt_s: f64,
    ) -> Result<LatencyWindow, Reason> {
        if observation.completions == 0 {
            return Err(Reason::NothingCompleted);
        }
        let samples = observation.in_database.count;
        if samples < min_samples {
            return Err(Reason::Latency(LatencyReason::FewSamples { samples }));
        }
        if !is_latency(rtt_s) || rtt_s < min_rtt_s {
            return Err(Reason::Latency(LatencyReason::NoLatency));
        }
        let inflight = observation.concurrency_peak.min(observation.limit.get()).max(1);
        Ok(LatencyWindow { rtt_s, inflight, samples })
    }

    /// Whether at least half of `limit` was in use, without which no Netflix limiter moves up.
    pub(super) fn uses_half_of(&self, limit: f64) -> bool {
        2.0 * f64::from(self.inflight) >= limit
    }
}

/// A moving average as Netflix (`ExpAvgMeasurement`) and failsafe-go (`Ewma`) keep it: the plain
/// mean of the first ten values, after them an exponential one in which a value has the weight
/// 2/(n + 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MovingAverage {
    weight: f64,
    count: u32,
    sum: f64,
    value: f64,
}

impl MovingAverage {
    const WARM_UP: u32 = 10;

    /// An average that remembers about `windows` values, n.
    pub(super) fn over(windows: u32) -> MovingAverage {
        MovingAverage { weight: 2.0 / (f64::from(windows) + 1.0), count: 0, sum: 0.0, value: 0.0 }
    }

    /// Takes `value` in and gives the new average.
    pub(super) fn add(&mut self, value: f64) -> f64 {
        if self.count < Self::WARM_UP {
            self.count += 1;
            self.sum += value;
            self.value = self.sum / f64::from(self.count);
        } else {
            self.value += self.weight * (value - self.value);
        }
        self.value
    }

    /// Multiplies the average. During the first ten values this is forgotten with the next one, as
    /// in the source.
    pub(super) fn scale(&mut self, factor: f64) {
        self.value *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bounds, observed};

    #[test]
    fn the_published_limits_are_cut_to_the_bounds_or_are_the_nearest_bound() {
        let table = [
            ((1, 1_000), (20, 200)),
            ((30, 1_000), (30, 200)),
            ((1, 100), (20, 100)),
            ((50, 60), (50, 60)),
            ((1, 10), (10, 10)),
            ((300, 400), (300, 300)),
        ];
        for ((min, max), (low, high)) in table {
            let [lowest, highest] = [20, 200].map(Mpl::at_least_one);
            let range = range(lowest, highest, bounds(min, max));
            assert_eq!(range, bounds(low, high), "{min} to {max}");
        }
    }

    #[test]
    fn an_interval_that_says_too_little_is_no_window() {
        let few = |samples| Reason::Latency(LatencyReason::FewSamples { samples });
        let none = Reason::Latency(LatencyReason::NoLatency);
        let table = [
            (0, 100, 0.01, Some(Reason::NothingCompleted)),
            (100, 9, 0.01, Some(few(9))),
            (100, 10, 0.01, None),
            (100, 100, 99e-6, Some(none)),
            (100, 100, 101e-6, None),
            (100, 100, f64::NAN, Some(none)),
            (100, 100, f64::INFINITY, Some(none)),
            (100, 100, -1.0, Some(none)),
        ];
        for (completions, samples, rtt_s, expected) in table {
            let mut seen = observed(20, 40, completions);
            seen.in_database.count = samples;
            let read = LatencyWindow::read(&seen, rtt_s, 10, 1e-4);
            assert_eq!(read.err(), expected, "{completions}, {samples}, {rtt_s}");
        }
    }

    #[test]
    fn inflight_is_the_peak_that_the_limit_allowed() {
        for (limit, peak, inflight) in [(20, 40, 20), (20, 7, 7), (20, 0, 1)] {
            let mut seen = observed(limit, peak, 100);
            seen.in_database.count = 100;
            let window = LatencyWindow::read(&seen, 0.01, 10, 1e-4).expect("a window");
            assert_eq!(window.inflight, inflight);
        }
    }

    #[test]
    fn what_is_cut_is_never_out_of_range() {
        let table = [(1.0, 1.0), (0.0, 0.5), (9.0, 2.0), (f64::NAN, 0.5), (f64::INFINITY, 2.0)];
        for (value, expected) in table {
            assert!((cut(value, 0.5, 2.0) - expected).abs() < f64::EPSILON, "{value}");
        }
    }

    /// Ten values from 1 to 10 have the mean 5.5; the eleventh, with n = 10 and the weight 2/11,
    /// moves it by 2/11 of the 5.5 between them to 6.5.
    #[test]
    fn a_moving_average_is_the_mean_of_ten_and_fades_after_them() {
        let mut average = MovingAverage::over(10);
        let means: Vec<f64> = (1..=10).map(|value| average.add(f64::from(value))).collect();
        assert!((means[1] - 1.5).abs() < 1e-12 && (means[9] - 5.5).abs() < 1e-12, "{means:?}");
        assert!((average.add(11.0) - 6.5).abs() < 1e-12);
        average.scale(0.5);
        assert!((average.add(3.25) - 3.25).abs() < 1e-12);
    }
}
