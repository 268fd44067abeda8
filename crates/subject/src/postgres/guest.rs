//! A database of our own on a PostgreSQL server that somebody else runs; see [`crate::guest`].
//!
//! That a database is in use is shown by a session in it, its resident. A marked database without
//! one was left behind, and whoever comes next drops it. So the resident is there before the mark
//! is; and while one guest looks for what was left behind and makes its own, those that log in to
//! the same database of the server wait for an advisory lock.

use std::time::{Duration, Instant};

use crate::client::{BlockingClient, ClientError, Url};
use crate::detection::Whereabouts;
use crate::guest::{GuestError, MARK, NAME};
use crate::isolation::Isolation;

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
            reason: reason(error, server),
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

    /// Where clients connect.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Where the server is.
    #[must_use]
    pub fn whereabouts(&self) -> Whereabouts {
        self.whereabouts
    }

    /// A connection to the database.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn connect(&self) -> Result<BlockingClient, ClientError> {
        BlockingClient::connect(&self.url.with_password())
    }

    /// The server's version.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn version(&self) -> Result<String, ClientError> {
        self.connect()?.value("SHOW server_version")
    }

    /// The server's settings on which throughput hangs, as in force in the database.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn settings(&self) -> Result<Vec<(String, String)>, ClientError> {
        let sql = format!(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('{}') ORDER BY 1",
            SETTINGS.join("', '")
        );
        let rows = self.connect()?.query(&sql)?;
        let pair = |row: Vec<Option<String>>| {
            let mut columns = row.into_iter().map(Option::unwrap_or_default);
            Some((columns.next()?, columns.next()?))
        };
        Ok(rows.into_iter().filter_map(pair).collect())
    }

    /// Ends the sessions of others in the database; how many there were.
    ///
    /// # Errors
    /// The server is down or refuses.
    pub fn end_others(&self) -> Result<usize, ClientError> {
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{NAME}' \
             AND pid <> pg_backend_pid() AND application_name <> '{RESIDENT}'"
        );
        Ok(self.connect()?.query(&sql)?.len())
    }

    /// Asks for a checkpoint, which not everybody may have.
    ///
    /// # Errors
    /// The server is down.
    pub fn checkpoint(&self) -> Result<(), ClientError> {
        match self.connect()?.query("CHECKPOINT") {
            Err(ClientError::Server(error)) if error.code == INSUFFICIENT_PRIVILEGE => Ok(()),
            other => other.map(drop),
        }
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
        let _ = self.end_others();
        self.resident = None;
        let client = BlockingClient::connect(&self.server.with_password());
        let mut client = client.map_err(|error| GuestError::asked(&self.server, error))?;
        drop_database(&mut client, &self.server)
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

/// What a login met, without the place, which the caller names.
fn reason(error: ClientError, server: &Url) -> String {
    let reason = match error {
        ClientError::Connect { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    if server.password.is_some() {
        return reason;
    }
    format!("{reason}; no password was given, neither in the URL nor in PGPASSWORD")
}

fn refused(server: &Url, error: ClientError) -> GuestError {
    match error {
        ClientError::Server(error) if error.code == DUPLICATE_DATABASE => {
            GuestError::not_ours(server, NAME)
        }
        error => GuestError::refused(server, NAME, error, NEEDED),
    }
}
