//! Draws of the sharing plant, and whole plants drawn at random.
//!
//! The families are those that a proxy meets and that make searching hard. Nothing is tuned on the
//! plants of a seed that a published figure uses.

use super::super::scenario::HIGHEST;
use super::super::shapes::{RandomShape, flat_then_falling, network, scalability, sharp_peak};
use super::super::{Curve, Scenario, ScenarioError, ScenarioFile};
use super::{Overload, SharingClass, SharingPhase};
use crate::SplitMix64;
use crate::controller::whole;

/// A speed with mean 1: lognormal, which is never negative.
pub(super) fn speed(random: &mut SplitMix64, deviation: f64) -> f64 {
    if deviation > 0.0 { lognormal(random, deviation) } else { 1.0 }
}

/// An amount of work with mean 1 and coefficient of variation `spread`.
pub(super) fn work(random: &mut SplitMix64, spread: f64) -> f64 {
    if spread == 0.0 {
        1.0
    } else if (spread - 1.0).abs() < 1e-9 {
        random.next_exponential()
    } else {
        lognormal(random, spread)
    }
}

/// A draw with mean 1 and this coefficient of variation.
fn lognormal(random: &mut SplitMix64, variation: f64) -> f64 {
    let variance = libm::log(1.0 + variation * variation);
    libm::exp(variance.sqrt() * random.next_normal() - variance / 2.0)
}

/// A plant drawn from `seed`: one to three phases, each with a curve, a load and troubles of its
/// own. The same seed gives the same plant on every machine.
///
/// # Errors
/// None: what is drawn is within the bounds of what can be run.
pub fn random_scenario(seed: u64) -> Result<Scenario, ScenarioError> {
    let random = &mut SplitMix64::new(seed ^ 0x7269_7665_7273);
    let traits = Traits::draw(random);
    let mut phases = Vec::new();
    for _ in 0..traits.phases {
        phases.push(traits.phase(random));
    }
    Scenario::try_from(ScenarioFile {
        name: format!("random-{seed}"),
        about: traits.about(),
        curve: Vec::new(),
        events: Vec::new(),
        sharing: phases,
    })
}

/// What the phases of a drawn plant have in common.
#[expect(clippy::struct_excessive_bools, reason = "each trouble is there or not, by itself")]
struct Traits {
    phases: u32,
    clients: u32,
    /// Time of a transaction that is alone, seconds.
    alone_s: f64,
    noise: f64,
    noise_s: f64,
    spread: f64,
    has_idle: bool,
    has_think: bool,
    has_inertia: bool,
    has_delay: bool,
    has_overload: bool,
    is_open: bool,
}

impl Traits {
    fn draw(random: &mut SplitMix64) -> Traits {
        let is_slow = random.next_chance(0.2);
        let alone_s = if is_slow {
            random.next_log_between(0.1, 10.0)
        } else {
            random.next_log_between(0.000_5, 0.1)
        };
        let clients =
            if random.next_chance(0.04) { 1.0 } else { random.next_log_between(16.0, 1_001.0) };
        Traits {
            phases: whole(random.next_between(1.0, 3.99)),
            clients: whole(clients).max(1),
            alone_s,
            noise: random.next_log_between(0.01, 0.3),
            noise_s: if random.next_chance(0.25) { 1.0 } else { super::TICK_S },
            spread: [0.0, 0.5, 1.0, 1.0, 3.0][whole(random.next_between(0.0, 4.999)) as usize],
            has_idle: random.next_chance(0.12),
            has_think: random.next_chance(0.12),
            has_inertia: random.next_chance(0.15),
            has_delay: random.next_chance(0.1),
            has_overload: random.next_chance(0.15),
            is_open: random.next_chance(0.06),
        }
    }

    fn about(&self) -> String {
        let table = [
            (self.phases > 1, "steps"),
            (self.alone_s > 0.1, "slow"),
            (self.has_idle, "idle"),
            (self.has_think, "think"),
            (self.has_inertia, "inertia"),
            (self.has_delay, "delay"),
            (self.has_overload, "overload"),
            (self.is_open, "open"),
            (self.spread > 1.0, "tail"),
            (self.noise > 0.1, "noise"),
            (self.clients == 1, "one-client"),
        ];
        let troubles: Vec<&str> =
            table.into_iter().filter_map(|(has, name)| has.then_some(name)).collect();
        if troubles.is_empty() { "plain".to_owned() } else { troubles.join(" ") }
    }

    fn phase(&self, random: &mut SplitMix64) -> SharingPhase {
        let shape = draw_shape(random);
        let alone_tps = (1.0 / self.alone_s) * random.next_log_between(0.5, 2.0);
        let levels = std::iter::successors(Some(1), |&level: &u32| {
            (level < HIGHEST).then(|| (level + (level / 10).max(1)).min(HIGHEST))
        });
        let at_one = shape(1.0);
        let points: Vec<(u32, f64)> = levels
            .map(|level| (level, alone_tps * (shape(f64::from(level)) / at_one).max(1e-6)))
            .collect();
        let (top, best_tps) = points
            .iter()
            .fold((1, 0.0), |best, &point| if point.1 > best.1 { point } else { best });
        // A plant of more than 20,000 transactions a second is as good at a part of the speed.
        let scale = (20_000.0 / best_tps).min(1.0);
        let best_tps = best_tps * scale;
        let points: Vec<(u32, f64)> =
            points.into_iter().map(|(level, tps)| (level, tps * scale)).collect();
        let curve = Curve::new(&points).expect("the levels rise, and every throughput is above 0");
        let seconds = (20.0 * self.alone_s).clamp(120.0, 240.0);
        let closed = SharingPhase::closed(curve, self.clients, self.noise, seconds);
        let residence_s = f64::from(top) / best_tps;
        let idle_s = if self.has_idle { random.next_log_between(0.02, 1.0) } else { 0.0 };
        let class = SharingClass { spread: self.spread, idle_s, ..SharingClass::USUAL };
        let arrivals =
            (self.is_open && best_tps < 5_000.0).then(|| best_tps * random.next_between(0.3, 0.95));
        SharingPhase {
            noise_s: self.noise_s,
            clients: if arrivals.is_some() { None } else { closed.clients },
            arrivals_tps: arrivals,
            think_s: if self.has_think && arrivals.is_none() {
                residence_s * random.next_between(0.2, 5.0)
            } else {
                0.0
            },
            inertia_s: if self.has_inertia { random.next_log_between(1.0, 15.0) } else { 0.0 },
            delay_s: if self.has_delay { random.next_log_between(0.1, 2.0) } else { 0.0 },
            overload: self.has_overload.then(|| Overload {
                above: whole(f64::from(top) * random.next_log_between(1.2, 6.0)),
                loss: random.next_between(0.2, 0.8),
                builds_s: random.next_log_between(0.2, 5.0),
                recovers_s: random.next_log_between(2.0, 30.0),
            }),
            classes: vec![class],
            ..closed
        }
    }
}

fn draw_shape(random: &mut SplitMix64) -> RandomShape {
    match whole(random.next_between(0.0, 6.999)) {
        0 => hill(random),
        1 => network(random),
        2 => scalability(random),
        3 => flat_then_falling(random, 60.0),
        4 => cliff(random),
        5 => two_peaks(random),
        _ => sharp_peak(random, 1.0),
    }
}

/// On logarithmic axes a parabola up to the top and beyond, then a straight line.
fn hill(random: &mut SplitMix64) -> RandomShape {
    let top = libm::log(random.next_log_between(1.5, 400.0));
    let (rise, fall) = (random.next_between(0.4, 1.0), random.next_between(0.1, 0.9));
    Box::new(move |level| {
        let (before, beyond) = (libm::log(level).min(top), (libm::log(level) - top).max(0.0));
        let up = rise * before * (2.0 - before / top) / 2.0;
        let down = if beyond < 2.0 { beyond * beyond / 4.0 } else { beyond - 1.0 };
        libm::exp(up - fall * down)
    })
}

/// Rises to a cliff just above the best level.
fn cliff(random: &mut SplitMix64) -> RandomShape {
    let edge = random.next_log_between(2.0, 300.0);
    let power = random.next_between(0.3, 1.0);
    let left = random.next_between(0.2, 0.8);
    Box::new(
        move |level| {
            if level <= edge { libm::pow(level, power) } else { libm::pow(edge, power) * left }
        },
    )
}

/// A low hill and, four to twenty times as far out, another that is higher or lower.
fn two_peaks(random: &mut SplitMix64) -> RandomShape {
    let first = libm::log(random.next_log_between(2.0, 20.0));
    let second = first + libm::log(random.next_log_between(4.0, 20.0));
    let height = random.next_between(0.75, 1.35);
    let rise = random.next_between(0.4, 1.0);
    Box::new(move |level| {
        let x = libm::log(level);
        let low = libm::exp(rise * (x.min(first) - first) - 0.5 * (x - first).max(0.0));
        let bump = height * libm::exp(-((x - second) / 0.6).powi(2) / 2.0);
        low.max(bump).max(0.05)
    })
}
