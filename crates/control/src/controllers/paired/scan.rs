//! The coarse search: powers of two of a low start, and refinement of the best.

use super::OPEN_PRICE;
use crate::controller::whole;
use crate::settling::WindowSample;

/// Throughput has fallen when it is lower by so much, in ln X, and by so many standard errors.
const FALL: f64 = 0.1;
const FALL_ERRORS: f64 = 1.5;

/// Variance of ln X of the limit that was in use while the search paused: its level is a mean of
/// some seconds, and other limits were looked at meanwhile.
const HELD_VARIANCE: f64 = 0.002;

/// Rounds in which leaders are measured again before pairs decide.
const ROUNDS: u32 = 4;

/// A level that was measured, with all its samples pooled.
#[derive(Clone, Copy, Debug)]
struct ScanPoint {
    limit: u32,
    ln_x: f64,
    variance: f64,
}

/// Whether throughput at `other` is shown to be lower than at the best.
fn falls(best: &ScanPoint, other: &ScanPoint) -> bool {
    let error = (best.variance + other.variance).sqrt();
    best.ln_x - other.ln_x > f64::max(FALL, FALL_ERRORS * error)
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ScanStep {
    Measure(u32),
    Done(u32),
    /// A high level has spoilt the lower ones: hold this until it is over.
    Spoilt(u32),
}

/// The state of a coarse search.
#[derive(Clone, Debug, Default)]
pub(super) struct Scan {
    /// Throughput that is given up for a limit that is lower by a factor of e, in ln X.
    price: f64,
    points: Vec<ScanPoint>,
    /// No higher level is tried any more.
    is_stopped: bool,
    /// The search paused at this level, after a fall, and goes on from there later.
    paused_at: Option<u32>,
    /// The limit that was in use when it went on.
    resumed_from: Option<u32>,
    /// The top is measured again because a level beyond it was much worse: its value before, and
    /// whether a first look found it lower.
    guarded: Option<(f64, bool)>,
    /// Rounds in which the leaders were measured again.
    rounds: u32,
    refined: u32,
}

impl Scan {
    pub(super) fn new(price: f64) -> Scan {
        Scan { price, ..Scan::default() }
    }

    pub(super) fn best_tps(&self) -> f64 {
        self.best().map_or(0.0, |point| libm::exp(point.ln_x))
    }

    /// The level with the highest ln X - price·ln N.
    fn best(&self) -> Option<ScanPoint> {
        self.points
            .iter()
            .copied()
            .max_by(|one, other| self.worth(one).total_cmp(&self.worth(other)))
    }

    fn worth(&self, point: &ScanPoint) -> f64 {
        point.ln_x - self.price * libm::log(f64::from(point.limit))
    }

    fn at(&self, limit: u32) -> Option<&ScanPoint> {
        self.points.iter().find(|point| point.limit == limit)
    }

    fn add(&mut self, sample: &WindowSample) {
        if let Some(point) = self.points.iter_mut().find(|point| point.limit == sample.limit) {
            let share = point.variance / (point.variance + sample.variance);
            point.ln_x += share * (sample.ln_x - point.ln_x);
            point.variance *= 1.0 - share;
        } else {
            let &WindowSample { limit, ln_x, variance, .. } = sample;
            self.points.push(ScanPoint { limit, ln_x, variance });
            self.points.sort_by_key(|point| point.limit);
        }
    }

    /// Whether a lower level is shown to be better than this sample of a limit that nobody reaches.
    /// If so, no higher level is looked at.
    pub(super) fn stops_at(&mut self, open: &WindowSample) -> bool {
        self.is_stopped |= self.best().is_some_and(|best| {
            let error = (best.variance + open.variance).sqrt();
            best.limit < open.limit && best.ln_x - open.ln_x > f64::max(OPEN_PRICE, 2.0 * error)
        });
        self.is_stopped
    }

    /// Takes a sample and says what to measure next, with limits from `lowest` to `highest`.
    pub(super) fn next(
        &mut self,
        sample: &WindowSample,
        residence_s: f64,
        knee: u32,
        (lowest, highest): (u32, u32),
    ) -> ScanStep {
        if let Some((before, is_second)) = self.guarded.take() {
            let lost = before - sample.ln_x;
            if lost > 0.15 && lost > 2.0 * (2.0 * sample.variance).sqrt() {
                if is_second {
                    return ScanStep::Spoilt((sample.limit * 2 / 3).max(lowest));
                }
                self.guarded = Some((before, true));
                return ScanStep::Measure(sample.limit);
            }
            self.is_stopped |= lost > 0.08 && lost > 2.0 * (2.0 * sample.variance).sqrt();
        }
        self.add(sample);
        // Where transactions are slow, each level costs seconds: the knee comes first.
        let is_beyond = residence_s > 0.2 && f64::from(sample.limit) > 1.5 * f64::from(knee);
        if is_beyond && self.points.len() == 1 && knee > lowest {
            self.refined = 3;
            self.is_stopped = true;
            return ScanStep::Measure(knee);
        }
        let Some(best) = self.best() else {
            return ScanStep::Done(sample.limit);
        };
        let bounds = (lowest, highest);
        if self.was_in_vain(best.limit) {
            let next = self.up(sample, best, residence_s, bounds);
            return next.map_or(ScanStep::Done(best.limit), ScanStep::Measure);
        }
        self.down(best, lowest)
            .or_else(|| self.up(sample, best, residence_s, bounds))
            .or_else(|| self.refine(best))
            .or_else(|| self.repeat(best))
            .map_or(ScanStep::Done(best.limit), ScanStep::Measure)
    }

    /// A lower level, as long as the lowest measured is not shown to be worse than the best.
    fn down(&self, best: ScanPoint, lowest: u32) -> Option<u32> {
        let first = self.points.first().filter(|_| self.points.len() >= 2)?;
        let is_edge = first.limit == best.limit || !falls(&best, first);
        (is_edge && first.limit > lowest).then(|| (first.limit / 2).max(lowest))
    }

    /// The next higher level, unless the last ones were much worse than the best.
    fn up(
        &mut self,
        sample: &WindowSample,
        best: ScanPoint,
        residence_s: f64,
        (lowest, highest): (u32, u32),
    ) -> Option<u32> {
        let last = *self.points.last()?;
        if self.is_stopped || self.is_paused() || last.limit >= highest {
            return None;
        }
        let loss = best.ln_x - last.ln_x;
        let before = self.points.len().checked_sub(2).and_then(|index| self.points.get(index));
        let drain_s = f64::from(last.limit) * 2.0 / libm::exp(last.ln_x - loss);
        let is_slow_to_drain = drain_s > f64::max(0.6, 3.0 * residence_s);
        if (loss > 0.3 && is_slow_to_drain) || loss > 1.5 {
            self.is_stopped = true;
            return None;
        }
        // The best lies between worse ones: it is put to use, what is beyond is looked at later.
        let is_between =
            best.limit <= lowest || self.points.first().is_some_and(|first| falls(&best, first));
        if self.resumed_from.is_none() && is_between && falls(&best, &last) {
            self.paused_at = Some(last.limit);
            return None;
        }
        // Beyond a fall the top is looked at again, lest the fall has spoilt it.
        if loss > 0.22 && sample.limit == last.limit {
            self.guarded = Some((best.ln_x, false));
            return Some(best.limit);
        }
        let is_linear = before.is_some_and(|point| {
            let gain = last.ln_x - point.ln_x;
            gain > 0.9 * libm::log(f64::from(last.limit) / f64::from(point.limit))
        });
        let factor = if is_linear { 4 } else { 2 };
        Some(last.limit.saturating_mul(factor).min(highest))
    }

    /// A level between the best and a neighbour that is far from it.
    fn refine(&mut self, best: ScanPoint) -> Option<u32> {
        if self.refined >= 3 {
            return None;
        }
        let index = self.points.iter().position(|point| point.limit == best.limit)?;
        let below = index.checked_sub(1).and_then(|index| self.points.get(index));
        let above = self.points.get(index + 1);
        let between = |low: u32, high: u32| {
            let middle = whole((f64::from(low) * f64::from(high)).sqrt().round());
            let is_far = f64::from(high) / f64::from(low) > 1.5;
            (is_far && middle > low && middle < high).then_some(middle)
        };
        let upper = above.and_then(|above| between(best.limit, above.limit));
        let lower = below.and_then(|below| between(below.limit, best.limit));
        let next = match (lower, upper, below, above) {
            (Some(lower), Some(upper), Some(below), Some(above)) => {
                Some(if below.ln_x > above.ln_x { lower } else { upper })
            }
            (lower, upper, ..) => lower.or(upper),
        };
        self.refined += u32::from(next.is_some());
        next
    }

    /// The leaders that cannot be told apart are measured again, the least known first.
    fn repeat(&mut self, best: ScanPoint) -> Option<u32> {
        if self.rounds >= ROUNDS {
            return None;
        }
        let is_leader = |point: &&ScanPoint| {
            let error = (point.variance + best.variance).sqrt();
            self.worth(&best) - self.worth(point) < 1.5 * error && error > 0.01
        };
        let leaders: Vec<ScanPoint> = self.points.iter().filter(is_leader).copied().collect();
        if leaders.len() < 2 {
            return None;
        }
        self.rounds += 1;
        leaders
            .into_iter()
            .max_by(|one, other| one.variance.total_cmp(&other.variance))
            .map(|point| point.limit)
    }

    /// Whether levels beyond a fall were left for later.
    pub(super) fn is_paused(&self) -> bool {
        self.paused_at.is_some() && self.resumed_from.is_none()
    }

    /// Goes on beyond the fall, with what the limit has that was put to use: the next level.
    pub(super) fn resume(mut self, limit: u32, ln_x: f64, highest: u32) -> Option<(Scan, u32)> {
        let fall = self.paused_at?;
        let next = fall.saturating_mul(2).min(highest);
        self.points.retain(|point| point.limit >= fall);
        self.points.insert(0, ScanPoint { limit, ln_x, variance: HELD_VARIANCE });
        self.resumed_from = Some(limit);
        (limit < fall && next > fall).then_some((self, next))
    }

    /// Whether the search went beyond a fall and has found nothing better than this.
    pub(super) fn was_in_vain(&self, limit: u32) -> bool {
        self.resumed_from == Some(limit)
    }

    /// Whether a higher level was measured.
    pub(super) fn is_proven(&self, limit: u32) -> bool {
        self.points.last().is_some_and(|point| point.limit > limit)
    }

    /// What is known of a level, if it was measured.
    pub(super) fn ln_x(&self, limit: u32) -> Option<f64> {
        self.at(limit).map(|point| point.ln_x)
    }
}
