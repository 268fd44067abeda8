//! The paired comparison: a candidate limit against the incumbent, in short alternations.
//!
//! # Mechanism
//! The controller is told every 100 ms what happened, and chooses by itself how long it looks.
//!
//! * **Windows.** After a move of the limit nothing counts until the permits out fit the new limit
//!   and a part of what was begun before has ended (`settling`). Then a window lasts until it holds
//!   enough: 0.2 s where hundreds of transactions end in it, 0.4 of a residence time where they are
//!   slow. Transactions that all take about as long end in bursts; their throughput is taken from
//!   their times by Little's law.
//! * **Coarse search.** From 8, whatever was configured above that, in powers of two (of four while
//!   throughput grows in proportion) to both sides of the best, as far as the database drains
//!   again, but not beyond what the clients fill; then between the best and its neighbours
//!   ([`scan`]). Where throughput falls on both sides, what was found is put to use for 2 s before
//!   the levels beyond the fall are looked at, lest a second peak is missed. If the best is lower
//!   after a level beyond it was tried, that level has spoilt the database, and the search stops.
//! * **Comparison.** Base, candidate, base, candidate: each window of the candidate is compared
//!   with the base before and after it, which cancels what drifts. A sequential test
//!   (`crate::sequential_test`) that may be looked at at any time says when the candidate is
//!   better, less 0.03 for each factor of e that it is higher. It is given up when it is worse by a
//!   standard error: staying is free. The next candidate is half as far after a loss, and twice as
//!   far after a gain.
//! * **Freshness.** After a comparison on one side the next one there waits until what it lost is
//!   0.5 % of the throughput since, at most 15 s. Every fourth look goes twice as far; it may wait
//!   60 s. Some looks up take 3 s a window, because caches that warm show only then.
//! * **Memory.** Windows of the base far off its level, twice in a row, are a change at the same
//!   limit: the last limits held, twice and half are looked at, and the winner must beat the base
//!   before and after. After a fall to less than 40 % the coarse search begins again. A level that
//!   sinks slowly below the best ever held sends the limit back to below where that was, and makes
//!   windows longer for a while, because the short ones have misled ([`change`]).
//! * **Late answers.** Throughput that changes by half or more within 4 s of the coarse search
//!   answers moves of that search: it begins again with windows of 2 s at least, twice as long each
//!   time. A limit whose throughput sinks within 40 s, or below the best ever held, was too high
//!   from the beginning: two thirds of it is tried for 8 s, then two thirds of that, and again, as
//!   long as throughput does not fall in proportion. If one is better, what was above is left alone
//!   for 30 s, and twice as long each time.
//! * **Few completions.** Where a transaction alone takes more than 0.1 s, or fewer than 30 end in
//!   a second, pairs cost too much. A belief over shapes takes what each transaction has gone
//!   through ([`progress`], [`few`]).
//! * **Silence.** While some wait and nothing completes for 0.5 s, or four times as long as usual,
//!   the limit doubles every 0.3 s, up to 32.
//! * **Light load.** Nothing is learnt from windows in which the limit does not bind. While some
//!   wait all the same, a limit that was never shown to be of use grows by a quarter a window.
//!   Where clients think and no transaction waits, the limit may still be too high: a part of those
//!   inside is compared with an open limit from time to time, and has to gain 0.05.
//!
//! # Example
//! TPC-B on one branch with 512 clients. 8, 16, 4, 2 and 1 are measured in 0.3 s each; 2 is best.
//! It is held, and compared with 1 and 3; 2 s later 32 to 256 are tried until draining takes 0.6 s.
//! From then on 2 is held; 1 and 3 are compared with it for 0.9 s every 15 s.
//!
//! # Limits
//! * The error of the sequential test holds as far as windows are independent and their variances
//!   known; both are estimates.
//! * A database that answers seconds late misleads the first coarse search.
//! * Throughput counts transactions, whatever class they are of: a mix that gets lighter looks like
//!   a gain. A comparison that alternates is not fooled by it, the memory may be.

mod change;
mod few;
mod progress;
mod reason;
mod scan;
mod search;
mod settings;

use std::collections::VecDeque;
use std::time::Duration;

use crate::controller::{Bounds, Controller, Decision, whole};
use crate::sequential_test::{PairScale, SequentialTest};
use crate::settling::{SettlingWindow, Want, WindowSample};
use crate::{Draw, IntervalRule, Mpl, Observation, Reason, Setting};

pub use reason::PairedReason;
pub use settings::PairedSettings;

use progress::TransactionProgress;
use scan::{Scan, ScanStep};

/// What a limit has to gain over none, in ln X.
const OPEN_PRICE: f64 = 0.05;

/// The length of a window of a long look, seconds: what warms up shows in it.
const LONG_S: f64 = 3.0;

/// Time constant with which the least length of a window fades, seconds.
const PATIENCE_S: f64 = 40.0;

/// Throughput of a limit that changes so soon after it was chosen is a late answer to moves before,
/// seconds.
const LATE_S: f64 = 4.0;

/// The least such change, in ln X.
const LATE_LEAST: f64 = 0.7;

/// The longest wait for a late answer, seconds.
const PATIENCE_MOST_S: f64 = 8.0;

/// A limit whose throughput sinks so long after it was chosen may have been too high from the
/// beginning, seconds.
const SINKS_S: f64 = 40.0;

/// How long limits above one that has sunk are left alone, at first and at most, seconds.
const BAR_LEAST_S: f64 = 30.0;
const BAR_MOST_S: f64 = 300.0;

/// How long a limit that was better once is tried, seconds.
const RECALL_S: f64 = 8.0;

/// Steps to a neighbour, in ln N: the first, the least, the longest, and that of a far look.
const STEP: f64 = 0.35;
const STEP_LEAST: f64 = 0.1;
const STEP_MOST: f64 = 1.4;
const FAR: f64 = 0.7;

/// What the coarse search has found is put to use for so long before levels beyond a fall are
/// looked at, seconds.
const BEYOND_S: f64 = 2.0;

/// The first transactions to end are the short ones: their mean over the mean of all.
const FIRST_SHARE: f64 = 0.6;

/// The limit in force and the best known.
#[derive(Clone, Debug)]
struct Base {
    limit: u32,
    /// ln X, faded over some seconds, if it was measured.
    level: Option<f64>,
    /// Variance of a window's ln X about it.
    spread: f64,
    /// Whether a higher limit was found to be worse.
    is_proven: bool,
    /// Windows in a row that are off the level.
    off: u32,
    since_s: f64,
}

/// What is known of the comparisons on one side of the base.
#[derive(Clone, Copy, Debug)]
struct ComparisonSide {
    step: f64,
    due_s: f64,
    gap_s: f64,
    probes: u32,
    /// When a far look is due.
    far_s: f64,
    /// How much the last look lost, in ln X; below 0.
    loss: f64,
    /// Whether the least step was turned down.
    is_settled: bool,
}

impl ComparisonSide {
    fn fresh(now_s: f64) -> ComparisonSide {
        ComparisonSide {
            step: STEP,
            due_s: now_s,
            gap_s: 1.0,
            probes: 0,
            far_s: now_s,
            loss: 0.0,
            is_settled: false,
        }
    }
}

/// A comparison under way.
#[derive(Clone, Debug)]
struct Duel {
    candidate: u32,
    side: usize,
    before: WindowSample,
    looked: Option<WindowSample>,
    test: SequentialTest,
    spent_s: f64,
    /// Seconds of the incumbent's throughput that were lost.
    lost_s: f64,
    deepest: f64,
    /// Whether its windows are long.
    is_long: bool,
    /// The base is a limit that nobody reaches: the candidate has to show that limiting helps.
    is_open: bool,
}

/// After an alarm: limits that are looked at, one window each.
#[derive(Clone, Debug)]
struct AlarmCheck {
    left: Vec<u32>,
    best: Option<WindowSample>,
    before: WindowSample,
    change: f64,
}

#[derive(Clone, Debug)]
enum PairedTask {
    Scan(Scan),
    Settled,
    Duel(Duel),
    Check(AlarmCheck),
    Recall(Recall),
    /// Completions are few or slow: a belief over shapes decides.
    Few,
}

/// The best level ever held is much better than the present one: its limit is tried again.
#[derive(Clone, Copy, Debug)]
struct Recall {
    level: f64,
    until_s: f64,
    /// The best limit, if the present one is higher.
    sunk: Option<u32>,
    /// How many limits are tried, each lower than the last.
    tries: u32,
}

/// Limits that looked better at first and sank: they are left alone for a time.
#[derive(Clone, Copy, Debug)]
struct Bar {
    above: u32,
    until_s: f64,
    lasts_s: f64,
}

/// A controller that compares limits in pairs.
#[derive(Clone, Debug)]
pub struct PairedComparison {
    settings: PairedSettings,
    bounds: Bounds,
    start: Mpl,
    limit: u32,
    now_s: f64,
    window: SettlingWindow,
    task: PairedTask,
    base: Base,
    sides: [ComparisonSide; 2],
    has_scanned: bool,
    /// When the last coarse search ended.
    scanned_s: f64,
    /// The highest concurrency of each of the last seconds, and the present one with its age.
    peaks: VecDeque<u32>,
    peak: (u32, f64),
    /// Mean time in the database, seconds.
    residence_s: f64,
    /// The mean that it has where transactions do not disturb each other, by the first ones.
    shortest_s: Option<f64>,
    /// The first times in the database: their number and sum.
    first: (f64, f64),
    /// Variance of the speed of a tick, and the tick before.
    noise: f64,
    noise_weight: f64,
    tick: Option<(u32, f64)>,
    pair_scale: PairScale,
    /// Seconds without a completion while some waited.
    silent_s: f64,
    remembered: VecDeque<(u32, f64)>,
    /// The best limit held for some seconds since the last change, and its level.
    best: Option<(u32, f64)>,
    bar: Bar,
    /// A coarse search that paused after a fall, and when it goes on.
    beyond: Option<(Scan, f64)>,
    /// When the last alarm was, and how many there were shortly after each other.
    alarmed_s: f64,
    alarms: u32,
    progress: TransactionProgress,
    windows: u32,
    /// When the belief was last asked.
    decided_s: f64,
    /// The least length of a window: short ones have misled.
    patience_s: f64,
    reason: PairedReason,
}

impl PairedComparison {
    /// A controller for a place that was told nothing but bounds and a start.
    #[must_use]
    pub fn new(setting: &Setting, settings: PairedSettings) -> PairedComparison {
        let start = Mpl::at_least_one(setting.start.get().min(settings.cold));
        let start = setting.bounds.clamp(start);
        PairedComparison {
            settings,
            bounds: setting.bounds,
            start,
            limit: start.get(),
            now_s: 0.0,
            window: SettlingWindow::after_move(),
            task: PairedTask::Settled,
            base: Base {
                limit: start.get(),
                level: None,
                spread: 0.0,
                is_proven: false,
                off: 0,
                since_s: 0.0,
            },
            sides: [ComparisonSide::fresh(0.0); 2],
            has_scanned: false,
            scanned_s: f64::NEG_INFINITY,
            peaks: VecDeque::new(),
            peak: (0, 0.0),
            residence_s: 0.0,
            shortest_s: None,
            first: (0.0, 0.0),
            noise: 0.01,
            noise_weight: 0.5,
            tick: None,
            pair_scale: PairScale::default(),
            silent_s: 0.0,
            remembered: VecDeque::new(),
            best: None,
            bar: Bar { above: u32::MAX, until_s: f64::NEG_INFINITY, lasts_s: BAR_LEAST_S / 2.0 },
            beyond: None,
            alarmed_s: f64::NEG_INFINITY,
            alarms: 0,
            progress: TransactionProgress::default(),
            windows: 0,
            decided_s: 0.0,
            patience_s: 0.0,
            reason: PairedReason::Washout,
        }
    }

    /// The most that the clients fill.
    fn ceiling(&self) -> u32 {
        self.peaks.iter().copied().fold(self.peak.0, u32::max).max(1)
    }

    fn lowest(&self) -> u32 {
        self.bounds.min().get()
    }

    fn highest(&self) -> u32 {
        self.bounds.clamp(Mpl::at_least_one(self.ceiling())).get()
    }

    /// Where a cold start begins.
    fn cold(&self) -> u32 {
        self.settings.cold.min(self.highest())
    }

    /// Keeps count of what is needed whatever the task is.
    fn take(&mut self, seen: &Observation) {
        let seconds = seen.interval.as_secs_f64();
        self.now_s += seconds;
        self.peak.0 = self.peak.0.max(seen.concurrency_peak);
        self.peak.1 += seconds;
        if self.peak.1 >= 1.0 {
            self.peaks.push_back(self.peak.0);
            self.peak = (0, 0.0);
            while self.peaks.len() > 5 {
                self.peaks.pop_front();
            }
        }
        if seen.completions > 0 || seen.waiting_share < 0.5 {
            self.silent_s = 0.0;
        } else {
            self.silent_s += seconds;
        }
        let count = seen.in_database.count as f64;
        if count > 0.0 {
            let share = (count / f64::from(seen.limit.get()).max(4.0)).min(1.0);
            self.residence_s += share * (seen.in_database.mean_s - self.residence_s);
            if self.first.0 < f64::max(4.0, f64::from(seen.limit.get()) / 4.0) {
                self.first = (self.first.0 + count, self.first.1 + count * seen.in_database.mean_s);
                self.shortest_s = Some(self.first.1 / self.first.0 / FIRST_SHARE);
            }
        } else if self.shortest_s.is_none() {
            self.residence_s = self.residence_s.max(self.silent_s);
        }
        if self.shortest_s.is_some() && self.residence_s < 0.05 {
            self.progress = TransactionProgress::default();
        } else {
            self.progress.add(seen, self.residence_s);
        }
        self.take_noise(seen);
    }

    fn take_noise(&mut self, seen: &Observation) {
        let count = seen.completions as f64;
        let before = self.tick.replace((seen.limit.get(), count));
        let Some((limit, earlier)) = before else {
            return;
        };
        let mean = f64::midpoint(count, earlier);
        let is_usable = self.window.is_washed() && self.residence_s < 0.2 && mean >= 4.0;
        if limit == seen.limit.get() && is_usable {
            let square = (count - earlier) * (count - earlier) / 2.0;
            let excess = (square - mean) / (mean * mean);
            self.noise += self.noise_weight * (excess - self.noise);
            self.noise_weight = (self.noise_weight * 0.8).max(0.03);
        }
    }

    fn want(&self) -> Want {
        if matches!(self.task, PairedTask::Few) {
            return Want::NOW;
        }
        let is_scan = matches!(self.task, PairedTask::Scan(_));
        let is_long = matches!(&self.task, PairedTask::Duel(duel) if duel.is_long);
        let patience_s = if is_long { self.patience_s.max(LONG_S) } else { self.patience_s };
        let noisy = if self.noise > 0.02 { 0.4 } else { 0.2 };
        Want {
            seconds: f64::max(noisy - 0.01, (0.4 * self.residence_s).min(30.0)).max(patience_s),
            completions: if is_scan { 20.0 } else { 40.0 },
            longest_s: f64::max(4.0, 1.5 * self.residence_s).max(patience_s),
        }
    }

    fn move_to(&mut self, limit: u32) {
        let limit = self.bounds.clamp(Mpl::at_least_one(limit)).get();
        if limit == self.limit {
            self.window = self.window.next();
        } else {
            self.limit = limit;
            self.window = SettlingWindow::after_move();
        }
    }

    /// What follows from a tick.
    fn react(&mut self, draw: Draw) -> PairedReason {
        if let Some(reason) = self.relieve_silence() {
            return reason;
        }
        if !self.has_scanned && self.limit < self.cold() && self.now_s < 1.0 {
            self.move_to(self.cold());
            self.base.limit = self.limit;
            return PairedReason::Washout;
        }
        let noise = self.noise.max(0.0);
        if matches!(self.task, PairedTask::Few) && !self.few_is_due() {
            return self.reason;
        }
        let sample = self.window.sample(self.limit, self.want(), noise);
        let Some(sample) = sample.or_else(|| self.early(noise)) else {
            return if self.window.is_washed() { self.reason } else { PairedReason::Washout };
        };
        match std::mem::replace(&mut self.task, PairedTask::Settled) {
            PairedTask::Scan(scan) => self.scan(scan, &sample),
            PairedTask::Settled => self.settled(&sample, draw),
            PairedTask::Duel(duel) => self.duel(duel, sample, draw),
            PairedTask::Check(check) => self.check(check, &sample),
            PairedTask::Recall(recall) => self.recall(recall, &sample),
            PairedTask::Few => self.few(&sample, draw),
        }
    }

    /// Nothing completes while some wait: more are let in, quickly and up to a bound.
    fn relieve_silence(&mut self) -> Option<PairedReason> {
        let bound = self.highest().min(self.settings.cold.saturating_mul(4));
        let patience_s = f64::max(0.5, 4.0 * self.shortest_s.unwrap_or(0.0));
        if self.silent_s < patience_s || self.limit >= bound {
            return None;
        }
        self.silent_s -= 0.3;
        let limit = self.limit.saturating_mul(2).min(bound);
        self.task = if matches!(self.task, PairedTask::Few) {
            PairedTask::Few
        } else {
            PairedTask::Settled
        };
        self.base.limit = limit;
        self.base.level = None;
        self.move_to(limit);
        Some(PairedReason::Starved)
    }

    /// A candidate that is far below the incumbent need not be looked at for longer.
    fn early(&self, noise: f64) -> Option<WindowSample> {
        let before = match &self.task {
            PairedTask::Duel(duel) if self.limit == duel.candidate => &duel.before,
            PairedTask::Check(check) if self.limit != self.base.limit => &check.before,
            _ => return None,
        };
        let expected = before.tps() * self.window.seconds();
        let is_far = expected >= 12.0 && self.window.completions() < 0.5 * expected;
        if is_far { self.window.sample(self.limit, Want::NOW, noise) } else { None }
    }

    fn scan(&mut self, mut scan: Scan, sample: &WindowSample) -> PairedReason {
        if !sample.is_saturated(self.ceiling()) && !scan.stops_at(sample) {
            self.base.limit = self.limit;
            self.has_scanned |= scan.best_tps() > 0.0;
            return self.settle(PairedReason::NotBinding);
        }
        if scan.best_tps() < 30.0 && self.is_slow(sample) {
            return self.few(sample, Draw::from_bits(u64::MAX));
        }
        let bounds = (self.lowest(), self.highest());
        match scan.next(sample, self.residence_s, self.knee(sample), bounds) {
            ScanStep::Measure(limit) => {
                self.move_to(limit);
                let best_tps = scan.best_tps();
                self.task = PairedTask::Scan(scan);
                PairedReason::Scan { best_tps }
            }
            ScanStep::Spoilt(limit) => {
                self.has_scanned = true;
                self.patience_s = f64::max(self.patience_s, 2.0);
                self.base = Base { limit, level: None, since_s: self.now_s, ..self.base.clone() };
                self.sides = [ComparisonSide::fresh(self.now_s + 6.0); 2];
                self.settle(PairedReason::Adopt { gain: 0.0, error: 0.0 })
            }
            ScanStep::Done(limit) if scan.was_in_vain(limit) => {
                self.base.is_proven = true;
                self.scanned_s = self.now_s;
                self.settle(PairedReason::Hold { tps: scan.best_tps() })
            }
            ScanStep::Done(limit) => {
                self.has_scanned = true;
                self.scanned_s = self.now_s;
                self.base = Base {
                    limit,
                    level: scan.ln_x(limit),
                    spread: 0.0,
                    is_proven: scan.is_proven(limit),
                    off: 0,
                    since_s: self.now_s,
                };
                self.sides = [ComparisonSide::fresh(self.now_s); 2];
                self.beyond = scan.is_paused().then_some((scan, self.now_s + BEYOND_S));
                self.settle(PairedReason::Adopt { gain: 0.0, error: 0.0 })
            }
        }
    }

    /// The coarse search goes on beyond a fall: there may be a second peak.
    fn scan_beyond(&mut self) -> Option<PairedReason> {
        let (scan, _) = self.beyond.take_if(|(_, due_s)| *due_s <= self.now_s)?;
        let (limit, level) = (self.base.limit, self.base.level?);
        let (scan, next) = scan.resume(limit, level, self.highest())?;
        self.move_to(next);
        let best_tps = scan.best_tps();
        self.task = PairedTask::Scan(scan);
        Some(PairedReason::Scan { best_tps })
    }

    /// Where the bounds of throughput cross: below it each transaction adds its own throughput,
    /// above it the time in the database grows (Denning and Buzen, 1978).
    fn knee(&self, sample: &WindowSample) -> u32 {
        whole((sample.tps() * self.shortest_s.unwrap_or(0.0)).round())
    }

    fn settle(&mut self, reason: PairedReason) -> PairedReason {
        self.task = PairedTask::Settled;
        self.move_to(self.base.limit);
        reason
    }

    /// Takes a window at the base; the change of throughput, if it is off its level twice.
    fn take_base(&mut self, sample: &WindowSample) -> Option<f64> {
        let Some(level) = self.base.level else {
            self.base.level = Some(sample.ln_x);
            return None;
        };
        let off = sample.ln_x - level;
        let spread = f64::max(self.base.spread, sample.variance);
        if off.abs() > f64::max(0.25, 4.0 * spread.sqrt()) {
            let is_plain = off.abs() > f64::max(0.9, 6.0 * spread.sqrt());
            self.base.off += if is_plain { 2 } else { 1 };
            return (self.base.off >= 2).then_some(off);
        }
        self.base.off = 0;
        let share = 1.0 - libm::exp(-(sample.seconds + sample.washed_s) / 2.0);
        self.base.level = Some(level + share * off);
        self.base.spread += 0.1 * (off * off - self.base.spread);
        None
    }

    /// The load does not reach the limit, or only now and then.
    fn not_binding(&mut self, sample: &WindowSample) -> PairedReason {
        (self.base.level, self.best) = (None, None);
        if sample.waiting > 0.05 && !self.base.is_proven && self.limit < self.highest() {
            self.base.limit = (self.limit + (self.limit / 4).max(1)).min(self.highest());
            self.move_to(self.base.limit);
            return PairedReason::Relieve;
        }
        // Two thirds of what is there, a third the next time, a sixth, and again.
        let part = f64::from(1 << (self.sides[0].probes % 3)) * 1.5;
        let candidate = whole((sample.running / part).floor());
        if self.has_scanned && candidate >= self.lowest() && self.sides[0].due_s <= self.now_s {
            return self.compare(sample, 0, candidate, true);
        }
        self.window = self.window.next();
        PairedReason::NotBinding
    }
}

impl Controller for PairedComparison {
    fn name(&self) -> &'static str {
        "paired-comparison"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn interval_rule(&self) -> IntervalRule {
        let tick = Duration::from_millis(100);
        IntervalRule { min: tick, min_completions: 0, max: tick }
    }

    fn decide(&mut self, seen: &Observation, draw: Draw) -> Decision {
        if !seen.is_sound() {
            let reason = Reason::Paired(PairedReason::Washout);
            return Decision { limit: Mpl::at_least_one(self.limit), reason };
        }
        self.take(seen);
        self.window.add(seen, self.residence_s, self.patience_s);
        self.reason = self.react(draw);
        Decision { limit: Mpl::at_least_one(self.limit), reason: Reason::Paired(self.reason) }
    }
}
