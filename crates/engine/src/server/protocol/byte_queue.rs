//! Bytes that go in at one end and out at the other.

/// Memory of an empty queue beyond this is given back, in bytes: of many connections most are idle.
const KEPT_LEN: usize = 16 * 1024;

/// A queue of bytes, all of them in one piece.
///
/// * `start` is not beyond the end of `bytes`, and what is before it has gone out.
#[derive(Debug, Default)]
pub(in crate::server) struct ByteQueue {
    bytes: Vec<u8>,
    start: usize,
}

impl ByteQueue {
    pub(in crate::server) fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(in crate::server) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(in crate::server) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where to append.
    pub(in crate::server) fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Lets the first `count` bytes go, or all when there are fewer.
    pub(in crate::server) fn consume(&mut self, count: usize) {
        self.start = self.bytes.len().min(self.start.saturating_add(count));
        if self.start == self.bytes.len() {
            self.clear();
        } else if self.start > self.bytes.len() / 2 && self.start > KEPT_LEN {
            // Fewer bytes are moved than have gone, so that each byte is moved once at most.
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    pub(in crate::server) fn clear(&mut self) {
        self.start = 0;
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_LEN {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_goes_in_comes_out_in_order(
            steps in prop::collection::vec((0..20_000_usize, 0..40_000_usize), 1..40),
        ) {
            let (mut queue, mut put, mut taken) = (ByteQueue::default(), 0_usize, 0_usize);
            let byte = |at: usize| u8::try_from(at % 251).unwrap();
            for (add, take) in steps {
                queue.tail().extend((put..put + add).map(byte));
                put += add;
                let take = take.min(queue.len() + 1);
                queue.consume(take);
                taken = put.min(taken + take);
                prop_assert_eq!(queue.len(), put - taken);
                prop_assert_eq!(queue.is_empty(), put == taken);
                prop_assert!(queue.as_slice().iter().copied().eq((taken..put).map(byte)));
                prop_assert!(queue.bytes.len() <= 2 * queue.len().max(KEPT_LEN));
            }
        }
    }

    #[test]
    fn an_empty_queue_keeps_little_memory() {
        let mut queue = ByteQueue::default();
        queue.tail().resize(10 * KEPT_LEN, 1);
        queue.consume(10 * KEPT_LEN);
        assert!(queue.bytes.capacity() <= KEPT_LEN);
    }
}
