//! The loop between a gate and its controller: observation out, limit in.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use tidegate_control::{
    Algorithm, ArmDecision, Arms, ControlChoice, Controller, CurveMeasurement, Decision, Draw,
    GoalStatus, IntervalRule, KeepGoal, LockObservation, Observation, Proposal, ServerObservation,
    Setting, SplitMix64, WhatIf, WhatIfCurve,
};

use crate::gate::Gate;
use crate::goal::{ClassGoal, KeptGoal};

/// How a gate's limit is controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Whether the algorithm is only asked, and the limit stays the highest allowed.
    pub is_observing: bool,
    /// A response time to keep; not while only observing.
    pub keep: Option<KeptGoal>,
    /// How many arms it chooses from beside the limit, where there are arms.
    pub arms: Option<NonZeroUsize>,
    /// What it is told about its place.
    pub setting: Setting,
}

impl Control {
    /// Returns the controller at its beginning.
    #[must_use]
    pub fn controller(&self) -> Box<dyn Controller> {
        let Control { keep, setting, arms, .. } = *self;
        let choice = self.choice();
        let make = move || -> Box<dyn Controller> {
            match keep {
                None => choice.controller(&setting),
                Some(KeptGoal { class, goal: ClassGoal { goal, .. } }) => {
                    let make = move |setting: &Setting| choice.controller(setting);
                    Box::new(KeepGoal::new(&setting, class.index(), goal, make))
                }
            }
        };
        match arms {
            None => make(),
            Some(count) => Box::new(Arms::new(count, setting.bounds, move |_| make())),
        }
    }

    /// Returns the algorithm and whether it is obeyed, as flags and files spell it.
    #[must_use]
    pub fn choice(&self) -> ControlChoice {
        ControlChoice { algorithm: self.algorithm, is_observing: self.is_observing }
    }
}

/// What was seen in one control interval and what followed from it: all that the controller was
/// told, so that a record of adjustments can be replayed.
#[derive(Clone, Debug)]
pub struct Adjustment {
    /// The interval.
    pub observation: Observation,
    /// The draw that went with it.
    pub draw: Draw,
    /// The new limit and the reason for it.
    pub decision: Decision,
    /// What a controller that is only asked would have decided.
    pub proposal: Option<Proposal>,
    /// What is known of the response time to keep, where there is one.
    pub goal: Option<GoalStatus>,
    /// The arm in force from now on, where there are arms. Who observes puts it in force.
    pub arm: Option<ArmDecision>,
    /// Throughput and response time at every limit: every 10 seconds, and after a change.
    pub curve: Option<WhatIfCurve>,
}

/// What a database tells of itself at the end of a control interval, as far as it does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DatabaseState {
    /// The state of its lock manager.
    pub locks: Option<LockObservation>,
    /// What its sessions did in the interval.
    pub server: Option<ServerObservation>,
}

/// Ends a gate's control intervals and makes it obey a controller.
pub struct Governor {
    gate: Gate,
    controller: Box<dyn Controller>,
    rule: IntervalRule,
    draws: SplitMix64,
    what_if: WhatIf,
    /// When the first interval that is known of began.
    started: Option<Instant>,
}

impl Governor {
    /// A governor whose controller draws from the generator `draws`.
    #[must_use]
    pub fn new(
        gate: Gate,
        controller: Box<dyn Controller>,
        rule: IntervalRule,
        draws: SplitMix64,
    ) -> Self {
        let what_if = WhatIf::new(gate.highest_limit());
        Governor { gate, controller, rule, draws, what_if, started: None }
    }

    /// Returns the name of the controller that is obeyed.
    #[must_use]
    pub fn controller_name(&self) -> &'static str {
        self.controller.name()
    }

    /// Lets another controller decide from now on, from its own first limit, which is in force when
    /// this returns. What is known of the curve stays.
    pub fn replace(&mut self, control: &Control, now: Instant) {
        self.controller = control.controller();
        self.rule = self.controller.interval_rule();
        self.gate.set_limit(self.controller.start(), now);
    }

    /// Returns the measurements that the curve is made of, the oldest first.
    #[must_use]
    pub fn measurements(&self, now: Instant) -> Vec<CurveMeasurement> {
        let since = self.started.map(|started| now.saturating_duration_since(started));
        self.what_if.measurements(since.unwrap_or_default().as_secs_f64()).collect()
    }

    /// Ends the interval if it is over; the new limit is in force when this returns.
    ///
    /// An interval in which nothing ran or waited is never over: it begins anew at each tick.
    pub fn tick(&mut self, now: Instant) -> Option<Adjustment> {
        self.tick_with(now, |_| DatabaseState::default())
    }

    /// Like [`tick`](Governor::tick), for a database that can be asked: `state` is called at the
    /// end of an interval, with the interval's length.
    pub fn tick_with(
        &mut self,
        now: Instant,
        state: impl FnOnce(Duration) -> DatabaseState,
    ) -> Option<Adjustment> {
        if self.gate.skip_empty_interval(now) {
            return None;
        }
        let (elapsed, completions) = self.gate.progress(now);
        if !self.rule.is_over(elapsed, completions) {
            return None;
        }
        let seen = self.gate.observe(now);
        let DatabaseState { locks, server } = state(seen.interval);
        let observation = Observation { locks, server, ..seen };
        let draw = self.draws.next_draw();
        let was_trial = self.controller.arm().is_some_and(|arm| arm.is_trial);
        let decision = self.controller.decide(&observation, draw);
        self.gate.set_limit(decision.limit, now);
        let proposal = self.controller.proposal();
        let goal = self.controller.goal();
        let started = *self.started.get_or_insert(now);
        let at_s = now.saturating_duration_since(started).as_secs_f64();
        let arm = self.controller.arm();
        // Other arms have other curves.
        let curve = if was_trial { None } else { self.what_if.learn(at_s, &observation) };
        Some(Adjustment { observation, draw, decision, proposal, goal, arm, curve })
    }
}
