//! How large the store is.
//!
//! | table | rows | 1,000 items, 1 browser |
//! | --- | --- | --- |
//! | country | 92 | 92 |
//! | address | 2 · customers | 5,760 |
//! | customer | 2,880 · emulated browsers | 2,880 |
//! | author | items / 4 | 250 |
//! | item | 1,000, 10,000 or 100,000 | 1,000 |
//! | orders | 0.9 · customers | 2,592 |
//! | `order_line` | 1 to 5 an order, 3 in the mean | about 7,776 |
//! | `cc_xacts` | one an order | 2,592 |
//! | `shopping_cart`, `shopping_cart_line` | none | 0 |
//!
//! Those are the sizes of the specification but for the two largest numbers of items, a million and
//! ten million, which are left out. Smaller stores than 1,000 items and one browser are refused:
//! the specification knows none, and with fewer items hardly any book is in a list of 50.

use thiserror::Error;

/// Customers for each emulated browser.
const CUSTOMERS: i32 = 2_880;

/// The countries of the world, as far as the specification knows them.
pub(super) const COUNTRIES: i32 = 92;

/// The most emulated browsers; keys of all tables stay below a third of 2^31.
const MOST_BROWSERS: u32 = 100_000;

/// Number of items, and A of [`NURand`](super::draws::nurand) over search words.
const ITEMS: [(i32, i32); 3] = [(1_000, 63), (10_000, 511), (100_000, 4_095)];

/// The size of the store, by its two free numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    pub(super) items: i32,
    pub(super) customers: i32,
}

/// A size that the specification does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TpcwScaleError {
    #[error("{0} items: TPC-W has 1000, 10000 or 100000 here")]
    Items(u32),
    #[error("{0} emulated browsers: choose 1 to {MOST_BROWSERS}")]
    Browsers(u32),
}

impl Scale {
    /// A store with so many items, its customers for so many emulated browsers.
    pub fn new(items: u32, browsers: u32) -> Result<Self, TpcwScaleError> {
        let items = i32::try_from(items)
            .ok()
            .filter(|items| ITEMS.iter().any(|(known, _)| known == items))
            .ok_or(TpcwScaleError::Items(items))?;
        let customers = i32::try_from(browsers)
            .ok()
            .filter(|_| (1..=MOST_BROWSERS).contains(&browsers))
            .map(|browsers| browsers * CUSTOMERS)
            .ok_or(TpcwScaleError::Browsers(browsers))?;
        Ok(Scale { items, customers })
    }

    pub(super) fn authors(self) -> i32 {
        self.items / 4
    }

    pub(super) fn addresses(self) -> i32 {
        2 * self.customers
    }

    pub(super) fn orders(self) -> i32 {
        self.customers / 10 * 9
    }

    /// How many words titles are searched by; a fifth of the items.
    pub(super) fn title_words(self) -> i32 {
        self.items / 5
    }

    /// How many words authors are searched by; a tenth of the items.
    pub(super) fn author_words(self) -> i32 {
        self.items / 10
    }

    /// A for draws of search words.
    pub(super) fn item_a(self) -> i32 {
        ITEMS.iter().find(|(items, _)| *items == self.items).map_or(63, |(_, a)| *a)
    }

    /// A for draws of customers: 1,023 below 10,000 customers, then four times as much, less one,
    /// where their number is four times as large.
    pub(super) fn customer_a(self) -> i32 {
        let mut below = 10_000_i64;
        let mut a = 1_023;
        while i64::from(self.customers) >= below && a < i32::MAX / 4 {
            below *= 4;
            a = a * 4 + 3;
        }
        a
    }
}

const _: () = assert!(CUSTOMERS as i64 * MOST_BROWSERS as i64 * 2 < i32::MAX as i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_grow_with_items_and_browsers() {
        let scale = Scale::new(10_000, 4).unwrap();
        let sizes = (scale.authors(), scale.customers, scale.addresses(), scale.orders());
        assert_eq!(sizes, (2_500, 11_520, 23_040, 10_368));
        assert_eq!(
            (scale.title_words(), scale.author_words(), scale.item_a()),
            (2_000, 1_000, 511)
        );
    }

    #[test]
    fn the_constant_of_customers_follows_the_table_of_the_specification() {
        let a = |browsers| Scale::new(1_000, browsers).unwrap().customer_a();
        assert_eq!(
            [a(1), a(3), a(4), a(13), a(14), a(55)],
            [1_023, 1_023, 4_095, 4_095, 16_383, 16_383]
        );
        // 160,000 and 640,000 customers.
        assert_eq!([a(56), a(222), a(223)], [65_535, 65_535, 262_143]);
    }

    #[test]
    fn other_sizes_are_refused_with_the_choice() {
        for (items, browsers) in [(999, 1), (0, 1), (10_000_000, 1), (1_000, 0), (1_000, 100_001)] {
            let message = Scale::new(items, browsers).unwrap_err().to_string();
            assert!(message.contains("1000") || message.contains("choose 1 to"), "{message}");
        }
        assert!(Scale::new(100_000, 100_000).is_ok());
    }
}
