//! What the estimator makes of measurements that are known.

use super::*;
use crate::testing::{bounds, observed};
use crate::{Resources, SplitMix64};

fn estimator() -> Estimator {
    let resources = Resources { cpus: 2, disks: 1 };
    let setting = Setting { bounds: bounds(1, 1_000), start: Mpl::ONE, resources };
    Estimator::new(&setting)
}

/// A second with an open gate and so many inside, of which so many end.
fn second(inside: u32, completions: u64) -> Observation {
    Observation { waiting_share: 0.0, ..observed(1_000, inside, completions) }
}

/// From the first population to the last and back, three times.
fn up_and_down(populations: &[(u32, f64)]) -> Vec<(u32, f64)> {
    let back = populations.iter().rev().chain(populations).copied();
    let turns = std::iter::repeat_n(back.collect::<Vec<_>>(), 3).flatten();
    populations.iter().copied().chain(turns).collect()
}

/// So many seconds of each population, with noise of 2 %.
fn shown(populations: &[(u32, f64)], seconds: u32) -> Estimator {
    let random = &mut SplitMix64::new(3);
    let mut estimator = estimator();
    for &(inside, tps) in populations {
        for _ in 0..seconds {
            let noise = 0.02 * 3_f64.sqrt() * (2.0 * random.next_draw().value() - 1.0);
            let done = crate::controller::whole(tps * (1.0 + noise));
            estimator.learn(&second(inside, done.into()));
        }
    }
    estimator
}

/// The example of the module's head.
#[test]
fn the_example() {
    let populations =
        [(4, 2_380.0), (8, 2_280.0), (16, 2_050.0), (32, 1_730.0), (64, 1_290.0), (128, 900.0)];
    let estimator = shown(&up_and_down(&populations), 10);
    let Gain::Known { share, low, high, running, .. } = estimator.gain(Mpl::at_least_one(8)) else {
        panic!("{}", estimator.gain(Mpl::at_least_one(8)))
    };
    let truth = 2_280.0 / 900.0 - 1.0;
    assert!(low < truth && truth < high, "{low} {high}");
    assert!((share - truth).abs() < 0.15 && high - low < 0.6, "{share} {low} {high}");
    assert!((running - 128.0).abs() < 1e-9);
    // It may be between 4 and 8, or below 4.
    let best = estimator.best();
    assert!(matches!(best, BelievedBest::NotKnown(NotKnown::Several { .. })), "{best}");
}

/// Throughput falls from the lowest population seen.
#[test]
fn where_throughput_falls_from_the_lowest_population_a_lower_limit_may_be_better() {
    let populations: Vec<(u32, f64)> =
        (4..=20).map(|level| (level, 1_000.0 / f64::from(level).sqrt())).collect();
    let best = shown(&up_and_down(&populations), 6).best();
    let is_edge =
        matches!(best, BelievedBest::NotKnown(NotKnown::Edge { lowest }) if lowest.get() == 4);
    assert!(is_edge, "{best}");
}

/// Once up and once down is no comparison: the machine may have been another one meanwhile.
#[test]
fn a_population_that_was_elsewhere_once_is_no_comparison() {
    let estimator = shown(&[(8, 1_000.0), (64, 500.0), (8, 1_000.0), (64, 500.0)], 60);
    let gain = estimator.gain(Mpl::at_least_one(8));
    assert_eq!(gain, Gain::NotKnown(NotKnown::Seldom { crossings: 3 }));
}

#[test]
fn a_population_that_hardly_varies_says_nothing() {
    let estimator = shown(&[(3, 900.0), (4, 1_000.0), (3, 890.0)], 30);
    let narrow = NotKnown::Narrow { lowest: Mpl::at_least_one(3), highest: Mpl::at_least_one(4) };
    assert_eq!(estimator.gain(Mpl::ONE), Gain::NotKnown(narrow));
    assert_eq!(estimator.best(), BelievedBest::NotKnown(narrow));
}

#[test]
fn before_anything_steady_was_seen_nothing_is_known() {
    let mut estimator = estimator();
    let expected = Gain::NotKnown(NotKnown::Nothing);
    for _ in 0..100 {
        let swinging = Observation { running_mean: 5.0, ..second(50, 1_000) };
        estimator.learn(&swinging);
        estimator.learn(&Observation { completions: 0, ..second(50, 0) });
    }
    assert_eq!(estimator.gain(Mpl::ONE), expected);
}

#[test]
fn a_limit_above_the_population_gains_nothing_now() {
    let estimator = shown(&[(64, 1_000.0), (8, 2_000.0)], 30);
    assert_eq!(estimator.gain(Mpl::at_least_one(8)), Gain::NotBinding { running: 8.0 });
    assert_eq!(estimator.gain(Mpl::at_least_one(1_000)), Gain::NotBinding { running: 8.0 });
}

#[test]
fn a_limit_below_every_population_is_not_judged() {
    let estimator = shown(&[(16, 2_000.0), (64, 1_000.0)], 30);
    let gain = estimator.gain(Mpl::at_least_one(4));
    assert!(matches!(gain, Gain::NotKnown(NotKnown::Below { .. })), "{gain}");
}

#[test]
fn where_throughput_does_not_fall_no_limit_is_needed() {
    for tps in [|level: u32| 50.0 * f64::from(level), |_| 500.0] {
        let populations: Vec<(u32, f64)> = (2..=16).map(|level| (level, tps(level))).collect();
        let best = shown(&up_and_down(&populations), 6).best();
        assert!(matches!(best, BelievedBest::Open { highest } if highest.get() == 16), "{best}");
    }
}

#[test]
fn a_hill_that_was_seen_on_both_sides_has_its_top() {
    let tps = |level: u32| 1_000.0 - 300.0 * libm::log(f64::from(level) / 20.0).powi(2);
    let populations = [5, 8, 13, 20, 32, 50, 80].map(|level| (level, tps(level)));
    let best = shown(&up_and_down(&populations), 10).best();
    let BelievedBest::Limit { limit } = best else { panic!("{best}") };
    assert!(tps(limit.get()) >= 950.0, "{limit}");
}

/// The same two populations in turns. Where each has its throughput every time, the difference
/// becomes known; where throughput is another each time, it does not.
#[test]
fn throughput_that_depends_on_the_hour_tells_nothing_of_the_population() {
    let in_turns = |of_hour: fn(u32) -> f64| {
        let turns = (0..12).flat_map(|turn| [(8, of_hour(2 * turn)), (32, of_hour(2 * turn + 1))]);
        shown(&turns.collect::<Vec<(u32, f64)>>(), 20).gain(Mpl::at_least_one(8))
    };
    let known = in_turns(|hour| if hour % 2 == 0 { 1_000.0 } else { 800.0 });
    let Gain::Known { low, high, .. } = known else { panic!("{known}") };
    assert!(0.18 < low && low < 0.25 && 0.25 < high && high < 0.32, "{known}");
    let unknown = in_turns(|hour| 1_000.0 * libm::exp(0.5 * f64::from(hour * hour % 7)));
    if let Gain::Known { low, high, .. } = unknown {
        assert!(low < 0.0 && high > 0.0 && high - low > 0.3, "{unknown}");
    }
}

#[test]
fn absurd_observations_leave_it_sound() {
    let mut estimator = shown(&[(8, 1_000.0), (32, 800.0)], 20);
    for running_mean in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
        estimator.learn(&Observation { running_mean, ..second(u32::MAX, u64::MAX) });
        estimator.learn(&Observation { running_mean, ..second(0, 0) });
    }
    estimator.learn(&second(32, 800));
    let gain = estimator.gain(Mpl::at_least_one(8));
    assert!(!gain.to_string().contains("NaN"), "{gain}");
}
