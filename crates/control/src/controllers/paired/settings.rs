//! What can be chosen about the paired comparison.

use crate::parameters::{Values, parameters};

/// The parameters of [`PairedComparison`](super::PairedComparison).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairedSettings {
    /// Throughput that is given up for a limit that is lower by a factor of e, in ln X.
    pub price: f64,
    /// The limit that a cold start begins with, unless a lower one was asked for.
    pub cold: u32,
    /// The probability of an error with which a candidate is said to be better.
    pub better: f64,
    /// A candidate that is worse by so many standard errors is given up. No error is stated: to
    /// stay costs nothing but a later comparison.
    pub futile: f64,
    /// Throughput that the search for something better may cost, where nothing has changed.
    pub probe_price: f64,
    /// The longest time between two comparisons on one side, seconds.
    pub stale_s: f64,
    /// The same where the last comparison lost much, seconds.
    pub stale_dear_s: f64,
}

impl PairedSettings {
    /// The parameters that `docs/control.md` gives the reasons for.
    pub const DEFAULT: PairedSettings = PairedSettings {
        price: 0.03,
        cold: 8,
        better: 0.2,
        futile: 1.0,
        probe_price: 0.005,
        stale_s: 15.0,
        stale_dear_s: 60.0,
    };
}

parameters! { PairedSettings {
    "price", "ln X", Values::Number(0.0, 1.0), price,
        "throughput that may be given up for a limit lower by a factor of e";
    "cold", "transactions", Values::Whole(1, 1_000), cold, "limit of a cold start";
    "error", "share", Values::Number(0.001, 0.9), better,
        "probability of wrongly accepting a candidate as better";
    "futile", "deviations", Values::Number(0.1, 100.0), futile,
        "standard errors below the base at which a candidate is given up";
    "probe-price", "share", Values::Number(0.0001, 1.0), probe_price,
        "throughput that the search for something better may cost";
    "stale", "s", Values::Number(0.1, 1e6), stale_s,
        "longest time between two comparisons on one side";
    "stale-far", "s", Values::Number(0.1, 1e6), stale_dear_s,
        "the same for a limit twice as far";
} }
