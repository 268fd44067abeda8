//! Prints the tables of `docs/results/xml-labels.md`: how long labels get, by the places at which
//! nodes are inserted.
//!
//! `cargo run --release -p tidegate-xml --example label_lengths [insertions]`
//!
//! Lengths are those of the last division, that is, of a label without its parent's.

#![expect(clippy::print_stdout, reason = "printing tables is what this program is for")]

use std::collections::BTreeSet;
use std::error::Error;
use std::num::NonZeroU16;
use std::ops::Bound;

use tidegate_random::SplitMix64;
use tidegate_xml::label::{Label, LabelError, LabelRules, Siblings};

/// A key of the engine has at most 1,024 bytes with pages of 8 KiB; some are left for the document.
/// The distance is that which leaves no free positions.
const RULES: LabelRules = LabelRules::new(1_000).with_distance(NonZeroU16::MIN);
const SEED: u64 = 1;

type Neighbours = (Option<Label>, Option<Label>);

fn main() -> Result<(), Box<dyn Error>> {
    let insertions = std::env::args().nth(1).map_or(Ok(1_000_000), |number| number.parse())?;
    println!("A label takes {} bytes in memory, seed {SEED}\n", size_of::<Label>());
    println!("| place of each insertion | longest after 1,000 | mean, {insertions} | longest |");
    println!("| --- | ---: | ---: | ---: |");
    for (name, place) in PATTERNS {
        let (_, longest_early) = insert(place, 1_000)?;
        let (mean, longest) = insert(place, insertions)?;
        println!("| {name} | {longest_early} | {mean:.1} | {longest} |");
    }
    println!("\n| place | insertions up to 64 bytes | up to 1,000 | relabelled, {insertions} |");
    println!("| --- | ---: | ---: | ---: |");
    for (name, run) in [
        ("in front of and behind the last one in turn, which is the list's middle", 1),
        ("the same, two in front, two behind", 2),
        ("the same, ten in front, ten behind", 10),
    ] {
        let [short, long] = [64, 1_000].map(|limit| zigzag_until(limit, run));
        println!("| {name} | {} | {} | {} |", short?, long?, zigzag(insertions, run)?);
    }
    println!(
        "\n| distance | 30 loaded | 300 | 100,000 | 100,000 more at random | 30 at one place |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    for distance in [1, 2, 4, 8, 16, 64] {
        let rules = RULES.with_distance(NonZeroU16::new(distance).unwrap_or(NonZeroU16::MIN));
        let list = Label::root().children(rules);
        let loaded = |count| list.evenly(count).map(mean);
        let (few, some, many) = (loaded(30)?, loaded(300)?, loaded(100_000)?);
        let (random, place) = (inserted_at_random(&list)?, inserted_at_one_place(&list)?);
        println!("| {distance} | {few:.2} | {some:.2} | {many:.2} | {random:.2} | {place:.2} |");
    }
    Ok(())
}

/// Labels of a list below the root element.
struct List {
    ordered: BTreeSet<Label>,
    /// In the order of insertion.
    all: Vec<Label>,
    /// The one inserted last, at first that in the middle.
    newest: Label,
    /// A loaded node in the middle.
    fixed: Label,
    random: SplitMix64,
}

impl List {
    fn before(&self, node: &Label) -> Neighbours {
        (self.ordered.range::<Label, _>(..node).next_back().cloned(), Some(node.clone()))
    }

    fn behind(&self, node: &Label) -> Neighbours {
        let following = (Bound::Excluded(node), Bound::Unbounded);
        (Some(node.clone()), self.ordered.range::<Label, _>(following).next().cloned())
    }

    fn behind_any(&mut self) -> Neighbours {
        let count = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let any = self.random.next_below(count) as usize;
        self.behind(&self.all[any])
    }
}

type Pattern = fn(&mut List) -> Neighbours;

const PATTERNS: [(&str, Pattern); 10] = [
    ("at the end", |list| (list.ordered.last().cloned(), None)),
    ("in front", |list| (None, list.ordered.first().cloned())),
    ("in front and at the end in turn", |list| match list.all.len() % 2 {
        0 => (None, list.ordered.first().cloned()),
        _ => (list.ordered.last().cloned(), None),
    }),
    ("always in front of the same node", |list| list.before(&list.fixed)),
    ("always behind the same node", |list| list.behind(&list.fixed)),
    ("in front of and behind the same node in turn", |list| match list.all.len() % 2 {
        0 => list.before(&list.fixed),
        _ => list.behind(&list.fixed),
    }),
    ("in front of the last one", |list| list.before(&list.newest)),
    ("behind the last one", |list| list.behind(&list.newest)),
    ("behind a node drawn at random", List::behind_any),
    ("100 behind one another, then behind one drawn at random", |list| {
        match list.all.len() % 100 {
            0 => list.behind_any(),
            _ => list.behind(&list.newest),
        }
    }),
];

/// Inserts nodes between three loaded ones and returns their mean and greatest length.
fn insert(place: Pattern, insertions: usize) -> Result<(f64, usize), LabelError> {
    let siblings = Label::root().children(RULES);
    let loaded: Vec<_> = siblings.evenly(3)?.collect();
    let fixed = loaded[1].clone();
    let random = SplitMix64::new(SEED);
    let (ordered, newest) = (loaded.iter().cloned().collect(), fixed.clone());
    let mut list = List { ordered, all: loaded, newest, fixed, random };
    for _ in 0..insertions {
        let (left, right) = place(&mut list);
        let label = siblings.at(left.as_ref(), right.as_ref())?;
        assert!(list.ordered.insert(label.clone()), "{label} was given twice");
        list.all.push(label.clone());
        list.newest = label;
    }
    let longest = list.all.iter().map(division_length).max().unwrap_or(0);
    Ok((mean(list.all.into_iter()), longest))
}

/// A list with a gap at which nodes are inserted, `run` at a time on the same side of it.
struct Zigzag {
    /// In order, up to the gap.
    left: Vec<Label>,
    /// In descending order, from the end to the gap.
    right: Vec<Label>,
    run: usize,
    inserted: usize,
}

impl Zigzag {
    fn new(siblings: &Siblings, run: usize) -> Result<Zigzag, LabelError> {
        let mut loaded = siblings.evenly(2)?;
        let (left, right) = (loaded.next(), loaded.next());
        let (left, right) = (left.into_iter().collect(), right.into_iter().collect());
        Ok(Zigzag { left, right, run, inserted: 0 })
    }

    fn insert(&mut self, siblings: &Siblings) -> Result<(), LabelError> {
        let label = siblings.at(self.left.last(), self.right.last())?;
        let is_right = (self.inserted / self.run).is_multiple_of(2);
        if is_right {
            self.right.push(label);
        } else {
            self.left.push(label);
        }
        self.inserted += 1;
        Ok(())
    }

    fn relabel(&mut self, siblings: &Siblings) -> Result<(), LabelError> {
        let count = u32::try_from(self.left.len() + self.right.len()).unwrap_or(u32::MAX);
        let mut labels = siblings.evenly(count)?;
        self.left.iter_mut().zip(&mut labels).for_each(|(old, new)| *old = new);
        self.right.iter_mut().zip(labels.rev()).for_each(|(old, new)| *old = new);
        Ok(())
    }
}

/// Returns how many insertions succeed before a label would be longer than `limit`.
fn zigzag_until(limit: usize, run: usize) -> Result<usize, LabelError> {
    let siblings = Label::root().children(LabelRules { max_bytes: limit, ..RULES });
    let mut list = Zigzag::new(&siblings, run)?;
    while list.insert(&siblings).is_ok() {}
    Ok(list.inserted)
}

/// Inserts nodes, relabels the list where that is necessary, and returns how often it was.
fn zigzag(insertions: usize, run: usize) -> Result<usize, LabelError> {
    let siblings = Label::root().children(RULES);
    let mut list = Zigzag::new(&siblings, run)?;
    let mut relabelled = 0;
    while list.inserted < insertions {
        if let Err(LabelError::TooLong { .. }) = list.insert(&siblings) {
            list.relabel(&siblings)?;
            relabelled += 1;
        }
    }
    assert!(list.left.is_sorted() && list.right.iter().rev().is_sorted());
    Ok(relabelled)
}

/// Returns the mean length of 100,000 nodes inserted at random between 100,000 loaded ones.
fn inserted_at_random(siblings: &Siblings) -> Result<f64, LabelError> {
    let all: Vec<_> = siblings.evenly(100_000)?.collect();
    let (fixed, newest) = (all[0].clone(), all[0].clone());
    let ordered = all.iter().cloned().collect();
    let mut list = List { ordered, all, newest, fixed, random: SplitMix64::new(SEED) };
    for _ in 0..100_000 {
        let (left, right) = list.behind_any();
        let label = siblings.at(left.as_ref(), right.as_ref())?;
        list.ordered.insert(label.clone());
        list.all.push(label);
    }
    Ok(mean(list.all.drain(100_000..)))
}

/// Returns the mean length of 30 nodes inserted in front of the second of two loaded ones.
fn inserted_at_one_place(siblings: &Siblings) -> Result<f64, LabelError> {
    let loaded: Vec<_> = siblings.evenly(2)?.collect();
    let mut inserted = Vec::new();
    for _ in 0..30 {
        let left = inserted.last().or(loaded.first());
        inserted.push(siblings.at(left, loaded.last())?);
    }
    Ok(mean(inserted.into_iter()))
}

fn division_length(label: &Label) -> usize {
    label.as_bytes().len() - Label::root().as_bytes().len()
}

fn mean(labels: impl ExactSizeIterator<Item = Label>) -> f64 {
    let count = labels.len() as f64;
    labels.map(|label| division_length(&label)).sum::<usize>() as f64 / count
}
