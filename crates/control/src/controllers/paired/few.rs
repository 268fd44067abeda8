//! The search where completions are few or slow.

use super::progress::TransactionProgress;
use super::{PairedComparison, PairedReason, PairedTask};
use crate::Draw;
use crate::settling::{SettlingWindow, WindowSample};

/// Decisions are so many residence times apart, and at least so many seconds.
const PART: f64 = 0.3;
const LEAST_S: f64 = 0.5;

/// Transactions that take longer alone are slow, seconds.
const SLOW_S: f64 = 0.1;

/// Completions before the first limit is tried that nothing speaks for.
const FIRST: f64 = 8.0;

impl PairedComparison {
    /// Whether pairs of windows would take too long: residence times of a good part of a second, or
    /// few completions.
    pub(super) fn is_slow(&self, sample: &WindowSample) -> bool {
        let alone_s = self.shortest_s.unwrap_or(self.residence_s);
        let residence_s = sample.running / sample.tps();
        (alone_s > SLOW_S && residence_s > SLOW_S) || sample.tps() < 30.0
    }

    /// What a decision needs is there: nothing is washed out, as the belief knows who was inside.
    pub(super) fn few_is_due(&self) -> bool {
        self.now_s - self.decided_s >= f64::max(LEAST_S, PART * self.residence_s)
    }

    /// Goes where the belief expects the most.
    pub(super) fn few(&mut self, sample: &WindowSample, draw: Draw) -> PairedReason {
        self.decided_s = self.now_s;
        let ceiling = self.ceiling();
        if !sample.is_saturated(ceiling) {
            self.base.limit = self.limit;
            self.has_scanned = false;
            return self.settle(PairedReason::NotBinding);
        }
        self.task = PairedTask::Few;
        if sample.completions > 0.0 && !self.is_slow(sample) {
            (self.progress, self.windows) = (TransactionProgress::default(), 0);
            return self.rescan(0.0);
        }
        let best_tps = sample.tps();
        let highest = self.highest();
        if self.progress.completions() < FIRST {
            self.window = SettlingWindow::settled();
            return PairedReason::Scan { best_tps };
        }
        self.has_scanned = true;
        self.windows += 1;
        if self.windows == 1 && self.limit < highest {
            // One level says nothing of the others; a higher one costs less while it is tried.
            let next = self.limit.saturating_mul(5) / 2;
            self.move_to(next.min(highest));
            self.base.limit = self.limit;
            self.window = SettlingWindow::settled();
            return PairedReason::Scan { best_tps };
        }
        let belief = self.progress.belief(highest);
        let lowest = (self.limit / 3).max(self.lowest());
        let top = self.limit.saturating_mul(3).min(highest);
        let often = f64::max(0.1, 0.6 / f64::from(self.windows));
        let is_draw = draw.value() < often;
        let at = is_draw.then(|| draw.value() / often);
        let (limit, share) = belief.best(lowest.min(top), top, self.settings.price, at);
        let here = belief.share(self.limit.min(highest));
        let is_worth = is_draw || share > here + 0.02 || limit < self.limit.min(highest) / 2;
        self.move_to(if is_worth { limit } else { self.limit });
        self.base.limit = self.limit;
        self.window = SettlingWindow::settled();
        PairedReason::Scan { best_tps }
    }
}
