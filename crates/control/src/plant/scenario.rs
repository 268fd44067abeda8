//! What a plant goes through, phase by phase, and what the best fixed limit would reach in each.
//!
//! A [`Scenario`] is a plant of one kind: a throughput curve, or a simulation of every transaction.
//! Its phases follow each other without a pause: the workload switches, clients come and go.
//!
//! # The truth about a phase
//! A controller is judged against the best that a fixed limit gives, so the throughput of a phase
//! is needed at every limit: its [`Truth`]. For a curve it is computed. For a simulation of
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
    Curve, CurveError, CurvePhase, CurvePlant, EventsError, EventsPhase, EventsPlant, SharingError,
    SharingPhase, SharingPlant, Simulated,
};
use crate::controller::whole;
use crate::{Mpl, Observation};

/// The limits for which there is a truth: from 1 to this.
pub(super) const HIGHEST: u32 = 1_000;

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
pub(super) const SEED: u64 = 0x7472_7574_6873;

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
    /// The phases of a plant whose transactions share the throughput of a curve.
    #[serde(default)]
    pub sharing: Vec<SharingPhase>,
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
    Sharing(Vec<SharingPhase>),
}

/// What makes a scenario impossible.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The name does not serve as one.
    #[error("name = \"{0}\": use small letters, digits and hyphens")]
    Name(String),
    /// There is no phase, or there are phases of several kinds.
    #[error("give either [[curve]] phases or [[events]] phases or [[sharing]] phases")]
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
    /// A phase of a sharing plant that cannot be run.
    #[error("[[sharing]] phase {phase}: {source}")]
    Sharing {
        /// The phase, counted from 1.
        phase: usize,
        /// What is wrong with it.
        source: SharingError,
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
        let missing = [file.curve.is_empty(), file.events.is_empty(), file.sharing.is_empty()];
        let phases = match missing {
            [false, true, true] => Phases::Curve(file.curve),
            [true, false, true] => Phases::Events(file.events),
            [true, true, false] => Phases::Sharing(file.sharing),
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
            Phases::Sharing(phases) => phases.iter().zip(1..).try_for_each(|(phase, number)| {
                phase.check().map_err(|source| ScenarioError::Sharing { phase: number, source })
            }),
        }
    }

    /// The same plant with residence times and noise by tick, if it is given by a curve; others
    /// are as they were.
    #[must_use]
    pub fn by_tick(&self) -> Scenario {
        let phases = match &self.phases {
            Phases::Curve(phases) => {
                Phases::Sharing(phases.iter().map(SharingPhase::of_curve).collect())
            }
            other => other.clone(),
        };
        Scenario { phases, ..self.clone() }
    }

    /// Whether the plant is observed by ticks, of which each controller takes as many as it wants.
    #[must_use]
    pub fn is_by_tick(&self) -> bool {
        matches!(self.phases, Phases::Sharing(_))
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

    /// The control intervals of each phase, at least 1 each; of a sharing plant, its seconds.
    #[must_use]
    pub fn intervals(&self) -> Vec<u32> {
        match &self.phases {
            Phases::Curve(phases) => phases.iter().map(|phase| phase.intervals).collect(),
            Phases::Events(phases) => phases.iter().map(|phase| phase.intervals).collect(),
            Phases::Sharing(phases) => {
                phases.iter().map(|phase| whole(phase.seconds.ceil()).max(1)).collect()
            }
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
            Phases::Sharing(phases) => Box::new(SharingPlant::new(phases, seed)),
        })
    }

    /// About how many control intervals are simulated for the truth about all phases; none for a
    /// curve.
    #[must_use]
    pub fn truth_intervals(&self) -> u32 {
        let limits = match &self.phases {
            Phases::Curve(_) | Phases::Sharing(_) => 0,
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
            Phases::Sharing(phases) => Ok(phases.get(index).map(SharingPhase::truth)),
            Phases::Events(phases) => {
                phases.get(index).map(|phase| measured(index + 1, phase)).transpose()
            }
        }
    }
}

/// The truth about a phase with a curve.
fn computed(phase: &CurvePhase) -> Truth {
    let limits = || (1..=HIGHEST).map(Mpl::at_least_one);
    let crowded = CurvePhase { clients: Some(CROWD), arrivals_tps: None, ..phase.clone() };
    let arrivals = phase.arrivals_tps.map(|tps| Arrivals {
        tps,
        capacity_tps: limits().map(|limit| crowded.expected_tps(limit)).fold(0.0, f64::max),
    });
    Truth { tps: limits().map(|limit| phase.expected_tps(limit)).collect(), arrivals }
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
    let limits = exponents.map(|exponent| whole(libm::pow(10.0, exponent).round()));
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
    let mut sums = MeasurementSums::default();
    for intervals in 1..=*MEASURED.end() {
        sums.add(&plant.interval(limit));
        let is_good = sums.error_tps() <= PRECISION * best_tps.max(sums.tps());
        if intervals >= *MEASURED.start() && is_good {
            break;
        }
    }
    Ok(sums.tps())
}

/// Sums over the intervals of a measurement.
#[derive(Clone, Copy, Debug, Default)]
struct MeasurementSums {
    completions: f64,
    seconds: f64,
    /// Of completions squared, completions times seconds, and seconds squared.
    squares: [f64; 3],
}

impl MeasurementSums {
    fn add(&mut self, seen: &Observation) {
        let (completions, seconds) = (seen.completions as f64, seen.interval.as_secs_f64());
        self.completions += completions;
        self.seconds += seconds;
        self.squares[0] += completions * completions;
        self.squares[1] += completions * seconds;
        self.squares[2] += seconds * seconds;
    }

    /// Completions per second; of half a completion where there was none.
    fn tps(&self) -> f64 {
        self.completions.max(0.5) / self.seconds
    }

    /// The standard error of the throughput as a ratio of two sums: from the residuals
    /// completions − tps·seconds of the intervals.
    fn error_tps(&self) -> f64 {
        let tps = self.completions / self.seconds;
        let [completions, products, seconds] = self.squares;
        let residuals = completions - 2.0 * tps * products + tps * tps * seconds;
        residuals.max(0.0).sqrt() / self.seconds
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
    /// Throughputs at the limits 1, 2 and so on, and what arrives.
    pub(super) fn of(tps: Vec<f64>, arrivals: Option<Arrivals>) -> Truth {
        Truth { tps, arrivals }
    }

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
        self.tps[index as usize]
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
    ///
    /// # Panics
    /// If `share` is above 1.
    #[must_use]
    pub fn band(&self, share: f64) -> RangeInclusive<Mpl> {
        let enough = share * self.best().1;
        let mut inside = (1..=HIGHEST)
            .map(Mpl::at_least_one)
            .zip(&self.tps)
            .filter_map(|(limit, &tps)| (tps >= enough).then_some(limit));
        let lowest = inside.next().expect("the best limit is in the band");
        lowest..=inside.last().unwrap_or(lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plant::{CurveClass, TransactionClass};
    use crate::testing::assert_near;

    fn mpl(limit: u32) -> Mpl {
        Mpl::at_least_one(limit)
    }

    fn hill() -> CurvePhase {
        let curve = Curve::new(&[(10, 100.0), (40, 200.0), (160, 50.0)]).expect("a curve");
        CurvePhase { intervals: 5, ..CurvePhase::closed(curve, 1_000, 0.0) }
    }

    /// Two processors, a transaction takes 10 ms of one.
    fn processors() -> EventsPhase {
        let class = TransactionClass { steps: 1, cpu_ms: 10.0, ..TransactionClass::default() };
        EventsPhase {
            intervals: 5,
            clients: Some(20),
            cpus: 2,
            classes: vec![class],
            ..EventsPhase::default()
        }
    }

    fn file(curve: &[CurvePhase], events: &[EventsPhase]) -> ScenarioFile {
        ScenarioFile {
            name: "a-plant".into(),
            about: "for a test".into(),
            sharing: Vec::new(),
            curve: curve.to_vec(),
            events: events.to_vec(),
        }
    }

    fn scenario(curve: &[CurvePhase], events: &[EventsPhase]) -> Scenario {
        Scenario::try_from(file(curve, events)).expect("a scenario")
    }

    fn truth(scenario: &Scenario, phase: usize) -> Truth {
        scenario.truth(phase).expect("a sound phase").expect("a phase")
    }

    /// The example of the module's head. On the far side throughput falls by four over a factor of
    /// four, so 190 tps is at 42.1.
    #[test]
    fn the_truth_about_a_curve_is_the_curve() {
        let truth = truth(&scenario(&[hill()], &[]), 0);
        assert_near(truth.tps(mpl(20)), 100.0 * 2.0_f64.sqrt());
        assert_near(truth.tps(mpl(5_000)), 50.0);
        assert_eq!(truth.best(), (mpl(40), 200.0));
        assert_eq!(truth.band(0.95), mpl(37)..=mpl(42));
        assert_eq!(truth.arrivals(), None);
    }

    #[test]
    fn between_two_humps_the_band_has_a_gap() {
        let curve = Curve::new(&[(5, 96.0), (20, 50.0), (80, 100.0), (81, 10.0)]).expect("a curve");
        let truth = Truth::along(&curve);
        assert_eq!(truth.band(0.95), mpl(1)..=mpl(80));
        assert!(truth.tps(mpl(20)) < 95.0);
    }

    /// A fifth of the intervals lose half: 90 % are left. What arrives is less than that, and half
    /// of the demand makes twice the capacity.
    #[test]
    fn disturbances_and_arrivals_are_part_of_the_truth() {
        let disturbed = CurvePhase { outliers: 0.2, ..hill() };
        let open = CurvePhase {
            clients: None,
            arrivals_tps: Some(120.0),
            classes: vec![CurveClass { share: 1.0, demand: 0.5 }],
            ..disturbed.clone()
        };
        let scenario = scenario(&[disturbed, open], &[]);
        assert_near(truth(&scenario, 0).best().1, 180.0);
        let open = truth(&scenario, 1);
        assert_near(open.tps(mpl(200)), 120.0);
        let arrivals = open.arrivals().expect("an open system");
        assert_near(arrivals.tps, 120.0);
        assert_near(arrivals.capacity_tps, 360.0);
        assert_eq!(scenario.truth(2), Ok(None));
    }

    /// One transaction runs at 100 a second, two and more at 200.
    #[test]
    fn the_truth_about_a_simulation_is_measured() {
        let scenario = scenario(&[], &[processors()]);
        let truth = truth(&scenario, 0);
        for (limit, expected) in [(1, 100.0), (2, 200.0), (13, 200.0), (1_000, 200.0)] {
            let tps = truth.tps(mpl(limit));
            assert!((tps / expected - 1.0).abs() < 0.02, "{tps} at {limit}");
        }
        assert_eq!(*truth.band(0.95).start(), mpl(2));
        assert_eq!(scenario.truth(0), Ok(Some(truth)), "the same each time");
    }

    #[test]
    fn the_capacity_of_a_simulated_open_system_is_measured_too() {
        let open = EventsPhase { clients: None, arrivals_tps: Some(60.0), ..processors() };
        let truth = truth(&scenario(&[], &[open]), 0);
        let arrivals = truth.arrivals().expect("an open system");
        assert!((truth.best().1 / 60.0 - 1.0).abs() < 0.03, "{:?}", truth.best());
        assert!((arrivals.capacity_tps / 200.0 - 1.0).abs() < 0.02, "{arrivals:?}");
    }

    #[test]
    fn limits_are_measured_evenly_up_to_the_clients() {
        let limits = |clients| {
            let phase = EventsPhase { clients, ..processors() };
            measured_limits(&phase).into_iter().map(Mpl::get).collect::<Vec<_>>()
        };
        assert_eq!(limits(Some(1)), [1]);
        assert_eq!(limits(Some(10)), [1, 2, 3, 4, 5, 6, 8, 10]);
        assert_eq!(limits(Some(11)), [1, 2, 3, 4, 5, 6, 8, 10, 11]);
        assert_eq!(limits(None).len(), 28);
        assert_eq!(limits(Some(5_000)).last(), Some(&1_000));
    }

    /// Rates 1, 2 and 3 in three intervals of a second: residuals −1, 0 and 1, so √2/3.
    #[test]
    fn the_error_of_a_measurement_comes_from_its_residuals() {
        let mut sums = MeasurementSums::default();
        for completions in 1..=3 {
            sums.add(&crate::testing::observed(1, 1, completions));
        }
        assert_near(sums.tps(), 2.0);
        assert_near(sums.error_tps(), 2.0_f64.sqrt() / 3.0);
        assert_near(MeasurementSums { seconds: 4.0, ..MeasurementSums::default() }.tps(), 0.125);
    }

    #[test]
    fn a_scenario_runs_through_its_phases() {
        let few = CurvePhase { clients: Some(10), intervals: 2, ..hill() };
        let scenario = scenario(&[few, hill()], &[]);
        assert_eq!(scenario.intervals(), [2, 5]);
        let mut plant = scenario.start(1).expect("a plant");
        let concurrency = [(); 3].map(|()| plant.interval(mpl(40)).concurrency);
        assert_eq!(concurrency, [10, 10, 1_000]);
    }

    #[test]
    fn what_cannot_be_run_is_refused_with_the_place() {
        let named = |name: &str| ScenarioFile { name: name.into(), ..file(&[hill()], &[]) };
        let no_load = CurvePhase { clients: None, ..hill() };
        let empty = CurvePhase { intervals: 0, ..hill() };
        let no_class = EventsPhase { classes: Vec::new(), ..processors() };
        for (file, expected) in [
            (named(""), "name = \"\": use small letters, digits and hyphens"),
            (named("Two Words"), "name = \"Two Words\": use"),
            (file(&[], &[]), "either [[curve]] phases or [[events]] phases"),
            (file(&[hill()], &[processors()]), "either [[curve]] phases or [[events]] phases"),
            (file(&[hill(), empty], &[]), "phase 2: intervals must be at least 1"),
            (file(&[hill(), no_load], &[]), "[[curve]] phase 2: give either clients"),
            (file(&[], &[no_class]), "[[events]]: phase 1 has no class"),
        ] {
            let error = Scenario::try_from(file).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
