//! The arithmetic of a sale: what it costs, and what it leaves in stock.
//!
//! # Example
//! Three books at 10.00 and two at 25.50 with a discount of 5 %: 81.00 less 4.05 is 76.95, 8.25 %
//! tax on it is 6.35, shipping is 3.00 and 1.00 for each of five books: 91.30 together.
//!
//! # Where this leaves the specification
//! - Money is a whole number of cents, rounded to the nearest once for each sum.
//! - The same rule holds for the orders that are there from the start. The specification draws
//!   their subtotals without regard to their lines, and ships them by their number of lines; then
//!   nothing about them could be checked. `ol_cost`, the price at the time of the sale, is ours
//!   too: Admin Confirm changes prices afterwards.

/// Tax, in hundredths of a percent.
const TAX: i64 = 825;
const SHIPPING: i64 = 300;
const SHIPPING_EACH: i64 = 100;

/// Stock that a sale must leave, or else more is ordered.
const LEAST_STOCK: i64 = 10;

/// How many books come when more are ordered.
pub(super) const REFILL: i64 = 21;

/// The most that is ever in stock: from the start, and where a sale left 9 and 21 came.
pub(super) const MOST_STOCK: i64 = 30;

/// One kind of book in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sale {
    pub(super) quantity: i64,
    /// For one, in cents.
    pub(super) cost: i64,
    /// In percent.
    pub(super) discount: i64,
}

/// What an order costs, in cents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) subtotal: i64,
    pub(super) tax: i64,
    pub(super) total: i64,
}

/// What an order with these lines costs. Numbers beyond all sense do not overflow.
pub(super) fn totals(sales: &[Sale]) -> Totals {
    let hundredths = sales.iter().fold(0_i64, |sum, sale| {
        let paid = sale.quantity.saturating_mul(sale.cost);
        sum.saturating_add(paid.saturating_mul(100_i64.saturating_sub(sale.discount)))
    });
    let books = sales.iter().fold(0_i64, |sum, sale| sum.saturating_add(sale.quantity));
    let subtotal = hundredths.saturating_add(50) / 100;
    let tax = subtotal.saturating_mul(TAX).saturating_add(5_000) / 10_000;
    let shipping = books.saturating_mul(SHIPPING_EACH).saturating_add(SHIPPING);
    Totals { subtotal, tax, total: subtotal.saturating_add(tax).saturating_add(shipping) }
}

/// The stock after a sale: 21 come when fewer than ten would be left.
pub(super) fn stock_after(stock: i64, quantity: i64) -> i64 {
    let left = stock.saturating_sub(quantity);
    if left < LEAST_STOCK { left.saturating_add(REFILL) } else { left }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_costs_what_the_example_says() {
        let sales = [
            Sale { quantity: 3, cost: 1_000, discount: 5 },
            Sale { quantity: 2, cost: 2_550, discount: 5 },
        ];
        assert_eq!(totals(&sales), Totals { subtotal: 7_695, tax: 635, total: 9_130 });
        assert_eq!(totals(&[]), Totals { subtotal: 0, tax: 0, total: 300 });
        let senseless = Sale { quantity: i64::MAX, cost: i64::MIN, discount: i64::MIN };
        let _ = totals(&[senseless, senseless]);
    }

    #[test]
    fn stock_is_refilled_when_fewer_than_ten_are_left() {
        for (stock, quantity, after) in
            [(20, 10, 10), (20, 11, 30), (10, 1, 30), (12, 2, 10), (10, 40, -9)]
        {
            assert_eq!(stock_after(stock, quantity), after, "{stock} - {quantity}");
        }
        for (stock, quantity) in (10..=30).flat_map(|stock| (1..=60).map(move |sold| (stock, sold)))
        {
            assert!(stock_after(stock, quantity) <= MOST_STOCK);
        }
    }
}
