//! Keys that may be labels: what is read is a label with all its properties, or refused. The first
//! byte says how many of the others are the first of two keys.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::ops::RangeBounds;
use tidegate_xml::label::{Label, LabelError, LabelRules, Level};

/// Longer than any label that libFuzzer makes from its longest input.
const RULES: LabelRules = LabelRules::new(1 << 20);

fuzz_target!(|bytes: &[u8]| {
    let Some((&length, rest)) = bytes.split_first() else { return };
    let (left, right) = rest.split_at(usize::from(length).min(rest.len()));
    if let (Some(left), Some(right)) = (label(left), label(right)) {
        pair(&left, &right);
        // A label is made of divisions, so a sequence of labels is one.
        let joined = [left.as_bytes(), right.as_bytes()].concat();
        let joined = label(&joined).expect("two labels in a row are a label");
        assert_eq!(right.moved(&Label::document(), &left, RULES).as_ref(), Ok(&joined));
        pair(&left, &joined);
        pair(&joined, &right);
    }
});

fn label(bytes: &[u8]) -> Option<Label> {
    let label = Label::from_bytes(bytes).ok()?;
    assert_eq!(label.as_bytes(), bytes);
    let ancestors: Vec<_> = label.ancestors().collect();
    assert!(ancestors.iter().rev().eq(&label.ancestors().rev().collect::<Vec<_>>()));
    assert_eq!(ancestors.first(), label.parent().as_ref());
    match label.level() {
        Level::Document => assert!(ancestors.is_empty()),
        Level::Node(level) => assert_eq!(ancestors.len(), level as usize + 1),
    }
    for ancestor in &ancestors {
        assert!(ancestor.is_ancestor_of(&label) && ancestor.subtree().contains(bytes));
        assert_eq!(label.ancestor_at(ancestor.level()).as_ref(), Some(ancestor));
    }
    let _ = (label.role(), label.owner(), label.to_string());
    Some(label)
}

fn pair(left: &Label, right: &Label) {
    let common = left.nearest_common_ancestor(right);
    assert_eq!(common, right.nearest_common_ancestor(left));
    assert_eq!(left.is_ancestor_of(right), common == *left && left != right);
    assert_eq!(left.subtree().contains(right.as_bytes()), common == *left);
    let Some(parent) = left.parent().filter(|parent| right.parent().as_ref() == Some(parent))
    else {
        return;
    };
    let list = parent.children(RULES);
    match list.between(left, right) {
        Ok(new) => {
            assert!(left < &new && &new < right);
            assert_eq!(new.parent(), Some(parent));
            assert!(label(new.as_bytes()).is_some());
            assert!(!left.is_ancestor_of(&new) && !right.is_ancestor_of(&new));
        }
        Err(LabelError::NotInOrder { .. }) => assert!(left >= right),
        // One of them is an attribute root or a namespace root, which is no place in a list.
        Err(LabelError::NotASibling { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
