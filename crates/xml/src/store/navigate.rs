//! Reading a document: from node to node, in streams, and as events.

use std::cmp::Ordering;
use std::io::Write;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use tidegate_engine::{Direction, KeyValue};

use super::leaves::InnerNodesOfScan;
use super::locks::{Edge, Touch};
use super::recent::KeptCursor;
use super::record::{Head, Record, RecordKind};
use super::steps::{Steps, Wanted};
use super::{Document, XmlStoreError};
use crate::label::{Label, LabelRange, LabelRole, Level};
use crate::name::QName;
use crate::parse::{Attribute, Event, TEXT_PART};
use crate::serialize::XmlWriter;
use crate::tree::{Binding, Indexed, Kind, Pattern, StepAxis, StepTest, Tree};

/// Returns the length of the longest part of a text that an event may have.
fn part_length(text: &str) -> usize {
    let mut length = text.len().min(TEXT_PART);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    length
}

pub(super) fn malformed(reason: super::MalformedRecord) -> XmlStoreError {
    XmlStoreError::Record { what: "a node", reason }
}

/// Returns the ancestor of `label` among the children of `parent`, or itself.
pub(super) fn child_of(parent: &Label, label: &Label) -> Option<Label> {
    let level = match parent.level() {
        Level::Document => 0,
        Level::Node(level) => level + 1,
    };
    label.ancestor_at(Level::Node(level))
}

impl<'t> Document<'t> {
    /// Returns the record of a node, if there is such a node. That of an inner node that has none
    /// is what it would be.
    pub(super) fn find(&self, label: &Label) -> Result<Option<Record>, XmlStoreError> {
        if self.has_virtual_nodes() {
            return self.find_or_rebuild(label);
        }
        let mut transaction = self.transaction.borrow_mut();
        let tree = &self.stored.tree;
        let found = transaction.get_with(tree, label.as_bytes(), Record::decode)?;
        found.transpose().map_err(malformed)
    }

    pub(super) fn record(&self, label: &Label) -> Result<Record, XmlStoreError> {
        self.find(label)?.ok_or_else(|| XmlStoreError::NoSuchNode(label.clone()))
    }

    /// Returns the record of a node without its content. The document has none.
    fn head(&self, label: &Label) -> Result<Head, XmlStoreError> {
        if let Some(head) = self.viewed_head(label).or_else(|| self.recent.head(label)) {
            return Ok(head);
        }
        let head = self.record(label)?.head();
        self.remember(label, head);
        Ok(head)
    }

    /// Returns the name of an element or attribute, or the target of a processing instruction, as
    /// [`Tree::name`] does, but without a copy of it.
    ///
    /// # Errors
    /// If there is no such node or the store cannot read.
    pub fn node_name(&self, node: &Label) -> Result<Option<Arc<QName>>, XmlStoreError> {
        if *node == Label::document() {
            return Ok(None);
        }
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        self.head(node)?.name.map(|name| self.name_of(name)).transpose()
    }

    fn full_name(&self, record: &Record) -> Result<Arc<QName>, XmlStoreError> {
        self.name_of(record.name.ok_or(XmlStoreError::Unsound("a node has no name"))?)
    }

    /// Returns the lowest or the highest label of a range that has a record.
    pub(super) fn end_of(
        &self,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Option<Label>, XmlStoreError> {
        if direction == Direction::Down {
            let mut transaction = self.transaction.borrow_mut();
            let mut cursor = transaction.cursor(&self.stored.tree, range, direction)?;
            let found = cursor.next(&mut transaction)?;
            return Ok(found.map(|(key, _)| Label::from_bytes(key)).transpose()?);
        }
        let mut cursor = self.cursor(range)?;
        let found = cursor.next(&mut self.transaction.borrow_mut())?.map(read_head).transpose()?;
        Ok(found.map(|(label, head)| {
            // With locks on nodes it is locked when it is known, and read again then.
            if !self.locks_nodes() {
                self.remember(&label, head);
            }
            label
        }))
    }

    pub(super) fn scan(&self, range: &LabelRange) -> Result<Scan<'_, 't>, XmlStoreError> {
        let high = range.end().map_or(Bound::Unbounded, Bound::Excluded);
        self.scan_between((Bound::Included(range.start()), high))
    }

    /// Returns the nodes behind a label, to the end of the document.
    pub(super) fn scan_behind(&self, label: &Label) -> Result<Scan<'_, 't>, XmlStoreError> {
        self.scan_between((Bound::Excluded(label.as_bytes()), Bound::Unbounded))
    }

    fn scan_between(
        &self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<Scan<'_, 't>, XmlStoreError> {
        let (cursor, inner) = (self.cursor(bounds)?, self.inner_nodes_from(bounds.0));
        Ok(Scan { document: self, cursor, inner })
    }

    /// Returns the parent of a node by its label alone.
    pub(super) fn parent_of(label: &Label) -> Option<Label> {
        match label.role() {
            LabelRole::Attribute | LabelRole::Namespace => label.owner(),
            _ => label.parent(),
        }
    }

    /// Returns the children of a node in order, without attributes, as a stream.
    ///
    /// # Errors
    /// If the store cannot read. The same holds for each step of the stream.
    pub fn children(&self, node: &Label) -> Result<Children<'_, 't>, XmlStoreError> {
        Ok(Children(self.steps(node, StepAxis::Child, StepTest::Any)?))
    }

    /// Returns the descendants of a node in document order, without attributes, as a stream.
    ///
    /// # Errors
    /// If the store cannot read. The same holds for each step of the stream.
    pub fn descendants(&self, node: &Label) -> Result<Descendants<'_, 't>, XmlStoreError> {
        Ok(Descendants(self.steps(node, StepAxis::Descendant, StepTest::Any)?))
    }

    /// Returns the names of an element or attribute and of all elements above it, from the root
    /// element on. Only the node itself is read: the names come from the path synopsis. Names of
    /// other kinds of nodes are those of their parent.
    ///
    /// # Errors
    /// If there is no such node or the store cannot read.
    pub fn path(&self, node: &Label) -> Result<Vec<Arc<QName>>, XmlStoreError> {
        if *node == Label::document() {
            return Ok(Vec::new());
        }
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        let names = self.stored.paths.names(self.record(node)?.pcr);
        let names = names.ok_or(XmlStoreError::Unsound("a node's path class is not known"))?;
        names.into_iter().map(|name| self.name_of(name)).collect()
    }

    /// Passes the whole document on as events.
    ///
    /// # Errors
    /// If the store cannot read, and the first error of `sink`.
    pub fn events<E: From<XmlStoreError>>(
        &self,
        mut sink: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.begin_reading();
        self.touch(Touch::Subtree(&Label::document()))?;
        sink(Event::StartDocument)?;
        self.events_in(&Label::document().children_range(), &mut sink)?;
        sink(Event::EndDocument)
    }

    /// Passes a node with all that is below it on as events, without the start and the end of a
    /// document around them unless it is the document node.
    ///
    /// # Errors
    /// There is no such node, it is an attribute, or the store cannot read; and the first error of
    /// `sink`.
    pub fn subtree_events<E: From<XmlStoreError>>(
        &self,
        node: &Label,
        mut sink: impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.kind(node)? {
            Kind::Document => self.events(sink),
            Kind::Attribute => {
                let what = "an attribute has no event of its own; ask for those of its element";
                Err(XmlStoreError::NotPossible { label: node.clone(), what }.into())
            }
            _ => {
                self.touch(Touch::Subtree(node))?;
                self.events_in(&node.subtree(), &mut sink)
            }
        }
    }

    fn events_in<E: From<XmlStoreError>>(
        &self,
        labels: &LabelRange,
        sink: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut open: Vec<(Label, Arc<QName>)> = Vec::new();
        let mut begun: Option<Begun> = None;
        let mut scan = self.scan(labels)?;
        while let Some((label, record)) = scan.step()? {
            if matches!(record.kind, RecordKind::Attribute | RecordKind::Namespace) {
                let stray = XmlStoreError::Unsound("an attribute does not follow its element");
                let element = begun.as_mut().ok_or(stray)?;
                let name = self.full_name(&record)?;
                let Record { content: value, is_id, .. } = record;
                element.attributes.push(Attribute { name, value, is_id });
                continue;
            }
            if let Some(element) = begun.take() {
                open.push(element.pass_on(sink)?);
            }
            while let Some((_, name)) = open.pop_if(|(above, _)| !above.is_ancestor_of(&label)) {
                sink(Event::EndElement { name: &name })?;
            }
            if record.kind == RecordKind::Element {
                let name = self.full_name(&record)?;
                begun = Some(Begun { label, name, attributes: Vec::new() });
            } else {
                self.leaf_event(&record, sink)?;
            }
        }
        if let Some(element) = begun.take() {
            open.push(element.pass_on(sink)?);
        }
        while let Some((_, name)) = open.pop() {
            sink(Event::EndElement { name: &name })?;
        }
        Ok(())
    }

    fn leaf_event<E: From<XmlStoreError>>(
        &self,
        record: &Record,
        sink: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match record.kind {
            RecordKind::Comment => sink(Event::Comment(&record.content)),
            RecordKind::ProcessingInstruction => {
                let target = self.full_name(record)?;
                sink(Event::ProcessingInstruction { target: &target.local, data: &record.content })
            }
            _ => {
                let mut rest = record.content.as_str();
                while !rest.is_empty() {
                    let (part, after) = rest.split_at(part_length(rest));
                    sink(Event::Text(part))?;
                    rest = after;
                }
                Ok(())
            }
        }
    }

    /// Writes a node with all that is below it, as it stands between the tags of an element, and
    /// returns the output.
    ///
    /// # Errors
    /// There is no such node, it is an attribute, the store cannot read or the output cannot be
    /// written.
    pub fn write_subtree<W: Write>(&self, node: &Label, output: W) -> Result<W, XmlStoreError> {
        let mut writer = XmlWriter::fragment(output);
        let mut sink = |event: Event<'_>| writer.write(event).map_err(XmlStoreError::from);
        if *node == Label::document() {
            self.touch(Touch::Subtree(node))?;
            self.events_in(&node.children_range(), &mut sink)?;
        } else {
            self.subtree_events(node, sink)?;
        }
        Ok(writer.finish()?)
    }

    /// Writes the whole document and returns the output.
    ///
    /// # Errors
    /// If the store cannot read or the output cannot be written.
    pub fn write<W: Write>(&self, mut writer: XmlWriter<W>) -> Result<W, XmlStoreError> {
        self.events(|event| writer.write(event).map_err(XmlStoreError::from))?;
        Ok(writer.finish()?)
    }
}

/// An element whose attributes are being read.
struct Begun {
    label: Label,
    name: Arc<QName>,
    attributes: Vec<Attribute>,
}

impl Begun {
    fn pass_on<E>(
        self,
        sink: &mut impl FnMut(Event<'_>) -> Result<(), E>,
    ) -> Result<(Label, Arc<QName>), E> {
        sink(Event::StartElement { name: &self.name, attributes: &self.attributes })?;
        Ok((self.label, self.name))
    }
}

/// The nodes of a range of labels, one after the other.
pub(super) struct Scan<'d, 't> {
    document: &'d Document<'t>,
    cursor: KeptCursor<'d>,
    /// `None` if all nodes have records.
    inner: Option<InnerNodesOfScan>,
}

impl Scan<'_, '_> {
    /// Goes to the next node. The record of an inner node that has none is what it would be.
    pub(super) fn step(&mut self) -> Result<Option<(Label, Record)>, XmlStoreError> {
        if let Some(node) = self.inner.as_mut().and_then(InnerNodesOfScan::next) {
            return Ok(Some(node));
        }
        let found = self.step_stored()?;
        self.at(found)
    }

    /// Goes to the next node and returns it without its content.
    pub(super) fn step_head(&mut self) -> Result<Option<(Label, Head)>, XmlStoreError> {
        if self.inner.is_some() {
            return Ok(self.step()?.map(|(label, record)| (label, record.head())));
        }
        let mut transaction = self.document.transaction.borrow_mut();
        self.cursor.next(&mut transaction)?.map(read_head).transpose()
    }

    /// Goes to the next node that is wanted.
    pub(super) fn step_where(&mut self, wanted: &Wanted) -> Result<Option<Label>, XmlStoreError> {
        let found = if self.inner.is_some() {
            loop {
                match self.step()? {
                    Some((_, record)) if !wanted.passes(record.head()) => {}
                    found => break found.map(|(label, record)| (label, record.head())),
                }
            }
        } else {
            let mut transaction = self.document.transaction.borrow_mut();
            let may_pass = |record: &[u8]| wanted.may_pass(record);
            self.cursor.next_where(&mut transaction, may_pass)?.map(read_head).transpose()?
        };
        Ok(found.map(|(label, head)| {
            self.remember(&label, head);
            label
        }))
    }

    /// Goes to the first node that is not in the subtree of `label`, the node that the scan is at.
    /// So many nodes of the subtree are passed one by one, then the end of it is looked for.
    pub(super) fn step_over(
        &mut self,
        label: &Label,
        one_by_one: usize,
    ) -> Result<Option<(Label, Head)>, XmlStoreError> {
        let range = label.subtree();
        let Some(end) = range.end() else { return Ok(None) };
        let mut transaction = self.document.transaction.borrow_mut();
        if let Some(inner) = &mut self.inner {
            inner.pass_over(label);
            let found = self.cursor.seek(&mut transaction, end)?.map(read_entry).transpose()?;
            drop(transaction);
            return Ok(self.at(found)?.map(|(label, record)| (label, record.head())));
        }
        for _ in 0..one_by_one {
            let Some(entry) = self.cursor.next(&mut transaction)? else { return Ok(None) };
            if entry.0 >= end {
                return read_head(entry).map(Some);
            }
        }
        self.cursor.seek(&mut transaction, end)?.map(read_head).transpose()
    }

    /// Goes to the next node that has a record of which `passes` says so, and appends its content.
    fn step_text(
        &mut self,
        passes: impl FnMut(&[u8]) -> bool,
        text: &mut String,
    ) -> Result<Option<(Label, Head)>, XmlStoreError> {
        let mut transaction = self.document.transaction.borrow_mut();
        let found = self.cursor.next_where(&mut transaction, passes)?;
        let Some((key, value)) = found else { return Ok(None) };
        let (head, content) = Head::decode_all(value).map_err(malformed)?;
        text.push_str(content);
        Ok(Some((Label::from_bytes(key)?, head)))
    }

    /// Remembers a node that is handed out.
    pub(super) fn remember(&self, label: &Label, head: Head) {
        self.document.remember(label, head);
    }

    /// Returns the first of the nodes that come with a record.
    fn at(
        &mut self,
        found: Option<(Label, Record)>,
    ) -> Result<Option<(Label, Record)>, XmlStoreError> {
        match (&mut self.inner, found) {
            (Some(inner), Some(node)) => inner.enter(&self.document.stored.paths, node).map(Some),
            (_, found) => Ok(found),
        }
    }

    /// Returns whether the node that the scan is at has a record.
    pub(super) fn is_at_record(&self) -> bool {
        self.inner.as_ref().is_none_or(InnerNodesOfScan::is_at_record)
    }

    /// Goes to the next node that has a record. Such a scan does not use [`Scan::step`].
    fn step_stored(&mut self) -> Result<Option<(Label, Record)>, XmlStoreError> {
        let mut transaction = self.document.transaction.borrow_mut();
        self.cursor.next(&mut transaction)?.map(read_entry).transpose()
    }

    /// Goes on and returns key and value as they are stored.
    pub(super) fn step_raw(&mut self) -> Result<Option<KeyValue>, XmlStoreError> {
        let mut transaction = self.document.transaction.borrow_mut();
        let entry = self.cursor.next(&mut transaction)?;
        Ok(entry.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}

fn read_entry((key, value): (&[u8], &[u8])) -> Result<(Label, Record), XmlStoreError> {
    Ok((Label::from_bytes(key)?, Record::decode(value).map_err(malformed)?))
}

pub(super) fn read_head((key, value): (&[u8], &[u8])) -> Result<(Label, Head), XmlStoreError> {
    Ok((Label::from_bytes(key)?, Head::decode(value).map_err(malformed)?.0))
}

/// The children of a node; see [`Document::children`].
pub struct Children<'d, 't>(Steps<'d, 't>);

impl Iterator for Children<'_, '_> {
    type Item = Result<Label, XmlStoreError>;

    fn next(&mut self) -> Option<Result<Label, XmlStoreError>> {
        self.0.next()
    }
}

/// The descendants of a node; see [`Document::descendants`].
pub struct Descendants<'d, 't>(Steps<'d, 't>);

impl Iterator for Descendants<'_, '_> {
    type Item = Result<Label, XmlStoreError>;

    fn next(&mut self) -> Option<Result<Label, XmlStoreError>> {
        self.0.next()
    }
}

impl Tree for Document<'_> {
    type Node = Label;
    type Error = XmlStoreError;

    fn root(&self) -> Result<Label, XmlStoreError> {
        Ok(Label::document())
    }

    fn kind(&self, node: &Label) -> Result<Kind, XmlStoreError> {
        if *node == Label::document() {
            return Ok(Kind::Document);
        }
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        let kind = self.head(node)?.kind.node();
        kind.ok_or_else(|| XmlStoreError::NoSuchNode(node.clone()))
    }

    fn name(&self, node: &Label) -> Result<Option<QName>, XmlStoreError> {
        Ok(self.node_name(node)?.map(Arc::unwrap_or_clone))
    }

    fn has_name(&self, node: &Label, name: &QName) -> Result<bool, XmlStoreError> {
        if *node == Label::document() {
            return Ok(false);
        }
        Ok(self.node_name(node)?.is_some_and(|own| *own == *name))
    }

    fn content(&self, node: &Label) -> Result<String, XmlStoreError> {
        if *node == Label::document() {
            return Ok(String::new());
        }
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        Ok(self.record(node)?.content)
    }

    fn parent(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        Ok(Document::parent_of(node))
    }

    fn first_child(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        self.touch(Touch::Edge(Edge::First(node)))?;
        if let ControlFlow::Break(first) = self.view_child(node) {
            self.touch_reached(first.as_ref(), Edge::Previous, Edge::Last(node))?;
            return Ok(first);
        }
        let range = node.children_range();
        let first = if let ControlFlow::Break(first) = self.view_first(node, range.start())? {
            first
        } else {
            let high = range.end().map_or(Bound::Unbounded, Bound::Excluded);
            let first = self.end_of((Bound::Included(range.start()), high), Direction::Up)?;
            first.and_then(|first| child_of(node, &first))
        };
        self.touch_reached(first.as_ref(), Edge::Previous, Edge::Last(node))?;
        Ok(first)
    }

    fn last_child(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        self.touch(Touch::Edge(Edge::Last(node)))?;
        let range = node.children_range();
        let high = range.end().map_or(Bound::Unbounded, Bound::Excluded);
        let last = self.end_of((Bound::Included(range.start()), high), Direction::Down)?;
        let last = last.and_then(|last| child_of(node, &last));
        self.touch_reached(last.as_ref(), Edge::Next, Edge::First(node))?;
        Ok(last)
    }

    fn next_sibling(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        if self.is_list_locked(node)
            && let ControlFlow::Break(next) = self.view_next(node)
        {
            return Ok(next);
        }
        if node.role() != LabelRole::Child {
            return Ok(None);
        }
        let Some(parent) = node.parent() else { return Ok(None) };
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        self.touch(Touch::Edge(Edge::Next(node)))?;
        let (own, all) = (node.subtree(), parent.children_range());
        let viewed = match own.end() {
            Some(end) => self.view_first(&parent, end)?,
            None => ControlFlow::Continue(()),
        };
        let behind = if let ControlFlow::Break(behind) = viewed {
            behind
        } else {
            let low = own.end().map_or(Bound::Unbounded, Bound::Included);
            let high = all.end().map_or(Bound::Unbounded, Bound::Excluded);
            let behind = self.end_of((low, high), Direction::Up)?;
            behind.and_then(|behind| child_of(&parent, &behind))
        };
        self.touch_reached(behind.as_ref(), Edge::Previous, Edge::Last(&parent))?;
        Ok(behind)
    }

    fn previous_sibling(&self, node: &Label) -> Result<Option<Label>, XmlStoreError> {
        if node.role() != LabelRole::Child {
            return Ok(None);
        }
        let Some(parent) = node.parent() else { return Ok(None) };
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        self.touch(Touch::Edge(Edge::Previous(node)))?;
        let all = parent.children_range();
        let bounds = (Bound::Included(all.start()), Bound::Excluded(node.as_bytes()));
        let before = self.end_of(bounds, Direction::Down)?;
        let before = before.and_then(|before| child_of(&parent, &before));
        self.touch_reached(before.as_ref(), Edge::Next, Edge::First(&parent))?;
        Ok(before)
    }

    fn attributes(&self, node: &Label) -> Result<Vec<Label>, XmlStoreError> {
        self.steps(node, StepAxis::Attribute, StepTest::Any)?.collect()
    }

    fn declarations(&self, node: &Label) -> Result<Vec<Binding>, XmlStoreError> {
        self.begin_reading();
        self.touch(Touch::Node(node))?;
        let mut bindings = Vec::new();
        let mut scan = self.scan(&node.namespaces_range())?;
        while let Some((_, record)) = scan.step_stored()? {
            let name = self.full_name(&record)?;
            // `xmlns:p` declares p; `xmlns` alone has no prefix.
            let prefix = if name.prefix.is_empty() { "".into() } else { name.local.clone() };
            bindings.push(Binding { prefix, uri: record.content.into() });
        }
        Ok(bindings)
    }

    fn compare(&self, a: &Label, b: &Label) -> Result<Ordering, XmlStoreError> {
        Ok(a.cmp(b))
    }

    fn is_ancestor(&self, ancestor: &Label, node: &Label) -> Result<bool, XmlStoreError> {
        Ok(ancestor.is_ancestor_of(node))
    }

    fn step<'a>(
        &'a self,
        node: &Label,
        axis: StepAxis,
        test: StepTest<'_>,
    ) -> Result<Option<Indexed<'a, Self>>, XmlStoreError> {
        Ok(Some(Box::new(self.steps(node, axis, test)?)))
    }

    fn elements_below<'a>(
        &'a self,
        node: &Label,
        name: &'a QName,
    ) -> Result<Option<Indexed<'a, Self>>, XmlStoreError> {
        self.indexed_elements(node, name)
    }

    fn index_of_elements(&self, name: &QName) -> Option<String> {
        self.index_of_name(name)
    }

    fn matching<'a>(
        &'a self,
        pattern: &Pattern<'_>,
    ) -> Result<Option<Indexed<'a, Self>>, XmlStoreError> {
        self.indexed_nodes(pattern)
    }

    fn index_for(&self, pattern: &Pattern<'_>) -> Option<String> {
        self.index_of_pattern(pattern)
    }

    fn element_by_id(&self, id: &str) -> Result<Option<Label>, XmlStoreError> {
        if let ControlFlow::Break(found) = self.indexed_id(id)? {
            return Ok(found);
        }
        self.touch(Touch::Subtree(&Label::document()))?;
        let mut scan = self.scan(&Label::document().children_range())?;
        while let Some((label, record)) = scan.step_stored()? {
            if record.is_id && record.content == id {
                return Ok(label.owner());
            }
        }
        Ok(None)
    }

    fn string_value(&self, node: &Label) -> Result<String, XmlStoreError> {
        self.begin_reading();
        self.touch(Touch::Subtree(node))?;
        let is_document = *node == Label::document();
        let range = if is_document { node.children_range() } else { node.subtree() };
        let mut scan = self.scan(&range)?;
        let mut text = String::new();
        if !is_document {
            let first = scan.step_text(|_| true, &mut text)?;
            let Some((label, head)) = first else {
                return Err(XmlStoreError::NoSuchNode(node.clone()));
            };
            if label != *node {
                // An inner node without a record: the first record below it is not its own.
                self.record(node)?;
            } else if head.kind != RecordKind::Element {
                return Ok(text);
            }
            if head.kind != RecordKind::Text {
                text.clear();
            }
        }
        let is_text = |record: &[u8]| Wanted::Of(RecordKind::Text).may_pass(record);
        while scan.step_text(is_text, &mut text)?.is_some() {}
        Ok(text)
    }
}
