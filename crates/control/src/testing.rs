//! What the tests of several modules need.

use std::time::Duration;

use crate::{Bounds, Mpl, Observation};

pub(crate) fn bounds(min: u32, max: u32) -> Bounds {
    Bounds::new(Mpl::at_least_one(min), Mpl::at_least_one(max)).expect("min is not above max")
}

/// A second at `limit` with `concurrency` transactions throughout, of which `completions` ended.
pub(crate) fn observed(limit: u32, concurrency: u32, completions: u64) -> Observation {
    Observation {
        concurrency,
        concurrency_peak: concurrency,
        concurrency_mean: f64::from(concurrency),
        running: limit.min(concurrency),
        running_mean: f64::from(limit.min(concurrency)),
        waiting_share: 1.0,
        completions,
        ..Observation::empty(Duration::from_secs(1), Mpl::at_least_one(limit))
    }
}
