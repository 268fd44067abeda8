//! How long a client may take: the bounds of the configuration, by database and by user.
//!
//! A bound that is set for the user holds; else that of the database; else that of `[timeouts]`.
//! A reload changes the bounds of clients that are there, too. `worker/timeouts.rs` finds who has
//! passed a bound, and `docs/timeouts.md` says what then happens.

use std::fmt::{self, Display};
use std::time::Duration;

use serde::Deserialize;

use crate::config_file::{OptionalPeriod, Period};

/// How long a client may take, and for what; `None` is as long as it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientTimeouts {
    /// From the connection's start until the client is logged in.
    pub login: Duration,
    /// In the queue.
    pub queue: Option<Duration>,
    /// For the next command of an open transaction.
    pub idle_in_transaction: Option<Duration>,
    /// For the next command outside a transaction.
    pub client_idle: Option<Duration>,
    /// From a transaction's first message to the server until its end.
    pub transaction: Option<Duration>,
}

/// The bounds of one database or one user as written; `None` is that of the level below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(missing_docs, reason = "the fields are those of ClientTimeouts")]
pub struct ClientTimeoutsSection {
    pub login: Option<Period>,
    pub queue: Option<OptionalPeriod>,
    pub idle_in_transaction: Option<OptionalPeriod>,
    pub client_idle: Option<OptionalPeriod>,
    pub transaction: Option<OptionalPeriod>,
}

impl ClientTimeoutsSection {
    /// Returns these bounds, and those of `below` where there are none.
    #[must_use]
    pub fn over(self, below: ClientTimeouts) -> ClientTimeouts {
        let bound =
            |own: Option<OptionalPeriod>, below| own.map_or(below, |OptionalPeriod(time)| time);
        ClientTimeouts {
            login: self.login.map_or(below.login, |Period(time)| time),
            queue: bound(self.queue, below.queue),
            idle_in_transaction: bound(self.idle_in_transaction, below.idle_in_transaction),
            client_idle: bound(self.client_idle, below.client_idle),
            transaction: bound(self.transaction, below.transaction),
        }
    }
}

/// The key and the value of a bound, as the configuration has them: `timeouts.queue = 2m`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShownBound(pub(crate) &'static str, pub(crate) Duration);

impl Display for ShownBound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShownBound(key, value) = self;
        write!(formatter, "timeouts.{key} = {}", humantime::format_duration(*value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_shown_as_it_is_written() {
        let shown = ShownBound("queue", Duration::from_millis(90_500)).to_string();
        assert_eq!(shown, "timeouts.queue = 1m 30s 500ms");
    }
}
