//! A clock for code that is not run in a model.

use std::time::Instant;

/// Returns the present moment.
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
