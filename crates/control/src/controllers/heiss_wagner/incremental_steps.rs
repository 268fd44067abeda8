//! Incremental steps: go on while throughput rises, turn round when it falls.
//!
//! # Mechanism
//! Writing n and n' for the limit of this interval and of the one before, P and P' for their
//! throughputs:
//!
//! ```text
//! next n = n + sign(n − n') · β·n·(P − P')/P'
//! ```
//!
//! If throughput rose, the sign is that of the last step and the limit goes on; if it fell, the two
//! signs make the limit turn round. The more throughput changed, the longer the step: far from the
//! top, where the curve is steep, the limit moves fast, and near it slowly.
//!
//! # Example
//! β = 2. From 20 to 24 throughput rose from 1,000 to 1,100: the next limit is 24 + 2·24·0.1 =
//! 28.8, so 29. There it fell to 1,067, by 3 %: the step is 2·29·0.03 = 1.74, but at least 5 % of
//! 29 and at least 1 are taken, and the other way: 27.
//!
//! # Where this leaves the paper
//! * **Relative change.** The paper multiplies the change of throughput itself by a constant, which
//!   has to fit the speed of the database. Here both changes are relative and β is a plain number.
//!   On a curve that locally follows n^e, steps grow while β·e is above 1, so β = 2 climbs ever
//!   faster where doubling the limit gains more than √2, and slows down beyond.
//! * **Least and longest step.** Without a step there is nothing to compare, so one of `least` is
//!   taken where the rule gives less, and at the start, upward. `most` keeps one interval's noise
//!   from deciding all.
//! * **The load.** The paper ties the bound to the load, so that it does not run away while few
//!   transactions come. Here the concurrency is an upper bound, as with all controllers. An
//!   interval whose limit was above it is not compared with the next.
//! * **Bounds.** A step that the bounds forbid is taken the other way, or a limit at the end of its
//!   range would never leave it.
//! * **Nothing completed.** Such an interval is left out.
//!
//! # Limits
//! It never rests. Where noise changes throughput more than the step does, it walks at random. It
//! climbs the hill it stands on.

use super::HeissWagnerReason;
use crate::controller::{Concurrency, Controller, Step, whole, within_concurrency};
use crate::parameters::{Allowed, settings};
use crate::{Bounds, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`IncrementalSteps`].
    pub struct IncrementalStepsSettings;

    /// For a proxy with intervals of a second. β = 2 grows on a curve steeper than √n; a step of at
    /// least 10 % moves throughput about as much as its noise of 3 to 5 % where it matters; half
    /// the limit at most is what hill climbing takes.
    pub const PROXY;

    gain: f64 = 2.0, "gain", "factor", Allowed::Number(0.01, 100.0),
        "relative step for a relative change of throughput, β";
    least: Step = Step::Relative(0.1), "least", "transactions", Allowed::Step, "shortest step";
    most: Step = Step::Relative(0.5), "most", "transactions", Allowed::Step, "longest step";
    concurrency: Concurrency = Concurrency::Peak, "concurrency", "", Allowed::Moment,
        "which concurrency caps the limit";
}

/// The controller of incremental steps.
#[derive(Clone, Debug)]
pub struct IncrementalSteps {
    bounds: Bounds,
    start: Mpl,
    settings: IncrementalStepsSettings,
    /// The interval the next one is compared with: its throughput, above 0 and finite, and its
    /// limit.
    previous: Option<(Mpl, f64)>,
    /// Whether the last step went up.
    is_up: bool,
}

impl IncrementalSteps {
    /// Steps within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: IncrementalStepsSettings) -> IncrementalSteps {
        let start = bounds.clamp(start);
        IncrementalSteps { bounds, start, settings, previous: None, is_up: true }
    }

    /// How far to go from `limit` after a relative change of throughput, in transactions.
    fn length(&self, limit: Mpl, change: f64) -> u32 {
        let (least, most) = (self.settings.least.from(limit), self.settings.most.from(limit));
        let length = self.settings.gain * f64::from(limit.get()) * change.abs();
        whole(length.round()).clamp(least.min(most), most)
    }

    /// The limit `length` away, upward or not, or the other way where `allowed` forbids it.
    fn step(&mut self, limit: Mpl, length: u32, is_up: bool, allowed: Bounds) -> Mpl {
        let toward = |is_up: bool| {
            let level = limit.get();
            let wanted =
                if is_up { level.saturating_add(length) } else { level.saturating_sub(length) };
            allowed.clamp(Mpl::at_least_one(wanted))
        };
        self.is_up = if toward(is_up) == limit { !is_up } else { is_up };
        toward(self.is_up)
    }
}

impl Controller for IncrementalSteps {
    fn name(&self) -> &'static str {
        "incremental-steps"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let concurrency = self.settings.concurrency;
        let (allowed, limit) = match within_concurrency(self.bounds, concurrency, observation) {
            Ok(within) => within,
            Err(lowered) => {
                self.previous = None;
                return lowered;
            }
        };
        let tps = observation.throughput_tps();
        if tps <= 0.0 {
            return Decision { limit, reason: Reason::NothingCompleted };
        }
        let Some((before, tps_before)) = self.previous.replace((limit, tps)) else {
            let length = self.length(limit, 0.0);
            let limit = self.step(limit, length, self.is_up, allowed);
            return Decision { limit, reason: Reason::First };
        };
        // The limit that was really in force tells the direction, where it was changed at all.
        let was_up = if limit == before { self.is_up } else { limit > before };
        let throughput = tps / tps_before - 1.0;
        let (is_up, reason) = if throughput >= 0.0 {
            (was_up, HeissWagnerReason::Onward { throughput })
        } else {
            (!was_up, HeissWagnerReason::Turn { throughput })
        };
        let length = self.length(limit, throughput);
        let limit = self.step(limit, length, is_up, allowed);
        Decision { limit, reason: Reason::HeissWagner(reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bounds, decided, limit_after, limits, observed};

    fn steps(start: u32) -> IncrementalSteps {
        let least = Step::Relative(0.05);
        let settings = IncrementalStepsSettings { least, ..IncrementalStepsSettings::PROXY };
        IncrementalSteps::new(bounds(1, 1_000), Mpl::at_least_one(start), settings)
    }

    /// β = 2, steps of at least 5 % or 1 and at most half.
    #[test]
    fn each_case_of_the_formula() {
        let table = [
            ((20, 1_000), (24, 1_100), 29, "up 10 %, on: 2·24·0.1 = 4.8"),
            ((24, 1_100), (29, 1_067), 27, "down 3 %, back: 2·29·0.03 = 1.7"),
            ((100, 1_000), (110, 800), 66, "down 20 %, back: 2·110·0.2 = 44"),
            ((110, 1_000), (100, 1_100), 80, "up 10 % going down, on: 2·100·0.1"),
            ((110, 1_000), (100, 900), 120, "down 10 % going down, back up"),
            ((100, 1_000), (110, 1_000), 115, "no change, on: 5 % of 110"),
            ((100, 1_000), (110, 2_000), 165, "doubled: no more than half"),
            ((900, 1_000), (990, 1_100), 1_000, "up to the highest"),
            ((990, 1_000), (1_000, 1_001), 950, "no way up: 5 % down"),
            ((2, 1_000), (1, 1_100), 2, "no way down"),
        ];
        for (before, now, expected, case) in table {
            assert_eq!(limit_after(&mut steps(1), &[before, now]), expected, "{case}");
        }
    }

    #[test]
    fn the_limit_never_exceeds_the_concurrency() {
        assert_eq!(decided(&mut steps(1), &observed(20, 4, 1_000)), (4, "concurrency"));
    }

    /// X(n) = n·e^(1 − n/50) has its top at 50, and 90 % of it from 29 to 80.
    #[test]
    fn without_noise_it_stays_about_the_top() {
        for start in [1, 10, 200] {
            let limits = limits(&mut steps(start), 120, |limit| {
                let level = f64::from(limit);
                let tps = u64::from(whole(1e4 * level * libm::exp(1.0 - level / 50.0)));
                observed(limit, 10_000, tps)
            });
            assert!(limits[60..].iter().all(|limit| (29..=80).contains(limit)), "{limits:?}");
        }
    }
}
