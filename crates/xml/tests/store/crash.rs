//! Chains of crashes: after each the document is the last one that was committed.

use std::iter;
use std::sync::Arc;

use tidegate_engine::disk::{Crash, Faults};
use tidegate_random::SplitMix64;
use tidegate_xml::store::{InnerNodes, XmlStore, XmlStoreError};

use super::model::{FIRST, Model};
use super::{in_memory, load_as, new_disk, open, plain};

pub(super) const CRASHES: [Crash; 4] = [Crash::Kept, Crash::Lost, Crash::Random, Crash::Weak];

/// What the store has to hold: the document, if there is one.
struct Expected {
    sure: Option<Model>,
    /// The same with the last change, of which nobody knows whether it is durable.
    /// At most one.
    doubt: Vec<Option<Model>>,
}

/// Reads the document, if there is one.
fn read(store: &XmlStore) -> Result<Option<String>, XmlStoreError> {
    if store.documents()?.is_empty() {
        return Ok(None);
    }
    let transaction = store.begin();
    let document = transaction.document("d")?;
    assert_eq!(document.check()?, []);
    plain(&document).map(Some)
}

/// Reads the document and compares it with what has to be there. From then on it has to stay.
fn resolve(store: &XmlStore, expected: &mut Expected, case: &str) -> Result<(), XmlStoreError> {
    let text = read(store)?;
    let tree = |model: &Model| format!("{:?}", model.tree());
    let found = text.as_ref().map(|text| format!("{:?}", in_memory(text)));
    let mut candidates = iter::once(expected.sure.take()).chain(expected.doubt.drain(..));
    let same = candidates.find(|model| model.as_ref().map(tree) == found);
    let Some(same) = same else { panic!("{case}: this was not committed: {text:?}") };
    expected.sure = same;
    let trees = 4 + usize::from(text.is_some());
    assert_eq!(store.engine().trees().len(), trees, "{case}: no stray trees");
    Ok(())
}

/// Loads, changes and drops the document until something fails or there was enough.
fn work(
    inner: InnerNodes,
    store: &XmlStore,
    random: &mut SplitMix64,
    expected: &mut Expected,
) -> Result<(), XmlStoreError> {
    for _ in 0..random.next_below(25) {
        let Some(model) = &expected.sure else {
            expected.doubt = vec![Some(Model::new())];
            load_as(inner, store, "d", FIRST)?;
            expected.sure = expected.doubt.pop().flatten();
            continue;
        };
        if random.next_chance(0.05) {
            expected.doubt = vec![None];
            store.drop_document("d")?;
            expected.sure = expected.doubt.pop().flatten();
            continue;
        }
        let mut changed = model.clone();
        let transaction = store.begin();
        let document = transaction.document_to_update("d")?;
        for _ in 0..random.next_below(12) {
            changed.step(random, &document)?;
        }
        drop(document);
        if random.next_chance(0.2) {
            continue;
        }
        expected.doubt = vec![Some(changed)];
        transaction.commit()?;
        expected.sure = expected.doubt.pop().flatten();
    }
    Ok(())
}

fn chain(inner: InnerNodes, seed: u64) {
    let mut random = SplitMix64::new(seed);
    let mut disk = new_disk(seed);
    let mut expected = Expected { sure: None, doubt: Vec::new() };
    let mut case = format!("seed {seed}");
    for life in 0..4 {
        let how = CRASHES[random.next_below(4) as usize];
        let scale = [20, 200, 1_000][random.next_below(3) as usize];
        let crash_after = Some(u64::from(random.next_below(scale))).filter(|_| life < 3);
        case = format!("{case}; {crash_after:?} operations, then {how:?}");
        disk.set_faults(Faults { crash_after, ..Faults::default() });
        let lived = open(&disk).and_then(|store| {
            resolve(&store, &mut expected, &case)?;
            work(inner, &store, &mut random, &mut expected)
        });
        assert!(lived.is_ok() || disk.is_off(), "{case}: {lived:?}");
        disk = Arc::new(disk.crash(how));
    }
    let store = open(&disk).unwrap();
    resolve(&store, &mut expected, &case).unwrap();
    store.engine().check().unwrap();
}

both!(after_each_crash_the_document_is_the_committed_one);
fn after_each_crash_the_document_is_the_committed_one(inner: InnerNodes) {
    (1..=25).for_each(|seed| chain(inner, seed));
}

both!(
    #[ignore = "soak: 2,000 chains of crashes"]
    after_each_of_many_crashes_the_document_is_the_committed_one
);
fn after_each_of_many_crashes_the_document_is_the_committed_one(inner: InnerNodes) {
    (1_000..3_000).for_each(|seed| chain(inner, seed));
}
