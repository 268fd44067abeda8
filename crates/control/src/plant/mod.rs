//! Simulated plants: what a controller can be tried on without a database.

mod curve;
mod events;
mod scenario;
pub mod shapes;
mod sharing;

use crate::{Controller, Decision, IntervalRule, Mpl, Observation, SplitMix64};

pub use curve::{Curve, CurveClass, CurveError, CurvePhase, CurvePlant};
pub use events::{EventsError, EventsPhase, EventsPlant, TransactionClass};
pub use scenario::{Arrivals, Scenario, ScenarioError, ScenarioFile, Truth};
pub use sharing::{
    Overload, Second, SharingClass, SharingError, SharingPhase, SharingPlant, random_scenario,
};

/// A simulated database behind a gate, advanced one control interval at a time, in virtual time.
pub trait Simulated {
    /// Runs one control interval at `limit` and tells what a gate would observe.
    fn interval(&mut self, limit: Mpl) -> Observation;

    /// Runs one interval that ends by `rule`. A plant whose intervals are part of its description
    /// runs one of these.
    fn interval_by(&mut self, limit: Mpl, rule: IntervalRule) -> Observation {
        let _ = rule;
        self.interval(limit)
    }

    /// A copy in the same state, for a plant that can be copied: what would have happened at
    /// another limit.
    fn fork(&self) -> Option<Box<dyn Simulated>> {
        None
    }

    /// Every second that has passed, of a plant that is observed by ticks; none of others.
    fn seconds(&self) -> &[Second] {
        &[]
    }
}

/// A controller at work on plants, interval by interval.
pub struct Simulation {
    controller: Box<dyn Controller>,
    limit: Mpl,
    random: SplitMix64,
}

impl Simulation {
    /// Puts `controller` to work at its starting limit; all randomness comes from `seed`.
    #[must_use]
    pub fn new(controller: Box<dyn Controller>, seed: u64) -> Simulation {
        let limit = controller.start();
        Simulation { controller, limit, random: SplitMix64::new(seed) }
    }

    /// Runs one interval on `plant`: what was observed and what was decided from it.
    pub fn interval(&mut self, plant: &mut dyn Simulated) -> (Observation, Decision) {
        let rule = self.controller.interval_rule();
        let observation = plant.interval_by(self.limit, rule);
        let decision = self.controller.decide(&observation, self.random.next_draw());
        self.limit = decision.limit;
        (observation, decision)
    }
}
