//! New keys without a sequence: each client counts in a range of its own.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::{Failure, Session, Statement};

/// Keys of one client's range; those of the first rows lie below the first range.
const SPAN_BITS: u32 = 32;

/// The highest number of a client that has a range of its own.
const NUMBER_MAX: i64 = 1 << 30;

static LAST_CUSTOMER: Statement = Statement::new(
    "SELECT MAX(customerid) FROM customers WHERE customerid >= ? AND customerid < ?",
);
static LAST_ORDER: Statement =
    Statement::new("SELECT MAX(orderid) FROM orders WHERE orderid >= ? AND orderid < ?");

/// Stands for a key that is not known.
const UNKNOWN: i64 = -1;

/// The new keys of a client, which it and its transactions share.
#[derive(Debug)]
pub(super) struct ClientKeys {
    pub(super) customers: Range,
    pub(super) orders: Range,
    registered: AtomicI64,
}

impl ClientKeys {
    pub(super) fn new(client: usize) -> Self {
        let range = |last| Range::new(client, last);
        ClientKeys {
            customers: range(&LAST_CUSTOMER),
            orders: range(&LAST_ORDER),
            registered: AtomicI64::new(UNKNOWN),
        }
    }

    /// The customer who registered last, if they could.
    pub(super) fn registered(&self) -> Option<i64> {
        Some(self.registered.load(Ordering::Relaxed)).filter(|&customer| customer != UNKNOWN)
    }

    pub(super) fn set_registered(&self, customer: Option<i64>) {
        self.registered.store(customer.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }
}

/// A range of keys of a table.
#[derive(Debug)]
pub(super) struct Range {
    from: i64,
    /// The last key of the table in this range, asked for once.
    last: &'static Statement,
    /// The next key, once that is known.
    next: AtomicI64,
}

impl Range {
    fn new(client: usize, last: &'static Statement) -> Self {
        let number = i64::try_from(client).unwrap_or(NUMBER_MAX).min(NUMBER_MAX);
        Range { from: (number + 1) << SPAN_BITS, last, next: AtomicI64::new(UNKNOWN) }
    }

    /// The next key. It is not given out again, also when the transaction is undone, as with a
    /// sequence. Earlier runs may have left keys in the range, so the first call looks.
    pub(super) async fn take(&self, session: &Session<'_>) -> Result<i64, Failure> {
        let mut key = self.next.load(Ordering::Relaxed);
        if key == UNKNOWN {
            let until = self.from + (1 << SPAN_BITS);
            let last = session.query(self.last, &[self.from.into(), until.into()]).await?;
            key = last.int(0, 0).map_or(self.from, |last| last + 1);
        }
        self.next.store(key + 1, Ordering::Relaxed);
        Ok(key)
    }
}
