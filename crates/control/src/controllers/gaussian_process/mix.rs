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
const WEIGHT: f64 = 0.1;

/// What transactions of each class cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mix {
    /// The class whose cost is 1.
    unit: Option<usize>,
    /// Logarithm of the cost, and the intervals it was learnt from.
    costs: [(f64, u32); CLASSES],
}

impl Mix {
    /// Completed work per second, in transactions of the unit class; learns the costs first.
    pub(super) fn throughput(&mut self, observation: &Observation) -> f64 {
        self.learn(observation);
        let seconds = observation.interval.as_secs_f64();
        let classes = observation.classes.iter().enumerate();
        let work: f64 =
            classes.map(|(index, class)| class.completions as f64 * self.cost(index)).sum();
        if work > 0.0 && seconds > 0.0 { work / seconds } else { observation.throughput_tps() }
    }

    fn cost(&self, class: usize) -> f64 {
        self.costs.get(class).map_or(1.0, |(log, _)| log.exp())
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
                *log += weight * ((mean_s / unit_s).ln() - *log);
            }
        }
    }
}
