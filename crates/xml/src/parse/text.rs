//! Text and CDATA sections, read in bounded parts.

use std::io::BufRead;
use std::ops::Range;

use super::chars::{is_space, plain_text};
use super::entity::{Place, Reference, reference};
use super::error::{Fault, ParseError, ParseErrorKind, Position};
use super::{SECTION_END, TEXT_PART, XmlReader};

pub(super) const OUTSIDE: &str =
    "there must be no text outside the root element; move it inside or remove it";

const SECTION_START: &[u8] = b"<![CDATA[";

/// What text goes on with after its plain bytes.
enum Next {
    Part,
    Markup,
    End,
    Byte(u8),
}

impl<R: BufRead> XmlReader<R> {
    /// Skips white space outside the root element.
    pub(super) fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            let available = self.peek(1)?;
            let blank = available.iter().take_while(|&&byte| is_space(byte)).count();
            let next = available.get(blank).copied();
            self.source().consume(blank);
            match next {
                None if blank > 0 => {}
                None | Some(b'<') => return Ok(()),
                Some(_) => return Err(self.here(ParseErrorKind::Rule(OUTSIDE))),
            }
        }
    }

    /// Reads text up to the next markup, but no more than a part. Returns its place in
    /// `self.text`, or `None` if markup or the end of the input is next.
    pub(super) fn read_text(&mut self) -> Result<Option<Range<usize>>, ParseError> {
        if self.given == self.text.len() {
            self.text.clear();
            self.given = 0;
            while self.text.len() < TEXT_PART && self.extend_text()? {}
        }
        let mut end = self.text.len().min(self.given + TEXT_PART);
        while !self.text.is_char_boundary(end) {
            end -= 1;
        }
        let part = self.given..end;
        self.given = end;
        if part.is_empty() {
            // The next token overwrites the text.
            self.text.clear();
            self.given = 0;
            return Ok(None);
        }
        Ok(Some(part))
    }

    /// Appends some text. Returns whether there may be more before the next markup.
    fn extend_text(&mut self) -> Result<bool, ParseError> {
        match self.push_plain()? {
            Next::Part => Ok(true),
            Next::Byte(byte) => self.push_special(byte).map(|()| true),
            Next::End if self.in_section => {
                Err(self.here(ParseErrorKind::UnexpectedEnd("`]]>`".to_owned())))
            }
            Next::End => Ok(false),
            Next::Markup if self.in_section => self.push_special(b'<').map(|()| true),
            Next::Markup => {
                self.in_section = self.peek(SECTION_START.len())?.starts_with(SECTION_START);
                if self.in_section {
                    self.source().consume(SECTION_START.len());
                }
                Ok(self.in_section)
            }
        }
    }

    /// Appends bytes that need no more than a check that they are UTF-8.
    fn push_plain(&mut self) -> Result<Next, ParseError> {
        let room = TEXT_PART - self.text.len();
        let position = self.position();
        self.peek(1)?;
        let available = self.markup.get_ref().buffered();
        let length = plain_text(&available[..available.len().min(room)]);
        let next = match available.get(length) {
            None if length == 0 => Next::End,
            None => Next::Part,
            Some(_) if length == room => Next::Part,
            Some(b'<') => Next::Markup,
            Some(&byte) => Next::Byte(byte),
        };
        let (valid, broken) = match std::str::from_utf8(&available[..length]) {
            Ok(text) => (text, false),
            Err(error) => {
                let valid = &available[..error.valid_up_to()];
                // Characters cut by the end of the part or of the buffer are not broken.
                let cut = error.error_len().is_none() && matches!(next, Next::Part);
                (std::str::from_utf8(valid).unwrap_or_default(), !cut)
            }
        };
        let taken = valid.len();
        if broken {
            let mut position = position;
            position.advance(valid.as_bytes());
            return Err(ParseError { position, kind: ParseErrorKind::InvalidBytes("UTF-8") });
        }
        self.text.push_str(valid);
        self.source().consume(taken);
        if taken == 0 && matches!(next, Next::Part) {
            return self.push_cut_character(position);
        }
        Ok(next)
    }

    /// Appends the next character, whose bytes are in two parts of the input.
    fn push_cut_character(&mut self, position: Position) -> Result<Next, ParseError> {
        let available = self.peek(4)?;
        let head = &available[..available.len().min(4)];
        let valid = match std::str::from_utf8(head) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
        };
        let Some(character) = valid.chars().next() else {
            return Err(ParseError { position, kind: ParseErrorKind::InvalidBytes("UTF-8") });
        };
        self.text.push(character);
        self.source().consume(character.len_utf8());
        Ok(Next::Part)
    }

    /// Appends what begins with a byte that is not plain.
    fn push_special(&mut self, byte: u8) -> Result<(), ParseError> {
        let length = match byte {
            b'\r' => {
                self.text.push('\n');
                1 + usize::from(self.peek(2)?.get(1) == Some(&b'\n'))
            }
            b']' if self.peek(3)?.starts_with(b"]]>") => {
                if !self.in_section {
                    return Err(self.here(ParseErrorKind::Rule(SECTION_END)));
                }
                self.in_section = false;
                3
            }
            b'&' if !self.in_section => return self.push_reference(),
            b']' | b'&' | b'<' => {
                self.text.push(char::from(byte));
                1
            }
            0xEF => {
                let position = self.position();
                let head = self.peek(3)?;
                if matches!(head, [0xEF, 0xBF, 0xBE | 0xBF, ..]) {
                    let code = 0xFFC0 | (u32::from(head[2]) & 0x3F);
                    return Err(self.here(ParseErrorKind::ForbiddenCharacter(code)));
                }
                return self.push_cut_character(position).map(|_| ());
            }
            _ => return Err(self.here(ParseErrorKind::ForbiddenCharacter(u32::from(byte)))),
        };
        self.source().consume(length);
        Ok(())
    }

    /// Appends what the reference stands for that is next.
    fn push_reference(&mut self) -> Result<(), ParseError> {
        let longest = self.limits.name_length.saturating_add(2);
        let available = self.peek(longest)?;
        let end = available.iter().take(longest).position(|&byte| byte == b';');
        let head = match end {
            Some(end) => &available[..=end],
            // Without `;`: what is there, for the message.
            None => &available[..available.len().min(longest)],
        };
        let valid = match std::str::from_utf8(head) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&head[..error.valid_up_to()]).unwrap_or_default(),
        };
        let text = valid.to_owned();
        let result = reference(&text).and_then(|(reference, length)| {
            match reference {
                Reference::Character(character) => self.text.push(character),
                Reference::Entity(name) => self
                    .entities
                    .expand(name, Place::Content, &mut self.text)
                    .map_err(|kind| Fault::new(0, kind))?,
            }
            Ok(length)
        });
        match result {
            Ok(length) => {
                self.source().consume(length);
                Ok(())
            }
            Err(fault) => {
                let mut position = self.position();
                position.advance(&text.as_bytes()[..fault.at.min(text.len())]);
                Err(ParseError { position, kind: fault.kind })
            }
        }
    }
}
