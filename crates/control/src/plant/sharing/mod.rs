//! A plant whose transactions share the throughput of a curve, one by one, observed by ticks.
//!
//! The curve plant is a fluid that answers at once: what is let in now counts now. Real
//! transactions end a residence time after they began, so a limit shows what it is worth only when
//! the population that it made has been there for a while. This plant has that, and the counters of
//! every tick of 100 ms, whose noise is a tick's.
//!
//! # Mechanism
//! With n active transactions the database works at the rate X(n) of the phase's curve, shared
//! equally: each proceeds at X(n)/n (state-dependent processor sharing). A transaction has an
//! amount of work with mean 1 and ends when it has received as much. So n/X(n) is the mean time in
//! the database (Little), and with constant work and X(n) = n a transaction ends exactly a second
//! after it began, whatever the limit does meanwhile. All active transactions receive the same, so
//! one sum of what each has received is enough; the next to end is the least in a heap.
//!
//! Around that, per phase: the client's idle time inside a transaction, of which all but the first
//! 2 ms do not count against the limit, because a gate lends the permit of an idle client; think
//! time between transactions; arrivals of an open load; speed that varies by tick, wanders,
//! or is halved for a second; inertia (caches: the database does at most what the number it is
//! accustomed to gets); dead time; and overload, a loss of speed that builds up while too many are
//! active and goes away slowly.
//!
//! # Example
//! X(n) = 10·n up to 8, constant work: transactions of 100 ms. The limit goes from 4 to 8: for
//! 100 ms still 40 tps are seen, then 80. From 8 to 4: at once no transaction begins until four
//! have ended.
//!
//! # Limits
//! * Everything about locks is in the curve: a transaction that waits for another is not modelled.
//! * Dead time, inertia and overload are advanced every 10 ms.
//! * Clients are idle after the work, so nobody who was idle comes back to work above the limit.

mod phase;
mod random;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::{Curve, Simulated};
use crate::controller::whole;
use crate::{IntervalRule, Mpl, Observation, SplitMix64, Timing};

pub use phase::{Overload, SharingClass, SharingError, SharingPhase};
pub use random::random_scenario;

/// Length of a tick, seconds.
pub(super) const TICK_S: f64 = 0.1;

/// Steps of a tick in which the slow parts of the state are constant.
const STEPS: u32 = 10;

/// Levels whose throughput is kept in a table.
const TABLE: u32 = 2_048;

/// Who arrives when so many are present is turned away.
const CROWD_MAX: usize = 200_000;

/// How long a client is idle before its permit is lent, seconds: as a proxy does it.
const LENT_AFTER_S: f64 = 0.002;

/// Transactions that may be inside, with those of idle clients.
const INSIDE_MAX: usize = 1_000;

/// More than this many leave only in an open load, from which all do.
const CROWD: u32 = u32::MAX / 2;

/// What one second of a run did, for its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    /// The geometric mean of the limits in force.
    pub limit: f64,
    /// Transactions that ended.
    pub completions: u64,
}

/// A time or an amount of work, ordered; none is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Ordered) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Ordered) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// What ends at a time by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TimedEvent {
    /// A client has thought, and asks for a transaction.
    Asks,
    /// A transaction has been idle for as long as a permit counts; how long it still is, and when
    /// it began.
    Lent(Ordered, Ordered),
    /// A transaction was idle for as long as it is, and its permit counted since this time,
    /// without a break.
    Ends(Ordered),
    /// The same of one whose permit was lent, and had counted for so long.
    EndsLent(Ordered),
}

/// Counters of an interval.
#[derive(Clone, Debug, Default)]
struct IntervalCounters {
    seconds: f64,
    running_s: f64,
    lent_s: f64,
    present_s: f64,
    waiting_s: f64,
    peak: usize,
    in_database_s: Vec<f64>,
    in_queue_s: Vec<f64>,
}

/// A simulated database whose transactions share the throughput of a curve.
#[derive(Clone, Debug)]
pub struct SharingPlant {
    phases: Vec<SharingPhase>,
    phase: usize,
    phase_ends_s: f64,
    random: SplitMix64,
    now_s: f64,
    /// What each active transaction has received since the beginning.
    received: f64,
    /// Active transactions: what `received` is when each ends, how long it is idle then, and when
    /// it began.
    active: BinaryHeap<Reverse<(Ordered, Ordered, Ordered)>>,
    /// Idle transactions that count.
    idle: u32,
    /// Idle transactions that do not count.
    lent: u32,
    timed: BinaryHeap<Reverse<(Ordered, TimedEvent)>>,
    /// When each waiting transaction asked.
    waiting: VecDeque<f64>,
    /// Clients that there are too many of since the phase changed.
    leaving: u32,
    next_arrival_s: f64,
    limit: u32,
    table: Vec<f64>,
    classes: Vec<SharingClass>,
    speed: f64,
    speed_until_s: f64,
    halved: bool,
    halved_until_s: f64,
    wandered: f64,
    accustomed: Option<f64>,
    overloaded: f64,
    history: VecDeque<f64>,
    counters: IntervalCounters,
    second: (f64, u32, u64),
    seconds: Vec<Second>,
}

impl SharingPlant {
    /// A plant at the beginning of the first of `phases`; the last goes on for ever. Without a
    /// phase, nothing ever completes. All randomness comes from `seed`.
    #[must_use]
    pub fn new(phases: &[SharingPhase], seed: u64) -> SharingPlant {
        let mut plant = SharingPlant {
            phases: phases.to_vec(),
            phase: 0,
            phase_ends_s: f64::INFINITY,
            random: SplitMix64::new(seed),
            now_s: 0.0,
            received: 0.0,
            active: BinaryHeap::new(),
            idle: 0,
            lent: 0,
            timed: BinaryHeap::new(),
            waiting: VecDeque::new(),
            leaving: 0,
            next_arrival_s: f64::INFINITY,
            limit: 1,
            table: vec![0.0],
            classes: Vec::new(),
            speed: 1.0,
            speed_until_s: 0.0,
            halved: false,
            halved_until_s: 0.0,
            wandered: 0.0,
            accustomed: None,
            overloaded: 0.0,
            history: VecDeque::new(),
            counters: IntervalCounters::default(),
            second: (0.0, 0, 0),
            seconds: Vec::new(),
        };
        plant.enter_phase(0);
        plant
    }

    fn enter_phase(&mut self, index: usize) {
        let Some(phase) = self.phases.get(index).cloned() else {
            return;
        };
        self.phase = index;
        let is_last = index + 1 == self.phases.len();
        self.phase_ends_s = if is_last { f64::INFINITY } else { self.now_s + phase.seconds };
        self.table = (0..TABLE).map(|level| phase.points.tps(f64::from(level))).collect();
        self.classes = phase.classes();
        self.next_arrival_s = f64::INFINITY;
        if self.leaving > CROWD {
            self.leaving = 0;
        }
        let thinking = self.timed.iter().filter(|event| event.0.1 == TimedEvent::Asks).count();
        let present = self.inside() + self.waiting.len() + thinking;
        let present = u32::try_from(present).unwrap_or(u32::MAX).saturating_sub(self.leaving);
        match (phase.clients, phase.arrivals_tps) {
            (Some(clients), _) => {
                let new = clients.saturating_sub(present);
                self.leaving += present.saturating_sub(clients);
                let kept = new.saturating_sub(self.leaving);
                self.leaving = self.leaving.saturating_sub(new);
                for _ in 0..kept {
                    self.think(phase.think_s);
                }
                self.dismiss_waiting();
            }
            (None, Some(tps)) => {
                self.leaving = u32::MAX;
                self.next_arrival_s = self.now_s + self.random.next_exponential() / tps;
            }
            (None, None) => {}
        }
    }

    /// Clients that are too many and only wait leave at once.
    fn dismiss_waiting(&mut self) {
        while self.leaving > 0 && self.waiting.pop_back().is_some() {
            self.leaving -= 1;
        }
    }

    /// Exchanges the curve, in this phase and in those after it: another arm is in force. Active
    /// transactions go on at its speed.
    pub fn set_points(&mut self, points: &Curve) {
        for phase in &mut self.phases {
            phase.points.clone_from(points);
        }
        self.table = (0..TABLE).map(|level| points.tps(f64::from(level))).collect();
    }

    /// A client thinks, and then asks.
    fn think(&mut self, mean_s: f64) {
        if mean_s > 0.0 {
            let at = self.now_s + mean_s * self.random.next_exponential();
            self.timed.push(Reverse((Ordered(at), TimedEvent::Asks)));
        } else {
            self.ask();
        }
    }

    fn ask(&mut self) {
        if self.waiting.len() < CROWD_MAX {
            self.waiting.push_back(self.now_s);
            self.admit();
        }
    }

    /// Transactions that count against the limit.
    fn counted(&self) -> usize {
        self.active.len() + self.idle as usize
    }

    /// Transactions inside, whether they count or not.
    fn inside(&self) -> usize {
        self.counted() + self.lent as usize
    }

    fn admit(&mut self) {
        let most = INSIDE_MAX.max(self.limit as usize);
        while self.counted() < self.limit as usize
            && self.inside() < most
            && let Some(since_s) = self.waiting.pop_front()
        {
            self.counters.in_queue_s.push(self.now_s - since_s);
            let class = self.draw_class();
            let work = class.demand * random::work(&mut self.random, class.spread);
            let idle_s = if class.idle_s > 0.0 && class.spread > 0.0 {
                class.idle_s * self.random.next_exponential()
            } else {
                class.idle_s
            };
            let ends = Ordered(self.received + work);
            self.active.push(Reverse((ends, Ordered(idle_s), Ordered(self.now_s))));
        }
        self.counters.peak = self.counters.peak.max(self.counted() + self.waiting.len());
    }

    fn draw_class(&mut self) -> SharingClass {
        let mut point = self.random.next_draw().value();
        for class in &self.classes {
            if point < class.share {
                return *class;
            }
            point -= class.share;
        }
        self.classes.last().copied().unwrap_or(SharingClass::USUAL)
    }

    /// A transaction gives its permit back, which counted for so long, and its client goes on.
    fn end(&mut self, counted_s: f64) {
        self.counters.in_database_s.push(counted_s);
        self.second.2 += 1;
        if self.leaving > 0 {
            self.leaving -= 1;
        } else {
            let think_s = self.phases.get(self.phase).map_or(0.0, |phase| phase.think_s);
            self.think(think_s);
        }
        self.admit();
    }

    /// Lets the slow parts of the state advance by a step, and gives the factor on the speed and
    /// the highest rate.
    fn advance_state(&mut self, step_s: f64) -> (f64, f64) {
        let Some(phase) = self.phases.get(self.phase) else {
            return (0.0, 0.0);
        };
        if self.now_s >= self.speed_until_s {
            self.speed = random::speed(&mut self.random, phase.noise);
            self.speed_until_s = self.now_s + phase.noise_s - 1e-9;
        }
        if phase.outliers > 0.0 && self.now_s >= self.halved_until_s {
            self.halved = self.random.next_chance(phase.outliers);
            self.halved_until_s = self.now_s + 1.0 - 1e-9;
        }
        let mut factor = if self.halved { self.speed / 2.0 } else { self.speed };
        if phase.wander > 0.0 {
            let kept = libm::exp(-step_s / phase.wander_s);
            let fresh = (1.0 - kept * kept).sqrt() * self.random.next_normal();
            self.wandered = kept * self.wandered + fresh;
            factor *= libm::exp(phase.wander * self.wandered - phase.wander * phase.wander / 2.0);
        }
        let inside = self.active.len().max(1) as f64;
        if let Some(overload) = phase.overload {
            let target = f64::from(u8::from(inside > f64::from(overload.above)));
            let rising = target > self.overloaded;
            let time_s = if rising { overload.builds_s } else { overload.recovers_s };
            self.overloaded += (target - self.overloaded) * (1.0 - libm::exp(-step_s / time_s));
            factor *= 1.0 - overload.loss * self.overloaded;
        }
        let mut highest = f64::INFINITY;
        if phase.inertia_s > 0.0 {
            let before = self.accustomed.unwrap_or(0.0);
            let now = before
                + (libm::log(inside) - before) * (1.0 - libm::exp(-step_s / phase.inertia_s));
            self.accustomed = Some(now);
            highest = phase.points.tps(libm::exp(now));
        }
        if phase.delay_s > 0.0 {
            self.history.push_back(inside);
            while self.history.len() as f64 * step_s > phase.delay_s {
                self.history.pop_front();
            }
            let then = self.history.front().copied().unwrap_or(inside);
            let wanted = phase.points.tps(then) * (inside / then).min(1.0);
            let now = phase.points.tps(inside).max(f64::MIN_POSITIVE);
            factor *= wanted / now;
        }
        (factor, highest)
    }

    fn curve_tps(&self, inside: usize) -> f64 {
        let tabled = self.table.get(inside).copied();
        tabled.unwrap_or_else(|| {
            let phase = self.phases.get(self.phase);
            phase.map_or(0.0, |phase| phase.points.tps(inside as f64))
        })
    }

    /// Lets events happen for a step.
    fn step(&mut self, step_s: f64) {
        let (factor, highest) = self.advance_state(step_s);
        let until_s = self.now_s + step_s;
        loop {
            let inside = self.active.len();
            let tps = self.curve_tps(inside).min(highest) * factor;
            let each = if inside > 0 { tps / inside as f64 } else { 0.0 };
            let ends_s = match self.active.peek() {
                Some(Reverse((ends, ..))) if each > 0.0 => {
                    self.now_s + (ends.0 - self.received).max(0.0) / each
                }
                _ => f64::INFINITY,
            };
            let timed_s = self.timed.peek().map_or(f64::INFINITY, |event| event.0.0.0);
            let next_s = ends_s.min(timed_s).min(self.next_arrival_s);
            let at_s = next_s.min(until_s).max(self.now_s);
            self.pass(at_s - self.now_s, each);
            self.now_s = at_s;
            if next_s >= until_s {
                break;
            }
            if ends_s <= next_s {
                self.finish_work();
            } else if timed_s <= next_s {
                self.timed_event();
            } else {
                let tps = self.phases.get(self.phase).and_then(|phase| phase.arrivals_tps);
                let gap_s = self.random.next_exponential() / tps.unwrap_or(1.0);
                self.next_arrival_s = self.now_s + gap_s;
                self.ask();
            }
        }
    }

    fn pass(&mut self, seconds: f64, each: f64) {
        self.received += seconds * each;
        let (running, waiting) = (self.counted() as f64, self.waiting.len() as f64);
        self.counters.seconds += seconds;
        self.counters.running_s += seconds * running;
        self.counters.lent_s += seconds * f64::from(self.lent);
        self.counters.present_s += seconds * (running + waiting);
        if waiting > 0.0 {
            self.counters.waiting_s += seconds;
        }
    }

    /// The next transaction to end has received its work.
    fn finish_work(&mut self) {
        let Some(Reverse((_, idle_s, begun_s))) = self.active.pop() else {
            return;
        };
        if idle_s.0 > 0.0 {
            self.idle += 1;
            let (after_s, what) = if idle_s.0 > LENT_AFTER_S {
                (LENT_AFTER_S, TimedEvent::Lent(Ordered(idle_s.0 - LENT_AFTER_S), begun_s))
            } else {
                (idle_s.0, TimedEvent::Ends(begun_s))
            };
            self.timed.push(Reverse((Ordered(self.now_s + after_s), what)));
        } else {
            self.end(self.now_s - begun_s.0);
        }
    }

    fn timed_event(&mut self) {
        match self.timed.pop() {
            Some(Reverse((_, TimedEvent::Asks))) if self.leaving > 0 => self.leaving -= 1,
            Some(Reverse((_, TimedEvent::Asks))) => self.ask(),
            Some(Reverse((_, TimedEvent::Lent(left_s, begun_s)))) => {
                (self.idle, self.lent) = (self.idle - 1, self.lent + 1);
                let counted_s = Ordered(self.now_s - begun_s.0);
                let at = Ordered(self.now_s + left_s.0);
                self.timed.push(Reverse((at, TimedEvent::EndsLent(counted_s))));
                self.admit();
            }
            Some(Reverse((_, TimedEvent::Ends(begun_s)))) => {
                self.idle -= 1;
                self.end(self.now_s - begun_s.0);
            }
            Some(Reverse((_, TimedEvent::EndsLent(counted_s)))) => {
                self.lent -= 1;
                self.end(counted_s.0);
            }
            None => {}
        }
    }

    fn tick(&mut self, limit: Mpl) {
        self.limit = limit.get();
        self.admit();
        if self.now_s + 1e-9 >= self.phase_ends_s {
            self.enter_phase(self.phase + 1);
        }
        for _ in 0..STEPS {
            self.step(TICK_S / f64::from(STEPS));
        }
        self.second.0 += libm::log(f64::from(self.limit));
        self.second.1 += 1;
        if self.second.1 == 10 {
            let (logs, ticks, completions) = std::mem::take(&mut self.second);
            self.seconds.push(Second { limit: libm::exp(logs / f64::from(ticks)), completions });
        }
    }

    fn observation(&mut self, limit: Mpl) -> Observation {
        let present = self.counted() + self.waiting.len();
        let fresh = IntervalCounters { peak: present, ..IntervalCounters::default() };
        let mut seen = std::mem::replace(&mut self.counters, fresh);
        let (in_database, in_queue) =
            (timing(&mut seen.in_database_s), timing(&mut seen.in_queue_s));
        let level = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Observation {
            running: level(self.counted()),
            concurrency: level(present),
            concurrency_peak: level(seen.peak),
            concurrency_mean: seen.present_s / seen.seconds,
            running_mean: seen.running_s / seen.seconds,
            idle: self.lent,
            idle_mean: seen.lent_s / seen.seconds,
            waiting_share: (seen.waiting_s / seen.seconds).min(1.0),
            completions: in_database.count,
            in_database,
            in_queue,
            ..Observation::empty(Duration::from_secs_f64(seen.seconds), limit)
        }
    }
}

impl Simulated for SharingPlant {
    fn interval(&mut self, limit: Mpl) -> Observation {
        self.tick(limit);
        self.observation(limit)
    }

    fn interval_by(&mut self, limit: Mpl, rule: IntervalRule) -> Observation {
        let mut ticks = 0_u32;
        loop {
            self.tick(limit);
            ticks += 1;
            let elapsed = Duration::from_millis(100) * ticks;
            let completions = self.counters.in_database_s.len() as u64;
            if rule.is_over(elapsed, completions) {
                return self.observation(limit);
            }
        }
    }

    fn fork(&self) -> Option<Box<dyn Simulated>> {
        Some(Box::new(self.clone()))
    }

    fn seconds(&self) -> &[Second] {
        &self.seconds
    }
}

/// What a list of durations amounts to.
fn timing(seconds: &mut [f64]) -> Timing {
    if seconds.is_empty() {
        return Timing::default();
    }
    seconds.sort_by(f64::total_cmp);
    let count = seconds.len() as f64;
    let mean_s = seconds.iter().sum::<f64>() / count;
    let at = |share: f64| {
        let index = whole((share * count).floor()) as usize;
        seconds.get(index.min(seconds.len() - 1)).copied().unwrap_or(0.0)
    };
    Timing {
        count: seconds.len() as u64,
        mean_s,
        variance_s2: seconds.iter().map(|value| (value - mean_s).powi(2)).sum::<f64>() / count,
        min_s: at(0.0),
        p50_s: at(0.5),
        p95_s: at(0.95),
        p99_s: at(0.99),
    }
}

#[cfg(test)]
mod tests;
