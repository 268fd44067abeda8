//! The rows: what stands under which key, and how what was read is summed up.
//!
//! A row has 200 bytes: a key of 8 and a value of 192 that no program can compress. Keys are the
//! numbers from 0 on. A value follows from its key and its version, so that nothing has to be kept
//! to know what a read must give; and every value that is read is read whole, as a sum of its
//! words, so that no engine gets away with handing out a pointer.

use tidegate_control::SplitMix64;

/// Bytes of a value.
const VALUE_BYTES: usize = 192;

/// Bytes of a row, its key among them.
pub(crate) const ROW_BYTES: u64 = 200;

/// What stands under a key.
pub(crate) type Value = [u8; VALUE_BYTES];

/// A key as bytes whose order is that of the numbers.
pub(crate) fn key_bytes(key: u64) -> [u8; 8] {
    key.to_be_bytes()
}

/// The number of a key.
pub(crate) fn key_of(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// The value of a key in a version; rows are loaded in version 0.
pub(crate) fn value(key: u64, version: u64) -> Value {
    let mut generator = SplitMix64::new(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version);
    let mut value = [0; VALUE_BYTES];
    for word in value.as_chunks_mut::<8>().0 {
        *word = generator.next_bits().to_le_bytes();
    }
    value
}

/// The sum of the words of a value.
pub(crate) fn sum(value: &[u8]) -> u64 {
    let words = value.as_chunks::<8>().0;
    words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// Keys drawn from a seed, uniformly from the first `rows`.
pub(crate) struct Keys {
    generator: SplitMix64,
    rows: u64,
}

impl Keys {
    /// The draws of a thread: other threads and other seeds give others.
    pub(crate) fn new(seed: u64, thread: u64, rows: u64) -> Keys {
        let mut seeds = SplitMix64::new(seed ^ thread.rotate_right(16));
        Keys { generator: SplitMix64::new(seeds.next_bits()), rows: rows.max(1) }
    }

    /// A key.
    pub(crate) fn next(&mut self) -> u64 {
        self.generator.next_bits() % self.rows
    }

    /// Heads or tails.
    pub(crate) fn toss(&mut self) -> bool {
        self.generator.next_bits() >> 63 == 1
    }
}
