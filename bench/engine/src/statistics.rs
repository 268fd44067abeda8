//! Medians and spreads, and how they are written.

/// The middle and the ends of a few numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    /// The lowest.
    pub(crate) low: f64,
    /// The median: of an even count, the mean of the two in the middle.
    pub(crate) median: f64,
    /// The highest.
    pub(crate) high: f64,
}

impl Summary {
    /// That of `numbers`; `None` of none.
    pub(crate) fn of(numbers: &[f64]) -> Option<Summary> {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&low, &high) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let below = if sorted.len().is_multiple_of(2) { middle - 1 } else { middle };
        Some(Summary { low, median: f64::midpoint(sorted[below], sorted[middle]), high })
    }

    /// The median, and the ends if they differ from it, each written by `write`.
    pub(crate) fn write(&self, write: impl Fn(f64) -> String) -> String {
        let (low, median, high) = (write(self.low), write(self.median), write(self.high));
        if low == high { median } else { format!("{median} [{low}–{high}]") }
    }
}

/// A whole number with a comma between every three digits; below 10, two digits of its fraction.
pub(crate) fn count(number: f64) -> String {
    if number < 9.995 {
        return format!("{number:.2}");
    }
    let digits = format!("{number:.0}");
    let mut written = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            written.push(',');
        }
        written.push(digit);
    }
    written
}

/// A number with two digits of its fraction.
pub(crate) fn ratio(number: f64) -> String {
    format!("{number:.2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_of_the_sorted_numbers() {
        let summary = Summary { low: 1.0, median: 2.0, high: 9.0 };
        assert_eq!(Summary::of(&[9.0, 1.0, 2.0]), Some(summary));
        let summary = Summary { low: 1.0, median: 3.0, high: 9.0 };
        assert_eq!(Summary::of(&[9.0, 1.0, 2.0, 4.0]), Some(summary));
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn numbers_are_written_with_commas() {
        for (number, written) in [
            (1.0, "1.00"),
            (12.4, "12"),
            (999.0, "999"),
            (1_000.0, "1,000"),
            (1_234_567.8, "1,234,568"),
        ] {
            assert_eq!(count(number), written);
        }
    }
}
