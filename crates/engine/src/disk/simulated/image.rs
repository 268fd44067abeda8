//! The bytes of a file, in blocks that copies share until one of them writes.
//!
//! A crash copies every file twice, and ten thousand crashes must be affordable. So an image is a
//! list of counted references to blocks of 4 KiB: to copy it copies the references, and to write
//! to a shared block copies that block. A block that was never written is not there and reads as
//! zeros.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

const BLOCK_LEN: usize = 4096;

type Block = [u8; BLOCK_LEN];

static ZEROS: Block = [0; BLOCK_LEN];

/// * There are as many places for blocks as `len` needs.
/// * What lies in the last block beyond `len` is zero.
#[derive(Clone, Default)]
pub(super) struct Image {
    blocks: Vec<Option<Arc<Block>>>,
    len: usize,
}

impl Image {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Fills `buffer` with what begins at `at`; beyond the end there are zeros.
    pub(super) fn read(&self, buffer: &mut [u8], at: usize) {
        let mut rest = buffer;
        for (block, within) in pieces(at..at + rest.len()) {
            let (now, later) = rest.split_at_mut(within.len());
            now.copy_from_slice(&self.block(block)[within]);
            rest = later;
        }
    }

    /// Writes at `at`, lengthening if need be. No bytes change nothing.
    pub(super) fn write(&mut self, bytes: &[u8], at: usize) {
        if bytes.is_empty() {
            return;
        }
        let end = at + bytes.len();
        if end > self.len {
            self.set_len(end);
        }
        let mut rest = bytes;
        for (block, within) in pieces(at..end) {
            let (now, later) = rest.split_at(within.len());
            self.block_mut(block)[within].copy_from_slice(now);
            rest = later;
        }
    }

    /// Copies a range from another image, as far as it lies within the length of this one.
    pub(super) fn adopt(&mut self, other: &Image, range: Range<usize>) {
        for (block, within) in pieces(range.start..range.end.min(self.len)) {
            self.block_mut(block)[within.clone()].copy_from_slice(&other.block(block)[within]);
        }
    }

    /// Cuts the image, or lengthens it with zeros.
    pub(super) fn set_len(&mut self, len: usize) {
        if len < self.len && !len.is_multiple_of(BLOCK_LEN) {
            self.block_mut(len / BLOCK_LEN)[len % BLOCK_LEN..].fill(0);
        }
        self.blocks.resize(len.div_ceil(BLOCK_LEN), None);
        self.len = len;
        debug_assert!(self.blocks.len() * BLOCK_LEN >= len, "each byte has a place");
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(&mut bytes, 0);
        bytes
    }

    fn block(&self, index: usize) -> &Block {
        self.blocks.get(index).and_then(Option::as_deref).unwrap_or(&ZEROS)
    }

    /// Returns a block within the length, no longer shared.
    fn block_mut(&mut self, index: usize) -> &mut Block {
        Arc::make_mut(self.blocks[index].get_or_insert_with(|| Arc::new(ZEROS)))
    }
}

/// Returns a range cut where blocks end: each block's index, and the part of the range that lies in
/// it.
fn pieces(range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut start = range.start;
    iter::from_fn(move || {
        let (block, within) = (start / BLOCK_LEN, start % BLOCK_LEN);
        let len = (BLOCK_LEN - within).min(range.end.saturating_sub(start));
        start += len;
        (len > 0).then(|| (block, within..within + len))
    })
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::*;

    /// An image is compared with a vector of bytes; copies made on the way must not change.
    #[test]
    fn an_image_is_a_vector_of_bytes() {
        for seed in 0..20 {
            let mut random = Random::new(seed);
            let (mut image, mut model) = (Image::default(), Vec::new());
            let mut copies = Vec::new();
            for step in 0..100_u8 {
                let (at, len) = (random.up_to(3 * BLOCK_LEN), 1 + random.up_to(2 * BLOCK_LEN));
                match random.up_to(3) {
                    0 => {
                        image.set_len(at);
                        model.resize(at, 0);
                    }
                    1 => copies.push((image.clone(), model.clone())),
                    _ => {
                        image.write(&vec![step; len], at);
                        model.resize(model.len().max(at + len), 0);
                        model[at..at + len].fill(step);
                    }
                }
                assert_eq!(image.to_vec(), model, "seed {seed}, step {step}");
            }
            for (copy, bytes) in copies {
                assert_eq!(copy.to_vec(), bytes, "seed {seed}");
            }
        }
    }

    #[test]
    fn adopting_stays_within_the_length() {
        let (mut ones, mut twos) = (Image::default(), Image::default());
        ones.write(&[1; 5_000], 0);
        twos.write(&[2; 9_000], 0);
        ones.adopt(&twos, 4_000..8_000);
        assert_eq!(ones.to_vec(), [vec![1; 4_000], vec![2; 1_000]].concat());
        ones.set_len(6_000);
        assert_eq!(ones.to_vec()[5_000..], [0; 1_000]);
    }
}
