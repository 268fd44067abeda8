//! The socket protocol: bytes to values and back, without any socket.
//!
//! # Mechanism
//! A client says hello and is welcomed, or told why not. Then it sends requests, each a whole
//! transaction, and the server sends responses. Every request has a number that its client chooses,
//! and the response says it again: many requests may be under way, and each is answered when it is
//! done, whatever the order.
//!
//! ```text
//! client                                       server
//!   hello: version 1            ->
//!                               <-   welcome: accepted, what the limits are
//!   request 1: transfer, ..     ->
//!   request 2: balance, ..      ->
//!                               <-   response 2: done, 90
//!                               <-   response 1: failed, conflict
//! ```
//!
//! Requests and responses are frames: a word with the length of what follows, and that. All numbers
//! are little-endian. `docs/engine-protocol.md` shows every message byte by byte.
//!
//! # Example
//! Request 7, class normal, procedure `add`, one byte of arguments:
//!
//! ```text
//! 0              4       5                          13       15            18     19
//! | 15 00 00 00  | 01    | 07 00 00 00 00 00 00 00  | 03 00  | 61 64 64    | 2A   |
//! | length       | class | number                   | length | name        | arguments
//! ```
//!
//! # What can come
//! Anything. A decoder answers `Ok(None)` as long as what is there is the beginning of a message,
//! and an error as soon as it cannot be one: the first wrong byte of a greeting, or a length beyond
//! the limit, of which nothing is allocated. What was decoded borrows from the bytes that came.
//!
//! # Where this leaves the literature
//! * **One request, one transaction.** Protocols of databases (`PostgreSQL`'s, `MySQL`'s) send one
//!   statement and wait, so that a transaction holds its locks for as many round trips as it has
//!   statements. Stonebraker and others (The End of an Architectural Era, VLDB 2007, section 4.3)
//!   ship transactions as procedures for this reason.
//! * **Answers in any order.** PostgreSQL's pipeline answers in the order of the requests. Here
//!   one that waits for a lock would so hold up those that are done.
//! * **Two lengths are told, not agreed on.** The welcome says how long a frame may be and how many
//!   requests may be under way; a client that cannot live with it goes.
//!
//! # Limits
//! Neither encryption nor passwords: it is for a Unix socket in a directory that others cannot
//! enter, or for a loopback address. A message has no checksum, because TCP has one.

mod byte_queue;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;

use thiserror::Error;
use tidegate_gate::Class;

use super::{Answer, CallError};

pub(super) use byte_queue::ByteQueue;

/// What every greeting begins with.
pub(super) const MAGIC: [u8; 8] = *b"tg-calls";

/// The version that is spoken here.
pub(super) const VERSION: u32 = 1;

/// Bytes of a client's greeting.
const HELLO_LEN: usize = 12;

/// Bytes of a server's greeting.
const WELCOME_LEN: usize = 24;

/// Bytes of a request besides the length word, the name and the arguments.
const REQUEST_HEAD_LEN: u32 = 11;

/// Bytes of a response besides the length word, and the answer or text.
const RESPONSE_HEAD_LEN: usize = 9;

/// Bytes of a farewell besides the length word and the text: no response is shorter.
const GOODBYE_HEAD_LEN: u32 = 2;

/// The longest text that says what went wrong, in bytes.
const TEXT_LEN_MAX: usize = 1_000;

/// What the limit on the length of a frame can be, in bytes without the length word.
pub(super) const FRAME_LEN_LIMITS: RangeInclusive<u32> = 2_048..=1 << 30;

const _: () = assert!(HELLO_LEN == MAGIC.len() + size_of::<u32>());
const _: () = assert!(WELCOME_LEN == HELLO_LEN + 3 * size_of::<u32>());
const _: () = assert!(REQUEST_HEAD_LEN as usize == 1 + size_of::<u64>() + size_of::<u16>());
const _: () = assert!(RESPONSE_HEAD_LEN + TEXT_LEN_MAX <= 2_048);

/// First byte of a response: the answer follows.
const DONE: u8 = 0;

/// First byte of a farewell.
const GOODBYE: u8 = 255;

/// Bytes that are no message of this protocol.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ProtocolError {
    /// A greeting that is none.
    #[error("the other side does not speak this protocol; is it the right address?")]
    Magic,
    /// A length that no frame may have.
    #[error("a frame of {len} bytes was announced, and {min} to {max} are possible")]
    Length {
        /// The length announced, in bytes.
        len: u32,
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// A field that cannot be read.
    #[error("{field} of a {message} is missing or is none")]
    Malformed {
        /// Which message.
        message: &'static str,
        /// Which part of it.
        field: &'static str,
    },
    /// An answer that nobody waits for.
    #[error("request {0} was answered, which is not under way")]
    Unasked(RequestId),
}

/// What is too long to be sent.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{what} has {len} bytes, and the server takes {max} at most")]
pub struct TooLong {
    /// What it is.
    pub what: &'static str,
    /// Its length, in bytes.
    pub len: usize,
    /// The most, in bytes.
    pub max: usize,
}

/// The number of a request among those of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub(super) u64);

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// What kind of failure a request ended in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureKind {
    /// No procedure has that name. Nothing was run.
    NoProcedure = 1,
    /// Too many wait already. Nothing was run.
    Full = 2,
    /// It waited too long for a permit. Nothing was run.
    Expired = 3,
    /// There was a conflict, each time it was run. It was rolled back.
    Conflict = 4,
    /// The procedure failed and was rolled back; or the store did, and then it may be committed.
    Failed = 5,
    /// The procedure panicked. It was rolled back.
    Panicked = 6,
    /// The server is being stopped. Nothing was run.
    Stopped = 7,
    /// It is committed, but the answer does not fit a frame.
    AnswerTooLong = 8,
}

impl FailureKind {
    const ALL: [FailureKind; 8] = [
        FailureKind::NoProcedure,
        FailureKind::Full,
        FailureKind::Expired,
        FailureKind::Conflict,
        FailureKind::Failed,
        FailureKind::Panicked,
        FailureKind::Stopped,
        FailureKind::AnswerTooLong,
    ];

    fn of_code(code: u8) -> Option<FailureKind> {
        FailureKind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    fn of(error: &CallError) -> FailureKind {
        match error {
            CallError::NoProcedure(_) => FailureKind::NoProcedure,
            CallError::Full(_) => FailureKind::Full,
            CallError::Expired => FailureKind::Expired,
            CallError::Failed(error) if error.is_retryable() => FailureKind::Conflict,
            CallError::Failed(_) => FailureKind::Failed,
            CallError::Panicked => FailureKind::Panicked,
            CallError::Stopped => FailureKind::Stopped,
        }
    }

    /// Whether the same request, sent again later, may succeed and cannot be done twice.
    #[must_use]
    pub fn is_retryable(self) -> bool {
        matches!(self, FailureKind::Full | FailureKind::Expired | FailureKind::Conflict)
    }
}

/// Why a server ends a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GoodbyeReason {
    /// The client sent what is no request.
    Violation = 1,
    /// Nothing was asked for a long time.
    Idle = 2,
    /// The server is being stopped.
    Stopping = 3,
}

impl GoodbyeReason {
    fn of_code(code: u8) -> Option<GoodbyeReason> {
        let all = [GoodbyeReason::Violation, GoodbyeReason::Idle, GoodbyeReason::Stopping];
        all.into_iter().find(|reason| *reason as u8 == code)
    }
}

/// A message and the bytes it took; `Ok(None)` when more are needed.
pub(super) type Decoded<T> = Result<Option<(T, usize)>, ProtocolError>;

/// The beginning of a greeting, once all `N` bytes of it are there.
fn greeting<const N: usize>(bytes: &[u8]) -> Result<Option<&[u8; N]>, ProtocolError> {
    let seen = bytes.len().min(MAGIC.len());
    if bytes[..seen] != MAGIC[..seen] {
        return Err(ProtocolError::Magic);
    }
    Ok(bytes.first_chunk::<N>())
}

/// A client's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    /// The version that the client speaks.
    pub(super) version: u32,
}

impl Hello {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
    }

    pub(super) fn decode(bytes: &[u8]) -> Decoded<Hello> {
        let Some(bytes) = greeting::<HELLO_LEN>(bytes)? else {
            return Ok(None);
        };
        let mut fields = Fields { message: "hello", rest: &bytes[MAGIC.len()..] };
        Ok(Some((Hello { version: fields.u32("the version")? }, HELLO_LEN)))
    }
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Verdict {
    /// Requests can be sent.
    Accepted = 0,
    /// The client's version is not spoken here.
    OtherVersion = 1,
    /// There are too many connections.
    Full = 2,
}

/// A server's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    /// The version that the server speaks.
    pub(super) version: u32,
    pub(super) verdict: Verdict,
    /// The longest frame of either side, in bytes without its length word.
    pub(super) frame_len_max: u32,
    /// Requests that the server takes before it has answered the first.
    pub(super) under_way_max: u32,
}

impl Welcome {
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        let words = [self.version, self.verdict as u32, self.frame_len_max, self.under_way_max];
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Decoded<Welcome> {
        let Some(bytes) = greeting::<WELCOME_LEN>(bytes)? else {
            return Ok(None);
        };
        let mut fields = Fields { message: "welcome", rest: &bytes[MAGIC.len()..] };
        let version = fields.u32("the version")?;
        let verdict = match fields.u32("the verdict")? {
            0 => Verdict::Accepted,
            1 => Verdict::OtherVersion,
            2 => Verdict::Full,
            _ => return Err(fields.malformed("the verdict")),
        };
        let frame_len_max = fields.u32("the length of frames")?;
        if !FRAME_LEN_LIMITS.contains(&frame_len_max) {
            return Err(fields.malformed("the length of frames"));
        }
        let under_way_max = fields.u32("the number of requests")?;
        Ok(Some((Welcome { version, verdict, frame_len_max, under_way_max }, WELCOME_LEN)))
    }
}

/// A client's wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) id: RequestId,
    pub(super) class: Class,
    pub(super) procedure: &'a str,
    pub(super) arguments: &'a [u8],
}

impl<'a> Request<'a> {
    /// Appends the request to `out`, or leaves `out` as it is.
    pub(super) fn encode(&self, out: &mut Vec<u8>, frame_len_max: u32) -> Result<(), TooLong> {
        let name = self.procedure.as_bytes();
        let Ok(name_len) = u16::try_from(name.len()) else {
            let max = usize::from(u16::MAX);
            return Err(TooLong { what: "the procedure's name", len: name.len(), max });
        };
        let len = REQUEST_HEAD_LEN as usize + name.len() + self.arguments.len();
        if !fits(len, frame_len_max) {
            return Err(TooLong { what: "the request", len, max: frame_len_max as usize });
        }
        let class = match self.class {
            Class::High => 0,
            Class::Normal => 1,
        };
        let (id, name_len) = (self.id.0.to_le_bytes(), name_len.to_le_bytes());
        frame(out, &[&[class], &id, &name_len, name, self.arguments]);
        Ok(())
    }

    pub(super) fn decode(bytes: &'a [u8], frame_len_max: u32) -> Decoded<Request<'a>> {
        let Some((body, taken)) = body(bytes, REQUEST_HEAD_LEN, frame_len_max)? else {
            return Ok(None);
        };
        let mut fields = Fields { message: "request", rest: body };
        let class = match fields.u8("the class")? {
            0 => Class::High,
            1 => Class::Normal,
            _ => return Err(fields.malformed("the class")),
        };
        let id = RequestId(fields.u64("the number")?);
        let name_len = usize::from(fields.u16("the name's length")?);
        let name = fields.bytes(name_len, "the procedure's name")?;
        let procedure =
            str::from_utf8(name).map_err(|_| fields.malformed("the procedure's name"))?;
        Ok(Some((Request { id, class, procedure, arguments: fields.rest }, taken)))
    }
}

/// What a server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response<'a> {
    /// The request is done.
    Done { id: RequestId, answer: &'a [u8] },
    /// It is not.
    Failed { id: RequestId, kind: FailureKind, text: &'a str },
    /// No more is to come: all requests that were taken are answered, and no others were run.
    Goodbye { reason: GoodbyeReason, text: &'a str },
}

impl<'a> Response<'a> {
    /// Appends the response. An answer must fit a frame, see [`encode_answer`]; a text is cut.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Response::Done { id, answer } => {
                frame(out, &[&[DONE], &id.0.to_le_bytes(), answer]);
            }
            Response::Failed { id, kind, text } => {
                frame(out, &[&[kind as u8], &id.0.to_le_bytes(), cut(text).as_bytes()]);
            }
            Response::Goodbye { reason, text } => {
                frame(out, &[&[GOODBYE, reason as u8], cut(text).as_bytes()]);
            }
        }
    }

    pub(super) fn decode(bytes: &'a [u8], frame_len_max: u32) -> Decoded<Response<'a>> {
        let Some((body, taken)) = body(bytes, GOODBYE_HEAD_LEN, frame_len_max)? else {
            return Ok(None);
        };
        let mut fields = Fields { message: "response", rest: body };
        let response = match fields.u8("the kind")? {
            GOODBYE => {
                let reason = GoodbyeReason::of_code(fields.u8("the reason")?);
                let reason = reason.ok_or_else(|| fields.malformed("the reason"))?;
                Response::Goodbye { reason, text: fields.text()? }
            }
            DONE => {
                let id = RequestId(fields.u64("the number")?);
                Response::Done { id, answer: fields.rest }
            }
            code => {
                let kind = FailureKind::of_code(code);
                let kind = kind.ok_or_else(|| fields.malformed("the kind"))?;
                let id = RequestId(fields.u64("the number")?);
                Response::Failed { id, kind, text: fields.text()? }
            }
        };
        Ok(Some((response, taken)))
    }
}

/// Appends what a request is answered with.
pub(super) fn encode_answer(out: &mut Vec<u8>, id: RequestId, answer: &Answer, frame_len_max: u32) {
    match answer {
        Ok(answer) if fits(RESPONSE_HEAD_LEN + answer.len(), frame_len_max) => {
            Response::Done { id, answer }.encode(out);
        }
        Ok(answer) => {
            let len = answer.len();
            let text = format!(
                "the transaction is committed, but its answer of {len} bytes does not fit a frame \
                 of {frame_len_max}; let the procedure answer in parts, or allow longer frames"
            );
            Response::Failed { id, kind: FailureKind::AnswerTooLong, text: &text }.encode(out);
        }
        Err(error) => {
            let (kind, text) = (FailureKind::of(error), error.to_string());
            Response::Failed { id, kind, text: &text }.encode(out);
        }
    }
}

fn fits(len: usize, frame_len_max: u32) -> bool {
    u32::try_from(len).is_ok_and(|len| len <= frame_len_max)
}

/// Appends a frame. The caller has seen to it that it is not too long.
fn frame(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let word = u32::try_from(len).unwrap_or(u32::MAX);
    out.extend_from_slice(&word.to_le_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// What the first frame of `bytes` holds.
fn body(bytes: &[u8], min: u32, max: u32) -> Decoded<&[u8]> {
    let Some((word, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*word);
    if len < min || len > max {
        return Err(ProtocolError::Length { len, min, max });
    }
    Ok(rest.get(..len as usize).map(|body| (body, word.len() + body.len())))
}

/// As much of a text as may be sent.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(TEXT_LEN_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Takes fields off the front of a message.
struct Fields<'a> {
    message: &'static str,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn malformed(&self, field: &'static str) -> ProtocolError {
        ProtocolError::Malformed { message: self.message, field }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], ProtocolError> {
        let (taken, rest) =
            self.rest.split_first_chunk::<N>().ok_or_else(|| self.malformed(field))?;
        self.rest = rest;
        Ok(*taken)
    }

    fn u8(&mut self, field: &'static str) -> Result<u8, ProtocolError> {
        Ok(u8::from_le_bytes(self.array(field)?))
    }

    fn u16(&mut self, field: &'static str) -> Result<u16, ProtocolError> {
        Ok(u16::from_le_bytes(self.array(field)?))
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, ProtocolError> {
        Ok(u32::from_le_bytes(self.array(field)?))
    }

    fn u64(&mut self, field: &'static str) -> Result<u64, ProtocolError> {
        Ok(u64::from_le_bytes(self.array(field)?))
    }

    fn bytes(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], ProtocolError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(|| self.malformed(field))?;
        self.rest = rest;
        Ok(taken)
    }

    /// All that is left, as a text.
    fn text(&self) -> Result<&'a str, ProtocolError> {
        str::from_utf8(self.rest).map_err(|_| self.malformed("the text"))
    }
}
