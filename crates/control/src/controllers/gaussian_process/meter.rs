//! Turns an interval into a measurement of the throughput curve: where on it, how much, how good.
//!
//! * **Where.** At the limit, when it held the number inside; otherwise at the number that was
//!   inside, which is higher while a lowered limit takes effect.
//! * **How much.** Work completed per second (`mix`), and what was begun but not finished: a
//!   transaction under way has on average done (1 - C²)/2 of its work, the mean age of a renewal
//!   process against its mean, so that an interval in which n more came in than went out did more
//!   than it completed. Without this a raised limit looks bad at first, and a lowered one good,
//!   where an interval sees few completions for each permit.
//! * **How good.** The noise of an interval is measured as half the squared difference of two at
//!   one limit, and is no less than completions allow. A correction counts as noise of its own
//!   size, and so does a number inside that changes. After a move an interval is a poorer one, the
//!   farther the move: the database takes a while to get over what was there before. On PostgreSQL
//!   16 clients gave 2,700 tps in the second after 256, and 4,000 later; taken at its word, that
//!   kept the limit at 50 for good.

use super::mix::ClassMix;
use crate::{Mpl, Observation};

/// The intervals of this share of waiting and more show what the limit does, not what the load is.
pub(in crate::controllers) const SATURATED_SHARE: f64 = 0.9;

/// A limit counts as in force when no more than this share above it runs.
const DRAINED: f64 = 0.02;

/// Standard deviation of an interval in which the number inside fell from twice the limit.
const DRAIN_NOISE: f64 = 0.3;

/// Standard deviation of an interval whose level is e times the last one's, or the last one's e
/// times it: what is inside, what is cached and who waits for whom take a while to follow.
const MOVE_NOISE: f64 = 0.1;

/// Variance of the logarithm of a count, times the count: that of a renewal process with C² = 1/2.
const COUNT_NOISE: f64 = 0.5;

/// Weight of a sample in the noise, which must not be more than so many times the noise.
const NOISE_WEIGHT: f64 = 0.1;
const NOISE_SAMPLE_MAX: f64 = 9.0;
const NOISE_MIN: f64 = 1e-6;

/// The most that unfinished work may change a measurement.
const UNFINISHED_MAX: f64 = 0.5;

/// A point of the throughput curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::controllers) struct Measurement {
    /// Transactions inside.
    pub(in crate::controllers) level: f64,
    /// Logarithm of completed work per second.
    pub(in crate::controllers) log_tps: f64,
    /// Variance of the logarithm.
    pub(in crate::controllers) variance: f64,
}

/// What is remembered from interval to interval to measure well.
#[derive(Clone, Debug)]
pub(in crate::controllers) struct ThroughputMeter {
    mix: ClassMix,
    /// Variance of an interval's ln X.
    noise: f64,
    /// The last interval's limit and ln X.
    last: Option<(Mpl, f64)>,
    /// Permits out at the end of the last interval.
    running: Option<u32>,
    /// Logarithm of the last interval's level.
    log_level: Option<f64>,
}

impl ThroughputMeter {
    /// A meter that takes `deviation` for the noise until it has measured it.
    pub(in crate::controllers) fn new(deviation: f64) -> ThroughputMeter {
        ThroughputMeter {
            mix: ClassMix::default(),
            noise: deviation * deviation,
            last: None,
            running: None,
            log_level: None,
        }
    }

    /// What an interval says of the curve; nothing when nothing completed in it.
    pub(in crate::controllers) fn measure(
        &mut self,
        observation: &Observation,
    ) -> Option<Measurement> {
        let unfinished = self.unfinished(observation);
        let tps = self.mix.throughput(observation);
        if !(tps > 0.0 && tps.is_finite()) {
            return None;
        }
        let limit = f64::from(observation.limit.get());
        let most = f64::from(observation.concurrency_peak.max(1));
        let running = observation.running_mean.max(1.0).min(most);
        let above = (running / limit - 1.0).max(0.0);
        let is_limited = observation.waiting_share >= SATURATED_SHARE && above < DRAINED;
        let level = if is_limited { limit } else { running };
        let before = self.log_level.replace(libm::log(level)).unwrap_or(libm::log(level));
        let moved = MOVE_NOISE * (libm::log(level) - before);
        Some(Measurement {
            level,
            log_tps: libm::log(tps * (1.0 + unfinished)),
            variance: self.noise(observation.completions)
                + (DRAIN_NOISE * above.min(1.0)).powi(2)
                + unfinished * unfinished
                + moved * moved,
        })
    }

    /// Whether the classes share the work otherwise than they used to.
    pub(in crate::controllers) fn mix_has_shifted(&mut self, observation: &Observation) -> bool {
        self.mix.has_shifted(observation)
    }

    /// Variance of ln X of an interval with so many completions.
    pub(in crate::controllers) fn noise(&self, completions: u64) -> f64 {
        self.noise.max(COUNT_NOISE / completions.max(1) as f64)
    }

    /// Measures the noise by a measurement that was as expected.
    pub(in crate::controllers) fn compare(&mut self, limit: Mpl, measurement: &Measurement) {
        let before = self.last.replace((limit, measurement.log_tps));
        if let Some((_, other)) = before.filter(|&(other, _)| other == limit) {
            let sample = 0.5 * (measurement.log_tps - other).powi(2);
            let sample = sample.min(NOISE_SAMPLE_MAX * self.noise);
            self.noise = (self.noise + NOISE_WEIGHT * (sample - self.noise)).max(NOISE_MIN);
        }
    }

    /// The workload is another one: the next interval is not compared with the last.
    pub(in crate::controllers) fn start_anew(&mut self) {
        self.last = None;
    }

    /// Work begun and not finished in the interval, as a share of what was completed.
    fn unfinished(&mut self, observation: &Observation) -> f64 {
        let before = self.running.replace(observation.running).unwrap_or(observation.running);
        let more = f64::from(observation.running) - f64::from(before);
        (more * unfinished_share(observation)).clamp(-UNFINISHED_MAX, UNFINISHED_MAX)
    }
}

/// What one permit more leaves unfinished, as a share of what is completed in an interval; from 0
/// to 1/2 of a completion.
pub(in crate::controllers) fn unfinished_share(observation: &Observation) -> f64 {
    let timing = &observation.in_database;
    let squared_variation = timing.variance_s2 / (timing.mean_s * timing.mean_s);
    // What is no number counts as 0.
    let varying = if squared_variation > 0.0 { squared_variation.min(1.0) } else { 0.0 };
    (1.0 - varying) / 2.0 / observation.completions.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timing;
    use crate::testing::{assert_near, observed};

    fn meter() -> ThroughputMeter {
        ThroughputMeter::new(0.05)
    }

    #[test]
    fn a_limit_in_force_is_measured_where_it_is() {
        let seen = meter().measure(&observed(10, 100, 2_000)).expect("completions");
        assert_near(seen.level, 10.0);
        assert_near(seen.log_tps, libm::log(2_000.0));
        // 0.05² is more than the 1/4,000 of the count.
        assert_near(seen.variance, 0.0025);
    }

    #[test]
    fn few_completions_are_a_poor_measurement_and_none_is_none() {
        let seen = meter().measure(&observed(10, 100, 10)).expect("completions");
        assert_near(seen.variance, 0.05);
        assert_eq!(meter().measure(&observed(10, 100, 0)), None);
    }

    /// 30 inside at a limit of 20: half above it.
    #[test]
    fn a_limit_that_takes_effect_is_measured_poorly_where_the_database_was() {
        let draining = Observation { running_mean: 30.0, ..observed(20, 100, 2_000) };
        let seen = meter().measure(&draining).expect("completions");
        assert_near(seen.level, 30.0);
        assert_near(seen.variance, 0.0025 + 0.0225);
    }

    #[test]
    fn where_nobody_waits_the_number_inside_is_measured() {
        let all_inside =
            Observation { running_mean: 12.0, waiting_share: 0.0, ..observed(20, 12, 2_000) };
        assert_near(meter().measure(&all_inside).expect("completions").level, 12.0);
    }

    /// From 10 to 50 inside at C² = 0: 40 more transactions are half done, 20 beside 100. The move
    /// counts as noise too, a tenth of ln 5.
    #[test]
    fn what_was_begun_counts_half_if_all_take_the_same_time() {
        let alike = |limit, variance_s2| Observation {
            in_database: Timing { count: 100, mean_s: 0.1, variance_s2, ..Timing::default() },
            ..observed(limit, 1_000, 100)
        };
        let mut meter = meter();
        meter.measure(&alike(10, 0.0));
        let seen = meter.measure(&alike(50, 0.0)).expect("completions");
        assert_near(seen.log_tps, libm::log(120.0));
        assert_near(seen.variance, 0.005 + 0.04 + (0.1 * libm::log(5.0)).powi(2));
        // Exponential times have no age: those under way have as much to do as at their beginning.
        let seen = meter.measure(&alike(10, 0.01)).expect("completions");
        assert_near(seen.log_tps, libm::log(100.0));
    }

    /// Two intervals at one limit, a tenth apart in the logarithm: a sample of 0.1²/2 = 0.005.
    #[test]
    fn noise_is_measured_between_intervals_at_one_limit() {
        let mut meter = meter();
        let at = |log_tps| Measurement { level: 10.0, log_tps, variance: 0.0 };
        meter.compare(Mpl::at_least_one(10), &at(7.0));
        meter.compare(Mpl::at_least_one(20), &at(8.0));
        assert_near(meter.noise(1_000_000), 0.0025);
        meter.compare(Mpl::at_least_one(20), &at(8.1));
        assert_near(meter.noise(1_000_000), 0.0025 + 0.1 * (0.005 - 0.0025));
        meter.start_anew();
        meter.compare(Mpl::at_least_one(20), &at(9.0));
        assert_near(meter.noise(1_000_000), 0.002_75);
    }
}
