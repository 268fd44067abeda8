//! The bytes below the parser: UTF-8 whatever the document's encoding, counted, and bounded.

use std::io::{self, BufRead};

use super::error::{ParseError, ParseErrorKind, Position};

/// Bytes taken from the input at once.
const CHUNK: usize = 64 * 1024;

/// How the document's bytes mean characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Utf8,
    Utf16LittleEndian,
    Utf16BigEndian,
}

/// A reader of UTF-8 that knows its position and how long the present token is.
///
/// `quick_xml` collects a whole token before it returns. The source ends a token that grows over
/// the limit with an error, so that no input makes the parser hold more than that.
pub(super) struct Source<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    ended: bool,
    encoding: Encoding,
    /// Bytes of a UTF-16 character whose rest has not come yet.
    partial: Vec<u8>,
    position: Position,
    token_start: Position,
    token_limit: usize,
    /// What is wrong behind the bytes in the buffer, as the end of what can be read.
    broken: Option<ParseErrorKind>,
    /// Why and where the last read failed, if it was not the input's fault.
    refusal: Option<ParseError>,
}

impl<R: BufRead> Source<R> {
    pub(super) fn new(input: R) -> Source<R> {
        Source {
            input,
            buffer: Vec::with_capacity(CHUNK),
            start: 0,
            ended: false,
            encoding: Encoding::Utf8,
            partial: Vec::new(),
            position: Position::START,
            token_start: Position::START,
            token_limit: usize::MAX,
            broken: None,
            refusal: None,
        }
    }

    /// Recognises the encoding by the first bytes (XML 1.0, appendix F) and skips the mark.
    pub(super) fn detect_encoding(&mut self) -> io::Result<()> {
        let head = self.peek(4)?;
        let (encoding, mark) = match head {
            [0xEF, 0xBB, 0xBF, ..] => (Encoding::Utf8, 3),
            [0xFF, 0xFE, ..] => (Encoding::Utf16LittleEndian, 2),
            [0xFE, 0xFF, ..] => (Encoding::Utf16BigEndian, 2),
            [b'<', 0, ..] => (Encoding::Utf16LittleEndian, 0),
            [0, b'<', ..] => (Encoding::Utf16BigEndian, 0),
            _ => (Encoding::Utf8, 0),
        };
        self.encoding = encoding;
        let bytes = self.buffer.split_off(self.start + mark);
        self.buffer.clear();
        self.start = 0;
        self.decode(&bytes);
        Ok(())
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    pub(super) fn position(&self) -> Position {
        self.position
    }

    pub(super) fn token_start(&self) -> Position {
        self.token_start
    }

    /// Begins a token of at most `limit` bytes.
    pub(super) fn begin_token(&mut self, limit: usize) {
        self.token_start = self.position;
        self.token_limit = limit;
    }

    /// Ends the token: what follows is read in parts and needs no limit.
    pub(super) fn begin_text(&mut self) {
        self.token_limit = usize::MAX;
    }

    /// Returns the bytes that can be had without reading.
    pub(super) fn buffered(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Returns why and where the last read failed, if the input is not to blame.
    pub(super) fn take_refusal(&mut self) -> Option<ParseError> {
        self.refusal.take()
    }

    /// Returns the next bytes without taking them: at least `count`, unless the input ends or what
    /// follows is no text. The latter is an error when nothing else is left.
    pub(super) fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        while self.buffer.len() - self.start < count && self.fill()? {}
        Ok(&self.buffer[self.start..])
    }

    /// Reads a part of the input behind what is in the buffer. Returns whether there was one.
    fn fill(&mut self) -> io::Result<bool> {
        if let Some(kind) = &self.broken {
            return if self.start < self.buffer.len() {
                Ok(false)
            } else {
                Err(self.refuse(self.position, kind.clone()))
            };
        }
        if self.ended {
            return Ok(false);
        }
        self.buffer.drain(..self.start);
        self.start = 0;
        let available = loop {
            match self.input.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        let taken = available.len().min(CHUNK);
        if taken == 0 {
            self.ended = true;
            if !self.partial.is_empty() {
                self.broken = Some(ParseErrorKind::InvalidBytes("UTF-16"));
            }
            return Ok(!self.partial.is_empty());
        }
        if self.encoding == Encoding::Utf8 {
            self.buffer.extend_from_slice(&available[..taken]);
            self.input.consume(taken);
        } else {
            let bytes = available[..taken].to_vec();
            self.input.consume(taken);
            self.decode(&bytes);
        }
        Ok(true)
    }

    /// Appends `bytes` of the document to the buffer as UTF-8, up to what is no character.
    fn decode(&mut self, bytes: &[u8]) {
        let unit = match self.encoding {
            Encoding::Utf8 => return self.buffer.extend_from_slice(bytes),
            Encoding::Utf16LittleEndian => u16::from_le_bytes,
            Encoding::Utf16BigEndian => u16::from_be_bytes,
        };
        self.partial.extend_from_slice(bytes);
        let mut units: Vec<u16> =
            self.partial.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
        // The first half of a pair waits for the second.
        units.pop_if(|last| (0xD800..0xDC00).contains(last));
        self.partial.drain(..units.len() * 2);
        for character in char::decode_utf16(units) {
            let Ok(character) = character else {
                self.broken = Some(ParseErrorKind::InvalidBytes("UTF-16"));
                return;
            };
            self.buffer.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn refuse(&mut self, position: Position, kind: ParseErrorKind) -> io::Error {
        self.refusal = Some(ParseError { position, kind });
        io::Error::other("refused")
    }
}

impl<R: BufRead> io::Read for Source<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(into.len());
        into[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Source<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let length = self.position.offset - self.token_start.offset;
        if length > self.token_limit as u64 {
            let limit = self.token_limit;
            let kind = ParseErrorKind::Limit {
                what: "bytes in a tag, a comment, a processing instruction or a document type",
                limit,
                field: "markup",
            };
            return Err(self.refuse(self.token_start, kind));
        }
        self.peek(1)
    }

    fn consume(&mut self, count: usize) {
        self.position.advance(&self.buffer[self.start..self.start + count]);
        self.start += count;
    }
}
