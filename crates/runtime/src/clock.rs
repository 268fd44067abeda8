//! The time: the system's, or that of the machine in virtual time on which the caller runs.

use std::time::{Duration, Instant, SystemTime};

use crate::{fiber, machine};

/// The date at which every machine in virtual time begins: 2000-01-01, 00:00 UTC.
const BEGINNING: Duration = Duration::from_secs(946_684_800);

/// Returns the present moment. In virtual time a moment says nothing by itself; differences do.
#[must_use]
pub fn now() -> Instant {
    if fiber::is_active() { machine::now() } else { Instant::now() }
}

/// Returns the date and time of day. A machine in virtual time begins on 2000-01-01.
#[must_use]
pub fn date() -> SystemTime {
    if fiber::is_active() {
        SystemTime::UNIX_EPOCH + BEGINNING + machine::elapsed()
    } else {
        SystemTime::now()
    }
}
