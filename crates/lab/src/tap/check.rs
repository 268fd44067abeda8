//! The checks by name, and what a violation says.

use std::fmt;

use serde::Serialize;

use super::curve::Rule;
use super::data::{BatchExecution, BatchKey, BatchsetKey, ExecutionKey, RunDesign};
use super::index::RowIndex;
use super::{atpt, batchset, execution, experiment, host, steady};

/// A sanity check of Step 1. Tables 5 to 7 of the study number the first nine so; its text
/// announces eight, because it leaves out the fourth. The tenth and the eleventh are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Check {
    /// 1: a planned batch has no execution.
    MissingBatches = 1,
    /// 2: the subject did not have the processors that the run's plan gives it.
    ProcessorConfiguration,
    /// 3: a batch has executions, but not as many as planned.
    MissedExecutions,
    /// 4: another executor ran on the machine.
    OtherExecutors,
    /// 5: processes of another DBMS ran on the machine.
    OtherDbmsProcesses,
    /// 6: nothing completed at the lowest MPL.
    ZeroTps,
    /// 7: an execution was longer or shorter than the connection time limit, connected too long, or
    /// ended before its begin.
    ConnectionTimeLimit,
    /// 8: the mean time of an execution's transactions is out of line with its batch.
    AbnormalAtpt,
    /// 9: throughput fell sharply and recovered at a higher MPL.
    TransientThrashing,
    /// 10: an execution was too short, or was warmed up too shortly, for the time that its
    /// transactions took.
    NotSteady,
    /// 11: more than one host measured a batchset instance. Not of the study.
    SeveralHosts = 11,
}

/// What a check is about, and so what its violations lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Not one violation may be in a sound experiment (Table 5).
    Experiment,
    /// A few are expected; Step 2 drops the executions (Table 6, and check 10).
    Execution,
    /// Step 3 drops the batchset instances (Table 7).
    Batchset,
}

impl Check {
    pub const ALL: [Check; 11] = [
        Check::MissingBatches,
        Check::ProcessorConfiguration,
        Check::MissedExecutions,
        Check::OtherExecutors,
        Check::OtherDbmsProcesses,
        Check::ZeroTps,
        Check::ConnectionTimeLimit,
        Check::AbnormalAtpt,
        Check::TransientThrashing,
        Check::NotSteady,
        Check::SeveralHosts,
    ];

    /// Its number: the study's, or 10.
    pub const fn number(self) -> u8 {
        self as u8
    }

    pub const fn title(self) -> &'static str {
        match self {
            Check::MissingBatches => "missing batches",
            Check::ProcessorConfiguration => "inconsistent processor configuration",
            Check::MissedExecutions => "missed batch executions",
            Check::OtherExecutors => "other executors",
            Check::OtherDbmsProcesses => "other DBMS processes",
            Check::ZeroTps => "zero TPS at the starting MPL",
            Check::ConnectionTimeLimit => "connection time limit violations",
            Check::AbnormalAtpt => "abnormal ATPT",
            Check::TransientThrashing => "transient thrashing",
            Check::NotSteady => "no steady state",
            Check::SeveralHosts => "batchsets of several hosts",
        }
    }

    /// The same as a word that programs look for, which never changes.
    pub const fn name(self) -> &'static str {
        match self {
            Check::MissingBatches => "missing_batches",
            Check::ProcessorConfiguration => "processor_configuration",
            Check::MissedExecutions => "missed_executions",
            Check::OtherExecutors => "other_executors",
            Check::OtherDbmsProcesses => "other_dbms_processes",
            Check::ZeroTps => "zero_tps",
            Check::ConnectionTimeLimit => "connection_time_limit",
            Check::AbnormalAtpt => "abnormal_atpt",
            Check::TransientThrashing => "transient_thrashing",
            Check::NotSteady => "not_steady",
            Check::SeveralHosts => "several_hosts",
        }
    }

    /// What it is about: the study's table that it is in.
    pub const fn class(self) -> Class {
        match self {
            Check::MissingBatches
            | Check::ProcessorConfiguration
            | Check::MissedExecutions
            | Check::OtherExecutors
            | Check::OtherDbmsProcesses
            | Check::SeveralHosts => Class::Experiment,
            Check::ZeroTps
            | Check::ConnectionTimeLimit
            | Check::AbnormalAtpt
            | Check::NotSteady => Class::Execution,
            Check::TransientThrashing => Class::Batchset,
        }
    }

    /// The violations among all rows, by place.
    pub(super) fn violations(self, index: &RowIndex<'_>, rule: Rule) -> Vec<Violation> {
        match self {
            Check::MissingBatches => experiment::missing_batches(index),
            Check::ProcessorConfiguration => experiment::processor_configuration(index),
            Check::MissedExecutions => experiment::missed_executions(index),
            Check::OtherExecutors => experiment::other_executors(index),
            Check::OtherDbmsProcesses => experiment::other_dbms_processes(index),
            Check::ZeroTps => execution::zero_tps(index),
            Check::ConnectionTimeLimit => execution::connection_time_limit(index),
            Check::AbnormalAtpt => atpt::abnormal_atpt(index),
            Check::TransientThrashing => batchset::transient_thrashing(index, rule),
            Check::NotSteady => steady::not_steady(index),
            Check::SeveralHosts => host::several_hosts(index),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum CheckPlace {
    Batchset(BatchsetKey),
    Batch(BatchKey),
    Execution(ExecutionKey),
}

impl CheckPlace {
    /// The batchset instance it is in.
    pub fn in_batchset(self) -> BatchsetKey {
        match self {
            CheckPlace::Batchset(key) => key,
            CheckPlace::Batch(key) => key.in_batchset(),
            CheckPlace::Execution(key) => key.in_batchset(),
        }
    }
}

impl fmt::Display for CheckPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CheckPlace::Batchset(key) => key.fmt(formatter),
            CheckPlace::Batch(key) => key.fmt(formatter),
            CheckPlace::Execution(key) => key.fmt(formatter),
        }
    }
}

/// One violation of a check. Displayed, it is a sentence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Violation {
    pub check: Check,
    /// The batchset, batch or execution in which it was found.
    pub place: CheckPlace,
    /// What was found, with its unit.
    pub observed: String,
    /// What a sound experiment has there.
    pub expected: String,
}

impl Violation {
    pub fn reason(&self) -> String {
        format!("{}, but should be {}", self.observed, self.expected)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.place, self.reason())
    }
}

/// The violations of a check that looks at each execution by itself: `judge` says what it observed
/// and what it expected.
pub(super) fn of_executions(
    check: Check,
    index: &RowIndex<'_>,
    judge: impl Fn(&RunDesign, &BatchExecution) -> Option<(String, String)>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    for batchset in index.batchsets.values() {
        for execution in batchset.executions() {
            if let Some((observed, expected)) = judge(&batchset.run.plan, execution) {
                let place = CheckPlace::Execution(execution.key);
                found.push(Violation { check, place, observed, expected });
            }
        }
    }
    found
}
