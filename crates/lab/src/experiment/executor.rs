//! Who makes executions.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use thiserror::Error;
use tidegate_workload::workload::{Condition, Depth};

use super::RunPlan;
use super::treatment::Treatment;
use super::watch::Look;
use super::workload::WorkloadSpec;
use crate::load::{LoadReport, Progress};
use crate::rig::Interval;

/// A subject as it was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// The DBMS and its version.
    pub version: String,
    /// Its settings that are not its defaults, as in force.
    pub settings: Vec<(String, String)>,
    /// Processors that its processes were seen to have; 0 where they cannot be seen.
    pub processors: u32,
}

/// What one execution is to be.
#[derive(Clone, Debug)]
pub struct Assignment<'a> {
    /// The workload, whose tables are there.
    pub workload: &'a WorkloadSpec,
    /// The level.
    pub mpl: u32,
    /// What the level is, and what else is done.
    pub treatment: &'a Treatment,
    /// Time before transactions count.
    pub warmup: Duration,
    /// Time that they count.
    pub ctl: Duration,
    /// How long an interval is.
    pub interval: Duration,
    /// How long all clients may take to connect.
    pub connect: Duration,
    /// How many of them may be connecting at a time; as usual when nothing is said.
    pub connect_at_once: Option<NonZeroUsize>,
    /// Where the draws begin.
    pub seed: u64,
    /// The file for a record of each transaction, where one is wanted.
    pub transactions: Option<PathBuf>,
}

/// What one execution saw.
#[derive(Clone, Debug)]
pub struct Measured {
    /// What the clients saw.
    pub load: LoadReport,
    /// Seconds from the first connection's begin to the last's login.
    pub connect_s: f64,
    /// Processors that the subject's processes were seen to have; 0 where they cannot be seen.
    pub processors: u32,
    /// Other programs that run experiments on the machine.
    pub other_executors: u32,
    /// Processes of other DBMSs on the machine, by name.
    pub other_dbms: Vec<String>,
    /// The control intervals, where a controller chose the limit; counted from the beginning of
    /// the measured time, those before it with negative times.
    pub limits: Vec<Interval>,
    /// The looks at the trees of a database that was watched.
    pub looks: Vec<Look>,
}

/// Why an execution has no result.
#[derive(Debug, Error)]
pub enum ExecutionError {
    /// The caller raised the cancellation flag.
    #[error("cancelled")]
    Cancelled,
    /// The subject cannot be started here; its runs are left out.
    #[error("{0}")]
    Unavailable(String),
    /// This execution failed; others may do.
    #[error("{0}")]
    Failed(String),
}

/// Starts a subject and makes executions on it, one after the other.
pub trait Executor {
    /// Starts the subject of a run, with nothing in it.
    ///
    /// # Errors
    /// See [`ExecutionError`].
    fn start(&mut self, run: &RunPlan, cancel: &AtomicBool) -> Result<Started, ExecutionError>;

    /// Makes the tables of workloads, as at the start; those that several have in common once.
    ///
    /// # Errors
    /// See [`ExecutionError`].
    fn prepare(
        &mut self,
        workloads: &[WorkloadSpec],
        cancel: &AtomicBool,
    ) -> Result<(), ExecutionError>;

    /// Makes one execution.
    ///
    /// # Errors
    /// See [`ExecutionError`].
    fn execute(
        &mut self,
        assignment: &Assignment<'_>,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Measured, ExecutionError>;

    /// Looks whether the tables of a workload are consistent, after its executions.
    ///
    /// # Errors
    /// See [`ExecutionError`].
    fn check(
        &mut self,
        workload: &WorkloadSpec,
        depth: Depth,
    ) -> Result<Vec<Condition>, ExecutionError>;

    /// Stops the subject.
    ///
    /// # Errors
    /// See [`ExecutionError`].
    fn stop(&mut self) -> Result<(), ExecutionError>;
}
