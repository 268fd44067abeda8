//! What passes through the pools of an event loop, counted as PgBouncer counts it.
//!
//! Only the event loop changes these numbers, so they are plain; others get copies with the
//! [inventory](crate::inventory). Averages are those of the last complete period, or since the
//! pool was made while none is complete.

use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// Averages are over periods of this length.
pub(crate) const PERIOD: Duration = Duration::from_secs(60);

/// Declares the counts, and how they are added and subtracted.
macro_rules! traffic {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since some moment; times are in microseconds.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(crate) struct Traffic {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        impl AddAssign for Traffic {
            fn add_assign(&mut self, other: Traffic) {
                $(self.$name += other.$name;)*
            }
        }

        impl Traffic {
            /// Returns what has been counted since `earlier`.
            fn since(self, earlier: Traffic) -> Traffic {
                Traffic { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

traffic! {
    /// Times a connection was given to a client.
    assignments,
    /// Transactions that ended.
    transactions,
    /// Queries that were answered: each end of a request, with ReadyForQuery.
    queries,
    /// Bytes from clients.
    received,
    /// Bytes from servers for clients.
    sent,
    /// Time of transactions, from their first message to their end.
    transaction_us,
    /// Time of queries, from their first message to the answer.
    query_us,
    /// Time from the request of a permit to the connection, of transactions that got one.
    wait_us,
    /// Named statements that clients prepared.
    client_parses,
    /// Named statements that were prepared on connections.
    server_parses,
    /// Named statements that clients bound.
    binds,
}

/// Returns a time in microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The traffic of a pool, in total and in the last period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolTraffic {
    pub(crate) total: Traffic,
    began: Traffic,
    began_at: Instant,
    last: Option<(Traffic, Duration)>,
}

impl PoolTraffic {
    pub(crate) fn new(now: Instant) -> PoolTraffic {
        let none = Traffic::default();
        PoolTraffic { total: none, began: none, began_at: now, last: None }
    }

    /// Adds what has passed through a pool that is no more.
    pub(crate) fn inherit(&mut self, of: &PoolTraffic) {
        self.total += of.total;
        // It is not of this period.
        self.began += of.total;
    }

    /// Ends the period if it is over.
    pub(crate) fn roll(&mut self, now: Instant) {
        let length = now.saturating_duration_since(self.began_at);
        if length >= PERIOD {
            self.last = Some((self.total.since(self.began), length));
            (self.began, self.began_at) = (self.total, now);
        }
    }

    /// Returns the traffic of the last complete period and its length; of the first one as far as
    /// it has come.
    pub(crate) fn last_period(&self, now: Instant) -> (Traffic, Duration) {
        self.last.unwrap_or_else(|| {
            (self.total.since(self.began), now.saturating_duration_since(self.began_at))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_those_of_the_last_complete_period() {
        let start = Instant::now();
        let mut traffic = PoolTraffic::new(start);
        traffic.total.queries = 10;
        let second = start + Duration::from_secs(1);
        traffic.roll(second);
        assert_eq!(traffic.last_period(second).0.queries, 10, "the first period, so far");
        traffic.roll(start + PERIOD);
        traffic.total.queries = 17;
        let later = start + PERIOD + Duration::from_secs(1);
        traffic.roll(later);
        let (last, length) = traffic.last_period(later);
        assert_eq!((last.queries, length), (10, PERIOD));
        traffic.roll(start + 2 * PERIOD);
        assert_eq!(traffic.last_period(later).0.queries, 7);
    }
}
