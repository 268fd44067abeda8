//! What every controller has in common: what it is given and what it must answer.

use std::fmt;

use crate::controllers::{
    BeliefReason, FeedbackReason, GoalReason, GoalStatus, HeissWagnerReason, LatencyReason,
    LocksReason, PairedReason, Proposal, ScalabilityReason,
};
use crate::{Draw, IntervalRule, Mpl, Observation};

/// Decides, once per control interval, how many transactions may run at once.
///
/// A controller is a function of the observations and draws it was given since it was made:
/// the same sequence gives the same decisions.
pub trait Controller: Send {
    /// The name of the algorithm as flags, logs and metrics spell it.
    fn name(&self) -> &'static str;

    /// The limit to apply until the first decision, `n*(t_0)`.
    fn start(&self) -> Mpl;

    /// When a control interval of this controller is over.
    fn interval_rule(&self) -> IntervalRule {
        IntervalRule::default()
    }

    /// The limit for the next interval, `n*(t_(i+1))`, given what the last one showed.
    fn decide(&mut self, observation: &Observation, draw: Draw) -> Decision;

    /// What would have been decided by a controller that is asked and not obeyed; `None` for every
    /// other, and before the first decision.
    fn proposal(&self) -> Option<Proposal> {
        None
    }

    /// What is known of the response time to keep; `None` where there is none.
    fn goal(&self) -> Option<GoalStatus> {
        None
    }
}

/// A controller's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// The limit for the next interval.
    pub limit: Mpl,
    /// The rule that chose it, with the numbers that decided.
    pub reason: Reason,
}

/// Why a limit was chosen. Changes are fractions: 0.12 is 12 % more, -0.12 is 12 % less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// The limit was set by hand.
    Fixed,
    /// The gate stays open while a controller is asked and not obeyed.
    Open,
    /// The limit was above the concurrency, transactions running and waiting, that was seen.
    Concurrency {
        /// The concurrency seen.
        seen: u32,
    },
    /// No transaction completed, so there is nothing to learn from the interval.
    NothingCompleted,
    /// There is no earlier interval to compare with.
    First,
    /// Hill climbing goes up: throughput rose enough for the higher limit.
    Climb(Change),
    /// Hill climbing goes down: throughput rose although the limit fell.
    Descend(Change),
    /// Hill climbing goes back to the limit before the last: the last step did not pay.
    Back(Change),
    /// Hill climbing stays at the limit it went back to, measuring.
    Rest {
        /// Intervals of rest still to come.
        left: u32,
    },
    /// Hill climbing ends its rest early: the workload is another one.
    Moved {
        /// Change of throughput from the mean of the rest to the last interval.
        throughput: f64,
    },
    /// The limit goes to the apex of the parabola through the last observations.
    Apex {
        /// Where the apex is, in transactions.
        at: f64,
    },
    /// The apex is further up than one step may go.
    Capped {
        /// Where the apex is, in transactions.
        at: f64,
    },
    /// The limit takes a random step, because the observations gave no parabola to follow.
    Wiggle(NoApex),
    /// The Gaussian process, which believes in a throughput curve.
    Belief(BeliefReason),
    /// The feedback controller of the external-scheduling study.
    Feedback(FeedbackReason),
    /// A limiter that looks at latency.
    Latency(LatencyReason),
    /// A load control that looks at locks.
    Locks(LocksReason),
    /// A load control of Heiss and Wagner.
    HeissWagner(HeissWagnerReason),
    /// The controller that fits a scalability law.
    Scalability(ScalabilityReason),
    /// The controller that compares limits in pairs.
    Paired(PairedReason),
    /// A response time to keep.
    Goal(GoalReason),
}

impl Reason {
    /// The rule that decided, in one word for counting; without its numbers.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Reason::Fixed => "fixed",
            Reason::Open => "open",
            Reason::Concurrency { .. } => "concurrency",
            Reason::NothingCompleted => "nothing_completed",
            Reason::First => "first",
            Reason::Climb(_) => "climb",
            Reason::Descend(_) => "descend",
            Reason::Back(_) => "back",
            Reason::Rest { .. } => "rest",
            Reason::Moved { .. } => "moved",
            Reason::Apex { .. } => "apex",
            Reason::Capped { .. } => "capped",
            Reason::Wiggle(_) => "wiggle",
            Reason::Belief(reason) => reason.kind(),
            Reason::Feedback(reason) => reason.kind(),
            Reason::Latency(reason) => reason.kind(),
            Reason::Locks(reason) => reason.kind(),
            Reason::HeissWagner(reason) => reason.kind(),
            Reason::Scalability(reason) => reason.kind(),
            Reason::Paired(reason) => reason.kind(),
            Reason::Goal(reason) => reason.kind(),
        }
    }
}

/// The change from one interval to the next that a hill-climbing step was judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Relative change of throughput.
    pub throughput: f64,
    /// Relative change of response time, where it was judged by.
    pub response_time: Option<f64>,
    /// Relative change of the limit.
    pub limit: f64,
}

/// Why observations gave no apex to go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoApex {
    /// Too few observations so far.
    TooFew,
    /// Two observations were made at the same limit.
    SameLimit,
    /// The parabola opens upward or is a straight line.
    NotConcave,
    /// The apex is at the limit already in force.
    AlreadyThere,
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Fixed => formatter.write_str("fixed"),
            Reason::Open => formatter.write_str("open: only observing"),
            Reason::Concurrency { seen } => {
                write!(formatter, "concurrency: only {seen} running or waiting")
            }
            Reason::NothingCompleted => formatter.write_str("hold: nothing completed"),
            Reason::First => formatter.write_str("probe: nothing to compare with yet"),
            Reason::Climb(change) => write!(formatter, "climb: {change}"),
            Reason::Descend(change) => write!(formatter, "descend: {change}"),
            Reason::Back(change) => write!(formatter, "back: {change}"),
            Reason::Rest { left } => write!(formatter, "rest: {left} more before the next probe"),
            Reason::Moved { throughput } => {
                write!(formatter, "probe: throughput {} since the rest began", Moved(*throughput))
            }
            Reason::Apex { at } => write!(formatter, "apex: parabola peaks at {at:.1}"),
            Reason::Capped { at } => {
                write!(formatter, "apex: parabola peaks at {at:.1}, one step towards it")
            }
            Reason::Wiggle(cause) => write!(formatter, "wiggle: {cause}"),
            Reason::Belief(reason) => reason.fmt(formatter),
            Reason::Feedback(reason) => reason.fmt(formatter),
            Reason::Latency(reason) => reason.fmt(formatter),
            Reason::Locks(reason) => reason.fmt(formatter),
            Reason::HeissWagner(reason) => reason.fmt(formatter),
            Reason::Scalability(reason) => reason.fmt(formatter),
            Reason::Paired(reason) => reason.fmt(formatter),
            Reason::Goal(reason) => reason.fmt(formatter),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.limit < 0.0 { "less" } else { "more" };
        let limit = self.limit.abs() * 100.0;
        write!(formatter, "throughput {}", Moved(self.throughput))?;
        if let Some(response_time) = self.response_time {
            write!(formatter, ", response time {}", Moved(response_time))?;
        }
        write!(formatter, " for {limit:.0} % {side}")
    }
}

impl fmt::Display for NoApex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            NoApex::TooFew => "too few observations for a parabola",
            NoApex::SameLimit => "two observations at one limit",
            NoApex::NotConcave => "the parabola opens upward",
            NoApex::AlreadyThere => "the parabola peaks at this limit",
        })
    }
}

/// A relative change in words.
struct Moved(f64);

impl fmt::Display for Moved {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.0 < 0.0 { "fell" } else { "rose" };
        write!(formatter, "{verb} {:.0} %", self.0.abs() * 100.0)
    }
}

/// The limits a controller may choose from, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    min: Mpl,
    max: Mpl,
}

/// Bounds that hold no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lowest limit, {min}, is above the highest, {max}: lower the one or raise the other")]
pub struct BoundsError {
    /// The lowest limit asked for.
    pub min: Mpl,
    /// The highest limit asked for.
    pub max: Mpl,
}

impl Bounds {
    /// The limits from `min` to `max`.
    ///
    /// # Errors
    /// When `min` is above `max`.
    pub fn new(min: Mpl, max: Mpl) -> Result<Bounds, BoundsError> {
        if min > max {
            return Err(BoundsError { min, max });
        }
        Ok(Bounds { min, max })
    }

    /// The lowest limit.
    #[must_use]
    pub const fn min(self) -> Mpl {
        self.min
    }

    /// The highest limit.
    #[must_use]
    pub const fn max(self) -> Mpl {
        self.max
    }

    /// The limit within the bounds that is nearest to `limit`.
    #[must_use]
    pub fn clamp(self, limit: Mpl) -> Mpl {
        limit.clamp(self.min, self.max)
    }

    /// These bounds with the highest limit lowered to a concurrency of `seen`: more permits than
    /// transactions would do nothing (Section 3.2). The lowest limit stands.
    pub(crate) fn capped_at(self, seen: u32) -> Bounds {
        Bounds { max: self.clamp(Mpl::at_least_one(seen)), ..self }
    }
}

/// How far one step changes the limit, Δ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// As many transactions, whatever the limit: the study's form.
    Absolute(u32),
    /// This fraction of the limit, rounded down.
    Relative(f64),
}

impl Step {
    /// The step from `limit`, in transactions; at least 1.
    #[must_use]
    pub fn from(self, limit: Mpl) -> u32 {
        let step = match self {
            Step::Absolute(step) => step,
            Step::Relative(fraction) => whole(fraction * f64::from(limit.get())),
        };
        step.max(1)
    }
}

/// Which number stands for the concurrency of an interval, `n(t_i)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// The highest of the interval. Short transactions in a closed system leave moments with few
    /// of them inside, and one such moment must not lower the limit.
    Peak,
    /// The last of the interval: the study's reading (Section 3.2).
    AtEnd,
}

impl Concurrency {
    pub(crate) fn of(self, observation: &Observation) -> u32 {
        match self {
            Concurrency::Peak => observation.concurrency_peak,
            Concurrency::AtEnd => observation.concurrency,
        }
    }
}

/// What the concurrency leaves of `bounds`, and the limit in force; or the decision to lower a
/// limit above the concurrency, as all algorithms of the study do first (Section 3.2).
pub(crate) fn within_concurrency(
    bounds: Bounds,
    concurrency: Concurrency,
    observation: &Observation,
) -> Result<(Bounds, Mpl), Decision> {
    let seen = concurrency.of(observation);
    let allowed = bounds.capped_at(seen);
    let limit = allowed.clamp(observation.limit);
    if limit < observation.limit {
        return Err(Decision { limit, reason: Reason::Concurrency { seen } });
    }
    Ok((allowed, limit))
}

/// The whole part of `number`; 0 below 1 and for NaN, the highest `u32` above all of them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is what is wanted here"
)]
pub(crate) fn whole(number: f64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::bounds;

    fn change(throughput: f64, limit: f64) -> Change {
        Change { throughput, response_time: None, limit }
    }

    #[test]
    fn reasons_read_well_in_a_log_line() {
        let table = [
            (Reason::Fixed, "fixed"),
            (Reason::Open, "open: only observing"),
            (Reason::Concurrency { seen: 3 }, "concurrency: only 3 running or waiting"),
            (Reason::NothingCompleted, "hold: nothing completed"),
            (Reason::First, "probe: nothing to compare with yet"),
            (Reason::Climb(change(0.12, 0.333)), "climb: throughput rose 12 % for 33 % more"),
            (Reason::Descend(change(0.05, -0.5)), "descend: throughput rose 5 % for 50 % less"),
            (Reason::Back(change(-0.1, 0.5)), "back: throughput fell 10 % for 50 % more"),
            (Reason::Rest { left: 7 }, "rest: 7 more before the next probe"),
            (
                Reason::Moved { throughput: -0.3 },
                "probe: throughput fell 30 % since the rest began",
            ),
            (Reason::Apex { at: 25.04 }, "apex: parabola peaks at 25.0"),
            (Reason::Capped { at: 99.96 }, "apex: parabola peaks at 100.0, one step towards it"),
            (Reason::Wiggle(NoApex::SameLimit), "wiggle: two observations at one limit"),
        ];
        for (reason, line) in table {
            assert_eq!(reason.to_string(), line);
        }
    }

    #[test]
    fn bounds_hold_at_least_one_limit() {
        let five = Mpl::at_least_one(5);
        assert!(Bounds::new(five, five).is_ok());
        let error = Bounds::new(five, Mpl::ONE).expect_err("5 is above 1");
        assert_eq!(
            error.to_string(),
            "the lowest limit, 5, is above the highest, 1: lower the one or raise the other"
        );
    }

    #[test]
    fn the_concurrency_lowers_the_highest_limit_but_not_below_the_lowest() {
        for (seen, max) in [(0, 4), (3, 4), (4, 4), (7, 7), (100, 100), (101, 100)] {
            assert_eq!(bounds(4, 100).capped_at(seen), bounds(4, max), "{seen}");
        }
    }

    #[test]
    fn a_step_is_never_nothing() {
        let table = [
            (Step::Absolute(10), 3, 10),
            (Step::Absolute(0), 3, 1),
            (Step::Relative(0.5), 9, 4),
            (Step::Relative(0.5), 1, 1),
            (Step::Relative(f64::NAN), 9, 1),
            (Step::Relative(-1.0), 9, 1),
            (Step::Relative(f64::INFINITY), 9, u32::MAX),
        ];
        for (step, limit, expected) in table {
            assert_eq!(step.from(Mpl::at_least_one(limit)), expected, "{step:?} from {limit}");
        }
    }
}
