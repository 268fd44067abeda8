//! The pages about a customer: forms, Buy Request, Order Display.
//!
//! Buy Request signs in a customer, or writes a new one with their address, which is
//! looked up first, and shows the cart. Order Display shows the customer's latest
//! order, if they have one: the population has nine orders for ten customers, so two of five have
//! none.
//!
//! # Where this leaves the specification
//! - An order is shown by a statement for each of its parts instead of a join over seven tables:
//!   joins have three tables at most here.

use super::cart;
use super::draws;
use super::keys::ShopKeys;
use super::population::DAY_US;
use super::visit::Page;
use crate::{Failure, Session, Statement};

const TWO_HOURS_US: i64 = 7_200_000_000;

const USER: Statement = Statement::new("SELECT c_uname FROM customer WHERE c_id = ?");

const SIGN_IN: Statement = Statement::new(
    "SELECT c_id, c_passwd, c_fname, c_lname, c_phone, c_email, c_discount, addr_street1, \
     addr_street2, addr_city, addr_state, addr_zip, co_name FROM customer, address, country \
     WHERE c_uname = ? AND addr_id = c_addr_id AND co_id = addr_co_id",
);

const LOGIN: Statement =
    Statement::new("UPDATE customer SET c_login = ?, c_expiration = ? WHERE c_id = ?");

const INSERT_CUSTOMER: Statement = Statement::new(
    "INSERT INTO customer (c_id, c_uname, c_passwd, c_fname, c_lname, c_addr_id, c_phone, c_email, \
     c_since, c_last_visit, c_login, c_expiration, c_discount, c_balance, c_ytd_pmt, c_birthdate, \
     c_data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
);

const COUNTRY: Statement = Statement::new("SELECT co_id FROM country WHERE co_name = ?");

const FIND_ADDRESS: Statement = Statement::new(
    "SELECT addr_id FROM address WHERE addr_zip = ? AND addr_street1 = ? AND addr_street2 = ? \
     AND addr_city = ? AND addr_state = ? AND addr_co_id = ?",
);

const INSERT_ADDRESS: Statement = Statement::new(
    "INSERT INTO address (addr_id, addr_street1, addr_street2, addr_city, addr_state, addr_zip, \
     addr_co_id) VALUES (?, ?, ?, ?, ?, ?, ?)",
);

const PASSWORD: Statement = Statement::new(
    "SELECT c_id, c_passwd, c_fname, c_lname, c_phone, c_email FROM customer WHERE c_uname = ?",
);

const LATEST_ORDER: Statement = Statement::new(
    "SELECT o_id, o_bill_addr_id, o_ship_addr_id, o_date, o_sub_total, o_tax, o_total, \
     o_ship_type, o_ship_date, o_status FROM orders \
     WHERE o_c_id = ? ORDER BY o_date DESC, o_id DESC LIMIT 1",
);

const CARD: Statement = Statement::new("SELECT cx_type FROM cc_xacts WHERE cx_o_id = ?");

const ADDRESS: Statement = Statement::new(
    "SELECT addr_street1, addr_street2, addr_city, addr_state, addr_zip, co_name \
     FROM address, country WHERE addr_id = ? AND co_id = addr_co_id",
);

const LINES: Statement = Statement::new(
    "SELECT ol_i_id, i_title, i_publisher, ol_cost, ol_qty, ol_discount, ol_comments \
     FROM order_line, item WHERE ol_o_id = ? AND i_id = ol_i_id ORDER BY ol_i_id",
);

/// A form with the name of the user, if the customer is known; nothing is read for others.
pub(super) async fn form(session: &Session<'_>, customer: Option<i64>) -> Result<Page, Failure> {
    if let Some(customer) = customer {
        session.query_some(&USER, &[customer.into()], "customer: one is missing").await?;
    }
    Ok(Page::default())
}

/// A request to buy what is in the cart.
#[derive(Debug)]
pub(super) struct BuyRequest {
    pub(super) identity: Identity,
    pub(super) cart: Option<i64>,
    /// In microseconds since 1970.
    pub(super) now: i64,
}

#[derive(Debug)]
pub(super) enum Identity {
    /// The name of a user, whose password is the same in small letters.
    Known(String),
    New(Box<NewCustomer>),
}

/// What a customer says of themselves.
#[derive(Debug)]
pub(super) struct NewCustomer {
    /// First and last name.
    pub(super) names: [String; 2],
    pub(super) address: NewAddress,
    pub(super) phone: String,
    pub(super) host: String,
    pub(super) birthdate: i32,
    pub(super) discount: i32,
    pub(super) data: String,
}

/// An address, which may be in the table.
#[derive(Debug)]
pub(super) struct NewAddress {
    /// Streets, city, state, zip code.
    pub(super) lines: [String; 5],
    pub(super) country: String,
}

impl BuyRequest {
    pub(super) async fn run(
        &self,
        keys: &ShopKeys,
        session: &Session<'_>,
    ) -> Result<Page, Failure> {
        let customer = match &self.identity {
            Identity::Known(user) => sign_in(session, user, self.now).await?,
            Identity::New(customer) => customer.sign_up(keys, session, self.now).await?,
        };
        session.phase(1);
        let shown = match self.cart {
            Some(cart) => cart::show(session, cart).await?,
            None => Page::default(),
        };
        Ok(Page { customer: Some(customer), ..shown })
    }
}

async fn sign_in(session: &Session<'_>, user: &str, now: i64) -> Result<i64, Failure> {
    let missing = "customer, address, country: one is missing";
    let rows = session.query_some(&SIGN_IN, &[user.into()], missing).await?;
    let customer = rows.number(0, 0, missing)?;
    check_password(rows.text(0, 1), user)?;
    session.execute(&LOGIN, &[now.into(), (now + TWO_HOURS_US).into(), customer.into()]).await?;
    Ok(customer)
}

fn check_password(password: Option<&str>, user: &str) -> Result<(), Failure> {
    if password == Some(&user.to_lowercase()) {
        return Ok(());
    }
    Err(Failure::Unexpected("customer: a password is not the user's name in small letters"))
}

impl NewCustomer {
    async fn sign_up(
        &self,
        keys: &ShopKeys,
        session: &Session<'_>,
        now: i64,
    ) -> Result<i64, Failure> {
        let (address, _) = self.address.enter(keys, session).await?;
        let customer = keys.customers.take(session).await?;
        let user = draws::syllables(customer);
        let today = now / DAY_US;
        let values = [
            customer.into(),
            user.as_str().into(),
            user.to_lowercase().into(),
            self.names[0].as_str().into(),
            self.names[1].as_str().into(),
            address.into(),
            self.phone.as_str().into(),
            format!("{user}@{}.com", self.host).into(),
            today.into(),
            today.into(),
            now.into(),
            (now + TWO_HOURS_US).into(),
            self.discount.into(),
            0.into(),
            0.into(),
            self.birthdate.into(),
            self.data.as_str().into(),
        ];
        session.execute(&INSERT_CUSTOMER, &values).await?;
        Ok(customer)
    }
}

impl NewAddress {
    /// The numbers of the address, which is there then, and of its country.
    pub(super) async fn enter(
        &self,
        keys: &ShopKeys,
        session: &Session<'_>,
    ) -> Result<(i64, i64), Failure> {
        let missing = "country: one is missing";
        let rows = session.query_some(&COUNTRY, &[self.country.as_str().into()], missing).await?;
        let country = rows.number(0, 0, missing)?;
        let [street1, street2, city, state, zip] = self.lines.each_ref().map(String::as_str);
        let sought = [zip, street1, street2, city, state];
        let mut values = sought.map(Into::into).to_vec();
        values.push(country.into());
        if let Some(address) = session.query(&FIND_ADDRESS, &values).await?.int(0, 0) {
            return Ok((address, country));
        }
        let address = keys.addresses.take(session).await?;
        let mut values = vec![address.into()];
        values.extend([street1, street2, city, state, zip].map(Into::into));
        values.push(country.into());
        session.execute(&INSERT_ADDRESS, &values).await?;
        Ok((address, country))
    }
}

/// The latest order of a user.
pub(super) async fn order_display(session: &Session<'_>, user: &str) -> Result<Page, Failure> {
    let missing = "customer: one is missing";
    let customer = session.query_some(&PASSWORD, &[user.into()], missing).await?;
    check_password(customer.text(0, 1), user)?;
    let id = customer.number(0, 0, missing)?;
    session.phase(1);
    let order = session.query(&LATEST_ORDER, &[id.into()]).await?;
    if let (Some(id), Some(bill), Some(ship)) = (order.int(0, 0), order.int(0, 1), order.int(0, 2))
    {
        session.query_some(&CARD, &[id.into()], "cc_xacts: one is missing").await?;
        for address in [bill, ship] {
            let missing = "address, country: one is missing";
            session.query_some(&ADDRESS, &[address.into()], missing).await?;
        }
        session.phase(2);
        session.query_some(&LINES, &[id.into()], "order_line: one is missing").await?;
    }
    Ok(Page { customer: Some(id), ..Page::default() })
}
