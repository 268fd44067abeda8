//! A database of our own on a Firebird server that somebody else runs; see [`crate::guest`].

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tidegate_workload::workload::Workload;
use tidegate_workload::{Connection, Failure, Statement, Wants};

use super::connection::{FirebirdConnection, Isolation, Login, Purpose, Secret, Target};
use super::keeper::Keeper;
use super::{DBMS, end_others, of_database, sweep};
use crate::connection::Connector;
use crate::database::{Clients, Database, DatabaseError, Dbms};
use crate::detection::Whereabouts;
use crate::guest::{GuestError, MARK, soon};
use crate::url::{Host, Url};

/// Bytes in a page of the database: those of a private server's.
const PAGE_BYTES: u32 = 8_192;

const NEEDED: &str = "the user may need CREATE DATABASE, and the server's own user must be able to \
                      write there";

/// A guest; its database is dropped, and its file removed, with it.
#[derive(Debug)]
pub struct Guest {
    /// Keeps the page cache, which ends with the last connection.
    keeper: Option<Keeper>,
    url: Url,
    target: Arc<Target>,
}

impl Guest {
    /// Logs in where the URL says and makes the database in the file that it names.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub fn make(url: &Url, isolation: Isolation) -> Result<Self, GuestError> {
        let login = |reason: String| GuestError::Login { place: url.to_string(), reason };
        let address = look_up(url).map_err(|error| login(error.to_string()))?;
        let secret = Secret::Password(url.password.clone().unwrap_or_default());
        let target = Target {
            address,
            database: url.database.clone(),
            isolation,
            login: Login { user: url.user.clone(), secret },
        };
        let mut there = match create(&target) {
            Ok(there) => there,
            Err(Failure::Lost(reason)) => return Err(login(reason)),
            Err(failure) if is_login(&failure) => {
                return Err(login(url.login_failure(&failure.to_string())));
            }
            Err(failure) => {
                make_room(url, &target, failure)?;
                create(&target).map_err(|failure| refused(url, failure))?
            }
        };
        let mark = Statement::written(format!("COMMENT ON DATABASE IS '{MARK}'"));
        if let Err(failure) = there.run(&mark, &[], Wants::Count) {
            // Without the mark it would be somebody else's to all who come later.
            let _ = drop_database(&mut there);
            return Err(refused(url, failure));
        }
        let keeper = Keeper::new(there).map_err(|failure| refused(url, failure))?;
        Ok(Guest { keeper: Some(keeper), url: url.clone(), target: Arc::new(target) })
    }

    /// Connects to the database.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<FirebirdConnection, Failure> {
        FirebirdConnection::open(&self.target, Purpose::Use)
    }

    /// Returns what makes connections on other threads. It does not keep the database: once that is
    /// gone, they are lost and there are no new ones.
    #[must_use]
    pub fn connector(&self) -> Arc<dyn Connector> {
        Arc::clone(&self.target) as _
    }

    /// Ends the connections of others, also in the middle of a statement. They may take a moment to
    /// be gone. Returns how many there were.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn end_connections(&self) -> Result<usize, Failure> {
        self.keeper.as_ref().map_or(Ok(0), |keeper| keeper.end_others(&self.target))
    }

    /// Drops the database; whoever is still in it loses the connection.
    ///
    /// # Errors
    /// The server is down, or others come again and again.
    pub fn leave(mut self) -> Result<(), GuestError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), GuestError> {
        // A database that somebody is in is not dropped.
        let _ = self.end_connections();
        let Some(keeper) = self.keeper.take() else { return Ok(()) };
        let mut keeper = keeper.into_connection();
        // The keeper may be lost, and the server have started anew.
        let removed = drop_database(&mut keeper).or_else(|_| drop_database(&mut self.connect()?));
        removed.map_err(|failure| refused(&self.url, failure))
    }
}

impl Database for Guest {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Threads(self.connector())
    }

    fn level(&self, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        sweep(&self.target)
    }

    fn end_others(&self, waited: Duration) -> Result<usize, DatabaseError> {
        end_others(&self.target, waited, || self.end_connections())
    }

    /// What the database says of itself, and the isolation of transactions. A server's settings are
    /// not for clients to ask.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        let mut settings = self.url.settings(Vec::new());
        settings.extend(of_database(&mut self.connect()?, self.target.isolation)?);
        Ok(settings)
    }

    fn existing(&self) -> Option<Whereabouts> {
        let keeper = self.keeper.as_ref().expect("it stays until the guest leaves");
        Some(keeper.connection().whereabouts())
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        Ok(self.leave()?)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Nobody is left to hear of a failure.
        let _ = self.remove();
    }
}

fn look_up(url: &Url) -> std::io::Result<SocketAddr> {
    // IPv4 first: a name such as localhost often has both, and servers often only one.
    let none = || std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address");
    let Host::Tcp(host) = &url.host else { return Err(none()) };
    let mut addresses: Vec<_> = (host.as_str(), url.port).to_socket_addrs()?.collect();
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.first().copied().ok_or_else(none)
}

fn create(target: &Target) -> Result<FirebirdConnection, Failure> {
    FirebirdConnection::open(target, Purpose::Create { page_bytes: PAGE_BYTES })
}

/// The comment of the database.
const COMMENT: &str = "SELECT CAST(rdb$description AS varchar(200)) FROM rdb$database";

/// How many others are in it.
const OTHERS: &str = "SELECT COUNT(*) FROM mon$attachments WHERE mon$system_flag = 0 \
                      AND mon$attachment_id <> current_connection";

/// The database could not be made: if that is because an earlier guest left one behind, it is
/// dropped.
fn make_room(url: &Url, target: &Target, failure: Failure) -> Result<(), GuestError> {
    let Ok(mut there) = FirebirdConnection::open(target, Purpose::Use) else {
        return Err(refused(url, failure));
    };
    let asked = |reason| GuestError::asked(url, reason);
    let reply = there.run(&Statement::new(COMMENT), &[], Wants::Rows).map_err(asked)?;
    if reply.rows.text(0, 0) != Some(MARK) {
        return Err(GuestError::not_ours(url, &url.database));
    }
    // The connections of one that was killed a moment ago may still be ending.
    let is_left = soon(|| {
        let reply = there.run(&Statement::new(OTHERS), &[], Wants::Rows)?;
        Ok(reply.rows.int(0, 0) == Some(0))
    });
    if !is_left.map_err(asked)? {
        return Err(GuestError::in_use(url, &url.database));
    }
    drop_database(&mut there).map_err(|failure| refused(url, failure))
}

/// Drops the database as soon as nobody else is in it.
fn drop_database(connection: &mut FirebirdConnection) -> Result<(), Failure> {
    let mut refusal = Failure::Unexpected("a database without others");
    let is_dropped = soon(|| match connection.drop_database() {
        Ok(()) => Ok(true),
        Err(failure @ (Failure::Refused { .. } | Failure::Conflict(_))) => {
            refusal = failure;
            Ok(false)
        }
        Err(failure) => Err(failure),
    })?;
    if is_dropped { Ok(()) } else { Err(refusal) }
}

/// Whether a refusal is about who we are: Firebird's codes for a wrong login, for one that failed
/// for a reason of the server's, and for encryption that the two cannot agree on.
fn is_login(failure: &Failure) -> bool {
    const CODES: [&str; 3] = ["335544472", "335545106", "335545064"];
    matches!(failure, Failure::Refused { code, .. } if CODES.contains(&code.as_str()))
}

fn refused(url: &Url, reason: Failure) -> GuestError {
    GuestError::refused(url, &url.database, reason, NEEDED)
}
