//! Half-and-half: half of the transactions should be getting on.
//!
//! # Mechanism
//! Carey, Krishnamurthi and Livny, "Load control for locking: the 'half-and-half' approach" (PODS
//! 1990). A transaction is *mature* once it has a quarter of the locks it will ask for; before that
//! it is too early to say how it gets on. Of all transactions inside, with a tolerance δ:
//!
//! | state | holds when | what follows |
//! | --- | --- | --- |
//! | underloaded | a share above 1/2 + δ is mature and runs | admit |
//! | overloaded | a share above 1/2 + δ is mature and waits for a lock | admit nobody, cancel |
//! | comfortable | neither | admit one for each that ends |
//!
//! The rule stops itself: who is admitted is young, and makes the share of the mature smaller.
//!
//! # The step, once per interval
//! With A inside, of which R are mature and run, and h = 1/2 + δ, the study's test would admit k
//! until R/(A + k) = h, if nobody's state changed meanwhile. So the limit becomes A·r/h with
//! r = R/A, and at least one more than it was.
//!
//! With B mature and waiting, its cancelling would end after k with (B − k)/(A − k) = h. So the
//! limit becomes A·(1 − b)/(1 − h) with b = B/A, at least one less than it was, and no less than
//! `fall` allows.
//!
//! # Example
//! δ = 0.025 and 40 inside. 30 of them are mature and run: 30/0.525 = 57.1, so the limit becomes
//! 57. If instead 28 are mature and wait, b = 0.7: 40·0.3/0.475 = 25.3, so the limit becomes 25.
//!
//! # Where this leaves the study
//! * **Source.** The rule and δ are given as later work cites them; the study's text was not at
//!   hand. The two steps above are ours, since the study decides at every event.
//! * **No cancelling.** The study aborts transactions that wait, and that others wait for, until it
//!   is overloaded no more. A gate never aborts one that has started: the lower limit takes effect
//!   as transactions end. That is slower, and a thrashing database ends few.
//! * **A fall has a floor.** The state at one moment may be far from that of the interval. With all
//!   waiting the formula gives 0. `fall` lets an interval take half, and the next tells more.
//! * **Bounds.** The limit stays within the bounds and the concurrency, as with all controllers.
//!
//! # Limits
//! A quarter of the locks can be told only where the number of locks is known beforehand or
//! estimated from transactions of the same kind. With few inside the shares are coarse: of three
//! transactions, two are either more than half or not.

use super::{LocksReason, decide_by_locks};
use crate::controller::{Concurrency, Controller, whole};
use crate::parameters::{Allowed, settings};
use crate::{Bounds, Decision, Draw, LockObservation, Mpl, Observation};

settings! {
    /// The parameters of [`HalfAndHalf`].
    pub struct HalfAndHalfSettings;

    /// δ = 0.025 as the study is cited; `fall` is ours.
    pub const PUBLISHED;

    tolerance: f64 = 0.025, "tolerance", "share", Allowed::Number(0.0, 0.499),
        "margin above a half that a share of the transactions must reach, δ";
    fall: f64 = 0.5, "fall", "share", Allowed::Number(0.0, 1.0),
        "largest relative fall of the limit in one interval";
    concurrency: Concurrency = Concurrency::Peak, "concurrency", "", Allowed::Moment,
        "which concurrency caps the limit";
}

/// The half-and-half controller.
#[derive(Clone, Debug)]
pub struct HalfAndHalf {
    bounds: Bounds,
    start: Mpl,
    settings: HalfAndHalfSettings,
}

impl HalfAndHalf {
    /// Controls within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: HalfAndHalfSettings) -> HalfAndHalf {
        HalfAndHalf { bounds, start: bounds.clamp(start), settings }
    }

    /// The limit that the state of the lock manager asks for.
    fn judge(&self, limit: Mpl, locks: &LockObservation) -> (Mpl, LocksReason) {
        let (running, blocked) = (f64::from(locks.mature_running), f64::from(locks.mature_blocked));
        let young = f64::from(locks.young_running) + f64::from(locks.young_blocked);
        let inside = running + blocked + young;
        if inside <= 0.0 {
            return (limit, LocksReason::NobodyInside);
        }
        let (running, blocked) = (running / inside, blocked / inside);
        let half = 0.5 + self.settings.tolerance;
        if running > half {
            let wanted = Mpl::at_least_one(whole(inside * running / half));
            let more = Mpl::at_least_one(limit.get().saturating_add(1));
            (wanted.max(more), LocksReason::Underloaded { running })
        } else if blocked > half {
            let kept = ((1.0 - blocked) / (1.0 - half)).max(1.0 - self.settings.fall);
            let wanted = Mpl::at_least_one(whole(inside * kept));
            let less = Mpl::at_least_one(limit.get() - 1);
            (wanted.min(less), LocksReason::Overloaded { blocked })
        } else {
            (limit, LocksReason::Comfortable { running, blocked })
        }
    }
}

impl Controller for HalfAndHalf {
    fn name(&self) -> &'static str {
        "half-and-half"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let judge = |limit, locks: &LockObservation| self.judge(limit, locks);
        decide_by_locks(self.bounds, self.settings.concurrency, observation, judge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bounds, decided, observed};

    /// The limit after an interval at `limit` that ended with so many mature running, mature
    /// blocked, young running and young blocked.
    fn next(limit: u32, state: [u32; 4]) -> u32 {
        let [mature_running, mature_blocked, young_running, young_blocked] = state;
        let mut seen = observed(limit, 1_000, 500);
        seen.locks = Some(LockObservation {
            mature_running,
            mature_blocked,
            young_running,
            young_blocked,
            ..LockObservation::default()
        });
        let start = Mpl::at_least_one(limit);
        let settings = HalfAndHalfSettings::PUBLISHED;
        let mut controller = HalfAndHalf::new(bounds(1, 100), start, settings);
        decided(&mut controller, &seen).0
    }

    /// h = 0.525, 1 − h = 0.475.
    #[test]
    fn each_state_and_its_step() {
        let table = [
            (40, [30, 0, 10, 0], 57, "30 of 40 run: 30/0.525 = 57.1"),
            (40, [22, 0, 18, 0], 41, "22/0.525 = 41.9"),
            (40, [21, 0, 19, 0], 40, "21 of 40 run, 0.525 and not above"),
            (40, [6, 28, 6, 0], 25, "28 of 40 wait: 40·0.3/0.475 = 25.3"),
            (40, [0, 22, 9, 9], 37, "40·0.45/0.475 = 37.9"),
            (40, [0, 21, 9, 10], 40, "21 of 40 wait, not above"),
            (40, [0, 40, 0, 0], 20, "all wait: half"),
            (40, [0, 0, 20, 20], 40, "all young"),
            (40, [20, 20, 0, 0], 40, "half and half"),
            (1, [1, 0, 0, 0], 2, "1/0.525 = 1.9, and at least one more"),
            (2, [0, 2, 0, 0], 1, "half of 2"),
            (1, [0, 1, 0, 0], 1, "no way down"),
            (80, [80, 0, 0, 0], 100, "152, but 100 is the highest"),
            (40, [0, 0, 0, 0], 40, "nobody inside"),
            (20, [0, 28, 12, 0], 19, "40 still inside after a fall: 25.3, and at least one less"),
        ];
        for (limit, state, expected, case) in table {
            assert_eq!(next(limit, state), expected, "{case}");
        }
    }

    #[test]
    fn counts_that_cannot_be_lead_nowhere_else() {
        for state in [[u32::MAX; 4], [u32::MAX, 0, 0, 0], [0, u32::MAX, 0, 0]] {
            let limit = next(50, state);
            assert!((1..=100).contains(&limit), "{state:?}: {limit}");
        }
    }
}
