//! Numbers and byte strings within bytes. All numbers are little-endian.

pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    let mut number = [0; 2];
    number.copy_from_slice(&bytes[at..at + 2]);
    u16::from_le_bytes(number)
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

pub(crate) fn put_u16(bytes: &mut [u8], at: usize, number: u16) {
    bytes[at..at + 2].copy_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u32(bytes: &mut [u8], at: usize, number: u32) {
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
}

pub(crate) fn put_u64(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

/// Converts a slot, a length or a place within a page to the form in which pages and log records
/// have it. The last byte of the largest page is not used, so each is below 65,536.
pub(crate) fn short(number: usize) -> u16 {
    u16::try_from(number).expect("a place in a page is below 65,536")
}

/// Numbers and byte strings one after the other, to be taken off the front.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

/// The bytes end before what they should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short;

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Short> {
        let (front, rest) = self.bytes.split_at_checked(len).ok_or(Short)?;
        self.bytes = rest;
        Ok(front)
    }

    fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], Short> {
        let (front, rest) = self.bytes.split_first_chunk().ok_or(Short)?;
        self.bytes = rest;
        Ok(*front)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Short> {
        self.array().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Short> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Short> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Short> {
        self.array().map(u64::from_le_bytes)
    }

    /// Returns a byte string of up to 65,535 bytes, with its length before it.
    pub(crate) fn short_bytes(&mut self) -> Result<&'a [u8], Short> {
        let len = self.u16()?;
        self.take(usize::from(len))
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }
}

pub(crate) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // A key or a value is shorter than a page.
    out.extend_from_slice(&short(bytes.len()).to_le_bytes());
    out.extend_from_slice(bytes);
}
