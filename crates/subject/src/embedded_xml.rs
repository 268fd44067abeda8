//! An auction site of `XMark` on the XML store, and the eight transactions on it.
//!
//! # Mechanism
//! An [`AuctionSite`] is opened on a store that has the document, which [`load`] generates. It
//! keeps the labels of all open and closed auctions, persons and items: a transaction that enters
//! at random takes one of these, locks the node, and looks whether it is still there. So the draw
//! reads neither the range of a name in an index nor a count, which would make Register and Add
//! Item wait for everybody.
//!
//! [`AuctionSite::run`] is one attempt of an [`AuctionTransaction`] within an open transaction of
//! the store. Who calls it begins, commits, and runs again after a conflict, and tells
//! [`AuctionSite::committed`] what lasts. [`AuctionSite::check`] then compares the document with
//! that. `docs/xmark.md` has the operations of each transaction.
//!
//! | module | what it has |
//! | --- | --- |
//! | `visit.rs` | steps to children in both ways, entry, lookups by identifier, new elements |
//! | `auctions.rs` | Place Bid, Read Seller Info |
//! | `persons.rs` | Register, Change User Info |
//! | `items.rs` | Check Mails, Read Item, Add Mail, Add Item |
//! | `claims.rs` | what preventive transactions lock before they read |
//! | `models.rs` | which children elements have, in which order |
//! | `check.rs` | consistency |
//! | `generated.rs` | the document as it is generated, to load it |
//!
//! # Limits
//! * The document is the generator's: its identifiers are counted, which tells what is new.
//! * The labels kept are those of the time of opening. What is added later is not entered at
//!   random.

mod auctions;
mod check;
mod claims;
mod generated;
mod items;
pub(crate) mod models;
mod persons;
mod visit;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_workload::workload::{Condition, Transaction as _};
use tidegate_workload::xmark::{AuctionTransaction, AuctionWork, EntryList, REGIONS};
use tidegate_xml::label::Label;
use tidegate_xml::name::QName;
use tidegate_xml::store::{Document, XmlStore, XmlStoreError, XmlTransaction};
use tidegate_xml::tree::Tree;

pub use generated::{AuctionLoadError, GeneratedText, load, with_indexes};

use visit::{Visit, id_of, not_generated};

/// Numbers from here on are in identifiers that transactions give out, not the generator.
const FIRST_NEW_ID: u64 = 1 << 62;

/// What one run of a transaction has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuctionRun {
    /// What it has read.
    pub read: Vec<String>,
    /// How many bidders or mails it has removed ([`AuctionTransaction::keep`]).
    pub removed: u64,
}

/// How many there are of what the transactions add to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuctionCounts {
    /// Elements `person`.
    pub persons: u64,
    /// Elements `item`.
    pub items: u64,
    /// Elements `open_auction`.
    pub open_auctions: u64,
    /// Elements `closed_auction`.
    pub closed_auctions: u64,
    /// Elements `bidder`.
    pub bidders: u64,
    /// Elements `mail`.
    pub mails: u64,
}

/// The labels of everything at which transactions enter at random.
struct EntryLabels {
    open_auctions: Vec<Label>,
    closed_auctions: Vec<Label>,
    persons: Vec<Label>,
    items: Vec<Label>,
    /// Those of the items, in the same order.
    mailboxes: Vec<Label>,
}

/// An auction site in a document of a store.
pub struct AuctionSite {
    document: String,
    entries: EntryLabels,
    people: Label,
    open_auctions: Label,
    /// By their places in [`REGIONS`].
    regions: Vec<Label>,
    /// Persons that the generator made, `person0` and so on.
    generated_persons: usize,
    /// Categories, `category0` and so on.
    categories: usize,
    at_start: AuctionCounts,
    added: Added,
}

/// What committed transactions have added, and what they have removed.
#[derive(Debug, Default)]
struct Added {
    bidders: AtomicU64,
    removed_bidders: AtomicU64,
    persons: AtomicU64,
    mails: AtomicU64,
    removed_mails: AtomicU64,
    items: AtomicU64,
}

impl AuctionSite {
    /// Opens the site in a document that [`load`] has made. Nothing else may run on it meanwhile.
    ///
    /// # Errors
    /// There is no such document, it has no name index or is no auction site, or the store cannot
    /// read.
    pub fn open(store: &XmlStore, document: &str) -> Result<AuctionSite, XmlStoreError> {
        let transaction = store.begin();
        let site = {
            let opened = transaction.document(document)?;
            AuctionSite::of(document, &opened)?
        };
        transaction.commit()?;
        Ok(site)
    }

    fn of(name: &str, document: &Document<'_>) -> Result<AuctionSite, XmlStoreError> {
        let entries = EntryLabels {
            open_auctions: elements(document, "open_auction")?,
            closed_auctions: elements(document, "closed_auction")?,
            persons: elements(document, "person")?,
            items: elements(document, "item")?,
            mailboxes: elements(document, "mailbox")?,
        };
        let mut all = entries.items.iter().zip(&entries.mailboxes);
        if entries.items.len() != entries.mailboxes.len()
            || all.any(|(item, mailbox)| mailbox.parent().as_ref() != Some(item))
        {
            return Err(not_generated(&Label::root()));
        }
        let one = |name| -> Result<Label, XmlStoreError> {
            let mut found = elements(document, name)?;
            if found.len() == 1 {
                return Ok(found.remove(0));
            }
            Err(not_generated(&Label::root()))
        };
        let at_start = AuctionCounts {
            persons: entries.persons.len() as u64,
            items: entries.items.len() as u64,
            open_auctions: entries.open_auctions.len() as u64,
            closed_auctions: entries.closed_auctions.len() as u64,
            bidders: elements(document, "bidder")?.len() as u64,
            mails: elements(document, "mail")?.len() as u64,
        };
        Ok(AuctionSite {
            document: name.to_owned(),
            people: one("people")?,
            open_auctions: one("open_auctions")?,
            regions: REGIONS.into_iter().map(one).collect::<Result<_, _>>()?,
            generated_persons: generated(document, &entries.persons)?,
            categories: elements(document, "category")?.len(),
            entries,
            at_start,
            added: Added::default(),
        })
    }

    /// Runs a transaction within an open one of the store, which is to be committed then.
    ///
    /// # Errors
    /// A conflict, after which it may be run again in a new transaction
    /// ([`XmlStoreError::is_retryable`]); the store fails; or the document is not the generator's.
    pub fn run(
        &self,
        transaction: &AuctionTransaction,
        within: &XmlTransaction<'_>,
    ) -> Result<AuctionRun, XmlStoreError> {
        let document = if transaction.is_read_only() {
            within.document(&self.document)?
        } else {
            within.document_to_update(&self.document)?
        };
        let removed = Cell::default();
        let visit = Visit { site: self, document: &document, transaction, removed };
        let read = match &transaction.work {
            AuctionWork::PlaceBid(bid) => visit.place_bid(bid),
            AuctionWork::ReadSellerInfo(_) => visit.read_seller_info(),
            AuctionWork::Register(person) => visit.register(person),
            AuctionWork::ChangeUserInfo(info) => visit.change_user_info(info),
            AuctionWork::CheckMails => visit.check_mails(),
            AuctionWork::ReadItem => visit.read_item(),
            AuctionWork::AddMail(mail) => visit.add_mail(mail),
            AuctionWork::AddItem(item) => visit.add_item(item),
            AuctionWork::ReadRegion(region) => visit.read_region(region),
        }?;
        Ok(AuctionRun { read, removed: visit.removed.get() })
    }

    /// Counts what a transaction has added and removed. It is called when its commit has succeeded.
    pub fn committed(&self, transaction: &AuctionTransaction, run: &AuctionRun) {
        let added = &self.added;
        let (counter, removed) = match &transaction.work {
            AuctionWork::PlaceBid(_) => (&added.bidders, Some(&added.removed_bidders)),
            AuctionWork::Register(_) => (&added.persons, None),
            AuctionWork::AddMail(_) => (&added.mails, Some(&added.removed_mails)),
            AuctionWork::AddItem(_) => (&added.items, None),
            AuctionWork::ReadSellerInfo(_)
            | AuctionWork::ChangeUserInfo(_)
            | AuctionWork::CheckMails
            | AuctionWork::ReadItem
            | AuctionWork::ReadRegion(_) => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(removed) = removed {
            removed.fetch_add(run.removed, Ordering::Relaxed);
        }
    }

    /// Returns how many there have to be of everything: those at the time of opening, and those
    /// that committed transactions have added, less those that they have removed.
    #[must_use]
    pub fn expected(&self) -> AuctionCounts {
        let added = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Added { bidders, removed_bidders, mails, removed_mails, .. } = &self.added;
        let (start, items) = (self.at_start, added(&self.added.items));
        AuctionCounts {
            persons: start.persons + added(&self.added.persons),
            items: start.items + items,
            open_auctions: start.open_auctions + items,
            closed_auctions: start.closed_auctions,
            bidders: start.bidders + added(bidders) - added(removed_bidders),
            mails: start.mails + added(mails) - added(removed_mails),
        }
    }

    /// Checks the document: what transactions that are done wholly or not at all leave holds.
    /// Nothing may change it meanwhile.
    ///
    /// # Errors
    /// The store cannot read.
    pub fn check(&self, store: &XmlStore) -> Result<Vec<Condition>, XmlStoreError> {
        let transaction = store.begin();
        let conditions = {
            let document = transaction.document(&self.document)?;
            check::conditions(&document, &self.expected())?
        };
        transaction.commit()?;
        Ok(conditions)
    }

    /// Returns the mailbox of the item of this number.
    fn mailbox(&self, list: EntryList, number: usize) -> Option<&Label> {
        self.entries.mailboxes.get(number).filter(|_| list == EntryList::Items)
    }

    /// Returns the labels of the things at which transactions enter, and the name of their element.
    fn entries(&self, list: EntryList) -> (&[Label], &'static str) {
        match list {
            EntryList::OpenAuctions => (&self.entries.open_auctions, "open_auction"),
            EntryList::ClosedAuctions => (&self.entries.closed_auctions, "closed_auction"),
            EntryList::Persons => (&self.entries.persons, "person"),
            EntryList::Items => (&self.entries.items, "item"),
        }
    }
}

/// Returns all elements of a name by the name index.
fn elements(document: &Document<'_>, name: &str) -> Result<Vec<Label>, XmlStoreError> {
    let name = QName::local(name);
    let found = document.elements_below(&Label::document(), &name)?;
    found.ok_or_else(|| XmlStoreError::NoSuchIndex(generated::NAME_INDEX.to_owned()))?.collect()
}

/// Returns how many persons are the generator's. They are in front of those that were registered.
fn generated(document: &Document<'_>, persons: &[Label]) -> Result<usize, XmlStoreError> {
    let (mut low, mut high) = (0, persons.len());
    while low < high {
        let middle = low.midpoint(high);
        let id = id_of(document, &persons[middle])?;
        let number = id.strip_prefix("person").and_then(|number| number.parse::<u64>().ok());
        if number.ok_or_else(|| not_generated(&persons[middle]))? < FIRST_NEW_ID {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Ok(low)
}
