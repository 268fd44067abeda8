//! The default controller: it believes in a throughput curve, as a Gaussian process over the
//! logarithm of the limit, and goes where that belief says that it pays.
//!
//! # Mechanism
//! Each control interval is one noisy measurement of ln X(N), the logarithm of throughput at the
//! limit N. Once per interval:
//!
//! 1. **Measure.** Throughput is counted in units of work, so that a changed mix of classes is not
//!    read as a changed database (`mix`). The noise of an interval is measured as half the squared
//!    difference of two intervals at one limit, and is never taken to be less than completions
//!    allow: the variance of the logarithm of a count n is at least about 1/(2n) here.
//! 2. **Compare.** The measurement is compared with what was expected of it. A single interval far
//!    off is looked at again, and a cumulative sum notices when the workload is another one
//!    (`change`). Then everything is doubted: half of the shape of the curve is kept as a guess.
//! 3. **Learn.** The belief, a mean and a covariance on a grid of at most 44 limits, takes the
//!    measurement in (`belief`). Before the first one it is the queueing model's curve, with slopes
//!    that may differ and are alike only for neighbouring limits: any shape can be learnt, a flat
//!    tail or two humps too, and what was measured says most about limits near by.
//! 4. **Choose.** The best known limit maximises ln X - p·ln N, which is the lowest limit that
//!    loses about p, unless a probe elsewhere is worth more than it costs (`probe`).
//!
//! # Example
//! PostgreSQL's measured TPC-B curve (`Curve::POSTGRES_TPCB`, best at 2), 1,000 clients, without
//! noise, started at 64: the first five limits are LIMITS. The test `the_example` runs it.
//!
//! # Where this leaves the literature
//! * Heiss and Wagner, and the auto-tuning study, fit a parabola to throughput itself; Gunther's
//!   law has three parameters. Both are wrong in shape somewhere: a peak at 2 followed by a slow
//!   fall to a twentieth at 1,000 fits neither. A Gaussian process has no shape, only smoothness.
//! * Their probes are random or constant steps. Here a probe is made where it is worth most, and
//!   none where nothing is to be learnt, so that a settled limit rests.
//! * The external-scheduling study moves from the model's value by small steps. Here the model is
//!   the prior mean, so that the first step may be long.
//!
//! # When the limit is not what holds throughput
//! While somebody waits nine tenths of the time the limit holds throughput, and the measurement is
//! of the limit. When all are inside and their number hardly changes, as with clients who come
//! back at once, the measurement is of their number. Otherwise the load holds throughput: nothing
//! is learnt, the limit stays, but goes up a step at a time if some wait, as far as the curve is not
//! believed to fall, and down to a quarter above the concurrency seen, because more permits would
//! do nothing. A lowered limit takes effect as transactions end; an interval that still had more
//! inside is a measurement of that number, and a poor one.
//!
//! # Limits
//! * A change that leaves throughput at the present limit as it was is not noticed; only the slow
//!   return of doubt (`shape_drift`) leads to a probe.
//! * Two workloads that take turns faster than some ten intervals are seen as one, or as noise.
//! * The classes must be told apart by the gate to be normalised. A burst of long transactions
//!   within one class counts as a change: the limit is probed anew, and again when the burst ends.
//! * Logarithm and exponential come from the platform's library: a record replays bit for bit
//!   with the same build, not on every machine there is.

mod belief;
mod change;
mod mix;
mod probe;

use std::fmt;

use crate::controller::{Concurrency, Controller, whole};
use crate::{Bounds, Decision, Draw, Mpl, Observation, Reason, Setting};

use belief::{Belief, Place};
use change::{ChangeDetector, Verdict};
use mix::Mix;
use probe::{Choice, Circumstances};

pub use belief::Prior;
pub use change::ChangeSettings;
pub use probe::ProbeSettings;

/// The parameters of [`GaussianProcess`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GaussianProcessSettings {
    /// What is believed before anything was observed.
    pub prior: Prior,
    /// How probes are chosen.
    pub probe: ProbeSettings,
    /// When the workload counts as changed.
    pub change: ChangeSettings,
    /// Share of the shape that is still believed in after a change.
    pub memory: f64,
    /// Standard deviation by which the level moves in an interval, in ln X.
    pub level_drift: f64,
    /// Share of the prior's variance that comes back in an interval.
    pub shape_drift: f64,
    /// How far the level of the best limit may move before the shape is doubted, in ln X.
    pub drift: f64,
    /// Share of the prior's variance that such a move brings back, for its square.
    pub drift_doubt: f64,
    /// Share of the prior's variance that another mix of classes brings back.
    pub mix_doubt: f64,
    /// Standard deviation of an interval's ln X, before it is measured.
    pub noise: f64,
}

impl GaussianProcessSettings {
    /// The parameters of the default controller.
    pub const DEFAULT: GaussianProcessSettings = GaussianProcessSettings {
        prior: Prior {
            others: 0.5,
            slope_sd: 0.6,
            slope_length: 1.5,
            contention: 0.6,
            roughness: 0.03,
            grain: 0.2,
            level_sd: 2.0,
        },
        probe: ProbeSettings {
            price: 0.05,
            loss: 0.06,
            horizon: 40.0,
            least_worth: 0.1,
            rise: 6.0,
        },
        change: ChangeSettings { slack: 0.75, threshold: 4.0, doubt: 5.0 },
        memory: 0.5,
        level_drift: 0.003,
        shape_drift: 0.000_1,
        drift: 0.08,
        drift_doubt: 5.0,
        mix_doubt: 0.5,
        noise: 0.05,
    };
}

/// The intervals of this share of waiting and more show what the limit does, not what the load is.
const SATURATED_SHARE: f64 = 0.9;

/// A limit counts as in force when no more than this share above it runs.
const DRAINED: f64 = 0.02;

/// Below this share of time with somebody waiting there is nothing to relieve.
const RELAXED_SHARE: f64 = 0.1;

/// More permits than this share of the concurrency seen would do nothing.
const HEADROOM: f64 = 1.25;

/// The default controller.
#[derive(Clone, Debug)]
pub struct GaussianProcess {
    bounds: Bounds,
    start: Mpl,
    settings: GaussianProcessSettings,
    belief: Belief,
    change: ChangeDetector,
    mix: Mix,
    /// Variance of an interval's ln X.
    noise: f64,
    /// The last interval's limit and ln X, when it was saturated.
    last: Option<(Mpl, f64)>,
    /// The highest level tried since the last change.
    tried: f64,
    /// The level of the best limit when the shape was last doubted.
    anchor: Option<f64>,
    /// Permits out at the end of the last interval.
    running: Option<u32>,
}

/// Why the default controller chose a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BeliefReason {
    /// The best limit known is in force.
    Hold {
        /// Relative standard deviation of what is believed about throughput there.
        deviation: f64,
    },
    /// Another limit is believed to be better.
    Better {
        /// Relative change of throughput expected.
        gain: f64,
    },
    /// Another limit is worth trying.
    Probe {
        /// Expected gain over the horizon, net of the cost, in intervals' throughputs.
        worth: f64,
    },
    /// One interval was far from what was expected: the next will tell.
    Doubt {
        /// How far, in standard deviations.
        surprise: f64,
    },
    /// The workload has changed.
    Changed {
        /// Relative change of throughput against what was expected.
        throughput: f64,
    },
    /// The limit did not hold throughput where it was.
    Light {
        /// Share of the time with somebody waiting.
        waiting_share: f64,
    },
    /// Some waited although the database keeps up: one step more.
    Relieve {
        /// Share of the time with somebody waiting.
        waiting_share: f64,
    },
}

impl BeliefReason {
    pub(crate) fn kind(self) -> &'static str {
        match self {
            BeliefReason::Hold { .. } => "hold",
            BeliefReason::Better { .. } => "better",
            BeliefReason::Probe { .. } => "probe",
            BeliefReason::Doubt { .. } => "doubt",
            BeliefReason::Changed { .. } => "changed",
            BeliefReason::Light { .. } => "light",
            BeliefReason::Relieve { .. } => "relieve",
        }
    }
}

impl fmt::Display for BeliefReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        match *self {
            BeliefReason::Hold { deviation } => {
                write!(formatter, "hold: the best known, to {:.1} %", percent(deviation))
            }
            BeliefReason::Better { gain } => {
                write!(formatter, "better: throughput {:+.1} % expected", percent(gain))
            }
            BeliefReason::Probe { worth } => {
                write!(formatter, "probe: worth {worth:.2} intervals of throughput")
            }
            BeliefReason::Doubt { surprise } => {
                write!(formatter, "doubt: {surprise:+.1} deviations from expected, looking again")
            }
            BeliefReason::Changed { throughput } => {
                let off = percent(throughput);
                write!(formatter, "changed: throughput {off:+.0} % from expected, probing anew")
            }
            BeliefReason::Light { waiting_share } => {
                let share = percent(waiting_share);
                write!(formatter, "light: somebody waited only {share:.0} % of the time")
            }
            BeliefReason::Relieve { waiting_share } => {
                let share = percent(waiting_share);
                write!(formatter, "relieve: somebody waited {share:.0} % of the time")
            }
        }
    }
}

impl GaussianProcess {
    /// A controller that knows its place and nothing else.
    #[must_use]
    pub fn new(setting: &Setting, settings: GaussianProcessSettings) -> GaussianProcess {
        let start = setting.bounds.clamp(setting.start);
        let mut settings = settings;
        if let Ok(v) = std::env::var("GP") { for kv in v.split_whitespace() {
        let (k, v) = kv.split_once('=').unwrap(); let v: f64 = v.parse().unwrap();
        let s = &mut settings;
        match k { "sd" => s.prior.slope_sd = v, "len" => s.prior.slope_length = v, "con" => s.prior.contention = v, "rough" => s.prior.roughness = v,
          "price" => s.probe.price = v, "loss" => s.probe.loss = v, "hor" => s.probe.horizon = v, "rise" => s.probe.rise = v, "worth" => s.probe.least_worth = v,
          "slack" => s.change.slack = v, "thr" => s.change.threshold = v, "doubt" => s.change.doubt = v, "mem" => s.memory = v, "grain" => s.prior.grain = v, "oth" => s.prior.others = v,
          "ldr" => s.level_drift = v, "sdr" => s.shape_drift = v, "noise" => s.noise = v, "drift" => s.drift = v, "dd" => s.drift_doubt = v, "mix" => s.mix_doubt = v, _ => panic!() } } }
        GaussianProcess {
            bounds: setting.bounds,
            start,
            settings,
            belief: Belief::new(setting.bounds, setting.resources, &settings.prior),
            change: ChangeDetector::default(),
            mix: Mix::default(),
            noise: settings.noise * settings.noise,
            last: None,
            tried: 0.0,
            anchor: None,
            running: None,
        }
    }

    /// Learns from a saturated interval; tells when it was not as expected.
    fn learn(&mut self, observation: &Observation, seen: f64, unfinished: f64) -> Option<BeliefReason> {
        let limit = f64::from(observation.limit.get());
        let most = f64::from(observation.concurrency_peak.max(1));
        let running = observation.running_mean.max(1.0).min(most);
        let draining = (running / limit - 1.0).max(0.0);
        let is_limited = observation.waiting_share >= SATURATED_SHARE && draining < DRAINED;
        let level = if is_limited { limit } else { running };
        let place = self.belief.place(level);
        let few = 0.5 / observation.completions.max(1) as f64;
        let noise = self.noise.max(few) + (0.3 * draining.min(1.0)).powi(2) + unfinished * unfinished;
        let predicted = self.belief.predict(place);
        let error = seen - predicted.mean;
        let surprise = error / (predicted.variance + noise).sqrt();
        let verdict = self.change.judge(surprise, &self.settings.change);
        match verdict {
            Verdict::Doubt => return Some(BeliefReason::Doubt { surprise }),
            Verdict::Changed => self.start_anew(place, level, seen),
            Verdict::Expected => {}
        }
        self.tried = self.tried.max(level);
        self.belief.learn(place, seen, noise);
        (verdict == Verdict::Changed)
            .then_some(BeliefReason::Changed { throughput: error.exp() - 1.0 })
    }

    /// Work begun and not finished in the interval, as a share of what was completed: a transaction
    /// that runs has on average done (1 - C²)/2 of its work.
    fn unfinished(&mut self, observation: &Observation) -> f64 {
        let before = self.running.replace(observation.running).unwrap_or(observation.running);
        let more = f64::from(observation.running) - f64::from(before);
        (more * unfinished_share(observation)).max(-0.5).min(0.5)
    }

    fn start_anew(&mut self, place: Place, level: f64, seen: f64) {
        self.belief.forget(self.settings.memory, place, seen);
        self.tried = level;
        self.last = None;
        self.anchor = None;
    }

    /// A level that has moved, by and by, may have moved the shape of the curve as well.
    fn notice_drift(&mut self) {
        let best = probe::best(&self.belief, self.belief.len() - 1, &self.settings.probe);
        let drift = self.settings.drift;
        if self.belief.covariance(best, best) > (drift / 3.0).powi(2) {
            return;
        }
        let level = self.belief.mean(best);
        let moved = level - *self.anchor.get_or_insert(level);
        if moved.abs() > drift {
            self.belief.fade(0.0, self.settings.drift_doubt * moved * moved);
            self.anchor = Some(level);
        }
    }

    /// Measures the noise: half the squared difference of two intervals at one limit.
    fn measure_noise(&mut self, limit: Mpl, seen: f64) {
        let before = self.last.replace((limit, seen));
        if let Some((_, other)) = before.filter(|&(other, _)| other == limit) {
            let sample = 0.5 * (seen - other).powi(2);
            self.noise += 0.1 * (sample.min(9.0 * self.noise) - self.noise);
            self.noise = self.noise.max(1e-6);
        }
    }

    /// The next limit after a saturated interval.
    fn saturated(&mut self, observation: &Observation, allowed: Bounds) -> Decision {
        let limit = allowed.clamp(observation.limit);
        let tps = self.mix.throughput(observation);
        if !(tps > 0.0 && tps.is_finite()) {
            return self.stalled(limit, allowed);
        }
        let drift = self.settings.level_drift;
        self.belief.fade(drift * drift, self.settings.shape_drift);
        if self.mix.has_shifted(observation) {
            self.belief.fade(0.0, self.settings.mix_doubt);
        }
        let unfinished = self.unfinished(observation);
        let mode = std::env::var("MODE").ok();
        let seen = if mode.as_deref() >= Some("b") { (tps * (1.0 + unfinished)).ln() } else { tps.ln() };
        let unexpected = self.learn(observation, seen, if mode.as_deref() >= Some("c") || mode.as_deref() == Some("a")  { unfinished } else { 0.0 });
        if let Some(doubt @ BeliefReason::Doubt { .. }) = unexpected {
            return Decision { limit, reason: Reason::Belief(doubt) };
        }
        self.measure_noise(observation.limit, seen);
        self.notice_drift();
        let (next, reason) = self.choose(observation, allowed);
        Decision { limit: next, reason: Reason::Belief(unexpected.unwrap_or(reason)) }
    }

    /// The next limit after an interval in which nothing completed: there is nothing to learn, but
    /// a limit above the best known is no place to wait.
    fn stalled(&self, limit: Mpl, allowed: Bounds) -> Decision {
        let highest = self.belief.index_below(f64::from(limit.get()));
        let best = self.belief.limit(probe::best(&self.belief, highest, &self.settings.probe));
        Decision { limit: allowed.clamp(best.min(limit)), reason: Reason::NothingCompleted }
    }

    fn choose(&self, observation: &Observation, allowed: Bounds) -> (Mpl, BeliefReason) {
        let now = f64::from(observation.limit.get());
        let ceiling = f64::from(allowed.max().get());
        let reach = (self.tried.max(now) * self.settings.probe.rise).min(ceiling);
        let circumstances = Circumstances {
            noise: self.noise.max(0.5 / observation.completions.max(1) as f64),
            running: f64::from(observation.running),
            unfinished: if std::env::var("MODE").ok().as_deref() == Some("d") { unfinished_share(observation) } else { 0.0 },
            highest: self.belief.index_below(reach),
            interval_s: observation.interval.as_secs_f64(),
        };
        let choice = probe::choose(&self.belief, &circumstances, &self.settings.probe);
        let here = self.belief.predict(self.belief.place(now));
        let (index, reason) = match choice {
            Choice::Probe { index, worth } => (index, BeliefReason::Probe { worth }),
            Choice::Best(index) if self.belief.limit(index) == observation.limit => {
                (index, BeliefReason::Hold { deviation: here.variance.max(0.0).sqrt() })
            }
            Choice::Best(index) => {
                let gain = (self.belief.mean(index) - here.mean).exp() - 1.0;
                (index, BeliefReason::Better { gain })
            }
        };
        (allowed.clamp(self.belief.limit(index)), reason)
    }

    /// The next limit after an interval whose throughput was the load's.
    fn light(&self, observation: &Observation, allowed: Bounds) -> Decision {
        let limit = allowed.clamp(observation.limit);
        // `max` turns what is no number into 0.
        let waiting_share = observation.waiting_share.max(0.0);
        if limit < observation.limit {
            let seen = observation.concurrency_peak;
            return Decision { limit, reason: Reason::Concurrency { seen } };
        }
        if waiting_share > RELAXED_SHARE {
            let index = self.belief.index_below(f64::from(limit.get()));
            let above = (index + 1).min(self.belief.len() - 1);
            let best = probe::best(&self.belief, self.belief.len() - 1, &self.settings.probe);
            if self.belief.mean(above) >= self.belief.mean(best) - self.settings.probe.loss {
                let limit = allowed.clamp(self.belief.limit(above).max(limit));
                return Decision {
                    limit,
                    reason: Reason::Belief(BeliefReason::Relieve { waiting_share }),
                };
            }
        }
        Decision { limit, reason: Reason::Belief(BeliefReason::Light { waiting_share }) }
    }
}

/// What one permit more leaves unfinished, as a share of what was completed.
fn unfinished_share(observation: &Observation) -> f64 {
    let timing = &observation.in_database;
    let cv2 = (timing.variance_s2 / (timing.mean_s * timing.mean_s)).max(0.0).min(1.0);
    (1.0 - cv2) / 2.0 / observation.completions.max(1) as f64
}

impl Controller for GaussianProcess {
    fn name(&self) -> &'static str {
        "gaussian-process"
    }

    fn start(&self) -> Mpl {
        self.start
    }

    fn decide(&mut self, observation: &Observation, _draw: Draw) -> Decision {
        let seen = f64::from(Concurrency::Peak.of(observation));
        let allowed = self.bounds.capped_at(whole((seen * HEADROOM).ceil()));
        let crowded = observation.running_mean >= SATURATED_SHARE * seen;
        if observation.waiting_share >= SATURATED_SHARE || crowded {
            self.saturated(observation, allowed)
        } else {
            self.light(observation, allowed)
        }
    }
}
