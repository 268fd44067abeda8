//! Log in, register, browse, purchase.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::keys::ClientKeys;
use super::population::{Amounts, CartLine, TODAY, stock_when_delivered};
use super::{BROWSE_ACTOR, BROWSE_CATEGORY, BROWSE_TITLE, LOGIN, PASSWORD, PURCHASE, REGISTER};
use crate::workload::Transaction;
use crate::{Ending, Failure, Running, Session, Statement, Value};

/// Fewer units in stock than this after a sale are few: a product is then ordered from its makers.
const LOW: i64 = 3;

const CUSTOMER_BY_NAME: Statement =
    Statement::new("SELECT customerid FROM customers WHERE username = ? AND password = ?");

const PREVIOUS: Statement = Statement::new(
    "SELECT products.title, products.actor, products.common_prod_id FROM cust_hist, products \
     WHERE cust_hist.customerid = ? AND products.prod_id = cust_hist.prod_id \
     ORDER BY cust_hist.orderid DESC LIMIT 10",
);

const TITLE: Statement = Statement::new("SELECT title FROM products WHERE prod_id = ?");

/// A customer of the first ones comes back, and is shown the last ten products they bought, and
/// with each what others who bought it bought.
#[derive(Debug)]
pub(super) struct CustomerLogin {
    pub(super) customer: i32,
}

impl Transaction for CustomerLogin {
    fn kind(&self) -> usize {
        LOGIN
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            let username = format!("user{}", self.customer);
            let values = [username.into(), PASSWORD.into()];
            let found = session.query_some(&CUSTOMER_BY_NAME, &values, "each customer").await?;
            if found.int(0, 0) != Some(self.customer.into()) {
                return Err(Failure::Unexpected("each customer under their name"));
            }
            session.phase(1);
            let bought = session.query(&PREVIOUS, &[self.customer.into()]).await?;
            for row in 0..bought.len() {
                let related = bought.int(row, 2).map_or(Value::Null, Value::Int);
                session.query_some(&TITLE, &[related], "each product").await?;
            }
            Ok(Ending::Commit)
        })
    }
}

const NAME_TAKEN: Statement = Statement::new("SELECT COUNT(*) FROM customers WHERE username = ?");

/// Somebody becomes a customer.
#[derive(Debug)]
pub(super) struct Register {
    /// The row, with a number and a name that are put in when they are known.
    pub(super) row: Vec<Value<'static>>,
    pub(super) keys: Arc<ClientKeys>,
    pub(super) insert: Arc<Statement>,
    /// The number that was given out last.
    pub(super) number: AtomicI64,
}

/// The columns of a customer's number and name.
const CUSTOMERID: usize = 0;
const USERNAME: usize = 15;

impl Transaction for Register {
    fn kind(&self) -> usize {
        REGISTER
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            self.keys.set_registered(None);
            let customer = self.keys.customers.take(&session).await?;
            self.number.store(customer, Ordering::Relaxed);
            let username = format!("newuser{customer}");
            let taken = session.query(&NAME_TAKEN, &[username.as_str().into()]).await?;
            if taken.int(0, 0) != Some(0) {
                return Ok(Ending::Rollback);
            }
            let mut row = self.row.clone();
            row[CUSTOMERID] = customer.into();
            row[USERNAME] = username.into();
            session.execute(&self.insert, &row).await?;
            Ok(Ending::Commit)
        })
    }

    fn committed(&self) {
        self.keys.set_registered(Some(self.number.load(Ordering::Relaxed)));
    }
}

/// What a browse looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The special offers of a category.
    Category(i32),
    Actor(String),
    Title(String),
}

/// How actors and titles are found by a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// They begin with it: a range of an index.
    Prefix,
    /// They contain it, `LIKE '%WORD%'`: all products are read, until enough are found.
    Word,
}

const IN_CATEGORY: Statement = Statement::new(
    "SELECT prod_id, category, title, actor, price, special, common_prod_id FROM products \
     WHERE category = ? AND special = 1 LIMIT ?",
);
const BY_ACTOR_PREFIX: Statement = Statement::new(
    "SELECT prod_id, category, title, actor, price, special, common_prod_id FROM products \
     WHERE actor >= ? AND actor < ? LIMIT ?",
);
const BY_ACTOR_WORD: Statement = Statement::new(
    "SELECT prod_id, category, title, actor, price, special, common_prod_id FROM products \
     WHERE actor LIKE ? LIMIT ?",
);
const BY_TITLE_PREFIX: Statement = Statement::new(
    "SELECT prod_id, category, title, actor, price, special, common_prod_id FROM products \
     WHERE title >= ? AND title < ? LIMIT ?",
);
const BY_TITLE_WORD: Statement = Statement::new(
    "SELECT prod_id, category, title, actor, price, special, common_prod_id FROM products \
     WHERE title LIKE ? LIMIT ?",
);

/// A customer looks for products.
#[derive(Debug)]
pub(super) struct Browse {
    pub(super) wanted: Wanted,
    pub(super) search: Search,
    pub(super) limit: i32,
}

impl Browse {
    fn statement(&self) -> (Statement, Vec<Value<'static>>) {
        let prefix = |word: &str| vec![word.to_owned().into(), format!("{word}Z").into()];
        let anywhere = |word: &str| vec![format!("%{word}%").into()];
        let (statement, mut values) = match (&self.wanted, self.search) {
            (Wanted::Category(category), _) => (IN_CATEGORY, vec![(*category).into()]),
            (Wanted::Actor(name), Search::Prefix) => (BY_ACTOR_PREFIX, prefix(name)),
            (Wanted::Actor(name), Search::Word) => (BY_ACTOR_WORD, anywhere(name)),
            (Wanted::Title(word), Search::Prefix) => (BY_TITLE_PREFIX, prefix(word)),
            (Wanted::Title(word), Search::Word) => (BY_TITLE_WORD, anywhere(word)),
        };
        values.push(self.limit.into());
        (statement, values)
    }
}

impl Transaction for Browse {
    fn kind(&self) -> usize {
        match self.wanted {
            Wanted::Category(_) => BROWSE_CATEGORY,
            Wanted::Actor(_) => BROWSE_ACTOR,
            Wanted::Title(_) => BROWSE_TITLE,
        }
    }

    fn is_single(&self) -> bool {
        true
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            let (statement, values) = self.statement();
            session.execute(&statement, &values).await?;
            Ok(Ending::Commit)
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ds2Buyer {
    /// A customer of the first ones, who has logged in.
    Returning(i32),
    /// The one who has just registered.
    New,
}

const CUSTOMER: Statement = Statement::new("SELECT customerid FROM customers WHERE customerid = ?");
const INSERT_ORDER: Statement = Statement::new(
    "INSERT INTO orders (orderid, orderdate, customerid, netamount, tax, totalamount) \
     VALUES (?, ?, ?, ?, ?, ?)",
);
const LOCK_STOCK: Statement =
    Statement::new("SELECT quan_in_stock FROM inventory WHERE prod_id = ? FOR UPDATE");
const CHANGE_STOCK: Statement = Statement::new(
    "UPDATE inventory SET quan_in_stock = quan_in_stock + ?, sales = sales + ? WHERE prod_id = ?",
);
const INSERT_REORDER: Statement = Statement::new(
    "INSERT INTO reorder \
     (prod_id, date_low, quan_low, date_reordered, quan_reordered, date_expected) \
     VALUES (?, ?, ?, ?, ?, ?)",
);
const INSERT_LINE: Statement = Statement::new(
    "INSERT INTO orderlines (orderid, orderlineid, prod_id, quantity, orderdate) \
     VALUES (?, ?, ?, ?, ?)",
);
const INSERT_HISTORY: Statement =
    Statement::new("INSERT INTO cust_hist (customerid, orderid, prod_id) VALUES (?, ?, ?)");

/// A customer buys what is in the cart, all of it or nothing.
#[derive(Debug)]
pub(super) struct Purchase {
    pub(super) buyer: Ds2Buyer,
    /// In the order of the products, so that two purchases do not wait for each other in a circle.
    pub(super) cart: Vec<CartLine>,
    pub(super) keys: Arc<ClientKeys>,
}

impl Transaction for Purchase {
    fn kind(&self) -> usize {
        PURCHASE
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            let Some(customer) = self.customer(&session).await? else {
                return Ok(Ending::Rollback);
            };
            let amounts = Amounts::new(self.net(&session).await?);
            session.phase(1);
            let order = self.keys.orders.take(&session).await?;
            insert_order(order, customer, amounts, &session).await?;
            session.phase(2);
            for line in &self.cart {
                if !take_from_stock(*line, &session).await? {
                    return Ok(Ending::Rollback);
                }
            }
            session.phase(3);
            for (number, line) in (1_i32..).zip(&self.cart) {
                insert_line(order, customer, number, *line, &session).await?;
            }
            Ok(Ending::Commit)
        })
    }
}

impl Purchase {
    /// The buyer's number; `None` when they did not become a customer. The look-up stands for the
    /// published foreign key.
    async fn customer(&self, session: &Session<'_>) -> Result<Option<i64>, Failure> {
        let customer = match self.buyer {
            Ds2Buyer::Returning(customer) => return Ok(Some(customer.into())),
            Ds2Buyer::New => self.keys.registered(),
        };
        let Some(customer) = customer else { return Ok(None) };
        let found = session.query(&CUSTOMER, &[customer.into()]).await?;
        Ok(found.int(0, 0))
    }

    /// What the cart costs without tax, in cents, by the prices of the products.
    async fn net(&self, session: &Session<'_>) -> Result<i64, Failure> {
        let places = vec!["?"; self.cart.len()].join(", ");
        let sql = format!("SELECT prod_id, price FROM products WHERE prod_id IN ({places})");
        let products: Vec<_> = self.cart.iter().map(|line| line.product.into()).collect();
        let found = session.query(&Statement::written(sql), &products).await?;
        let price = |product: i32| {
            let row = (0..found.len()).find(|&row| found.int(row, 0) == Some(product.into()))?;
            found.int(row, 1)
        };
        let cost = |line: &CartLine| Some(price(line.product)? * i64::from(line.quantity));
        self.cart
            .iter()
            .map(cost)
            .sum::<Option<i64>>()
            .ok_or(Failure::Unexpected("each product with its price"))
    }
}

async fn insert_order(
    order: i64,
    customer: i64,
    amounts: Amounts,
    session: &Session<'_>,
) -> Result<(), Failure> {
    let Amounts { net, tax, total } = amounts;
    let values =
        [order.into(), TODAY.into(), customer.into(), net.into(), tax.into(), total.into()];
    session.execute(&INSERT_ORDER, &values).await.map(drop)
}

/// Takes the units of a line out of the stock, or says that there are too few. When few are left,
/// more are ordered and come at once.
async fn take_from_stock(line: CartLine, session: &Session<'_>) -> Result<bool, Failure> {
    const MISSING: &str = "each product's stock";
    let product: Value<'_> = line.product.into();
    let quantity = i64::from(line.quantity);
    let stock = session.query_some(&LOCK_STOCK, std::slice::from_ref(&product), MISSING).await?;
    let left = stock.number(0, 0, MISSING)? - quantity;
    if left < 0 {
        return Ok(false);
    }
    let ordered = if left < LOW { stock_when_delivered(line.product) - left } else { 0 };
    let values = [(ordered - quantity).into(), quantity.into(), product.clone()];
    if session.execute(&CHANGE_STOCK, &values).await? != 1 {
        return Err(Failure::Unexpected(MISSING));
    }
    if ordered > 0 {
        let today = || TODAY.into();
        let values = [product, today(), left.into(), today(), ordered.into(), today()];
        session.execute(&INSERT_REORDER, &values).await?;
    }
    Ok(true)
}

async fn insert_line(
    order: i64,
    customer: i64,
    number: i32,
    line: CartLine,
    session: &Session<'_>,
) -> Result<(), Failure> {
    let CartLine { product, quantity } = line;
    let values = [order.into(), number.into(), product.into(), quantity.into(), TODAY.into()];
    session.execute(&INSERT_LINE, &values).await?;
    session.execute(&INSERT_HISTORY, &[customer.into(), order.into(), product.into()]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    #[test]
    fn a_browse_asks_for_what_is_wanted() {
        let text = |wanted, search| {
            let browse = Browse { wanted, search, limit: 5 };
            let (statement, values) = browse.statement();
            let mut out = Vec::new();
            statement.render(Dialect::Firebird, &values, &mut out);
            let text = String::from_utf8(out).unwrap();
            text.split_once(" WHERE ").unwrap().1.to_owned()
        };
        let word = || "BABABA".to_owned();
        assert_eq!(text(Wanted::Category(3), Search::Word), "category = 3 AND special = 1 ROWS 5");
        assert_eq!(
            text(Wanted::Actor(word()), Search::Prefix),
            "actor >= 'BABABA' AND actor < 'BABABAZ' ROWS 5"
        );
        assert_eq!(text(Wanted::Title(word()), Search::Word), "title LIKE '%BABABA%' ROWS 5");
    }
}
