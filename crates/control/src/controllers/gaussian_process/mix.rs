//! Makes the throughput of a changing mix of classes comparable.
//!
//! A transaction that works ten times as long counts as ten. What a class costs is seen in the time
//! it spends in the database next to that of the other classes in the same interval: a slow
//! interval is slow for all of them, so the ratio does not depend on the limit. Costs are relative
//! to one class, which keeps cost 1, so that a change of the mix does not move the unit.

use crate::Observation;

/// Classes told apart; the others count as the first.
const CLASSES: usize = 8;

/// Completions of a class in an interval from which its cost is learnt.
const ENOUGH: u64 = 10;

/// Weight of an interval in the mean of costs, once there were several.
const WEIGHT: f64 = 0.03;

/// Share of the work that must change hands for the mix to be another one.
const SHIFT: f64 = 0.25;

/// Weight of an interval in the recent shares of work.
const RECENT_WEIGHT: f64 = 0.3;

/// Weight of an interval in the usual ones.
const USUAL_WEIGHT: f64 = 0.03;

/// Costs are at most a million times one another.
const COST_LOG_MAX: f64 = 14.0;

/// What transactions of each class cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassMix {
    /// The class whose cost is 1.
    unit: Option<usize>,
    /// Logarithm of the cost, and the intervals it was learnt from.
    costs: [(f64, u32); CLASSES],
    /// Share of the work that each class had in the last intervals, old ones faded.
    recent: [f64; CLASSES],
    /// The same over a longer time; none yet is 0 for all.
    usual: [f64; CLASSES],
}

impl ClassMix {
    /// Completed work per second, in transactions of the unit class; learns the costs first.
    pub(super) fn throughput(&mut self, observation: &Observation) -> f64 {
        self.learn(observation);
        let seconds = observation.interval.as_secs_f64();
        let work: f64 = self.works(observation).iter().sum();
        if work > 0.0 && seconds > 0.0 { work / seconds } else { observation.throughput_tps() }
    }

    /// Whether the classes now share the work otherwise than before; begins anew when they do.
    pub(super) fn has_shifted(&mut self, observation: &Observation) -> bool {
        let works = self.works(observation);
        let total: f64 = works.iter().sum();
        if total <= 0.0 || observation.completions < ENOUGH {
            return false;
        }
        let is_first = self.usual.iter().sum::<f64>() <= 0.0;
        let (fast, slow) = if is_first { (1.0, 1.0) } else { (RECENT_WEIGHT, USUAL_WEIGHT) };
        for (index, work) in works.iter().enumerate() {
            self.recent[index] += fast * (work / total - self.recent[index]);
            self.usual[index] += slow * (work / total - self.usual[index]);
        }
        let pairs = self.recent.iter().zip(&self.usual);
        let moved: f64 = pairs.map(|(recent, usual)| (recent - usual).abs() / 2.0).sum();
        if moved > SHIFT {
            self.usual = self.recent;
        }
        moved > SHIFT
    }

    /// Completed work of each class.
    fn works(&self, observation: &Observation) -> [f64; CLASSES] {
        let mut works = [0.0; CLASSES];
        for (index, class) in observation.classes.iter().enumerate() {
            let at = if index < CLASSES { index } else { 0 };
            works[at] += class.completions as f64 * self.cost(index);
        }
        works
    }

    fn cost(&self, class: usize) -> f64 {
        self.costs.get(class).map_or(1.0, |(log, _)| libm::exp(*log))
    }

    fn learn(&mut self, observation: &Observation) {
        let seen = |index: usize| {
            let class = observation.classes.get(index)?;
            let mean_s = class.in_database.mean_s;
            (class.completions >= ENOUGH && mean_s > 0.0 && mean_s.is_finite()).then_some(mean_s)
        };
        let first = (0..CLASSES).find(|&index| seen(index).is_some());
        let Some(unit) = self.unit.or(first) else { return };
        self.unit = Some(unit);
        let Some(unit_s) = seen(unit) else { return };
        for (index, (log, intervals)) in self.costs.iter_mut().enumerate() {
            if let Some(mean_s) = seen(index).filter(|_| index != unit) {
                *intervals = intervals.saturating_add(1);
                let weight = WEIGHT.max(1.0 / f64::from(*intervals));
                let cost = libm::log(mean_s / unit_s).clamp(-COST_LOG_MAX, COST_LOG_MAX);
                *log += weight * (cost - *log);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, observed};
    use crate::{ClassObservation, Timing};

    fn seen(classes: &[(u64, f64)]) -> Observation {
        let class = |&(completions, mean_s): &(u64, f64)| ClassObservation {
            completions,
            in_database: Timing { count: completions, mean_s, ..Timing::default() },
            ..ClassObservation::default()
        };
        let completions = classes.iter().map(|(completions, _)| completions).sum();
        Observation {
            classes: classes.iter().map(class).collect(),
            ..observed(10, 100, completions)
        }
    }

    /// Long transactions cost ten: 900 + 10·10 = 1,000 a second, and so do 100 + 10·90.
    #[test]
    fn a_burst_of_long_transactions_is_the_same_work() {
        let mut mix = ClassMix::default();
        assert_near(mix.throughput(&seen(&[(900, 0.01), (10, 0.1)])), 1_000.0);
        assert_near(mix.throughput(&seen(&[(100, 0.01), (90, 0.1)])), 1_000.0);
        // Twice as slow for all is half the work done.
        assert_near(mix.throughput(&seen(&[(50, 0.02), (45, 0.2)])), 500.0);
    }

    #[test]
    fn a_cost_is_remembered_while_its_class_or_the_unit_is_away() {
        let mut mix = ClassMix::default();
        mix.throughput(&seen(&[(900, 0.01), (10, 0.1)]));
        assert_near(mix.throughput(&seen(&[(0, 0.0), (100, 0.5)])), 1_000.0);
        assert_near(mix.throughput(&seen(&[(700, 0.01), (0, 0.0)])), 700.0);
    }

    #[test]
    fn without_classes_it_is_throughput() {
        assert_near(ClassMix::default().throughput(&observed(10, 100, 321)), 321.0);
        assert_near(ClassMix::default().throughput(&seen(&[(321, 0.01)])), 321.0);
    }

    #[test]
    fn absurd_times_leave_a_number() {
        let mut mix = ClassMix::default();
        let tps = mix.throughput(&seen(&[(100, f64::MIN_POSITIVE), (100, f64::MAX)]));
        assert!(tps.is_finite() && tps > 0.0, "{tps}");
    }
}
