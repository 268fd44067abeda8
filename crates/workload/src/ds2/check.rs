//! Whether the tables agree.
//!
//! The quick check compares sums and counts of whole tables: one read of each. The full one goes
//! through the customers, 1,000 at a time, with their orders, the lines of those and their history
//! side by side, and then through the products.

use std::collections::{BTreeMap, BTreeSet};

use super::Scale;
use super::population::{Amounts, LINES_MAX, price, sales, stock};
use crate::workload::{Condition, Depth};
use crate::{Failure, Rows, Session, Statement};

/// An order's amount is what its lines cost at the products' prices, the tax is 8.25 % of it, and
/// the total is their sum.
const AMOUNTS: &str = "DS2 order amounts";
/// Every order has lines, one to nine, numbered from 1, and no line is without an order.
const LINES: &str = "DS2 order lines";
/// The products in a customer's history are those of the customer's lines.
const HISTORY: &str = "DS2 purchase history";
/// Every order is a customer's.
const CUSTOMERS: &str = "DS2 order customers";
/// The sales of a product are the units in all lines: no update was lost.
const SOLD: &str = "DS2 stock sold";
/// The units of a product in stock are those at the start and those ordered from its makers,
/// without those sold.
const LEFT: &str = "DS2 stock left";
/// There are never fewer than none.
const NOT_NEGATIVE: &str = "DS2 stock not negative";

pub(super) async fn check(
    scale: Scale,
    session: &Session<'_>,
    depth: Depth,
) -> Result<Vec<Condition>, Failure> {
    match depth {
        Depth::Quick => quick(scale, session).await,
        Depth::Full => full(scale, session).await,
    }
}

fn condition(name: &'static str, violation: Option<String>) -> Condition {
    Condition { name, violation }
}

/// A violation, when two numbers differ that should not.
fn differ(what: &str, found: i64, than: &str, expected: i64) -> Option<String> {
    (found != expected).then(|| format!("{what} is {found}, {than} is {expected}"))
}

fn int(rows: &Rows, row: usize, column: usize) -> Result<i64, Failure> {
    rows.number(row, column, "numbers in all columns of numbers")
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).expect("rows in memory are fewer than 2^63")
}

async fn totals(sql: &'static str, session: &Session<'_>) -> Result<Rows, Failure> {
    session.query_some(&Statement::new(sql), &[], "an answer to a count").await
}

async fn quick(scale: Scale, session: &Session<'_>) -> Result<Vec<Condition>, Failure> {
    let orders =
        totals("SELECT COUNT(*), SUM(netamount), SUM(tax), SUM(totalamount) FROM orders", session)
            .await?;
    let amounts = differ(
        "the sum of totals",
        orders.sum(3)?,
        "that of amounts and taxes",
        orders.sum(1)? + orders.sum(2)?,
    );
    let first = totals("SELECT COUNT(*) FROM orderlines WHERE orderlineid = 1", session).await?;
    let lines = differ("the number of first lines", first.sum(0)?, "of orders", orders.sum(0)?);
    let all =
        totals("SELECT COUNT(*), SUM(prod_id), SUM(quantity) FROM orderlines", session).await?;
    let past = totals("SELECT COUNT(*), SUM(prod_id) FROM cust_hist", session).await?;
    let (kept, ordered) = (past.sum(1)?, all.sum(1)?);
    let history = differ("the number of rows", past.sum(0)?, "of lines", all.sum(0)?)
        .or_else(|| differ("the sum of products", kept, "in lines", ordered));
    let mut conditions =
        vec![condition(AMOUNTS, amounts), condition(LINES, lines), condition(HISTORY, history)];
    conditions.extend(quick_stock(scale, all.sum(2)?, session).await?);
    Ok(conditions)
}

async fn quick_stock(
    scale: Scale,
    quantity: i64,
    session: &Session<'_>,
) -> Result<[Condition; 3], Failure> {
    let stock_now =
        totals("SELECT SUM(quan_in_stock), SUM(sales), MIN(quan_in_stock) FROM inventory", session)
            .await?;
    let ordered = totals("SELECT SUM(quan_reordered) FROM reorder", session).await?;
    let start: i64 = scale.products().map(|product| i64::from(stock(product))).sum();
    let sold_before: i64 = sales(scale).iter().sum();
    let expected = start + sold_before + ordered.sum(0)?;
    let sold = differ("the sum of sales", stock_now.sum(1)?, "of units in lines", quantity);
    let found = stock_now.sum(0)? + stock_now.sum(1)?;
    let left = differ("in stock and sold", found, "at the start and ordered", expected);
    let least = stock_now.sum(2)?;
    let negative = (least < 0).then(|| format!("the least is {least}"));
    Ok([condition(SOLD, sold), condition(LEFT, left), condition(NOT_NEGATIVE, negative)])
}

async fn full(scale: Scale, session: &Session<'_>) -> Result<Vec<Condition>, Failure> {
    let mut walk = Walk::default();
    let mut last = 0;
    loop {
        let customers = session.query(&NEXT_CUSTOMERS, &[last.into()]).await?;
        if customers.is_empty() {
            break;
        }
        last = walk.page(&customers, session).await?;
    }
    walk.compare_counts(session).await?;
    let mut conditions = vec![
        condition(AMOUNTS, walk.amounts),
        condition(LINES, walk.lines),
        condition(HISTORY, walk.history),
        condition(CUSTOMERS, walk.customers),
    ];
    conditions.extend(full_stock(scale, session).await?);
    Ok(conditions)
}

const NEXT_CUSTOMERS: Statement = Statement::new(
    "SELECT customerid FROM customers WHERE customerid > ? ORDER BY customerid LIMIT 1000",
);
const ORDERS_OF: Statement = Statement::new(
    "SELECT orderid, customerid, netamount, tax, totalamount FROM orders \
     WHERE customerid BETWEEN ? AND ?",
);
const LINES_OF: Statement = Statement::new(
    "SELECT orderlines.orderid, orderlines.orderlineid, orderlines.prod_id, orderlines.quantity \
     FROM orders, orderlines \
     WHERE orders.customerid BETWEEN ? AND ? AND orderlines.orderid = orders.orderid \
     ORDER BY orderlines.orderid, orderlines.orderlineid",
);
const HISTORY_OF: Statement = Statement::new(
    "SELECT customerid, orderid, prod_id FROM cust_hist WHERE customerid BETWEEN ? AND ?",
);

/// What the way through the customers has found: of each condition the first violation.
#[derive(Default)]
struct Walk {
    orders_seen: i64,
    lines_seen: i64,
    history_seen: i64,
    amounts: Option<String>,
    lines: Option<String>,
    history: Option<String>,
    customers: Option<String>,
}

/// An order with all that belongs to it.
#[derive(Debug, Default)]
struct Found {
    customer: i64,
    amounts: [i64; 3],
    /// Numbers of the lines, in their order.
    numbers: Vec<i64>,
    net: i64,
    bought: Vec<i64>,
    remembered: Vec<i64>,
}

impl Walk {
    /// Looks at some customers; returns the last of them.
    async fn page(&mut self, customers: &Rows, session: &Session<'_>) -> Result<i64, Failure> {
        let known: BTreeSet<i64> =
            (0..customers.len()).map(|row| int(customers, row, 0)).collect::<Result<_, _>>()?;
        let (first, last) = (int(customers, 0, 0)?, int(customers, customers.len() - 1, 0)?);
        let range = [first.into(), last.into()];
        let mut orders = orders(&session.query(&ORDERS_OF, &range).await?)?;
        self.orders_seen += whole(orders.len());
        self.add_lines(&mut orders, &session.query(&LINES_OF, &range).await?)?;
        self.add_history(&mut orders, &session.query(&HISTORY_OF, &range).await?)?;
        for (order, found) in orders {
            self.look_at(order, found, &known);
        }
        Ok(last)
    }

    fn add_lines(
        &mut self,
        orders: &mut BTreeMap<i64, Found>,
        lines: &Rows,
    ) -> Result<(), Failure> {
        self.lines_seen += whole(lines.len());
        for row in 0..lines.len() {
            let Some(order) = orders.get_mut(&int(lines, row, 0)?) else { continue };
            let product = int(lines, row, 2)?;
            let cents = i32::try_from(product).map_or(0, price);
            order.numbers.push(int(lines, row, 1)?);
            order.bought.push(product);
            order.net += cents * int(lines, row, 3)?;
        }
        Ok(())
    }

    fn add_history(
        &mut self,
        orders: &mut BTreeMap<i64, Found>,
        history: &Rows,
    ) -> Result<(), Failure> {
        self.history_seen += whole(history.len());
        for row in 0..history.len() {
            let (customer, order) = (int(history, row, 0)?, int(history, row, 1)?);
            let product = int(history, row, 2)?;
            let found = orders.get_mut(&order).filter(|found| found.customer == customer);
            if let Some(found) = found {
                found.remembered.push(product);
            } else {
                let what = || format!("customer {customer} has none of order {order}");
                self.history.get_or_insert_with(what);
            }
        }
        Ok(())
    }

    fn look_at(&mut self, order: i64, mut found: Found, customers: &BTreeSet<i64>) {
        let Amounts { net, tax, total } = Amounts::new(found.net);
        if found.amounts != [net, tax, total] {
            let what = || {
                let is = found.amounts;
                format!("order {order} has {is:?} cents, its lines make {:?}", [net, tax, total])
            };
            self.amounts.get_or_insert_with(what);
        }
        let count = whole(found.numbers.len());
        let is_numbered = found.numbers.iter().copied().eq(1..=count);
        if !is_numbered || !(1..=i64::from(LINES_MAX)).contains(&count) {
            let what = || format!("order {order} has lines {:?}", found.numbers);
            self.lines.get_or_insert_with(what);
        }
        found.bought.sort_unstable();
        found.remembered.sort_unstable();
        if found.bought != found.remembered {
            let what = || {
                let Found { bought, remembered, .. } = &found;
                format!("order {order} is of products {bought:?}, the history of {remembered:?}")
            };
            self.history.get_or_insert_with(what);
        }
        if !customers.contains(&found.customer) {
            let what = || format!("order {order} is of customer {}", found.customer);
            self.customers.get_or_insert_with(what);
        }
    }

    /// Finds what is no customer's and was not met on the way.
    async fn compare_counts(&mut self, session: &Session<'_>) -> Result<(), Failure> {
        for (sql, seen, of, violation) in [
            ("SELECT COUNT(*) FROM orders", self.orders_seen, "customers", &mut self.customers),
            ("SELECT COUNT(*) FROM orderlines", self.lines_seen, "orders", &mut self.lines),
            ("SELECT COUNT(*) FROM cust_hist", self.history_seen, "customers", &mut self.history),
        ] {
            let all = totals(sql, session).await?.sum(0)?;
            if violation.is_none() {
                *violation = differ("the number of rows", all, &format!("that of {of}'"), seen);
            }
        }
        Ok(())
    }
}

fn orders(rows: &Rows) -> Result<BTreeMap<i64, Found>, Failure> {
    let order = |row| {
        let amounts = [int(rows, row, 2)?, int(rows, row, 3)?, int(rows, row, 4)?];
        let found = Found { customer: int(rows, row, 1)?, amounts, ..Found::default() };
        Ok((int(rows, row, 0)?, found))
    };
    (0..rows.len()).map(order).collect()
}

const NEXT_PRODUCTS: Statement = Statement::new(
    "SELECT prod_id, quan_in_stock, sales FROM inventory WHERE prod_id > ? \
     ORDER BY prod_id LIMIT 1000",
);

/// What the way through the products has found: of each condition the first violation.
#[derive(Default)]
struct Shelf {
    sold: Option<String>,
    left: Option<String>,
    negative: Option<String>,
}

async fn full_stock(scale: Scale, session: &Session<'_>) -> Result<[Condition; 3], Failure> {
    let units =
        by_product("SELECT prod_id, SUM(quantity) FROM orderlines GROUP BY prod_id", session)
            .await?;
    let ordered =
        by_product("SELECT prod_id, SUM(quan_reordered) FROM reorder GROUP BY prod_id", session)
            .await?;
    let mut start = (1_i64..).zip(sales(scale).into_iter().zip(scale.products().map(stock)));
    let mut shelf = Shelf::default();
    let mut last = 0;
    loop {
        let rows = session.query(&NEXT_PRODUCTS, &[last.into()]).await?;
        for row in 0..rows.len() {
            let [product, now, sold] =
                [int(&rows, row, 0)?, int(&rows, row, 1)?, int(&rows, row, 2)?];
            let of = |map: &BTreeMap<i64, i64>| map.get(&product).copied().unwrap_or(0);
            let (_, (sold_before, stock)) =
                start.next().filter(|(key, _)| *key == product).ok_or(EACH_PRODUCT)?;
            let expected = sold_before + i64::from(stock) + of(&ordered);
            shelf.look_at(product, [now, sold], of(&units), expected);
            last = product;
        }
        if rows.is_empty() {
            break;
        }
    }
    if start.next().is_some() {
        return Err(EACH_PRODUCT);
    }
    let Shelf { sold, left, negative } = shelf;
    Ok([condition(SOLD, sold), condition(LEFT, left), condition(NOT_NEGATIVE, negative)])
}

const EACH_PRODUCT: Failure = Failure::Unexpected("the stock of each product");

impl Shelf {
    fn look_at(&mut self, product: i64, [now, sold]: [i64; 2], units: i64, expected: i64) {
        if self.sold.is_none() {
            let what = format!("sales of product {product}");
            self.sold = differ(&what, sold, "units in lines", units);
        }
        if self.left.is_none() {
            let what = format!("product {product} in stock and sold");
            self.left = differ(&what, now + sold, "at the start and ordered", expected);
        }
        if self.negative.is_none() && now < 0 {
            self.negative = Some(format!("product {product} has {now}"));
        }
    }
}

async fn by_product(
    sql: &'static str,
    session: &Session<'_>,
) -> Result<BTreeMap<i64, i64>, Failure> {
    let rows = session.query(&Statement::new(sql), &[]).await?;
    (0..rows.len()).map(|row| Ok((int(&rows, row, 0)?, int(&rows, row, 1)?))).collect()
}
