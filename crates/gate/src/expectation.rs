//! What a transaction of a class can expect, from what the class has been measured to do: how long
//! it runs, and how long it waits at a place of the queue.
//!
//! The queue of a class is drained at a rate that depends on everything: the limit, the other
//! classes, quotas, the database. So the rate itself is measured: grants to those who waited, over
//! the time in which somebody of the class waited, of the last [`MEMORY`] grants or so. The time
//! since the last grant is part of it, so that a queue that stands still is seen to.

use std::time::{Duration, Instant};

/// When so many grants are remembered, half of their weight is forgotten.
pub(crate) const MEMORY: u32 = 64;

/// The typical time in the database follows each end by this part of the difference.
pub(crate) const STEP: u32 = 16;

/// What has been measured of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    /// Typical time in the database, if a transaction has ended.
    database: Option<Duration>,
    /// Grants to those who waited, and for how long somebody did.
    grants: u32,
    waited: Duration,
    /// When the last grant was, or when the first who waits now came.
    since: Instant,
}

impl Expectation {
    pub(crate) fn new(now: Instant) -> Expectation {
        Expectation { database: None, grants: 0, waited: Duration::ZERO, since: now }
    }

    /// Returns how long a transaction typically takes in the database.
    pub(crate) fn database(&self) -> Option<Duration> {
        self.database
    }

    /// A transaction has ended.
    pub(crate) fn ended(&mut self, in_database: Duration) {
        self.database = Some(match self.database {
            None => in_database,
            Some(typical) => {
                let (up, down) =
                    (in_database.saturating_sub(typical), typical.saturating_sub(in_database));
                (typical + up / STEP).saturating_sub(down / STEP)
            }
        });
    }

    /// The first of the class begins to wait.
    pub(crate) fn begins_to_wait(&mut self, now: Instant) {
        self.since = now;
    }

    /// One that has waited gets its permit.
    pub(crate) fn granted(&mut self, now: Instant) {
        self.waited += now.saturating_duration_since(self.since);
        self.since = now;
        self.grants += 1;
        if self.grants >= MEMORY {
            (self.grants, self.waited) = (self.grants / 2, self.waited / 2);
        }
    }

    /// Returns how long the transaction at this place of the queue will wait, counted from 1;
    /// `None` if nothing is known of it. `is_waiting` if somebody of the class waits already.
    pub(crate) fn wait(
        &self,
        place: u32,
        is_waiting: bool,
        limit: u32,
        now: Instant,
    ) -> Option<Duration> {
        let standing =
            if is_waiting { now.saturating_duration_since(self.since) } else { Duration::ZERO };
        if self.grants == 0 {
            // As if the class had the limit for itself; it waits as long already.
            return Some((self.database? * place / limit.max(1)).max(standing));
        }
        Some(((self.waited + standing) / self.grants).saturating_mul(place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_wait_is_the_place_over_the_rate_at_which_the_queue_is_drained() {
        let start = Instant::now();
        let mut class = Expectation::new(start);
        assert_eq!(class.wait(3, false, 4, start), None, "nothing is known");
        class.ended(8 * MS);
        assert_eq!(class.wait(3, false, 4, start), Some(6 * MS), "the limit of 4 for itself");
        class.begins_to_wait(start);
        for grant in 1..=200 {
            class.granted(start + 5 * MS * grant);
        }
        let now = start + 5 * MS * 200;
        assert_eq!(class.wait(10, true, 4, now), Some(50 * MS));
        assert!(class.wait(10, true, 4, now + 500 * MS) > Some(100 * MS), "it stands still");
        assert_eq!(class.wait(10, false, 4, now + 500 * MS), Some(50 * MS), "nobody has waited");
    }
}
