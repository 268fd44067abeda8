//! What the response times of a class say about a goal, and with which error.
//!
//! A percentile goal is judged by the share of transactions that took longer: shares of intervals
//! add up exactly, percentiles of intervals do not. The standard error of a share of n independent
//! transactions is √(q·(1 − q)/n) where q may be late, that of a mean is s/√n. Transactions of one
//! interval are not independent: a slow second makes all of them late. So the variance is
//! multiplied by how much the intervals' sums vary beyond that, and a judgement needs two of them.

use super::GoalSeen;
use crate::{ClassObservation, ResponseGoal, ResponseStatistic, Timing};

/// Standard errors above the goal at which it is violated, and below at which it is kept.
const VIOLATED: f64 = 2.3;
const KEPT: f64 = -1.5;

/// The same for a goal that was kept, before there are as many as a judgement ever takes.
const ALARMING: f64 = 3.0;

/// Standard errors at which a fifth of the usual number is enough.
const PLAINLY: f64 = 4.0;

/// So many times the least number, and the estimate decides.
const LONGEST: f64 = 4.0;

/// What an estimate must be below, as a share of what is allowed, where only it decides; and where
/// there is slack. A share of late ones that is a tenth lower is a response time about 3 % lower.
const SHARE_MARGINS: [f64; 2] = [0.9, 0.8];
const MEAN_MARGINS: [f64; 2] = [0.97, 0.93];

/// The highest factor by which intervals vary more than independent transactions.
const DISPERSION_MAX: f64 = 10.0;

/// Intervals from which on it is known how much they vary. One slow second makes everything in it
/// late: alone it says nothing about a limit.
const INTERVALS_LEAST: f64 = 2.0;

/// Response times of a class over some intervals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ResponseTally {
    intervals: f64,
    count: f64,
    late: f64,
    /// Of the response times: their sum, and that of their squares; seconds.
    sum_s: f64,
    squares_s2: f64,
    /// For each interval the square of its sum over its number, added up.
    late_between: f64,
    between_s2: f64,
}

/// What is said about a goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GoalVerdict {
    /// It is shown to be kept.
    Kept,
    /// It is shown to be missed.
    Violated,
    /// As many transactions as a judgement ever takes show neither.
    Undecided,
}

/// Transactions that make a judgement: five that may be late, 50 for a mean.
pub(super) fn least(goal: ResponseGoal) -> f64 {
    match goal.statistic {
        ResponseStatistic::Mean => 50.0,
        ResponseStatistic::P95 => 100.0,
        ResponseStatistic::P99 => 500.0,
    }
}

fn margins(goal: ResponseGoal) -> [f64; 2] {
    match goal.statistic {
        ResponseStatistic::Mean => MEAN_MARGINS,
        ResponseStatistic::P95 | ResponseStatistic::P99 => SHARE_MARGINS,
    }
}

impl ResponseTally {
    /// Whether the estimate leaves room for a higher limit.
    pub(super) fn has_slack(&self, goal: ResponseGoal) -> bool {
        self.ratio(goal) <= margins(goal)[1]
    }

    pub(super) fn add(&mut self, class: &ClassObservation) {
        let Timing { count, mean_s, variance_s2, .. } = class.response;
        if count == 0 || !mean_s.is_finite() || !variance_s2.is_finite() {
            return;
        }
        let (count, late) = (count as f64, class.late.min(count) as f64);
        let sum_s = count * mean_s;
        self.intervals += 1.0;
        self.count += count;
        self.late += late;
        self.sum_s += sum_s;
        self.squares_s2 += count * (variance_s2 + mean_s * mean_s);
        self.late_between += late * late / count;
        self.between_s2 += sum_s * sum_s / count;
    }

    /// Takes another tally in.
    pub(super) fn join(&mut self, other: &ResponseTally) {
        self.intervals += other.intervals;
        self.count += other.count;
        self.late += other.late;
        self.sum_s += other.sum_s;
        self.squares_s2 += other.squares_s2;
        self.late_between += other.late_between;
        self.between_s2 += other.between_s2;
    }

    pub(super) fn count(&self) -> f64 {
        self.count
    }

    /// Mean response time, seconds; 0 when there is none.
    pub(super) fn mean_s(&self) -> f64 {
        if self.count > 0.0 { self.sum_s / self.count } else { 0.0 }
    }

    /// What the tally amounts to.
    pub(super) fn seen(&self, goal: ResponseGoal) -> GoalSeen {
        GoalSeen { count: self.count, ratio: self.ratio(goal), mean_s: self.mean_s() }
    }

    /// The share that took longer than the goal.
    pub(super) fn late_share(&self) -> f64 {
        if self.count > 0.0 { self.late / self.count } else { 0.0 }
    }

    /// The standard error of the mean, seconds.
    pub(super) fn mean_error_s(&self) -> f64 {
        (self.mean_variance() / self.count.max(1.0)).sqrt()
    }

    fn mean_variance(&self) -> f64 {
        let mean_s = self.mean_s();
        let within = (self.squares_s2 / self.count.max(1.0) - mean_s * mean_s).max(0.0);
        within * self.dispersion(self.sum_s, self.between_s2, within)
    }

    /// By how much the intervals' sums vary more than those of independent transactions.
    fn dispersion(&self, sum: f64, between: f64, within: f64) -> f64 {
        if self.intervals < INTERVALS_LEAST || within <= 0.0 {
            return 1.0;
        }
        let between = (between - sum * sum / self.count) / (self.intervals - 1.0);
        (between / within).clamp(1.0, DISPERSION_MAX)
    }

    /// What is measured over what is allowed: the share that is late, or the mean.
    pub(super) fn ratio(&self, goal: ResponseGoal) -> f64 {
        match goal.statistic.late_share() {
            Some(allowed) => self.late_share() / allowed,
            None => self.mean_s() / goal.within.as_secs_f64(),
        }
    }

    /// Standard errors by which the goal is exceeded; below 0 if it is kept.
    pub(super) fn excess(&self, goal: ResponseGoal) -> f64 {
        let (over, variance) = match goal.statistic.late_share() {
            Some(allowed) => {
                let within = allowed * (1.0 - allowed);
                let dispersion = self.dispersion(self.late, self.late_between, within);
                (self.late_share() - allowed, within * dispersion)
            }
            None => (self.mean_s() - goal.within.as_secs_f64(), self.mean_variance()),
        };
        over / (variance / self.count.max(1.0)).sqrt().max(1e-12)
    }

    /// What can be said; `None` while there are too few. `is_hasty` says a plain violation after a
    /// fifth of the least number and within one interval, which is right where a limit is only
    /// tried, and will be tried again.
    pub(super) fn judge(&self, goal: ResponseGoal, is_hasty: bool) -> Option<GoalVerdict> {
        let (least, excess) = (least(goal), self.excess(goal));
        if is_hasty && self.count >= least / 5.0 && excess >= PLAINLY {
            return Some(GoalVerdict::Violated);
        }
        if self.count < least || self.intervals < INTERVALS_LEAST {
            return None;
        }
        if excess >= VIOLATED {
            return Some(GoalVerdict::Violated);
        }
        let is_long = self.count >= LONGEST * least;
        if excess <= KEPT || is_long && self.ratio(goal) <= margins(goal)[0] {
            return Some(GoalVerdict::Kept);
        }
        is_long.then_some(GoalVerdict::Undecided)
    }

    /// Whether there are as many as a judgement ever takes.
    pub(super) fn is_long(&self, goal: ResponseGoal) -> bool {
        self.count >= LONGEST * least(goal)
    }

    /// Whether a goal that was kept is shown to be violated now: with more certainty than where a
    /// limit is only tried, because it is looked at again and again.
    pub(super) fn is_violated(&self, goal: ResponseGoal) -> bool {
        let asked = if self.is_long(goal) { VIOLATED } else { ALARMING };
        let is_enough = self.count >= least(goal) && self.intervals >= INTERVALS_LEAST;
        is_enough && self.excess(goal) >= asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(text: &str) -> ResponseGoal {
        text.parse().expect("a goal")
    }

    fn seen(count: u64, late: u64, mean_s: f64) -> ClassObservation {
        let response = Timing { count, mean_s, variance_s2: mean_s * mean_s, ..Timing::default() };
        ClassObservation { completions: count, late, response, ..ClassObservation::default() }
    }

    fn tally(intervals: &[ClassObservation]) -> ResponseTally {
        let mut tally = ResponseTally::default();
        for one in intervals {
            tally.add(one);
        }
        tally
    }

    /// Two intervals alike.
    fn halves(count: u64, late: u64, mean_s: f64) -> ResponseTally {
        let (half, late_half) = (count / 2, late / 2);
        tally(&[seen(half, late_half, mean_s), seen(count - half, late - late_half, mean_s)])
    }

    #[test]
    fn a_percentile_of_few_says_nothing() {
        let goal = goal("p95=200ms");
        assert_eq!(tally(&[seen(10, 1, 0.1)]).judge(goal, true), None);
        assert_eq!(halves(99, 0, 0.1).judge(goal, false), None);
        assert_eq!(halves(100, 0, 0.1).judge(goal, false), Some(GoalVerdict::Kept));
        assert_eq!(halves(100, 5, 0.1).judge(goal, false), None, "5 % may be late");
        assert_eq!(halves(100, 12, 0.1).judge(goal, false), Some(GoalVerdict::Violated));
        assert_eq!(tally(&[seen(20, 9, 0.1)]).judge(goal, true), Some(GoalVerdict::Violated));
        assert_eq!(tally(&[seen(20, 9, 0.1)]).judge(goal, false), None);
    }

    #[test]
    fn a_long_look_is_decided_by_the_estimate_with_a_margin() {
        let goal = goal("p95=200ms");
        assert_eq!(halves(400, 20, 0.1).judge(goal, false), Some(GoalVerdict::Undecided));
        assert_eq!(halves(400, 18, 0.1).judge(goal, false), Some(GoalVerdict::Kept));
        assert!(!halves(400, 20, 0.1).is_violated(goal), "not shown");
        assert_eq!(halves(400, 34, 0.1).judge(goal, false), Some(GoalVerdict::Violated));
    }

    /// However many transactions an interval has: a slow second is not the limit's fault.
    #[test]
    fn one_interval_shows_nothing_but_what_is_plain() {
        let goal = goal("p95=200ms");
        let [kept, missed] = [0, 90].map(|late| tally(&[seen(900, late, 0.1)]));
        assert_eq!([kept, missed].map(|one| one.judge(goal, false)), [None, None]);
        assert_eq!(missed.judge(goal, true), Some(GoalVerdict::Violated));
        assert!(!missed.is_violated(goal));
        let both = tally(&[seen(900, 90, 0.1), seen(900, 2, 0.1)]);
        assert_eq!(both.judge(goal, false), Some(GoalVerdict::Undecided));
    }

    #[test]
    fn a_mean_is_judged_by_its_own_variance() {
        let goal = goal("mean=100ms");
        assert_eq!(halves(50, 0, 0.05).judge(goal, false), Some(GoalVerdict::Kept));
        assert_eq!(halves(50, 0, 0.2).judge(goal, false), Some(GoalVerdict::Violated));
        assert_eq!(halves(50, 0, 0.1).judge(goal, false), None);
    }

    /// The same 18 late ones of 120, in one bad interval or spread evenly.
    #[test]
    fn late_ones_that_come_together_weigh_less() {
        let goal = goal("p95=200ms");
        let spread = tally(&[seen(20, 3, 0.1); 6]);
        let mut burst = [seen(20, 0, 0.1); 6];
        burst[3] = seen(20, 18, 0.1);
        assert!(spread.is_violated(goal));
        assert!(!tally(&burst).is_violated(goal));
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let mut tally = tally(&[seen(100, 0, f64::NAN), seen(3, 90, 0.1)]);
        tally.add(&seen(0, 7, 0.1));
        assert!((tally.count() - 3.0).abs() < 1e-12);
        assert!((tally.late_share() - 1.0).abs() < 1e-12);
    }
}
