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
                    ("reason", one.reason.as_str().into()),
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
        let last = seen.looks.len();
        for (number, look) in (1..).zip(&seen.looks) {
            self.add_look(attempt, number, look, number == 1 || number == last)?;
        }
        Ok(())
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
            if !(limits.is_empty() && classes.is_empty() && trees.is_empty()) {
                courses.push(ExecutionCourse {
                    run,
                    batchset,
                    subject,
                    mpl,
                    repetition,
                    limits,
                    classes,
                    trees,
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

from_row!(LimitSeen { at_s, mpl, next_mpl, tps, reason });
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
