//! The queueing models against closed forms, against the study's figures and against simulation.

use std::collections::VecDeque;

use tidegate_control::models::hyperexponential::{Hyperexponential, HyperexponentialError};
use tidegate_control::models::response_time::{
    HIGHEST_MPL, LimitedSharing, ResponseTimeError, Stationary,
};
use tidegate_control::models::throughput::{Network, Stations, ThroughputError};
use tidegate_control::{Mpl, SplitMix64};

fn mpl(level: u32) -> Mpl {
    Mpl::at_least_one(level)
}

#[track_caller]
fn assert_near(found: f64, expected: f64, error: f64) {
    assert!((found / expected - 1.0).abs() <= error, "{found} is not {expected}");
}

/// Unequal stations, one of each demand.
fn network(demands_s: &[f64], think_s: f64) -> Network {
    let stations: Vec<Stations> =
        demands_s.iter().map(|&demand_s| Stations { count: 1, demand_s }).collect();
    Network::new(&stations, think_s).expect("a network")
}

fn sharing(load: f64, squared_variation: f64) -> LimitedSharing {
    let sizes = Hyperexponential::new(1.0, squared_variation).expect("sizes");
    LimitedSharing::new(load, sizes).expect("a load")
}

fn solved(system: &LimitedSharing, level: u32) -> Stationary {
    system.at(mpl(level)).expect("a solution")
}

/// Mean response time as a multiple of that without a limit.
fn ratio(system: &LimitedSharing, level: u32) -> f64 {
    solved(system, level).mean_response_s / system.unlimited_response_s()
}

// Throughput.

/// X(N)/X(∞) = N/(N + M − 1).
#[test]
fn balanced_networks_have_the_closed_form() {
    for stations in [1, 2, 3, 7, 16, 100, u32::MAX] {
        let network = Network::balanced(stations).expect("stations");
        for level in [1, 2, 3, 10, 57, 1_000] {
            let expected = f64::from(level) / (f64::from(level) + f64::from(stations) - 1.0);
            assert_near(network.at(mpl(level)).throughput_tps, expected, 1e-12);
        }
    }
}

/// The straight lines of the study's Figure 7; one station needs one transaction.
#[test]
fn the_lowest_mpl_of_balanced_networks_lies_on_the_studys_lines() {
    for stations in 1..=64 {
        let network = Network::balanced(stations).expect("stations");
        for (loss, slope) in [(0.2, 4), (0.05, 19)] {
            let lowest = network.lowest_mpl(loss).expect("within reach");
            assert_eq!(lowest, mpl(slope * (stations - 1)), "{stations} stations, loss {loss}");
        }
    }
}

/// The example of the module's head, and stations of 1 s and 2 s by hand. One transaction:
/// R = 1 + 2, X = 1/3, Q = 1/3 and 2/3. Two: R = 4/3 + 10/3 = 14/3, X = 3/7, Q = 4/7 and 10/7.
#[test]
fn the_recursion_by_hand() {
    let balanced = Network::balanced(2).expect("stations");
    for (level, tps, queue) in [(1, 1.0 / 2.0, 0.5), (2, 2.0 / 3.0, 1.0), (3, 3.0 / 4.0, 1.5)] {
        let population = balanced.at(mpl(level));
        assert_near(population.throughput_tps, tps, 1e-12);
        assert_near(population.queue_lengths[0], queue, 1e-12);
    }
    let population = network(&[1.0, 2.0], 0.0).at(mpl(2));
    assert_near(population.throughput_tps, 3.0 / 7.0, 1e-12);
    assert_near(population.response_time_s, 14.0 / 3.0, 1e-12);
    assert_near(population.queue_lengths[0], 4.0 / 7.0, 1e-12);
    assert_near(population.queue_lengths[1], 10.0 / 7.0, 1e-12);
    assert_eq!(population.mpl, mpl(2));
}

const UNEQUAL: [&[f64]; 4] = [&[3.0, 5.0, 2.0], &[1.0, 0.1], &[4.0, 4.0, 0.5, 0.5], &[7.0]];

/// N/(Z + D + (N − 1)·B) ≤ X(N) ≤ min(N/(Z + D), 1/B), where D is the sum of the demands and B the
/// largest: the asymptotic bounds. And everybody is somewhere (Little's law).
#[test]
fn throughput_is_within_the_asymptotic_bounds_and_nobody_is_lost() {
    for demands in UNEQUAL {
        for think in [0.0, 6.0] {
            let (network, total) = (network(demands, think), demands.iter().sum::<f64>());
            let most = demands.iter().copied().fold(0.0, f64::max);
            assert_near(network.limit_tps(), 1.0 / most, 1e-12);
            let mut before = 0.0;
            for level in 1..=100 {
                let population = network.at(mpl(level));
                let (n, tps) = (f64::from(level), population.throughput_tps);
                assert!(tps <= (n / (think + total)).min(1.0 / most) * (1.0 + 1e-12));
                assert!(tps >= n / (think + total + (n - 1.0) * most) * (1.0 - 1e-12));
                assert!(tps >= before * (1.0 - 1e-12), "{demands:?}: one more never hurts");
                let inside = population.queue_lengths.iter().sum::<f64>();
                assert_near(inside + tps * think, n, 1e-12);
                before = tps;
            }
        }
    }
}

/// One station of mean 1/µ and N thinkers of mean Z (the machine repair model): the chance that
/// nobody is at the station is 1/Σ N!/(N − k)!·(µZ)^−k, and X = µ(1 − that).
#[test]
fn think_time_gives_the_machine_repair_model() {
    let (demand, think) = (0.2, 1.5);
    let network = network(&[demand], think);
    for level in 1..=30 {
        let mut term = 1.0;
        let mut sum = 1.0;
        for k in 0..level {
            term *= f64::from(level - k) * demand / think;
            sum += term;
        }
        assert_near(network.at(mpl(level)).throughput_tps, (1.0 - 1.0 / sum) / demand, 1e-12);
    }
}

#[test]
fn equal_stations_may_be_given_together_or_one_by_one() {
    let kinds = [Stations { count: 2, demand_s: 0.3 }, Stations { count: 3, demand_s: 0.5 }];
    let together = Network::new(&kinds, 0.1).expect("a network");
    let one_by_one = network(&[0.3, 0.3, 0.5, 0.5, 0.5], 0.1);
    for level in [1, 5, 40] {
        let (left, right) = (together.at(mpl(level)), one_by_one.at(mpl(level)));
        assert_near(left.throughput_tps, right.throughput_tps, 1e-12);
        assert_near(left.queue_lengths[1], right.queue_lengths[4], 1e-12);
    }
}

#[test]
fn the_lowest_mpl_suffices_and_one_less_does_not() {
    for demands in UNEQUAL {
        for (think, loss) in [(0.0, 0.05), (6.0, 0.05), (0.0, 0.2), (6.0, 0.001)] {
            let network = network(demands, think);
            let enough = (1.0 - loss) * network.limit_tps();
            let lowest = network.lowest_mpl(loss).expect("within reach").get();
            assert!(network.at(mpl(lowest)).throughput_tps >= enough * (1.0 - 1e-9));
            assert!(lowest == 1 || network.at(mpl(lowest - 1)).throughput_tps < enough);
        }
    }
    // Equal stations are the worst case: three of 5, 3 and 2 need less than three of 5.
    let unequal = network(&[3.0, 5.0, 2.0], 0.0).lowest_mpl(0.05).expect("within reach");
    assert!(unequal < mpl(38), "{unequal}");
}

#[test]
fn what_is_no_network_is_refused() {
    let one = |count, demand_s| Network::new(&[Stations { count, demand_s }], 0.0);
    assert_eq!(Network::new(&[], 0.0), Err(ThroughputError::NoStations));
    assert_eq!(Network::balanced(0), Err(ThroughputError::NoStations));
    for demand in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(one(1, demand), Err(ThroughputError::Demand(_))), "{demand}");
    }
    for think in [-1.0, f64::NAN, f64::INFINITY] {
        let stations = [Stations { count: 1, demand_s: 1.0 }];
        let refused = Network::new(&stations, think);
        assert!(matches!(refused, Err(ThroughputError::ThinkTime(_))), "{think}");
    }
    let network = Network::balanced(3).expect("stations");
    for loss in [0.0, 1.0, -0.1, f64::NAN] {
        assert!(matches!(network.lowest_mpl(loss), Err(ThroughputError::Loss(_))), "{loss}");
    }
    assert_eq!(network.lowest_mpl(1e-7), Err(ThroughputError::OutOfReach));
}

// Response time.

/// E(S) = mean and E(S²) = mean²(C² + 1), from the two exponentials: 2·p·m² of each, added up. Both
/// kinds bring half of the work.
#[test]
fn hyperexponential_sizes_have_the_moments_asked_for() {
    for mean in [1.0, 0.003] {
        for variation in [1.0, 1.5, 2.0, 15.0, 1e6] {
            let sizes = Hyperexponential::new(mean, variation).expect("sizes");
            let [small, large] = sizes.phases();
            assert_near(small.probability + large.probability, 1.0, 1e-12);
            assert_near(small.probability * small.mean_s, mean / 2.0, 1e-12);
            assert_near(large.probability * large.mean_s, mean / 2.0, 1e-12);
            let square = |mean_s: f64| 2.0 * mean_s * mean_s;
            let second =
                small.probability * square(small.mean_s) + large.probability * square(large.mean_s);
            assert_near(second, mean * mean * (variation + 1.0), 1e-9);
            assert!(small.mean_s <= large.mean_s);
        }
    }
    for mean in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let refused = Hyperexponential::new(mean, 2.0);
        assert!(matches!(refused, Err(HyperexponentialError::Mean(_))), "{mean}");
    }
    for variation in [0.99, 1e7, f64::NAN, f64::INFINITY] {
        let refused = Hyperexponential::new(1.0, variation);
        assert!(matches!(refused, Err(HyperexponentialError::SquaredVariation(_))), "{variation}");
    }
}

/// Exponential sizes do not remember, so it does not matter how many share: (1 − ρ)ρ^n are there.
#[test]
fn exponential_sizes_give_the_single_server_at_every_mpl() {
    for load in [0.01, 0.5, 0.7, 0.9, 0.99] {
        let system = sharing(load, 1.0);
        for level in [1, 2, 3, 5, 10, 35] {
            let state = solved(&system, level);
            assert_near(state.mean_response_s, 1.0 / (1.0 - load), 1e-9);
            let mut chance = 1.0 - load;
            for &found in &state.below {
                assert_near(found, chance, 1e-9);
                chance *= load;
            }
            assert_near(state.full, chance / (1.0 - load), 1e-9);
        }
    }
}

/// One at a time, Pollaczek and Khinchine: E(T) = E(S) + ρ·E(S)·(1 + C²)/(2(1 − ρ)).
#[test]
fn one_at_a_time_is_pollaczek_and_khinchine() {
    for load in [0.1, 0.7, 0.9, 0.99] {
        for variation in [1.0, 2.0, 5.0, 15.0, 1_000.0] {
            let expected = 1.0 + load * (1.0 + variation) / (2.0 * (1.0 - load));
            let found = solved(&sharing(load, variation), 1).mean_response_s;
            assert_near(found, expected, 1e-8);
        }
    }
}

#[test]
fn a_high_mpl_is_processor_sharing_whatever_the_sizes() {
    for (load, level, error) in [(0.3, 20, 1e-6), (0.7, 60, 1e-6), (0.9, 60, 0.02)] {
        for variation in [1.0, 5.0, 15.0] {
            assert_near(ratio(&sharing(load, variation), level), 1.0, error);
        }
    }
}

/// More sharing, less waiting behind long ones: down from Pollaczek and Khinchine to 1.
#[test]
fn response_time_falls_with_the_mpl_when_sizes_vary() {
    for (load, variation) in [(0.7, 2.0), (0.7, 15.0), (0.9, 5.0), (0.99, 100.0)] {
        let system = sharing(load, variation);
        let ratios: Vec<f64> = (1..=20).map(|level| ratio(&system, level)).collect();
        assert!(ratios.is_sorted_by(|low, high| low > high), "{ratios:?}");
        assert!(ratios.iter().all(|&ratio| ratio > 1.0), "{ratios:?}");
    }
}

/// The server works whenever somebody is there: the system is empty for 1 − ρ of the time.
fn assert_sound(load: f64, variation: f64, level: u32) {
    let state = solved(&sharing(load, variation), level);
    assert_eq!(state.below.len(), level as usize);
    assert!(state.below.iter().chain([&state.full]).all(|&chance| chance >= 0.0));
    assert_near(state.below.iter().sum::<f64>() + state.full, 1.0, 1e-12);
    assert_near(state.below[0], 1.0 - load, 1e-8);
    assert_near(state.mean_response_s * load, state.mean_in_system, 1e-12);
    let lowest = 1.0 / (1.0 - load);
    let highest = 1.0 + load * (1.0 + variation) / (2.0 * (1.0 - load));
    let range = lowest * (1.0 - 1e-8)..=highest.max(lowest) * (1.0 + 1e-8);
    assert!(range.contains(&state.mean_response_s), "{load} {variation} {level}: {state:?}");
}

#[test]
fn solutions_are_sound() {
    assert_sound(0.99, 15.0, 64);
    for level in [1, 2, 7, 35] {
        for load in [0.01, 0.7, 0.99] {
            for variation in [1.0, 15.0, 1_000.0] {
                assert_sound(load, variation, level);
            }
        }
    }
}

#[test]
#[ignore = "soak: the matrices of an MPL of 256 take a minute without optimisation"]
fn solutions_are_sound_up_to_the_highest_mpl() {
    for level in [128, 200, HIGHEST_MPL] {
        for (load, variation) in [(0.01, 15.0), (0.9, 15.0), (0.99, 1.0), (0.99, 15.0)] {
            assert_sound(load, variation, level);
        }
    }
}

#[test]
fn the_unit_of_the_sizes_does_not_matter() {
    let small = Hyperexponential::new(0.003, 15.0).expect("sizes");
    let small = LimitedSharing::new(0.7, small).expect("a load");
    let found = solved(&small, 5).mean_response_s;
    assert_near(found, 0.003 * solved(&sharing(0.7, 15.0), 5).mean_response_s, 1e-12);
}

/// The study reads off Figure 10: for C² of 1 and 2 an MPL of 5 is close to processor sharing; for
/// 5 to 15 it takes 10 at a load of 0.7 and 30 at 0.9. Close is then within 13 % at 0.7 and 30 % at
/// 0.9, and half of the MPL is not close for C² = 15.
#[test]
fn the_readings_of_figure_10() {
    for (load, close, level) in [(0.7, 1.13, 10), (0.9, 1.3, 30)] {
        for variation in [1.0, 2.0] {
            let found = ratio(&sharing(load, variation), 5);
            assert!(found <= close, "load {load}, C² {variation}, MPL 5: {found}");
        }
        for variation in [5.0, 10.0, 15.0] {
            let found = ratio(&sharing(load, variation), level);
            assert!(found <= close, "load {load}, C² {variation}, MPL {level}: {found}");
        }
        let half = ratio(&sharing(load, 15.0), level / 2);
        assert!(half > 1.9, "load {load}, C² 15, MPL {}: {half}", level / 2);
    }
}

#[test]
fn the_lowest_mpl_keeps_the_increase_and_one_less_does_not() {
    for (load, variation, increase) in
        [(0.7, 15.0, 0.05), (0.7, 2.0, 0.05), (0.9, 5.0, 0.1), (0.5, 15.0, 0.01)]
    {
        let system = sharing(load, variation);
        let lowest = system.lowest_mpl(increase).expect("within reach").get();
        assert!(ratio(&system, lowest) <= 1.0 + increase);
        assert!(ratio(&system, lowest - 1) > 1.0 + increase);
    }
    assert_eq!(sharing(0.9, 1.0).lowest_mpl(0.05), Ok(Mpl::ONE));
}

#[test]
fn what_has_no_answer_is_refused() {
    let sizes = Hyperexponential::new(1.0, 2.0).expect("sizes");
    for load in [0.0, 1.0, 1.5, -0.1, f64::NAN] {
        let refused = LimitedSharing::new(load, sizes);
        assert!(matches!(refused, Err(ResponseTimeError::Load(_))), "{load}");
    }
    let system = sharing(0.7, 2.0);
    for increase in [0.0, -0.1, f64::NAN, f64::INFINITY] {
        let refused = system.lowest_mpl(increase);
        assert!(matches!(refused, Err(ResponseTimeError::Increase(_))), "{increase}");
    }
    let above = mpl(HIGHEST_MPL + 1);
    assert_eq!(system.at(above), Err(ResponseTimeError::TooHigh(above)));
    assert_eq!(sharing(0.999_999, 1e6).at(mpl(5)), Err(ResponseTimeError::Imprecise));
}

// Simulation: an independent account of the same systems, event by event.

/// A mean over batches and its standard error.
struct Measured {
    mean: f64,
    error: f64,
}

fn measured(batches: &[f64]) -> Measured {
    let count = batches.len() as f64;
    let mean = batches.iter().sum::<f64>() / count;
    let squares = batches.iter().map(|batch| (batch - mean).powi(2)).sum::<f64>();
    Measured { mean, error: (squares / (count - 1.0) / count).sqrt() }
}

/// Within four standard errors, which are small enough for that to mean something.
#[track_caller]
fn assert_simulated(simulated: &Measured, model: f64, largest_error: f64, case: &str) {
    let Measured { mean, error } = *simulated;
    assert!(error < largest_error * mean, "{case}: {mean} ± {error} says too little");
    assert!((mean - model).abs() < 4.0 * error, "{case}: {mean} ± {error}, model {model}");
}

const BATCHES: usize = 20;

/// The index and the time of the next event; `INFINITY` stands for none.
fn next_event(times: &[f64]) -> (usize, f64) {
    let soonest = |best: (usize, f64), (index, &time): (usize, &f64)| {
        if time < best.1 { (index, time) } else { best }
    };
    times.iter().enumerate().fold((0, f64::INFINITY), soonest)
}

/// `population` transactions go round `demands_s`, first come first served, with exponential
/// service times; from the last station they think and come back to the first. Throughput of each
/// batch.
fn simulated_network(demands_s: &[f64], think_s: f64, population: usize, seed: u64) -> Measured {
    const BATCH: usize = 10_000;
    let mut random = SplitMix64::new(seed);
    let mut queues = vec![0_usize; demands_s.len()];
    let mut ends = vec![f64::INFINITY; demands_s.len()];
    let mut thinkers: Vec<f64> =
        (0..population).map(|_| think_s * random.next_exponential()).collect();
    let (mut batches, mut completions, mut batch_start) = (Vec::new(), 0, 0.0);
    // The first batch is the way to the steady state.
    while batches.len() <= BATCHES {
        let (station, end) = next_event(&ends);
        let (thinker, back) = next_event(&thinkers);
        let (arrives_at, now) = if back < end {
            thinkers.swap_remove(thinker);
            (0, back)
        } else {
            queues[station] -= 1;
            let again = queues[station] > 0;
            let service = demands_s[station] * random.next_exponential();
            ends[station] = if again { end + service } else { f64::INFINITY };
            (station + 1, end)
        };
        if arrives_at < queues.len() {
            queues[arrives_at] += 1;
            if queues[arrives_at] == 1 {
                ends[arrives_at] = now + demands_s[arrives_at] * random.next_exponential();
            }
            continue;
        }
        thinkers.push(now + think_s * random.next_exponential());
        completions += 1;
        if completions % BATCH == 0 {
            batches.push(BATCH as f64 / (now - batch_start));
            batch_start = now;
        }
    }
    measured(&batches[1..])
}

/// Twenty batches of 10,000 transactions; standard errors are below 0.4 %.
#[test]
fn a_simulated_network_has_the_throughput_of_the_model() {
    let table: [(&[f64], f64, usize); 6] = [
        (&[0.003, 0.005, 0.002], 0.0, 1),
        (&[0.003, 0.005, 0.002], 0.0, 3),
        (&[0.003, 0.005, 0.002], 0.0, 8),
        (&[0.004, 0.004], 0.0, 5),
        (&[0.003, 0.005, 0.002], 0.02, 4),
        (&[0.001], 0.01, 12),
    ];
    for (seed, (demands, think, population)) in (101..).zip(table) {
        let simulated = simulated_network(demands, think, population, seed);
        let level = mpl(u32::try_from(population).expect("small"));
        let model = network(demands, think).at(level).throughput_tps;
        let case = format!("{demands:?}, think {think}, {population} inside");
        assert_simulated(&simulated, model, 0.004, &case);
    }
}

/// A transaction inside the simulated database ends when the work that each of those inside has
/// been given reaches `due`.
struct Inside {
    arrival: f64,
    due: f64,
}

fn size(random: &mut SplitMix64, sizes: &Hyperexponential) -> f64 {
    let [small, large] = sizes.phases();
    let is_small = random.next_draw().value() < small.probability;
    random.next_exponential() * if is_small { small.mean_s } else { large.mean_s }
}

/// Arrivals at rate `load`, sizes of mean 1, at most `limit` sharing. Mean response time of each
/// batch.
fn simulated_sharing(load: f64, variation: f64, limit: usize, seed: u64) -> Measured {
    const BATCH: usize = 100_000;
    let sizes = Hyperexponential::new(1.0, variation).expect("sizes");
    let mut random = SplitMix64::new(seed);
    let mut waiting: VecDeque<(f64, f64)> = VecDeque::new();
    let mut inside: Vec<Inside> = Vec::new();
    let (mut now, mut given, mut sum, mut ended) = (0.0, 0.0, 0.0, 0);
    let mut arrival = 1.0 / load * random.next_exponential();
    let mut batches = Vec::new();
    while batches.len() <= BATCHES {
        let dues: Vec<f64> = inside.iter().map(|one| one.due).collect();
        let (first, due) = next_event(&dues);
        let sharers = inside.len() as f64;
        let end = now + (due - given) * sharers;
        if inside.is_empty() || arrival < end {
            given += (arrival - now) / sharers.max(1.0);
            now = arrival;
            waiting.push_back((now, size(&mut random, &sizes)));
            arrival = now + 1.0 / load * random.next_exponential();
        } else {
            (now, given) = (end, due);
            sum += now - inside.swap_remove(first).arrival;
            ended += 1;
            if ended % BATCH == 0 {
                batches.push(sum / BATCH as f64);
                sum = 0.0;
            }
        }
        while inside.len() < limit {
            let Some((arrival, work)) = waiting.pop_front() else { break };
            inside.push(Inside { arrival, due: given + work });
        }
    }
    measured(&batches[1..])
}

/// Twenty batches of 100,000 transactions; standard errors are below 2 %.
#[test]
fn a_simulated_database_has_the_response_time_of_the_model() {
    let table = [(0.7, 1.0, 3), (0.6, 5.0, 2), (0.6, 5.0, 5), (0.7, 2.0, 4), (0.5, 15.0, 3)];
    for (seed, (load, variation, limit)) in (101..).zip(table) {
        let simulated = simulated_sharing(load, variation, limit, seed);
        let level = u32::try_from(limit).expect("small");
        let model = solved(&sharing(load, variation), level).mean_response_s;
        let case = format!("load {load}, C² {variation}, MPL {limit}");
        assert_simulated(&simulated, model, 0.02, &case);
    }
}
