//! What the sessions of a database server do, as seen from outside, and what holds them up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A station counts as a bottleneck from this mean queue length: half of the time one waits.
const QUEUE_MIN: f64 = 0.5;

/// The processors count as busy from this share of them in use, also without a queue.
const BUSY: f64 = 0.8;

/// Sessions of a database server by what they do, averaged over the samples of an interval.
///
/// A session is in exactly one of the numbers while it is inside a transaction, and in none while
/// it is outside. What cannot be seen is in none, either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerObservation {
    /// Samples that the means are made of.
    pub samples: u32,
    /// Sessions that work and wait for nothing: on a processor, or ready to be on one.
    pub processor: f64,
    /// Sessions that wait for a lock of the lock manager: a row, a table, a transaction's end.
    pub lock: f64,
    /// Sessions that wait for a lock of the server itself, on memory that sessions share.
    pub lwlock: f64,
    /// Sessions that wait for a disk, or for a write of the log that another session does.
    pub io: f64,
    /// Sessions in the middle of a statement that wait for their client: to read, or to send.
    pub client: f64,
    /// Sessions that wait for anything else: another process, a replica, a timer.
    pub other: f64,
    /// Sessions inside a transaction whose client sends no statement.
    pub idle_in_transaction: f64,
    /// Sessions of which the server does not tell what they do.
    #[serde(default)]
    pub hidden: f64,
}

/// What holds the transactions of a server up. It is the station with the longest queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// Transactions wait for each other's locks.
    Locks,
    /// Sessions wait for locks of the server itself.
    Contention,
    /// Sessions wait for disks.
    Io,
    /// More sessions have work than there are processors, or nearly as many.
    Processors,
    /// Sessions inside transactions wait for their clients.
    Clients,
    /// Sessions wait for something else.
    Other,
    /// Nothing: the server could do more if it were asked.
    Nothing,
    /// Most sessions do not show what they do.
    Hidden,
}

impl Bottleneck {
    /// Every bottleneck, in the order in which metrics list them.
    pub const ALL: [Bottleneck; 8] = [
        Bottleneck::Locks,
        Bottleneck::Contention,
        Bottleneck::Io,
        Bottleneck::Processors,
        Bottleneck::Clients,
        Bottleneck::Other,
        Bottleneck::Nothing,
        Bottleneck::Hidden,
    ];

    /// Returns the word of logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Bottleneck::Locks => "locks",
            Bottleneck::Contention => "contention",
            Bottleneck::Io => "io",
            Bottleneck::Processors => "processors",
            Bottleneck::Clients => "clients",
            Bottleneck::Other => "other",
            Bottleneck::Nothing => "nothing",
            Bottleneck::Hidden => "hidden",
        }
    }
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl ServerObservation {
    /// Returns the number of sessions inside a transaction whose state is known.
    #[must_use]
    pub fn inside(&self) -> f64 {
        self.working() + self.idle_in_transaction
    }

    /// Returns the number of sessions inside a statement.
    fn working(&self) -> f64 {
        self.processor + self.lock + self.lwlock + self.io + self.client + self.other
    }

    /// Returns what holds the sessions up on a server with so many processors.
    ///
    /// The queues are compared: for locks, for the server's own locks, for disks, and for the
    /// processors, where the queue is what exceeds their number. The longest is the bottleneck if
    /// it is half a session or longer. Without such a queue the processors are the bottleneck from
    /// four fifths in use. After that come the clients and the rest, because a session that waits
    /// for its client keeps others waiting only by its locks, and then the queue for locks shows.
    ///
    /// # Examples
    /// On two processors, 15 of 16 sessions wait for one row and one works: locks. Eight compute:
    /// six wait for a processor, so processors. Twenty have been left open and one of the two
    /// processors is in use: clients.
    #[must_use]
    pub fn bottleneck(&self, cpus: u32) -> Bottleneck {
        if self.hidden > self.inside() {
            return Bottleneck::Hidden;
        }
        let cpus = f64::from(cpus.max(1));
        let queues = [
            (Bottleneck::Locks, self.lock),
            (Bottleneck::Contention, self.lwlock),
            (Bottleneck::Io, self.io),
            (Bottleneck::Processors, self.processor - cpus),
        ];
        let longest = queues.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        if let Some((station, length)) = longest
            && length >= QUEUE_MIN
        {
            return station;
        }
        if self.processor >= BUSY * cpus {
            return Bottleneck::Processors;
        }
        let clients = self.client + self.idle_in_transaction;
        let idle = [(Bottleneck::Clients, clients), (Bottleneck::Other, self.other)];
        let longest = idle.into_iter().max_by(|(_, one), (_, other)| one.total_cmp(other));
        match longest {
            Some((station, length)) if length >= QUEUE_MIN => station,
            _ => Bottleneck::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: ServerObservation = ServerObservation {
        samples: 10,
        processor: 0.0,
        lock: 0.0,
        lwlock: 0.0,
        io: 0.0,
        client: 0.0,
        other: 0.0,
        idle_in_transaction: 0.0,
        hidden: 0.0,
    };

    /// Two processors.
    #[test]
    fn the_longest_queue_is_the_bottleneck() {
        let table = [
            (NONE, Bottleneck::Nothing, "nothing runs"),
            (ServerObservation { processor: 1.0, ..NONE }, Bottleneck::Nothing, "one is free"),
            (ServerObservation { processor: 1.7, ..NONE }, Bottleneck::Processors, "both in use"),
            (ServerObservation { processor: 8.0, ..NONE }, Bottleneck::Processors, "six wait"),
            (
                ServerObservation { processor: 1.0, lock: 15.0, ..NONE },
                Bottleneck::Locks,
                "one works, fifteen wait for its row",
            ),
            (
                ServerObservation { processor: 8.0, lock: 5.0, ..NONE },
                Bottleneck::Processors,
                "six wait for a processor, five for a lock",
            ),
            (
                ServerObservation { processor: 3.0, lwlock: 4.0, io: 1.0, ..NONE },
                Bottleneck::Contention,
                "memory that sessions share",
            ),
            (ServerObservation { processor: 0.5, io: 0.6, ..NONE }, Bottleneck::Io, "one disk"),
            (
                ServerObservation { processor: 0.4, idle_in_transaction: 20.0, ..NONE },
                Bottleneck::Clients,
                "left open",
            ),
            (
                ServerObservation { lock: 3.0, idle_in_transaction: 20.0, ..NONE },
                Bottleneck::Locks,
                "left open with locks that others want",
            ),
            (
                ServerObservation { processor: 8.0, idle_in_transaction: 20.0, ..NONE },
                Bottleneck::Processors,
                "left open beside work",
            ),
            (ServerObservation { client: 2.0, ..NONE }, Bottleneck::Clients, "results not read"),
            (ServerObservation { other: 4.0, ..NONE }, Bottleneck::Other, "asleep"),
            (
                ServerObservation { processor: 1.0, hidden: 9.0, ..NONE },
                Bottleneck::Hidden,
                "nine of ten are others' sessions",
            ),
        ];
        for (seen, expected, case) in table {
            assert_eq!(seen.bottleneck(2), expected, "{case}");
        }
    }

    #[test]
    fn every_bottleneck_has_its_own_word() {
        let mut words = Bottleneck::ALL.map(Bottleneck::name).to_vec();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Bottleneck::ALL.len());
    }
}
