//! Labelling lists of children anew when a label would be too long.
//!
//! A label grows with insertions on alternating sides of the node inserted last (`label.rs`), and
//! all labels below it grow with it. When a change needs a label above the document's limit, the
//! children of one element get new labels, and the change is tried again. First that is the list
//! that the node comes into. If this is not enough, it is the list that the element is in, and so
//! on upwards. The root element keeps its label, so its own list is not labelled anew.
//!
//! New labels are behind the last present one, at the distance of loaded ones: none of them is a
//! label of the list before, so each subtree is moved by itself, with one record in memory. They
//! take a byte more than those of a loaded list now and then, because positions grow.
//!
//! Only lists are labelled anew in which that makes a label shorter. If none does, the node is too
//! deep for the limit, and the change is refused with [`LabelError::TooLong`].

use std::cell::RefCell;

use super::navigate::child_of;
use super::update::Gap;
use super::{Document, XmlStoreError};
use crate::label::{Label, LabelError, LabelRules};
use crate::tree::Tree;

impl Document<'_> {
    /// Returns the elements whose children were labelled anew by updates through this handle since
    /// the last call, and forgets them. A label of a node below such an element that the caller
    /// got earlier is no node's any more, as if the node had been deleted; look for the node
    /// again. Labels that later updates returned are good. An element is also named if its labels
    /// came back because the update failed or was rolled back.
    #[must_use]
    pub fn take_relabelled(&self) -> Vec<Label> {
        self.relabelled.take()
    }

    /// Runs a change that gives a label in a gap to a node. While a label is too long for it, lists
    /// around the gap are labelled anew. Labels of nodes in `followed` stay those of their nodes.
    pub(super) fn with_room<T>(
        &self,
        mut gap: Gap,
        followed: &[&RefCell<Label>],
        run: impl Fn(&Gap, &Label) -> Result<T, XmlStoreError>,
    ) -> Result<T, XmlStoreError> {
        let attempt = |gap: &Gap| {
            self.atomically(|| {
                let siblings = gap.parent.children(self.stored.rules);
                let label = siblings.at(gap.left.as_ref(), gap.right.as_ref())?;
                self.lock_new(&label)?;
                run(gap, &label)
            })
        };
        let mut done = attempt(&gap);
        if !is_too_long(&done) {
            return done;
        }
        let before: Vec<Label> = followed.iter().map(|node| node.borrow().clone()).collect();
        let done = self.atomically(|| {
            let mut up = 0;
            while let Some(list) = list_above(&gap.parent, up) {
                up += 1;
                if !self.is_worn(&list, &gap)? || !self.relabel(&list, &mut gap, followed)? {
                    continue;
                }
                done = attempt(&gap);
                if !is_too_long(&done) {
                    self.relabelled.borrow_mut().push(list);
                    break;
                }
            }
            done
        });
        if done.is_err() {
            followed.iter().zip(before).for_each(|(node, label)| drop(node.replace(label)));
        }
        done
    }

    /// Returns whether the children of `list` that are beside or above the gap would have shorter
    /// labels.
    fn is_worn(&self, list: &Label, gap: &Gap) -> Result<bool, XmlStoreError> {
        let Some(end) = self.last_child(list)? else { return Ok(false) };
        let Ok(new) = list.children(self.stored.rules).after_last(&end) else { return Ok(false) };
        let around = [gap.left.as_ref(), gap.right.as_ref(), Some(&gap.parent)];
        let mut children = around.into_iter().flatten().filter_map(|label| child_of(list, label));
        Ok(children.any(|child| child.as_bytes().len() > new.as_bytes().len()))
    }

    /// Gives new labels to the children of `list` and all nodes below them. Returns `false`, and
    /// changes nothing, if one of these labels would be too long.
    fn relabel(
        &self,
        list: &Label,
        gap: &mut Gap,
        followed: &[&RefCell<Label>],
    ) -> Result<bool, XmlStoreError> {
        self.lock_list(list)?;
        let rules = self.stored.rules;
        let mut new_gap = gap.clone();
        let mut nodes: Vec<Label> = followed.iter().map(|node| node.borrow().clone()).collect();
        let relabelled = self.atomically(|| {
            self.relabel_children(list, |from, to| {
                let gap_labels = [Some(&mut new_gap.parent), new_gap.left.as_mut()];
                let gap_labels = gap_labels.into_iter().chain([new_gap.right.as_mut()]).flatten();
                let mut all = gap_labels.chain(&mut nodes);
                all.try_for_each(|label| follow(label, from, to, rules))
            })
        });
        if is_too_long(&relabelled) {
            return Ok(false);
        }
        relabelled?;
        *gap = new_gap;
        for (node, label) in followed.iter().zip(nodes) {
            node.replace(label);
        }
        Ok(true)
    }

    fn relabel_children(
        &self,
        list: &Label,
        mut moved: impl FnMut(&Label, &Label) -> Result<(), LabelError>,
    ) -> Result<(), XmlStoreError> {
        let siblings = list.children(self.stored.rules);
        let end = self.last_child(list)?;
        let (mut next, mut new) = (self.first_child(list)?, end.clone());
        while let Some(old) = next {
            next = if end.as_ref() == Some(&old) { None } else { self.next_sibling(&old)? };
            let label = siblings.at(new.as_ref(), None)?;
            let mut scan = self.scan(&old.subtree())?;
            while let Some((node, record)) = scan.step()? {
                let to = node.moved(&old, &label, self.stored.rules)?;
                self.change_as(scan.is_at_record(), &node, Some(&record), None)?;
                self.change_as(scan.is_at_record(), &to, None, Some(&record))?;
            }
            moved(&old, &label)?;
            new = Some(label);
        }
        Ok(())
    }
}

fn is_too_long<T>(done: &Result<T, XmlStoreError>) -> bool {
    matches!(done, Err(XmlStoreError::Label(LabelError::TooLong { .. })))
}

/// Returns the element whose children are the list to be labelled anew: `up` levels above the
/// parent of a gap.
fn list_above(parent: &Label, up: usize) -> Option<Label> {
    let list = match up.checked_sub(1) {
        None => Some(parent.clone()),
        Some(above) => parent.ancestors().nth(above),
    };
    list.filter(|list| *list != Label::document())
}

/// Changes a label as the move of the subtree `from` does.
fn follow(
    label: &mut Label,
    from: &Label,
    to: &Label,
    rules: LabelRules,
) -> Result<(), LabelError> {
    if label == from || from.is_ancestor_of(label) {
        *label = label.moved(from, to, rules)?;
    }
    Ok(())
}
