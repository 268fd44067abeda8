//! A permutation by arithmetic, in place of a table of every number.

use tidegate_random::SplitMix64;

/// Rounds of the network; four already make a good mixture (Luby and Rackoff, 1988).
const ROUNDS: u64 = 6;

/// A permutation of the numbers from 0 to below `count`, the same one from the same seed.
///
/// A Feistel network permutes the numbers of an even number of bits. It is applied again to a
/// result that is too large until one is not ("cycle walking": Black and Rogaway, 2002), on average
/// less than four times.
#[derive(Debug, Clone, Copy)]
pub(super) struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
}

impl Permutation {
    pub(super) fn new(count: u64, seed: u64) -> Permutation {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Permutation { count, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// Returns the number that `index`, which is below `count`, becomes.
    pub(super) fn get(&self, index: u64) -> u64 {
        let mut value = index;
        loop {
            value = self.network(value);
            if value < self.count {
                return value;
            }
        }
    }

    fn network(&self, value: u64) -> u64 {
        let mask = (1_u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            let mixed = SplitMix64::mix(right ^ SplitMix64::mix(self.seed.wrapping_add(round)));
            (left, right) = (right, left ^ (mixed & mask));
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use super::Permutation;

    #[test]
    fn every_number_comes_once_and_not_in_order() {
        for count in [1, 2, 3, 5, 22, 1_000, 4_096, 21_750] {
            let permutation = Permutation::new(count, 9);
            let mut images: Vec<u64> = (0..count).map(|index| permutation.get(index)).collect();
            if count > 20 {
                assert!(images.windows(2).any(|pair| pair[0] > pair[1]));
            }
            images.sort_unstable();
            assert!(images.iter().copied().eq(0..count), "{count}");
        }
    }
}
