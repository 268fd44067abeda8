//! AIMD: one more each window, a tenth fewer when a window was too slow.
//!
//! # Mechanism
//! Netflix's `AIMDLimit` (concurrency-limits, `limit/AIMDLimit.java`), with the limit L:
//!
//! | case | next limit |
//! | --- | --- |
//! | a call was dropped, or the latency was above the timeout | 0.9·L, rounded down |
//! | 2·inflight ≥ L | L + 1 |
//! | otherwise | L |
//!
//! cut to [20, 200]. The timeout is 5 s.
//!
//! # Example
//! At 50 with 50 inside and a mean of 20 ms: 51, 52, 53, … up to 200. At 200 with a mean of 6 s:
//! 180, 162, 145, … down to 20. With 24 inside it stays at 50, because 48 is below it.
//!
//! # Where this leaves the source
//! * **Windows.** The source decides on every call. Here it is handed one window for each control
//!   interval, as behind the source's own `WindowedLimit`: the mean of the latencies and the
//!   highest inflight.
//! * **Drops.** There are none: see the head of this room.
//!
//! # Limits
//! * It looks for no limit at all while no window is slower than the timeout: it goes to the upper
//!   bound. A database that thrashes at 500 ms looks well to it.
//! * It never goes below 20, except where the bounds end below that.

use super::LatencyReason;
use super::window::{LatencyWindow, range};
use crate::controller::whole;
use crate::parameters::{Allowed, check_limits, settings};
use crate::reason::{Milliseconds, reasons};
use crate::{Bounds, Controller, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`Aimd`].
    pub struct AimdSettings, checked by |own| check_limits(own.lowest, own.highest);

    /// The defaults of `AIMDLimit.Builder`, behind the windows of `WindowedLimit.Builder`.
    pub const PUBLISHED;

    lowest: Mpl = Mpl::at_least_one(20), "lowest", "transactions", Allowed::Whole(1, 1_000_000),
        "lowest limit of the published rule";
    highest: Mpl = Mpl::at_least_one(200), "highest", "transactions", Allowed::Whole(1, 1_000_000),
        "highest limit of the published rule";
    samples: u64 = 10, "samples", "transactions", Allowed::Whole(1, 1_000_000),
        "least number of transactions in an interval for a decision";
    shortest_s: f64 = 1e-4, "shortest", "s", Allowed::Number(0.0, 1e3),
        "least latency of an interval for a decision";
    timeout_s: f64 = 5.0, "timeout", "s", Allowed::Number(0.0001, 1e5),
        "mean latency above which the limit falls";
    backoff: f64 = 0.9, "backoff", "share", Allowed::Number(0.01, 1.0),
        "share of the limit that then remains";
}

/// Additive increase, multiplicative decrease, as Netflix has it.
#[derive(Clone, Debug)]
pub struct Aimd {
    range: Bounds,
    start: Mpl,
    settings: AimdSettings,
}

reasons! {
    /// Why AIMD moved.
    pub enum AimdReason {
        /// By one, because the window was in time.
        Up {
            /// Mean latency, seconds.
            rtt_s: f64,
        } = "aimd_up" => "aimd: {} is in time, one up", Milliseconds(rtt_s);
        /// To a fraction, because the window was too slow.
        BackOff {
            /// Mean latency, seconds.
            rtt_s: f64,
        } = "aimd_back_off" => "aimd: {} is too slow, back off", Milliseconds(rtt_s);
    }
}

impl Aimd {
    /// A limiter within `bounds` and its own limits; the published one starts at 20.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: AimdSettings) -> Aimd {
        let range = range(settings.lowest, settings.highest, bounds);
        Aimd { range, start: range.clamp(start), settings }
    }

    fn judge(&self, limit: Mpl, window: LatencyWindow) -> (u32, LatencyReason) {
        let LatencyWindow { rtt_s, inflight, .. } = window;
        let level = f64::from(limit.get());
        if rtt_s > self.settings.timeout_s {
            (
                whole(self.settings.backoff * level),
                LatencyReason::Aimd(AimdReason::BackOff { rtt_s }),
            )
        } else if window.uses_half_of(level) {
            (limit.get().saturating_add(1), LatencyReason::Aimd(AimdReason::Up { rtt_s }))
        } else {
            (limit.get(), LatencyReason::Unused { inflight })
        }
    }
}

impl Controller for Aimd {
    fn name(&self) -> &'static str {
        "aimd"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let limit = self.range.clamp(observation.limit);
        let AimdSettings { samples, shortest_s, .. } = self.settings;
        match LatencyWindow::read(observation, observation.in_database.mean_s, samples, shortest_s)
        {
            Ok(window) => {
                let (next, reason) = self.judge(limit, window);
                let limit = self.range.clamp(Mpl::at_least_one(next));
                Decision { limit, reason: Reason::Latency(reason) }
            }
            Err(reason) => Decision { limit, reason },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::latency::testing::window;
    use crate::testing::{bounds, decided, limits};

    fn published(min: u32, max: u32) -> Aimd {
        Aimd::new(bounds(min, max), Mpl::at_least_one(20), AimdSettings::PUBLISHED)
    }

    #[test]
    fn each_case_of_the_rule() {
        let table = [
            (50, 50, 0.020, 51, "aimd_up"),
            (50, 25, 0.020, 51, "aimd_up"),
            (50, 24, 0.020, 50, "unused"),
            (51, 25, 0.020, 51, "unused"),
            (200, 200, 0.020, 200, "aimd_up"),
            (50, 50, 5.0, 51, "aimd_up"),
            (50, 50, 5.001, 45, "aimd_back_off"),
            (55, 1, 5.001, 49, "aimd_back_off"),
            (21, 21, 6.0, 20, "aimd_back_off"),
            (10, 10, 0.020, 21, "aimd_up"),
        ];
        for (limit, inside, mean_s, next, kind) in table {
            let seen = window(limit, inside, mean_s);
            assert_eq!(decided(&mut published(1, 1_000), &seen), (next, kind), "{limit}");
        }
    }

    #[test]
    fn it_stays_in_its_own_limits_and_in_the_bounds() {
        for ((min, max), start, up, down) in
            [((1, 1_000), 20, 200, 20), ((1, 100), 20, 100, 20), ((1, 4), 4, 4, 4)]
        {
            let mut limiter = published(min, max);
            assert_eq!(limiter.start().get(), start);
            for (mean_s, end) in [(0.02, up), (6.0, down)] {
                let limits = limits(&mut limiter, 300, |limit| window(limit, 1_000, mean_s));
                assert_eq!(limits[299], end);
            }
        }
    }

    #[test]
    fn errors_of_the_database_are_no_drops() {
        let mut seen = window(50, 50, 0.020);
        seen.failures = 1_000;
        assert_eq!(decided(&mut published(1, 1_000), &seen).0, 51);
    }
}
