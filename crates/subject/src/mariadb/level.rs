//! The same start for two runs.
//!
//! What a run leaves behind it works on in the background, in the next run's time: old versions of
//! rows that nobody can see any more wait for the purge, changed pages wait to be written, and the
//! optimizer counts the rows of tables that have changed. All three are brought to their end here:
//!
//! 1. `ANALYZE TABLE` for the tables of the connection's database;
//! 2. `innodb_max_purge_lag_wait = 0` returns when the history of old versions is empty;
//! 3. `innodb_max_dirty_pages_pct = 0`, at the highest rate of writing, until no page is dirty.
//!
//! The tables must not be in use: an open transaction keeps the purge from ending. What stays as it
//! was is which pages the server holds in memory; only a restart empties that, where the server
//! does not keep a list of them, and a private one does not.
//!
//! Source: MariaDB Server documentation, the pages on `InnoDB` system variables and its purge. That
//! `innodb_max_purge_lag_wait` waits is so since version 10.5.7; an older server refuses it.

use std::time::{Duration, Instant};

use tidegate_workload::Failure;

use crate::database::DatabaseError;
use crate::mysql::{BlockingClient, ClientError};

const POLL: Duration = Duration::from_millis(50);
const BOUND: Duration = Duration::from_secs(300);

/// Settings changed while pages are written, and their values then. At other times they spread the
/// writing over time.
const HASTE: [(&str, &str); 3] = [
    ("innodb_io_capacity_max", "100000"),
    ("innodb_io_capacity", "100000"),
    ("innodb_max_dirty_pages_pct", "0"),
];

/// Lets a server finish what is left of earlier runs, in the connection's database and in all of
/// its memory, as a user who may change its settings.
///
/// # Errors
/// The server is down, refuses, or does not come to an end within minutes.
pub fn level(client: &mut BlockingClient) -> Result<(), DatabaseError> {
    client.set_timeout(Some(BOUND))?;
    let levelled = finish(client);
    client.set_timeout(None)?;
    levelled
}

fn finish(client: &mut BlockingClient) -> Result<(), DatabaseError> {
    analyze(client)?;
    client.query("SET GLOBAL innodb_max_purge_lag_wait = 0")?;
    let mut before = Vec::new();
    let written = hurry(client, &mut before).and_then(|()| wait_until_clean(client));
    // Back in the opposite order: one capacity may not exceed the other.
    for (name, value) in before.iter().rev() {
        client.query(&format!("SET GLOBAL {name} = {value}"))?;
    }
    written
}

/// Makes the server write; what was set before goes into `before`.
fn hurry(
    client: &mut BlockingClient,
    before: &mut Vec<(&str, String)>,
) -> Result<(), DatabaseError> {
    for (name, value) in HASTE {
        before.push((name, client.value(&format!("SELECT @@global.{name}"))?));
        client.query(&format!("SET GLOBAL {name} = {value}"))?;
    }
    Ok(())
}

/// Counts the rows of the tables of the connection's database.
pub(super) fn analyze(client: &mut BlockingClient) -> Result<(), ClientError> {
    let tables = client.query(
        "SELECT table_name FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE'",
    )?;
    for table in tables.into_iter().flatten().flatten() {
        client.query(&format!("ANALYZE TABLE `{}`", table.replace('`', "``")))?;
    }
    Ok(())
}

fn wait_until_clean(client: &mut BlockingClient) -> Result<(), DatabaseError> {
    let deadline = Instant::now() + BOUND;
    loop {
        let pages = client.query("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'")?;
        let pages = pages.into_iter().flatten().flatten().next_back();
        let pages = pages.ok_or(Failure::Unexpected("the number of changed pages"))?;
        if pages == "0" {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(DatabaseError::Other(format!(
                "after {} s, {pages} changed pages are still not on disk",
                BOUND.as_secs()
            )));
        }
        std::thread::sleep(POLL);
    }
}
