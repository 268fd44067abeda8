//! Many machines: runs are jobs in the laboratory's PostgreSQL, and a worker on each host takes one
//! after the other.
//!
//! # Mechanism
//! The unit is the run: a subject in one configuration, which a host executes alone.
//! [`Laboratory::enqueue`](super::Laboratory::enqueue) adds a job for each run with something left
//! to do, under a key of its own, so that a run is in the queue once. [`work`] takes jobs and lets
//! the ordinary runner make what is left of a run, into the same store. Which run a job stands for
//! is decided when a worker first takes it, so that each host has each level of the factors about
//! equally often ([`Store::take_turn`](crate::store::Store::take_turn)). A run that cannot be made
//! on a host, because the subject is not installed there, is tried elsewhere, five times in all.
//! Executions that fail are tried again on the same host, as often.
//!
//! Three things keep an execution from being made or counted twice, each for another failure:
//! - *The queue* gives a job to one worker, for [`SILENT`] of its heartbeats; with each heartbeat
//!   it keeps the job for as long again. So a dead worker's run is executed by a worker that is
//!   free.
//! - *Locks* ([`store`](crate::store)): a worker holds its host and its run by locks of the
//!   connection that it writes with. A second worker of the same host is refused. A worker that was
//!   silent and comes back finds that its connection was ended by whoever took over the run. A
//!   laboratory without workers that is at a run of the queue keeps it: the job fails, and is tried
//!   again.
//! - *Keys*: the store takes one measurement of an execution from a host. What was cut off stays an
//!   attempt without one, and the next is a new attempt.
//!
//! All of a batchset is measured by one host. Who goes on with a run that another host left in the
//! middle of a batchset measures that batchset anew, and what the other measured of it no longer
//! counts (`series` in the store).
//!
//! When the store is lost, also by a restart, a worker stops what it is at, which is then an
//! attempt without a measurement, and tries to connect again until it is told to stop.
//!
//! # Example
//! Four runs and two hosts: each takes one, and the next when it is done. One is killed in its
//! second run. A minute later the other, done with its own, takes that run, too, and begins with
//! the batchset that was cut off, from its first execution.
//!
//! # Limits
//! The connection to the store is not encrypted: use a network that may be trusted, or a tunnel. A
//! run is not split: more hosts than runs do not help. Which host made a measurement is in the
//! store (`start.machine`) and in every export (`host`), and the analysis protocol says where a
//! factor cannot be told from the hosts.

mod executing;
mod queue;
mod worker;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;
use tidegate_workload::Failure;

use super::{LabError, Laboratory};
use crate::store::{StoreError, is_postgres};
pub use executing::Observer;
use executing::RunJob;
pub use worker::{WorkerOptions, work};

/// Heartbeats that may be missing before a worker is taken for dead.
pub const SILENT: u32 = 6;

/// How often a worker shows that it lives, when nothing else is said.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// How often a worker that waits looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Error)]
pub enum MachinesError {
    #[error(
        "many machines need a result store that all of them reach: --lab \
         postgres://user:password@host:port/database, not a file"
    )]
    NotShared,
    #[error("the job queue in the result store failed: {0}")]
    Queue(Failure),
    #[error(transparent)]
    Lab(#[from] LabError),
}

/// What was put into the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enqueued {
    /// The numbers of the runs that wait for a worker now.
    pub runs: Vec<u32>,
    /// Runs that are being executed, and by whom.
    pub under_way: Vec<String>,
}

impl Laboratory {
    /// Puts the runs of an experiment that have something left to do into the queue of the store at
    /// `place`, which is the laboratory's. One that is being executed is left alone.
    pub fn enqueue(&mut self, place: &str, id: i64) -> Result<Enqueued, MachinesError> {
        shared(place)?;
        let to_do = self.store.to_do(id)?;
        let mut enqueued = Enqueued::default();
        let runs = self.store.runs(id)?;
        for run in &runs {
            if !to_do.keys().any(|one| one.run == run.number) {
                continue;
            }
            if let Some(holder) = self.store.hold_run(run.id)? {
                enqueued.under_way.push(format!("run {}, by {holder}", run.number));
            } else {
                self.store.release_run(run.id)?;
                enqueued.runs.push(run.number);
            }
        }
        let turns = self.store.turns(id)?;
        let places = places(&enqueued.runs, &turns, runs.len());
        let jobs = places.into_iter().map(|place| RunJob { experiment: id, place });
        queue::add(place, &jobs.collect::<Vec<_>>())?;
        Ok(enqueued)
    }
}

/// Returns the places of runs: those they have, and for runs that have none the first that are
/// free.
fn places(wanted: &[u32], turns: &BTreeMap<u32, u32>, runs: usize) -> Vec<u32> {
    let mut free = (1..).take(runs).filter(|place| !turns.values().any(|taken| taken == place));
    let place = |run| turns.get(run).copied().or_else(|| free.next());
    wanted.iter().filter_map(place).collect()
}

impl From<StoreError> for MachinesError {
    fn from(error: StoreError) -> Self {
        MachinesError::Lab(error.into())
    }
}

/// Checks that workers on other hosts can reach the store at a place.
///
/// # Errors
/// [`MachinesError::NotShared`] where it is a file.
pub fn shared(place: &str) -> Result<(), MachinesError> {
    if is_postgres(place) { Ok(()) } else { Err(MachinesError::NotShared) }
}

/// Waits for so long. Returns false as soon as `cancel` is raised.
fn wait(pause: Duration, cancel: &AtomicBool) -> bool {
    let until = Instant::now() + pause;
    while Instant::now() < until {
        if cancel.load(Ordering::Relaxed) {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}
