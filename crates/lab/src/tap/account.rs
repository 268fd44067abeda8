//! The report as rows: what each step counted, and what it dropped and why, in words that never
//! change, so that a result store can keep them and programs can look them up.
//!
//! # Mechanism
//! Every count has the same shape: of so many there were, so many were found. What *found* means
//! is the step's business:
//!
//! | step | of how many | found |
//! | --- | --- | --- |
//! | 0 | planned | executed |
//! | 1 | looked at | violations of a check (Tables 5 to 7) |
//! | 2, 3 | there before the step | dropped in it (Table 8) |
//! | 4 | retained, in a group | with a thrashing point below ∞ |
//!
//! # Example
//! The study's Table 8 says 70,000 executions at the start of Step 2 and 66,927 after it. That is
//! the count `faulty_executions` of Step 2 at the level `execution`: found 3,073 of 70,000.

use super::PROTOCOL;
use super::check::{Check, CheckPlace, Class};
use super::host;
use super::index::Counts;
use super::steps::{CheckCount, Step, TapReport};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Count {
    pub step: Step,
    /// What was counted: a check's name, or what a step drops for.
    pub name: &'static str,
    /// In Step 4 the group, and of a factor its name; nothing otherwise.
    pub part: String,
    /// What one is: a `batchset`, a `batch`, an `execution` or a `factor`.
    pub level: &'static str,
    /// The study's number of the check, where it is one.
    pub number: Option<u8>,
    /// Of how many.
    pub checked: usize,
    /// How many.
    pub found: usize,
    /// In how many batchset instances violations are, where a check found them.
    pub batchsets: Option<usize>,
}

/// What was dropped for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dropped {
    pub step: Step,
    /// For what: the name of the check that an execution violates, or of the step's count.
    pub name: &'static str,
    /// An execution, or a batchset instance with all that was left of it.
    pub place: CheckPlace,
    pub why: String,
}

impl Step {
    /// What it drops for, or counts.
    pub const fn name(self) -> &'static str {
        match self {
            Step::Execution => "executed",
            Step::Checks => "checked",
            Step::Executions => "faulty_executions",
            Step::Incomplete => "incomplete",
            Step::RawTransient => "transient_thrashing",
            Step::RetainedTransient => "transient_thrashing_retained",
            Step::ThrashingPoints => "thrashing",
        }
    }

    const fn drops(self) -> bool {
        matches!(
            self,
            Step::Executions | Step::Incomplete | Step::RawTransient | Step::RetainedTransient
        )
    }
}

impl TapReport {
    /// All numbers of the report, in the order of the steps.
    pub fn counts(&self) -> Vec<Count> {
        let executed = self.steps[0].before;
        let mut counts = Vec::from(by_level(Step::Execution, self.planned, executed));
        counts.extend(self.check_counts());
        let dropping = self.steps.iter().filter(|counts| counts.step.drops());
        counts.extend(dropping.flat_map(|counts| {
            by_level(counts.step, counts.before, less(counts.before, counts.after))
        }));
        counts.extend(self.groups.iter().map(|group| Count {
            part: group.group.clone(),
            ..plain(Step::ThrashingPoints, "batchset", group.retained, group.thrashing)
        }));
        counts
    }

    /// Step 1: the checks, how many executions check 8 could not judge, and of more than one host
    /// whether each factor is confounded with them.
    fn check_counts(&self) -> Vec<Count> {
        let count = |count: &CheckCount| Count {
            name: count.check.name(),
            number: Some(count.check.number()),
            batchsets: Some(count.batchsets),
            ..plain(
                Step::Checks,
                match count.check {
                    Check::MissingBatches => "batch",
                    Check::TransientThrashing | Check::SeveralHosts => "batchset",
                    _ => "execution",
                },
                count.checked,
                count.violations,
            )
        };
        let mut counts: Vec<Count> = self.checks.iter().map(count).collect();
        let executed = self.steps[0].before.executions;
        counts.push(Count {
            name: "unjudged_atpt",
            ..plain(Step::Checks, "execution", executed, self.unjudged_atpt)
        });
        if self.hosts.len() > 1 {
            counts.extend(host::FACTORS.iter().map(|&factor| {
                let is_confounded = self.confounded.iter().any(|one| one.factor == factor);
                Count {
                    name: "confounded_with_host",
                    part: factor.to_owned(),
                    ..plain(Step::Checks, "factor", 1, usize::from(is_confounded))
                }
            }));
        }
        counts
    }

    /// All that was dropped, in the order of the steps. An execution that violates several checks
    /// is there once for each.
    pub fn dropped(&self) -> Vec<Dropped> {
        let is_faulty = |place: CheckPlace| match place {
            CheckPlace::Execution(key) => self.dropped_executions.binary_search(&key).is_ok(),
            CheckPlace::Batch(_) | CheckPlace::Batchset(_) => false,
        };
        let of_execution = self.violations.iter().filter(|violation| {
            let is_kept = violation.check == Check::NotSteady && self.protocol != PROTOCOL;
            violation.check.class() == Class::Execution && !is_kept && is_faulty(violation.place)
        });
        let executions = of_execution.map(|violation| Dropped {
            step: Step::Executions,
            name: violation.check.name(),
            place: violation.place,
            why: violation.reason(),
        });
        let batchsets = self.dropped_batchsets.iter().map(|dropped| Dropped {
            step: dropped.step,
            name: dropped.step.name(),
            place: CheckPlace::Batchset(dropped.key),
            why: dropped.why.clone(),
        });
        executions.chain(batchsets).collect()
    }
}

fn plain(step: Step, level: &'static str, checked: usize, found: usize) -> Count {
    Count {
        step,
        name: step.name(),
        part: String::new(),
        level,
        number: None,
        checked,
        found,
        batchsets: None,
    }
}

fn by_level(step: Step, checked: Counts, found: Counts) -> [Count; 3] {
    [
        plain(step, "batchset", checked.batchsets, found.batchsets),
        plain(step, "batch", checked.batches, found.batches),
        plain(step, "execution", checked.executions, found.executions),
    ]
}

fn less(before: Counts, after: Counts) -> Counts {
    Counts {
        executions: before.executions - after.executions,
        batches: before.batches - after.batches,
        batchsets: before.batchsets - after.batchsets,
    }
}
