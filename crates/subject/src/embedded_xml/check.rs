//! Whether a document is as transactions that are done wholly or not at all leave it.
//!
//! The document is read twice: for identifiers, numbers, prices and the order of children, and then
//! for references, which lead forwards as well. The set of all identifiers is in memory.

use std::collections::HashSet;

use tidegate_workload::workload::Condition;
use tidegate_workload::xmark::{cents_of, money};
use tidegate_xml::parse::{Attribute, Event};
use tidegate_xml::store::{Document, XmlStoreError};

use super::AuctionCounts;
use super::models::ContentModel;

/// Elements that refer to another by an identifier, and their attribute.
const REFERENCES: [(&str, &str); 10] = [
    ("seller", "person"),
    ("buyer", "person"),
    ("author", "person"),
    ("personref", "person"),
    ("itemref", "item"),
    ("incategory", "category"),
    ("interest", "category"),
    ("watch", "open_auction"),
    ("edge", "from"),
    ("edge", "to"),
];

/// Returns all conditions of a document that has to have so many of everything.
pub(super) fn conditions(
    document: &Document<'_>,
    expected: &AuctionCounts,
) -> Result<Vec<Condition>, XmlStoreError> {
    let mut contents = Contents::default();
    document.events(|event| {
        contents.event(&event);
        Ok::<(), XmlStoreError>(())
    })?;
    let mut references = References { ids: &contents.ids, at: Place::default(), found: None };
    document.events(|event| {
        references.event(&event);
        Ok::<(), XmlStoreError>(())
    })?;
    let dangling = references.found;
    let mut conditions = vec![
        Condition { name: "current = initial + increases", violation: contents.prices },
        Condition { name: "every IDREF resolves", violation: dangling },
        Condition { name: "identifiers are unique", violation: contents.doubled },
        Condition { name: "children are in the order of the model", violation: contents.disorder },
    ];
    conditions.extend(counts(&contents.counts, expected));
    Ok(conditions)
}

/// Compares numbers.
fn counts(found: &AuctionCounts, expected: &AuctionCounts) -> impl Iterator<Item = Condition> {
    let of = |name, value: fn(&AuctionCounts) -> u64| {
        let (found, expected) = (value(found), value(expected));
        let text = || format!("/site has {found}, and {expected} are to be there");
        Condition { name, violation: (found != expected).then(text) }
    };
    [
        of("number of persons", |counts| counts.persons),
        of("number of items", |counts| counts.items),
        of("number of open auctions", |counts| counts.open_auctions),
        of("number of closed auctions", |counts| counts.closed_auctions),
        of("number of bidders", |counts| counts.bidders),
        of("number of mails", |counts| counts.mails),
    ]
    .into_iter()
}

/// Where in the document a pass is: the identifiers of the elements around, if they have one.
#[derive(Default)]
struct Place(Vec<Option<String>>);

impl Place {
    fn open(&mut self, attributes: &[Attribute]) {
        let id = attributes.iter().find(|attribute| *attribute.name.local == *"id");
        self.0.push(id.map(|attribute| attribute.value.clone()));
    }

    fn close(&mut self) {
        self.0.pop();
    }

    /// Returns the innermost identifier.
    fn name(&self) -> &str {
        self.0.iter().rev().flatten().next().map_or("/site", String::as_str)
    }
}

/// The amounts of an open auction, in cents.
#[derive(Default)]
struct Prices {
    initial: Option<u64>,
    increases: u64,
    current: Option<u64>,
    /// An amount that is none.
    malformed: Option<String>,
}

impl Prices {
    fn take(&mut self, element: &str, amount: &str) {
        let cents = cents_of(amount);
        if cents.is_none() {
            self.malformed = Some(format!("{element} is {amount:?}"));
        }
        match element {
            "initial" => self.initial = cents,
            "current" => self.current = cents,
            _ => self.increases = self.increases.saturating_add(cents.unwrap_or(0)),
        }
    }

    fn violation(&self) -> Option<String> {
        let (Some(initial), Some(current)) = (self.initial, self.current) else {
            let missing = || "initial or current is missing".to_owned();
            return Some(self.malformed.clone().unwrap_or_else(missing));
        };
        if self.malformed.is_some() {
            return self.malformed.clone();
        }
        let sum = initial.saturating_add(self.increases);
        (current != sum).then(|| {
            let [current, initial, increases] = [current, initial, self.increases].map(money);
            format!("current is {current}, initial {initial}, all increases {increases}")
        })
    }
}

/// What the first pass collects.
#[derive(Default)]
struct Contents {
    at: Place,
    /// Names of the elements around, and those of their children as far as a model asks for them.
    open: Vec<(String, Option<&'static ContentModel>, Vec<String>)>,
    text: String,
    auction: Prices,
    ids: HashSet<String>,
    counts: AuctionCounts,
    prices: Option<String>,
    doubled: Option<String>,
    disorder: Option<String>,
}

impl Contents {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::StartElement { name, attributes } => self.start(&name.local, attributes),
            Event::EndElement { name } => self.end(&name.local),
            Event::Text(text) => self.text.push_str(text),
            _ => {}
        }
    }

    fn start(&mut self, name: &str, attributes: &[Attribute]) {
        self.at.open(attributes);
        if let Some((_, Some(_), children)) = self.open.last_mut() {
            children.push(name.to_owned());
        }
        self.open.push((name.to_owned(), ContentModel::of(name), Vec::new()));
        self.text.clear();
        if let Some(id) = attributes.iter().find(|attribute| *attribute.name.local == *"id")
            && !self.ids.insert(id.value.clone())
        {
            self.doubled.get_or_insert_with(|| format!("{} is there twice", id.value));
        }
        match name {
            "person" => self.counts.persons += 1,
            "item" => self.counts.items += 1,
            "open_auction" => {
                self.counts.open_auctions += 1;
                self.auction = Prices::default();
            }
            "closed_auction" => self.counts.closed_auctions += 1,
            "bidder" => self.counts.bidders += 1,
            "mail" => self.counts.mails += 1,
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if let Some((_, Some(model), children)) = self.open.pop()
            && self.disorder.is_none()
        {
            let wrong = model.violation(&children);
            self.disorder = wrong.map(|wrong| format!("{}: {wrong}", self.at.name()));
        }
        match name {
            "initial" | "increase" | "current" => self.auction.take(name, &self.text),
            "open_auction" if self.prices.is_none() => {
                let wrong = self.auction.violation();
                self.prices = wrong.map(|wrong| format!("{}: {wrong}", self.at.name()));
            }
            _ => {}
        }
        self.at.close();
    }
}

/// The second pass.
struct References<'i> {
    ids: &'i HashSet<String>,
    at: Place,
    found: Option<String>,
}

impl References<'_> {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::StartElement { name, attributes } => {
                self.at.open(attributes);
                for attribute in *attributes {
                    let key = (&*name.local, &*attribute.name.local);
                    let refers = REFERENCES.contains(&key);
                    if refers && self.found.is_none() && !self.ids.contains(&attribute.value) {
                        let (place, to) = (self.at.name(), &attribute.value);
                        let found =
                            format!("{} in {place} refers to {to}, which is missing", key.0);
                        self.found = Some(found);
                    }
                }
            }
            Event::EndElement { .. } => self.at.close(),
            _ => {}
        }
    }
}
