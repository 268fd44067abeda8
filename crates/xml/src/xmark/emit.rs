//! The generator's output: elements by their tags.

use std::sync::Arc;

use crate::name::QName;
use crate::parse::{Attribute, Event};

macro_rules! tags {
    ($($tag:ident $written:literal,)*) => {
        /// The names of elements and attributes.
        #[derive(Debug, Clone, Copy)]
        pub(super) enum Tag { $($tag,)* }

        const WRITTEN: &[&str] = &[$($written,)*];
    };
}

tags! {
    Address "address", Africa "africa", Age "age", Annotation "annotation", Asia "asia",
    Australia "australia", Author "author", Bidder "bidder", Bold "bold", Business "business",
    Buyer "buyer", Categories "categories", Category "category", Catgraph "catgraph",
    City "city", ClosedAuction "closed_auction", ClosedAuctions "closed_auctions",
    Country "country", Creditcard "creditcard", Current "current", Date "date",
    Description "description", Edge "edge", Education "education",
    Emailaddress "emailaddress", Emph "emph", End "end", Europe "europe", Featured "featured",
    From "from", Gender "gender", Happiness "happiness", Homepage "homepage", Id "id",
    Incategory "incategory", Income "income", Increase "increase", Initial "initial",
    Interest "interest", Interval "interval", Item "item", Itemref "itemref",
    Keyword "keyword", Listitem "listitem", Location "location", Mail "mail",
    Mailbox "mailbox", Name "name", Namerica "namerica", OpenAuction "open_auction",
    OpenAuctions "open_auctions", Parlist "parlist", Payment "payment", People "people",
    Person "person", Personref "personref", Phone "phone", Price "price", Privacy "privacy",
    Profile "profile", Province "province", Quantity "quantity", Regions "regions",
    Reserve "reserve", Samerica "samerica", Seller "seller", Shipping "shipping", Site "site",
    Start "start", Street "street", Text "text", Time "time", To "to", Type "type",
    Watch "watch", Watches "watches", Zipcode "zipcode",
}

/// Passes a document on as events.
pub(super) struct Emitter<S> {
    sink: S,
    names: Vec<Arc<QName>>,
    attributes: Vec<Attribute>,
}

impl<E, S: FnMut(Event<'_>) -> Result<(), E>> Emitter<S> {
    pub(super) fn new(sink: S) -> Emitter<S> {
        let names = WRITTEN.iter().map(|name| Arc::new(QName::local(name))).collect();
        Emitter { sink, names, attributes: Vec::new() }
    }

    pub(super) fn event(&mut self, event: Event<'_>) -> Result<(), E> {
        (self.sink)(event)
    }

    /// Adds an attribute to the element that is opened next.
    pub(super) fn attribute(&mut self, tag: Tag, value: String) {
        let name = Arc::clone(&self.names[tag as usize]);
        self.attributes.push(Attribute { name, value, is_id: matches!(tag, Tag::Id) });
    }

    pub(super) fn open(&mut self, tag: Tag) -> Result<(), E> {
        let name = &self.names[tag as usize];
        (self.sink)(Event::StartElement { name, attributes: &self.attributes })?;
        self.attributes.clear();
        Ok(())
    }

    pub(super) fn close(&mut self, tag: Tag) -> Result<(), E> {
        (self.sink)(Event::EndElement { name: &self.names[tag as usize] })
    }

    pub(super) fn text(&mut self, text: &str) -> Result<(), E> {
        if text.is_empty() { Ok(()) } else { (self.sink)(Event::Text(text)) }
    }

    /// An element with nothing but text.
    pub(super) fn leaf(&mut self, tag: Tag, text: &str) -> Result<(), E> {
        self.open(tag)?;
        self.text(text)?;
        self.close(tag)
    }

    /// An empty element that refers to another by one attribute.
    pub(super) fn reference(&mut self, tag: Tag, attribute: Tag, to: String) -> Result<(), E> {
        self.attribute(attribute, to);
        self.open(tag)?;
        self.close(tag)
    }
}
