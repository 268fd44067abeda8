//! A limit set by hand.

use crate::{Bounds, Controller, Decision, Draw, Mpl, Observation, Reason};

/// Always the same limit: the baseline of every comparison.
///
/// Unlike the other controllers it keeps the limit above the concurrency, as a pool of a fixed
/// size does.
#[derive(Clone, Debug)]
pub struct Fixed {
    limit: Mpl,
}

impl Fixed {
    /// Holds the limit within `bounds` that is nearest to `limit`.
    #[must_use]
    pub fn new(bounds: Bounds, limit: Mpl) -> Fixed {
        Fixed { limit: bounds.clamp(limit) }
    }
}

impl Controller for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn start(&self) -> Mpl {
        self.limit
    }

    fn highest_by_hand(&self) -> Option<Mpl> {
        Some(self.limit)
    }

    fn decide(&mut self, _observation: &Observation, _draw: Draw) -> Decision {
        Decision { limit: self.limit, reason: Reason::Fixed }
    }
}
