//! Observing: the gate stays open, and a controller beside it says what it would do.
//!
//! # Mechanism
//! The limit is the highest allowed, always. At the end of each interval two are shown what was
//! seen, with the limit that was really in force:
//!
//! * **The algorithm**, any that has something to say while nothing moves. What it decides is kept
//!   as a [`Proposal`], with its reason, and not obeyed.
//! * **The estimator** (`estimate`), which fits throughput against the population that the clients
//!   made, and says what the proposed limit would gain over the present population, with a 90 %
//!   interval, or that it does not know, and why. It also says which limit it believes is best.
//!
//! # Example
//! Clients come and go between 3 and 200 on a database that is best at 20. After some minutes:
//! `would set 22 (hold: the best known, to 2.1 %); believed gain +31 % (90 % interval +24 % to
//! +38 %) over the 180 that run now, from levels seen 3 to 200; best believed 20, gain +33 % ...`.
//! With 3 to 5 clients all the time: `not known: the population was between 3 and 5 all the time`.
//!
//! # What the gain means
//! Completions a second at the limit, over those at the present population, while enough clients
//! wait to fill the limit. Where clients stop asking because they are served, the gain is a shorter
//! queue and not more transactions.
//!
//! # What each algorithm makes of an open gate
//! Found by running them (`crates/control/tests/observe.rs`), and the reason why all but two are
//! refused:
//!
//! * `gaussian-process` learns from every interval with a steady or a high population, wherever it
//!   is. It names the best limit that it knows, or one that it would try out. Then its reason is a
//!   probe, which is named again and again because it is never made.
//! * `fixed:N` names N: a question about one limit.
//! * `hill-climbing`, the parabolas, `incremental-steps`, `faded-parabola`, `scalability`,
//!   `half-and-half` and `conflict-ratio` name the population: they take a limit above it back to
//!   it before anything else.
//! * `aimd`, `vegas`, `gradient2`, `envoy-gradient` and `failsafe` name the first step from the
//!   limit in force.
//! * `external-scheduling` names its start: it waits for intervals at the limit that it chose.
//! * `paired-comparison` takes what it sees for the effect of its own moves, and compares limits
//!   that were never set.
//!
//! # Limits
//! See `estimate`: above all, that the population is taken to be made by the clients.

mod estimate;
mod mixture;
mod proposal;

use crate::controller::{Controller, Decision};
use crate::{Bounds, Draw, IntervalRule, Mpl, Observation, Reason, Setting};

use estimate::Estimator;

pub use proposal::{BelievedBest, Gain, NotKnown, Proposal};

/// A gate that stays open, with a controller that is asked and not obeyed.
pub struct Observe {
    inner: Box<dyn Controller>,
    bounds: Bounds,
    estimator: Estimator,
    /// What the algorithm decided last.
    decided: Option<Decision>,
}

impl Observe {
    /// Asks `inner`, and keeps the limit at the highest that `setting` allows.
    #[must_use]
    pub fn new(inner: Box<dyn Controller>, setting: &Setting) -> Observe {
        let estimator = Estimator::new(setting);
        Observe { inner, bounds: setting.bounds, estimator, decided: None }
    }
}

impl Controller for Observe {
    fn name(&self) -> &'static str {
        "observe"
    }

    fn start(&self) -> Mpl {
        self.bounds.max()
    }

    fn interval_rule(&self) -> IntervalRule {
        self.inner.interval_rule()
    }

    fn decide(&mut self, observation: &Observation, draw: Draw) -> Decision {
        self.decided = Some(self.inner.decide(observation, draw));
        self.estimator.learn(observation);
        Decision { limit: self.bounds.max(), reason: Reason::Open }
    }

    fn proposal(&self) -> Option<Proposal> {
        let Decision { limit, reason } = self.decided?;
        let best = self.estimator.best();
        let best_gain = match best {
            BelievedBest::Limit { limit } => self.estimator.gain(limit),
            BelievedBest::Open { .. } => self.estimator.gain(self.bounds.max()),
            BelievedBest::NotKnown(why) => Gain::NotKnown(why),
        };
        let (algorithm, gain) = (self.inner.name(), self.estimator.gain(limit));
        Some(Proposal { algorithm, limit, reason, gain, best, best_gain })
    }
}
