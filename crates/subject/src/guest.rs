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

use thiserror::Error;
use tidegate_workload::Failure;

/// The name of the database that a guest makes.
pub const NAME: &str = "tidegate_lab";

/// The comment by which it is known.
pub const MARK: &str = "made by tidegate lab";

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
