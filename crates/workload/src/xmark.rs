//! `XMark`'s auction site under change: the eight transactions of the study of `BrackitDB`.
//!
//! The study (Hiller, Sauer, Härder: Observations on Fine-grained Locking in XML DBMSs, Section 3)
//! names eight transactions with their weights on a document of `XMark`, and does not say what is
//! in them.
//! Their operations are ours; `docs/xmark.md` lists them. Here are the inputs only: an
//! [`AuctionTransaction`] is data, drawn by a client from its seed, and running it again runs the
//! same. `embedded_xml` and `basex` of `tidegate-subject` run it.
//!
//! # Entry by skew
//! A transaction enters the document at a random open auction, item or person. Its place among all
//! of these is a [`Quantile`] of a normal distribution around the middle; see [`Skew`].
//!
//! # Variants
//! Each transaction goes from child to child by single steps or asks for the children as a stream
//! ([`ChildAccess`]), and may lock first what it needs at the end ([`Xmark::preventive`]). All four
//! make the same of the document.
//!
//! # Lists that do not grow
//! Each bid makes an auction longer, and each mail a mailbox, and transactions go through both from
//! child to child. So throughput falls while a run goes on, and runs of different lengths are not
//! comparable. With [`Xmark::keep`] such a list keeps its length from a number on, and the work of
//! a transaction is the same at the beginning and at the end of a run.
//!
//! # Limits
//! * There are no tables and no SQL: a run on an SQL session fails and says so.
//! * A client of the same number and seed gives out the same identifiers again. Runs on one
//!   document need seeds of their own.

mod client;
mod skew;
mod texts;
mod transaction;

#[cfg(test)]
mod tests;

pub use skew::{EntryDraw, Quantile, Skew, SkewError};
pub use texts::{cents_of, money};
pub use transaction::{
    AuctionEnd, AuctionTransaction, AuctionWork, ChildAccess, EntryList, NewAuction, NewBid,
    NewItem, NewMail, NewPerson, PersonAddress, PersonInfo, PersonProfile, REGIONS,
};

use std::num::NonZeroU32;

use thiserror::Error;

use crate::workload::{Client, Condition, Depth, Kind, Unfit, Workload};
use crate::{Dialect, Failure, Running, Session, Table, Value};
use client::Bidder;

/// The place of Place Bid among the kinds.
pub const PLACE_BID: usize = 0;
/// The place of Read Seller Info.
pub const READ_SELLER_INFO: usize = 1;
/// The place of Register.
pub const REGISTER: usize = 2;
/// The place of Change User Info.
pub const CHANGE_USER_INFO: usize = 3;
/// The place of Check Mails.
pub const CHECK_MAILS: usize = 4;
/// The place of Read Item.
pub const READ_ITEM: usize = 5;
/// The place of Add Mail.
pub const ADD_MAIL: usize = 6;
/// The place of Add Item.
pub const ADD_ITEM: usize = 7;
/// The place of Read Region, which is not the study's.
pub const READ_REGION: usize = 8;

const PHASES: &[&str] = &["all"];

const KINDS: [Kind; 9] = [
    Kind { name: "place-bid", phases: PHASES },
    Kind { name: "read-seller-info", phases: PHASES },
    Kind { name: "register", phases: PHASES },
    Kind { name: "change-user-info", phases: PHASES },
    Kind { name: "check-mails", phases: PHASES },
    Kind { name: "read-item", phases: PHASES },
    Kind { name: "add-mail", phases: PHASES },
    Kind { name: "add-item", phases: PHASES },
    Kind { name: "read-region", phases: PHASES },
];

/// How often each kind of transaction is drawn beside the others, by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuctionMix([u16; 8]);

impl AuctionMix {
    /// The weights of the study's Table 1.
    pub const STUDY: AuctionMix = AuctionMix([9, 4, 1, 4, 7, 5, 4, 1]);

    /// The transactions of the study that change something, with their weights.
    pub const UPDATES: AuctionMix = AuctionMix([9, 0, 1, 4, 0, 0, 4, 1]);

    /// A mix of weights by the places of the kinds.
    ///
    /// # Errors
    /// All are 0.
    pub fn new(weights: [u16; 8]) -> Result<AuctionMix, AuctionMixError> {
        if weights == [0; 8] { Err(AuctionMixError) } else { Ok(AuctionMix(weights)) }
    }

    /// The weights by the places of the kinds.
    pub fn weights(self) -> [u16; 8] {
        self.0
    }
}

/// No kind of transaction has a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("all weights are 0; give at least one transaction a weight")]
pub struct AuctionMixError;

/// How many persons the document has at factor 10.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuctionPersons {
    /// 255,000, as the generator of `XMark` has it.
    #[default]
    Original,
    /// 250,000, as the study's Figure 5 prints it.
    Study,
}

/// The workload: which document, and what its clients do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Xmark {
    /// The document's scaling factor: about 110 MB at 1.
    pub factor: f64,
    pub persons: AuctionPersons,
    /// The document's seed; clients have another.
    pub seed: u64,
    pub mix: AuctionMix,
    /// The weight of Read Region beside the weights of the mix: a long reader that the study does
    /// not have.
    pub read_region: u16,
    pub skew: Skew,
    pub access: ChildAccess,
    /// Whether a transaction locks what it needs at the end before it reads it.
    pub preventive: bool,
    /// How many bidders an auction keeps, and mails a mailbox: who adds one to so many removes the
    /// oldest. `None` keeps all, as the study does.
    pub keep: Option<NonZeroU32>,
}

impl Xmark {
    /// The study's mix with low skew, by navigation, without preventive locks.
    pub fn new(factor: f64, seed: u64) -> Self {
        Xmark {
            factor,
            persons: AuctionPersons::default(),
            seed,
            mix: AuctionMix::STUDY,
            read_region: 0,
            skew: Skew::LOW,
            access: ChildAccess::Navigation,
            preventive: false,
            keep: None,
        }
    }
}

impl Workload for Xmark {
    fn name(&self) -> &'static str {
        "xmark"
    }

    fn kinds(&self) -> &'static [Kind] {
        &KINDS
    }

    fn validate(&self, dialect: Dialect) -> Result<(), Unfit> {
        Err(Unfit(format!(
            "the workload xmark changes an XML document, and a database of the dialect {dialect:?} \
             has none; run it on an XML store"
        )))
    }

    fn auction_site(&self) -> Option<&Xmark> {
        Some(self)
    }

    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    fn rows(&self, _table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        Box::new(std::iter::empty())
    }

    fn client(&self, number: usize, _clients: usize, seed: u64) -> Box<dyn Client> {
        Box::new(Bidder::new(*self, number, seed))
    }

    fn check<'d>(&self, _session: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        Box::pin(async { Err(no_sql()) })
    }
}

/// What a transaction, or a check, says on an SQL session.
fn no_sql() -> Failure {
    Failure::Refused {
        // SQLSTATE: feature not supported.
        code: "0A000".to_owned(),
        message: "the workload xmark has no SQL; run it on an XML store".to_owned(),
    }
}
