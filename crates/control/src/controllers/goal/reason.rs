//! Why a limit was chosen for the sake of a goal.

use std::fmt;

use crate::Mpl;

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

/// Why a limit was chosen for the sake of a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GoalReason {
    /// The goal is missed: a limit that keeps it is looked for.
    Search(GoalSeen),
    /// Limits up to this one keep it.
    Ceiling {
        /// The highest limit that keeps it.
        ceiling: Mpl,
        /// What was measured there.
        seen: GoalSeen,
    },
    /// There is slack, and a higher limit is tried.
    Raise(GoalSeen),
    /// The higher limit did not keep it.
    Back(GoalSeen),
    /// No limit keeps it.
    Impossible(GoalSeen),
    /// Too few transactions of the class to go on.
    TooFew,
}

impl GoalReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            GoalReason::Search(_) => "goal_search",
            GoalReason::Ceiling { .. } => "goal_ceiling",
            GoalReason::Raise(_) => "goal_raise",
            GoalReason::Back(_) => "goal_back",
            GoalReason::Impossible(_) => "goal_impossible",
            GoalReason::TooFew => "goal_too_few",
        }
    }
}

impl fmt::Display for GoalSeen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GoalSeen { count, ratio, mean_s } = self;
        let mean_ms = mean_s * 1e3;
        write!(formatter, "{ratio:.2} of what is allowed, mean {mean_ms:.1} ms, of {count:.0}")
    }
}

impl fmt::Display for GoalReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GoalReason::Search(seen) => write!(formatter, "goal: missed, searching: {seen}"),
            GoalReason::Ceiling { ceiling, seen } => {
                write!(formatter, "goal: kept up to {ceiling}: {seen}")
            }
            GoalReason::Raise(seen) => write!(formatter, "goal: slack, trying more: {seen}"),
            GoalReason::Back(seen) => write!(formatter, "goal: more would miss it: {seen}"),
            GoalReason::Impossible(seen) => {
                write!(formatter, "goal: no limit keeps it, the nearest: {seen}")
            }
            GoalReason::TooFew => formatter.write_str("goal: too few transactions to judge"),
        }
    }
}
