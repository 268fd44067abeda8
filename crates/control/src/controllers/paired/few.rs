//! The search where completions are few or slow.

use super::shapes::Shapes;
use super::{PairedComparison, PairedReason, Task};
use crate::Draw;
use crate::settling::Sample;

impl PairedComparison {
    /// Whether pairs of windows would take too long: residence times of a good part of a second, or
    /// few completions.
    pub(super) fn is_slow(&self, sample: &Sample) -> bool {
        let alone_s = self.shortest_s.unwrap_or(self.residence_s);
        let residence_s = sample.running / sample.tps();
        (alone_s > 0.2 && residence_s > 0.2) || sample.tps() < 30.0
    }

    /// Takes a window of few completions, and goes where the belief expects the most.
    pub(super) fn few(&mut self, sample: &Sample, draw: Draw) -> PairedReason {
        let ceiling = self.ceiling();
        if !sample.is_saturated(ceiling) {
            self.base.limit = self.limit;
            self.has_scanned = false;
            return self.settle(PairedReason::NotBinding);
        }
        self.task = Task::Few;
        if !self.is_slow(sample) {
            (self.shapes, self.windows) = (Shapes::default(), 0);
            return self.rescan(0.0);
        }
        let (highest, inside) = (self.highest(), sample.running.max(1.0));
        // As many counts as would be known to the same error.
        let count = sample.tps() * sample.seconds;
        let weight = (1.0 / (count * sample.variance)).clamp(1.0, 10.0);
        self.shapes.add(inside, count * weight, sample.seconds * weight);
        self.windows += 1;
        let lowest = (self.limit / 3).max(self.lowest());
        let top = self.limit.saturating_mul(3).min(highest);
        let often = f64::max(0.1, 0.6 / f64::from(self.windows));
        let is_draw = draw.value() < often;
        let at = is_draw.then(|| draw.value() / often);
        let (limit, share) = self.shapes.best(lowest.min(top), top, self.settings.price, at);
        if self.windows == 1 && self.limit < highest {
            // One level says nothing of the others; a higher one costs less while it is tried.
            let next = self.limit.saturating_mul(5) / 2;
            self.move_to(next.min(highest));
            self.base.limit = self.limit;
            self.has_scanned = true;
            return PairedReason::Scan { best_tps: sample.tps() };
        }
        let here = self.shapes.share(self.limit.min(highest), highest);
        let is_worth = is_draw || share > here + 0.02 || limit < self.limit.min(highest) / 2;
        let best_tps = sample.tps();
        self.move_to(if is_worth { limit } else { self.limit });
        self.base.limit = self.limit;
        self.has_scanned = true;
        PairedReason::Scan { best_tps }
    }
}
