//! Arms beside the limit, on plants whose arms have curves of their own.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::ops::Range;

use tidegate_control::plant::{Curve, SharingPhase, SharingPlant, Simulated};
use tidegate_control::{
    Algorithm, ArmReason, Arms, Bounds, Controller, Decision, Draw, GoalSeen, GoalStatus,
    IntervalRule, Mpl, Observation, Reason, Resources, Setting, SplitMix64,
};

const CLIENTS: u32 = 100;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
fn whole(number: f64) -> u32 {
    number as u32
}

/// Throughput with one inside, the best limit with its throughput, and with all clients inside.
#[derive(Clone, Copy, Debug)]
struct Shape {
    alone: f64,
    best: (u32, f64),
    all: f64,
}

impl Shape {
    fn curve(self) -> Curve {
        let mut points = vec![self.best, (CLIENTS, self.all)];
        if self.best.0 > 1 {
            points.insert(0, (1, self.alone));
        }
        Curve::new(&points).expect("a curve")
    }

    fn draw(random: &mut SplitMix64, tps: f64) -> Shape {
        let limit = whole(libm::exp2(6.0 * random.next_draw().value()));
        let rise = 0.4 + 0.6 * random.next_draw().value();
        let fall = 0.2 + 0.8 * random.next_draw().value();
        Shape {
            alone: tps / libm::pow(f64::from(limit), rise),
            best: (limit, tps),
            all: tps * fall,
        }
    }
}

/// A plant with arms, which have other curves in the second half.
#[derive(Clone, Debug)]
struct Plant {
    halves: [Vec<Shape>; 2],
    noise: f64,
    wander: f64,
}

impl Plant {
    /// Two to eight arms of which one is best, and others have from a tenth up to all of it. In the
    /// second half other arms are best, as a rule.
    fn draw(seed: u64) -> Plant {
        let random = &mut SplitMix64::new(seed);
        let count = 2 + whole(7.0 * random.next_draw().value()) as usize;
        let best_tps = 300.0 * libm::exp10(random.next_draw().value());
        let halves = [(); 2].map(|()| {
            let mut half: Vec<Shape> = (0..count)
                .map(|_| {
                    let share = libm::exp10(-random.next_draw().value());
                    Shape::draw(random, best_tps * share)
                })
                .collect();
            let best = whole(count as f64 * random.next_draw().value()) as usize;
            half[best] = Shape::draw(random, best_tps);
            half
        });
        Plant { halves, noise: 0.08, wander: 0.05 }
    }

    fn equal(count: usize) -> Plant {
        let shape = Shape { alone: 200.0, best: (8, 1_000.0), all: 500.0 };
        Plant { halves: [vec![shape; count], vec![shape; count]], noise: 0.05, wander: 0.05 }
    }

    fn best(&self, half: usize) -> f64 {
        self.halves[half].iter().map(|shape| shape.best.1).fold(0.0, f64::max)
    }

    /// Runs each half for so many seconds; all randomness begins at `from`.
    fn run(&self, chooser: &mut dyn Controller, half_s: u32, from: u64) -> Vec<Tick> {
        let phase = SharingPhase::closed(self.halves[0][0].curve(), CLIENTS, self.noise, 1e9);
        let phase = SharingPhase { wander: self.wander, ..phase };
        let mut plant = SharingPlant::new(&[phase], from);
        let (mut limit, mut arm) = (chooser.start(), 0);
        let mut draws = SplitMix64::new(!from);
        let mut course = Vec::new();
        for tick in 0..half_s * 20 {
            let half = usize::from(tick >= half_s * 10);
            plant.set_points(&self.halves[half][arm].curve());
            let seen = plant.interval_by(limit, chooser.interval_rule());
            let is_trial = chooser.arm().expect("arms").is_trial;
            let decision = chooser.decide(&seen, draws.next_draw());
            let next = chooser.arm().expect("arms");
            course.push(Tick { arm, is_trial, seen, decision, why: next.reason });
            (limit, arm) = (decision.limit, next.arm);
        }
        course
    }
}

/// An interval, the arm that was in force and what was decided.
struct Tick {
    arm: usize,
    is_trial: bool,
    seen: Observation,
    decision: Decision,
    why: ArmReason,
}

fn setting() -> Setting {
    Setting {
        bounds: Bounds::new(Mpl::ONE, Mpl::at_least_one(CLIENTS)).expect("bounds"),
        start: Mpl::at_least_one(8),
        resources: Resources { cpus: 8, disks: 1 },
    }
}

fn arms(count: usize) -> Arms {
    let count = NonZeroUsize::new(count).expect("an arm");
    Arms::new(count, setting().bounds, |_| Algorithm::PairedComparison.controller(&setting()))
}

fn tps(course: &[Tick]) -> f64 {
    let seconds: f64 = course.iter().map(|tick| tick.seen.interval.as_secs_f64()).sum();
    course.iter().map(|tick| tick.seen.completions as f64).sum::<f64>() / seconds
}

/// Shares of the best in both halves, without the first minute of each.
fn settled_shares(seed: u64, half_s: u32) -> [f64; 2] {
    let plant = Plant::draw(seed);
    let course = plant.run(&mut arms(plant.halves[0].len()), half_s, seed);
    let half = half_s as usize * 10;
    [0, 1].map(|of| tps(&course[of * half + 600..(of + 1) * half]) / plant.best(of))
}

/// Against the best arm at its best limit, of which nothing is lost to any search.
fn assert_near_the_best(seeds: Range<u64>, half_s: u32) {
    let shares: Vec<(u64, f64)> =
        seeds.flat_map(|seed| settled_shares(seed, half_s).map(|share| (seed, share))).collect();
    let short: Vec<&(u64, f64)> = shares.iter().filter(|(_, share)| *share < 0.95).collect();
    assert!(short.len() * 4 <= shares.len(), "seeds and shares: {short:?} of {}", shares.len());
    assert!(short.iter().all(|(_, share)| *share > 0.8), "seeds and shares: {short:?}");
    let mean = shares.iter().map(|(_, share)| share).sum::<f64>() / shares.len() as f64;
    assert!(mean > 0.95, "{mean} of {shares:?}");
}

#[test]
fn the_best_arm_is_found_at_its_best_limit_and_again_after_a_change() {
    assert_near_the_best(1..7, 300);
}

#[test]
#[ignore = "soak: eight minutes"]
fn the_best_arm_is_found_on_many_plants() {
    assert_near_the_best(1_000..1_040, 300);
}

/// The interval after which the best arm was in force for nine of ten intervals of 10 s.
fn settled_after(course: &[Tick], best: usize) -> Option<usize> {
    course.windows(100).position(|part| {
        part[0].arm == best && part.iter().filter(|tick| tick.arm == best).count() >= 90
    })
}

/// One arm of eight has far more than the others, at a low, a middle or a high limit.
#[test]
fn an_arm_that_is_far_better_is_in_force_after_seconds() {
    for seed in 1..=6 {
        let best = (seed % 8) as usize;
        let limit = [2, 8, 50][(seed % 3) as usize];
        let poor = Shape { alone: 400.0, best: (4, 600.0), all: 200.0 };
        let good = Shape { alone: 1_500.0, best: (limit, 6_000.0), all: 1_000.0 };
        let mut half = vec![poor; 8];
        half[best] = good;
        let plant = Plant { halves: [half.clone(), half], ..Plant::equal(0) };
        let course = plant.run(&mut arms(8), 20, seed);
        let after = settled_after(&course, best);
        assert!(after.is_some_and(|ticks| ticks <= 120), "seed {seed}: {after:?} ticks");
    }
}

/// Arms that complete next to nothing, or nothing in most intervals, cost little.
#[test]
fn arms_that_collapse_are_left() {
    for seed in 1..=4 {
        let dead = Shape { alone: 0.2, best: (8, 1.0), all: 0.2 };
        let good = Shape { alone: 500.0, best: (8, 3_000.0), all: 1_500.0 };
        let half = vec![dead, dead, good, dead];
        let plant = Plant { halves: [half.clone(), half], ..Plant::equal(0) };
        let course = plant.run(&mut arms(4), 60, seed);
        let share = tps(&course[200..]) / 3_000.0;
        assert!(share > 0.93, "seed {seed}: {share}");
    }
}

/// The arm in force collapses in the second half, and another one takes over.
#[test]
fn an_incumbent_that_collapses_is_left() {
    for seed in 1..=4 {
        let dead = Shape { alone: 0.2, best: (8, 1.0), all: 0.2 };
        let good = |tps| Shape { alone: tps / 6.0, best: (8, tps), all: tps / 2.0 };
        let halves = [vec![good(3_000.0), good(2_000.0)], vec![dead, good(2_000.0)]];
        let course = Plant { halves, ..Plant::equal(0) }.run(&mut arms(2), 60, seed);
        let after = settled_after(&course[600..], 1);
        assert!(after.is_some_and(|ticks| ticks <= 100), "seed {seed}: {after:?} ticks");
    }
}

/// A comparison may be wrong, but not again and again.
#[test]
fn equal_arms_do_not_take_turns() {
    for seed in 1..=3 {
        let course = Plant::equal(8).run(&mut arms(8), 100, seed);
        let is_change = |tick: &&Tick| matches!(tick.why, ArmReason::Adopt { .. });
        let changes = course.iter().filter(is_change).count();
        let share = tps(&course[600..]) / 1_000.0;
        assert!(changes <= 3 && share > 0.93, "seed {seed}: {changes} changes, {share}");
    }
}

#[test]
fn what_is_not_the_best_is_rarely_in_force() {
    for seed in 1..=3 {
        let mut plant = Plant::draw(seed);
        plant.halves[1] = plant.halves[0].clone();
        let course = plant.run(&mut arms(plant.halves[0].len()), 100, seed);
        let settled = &course[1_000..];
        let trials = settled.iter().filter(|tick| tick.is_trial).count();
        assert!(trials * 10 < settled.len(), "seed {seed}: {trials} of {}", settled.len());
    }
}

#[test]
fn one_arm_is_its_controller() {
    let plant = Plant::equal(1);
    let course = plant.run(&mut arms(1), 30, 3);
    let mut alone = Algorithm::PairedComparison.controller(&setting());
    let mut draws = SplitMix64::new(!3);
    for tick in &course {
        assert_eq!(alone.decide(&tick.seen, draws.next_draw()), tick.decision);
    }
}

#[test]
fn the_same_observations_and_draws_give_the_same_arms() {
    let plant = Plant::draw(5);
    let count = plant.halves[0].len();
    let course = plant.run(&mut arms(count), 40, 5);
    let (mut again, mut draws) = (arms(count), SplitMix64::new(!5));
    for tick in &course {
        assert_eq!(again.arm().map(|arm| arm.arm), Some(tick.arm));
        assert_eq!(again.decide(&tick.seen, draws.next_draw()), tick.decision);
    }
    let tried: BTreeSet<usize> = course.iter().map(|tick| tick.arm).collect();
    assert_eq!(tried.len(), count, "each arm was in force");
}

/// A limit, and whether any keeps the response time.
struct Judge {
    is_impossible: bool,
}

impl Controller for Judge {
    fn name(&self) -> &'static str {
        "judge"
    }

    fn start(&self) -> Mpl {
        Mpl::at_least_one(8)
    }

    fn interval_rule(&self) -> IntervalRule {
        Algorithm::PairedComparison.controller(&setting()).interval_rule()
    }

    fn decide(&mut self, _: &Observation, _: Draw) -> Decision {
        Decision { limit: self.start(), reason: Reason::Fixed }
    }

    fn goal(&self) -> Option<GoalStatus> {
        let Judge { is_impossible } = *self;
        let (ceiling, seen) = (self.start(), GoalSeen::default());
        Some(GoalStatus { is_met: Some(!is_impossible), is_impossible, ceiling, seen })
    }
}

#[test]
fn an_arm_that_keeps_the_response_time_is_before_a_faster_one_that_does_not() {
    let shape = |tps| Shape { alone: tps / 5.0, best: (8, tps), all: tps / 2.0 };
    let half = vec![shape(1_000.0), shape(400.0), shape(2_000.0)];
    let plant = Plant { halves: [half.clone(), half], ..Plant::equal(0) };
    for seed in 1..=3 {
        let count = NonZeroUsize::new(3).expect("three");
        let mut arms =
            Arms::new(count, setting().bounds, |arm| Box::new(Judge { is_impossible: arm != 1 }));
        let course = plant.run(&mut arms, 30, seed);
        let kept = course[300..].iter().filter(|tick| tick.arm == 1).count();
        assert!(kept * 10 > 300 * 8, "seed {seed}: {kept} of 300");
    }
}
