//! Which children elements have, in which order, by the document type of `XMark`.

/// How often a child may be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occurs {
    Once,
    Optional,
    Repeated,
    AtLeastOnce,
}

use Occurs::{AtLeastOnce, Once, Optional, Repeated};

/// The content model of an element: its children in their order.
#[derive(Debug)]
pub(crate) struct ContentModel {
    pub(crate) element: &'static str,
    pub(crate) parts: &'static [(&'static str, Occurs)],
}

pub(crate) static PERSON: ContentModel = ContentModel {
    element: "person",
    parts: &[
        ("name", Once),
        ("emailaddress", Once),
        ("phone", Optional),
        ("address", Optional),
        ("homepage", Optional),
        ("creditcard", Optional),
        ("profile", Optional),
        ("watches", Optional),
    ],
};

pub(crate) static ADDRESS: ContentModel = ContentModel {
    element: "address",
    parts: &[
        ("street", Once),
        ("city", Once),
        ("country", Once),
        ("province", Optional),
        ("zipcode", Once),
    ],
};

pub(crate) static PROFILE: ContentModel = ContentModel {
    element: "profile",
    parts: &[
        ("interest", Repeated),
        ("education", Optional),
        ("gender", Optional),
        ("business", Once),
        ("age", Optional),
    ],
};

static ITEM: ContentModel = ContentModel {
    element: "item",
    parts: &[
        ("location", Once),
        ("quantity", Once),
        ("name", Once),
        ("payment", Once),
        ("description", Once),
        ("shipping", Once),
        ("incategory", AtLeastOnce),
        ("mailbox", Once),
    ],
};

static MAIL: ContentModel = ContentModel {
    element: "mail",
    parts: &[("from", Once), ("to", Once), ("date", Once), ("text", Once)],
};

static OPEN_AUCTION: ContentModel = ContentModel {
    element: "open_auction",
    parts: &[
        ("initial", Once),
        ("reserve", Optional),
        ("bidder", Repeated),
        ("current", Once),
        ("privacy", Optional),
        ("itemref", Once),
        ("seller", Once),
        ("annotation", Once),
        ("quantity", Once),
        ("type", Once),
        ("interval", Once),
    ],
};

static BIDDER: ContentModel = ContentModel {
    element: "bidder",
    parts: &[("date", Once), ("time", Once), ("personref", Once), ("increase", Once)],
};

/// Those of all elements that transactions add to or change.
static ALL: [&ContentModel; 7] =
    [&PERSON, &ADDRESS, &PROFILE, &ITEM, &MAIL, &OPEN_AUCTION, &BIDDER];

impl ContentModel {
    /// Returns the model of an element, if transactions add to it or change it.
    pub(crate) fn of(element: &str) -> Option<&'static ContentModel> {
        ALL.into_iter().find(|model| model.element == element)
    }

    /// Returns the place of a child in the order.
    pub(crate) fn place_of(&self, name: &str) -> Option<usize> {
        self.parts.iter().position(|(own, _)| *own == name)
    }

    /// Returns what is wrong with the children of an element.
    pub(crate) fn violation(&self, children: &[String]) -> Option<String> {
        let mut counts = vec![0_usize; self.parts.len()];
        let mut last = 0;
        for child in children {
            let Some(place) = self.place_of(child) else {
                return Some(format!("{child} is no child of {}", self.element));
            };
            if place < last {
                return Some(format!("{child} is behind {}", self.parts[last].0));
            }
            last = place;
            counts[place] += 1;
        }
        let wrong = counts.iter().zip(self.parts).find(|(count, (_, occurs))| match occurs {
            Once => **count != 1,
            Optional => **count > 1,
            AtLeastOnce => **count == 0,
            Repeated => false,
        });
        wrong.map(|(count, (name, _))| format!("{} has {count} of {name}", self.element))
    }
}
