//! Answers from indexes.
//!
//! A pattern is resolved against the path synopsis to a set of classes, and the best index that is
//! ready is taken:
//!
//! | pattern | indexes, the best first |
//! | --- | --- |
//! | with content | CAS of these classes, content, both of that type; path of these classes |
//! | without | path of these classes; name, if the last step has one |
//! | with the string-value of elements | CAS, content; see `string_value.rs` |
//!
//! Entries with one prefix ascend by label, so the answers for several classes or names are merged
//! as they are asked for. A range of numbers does not, so its labels are collected and sorted.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use tidegate_engine::lock::multi_granularity::S;
use tidegate_engine::{Cursor, Direction};

use super::classes::{NodeClass, Reached};
use super::definition::{STEPS_MAX, Step, ValueType};
use super::key::{self, KeyRange};
use super::{Index, IndexDefinition};
use crate::label::Label;
use crate::name::QName;
use crate::store::locks::{Access, Touch};
use crate::store::paths::Pcr;
use crate::store::record::{Record, RecordKind};
use crate::store::{Document, XmlStoreError};
use crate::tree::{Below, Comparand, Indexed, PathTest, Pattern, Relation};
use crate::xpath::number_of;

/// How a pattern is answered.
pub(super) struct Plan {
    pub(super) index: Arc<Index>,
    /// In ascending order.
    pub(super) classes: Arc<[NodeClass]>,
}

/// What of a candidate is compared with the pattern because the key does not decide it.
pub(super) struct Filter {
    /// Classes of which one is the value of the entry, in ascending order.
    classes: Option<Arc<[NodeClass]>>,
    /// What the content of the node has to be.
    content: Option<(Relation, Wanted)>,
    /// Whether the node has to be an attribute that identifies its element.
    is_id: bool,
}

/// A [`Comparand`] that is kept.
enum Wanted {
    Text(String),
    Number(f64),
}

impl Filter {
    pub(super) fn of_classes(classes: &Arc<[NodeClass]>) -> Filter {
        Filter { classes: Some(Arc::clone(classes)), content: None, is_id: false }
    }

    fn needs_record(&self) -> bool {
        self.content.is_some() || self.is_id
    }

    #[expect(clippy::float_cmp, reason = "`XPath` compares numbers exactly")]
    fn passes(&self, record: &Record) -> bool {
        let content = &record.content;
        let is_right = match &self.content {
            None => true,
            Some((_, Wanted::Text(text))) => content == text,
            Some((relation, Wanted::Number(wanted))) => {
                let number = number_of(content);
                match relation {
                    Relation::Equal => number == *wanted,
                    Relation::Less => number < *wanted,
                    Relation::LessOrEqual => number <= *wanted,
                    Relation::Greater => number > *wanted,
                    Relation::GreaterOrEqual => number >= *wanted,
                }
            }
        };
        is_right && (record.is_id || !self.is_id)
    }
}

/// Returns how an index reads content to answer a comparison.
fn type_of(comparand: Comparand<'_>) -> ValueType {
    match comparand {
        Comparand::Text(_) => ValueType::Text,
        Comparand::Number(_) => ValueType::Number,
    }
}

fn wanted(comparand: Comparand<'_>) -> Wanted {
    match comparand {
        Comparand::Text(text) => Wanted::Text(text.to_owned()),
        Comparand::Number(number) => Wanted::Number(number),
    }
}

/// Returns whether no content can be in this relation.
fn is_never(comparand: Comparand<'_>) -> bool {
    match comparand {
        // XML does not allow the character, and in keys it ends a text.
        Comparand::Text(text) => text.contains('\0'),
        Comparand::Number(number) => number.is_nan(),
    }
}

/// Answers for [`crate::tree::Tree`].
impl<'t> Document<'t> {
    pub(in crate::store) fn indexed_nodes<'a>(
        &'a self,
        pattern: &Pattern<'_>,
    ) -> Result<Option<Indexed<'a, Document<'t>>>, XmlStoreError> {
        self.lock_classes(Access::Read)?;
        let Some(plan) = self.plan(pattern) else { return Ok(None) };
        if let Some(value) = string_value_of(pattern) {
            return self.run_string_value(&plan, &pattern.path, value).map(Some);
        }
        self.run(&plan, pattern, false).map(Some)
    }

    pub(in crate::store) fn index_of_pattern(&self, pattern: &Pattern<'_>) -> Option<String> {
        self.plan(pattern).map(|plan| plan.index.describe())
    }

    pub(in crate::store) fn indexed_elements<'a>(
        &'a self,
        node: &Label,
        name: &QName,
    ) -> Result<Option<Indexed<'a, Document<'t>>>, XmlStoreError> {
        self.lock_classes(Access::Read)?;
        let Some(plan) = self.plan(&elements(name)) else { return Ok(None) };
        let below = node.children_range();
        let range = |prefix: Vec<u8>| -> KeyRange {
            let low = [&prefix[..], below.start()].concat();
            let high = match below.end() {
                Some(end) => Bound::Excluded([&prefix[..], end].concat()),
                None => key::behind(&prefix),
            };
            (Bound::Included(low), high)
        };
        let prefixes = self.prefixes(&plan, Some(name));
        let filter = Filter { classes: None, content: None, is_id: false };
        let merge = Merge::new(self, &plan.index, prefixes.into_iter().map(range), filter)?;
        Ok(Some(Box::new(merge)))
    }

    pub(in crate::store) fn index_of_name(&self, name: &QName) -> Option<String> {
        self.index_of_pattern(&elements(name))
    }

    /// Returns the element of an ID from an index of content, or goes on if no index serves it.
    pub(in crate::store) fn indexed_id(
        &self,
        id: &str,
    ) -> Result<ControlFlow<Option<Label>>, XmlStoreError> {
        let path = vec![(Below::Anywhere, PathTest::Attribute(None))];
        let content = Some((Relation::Equal, Comparand::Text(id)));
        let pattern = Pattern { path, content };
        self.lock_classes(Access::Read)?;
        let is_of_content =
            |plan: &Plan| !matches!(plan.index.definition, IndexDefinition::Path { .. });
        let Some(plan) = self.plan(&pattern).filter(is_of_content) else {
            return Ok(ControlFlow::Continue(()));
        };
        let first = self.run(&plan, &pattern, true)?.next().transpose()?;
        Ok(ControlFlow::Break(first.and_then(|attribute| attribute.owner())))
    }

    /// Returns the classes of nodes on a path, in ascending order.
    pub(super) fn classes_on(&self, path: &[Step<'_>]) -> Arc<[NodeClass]> {
        let stored = &self.stored;
        stored.indexes.classes.get(path, stored.paths.count(), || self.find_classes_on(path))
    }

    fn find_classes_on(&self, path: &[Step<'_>]) -> Vec<NodeClass> {
        let mut reached = Reached::new();
        let classes = self.stored.paths.since(0);
        reached.extend(path, &classes, &|name| self.store.vocabulary.name(name));
        let mut found = Vec::new();
        for (pcr, class) in (1..).map(Pcr).zip(&classes) {
            let own = NodeClass { pcr, is_text: false };
            let is_element = class.kind == RecordKind::Element;
            let text = NodeClass { is_text: true, ..own };
            let all = [Some(own), is_element.then_some(text)].into_iter().flatten();
            found.extend(all.filter(|&class| reached.is_on_path(path, class)));
        }
        found
    }

    /// Returns the best index for a pattern.
    pub(super) fn plan(&self, pattern: &Pattern<'_>) -> Option<Plan> {
        if let Some(value) = string_value_of(pattern) {
            return self.plan_of_string_value(&pattern.path, value);
        }
        let ready = self.stored.indexes.ready();
        let &(_, last) = pattern.path.last()?;
        if ready.is_empty() || pattern.path.len() > STEPS_MAX {
            return None;
        }
        let serves = match pattern.content {
            Some((_, _)) if matches!(last, PathTest::Element(_)) => false,
            Some((relation, Comparand::Text(_))) => relation == Relation::Equal,
            None | Some((_, Comparand::Number(_))) => true,
        };
        if !serves {
            return None;
        }
        let classes = self.classes_on(&pattern.path);
        let covers = |index: &Arc<Index>| {
            let (vocabulary, paths) = (&self.store.vocabulary, &self.stored.paths);
            classes.iter().all(|&class| index.covers(vocabulary, paths, class))
        };
        let content = pattern.content.map(|(_, comparand)| type_of(comparand));
        let has_name = matches!(last, PathTest::Element(Some(_)));
        let rank = |index: &Arc<Index>| match (&index.definition, content) {
            (IndexDefinition::Cas { value, .. }, Some(of)) if *value == of && covers(index) => {
                Some(0)
            }
            (IndexDefinition::Content { value }, Some(of)) if *value == of => Some(1),
            (IndexDefinition::Path { .. }, _) if covers(index) => Some(2),
            (IndexDefinition::Name, None) if has_name => Some(3),
            _ => None,
        };
        let ranked = ready.iter().filter_map(|index| Some((rank(index)?, index)));
        let (_, index) = ranked.min_by_key(|&(rank, _)| rank)?;
        Some(Plan { index: Arc::clone(index), classes })
    }

    /// Returns what the keys of the plan's entries begin with.
    pub(super) fn prefixes(&self, plan: &Plan, name: Option<&QName>) -> Vec<Vec<u8>> {
        match (&plan.index.definition, name) {
            (IndexDefinition::Name, Some(name)) => {
                let numbers = self.store.vocabulary.numbers(name);
                numbers.iter().map(|number| number.0.to_be_bytes().to_vec()).collect()
            }
            (IndexDefinition::Name | IndexDefinition::Content { .. }, _) => vec![Vec::new()],
            (IndexDefinition::Path { .. } | IndexDefinition::Cas { .. }, _) => {
                plan.classes.iter().map(|class| class.to_bytes().to_vec()).collect()
            }
        }
    }

    fn run<'a>(
        &'a self,
        plan: &Plan,
        pattern: &Pattern<'_>,
        is_id: bool,
    ) -> Result<Indexed<'a, Document<'t>>, XmlStoreError> {
        if pattern.content.is_some_and(|(_, comparand)| is_never(comparand)) {
            return Ok(Box::new(std::iter::empty()));
        }
        let index = &plan.index;
        let name = match pattern.path.last() {
            Some((_, PathTest::Element(name))) => *name,
            _ => None,
        };
        let decides_class =
            matches!(index.definition, IndexDefinition::Path { .. } | IndexDefinition::Cas { .. });
        let decides_content = !matches!(index.definition, IndexDefinition::Path { .. });
        let (mut is_sorted, mut compares) = (true, !decides_content);
        let mut ranges = Vec::new();
        for mut prefix in self.prefixes(plan, name) {
            ranges.push(match pattern.content.filter(|_| decides_content) {
                Some((relation, Comparand::Number(number))) => {
                    is_sorted = relation == Relation::Equal;
                    key::numbers(&prefix, relation, number)
                }
                Some((_, Comparand::Text(text))) => {
                    compares = key::push_text(&mut prefix, text, index.text_max);
                    key::beginning_with(prefix)
                }
                None => key::beginning_with(prefix),
            });
        }
        let content = pattern.content.filter(|_| compares);
        let filter = Filter {
            classes: (!decides_class).then(|| Arc::clone(&plan.classes)),
            content: content.map(|(relation, comparand)| (relation, wanted(comparand))),
            is_id,
        };
        if is_sorted {
            return Ok(Box::new(Merge::new(self, index, ranges.into_iter(), filter)?));
        }
        let mut labels = Vec::new();
        for range in ranges {
            let mut run = Run::new(self, index, range)?;
            while let Some((label, class)) = run.step(self, index)? {
                if self.passes(&filter, &label, class)? {
                    labels.push(label);
                }
            }
        }
        labels.sort_unstable();
        Ok(Box::new(labels.into_iter().map(Ok)))
    }

    pub(super) fn passes(
        &self,
        filter: &Filter,
        label: &Label,
        class: Option<NodeClass>,
    ) -> Result<bool, XmlStoreError> {
        if let Some(classes) = &filter.classes {
            let class = class.ok_or(XmlStoreError::Unsound("an entry of an index has no class"))?;
            if classes.binary_search(&class).is_err() {
                return Ok(false);
            }
        }
        // The entry is locked. Who removes the node may have come first.
        self.touch(Touch::Node(label))?;
        if self.locks_nodes() && self.find(label)?.is_none() {
            return Ok(false);
        }
        Ok(!filter.needs_record() || filter.passes(&self.record(label)?))
    }
}

/// Returns the string-value that a pattern asks elements for, if it does.
fn string_value_of<'a>(pattern: &Pattern<'a>) -> Option<&'a str> {
    match (pattern.path.last(), pattern.content) {
        (Some((_, PathTest::Element(_))), Some((Relation::Equal, Comparand::Text(value)))) => {
            Some(value)
        }
        _ => None,
    }
}

fn elements(name: &QName) -> Pattern<'_> {
    let path = vec![(Below::Anywhere, PathTest::Element(Some(name)))];
    Pattern { path, content: None }
}

impl Index {
    fn describe(&self) -> String {
        format!("{} ({})", self.name, self.definition)
    }
}

/// A range of an index.
pub(super) struct Run(Cursor);

impl Run {
    pub(super) fn new(
        document: &Document<'_>,
        index: &Index,
        (low, high): KeyRange,
    ) -> Result<Run, XmlStoreError> {
        let mut transaction = document.transaction.borrow_mut();
        // Who changes the index changes the document, which is locked: the entries need no locks.
        if !document.locks_nodes() {
            transaction.lock_tree(&index.tree, S)?;
        }
        let bounds = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        Ok(Run(transaction.cursor(&index.tree, bounds, Direction::Up)?))
    }

    /// Goes through another range.
    pub(super) fn restart(&mut self, (low, high): KeyRange) {
        self.0.restart((low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice)));
    }

    /// Returns the label of the next entry, and the class that is its value, if it has one.
    pub(super) fn step(
        &mut self,
        document: &Document<'_>,
        index: &Index,
    ) -> Result<Option<(Label, Option<NodeClass>)>, XmlStoreError> {
        let mut transaction = document.transaction.borrow_mut();
        let Some((key, value)) = self.0.next(&mut transaction)? else { return Ok(None) };
        let class = value.try_into().ok().map(NodeClass::from_bytes);
        Ok(Some((index.label_of(key)?, class)))
    }
}

/// The next label of a range, the number of the range, and the class in its entry.
type Head = (Label, usize, Option<[u8; 4]>);

/// Ranges of an index, each in the order of labels, as one sequence.
struct Merge<'d, 't> {
    document: &'d Document<'t>,
    index: Arc<Index>,
    runs: Vec<Run>,
    heads: BinaryHeap<Reverse<Head>>,
    /// The range whose next label is not among the heads.
    taken: Vec<usize>,
    filter: Filter,
}

impl<'d, 't> Merge<'d, 't> {
    fn new(
        document: &'d Document<'t>,
        index: &Arc<Index>,
        ranges: impl Iterator<Item = KeyRange>,
        filter: Filter,
    ) -> Result<Merge<'d, 't>, XmlStoreError> {
        let runs: Vec<Run> =
            ranges.map(|range| Run::new(document, index, range)).collect::<Result<_, _>>()?;
        let (taken, index) = ((0..runs.len()).collect(), Arc::clone(index));
        Ok(Merge { document, index, runs, heads: BinaryHeap::new(), taken, filter })
    }

    fn step(&mut self) -> Result<Option<Label>, XmlStoreError> {
        loop {
            while let Some(number) = self.taken.pop() {
                let next = self.runs[number].step(self.document, &self.index)?;
                let head = next
                    .map(|(label, class)| Reverse((label, number, class.map(NodeClass::to_bytes))));
                self.heads.extend(head);
            }
            let Some(Reverse((label, number, class))) = self.heads.pop() else { return Ok(None) };
            self.taken.push(number);
            let class = class.map(NodeClass::from_bytes);
            if self.document.passes(&self.filter, &label, class)? {
                return Ok(Some(label));
            }
        }
    }
}

impl Iterator for Merge<'_, '_> {
    type Item = Result<Label, XmlStoreError>;

    fn next(&mut self) -> Option<Result<Label, XmlStoreError>> {
        let next = self.step().transpose();
        if next.as_ref().is_none_or(Result::is_err) {
            self.heads.clear();
            self.taken.clear();
        }
        next
    }
}
