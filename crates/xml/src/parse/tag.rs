//! Start and end tags: attributes, namespaces, and which elements are open.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Attribute;
use super::cursor::Cursor;
use super::dtd::{AttributeDeclaration, AttributeType, DocumentType, normalise};
use super::entity::Entities;
use super::error::{Fault, ParseErrorKind};
use super::{Limits, XML_NAMESPACE, XMLNS_NAMESPACE};
use crate::name::{QName, same};
use crate::tree::Binding;

/// Names kept for reuse, at most.
const CACHED_NAMES: usize = 4_096;

/// Attributes of an element are compared one by one up to this number, by a table above it.
const FEW: usize = 16;

/// Bytes of attributes that the document type may add for each byte of the document, besides
/// [`Limits::expansion`].
const DEFAULTS_FACTOR: u64 = 16;

/// Names that have occurred, by how they are written: most documents have few.
#[derive(Debug, Default)]
struct Names {
    known: HashMap<Box<str>, Vec<Arc<QName>>>,
    count: usize,
}

impl Names {
    fn get(&mut self, written: &str, prefix: usize, namespace: &str) -> Arc<QName> {
        let known = self.known.get(written);
        let is_it = |name: &&Arc<QName>| same(&name.namespace, namespace);
        if let Some(name) = known.and_then(|list| list.iter().find(is_it)) {
            return Arc::clone(name);
        }
        let local = if prefix == 0 { written } else { &written[prefix + 1..] };
        let name = Arc::new(QName {
            prefix: written[..prefix].into(),
            local: local.into(),
            namespace: namespace.into(),
        });
        if self.count == CACHED_NAMES {
            self.known.clear();
            self.count = 0;
        }
        self.count += 1;
        self.known.entry(written.into()).or_default().push(Arc::clone(&name));
        name
    }
}

/// An element whose end tag has not come.
#[derive(Debug)]
struct Open {
    name: Arc<QName>,
    /// Number of bindings outside the element.
    bindings: usize,
}

/// An attribute before its namespace is known.
#[derive(Debug)]
struct Written {
    at: usize,
    length: usize,
    prefix: usize,
    value: String,
}

/// The open elements and the namespaces in scope.
#[derive(Debug)]
pub(super) struct Tags {
    limits: Limits,
    names: Names,
    open: Vec<Open>,
    bindings: Vec<(Box<str>, Arc<str>)>,
    written: Vec<Written>,
    /// Bytes of the attributes that the document type has added to tags.
    defaults: u64,
    /// Attributes of the last start tag.
    pub(super) attributes: Vec<Attribute>,
}

impl Tags {
    pub(super) fn new(limits: Limits) -> Tags {
        Tags {
            limits,
            names: Names::default(),
            open: Vec::new(),
            bindings: Vec::new(),
            written: Vec::new(),
            defaults: 0,
            attributes: Vec::new(),
        }
    }

    /// Binds prefixes around the outermost elements.
    pub(super) fn bind(&mut self, namespaces: &[Binding]) {
        for Binding { prefix, uri } in namespaces {
            self.bindings.push((prefix.clone(), Arc::from(&**uri)));
        }
    }

    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Returns the innermost open element's name.
    pub(super) fn innermost(&self) -> Option<&Arc<QName>> {
        self.open.last().map(|open| &open.name)
    }

    /// Opens the element of a start tag, a whole token that ends `offset` bytes behind the
    /// document's start. Returns whether the tag also ends it.
    pub(super) fn start(
        &mut self,
        (token, offset): (&str, u64),
        entities: &mut Entities,
        document_type: Option<&DocumentType>,
    ) -> Result<bool, Fault> {
        if self.open.len() == self.limits.depth {
            return Err(limit(0, "elements inside one another", self.limits.depth, "depth"));
        }
        let mut cursor = Cursor::new(token, 1, self.limits.name_length);
        let (name, prefix) = cursor.qualified_name()?;
        self.written.clear();
        self.attributes.clear();
        let empty = self.read_attributes(&mut cursor, entities)?;
        let declared = document_type.and_then(|found| found.attributes.get(name));
        let declared = declared.map_or(&[][..], Vec::as_slice);
        let outside = self.bindings.len();
        let has_more = !self.written.is_empty() || !declared.is_empty();
        if has_more {
            self.declare_namespaces(token, declared)?;
            for declaration in declared {
                self.declare_default(declaration, token)?;
            }
        }
        let name = self.element_name(name, prefix)?;
        if has_more {
            self.resolve_attributes(token)?;
            for declaration in declared {
                self.apply_declaration(declaration)?;
            }
            self.limit_defaults(offset)?;
            self.refuse_duplicates()?;
        }
        self.open.push(Open { name, bindings: outside });
        Ok(empty)
    }

    /// Reads the attributes of a tag up to its end. Returns whether it ends with `/>`.
    fn read_attributes(
        &mut self,
        cursor: &mut Cursor<'_>,
        entities: &mut Entities,
    ) -> Result<bool, Fault> {
        loop {
            let space = cursor.skip_space();
            match cursor.peek() {
                b'>' => return Ok(false),
                b'/' => {
                    cursor.at += 1;
                    cursor.expect(">", "`>` behind `/`")?;
                    return Ok(true);
                }
                _ if !space => return Err(Fault::expected(cursor.at, "white space, `>` or `/>`")),
                _ => {}
            }
            let at = cursor.at;
            if self.written.len() == self.limits.attributes {
                let limits = self.limits.attributes;
                return Err(limit(at, "attributes in a tag", limits, "attributes"));
            }
            let (name, prefix) = cursor.qualified_name()?;
            cursor.skip_space();
            cursor.expect("=", "`=` behind the attribute's name")?;
            cursor.skip_space();
            let quote = cursor.peek();
            if quote != b'"' && quote != b'\'' {
                return Err(Fault::expected(cursor.at, "the attribute's value in quotes"));
            }
            cursor.at += 1;
            let value = entities.attribute_value(cursor, quote)?;
            self.written.push(Written { at, length: name.len(), prefix, value });
        }
    }

    /// Binds the prefixes that the tag declares. The names of namespaces are the values after
    /// their normalisation by the attributes' declared types.
    fn declare_namespaces(
        &mut self,
        token: &str,
        declarations: &[AttributeDeclaration],
    ) -> Result<(), Fault> {
        for index in 0..self.written.len() {
            let Written { at, length, prefix, ref value } = self.written[index];
            let name = &token[at..at + length];
            if let Some(declared) = declared_prefix(name, prefix) {
                let declaration = declarations.iter().find(|found| &*found.name == name);
                let kind = declaration.map_or(AttributeType::Text, |found| found.kind);
                let uri: Arc<str> = normalise(kind, value.clone()).into();
                self.declare(declared, uri, at)?;
            }
        }
        Ok(())
    }

    /// Declares a namespace by an attribute's default, unless the tag declares it.
    fn declare_default(
        &mut self,
        declaration: &AttributeDeclaration,
        token: &str,
    ) -> Result<(), Fault> {
        let name = &*declaration.name;
        let declared = declared_prefix(name, name.find(':').unwrap_or(0));
        let (Some(declared), Some(uri)) = (declared, declaration.default.as_deref()) else {
            return Ok(());
        };
        let given = |written: &Written| &token[written.at..written.at + written.length] == name;
        if self.written.iter().any(given) {
            return Ok(());
        }
        self.declare(declared, uri.into(), 0)
    }

    fn declare(&mut self, prefix: &str, uri: Arc<str>, at: usize) -> Result<(), Fault> {
        let rule = match (prefix, &*uri) {
            ("xmlns", _) => "the prefix xmlns must not be declared; remove the declaration",
            ("xml", XML_NAMESPACE) => return Ok(()),
            ("xml", _) => "the prefix xml cannot be bound to another namespace; choose another",
            (_, XML_NAMESPACE) => "this namespace belongs to the prefix xml; use that",
            (_, XMLNS_NAMESPACE) => "this namespace must not be declared; remove the declaration",
            ("", _) => "",
            (_, "") => "a prefix cannot be undeclared in XML 1.0; remove the declaration",
            _ => "",
        };
        if !rule.is_empty() {
            return Err(Fault::rule(at, rule));
        }
        if self.bindings.len() == self.limits.namespaces {
            let limits = self.limits.namespaces;
            return Err(limit(at, "namespaces declared at once", limits, "namespaces"));
        }
        self.bindings.push((prefix.into(), uri));
        Ok(())
    }

    fn element_name(&mut self, name: &str, prefix: usize) -> Result<Arc<QName>, Fault> {
        let written_prefix = &name[..prefix];
        if written_prefix == "xmlns" {
            return Err(Fault::rule(1, "an element's prefix must not be xmlns; choose another"));
        }
        match namespace(&self.bindings, written_prefix) {
            Some(uri) => Ok(self.names.get(name, prefix, uri)),
            None => Err(undeclared(1, written_prefix)),
        }
    }

    fn attribute_name(
        &mut self,
        name: &str,
        prefix: usize,
        at: usize,
    ) -> Result<Arc<QName>, Fault> {
        let uri = match &name[..prefix] {
            "" if name == "xmlns" => XMLNS_NAMESPACE,
            "" => "",
            written_prefix => namespace(&self.bindings, written_prefix)
                .ok_or_else(|| undeclared(at, written_prefix))?,
        };
        Ok(self.names.get(name, prefix, uri))
    }

    fn resolve_attributes(&mut self, token: &str) -> Result<(), Fault> {
        let mut written = std::mem::take(&mut self.written);
        for Written { at, length, prefix, value } in written.drain(..) {
            let name = self.attribute_name(&token[at..at + length], prefix, at)?;
            self.attributes.push(Attribute { name, value, is_id: false });
        }
        self.written = written;
        Ok(())
    }

    /// Gives an attribute its declared type, or adds it with its default if it is missing.
    fn apply_declaration(&mut self, declaration: &AttributeDeclaration) -> Result<(), Fault> {
        let AttributeDeclaration { name, kind, default } = declaration;
        let is_id = *kind == AttributeType::Id;
        for attribute in &mut self.attributes {
            if is_written(&attribute.name, name) {
                let value = std::mem::take(&mut attribute.value);
                attribute.value = normalise(*kind, value);
                attribute.is_id = is_id;
                return Ok(());
            }
        }
        let Some(value) = default else { return Ok(()) };
        if self.attributes.len() >= self.limits.attributes {
            let limits = self.limits.attributes;
            return Err(limit(0, "attributes in a tag", limits, "attributes"));
        }
        let resolved = self.attribute_name(name, name.find(':').unwrap_or(0), 0)?;
        self.defaults += (name.len() + value.len() + 1) as u64;
        self.attributes.push(Attribute { name: resolved, value: value.to_string(), is_id });
        Ok(())
    }

    /// Refuses a document that grows by defaults of attributes out of proportion to its length.
    fn limit_defaults(&self, offset: u64) -> Result<(), Fault> {
        let expansion = self.limits.expansion;
        if self.defaults <= offset.saturating_mul(DEFAULTS_FACTOR) + expansion as u64 {
            return Ok(());
        }
        Err(limit(0, "bytes from defaults of attributes", expansion, "expansion"))
    }

    /// Refuses two attributes of the same name: as written, or by namespace and local part.
    fn refuse_duplicates(&self) -> Result<(), Fault> {
        let list = &self.attributes;
        let twice = if list.len() <= FEW {
            (1..list.len()).find(|&at| list[..at].iter().any(|other| other.name == list[at].name))
        } else {
            let mut seen = HashSet::with_capacity(list.len());
            list.iter().position(|attribute| !seen.insert(&*attribute.name))
        };
        match twice {
            None => Ok(()),
            Some(at) => {
                Err(Fault::new(0, ParseErrorKind::DuplicateAttribute(list[at].name.to_string())))
            }
        }
    }

    /// Checks an end tag, a whole token, against the open element.
    pub(super) fn end(&self, token: &str) -> Result<(), Fault> {
        let mut cursor = Cursor::new(token, 2, self.limits.name_length);
        let (name, _) = cursor.qualified_name()?;
        cursor.skip_space();
        cursor.expect(">", "`>` at the end of the tag")?;
        match self.innermost() {
            Some(open) if is_written(open, name) => Ok(()),
            Some(open) => Err(Fault::new(
                0,
                ParseErrorKind::MismatchedEnd { open: open.to_string(), found: name.to_owned() },
            )),
            None => Err(Fault::rule(0, "no element is open that this tag could end; remove it")),
        }
    }

    /// Closes the innermost element and returns its name.
    pub(super) fn close(&mut self) -> Option<Arc<QName>> {
        let open = self.open.pop()?;
        self.bindings.truncate(open.bindings);
        Some(open.name)
    }
}

/// Returns the namespace that a prefix means; an empty one means none if it is not declared.
fn namespace<'b>(bindings: &'b [(Box<str>, Arc<str>)], prefix: &str) -> Option<&'b str> {
    match prefix {
        "xml" => return Some(XML_NAMESPACE),
        "xmlns" => return Some(XMLNS_NAMESPACE),
        _ => {}
    }
    match bindings.iter().rev().find(|(bound, _)| same(bound, prefix)) {
        Some((_, uri)) => Some(uri),
        None if prefix.is_empty() => Some(""),
        None => None,
    }
}

fn undeclared(at: usize, prefix: &str) -> Fault {
    Fault::new(at, ParseErrorKind::UndeclaredPrefix(prefix.to_owned()))
}

/// Returns the prefix that an attribute of this name declares, if it is a declaration.
fn declared_prefix(name: &str, prefix: usize) -> Option<&str> {
    if name == "xmlns" {
        return Some("");
    }
    if &name[..prefix] == "xmlns" { Some(&name[prefix + 1..]) } else { None }
}

/// Returns whether a document writes the name so.
fn is_written(name: &QName, written: &str) -> bool {
    if name.prefix.is_empty() {
        return *name.local == *written;
    }
    let local = written.strip_prefix(&*name.prefix).and_then(|rest| rest.strip_prefix(':'));
    local == Some(&*name.local)
}

pub(super) fn limit(at: usize, what: &'static str, limit: usize, field: &'static str) -> Fault {
    Fault::new(at, ParseErrorKind::Limit { what, limit, field })
}
