//! A plant that is given by its throughput curve: fast, and its best limit is known exactly.
//!
//! # Mechanism
//! So many transactions run inside; throughput follows from that number by a [`Curve`], times a
//! noise factor drawn anew for each interval. Everything else follows from throughput: the times in
//! the database and in the queue by Little's law, the classes by their shares and demands.
//!
//! The plant is a fluid: transactions are divisible. A limit above the number inside lets waiting
//! ones in at once. A limit below it takes effect as transactions end, at the throughput of the
//! number still inside, so that a database that was let into thrashing takes its time to come out.
//! In a closed system the clients, running and waiting, stay the same. In an open one arrivals add
//! to them, and what is not done waits for the next interval.
//!
//! # Example
//! 1,000 clients at 162 tps with a limit of 1,000, which becomes 2: of an interval of a second, all
//! goes to the 162 and the few more that end while the number inside falls; only after some four
//! seconds are 2 inside and throughput is that of 2.
//!
//! # Limits
//! * What a level does, it does at once: there is no warming up.
//! * A time in the database is spread like 0.3 of the mean plus an exponential of 0.7 of it.
//! * Arrivals of an open system have the variance of a Poisson process over an interval, and none
//!   within it: nobody waits as long as the curve keeps up. The discrete-event plant has queues
//!   that come and go.

use std::time::Duration;

use serde::Deserialize;

use super::Simulated;
use crate::controller::whole;
use crate::{ClassObservation, Mpl, Observation, SplitMix64, Timing};

/// Parts of an interval for which the number inside is held constant while it changes.
const STEPS: u32 = 16;

/// Halvings that find the number inside of an open system to a millionth of the supply.
const BISECTIONS: u32 = 20;

/// The share of a time in the database that is the same for every transaction.
const CONSTANT_SHARE: f64 = 0.3;

/// Share of its deviation that a machine's wandering speed keeps from one interval to the next.
const WANDER_MEMORY: f64 = 0.8;

/// A throughput curve: points of (transactions at once, completed transactions per second) in
/// rising order, straight lines between them when both axes are logarithmic, level outside.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Curve {
    points: Vec<(u32, f64)>,
}

impl Curve {
    /// A hill, like the study's Figure 3.3a: at least 90 % of the best from 67 to 278, as its
    /// TPCC1-BIGMEM.
    pub const HILL: &[(u32, f64)] = &[
        (1, 330.0),
        (20, 6_000.0),
        (67, 13_900.0),
        (130, 15_400.0),
        (278, 13_900.0),
        (500, 9_000.0),
        (1_000, 3_000.0),
    ];

    /// Level up to 350 transactions, then falling, like Figure 3.3b and the study's DS2.
    pub const FLAT: &[(u32, f64)] = &[(1, 1_500.0), (350, 1_500.0), (1_000, 600.0)];

    /// A hill whose far side ends in a flat tail, like Figure 3.3c.
    pub const FLAT_TAIL: &[(u32, f64)] = &[
        (1, 400.0),
        (10, 3_000.0),
        (40, 5_000.0),
        (100, 3_600.0),
        (200, 3_000.0),
        (1_000, 3_000.0),
    ];

    /// A slow rise that never ends: N/(N + 9), the closed network of ten equal stations, of which
    /// 81 transactions get 90 %.
    pub const SATURATING: &[(u32, f64)] = &[
        (1, 100.0),
        (3, 250.0),
        (9, 500.0),
        (21, 700.0),
        (36, 800.0),
        (81, 900.0),
        (171, 950.0),
        (441, 980.0),
        (991, 991.0),
    ];

    /// PostgreSQL 15, TPC-B, scale 1, two cores, as measured: every transaction updates the one
    /// branch row.
    pub const POSTGRES_TPCB: &[(u32, f64)] = &[
        (1, 1_100.0),
        (2, 2_720.0),
        (3, 2_330.0),
        (4, 2_380.0),
        (6, 2_380.0),
        (8, 2_280.0),
        (16, 2_050.0),
        (32, 1_730.0),
        (64, 1_290.0),
        (256, 545.0),
        (1_000, 162.0),
    ];

    /// The curve through `points`.
    ///
    /// # Errors
    /// When there is no point, a level is 0 or not above the one before, or a throughput is not
    /// above 0 and finite.
    pub fn new(points: &[(u32, f64)]) -> Result<Curve, CurveError> {
        let curve = Curve { points: points.to_vec() };
        curve.check().map(|()| curve)
    }

    fn check(&self) -> Result<(), CurveError> {
        if self.is_valid() { Ok(()) } else { Err(CurveError::Points) }
    }

    /// Whether there are points, with rising levels from 1 and throughputs above 0.
    pub(super) fn is_valid(&self) -> bool {
        let rising = self.points.is_sorted_by(|low, high| low.0 < high.0);
        let positive = |&(level, tps): &(u32, f64)| level > 0 && tps > 0.0 && tps.is_finite();
        !self.points.is_empty() && rising && self.points.iter().all(positive)
    }

    /// Throughput with `level` transactions inside; in proportion below one, 0 for a curve without
    /// points.
    #[must_use]
    pub fn tps(&self, level: f64) -> f64 {
        let after = self.points.partition_point(|&(at, _)| f64::from(at) < level);
        let below = after.checked_sub(1).and_then(|index| self.points.get(index));
        let tps = match (below, self.points.get(after)) {
            (Some(&low), Some(&high)) => between(low, high, level),
            (Some(&(_, tps)), None) | (None, Some(&(_, tps))) => tps,
            (None, None) => 0.0,
        };
        tps * level.clamp(0.0, 1.0)
    }

    /// The highest throughput with at most `level` transactions inside.
    fn best_up_to(&self, level: Mpl) -> f64 {
        let level = level.get();
        let inside = self.points.iter().map(|&(at, _)| at).filter(|&at| at <= level);
        inside.chain([level]).map(|at| self.tps(f64::from(at))).fold(0.0, f64::max)
    }
}

/// The point at `level` of the straight line from `low` to `high` on logarithmic axes.
fn between(low: (u32, f64), high: (u32, f64), level: f64) -> f64 {
    let low_level = libm::log(f64::from(low.0));
    let share = (libm::log(level) - low_level) / (libm::log(f64::from(high.0)) - low_level);
    low.1 * libm::pow(high.1 / low.1, share)
}

/// What makes a phase impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveError {
    /// The curve is not a curve.
    #[error("points must be pairs [level, tps] with levels rising from 1 and tps above 0")]
    Points,
    /// Neither closed nor open, or both.
    #[error("give either clients (closed system) or arrivals_tps (open system), above 0")]
    Load,
    /// Noise, outliers or the length of an interval are out of range.
    #[error(
        "interval_s must be above 0, noise and wander at least 0, outliers from 0 to 1, inertia \
         from 0 to below 1"
    )]
    Range,
    /// The classes do not add up.
    #[error("each class needs a share and a demand above 0, and the shares must add up to 1")]
    Classes,
}

/// One phase of a curve plant.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePhase {
    /// Control intervals until the next phase.
    pub intervals: u32,
    /// Length of an interval, seconds.
    #[serde(default = "one")]
    pub interval_s: f64,
    /// Throughput against transactions inside, if every transaction had a demand of 1.
    pub points: Curve,
    /// A closed system of so many clients without think time.
    #[serde(default)]
    pub clients: Option<u32>,
    /// An open system with so many arrivals a second.
    #[serde(default)]
    pub arrivals_tps: Option<f64>,
    /// Standard deviation of the noise, relative to throughput.
    #[serde(default = "usual_noise")]
    pub noise: f64,
    /// Share of intervals in which a disturbance halves throughput.
    #[serde(default)]
    pub outliers: f64,
    /// Standard deviation of the machine's speed, in ln X, which wanders: neighbours come and go,
    /// and what an interval is slower for, the next is too, mostly.
    #[serde(default)]
    pub wander: f64,
    /// How much of its old state the database keeps from one interval to the next, from 0 to below
    /// 1: caches and queues of locks are those of the number that was inside, on a logarithmic
    /// scale.
    #[serde(default)]
    pub inertia: f64,
    /// The classes that an observation tells apart; empty is one class of demand 1.
    #[serde(default)]
    pub classes: Vec<CurveClass>,
}

fn one() -> f64 {
    1.0
}

fn usual_noise() -> f64 {
    0.03
}

/// A class of transactions on a curve plant.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurveClass {
    /// Its share of the transactions, from 0 to 1.
    pub share: f64,
    /// What one of them costs, where the curve is for a cost of 1.
    pub demand: f64,
}

impl CurvePhase {
    /// A closed system without think time, with intervals of a second and one class.
    #[must_use]
    pub fn closed(points: Curve, clients: u32, noise: f64) -> CurvePhase {
        CurvePhase {
            intervals: u32::MAX,
            interval_s: 1.0,
            points,
            clients: Some(clients),
            arrivals_tps: None,
            noise,
            outliers: 0.0,
            wander: 0.0,
            inertia: 0.0,
            classes: Vec::new(),
        }
    }

    /// Whether the phase can be run.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), CurveError> {
        self.points.check()?;
        let is_load = match (self.clients, self.arrivals_tps) {
            (Some(clients), None) => clients > 0,
            (None, Some(arrivals_tps)) => arrivals_tps > 0.0 && arrivals_tps.is_finite(),
            _ => false,
        };
        let is_length = self.interval_s > 0.0 && self.interval_s.is_finite();
        let is_noise = [self.noise, self.wander].iter().all(|sd| *sd >= 0.0 && sd.is_finite());
        if !is_load {
            Err(CurveError::Load)
        } else if !(is_length && is_noise && self.shares_are_shares()) {
            Err(CurveError::Range)
        } else {
            check_classes(&self.classes)
        }
    }

    fn shares_are_shares(&self) -> bool {
        (0.0..=1.0).contains(&self.outliers) && (0.0..1.0).contains(&self.inertia)
    }

    /// Mean throughput that this phase alone settles at under a fixed limit, transactions
    /// per second.
    #[must_use]
    pub fn expected_tps(&self, limit: Mpl) -> f64 {
        // A disturbance halves throughput.
        let demand = mean_demand(&self.classes()) / (1.0 - self.outliers / 2.0);
        match (self.clients, self.arrivals_tps) {
            (_, Some(arrivals_tps)) => arrivals_tps.min(self.points.best_up_to(limit) / demand),
            (clients, None) => {
                let inside = limit.get().min(clients.unwrap_or(1));
                self.points.tps(f64::from(inside)) / demand
            }
        }
    }

    fn classes(&self) -> Vec<CurveClass> {
        if self.classes.is_empty() {
            vec![CurveClass { share: 1.0, demand: 1.0 }]
        } else {
            self.classes.clone()
        }
    }
}

fn check_classes(classes: &[CurveClass]) -> Result<(), CurveError> {
    let positive = classes
        .iter()
        .all(|class| class.share > 0.0 && class.demand > 0.0 && class.demand.is_finite());
    let shares: f64 = classes.iter().map(|class| class.share).sum();
    if classes.is_empty() || (positive && (shares - 1.0).abs() < 1e-9) {
        Ok(())
    } else {
        Err(CurveError::Classes)
    }
}

fn mean_demand(classes: &[CurveClass]) -> f64 {
    classes.iter().map(|class| class.share * class.demand).sum()
}

/// A database with a throughput curve, behind a gate.
#[derive(Clone, Debug)]
pub struct CurvePlant {
    phases: Vec<CurvePhase>,
    /// Index of the present phase and the intervals it still has.
    phase: usize,
    left: u32,
    random: SplitMix64,
    /// Where the machine's speed has wandered, in standard deviations.
    wandered: f64,
    /// The number inside that the database's state is that of, as a logarithm.
    accustomed: Option<f64>,
    /// Transactions inside.
    running: f64,
    /// Transactions inside and waiting.
    present: f64,
}

/// What happened in an interval, summed over its parts.
#[derive(Clone, Copy, Debug, Default)]
struct IntervalSums {
    done: f64,
    running_s: f64,
    present_s: f64,
    waiting_s: f64,
    peak: f64,
    /// Inside at the end.
    running: f64,
}

impl CurvePlant {
    /// A plant at the beginning of the first of `phases`; the last goes on for ever. Without a
    /// phase, nothing ever completes. All randomness comes from `seed`.
    #[must_use]
    pub fn new(phases: &[CurvePhase], seed: u64) -> CurvePlant {
        let left = phases.first().map_or(0, |phase| phase.intervals);
        let random = SplitMix64::new(seed);
        CurvePlant {
            phases: phases.to_vec(),
            phase: 0,
            left,
            random,
            wandered: 0.0,
            accustomed: None,
            running: 0.0,
            present: 0.0,
        }
    }

    /// Begins the next phase when the present one is over.
    fn advance_phase(&mut self) {
        while self.left == 0 && self.phase + 1 < self.phases.len() {
            self.phase += 1;
            self.left = self.phases[self.phase].intervals;
        }
        self.left = self.left.saturating_sub(1);
    }

    /// Lets the interval pass, part by part.
    fn flow(
        &mut self,
        phase: &CurvePhase,
        limit: Mpl,
        capacity: f64,
        arrivals: f64,
    ) -> IntervalSums {
        let limit = f64::from(limit.get());
        let step_s = phase.interval_s / f64::from(STEPS);
        let mut sums = IntervalSums::default();
        for _ in 0..STEPS {
            let supply = arrivals / f64::from(STEPS);
            let ceiling = limit.max(self.running);
            let capacity = capacity * step_s;
            if phase.arrivals_tps.is_some() {
                let supply = self.present + supply;
                let tps = |inside: f64| self.tps(phase, inside.min(ceiling));
                self.present = remainder(tps, supply, capacity);
            }
            self.running = self.present.min(ceiling);
            let done = self.tps(phase, self.running) * capacity;
            sums.done += done;
            sums.running_s += self.running * step_s;
            sums.present_s += self.present * step_s;
            sums.peak = sums.peak.max(self.present);
            if self.present > self.running {
                sums.waiting_s += step_s;
            }
            if self.running > limit {
                self.running = (self.running - done).max(limit);
            }
        }
        sums.running = self.running;
        sums
    }

    /// The noise of an interval: a factor on throughput.
    fn disturbance(&mut self, phase: &CurvePhase) -> f64 {
        let factor = (1.0 + phase.noise * self.random.next_normal()).max(0.0);
        let is_outlier = self.random.next_chance(phase.outliers);
        let factor = if is_outlier { factor / 2.0 } else { factor };
        if phase.wander > 0.0 { factor * self.wander(phase.wander) } else { factor }
    }

    /// Lets the database get accustomed to a limit, for an interval.
    fn accustom(&mut self, phase: &CurvePhase, limit: Mpl) {
        if phase.inertia > 0.0 {
            let inside = limit.get().min(phase.clients.unwrap_or(u32::MAX)).max(1);
            let now = libm::log(f64::from(inside));
            let before = self.accustomed.unwrap_or(now);
            self.accustomed = Some(phase.inertia * before + (1.0 - phase.inertia) * now);
        } else {
            self.accustomed = None;
        }
    }

    /// Throughput of so many inside, at most that of the number the database is accustomed to.
    fn tps(&self, phase: &CurvePhase, running: f64) -> f64 {
        let tps = phase.points.tps(running);
        self.accustomed.map_or(tps, |log| tps.min(phase.points.tps(libm::exp(log))))
    }

    /// The speed of a machine that wanders, as a factor with a mean of 1: an autoregressive
    /// process.
    fn wander(&mut self, sd: f64) -> f64 {
        let fresh = (1.0 - WANDER_MEMORY * WANDER_MEMORY).sqrt();
        self.wandered = WANDER_MEMORY * self.wandered + fresh * self.random.next_normal();
        libm::exp(sd * self.wandered - sd * sd / 2.0)
    }

    /// Completions of each class, at most about `done` together, with the variance of a random
    /// choice among the classes.
    fn completions(&mut self, classes: &[CurveClass], done: f64) -> Vec<u64> {
        let mut counts = Vec::with_capacity(classes.len());
        for class in classes {
            let chance = done * class.share * (1.0 - class.share);
            let spread = chance.max(0.0).sqrt() * self.random.next_normal();
            counts.push(u64::from(whole((done * class.share + spread).round())));
        }
        counts
    }
}

impl Simulated for CurvePlant {
    fn interval(&mut self, limit: Mpl) -> Observation {
        self.advance_phase();
        let Some(phase) = self.phases.get(self.phase).cloned() else {
            return observation(1.0, limit, &IntervalSums::default(), 0.0, &[], &[]);
        };
        let classes = phase.classes();
        let capacity = self.disturbance(&phase) / mean_demand(&classes);
        self.accustom(&phase, limit);
        let mut arrivals = 0.0;
        if let Some(tps) = phase.arrivals_tps {
            let mean = tps * phase.interval_s;
            arrivals = (mean + mean.sqrt() * self.random.next_normal()).max(0.0);
        } else {
            self.present = f64::from(phase.clients.unwrap_or(1));
        }
        let sums = self.flow(&phase, limit, capacity, arrivals);
        let counts = self.completions(&classes, sums.done);
        observation(phase.interval_s, limit, &sums, self.present, &classes, &counts)
    }
}

/// What is left of `supply` transactions after a step in which so many ran as are left: the
/// n for which n + X(n)·`capacity` = `supply`. A backward step, because a forward one would empty a
/// fast system in every step.
fn remainder(tps: impl Fn(f64) -> f64, supply: f64, capacity: f64) -> f64 {
    let (mut low, mut high) = (0.0, supply);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if middle + tps(middle) * capacity > supply {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// What a gate would tell of the interval.
fn observation(
    interval_s: f64,
    limit: Mpl,
    sums: &IntervalSums,
    present: f64,
    classes: &[CurveClass],
    counts: &[u64],
) -> Observation {
    let completions = counts.iter().sum();
    let per_completion =
        |sum_s: f64| if completions > 0 { sum_s / completions as f64 } else { 0.0 };
    let mean_s = per_completion(sums.running_s);
    let queue_s = per_completion(sums.present_s - sums.running_s);
    let demand: f64 = mean_demand(classes);
    let class_observations =
        classes.iter().zip(counts).map(|(class, &completions)| ClassObservation {
            completions,
            in_database: spread(completions, mean_s * class.demand / demand),
            in_queue: spread(completions, queue_s),
            ..ClassObservation::default()
        });
    Observation {
        running: whole(sums.running.ceil()),
        concurrency: whole(present.ceil()),
        concurrency_peak: whole(sums.peak.ceil()),
        concurrency_mean: sums.present_s / interval_s,
        running_mean: sums.running_s / interval_s,
        waiting_share: sums.waiting_s / interval_s,
        completions,
        in_database: spread(completions, mean_s),
        in_queue: spread(completions, queue_s),
        classes: class_observations.collect(),
        ..Observation::empty(Duration::from_secs_f64(interval_s), limit)
    }
}

/// The durations of a stage: a constant and an exponential part.
fn spread(count: u64, mean_s: f64) -> Timing {
    if count == 0 {
        return Timing::default();
    }
    let varying_s = mean_s * (1.0 - CONSTANT_SHARE);
    let at = |quantiles: f64| mean_s * CONSTANT_SHARE + varying_s * quantiles;
    Timing {
        count,
        mean_s,
        variance_s2: varying_s * varying_s,
        // The shortest of n exponential times is a n-th of their mean.
        min_s: at(1.0 / count as f64),
        p50_s: at(std::f64::consts::LN_2),
        p95_s: at(libm::log(20.0)),
        p99_s: at(libm::log(100.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(level: u32) -> Mpl {
        Mpl::at_least_one(level)
    }

    fn curve(points: &[(u32, f64)]) -> Curve {
        Curve::new(points).expect("a curve")
    }

    #[track_caller]
    fn assert_near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-6 * right.abs().max(1e-3), "{left} is not {right}");
    }

    #[test]
    fn a_curve_passes_through_its_points_and_is_straight_between_them_on_log_axes() {
        let curve = curve(&[(2, 100.0), (8, 400.0), (32, 100.0)]);
        for (level, expected) in [
            (0.5, 50.0),
            (1.0, 100.0),
            (2.0, 100.0),
            (4.0, 200.0),
            (8.0, 400.0),
            (16.0, 200.0),
            (32.0, 100.0),
            (33.0, 100.0),
        ] {
            assert_near(curve.tps(level), expected);
        }
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        let table: [&[(u32, f64)]; 5] =
            [&[], &[(0, 1.0)], &[(2, 1.0), (2, 2.0)], &[(1, 0.0)], &[(1, f64::NAN)]];
        for points in table {
            assert_eq!(Curve::new(points), Err(CurveError::Points));
        }
    }

    #[test]
    fn a_phase_that_cannot_be_run_is_refused() {
        let good = CurvePhase::closed(curve(Curve::FLAT), 10, 0.0);
        assert_eq!(good.check(), Ok(()));
        let both = CurvePhase { arrivals_tps: Some(1.0), ..good.clone() };
        assert_eq!(both.check(), Err(CurveError::Load));
        let neither = CurvePhase { clients: None, ..good.clone() };
        assert_eq!(neither.check(), Err(CurveError::Load));
        let noise = CurvePhase { noise: -1.0, ..good.clone() };
        assert_eq!(noise.check(), Err(CurveError::Range));
        let classes = vec![CurveClass { share: 0.5, demand: 1.0 }];
        assert_eq!(CurvePhase { classes, ..good }.check(), Err(CurveError::Classes));
    }

    #[test]
    fn a_closed_system_obeys_the_limit_the_clients_and_littles_law() {
        let phase = CurvePhase::closed(curve(Curve::POSTGRES_TPCB), 20, 0.0);
        let mut plant = CurvePlant::new(std::slice::from_ref(&phase), 1);
        let seen = plant.interval(limit(4));
        assert_eq!((seen.completions, seen.concurrency, seen.concurrency_peak), (2_380, 20, 20));
        assert_near(seen.in_database.mean_s * 2_380.0, 4.0);
        assert_near(seen.in_queue.mean_s * 2_380.0, 16.0);
        assert_near(seen.running_mean, 4.0);
        assert_near(seen.waiting_share, 1.0);
        assert_near(phase.expected_tps(limit(4)), 2_380.0);
        let above = plant.interval(limit(100));
        assert_near(above.running_mean, 20.0);
        assert_near(above.waiting_share, 0.0);
        assert_near(phase.expected_tps(limit(100)), phase.expected_tps(limit(20)));
    }

    /// 1,000 inside at 160 tps leave in about 1,000/160 seconds, a little less because throughput
    /// rises as they leave.
    #[test]
    fn a_lowered_limit_takes_effect_as_transactions_end() {
        let flat = curve(&[(1, 160.0), (1_000, 160.0)]);
        let mut plant = CurvePlant::new(&[CurvePhase::closed(flat, 1_000, 0.0)], 1);
        assert_near(plant.interval(limit(1_000)).running_mean, 1_000.0);
        let draining: Vec<f64> = (0..7).map(|_| plant.interval(limit(2)).running_mean).collect();
        // The mean of each part counts what was inside at its beginning: 1,000 - 160·(1/2 - 1/32).
        assert_near(draining[0], 925.0);
        assert_near(draining[1], 765.0);
        assert!(draining.is_sorted_by(|before, after| before > after));
        assert_near(plant.interval(limit(2)).running_mean, 2.0);
    }

    #[test]
    fn an_open_system_keeps_up_or_falls_behind() {
        let rising = curve(&[(1, 100.0), (10, 1_000.0)]);
        let open = CurvePhase {
            clients: None,
            arrivals_tps: Some(400.0),
            ..CurvePhase::closed(rising, 1, 0.0)
        };
        assert_near(open.expected_tps(limit(10)), 400.0);
        assert_near(open.expected_tps(limit(2)), 200.0);
        let mut plant = CurvePlant::new(std::slice::from_ref(&open), 1);
        let last = (0..50).map(|_| plant.interval(limit(10))).last().expect("50 intervals");
        assert_near(last.waiting_share, 0.0);
        assert!((300..500).contains(&last.completions), "{}", last.completions);
        let mut plant = CurvePlant::new(&[open], 1);
        let last = (0..50).map(|_| plant.interval(limit(2))).last().expect("50 intervals");
        assert_eq!(last.completions, 200);
        assert!((8_000..12_000).contains(&last.concurrency), "{}", last.concurrency);
    }

    #[test]
    fn classes_share_the_work_by_their_demands() {
        let classes =
            vec![CurveClass { share: 0.9, demand: 1.0 }, CurveClass { share: 0.1, demand: 11.0 }];
        let phase =
            CurvePhase { classes, ..CurvePhase::closed(curve(&[(1, 100_000.0)]), 100, 0.0) };
        assert_near(phase.expected_tps(limit(10)), 50_000.0);
        let seen = CurvePlant::new(&[phase], 1).interval(limit(10));
        let [short, long] = &seen.classes[..] else { panic!("two classes") };
        // Five standard deviations of a choice: 5·√(50,000·0.9·0.1) = 335.
        assert!(short.completions.abs_diff(45_000) < 335, "{}", short.completions);
        assert!(long.completions.abs_diff(5_000) < 335, "{}", long.completions);
        assert_near(long.in_database.mean_s, 11.0 * short.in_database.mean_s);
    }

    #[test]
    fn phases_follow_one_another_and_the_last_stays() {
        let phase = |tps, intervals| CurvePhase {
            intervals,
            ..CurvePhase::closed(curve(&[(1, tps)]), 1, 0.0)
        };
        let mut plant = CurvePlant::new(&[phase(10.0, 2), phase(20.0, 1), phase(30.0, 1)], 1);
        let seen: Vec<u64> = (0..6).map(|_| plant.interval(Mpl::ONE).completions).collect();
        assert_eq!(seen, [10, 10, 20, 30, 30, 30]);
    }

    #[test]
    fn noise_has_the_mean_and_the_deviation_asked_for() {
        let mut plant = CurvePlant::new(&[CurvePhase::closed(curve(Curve::FLAT), 10, 0.05)], 1);
        let factors: Vec<f64> =
            (0..10_000).map(|_| plant.interval(Mpl::ONE).throughput_tps() / 1_500.0).collect();
        let mean = factors.iter().sum::<f64>() / 10_000.0;
        let squares = factors.iter().map(|factor| (factor - mean).powi(2)).sum::<f64>();
        // Five standard errors: 0.05/√10,000 for the mean, 0.05/√20,000 for the deviation.
        assert!((mean - 1.0).abs() < 0.0025, "{mean}");
        assert!(((squares / 10_000.0).sqrt() - 0.05).abs() < 0.0018);
    }

    #[test]
    fn a_database_with_inertia_takes_a_while_to_get_over_a_crowd() {
        // 100 tps at 1, 10 at 100: throughput is 100/√N. From 100 inside to 1, with half of the
        // old state kept each time, on a logarithmic scale: 10, 3.16, 1.78, ...
        let points = curve(&[(1, 1_000.0), (100, 100.0)]);
        let phase = CurvePhase { inertia: 0.5, ..CurvePhase::closed(points, 100, 0.0) };
        let mut plant = CurvePlant::new(&[phase], 1);
        plant.interval(limit(100));
        // The first interval drains; from the second on one is inside.
        plant.interval(limit(1));
        for accustomed in
            [libm::pow(100.0, 0.25), libm::pow(100.0, 0.125), libm::pow(100.0, 0.0625)]
        {
            let seen = plant.interval(limit(1)).throughput_tps();
            let expected = 1_000.0 / accustomed.sqrt();
            assert!((seen / expected - 1.0).abs() < 0.01, "{seen} is not {expected}");
        }
    }

    #[test]
    fn a_wandering_machine_is_as_slow_again_in_the_next_interval_mostly() {
        let phase = CurvePhase { wander: 0.1, ..CurvePhase::closed(curve(Curve::FLAT), 10, 0.0) };
        let mut plant = CurvePlant::new(&[phase], 1);
        let logs: Vec<f64> = (0..10_000)
            .map(|_| libm::log(plant.interval(Mpl::ONE).throughput_tps() / 1_500.0))
            .collect();
        let mean = logs.iter().sum::<f64>() / 10_000.0;
        let around = |log: &f64| log - mean;
        let squares: f64 = logs.iter().map(|log| around(log).powi(2)).sum();
        let products: f64 = logs.windows(2).map(|pair| around(&pair[0]) * around(&pair[1])).sum();
        // 10,000 intervals with a correlation of 0.8 say as much as 10,000·(1-0.8)/(1+0.8) = 1,111
        // free ones: five standard errors of the deviation are 5·0.1/√2,222, of the correlation
        // 5·√((1-0.8²)/10,000).
        assert!(((squares / 10_000.0).sqrt() - 0.1).abs() < 0.011);
        assert!((products / squares - 0.8).abs() < 0.03, "{}", products / squares);
    }
}
