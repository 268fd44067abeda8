//! Packets, and the messages made of them.
//!
//! # Mechanism
//! A packet is three bytes of length, little-endian, one byte that numbers it, and the payload. A
//! message of 16 MiB - 1 bytes or more is cut into packets of that size, and the first shorter one
//! ends it, if need be an empty one:
//!
//! ```text
//! message of 16,777,215 bytes  =  ff ff ff 00 <16,777,215 bytes>  00 00 00 01
//! ```
//!
//! Each command begins to count at 0, and both sides count on together, from 255 to 0 again.
//!
//! # Limits
//! A packet's length cannot be told from a lie: it is waited for. A message that grows beyond what
//! any server sends ([`MESSAGE_LEN_MAX`]) is refused, so what is waited for is bounded.

use std::borrow::Cow;

use thiserror::Error;

/// Bytes before a packet's payload.
pub const HEADER_LEN: usize = 4;

/// The longest payload of one packet; one of this length has a successor.
pub const PACKET_LEN_MAX: usize = 0xff_ffff;

/// The longest message: the highest `max_allowed_packet` a server can be given.
pub const MESSAGE_LEN_MAX: usize = 1 << 30;

/// A `COM_QUIT` command: the client says good-bye, and the server closes the connection.
pub const QUIT: &[u8] = b"\x01\0\0\0\x01";

const COM_QUERY: u8 = 3;

/// A whole message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The number of its first packet.
    pub first: u8,
    /// The number of its last packet.
    pub last: u8,
    /// What it says; copied only when it came in several packets.
    pub payload: Cow<'a, [u8]>,
    /// How many bytes it took, headers included.
    pub len: usize,
}

/// Packets that make no message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum PacketError {
    /// The packets of one message are not numbered one after the other.
    #[error("packet {found} stands where packet {expected} should")]
    OutOfOrder {
        /// The number that comes next.
        expected: u8,
        /// The number that came.
        found: u8,
    },
    /// The message is longer than any server sends.
    #[error("a message is longer than {MESSAGE_LEN_MAX} bytes")]
    TooLong,
}

/// Returns the message that begins at the first byte of `bytes`; `Ok(None)` until all of it is
/// there.
///
/// # Errors
/// See [`PacketError`].
#[inline]
pub fn message(bytes: &[u8]) -> Result<Option<Message<'_>>, PacketError> {
    let Some((first, payload)) = packet(bytes) else {
        return Ok(None);
    };
    if payload.len() == PACKET_LEN_MAX {
        return long_message(bytes, first);
    }
    let len = HEADER_LEN + payload.len();
    Ok(Some(Message { first, last: first, payload: Cow::Borrowed(payload), len }))
}

/// Returns the packet at the front of `bytes`, when all of it is there: its number and its payload.
fn packet(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (&[low, middle, high, number], rest) = bytes.split_first_chunk()?;
    let len = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
    Some((number, rest.get(..len)?))
}

/// Returns the message of several packets at the front of `bytes`. It is copied when its end is
/// there, and looked over packet by packet until then, so memory follows what has arrived.
fn long_message(bytes: &[u8], first: u8) -> Result<Option<Message<'_>>, PacketError> {
    let mut payloads = Vec::new();
    let (mut len, mut expected) = (0, first);
    loop {
        if len > MESSAGE_LEN_MAX {
            return Err(PacketError::TooLong);
        }
        let Some((found, payload)) = bytes.get(len..).and_then(packet) else {
            return Ok(None);
        };
        if found != expected {
            return Err(PacketError::OutOfOrder { expected, found });
        }
        len += HEADER_LEN + payload.len();
        payloads.push(payload);
        if payload.len() < PACKET_LEN_MAX {
            let payload = Cow::Owned(payloads.concat());
            return Ok(Some(Message { first, last: found, payload, len }));
        }
        expected = expected.wrapping_add(1);
    }
}

/// Appends a message as the packets it needs, the first of them with the number `first`.
pub fn encode_message(out: &mut Vec<u8>, first: u8, payload: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    payload(out);
    let len = out.len() - start - HEADER_LEN;
    out[start..start + HEADER_LEN].copy_from_slice(&header(len.min(PACKET_LEN_MAX), first));
    if len >= PACKET_LEN_MAX {
        let rest = out.split_off(start + HEADER_LEN + PACKET_LEN_MAX);
        encode_rest(out, first.wrapping_add(1), &rest);
    }
}

/// Appends what does not fit into a message's first packet.
fn encode_rest(out: &mut Vec<u8>, first: u8, mut rest: &[u8]) {
    let mut number = first;
    loop {
        let (payload, later) = rest.split_at(rest.len().min(PACKET_LEN_MAX));
        out.extend_from_slice(&header(payload.len(), number));
        out.extend_from_slice(payload);
        if payload.len() < PACKET_LEN_MAX {
            return;
        }
        rest = later;
        number = number.wrapping_add(1);
    }
}

fn header(len: usize, number: u8) -> [u8; HEADER_LEN] {
    let [low, middle, high, ..] = len.to_le_bytes();
    [low, middle, high, number]
}

/// Appends a `COM_QUERY` command, which begins an exchange.
pub fn encode_query(out: &mut Vec<u8>, sql: &[u8]) {
    encode_message(out, 0, |out| {
        out.push(COM_QUERY);
        out.extend_from_slice(sql);
    });
}
