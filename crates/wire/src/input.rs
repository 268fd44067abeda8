//! Reading messages off the front of what a peer has sent.
//!
//! A length from the wire says how long a message will be, not how much of it has arrived. A
//! reader that advances by it runs past its buffer. [`Input`] cannot: its position is private, and
//! the only ways to move it are
//!
//! - [`Peeked::take`], which moves past the bytes of a message that have arrived and returns the
//!   number of missing ones as a [`Missing`], which has no other constructor;
//! - [`Input::skip`], which moves past the bytes of a [`Missing`] that have arrived since;
//! - [`Input::first_packet`], which moves past a complete packet;
//! - [`Input::discard`], which moves to the end;
//! - [`Input::go_back`], which moves back to where the input was before.
//!
//! ```text
//! bytes:  Q....  S(4096 announced) ..      position 0
//! peek -> Q, complete;     take -> position behind Q, nothing missing
//! peek -> error: a Sync has 4 bytes
//! ```
//!
//! Messages whose length the protocol fixes are refused when they announce another one.

use std::ops::Range;

use thiserror::Error;

use crate::frame::{self, Frame, FrameError, HEADER_LEN};
use crate::startup::{self, FirstPacket, StartupError};
use crate::{backend, frontend};

/// Which side sent the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client: types as in [`crate::frontend::tag`].
    Client,
    /// A server: types as in [`crate::backend::tag`].
    Server,
}

impl Side {
    /// Returns the length word of messages of this type, if the protocol fixes it.
    #[inline]
    fn fixed_length(self, tag: u8) -> Option<usize> {
        match self {
            Side::Client => match tag {
                frontend::tag::SYNC
                | frontend::tag::FLUSH
                | frontend::tag::COPY_DONE
                | frontend::tag::TERMINATE => Some(4),
                _ => None,
            },
            Side::Server => match tag {
                backend::tag::READY_FOR_QUERY => Some(5),
                backend::tag::PARSE_COMPLETE
                | backend::tag::BIND_COMPLETE
                | backend::tag::CLOSE_COMPLETE
                | backend::tag::NO_DATA
                | backend::tag::PORTAL_SUSPENDED
                | backend::tag::EMPTY_QUERY => Some(4),
                _ => None,
            },
        }
    }
}

/// A header that cannot begin a message of this side.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum InputError {
    /// No message is that long or that short.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The protocol fixes the length of messages of this type at another value.
    #[error("message type {tag:#04x} announces a length of {announced} bytes instead of {fixed}")]
    FixedLength {
        /// The type byte.
        tag: u8,
        /// The length word as sent.
        announced: usize,
        /// The length word that the protocol prescribes.
        fixed: usize,
    },
}

impl InputError {
    /// Returns the type byte of the header.
    #[must_use]
    pub fn tag(&self) -> u8 {
        match self {
            InputError::Frame(error) => error.tag,
            InputError::FixedLength { tag, .. } => *tag,
        }
    }
}

/// The bytes of a message that have been announced and have not arrived.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "the next bytes of the peer are the rest of a message"]
pub struct Missing(usize);

impl Missing {
    /// Returns whether none is missing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0 == 0
    }
}

/// A position of an [`Input`].
#[derive(Clone, Copy, Debug)]
pub struct Place(usize);

/// What a peer has sent, and how much of it has been dealt with.
#[derive(Debug)]
pub struct Input<'a> {
    side: Side,
    bytes: &'a [u8],
    /// At most `bytes.len()`.
    position: usize,
}

impl<'a> Input<'a> {
    /// Begins at the first of `bytes`.
    #[must_use]
    pub fn new(side: Side, bytes: &'a [u8]) -> Input<'a> {
        Input { side, bytes, position: 0 }
    }

    /// Returns all bytes, those dealt with included.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of bytes dealt with.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns whether all bytes have been dealt with.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.position == self.bytes.len()
    }

    /// Returns a second reader of the bytes not dealt with, to look ahead.
    #[must_use]
    pub fn look_ahead(&self) -> Input<'a> {
        Input { side: self.side, bytes: self.rest(), position: 0 }
    }

    /// Returns the message at the position, or as much of it as has arrived; `Ok(None)` until its
    /// header is complete. The position stays.
    ///
    /// # Errors
    /// The header cannot begin a message.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Peeked<'_, 'a>>, InputError> {
        let rest = self.rest();
        let Some(frame) = frame::frame(rest)? else {
            return Ok(None);
        };
        let announced = frame.len - 1;
        match self.side.fixed_length(frame.tag) {
            Some(fixed) if fixed != announced => {
                return Err(InputError::FixedLength { tag: frame.tag, announced, fixed });
            }
            _ => {}
        }
        let arrived = rest.get(..frame.len).unwrap_or(rest);
        Ok(Some(Peeked { input: self, frame, arrived }))
    }

    /// Takes the first packet of a connection; `Ok(None)` until it is complete.
    ///
    /// # Errors
    /// See [`StartupError`].
    pub fn first_packet(&mut self) -> Result<Option<FirstPacket<'a>>, StartupError> {
        Ok(startup::first_packet(self.rest())?.map(|(packet, len)| {
            self.advance(len);
            packet
        }))
    }

    /// Moves past those of the missing bytes that have arrived, and returns where they are.
    #[inline]
    pub fn skip(&mut self, missing: &mut Missing) -> Range<usize> {
        let start = self.position;
        self.advance(missing.0);
        missing.0 -= self.position - start;
        start..self.position
    }

    /// Returns the position, to go back to it.
    #[must_use]
    pub fn place(&self) -> Place {
        Place(self.position)
    }

    /// Goes back: what has been dealt with since `earlier` is to be dealt with again. What is
    /// missing of the last message is to be forgotten.
    pub fn go_back(&mut self, earlier: Place) {
        debug_assert!(earlier.0 <= self.position, "an earlier position of this input");
        self.position = self.position.min(earlier.0);
    }

    /// Moves past everything that has arrived.
    pub fn discard(&mut self) {
        self.position = self.bytes.len();
    }

    #[inline]
    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.position..]
    }

    /// Moves by at most `count` bytes, and not beyond the last one.
    #[inline]
    fn advance(&mut self, count: usize) {
        self.position += count.min(self.bytes.len() - self.position);
    }
}

/// A message at the front of an [`Input`], not yet taken.
#[derive(Debug)]
pub struct Peeked<'i, 'a> {
    input: &'i mut Input<'a>,
    frame: Frame,
    arrived: &'a [u8],
}

impl<'a> Peeked<'_, 'a> {
    /// Returns the message type.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.frame.tag
    }

    /// Returns the announced bytes of the whole message, header included.
    #[inline]
    #[must_use]
    pub fn announced_len(&self) -> usize {
        self.frame.len
    }

    /// Returns whether all of it has arrived.
    #[inline]
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.arrived.len() == self.frame.len
    }

    /// Returns whether all of it has arrived, or at least `enough` bytes.
    #[inline]
    #[must_use]
    pub fn has_arrived(&self, enough: usize) -> bool {
        self.arrived.len() >= self.frame.len.min(enough)
    }

    /// Returns the payload as far as it has arrived.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.arrived[HEADER_LEN..]
    }

    /// Returns the bytes behind the message.
    #[must_use]
    pub fn behind(&self) -> &'a [u8] {
        &self.input.rest()[self.arrived.len()..]
    }

    /// Moves past what has arrived of the message; returns it, and what has not.
    #[inline]
    pub fn take(self) -> (Message<'a>, Missing) {
        let start = self.input.position;
        self.input.advance(self.arrived.len());
        let message = Message { frame: self.frame, start, arrived: self.arrived };
        (message, Missing(self.frame.len - self.arrived.len()))
    }
}

/// A message that has been taken off its [`Input`], as far as it had arrived.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    frame: Frame,
    start: usize,
    arrived: &'a [u8],
}

impl<'a> Message<'a> {
    /// Returns the message type.
    #[inline]
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.frame.tag
    }

    /// Returns the announced bytes of the payload.
    #[inline]
    #[must_use]
    pub fn announced_payload_len(&self) -> usize {
        self.frame.len - HEADER_LEN
    }

    /// Returns the payload as far as it has arrived.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.arrived[HEADER_LEN..]
    }

    /// Returns where its bytes are in [`Input::bytes`].
    #[inline]
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.arrived.len()
    }

    /// Returns where the payload from byte `from` on is in [`Input::bytes`].
    #[must_use]
    pub fn payload_range(&self, from: usize) -> Range<usize> {
        let Range { start, end } = self.range();
        end.min(start + HEADER_LEN + from)..end
    }
}
