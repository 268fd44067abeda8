//! A place inside a token that is in memory as a whole.

use super::chars::{first_forbidden, is_space, name_length};
use super::error::{Fault, ParseErrorKind};

/// Reads a token from left to right. A fault carries its place in the token.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    /// Longest name allowed, in bytes.
    pub(super) name_limit: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, at: usize, name_limit: usize) -> Cursor<'a> {
        Cursor { text, at, name_limit }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Returns the next byte; 0, which no document has, at the token's end.
    pub(super) fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    /// Skips `expected` if it is next. Returns whether it was.
    pub(super) fn eat(&mut self, expected: &str) -> bool {
        let found = self.rest().starts_with(expected);
        if found {
            self.at += expected.len();
        }
        found
    }

    pub(super) fn expect(&mut self, expected: &str, what: &'static str) -> Result<(), Fault> {
        if self.eat(expected) { Ok(()) } else { Err(Fault::expected(self.at, what)) }
    }

    /// Skips white space. Returns whether there was any.
    pub(super) fn skip_space(&mut self) -> bool {
        let before = self.at;
        while is_space(self.peek()) {
            self.at += 1;
        }
        self.at > before
    }

    pub(super) fn expect_space(&mut self) -> Result<(), Fault> {
        if self.skip_space() { Ok(()) } else { Err(Fault::expected(self.at, "white space")) }
    }

    /// Reads a name without colon.
    pub(super) fn name(&mut self) -> Result<&'a str, Fault> {
        let length = name_length(self.rest());
        if length == 0 {
            return Err(Fault::expected(self.at, "a name"));
        }
        if length > self.name_limit {
            return Err(Fault::new(
                self.at,
                ParseErrorKind::Limit {
                    what: "bytes in a name",
                    limit: self.name_limit,
                    field: "name_length",
                },
            ));
        }
        let name = &self.rest()[..length];
        self.at += length;
        Ok(name)
    }

    /// Reads `local` or `prefix:local`. Returns it whole, with the length of the prefix.
    pub(super) fn qualified_name(&mut self) -> Result<(&'a str, usize), Fault> {
        let start = self.at;
        let mut prefix = 0;
        self.name()?;
        if self.eat(":") {
            prefix = self.at - 1 - start;
            self.name()?;
        }
        Ok((&self.text[start..self.at], prefix))
    }

    /// Reads text in single or double quotes and returns it raw.
    pub(super) fn quoted(&mut self, what: &'static str) -> Result<&'a str, Fault> {
        let quote = self.peek();
        if quote != b'"' && quote != b'\'' {
            return Err(Fault::expected(self.at, what));
        }
        let start = self.at + 1;
        let Some(length) = self.text[start..].find(char::from(quote)) else {
            return Err(Fault::expected(self.text.len(), "the closing quote"));
        };
        self.at = start + length + 1;
        Ok(&self.text[start..start + length])
    }

    /// Reads up to `end`, which is skipped. Every character must be allowed.
    pub(super) fn until(&mut self, end: &str, what: &'static str) -> Result<&'a str, Fault> {
        let start = self.at;
        let Some(length) = self.rest().find(end) else {
            return Err(Fault::expected(self.text.len(), what));
        };
        self.at = start + length + end.len();
        let found = &self.text[start..start + length];
        check_characters(found, start)?;
        Ok(found)
    }
}

/// Refuses characters that XML does not allow; `at` is the place of `text` in its token.
pub(super) fn check_characters(text: &str, at: usize) -> Result<(), Fault> {
    match first_forbidden(text) {
        None => Ok(()),
        Some((place, character)) => {
            let kind = ParseErrorKind::ForbiddenCharacter(u32::from(character));
            Err(Fault::new(at + place, kind))
        }
    }
}

/// Replaces the line ends `\r\n` and `\r` by `\n` (XML 1.0, section 2.11).
pub(super) fn push_with_line_ends(into: &mut String, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find('\r') {
        into.push_str(&rest[..at]);
        into.push('\n');
        rest = &rest[at + 1..];
        rest = rest.strip_prefix('\n').unwrap_or(rest);
    }
    into.push_str(rest);
}
