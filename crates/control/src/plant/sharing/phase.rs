//! What a phase of a sharing plant is made of, as a file spells it, and what a fixed limit gets.

use serde::Deserialize;

use super::super::scenario::{HIGHEST, SEED};
use super::super::{Arrivals, Curve, CurveClass, CurvePhase, Truth};
use super::{SharingPlant, Simulated, TICK_S};
use crate::Mpl;
use crate::controller::whole;

/// One phase of a sharing plant. Every field but the length, the curve and the load has a default.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharingPhase {
    /// How long the phase lasts, seconds.
    pub seconds: f64,
    /// Throughput against active transactions, if every transaction had a demand of 1.
    pub points: Curve,
    /// A closed load of so many clients.
    #[serde(default)]
    pub clients: Option<u32>,
    /// Mean time between the end of a client's transaction and its next, seconds, exponential.
    #[serde(default)]
    pub think_s: f64,
    /// An open load: arrivals per second, Poisson.
    #[serde(default)]
    pub arrivals_tps: Option<f64>,
    /// Standard deviation of the machine's speed, relative.
    #[serde(default = "usual_noise")]
    pub noise: f64,
    /// How long a speed lasts before the next is drawn, seconds.
    #[serde(default = "tick_s")]
    pub noise_s: f64,
    /// Share of seconds in which a disturbance halves the speed.
    #[serde(default)]
    pub outliers: f64,
    /// Standard deviation of a speed that wanders besides, in ln X.
    #[serde(default)]
    pub wander: f64,
    /// Time constant of the wandering, seconds.
    #[serde(default = "usual_wander_s")]
    pub wander_s: f64,
    /// Time constant, seconds, with which the database gets accustomed to a number inside. It does
    /// at most what the number it is accustomed to gets.
    #[serde(default)]
    pub inertia_s: f64,
    /// Dead time, seconds: the curve sees the number that was inside so long ago.
    #[serde(default)]
    pub delay_s: f64,
    /// What too many inside leave behind.
    #[serde(default)]
    pub overload: Option<Overload>,
    /// The kinds of transactions; empty is one kind of demand 1 and spread 1.
    #[serde(default, rename = "class")]
    pub classes: Vec<SharingClass>,
}

/// A loss of speed that builds up while too many are active and outlasts them.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Overload {
    /// The most active transactions that do no harm.
    pub above: u32,
    /// The share of the speed that is lost in the end, from 0 to below 1.
    pub loss: f64,
    /// Time constant with which the loss builds up, seconds.
    pub builds_s: f64,
    /// Time constant with which it goes away, seconds.
    pub recovers_s: f64,
}

/// A kind of transactions on a sharing plant.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharingClass {
    /// Its share of the transactions, from 0 to 1.
    pub share: f64,
    /// Mean work of one, where the curve is for a work of 1.
    #[serde(default = "one")]
    pub demand: f64,
    /// Coefficient of variation of the work: 0 is constant, above 1 has a heavy tail (lognormal).
    #[serde(default = "one")]
    pub spread: f64,
    /// Mean time that its client is idle inside the transaction after the work, seconds.
    #[serde(default)]
    pub idle_s: f64,
}

impl SharingClass {
    /// The only kind of a phase that names none.
    pub(super) const USUAL: SharingClass =
        SharingClass { share: 1.0, demand: 1.0, spread: 1.0, idle_s: 0.0 };
}

fn one() -> f64 {
    1.0
}

fn usual_noise() -> f64 {
    0.05
}

fn tick_s() -> f64 {
    TICK_S
}

fn usual_wander_s() -> f64 {
    4.0
}

/// What makes a phase of a sharing plant impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SharingError {
    /// The curve is not a curve.
    #[error("points must be pairs [level, tps] with levels rising from 1 and tps above 0")]
    Points,
    /// Neither closed nor open, or both, or too much.
    #[error(
        "give either clients (from 1 to 10000, with or without think_s) or arrivals_tps (above 0)"
    )]
    Load,
    /// A number is out of range.
    #[error(
        "seconds, noise_s and wander_s must be above 0, noise, wander, inertia_s, delay_s and \
         think_s at least 0, outliers from 0 to 1; an overload needs a loss from 0 to below 1 and \
         times above 0"
    )]
    Range,
    /// The classes do not add up.
    #[error(
        "each class needs a share and a demand above 0, a spread and idle_s of at least 0, and \
         the shares must add up to 1"
    )]
    Classes,
}

impl SharingPhase {
    /// A closed load without think time, with noise by tick and one class.
    #[must_use]
    pub fn closed(points: Curve, clients: u32, noise: f64, seconds: f64) -> SharingPhase {
        SharingPhase {
            seconds,
            points,
            clients: Some(clients),
            think_s: 0.0,
            arrivals_tps: None,
            noise,
            noise_s: TICK_S,
            outliers: 0.0,
            wander: 0.0,
            wander_s: usual_wander_s(),
            inertia_s: 0.0,
            delay_s: 0.0,
            overload: None,
            classes: Vec::new(),
        }
    }

    /// The same phase as a curve plant has, with residence times and with noise by tick, whose
    /// deviation over an interval is the same.
    #[must_use]
    pub fn of_curve(phase: &CurvePhase) -> SharingPhase {
        let ticks = (phase.interval_s / TICK_S).max(1.0);
        let kept = phase.inertia;
        let inertia_s = if kept > 0.0 { -phase.interval_s / libm::log(kept) } else { 0.0 };
        let class = |class: &CurveClass| SharingClass {
            share: class.share,
            demand: class.demand,
            ..SharingClass::USUAL
        };
        SharingPhase {
            seconds: f64::from(phase.intervals) * phase.interval_s,
            points: phase.points.clone(),
            clients: phase.clients,
            think_s: 0.0,
            arrivals_tps: phase.arrivals_tps,
            noise: phase.noise * ticks.min(10.0).sqrt(),
            noise_s: TICK_S,
            outliers: phase.outliers,
            wander: phase.wander,
            wander_s: usual_wander_s() * phase.interval_s,
            inertia_s,
            delay_s: 0.0,
            overload: None,
            classes: phase.classes.iter().map(class).collect(),
        }
    }

    /// Whether the phase can be run.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), SharingError> {
        if !self.points.is_valid() {
            return Err(SharingError::Points);
        }
        let is_load = match (self.clients, self.arrivals_tps) {
            (Some(clients), None) => (1..=10_000).contains(&clients),
            (None, Some(tps)) => tps > 0.0 && tps <= 1e5,
            _ => false,
        };
        if !is_load {
            return Err(SharingError::Load);
        }
        if self.is_in_range() { self.check_classes() } else { Err(SharingError::Range) }
    }

    fn is_in_range(&self) -> bool {
        let positive = [self.seconds, self.noise_s, self.wander_s];
        let others = [self.noise, self.wander, self.inertia_s, self.delay_s, self.think_s];
        let is_overload = self.overload.is_none_or(|overload| {
            (0.0..1.0).contains(&overload.loss)
                && [overload.builds_s, overload.recovers_s].iter().all(|&time| time > 0.0)
        });
        positive.iter().all(|&value| value > 0.0 && value.is_finite())
            && others.iter().all(|&value| value >= 0.0 && value.is_finite())
            && (0.0..=1.0).contains(&self.outliers)
            && is_overload
    }

    fn check_classes(&self) -> Result<(), SharingError> {
        let is_good = |class: &SharingClass| {
            class.share > 0.0
                && class.demand > 0.0
                && class.demand.is_finite()
                && (0.0..=100.0).contains(&class.spread)
                && class.idle_s >= 0.0
                && class.idle_s.is_finite()
        };
        let shares: f64 = self.classes.iter().map(|class| class.share).sum();
        let adds_up = self.classes.is_empty() || (shares - 1.0).abs() < 1e-9;
        if adds_up && self.classes.iter().all(is_good) {
            Ok(())
        } else {
            Err(SharingError::Classes)
        }
    }

    pub(super) fn classes(&self) -> Vec<SharingClass> {
        if self.classes.is_empty() { vec![SharingClass::USUAL] } else { self.classes.clone() }
    }

    /// Mean throughput with so many active all the time, transactions per second.
    fn settled_tps(&self, active: f64) -> f64 {
        let lost = match self.overload {
            Some(overload) if active > f64::from(overload.above) => overload.loss,
            _ => 0.0,
        };
        let classes = self.classes();
        let demand: f64 = classes.iter().map(|class| class.share * class.demand).sum();
        self.points.tps(active) * (1.0 - lost) * (1.0 - self.outliers / 2.0) / demand
    }

    /// Throughput at every limit, transactions per second. Where clients think or are idle, the
    /// number that is active fluctuates, so it is measured, without noise.
    fn alone_tps(&self) -> Vec<f64> {
        let has_pauses =
            self.think_s > 0.0 || self.classes().iter().any(|class| class.idle_s > 0.0);
        let clients = self.clients.unwrap_or(HIGHEST);
        if !has_pauses {
            let inside = (1..=HIGHEST).map(|limit| f64::from(limit.min(clients)));
            return inside.map(|inside| self.settled_tps(inside)).collect();
        }
        let mut points: Vec<(u32, f64)> = Vec::new();
        let mut limit = 1;
        loop {
            points.push((limit, self.measured_tps(limit)));
            if limit >= clients.min(HIGHEST) {
                break;
            }
            limit = (limit + (limit / 7).max(1)).min(clients).min(HIGHEST);
        }
        let curve = Curve::new(&points).expect("the limits rise, and every throughput is above 0");
        (1..=HIGHEST).map(|limit| curve.tps(f64::from(limit))).collect()
    }

    /// What a run without noise completes per second, the first third left out.
    fn measured_tps(&self, limit: u32) -> f64 {
        let seconds = (20.0 * (self.think_s + 1.0)).clamp(30.0, 300.0);
        let quiet = SharingPhase {
            noise: 0.0,
            wander: 0.0,
            outliers: 0.0,
            inertia_s: 0.0,
            delay_s: 0.0,
            ..self.clone()
        };
        let mut plant = SharingPlant::new(&[quiet], SEED);
        let limit = Mpl::at_least_one(limit);
        for _ in 0..whole(seconds * 10.0) {
            plant.interval(limit);
        }
        let all = plant.seconds();
        let counted = &all[all.len() / 3..];
        let done: f64 = counted.iter().map(|second| second.completions as f64).sum();
        (done / counted.len().max(1) as f64).max(0.01) * (1.0 - self.outliers / 2.0)
    }

    /// The throughput of this phase at every fixed limit from 1 to 1,000.
    #[must_use]
    pub fn truth(&self) -> Truth {
        let clients = self.clients.or(Some(HIGHEST));
        let crowded = SharingPhase { arrivals_tps: None, clients, ..self.clone() };
        let alone = crowded.alone_tps();
        let Some(tps) = self.arrivals_tps else {
            return Truth::of(alone, None);
        };
        let capacity_tps = alone.iter().copied().fold(0.0, f64::max);
        let best_up_to = alone.iter().scan(0.0_f64, |best, &at| {
            *best = best.max(at);
            Some(best.min(tps))
        });
        Truth::of(best_up_to.collect(), Some(Arrivals { tps, capacity_tps }))
    }
}
