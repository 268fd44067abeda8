//! How exactly an execution tells its own mean: batch means over its intervals.

/// Fewer intervals than this say nothing.
const INTERVALS_MIN: usize = 8;

/// Returns the variance of an execution's mean throughput over the square of the mean, by
/// non-overlapping batch means (Law and Kelton, *Simulation Modeling and Analysis*, Section 9.5.3):
/// `n` intervals make `√n` batches, and means of batches that are longer than the autocorrelation
/// lasts are nearly independent.
///
/// `intervals` are the end of each in seconds and the transactions that ended in it, in their
/// order. One that is shorter than half of the longest, as the last may be, is left out.
///
/// Returns `None` if fewer than 8 intervals remain, or if no transaction ended.
pub fn variance_of_mean(intervals: &[(f64, u64)]) -> Option<f64> {
    let starts = [0.0].into_iter().chain(intervals.iter().map(|&(until_s, _)| until_s));
    let lengths: Vec<f64> =
        intervals.iter().zip(starts).map(|(&(until_s, _), start_s)| until_s - start_s).collect();
    let longest = lengths.iter().copied().fold(0.0, f64::max);
    let rates: Vec<f64> = lengths
        .iter()
        .zip(intervals)
        .filter(|&(&length, _)| length > 0.0 && length >= longest / 2.0)
        .map(|(&length, &(_, transactions))| transactions as f64 / length)
        .collect();
    if rates.len() < INTERVALS_MIN {
        return None;
    }
    let batches = rates.len().isqrt();
    let size = rates.len() / batches;
    // What does not fill a batch is left out at the start, where a warm-up may still show.
    let means: Vec<f64> = rates[rates.len() - batches * size..].chunks(size).map(mean_of).collect();
    let mean = mean_of(&means);
    let spread: f64 = means.iter().map(|one| (one - mean).powi(2)).sum();
    let of_mean = spread / ((batches - 1) * batches) as f64;
    (mean > 0.0).then(|| of_mean / mean.powi(2))
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::SplitMix64;

    /// So many intervals of a second, by first-order autoregression about 1,000 transactions with a
    /// standard deviation of 100, and the variance of the mean of so many, by its formula.
    fn autoregressive(count: u32, correlation: f64, random: &mut SplitMix64) -> Vec<(f64, u64)> {
        let mut state = random.next_normal();
        let fresh = (1.0 - correlation * correlation).sqrt();
        let next = |second: u32| {
            state = correlation * state + fresh * random.next_normal();
            (f64::from(second), whole(1_000.0 + 100.0 * state))
        };
        (1..=count).map(next).collect()
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some hundreds")]
    fn whole(number: f64) -> u64 {
        number.round().max(0.0) as u64
    }

    #[test]
    fn worked_by_hand() {
        // 8 intervals: 2 batches of 4, means 2 and 4; (1 + 1) / (1·2) = 1, over 3².
        let counts = [1, 3, 2, 2, 4, 4, 5, 3];
        let intervals: Vec<(f64, u64)> =
            (1_u32..).zip(counts).map(|(second, count)| (f64::from(second), count)).collect();
        let found = variance_of_mean(&intervals).expect("enough intervals");
        assert!((found - 1.0 / 9.0).abs() < 1e-12, "{found}");
        assert_eq!(variance_of_mean(&intervals[..7]), None);
        assert_eq!(variance_of_mean(&[(1.0, 0); 9]), None);
        // A short last interval says nothing of the rate.
        let with_rest: Vec<(f64, u64)> = intervals.iter().copied().chain([(8.1, 40)]).collect();
        assert_eq!(variance_of_mean(&with_rest), Some(found));
    }

    /// 900 intervals with correlation 0.8: the variance of their mean is 9 times that of
    /// independent ones, (1 + 0.8) / (1 − 0.8), and batches of 30 see nearly all of it.
    #[test]
    fn autocorrelation_is_seen() {
        for (correlation, factor) in [(0.0, 1.0), (0.8, 9.0)] {
            let mut random = SplitMix64::new(5);
            let found: Vec<f64> = (0..200)
                .map(|_| variance_of_mean(&autoregressive(900, correlation, &mut random)))
                .map(|found| found.expect("enough intervals"))
                .collect();
            let expected = factor * 0.01 / 900.0;
            let ratio = mean_of(&found) / expected;
            assert!((0.75..1.1).contains(&ratio), "correlation {correlation}: {ratio}");
        }
    }
}
