//! Conflict ratio: how many locks lie idle.
//!
//! # Mechanism
//! Mönkeberg and Weikum, "Performance evaluation of an adaptive and robust load control method for
//! the avoidance of data-contention thrashing" (VLDB 1992):
//!
//! ```text
//! ρ = locks held by all transactions / locks held by the transactions that run
//! ```
//!
//! ρ is 1 while nobody who has a lock waits for one. They found the beginning of thrashing at about
//! the same ρ for quite different workloads, and take 1.3 as critical. Below it transactions are
//! admitted, above it none are, and transactions that wait and that others wait for are cancelled.
//!
//! # The step, once per interval
//! Locks held by those who wait, over locks held by those who run, is ρ − 1. Doubling the
//! transactions inside about doubles the chance that a request meets a lock, so at moderate
//! contention ρ − 1 grows in proportion to the number inside, n. The limit goes where it would be
//! critical:
//!
//! ```text
//! n' = n·(1.3 − 1)/(ρ − 1)
//! ```
//!
//! by at least one transaction and by no more than `step` of n, because the ratio at one moment is
//! noisy, and because above the critical value it grows faster than n.
//!
//! # Example
//! 20 may run, and at the end of the interval all hold 96 locks and the running 80: ρ = 1.2. The
//! limit becomes 20·0.3/0.2 = 30. With 60 of 96 held by the running ρ = 1.6, and the limit becomes
//! 20·0.3/0.6 = 10.
//!
//! # Where this leaves the study
//! * **Source.** The ratio, the critical value and the two measures are given as the auto-tuning
//!   study cites them (Section 2.2); the text was not at hand. The step is ours, since the study
//!   decides whenever a transaction comes or ends.
//! * **No stop.** Above the critical value the study admits nobody until the ratio has fallen. In
//!   an interval of a second a database can end all it has, so the gate lowers the limit instead.
//! * **No cancelling.** A gate never aborts a transaction that has started.
//! * **Bounds.** The limit stays within the bounds and the concurrency, as with all controllers.
//!
//! # Limits
//! A few transactions that hold most locks decide the ratio: while one of them waits it is far
//! above, and a moment later 1. The limit then goes up and down by `step`.

use super::{LocksReason, decide_by_locks};
use crate::controller::{Concurrency, Controller, whole};
use crate::parameters::{Allowed, settings};
use crate::{Bounds, Decision, Draw, LockObservation, Mpl, Observation};

settings! {
    /// The parameters of [`ConflictRatio`].
    pub struct ConflictRatioSettings;

    /// The study's critical ratio of 1.3; `step` is ours.
    pub const PUBLISHED;

    critical: f64 = 1.3, "critical", "ratio", Allowed::Number(1.001, 100.0),
        "ratio of locks above which the limit falls";
    step: f64 = 0.5, "step", "share", Allowed::Number(0.0, 1.0),
        "largest relative change of the limit in one interval";
    concurrency: Concurrency = Concurrency::Peak, "concurrency", "", Allowed::Moment,
        "which concurrency caps the limit";
}

/// The controller that holds the conflict ratio at its critical value.
#[derive(Clone, Debug)]
pub struct ConflictRatio {
    bounds: Bounds,
    start: Mpl,
    settings: ConflictRatioSettings,
}

impl ConflictRatio {
    /// Controls within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: ConflictRatioSettings) -> ConflictRatio {
        ConflictRatio { bounds, start: bounds.clamp(start), settings }
    }

    /// The limit that a ratio asks for.
    fn judge(&self, limit: Mpl, ratio: f64) -> (Mpl, LocksReason) {
        let level = f64::from(limit.get());
        let ConflictRatioSettings { critical, step, .. } = self.settings;
        let factor = (critical - 1.0) / (ratio - 1.0);
        let factor = factor.max(1.0 - step).min(1.0 + step);
        let wanted = Mpl::at_least_one(whole((level * factor).round()));
        if ratio > critical {
            let less = Mpl::at_least_one(limit.get() - 1);
            (wanted.min(less), LocksReason::AboveCritical { ratio })
        } else {
            let more = Mpl::at_least_one(limit.get().saturating_add(1));
            (wanted.max(more), LocksReason::BelowCritical { ratio })
        }
    }
}

/// The conflict ratio, at least 1; infinite when every transaction that holds a lock waits, 1 when
/// none holds any.
fn ratio(locks: &LockObservation) -> f64 {
    let all = locks.locks_held.max(locks.locks_held_by_running);
    if all == 0 { 1.0 } else { all as f64 / locks.locks_held_by_running as f64 }
}

impl Controller for ConflictRatio {
    fn name(&self) -> &'static str {
        "conflict-ratio"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let judge = |limit, locks: &LockObservation| self.judge(limit, ratio(locks));
        decide_by_locks(self.bounds, self.settings.concurrency, observation, judge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;
    use crate::testing::{bounds, observed};

    fn decide(limit: u32, locks_held: u64, locks_held_by_running: u64) -> Decision {
        let mut seen = observed(limit, 1_000, 500);
        let locks = LockObservation { locks_held, locks_held_by_running, ..Default::default() };
        seen.locks = Some(locks);
        let start = Mpl::at_least_one(limit);
        let settings = ConflictRatioSettings::PUBLISHED;
        let mut controller = ConflictRatio::new(bounds(1, 100), start, settings);
        controller.decide(&seen, Draw::from_bits(0))
    }

    #[test]
    fn the_limit_goes_where_the_ratio_would_be_critical() {
        let table = [
            (20, (96, 80), 30, "1.2: 20·0.3/0.2"),
            (20, (96, 60), 10, "1.6: 20·0.3/0.6"),
            (20, (125, 100), 24, "1.25: 20·0.3/0.25"),
            (20, (150, 100), 12, "1.5: 20·0.3/0.5"),
            (20, (100, 100), 30, "1: no conflict, half more"),
            (20, (0, 0), 30, "no locks, no conflict"),
            (20, (300, 100), 10, "3: 3, but half less at most"),
            (20, (300, 0), 10, "all who hold a lock wait"),
            (1, (100, 100), 2, "1.5, rounded"),
            (1, (300, 100), 1, "no way down"),
            (3, (134, 100), 2, "1.34: 2.6, but at least one less"),
            (90, (100, 100), 100, "135, but 100 is the highest"),
            (20, (80, 100), 30, "more held by some than by all: taken as no conflict"),
        ];
        for (limit, (all, running), expected, case) in table {
            assert_eq!(decide(limit, all, running).limit.get(), expected, "{case}");
        }
    }

    #[test]
    fn the_reason_tells_the_ratio() {
        let reason = |all, running| decide(20, all, running).reason;
        let above = LocksReason::AboveCritical { ratio: 1.5 };
        assert_eq!(reason(150, 100), Reason::Locks(above));
        let below = LocksReason::BelowCritical { ratio: 1.25 };
        assert_eq!(reason(125, 100), Reason::Locks(below));
        let none = LocksReason::AboveCritical { ratio: f64::INFINITY };
        assert_eq!(reason(1, 0), Reason::Locks(none));
    }
}
