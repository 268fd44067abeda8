//! The test rig: what every experiment on a private server stands on.
//!
//! The server and its settings, the `tidegate proxy` before it, the proxy's journal, the machine,
//! and the progress shown to people. Servers and proxies are stopped when they are dropped.

mod console;
mod error;
mod journal;
mod machine;
mod proxy;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tidegate_subject::postgres::{self, Postgres};
use tidegate_workload::pgbench::{SUMS_QUERY, Sums};

use crate::load::{self, Progress, Stage};

pub use console::{Console, Update};
pub use error::RigError;
pub use journal::Interval;
pub use machine::Machine;

pub(crate) use journal::{between as journal_between, read as read_journal};
pub(crate) use proxy::{Proxy, ProxyOptions};

/// The server's settings that are not PostgreSQL's defaults.
pub(crate) const SETTINGS: [(&str, &str); 2] =
    [("max_connections", "1100"), ("shared_buffers", "256MB")];

/// Connections of the server kept for others than the clients: its own reserve, the proxy, us.
const SPARE_CONNECTIONS: usize = 100;

/// The most clients that the server has connections for.
pub(crate) const MAX_CLIENTS: usize = 1100 - SPARE_CONNECTIONS;

/// How long the clients of a load may take to connect.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A server with [`SETTINGS`].
pub(crate) fn start_server() -> Result<Postgres, RigError> {
    let settings = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(Postgres::start(postgres::Options {
        settings: settings.to_vec(),
        ..postgres::Options::default()
    })?)
}

/// How often a wait for the server looks at the cancellation flag.
const POLL: Duration = Duration::from_millis(20);

/// Runs statements on one connection, each on its own.
///
/// A statement that loads a table takes its time, so they run on a thread: a cancellation leaves it
/// behind, and it ends when the server does.
pub(crate) fn execute(
    server: &Postgres,
    cancel: &AtomicBool,
    statements: &[impl AsRef<str>],
) -> Result<(), RigError> {
    let mut client = server.connect()?;
    let statements: Vec<String> = statements.iter().map(|text| text.as_ref().to_owned()).collect();
    let worker = std::thread::spawn(move || {
        statements.iter().try_for_each(|statement| client.query(statement).map(drop))
    });
    while !worker.is_finished() {
        if cancel.load(Ordering::Relaxed) {
            return Err(RigError::Cancelled);
        }
        std::thread::sleep(POLL);
    }
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    Ok(())
}

/// The sums of pgbench's tables; `None` when the server does not give them.
pub(crate) fn read_sums(server: &Postgres) -> Result<Option<Sums>, RigError> {
    let rows = server.connect()?.query(SUMS_QUERY)?;
    Ok(rows.first().and_then(|row| Sums::read(row)))
}

/// Leaves an empty file at `path`: what an earlier experiment wrote must not be taken for ours.
pub(crate) fn empty_file(path: &Path) -> Result<(), RigError> {
    File::create(path).map(drop).map_err(RigError::file(path))
}

/// How long a run lasts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Time that does not count.
    pub warmup: Duration,
    /// Time that counts.
    pub measured: Duration,
}

impl Times {
    /// All of it.
    pub(crate) fn total(self) -> Duration {
        self.warmup + self.measured
    }

    /// How far into its run a load is, in seconds.
    pub(crate) fn seconds_into(self, progress: &Progress) -> f64 {
        let elapsed = match progress.stage {
            Stage::Connecting => Duration::ZERO,
            Stage::Warmup => progress.elapsed,
            Stage::Measuring => self.warmup + progress.elapsed,
            Stage::Draining => self.total(),
        };
        elapsed.as_secs_f64()
    }
}

/// Makes room for `clients` and the proxy, which inherits our limit of open files and needs a
/// socket for each client and each server connection.
///
/// # Errors
/// There is none: how many clients there is room for, and why.
pub(crate) fn reserve_files(clients: usize) -> Result<(), (usize, load::FileLimit)> {
    let Err(limit) = load::reserve_files(2 * clients) else {
        return Ok(());
    };
    let room = (limit.sockets / 2).max(1);
    // The soft limit may still be lower than what the hard one allows.
    let _ = load::reserve_files(2 * room);
    Err((room, limit))
}
