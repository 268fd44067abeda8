//! The feedback controller, window by window.

use std::collections::BTreeMap;

use super::*;
use crate::SplitMix64;
use crate::models::hyperexponential::Hyperexponential;
use crate::models::response_time::LimitedSharing;
use crate::testing::{DRAW, bounds, observed};

const DEFAULT: ExternalSchedulingSettings = ExternalSchedulingSettings::DEFAULT;

fn three_stations(start: u32) -> ExternalScheduling {
    let settings = ExternalSchedulingSettings { stations: 3, ..DEFAULT };
    ExternalScheduling::new(bounds(1, 1_000), Mpl::at_least_one(start), settings)
}

/// The balanced network of three stations, 10,000 tps at most.
fn balanced(limit: u32) -> f64 {
    10_000.0 * f64::from(limit) / (f64::from(limit) + 2.0)
}

/// A second of 1,000 clients at `limit`.
fn second(tps: f64, limit: Mpl) -> Observation {
    let completions = crate::controller::whole(tps.round());
    observed(limit.get(), 1_000, u64::from(completions))
}

/// Lets `controller` work until its search ends: the limits it went through, the last of them
/// the one found, and the intervals that took.
fn search(
    controller: &mut ExternalScheduling,
    mut plant: impl FnMut(Mpl) -> Observation,
) -> (Vec<u32>, usize) {
    let mut limit = controller.start();
    let mut path = vec![limit.get()];
    for interval in 1..=10_000 {
        let decision = controller.decide(&plant(limit), DRAW);
        if decision.limit != limit {
            path.push(decision.limit.get());
        }
        limit = decision.limit;
        if matches!(decision.reason, Reason::Feedback(FeedbackReason::Found(_))) {
            return (path, interval);
        }
    }
    panic!("no end: {path:?}");
}

/// 19(M − 1) for 5 %: four processors and two disks are six stations.
#[test]
fn the_model_gives_the_start() {
    let resources = Resources { cpus: 4, disks: 2 };
    let settings = DEFAULT.with_resources(resources);
    assert_eq!(settings.model_start().get(), 95);
    let start = |bounds| ExternalScheduling::from_model(bounds, settings).start().get();
    assert_eq!((start(bounds(1, 1_000)), start(bounds(1, 50))), (95, 50));
    let table = [(0.2, 20), (0.0, 1), (1.0, 1), (f64::NAN, 1), (1e-9, 1)];
    for (allowed_loss, start) in table {
        let settings = ExternalSchedulingSettings { allowed_loss, ..settings };
        assert_eq!(settings.model_start().get(), start, "{allowed_loss}");
    }
}

/// The example of the module's head. Windows of five intervals, the two that turn the search of
/// ten: 5 + 10 + 10.
#[test]
fn where_the_model_holds_the_search_ends_a_step_from_its_value() {
    let mut controller = three_stations(38);
    let (path, intervals) = search(&mut controller, |limit| second(balanced(limit.get()), limit));
    assert_eq!((path, intervals), (vec![38, 36, 38], 25));
}

#[test]
fn every_step_says_why() {
    let mut controller = three_stations(38);
    let mut limit = controller.start();
    let mut lines: Vec<String> = Vec::new();
    for _ in 0..30 {
        let decision = controller.decide(&second(balanced(limit.get()), limit), DRAW);
        limit = decision.limit;
        lines.push(decision.reason.to_string());
    }
    lines.retain(|line| !line.starts_with("observe: "));
    let expected = [
        "down: 95 % of the throughput without a limit",
        "confirm: 95 % of the throughput without a limit, once more",
        "up: 95 % of the throughput without a limit",
        "confirm: 95 % of the throughput without a limit, once more",
        "found: 95 % of the throughput without a limit",
        "hold: throughput +0 %",
    ];
    assert_eq!(lines, expected);
}

/// Where the goal, 95 % of what 1,000 inside would give, is met: 10,000·1,000/1,002 = 9,980
/// tps, of which 95 % are 9,481, so that 37 suffice.
#[test]
fn a_far_start_ends_near_the_goal_too_and_takes_long() {
    for (start, found, windows) in [(1, 37, 18), (100, 38, 31), (1_000, 38, 481)] {
        let mut controller = three_stations(start);
        let plant = |limit: Mpl| second(balanced(limit.get()), limit);
        let (path, intervals) = search(&mut controller, plant);
        let last = path.last().copied().unwrap_or_default();
        assert!(last.abs_diff(found) <= 2, "from {start}: {last}");
        assert!(intervals >= 5 * windows, "from {start}: {intervals} intervals");
    }
}

/// Throughput that no limit lowers: the model's word for 95 % is overruled.
#[test]
fn on_a_level_curve_the_lowest_limit_is_found() {
    let (path, _) = search(&mut three_stations(38), |limit| second(10_000.0, limit));
    assert_eq!(path.last(), Some(&1));
}

/// PostgreSQL with every transaction updating one row: 2 at once are best by far. From above
/// the search comes down through the thrashing, 4, 2, 1, and goes back to 2 although a step up
/// leads to 3.
#[test]
fn thrashing_is_left_and_the_best_is_not_stepped_over() {
    let tps = |limit: Mpl| match limit.get() {
        1 => 1_100.0,
        2 => 2_720.0,
        level => 2_500.0 - 10.0 * f64::from(level),
    };
    for start in [40, 100] {
        let (path, _) = search(&mut three_stations(start), |limit| second(tps(limit), limit));
        assert!(path.ends_with(&[4, 2, 1, 2]), "{path:?}");
    }
}

/// A hill, 10,000 tps at 20: beyond it a climb turns back, and it never sees the far side.
#[test]
fn a_climb_stops_where_throughput_falls() {
    let tps = |limit: Mpl| {
        let level = f64::from(limit.get());
        if level < 20.0 { 500.0 * level } else { 10_000.0 - 500.0 * (level - 20.0) }
    };
    let (path, _) = search(&mut three_stations(1), |limit| second(tps(limit), limit));
    let last = path.last().copied().unwrap_or_default();
    assert!((18..=22).contains(&last), "{path:?}");
    assert!(path.iter().all(|&limit| limit <= 24), "{path:?}");
}

/// With a noise of 5 % in each interval, from the model's value, from below and from above.
#[test]
fn noise_moves_the_end_and_not_far() {
    for start in [1, 38, 100] {
        for seed in 0..20 {
            let mut random = SplitMix64::new(seed);
            let plant = |limit: Mpl| {
                // Twelve uniform draws: mean 6, deviation 1.
                let sum = (0..12).map(|_| random.next_draw().value()).sum::<f64>();
                second(balanced(limit.get()) * (1.0 + 0.05 * (sum - 6.0)), limit)
            };
            let (path, _) = search(&mut three_stations(start), plant);
            let last = path.last().copied().unwrap_or_default();
            let share = balanced(last) / balanced(1_000);
            assert!(share > 0.9, "from {start}, seed {seed}: {last}, {share}");
        }
    }
}

/// An open system: Poisson arrivals, sizes of C² = 15, a load of 0.7, solved by the model.
fn open(limit: Mpl) -> Observation {
    let sizes = Hyperexponential::new(0.01, 15.0).expect("valid");
    let system = LimitedSharing::new(0.7, sizes).expect("stable");
    let state = system.at(limit).expect("solvable");
    let inside = state.below.iter().zip(0_u32..).map(|(chance, n)| chance * f64::from(n));
    let mut seen = observed(limit.get(), 100, 70);
    seen.concurrency_mean = state.mean_in_system;
    seen.running_mean = inside.sum::<f64>() + state.full * f64::from(limit.get());
    seen.waiting_share = state.full;
    seen
}

/// Throughput is 70 tps at any limit. Response time is within 5 % from 13 on by the model; from
/// 4 the limit first climbs to where nobody queues, for until then nothing is known.
#[test]
fn under_a_light_load_response_time_decides() {
    let sizes = Hyperexponential::new(0.01, 15.0).expect("valid");
    let system = LimitedSharing::new(0.7, sizes).expect("stable");
    let lowest = system.lowest_mpl(0.05).expect("within reach").get();
    let mut known: BTreeMap<Mpl, Observation> = BTreeMap::new();
    let mut plant = |limit| known.entry(limit).or_insert_with(|| open(limit)).clone();
    for start in [4, 24] {
        let (path, _) = search(&mut three_stations(start), &mut plant);
        let last = path.last().copied().unwrap_or_default();
        assert!((lowest..=lowest + 3).contains(&last), "{path:?}, lowest {lowest}");
    }
}

#[test]
fn a_held_limit_stays_until_throughput_leaves_its_band() {
    for (factor, stays) in [(1.08, true), (0.92, true), (1.12, false), (0.88, false)] {
        let mut controller = three_stations(38);
        search(&mut controller, |limit| second(balanced(limit.get()), limit));
        let limit = Mpl::at_least_one(38);
        let mut reasons = Vec::new();
        for _ in 0..5 {
            let decision = controller.decide(&second(factor * balanced(38), limit), DRAW);
            assert_eq!(decision.limit, limit);
            reasons.push(decision.reason);
        }
        let held = matches!(reasons[4], Reason::Feedback(FeedbackReason::Hold { .. }));
        let anew = matches!(reasons[4], Reason::Feedback(FeedbackReason::Anew { .. }));
        assert_eq!((held, anew), (stays, !stays), "{factor}: {reasons:?}");
    }
}

/// Four steady intervals, then one that does not count, then the fifth: the window's end.
#[test]
fn intervals_that_do_not_count_neither_spoil_nor_end_a_window() {
    let steady = || second(balanced(38), Mpl::at_least_one(38));
    let mut light = steady();
    (light.concurrency_mean, light.completions) = (499.0, 500);
    let mut above = steady();
    (above.running_mean, above.completions) = (42.0, 20_000);
    let mut elsewhere = steady();
    (elsewhere.limit, elsewhere.completions) = (Mpl::at_least_one(40), 20_000);
    let mut silent = steady();
    silent.completions = 0;
    let usual = 1_000.0;
    let table = [
        (light, Reason::Feedback(FeedbackReason::LightLoad { seen: 499.0, usual })),
        (above, Reason::Feedback(FeedbackReason::Settle)),
        (elsewhere, Reason::Feedback(FeedbackReason::Settle)),
        (silent, Reason::NothingCompleted),
    ];
    for (odd, reason) in table {
        let mut controller = three_stations(38);
        for _ in 0..4 {
            controller.decide(&steady(), DRAW);
        }
        let decision = controller.decide(&odd, DRAW);
        assert_eq!((decision.limit.get(), decision.reason), (38, reason));
        let decision = controller.decide(&steady(), DRAW);
        assert_eq!(decision.limit.get(), 36, "{reason}: {}", decision.reason);
    }
}

/// Five transactions for a while: the limit given out follows, the search does not. If they
/// stay five for ten intervals, it begins anew from there.
#[test]
fn a_limit_above_the_concurrency_is_lowered_for_the_time_being() {
    for (away, afterwards) in [(9, 38), (10, 5)] {
        let mut controller = three_stations(38);
        for _ in 0..away {
            let decision = controller.decide(&observed(38, 5, 1_000), DRAW);
            let expected = (5, Reason::Concurrency { seen: 5 });
            assert_eq!((decision.limit.get(), decision.reason), expected);
        }
        let decision = controller.decide(&observed(5, 1_000, 1_000), DRAW);
        assert_eq!(decision.limit.get(), afterwards, "{away} intervals");
    }
}

#[test]
fn the_bounds_end_a_search() {
    for (start, found) in [(1_000, 20), (1, 20)] {
        let settings = ExternalSchedulingSettings { stations: 3, ..DEFAULT };
        let start = Mpl::at_least_one(start);
        let mut controller = ExternalScheduling::new(bounds(10, 20), start, settings);
        let (path, _) = search(&mut controller, |limit| second(balanced(limit.get()), limit));
        assert_eq!(path.last(), Some(&found), "{path:?}");
        assert!(path.iter().all(|limit| (10..=20).contains(limit)));
    }
}
