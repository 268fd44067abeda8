//! XML text as a stream of events.
//!
//! [`XmlReader`] reads *XML 1.0* (fifth edition) with *Namespaces in XML 1.0* from any
//! [`BufRead`]. It does not validate, but a document that is not well-formed is always refused,
//! with the place and the reason. It holds at most [`TEXT_PART`] bytes of text at once, one tag,
//! comment or processing instruction (at most [`Limits::markup`] bytes), and the names of the open
//! elements, so a document may be larger than memory.
//!
//! `quick_xml` finds the ends of tags, comments, instructions and document types. It would collect
//! a whole text before it returns it, so the reader takes text and CDATA sections from the input
//! itself; and it checks little, so the rules of XML are checked here.
//!
//! [`XmlReader::fragment`] reads a part of a document: text as it stands between the tags of an
//! element.
//!
//! What is left out, each with an error: external entities, parameter entities, entities whose
//! replacement contains markup, and encodings other than UTF-8, US-ASCII and UTF-16. The external
//! subset of a document type is not read.
//!
//! ```
//! use tidegate_xml::parse::{Event, XmlReader};
//!
//! let mut reader = XmlReader::new(&b"<bid>7 &lt; 8</bid>"[..]);
//! let mut text = String::new();
//! while let Some(event) = reader.next_event()? {
//!     if let Event::Text(part) = event {
//!         text.push_str(part);
//!     }
//! }
//! assert_eq!(text, "7 < 8");
//! # Ok::<(), tidegate_xml::parse::ParseError>(())
//! ```

pub(crate) mod chars;
mod cursor;
mod dtd;
mod entity;
mod error;
mod prolog;
mod source;
mod tag;
mod text;

use std::io::{self, BufRead};
use std::ops::Range;
use std::sync::Arc;

use cursor::{Cursor, check_characters, push_with_line_ends};
use dtd::DocumentType;
use entity::Entities;
use error::Fault;
pub use error::{ParseError, ParseErrorKind, Position};
use source::Source;
use tag::Tags;

use crate::name::QName;
use crate::tree::Binding;

/// Largest number of bytes in one [`Event::Text`]. A longer text comes in several events.
pub const TEXT_PART: usize = 64 * 1024;

/// Namespace of the prefix `xml`, which every document has.
pub const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";

/// Namespace of the attributes that declare namespaces: `xmlns` and `xmlns:prefix`.
pub const XMLNS_NAMESPACE: &str = "http://www.w3.org/2000/xmlns/";

const SECTION_END: &str = "text must not contain `]]>`; write `]]&gt;`";
const RESERVED_TARGET: &str =
    "the target xml is reserved, and an XML declaration must be first in the document; remove it";

/// An attribute of an element, or a declaration of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Name. An attribute without prefix is in no namespace; declarations of namespaces are in
    /// [`XMLNS_NAMESPACE`].
    pub name: Arc<QName>,
    /// Value, normalised by the attribute's declared type.
    pub value: String,
    /// Whether the document type declares it as `ID`: the value identifies the element.
    pub is_id: bool,
}

impl Attribute {
    /// Returns whether this declares a namespace and is no attribute in the sense of `XPath`.
    #[must_use]
    pub fn declares_namespace(&self) -> bool {
        *self.name.namespace == *XMLNS_NAMESPACE
    }
}

/// A part of a document, in document order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// The document begins. Always the first event.
    StartDocument,
    /// An element begins.
    StartElement {
        /// Its name.
        name: &'a Arc<QName>,
        /// Its attributes and namespace declarations in the order of the document; those that the
        /// document type adds are last.
        attributes: &'a [Attribute],
    },
    /// Text, with references and CDATA sections resolved; at most [`TEXT_PART`] bytes and never
    /// empty. Events of text that follow one another are parts of one text.
    Text(&'a str),
    /// A comment.
    Comment(&'a str),
    /// A processing instruction.
    ProcessingInstruction {
        /// The name of whom it is for.
        target: &'a str,
        /// What is behind the target, without the white space between; may be empty.
        data: &'a str,
    },
    /// The element that began last and has not ended ends.
    EndElement {
        /// Its name.
        name: &'a Arc<QName>,
    },
    /// The document ends. Always the last event.
    EndDocument,
}

/// How large the parts of a document may be. More is refused with [`ParseErrorKind::Limit`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Elements inside one another, the root counted. Default 4,096.
    pub depth: usize,
    /// Attributes of an element, those of the document type counted, and attributes that the
    /// document type declares for one. Default 1,024.
    pub attributes: usize,
    /// Bytes of a name without its prefix, and of a prefix. Default 1,024.
    pub name_length: usize,
    /// Bytes of one tag, comment, processing instruction or document type, found with a
    /// tolerance of 64 KiB. Default 16 MiB.
    pub markup: usize,
    /// Declared namespaces that are in scope at once, hidden ones counted. Default 1,024.
    pub namespaces: usize,
    /// Bytes that all references to declared entities produce in the document, inner references
    /// counted again, and one for each reference; and bytes of the attributes that the document
    /// type adds, as far as they are more than 16 times the document up to there. Default 4 MiB.
    pub expansion: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            depth: 4_096,
            attributes: 1_024,
            name_length: 1_024,
            markup: 16 << 20,
            namespaces: 1_024,
            expansion: 4 << 20,
        }
    }
}

/// Where in the document's grammar the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing has been read.
    Start,
    /// Before the root element; `doctype` if the document type has come.
    Prolog { doctype: bool },
    /// Inside the root element.
    Content,
    /// Behind the root element.
    Epilog,
    /// The last event has been given, or an error.
    Done,
}

/// What has been read, without a loan on the reader.
#[derive(Debug)]
enum Step {
    StartDocument,
    StartElement,
    Text(Range<usize>),
    Comment,
    Instruction { target: usize },
    EndElement(Arc<QName>),
    EndDocument,
}

/// The kind of a token, as `quick_xml` tells it.
#[derive(Debug, Clone, Copy)]
enum Token {
    StartTag,
    EndTag,
    Comment,
    Instruction,
    DocumentType,
}

/// Reads a document and gives its parts one after the other.
pub struct XmlReader<R: BufRead> {
    markup: quick_xml::Reader<Source<R>>,
    /// The present token, `<` and `>` included.
    token: Vec<u8>,
    /// Text that has been read and not given yet is `text[given..]`.
    text: String,
    given: usize,
    /// A comment, or an instruction's target and data.
    content: String,
    in_section: bool,
    entities: Entities,
    document_type: Option<DocumentType>,
    tags: Tags,
    ended: Option<Arc<QName>>,
    /// The last start tag was `<a/>`.
    empty: bool,
    stage: Stage,
    is_fragment: bool,
    limits: Limits,
}

impl<R: BufRead> XmlReader<R> {
    /// A reader with the default [`Limits`].
    pub fn new(input: R) -> XmlReader<R> {
        XmlReader::with_limits(input, Limits::default())
    }

    /// A reader with other limits.
    pub fn with_limits(input: R, limits: Limits) -> XmlReader<R> {
        let mut markup = quick_xml::Reader::from_reader(Source::new(input));
        let config = markup.config_mut();
        config.check_end_names = false;
        config.allow_unmatched_ends = true;
        XmlReader {
            markup,
            token: Vec::new(),
            text: String::new(),
            given: 0,
            content: String::new(),
            in_section: false,
            entities: Entities { limit: limits.expansion, ..Entities::default() },
            document_type: None,
            tags: Tags::new(limits),
            ended: None,
            empty: false,
            stage: Stage::Start,
            is_fragment: false,
            limits,
        }
    }

    /// A reader of a fragment with the default [`Limits`]: what may stand between the tags of an
    /// element (XML 1.0, production `content`), so text and any number of elements. `namespaces`
    /// are those in scope around it. The events begin and end as those of a document do.
    ///
    /// ```
    /// use tidegate_xml::parse::{Event, XmlReader};
    ///
    /// let mut reader = XmlReader::fragment(&b"one<b/>two"[..], &[]);
    /// assert_eq!(reader.next_event()?, Some(Event::StartDocument));
    /// assert_eq!(reader.next_event()?, Some(Event::Text("one")));
    /// # Ok::<(), tidegate_xml::parse::ParseError>(())
    /// ```
    pub fn fragment(input: R, namespaces: &[Binding]) -> XmlReader<R> {
        let mut reader = XmlReader::new(input);
        reader.is_fragment = true;
        reader.tags.bind(namespaces);
        reader
    }

    /// Returns the place behind what has been read so far. It is never before the end of the last
    /// event.
    #[must_use]
    pub fn position(&self) -> Position {
        self.markup.get_ref().position()
    }

    /// Reads the next part of the document; `None` behind the last one and after an error.
    ///
    /// # Errors
    ///
    /// Returns why and where the document is not well-formed, exceeds a limit, needs something
    /// that the reader does not support, or cannot be read. The events before the error are those
    /// of the text in front of it. A caller that has stored them has to remove them.
    pub fn next_event(&mut self) -> Result<Option<Event<'_>>, ParseError> {
        if self.stage == Stage::Done {
            return Ok(None);
        }
        let step = match self.step() {
            Ok(step) => step,
            Err(error) => {
                self.stage = Stage::Done;
                return Err(error);
            }
        };
        Ok(Some(match step {
            Step::StartDocument => Event::StartDocument,
            Step::StartElement => {
                // A start tag has always opened an element.
                let Some(name) = self.tags.innermost() else { return Ok(None) };
                Event::StartElement { name, attributes: &self.tags.attributes }
            }
            Step::Text(range) => Event::Text(&self.text[range]),
            Step::Comment => Event::Comment(&self.content),
            Step::Instruction { target } => {
                let (target, data) = self.content.split_at(target);
                Event::ProcessingInstruction { target, data }
            }
            Step::EndElement(name) => Event::EndElement { name: self.ended.insert(name) },
            Step::EndDocument => Event::EndDocument,
        }))
    }

    fn source(&mut self) -> &mut Source<R> {
        self.markup.get_mut()
    }

    fn step(&mut self) -> Result<Step, ParseError> {
        if self.stage == Stage::Start {
            self.detect_encoding()?;
            if self.is_fragment {
                self.stage = Stage::Content;
            } else {
                self.read_declaration()?;
                self.stage = Stage::Prolog { doctype: false };
            }
            return Ok(Step::StartDocument);
        }
        if self.empty {
            self.empty = false;
            return self.close();
        }
        loop {
            if self.stage == Stage::Content {
                if let Some(range) = self.read_text()? {
                    return Ok(Step::Text(range));
                }
            } else {
                self.skip_blank()?;
            }
            if self.peek(1)?.is_empty() {
                return self.finish();
            }
            let token = self.read_token()?;
            if let Some(step) = self.interpret(token)? {
                return Ok(step);
            }
        }
    }

    /// Makes an event of the token; `None` if it is one that gives none.
    fn interpret(&mut self, token: Token) -> Result<Option<Step>, ParseError> {
        // Taken out so that the rest of the reader can be changed meanwhile.
        let bytes = std::mem::take(&mut self.token);
        let step = match std::str::from_utf8(&bytes) {
            Ok(text) => self.interpret_text(token, text),
            Err(error) => {
                let kind = ParseErrorKind::InvalidBytes("UTF-8");
                Err(Fault::new(error.valid_up_to(), kind))
            }
        };
        let step = step.map_err(|fault| self.locate(&fault, &bytes));
        self.token = bytes;
        step
    }

    fn interpret_text(&mut self, token: Token, text: &str) -> Result<Option<Step>, Fault> {
        match (token, self.stage) {
            (Token::StartTag, Stage::Epilog) => {
                Err(Fault::rule(0, "a document has one root element; put both into another"))
            }
            (Token::StartTag, _) => {
                let document_type = self.document_type.as_ref();
                let token = (text, self.markup.get_ref().position().offset);
                self.empty = self.tags.start(token, &mut self.entities, document_type)?;
                self.stage = Stage::Content;
                Ok(Some(Step::StartElement))
            }
            (Token::EndTag, _) => {
                self.tags.end(text)?;
                Ok(self.close_innermost().map(Step::EndElement))
            }
            (Token::Comment, _) => {
                let content = &text[4..text.len() - 3];
                check_characters(content, 4)?;
                let dashes = content.find("--").or(content.strip_suffix('-').map(str::len));
                if let Some(at) = dashes {
                    let rule = "a comment must not contain `--` or end with `-`; write `- -`";
                    return Err(Fault::rule(4 + at, rule));
                }
                self.content.clear();
                push_with_line_ends(&mut self.content, content);
                Ok(Some(Step::Comment))
            }
            (Token::Instruction, _) => self.instruction(text).map(Some),
            (Token::DocumentType, Stage::Prolog { doctype: false }) => {
                self.document_type = Some(dtd::parse(text, &self.limits, &mut self.entities)?);
                self.stage = Stage::Prolog { doctype: true };
                Ok(None)
            }
            (Token::DocumentType, _) => {
                let rule = "a document has one document type, before its root; remove this one";
                Err(Fault::rule(0, rule))
            }
        }
    }

    fn instruction(&mut self, token: &str) -> Result<Step, Fault> {
        let mut cursor = Cursor::new(token, 2, self.limits.name_length);
        let target = cursor.name()?;
        if target.eq_ignore_ascii_case("xml") {
            return Err(Fault::rule(0, RESERVED_TARGET));
        }
        self.content.clear();
        self.content.push_str(target);
        if !cursor.eat("?>") {
            cursor.expect_space()?;
            let data = cursor.until("?>", "`?>` at the end of the processing instruction")?;
            push_with_line_ends(&mut self.content, data);
        }
        Ok(Step::Instruction { target: target.len() })
    }

    fn close(&mut self) -> Result<Step, ParseError> {
        match self.close_innermost() {
            Some(name) => Ok(Step::EndElement(name)),
            None => self.finish(),
        }
    }

    fn close_innermost(&mut self) -> Option<Arc<QName>> {
        let name = self.tags.close()?;
        if self.tags.depth() == 0 && !self.is_fragment {
            self.stage = Stage::Epilog;
        }
        Some(name)
    }

    /// The input has ended.
    fn finish(&mut self) -> Result<Step, ParseError> {
        let missing = match self.tags.innermost() {
            Some(open) => format!("</{open}>"),
            None if self.is_fragment || self.stage == Stage::Epilog => {
                self.stage = Stage::Done;
                return Ok(Step::EndDocument);
            }
            None => "its root element".to_owned(),
        };
        Err(self.here(ParseErrorKind::UnexpectedEnd(missing)))
    }

    /// Reads a token that begins with `<` into `self.token`.
    fn read_token(&mut self) -> Result<Token, ParseError> {
        use quick_xml::events::Event as Markup;

        // `quick_xml` would take these for the start of a longer comment.
        let head = self.peek(6)?;
        if head.starts_with(b"<!-->") || head.starts_with(b"<!--->") {
            let rule = "this is not a whole comment; write `<!---->` for an empty one";
            return Err(self.here(ParseErrorKind::Rule(rule)));
        }
        let limit = self.limits.markup;
        self.source().begin_token(limit);
        self.token.clear();
        let result = match self.markup.read_event_into(&mut self.token) {
            Ok(Markup::Start(_) | Markup::Empty(_)) => Ok(Token::StartTag),
            Ok(Markup::End(_)) => Ok(Token::EndTag),
            Ok(Markup::Comment(_)) => Ok(Token::Comment),
            Ok(Markup::PI(_) | Markup::Decl(_)) => Ok(Token::Instruction),
            Ok(Markup::DocType(_)) => Ok(Token::DocumentType),
            // None of these begins with `<`, except a CDATA section outside the root element.
            Ok(Markup::CData(_) | Markup::Text(_) | Markup::GeneralRef(_) | Markup::Eof) => {
                Err(ParseErrorKind::Rule(text::OUTSIDE))
            }
            Err(quick_xml::Error::Io(error)) => Err(ParseErrorKind::Io(error)),
            Err(quick_xml::Error::Encoding(_)) => Err(ParseErrorKind::InvalidBytes("UTF-8")),
            Err(_) => Err(ParseErrorKind::Expected(
                "a whole tag, comment, CDATA section, processing instruction or document type",
            )),
        };
        self.source().begin_text();
        result.map_err(|kind| {
            let mut position = self.source().token_start();
            if let ParseErrorKind::InvalidBytes(_) = kind {
                // The bytes that `quick_xml` has found not to be UTF-8 are in the token.
                let valid = std::str::from_utf8(&self.token);
                let length = valid.map_or_else(|error| error.valid_up_to(), str::len);
                position.advance(&self.token[..length]);
            }
            self.source().take_refusal().unwrap_or(ParseError { position, kind })
        })
    }

    /// Returns the next bytes of the input: at least `count`, unless it ends.
    fn peek(&mut self, count: usize) -> Result<&[u8], ParseError> {
        let result = self.source().peek(count).map(|_| ());
        match result {
            Ok(()) => Ok(self.markup.get_ref().buffered()),
            Err(error) => Err(self.read_error(error)),
        }
    }

    fn read_error(&mut self, error: io::Error) -> ParseError {
        let refusal = self.source().take_refusal();
        refusal.unwrap_or_else(|| self.here(ParseErrorKind::Io(Arc::new(error))))
    }

    fn here(&self, kind: ParseErrorKind) -> ParseError {
        ParseError { position: self.position(), kind }
    }

    /// Gives a fault inside the token its place in the document.
    fn locate(&mut self, fault: &Fault, token: &[u8]) -> ParseError {
        let mut position = self.source().token_start();
        position.advance(&token[..fault.at.min(token.len())]);
        ParseError { position, kind: fault.kind.clone() }
    }
}
