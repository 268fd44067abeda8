//! What if the limit were another: throughput and response time at every limit, with intervals.
//!
//! # What is promised
//! **The mean throughput over 10 seconds at the limit, which begin when the transition is over (a
//! second and twice a transaction's time in the database after the limit is set), with the load and
//! the database as they are now, lies in the interval in 90 % of the cases.** The response time is
//! from request to end, by Little's law for a closed load without think time: the transactions that
//! are present now, over that throughput.
//!
//! # Mechanism
//! It is fed with every interval that a controller is told of, whichever runs, and is independent
//! of it.
//!
//! * **Measurements** (`meter`). Throughput at the level that the limit or the clients made, for
//!   about a second each, without the transition after a move.
//! * **Memory** (`history`). 64 of them: those of one level that are old are merged.
//! * **Belief** (`process`). A Gaussian process over level and time, whose parameters are refitted
//!   every 10 seconds: how rough the curve is, how the database drifts, what moves leave behind,
//!   how noisy a second is.
//! * **Change.** Two measurements in a row that are far from what the same level gave before, or
//!   from what was expected, on the same side, mean another workload: all before them is forgotten.
//! * **Check** (`check`). Each measurement is compared with what the last fit expected of it, and
//!   intervals are widened until 90 % of the last hundred hold: those at the level that is held,
//!   and those at other levels, each by its own errors.
//! * **Load** (`load`). Where the load does not fill the limit, throughput is that of the load: it
//!   is told for limits above all that were present, and for those whose curve is clearly above or
//!   below it.
//!
//! Nothing is said about a limit if no level within 12 % of it, nor one on both sides that are at
//! most a factor of two apart, was measured, or if the interval spans more than a factor of two.
//!
//! # Example
//! 300 clients on the plant `noise-1`, best at 24, after a minute of `paired-comparison`: at 24 it
//! tells 2,209 to 2,362 tps, and 2,323 came; at 64, which was tried for a moment, 1,497 to 1,837,
//! and 1,590 came.
//!
//! # Limits
//! * What comes later than a few seconds after a move (caches, bloat, overload that builds up) is
//!   not seen by measurements that last a second.
//! * A cliff between two levels that were measured is not foreseen.
//! * A load with think time that fills a low limit may not fill a higher one; the higher limit's
//!   throughput is then told too high, and the response time too long.
//! * A level of which nothing new was seen may have changed with the workload while that which is
//!   held has not.

mod check;
mod curve;
mod history;
mod load;
mod meter;
mod process;

use crate::{Mpl, Observation};

use check::{ErrorCheck, QUANTILE};
use curve::limits_up_to;
use history::{History, HistoryPoint};
use load::{HeldBy, Normal, RecentLoad};
use meter::CurveMeter;
use process::{Parameters, ProcessFit, TimeSpan};

pub use curve::{CurveInterval, CurveMeasurement, CurveRow, Unknown, WhatIfCurve};

/// How often a curve is made, seconds.
const EVERY_S: f64 = 10.0;

/// The time that is spoken of begins so long from now, and lasts so long, seconds.
const LEAD_S: f64 = 1.0;
const HORIZON_S: f64 = 10.0;

/// A level that was measured so near in ln n says something of a limit.
const NEAR: f64 = 0.12;

/// The level that is held is the last that was measured, and what is nearer to it than this in
/// ln n.
const HERE: f64 = 0.03;

/// Levels on both sides at most so far apart say something of a limit between them, in ln n.
const BRACKET: f64 = 0.72;

/// Intervals that span more than this in ln X are not told.
const WIDE: f64 = std::f64::consts::LN_2;

/// A measurement is far from what its level gave if it is off by so many standard deviations, and
/// by so much in ln X; so many in a row are a change.
const CHANGED_DEVIATIONS: f64 = 4.0;
const CHANGED: f64 = 0.2;
const CHANGED_COUNT: u32 = 2;

/// The same, if the level itself was not measured before.
const UNEXPECTED_DEVIATIONS: f64 = 5.0;
const UNEXPECTED: f64 = 0.3;

/// After a change the next curve is made so soon, seconds.
const SOON_S: f64 = 2.0;

/// Learns the curve from the intervals that a gate observes.
#[derive(Clone, Debug)]
pub struct WhatIf {
    highest: Mpl,
    meter: CurveMeter,
    history: History,
    load: RecentLoad,
    fit: Option<ProcessFit>,
    parameters: Parameters,
    /// Errors at the level that is held, and at levels that were moved to.
    here: ErrorCheck,
    elsewhere: ErrorCheck,
    /// Measurements in a row that were above or below what was expected.
    off: (u32, bool),
    next_s: Option<f64>,
}

impl WhatIf {
    /// Knows nothing yet of a gate whose limit is never above `highest`.
    #[must_use]
    pub fn new(highest: Mpl) -> WhatIf {
        WhatIf {
            highest,
            meter: CurveMeter::default(),
            history: History::default(),
            load: RecentLoad::default(),
            fit: None,
            parameters: Parameters::DEFAULT,
            here: ErrorCheck::default(),
            elsewhere: ErrorCheck::default(),
            off: (0, false),
            next_s: None,
        }
    }

    /// Takes an interval that ended at `at_s`, seconds on any clock that does not go back. Returns
    /// a curve every 10 seconds, and at once after a change.
    pub fn learn(&mut self, at_s: f64, seen: &Observation) -> Option<WhatIfCurve> {
        self.load.take(seen);
        for point in self.meter.take(at_s, seen).into_iter().flatten() {
            if point.is_finite() {
                self.take(point);
            }
        }
        let next_s = *self.next_s.get_or_insert(at_s + EVERY_S);
        if at_s < next_s {
            return None;
        }
        let has_changed = self.fit.is_none() && self.history.points().len() <= 2;
        self.next_s = Some(at_s + if has_changed { SOON_S } else { EVERY_S });
        self.load.end_block();
        Some(self.curve(at_s))
    }

    /// Returns what the curve is made of: the measurements that are kept, the oldest first. `at_s`
    /// is the present on the clock of the observations.
    pub fn measurements(&self, at_s: f64) -> impl Iterator<Item = CurveMeasurement> {
        self.history.points().iter().map(move |point| CurveMeasurement {
            mpl: libm::exp(point.x),
            throughput_tps: libm::exp(point.ln_x),
            age_s: (at_s - point.at_s).max(0.0),
            seconds: point.seconds,
        })
    }

    /// What is expected at `at_s`, by all that was learnt before.
    pub fn curve(&mut self, at_s: f64) -> WhatIfCurve {
        self.fit = ProcessFit::new(self.history.points().to_vec(), self.parameters);
        self.parameters = self.fit.as_ref().map_or(self.parameters, ProcessFit::parameters);
        self.by_last_fit(at_s)
    }

    fn take(&mut self, point: HistoryPoint) {
        let mut is_unexpected = None;
        if let Some(fit) = &self.fit {
            let half_s = point.seconds / 2.0;
            let span = TimeSpan { from_s: point.at_s - half_s, to_s: point.at_s + half_s };
            let expected = fit.expect(point.x, span);
            let parameters = fit.parameters();
            let variance = expected.variance
                + point.variance
                + parameters.noise(point.seconds)
                + parameters.moved(point.settling);
            let off = point.ln_x - expected.mean;
            let deviations = off / variance.sqrt();
            let is_here = self.history.points().last().is_some_and(|last| last.is_near(&point));
            let check = if is_here { &mut self.here } else { &mut self.elsewhere };
            check.add(deviations);
            let is_far = deviations.abs() > UNEXPECTED_DEVIATIONS && off.abs() > UNEXPECTED;
            is_unexpected = (is_far && is_seen(fit.points(), point.x)).then_some(off > 0.0);
        }
        let side = is_unexpected.or_else(|| self.side_of_change(&point));
        let has_changed = self.count_off(side);
        self.history.add(point);
        if has_changed {
            self.history.begin_anew();
            self.fit = None;
            self.off = (0, false);
            self.next_s = self.next_s.map(|next_s| next_s.min(point.at_s));
        }
    }

    /// Whether a measurement is far from what its level gave, and on which side: whether above.
    fn side_of_change(&self, point: &HistoryPoint) -> Option<bool> {
        let near = self.history.points().iter().rev().filter(|other| other.is_near(point));
        // What is suspected itself is no reference.
        let near: Vec<&HistoryPoint> = near.skip(self.off.0 as usize).take(4).collect();
        let newest = near.first()?;
        let count = near.len() as f64;
        let mean = near.iter().map(|other| other.ln_x).sum::<f64>() / count;
        let noise = |of: &HistoryPoint| {
            let parameters = &self.parameters;
            of.variance + parameters.noise(of.seconds) + parameters.moved(of.settling)
        };
        let reference = near.iter().map(|other| noise(other)).sum::<f64>() / (count * count);
        let change = self.parameters.change(point.at_s - newest.at_s);
        let off = point.ln_x - mean;
        let deviation = (noise(point) + reference + change).sqrt();
        (off.abs() >= (CHANGED_DEVIATIONS * deviation).max(CHANGED)).then_some(off > 0.0)
    }

    /// Counts measurements in a row that are far off on one side; whether they are a change.
    fn count_off(&mut self, side: Option<bool>) -> bool {
        let Some(is_above) = side else {
            self.off = (0, false);
            return false;
        };
        let (before, was_above) = self.off;
        self.off = (if was_above == is_above { before + 1 } else { 1 }, is_above);
        self.off.0 >= CHANGED_COUNT
    }

    fn by_last_fit(&self, at_s: f64) -> WhatIfCurve {
        let (present, _) = self.load.present();
        let last = match self.load.held() {
            HeldBy::Limit => present - 0.5,
            HeldBy::Both | HeldBy::Load => self.load.peak(),
        };
        let limits = limits_up_to(last, self.highest);
        WhatIfCurve {
            at_s,
            present,
            measurements: u32::try_from(self.history.points().len()).unwrap_or(u32::MAX),
            widening: self.elsewhere.widening(),
            rows: limits.into_iter().map(|limit| self.row(limit, at_s)).collect(),
        }
    }

    fn row(&self, limit: Mpl, at_s: f64) -> CurveRow {
        let (present, running) = self.load.present();
        let level = f64::from(limit.get());
        let by_limit = self.by_limit(level.min(present.max(1.0)), at_s);
        let throughput = match self.load.held() {
            HeldBy::Limit => by_limit,
            HeldBy::Both if level <= running => by_limit,
            HeldBy::Both => Err(Unknown::Load),
            HeldBy::Load => return self.row_by_load(limit, by_limit),
        };
        match throughput {
            Ok(throughput) => CurveRow {
                limit,
                throughput_tps: Some(throughput),
                response_s: self.response(present, &throughput),
                unknown: None,
            },
            Err(why) => CurveRow::unknown(limit, why),
        }
    }

    /// By Little's law, where the number present is that of the clients.
    fn response(&self, present: f64, throughput: &CurveInterval) -> Option<CurveInterval> {
        let response = CurveInterval {
            low: present / throughput.high,
            median: present / throughput.median,
            high: present / throughput.low,
        };
        let is_told = self.load.is_constant() && response.low > 0.0 && response.high.is_finite();
        is_told.then_some(response)
    }

    /// Where the load does not fill the limit in force.
    fn row_by_load(&self, limit: Mpl, by_limit: Result<CurveInterval, Unknown>) -> CurveRow {
        let Some((throughput, response)) = self.load.next() else {
            return CurveRow::unknown(limit, Unknown::Load);
        };
        let (asked, response_s) = (interval(throughput, 1.0), interval(response, 1.0));
        let known = |throughput, response_s| CurveRow {
            limit,
            throughput_tps: Some(throughput),
            response_s,
            unknown: None,
        };
        let is_told = |of: &CurveInterval| libm::log(of.high / of.low) <= WIDE;
        if f64::from(limit.get()) >= self.load.peak() {
            return match (is_told(&asked), is_told(&response_s)) {
                (true, is_told) => known(asked, is_told.then_some(response_s)),
                (false, _) => CurveRow::unknown(limit, Unknown::Wide),
            };
        }
        match by_limit {
            Ok(curve) if curve.high < asked.low => known(curve, None),
            Ok(curve) if curve.low > 1.5 * asked.high && is_told(&asked) => known(asked, None),
            _ => CurveRow::unknown(limit, Unknown::Load),
        }
    }

    /// Throughput at a level of which there is always enough.
    fn by_limit(&self, level: f64, at_s: f64) -> Result<CurveInterval, Unknown> {
        let fit = self.fit.as_ref().ok_or(Unknown::Unseen)?;
        let x = libm::log(level.max(1.0));
        if !is_seen(fit.points(), x) {
            return Err(Unknown::Unseen);
        }
        let span = |lead_s| TimeSpan { from_s: at_s + lead_s, to_s: at_s + lead_s + HORIZON_S };
        let residence_s = level / libm::exp(fit.expect(x, span(LEAD_S)).mean).max(1e-6);
        let expected = fit.expect(x, span(LEAD_S + 2.0 * residence_s));
        let count = 1.0 / (HORIZON_S * libm::exp(expected.mean)).max(1e-3);
        let variance = expected.variance + fit.parameters().noise(HORIZON_S) + count;
        let is_here = fit.points().last().is_some_and(|last| (last.x - x).abs() <= HERE);
        let check = if is_here { &self.here } else { &self.elsewhere };
        let told = interval((expected.mean, variance), check.widening());
        let is_narrow = libm::log(told.high / told.low) <= WIDE;
        let is_number = told.low > 0.0 && told.high.is_finite();
        (is_narrow && is_number).then_some(told).ok_or(Unknown::Wide)
    }
}

/// Whether a level near `x` was measured, or one on both sides that are not far apart.
fn is_seen(points: &[HistoryPoint], x: f64) -> bool {
    let distances = points.iter().map(|point| point.x - x);
    let above = distances.clone().filter(|&apart| apart >= 0.0).fold(f64::INFINITY, f64::min);
    let below = distances.filter(|&apart| apart <= 0.0).fold(f64::NEG_INFINITY, f64::max);
    above.min(-below) <= NEAR || above - below <= BRACKET
}

/// The median and the 90 % interval of a number whose logarithm is normal.
fn interval((mean, variance): Normal, widening: f64) -> CurveInterval {
    let reach = QUANTILE * widening * variance.sqrt();
    CurveInterval {
        low: libm::exp(mean - reach),
        median: libm::exp(mean),
        high: libm::exp(mean + reach),
    }
}
