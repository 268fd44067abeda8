//! What a limiter of this room says about its decision.

use std::fmt;

use super::queue::QueueReading;
use crate::Mpl;

/// Why a limit was chosen. Latencies are in seconds; `reading` is the queue inside the database.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LatencyReason {
    /// The limit stays: too few transactions ended.
    FewSamples {
        /// Transactions that ended.
        samples: u64,
    },
    /// The limit stays: the interval tells no latency that could be one.
    NoLatency,
    /// The limit stays: less than half of it was in use.
    Unused {
        /// The most permits that were out at once.
        inflight: u32,
    },
    /// AIMD goes up by one.
    AimdUp {
        /// Mean latency.
        rtt_s: f64,
    },
    /// AIMD goes down by its fraction.
    AimdDown {
        /// Mean latency.
        rtt_s: f64,
    },
    /// Vegas goes up by β: nothing queues.
    VegasEmpty(QueueReading),
    /// Vegas goes up by a step: the queue is below α.
    VegasShort(QueueReading),
    /// Vegas stays.
    VegasFair(QueueReading),
    /// Vegas goes down by a step: the queue is above β.
    VegasLong(QueueReading),
    /// Gradient2 applied its gradient.
    Gradient2 {
        /// From 0.5 to 1.
        gradient: f64,
        /// Mean latency of the window.
        short_s: f64,
        /// The long average of it.
        long_s: f64,
    },
    /// Envoy's controller pins the limit, to measure.
    EnvoyPin {
        /// The limit it will return to.
        back_to: Mpl,
    },
    /// Envoy's controller waits for the transactions from before the pin.
    EnvoyDraining,
    /// Envoy's controller has measured too few transactions so far.
    EnvoyMeasuring {
        /// Transactions measured.
        samples: u64,
    },
    /// Envoy's controller has measured, and returns to the limit from before.
    EnvoyMeasured {
        /// The latency of no load.
        min_rtt_s: f64,
    },
    /// Envoy's controller applied its gradient.
    EnvoyGradient {
        /// From 0.5 to 2.
        gradient: f64,
        /// Median latency of the window.
        median_s: f64,
        /// The latency of no load.
        min_rtt_s: f64,
    },
    /// failsafe-go's limiter goes up by a step: the queue is below α.
    FailsafeShort(QueueReading),
    /// failsafe-go's limiter stays.
    FailsafeFair(QueueReading),
    /// failsafe-go's limiter goes down by a step: the queue is above β.
    FailsafeLong(QueueReading),
    /// failsafe-go's limiter goes down by a step: throughput falls as inflight rises.
    FailsafeThroughput {
        /// Of inflight and throughput.
        correlation: f64,
    },
    /// failsafe-go's limiter goes down by a step: latency rises with inflight, throughput does not.
    FailsafeLatency {
        /// Correlation of inflight and latency.
        latency: f64,
        /// Correlation of inflight and throughput.
        correlation: f64,
        /// Relative deviation of throughput.
        variation: f64,
    },
    /// failsafe-go's limiter goes down by a step: the limit is too many times what is in use.
    FailsafeHeadroom {
        /// The most permits that were out at once.
        inflight: u32,
    },
}

impl LatencyReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            LatencyReason::FewSamples { .. } => "few_samples",
            LatencyReason::NoLatency => "no_latency",
            LatencyReason::Unused { .. } => "unused",
            LatencyReason::AimdUp { .. } => "aimd_up",
            LatencyReason::AimdDown { .. } => "aimd_down",
            LatencyReason::VegasEmpty(_) => "vegas_empty",
            LatencyReason::VegasShort(_) => "vegas_short",
            LatencyReason::VegasFair(_) => "vegas_fair",
            LatencyReason::VegasLong(_) => "vegas_long",
            LatencyReason::Gradient2 { .. } => "gradient2",
            LatencyReason::EnvoyPin { .. } => "envoy_pin",
            LatencyReason::EnvoyDraining => "envoy_draining",
            LatencyReason::EnvoyMeasuring { .. } => "envoy_measuring",
            LatencyReason::EnvoyMeasured { .. } => "envoy_measured",
            LatencyReason::EnvoyGradient { .. } => "envoy_gradient",
            LatencyReason::FailsafeShort(_) => "failsafe_short",
            LatencyReason::FailsafeFair(_) => "failsafe_fair",
            LatencyReason::FailsafeLong(_) => "failsafe_long",
            LatencyReason::FailsafeThroughput { .. } => "failsafe_throughput",
            LatencyReason::FailsafeLatency { .. } => "failsafe_latency",
            LatencyReason::FailsafeHeadroom { .. } => "failsafe_headroom",
        }
    }
}

impl fmt::Display for LatencyReason {
    fn fmt(&self, line: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            LatencyReason::FewSamples { samples } => {
                write!(line, "hold: only {samples} transactions ended")
            }
            LatencyReason::NoLatency => line.write_str("hold: no latency known"),
            LatencyReason::Unused { inflight } => {
                write!(line, "hold: {inflight} inside, less than half the limit")
            }
            LatencyReason::AimdUp { rtt_s } => {
                write!(line, "aimd: {} on average, one up", Ms(rtt_s))
            }
            LatencyReason::AimdDown { rtt_s } => {
                write!(line, "aimd: {} on average, too slow, back off", Ms(rtt_s))
            }
            LatencyReason::VegasEmpty(reading) => {
                write!(line, "vegas: {}, up by {}", Queue(reading), reading.beta())
            }
            LatencyReason::VegasShort(reading) => write!(line, "vegas: {}", up(reading)),
            LatencyReason::VegasFair(reading) => write!(line, "vegas: {}, hold", Queue(reading)),
            LatencyReason::VegasLong(reading) => write!(line, "vegas: {}", down(reading)),
            LatencyReason::Gradient2 { gradient, short_s, long_s } => {
                let (short, long) = (Ms(short_s), Ms(long_s));
                write!(line, "gradient2: gradient {gradient:.2}, {short} against {long} before")
            }
            LatencyReason::EnvoyPin { back_to } => {
                write!(line, "envoy: pin to measure, then back to {back_to}")
            }
            LatencyReason::EnvoyDraining => {
                line.write_str("envoy: pinned, transactions from before still end")
            }
            LatencyReason::EnvoyMeasuring { samples } => {
                write!(line, "envoy: pinned, {samples} transactions measured")
            }
            LatencyReason::EnvoyMeasured { min_rtt_s } => {
                write!(line, "envoy: {} without load, back", Ms(min_rtt_s))
            }
            LatencyReason::EnvoyGradient { gradient, median_s, min_rtt_s } => {
                let (median, least) = (Ms(median_s), Ms(min_rtt_s));
                write!(line, "envoy: gradient {gradient:.2}, {median} against {least} without load")
            }
            other => failsafe(other, line),
        }
    }
}

/// The lines of failsafe-go's limiter.
fn failsafe(reason: LatencyReason, line: &mut fmt::Formatter<'_>) -> fmt::Result {
    match reason {
        LatencyReason::FailsafeShort(reading) => write!(line, "failsafe: {}", up(reading)),
        LatencyReason::FailsafeFair(reading) => write!(line, "failsafe: {}, hold", Queue(reading)),
        LatencyReason::FailsafeLong(reading) => write!(line, "failsafe: {}", down(reading)),
        LatencyReason::FailsafeThroughput { correlation } => write!(
            line,
            "failsafe: throughput falls with inflight (correlation {correlation:.2}), down"
        ),
        LatencyReason::FailsafeLatency { latency, correlation, variation } => write!(
            line,
            "failsafe: latency rises with inflight (correlation {latency:.2}), throughput does not \
             (correlation {correlation:.2}, varies by {variation:.2}), down"
        ),
        LatencyReason::FailsafeHeadroom { inflight } => {
            write!(line, "failsafe: limit far above the {inflight} inside, down")
        }
        _ => Ok(()),
    }
}
