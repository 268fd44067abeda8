//! One transaction with all that was drawn for it.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::skew::{EntryDraw, Quantile};
use super::{
    ADD_ITEM, ADD_MAIL, CHANGE_USER_INFO, CHECK_MAILS, PLACE_BID, READ_ITEM, READ_REGION,
    READ_SELLER_INFO, REGISTER, no_sql,
};
use crate::workload::Transaction;
use crate::{Running, Session};

/// The regions, in the order of the document.
pub const REGIONS: [&str; 6] = ["africa", "asia", "australia", "europe", "namerica", "samerica"];

/// How a transaction comes to the children of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildAccess {
    /// To the first child, and from there to the next sibling.
    Navigation,
    /// As a stream of all children.
    Stream,
}

/// A transaction as data. Running it again runs the same.
#[derive(Clone, Debug, PartialEq)]
pub struct AuctionTransaction {
    pub work: AuctionWork,
    /// Where it enters, if it does so at random.
    pub entry: EntryDraw,
    pub access: ChildAccess,
    /// Whether it locks what it needs at the end before it reads it.
    pub preventive: bool,
    /// How many bidders or mails a list may have before one that is added replaces the oldest;
    /// `None` for any number.
    pub keep: Option<NonZeroU32>,
}

/// What a transaction does, with its values.
#[derive(Clone, Debug, PartialEq)]
pub enum AuctionWork {
    PlaceBid(NewBid),
    ReadSellerInfo(AuctionEnd),
    Register(Box<NewPerson>),
    /// At least one part is there.
    ChangeUserInfo(Box<PersonInfo>),
    CheckMails,
    ReadItem,
    AddMail(NewMail),
    AddItem(Box<NewItem>),
    /// Reads location and name of each item of a region, one of [`REGIONS`].
    ReadRegion(&'static str),
}

/// Whether an auction is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuctionEnd {
    Open,
    Closed,
}

/// Things of which a transaction enters at a random one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryList {
    OpenAuctions,
    ClosedAuctions,
    Persons,
    Items,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewBid {
    /// As `MM/DD/YYYY`.
    pub date: String,
    /// As `HH:MM:SS`.
    pub time: String,
    /// Who bids, among the persons that were there at the start.
    pub person: Quantile,
    /// By how many cents.
    pub increase_cents: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewPerson {
    /// The number in the identifier; above all that the generator gives out.
    pub id: u64,
    pub name: String,
    pub email: String,
    pub info: PersonInfo,
}

/// What a person may have or not.
#[derive(Clone, Debug, PartialEq)]
pub struct PersonInfo {
    pub phone: Option<String>,
    pub address: Option<PersonAddress>,
    pub profile: Option<PersonProfile>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PersonAddress {
    pub street: String,
    pub city: String,
    pub country: String,
    pub province: Option<String>,
    pub zipcode: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PersonProfile {
    /// An amount with two decimals.
    pub income: String,
    /// Categories, for a new profile only.
    pub interests: Vec<Quantile>,
    pub education: Option<&'static str>,
    pub gender: Option<&'static str>,
    pub business: &'static str,
    pub age: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewMail {
    pub from: String,
    pub to: String,
    /// As `MM/DD/YYYY`.
    pub date: String,
    pub text: String,
}

/// An item, and the open auction for it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewItem {
    /// The number in the identifiers of both; above all that the generator gives out.
    pub id: u64,
    /// The name of its region, one of [`REGIONS`].
    pub region: &'static str,
    pub location: String,
    pub quantity: String,
    pub name: String,
    pub payment: &'static str,
    pub description: String,
    pub shipping: &'static str,
    /// At least one.
    pub categories: Vec<Quantile>,
    pub auction: NewAuction,
}

/// An auction without bids.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAuction {
    pub initial_cents: u64,
    /// Who sells, among the persons that were there at the start.
    pub seller: Quantile,
    /// Who writes the annotation, among the same.
    pub author: Quantile,
    pub happiness: String,
    /// `Featured` or `Regular`.
    pub kind: &'static str,
    /// As `MM/DD/YYYY`.
    pub start: String,
    /// As `MM/DD/YYYY`.
    pub end: String,
}

impl AuctionTransaction {
    /// Returns the things of which it enters at a random one; `None` if it enters at a fixed place.
    pub fn entry_list(&self) -> Option<EntryList> {
        match self.work {
            AuctionWork::PlaceBid(_) | AuctionWork::ReadSellerInfo(AuctionEnd::Open) => {
                Some(EntryList::OpenAuctions)
            }
            AuctionWork::ReadSellerInfo(AuctionEnd::Closed) => Some(EntryList::ClosedAuctions),
            AuctionWork::ChangeUserInfo(_) => Some(EntryList::Persons),
            AuctionWork::CheckMails | AuctionWork::ReadItem | AuctionWork::AddMail(_) => {
                Some(EntryList::Items)
            }
            AuctionWork::Register(_) | AuctionWork::AddItem(_) | AuctionWork::ReadRegion(_) => None,
        }
    }
}

impl Transaction for AuctionTransaction {
    fn kind(&self) -> usize {
        match self.work {
            AuctionWork::PlaceBid(_) => PLACE_BID,
            AuctionWork::ReadSellerInfo(_) => READ_SELLER_INFO,
            AuctionWork::Register(_) => REGISTER,
            AuctionWork::ChangeUserInfo(_) => CHANGE_USER_INFO,
            AuctionWork::CheckMails => CHECK_MAILS,
            AuctionWork::ReadItem => READ_ITEM,
            AuctionWork::AddMail(_) => ADD_MAIL,
            AuctionWork::AddItem(_) => ADD_ITEM,
            AuctionWork::ReadRegion(_) => READ_REGION,
        }
    }

    fn is_read_only(&self) -> bool {
        matches!(
            self.work,
            AuctionWork::ReadSellerInfo(_)
                | AuctionWork::CheckMails
                | AuctionWork::ReadItem
                | AuctionWork::ReadRegion(_)
        )
    }

    fn auction(&self) -> Option<&AuctionTransaction> {
        Some(self)
    }

    fn run(self: Arc<Self>, _session: Session<'_>) -> Running<'_> {
        Box::pin(async { Err(no_sql()) })
    }
}
