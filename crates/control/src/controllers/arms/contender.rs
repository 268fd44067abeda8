//! One arm: its controller, and what is known of its gain over the incumbent.

use crate::{Controller, Decision, Draw, Mpl, Observation};

/// Standard deviation of the gains that are expected, in ln X.
const EXPECTED: f64 = 0.5;

/// Variance by which a gain drifts in a second: a standard deviation of 0.05 in a minute.
const DRIFT: f64 = 0.05 * 0.05 / 60.0;

/// Standard deviations that an interval reaches to each side.
const REACH: f64 = 2.0;

/// What is known of an arm's gain over the incumbent, in ln X.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ArmGain {
    pub(super) mean: f64,
    variance: f64,
    at_s: f64,
}

impl ArmGain {
    fn unknown() -> ArmGain {
        ArmGain { mean: 0.0, variance: EXPECTED * EXPECTED, at_s: 0.0 }
    }

    /// The gain of an incumbent that has lost its place to a challenger with this gain.
    pub(super) fn of_former(gain: f64, error: f64, now_s: f64) -> ArmGain {
        ArmGain { mean: -gain, variance: error * error, at_s: now_s }
    }

    fn variance_at(self, now_s: f64) -> f64 {
        self.variance + DRIFT * (now_s - self.at_s)
    }

    /// Returns the most that the gain may be.
    pub(super) fn most(self, now_s: f64) -> f64 {
        self.mean + REACH * self.variance_at(now_s).sqrt()
    }

    /// Takes a measurement, weighted by its precision against what was known.
    pub(super) fn learn(&mut self, gain: f64, error: f64, now_s: f64) {
        let (before, seen) = (self.variance_at(now_s), error * error);
        let share = before / (before + seen);
        self.mean += share * (gain - self.mean);
        self.variance = before * (1.0 - share);
        self.at_s = now_s;
    }

    /// The incumbent is another, which has this gain over the one before.
    pub(super) fn rebase(&mut self, gain: f64, error: f64, now_s: f64) {
        self.variance = self.variance_at(now_s) + error * error;
        self.mean -= gain;
        self.at_s = now_s;
    }

    /// What is left of it for another workload.
    fn doubted(self) -> ArmGain {
        ArmGain { variance: self.variance.max(EXPECTED * EXPECTED), ..self }
    }
}

/// An arm with its controller, which works only while the arm is in force.
pub(super) struct Contender {
    controller: Box<dyn Controller>,
    /// The limit that its controller decided last.
    pub(super) limit: Mpl,
    pub(super) gain: ArmGain,
    /// When it was last tried, seconds; not since the beginning, or since the workload changed, if
    /// there is no such time.
    pub(super) tried_s: Option<f64>,
    /// Seconds and intervals for which its controller has held the limit, and seconds for which it
    /// has worked since the arm was last to be tuned.
    steady_s: f64,
    steady: u32,
    worked_s: f64,
    /// Whether its controller has found a limit.
    pub(super) is_tuned: bool,
}

impl Contender {
    pub(super) fn new(controller: Box<dyn Controller>) -> Contender {
        let limit = controller.start();
        Contender {
            controller,
            limit,
            gain: ArmGain::unknown(),
            tried_s: None,
            steady_s: 0.0,
            steady: 0,
            worked_s: 0.0,
            is_tuned: false,
        }
    }

    pub(super) fn controller(&self) -> &dyn Controller {
        &*self.controller
    }

    /// Whether its controller keeps a response time.
    pub(super) fn has_goal(&self) -> bool {
        self.controller.goal().is_some()
    }

    /// Whether its controller says that no limit keeps its response time.
    pub(super) fn misses_goal(&self) -> bool {
        self.controller.goal().is_some_and(|goal| goal.is_impossible)
    }

    /// The workload is another: its gain is a guess, and its limit is found anew by `controller`.
    pub(super) fn doubt(&mut self, controller: Box<dyn Controller>) {
        let before = std::mem::replace(self, Contender::new(controller));
        self.gain = before.gain.doubted();
    }

    /// Takes what a quick round has shown. An arm that is dropped counts as tried.
    pub(super) fn survey(&mut self, gain: f64, error: f64, now_s: f64, is_dropped: bool) {
        self.gain = ArmGain::unknown();
        self.gain.learn(gain, error, now_s);
        self.tried_s = is_dropped.then_some(now_s);
        self.begin_tuning();
    }

    /// Its controller has to show that it holds its limit.
    pub(super) fn begin_tuning(&mut self) {
        (self.steady_s, self.steady, self.worked_s) = (0.0, 0, 0.0);
        self.is_tuned = false;
    }

    /// Seconds for which its controller has been looking for a limit.
    pub(super) fn tuning_s(&self) -> f64 {
        self.worked_s
    }

    /// Asks its controller. `residence_s` is the time that transactions take.
    pub(super) fn decide(&mut self, seen: &Observation, draw: Draw, residence_s: f64) -> Decision {
        let decision = self.controller.decide(seen, draw);
        let seconds = seen.interval.as_secs_f64();
        self.worked_s += seconds;
        if decision.limit == self.limit {
            self.steady_s += seconds;
            self.steady += 1;
        } else {
            (self.steady_s, self.steady) = (0.0, 0);
        }
        self.limit = decision.limit;
        let is_judged = self.controller.goal().is_none_or(|goal| goal.is_met.is_some());
        let is_steady = self.steady >= STEADY && self.steady_s >= STEADY_S.max(3.0 * residence_s);
        let most_s = if is_judged { TUNING_S } else { JUDGING_S };
        self.is_tuned |= (is_steady && is_judged) || self.worked_s >= most_s.max(9.0 * residence_s);
        decision
    }
}

/// A controller that has held its limit for so many intervals and seconds has found it.
const STEADY: u32 = 3;
const STEADY_S: f64 = 1.0;

/// The longest time for which an arm is tuned before it is compared, seconds; and where its
/// controller has to judge a response time.
const TUNING_S: f64 = 10.0;
const JUDGING_S: f64 = 30.0;
