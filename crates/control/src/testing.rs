//! What the tests of several modules need.

use std::time::Duration;

use crate::{Bounds, Mpl, Observation, Timing};

pub(crate) fn bounds(min: u32, max: u32) -> Bounds {
    Bounds::new(Mpl::at_least_one(min), Mpl::at_least_one(max)).expect("min is not above max")
}

/// A second at `limit` with `concurrency` transactions throughout, of which `completions` ended.
pub(crate) fn observed(limit: u32, concurrency: u32, completions: u64) -> Observation {
    Observation {
        interval: Duration::from_secs(1),
        limit: Mpl::at_least_one(limit),
        concurrency,
        concurrency_peak: concurrency,
        concurrency_mean: f64::from(concurrency),
        running: limit.min(concurrency),
        running_mean: f64::from(limit.min(concurrency)),
        idle: 0,
        idle_mean: 0.0,
        discounted: 0,
        discounted_mean: 0.0,
        waiting_share: 1.0,
        completions,
        failures: 0,
        in_database: Timing::default(),
        in_queue: Timing::default(),
        locks: None,
        server: None,
        classes: Vec::new(),
    }
}
