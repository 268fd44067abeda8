//! How well a controller did on a plant: the intervals of a run against the truth of its phases.
//!
//! # What is measured
//! Every interval's throughput is taken relative to the *oracle*: the best fixed limit of its
//! phase. The *band* of a phase is the set of limits that reach 95 % of that. A phase is an
//! *entry*, a place to find, when it lasts at least 20 intervals and its band is another than the
//! one before; of a phase that lasts that long, the last half is *settled*.
//!
//! # Example
//! A phase of 20 intervals of a second, best 100 tps at a limit of 8, with 95 % from 6 on. A run is
//! four intervals at 2 (50 tps), then sixteen at 12 (100 tps). Throughput is (4·50 + 16·100) over
//! 20·100 = 90 %; the band was reached after 4 intervals; the settled limit is 12/6 = twice what is
//! needed; the worst interval has 50 %, and after the first ten 100 %.
//!
//! # Limits
//! * The noise of the plant is in the worst interval and in the swings of throughput: a perfect
//!   controller does not get 100 % and 0 there, but no controller does better than the noise.
//! * The first interval inside the band counts, also of a controller that only passes through: the
//!   share of settled intervals inside shows who stays.
//! * In an open system the oracle cannot complete more than has arrived. What an overloaded phase
//!   leaves in the queue it completes in the next, at the best throughput there is; only the whole
//!   run is compared so, while single intervals after a spike may exceed 100 %.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::{Serialize, Serializer};
use tidegate_control::Mpl;
use tidegate_control::plant::Truth;

/// The share of the best throughput that limits inside the band reach.
pub const BAND: f64 = 0.95;

/// Intervals after the beginning of a phase in which a controller may be searching.
pub const SOON: u32 = 10;

/// The shortest phase in which there is something to find and to settle at.
const ENTRY_INTERVALS: u32 = 20;

#[derive(Clone, Debug)]
pub struct ScoredPhase {
    /// How many control intervals it lasts.
    intervals: u32,
    truth: Truth,
    /// The oracle's limit and throughput.
    best: (Mpl, f64),
    /// The lowest and the highest limit inside the band.
    band: RangeInclusive<Mpl>,
    is_entry: bool,
}

/// The phases of a plant, each given by its length and its truth.
pub fn phases(truths: impl IntoIterator<Item = (u32, Truth)>) -> Vec<ScoredPhase> {
    let mut phases: Vec<ScoredPhase> = Vec::new();
    for (intervals, truth) in truths {
        let (best, band) = (truth.best(), truth.band(BAND));
        let is_new = phases.last().is_none_or(|before| before.band != band);
        let is_entry = is_new && intervals >= ENTRY_INTERVALS;
        phases.push(ScoredPhase { intervals, truth, best, band, is_entry });
    }
    phases
}

impl ScoredPhase {
    /// How many control intervals it lasts.
    pub fn intervals(&self) -> u32 {
        self.intervals
    }

    /// The best fixed limit and its throughput, transactions per second.
    pub fn best(&self) -> (Mpl, f64) {
        self.best
    }

    /// The lowest and the highest limit inside the band.
    pub fn band(&self) -> RangeInclusive<Mpl> {
        self.band.clone()
    }

    /// Whether there is something to find: see the module's head.
    pub fn is_entry(&self) -> bool {
        self.is_entry
    }

    /// What a fixed limit reaches, transactions per second.
    pub fn tps(&self, limit: Mpl) -> f64 {
        self.truth.tps(limit)
    }

    fn is_inside(&self, sample: &Sample) -> bool {
        self.truth.tps(sample.limit) >= BAND * self.best.1
    }

    /// What the oracle completes in so many seconds, and what it leaves of the `backlog` that it
    /// found and of what has arrived. A closed system has none: its clients are always the same.
    fn oracle(&self, backlog: f64, seconds: f64) -> (f64, f64) {
        let Some(arrivals) = self.truth.arrivals() else {
            return (self.best.1 * seconds, 0.0);
        };
        let supply = backlog + arrivals.tps * seconds;
        let done = supply.min(arrivals.capacity_tps * seconds);
        (done, supply - done)
    }

    /// Throughput of an interval relative to the oracle's.
    fn relative(&self, sample: &Sample) -> f64 {
        sample.completions as f64 / (self.best.1 * sample.seconds)
    }

    /// The settled part of the intervals of this phase; none of a short phase.
    fn settled<'a>(&self, samples: &'a [Sample]) -> &'a [Sample] {
        let is_long = self.intervals >= ENTRY_INTERVALS;
        if is_long { &samples[samples.len() / 2..] } else { &[] }
    }
}

/// What a score needs to know of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The limit that was in force.
    pub limit: Mpl,
    /// Transactions that ended well.
    pub completions: u64,
    pub seconds: f64,
}

/// How long it took into the band of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// After so many intervals outside.
    After(u32),
    /// Not before the phase was over.
    Never,
}

impl Serialize for Reached {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Reached::After(intervals) => serializer.serialize_u32(*intervals),
            Reached::Never => serializer.serialize_str("never"),
        }
    }
}

/// What is measured of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Completions over what the oracle expects in the same time.
    Throughput,
    /// Share of the entries whose band was reached within 10 intervals.
    Soon,
    /// Intervals until the band of an entry was reached; the whole phase where it never was.
    Intervals,
    /// Settled mean limit over the lowest inside the band.
    LimitRatio,
    /// The same as a factor above 1, whether the limit is too high or too low.
    LimitDistance,
    /// Share of settled intervals inside the band.
    Inside,
    /// The lowest relative throughput of an interval, the first 10 of each phase left out.
    WorstLate,
    /// The lowest relative throughput of any interval.
    Worst,
    /// Standard deviation of relative throughput where settled.
    ThroughputSwing,
    /// Standard deviation of the limit over its mean where settled.
    LimitSwing,
}

impl Measure {
    /// Every measure, in the order of the tables.
    pub const ALL: [Measure; 10] = [
        Measure::Throughput,
        Measure::Soon,
        Measure::Intervals,
        Measure::LimitRatio,
        Measure::LimitDistance,
        Measure::Inside,
        Measure::WorstLate,
        Measure::Worst,
        Measure::ThroughputSwing,
        Measure::LimitSwing,
    ];

    /// Which of two values is worse.
    fn worse(self, one: f64, other: f64) -> f64 {
        match self {
            Measure::Throughput
            | Measure::Soon
            | Measure::Inside
            | Measure::WorstLate
            | Measure::Worst => one.min(other),
            Measure::Intervals
            | Measure::LimitDistance
            | Measure::ThroughputSwing
            | Measure::LimitSwing => one.max(other),
            Measure::LimitRatio if libm::log(one).abs() >= libm::log(other).abs() => one,
            Measure::LimitRatio => other,
        }
    }

    /// The mean: geometric of factors, arithmetic of everything else.
    fn mean(self, values: impl Iterator<Item = f64>) -> Option<f64> {
        if matches!(self, Measure::LimitRatio | Measure::LimitDistance) {
            mean(values.map(libm::log)).map(libm::exp)
        } else {
            mean(values)
        }
    }
}

/// The measures of a run, or their means. One that does not apply is left out: there is nothing to
/// say about entries where there are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Measures(BTreeMap<Measure, f64>);

impl Measures {
    /// The value of a measure, if it applies.
    pub fn get(&self, measure: Measure) -> Option<f64> {
        self.0.get(&measure).copied()
    }

    /// A value that is not a number is none.
    fn each(value: impl Fn(Measure) -> Option<f64>) -> Measures {
        let finite = |measure| value(measure).filter(|value| value.is_finite());
        let values =
            Measure::ALL.into_iter().filter_map(|measure| Some((measure, finite(measure)?)));
        Measures(values.collect())
    }
}

/// Measures over several runs or plants, each over those where it applies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub mean: Measures,
    pub worst: Measures,
}

impl Spread {
    pub fn of(all: &[&Measures]) -> Spread {
        let values = |measure| all.iter().filter_map(move |one| one.get(measure));
        Spread {
            mean: Measures::each(|measure| measure.mean(values(measure))),
            worst: Measures::each(|measure| {
                values(measure).reduce(|one, other| measure.worse(one, other))
            }),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    pub measures: Measures,
    /// For each phase that is an entry, how soon its band was reached.
    pub entries: Vec<Reached>,
}

impl Score {
    /// The score of the intervals of a run through `phases`; intervals beyond the last phase do not
    /// count.
    pub fn of(phases: &[ScoredPhase], samples: &[Sample]) -> Score {
        let parts = parts(phases, samples);
        let entered: Vec<(u32, Reached)> = parts
            .iter()
            .filter(|(phase, _)| phase.is_entry)
            .map(|(phase, samples)| (phase.intervals, reached(phase, samples)))
            .collect();
        let measures = Measures::each(|measure| measured(measure, &parts, &entered));
        Score { measures, entries: entered.into_iter().map(|(_, reached)| reached).collect() }
    }
}

type Part<'a> = (&'a ScoredPhase, &'a [Sample]);

fn parts<'a>(phases: &'a [ScoredPhase], samples: &'a [Sample]) -> Vec<Part<'a>> {
    let mut rest = samples;
    let mut parts = Vec::with_capacity(phases.len());
    for phase in phases {
        let (own, after) = rest.split_at((phase.intervals as usize).min(rest.len()));
        parts.push((phase, own));
        rest = after;
    }
    parts
}

/// How soon the band of a phase was reached.
fn reached(phase: &ScoredPhase, samples: &[Sample]) -> Reached {
    let inside = (0..).zip(samples).find(|(_, sample)| phase.is_inside(sample));
    inside.map_or(Reached::Never, |(intervals, _)| Reached::After(intervals))
}

fn measured(measure: Measure, parts: &[Part<'_>], entered: &[(u32, Reached)]) -> Option<f64> {
    match measure {
        Measure::Throughput => throughput(parts),
        Measure::Soon => mean(entered.iter().map(|&(_, reached)| match reached {
            Reached::After(intervals) if intervals <= SOON => 1.0,
            _ => 0.0,
        })),
        Measure::Intervals => mean(entered.iter().map(|&(whole, reached)| match reached {
            Reached::After(intervals) => f64::from(intervals),
            Reached::Never => f64::from(whole),
        })),
        Measure::LimitRatio => mean(limit_ratios(parts).map(libm::log)).map(libm::exp),
        Measure::LimitDistance => {
            mean(limit_ratios(parts).map(|ratio| libm::log(ratio).abs())).map(libm::exp)
        }
        Measure::Inside => mean(settled(parts).flat_map(|(phase, samples)| {
            samples.iter().map(|sample| if phase.is_inside(sample) { 1.0 } else { 0.0 })
        })),
        Measure::WorstLate => lowest(parts, SOON as usize),
        Measure::Worst => lowest(parts, 0),
        Measure::ThroughputSwing => mean(settled(parts).filter_map(|(phase, samples)| {
            deviation(samples.iter().map(|sample| phase.relative(sample)))
        })),
        Measure::LimitSwing => mean(settled(parts).filter_map(|(_, samples)| {
            let limits = samples.iter().map(|sample| f64::from(sample.limit.get()));
            Some(deviation(limits.clone())? / mean(limits)?)
        })),
    }
}

/// Completions over those the oracle expects in the same time.
fn throughput(parts: &[Part<'_>]) -> Option<f64> {
    let (mut completions, mut expected, mut backlog) = (0.0, 0.0, 0.0);
    for (phase, samples) in parts {
        let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
        completions += samples.iter().map(|sample| sample.completions as f64).sum::<f64>();
        let (done, left) = phase.oracle(backlog, seconds);
        expected += done;
        backlog = left;
    }
    (expected > 0.0).then_some(completions / expected)
}

/// The settled parts of all phases that have one.
fn settled<'a>(parts: &'a [Part<'a>]) -> impl Iterator<Item = Part<'a>> {
    let settled = parts.iter().map(|&(phase, samples)| (phase, phase.settled(samples)));
    settled.filter(|(_, samples)| !samples.is_empty())
}

/// The mean limit of each settled part over the lowest limit inside the band.
fn limit_ratios<'a>(parts: &'a [Part<'a>]) -> impl Iterator<Item = f64> {
    settled(parts).filter_map(|(phase, samples)| {
        let limits = samples.iter().map(|sample| f64::from(sample.limit.get()));
        Some(mean(limits)? / f64::from(phase.band.start().get()))
    })
}

/// The lowest relative throughput, the first `skipped` intervals of each phase left out.
fn lowest(parts: &[Part<'_>], skipped: usize) -> Option<f64> {
    let relative = parts.iter().flat_map(|(phase, samples)| {
        samples.iter().skip(skipped).map(|sample| phase.relative(sample))
    });
    relative.reduce(f64::min)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0_u64);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}

/// Standard deviation of the population.
fn deviation(values: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let mean_value = mean(values.clone())?;
    mean(values.map(|value| (value - mean_value).powi(2))).map(f64::sqrt)
}
