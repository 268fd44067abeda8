//! The database work of the Dell DVD Store, version 2: an online store, without its web pages.
//!
//! # Mechanism
//! Eight tables: customers, products with their categories and their stock, orders with their
//! lines, each customer's history of products, and what was ordered from the makers. A client is
//! one customer after the other. Each goes through a cycle, each step of which is a transaction:
//!
//! 1. Log in (80 %): find the customer by name and password, show the ten products bought last,
//!    and with each one that others bought with it. Or register (20 %): look whether the name is
//!    free, insert the customer.
//! 2. Browse one to five times: by category (special offers only), actor or title, equally often;
//!    one to nine products are shown.
//! 3. Purchase one to nine products, one to three units of each, in one transaction: look up the
//!    prices, insert the order, take the units out of the stock, insert a line of the order and a
//!    line of the history for each product. Too few units of any of them undo all of it.
//! 4. Think, where think time is asked for: from none to twice the mean.
//!
//! Each 10,000th product is popular: bought and stocked ten times as much.
//!
//! # Example
//! The small scale has 20,000 customers, 10,000 products, and 12,000 orders with 60,000 lines. A
//! cycle is five transactions in the mean, of which the purchase has some 22 statements. A product
//! starts with 0 to 500 units. One line of 250 finds too few, of 0, 1 or 2, so that of the
//! purchases, five lines each, two in a hundred are rolled back. When a sale leaves fewer than
//! three, the stock is filled up to 250 at once, so nothing else runs out: in a long run the
//! products with none at the start remain, and one purchase in a hundred.
//!
//! # Where this leaves the published one
//! * **No update is lost.** The published drivers read the stock and write back what they
//!   computed, without a lock, so that one of two purchases of a product at once may be forgotten.
//!   Here the row is locked when it is read (`FOR UPDATE`), and changed by a difference.
//! * **Products are taken in the order of their numbers**, not of the cart, so that purchases do
//!   not deadlock on the stock.
//! * **Low stock.** What the published versions do differs. This is the rule of the one for
//!   PostgreSQL, written into the transaction, since not every database here has triggers: fewer
//!   than 3 left after a sale write a row into `reorder`, with what was left and what was ordered,
//!   and the delivery comes in the same transaction.
//! * **New keys** are not from a sequence: each client counts in a range of 2^32 keys of its own,
//!   from the last key there. So a key is known without a round trip and nobody waits for a
//!   counter, but inserts go to as many places of an index as there are clients, where a sequence
//!   would send all to its end. Clients at work at the same time need different numbers.
//! * **A new name is always free.** It is made from the key, where the published driver draws names
//!   until one is free, more often the more there are; the study of MPL auto-tuning, Section 5.4,
//!   had trouble with what that does to throughput.
//! * **Full-text search** is none that all the databases have. [`Search::Prefix`] finds what begins
//!   with a word by its index: as a range, since only some databases use an index for a `LIKE`
//!   whose pattern is a parameter. [`Search::Word`] is `LIKE '%WORD%'`, without one.
//! * **Amounts** are whole cents, and those of the orders at the start are what their lines cost;
//!   the published ones are drawn apart from them. Dates are days since 1970.
//! * **Foreign keys** are not declared. A purchase looks its customer up where they are new.
//! * **Names and words** are made up of syllables; titles begin with each word equally often.
//! * **Statements, not procedures:** each is a round trip, and one inserts one row.
//!
//! # Limits
//! * An order's history has no key in the published schema; two lines of one product give two
//!   equal rows.
//! * A customer who could not register buys nothing: their purchase is rolled back.
//! * The large scale, 100 GB, is 200 million customers: it fits, and nobody has loaded it.
//!
//! # Source
//! The published schema, driver and generators, release 2.1 (github.com/dvdstore/ds21), and the
//! study of MPL auto-tuning, Section 4.3.2.

mod check;
mod client;
mod keys;
mod population;
mod schema;
mod transactions;

use std::ops::RangeInclusive;
use std::sync::Arc;

use thiserror::Error;

pub use transactions::Search;

use crate::workload::{Client, Condition, Depth, Kind, Workload};
use crate::{Running, Session, Statement, Table, Value};
use client::StoreClient;

/// The places of the kinds in [`KINDS`].
const LOGIN: usize = 0;
const REGISTER: usize = 1;
const BROWSE_CATEGORY: usize = 2;
const BROWSE_ACTOR: usize = 3;
const BROWSE_TITLE: usize = 4;
const PURCHASE: usize = 5;

const KINDS: [Kind; 6] = [
    Kind { name: "login", phases: &["customer", "previous purchases"] },
    Kind { name: "new-customer", phases: &["register"] },
    Kind { name: "browse-category", phases: &["browse"] },
    Kind { name: "browse-actor", phases: &["browse"] },
    Kind { name: "browse-title", phases: &["browse"] },
    Kind { name: "purchase", phases: &["prices", "order", "stock", "lines"] },
];

/// Everybody's password.
const PASSWORD: &str = "password";

/// The share of customers who are new, in per cent.
const NEW_PERCENT: i32 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Customers at the start.
    pub customers: u32,
    pub products: u32,
    /// Orders of each month of the year before.
    pub orders_per_month: u32,
}

impl Scale {
    /// For tests: so few products that every two purchases meet.
    pub const TINY: Scale = Scale { customers: 200, products: 50, orders_per_month: 20 };

    /// 10 MB.
    pub const SMALL: Scale = Scale { customers: 20_000, products: 10_000, orders_per_month: 1_000 };

    /// 1 GB.
    pub const MEDIUM: Scale =
        Scale { customers: 2_000_000, products: 100_000, orders_per_month: 100_000 };

    /// The most customers: five times those of the published large scale.
    pub const CUSTOMERS_MAX: u32 = 1_000_000_000;

    /// The most products: as many as have titles of their own.
    pub const PRODUCTS_MAX: u32 = 1_000_000;

    /// The most orders a month: more than of the published large scale, and in 32 bits for a year.
    pub const ORDERS_PER_MONTH_MAX: u32 = 100_000_000;

    fn customers(self) -> RangeInclusive<i32> {
        numbers(self.customers)
    }

    fn products(self) -> RangeInclusive<i32> {
        numbers(self.products)
    }

    fn orders(self) -> RangeInclusive<i32> {
        numbers(self.orders_per_month * 12)
    }
}

fn numbers(last: u32) -> RangeInclusive<i32> {
    1..=i32::try_from(last).expect("the largest sizes keep numbers within 32 bits")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub scale: Scale,
    /// How actors and titles are found.
    pub search: Search,
    /// The mean time between two cycles of a client, in milliseconds; 0 as published.
    pub think_time_ms: u32,
}

impl Options {
    pub fn new(scale: Scale) -> Self {
        Options { scale, search: Search::Prefix, think_time_ms: 0 }
    }
}

/// A size that no tables can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("ds2: {number} {what}; give 1 to {most}")]
pub struct ImpossibleSize {
    pub number: u32,
    pub what: &'static str,
    pub most: u32,
}

#[derive(Clone, Debug)]
pub struct Ds2 {
    options: Options,
    insert_customer: Arc<Statement>,
}

impl Ds2 {
    /// The workload with these options.
    pub fn new(options: Options) -> Result<Self, ImpossibleSize> {
        let Scale { customers, products, orders_per_month } = options.scale;
        for (number, what, most) in [
            (customers, "customers", Scale::CUSTOMERS_MAX),
            (products, "products", Scale::PRODUCTS_MAX),
            (orders_per_month, "orders a month", Scale::ORDERS_PER_MONTH_MAX),
        ] {
            if !(1..=most).contains(&number) {
                return Err(ImpossibleSize { number, what, most });
            }
        }
        let insert = schema::tables()[schema::CUSTOMERS].insert();
        Ok(Ds2 { options, insert_customer: Arc::new(insert) })
    }

    pub fn options(&self) -> &Options {
        &self.options
    }
}

impl Workload for Ds2 {
    fn name(&self) -> &'static str {
        "ds2"
    }

    fn kinds(&self) -> &'static [Kind] {
        &KINDS
    }

    fn tables(&self) -> Vec<Table> {
        schema::tables()
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        population::rows(self.options.scale, table)
    }

    fn client(&self, number: usize, _clients: usize, seed: u64) -> Box<dyn Client> {
        let insert = self.insert_customer.clone();
        Box::new(StoreClient::new(self.options.clone(), insert, number, seed))
    }

    fn check<'d>(&self, session: Session<'d>, depth: Depth) -> Running<'d, Vec<Condition>> {
        let scale = self.options.scale;
        Box::pin(async move { check::check(scale, &session, depth).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let refused = |scale| Ds2::new(Options::new(scale)).unwrap_err().to_string();
        let small = Scale::SMALL;
        assert!(Ds2::new(Options::new(small)).is_ok());
        assert_eq!(refused(Scale { products: 0, ..small }), "ds2: 0 products; give 1 to 1000000");
        assert_eq!(
            refused(Scale { orders_per_month: 100_000_001, ..small }),
            "ds2: 100000001 orders a month; give 1 to 100000000"
        );
    }
}
