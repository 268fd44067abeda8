//! A database of our own on a PostgreSQL server that somebody else runs; see [`crate::guest`].
//!
//! That a database is in use is shown by a session in it, its resident. A marked database without
//! one was left behind, and whoever comes next drops it. So the resident is there before the mark
//! is; and while one guest looks for what was left behind and makes its own, those that log in to
//! the same database of the server wait for an advisory lock.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tidegate_workload::workload::Workload;

use super::{DBMS, load_and_analyze, vacuum, version};
use crate::client::{BlockingClient, ClientError};
use crate::connection::Transactional;
use crate::database::{Clients, Database, DatabaseError, Dbms};
use crate::detection::Whereabouts;
use crate::guest::{GuestError, MARK, NAME};
use crate::isolation::Isolation;
use crate::url::Url;

/// The name by which the guest's own session is known, which stays for as long as the guest does.
const RESIDENT: &str = "tidegate lab";

/// The key of the advisory lock: `Tidegate` in ASCII.
const LOCK: i64 = 0x5469_6465_6761_7465;

/// How long sessions of a guest that was killed may take to end.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(50);

const OBJECT_IN_USE: &str = "55006";
const DUPLICATE_DATABASE: &str = "42P04";
const INSUFFICIENT_PRIVILEGE: &str = "42501";

const NEEDED: &str = "the role needs CREATEDB";

/// Settings that are written down: those on which throughput hangs, and none with secrets.
const SETTINGS: [&str; 24] = [
    "autovacuum",
    "checkpoint_timeout",
    "commit_delay",
    "deadlock_timeout",
    "default_transaction_isolation",
    "effective_cache_size",
    "effective_io_concurrency",
    "fsync",
    "full_page_writes",
    "huge_pages",
    "jit",
    "lock_timeout",
    "maintenance_work_mem",
    "max_connections",
    "max_wal_size",
    "max_worker_processes",
    "random_page_cost",
    "shared_buffers",
    "statement_timeout",
    "synchronous_commit",
    "synchronous_standby_names",
    "wal_buffers",
    "wal_level",
    "work_mem",
];

/// A guest; its database is dropped with it.
pub struct Guest {
    /// Shows others that the database is in use.
    resident: Option<BlockingClient>,
    /// Where we logged in.
    server: Url,
    /// Our database.
    url: Url,
    whereabouts: Whereabouts,
    is_gone: bool,
}

impl Guest {
    /// Logs in where the URL says and makes the database, for sessions of this isolation level or
    /// the server's own.
    ///
    /// # Errors
    /// See [`GuestError`].
    pub fn make(server: &Url, isolation: Option<Isolation>) -> Result<Self, GuestError> {
        let login = |error: ClientError| GuestError::Login {
            place: server.to_string(),
            reason: server.login_failure(&error.reason()),
        };
        let mut client = BlockingClient::connect(&server.with_password()).map_err(login)?;
        // Until the session ends, with this function.
        lock(&mut client, server)?;
        make_room(&mut client, server)?;
        create(&mut client, isolation).map_err(|error| refused(server, error))?;
        let url = Url { database: NAME.to_owned(), ..server.clone() };
        let mut guest = Guest {
            resident: None,
            server: server.clone(),
            url,
            whereabouts: client.whereabouts(),
            is_gone: false,
        };
        let asked = |reason: ClientError| GuestError::asked(server, reason);
        let resident = BlockingClient::connect_as(&guest.url.with_password(), RESIDENT);
        let mut resident = resident.map_err(asked)?;
        let mark = format!("COMMENT ON DATABASE {NAME} IS '{MARK}'");
        resident.query(&mark).map_err(asked)?;
        // A server that does not know it has no such limit.
        let _ = resident.query("SET idle_session_timeout = 0");
        guest.resident = Some(resident);
        Ok(guest)
    }

    /// Connects to the database.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<BlockingClient, ClientError> {
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
        // Who ends others must be inside; who drops it must be outside.
        let _ = self.end_others(Duration::ZERO);
        self.resident = None;
        let client = BlockingClient::connect(&self.server.with_password());
        let mut client = client.map_err(|error| GuestError::asked(&self.server, error))?;
        drop_database(&mut client, &self.server)
    }
}

impl Database for Guest {
    fn dbms(&self) -> &'static Dbms {
        &DBMS
    }

    fn session(&self) -> Result<Box<dyn Transactional>, DatabaseError> {
        Ok(Box::new(self.connect()?))
    }

    fn clients(&self) -> Clients<'_> {
        Clients::Server(self.url.clone())
    }

    fn load(
        &mut self,
        workloads: &[Arc<dyn Workload>],
        cancel: &AtomicBool,
    ) -> Result<(), DatabaseError> {
        load_and_analyze(self.connect()?, workloads, cancel)
    }

    /// Asks for a checkpoint, which not every role may have.
    fn level(&self, workloads: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        let mut client = self.connect()?;
        vacuum(&mut client, "VACUUM", workloads)?;
        match client.query("CHECKPOINT") {
            Err(ClientError::Server(error)) if error.code == INSUFFICIENT_PRIVILEGE => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }

    fn end_others(&self, _: Duration) -> Result<usize, DatabaseError> {
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{NAME}' \
             AND pid <> pg_backend_pid() AND application_name <> '{RESIDENT}'"
        );
        Ok(self.connect()?.query(&sql)?.len())
    }

    fn version(&self) -> Result<String, DatabaseError> {
        version(&mut self.connect()?)
    }

    /// The settings as in force in the database.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        let sql = format!(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('{}') ORDER BY 1",
            SETTINGS.join("', '")
        );
        Ok(self.url.settings(self.connect()?.query(&sql)?))
    }

    fn existing(&self) -> Option<Whereabouts> {
        Some(self.whereabouts)
    }

    fn stop(self: Box<Self>) -> Result<(), DatabaseError> {
        Ok(self.leave()?)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.is_gone {
            // Nobody is left to hear of a failure.
            let _ = self.remove();
        }
    }
}

impl std::fmt::Debug for Guest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guest").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Waits until no other guest is being made.
fn lock(client: &mut BlockingClient, server: &Url) -> Result<(), GuestError> {
    let deadline = Instant::now() + PATIENCE;
    let lock = format!("SELECT pg_try_advisory_lock({LOCK})");
    while client.value(&lock).map_err(|error| GuestError::asked(server, error))? != "t" {
        if Instant::now() >= deadline {
            return Err(GuestError::in_use(server, NAME));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Sees to it that there is no database of our name: drops one that an earlier guest left behind.
fn make_room(client: &mut BlockingClient, server: &Url) -> Result<(), GuestError> {
    let found = format!(
        "SELECT COALESCE(shobj_description(oid, 'pg_database'), '') FROM pg_database \
         WHERE datname = '{NAME}'"
    );
    let asked = |error: ClientError| GuestError::asked(server, error);
    let found = client.query(&found).map_err(asked)?;
    match found.into_iter().flatten().next() {
        None => return Ok(()),
        Some(comment) if comment.as_deref() == Some(MARK) => {}
        Some(_) => return Err(GuestError::not_ours(server, NAME)),
    }
    let residents = format!(
        "SELECT 1 FROM pg_stat_activity WHERE datname = '{NAME}' \
         AND application_name = '{RESIDENT}'"
    );
    let deadline = Instant::now() + PATIENCE;
    // The session of one that was killed a moment ago may still be ending.
    while !client.query(&residents).map_err(asked)?.is_empty() {
        if Instant::now() >= deadline {
            return Err(GuestError::in_use(server, NAME));
        }
        std::thread::sleep(POLL);
    }
    drop_database(client, server)
}

fn drop_database(client: &mut BlockingClient, server: &Url) -> Result<(), GuestError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match client.query(&format!("DROP DATABASE IF EXISTS {NAME}")) {
            Ok(_) => return Ok(()),
            Err(ClientError::Server(error)) if error.code == OBJECT_IN_USE => {
                if Instant::now() >= deadline {
                    return Err(GuestError::in_use(server, NAME));
                }
                std::thread::sleep(POLL);
            }
            Err(error) => return Err(refused(server, error)),
        }
    }
}

/// Makes the database with the same locale as a private server's.
fn create(client: &mut BlockingClient, isolation: Option<Isolation>) -> Result<(), ClientError> {
    client.query(&format!(
        "CREATE DATABASE {NAME} TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    ))?;
    if let Some(level) = isolation {
        let level = level.to_string().to_lowercase();
        client.query(&format!(
            "ALTER DATABASE {NAME} SET default_transaction_isolation = '{level}'"
        ))?;
    }
    Ok(())
}

fn refused(server: &Url, error: ClientError) -> GuestError {
    match error {
        ClientError::Server(error) if error.code == DUPLICATE_DATABASE => {
            GuestError::not_ours(server, NAME)
        }
        error => GuestError::refused(server, NAME, error, NEEDED),
    }
}
