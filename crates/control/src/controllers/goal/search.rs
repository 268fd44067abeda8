//! Looks for the highest limit that keeps the goal, from one that does not.
//!
//! Levels are measured one after the other, and the latest measurement of a level counts. The
//! response time of a class may fall or rise with the limit, so both sides are looked at:
//!
//! 1. From the limit that violates the goal down by factors, while the class's mean response time
//!    does not get worse. If nothing keeps the goal, up from there in the same way.
//! 2. Once a level keeps it, between that and the lowest one above that does not, until they are a
//!    tenth apart.
//! 3. The violating one again, and the keeping one again. So the two were measured in turns: what
//!    has passed by itself in the meantime is found, and is not taken for the work of the limit.
//!
//! Where no level keeps the goal, the best one's neighbours are looked at, and it is measured
//! again.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::tally::{GoalVerdict, ResponseTally};
use crate::controller::whole;
use crate::{Bounds, Mpl};

/// Levels so near to each other are not told apart.
const NEAR: f64 = 1.1;

/// Neighbours of the best level are looked at until they are so near, where none keeps the goal.
const NEAR_BEST: f64 = 1.5;

/// Levels whose mean response time is so near to the lowest are as good.
const AS_GOOD: f64 = 1.1;

/// The step to a level further up or down.
const STEP: f64 = 2.0;

/// Measurements after which a search ends with what it knows.
const MOST: u32 = 30;

/// What was measured at a level.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LevelMeasurement {
    verdict: GoalVerdict,
    mean_s: f64,
    error_s: f64,
    /// How often it was measured.
    times: u32,
}

/// A search under way.
#[derive(Clone, Debug)]
pub(super) struct GoalSearch {
    points: BTreeMap<u32, LevelMeasurement>,
    /// The level that is measured now.
    pub(super) level: u32,
    allowed: Bounds,
    /// The first step down.
    step: f64,
    measured: u32,
}

/// What follows from a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextMeasurement {
    /// Measure at this level.
    Measure(u32),
    /// Limits from the one to the other keep the goal.
    Found { floor: Mpl, ceiling: Mpl },
    /// None does; at this one the class's response time is as low as it gets.
    Impossible { best: Mpl },
}

impl GoalSearch {
    /// A search from `level`, at which `seen` violates the goal, that begins with a step down by
    /// `step`.
    pub(super) fn new(level: u32, seen: &ResponseTally, allowed: Bounds, step: f64) -> GoalSearch {
        let mut search = GoalSearch { points: BTreeMap::new(), level, allowed, step, measured: 0 };
        search.enter(level, seen, GoalVerdict::Violated);
        search
    }

    fn enter(&mut self, level: u32, seen: &ResponseTally, verdict: GoalVerdict) {
        let times = self.points.get(&level).map_or(0, |point| point.times) + 1;
        let (mean_s, error_s) = (seen.mean_s(), seen.mean_error_s());
        self.points.insert(level, LevelMeasurement { verdict, mean_s, error_s, times });
    }

    /// Takes the measurement of the present level and says what follows.
    pub(super) fn take(&mut self, seen: &ResponseTally, verdict: GoalVerdict) -> NextMeasurement {
        self.enter(self.level, seen, verdict);
        self.next()
    }

    /// What follows from what is known.
    pub(super) fn next(&mut self) -> NextMeasurement {
        self.measured += 1;
        let is_over = self.measured > MOST;
        let next = match self.highest_kept() {
            Some(kept) => self.narrow(kept, is_over),
            None => self.widen(is_over),
        };
        if let NextMeasurement::Measure(level) = next {
            self.level = level;
        }
        next
    }

    fn highest_kept(&self) -> Option<u32> {
        let mut kept = self.points.iter().filter(|(_, point)| point.verdict == GoalVerdict::Kept);
        kept.next_back().map(|(&level, _)| level)
    }

    /// Between the highest level that keeps the goal and the lowest above, which does not.
    fn narrow(&self, kept: u32, is_over: bool) -> NextMeasurement {
        let above = self.above(kept);
        let floor = self.floor(kept).map_or(self.allowed.min(), Mpl::at_least_one);
        let found = NextMeasurement::Found { floor, ceiling: Mpl::at_least_one(kept) };
        let (Some((&violating, above)), false) = (above, is_over) else {
            return found;
        };
        if violating - kept > 1 && f64::from(violating) / f64::from(kept) > NEAR {
            return NextMeasurement::Measure(between(kept, violating));
        }
        // In turns: the one above again, then this one.
        if above.times < 2 {
            return NextMeasurement::Measure(violating);
        }
        match self.points.get(&kept) {
            Some(point) if point.times < 2 => NextMeasurement::Measure(kept),
            _ => found,
        }
    }

    fn above(&self, level: u32) -> Option<(&u32, &LevelMeasurement)> {
        self.points.range((Bound::Excluded(level), Bound::Unbounded)).next()
    }

    /// The lowest level that keeps the goal above one that does not, if there is one below `kept`.
    fn floor(&self, kept: u32) -> Option<u32> {
        let mut below = self.points.range(..kept).rev();
        let (violating, _) = below.find(|(_, point)| point.verdict == GoalVerdict::Violated)?;
        self.points.range(violating + 1..=kept).next().map(|(&level, _)| level)
    }

    /// Further down, or up, or between, while no level keeps the goal.
    fn widen(&self, is_over: bool) -> NextMeasurement {
        let levels = self.points.iter();
        let best = levels.min_by(|one, other| one.1.mean_s.total_cmp(&other.1.mean_s));
        let (Some((&best, point)), Some((&lowest, last)), Some((&highest, _))) =
            (best, self.points.first_key_value(), self.points.last_key_value())
        else {
            return NextMeasurement::Impossible { best: Mpl::at_least_one(self.level) };
        };
        if is_over {
            return self.impossible(point);
        }
        // As long as it is not shown that it gets worse.
        let is_level = last.mean_s - point.mean_s <= 2.0 * last.error_s.hypot(point.error_s);
        let is_down = lowest == best || is_level && last.mean_s <= AS_GOOD * point.mean_s;
        let (min, max) = (self.allowed.min().get(), self.allowed.max().get());
        if is_down && lowest > min {
            let step = if lowest == highest { self.step } else { STEP };
            return NextMeasurement::Measure(
                whole(f64::from(lowest) / step).clamp(min, lowest - 1),
            );
        }
        if best == highest && highest < max {
            return NextMeasurement::Measure(
                whole(f64::from(highest) * STEP).clamp(highest + 1, max),
            );
        }
        for (low, high) in self.neighbours(best) {
            if high - low > 1 && f64::from(high) / f64::from(low) > NEAR_BEST {
                return NextMeasurement::Measure(between(low, high));
            }
        }
        if point.times < 2 { NextMeasurement::Measure(best) } else { self.impossible(point) }
    }

    /// The gaps on both sides of a level.
    fn neighbours(&self, level: u32) -> impl Iterator<Item = (u32, u32)> {
        let below = self.points.range(..level).next_back().map(|(&below, _)| (below, level));
        let above = self.above(level).map(|(&above, _)| (level, above));
        above.into_iter().chain(below)
    }

    /// The highest of the levels that are as good as the best.
    fn impossible(&self, best: &LevelMeasurement) -> NextMeasurement {
        let is_as_good = |point: &LevelMeasurement| point.mean_s <= AS_GOOD * best.mean_s;
        let as_good = self.points.iter().rev().find(|(_, point)| is_as_good(point));
        NextMeasurement::Impossible {
            best: Mpl::at_least_one(as_good.map_or(self.level, |(&at, _)| at)),
        }
    }
}

/// The level between two that are at least 2 apart, by the same factor from both.
fn between(low: u32, high: u32) -> u32 {
    whole((f64::from(low) * f64::from(high)).sqrt().round()).clamp(low + 1, high - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::bounds;
    use crate::{ClassObservation, Timing};

    /// Searches among limits where each has this mean response time, and those up to `goal_s` keep
    /// the goal; tells what came of it and how many measurements that took.
    fn search(from: u32, mean_s: impl Fn(u32) -> f64, goal_s: f64) -> (NextMeasurement, u32) {
        let tally = |level| {
            let mean_s = mean_s(level);
            let response =
                Timing { count: 1_000, mean_s, variance_s2: 1e-6 * mean_s, ..Timing::default() };
            let mut tally = ResponseTally::default();
            tally.add(&ClassObservation { response, ..ClassObservation::default() });
            tally
        };
        let mut search = GoalSearch::new(from, &tally(from), bounds(1, 1_000), STEP);
        let mut next = search.next();
        for measurements in 0..100 {
            let NextMeasurement::Measure(level) = next else { return (next, measurements) };
            let is_kept = mean_s(level) <= goal_s;
            let verdict = if is_kept { GoalVerdict::Kept } else { GoalVerdict::Violated };
            next = search.take(&tally(level), verdict);
        }
        panic!("no end: {search:?}");
    }

    fn found(floor: u32, ceiling: u32) -> NextMeasurement {
        let [floor, ceiling] = [floor, ceiling].map(Mpl::at_least_one);
        NextMeasurement::Found { floor, ceiling }
    }

    #[test]
    fn the_highest_limit_that_keeps_the_goal_is_found_from_above() {
        for best in [1, 2, 3, 7, 40, 150] {
            let (next, measurements) = search(200, f64::from, f64::from(best));
            let NextMeasurement::Found { floor, ceiling } = next else {
                panic!("{best}: {next:?}")
            };
            assert_eq!(floor, Mpl::ONE);
            let share = f64::from(ceiling.get()) / f64::from(best);
            assert!((1.0 / NEAR..=1.0).contains(&share), "{best}: {ceiling}");
            assert!(measurements <= 14, "{best}: {measurements}");
        }
    }

    /// Where the class itself queues, a higher limit is better, and a floor keeps it.
    #[test]
    fn a_class_that_queues_gets_a_higher_limit_and_a_floor() {
        let (next, _) = search(4, |level| 1.0 / f64::from(level), 1.0 / 6.0);
        assert_eq!(next, found(8, 8));
    }

    /// A trough about 12 that does not reach the goal.
    #[test]
    fn where_no_limit_keeps_it_the_lowest_response_time_is_said() {
        let trough = |level: u32| 1.0 + (f64::from(level) / 12.0).ln().powi(2);
        for from in [2, 12, 300] {
            let (next, measurements) = search(from, trough, 0.5);
            let NextMeasurement::Impossible { best } = next else { panic!("{next:?}") };
            assert!((9..=17).contains(&best.get()), "{from}: {best}");
            assert!(measurements <= 20, "{from}: {measurements}");
        }
    }

    #[test]
    fn a_violation_that_has_passed_is_found() {
        let (next, _) = search(64, |_| 1.0, 2.0);
        assert_eq!(next, found(1, 64));
    }
}
