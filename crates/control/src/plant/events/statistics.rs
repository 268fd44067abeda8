//! What is observed in a control interval.

use std::time::Duration;

use crate::{ClassObservation, LockObservation, Mpl, Observation, Timing};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TransactionEnd {
    Completed,
    Failed,
}

/// What one class did, as a gate counts it: time in the queue of those that were granted a permit,
/// time in the database of those that ended. The buffers are used again.
#[derive(Clone, Debug, Default)]
struct PlantTally {
    completions: u64,
    failures: u64,
    in_database_s: Vec<f64>,
    in_queue_s: Vec<f64>,
}

impl PlantTally {
    fn clear(&mut self) {
        self.completions = 0;
        self.failures = 0;
        self.in_database_s.clear();
        self.in_queue_s.clear();
    }

    fn add(&mut self, other: &PlantTally) {
        self.completions += other.completions;
        self.failures += other.failures;
        self.in_database_s.extend_from_slice(&other.in_database_s);
        self.in_queue_s.extend_from_slice(&other.in_queue_s);
    }

    fn observation(&mut self) -> ClassObservation {
        ClassObservation {
            completions: self.completions,
            failures: self.failures,
            in_database: timing(&mut self.in_database_s),
            in_queue: timing(&mut self.in_queue_s),
            ..ClassObservation::default()
        }
    }
}

/// The population of the gate.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlantPopulation {
    /// Permits that count against the limit.
    pub(super) running: u32,
    /// Permits out that do not.
    pub(super) discounted: u32,
    pub(super) waiting: u32,
}

impl PlantPopulation {
    pub(super) fn concurrency(self) -> u32 {
        self.running + self.waiting
    }
}

/// The measurements of the current interval.
#[derive(Clone, Debug)]
pub(super) struct PlantMeter {
    classes: Vec<PlantTally>,
    together: PlantTally,
    completions: u64,
    length_s: f64,
    peak: u32,
    /// Integrals over time of the concurrency, of the permits out, and of whether anybody waited.
    concurrency_s: f64,
    running_s: f64,
    discounted_s: f64,
    waiting_s: f64,
}

impl PlantMeter {
    pub(super) fn new(classes: usize) -> PlantMeter {
        PlantMeter {
            classes: vec![PlantTally::default(); classes],
            together: PlantTally::default(),
            completions: 0,
            length_s: 0.0,
            peak: 0,
            concurrency_s: 0.0,
            running_s: 0.0,
            discounted_s: 0.0,
            waiting_s: 0.0,
        }
    }

    /// Starts an interval with nothing measured yet.
    pub(super) fn clear(&mut self, population: PlantPopulation) {
        self.classes.iter_mut().for_each(PlantTally::clear);
        self.completions = 0;
        self.length_s = 0.0;
        self.peak = population.concurrency();
        (self.concurrency_s, self.running_s) = (0.0, 0.0);
        (self.discounted_s, self.waiting_s) = (0.0, 0.0);
    }

    /// Completions of the interval so far.
    pub(super) fn completions(&self) -> u64 {
        self.completions
    }

    /// The population stayed what it is for so long.
    pub(super) fn pass(&mut self, seconds: f64, population: PlantPopulation) {
        self.length_s += seconds;
        self.concurrency_s += seconds * f64::from(population.concurrency());
        self.running_s += seconds * f64::from(population.running);
        self.discounted_s += seconds * f64::from(population.discounted);
        self.waiting_s += if population.waiting > 0 { seconds } else { 0.0 };
    }

    /// A transaction arrived.
    pub(super) fn arrived(&mut self, population: PlantPopulation) {
        self.peak = self.peak.max(population.concurrency());
    }

    /// A transaction arrived and was not let in.
    pub(super) fn turned_away(&mut self, class: usize) {
        self.classes[class].failures += 1;
    }

    /// A permit was granted.
    pub(super) fn granted(&mut self, class: usize, in_queue_s: f64) {
        self.classes[class].in_queue_s.push(in_queue_s);
    }

    /// A permit came back; the time in the database is left out if the permit was discounted.
    pub(super) fn ended(
        &mut self,
        class: usize,
        outcome: TransactionEnd,
        in_database_s: Option<f64>,
    ) {
        let tally = &mut self.classes[class];
        tally.in_database_s.extend(in_database_s);
        match outcome {
            TransactionEnd::Completed => {
                tally.completions += 1;
                self.completions += 1;
            }
            TransactionEnd::Failed => tally.failures += 1,
        }
    }

    /// The interval as a gate reports it, at its end.
    pub(super) fn observation(
        &mut self,
        limit: Mpl,
        population: PlantPopulation,
        locks: Option<LockObservation>,
    ) -> Observation {
        let (together, classes) = self.totals();
        let mean = |integral: f64| if self.length_s > 0.0 { integral / self.length_s } else { 0.0 };
        Observation {
            running: population.running,
            discounted: population.discounted,
            discounted_mean: mean(self.discounted_s),
            concurrency: population.concurrency(),
            concurrency_peak: self.peak,
            concurrency_mean: mean(self.concurrency_s),
            running_mean: mean(self.running_s),
            waiting_share: mean(self.waiting_s).min(1.0),
            completions: together.completions,
            failures: together.failures,
            in_database: together.in_database,
            in_queue: together.in_queue,
            locks,
            classes,
            ..Observation::empty(Duration::from_secs_f64(self.length_s), limit)
        }
    }

    fn totals(&mut self) -> (ClassObservation, Vec<ClassObservation>) {
        let classes: Vec<ClassObservation> =
            self.classes.iter_mut().map(PlantTally::observation).collect();
        if let [only] = classes[..] {
            return (only, classes);
        }
        self.together.clear();
        for class in &self.classes {
            self.together.add(class);
        }
        (self.together.observation(), classes)
    }
}

/// What `durations`, in seconds, have to tell; they are reordered.
fn timing(durations: &mut [f64]) -> Timing {
    if durations.is_empty() {
        return Timing::default();
    }
    let count = durations.len();
    let mean_s = durations.iter().sum::<f64>() / count as f64;
    let squares_s2: f64 = durations.iter().map(|duration| (duration - mean_s).powi(2)).sum();
    let p99_s = quantile(durations, 99);
    let p95_s = quantile(durations, 95);
    let p50_s = quantile(durations, 50);
    Timing {
        count: count as u64,
        mean_s,
        variance_s2: squares_s2 / count as f64,
        min_s: durations.iter().copied().fold(f64::INFINITY, f64::min),
        p50_s,
        p95_s,
        p99_s,
    }
}

/// The smallest of `durations`, not empty, that at least `per_cent` of them do not exceed.
fn quantile(durations: &mut [f64], per_cent: usize) -> f64 {
    let rank = (durations.len() * per_cent).div_ceil(100) - 1;
    *durations.select_nth_unstable_by(rank, f64::total_cmp).1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers 1 to 200 in disorder: 7 has no factor in common with 211.
    #[test]
    fn a_timing_is_what_its_fields_say() {
        let numbers = (1..211).map(|index| f64::from(index * 7 % 211));
        let mut durations: Vec<f64> = numbers.filter(|&number| number <= 200.0).collect();
        let timing = timing(&mut durations);
        let got = [timing.min_s, timing.p50_s, timing.p95_s, timing.p99_s, timing.mean_s];
        assert_eq!(
            got.map(|value| format!("{value:.1}")),
            ["1.0", "100.0", "190.0", "198.0", "100.5"]
        );
        // (n² − 1)/12 for the numbers 1 to n.
        assert!((timing.variance_s2 - 39_999.0 / 12.0).abs() < 1e-9);
        assert_eq!(timing.count, 200);
        assert_eq!(super::timing(&mut []), Timing::default());
    }

    /// Two seconds with 3 running, then one with 3 running and 1 waiting.
    #[test]
    fn means_are_over_time() {
        let mut meter = PlantMeter::new(2);
        let calm = PlantPopulation { running: 3, discounted: 0, waiting: 0 };
        let busy = PlantPopulation { discounted: 6, waiting: 1, ..calm };
        meter.clear(calm);
        meter.pass(2.0, calm);
        meter.arrived(PlantPopulation { waiting: 4, ..calm });
        meter.pass(1.0, busy);
        meter.granted(1, 0.5);
        meter.ended(1, TransactionEnd::Completed, Some(2.0));
        meter.ended(0, TransactionEnd::Failed, Some(4.0));
        meter.ended(1, TransactionEnd::Completed, None);
        meter.turned_away(0);
        let seen = meter.observation(Mpl::at_least_one(3), busy, None);
        let close = |left: f64, right: f64| (left - right).abs() < 1e-12;
        assert!(close(seen.concurrency_mean, 10.0 / 3.0) && close(seen.running_mean, 3.0));
        assert!(close(seen.waiting_share, 1.0 / 3.0) && close(seen.in_database.mean_s, 3.0));
        assert_eq!((seen.concurrency, seen.concurrency_peak), (4, 7));
        assert!(close(seen.discounted_mean, 2.0) && seen.discounted == 6);
        assert_eq!((seen.completions, seen.failures, seen.in_queue.count), (2, 2, 1));
        assert_eq!((seen.classes[0].failures, seen.classes[1].completions), (2, 2));
        assert_eq!(seen.interval, Duration::from_secs(3));
    }
}
