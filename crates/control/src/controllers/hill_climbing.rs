//! Hill climbing: keep stepping while it pays.
//!
//! # Mechanism
//! Section 3.2.1 of the auto-tuning study compares each interval with the one before. Writing n for
//! the limit `n*(t_i)`, n' for the one before it, and P, P' for the throughputs:
//!
//! | case | next limit |
//! | --- | --- |
//! | n ≥ n' and (P − P')/P' ≥ C·(n − n')/n' | n + Δ |
//! | n < n' and P > P' | n − Δ |
//! | otherwise | n' |
//!
//! Going up must pay in proportion (C, from 0 to 1); going down must only not hurt. Hence the bias
//! toward few transactions, which keeps the limit from wandering off where the curve is flat.
//!
//! # Example
//! With C = 0.4 and Δ = 1, a curve with 1,100 tps at 1, 2,720 at 2 and 2,330 at 3, started at 1:
//! 1 → 2 (first step), 2 → 3 (+147 % for +100 %), 3 → 2 (−14 % for +50 %), 2 → 1 (+17 % going
//! down), 1 → 2 (−60 %), 2 → 3, … The study's rule never stops probing: of every four intervals
//! here two are spent at the best limit, one at 3 and one at 1, which averages 82 % of the best.
//!
//! # Where this leaves the study
//! * **Step.** Δ is relative to the limit by default, because the best limit of a proxy may be 2 or
//!   200: no absolute step suits both. [`Step::Absolute`] restores the study's.
//! * **Loss.** Under the study's rule a step down must gain, so a dip of 2 %, or a curve that is
//!   quite flat, holds the limit up. Here a relative fall of the limit may cost `loss` times as
//!   much of the throughput. For a step up by half and a step down by half not to pay both, `loss`
//!   must stay below 1.7·C: on a curve that locally follows n^e the one pays when 1.5^e − 1 ≥
//!   0.5·C, so e above 1.2·C, the other when 1 − 0.5^e < 0.5·loss, so e below 0.7·`loss`. A `loss`
//!   of 0 restores the study's rule.
//! * **Response time.** Throughput measures a limit only while the limit is what holds it: while
//!   transactions wait. Under a light load it is the rate of arrivals at any limit that bears it,
//!   and a limit judged by it alone sinks until queueing shows, which users feel. So an interval in
//!   which there was nobody waiting for part of the time is judged by response time as well: a step
//!   down may raise it by no more than it may lower throughput, and a step up pays if it lowers it
//!   by as much as it would have to raise throughput. Response time is concurrency over throughput
//!   (Little's law), so that in a closed system both say the same. `guard` off restores the
//!   study's rule.
//! * **Concurrency.** Read as the peak of the interval, not its last moment, see [`Concurrency`].
//!   [`Concurrency::AtEnd`] restores the study's. An interval whose limit was above the concurrency
//!   is not compared with the next, whose limit allows no fewer transactions.
//! * **Rest.** A probe is a step away from a limit to see whether another is better. One that is
//!   turned back costs throughput and teaches little when the last ones were turned back too. So
//!   the limit gone back to is held for 0, 1, 3, 7, … more intervals after the first, second,
//!   third, fourth probe in a row that was turned back, at most for `rest`. P is the mean of all
//!   intervals there, so that the place to beat is known better than from one of them. A probe that
//!   pays starts the count anew. An interval whose throughput is further than `band` from the mean
//!   so far ends the rest: the workload has changed, and the climb begins again. In the example a
//!   `rest` of 15 leaves one probe in 17 intervals and 98 % of the best. A `rest` of 0 restores
//!   the study's rule.
//! * **Bounds.** The study has none, and lets a step go above the concurrency, to be corrected an
//!   interval later. Here the concurrency is an upper bound like the other. A step that the bounds
//!   forbid is taken the other way, or a climb that starts at the highest limit, or with as many
//!   permits as clients, could never leave it. Away from the bounds this changes nothing.
//! * **Nothing completed.** P' = 0 has no place in the formula. Such an interval is left out.
//!
//! # Limits
//! * It climbs the hill it stands on, and a valley wider than a step ends the search.
//! * A curve that rises by less than C per cent for each per cent of limit is not climbed at all,
//!   which is how the study's TPCC1-SMALLMEM failed (Section 7.1.2).
//! * Noise as large as the gain of a step turns the climb into a random walk with a drift downward.

use crate::controller::{Concurrency, Controller, Step, within_concurrency};
use crate::parameters::{Allowed, settings};
use crate::{Bounds, Change, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`HillClimbing`].
    pub struct HillClimbingSettings;

    gain: f64, "c", "share", Allowed::Number(0.0, 1.0),
        "gain of throughput required for a rise of the limit, C";
    step: Step, "delta", "transactions", Allowed::Step, "step, Δ";
    /// 0 is the study's rule, under which going down must gain.
    loss: f64, "loss", "share", Allowed::Number(0.0, 1.0),
        "loss of throughput accepted for a fall of the limit, as a share of the fall";
    guard: bool, "guard", "", Allowed::Switch,
        "also judge response time where the load determines throughput";
    concurrency: Concurrency, "concurrency", "", Allowed::Moment,
        "which concurrency caps the limit";
    /// 0 is the study's rule.
    rest: u32, "rest", "intervals", Allowed::Whole(0, 1_000_000),
        "longest pause after unsuccessful probes";
    band: f64, "band", "share", Allowed::Number(0.0, 10.0),
        "change of throughput that ends a pause";
}

impl HillClimbingSettings {
    /// The study's parameters: C = 0.4 and Δ = 10 (Section 6.1), no rest.
    pub const STUDY: HillClimbingSettings = HillClimbingSettings {
        gain: 0.4,
        loss: 0.0,
        step: Step::Absolute(10),
        guard: false,
        concurrency: Concurrency::AtEnd,
        rest: 0,
        band: 0.0,
    };

    /// The parameters of a proxy with intervals of a second, whose throughput varies by 3 to 5 %:
    /// chosen on simulated plants before there was a harness for them.
    pub const PROXY: HillClimbingSettings = HillClimbingSettings {
        gain: 0.05,
        loss: 0.08,
        step: Step::Relative(0.5),
        guard: true,
        concurrency: Concurrency::Peak,
        rest: 15,
        band: 0.2,
    };
}

/// The hill-climbing controller (Section 3.2.1).
#[derive(Clone, Debug)]
pub struct HillClimbing {
    bounds: Bounds,
    start: Mpl,
    settings: HillClimbingSettings,
    /// The interval the next one is compared with, (n*(t_(i-1)), P(t_(i-1))).
    previous: Option<ClimbMeasurement>,
    /// Where the climb has gone back to, while it is there.
    home: Option<Home>,
    /// Probes turned back since the last one that paid.
    refusals: u32,
}

/// The intervals of this share of waiting and more show what the limit does, not what the load is.
const SATURATED_SHARE: f64 = 0.9;

/// What one interval showed, or several at one limit in the mean.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ClimbMeasurement {
    limit: Mpl,
    /// Completed transactions per second, above 0 and finite.
    tps: f64,
    /// Seconds; 0 where the concurrency was not known.
    response_s: f64,
    /// The limit held throughput where it was.
    is_saturated: bool,
}

/// A limit that was gone back to, and what was measured there since.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Home {
    intervals: u32,
    mean_tps: f64,
    mean_response_s: f64,
}

/// The three cases of the study's formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClimbVerdict {
    Up,
    Down,
    Back,
}

impl HillClimbing {
    /// Climbs within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: HillClimbingSettings) -> HillClimbing {
        let start = bounds.clamp(start);
        HillClimbing { bounds, start, settings, previous: None, home: None, refusals: 0 }
    }

    /// What a proxy makes of `hill-climbing`: [`HillClimbingSettings::PROXY`].
    #[must_use]
    pub fn for_proxy(bounds: Bounds, start: Mpl) -> HillClimbing {
        HillClimbing::new(bounds, start, HillClimbingSettings::PROXY)
    }

    /// Drops what was learnt, so that the next interval is a first one.
    fn forget(&mut self) {
        self.previous = None;
        self.home = None;
        self.refusals = 0;
    }

    /// Judges the interval at a limit that was stepped to.
    fn judge_probe(&mut self, now: ClimbMeasurement, allowed: Bounds) -> Decision {
        let Some(previous) = self.previous.replace(now) else {
            return self.step(ClimbVerdict::Up, now, allowed, Reason::First);
        };
        let change = change(previous, now);
        match verdict(&change, &self.settings) {
            ClimbVerdict::Back => {
                self.refusals = self.refusals.saturating_add(1);
                self.home = Some(Home::default());
                let limit = allowed.clamp(previous.limit);
                Decision { limit, reason: Reason::Back(change) }
            }
            paid => {
                self.refusals = 0;
                self.step(paid, now, allowed, reason(paid, change))
            }
        }
    }

    /// Judges an interval at the limit that was gone back to: stay, or probe again.
    fn judge_home(&mut self, home: Home, now: ClimbMeasurement, allowed: Bounds) -> Decision {
        let moved = now.tps / home.mean_tps - 1.0;
        if home.intervals > 0 && moved.abs() > self.settings.band {
            self.forget();
            self.previous = Some(now);
            return self.step(ClimbVerdict::Up, now, allowed, Reason::Moved { throughput: moved });
        }
        let home = home.with(now);
        let rest = rest_after(self.refusals).min(self.settings.rest);
        if home.intervals <= rest {
            self.home = Some(home);
            let left = rest - home.intervals;
            return Decision { limit: now.limit, reason: Reason::Rest { left } };
        }
        self.home = None;
        let rested =
            ClimbMeasurement { tps: home.mean_tps, response_s: home.mean_response_s, ..now };
        self.judge_rested(rested, allowed)
    }

    /// Chooses the next probe from a home whose throughput has been measured. To go back from
    /// here is to try once more what was turned back.
    fn judge_rested(&mut self, now: ClimbMeasurement, allowed: Bounds) -> Decision {
        let previous = self.previous.replace(now).unwrap_or(now);
        let change = change(previous, now);
        match verdict(&change, &self.settings) {
            ClimbVerdict::Back => {
                let limit = allowed.clamp(previous.limit);
                Decision { limit, reason: Reason::Back(change) }
            }
            paid => self.step(paid, now, allowed, reason(paid, change)),
        }
    }

    /// One step in the direction of the verdict, or in the other where `allowed` forbids it.
    fn step(
        &self,
        verdict: ClimbVerdict,
        now: ClimbMeasurement,
        allowed: Bounds,
        reason: Reason,
    ) -> Decision {
        let level = now.limit.get();
        let step = self.settings.step.from(now.limit);
        let up = allowed.clamp(Mpl::at_least_one(level.saturating_add(step)));
        let down = allowed.clamp(Mpl::at_least_one(level.saturating_sub(step)));
        let (wanted, other) = if verdict == ClimbVerdict::Up { (up, down) } else { (down, up) };
        let limit = if wanted == now.limit { other } else { wanted };
        Decision { limit, reason }
    }
}

impl Controller for HillClimbing {
    fn name(&self) -> &'static str {
        "hill-climbing"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let concurrency = self.settings.concurrency;
        let (allowed, limit) = match within_concurrency(self.bounds, concurrency, observation) {
            Ok(within) => within,
            Err(lowered) => {
                self.forget();
                return lowered;
            }
        };
        let tps = observation.throughput_tps();
        if tps <= 0.0 {
            return Decision { limit, reason: Reason::NothingCompleted };
        }
        let now = ClimbMeasurement {
            limit,
            tps,
            response_s: observation.response_time_s(),
            is_saturated: observation.waiting_share >= SATURATED_SHARE,
        };
        match self.home {
            Some(home) => self.judge_home(home, now, allowed),
            None => self.judge_probe(now, allowed),
        }
    }
}

impl Home {
    /// This home after one more interval.
    fn with(self, seen: ClimbMeasurement) -> Home {
        let intervals = self.intervals.saturating_add(1);
        let mean = |mean: f64, value: f64| mean + (value - mean) / f64::from(intervals);
        Home {
            intervals,
            mean_tps: mean(self.mean_tps, seen.tps),
            mean_response_s: mean(self.mean_response_s, seen.response_s),
        }
    }
}

/// Intervals to rest after so many probes in a row were turned back: 0, 0, 1, 3, 7, …
fn rest_after(refusals: u32) -> u32 {
    2_u32.saturating_pow(refusals.saturating_sub(1)) - 1
}

/// Which case of the study's formula holds.
fn verdict(change: &Change, settings: &HillClimbingSettings) -> ClimbVerdict {
    let response_time = change.response_time.filter(|_| settings.guard);
    if change.limit >= 0.0 {
        let asked = settings.gain * change.limit;
        let pays =
            change.throughput >= asked || response_time.is_some_and(|slower| slower <= -asked);
        if pays { ClimbVerdict::Up } else { ClimbVerdict::Back }
    } else {
        let accepted = settings.loss * change.limit;
        let pays =
            change.throughput > accepted && response_time.is_none_or(|slower| slower < -accepted);
        if pays { ClimbVerdict::Down } else { ClimbVerdict::Back }
    }
}

/// The relative changes from `previous` to `now`; that of response time where throughput does not
/// say enough.
fn change(previous: ClimbMeasurement, now: ClimbMeasurement) -> Change {
    let is_light = !(previous.is_saturated && now.is_saturated);
    let response_time = now.response_s / previous.response_s - 1.0;
    let level = |seen: ClimbMeasurement| f64::from(seen.limit.get());
    Change {
        throughput: (now.tps - previous.tps) / previous.tps,
        response_time: Some(response_time).filter(|change| is_light && change.is_finite()),
        limit: (level(now) - level(previous)) / level(previous),
    }
}

/// The reason for a step that paid.
fn reason(paid: ClimbVerdict, change: Change) -> Reason {
    if paid == ClimbVerdict::Up { Reason::Climb(change) } else { Reason::Descend(change) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::{Curve, CurvePhase, CurvePlant, Simulation};
    use crate::testing::{DRAW, bounds, limit_after, limits, observed};

    fn climber(settings: HillClimbingSettings) -> HillClimbing {
        HillClimbing::new(bounds(1, 1_000), Mpl::ONE, settings)
    }

    /// The limits of a run, equal ones in a row as (limit, intervals).
    fn path(controller: HillClimbing, clients: u32, intervals: usize) -> Vec<(u32, usize)> {
        let curve = Curve::new(Curve::POSTGRES_TPCB).expect("a curve");
        let mut plant = CurvePlant::new(&[CurvePhase::closed(curve, clients, 0.0)], 0);
        let mut simulation = Simulation::new(Box::new(controller), 0);
        let mut path: Vec<(u32, usize)> = Vec::new();
        for _ in 0..intervals {
            let limit = simulation.interval(&mut plant).0.limit.get();
            match path.last_mut() {
                Some((last, count)) if *last == limit => *count += 1,
                _ => path.push((limit, 1)),
            }
        }
        path
    }

    /// C = 0.4 and Δ = 10: from 100 to 110 throughput must rise by 4 %.
    #[test]
    fn each_case_of_the_formula() {
        let table = [
            ((100, 1_000), (110, 1_041), 120, "up, and more than 4 % gained"),
            ((100, 1_000), (110, 1_039), 100, "up, and less than 4 % gained"),
            ((100, 1_000), (110, 900), 100, "up, and lost"),
            ((100, 1_000), (100, 1_000), 110, "same limit, same throughput"),
            ((100, 1_000), (100, 999), 100, "same limit, less throughput"),
            ((110, 1_000), (100, 1_001), 90, "down, and gained"),
            ((110, 1_000), (100, 1_000), 110, "down, and nothing gained"),
            ((110, 1_000), (100, 900), 110, "down, and lost"),
            ((15, 1_000), (5, 1_001), 1, "down, to the lowest limit"),
            ((985, 1_000), (995, 1_041), 1_000, "up, to the highest limit"),
            ((990, 1_000), (1_000, 1_041), 990, "no way up"),
            ((2, 1_000), (1, 1_001), 11, "no way down"),
        ];
        for (before, now, expected, case) in table {
            let mut controller = climber(HillClimbingSettings::STUDY);
            assert_eq!(limit_after(&mut controller, &[before, now]), expected, "{case}");
        }
    }

    /// From 110 to 100 the limit falls by 9.09 %, so with a loss of 0.5 by 4.545 % of throughput.
    #[test]
    fn a_step_down_may_cost_the_loss_allowed() {
        for (tps, expected) in [(955, 90), (954, 110)] {
            let settings = HillClimbingSettings { loss: 0.5, ..HillClimbingSettings::STUDY };
            let history = [(110, 1_000), (100, tps)];
            assert_eq!(limit_after(&mut climber(settings), &history), expected);
        }
    }

    /// The example of the module's head.
    #[test]
    fn without_rest_it_probes_for_ever() {
        let step = Step::Absolute(1);
        let controller = climber(HillClimbingSettings { step, ..HillClimbingSettings::STUDY });
        let limits: Vec<u32> = path(controller, 1_000, 9).iter().map(|&(limit, _)| limit).collect();
        assert_eq!(limits, [1, 2, 3, 2, 1, 2, 3, 2, 1]);
    }

    #[test]
    fn rests_grow_while_probes_are_turned_back() {
        let controller = climber(HillClimbingSettings::PROXY);
        let climb = [(1, 1), (2, 1), (3, 1), (2, 1), (1, 1)];
        let rests = [(2, 2), (3, 1), (2, 4), (1, 1), (2, 8), (3, 1), (2, 16), (1, 1), (2, 16)];
        assert_eq!(path(controller, 1_000, 55), [&climb[..], &rests[..]].concat());
    }

    #[test]
    fn a_rest_ends_when_throughput_leaves_the_band_around_its_mean() {
        for (tps, reason) in [
            (1_190, Reason::Rest { left: 1 }),
            (810, Reason::Rest { left: 1 }),
            (1_250, Reason::Moved { throughput: 0.25 }),
            (750, Reason::Moved { throughput: -0.25 }),
        ] {
            let mut controller = resting();
            let decision = controller.decide(&observed(100, 10_000, tps), DRAW);
            assert_eq!(decision.reason, reason);
            let limit = if matches!(reason, Reason::Moved { .. }) { 150 } else { 100 };
            assert_eq!(decision.limit.get(), limit);
        }
    }

    #[test]
    fn a_rest_that_ended_early_starts_the_count_of_refusals_anew() {
        let mut controller = resting();
        let history = [(100, 2_000), (150, 900), (100, 2_000)];
        let limits = history.map(|second| limit_after(&mut controller, &[second]));
        assert_eq!(limits, [150, 100, 50]);
    }

    /// The probe at 150 gave 990 tps. A mean of 980 at 100 is less, although the last interval had
    /// 1,100, so 150 is tried again; a mean of 1,000 is more, although the last had 900, so the
    /// other side is tried.
    #[test]
    fn the_mean_of_the_rest_is_what_counts() {
        for (rest, limit) in [([900, 920, 1_100], 150), ([1_060, 1_040, 900], 50)] {
            let mut controller = resting();
            let limits = rest.map(|tps| limit_after(&mut controller, &[(100, tps)]));
            assert_eq!(limits, [100, 100, limit]);
        }
    }

    /// A controller that has had one of four intervals at 100, with 1,000 tps, after probes at
    /// 150, 50 and 150 again were turned back, the last with 990.
    fn resting() -> HillClimbing {
        let settings = HillClimbingSettings { rest: 3, loss: 0.0, ..HillClimbingSettings::PROXY };
        let mut controller = climber(settings);
        let turned_back = [(100, 1_000), (150, 900), (100, 1_000), (50, 900), (100, 1_000)];
        let history = [&turned_back[..], &[(100, 1_000), (150, 990)]].concat();
        limit_after(&mut controller, &history);
        let decision = controller.decide(&observed(100, 10_000, 1_000), DRAW);
        assert_eq!(decision.reason, Reason::Rest { left: 2 });
        controller
    }

    #[test]
    fn the_limit_never_exceeds_the_concurrency() {
        let mut seen = observed(10, 0, 1_000);
        (seen.concurrency_peak, seen.concurrency) = (4, 2);
        let table = [(Concurrency::Peak, 4), (Concurrency::AtEnd, 2)];
        for (concurrency, limit) in table {
            let settings = HillClimbingSettings { concurrency, ..HillClimbingSettings::PROXY };
            let decision = climber(settings).decide(&seen, DRAW);
            let reason = Reason::Concurrency { seen: limit };
            assert_eq!(decision, Decision { limit: Mpl::at_least_one(limit), reason });
        }
    }

    #[test]
    fn a_climb_that_cannot_go_up_goes_down() {
        for (clients, start) in [(1_000, 1_000), (64, 64)] {
            let start = Mpl::at_least_one(start);
            let controller = HillClimbing::for_proxy(bounds(1, 1_000), start);
            let path = path(controller, clients, 20);
            assert!(path.iter().any(|&(limit, _)| limit == 2), "{path:?}");
        }
    }

    /// 200 transactions a second arrive whatever the limit is, and take 20 ms each: on average 4
    /// run. Response time by Erlang's formula for `limit` servers; at 4 and below the queue grows.
    fn light_load(limit: u32) -> Observation {
        let (arrivals, service_s, servers) = (200.0, 0.02, f64::from(limit));
        let offered = arrivals * service_s;
        let mut blocked = 1.0;
        for server in 1..=limit {
            blocked = offered * blocked / (f64::from(server) + offered * blocked);
        }
        let waits = blocked / (1.0 - (1.0 - blocked) * offered / servers);
        let is_stable = offered < servers;
        let queue_s = if is_stable { waits * service_s / (servers - offered) } else { 5.0 };
        let tps = if is_stable { 200 } else { u64::from(limit) * 50 };
        let mut seen = observed(limit, 40, tps);
        seen.concurrency_mean = tps as f64 * (service_s + queue_s);
        seen.waiting_share = if is_stable { waits } else { 1.0 };
        seen
    }

    /// With 5 permits the light load is borne as well as with 40, but it queues for 11 ms.
    #[test]
    fn under_a_light_load_the_limit_does_not_sink_until_users_wait() {
        for start in [1, 4, 8, 20, 40] {
            let mut controller =
                HillClimbing::for_proxy(bounds(1, 1_000), Mpl::at_least_one(start));
            let limits = [vec![controller.start().get()], limits(&mut controller, 99, light_load)];
            let queued_s = |&limit: &u32| light_load(limit).response_time_s() - 0.02;
            let mut queued: Vec<f64> = limits.concat().iter().map(queued_s).collect();
            let settled = &mut queued[40..];
            settled.sort_by(f64::total_cmp);
            let median_s = settled[settled.len() / 2];
            assert!(median_s < 0.001, "from {start}: {median_s} s in the queue");
        }
    }
}
