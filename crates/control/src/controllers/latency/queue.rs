//! The queue of TCP Vegas: how many of the transactions inside only wait.
//!
//! With L inside, and a latency of `rtt` where an unloaded system needs `base`, Little's law says
//! that L·base/rtt would do for the same throughput. The rest, L·(1 − base/rtt), queues somewhere
//! inside. Netflix and failsafe-go compare it, rounded up, with multiples of log10 L: α = 3·log10 L
//! and β = 6·log10 L, where log10 is rounded down and at least 1. So at limits from 1 to 99 the
//! step is 1, α is 3 and β is 6; from 100 to 999 the step is 2, α is 6 and β is 12.

use std::fmt;

use crate::Mpl;

/// A queue inside the database and what it is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueReading {
    /// L·(1 − base/rtt), rounded up; below 0 where the latency is below the one of no load.
    pub queue: f64,
    /// log10 L, rounded down, at least 1: the step by which the limit moves.
    pub step: u32,
}

impl QueueReading {
    /// The queue at `limit`, with latencies in seconds.
    pub(super) fn at(limit: Mpl, base_s: f64, rtt_s: f64) -> QueueReading {
        // The 0.0 turns -0 into 0, which reads better.
        let queue = (f64::from(limit.get()) * (1.0 - base_s / rtt_s)).ceil() + 0.0;
        let step = limit.get().ilog10().max(1);
        QueueReading { queue, step }
    }

    /// Below this queue the limit may rise, α.
    #[must_use]
    pub fn alpha(self) -> u32 {
        3 * self.step
    }

    /// Above this queue the limit must fall, β.
    #[must_use]
    pub fn beta(self) -> u32 {
        6 * self.step
    }

    /// Nothing queues, to speak of.
    pub(super) fn is_empty(self) -> bool {
        self.queue <= f64::from(self.step)
    }

    /// The queue is below α.
    pub(super) fn is_short(self) -> bool {
        self.queue < f64::from(self.alpha())
    }

    /// The queue is above β.
    pub(super) fn is_long(self) -> bool {
        self.queue > f64::from(self.beta())
    }
}

impl fmt::Display for QueueReading {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (queue, alpha, beta) = (self.queue, self.alpha(), self.beta());
        if self.is_short() {
            write!(formatter, "queue {queue:.0} below alpha {alpha}")
        } else if self.is_long() {
            write!(formatter, "queue {queue:.0} above beta {beta}")
        } else {
            write!(formatter, "queue {queue:.0} from alpha {alpha} to beta {beta}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_multiples_of_the_logarithm() {
        let table = [
            (1, 1, 3, 6),
            (9, 1, 3, 6),
            (99, 1, 3, 6),
            (100, 2, 6, 12),
            (999, 2, 6, 12),
            (1_000, 3, 9, 18),
        ];
        for (limit, step, alpha, beta) in table {
            let reading = QueueReading::at(Mpl::at_least_one(limit), 1.0, 1.0);
            assert_eq!((reading.step, reading.alpha(), reading.beta()), (step, alpha, beta));
        }
    }

    /// At 20 with 10 ms without load: 20·(1 − 10/11) = 1.8, 20·(1 − 10/12.4) = 3.9 and so on, all
    /// rounded up.
    #[test]
    fn the_queue_is_what_littles_law_leaves_over() {
        let table = [(10.0, 0.0), (11.0, 2.0), (12.4, 4.0), (16.0, 8.0), (8.1, -4.0)];
        for (rtt_ms, queue) in table {
            let reading = QueueReading::at(Mpl::at_least_one(20), 0.010, rtt_ms / 1e3);
            assert!((reading.queue - queue).abs() < 1e-9, "{rtt_ms} ms: {reading:?}");
        }
    }

    #[test]
    fn a_queue_is_empty_short_fair_or_long() {
        let table = [
            (1.0, [true, true, false], "queue 1 below alpha 3"),
            (2.0, [false, true, false], "queue 2 below alpha 3"),
            (3.0, [false, false, false], "queue 3 from alpha 3 to beta 6"),
            (6.0, [false, false, false], "queue 6 from alpha 3 to beta 6"),
            (7.0, [false, false, true], "queue 7 above beta 6"),
        ];
        for (queue, expected, words) in table {
            let reading = QueueReading { queue, step: 1 };
            let said = [reading.is_empty(), reading.is_short(), reading.is_long()];
            assert_eq!((said, reading.to_string()), (expected, words.to_owned()));
        }
    }
}
