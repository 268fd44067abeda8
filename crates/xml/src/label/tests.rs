//! Labels by example, over all small cases, and by pattern of insertion. `model` compares them with
//! a plain tree.

mod model;

use std::collections::BTreeSet;
use std::num::NonZeroU16;

use proptest::prelude::*;
use tidegate_random::SplitMix64;

use super::division::{self, Division, Head, POSITION_MAX, POSITION_MIN, Place};
use super::fraction::Fraction;
use super::*;

/// No free positions, and no label of these tests is longer.
const RULES: LabelRules = LabelRules::new(1_000).with_distance(NonZeroU16::MIN);

fn distance(positions: u16) -> LabelRules {
    RULES.with_distance(NonZeroU16::new(positions).unwrap())
}

/// Reads a label division by division and writes it again.
fn rewritten(label: &Label) -> Vec<u8> {
    let (bytes, mut again, mut offset) = (label.as_bytes(), Vec::new(), 0);
    while offset < bytes.len() {
        let (division, end) = division::parse(bytes, offset).unwrap();
        match division {
            Division::Marker(marker) => again.push(marker.byte()),
            Division::Place(Place { position, fraction }) => {
                let head = Head::new(position, !fraction.is_zero());
                again.extend_from_slice(head.as_slice());
                again.extend_from_slice(&bytes[offset + head.as_slice().len()..end]);
            }
        }
        offset = end;
    }
    again
}

/// A position in bytes, without a fraction.
fn whole(position: i64) -> Vec<u8> {
    Head::new(position, false).as_slice().to_vec()
}

#[test]
fn positions_have_the_documented_bytes_and_order() {
    let borders = [
        (POSITION_MIN + 1, 9),
        (-16_942_601, 5),
        (-16_942_600, 4),
        (-165_385, 4),
        (-165_384, 3),
        (-1_545, 3),
        (-1_544, 2),
        (-9, 2),
        (-8, 1),
        (-1, 1),
        (0, 1),
        (1, 1),
        (63, 1),
        (64, 2),
        (5_183, 2),
        (5_184, 3),
        (922_687, 3),
        (922_688, 4),
        (51_254_335, 4),
        (51_254_336, 5),
        (1 << 55, 8),
        (POSITION_MAX, 9),
    ];
    for (position, length) in borders {
        assert_eq!(whole(position).len(), length, "{position}");
        for next in [position.saturating_sub(1), position, position + 1] {
            if next <= POSITION_MIN || next > POSITION_MAX {
                continue;
            }
            let bytes = whole(next);
            let place = Place { position: next, fraction: Fraction::ZERO };
            assert_eq!(division::parse(&bytes, 0), Ok((Division::Place(place), bytes.len())));
        }
    }
    let order: Vec<_> = borders.iter().map(|&(position, _)| whole(position)).collect();
    assert!(order.is_sorted_by(|a, b| a < b));
    assert_eq!(whole(0), [0x30]);
    assert_eq!(whole(-1), [0x2E]);
    assert_eq!(whole(64), [0xB0, 0x00]);
    assert_eq!(whole(5_184), [0xD8, 0x00, 0x00]);
}

#[test]
fn labels_print_as_deweyids() {
    let list = Label::root().children(RULES);
    let first = list.first().unwrap();
    let front = list.before_first(&list.before_first(&first).unwrap()).unwrap();
    let second = list.after_last(&first).unwrap();
    let between = list.between(&first, &second).unwrap();
    let nearer = list.between(&first, &between).unwrap();
    let attribute = between.attributes(RULES).first().unwrap();
    let namespace = between.namespaces(RULES).first().unwrap();
    let shown = |label: &Label| label.to_string();
    assert_eq!(shown(&Label::document()), "document");
    assert_eq!(shown(&first), "1.3");
    assert_eq!(shown(&front), "1.-1");
    assert_eq!(shown(&second), "1.5");
    assert_eq!(shown(&between), "1.4:1");
    assert_eq!(shown(&nearer), "1.4:01");
    assert_eq!(shown(&attribute), "1.4:1.@.3");
    assert_eq!(shown(&namespace), "1.4:1.#.3");
    assert_eq!(format!("{second:?}"), "Label(1.5)");
    assert_eq!(between.as_bytes(), [0x30, 0x33, 0x80]);
}

#[test]
fn a_label_says_what_it_is_of() {
    let element = Label::root().children(RULES).first().unwrap();
    let attribute = element.attributes(RULES).first().unwrap();
    let part = attribute.children(RULES).first().unwrap();
    let namespace = element.namespaces(RULES).first().unwrap();
    let child = element.children(RULES).first().unwrap();
    let roles = [
        (Label::document(), LabelRole::Document, None, Level::Document),
        (Label::root(), LabelRole::Child, None, Level::Node(0)),
        (element.clone(), LabelRole::Child, None, Level::Node(1)),
        (element.namespace_root(), LabelRole::NamespaceRoot, Some(&element), Level::Node(2)),
        (namespace, LabelRole::Namespace, Some(&element), Level::Node(3)),
        (element.attribute_root(), LabelRole::AttributeRoot, Some(&element), Level::Node(2)),
        (attribute, LabelRole::Attribute, Some(&element), Level::Node(3)),
        (part, LabelRole::Child, Some(&element), Level::Node(4)),
        (child, LabelRole::Child, None, Level::Node(2)),
    ];
    assert!(roles.is_sorted_by(|left, right| left.0 < right.0));
    for (label, role, owner, level) in roles {
        assert_eq!((label.role(), label.level()), (role, level), "{label}");
        assert_eq!(label.owner().as_ref(), owner, "{label}");
    }
    assert!(Level::Document < Level::Node(0));
}

#[test]
fn ancestors_are_found_from_both_ends() {
    let mut label = Label::document();
    let mut path = Vec::new();
    for at in 0..40 {
        path.push(label.clone());
        let list = label.children(RULES);
        let first = list.first().unwrap();
        label = if at % 3 == 0 {
            list.between(&first, &list.after_last(&first).unwrap()).unwrap()
        } else {
            first
        };
    }
    let up: Vec<_> = label.ancestors().collect();
    let mut down: Vec<_> = label.ancestors().rev().collect();
    assert_eq!(down, path);
    down.reverse();
    assert_eq!(up, down);
    let mut both = label.ancestors();
    for _ in 0..20 {
        assert_ne!(both.next(), both.next_back());
    }
    assert_eq!((both.next(), both.next_back()), (None, None));
    assert_eq!(Label::document().ancestors().next(), None);
    assert_eq!(label.ancestor_at(Level::Node(39)), Some(label.clone()));
    assert_eq!(label.ancestor_at(Level::Node(40)), None);
    assert_eq!(label.ancestor_at(Level::Node(3)), Some(path[4].clone()));
    assert_eq!(label.ancestor_at(Level::Document), Some(Label::document()));
}

/// Inserts nodes one at a time, for each sequence of places of a length: `inserted` siblings have
/// `inserted + 1` gaps, so seven insertions have 7! sequences.
fn insert_everywhere(list: &Siblings, nodes: &mut Vec<Label>, left: usize) {
    assert!(nodes.is_sorted_by(|left, right| left < right), "{nodes:?}");
    if left == 0 {
        return;
    }
    for gap in 0..=nodes.len() {
        let left_node = gap.checked_sub(1).map(|index| &nodes[index]);
        let label = list.at(left_node, nodes.get(gap)).unwrap();
        assert_eq!(Label::from_bytes(label.as_bytes()).as_ref(), Ok(&label));
        assert_eq!(rewritten(&label), label.as_bytes());
        nodes.insert(gap, label);
        insert_everywhere(list, nodes, left - 1);
        nodes.remove(gap);
    }
}

#[test]
fn all_short_sequences_of_insertions_keep_the_order() {
    for rules in [distance(1), distance(3), distance(u16::MAX)] {
        insert_everywhere(&Label::root().children(rules), &mut Vec::new(), 7);
    }
}

#[test]
fn at_the_lowest_and_highest_position_there_are_places_left() {
    let of = |position| {
        let mut bytes = Label::root().as_bytes().to_vec();
        bytes.extend(whole(position));
        Label::from_bytes(&bytes).unwrap()
    };
    for list in [Label::root().children(distance(1)), Label::root().children(distance(u16::MAX))] {
        let (mut low, mut high) = (of(POSITION_MIN + 2), of(POSITION_MAX - 2));
        for _ in 0..1_000 {
            let (lower, higher) =
                (list.before_first(&low).unwrap(), list.after_last(&high).unwrap());
            assert!(lower < low && high < higher);
            (low, high) = (lower, higher);
        }
        assert!(low.as_bytes().len() < 16 && high.as_bytes().len() < 16);
    }
}

/// Where the next node goes, by the labels there are and the one given last.
type Gap = fn(&BTreeSet<Label>, &Label, &Label, u32) -> (Option<Label>, Option<Label>);

fn before(all: &BTreeSet<Label>, node: &Label) -> (Option<Label>, Option<Label>) {
    (all.range::<Label, _>(..node).next_back().cloned(), Some(node.clone()))
}

fn after(all: &BTreeSet<Label>, node: &Label) -> (Option<Label>, Option<Label>) {
    let range = (Bound::Excluded(node), Bound::Unbounded);
    (Some(node.clone()), all.range::<Label, _>(range).next().cloned())
}

/// Patterns in which a label has to stay short: from all labels, the one given last, a fixed one
/// and the number of insertions before.
const ONE_SIDED: [(&str, Gap); 8] = [
    ("at the end", |all, _, _, _| (all.last().cloned(), None)),
    ("in front", |all, _, _, _| (None, all.first().cloned())),
    ("in front and at the end in turn", |all, _, _, index| match index % 2 {
        0 => (None, all.first().cloned()),
        _ => (all.last().cloned(), None),
    }),
    ("always in front of the same node", |all, _, fixed, _| before(all, fixed)),
    ("always behind the same node", |all, _, fixed, _| after(all, fixed)),
    ("in front of and behind the same node in turn", |all, _, fixed, index| match index % 2 {
        0 => before(all, fixed),
        _ => after(all, fixed),
    }),
    ("in front of the last one", |all, last, _, _| before(all, last)),
    ("behind the last one", |all, last, _, _| after(all, last)),
];

/// Inserts `insertions` nodes between two loaded ones and returns the longest label of the list,
/// without the parent's bytes.
fn longest(gap: Gap, insertions: u32) -> usize {
    let siblings = Label::root().children(RULES);
    let mut all: BTreeSet<_> = siblings.evenly(3).unwrap().collect();
    let fixed = all.iter().nth(1).unwrap().clone();
    let mut last = fixed.clone();
    for index in 0..insertions {
        let (left, right) = gap(&all, &last, &fixed, index);
        last = siblings.at(left.as_ref(), right.as_ref()).unwrap();
        assert!(all.insert(last.clone()), "{last} was given twice");
    }
    all.iter().map(|label| label.as_bytes().len() - 1).max().unwrap()
}

/// Bytes for n insertions at one place: an odd position's and 2·⌊log₂ n⌋ + 1 digits, with two more
/// for where the place is.
fn one_sided_bound(insertions: u32) -> usize {
    1 + (2 * insertions.ilog2() as usize + 3).div_ceil(7)
}

#[test]
fn one_sided_insertions_stay_short() {
    for (name, gap) in ONE_SIDED {
        for insertions in [100, 1_000, 100_000] {
            let longest = longest(gap, insertions);
            assert!(longest <= one_sided_bound(insertions), "{name}: {longest} bytes");
        }
    }
}

#[test]
#[ignore = "soak: a million insertions in each pattern"]
fn a_million_one_sided_insertions_stay_short() {
    for (name, gap) in ONE_SIDED {
        let longest = longest(gap, 1_000_000);
        println!("{name}: {longest} bytes");
        assert!(longest <= one_sided_bound(1_000_000), "{name}: {longest} bytes");
    }
}

#[test]
fn alternating_sides_take_a_bit_until_the_limit_and_relabelling_makes_room() {
    let list = Label::root().children(LabelRules { max_bytes: 64, ..RULES });
    let mut nodes: Vec<_> = list.evenly(2).unwrap().collect();
    let mut gap = 1;
    let error = loop {
        match list.between(&nodes[gap - 1], &nodes[gap]) {
            Ok(label) => nodes.insert(gap, label),
            Err(error) => break error,
        }
        gap += (nodes.len() + 1) % 2;
    };
    // 62 bytes of seven digits beside the root's byte and the position's.
    assert_eq!(nodes.len(), 2 + 62 * 7);
    assert_eq!(error, LabelError::TooLong { length: 65, limit: 64, parent_length: 1 });

    let below = nodes[gap].children(LabelRules::new(1_000)).first().unwrap();
    let again: Vec<_> = list.evenly(nodes.len().try_into().unwrap()).unwrap().collect();
    assert_eq!(again.len(), nodes.len());
    assert!(again.is_sorted_by(|left, right| left < right));
    assert!(again.iter().all(|label| label.as_bytes().len() <= 3));
    assert!(list.between(&again[gap - 1], &again[gap]).is_ok());
    let moved = below.moved(&nodes[gap], &again[gap], RULES).unwrap();
    assert_eq!(moved.parent().as_ref(), Some(&again[gap]));
}

#[test]
fn labels_of_loaded_lists_are_the_same_singly_and_together() {
    for rules in [distance(1), distance(16)] {
        let list = Label::root().attributes(rules);
        let together: Vec<_> = list.evenly(10_000).unwrap().collect();
        let mut single = list.first().unwrap();
        for label in &together {
            assert_eq!(&single, label);
            single = list.after_last(label).unwrap();
        }
        let reversed: Vec<_> = list.evenly(10_000).unwrap().rev().collect();
        assert!(reversed.iter().rev().eq(&together));
    }
    let length = |count| {
        let list = Label::document().children(RULES);
        list.evenly(count).unwrap().next_back().unwrap().as_bytes().len()
    };
    assert_eq!([63, 5_183, 922_687, 10_000_000].map(length), [1, 2, 3, 4]);
    assert_eq!(length(u32::MAX), 6);
    assert_eq!(
        Label::root().children(distance(u16::MAX)).evenly(u32::MAX).unwrap().len(),
        u32::MAX as usize
    );
    assert_eq!(Label::root().children(RULES).evenly(0).unwrap().next(), None);
}

#[test]
fn after_a_deletion_the_gap_is_used_again() {
    let list = Label::root().children(RULES);
    let mut nodes: Vec<_> = list.evenly(1_000).unwrap().collect();
    let deleted: Vec<_> = nodes.drain(10..900).collect();
    let label = list.between(&nodes[9], &nodes[10]).unwrap();
    assert!(deleted.contains(&label));
    // One byte for the parent, one for the position: the shortest labels go first.
    assert_eq!(label.as_bytes().len(), 2);
}

#[test]
fn wrong_neighbours_are_refused() {
    let list = Label::root().children(RULES);
    let [first, second] = [0, 1].map(|index| list.evenly(2).unwrap().nth(index).unwrap());
    assert_eq!(
        list.between(&second, &first),
        Err(LabelError::NotInOrder { left: second.clone(), right: first.clone() })
    );
    assert!(matches!(list.between(&first, &first), Err(LabelError::NotInOrder { .. })));
    let grandchild = first.children(RULES).first().unwrap();
    for stranger in [Label::document(), Label::root(), grandchild, Label::root().attribute_root()] {
        let error = LabelError::NotASibling { label: stranger.clone(), parent: Label::root() };
        assert_eq!(list.after_last(&stranger), Err(error));
    }
    let error = LabelError::NotInSubtree { label: second.clone(), root: first.clone() };
    assert_eq!(second.moved(&first, &Label::root(), RULES), Err(error));
    let error = LabelError::TooLong { length: 2, limit: 1, parent_length: 1 };
    assert_eq!(Label::root().children(LabelRules::new(1)).first(), Err(error));
}

#[test]
fn malformed_bytes_are_refused() {
    use MalformedLabel::{OutOfRange, TrailingZero, Truncated, UnknownByte};
    for byte in (0..=u8::MAX).filter(|byte| !(8..=0xFE).contains(byte) && ![2, 4].contains(byte)) {
        assert_eq!(Label::from_bytes(&[byte]), Err(UnknownByte { offset: 0, byte }));
    }
    for (bytes, error) in [
        (&[0x30, 0x00][..], UnknownByte { offset: 1, byte: 0 }),
        (&[0x30, 0xB0], Truncated { length: 2 }),
        (&[0x31], Truncated { length: 1 }),
        (&[0x31, 0x81], Truncated { length: 2 }),
        (&[0x31, 0x00], TrailingZero { offset: 1 }),
        (&[0x31, 0x81, 0x00], TrailingZero { offset: 2 }),
        (&[0x30, 0x08, 0, 0, 0, 0, 0, 0, 0, 0], OutOfRange { offset: 1 }),
        (&[0xFE, 0xFF, 0, 0, 0, 0, 0, 0, 0], OutOfRange { offset: 0 }),
    ] {
        assert_eq!(Label::from_bytes(bytes), Err(error), "{bytes:?}");
        assert!(!error.to_string().is_empty());
    }
    // The lowest position has a place above it.
    assert!(Label::from_bytes(&[0x08, 0, 0, 0, 0, 0, 0, 0, 1, 0x80]).is_ok());
}

/// The numbers that a label's bytes stand for.
fn divisions(label: &Label) -> Vec<Division<'_>> {
    let (mut divisions, mut offset) = (Vec::new(), 0);
    while let Ok((division, end)) = division::parse(label.as_bytes(), offset) {
        divisions.push(division);
        offset = end;
    }
    divisions
}

/// Checks all that there is to check for two sequences of bytes, labels or not.
fn check_bytes(left: &[u8], right: &[u8]) {
    let Ok(left_label) = Label::from_bytes(left) else { return };
    assert_eq!((left_label.as_bytes(), &rewritten(&left_label)[..]), (left, left));
    assert_eq!(left_label.ancestors().count(), divisions(&left_label).len());
    let Ok(right_label) = Label::from_bytes(right) else { return };
    let (lefts, rights) = (divisions(&left_label), divisions(&right_label));
    assert_eq!(left.cmp(right), lefts.cmp(&rights), "{left_label} {right_label}");
    let is_prefix = lefts.len() < rights.len() && rights.starts_with(&lefts);
    assert_eq!(left_label.is_ancestor_of(&right_label), is_prefix);
    let in_subtree = is_prefix || left == right;
    assert_eq!(left_label.subtree().contains(right), in_subtree);
    let shared = lefts.iter().zip(&rights).take_while(|(left, right)| left == right).count();
    assert_eq!(divisions(&left_label.nearest_common_ancestor(&right_label)), lefts[..shared]);
    if let (Some(parent), Some(other)) = (left_label.parent(), right_label.parent())
        && parent == other
        && left < right
        && let Ok(label) = parent.children(RULES).between(&left_label, &right_label)
    {
        assert!(left_label < label && label < right_label);
        assert!(!left_label.is_ancestor_of(&label) && !right_label.is_ancestor_of(&label));
        assert_eq!(rewritten(&Label::from_bytes(label.as_bytes()).unwrap()), label.as_bytes());
    }
}

#[test]
fn all_sequences_of_two_bytes_are_labels_or_refused() {
    let all = (0..=u16::MAX).map(u16::to_be_bytes);
    let labels: Vec<_> = all.filter(|bytes| Label::from_bytes(bytes).is_ok()).collect();
    for pair in labels.windows(2) {
        check_bytes(&pair[0], &pair[1]);
        check_bytes(&pair[0][1..], &pair[1]);
    }
}

#[test]
#[ignore = "soak: all sequences of three bytes"]
fn all_sequences_of_three_bytes_are_labels_or_refused() {
    let mut last = [0; 3];
    for number in 0..1_u32 << 24 {
        let [_, bytes @ ..] = number.to_be_bytes();
        if Label::from_bytes(&bytes).is_ok() {
            check_bytes(&last, &bytes);
            check_bytes(&bytes[1..], &bytes);
            last = bytes;
        }
    }
}

/// Bytes that are often labels: few values, around the borders of the code.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        4 => prop::sample::select(vec![0x2E_u8, 0x2F, 0x30, 0x31, 0x32, 0x33, 0x80, 0x81, 0x01]),
        1 => prop::sample::select(vec![0x02_u8, 0x04, 0x08, 0x1F, 0xAF, 0xB0, 0xF9, 0xFE]),
        1 => any::<u8>(),
    ];
    prop::collection::vec(byte, 0..12)
}

proptest! {
    #[test]
    fn random_bytes_are_labels_or_refused(
        prefix in likely_bytes(),
        left in likely_bytes(),
        right in likely_bytes(),
    ) {
        let (left, right) = ([&prefix[..], &left].concat(), [&prefix[..], &right].concat());
        check_bytes(&left, &right);
        check_bytes(&right, &left);
    }

    #[test]
    fn a_changed_label_is_another_one_or_refused(seed: u64, at: prop::sample::Index, to: u8) {
        let mut random = SplitMix64::new(seed);
        let mut label = Label::root();
        for _ in 0..random.next_below(6) {
            let list = label.children(distance(7));
            let (mut low, mut high) = (list.first().unwrap(), None);
            for _ in 0..random.next_below(30) {
                let new = list.at(Some(&low), high.as_ref()).unwrap();
                if random.next_chance(0.5) { low = new } else { high = Some(new) }
            }
            label = low;
        }
        let mut bytes = label.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = to;
        check_bytes(label.as_bytes(), label.as_bytes());
        check_bytes(label.as_bytes(), &bytes);
        check_bytes(&bytes[..at], label.as_bytes());
        if let Ok(other) = Label::from_bytes(&bytes) {
            prop_assert_eq!(other == label, bytes == label.as_bytes());
        }
    }
}
