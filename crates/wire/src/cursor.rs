//! Reading fields from a message's payload without copying.

use thiserror::Error;

/// A payload that does not have the form its message type prescribes.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("malformed {message} message: {field} is missing, cut short or invalid")]
pub struct Malformed {
    /// The message's name in the protocol documentation.
    pub message: &'static str,
    /// The field that could not be read.
    pub field: &'static str,
}

/// Takes fields off the front of a payload. Every method moves past what it returns.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    message: &'static str,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(message: &'static str, payload: &'a [u8]) -> Self {
        Cursor { message, rest: payload }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn fail<T>(&self, field: &'static str) -> Result<T, Malformed> {
        Err(Malformed { message: self.message, field })
    }

    pub(crate) fn bytes(
        &mut self,
        count: usize,
        field: &'static str,
    ) -> Result<&'a [u8], Malformed> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => self.fail(field),
        }
    }

    pub(crate) fn byte(&mut self, field: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(field)?[0])
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], Malformed> {
        match self.rest.split_first_chunk::<N>() {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(*taken)
            }
            None => self.fail(field),
        }
    }

    /// Returns a count. The documentation says Int16; server and libpq read it without a sign.
    pub(crate) fn uint16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        Ok(u16::from_be_bytes(self.array(field)?))
    }

    pub(crate) fn int32(&mut self, field: &'static str) -> Result<i32, Malformed> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    /// Returns a value after its Int32 length; a length of -1 means none.
    pub(crate) fn counted(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, Malformed> {
        match self.int32(field)? {
            -1 => Ok(None),
            len => match usize::try_from(len) {
                Ok(len) => Ok(Some(self.bytes(len, field)?)),
                Err(_) => self.fail(field),
            },
        }
    }

    /// Returns whether all was taken.
    pub(crate) fn end(&self, field: &'static str) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { self.fail(field) }
    }

    /// Returns a zero-terminated string, without its terminator. The protocol does not promise
    /// UTF-8.
    pub(crate) fn string(&mut self, field: &'static str) -> Result<&'a [u8], Malformed> {
        let Some(end) = self.rest.iter().position(|&byte| byte == 0) else {
            return self.fail(field);
        };
        let (taken, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        Ok(taken)
    }
}
