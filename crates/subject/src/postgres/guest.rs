//! A database of our own on a PostgreSQL server that somebody else runs; see [`crate::guest`].
//!
//! That a database is in use is shown by a session in it, its resident. A marked database without
//! one was left behind, and whoever comes next drops it. So the resident is there before the mark
//! is; and while one guest looks for what was left behind and makes its own, those that log in to
//! the same database of the server wait for an advisory lock.

use std::sync::Arc;

use tidegate_workload::workload::Workload;

use super::{DBMS, level};
use crate::client::{BlockingClient, ClientError, Connection};
use crate::database::{DatabaseError, Dbms};
use crate::guest::{self, GuestError, Host, MARK, NAME, soon};
use crate::isolation::Isolation;
use crate::url::Url;

/// The name by which the guest's own session is known, which stays for as long as the guest does.
const RESIDENT: &str = "tidegate lab";

/// The key of the advisory lock: `Tidegate` in ASCII.
const LOCK: i64 = 0x5469_6465_6761_7465;

const OBJECT_IN_USE: &str = "55006";
const DUPLICATE_DATABASE: &str = "42P04";

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
pub type Guest = guest::Guest<Connection>;

impl Host for Connection {
    const DBMS: &'static Dbms = &DBMS;
    /// Who drops the database must be outside.
    const STAYS: bool = false;

    fn create(
        client: &mut BlockingClient,
        server: &Url,
        isolation: Option<Isolation>,
    ) -> Result<(), GuestError> {
        // Until the session ends.
        lock(client, server)?;
        make_room(client, server)?;
        create(client, isolation).map_err(|error| refused(server, error))
    }

    /// The session that made the database holds the lock, and goes when the mark is there.
    fn move_in(_made: BlockingClient, url: &Url) -> Result<BlockingClient, ClientError> {
        let mut resident = BlockingClient::connect_as(&url.with_password(), RESIDENT)?;
        resident.query(&format!("COMMENT ON DATABASE {NAME} IS '{MARK}'"))?;
        // A server that does not know it has no such limit.
        let _ = resident.query("SET idle_session_timeout = 0");
        Ok(resident)
    }

    fn drop_database(client: &mut BlockingClient, server: &Url) -> Result<(), GuestError> {
        let drop = format!("DROP DATABASE IF EXISTS {NAME}");
        let is_dropped = soon(|| match client.query(&drop) {
            Ok(_) => Ok(true),
            Err(ClientError::Server(error)) if error.code == OBJECT_IN_USE => Ok(false),
            Err(error) => Err(refused(server, error)),
        })?;
        if is_dropped { Ok(()) } else { Err(GuestError::in_use(server, NAME)) }
    }

    fn level(client: BlockingClient, workloads: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        level(client, workloads)
    }

    fn end_others(mut client: BlockingClient) -> Result<usize, ClientError> {
        let others = client.query(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{NAME}' \
             AND pid <> pg_backend_pid() AND application_name <> '{RESIDENT}'"
        ))?;
        Ok(others.len())
    }

    fn settings() -> String {
        let names = SETTINGS.join("', '");
        format!(
            "SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('{names}') \
             ORDER BY 1"
        )
    }
}

/// Waits until no other guest is being made.
fn lock(client: &mut BlockingClient, server: &Url) -> Result<(), GuestError> {
    let lock = format!("SELECT pg_try_advisory_lock({LOCK})");
    let is_locked = soon(|| Ok(client.value(&lock)? == "t"));
    let is_locked = is_locked.map_err(|error: ClientError| GuestError::asked(server, error))?;
    if is_locked { Ok(()) } else { Err(GuestError::in_use(server, NAME)) }
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
    // The session of one that was killed a moment ago may still be ending.
    if !soon(|| Ok(client.query(&residents)?.is_empty())).map_err(asked)? {
        return Err(GuestError::in_use(server, NAME));
    }
    Connection::drop_database(client, server)
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
