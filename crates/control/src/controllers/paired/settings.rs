//! What can be chosen about the paired comparison.

use crate::parameters::{Allowed, settings};

settings! {
    /// The parameters of [`PairedComparison`](super::PairedComparison).
    pub struct PairedSettings;

    /// The parameters that `docs/control.md` gives the reasons for.
    pub const DEFAULT;

    /// In ln X.
    price: f64 = 0.03, "price", "ln X", Allowed::Number(0.0, 1.0),
        "throughput that may be given up for a limit lower by a factor of e";
    /// A lower limit that was asked for takes its place.
    cold: u32 = 8, "cold", "transactions", Allowed::Whole(1, 1_000), "limit of a cold start";
    better: f64 = 0.2, "error", "share", Allowed::Number(0.001, 0.9),
        "probability of wrongly accepting a candidate as better";
    /// No error is stated: to stay costs nothing but a later comparison.
    futile: f64 = 1.0, "futile", "deviations", Allowed::Number(0.1, 100.0),
        "standard errors below the base at which a candidate is given up";
    /// Where nothing has changed.
    probe_price: f64 = 0.005, "probe-price", "share", Allowed::Number(0.0001, 1.0),
        "throughput that the search for something better may cost";
    stale_s: f64 = 15.0, "stale", "s", Allowed::Number(0.1, 1e6),
        "longest time between two comparisons on one side";
    /// It holds too where the last comparison lost much.
    stale_dear_s: f64 = 60.0, "stale-far", "s", Allowed::Number(0.1, 1e6),
        "the same for a limit twice as far";
}
