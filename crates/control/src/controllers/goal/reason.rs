//! Why a limit was chosen for the sake of a goal.

use std::fmt;

use crate::Mpl;
use crate::reason::reasons;

/// What was measured of the class whose response time is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GoalSeen {
    /// Response times.
    pub count: f64,
    /// What was measured over what is allowed: the share that is late, or the mean. Above 1 the
    /// goal is missed.
    pub ratio: f64,
    /// Their mean, seconds.
    pub mean_s: f64,
}

reasons! {
    /// Why a limit was chosen for the sake of a goal.
    pub enum GoalReason {
        /// The goal is missed: a limit that keeps it is looked for.
        Search(seen: GoalSeen) = "goal_search" => "goal: missed, searching: {seen}";
        /// Limits up to this one keep it.
        Ceiling {
            /// The highest limit that keeps it.
            ceiling: Mpl,
            /// What was measured there.
            seen: GoalSeen,
        } = "goal_ceiling" => "goal: kept up to {ceiling}: {seen}";
        /// A class that queued at lower limits has it kept from this one on.
        Floor {
            /// The lowest limit that keeps it.
            floor: Mpl,
            /// What was measured at the highest one that was tried.
            seen: GoalSeen,
        } = "goal_floor" => "goal: kept from {floor} on: {seen}";
        /// The limit that missed it keeps it now, unchanged: no lower one is needed.
        Passed(seen: GoalSeen) = "goal_passed" =>
            "goal: kept again, what missed it has passed: {seen}";
        /// Only many transactions show that it is missed: the ceiling is a twentieth lower.
        Trim(seen: GoalSeen) = "goal_trim" => "goal: missed by little, one step lower: {seen}";
        /// There is slack, and limits are allowed again that were too low once.
        NoFloor(seen: GoalSeen) = "goal_no_floor" => "goal: slack, lower limits too: {seen}";
        /// There is slack, and a higher limit is tried.
        Raise(seen: GoalSeen) = "goal_raise" => "goal: slack, trying more: {seen}";
        /// The higher limit is not shown to keep it.
        Back(seen: GoalSeen) = "goal_back" => "goal: more is not shown to keep it: {seen}";
        /// Every limit that was tried is shown to miss it, the nearest ones more than once.
        Impossible {
            /// The highest limit that was tried.
            highest: Mpl,
            /// What was measured at the nearest one.
            seen: GoalSeen,
        } = "goal_impossible" => "goal: no limit up to {highest} keeps it, the nearest: {seen}";
        /// No limit is shown to keep it, and not every one to miss it.
        Unclear(seen: GoalSeen) = "goal_unclear" =>
            "goal: no limit is shown to keep it, the nearest: {seen}";
        /// Too few transactions of the class to go on.
        TooFew = "goal_too_few" => "goal: too few transactions to judge";
    }
}

impl fmt::Display for GoalSeen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GoalSeen { count, ratio, mean_s } = self;
        let mean_ms = mean_s * 1e3;
        write!(formatter, "{ratio:.2} of what is allowed, mean {mean_ms:.1} ms, of {count:.0}")
    }
}
