//! What a plant goes through, phase by phase, and what the best fixed limit would reach in each.
//!
//! A [`Scenario`] is a plant of one kind: a throughput curve, or a simulation of every transaction.
//! Its phases follow each other without a pause: the workload switches, clients come and go.
//!
//! # The truth about a phase
//! A controller is judged against the best that a fixed limit gives, so the throughput of a phase is
//! needed at every limit: its [`Truth`]. For a curve it is computed. For a simulation of
//! transactions it is measured: the phase alone, from an empty database, at the 28 whole numbers
//! nearest to powers of 10^(1/10) from 1 to 1,000, but not above the number of clients, which is
//! the last. The first intervals are left out; then it goes on until the standard error of the
//! throughput is 0.5 % of the best so far, or 2,000 intervals are over. Between two of these limits
//! throughput lies on a straight line when both axes are logarithmic, as on a [`Curve`].
//!
//! For an open system the truth also tells what arrives and what could be run if enough were
//! waiting, so that a backlog can be accounted for: see [`Arrivals`].
//!
//! # Example
//! Measured 100 tps at 10 and 200 tps at 40: at 20, the middle on a logarithmic axis, the truth is
//! 141 tps. The best is 200 tps at 40, and the lowest limit with 95 % of it is 37:
//! 100·√3.7 = 192, where 36 gives 190 less a little.
//!
//! # Limits
//! * What is measured has an error, and the best of many measured limits errs upward: with an error
//!   of 0.5 % for each of ten on a flat top, by 0.8 %. Intervals are taken as independent, which
//!   makes the error look smaller than it is where a queue outlives an interval.
//! * A phase alone says nothing of what it inherits from the one before: a thrashing database, a
//!   queue. The best fixed limit has that to bear too, but is not charged for it.

use std::ops::RangeInclusive;

use serde::Deserialize;

use super::{
    Curve, CurveError, CurvePhase, CurvePlant, EventsError, EventsPhase, EventsPlant, Simulated,
};
use crate::controller::whole;
use crate::{Mpl, Observation};

/// The limits for which there is a truth: from 1 to this.
const HIGHEST: u32 = 1_000;

/// Measured limits per factor of ten.
const PER_DECADE: u32 = 10;

/// Intervals of a measurement that do not count.
const WARM_UP: u32 = 20;

/// The fewest and the most intervals that do.
const MEASURED: RangeInclusive<u32> = 60..=2_000;

/// The standard error at which a measurement is good enough, as a share of the best throughput.
const PRECISION: f64 = 0.005;

/// Clients that stand for a queue that never ends.
const CROWD: u32 = HIGHEST;

/// Where the randomness of a measurement begins. The same for all limits, so that the same
/// transactions arrive, and no seed that a run is likely to be given.
const SEED: u64 = 0x7472_7574_6873;

/// A scenario as a file spells it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScenarioFile {
    /// A short name: small letters, digits and hyphens.
    pub name: String,
    /// What it is like, what it tests, and where its numbers are from.
    pub about: String,
    /// The phases of a plant that is given by its curve.
    #[serde(default)]
    pub curve: Vec<CurvePhase>,
    /// The phases of a plant that simulates every transaction.
    #[serde(default)]
    pub events: Vec<EventsPhase>,
}

/// A plant and what it goes through; every phase can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    name: String,
    about: String,
    phases: Phases,
}

#[derive(Clone, Debug, PartialEq)]
enum Phases {
    Curve(Vec<CurvePhase>),
    Events(Vec<EventsPhase>),
}

/// What makes a scenario impossible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The name does not serve as one.
    #[error("name = \"{0}\": use small letters, digits and hyphens")]
    Name(String),
    /// There is no phase, or there are phases of both kinds.
    #[error("give either [[curve]] phases or [[events]] phases")]
    Kind,
    /// A phase that is over before it begins.
    #[error("phase {phase}: intervals must be at least 1")]
    Empty {
        /// The phase, counted from 1.
        phase: usize,
    },
    /// A phase of a curve that cannot be run.
    #[error("[[curve]] phase {phase}: {source}")]
    Curve {
        /// The phase, counted from 1.
        phase: usize,
        /// What is wrong with it.
        source: CurveError,
    },
    /// Phases of a simulation that cannot be run.
    #[error("[[events]]: {0}")]
    Events(#[from] EventsError),
}

impl TryFrom<ScenarioFile> for Scenario {
    type Error = ScenarioError;

    fn try_from(file: ScenarioFile) -> Result<Scenario, ScenarioError> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if file.name.is_empty() || !file.name.chars().all(is_plain) {
            return Err(ScenarioError::Name(file.name));
        }
        let phases = match (file.curve.is_empty(), file.events.is_empty()) {
            (false, true) => Phases::Curve(file.curve),
            (true, false) => Phases::Events(file.events),
            _ => return Err(ScenarioError::Kind),
        };
        let scenario = Scenario { name: file.name, about: file.about, phases };
        scenario.check().map(|()| scenario)
    }
}

impl Scenario {
    fn check(&self) -> Result<(), ScenarioError> {
        let empty = self.intervals().iter().position(|&intervals| intervals == 0);
        if let Some(index) = empty {
            return Err(ScenarioError::Empty { phase: index + 1 });
        }
        match &self.phases {
            Phases::Curve(phases) => phases.iter().zip(1..).try_for_each(|(phase, number)| {
                phase.check().map_err(|source| ScenarioError::Curve { phase: number, source })
            }),
            Phases::Events(phases) => Ok(EventsPlant::new(phases, 0).map(drop)?),
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is like, what it tests, and where its numbers are from.
    #[must_use]
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The control intervals of each phase, at least 1 each.
    #[must_use]
    pub fn intervals(&self) -> Vec<u32> {
        match &self.phases {
            Phases::Curve(phases) => phases.iter().map(|phase| phase.intervals).collect(),
            Phases::Events(phases) => phases.iter().map(|phase| phase.intervals).collect(),
        }
    }

    /// The plant at the beginning of its first phase. All its randomness comes from `seed`.
    ///
    /// # Errors
    /// None for a scenario that was made from a file: its phases have been checked.
    pub fn start(&self, seed: u64) -> Result<Box<dyn Simulated>, ScenarioError> {
        Ok(match &self.phases {
            Phases::Curve(phases) => Box::new(CurvePlant::new(phases, seed)),
            Phases::Events(phases) => Box::new(EventsPlant::new(phases, seed)?),
        })
    }

    /// About how many control intervals are simulated for the truth about all phases; none for a
    /// curve.
    #[must_use]
    pub fn truth_intervals(&self) -> u32 {
        let limits = match &self.phases {
            Phases::Curve(_) => 0,
            Phases::Events(phases) => {
                phases.iter().map(|phase| measured_limits(phase).len()).sum::<usize>()
            }
        };
        u32::try_from(limits).unwrap_or(u32::MAX).saturating_mul(WARM_UP + 2 * MEASURED.start())
    }

    /// What each fixed limit reaches in the phase `index` alone, counted from 0; `None` beyond the
    /// last phase.
    ///
    /// # Errors
    /// None for a scenario that was made from a file.
    pub fn truth(&self, index: usize) -> Result<Option<Truth>, ScenarioError> {
        match &self.phases {
            Phases::Curve(phases) => Ok(phases.get(index).map(computed)),
            Phases::Events(phases) => {
                phases.get(index).map(|phase| measured(index + 1, phase)).transpose()
            }
        }
    }
}

/// The truth about a phase with a curve.
fn computed(phase: &CurvePhase) -> Truth {
    // In a closed system a disturbance costs half of an interval. In an open one what was not done
    // is done later.
    let undisturbed = 1.0 - phase.outliers / 2.0;
    let crowded = CurvePhase { clients: Some(CROWD), arrivals_tps: None, ..phase.clone() };
    let limits = || (1..=HIGHEST).map(Mpl::at_least_one);
    let crowded_tps = limits().map(|limit| undisturbed * crowded.expected_tps(limit));
    let arrivals = phase
        .arrivals_tps
        .map(|tps| Arrivals { tps, capacity_tps: crowded_tps.fold(0.0, f64::max) });
    let share = if arrivals.is_some() { 1.0 } else { undisturbed };
    Truth { tps: limits().map(|limit| share * phase.expected_tps(limit)).collect(), arrivals }
}

/// The truth about a phase that simulates transactions; phases are counted from 1.
fn measured(number: usize, phase: &EventsPhase) -> Result<Truth, ScenarioError> {
    let truth = Truth::along(&measured_curve(number, phase)?);
    let Some(tps) = phase.arrivals_tps else {
        return Ok(truth);
    };
    let crowded = EventsPhase { clients: Some(CROWD), arrivals_tps: None, ..phase.clone() };
    let capacity_tps = Truth::along(&measured_curve(number, &crowded)?).best().1;
    Ok(truth.with_arrivals(Arrivals { tps, capacity_tps }))
}

fn measured_curve(number: usize, phase: &EventsPhase) -> Result<Curve, ScenarioError> {
    let endless = EventsPhase { intervals: u32::MAX, ..phase.clone() };
    let mut best_tps: f64 = 0.0;
    let mut points = Vec::new();
    for limit in measured_limits(phase) {
        let tps = measured_tps(&endless, limit, best_tps)?;
        best_tps = best_tps.max(tps);
        points.push((limit.get(), tps));
    }
    Curve::new(&points).map_err(|source| ScenarioError::Curve { phase: number, source })
}

/// The limits at which a phase is measured, rising.
fn measured_limits(phase: &EventsPhase) -> Vec<Mpl> {
    let highest = phase.clients.unwrap_or(HIGHEST).clamp(1, HIGHEST);
    let exponents = (0..).map(|step| f64::from(step) / f64::from(PER_DECADE));
    let limits = exponents.map(|exponent| whole(10_f64.powf(exponent).round()));
    let mut limits: Vec<u32> = limits.take_while(|&limit| limit < highest).collect();
    limits.push(highest);
    limits.dedup();
    limits.into_iter().map(Mpl::at_least_one).collect()
}

/// Throughput of a phase at a fixed limit, above 0, because a line on logarithmic axes does not go
/// through 0.
fn measured_tps(phase: &EventsPhase, limit: Mpl, best_tps: f64) -> Result<f64, EventsError> {
    let mut plant = EventsPlant::new(std::slice::from_ref(phase), SEED)?;
    for _ in 0..WARM_UP {
        plant.interval(limit);
    }
    let mut sums = Sums::default();
    for intervals in 1..=*MEASURED.end() {
        sums.add(&plant.interval(limit));
        let is_good = sums.error_tps() <= PRECISION * best_tps.max(sums.tps());
        if intervals >= *MEASURED.start() && is_good {
            break;
        }
    }
    Ok(sums.tps())
}

/// Sums over the intervals of a measurement: of completions c and of seconds s.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    n: f64,
    c: f64,
    s: f64,
    cc: f64,
    cs: f64,
    ss: f64,
}

impl Sums {
    fn add(&mut self, seen: &Observation) {
        let (c, s) = (seen.completions as f64, seen.interval.as_secs_f64());
        self.n += 1.0;
        self.c += c;
        self.s += s;
        self.cc += c * c;
        self.cs += c * s;
        self.ss += s * s;
    }

    /// Completions per second; half a completion where there was none.
    fn tps(&self) -> f64 {
        self.c.max(0.5) / self.s
    }

    /// The standard error of the ratio of two sums, from the residuals c − tps·s.
    fn error_tps(&self) -> f64 {
        let tps = self.c / self.s;
        let residuals = self.cc - 2.0 * tps * self.cs + tps * tps * self.ss;
        residuals.max(0.0).sqrt() / self.s
    }
}

/// What comes to an open system, and what could be run of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arrivals {
    /// Arrivals per second.
    pub tps: f64,
    /// Throughput at the best limit when there is always somebody waiting, transactions per second.
    pub capacity_tps: f64,
}

/// The throughput of a phase at every fixed limit from 1 to 1,000.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Transactions per second at limit 1, 2, and so on.
    tps: Vec<f64>,
    arrivals: Option<Arrivals>,
}

impl Truth {
    /// The truth about a closed system that is `curve`, with the limit for the number inside.
    #[must_use]
    pub fn along(curve: &Curve) -> Truth {
        let limits = (1..=HIGHEST).map(f64::from);
        Truth { tps: limits.map(|limit| curve.tps(limit)).collect(), arrivals: None }
    }

    /// The same with the arrivals of an open system.
    #[must_use]
    pub fn with_arrivals(self, arrivals: Arrivals) -> Truth {
        Truth { arrivals: Some(arrivals), ..self }
    }

    /// The arrivals of an open system.
    #[must_use]
    pub fn arrivals(&self) -> Option<Arrivals> {
        self.arrivals
    }

    /// Throughput at `limit`, transactions per second; above 1,000 that of 1,000.
    #[must_use]
    pub fn tps(&self, limit: Mpl) -> f64 {
        let index = limit.get().min(HIGHEST) - 1;
        self.tps.get(index as usize).copied().unwrap_or(0.0)
    }

    /// The best fixed limit, the lowest when several are best, and its throughput.
    #[must_use]
    pub fn best(&self) -> (Mpl, f64) {
        let limits = (1..=HIGHEST).map(Mpl::at_least_one);
        let mut best = (Mpl::ONE, 0.0);
        for (limit, &tps) in limits.zip(&self.tps) {
            if tps > best.1 {
                best = (limit, tps);
            }
        }
        best
    }

    /// The lowest and the highest limit that reach at least `share` of the best throughput. Where
    /// the truth has two humps, not every limit between them does.
    #[must_use]
    pub fn band(&self, share: f64) -> RangeInclusive<Mpl> {
        let enough = share * self.best().1;
        let mut inside = (1..=HIGHEST)
            .map(Mpl::at_least_one)
            .zip(&self.tps)
            .filter_map(|(limit, &tps)| (tps >= enough).then_some(limit));
        let lowest = inside.next().unwrap_or(Mpl::ONE);
        lowest..=inside.last().unwrap_or(lowest)
    }
}
