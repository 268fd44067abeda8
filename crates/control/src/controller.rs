//! What every controller has in common: what it is given and what it must answer.

use crate::controllers::{ArmDecision, GoalStatus, Proposal};
use crate::{Draw, IntervalRule, Mpl, Observation, Reason};

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

    /// Returns the limit that was set by hand and that nothing may exceed, not even for the sake of
    /// a response time; `None` where the bounds alone say what is allowed.
    fn highest_by_hand(&self) -> Option<Mpl> {
        None
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

    /// Returns the arm in force from now on; `None` of a controller that chooses limits only.
    fn arm(&self) -> Option<ArmDecision> {
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
