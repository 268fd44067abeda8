//! A belief in a throughput curve, as a Gaussian process over the logarithm of the limit: the
//! controller goes where that belief says that it pays.
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
//!    (`change`). A small change of level leaves most of the shape of the curve; after a large one,
//!    or a second one soon after, half of it is kept as a guess and everything is doubted.
//! 3. **Learn.** The belief, a mean and a covariance on a grid of at most 44 limits, takes the
//!    measurement in (`belief`). Before the first one it is the queueing model's curve, with slopes
//!    that may differ and are alike only for neighbouring limits: any shape can be learnt, a flat
//!    tail or two humps too, and what was measured says most about limits near by.
//! 4. **Choose.** The best known limit maximises ln X - p·ln N, which is the lowest limit that
//!    loses about p, unless a probe elsewhere is worth more than it costs (`probe`). The first
//!    step of all goes down where the model expects nothing from above: too low a limit costs a
//!    little for an interval; too high a one may cost nearly all, and more in the intervals after.
//!
//! # Example
//! PostgreSQL's measured TPC-B curve (`Curve::POSTGRES_TPCB`, best at 2), 1,000 clients, without
//! noise, started at 64: the limits are 64, 17, 8, 5, 3, 4, 6, 7, … The first step goes down,
//! because 64 is more than the queueing model has a use for; what is seen at 17 settles that it
//! need not be looked for above 64. 40 intervals later the limit rests at 2. The test
//! `the_example` runs it.
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
//! is learnt, the limit stays, but goes up a step at a time if some wait, as far as the curve is
//! not believed to fall, and down to a quarter above the concurrency seen, because more permits
//! would do nothing. Unless more are inside than the best known limit would let in: then a lower
//! limit may be better, whoever waits. A lowered limit takes effect as transactions end; an
//! interval that still had more inside is a measurement of that number, and a poor one (`meter`).
//!
//! # When nothing seems to change
//! Doubt comes back: slowly, sooner when there was no probe for long (`patience`), at once when the
//! level of the best limit has moved by and by (`drift`) or when the classes share the work
//! otherwise than they used to (`mix`).
//!
//! # Limits
//! * A change that leaves throughput at the present limit as it was is not noticed until doubt has
//!   come back, after some hundred intervals.
//! * A change that follows a false alarm within a few intervals may be read into a belief that is
//!   still soft: two curves are mixed into one, and again only doubt leads out of it. Seen in one
//!   of 800 phases of `docs/results/controllers-random.md`.
//! * Two workloads that take turns faster than some ten intervals are seen as one, or as noise.
//! * The classes must be told apart by the gate to be normalised. A burst of long transactions
//!   within one class counts as a change: the limit is probed anew, and again when the burst ends.
//! * Logarithm and exponential come from the platform's library: a record replays bit for bit
//!   with the same build, not on every machine there is.

mod belief;
mod change;
mod meter;
mod mix;
mod probe;
mod reason;

use crate::controller::{Concurrency, Controller, whole};
use crate::parameters::{Allowed, settings};
use crate::{Bounds, Decision, Draw, Mpl, Observation, Reason, Setting};

use change::{ChangeDetector, SurpriseVerdict};
use meter::{Measurement, SATURATED_SHARE, unfinished_share};
use probe::{Circumstances, ProbeChoice};

pub(in crate::controllers) use belief::{GridPlace, ThroughputBelief};
pub(in crate::controllers) use meter::ThroughputMeter;
pub(in crate::controllers) use probe::normal_below;

pub use reason::BeliefReason;

settings! {
    /// The parameters of [`GaussianProcess`].
    pub struct GaussianProcessSettings;

    /// The parameters that the name of the controller stands for.
    pub const DEFAULT;

    // How probes are chosen.
    price: f64 = 0.04, "price", "share", Allowed::Number(0.0, 1.0),
        "throughput that may be given up for a low limit; gain required for a rise of the limit";
    loss: f64 = 0.06, "loss", "share", Allowed::Number(0.0, 1.0),
        "largest loss of the chosen limit against the highest prediction, in ln X";
    horizon: f64 = 60.0, "horizon", "intervals", Allowed::Number(1.0, 1e6),
        "time for which learnt values are expected to be useful";
    least_worth: f64 = 0.1, "least-worth", "intervals", Allowed::Number(0.0, 1e3),
        "least gain of a probe, as the throughput of so many intervals";
    rise: f64 = 5.0, "rise", "factor", Allowed::Number(1.0, 1e3),
        "how far the limit may rise above the highest one tried";
    // When the workload counts as changed.
    slack: f64 = 0.75, "slack", "deviations", Allowed::Number(0.0, 10.0),
        "deviation of an interval that does not count towards a change";
    threshold: f64 = 4.0, "threshold", "deviations", Allowed::Number(0.1, 1e3),
        "sum of deviations at which a change of the workload is detected";
    doubt: f64 = 5.0, "doubt", "deviations", Allowed::Number(0.1, 1e3),
        "deviation of a single interval that is measured again before it is used";
    calm: u32 = 15, "calm", "intervals", Allowed::Whole(0, 1_000_000),
        "time within which a second change means that the shape has changed too";
    small_change: f64 = 0.25, "small-change", "ln X", Allowed::Number(0.0, 10.0),
        "largest first change after which the shape is kept";
    alarm_doubt: f64 = 0.1, "alarm-doubt", "share", Allowed::Number(0.0, 1.0),
        "share of the prior's variance that such a change restores";
    memory: f64 = 0.5, "memory", "share", Allowed::Number(0.0, 1.0),
        "share of the shape that is kept after another change";
    // How what is believed becomes uncertain again.
    level_drift: f64 = 0.003, "level-drift", "ln X", Allowed::Number(0.0, 1.0),
        "standard deviation by which the level moves in an interval";
    /// Caches fill meanwhile.
    warm_up: f64 = 0.1, "warm-up", "ln X", Allowed::Number(0.0, 1.0),
        "the same in the first interval of a workload; it fades";
    shape_drift: f64 = 0.000_1, "shape-drift", "share", Allowed::Number(0.0, 1.0),
        "share of the prior's variance that each interval restores";
    patience: f64 = 30.0, "patience", "intervals", Allowed::Number(1.0, 1e6),
        "time without a probe after which the shape becomes less certain with each interval";
    drift: f64 = 0.08, "drift", "ln X", Allowed::Number(0.001, 10.0),
        "how far the level of the best limit may move before the shape becomes uncertain";
    drift_doubt: f64 = 5.0, "drift-doubt", "share", Allowed::Number(0.0, 100.0),
        "share of the prior's variance that such a move restores, for its square";
    mix_doubt: f64 = 0.5, "mix-doubt", "share", Allowed::Number(0.0, 1.0),
        "share of the prior's variance that another mix of classes restores";
    noise: f64 = 0.05, "noise", "ln X", Allowed::Number(0.001, 1.0),
        "assumed standard deviation of an interval before it is measured";
    // What is believed before anything was observed.
    others: f64 = 0.5, "model-others", "stations", Allowed::Number(0.0, 100.0),
        "stations of the prior's model for each of the database's beyond the first";
    slope_sd: f64 = 0.5, "slope-sd", "ln X by ln N", Allowed::Number(0.01, 10.0),
        "standard deviation of the curve's slope about the model's";
    slope_length: f64 = 1.5, "slope-length", "ln N", Allowed::Number(0.1, 10.0),
        "correlation length of the slope";
    contention: f64 = 0.6, "contention", "ln X by ln N", Allowed::Number(0.0, 10.0),
        "fall of the slope over the whole range, in addition to the model's";
    roughness: f64 = 0.03, "roughness", "ln X", Allowed::Number(0.001, 1.0),
        "standard deviation of the irregularity at each limit";
    /// One transaction more or less is much among few.
    grain: f64 = 0.2, "grain", "ln X", Allowed::Number(0.0, 10.0),
        "the same, divided by the limit";
    level_sd: f64 = 2.0, "level-sd", "ln X", Allowed::Number(0.1, 10.0),
        "standard deviation of the level before anything was observed";
}

/// Below this share of time with somebody waiting there is nothing to relieve.
const RELAXED_SHARE: f64 = 0.1;

/// More permits than this share of the concurrency seen would do nothing.
const HEADROOM: f64 = 1.25;

/// Nearly all that a closed network can do: N/(N + M - 1) of it at N.
const KNEE: f64 = 0.9;

/// The first step down divides the limit by this.
const DESCENT: f64 = 3.5;

/// What an interval leaves of the warm-up.
const COOLING: f64 = 0.8;

/// A controller that believes in a throughput curve.
#[derive(Clone, Debug)]
pub struct GaussianProcess {
    bounds: Bounds,
    start: Mpl,
    settings: GaussianProcessSettings,
    meter: ThroughputMeter,
    change: ChangeDetector,
    belief: ThroughputBelief,
    /// The highest level tried since the last change.
    tried: f64,
    /// Above this limit the first step goes down.
    knee: f64,
    /// The first step is still to come.
    is_new: bool,
    /// The level of the best limit when the shape was last doubted for its sake, in ln X.
    anchor: Option<f64>,
    /// Intervals since the last probe.
    quiet: u32,
    /// Intervals since the last alarm.
    calm: u32,
    /// What is left of the warm-up: 1 at the beginning and after an alarm.
    cold: f64,
}

impl GaussianProcess {
    /// A controller that knows its place and nothing else.
    #[must_use]
    pub fn new(setting: &Setting, settings: GaussianProcessSettings) -> GaussianProcess {
        GaussianProcess {
            bounds: setting.bounds,
            start: setting.bounds.clamp(setting.start),
            settings,
            meter: ThroughputMeter::new(settings.noise),
            change: ChangeDetector::default(),
            belief: ThroughputBelief::new(setting.bounds, setting.resources, &settings),
            tried: 0.0,
            knee: KNEE / (1.0 - KNEE) * (f64::from(setting.resources.stations()) - 1.0),
            is_new: true,
            anchor: None,
            quiet: 0,
            calm: u32::MAX,
            cold: 1.0,
        }
    }

    /// The next limit after an interval in which the limit, or the number of clients, held
    /// throughput.
    fn saturated(&mut self, observation: &Observation, allowed: Bounds) -> Decision {
        let limit = allowed.clamp(observation.limit);
        let Some(measurement) = self.meter.measure(observation) else {
            return self.stalled(limit, allowed);
        };
        self.fade(observation);
        let unexpected = self.learn(&measurement);
        if let Some(doubt @ BeliefReason::Doubt { .. }) = unexpected {
            return Decision { limit, reason: Reason::Belief(doubt) };
        }
        self.meter.compare(observation.limit, &measurement);
        self.notice_drift();
        let (limit, reason) = match self.descend(limit) {
            Some(lower) => (allowed.clamp(lower), BeliefReason::Descend),
            None => self.choose(observation, allowed),
        };
        let is_probe = matches!(reason, BeliefReason::Probe { .. } | BeliefReason::Descend);
        self.quiet = if is_probe { 0 } else { self.quiet.saturating_add(1) };
        Decision { limit, reason: Reason::Belief(unexpected.unwrap_or(reason)) }
    }

    /// What the passing of an interval does to the belief.
    fn fade(&mut self, observation: &Observation) {
        let drift = self.settings.level_drift + self.settings.warm_up * self.cold;
        self.cold *= COOLING;
        self.calm = self.calm.saturating_add(1);
        let waited = f64::from(self.quiet) / self.settings.patience;
        let impatience = 1.0 + waited * waited;
        self.belief.fade(drift * drift, self.settings.shape_drift * impatience);
        if self.meter.mix_has_shifted(observation) {
            self.belief.fade(0.0, self.settings.mix_doubt);
        }
    }

    /// Learns from a measurement; tells when it was not as expected.
    fn learn(&mut self, measurement: &Measurement) -> Option<BeliefReason> {
        let &Measurement { level, log_tps, variance } = measurement;
        let place = self.belief.place(level);
        let expected = self.belief.predict(place);
        let error = log_tps - expected.mean;
        let surprise = error / (expected.variance + variance).sqrt();
        let mut unexpected = None;
        match self.change.judge(surprise, &self.settings) {
            SurpriseVerdict::Expected => {}
            SurpriseVerdict::Doubt => return Some(BeliefReason::Doubt { surprise }),
            SurpriseVerdict::Changed => {
                self.doubt_all(place, log_tps, error);
                self.meter.start_anew();
                self.tried = 0.0;
                self.anchor = None;
                unexpected = Some(BeliefReason::Changed { throughput: libm::exp(error) - 1.0 });
            }
        }
        self.tried = self.tried.max(level);
        self.belief.learn(place, log_tps, variance);
        unexpected
    }

    /// What an alarm does to the belief. A small change of level, the first of a while, may be a
    /// disturbance that lasts: most of the shape is kept. After a large one, or when what is seen
    /// then does not fit the shape either, it is forgotten.
    fn doubt_all(&mut self, place: GridPlace, log_tps: f64, error: f64) {
        let is_first = self.calm >= self.settings.calm;
        if is_first && error.abs() < self.settings.small_change {
            self.belief.relevel(self.settings.alarm_doubt, place, log_tps);
        } else {
            self.belief.forget(self.settings.memory, place, log_tps);
        }
        self.calm = 0;
        self.cold = 1.0;
    }

    /// A level that has moved, by and by, may have moved the shape of the curve as well.
    fn notice_drift(&mut self) {
        let drift = self.settings.drift;
        let best = self.best();
        // Three deviations, or it is the measurement that moves.
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

    /// The limit to be looked at first, if the controller begins where the queueing model expects
    /// no more throughput from more. By the belief alone it might go up, because nothing is known
    /// of either side; but a limit that is too low costs some throughput, and one that is too high
    /// may cost nearly all, and what it leaves behind costs the intervals that follow.
    fn descend(&mut self, limit: Mpl) -> Option<Mpl> {
        let is_first = std::mem::take(&mut self.is_new);
        let now = f64::from(limit.get());
        let lower = self.belief.limit(self.belief.index_below(now / DESCENT));
        (is_first && now > self.knee && lower < limit).then_some(lower)
    }

    /// The best limit known, wherever it is.
    fn best(&self) -> usize {
        probe::best(&self.belief, self.belief.len() - 1, &self.settings)
    }

    /// The limit for the next interval by what is believed.
    fn choose(&self, observation: &Observation, allowed: Bounds) -> (Mpl, BeliefReason) {
        let now = f64::from(observation.limit.get());
        let ceiling = f64::from(allowed.max().get());
        let reach = (self.tried.max(now) * self.settings.rise).min(ceiling);
        let circumstances = Circumstances {
            noise: self.meter.noise(observation.completions),
            running: f64::from(observation.running),
            unfinished: unfinished_share(observation),
            highest: self.belief.index_below(reach),
            interval_s: observation.interval.as_secs_f64(),
        };
        let here = self.belief.predict(self.belief.place(now));
        let (index, reason) = match probe::choose(&self.belief, &circumstances, &self.settings) {
            ProbeChoice::Probe { index, worth } => (index, BeliefReason::Probe { worth }),
            ProbeChoice::Best(index) if self.belief.limit(index) == observation.limit => {
                (index, BeliefReason::Hold { deviation: here.variance.max(0.0).sqrt() })
            }
            ProbeChoice::Best(index) => {
                let gain = libm::exp(self.belief.mean(index) - here.mean) - 1.0;
                (index, BeliefReason::Better { gain })
            }
        };
        (allowed.clamp(self.belief.limit(index)), reason)
    }

    /// The next limit after an interval in which nothing completed: there is nothing to learn, but
    /// a limit above the best known is no place to wait.
    fn stalled(&self, limit: Mpl, allowed: Bounds) -> Decision {
        let best = self.belief.limit(self.best());
        Decision { limit: allowed.clamp(best.min(limit)), reason: Reason::NothingCompleted }
    }

    /// The next limit after an interval whose throughput was the load's.
    fn light(&self, observation: &Observation, allowed: Bounds) -> Decision {
        let limit = allowed.clamp(observation.limit);
        if limit < observation.limit {
            let seen = observation.concurrency_peak;
            return Decision { limit, reason: Reason::Concurrency { seen } };
        }
        // `max` turns what is no number into 0.
        let waiting_share = observation.waiting_share.max(0.0);
        let relief = self.relief(limit).filter(|_| waiting_share > RELAXED_SHARE);
        let (limit, reason) = match relief {
            Some(above) => (allowed.clamp(above), BeliefReason::Relieve { waiting_share }),
            None => (limit, BeliefReason::Light { waiting_share }),
        };
        Decision { limit, reason: Reason::Belief(reason) }
    }

    /// Whether the number inside says more than the load does although nobody waits: clients who
    /// come back at once are all inside all the time, and where more are inside than the best known
    /// limit would let in, a lower limit may be better.
    fn is_crowded(&self, observation: &Observation) -> bool {
        let running = observation.running_mean;
        running >= SATURATED_SHARE * f64::from(observation.concurrency_peak)
            || running > f64::from(self.belief.limit(self.best()).get())
    }

    /// The next limit of the grid above `limit`, if throughput is not believed to suffer there.
    fn relief(&self, limit: Mpl) -> Option<Mpl> {
        let above = self.belief.index_below(f64::from(limit.get())) + 1;
        let enough = self.belief.mean(self.best()) - self.settings.loss;
        let is_good = above < self.belief.len() && self.belief.mean(above) >= enough;
        is_good.then(|| self.belief.limit(above))
    }
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
        if observation.waiting_share >= SATURATED_SHARE || self.is_crowded(observation) {
            self.saturated(observation, allowed)
        } else {
            self.light(observation, allowed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::{Curve, CurvePhase, CurvePlant, Simulation};
    use crate::testing::{DRAW, bounds, observed};
    use crate::{Observation, Resources};

    fn controller(start: u32) -> GaussianProcess {
        let resources = Resources { cpus: 2, disks: 1 };
        let setting =
            Setting { bounds: bounds(1, 1_000), start: Mpl::at_least_one(start), resources };
        GaussianProcess::new(&setting, GaussianProcessSettings::DEFAULT)
    }

    fn kind(decision: &Decision) -> &'static str {
        decision.reason.kind()
    }

    /// The limits of so many intervals on PostgreSQL's curve without noise, and the last reason.
    fn path(start: u32, intervals: usize) -> (Vec<u32>, &'static str) {
        let curve = Curve::new(Curve::POSTGRES_TPCB).expect("a curve");
        let mut plant = CurvePlant::new(&[CurvePhase::closed(curve, 1_000, 0.0)], 1);
        let mut simulation = Simulation::new(Box::new(controller(start)), 1);
        let run: Vec<_> = (0..intervals).map(|_| simulation.interval(&mut plant)).collect();
        let last = run.last().map_or("", |(_, decision)| decision.reason.kind());
        (run.iter().map(|(seen, _)| seen.limit.get()).collect(), last)
    }

    /// The example of the module's head.
    #[test]
    fn the_example() {
        let (limits, last) = path(64, 40);
        assert_eq!(limits[..8], [64, 17, 8, 5, 3, 4, 6, 7]);
        assert_eq!((limits[39], last), (2, "hold"));
    }

    /// A controller that has seen 1,000 tps at a limit of 10 for 30 intervals.
    fn settled() -> GaussianProcess {
        let mut controller = controller(10);
        for _ in 0..30 {
            controller.decide(&observed(10, 500, 1_000), DRAW);
        }
        controller
    }

    #[test]
    fn one_disturbed_interval_changes_nothing_and_two_begin_the_search_anew() {
        let mut controller = settled();
        let doubt = controller.decide(&observed(10, 500, 400), DRAW);
        assert_eq!((kind(&doubt), doubt.limit.get()), ("doubt", 10));
        let mut disturbed = controller.clone();
        assert_ne!(kind(&disturbed.decide(&observed(10, 500, 1_010), DRAW)), "changed");
        assert_eq!(kind(&controller.decide(&observed(10, 500, 410), DRAW)), "changed");
    }

    #[test]
    fn an_interval_without_completions_teaches_nothing_and_does_not_raise_the_limit() {
        let mut stuck = controller(1_000);
        let decision = stuck.decide(&observed(1_000, 1_000, 0), DRAW);
        assert_eq!(kind(&decision), "nothing_completed");
        assert!(decision.limit.get() < 100, "{}", decision.limit);
        let decision = stuck.decide(&observed(1, 1_000, 0), DRAW);
        assert_eq!(decision.limit.get(), 1);
    }

    /// An interval with this many inside, who come and go, and somebody waiting this share.
    fn light(limit: u32, running: f64, waiting_share: f64) -> Observation {
        let concurrency_peak = limit * 2;
        Observation {
            concurrency_peak,
            running_mean: running,
            waiting_share,
            ..observed(limit, limit, 500)
        }
    }

    #[test]
    fn under_a_light_load_the_limit_stays_or_gives_way() {
        let mut controller = controller(10);
        let stays = controller.decide(&light(10, 3.0, 0.05), DRAW);
        assert_eq!((kind(&stays), stays.limit.get()), ("light", 10));
        let relieved = controller.decide(&light(10, 3.0, 0.5), DRAW);
        assert_eq!(kind(&relieved), "relieve");
        assert!((11..=14).contains(&relieved.limit.get()), "{}", relieved.limit);
    }

    #[test]
    fn permits_beyond_the_concurrency_are_taken_back() {
        let few = Observation { concurrency_peak: 8, ..light(100, 3.0, 0.0) };
        let decision = controller(100).decide(&few, DRAW);
        assert_eq!((kind(&decision), decision.limit.get()), ("concurrency", 10));
    }

    /// Nobody waits with 400 inside of 600 allowed, but that is far above the limits known to be
    /// good, so the interval is learnt from like any other.
    #[test]
    fn many_inside_are_learnt_from_although_nobody_waits() {
        let mut controller = settled();
        let crowded = Observation { concurrency_peak: 800, ..light(600, 400.0, 0.0) };
        let kinds = [0; 4].map(|_| kind(&controller.decide(&crowded, DRAW)));
        assert!(!kinds.contains(&"light"), "{kinds:?}");
    }

    #[test]
    fn a_limit_that_was_not_probed_for_long_is_probed_again() {
        let mut controller = settled();
        let probes = (0..400)
            .filter(|_| kind(&controller.decide(&observed(10, 500, 1_000), DRAW)) == "probe");
        assert!(probes.count() > 0);
    }
}
