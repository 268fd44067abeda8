//! What the tests of this room and of its neighbours share.

use crate::testing::observed;
use crate::{Observation, Timing};

/// A second at `limit` with `inside` running or waiting throughout. 100 ended, which all took
/// `rtt_s` seconds in the database.
pub(in crate::controllers) fn window(limit: u32, inside: u32, rtt_s: f64) -> Observation {
    let mut seen = observed(limit, inside, 100);
    seen.in_database = Timing {
        count: 100,
        mean_s: rtt_s,
        variance_s2: 0.0,
        min_s: rtt_s,
        p50_s: rtt_s,
        p95_s: rtt_s,
        p99_s: rtt_s,
    };
    seen
}
