//! The document store through its public API: against a model in memory, and across crashes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

/// Makes two tests of a function: with inner nodes stored, and without their records.
macro_rules! both {
    ($(#[$attribute:meta])* $test:ident) => {
        mod $test {
            use tidegate_xml::store::InnerNodes;

            #[test]
            $(#[$attribute])*
            fn with_stored_inner_nodes() {
                super::$test(InnerNodes::Stored);
            }

            #[test]
            $(#[$attribute])*
            fn with_virtual_inner_nodes() {
                super::$test(InnerNodes::Virtual);
            }
        }
    };
}

#[path = "../xpath_support/absolute.rs"]
mod absolute;
mod checks;
mod crash;
mod crash_load;
mod damaged;
mod dom;
mod escalation;
mod fragments;
mod full_disk;
mod indexes;
mod load_threads;
mod loading;
mod locks;
mod many;
mod model;
mod moves;
#[path = "../parse_documents/mod.rs"]
#[allow(clippy::print_stderr, reason = "shared with other tests")]
mod parse_documents;
mod queries;
mod relabel;
mod reports;
mod sharing;
mod sizes;
mod updates;

use std::env;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::wal::{LogId, LogSettings};
use tidegate_engine::{PageSize, Store, StoreOptions};
use tidegate_xml::label::Label;
use tidegate_xml::parse::{Event, XmlReader};
use tidegate_xml::serialize::XmlWriter;
use tidegate_xml::store::{
    Document, DocumentOptions, InnerNodes, Progress, XmlStore, XmlStoreError,
};
use tidegate_xml::tree::memory::{Builder, MemoryTree};
use tidegate_xml::tree::{Kind, Tree};

/// The seeds of a soak: those that the environment variable `XML_SEEDS` names, such as `100..150`,
/// so that several processes may share them, or all.
fn seeds(all: Range<u64>) -> Range<u64> {
    let Ok(text) = env::var("XML_SEEDS") else { return all };
    let (start, end) = text.split_once("..").expect("XML_SEEDS is a range");
    start.parse().unwrap()..end.parse().unwrap()
}

fn options() -> StoreOptions {
    let locks = LockSettings { buckets: 64, ..StoreOptions::default().locks };
    StoreOptions::default()
        .locks(locks)
        .page_size(PageSize::new(4096).unwrap())
        .buffer_bytes(64 * 4096)
        .buffer_bytes_max(64 * 4096)
        .log(LogSettings { segment_bytes: 256 << 10, ..LogSettings::default() })
        .background(false)
}

fn shared(disk: &Arc<SimulatedDisk>) -> Arc<dyn Disk> {
    Arc::clone(disk) as Arc<dyn Disk>
}

fn new_disk(seed: u64) -> Arc<SimulatedDisk> {
    let disk = Arc::new(SimulatedDisk::new(seed, Faults::default()));
    drop(Store::create(&shared(&disk), LogId(seed), &options()).unwrap());
    disk
}

fn open(disk: &Arc<SimulatedDisk>) -> Result<XmlStore, XmlStoreError> {
    XmlStore::on(Store::open(&shared(disk), &options())?)
}

fn new_store(seed: u64) -> XmlStore {
    open(&new_disk(seed)).unwrap()
}

fn load(store: &XmlStore, name: &str, text: &str) -> Result<Progress, XmlStoreError> {
    load_as(InnerNodes::Stored, store, name, text)
}

fn load_as(
    inner_nodes: InnerNodes,
    store: &XmlStore,
    name: &str,
    text: &str,
) -> Result<Progress, XmlStoreError> {
    let options = DocumentOptions { inner_nodes, ..DocumentOptions::default() };
    store.load(name, options, text.as_bytes(), |_| ControlFlow::Continue(()))
}

/// The document in canonical form, with comments.
fn dump(document: &Document<'_>) -> String {
    let bytes = document.write(XmlWriter::canonical(Vec::new(), true)).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The document as text, whose attributes are in their own order.
fn plain(document: &Document<'_>) -> Result<String, XmlStoreError> {
    let bytes = document.write(XmlWriter::new(Vec::new()))?;
    Ok(String::from_utf8(bytes).unwrap())
}

fn canonical(text: &str) -> String {
    let mut writer = XmlWriter::canonical(Vec::new(), true);
    let mut reader = XmlReader::new(text.as_bytes());
    while let Some(event) = reader.next_event().unwrap() {
        writer.write(event).unwrap();
    }
    String::from_utf8(writer.finish().unwrap()).unwrap()
}

fn in_memory(text: &str) -> MemoryTree {
    let mut builder = Builder::new();
    let mut reader = XmlReader::new(text.as_bytes());
    while let Some(event) = reader.next_event().unwrap() {
        match event {
            Event::StartDocument | Event::EndDocument => {}
            Event::StartElement { name, attributes } => {
                builder.start_element((**name).clone());
                for attribute in attributes {
                    let name = (*attribute.name).clone();
                    if attribute.declares_namespace() {
                        let prefix = if name.prefix.is_empty() { "" } else { &name.local };
                        builder.declare(prefix, &attribute.value);
                        continue;
                    }
                    if attribute.is_id {
                        builder.id(&attribute.value);
                    }
                    builder.attribute(name, &attribute.value);
                }
            }
            Event::Text(text) => builder.text(text),
            Event::Comment(text) => builder.comment(text),
            Event::ProcessingInstruction { target, data } => {
                builder.processing_instruction(target, data);
            }
            Event::EndElement { .. } => builder.end_element(),
        }
    }
    builder.finish()
}

/// Compares a stored document with a tree in memory node by node, by every way from one to the
/// next, and checks it.
fn compare(stored: &Document<'_>, expected: &MemoryTree, case: &str) {
    assert_eq!(stored.check().unwrap(), [], "{case}");
    let mut pairs = vec![(stored.root().unwrap(), expected.root().unwrap())];
    while let Some((ours, theirs)) = pairs.pop() {
        compare_node(stored, &ours, expected, &theirs, case);
        let (children, mut next) = (stored.children(&ours).unwrap(), expected.first_child(&theirs));
        let children: Vec<Label> = children.collect::<Result<_, _>>().unwrap();
        assert_eq!(stored.first_child(&ours).unwrap(), children.first().cloned(), "{case}");
        assert_eq!(stored.last_child(&ours).unwrap(), children.last().cloned(), "{case}");
        for (index, child) in children.iter().enumerate() {
            let at = format!("{case}: child {index} of {ours}");
            let Some(their_child) = next.unwrap() else { panic!("{at} is not in the model") };
            let before = index.checked_sub(1).map(|before| children[before].clone());
            assert_eq!(stored.previous_sibling(child).unwrap(), before, "{at}");
            let after = children.get(index + 1).cloned();
            assert_eq!(stored.next_sibling(child).unwrap(), after, "{at}");
            assert_eq!(stored.parent(child).unwrap().as_ref(), Some(&ours), "{at}");
            pairs.push((child.clone(), their_child));
            next = expected.next_sibling(&their_child);
        }
        assert_eq!(next, Ok(None), "{case}: {ours} has too few children");
    }
}

fn compare_node<T: Tree>(
    stored: &Document<'_>,
    ours: &Label,
    expected: &T,
    theirs: &T::Node,
    case: &str,
) {
    let at = format!("{case}: {ours}");
    let kind = expected.kind(theirs).unwrap();
    assert_eq!(stored.kind(ours).unwrap(), kind, "{at}");
    assert_eq!(stored.name(ours).unwrap(), expected.name(theirs).unwrap(), "{at}");
    assert_eq!(stored.content(ours).unwrap(), expected.content(theirs).unwrap(), "{at}");
    assert_eq!(stored.string_value(ours).unwrap(), expected.string_value(theirs).unwrap(), "{at}");
    let (mut names, mut above) = (Vec::new(), Some(theirs.clone()));
    while let Some(node) = above {
        if matches!(expected.kind(&node).unwrap(), Kind::Element | Kind::Attribute) {
            names.extend(expected.name(&node).unwrap());
        }
        above = expected.parent(&node).unwrap();
    }
    names.reverse();
    let path: Vec<_> = stored.path(ours).unwrap().iter().map(|name| (**name).clone()).collect();
    assert_eq!(path, names, "{at}");
    let declarations = expected.declarations(theirs).unwrap();
    assert_eq!(stored.declarations(ours).unwrap(), declarations, "{at}");
    let (our_list, their_list) = (stored.attributes(ours), expected.attributes(theirs).unwrap());
    let our_list = our_list.unwrap();
    assert_eq!(our_list.len(), their_list.len(), "{at}");
    for (our_attribute, their_attribute) in our_list.iter().zip(&their_list) {
        assert_eq!(stored.parent(our_attribute).unwrap().as_ref(), Some(ours), "{at}");
        compare_node(stored, our_attribute, expected, their_attribute, case);
    }
}
