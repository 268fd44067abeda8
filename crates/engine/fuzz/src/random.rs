//! Draws from a seed: the generator `SplitMix64`.

/// A stream of draws; the same seed gives the same stream.
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
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
