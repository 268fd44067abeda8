//! The local search: candidates beside the incumbent, compared with it in alternation.

use super::scan::Scan;
use super::{
    Base, ComparisonSide, Duel, FAR, OPEN_PRICE, PATIENCE_S, PairedComparison, PairedReason,
    PairedTask, STEP, STEP_LEAST, STEP_MOST,
};
use crate::Draw;
use crate::controller::whole;
use crate::sequential_test::SequentialTest;
use crate::settling::WindowSample;

impl PairedComparison {
    pub(super) fn settled(&mut self, sample: &WindowSample, draw: Draw) -> PairedReason {
        if !sample.is_saturated(self.ceiling()) {
            return self.not_binding(sample);
        }
        if !self.has_scanned {
            if sample.limit > self.settings.cold
                && self.shortest_s.is_some_and(|shortest_s| shortest_s < 0.2)
            {
                return self.rescan(0.0);
            }
            if self.is_slow(sample) {
                return self.few(sample, draw);
            }
            return self.scan(Scan::new(self.settings.price), sample);
        }
        if sample.waiting < 0.8 && sample.running < 0.9 * f64::from(self.limit) {
            // Fewer clients came: their throughput says nothing of the limit's.
            return self.not_binding(sample);
        }
        if let Some(change) = self.take_base(sample) {
            return self.alarm(sample, change);
        }
        // Patience fades: what misled short windows may have gone.
        self.patience_s *= libm::exp(-(sample.seconds + sample.washed_s) / PATIENCE_S);
        if self.patience_s < 0.5 {
            self.patience_s = 0.0;
        }
        if let Some(reason) = self.sunk() {
            return reason;
        }
        if let Some(reason) = self.scan_beyond() {
            return reason;
        }
        if let Some((side, candidate)) = self.next_probe() {
            return self.compare(sample, side, candidate, false);
        }
        self.window = self.window.next();
        PairedReason::Hold { tps: self.base.level.map_or(0.0, libm::exp) }
    }

    /// Begins to compare the base, in force until now, with a candidate.
    pub(super) fn compare(
        &mut self,
        before: &WindowSample,
        side: usize,
        candidate: u32,
        is_open: bool,
    ) -> PairedReason {
        let duel = Duel {
            candidate,
            side,
            before: *before,
            looked: None,
            test: SequentialTest::default(),
            spent_s: 0.0,
            lost_s: 0.0,
            deepest: 0.0,
            is_long: !is_open && self.is_long_due(side),
            is_open,
        };
        self.move_to(candidate);
        self.task = PairedTask::Duel(duel);
        PairedReason::Compare { other: self.base.limit, gain: 0.0, error: 1.0 }
    }

    /// Whether a look upward takes its time: what warms up shows only then. Only where the last
    /// look lost little.
    pub(super) fn is_long_due(&self, side: usize) -> bool {
        let ComparisonSide { is_settled, probes, loss, .. } = self.sides[side];
        side == 1 && is_settled && probes % 3 == 1 && loss > -0.1
    }

    /// The side whose comparison is due longest, and the candidate there.
    pub(super) fn next_probe(&self) -> Option<(usize, u32)> {
        let due = |side: &usize| self.sides.get(*side).is_some_and(|side| side.due_s <= self.now_s);
        let mut sides: Vec<usize> = (0..2).filter(due).collect();
        sides.sort_by(|&one, &other| self.sides[one].due_s.total_cmp(&self.sides[other].due_s));
        sides.into_iter().find_map(|side| Some((side, self.candidate(side)?)))
    }

    pub(super) fn candidate(&self, side: usize) -> Option<u32> {
        let base = self.base.limit;
        let ComparisonSide { step, probes, is_settled, far_s, .. } = *self.sides.get(side)?;
        // Where it is settled, every second look goes farther.
        let step = match (is_settled, probes % 4) {
            (true, 1) => 0.25,
            (true, 3) if far_s <= self.now_s => FAR,
            _ => step,
        };
        if side == 1 {
            let wanted = whole((f64::from(base) * libm::exp(step)).round()).max(base + 1);
            let barred = self.now_s < self.bar.until_s && wanted > self.bar.above;
            let highest = if barred { self.bar.above } else { self.highest() };
            let candidate = wanted.min(highest);
            (candidate > base).then_some(candidate)
        } else {
            let wanted = whole((f64::from(base) * libm::exp(-step)).round());
            let candidate = wanted.min(base.saturating_sub(1)).max(self.lowest());
            (candidate < base).then_some(candidate)
        }
    }

    pub(super) fn duel(
        &mut self,
        mut duel: Duel,
        sample: WindowSample,
        draw: Draw,
    ) -> PairedReason {
        if self.limit == duel.candidate {
            let off = sample.ln_x - duel.before.ln_x;
            duel.spent_s += sample.seconds + sample.washed_s;
            duel.lost_s += -libm::expm1(off) * (sample.seconds + sample.washed_s);
            duel.deepest = duel.deepest.min(off);
            duel.looked = Some(sample);
            self.move_to(self.base.limit);
            let (gain, error) = (duel.test.mean(), duel.test.error());
            let other = duel.candidate;
            self.task = PairedTask::Duel(duel);
            return PairedReason::Compare { other, gain, error: error.min(1.0) };
        }
        if let Some(change) = if duel.is_open { None } else { self.take_base(&sample) } {
            return self.alarm(&sample, change);
        }
        if let Some(reason) = self.scan_beyond() {
            return reason;
        }
        let Some(looked) = duel.looked.take() else {
            return self.settle(PairedReason::Hold { tps: sample.tps() });
        };
        // What the base loses after the look belongs to its cost.
        let after = duel.before.ln_x - sample.ln_x;
        duel.lost_s += after.max(0.0) * (sample.seconds + sample.washed_s);
        let factor = f64::from(duel.candidate) / f64::from(self.base.limit);
        let difference = looked.ln_x - f64::midpoint(duel.before.ln_x, sample.ln_x);
        let variance = looked.variance + (duel.before.variance + sample.variance) / 4.0;
        let price = if duel.is_open { OPEN_PRICE } else { self.settings.price * libm::log(factor) };
        duel.test.add(difference - price, variance);
        let (mean, error) = (duel.test.mean(), duel.test.error());
        let is_spent = error < 0.015 || duel.spent_s > f64::max(6.0, 4.0 * self.residence_s);
        if duel.test.is_positive(self.settings.better, self.pair_scale.get())
            || (is_spent && mean > 0.0 && error < 0.015 && factor < 1.0 && !duel.is_open)
        {
            self.pair_scale.learn(&duel.test);
            self.adopt(&duel, looked.ln_x)
        } else if mean < -self.settings.futile * error || is_spent {
            self.pair_scale.learn(&duel.test);
            self.reject(&duel, draw)
        } else {
            duel.before = sample;
            let other = self.base.limit;
            self.move_to(duel.candidate);
            self.task = PairedTask::Duel(duel);
            PairedReason::Compare { other, gain: mean, error: error.min(1.0) }
        }
    }

    pub(super) fn adopt(&mut self, duel: &Duel, level: f64) -> PairedReason {
        self.remember();
        let is_proven = self.base.is_proven && duel.side == 0;
        self.base = Base {
            limit: duel.candidate,
            level: Some(level),
            spread: self.base.spread,
            is_proven,
            off: 0,
            since_s: self.now_s,
        };
        let side = &mut self.sides[duel.side];
        side.step = (side.step * 2.0).min(STEP_MOST);
        side.is_settled = false;
        side.due_s = self.now_s;
        side.gap_s = 1.0;
        let other = &mut self.sides[1 - duel.side];
        other.due_s = self.now_s + 1.0;
        other.gap_s = 1.0;
        self.settle(PairedReason::Adopt { gain: duel.test.mean(), error: duel.test.error() })
    }

    pub(super) fn reject(&mut self, duel: &Duel, draw: Draw) -> PairedReason {
        let base = self.base.limit;
        let distance = libm::log(f64::from(duel.candidate) / f64::from(base)).abs();
        let is_lost = duel.test.mean() < -duel.test.error();
        let side = &mut self.sides[duel.side];
        side.probes += 1;
        let is_least = distance <= STEP_LEAST * 1.05 || duel.candidate.abs_diff(base) <= 1;
        let gap_s = f64::max(side.gap_s, duel.lost_s / self.settings.probe_price);
        let is_far = side.is_settled && distance > 0.5 && duel.candidate.abs_diff(base) > 1;
        if !is_far {
            side.loss = duel.deepest;
        }
        if duel.is_open {
            side.due_s = self.now_s + gap_s.clamp(2.0, self.settings.stale_dear_s);
            side.gap_s = (side.gap_s * 1.6).min(self.settings.stale_s);
        } else if is_far {
            side.far_s = self.now_s + gap_s.min(self.settings.stale_dear_s);
            side.due_s = self.now_s + side.gap_s.min(self.settings.stale_s);
        } else if side.is_settled || is_least || !is_lost {
            side.is_settled = true;
            side.due_s = self.now_s + gap_s.min(self.settings.stale_s) * (0.8 + 0.4 * draw.value());
            side.gap_s = (side.gap_s * 1.6).min(8.0);
            // What cannot be told apart needs a longer step.
            let factor = if is_lost { 0.6 } else { 1.4 };
            let most = if is_lost { STEP } else { STEP_MOST };
            side.step = (side.step * factor).clamp(STEP_LEAST, most);
        } else {
            side.step = (side.step / 2.0).max(STEP_LEAST);
            side.due_s = self.now_s + 0.1;
        }
        if duel.side == 1 {
            self.base.is_proven = true;
        }
        self.settle(PairedReason::Compare {
            other: duel.candidate,
            gain: duel.test.mean(),
            error: duel.test.error().min(1.0),
        })
    }
}
