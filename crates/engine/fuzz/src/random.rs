//! Draws from a seed, for the fuzzers and for tests.
#![allow(dead_code, unreachable_pub, reason = "no test needs all of it, and fuzzers see it")]

use tidegate_random::SplitMix64;

/// A stream of draws; the same seed gives the same stream.
pub struct Random(SplitMix64);

impl Random {
    /// Returns the generator with this seed.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::new(seed))
    }

    /// Draws any number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_bits()
    }

    /// Draws a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// Draws an index below `bound`.
    pub fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).expect("below a usize")
    }

    /// Picks one of the things.
    pub fn pick<'t, T>(&mut self, things: &'t [T]) -> &'t T {
        &things[self.index(things.len())]
    }

    /// Picks one of the things, if there is one.
    pub fn pick_any<'t, T>(&mut self, things: &'t [T]) -> Option<&'t T> {
        if things.is_empty() { None } else { Some(self.pick(things)) }
    }

    /// Draws so many bytes.
    pub fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.draw().to_le_bytes()[0]).collect()
    }

    /// Draws up to so many bytes.
    pub fn bytes_up_to(&mut self, max: u64) -> Vec<u8> {
        let len = self.below(max + 1);
        self.bytes(len)
    }
}
