//! What is known of a watched server now: filled by the thread that watches, read by the control
//! thread and `/metrics`.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_control::{Bottleneck, LockObservation, ServerObservation};
use tidegate_gate::DatabaseState;

/// Samples that are kept: the longest control interval at the shortest time between two.
const SAMPLES_MAX: usize = 4096;

/// The time over which `/metrics` averages.
const NOW: Duration = Duration::from_millis(500);

/// Samples of the locks that are kept: the longest control interval with ten a second.
const LOCK_SAMPLES_MAX: usize = 300;

/// Where the locks were not sampled in an interval, the last one is told until it is so old, or
/// twice as old as the time between two samples.
const LOCKS_FRESH: Duration = Duration::from_secs(2);

/// Sessions by what they do, at one moment. See [`ServerObservation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) processor: u32,
    pub(crate) lock: u32,
    pub(crate) lwlock: u32,
    pub(crate) io: u32,
    pub(crate) client: u32,
    pub(crate) other: u32,
    pub(crate) idle_in_transaction: u32,
    pub(crate) hidden: u32,
}

impl Activity {
    /// Returns whether a session waits for a lock.
    pub(crate) fn waits_for_lock(&self) -> bool {
        self.lock > 0
    }
}

/// What is known of a server.
#[derive(Debug)]
pub(crate) struct ServerSamples {
    /// Processors of the server.
    cpus: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    samples: VecDeque<(Instant, Activity)>,
    locks: VecDeque<(Instant, LockObservation)>,
    locks_interval: Duration,
    is_up: bool,
    interval: Duration,
    cost: f64,
    sampled: u64,
    failures: u64,
}

/// What `/metrics` shows of a watched server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchMetrics {
    /// Whether the watch is connected.
    pub(crate) is_up: bool,
    /// Time between two samples.
    pub(crate) interval: Duration,
    /// The share of a processor that the watch costs, by its own account.
    pub(crate) cost: f64,
    /// Samples taken.
    pub(crate) sampled: u64,
    /// Connections that failed.
    pub(crate) failures: u64,
    /// What sessions do now, and the state of the locks, where they are known.
    pub(crate) state: DatabaseState,
    /// What holds the sessions up now.
    pub(crate) bottleneck: Option<Bottleneck>,
}

impl ServerSamples {
    /// Returns the samples of a server with so many processors: none yet.
    pub(crate) fn new(cpus: u32) -> ServerSamples {
        ServerSamples { cpus, state: Mutex::default() }
    }

    /// Takes a sample, the time to the next one, and the share of a processor that the watch costs.
    pub(super) fn add(&self, now: Instant, activity: Activity, interval: Duration, cost: f64) {
        let mut state = self.lock();
        if state.samples.len() == SAMPLES_MAX {
            state.samples.pop_front();
        }
        state.samples.push_back((now, activity));
        (state.interval, state.cost) = (interval, cost);
        state.is_up = true;
        state.sampled += 1;
    }

    /// Takes the state of the locks, and the time to the next sample of them.
    pub(super) fn add_locks(&self, now: Instant, locks: LockObservation, interval: Duration) {
        let mut state = self.lock();
        if state.locks.len() == LOCK_SAMPLES_MAX {
            state.locks.pop_front();
        }
        state.locks.push_back((now, locks));
        state.locks_interval = interval;
    }

    /// Forgets the state of the locks: the connection is lost, and what was seen grows old.
    pub(super) fn lost(&self) {
        let mut state = self.lock();
        state.is_up = false;
        state.locks.clear();
    }

    /// Counts a connection that failed.
    pub(super) fn failed(&self) {
        self.lock().failures += 1;
    }

    /// Returns what was seen in the `interval` before `now`.
    pub(crate) fn over(&self, interval: Duration, now: Instant) -> DatabaseState {
        let state = self.lock();
        let fresh = LOCKS_FRESH.max(state.locks_interval * 2);
        DatabaseState {
            locks: mean_locks(&state.locks, interval, fresh, now),
            server: mean(&state.samples, interval, now),
        }
    }

    /// Returns what holds such sessions up on this server.
    pub(crate) fn bottleneck(&self, server: &ServerObservation) -> Bottleneck {
        server.bottleneck(self.cpus)
    }

    /// Returns what is known now, over half a second, or over two samples if they are rarer.
    pub(crate) fn watched(&self, now: Instant) -> WatchMetrics {
        let interval = NOW.max(self.lock().interval * 2);
        let seen = self.over(interval, now);
        let state = self.lock();
        WatchMetrics {
            is_up: state.is_up,
            interval: state.interval,
            cost: state.cost,
            sampled: state.sampled,
            failures: state.failures,
            state: seen,
            bottleneck: seen.server.map(|server| self.bottleneck(&server)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the mean over the time of the interval that ends at `now`; each sample stands for the
/// time until the next one, the first also for that before it. `None` without a sample.
fn mean(
    samples: &VecDeque<(Instant, Activity)>,
    interval: Duration,
    now: Instant,
) -> Option<ServerObservation> {
    let age = |at: Instant| now.saturating_duration_since(at);
    let first = samples.partition_point(|&(at, _)| age(at) > interval);
    let mut seen = ServerObservation::default();
    let (mut begin, mut weights) = (interval, 0.0);
    let inside = samples.range(first..);
    let ends = inside.clone().skip(1).map(|&(at, _)| age(at)).chain([Duration::ZERO]);
    for (&(_, activity), end) in inside.zip(ends) {
        // A sample at the very end of an interval still counts for something.
        let weight = begin.saturating_sub(end).as_secs_f64().max(1e-9);
        begin = end;
        weights += weight;
        seen.samples += 1;
        for (sum, count) in [
            (&mut seen.processor, activity.processor),
            (&mut seen.lock, activity.lock),
            (&mut seen.lwlock, activity.lwlock),
            (&mut seen.io, activity.io),
            (&mut seen.client, activity.client),
            (&mut seen.other, activity.other),
            (&mut seen.idle_in_transaction, activity.idle_in_transaction),
            (&mut seen.hidden, activity.hidden),
        ] {
            *sum += weight * f64::from(count);
        }
    }
    for sum in [
        &mut seen.processor,
        &mut seen.lock,
        &mut seen.lwlock,
        &mut seen.io,
        &mut seen.client,
        &mut seen.other,
        &mut seen.idle_in_transaction,
        &mut seen.hidden,
    ] {
        *sum /= weights;
    }
    (seen.samples > 0).then_some(seen)
}

/// Returns the mean of the samples in the interval that ends at `now`, rounded; without one, the
/// last sample if it is no older than `fresh`.
fn mean_locks(
    samples: &VecDeque<(Instant, LockObservation)>,
    interval: Duration,
    fresh: Duration,
    now: Instant,
) -> Option<LockObservation> {
    let age = |at: Instant| now.saturating_duration_since(at);
    let first = samples.partition_point(|&(at, _)| age(at) > interval);
    let inside: Vec<&LockObservation> = samples.range(first..).map(|(_, seen)| seen).collect();
    if inside.is_empty() {
        return samples.back().filter(|&&(at, _)| age(at) <= fresh).map(|&(_, seen)| seen);
    }
    let mean = |of: fn(&LockObservation) -> u64| {
        let sum = inside.iter().fold(0_u64, |sum, seen| sum.saturating_add(of(seen)));
        let count = inside.len() as u64;
        sum.saturating_add(count / 2) / count
    };
    let sessions = |of| u32::try_from(mean(of)).expect("the mean of numbers below 2^32");
    Some(LockObservation {
        mature_running: sessions(|seen| seen.mature_running.into()),
        mature_blocked: sessions(|seen| seen.mature_blocked.into()),
        young_running: sessions(|seen| seen.young_running.into()),
        young_blocked: sessions(|seen| seen.young_blocked.into()),
        locks_held: mean(|seen| seen.locks_held),
        locks_held_by_running: mean(|seen| seen.locks_held_by_running),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-6
    }

    #[test]
    fn means_are_over_time_and_only_of_the_interval() {
        let (view, start) = (ServerSamples::new(2), Instant::now());
        assert_eq!(view.over(1_000 * MS, start), DatabaseState::default());
        for (at, lock) in [(0, 900), (100, 4), (400, 0), (500, 10)] {
            let activity = Activity { lock, processor: 1, ..Activity::default() };
            view.add(start + at * MS, activity, 10 * MS, 0.001);
        }
        // From 50 to 600 ms: 4 for 350 ms (the first also before it), 0 for 100, 10 for 100.
        let seen = view.over(550 * MS, start + 600 * MS).server.unwrap();
        assert_eq!(seen.samples, 3);
        assert!(close(seen.lock, (4.0 * 350.0 + 10.0 * 100.0) / 550.0), "{seen:?}");
        assert!(close(seen.processor, 1.0), "{seen:?}");
        let end = view.over(100 * MS, start + 500 * MS).server.unwrap();
        assert!(close(end.lock, 0.0), "a sample at the very end: {end:?}");
        assert_eq!(view.over(10 * MS, start + 600 * MS).server, None);
    }

    #[test]
    fn locks_that_were_seen_long_ago_are_not_told() {
        let (view, start) = (ServerSamples::new(2), Instant::now());
        let locks = LockObservation { locks_held: 3, ..LockObservation::default() };
        view.add_locks(start, locks, 100 * MS);
        let told = |interval, now| view.over(interval, now).locks;
        assert_eq!(told(100 * MS, start + 1_900 * MS), Some(locks));
        assert_eq!(told(100 * MS, start + 2_100 * MS), None);
        assert_eq!(told(3_000 * MS, start + 2_100 * MS), Some(locks), "within the interval");
        view.add_locks(start, locks, 2_000 * MS);
        assert_eq!(told(100 * MS, start + 2_100 * MS), Some(locks), "the next look is to come");
        view.lost();
        assert_eq!(told(3_000 * MS, start), None);
    }

    #[test]
    fn locks_are_means_of_the_looks_in_the_interval() {
        let (view, start) = (ServerSamples::new(2), Instant::now());
        for (at, held, running, blocked) in [(0, 900, 900, 9), (200, 16, 0, 2), (300, 15, 15, 0)] {
            let locks = LockObservation {
                mature_blocked: blocked,
                locks_held: held,
                locks_held_by_running: running,
                ..LockObservation::default()
            };
            view.add_locks(start + at * MS, locks, 100 * MS);
        }
        let seen = view.over(300 * MS, start + 400 * MS).locks.unwrap();
        assert_eq!((seen.locks_held, seen.locks_held_by_running, seen.mature_blocked), (16, 8, 1));
        let last = view.over(50 * MS, start + 400 * MS).locks.unwrap();
        assert_eq!((last.locks_held, last.mature_blocked), (15, 0), "none in the interval");
    }

    #[test]
    fn no_number_of_samples_takes_more_room() {
        let (view, start) = (ServerSamples::new(2), Instant::now());
        for at in 0..10_000 {
            view.add(start + at * MS, Activity::default(), MS, 0.0);
        }
        let watched = view.watched(start + 10_000 * MS);
        assert_eq!((watched.sampled, watched.is_up), (10_000, true));
        assert_eq!(view.lock().samples.len(), SAMPLES_MAX);
        assert_eq!(watched.bottleneck, Some(Bottleneck::Nothing));
    }
}
