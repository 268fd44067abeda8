//! A database of our own on a MariaDB server that somebody else runs; see [`crate::guest`].

use std::sync::Arc;

use tidegate_workload::workload::Workload;

use super::level::analyze;
use super::{DBMS, kill};
use crate::database::{DatabaseError, Dbms};
use crate::guest::{self, GuestError, Host, MARK, NAME};
use crate::isolation::Isolation;
use crate::mysql::{BlockingClient, ClientError, Connection};
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
pub type Guest = guest::Guest<Connection>;

impl Host for Connection {
    const DBMS: &'static Dbms = &DBMS;
    /// It holds the lock that shows others that the database is in use.
    const STAYS: bool = true;

    fn create(
        client: &mut BlockingClient,
        server: &Url,
        _: Option<Isolation>,
    ) -> Result<(), GuestError> {
        let asked = |reason: ClientError| GuestError::asked(server, reason);
        client.query(&format!("SET SESSION wait_timeout = {IDLE_S}")).map_err(asked)?;
        let lock = format!("SELECT GET_LOCK('{NAME}', {PATIENCE_S})");
        if client.value(&lock).map_err(asked)? != "1" {
            return Err(GuestError::in_use(server, NAME));
        }
        if let Some(comment) = comment(client).map_err(asked)? {
            if comment != MARK {
                return Err(GuestError::not_ours(server, NAME));
            }
            Self::drop_database(client, server)?;
        }
        // Text is equal when it is the same, as on a private server.
        let create = format!(
            "CREATE DATABASE {NAME} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT '{MARK}'"
        );
        client.query(&create).map(drop).map_err(|error| refused(server, error))
    }

    fn move_in(made: BlockingClient, _: &Url) -> Result<BlockingClient, ClientError> {
        Ok(made)
    }

    fn drop_database(client: &mut BlockingClient, server: &Url) -> Result<(), GuestError> {
        let dropped = client.query(&format!("DROP DATABASE IF EXISTS {NAME}"));
        dropped.map(drop).map_err(|error| refused(server, error))
    }

    /// Lets the server count the rows of our tables. To wait for its purge and the writing of its
    /// pages would change its settings.
    fn level(mut client: BlockingClient, _: &[Arc<dyn Workload>]) -> Result<(), DatabaseError> {
        Ok(analyze(&mut client)?)
    }

    fn end_others(mut client: BlockingClient) -> Result<usize, ClientError> {
        let others = format!(
            "SELECT id FROM information_schema.processlist \
             WHERE db = '{NAME}' AND id <> CONNECTION_ID()"
        );
        kill(&mut client, &others)
    }

    fn settings() -> String {
        let names = SETTINGS.join("', '");
        format!("SHOW SESSION VARIABLES WHERE Variable_name IN ('{names}')")
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

fn refused(server: &Url, error: ClientError) -> GuestError {
    match error {
        ClientError::Server(error) if error.code == DATABASE_EXISTS => {
            GuestError::not_ours(server, NAME)
        }
        error => GuestError::refused(server, NAME, error, NEEDED),
    }
}
