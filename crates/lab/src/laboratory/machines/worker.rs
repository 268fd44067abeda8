//! A worker: takes runs out of the queue and executes them on this host.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::executing::{Executing, Observer, tell};
use super::{MachinesError, queue, shared, wait};
use crate::laboratory::{LabError, Laboratory};

/// How long a worker waits before it connects again to a store that it lost.
const AGAIN: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// The laboratory's store, on PostgreSQL.
    pub place: String,
    pub tidegate: PathBuf,
    /// This host's name; the system's when nothing is said.
    pub host: Option<String>,
    /// How often the worker shows that it lives. One that is silent for [`super::SILENT`] times as
    /// long is taken for dead by the others.
    pub heartbeat: Duration,
}

/// Executes runs out of the queue until `cancel` is raised. A run under way is then stopped and put
/// back; what of it was measured stays.
///
/// # Errors
/// The store cannot be reached at the beginning, the host has another worker, or the laboratory's
/// other errors. A store that is lost later is waited for.
pub fn work(
    options: &WorkerOptions,
    cancel: &Arc<AtomicBool>,
    mut observer: Observer,
) -> Result<(), MachinesError> {
    shared(&options.place)?;
    let mut laboratory = open(options)?;
    // Makes the queue's tables, or says why that cannot be.
    queue::add(&options.place, &[])?;
    loop {
        let host = laboratory.store.host().to_owned();
        tell(&mut observer, format!("host {host}: waiting for runs"));
        let reason = match session(options, laboratory, cancel, &mut observer) {
            _ if cancel.load(Ordering::Relaxed) => return Ok(()),
            Ok(Some(reason)) => reason,
            Ok(None) => "the queue ended".to_owned(),
            Err(error) => error.to_string(),
        };
        tell(&mut observer, format!("host {host}: lost the store ({reason}); connecting again"));
        let Some(found) = open_again(options, cancel) else { return Ok(()) };
        laboratory = found;
    }
}

/// Does jobs for as long as the store is there. Returns why it is not any more.
fn session(
    options: &WorkerOptions,
    laboratory: Laboratory,
    cancel: &Arc<AtomicBool>,
    observer: &mut Observer,
) -> Result<Option<String>, MachinesError> {
    let host = laboratory.store.host().to_owned();
    let mut executing = Executing { laboratory, cancel: Arc::clone(cancel), observer };
    queue::serve(&options.place, &host, options.heartbeat, &mut executing, cancel)
}

/// Opens the store and takes this host.
fn open(options: &WorkerOptions) -> Result<Laboratory, LabError> {
    let mut laboratory = Laboratory::open(&options.place, options.tidegate.clone())?;
    if let Some(host) = &options.host {
        laboratory.store.set_host(host.clone());
    }
    laboratory.store.hold_host_as_worker()?;
    Ok(laboratory)
}

/// Opens the store as soon as it can be; `None` when the worker is to end. Also a host that seems
/// taken is waited for: the session that was lost may not have ended at the server yet.
fn open_again(options: &WorkerOptions, cancel: &AtomicBool) -> Option<Laboratory> {
    loop {
        if !wait(AGAIN, cancel) {
            return None;
        }
        if let Ok(laboratory) = open(options) {
            return Some(laboratory);
        }
    }
}
