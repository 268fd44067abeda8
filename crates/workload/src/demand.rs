//! Service demand: its mean and how much it varies.
//!
//! # Mechanism
//! Times that transactions take when they run alone, at MPL 1, are a sample of the service demand
//! of a workload. What decides how many must run at once for short ones not to wait behind long
//! ones is their squared coefficient of variation, C² = variance / mean²: 0 when all are alike, 1
//! for exponential times, more when few long ones make up most of the work (Schroeder et al., ICDE
//! 2006, section 3.2).
//!
//! The sums are kept about the running mean (B. P. Welford, "Note on a Method for Calculating
//! Corrected Sums of Squares and Products", Technometrics 4, 1962), so that nothing is stored and
//! nothing cancels.
//!
//! # Example
//! Nine transactions of 1 ms and one of 91 ms: mean 10 ms, variance 729 ms², with the ten as the
//! whole population; C² = 7.29. As a sample, the variance is 810 ms² and C² = 8.1.
//!
//! # Limits
//! One long transaction in a thousand decides C², so thousands of times are needed.

/// Mean and variation of times, or of anything that is not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Demand {
    count: u64,
    mean: f64,
    /// The sum of squared distances from the mean.
    squares: f64,
}

impl Demand {
    pub fn new() -> Self {
        Demand::default()
    }

    /// Takes a value into account. One that is no finite number is left out.
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.count += 1;
        let distance = value - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (value - self.mean);
    }

    /// Takes all values of another one into account.
    pub fn merge(&mut self, other: &Demand) {
        let count = self.count + other.count;
        if other.count == 0 {
            return;
        }
        let share = other.count as f64 / count as f64;
        let distance = other.mean - self.mean;
        self.mean += distance * share;
        self.squares += other.squares + distance * distance * self.count as f64 * share;
        self.count = count;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; `None` when there were none.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then_some(self.mean)
    }

    /// The variance of what they are a sample of; `None` with fewer than two.
    pub fn variance(&self) -> Option<f64> {
        (self.count > 1).then(|| self.squares / (self.count - 1) as f64)
    }

    /// C², the variance over the square of the mean; `None` with fewer than two values, or when
    /// their mean is not above 0.
    pub fn squared_coefficient_of_variation(&self) -> Option<f64> {
        self.variance()
            .filter(|_| self.mean > 0.0)
            .map(|variance| variance / (self.mean * self.mean))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    fn of(values: impl IntoIterator<Item = f64>) -> Demand {
        let mut demand = Demand::new();
        values.into_iter().for_each(|value| demand.add(value));
        demand
    }

    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() <= 1e-9 * expected.abs())
    }

    #[test]
    fn one_long_among_short_ones() {
        let demand = of([1.0, 1.0, 1.0, 91.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!(demand.count(), 10);
        assert!(near(demand.mean(), 10.0) && near(demand.variance(), 810.0), "{demand:?}");
        assert!(near(demand.squared_coefficient_of_variation(), 8.1));
    }

    #[test]
    fn too_few_values_have_no_variation() {
        assert_eq!(Demand::new().mean(), None);
        assert_eq!(of([5.0]).squared_coefficient_of_variation(), None);
        assert_eq!(of([0.0, 0.0]).squared_coefficient_of_variation(), None);
        assert_eq!(of([3.0, f64::NAN, f64::INFINITY]).count(), 1);
        assert_eq!(of([2.0; 5]).squared_coefficient_of_variation(), Some(0.0));
    }

    #[test]
    fn exponential_times_vary_by_one() {
        let mut draw = Random::new(17, 0);
        let mut uniform = || f64::from(draw.between(1, i32::MAX)) / f64::from(i32::MAX);
        let variation =
            of((0..100_000).map(|_| -libm::log(uniform()))).squared_coefficient_of_variation();
        // Its standard error is sqrt(8 / 100,000) = 0.009, by the moments of the distribution.
        assert!(variation.is_some_and(|found| (found - 1.0).abs() < 0.054), "{variation:?}");
    }

    #[test]
    fn parts_merge_to_the_whole_even_far_from_zero() {
        let values: Vec<f64> = (0..1_000).map(|number| 1e9 + f64::from(number % 7)).collect();
        let whole = of(values.iter().copied());
        for at in [0, 1, 499, 1_000] {
            let mut merged = of(values[..at].iter().copied());
            merged.merge(&of(values[at..].iter().copied()));
            assert_eq!(merged.count(), whole.count());
            let (found, expected) = (merged.variance().unwrap(), whole.variance().unwrap());
            assert!((found - expected).abs() < 1e-6, "{at}: {found} against {expected}");
        }
        // 0 to 6 in turn have a variance of 4.
        assert!((whole.variance().unwrap() - 4.0).abs() < 0.02);
    }
}
