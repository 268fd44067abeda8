//! Gradient2: shrink by as much as latency is above its long average, and add four.
//!
//! # Mechanism
//! Netflix's `Gradient2Limit` (concurrency-limits, `limit/Gradient2Limit.java`). `short` is the
//! mean latency of the last window, `long` its moving average over about 600 windows, the last one
//! included (the plain mean of the first ten):
//!
//! ```text
//! g = 1.5·long/short, cut to [0.5, 1]
//! L ← 0.8·L + 0.2·(g·L + 4), cut to [20, 200]
//! ```
//!
//! While inflight is below L/2 the limit stays. Where `long` is more than twice `short`, which is
//! after an overload, 5 % are taken off it for the next window.
//!
//! # Example
//! At 100 with `long` 10 ms: a window of 15 ms or less has g = 1, and the limit rises by 0.2·4 =
//! 0.8; one of 30 ms has g = 0.5, and the limit becomes 80 + 0.2·54 = 90.8.
//!
//! At rest L·(1 − g) = 4. So g = 0.5 leads to 8, g = 0.8 to 20, g = 0.98 to 200, and g = 1 to the
//! upper bound in any case.
//!
//! # Where this leaves the source
//! * **Windows** are those of the source's `WindowedLimit`, 10 transactions and more in a second.
//!   Single calls under 100 µs, which it discards, cannot be told apart here; a window with a mean
//!   below that is left out.
//! * **The limit in force.** The source owns its limit. Here the fraction that it carries from
//!   window to window is kept as long as its whole part is the limit in force, and otherwise the
//!   limit in force is the one to go on from.
//!
//! # Limits
//! * Latency may rise by half before anything happens, and by half again once the average has
//!   followed: a baseline that follows the load is no baseline. With a latency that grows in
//!   proportion to the limit, the limit ends at the upper bound.
//! * The four are added at any gradient. Users saw the limit rise under a modest overload
//!   (Netflix/concurrency-limits PR#134): that is every limit below 4/(1 − g).
//! * The lower bound of 20 is above the best limit of a database of two processors.

use super::LatencyReason;
use super::window::{LatencyWindow, MovingAverage, cut, range};
use crate::controller::whole;
use crate::parameters::{Allowed, check_limits, settings};
use crate::{Bounds, Controller, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`Gradient2`].
    pub struct Gradient2Settings, checked by |own| check_limits(own.lowest, own.highest);

    /// The defaults of `Gradient2Limit.Builder`, behind the windows of `WindowedLimit.Builder`.
    pub const PUBLISHED;

    lowest: Mpl = Mpl::at_least_one(20), "lowest", "transactions", Allowed::Whole(1, 1_000_000),
        "lowest limit of the published rule";
    highest: Mpl = Mpl::at_least_one(200), "highest", "transactions", Allowed::Whole(1, 1_000_000),
        "highest limit of the published rule";
    samples: u64 = 10, "samples", "transactions", Allowed::Whole(1, 1_000_000),
        "least number of transactions in an interval for a decision";
    shortest_s: f64 = 1e-4, "shortest", "s", Allowed::Number(0.0, 1e3),
        "least latency of an interval for a decision";
    tolerance: f64 = 1.5, "tolerance", "factor", Allowed::Number(1.0, 100.0),
        "accepted latency, as a multiple of the long average";
    queue: f64 = 4.0, "queue", "transactions", Allowed::Number(0.0, 1e4),
        "transactions that may queue inside";
    smoothing: f64 = 0.2, "smoothing", "share", Allowed::Number(0.001, 1.0),
        "weight of a new estimate";
    long_windows: u32 = 600, "windows", "intervals", Allowed::Whole(1, 1_000_000),
        "length of the long average";
}

/// The gradient never shrinks an estimate by more than this, so that outliers do not count much.
const GRADIENT_MIN: f64 = 0.5;

/// Above this multiple of the last latency the long average is from an overload that has ended.
const STALE: f64 = 2.0;

/// What is left of a stale average after each window.
const STALE_DECAY: f64 = 0.95;

/// Gradient2, as Netflix has it.
#[derive(Clone, Debug)]
pub struct Gradient2 {
    range: Bounds,
    start: Mpl,
    settings: Gradient2Settings,
    /// The limit with its fraction, within the range.
    estimate: f64,
    long_s: MovingAverage,
}

impl Gradient2 {
    /// A limiter within `bounds` and its own limits; the published one starts at 20.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: Gradient2Settings) -> Gradient2 {
        let range = range(settings.lowest, settings.highest, bounds);
        let start = range.clamp(start);
        let long_s = MovingAverage::over(settings.long_windows);
        Gradient2 { range, start, settings, estimate: f64::from(start.get()), long_s }
    }

    /// The estimate as a limit.
    fn limit(&self) -> Mpl {
        self.range.clamp(Mpl::at_least_one(whole(self.estimate)))
    }

    fn judge(&mut self, window: LatencyWindow) -> LatencyReason {
        let short_s = window.rtt_s;
        let long_s = self.long_s.add(short_s);
        if long_s > STALE * short_s {
            self.long_s.scale(STALE_DECAY);
        }
        if !window.uses_half_of(self.estimate) {
            return LatencyReason::Unused { inflight: window.inflight };
        }
        let Gradient2Settings { tolerance, queue, smoothing, .. } = self.settings;
        let gradient = cut(tolerance * long_s / short_s, GRADIENT_MIN, 1.0);
        let wanted = self.estimate * gradient + queue;
        let smoothed = self.estimate * (1.0 - smoothing) + wanted * smoothing;
        let [min, max] = [self.range.min(), self.range.max()].map(|limit| f64::from(limit.get()));
        self.estimate = cut(smoothed, min, max);
        LatencyReason::Gradient2 { gradient, short_s, long_s }
    }
}

impl Controller for Gradient2 {
    fn name(&self) -> &'static str {
        "gradient2"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let in_force = self.range.clamp(observation.limit);
        if in_force != self.limit() {
            self.estimate = f64::from(in_force.get());
        }
        let Gradient2Settings { samples, shortest_s, .. } = self.settings;
        let mean_s = observation.in_database.mean_s;
        let reason = match LatencyWindow::read(observation, mean_s, samples, shortest_s) {
            Ok(window) => Reason::Latency(self.judge(window)),
            Err(reason) => reason,
        };
        Decision { limit: self.limit(), reason }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::latency::testing::window;
    use crate::testing::{DRAW, bounds, decided, limits};

    fn published(start: u32) -> Gradient2 {
        Gradient2::new(bounds(1, 1_000), Mpl::at_least_one(start), Gradient2Settings::PUBLISHED)
    }

    /// A limiter after a window of 10 ms at 100, in which half of the limit was not used: `long` is
    /// 10 ms and the limit still 100.
    fn settled() -> Gradient2 {
        let mut limiter = published(100);
        assert_eq!(decided(&mut limiter, &window(100, 49, 0.010)).0, 100);
        limiter
    }

    /// The second window moves `long` to the mean of both. 10 ms: long 10, g = 1, 100 + 0.8. 20 ms:
    /// long 15, g = 1 (1.5·15/20 = 1.125). 40 ms: long 25, g = 0.9375, 80 + 0.2·97.75 = 99.55.
    /// 110 ms: long 60, g = 0.818, 80 + 0.2·85.8 = 97.16. 10 s: long 5.005 s, g = 0.751, 95.8. With
    /// 50 inside half is used, with 49 it is not.
    #[test]
    fn each_case_of_the_rule() {
        let table = [
            (100, 0.010, 100.8),
            (100, 0.020, 100.8),
            (100, 0.040, 99.55),
            (100, 0.110, 97.163_636),
            (100, 10.0, 95.815),
            (50, 0.040, 99.55),
            (49, 0.040, 100.0),
        ];
        for (inside, mean_s, estimate) in table {
            let mut limiter = settled();
            let (next, _) = decided(&mut limiter, &window(100, inside, mean_s));
            let off = (limiter.estimate - estimate).abs();
            assert!(off < 1e-5, "{inside} at {mean_s} s: {}", limiter.estimate);
            assert_eq!(next, whole(estimate));
        }
    }

    /// After ten windows of 10 ms a window weighs 2/601: one of 300 ms has long 10.965 ms, 1.5·long
    /// is 0.0548 of it, and g is held at 0.5: 80 + 0.2·54 = 90.8.
    #[test]
    fn an_outlier_takes_no_more_than_a_tenth() {
        let mut limiter = settled();
        for _ in 0..9 {
            limiter.decide(&window(100, 49, 0.010), DRAW);
        }
        limiter.decide(&window(100, 100, 0.300), DRAW);
        assert!((limiter.estimate - 90.8).abs() < 1e-9, "{}", limiter.estimate);
    }

    /// 0.8 for each window: after five, from 100 to 104. The gate only sees the whole part.
    #[test]
    fn fractions_add_up_while_the_limit_in_force_is_their_whole_part() {
        let mut limiter = published(100);
        let limits = limits(&mut limiter, 5, |limit| window(limit, 200, 0.010));
        assert_eq!(limits, [100, 101, 102, 103, 104]);
        for next in [60, 61] {
            assert_eq!(decided(&mut limiter, &window(60, 200, 0.010)).0, next);
        }
    }

    /// L·(1 − g) = 4 at rest. The long average of so many windows is 10 ms and hardly moves in
    /// thirty more.
    #[test]
    fn a_steady_gradient_leads_to_four_by_one_minus_the_gradient() {
        for (gradient, rest) in [(0.8, 20.0), (0.9, 40.0)] {
            let mut limiter = published(100);
            limiter.long_s = MovingAverage::over(u32::MAX);
            for _ in 0..10 {
                limiter.decide(&window(100, 49, 0.010), DRAW);
            }
            limits(&mut limiter, 400, |limit| window(limit, 200, 0.015 / gradient));
            assert!((limiter.estimate - rest).abs() < 0.1, "{gradient}: {}", limiter.estimate);
        }
    }

    /// Ten windows of 1 s, and then 10 ms again: each window takes 5 % off `long`, and 2/601 of
    /// what it is above 10 ms. So from 1 s down to 20 ms it needs some 72 windows. Without the 5 %
    /// it would need some 1,380.
    #[test]
    fn a_stale_average_decays_fast() {
        let mut limiter = published(20);
        for _ in 0..10 {
            limiter.decide(&window(20, 20, 1.0), DRAW);
        }
        let mut windows = 0;
        while MovingAverage::add(&mut { limiter.long_s }, 0.010) > 0.020 {
            limiter.decide(&window(20, 20, 0.010), DRAW);
            windows += 1;
        }
        assert!((65..75).contains(&windows), "{windows}");
    }

    /// Latency is a millisecond for each inside. Half as much again is tolerated, then the average
    /// follows, and so on to the upper bound.
    #[test]
    fn the_average_follows_the_load() {
        let inside = |limit| window(limit, 1_000, f64::from(limit) / 1e3);
        let limits = limits(&mut published(20), 5_000, inside);
        assert!(limits[99] < 60 && limits[4_999] == 200, "{} {}", limits[99], limits[4_999]);
    }
}
