//! The elements of the site, in document order.

use std::fmt::Write;

use tidegate_random::SplitMix64;

use super::XmarkGenerator;
use super::draw::{Repetition, cents, date, money, normal_index, time, uniform_index};
use super::emit::{Emitter, Tag};
use super::prose::Prose;
use super::words::pick;
use crate::parse::Event;

/// How often children are repeated.
pub mod repetitions {
    use super::Repetition;

    /// Categories of an item.
    pub const INCATEGORY: Repetition = Repetition::new(1, 3.0, 10);
    /// Bids for an item.
    pub const BIDDER: Repetition = Repetition::new(0, 5.0, 200);
    /// Letters in the mailbox of an item.
    pub const MAIL: Repetition = Repetition::new(0, 1.0, 250);
    /// Categories that a person with a profile likes.
    pub const INTEREST: Repetition = Repetition::new(0, 3.0, 25);
    /// Auctions that a person with a list of them watches.
    pub const WATCH: Repetition = Repetition::new(0, 4.0, 100);
    /// Items of a list.
    pub const LISTITEM: Repetition = Repetition::new(2, 1.0, 5);
}

/// Probability of an optional part.
const OPTIONAL: f64 = 0.5;
/// Lists inside one another, at most: deeper ones have texts only.
const NESTED_LISTS: u32 = 16;

const REGIONS: [Tag; 6] =
    [Tag::Africa, Tag::Asia, Tag::Australia, Tag::Europe, Tag::Namerica, Tag::Samerica];
const COUNTRIES: [&str; 16] = [
    "Argentina",
    "Brazil",
    "Canada",
    "Chile",
    "Egypt",
    "France",
    "Germany",
    "Ghana",
    "India",
    "Italy",
    "Japan",
    "Kenya",
    "Mexico",
    "Norway",
    "Peru",
    "Spain",
];
const PAYMENTS: [&str; 4] = ["Card", "Cash", "Cheque", "Transfer"];
const SHIPPING: [&str; 4] =
    ["The buyer pays", "The seller pays", "Within the country only", "To every country"];
const EDUCATION: [&str; 4] = ["School", "College", "University", "Other"];

/// What an object's random numbers are for; each kind has its own.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Item = 1,
    Category,
    Edge,
    Person,
    OpenAuction,
    ClosedAuction,
}

/// A document while it is generated.
pub(super) struct Site<'g, S> {
    generator: &'g XmarkGenerator,
    emitter: Emitter<S>,
    prose: Prose<'g>,
    random: SplitMix64,
}

impl<'g, E, S: FnMut(Event<'_>) -> Result<(), E>> Site<'g, S> {
    pub(super) fn new(generator: &'g XmarkGenerator, sink: S) -> Site<'g, S> {
        Site {
            generator,
            emitter: Emitter::new(sink),
            prose: Prose::new(&generator.vocabulary),
            random: SplitMix64::new(generator.seed),
        }
    }

    pub(super) fn document(&mut self) -> Result<(), E> {
        let numbers = self.generator.cardinalities;
        self.emitter.event(Event::StartDocument)?;
        self.emitter.open(Tag::Site)?;
        self.regions(&numbers.items)?;
        self.each(Tag::Categories, Kind::Category, numbers.categories, Site::category)?;
        self.each(Tag::Catgraph, Kind::Edge, numbers.categories, |site, _| site.edge())?;
        self.each(Tag::People, Kind::Person, numbers.persons, Site::person)?;
        let (open, closed) = (numbers.open_auctions, numbers.closed_auctions);
        self.each(Tag::OpenAuctions, Kind::OpenAuction, open, Site::open_auction)?;
        self.each(Tag::ClosedAuctions, Kind::ClosedAuction, closed, Site::closed_auction)?;
        self.emitter.close(Tag::Site)?;
        self.emitter.event(Event::EndDocument)
    }

    /// Emits an element whose children are `count` objects of one kind.
    fn each(
        &mut self,
        tag: Tag,
        kind: Kind,
        count: u64,
        object: impl Fn(&mut Self, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        self.emitter.open(tag)?;
        for index in 0..count {
            self.begin(kind, index);
            object(self, index)?;
        }
        self.emitter.close(tag)
    }

    /// Gives an object random numbers of its own.
    fn begin(&mut self, kind: Kind, index: u64) {
        let own = SplitMix64::mix((kind as u64) << 56 | index);
        self.random = SplitMix64::new(SplitMix64::mix(self.generator.seed ^ own));
    }

    fn regions(&mut self, items: &[u64; 6]) -> Result<(), E> {
        self.emitter.open(Tag::Regions)?;
        let mut index = 0;
        for (region, &count) in REGIONS.into_iter().zip(items) {
            self.emitter.open(region)?;
            for _ in 0..count {
                self.begin(Kind::Item, index);
                self.item(index)?;
                index += 1;
            }
            self.emitter.close(region)?;
        }
        self.emitter.close(Tag::Regions)
    }

    fn item(&mut self, index: u64) -> Result<(), E> {
        self.emitter.attribute(Tag::Id, format!("item{index}"));
        if self.random.next_chance(0.1) {
            self.emitter.attribute(Tag::Featured, "yes".to_owned());
        }
        self.emitter.open(Tag::Item)?;
        let country = self.country();
        self.emitter.leaf(Tag::Location, country)?;
        self.quantity()?;
        self.words(Tag::Name, 1)?;
        let first = self.random.next_below(4) as usize;
        let payments = PAYMENTS[first..].join(", ");
        self.emitter.leaf(Tag::Payment, &payments)?;
        self.description()?;
        let shipping = pick(&mut self.random, &SHIPPING);
        self.emitter.leaf(Tag::Shipping, shipping)?;
        for _ in 0..repetitions::INCATEGORY.draw(&mut self.random) {
            let category = self.category_id();
            self.emitter.reference(Tag::Incategory, Tag::Category, category)?;
        }
        self.emitter.open(Tag::Mailbox)?;
        for _ in 0..repetitions::MAIL.draw(&mut self.random) {
            self.mail()?;
        }
        self.emitter.close(Tag::Mailbox)?;
        self.emitter.close(Tag::Item)
    }

    fn mail(&mut self) -> Result<(), E> {
        self.emitter.open(Tag::Mail)?;
        for tag in [Tag::From, Tag::To] {
            let (mut name, family) = self.name();
            let _ = write!(name, " mailto:{family}@");
            self.push_domain(&mut name);
            self.emitter.leaf(tag, &name)?;
        }
        self.date(Tag::Date)?;
        self.prose.text(&mut self.random, &mut self.emitter)?;
        self.emitter.close(Tag::Mail)
    }

    fn category(&mut self, index: u64) -> Result<(), E> {
        self.emitter.attribute(Tag::Id, format!("category{index}"));
        self.emitter.open(Tag::Category)?;
        self.words(Tag::Name, 1)?;
        self.description()?;
        self.emitter.close(Tag::Category)
    }

    fn edge(&mut self) -> Result<(), E> {
        let from = self.category_id();
        self.emitter.attribute(Tag::From, from);
        let to = self.category_id();
        self.emitter.reference(Tag::Edge, Tag::To, to)
    }

    fn person(&mut self, index: u64) -> Result<(), E> {
        self.emitter.attribute(Tag::Id, format!("person{index}"));
        self.emitter.open(Tag::Person)?;
        let (name, family) = self.name();
        self.emitter.leaf(Tag::Name, &name)?;
        let mut address = format!("mailto:{family}@");
        self.push_domain(&mut address);
        self.emitter.leaf(Tag::Emailaddress, &address)?;
        if self.has_option() {
            let (country, area) = (1 + self.random.next_below(98), self.random.next_below(900));
            let number = 1_000_000 + self.random.next_below(90_000_000);
            let phone = format!("+{country} ({}) {number}", 100 + area);
            self.emitter.leaf(Tag::Phone, &phone)?;
        }
        if self.has_option() {
            self.address()?;
        }
        if self.has_option() {
            let mut page = "http://www.".to_owned();
            self.push_domain(&mut page);
            let _ = write!(page, "/~{family}");
            self.emitter.leaf(Tag::Homepage, &page)?;
        }
        if self.has_option() {
            let groups: [String; 4] =
                std::array::from_fn(|_| (1_000 + self.random.next_below(9_000)).to_string());
            self.emitter.leaf(Tag::Creditcard, &groups.join(" "))?;
        }
        if self.has_option() {
            self.profile()?;
        }
        if self.has_option() {
            self.watches()?;
        }
        self.emitter.close(Tag::Person)
    }

    fn address(&mut self) -> Result<(), E> {
        self.emitter.open(Tag::Address)?;
        let mut street = format!("{} ", 1 + self.random.next_below(99));
        self.prose.vocabulary.push_name(&mut self.random, &mut street);
        street.push_str(" Street");
        self.emitter.leaf(Tag::Street, &street)?;
        self.place(Tag::City)?;
        let country = self.country();
        self.emitter.leaf(Tag::Country, country)?;
        if self.has_option() {
            self.place(Tag::Province)?;
        }
        let code = (10_000 + self.random.next_below(90_000)).to_string();
        self.emitter.leaf(Tag::Zipcode, &code)?;
        self.emitter.close(Tag::Address)
    }

    fn profile(&mut self) -> Result<(), E> {
        let income = cents(&mut self.random, 987_600, 3_000_000.0);
        self.emitter.attribute(Tag::Income, money(income));
        self.emitter.open(Tag::Profile)?;
        for _ in 0..repetitions::INTEREST.draw(&mut self.random) {
            let category = self.category_id();
            self.emitter.reference(Tag::Interest, Tag::Category, category)?;
        }
        if self.has_option() {
            let education = pick(&mut self.random, &EDUCATION);
            self.emitter.leaf(Tag::Education, education)?;
        }
        if self.has_option() {
            let gender = pick(&mut self.random, &["female", "male"]);
            self.emitter.leaf(Tag::Gender, gender)?;
        }
        self.yes_or_no(Tag::Business)?;
        if self.has_option() {
            let age = (18 + self.random.next_below(60)).to_string();
            self.emitter.leaf(Tag::Age, &age)?;
        }
        self.emitter.close(Tag::Profile)
    }

    fn watches(&mut self) -> Result<(), E> {
        self.emitter.open(Tag::Watches)?;
        for _ in 0..repetitions::WATCH.draw(&mut self.random) {
            let auctions = self.generator.cardinalities.open_auctions;
            let auction = uniform_index(&mut self.random, auctions);
            let id = format!("open_auction{auction}");
            self.emitter.reference(Tag::Watch, Tag::OpenAuction, id)?;
        }
        self.emitter.close(Tag::Watches)
    }

    fn open_auction(&mut self, index: u64) -> Result<(), E> {
        self.emitter.attribute(Tag::Id, format!("open_auction{index}"));
        self.emitter.open(Tag::OpenAuction)?;
        let initial = cents(&mut self.random, 150, 10_000.0);
        self.emitter.leaf(Tag::Initial, &money(initial))?;
        if self.has_option() {
            let reserve = cents(&mut self.random, initial, 10_000.0);
            self.emitter.leaf(Tag::Reserve, &money(reserve))?;
        }
        let mut current = initial;
        for _ in 0..repetitions::BIDDER.draw(&mut self.random) {
            current += self.bidder()?;
        }
        self.emitter.leaf(Tag::Current, &money(current))?;
        if self.has_option() {
            self.yes_or_no(Tag::Privacy)?;
        }
        self.item_reference(index)?;
        self.trader(Tag::Seller)?;
        self.annotation()?;
        self.quantity()?;
        self.kind_of_auction()?;
        self.emitter.open(Tag::Interval)?;
        let start = date(&mut self.random, 1998, 1999);
        self.emitter.leaf(Tag::Start, &start)?;
        let end = date(&mut self.random, 2000, 2001);
        self.emitter.leaf(Tag::End, &end)?;
        self.emitter.close(Tag::Interval)?;
        self.emitter.close(Tag::OpenAuction)
    }

    /// Emits a bid and returns by how many cents it is higher: a multiple of 1.50.
    fn bidder(&mut self) -> Result<u64, E> {
        self.emitter.open(Tag::Bidder)?;
        self.date(Tag::Date)?;
        let at = time(&mut self.random);
        self.emitter.leaf(Tag::Time, &at)?;
        self.person_reference(Tag::Personref)?;
        let increase = 150 * cents(&mut self.random, 1, 8.0);
        self.emitter.leaf(Tag::Increase, &money(increase))?;
        self.emitter.close(Tag::Bidder)?;
        Ok(increase)
    }

    fn closed_auction(&mut self, index: u64) -> Result<(), E> {
        self.emitter.open(Tag::ClosedAuction)?;
        self.trader(Tag::Seller)?;
        self.trader(Tag::Buyer)?;
        self.item_reference(self.generator.cardinalities.open_auctions + index)?;
        let price = cents(&mut self.random, 150, 10_000.0);
        self.emitter.leaf(Tag::Price, &money(price))?;
        self.date(Tag::Date)?;
        self.quantity()?;
        self.kind_of_auction()?;
        if self.has_option() {
            self.annotation()?;
        }
        self.emitter.close(Tag::ClosedAuction)
    }

    fn annotation(&mut self) -> Result<(), E> {
        self.emitter.open(Tag::Annotation)?;
        self.person_reference(Tag::Author)?;
        if self.has_option() {
            self.description()?;
        }
        let happiness = (1 + self.random.next_below(10)).to_string();
        self.emitter.leaf(Tag::Happiness, &happiness)?;
        self.emitter.close(Tag::Annotation)
    }

    fn description(&mut self) -> Result<(), E> {
        self.emitter.open(Tag::Description)?;
        self.text_or_list(0.7, 0)?;
        self.emitter.close(Tag::Description)
    }

    fn text_or_list(&mut self, text: f64, depth: u32) -> Result<(), E> {
        if depth == NESTED_LISTS || self.random.next_chance(text) {
            return self.prose.text(&mut self.random, &mut self.emitter);
        }
        self.emitter.open(Tag::Parlist)?;
        for _ in 0..repetitions::LISTITEM.draw(&mut self.random) {
            self.emitter.open(Tag::Listitem)?;
            self.text_or_list(0.8, depth + 1)?;
            self.emitter.close(Tag::Listitem)?;
        }
        self.emitter.close(Tag::Parlist)
    }

    fn has_option(&mut self) -> bool {
        self.random.next_chance(OPTIONAL)
    }

    fn country(&mut self) -> &'static str {
        if self.random.next_chance(0.75) {
            return "United States";
        }
        pick(&mut self.random, &COUNTRIES)
    }

    fn quantity(&mut self) -> Result<(), E> {
        let quantity = Repetition::new(1, 0.4, 10).draw(&mut self.random).to_string();
        self.emitter.leaf(Tag::Quantity, &quantity)
    }

    fn kind_of_auction(&mut self) -> Result<(), E> {
        let kind = pick(&mut self.random, &["Featured", "Regular"]);
        self.emitter.leaf(Tag::Type, kind)
    }

    fn yes_or_no(&mut self, tag: Tag) -> Result<(), E> {
        let answer = pick(&mut self.random, &["No", "Yes"]);
        self.emitter.leaf(tag, answer)
    }

    fn date(&mut self, tag: Tag) -> Result<(), E> {
        let date = date(&mut self.random, 1998, 2001);
        self.emitter.leaf(tag, &date)
    }

    /// Emits an element with `least` to `least + 2` words.
    fn words(&mut self, tag: Tag, least: u32) -> Result<(), E> {
        let mut words = String::new();
        for _ in 0..least + self.random.next_below(3) {
            words.push_str(self.prose.vocabulary.word(&mut self.random));
            words.push(' ');
        }
        self.emitter.leaf(tag, words.trim_end())
    }

    fn place(&mut self, tag: Tag) -> Result<(), E> {
        let mut place = String::new();
        self.prose.vocabulary.push_name(&mut self.random, &mut place);
        self.emitter.leaf(tag, &place)
    }

    /// Returns a name, and the family name in it.
    fn name(&mut self) -> (String, String) {
        let (mut name, mut family) = (String::new(), String::new());
        self.prose.vocabulary.push_name(&mut self.random, &mut name);
        self.prose.vocabulary.push_name(&mut self.random, &mut family);
        name.push(' ');
        name.push_str(&family);
        (name, family)
    }

    fn push_domain(&mut self, into: &mut String) {
        into.push_str(self.prose.vocabulary.word(&mut self.random));
        into.push_str(pick(&mut self.random, &[".com", ".edu", ".org"]));
    }

    fn category_id(&mut self) -> String {
        let categories = self.generator.cardinalities.categories;
        format!("category{}", uniform_index(&mut self.random, categories))
    }

    fn person_reference(&mut self, tag: Tag) -> Result<(), E> {
        let person = uniform_index(&mut self.random, self.generator.cardinalities.persons);
        self.emitter.reference(tag, Tag::Person, format!("person{person}"))
    }

    /// Emits the reference to a seller or a buyer.
    fn trader(&mut self, tag: Tag) -> Result<(), E> {
        let persons = self.generator.cardinalities.persons;
        let person = normal_index(&mut self.random, persons, 0.5, 0.1);
        self.emitter.reference(tag, Tag::Person, format!("person{person}"))
    }

    fn item_reference(&mut self, auction: u64) -> Result<(), E> {
        let item = self.generator.auctioned.get(auction);
        self.emitter.reference(Tag::Itemref, Tag::Item, format!("item{item}"))
    }
}
