//! Parabola approximation: measure a few points of the throughput curve, lay a parabola through
//! them, go to its apex.
//!
//! # Mechanism
//! Sections 3.2.2 and 3.2.3 of the auto-tuning study. The global parabola passes through the
//! origin and the last two points (n, P), the newer, and (n', P'), so that P = a·n² + b·n:
//!
//! ```text
//! a = (P·n' − P'·n) / (n·n'·(n − n'))        b = (P' − a·n'²) / n'
//! ```
//!
//! The local parabola passes through the last three, (n'', P'') being the oldest:
//!
//! ```text
//! a = ((P'' − P) − (n'' − n)(P' − P)/(n' − n)) / ((n'' − n)(n'' − n'))
//! b = ((P' − P) − a·(n'² − n²)) / (n' − n)
//! ```
//!
//! If the parabola opens downward (a < 0) and its apex −b/2a is not the present limit, the next
//! limit is the apex, but at most Γ·n above n. Otherwise the next limit is a random step of 0 to Δ
//! away, up and down by turns, which buys a new point to measure.
//!
//! # Example
//! 100 tps at 10 and 150 at 20 give a = (150·10 − 100·20)/(20·10·10) = −0.25 and
//! b = (100 + 0.25·100)/10 = 12.5: the apex is at 25. With Γ = 0.333 the limit may go up to 26.66,
//! so it goes to 25.
//!
//! # Where this leaves the study
//! * **Misprint.** In the study's b of the local parabola both squares carry the index i − 1, which
//!   makes their difference 0. The second is the index i, as above.
//! * **Whole numbers.** The apex is rounded to the nearest limit, the cap down, and the cap is at
//!   least one transaction up, for a third of 1 or 2 would round to no step at all. The study's
//!   limits, 20 and more, do not meet this.
//! * **Step and concurrency** as in hill climbing: Δ may be relative, and the peak of an interval
//!   may stand for its concurrency. [`Step::Absolute`] and [`Concurrency::AtEnd`] restore the
//!   study's. An interval whose limit was above the concurrency counts as a point at the limit that
//!   follows it, which allows no fewer transactions.
//! * **Bounds.** The study has none; the result is clamped to them.
//! * **Nothing completed.** Such an interval is no point of the curve and is left out.
//! * **Γ caps no step down**, as in the study. The global parabola needs no such cap: with a < 0
//!   its apex is never below n'/2, since b ≥ −a·n'.
//!
//! # Limits
//! The curve need not be a parabola. Two near points of a noisy curve give a parabola of the noise:
//! the slope's error grows as the inverse of their distance. The local parabola suffers most and
//! takes random steps in more than half of the study's intervals (Table 6.7).

use crate::controller::{Concurrency, Controller, Step, whole};
use crate::parameters::{Allowed, settings};
use crate::{Bounds, Decision, Draw, Mpl, NoApex, Observation, Reason};

settings! {
    /// The parameters of [`Parabola`].
    pub struct ParabolaSettings;

    cap: f64, "gamma", "share", Allowed::Number(0.001, 10.0),
        "largest relative rise of the limit in one step, Γ";
    wiggle: Step, "delta", "transactions", Allowed::Step, "largest random step, Δ";
    concurrency: Concurrency, "concurrency", "", Allowed::Moment,
        "which concurrency caps the limit";
}

impl ParabolaSettings {
    /// The study's parameters: Γ = 0.333 and Δ = 5 (Section 6.2).
    pub const STUDY: ParabolaSettings =
        ParabolaSettings { cap: 0.333, wiggle: Step::Absolute(5), concurrency: Concurrency::AtEnd };

    /// The parameters of a proxy with intervals of a second.
    pub const PROXY: ParabolaSettings = ParabolaSettings {
        cap: 0.333,
        wiggle: Step::Relative(0.5),
        concurrency: Concurrency::Peak,
    };
}

/// The two parabola controllers (Sections 3.2.2 and 3.2.3).
#[derive(Clone, Debug)]
pub struct Parabola {
    fit: ParabolaPoints,
    bounds: Bounds,
    start: Mpl,
    settings: ParabolaSettings,
    /// The last points, the newest first.
    points: [Option<ParabolaPoint>; 3],
    /// Whether the next random step goes up.
    wiggle_up: bool,
}

/// Which points the parabola passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParabolaPoints {
    /// The origin and the last two.
    Global,
    /// The last three.
    Local,
}

impl Parabola {
    /// The global parabola approximation, within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn global(bounds: Bounds, start: Mpl, settings: ParabolaSettings) -> Parabola {
        Parabola::new(ParabolaPoints::Global, bounds, start, settings)
    }

    /// The local parabola approximation, within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn local(bounds: Bounds, start: Mpl, settings: ParabolaSettings) -> Parabola {
        Parabola::new(ParabolaPoints::Local, bounds, start, settings)
    }

    fn new(
        fit: ParabolaPoints,
        bounds: Bounds,
        start: Mpl,
        settings: ParabolaSettings,
    ) -> Parabola {
        let start = bounds.clamp(start);
        Parabola { fit, bounds, start, settings, points: [None; 3], wiggle_up: true }
    }

    fn remember(&mut self, now: ParabolaPoint) {
        let [newest, middle, _] = self.points;
        self.points = [Some(now), newest, middle];
    }

    /// Where the parabola through the remembered points has its apex.
    fn apex(&self) -> Result<f64, NoApex> {
        match (self.fit, self.points) {
            (ParabolaPoints::Global, [Some(now), Some(before), _]) => global_apex(before, now),
            (ParabolaPoints::Local, [Some(now), Some(before), Some(oldest)]) => {
                local_apex(oldest, before, now)
            }
            _ => Err(NoApex::TooFew),
        }
    }

    /// One step from `now` toward the apex, or a random one when it is there already.
    fn approach(&mut self, apex: f64, now: Mpl, draw: Draw) -> (Mpl, Reason) {
        let level = now.get();
        let goal = whole(apex.round());
        if goal == level {
            return self.wiggle(NoApex::AlreadyThere, now, draw);
        }
        let cap = whole((self.settings.cap + 1.0) * f64::from(level)).max(level.saturating_add(1));
        if goal > cap {
            (Mpl::at_least_one(cap), Reason::Capped { at: apex })
        } else {
            (Mpl::at_least_one(goal), Reason::Apex { at: apex })
        }
    }

    /// A random step of 0 to Δ, up and down by turns.
    fn wiggle(&mut self, cause: NoApex, now: Mpl, draw: Draw) -> (Mpl, Reason) {
        let choices = f64::from(self.settings.wiggle.from(now)) + 1.0;
        let step = whole(draw.value() * choices);
        let level = if self.wiggle_up {
            now.get().saturating_add(step)
        } else {
            now.get().saturating_sub(step)
        };
        self.wiggle_up = !self.wiggle_up;
        (Mpl::at_least_one(level), Reason::Wiggle(cause))
    }
}

impl Controller for Parabola {
    fn name(&self) -> &'static str {
        match self.fit {
            ParabolaPoints::Global => "global-parabola",
            ParabolaPoints::Local => "local-parabola",
        }
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
            self.remember(ParabolaPoint { limit, tps });
        }
        if limit < observation.limit {
            return Decision { limit, reason: Reason::Concurrency { seen } };
        }
        if tps <= 0.0 {
            return Decision { limit, reason: Reason::NothingCompleted };
        }
        let (wanted, reason) = match self.apex() {
            Ok(apex) => self.approach(apex, limit, draw),
            Err(cause) => self.wiggle(cause, limit, draw),
        };
        Decision { limit: allowed.clamp(wanted), reason }
    }
}

/// One point of the throughput curve: a limit and the throughput measured there.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ParabolaPoint {
    limit: Mpl,
    /// Completed transactions per second, above 0 and finite.
    tps: f64,
}

impl ParabolaPoint {
    fn level(self) -> f64 {
        f64::from(self.limit.get())
    }
}

/// The apex of the parabola through the origin and two points (Section 3.2.2).
fn global_apex(before: ParabolaPoint, now: ParabolaPoint) -> Result<f64, NoApex> {
    if now.limit == before.limit {
        return Err(NoApex::SameLimit);
    }
    let (n, n1) = (now.level(), before.level());
    let a = (now.tps * n1 - before.tps * n) / (n * n1 * (n - n1));
    let b = (before.tps - a * n1 * n1) / n1;
    apex(a, b)
}

/// The apex of the parabola through three points (Section 3.2.3, with the index of b mended).
fn local_apex(
    oldest: ParabolaPoint,
    before: ParabolaPoint,
    now: ParabolaPoint,
) -> Result<f64, NoApex> {
    if now.limit == before.limit || before.limit == oldest.limit || oldest.limit == now.limit {
        return Err(NoApex::SameLimit);
    }
    let (n, n1, n2) = (now.level(), before.level(), oldest.level());
    let slope = (before.tps - now.tps) / (n1 - n);
    let a = ((oldest.tps - now.tps) - (n2 - n) * slope) / ((n2 - n) * (n2 - n1));
    let b = slope - a * (n1 * n1 - n * n) / (n1 - n);
    apex(a, b)
}

/// Where a·n² + b·n + c has its maximum.
fn apex(a: f64, b: f64) -> Result<f64, NoApex> {
    if a < 0.0 { Ok(-b / (2.0 * a)) } else { Err(NoApex::NotConcave) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bounds, observed};

    const MIDDLE: Draw = Draw::from_bits(1 << 63);

    fn feed(controller: &mut Parabola, points: &[(u32, u64)]) -> Option<Decision> {
        let decide = |&(limit, tps)| controller.decide(&observed(limit, 10_000, tps), MIDDLE);
        points.iter().map(decide).last()
    }

    #[track_caller]
    fn expect(mut controller: Parabola, points: &[(u32, u64)], limit: u32, reason: Reason) {
        let decision = feed(&mut controller, points);
        assert_eq!(decision, Some(Decision { limit: Mpl::at_least_one(limit), reason }));
    }

    fn global() -> Parabola {
        Parabola::global(bounds(1, 1_000), Mpl::ONE, ParabolaSettings::STUDY)
    }

    fn local() -> Parabola {
        Parabola::local(bounds(1, 1_000), Mpl::ONE, ParabolaSettings::STUDY)
    }

    #[test]
    fn global_goes_to_the_apex_in_either_direction() {
        // a = -0.25, b = 12.5
        expect(global(), &[(10, 100), (20, 150)], 25, Reason::Apex { at: 25.0 });
        // P = -n² + 40n
        expect(global(), &[(10, 300), (40, 0), (30, 300)], 20, Reason::Apex { at: 20.0 });
    }

    #[test]
    fn a_step_up_is_capped_and_a_step_down_is_not() {
        // a = -1, b = 200: the apex at 100 is beyond 1.333 · 20 = 26.66.
        expect(global(), &[(10, 1_900), (20, 3_600)], 26, Reason::Capped { at: 100.0 });
        // A third of 1 is no step; the cap gives one transaction all the same. a = -1, b = 20.
        expect(global(), &[(2, 36), (1, 19)], 2, Reason::Capped { at: 10.0 });
        // P = -(n - 30)² + 10,000, from 100 to 30 at once.
        let falling = [(120, 1_900), (110, 3_600), (100, 5_100)];
        expect(local(), &falling, 30, Reason::Apex { at: 30.0 });
    }

    #[test]
    fn local_goes_to_the_apex_of_a_parabola_that_misses_the_origin() {
        // P = -(n - 30)² + 1,000; with the misprint b would be 15 and the apex 7.5.
        let points = [(10, 600), (20, 900), (25, 975)];
        expect(local(), &points, 30, Reason::Apex { at: 30.0 });
    }

    /// A wiggle with the middle draw is 3 of 0 to 5, and each of these histories has had a wiggle
    /// for every point before the last.
    #[test]
    fn without_an_apex_to_go_to_the_limit_wiggles() {
        let table = [
            (global(), vec![(10, 100)], 13, NoApex::TooFew),
            (global(), vec![(10, 100), (10, 120)], 7, NoApex::SameLimit),
            (global(), vec![(10, 100), (20, 201)], 17, NoApex::NotConcave),
            (global(), vec![(10, 100), (20, 200)], 17, NoApex::NotConcave),
            (global(), vec![(10, 300), (20, 400)], 17, NoApex::AlreadyThere),
            (local(), vec![(10, 100), (20, 150)], 17, NoApex::TooFew),
            (local(), vec![(10, 100), (20, 150), (20, 160)], 23, NoApex::SameLimit),
            (local(), vec![(10, 100), (20, 150), (10, 160)], 13, NoApex::SameLimit),
            (local(), vec![(10, 100), (10, 150), (20, 160)], 23, NoApex::SameLimit),
            (local(), vec![(10, 100), (20, 150), (30, 300)], 33, NoApex::NotConcave),
        ];
        for (controller, points, limit, cause) in table {
            expect(controller, &points, limit, Reason::Wiggle(cause));
        }
    }

    #[test]
    fn a_wiggle_takes_every_step_from_none_to_delta() {
        let last = Draw::from_bits(u64::MAX);
        for (draw, limit) in [(Draw::from_bits(0), 10), (MIDDLE, 13), (last, 15)] {
            let decision = global().decide(&observed(10, 100, 100), draw);
            assert_eq!(decision.limit.get(), limit);
        }
    }

    #[test]
    fn the_limit_never_exceeds_the_concurrency() {
        let mut controller = global();
        let decision = controller.decide(&observed(100, 20, 150), MIDDLE);
        let reason = Reason::Concurrency { seen: 20 };
        assert_eq!(decision, Decision { limit: Mpl::at_least_one(20), reason });
        // The throughput counts for the 20 that could run: with (10, 100) the apex is at 25.
        let decision = controller.decide(&observed(10, 22, 100), MIDDLE);
        assert_eq!(decision.reason, Reason::Capped { at: 25.0 });
        assert_eq!(decision.limit.get(), 13);
        let decision = controller.decide(&observed(20, 22, 150), MIDDLE);
        assert_eq!((decision.limit.get(), decision.reason), (22, Reason::Apex { at: 25.0 }));
    }
}
