//! What each controller reaches on each simulated plant, from several starts, with and without
//! noise, and when the plant changes under it.

use std::ops::Range;

use tidegate_control::plant::{Curve, Plant, Simulation};
use tidegate_control::{
    Bounds, Controller, HillClimbing, HillClimbingSettings, Mpl, Parabola, ParabolaSettings,
    Reason, SplitMix64,
};

/// Not among the seeds the proxy's parameters were chosen on, 0 to 99.
const SEEDS: Range<u64> = 3_000..3_020;
const RUNS: u64 = SEEDS.end - SEEDS.start;
const INTERVALS: usize = 240;
/// Intervals left to the climb before the mean is taken.
const CLIMB: usize = 60;
const STARTS: [u32; 9] = [1, 3, 6, 8, 20, 64, 150, 500, 1_000];
const NOISES: [f64; 3] = [0.0, 0.03, 0.05];

type Make = fn(Bounds, Mpl) -> Box<dyn Controller>;

const HILL_CLIMBING: Make = |bounds, start| Box::new(HillClimbing::for_proxy(bounds, start));
const HILL_CLIMBING_STUDY: Make =
    |bounds, start| Box::new(HillClimbing::new(bounds, start, HillClimbingSettings::STUDY));
const GLOBAL: Make =
    |bounds, start| Box::new(Parabola::global(bounds, start, ParabolaSettings::PROXY));
const LOCAL: Make =
    |bounds, start| Box::new(Parabola::local(bounds, start, ParabolaSettings::STUDY));

fn plant(curve: Curve, noise: f64) -> Plant {
    Plant { curve, clients: 1_000, noise }
}

fn simulation(
    make: impl Fn(Bounds, Mpl) -> Box<dyn Controller>,
    start: u32,
    seed: u64,
) -> Simulation {
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(1_000)).expect("1 is below 1,000");
    Simulation::new(make(bounds, Mpl::at_least_one(start)), seed)
}

fn limits(simulation: &mut Simulation, plant: &Plant, intervals: usize) -> Vec<Mpl> {
    (0..intervals).map(|_| simulation.interval(plant).0.limit).collect()
}

/// Throughput without noise at each limit, as a share of the best fixed limit's.
fn shares(limits: &[Mpl], plant: &Plant) -> Vec<f64> {
    limits.iter().map(|&limit| plant.tps(limit) / plant.best_tps()).collect()
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean share after the climb, over all seeds.
fn settled_share(make: Make, plant: &Plant, start: u32) -> f64 {
    mean(SEEDS.map(|seed| {
        let run = limits(&mut simulation(make, start, seed), plant, INTERVALS);
        mean(shares(&run[CLIMB..], plant))
    }))
}

/// Mean limit after the climb, over all seeds.
fn settled_limit(
    make: impl Fn(Bounds, Mpl) -> Box<dyn Controller>,
    plant: &Plant,
    start: u32,
) -> f64 {
    mean(SEEDS.map(|seed| {
        let run = limits(&mut simulation(&make, start, seed), plant, INTERVALS);
        mean(run[CLIMB..].iter().map(|limit| f64::from(limit.get())))
    }))
}

#[track_caller]
fn assert_share(make: Make, plant: &Plant, start: u32, least: f64) {
    let share = settled_share(make, plant, start);
    assert!(
        share >= least,
        "{} from {start} with {} clients and noise {}, seeds {SEEDS:?}: {share:.3} of the best",
        plant.curve.name,
        plant.clients,
        plant.noise
    );
}

#[test]
fn the_proxys_hill_climbing_keeps_nine_tenths_of_the_best_from_any_start() {
    for curve in Curve::ALL {
        for noise in NOISES {
            for start in STARTS {
                assert_share(HILL_CLIMBING, &plant(curve, noise), start, 0.9);
            }
        }
    }
}

#[test]
fn the_proxys_hill_climbing_keeps_95_percent_of_postgres_for_any_number_of_clients() {
    for noise in NOISES {
        for clients in [4, 64, 256, 512, 1_000] {
            for start in STARTS {
                let plant = Plant { clients, ..plant(Curve::POSTGRES_TPCB, noise) };
                assert_share(HILL_CLIMBING, &plant, start, 0.95);
            }
        }
    }
}

/// Settled: the next twenty intervals average at least 90 % of the best.
#[test]
fn the_proxys_hill_climbing_settles_on_postgres_within_25_intervals() {
    for noise in NOISES {
        let plant = plant(Curve::POSTGRES_TPCB, noise);
        for start in STARTS {
            let settled = SEEDS.filter(|&seed| {
                let run = limits(&mut simulation(HILL_CLIMBING, start, seed), &plant, 45);
                let run = shares(&run, &plant);
                run.windows(20).any(|window| mean(window.iter().copied()) >= 0.9)
            });
            let settled = settled.count() as u64;
            assert!(settled >= RUNS - 2, "from {start}, noise {noise}: {settled} of {RUNS} runs");
        }
    }
}

/// Hills the parameters were not chosen on: n^e, e falling along the logarithm of n from 0.5 to 1.2
/// at one transaction to nothing at the top, somewhere from 1 to 181, and beyond it to -0.1 to
/// -0.9.
#[test]
fn the_proxys_hill_climbing_keeps_nine_tenths_of_the_best_on_random_hills() {
    for seed in 4_000..4_100 {
        let random = &mut SplitMix64::new(seed);
        let plant = plant(random_hill(random), 0.05);
        for start in STARTS {
            let run = limits(&mut simulation(HILL_CLIMBING, start, seed), &plant, INTERVALS);
            let share = mean(shares(&run[CLIMB..], &plant));
            assert!(share >= 0.9, "seed {seed} from {start}: {share:.3} of the best");
        }
    }
}

fn random_hill(random: &mut SplitMix64) -> Curve {
    let mut between = |low: f64, high: f64| low + (high - low) * random.next_draw().value();
    let top = between(0.0, 7.5) * 2.0_f64.ln();
    let (rise, fall) = (between(0.5, 1.2), between(0.1, 0.9));
    let mut points = vec![(1_u32, 1_000.0_f64)];
    while let Some(&(level, tps)) = points.last().filter(|(level, _)| *level < 1_000) {
        let next = level + level.div_ceil(5);
        let (from, to) = (f64::from(level).ln(), f64::from(next).ln());
        let middle = f64::midpoint(from, to);
        let exponent = if middle < top {
            rise * (1.0 - middle / top)
        } else {
            -fall * ((middle - top) / 2.0).min(1.0)
        };
        points.push((next, tps * (exponent * (to - from)).exp()));
    }
    Curve { name: "random hill", points: points.leak() }
}

/// Where neither side differs at all, under the study's rule no step down gains and no step up
/// pays: a limit in the middle of a flat tail is kept.
#[test]
fn the_studys_hill_climbing_stays_on_a_flat_tail() {
    let share = settled_share(HILL_CLIMBING_STUDY, &plant(Curve::FLAT_TAIL, 0.0), 500);
    assert!(share < 0.65, "{share}");
}

/// The study's second goal: few transactions where more do not help (Section 3.2).
#[test]
fn hill_climbing_drifts_to_few_transactions_where_the_curve_is_flat() {
    for noise in NOISES {
        let limit = settled_limit(HILL_CLIMBING, &plant(Curve::FLAT, noise), 500);
        assert!(limit < 20.0, "{limit} with noise {noise}");
    }
}

/// Section 7.1.2: on a curve that rises moderately hill climbing with C = 0.4 settles too low,
/// where the global parabola does not.
#[test]
fn the_studys_hill_climbing_is_biased_low_on_a_moderate_rise() {
    let plant = plant(Curve::SATURATING, 0.0);
    let climbing = settled_share(HILL_CLIMBING_STUDY, &plant, 8);
    let parabola = settled_share(GLOBAL, &plant, 8);
    assert!(climbing < 0.65, "{climbing}");
    assert!(parabola > 0.95, "{parabola}");
}

/// Table 6.1: the higher C, the fewer transactions.
#[test]
fn a_higher_gain_asked_for_settles_lower() {
    let plant = plant(Curve::HILL, 0.05);
    let limits = [0.1, 0.5, 0.9].map(|gain| {
        let settings = HillClimbingSettings { gain, ..HillClimbingSettings::STUDY };
        let make = |bounds, start| -> Box<dyn Controller> {
            Box::new(HillClimbing::new(bounds, start, settings))
        };
        settled_limit(make, &plant, 64)
    });
    assert!(limits[0] > limits[1] && limits[1] > limits[2], "{limits:?}");
}

#[test]
fn the_global_parabola_keeps_nine_tenths_of_the_best_on_wide_curves() {
    for curve in [Curve::HILL, Curve::FLAT, Curve::SATURATING] {
        for noise in NOISES {
            for start in STARTS {
                assert_share(GLOBAL, &plant(curve, noise), start, 0.9);
            }
        }
    }
}

/// The measured peak at 2 is sharper than any parabola through the origin, so it is not held, but
/// the collapse is avoided: the unlimited 1,000 clients get 6 % of the best.
#[test]
fn the_global_parabola_keeps_two_thirds_of_the_best_on_postgres() {
    for noise in NOISES {
        for start in STARTS {
            assert_share(GLOBAL, &plant(Curve::POSTGRES_TPCB, noise), start, 0.66);
        }
    }
}

/// Table 6.7: with noise more than half of the local parabola's steps are random.
#[test]
fn the_local_parabola_mostly_wiggles() {
    let plant = plant(Curve::HILL, 0.05);
    let wiggles = |make: Make| {
        let mut simulation = simulation(make, 64, 1);
        let wiggle = |_: &usize| matches!(simulation.interval(&plant).1.reason, Reason::Wiggle(_));
        (0..INTERVALS).filter(wiggle).count()
    };
    assert!(wiggles(LOCAL) > INTERVALS / 2, "{} of {INTERVALS}", wiggles(LOCAL));
    assert!(wiggles(GLOBAL) < INTERVALS / 4, "{} of {INTERVALS}", wiggles(GLOBAL));
}

#[test]
fn without_noise_the_local_parabola_finds_a_hill_it_starts_near() {
    for start in [1, 8, 64] {
        assert_share(LOCAL, &plant(Curve::HILL, 0.0), start, 0.8);
    }
}

/// Section 7.2: the workload changes, and with it the best limit.
#[test]
fn the_limit_follows_the_workload_when_it_changes() {
    let pairs = [
        (Curve::HILL, Curve::POSTGRES_TPCB),
        (Curve::POSTGRES_TPCB, Curve::HILL),
        (Curve::HILL, Curve::FLAT_TAIL),
        (Curve::FLAT_TAIL, Curve::HILL),
        (Curve::SATURATING, Curve::POSTGRES_TPCB),
    ];
    for (before, after) in pairs {
        for noise in NOISES {
            let (before, after) = (plant(before, noise), plant(after, noise));
            let share = mean(SEEDS.map(|seed| {
                let mut simulation = simulation(HILL_CLIMBING, 8, seed);
                limits(&mut simulation, &before, 100);
                let run = limits(&mut simulation, &after, INTERVALS);
                mean(shares(&run[CLIMB..], &after))
            }));
            let (from, to) = (before.curve.name, after.curve.name);
            assert!(share >= 0.9, "{from} to {to}, noise {noise}: {share:.3} of the best");
        }
    }
}

/// Clients leave and come back: the limit goes down with them at once, and up again.
#[test]
fn the_limit_follows_the_number_of_clients() {
    let many = plant(Curve::HILL, 0.05);
    let few = Plant { clients: 5, ..many };
    for make in [HILL_CLIMBING, GLOBAL, LOCAL] {
        let mut simulation = simulation(make, 64, 1);
        limits(&mut simulation, &many, 100);
        let lowered = limits(&mut simulation, &few, 100);
        assert!(lowered[1..].iter().all(|limit| limit.get() <= 5), "{lowered:?}");
        let raised = limits(&mut simulation, &many, 200);
        assert!(raised.iter().any(|limit| limit.get() > 20), "{raised:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for make in [HILL_CLIMBING, GLOBAL, LOCAL] {
        let run = |seed| limits(&mut simulation(make, 8, seed), &plant(Curve::HILL, 0.05), 200);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}
