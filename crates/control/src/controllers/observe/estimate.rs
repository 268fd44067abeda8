//! What an open gate shows of the throughput curve.
//!
//! # Mechanism
//! With the gate open nothing chooses the population but the clients. When they are few the
//! database is seen at few, when they are many at many, so that a load that varies shows the curve
//! level by level, without an experiment. Each interval with a steady population is a measurement
//! of ln X at the mean number inside (`gaussian_process::meter`), and is taken into a belief about
//! the curve (`gaussian_process::belief`).
//!
//! * **The machine's speed wanders**, because of caches, neighbours and maintenance. Levels that
//!   were seen at different times are then compared under different conditions. So all levels
//!   together drift, as a random walk, and may jump when the population moves, since what changes
//!   the load may change the speed. How much is not known: six beliefs are kept, each with a drift
//!   and a jump of its own, and weighted by how well each predicted what came (Magill, 1965). Where
//!   throughput at one population differs from one time to another, beliefs with more of either
//!   win, and they know less of the differences between levels.
//! * **What comes first.** A database that slows down by itself makes the population rise. Then
//!   throughput falls first, at the population that was, which is drift; what follows at the higher
//!   population is what was expected after it. When it recovers, throughput rises first. So much of
//!   what the database does by itself is not read as the curve's shape.
//! * **More than once.** Two levels are compared only after the population has gone between them
//!   several times, up and down: what happened to the machine at one time is no evidence.
//! * **The gain** of a limit is the difference of ln X there and at the present population, under
//!   the weighted beliefs; its median and its 5 % and 95 % quantiles are told. It is not told where
//!   the population hardly varied, for a limit below every population seen, and where the interval
//!   spans more than a factor of two.
//! * **The best limit** is sought between the lowest and the highest population seen. It is told if
//!   no other is better by 5 % with a probability of more than 5 %, and if the lowest population
//!   seen is worse with 95 %; otherwise a lower one may be better still. Where no other is better
//!   than the highest population seen by 5 %, no limit is needed.
//!
//! # Example
//! 4, 8, 16, 32, 64 and 128 clients on PostgreSQL's measured curve, 10 seconds each, up and down
//! several times, with noise of 2 %: 2,380, 2,280, 2,050, 1,730, 1,290 and 900 transactions a
//! second. At 128 a limit of 8 is believed to gain 154 %, with an interval from 147 % to 162 %; it
//! is 153 %. Which limit is best is not known: it may be between 4 and 8, or below 4, and is 2.
//!
//! # Where this leaves the literature
//! Fitting a law to production data (Gunther's regression of X on N) takes the errors of X to be
//! independent of N and of each other. Here they may depend on each other through the drift.
//!
//! # Limits
//! * **A population made by the database.** If every rise of the population comes with a slowdown
//!   of the database within the same interval, nothing tells the two apart, and high levels look
//!   worse than they are. Slowdowns that last for intervals, and levels that are also reached by
//!   the clients alone, are told apart.
//! * **Fluctuation.** Throughput at a mean population is that of the mean only while the population
//!   keeps near it. Intervals in which it was less than half of its peak are left out, so that a
//!   load of few short transactions teaches nothing.
//! * **Long and idle transactions** are in the population: nothing is discounted while observing.
//! * **Another workload** is seen as drift. What was learnt of the shape before it fades within
//!   days, not minutes.
//! * An interval in which nothing completed is no measurement.

use crate::controller::whole;
use crate::controllers::gaussian_process::{
    GaussianProcessSettings, GridPlace, ThroughputBelief, ThroughputMeter,
};
use crate::{Mpl, Observation, Setting};

use super::mixture::{Mixture, MixtureComponent};
use super::proposal::{BelievedBest, Gain, NotKnown};

/// Standard deviations by which the machine's speed drifts in a second, in ln X.
const DRIFTS: [f64; 2] = [0.003, 0.03];

/// Standard deviations by which it jumps when the population changes by a factor of e, in ln X.
const JUMPS: [f64; 3] = [0.01, 0.08, 0.5];

/// How much less each lower drift or jump is believed at first, in the weight's logarithm: that a
/// machine is steady has to be seen. It takes two or three moves of the population.
const SCEPTICISM: f64 = 4.0;

/// Share of the prior's variance that comes back in a second: a quarter in a day.
const SHAPE_DRIFT: f64 = 3e-6;

/// What an interval leaves of the weights' logarithms, so that none is given up for good.
const WEIGHT_MEMORY: f64 = 0.999;

/// Surprises beyond this count as so many standard deviations.
const FAR: f64 = 3.0;

/// A population is steady if its mean is at least this share of its peak.
const STEADY_SHARE: f64 = 0.5;

/// A population below this was none for a part of the interval.
const ALWAYS_ONE: f64 = 0.9;

/// Completions that make a measurement.
const COMPLETIONS_LEAST: u64 = 10;

/// Measurements next to a level of the grid that make it one that was seen.
const SEEN_LEAST: u32 = 5;

/// The population has varied if its highest level is at least so many times the lowest.
const VARIED: f64 = 1.5;

/// The population must have gone so many times from one side of the middle between two levels to
/// the other for them to be compared: what happened to the machine at one time is no evidence.
const CROSSINGS_LEAST: u32 = 6;

/// A population is on one side of a level if it is so many times lower or higher.
const ASIDE: f64 = 1.1;

/// A gain whose interval is wider than this, in ln X, is not known.
const WIDE: f64 = std::f64::consts::LN_2;

/// The ends of the interval of a gain: 90 % lie between them.
const ENDS: [f64; 2] = [0.05, 0.95];

/// What a limit must gain for each factor of e that it is higher, in ln X.
const PRICE: f64 = 0.01;

/// Limits that differ by less are as good as each other, in ln X: 5 %.
const BAND: f64 = 0.051_293;

/// The probability with which something is said to be so.
const SURE: f64 = 0.95;

/// Standard deviation of the irregularity at each level, in ln X, and as much more divided by the
/// level. Less than where limits are chosen: there it keeps the search open, here every level that
/// was not seen would be a rival.
const ROUGHNESS: f64 = 0.01;
const GRAIN: f64 = 0.15;

/// What was seen while the gate was open.
pub(super) struct Estimator {
    meter: ThroughputMeter,
    models: Vec<DriftModel>,
    /// What was measured next to each level of the grid.
    seen: Vec<GridMeasurements>,
    /// The population of the last measurement, and the seconds since.
    before: Option<f64>,
    pending_s: f64,
    /// The population of the last interval, in the mean.
    running: f64,
}

/// Measurements next to a level of the grid.
#[derive(Clone, Copy, Default)]
struct GridMeasurements {
    count: u32,
    /// The mean population of them.
    level: f64,
    /// Whether the population was above the level last, when it was not next to it.
    was_above: Option<bool>,
    /// How often it has gone from one side of the level to the other.
    crossings: u32,
}

/// A belief about the curve that takes the machine's speed to drift and to jump so much.
struct DriftModel {
    drift: f64,
    jump: f64,
    belief: ThroughputBelief,
    log_weight: f64,
}

/// The lowest and the highest level of the grid that were seen.
#[derive(Clone, Copy)]
struct LevelRange {
    lowest: usize,
    highest: usize,
}

impl Estimator {
    pub(super) fn new(setting: &Setting) -> Estimator {
        let settings = GaussianProcessSettings {
            roughness: ROUGHNESS,
            grain: GRAIN,
            ..GaussianProcessSettings::DEFAULT
        };
        let belief = ThroughputBelief::new(setting.bounds, setting.resources, &settings);
        let models = (1..=DRIFTS.len()).zip(DRIFTS).flat_map(|(drifts, drift)| {
            let belief = &belief;
            (1..=JUMPS.len()).zip(JUMPS).map(move |(jumps, jump)| {
                let higher = DRIFTS.len() + JUMPS.len() - drifts - jumps;
                let log_weight = -SCEPTICISM * higher as f64;
                DriftModel { drift, jump, belief: belief.clone(), log_weight }
            })
        });
        Estimator {
            meter: ThroughputMeter::new(settings.noise),
            models: models.collect(),
            seen: vec![GridMeasurements::default(); belief.len()],
            before: None,
            pending_s: 0.0,
            running: 0.0,
        }
    }

    /// Takes an interval in.
    pub(super) fn learn(&mut self, observation: &Observation) {
        self.running = observation.running_mean.max(0.0);
        let measurement = self.meter.measure(observation);
        self.pending_s += observation.interval.as_secs_f64();
        let is_steady = self.running >= STEADY_SHARE * f64::from(observation.concurrency_peak);
        let is_enough = observation.completions >= COMPLETIONS_LEAST;
        let usable = is_steady && is_enough && self.running >= ALWAYS_ONE;
        let Some(measurement) = measurement.filter(|_| usable) else { return };
        let Some(place) = self.models.first().map(|model| model.belief.place(measurement.level))
        else {
            return;
        };
        let seconds = std::mem::take(&mut self.pending_s);
        let before = self.before.replace(measurement.level);
        let moved = before.map(|before| libm::log(measurement.level / before).abs());
        for model in &mut self.models {
            match moved {
                Some(distance) => model.fade(seconds, distance),
                None => model.belief.forget(1.0, place, measurement.log_tps),
            }
            model.learn(place, measurement.log_tps, measurement.variance);
        }
        self.normalise();
        let nearest = place.nearest();
        if let Some(seen) = self.seen.get_mut(nearest) {
            seen.count = seen.count.saturating_add(1);
            seen.level += (measurement.level - seen.level) / f64::from(seen.count);
        }
        self.meter.compare(self.limit(nearest), &measurement);
        for index in 0..self.seen.len() {
            let level = self.level(index);
            if let Some(seen) = self.seen.get_mut(index) {
                seen.cross(measurement.level / level);
            }
        }
    }

    /// Whether the population has gone often enough between two levels; or why that is not known.
    fn check_crossings(&self, one: f64, other: f64) -> Result<(), NotKnown> {
        let Some(model) = self.models.first() else { return Err(NotKnown::Nothing) };
        let middle = model.belief.place((one * other).sqrt()).nearest();
        let crossings = self.seen[middle].crossings;
        let is_enough = crossings >= CROSSINGS_LEAST;
        is_enough.then_some(()).ok_or(NotKnown::Seldom { crossings })
    }

    /// Keeps the largest of the weights' logarithms at 0.
    fn normalise(&mut self) {
        let most = self.models.iter().map(|model| model.log_weight).fold(f64::MIN, f64::max);
        for model in &mut self.models {
            model.log_weight = (model.log_weight - most) * WEIGHT_MEMORY;
        }
    }

    /// What `limit` is believed to gain over the present population.
    pub(super) fn gain(&self, limit: Mpl) -> Gain {
        let (level, running) = (f64::from(limit.get()), self.running);
        if level >= running {
            return Gain::NotBinding { running };
        }
        let range = match self.range() {
            Ok(range) => range,
            Err(why) => return Gain::NotKnown(why),
        };
        let (lowest, highest) = (self.population(range.lowest), self.population(range.highest));
        if limit < lowest {
            return Gain::NotKnown(NotKnown::Below { lowest, highest });
        }
        if let Err(why) = self.check_crossings(level, running) {
            return Gain::NotKnown(why);
        }
        let difference = self.difference(level, running);
        let [low, high] = ENDS.map(|end| difference.quantile(end));
        let share = libm::expm1(difference.quantile(0.5));
        if high - low > WIDE {
            return Gain::NotKnown(NotKnown::Wide {
                low: libm::expm1(low),
                high: libm::expm1(high),
            });
        }
        Gain::Known {
            share,
            low: libm::expm1(low),
            high: libm::expm1(high),
            running,
            lowest,
            highest,
        }
    }

    /// The limit that is believed to be best.
    pub(super) fn best(&self) -> BelievedBest {
        let LevelRange { lowest, highest } = match self.range() {
            Ok(range) => range,
            Err(why) => return BelievedBest::NotKnown(why),
        };
        if let Err(why) = self.check_crossings(self.level(lowest), self.level(highest)) {
            return BelievedBest::NotKnown(why);
        }
        if self.rival(highest, lowest, highest).is_none() {
            return BelievedBest::Open { highest: self.population(highest) };
        }
        let worth = |index: usize| {
            let price = PRICE * libm::log(self.level(index) / self.level(lowest));
            self.over(index, lowest).mean() - price
        };
        let best = (lowest..=highest).max_by(|&one, &other| worth(one).total_cmp(&worth(other)));
        let best = best.expect("lowest is not above highest");
        if let Some(better) = self.rival(best, lowest, highest) {
            return BelievedBest::NotKnown(NotKnown::Several { better: libm::expm1(better) });
        }
        let is_lower_worse = best > lowest && self.over(best, lowest).below(0.0) <= 1.0 - SURE;
        if lowest > 0 && !is_lower_worse {
            return BelievedBest::NotKnown(NotKnown::Edge { lowest: self.population(lowest) });
        }
        BelievedBest::Limit { limit: self.limit(best) }
    }

    /// By how much the strongest rival from `lowest` to `highest` may be better than `index`, if
    /// one may be by more than the band.
    fn rival(&self, index: usize, lowest: usize, highest: usize) -> Option<f64> {
        let others = (lowest..=highest).filter(|&other| other != index);
        let ahead = others.map(|other| self.over(other, index));
        let may_be_better = ahead.filter(|ahead| ahead.below(BAND) < SURE);
        may_be_better.map(|ahead| ahead.quantile(SURE)).reduce(f64::max)
    }

    /// The levels that were seen; or why that is not enough.
    fn range(&self) -> Result<LevelRange, NotKnown> {
        let is_seen = |seen: &GridMeasurements| seen.count >= SEEN_LEAST;
        let ends = (self.seen.iter().position(is_seen), self.seen.iter().rposition(is_seen));
        let (Some(lowest), Some(highest)) = ends else { return Err(NotKnown::Nothing) };
        if self.level(highest) < VARIED * self.level(lowest) {
            let (lowest, highest) = (self.population(lowest), self.population(highest));
            return Err(NotKnown::Narrow { lowest, highest });
        }
        Ok(LevelRange { lowest, highest })
    }

    /// ln X at one level of the grid less that at another.
    fn over(&self, one: usize, other: usize) -> Mixture {
        self.difference(self.level(one), self.level(other))
    }

    /// ln X at one level less that at another.
    fn difference(&self, one: f64, other: f64) -> Mixture {
        let sum: f64 = self.models.iter().map(|model| libm::exp(model.log_weight)).sum();
        let part = |model: &DriftModel| {
            let (mean, variance) = model.difference(one, other);
            MixtureComponent {
                weight: libm::exp(model.log_weight) / sum,
                mean,
                sd: variance.max(0.0).sqrt(),
            }
        };
        Mixture(self.models.iter().map(part).collect())
    }

    /// A level of the grid as a limit.
    fn limit(&self, index: usize) -> Mpl {
        self.models[0].belief.limit(index)
    }

    /// The population that was seen next to a level of the grid.
    fn population(&self, index: usize) -> Mpl {
        let level = self.seen[index].level;
        Mpl::at_least_one(whole(level.round()))
    }

    fn level(&self, index: usize) -> f64 {
        f64::from(self.limit(index).get())
    }
}

impl GridMeasurements {
    /// Takes in a population, as a multiple of the level.
    fn cross(&mut self, multiple: f64) {
        let is_above = multiple > 1.0;
        if !(1.0 / ASIDE..=ASIDE).contains(&multiple) {
            let has_crossed = self.was_above.replace(is_above).is_some_and(|was| was != is_above);
            self.crossings = self.crossings.saturating_add(has_crossed.into());
        }
    }
}

impl DriftModel {
    /// Lets so many seconds pass, in which the population moved so far in ln N.
    fn fade(&mut self, seconds: f64, distance: f64) {
        let level = self.drift * self.drift * seconds + self.jump * self.jump * distance;
        self.belief.fade(level, SHAPE_DRIFT * seconds);
    }

    /// Learns that ln X was `seen` at `place`, and how likely that was. What is far off is taken
    /// for a poorer measurement than it says.
    fn learn(&mut self, place: GridPlace, seen: f64, noise: f64) {
        let predicted = self.belief.predict(place);
        let error = seen - predicted.mean;
        let total = predicted.variance + noise;
        let squared = (error * error / total).min(FAR * FAR);
        self.log_weight -= 0.5 * (libm::log(total) + squared);
        let far = error * error / (FAR * FAR) - predicted.variance;
        self.belief.learn(place, seen, noise.max(far));
    }

    /// Mean and variance of ln X at one level less that at another.
    fn difference(&self, one: f64, other: f64) -> (f64, f64) {
        let belief = &self.belief;
        let (one, other) = (belief.place(one), belief.place(other));
        let (first, second) = (belief.predict(one), belief.predict(other));
        let together = belief.covariance_between(one, other);
        (first.mean - second.mean, first.variance + second.variance - 2.0 * together)
    }
}

#[cfg(test)]
mod tests;
