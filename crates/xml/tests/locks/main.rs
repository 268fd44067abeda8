//! The locks of the XML store from outside, by what a reader of the lock protocols expects of
//! them: conflicts of two operations wait and others go on, histories are serializable, and weaker
//! isolation levels have the anomalies that are named for them and no others.
//!
//! Every expected result comes from a document in memory (`model`) and from what each operation
//! reads and writes of it (`footprint`), not from the store.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "seeds and figures, for who reads a failure")]

mod contention;
mod footprint;
mod histories;
mod isolation;
mod model;
mod pairs;
mod protocols;
mod schedules;
mod steps;

use std::env;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::disk::{Disk, Faults, SimulatedDisk};
use tidegate_engine::lock::LockSettings;
use tidegate_engine::wal::{LogId, LogSettings};
use tidegate_engine::{PageSize, Store, StoreOptions};
use tidegate_xml::label::Label;
use tidegate_xml::store::{DocumentOptions, InnerNodes, LoadOptions, XmlStore};

use self::model::Model;

/// The seeds of a soak: those that the environment variable `XML_SEEDS` names, such as `100..150`,
/// or all.
fn seeds(all: Range<u64>) -> Range<u64> {
    let Ok(text) = env::var("XML_SEEDS") else { return all };
    let (start, end) = text.split_once("..").expect("XML_SEEDS is a range");
    start.parse().unwrap()..end.parse().unwrap()
}

/// Returns options of a store in memory whose requests for locks wait so long at most; `None` for
/// as long as it takes.
fn options(timeout: Option<Duration>) -> StoreOptions {
    let locks = LockSettings {
        timeout,
        check_on_block: true,
        buckets: 64,
        ..StoreOptions::default().locks
    };
    StoreOptions::default()
        .locks(locks)
        .page_size(PageSize::new(4096).unwrap())
        .buffer_bytes(256 * 4096)
        .buffer_bytes_max(256 * 4096)
        .log(LogSettings { segment_bytes: 1 << 20, ..LogSettings::default() })
        .background(false)
}

/// Makes a store with one document, `d`, and returns the document's model.
fn store_of(
    text: &str,
    indexes: &[(&str, &str)],
    inner_nodes: InnerNodes,
    options: &StoreOptions,
) -> (XmlStore, Model) {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::new(1, Faults::default()));
    drop(Store::create(&disk, LogId(1), options).unwrap());
    let store = XmlStore::on(Store::open(&disk, options).unwrap()).unwrap();
    let document = DocumentOptions { inner_nodes, ..DocumentOptions::default() };
    let mut load = LoadOptions { document, threads: 1, ..LoadOptions::default() };
    for (name, definition) in indexes {
        load = load.index(name, definition.parse().unwrap());
    }
    store.load("d", load, text.as_bytes(), |_| ControlFlow::Continue(())).unwrap();
    let labels = {
        let transaction = store.begin();
        let document = transaction.document("d").unwrap();
        let labels = document.descendants(&Label::document()).unwrap();
        labels.collect::<Result<Vec<Label>, _>>().unwrap()
    };
    let model = Model::new(text, labels);
    (store, model)
}

/// Indexes of all kinds.
const INDEXES: [(&str, &str); 4] =
    [("names", "name"), ("paths", "path"), ("texts", "content text"), ("ids", "cas text //@id")];
