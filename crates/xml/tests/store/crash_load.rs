//! Crashes in the midst of loads with indexes, and of the building of indexes.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use tidegate_engine::disk::{Faults, SimulatedDisk};
use tidegate_random::SplitMix64;
use tidegate_xml::store::{DocumentOptions, InnerNodes, LoadOptions, XmlStore, XmlStoreError};

use super::crash::CRASHES;
use super::indexes::{DEFINITIONS, create};
use super::{canonical, dump, new_disk, open};

/// What happens from a seed: a document, its indexes, and how long the disk works.
struct Case {
    text: String,
    options: LoadOptions,
    random: SplitMix64,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut random = SplitMix64::new(seed);
        let mut text = "<r>".to_owned();
        for _ in 0..random.next_below(400) {
            let (name, length) = (random.next_below(20), random.next_below(12) as usize);
            write!(text, "<n{name} k='{length}'>{}</n{name}>", "text ".repeat(length)).unwrap();
        }
        if random.next_chance(0.2) {
            // The engine stores it apart, by a transaction.
            write!(text, "<long>{}</long>", "long text ".repeat(2_000)).unwrap();
        }
        text.push_str("</r>");
        let inner_nodes =
            if random.next_chance(0.5) { InnerNodes::Stored } else { InnerNodes::Virtual };
        let document = DocumentOptions { inner_nodes, ..DocumentOptions::default() };
        let threads = 1 + random.next_below(3) as usize;
        let mut options =
            LoadOptions { document, sort_bytes: 0, threads, ..LoadOptions::default() };
        for definition in DEFINITIONS {
            if random.next_chance(0.4) {
                options = options.index(definition, definition.parse().unwrap());
            }
        }
        Case { text, options, random }
    }

    fn load(&self, store: &XmlStore) -> Result<(), XmlStoreError> {
        let go_on = |_| ControlFlow::Continue(());
        store.load("d", self.options.clone(), self.text.as_bytes(), go_on).map(drop)
    }
}

/// A disk with a store that was opened.
fn fresh(seed: u64) -> Arc<SimulatedDisk> {
    let disk = new_disk(seed);
    drop(open(&disk).unwrap());
    disk
}

/// Runs `work` in a store on the disk until the disk fails within it, and opens the store again.
/// Returns what `work` has returned.
fn cut_off(
    case: &mut Case,
    disk: &SimulatedDisk,
    work: impl Fn(&XmlStore, &Case) -> Result<(), XmlStoreError>,
) -> (Result<(), XmlStoreError>, Arc<SimulatedDisk>, String) {
    let run = |case: &Case, disk| open(disk).and_then(|store| work(&store, case));
    let (whole, disk) = (Arc::new(disk.crash(CRASHES[0])), Arc::new(disk.crash(CRASHES[0])));
    let before = whole.operations();
    run(case, &whole).unwrap();
    let operations = u32::try_from(whole.operations() - before).unwrap();
    let crash_after = u64::from(case.random.next_below(operations + 1));
    disk.set_faults(Faults { crash_after: Some(crash_after), ..Faults::default() });
    let done = run(case, &disk);
    let how = CRASHES[case.random.next_below(4) as usize];
    let at = format!("{crash_after} of {operations} operations, then {how:?}");
    (done, Arc::new(disk.crash(how)), at)
}

/// Returns how many documents the crash has left.
fn crash_in_a_load(seed: u64) -> usize {
    let mut case = Case::new(seed);
    let disk = fresh(seed);
    let (loaded, disk, at) = cut_off(&mut case, &disk, |store, case| case.load(store));
    let at = format!("seed {seed}, {at}");
    let store = open(&disk).unwrap();
    let documents = store.documents().unwrap().len();
    assert!(loaded.is_err() || documents == 1, "{at}");
    if documents == 0 {
        assert_eq!(store.engine().trees().len(), 4, "{at}");
        case.load(&store).unwrap();
    }
    let names: Vec<String> = case.options.indexes.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(store.engine().trees().len(), 5 + names.len(), "{at}");
    let indexes = store.indexes("d").unwrap();
    assert!(indexes.iter().all(|index| index.is_ready), "{at}");
    assert_eq!(indexes.into_iter().map(|index| index.name).collect::<Vec<_>>(), names, "{at}");
    let transaction = store.begin();
    let document = transaction.document("d").unwrap();
    assert_eq!(document.check().unwrap(), [], "{at}");
    assert_eq!(dump(&document), canonical(&case.text), "{at}");
    documents
}

/// Returns whether the crash has left an index.
fn crash_in_a_build(seed: u64) -> bool {
    let mut case = Case::new(seed);
    case.options.indexes.clear();
    let disk = fresh(seed);
    let store = open(&disk).unwrap();
    case.load(&store).unwrap();
    store.close().unwrap();
    let definition = DEFINITIONS[case.random.next_below(6) as usize];
    let (built, disk, at) = cut_off(&mut case, &disk, |store, _| create(store, "i", definition));
    let at = format!("seed {seed}, {definition}, {at}");
    let store = open(&disk).unwrap();
    let left = store.indexes("d").unwrap();
    assert!(built.is_err() || left.first().is_some_and(|index| index.is_ready), "{at}");
    assert_eq!(store.engine().trees().len(), 5 + left.len(), "{at}");
    assert_eq!(store.begin().document("d").unwrap().check().unwrap(), [], "{at}");
    if !left.first().is_some_and(|index| index.is_ready) {
        create(&store, "i", definition).unwrap();
    }
    assert!(store.indexes("d").unwrap()[0].is_ready, "{at}");
    assert_eq!(store.begin().document("d").unwrap().check().unwrap(), [], "{at}");
    !left.is_empty()
}

fn crash_in_loads(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let whole: usize = seeds.map(crash_in_a_load).sum();
    assert!(whole > 0 && (whole as u64) < count, "{whole} of {count} loads have ended");
}

#[test]
fn a_crash_in_a_load_leaves_the_document_with_its_indexes_or_nothing() {
    crash_in_loads(1..120);
}

#[test]
fn a_crash_in_the_building_of_an_index_leaves_one_that_can_be_finished() {
    let left = (1..90).filter(|&seed| crash_in_a_build(seed)).count();
    assert!(left > 0 && left < 89, "{left}");
}

#[test]
#[ignore = "soak: 6,000 crashes"]
fn many_crashes_in_loads_and_builds_leave_sound_documents() {
    crash_in_loads(1_000..4_000);
    (1_000..4_000).for_each(|seed| {
        crash_in_a_build(seed);
    });
}
