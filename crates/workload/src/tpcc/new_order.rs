//! New-Order (clause 2.4): an order of 5 to 15 lines is placed.
//!
//! Phases: `I` reads warehouse, customer and district and takes the order's number from the
//! district, which other orders of the district then wait for; `order` inserts the order and its
//! entry among the undelivered; `II` goes through the items. I and II are those of the
//! deterioration study's Figure 4, which counts the inserts between them apart.
//!
//! Lines are taken in the order typed in. So two orders may wait for each other's stock, and the
//! database has to find that out; sorting the items would avoid it.
//!
//! Two things that only the terminal's screen shows are not worked out: the order's total and
//! whether items are generic. All columns they need are fetched.

use std::sync::Arc;

use crate::workload::Transaction;
use crate::{Ending, Failure, Running, Session, Statement, Value};

use super::inputs::{Line, NewOrder};

pub(super) const PHASES: &[&str] = &["I", "order", "II"];

static WAREHOUSE: Statement = Statement::new("SELECT w_tax FROM warehouse WHERE w_id = ?");
static CUSTOMER: Statement = Statement::new(
    "SELECT c_discount, c_last, c_credit FROM customer \
     WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
);
static DISTRICT: Statement = Statement::new(
    "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ? FOR UPDATE",
);
static NEXT_ORDER: Statement =
    Statement::new("UPDATE district SET d_next_o_id = ? WHERE d_w_id = ? AND d_id = ?");
static INSERT_ORDER: Statement = Statement::new(
    "INSERT INTO orders \
     (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
);
static INSERT_NEW_ORDER: Statement =
    Statement::new("INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (?, ?, ?)");
static ITEM: Statement = Statement::new("SELECT i_price, i_name, i_data FROM item WHERE i_id = ?");
static UPDATE_STOCK: Statement = Statement::new(
    "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1, \
     s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
);
static INSERT_LINE: Statement = Statement::new(
    "INSERT INTO order_line \
     (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d, ol_quantity, \
     ol_amount, ol_dist_info) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
);

/// The stock of an item with what its warehouse says of a district: a statement for each district.
macro_rules! stock_of_districts {
    ($($district:literal)*) => {
        [$(Statement::new(concat!(
            "SELECT s_quantity, s_dist_", $district, ", s_data FROM stock ",
            "WHERE s_w_id = ? AND s_i_id = ? FOR UPDATE"
        ))),*]
    };
}

static STOCK: [Statement; 10] =
    stock_of_districts!("01" "02" "03" "04" "05" "06" "07" "08" "09" "10");

impl Transaction for NewOrder {
    fn kind(&self) -> usize {
        super::NEW_ORDER
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move { place(&self, &session).await })
    }
}

async fn place(order: &NewOrder, session: &Session<'_>) -> Result<Ending, Failure> {
    let number = take_number(order, session).await?;
    session.phase(1);
    insert_order(order, number, session).await?;
    session.phase(2);
    for (line, place) in order.lines.iter().zip(1_i64..) {
        let item = session.query(&ITEM, &[line.item.into()]).await?;
        match item.int(0, 0) {
            Some(price) => insert_line(order, number, (line, place), price, session).await?,
            None if order.is_unplaceable => return Ok(Ending::Rollback),
            None => return Err(Failure::Unexpected("an item of an order")),
        }
    }
    Ok(Ending::Commit)
}

/// Phase I: the order's number, after which the district counts on.
async fn take_number(order: &NewOrder, session: &Session<'_>) -> Result<i64, Failure> {
    let (w, d, c) = (order.warehouse, order.district, order.customer);
    session.query_some(&WAREHOUSE, &[w.into()], "an order's warehouse").await?;
    session.query_some(&CUSTOMER, &[w.into(), d.into(), c.into()], "an order's customer").await?;
    let district = session.query(&DISTRICT, &[w.into(), d.into()]).await?;
    let number = district.number(0, 0, "an order's district")?;
    session.execute(&NEXT_ORDER, &[(number + 1).into(), w.into(), d.into()]).await?;
    Ok(number)
}

async fn insert_order(order: &NewOrder, number: i64, session: &Session<'_>) -> Result<(), Failure> {
    let key: [Value<'_>; 3] = [order.warehouse.into(), order.district.into(), number.into()];
    let [w, d, o] = key.clone();
    let values = [
        w,
        d,
        o,
        order.customer.into(),
        order.moment.into(),
        Value::Null,
        order.line_count().into(),
        i64::from(order.is_local()).into(),
    ];
    session.execute(&INSERT_ORDER, &values).await?;
    session.execute(&INSERT_NEW_ORDER, &key).await?;
    Ok(())
}

/// Takes a line's item out of the stock and puts the line into the order.
async fn insert_line(
    order: &NewOrder,
    number: i64,
    (line, place): (&Line, i64),
    price: i64,
    session: &Session<'_>,
) -> Result<(), Failure> {
    let district = usize::try_from(order.district - 1).ok().and_then(|place| STOCK.get(place));
    let select = district.ok_or(Failure::Unexpected("a district of ten"))?;
    let key: [Value<'_>; 2] = [line.supplier.into(), line.item.into()];
    let stock = session.query(select, &key).await?;
    let (Some(quantity), Some(said)) = (stock.int(0, 0), stock.text(0, 1)) else {
        return Err(Failure::Unexpected("the stock of an item"));
    };
    let is_remote = line.supplier != order.warehouse;
    let [supplier, item] = key;
    let values = [
        left_in_stock(quantity, line.quantity.into()).into(),
        line.quantity.into(),
        i64::from(is_remote).into(),
        supplier.clone(),
        item.clone(),
    ];
    session.execute(&UPDATE_STOCK, &values).await?;
    let values = [
        order.warehouse.into(),
        order.district.into(),
        number.into(),
        place.into(),
        item,
        supplier,
        Value::Null,
        line.quantity.into(),
        (price * i64::from(line.quantity)).into(),
        said.into(),
    ];
    session.execute(&INSERT_LINE, &values).await?;
    Ok(())
}

/// How many are left when some are taken; where fewer than ten would be, 91 come in (clause
/// 2.4.2.2).
fn left_in_stock(quantity: i64, taken: i64) -> i64 {
    if quantity >= taken + 10 { quantity - taken } else { quantity - taken + 91 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    #[test]
    fn stock_is_filled_up_before_it_runs_out() {
        for (quantity, taken, left) in [(20, 10, 10), (19, 10, 100), (10, 1, 100), (11, 1, 10)] {
            assert_eq!(left_in_stock(quantity, taken), left);
        }
    }

    #[test]
    fn each_district_has_its_column() {
        for (statement, district) in STOCK.iter().zip(1..) {
            let sql = statement.sql(Dialect::Postgres);
            assert!(sql.contains(&format!("s_dist_{district:02},")), "{sql}");
        }
    }
}
