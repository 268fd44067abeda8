//! Fields of this protocol: little-endian numbers, and lengths that say themselves how long they
//! are.
//!
//! A length below 251 is its own byte. `fc`, `fd` and `fe` announce 2, 3 and 8 bytes that hold it;
//! `fb` stands for NULL where a value may be one, and `ff` never begins a length.

use crate::cursor::{Cursor, Malformed};

/// The byte in the place of a length that says NULL.
const NULL: u8 = 0xfb;

impl<'a> Cursor<'a> {
    pub(super) fn uint16_le(&mut self, field: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    pub(super) fn uint32_le(&mut self, field: &'static str) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    /// Returns a length-encoded number; `None` is NULL.
    pub(super) fn number(&mut self, field: &'static str) -> Result<Option<u64>, Malformed> {
        match self.byte(field)? {
            NULL => Ok(None),
            0xfc => Ok(Some(self.uint16_le(field)?.into())),
            0xfd => {
                let [low, middle, high] = self.array(field)?;
                Ok(Some(u32::from_le_bytes([low, middle, high, 0]).into()))
            }
            0xfe => Ok(Some(u64::from_le_bytes(self.array(field)?))),
            0xff => self.fail(field),
            small => Ok(Some(small.into())),
        }
    }

    /// Returns a length-encoded number that must be there.
    pub(super) fn some_number(&mut self, field: &'static str) -> Result<u64, Malformed> {
        match self.number(field)? {
            Some(number) => Ok(number),
            None => self.fail(field),
        }
    }

    /// Returns a value after its length; `None` is NULL.
    pub(super) fn value(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, Malformed> {
        match self.number(field)?.map(usize::try_from) {
            None => Ok(None),
            Some(Ok(len)) => Ok(Some(self.bytes(len, field)?)),
            Some(Err(_)) => self.fail(field),
        }
    }
}
