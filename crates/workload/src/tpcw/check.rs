//! What must hold while no interaction is under way. The conditions are ours: the specification has
//! none of the kind.
//!
//! - `tpcw order totals`: subtotal, tax and total follow from an order's lines by the
//!   [rules](super::rules).
//! - `tpcw order lines`: every order has lines, numbered from 1 without a gap, and every line an
//!   order.
//! - `tpcw payments`: every order is paid once, by its total, and every payment has an order.
//! - `tpcw carts`: a cart's lines have a cart, an item, and a quantity of one or more.
//! - `tpcw stock`: an item's stock is what it was, less what was sold, and 21 for each refill; it
//!   is never above 30.
//! - `tpcw references`: items have authors, customers addresses, orders customers and addresses,
//!   lines items.
//! - `tpcw population`: as many countries, authors and items as at the start; no fewer orders and
//!   customers.
//!
//! Orders are read a few hundred at a time. The quick check looks at the orders of clients only.
//! What was sold is compared by items, a row for each.

use std::fmt::Write;

use super::population::price;
use super::rules::{MOST_STOCK, REFILL, Sale, totals};
use super::scale::{COUNTRIES, Scale};
use crate::workload::{Condition, Depth};
use crate::{Failure, Rows, Session, Statement};

const ORDERS: Statement = Statement::new(
    "SELECT o_id, o_sub_total, o_tax, o_total FROM orders WHERE o_id > ? ORDER BY o_id LIMIT 500",
);

const LINES: Statement = Statement::new(
    "SELECT ol_o_id, ol_id, ol_qty, ol_cost, ol_discount FROM order_line \
     WHERE ol_o_id > ? AND ol_o_id <= ? ORDER BY ol_o_id, ol_id",
);

const PAYMENTS: Statement = Statement::new(
    "SELECT cx_o_id, cx_xact_amt FROM cc_xacts WHERE cx_o_id > ? AND cx_o_id <= ? ORDER BY cx_o_id",
);

const SOLD: Statement = Statement::new(
    "SELECT ol_i_id, SUM(ol_qty) AS sold FROM order_line WHERE ol_o_id > ? \
     GROUP BY ol_i_id ORDER BY ol_i_id",
);

const STOCKS: Statement = Statement::new("SELECT i_id, i_stock FROM item ORDER BY i_id");

/// What an empty cart line would be.
const EMPTY_LINES: &str = "SELECT COUNT(*) FROM shopping_cart_line WHERE scl_qty < 1";

/// Rows of a table, and those of them that have what they refer to: as many.
type ForeignKey = (&'static str, &'static str, &'static str);

const CART_REFERENCES: [ForeignKey; 2] = [
    (
        "cart lines without an item",
        "SELECT COUNT(*) FROM shopping_cart_line",
        "SELECT COUNT(*) FROM shopping_cart_line, item WHERE i_id = scl_i_id",
    ),
    (
        "cart lines without a cart",
        "SELECT COUNT(*) FROM shopping_cart_line",
        "SELECT COUNT(*) FROM shopping_cart_line, shopping_cart WHERE sc_id = scl_sc_id",
    ),
];

const REFERENCES: [ForeignKey; 6] = [
    (
        "items without an author",
        "SELECT COUNT(*) FROM item",
        "SELECT COUNT(*) FROM item, author WHERE a_id = i_a_id",
    ),
    (
        "customers without an address in a country",
        "SELECT COUNT(*) FROM customer",
        "SELECT COUNT(*) FROM customer, address, country \
         WHERE addr_id = c_addr_id AND co_id = addr_co_id",
    ),
    (
        "orders without a customer",
        "SELECT COUNT(*) FROM orders",
        "SELECT COUNT(*) FROM orders, customer WHERE c_id = o_c_id",
    ),
    (
        "orders without an address to bill",
        "SELECT COUNT(*) FROM orders",
        "SELECT COUNT(*) FROM orders, address WHERE addr_id = o_bill_addr_id",
    ),
    (
        "orders without an address to send to",
        "SELECT COUNT(*) FROM orders",
        "SELECT COUNT(*) FROM orders, address WHERE addr_id = o_ship_addr_id",
    ),
    (
        "order lines without an item",
        "SELECT COUNT(*) FROM order_line",
        "SELECT COUNT(*) FROM order_line, item WHERE i_id = ol_i_id",
    ),
];

const TOTALS: &str = "tpcw order totals";
const ORDER_LINES: &str = "tpcw order lines";
const PAID: &str = "tpcw payments";
const CARTS: &str = "tpcw carts";
const STOCK: &str = "tpcw stock";
const REFER: &str = "tpcw references";
const POPULATION: &str = "tpcw population";

/// How many offences of a kind are told.
const TOLD: usize = 3;

pub(super) async fn check(
    scale: Scale,
    session: &Session<'_>,
    depth: Depth,
) -> Result<Vec<Condition>, Failure> {
    let mut conditions = orders(scale, session, depth).await?;
    conditions.push(Condition { name: CARTS, violation: carts(session).await?.told() });
    conditions.push(Condition { name: STOCK, violation: stock(scale, session).await?.told() });
    let references = references(session, &REFERENCES).await?;
    conditions.push(Condition { name: REFER, violation: references.told() });
    let population = population(scale, session).await?;
    conditions.push(Condition { name: POPULATION, violation: population.told() });
    Ok(conditions)
}

#[derive(Debug, Default)]
struct Offences {
    count: usize,
    first: String,
}

impl Offences {
    fn add(&mut self, offence: std::fmt::Arguments<'_>) {
        self.count += 1;
        if self.count <= TOLD {
            let comma = if self.count == 1 { "" } else { "; " };
            // Writing to a String cannot fail.
            let _ = write!(self.first, "{comma}{offence}");
        }
    }

    fn told(self) -> Option<String> {
        match self.count {
            0 => None,
            count if count > TOLD => Some(format!("{}; {} more", self.first, count - TOLD)),
            _ => Some(self.first),
        }
    }
}

/// Numbers of an answer, a row after the other; what is no number is -1, which no column holds.
fn numbers<const WIDTH: usize>(rows: &Rows) -> impl Iterator<Item = [i64; WIDTH]> {
    (0..rows.len()).map(|row| std::array::from_fn(|column| rows.int(row, column).unwrap_or(-1)))
}

async fn orders(
    scale: Scale,
    session: &Session<'_>,
    depth: Depth,
) -> Result<Vec<Condition>, Failure> {
    let mut found = OrderOffences::default();
    let mut after = match depth {
        Depth::Quick => i64::from(scale.orders()),
        Depth::Full => 0,
    };
    loop {
        let rows = session.query(&ORDERS, &[after.into()]).await?;
        let orders: Vec<[i64; 4]> = numbers(&rows).collect();
        // Behind the last order there must be no lines either.
        let last = orders.last().map_or(i64::from(i32::MAX), |order| order[0]);
        let range = [after.into(), last.into()];
        let lines = session.query(&LINES, &range).await?;
        let payments = session.query(&PAYMENTS, &range).await?;
        found.add(
            &orders,
            &numbers(&lines).collect::<Vec<_>>(),
            &numbers(&payments).collect::<Vec<_>>(),
        );
        if orders.is_empty() {
            return Ok(found.conditions());
        }
        after = last;
    }
}

#[derive(Debug, Default)]
struct OrderOffences {
    totals: Offences,
    lines: Offences,
    payments: Offences,
}

impl OrderOffences {
    /// Orders, and the lines and payments with numbers up to the last of them, each by number.
    fn add(&mut self, orders: &[[i64; 4]], lines: &[[i64; 5]], payments: &[[i64; 2]]) {
        let (mut lines, mut payments) = (lines, payments);
        for order in orders {
            let id = order[0];
            let (own, orphans);
            [orphans, own, lines] = split(lines, id);
            self.orphan_lines(orphans);
            self.order(order, own);
            let (own, orphans);
            [orphans, own, payments] = split(payments, id);
            self.orphan_payments(orphans);
            if !matches!(own, [[_, paid]] if *paid == order[3]) {
                self.payments.add(format_args!("order {id} of {} is paid {own:?}", order[3]));
            }
        }
        self.orphan_lines(lines);
        self.orphan_payments(payments);
    }

    fn order(&mut self, [id, subtotal, tax, total]: &[i64; 4], lines: &[[i64; 5]]) {
        let numbered = (1_i64..).zip(lines).all(|(number, line)| line[1] == number);
        if lines.is_empty() || !numbered {
            let found: Vec<i64> = lines.iter().map(|line| line[1]).collect();
            self.lines.add(format_args!("order {id} has lines {found:?}"));
        }
        let sale = |line: &[i64; 5]| Sale { quantity: line[2], cost: line[3], discount: line[4] };
        let due = totals(&lines.iter().map(sale).collect::<Vec<_>>());
        if (due.subtotal, due.tax, due.total) != (*subtotal, *tax, *total) {
            self.totals.add(format_args!(
                "order {id} has {subtotal} + {tax} = {total}, its lines come to {} + {} = {}",
                due.subtotal, due.tax, due.total
            ));
        }
    }

    fn orphan_lines(&mut self, lines: &[[i64; 5]]) {
        for line in lines {
            self.lines
                .add(format_args!("line {} of order {}, which is not there", line[1], line[0]));
        }
    }

    fn orphan_payments(&mut self, payments: &[[i64; 2]]) {
        for payment in payments {
            self.payments
                .add(format_args!("a payment of order {}, which is not there", payment[0]));
        }
    }

    fn conditions(self) -> Vec<Condition> {
        vec![
            Condition { name: TOTALS, violation: self.totals.told() },
            Condition { name: ORDER_LINES, violation: self.lines.told() },
            Condition { name: PAID, violation: self.payments.told() },
        ]
    }
}

/// Splits rows by their first number: those below a number, those with it, the rest.
fn split<const WIDTH: usize>(rows: &[[i64; WIDTH]], id: i64) -> [&[[i64; WIDTH]]; 3] {
    let (below, rest) = rows.split_at(rows.partition_point(|row| row[0] < id));
    let (own, rest) = rest.split_at(rest.partition_point(|row| row[0] == id));
    [below, own, rest]
}

async fn carts(session: &Session<'_>) -> Result<Offences, Failure> {
    let mut offences = references(session, &CART_REFERENCES).await?;
    let empty = count(session, EMPTY_LINES).await?;
    if empty > 0 {
        offences.add(format_args!("{empty} cart lines with no book"));
    }
    Ok(offences)
}

async fn references(session: &Session<'_>, references: &[ForeignKey]) -> Result<Offences, Failure> {
    let mut offences = Offences::default();
    for (what, all, good) in references {
        let missing = count(session, all).await? - count(session, good).await?;
        if missing != 0 {
            offences.add(format_args!("{missing} {what}"));
        }
    }
    Ok(offences)
}

async fn count(session: &Session<'_>, sql: &'static str) -> Result<i64, Failure> {
    let rows = session.query(&Statement::new(sql), &[]).await?;
    rows.number(0, 0, "a count that is no number")
}

async fn stock(scale: Scale, session: &Session<'_>) -> Result<Offences, Failure> {
    let mut offences = Offences::default();
    let rows = session.query(&SOLD, &[scale.orders().into()]).await?;
    let sold: Vec<[i64; 2]> = numbers(&rows).collect();
    let rows = session.query(&STOCKS, &[]).await?;
    for [item, stock] in numbers(&rows) {
        let before = i32::try_from(item).map_or(0, |item| i64::from(price(item).stock));
        let gone = match sold.binary_search_by_key(&item, |[item, _]| *item) {
            Ok(place) => sold.get(place).map_or(0, |[_, sold]| *sold),
            Err(_) => 0,
        };
        let refilled = stock.saturating_sub(before).saturating_add(gone);
        if stock > MOST_STOCK || refilled < 0 || refilled % REFILL != 0 {
            offences.add(format_args!(
                "item {item} had {before}, sold {gone}, has {stock}: no refills by {REFILL} do that"
            ));
        }
    }
    Ok(offences)
}

async fn population(scale: Scale, session: &Session<'_>) -> Result<Offences, Failure> {
    let mut offences = Offences::default();
    let expected = [
        ("countries", "SELECT COUNT(*) FROM country", COUNTRIES, COUNTRIES),
        ("authors", "SELECT COUNT(*) FROM author", scale.authors(), scale.authors()),
        ("items", "SELECT COUNT(*) FROM item", scale.items, scale.items),
        ("customers", "SELECT COUNT(*) FROM customer", scale.customers, i32::MAX),
        ("orders", "SELECT COUNT(*) FROM orders", scale.orders(), i32::MAX),
    ];
    for (what, sql, least, most) in expected {
        let found = count(session, sql).await?;
        if found < i64::from(least) || found > i64::from(most) {
            offences.add(format_args!("{found} {what}, there were {least}"));
        }
    }
    Ok(offences)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(orders: &[[i64; 4]], lines: &[[i64; 5]], payments: &[[i64; 2]]) -> Vec<String> {
        let mut found = OrderOffences::default();
        found.add(orders, lines, payments);
        found.conditions().into_iter().filter_map(|condition| condition.violation).collect()
    }

    #[test]
    fn an_order_is_held_against_its_lines_and_its_payment() {
        // 3 at 10.00 and 2 at 25.50, 5 % off: the example of the rules.
        let order = [7, 7_695, 635, 9_130];
        let lines = [[7, 1, 3, 1_000, 5], [7, 2, 2, 2_550, 5]];
        let none: [String; 0] = [];
        assert_eq!(violations(&[order], &lines, &[[7, 9_130]]), none);
        let wrong = violations(&[order], &lines[..1], &[[7, 9_131]]);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert_eq!(violations(&[order], &lines, &[]).len(), 1);
        let gap = [[7, 1, 3, 1_000, 5], [7, 3, 2, 2_550, 5]];
        assert_eq!(violations(&[order], &gap, &[[7, 9_130]]), ["order 7 has lines [1, 3]"]);
        let orphans = [[6, 1, 1, 1, 0], lines[0], lines[1], [8, 1, 1, 1, 0]];
        assert_eq!(
            violations(&[order], &orphans, &[[7, 9_130], [9, 1]]),
            [
                "line 1 of order 6, which is not there; line 1 of order 8, which is not there",
                "a payment of order 9, which is not there"
            ]
        );
    }

    #[test]
    fn only_the_first_offences_are_told() {
        let mut offences = Offences::default();
        for number in 0..5 {
            offences.add(format_args!("{number}"));
        }
        assert_eq!(offences.told().as_deref(), Some("0; 1; 2; 2 more"));
        assert_eq!(Offences::default().told(), None);
    }
}
