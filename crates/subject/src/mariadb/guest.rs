//! A database of our own on a MariaDB server that somebody else runs; see [`crate::guest`].

use std::sync::Arc;
use std::time::Duration;

use tidegate_workload::workload::Workload;

use super::level::analyze;
use super::{DBMS, kill, version};
use crate::connection::Transactional;
use crate::database::{Clients, Database, DatabaseError, Dbms};
use crate::detection::Whereabouts;
use crate::guest::{GuestError, MARK, NAME};
use crate::isolation::Isolation;
use crate::mysql::{BlockingClient, ClientError};
use crate::url::Url;

/// Seconds that a guest waits for the lock of one that was killed.
const PATIENCE_S: u32 = 10;

/// Seconds that the keeper may be idle: a year, the longest there is.
const IDLE_S: u32 = 31_536_000;

const DATABASE_EXISTS: u16 = 1007;

const NEEDED: &str = "the user needs all rights on it: GRANT ALL ON tidegate_lab.* TO ..";

/// Settings that are written down: those on which throughput hangs, and none with secrets.
const SETTINGS: [&str; 20] = [
    "back_log",
    "innodb_buffer_pool_size",
    "innodb_deadlock_detect",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_io_capacity",
    "innodb_io_capacity_max",
    "innodb_lock_wait_timeout",
    "innodb_log_file_size",
    "innodb_snapshot_isolation",
    "innodb_thread_concurrency",
    "log_bin",
    "max_connections",
    "query_cache_type",
    "sync_binlog",
    "table_open_cache",
    "thread_handling",
    "thread_pool_size",
    "tx_isolation",
];

/// A guest; its database is dropped with it.
pub struct Guest {
    /// Holds the lock that shows others that the database is in use.
    keeper: Option<BlockingClient>,
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
        let asked = |reason: ClientError| GuestError::asked(server, reason);
        client.query(&format!("SET SESSION wait_timeout = {IDLE_S}")).map_err(asked)?;
        let lock = format!("SELECT GET_LOCK('{NAME}', {PATIENCE_S})");
        if client.value(&lock).map_err(asked)? != "1" {
            return Err(GuestError::in_use(server, NAME));
        }
        if let Some(comment) = comment(&mut client).map_err(asked)? {
            if comment != MARK {
                return Err(GuestError::not_ours(server, NAME));
            }
            drop_database(&mut client, server)?;
        }
        // Text is equal when it is the same, as on a private server.
        let create = format!(
            "CREATE DATABASE {NAME} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT '{MARK}'"
        );
        client.query(&create).map_err(|error| refused(server, error))?;
        let url = Url { database: NAME.to_owned(), isolation, ..server.clone() };
        let (server, whereabouts) = (server.clone(), client.whereabouts());
        Ok(Guest { keeper: Some(client), server, url, whereabouts, is_gone: false })
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
    /// The server is down or refuses.
    pub fn leave(mut self) -> Result<(), GuestError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), GuestError> {
        self.is_gone = true;
        // A table that somebody still uses is not dropped.
        let _ = self.end_others(Duration::ZERO);
        let client = BlockingClient::connect(&self.server.with_password());
        let mut client = client.map_err(|error| GuestError::asked(&self.server, error))?;
        drop_database(&mut client, &self.server)?;
        self.keeper = None;
        Ok(())
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

    /// Lets the server count the rows of our tables. To wait for its purge and the writing of its
    /// pages would change its settings.
    fn level(&self, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        Ok(analyze(&mut self.connect()?)?)
    }

    fn end_others(&self, _: Duration) -> Result<usize, DatabaseError> {
        let others = format!(
            "SELECT id FROM information_schema.processlist \
             WHERE db = '{NAME}' AND id <> CONNECTION_ID()"
        );
        kill(&mut self.connect()?, &others)
    }

    fn version(&self) -> Result<String, DatabaseError> {
        version(&mut self.connect()?)
    }

    /// The server's settings, and the isolation level of our sessions.
    fn settings(&self) -> Result<Vec<(String, String)>, DatabaseError> {
        let names = SETTINGS.join("', '");
        let sql = format!("SHOW SESSION VARIABLES WHERE Variable_name IN ('{names}')");
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

/// The comment of the database of our name, if there is one.
fn comment(client: &mut BlockingClient) -> Result<Option<String>, ClientError> {
    let sql = format!(
        "SELECT schema_comment FROM information_schema.schemata WHERE schema_name = '{NAME}'"
    );
    let rows = client.query(&sql)?;
    Ok(rows.into_iter().flatten().next().map(Option::unwrap_or_default))
}

fn drop_database(client: &mut BlockingClient, server: &Url) -> Result<(), GuestError> {
    let dropped = client.query(&format!("DROP DATABASE IF EXISTS {NAME}"));
    dropped.map(drop).map_err(|error| refused(server, error))
}

fn refused(server: &Url, error: ClientError) -> GuestError {
    match error {
        ClientError::Server(error) if error.code == DATABASE_EXISTS => {
            GuestError::not_ours(server, NAME)
        }
        error => GuestError::refused(server, NAME, error, NEEDED),
    }
}
