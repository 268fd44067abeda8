//! The two load controls of Heiss and Wagner (VLDB 1991).

use std::fmt;

/// Why a limit was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HeissWagnerReason {
    /// The limit stays.
    Hold,
}

impl HeissWagnerReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            HeissWagnerReason::Hold => "hold",
        }
    }
}

impl fmt::Display for HeissWagnerReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeissWagnerReason::Hold => formatter.write_str("hold"),
        }
    }
}
