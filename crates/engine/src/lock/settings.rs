//! What a lock manager can be told.

use std::time::Duration;

/// How a [`LockManager`](super::LockManager) decides where the literature knows several ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockSettings {
    /// How long a request waits unless it says otherwise; `None` waits as long as it takes.
    pub timeout: Option<Duration>,
    /// Who is rolled back to break a deadlock.
    pub victim: Victim,
    /// Whether each request that has to wait looks for a deadlock at once. Finds them without a
    /// detector and without delay, and costs each wait a walk along the waits ahead of it.
    pub check_on_block: bool,
    /// What priorities do in the queues.
    pub priorities: Priorities,
    /// Latches of the lock table; raised to a power of two, from 2 to 65,536. Threads that lock
    /// different resources meet at a latch with one chance in as many.
    pub buckets: u32,
}

impl Default for LockSettings {
    fn default() -> LockSettings {
        LockSettings {
            timeout: Some(Duration::from_secs(10)),
            victim: Victim::FewestLocks,
            check_on_block: false,
            priorities: Priorities::Ignored,
            buckets: 4096,
        }
    }
}

/// Who of those in a deadlock is rolled back. Among equals it is the youngest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// Who holds the fewest locks, and so has likely done the least.
    FewestLocks,
    /// Who began last: the oldest always gets through.
    Youngest,
    /// Who has the lowest priority; among those, who holds the fewest locks.
    LowestPriority,
}

/// What priorities do in the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priorities {
    /// Nothing: first come, first served.
    Ignored,
    /// A request passes those of lower priority, and a locker of lower priority that is in its way
    /// while it waits itself is rolled back. See [the module](super#priorities).
    PreemptOnWait,
}

/// The priority of a locker; a higher number goes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

/// How long a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As [`LockSettings::timeout`] says.
    AsSet,
    /// As long as it takes.
    Forever,
    /// At most so long.
    For(Duration),
}

impl Wait {
    /// The longest wait; `None` is no bound.
    pub(super) fn at_most(self, settings: &LockSettings) -> Option<Duration> {
        match self {
            Wait::AsSet => settings.timeout,
            Wait::Forever => None,
            Wait::For(limit) => Some(limit),
        }
    }
}
