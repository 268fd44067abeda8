//! What the controller does on a small simulated curve, and in the cases apart.

use super::*;
use crate::SplitMix64;
use crate::controller::whole;
use crate::testing::{DRAW, bounds, observed};

/// A throughput curve.
type TpsCurve = fn(f64) -> f64;

fn gunther(level: f64, lambda: f64, sigma: f64, kappa: f64) -> f64 {
    lambda * level / (1.0 + sigma * (level - 1.0) + kappa * level * (level - 1.0))
}

/// The example of the module's head: the top at 31.
fn example(level: f64) -> f64 {
    gunther(level, 100.0, 0.05, 0.001)
}

/// 100 stations: rises for ever, half of what it can at 100.
fn rising(level: f64) -> f64 {
    gunther(level, 200.0, 0.01, 0.0)
}

/// The same with any number.
fn flat(_: f64) -> f64 {
    1_500.0
}

/// A corner at 4, and no law beyond.
fn cornered(level: f64) -> f64 {
    if level < 4.5 { 500.0 * level } else { 1_700.0 / (1.0 + level / 100.0) }
}

const CURVES: [(&str, TpsCurve); 4] =
    [("example", example), ("rising", rising), ("flat", flat), ("cornered", cornered)];

const CLIENTS: u32 = 1_000;

fn best(curve: TpsCurve) -> f64 {
    (1..=CLIENTS).map(|level| curve(f64::from(level))).fold(0.0, f64::max)
}

/// A controller that works on one curve after another.
struct ScalabilityRun {
    controller: Scalability,
    limit: Mpl,
    random: SplitMix64,
}

impl ScalabilityRun {
    fn new(start: u32, seed: u64) -> ScalabilityRun {
        let start = Mpl::at_least_one(start);
        let settings = ScalabilitySettings::PROXY;
        let controller = Scalability::new(bounds(1, 1_000), start, settings);
        ScalabilityRun { controller, limit: start, random: SplitMix64::new(seed) }
    }

    /// A second at the limit, in which throughput is off by up to 1.7 times `noise`, uniformly, so
    /// that `noise` is its deviation. The shares of the best that the limits have without noise.
    fn shares(&mut self, curve: TpsCurve, noise: f64, intervals: usize) -> Vec<f64> {
        let mut shares = Vec::new();
        for _ in 0..intervals {
            let level = f64::from(self.limit.get());
            let off = noise * 12.0_f64.sqrt() * (self.random.next_draw().value() - 0.5);
            let tps = u64::from(whole((curve(level) * (1.0 + off)).round()));
            let seen = observed(self.limit.get(), CLIENTS, tps);
            shares.push(curve(level) / best(curve));
            self.limit = self.controller.decide(&seen, self.random.next_draw()).limit;
        }
        shares
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
fn it_settles_near_the_best_from_any_start() {
    for (name, curve) in CURVES {
        for (noise, least) in [(0.0, 0.95), (0.03, 0.95), (0.1, 0.9)] {
            for start in [1, 8, 150, 1_000] {
                let shares = ScalabilityRun::new(start, 1).shares(curve, noise, 120);
                let settled = mean(&shares[60..]);
                assert!(settled > least, "{name} from {start}, noise {noise}: {settled:.3}");
            }
        }
    }
}

/// Intervals 20 to 29 average 95 % of the best.
#[test]
fn it_is_there_within_twenty_intervals() {
    for (name, curve) in [("example", example as TpsCurve), ("rising", rising), ("flat", flat)] {
        for start in [1, 3, 8, 20, 150, 1_000] {
            let shares = ScalabilityRun::new(start, 2).shares(curve, 0.03, 30);
            let settled = mean(&shares[20..]);
            assert!(settled > 0.95, "{name} from {start}: {settled:.3}, {shares:?}");
        }
    }
}

/// Of limits that give the same the lowest: on a flat curve fewer than ten, nearly always.
#[test]
fn where_nothing_is_gained_by_more_it_takes_few() {
    for start in [8, 150, 1_000] {
        let mut run = ScalabilityRun::new(start, 3);
        run.shares(flat, 0.03, 60);
        let few = (0..100).filter(|_| {
            run.shares(flat, 0.03, 1);
            run.limit.get() < 10
        });
        let few = few.count();
        assert!(few > 80, "from {start}: {few} of 100");
    }
}

#[test]
fn it_follows_the_database_when_it_becomes_another_one() {
    for (before, after) in
        [(example as TpsCurve, rising as TpsCurve), (rising, example), (rising, cornered)]
    {
        let mut run = ScalabilityRun::new(8, 4);
        run.shares(before, 0.03, 100);
        let shares = run.shares(after, 0.03, 60);
        assert!(mean(&shares[30..]) > 0.93, "{:.3}", mean(&shares[30..]));
    }
}

#[test]
fn the_example_of_the_head() {
    let mut run = ScalabilityRun::new(8, 5);
    let mut limits = Vec::new();
    for _ in 0..40 {
        limits.push(run.limit.get());
        run.shares(example, 0.0, 1);
    }
    assert_eq!(limits[..4], [8, 24, 69, 32]);
    let stays = limits[20..].iter().filter(|&&limit| limit == 23).count();
    assert!(stays >= 16, "{limits:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| ScalabilityRun::new(8, seed).shares(example, 0.05, 150);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

/// A controller that has settled on the example, without noise.
fn settled() -> ScalabilityRun {
    let mut run = ScalabilityRun::new(8, 6);
    run.shares(example, 0.0, 45);
    run
}

fn decide(run: &mut ScalabilityRun, tps: u64) -> ScalabilityReason {
    let decision = run.controller.decide(&observed(run.limit.get(), CLIENTS, tps), DRAW);
    match decision.reason {
        Reason::Scalability(reason) => reason,
        other => panic!("{other}"),
    }
}

/// Half of what was believed: once and twice it is doubted, three times it is a change; twice as
/// much already the second time. After one odd interval all is as it was.
#[test]
fn far_readings_are_doubted_before_they_are_believed() {
    let usual =
        |run: &ScalabilityRun| u64::from(whole(example(f64::from(run.limit.get())).round()));
    let mut run = settled();
    let half = usual(&run) / 2;
    assert!(matches!(decide(&mut run, half), ScalabilityReason::Doubt { .. }));
    assert!(matches!(decide(&mut run, half), ScalabilityReason::Doubt { .. }));
    assert!(matches!(decide(&mut run, half), ScalabilityReason::Changed { .. }));
    let mut run = settled();
    let twice = usual(&run) * 2;
    assert!(matches!(decide(&mut run, twice), ScalabilityReason::Doubt { .. }));
    assert!(matches!(decide(&mut run, twice), ScalabilityReason::Changed { .. }));
    let mut run = settled();
    let (half, usual) = (usual(&run) / 2, usual(&run));
    let levels =
        |run: &ScalabilityRun| run.controller.levels.believe(1e-4).map(|belief| belief.at(27.0));
    let before = levels(&run).expect("all was seen");
    decide(&mut run, half);
    decide(&mut run, usual);
    let after = levels(&run).expect("all was seen");
    assert!((after.mean - before.mean).abs() < 0.005, "{before:?} {after:?}");
}

/// A second with these inside and waiting. 100 completed.
fn second(limit: u32, concurrency: u32, running_mean: f64, waiting_share: f64) -> Observation {
    let mut seen = observed(limit, concurrency, 100);
    (seen.running_mean, seen.waiting_share) = (running_mean, waiting_share);
    seen
}

#[test]
fn what_an_interval_is_a_reading_of() {
    let table = [
        (second(20, 1_000, 20.0, 1.0), Some((20.0, true)), "all wait for the limit"),
        (second(20, 1_000, 19.0, 1.0), Some((20.0, true)), "within 10 % of the limit"),
        (second(20, 1_000, 80.0, 1.0), Some((80.0, false)), "draining"),
        (second(20, 20, 20.0, 0.0), Some((20.0, true)), "all are inside"),
        (second(20, 30, 12.0, 0.3), None, "now and then somebody waits"),
        (second(20, 0, 0.0, 0.0), None, "nobody is there"),
        (second(20, 1_000, f64::NAN, 1.0), None, "no number"),
    ];
    for (seen, expected, case) in table {
        let reading = LevelReading::of(&seen, Mpl::at_least_one(20));
        assert_eq!(reading.map(|reading| (reading.level, reading.is_held)), expected, "{case}");
    }
}

/// 100 completions: 0.01. On the way from 80 to 20, ln 4 = 1.386: a quarter of its square is 0.480.
#[test]
fn a_reading_over_several_levels_counts_for_less() {
    let own =
        |seen: &Observation| LevelReading::of(seen, Mpl::at_least_one(20)).expect("steady").own;
    assert!((own(&second(20, 1_000, 20.0, 1.0)) - 0.01).abs() < 1e-12);
    assert!((own(&second(20, 1_000, 80.0, 1.0)) - 0.4905).abs() < 1e-3);
}

#[test]
fn the_limit_in_the_cases_apart() {
    let table = [
        (second(20, 30, 12.0, 0.05), 20, "light"),
        (second(20, 30, 12.0, 0.3), 25, "relieve"),
        (second(20, 22, 12.0, 0.3), 22, "relieve"),
        (second(20, 10, 4.0, 0.0), 10, "concurrency"),
        (second(20, 1_000, 80.0, 1.0), 20, "drain"),
        (observed(20, 0, 0), 1, "concurrency"),
        (
            Observation { running_mean: 0.0, waiting_share: 0.0, ..observed(20, 30, 0) },
            20,
            "nothing_completed",
        ),
        (observed(20, 1_000, 3), 20, "measure"),
    ];
    for (seen, limit, kind) in table {
        let mut run = ScalabilityRun::new(20, 7);
        let decision = run.controller.decide(&seen, DRAW);
        assert_eq!((decision.limit.get(), decision.reason.kind()), (limit, kind), "{seen:?}");
    }
}

/// 1,000 inside and nothing completes: after enough of it the limit goes down.
#[test]
fn a_database_in_which_nothing_completes_gets_fewer() {
    let mut run = ScalabilityRun::new(1_000, 8);
    for _ in 0..60 {
        run.limit = run.controller.decide(&observed(run.limit.get(), CLIENTS, 0), DRAW).limit;
    }
    assert!(run.limit.get() < 500, "{}", run.limit);
}

/// Squares of 0.01 from the first guess of 0.0064 on: at least 90 % of the way after 30 of them.
#[test]
fn the_noise_is_learnt() {
    let mut noise = Noise::new();
    (0..30).for_each(|_| noise.learn(0.01));
    assert!((noise.variance - 0.01).abs() < 0.0004, "{noise:?}");
    noise.learn(100.0);
    assert!(noise.variance < 0.013, "{noise:?}");
    (0..1_000).for_each(|_| noise.learn(-1.0));
    assert!((noise.variance - Noise::LEAST).abs() < 1e-12, "{noise:?}");
}

/// Deviations of 1.5, of which 0.5 are noise: the sum passes 7 with the eighth.
#[test]
fn small_deviations_add_up_to_a_change() {
    let mut watch = ChangeWatch::default();
    for _ in 0..7 {
        assert_eq!(watch.look(-1.5, FAR), News::Fits);
    }
    assert_eq!(watch.look(-1.5, FAR), News::Change { deviations: -1.5 });
}
