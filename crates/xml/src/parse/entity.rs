//! References to characters and entities (XML 1.0, sections 4.1 and 4.4).

use std::collections::HashMap;

use super::chars::{is_allowed, name_length, plain_value};
use super::cursor::Cursor;
use super::error::{Fault, ParseErrorKind};

/// Entities inside one another, at most.
const NESTING: usize = 40;

/// What the document type says of an entity.
#[derive(Debug, Clone)]
pub(super) enum Entity {
    /// Its replacement text: character references are resolved, entity references are not.
    Internal(Box<str>),
    External,
}

/// The entities of a document and how much their expansion may still produce.
#[derive(Debug, Default)]
pub(super) struct Entities {
    pub(super) declared: HashMap<Box<str>, Entity>,
    pub(super) expanded: usize,
    pub(super) limit: usize,
    /// The document type names an external subset, which is not read.
    pub(super) has_external_subset: bool,
    /// The document says that no declaration outside it matters.
    pub(super) is_standalone: bool,
}

/// Where a reference stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Content,
    AttributeValue,
}

/// A reference: `&#65;` or `&name;`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reference<'a> {
    Character(char),
    Entity(&'a str),
}

/// Reads the reference at the start of `text`, which begins with `&`. Returns it with its length.
pub(super) fn reference(text: &str) -> Result<(Reference<'_>, usize), Fault> {
    let body = &text[1..];
    if let Some(number) = body.strip_prefix('#') {
        let (digits, radix) = match number.strip_prefix('x') {
            Some(digits) => (digits, 16),
            None => (number, 10),
        };
        let length = digits.bytes().take_while(|byte| char::from(*byte).is_digit(radix)).count();
        let end = text.len() - digits.len() + length;
        if length == 0 || text.as_bytes().get(end) != Some(&b';') {
            return Err(Fault::expected(end, "a character reference such as &#65; or &#x41;"));
        }
        let significant = digits[..length].trim_start_matches('0');
        // More than eight digits are no character, and would not fit.
        let code = match significant.len() {
            0 => 0,
            1..=8 => u32::from_str_radix(significant, radix).unwrap_or(u32::MAX),
            _ => u32::MAX,
        };
        return match char::from_u32(code).filter(|&character| is_allowed(character)) {
            Some(character) => Ok((Reference::Character(character), end + 1)),
            None => Err(Fault::new(0, ParseErrorKind::ForbiddenCharacter(code))),
        };
    }
    let length = name_length(body);
    if length == 0 {
        return Err(Fault::rule(
            0,
            "a bare `&` starts no reference; write `&amp;` for the character",
        ));
    }
    if body.as_bytes().get(length) != Some(&b';') {
        return Err(Fault::expected(1 + length, "`;` at the end of the reference"));
    }
    Ok((Reference::Entity(&body[..length]), length + 2))
}

/// Returns the character of one of the five entities that every document has.
fn predefined(name: &str) -> Option<char> {
    match name {
        "lt" => Some('<'),
        "gt" => Some('>'),
        "amp" => Some('&'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => None,
    }
}

impl Entities {
    /// Appends what `&name;` stands for.
    pub(super) fn expand(
        &mut self,
        name: &str,
        place: Place,
        into: &mut String,
    ) -> Result<(), ParseErrorKind> {
        if let Some(character) = predefined(name) {
            into.push(character);
            return Ok(());
        }
        let is_unread = self.has_external_subset && !self.is_standalone;
        let Entities { declared, expanded, limit, .. } = self;
        let mut budget = Budget { declared, expanded, limit: *limit, is_unread, open: Vec::new() };
        budget.expand(name, place, into)
    }

    /// Reads the value of an attribute behind its opening quote, up to and with the closing one,
    /// and normalises it as if its type were CDATA (XML 1.0, section 3.3.3).
    pub(super) fn attribute_value(
        &mut self,
        cursor: &mut Cursor<'_>,
        quote: u8,
    ) -> Result<String, Fault> {
        let mut value = String::new();
        loop {
            let plain = plain_value(&cursor.text.as_bytes()[cursor.at..]);
            value.push_str(&cursor.text[cursor.at..cursor.at + plain]);
            cursor.at += plain;
            match cursor.peek() {
                byte if byte == quote => {
                    cursor.at += 1;
                    return Ok(value);
                }
                b'&' => {
                    let at = cursor.at;
                    let (reference, length) = reference(cursor.rest())
                        .map_err(|fault| Fault { at: at + fault.at, ..fault })?;
                    match reference {
                        Reference::Character(character) => value.push(character),
                        Reference::Entity(name) => self
                            .expand(name, Place::AttributeValue, &mut value)
                            .map_err(|kind| Fault::new(at, kind))?,
                    }
                    cursor.at += length;
                }
                b'<' => return Err(Fault::rule(cursor.at, LESS_THAN)),
                b'\r' => {
                    value.push(' ');
                    cursor.at += 1;
                    cursor.eat("\n");
                }
                b'\t' | b'\n' => {
                    value.push(' ');
                    cursor.at += 1;
                }
                _ => {
                    // The other quote, a character that begins with 0xEF, or a forbidden one.
                    let Some(character) = cursor.rest().chars().next() else {
                        return Err(Fault::expected(cursor.at, "the closing quote"));
                    };
                    if !is_allowed(character) {
                        let kind = ParseErrorKind::ForbiddenCharacter(u32::from(character));
                        return Err(Fault::new(cursor.at, kind));
                    }
                    value.push(character);
                    cursor.at += character.len_utf8();
                }
            }
        }
    }
}

const LESS_THAN: &str = "an attribute's value must not contain `<`; write `&lt;`";

/// One expansion, from the reference in the document downwards.
struct Budget<'e> {
    declared: &'e HashMap<Box<str>, Entity>,
    expanded: &'e mut usize,
    limit: usize,
    /// Whether the external subset may declare what is not in `declared`.
    is_unread: bool,
    open: Vec<&'e str>,
}

impl Budget<'_> {
    fn expand(
        &mut self,
        name: &str,
        place: Place,
        into: &mut String,
    ) -> Result<(), ParseErrorKind> {
        if let Some(character) = predefined(name) {
            into.push(character);
            return Ok(());
        }
        let Some((name, entity)) = self.declared.get_key_value(name) else {
            let name = name.to_owned();
            return Err(if self.is_unread {
                ParseErrorKind::UnreadEntity(name)
            } else {
                ParseErrorKind::UnknownEntity(name)
            });
        };
        let Entity::Internal(text) = entity else {
            return Err(ParseErrorKind::ExternalEntity(name.to_string()));
        };
        if self.open.contains(&&**name) {
            return Err(ParseErrorKind::RecursiveEntity(name.to_string()));
        }
        // A reference counts even if its entity is empty: work is bounded, not only memory.
        *self.expanded = self.expanded.saturating_add(text.len() + 1);
        if *self.expanded > self.limit || self.open.len() == NESTING {
            let (what, limit) = ("bytes from expanded entities", self.limit);
            return Err(ParseErrorKind::Limit { what, limit, field: "expansion" });
        }
        self.open.push(name);
        self.replacement(name, text, place, into)?;
        self.open.pop();
        Ok(())
    }

    fn replacement(
        &mut self,
        name: &str,
        text: &str,
        place: Place,
        into: &mut String,
    ) -> Result<(), ParseErrorKind> {
        if place == Place::Content {
            // First, because a CDATA section is markup.
            if text.contains('<') {
                return Err(ParseErrorKind::EntityWithMarkup(name.to_owned()));
            }
            if text.contains("]]>") {
                return Err(ParseErrorKind::Rule(super::SECTION_END));
            }
        }
        let mut rest = text;
        while let Some(first) = rest.bytes().next() {
            match first {
                b'<' => return Err(ParseErrorKind::Rule(LESS_THAN)),
                b'&' => {
                    let (reference, length) = reference(rest).map_err(|fault| fault.kind)?;
                    match reference {
                        Reference::Character(character) => into.push(character),
                        Reference::Entity(inner) => self.expand(inner, place, into)?,
                    }
                    rest = &rest[length..];
                }
                b'\t' | b'\n' | b'\r' if place == Place::AttributeValue => {
                    into.push(' ');
                    rest = &rest[1..];
                }
                _ => {
                    let special = |byte| matches!(byte, b'<' | b'&' | b'\t' | b'\n' | b'\r');
                    let length = rest.bytes().skip(1).position(special);
                    let (plain, after) = rest.split_at(length.map_or(rest.len(), |at| at + 1));
                    into.push_str(plain);
                    rest = after;
                }
            }
        }
        Ok(())
    }
}
