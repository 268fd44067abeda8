//! Events as XML text: plain, and *Canonical XML 1.0*.
//!
//! What [`XmlWriter::new`] writes gives the same events again when it is parsed, except for what
//! text cannot carry: how a text was cut into parts, and which attributes a document type declared
//! as identifiers. Names whose namespace is not declared get a declaration.
//!
//! [`XmlWriter::canonical`] writes the canonical form of a whole document: two documents with the
//! same content have the same bytes.

use std::io::{self, Write};
use std::sync::Arc;

use crate::name::QName;
use crate::parse::chars::{bare_text, bare_value, first_forbidden, is_name};
use crate::parse::{Attribute, Event, XML_NAMESPACE};

mod namespaces;

use namespaces::Namespaces;

/// Bytes collected before they are passed on.
const CHUNK: usize = 64 * 1024;

/// Why an event cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SerializeError {
    /// The output failed.
    #[error("the document cannot be written: {0}; check the file or the connection")]
    Io(#[from] io::Error),
    /// A name that XML does not allow.
    #[error("{0:?} is not a name in XML; rename the node")]
    Name(String),
    /// A character that XML does not allow, not even as a reference.
    #[error("XML cannot carry the character U+{0:04X}; remove it from the node")]
    Character(u32),
    /// Content that a comment or a processing instruction cannot have.
    #[error("{0}; change the node's content")]
    Content(&'static str),
    /// Events in an order that is no document.
    #[error("{0}; give the events of a whole document in its order")]
    Order(&'static str),
    /// Two attributes of the same name.
    #[error("the attribute {0} occurs twice in one element; remove one")]
    DuplicateAttribute(String),
    /// A name whose namespace cannot be declared where it stands.
    #[error("the namespace of {0} contradicts a declaration of its element; change either")]
    Namespace(String),
}

/// Which form of text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Canonical { comments: bool },
}

/// Where in a document the writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Start,
    Prolog,
    Content,
    Epilog,
    Done,
}

/// An element that has no end tag yet.
#[derive(Debug)]
struct OpenElement {
    name: Arc<QName>,
    /// The prefix written, if it is not the name's own.
    prefix: Option<Box<str>>,
    /// Number of bindings outside the element.
    bindings: usize,
}

/// Writes the events of one document as text in UTF-8.
#[derive(Debug)]
pub struct XmlWriter<W: Write> {
    output: W,
    buffer: Vec<u8>,
    form: Form,
    is_fragment: bool,
    stage: Stage,
    open: Vec<OpenElement>,
    namespaces: Namespaces,
    /// The last start tag lacks its `>`: the element may turn out to be empty.
    unfinished: bool,
}

impl<W: Write> XmlWriter<W> {
    /// A writer of text with an XML declaration.
    pub fn new(output: W) -> XmlWriter<W> {
        XmlWriter::with_form(output, Form::Plain)
    }

    /// A writer of Canonical XML 1.0, with or without comments.
    pub fn canonical(output: W, comments: bool) -> XmlWriter<W> {
        XmlWriter::with_form(output, Form::Canonical { comments })
    }

    /// A writer of a part of a document as it stands between the tags of an element: any number of
    /// nodes, without an XML declaration. It is given neither the start nor the end of a document.
    /// Namespaces that are declared outside the part are declared again in it.
    pub fn fragment(output: W) -> XmlWriter<W> {
        let whole = XmlWriter::with_form(output, Form::Plain);
        XmlWriter { stage: Stage::Content, is_fragment: true, ..whole }
    }

    fn with_form(output: W, form: Form) -> XmlWriter<W> {
        XmlWriter {
            output,
            buffer: Vec::with_capacity(CHUNK + CHUNK / 4),
            form,
            is_fragment: false,
            stage: Stage::Start,
            open: Vec::new(),
            namespaces: Namespaces::default(),
            unfinished: false,
        }
    }

    /// Writes the next part of the document.
    ///
    /// # Errors
    ///
    /// Returns an error if the output fails, or if no XML text gives this event here. Nothing of
    /// the event is written then, but what came before is, so the text is not a whole document.
    pub fn write(&mut self, event: Event<'_>) -> Result<(), SerializeError> {
        match event {
            Event::StartDocument => self.start_document()?,
            Event::StartElement { name, attributes } => self.start_element(name, attributes)?,
            Event::Text(text) => self.text(text)?,
            Event::Comment(text) => self.comment(text)?,
            Event::ProcessingInstruction { target, data } => self.instruction(target, data)?,
            Event::EndElement { name } => self.end_element(name)?,
            Event::EndDocument => self.end_document()?,
        }
        if self.buffer.len() >= CHUNK { self.pass_on() } else { Ok(()) }
    }

    /// Passes all text on, flushes the output and returns it.
    ///
    /// # Errors
    ///
    /// Returns an error if the output fails or if the document has not ended.
    pub fn finish(mut self) -> Result<W, SerializeError> {
        let is_whole =
            if self.is_fragment { self.open.is_empty() } else { self.stage == Stage::Done };
        if !is_whole {
            return Err(SerializeError::Order("the document has not ended"));
        }
        self.pass_on()?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn pass_on(&mut self) -> Result<(), SerializeError> {
        self.output.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn start_document(&mut self) -> Result<(), SerializeError> {
        if self.stage != Stage::Start {
            return Err(SerializeError::Order("a document starts only once"));
        }
        self.stage = Stage::Prolog;
        if self.form == Form::Plain {
            self.push("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
        }
        Ok(())
    }

    fn end_document(&mut self) -> Result<(), SerializeError> {
        if self.stage != Stage::Epilog {
            return Err(SerializeError::Order("the root element is missing or has not ended"));
        }
        self.stage = Stage::Done;
        if self.form == Form::Plain {
            self.push("\n");
        }
        Ok(())
    }

    fn start_element(
        &mut self,
        name: &Arc<QName>,
        attributes: &[Attribute],
    ) -> Result<(), SerializeError> {
        if !matches!(self.stage, Stage::Prolog | Stage::Content) {
            return Err(SerializeError::Order("an element cannot start here"));
        }
        check_name(name)?;
        for (index, attribute) in attributes.iter().enumerate() {
            check_name(&attribute.name)?;
            check_characters(&attribute.value)?;
            if attributes[..index].iter().any(|other| other.name == attribute.name) {
                return Err(SerializeError::DuplicateAttribute(attribute.name.to_string()));
            }
        }
        let bindings = self.namespaces.len();
        let prefix = if self.form == Form::Plain {
            self.plain_start(name, attributes)?
        } else {
            self.canonical_start(name, attributes);
            None
        };
        self.open.push(OpenElement { name: Arc::clone(name), prefix, bindings });
        self.stage = Stage::Content;
        Ok(())
    }

    /// Writes a start tag without its `>`. Returns the element's prefix if it is another.
    fn plain_start(
        &mut self,
        name: &QName,
        attributes: &[Attribute],
    ) -> Result<Option<Box<str>>, SerializeError> {
        let fixed = self.namespaces.resolve(name, attributes)?;
        self.finish_start_tag();
        self.push("<");
        self.push_name(name, fixed.element.as_deref());
        for (index, attribute) in attributes.iter().enumerate() {
            let other = fixed.attributes.iter().find(|(of, _)| *of == index);
            self.push(" ");
            self.push_name(&attribute.name, other.map(|(_, prefix)| &**prefix));
            self.push_value(&attribute.value);
        }
        for index in fixed.added {
            let (prefix, uri) = self.namespaces.get(index);
            push_declaration(&mut self.buffer, prefix, uri);
        }
        self.unfinished = true;
        Ok(fixed.element)
    }

    /// Writes a start tag as Canonical XML 1.0 has it (section 2.3).
    fn canonical_start(&mut self, name: &QName, attributes: &[Attribute]) {
        self.push("<");
        self.push_name(name, None);
        for index in self.namespaces.declare_rendered(attributes) {
            let (prefix, uri) = self.namespaces.get(index);
            push_declaration(&mut self.buffer, prefix, uri);
        }
        let mut sorted: Vec<&Attribute> =
            attributes.iter().filter(|attribute| !attribute.declares_namespace()).collect();
        sorted.sort_by_key(|attribute| (&attribute.name.namespace, &attribute.name.local));
        for attribute in sorted {
            self.push(" ");
            self.push_name(&attribute.name, None);
            self.push_value(&attribute.value);
        }
        self.push(">");
    }

    fn end_element(&mut self, name: &QName) -> Result<(), SerializeError> {
        if self.open.last().is_none_or(|open| *open.name != *name) {
            return Err(SerializeError::Order(
                "an element ends that is not the innermost open one",
            ));
        }
        let Some(open) = self.open.pop() else { return Ok(()) };
        self.namespaces.truncate(open.bindings);
        if self.unfinished {
            self.push("/>");
            self.unfinished = false;
        } else {
            self.push("</");
            self.push_name(&open.name, open.prefix.as_deref());
            self.push(">");
        }
        if self.open.is_empty() && !self.is_fragment {
            self.stage = Stage::Epilog;
        }
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), SerializeError> {
        if self.stage != Stage::Content {
            return Err(SerializeError::Order("text stands outside the root element"));
        }
        check_characters(text)?;
        self.finish_start_tag();
        push_text(&mut self.buffer, text);
        Ok(())
    }

    fn comment(&mut self, text: &str) -> Result<(), SerializeError> {
        check_characters(text)?;
        if text.contains("--") || text.ends_with('-') {
            return Err(SerializeError::Content("a comment cannot contain `--` or end with `-`"));
        }
        if text.contains('\r') {
            return Err(SerializeError::Content("a comment cannot carry a carriage return"));
        }
        let written = self.form != Form::Canonical { comments: false };
        self.misc(written, |buffer| {
            buffer.extend_from_slice(b"<!--");
            buffer.extend_from_slice(text.as_bytes());
            buffer.extend_from_slice(b"-->");
        })
    }

    fn instruction(&mut self, target: &str, data: &str) -> Result<(), SerializeError> {
        if !is_name(target) || target.eq_ignore_ascii_case("xml") {
            return Err(SerializeError::Name(target.to_owned()));
        }
        check_characters(data)?;
        if data.contains("?>") || data.contains('\r') || data.starts_with([' ', '\t', '\n']) {
            return Err(SerializeError::Content(
                "a processing instruction cannot contain `?>` or a carriage return, or begin with \
                 white space",
            ));
        }
        self.misc(true, |buffer| {
            buffer.extend_from_slice(b"<?");
            buffer.extend_from_slice(target.as_bytes());
            if !data.is_empty() {
                buffer.push(b' ');
                buffer.extend_from_slice(data.as_bytes());
            }
            buffer.extend_from_slice(b"?>");
        })
    }

    /// Writes a comment or an instruction, which may also stand beside the root element: the
    /// canonical form has a line end between them and it.
    fn misc(
        &mut self,
        written: bool,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), SerializeError> {
        if matches!(self.stage, Stage::Start | Stage::Done) {
            return Err(SerializeError::Order("a comment or an instruction is outside a document"));
        }
        if !written {
            return Ok(());
        }
        self.finish_start_tag();
        let canonical = self.form != Form::Plain;
        if canonical && self.stage == Stage::Epilog {
            self.push("\n");
        }
        write(&mut self.buffer);
        if canonical && self.stage == Stage::Prolog {
            self.push("\n");
        }
        Ok(())
    }

    fn finish_start_tag(&mut self) {
        if self.unfinished {
            self.unfinished = false;
            self.push(">");
        }
    }

    fn push(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn push_name(&mut self, name: &QName, other_prefix: Option<&str>) {
        let prefix = other_prefix.unwrap_or(&name.prefix);
        if !prefix.is_empty() {
            self.push(prefix);
            self.push(":");
        }
        self.push(&name.local);
    }

    fn push_value(&mut self, value: &str) {
        push_value(&mut self.buffer, value);
    }
}

fn push_value(buffer: &mut Vec<u8>, value: &str) {
    buffer.extend_from_slice(b"=\"");
    push_escaped(buffer, value, bare_value);
    buffer.push(b'"');
}

/// Appends `name="value"`.
pub(crate) fn push_attribute(buffer: &mut Vec<u8>, name: &str, value: &str) {
    buffer.extend_from_slice(name.as_bytes());
    push_value(buffer, value);
}

/// Returns text as it stands between tags in XML: with references where it needs them.
#[must_use]
pub fn text_as_xml(text: &str) -> String {
    let mut buffer = Vec::with_capacity(text.len());
    push_text(&mut buffer, text);
    // Only whole ASCII characters are replaced.
    String::from_utf8(buffer).unwrap_or_default()
}

/// Appends text as it stands between tags.
fn push_text(buffer: &mut Vec<u8>, text: &str) {
    push_escaped(buffer, text, bare_text);
}

fn push_declaration(buffer: &mut Vec<u8>, prefix: &str, uri: &str) {
    buffer.extend_from_slice(if prefix.is_empty() { b" xmlns" } else { b" xmlns:" });
    buffer.extend_from_slice(prefix.as_bytes());
    push_value(buffer, uri);
}

fn push_escaped(buffer: &mut Vec<u8>, text: &str, bare: fn(&[u8]) -> usize) {
    let mut rest = text.as_bytes();
    loop {
        let at = bare(rest);
        buffer.extend_from_slice(&rest[..at]);
        if at == rest.len() {
            return;
        }
        let reference: &[u8] = match rest[at] {
            b'&' => b"&amp;",
            b'<' => b"&lt;",
            b'>' => b"&gt;",
            b'"' => b"&quot;",
            b'\t' => b"&#x9;",
            b'\n' => b"&#xA;",
            _ => b"&#xD;",
        };
        buffer.extend_from_slice(reference);
        rest = &rest[at + 1..];
    }
}

fn check_characters(text: &str) -> Result<(), SerializeError> {
    match first_forbidden(text) {
        None => Ok(()),
        Some((_, character)) => Err(SerializeError::Character(u32::from(character))),
    }
}

fn check_name(name: &QName) -> Result<(), SerializeError> {
    if is_name(&name.local) && (name.prefix.is_empty() || is_name(&name.prefix)) {
        // Only this prefix can mean this namespace, and the other way round.
        if (*name.prefix == *"xml") == (*name.namespace == *XML_NAMESPACE) {
            return Ok(());
        }
    }
    Err(SerializeError::Name(name.to_string()))
}
