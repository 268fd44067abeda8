//! Prints the tables of `docs/results/xml-virtual.md`: the size of a document with and without
//! records of inner nodes, and how long the same work takes on both.
//!
//! `cargo run --release -p tidegate-xml --example inner_nodes [factor] [rounds]`
//!
//! The document is of `XMark`. Each round does each work on both documents, which of them first
//! alternates, and compares the times. So other work on the machine disturbs both alike. Times are
//! those of the processor: all pages are in memory, and waiting for other work is not counted.

#![expect(clippy::print_stdout, reason = "printing tables is what this program is for")]

use std::error::Error;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use tidegate_random::SplitMix64;
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::serialize::XmlWriter;
use tidegate_xml::store::{
    Document, DocumentOptions, InnerNodes, NewNode, Place, XmlStore, XmlStoreError,
};
use tidegate_xml::tree::{Kind, Tree};
use tidegate_xml::xmark::{PersonCount, XmarkGenerator, XmarkOptions};
use tidegate_xml::xpath::{Environment, Prefixes, Query};

const SEED: u64 = 1;
/// Nodes that single steps are done from.
const SAMPLE: usize = 20_000;
/// Insertions and deletions of a round.
const UPDATES: usize = 2_000;

/// Nodes of the document, which have the same labels in both stores.
struct Sample {
    inner: Vec<Label>,
    leaves: Vec<Label>,
}

/// How many of something there are.
type Counted = Result<usize, Box<dyn Error>>;

/// What is done to a document.
type Work = (&'static str, fn(&Document<'_>, &Sample) -> Counted);

const WORK: [Work; 11] = [
    ("go to each node from parent to child and sibling", walk),
    ("the same, and ask for each name", walk_with_names),
    ("scan all nodes in document order", |document, _| {
        document
            .descendants(&Label::document())?
            .try_fold(0, |count, node| Ok(node.map(|_| count + 1)?))
    }),
    ("write the document as text", |document, _| {
        document.write(XmlWriter::new(io::sink()))?;
        Ok(1)
    }),
    ("string value of the document", |document, _| {
        Ok(document.string_value(&Label::document())?.len())
    }),
    ("`//keyword` without an index", |document, _| query(document, "//keyword")),
    ("name of an inner node", |document, sample| {
        each(&sample.inner, |node| Ok(document.name(node)?.map_or(0, |name| name.local.len())))
    }),
    ("content of a leaf", |document, sample| {
        each(&sample.leaves, |node| Ok(document.content(node)?.len()))
    }),
    ("parent of a leaf and its name", |document, sample| {
        each(&sample.leaves, |node| {
            let parent = document.parent(node)?.unwrap_or(Label::document());
            Ok(document.name(&parent)?.map_or(0, |name| name.local.len()))
        })
    }),
    ("all children of an inner node", |document, sample| {
        each(&sample.inner, |node| Ok(document.children(node)?.count()))
    }),
    ("insert an element as a last child, and delete it", update),
];

struct Subject {
    store: XmlStore,
    inner_nodes: InnerNodes,
}

impl Subject {
    fn new(parent: &Path, inner_nodes: InnerNodes) -> Result<Subject, XmlStoreError> {
        let store = XmlStore::open_or_create(parent.join(format!("{inner_nodes:?}")))?;
        Ok(Subject { store, inner_nodes })
    }

    fn load(&self, name: &str, fill_percent: u8, text: &[u8]) -> Result<(), XmlStoreError> {
        let inner_nodes = self.inner_nodes;
        let options = DocumentOptions { fill_percent, inner_nodes, ..DocumentOptions::default() };
        self.store.load(name, options, text, |_| ControlFlow::Continue(())).map(|_| ())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let factor: f64 = arguments.next().map_or(Ok(0.1), |factor| factor.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(7), |rounds| rounds.parse())?;
    let options = XmarkOptions { factor, seed: SEED, persons: PersonCount::default() };
    let text = XmarkGenerator::new(options)?.write(Vec::new())?;
    let directory = tempfile::tempdir()?;
    let subjects = [
        Subject::new(directory.path(), InnerNodes::Stored)?,
        Subject::new(directory.path(), InnerNodes::Virtual)?,
    ];
    println!("XMark of factor {factor}, seed {SEED}: {} bytes of text\n", text.len());
    sizes(&subjects, &text)?;
    let sample = sample(&subjects[0])?;
    println!("\n{rounds} rounds; {SAMPLE} nodes for single steps, {UPDATES} updates\n");
    println!("| work | stored, ms | virtual, ms | virtual / stored | lowest | highest |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let load = |subject: &Subject| {
        let start = processor_seconds();
        subject.load("again", 90, &text)?;
        let seconds = processor_seconds() - start;
        subject.store.drop_document("again")?;
        Ok((seconds, 0))
    };
    compare("load", &subjects, rounds, load)?;
    for (name, work) in WORK {
        compare(name, &subjects, rounds, |subject| {
            let transaction = subject.store.begin();
            let document = transaction.document("xmark")?;
            let start = processor_seconds();
            let count = work(&document, &sample)?;
            Ok((processor_seconds() - start, count))
        })?;
    }
    Ok(())
}

/// Returns the processor time that this process has used, in seconds.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Loads the document into both stores and prints the sizes of its tree, also with full pages.
fn sizes(subjects: &[Subject; 2], text: &[u8]) -> Result<(), Box<dyn Error>> {
    println!("| inner nodes | fill, % | records | pages | bytes | bytes / text |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for (number, fill_percent, name) in [(0, 90, "xmark"), (1, 100, "full")] {
        for subject in subjects {
            subject.load(name, fill_percent, text)?;
            let engine = subject.store.engine();
            let (shapes, tree) = (engine.check()?, format!("xml document {number}"));
            let shape = shapes.iter().find(|(name, _)| *name == tree);
            let (_, shape) = shape.ok_or("the document has a tree")?;
            let pages = shape.leaves + shape.inner_nodes;
            let bytes = pages * engine.page_size().bytes() as u64;
            let (inner_nodes, records) = (subject.inner_nodes, shape.entries);
            let ratio = bytes as f64 / text.len() as f64;
            println!(
                "| {inner_nodes:?} | {fill_percent} | {records} | {pages} | {bytes} | {ratio:.3} |"
            );
        }
    }
    Ok(())
}

/// Draws nodes.
fn sample(subject: &Subject) -> Result<Sample, XmlStoreError> {
    let transaction = subject.store.begin();
    let document = transaction.document("xmark")?;
    let (mut inner, mut leaves) = (Vec::new(), Vec::new());
    for node in document.descendants(&Label::document())? {
        let node = node?;
        let is_inner = document.kind(&node)? == Kind::Element
            && (document.first_child(&node)?.is_some() || !document.attributes(&node)?.is_empty());
        if is_inner { inner.push(node) } else { leaves.push(node) }
    }
    let mut random = SplitMix64::new(SEED);
    let mut draw = |from: Vec<Label>| {
        let count = u32::try_from(from.len()).unwrap_or(u32::MAX);
        (0..SAMPLE).map(|_| from[random.next_below(count) as usize].clone()).collect()
    };
    Ok(Sample { inner: draw(inner), leaves: draw(leaves) })
}

/// Does a work on both documents in each round, and prints the times and their ratio.
fn compare(
    name: &str,
    subjects: &[Subject; 2],
    rounds: usize,
    run: impl Fn(&Subject) -> Result<(f64, usize), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let mut times: [Vec<f64>; 2] = Default::default();
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let mut found = [(0.0, 0); 2];
        for turn in 0..2 {
            let which = (round + turn) % 2;
            found[which] = run(&subjects[which])?;
        }
        let [(stored, count), (rebuilt, other)] = found;
        if count != other {
            return Err(format!("{name}: {count} with records and {other} without").into());
        }
        times[0].push(stored);
        times[1].push(rebuilt);
        ratios.push(rebuilt / stored);
    }
    let [stored, rebuilt] = times.map(|mut times| median(&mut times) * 1e3);
    let ratio = median(&mut ratios);
    let (lowest, highest) = (ratios[0], ratios[ratios.len() - 1]);
    println!("| {name} | {stored:.1} | {rebuilt:.1} | {ratio:.2} | {lowest:.2} | {highest:.2} |");
    Ok(())
}

/// Sorts values and returns the middle one.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn each(nodes: &[Label], ask: impl Fn(&Label) -> Counted) -> Counted {
    nodes.iter().try_fold(0, |sum, node| Ok(sum + ask(node)?))
}

fn walk(document: &Document<'_>, _: &Sample) -> Counted {
    go_through(document, |_| Ok(1))
}

fn walk_with_names(document: &Document<'_>, _: &Sample) -> Counted {
    go_through(document, |node| Ok(document.name(node)?.map_or(0, |name| name.local.len())))
}

/// Goes to each node below the document from its parent or the sibling before it.
fn go_through(document: &Document<'_>, visit: impl Fn(&Label) -> Counted) -> Counted {
    let (mut at, mut depth, mut sum) = (Label::document(), 0, 0);
    while let Some(next) = document.next_below(&at, &mut depth)? {
        sum += visit(&next)?;
        at = next;
    }
    Ok(sum)
}

fn query(document: &Document<'_>, expression: &str) -> Counted {
    let (query, root) = (Query::parse(expression, &Prefixes::new())?, Label::document());
    let environment = Environment::default();
    let mut count = 0;
    for node in query.nodes(document, &root, &environment)? {
        node?;
        count += 1;
    }
    Ok(count)
}

/// Inserts an element below some inner nodes and deletes it. The transaction is not committed.
fn update(document: &Document<'_>, sample: &Sample) -> Counted {
    let name = QName::local("added");
    for parent in sample.inner.iter().take(UPDATES) {
        let added = document.insert(&Place::Last(parent.clone()), NewNode::Element(&name))?;
        document.delete(&added)?;
    }
    Ok(UPDATES)
}
