//! What each controller reaches on each simulated plant, from several starts, with and without
//! noise, and when the plant changes under it.
//!
//! A limit is judged by the throughput that it would settle at without noise, as a share of the
//! best fixed limit's. The Gaussian process takes its time in a build without optimisation, so
//! most of its tests run a part of the seeds and starts; `make soak` runs them all.

use std::ops::Range;

use tidegate_control::plant::{Curve, CurveClass, CurvePhase, CurvePlant, Simulation};
use tidegate_control::{
    Algorithm, Bounds, Controller, Decision, HillClimbing, HillClimbingSettings, Mpl, Observation,
    Reason, Resources, Setting, SplitMix64,
};

/// Not among the seeds the proxy's parameters were chosen on, 0 to 99.
const SEEDS: Range<u64> = 3_000..3_020;
const RUNS: u64 = SEEDS.end - SEEDS.start;
const INTERVALS: usize = 240;
/// Intervals left to the climb before the mean is taken.
const CLIMB: usize = 60;
const STARTS: [u32; 9] = [1, 3, 6, 8, 20, 64, 150, 500, 1_000];
const NOISES: [f64; 3] = [0.0, 0.03, 0.05];
const CLIENTS: u32 = 1_000;

type Named = (&'static str, &'static [(u32, f64)]);

const HILL: Named = ("hill", Curve::HILL);
const FLAT: Named = ("flat", Curve::FLAT);
const FLAT_TAIL: Named = ("flat tail", Curve::FLAT_TAIL);
const SATURATING: Named = ("saturating", Curve::SATURATING);
const POSTGRES_TPCB: Named = ("postgres tpc-b", Curve::POSTGRES_TPCB);
const CURVES: [Named; 5] = [HILL, FLAT, FLAT_TAIL, SATURATING, POSTGRES_TPCB];

const SWITCHES: [(Named, Named); 5] = [
    (HILL, POSTGRES_TPCB),
    (POSTGRES_TPCB, HILL),
    (HILL, FLAT_TAIL),
    (FLAT_TAIL, HILL),
    (SATURATING, POSTGRES_TPCB),
];

/// A phase of a plant, and the share of its best throughput that each limit settles at.
struct Phase {
    name: String,
    plant: CurvePhase,
    shares: Vec<f64>,
}

impl Phase {
    fn new(name: String, plant: CurvePhase) -> Phase {
        let limits = (1..=CLIENTS).map(Mpl::at_least_one);
        let tps: Vec<f64> = limits.map(|limit| plant.expected_tps(limit)).collect();
        let best = tps.iter().copied().fold(0.0, f64::max);
        Phase { name, plant, shares: tps.iter().map(|tps| tps / best).collect() }
    }

    fn share(&self, limit: Mpl) -> f64 {
        self.shares[limit.get() as usize - 1]
    }

    fn shares(&self, limits: &[Mpl]) -> Vec<f64> {
        limits.iter().map(|&limit| self.share(limit)).collect()
    }

    fn with_clients(&self, clients: u32) -> Phase {
        let plant = CurvePhase { clients: Some(clients), ..self.plant.clone() };
        Phase::new(format!("{}, {clients} clients", self.name), plant)
    }
}

fn phase((name, points): Named, noise: f64) -> Phase {
    let points = Curve::new(points).expect("a curve");
    Phase::new(format!("{name}, noise {noise}"), CurvePhase::closed(points, CLIENTS, noise))
}

fn setting(start: u32) -> Setting {
    let bounds = Bounds::new(Mpl::ONE, Mpl::at_least_one(CLIENTS)).expect("1 is below 1,000");
    let resources = Resources { cpus: 2, disks: 1 };
    Setting { bounds, start: Mpl::at_least_one(start), resources }
}

/// A controller at work on a plant.
struct Run {
    simulation: Simulation,
    plant: CurvePlant,
}

impl Run {
    fn new(controller: Box<dyn Controller>, phases: &[CurvePhase], seed: u64) -> Run {
        // Two seeds: the controller's draws must not be the plant's noise.
        Run { simulation: Simulation::new(controller, !seed), plant: CurvePlant::new(phases, seed) }
    }

    fn on(algorithm: Algorithm, phase: &Phase, start: u32, seed: u64) -> Run {
        let phases = std::slice::from_ref(&phase.plant);
        Run::new(algorithm.controller(&setting(start)), phases, seed)
    }

    /// Through the phases, each but the last as long as told.
    fn through(algorithm: Algorithm, phases: &[(&Phase, u32)], start: u32, seed: u64) -> Run {
        let timed =
            |&(phase, intervals): &(&Phase, u32)| CurvePhase { intervals, ..phase.plant.clone() };
        let phases: Vec<CurvePhase> = phases.iter().map(timed).collect();
        Run::new(algorithm.controller(&setting(start)), &phases, seed)
    }

    fn interval(&mut self) -> (Observation, Decision) {
        self.simulation.interval(&mut self.plant)
    }

    fn limits(&mut self, intervals: usize) -> Vec<Mpl> {
        (0..intervals).map(|_| self.interval().0.limit).collect()
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    values.iter().sum::<f64>() / values.len() as f64
}

fn mean_limit(limits: &[Mpl]) -> f64 {
    mean(limits.iter().map(|limit| f64::from(limit.get())))
}

/// The seeds that differ: without noise, only the parabolas draw anything.
fn differing(seeds: &Range<u64>, algorithm: Algorithm, phase: &Phase) -> Range<u64> {
    let never_draws = [Algorithm::GaussianProcess, Algorithm::HillClimbing];
    let is_one = phase.plant.noise <= 0.0 && never_draws.contains(&algorithm);
    if is_one { seeds.start..seeds.start + 1 } else { seeds.clone() }
}

/// Mean share after the climb, over all seeds.
fn settled_share(algorithm: Algorithm, phase: &Phase, start: u32) -> f64 {
    mean(differing(&SEEDS, algorithm, phase).map(|seed| {
        let limits = Run::on(algorithm, phase, start, seed).limits(INTERVALS);
        mean(phase.shares(&limits[CLIMB..]))
    }))
}

/// Mean limit after the climb, over all seeds.
fn settled_limit(make: impl Fn() -> Box<dyn Controller>, phase: &Phase) -> f64 {
    mean(SEEDS.map(|seed| {
        let phases = std::slice::from_ref(&phase.plant);
        mean_limit(&Run::new(make(), phases, seed).limits(INTERVALS)[CLIMB..])
    }))
}

#[track_caller]
fn assert_share(algorithm: Algorithm, phase: &Phase, start: u32, least: f64) {
    let share = settled_share(algorithm, phase, start);
    let name = &phase.name;
    assert!(share >= least, "{name}, from {start}, seeds {SEEDS:?}: {share:.3} of the best");
}

/// From any start and with any noise.
#[track_caller]
fn assert_keeps(algorithm: Algorithm, curves: &[Named], least: f64) {
    for phase in ALL.phases(curves) {
        for start in STARTS {
            assert_share(algorithm, &phase, start, least);
        }
    }
}

#[test]
fn the_proxys_hill_climbing_keeps_nine_tenths_of_the_best_from_any_start() {
    assert_keeps(Algorithm::HillClimbing, &CURVES, 0.9);
}

#[test]
fn the_proxys_hill_climbing_keeps_95_percent_of_postgres_for_any_number_of_clients() {
    for phase in ALL.phases(&[POSTGRES_TPCB]) {
        for clients in [4, 64, 256, 512, 1_000] {
            let phase = phase.with_clients(clients);
            for start in STARTS {
                assert_share(Algorithm::HillClimbing, &phase, start, 0.95);
            }
        }
    }
}

/// Settled: the next twenty intervals average at least 90 % of the best.
#[test]
fn the_proxys_hill_climbing_settles_on_postgres_within_25_intervals() {
    for noise in NOISES {
        let phase = phase(POSTGRES_TPCB, noise);
        for start in STARTS {
            let settled = SEEDS.filter(|&seed| {
                let limits = Run::on(Algorithm::HillClimbing, &phase, start, seed).limits(45);
                let shares = phase.shares(&limits);
                shares.windows(20).any(|window| mean(window.iter().copied()) >= 0.9)
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
        let hill = random_hill(seed);
        for start in STARTS {
            let limits = Run::on(Algorithm::HillClimbing, &hill, start, seed).limits(INTERVALS);
            let share = mean(hill.shares(&limits[CLIMB..]));
            assert!(share >= 0.9, "seed {seed} from {start}: {share:.3} of the best");
        }
    }
}

fn random_hill(seed: u64) -> Phase {
    let random = &mut SplitMix64::new(seed);
    let top = random.next_between(0.0, 7.5) * libm::log(2.0);
    let (rise, fall) = (random.next_between(0.5, 1.2), random.next_between(0.1, 0.9));
    let mut points = vec![(1_u32, 1_000.0_f64)];
    while let Some(&(level, tps)) = points.last().filter(|(level, _)| *level < 1_000) {
        let next = level + level.div_ceil(5);
        let (from, to) = (libm::log(f64::from(level)), libm::log(f64::from(next)));
        let middle = f64::midpoint(from, to);
        let exponent = if middle < top {
            rise * (1.0 - middle / top)
        } else {
            -fall * ((middle - top) / 2.0).min(1.0)
        };
        points.push((next, tps * libm::exp(exponent * (to - from))));
    }
    let points = Curve::new(&points).expect("a curve");
    Phase::new("random hill".to_owned(), CurvePhase::closed(points, CLIENTS, 0.05))
}

/// Where neither side differs at all, under the study's rule no step down gains and no step up
/// pays: a limit in the middle of a flat tail is kept.
#[test]
fn the_studys_hill_climbing_stays_on_a_flat_tail() {
    let share = settled_share(Algorithm::StudyHillClimbing, &phase(FLAT_TAIL, 0.0), 500);
    assert!(share < 0.65, "{share}");
}

/// The study's second goal: few transactions where more do not help (Section 3.2).
#[test]
fn hill_climbing_drifts_to_few_transactions_where_the_curve_is_flat() {
    for noise in NOISES {
        let make = || Algorithm::HillClimbing.controller(&setting(500));
        let limit = settled_limit(make, &phase(FLAT, noise));
        assert!(limit < 20.0, "{limit} with noise {noise}");
    }
}

/// Section 7.1.2: on a curve that rises moderately hill climbing with C = 0.4 settles too low,
/// where the global parabola does not.
#[test]
fn the_studys_hill_climbing_is_biased_low_on_a_moderate_rise() {
    let phase = phase(SATURATING, 0.0);
    let climbing = settled_share(Algorithm::StudyHillClimbing, &phase, 8);
    let parabola = settled_share(Algorithm::GlobalParabola, &phase, 8);
    assert!(climbing < 0.65, "{climbing}");
    assert!(parabola > 0.95, "{parabola}");
}

/// Table 6.1: the higher C, the fewer transactions.
#[test]
fn a_higher_gain_asked_for_settles_lower() {
    let phase = phase(HILL, 0.05);
    let limits = [0.1, 0.5, 0.9].map(|gain| {
        let settings = HillClimbingSettings { gain, ..HillClimbingSettings::STUDY };
        let Setting { bounds, start, .. } = setting(64);
        settled_limit(|| Box::new(HillClimbing::new(bounds, start, settings)), &phase)
    });
    assert!(limits[0] > limits[1] && limits[1] > limits[2], "{limits:?}");
}

#[test]
fn the_global_parabola_keeps_nine_tenths_of_the_best_on_wide_curves() {
    assert_keeps(Algorithm::GlobalParabola, &[HILL, FLAT, SATURATING], 0.9);
}

/// The measured peak at 2 is sharper than any parabola through the origin, so it is not held, but
/// the collapse is avoided: the unlimited 1,000 clients get 6 % of the best.
#[test]
fn the_global_parabola_keeps_two_thirds_of_the_best_on_postgres() {
    assert_keeps(Algorithm::GlobalParabola, &[POSTGRES_TPCB], 0.66);
}

/// Table 6.7: with noise more than half of the local parabola's steps are random.
#[test]
fn the_local_parabola_mostly_wiggles() {
    let phase = phase(HILL, 0.05);
    let wiggles = |algorithm| {
        let mut run = Run::on(algorithm, &phase, 64, 1);
        let wiggle = |_: &usize| matches!(run.interval().1.reason, Reason::Wiggle(_));
        (0..INTERVALS).filter(wiggle).count()
    };
    let [local, global] = [Algorithm::StudyLocalParabola, Algorithm::GlobalParabola].map(wiggles);
    assert!(local > INTERVALS / 2, "{local} of {INTERVALS}");
    assert!(global < INTERVALS / 4, "{global} of {INTERVALS}");
}

/// Not more, because the first moments of an interval still have the throughput of a higher limit
/// before it, which bends a parabola through three near points: 0.79 in the mean of 500 seeds. With
/// a limit that is in force at once it is 0.86.
#[test]
fn without_noise_the_local_parabola_finds_a_hill_it_starts_near() {
    for start in [1, 8, 64] {
        assert_share(Algorithm::StudyLocalParabola, &phase(HILL, 0.0), start, 0.7);
    }
}

/// Section 7.2: the workload changes, and with it the best limit.
#[test]
fn the_limit_follows_the_workload_when_it_changes() {
    for (before, after) in SWITCHES {
        for noise in NOISES {
            let (before, after) = (phase(before, noise), phase(after, noise));
            let share = mean(SEEDS.map(|seed| {
                let phases = [(&before, 100), (&after, u32::MAX)];
                let mut run = Run::through(Algorithm::HillClimbing, &phases, 8, seed);
                run.limits(100);
                mean(after.shares(&run.limits(INTERVALS)[CLIMB..]))
            }));
            let (from, to) = (&before.name, &after.name);
            assert!(share >= 0.9, "{from} to {to}: {share:.3} of the best");
        }
    }
}

/// Clients leave and come back: the limit goes down with them at once, and up again.
#[test]
fn the_limit_follows_the_number_of_clients() {
    let many = phase(HILL, 0.05);
    let few = many.with_clients(5);
    for algorithm in
        [Algorithm::HillClimbing, Algorithm::GlobalParabola, Algorithm::StudyLocalParabola]
    {
        let phases = [(&many, 100), (&few, 100), (&many, u32::MAX)];
        let mut run = Run::through(algorithm, &phases, 64, 1);
        run.limits(100);
        let lowered = run.limits(100);
        assert!(lowered[1..].iter().all(|limit| limit.get() <= 5), "{lowered:?}");
        let raised = run.limits(200);
        assert!(raised.iter().any(|limit| limit.get() > 20), "{raised:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let phase = phase(HILL, 0.05);
    for algorithm in [
        Algorithm::HillClimbing,
        Algorithm::GlobalParabola,
        Algorithm::StudyLocalParabola,
        Algorithm::GaussianProcess,
    ] {
        let run = |seed| Run::on(algorithm, &phase, 8, seed).limits(200);
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }
}

// The Gaussian process.

const BELIEF: Algorithm = Algorithm::GaussianProcess;

/// The share of the best throughput that limits inside the band have.
const BAND: f64 = 0.95;

/// Intervals in which it is to find the band, and to find back.
const SOON: usize = 10;

/// How much of the matrix is run.
struct Extent {
    seeds: Range<u64>,
    /// Seeds of random hills.
    hills: Range<u64>,
    noises: &'static [f64],
    /// Starts whose runs are averaged with one another.
    starts: &'static [&'static [u32]],
}

const PART: Extent = Extent {
    seeds: 3_000..3_002,
    hills: 4_000..4_006,
    noises: &[0.0, 0.05],
    starts: &[&[1, 1_000]],
};

const ALL: Extent = Extent {
    seeds: SEEDS,
    hills: 4_000..4_100,
    noises: &NOISES,
    starts: &[&[1], &[3], &[6], &[8], &[20], &[64], &[150], &[500], &[1_000]],
};

impl Extent {
    fn phases(&self, curves: &[Named]) -> Vec<Phase> {
        let with_noises =
            |&curve: &Named| self.noises.iter().map(move |&noise| phase(curve, noise));
        curves.iter().flat_map(with_noises).collect()
    }

    /// The mean of what the seeds give.
    fn mean(&self, phase: &Phase, of_seed: impl FnMut(u64) -> f64) -> f64 {
        mean(differing(&self.seeds, BELIEF, phase).map(of_seed))
    }
}

#[track_caller]
fn assert_none(failures: &[String]) {
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
}

fn default_keeps_95_percent_from_any_start(extent: &Extent) {
    let mut failures = Vec::new();
    for phase in extent.phases(&CURVES) {
        for starts in extent.starts {
            let share = mean(starts.iter().map(|&start| {
                extent.mean(&phase, |seed| {
                    let limits = Run::on(BELIEF, &phase, start, seed).limits(INTERVALS);
                    mean(phase.shares(&limits[CLIMB..]))
                })
            }));
            if share < BAND {
                failures.push(format!("{}, from {starts:?}: {share:.3} of the best", phase.name));
            }
        }
    }
    assert_none(&failures);
}

/// All runs count, also those on the measured curve, whose band is a single limit.
#[test]
fn the_default_is_inside_the_band_within_ten_intervals_in_nine_runs_of_ten() {
    let (mut runs, mut soon, mut late) = (0, 0, Vec::new());
    for curve in CURVES {
        let phase = phase(curve, 0.03);
        for start in STARTS {
            let is_soon = |&seed: &u64| {
                let mut run = Run::on(BELIEF, &phase, start, seed);
                (0..=SOON).any(|_| phase.share(run.interval().0.limit) >= BAND)
            };
            let inside = SEEDS.filter(is_soon).count();
            if inside < SEEDS.count() {
                late.push(format!("{} from {start}: {inside} of {RUNS}", phase.name));
            }
            runs += RUNS;
            soon += inside as u64;
        }
    }
    assert!(soon * 10 >= runs * 9, "{soon} of {runs} runs:\n{}", late.join("\n"));
}

/// The hills of hill climbing's test: 93 % of the best in 99 runs of 100, and 90 % in all.
fn default_keeps_93_percent_of_random_hills(extent: &Extent) {
    let (mut runs, mut low, mut failures) = (0_usize, 0_usize, Vec::new());
    for seed in extent.hills.clone() {
        let hill = random_hill(seed);
        for start in extent.starts.concat() {
            let limits = Run::on(BELIEF, &hill, start, seed).limits(INTERVALS);
            let share = mean(hill.shares(&limits[CLIMB..]));
            runs += 1;
            low += usize::from(share < 0.93);
            if share < 0.9 {
                failures.push(format!("seed {seed} from {start}: {share:.3} of the best"));
            }
        }
    }
    assert_none(&failures);
    assert!(low * 100 <= runs, "{low} of {runs} runs are below 93 % of the best");
}

fn default_follows_the_workload(extent: &Extent) {
    let mut failures = Vec::new();
    for (before, after) in SWITCHES {
        for &noise in extent.noises {
            let (before, after) = (phase(before, noise), phase(after, noise));
            let share = extent.mean(&after, |seed| {
                let phases = [(&before, 100), (&after, u32::MAX)];
                let mut run = Run::through(BELIEF, &phases, 8, seed);
                run.limits(100);
                mean(after.shares(&run.limits(INTERVALS)[CLIMB..]))
            });
            if share < BAND {
                let (from, to) = (&before.name, &after.name);
                failures.push(format!("{from} to {to}: {share:.3} of the best"));
            }
        }
    }
    assert_none(&failures);
}

/// A few permits more than clients stay; and what was had before is had again within ten intervals.
fn default_follows_the_clients(extent: &Extent) {
    let mut failures = Vec::new();
    for many in extent.phases(&CURVES) {
        let few = many.with_clients(5);
        for seed in differing(&extent.seeds, BELIEF, &many) {
            let phases = [(&many, 80), (&few, 30), (&many, u32::MAX)];
            let mut run = Run::through(BELIEF, &phases, 64, seed);
            let had = mean(many.shares(&run.limits(80)[CLIMB..]));
            let lowered = run.limits(30);
            if lowered[1..].iter().any(|limit| limit.get() > 10) {
                failures.push(format!("{}, seed {seed}, 5 clients: {lowered:?}", many.name));
            }
            let back = many.shares(&run.limits(SOON + 1));
            if back.iter().all(|&share| share < BAND * had) {
                failures.push(format!("{}, seed {seed}: {had:.3}, then {back:.2?}", many.name));
            }
        }
    }
    assert_none(&failures);
}

/// A share of transactions that cost ten times as much, and are told apart.
fn with_long(phase: &Phase, share: f64) -> Phase {
    let class = |share, demand| CurveClass { share, demand };
    let classes = vec![class(1.0 - share, 1.0), class(share, 10.0)];
    Phase::new(phase.name.clone(), CurvePhase { classes, ..phase.plant.clone() })
}

/// From 1 % to 30 % long transactions throughput falls to 1.09/3.7. A controller that did not tell
/// the classes apart would take every burst for another workload.
fn default_bears_a_burst(extent: &Extent) {
    let (mut runs, mut mistaken, mut failures) = (0, 0, Vec::new());
    for phase in extent.phases(&CURVES) {
        let (usual, burst) = (with_long(&phase, 0.01), with_long(&phase, 0.3));
        let phases = [(&usual, 90), (&burst, 30), (&usual, u32::MAX)];
        let (mut before, mut during, mut after) = (0.0, 0.0, 0.0);
        // The choice among the classes is random without noise too, so every seed differs.
        for seed in extent.seeds.clone() {
            let mut run = Run::through(BELIEF, &phases, 8, seed);
            before += mean_limit(&run.limits(90)[CLIMB..]);
            let seen: Vec<(Observation, Decision)> = (0..30).map(|_| run.interval()).collect();
            during += mean(seen.iter().map(|(seen, _)| f64::from(seen.limit.get())));
            after += mean_limit(&run.limits(30));
            let is_mistaken = seen.iter().any(|(_, decision)| decision.reason.kind() == "changed");
            mistaken += u32::from(is_mistaken);
            runs += 1;
        }
        if during.min(after) < before * 2.0 / 3.0 {
            let ratios = [during / before, after / before];
            failures.push(format!("{}: limits changed by {ratios:.2?}", phase.name));
        }
    }
    assert_none(&failures);
    assert!(mistaken * 4 <= runs, "{mistaken} of {runs} bursts were taken for another workload");
}

/// An open system with arrivals at this share of the best throughput.
fn open(phase: &Phase, load: f64) -> (f64, Phase) {
    let limits = (1..=CLIENTS).map(Mpl::at_least_one);
    let best = limits.map(|limit| phase.plant.expected_tps(limit)).fold(0.0, f64::max);
    let arrivals_tps = Some(load * best);
    let plant = CurvePhase { clients: None, arrivals_tps, ..phase.plant.clone() };
    (load * best, Phase::new(format!("{}, {load} of the load", phase.name), plant))
}

fn default_leaves_a_light_load_alone(extent: &Extent) {
    let mut failures = Vec::new();
    for closed in extent.phases(&CURVES) {
        for load in [0.1, 0.3, 0.5] {
            let (arrivals_tps, open) = open(&closed, load);
            for start in extent.starts.concat() {
                for seed in extent.seeds.clone() {
                    let mut run = Run::on(BELIEF, &open, start, seed);
                    run.limits(CLIMB);
                    let seen: Vec<Observation> =
                        (CLIMB..INTERVALS).map(|_| run.interval().0).collect();
                    let waiting = mean(seen.iter().map(|seen| seen.waiting_share));
                    let done = mean(seen.iter().map(Observation::throughput_tps)) / arrivals_tps;
                    if waiting >= 0.3 || (done - 1.0).abs() > 0.03 {
                        let context = format!("{} from {start}, seed {seed}", open.name);
                        failures.push(format!("{context}: waiting {waiting:.2}, done {done:.3}"));
                    }
                }
            }
        }
    }
    assert_none(&failures);
}

/// Tests of a part of the matrix, and in full.
macro_rules! in_part_and_in_full {
    ($($check:ident: $part:expr, $in_part:ident, $in_full:ident;)*) => { $(
        #[test]
        fn $in_part() {
            $check($part);
        }

        #[test]
        #[ignore = "soak: all seeds, hills, noises and starts"]
        fn $in_full() {
            $check(&ALL);
        }
    )* };
}

in_part_and_in_full! {
    default_keeps_95_percent_from_any_start: &PART,
        the_default_keeps_95_percent_of_the_best_from_any_start,
        the_default_keeps_95_percent_of_the_best_from_any_start_in_full;
    default_keeps_93_percent_of_random_hills: &PART,
        the_default_keeps_93_percent_of_the_best_on_random_hills,
        the_default_keeps_93_percent_of_the_best_on_random_hills_in_full;
    default_follows_the_workload: &PART,
        the_default_follows_the_workload_when_it_changes,
        the_default_follows_the_workload_when_it_changes_in_full;
    default_follows_the_clients: &PART,
        the_default_follows_the_number_of_clients_and_is_soon_back,
        the_default_follows_the_number_of_clients_and_is_soon_back_in_full;
    // A limit wanders where the curve is flat: a mean of two runs says too little.
    default_bears_a_burst: &Extent { seeds: 3_000..3_006, noises: &[0.05], ..PART },
        the_default_bears_a_burst_of_long_transactions,
        the_default_bears_a_burst_of_long_transactions_in_full;
    default_leaves_a_light_load_alone: &PART,
        the_default_does_not_throttle_a_light_load,
        the_default_does_not_throttle_a_light_load_in_full;
}
