//! Guests: databases of our own on servers that somebody else runs.
//!
//! # Mechanism
//! A guest logs in where a URL says, makes a database called [`NAME`] there, works in it alone, and
//! drops it when it goes. The database carries a [`MARK`]. One of that name with the mark was left
//! behind by a laboratory that was killed, and is dropped and made anew; one without it belongs to
//! somebody else, is not touched, and the guest is refused. So is a second guest while the first is
//! at work. The server is neither started nor stopped, and its settings are not changed.
//!
//! | server | the database | who may |
//! | --- | --- | --- |
//! | PostgreSQL | `tidegate_lab`, marked by its comment | a role with CREATEDB |
//! | MariaDB 10.5 or later | `tidegate_lab`, marked by its comment | a user with all rights on it |
//! | Firebird | the file that the URL names, marked alike | a user who may make databases |
//!
//! # Limits
//! On PostgreSQL the mark comes a moment after the database: who is killed in between leaves one
//! that has to be dropped by hand, as the refusal says.

use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_workload::Failure;
use tidegate_workload::workload::Workload;

use crate::blocking::{Answered, BlockingClient, Protocol};
use crate::database::{Clients, Database, DatabaseError, Dbms};
use crate::detection::Whereabouts;
use crate::isolation::Isolation;
use crate::url::Url;

/// The name of the database that a guest makes.
pub const NAME: &str = "tidegate_lab";

/// The comment by which it is known.
pub const MARK: &str = "made by tidegate lab";

/// What is particular about the guests of a DBMS, on servers that a blocking client speaks to.
pub trait Host: Protocol + Send + Sync + 'static {
    /// The DBMS.
    const DBMS: &'static Dbms;
    /// Whether the session that shows that the database is in use stays until it is dropped.
    const STAYS: bool;

    /// Makes the database called [`NAME`], after one that an earlier guest left behind is dropped.
    ///
    /// # Errors
    /// See [`GuestError`].
    fn create(
        client: &mut BlockingClient<Self>,
        server: &Url,
        isolation: Option<Isolation>,
    ) -> Result<(), GuestError>;

    /// Returns the session that shows others that the database is in use, by the client that made
    /// it and the database's URL.
    ///
    /// # Errors
    /// The server does not let us in.
    fn move_in(client: BlockingClient<Self>, url: &Url) -> Answered<BlockingClient<Self>, Self>;

    /// Drops the database, if there is one.
    ///
    /// # Errors
    /// See [`GuestError`].
    fn drop_database(client: &mut BlockingClient<Self>, server: &Url) -> Result<(), GuestError>;

    /// See [`Database::level`].
    ///
    /// # Errors
    /// The server is down or refuses.
    fn level(
        client: BlockingClient<Self>,
        workloads: &[Arc<dyn Workload>],
    ) -> Result<(), DatabaseError>;

    /// Ends the sessions of others in the database. Returns how many there were.
    ///
    /// # Errors
    /// The server is down or refuses.
    fn end_others(client: BlockingClient<Self>) -> Answered<usize, Self>;

    /// Returns the query that tells the names and values of settings.
    fn settings() -> String;
}

/// A guest; its database is dropped with it.
pub struct Guest<H: Host> {
    /// Shows others that the database is in use.
    resident: Option<BlockingClient<H>>,
    /// Where we logged in.
    server: Url,
    /// Our database.
    url: Url,
    whereabouts: Whereabouts,
    is_gone: bool,
}

impl<H: Host> Guest<H> {
    /// Logs in where the URL says and makes the database, for sessions of this isolation level or
    /// the server's own.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub fn make(server: &Url, isolation: Option<Isolation>) -> Result<Self, GuestError> {
        let client = BlockingClient::connect(&server.with_password());
        let mut client = client.map_err(|error| GuestError::Login {
            place: server.to_string(),
            reason: server.login_failure(&error.reason()),
        })?;
        H::create(&mut client, server, isolation)?;
        let isolation = isolation.filter(|_| server.scheme.has_isolation);
        let url = Url { database: NAME.to_owned(), isolation, ..server.clone() };
        let (server, whereabouts) = (server.clone(), client.whereabouts());
        // From here on the database is dropped, whatever comes.
        let mut guest = Guest { resident: None, server, url, whereabouts, is_gone: false };
        let resident = H::move_in(client, &guest.url);
        guest.resident = Some(resident.map_err(|error| GuestError::asked(&guest.server, error))?);
        Ok(guest)
    }

    /// Connects to the database.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Answered<BlockingClient<H>, H> {
        BlockingClient::connect(&self.url.with_password())
    }

    /// Drops the database.
    ///
    /// # Errors
    /// The server is down, or somebody is still in it.
    pub fn leave(mut self) -> Result<(), GuestError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), GuestError> {
        self.is_gone = true;
        // What somebody uses is not dropped.
        let _ = self.end_others(Duration::ZERO);
        let _stays = self.resident.take().filter(|_| H::STAYS);
        let client = BlockingClient::connect(&self.server.with_password());
        let mut client = client.map_err(|error| GuestError::asked(&self.server, error))?;
        H::drop_database(&mut client, &self.server)
    }
}

impl<H: Host> Database for Guest<H> {
    fn dbms(&self) -> &'static Dbms {
        H::DBMS
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Server(self.url.clone())
    }

    fn level(&self, workloads: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        H::level(self.connect()?, workloads)
    }

    fn end_others(&self, _: Duration) -> Result<usize, DatabaseError> {
        Ok(H::end_others(self.connect()?)?)
    }

    /// The settings as in force in the database.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        Ok(self.url.settings(self.connect()?.query(&H::settings())?))
    }

    fn existing(&self) -> Option<Whereabouts> {
        Some(self.whereabouts)
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        Ok(self.leave()?)
    }
}

impl<H: Host> Drop for Guest<H> {
    fn drop(&mut self) {
        if !self.is_gone {
            // Nobody is left to hear of a failure.
            let _ = self.remove();
        }
    }
}

impl<H: Host> std::fmt::Debug for Guest<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("url", &self.url).finish_non_exhaustive()
    }
}

/// How long sessions of a guest that was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

/// Waits until something is so. Returns whether it was in time.
pub(crate) fn soon<E>(mut is_so: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(POLL);
    }
    Ok(true)
}

/// Why a server has no room for a guest.
#[derive(Debug, Error)]
pub enum GuestError {
    /// The server cannot be reached, or does not let us in.
    #[error("cannot use {place}: {reason}")]
    Login {
        /// Where, without the password.
        place: String,
        /// What the server or the system says.
        reason: String,
    },
    /// There is a database of this name that no laboratory made.
    #[error(
        "{place} has a {name} already that no laboratory made; it is left alone: \
         rename it, or drop it if nobody needs it"
    )]
    NotOurs {
        /// The URL of the server, without the password.
        place: String,
        /// The database.
        name: String,
    },
    /// Another guest is at work.
    #[error("another laboratory is at work in the {name} of {place}")]
    InUse {
        /// The URL of the server, without the password.
        place: String,
        /// The database.
        name: String,
    },
    /// The server refuses to make or drop the database.
    #[error("cannot make or drop {name} on {place}: {reason}; {needed}")]
    Refused {
        /// The URL of the server, without the password.
        place: String,
        /// The database.
        name: String,
        /// What the server says.
        reason: Failure,
        /// What the user needs.
        needed: &'static str,
    },
    /// The server did not answer what it was asked.
    #[error("{place}: {reason}")]
    Asked {
        /// The URL of the server, without the password.
        place: String,
        /// What the server says.
        reason: Failure,
    },
}

/// Errors of a guest at a place, the URL without its password, with a database of a name.
impl GuestError {
    pub(crate) fn not_ours(place: &impl Display, database: &str) -> Self {
        Self::NotOurs { place: place.to_string(), name: named(database) }
    }

    pub(crate) fn in_use(place: &impl Display, database: &str) -> Self {
        Self::InUse { place: place.to_string(), name: named(database) }
    }

    pub(crate) fn refused(
        place: &impl Display,
        database: &str,
        reason: impl Into<Failure>,
        needed: &'static str,
    ) -> Self {
        let (place, name) = (place.to_string(), named(database));
        Self::Refused { place, name, reason: reason.into(), needed }
    }

    pub(crate) fn asked(place: &impl Display, reason: impl Into<Failure>) -> Self {
        Self::Asked { place: place.to_string(), reason: reason.into() }
    }
}

fn named(database: &str) -> String {
    format!("database {database}")
}
