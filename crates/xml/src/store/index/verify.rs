//! Comparing indexes with their document, both ways and in bounded memory.

use std::ops::Bound;

use tidegate_engine::Direction;
use tidegate_engine::lock::multi_granularity::S;

use super::Index;
use crate::label::Label;
use crate::store::check::{PROBLEMS_MAX, Problem};
use crate::store::{Document, XmlStoreError};

impl Document<'_> {
    /// Adds what is wrong with the indexes of a sound document. Of an index that is being built,
    /// only entries that it should not have are looked for.
    pub(in crate::store) fn check_indexes(
        &self,
        problems: &mut Vec<Problem>,
    ) -> Result<(), XmlStoreError> {
        let indexes = self.stored.indexes.list().clone();
        for index in &indexes {
            self.transaction.borrow_mut().lock_tree(&index.tree, S)?;
            if index.is_ready() {
                self.find_missing(index, problems)?;
            }
            self.find_surplus(index, problems)?;
        }
        Ok(())
    }

    /// Looks for the entry of each node.
    fn find_missing(
        &self,
        index: &Index,
        problems: &mut Vec<Problem>,
    ) -> Result<(), XmlStoreError> {
        let mut scan = self.scan(&Label::document().children_range())?;
        while let Some((label, record)) = scan.step()? {
            let Some((key, value)) = self.entry_of(index, &label, &record) else { continue };
            let found = self.transaction.borrow_mut().get(&index.tree, &key)?;
            let what = match found {
                None => "the index has no entry of the node",
                Some(found) if found != value => "the node's entry in the index is wrong",
                Some(_) => continue,
            };
            report(problems, index, &label, what);
        }
        Ok(())
    }

    /// Looks for the node of each entry.
    fn find_surplus(
        &self,
        index: &Index,
        problems: &mut Vec<Problem>,
    ) -> Result<(), XmlStoreError> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let mut cursor = self.transaction.borrow_mut().cursor(&index.tree, all, Direction::Up)?;
        let mut last = Label::document();
        loop {
            let mut transaction = self.transaction.borrow_mut();
            let Some((key, value)) = cursor.next(&mut transaction)? else { return Ok(()) };
            let (key, value) = (key.to_vec(), value.to_vec());
            drop(transaction);
            let Ok(label) = index.label_of(&key) else {
                report(problems, index, &last, "a key of the index ends in no label");
                continue;
            };
            let record = self.find(&label)?;
            let expected = record.and_then(|record| self.entry_of(index, &label, &record));
            // One with the right key and a wrong value was found from the node.
            let is_right = expected
                .is_some_and(|(right, of)| right == key && (index.is_ready() || of == value));
            if !is_right {
                report(problems, index, &label, "the index has an entry that is not the node's");
            }
            last = label;
        }
    }
}

fn report(problems: &mut Vec<Problem>, index: &Index, label: &Label, what: &'static str) {
    if problems.len() < PROBLEMS_MAX {
        let index = Some(index.name.clone());
        problems.push(Problem { label: label.clone(), index, what });
    }
}
