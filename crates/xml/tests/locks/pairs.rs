//! Every pair of operations of two transactions on a small document, by every two protocols and
//! lock depths: conflicts wait, and what waits without need is counted.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_xml::label::Label;
use tidegate_xml::store::{InnerNodes, Place, XmlStore};

use super::footprint::Footprint;
use super::model::{DOCUMENT, Model};
use super::protocols::{Protocol, Setting};
use super::steps::{New, Seen, Step};
use super::{INDEXES, options, store_of};

/// Ten nodes on levels 0 to 4, with an empty element on level 1.
const TEXT: &str = "<site><open><a k=\"1\"><b1>x</b1><b2><m/></b2><cur>5</cur></a></open>\
    <closed/></site>";

/// An operation beside its name.
struct Case {
    name: String,
    step: Step,
    footprint: Footprint,
    /// What it returns in the document as it is.
    alone: Seen,
}

/// What became of the pairs of two settings.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pairs: usize,
    conflicts: usize,
    missed: usize,
    /// Pairs that wait and do not conflict.
    needless: usize,
    /// Those of them in which an element is renamed. A rename locks the subtree, because the
    /// records below hold the path class.
    needless_renames: usize,
}

impl Counts {
    fn per_10_000(&self, count: usize) -> usize {
        count * 10_000 / self.pairs
    }

    /// Checks that not more waits without need than what is known.
    fn assert_bounds(&self, pair: [Protocol; 2]) {
        use Protocol::{Mgl, Tadom};
        let (all, others) = match pair {
            [Mgl, Mgl] => (2_200, 1_500),
            [Mgl, Tadom] | [Tadom, Mgl] => (1_500, 900),
            [Tadom, Tadom] => (600, 40),
            _ => return,
        };
        let seen = self.per_10_000(self.needless);
        assert!(seen <= all, "{pair:?}: {seen} of 10,000 pairs wait without need");
        let seen = self.per_10_000(self.needless - self.needless_renames);
        assert!(seen <= others, "{pair:?}: {seen} of 10,000 pairs without renames");
    }
}

/// A document, and all operations on it.
struct Arena {
    store: XmlStore,
    cases: Vec<Case>,
}

/// Names the nodes of a document; a text is `element/text`.
pub(crate) fn named(model: &Model) -> BTreeMap<String, Label> {
    let nodes = model.below(DOCUMENT).into_iter().skip(1);
    let entry = |node| {
        let name = match model.name(node) {
            Some(name) => name.to_owned(),
            None => format!("{}/text", model.name(model.parent(node).unwrap()).unwrap()),
        };
        (name, model.label(node).clone())
    };
    nodes.map(entry).collect()
}

/// Returns the operations on a node.
fn steps_on(model: &Model, nodes: &BTreeMap<String, Label>, name: &str) -> Vec<Step> {
    let label = || nodes[name].clone();
    let node = model.find(&nodes[name]).unwrap();
    let mut steps = vec![Step::Node(label()), Step::Path(label()), Step::Subtree(label())];
    let is_element = model.name(node).is_some();
    if is_element {
        steps.extend([Step::First(label()), Step::Last(label()), Step::Children(label())]);
        steps.extend([Step::Attribute(label(), "k"), Step::Attributes(label())]);
        steps.push(Step::Rename(label(), "new"));
        steps.push(Step::SetAttribute(label(), "k", "2".to_owned()));
        steps.push(Step::Insert(Place::First(label()), New::Element("new")));
        steps.push(Step::Insert(Place::Last(label()), New::Element("new")));
    } else {
        steps.push(Step::SetText(label(), "set".to_owned()));
    }
    if name == "a" {
        steps.push(Step::RemoveAttribute(label(), "k"));
        steps.push(Step::RenameAttribute(label(), "k", "z"));
        steps.push(Step::SetAttribute(label(), "z", "2".to_owned()));
    }
    if model.parent(node) != Some(DOCUMENT) {
        steps.extend([Step::Parent(label()), Step::Next(label()), Step::Previous(label())]);
        steps.push(Step::Insert(Place::Before(label()), New::Element("new")));
        steps.push(Step::Insert(Place::After(label()), New::Element("new")));
        steps.push(Step::Delete(label()));
        let target = if name == "closed" { "open" } else { "closed" };
        steps.push(Step::Move(label(), Place::Last(nodes[target].clone())));
    }
    steps
}

/// Returns what is asked of indexes.
fn look_ups() -> Vec<Step> {
    let on_path = |names: &[&'static str]| Step::OnPath(names.to_vec());
    let mut steps: Vec<Step> =
        ["a", "b2", "m", "closed", "new"].into_iter().map(Step::Named).collect();
    steps.push(on_path(&["site", "open", "a", "b2"]));
    steps.push(on_path(&["site", "open", "a", "b2", "m"]));
    steps.push(on_path(&["site", "open", "new"]));
    steps.push(on_path(&["site", "closed", "b2", "m"]));
    steps.extend(["x", "5", "6"].map(|value| Step::WithText(value.to_owned())));
    steps.extend(["p1", "p2"].map(|value| Step::WithId(value.to_owned())));
    steps
}

impl Arena {
    fn new(inner_nodes: InnerNodes, is_indexed: bool) -> Arena {
        let indexes: &[(&str, &str)] = if is_indexed { &INDEXES } else { &[] };
        let (store, model) = store_of(TEXT, indexes, inner_nodes, &options(Some(Duration::ZERO)));
        let nodes = named(&model);
        assert_eq!(nodes.len(), 10);
        let mut steps = Vec::new();
        for (name, label) in &nodes {
            let on = steps_on(&model, &nodes, name);
            steps.extend(on.into_iter().map(|step| (format!("{} of {name}", kind(&step)), step)));
            if is_indexed && model.name(model.find(label).unwrap()).is_some() {
                let fragment = New::Fragment("b2", "p1".to_owned(), "6".to_owned());
                let insert = Step::Insert(Place::Last(label.clone()), fragment);
                steps.push((format!("Fragment into {name}"), insert));
                let set = Step::SetAttribute(label.clone(), "id", "p2".to_owned());
                steps.push((format!("set id of {name}"), set));
            }
        }
        if is_indexed {
            steps.extend(look_ups().into_iter().map(|step| (format!("{step:?}"), step)));
        }
        let case = |(name, step): (String, Step)| {
            let footprint = Footprint::of(&step, &model);
            let alone = alone(&store, &step);
            let expected = model.clone().apply(&step, &alone);
            assert_eq!(expected, Ok(alone.clone()), "{name}");
            Case { name, step, footprint, alone }
        };
        let cases = steps.into_iter().map(case).collect();
        Arena { store, cases }
    }

    /// Runs the first in a transaction that stays, and each second beside it. Returns those that
    /// did not wait although they conflict.
    fn check(
        &self,
        [first, second]: [Setting; 2],
        is_drawn: impl Fn(usize) -> bool,
    ) -> (Counts, Vec<String>) {
        let (mut counts, mut missed) = (Counts::default(), Vec::new());
        let shares = [first, second].iter().all(|setting| setting.protocol != Protocol::X);
        let drawn = self.cases.iter().enumerate().filter(|(number, _)| is_drawn(*number));
        for (_, one) in drawn {
            let holder = first.begin(&self.store);
            let document = holder.document("d").unwrap();
            let seen = one.step.run(&document).expect("no other transaction is under way");
            assert_eq!(seen, one.alone, "{}", one.name);
            for other in &self.cases {
                let seen = beside(&self.store, second, &other.step);
                let pair = format!("{first}: {}; {second}: {}", one.name, other.name);
                let is_conflict = one.footprint.conflicts(&other.footprint);
                counts.pairs += 1;
                counts.conflicts += usize::from(is_conflict);
                match (is_conflict, seen) {
                    (true, Some(_)) => missed.push(pair),
                    (true, None) => {}
                    (false, Some(seen)) => assert_eq!(seen, other.alone, "{pair}"),
                    (false, None) => {
                        let is_free = shares && one.step.reads() && other.step.reads();
                        assert!(!is_free, "{pair}: two readers wait for each other");
                        counts.needless += 1;
                        let renames =
                            [one, other].iter().any(|case| matches!(case.step, Step::Rename(..)));
                        counts.needless_renames += usize::from(renames);
                    }
                }
            }
        }
        counts.missed = missed.len();
        (counts, missed)
    }
}

/// Names an operation.
fn kind(step: &Step) -> String {
    let text = format!("{step:?}");
    let name = text.split('(').next().unwrap();
    match step {
        Step::Insert(place, _) | Step::Move(_, place) => {
            let place = format!("{place:?}");
            format!("{name} {}", place.split('(').next().unwrap())
        }
        Step::SetAttribute(_, attribute, _) => format!("{name} {attribute}"),
        _ => name.to_owned(),
    }
}

/// Runs a step without others beside it, and takes it back.
fn alone(store: &XmlStore, step: &Step) -> Seen {
    let transaction = Protocol::Document.unbounded().begin(store);
    let document = transaction.document_to_update("d").unwrap();
    step.run(&document).unwrap()
}

/// Runs a step in a transaction of its own and takes it back. Returns nothing if it had to wait.
fn beside(store: &XmlStore, setting: Setting, step: &Step) -> Option<Seen> {
    let transaction = setting.begin(store);
    let document = transaction.document("d").ok()?;
    step.run(&document).ok()
}

/// Checks pairs of settings and prints their counts.
fn check_all(arena: &Arena, pairs: &[[Setting; 2]], is_drawn: impl Fn(usize) -> bool) {
    let mut all = Vec::new();
    for &pair in pairs {
        let (counts, missed) = arena.check(pair, &is_drawn);
        let [first, second] = pair;
        println!("{first}; {second}: {counts:?}");
        all.extend(missed);
    }
    for missed in all.iter().take(100) {
        println!("missed: {missed}");
    }
    assert_eq!(all.len(), 0, "conflicts that did not wait");
}

fn two_of(settings: &[Setting]) -> Vec<[Setting; 2]> {
    let pairs = settings.iter().flat_map(|one| settings.iter().map(|other| [*one, *other]));
    pairs.collect()
}

fn unbounded() -> Vec<Setting> {
    Protocol::ALL.map(Protocol::unbounded).to_vec()
}

#[test]
fn conflicts_wait_unbounded() {
    let arena = Arena::new(InnerNodes::Stored, false);
    for pair in two_of(&unbounded()) {
        let (counts, missed) = arena.check(pair, |number| number % 7 == 0);
        assert!(missed.is_empty(), "{missed:#?}");
        counts.assert_bounds(pair.map(|setting| setting.protocol));
    }
}

#[test]
fn conflicts_wait_with_indexes() {
    let arena = Arena::new(InnerNodes::Stored, true);
    check_all(&arena, &two_of(&unbounded()), |number| number % 9 == 0);
}

/// Counts the conflicts that are missed by a protocol alone and beside `taDOM3+`.
fn missed(arena: &Arena, planted: Protocol) -> usize {
    let settings = [planted.unbounded(), Protocol::Tadom.unbounded()];
    let pairs = two_of(&settings).into_iter().filter(|pair| pair.contains(&settings[0]));
    pairs.map(|pair| arena.check(pair, |number| number % 7 == 0).0.missed).sum()
}

/// Protocols with a mistake in them: each is refused when it is read or not mixed with `taDOM3+`,
/// or the pairs find conflicts that do not wait.
#[test]
fn planted_mistakes_are_found() {
    let arenas = [false, true].map(|is_indexed| Arena::new(InnerNodes::Stored, is_indexed));
    let mistakes: [&[(&str, &str)]; 13] = [
        &[("read-node", "IR")],
        &[("read-children", "NR")],
        &[("read-children", "IR")],
        &[("read-subtree", "LR")],
        &[("write-node", "IX")],
        &[("write-node", "CX")],
        &[("write-subtree", "NX")],
        &[("read-edge", "IR")],
        &[("write-edge", "NR")],
        &[("write-edge", "IX")],
        &[("rely-on-classes", "IR")],
        &[("add-class", "IR")],
        // No mistake alone, but beside taDOM3+, whose writers IR does not meet.
        &[("read-edge", "IR"), ("write-edge", "SX")],
    ];
    for mistake in mistakes {
        let planted = Protocol::Planted(mistake);
        if planted.is_accepted() {
            let found = arenas.iter().map(|arena| missed(arena, planted)).sum::<usize>();
            println!("{mistake:?}: {found} conflicts missed");
            assert!(found > 0, "{mistake:?} is not found");
        } else {
            println!("{mistake:?}: refused");
        }
    }
    let right = Protocol::Planted(&[]);
    assert!(right.is_accepted());
    assert_eq!(missed(&arenas[0], right), 0, "without a mistake");
}

#[test]
#[ignore = "soak: minutes for all pairs of operations at each two of all protocols and depths"]
fn all_conflicts_wait() {
    let depths: Vec<Setting> = Protocol::ALL.into_iter().flat_map(Protocol::depths).collect();
    for inner_nodes in [InnerNodes::Stored, InnerNodes::Virtual] {
        for is_indexed in [false, true] {
            println!("{inner_nodes:?} inner nodes, indexes: {is_indexed}");
            check_all(&Arena::new(inner_nodes, is_indexed), &two_of(&depths), |_| true);
        }
    }
}

/// Prints the tables of `docs/results/xml-locks.md` that count pairs.
#[test]
#[ignore = "soak: minutes, and prints tables for a document"]
fn print_counts() {
    let of_study = |pair: [Protocol; 2]| match pair {
        [Protocol::X, Protocol::X] => "8,959",
        [Protocol::Mgl, Protocol::Mgl] => "1,678",
        [Protocol::Mgl, Protocol::Tadom] | [Protocol::Tadom, Protocol::Mgl] => "853",
        [Protocol::Tadom, Protocol::Tadom] => "28",
        _ => "",
    };
    for (is_indexed, what) in [(false, "labels"), (true, "labels and indexes")] {
        let arena = Arena::new(InnerNodes::Stored, is_indexed);
        println!("\n{} operations by {what}:\n", arena.cases.len());
        println!(
            "| first; second | pairs | conflicts | missed | without need | of 10,000 \
             | without renames, of 10,000 | in the reference |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        for pair in two_of(&unbounded()) {
            let (counts, _) = arena.check(pair, |_| true);
            let pair = pair.map(|setting| setting.protocol);
            let Counts { pairs, conflicts, missed, needless, needless_renames } = counts;
            let share = counts.per_10_000(needless);
            let others = counts.per_10_000(needless - needless_renames);
            let reference = if is_indexed { "" } else { of_study(pair) };
            println!(
                "| {:?}; {:?} | {pairs} | {conflicts} | {missed} | {needless} | {share} \
                 | {others} | {reference} |",
                pair[0], pair[1]
            );
        }
    }
}
