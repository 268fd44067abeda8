//! The loop between a gate and its controller: observation out, limit in.

use std::time::Instant;

use tidegate_control::{
    Algorithm, ControlChoice, Controller, Decision, Draw, IntervalRule, LockObservation,
    Observation, Proposal, Setting, SplitMix64, WhatIf, WhatIfCurve,
};

use crate::gate::Gate;

/// How a gate's limit is controlled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Whether the algorithm is only asked, and the limit stays the highest allowed.
    pub is_observing: bool,
    /// What it is told about its place.
    pub setting: Setting,
}

impl Control {
    /// The controller at its beginning.
    #[must_use]
    pub fn controller(&self) -> Box<dyn Controller> {
        self.choice().controller(&self.setting)
    }

    /// The algorithm and whether it is obeyed, as flags and files spell it.
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
    /// Throughput and response time at every limit: every 10 seconds, and after a change.
    pub curve: Option<WhatIfCurve>,
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

    /// The name of the controller that is obeyed.
    #[must_use]
    pub fn controller_name(&self) -> &'static str {
        self.controller.name()
    }

    /// Ends the interval if it is over; the new limit is in force when this returns.
    ///
    /// An interval in which nothing ran or waited is never over: it begins anew at each tick.
    pub fn tick(&mut self, now: Instant) -> Option<Adjustment> {
        self.tick_with(now, || None)
    }

    /// Like [`tick`](Governor::tick), for a database whose lock manager can be asked: `locks` is,
    /// at the end of an interval.
    pub fn tick_with(
        &mut self,
        now: Instant,
        locks: impl FnOnce() -> Option<LockObservation>,
    ) -> Option<Adjustment> {
        if self.gate.skip_empty_interval(now) {
            return None;
        }
        let (elapsed, completions) = self.gate.progress(now);
        if !self.rule.is_over(elapsed, completions) {
            return None;
        }
        let observation = Observation { locks: locks(), ..self.gate.observe(now) };
        let draw = self.draws.next_draw();
        let decision = self.controller.decide(&observation, draw);
        self.gate.set_limit(decision.limit, now);
        let proposal = self.controller.proposal();
        let started = *self.started.get_or_insert(now);
        let at_s = now.saturating_duration_since(started).as_secs_f64();
        let curve = self.what_if.learn(at_s, &observation);
        Some(Adjustment { observation, draw, decision, proposal, curve })
    }
}
