//! Message boundaries: a type byte, then a length that counts itself and the payload.

use thiserror::Error;

/// Bytes before the payload: the type and the length.
pub const HEADER_LEN: usize = 5;

/// The longest message either side may send. PostgreSQL builds a payload in a buffer that holds at
/// most 2^30 - 2 bytes, so a length beyond it is never the start of a real message.
pub const MESSAGE_LEN_MAX: usize = HEADER_LEN + (1 << 30) - 2;

/// The type and extent of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The message type, as in [`crate::frontend::tag`] or [`crate::backend::tag`].
    pub tag: u8,
    /// Bytes of the whole message, header included.
    pub len: usize,
}

/// A header that cannot begin a message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "message type {tag:#04x} announces a length of {length} bytes, outside 4..={max}",
    max = MESSAGE_LEN_MAX - 1
)]
pub struct FrameError {
    /// The type byte.
    pub tag: u8,
    /// The length word as sent: the payload and the word's own four bytes.
    pub length: u32,
}

/// Returns the message that begins at the first byte of `bytes`; `Ok(None)` until its header is
/// complete.
///
/// The payload may still be missing: compare [`Frame::len`] with what is there.
///
/// # Errors
/// The length is smaller than the length word itself or larger than [`MESSAGE_LEN_MAX`].
#[inline]
pub fn frame(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let tag = header[0];
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]);
    if !(4..MESSAGE_LEN_MAX).contains(&(length as usize)) {
        return Err(FrameError { tag, length });
    }
    let len = length as usize + 1;
    Ok(Some(Frame { tag, len }))
}

/// Appends a message: the header, then what `payload` appends, then the length put right.
pub(crate) fn message(out: &mut Vec<u8>, tag: u8, payload: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    untagged(out, payload);
}

/// Appends a message without a type byte, as the first packet of a connection is.
pub(crate) fn untagged(out: &mut Vec<u8>, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    payload(out);
    let length = u32::try_from(out.len() - start).expect("a message is shorter than 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a value after its Int32 length.
pub(crate) fn counted(out: &mut Vec<u8>, value: &[u8]) {
    let len = i32::try_from(value.len()).expect("a value is shorter than 2 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
}

/// Appends a zero-terminated string. A zero inside would end it early, so the rest is left out.
pub(crate) fn string(out: &mut Vec<u8>, text: &[u8]) {
    let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
    out.extend_from_slice(&text[..end]);
    out.push(0);
}
