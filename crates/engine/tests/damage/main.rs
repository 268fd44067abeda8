//! Stores whose files were damaged while nobody had them open.
//!
//! Two stores with a past of some fifty transactions, one closed and one that crashed while a
//! transaction was under way (`fuzz/src/sample.rs`), are damaged in every way that this module
//! knows, file by file. Then everything is read: all trees from end to end, and every page by
//! `Store::check`. What is found must be what was committed, or the damage is refused with an error
//! that says where it is. Whoever finds everything right goes on: it commits more, closes, opens
//! again and compares.
//!
//! | damage | what is noticed |
//! | --- | --- |
//! | a bit, or part of a page in use | always, by its checksum; put right if there is a copy |
//! | a page at another's place | always: it says its number |
//! | a page of zeros in use | always: its parent takes it for a node, its map for a map |
//! | a page as it was earlier | where the tree contradicts it; else **not** |
//! | the file of pages cut off | wherever a page in use was |
//! | the doublewrite file | never: it is needed only for pages that are torn |
//! | the head | always; one checkpoint is enough, if the log reaches back that far |
//! | a record or a mark of the log | always, but in the last write before a crash |
//! | the end of the log cut off | where a page or the head is ahead of the rest; else **not** |
//! | a file of a newer version | always |
//! | the head or the log of another store | always |
//! | the file of pages of another store | where its log was longer; else **not** |
//!
//! So three things go unnoticed, and each needs more than a checksum. A lost write leaves a page
//! that is whole, at its place, and old: only somebody who remembers how new it should be can tell.
//! A log that lost its end looks like one that never was longer, and the store is as it was after
//! an earlier commit. And a page does not say which store it belongs to.
//!
//! A page of zeros that was a map is noticed by `Store::check`, not by who looks for a free page.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "threads and clocks of these are the system's"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "shown when a test fails")]

mod files;
mod head;
mod inputs;
mod log;
mod pages;
#[path = "../../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "the fuzz targets reach it from another crate")]
mod targets;

use std::sync::{Arc, OnceLock};

use tidegate_engine::disk::{Disk, Open, SimulatedDisk};
use tidegate_engine::{Recovery, TxnError, TxnOptions};

use targets::sample::{Ending, Found, Model, Sample, build, contents, options, read_back, shared};

const ENDINGS: [Ending; 2] = [Ending::Closed, Ending::Crashed];

const PAGES: &str = "data.pages";

/// The store that is damaged.
fn sample(ending: Ending) -> &'static Sample {
    static SAMPLES: [OnceLock<Sample>; 2] = [const { OnceLock::new() }; 2];
    let at = usize::from(ending == Ending::Crashed);
    let sample = SAMPLES[at].get_or_init(|| build(7 + at as u64, ending));
    println!("{ending:?}: {} commits, {} records", sample.states.len() - 1, sample.records.len());
    sample
}

impl Sample {
    /// A copy to be damaged.
    fn copy(&self) -> Arc<SimulatedDisk> {
        Arc::new(self.disk.fork())
    }

    fn last(&self) -> usize {
        self.states.len() - 1
    }
}

/// What is found in a damaged store.
#[derive(Debug)]
enum Outcome {
    /// What it held.
    Right(Recovery),
    /// What it held after an earlier commit.
    Earlier(usize),
    /// An error.
    Refused(TxnError),
}

impl Outcome {
    /// The words of the error; none when there was none.
    fn words(&self) -> String {
        match self {
            Outcome::Refused(error) => error.to_string(),
            Outcome::Right(_) | Outcome::Earlier(_) => String::new(),
        }
    }

    fn is_right(&self) -> bool {
        matches!(self, Outcome::Right(_))
    }

    /// The damage was refused, and the error says all of `parts`.
    fn assert_refused(&self, case: &str, parts: &[&str]) {
        let words = self.words();
        assert!(!words.is_empty(), "{case}: {self:?}, and nobody noticed");
        for part in parts {
            assert!(words.contains(part), "{case}: {words:?} does not say {part:?}");
        }
    }
}

/// Reads everything there is. What was not committed at one time must not be seen.
fn outcome(sample: &Sample, disk: &Arc<SimulatedDisk>, case: &str) -> Outcome {
    // Shown when the test fails, so also when opening panics.
    println!("{case}");
    let Found { store, model, recovery } = match read_back(disk) {
        Ok(found) => found,
        Err(error) => return Outcome::Refused(error),
    };
    let Some(state) = sample.states.iter().rposition(|state| *state == model) else {
        panic!("{case}: silently wrong");
    };
    let model = go_on(&store, model);
    store.close().unwrap();
    let again = read_back(disk);
    match again {
        Ok(again) => assert!(again.model == model, "{case}: wrong when it went on"),
        Err(error) => panic!("{case}: refused when it went on: {error}"),
    }
    if state == sample.last() { Outcome::Right(recovery) } else { Outcome::Earlier(state) }
}

/// Puts new pages and old ones to use; what the store holds then.
fn go_on(store: &tidegate_engine::Store, mut model: Model) -> Model {
    let (name, entries) = model.iter_mut().next().unwrap();
    let tree = store.tree(name).unwrap();
    let mut transaction = store.begin(TxnOptions::default());
    for number in 0..20_u8 {
        let (key, value) = (vec![number; 9], vec![number; 700]);
        transaction.put(&tree, &key, &value).unwrap();
        entries.insert(key, value);
    }
    transaction.commit().unwrap();
    model
}

/// The content of a file.
fn bytes(disk: &SimulatedDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name, Open::Existing).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Puts bytes into a file that is there.
fn put(disk: &SimulatedDisk, name: &str, offset: u64, bytes: &[u8]) {
    let file = disk.open(name, Open::Existing).unwrap();
    file.write_at(bytes, offset).unwrap();
    file.sync().unwrap();
}

/// Gives a file that is there another content.
fn replace(disk: &SimulatedDisk, name: &str, bytes: &[u8]) {
    disk.truncate(name, 0).unwrap();
    put(disk, name, 0, bytes);
}

/// Makes the checksum right that a block or a page begins with.
fn seal(block: &mut [u8]) {
    let checksum = crc32c::crc32c(&block[4..]);
    block[..4].copy_from_slice(&checksum.to_le_bytes());
}

/// Undamaged, both stores hold what was committed, and opening them a second time changes nothing.
#[test]
fn what_was_not_damaged_is_right() {
    for ending in ENDINGS {
        let sample = sample(ending);
        let disk = sample.copy();
        let Found { store, model, recovery } = read_back(&disk).unwrap();
        assert!(model == sample.states[sample.last()]);
        assert_eq!(recovery.redone > 0, ending == Ending::Crashed);
        assert_eq!(recovery.rolled_back, usize::from(ending == Ending::Crashed));
        drop(store);
        let again = tidegate_engine::Store::open(&shared(&disk), &options()).unwrap();
        assert_eq!(again.recovery().redone, 0);
        assert!(contents(&again).unwrap() == model);
        assert!(outcome(sample, &sample.copy(), "nothing").is_right());
    }
}
