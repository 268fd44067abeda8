//! The draws that the plant needs, all from one [`SplitMix64`].

use crate::SplitMix64;
use crate::controller::whole;

/// A stream of draws that belongs to a seed.
#[derive(Clone, Debug)]
pub(super) struct Random(SplitMix64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    /// A seed for another stream.
    pub(super) fn seed(&mut self) -> u64 {
        self.0.next_bits()
    }

    /// Uniform from [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        self.0.next_draw().value()
    }

    /// Exponential with mean 1, finite.
    pub(super) fn exponential(&mut self) -> f64 {
        -(1.0 - self.uniform()).ln()
    }

    /// Whether something of this probability happens.
    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Uniform from 0 to `end` - 1; 0 when `end` is 0.
    pub(super) fn below(&mut self, end: u32) -> u32 {
        whole(self.uniform() * f64::from(end))
    }
}

/// The place in a list of `length` that `point`, uniform from [0, 1), falls on; 0 for an empty
/// list. Rounding upward never leads past the end.
pub(super) fn place(point: f64, length: usize) -> usize {
    (whole(point * length as f64) as usize).min(length.saturating_sub(1))
}
