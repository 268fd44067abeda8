//! Fits a scalability law with a retrograde term.
mod law;
mod levels;
mod search;

use std::fmt;

use self::levels::{Belief, Levels, Prediction, misfit};
use self::search::Search;
use crate::controller::{Concurrency, Controller};
use crate::{Bounds, Decision, Draw, Mpl, Observation, Reason};

/// The parameters of [`Scalability`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScalabilitySettings {
    /// Relative loss of throughput accepted for a lower limit.
    pub loss: f64,
    /// What is known after an interval, as a share of what was known before it; from 0 to 1.
    pub fade: f64,
    /// Intervals that a better limit is expected to be of use.
    pub horizon: f64,
    /// Intervals at the target after which a limit beside it is looked at.
    pub patrol: u32,
    /// Factor by which the limit goes beyond what was seen; above 1.
    pub reach: f64,
    /// Which concurrency caps the limit.
    pub concurrency: Concurrency,
}

impl ScalabilitySettings {
    /// For a proxy with intervals of a second: chosen on simulated plants, on random hills and
    /// switches between plants. The result hardly depends on any of them: within a factor of two it
    /// stays within half a per cent.
    pub const PROXY: ScalabilitySettings = ScalabilitySettings {
        loss: 0.02,
        fade: 0.995,
        horizon: 40.0,
        patrol: 40,
        reach: 3.0,
        concurrency: Concurrency::Peak,
    };
}

/// Why a limit was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScalabilityReason {
    /// The limit stays: throughput shows the load and not what the database can do.
    Light {
        /// Share of the interval in which somebody waited.
        waiting: f64,
    },
    /// The limit rises: some wait under a light load, and the database can take more.
    Relieve {
        /// Share of the interval in which somebody waited.
        waiting: f64,
    },
    /// The limit stays: more are still inside than it allows.
    Drain {
        /// Transactions inside in the mean of the interval.
        running: f64,
    },
    /// The limit stays to be measured again: throughput was far from what was believed.
    Doubt {
        /// How far, in standard deviations.
        deviations: f64,
    },
    /// The limit stays: too little completed to know its throughput yet.
    Measure,
    /// Everything known is dropped: the database is another one.
    Changed {
        /// How far throughput was from what was believed, in standard deviations.
        deviations: f64,
    },
    /// The limit goes beyond all that was seen: the top may be there.
    Outward {
        /// The lowest level seen.
        low: Mpl,
        /// The highest level seen.
        high: Mpl,
    },
    /// The limit goes to a level that may be better than it is believed to be.
    Look {
        /// Throughput believed, as a share of the target's.
        share: f64,
        /// Its relative standard deviation.
        deviation: f64,
    },
    /// The limit goes beside the target, to see whether what is believed still holds.
    Patrol,
    /// The limit is the lowest that is believed to give nearly the best throughput.
    Target {
        /// Throughput believed, transactions per second.
        tps: f64,
    },
}

impl ScalabilityReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            ScalabilityReason::Light { .. } => "light",
            ScalabilityReason::Relieve { .. } => "relieve",
            ScalabilityReason::Drain { .. } => "drain",
            ScalabilityReason::Doubt { .. } => "doubt",
            ScalabilityReason::Measure => "measure",
            ScalabilityReason::Changed { .. } => "changed",
            ScalabilityReason::Outward { .. } => "outward",
            ScalabilityReason::Look { .. } => "look",
            ScalabilityReason::Patrol => "patrol",
            ScalabilityReason::Target { .. } => "target",
        }
    }
}

impl fmt::Display for ScalabilityReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ScalabilityReason::Light { waiting } => {
                write!(formatter, "hold: somebody waited {:.0} % of the time", waiting * 100.0)
            }
            ScalabilityReason::Relieve { waiting } => {
                write!(formatter, "relieve: somebody waited {:.0} % of the time", waiting * 100.0)
            }
            ScalabilityReason::Drain { running } => {
                write!(formatter, "hold: {running:.0} still inside")
            }
            ScalabilityReason::Doubt { deviations } => write!(
                formatter,
                "doubt: throughput {deviations:+.1} deviations from what is believed, once more"
            ),
            ScalabilityReason::Measure => formatter.write_str("hold: too little completed yet"),
            ScalabilityReason::Changed { deviations } => write!(
                formatter,
                "changed: throughput {deviations:+.1} deviations from what was believed"
            ),
            ScalabilityReason::Outward { low, high } => {
                write!(formatter, "outward: the top may be outside {low} to {high}")
            }
            ScalabilityReason::Look { share, deviation } => write!(
                formatter,
                "look: {:.0} % of the target's throughput, give or take {:.0} %",
                share * 100.0,
                deviation * 100.0
            ),
            ScalabilityReason::Patrol => formatter.write_str("patrol: is the target still best?"),
            ScalabilityReason::Target { tps } => {
                write!(formatter, "target: {tps:.0} a second believed, the lowest near the best")
            }
        }
    }
}

/// The controller that fits a scalability law.
#[derive(Clone, Debug)]
pub struct Scalability {
    bounds: Bounds,
    start: Mpl,
    settings: ScalabilitySettings,
    levels: Levels,
    noise: Noise,
    watch: Watch,
    /// Intervals in a row whose limit was the target.
    rested: u32,
}

/// Share of waiting from which an interval shows what the limit does, not what the load is.
const SATURATED_SHARE: f64 = 0.9;

/// Share of the limit or of the concurrency inside that does the same.
const STEADY_SHARE: f64 = 0.9;

/// Share of waiting under a light load from which the limit is raised.
const RELIEVED_SHARE: f64 = 0.1;

/// Relative distance from the limit from which on the level counts that was really inside.
const OFF_SHARE: f64 = 0.1;

/// Transactions inside, over the limit, from which on a lowered limit is waited for.
const DRAINED: f64 = 1.5;

/// Standard deviation of ln X at which a level counts as seen.
const SEEN: f64 = 0.3;

/// What share of the variance about the law must be explained for a level to be known.
const KNOWN_SHARE: f64 = 0.5;

/// Standard deviation by which the whole curve may drift in an interval, in ln X.
const DRIFT: f64 = 0.005;

/// What an interval told of the throughput curve.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    /// Transactions inside.
    level: f64,
    /// The level is the limit, and not one on the way to it.
    is_held: bool,
    ln_tps: f64,
    /// Variance of `ln_tps` from counting completions: that of a Poisson process.
    counting: f64,
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
            levels: Levels::new(),
            noise: Noise::new(),
            watch: Watch::default(),
            rested: 0,
        }
    }

    /// Learns a reading, unless it is doubtful.
    fn learn(&mut self, reading: Reading) -> News {
        let news = match self.levels.believe() {
            Some(belief) => self.compare(reading, belief.at(reading.level)),
            None => News::Fits,
        };
        if let News::Change { .. } = news {
            self.levels = Levels::new();
            self.watch = Watch::default();
        }
        self.levels.fade(self.settings.fade);
        if !matches!(news, News::Doubtful { .. }) {
            let variance = self.noise.variance + reading.counting;
            self.levels.learn(reading.level, reading.ln_tps, 1.0 / variance);
        }
        news
    }

    /// Compares a reading with what was believed of its level, where that is known.
    fn compare(&mut self, reading: Reading, believed: Prediction) -> News {
        if !reading.is_held || believed.variance > KNOWN_SHARE * misfit(reading.level) {
            return News::Fits;
        }
        let noise = self.noise.variance + reading.counting;
        let sd = (believed.variance + noise).sqrt();
        let deviations = (reading.ln_tps - believed.mean) / sd;
        let news = self.watch.look(deviations);
        if news == News::Fits && believed.variance < noise {
            let off = reading.ln_tps - believed.mean;
            self.noise.learn(off * off - believed.variance - reading.counting);
            let share = (DRIFT / self.noise.variance.sqrt()).min(0.5);
            self.levels.shift(share * off);
        }
        news
    }

    /// The next limit, from what is believed.
    fn choose(
        &mut self,
        allowed: Bounds,
        counting: f64,
        draw: Draw,
    ) -> Option<(Mpl, ScalabilityReason)> {
        let belief = self.levels.believe()?;
        let seen = self.levels.seen(SEEN * SEEN)?;
        let noise = self.noise.variance + counting;
        let search = Search { belief: &belief, seen, noise, allowed, settings: &self.settings };
        let rested = std::mem::take(&mut self.rested);
        if let Some(limit) = search.outward() {
            let (low, high) = (levels::level_of(seen.0), levels::level_of(seen.1));
            return Some((limit, ScalabilityReason::Outward { low, high }));
        }
        let (target, look) = search.target();
        if let Some(look) = look {
            let share = (look.believed.mean - target.believed.mean).exp();
            let deviation = look.believed.variance.sqrt();
            return Some((look.limit, ScalabilityReason::Look { share, deviation }));
        }
        if rested >= self.settings.patrol {
            let limit = search.beside(target.limit, draw.value());
            return Some((limit, ScalabilityReason::Patrol));
        }
        self.rested = rested + 1;
        let tps = target.believed.mean.exp();
        Some((target.limit, ScalabilityReason::Target { tps }))
    }

    /// The limit after an interval under a light load.
    fn relieve(
        &self,
        observation: &Observation,
        limit: Mpl,
        allowed: Bounds,
    ) -> (Mpl, ScalabilityReason) {
        let waiting = observation.waiting_share;
        let more = limit.get().saturating_add((limit.get() / 4).max(1));
        let more = allowed.clamp(Mpl::at_least_one(more));
        let bears = |belief: Belief| {
            let at = |limit: Mpl| belief.at(f64::from(limit.get())).mean;
            at(more) >= at(limit) - self.settings.loss
        };
        if waiting > RELIEVED_SHARE && self.levels.believe().is_none_or(bears) {
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
        let reading = Reading::of(observation, limit);
        let news = reading.map(|reading| (reading, self.learn(reading)));
        if limit < observation.limit {
            return Decision { limit, reason: Reason::Concurrency { seen } };
        }
        if observation.throughput_tps() <= 0.0 {
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
                let chosen = self.choose(allowed, reading.counting, draw);
                let (limit, reason) = chosen.unwrap_or((limit, ScalabilityReason::Measure));
                match news {
                    News::Change { deviations } => {
                        (limit, ScalabilityReason::Changed { deviations })
                    }
                    _ => (limit, reason),
                }
            }
        };
        Decision { limit, reason: Reason::Scalability(reason) }
    }
}

impl Reading {
    /// What an interval tells; nothing if its throughput is that of the load.
    fn of(observation: &Observation, limit: Mpl) -> Option<Reading> {
        let limit = f64::from(limit.get());
        let running = observation.running_mean;
        let most = limit.min(f64::from(observation.concurrency_peak));
        let is_steady =
            observation.waiting_share >= SATURATED_SHARE || running >= STEADY_SHARE * most;
        let tps = observation.throughput_tps();
        if !(is_steady && tps > 0.0 && running.is_finite()) {
            return None;
        }
        let is_held = (running / limit - 1.0).abs() <= OFF_SHARE;
        let level = if is_held { limit } else { running.clamp(1.0, f64::from(u32::MAX)) };
        let counting = 1.0 / observation.completions as f64;
        Some(Reading { level, is_held, ln_tps: tps.ln(), counting })
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
    /// 5 %, as good as three intervals.
    const FIRST: f64 = 0.0064;

    fn new() -> Noise {
        Noise { variance: Noise::FIRST, count: 3.0 }
    }

    fn learn(&mut self, squared: f64) {
        self.count = (self.count + 1.0).min(30.0);
        let squared = squared.min(9.0 * self.variance);
        self.variance += (squared - self.variance) / self.count;
        self.variance = self.variance.clamp(Noise::LEAST, Noise::MOST);
    }
}

/// Tells a change of the database from noise, in two ways: several intervals in a row far off, or a
/// cumulative sum of smaller deviations (Page, 1954).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Watch {
    above: f64,
    below: f64,
    /// Intervals in a row far above what is believed, or below if negative.
    far: i32,
}

impl Watch {
    /// Deviations that are far.
    const FAR: f64 = 3.0;
    /// So many far intervals in a row are a change.
    const FAR_IN_A_ROW: u32 = 3;
    /// What of a deviation is noise.
    const SLACK: f64 = 0.5;
    /// A sum that is a change: false once in some 5,000 intervals.
    const ALARM: f64 = 7.0;

    fn look(&mut self, deviations: f64) -> News {
        if deviations.abs() > Watch::FAR {
            let side = if deviations > 0.0 { 1 } else { -1 };
            self.far = if self.far * side > 0 { self.far + side } else { side };
            let is_change = self.far.unsigned_abs() >= Watch::FAR_IN_A_ROW;
            return if is_change {
                News::Change { deviations }
            } else {
                News::Doubtful { deviations }
            };
        }
        self.far = 0;
        self.above = (self.above + deviations - Watch::SLACK).max(0.0);
        self.below = (self.below - deviations - Watch::SLACK).max(0.0);
        let is_change = self.above.max(self.below) > Watch::ALARM;
        if is_change { News::Change { deviations } } else { News::Fits }
    }
}
