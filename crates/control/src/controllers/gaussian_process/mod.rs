//! The default controller.

use std::fmt;

/// Why a limit was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BeliefReason {
    /// The limit stays.
    Hold,
}

impl BeliefReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            BeliefReason::Hold => "hold",
        }
    }
}

impl fmt::Display for BeliefReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BeliefReason::Hold => formatter.write_str("hold"),
        }
    }
}
