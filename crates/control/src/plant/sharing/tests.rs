//! What the plant does, phase by phase, without noise.

use super::super::{Curve, Scenario};
use super::*;

fn curve(points: &[(u32, f64)]) -> Curve {
    Curve::new(points).expect("a curve")
}

fn quiet(points: &[(u32, f64)], clients: u32) -> SharingPhase {
    SharingPhase::closed(curve(points), clients, 0.0, 60.0)
}

fn constant(idle_s: f64) -> SharingClass {
    SharingClass { spread: 0.0, idle_s, ..SharingClass::USUAL }
}

fn mpl(limit: u32) -> Mpl {
    Mpl::at_least_one(limit)
}

fn completions(plant: &mut SharingPlant, limit: u32, ticks: u32) -> Vec<u64> {
    (0..ticks).map(|_| plant.interval(mpl(limit)).completions).collect()
}

/// Transactions of a second that do not disturb each other: nothing ends before, and a raised
/// limit shows a second later.
#[test]
fn a_transaction_of_a_second_ends_a_second_after_it_began() {
    let phase =
        SharingPhase { classes: vec![constant(0.0)], ..quiet(&[(1, 1.0), (100, 100.0)], 100) };
    let mut plant = SharingPlant::new(&[phase], 1);
    assert_eq!(completions(&mut plant, 4, 9), [0; 9]);
    assert_eq!(completions(&mut plant, 4, 6).iter().sum::<u64>(), 4);
    // At 1.5 s four more join those that began at 1 s.
    assert_eq!(completions(&mut plant, 8, 4), [0; 4]);
    assert_eq!(completions(&mut plant, 8, 3).iter().sum::<u64>(), 4);
    assert_eq!(completions(&mut plant, 8, 3).iter().sum::<u64>(), 0);
    assert_eq!(completions(&mut plant, 8, 3).iter().sum::<u64>(), 4);
}

#[test]
fn throughput_is_that_of_the_curve_and_times_follow_littles_law() {
    for spread in [0.0, 0.5, 1.0] {
        let classes = vec![SharingClass { spread, ..SharingClass::USUAL }];
        let phase = SharingPhase { classes, ..quiet(&[(1, 100.0), (10, 800.0)], 50) };
        let mut plant = SharingPlant::new(&[phase], 7);
        completions(&mut plant, 10, 50);
        let rule = IntervalRule { min: Duration::from_secs(40), ..IntervalRule::default() };
        let seen = plant.interval_by(mpl(10), rule);
        assert!((seen.throughput_tps() / 800.0 - 1.0).abs() < 0.03, "{spread}: {seen:?}");
        assert!((seen.in_database.mean_s * 80.0 - 1.0).abs() < 0.03, "{spread}: {seen:?}");
        assert!(seen.waiting_share > 0.999 && seen.concurrency == 50);
    }
}

#[test]
fn a_lowered_limit_drains_as_transactions_end() {
    let phase = quiet(&[(1, 10.0), (100, 10.0)], 100);
    let mut plant = SharingPlant::new(&[phase], 3);
    completions(&mut plant, 50, 10);
    let seen = plant.interval(mpl(10));
    assert!(seen.running > 40 && seen.running_mean > 40.0, "{seen:?}");
    completions(&mut plant, 10, 80);
    assert_eq!(plant.interval(mpl(10)).running, 10);
}

/// 10 ms of work, and a client that is idle for 1 s: 12 ms of it count.
#[test]
fn an_idle_client_does_not_count_against_the_limit() {
    let phase =
        SharingPhase { classes: vec![constant(1.0)], ..quiet(&[(1, 100.0), (10, 1_000.0)], 20) };
    let truth = phase.truth();
    assert!((truth.tps(mpl(5)) - 20.0 / 1.01).abs() < 0.5, "{}", truth.tps(mpl(5)));
    let mut plant = SharingPlant::new(&[phase], 1);
    completions(&mut plant, 1, 100);
    let rule = IntervalRule { min: Duration::from_secs(20), ..IntervalRule::default() };
    let seen = plant.interval_by(mpl(1), rule);
    assert!(seen.running <= 1 && seen.running_mean <= 1.0, "{seen:?}");
    let tps = seen.throughput_tps();
    assert!((seen.in_database.mean_s - 0.012).abs() < 1e-6, "{seen:?}");
    assert!((seen.running_mean - 0.012 * tps).abs() < 0.01, "{seen:?}");
    assert!((seen.idle_mean - 0.998 * tps).abs() < 0.3, "{seen:?}");
}

/// A client that answers within 2 ms counts all the time.
#[test]
fn a_client_that_is_idle_for_a_moment_counts() {
    let phase = SharingPhase {
        classes: vec![constant(0.001)],
        ..quiet(&[(1, 1_000.0), (10, 10_000.0)], 20)
    };
    let mut plant = SharingPlant::new(&[phase], 1);
    completions(&mut plant, 2, 10);
    let rule = IntervalRule { min: Duration::from_secs(5), ..IntervalRule::default() };
    let seen = plant.interval_by(mpl(2), rule);
    assert!((seen.throughput_tps() / 1_000.0 - 1.0).abs() < 0.02, "{seen:?}");
    assert!((seen.running_mean - 2.0).abs() < 1e-9 && seen.idle == 0, "{seen:?}");
}

#[test]
fn the_same_seed_gives_the_same_plant_and_run() {
    let run = |seed| {
        let mut plant = random_scenario(seed).and_then(|plant| plant.start(9)).expect("a plant");
        (0..50).map(|_| plant.interval(mpl(8)).completions).collect::<Vec<_>>()
    };
    assert_eq!(run(4), run(4));
    assert_ne!(run(4), run(5));
}

#[test]
fn every_random_plant_can_be_run() {
    for seed in 0..200 {
        let plant = random_scenario(seed).expect("what is drawn is in range");
        assert!(plant.is_by_tick() && !plant.about().is_empty());
    }
}

#[test]
fn clients_come_and_go_with_the_phases() {
    let many = SharingPhase { seconds: 1.0, ..quiet(&[(1, 100.0)], 40) };
    let open = SharingPhase {
        seconds: 1.0,
        clients: None,
        arrivals_tps: Some(20.0),
        ..quiet(&[(1, 100.0)], 1)
    };
    let few = quiet(&[(1, 100.0)], 3);
    let mut plant = SharingPlant::new(&[many, open, few], 1);
    let present: Vec<u32> = (0..40).map(|_| plant.interval(mpl(4)).concurrency).collect();
    assert_eq!(present.first(), Some(&40));
    assert!(present.get(15..19).is_some_and(|open| open.iter().all(|&now| now < 20)));
    assert_eq!(present.last(), Some(&3));
    assert_eq!(plant.seconds().len(), 4);
}

#[test]
fn overload_builds_up_and_goes_away() {
    let overload = Some(Overload { above: 10, loss: 0.5, builds_s: 1.0, recovers_s: 1.0 });
    let phase = SharingPhase { overload, ..quiet(&[(1, 1_000.0)], 100) };
    let mut plant = SharingPlant::new(&[phase], 1);
    let mean = |counts: &[u64]| counts.iter().sum::<u64>() / counts.len() as u64;
    let before = mean(&completions(&mut plant, 10, 20));
    completions(&mut plant, 40, 60);
    let over = mean(&completions(&mut plant, 40, 20));
    completions(&mut plant, 10, 60);
    let after = mean(&completions(&mut plant, 10, 20));
    assert!(before > 95 && over < 55 && after > 92, "{before} {over} {after}");
}

#[test]
fn what_cannot_be_run_is_refused() {
    let good = quiet(&[(1, 1.0)], 1);
    assert_eq!(good.check(), Ok(()));
    let bad = [
        SharingPhase { clients: None, ..good.clone() },
        SharingPhase { arrivals_tps: Some(1.0), ..good.clone() },
        SharingPhase { seconds: 0.0, ..good.clone() },
        SharingPhase { noise: f64::NAN, ..good.clone() },
        SharingPhase {
            classes: vec![SharingClass { share: 0.5, ..SharingClass::USUAL }],
            ..good.clone()
        },
    ];
    for phase in bad {
        assert!(phase.check().is_err(), "{phase:?}");
    }
    assert!(
        Scenario::try_from(super::super::ScenarioFile {
            name: "none".into(),
            about: String::new(),
            curve: Vec::new(),
            events: Vec::new(),
            sharing: vec![SharingPhase { clients: Some(0), ..good }],
        })
        .is_err()
    );
}
