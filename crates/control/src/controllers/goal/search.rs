//! Looks for the highest limit that keeps the goal, from one that does not.
//!
//! Levels are measured one after the other, and the latest measurement of a level counts. The
//! response time of a class may fall or rise with the limit, so both sides are looked at:
//!
//! 1. From the limit that violates the goal down by factors, and, if nothing keeps the goal, up
//!    from there in the same way: each until the limits end or it is
//!    [hopeless](GoalSearch::is_hopeless) to go on.
//! 2. Once a level keeps it, between that and the lowest one above that does not, until they are a
//!    tenth apart.
//! 3. The violating one again, and the keeping one again. So the two were measured in turns: what
//!    has passed by itself in the meantime is found, and is not taken for the work of the limit.
//!
//! Where no level keeps the goal, the neighbours of the nearest one are looked at. That no level
//! keeps it is said only when each was shown to miss it, the nearest in two measurements, and it
//! and its neighbours by a whole judgement. Otherwise it is said to be unclear.
//!
//! **The nearest** level has the lowest product of what the goal counts (the share of late ones, or
//! the mean) and of the mean: where all are late the mean tells how late, and where the means are
//! about equal the share does.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::GoalSeen;
use super::tally::{GoalVerdict, ResponseTally};
use crate::controller::whole;
use crate::{Bounds, Mpl, ResponseGoal};

/// Levels so near to each other are not told apart.
const NEAR: f64 = 1.1;

/// Neighbours of the nearest level are looked at until they are so near, where none keeps the goal.
const NEAR_BEST: f64 = 1.5;

/// Levels whose cost is so near to the lowest are as good: share and mean a tenth higher.
const AS_GOOD: f64 = 1.21;

/// A mean response time so many times that of the nearest level is hopeless.
const HOPELESS: f64 = 2.0;

/// The step to a level further up or down.
const STEP: f64 = 2.0;

/// Measurements after which a search ends with what it knows.
const MOST: u32 = 30;

/// What was measured at a level.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LevelMeasurement {
    verdict: GoalVerdict,
    seen: GoalSeen,
    /// The standard error of the mean, seconds.
    error_s: f64,
    /// How often it was measured.
    times: u32,
    /// Whether the last time was a whole judgement, and not only a plain violation by a few.
    is_whole: bool,
}

impl LevelMeasurement {
    /// How far it is from the goal.
    fn cost(&self) -> f64 {
        self.seen.ratio * self.seen.mean_s
    }
}

/// A search under way.
#[derive(Clone, Debug)]
pub(super) struct GoalSearch {
    goal: ResponseGoal,
    points: BTreeMap<u32, LevelMeasurement>,
    /// The level that is measured now.
    pub(super) level: u32,
    /// Whether this takes a whole judgement.
    is_whole: bool,
    allowed: Bounds,
    /// The first step down.
    step: f64,
    measured: u32,
}

/// What follows from a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NextMeasurement {
    /// Measure at this level.
    Measure(u32),
    /// Limits from the one to the other keep the goal, the higher one with what was seen there.
    Found { floor: Mpl, ceiling: Mpl, seen: GoalSeen },
    /// None does, if this is so, and otherwise that is not shown. At this one the goal is nearest.
    NotFound { is_impossible: bool, nearest: Mpl, highest: Mpl, seen: GoalSeen },
}

impl GoalSearch {
    /// A search from `level`, at which `seen` violates the goal, that begins with a step down by
    /// `step`.
    pub(super) fn new(
        goal: ResponseGoal,
        level: u32,
        seen: &ResponseTally,
        allowed: Bounds,
        step: f64,
    ) -> GoalSearch {
        let points = BTreeMap::new();
        let mut search =
            GoalSearch { goal, points, level, is_whole: false, allowed, step, measured: 0 };
        search.enter(seen, GoalVerdict::Violated);
        search
    }

    fn enter(&mut self, tally: &ResponseTally, verdict: GoalVerdict) {
        let times = self.points.get(&self.level).map_or(0, |point| point.times) + 1;
        let (seen, error_s) = (tally.seen(self.goal), tally.mean_error_s());
        // What began the search was seen at this level and near it.
        let is_whole = self.measured > 0 && tally.judge(self.goal, false).is_some();
        let point = LevelMeasurement { verdict, seen, error_s, times, is_whole };
        self.points.insert(self.level, point);
    }

    /// Takes the measurement of the present level and says what follows; `None` if it is too short.
    pub(super) fn take(&mut self, tally: &ResponseTally) -> Option<(GoalVerdict, NextMeasurement)> {
        let verdict = tally.judge(self.goal, !self.is_whole)?;
        self.enter(tally, verdict);
        Some((verdict, self.next()))
    }

    /// What follows from what is known.
    pub(super) fn next(&mut self) -> NextMeasurement {
        self.measured += 1;
        self.is_whole = false;
        let is_over = self.measured > MOST;
        let next = match self.highest_kept() {
            Some((kept, point)) => self.narrow(kept, &point, is_over),
            None => self.widen(is_over),
        };
        if let NextMeasurement::Measure(level) = next {
            self.level = level;
        }
        next
    }

    fn highest_kept(&self) -> Option<(u32, LevelMeasurement)> {
        let mut levels = self.points.iter().rev();
        let kept = levels.find(|(_, point)| point.verdict == GoalVerdict::Kept);
        kept.map(|(&level, &point)| (level, point))
    }

    /// Between the highest level that keeps the goal and the lowest above, which does not.
    fn narrow(&self, kept: u32, point: &LevelMeasurement, is_over: bool) -> NextMeasurement {
        let floor = self.floor(kept).map_or(self.allowed.min(), Mpl::at_least_one);
        let ceiling = Mpl::at_least_one(kept);
        let found = NextMeasurement::Found { floor, ceiling, seen: point.seen };
        let (Some((violating, above)), false) = (self.above(kept), is_over) else {
            return found;
        };
        if violating - kept > 1 && f64::from(violating) / f64::from(kept) > NEAR {
            return NextMeasurement::Measure(between(kept, violating));
        }
        // In turns: the one above again, then this one.
        if above.times < 2 {
            return NextMeasurement::Measure(violating);
        }
        if point.times < 2 { NextMeasurement::Measure(kept) } else { found }
    }

    fn above(&self, level: u32) -> Option<(u32, &LevelMeasurement)> {
        let mut above = self.points.range((Bound::Excluded(level), Bound::Unbounded));
        above.next().map(|(&level, point)| (level, point))
    }

    fn below(&self, level: u32) -> Option<(u32, &LevelMeasurement)> {
        self.points.range(..level).next_back().map(|(&level, point)| (level, point))
    }

    /// The lowest level that keeps the goal above one that does not, if there is one below `kept`.
    fn floor(&self, kept: u32) -> Option<u32> {
        let mut below = self.points.range(..kept).rev();
        let (violating, _) = below.find(|(_, point)| point.verdict == GoalVerdict::Violated)?;
        self.points.range(violating + 1..=kept).next().map(|(&level, _)| level)
    }

    /// Further down, or up, or between, while no level keeps the goal.
    fn widen(&mut self, is_over: bool) -> NextMeasurement {
        let points = self.points.iter();
        let nearest = points.min_by(|one, other| one.1.cost().total_cmp(&other.1.cost()));
        let (Some((&nearest, &point)), Some((&lowest, last)), Some((&highest, top))) =
            (nearest, self.points.first_key_value(), self.points.last_key_value())
        else {
            return NextMeasurement::Measure(self.level);
        };
        if is_over {
            return self.not_found(&point, false);
        }
        let (min, max) = (self.allowed.min().get(), self.allowed.max().get());
        if lowest > min && !GoalSearch::is_hopeless(last, &point) {
            let step = if lowest == highest { self.step } else { STEP };
            let lower = whole(f64::from(lowest) / step);
            return NextMeasurement::Measure(lower.clamp(min, lowest - 1));
        }
        if highest < max && !GoalSearch::is_hopeless(top, &point) {
            let higher = whole(f64::from(highest) * STEP);
            return NextMeasurement::Measure(higher.clamp(highest + 1, max));
        }
        let around = [self.below(nearest), self.above(nearest)];
        for level in around.iter().flatten().map(|&(level, _)| level) {
            let (low, high) = (level.min(nearest), level.max(nearest));
            if high - low > 1 && f64::from(high) / f64::from(low) > NEAR_BEST {
                return NextMeasurement::Measure(between(low, high));
            }
        }
        let unproven = if point.times < 2 || !point.is_whole {
            Some(nearest)
        } else {
            let unproven = around.iter().flatten().find(|(_, point)| !point.is_whole);
            unproven.map(|&(level, _)| level)
        };
        if let Some(level) = unproven {
            self.is_whole = true;
            return NextMeasurement::Measure(level);
        }
        let mut all = self.points.values();
        let is_impossible = all.all(|point| point.verdict == GoalVerdict::Violated);
        self.not_found(&point, is_impossible)
    }

    /// Whether it is no use to go on beyond a level: the class's mean response time is shown to be
    /// longer there than at the nearest one, by a factor, and the goal is as far.
    fn is_hopeless(level: &LevelMeasurement, nearest: &LevelMeasurement) -> bool {
        let longer_s = level.seen.mean_s - nearest.seen.mean_s;
        longer_s > 2.0 * libm::hypot(level.error_s, nearest.error_s)
            && level.seen.mean_s >= HOPELESS * nearest.seen.mean_s
            && level.seen.ratio >= nearest.seen.ratio
    }

    /// The highest of the levels that are as good as the nearest.
    fn not_found(&self, nearest: &LevelMeasurement, is_impossible: bool) -> NextMeasurement {
        let is_as_good = |point: &LevelMeasurement| point.cost() <= AS_GOOD * nearest.cost();
        let as_good = self.points.iter().rev().find(|(_, point)| is_as_good(point));
        let (level, seen) =
            as_good.map_or((self.level, nearest.seen), |(&at, at_point)| (at, at_point.seen));
        let highest = self.points.last_key_value().map_or(level, |(&highest, _)| highest);
        let [nearest, highest] = [level, highest].map(Mpl::at_least_one);
        NextMeasurement::NotFound { is_impossible, nearest, highest, seen }
    }
}

/// The level between two that are at least 2 apart, by the same factor from both.
fn between(low: u32, high: u32) -> u32 {
    whole((f64::from(low) * f64::from(high)).sqrt().round()).clamp(low + 1, high - 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::bounds;
    use crate::{ClassObservation, ResponseStatistic, Timing};

    /// Two intervals in which the class has this mean response time.
    fn tally(mean_s: f64) -> ResponseTally {
        let response =
            Timing { count: 1_000, mean_s, variance_s2: 1e-6 * mean_s, ..Timing::default() };
        let mut tally = ResponseTally::default();
        for _ in 0..2 {
            tally.add(&ClassObservation { response, ..ClassObservation::default() });
        }
        tally
    }

    /// Searches from a limit where each has this mean response time in each measurement, counted
    /// from 0, with a goal for the mean; tells what came of it and how many measurements that took.
    fn search_in_time(
        from: u32,
        mean_s: impl Fn(u32, u32) -> f64,
        goal_s: f64,
    ) -> (NextMeasurement, u32) {
        let within = Duration::from_secs_f64(goal_s);
        let goal = ResponseGoal { statistic: ResponseStatistic::Mean, within };
        let mut search =
            GoalSearch::new(goal, from, &tally(mean_s(from, 0)), bounds(1, 1_000), STEP);
        let mut next = search.next();
        for measurements in 0..100 {
            let NextMeasurement::Measure(level) = next else { return (next, measurements) };
            (_, next) = search.take(&tally(mean_s(level, measurements))).expect("a long tally");
        }
        panic!("no end: {search:?}");
    }

    fn search(from: u32, mean_s: impl Fn(u32) -> f64, goal_s: f64) -> (NextMeasurement, u32) {
        search_in_time(from, |level, _| mean_s(level), goal_s)
    }

    fn found(next: NextMeasurement) -> (u32, u32) {
        let NextMeasurement::Found { floor, ceiling, .. } = next else { panic!("{next:?}") };
        (floor.get(), ceiling.get())
    }

    #[test]
    fn the_highest_limit_that_keeps_the_goal_is_found_from_above() {
        for best in [1, 2, 3, 7, 40, 150] {
            let (next, measurements) = search(200, f64::from, f64::from(best) + 0.5);
            let (floor, ceiling) = found(next);
            assert_eq!(floor, 1);
            let share = f64::from(ceiling) / f64::from(best);
            assert!((1.0 / NEAR..=1.0).contains(&share), "{best}: {ceiling}");
            assert!(measurements <= 14, "{best}: {measurements}");
        }
    }

    /// What is said of a ceiling was measured there, and not at the level above.
    #[test]
    fn a_ceiling_comes_with_what_was_seen_there() {
        let (next, _) = search(200, f64::from, 40.5);
        let NextMeasurement::Found { ceiling, seen, .. } = next else { panic!("{next:?}") };
        assert!((seen.mean_s - f64::from(ceiling.get())).abs() < 1e-9 && seen.ratio < 1.0);
    }

    /// Where the class itself queues, a higher limit is better, and a floor keeps it.
    #[test]
    fn a_class_that_queues_gets_a_higher_limit_and_a_floor() {
        let (next, _) = search(4, |level| 1.0 / f64::from(level), 1.0 / 6.0);
        assert_eq!(found(next).0, 8);
    }

    /// A trough about 12 that does not reach the goal.
    #[test]
    fn where_no_limit_keeps_it_the_lowest_response_time_is_said() {
        let trough = |level: u32| 1.0 + libm::log(f64::from(level) / 12.0).powi(2);
        for from in [2, 12, 300] {
            let (next, measurements) = search(from, trough, 0.5);
            let NextMeasurement::NotFound { is_impossible: true, nearest, seen, .. } = next else {
                panic!("{next:?}")
            };
            assert!((9..=17).contains(&nearest.get()), "{from}: {nearest}");
            assert!((seen.mean_s - trough(nearest.get())).abs() < 1e-9);
            assert!(measurements <= 20, "{from}: {measurements}");
        }
    }

    /// A low hump between the start and the limits that keep the goal is no reason to turn back.
    #[test]
    fn a_limit_that_keeps_it_is_found_behind_a_hump() {
        let humped = |level: u32| match level {
            0..=5 => 0.5,
            6..=15 => 1.6,
            _ => 1.2,
        };
        let (next, _) = search(100, humped, 1.0);
        assert_eq!(found(next).1, 5);
    }

    /// While the first seven levels were measured everything was slow: what was seen then does not
    /// prove that no limit keeps the goal.
    #[test]
    fn a_bad_time_is_not_taken_for_impossible() {
        let mean_s = |level: u32, measurement: u32| {
            let usual_s = 0.02 + f64::from(level) / 2_000.0;
            if measurement < 7 { 5.0 * usual_s } else { usual_s }
        };
        let (next, _) = search_in_time(100, mean_s, 0.040_1);
        let (_, ceiling) = found(next);
        assert!((30..=40).contains(&ceiling), "{ceiling}");
    }

    /// At the goal neither is shown, and neither is said.
    #[test]
    fn what_is_neither_kept_nor_missed_is_unclear() {
        let (next, _) = search(64, |level| if level > 20 { 2.0 } else { 1.0 }, 1.0);
        let NextMeasurement::NotFound { is_impossible, nearest, .. } = next else {
            panic!("{next:?}")
        };
        assert!(!is_impossible && nearest.get() <= 20, "{nearest}");
    }

    #[test]
    fn a_violation_that_has_passed_is_found() {
        let (next, _) = search(64, |_| 1.0, 2.0);
        assert_eq!(found(next), (1, 64));
    }
}
