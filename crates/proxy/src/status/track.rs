//! The last minutes of a server: what each second was like, and every decision.
//!
//! The control thread writes here at the end of each control interval, whether somebody looks or
//! not: a page that is opened shows what has been. Memory is bounded: [`SECONDS_MAX`] seconds and
//! [`DECISIONS_MAX`] decisions.
//!
//! A controller decides up to ten times a second, and most decisions change nothing. So a decision
//! is an entry of its own only if the limit or the rule is another one; otherwise it is counted in
//! the entry before. `washout`, the wait for the end of a transition, is a part of the move before
//! it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tidegate_control::CurveMeasurement;
use tidegate_control::{ClassObservation, Decision, Observation};

use super::{ClassSecond, DecisionEntry, HistorySecond, MeasuredPoint};
use crate::slots::ServerIndex;

/// Seconds that are kept.
pub(crate) const SECONDS_MAX: usize = 300;

/// Decisions that are kept.
pub(crate) const DECISIONS_MAX: usize = 200;

/// The length of a second.
const SECOND: Duration = Duration::from_secs(1);

/// An interval that is begun anew at each tick is younger than this.
const VOID: Duration = Duration::from_millis(100);

/// Returns a moment on the wall clock in milliseconds since 1970.
pub(super) fn unix_ms(moment: SystemTime) -> u64 {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a number with three decimals, which are enough to look at.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// Up to where a listener knows the history and the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) server: ServerIndex,
    seconds: u64,
    decisions: u64,
}

impl Cursor {
    /// Returns that of a listener which knows nothing.
    pub(crate) fn start(server: ServerIndex) -> Cursor {
        Cursor { server, seconds: 0, decisions: 0 }
    }
}

/// Sums of a class over a second.
#[derive(Clone, Copy, Debug, Default)]
struct OpenClass {
    completions: u64,
    queue: (f64, f64),
    database: (f64, f64),
}

/// A second that has not ended.
#[derive(Clone, Debug)]
struct OpenSecond {
    began: Instant,
    /// Seconds that were observed.
    observed_s: f64,
    limit: u32,
    completions: u64,
    failures: u64,
    running_s: f64,
    waiting_s: f64,
    classes: Vec<OpenClass>,
}

impl OpenSecond {
    fn new(now: Instant, limit: u32, classes: usize) -> OpenSecond {
        OpenSecond {
            began: now,
            observed_s: 0.0,
            limit,
            completions: 0,
            failures: 0,
            running_s: 0.0,
            waiting_s: 0.0,
            classes: vec![OpenClass::default(); classes],
        }
    }

    fn add(&mut self, seen: &Observation, limit: u32) {
        let seconds = seen.interval.as_secs_f64();
        self.observed_s += seconds;
        self.limit = limit;
        self.completions += seen.completions;
        self.failures += seen.failures;
        self.running_s += seconds * seen.running_mean;
        self.waiting_s += seconds * (seen.concurrency_mean - seen.running_mean).max(0.0);
        self.classes.resize(seen.classes.len(), OpenClass::default());
        for (class, ClassObservation { completions, in_queue, in_database, .. }) in
            self.classes.iter_mut().zip(&seen.classes)
        {
            class.completions += completions;
            for (sums, timing) in [(&mut class.queue, in_queue), (&mut class.database, in_database)]
            {
                let count = timing.count as f64;
                *sums = (sums.0 + count, sums.1 + count * timing.mean_s);
            }
        }
    }

    fn ended(&self, at_ms: u64) -> HistorySecond {
        let per_second = |sum: f64| {
            if self.observed_s > 0.0 { rounded(sum / self.observed_s) } else { 0.0 }
        };
        let mean_ms =
            |(count, sum_s): (f64, f64)| (count > 0.0).then(|| rounded(sum_s / count * 1e3));
        let classes = self.classes.iter().map(|class| ClassSecond {
            tps: per_second(class.completions as f64),
            queue_ms: mean_ms(class.queue),
            database_ms: mean_ms(class.database),
        });
        HistorySecond {
            at_ms,
            limit: self.limit,
            tps: per_second(self.completions as f64),
            failed_tps: per_second(self.failures as f64),
            running: per_second(self.running_s),
            waiting: per_second(self.waiting_s),
            classes: classes.collect(),
        }
    }
}

#[derive(Debug)]
struct TrackState {
    open: OpenSecond,
    seconds: VecDeque<HistorySecond>,
    seconds_ended: u64,
    decisions: VecDeque<DecisionEntry>,
    decisions_made: u64,
    measurements: Vec<MeasuredPoint>,
    measured_at: Instant,
}

/// The last minutes of a server.
#[derive(Debug)]
pub(crate) struct Track {
    state: Mutex<TrackState>,
    /// One moment on both clocks.
    origin: (Instant, SystemTime),
}

/// What a track holds, or what of it is new.
#[derive(Clone, Debug)]
pub(crate) struct Tracked {
    pub(crate) seconds: Vec<HistorySecond>,
    pub(crate) decisions: Vec<DecisionEntry>,
    pub(crate) measurements: Vec<MeasuredPoint>,
    /// Up to where this goes.
    pub(crate) cursor: Cursor,
}

impl Track {
    /// Begins at a moment, with a limit.
    pub(crate) fn new(now: Instant, limit: u32) -> Track {
        let state = TrackState {
            open: OpenSecond::new(now, limit, 0),
            seconds: VecDeque::new(),
            seconds_ended: 0,
            decisions: VecDeque::new(),
            decisions_made: 0,
            measurements: Vec::new(),
            measured_at: now,
        };
        Track { state: Mutex::new(state), origin: (now, SystemTime::now()) }
    }

    fn lock(&self) -> MutexGuard<'_, TrackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since 1970.
    fn at_ms(&self, now: Instant) -> u64 {
        unix_ms(self.origin.1 + now.saturating_duration_since(self.origin.0))
    }

    /// Takes a control interval and what was decided at its end. `measurements` are asked for once
    /// a second.
    pub(crate) fn add(
        &self,
        controller: &str,
        seen: &Observation,
        decision: &Decision,
        measurements: impl FnOnce() -> Vec<CurveMeasurement>,
        now: Instant,
    ) {
        let at_ms = self.at_ms(now);
        let mut state = self.lock();
        state.decide(controller, seen, decision, at_ms);
        state.open.add(seen, decision.limit.get());
        state.end_second(now, at_ms);
        drop(state);
        self.measure(measurements, now);
    }

    fn measure(&self, measurements: impl FnOnce() -> Vec<CurveMeasurement>, now: Instant) {
        if now.saturating_duration_since(self.lock().measured_at) < SECOND {
            return;
        }
        let measured = measurements().into_iter().map(|it| MeasuredPoint {
            mpl: rounded(it.mpl),
            tps: rounded(it.throughput_tps),
            age_s: it.age_s,
            seconds: rounded(it.seconds),
        });
        let measured = measured.collect();
        let mut state = self.lock();
        state.measurements = measured;
        state.measured_at = now;
    }

    /// Lets time pass in which no control interval ended. `interval` is how long the present one
    /// has lasted: one in which nothing runs begins anew all the time.
    pub(crate) fn pass(&self, interval: impl FnOnce() -> Duration, now: Instant) {
        let mut state = self.lock();
        let is_silent = state.open.observed_s == 0.0;
        let lasted = now.saturating_duration_since(state.open.began);
        if is_silent && lasted >= SECOND + VOID && interval() < VOID {
            let at_ms = self.at_ms(now);
            state.end_second(now, at_ms);
        }
    }

    /// Returns the last decision.
    pub(crate) fn last(&self) -> Option<DecisionEntry> {
        self.lock().decisions.back().cloned()
    }

    /// Returns what is new since `cursor`; everything if there is none.
    pub(crate) fn since(
        &self,
        cursor: Option<Cursor>,
        server: ServerIndex,
        now: Instant,
    ) -> Tracked {
        let state = self.lock();
        let known = cursor.unwrap_or(Cursor::start(server));
        let first = state.seconds_ended - state.seconds.len() as u64;
        let skipped = usize::try_from(known.seconds.saturating_sub(first)).unwrap_or(usize::MAX);
        let passed_s = now.saturating_duration_since(state.measured_at).as_secs_f64();
        let aged = |it: &MeasuredPoint| MeasuredPoint {
            age_s: rounded(it.age_s + passed_s),
            ..it.clone()
        };
        // The last one that is known may have been repeated.
        let is_new = |it: &&DecisionEntry| cursor.is_none() || it.id >= known.decisions;
        Tracked {
            seconds: state.seconds.iter().skip(skipped).cloned().collect(),
            decisions: state.decisions.iter().filter(is_new).cloned().collect(),
            measurements: state.measurements.iter().map(aged).collect(),
            cursor: Cursor {
                server,
                seconds: state.seconds_ended,
                decisions: state.decisions_made,
            },
        }
    }
}

impl TrackState {
    fn decide(&mut self, controller: &str, seen: &Observation, decision: &Decision, at_ms: u64) {
        let (rule, limit) = (decision.reason.kind(), decision.limit.get());
        let (sentence, tps) = (decision.reason.to_string(), rounded(seen.throughput_tps()));
        if let Some(last) = self.decisions.back_mut()
            && last.limit == limit
            && last.controller == controller
            && (last.rule == rule || rule == "washout")
        {
            last.repeats += 1;
            (last.until_ms, last.tps) = (at_ms, tps);
            if last.rule == rule {
                last.sentence = sentence;
            }
            return;
        }
        self.decisions_made += 1;
        if self.decisions.len() >= DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(DecisionEntry {
            id: self.decisions_made,
            at_ms,
            until_ms: at_ms,
            repeats: 1,
            from: seen.limit.get(),
            limit,
            controller: controller.to_owned(),
            rule: rule.to_owned(),
            sentence,
            tps,
        });
    }

    fn end_second(&mut self, now: Instant, at_ms: u64) {
        if now.saturating_duration_since(self.open.began) < SECOND {
            return;
        }
        if self.seconds.len() >= SECONDS_MAX {
            self.seconds.pop_front();
        }
        self.seconds.push_back(self.open.ended(at_ms));
        self.seconds_ended += 1;
        self.open = OpenSecond::new(now, self.open.limit, self.open.classes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_control::{Mpl, Reason, Timing};

    const SERVER: ServerIndex = ServerIndex(0);

    fn seen(tps: u64, limit: u32, interval: Duration) -> Observation {
        let completions = tps * u64::try_from(interval.as_millis()).unwrap() / 1000;
        let timing = Timing { count: completions, mean_s: 0.01, ..Timing::default() };
        let class =
            ClassObservation { completions, in_database: timing, ..ClassObservation::default() };
        Observation {
            completions,
            running_mean: 3.0,
            concurrency_mean: 5.0,
            classes: vec![class],
            ..Observation::empty(interval, Mpl::at_least_one(limit))
        }
    }

    fn decision(limit: u32, reason: Reason) -> Decision {
        Decision { limit: Mpl::at_least_one(limit), reason }
    }

    #[test]
    fn a_second_is_made_of_its_intervals_and_silence_is_shown() {
        let start = Instant::now();
        let track = Track::new(start, 4);
        let tick = Duration::from_millis(100);
        for count in 1..=10_u32 {
            let decided = decision(5, Reason::Fixed);
            track.add("fixed", &seen(1000, 5, tick), &decided, Vec::new, start + tick * count);
        }
        let Tracked { seconds, cursor, .. } = track.since(None, SERVER, start + tick * 10);
        let [second] = &*seconds else { panic!("{seconds:?}") };
        let numbers = [second.tps, second.running, second.waiting];
        assert_eq!((second.limit, numbers), (5, [1000.0, 3.0, 2.0]));
        assert_eq!(second.classes[0].database_ms, Some(10.0));
        assert_eq!(second.classes[0].queue_ms, None);
        // An interval that lasts is no silence.
        let later = start + Duration::from_secs(4);
        track.pass(|| Duration::from_secs(3), later);
        assert!(track.since(Some(cursor), SERVER, later).seconds.is_empty());
        track.pass(|| Duration::ZERO, later);
        let silent = track.since(Some(cursor), SERVER, later).seconds;
        assert_eq!(silent.iter().map(|it| it.tps).collect::<Vec<_>>(), [0.0]);
    }

    #[test]
    fn decisions_that_change_nothing_are_counted_and_what_is_new_is_told() {
        let start = Instant::now();
        let track = Track::new(start, 4);
        let add = |limit, reason, at_s| {
            let now = start + Duration::from_secs(at_s);
            let second = seen(10, 4, Duration::from_secs(1));
            track.add("c", &second, &decision(limit, reason), Vec::new, now);
        };
        add(4, Reason::First, 1);
        add(4, Reason::First, 2);
        let Tracked { decisions, cursor, .. } = track.since(None, SERVER, start);
        assert_eq!(decisions.iter().map(|it| it.repeats).collect::<Vec<_>>(), [2]);
        add(4, Reason::First, 3);
        add(5, Reason::First, 4);
        let new = track.since(Some(cursor), SERVER, start).decisions;
        let told: Vec<_> = new.iter().map(|it| (it.id, it.repeats, it.limit)).collect();
        assert_eq!(told, [(1, 3, 4), (2, 1, 5)]);
    }

    #[test]
    fn memory_is_bounded() {
        let start = Instant::now();
        let track = Track::new(start, 4);
        for count in 1..=2 * u64::try_from(SECONDS_MAX).unwrap() {
            let now = start + Duration::from_secs(count);
            let limit = u32::try_from(count).unwrap();
            let second = seen(10, 4, Duration::from_secs(1));
            track.add("c", &second, &decision(limit, Reason::Fixed), Vec::new, now);
        }
        let Tracked { seconds, decisions, .. } = track.since(None, SERVER, start);
        assert_eq!((seconds.len(), decisions.len()), (SECONDS_MAX, DECISIONS_MAX));
        let last = u64::try_from(2 * SECONDS_MAX).unwrap();
        assert_eq!(decisions.last().unwrap().id, last);
        // A listener that comes back late gets what there is.
        let old = Cursor { server: SERVER, seconds: 3, decisions: 3 };
        let all = track.since(Some(old), SERVER, start);
        assert_eq!(all.seconds.len(), SECONDS_MAX);
    }
}
