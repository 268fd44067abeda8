//! While the database cannot be reached.
//!
//! Permits are out whose transactions wait for a connection, and none of them says anything about
//! how much the database can do. So during an outage
//!
//! - no permit is granted beyond those that have a connection, and one in any case: who has it
//!   comes to learn that the database is back;
//! - no permit grows overdue;
//! - no control interval passes, nor for [`SETTLING`] afterwards, while connections are opened
//!   anew; so the controller sees nothing of it, and the limit is the same before and after;
//! - the times of transactions that were asked for before its end go into the totals alone.

use std::time::{Duration, Instant};

/// No interval begins until an outage has been over for this long.
const SETTLING: Duration = Duration::from_millis(500);

/// An outage, or the end of the last one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Outage {
    /// There has been none.
    #[default]
    Never,
    /// The database cannot be reached, and so many permits have a connection.
    Lasts { connected: u32 },
    /// It has ended then.
    Ended(Instant),
}

impl Outage {
    /// Returns whether the database cannot be reached.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Outage::Lasts { .. })
    }

    /// Returns how many permits may be out where `most` may be otherwise.
    pub(crate) fn within(self, most: u32) -> u32 {
        match self {
            Outage::Lasts { connected } => connected.max(1).min(most),
            Outage::Never | Outage::Ended(_) => most,
        }
    }

    /// Returns whether time that passes now says nothing about the database.
    pub(crate) fn disturbs(self, now: Instant) -> bool {
        match self {
            Outage::Never => false,
            Outage::Lasts { .. } => true,
            Outage::Ended(at) => now.saturating_duration_since(at) < SETTLING,
        }
    }

    /// Returns whether a transaction that was asked for at `asked` has met it.
    pub(crate) fn has_met(self, asked: Instant) -> bool {
        match self {
            Outage::Never => false,
            Outage::Lasts { .. } => true,
            Outage::Ended(at) => asked < at,
        }
    }
}
