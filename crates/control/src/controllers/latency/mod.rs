//! Limiters in use today, which judge a limit by latency.

use std::fmt;

/// Why a limit was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LatencyReason {
    /// The limit stays.
    Hold,
}

impl LatencyReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            LatencyReason::Hold => "hold",
        }
    }
}

impl fmt::Display for LatencyReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LatencyReason::Hold => formatter.write_str("hold"),
        }
    }
}
