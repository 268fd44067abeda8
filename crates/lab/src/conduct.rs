//! Executions: a subject started, loaded, measured, checked and stopped.
//!
//! An [`Executor`] does that for the runs of one subject: [`RealSubject`] on a database,
//! [`VirtualMachine`] on the embedded engine in virtual time, [`Simulated`] without one.

mod environment;
mod machine;
mod measure;
mod real;
pub(crate) mod simulated;
mod watch;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thiserror::Error;
use tidegate_subject::database::DatabaseError;
use tidegate_workload::workload::{Condition, Depth};

use crate::Cause;
use crate::experiment::RunPlan;
use crate::experiment::treatment::Treatment;
use crate::experiment::workload::{WorkloadError, WorkloadSpec};
use crate::load::{LoadError, Progress};
use crate::measured::{Measured, Started};
use crate::rig::RigError;
pub use machine::VirtualMachine;
pub use real::RealSubject;
pub use simulated::Simulated;

/// What one execution is to be.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// The workload, whose tables are there.
    pub workload: WorkloadSpec,
    pub mpl: u32,
    /// What the level is, and what else is done.
    pub treatment: Treatment,
    /// Time before transactions count.
    pub warmup: Duration,
    /// Time that they count.
    pub ctl: Duration,
    pub interval: Duration,
    /// How long all clients may take to connect.
    pub connect: Duration,
    /// How many of them may be connecting at a time; as usual when nothing is said.
    pub connect_at_once: Option<NonZeroUsize>,
    pub seed: u64,
    /// The file for a record of each transaction, where one is wanted.
    pub transactions: Option<PathBuf>,
}

/// Why an execution has no result.
#[derive(Debug, Error)]
pub enum ExecutionError {
    #[error("cancelled")]
    Cancelled,
    #[error("{0}")]
    Unavailable(Cause),
    #[error("{0}")]
    Failed(Cause),
}

impl From<DatabaseError> for ExecutionError {
    fn from(error: DatabaseError) -> Self {
        ExecutionError::Failed(error.into())
    }
}

impl From<WorkloadError> for ExecutionError {
    fn from(error: WorkloadError) -> Self {
        ExecutionError::Failed(error.into())
    }
}

impl From<LoadError> for ExecutionError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Cancelled => ExecutionError::Cancelled,
            other => ExecutionError::Failed(other.into()),
        }
    }
}

impl From<RigError> for ExecutionError {
    fn from(error: RigError) -> Self {
        match error {
            RigError::Cancelled => ExecutionError::Cancelled,
            other => ExecutionError::Failed(other.into()),
        }
    }
}

/// Starts a subject and makes executions on it, one after the other.
pub trait Executor {
    /// Starts the subject of a run, with nothing in it.
    fn start(&mut self, run: &RunPlan, cancel: &AtomicBool) -> Result<Started, ExecutionError>;

    /// Makes the tables of workloads, as at the start; those that several have in common once.
    fn prepare(
        &mut self,
        workloads: &[WorkloadSpec],
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError>;

    /// Makes one execution.
    fn execute(
        &mut self,
        assignment: &Assignment,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError>;

    /// Looks whether the tables of a workload are consistent, after its executions.
    fn check(
        &mut self,
        workload: &WorkloadSpec,
        depth: Depth,
    ) -> Result<Vec<Condition>, ExecutionError>;

    /// Stops the subject.
    fn stop(&mut self) -> Result<(), ExecutionError>;
}
