//! What came of starting a subject and of an execution: what executors give and the store takes.

use tidegate_subject::embedded::TreeState;

use crate::load::LoadReport;
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

#[derive(Clone, Debug)]
pub struct Measured {
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
    pub looks: Vec<TreeSnapshot>,
}

/// The trees of a database at a moment.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeSnapshot {
    /// When, in seconds of the measured time; 0 is before the first transaction, warm-up included.
    pub at_s: f64,
    pub trees: Vec<TreeState>,
}
