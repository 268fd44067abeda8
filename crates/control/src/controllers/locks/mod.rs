//! Load control that judges a limit by the state of the lock manager.
//!
//! # Mechanism
//! Under two-phase locking a transaction keeps its locks until it ends, also while it waits for the
//! locks of another. With more transactions inside, more of them wait, those that wait keep more
//! locks, and so still more wait: beyond a point throughput falls. Two studies look for that point
//! in the lock manager instead of in throughput, each by a ratio that hardly depends on the
//! workload:
//!
//! | controller | what it watches | the database can take no more when |
//! | --- | --- | --- |
//! | [`HalfAndHalf`] | the state of each transaction | more than half have locks and wait |
//! | [`ConflictRatio`] | locks held by all, over locks held by those that run | it is above 1.3 |
//!
//! The head of each file has the rule, worked through, with its source.
//!
//! # Where this leaves the studies
//! * **Once per interval.** The studies decide whenever a transaction comes, ends, gets a lock or
//!   waits for one, and admit one transaction more or not. A gate that is told of the locks once
//!   per interval cannot. Each file has a rule that goes in one step to where the study's own test
//!   would have stopped it, as far as the state at the end of the interval tells.
//! * **No cancelling.** Both studies also abort transactions to get out of thrashing at once. A
//!   gate never aborts a transaction that has started, so the limit is lowered and the number
//!   inside follows as transactions end.
//! * **No statistics.** A database that tells nothing of its locks leaves the limit where it is.
//!
//! # Limits
//! They see locks only. A database that thrashes for want of memory, or one in which nobody waits
//! for a lock but every processor is taken, looks fine to both, and the limit goes up to the
//! concurrency.

mod conflict_ratio;
mod half_and_half;

use crate::controller::{Concurrency, within_concurrency};
use crate::reason::reasons;
use crate::{Bounds, Decision, LockObservation, Mpl, Observation, Reason};

pub use conflict_ratio::{ConflictRatio, ConflictRatioSettings};
pub use half_and_half::{HalfAndHalf, HalfAndHalfSettings};

/// The decision of a control that looks at the state of the locks alone, by what `judge` makes of
/// the limit in force and that state.
fn decide_by_locks(
    bounds: Bounds,
    concurrency: Concurrency,
    observation: &Observation,
    judge: impl FnOnce(Mpl, &LockObservation) -> (Mpl, LocksReason),
) -> Decision {
    let (allowed, limit) = match within_concurrency(bounds, concurrency, observation) {
        Ok(within) => within,
        Err(lowered) => return lowered,
    };
    let Some(locks) = &observation.locks else {
        return Decision { limit, reason: Reason::Locks(LocksReason::NoStatistics) };
    };
    let (wanted, reason) = judge(limit, locks);
    Decision { limit: allowed.clamp(wanted), reason: Reason::Locks(reason) }
}

reasons! {
    /// Why a limit was chosen.
    pub enum LocksReason {
        /// The limit stays: the database tells nothing of its locks.
        NoStatistics = "no_lock_statistics" =>
            "hold: the database does not tell what locks it holds";
        /// The limit stays: no transaction is inside.
        NobodyInside = "nobody_inside" => "hold: no transaction inside";
        /// Half-and-half raises the limit: most transactions have a good part of their locks and
        /// run.
        Underloaded {
            /// Share of the transactions that are mature and run.
            running: f64,
        } = "underloaded" => "half-and-half: {:.0} % mature and running, up", running * 100.0;
        /// Half-and-half lowers the limit: most transactions have a good part of their locks and
        /// wait.
        Overloaded {
            /// Share of the transactions that are mature and wait for a lock.
            blocked: f64,
        } = "overloaded" => "half-and-half: {:.0} % mature and blocked, down", blocked * 100.0;
        /// Half-and-half leaves the limit where it is: neither holds.
        Comfortable {
            /// Share of the transactions that are mature and run.
            running: f64,
            /// Share of the transactions that are mature and wait for a lock.
            blocked: f64,
        } = "comfortable" =>
            "half-and-half: {:.0} % mature and running, {:.0} % mature and blocked, hold",
            running * 100.0, blocked * 100.0;
        /// The conflict ratio allows a higher limit.
        BelowCritical {
            /// The ratio seen.
            ratio: f64,
        } = "below_critical" => "conflict ratio: {ratio:.2}, up";
        /// The conflict ratio asks for a lower limit.
        AboveCritical {
            /// The ratio seen; infinite when every transaction with a lock waits.
            ratio: f64,
        } = "above_critical" => "conflict ratio: {ratio:.2}, down";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bounds, decided, limits, observed};
    use crate::{Controller, LockObservation, Mpl};

    fn both(start: u32) -> [Box<dyn Controller>; 2] {
        let (bounds, start) = (bounds(1, 100), Mpl::at_least_one(start));
        [
            Box::new(HalfAndHalf::new(bounds, start, HalfAndHalfSettings::PUBLISHED)),
            Box::new(ConflictRatio::new(bounds, start, ConflictRatioSettings::PUBLISHED)),
        ]
    }

    #[test]
    fn without_statistics_the_limit_stays() {
        for mut controller in both(20) {
            let said = decided(controller.as_mut(), &observed(20, 1_000, 500));
            assert_eq!(said, (20, "no_lock_statistics"), "{}", controller.name());
        }
    }

    /// Nobody waits for a lock, so both would go up, but there are only 22 transactions.
    #[test]
    fn the_limit_never_exceeds_the_concurrency() {
        for mut controller in both(20) {
            let mut seen = observed(20, 22, 500);
            let locks = LockObservation { mature_running: 20, ..LockObservation::default() };
            seen.locks =
                Some(LockObservation { locks_held: 80, locks_held_by_running: 80, ..locks });
            assert_eq!(decided(controller.as_mut(), &seen).0, 22, "{}", controller.name());
            seen.limit = Mpl::at_least_one(40);
            let said = decided(controller.as_mut(), &seen);
            assert_eq!(said, (22, "concurrency"), "{}", controller.name());
        }
    }

    /// With n inside, n % of them wait; all hold a hundred locks and are mature.
    fn contended(level: u32) -> LockObservation {
        let blocked = level * level / 100;
        LockObservation {
            mature_running: level - blocked,
            mature_blocked: blocked,
            young_running: 0,
            young_blocked: 0,
            locks_held: 100 * u64::from(level),
            locks_held_by_running: u64::from(100 * level - level * level),
        }
    }

    /// Half-and-half goes up while more than 52.5 % run, so up to 47, and down while more than
    /// 52.5 % wait, so from 53: it stays wherever it gets to between. The conflict ratio is
    /// 1/(1 − n/100): 1.299 at 23 and 1.316 at 24.
    #[test]
    fn both_find_the_level_at_which_their_ratio_is_critical() {
        let bands = [47..=53, 23..=24];
        for (index, band) in bands.into_iter().enumerate() {
            for start in [1, 2, 10, 50, 100] {
                let limits = limits(both(start)[index].as_mut(), 40, |limit| Observation {
                    locks: Some(contended(limit)),
                    ..observed(limit, 1_000, 500)
                });
                let settled = &limits[20..];
                assert!(settled.iter().all(|limit| band.contains(limit)), "{start}: {settled:?}");
            }
        }
    }
}
