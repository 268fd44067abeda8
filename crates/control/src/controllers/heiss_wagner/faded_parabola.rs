//! Parabola approximation with a fading memory: fit a parabola to all that was seen, the older the
//! less, and go to its apex.
//!
//! # Mechanism
//! Throughput is taken for a parabola over the limit, X = a + b·n + c·n², whose three numbers
//! minimise the squared errors of all intervals, each weighted by α to the power of its age.
//! Recursive least squares (the Kalman filter of a constant) does so with a vector and a matrix,
//! without keeping the intervals: writing x = (1, n, n²), θ = (a, b, c), y for throughput,
//!
//! ```text
//! K = C·x / (α + xᵀ·C·x)      θ ← θ + K·(y − xᵀ·θ)      C ← (C − K·xᵀ·C) / α
//! ```
//!
//! If c < 0 the next limit is the apex −b/2c.
//!
//! # Example
//! X = 100·n − n² is seen at 10, 20 and 40: 900, 1,600 and 2,400. Three points and three numbers:
//! whatever α is, the fit passes through all, and the apex is 100/2 = 50.
//!
//! # Degenerate parabolas
//! * **Opening upward, or straight** (c ≥ 0). Convex stretches are real: the far side of a hill
//!   flattens out, and at the start there are fewer points than numbers. There is no apex, so the
//!   limit goes up where the parabola rises, down where it falls, by the longest step.
//! * **Always the same limit.** At the apex nothing new is learnt, the older intervals fade, and
//!   the parabola becomes one of the noise, C grows without end. So a limit at its apex, or at the
//!   end of its range, takes a random step of 0 to Δ, up and down by turns or inward. If C grows
//!   too large all the same, it is set back.
//!
//! # Where this leaves the paper
//! * **Units.** n is counted in units of the starting limit and X in units of the first throughput,
//!   so that the numbers in C are of one size. This changes no apex.
//! * **Longest step**, both ways. Two intervals into a fit the apex may be anywhere.
//! * **Random steps** keep the memory fed; their size and turns are the auto-tuning study's.
//! * **Concurrency and bounds** as in the other controllers. An interval whose limit was above the
//!   concurrency counts as a point at the limit that follows it, which allows no fewer.
//! * **Nothing completed.** Such an interval is no point of the curve and is left out.
//!
//! # Limits
//! A throughput curve is no parabola. Fitted over a wide stretch of one with a steep near side and
//! a long far side, the apex lies beyond the top. Fitted over a narrow stretch it is right but for
//! the noise, which is large just there. α weighs the one against the other.

use nalgebra::{Matrix3, Vector3};

use super::HeissWagnerReason;
use crate::controller::{Concurrency, Controller, Step, whole};
use crate::parameters::{Allowed, settings};
use crate::{Bounds, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`FadedParabola`].
    pub struct FadedParabolaSettings;

    /// For a proxy with intervals of a second. α = 0.9 is a memory of ten intervals, three for each
    /// number of the parabola. Steps are those of the other parabolas.
    pub const PROXY;

    aging: f64 = 0.9, "aging", "share", Allowed::Number(0.01, 1.0),
        "weight of an interval against the next, α";
    cap: Step = Step::Relative(0.5), "cap", "transactions", Allowed::Step, "longest step";
    wiggle: Step = Step::Relative(0.5), "delta", "transactions", Allowed::Step,
        "largest random step, Δ";
    concurrency: Concurrency = Concurrency::Peak, "concurrency", "", Allowed::Moment,
        "which concurrency caps the limit";
}

/// The parabola approximation with a fading memory.
#[derive(Clone, Debug)]
pub struct FadedParabola {
    bounds: Bounds,
    start: Mpl,
    settings: FadedParabolaSettings,
    /// The first throughput, the unit of the others.
    unit_tps: Option<f64>,
    fit: ParabolaFit,
    /// Whether the next random step goes up.
    wiggle_up: bool,
}

/// C before anything was seen: next to nothing is known of θ, which is of the order of 1.
const VAGUE: f64 = 1e4;

/// C is set back when a number in it exceeds this.
const VAGUEST: f64 = 1e12;

/// A parabola fitted by recursive least squares.
#[derive(Clone, Debug)]
struct ParabolaFit {
    theta: Vector3<f64>,
    covariance: Matrix3<f64>,
}

impl ParabolaFit {
    fn new() -> ParabolaFit {
        ParabolaFit { theta: Vector3::zeros(), covariance: Matrix3::identity() * VAGUE }
    }

    /// Learns that `y` was seen at `n`.
    fn learn(&mut self, n: f64, y: f64, aging: f64) {
        let x = Vector3::new(1.0, n, n * n);
        let cx = self.covariance * x;
        let gain = cx / (aging + x.dot(&cx));
        self.theta += gain * (y - x.dot(&self.theta));
        self.covariance = (self.covariance - gain * cx.transpose()) / aging;
        let is_sound = |value: &f64| value.abs() <= VAGUEST;
        if !self.theta.iter().all(is_sound) {
            *self = ParabolaFit::new();
        } else if !self.covariance.iter().all(is_sound) {
            self.covariance = Matrix3::identity() * VAGUE;
        }
    }

    /// Where the parabola has its apex, if it opens downward.
    fn apex(&self) -> Option<f64> {
        let at = -self.theta.y / (2.0 * self.theta.z);
        (self.theta.z < 0.0 && at.is_finite()).then_some(at)
    }

    /// Relative change of the parabola at `n` for a relative change of n.
    fn slope(&self, n: f64) -> f64 {
        let slope = self.theta.y + 2.0 * self.theta.z * n;
        let value = self.theta.dot(&Vector3::new(1.0, n, n * n));
        let relative = slope * n / value.abs();
        if relative.is_finite() { relative } else { 0.0 }
    }
}

impl FadedParabola {
    /// Fits within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: FadedParabolaSettings) -> FadedParabola {
        let start = bounds.clamp(start);
        let fit = ParabolaFit::new();
        FadedParabola { bounds, start, settings, unit_tps: None, fit, wiggle_up: true }
    }

    fn unit_level(&self) -> f64 {
        f64::from(self.start.get())
    }

    /// The next limit after `limit`.
    fn judge(&mut self, limit: Mpl, allowed: Bounds, draw: Draw) -> (Mpl, HeissWagnerReason) {
        let cap = self.settings.cap.from(limit);
        let low = allowed.clamp(Mpl::at_least_one(limit.get().saturating_sub(cap)));
        let high = allowed.clamp(Mpl::at_least_one(limit.get().saturating_add(cap)));
        let (wanted, reason) = if let Some(apex) = self.fit.apex() {
            let at = apex * self.unit_level();
            let wanted = Mpl::at_least_one(whole(at.round())).clamp(low, high);
            (wanted, HeissWagnerReason::Apex { at })
        } else {
            let slope = self.fit.slope(f64::from(limit.get()) / self.unit_level());
            (if slope >= 0.0 { high } else { low }, HeissWagnerReason::Uphill { slope })
        };
        if wanted == limit {
            (self.wiggle(limit, allowed, draw), HeissWagnerReason::Excite)
        } else {
            (wanted, reason)
        }
    }

    /// A random step of 0 to Δ, up and down by turns, or always inward at the end of `allowed`.
    fn wiggle(&mut self, limit: Mpl, allowed: Bounds, draw: Draw) -> Mpl {
        let choices = f64::from(self.settings.wiggle.from(limit)) + 1.0;
        let step = whole(draw.value() * choices);
        let level = limit.get();
        let is_up = (self.wiggle_up || limit == allowed.min()) && limit < allowed.max();
        self.wiggle_up = !is_up;
        let wanted = if is_up { level.saturating_add(step) } else { level.saturating_sub(step) };
        allowed.clamp(Mpl::at_least_one(wanted))
    }
}

impl Controller for FadedParabola {
    fn name(&self) -> &'static str {
        "faded-parabola"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, draw: Draw) -> Decision {
        let seen = self.settings.concurrency.of(observation);
        let allowed = self.bounds.capped_at(seen);
        let limit = allowed.clamp(observation.limit);
        let tps = observation.throughput_tps();
        if tps > 0.0 {
            let unit_tps = *self.unit_tps.get_or_insert(tps);
            let level = f64::from(limit.get()) / self.unit_level();
            self.fit.learn(level, tps / unit_tps, self.settings.aging);
        }
        if limit < observation.limit {
            return Decision { limit, reason: Reason::Concurrency { seen } };
        }
        if tps <= 0.0 {
            return Decision { limit, reason: Reason::NothingCompleted };
        }
        let (limit, reason) = self.judge(limit, allowed, draw);
        Decision { limit, reason: Reason::HeissWagner(reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SplitMix64;
    use crate::testing::{DRAW, bounds, limit_after, observed};

    fn parabola(start: u32, settings: FadedParabolaSettings) -> FadedParabola {
        FadedParabola::new(bounds(1, 1_000), Mpl::at_least_one(start), settings)
    }

    /// The decision after intervals of (limit, completions).
    fn after(history: &[(u32, u64)]) -> Decision {
        let mut controller = parabola(10, FadedParabolaSettings::PROXY);
        let decide = |&(limit, tps)| controller.decide(&observed(limit, 10_000, tps), DRAW);
        history.iter().map(decide).last().expect("some history")
    }

    fn apex(decision: Decision) -> f64 {
        match decision.reason {
            Reason::HeissWagner(HeissWagnerReason::Apex { at }) => at,
            other => panic!("{other}"),
        }
    }

    /// The example of the module's head. What little is presumed of θ moves the apex by far less
    /// than a transaction.
    #[test]
    fn three_points_of_a_parabola_tell_its_apex() {
        let decision = after(&[(10, 900), (20, 1_600), (40, 2_400)]);
        assert!((apex(decision) - 50.0).abs() < 0.5, "{decision:?}");
        assert_eq!(decision.limit.get(), 50);
    }

    /// An apex at 50 from a limit of 20: at most half of 20 further up.
    #[test]
    fn a_step_is_no_longer_than_the_cap() {
        let decision = after(&[(10, 900), (40, 2_400), (20, 1_600)]);
        assert!((apex(decision) - 50.0).abs() < 0.5, "{decision:?}");
        assert_eq!(decision.limit.get(), 30);
    }

    /// X = 100·n − n² becomes X = 100·n − 2·n², with its apex at 25: after five intervals of the
    /// new the old ones weigh 0.9^5 = 0.59 each, after thirty 0.04.
    #[test]
    fn old_intervals_fade() {
        let old = [(10, 900), (20, 1_600), (40, 2_400)];
        let new = [(10, 800), (20, 1_200), (40, 800)];
        let errors = [5, 30].map(|count| {
            let seen: Vec<(u32, u64)> =
                old.into_iter().chain(new.into_iter().cycle().take(count)).collect();
            (apex(after(&seen)) - 25.0).abs()
        });
        assert!(errors[0] > 1.0 && errors[1] < 0.5, "{errors:?}");
    }

    /// The far side of a hill that flattens out: 1,000 at 10, 400 at 20, 300 at 40.
    #[test]
    fn a_parabola_that_opens_upward_is_followed_to_where_it_rises() {
        let falling = after(&[(10, 1_000), (40, 300), (20, 400)]);
        assert_eq!(falling.limit.get(), 10);
        let rising = after(&[(10, 100), (40, 1_000), (20, 300)]);
        assert_eq!(rising.limit.get(), 30);
        for (decision, is_up) in [(falling, false), (rising, true)] {
            let Reason::HeissWagner(HeissWagnerReason::Uphill { slope }) = decision.reason else {
                panic!("{decision:?}")
            };
            assert_eq!(slope > 0.0, is_up, "{slope}");
        }
    }

    /// One point, and a parabola through it that rises from the origin.
    #[test]
    fn the_first_step_goes_up() {
        assert_eq!(after(&[(10, 900)]).limit.get(), 15);
    }

    #[test]
    fn at_the_apex_it_steps_at_random_up_and_down_by_turns() {
        let mut controller = parabola(10, FadedParabolaSettings::PROXY);
        limit_after(&mut controller, &[(10, 900), (20, 1_600), (40, 2_400)]);
        let half = Draw::from_bits(1 << 63);
        // Half of the 26 choices 0 to 25 is 13.
        for expected in [63, 37, 63] {
            let decision = controller.decide(&observed(50, 10_000, 2_500), half);
            assert_eq!(decision.reason, Reason::HeissWagner(HeissWagnerReason::Excite));
            assert_eq!(decision.limit.get(), expected);
        }
    }

    /// At the highest limit the first parabola rises, and there is no way up.
    #[test]
    fn at_the_end_of_its_range_it_steps_inward() {
        let half = Draw::from_bits(1 << 63);
        let mut controller = parabola(1_000, FadedParabolaSettings::PROXY);
        // Half of the 501 choices 0 to 500 is 250.
        let decision = controller.decide(&observed(1_000, 10_000, 160), half);
        assert_eq!(decision.limit.get(), 750);
        assert_eq!(decision.reason, Reason::HeissWagner(HeissWagnerReason::Excite));
    }

    /// Without random steps nothing is learnt of the slope for a thousand intervals.
    #[test]
    fn a_limit_that_never_moves_leaves_the_numbers_sound() {
        let mut fit = ParabolaFit::new();
        for _ in 0..1_000 {
            fit.learn(1.0, 1.0, 0.5);
            assert!(fit.covariance.iter().all(|value| value.abs() <= VAGUEST));
        }
        assert!((fit.theta.sum() - 1.0).abs() < 1e-6, "{}", fit.theta);
    }

    /// X(n) = 2,500 − (n − 50)², and a little noise: 90 % of the top from 34 to 66.
    #[test]
    fn it_stays_about_the_apex_of_a_parabola() {
        let random = &mut SplitMix64::new(1);
        let settings =
            FadedParabolaSettings { wiggle: Step::Absolute(5), ..FadedParabolaSettings::PROXY };
        let mut controller = parabola(10, settings);
        let mut limit = controller.start();
        let mut inside = 0;
        for interval in 0..260 {
            let off = f64::from(limit.get()) - 50.0;
            let noise = 0.98 + 0.04 * random.next_draw().value();
            let tps = u64::from(whole((2_500.0 - off * off).max(1.0) * noise));
            let seen = observed(limit.get(), 10_000, tps);
            limit = controller.decide(&seen, random.next_draw()).limit;
            inside += u32::from(interval >= 60 && (34..=66).contains(&limit.get()));
        }
        assert!(inside >= 180, "{inside} of 200");
    }
}
