//! When a client begins its next transaction.
//!
//! In a *closed loop* a client begins when it has been answered and has thought. In an *open loop*
//! transactions arrive by a schedule that knows nothing of the answers; whichever client is free
//! takes the one that is due, and one that waited for a free client is late. Its latency counts
//! from the moment it was due: a client that started its clock when it began would leave out the
//! very waiting that an overload is made of ("coordinated omission").

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_workload::Random;

#[derive(Clone, Debug)]
pub enum Arrivals {
    /// A client's next when its last has been answered and the client has thought.
    Closed,
    /// Open: so many a second, with gaps that are drawn from an exponential distribution.
    Poisson {
        /// Arrivals a second in the mean, above 0.
        rate: f64,
    },
    /// Open: so many a second, all gaps alike.
    Constant {
        /// Arrivals a second, above 0.
        rate: f64,
    },
    /// Open: at these times after the start, in order.
    Trace(Arc<[Duration]>),
}

/// Arrivals a second that there may be, in words.
pub const RATES: &str = "a number from 1e-7, one in 116 days, to 1e9, one in a nanosecond";

/// Whether there may be so many arrivals a second.
pub fn is_rate(rate: f64) -> bool {
    (1e-7..=1e9).contains(&rate)
}

/// The longest gap between two arrivals, and the longest thought: a year, which nobody waits for.
const GAP_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The stream of draws for arrivals; clients have theirs by their numbers.
const STREAM: u64 = u64::MAX;

pub(super) struct Pacer {
    schedule: Schedule,
}

enum Schedule {
    /// Clients that think, by when they are done.
    Closed { thinking: BinaryHeap<Reverse<(Instant, usize)>> },
    /// The clients that wait for something to do, and when the next transaction is due.
    Open { free: VecDeque<usize>, gaps: Gaps, due: Option<Instant> },
}

impl Pacer {
    /// The pacer of a load that starts now.
    pub(super) fn new(arrivals: &Arrivals, seed: u64, now: Instant) -> Self {
        let draw = Random::new(seed, STREAM);
        let gaps = match arrivals {
            Arrivals::Closed => {
                return Pacer { schedule: Schedule::Closed { thinking: BinaryHeap::new() } };
            }
            Arrivals::Poisson { rate } => Gaps::Drawn { mean_s: 1.0 / rate, draw },
            Arrivals::Constant { rate } => Gaps::Alike(gap(1.0 / rate)),
            Arrivals::Trace(times) => Gaps::Trace { times: Arc::clone(times), next: 0, start: now },
        };
        let mut gaps = gaps;
        let due = gaps.after(now);
        Pacer { schedule: Schedule::Open { free: VecDeque::new(), gaps, due } }
    }

    /// A client is free and would think so long. When its transaction is scheduled for, if it is to
    /// begin now; otherwise it comes up in [`Pacer::due`].
    pub(super) fn free(&mut self, client: usize, think: Duration, now: Instant) -> Option<Instant> {
        match &mut self.schedule {
            Schedule::Closed { .. } if think.is_zero() => Some(now),
            Schedule::Closed { thinking } => {
                thinking.push(Reverse((now + think.min(GAP_MAX), client)));
                None
            }
            Schedule::Open { free, gaps, due } => match *due {
                Some(scheduled) if scheduled <= now => {
                    *due = gaps.after(scheduled);
                    Some(scheduled)
                }
                _ => {
                    free.push_back(client);
                    None
                }
            },
        }
    }

    /// A client that is to begin now, with the time its transaction is scheduled for.
    pub(super) fn due(&mut self, now: Instant) -> Option<(usize, Instant)> {
        match &mut self.schedule {
            Schedule::Closed { thinking } => {
                let &Reverse((when, client)) = thinking.peek()?;
                (when <= now).then(|| {
                    thinking.pop();
                    (client, when)
                })
            }
            Schedule::Open { free, gaps, due } => {
                let scheduled = due.filter(|&scheduled| scheduled <= now)?;
                let client = free.pop_front()?;
                *due = gaps.after(scheduled);
                Some((client, scheduled))
            }
        }
    }

    /// A client that may wait is not there any more: what it would have begun is for others.
    pub(super) fn leave(&mut self, client: usize) {
        match &mut self.schedule {
            Schedule::Closed { thinking } => {
                thinking.retain(|&Reverse((_, waiting))| waiting != client);
            }
            Schedule::Open { free, .. } => free.retain(|&waiting| waiting != client),
        }
    }

    /// When somebody is to begin next, as far as that does not depend on answers.
    pub(super) fn next_due(&self) -> Option<Instant> {
        match &self.schedule {
            Schedule::Closed { thinking } => thinking.peek().map(|&Reverse((when, _))| when),
            Schedule::Open { free, due, .. } => due.filter(|_| !free.is_empty()),
        }
    }

    /// Transactions that were due and that nobody has begun, counted up to `most`.
    pub(super) fn overdue(&self, now: Instant, most: u64) -> u64 {
        let Schedule::Open { gaps, due, .. } = &self.schedule else { return 0 };
        let (mut gaps, mut due, mut count) = (gaps.clone(), *due, 0);
        while let Some(scheduled) = due.filter(|&scheduled| scheduled <= now && count < most) {
            count += 1;
            due = gaps.after(scheduled);
        }
        count
    }
}

#[derive(Clone)]
enum Gaps {
    Drawn { mean_s: f64, draw: Random },
    Alike(Duration),
    Trace { times: Arc<[Duration]>, next: usize, start: Instant },
}

impl Gaps {
    /// The arrival that follows one at `last`; `None` when the trace has ended, or time has.
    fn after(&mut self, last: Instant) -> Option<Instant> {
        match self {
            Gaps::Drawn { mean_s, draw } => {
                // A draw of (0, 1], so that the logarithm is finite.
                let unit = (f64::from(draw.between(0, i32::MAX - 1)) + 1.0) / f64::from(i32::MAX);
                last.checked_add(gap(-libm::log(unit) * *mean_s))
            }
            Gaps::Alike(gap) => last.checked_add(*gap),
            Gaps::Trace { times, next, start } => {
                let time = times.get(*next)?;
                *next += 1;
                start.checked_add(*time)
            }
        }
    }
}

/// A gap of so many seconds, or the longest. A share of a rate may be as small as it likes.
fn gap(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).map_or(GAP_MAX, |gap| gap.min(GAP_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_closed_loop_waits_for_answers_and_thoughts() {
        let start = Instant::now();
        let mut pacer = Pacer::new(&Arrivals::Closed, 1, start);
        assert_eq!(pacer.free(3, Duration::ZERO, start), Some(start));
        assert_eq!((pacer.free(1, 5 * MS, start), pacer.free(2, 2 * MS, start)), (None, None));
        assert_eq!((pacer.due(start + MS), pacer.next_due()), (None, Some(start + 2 * MS)));
        let later = start + 9 * MS;
        assert_eq!(pacer.due(later), Some((2, start + 2 * MS)));
        assert_eq!(pacer.due(later), Some((1, start + 5 * MS)));
        assert_eq!((pacer.due(later), pacer.overdue(later, 9)), (None, 0));
    }

    #[test]
    fn an_open_loop_is_late_when_nobody_is_free() {
        let start = Instant::now();
        let mut pacer = Pacer::new(&Arrivals::Constant { rate: 1000.0 }, 1, start);
        assert_eq!(pacer.free(0, 7 * MS, start), None);
        assert_eq!(pacer.due(start + MS), Some((0, start + MS)));
        // Nobody is free until 4.5 ms, and then the one that was due at 2 ms comes first.
        let (due, busy) = (start + 2 * MS, start + 9 * MS / 2);
        assert_eq!((pacer.due(busy), pacer.next_due()), (None, None));
        assert_eq!((pacer.overdue(busy, 9), pacer.overdue(busy, 2)), (3, 2));
        assert_eq!(pacer.free(1, Duration::ZERO, busy), Some(due));
        assert_eq!(pacer.free(0, Duration::ZERO, busy), Some(due + MS));
        assert_eq!(pacer.overdue(busy, 9), 1);
    }

    #[test]
    fn who_left_is_given_nothing() {
        let start = Instant::now();
        let late = start + 10 * MS;
        let mut open = Pacer::new(&Arrivals::Constant { rate: 1000.0 }, 1, start);
        let mut closed = Pacer::new(&Arrivals::Closed, 1, start);
        for pacer in [&mut open, &mut closed] {
            for client in [0, 1] {
                assert_eq!(pacer.free(client, MS, start), None);
            }
            pacer.leave(0);
            assert_eq!(pacer.due(late), Some((1, start + MS)));
            assert_eq!(pacer.due(late), None);
        }
        // What client 0 would have begun is there for the next that is free.
        assert_eq!(open.overdue(late, 99), 9);
    }

    #[test]
    fn a_trace_ends() {
        let start = Instant::now();
        let times: Arc<[Duration]> = [MS, 3 * MS].into();
        let mut pacer = Pacer::new(&Arrivals::Trace(times), 1, start);
        let late = start + 10 * MS;
        assert_eq!(pacer.free(0, Duration::ZERO, late), Some(start + MS));
        assert_eq!(pacer.free(0, Duration::ZERO, late), Some(start + 3 * MS));
        assert_eq!(pacer.free(0, Duration::ZERO, late), None);
        assert_eq!((pacer.due(late), pacer.next_due(), pacer.overdue(late, 9)), (None, None, 0));
    }

    #[test]
    fn a_rate_that_cannot_be_is_a_gap_that_nobody_sees_the_end_of() {
        let start = Instant::now();
        for rate in [0.0, -1.0, 1e-20, 1e-300, f64::NAN] {
            assert!(!is_rate(rate));
            for arrivals in [Arrivals::Constant { rate }, Arrivals::Poisson { rate }] {
                let mut pacer = Pacer::new(&arrivals, 1, start);
                assert_eq!(pacer.free(0, Duration::ZERO, start), None, "{arrivals:?}");
                assert!(pacer.next_due().is_some_and(|due| due > start + GAP_MAX / 1_000_000));
            }
        }
        assert!([1e-7, 0.5, 1e9].into_iter().all(is_rate) && !is_rate(f64::INFINITY));
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_variance() {
        let start = Instant::now();
        let mut pacer = Pacer::new(&Arrivals::Poisson { rate: 500.0 }, 7, start);
        let far = start + Duration::from_secs(3600);
        let mut times = vec![start];
        times.extend((0..20_000).filter_map(|_| pacer.free(0, Duration::ZERO, far)));
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 500.0 - 1.0).abs() < 0.03, "seed 7: mean gap {mean}");
        assert!((variance / (mean * mean) - 1.0).abs() < 0.1, "seed 7: variance {variance}");
    }
}
