//! The four steps, and what they leave.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use tidegate_control::Mpl;

use super::atpt::unjudged;
use super::batchset;
use super::check::{Check, CheckPlace, Class, Violation};
use super::curve::{Rule, ThrashingPoint};
use super::data::{BatchsetKey, DataError, DataSet, ExecutionKey, Factors};
use super::host::{self, Confounded};
use super::index::{BatchsetRows, Counts, RowIndex, mean_tps};
use super::posterior::{LevelSample, Posterior};
use super::{PROTOCOL, PROTOCOL_UNSTEADY};

/// What the protocol found, dropped and kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TapReport {
    /// The protocol's version, [`PROTOCOL`] or [`PROTOCOL_UNSTEADY`].
    pub protocol: &'static str,
    /// The rule of the thrashing point, whose serialized form is its version.
    pub rule: Rule,
    /// What the runs were to do.
    pub planned: Counts,
    /// Step 1 in numbers, by check.
    pub checks: Vec<CheckCount>,
    /// Executions that check 8 could not judge, for their batches have too few.
    pub unjudged_atpt: usize,
    /// Step 1: every violation, by check and place.
    pub violations: Vec<Violation>,
    /// How much there was before and after each step, in order.
    pub steps: Vec<StepCounts>,
    /// The executions dropped in Step 2, by key.
    pub dropped_executions: Vec<ExecutionKey>,
    /// The batchset instances dropped, by step and key.
    pub dropped_batchsets: Vec<DroppedBatchset>,
    /// The batchset instances retained, by key, each with its thrashing point.
    pub retained: Vec<RetainedBatchset>,
    /// Step 4 in numbers, by group.
    pub groups: Vec<GroupCount>,
    pub hosts: BTreeSet<String>,
    /// The factors that cannot be told from the hosts.
    pub confounded: Vec<Confounded>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CheckCount {
    pub check: Check,
    pub violations: usize,
    /// Of how many that were looked at: planned batches for check 1, batch executions for 2, 4
    /// to 8 and 10, executions planned in the batches that there are for 3, batchset instances for
    /// 9 and 11.
    pub checked: usize,
    /// In how many batchset instances the violations are.
    pub batchsets: usize,
}

/// A step of the protocol, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Step {
    /// Before all others: what was planned is executed.
    #[serde(rename = "0")]
    Execution,
    /// Step 1: the checks. Drops nothing.
    #[serde(rename = "1")]
    Checks,
    /// Step 2: drops the executions that violate check 6, 7, 8 or 10.
    #[serde(rename = "2")]
    Executions,
    /// Step 3-(i): drops the batchset instances that no longer have all their batches.
    #[serde(rename = "3-(i)")]
    Incomplete,
    /// Step 3-(ii): drops those that violate check 9, with all their executions.
    #[serde(rename = "3-(ii)")]
    RawTransient,
    /// Step 3-(iii): drops those whose thrashing is transient in the executions retained.
    #[serde(rename = "3-(iii)")]
    RetainedTransient,
    /// Step 4: the thrashing points. Drops nothing.
    #[serde(rename = "4")]
    ThrashingPoints,
}

/// How much there was before and after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StepCounts {
    pub step: Step,
    pub before: Counts,
    pub after: Counts,
}

/// A batchset instance that was dropped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DroppedBatchset {
    /// In which step; in Step 2 when all its executions were.
    pub step: Step,
    pub key: BatchsetKey,
    pub why: String,
}

/// A batchset instance that was retained: one sample of the statistical analysis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RetainedBatchset {
    pub key: BatchsetKey,
    pub subject: String,
    pub dbms: String,
    /// Logical processors, `numProcs`.
    pub num_procs: u32,
    pub factors: Factors,
    pub curve: Vec<CurvePoint>,
    /// What the executions retained say of each level: what the posterior of the point is made of.
    pub levels: Vec<LevelSample>,
    /// Mean time of all transactions of the executions retained, in seconds.
    pub atpt_s: Option<f64>,
    pub thrashing_point: ThrashingPoint,
    /// The rule that it was found by.
    pub rule: Rule,
    /// The checks violated in this batchset instance that drop nothing: the experiment's (1 to 5
    /// and 11), and check 10 where what is not steady is kept.
    pub caveats: BTreeSet<Check>,
}

/// A point of a retained curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    pub mpl: Mpl,
    /// Completed transactions per second, the mean of the executions retained.
    pub tps: f64,
    pub executions: usize,
}

/// The retained batchset instances of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupCount {
    pub group: String,
    pub retained: usize,
    /// How many of these have a thrashing point below ∞.
    pub thrashing: usize,
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Step::Execution => "0",
            Step::Checks => "1",
            Step::Executions => "2",
            Step::Incomplete => "3-(i)",
            Step::RawTransient => "3-(ii)",
            Step::RetainedTransient => "3-(iii)",
            Step::ThrashingPoints => "4",
        })
    }
}

impl TapReport {
    /// Whether the experiment was carried out as planned: no violation of checks 1 to 5 and 11.
    pub fn is_sound(&self) -> bool {
        !self.violations.iter().any(|violation| violation.check.class() == Class::Experiment)
    }
}

impl RetainedBatchset {
    /// Returns how probable each thrashing point is by the same rule, and none.
    pub fn posterior(&self) -> Posterior {
        let posterior = Posterior::new(self.rule, &self.levels);
        posterior.expect("a batchset that was retained has levels")
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choices {
    /// The rule of the thrashing point.
    pub rule: Rule,
    /// Whether executions that are no steady state (check 10) are kept. Their batchset instances
    /// have it as a caveat.
    pub keeps_unsteady: bool,
}

impl From<Rule> for Choices {
    fn from(rule: Rule) -> Choices {
        Choices { rule, ..Choices::default() }
    }
}

impl Choices {
    fn protocol(self) -> &'static str {
        if self.keeps_unsteady { PROTOCOL_UNSTEADY } else { PROTOCOL }
    }

    /// Whether violations of a check drop executions in Step 2.
    fn drops(self, check: Check) -> bool {
        check.class() == Class::Execution && !(self.keeps_unsteady && check == Check::NotSteady)
    }

    /// Whether violations of a check drop nothing, so that they are a caveat.
    fn only_warns(self, check: Check) -> bool {
        match check.class() {
            Class::Experiment => true,
            Class::Execution => !self.drops(check),
            Class::Batchset => false,
        }
    }
}

/// Carries out the protocol on all rows of `data`, with thrashing points by a rule. The order of
/// the rows changes nothing in the report.
///
/// # Errors
/// See [`DataError`]; rows are analysed all or not at all.
pub fn analyse(data: &DataSet, choices: impl Into<Choices>) -> Result<TapReport, DataError> {
    let choices: Choices = choices.into();
    let rule = choices.rule;
    let raw = RowIndex::new(data)?;
    // In the order of the checks, and of the places in each.
    let violations: Vec<Violation> =
        Check::ALL.into_iter().flat_map(|check| check.violations(&raw, rule)).collect();
    let mut sieve = Sieve::new(raw.clone());
    let faulty = faulty_executions(&violations, choices);
    sieve.drop_executions(&faulty);
    sieve.drop_batchsets(Step::Incomplete, incompleteness);
    let was_transient: BTreeMap<CheckPlace, &Violation> =
        of_class(&violations, Class::Batchset).map(|one| (one.place, one)).collect();
    sieve.drop_batchsets(Step::RawTransient, |batchset| {
        let violation = was_transient.get(&CheckPlace::Batchset(batchset.key()));
        violation.map(|violation| violation.reason())
    });
    sieve.drop_batchsets(Step::RetainedTransient, |batchset| {
        batchset::violation(batchset, rule).map(|violation| violation.reason())
    });
    sieve.note(Step::ThrashingPoints, sieve.left.counts());
    let retained = retained(&sieve.left, choices, &violations);
    Ok(TapReport {
        protocol: choices.protocol(),
        rule,
        planned: raw.planned(),
        checks: check_counts(&raw, &violations),
        unjudged_atpt: unjudged(&raw),
        violations,
        steps: sieve.steps,
        dropped_executions: faulty.into_iter().collect(),
        dropped_batchsets: sieve.dropped,
        groups: group_counts(&retained),
        retained,
        hosts: host::hosts(&raw),
        confounded: host::confounded(&raw),
    })
}

/// The rows that are left, and the account of those that are not.
struct Sieve<'a> {
    left: RowIndex<'a>,
    steps: Vec<StepCounts>,
    dropped: Vec<DroppedBatchset>,
}

impl<'a> Sieve<'a> {
    fn new(raw: RowIndex<'a>) -> Sieve<'a> {
        let mut sieve = Sieve { left: raw, steps: Vec::new(), dropped: Vec::new() };
        sieve.note(Step::Checks, sieve.left.counts());
        sieve
    }

    fn note(&mut self, step: Step, before: Counts) {
        self.steps.push(StepCounts { step, before, after: self.left.counts() });
    }

    fn drop_executions(&mut self, faulty: &BTreeSet<ExecutionKey>) {
        let before = self.left.counts();
        let left = self.left.without(faulty);
        let lost = self.left.batchsets.keys().filter(|key| !left.batchsets.contains_key(key));
        self.dropped.extend(lost.map(|&key| DroppedBatchset {
            step: Step::Executions,
            key,
            why: "all its executions were dropped".to_owned(),
        }));
        self.left = left;
        self.note(Step::Executions, before);
    }

    /// Drops the batchset instances that something is wrong with.
    fn drop_batchsets(&mut self, step: Step, wrong: impl Fn(&BatchsetRows<'_>) -> Option<String>) {
        let before = self.left.counts();
        let dropped = &mut self.dropped;
        self.left.batchsets.retain(|&key, batchset| {
            let why = wrong(batchset);
            let is_kept = why.is_none();
            dropped.extend(why.map(|why| DroppedBatchset { step, key, why }));
            is_kept
        });
        self.note(step, before);
    }
}

/// The batches that a batchset instance has lost, if any.
fn incompleteness(batchset: &BatchsetRows<'_>) -> Option<String> {
    let missing: Vec<String> = batchset.missing().iter().map(ToString::to_string).collect();
    (!missing.is_empty()).then(|| format!("no execution is left at MPL {}", missing.join(", ")))
}

fn of_class(violations: &[Violation], class: Class) -> impl Iterator<Item = &Violation> {
    violations.iter().filter(move |violation| violation.check.class() == class)
}

/// The executions to drop in Step 2, each once however many checks it violates.
fn faulty_executions(violations: &[Violation], choices: Choices) -> BTreeSet<ExecutionKey> {
    let execution = |violation: &Violation| match violation.place {
        CheckPlace::Execution(key) => Some(key),
        CheckPlace::Batch(_) | CheckPlace::Batchset(_) => None,
    };
    let dropping = violations.iter().filter(|violation| choices.drops(violation.check));
    dropping.filter_map(execution).collect()
}

fn check_counts(raw: &RowIndex<'_>, violations: &[Violation]) -> Vec<CheckCount> {
    let (planned, there) = (raw.planned(), raw.counts());
    let planned_there = raw
        .batchsets
        .values()
        .map(|batchset| batchset.batches.len() * batchset.run.plan.executions as usize);
    let planned_there = planned_there.sum();
    let count = |check: Check| {
        let of_check = || violations.iter().filter(move |violation| violation.check == check);
        let batchsets: BTreeSet<BatchsetKey> =
            of_check().map(|violation| violation.place.in_batchset()).collect();
        let checked = match check {
            Check::MissingBatches => planned.batches,
            Check::MissedExecutions => planned_there,
            Check::TransientThrashing | Check::SeveralHosts => there.batchsets,
            _ => there.executions,
        };
        CheckCount { check, violations: of_check().count(), checked, batchsets: batchsets.len() }
    };
    Check::ALL.map(count).to_vec()
}

fn retained(
    left: &RowIndex<'_>,
    choices: Choices,
    violations: &[Violation],
) -> Vec<RetainedBatchset> {
    let rule = choices.rule;
    let mut caveats: BTreeMap<BatchsetKey, BTreeSet<Check>> = BTreeMap::new();
    for violation in violations.iter().filter(|one| choices.only_warns(one.check)) {
        caveats.entry(violation.place.in_batchset()).or_default().insert(violation.check);
    }
    // Each has all its batches, so that it has a curve.
    let retained = left.batchsets.values().filter_map(|batchset| {
        let (run, curve) = (batchset.run, batchset.curve()?);
        let points = batchset.batches.iter().map(|(&mpl, batch)| CurvePoint {
            mpl,
            tps: mean_tps(batch),
            executions: batch.len(),
        });
        Some(RetainedBatchset {
            key: batchset.key(),
            subject: run.subject.clone(),
            dbms: run.dbms.clone(),
            num_procs: run.plan.num_procs,
            factors: batchset.row.factors.clone(),
            curve: points.collect(),
            levels: batchset.levels(),
            atpt_s: batchset.atpt_s(),
            thrashing_point: rule.thrashing_point(&curve),
            rule,
            caveats: caveats.remove(&batchset.key()).unwrap_or_default(),
        })
    });
    retained.collect()
}

fn group_counts(retained: &[RetainedBatchset]) -> Vec<GroupCount> {
    let mut groups: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for batchset in retained {
        let (all, thrashing) = groups.entry(&batchset.factors.group).or_default();
        *all += 1;
        *thrashing += usize::from(batchset.thrashing_point.mpl().is_some());
    }
    let count = |(group, (retained, thrashing)): (&str, (usize, usize))| GroupCount {
        group: group.to_owned(),
        retained,
        thrashing,
    };
    groups.into_iter().map(count).collect()
}
