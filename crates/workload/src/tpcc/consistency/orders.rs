//! Conditions 5 to 7: each order with its lines and its place among the undelivered.
//!
//! A page is a thousand orders with all that belongs to them: lines and new orders are read by the
//! range of order numbers from the page before to the last of this one, the last page's without an
//! end. So what belongs to no order is noticed as well.

use std::collections::BTreeMap;

use crate::{Failure, Rows, Session, Statement, Value};

use super::{Findings, Place};

static ORDERS: Statement = Statement::new(
    "SELECT o_id, o_c_id, o_carrier_id, o_ol_cnt FROM orders \
     WHERE o_w_id = ? AND o_d_id = ? AND o_id >= ? ORDER BY o_id LIMIT 1000",
);
static NEW_ORDERS: Statement = Statement::new(
    "SELECT no_o_id FROM new_order \
     WHERE no_w_id = ? AND no_d_id = ? AND no_o_id >= ? AND no_o_id <= ?",
);
static LINES: Statement = Statement::new(
    "SELECT ol_o_id, ol_delivery_d, ol_amount FROM order_line \
     WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id >= ? AND ol_o_id <= ?",
);

/// Rows of a whole page, as [`ORDERS`] says.
const PAGE: usize = 1_000;

/// The numbers that an order may have.
const LOWEST: i64 = i32::MIN as i64;
const HIGHEST: i64 = i32::MAX as i64;

/// What has been delivered to each customer of a district, in cents.
pub(super) type Delivered = BTreeMap<i64, i64>;

/// An order with what belongs to it.
#[derive(Debug, Default)]
struct CheckedOrder {
    customer: i64,
    has_carrier: bool,
    lines_said: i64,
    lines: i64,
    delivered: i64,
    /// Of the lines that are delivered, in cents.
    amount: i64,
    is_new: bool,
}

/// Checks the orders of a district; returns what they have delivered.
pub(super) async fn check(
    session: &Session<'_>,
    at: Place,
    findings: &mut Findings,
) -> Result<Delivered, Failure> {
    let mut delivered = Delivered::new();
    let mut from = LOWEST;
    loop {
        let key = [at.warehouse.into(), at.district.into(), from.into()];
        let mut page = read_orders(&session.query(&ORDERS, &key).await?)?;
        let last = page.last_key_value().map(|(&number, _)| number).filter(|_| page.len() == PAGE);
        let until = last.unwrap_or(HIGHEST);
        let [w, d, from_value] = key;
        let range = [w, d, from_value, until.into()];
        mark_new(at, &mut page, session, &range, findings).await?;
        add_lines(at, &mut page, session, &range, findings).await?;
        for (&number, order) in &page {
            check_order(at, number, order, findings);
            *delivered.entry(order.customer).or_default() += order.amount;
        }
        match last {
            Some(last) => from = last + 1,
            None => return Ok(delivered),
        }
    }
}

fn read_orders(rows: &Rows) -> Result<BTreeMap<i64, CheckedOrder>, Failure> {
    let order = |row| {
        let order = CheckedOrder {
            customer: rows.int(row, 1)?,
            has_carrier: !rows.is_null(row, 2),
            lines_said: rows.int(row, 3)?,
            ..CheckedOrder::default()
        };
        Some((rows.int(row, 0)?, order))
    };
    let orders: Option<_> = (0..rows.len()).map(order).collect();
    orders.ok_or(Failure::Unexpected("the numbers of each order"))
}

async fn mark_new(
    at: Place,
    page: &mut BTreeMap<i64, CheckedOrder>,
    session: &Session<'_>,
    range: &[Value<'_>; 4],
    findings: &mut Findings,
) -> Result<(), Failure> {
    let rows = session.query(&NEW_ORDERS, range).await?;
    for row in 0..rows.len() {
        let number = rows.number(row, 0, "a new order's number")?;
        let order = page.get_mut(&number);
        findings.expect(5, order.is_some(), || format!("{at}: new order {number} is no order"));
        if let Some(order) = order {
            order.is_new = true;
        }
    }
    Ok(())
}

async fn add_lines(
    at: Place,
    page: &mut BTreeMap<i64, CheckedOrder>,
    session: &Session<'_>,
    range: &[Value<'_>; 4],
    findings: &mut Findings,
) -> Result<(), Failure> {
    let rows = session.query(&LINES, range).await?;
    for row in 0..rows.len() {
        let (Some(number), Some(amount)) = (rows.int(row, 0), rows.int(row, 2)) else {
            return Err(Failure::Unexpected("the numbers of an order line"));
        };
        let order = page.get_mut(&number);
        findings.expect(7, order.is_some(), || format!("{at}: a line is of no order {number}"));
        if let Some(order) = order {
            let is_delivered = !rows.is_null(row, 1);
            order.lines += 1;
            order.delivered += i64::from(is_delivered);
            order.amount += if is_delivered { amount } else { 0 };
        }
    }
    Ok(())
}

fn check_order(at: Place, number: i64, order: &CheckedOrder, findings: &mut Findings) {
    let CheckedOrder { has_carrier, is_new, lines, lines_said, delivered, .. } = order;
    let carrier = if *has_carrier { "has a carrier" } else { "has no carrier" };
    findings.expect(5, has_carrier != is_new, || {
        let place = if *is_new { "is in NEW-ORDER" } else { "is not in NEW-ORDER" };
        format!("{at}: order {number} {carrier} and {place}")
    });
    findings.expect(6, lines == lines_said, || {
        format!("{at}: order {number} has {lines} lines, its O_OL_CNT is {lines_said}")
    });
    let to_deliver = if *has_carrier { *lines } else { 0 };
    findings.expect(7, *delivered == to_deliver, || {
        format!("{at}: order {number} {carrier}; of its {lines} lines {delivered} are delivered")
    });
}
