//! The universal scalability law and its fit.
//!
//! # Mechanism
//! Gunther ("Guerrilla capacity planning", 2007): with N transactions inside, throughput is
//!
//! ```text
//! X(N) = λ·N / (1 + σ·(N − 1) + κ·N·(N − 1))
//! ```
//!
//! λ is what one does alone, σ is contention, the share of the work that only one can do at a time,
//! and κ is coherency, the work that each pair of transactions makes for each other. With κ = 0
//! throughput rises to λ/σ, with κ > 0 it has a top at √((1 − σ)/κ) and falls beyond.
//!
//! The time of a transaction inside, N/X, is linear in three numbers:
//!
//! ```text
//! N/X = a + b·(N − 1) + c·N·(N − 1)      λ = 1/a, σ = b/a, κ = c/a
//! ```
//!
//! so that weighted linear least squares fit it, three equations in closed form. The errors are
//! taken relative to N/X, since the noise of throughput is relative to throughput. None of the
//! three numbers may be negative: each subset of them is fitted with the others held at their
//! least, and of the fits without a negative number the best is taken. A level that is further off
//! than its weight explains is weighted down as Huber's function says, in a few rounds.
//!
//! # Example
//! 100 tps at 1, 649 at 10 and 631 at 100: N/X is 0.01, 0.0154 and 0.158. From the first, a = 0.01.
//! Then 9·b + 90·c = 0.0054 and 99·b + 9,900·c = 0.148, so b = 0.0005 and c = 0.00001. λ = 100,
//! σ = 0.05, κ = 0.001: the top is at √(0.95/0.001) = 31, with 904 tps.
//!
//! # Where this leaves the law
//! * **a has a least value**, half of N/X where throughput is best, with N = 1: one transaction
//!   alone does no more than twice the best seen. Otherwise a database that collapses faster than
//!   1/N would be fitted by a = 0, which promises any throughput at N = 1.
//! * **Ties go to the fewer numbers**, and to contention before coherency: one level is taken for a
//!   rise without end, two that rise less than in proportion for contention.

use nalgebra::{Matrix3, Vector3};

/// A throughput curve N ↦ X: a, b and c.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Law {
    coefficients: Vector3<f64>,
}

/// What was seen at one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LawPoint {
    pub(super) ln_level: f64,
    pub(super) ln_tps: f64,
    /// Inverse of the variance of ln X about the law.
    pub(super) weight: f64,
}

/// The subsets of the three numbers, in the order in which ties are broken.
const SUBSETS: [[bool; 3]; 8] = [
    [false, false, false],
    [true, false, false],
    [true, true, false],
    [false, true, false],
    [true, false, true],
    [false, false, true],
    [true, true, true],
    [false, true, true],
];

/// Rounds of weighting down.
const ROUNDS: u32 = 4;

/// Deviations at which weighting down begins: 95 % as good as least squares if nothing is wrong
/// (Huber, 1964).
const HUBER: f64 = 1.345;

/// Relative size of what makes three equations solvable that say too little.
const RIDGE: f64 = 1e-9;

impl Law {
    /// The law that fits `points` best; none if there are none, or not a number among them.
    pub(super) fn fit(points: &[LawPoint]) -> Option<Law> {
        let is_sound = |point: &LawPoint| {
            point.ln_level.is_finite() && point.ln_tps.is_finite() && point.weight.is_finite()
        };
        if points.is_empty() || !points.iter().all(is_sound) {
            return None;
        }
        let mut points = points.to_vec();
        let weights: Vec<f64> = points.iter().map(|point| point.weight).collect();
        let mut law = least_squares(&points)?;
        for _ in 1..ROUNDS {
            for (point, weight) in points.iter_mut().zip(&weights) {
                let off = (point.ln_tps - law.ln_tps(point.ln_level)).abs() * weight.sqrt();
                point.weight = if off > HUBER { weight * HUBER / off } else { *weight };
            }
            law = least_squares(&points)?;
        }
        Some(law)
    }

    /// ln X at a level whose logarithm is given.
    pub(super) fn ln_tps(&self, ln_level: f64) -> f64 {
        ln_level - libm::log(self.coefficients.dot(&row(ln_level)))
    }
}

/// What a, b and c are multiplied by.
fn row(ln_level: f64) -> Vector3<f64> {
    let level = libm::exp(ln_level);
    Vector3::new(1.0, level - 1.0, level * (level - 1.0))
}

fn least_squares(points: &[LawPoint]) -> Option<Law> {
    let top = libm::exp(points.iter().map(|point| point.ln_level).fold(0.0, f64::max));
    let best_tps =
        libm::exp(points.iter().map(|point| point.ln_tps).fold(f64::NEG_INFINITY, f64::max));
    // The numbers are fitted in units in which they are of one size.
    let units = Vector3::new(1.0, 1.0 / top, 1.0 / (top * top));
    let least = Vector3::new(0.5 / best_tps, 0.0, 0.0);
    let (mut normal, mut target) = (Matrix3::zeros(), Vector3::zeros());
    for point in points {
        let relative = row(point.ln_level) * libm::exp(point.ln_tps - point.ln_level);
        let x = relative.component_mul(&units);
        normal += x * x.transpose() * point.weight;
        target += x * ((1.0 - relative.dot(&least)) * point.weight);
    }
    let mut best: Option<(f64, Vector3<f64>)> = None;
    for subset in SUBSETS {
        let Some((gain, solution)) = solve(&normal, &target, subset) else { continue };
        if best.is_none_or(|(most, _)| gain > most + RIDGE * most) {
            best = Some((gain, solution));
        }
    }
    best.map(|(_, solution)| Law { coefficients: solution.component_mul(&units) + least })
}

/// The least squares with the numbers outside `subset` held at their least, and by how much they
/// lower the sum of squares; none if a number is negative.
fn solve(
    normal: &Matrix3<f64>,
    target: &Vector3<f64>,
    subset: [bool; 3],
) -> Option<(f64, Vector3<f64>)> {
    let (mut matrix, mut vector) = (*normal, *target);
    for (index, _) in subset.iter().enumerate().filter(|(_, used)| !**used) {
        matrix.fill_row(index, 0.0);
        matrix.fill_column(index, 0.0);
        matrix[(index, index)] = 1.0;
        vector[index] = 0.0;
    }
    matrix.set_diagonal(&(matrix.diagonal() * (1.0 + RIDGE)));
    let solution = matrix.cholesky()?.solve(&vector);
    let is_law = solution.iter().all(|number| number.is_finite() && *number >= 0.0);
    is_law.then(|| (solution.dot(&vector), solution))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(seen: &[(f64, f64)]) -> Vec<LawPoint> {
        let point = |&(level, tps): &(f64, f64)| LawPoint {
            ln_level: libm::log(level),
            ln_tps: libm::log(tps),
            weight: 100.0,
        };
        seen.iter().map(point).collect()
    }

    /// λ, σ and κ.
    fn numbers(seen: &[(f64, f64)]) -> [f64; 3] {
        let law = Law::fit(&points(seen)).expect("some points");
        let [a, b, c]: [f64; 3] = law.coefficients.into();
        [1.0 / a, b / a, c / a]
    }

    #[track_caller]
    fn assert_near(left: f64, right: f64) {
        assert!((left - right).abs() <= 1e-3 * right.abs() + 1e-7, "{left} is not {right}");
    }

    fn gunther(level: f64, lambda: f64, sigma: f64, kappa: f64) -> f64 {
        lambda * level / (1.0 + sigma * (level - 1.0) + kappa * level * (level - 1.0))
    }

    #[test]
    fn a_law_is_found_again() {
        for (lambda, sigma, kappa) in
            [(100.0, 0.05, 0.001), (1_000.0, 0.1, 0.0), (5.0, 0.0, 0.01), (20.0, 0.0, 0.0)]
        {
            let seen = [1.0, 3.0, 10.0, 30.0, 100.0]
                .map(|level| (level, gunther(level, lambda, sigma, kappa)));
            for (found, expected) in numbers(&seen).into_iter().zip([lambda, sigma, kappa]) {
                assert_near(found, expected);
            }
        }
    }

    /// The example of the module's head.
    #[test]
    fn three_levels_tell_the_law() {
        let law = Law::fit(&points(&[(1.0, 100.0), (10.0, 649.4), (100.0, 630.9)])).expect("three");
        assert_near(libm::exp(law.ln_tps(libm::log(31.0))), 904.0);
        assert!(law.ln_tps(libm::log(31.0)) > law.ln_tps(libm::log(25.0)));
        assert!(law.ln_tps(libm::log(31.0)) > law.ln_tps(libm::log(38.0)));
    }

    /// A straight rise after one level, contention after two, level where throughput is level: a
    /// transaction alone then does as much as any number, so b = a.
    #[test]
    fn few_levels_are_read_in_the_simplest_way() {
        assert_near(numbers(&[(4.0, 400.0)])[0], 100.0);
        let [lambda, sigma, kappa] = numbers(&[(1.0, 100.0), (10.0, 500.0)]);
        // 1 + 9·σ = 2.
        assert_near(lambda, 100.0);
        assert_near(sigma, 1.0 / 9.0);
        assert_near(kappa, 0.0);
        assert_near(numbers(&[(1.0, 100.0), (10.0, 100.0), (50.0, 100.0)])[1], 1.0);
    }

    /// Ten times as many and a hundredth of the throughput: steeper than any law, which may fall as
    /// 1/N at most. The fit is not exact, but falls, and promises no wonders at 1.
    #[test]
    fn a_collapse_steeper_than_the_law_is_fitted_as_well_as_can_be() {
        let law = Law::fit(&points(&[(100.0, 1_000.0), (1_000.0, 10.0)])).expect("two");
        let tps = |level: f64| libm::exp(law.ln_tps(libm::log(level)));
        assert!(tps(100.0) > 3.0 * tps(1_000.0), "{} {}", tps(100.0), tps(1_000.0));
        assert!(tps(1.0) < 2_000.1, "{}", tps(1.0));
    }

    /// One of ten levels gives half of what it should. Its error of 0.69 is 7 deviations of 0.1,
    /// and it is weighted down to 1.345/7, so the others are followed.
    #[test]
    fn one_odd_level_does_not_bend_the_law() {
        let tps = |level: f64| gunther(level, 100.0, 0.05, 0.001);
        let mut seen =
            [1.0, 2.0, 4.0, 8.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0].map(|n| (n, tps(n)));
        seen[6].1 /= 2.0;
        let law = Law::fit(&points(&seen)).expect("ten");
        let off = (law.ln_tps(libm::log(32.0)) - libm::log(tps(32.0))).abs();
        assert!(off < 0.06, "{off}");
    }

    #[test]
    fn what_is_not_a_number_gives_no_law() {
        assert_eq!(Law::fit(&[]), None);
        for seen in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::INFINITY, 1.0)] {
            assert_eq!(Law::fit(&points(&[seen])), None, "{seen:?}");
        }
    }
}
