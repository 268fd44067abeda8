//! Check 8: an execution whose transactions took abnormally long, or abnormally short.
//!
//! # Mechanism
//! The executions of one batch are repetitions of the same thing, so each is compared with its
//! batch and with nothing else: from batch to batch ATPT may and does jump, which is what is being
//! studied. Times differ by factors, so all is done in logarithms. For a batch of at least
//! [`EXECUTIONS_MIN`] executions that completed something:
//!
//! * the centre is the median of ln(ATPT), and a deviation the distance from it;
//! * the spread is the largest of three: the median deviation in this batch; that of all such
//!   batches of the batchset instance together; and [`SPREAD_MIN`]. The first two are multiplied by
//!   1.4826, which makes them estimates of a standard deviation (median absolute deviation, MAD);
//! * an execution deviates abnormally when it does by more than [`THRESHOLD`] spreads.
//!
//! Three executions alone say little about their spread: two may be alike by chance. So they borrow
//! from the other batches of their batchset. A batch that is truly restless, as batches near
//! thrashing are, keeps its own.
//!
//! In the spread of all batches together each batch of an odd number leaves out the one deviation
//! that is 0 by construction, that of its median, and of two middle values the lower is the median.
//!
//! # Example
//! A batch took 1.00, 1.02 and 3.00 s. The centre is ln 1.02; the deviations are 0.020, 0 and
//! 1.079; their median 0.020 makes a spread of 0.029. The other batches are as calm, so the spread
//! is the least, 0.05, and more than 3.5·0.05 = 0.175 is abnormal: outside 0.86 to 1.22 s. The
//! third is.
//!
//! # Where this leaves the study
//! The study says "abnormally high or low" and no more. The threshold 3.5 is that of Iglewicz and
//! Hoaglin (1993) for deviations in units of a MAD. The least spread keeps a quiet machine from
//! finding fault with differences that matter to nobody: within 16 % of the median below, and 19 %
//! above, nothing is ever abnormal.
//!
//! # Limits
//! * With fewer executions in a batch one cannot tell which of two is wrong: they are not judged,
//!   and the report counts them.
//! * Of three executions one abnormal is found, of five two. When most are off, the median is.
//!   Hence the check never drops all executions of a batch.
//! * It is blind to a whole batch that is off.
//! * ATPT is of the transactions that ended in the measured time. Those that did not are the slow
//!   ones: with a CTL near the time that a transaction takes, ATPT is far too short, in all
//!   executions of the batch alike. In a closed loop clients over throughput is the mean of all
//!   (Little's law); `tidegate lab show` gives both where it matters.
//! * Some executions are abnormal by chance. Of lognormal times with a standard deviation of 0.1 or
//!   more it is one in 180 with three executions a batch, and one in 600 with five; with less it is
//!   fewer, and with 0.03 practically none.

use super::check::{Check, CheckPlace, Violation};
use super::data::BatchExecution;
use super::index::{BatchRows, BatchsetRows, RowIndex};

/// Spreads that an execution may deviate from the centre of its batch.
pub const THRESHOLD: f64 = 3.5;

/// The least spread, in natural logarithms: about 5 %.
pub const SPREAD_MIN: f64 = 0.05;

/// Executions that a batch must have to be judged.
pub const EXECUTIONS_MIN: usize = 3;

/// The standard deviation of a normal distribution over its median absolute deviation.
const NORMAL: f64 = 1.482_6;

/// A batch as this check sees it.
struct TimedBatch<'a> {
    executions: Vec<(&'a BatchExecution, f64)>,
    /// The median of the logarithms.
    centre: f64,
    /// The distances from the centre, ascending.
    deviations: Vec<f64>,
}

/// Check 8.
pub(super) fn abnormal_atpt(index: &RowIndex<'_>) -> Vec<Violation> {
    index.batchsets.values().flat_map(in_batchset).collect()
}

/// How many executions with completed transactions are in batches too small to be judged.
pub(super) fn unjudged(index: &RowIndex<'_>) -> usize {
    let batches = index.batchsets.values().flat_map(|batchset| batchset.batches.values());
    let timed = batches.map(|batch| timed(batch).count());
    timed.filter(|&count| count < EXECUTIONS_MIN).sum()
}

fn in_batchset(batchset: &BatchsetRows<'_>) -> Vec<Violation> {
    let samples: Vec<TimedBatch<'_>> =
        batchset.batches.values().filter_map(TimedBatch::new).collect();
    if samples.is_empty() {
        return Vec::new();
    }
    let mut together: Vec<f64> = samples.iter().flat_map(TimedBatch::free_deviations).collect();
    together.sort_by(f64::total_cmp);
    let common = lower_median(&together);
    samples.iter().flat_map(|sample| sample.violations(common)).collect()
}

/// The executions that have an ATPT.
fn timed<'a>(batch: &BatchRows<'a>) -> impl Iterator<Item = (&'a BatchExecution, f64)> {
    batch.values().filter_map(|&execution| Some((execution, libm::log(execution.atpt_s?))))
}

impl<'a> TimedBatch<'a> {
    fn new(batch: &BatchRows<'a>) -> Option<TimedBatch<'a>> {
        let executions: Vec<(&BatchExecution, f64)> = timed(batch).collect();
        if executions.len() < EXECUTIONS_MIN {
            return None;
        }
        let centre = median(executions.iter().map(|&(_, log)| log).collect());
        let mut deviations: Vec<f64> =
            executions.iter().map(|(_, log)| (log - centre).abs()).collect();
        deviations.sort_by(f64::total_cmp);
        Some(TimedBatch { executions, centre, deviations })
    }

    /// The deviations that could have been anything.
    fn free_deviations(&self) -> impl Iterator<Item = f64> {
        self.deviations.iter().copied().skip(self.deviations.len() % 2)
    }

    fn violations(&self, common: f64) -> Vec<Violation> {
        let own = median(self.deviations.clone());
        let spread = SPREAD_MIN.max(NORMAL * common).max(NORMAL * own);
        let reach = THRESHOLD * spread;
        let abnormal = self.executions.iter().filter(|(_, log)| (log - self.centre).abs() > reach);
        let violation = |&(execution, log): &(&BatchExecution, f64)| Violation {
            check: Check::AbnormalAtpt,
            place: CheckPlace::Execution(execution.key),
            observed: format!("ATPT is {:.6} s", libm::exp(log)),
            expected: format!(
                "{:.6} to {:.6} s",
                libm::exp(self.centre - reach),
                libm::exp(self.centre + reach)
            ),
        };
        abnormal.map(violation).collect()
    }
}

/// The middle value of some, or the mean of the two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let upper = values[values.len() / 2];
    if values.len() % 2 == 1 { upper } else { f64::midpoint(lower_median(&values), upper) }
}

/// The middle value of some ascending ones, or the lower of the two.
fn lower_median(ascending: &[f64]) -> f64 {
    ascending[(ascending.len() - 1) / 2]
}

#[cfg(test)]
mod tests {
    use tidegate_control::SplitMix64;

    use super::super::data::DataSet;
    use super::super::testing::{key, small};
    use super::*;

    /// The mean times of batches, in seconds.
    type Times<'a> = &'a [&'a [f64]];

    /// Executions as (MPL, iteration).
    type Found<'a> = &'a [(u32, u32)];

    /// The executions called abnormal in a batchset with these mean times at MPL 100, 200, ….
    fn abnormal(times_s: Times<'_>) -> Vec<(u32, u32)> {
        let mut data = small(1);
        data.runs[0].plan.executions = 9;
        let model = data.executions[0].clone();
        data.executions.clear();
        for (step, batch) in (1..).zip(times_s) {
            for (iteration, &atpt_s) in (1..).zip(*batch) {
                let key = key(1, 1, 100 * step, iteration);
                let atpt_s = Some(atpt_s);
                data.executions.push(BatchExecution { key, atpt_s, ..model.clone() });
            }
        }
        places(&data)
    }

    fn places(data: &DataSet) -> Vec<(u32, u32)> {
        let index = RowIndex::new(data).expect("sound rows");
        let place = |violation: Violation| match violation.place {
            CheckPlace::Execution(key) => (key.mpl.get(), key.iteration),
            other => panic!("{other} is no execution"),
        };
        abnormal_atpt(&index).into_iter().map(place).collect()
    }

    #[test]
    fn batches_worked_by_hand() {
        let calm: &[f64] = &[1.0, 1.01, 0.99];
        let table: &[(Times<'_>, Found<'_>, &str)] = &[
            (&[&[1.0, 1.02, 3.0], calm], &[(100, 3)], "the head's example"),
            (&[&[1.0, 1.02, 0.3], calm], &[(100, 3)], "too short"),
            // The median is 1.0, the reach 19.1 % up and 16.1 % down.
            (&[&[1.0, 1.0, 1.19], calm], &[], "just inside, above"),
            (&[&[1.0, 1.0, 1.20], calm], &[(100, 3)], "just outside, above"),
            (&[&[1.0, 1.0, 0.85], calm], &[], "just inside, below"),
            (&[&[1.0, 1.0, 0.83], calm], &[(100, 3)], "just outside, below"),
            (&[&[1.0, 1.0, 1.0, 3.0, 0.3], calm], &[(100, 4), (100, 5)], "two of five"),
            (&[&[1.0, 9.0]], &[], "two are too few"),
            (&[&[1.0, 9.0], &[1.0, 1.0, 9.0]], &[(200, 3)], "two are too few beside three"),
            (&[&[1.0, 1.0, 1.0], &[50.0, 50.0, 50.0]], &[], "batches differ"),
            (&[&[1.0, 1.5, 2.2], calm, calm, calm], &[], "a restless batch is its own measure"),
            // Deviations 0.26 and more in each batch: the spread is at least 0.39, the reach 1.36.
            (&[&[1.0, 1.3, 1.0 / 1.3], &[1.0, 1.31, 0.76], &[1.0, 1.0, 3.5]], &[], "all restless"),
            (&[&[1.0, 1.3, 1.0 / 1.3], &[1.0, 1.31, 0.76], &[1.0, 1.0, 4.5]], &[(300, 3)], "more"),
        ];
        for (times_s, expected, case) in table {
            assert_eq!(abnormal(times_s), *expected, "{case}");
        }
    }

    #[test]
    fn a_restless_batchset_reaches_further() {
        let alone: &[&[f64]] = &[&[1.0, 1.0, 1.5]];
        assert_eq!(abnormal(alone), [(100, 3)]);
        let restless: &[f64] = &[1.0, 1.2, 0.8];
        assert_eq!(abnormal(&[alone[0], restless, restless]), []);
    }

    #[test]
    fn executions_in_small_batches_are_counted_as_not_judged() {
        let mut data = small(1);
        let two = key(1, 1, 200, 3);
        data.executions.retain(|row| row.key != two);
        for execution in &mut data.executions {
            if execution.key.in_batch() == key(1, 1, 300, 1).in_batch() {
                (execution.transactions, execution.atpt_s) = (0, None);
            }
        }
        // Two of MPL 200 are left; those of MPL 300 have no ATPT to judge.
        assert_eq!(unjudged(&RowIndex::new(&data).expect("sound rows")), 2);
    }

    /// Lognormal times: a sum of twelve uniform draws is nearly normal. With a standard deviation
    /// of 2 % the least spread rules and nothing is abnormal; with 20 %, the head tells how many.
    #[test]
    fn few_lognormal_times_are_abnormal_by_chance() {
        let mut generator = SplitMix64::new(8);
        let mut share = |sigma: f64, executions: usize| {
            let mut draw = || {
                let sum: f64 = (0..12).map(|_| generator.next_draw().value()).sum();
                libm::exp(sigma * (sum - 6.0))
            };
            let mut found = 0;
            for _ in 0..400 {
                let times_s: Vec<Vec<f64>> =
                    (0..10).map(|_| (0..executions).map(|_| draw()).collect()).collect();
                let times_s: Vec<&[f64]> = times_s.iter().map(Vec::as_slice).collect();
                found += abnormal(&times_s).len();
            }
            f64::from(u32::try_from(found).expect("few")) / (4_000.0 * executions as f64)
        };
        for (executions, expected) in [(3, 1.0 / 180.0), (5, 1.0 / 600.0)] {
            assert!(share(0.02, executions) < 1e-9, "quiet, {executions} executions");
            let restless = share(0.2, executions) / expected;
            assert!((0.6..1.6).contains(&restless), "{restless} of {executions}");
        }
    }
}
