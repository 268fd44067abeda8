//! Load control that judges a limit by the state of the lock manager.

use std::fmt;

/// Why a limit was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocksReason {
    /// The limit stays.
    Hold,
}

impl LocksReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            LocksReason::Hold => "hold",
        }
    }
}

impl fmt::Display for LocksReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LocksReason::Hold => formatter.write_str("hold"),
        }
    }
}
