//! Vegas: keep a few transactions queueing inside, by the latency that no load would give.
//!
//! # Mechanism
//! Netflix's `VegasLimit` (concurrency-limits, `limit/VegasLimit.java`). The queue is
//! ⌈L·(1 − minRTT/RTT)⌉ at the limit L, and log10, α, β are those of [`super::queue`]:
//!
//! | case | next limit |
//! | --- | --- |
//! | 2·inflight < L | L |
//! | queue ≤ log10 L | L + β |
//! | queue < α | L + log10 L |
//! | queue > β | L − log10 L |
//! | otherwise | L |
//!
//! cut to [1, 1000]. minRTT is the shortest latency seen. It is forgotten, and taken anew from the
//! call at hand, each time 30·L·U calls have gone by, where U is drawn from [0.5, 1) each time.
//!
//! # Example
//! At 20 with a fastest transaction of 10 ms: a mean of 10 ms is a queue of 0, up to 26; 11 ms one
//! of 2, up to 21; 12.5 ms one of 4, which stays; 16 ms one of 8, down to 19.
//!
//! # Where this leaves the source
//! * **Windows.** The source decides on every call, thousands of times a second. Here it decides
//!   once for each control interval, as behind the source's `WindowedLimit`, which hands its
//!   limiter one latency each second, the mean of the window, and the highest inflight.
//! * **minRTT.** Behind `WindowedLimit` it would be the shortest *mean*, and 30·L windows would be
//!   ten minutes at 20. The source's own default is to use no windows, and what users report of
//!   minRTT is about single calls. So minRTT here is the shortest single transaction, and
//!   transactions are counted, not windows. An interval in which the count runs out has both its
//!   shortest transaction as the new minRTT and its step: in the source the one call that renews
//!   minRTT has no step, but the thousands around it have.
//! * **Smoothing.** The source may take a part of a step only; its default takes all of it.
//! * **Drops.** There are none: see the head of this room.
//!
//! # Limits
//! * One lucky transaction holds the limit down (Netflix/concurrency-limits#37). With a shortest of
//!   150 ms and a mean of 300 ms half of the limit is a queue: it falls to 12, where the half is 6.
//!   In general it falls to where L·(1 − minRTT/RTT) is 6, or 12 above 99, whatever the database
//!   could do.
//! * minRTT is renewed under load, and then contains the load (#165): where latencies hardly vary,
//!   each renewal allows some more.

use super::LatencyReason;
use super::queue::QueueReading;
use super::window::{LatencyWindow, is_latency, range};
use crate::parameters::{Allowed, check_limits, settings};
use crate::reason::reasons;
use crate::{Bounds, Controller, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`Vegas`].
    pub struct VegasSettings, checked by |own| check_limits(own.lowest, own.highest);

    /// The defaults of `VegasLimit.Builder`, behind the windows of `WindowedLimit.Builder`.
    pub const PUBLISHED;

    lowest: Mpl = Mpl::at_least_one(1), "lowest", "transactions", Allowed::Whole(1, 1_000_000),
        "lowest limit of the published rule";
    highest: Mpl = Mpl::at_least_one(1_000), "highest", "transactions",
        Allowed::Whole(1, 1_000_000), "highest limit of the published rule";
    samples: u64 = 10, "samples", "transactions", Allowed::Whole(1, 1_000_000),
        "least number of transactions in an interval for a decision";
    shortest_s: f64 = 1e-4, "shortest", "s", Allowed::Number(0.0, 1e3),
        "least latency of an interval for a decision";
    probe_multiplier: f64 = 30.0, "probe", "factor", Allowed::Number(1.0, 1e6),
        "transactions per unit of the limit after which minRTT is measured again";
}

/// Vegas, as Netflix has it.
#[derive(Clone, Debug)]
pub struct Vegas {
    range: Bounds,
    start: Mpl,
    settings: VegasSettings,
    /// The shortest transaction since it was renewed, seconds.
    min_rtt_s: f64,
    /// Transactions since then.
    samples: u64,
    /// U, from 0.5 to 1; drawn when it is first needed, because only decisions have draws.
    jitter: Option<f64>,
}

reasons! {
    /// Why Vegas moved or stayed, with the queue that it saw.
    pub enum VegasReason {
        /// Up by β, because nothing queues to speak of.
        Jump(reading: QueueReading) = "vegas_jump" =>
            "vegas: {reading}, next to nothing, up by {}", reading.beta();
        /// Up by a step, because the queue is below α.
        Up(reading: QueueReading) = "vegas_up" => "vegas: {reading}, up by {}", reading.step;
        /// The queue is what it should be.
        Hold(reading: QueueReading) = "vegas_hold" => "vegas: {reading}, hold";
        /// Down by a step, because the queue is above β.
        Down(reading: QueueReading) = "vegas_down" =>
            "vegas: {reading}, down by {}", reading.step;
    }
}

impl Vegas {
    /// A limiter within `bounds` and its own limits; the published one starts at 20.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: VegasSettings) -> Vegas {
        let range = range(settings.lowest, settings.highest, bounds);
        let start = range.clamp(start);
        Vegas { range, start, settings, min_rtt_s: f64::INFINITY, samples: 0, jitter: None }
    }

    /// Takes the shortest transaction of a window into minRTT, or renews it when that is due.
    fn learn(&mut self, limit: Mpl, shortest_s: f64, samples: u64, draw: Draw) {
        let jitter = *self.jitter.get_or_insert(drawn_jitter(draw));
        self.samples = self.samples.saturating_add(samples);
        let due = jitter * self.settings.probe_multiplier * f64::from(limit.get());
        if due <= self.samples as f64 {
            self.min_rtt_s = shortest_s;
            self.samples = 0;
            self.jitter = Some(drawn_jitter(draw));
        } else {
            self.min_rtt_s = self.min_rtt_s.min(shortest_s);
        }
    }

    fn judge(&self, limit: Mpl, window: LatencyWindow) -> (u32, LatencyReason) {
        let level = limit.get();
        if !window.uses_half_of(f64::from(level)) {
            return (level, LatencyReason::Unused { inflight: window.inflight });
        }
        let reading = QueueReading::at(limit, self.min_rtt_s, window.rtt_s);
        let (next, reason) = if reading.is_empty() {
            (level.saturating_add(reading.beta()), VegasReason::Jump(reading))
        } else if reading.is_short() {
            (level.saturating_add(reading.step), VegasReason::Up(reading))
        } else if reading.is_long() {
            (level.saturating_sub(reading.step), VegasReason::Down(reading))
        } else {
            (level, VegasReason::Hold(reading))
        };
        (next, LatencyReason::Vegas(reason))
    }
}

impl Controller for Vegas {
    fn name(&self) -> &'static str {
        "vegas"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, draw: Draw) -> Decision {
        let limit = self.range.clamp(observation.limit);
        let VegasSettings { samples, shortest_s, .. } = self.settings;
        let mean_s = observation.in_database.mean_s;
        let window = match LatencyWindow::read(observation, mean_s, samples, shortest_s) {
            Ok(window) => window,
            Err(reason) => return Decision { limit, reason },
        };
        let shortest_s = observation.in_database.min_s;
        if !is_latency(shortest_s) {
            return Decision { limit, reason: Reason::Latency(LatencyReason::NoLatency) };
        }
        self.learn(limit, shortest_s, window.samples, draw);
        let (next, reason) = self.judge(limit, window);
        let limit = self.range.clamp(Mpl::at_least_one(next));
        Decision { limit, reason: Reason::Latency(reason) }
    }
}

/// U, uniform from 0.5 to 1.
fn drawn_jitter(draw: Draw) -> f64 {
    0.5 + draw.value() / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::latency::testing::window;
    use crate::testing::{DRAW, bounds, decided, limits};

    fn published() -> Vegas {
        Vegas::new(bounds(1, 10_000), Mpl::at_least_one(20), VegasSettings::PUBLISHED)
    }

    /// A window of 100 transactions with this mean and this shortest.
    fn spread(limit: u32, inside: u32, mean_ms: f64, shortest_ms: f64) -> Observation {
        let mut seen = window(limit, inside, mean_ms / 1e3);
        seen.in_database.min_s = shortest_ms / 1e3;
        seen
    }

    /// With a shortest of 10 ms. At 20: 16 ms is a queue of ⌈20·0.375⌉ = 8, 12.5 ms one of 4. At
    /// 200 the step is 2, α 6 and β 12: 10.2 ms is a queue of ⌈3.92⌉ = 4, 10.4 ms one of ⌈7.69⌉ =
    /// 8, 11 ms one of ⌈18.18⌉ = 19.
    #[test]
    fn each_case_of_the_rule() {
        let table = [
            (20, 20, 10.0, 26, "vegas_jump"),
            (20, 20, 11.0, 21, "vegas_up"),
            (20, 20, 12.5, 20, "vegas_hold"),
            (20, 20, 16.0, 19, "vegas_down"),
            (20, 10, 10.0, 26, "vegas_jump"),
            (20, 9, 10.0, 20, "unused"),
            (20, 9, 16.0, 20, "unused"),
            (200, 200, 10.1, 212, "vegas_jump"),
            (200, 200, 10.2, 202, "vegas_up"),
            (200, 200, 10.4, 200, "vegas_hold"),
            (200, 200, 11.0, 198, "vegas_down"),
            (998, 998, 10.0, 1_000, "vegas_jump"),
            (1, 1, 10.0, 7, "vegas_jump"),
        ];
        for (limit, inside, mean_ms, next, kind) in table {
            let seen = spread(limit, inside, mean_ms, 10.0);
            let said = decided(&mut published(), &seen);
            assert_eq!(said, (next, kind), "{limit} at {mean_ms} ms");
        }
    }

    /// The shortest is remembered: 10 ms once, and a mean of 16 ms is too slow ever after.
    #[test]
    fn the_shortest_transaction_of_all_counts() {
        let mut limiter = published();
        limiter.decide(&spread(20, 20, 16.0, 10.0), DRAW);
        assert_eq!(decided(&mut limiter, &spread(20, 20, 16.0, 15.9)).0, 19);
    }

    /// Half of the limit is a queue when the shortest is half of the mean: the limit falls to 12,
    /// where the half is 6 = β.
    #[test]
    fn one_lucky_transaction_holds_the_limit_down() {
        let settings =
            VegasSettings { probe_multiplier: f64::INFINITY, ..VegasSettings::PUBLISHED };
        let mut limiter = Vegas::new(bounds(1, 1_000), Mpl::at_least_one(100), settings);
        limiter.decide(&spread(100, 100, 300.0, 150.0), DRAW);
        let limits = limits(&mut limiter, 200, |limit| spread(limit, 100, 300.0, 299.0));
        assert_eq!(limits[199], 12);
    }

    /// At 20 and with U = 0.5, 300 transactions renew minRTT, which is three windows of 100; with U
    /// next to 1, it is 600. The first draw gives the first U, the draw of a renewal the next. A
    /// shortest of 10 ms, in the first window and in the one after the first renewal, makes a mean
    /// of 16 ms a queue of 8. With the 15.9 ms of all other windows it is next to none, but 10 ms
    /// are remembered until the next renewal.
    #[test]
    fn min_rtt_is_renewed_when_so_many_transactions_have_ended() {
        let (half, one) = (Draw::from_bits(0), Draw::from_bits(u64::MAX));
        assert!((drawn_jitter(half) - 0.5).abs() < 1e-9 && (drawn_jitter(one) - 1.0).abs() < 1e-9);
        for (first, then, renewals) in [(half, one, [3, 9]), (one, half, [6, 9])] {
            let mut limiter = published();
            for number in 1..=9 {
                let is_lucky = number == 1 || number == renewals[0] + 1;
                let shortest_ms = if is_lucky { 10.0 } else { 15.9 };
                let draw = if number == 1 { first } else { then };
                let decision = limiter.decide(&spread(20, 20, 16.0, shortest_ms), draw);
                let limit = if renewals.contains(&number) { 26 } else { 19 };
                assert_eq!(decision.limit.get(), limit, "window {number} of {renewals:?}");
            }
        }
    }

    /// Latency is a millisecond for each inside, and is the same for all: each renewal takes the
    /// load for no load, and 1,000 is reached.
    #[test]
    fn renewals_under_load_let_min_rtt_grow() {
        let limits = limits(&mut published(), 20_000, |limit| {
            spread(limit, 2_000, f64::from(limit), f64::from(limit))
        });
        assert_eq!(limits[19_999], 1_000);
    }

    #[test]
    fn without_a_shortest_latency_nothing_is_decided() {
        for shortest_ms in [0.0, f64::NAN] {
            let seen = spread(20, 20, 16.0, shortest_ms);
            assert_eq!(decided(&mut published(), &seen), (20, "no_latency"));
        }
    }
}
