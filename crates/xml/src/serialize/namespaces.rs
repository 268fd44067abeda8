//! Which prefixes are bound while a document is written.

use crate::name::{QName, same};
use crate::parse::{Attribute, XML_NAMESPACE, XMLNS_NAMESPACE};

use super::SerializeError;

/// The bindings in scope, outer ones first.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    bindings: Vec<(Box<str>, Box<str>)>,
    generated: u64,
}

/// What has to change in a start tag so that its names mean what they shall.
#[derive(Debug, Default)]
pub(super) struct Fixed {
    /// Another prefix of the element.
    pub(super) element: Option<Box<str>>,
    /// Other prefixes of attributes, by index.
    pub(super) attributes: Vec<(usize, Box<str>)>,
    /// Bindings to declare beside those in the attributes.
    pub(super) added: Vec<usize>,
}

impl Namespaces {
    pub(super) fn len(&self) -> usize {
        self.bindings.len()
    }

    pub(super) fn truncate(&mut self, length: usize) {
        self.bindings.truncate(length);
    }

    /// Returns a binding by its index: prefix and namespace.
    pub(super) fn get(&self, index: usize) -> (&str, &str) {
        let (prefix, uri) = &self.bindings[index];
        (prefix, uri)
    }

    /// Returns what a prefix means; for the empty one: no namespace, unless it is declared.
    fn lookup(&self, prefix: &str) -> Option<&str> {
        let binding = self.bindings.iter().rev().find(|(bound, _)| same(bound, prefix));
        match binding {
            Some((_, uri)) => Some(uri),
            None if prefix.is_empty() => Some(""),
            None => None,
        }
    }

    /// Enters an element's declarations and finds prefixes for its names.
    pub(super) fn resolve(
        &mut self,
        name: &QName,
        attributes: &[Attribute],
    ) -> Result<Fixed, SerializeError> {
        let outside = self.bindings.len();
        let result = self.try_resolve(name, attributes, outside);
        if result.is_err() {
            self.bindings.truncate(outside);
        }
        result
    }

    fn try_resolve(
        &mut self,
        name: &QName,
        attributes: &[Attribute],
        outside: usize,
    ) -> Result<Fixed, SerializeError> {
        for attribute in attributes.iter().filter(|attribute| attribute.declares_namespace()) {
            let prefix = check_declaration(attribute)?;
            self.bindings.push((prefix.into(), attribute.value.as_str().into()));
        }
        let mut fixed = Fixed::default();
        fixed.element = self.fix_element(name, outside, &mut fixed.added)?;
        for (index, attribute) in attributes.iter().enumerate() {
            if !attribute.declares_namespace()
                && let Some(prefix) = self.fix_attribute(&attribute.name, &mut fixed.added)?
            {
                fixed.attributes.push((index, prefix));
            }
        }
        Ok(fixed)
    }

    fn fix_element(
        &mut self,
        name: &QName,
        outside: usize,
        added: &mut Vec<usize>,
    ) -> Result<Option<Box<str>>, SerializeError> {
        if *name.namespace == *XML_NAMESPACE {
            return Ok(None);
        }
        // Without namespace there is no prefix.
        let prefix = if name.namespace.is_empty() { "" } else { &*name.prefix };
        if !self.lookup(prefix).is_some_and(|uri| same(uri, &name.namespace)) {
            let declared_here =
                self.bindings[outside..].iter().any(|(bound, _)| same(bound, prefix));
            if declared_here {
                if name.namespace.is_empty() {
                    return Err(SerializeError::Namespace(name.to_string()));
                }
                return Ok(Some(self.other_prefix(&name.namespace, added)));
            }
            self.add(prefix.into(), &name.namespace, added);
        }
        Ok(if same(prefix, &name.prefix) { None } else { Some(prefix.into()) })
    }

    /// Returns the prefix for an attribute's name if it needs another than its own.
    fn fix_attribute(
        &mut self,
        name: &QName,
        added: &mut Vec<usize>,
    ) -> Result<Option<Box<str>>, SerializeError> {
        if name.namespace.is_empty() {
            // An attribute without prefix is in no namespace.
            return Ok(if name.prefix.is_empty() { None } else { Some("".into()) });
        }
        if *name.namespace == *XML_NAMESPACE {
            return Ok(None);
        }
        if *name.prefix == *"xmlns" {
            return Err(SerializeError::Namespace(name.to_string()));
        }
        match self.lookup(&name.prefix) {
            Some(uri) if same(uri, &name.namespace) && !name.prefix.is_empty() => Ok(None),
            None => {
                // A prefix that is free can be bound; one in use may be the element's.
                self.add(name.prefix.clone(), &name.namespace, added);
                Ok(None)
            }
            Some(_) => Ok(Some(self.other_prefix(&name.namespace, added))),
        }
    }

    /// Returns a prefix that is bound to the namespace, and binds a new one if there is none.
    fn other_prefix(&mut self, uri: &str, added: &mut Vec<usize>) -> Box<str> {
        let bound = self.bindings.iter().rev().find(|(prefix, bound)| {
            **bound == *uri && !prefix.is_empty() && self.lookup(prefix) == Some(uri)
        });
        if let Some((prefix, _)) = bound {
            return prefix.clone();
        }
        loop {
            self.generated += 1;
            let prefix: Box<str> = format!("ns{}", self.generated).into();
            if self.lookup(&prefix).is_none() {
                self.add(prefix.clone(), uri, added);
                return prefix;
            }
        }
    }

    fn add(&mut self, prefix: Box<str>, uri: &str, added: &mut Vec<usize>) {
        added.push(self.bindings.len());
        self.bindings.push((prefix, uri.into()));
    }

    /// Enters an element's declarations for the canonical form, where one that an outer element
    /// has too is left out. Returns those to write, sorted by prefix.
    pub(super) fn declare_rendered(&mut self, attributes: &[Attribute]) -> Vec<usize> {
        let outside = self.bindings.len();
        for attribute in attributes.iter().filter(|attribute| attribute.declares_namespace()) {
            let prefix = declared_prefix(&attribute.name);
            if prefix != "xml" && self.lookup(prefix) != Some(attribute.value.as_str()) {
                self.bindings.push((prefix.into(), attribute.value.as_str().into()));
            }
        }
        self.bindings[outside..].sort();
        (outside..self.bindings.len()).collect()
    }
}

fn declared_prefix(name: &QName) -> &str {
    if name.prefix.is_empty() { "" } else { &name.local }
}

/// Checks a declaration of a namespace (*Namespaces in XML 1.0*, section 3) and returns its prefix.
fn check_declaration(attribute: &Attribute) -> Result<&str, SerializeError> {
    let name = &attribute.name;
    let prefix = declared_prefix(name);
    let uri = attribute.value.as_str();
    let form =
        if name.prefix.is_empty() { *name.local == *"xmlns" } else { *name.prefix == *"xmlns" };
    let reserved = uri == XMLNS_NAMESPACE
        || prefix == "xmlns"
        || (prefix == "xml") != (uri == XML_NAMESPACE)
        || (uri.is_empty() && !prefix.is_empty());
    if form && !reserved { Ok(prefix) } else { Err(SerializeError::Namespace(name.to_string())) }
}
