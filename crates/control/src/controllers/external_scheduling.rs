//! The feedback controller of the external-scheduling study (Section 4.3).

use std::fmt;

/// Why a limit was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FeedbackReason {
    /// The limit stays.
    Hold,
}

impl FeedbackReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            FeedbackReason::Hold => "hold",
        }
    }
}

impl fmt::Display for FeedbackReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FeedbackReason::Hold => formatter.write_str("hold"),
        }
    }
}
