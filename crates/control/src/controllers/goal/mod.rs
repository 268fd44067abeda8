//! A response time to keep for a class, with the most throughput under it: a ceiling on the limit
//! that another controller chooses.
//!
//! # Mechanism
//! The response time of a class is the time from the request of a permit to the end of the
//! transaction. It has two parts that the limit moves in opposite directions: a lower limit makes
//! the time in the database shorter, and the wait for a permit longer. A class with strict
//! priority waits little, for the next transaction that ends, until its own transactions alone
//! need more than the limit; the lowest class waits for all others. So the response time falls or
//! rises with the limit, or both, and nothing but a measurement says which.
//!
//! * **While the goal is kept** the inner controller decides, with its own intervals, draws and
//!   reasons: a goal that never binds changes no decision.
//! * **When it is missed** the inner controller is paused, and the highest limit that keeps the
//!   goal is looked for, as [`search`] says: each level is held until it can be judged.
//! * **When one is found** the inner controller is made anew, with this limit as the highest that
//!   it may choose. It is not told that its decisions were cut, nor shown limits that it did not
//!   choose, because algorithms that take what they see for the effect of their own moves
//!   (`paired-comparison`, the parabolas) would draw wrong conclusions; `gaussian-process` and
//!   `hill-climbing` could be clamped, at the price of probes above the ceiling that show nothing.
//!   What the inner controller knew is lost, and learnt anew below the ceiling: some seconds. If a
//!   lower limit was seen to miss the goal too, because the class queued, there is a floor as well.
//! * **When there is slack**, with the limit at the ceiling and somebody waiting, a ceiling higher
//!   by a quarter at first is tried, for as long as it takes to judge it. Slack is less than 0.8 of
//!   the late ones that are allowed, or 0.93 of the mean. The higher ceiling is taken if it keeps
//!   the goal: plainly, or after four times the least number with at most 0.9 or 0.97.
//! * **When it is missed by little**, so that only 20 times the number of a judgement shows it, the
//!   ceiling is lowered by a twentieth.
//! * **When no limit keeps it**, it is said ([`GoalStatus::is_impossible`]), and the ceiling is
//!   where the goal is nearest, or the highest limit that is about as near. Not where throughput is
//!   highest: a goal that is missed by a hair must not be given up altogether. It is said only if
//!   every limit that was tried is shown to miss it, from the lowest to the highest there is use
//!   for, or until it is hopeless to go on, and the nearest one twice. Where that is not shown, the
//!   ceiling is the same, and it is not said. The search is made again later.
//! * **A limit that was set by hand** ([`Controller::highest_by_hand`]) is the highest of all: the
//!   goal asks for lower limits only.
//!
//! **A judgement** needs 100 transactions of the class for p95, 500 for p99 and 50 for the mean,
//! and two intervals; see [`tally`] for its error. While the class has fewer in a minute nothing is
//! done for it, and a search that was under way is given up. What was begun before a move of the
//! limit does not count: after a move nothing is taken for half a second, or twice the class's mean
//! response time up to 10 s.
//!
//! **No oscillation.** Trials of a higher ceiling and repeated searches for an impossible goal wait
//! 30 s at first and twice as long after each that failed, up to 600 s; also when a ceiling that
//! was raised misses the goal later. A floor is released after 600 s. So from some time on there is
//! at most one such change in ten minutes. Only a ceiling whose mean response time has fallen by
//! 30 % since then begins at 30 s again.
//!
//! # Example
//! The class `high`, 100 transactions a second, p95=200ms. The inner controller is at 300, where
//! the 95th percentile is 600 ms. After 1 s, 40 of 100 are late. 150 and 75 are tried for 2 s each,
//! then 37, which keeps it, 53, 44, and 48; 48 and 44 once more. The ceiling is 44, and the inner
//! controller begins again at it.
//!
//! # Limits
//! * One class and one statistic.
//! * Transactions that are refused or give up in the queue have no response time: they are counted
//!   in the metrics, and not in the goal. Nor are those that were discounted as overdue.
//! * A load that changes faster than a search, which takes 10 to 20 judgements, is chased.
//! * The search takes the response time for a function of the limit that has no second trough
//!   beyond limits at which it is twice as long as in the first.
//! * The error is that of one judgement. A class that is exactly at its goal is said to miss it in
//!   about one judgement of a hundred; ceilings are taken with a margin so that it is not there.

mod reason;
mod search;
mod tally;

use std::time::Duration;

use crate::controller::{Controller, Decision, whole};
use crate::{
    Bounds, Draw, IntervalRule, Mpl, Observation, Proposal, Reason, ResponseGoal, Setting,
};

use search::{GoalSearch, NextMeasurement};
use tally::{GoalVerdict, ResponseTally, least};

pub use reason::{GoalReason, GoalSeen};

/// How long a trial waits that could fail again, at first and at most, seconds.
const WAIT_LEAST_S: f64 = 30.0;
const WAIT_MOST_S: f64 = 600.0;

/// Steps of the ceiling up: the first, the least and the longest.
const RAISE: f64 = 1.25;
const RAISE_LEAST: f64 = 1.05;
const RAISE_MOST: f64 = 2.0;

/// From this share of the ceiling on the limit is held by it.
const AT_CEILING: f64 = 0.8;

/// Limits so near to each other are one to the tally while the inner controller decides.
const SAME: f64 = 1.25;

/// So many times the least number show a goal that is missed by little.
const LONG: f64 = 20.0;

/// A violation of more than this times what is allowed begins the search with a long step.
const FAR: f64 = 3.0;

/// A mean response time that has fallen to this share is another load.
const RELIEVED: f64 = 0.7;

/// A level that is not judged after this time has too few transactions, seconds.
const JUDGED_WITHIN_S: f64 = 60.0;

/// The longest time after a move in which nothing counts, and the shortest, seconds.
const WASH_MOST_S: f64 = 10.0;
const WASH_LEAST_S: f64 = 0.5;

/// Makes the inner controller for a place.
type Make = Box<dyn Fn(&Setting) -> Box<dyn Controller> + Send>;

/// What is known of a goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GoalStatus {
    /// Whether it is kept, by the last judgement; `None` before the first.
    pub is_met: Option<bool>,
    /// No limit keeps it.
    pub is_impossible: bool,
    /// The highest limit that the inner controller may choose.
    pub ceiling: Mpl,
    /// What was measured last.
    pub seen: GoalSeen,
}

/// The measurement at one limit.
#[derive(Clone, Copy, Debug, Default)]
struct GoalWindow {
    limit: u32,
    since_s: f64,
    tally: ResponseTally,
}

impl GoalWindow {
    /// Takes an interval, unless what was begun before the last move still ends in it.
    fn add(&mut self, seen: &Observation, class: usize) {
        let (before_s, seconds) = (self.since_s, seen.interval.as_secs_f64());
        self.since_s += seconds;
        let Some(class) = seen.classes.get(class) else { return };
        let wash_s = (2.0 * class.response.mean_s).clamp(WASH_LEAST_S, WASH_MOST_S);
        if before_s >= wash_s {
            self.tally.add(class);
        }
    }
}

/// What is going on.
#[derive(Clone, Debug)]
enum GoalTask {
    /// The inner controller decides.
    Hold,
    /// A limit that keeps the goal is looked for.
    Search(GoalSearch),
    /// A higher ceiling is tried.
    Raise(u32),
}

/// Keeps the response time of a class with a ceiling on the limit of another controller.
pub struct KeepGoal {
    goal: ResponseGoal,
    class: usize,
    setting: Setting,
    make: Make,
    inner: Box<dyn Controller>,
    /// What the inner controller may choose from.
    range: Bounds,
    /// The limit that the inner controller decided last.
    limit: Mpl,
    task: GoalTask,
    now_s: f64,
    window: GoalWindow,
    /// The intervals near the highest limit, for longer than a judgement takes.
    long: ResponseTally,
    /// Since when there has been this range, seconds.
    since_s: f64,
    /// All intervals while the inner controller decides, also while it moves.
    overall: ResponseTally,
    /// The next step of the ceiling.
    raise: f64,
    wait_s: f64,
    due_s: f64,
    /// The mean response time at the ceiling when a trial failed.
    failed_s: Option<f64>,
    /// The last search has found no limit that is shown to keep the goal, and none was seen since.
    is_unkept: bool,
    status: GoalStatus,
}

impl KeepGoal {
    /// Keeps `goal` for the class with this place among the classes of an observation, highest
    /// first, around the controller that `make` makes.
    #[must_use]
    pub fn new(
        setting: &Setting,
        class: usize,
        goal: ResponseGoal,
        make: impl Fn(&Setting) -> Box<dyn Controller> + Send + 'static,
    ) -> KeepGoal {
        let inner = make(setting);
        // What was set by hand is the most: a goal asks for less, and never for more.
        let bounds = setting.bounds;
        let range =
            inner.highest_by_hand().map_or(bounds, |highest| bounds.capped_at(highest.get()));
        let (limit, setting) = (inner.start(), Setting { bounds: range, ..*setting });
        let status = GoalStatus {
            is_met: None,
            is_impossible: false,
            ceiling: range.max(),
            seen: GoalSeen::default(),
        };
        KeepGoal {
            goal,
            class,
            setting,
            make: Box::new(make),
            inner,
            range,
            limit,
            task: GoalTask::Hold,
            now_s: 0.0,
            window: GoalWindow::default(),
            long: ResponseTally::default(),
            since_s: 0.0,
            overall: ResponseTally::default(),
            raise: RAISE,
            wait_s: WAIT_LEAST_S,
            due_s: 0.0,
            failed_s: None,
            is_unkept: false,
            status,
        }
    }

    fn seen(&self, tally: &ResponseTally) -> GoalSeen {
        tally.seen(self.goal)
    }

    /// Keeps what a judgement says; one that is undecided does not change what was said before.
    fn judged(&mut self, verdict: GoalVerdict, tally: &ResponseTally) -> GoalSeen {
        let seen = self.seen(tally);
        if verdict != GoalVerdict::Undecided {
            (self.status.is_met, self.status.seen) = (Some(verdict == GoalVerdict::Kept), seen);
        }
        seen
    }

    /// The inner controller decides, while its decisions keep the goal.
    fn hold(&mut self, seen: &Observation, draw: Draw) -> Decision {
        let level = f64::from(seen.limit.get());
        let before = f64::from(self.window.limit);
        if before <= 0.0 || level / before > SAME || before / level > SAME {
            self.window = GoalWindow { limit: seen.limit.get(), ..GoalWindow::default() };
            self.long = ResponseTally::default();
        }
        self.window.add(seen, self.class);
        if let Some(class) = seen.classes.get(self.class) {
            self.overall.add(class);
        }
        let here = self.window.tally;
        // Where the limit never rests, only far more transactions tell that the goal is missed.
        let is_missed = here.is_violated(self.goal)
            || self.overall.is_long(self.goal) && self.overall.is_violated(self.goal);
        if is_missed {
            let tally = if here.is_violated(self.goal) { here } else { self.overall };
            if !self.is_unkept || self.due_s <= self.now_s {
                return self.search(seen, &tally);
            }
            self.judged(GoalVerdict::Violated, &tally);
        }
        if self.overall.is_long(self.goal) {
            self.overall = ResponseTally::default();
        }
        let verdict = here.judge(self.goal, false);
        if verdict == Some(GoalVerdict::Kept) {
            self.judged(GoalVerdict::Kept, &here);
            (self.status.is_impossible, self.is_unkept) = (false, false);
        }
        if let Some(decision) = verdict.and_then(|_| self.relieve(seen, &here)) {
            return decision;
        }
        if let Some(decision) = self.trim(seen) {
            return decision;
        }
        let decision = self.inner.decide(seen, draw);
        self.limit = decision.limit;
        decision
    }

    /// Tries a higher ceiling, or releases a floor, if it is time and there is slack.
    fn relieve(&mut self, seen: &Observation, here: &ResponseTally) -> Option<Decision> {
        if self.failed_s.is_some_and(|failed_s| here.mean_s() < RELIEVED * failed_s) {
            (self.failed_s, self.wait_s) = (None, WAIT_LEAST_S);
            self.due_s = self.due_s.min(self.now_s + WAIT_LEAST_S);
        }
        let (floor, ceiling) = (self.range.min(), self.range.max().get());
        let has_slack = here.has_slack(self.goal) && self.due_s <= self.now_s;
        if !has_slack {
            return None;
        }
        if floor > self.setting.bounds.min() {
            if self.now_s - self.since_s < WAIT_MOST_S {
                return None;
            }
            self.put_off();
            let range = range(self.setting.bounds.min(), self.range.max());
            let seen = self.seen(here);
            let start = self.limit;
            return Some(self.adopt(range, start, GoalReason::NoFloor(seen)));
        }
        let highest = self.setting.bounds.max().get();
        let is_held = f64::from(seen.limit.get()) >= AT_CEILING * f64::from(ceiling)
            && seen.waiting_share >= 0.5;
        if ceiling >= highest || !is_held {
            return None;
        }
        let higher = whole(f64::from(ceiling) * self.raise).clamp(ceiling + 1, highest);
        self.window = GoalWindow { limit: higher, ..GoalWindow::default() };
        self.failed_s = Some(here.mean_s());
        self.task = GoalTask::Raise(higher);
        let reason = Reason::Goal(GoalReason::Raise(self.seen(here)));
        Some(Decision { limit: Mpl::at_least_one(higher), reason })
    }

    /// Lowers a ceiling that misses the goal by so little that only many transactions show it.
    fn trim(&mut self, seen: &Observation) -> Option<Decision> {
        if !self.window.tally.is_long(self.goal) {
            return None;
        }
        self.long.join(&std::mem::take(&mut self.window.tally));
        if self.long.count() < LONG * least(self.goal) {
            return None;
        }
        let long = std::mem::take(&mut self.long);
        let limit = seen.limit.get();
        if long.ratio(self.goal) <= 1.0 || self.is_unkept || limit <= 1 {
            return None;
        }
        let lower = whole(f64::from(limit) / RAISE_LEAST).clamp(1, limit - 1);
        let lower = Mpl::at_least_one(lower).min(self.range.max());
        // Nothing to trim where the floor is above it.
        let range = Bounds::new(self.range.min(), lower).ok()?;
        self.put_off();
        let seen = self.judged(GoalVerdict::Violated, &long);
        Some(self.adopt(range, lower, GoalReason::Trim(seen)))
    }

    /// The next trial waits for twice as long.
    fn put_off(&mut self) {
        self.due_s = self.now_s + self.wait_s;
        self.wait_s = (2.0 * self.wait_s).min(WAIT_MOST_S);
    }

    /// Begins to look for a limit that keeps the goal.
    fn search(&mut self, seen: &Observation, tally: &ResponseTally) -> Decision {
        let missed = self.judged(GoalVerdict::Violated, tally);
        self.failed_s = None;
        self.put_off();
        let present = seen.limit.get().min(seen.concurrency_peak.max(1));
        let bounds = self.setting.bounds;
        // More permits than transactions would do nothing.
        let allowed = bounds.capped_at(seen.concurrency_peak);
        let is_far = self.range == bounds || missed.ratio > FAR;
        let step = if is_far { RAISE_MOST } else { RAISE };
        let level = allowed.clamp(Mpl::at_least_one(present)).get();
        let mut search = GoalSearch::new(self.goal, level, tally, allowed, step);
        let next = search.next();
        self.task = GoalTask::Search(search);
        self.follow(next, missed)
    }

    /// Does what follows from a measurement of a search.
    fn follow(&mut self, next: NextMeasurement, seen: GoalSeen) -> Decision {
        match next {
            NextMeasurement::Measure(level) => {
                self.window = GoalWindow { limit: level, ..GoalWindow::default() };
                let reason = Reason::Goal(GoalReason::Search(seen));
                Decision { limit: Mpl::at_least_one(level), reason }
            }
            NextMeasurement::Found { floor, ceiling, seen } => {
                (self.status.is_met, self.status.seen) = (Some(true), seen);
                (self.status.is_impossible, self.is_unkept) = (false, false);
                self.raise = RAISE;
                let highest = self.without_need(ceiling);
                let floor = floor.min(highest);
                let reason = if highest == ceiling {
                    GoalReason::Ceiling { ceiling, seen }
                } else if ceiling > self.limit {
                    GoalReason::Floor { floor, seen }
                } else {
                    GoalReason::Passed(seen)
                };
                self.adopt(range(floor, highest), ceiling, reason)
            }
            NextMeasurement::NotFound { is_impossible, nearest, highest, seen } => {
                (self.status.is_impossible, self.is_unkept) = (is_impossible, true);
                let reason = if is_impossible {
                    (self.status.is_met, self.status.seen) = (Some(false), seen);
                    GoalReason::Impossible { highest, seen }
                } else {
                    GoalReason::Unclear(seen)
                };
                self.adopt(range(self.setting.bounds.min(), nearest), nearest, reason)
            }
        }
    }

    /// A ceiling at the limit that was thought to miss the goal is not needed: what missed it has
    /// passed, and what the inner controller may choose stays as it was.
    fn without_need(&self, ceiling: Mpl) -> Mpl {
        if ceiling >= self.limit { ceiling.max(self.range.max()) } else { ceiling }
    }

    /// From now on the inner controller chooses from `range`, and begins at `start` if that is new.
    fn adopt(&mut self, range: Bounds, start: Mpl, reason: GoalReason) -> Decision {
        if range != self.range {
            let start = range.clamp(start);
            self.inner = (self.make)(&Setting { bounds: range, start, ..self.setting });
            (self.range, self.limit) = (range, self.inner.start());
            self.since_s = self.now_s;
        }
        self.task = GoalTask::Hold;
        (self.window, self.overall) = (GoalWindow::default(), ResponseTally::default());
        self.long = ResponseTally::default();
        self.status.ceiling = range.max();
        Decision { limit: self.limit, reason: Reason::Goal(reason) }
    }

    /// Holds a level of a search until it can be judged.
    fn look(&mut self, mut search: GoalSearch, seen: &Observation) -> Decision {
        self.window.add(seen, self.class);
        let (tally, limit) = (self.window.tally, Mpl::at_least_one(search.level));
        let reason = Reason::Goal(GoalReason::Search(self.seen(&tally)));
        let Some((verdict, next)) = search.take(&tally) else {
            if self.window.since_s >= JUDGED_WITHIN_S {
                return self.give_up();
            }
            self.task = GoalTask::Search(search);
            return Decision { limit, reason };
        };
        let measured = self.judged(verdict, &tally);
        self.task = GoalTask::Search(search);
        self.follow(next, measured)
    }

    /// Holds a higher ceiling until it can be judged.
    fn try_higher(&mut self, higher: u32, seen: &Observation) -> Decision {
        self.window.add(seen, self.class);
        let tally = self.window.tally;
        let measured = self.seen(&tally);
        match tally.judge(self.goal, true) {
            Some(GoalVerdict::Kept) => {
                self.judged(GoalVerdict::Kept, &tally);
                self.raise = (self.raise * self.raise).min(RAISE_MOST);
                let higher = Mpl::at_least_one(higher);
                self.failed_s = None;
                let reason = GoalReason::Ceiling { ceiling: higher, seen: measured };
                self.adopt(range(self.range.min(), higher), higher, reason)
            }
            Some(GoalVerdict::Violated | GoalVerdict::Undecided) => {
                self.put_off();
                self.raise = self.raise.sqrt().max(RAISE_LEAST);
                self.resume(GoalReason::Back(measured))
            }
            None if self.window.since_s >= JUDGED_WITHIN_S => self.give_up(),
            None => {
                self.task = GoalTask::Raise(higher);
                let reason = Reason::Goal(GoalReason::Raise(measured));
                Decision { limit: Mpl::at_least_one(higher), reason }
            }
        }
    }

    /// Too few transactions to judge: everything as it was before.
    fn give_up(&mut self) -> Decision {
        self.put_off();
        self.resume(GoalReason::TooFew)
    }

    /// Back to the limit of the inner controller.
    fn resume(&mut self, reason: GoalReason) -> Decision {
        self.task = GoalTask::Hold;
        (self.window, self.overall) = (GoalWindow::default(), ResponseTally::default());
        Decision { limit: self.limit, reason: Reason::Goal(reason) }
    }
}

/// Returns the limits from a floor to a ceiling that is known not to be below it.
fn range(floor: Mpl, ceiling: Mpl) -> Bounds {
    Bounds::new(floor, ceiling).expect("the floor is not above the ceiling")
}

impl Controller for KeepGoal {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn start(&self) -> Mpl {
        self.inner.start()
    }

    fn interval_rule(&self) -> IntervalRule {
        self.inner.interval_rule()
    }

    fn decide(&mut self, observation: &Observation, draw: Draw) -> Decision {
        self.now_s += observation.interval.min(Duration::from_secs(3600)).as_secs_f64();
        match std::mem::replace(&mut self.task, GoalTask::Hold) {
            GoalTask::Hold => self.hold(observation, draw),
            GoalTask::Search(search) => self.look(search, observation),
            GoalTask::Raise(higher) => self.try_higher(higher, observation),
        }
    }

    fn proposal(&self) -> Option<Proposal> {
        self.inner.proposal()
    }

    fn goal(&self) -> Option<GoalStatus> {
        Some(self.status)
    }
}
