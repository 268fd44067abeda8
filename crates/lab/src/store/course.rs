//! What an execution went through beside its throughput: the limits of a controller, the
//! scheduling classes, the trees of a database that was watched.

use tidegate_workload::Value;

use super::rows::from_row;
use super::write::{json, latency};
use super::{Store, StoreError, count, real};
use crate::measured::{Measured, TreeSnapshot};

/// Leaves whose fills are kept one by one; neighbours of a larger tree are kept as their mean.
const FILLS_MAX: usize = 1000;

/// An execution's course, as far as there is one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecutionCourse {
    /// The run's number in the plan.
    pub run: u32,
    /// The batchset's number in the run.
    pub batchset: u32,
    pub subject: String,
    pub mpl: u32,
    pub repetition: u32,
    pub limits: Vec<LimitSeen>,
    pub classes: Vec<ClassSeen>,
    pub trees: Vec<TreeSeen>,
    pub locking: Vec<LockingSeen>,
    pub conflicts: Vec<ConflictSeen>,
    /// At most one.
    pub store: Vec<StoreSeen>,
}

/// What transactions of a kind locked in documents, all together.
#[derive(Clone, Debug, PartialEq)]
pub struct LockingSeen {
    pub kind: String,
    /// Transactions that came to their end.
    pub transactions: i64,
    /// How long they took in the mean, in milliseconds.
    pub mean_ms: f64,
    /// Runs of these transactions, of which some ended in conflicts.
    pub runs: i64,
    /// Time that requests of locks took, in milliseconds.
    pub request_ms: f64,
    /// Time of these that they waited for others, in milliseconds.
    pub block_ms: f64,
    pub locks: i64,
    pub conversions: i64,
    pub escalations: i64,
    pub deadlocks: i64,
    pub timeouts: i64,
    pub preemptions: i64,
}

/// Runs of transactions that ended in a conflict.
#[derive(Clone, Debug, PartialEq)]
pub struct ConflictSeen {
    /// `deadlock`, `timeout` or `preempted`.
    pub cause: String,
    /// `node`, `edge` or `entry`.
    pub place: String,
    pub times: i64,
}

/// What a store in our process read and wrote in the measured time.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreSeen {
    pub page_reads: i64,
    pub page_writes: i64,
    pub log_syncs: i64,
    pub log_bytes: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LimitSeen {
    /// When it ended, in seconds of the measured time; negative in the warm-up.
    pub at_s: f64,
    pub mpl: u32,
    pub next_mpl: u32,
    pub tps: f64,
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ClassSeen {
    pub class: String,
    /// Transactions in the measured time.
    pub transactions: i64,
    pub mean_ms: f64,
    /// 95th percentile of the latency, in milliseconds.
    pub p95_ms: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct TreeSeen {
    /// Which look, counted from 1.
    pub look: u32,
    /// When, in seconds of the measured time.
    pub at_s: f64,
    pub tree: String,
    pub leaves: i64,
    /// How full they are in the mean, from 0 to 1.
    pub fill: f64,
    /// Pages asked for since the store was made.
    pub logical_reads: i64,
    /// Pages read from disk since the store was made.
    pub physical_reads: i64,
}

impl Store {
    /// Writes down what an attempt went through.
    pub(super) fn add_course(&mut self, attempt: i64, seen: &Measured) -> Result<(), StoreError> {
        for (number, one) in (1_i64..).zip(&seen.limits) {
            self.insert(
                "limit_seen",
                &[
                    ("attempt", attempt.into()),
                    ("number", number.into()),
                    ("at_s", real(one.at_s)),
                    ("interval_s", real(one.interval_s)),
                    ("mpl", count(one.limit)),
                    ("next_mpl", count(one.next_limit)),
                    ("reason", one.reason_with_arm().as_ref().into()),
                    ("tps", real(one.tps)),
                    ("concurrency", real(one.concurrency)),
                ],
            )?;
        }
        for one in &seen.load.classes {
            let of = [
                ("attempt", attempt.into()),
                ("class", one.class.into()),
                ("transactions", count(one.transactions)),
            ];
            self.insert("class_seen", &[&of[..], &latency(&one.latency)].concat())?;
        }
        self.add_locking(attempt, seen)?;
        let last = seen.looks.len();
        for (number, look) in (1..).zip(&seen.looks) {
            self.add_look(attempt, number, look, number == 1 || number == last)?;
        }
        Ok(())
    }

    /// Writes down what transactions locked, and what the store read and wrote.
    fn add_locking(&mut self, attempt: i64, seen: &Measured) -> Result<(), StoreError> {
        for kind in &seen.load.kinds {
            let Some(of) = &kind.locking else { continue };
            self.insert(
                "locking_seen",
                &[
                    ("attempt", attempt.into()),
                    ("workload", kind.workload.into()),
                    ("kind", kind.kind.into()),
                    ("runs", count(of.runs)),
                    ("requests", count(of.requests)),
                    ("locks", count(of.locks)),
                    ("conversions", count(of.conversions)),
                    ("escalations", count(of.escalations)),
                    ("waits", count(of.waits)),
                    ("request_ms", real(of.request_ms)),
                    ("block_ms", real(of.block_ms)),
                    ("deadlocks", count(of.deadlocks)),
                    ("timeouts", count(of.timeouts)),
                    ("preemptions", count(of.preemptions)),
                ],
            )?;
        }
        let Some(store) = &seen.load.store else { return Ok(()) };
        self.insert(
            "store_seen",
            &[
                ("attempt", attempt.into()),
                ("page_reads", count(store.page_reads)),
                ("page_writes", count(store.page_writes)),
                ("log_syncs", count(store.log_syncs)),
                ("log_bytes", count(store.log_bytes)),
            ],
        )?;
        store.conflicts.iter().try_for_each(|one| {
            self.insert(
                "conflict_seen",
                &[
                    ("attempt", attempt.into()),
                    ("cause", one.cause.into()),
                    ("place", one.place.into()),
                    ("times", count(one.times)),
                ],
            )
        })
    }

    /// Writes down a look; the fills one by one only where that is asked for.
    fn add_look(
        &mut self,
        attempt: i64,
        number: usize,
        look: &TreeSnapshot,
        with_fills: bool,
    ) -> Result<(), StoreError> {
        for tree in &look.trees {
            let leaves = tree.fills.len();
            let fill = tree.fills.iter().sum::<f64>() / leaves.max(1) as f64;
            let fills = with_fills.then(|| json(&means(&tree.fills, FILLS_MAX))).transpose()?;
            self.insert(
                "tree_seen",
                &[
                    ("attempt", attempt.into()),
                    ("number", count(number)),
                    ("tree", tree.name.as_str().into()),
                    ("at_s", real(look.at_s)),
                    ("leaves", count(leaves)),
                    ("entries", count(tree.entries)),
                    ("fill", real(fill)),
                    ("logical_reads", count(tree.logical_reads)),
                    ("physical_reads", count(tree.physical_reads)),
                    ("writes", count(tree.writes)),
                    ("fills", fills.map_or(Value::Null, Into::into)),
                ],
            )?;
        }
        Ok(())
    }

    /// The courses of an experiment's executions that have one, in the order of their places.
    pub fn courses(&mut self, experiment: i64) -> Result<Vec<ExecutionCourse>, StoreError> {
        let rows = self.rows(
            "SELECT r.number, b.number, r.subject, x.mpl, x.repetition, m.attempt \
             FROM measurement m, execution x, batchset b, run r WHERE m.execution = x.id \
             AND x.batchset = b.id AND b.run = r.id AND r.experiment = ? \
             ORDER BY r.number, b.number, x.mpl, x.repetition",
            &[experiment.into()],
        )?;
        let mut courses = Vec::new();
        for (run, batchset, subject, mpl, repetition, attempt) in rows {
            let attempt: [Value<'_>; 1] = [i64::into(attempt)];
            let limits: Vec<LimitSeen> = self.rows(LIMITS, &attempt)?;
            let classes: Vec<ClassSeen> = self.rows(CLASSES, &attempt)?;
            let trees: Vec<TreeSeen> = self.rows(TREES, &attempt)?;
            let locking: Vec<LockingSeen> = self.rows(LOCKING, &attempt)?;
            let conflicts: Vec<ConflictSeen> = self.rows(CONFLICTS, &attempt)?;
            let store: Vec<StoreSeen> = self.rows(STORE, &attempt)?;
            let is_plain = limits.is_empty() && classes.is_empty() && trees.is_empty();
            if !(is_plain && locking.is_empty()) {
                courses.push(ExecutionCourse {
                    run,
                    batchset,
                    subject,
                    mpl,
                    repetition,
                    limits,
                    classes,
                    trees,
                    locking,
                    conflicts,
                    store,
                });
            }
        }
        Ok(courses)
    }
}

const LIMITS: &str =
    "SELECT at_s, mpl, next_mpl, tps, reason FROM limit_seen WHERE attempt = ? ORDER BY number";
const CLASSES: &str =
    "SELECT class, transactions, mean_ms, p95_ms FROM class_seen WHERE attempt = ? ORDER BY class";
const TREES: &str = "SELECT number, at_s, tree, leaves, fill, logical_reads, physical_reads \
     FROM tree_seen WHERE attempt = ? ORDER BY number, tree";

const LOCKING: &str = "SELECT l.kind, k.committed + k.rolled_back, k.mean_ms, l.runs, \
     l.request_ms, l.block_ms, l.locks, l.conversions, l.escalations, l.deadlocks, l.timeouts, \
     l.preemptions FROM locking_seen l JOIN kind k ON k.attempt = l.attempt \
     AND k.workload = l.workload AND k.kind = l.kind WHERE l.attempt = ? ORDER BY l.kind";
const CONFLICTS: &str =
    "SELECT cause, place, times FROM conflict_seen WHERE attempt = ? ORDER BY cause, place";
const STORE: &str =
    "SELECT page_reads, page_writes, log_syncs, log_bytes FROM store_seen WHERE attempt = ?";

from_row!(LimitSeen { at_s, mpl, next_mpl, tps, reason });
from_row!(ConflictSeen { cause, place, times });
from_row!(StoreSeen { page_reads, page_writes, log_syncs, log_bytes });
from_row!(LockingSeen {
    kind,
    transactions,
    mean_ms,
    runs,
    request_ms,
    block_ms,
    locks,
    conversions,
    escalations,
    deadlocks,
    timeouts,
    preemptions
});
from_row!(ClassSeen { class, transactions, mean_ms, p95_ms });
from_row!(TreeSeen { look, at_s, tree, leaves, fill, logical_reads, physical_reads });

/// At most so many numbers for a list: each the mean of neighbours, to three places.
fn means(list: &[f64], most: usize) -> Vec<f64> {
    let together = list.len().div_ceil(most.max(1)).max(1);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len().max(1) as f64;
    list.chunks(together).map(|part| (mean(part) * 1e3).round() / 1e3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_kept_as_means_of_neighbours() {
        assert_eq!(means(&[0.5, 1.0], 3), [0.5, 1.0]);
        assert_eq!(means(&[0.5, 1.0, 0.25, 0.75, 0.3333], 3), [0.75, 0.5, 0.333]);
        assert!(means(&[], 3).is_empty());
    }
}
