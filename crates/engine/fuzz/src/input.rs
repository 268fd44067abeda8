//! The bytes of a fuzzer, taken off the front.

/// What is left of them.
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of them.
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    /// The next byte, if there is one.
    pub fn next_byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// The next byte, or 0.
    pub fn byte(&mut self) -> u8 {
        self.next_byte().unwrap_or_default()
    }

    /// A number below `bound`, from as few bytes as it takes; 0 when nothing is below.
    pub fn below(&mut self, bound: usize) -> usize {
        let (mut number, mut reach) = (0_usize, 1_usize);
        while reach < bound {
            number = (number << 8) | usize::from(self.byte());
            reach <<= 8;
        }
        number.checked_rem(bound).unwrap_or_default()
    }

    /// Up to `len` bytes.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        front
    }
}
