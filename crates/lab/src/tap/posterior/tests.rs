//! Properties of the posterior on random curves, and simulation without a grid as its oracle.

use tidegate_control::{Mpl, SplitMix64};

use super::chain::Steps;
use super::{LevelSample, OutcomeProbability, Posterior, outcome};
use crate::tap::testing::shuffle;
use crate::tap::{Rule, ThrashingPoint, ThroughputCurve};

const RULES: [Rule; 2] = [Rule::Equation1, Rule::Drop20];

/// Levels of MPL 100, 200, …, with these executions.
fn levels(tps: &[Vec<f64>]) -> Vec<LevelSample> {
    let level = |(step, tps): (u32, &Vec<f64>)| LevelSample {
        mpl: Mpl::at_least_one(100 * step),
        tps: tps.clone(),
        variance_within: 0.0,
    };
    (1..).zip(tps).map(level).collect()
}

fn of(tps: &[Vec<f64>]) -> Posterior {
    Posterior::new(Rule::Equation1, &levels(tps)).expect("levels")
}

fn probabilities(posterior: &Posterior) -> Vec<f64> {
    posterior.outcomes.iter().map(|one| one.probability).collect()
}

/// A curve that rises, holds and falls at random, and executions of it with noise.
fn random_curve(random: &mut SplitMix64, count: usize, noise: f64) -> Vec<Vec<f64>> {
    let levels = 2 + random.next_below(11);
    let mut log = random.next_between(0.0, 9.0);
    let level = |_| {
        log += random.next_between(-0.4, 0.4);
        (0..count).map(|_| libm::exp(log + noise * random.next_normal())).collect()
    };
    (0..levels).map(level).collect()
}

#[test]
fn probabilities_are_of_all_outcomes_and_add_up() {
    let mut random = SplitMix64::new(1);
    for round in 0..12 {
        let curve = random_curve(&mut random, 1 + round % 3, 0.1);
        let rule = RULES[round % 2];
        let posterior = Posterior::new(rule, &levels(&curve)).expect("levels");
        assert_eq!(posterior.outcomes.len(), curve.len());
        let sum =
            |of: fn(&OutcomeProbability) -> f64| -> f64 { posterior.outcomes.iter().map(of).sum() };
        assert!((sum(|one| one.probability) - 1.0).abs() < 1e-9, "round {round}");
        assert!((sum(|one| one.prior) - 1.0).abs() < 1e-9, "round {round}");
        assert!(posterior.outcomes.iter().all(|one| one.prior > 0.0));
        let last = posterior.outcomes.last().expect("none");
        assert!(matches!(last.point, ThrashingPoint::Infinite { .. }));
        assert!((posterior.none() - last.probability).abs() < 1e-12);
        assert_eq!(posterior.is_noise_measured, round % 3 > 0);
        let set = posterior.credible_set(0.9);
        let held: f64 = set.iter().map(|one| one.probability).sum();
        let smallest = set.iter().map(|one| one.probability).fold(1.0, f64::min);
        assert!(held >= 0.9 - 1e-9 && held - smallest < 0.9, "round {round}: {set:?}");
        assert!(set.contains(&posterior.most_probable()));
    }
}

#[test]
fn without_noise_it_is_the_studys_rule() {
    let mut random = SplitMix64::new(2);
    let mut seen = [0; 2];
    while seen.iter().sum::<usize>() < 30 {
        let curve = random_curve(&mut random, 1, 0.0);
        let rule = RULES[seen.iter().sum::<usize>() % 2];
        let means: Vec<f64> = curve.iter().map(|executions| executions[0]).collect();
        if is_near_call(rule, &means) {
            continue;
        }
        let thrice: Vec<Vec<f64>> = means.iter().map(|&tps| vec![tps; 3]).collect();
        let measured = levels(&thrice);
        let found = Posterior::new(rule, &measured).expect("levels").most_probable();
        let points = measured.iter().zip(&means).map(|(level, &tps)| (level.mpl, Some(tps)));
        let expected = rule.thrashing_point(&ThroughputCurve::new(points).expect("levels"));
        assert_eq!(found.point, expected, "{means:?}");
        assert!(found.probability > 0.95, "{means:?}: {found:?}");
        seen[usize::from(expected.mpl().is_some())] += 1;
    }
    assert!(seen.iter().all(|&count| count >= 5), "both outcomes are tried: {seen:?}");
}

/// Whether a ratio is within 4 % of the threshold, or two levels within 4 % of each other: within
/// three cells of the grid anything may be.
fn is_near_call(rule: Rule, tps: &[f64]) -> bool {
    let is_near = |ratio: f64| (0.96..1.04).contains(&ratio);
    let neighbours = tps.windows(2).any(|pair| is_near(pair[0] / pair[1] / rule.threshold()));
    let equals =
        (0..tps.len()).any(|one| tps[..one].iter().any(|&tps_2| is_near(tps[one] / tps_2)));
    neighbours || equals
}

#[test]
fn repetitions_of_the_same_sharpen_it() {
    let truth = [70.0, 90.0, 100.0, 98.0, 72.0, 70.0];
    let flat = [98.0, 103.0, 97.0, 100.0, 88.0, 99.0];
    for (curve, place) in [(truth, 3), (flat, 5)] {
        let mut before = 0.0;
        for pairs in [1, 3, 9] {
            let executions: Vec<Vec<f64>> =
                curve.iter().map(|tps| [0.92 * tps, 1.08 * tps].repeat(pairs)).collect();
            let now = of(&executions).outcomes[place].probability;
            assert!(now > before, "{pairs} pairs of executions: {now} after {before}");
            before = now;
        }
        assert!(before > 0.9, "{curve:?}: {before}");
    }
}

#[test]
fn the_unit_and_the_order_change_nothing() {
    let mut random = SplitMix64::new(3);
    for _ in 0..6 {
        let curve = random_curve(&mut random, 3, 0.1);
        let expected = probabilities(&of(&curve));
        let mut shuffled = levels(&curve);
        shuffle(&mut shuffled, &mut random);
        for level in &mut shuffled {
            shuffle(&mut level.tps, &mut random);
        }
        let found = Posterior::new(Rule::Equation1, &shuffled).expect("levels");
        assert_eq!(probabilities(&found), expected);
        let scaled = |factor: f64| -> Vec<Vec<f64>> {
            let level = |tps: &Vec<f64>| tps.iter().map(|tps| factor * tps).collect();
            curve.iter().map(level).collect()
        };
        // A power of two changes no digit, another factor the last one.
        assert_eq!(probabilities(&of(&scaled(1024.0))), expected);
        for (one, other) in probabilities(&of(&scaled(0.037))).iter().zip(&expected) {
            assert!((one - other).abs() < 0.02, "{one} for {other}");
        }
    }
}

/// Curves drawn from the prior, each weighted by its likelihood, without grid and filter.
fn simulated(rule: Rule, measured: &[LevelSample], draws: u32) -> Vec<f64> {
    let mut random = SplitMix64::new(4);
    let steps = Steps::new(measured.len());
    let means = measured.iter().map(|one| one.tps.iter().sum::<f64>() / one.tps.len() as f64);
    let top = means.fold(0.0, f64::max);
    let logs: Vec<Vec<f64>> = measured
        .iter()
        .map(|one| one.tps.iter().map(|tps| libm::log(tps / top)).collect())
        .collect();
    let all = || logs.iter().flatten().copied();
    let low = all().fold(f64::INFINITY, f64::min) - 0.25;
    let high = all().fold(f64::NEG_INFINITY, f64::max) + 0.25;
    let mut weights = vec![0.0; measured.len()];
    for _ in 0..draws {
        // Normal about ln 0.05, from 0.005 to 0.5.
        let noise = 0.05 * libm::exp(0.8 * random.next_normal());
        let mut at = random.next_between(low, high);
        let mut path = vec![at];
        for step in steps.draw(measured.len() - 1, &mut random) {
            at += step;
            path.push(at);
        }
        let is_inside = |at: &f64| (low..=high).contains(at);
        if !(0.005..=0.5).contains(&noise) || !path.iter().all(is_inside) {
            continue;
        }
        let mut weight = 1.0;
        for ((at, logs), level) in path.iter().zip(&logs).zip(measured) {
            let scale2 = noise * noise + level.variance_within;
            for log in logs {
                let away2 = (log - at).powi(2) / (5.0 * scale2);
                weight *= (1.0 + away2).powi(-3) / scale2.sqrt();
            }
        }
        let tps: Vec<f64> = path.iter().map(|at| libm::exp(*at)).collect();
        weights[outcome(rule, &tps)] += weight;
    }
    let all: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / all).collect()
}

#[test]
fn it_is_what_simulation_finds() {
    let cases: [(&[&[f64]], f64); 5] = [
        (&[&[100.0], &[80.0]], 0.0),
        (&[&[100.0, 90.0], &[80.0, 84.0], &[90.0, 70.0]], 0.0),
        (&[&[90.0], &[120.0], &[80.0], &[95.0]], 0.0),
        (&[&[100.0, 104.0], &[101.0, 97.0], &[78.0, 84.0]], 0.0),
        (&[&[100.0, 104.0], &[101.0, 97.0], &[78.0, 84.0]], 0.01),
    ];
    for (place, (tps, within)) in cases.into_iter().enumerate() {
        let tps: Vec<Vec<f64>> = tps.iter().map(|level| level.to_vec()).collect();
        let mut measured = levels(&tps);
        for level in &mut measured {
            level.variance_within = within;
        }
        let rule = RULES[place % 2];
        let found = probabilities(&Posterior::new(rule, &measured).expect("levels"));
        let expected = simulated(rule, &measured, 600_000);
        for (one, other) in found.iter().zip(&expected) {
            // Three standard errors of the simulation.
            assert!((one - other).abs() < 0.05, "case {place}: {found:?} for {expected:?}");
        }
    }
}

/// Noise within executions that is known leaves more in doubt than none.
#[test]
fn noise_within_executions_widens_it() {
    let tps = [[100.0, 101.0], [99.0, 100.0], [75.0, 76.0], [74.0, 75.0]].map(Vec::from);
    let mut measured = levels(&tps);
    let exact = of(&tps).outcomes[1].probability;
    for level in &mut measured {
        level.variance_within = 0.02;
    }
    let wide = Posterior::new(Rule::Equation1, &measured).expect("levels");
    assert!(exact > 0.95 && wide.outcomes[1].probability < exact - 0.1, "{exact}, {wide:?}");
}

/// On flat curves with noise, Eq. (1) reports thrashing far more often than the posterior does.
#[test]
fn a_flat_curve_seldom_thrashes() {
    let mut random = SplitMix64::new(6);
    let [mut by_rule, mut by_posterior] = [0; 2];
    for _ in 0..30 {
        let curve: Vec<Vec<f64>> =
            (0..10).map(|_| vec![100.0 * libm::exp(0.15 * random.next_normal())]).collect();
        let means: Vec<f64> = curve.iter().map(|executions| executions[0]).collect();
        by_rule += u32::from(Rule::Equation1.lasting_fall(&means).is_some());
        by_posterior += u32::from(of(&curve).none() < 0.5);
    }
    assert!(by_rule >= 10 && 3 * by_posterior <= by_rule, "{by_posterior} and {by_rule} of 30");
}

#[test]
fn curves_at_the_edge_of_sense_have_a_posterior() {
    let single = of(&[vec![5.0]]);
    assert_eq!((single.outcomes.len(), single.none()), (1, 1.0));
    assert!(of(&[vec![0.0], vec![0.0], vec![0.0]]).none() > 0.9);
    let collapse = of(&[vec![100.0; 3], vec![101.0; 3], vec![0.0; 3]]);
    assert!(collapse.outcomes[1].probability > 0.95, "{collapse:?}");
    let steep = of(&[vec![1e-6; 2], vec![1e6; 2], vec![1e6; 2]]);
    assert!(steep.none() > 0.95, "{steep:?}");
    let many = of(&[vec![100.0; 60], vec![50.0; 60]]);
    assert!(many.outcomes[0].probability > 0.99, "{many:?}");
    assert_eq!(Posterior::new(Rule::Equation1, &[]), None);
}
