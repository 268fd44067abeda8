//! What follows when throughput of the incumbent changes, at once or slowly.

use super::scan::Scan;
use super::{
    AlarmCheck, BAR_MOST_S, Base, ComparisonSide, LATE_LEAST, LATE_S, PATIENCE_MOST_S,
    PairedComparison, PairedReason, PairedTask, RECALL_S, Recall, SINKS_S,
};
use crate::settling::WindowSample;

impl PairedComparison {
    /// Keeps the best level held, and goes back to its limit when the present one has sunk far
    /// below: the steps that led away were judged by what they showed at once.
    pub(super) fn sunk(&mut self) -> Option<PairedReason> {
        let level = self.base.level?;
        let held_s = self.now_s - self.base.since_s;
        if held_s < f64::max(2.0, 3.0 * self.residence_s) {
            return None;
        }
        let Some((limit, best)) = self.best else {
            self.best = Some((self.base.limit, level));
            return None;
        };
        let sinks = limit == self.base.limit
            && held_s < SINKS_S
            && best - level > f64::max(0.25, 4.0 * self.base.spread.sqrt());
        if limit == self.base.limit && !sinks {
            // Fades, so that the level of a better hour does not count for ever.
            let share = if level > best { 0.2 } else { 0.02 };
            self.best = Some((limit, best + share * (level - best)));
            return None;
        }
        if level >= best {
            self.best = Some((self.base.limit, level));
            return None;
        }
        if best - level < f64::max(0.12, 2.0 * self.base.spread.sqrt()) {
            return None;
        }
        let change = libm::expm1(level - best);
        let sunk = if sinks {
            Some((limit * 3 / 4).max(1))
        } else {
            (self.base.limit > limit).then_some(limit)
        };
        self.task =
            PairedTask::Recall(Recall { level, until_s: self.now_s + RECALL_S, sunk, tries: 3 });
        // Lower than that, lest it was itself more than what lasts.
        self.move_to((limit.min(self.base.limit) * 2 / 3).max(1));
        Some(PairedReason::Check { change })
    }

    pub(super) fn recall(&mut self, recall: Recall, sample: &WindowSample) -> PairedReason {
        let gain = sample.ln_x - recall.level;
        if gain < 0.08 && self.now_s < recall.until_s {
            self.task = PairedTask::Recall(recall);
            self.window = self.window.next();
            return PairedReason::Check { change: libm::expm1(gain) };
        }
        let lower = (self.limit * 2 / 3).max(self.lowest());
        let proportional = libm::log(f64::from(self.limit) / f64::from(self.base.limit));
        if gain < 0.08 && recall.tries > 1 && lower < self.limit && gain > 0.7 * proportional {
            // Still too high, it may be: what spoils the database goes on above some lower limit.
            let until_s = self.now_s + RECALL_S;
            self.task = PairedTask::Recall(Recall { until_s, tries: recall.tries - 1, ..recall });
            self.move_to(lower);
            return PairedReason::Check { change: libm::expm1(gain) };
        }
        self.best = None;
        if gain < 0.08 {
            // The level that it has now is what a later one is compared with.
            return self.settle(PairedReason::Check { change: libm::expm1(gain) });
        }
        self.patience_s = (self.patience_s * 2.0).clamp(2.0, 8.0);
        if let Some(limit) = recall.sunk {
            // What was above it looked better until it sank. Each time it is left alone for longer.
            self.bar.lasts_s = (self.bar.lasts_s * 2.0).min(BAR_MOST_S);
            self.bar.above = limit;
            self.bar.until_s = self.now_s + self.bar.lasts_s;
        }
        let since_s = self.now_s;
        let level = Some(sample.ln_x);
        self.base = Base { limit: self.limit, level, off: 0, since_s, ..self.base.clone() };
        self.sides = [ComparisonSide::fresh(self.now_s + 5.0); 2];
        self.settle(PairedReason::Adopt { gain, error: sample.variance.sqrt() })
    }

    pub(super) fn remember(&mut self) {
        let limit = self.base.limit;
        if self.now_s - self.base.since_s < 2.0 {
            return;
        }
        let is_near = |other: u32| libm::log(f64::from(other) / f64::from(limit)).abs() < 0.2;
        self.remembered.retain(|&(other, _)| !is_near(other));
        self.remembered.push_front((limit, self.base.level.unwrap_or(0.0)));
        self.remembered.truncate(3);
    }

    /// The coarse search begins again, from where every database drains.
    pub(super) fn rescan(&mut self, change: f64) -> PairedReason {
        self.has_scanned = true;
        (self.best, self.beyond) = (None, None);
        self.first = (0.0, 0.0);
        self.move_to(self.limit.min(self.base.limit).min(self.settings.cold));
        self.task = PairedTask::Scan(Scan::new(self.settings.price));
        PairedReason::Rescan { change: libm::expm1(change) }
    }

    /// Throughput of the base has changed: elsewhere it may be better now.
    pub(super) fn alarm(&mut self, sample: &WindowSample, change: f64) -> PairedReason {
        let since_s = self.now_s - self.alarmed_s;
        self.alarmed_s = self.now_s;
        if since_s < 10.0 {
            // Alarm after alarm: what is seen comes from earlier moves.
            self.alarms += 1;
            if self.alarms >= 3 {
                self.alarms = 0;
                self.patience_s = (self.patience_s * 2.0).clamp(1.0, 8.0);
            }
        } else {
            self.alarms = 0;
        }
        let held_s = self.now_s - self.scanned_s;
        if held_s < LATE_S && change.abs() > LATE_LEAST && self.patience_s < PATIENCE_MOST_S {
            // So soon after the search the answer to its own moves arrives: it was too fast.
            let needed_s = f64::max(2.5 * held_s, 2.0 * self.patience_s);
            self.patience_s = needed_s.clamp(2.0, PATIENCE_MOST_S);
            return self.rescan(change);
        }
        self.remember();
        let base = self.base.limit;
        if change < -0.9 && base > self.settings.cold {
            return self.rescan(change);
        }
        let mut left: Vec<u32> = self.remembered.iter().map(|&(limit, _)| limit).collect();
        left.extend([base.saturating_mul(2), base / 2]);
        let (lowest, highest) = (self.lowest(), self.highest());
        for limit in &mut left {
            *limit = (*limit).clamp(lowest, highest.max(lowest));
        }
        left.retain(|&limit| limit != base);
        left.dedup();
        // The last is looked at first: after a fall, the lowest.
        left.sort_unstable();
        if change < 0.0 {
            left.reverse();
        }
        self.base.level = Some(sample.ln_x);
        self.base.off = 0;
        self.base.since_s = self.now_s;
        self.sides = [ComparisonSide::fresh(self.now_s); 2];
        self.next_check(AlarmCheck { left, best: None, before: *sample, change })
    }

    pub(super) fn next_check(&mut self, mut check: AlarmCheck) -> PairedReason {
        let change = libm::expm1(check.change);
        let next = check.left.pop().unwrap_or(self.base.limit);
        self.move_to(next);
        self.task = PairedTask::Check(check);
        PairedReason::Check { change }
    }

    pub(super) fn check(&mut self, mut check: AlarmCheck, sample: &WindowSample) -> PairedReason {
        if self.limit != self.base.limit {
            if check.best.is_none_or(|best| sample.ln_x > best.ln_x) {
                check.best = Some(*sample);
            }
            return self.next_check(check);
        }
        self.base.level = Some(f64::midpoint(sample.ln_x, check.before.ln_x));
        self.best = None;
        let incumbent = f64::max(sample.ln_x, check.before.ln_x);
        let winner = check.best.filter(|best| {
            let error = (best.variance + sample.variance).sqrt();
            best.ln_x - incumbent > 0.03 + 2.0 * error
        });
        if let Some(winner) = winner {
            let gain = libm::expm1(winner.ln_x - incumbent);
            self.base.limit = winner.limit;
            self.base.level = Some(winner.ln_x);
            return self.settle(PairedReason::Adopt { gain, error: winner.variance.sqrt() });
        }
        if check.change < -0.9 && sample.ln_x < check.before.ln_x + 0.2 {
            return self.rescan(check.change);
        }
        self.settle(PairedReason::Check { change: libm::expm1(check.change) })
    }
}
