//! Place Bid and Read Seller Info.

use tidegate_workload::xmark::{NewBid, cents_of, money};
use tidegate_xml::label::Label;
use tidegate_xml::store::{Claim, Place, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::visit::{Visit, not_generated};

/// The head of an open auction, as far as its price.
struct Bids {
    initial: Label,
    bidders: Vec<Label>,
    current: Label,
}

impl Visit<'_, '_> {
    /// Reads the current price and the last bidder of an open auction, inserts a bidder behind the
    /// last one and in front of the price, and sets the price. If the auction has so many bidders
    /// as it keeps, the first one becomes part of the initial price.
    pub(super) fn place_bid(&self, bid: &NewBid) -> Result<Vec<String>, XmlStoreError> {
        let auction = self.enter()?;
        let Bids { initial, bidders, current } = self.bids(&auction)?;
        let text = self.text_of(&current)?.ok_or_else(|| not_generated(&current))?;
        let price = self.document.content(&text)?;
        let highest = bidders.last().map(|last| self.highest_bidder(last)).transpose()?;
        let place = bidders.last().cloned().map_or(Place::Before(current), Place::After);
        let bidder = self.insert(&place, "bidder")?;
        self.append_leaf(&bidder, "date", &bid.date)?;
        self.append_leaf(&bidder, "time", &bid.time)?;
        self.append_reference(&bidder, ("personref", "person"), &self.person(bid.person))?;
        self.append_leaf(&bidder, "increase", &money(bid.increase_cents))?;
        self.raise(&text, &price, bid.increase_cents)?;
        if let Some(oldest) = bidders.first().filter(|_| self.is_full(bidders.len())) {
            let increase = self.read(&self.child(oldest, "increase")?)?;
            let increase = cents_of(&increase).ok_or_else(|| not_generated(oldest))?;
            let text = self.text_of(&initial)?.ok_or_else(|| not_generated(&initial))?;
            self.raise(&text, &self.document.content(&text)?, increase)?;
            self.remove_oldest(oldest)?;
        }
        Ok([price].into_iter().chain(highest).collect())
    }

    /// Adds to the price in a text.
    fn raise(&self, text: &Label, price: &str, cents: u64) -> Result<(), XmlStoreError> {
        let sum = cents_of(price).and_then(|price| price.checked_add(cents));
        self.document.set_value(text, &money(sum.ok_or_else(|| not_generated(text))?))
    }

    /// Goes through an open auction as far as its price.
    fn bids(&self, auction: &Label) -> Result<Bids, XmlStoreError> {
        let (mut initial, mut bidders) = (None, Vec::new());
        for child in self.children(auction)? {
            let child = child?;
            match self.name(&child)?.as_ref().map(|name| &*name.local) {
                Some("initial") => initial = Some(child),
                Some("bidder") => bidders.push(child),
                Some("current") => {
                    let initial = initial.ok_or_else(|| not_generated(auction))?;
                    return Ok(Bids { initial, bidders, current: child });
                }
                _ => {}
            }
        }
        Err(not_generated(auction))
    }

    fn highest_bidder(&self, bidder: &Label) -> Result<String, XmlStoreError> {
        let reference = self.child(bidder, "personref")?;
        self.attribute(&reference, "person")
    }

    /// Goes from an open or closed auction to its seller, from there by the index to the person,
    /// and reads name, e-mail address and address.
    pub(super) fn read_seller_info(&self) -> Result<Vec<String>, XmlStoreError> {
        let auction = self.enter()?;
        let seller = self.child(&auction, "seller")?;
        let id = self.attribute(&seller, "person")?;
        let person = self.by_id("person", &id)?;
        self.claim(Claim::ReadSubtree(&person))?;
        let mut read = vec![id];
        for child in self.children(&person)? {
            let child = child?;
            match self.name(&child)?.as_ref().map(|name| &*name.local) {
                Some("name" | "emailaddress") => read.push(self.read(&child)?),
                Some("phone") => {}
                Some("address") => {
                    for line in self.children(&child)? {
                        read.push(self.read(&line?)?);
                    }
                }
                // What is asked for is in front.
                _ => break,
            }
        }
        Ok(read)
    }
}
