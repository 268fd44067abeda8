//! Fits a scalability law with a retrograde term.

use std::fmt;

/// Why a limit was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalabilityReason {
    /// The limit stays.
    Hold,
}

impl ScalabilityReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            ScalabilityReason::Hold => "hold",
        }
    }
}

impl fmt::Display for ScalabilityReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ScalabilityReason::Hold => formatter.write_str("hold"),
        }
    }
}
