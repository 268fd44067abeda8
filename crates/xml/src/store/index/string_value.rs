//! Elements by their string-value, from an index of the contents of texts.
//!
//! # Mechanism
//! No text is empty, and the string-value of an element is that of its texts one after the other.
//! So the first text in an element with the string-value `abc` is `a`, `ab` or `abc`. The index is
//! asked for each of these, in texts at any depth below elements of the path. The elements above
//! what it finds are the candidates, and their string-values decide.
//!
//! For `//person[name = 'Ann']` the index is asked for the texts `A`, `An` and `Ann` below classes
//! of `//person/name`; the evaluator takes the parents.
//!
//! # Locks
//! The ranges of the index stay locked, and so do the candidates with their subtrees. An element
//! that gets the string-value later gets a first text in one of the ranges, or is a candidate.
//!
//! # Limits
//! * An empty string-value, and one of more than [`PREFIXES_MAX`] characters, is not looked up.
//! * All candidates are found before the first element is returned.

use super::classes::NodeClass;
use super::definition::{IndexDefinition, Step};
use super::key;
use super::query::{Filter, Plan, Run};
use crate::label::Label;
use crate::store::{Document, XmlStoreError};
use crate::tree::{Below, Comparand, Indexed, PathTest, Pattern, Relation, Tree};

/// Most beginnings of a string-value that an index is asked for.
const PREFIXES_MAX: usize = 64;
/// Most ranges of an index that are looked at: beginnings, in each class by an index of classes.
const RANGES_MAX: usize = 1_024;

impl<'t> Document<'t> {
    /// Returns an index that has the texts of elements on a path, if it pays to ask it for these
    /// elements by their string-value.
    pub(super) fn plan_of_string_value(&self, path: &[Step<'_>], value: &str) -> Option<Plan> {
        let prefixes = value.chars().take(PREFIXES_MAX + 1).count();
        if prefixes == 0 || prefixes > PREFIXES_MAX {
            return None;
        }
        let mut path = path.to_vec();
        path.push((Below::Anywhere, PathTest::Text));
        let content = Some((Relation::Equal, Comparand::Text(value)));
        let plan = self.plan(&Pattern { path, content })?;
        let ranges = match plan.index.definition {
            IndexDefinition::Content { .. } => prefixes,
            IndexDefinition::Cas { .. } => prefixes * plan.classes.len(),
            IndexDefinition::Name | IndexDefinition::Path { .. } => return None,
        };
        (ranges <= RANGES_MAX).then_some(plan)
    }

    /// Returns the elements on a path that have a string-value, in document order.
    pub(super) fn run_string_value<'a>(
        &'a self,
        plan: &Plan,
        path: &[Step<'_>],
        value: &str,
    ) -> Result<Indexed<'a, Document<'t>>, XmlStoreError> {
        let elements = self.classes_on(path);
        let filter = Filter::of_classes(&plan.classes);
        let mut found = Vec::new();
        // Beginnings of a value are near each other in the index, often in one leaf.
        let mut run: Option<Run> = None;
        for beginning in self.prefixes(plan, None) {
            // The class is in the key or in the entry.
            let own = <[u8; 4]>::try_from(&beginning[..]).ok().map(NodeClass::from_bytes);
            let ends = value.char_indices().skip(1).map(|(end, _)| end).chain([value.len()]);
            for end in ends {
                let mut prefix = beginning.clone();
                key::push_text(&mut prefix, &value[..end], plan.index.text_max);
                let range = key::beginning_with(prefix);
                let run = match &mut run {
                    Some(run) => {
                        run.restart(range);
                        run
                    }
                    None => run.insert(Run::new(self, &plan.index, range)?),
                };
                while let Some((label, class)) = run.step(self, &plan.index)? {
                    let class = own.or(class);
                    if self.passes(&filter, &label, class)? {
                        self.push_elements_above(&elements, &label, class, &mut found);
                    }
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        let value = value.to_owned();
        let has_value = move |label: &Label| Ok(self.string_value(label)? == value);
        let elements = found.into_iter().filter_map(move |label| match has_value(&label) {
            Ok(is_right) => is_right.then_some(Ok(label)),
            Err(error) => Some(Err(error)),
        });
        Ok(Box::new(elements))
    }

    /// Appends the elements above a text that are of some classes.
    fn push_elements_above(
        &self,
        elements: &[NodeClass],
        text: &Label,
        class: Option<NodeClass>,
        found: &mut Vec<Label>,
    ) {
        let mut pcr = class.map(|class| class.pcr);
        for above in text.ancestors() {
            let Some(own) = pcr else { return };
            if elements.binary_search(&NodeClass { pcr: own, is_text: false }).is_ok() {
                found.push(above);
            }
            pcr = self.stored.paths.class(own).map(|class| class.parent);
        }
    }
}
