//! A belief over the shapes that throughput curves have, from the progress of every transaction.
//!
//! Where transactions take seconds, throughput is known only after many have ended, and a window
//! would have to last for several residence times. But each transaction tells more than that it
//! ended: how long it took, and at which populations; and those inside tell how long they have not
//! ended yet.
//!
//! # Mechanism
//! A shape rises like n^a up to p and falls like n^-b from there on. Under it a transaction
//! receives work at the rate X(n)/n while n are inside (processor sharing), so the work w that it
//! has received follows from the times it spent at each n. Work is Weibull-distributed with an
//! unknown scale and a parameter k: 1 is an exponential distribution, where only counts matter,
//! 4 is nearly constant. With ended transactions j and all transactions i, those inside included,
//!
//! ```text
//! ln L = Σj [ln k + (k - 1) ln wj + ln X(nj)/nj] - K ln(Σi wi^k / K),
//! ```
//!
//! the likelihood of a counting process with the scale profiled out (Andersen, Borgan, Gill and
//! Keiding, 1993, chapter VII). With k = 1 it is the Poisson likelihood of counts. Nothing has to
//! be washed out after a move: who was inside before it has spent its time there.
//!
//! # Limits
//! * A transaction that waits for another's lock receives nothing; to the belief it is slowed down
//!   like all others, which is right in the mean.
//! * Transactions are told apart by the tick that they began in and the times of those that ended.
//!   A client that was idle counts as a new one when it comes back.

mod evidence;

use std::collections::VecDeque;

use crate::{Observation, Timing};

use evidence::Evidence;

/// Shapes: tops from 1 up, a factor apart; exponents of the rise and of the fall.
const TOPS: i32 = 40;
const TOP_FACTOR: f64 = 1.2;
const RISES: [f64; 3] = [1.0, 0.7, 0.4];
const FALLS: [f64; 5] = [0.0, 0.15, 0.4, 1.0, 2.0];
const PER_TOP: usize = RISES.len() * FALLS.len();

/// What is remembered: so many completions, and at least so many seconds, in epochs. What is older
/// is forgotten by a whole epoch.
const MEMORY: f64 = 2_500.0;
const MEMORY_S: f64 = 20.0;
const EPOCHS: u32 = 5;

/// Cohorts that have ended and are kept.
const ENDED_MOST: usize = 3_500;

/// Populations are told apart to this, in ln N.
const BIN: f64 = 0.05;

#[derive(Clone, Copy, Debug)]
struct CurveShape {
    top: f64,
    rise: f64,
    fall: f64,
}

impl CurveShape {
    /// ln of throughput over that of the top.
    fn ln_share(self, level: f64) -> f64 {
        self.ln_share_at(self.distance(level))
    }

    /// How far a level is from the top, in ln N; below 0 on the side of the rise.
    fn distance(self, level: f64) -> f64 {
        libm::log(level / self.top)
    }

    fn ln_share_at(self, distance: f64) -> f64 {
        if distance < 0.0 { self.rise * distance } else { -self.fall * distance }
    }
}

/// Seconds that a cohort spent at a population, in an epoch.
#[derive(Clone, Copy, Debug)]
struct Spent {
    epoch: u32,
    bin: u16,
    seconds: f64,
}

/// Transactions that began at about the same time, where they spent theirs, and the last
/// population with its epoch.
#[derive(Clone, Debug)]
struct Cohort {
    count: f64,
    begun_s: f64,
    spent: Vec<Spent>,
    last: (u32, u16),
}

impl Cohort {
    fn spend(&mut self, epoch: u32, bin: u16, seconds: f64) {
        self.last = (epoch, bin);
        let same = |spent: &&mut Spent| spent.epoch == epoch && spent.bin == bin;
        match self.spent.iter_mut().find(same) {
            Some(spent) => spent.seconds += seconds,
            None => self.spent.push(Spent { epoch, bin, seconds }),
        }
    }

    /// What was spent before this epoch was spent in epoch 0.
    fn forget(&mut self, before: u32) {
        let (old, new): (Vec<Spent>, Vec<Spent>) =
            self.spent.iter().partition(|spent| spent.epoch < before);
        self.spent = new;
        for spent in old {
            let last = self.last;
            self.spend(0, spent.bin, spent.seconds);
            self.last = last;
        }
    }
}

fn bin(level: f64) -> u16 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000")]
    let bin = (libm::log(level.max(1.0)) / BIN).round().min(1_000.0) as u16;
    bin
}

fn level(bin: u16) -> f64 {
    libm::exp(f64::from(bin) * BIN)
}

/// The transactions inside, and those that ended.
#[derive(Clone, Debug, Default)]
pub(super) struct TransactionProgress {
    now_s: f64,
    inside: Vec<Cohort>,
    ended: VecDeque<Cohort>,
    /// The present epoch, from 1 up, and the completions and seconds in it.
    epoch: u32,
    epoch_completions: f64,
    epoch_s: f64,
}

impl TransactionProgress {
    /// Takes a tick. `residence_s` is the mean time in the database.
    pub(super) fn add(&mut self, seen: &Observation, residence_s: f64) {
        let seconds = seen.interval.as_secs_f64();
        self.now_s += seconds;
        let bin = bin(seen.running_mean);
        self.turn_epoch(seen.in_database.count as f64, seconds);
        for cohort in &mut self.inside {
            cohort.spend(self.epoch, bin, seconds);
        }
        let Timing { count, mean_s, variance_s2, .. } = seen.in_database;
        let count = count as f64;
        let apart_s = variance_s2.max(0.0).sqrt();
        for age_s in [mean_s - apart_s, mean_s + apart_s] {
            self.end(count / 2.0, self.now_s - seconds / 2.0 - age_s);
        }
        let known: f64 = self.inside.iter().map(|cohort| cohort.count).sum();
        let begun = f64::from(seen.running) - known;
        if begun >= 0.0 {
            self.begin(begun, residence_s / 40.0);
        } else {
            self.leave(-begun);
        }
    }

    fn turn_epoch(&mut self, completions: f64, seconds: f64) {
        self.epoch = self.epoch.max(1);
        self.epoch_completions += completions;
        self.epoch_s += seconds;
        let part = f64::from(EPOCHS);
        if self.epoch_completions < MEMORY / part || self.epoch_s < MEMORY_S / part {
            return;
        }
        self.epoch += 1;
        (self.epoch_completions, self.epoch_s) = (0.0, 0.0);
        let before = self.epoch.saturating_sub(EPOCHS);
        self.ended.retain(|cohort| cohort.last.0 >= before);
        for cohort in self.inside.iter_mut().chain(&mut self.ended) {
            cohort.forget(before);
        }
    }

    fn begin(&mut self, count: f64, apart_s: f64) {
        if count <= 0.0 {
            return;
        }
        match self.inside.last_mut() {
            Some(last) if self.now_s - last.begun_s < apart_s => last.count += count,
            _ => {
                let cohort = Cohort { count, begun_s: self.now_s, spent: Vec::new(), last: (0, 0) };
                self.inside.push(cohort);
            }
        }
    }

    /// So many that began at about `begun_s` have ended.
    fn end(&mut self, mut count: f64, begun_s: f64) {
        while count > 1e-9 {
            let off_s = |cohort: &Cohort| (cohort.begun_s - begun_s).abs();
            let nearest = (0..self.inside.len()).min_by(|&one, &other| {
                off_s(&self.inside[one]).total_cmp(&off_s(&self.inside[other]))
            });
            let Some(index) = nearest else {
                return;
            };
            let cohort = &mut self.inside[index];
            let ended = count.min(cohort.count);
            if !cohort.spent.is_empty() {
                self.ended.push_back(Cohort { count: ended, ..cohort.clone() });
            }
            count -= ended;
            cohort.count -= ended;
            if cohort.count <= 1e-9 {
                self.inside.remove(index);
            }
        }
        while self.ended.len() > ENDED_MOST {
            self.ended.pop_front();
        }
    }

    /// So many are gone without having ended: they do not count any more. The oldest.
    fn leave(&mut self, mut count: f64) {
        while count > 1e-9 && !self.inside.is_empty() {
            let left = count.min(self.inside[0].count);
            self.inside[0].count -= left;
            count -= left;
            if self.inside[0].count <= 1e-9 {
                self.inside.remove(0);
            }
        }
    }

    /// Transactions that have ended in the epochs that are remembered.
    pub(super) fn completions(&self) -> f64 {
        self.ended.iter().map(|cohort| cohort.count).sum()
    }

    /// What is believed of the shapes up to `highest`.
    pub(super) fn belief(&self, highest: u32) -> ShapeBelief {
        let highest = f64::from(highest);
        let shapes = shapes(highest);
        let fits = Evidence::of(self).fits(&shapes, highest);
        let best = fits.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut weights: Vec<f64> =
            fits.iter().map(|fits| fits.iter().map(|fit| libm::exp(fit - best)).sum()).collect();
        let sum: f64 = weights.iter().sum();
        for weight in &mut weights {
            *weight /= sum;
        }
        ShapeBelief { shapes, weights }
    }
}

/// Shapes with their posterior weights, which add up to 1.
pub(super) struct ShapeBelief {
    shapes: Vec<CurveShape>,
    weights: Vec<f64>,
}

impl ShapeBelief {
    /// The limit with the highest expected share of the best throughput from `lowest` to `highest`,
    /// less `price` for each factor of e, and that share; or, with `at` from 0 to 1, the best limit
    /// of a shape drawn from the belief.
    pub(super) fn best(
        &self,
        lowest: u32,
        highest: u32,
        price: f64,
        at: Option<f64>,
    ) -> (u32, f64) {
        let drawn = at.and_then(|at| self.draw(at));
        let mut best = (lowest, f64::NEG_INFINITY);
        for limit in levels(lowest, highest) {
            let share = match drawn {
                Some(shape) => libm::exp(shape.ln_share(f64::from(limit))),
                None => self.share(limit),
            };
            let worth = share - price * libm::log(f64::from(limit));
            if worth > best.1 {
                best = (limit, worth);
            }
        }
        (best.0, best.1 + price * libm::log(f64::from(best.0)))
    }

    /// The expected share of the best throughput at a limit.
    pub(super) fn share(&self, limit: u32) -> f64 {
        let level = f64::from(limit);
        let mut sum = 0.0;
        for (shapes, weights) in self.shapes.chunks(PER_TOP).zip(self.weights.chunks(PER_TOP)) {
            let distance = shapes[0].distance(level);
            let mut shares = [0.0; PER_TOP];
            for (index, shape) in shapes.iter().enumerate() {
                let twin = twin(index, distance < 0.0, distance >= 0.0);
                shares[index] = if twin < index {
                    shares[twin]
                } else {
                    libm::exp(shape.ln_share_at(distance))
                };
            }
            for (share, weight) in shares.iter().zip(weights) {
                sum += weight * share;
            }
        }
        sum
    }

    fn draw(&self, at: f64) -> Option<CurveShape> {
        let mut left = at;
        for (shape, weight) in self.shapes.iter().zip(&self.weights) {
            left -= weight;
            if left < 0.0 {
                return Some(*shape);
            }
        }
        self.shapes.last().copied()
    }
}

/// The shapes with tops up to about `highest`: all of a top side by side, by rise and then by fall.
fn shapes(highest: f64) -> Vec<CurveShape> {
    let mut shapes = Vec::new();
    for point in 0..TOPS {
        let top = TOP_FACTOR.powi(point);
        if top > highest * 1.2 {
            break;
        }
        for rise in RISES {
            shapes.extend(FALLS.map(|fall| CurveShape { top: top.min(highest), rise, fall }));
        }
    }
    shapes
}

/// The first of the shapes of a top that the one at `index` is equal to at all levels below the top
/// (`is_below`: there are such), and at all others (`is_above`).
fn twin(index: usize, is_below: bool, is_above: bool) -> usize {
    let rise = if is_below { index / FALLS.len() } else { 0 };
    let fall = if is_above { index % FALLS.len() } else { 0 };
    rise * FALLS.len() + fall
}

/// Limits about 12 % apart.
fn levels(lowest: u32, highest: u32) -> impl Iterator<Item = u32> {
    let following =
        move |&level: &u32| (level < highest).then(|| (level + (level / 8).max(1)).min(highest));
    std::iter::successors(Some(lowest.min(highest)), following)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;
    use crate::testing::observed;

    /// Seconds at each of these limits of a database that does `alone_tps` for each of up to `knee`
    /// transactions and loses what is beyond in proportion: processor sharing, work between a half
    /// and three halves of the mean.
    pub(super) fn progress(
        limits: &[(u32, u32)],
        alone_tps: f64,
        knee: f64,
    ) -> TransactionProgress {
        let random = &mut SplitMix64::new(7);
        let mut progress = TransactionProgress::default();
        let mut inside: Vec<(f64, f64)> = Vec::new();
        let mut now_s = 0.0;
        for &(limit, seconds) in limits {
            for _ in 0..seconds * 10 {
                while inside.len() < limit as usize {
                    inside.push((now_s, 0.5 + random.next_draw().value()));
                }
                let level = inside.len() as f64;
                let each = alone_tps * level.min(knee) * (knee / level).min(1.0) / level;
                now_s += 0.1;
                for (_, left) in &mut inside {
                    *left -= 0.1 * each;
                }
                let (ended, kept): (Vec<_>, Vec<_>) =
                    inside.iter().partition(|(_, left)| *left <= 0.0);
                inside = kept;
                let mut seen = observed(limit, 300, ended.len() as u64);
                seen.interval = std::time::Duration::from_millis(100);
                seen.running = u32::try_from(inside.len()).unwrap();
                seen.running_mean = level;
                seen.in_database.count = ended.len() as u64;
                let ages: f64 = ended.iter().map(|(begun_s, _)| now_s - begun_s).sum();
                seen.in_database.mean_s = ages / f64::max(ended.len() as f64, 1.0);
                progress.add(&seen, 1.0 / alone_tps);
            }
        }
        progress
    }

    #[test]
    fn transactions_of_seconds_say_where_the_curve_bends() {
        let progress = progress(&[(4, 10), (10, 10), (40, 20), (100, 20)], 0.5, 20.0);
        let belief = progress.belief(300);
        let (limit, share) = belief.best(1, 300, 0.0, None);
        assert!((13..=30).contains(&limit), "{limit}");
        assert!(share > 0.8, "{share}");
        assert!(belief.share(100) < 0.5, "{}", belief.share(100));
    }

    /// The share is that of the plain sum over all shapes, to the last bit.
    #[test]
    fn a_share_is_the_mean_over_all_shapes() {
        let belief = progress(&[(4, 10), (40, 20)], 0.5, 20.0).belief(300);
        for limit in [1, 2, 19, 20, 77, 300, 1_000] {
            let weighted = belief.shapes.iter().zip(&belief.weights);
            let level = f64::from(limit);
            let plain: f64 =
                weighted.map(|(shape, weight)| weight * libm::exp(shape.ln_share(level))).sum();
            assert_eq!(belief.share(limit).to_bits(), plain.to_bits(), "{limit}");
        }
    }

    #[test]
    fn what_rises_in_proportion_is_followed_upward() {
        let progress = progress(&[(8, 10), (32, 10), (64, 10)], 0.5, 1_000.0);
        let (limit, _) = progress.belief(300).best(1, 300, 0.03, None);
        assert!(limit > 64, "{limit}");
    }

    /// Nothing is lost or made: those inside are as many as permits are out.
    #[test]
    fn those_inside_are_counted() {
        let progress = progress(&[(50, 30), (10, 30)], 0.5, 20.0);
        let known: f64 = progress.inside.iter().map(|cohort| cohort.count).sum();
        assert!((1.0..=10.0).contains(&known), "{known}");
    }
}
