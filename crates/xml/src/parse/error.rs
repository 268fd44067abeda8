//! What a document can be refused for, and where.

use std::fmt;
use std::io;
use std::sync::Arc;

/// A place in the text of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Bytes before the place, in UTF-8 and without byte order mark. In a UTF-16 document this is
    /// the place in its UTF-8 form.
    pub offset: u64,
    /// Line, from 1. A line ends with `\n`.
    pub line: u64,
    /// Column in characters, from 1.
    pub column: u64,
}

impl Position {
    /// The place before the first byte.
    pub const START: Position = Position { offset: 0, line: 1, column: 1 };

    /// Moves behind `bytes`, which are UTF-8 (a part of a character may be missing at either end).
    pub(super) fn advance(&mut self, bytes: &[u8]) {
        self.offset += bytes.len() as u64;
        let mut line = bytes;
        if let Some(last) = bytes.iter().rposition(|&byte| byte == b'\n') {
            self.line += bytes.iter().map(|&byte| u64::from(byte == b'\n')).sum::<u64>();
            self.column = 1;
            line = &bytes[last + 1..];
        }
        self.column += line.iter().filter(|&&byte| byte & 0xC0 != 0x80).count() as u64;
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {} (byte {})", self.line, self.column, self.offset)
    }
}

/// Why a document was refused, and where.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{position}: {kind}")]
pub struct ParseError {
    /// Place of the fault. For something that is missing: where it was expected.
    pub position: Position,
    /// What is wrong.
    pub kind: ParseErrorKind,
}

/// What is wrong with a document. Every message also says what to do.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// The input could not be read.
    #[error("the input cannot be read: {0}; check the file or the connection and read again")]
    Io(Arc<io::Error>),
    /// The document declares an encoding that the reader does not know or that is not its own.
    #[error(
        "the document declares the encoding {0:?}, which is not supported or is not the one it is \
         in; convert it, for example with `iconv -f {0} -t UTF-8`, and correct its declaration"
    )]
    Encoding(String),
    /// The bytes are not text in the document's encoding.
    #[error("these bytes are not valid {0}; convert the document to UTF-8 or repair it")]
    InvalidBytes(&'static str),
    /// A character that XML 1.0 does not allow (section 2.2).
    #[error("XML does not allow the character U+{0:04X}; remove it")]
    ForbiddenCharacter(u32),
    /// The text is not as the grammar asks for.
    #[error("expected {0}; correct the text here")]
    Expected(&'static str),
    /// The text breaks a rule that is named.
    #[error("{0}")]
    Rule(&'static str),
    /// The document ends inside something.
    #[error("the document ends before {0}; it may have been cut off")]
    UnexpectedEnd(String),
    /// Something is not a name.
    #[error("{0:?} is not a name; names start with a letter or `_` and have no spaces")]
    InvalidName(String),
    /// An end tag that does not match the open element.
    #[error("the end tag is </{found}> but the open element is <{open}>; close <{open}> first")]
    MismatchedEnd {
        /// Name of the innermost open element.
        open: String,
        /// Name in the end tag.
        found: String,
    },
    /// An element that has the same attribute twice.
    #[error("the attribute {0} occurs twice in this tag; remove one")]
    DuplicateAttribute(String),
    /// A prefix that no declaration binds.
    #[error("the prefix {0:?} is not declared; add xmlns:{0}=\"…\" to this or an outer element")]
    UndeclaredPrefix(String),
    /// A reference to an entity that is not declared in the internal subset.
    #[error(
        "the entity &{0}; is not declared in the document; declare it in the document type's \
         internal subset, or write the character (a bare `&` is written `&amp;`)"
    )]
    UnknownEntity(String),
    /// A reference to an entity that only the external subset may declare (XML 1.0, section 4.1).
    /// The document may be well-formed.
    #[error(
        "the entity &{0}; is not declared in the document, and the document type's external \
         subset is not read; declare the entity in the internal subset, or resolve all entities \
         first, for example with `xmllint --noent --dropdtd`"
    )]
    UnreadEntity(String),
    /// An entity that contains itself.
    #[error("the entity &{0}; contains a reference to itself; correct its declaration")]
    RecursiveEntity(String),
    /// An entity outside the document.
    #[error("the entity &{0}; is external, and external entities are not read; insert its text")]
    ExternalEntity(String),
    /// An entity whose replacement has elements in it.
    #[error("the entity &{0}; contains markup, which is not supported; insert its text")]
    EntityWithMarkup(String),
    /// A parameter entity is used.
    #[error("parameter entities (%{0};) are not supported; insert the declarations themselves")]
    ParameterEntity(String),
    /// Something is larger than the limits allow.
    #[error("more than {limit} {what}; if the document is trusted, raise `Limits::{field}`")]
    Limit {
        /// What is limited, in the plural.
        what: &'static str,
        /// The largest number allowed.
        limit: usize,
        /// Field of [`Limits`](super::Limits) to raise.
        field: &'static str,
    },
}

/// A fault inside a token, by its distance from the token's first byte.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) kind: ParseErrorKind,
}

impl Fault {
    pub(super) fn new(at: usize, kind: ParseErrorKind) -> Fault {
        Fault { at, kind }
    }

    pub(super) fn expected(at: usize, what: &'static str) -> Fault {
        Fault { at, kind: ParseErrorKind::Expected(what) }
    }

    pub(super) fn rule(at: usize, rule: &'static str) -> Fault {
        Fault { at, kind: ParseErrorKind::Rule(rule) }
    }
}
