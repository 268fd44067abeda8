//! `BaseX`, a database of XML documents, to compare the XML store with.
//!
//! A [`Server`] is a private one of Debian's package `basex`; [`BasexConnection`] speaks its
//! protocol; [`BasexSite`] runs the eight transactions of `xmark` as `XQuery Update`, one query
//! each, which is a transaction of its own. Whoever updates a database has it to itself.
//!
//! Transactions enter at the same nodes as on the XML store, by node identifiers that are taken
//! before the run (`db:open-id`), and follow references by the attribute index, which updates keep
//! (`UPDINDEX`). They have no variants: there are no steps and no locks for a client to choose.
//!
//! # Durability
//! With `AUTOFLUSH`, its default, each update is written to the database's files when it ends.
//! Nothing is synced, and there is no log: a crash of the system may lose updates or leave the
//! database damaged.

mod connection;
mod installation;
mod queries;

use std::io::BufRead;

use tidegate_workload::Failure;
use tidegate_workload::xmark::{AuctionTransaction, EntryList};

use crate::server::ServerProcess;

pub use connection::BasexConnection;
pub use installation::{Installation, Options};

/// A private server of `BaseX`, gone when dropped.
pub type Server = ServerProcess<Installation>;

/// The user that every new server has, and the password.
const ADMIN: &str = "admin";

impl Server {
    /// Opens a connection.
    ///
    /// # Errors
    /// The server refuses, or is not there.
    pub fn connect(&self) -> Result<BasexConnection, Failure> {
        BasexConnection::open(self.port(), ADMIN, ADMIN)
    }
}

/// An auction site in a database of a server.
#[derive(Debug)]
pub struct BasexSite {
    database: String,
    /// Identifiers of the nodes at which transactions enter, as the server writes them.
    open_auctions: Vec<String>,
    closed_auctions: Vec<String>,
    persons: Vec<String>,
    items: Vec<String>,
    categories: usize,
}

impl BasexSite {
    /// Makes a database of a document that is read from `text`, with indexes that updates keep.
    ///
    /// # Errors
    /// The server refuses it, or the text cannot be read.
    pub fn load(
        connection: &mut BasexConnection,
        database: &str,
        text: impl BufRead,
    ) -> Result<(), Failure> {
        for setting in ["CHOP false", "UPDINDEX true", "TEXTINDEX true", "ATTRINDEX true"] {
            connection.command(&format!("SET {setting}"))?;
        }
        connection.create(database, text)
    }

    /// Opens the site in a database that has a document of the generator as it was generated.
    ///
    /// # Errors
    /// There is none, or the server fails.
    pub fn open(connection: &mut BasexConnection, database: &str) -> Result<BasexSite, Failure> {
        let mut nodes = |path: &str| -> Result<Vec<String>, Failure> {
            let nodes = format!("db:open({})/site/{path}", queries::literal(database));
            let query = format!("string-join({nodes} ! string(db:node-id(.)), '&#10;')");
            Ok(lines(&connection.query(&query)?))
        };
        Ok(BasexSite {
            database: database.to_owned(),
            open_auctions: nodes("open_auctions/open_auction")?,
            closed_auctions: nodes("closed_auctions/closed_auction")?,
            persons: nodes("people/person")?,
            items: nodes("regions/*/item")?,
            categories: nodes("categories/category")?.len(),
        })
    }

    /// Runs a transaction and returns what it has read.
    ///
    /// # Errors
    /// The server refuses it or fails.
    pub fn answer(
        &self,
        transaction: &AuctionTransaction,
        connection: &mut BasexConnection,
    ) -> Result<Vec<String>, Failure> {
        Ok(lines(&connection.query(&self.query(transaction))?))
    }

    /// Returns the document as text.
    ///
    /// # Errors
    /// The server fails.
    pub fn text(&self, connection: &mut BasexConnection) -> Result<String, Failure> {
        connection.command("SET SERIALIZER indent=no")?;
        connection.query(&format!("db:open({})", queries::literal(&self.database)))
    }

    /// Returns the identifiers of the nodes at which transactions enter.
    fn entries(&self, list: EntryList) -> &[String] {
        match list {
            EntryList::OpenAuctions => &self.open_auctions,
            EntryList::ClosedAuctions => &self.closed_auctions,
            EntryList::Persons => &self.persons,
            EntryList::Items => &self.items,
        }
    }
}

/// Returns the lines of an answer; none of an empty one.
fn lines(answer: &str) -> Vec<String> {
    answer.lines().map(str::to_owned).collect()
}
