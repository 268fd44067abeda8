//! Simulated plants: what a controller can be tried on without a database.

mod curve;
mod events;
mod scenario;

use crate::{Controller, Decision, Mpl, Observation, SplitMix64};

pub use curve::{Curve, CurveClass, CurveError, CurvePhase, CurvePlant};
pub use events::{EventsError, EventsPhase, EventsPlant, TransactionClass};
pub use scenario::{Arrivals, Scenario, ScenarioError, ScenarioFile, Truth};

/// A simulated database behind a gate, advanced one control interval at a time, in virtual time.
pub trait Simulated {
    /// Runs one control interval at `limit` and tells what a gate would observe.
    fn interval(&mut self, limit: Mpl) -> Observation;
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
        let observation = plant.interval(self.limit);
        let decision = self.controller.decide(&observation, self.random.next_draw());
        self.limit = decision.limit;
        (observation, decision)
    }
}
