//! TPC-W: the database's part of a bookshop on the web.
//!
//! # Mechanism
//! An emulated browser goes from page to page of a bookshop. Each of the fourteen pages, or web
//! interactions, is a transaction here: what the page asks of the database, as SQL, without the web
//! server before it. [`Mix`] says how often a browser buys, [`Scale`] how large the shop is.
//!
//! | interaction | browsing, shopping, ordering % | statements |
//! | --- | --- | --- |
//! | Home | 29.00, 16.00, 9.12 | greeting, promotion |
//! | New Products | 11.00, 5.00, 0.46 | promotion, 50 newest items of a subject |
//! | Best Sellers | 11.00, 5.00, 0.46 | promotion, 50 items most sold in the last 3,333 orders |
//! | Product Detail | 21.00, 17.00, 12.35 | one item |
//! | Search Request | 12.00, 20.00, 14.53 | promotion |
//! | Search Results | 11.00, 17.00, 13.08 | promotion, items by author, title or subject |
//! | Shopping Cart | 2.00, 11.60, 13.53 | promotion, cart changed and shown |
//! | Customer Registration | 0.82, 3.00, 12.86 | user name |
//! | Buy Request | 0.75, 2.60, 12.73 | sign in or sign up, cart shown |
//! | Buy Confirm | 0.69, 1.20, 10.18 | order, its lines, stock, payment |
//! | Order Inquiry | 0.30, 0.75, 0.25 | user name |
//! | Order Display | 0.25, 0.66, 0.22 | latest order |
//! | Admin Request | 0.10, 0.10, 0.12 | one item |
//! | Admin Confirm | 0.09, 0.09, 0.11 | price and related items |
//!
//! Most of these read a row or two, and one in nine of the browsing mix adds up ten thousand: the
//! squared coefficient of variation of their service demand is 15 where Schroeder et al. measured
//! it ("How to Determine a Good Multi-Programming Level for External Scheduling", ICDE 2006), that
//! of TPC-C 1 to 1.5. [`Demand`](crate::Demand) measures it here. It depends on the database as
//! much as on the mix: for browsing on SQLite in memory the example `tpcw_demand` finds less than
//! 15, and more with more items.
//!
//! # Example
//! A thousand items and one emulated browser: 2,880 customers, 2,592 orders. A browser of the
//! shopping mix looks at 50 new books on cooking, at one of them, puts it into its cart, signs in
//! and buys: New Products, Product Detail, Shopping Cart, Customer Registration, Buy Request, Buy
//! Confirm.
//!
//! # Where this leaves the specification
//! Each file names its differences. The largest:
//! - No web server, no pages, no pictures, no payment gateway: interactions are transactions.
//! - Keys (`keys`) of new rows come from counters in the clients' process.
//! - The size (`scale`) and the number of clients are free of each other: emulated browsers size
//!   the tables, and as many clients run as an experiment asks for. Without think time a client is
//!   worth as much as a thousand browsers.
//! - A page that asks nothing of the database, such as a form for an unknown customer, is a
//!   transaction without statements.
//! - Titles, names and orders of the start are drawn as `population` says.
//!
//! # Limits
//! - Firebird has no index that finds a largest key, so Best Sellers reads all orders' numbers
//!   there.
//! - Tables grow: as the specification wants, nothing is ever deleted but lines of carts.
//!
//! # Source
//! TPC Benchmark W, specification 1.8 (2002), from its public implementations; see
//! `mix` for what they leave in doubt.

mod admin;
mod browser;
mod cart;
mod catalogue;
mod check;
mod customer;
mod draws;
mod keys;
mod mix;
mod population;
mod purchase;

mod rules;
mod scale;
mod schema;
mod visit;

use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use mix::{Interaction, Mix};
pub use scale::{Scale, TpcwScaleError};

use crate::workload::{Client, Condition, Depth, Kind, Workload};
use crate::{Random, Running, Session, Table, Value};
use browser::Browser;
use keys::ShopKeys;

/// The bookshop, and how its customers behave.
#[derive(Debug)]
pub struct Tpcw {
    scale: Scale,
    mix: Mix,
    thinks: bool,
    /// The counters of the clients that are there; they end with them, so that a later run looks at
    /// the tables again, which may have been loaded anew. Shops on the same tables share them.
    keys: Arc<Mutex<Weak<ShopKeys>>>,
}

impl Tpcw {
    /// A shop of a size, with customers who do not think.
    pub fn new(scale: Scale, mix: Mix) -> Self {
        Tpcw { scale, mix, thinks: false, keys: Arc::default() }
    }

    /// The same, whose customers think between pages: negative exponentially, 7 s in the mean and
    /// 70 s at most (clause 5.3.2.1).
    pub fn with_think_time(self) -> Self {
        Tpcw { thinks: true, ..self }
    }

    /// Customers who come to the shop of others while those are still there: all of them take their
    /// numbers from the same counters. Both are of the same scale.
    pub fn in_the_shop_of(self, others: &Tpcw) -> Self {
        Tpcw { keys: Arc::clone(&others.keys), ..self }
    }

    fn keys(&self) -> Arc<ShopKeys> {
        let mut kept = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        kept.upgrade().unwrap_or_else(|| {
            let keys = Arc::new(ShopKeys::new());
            *kept = Arc::downgrade(&keys);
            keys
        })
    }
}

impl Workload for Tpcw {
    fn name(&self) -> &'static str {
        match self.mix {
            Mix::Browsing => "tpcw-browsing",
            Mix::Shopping => "tpcw-shopping",
            Mix::Ordering => "tpcw-ordering",
        }
    }

    fn kinds(&self) -> &'static [Kind] {
        &mix::KINDS
    }

    fn tables(&self) -> Vec<Table> {
        schema::tables()
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        population::rows(self.scale, table)
    }

    fn client(&self, number: usize, _clients: usize, seed: u64) -> Box<dyn Client> {
        let draw = Random::new(seed, number as u64);
        Box::new(Browser::new(self.scale, self.mix, self.thinks, self.keys(), draw))
    }

    fn check<'d>(&self, session: Session<'d>, depth: Depth) -> Running<'d, Vec<Condition>> {
        let scale = self.scale;
        Box::pin(async move { check::check(scale, &session, depth).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_a_run_share_their_counters_and_those_of_the_next_do_not() {
        let shop = Tpcw::new(Scale::new(1_000, 1).unwrap(), Mix::Shopping);
        let first = shop.client(0, 2, 1);
        let counters = Arc::as_ptr(&shop.keys());
        let second = shop.client(1, 2, 1);
        assert_eq!(Arc::as_ptr(&shop.keys()), counters);
        let scale = Scale::new(1_000, 1).unwrap();
        let ordering = Tpcw::new(scale, Mix::Ordering).in_the_shop_of(&shop);
        assert_eq!(ordering.name(), "tpcw-ordering");
        assert_eq!(Arc::as_ptr(&ordering.keys()), counters);
        drop(first);
        assert_eq!(Arc::as_ptr(&shop.keys()), counters);
        drop(second);
        assert!(shop.keys.lock().unwrap().upgrade().is_none());
    }
}
