//! The document type declaration: what a reader that does not validate needs of it.
//!
//! The internal subset is read for the entities and for the types and defaults of attributes;
//! content models are checked for their form and forgotten. The external subset is not read.

use std::collections::HashMap;

use super::chars::name_length;
use super::cursor::{Cursor, check_characters, push_with_line_ends};
use super::entity::{Entities, Entity, Reference, reference};
use super::error::{Fault, ParseErrorKind};
use super::{Limits, tag::limit};

/// Parentheses inside one another in a content model, at most.
const NESTING: usize = 128;

/// How the value of an attribute is normalised, and what it means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttributeType {
    Text,
    /// Names or tokens: outer spaces go, inner runs of spaces become one.
    Tokens,
    /// As `Tokens`; the value identifies the element.
    Id,
}

/// What is declared of one attribute of one element.
#[derive(Debug, Clone)]
pub(super) struct AttributeDeclaration {
    /// Name as written, with prefix.
    pub(super) name: Box<str>,
    pub(super) kind: AttributeType,
    pub(super) default: Option<Box<str>>,
}

/// The declarations of attributes by the element's name as written.
#[derive(Debug, Default)]
pub(super) struct DocumentType {
    pub(super) attributes: HashMap<Box<str>, Vec<AttributeDeclaration>>,
}

/// Reads `<!DOCTYPE … >`, a whole token.
pub(super) fn parse(
    token: &str,
    limits: &Limits,
    entities: &mut Entities,
) -> Result<DocumentType, Fault> {
    let cursor = Cursor::new(token, 0, limits.name_length);
    let attributes_max = limits.attributes;
    let mut subset = Subset { cursor, entities, attributes_max, found: DocumentType::default() };
    subset.declaration()?;
    Ok(subset.found)
}

struct Subset<'a, 'e> {
    cursor: Cursor<'a>,
    entities: &'e mut Entities,
    /// Most attributes of an element.
    attributes_max: usize,
    found: DocumentType,
}

impl Subset<'_, '_> {
    fn declaration(&mut self) -> Result<(), Fault> {
        self.cursor.expect("<!DOCTYPE", "`<!DOCTYPE`, in capital letters")?;
        self.cursor.expect_space()?;
        self.cursor.qualified_name()?;
        if self.cursor.skip_space() && self.external_id(false)? {
            self.entities.has_external_subset = true;
            self.cursor.skip_space();
        }
        if self.cursor.eat("[") {
            self.subset()?;
            self.cursor.skip_space();
        }
        self.cursor.expect(">", "`>` at the end of the document type")?;
        if self.cursor.at < self.cursor.text.len() {
            return Err(Fault::expected(self.cursor.at, "nothing behind the document type"));
        }
        Ok(())
    }

    /// Reads `SYSTEM "…"` or `PUBLIC "…" "…"` if one is next. With `public_alone` the second
    /// literal of the latter may be missing, as for notations.
    fn external_id(&mut self, public_alone: bool) -> Result<bool, Fault> {
        if self.cursor.eat("SYSTEM") {
            self.cursor.expect_space()?;
        } else if self.cursor.eat("PUBLIC") {
            self.cursor.expect_space()?;
            let start = self.cursor.at + 1;
            let public = self.cursor.quoted("a public identifier in quotes")?;
            let odd = |byte: u8| {
                !byte.is_ascii_alphanumeric() && !b" \r\n-'()+,./:=?;!*#@$_%".contains(&byte)
            };
            if let Some(at) = public.bytes().position(odd) {
                return Err(Fault::expected(start + at, "a character of a public identifier"));
            }
            let space = self.cursor.skip_space();
            if public_alone && self.cursor.peek() == b'>' {
                return Ok(true);
            }
            if !space {
                return Err(Fault::expected(self.cursor.at, "white space"));
            }
        } else {
            return Ok(false);
        }
        let start = self.cursor.at + 1;
        let system = self.cursor.quoted("a system identifier in quotes")?;
        check_characters(system, start)?;
        Ok(true)
    }

    fn subset(&mut self) -> Result<(), Fault> {
        loop {
            self.cursor.skip_space();
            let at = self.cursor.at;
            if self.cursor.eat("]") {
                return Ok(());
            }
            if self.cursor.eat("<!--") {
                let text = self.cursor.until("--", "the end of the comment")?;
                check_characters(text, at + 4)?;
                self.cursor.expect(">", "`>`: a comment must not contain `--`")?;
            } else if self.cursor.eat("<?") {
                self.instruction()?;
            } else if self.cursor.eat("<!ENTITY") {
                self.entity()?;
            } else if self.cursor.eat("<!ATTLIST") {
                self.attributes()?;
            } else if self.cursor.eat("<!ELEMENT") {
                self.element()?;
            } else if self.cursor.eat("<!NOTATION") {
                self.cursor.expect_space()?;
                self.cursor.name()?;
                self.cursor.expect_space()?;
                if !self.external_id(true)? {
                    return Err(Fault::expected(self.cursor.at, "`SYSTEM` or `PUBLIC`"));
                }
                self.end()?;
            } else if self.cursor.eat("%") {
                return Err(self.parameter_entity(at));
            } else {
                return Err(Fault::expected(at, "a declaration or `]` in the document type"));
            }
        }
    }

    fn parameter_entity(&mut self, at: usize) -> Fault {
        let name = match self.cursor.name() {
            Ok(name) => name.to_owned(),
            Err(fault) => return fault,
        };
        match self.cursor.expect(";", "`;` at the end of the reference") {
            Ok(()) => Fault::new(at, ParseErrorKind::ParameterEntity(name)),
            Err(fault) => fault,
        }
    }

    fn instruction(&mut self) -> Result<(), Fault> {
        let at = self.cursor.at;
        let target = self.cursor.name()?;
        if target.eq_ignore_ascii_case("xml") {
            return Err(Fault::rule(at, super::RESERVED_TARGET));
        }
        if !self.cursor.eat("?>") {
            self.cursor.expect_space()?;
            self.cursor.until("?>", "the end of the processing instruction")?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        self.cursor.skip_space();
        self.cursor.expect(">", "`>` at the end of the declaration")
    }

    fn entity(&mut self) -> Result<(), Fault> {
        self.cursor.expect_space()?;
        let mut parameter = false;
        if self.cursor.eat("%") {
            parameter = true;
            self.cursor.expect_space()?;
        }
        let name = self.cursor.name()?;
        self.cursor.expect_space()?;
        let entity = if self.external_id(false)? {
            let space = self.cursor.skip_space();
            if !parameter && self.cursor.rest().starts_with("NDATA") {
                if !space {
                    return Err(Fault::expected(self.cursor.at, "white space"));
                }
                self.cursor.at += "NDATA".len();
                self.cursor.expect_space()?;
                self.cursor.name()?;
            }
            Entity::External
        } else {
            let start = self.cursor.at + 1;
            let value = self.cursor.quoted("an entity's value in quotes, `SYSTEM` or `PUBLIC`")?;
            Entity::Internal(entity_value(value, start)?)
        };
        self.end()?;
        if !parameter {
            // The first declaration of a name is the one that holds.
            self.entities.declared.entry(name.into()).or_insert(entity);
        }
        Ok(())
    }

    fn attributes(&mut self) -> Result<(), Fault> {
        self.cursor.expect_space()?;
        let (element, _) = self.cursor.qualified_name()?;
        loop {
            let space = self.cursor.skip_space();
            if self.cursor.eat(">") {
                return Ok(());
            }
            if !space {
                return Err(Fault::expected(self.cursor.at, "white space or `>`"));
            }
            let (name, _) = self.cursor.qualified_name()?;
            self.cursor.expect_space()?;
            let kind = self.attribute_type()?;
            self.cursor.expect_space()?;
            let default = self.default(kind)?;
            let list = self.found.attributes.entry(element.into()).or_default();
            if list.iter().all(|declared| &*declared.name != name) {
                if list.len() == self.attributes_max {
                    let what = "attributes declared for an element";
                    return Err(limit(self.cursor.at, what, self.attributes_max, "attributes"));
                }
                list.push(AttributeDeclaration { name: name.into(), kind, default });
            }
        }
    }

    fn attribute_type(&mut self) -> Result<AttributeType, Fault> {
        let at = self.cursor.at;
        if self.cursor.peek() == b'(' {
            self.alternatives(false)?;
            return Ok(AttributeType::Tokens);
        }
        match self.cursor.name()? {
            "CDATA" => Ok(AttributeType::Text),
            "ID" => Ok(AttributeType::Id),
            "IDREF" | "IDREFS" | "ENTITY" | "ENTITIES" | "NMTOKEN" | "NMTOKENS" => {
                Ok(AttributeType::Tokens)
            }
            "NOTATION" => {
                self.cursor.expect_space()?;
                self.alternatives(true)?;
                Ok(AttributeType::Tokens)
            }
            _ => Err(Fault::expected(at, "an attribute type such as CDATA, ID or (one | two)")),
        }
    }

    /// Reads `(a | b)`: names, or tokens that may start with any character of a name.
    fn alternatives(&mut self, names: bool) -> Result<(), Fault> {
        self.cursor.expect("(", "`(`")?;
        loop {
            self.cursor.skip_space();
            if names {
                self.cursor.name()?;
            } else {
                self.token()?;
            }
            self.cursor.skip_space();
            if self.cursor.eat(")") {
                return Ok(());
            }
            self.cursor.expect("|", "`|` or `)`")?;
        }
    }

    fn token(&mut self) -> Result<(), Fault> {
        let start = self.cursor.at;
        loop {
            // A name behind a letter is any run of characters of names.
            let length = name_length(self.cursor.rest());
            self.cursor.at += length;
            if length == 0 {
                if !matches!(self.cursor.peek(), b'0'..=b'9' | b'-' | b'.' | b':') {
                    break;
                }
                self.cursor.at += 1;
            }
        }
        if self.cursor.at == start {
            return Err(Fault::expected(start, "a token"));
        }
        Ok(())
    }

    fn default(&mut self, kind: AttributeType) -> Result<Option<Box<str>>, Fault> {
        if self.cursor.eat("#REQUIRED") || self.cursor.eat("#IMPLIED") {
            return Ok(None);
        }
        if self.cursor.eat("#FIXED") {
            self.cursor.expect_space()?;
        }
        let quote = self.cursor.peek();
        if quote != b'"' && quote != b'\'' {
            let what = "#REQUIRED, #IMPLIED, #FIXED or a value in quotes";
            return Err(Fault::expected(self.cursor.at, what));
        }
        self.cursor.at += 1;
        let value = self.entities.attribute_value(&mut self.cursor, quote)?;
        Ok(Some(normalise(kind, value).into()))
    }

    fn element(&mut self) -> Result<(), Fault> {
        self.cursor.expect_space()?;
        self.cursor.qualified_name()?;
        self.cursor.expect_space()?;
        if !self.cursor.eat("EMPTY") && !self.cursor.eat("ANY") {
            self.content_model()?;
        }
        self.end()
    }

    fn content_model(&mut self) -> Result<(), Fault> {
        self.cursor.expect("(", "EMPTY, ANY or `(`")?;
        self.cursor.skip_space();
        if !self.cursor.eat("#PCDATA") {
            self.group(1)?;
            self.occurrence();
            return Ok(());
        }
        let mut alone = true;
        loop {
            self.cursor.skip_space();
            if self.cursor.eat(")") {
                if !self.cursor.eat("*") && !alone {
                    return Err(Fault::expected(self.cursor.at, "`*` behind mixed content"));
                }
                return Ok(());
            }
            self.cursor.expect("|", "`|` or `)`")?;
            self.cursor.skip_space();
            self.cursor.qualified_name()?;
            alone = false;
        }
    }

    fn occurrence(&mut self) {
        if matches!(self.cursor.peek(), b'?' | b'*' | b'+') {
            self.cursor.at += 1;
        }
    }

    /// Reads a choice or a sequence behind its `(`.
    fn group(&mut self, depth: usize) -> Result<(), Fault> {
        if depth > NESTING {
            return Err(Fault::rule(self.cursor.at, "more than 128 nested `(` in a content model"));
        }
        let mut separator = 0;
        loop {
            self.cursor.skip_space();
            if self.cursor.eat("(") {
                self.group(depth + 1)?;
            } else {
                self.cursor.qualified_name()?;
            }
            self.occurrence();
            self.cursor.skip_space();
            let next = self.cursor.peek();
            let at = self.cursor.at;
            self.cursor.at += 1;
            match next {
                b')' => return Ok(()),
                b'|' | b',' if separator == 0 || separator == next => separator = next,
                _ => return Err(Fault::expected(at, "`)`, or the same one of `|` and `,`")),
            }
        }
    }
}

/// Makes an entity's replacement text: character references are resolved, others stay.
fn entity_value(value: &str, start: usize) -> Result<Box<str>, Fault> {
    check_characters(value, start)?;
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find(['&', '%']) {
        push_with_line_ends(&mut text, &rest[..at]);
        rest = &rest[at..];
        let place = start + value.len() - rest.len();
        if rest.starts_with('%') {
            let rule = "an entity's value must not contain `%`; write `&#37;`";
            return Err(Fault::rule(place, rule));
        }
        let (reference, length) =
            reference(rest).map_err(|fault| Fault { at: place + fault.at, ..fault })?;
        match reference {
            Reference::Character(character) => text.push(character),
            Reference::Entity(_) => text.push_str(&rest[..length]),
        }
        rest = &rest[length..];
    }
    push_with_line_ends(&mut text, rest);
    Ok(text.into())
}

/// Finishes the normalisation of an attribute's value by its type (XML 1.0, section 3.3.3).
pub(super) fn normalise(kind: AttributeType, value: String) -> String {
    let plain = !value.starts_with(' ') && !value.ends_with(' ') && !value.contains("  ");
    if kind == AttributeType::Text || plain {
        return value;
    }
    let words: Vec<&str> = value.split(' ').filter(|word| !word.is_empty()).collect();
    words.join(" ")
}
