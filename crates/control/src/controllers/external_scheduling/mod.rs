//! The feedback controller of the external-scheduling study (Section 4.3): the lowest limit that
//! costs no more than allowed.
//!
//! # Mechanism
//! The lower the limit, the more transactions wait outside, where they can be put in order. So the
//! study looks for the *lowest* limit that keeps throughput within an allowed loss of what it would
//! be without a limit, and mean response time within an allowed increase. A queueing model
//! ([`crate::models::throughput`]) gives the limit to start from. Then two phases alternate:
//! observe throughput and response time over a window, then react with one small constant step,
//! down while the goal is met and up while it is missed.
//!
//! ```text
//! start    lowest MPL of the model: 19(M − 1) for M stations and a loss of 5 %
//! observe  intervals at one limit until their confidence intervals are narrow
//! react    goal met      n − Δ, or hold if that was too low before
//!          too low       n + Δ, or hold if that was too high before
//!          too high      n − Δ: throughput was better at a lower limit
//! hold     until throughput or response time leaves its confidence band, then anew from here
//! ```
//!
//! # Example
//! Three stations and 1,000 clients; the database is the balanced one of the model with 1,000 tps
//! at most, Δ = 2, no noise. Start: 19·2 = 38. There 950 tps are seen; the model promises
//! 1,000·1,000/1,002 = 998 tps without a limit, of which 95 % are 948: met. Down to 36: 947,
//! missed. The window is doubled, 947 again, so up to 38: met again, doubled, and 36 was too low:
//! hold.
//!
//! # Where this leaves the study
//! * **Reference.** The study compares with throughput without a limit and does not say how that is
//!   known. Opening the gate would tell, at the price of the collapse that the gate is there to
//!   prevent. Here the model's curve is fitted to the windows of the search and read at the
//!   concurrency, and is never below the best throughput seen. Fewer stations in use than the model
//!   has show as a flatter curve and the limit goes on down; more show as a steeper one and it goes
//!   up. The method and an example head the file `reference.rs`.
//! * **Two goals, one at a time.** While somebody always waits, throughput is what the limit lets
//!   through, and it alone is judged. In a closed system response time is clients over throughput,
//!   so it says the same; in an open one it then tells the age of the queue. Otherwise throughput
//!   is the rate of arrivals, whatever the limit is, and response time alone is judged. Its
//!   reference is learnt where the queue is as good as empty; until it has been, the limit goes up.
//! * **Too high.** The study's throughput never falls with the MPL. Here it may: a limit that is
//!   worse than a lower one goes down, and steps up end below it.
//! * **Stop.** The study's loop has no end. Here it holds once the limit a step below was too low,
//!   or the one a step above too high. No step goes beyond a limit that was either, so every search
//!   ends.
//! * **Turning.** A verdict that turns the search must hold over a window twice as long, and one
//!   that ends a descent must be beyond the window's confidence interval. Or in a long descent one
//!   unlucky window would end it. A descent that went a little too far comes back by the mean
//!   alone.
//! * **Windows** are at least five intervals, and until 100 transactions are in them and their 95 %
//!   confidence intervals are within 5 % (`half_width`), at most `max_intervals`. Intervals while
//!   more run than a lowered limit allows do not count.
//! * **Light load.** An interval with less than half of the usual concurrency does not count, nor
//!   one with fewer transactions than the limit: the limit given out is then that number, and the
//!   search goes on from where it was when they are back. If they stay away for the longest window,
//!   the search begins anew below them.
//!
//! # Limits
//! * A constant step is slow from a far start: from 1,000 to 10 with Δ = 2 takes 495 windows of at
//!   least five intervals. That is the study's design: the model is to start it near the goal. It
//!   does that if processors and disks are what limits the database, not locks.
//! * It finds the first such limit from where it stands, and nothing beyond a valley. From below,
//!   that is a limit which met the goal, not always the lowest that would: windows near each other
//!   say little about a line, so it climbs some steps although a level curve gains nothing by them.
//! * Where the model has far too few stations and the start is on a rise, two windows a step apart
//!   do not overrule it either, and the search may end where it began.
//! * A loss of 5 % is hardly more than the error of a window. It stops some steps early or late.
//! * While it holds it does not try again whether a still lower limit would do.

mod reference;
mod window;

use crate::controller::{Concurrency, Controller, Step};
use crate::models::throughput::Network;
use crate::parameters::{Allowed, settings};
use crate::reason::{displayed, reasons};
use crate::{Bounds, Decision, Draw, Mpl, Observation, Reason, Resources};

use reference::ThroughputReference;
use window::{Estimate, ObservationWindow, WindowMeasurement};

settings! {
    /// The parameters of [`ExternalScheduling`].
    pub struct ExternalSchedulingSettings;

    /// The study's numbers, 5 % of either and windows of 100 transactions, for one processor and
    /// one disk; the step is ours.
    pub const DEFAULT;

    /// Stations of the queueing model, M: processors and disks in use.
    stations: u32 = 2;
    allowed_loss: f64 = 0.05, "loss", "share", Allowed::Number(0.001, 0.9),
        "throughput that may be given up for a low limit";
    allowed_increase: f64 = 0.05, "response-time-loss", "share", Allowed::Number(0.001, 100.0),
        "increase of mean response time that may be accepted for a low limit";
    step: Step = Step::Absolute(2), "delta", "transactions", Allowed::Step, "step, Δ";
    half_width: f64 = 0.05, "half-width", "share", Allowed::Number(0.001, 1.0),
        "half the width of the 95 % confidence interval that a window must reach";
    min_completions: u64 = 100, "completions", "transactions", Allowed::Whole(10, 1_000_000),
        "transactions that a window needs";
    max_intervals: u32 = 10, "intervals", "intervals", Allowed::Whole(1, 10_000),
        "intervals after which a window is complete in any case";
}

impl ExternalSchedulingSettings {
    /// Returns these settings with the stations that `resources` are.
    #[must_use]
    pub fn with_resources(self, resources: Resources) -> ExternalSchedulingSettings {
        ExternalSchedulingSettings { stations: resources.stations(), ..self }
    }

    /// The study's start: the lowest MPL at which the model of `stations` equal stations keeps
    /// throughput within the allowed loss. It is 1 where the model has no answer, because the loss
    /// is not between 0 and 1 or asks for more than a million transactions: the search climbs from
    /// there.
    #[must_use]
    pub fn model_start(&self) -> Mpl {
        let network = Network::balanced(self.stations);
        network.and_then(|network| network.lowest_mpl(self.allowed_loss)).unwrap_or(Mpl::ONE)
    }

    /// m of the model's curve N/(N + m).
    fn neighbours(&self) -> f64 {
        f64::from(self.stations.saturating_sub(1))
    }
}

/// The feedback controller (Section 4.3).
#[derive(Clone, Debug)]
pub struct ExternalScheduling {
    bounds: Bounds,
    start: Mpl,
    settings: ExternalSchedulingSettings,
    /// The limit under observation; what is given out is lower while fewer transactions are there.
    wanted: Mpl,
    window: ObservationWindow,
    phase: TuningPhase,
    /// The usual concurrency, an average that fades.
    usual: Option<f64>,
    /// Intervals in a row with fewer transactions than the limit.
    short: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TuningPhase {
    Search(TuningSearch),
    Hold(WindowMeasurement),
}

/// A search for the lowest limit that meets the goals.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct TuningSearch {
    reference: ThroughputReference,
    /// The highest limit that was too low.
    too_low: Option<Mpl>,
    /// The lowest limit that was too high.
    too_high: Option<Mpl>,
    /// Whether the last step went up.
    went_up: Option<bool>,
}

/// What a window says about its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowVerdict {
    GoalMet,
    TooLow,
    TooHigh,
}

displayed! {
    /// How a window compares with what it was judged by.
    pub enum FeedbackGrade {
        /// Throughput as a share of the reference, what it would be without a limit.
        Throughput {
            /// The share.
            share: f64,
        } => "{:.0} % of the throughput without a limit", share * 100.0;
        /// Throughput as a share of the best seen, at a lower limit.
        Best {
            /// The share.
            share: f64,
            /// The limit of the best.
            limit: Mpl,
        } => "{:.0} % of the throughput at {limit}", share * 100.0;
        /// Mean response time against the reference, what it would be without a limit.
        ResponseTime {
            /// The increase, a fraction.
            increase: f64,
        } => "response time {:+.0} % against no limit", increase * 100.0;
        /// Response time, while no window has shown what it is without a queue.
        Queue {
            /// Transactions waiting, in the mean.
            waiting: f64,
        } => "{waiting:.1} still wait";
    }
}

reasons! {
    /// Why a limit was chosen.
    pub enum FeedbackReason {
        /// The window is not complete.
        Observe {
            /// Intervals in it.
            intervals: u32,
        } = "observe" => "observe: {intervals} interval{} so far",
            if intervals == 1 { "" } else { "s" };
        /// The interval was not spent at the limit under observation.
        Settle = "settle" => "settle: the limit was not in force for the whole interval";
        /// The interval does not count: fewer transactions than usual.
        LightLoad {
            /// The concurrency of the interval.
            seen: f64,
            /// The usual concurrency.
            usual: f64,
        } = "light_load" => "light load: concurrency {seen:.1}, usually {usual:.1}";
        /// The verdict would turn the search: the window goes on.
        Confirm(grade: FeedbackGrade) = "confirm" => "confirm: {grade}, once more";
        /// The goal is met: a step down.
        Down(grade: FeedbackGrade) = "goal_met" => "down: {grade}";
        /// The goal is missed: a step up.
        Up(grade: FeedbackGrade) = "too_low" => "up: {grade}";
        /// A lower limit was better: a step down.
        Back(grade: FeedbackGrade) = "too_high" => "back: {grade}";
        /// The search has ended here.
        Found(grade: FeedbackGrade) = "found" => "found: {grade}";
        /// The limit that was found stays.
        Hold {
            /// Change of throughput since it was found.
            throughput: f64,
        } = "hold" => "hold: throughput {:+.0} %", throughput * 100.0;
        /// Throughput or response time has left its band: the search begins anew.
        Anew {
            /// Change of throughput since the limit was found.
            throughput: f64,
            /// Change of mean response time.
            response_time: f64,
        } = "anew" => "anew: throughput {:+.0} %, response time {:+.0} %",
            throughput * 100.0, response_time * 100.0;
    }
}

/// An interval with less than this share of the usual concurrency is a light one.
const LIGHT_SHARE: f64 = 0.5;

/// What one interval adds to the usual concurrency: a change that lasts is usual after some twenty.
const NEWS: f64 = 0.1;

/// More transactions inside than this multiple of the limit: a lowered limit is not in force yet.
const SETTLED: f64 = 1.1;

impl ExternalScheduling {
    /// Searches within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn new(
        bounds: Bounds,
        start: Mpl,
        settings: ExternalSchedulingSettings,
    ) -> ExternalScheduling {
        let start = bounds.clamp(start);
        ExternalScheduling {
            bounds,
            start,
            settings,
            wanted: start,
            window: ObservationWindow::default(),
            phase: TuningPhase::Search(TuningSearch::default()),
            usual: None,
            short: 0,
        }
    }

    /// Searches within `bounds` from [`ExternalSchedulingSettings::model_start`], as the study
    /// does.
    #[must_use]
    pub fn from_model(bounds: Bounds, settings: ExternalSchedulingSettings) -> ExternalScheduling {
        ExternalScheduling::new(bounds, settings.model_start(), settings)
    }

    /// An interval with only `seen` transactions, fewer than the limit under observation.
    fn fall_short(&mut self, limit: Mpl, seen: u32) -> Decision {
        self.short = self.short.saturating_add(1);
        if self.short >= self.settings.max_intervals {
            self.go_to(limit);
            self.phase = TuningPhase::Search(TuningSearch::default());
        }
        Decision { limit, reason: Reason::Concurrency { seen } }
    }

    /// Why an interval does not count.
    fn objection(&mut self, observation: &Observation) -> Option<Reason> {
        // 0 when nothing completed.
        let response_s = observation.response_time_s();
        let is_measured = response_s.is_finite() && observation.running_mean.is_finite();
        if !(is_measured && response_s > 0.0) {
            return Some(Reason::NothingCompleted);
        }
        let concurrency = observation.concurrency_mean;
        let usual = self.usual.unwrap_or(concurrency);
        self.usual = Some(usual + NEWS * (concurrency - usual));
        if concurrency < LIGHT_SHARE * usual {
            let light = FeedbackReason::LightLoad { seen: concurrency, usual };
            return Some(Reason::Feedback(light));
        }
        let is_above = observation.running_mean > SETTLED * f64::from(self.wanted.get());
        let is_settled = observation.limit == self.wanted && !is_above;
        (!is_settled).then_some(Reason::Feedback(FeedbackReason::Settle))
    }

    /// Takes in an interval, and reacts if that completes a window.
    fn observe(&mut self, observation: &Observation, allowed: Bounds) -> FeedbackReason {
        self.window.add(observation);
        if !self.window.is_complete(&self.settings) {
            return FeedbackReason::Observe { intervals: self.window.intervals() };
        }
        let seen = self.window.seen(self.wanted);
        match self.phase {
            TuningPhase::Search(search) => self.search(search, &seen, allowed),
            TuningPhase::Hold(found) => self.hold(&found, &seen),
        }
    }

    /// One reaction of the search, if the window is long enough for it.
    fn search(
        &mut self,
        mut search: TuningSearch,
        seen: &WindowMeasurement,
        allowed: Bounds,
    ) -> FeedbackReason {
        let settings = &self.settings;
        search.reference.learn(seen, settings.neighbours(), settings.allowed_increase);
        let (verdict, grade) = search.judge(seen, settings);
        let goes_up = verdict == WindowVerdict::TooLow;
        if search.went_up.is_some_and(|went_up| went_up != goes_up) && self.window.extend() {
            return FeedbackReason::Confirm(grade);
        }
        let next = search.react(verdict, seen.limit, settings.step, allowed);
        self.go_to(next.unwrap_or(seen.limit));
        if next.is_none() {
            self.phase = TuningPhase::Hold(*seen);
            return FeedbackReason::Found(grade);
        }
        self.phase = TuningPhase::Search(search);
        match verdict {
            WindowVerdict::GoalMet => FeedbackReason::Down(grade),
            WindowVerdict::TooLow => FeedbackReason::Up(grade),
            WindowVerdict::TooHigh => FeedbackReason::Back(grade),
        }
    }

    /// Whether a window still looks like the one at which the search ended.
    fn hold(&mut self, found: &WindowMeasurement, seen: &WindowMeasurement) -> FeedbackReason {
        self.window = ObservationWindow::default();
        let floor = self.settings.half_width;
        let is_loaded = found.is_saturated && seen.is_saturated;
        let change = |from: Estimate, to: Estimate| to.mean / from.mean - 1.0;
        let throughput = change(found.tps, seen.tps);
        let is_same = seen.tps.meets(found.tps, floor)
            && (is_loaded || seen.response_s.meets(found.response_s, floor));
        if is_same {
            return FeedbackReason::Hold { throughput };
        }
        self.phase = TuningPhase::Search(TuningSearch::default());
        let response_time = change(found.response_s, seen.response_s);
        FeedbackReason::Anew { throughput, response_time }
    }

    fn go_to(&mut self, limit: Mpl) {
        self.wanted = limit;
        self.window = ObservationWindow::default();
        self.short = 0;
    }
}

impl TuningSearch {
    /// Compares a window that the reference has learnt from with the reference.
    fn judge(
        &self,
        seen: &WindowMeasurement,
        settings: &ExternalSchedulingSettings,
    ) -> (WindowVerdict, FeedbackGrade) {
        if seen.is_saturated {
            self.judge_throughput(seen, 1.0 - settings.allowed_loss)
        } else {
            self.judge_response_time(seen, settings.allowed_increase)
        }
    }

    fn judge_throughput(
        &self,
        seen: &WindowMeasurement,
        enough: f64,
    ) -> (WindowVerdict, FeedbackGrade) {
        if let Some(best) = self.reference.best().filter(|best| best.limit < seen.limit) {
            let share = seen.tps.mean / best.tps;
            if share < enough {
                return (WindowVerdict::TooHigh, FeedbackGrade::Best { share, limit: best.limit });
            }
        }
        let reference_tps = self.reference.tps(seen.concurrency);
        let is_met = seen.tps.mean + self.doubt(seen.tps) >= enough * reference_tps;
        let verdict = if is_met { WindowVerdict::GoalMet } else { WindowVerdict::TooLow };
        (verdict, FeedbackGrade::Throughput { share: seen.tps.mean / reference_tps })
    }

    fn judge_response_time(
        &self,
        seen: &WindowMeasurement,
        allowed_increase: f64,
    ) -> (WindowVerdict, FeedbackGrade) {
        let Some(reference_s) = self.reference.response_s() else {
            let waiting = seen.concurrency - seen.running;
            return (WindowVerdict::TooLow, FeedbackGrade::Queue { waiting });
        };
        let seen_s = seen.response_s;
        let is_met = seen_s.mean - self.doubt(seen_s) <= (1.0 + allowed_increase) * reference_s;
        let verdict = if is_met { WindowVerdict::GoalMet } else { WindowVerdict::TooLow };
        (verdict, FeedbackGrade::ResponseTime { increase: seen_s.mean / reference_s - 1.0 })
    }

    /// What must speak against a limit, beside the mean, to end a descent.
    fn doubt(&self, estimate: Estimate) -> f64 {
        if self.went_up == Some(false) { estimate.half_width } else { 0.0 }
    }

    /// The limit after `limit`; none when the search ends there. No step passes over the best.
    fn react(
        &mut self,
        verdict: WindowVerdict,
        limit: Mpl,
        step: Step,
        allowed: Bounds,
    ) -> Option<Mpl> {
        let (level, step) = (limit.get(), step.from(limit));
        let up = allowed.clamp(Mpl::at_least_one(level.saturating_add(step)));
        let down = allowed.clamp(Mpl::at_least_one(level.saturating_sub(step)));
        let best = self.reference.best().map_or(limit, |best| best.limit);
        self.went_up = Some(verdict == WindowVerdict::TooLow);
        let next = match verdict {
            WindowVerdict::GoalMet => {
                Some(down).filter(|&down| self.too_low.is_none_or(|low| down > low))
            }
            WindowVerdict::TooLow => {
                self.too_low = self.too_low.max(Some(limit));
                let up = if best > limit { up.min(best) } else { up };
                Some(up).filter(|&up| self.too_high.is_none_or(|high| up < high))
            }
            WindowVerdict::TooHigh => {
                self.too_high = Some(self.too_high.map_or(limit, |high| high.min(limit)));
                Some(down.max(best))
            }
        };
        next.filter(|&next| next != limit)
    }
}

impl Controller for ExternalScheduling {
    fn name(&self) -> &'static str {
        "external-scheduling"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let seen = Concurrency::Peak.of(observation);
        let allowed = self.bounds.capped_at(seen);
        let limit = allowed.clamp(self.wanted);
        if limit < self.wanted {
            return self.fall_short(limit, seen);
        }
        self.short = 0;
        let objection = self.objection(observation);
        let reason =
            objection.unwrap_or_else(|| Reason::Feedback(self.observe(observation, allowed)));
        Decision { limit: self.wanted, reason }
    }
}

#[cfg(test)]
mod tests;
