//! When a client begins its next transaction.
//!
//! In a *closed loop* a client begins when it has been answered and has thought. In an *open loop*
//! transactions arrive by a schedule that knows nothing of the answers; whichever client is free
//! takes the one that is due, and one that waited for a free client is late. Its latency counts
//! from the moment it was due: a client that started its clock when it began would leave out the
//! very waiting that an overload is made of ("coordinated omission").
//!
//! Each transaction has a class ([`ClassDraws`]). In a closed loop it is drawn when the transaction
//! begins. In an open loop the arrivals of both classes are one stream, and each class is followed
//! through it by a copy of its own, which skips the arrivals of the other. So a client that becomes
//! free can take the next of the high class before those of the normal class that wait for longer,
//! and nothing is stored of arrivals that wait.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_gate::Class;
use tidegate_workload::Random;

use super::classes::ClassDraws;

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

/// A transaction that is due: since when, and its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueTransaction {
    pub(super) scheduled: Instant,
    pub(super) class: Class,
}

pub(super) struct Pacer {
    schedule: Schedule,
}

enum Schedule {
    /// Clients that think, by when they are done.
    Closed { thinking: BinaryHeap<Reverse<(Instant, usize)>>, classes: ClassDraws },
    /// The clients that wait for something to do, and the arrivals of each class.
    Open { free: VecDeque<usize>, streams: Vec<ClassStream>, is_high_first: bool },
}

/// The arrivals of a class, out of the stream of all.
#[derive(Clone)]
struct ClassStream {
    class: Class,
    gaps: Gaps,
    classes: ClassDraws,
    /// The next of the class that no client has begun; `None` when there is no more.
    due: Option<Instant>,
}

impl ClassStream {
    fn new(class: Class, gaps: Gaps, classes: ClassDraws, now: Instant) -> Self {
        let mut stream = ClassStream { class, gaps, classes, due: Some(now) };
        stream.advance();
        stream
    }

    /// Goes on to the next arrival of the class.
    fn advance(&mut self) {
        while let Some(last) = self.due {
            self.due = self.gaps.after(last);
            if self.classes.next() == self.class {
                break;
            }
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }
}

/// Returns the arrival that a free client is to begin, and goes on to the next of its class.
fn take(streams: &mut [ClassStream], is_high_first: bool, now: Instant) -> Option<DueTransaction> {
    let due = streams.iter_mut().filter(|stream| stream.is_due(now));
    let stream = if is_high_first {
        due.min_by_key(|stream| stream.class)
    } else {
        due.min_by_key(|stream| stream.due)
    }?;
    let taken = DueTransaction { scheduled: stream.due?, class: stream.class };
    stream.advance();
    Some(taken)
}

impl Pacer {
    /// The pacer of a load that starts now, with classes that are drawn from the beginning.
    /// `is_high_first` says whether a client that becomes free takes the high class first.
    pub(super) fn new(
        arrivals: &Arrivals,
        classes: ClassDraws,
        is_high_first: bool,
        seed: u64,
        now: Instant,
    ) -> Self {
        let draw = Random::new(seed, STREAM);
        let gaps = match arrivals {
            Arrivals::Closed => {
                let thinking = BinaryHeap::new();
                return Pacer { schedule: Schedule::Closed { thinking, classes } };
            }
            Arrivals::Poisson { rate } => Gaps::Drawn { mean_s: 1.0 / rate, draw },
            Arrivals::Constant { rate } => Gaps::Alike(gap(1.0 / rate)),
            Arrivals::Trace(times) => Gaps::Trace { times: Arc::clone(times), next: 0, start: now },
        };
        let stream = |&class| ClassStream::new(class, gaps.clone(), classes.clone(), now);
        let streams = classes.classes().iter().map(stream).collect();
        Pacer { schedule: Schedule::Open { free: VecDeque::new(), streams, is_high_first } }
    }

    /// A client is free and would think so long. Its transaction, if it is to begin now; otherwise
    /// the client comes up in [`Pacer::due`].
    pub(super) fn free(
        &mut self,
        client: usize,
        think: Duration,
        now: Instant,
    ) -> Option<DueTransaction> {
        match &mut self.schedule {
            Schedule::Closed { classes, .. } if think.is_zero() => {
                Some(DueTransaction { scheduled: now, class: classes.next() })
            }
            Schedule::Closed { thinking, .. } => {
                thinking.push(Reverse((now + think.min(GAP_MAX), client)));
                None
            }
            Schedule::Open { free, streams, is_high_first } => {
                let taken = take(streams, *is_high_first, now);
                if taken.is_none() {
                    free.push_back(client);
                }
                taken
            }
        }
    }

    /// A client that is to begin now, and its transaction.
    pub(super) fn due(&mut self, now: Instant) -> Option<(usize, DueTransaction)> {
        match &mut self.schedule {
            Schedule::Closed { thinking, classes } => {
                let &Reverse((when, client)) = thinking.peek()?;
                (when <= now).then(|| {
                    thinking.pop();
                    (client, DueTransaction { scheduled: when, class: classes.next() })
                })
            }
            Schedule::Open { free, streams, is_high_first } => {
                let client = *free.front()?;
                let taken = take(streams, *is_high_first, now)?;
                free.pop_front();
                Some((client, taken))
            }
        }
    }

    /// A client that may wait is not there any more: what it would have begun is for others.
    pub(super) fn leave(&mut self, client: usize) {
        match &mut self.schedule {
            Schedule::Closed { thinking, .. } => {
                thinking.retain(|&Reverse((_, waiting))| waiting != client);
            }
            Schedule::Open { free, .. } => free.retain(|&waiting| waiting != client),
        }
    }

    /// When somebody is to begin next, as far as that does not depend on answers.
    pub(super) fn next_due(&self) -> Option<Instant> {
        match &self.schedule {
            Schedule::Closed { thinking, .. } => thinking.peek().map(|&Reverse((when, _))| when),
            Schedule::Open { free, .. } if free.is_empty() => None,
            Schedule::Open { streams, .. } => streams.iter().filter_map(|stream| stream.due).min(),
        }
    }

    /// Transactions that were due and that nobody has begun, counted up to `most` of each class.
    pub(super) fn overdue(&self, now: Instant, most: u64) -> u64 {
        let Schedule::Open { streams, .. } = &self.schedule else { return 0 };
        let of_class = |stream: &ClassStream| {
            let (mut stream, mut count) = (stream.clone(), 0);
            while count < most && stream.is_due(now) {
                count += 1;
                stream.advance();
            }
            count
        };
        streams.iter().map(of_class).sum()
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
    use super::super::classes::Priority;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The pacer of a load of one class.
    fn pacer(arrivals: &Arrivals, seed: u64, start: Instant) -> Pacer {
        Pacer::new(arrivals, ClassDraws::new(None, seed), false, seed, start)
    }

    fn due(scheduled: Instant) -> DueTransaction {
        DueTransaction { scheduled, class: Class::Normal }
    }

    #[test]
    fn a_closed_loop_waits_for_answers_and_thoughts() {
        let start = Instant::now();
        let mut paced = pacer(&Arrivals::Closed, 1, start);
        assert_eq!(paced.free(3, Duration::ZERO, start), Some(due(start)));
        assert_eq!((paced.free(1, 5 * MS, start), paced.free(2, 2 * MS, start)), (None, None));
        assert_eq!((paced.due(start + MS), paced.next_due()), (None, Some(start + 2 * MS)));
        let later = start + 9 * MS;
        assert_eq!(paced.due(later), Some((2, due(start + 2 * MS))));
        assert_eq!(paced.due(later), Some((1, due(start + 5 * MS))));
        assert_eq!((paced.due(later), paced.overdue(later, 9)), (None, 0));
    }

    #[test]
    fn an_open_loop_is_late_when_nobody_is_free() {
        let start = Instant::now();
        let mut paced = pacer(&Arrivals::Constant { rate: 1000.0 }, 1, start);
        assert_eq!(paced.free(0, 7 * MS, start), None);
        assert_eq!(paced.due(start + MS), Some((0, due(start + MS))));
        // Nobody is free until 4.5 ms, and then the one that was due at 2 ms comes first.
        let (first, busy) = (start + 2 * MS, start + 9 * MS / 2);
        assert_eq!((paced.due(busy), paced.next_due()), (None, None));
        assert_eq!((paced.overdue(busy, 9), paced.overdue(busy, 2)), (3, 2));
        assert_eq!(paced.free(1, Duration::ZERO, busy), Some(due(first)));
        assert_eq!(paced.free(0, Duration::ZERO, busy), Some(due(first + MS)));
        assert_eq!(paced.overdue(busy, 9), 1);
    }

    #[test]
    fn who_left_is_given_nothing() {
        let start = Instant::now();
        let late = start + 10 * MS;
        let mut open = pacer(&Arrivals::Constant { rate: 1000.0 }, 1, start);
        let mut closed = pacer(&Arrivals::Closed, 1, start);
        for paced in [&mut open, &mut closed] {
            for client in [0, 1] {
                assert_eq!(paced.free(client, MS, start), None);
            }
            paced.leave(0);
            assert_eq!(paced.due(late), Some((1, due(start + MS))));
            assert_eq!(paced.due(late), None);
        }
        // What client 0 would have begun is there for the next that is free.
        assert_eq!(open.overdue(late, 99), 9);
    }

    #[test]
    fn a_trace_ends() {
        let start = Instant::now();
        let times: Arc<[Duration]> = [MS, 3 * MS].into();
        let mut paced = pacer(&Arrivals::Trace(times), 1, start);
        let late = start + 10 * MS;
        assert_eq!(paced.free(0, Duration::ZERO, late), Some(due(start + MS)));
        assert_eq!(paced.free(0, Duration::ZERO, late), Some(due(start + 3 * MS)));
        assert_eq!(paced.free(0, Duration::ZERO, late), None);
        assert_eq!((paced.due(late), paced.next_due(), paced.overdue(late, 9)), (None, None, 0));
    }

    #[test]
    fn a_rate_that_cannot_be_is_a_gap_that_nobody_sees_the_end_of() {
        let start = Instant::now();
        for rate in [0.0, -1.0, 1e-20, 1e-300, f64::NAN] {
            assert!(!is_rate(rate));
            for arrivals in [Arrivals::Constant { rate }, Arrivals::Poisson { rate }] {
                let mut paced = pacer(&arrivals, 1, start);
                assert_eq!(paced.free(0, Duration::ZERO, start), None, "{arrivals:?}");
                assert!(paced.next_due().is_some_and(|due| due > start + GAP_MAX / 1_000_000));
            }
        }
        assert!([1e-7, 0.5, 1e9].into_iter().all(is_rate) && !is_rate(f64::INFINITY));
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_variance() {
        let start = Instant::now();
        let mut paced = pacer(&Arrivals::Poisson { rate: 500.0 }, 7, start);
        let far = start + Duration::from_secs(3600);
        let mut times = vec![start];
        let free = |_| Some(paced.free(0, Duration::ZERO, far)?.scheduled);
        times.extend((0..20_000).filter_map(free));
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 500.0 - 1.0).abs() < 0.03, "seed 7: mean gap {mean}");
        assert!((variance / (mean * mean) - 1.0).abs() < 0.1, "seed 7: variance {variance}");
    }

    /// A stream of arrivals against a list of all of them, from seeds: each has the class that was
    /// drawn for its number, also in a closed loop, and none is left out or taken twice.
    #[test]
    fn each_arrival_has_its_own_class() {
        let start = Instant::now();
        let rate = 1000.0;
        for seed in 1..=50 {
            let priority = Priority { high_share: 0.3, is_first: true };
            let draws = || ClassDraws::new(Some(priority), seed);
            let mut classes = draws();
            let mut all = pacer(&Arrivals::Poisson { rate }, seed, start);
            let far = start + Duration::from_secs(3600);
            let mut expected: Vec<DueTransaction> = (0..500)
                .map(|_| all.free(0, Duration::ZERO, far).unwrap())
                .map(|one| DueTransaction { class: classes.next(), ..one })
                .collect();
            let mut closed = Pacer::new(&Arrivals::Closed, draws(), true, seed, start);
            for one in &expected {
                assert_eq!(closed.free(0, Duration::ZERO, start).unwrap().class, one.class);
            }
            // All are due when the first client is free: by class, or as they came.
            let late = expected.last().unwrap().scheduled;
            for is_high_first in [false, true] {
                let arrivals = Arrivals::Poisson { rate };
                let mut paced = Pacer::new(&arrivals, draws(), is_high_first, seed, start);
                assert_eq!(paced.overdue(late, 1_000), 500, "seed {seed}");
                if is_high_first {
                    expected.sort_by_key(|one| (one.class, one.scheduled));
                }
                for one in &expected {
                    assert_eq!(paced.free(0, Duration::ZERO, late), Some(*one), "seed {seed}");
                }
                assert_eq!(paced.free(0, Duration::ZERO, late), None, "seed {seed}");
            }
        }
    }
}
