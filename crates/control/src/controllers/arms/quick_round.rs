//! The quick round: each arm for a moment at a few common limits, before any of them is tuned.
//!
//! Each arm is looked at at the common limit, at four times as much, and at a quarter if it was
//! slower at four times as much. An arm that has less than an eighth of the best at the common
//! limit is not looked at again. What is found is rough: it says with which arm to begin and which
//! arms are far behind, not which of two similar arms is the better one.

use crate::{Bounds, Mpl};

/// An arm that has less than this of the best at the common limit is dropped, in ln X.
const HOPELESS: f64 = -2.08;

/// An arm whose best look is behind by more than this is dropped, in ln X; by twice as much, if its
/// throughput still grew at the highest limit, so that it may have more at a higher one.
const BEHIND: f64 = -std::f64::consts::LN_2;
const GROWTH: f64 = 0.4;

/// What the looks at one arm have shown, in ln X: at the common limit, above it and below it.
#[derive(Clone, Copy, Debug, Default)]
struct ArmLooks([Option<f64>; 3]);

impl ArmLooks {
    fn best(self) -> f64 {
        self.0.into_iter().flatten().fold(f64::NEG_INFINITY, f64::max)
    }

    fn still_grows(self) -> bool {
        matches!(self.0, [Some(common), Some(high), _] if high > common + GROWTH)
    }
}

/// A quick round under way.
#[derive(Clone, Debug)]
pub(super) struct QuickRound {
    limits: [Mpl; 3],
    looks: Vec<ArmLooks>,
    /// An arm that is not looked at, because its throughput is known.
    known: Option<usize>,
    arm: usize,
    look: usize,
}

impl QuickRound {
    /// Begins a round of `count` arms around a common limit. `known` is an arm whose throughput is
    /// known, in ln X.
    pub(super) fn new(
        count: usize,
        common: Mpl,
        bounds: Bounds,
        known: Option<(usize, f64)>,
    ) -> QuickRound {
        let high = Mpl::at_least_one(common.get().saturating_mul(4));
        let low = Mpl::at_least_one(common.get() / 4);
        let mut looks = vec![ArmLooks::default(); count];
        if let Some((arm, ln_x)) = known {
            looks[arm].0[0] = Some(ln_x);
        }
        let known = known.map(|(arm, _)| arm);
        QuickRound {
            limits: [common, high, low].map(|limit| bounds.clamp(limit)),
            looks,
            arm: usize::from(known == Some(0)),
            known,
            look: 0,
        }
    }

    /// Returns the arm that is looked at now.
    pub(super) fn arm(&self) -> usize {
        self.arm
    }

    /// Returns the limit at which it is looked at.
    pub(super) fn limit(&self) -> Mpl {
        self.limits[self.look]
    }

    /// Returns the best throughput that any arm has shown, in ln X; minus infinity before the first
    /// look.
    pub(super) fn best(&self) -> f64 {
        self.looks.iter().map(|looks| looks.best()).fold(f64::NEG_INFINITY, f64::max)
    }

    /// Takes the throughput of the present look and goes to the next one. An arm that is silent
    /// has completed nothing, and is not looked at again. Returns whether there is a next look.
    pub(super) fn take(&mut self, ln_x: f64, is_silent: bool) -> bool {
        self.looks[self.arm].0[self.look] = Some(ln_x);
        let [common, high, low] = self.limits;
        let at_common = self.looks[self.arm].0[0].unwrap_or(f64::NEG_INFINITY);
        let next = match self.look {
            _ if is_silent => None,
            0 if ln_x < self.best() + HOPELESS => None,
            0 if high > common => Some(1),
            0 if low < common => Some(2),
            1 if ln_x < at_common && low < common => Some(2),
            _ => None,
        };
        if let Some(look) = next {
            self.look = look;
        } else {
            self.look = 0;
            self.arm += 1;
            self.arm += usize::from(self.known == Some(self.arm));
        }
        self.arm < self.looks.len()
    }

    /// Returns the arm that has shown the most; of equals the first.
    pub(super) fn winner(&self) -> usize {
        let best = self.best();
        self.looks.iter().position(|looks| looks.best() >= best).unwrap_or(0)
    }

    /// Returns the gain of an arm over the best, in ln X, and whether it is dropped.
    pub(super) fn verdict(&self, arm: usize) -> (f64, bool) {
        let looks = self.looks[arm];
        let gain = looks.best() - self.best();
        let behind = if looks.still_grows() { 2.0 * BEHIND } else { BEHIND };
        (gain, gain < behind)
    }
}
