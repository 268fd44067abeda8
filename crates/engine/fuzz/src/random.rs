//! Draws from a seed: the generator `SplitMix64`.

use tidegate_control::SplitMix64;

/// A stream of draws; the same seed gives the same stream.
pub struct Random(SplitMix64);

impl Random {
    /// The numbers that belong to a seed.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_bits()
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// One of the things.
    pub fn pick<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        &things[usize::try_from(self.below(things.len() as u64)).unwrap()]
    }

    /// So many bytes.
    pub fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.draw().to_le_bytes()[0]).collect()
    }
}
