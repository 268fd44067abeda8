//! Envoy's gradient: measure the latency of three at once, and let it grow by a quarter.
//!
//! # Mechanism
//! The gradient controller of Envoy's adaptive concurrency filter (envoyproxy/envoy,
//! `source/extensions/filters/http/adaptive_concurrency/controller/gradient_controller.cc`). In
//! turns it
//!
//! 1. **measures**: the limit is pinned to 3 until 50 transactions have ended that began after the
//!    pin. Their median is minRTT. Then the limit from before the pin returns.
//! 2. **follows**: each window has a median p50, and
//!
//! ```text
//! g = 1.25·minRTT/p50, cut to [0.5, 2]
//! L ← g·L + √(g·L), rounded down and cut to [3, 1000]
//! ```
//!
//! It begins with a measurement, and measures again when 60 s to 69 s have gone by (a jitter of
//! 15 %, drawn anew each time), or when the limit was 3 and stayed 3 for five windows: then minRTT
//! may be wrong, and the limit is where it has to be for a measurement anyway.
//!
//! # Example
//! At 100 with minRTT 10 ms: a median of 12.5 ms has g = 1, and the limit becomes 100 + √100 = 110;
//! one of 15.6 ms has g = 0.8: 80 + 8.9, so 88; one of 50 ms has g = 0.5: 50 + 7.07, so 57.
//!
//! The limit rests where g·L and its root make L again. At 90 that is 81 + 9, so g = 0.9 and a
//! median of 1.39 times minRTT; at 6 it is 4 + 2, so g = 0.67 and 1.88 times minRTT.
//!
//! # Where this leaves the source
//! * **Windows.** The window is the control interval; Envoy's documentation has 0.1 s as an example
//!   and the source no default. The example's 60 s between measurements are kept.
//! * **Start.** The source starts at 3. Here the limit after the first measurement is the `start`
//!   given.
//! * **Old transactions.** The source discards every call that began before the pin. Here calls are
//!   seen by the interval: one in which four or more ran on average still has many old ones and is
//!   left out. Where that is not enough for 50, medians of several intervals are averaged, weighted
//!   by their transactions.
//! * **Refusals.** The source refuses what is above the limit; the gate queues it. So measuring
//!   costs throughput here, and errors there (envoyproxy/envoy#8337).
//! * Envoy later allowed a lower bound apart from the pin (PR#46602). Its default is as here.
//!
//! # Limits
//! * One or more intervals in each minute are spent at 3, whatever that costs.
//! * The latency at the pin is taken for that of no load. With a high lower bound the pin is under
//!   load, and the limit never comes down (#46532).
//! * A database that uses its processors in parallel needs latency to rise before they are busy:
//!   with a throughput of N/(N + 9) the limit rests at 11, where 81 are
//!   needed for 90 %.

use super::LatencyReason;
use super::window::{LatencyWindow, cut, range};
use crate::controller::whole;
use crate::parameters::{Allowed, check_limits, settings};
use crate::reason::{Milliseconds, reasons};
use crate::{Bounds, Controller, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`EnvoyGradient`]. The lowest limit is the pin, too.
    pub struct EnvoyGradientSettings, checked by |own| check_limits(own.lowest, own.highest);

    /// The defaults of `GradientControllerConfig`, and the 60 s of the documentation's example.
    pub const PUBLISHED;

    lowest: Mpl = Mpl::at_least_one(3), "lowest", "transactions", Allowed::Whole(1, 1_000_000),
        "lowest limit of the published rule";
    highest: Mpl = Mpl::at_least_one(1_000), "highest", "transactions",
        Allowed::Whole(1, 1_000_000), "highest limit of the published rule";
    buffer: f64 = 0.25, "buffer", "share", Allowed::Number(0.0, 100.0),
        "how far the median may be above minRTT";
    min_rtt_samples: u64 = 50, "samples", "transactions", Allowed::Whole(1, 1_000_000),
        "number of transactions in a measurement of minRTT";
    remeasure_s: f64 = 60.0, "remeasure", "s", Allowed::Number(1.0, 1e6),
        "time from one measurement of minRTT to the next";
    jitter: f64 = 0.15, "jitter", "share", Allowed::Number(0.0, 1.0),
        "largest random addition to that time";
}

/// Windows in a row at the lowest limit after which minRTT is doubted.
const DOUBT: u32 = 5;

/// The gradient controller, as Envoy has it.
#[derive(Clone, Debug)]
pub struct EnvoyGradient {
    range: Bounds,
    settings: EnvoyGradientSettings,
    phase: EnvoyPhase,
}

reasons! {
    /// What Envoy's controller does.
    pub enum EnvoyReason {
        /// It pins the limit, to measure.
        Pin {
            /// The limit it will return to.
            back_to: Mpl,
        } = "envoy_pin" => "envoy: pin the limit to measure, then back to {back_to}";
        /// It is pinned, and transactions from before the pin still end.
        Draining = "envoy_draining" => "envoy: pinned, older transactions still end";
        /// It is pinned, and has measured too few transactions so far.
        Measuring {
            /// Transactions measured.
            samples: u64,
        } = "envoy_measuring" => "envoy: pinned, {samples} transactions measured";
        /// It has measured, and returns to the limit from before.
        Measured {
            /// The latency of no load, seconds.
            min_rtt_s: f64,
        } = "envoy_measured" => "envoy: {} without load, limit restored", Milliseconds(min_rtt_s);
        /// It applies the gradient.
        Gradient {
            /// From 0.5 to 2.
            gradient: f64,
            /// Median latency of the window, seconds.
            median_s: f64,
            /// The latency of no load, seconds.
            min_rtt_s: f64,
        } = "envoy_gradient" => "envoy: gradient {gradient:.2}, {} against {} without load",
            Milliseconds(median_s), Milliseconds(min_rtt_s);
    }
}

fn because(reason: EnvoyReason) -> Reason {
    Reason::Latency(LatencyReason::Envoy(reason))
}

/// What the controller is at.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EnvoyPhase {
    Measuring(Measuring),
    Following(Following),
}

/// A measurement of minRTT that has begun.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Measuring {
    /// The limit to return to.
    back_to: Mpl,
    samples: u64,
    /// Sum of the medians times their samples, seconds.
    weighted_s: f64,
}

/// The time between two measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Following {
    min_rtt_s: f64,
    /// Until the next measurement, seconds.
    left_s: f64,
    /// Windows in a row that began and ended at the lowest limit; empty ones do not count.
    at_floor: u32,
}

impl Measuring {
    const fn from(back_to: Mpl) -> Measuring {
        Measuring { back_to, samples: 0, weighted_s: 0.0 }
    }
}

impl EnvoyGradient {
    /// A limiter within `bounds` and its own limits. It begins pinned to the lowest of them, to
    /// measure, and then goes to `start`; the published one goes to 3.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: EnvoyGradientSettings) -> EnvoyGradient {
        let range = range(settings.lowest, settings.highest, bounds);
        let phase = EnvoyPhase::Measuring(Measuring::from(range.clamp(start)));
        EnvoyGradient { range, settings, phase }
    }

    /// One more interval at the pin.
    fn measure(&mut self, so_far: Measuring, observation: &Observation, draw: Draw) -> Decision {
        let pin = self.range.min();
        let stay = |reason| Decision { limit: pin, reason };
        let window = match read(observation) {
            Ok(window) => window,
            Err(reason) => return stay(reason),
        };
        if observation.running_mean >= f64::from(pin.get()) + 1.0 {
            return stay(because(EnvoyReason::Draining));
        }
        let samples = so_far.samples.saturating_add(window.samples);
        let weighted_s = so_far.weighted_s + window.rtt_s * window.samples as f64;
        if samples < self.settings.min_rtt_samples {
            self.phase = EnvoyPhase::Measuring(Measuring { samples, weighted_s, ..so_far });
            return stay(because(EnvoyReason::Measuring { samples }));
        }
        let min_rtt_s = weighted_s / samples as f64;
        let left_s = self.settings.remeasure_s * (1.0 + self.settings.jitter * draw.value());
        self.phase = EnvoyPhase::Following(Following { min_rtt_s, left_s, at_floor: 0 });
        let reason = because(EnvoyReason::Measured { min_rtt_s });
        Decision { limit: so_far.back_to, reason }
    }

    /// One more window, after which a measurement may be due.
    fn follow(&mut self, so_far: Following, observation: &Observation) -> Decision {
        let limit = self.range.clamp(observation.limit);
        let floor = self.range.min();
        let (decision, at_floor) = match read(observation) {
            Ok(window) => {
                let decision = self.judge(limit, so_far.min_rtt_s, window);
                let is_at_floor = limit == floor && decision.limit == floor;
                (decision, if is_at_floor { so_far.at_floor + 1 } else { 0 })
            }
            Err(reason) => (Decision { limit, reason }, so_far.at_floor),
        };
        let left_s = so_far.left_s - observation.interval.as_secs_f64();
        if left_s > 0.0 && at_floor < DOUBT {
            self.phase = EnvoyPhase::Following(Following { left_s, at_floor, ..so_far });
            return decision;
        }
        self.phase = EnvoyPhase::Measuring(Measuring::from(decision.limit));
        let reason = because(EnvoyReason::Pin { back_to: decision.limit });
        Decision { limit: floor, reason }
    }

    /// The rule of the gradient.
    fn judge(&self, limit: Mpl, min_rtt_s: f64, window: LatencyWindow) -> Decision {
        let accepted_s = min_rtt_s * (1.0 + self.settings.buffer);
        let gradient = cut(accepted_s / window.rtt_s, 0.5, 2.0);
        let scaled = gradient * f64::from(limit.get());
        let next = Mpl::at_least_one(whole(scaled + scaled.sqrt()));
        let reason = because(EnvoyReason::Gradient { gradient, median_s: window.rtt_s, min_rtt_s });
        Decision { limit: self.range.clamp(next), reason }
    }
}

/// Reads an interval as a window: every transaction is in the median, if there is one.
fn read(observation: &Observation) -> Result<LatencyWindow, Reason> {
    LatencyWindow::read(observation, observation.in_database.p50_s, 1, 0.0)
}

impl Controller for EnvoyGradient {
    fn name(&self) -> &'static str {
        "envoy-gradient"
    }

    fn start(&self) -> Mpl {
        self.range.min()
    }

    fn decide(&mut self, observation: &Observation, draw: Draw) -> Decision {
        match self.phase {
            EnvoyPhase::Measuring(so_far) => self.measure(so_far, observation, draw),
            EnvoyPhase::Following(so_far) => self.follow(so_far, observation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::latency::testing::window;
    use crate::testing::{DRAW, bounds, decided, limits};

    fn published(start: u32) -> EnvoyGradient {
        let start = Mpl::at_least_one(start);
        EnvoyGradient::new(bounds(1, 10_000), start, EnvoyGradientSettings::PUBLISHED)
    }

    /// A limiter that has measured 10 ms and is back at 100.
    fn measured() -> EnvoyGradient {
        let mut limiter = published(100);
        assert_eq!(limiter.start().get(), 3);
        assert_eq!(decided(&mut limiter, &window(3, 1_000, 0.010)).0, 100);
        limiter
    }

    /// minRTT is 10 ms, so 12.5 ms is g = 1. 12.5/15.625 = 0.8: 80 + 8.94. 50 ms is 0.25, held at
    /// 0.5: 50 + 7.07. 5 ms is 2.5, held at 2: 200 + 14.14. At 900 with g = 1: 930. At 990: 1,021,
    /// cut to 1,000. At 3 with g = 0.5: 1.5 + 1.22 = 2.72, cut to 3.
    #[test]
    fn each_case_of_the_rule() {
        let table = [
            (100, 12.5, 110),
            (100, 15.625, 88),
            (100, 25.0, 57),
            (100, 50.0, 57),
            (100, 6.25, 214),
            (100, 5.0, 214),
            (900, 12.5, 930),
            (990, 12.5, 1_000),
            (3, 50.0, 3),
            (3, 12.5, 4),
        ];
        for (limit, p50_ms, next) in table {
            let said = decided(&mut measured(), &window(limit, 5_000, p50_ms / 1e3));
            assert_eq!(said, (next, "envoy_gradient"), "{limit} at {p50_ms} ms");
        }
    }

    /// Draws from 0 to next to 1 mean 60 s to 69 s, in intervals of a second. The pin lasts one
    /// interval of 100 transactions, and the limit returns to where it was.
    #[test]
    fn it_pins_to_three_each_minute_and_returns() {
        for (bits, pinned) in [(0, 60), (1 << 63, 65), (u64::MAX, 69)] {
            let draw = Draw::from_bits(bits);
            let mut limiter = published(100);
            limiter.decide(&window(3, 1_000, 0.010), draw);
            for second in 1..pinned {
                // g = 0.9 at 90: 81 + 9 = 90.
                let limit = limiter.decide(&window(90, 1_000, 0.012_5 / 0.9), draw).limit;
                assert!((89..=90).contains(&limit.get()), "second {second}: {limit}");
            }
            let decision = limiter.decide(&window(100, 1_000, 0.012_5), draw);
            assert_eq!((decision.limit.get(), decision.reason.kind()), (3, "envoy_pin"));
            let decision = limiter.decide(&window(3, 1_000, 0.010), draw);
            assert_eq!((decision.limit.get(), decision.reason.kind()), (110, "envoy_measured"));
        }
    }

    #[test]
    fn five_windows_at_three_are_a_reason_to_measure_again() {
        let mut limiter = measured();
        limiter.decide(&window(4, 1_000, 0.050), DRAW);
        let kinds = ["envoy_gradient"; 4].into_iter().chain(["envoy_pin", "envoy_measured"]);
        for kind in kinds {
            assert_eq!(decided(&mut limiter, &window(3, 1_000, 0.050)), (3, kind));
        }
        let (next, _) = decided(&mut limiter, &window(3, 1_000, 0.050));
        assert_eq!(next, 5, "g = 1.25: 3.75 + 1.94");
    }

    /// After a window at 4 the count begins anew; an empty one is left out of it.
    #[test]
    fn the_five_windows_at_three_have_to_be_in_a_row() {
        let mut limiter = measured();
        for limit in [3, 3, 4, 3, 3, 3, 3] {
            let said = decided(&mut limiter, &window(limit, 1_000, 0.050));
            assert_eq!(said, (3, "envoy_gradient"));
        }
        let mut empty = window(3, 1_000, 0.050);
        empty.completions = 0;
        assert_eq!(decided(&mut limiter, &empty), (3, "nothing_completed"));
        assert_eq!(decided(&mut limiter, &window(3, 1_000, 0.050)), (3, "envoy_pin"));
    }

    /// 20 of 10 ms and 30 of 20 ms make 50 of 16 ms: 20 ms is g = 1.
    #[test]
    fn a_slow_database_is_measured_over_several_intervals() {
        let mut limiter = published(100);
        let mut seen = window(3, 1_000, 0.010);
        seen.in_database.count = 20;
        assert_eq!(decided(&mut limiter, &seen).0, 3);
        (seen.in_database.count, seen.in_database.p50_s) = (30, 0.020);
        assert_eq!(decided(&mut limiter, &seen).0, 100);
        assert_eq!(decided(&mut limiter, &window(100, 1_000, 0.020)).0, 110);
    }

    /// The 100 that were inside before the pin are not measured.
    #[test]
    fn an_interval_with_many_old_transactions_is_not_measured() {
        let mut limiter = published(100);
        let mut draining = window(3, 1_000, 0.100);
        draining.running_mean = 4.0;
        assert_eq!(decided(&mut limiter, &draining), (3, "envoy_draining"));
        limiter.decide(&window(3, 1_000, 0.010), DRAW);
        assert_eq!(decided(&mut limiter, &window(100, 1_000, 0.012_5)).0, 110);
    }

    /// Latency is a millisecond for each inside, so g·L is 1.25 times the pin at any limit.
    /// Pinned to 3 the limit goes to 3.75 + √3.75 = 5.7. Pinned to 100, where 100 ms pass for no
    /// load, it goes to 125 + √125 = 136.2.
    #[test]
    fn a_pin_under_load_takes_the_load_for_no_load() {
        for (pin, rest) in [(3, 5), (100, 136)] {
            let lowest = Mpl::at_least_one(pin);
            let settings = EnvoyGradientSettings { lowest, ..EnvoyGradientSettings::PUBLISHED };
            let start = Mpl::at_least_one(150);
            let mut limiter = EnvoyGradient::new(bounds(1, 10_000), start, settings);
            let inside = |limit| window(limit, 5_000, f64::from(limit) / 1e3);
            assert_eq!(limits(&mut limiter, 60, inside)[59], rest, "pinned to {pin}");
        }
    }

    #[test]
    fn an_interval_without_completions_only_takes_its_time() {
        let mut limiter = measured();
        let mut seen = window(100, 1_000, 0.0125);
        seen.completions = 0;
        for _ in 0..59 {
            assert_eq!(decided(&mut limiter, &seen), (100, "nothing_completed"));
        }
        assert_eq!(decided(&mut limiter, &seen), (3, "envoy_pin"));
        assert_eq!(decided(&mut limiter, &seen), (3, "nothing_completed"));
    }
}
