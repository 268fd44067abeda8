//! Who chooses the limit, and whether the gate obeys.

use std::fmt;
use std::str::FromStr;

use super::{Algorithm, AlgorithmError, Setting};
use crate::{Controller, Observe};

/// The word for a controller that is not obeyed.
pub(super) const OBSERVE: &str = "observe";

/// An algorithm, and whether the gate obeys it: `gaussian-process`, or `observe:gaussian-process`
/// for a gate that stays open while the algorithm says what it would do. `observe` alone is the
/// default algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlChoice {
    /// Who chooses the limit, or would.
    pub algorithm: Algorithm,
    /// Whether the gate stays open.
    pub is_observing: bool,
}

impl ControlChoice {
    /// The algorithm that `observe` asks unless another one is named. Not the default, which learns
    /// only from limits that it sets.
    pub const ASKED: Algorithm = Algorithm::GaussianProcess;

    /// An algorithm that is not obeyed.
    ///
    /// # Errors
    /// The algorithm has nothing to say while the gate is open.
    pub fn observing(algorithm: Algorithm) -> Result<ControlChoice, AlgorithmError> {
        match algorithm.blindness() {
            Some(why) => Err(AlgorithmError::Blind { algorithm: algorithm.name(), why }),
            None => Ok(ControlChoice { algorithm, is_observing: true }),
        }
    }

    /// The controller at its beginning.
    #[must_use]
    pub fn controller(self, setting: &Setting) -> Box<dyn Controller> {
        let controller = self.algorithm.controller(setting);
        if self.is_observing { Box::new(Observe::new(controller, setting)) } else { controller }
    }
}

impl From<Algorithm> for ControlChoice {
    fn from(algorithm: Algorithm) -> ControlChoice {
        ControlChoice { algorithm, is_observing: false }
    }
}

impl fmt::Display for ControlChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_observing {
            write!(formatter, "{OBSERVE}:")?;
        }
        self.algorithm.fmt(formatter)
    }
}

impl FromStr for ControlChoice {
    type Err = AlgorithmError;

    fn from_str(text: &str) -> Result<ControlChoice, AlgorithmError> {
        match text.strip_prefix(OBSERVE) {
            Some("") => ControlChoice::observing(ControlChoice::ASKED),
            Some(rest) => match rest.strip_prefix(':') {
                Some(algorithm) => ControlChoice::observing(algorithm.parse()?),
                None => text.parse().map(|algorithm: Algorithm| algorithm.into()),
            },
            None => text.parse().map(|algorithm: Algorithm| algorithm.into()),
        }
    }
}

impl Algorithm {
    /// Why the algorithm has nothing to say while the gate is open; `None` if it has. Found by
    /// showing it the observations of an open gate (`crates/control/tests/observe.rs`).
    fn blindness(self) -> Option<&'static str> {
        match self.base() {
            Algorithm::GaussianProcess | Algorithm::Fixed(_) => None,
            Algorithm::PairedComparison => Some(
                "it takes what it sees for the effect of its own moves, so that it would compare \
                 limits that were never set",
            ),
            Algorithm::ExternalScheduling => {
                Some("it counts only intervals spent at the limit that it chose")
            }
            Algorithm::Aimd
            | Algorithm::Vegas
            | Algorithm::Gradient2
            | Algorithm::EnvoyGradient
            | Algorithm::Failsafe => Some(
                "it moves from the limit in force, step by step, so that from an open gate it \
                 names the first step again and again and never where it would end",
            ),
            _ => Some(
                "before anything else it takes a limit above the population back to the \
                 population, so that from an open gate it names the population and no more",
            ),
        }
    }
}
