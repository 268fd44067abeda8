//! What the tests of several modules need.

use std::time::Duration;

use crate::{Bounds, Controller, Draw, Mpl, Observation};

/// The draw of a controller that draws nothing, or for which the lowest will do.
pub(crate) const DRAW: Draw = Draw::from_bits(0);

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

/// Whether two numbers are the same but for rounding.
#[track_caller]
pub(crate) fn assert_near(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9 * right.abs().max(1.0), "{left} is not {right}");
}

/// The limit that follows `seen`, and the word for the reason.
pub(crate) fn decided(controller: &mut dyn Controller, seen: &Observation) -> (u32, &'static str) {
    let decision = controller.decide(seen, DRAW);
    (decision.limit.get(), decision.reason.kind())
}

/// The limits that follow from the first one on, where a second at a limit is what `seen` says.
pub(crate) fn limits(
    controller: &mut dyn Controller,
    seconds: usize,
    seen: impl Fn(u32) -> Observation,
) -> Vec<u32> {
    let mut limit = controller.start().get();
    let mut next = |_| {
        (limit, _) = decided(controller, &seen(limit));
        limit
    };
    (0..seconds).map(&mut next).collect()
}

/// The limit that follows seconds at these limits, with these completions and with transactions
/// waiting throughout.
pub(crate) fn limit_after(controller: &mut dyn Controller, history: &[(u32, u64)]) -> u32 {
    let decide = |&(limit, tps)| decided(controller, &observed(limit, 10_000, tps)).0;
    history.iter().map(decide).last().expect("some history")
}
