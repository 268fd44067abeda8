//! The likelihood of every shape, computed once for all that is alike.
//!
//! Each of some 600 shapes has to be compared with each of up to 3,500 cohorts. Most of that is the
//! same again and again, so that a proxy need not compute it:
//!
//! * Cohorts that spent as long at the same populations have the same work under every shape. Where
//!   the limit rests, several hundred cohorts are of some dozens of kinds.
//! * Shapes that differ only on a side of the top where no population was seen are equal, and so is
//!   the work of a cohort under shapes that differ only on a side where it was not.
//!
//! The sums go over the cohorts one by one all the same, in their order: so the result is that of
//! the plain formula to the last bit, and no decision depends on what was found to be alike.

use std::collections::HashMap;

use super::{Cohort, CurveShape, PER_TOP, TransactionProgress, level, twin};

/// Parameters of the work's distribution.
const REGULARITIES: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// How much more completions vary than the model says.
const OVERDISPERSION: f64 = 1.5;

/// The logarithm of the likelihood of a shape with each regularity.
pub(super) type ShapeFits = [f64; REGULARITIES.len()];

/// Seconds that were spent at a population.
#[derive(Clone, Copy, Debug)]
struct PlacedTime {
    /// Its place among the populations.
    place: usize,
    seconds: f64,
    /// Before the epochs that are remembered.
    is_old: bool,
}

/// Cohorts that spent their time alike.
#[derive(Clone, Debug)]
struct CohortKind {
    spent: Vec<PlacedTime>,
    /// The place of the population that they were at last.
    last: usize,
    /// Whether some have ended: only then it matters how much work that took.
    has_ended: bool,
}

/// Equal for cohorts of one kind: populations, seconds by their bits, whether they are old, and the
/// last population.
type KindKey = (Vec<(u16, u64, bool)>, u16);

/// What a kind of cohorts contributes under a shape, for each transaction.
#[derive(Clone, Copy, Debug)]
struct KindTerms {
    powers: ShapeFits,
    ln_work: f64,
    ln_rate: f64,
}

/// Cohorts by the number of their transactions and their kind.
type CohortsByKind = Vec<(f64, usize)>;

/// What the cohorts say about shapes.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    /// The populations that were seen, rising.
    bins: Vec<u16>,
    kinds: Vec<CohortKind>,
    ended: CohortsByKind,
    inside: CohortsByKind,
    /// Transactions that have ended.
    number: f64,
}

impl Evidence {
    /// Sorts the cohorts by kind.
    pub(super) fn of(progress: &TransactionProgress) -> Evidence {
        let all = progress.inside.iter().chain(&progress.ended);
        let mut bins: Vec<u16> =
            all.flat_map(|cohort| cohort.spent.iter().map(|spent| spent.bin)).collect();
        bins.sort_unstable();
        bins.dedup();
        let mut evidence = Evidence {
            bins,
            kinds: Vec::new(),
            ended: Vec::with_capacity(progress.ended.len()),
            inside: Vec::with_capacity(progress.inside.len()),
            number: 0.0,
        };
        let mut known = HashMap::new();
        for cohort in &progress.ended {
            let kind = evidence.kind(&mut known, cohort);
            evidence.kinds[kind].has_ended = true;
            evidence.ended.push((cohort.count, kind));
            evidence.number += cohort.count;
        }
        for cohort in &progress.inside {
            let kind = evidence.kind(&mut known, cohort);
            evidence.inside.push((cohort.count, kind));
        }
        evidence
    }

    /// The kind of a cohort, which is new or `known`.
    fn kind(&mut self, known: &mut HashMap<KindKey, usize>, cohort: &Cohort) -> usize {
        let spent = cohort.spent.iter();
        let key = spent.map(|spent| (spent.bin, spent.seconds.to_bits(), spent.epoch == 0));
        *known.entry((key.collect(), cohort.last.1)).or_insert_with(|| {
            let spent = cohort.spent.iter().map(|spent| PlacedTime {
                place: self.place(spent.bin),
                seconds: spent.seconds,
                is_old: spent.epoch == 0,
            });
            let spent = spent.collect();
            let last = self.place(cohort.last.1);
            self.kinds.push(CohortKind { spent, last, has_ended: false });
            self.kinds.len() - 1
        })
    }

    /// The place of a population among those that were seen; of one that was not, which only a
    /// cohort that has spent no time yet is at, any.
    fn place(&self, bin: u16) -> usize {
        self.bins.binary_search(&bin).unwrap_or(0)
    }

    /// How likely each of `shapes` is, which are all shapes of one top after the other.
    pub(super) fn fits(&self, shapes: &[CurveShape], highest: f64) -> Vec<ShapeFits> {
        let levels: Vec<f64> = self.bins.iter().map(|&bin| level(bin).min(highest)).collect();
        let mut fits: Vec<ShapeFits> = Vec::with_capacity(shapes.len());
        for shapes in shapes.chunks(PER_TOP) {
            let first = fits.len();
            let distances: Vec<f64> =
                levels.iter().map(|&level| shapes[0].distance(level)).collect();
            let is_below = distances.iter().any(|&distance| distance < 0.0);
            let is_above = distances.iter().any(|&distance| distance >= 0.0);
            let sides: Vec<[bool; 2]> =
                self.kinds.iter().map(|kind| kind.sides(&distances)).collect();
            let mut all_terms: Vec<Vec<KindTerms>> = Vec::with_capacity(PER_TOP);
            for (index, shape) in shapes.iter().enumerate() {
                let equal = twin(index, is_below, is_above);
                if equal < index {
                    fits.push(fits[first + equal]);
                    all_terms.push(Vec::new());
                    continue;
                }
                let ln_rates: Vec<f64> = (levels.iter().zip(&distances))
                    .map(|(level, &distance)| shape.ln_share_at(distance) - libm::log(*level))
                    .collect();
                let rates: Vec<f64> = ln_rates.iter().map(|rate| libm::exp(*rate)).collect();
                let terms = self.kinds.iter().zip(&sides).enumerate();
                let terms = terms.map(|(number, (kind, &[is_below, is_above]))| {
                    let equal = twin(index, is_below, is_above);
                    // Where some cohort was on a side, the first shapes of that side are there.
                    let known = if equal < index { all_terms[equal].get(number) } else { None };
                    known.copied().unwrap_or_else(|| kind.terms(&rates, &ln_rates))
                });
                let terms: Vec<KindTerms> = terms.collect();
                fits.push(self.fit(&terms));
                all_terms.push(terms);
            }
        }
        fits
    }

    /// How likely a shape is under which the kinds of cohorts contribute these terms.
    fn fit(&self, terms: &[KindTerms]) -> ShapeFits {
        let (mut ln_work, mut ln_rate, mut powers) = (0.0, 0.0, ShapeFits::default());
        for &(count, kind) in &self.ended {
            let terms = &terms[kind];
            add(&mut powers, count, terms);
            ln_work += count * terms.ln_work;
            ln_rate += count * terms.ln_rate;
        }
        for &(count, kind) in &self.inside {
            add(&mut powers, count, &terms[kind]);
        }
        let (mut fits, number) = (ShapeFits::default(), self.number);
        if number > 0.0 {
            for ((fit, k), sum) in fits.iter_mut().zip(REGULARITIES).zip(powers) {
                let scale = number * libm::log(sum / number);
                *fit = number * libm::log(k) + (k - 1.0) * ln_work + ln_rate - scale;
                *fit /= OVERDISPERSION;
            }
        }
        fits
    }
}

fn add(powers: &mut ShapeFits, count: f64, terms: &KindTerms) {
    for (sum, power) in powers.iter_mut().zip(terms.powers) {
        *sum += count * power;
    }
}

impl CohortKind {
    /// Whether they were at populations below the top, and at others, by the distances of all.
    fn sides(&self, distances: &[f64]) -> [bool; 2] {
        let mut seen = self.spent.iter().map(|spent| distances[spent.place]);
        let is_below = seen.clone().any(|distance| distance < 0.0);
        [is_below, seen.any(|distance| distance >= 0.0)]
    }

    fn terms(&self, rates: &[f64], ln_rates: &[f64]) -> KindTerms {
        // Work received before the epochs that are remembered, and in all.
        let (mut before, mut all) = (0.0, 0.0);
        for spent in &self.spent {
            let work = spent.seconds * rates[spent.place];
            before = if spent.is_old { before + work } else { before };
            all += work;
        }
        let mut powers = raise(all);
        for (power, before) in powers.iter_mut().zip(raise(before)) {
            *power -= before;
        }
        let ln_rate = ln_rates.get(self.last).copied().unwrap_or(0.0);
        let ln_work = if self.has_ended { libm::log(all) } else { 0.0 };
        KindTerms { powers, ln_work, ln_rate }
    }
}

/// An amount of work to the power of each of [`REGULARITIES`].
fn raise(work: f64) -> [f64; REGULARITIES.len()] {
    let square = work * work;
    [work.sqrt(), work, square, square * square]
}

#[cfg(test)]
mod tests {
    use super::super::{shapes, tests::progress};
    use super::*;

    /// The formula of the head of [`progress`](super::super), shape by shape and cohort by cohort.
    fn plain_fit(progress: &TransactionProgress, shape: CurveShape, highest: f64) -> ShapeFits {
        let ln_rate_at = |bin: u16| {
            let level = level(bin).min(highest);
            shape.ln_share(level) - libm::log(level)
        };
        let work = |cohort: &Cohort| {
            cohort.spent.iter().fold((0.0, 0.0), |(before, all), spent| {
                let work = spent.seconds * libm::exp(ln_rate_at(spent.bin));
                (if spent.epoch == 0 { before + work } else { before }, all + work)
            })
        };
        let (mut number, mut ln_work, mut ln_rate) = (0.0, 0.0, 0.0);
        let mut powers = ShapeFits::default();
        let mut add = |count: f64, (before, all): (f64, f64)| {
            for ((sum, all), before) in powers.iter_mut().zip(raise(all)).zip(raise(before)) {
                *sum += count * (all - before);
            }
        };
        for cohort in &progress.ended {
            let work = work(cohort);
            add(cohort.count, work);
            number += cohort.count;
            ln_work += cohort.count * libm::log(work.1);
            ln_rate += cohort.count * ln_rate_at(cohort.last.1);
        }
        for cohort in &progress.inside {
            add(cohort.count, work(cohort));
        }
        let mut fits = ShapeFits::default();
        for ((fit, k), sum) in fits.iter_mut().zip(REGULARITIES).zip(powers) {
            let scale = number * libm::log(sum / number);
            *fit = number * libm::log(k) + (k - 1.0) * ln_work + ln_rate - scale;
            *fit /= OVERDISPERSION;
        }
        fits
    }

    /// Limits that move and limits that rest, within an epoch and over several, fast and slow
    /// transactions, tops below, among and above what was seen: not a bit differs.
    #[test]
    fn what_is_computed_once_is_the_plain_formula_to_the_last_bit() {
        let courses = [
            (vec![(12, 8)], 0.5, 20.0),
            (vec![(4, 10), (10, 10), (40, 20), (100, 20)], 0.5, 20.0),
            (vec![(120, 20), (3, 2), (120, 15)], 2.0, 60.0),
            (vec![(200, 30)], 5.0, 300.0),
        ];
        for (limits, alone_tps, knee) in courses {
            let progress = progress(&limits, alone_tps, knee);
            for highest in [7.0, 64.0, 300.0] {
                let shapes = shapes(highest);
                let fits = Evidence::of(&progress).fits(&shapes, highest);
                assert_eq!(fits.len(), shapes.len());
                for (shape, fits) in shapes.iter().zip(fits) {
                    let plain = plain_fit(&progress, *shape, highest);
                    assert_eq!(
                        fits.map(f64::to_bits),
                        plain.map(f64::to_bits),
                        "{shape:?}, {limits:?}"
                    );
                }
            }
        }
    }

    /// A limit that rests for 20 s leaves many cohorts of few kinds.
    #[test]
    fn cohorts_that_spent_their_time_alike_are_of_one_kind() {
        let evidence = Evidence::of(&progress(&[(120, 20)], 2.0, 60.0));
        let cohorts = evidence.ended.len() + evidence.inside.len();
        assert!(evidence.kinds.len() * 3 < cohorts, "{} of {cohorts}", evidence.kinds.len());
    }
}
