//! Scalability: fit a law of throughput to what was seen, look where it may be wrong, and stay at
//! the lowest limit that gives nearly the best throughput.
//!
//! # Mechanism
//! Each interval is a reading of the throughput curve: with so many inside, X transactions a
//! second. `law.rs` has the universal scalability law and its fit, `levels.rs` what is remembered
//! of each level and believed of all of them, `search.rs` where to go next. What is left is here:
//!
//! * **What a reading is.** Throughput shows what the database does at a level if somebody waited
//!   nearly all of the time, or if nearly all that were there were inside. Otherwise it shows the
//!   load, and the interval is left out. The level is the limit, or the mean number inside where
//!   that is further than 10 % from it, as after a fall, while the database drains. Such a reading
//!   over several levels counts for less.
//! * **Noise.** The variance of ln X is that of counting, 1/completions, and a part beyond, which
//!   is learnt from how far readings are from what was believed. Nothing completed counts as half a
//!   transaction.
//! * **Drift.** A database becomes slower or faster at all levels, by the hour or because of a
//!   neighbour. So a deviation at a level that is held shifts all levels by a share of it, 0.5 %
//!   over the noise.
//! * **Change.** A reading more than three deviations off where the curve is known is not believed:
//!   the limit stays for another. Three in a row below, or two above, or a cumulative sum of
//!   smaller ones, mean that the database is another one. Then everything is dropped, and the
//!   search begins anew.
//! * **Patrol.** A change may leave the throughput at the target as it was. So after 60 intervals
//!   at the target, or a drift of 8 %, a limit beside it is looked at, and there half as large a
//!   deviation is doubted.
//!
//! # Example
//! X(N) = 100·N/(1 + 0.05·(N − 1) + 0.001·N·(N − 1)) has its top at 31, with 904 a second. From 8,
//! and without noise: 8 gives 569; the limit goes up by 3 to 24 and 888, and to 69 and 759, which
//! is clearly less, as 8 is. So the top is between. After a dozen looks about it, which cost 2 % at
//! most but for two, the limit stays at 23, with 883: the lowest on the grid that is within 2 % of
//! the best, the best taken a little lower than it is believed to be (the test
//! `the_example_of_the_head`).
//!
//! # Where this leaves the law
//! The law is a model of a whole curve; databases keep to it only roughly. A fit alone, followed to
//! its top, settles wherever its errors lead. Here it says what to expect where nothing was seen,
//! and readings have the last word where there are some.
//!
//! * **A grid instead of the last readings.** A limit that is held for minutes would fill any
//!   window with readings of one level, and the fit would forget the others. Faded means for each
//!   level do not.
//! * **Weights** grow with throughput, and with the number of readings only up to what the law can
//!   be expected to explain. Otherwise the fit would follow the level that was held longest.
//! * **Random numbers** are used for patrols only.
//!
//! # Under a light load
//! An interval that shows the load leaves the limit where it is. If somebody waited for more than a
//! tenth of it, the limit rises by a quarter, as long as the database is believed to bear it: short
//! bursts wait for permits that nobody needs to be denied.
//!
//! # Limits
//! * A change that leaves the throughput at the target as it was is found by a patrol only, after
//!   minutes.
//! * With noise of 10 % levels that differ by less than about 5 % are not told apart.
//! * It climbs by a factor of 3: from 1 to 300 in six intervals, each of which must be known to
//!   within 30 %, which takes eleven completions.

mod law;
mod levels;
mod search;

use self::levels::{LevelBelief, LevelGrid, LevelPrediction, misfit};
use self::search::LimitSearch;
use crate::controller::{Concurrency, Controller};
use crate::parameters::{Allowed, settings};
use crate::reason::reasons;
use crate::{Bounds, Decision, Draw, Mpl, Observation, Reason};

settings! {
    /// The parameters of [`Scalability`].
    pub struct ScalabilitySettings;

    /// For a proxy with intervals of a second: chosen on simulated plants, random hills and
    /// switches between plants. Little depends on any one of them.
    pub const PROXY;

    loss: f64 = 0.02, "loss", "share", Allowed::Number(0.0, 0.9),
        "throughput that may be given up for a low limit";
    fade: f64 = 0.995, "fade", "share", Allowed::Number(0.5, 1.0),
        "weight of earlier observations after an interval";
    horizon: f64 = 40.0, "horizon", "intervals", Allowed::Number(1.0, 1e6),
        "time for which a better limit is expected to be useful";
    patrol: u32 = 60, "patrol", "intervals", Allowed::Whole(1, 1_000_000),
        "pause after which a limit beside the target is tried";
    reach: f64 = 3.0, "reach", "factor", Allowed::Number(1.01, 100.0),
        "how far the limit may exceed the levels seen";
    concurrency: Concurrency = Concurrency::Peak, "concurrency", "", Allowed::Moment,
        "which concurrency caps the limit";
}

reasons! {
    /// Why a limit was chosen.
    pub enum ScalabilityReason {
        /// The limit stays: throughput shows the load and not what the database can do.
        Light {
            /// Share of the interval in which somebody waited.
            waiting: f64,
        } = "light" => "hold: somebody waited {:.0} % of the time", waiting * 100.0;
        /// The limit rises: some wait under a light load, and the database can take more.
        Relieve {
            /// Share of the interval in which somebody waited.
            waiting: f64,
        } = "relieve" => "relieve: somebody waited {:.0} % of the time", waiting * 100.0;
        /// The limit stays: more are still inside than it allows.
        Drain {
            /// Transactions inside in the mean of the interval.
            running: f64,
        } = "drain" => "hold: {running:.0} still inside";
        /// The limit stays to be measured again: throughput was far from what was believed.
        Doubt {
            /// How far, in standard deviations.
            deviations: f64,
        } = "doubt" =>
            "doubt: throughput {deviations:+.1} deviations from what is believed, once more";
        /// The limit stays: too little completed to know its throughput yet.
        Measure = "measure" => "hold: too little completed yet";
        /// Everything known is dropped: the database is another one.
        Changed {
            /// How far throughput was from what was believed, in standard deviations.
            deviations: f64,
        } = "changed" => "changed: throughput {deviations:+.1} deviations from what was believed";
        /// The limit goes beyond all that was seen: the top may be there.
        Outward {
            /// The lowest level seen.
            low: Mpl,
            /// The highest level seen.
            high: Mpl,
        } = "outward" => "outward: the top may be outside {low} to {high}";
        /// The limit goes to a level that may be better than it is believed to be.
        Look {
            /// Throughput believed, as a share of the target's.
            share: f64,
            /// Its relative standard deviation.
            deviation: f64,
        } = "look" => "look: {:.0} % of the target's throughput, give or take {:.0} %",
            share * 100.0, deviation * 100.0;
        /// The limit goes beside the target, to see whether what is believed still holds.
        Patrol = "patrol" => "patrol: is the target still best?";
        /// The limit is the lowest that is believed to give nearly the best throughput.
        Target {
            /// Throughput believed, transactions per second.
            tps: f64,
        } = "target" => "target: {tps:.0} a second believed, the lowest near the best";
    }
}

/// The controller that fits a scalability law.
#[derive(Clone, Debug)]
pub struct Scalability {
    bounds: Bounds,
    start: Mpl,
    settings: ScalabilitySettings,
    levels: LevelGrid,
    noise: Noise,
    watch: ChangeWatch,
    /// Intervals in a row whose limit was the target.
    rested: u32,
    /// The limit is that of a patrol.
    is_patrol: bool,
    /// How far the curve has drifted since the last patrol, in ln X.
    drifted: f64,
}

/// Share of waiting from which an interval shows what the limit does, not what the load is.
const SATURATED_SHARE: f64 = 0.9;

/// Share of the limit or of the concurrency inside that does the same.
const STEADY_SHARE: f64 = 0.9;

/// Share of waiting under a light load from which the limit is raised.
const RELIEVED_SHARE: f64 = 0.1;

/// Relative distance from the limit from which on the level counts that was really inside.
const OFF_SHARE: f64 = 0.1;

/// Variance of a reading over several levels, as a share of their squared distance in ln N.
const MIXED: f64 = 0.25;

/// Transactions inside, over the limit, from which on a lowered limit is waited for.
const DRAINED: f64 = 1.5;

/// What nothing completed counts as, in transactions.
const NEARLY_ONE: f64 = 0.5;

/// Standard deviation of ln X at which a level counts as seen.
const SEEN: f64 = 0.3;

/// What share of the variance about the law must be explained for a level to be known.
const KNOWN_SHARE: f64 = 0.5;

/// Standard deviation by which the whole curve may drift in an interval, in ln X. Over that of the
/// noise it is the share of a deviation that is drift.
const DRIFT: f64 = 0.005;

/// Deviations that are far, and on a patrol, which is there to find a difference.
const FAR: f64 = 3.0;
const PATROL_FAR: f64 = 1.5;

/// Drift after which a patrol is due, in ln X.
const DRIFTED: f64 = 0.08;

/// What an interval told of the throughput curve.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LevelReading {
    /// Transactions inside.
    level: f64,
    /// The level is the limit, and not one on the way to it.
    is_held: bool,
    ln_tps: f64,
    /// Variance of `ln_tps` beside the noise: from counting completions, that of a Poisson process,
    /// and from the levels it went through.
    own: f64,
}

/// How a reading compares with what was believed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum News {
    Fits,
    Doubtful { deviations: f64 },
    Change { deviations: f64 },
}

impl Scalability {
    /// Searches within `bounds` from the limit nearest to `start`.
    #[must_use]
    pub fn new(bounds: Bounds, start: Mpl, settings: ScalabilitySettings) -> Scalability {
        Scalability {
            bounds,
            start: bounds.clamp(start),
            settings,
            levels: LevelGrid::new(),
            noise: Noise::new(),
            watch: ChangeWatch::default(),
            rested: 0,
            is_patrol: false,
            drifted: 0.0,
        }
    }

    /// Learns a reading, unless it is doubtful.
    fn learn(&mut self, reading: LevelReading) -> News {
        let news = match self.levels.believe(self.noise.variance) {
            Some(belief) => self.compare(reading, belief.at(reading.level)),
            None => News::Fits,
        };
        if let News::Change { .. } = news {
            self.levels = LevelGrid::new();
            self.watch = ChangeWatch::default();
            self.drifted = 0.0;
        }
        self.levels.fade(self.settings.fade);
        if !matches!(news, News::Doubtful { .. }) {
            self.levels.learn(reading.level, reading.ln_tps, reading.own);
        }
        news
    }

    /// Compares a reading with what was believed of its level, where that is known.
    fn compare(&mut self, reading: LevelReading, believed: LevelPrediction) -> News {
        if !reading.is_held || believed.variance > KNOWN_SHARE * misfit(reading.level) {
            return News::Fits;
        }
        let noise = self.noise.variance + reading.own;
        let sd = (believed.variance + noise).sqrt();
        let deviations = (reading.ln_tps - believed.mean) / sd;
        let news = self.watch.look(deviations, if self.is_patrol { PATROL_FAR } else { FAR });
        if news == News::Fits && believed.variance < noise {
            let off = reading.ln_tps - believed.mean;
            self.noise.learn(off * off - believed.variance - reading.own);
            let share = (DRIFT / self.noise.variance.sqrt()).min(0.5);
            self.levels.shift(share * off);
            self.drifted += share * off;
        }
        news
    }

    /// The next limit, from what is believed; none while the level is not yet known. The variance
    /// of its own that the last reading had is what the next may have.
    fn choose(
        &mut self,
        allowed: Bounds,
        own: f64,
        draw: Draw,
    ) -> Option<(Mpl, ScalabilityReason)> {
        let belief = self.levels.believe(self.noise.variance)?;
        let seen = self.levels.seen(self.noise.variance, SEEN * SEEN)?;
        let noise = self.noise.variance + own;
        let search =
            LimitSearch { belief: &belief, seen, noise, allowed, settings: &self.settings };
        let rested = std::mem::take(&mut self.rested);
        self.is_patrol = false;
        if let Some(limit) = search.outward() {
            let (low, high) = (levels::level_of(seen.0), levels::level_of(seen.1));
            return Some((limit, ScalabilityReason::Outward { low, high }));
        }
        let (target, look) = search.target();
        if let Some(look) = look {
            let share = libm::exp(look.believed.mean - target.believed.mean);
            let deviation = look.believed.variance.sqrt();
            return Some((look.limit, ScalabilityReason::Look { share, deviation }));
        }
        if rested >= self.settings.patrol || self.drifted.abs() > DRIFTED {
            self.is_patrol = true;
            self.drifted = 0.0;
            let limit = search.beside(target.limit, draw.value());
            return Some((limit, ScalabilityReason::Patrol));
        }
        self.rested = rested + 1;
        let tps = libm::exp(target.believed.mean);
        Some((target.limit, ScalabilityReason::Target { tps }))
    }

    /// The limit after an interval under a light load.
    fn relieve(
        &self,
        observation: &Observation,
        limit: Mpl,
        allowed: Bounds,
    ) -> (Mpl, ScalabilityReason) {
        let waiting = observation.waiting_share.max(0.0);
        let more = limit.get().saturating_add((limit.get() / 4).max(1));
        let more = allowed.clamp(Mpl::at_least_one(more));
        let bears = |belief: LevelBelief| {
            let at = |limit: Mpl| belief.at(f64::from(limit.get())).mean;
            at(more) >= at(limit) - self.settings.loss
        };
        if waiting > RELIEVED_SHARE && self.levels.believe(self.noise.variance).is_none_or(bears) {
            (more, ScalabilityReason::Relieve { waiting })
        } else {
            (limit, ScalabilityReason::Light { waiting })
        }
    }
}

impl Controller for Scalability {
    fn name(&self) -> &'static str {
        "scalability"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, draw: Draw) -> Decision {
        let seen = self.settings.concurrency.of(observation);
        let allowed = self.bounds.capped_at(seen);
        let limit = allowed.clamp(observation.limit);
        let reading = LevelReading::of(observation, limit);
        let news = reading.map(|reading| (reading, self.learn(reading)));
        if limit < observation.limit {
            return Decision { limit, reason: Reason::Concurrency { seen } };
        }
        if news.is_none() && observation.throughput_tps() <= 0.0 {
            return Decision { limit, reason: Reason::NothingCompleted };
        }
        let running = observation.running_mean;
        let (limit, reason) = match news {
            None => self.relieve(observation, limit, allowed),
            Some((_, News::Doubtful { deviations })) => {
                (limit, ScalabilityReason::Doubt { deviations })
            }
            Some(_) if running > DRAINED * f64::from(limit.get()) => {
                (limit, ScalabilityReason::Drain { running })
            }
            Some((reading, news)) => {
                let chosen = self.choose(allowed, reading.own, draw);
                let (limit, reason) = chosen.unwrap_or((limit, ScalabilityReason::Measure));
                match news {
                    News::Change { deviations } => {
                        (limit, ScalabilityReason::Changed { deviations })
                    }
                    News::Fits | News::Doubtful { .. } => (limit, reason),
                }
            }
        };
        Decision { limit, reason: Reason::Scalability(reason) }
    }
}

impl LevelReading {
    /// What an interval tells; nothing if its throughput is that of the load.
    fn of(observation: &Observation, limit: Mpl) -> Option<LevelReading> {
        let limit = f64::from(limit.get());
        let running = observation.running_mean;
        let most = limit.min(f64::from(observation.concurrency_peak));
        let is_steady =
            observation.waiting_share >= SATURATED_SHARE || running >= STEADY_SHARE * most;
        let seconds = observation.interval.as_secs_f64();
        if !(is_steady && running >= STEADY_SHARE && running.is_finite() && seconds > 0.0) {
            return None;
        }
        let completions = (observation.completions as f64).max(NEARLY_ONE);
        let is_held = (running / limit - 1.0).abs() <= OFF_SHARE;
        let level = if is_held { limit } else { running.clamp(1.0, f64::from(u32::MAX)) };
        let mixed = if is_held { 0.0 } else { MIXED * libm::log(running / limit).powi(2) };
        let (ln_tps, own) = (libm::log(completions / seconds), 1.0 / completions + mixed);
        Some(LevelReading { level, is_held, ln_tps, own })
    }
}

/// The variance of ln X from one interval to the next at one level, beside that of counting.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Noise {
    variance: f64,
    count: f64,
}

impl Noise {
    const LEAST: f64 = 1e-4;
    const MOST: f64 = 0.25;
    /// 8 %, as good as three readings: a guess that is too low closes a side of the search too
    /// soon.
    const FIRST: f64 = 0.0064;
    /// Readings that the variance is a mean of.
    const MEMORY: f64 = 30.0;

    fn new() -> Noise {
        Noise { variance: Noise::FIRST, count: 3.0 }
    }

    /// Learns a squared deviation; one that is more than three deviations counts as three.
    fn learn(&mut self, squared: f64) {
        self.count = (self.count + 1.0).min(Noise::MEMORY);
        let squared = squared.min(9.0 * self.variance);
        self.variance += (squared - self.variance) / self.count;
        self.variance = self.variance.clamp(Noise::LEAST, Noise::MOST);
    }
}

/// Tells a change of the database from noise, in two ways: several intervals in a row far off, or a
/// cumulative sum of smaller deviations (Page, 1954).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ChangeWatch {
    above: f64,
    below: f64,
    /// Intervals in a row far above what is believed, or below if negative.
    far: i32,
}

impl ChangeWatch {
    /// So many far intervals in a row are a change. A disturbance slows a database and does not
    /// speed it up, so fewer above are enough.
    const ABOVE_IN_A_ROW: i32 = 2;
    const BELOW_IN_A_ROW: i32 = 3;
    /// What of a deviation is noise.
    const SLACK: f64 = 0.5;
    /// A sum that is a change: false once in some 5,000 intervals.
    const ALARM: f64 = 7.0;

    /// Judges a deviation, of which more than `far` are far.
    fn look(&mut self, deviations: f64, far: f64) -> News {
        if deviations.abs() > far {
            let side = if deviations > 0.0 { 1 } else { -1 };
            self.far = if self.far * side > 0 { self.far + side } else { side };
            let is_change =
                self.far >= ChangeWatch::ABOVE_IN_A_ROW || self.far <= -ChangeWatch::BELOW_IN_A_ROW;
            return if is_change {
                News::Change { deviations }
            } else {
                News::Doubtful { deviations }
            };
        }
        self.far = 0;
        self.above = (self.above + deviations - ChangeWatch::SLACK).max(0.0);
        self.below = (self.below - deviations - ChangeWatch::SLACK).max(0.0);
        let is_change = self.above.max(self.below) > ChangeWatch::ALARM;
        if is_change { News::Change { deviations } } else { News::Fits }
    }
}

#[cfg(test)]
mod tests;
