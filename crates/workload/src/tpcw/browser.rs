//! An emulated browser: what it remembers of the pages it saw, and what it asks for next.
//!
//! # Mechanism
//! Pages lead to pages by the [mix](super::mix). What a page is asked for comes from the page
//! before: a book from the list that is shown, an order from the cart. So each interaction leaves
//! in the browser's [`Memory`] what its page shows, and the browser draws the next request from
//! there. The request is complete then: it can be run again and is the same.
//!
//! A session begins at Home, with a returning customer in four of five; a new one signs up at Buy
//! Request. It ends at the first Home after a drawn length, 15 minutes in the mean and an hour at
//! most.
//!
//! # Where this leaves the specification
//! - A session's length counts think times only, drawn whether they are waited for or not, because
//!   there is no clock here. So it is about 129 interactions long in any case. The same think times
//!   make the moments that are written into new rows; nothing compares those of two browsers.
//! - An interaction that failed, also in its commit, leaves the memory as it was. Where there is
//!   no page to choose from, an item is drawn evenly from all; where there is no cart, there is
//!   nothing to buy.
//! - Refreshing a cart changes a drawn number of its lines, as in clause 2.4.5.1, and leaves the
//!   others as they are.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::admin::AdminConfirm;
use super::cart::{CartChange, ShoppingCart};
use super::catalogue::Listing;
use super::customer::{BuyRequest, Identity, NewAddress, NewCustomer};
use super::draws;
use super::keys::ShopKeys;
use super::mix::{Interaction, Mix};
use super::population::{
    CARDS, DAY_US, SHIPPINGS, SUBJECTS, TODAY, address_lines, country_name, pictures,
};
use super::purchase::BuyConfirm;
use super::scale::{COUNTRIES, Scale};
use super::visit::{Action, Page, Visit};
use crate::Random;
use crate::workload::{Client, Transaction};

const THINK_MEAN: Duration = Duration::from_secs(7);
const THINK_MOST: Duration = Duration::from_secs(70);
const SESSION_MEAN: Duration = Duration::from_secs(15 * 60);
const SESSION_MOST: Duration = Duration::from_secs(60 * 60);

/// What the last pages showed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// Who the customer is, once that is known.
    pub(super) customer: Option<i64>,
    /// The items of the last list.
    pub(super) items: Vec<i64>,
    /// The cart, and items and quantities in it.
    pub(super) cart: Option<Cart>,
}

impl Memory {
    /// Remembers what a page shows, and what it does not show as before.
    pub(super) fn turn(&mut self, page: Page) {
        self.items = page.items.unwrap_or_else(|| std::mem::take(&mut self.items));
        self.cart = page.cart.or_else(|| self.cart.take());
        self.customer = page.customer.or(self.customer);
    }
}

/// A cart as it was shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cart {
    pub(super) id: i64,
    pub(super) lines: Vec<(i64, i64)>,
}

/// The memory of a browser, shared with the interaction under way.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedMemory(Arc<Mutex<Memory>>);

impl SharedMemory {
    pub(super) fn with<T>(&self, see: impl FnOnce(&mut Memory) -> T) -> T {
        see(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) struct Browser {
    scale: Scale,
    mix: Mix,
    keys: Arc<ShopKeys>,
    draw: Random,
    thinks: bool,
    think_time: Duration,
    /// Think times so far, and at which the session ends.
    clock: Duration,
    session_end: Duration,
    /// The page it is at; none before the first.
    page: Option<Interaction>,
    /// The item that is looked at.
    item: i64,
    memory: SharedMemory,
}

impl Browser {
    pub(super) fn new(
        scale: Scale,
        mix: Mix,
        thinks: bool,
        keys: Arc<ShopKeys>,
        draw: Random,
    ) -> Self {
        let mut browser = Browser {
            scale,
            mix,
            keys,
            draw,
            thinks,
            think_time: Duration::ZERO,
            clock: Duration::ZERO,
            session_end: Duration::ZERO,
            page: None,
            item: 1,
            memory: SharedMemory::default(),
        };
        browser.think();
        browser
    }

    fn think(&mut self) {
        self.think_time = draws::exponential(&mut self.draw, THINK_MEAN, THINK_MOST);
        self.clock += self.think_time;
    }

    /// The next page, and a new session where one ends.
    fn turn_page(&mut self) -> Interaction {
        let page = self.page.map(|page| self.mix.after(page, &mut self.draw));
        let next = match page {
            None => self.begin_session(),
            Some(Interaction::Home) if self.clock >= self.session_end => self.begin_session(),
            Some(page) => page,
        };
        self.page = Some(next);
        next
    }

    fn begin_session(&mut self) -> Interaction {
        let length = draws::exponential(&mut self.draw, SESSION_MEAN, SESSION_MOST);
        self.session_end = self.clock + length;
        let returns = self.draw.between(1, 10) <= 8;
        let customer = returns.then(|| self.known_customer());
        self.memory.with(|memory| *memory = Memory { customer, ..Memory::default() });
        Interaction::Home
    }

    fn known_customer(&mut self) -> i64 {
        draws::nurand(&mut self.draw, self.scale.customer_a(), 1, self.scale.customers).into()
    }

    fn any_item(&mut self) -> i64 {
        self.draw.between(1, self.scale.items).into()
    }

    /// The browser's time, in microseconds since 1970.
    fn now(&self) -> i64 {
        let passed = i64::try_from(self.clock.as_micros()).expect("a run is far shorter");
        i64::from(TODAY) * DAY_US + passed
    }

    fn action(&mut self, from: Option<Interaction>, page: Interaction) -> Action {
        let customer = self.memory.with(|memory| memory.customer);
        match page {
            Interaction::Home => Action::Home { customer, promoted: self.any_item() },
            Interaction::NewProducts => self.list(Listing::NewProducts),
            Interaction::BestSellers => self.list(Listing::BestSellers),
            Interaction::SearchResults => self.search(),
            Interaction::ProductDetail => {
                self.choose_item();
                Action::ProductDetail { item: self.item }
            }
            Interaction::SearchRequest => Action::SearchRequest { promoted: self.any_item() },
            Interaction::ShoppingCart => Action::ShoppingCart(self.cart(from)),
            Interaction::CustomerRegistration | Interaction::OrderInquiry => {
                Action::Form { customer }
            }
            Interaction::BuyRequest => Action::BuyRequest(self.buy_request(customer)),
            Interaction::BuyConfirm => Action::BuyConfirm(Box::new(self.buy_confirm(customer))),
            Interaction::OrderDisplay => {
                let customer = customer.unwrap_or_else(|| self.known_customer());
                Action::OrderDisplay { user: draws::syllables(customer) }
            }
            Interaction::AdminRequest => Action::AdminRequest { item: self.item },
            Interaction::AdminConfirm => Action::AdminConfirm(self.admin_confirm()),
        }
    }

    fn list(&mut self, listing: fn(String) -> Listing) -> Action {
        let subject = draws::name(&mut self.draw, &SUBJECTS).to_owned();
        Action::List { listing: listing(subject), promoted: self.any_item() }
    }

    fn search(&mut self) -> Action {
        let a = self.scale.item_a();
        let listing = match self.draw.between(0, 2) {
            0 => {
                let words = self.scale.author_words();
                Listing::Author(draws::word(draws::nurand(&mut self.draw, a, 0, words)))
            }
            1 => {
                let words = self.scale.title_words();
                Listing::Title(draws::word(draws::nurand(&mut self.draw, a, 0, words)))
            }
            _ => Listing::Subject(draws::name(&mut self.draw, &SUBJECTS).to_owned()),
        };
        Action::List { listing, promoted: self.any_item() }
    }

    fn choose_item(&mut self) {
        let draw = &mut self.draw;
        let chosen = self.memory.with(|memory| draws::pick(draw, &memory.items).copied());
        self.item = chosen.unwrap_or_else(|| self.any_item());
    }

    fn cart(&mut self, from: Option<Interaction>) -> ShoppingCart {
        let cart = self.memory.with(|memory| memory.cart.clone());
        let change = match (from, &cart) {
            (Some(Interaction::ProductDetail), _) => CartChange::Add(self.item),
            (Some(Interaction::ShoppingCart), Some(cart)) => {
                CartChange::Refresh(refresh(&mut self.draw, &cart.lines))
            }
            _ => CartChange::None,
        };
        ShoppingCart {
            cart: cart.map(|cart| cart.id),
            change,
            promoted: self.any_item(),
            spare: self.any_item(),
            now: self.now(),
        }
    }

    fn address(&mut self) -> NewAddress {
        NewAddress {
            lines: address_lines(&mut self.draw),
            country: country_name(self.draw.between(1, COUNTRIES)),
        }
    }

    fn buy_request(&mut self, customer: Option<i64>) -> BuyRequest {
        let identity = match customer {
            Some(customer) => Identity::Known(draws::syllables(customer)),
            None => Identity::New(Box::new(self.new_customer())),
        };
        let cart = self.memory.with(|memory| memory.cart.as_ref().map(|cart| cart.id));
        BuyRequest { identity, cart, now: self.now() }
    }

    fn new_customer(&mut self) -> NewCustomer {
        let address = self.address();
        let draw = &mut self.draw;
        NewCustomer {
            names: [(); 2].map(|()| draws::text(draw, 8, 15)),
            address,
            phone: draws::digits(draw, 9, 16),
            host: draws::text(draw, 2, 9),
            birthdate: draw.between(-32_871, TODAY),
            discount: draw.between(0, 50),
            data: draws::text(draw, 100, 500),
        }
    }

    fn buy_confirm(&mut self, customer: Option<i64>) -> BuyConfirm {
        let address = (self.draw.between(1, 100) <= 5).then(|| self.address());
        let cart = self.memory.with(|memory| memory.cart.as_ref().map(|cart| cart.id));
        let draw = &mut self.draw;
        BuyConfirm {
            customer,
            cart,
            address,
            card: draws::name(draw, &CARDS),
            number: draws::digits(draw, 16, 16),
            expires: TODAY + draw.between(10, 730),
            authorisation: draws::text(draw, 15, 15),
            shipping: draws::name(draw, &SHIPPINGS),
            days: draw.between(0, 7).into(),
            comments: Random::new(u64::from(draw.between(0, i32::MAX).unsigned_abs()), 0),
            now: self.now(),
        }
    }

    fn admin_confirm(&mut self) -> AdminConfirm {
        let picture = self.draw.between(1, self.scale.items);
        AdminConfirm {
            item: self.item,
            reduction: self.draw.between(0, 50).into(),
            pictures: pictures(picture),
            today: self.now() / DAY_US,
        }
    }
}

/// New quantities for some lines of a cart: 1 to 10 for its only line, else for one line or more
/// another quantity of 0 to 9, where 0 takes the line out.
fn refresh(draw: &mut Random, lines: &[(i64, i64)]) -> Vec<(i64, i64)> {
    if let [(item, _)] = lines {
        return vec![(*item, draw.between(1, 10).into())];
    }
    let mut rest = lines.to_vec();
    let mut changed = Vec::new();
    let last = i32::try_from(lines.len()).expect("a page shows far fewer lines");
    for _ in 0..draw.between(1, last.max(1)) {
        let place = draw.index(rest.len().max(1));
        if rest.is_empty() {
            break;
        }
        let (item, old) = rest.swap_remove(place);
        let new = i64::from(draw.between(0, 8));
        changed.push((item, if new >= old { new + 1 } else { new }));
    }
    // One order of locks for all.
    changed.sort_unstable();
    changed
}

impl Client for Browser {
    fn next(&mut self) -> Arc<dyn Transaction> {
        let from = self.page;
        let interaction = self.turn_page();
        let action = self.action(from, interaction);
        self.think();
        let (keys, memory) = (Arc::clone(&self.keys), self.memory.clone());
        Arc::new(Visit { interaction, action, keys, page: Mutex::default(), memory })
    }

    fn think_time(&mut self) -> Duration {
        if self.thinks { self.think_time } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn browser(mix: Mix, seed: u64) -> Browser {
        let scale = Scale::new(1_000, 1).unwrap();
        Browser::new(scale, mix, true, Arc::new(ShopKeys::new()), Random::new(seed, 0))
    }

    #[test]
    fn a_browser_begins_at_home_and_follows_its_mix() {
        for mix in Mix::ALL {
            let mut browser = browser(mix, 11);
            let first = browser.next().kind();
            assert_eq!(first, Interaction::Home.place());
            let mut counts = [0_u32; 14];
            for _ in 0..200_000 {
                counts[browser.next().kind()] += 1;
            }
            for interaction in Interaction::ALL {
                let expected = mix.share(interaction) * 20;
                // Pages depend on the ones before: three times six standard deviations.
                let bound = 18.0 * f64::from(expected).sqrt();
                let distance = f64::from(counts[interaction.place()].abs_diff(expected));
                assert!(distance < bound, "{mix:?} {interaction:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn sessions_end_at_home_and_four_of_five_customers_are_known() {
        let mut browser = browser(Mix::Shopping, 12);
        let (mut sessions, mut known, mut ends) = (0_u32, 0_u32, Duration::MAX);
        for _ in 0..300_000 {
            let _ = browser.next();
            if browser.session_end != ends {
                assert_eq!(browser.page, Some(Interaction::Home));
                ends = browser.session_end;
                sessions += 1;
                known += u32::from(browser.memory.with(|memory| memory.customer.is_some()));
            }
        }
        // 300,000 interactions of 7 s, in sessions of 883 s (15 min, cut off at an hour) and the
        // way to the next Home: between 1,500 and 2,400.
        assert!((1_500..2_400).contains(&sessions), "{sessions}");
        let share = f64::from(known) / f64::from(sessions);
        assert!((share - 0.8).abs() < 0.06, "{share}");
    }

    #[test]
    fn the_same_seed_asks_for_the_same_pages() {
        let sequence = |seed| {
            let mut browser = browser(Mix::Ordering, seed);
            (0..200).map(|_| format!("{:?}", browser.next())).collect::<Vec<_>>()
        };
        assert_eq!(sequence(5), sequence(5));
        assert_ne!(sequence(5), sequence(6));
    }

    #[test]
    fn think_time_is_waited_for_only_when_asked() {
        let mut browser = browser(Mix::Browsing, 13);
        assert!(browser.think_time() > Duration::ZERO);
        browser.thinks = false;
        assert_eq!(browser.think_time(), Duration::ZERO);
    }

    #[test]
    fn memory_keeps_what_a_page_does_not_show() {
        let mut memory = Memory { customer: Some(3), items: vec![1], cart: None };
        let cart = Some(Cart { id: 9, lines: vec![(5, 1)] });
        memory.turn(Page { cart: cart.clone(), ..Page::default() });
        assert_eq!(memory, Memory { customer: Some(3), items: vec![1], cart: cart.clone() });
        memory.turn(Page { items: Some(vec![2]), customer: Some(4), cart: None });
        assert_eq!(memory, Memory { customer: Some(4), items: vec![2], cart });
    }

    #[test]
    fn a_refresh_changes_quantities() {
        let mut draw = Random::new(4, 0);
        let (mut removed, mut one) = (0, [0; 11]);
        for _ in 0..2_000 {
            let changed = refresh(&mut draw, &[(1, 2), (5, 1), (9, 30)]);
            assert!((1..=3).contains(&changed.len()) && changed.is_sorted());
            for (item, new) in &changed {
                let old =
                    [(1, 2), (5, 1), (9, 30)].iter().find(|(known, _)| known == item).unwrap().1;
                assert!((0..=9).contains(new) && *new != old, "{item}: {new}");
                removed += usize::from(*new == 0);
            }
            let [(7, quantity)] = refresh(&mut draw, &[(7, 3)])[..] else { panic!("one line") };
            one[usize::try_from(quantity).unwrap()] += 1;
        }
        assert!(removed > 0 && one[0] == 0 && one[1..].iter().all(|&count| count > 100), "{one:?}");
        assert!(refresh(&mut draw, &[]).is_empty());
    }
}
