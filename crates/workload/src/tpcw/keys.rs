//! Keys of new rows.
//!
//! # Mechanism
//! The specification leaves open how new customers, addresses, carts and orders get their numbers.
//! A counter in a table would be a row that every order waits for, and sequences are written in as
//! many ways as there are databases. So the clients of one run share counters in their own process,
//! which go on from the largest key in the table when they are first asked.
//!
//! Ranges of keys, one for each client, would not do: Best Sellers looks at the last 3,333 orders
//! by their numbers, so numbers must be given out without gaps and in the order of time. With
//! ranges, or with every n-th number for each of n clients, that window empties as some clients
//! sell more than others, and the heaviest query of the benchmark gets lighter the longer it runs.
//!
//! Two shops on the same tables, one of which takes over from the other while that is still at
//! work, share the counters too: the second is made [from the first](super::Tpcw::in_the_shop_of).
//!
//! # Limits
//! Clients of two processes, or of two shops that know nothing of each other, take the same numbers
//! on the same tables, and the database refuses the second. A transaction that is undone leaves a
//! gap; run again, it takes new numbers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::{Failure, Session, Statement};

/// The next numbers of a run's new rows.
#[derive(Debug)]
pub(super) struct ShopKeys {
    pub(super) customers: Counter,
    pub(super) addresses: Counter,
    pub(super) orders: Counter,
    pub(super) carts: Counter,
}

/// The next number of a table's new row.
#[derive(Debug)]
pub(super) struct Counter {
    largest: Statement,
    next: OnceLock<AtomicI64>,
}

impl ShopKeys {
    pub(super) fn new() -> Self {
        ShopKeys {
            customers: Counter::new("SELECT MAX(c_id) FROM customer"),
            addresses: Counter::new("SELECT MAX(addr_id) FROM address"),
            orders: Counter::new("SELECT MAX(o_id) FROM orders"),
            carts: Counter::new("SELECT MAX(sc_id) FROM shopping_cart"),
        }
    }
}

impl Counter {
    fn new(largest: &'static str) -> Self {
        Counter { largest: Statement::new(largest), next: OnceLock::new() }
    }

    /// A number that no row has.
    pub(super) async fn take(&self, session: &Session<'_>) -> Result<i64, Failure> {
        let next = if let Some(next) = self.next.get() {
            next
        } else {
            // NULL, and so none, when the table is empty. Who asks first is followed by all: a
            // second one may have seen a larger number already, which is also a counted one.
            let largest = session.query(&self.largest, &[]).await?.sum(0)?;
            self.next.get_or_init(|| AtomicI64::new(largest.saturating_add(1)))
        };
        Ok(next.fetch_add(1, Ordering::Relaxed))
    }
}
