//! The eight transactions of `xmark` on the XML store.
//!
//! | module | what it shows |
//! | --- | --- |
//! | `alone` | one client: what each transaction does, and that all variants make the same |
//! | `basex` | BaseX makes the same |
//! | `together` | eight clients on locks of each kind: what is committed is there, and consistent |
//! | `violations` | each condition of the check finds what it is for |

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]
#![allow(clippy::print_stdout, reason = "a test prints its seed")]

mod alone;
mod basex;
mod together;
mod violations;

use std::sync::atomic::AtomicBool;

use tempfile::TempDir;
use tidegate_engine::TxnOptions;
use tidegate_subject::embedded_xml::{self, AuctionRun, AuctionSite};
use tidegate_workload::workload::{Client, Workload};
use tidegate_workload::xmark::{AuctionTransaction, Xmark};
use tidegate_xml::serialize::XmlWriter;
use tidegate_xml::store::{
    Document, LoadOptions, LockProtocol, Locking, XmlStore, XmlStoreError, XmlTransaction,
};

static NEVER: AtomicBool = AtomicBool::new(false);

const DOCUMENT: &str = "site";

/// By what protocol transactions lock, and to which depth.
type Locks = (&'static str, Option<u32>);

const LOCKS: [Locks; 7] = [
    ("document", None),
    ("X", None),
    ("MGL", None),
    ("MGL", Some(3)),
    ("taDOM3+", None),
    ("taDOM3+", Some(1)),
    ("taDOM3+", Some(3)),
];

fn begin(store: &XmlStore, (protocol, depth): Locks) -> XmlTransaction<'_> {
    let protocol = LockProtocol::named(protocol).unwrap();
    let locking = Locking { depth, ..Locking::by(protocol) };
    store.begin_locking(locking, TxnOptions::default())
}

/// A store with the document of a workload.
struct Fixture {
    store: XmlStore,
    site: AuctionSite,
    /// Removed when the store is closed.
    _directory: TempDir,
}

impl Fixture {
    fn new(workload: &Xmark) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let store = XmlStore::open_or_create(directory.path().join("store")).unwrap();
        let options = LoadOptions { threads: 1, ..LoadOptions::default() };
        embedded_xml::load(&store, DOCUMENT, workload, options, &NEVER).unwrap();
        let site = AuctionSite::open(&store, DOCUMENT).unwrap();
        Fixture { store, site, _directory: directory }
    }

    /// Runs a transaction until it is committed. Returns what it has read, and how often a conflict
    /// has ended it before.
    fn run(&self, transaction: &AuctionTransaction, locks: Locks) -> (Vec<String>, u32) {
        let attempt = || -> Result<AuctionRun, XmlStoreError> {
            let within = begin(&self.store, locks);
            let run = self.site.run(transaction, &within)?;
            within.commit()?;
            Ok(run)
        };
        for conflicts in 0.. {
            match attempt() {
                Ok(run) => {
                    self.site.committed(transaction, &run);
                    return (run.read, conflicts);
                }
                Err(error) => assert!(error.is_retryable(), "{transaction:?}: {error}"),
            }
        }
        unreachable!("an attempt ends at last");
    }

    /// Changes the document and commits.
    fn change(&self, change: impl FnOnce(&Document<'_>)) {
        let within = self.store.begin();
        let document = within.document_to_update(DOCUMENT).unwrap();
        change(&document);
        drop(document);
        within.commit().unwrap();
    }

    fn text(&self) -> Vec<u8> {
        let within = self.store.begin();
        let document = within.document(DOCUMENT).unwrap();
        document.write(XmlWriter::canonical(Vec::new(), true)).unwrap()
    }

    /// The conditions that do not hold.
    fn violations(&self) -> Vec<(&'static str, String)> {
        let conditions = self.site.check(&self.store).unwrap();
        assert_eq!(conditions.len(), 10);
        let violated = |condition: tidegate_workload::workload::Condition| {
            condition.violation.map(|violation| (condition.name, violation))
        };
        conditions.into_iter().filter_map(violated).collect()
    }

    /// Fails unless the document is consistent, and so are tree and indexes.
    fn assert_consistent(&self) {
        assert_eq!(self.violations(), []);
        let within = self.store.begin();
        let document = within.document(DOCUMENT).unwrap();
        assert_eq!(document.check().unwrap(), []);
    }
}

/// A client's transactions.
fn transactions(client: &mut dyn Client, count: usize) -> Vec<AuctionTransaction> {
    (0..count).map(|_| client.next().auction().unwrap().clone()).collect()
}

fn of_client(workload: &Xmark, number: usize, seed: u64, count: usize) -> Vec<AuctionTransaction> {
    transactions(&mut *workload.client(number, 8, seed), count)
}
