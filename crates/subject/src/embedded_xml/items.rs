//! Check Mails, Read Item, Add Mail, Add Item and Read Region.

use tidegate_workload::xmark::{NewItem, NewMail, REGIONS, money};
use tidegate_xml::label::Label;
use tidegate_xml::store::{Claim, XmlStoreError};
use tidegate_xml::tree::Tree;

use super::visit::Visit;

impl Visit<'_, '_> {
    /// Reads sender, date and text of each mail in an item's mailbox.
    pub(super) fn check_mails(&self) -> Result<Vec<String>, XmlStoreError> {
        let item = self.enter()?;
        let mailbox = self.child(&item, "mailbox")?;
        let mut read = Vec::new();
        for mail in self.children(&mailbox)? {
            for child in self.children(&mail?)? {
                let child = child?;
                match self.name(&child)?.as_ref().map(|name| &*name.local) {
                    Some("from" | "date") => read.push(self.read(&child)?),
                    Some("text") => read.push(self.document.string_value(&child)?),
                    _ => {}
                }
            }
        }
        Ok(read)
    }

    /// Reads location, name and description of an item, and the names of its categories.
    pub(super) fn read_item(&self) -> Result<Vec<String>, XmlStoreError> {
        let item = self.enter()?;
        let mut read = Vec::new();
        for child in self.children(&item)? {
            let child = child?;
            match self.name(&child)?.as_ref().map(|name| &*name.local) {
                Some("location" | "name") => read.push(self.read(&child)?),
                Some("description") => read.push(self.document.string_value(&child)?),
                Some("incategory") => {
                    let id = self.attribute(&child, "category")?;
                    let category = self.by_id("category", &id)?;
                    read.push(self.read(&self.child(&category, "name")?)?);
                }
                Some("mailbox") => break,
                _ => {}
            }
        }
        Ok(read)
    }

    /// Appends a mail to an item's mailbox, and removes the first one if it is full.
    pub(super) fn add_mail(&self, mail: &NewMail) -> Result<Vec<String>, XmlStoreError> {
        let item = self.enter()?;
        let mailbox = self.child(&item, "mailbox")?;
        let mut mails = Vec::new();
        if self.transaction.keep.is_some() {
            mails = self.children(&mailbox)?.collect::<Result<_, _>>()?;
        }
        let new = self.append_behind_last(&mailbox, "mail")?;
        self.append_leaf(&new, "from", &mail.from)?;
        self.append_leaf(&new, "to", &mail.to)?;
        self.append_leaf(&new, "date", &mail.date)?;
        self.append_leaf(&new, "text", &mail.text)?;
        if let Some(oldest) = mails.first().filter(|_| self.is_full(mails.len())) {
            self.remove_oldest(oldest)?;
        }
        Ok(Vec::new())
    }

    /// Appends an item without mails to its region, and an open auction for it.
    pub(super) fn add_item(&self, item: &NewItem) -> Result<Vec<String>, XmlStoreError> {
        let region = self.region(item.region);
        self.claim(Claim::Append(region))?;
        self.claim(Claim::Append(&self.site.open_auctions))?;
        let new = self.append_behind_last(region, "item")?;
        self.fill_item(&new, item)?;
        let auction = self.append_behind_last(&self.site.open_auctions, "open_auction")?;
        self.fill_auction(&auction, item)?;
        Ok(Vec::new())
    }

    /// Reads location and name of each item of a region: a long reader.
    pub(super) fn read_region(&self, region: &str) -> Result<Vec<String>, XmlStoreError> {
        let region = self.region(region);
        self.claim(Claim::ReadSubtree(region))?;
        let mut read = Vec::new();
        for item in self.children(region)? {
            let item = item?;
            read.push(self.read(&self.child(&item, "location")?)?);
            read.push(self.read(&self.child(&item, "name")?)?);
        }
        Ok(read)
    }

    fn region(&self, name: &str) -> &Label {
        let number = REGIONS.iter().position(|region| *region == name);
        &self.site.regions[number.expect("it is drawn from the regions")]
    }

    fn fill_item(&self, place: &Label, item: &NewItem) -> Result<(), XmlStoreError> {
        self.set_attribute(place, "id", &format!("item{}", item.id))?;
        self.append_leaf(place, "location", &item.location)?;
        self.append_leaf(place, "quantity", &item.quantity)?;
        self.append_leaf(place, "name", &item.name)?;
        self.append_leaf(place, "payment", item.payment)?;
        let description = self.append(place, "description")?;
        self.append_leaf(&description, "text", &item.description)?;
        self.append_leaf(place, "shipping", item.shipping)?;
        for category in &item.categories {
            self.append_reference(place, ("incategory", "category"), &self.category(*category))?;
        }
        self.append(place, "mailbox").map(|_| ())
    }

    fn fill_auction(&self, place: &Label, item: &NewItem) -> Result<(), XmlStoreError> {
        let auction = &item.auction;
        self.set_attribute(place, "id", &format!("open_auction{}", item.id))?;
        let initial = money(auction.initial_cents);
        self.append_leaf(place, "initial", &initial)?;
        self.append_leaf(place, "current", &initial)?;
        self.append_reference(place, ("itemref", "item"), &format!("item{}", item.id))?;
        self.append_reference(place, ("seller", "person"), &self.person(auction.seller))?;
        let annotation = self.append(place, "annotation")?;
        let author = self.person(auction.author);
        self.append_reference(&annotation, ("author", "person"), &author)?;
        self.append_leaf(&annotation, "happiness", &auction.happiness)?;
        self.append_leaf(place, "quantity", &item.quantity)?;
        self.append_leaf(place, "type", auction.kind)?;
        let interval = self.append(place, "interval")?;
        self.append_leaf(&interval, "start", &auction.start)?;
        self.append_leaf(&interval, "end", &auction.end)
    }
}
