//! The Buy Confirm interaction: a cart becomes an order.
//!
//! Each book's stock is read under a lock and then written, so that of two orders for one book the
//! second sees what the first left. Books are taken in the order of their numbers, so that two
//! orders do not wait for each other in a circle.
//!
//! A browser without a cart, or without a known customer, whose earlier interactions failed, buys
//! nothing.

use super::browser::Cart;
use super::customer::NewAddress;
use super::draws;
use super::keys::ShopKeys;
use super::population::DAY_US;
use super::rules::{Sale, Totals, stock_after, totals};
use super::visit::Page;
use crate::{Failure, Random, Rows, Session, Statement};

const CUSTOMER: Statement = Statement::new(
    "SELECT c_fname, c_lname, c_discount, c_addr_id, addr_co_id FROM customer, address \
     WHERE c_id = ? AND addr_id = c_addr_id",
);

const CART: Statement = Statement::new(
    "SELECT scl_i_id, scl_qty, i_cost FROM shopping_cart_line, item \
     WHERE scl_sc_id = ? AND i_id = scl_i_id ORDER BY scl_i_id",
);

const INSERT_ORDER: Statement = Statement::new(
    "INSERT INTO orders (o_id, o_c_id, o_date, o_sub_total, o_tax, o_total, o_ship_type, \
     o_ship_date, o_bill_addr_id, o_ship_addr_id, o_status) \
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
);

const INSERT_LINE: Statement = Statement::new(
    "INSERT INTO order_line (ol_o_id, ol_id, ol_i_id, ol_qty, ol_cost, ol_discount, ol_comments) \
     VALUES (?, ?, ?, ?, ?, ?, ?)",
);

const STOCK: Statement = Statement::new("SELECT i_stock FROM item WHERE i_id = ? FOR UPDATE");

const TAKE: Statement = Statement::new("UPDATE item SET i_stock = ? WHERE i_id = ?");

const PAY: Statement = Statement::new(
    "INSERT INTO cc_xacts (cx_o_id, cx_type, cx_num, cx_name, cx_expire, cx_auth_id, cx_xact_amt, \
     cx_xact_date, cx_co_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
);

const CLEAR: Statement = Statement::new("DELETE FROM shopping_cart_line WHERE scl_sc_id = ?");

/// A request to buy, with a card's number.
#[derive(Debug)]
pub(super) struct BuyConfirm {
    pub(super) customer: Option<i64>,
    pub(super) cart: Option<i64>,
    /// Where it is sent, if not to the customer's address.
    pub(super) address: Option<NewAddress>,
    pub(super) card: &'static str,
    pub(super) number: String,
    /// In days since 1970.
    pub(super) expires: i32,
    pub(super) authorisation: String,
    pub(super) shipping: &'static str,
    /// Until it is sent.
    pub(super) days: i64,
    /// What comments are drawn from.
    pub(super) comments: Random,
    /// In microseconds since 1970.
    pub(super) now: i64,
}

/// Who buys, and where it goes.
struct BuyerRow {
    id: i64,
    name: String,
    discount: i64,
    bill_address: i64,
    ship_address: i64,
    /// Where the card is charged.
    country: i64,
}

impl BuyConfirm {
    pub(super) async fn run(
        &self,
        keys: &ShopKeys,
        session: &Session<'_>,
    ) -> Result<Page, Failure> {
        let (Some(customer), Some(cart)) = (self.customer, self.cart) else {
            return Ok(Page::default());
        };
        let buyer = self.buyer(keys, session, customer).await?;
        let lines = session.query(&CART, &[cart.into()]).await?;
        if lines.is_empty() {
            return Ok(Page::default());
        }
        session.phase(1);
        let sales = sales(&lines, buyer.discount)?;
        let totals = totals(&sales.iter().map(|(_, sale)| *sale).collect::<Vec<_>>());
        let order = keys.orders.take(session).await?;
        self.order(session, order, &buyer, totals).await?;
        self.lines(session, order, &sales).await?;
        session.phase(2);
        for (item, sale) in &sales {
            take_from_stock(session, *item, sale.quantity).await?;
        }
        session.phase(3);
        self.pay(session, order, &buyer, totals).await?;
        session.execute(&CLEAR, &[cart.into()]).await?;
        Ok(Page { cart: Some(Cart { id: cart, lines: Vec::new() }), ..Page::default() })
    }

    async fn buyer(
        &self,
        keys: &ShopKeys,
        session: &Session<'_>,
        id: i64,
    ) -> Result<BuyerRow, Failure> {
        let missing = "customer, address: one is missing";
        let rows = session.query_some(&CUSTOMER, &[id.into()], missing).await?;
        let number = |column| rows.number(0, column, missing);
        let text = |column| rows.text(0, column).ok_or(Failure::Unexpected(missing));
        let name = format!("{} {}", text(0)?, text(1)?);
        let home = number(3)?;
        let (ship_address, country) = match &self.address {
            Some(address) => address.enter(keys, session).await?,
            None => (home, number(4)?),
        };
        Ok(BuyerRow { id, name, discount: number(2)?, bill_address: home, ship_address, country })
    }

    async fn order(
        &self,
        session: &Session<'_>,
        order: i64,
        buyer: &BuyerRow,
        totals: Totals,
    ) -> Result<(), Failure> {
        let values = [
            order.into(),
            buyer.id.into(),
            self.now.into(),
            totals.subtotal.into(),
            totals.tax.into(),
            totals.total.into(),
            self.shipping.into(),
            (self.now + self.days * DAY_US).into(),
            buyer.bill_address.into(),
            buyer.ship_address.into(),
            "PENDING".into(),
        ];
        session.execute(&INSERT_ORDER, &values).await.map(drop)
    }

    async fn lines(
        &self,
        session: &Session<'_>,
        order: i64,
        sales: &[(i64, Sale)],
    ) -> Result<(), Failure> {
        let mut comments = self.comments.clone();
        for (number, (item, sale)) in (1_i64..).zip(sales) {
            let values = [
                order.into(),
                number.into(),
                (*item).into(),
                sale.quantity.into(),
                sale.cost.into(),
                sale.discount.into(),
                draws::text(&mut comments, 20, 100).into(),
            ];
            session.execute(&INSERT_LINE, &values).await?;
        }
        Ok(())
    }

    async fn pay(
        &self,
        session: &Session<'_>,
        order: i64,
        buyer: &BuyerRow,
        totals: Totals,
    ) -> Result<(), Failure> {
        let values = [
            order.into(),
            self.card.into(),
            self.number.as_str().into(),
            buyer.name.as_str().into(),
            self.expires.into(),
            self.authorisation.as_str().into(),
            totals.total.into(),
            self.now.into(),
            buyer.country.into(),
        ];
        session.execute(&PAY, &values).await.map(drop)
    }
}

/// What is in the cart, by the numbers of the books.
fn sales(lines: &Rows, discount: i64) -> Result<Vec<(i64, Sale)>, Failure> {
    let sale = |row| {
        let quantity = lines.int(row, 1)?;
        Some((lines.int(row, 0)?, Sale { quantity, cost: lines.int(row, 2)?, discount }))
    };
    let broken = Failure::Unexpected("shopping_cart_line, item: a number is missing");
    (0..lines.len()).map(sale).collect::<Option<_>>().ok_or(broken)
}

async fn take_from_stock(session: &Session<'_>, item: i64, quantity: i64) -> Result<(), Failure> {
    let missing = "item: one is missing";
    let rows = session.query_some(&STOCK, &[item.into()], missing).await?;
    let stock = rows.number(0, 0, missing)?;
    session.execute(&TAKE, &[stock_after(stock, quantity).into(), item.into()]).await.map(drop)
}
