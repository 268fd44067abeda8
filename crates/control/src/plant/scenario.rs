//! What a plant goes through, phase by phase, and what the best fixed limit would reach in each.
//!
//! A [`Scenario`] is a plant of one kind: a throughput curve, or a simulation of every transaction.
//! Its phases follow each other without a pause: the workload switches, clients come and go.
//!
//! # The truth about a phase
//! A controller is judged against the best that a fixed limit gives, so the throughput of a phase is
//! needed at every limit: its [`Truth`]. For a curve it is computed. For a simulation of
//! transactions it is measured: the phase alone, from an empty database, at the 28 whole numbers
//! nearest to powers of 10^(1/10) from 1 to 1,000; the first intervals are left out, the others
//! averaged, and between two of these limits the throughput lies on a straight line when both axes
//! are logarithmic, as on a [`Curve`].
//!
//! # Example
//! Measured 100 tps at 10 and 200 tps at 40: at 20, the middle on a logarithmic axis, the truth is
//! 141 tps. The best is 200 tps at 40, and the lowest limit with 95 % of it is 37:
//! 100·√3.7 = 192, where 36 gives 190 less a little.
//!
//! # Limits
//! * What is measured has an error, and the best of 28 measured limits errs upward: with an error
//!   of 0.5 % for each and a flat top, by about 1 %.
//! * A phase alone says nothing of what it inherits from the one before: a queue, a thrashing
//!   database. The best fixed limit has that to bear too, but is not charged for it.

use std::ops::RangeInclusive;

use serde::Deserialize;

use super::{
    Curve, CurveError, CurvePhase, CurvePlant, EventsError, EventsPhase, EventsPlant, Simulated,
};
use crate::Mpl;
use crate::controller::whole;

/// The limits for which there is a truth: from 1 to this.
const HIGHEST: u32 = 1_000;

/// Measured limits per factor of ten.
const PER_DECADE: u32 = 10;

/// Intervals of a measurement that do not count, and those that do.
const WARM_UP: u32 = 20;
const MEASURED: u32 = 200;

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

    /// Control intervals that are simulated for the truth about all phases; none for a curve.
    #[must_use]
    pub fn truth_intervals(&self) -> u32 {
        let limits = measured_limits().len();
        let measurements = match &self.phases {
            Phases::Curve(_) => 0,
            Phases::Events(phases) => phases.len() * limits,
        };
        u32::try_from(measurements).unwrap_or(u32::MAX).saturating_mul(WARM_UP + MEASURED)
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
    let share = if phase.clients.is_some() { 1.0 - phase.outliers / 2.0 } else { 1.0 };
    let limits = (1..=HIGHEST).map(Mpl::at_least_one);
    Truth { tps: limits.map(|limit| share * phase.expected_tps(limit)).collect() }
}

/// The truth about a phase that simulates transactions.
fn measured(number: usize, phase: &EventsPhase) -> Result<Truth, ScenarioError> {
    let endless = EventsPhase { intervals: u32::MAX, ..phase.clone() };
    let mut points = Vec::new();
    for limit in measured_limits() {
        let mut plant = EventsPlant::new(std::slice::from_ref(&endless), SEED)?;
        for _ in 0..WARM_UP {
            plant.interval(limit);
        }
        let (mut completions, mut seconds) = (0, 0.0);
        for _ in 0..MEASURED {
            let observation = plant.interval(limit);
            completions += observation.completions;
            seconds += observation.interval.as_secs_f64();
        }
        // A line on logarithmic axes does not go through 0.
        points.push((limit.get(), (completions as f64).max(0.5) / seconds));
    }
    let curve =
        Curve::new(&points).map_err(|source| ScenarioError::Curve { phase: number, source })?;
    Ok(Truth::along(&curve))
}

/// The limits at which a phase is measured, rising.
fn measured_limits() -> Vec<Mpl> {
    let exponents = (0..).map(|step| f64::from(step) / f64::from(PER_DECADE));
    let limits = exponents.map(|exponent| whole(10_f64.powf(exponent).round()));
    let mut limits: Vec<u32> = limits.take_while(|&limit| limit <= HIGHEST).collect();
    limits.dedup();
    limits.into_iter().map(Mpl::at_least_one).collect()
}

/// The throughput of a phase at every fixed limit from 1 to 1,000.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Transactions per second at limit 1, 2, and so on.
    tps: Vec<f64>,
}

impl Truth {
    /// The truth that is `curve`, with the limit for the number of transactions inside.
    #[must_use]
    pub fn along(curve: &Curve) -> Truth {
        Truth { tps: (1..=HIGHEST).map(|limit| curve.tps(f64::from(limit))).collect() }
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
