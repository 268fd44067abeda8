//! The Shopping Cart interaction (clause 2.4).
//!
//! It makes a cart where the customer has none, adds a book or changes quantities, and puts a drawn
//! book into a cart that is empty, so that there is always something in it. Then it shows what is
//! in it.
//!
//! A cart belongs to one browser, so no other writes its rows.

use super::browser::Cart;
use super::catalogue;
use super::keys::ShopKeys;
use super::visit::Page;
use crate::{Failure, Session, Statement};

const NEW_CART: Statement =
    Statement::new("INSERT INTO shopping_cart (sc_id, sc_time) VALUES (?, ?)");

const TOUCH: Statement = Statement::new("UPDATE shopping_cart SET sc_time = ? WHERE sc_id = ?");

const COUNT: Statement =
    Statement::new("SELECT COUNT(*) FROM shopping_cart_line WHERE scl_sc_id = ?");

const FIND: Statement =
    Statement::new("SELECT scl_qty FROM shopping_cart_line WHERE scl_sc_id = ? AND scl_i_id = ?");

const INSERT: Statement = Statement::new(
    "INSERT INTO shopping_cart_line (scl_sc_id, scl_i_id, scl_qty) VALUES (?, ?, ?)",
);

const UPDATE: Statement = Statement::new(
    "UPDATE shopping_cart_line SET scl_qty = ? WHERE scl_sc_id = ? AND scl_i_id = ?",
);

const DELETE: Statement =
    Statement::new("DELETE FROM shopping_cart_line WHERE scl_sc_id = ? AND scl_i_id = ?");

const SHOW: Statement = Statement::new(
    "SELECT scl_i_id, scl_qty, i_title, i_cost, i_srp, i_backing FROM shopping_cart_line, item \
     WHERE scl_sc_id = ? AND i_id = scl_i_id ORDER BY scl_i_id",
);

#[derive(Debug)]
pub(super) struct ShoppingCart {
    /// The cart; none makes one.
    pub(super) cart: Option<i64>,
    pub(super) change: CartChange,
    /// Whose related books are advertised.
    pub(super) promoted: i64,
    /// Whose first related book goes into an empty cart.
    pub(super) spare: i64,
    /// In microseconds since 1970.
    pub(super) now: i64,
}

#[derive(Debug)]
pub(super) enum CartChange {
    None,
    /// One more of a book.
    Add(i64),
    /// Books and their new quantities; 0 takes one out.
    Refresh(Vec<(i64, i64)>),
}

impl ShoppingCart {
    pub(super) async fn run(
        &self,
        keys: &ShopKeys,
        session: &Session<'_>,
    ) -> Result<Page, Failure> {
        catalogue::promotion(session, self.promoted).await?;
        session.phase(1);
        let cart = self.open(keys, session).await?;
        match &self.change {
            CartChange::None => {}
            CartChange::Add(item) => add(session, cart, *item).await?,
            CartChange::Refresh(quantities) => refresh(session, cart, quantities).await?,
        }
        let lines = session.query(&COUNT, &[cart.into()]).await?;
        if lines.int(0, 0) == Some(0) {
            let related = catalogue::related(session, self.spare).await?;
            add(session, cart, related.first().copied().unwrap_or(self.spare)).await?;
        }
        session.phase(2);
        show(session, cart).await
    }

    /// The number of the cart, which is there then.
    async fn open(&self, keys: &ShopKeys, session: &Session<'_>) -> Result<i64, Failure> {
        if let Some(cart) = self.cart {
            let touched = session.execute(&TOUCH, &[self.now.into(), cart.into()]).await?;
            let missing = Failure::Unexpected("shopping_cart: one is missing");
            return if touched > 0 { Ok(cart) } else { Err(missing) };
        }
        let cart = keys.carts.take(session).await?;
        session.execute(&NEW_CART, &[cart.into(), self.now.into()]).await?;
        Ok(cart)
    }
}

async fn add(session: &Session<'_>, cart: i64, item: i64) -> Result<(), Failure> {
    let found = session.query(&FIND, &[cart.into(), item.into()]).await?;
    match found.int(0, 0) {
        Some(quantity) => {
            let more = quantity.saturating_add(1);
            session.execute(&UPDATE, &[more.into(), cart.into(), item.into()]).await?;
        }
        None => {
            session.execute(&INSERT, &[cart.into(), item.into(), 1.into()]).await?;
        }
    }
    Ok(())
}

async fn refresh(
    session: &Session<'_>,
    cart: i64,
    quantities: &[(i64, i64)],
) -> Result<(), Failure> {
    for &(item, quantity) in quantities {
        if quantity == 0 {
            session.execute(&DELETE, &[cart.into(), item.into()]).await?;
        } else {
            session.execute(&UPDATE, &[quantity.into(), cart.into(), item.into()]).await?;
        }
    }
    Ok(())
}

pub(super) async fn show(session: &Session<'_>, cart: i64) -> Result<Page, Failure> {
    let rows = session.query(&SHOW, &[cart.into()]).await?;
    let line = |row| Some((rows.int(row, 0)?, rows.int(row, 1)?));
    let lines = (0..rows.len()).filter_map(line).collect();
    Ok(Page { cart: Some(Cart { id: cart, lines }), ..Page::default() })
}
