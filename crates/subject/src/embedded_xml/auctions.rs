//! Place Bid and Read Seller Info.

use tidegate_workload::xmark::{NewBid, cents_of, money};
use tidegate_xml::label::Label;
use tidegate_xml::store::{Claim, Place, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::visit::{Visit, not_generated};

impl Visit<'_, '_> {
    /// Reads the current price and the last bidder of an open auction, inserts a bidder behind the
    /// last one and in front of the price, and sets the price.
    pub(super) fn place_bid(&self, bid: &NewBid) -> Result<Vec<String>, XmlStoreError> {
        let auction = self.enter()?;
        let (last, current) = self.bids(&auction)?;
        let text = self.text_of(&current)?.ok_or_else(|| not_generated(&current))?;
        let price = self.document.content(&text)?;
        let highest = last.as_ref().map(|last| self.highest_bidder(last)).transpose()?;
        let place = last.map_or(Place::Before(current), Place::After);
        let bidder = self.insert(&place, "bidder")?;
        self.append_leaf(&bidder, "date", &bid.date)?;
        self.append_leaf(&bidder, "time", &bid.time)?;
        self.append_reference(&bidder, ("personref", "person"), &self.person(bid.person))?;
        self.append_leaf(&bidder, "increase", &money(bid.increase_cents))?;
        let cents = cents_of(&price).and_then(|cents| cents.checked_add(bid.increase_cents));
        let cents = cents.ok_or_else(|| not_generated(&text))?;
        self.document.set_value(&text, &money(cents))?;
        Ok([price].into_iter().chain(highest).collect())
    }

    /// Goes through an open auction as far as its price. Returns its last bidder, and the price.
    fn bids(&self, auction: &Label) -> Result<(Option<Label>, Label), XmlStoreError> {
        let mut last = None;
        for child in self.children(auction)? {
            let child = child?;
            match self.name(&child)?.as_ref().map(|name| &*name.local) {
                Some("bidder") => last = Some(child),
                Some("current") => return Ok((last, child)),
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
