//! How many permits may be out for want of connections.
//!
//! Each permit out needs a connection to the database, also one that does not count against the
//! limit. How many connections the server gives is its own setting, shared with other programs, and
//! may change. So the number is learnt from refusals: as many permits as had a connection when the
//! server refused one more. After 10 s without a refusal one more is tried, after another 10 s two
//! more, then four, until the server refuses again or the bound no longer matters.

use std::time::{Duration, Instant};

/// How long the bound stays where a refusal has put it.
const TRY_AFTER: Duration = Duration::from_secs(10);

/// The bound, if the server has refused a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionBound(Option<RefusedConnections>);

#[derive(Clone, Copy, Debug)]
struct RefusedConnections {
    most: u32,
    /// How many more are tried next.
    step: u32,
    tried_at: Instant,
}

impl ConnectionBound {
    /// Returns how many permits may be out where `most` may be otherwise.
    pub(crate) fn within(&self, most: u32) -> u32 {
        self.0.map_or(most, |learnt| learnt.most.min(most))
    }

    /// The server has refused a connection while so many permits had one. One may be out in any
    /// case: who asks must come to learn whether the server gives connections again.
    pub(crate) fn refused(&mut self, connected: u32, now: Instant) {
        self.0 = Some(RefusedConnections { most: connected.max(1), step: 1, tried_at: now });
    }

    /// Tries more connections when it is time, up to `most`.
    pub(crate) fn widen(&mut self, most: u32, now: Instant) {
        let Some(learnt) = &mut self.0 else { return };
        if now.saturating_duration_since(learnt.tried_at) < TRY_AFTER {
            return;
        }
        debug_assert!(learnt.most >= 1 && learnt.step >= 1, "it grows until it no longer matters");
        // Beyond the highest number the bound does not matter.
        let more = learnt.most.saturating_add(learnt.step);
        *learnt =
            RefusedConnections { most: more, step: learnt.step.saturating_mul(2), tried_at: now };
        if more >= most {
            self.0 = None;
        }
    }
}
