//! The pages that show books: Home, New Products, Best Sellers, Product Detail, Search Results.
//!
//! Every page but Product Detail advertises five books that are related to one drawn evenly from
//! all (promotional processing, [`promotion`]).
//!
//! Best Sellers is the heaviest: it adds up the lines of the last 3,333 orders, about 10,000, to
//! find the 50 books of one subject that sold most. It may be as old as 30 seconds;
//! nothing is kept here, so each asks the database.
//!
//! # Where this leaves the specification
//! - Searches by author and title look for a word anywhere in the name or title, which no index
//!   helps. Some implementations look for names and titles that begin with it.
//! - The largest order number is read first and put into the query, which has no subquery then.

use super::visit::Page;
use crate::{Failure, Rows, Session, Statement, Value};

/// Orders that count for Best Sellers.
const LATE_ORDERS: i64 = 3_333;

const NAME: Statement = Statement::new("SELECT c_fname, c_lname FROM customer WHERE c_id = ?");

const RELATED: Statement = Statement::new(
    "SELECT i_related1, i_related2, i_related3, i_related4, i_related5 FROM item WHERE i_id = ?",
);

const THUMBNAILS: Statement =
    Statement::new("SELECT i_id, i_thumbnail FROM item WHERE i_id IN (?, ?, ?, ?, ?)");

const DETAIL: Statement = Statement::new(
    "SELECT i_id, i_title, a_fname, a_lname, i_pub_date, i_publisher, i_subject, i_desc, i_image, \
     i_srp, i_cost, i_avail, i_isbn, i_page, i_backing, i_dimensions FROM item, author \
     WHERE i_id = ? AND a_id = i_a_id",
);

const NEW_PRODUCTS: Statement = Statement::new(
    "SELECT i_id, i_title, a_fname, a_lname FROM item, author \
     WHERE i_subject = ? AND a_id = i_a_id ORDER BY i_pub_date DESC, i_title LIMIT 50",
);

const NEWEST_ORDER: Statement = Statement::new("SELECT MAX(o_id) FROM orders");

const BEST_SELLERS: Statement = Statement::new(
    "SELECT i_id, i_title, a_fname, a_lname, SUM(ol_qty) AS sold FROM order_line, item, author \
     WHERE ol_o_id > ? AND i_id = ol_i_id AND i_subject = ? AND a_id = i_a_id \
     GROUP BY i_id, i_title, a_fname, a_lname ORDER BY sold DESC LIMIT 50",
);

const BY_AUTHOR: Statement = Statement::new(
    "SELECT i_id, i_title, a_fname, a_lname FROM author, item \
     WHERE a_lname LIKE ? AND i_a_id = a_id ORDER BY i_title LIMIT 50",
);

const BY_TITLE: Statement = Statement::new(
    "SELECT i_id, i_title, a_fname, a_lname FROM item, author \
     WHERE i_title LIKE ? AND a_id = i_a_id ORDER BY i_title LIMIT 50",
);

const BY_SUBJECT: Statement = Statement::new(
    "SELECT i_id, i_title, a_fname, a_lname FROM item, author \
     WHERE i_subject = ? AND a_id = i_a_id ORDER BY i_title LIMIT 50",
);

#[derive(Debug)]
pub(super) enum Listing {
    /// The newest of a subject.
    NewProducts(String),
    /// Those of a subject that sold most of late.
    BestSellers(String),
    /// Those by authors whose last name has this word in it.
    Author(String),
    /// Those with this word in their title.
    Title(String),
    /// Those of a subject.
    Subject(String),
}

impl Listing {
    pub(super) async fn run(&self, session: &Session<'_>, promoted: i64) -> Result<Page, Failure> {
        let mut items = promotion(session, promoted).await?;
        session.phase(1);
        let rows = match self {
            Listing::NewProducts(subject) => ask(session, &NEW_PRODUCTS, subject).await?,
            Listing::BestSellers(subject) => best_sellers(session, subject).await?,
            Listing::Author(word) => ask(session, &BY_AUTHOR, &format!("%{word}%")).await?,
            Listing::Title(word) => ask(session, &BY_TITLE, &format!("%{word}%")).await?,
            Listing::Subject(subject) => ask(session, &BY_SUBJECT, subject).await?,
        };
        items.extend((0..rows.len()).filter_map(|row| rows.int(row, 0)));
        Ok(Page { items: Some(items), ..Page::default() })
    }
}

async fn ask(session: &Session<'_>, statement: &Statement, by: &str) -> Result<Rows, Failure> {
    session.query(statement, &[by.into()]).await
}

async fn best_sellers(session: &Session<'_>, subject: &str) -> Result<Rows, Failure> {
    let newest = newest_order(session).await?;
    session.query(&BEST_SELLERS, &[(newest - LATE_ORDERS).into(), subject.into()]).await
}

pub(super) async fn newest_order(session: &Session<'_>) -> Result<i64, Failure> {
    let missing = "orders: none is there";
    let rows = session.query_some(&NEWEST_ORDER, &[], missing).await?;
    rows.int(0, 0).filter(|newest| *newest > 0).ok_or(Failure::Unexpected(missing))
}

/// The greeting of a customer who is known, and a promotion.
pub(super) async fn home(
    session: &Session<'_>,
    customer: Option<i64>,
    promoted: i64,
) -> Result<Page, Failure> {
    if let Some(customer) = customer {
        session.query_some(&NAME, &[customer.into()], "customer: one is missing").await?;
    }
    session.phase(1);
    promotion(session, promoted).await.map(|_| Page::default())
}

/// Five books related to one.
pub(super) async fn promotion(session: &Session<'_>, item: i64) -> Result<Vec<i64>, Failure> {
    let related = related(session, item).await?;
    let values: Vec<Value<'_>> = related.iter().map(|item| (*item).into()).collect();
    session.query(&THUMBNAILS, &values).await?;
    Ok(related)
}

/// The numbers of the books that are related to one.
pub(super) async fn related(session: &Session<'_>, item: i64) -> Result<Vec<i64>, Failure> {
    let rows = session.query_some(&RELATED, &[item.into()], "item: one is missing").await?;
    Ok((0..rows.width()).filter_map(|column| rows.int(0, column)).collect())
}

/// Everything about one book.
pub(super) async fn detail(session: &Session<'_>, item: i64) -> Result<Page, Failure> {
    session.query_some(&DETAIL, &[item.into()], "item, author: one is missing").await?;
    Ok(Page::default())
}
