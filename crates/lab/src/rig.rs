//! The test rig: what every experiment on a private server stands on.
//!
//! The choice of a database; what stands before it and holds the limit, a `tidegate proxy` or its
//! own gate; the journal, the machine, and the progress shown to people. All of it is stopped when
//! it is dropped.

mod console;
mod database;
mod error;
mod executors;
mod front;
mod journal;
mod machine;
mod proxy;

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::load::{self, Progress, Stage};

pub use console::{Console, Update};
pub use database::{DatabaseChoice, DatabaseDescription, UnknownDatabase};
pub use error::RigError;
pub use journal::Interval;
pub use machine::Machine;

pub(crate) use database::{gated_names, sums};
pub(crate) use executors::other_executors;
pub(crate) use front::{Front, FrontOptions, LIMIT_MAX};
pub(crate) use journal::{between as journal_between, read as read_journal};

/// The most clients that the server has connections for.
pub(crate) const MAX_CLIENTS: usize = 1000;

/// How long the clients of a load may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Leaves an empty file at `path`: what an earlier experiment wrote must not be taken for ours.
pub(crate) fn empty_file(path: &Path) -> Result<(), RigError> {
    File::create(path).map(drop).map_err(RigError::file(path))
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Time that does not count.
    pub warmup: Duration,
    /// Time that counts.
    pub measured: Duration,
}

impl Times {
    pub(crate) fn total(self) -> Duration {
        self.warmup + self.measured
    }

    /// How far into its run a load is, in seconds.
    pub(crate) fn seconds_into(self, progress: &Progress) -> f64 {
        let elapsed = match progress.stage {
            Stage::Connecting | Stage::Ready => Duration::ZERO,
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
