//! What the protocol is given: rows, as a result store keeps them.
//!
//! Rows name each other by natural keys: a run's number, the number of a batchset in it, an MPL, an
//! iteration. Their order means nothing. A batch instance has a key and no row, because all that is
//! known of it is which executions it has.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_control::Mpl;

/// All rows of the runs to analyse together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DataSet {
    pub runs: Vec<TapRun>,
    /// The batchset instances that were begun. One that is planned and has no row is missing.
    pub batchsets: Vec<BatchsetInstance>,
    /// The batch executions that ended. Of several attempts at one only that which
    /// succeeded is given.
    pub executions: Vec<BatchExecution>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub i64);

/// A run: one subject in one configuration through all batchsets, on one machine unless it was
/// resumed on another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TapRun {
    pub id: RunId,
    /// The subject's name, as experiment files write it.
    pub subject: String,
    pub dbms: String,
    pub plan: RunDesign,
}

/// What a run is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunDesign {
    /// How many batchsets; they are numbered from 1.
    pub batchsets: u32,
    /// The sizes of each batchset's batches.
    pub mpls: BTreeSet<Mpl>,
    /// Executions of each batch; they are numbered from 1.
    pub executions: u32,
    /// Logical processors that the subject may use, `numProcs`.
    pub num_procs: u32,
    /// The connection time limit, CTL: how long clients submit transactions, in seconds.
    pub ctl_s: f64,
    /// How long clients submit transactions before that which do not count, in seconds.
    pub warmup_s: f64,
    /// The longest time in which all clients of a batch may connect before that, in seconds.
    pub connect_limit_s: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchsetKey {
    pub run: RunId,
    /// The batchset's number in the run's plan.
    pub batchset: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BatchKey {
    pub run: RunId,
    /// The batchset's number in the run's plan.
    pub batchset: u32,
    pub mpl: Mpl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExecutionKey {
    pub run: RunId,
    /// The batchset's number in the run's plan.
    pub batchset: u32,
    pub mpl: Mpl,
    /// Which of the batch's executions, from 1.
    pub iteration: u32,
}

/// A batchset as one run executed it, a "trial".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchsetInstance {
    pub key: BatchsetKey,
    pub factors: Factors,
    /// The mean time that a client thinks between two transactions, in seconds. `None` where
    /// transactions come by a rate, so that clients say nothing of how many are inside.
    pub think_s: Option<f64>,
    /// Whether a level is a limit that a gate holds before more clients, and not their number.
    pub is_limit: bool,
}

/// The independent variables of a batchset, but `numProcs`, which belongs to the run. The protocol
/// hands them on; it decides nothing by them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// The group that it is evaluated in: `read` and `update` in the study.
    pub group: String,
    /// Selectivity factor, SF: the share of a table's rows that a transaction touches, up to 1.
    pub selectivity: f64,
    /// Referenced row subset region, ROSE: the share of the rows that may be touched, up to 1.
    pub rose: f64,
    /// Whether the tables have primary keys, PK.
    pub primary_key: bool,
}

/// One execution of a batch: that many clients for the length of the connection time limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchExecution {
    pub key: ExecutionKey,
    /// The host that measured it, by name.
    pub host: String,
    /// The machine that it ran on, one name for each: the host, or its virtual time.
    pub machine: String,
    /// When it began: before tables are put in order, clients connect and warm up. Seconds since a
    /// moment common to all rows of the machine.
    pub began_s: f64,
    /// When all of it was over, on the same clock.
    pub ended_s: f64,
    /// How long it took to connect all clients; seconds.
    pub connect_s: f64,
    /// From when the clients were let go, all connected and warmed up, to when the last had
    /// stopped: the time in which transactions count; seconds.
    pub seconds: f64,
    /// Clients that submitted transactions, each one at a time.
    pub clients: u32,
    pub transactions: u64,
    /// Transactions that failed: each lets its client begin the next, as a completed one does.
    pub errors: u64,
    /// Mean time of these transactions, ATPT, in seconds; `None` when there were none.
    pub atpt_s: Option<f64>,
    /// The variance of its mean throughput over the square of the mean, from its intervals
    /// ([`super::posterior::variance_of_mean`]); `None` where they do not tell. The protocol
    /// decides nothing by it.
    #[serde(default)]
    pub variance_of_mean: Option<f64>,
    /// Logical processors that the subject was seen to have.
    pub num_procs: u32,
    /// Other executors, programs that run experiments, seen on the machine.
    pub other_executors: u32,
    /// Processes of other DBMSes seen on the machine, by name.
    pub other_dbms: Vec<String>,
}

impl BatchExecution {
    /// Whether it ends after its begin. Both are moments of the machine's clock, which somebody may
    /// have set in between.
    pub fn ends_after_its_begin(&self) -> bool {
        self.began_s.is_finite() && self.ended_s.is_finite() && self.began_s < self.ended_s
    }

    /// Completed transactions per second, over the time that was really taken.
    pub fn tps(&self) -> f64 {
        self.transactions as f64 / self.seconds
    }

    /// Transactions that ended per second, completed or failed.
    pub fn ended_per_s(&self) -> f64 {
        (self.transactions + self.errors) as f64 / self.seconds
    }

    /// The mean time of all transactions in the system by Little's law, also of those that had not
    /// ended, where a client thinks so long between two; in seconds. `None` when none ended.
    ///
    /// Where the level is a limit, the system is what is behind it: at most so many are inside.
    pub fn in_system_s(&self, think_s: f64, is_limit: bool) -> Option<f64> {
        let ended_per_s = self.ended_per_s();
        let cycle_s = |inside: u32| f64::from(inside) / ended_per_s;
        let of_clients_s = (cycle_s(self.clients) - think_s).max(0.0);
        let of_limit_s = if is_limit { cycle_s(self.key.mpl.get()) } else { f64::INFINITY };
        (ended_per_s > 0.0).then_some(of_clients_s.min(of_limit_s))
    }
}

impl BatchsetKey {
    pub fn batch(self, mpl: Mpl) -> BatchKey {
        BatchKey { run: self.run, batchset: self.batchset, mpl }
    }
}

impl BatchKey {
    /// The batchset instance it belongs to.
    pub fn in_batchset(self) -> BatchsetKey {
        BatchsetKey { run: self.run, batchset: self.batchset }
    }

    pub fn execution(self, iteration: u32) -> ExecutionKey {
        let BatchKey { run, batchset, mpl } = self;
        ExecutionKey { run, batchset, mpl, iteration }
    }
}

impl ExecutionKey {
    /// The batch instance it belongs to.
    pub fn in_batch(self) -> BatchKey {
        self.in_batchset().batch(self.mpl)
    }

    /// The batchset instance it belongs to.
    pub fn in_batchset(self) -> BatchsetKey {
        BatchsetKey { run: self.run, batchset: self.batchset }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for BatchsetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "run {}, batchset {}", self.run, self.batchset)
    }
}

impl fmt::Display for BatchKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, MPL {}", self.in_batchset(), self.mpl)
    }
}

impl fmt::Display for ExecutionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, execution {}", self.in_batch(), self.iteration)
    }
}

/// Why rows cannot be analysed: they contradict each other, so that any count would be a guess.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DataError {
    #[error("run {0} is there twice")]
    SameRun(RunId),
    #[error("{0} is there twice")]
    SameBatchset(BatchsetKey),
    #[error("{0} is there twice: give the attempt that counts")]
    SameExecution(ExecutionKey),
    #[error("run {run}: {what}")]
    Plan {
        run: RunId,
        /// What is wrong with its plan.
        what: &'static str,
    },
    #[error("{0}: there is no such run")]
    NoRun(BatchsetKey),
    #[error("{0}: there is no such batchset instance")]
    NoBatchset(ExecutionKey),
    #[error("{0} is not in the run's plan")]
    UnplannedBatchset(BatchsetKey),
    #[error("{0} is not in the run's plan")]
    UnplannedExecution(ExecutionKey),
    #[error("{key}: {what}")]
    Execution { key: ExecutionKey, what: &'static str },
}
