//! Loads with one thread and with several: the same is stored, and the same is left of a load that
//! fails, is cancelled or panics at any place.

use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tidegate_engine::TxnOptions;
use tidegate_engine::disk::Faults;
use tidegate_random::SplitMix64;
use tidegate_xml::store::{
    DocumentOptions, InnerNodes, LoadOptions, LoadPhase, Progress, XmlStore, XmlStoreError,
};

use super::indexes::DEFINITIONS;
use super::loading::xmark;
use super::{canonical, dump, new_disk, new_store, open, parse_documents};

const THREADS: [usize; 3] = [1, 2, 5];

fn go_on(_: Progress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Loads with all kinds of indexes, whose entries go to temporary files.
fn options(threads: usize) -> LoadOptions {
    let all = LoadOptions { threads, sort_bytes: 0, ..LoadOptions::default() };
    DEFINITIONS
        .iter()
        .fold(all, |options, definition| options.index(definition, definition.parse().unwrap()))
}

/// What a tree holds, and how its leaves are filled.
#[derive(PartialEq)]
struct Content {
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    fills: Vec<f64>,
}

fn content(store: &XmlStore, tree: &str) -> Content {
    let tree = store.engine().tree(tree).unwrap();
    let mut transaction = store.engine().begin(TxnOptions::default());
    let entries = transaction.entries(&tree).unwrap().collect::<Result<_, _>>().unwrap();
    let fills = tree.fills().unwrap().iter().map(|leaf| leaf.fill).collect();
    Content { entries, fills }
}

/// A text of many batches, with texts that make a batch long.
fn long_text() -> String {
    let mut text = xmark(0.0007);
    let end = text.rfind("</site>").unwrap();
    text.insert_str(end, &format!("<long>{}</long>", "long text ".repeat(15_000)).repeat(6));
    text
}

#[test]
fn any_number_of_threads_stores_the_same() {
    let seed = 21;
    let mut random = SplitMix64::new(seed);
    for number in 0..12 {
        let text =
            if number == 0 { long_text() } else { parse_documents::document(&mut random, true) };
        let inner_nodes = [InnerNodes::Stored, InnerNodes::Virtual][number % 2];
        let stored = THREADS.map(|threads| {
            let store = new_store(seed);
            let document = DocumentOptions { inner_nodes, ..DocumentOptions::default() };
            let options = LoadOptions { document, ..options(threads) };
            let loaded = store.load("d", options, text.as_bytes(), go_on).unwrap();
            let mut trees = store.engine().trees();
            trees.sort();
            assert_eq!(trees.len(), 5 + DEFINITIONS.len());
            let contents: Vec<_> = trees.iter().map(|tree| content(&store, tree)).collect();
            assert_eq!(store.begin().document("d").unwrap().check().unwrap(), []);
            ((loaded.nodes, loaded.bytes, loaded.entries, loaded.entries_total), trees, contents)
        });
        let case = format!("seed {seed}, document {number}");
        assert!(stored[0] == stored[1] && stored[0] == stored[2], "{case}:\n{text}");
    }
}

/// A text that ends with an error of its source.
struct Failing<'t>(&'t [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::Error::other("the source fails"));
        }
        self.0.read(buffer)
    }
}

#[test]
fn an_error_at_any_place_of_the_text_leaves_nothing() {
    let seed = 22;
    let mut random = SplitMix64::new(seed);
    let text = long_text();
    let store = new_store(seed);
    let trees = store.engine().trees();
    for round in 0..16 {
        let length = random.next_below(u32::try_from(text.len()).unwrap()) as usize;
        let source = &text.as_bytes()[..length];
        let errors = THREADS.map(|threads| {
            let cut = store.load("d", options(threads), source, go_on).unwrap_err();
            let failing = BufReader::new(Failing(source));
            let failed = store.load("d", options(threads), failing, go_on).unwrap_err();
            assert_eq!(store.engine().trees(), trees, "{threads} threads, {length} bytes");
            (cut.to_string(), failed.to_string())
        });
        let case = format!("seed {seed}, round {round}, {length} bytes: {errors:?}");
        assert!(errors[0] == errors[1] && errors[0] == errors[2], "{case}");
        assert!(errors[0].1.contains("the source fails"), "{case}");
    }
    assert!(store.documents().unwrap().is_empty());
    store.load("d", options(2), text.as_bytes(), go_on).unwrap();
    let transaction = store.begin();
    assert!(dump(&transaction.document("d").unwrap()) == canonical(&text));
}

#[test]
fn a_panic_of_the_caller_in_any_phase_leaves_no_document() {
    let text = format!("<r>{}</r>", "<a b='c'/>".repeat(10_000));
    for threads in THREADS {
        let disk = new_disk(24);
        let store = open(&disk).unwrap();
        let trees = store.engine().trees();
        let options = || {
            LoadOptions { threads, ..LoadOptions::default() }
                .index("names", "name".parse().unwrap())
                .index("texts", "cas text".parse().unwrap())
        };
        for (phase, entries_or_nodes) in [
            (LoadPhase::Reading, 0),
            (LoadPhase::Reading, 10_000),
            (LoadPhase::Indexing, 0),
            (LoadPhase::Indexing, 10_000),
        ] {
            let panic = |progress: Progress| {
                let is_reading = progress.phase == LoadPhase::Reading;
                let come_to = if is_reading { progress.nodes } else { progress.entries };
                let is_there = progress.phase == phase && come_to >= entries_or_nodes;
                assert!(!is_there, "the caller panics");
                ControlFlow::Continue(())
            };
            let load = || store.load("d", options(), text.as_bytes(), panic);
            let caught = catch_unwind(AssertUnwindSafe(load)).unwrap_err();
            assert_eq!(caught.downcast_ref(), Some(&"the caller panics"));
            assert!(store.documents().unwrap().is_empty());
        }
        // The store goes on.
        store.load("d", options(), text.as_bytes(), go_on).unwrap();
        assert_eq!(store.begin().document("d").unwrap().check().unwrap(), []);
        assert!(store.drop_document("d").unwrap());
        store.close().unwrap();
        // The trees that nothing names are dropped.
        assert_eq!(open(&disk).unwrap().engine().trees(), trees, "{threads} threads");
    }
}

#[test]
fn a_disk_that_fails_at_any_operation_ends_all_threads() {
    let seed = 25;
    let mut random = SplitMix64::new(seed);
    let text = xmark(0.0005);
    let trees = new_store(seed).engine().trees();
    for threads in THREADS {
        let disk = new_disk(seed);
        let before = disk.operations();
        let store = open(&disk).unwrap();
        store.load("d", options(threads), text.as_bytes(), go_on).unwrap();
        let operations = u32::try_from(disk.operations() - before).unwrap();
        for _ in 0..40 {
            let disk = new_disk(seed);
            let store = open(&disk).unwrap();
            let crash_after = u64::from(random.next_below(operations));
            disk.set_faults(Faults { crash_after: Some(crash_after), ..Faults::default() });
            let loaded = store.load("d", options(threads), text.as_bytes(), go_on);
            let case = format!("seed {seed}, {threads} threads, {crash_after} of {operations}");
            if let Err(error) = loaded {
                assert!(matches!(error, XmlStoreError::Engine(_)), "{case}: {error}");
            }
            drop(store);
            let store = open(&Arc::new(disk.crash(super::crash::CRASHES[0]))).unwrap();
            if store.documents().unwrap().is_empty() {
                assert_eq!(store.engine().trees(), trees, "{case}");
            } else {
                assert_eq!(store.begin().document("d").unwrap().check().unwrap(), [], "{case}");
            }
        }
    }
}
