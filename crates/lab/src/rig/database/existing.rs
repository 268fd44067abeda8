//! A database of our own on a server that somebody else runs.

use std::sync::Arc;

use tidegate_subject::connection::{Connector, Transactional};
use tidegate_subject::detection::Whereabouts;
use tidegate_subject::guest::GuestError;
use tidegate_subject::sqlite::Sqlite;
use tidegate_subject::{client, firebird, mariadb, postgres};

use super::{Database, Place, RigError, Settings};

/// A guest on a server; its database is dropped with it.
pub(crate) enum Existing {
    Postgres(postgres::Guest),
    MariaDb(mariadb::Guest),
    Firebird(Box<firebird::Guest>),
}

impl Database {
    /// Makes a database of our own at a place.
    pub(crate) fn at(place: &Place, settings: &Settings) -> Result<Self, RigError> {
        Ok(Database::Existing(match place.clone().with_known_password() {
            Place::Postgres(url) => {
                Existing::Postgres(postgres::Guest::make(&url, settings.isolation()?)?)
            }
            Place::MariaDb(url) => {
                Existing::MariaDb(mariadb::Guest::make(&url, settings.isolation()?)?)
            }
            Place::Firebird(url) => {
                let isolation = settings.firebird()?.isolation;
                Existing::Firebird(Box::new(firebird::Guest::make(&url, isolation)?))
            }
            Place::Sqlite(path) => {
                let file = Sqlite::at(path, settings.sqlite()?)?;
                return Ok(Database::Sqlite(file));
            }
        }))
    }
}

impl Existing {
    pub(super) fn connect(&self) -> Result<Box<dyn Transactional>, RigError> {
        Ok(match self {
            Existing::Postgres(guest) => Box::new(guest.connect()?),
            Existing::MariaDb(guest) => Box::new(guest.connect()?),
            Existing::Firebird(guest) => Box::new(guest.connect()?),
        })
    }

    /// As on a private database, but for what would change the server: MariaDB's purge and the
    /// writing of its pages are not waited for.
    pub(super) fn level(&self) -> Result<(), RigError> {
        match self {
            Existing::Postgres(guest) => Ok(guest.checkpoint()?),
            Existing::MariaDb(guest) => Ok(guest.level()?),
            Existing::Firebird(guest) => Ok(guest.level()?),
        }
    }

    /// Ends the sessions of others in our database; how many there were.
    pub(super) fn end_others(&self) -> Result<usize, RigError> {
        match self {
            Existing::Postgres(guest) => Ok(guest.end_others()?),
            Existing::MariaDb(guest) => Ok(guest.end_others()?),
            Existing::Firebird(guest) => Ok(guest.end_others()?),
        }
    }

    pub(super) fn version(&self) -> Result<String, RigError> {
        Ok(match self {
            Existing::Postgres(guest) => guest.version()?,
            Existing::MariaDb(guest) => guest.version()?,
            Existing::Firebird(guest) => guest.version()?,
        })
    }

    /// The server's settings, and where it is.
    pub(super) fn settings(&self) -> Result<Vec<(String, String)>, RigError> {
        let (place, mut settings) = match self {
            Existing::Postgres(guest) => (guest.url().to_string(), guest.settings()?),
            Existing::MariaDb(guest) => (guest.url().to_string(), guest.settings()?),
            Existing::Firebird(guest) => (guest.url().to_string(), guest.settings()?),
        };
        settings.insert(0, ("url".to_owned(), place));
        Ok(settings)
    }

    /// Where the server is, and the names that its processes can have.
    pub(crate) fn whereabouts(&self) -> (Whereabouts, &'static [&'static str]) {
        match self {
            Existing::Postgres(guest) => (guest.whereabouts(), &["postgres", "postmaster"]),
            Existing::MariaDb(guest) => (guest.whereabouts(), &["mariadbd", "mysqld"]),
            Existing::Firebird(guest) => {
                (guest.whereabouts(), &["firebird", "fbserver", "fb_smp_server"])
            }
        }
    }

    /// Where clients on sockets go, or what makes connections for threads.
    pub(crate) fn way(&self) -> Result<String, Arc<dyn Connector>> {
        match self {
            Existing::Postgres(guest) => Ok(guest.url().with_password()),
            Existing::MariaDb(guest) => Ok(guest.url().with_password()),
            Existing::Firebird(guest) => Err(guest.connector()),
        }
    }

    /// A client of PostgreSQL, where it is one.
    pub(super) fn postgres(&self) -> Option<Result<client::BlockingClient, client::ClientError>> {
        if let Existing::Postgres(guest) = self { Some(guest.connect()) } else { None }
    }

    /// Drops our database.
    pub(super) fn leave(self) -> Result<(), GuestError> {
        match self {
            Existing::Postgres(guest) => guest.leave(),
            Existing::MariaDb(guest) => guest.leave(),
            Existing::Firebird(guest) => guest.leave(),
        }
    }
}
