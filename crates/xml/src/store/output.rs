//! Writing what a query finds as text that stands by itself.

use std::io::Write;
use std::sync::Arc;

use super::{Document, XmlStoreError};
use crate::label::Label;
use crate::parse::{Attribute, Event};
use crate::serialize::{XmlWriter, push_attribute};
use crate::tree::{Kind, Tree, XML_NAMESPACE};
use crate::xpath::Item;

impl Document<'_> {
    /// Passes a node with all that is below it on as events, as [`Document::subtree_events`] does,
    /// with declarations of all namespaces in scope on an element. So prefixes in contents keep
    /// their meaning.
    ///
    /// # Errors
    /// There is no such node, it is an attribute, or the store cannot read; and the first error of
    /// `sink`.
    pub fn events_in_scope<E: From<XmlStoreError>>(
        &self,
        node: &Label,
        mut sink: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut inherited = self.inherited(node)?;
        self.subtree_events(node, |event| match event {
            Event::StartElement { name, attributes } if !inherited.is_empty() => {
                let mut all = std::mem::take(&mut inherited);
                all.extend_from_slice(attributes);
                sink(Event::StartElement { name, attributes: &all })
            }
            event => sink(event),
        })
    }

    /// Returns declarations of the namespaces that are in scope of an element and that it does not
    /// declare itself.
    fn inherited(&self, node: &Label) -> Result<Vec<Attribute>, XmlStoreError> {
        if self.kind(node)? != Kind::Element {
            return Ok(Vec::new());
        }
        let own = self.declarations(node)?;
        let is_inherited = |prefix: &str| own.iter().all(|binding| &*binding.prefix != prefix);
        let bindings = self.namespaces_in_scope(node)?.into_iter();
        let bindings = bindings.filter(|binding| &*binding.uri != XML_NAMESPACE);
        Ok(bindings
            .filter(|binding| is_inherited(&binding.prefix))
            .map(|binding| Attribute {
                name: Arc::new(super::relocate::declaration(&binding.prefix)),
                value: binding.uri.into(),
                is_id: false,
            })
            .collect())
    }

    /// Writes what a query has found, and returns the output: a node with all that is below it, and
    /// with declarations of all namespaces in scope if it is an element; `name="value"` for an
    /// attribute or a namespace node. There is no XML declaration, also not of the document node.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use tidegate_xml::store::{DocumentOptions, XmlStore};
    /// # use tidegate_xml::tree::Tree;
    /// # use tidegate_xml::xpath::{Environment, Prefixes, Query};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let parent = tempfile::tempdir()?;
    /// # let store = XmlStore::open_or_create(parent.path().join("store"))?;
    /// # let text = &b"<a xmlns:p='urn:p'><b x='1'>two</b></a>"[..];
    /// # store.load("d", DocumentOptions::default(), text, |_| ControlFlow::Continue(()))?;
    /// # let transaction = store.begin();
    /// # let document = transaction.document("d")?;
    /// let query = Query::parse("//b | //b/@x | //b/text()", &Prefixes::new())?;
    /// let environment = Environment::default();
    /// let mut lines = Vec::new();
    /// for item in query.nodes(&document, &document.root()?, &environment)? {
    ///     lines.push(String::from_utf8(document.write_item(&item?, Vec::new())?)?);
    /// }
    /// assert_eq!(lines, [r#"<b xmlns:p="urn:p" x="1">two</b>"#, r#"x="1""#, "two"]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// There is no such node, the store cannot read, or the output cannot be written.
    pub fn write_item<W: Write>(
        &self,
        item: &Item<Label>,
        mut output: W,
    ) -> Result<W, XmlStoreError> {
        let mut attribute = |name: &str, value: &str| {
            let mut text = Vec::new();
            push_attribute(&mut text, name, value);
            output.write_all(&text).map_err(crate::serialize::SerializeError::Io)
        };
        let node = match item {
            Item::Node(node) => node,
            Item::Namespace { binding, .. } => {
                let name = super::relocate::declaration(&binding.prefix);
                attribute(&name.to_string(), &binding.uri)?;
                return Ok(output);
            }
        };
        if self.kind(node)? == Kind::Attribute {
            let name =
                self.name(node)?.ok_or(XmlStoreError::Unsound("an attribute has no name"))?;
            attribute(&name.to_string(), &self.content(node)?)?;
            return Ok(output);
        }
        let mut writer = XmlWriter::fragment(output);
        self.events_in_scope(node, |event| match event {
            Event::StartDocument | Event::EndDocument => Ok(()),
            event => writer.write(event).map_err(XmlStoreError::from),
        })?;
        Ok(writer.finish()?)
    }

    /// Returns the path of what a query has found, as in `/site/people/person/@id` or
    /// `/site/people/person/name/text()`, without positions. Names are written as in the document.
    ///
    /// # Errors
    /// There is no such node, or the store cannot read.
    pub fn item_path(&self, item: &Item<Label>) -> Result<String, XmlStoreError> {
        let (node, last) = match item {
            Item::Node(node) => (node, String::new()),
            Item::Namespace { element, binding } => {
                (element, format!("/namespace::{}", binding.prefix))
            }
        };
        let kind = self.kind(node)?;
        let mut path = String::new();
        let names = self.path(node)?;
        for (name, is_last) in names.iter().zip((1..=names.len()).map(|at| at == names.len())) {
            let at = if is_last && kind == Kind::Attribute { "@" } else { "" };
            path.extend(["/", at, &name.to_string()]);
        }
        path.push_str(match kind {
            Kind::Text => "/text()",
            Kind::Comment => "/comment()",
            Kind::ProcessingInstruction => "/processing-instruction()",
            Kind::Document => "/",
            Kind::Element | Kind::Attribute => &last,
        });
        Ok(path)
    }

    /// Returns the string-value of what a query has found.
    ///
    /// # Errors
    /// There is no such node, or the store cannot read.
    pub fn item_value(&self, item: &Item<Label>) -> Result<String, XmlStoreError> {
        match item {
            Item::Node(node) => self.string_value(node),
            Item::Namespace { binding, .. } => Ok(binding.uri.to_string()),
        }
    }
}
