//! The Admin Request and Admin Confirm interactions.
//!
//! Admin Confirm gives an item a new price, new pictures and today as its date of publication, and
//! finds new books that are related to it: those that sold most to the customers who bought it
//! within the last 10,000 orders.
//!
//! # Where this leaves the specification
//! - The customers are read first and put into the query for their books, which has no subquery
//!   then. Their list is filled up with its last one to a power of two, so that there are eight
//!   statements to prepare and no more; beyond 128 customers the rest is left out. Of 1,000 items,
//!   one is bought about 30 times in 10,000 orders.
//! - Where fewer than five books are found, some of those related before stay.
//! - The price is drawn as that of a new item, so that prices stay as they were in the mean.

use super::catalogue;
use super::visit::Page;
use crate::{Failure, Session, Statement, Value};

/// Orders within which customers are sought.
const LATE_ORDERS: i64 = 10_000;

/// Books that are related to one.
const RELATED: usize = 5;

const ITEM: Statement = Statement::new(
    "SELECT i_id, i_title, i_srp, i_cost, i_image, i_thumbnail, a_fname, a_lname \
     FROM item, author WHERE i_id = ? AND a_id = i_a_id",
);

const LOCK: Statement = Statement::new(
    "SELECT i_srp, i_related1, i_related2, i_related3, i_related4, i_related5 FROM item \
     WHERE i_id = ? FOR UPDATE",
);

const CHANGE: Statement = Statement::new(
    "UPDATE item SET i_cost = ?, i_thumbnail = ?, i_image = ?, i_pub_date = ? WHERE i_id = ?",
);

const BUYERS: Statement = Statement::new(
    "SELECT o_c_id, COUNT(*) AS times FROM order_line, orders \
     WHERE ol_i_id = ? AND ol_o_id > ? AND o_id = ol_o_id \
     GROUP BY o_c_id ORDER BY o_c_id LIMIT 128",
);

const RELATE: Statement = Statement::new(
    "UPDATE item SET i_related1 = ?, i_related2 = ?, i_related3 = ?, i_related4 = ?, \
     i_related5 = ? WHERE i_id = ?",
);

/// Shows an item that is to be changed.
pub(super) async fn request(session: &Session<'_>, item: i64) -> Result<Page, Failure> {
    session.query_some(&ITEM, &[item.into()], "item, author: one is missing").await?;
    Ok(Page::default())
}

#[derive(Debug)]
pub(super) struct AdminConfirm {
    pub(super) item: i64,
    /// From the suggested price, in percent.
    pub(super) reduction: i64,
    /// Thumbnail and image.
    pub(super) pictures: [String; 2],
    /// In days since 1970.
    pub(super) today: i64,
}

impl AdminConfirm {
    pub(super) async fn run(&self, session: &Session<'_>) -> Result<Page, Failure> {
        let item = self.item.into();
        let before = session.query_some(&LOCK, &[item], "item: one is missing").await?;
        let suggested = before.number(0, 0, "item: a cost")?;
        let [thumbnail, image] = self.pictures.each_ref().map(String::as_str);
        let cost = suggested.saturating_mul(100 - self.reduction) / 100;
        let values =
            [cost.into(), thumbnail.into(), image.into(), self.today.into(), self.item.into()];
        session.execute(&CHANGE, &values).await?;
        session.phase(1);
        let found = self.sold_together(session).await?;
        let old = (1..=RELATED).filter_map(|column| before.int(0, column));
        let mut values: Vec<Value<'_>> =
            choose(&found, old, self.item).into_iter().map(Value::from).collect();
        values.push(self.item.into());
        session.execute(&RELATE, &values).await?;
        Ok(Page::default())
    }

    /// The books that sold most to those who bought this one, which is among them.
    async fn sold_together(&self, session: &Session<'_>) -> Result<Vec<i64>, Failure> {
        let newest = catalogue::newest_order(session).await?;
        let since = newest.saturating_sub(LATE_ORDERS);
        let buyers = session.query(&BUYERS, &[self.item.into(), since.into()]).await?;
        let buyers: Vec<i64> = (0..buyers.len()).filter_map(|row| buyers.int(row, 0)).collect();
        let Some(&last) = buyers.last() else { return Ok(Vec::new()) };
        let mut values: Vec<Value<'_>> = buyers.iter().map(|buyer| (*buyer).into()).collect();
        values.resize(buyers.len().next_power_of_two(), last.into());
        let books = session.query(&bought_by(values.len()), &values).await?;
        Ok((0..books.len()).filter_map(|row| books.int(row, 0)).collect())
    }
}

/// The six books that sold most to so many customers.
fn bought_by(customers: usize) -> Statement {
    let places = vec!["?"; customers].join(", ");
    Statement::written(format!(
        "SELECT ol_i_id, SUM(ol_qty) AS sold FROM orders, order_line \
         WHERE o_c_id IN ({places}) AND ol_o_id = o_id \
         GROUP BY ol_i_id ORDER BY sold DESC, ol_i_id LIMIT 6"
    ))
}

/// Five different books other than this one: those found, then those of old. Were there fewer, the
/// last would come again.
fn choose(found: &[i64], old: impl Iterator<Item = i64>, item: i64) -> Vec<i64> {
    let mut chosen = Vec::with_capacity(RELATED);
    for book in found.iter().copied().chain(old) {
        if book != item && !chosen.contains(&book) && chosen.len() < RELATED {
            chosen.push(book);
        }
    }
    let last = chosen.last().copied().unwrap_or(item);
    chosen.resize(RELATED, last);
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_that_sold_together_come_before_those_of_old() {
        let old = [1, 2, 3, 4, 5];
        let cases: [(&[i64], [i64; 5]); 4] = [
            (&[9, 8, 7, 6, 5, 4], [9, 8, 6, 5, 4]),
            (&[7, 3, 9], [3, 9, 1, 2, 4]),
            (&[7], old),
            (&[], old),
        ];
        for (found, expected) in cases {
            assert_eq!(choose(found, old.into_iter(), 7), expected, "{found:?}");
        }
        assert_eq!(choose(&[], [7, 7, 3, 7, 7].into_iter(), 7), [3; 5]);
    }
}
