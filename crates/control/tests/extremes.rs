//! Whatever is observed, a limit within the bounds comes out, and a reason that can be read.

use std::time::Duration;

use tidegate_control::{
    Algorithm, Bounds, ClassObservation, Concurrency, ControlChoice, Controller, Fixed,
    HillClimbing, HillClimbingSettings, LockObservation, Mpl, Observation, Parabola,
    ParabolaSettings, Parameter, Resources, ServerObservation, Setting, SplitMix64, Step, Timing,
    WhatIf,
};

const RUNS: u64 = 400;
const INTERVALS: usize = 100;

/// One of the listed values, or any value at all.
fn one_of<const N: usize>(random: &mut SplitMix64, listed: [u64; N]) -> u64 {
    let bits = random.next_bits();
    let choice = usize::try_from(random.next_bits() % (N as u64 + 1)).expect("small");
    listed.get(choice).copied().unwrap_or(bits)
}

fn level(random: &mut SplitMix64) -> u32 {
    let level = one_of(random, [0, 1, 2, 3, 10, 1_000, u64::from(u32::MAX)]);
    u32::try_from(level).unwrap_or(u32::MAX)
}

fn observation(random: &mut SplitMix64, in_force: Mpl) -> Observation {
    let nanos = one_of(random, [0, 1, 1_000_000_000, 1_000_000_000, 1_000_000_000, u64::MAX]);
    let limit = if random.next_bits().is_multiple_of(8) {
        Mpl::at_least_one(level(random))
    } else {
        in_force
    };
    Observation {
        interval: Duration::from_nanos(nanos),
        limit,
        concurrency: level(random),
        concurrency_peak: level(random),
        concurrency_mean: fraction(random),
        running: level(random),
        running_mean: fraction(random),
        idle: level(random),
        idle_mean: fraction(random),
        discounted: level(random),
        discounted_mean: fraction(random),
        waiting_share: fraction(random),
        completions: one_of(random, [0, 1, 2, 100, 1_000, u64::MAX]),
        failures: one_of(random, [0, u64::MAX]),
        in_database: timing(random),
        in_queue: timing(random),
        locks: random.next_bits().is_multiple_of(2).then(|| locks(random)),
        server: random.next_bits().is_multiple_of(2).then(|| server(random)),
        classes: (0..random.next_bits() % 4).map(|_| class(random)).collect(),
    }
}

fn server(random: &mut SplitMix64) -> ServerObservation {
    ServerObservation {
        samples: level(random),
        processor: fraction(random),
        lock: fraction(random),
        lwlock: fraction(random),
        io: fraction(random),
        client: fraction(random),
        other: fraction(random),
        idle_in_transaction: fraction(random),
        hidden: fraction(random),
    }
}

fn timing(random: &mut SplitMix64) -> Timing {
    Timing {
        count: one_of(random, [0, 1, 100, u64::MAX]),
        mean_s: fraction(random),
        variance_s2: fraction(random),
        min_s: fraction(random),
        p50_s: fraction(random),
        p95_s: fraction(random),
        p99_s: fraction(random),
    }
}

fn class(random: &mut SplitMix64) -> ClassObservation {
    ClassObservation {
        completions: one_of(random, [0, 1, 100, u64::MAX]),
        failures: one_of(random, [0, 1, u64::MAX]),
        in_database: timing(random),
        in_queue: timing(random),
        response: timing(random),
        late: one_of(random, [0, 1, 100, u64::MAX]),
    }
}

fn locks(random: &mut SplitMix64) -> LockObservation {
    LockObservation {
        mature_running: level(random),
        mature_blocked: level(random),
        young_running: level(random),
        young_blocked: level(random),
        locks_held: one_of(random, [0, 1, 100, u64::MAX]),
        locks_held_by_running: one_of(random, [0, 1, 100, u64::MAX]),
    }
}

fn fraction(random: &mut SplitMix64) -> f64 {
    let listed = [0.0, 0.05, 0.4, 1.0, -1.0, f64::NAN, f64::INFINITY, f64::MAX, f64::MIN_POSITIVE];
    let choice = usize::try_from(random.next_bits() % 9).expect("small");
    listed[choice]
}

fn step(random: &mut SplitMix64) -> Step {
    if random.next_bits().is_multiple_of(2) {
        Step::Absolute(level(random))
    } else {
        Step::Relative(fraction(random))
    }
}

fn concurrency(random: &mut SplitMix64) -> Concurrency {
    if random.next_bits().is_multiple_of(2) { Concurrency::Peak } else { Concurrency::AtEnd }
}

fn controllers(random: &mut SplitMix64, bounds: Bounds) -> Vec<Box<dyn Controller>> {
    let start = Mpl::at_least_one(level(random));
    let climbing = HillClimbingSettings {
        guard: random.next_bits().is_multiple_of(2),
        gain: fraction(random),
        loss: fraction(random),
        step: step(random),
        concurrency: concurrency(random),
        rest: level(random),
        band: fraction(random),
    };
    let parabola = ParabolaSettings {
        cap: fraction(random),
        wiggle: step(random),
        concurrency: concurrency(random),
    };
    let resources = Resources { cpus: level(random), disks: level(random) };
    let setting = Setting { bounds, start, resources };
    let named = Algorithm::ALL.into_iter().map(|algorithm| algorithm.controller(&setting));
    let mut controllers: Vec<Box<dyn Controller>> = vec![
        Box::new(Fixed::new(bounds, start)),
        Box::new(HillClimbing::new(bounds, start, climbing)),
        Box::new(Parabola::global(bounds, start, parabola)),
        Box::new(Parabola::local(bounds, start, parabola)),
    ];
    controllers.extend(named);
    let tuned = Algorithm::ALL.into_iter().filter_map(|algorithm| tuned(random, algorithm));
    controllers.extend(tuned.map(|algorithm| algorithm.controller(&setting)));
    let observing = ControlChoice::observing(ControlChoice::ASKED).expect("it can");
    controllers.push(observing.controller(&setting));
    controllers
}

/// An algorithm with one of its parameters at an end of its range; `None` where that contradicts
/// another.
fn tuned(random: &mut SplitMix64, algorithm: Algorithm) -> Option<Algorithm> {
    let parameters = algorithm.parameters();
    let mut pick =
        |count: usize| usize::try_from(random.next_bits()).map_or(0, |bits| bits % count.max(1));
    let Parameter { name, values, .. } = &parameters[pick(parameters.len())];
    // As in `0 to 1`, `1 to 1000000, or 1% to 1000% of the limit`, `on or off`.
    let is_end = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let words: Vec<&str> = values.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let mut ends: Vec<&str> = words.iter().copied().filter(is_end).collect();
    if ends.is_empty() {
        ends = words.into_iter().filter(|&word| word != "or").collect();
    }
    let text = format!("{}:{name}={}", algorithm.name(), ends[pick(ends.len())]);
    let tuned = text.parse::<Algorithm>();
    if let Err(error) = &tuned {
        assert!(error.to_string().contains("lowest is above highest"), "{error}");
    }
    tuned.ok()
}

/// Bounds 1 to 1, 3 to 7, 1 to 1,000 or 1 to the highest.
fn bounds(random: &mut SplitMix64) -> Bounds {
    let pairs = [(1, 1), (3, 7), (1, 1_000), (1, u32::MAX)];
    let (min, max) = pairs[usize::try_from(random.next_bits() % 4).expect("small")];
    Bounds::new(Mpl::at_least_one(min), Mpl::at_least_one(max)).expect("min is not above max")
}

/// The study's three never keep more permits than transactions were seen (Section 3.2), nor do the
/// load controls of the literature as we have them.
fn is_capped(name: &str) -> bool {
    let others = ["incremental-steps", "faded-parabola", "half-and-half", "conflict-ratio"];
    ["hill-climbing", "global-parabola", "local-parabola"].contains(&name) || others.contains(&name)
}

/// Whatever is observed, and whenever, what is told of a limit is a number in an interval.
#[test]
fn a_what_if_curve_is_made_of_numbers() {
    let mut random = SplitMix64::new(4_711);
    let mut told = 0;
    for run in 0..RUNS {
        let mut what_if = WhatIf::new(Mpl::at_least_one(level(&mut random)));
        let limit = Mpl::at_least_one(level(&mut random).min(2_000));
        for _ in 0..INTERVALS {
            let seen = observation(&mut random, limit);
            let at_s = fraction(&mut random);
            what_if.learn(at_s, &seen);
        }
        let curve = what_if.curve(fraction(&mut random));
        assert!(!curve.rows.is_empty(), "run {run}");
        for row in &curve.rows {
            assert_eq!(row.throughput_tps.is_none(), row.unknown.is_some(), "{row:?}");
            for interval in row.throughput_tps.iter().chain(&row.response_s) {
                told += 1;
                let numbers = [interval.low, interval.median, interval.high];
                assert!(numbers.iter().all(|number| number.is_finite()), "run {run}: {row:?}");
                assert!(numbers.is_sorted(), "run {run}: {row:?}");
            }
        }
    }
    println!("{told} intervals, seed 4711");
}

#[test]
fn no_observation_leads_out_of_the_bounds() {
    for seed in 0..RUNS {
        let random = &mut SplitMix64::new(seed);
        let bounds = bounds(random);
        for mut controller in controllers(random, bounds) {
            let mut limit = controller.start();
            for _ in 0..INTERVALS {
                let seen = observation(random, limit);
                let decision = controller.decide(&seen, random.next_draw());
                limit = decision.limit;
                let name = controller.name();
                let context = format!("seed {seed}, {name}, {bounds:?}, {seen:?}, {decision:?}");
                if let Some(proposal) = controller.proposal() {
                    let is_allowed = bounds.clamp(proposal.limit) == proposal.limit;
                    assert!(is_allowed && limit == bounds.max(), "{context}: {proposal}");
                    assert!(!proposal.to_string().contains("NaN"), "{context}: {proposal}");
                }
                assert!(limit >= bounds.min() && limit <= bounds.max(), "{context}");
                let observed = seen.concurrency.max(seen.concurrency_peak).max(bounds.min().get());
                assert!(!is_capped(name) || limit.get() <= observed, "{context}");
                assert!(!decision.reason.to_string().contains("NaN"), "{context}");
            }
        }
    }
}
