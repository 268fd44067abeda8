//! Arms: ways of working of which a database has one in force at a time, chosen beside the limit.
//!
//! An arm is, for example, a lock protocol with a lock depth. The best limit of one arm says little
//! of that of another, and which arm is best depends on the workload and on the limit. So each arm
//! is measured at its own best limit.
//!
//! # Mechanism
//! * **A controller for each arm.** It is shown the intervals in which its arm is in force, and
//!   goes on where it left off when the arm is in force again. Time stands still for it
//!   meanwhile. The limit in force is the one that it decided last.
//! * **Washout.** After a switch nothing counts, for the controller neither, until transactions
//!   that began under the arm before have ended (`crate::settling`), three residence times at
//!   least.
//! * **Quick round.** At first, and after a change of the workload, each arm is in force for a
//!   moment (0.3 s of washout, then windows of 0.2 s) at a common limit, at four times and perhaps
//!   at a quarter of it (`quick_round`). The arm with the highest throughput becomes the incumbent.
//!   Arms with less than half of it count as tried; they come up for comparison later, as any other
//!   arm does. There is no quick round where a response time is kept.
//! * **Contenders.** The incumbent's controller works until it has held its limit for 1 s. Then
//!   each arm that is left is tried. Its controller looks for its limit first. It is left if it has
//!   shown less than half of the incumbent's throughput after 2 s.
//! * **Collapse.** A challenger that has had less than a tenth of the incumbent's completions for
//!   1 s and four residence times since the switch is left at once, also if nothing completed. If
//!   the incumbent completes nothing for 1 s and eight residence times while some wait, that is a
//!   change of the workload.
//! * **Comparison.** Incumbent, challenger, incumbent, challenger: each window of the challenger is
//!   compared with the incumbent's before and after it, which cancels drift. The challenger is
//!   adopted when the sequential test (`crate::sequential_test`) shows that it is better. The
//!   comparison ends when the gain is below 2 % by two standard errors, or after 12 s of the
//!   challenger.
//! * **Memory.** The gain of each arm over the incumbent is known with a variance that grows with
//!   time. Between two comparisons the incumbent is held so long that challengers have at most 3 %
//!   of the time, and at most 0.5 % of the throughput is lost to them. The next challenger is the
//!   arm that may be better by the most, if that is more than 2 %, or else the one that was not
//!   tried for the longest time.
//! * **Change.** Windows in a row in which the incumbent's throughput is off by 20 % and four
//!   standard deviations, on one side, are another workload: three if it is off by half, and ten
//!   otherwise, because its controller may only be trying limits. All arms are tried again at once,
//!   with new controllers, because what was learnt of the old workload misleads. The next such
//!   round waits for 20 s, and twice as long each time that changes follow each other.
//! * **A response time to keep.** If the controllers keep one ([`KeepGoal`](super::KeepGoal)), each
//!   arm is measured at a limit that keeps it. An arm whose controller says that no limit does is
//!   behind all whose controllers do not.
//!
//! # Example
//! Arms A, B and C with at most 1000, 1400 and 300 tps at limits 8, 24 and 1. The quick round takes
//! 3 s; B wins it, C is dropped. B is tuned in 3 s, then A; they are compared: 1 s of B, 1 s of A,
//! 1 s of B. B stays. After some minutes C is tried again and left after 2 s, later A.
//!
//! # Limits
//! * Throughput counts transactions. What an arm does that shows later than in seconds is not seen.
//! * A limit that is found too slowly counts as the arm's best: tuning ends after 10 s, or nine
//!   residence times.
//! * Under a light load all arms have the throughput of the load, and the first one stays.

mod contender;
mod level;
mod quick_round;
mod reason;

use std::num::NonZeroUsize;

use crate::controller::{Controller, Decision};
use crate::sequential_test::{PairScale, SequentialTest};
use crate::settling::{SettlingWindow, Want, WindowSample};
use crate::{Bounds, Draw, GoalStatus, IntervalRule, Mpl, Observation, Proposal, Reason};

pub use reason::ArmReason;

use contender::{ArmGain, Contender};
use level::IncumbentLevel;
use quick_round::QuickRound;

/// A gain that is worth a comparison, in ln X.
const MARGIN: f64 = 0.02;

/// The error with which a challenger is adopted that is not better.
const WRONG: f64 = 0.02;

/// The longest time of a challenger in one comparison, seconds.
const COMPARED_S: f64 = 12.0;

/// What challengers may cost between rounds: a share of the time, and of the throughput.
const TIME_SHARE: f64 = 0.03;
const LOSS_SHARE: f64 = 0.005;

/// A controller that has not worked for so long has to show that it holds its limit, seconds.
const STALE_S: f64 = 60.0;

/// A challenger that has shown less than this in ln X against the incumbent is far behind, after so
/// many seconds.
const FAR: f64 = -std::f64::consts::LN_2;
const FAR_S: f64 = 2.0;

/// The error of a gain that was seen before the arm was tuned, in ln X.
const UNTUNED: f64 = 0.3;

/// An arm has collapsed if it has less than this share of the throughput expected, for so many
/// seconds and residence times since the switch; the incumbent, if it completes nothing for so
/// long.
const COLLAPSED: f64 = 0.1;
const COLLAPSED_S: f64 = 1.0;
const COLLAPSED_RESIDENCES: f64 = 4.0;

/// After a collapse a round waits for the last one only so long, seconds.
const COLLAPSE_WAIT_S: f64 = 5.0;

/// The length of a window of a quick round, and the washout after a move of the limit alone,
/// seconds.
const QUICK_S: f64 = 0.19;
const QUICK_WASHOUT_S: f64 = 0.1;

/// The longest look of a quick round in which nothing completes, seconds.
const LOOK_S: f64 = 3.0;

/// The shortest washout, seconds, and in residence times; and the longest.
const WASHOUT_S: f64 = 0.3;
const WASHOUT_RESIDENCES: f64 = 3.0;
const WASHOUT_MOST_S: f64 = 3.0;

/// The least time from one round to the next, seconds, and the longest.
const ROUND_S: f64 = 20.0;
const ROUND_MOST_S: f64 = 640.0;

/// The variance of the speed of a tick of 100 ms.
const NOISE: f64 = 0.01;

/// Makes the controller of an arm.
type Make = Box<dyn Fn(usize) -> Box<dyn Controller> + Send>;

/// What was decided about arms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArmDecision {
    /// The arm in force from now on, counted from 0.
    pub arm: usize,
    /// Whether it is in force only to be measured.
    pub is_trial: bool,
    /// Why it was decided so.
    pub reason: ArmReason,
}

/// A comparison of a challenger with the incumbent.
#[derive(Clone, Copy, Debug)]
struct ArmDuel {
    challenger: usize,
    /// The incumbent's last window.
    before: WindowSample,
    /// The challenger's window after it.
    looked: Option<WindowSample>,
    /// The best that it has shown while it was tuned, in ln X.
    best: f64,
    test: SequentialTest,
    /// Seconds for which the challenger was in force, those of them for comparison, and those of
    /// the incumbent's throughput that were lost.
    spent_s: f64,
    compared_s: f64,
    lost_s: f64,
}

#[derive(Clone, Copy, Debug)]
enum ArmTask {
    /// The incumbent is held.
    Hold,
    /// The challenger's controller looks for its limit.
    Tune(ArmDuel),
    /// The two are compared.
    Duel(ArmDuel),
}

/// Chooses one of several arms, and the limit by a controller of its own for each.
pub struct Arms {
    make: Make,
    bounds: Bounds,
    contenders: Vec<Contender>,
    /// The quick round under way.
    quick: Option<QuickRound>,
    /// Seconds and completions since the arm in force was switched to, or since the last look of a
    /// quick round.
    since: (f64, f64),
    /// Seconds without a completion while some waited.
    silent_s: f64,
    /// Whether the last move was one of the limit alone, in a quick round.
    is_short_move: bool,
    in_force: usize,
    incumbent: usize,
    task: ArmTask,
    now_s: f64,
    window: SettlingWindow,
    residence_s: f64,
    level: IncumbentLevel,
    pair_scale: PairScale,
    /// Before this no challenger is compared that has been tried.
    rest_until_s: f64,
    /// When all arms were last to be tried again, how long the next round has to wait, and the
    /// change that it is for.
    round_at_s: f64,
    round_wait_s: f64,
    changed: Option<f64>,
    reason: ArmReason,
}

impl Arms {
    /// Chooses among `count` arms, beginning with the first, within `bounds`. `make` makes the
    /// controller of an arm, counted from 0; all end their intervals by the same rule.
    #[must_use]
    pub fn new(
        count: NonZeroUsize,
        bounds: Bounds,
        make: impl Fn(usize) -> Box<dyn Controller> + Send + 'static,
    ) -> Arms {
        let contenders: Vec<_> = (0..count.get()).map(|arm| Contender::new(make(arm))).collect();
        let is_quick = contenders.len() > 1 && !contenders[0].has_goal();
        let quick =
            is_quick.then(|| QuickRound::new(count.get(), contenders[0].limit, bounds, None));
        Arms {
            contenders,
            make: Box::new(make),
            bounds,
            quick,
            since: (0.0, 0.0),
            silent_s: 0.0,
            is_short_move: false,
            in_force: 0,
            incumbent: 0,
            task: ArmTask::Hold,
            now_s: 0.0,
            window: SettlingWindow::settled(),
            residence_s: 0.0,
            level: IncumbentLevel::default(),
            pair_scale: PairScale::default(),
            rest_until_s: 0.0,
            round_at_s: 0.0,
            round_wait_s: ROUND_S,
            changed: None,
            reason: ArmReason::Tune,
        }
    }

    fn switch_to(&mut self, arm: usize) {
        if arm == self.in_force {
            self.window = self.window.next();
        } else {
            self.in_force = arm;
            self.begin_window();
        }
    }

    /// The arm or the limit is another: what was before it is to be washed out.
    fn begin_window(&mut self) {
        self.window = SettlingWindow::after_move();
        self.since = (0.0, 0.0);
        self.silent_s = 0.0;
        self.is_short_move = false;
    }

    /// Returns the limit in force.
    fn limit(&self) -> Mpl {
        let own = self.contenders[self.in_force].limit;
        self.quick.as_ref().map_or(own, QuickRound::limit)
    }

    /// Goes on with a quick round, if one is under way.
    fn survey(&mut self) -> Option<ArmReason> {
        let mut quick = self.quick.take()?;
        let best_tps = libm::exp(quick.best());
        let residence_s = self.residence_s;
        let longest_s = f64::max(1.0, 1.5 * residence_s);
        let want = Want { seconds: QUICK_S, completions: 20.0, longest_s };
        let limit = quick.limit().get();
        let seen = self.window.sample(limit, want, NOISE).or_else(|| self.early(best_tps));
        let measured = seen.map(|sample| sample.ln_x).or_else(|| self.collapsed(best_tps));
        let Some(ln_x) = measured.or_else(|| self.overlong()) else {
            self.quick = Some(quick);
            return Some(ArmReason::Survey { best_tps });
        };
        let best_tps = f64::max(best_tps, libm::exp(ln_x));
        if !quick.take(ln_x, self.since.1 < 1.0) {
            return Some(self.end_survey(&quick));
        }
        let is_same = quick.arm() == self.in_force;
        self.in_force = quick.arm();
        self.quick = Some(quick);
        self.begin_window();
        self.is_short_move = is_same;
        Some(ArmReason::Survey { best_tps })
    }

    /// The arm with the highest throughput becomes the incumbent, and those far behind have been
    /// tried.
    fn end_survey(&mut self, quick: &QuickRound) -> ArmReason {
        let now_s = self.now_s;
        for (arm, contender) in self.contenders.iter_mut().enumerate() {
            let (gain, is_dropped) = quick.verdict(arm);
            contender.survey(gain, UNTUNED, now_s, is_dropped);
        }
        self.incumbent = quick.winner();
        self.in_force = self.incumbent;
        self.level = IncumbentLevel::default();
        self.rest_until_s = now_s + ROUND_S;
        self.round_at_s = now_s;
        self.task = ArmTask::Hold;
        self.begin_window();
        ArmReason::Tune
    }

    /// Returns the throughput since the switch, in ln X, if it is next to nothing against what is
    /// expected.
    fn collapsed(&self, expected_tps: f64) -> Option<f64> {
        let (seconds, completions) = self.since;
        let least_s = COLLAPSED_S.max(COLLAPSED_RESIDENCES * self.residence_s);
        let is_collapsed = seconds >= least_s
            && expected_tps * seconds >= 12.0
            && completions < COLLAPSED * expected_tps * seconds;
        is_collapsed.then(|| libm::log(completions.max(0.5) / seconds))
    }

    /// Returns the throughput of a look of a quick round that has lasted for too long, in ln X.
    fn overlong(&self) -> Option<f64> {
        let (seconds, completions) = self.since;
        let is_silent = completions < 1.0;
        let longest_s =
            if is_silent { LOOK_S } else { LOOK_S.max(WASHOUT_RESIDENCES * self.residence_s) };
        (seconds >= longest_s).then(|| libm::log(completions.max(0.5) / seconds))
    }

    /// Leaves a challenger that has collapsed, and tries all arms again if the incumbent has.
    fn flee(&mut self) -> Option<ArmReason> {
        if self.in_force == self.incumbent {
            let least_s = COLLAPSED_S.max(2.0 * COLLAPSED_RESIDENCES * self.residence_s);
            if self.silent_s < least_s || self.contenders[self.incumbent].has_goal() {
                return None;
            }
            let ln_x = libm::log(0.5 / self.silent_s);
            self.changed = Some(-1.0 / COLLAPSED);
            return self.begin_round(ln_x);
        }
        let (ArmTask::Tune(mut duel) | ArmTask::Duel(mut duel)) = self.task else { return None };
        let gain = self.collapsed(duel.before.tps())? - duel.before.ln_x;
        if self.contenders[self.incumbent].misses_goal() {
            return None;
        }
        duel.spent_s += self.since.0;
        duel.lost_s -= libm::expm1(gain) * self.since.0;
        Some(self.leave(&duel, gain))
    }

    /// Keeps count of time. Returns whether the interval was one of the arm in force alone.
    fn take(&mut self, seen: &Observation) -> bool {
        let was_washed = self.window.is_washed();
        let seconds = seen.interval.as_secs_f64();
        self.now_s += seconds;
        self.since.0 += seconds;
        self.since.1 += seen.completions as f64;
        let is_silent = seen.completions == 0 && seen.waiting_share >= 0.5;
        self.silent_s = if is_silent { self.silent_s + seconds } else { 0.0 };
        let count = seen.in_database.count as f64;
        if count > 0.0 {
            let share = (count / f64::from(seen.limit.get()).max(4.0)).min(1.0);
            self.residence_s += share * (seen.in_database.mean_s - self.residence_s);
        }
        let patience_s = if self.is_short_move {
            QUICK_WASHOUT_S.max(self.residence_s)
        } else {
            WASHOUT_S.max(WASHOUT_RESIDENCES * self.residence_s)
        };
        let longest_s = WASHOUT_MOST_S.max(2.0 * patience_s);
        self.window.add(seen, self.residence_s, patience_s);
        if !self.window.is_washed() && self.window.since_s() >= longest_s {
            self.window = SettlingWindow::settled();
        }
        was_washed
    }

    /// The window of the arm in force, once it is long enough.
    fn sample(&self, is_short: bool) -> Option<WindowSample> {
        let longest_s = f64::max(4.0, 1.5 * self.residence_s);
        let want = if is_short {
            Want { seconds: 0.49, completions: 10.0, longest_s }
        } else {
            Want { seconds: f64::max(0.99, self.residence_s), completions: 100.0, longest_s }
        };
        self.window.sample(self.contenders[self.in_force].limit.get(), want, NOISE)
    }

    /// What follows from an interval of the arm in force.
    fn react(&mut self) -> ArmReason {
        if !self.contenders[self.incumbent].is_tuned && self.in_force == self.incumbent {
            self.window = self.window.next();
            return ArmReason::Tune;
        }
        match self.task {
            ArmTask::Hold => self.hold(),
            ArmTask::Tune(duel) => self.tune(duel),
            ArmTask::Duel(duel) if self.in_force == duel.challenger => self.look(duel),
            ArmTask::Duel(duel) => self.compare(duel),
        }
    }

    fn hold(&mut self) -> ArmReason {
        let early = || self.early(self.level.tps()?);
        let Some(sample) = self.sample(false).or_else(early) else { return self.reason };
        self.window = self.window.next();
        self.notice(&sample);
        if let Some(reason) = self.begin_round(sample.ln_x) {
            return reason;
        }
        self.challenge(&sample).unwrap_or(ArmReason::Hold { tps: sample.tps() })
    }

    /// Takes a window of the incumbent: whether its throughput has changed.
    fn notice(&mut self, sample: &WindowSample) -> bool {
        let change = self.level.take(sample);
        if change.is_some() {
            self.changed = change;
            self.level = IncumbentLevel::at(sample.ln_x, self.level.spread());
        }
        change.is_some()
    }

    /// After a change all arms are tried again, unless the last round was just now. `ln_x` is the
    /// incumbent's throughput.
    fn begin_round(&mut self, ln_x: f64) -> Option<ArmReason> {
        let since_s = self.now_s - self.round_at_s;
        let is_collapse = self.changed.is_some_and(|change| change < libm::log(COLLAPSED));
        let wait_s = if is_collapse { COLLAPSE_WAIT_S } else { self.round_wait_s };
        if self.contenders.len() < 2 || since_s < wait_s {
            return None;
        }
        let change = self.changed.take()?;
        let is_soon = since_s < 4.0 * self.round_wait_s;
        self.round_wait_s =
            if is_soon { (2.0 * self.round_wait_s).min(ROUND_MOST_S) } else { ROUND_S };
        self.round_at_s = self.now_s;
        for (arm, contender) in self.contenders.iter_mut().enumerate() {
            if arm == self.incumbent {
                contender.begin_tuning();
            } else {
                contender.doubt((self.make)(arm));
            }
        }
        self.level = IncumbentLevel::default();
        if !self.contenders[self.incumbent].has_goal() {
            let common = self.contenders[0].controller().start();
            let known = Some((self.incumbent, ln_x));
            let quick = QuickRound::new(self.contenders.len(), common, self.bounds, known);
            self.in_force = quick.arm();
            self.quick = Some(quick);
            self.begin_window();
        }
        Some(ArmReason::Explore { change: libm::expm1(change) })
    }

    /// The arm that is to be compared now: one that was not tried, the one that may be better by
    /// the most, or the one that was not tried for the longest time.
    fn next_challenger(&self) -> Option<usize> {
        let most = |&arm: &usize| self.contenders[arm].gain.most(self.now_s);
        let others = || (0..self.contenders.len()).filter(|&arm| arm != self.incumbent);
        let best = |one: &usize, other: &usize| {
            // Of those that may be as good, the first.
            most(one).total_cmp(&most(other)).then(other.cmp(one))
        };
        let untried = others().filter(|&arm| self.contenders[arm].tried_s.is_none()).max_by(best);
        if untried.is_some() || self.now_s < self.rest_until_s {
            return untried;
        }
        let due = others().filter(|arm| most(arm) > MARGIN).max_by(best);
        let oldest = |one: &usize, other: &usize| {
            let tried_s = |arm: &usize| self.contenders[*arm].tried_s.unwrap_or(0.0);
            tried_s(one).total_cmp(&tried_s(other))
        };
        due.or_else(|| others().min_by(oldest))
    }

    fn challenge(&mut self, before: &WindowSample) -> Option<ArmReason> {
        let challenger = self.next_challenger()?;
        let duel = ArmDuel {
            challenger,
            before: *before,
            looked: None,
            best: f64::NEG_INFINITY,
            test: SequentialTest::default(),
            spent_s: 0.0,
            compared_s: 0.0,
            lost_s: 0.0,
        };
        self.switch_to(challenger);
        let arm = &mut self.contenders[challenger];
        if arm.tried_s.is_none_or(|tried_s| self.now_s - tried_s > STALE_S) {
            arm.begin_tuning();
        }
        let is_tuned = arm.is_tuned;
        self.task = if is_tuned { ArmTask::Duel(duel) } else { ArmTask::Tune(duel) };
        Some(ArmReason::Compare { other: self.incumbent, gain: 0.0, error: 1.0 })
    }

    /// The challenger's controller looks for its limit.
    fn tune(&mut self, mut duel: ArmDuel) -> ArmReason {
        let arm = &self.contenders[duel.challenger];
        let (is_tuned, tuning_s) = (arm.is_tuned, arm.tuning_s());
        if let Some(sample) = self.sample(true) {
            duel.pay(&sample);
            duel.best = duel.best.max(sample.ln_x);
            self.window = self.window.next();
        }
        let gain = duel.best - duel.before.ln_x;
        let is_needed = self.contenders[self.incumbent].misses_goal();
        let is_time = tuning_s >= FAR_S.max(2.0 * self.residence_s);
        if gain.is_finite() && gain < FAR && is_time && !is_needed {
            return self.leave(&duel, gain);
        }
        self.task = if is_tuned {
            self.window = self.window.next();
            ArmTask::Duel(duel)
        } else {
            ArmTask::Tune(duel)
        };
        ArmReason::Tune
    }

    /// A challenger is left before its limit was found.
    fn leave(&mut self, duel: &ArmDuel, gain: f64) -> ArmReason {
        let arm = &mut self.contenders[duel.challenger];
        arm.gain.learn(gain, UNTUNED, self.now_s);
        arm.begin_tuning();
        self.end(duel);
        ArmReason::Leave { other: duel.challenger, gain: libm::expm1(gain) }
    }

    /// The challenger is in force.
    fn look(&mut self, mut duel: ArmDuel) -> ArmReason {
        let Some(sample) = self.sample(false).or_else(|| self.early(duel.before.tps())) else {
            return self.reason;
        };
        duel.pay(&sample);
        duel.compared_s += sample.seconds + sample.washed_s;
        duel.looked = Some(sample);
        self.switch_to(self.incumbent);
        self.task = ArmTask::Duel(duel);
        self.compared(&duel, duel.challenger)
    }

    /// An arm that is far behind what is expected need not be looked at for longer.
    fn early(&self, expected_tps: f64) -> Option<WindowSample> {
        let expected = expected_tps * self.window.seconds();
        let is_far = expected >= 12.0 && self.window.completions() < 0.5 * expected;
        let want = Want { seconds: 0.49, completions: 0.0, longest_s: 0.49 };
        is_far.then(|| self.window.sample(self.limit().get(), want, NOISE)).flatten()
    }

    fn compared(&self, duel: &ArmDuel, other: usize) -> ArmReason {
        let error = duel.test.scaled_error(self.pair_scale.get()).min(1.0);
        ArmReason::Compare { other, gain: duel.test.mean(), error }
    }

    /// The incumbent is in force again.
    fn compare(&mut self, mut duel: ArmDuel) -> ArmReason {
        let Some(sample) = self.sample(false) else { return self.reason };
        let Some(looked) = duel.looked.take() else {
            self.task = ArmTask::Hold;
            return ArmReason::Hold { tps: sample.tps() };
        };
        if self.notice(&sample) {
            // The two windows are of different workloads.
            self.end(&duel);
            return ArmReason::Hold { tps: sample.tps() };
        }
        let difference = looked.ln_x - f64::midpoint(duel.before.ln_x, sample.ln_x);
        let variance = looked.variance + (duel.before.variance + sample.variance) / 4.0;
        duel.test.add(difference, variance);
        duel.before = sample;
        let scale = self.pair_scale.get();
        let (gain, error) = (duel.test.mean(), duel.test.scaled_error(scale));
        let goals = [duel.challenger, self.incumbent].map(|arm| self.contenders[arm].misses_goal());
        let is_better = duel.test.is_positive(WRONG, scale);
        let is_spent = duel.compared_s > COMPARED_S.max(6.0 * self.residence_s);
        match goals {
            [false, true] => self.adopt(&duel, gain, error),
            [true, false] => self.reject(&duel, gain, error),
            _ if is_better => self.adopt(&duel, gain, error),
            _ if gain + 2.0 * error < MARGIN || is_spent => self.reject(&duel, gain, error),
            _ => {
                self.switch_to(duel.challenger);
                self.task = ArmTask::Duel(duel);
                self.compared(&duel, self.incumbent)
            }
        }
    }

    fn reject(&mut self, duel: &ArmDuel, gain: f64, error: f64) -> ArmReason {
        self.pair_scale.learn(&duel.test);
        self.contenders[duel.challenger].gain.learn(gain, error, self.now_s);
        self.end(duel);
        ArmReason::Reject { other: duel.challenger, gain: libm::expm1(gain), error }
    }

    fn adopt(&mut self, duel: &ArmDuel, gain: f64, error: f64) -> ArmReason {
        self.pair_scale.learn(&duel.test);
        let (other, now_s) = (self.incumbent, self.now_s);
        for arm in &mut self.contenders {
            arm.gain.rebase(gain, error, now_s);
        }
        self.contenders[other].gain = ArmGain::of_former(gain, error, now_s);
        self.contenders[other].tried_s = Some(now_s);
        self.incumbent = duel.challenger;
        let level = duel.before.ln_x + gain;
        self.level = IncumbentLevel::at(level, self.level.spread());
        self.end(duel);
        ArmReason::Adopt { other, gain: libm::expm1(gain), error }
    }

    /// A comparison is over: the incumbent is held, for longer if it was dear.
    fn end(&mut self, duel: &ArmDuel) {
        self.contenders[duel.challenger].tried_s = Some(self.now_s);
        let rest_s = f64::max(duel.spent_s / TIME_SHARE, duel.lost_s / LOSS_SHARE);
        self.rest_until_s = self.now_s + rest_s;
        self.task = ArmTask::Hold;
        self.switch_to(self.incumbent);
    }
}

impl ArmDuel {
    /// Counts what a window of the challenger has cost.
    fn pay(&mut self, sample: &WindowSample) {
        let seconds = sample.seconds + sample.washed_s;
        self.spent_s += seconds;
        self.lost_s -= libm::expm1(sample.ln_x - self.before.ln_x) * seconds;
    }
}

impl Controller for Arms {
    fn name(&self) -> &'static str {
        self.contenders[self.in_force].controller().name()
    }

    fn start(&self) -> Mpl {
        self.contenders[0].controller().start()
    }

    fn interval_rule(&self) -> IntervalRule {
        self.contenders[0].controller().interval_rule()
    }

    fn highest_by_hand(&self) -> Option<Mpl> {
        self.contenders[self.in_force].controller().highest_by_hand()
    }

    fn decide(&mut self, seen: &Observation, draw: Draw) -> Decision {
        let is_sound = seen.is_sound();
        let is_own = is_sound && self.take(seen);
        let moved = if is_sound { self.survey().or_else(|| self.flee()) } else { None };
        if let Some(reason) = moved.or((!is_own).then_some(ArmReason::Washout)) {
            self.reason = reason;
            return Decision { limit: self.limit(), reason: Reason::Arm(reason) };
        }
        let before = self.in_force;
        let decision = self.contenders[before].decide(seen, draw, self.residence_s);
        self.reason = self.react();
        if self.in_force == before {
            return decision;
        }
        Decision { limit: self.limit(), reason: Reason::Arm(self.reason) }
    }

    fn proposal(&self) -> Option<Proposal> {
        self.contenders[self.in_force].controller().proposal()
    }

    fn goal(&self) -> Option<GoalStatus> {
        self.contenders[self.in_force].controller().goal()
    }

    fn arm(&self) -> Option<ArmDecision> {
        let (arm, reason) = (self.in_force, self.reason);
        Some(ArmDecision { arm, is_trial: arm != self.incumbent, reason })
    }
}
