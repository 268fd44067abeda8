//! What executions went through, as text: limits over time, classes, trees.

use std::fmt::Write;

use crate::grid::Grid;
use crate::store::{ClassSeen, ExecutionCourse, LimitSeen, LockingSeen, StoreSeen, TreeSeen};

/// Control intervals shown of an execution; more are shown as means of neighbours.
const SHOWN: usize = 24;

pub fn text(courses: &[ExecutionCourse]) -> String {
    let mut text = String::new();
    for course in courses {
        let ExecutionCourse { run, batchset, subject, mpl, repetition, .. } = course;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "run {run}, {subject}, batchset {batchset}, MPL {mpl}, execution {repetition}"
        );
        if !course.limits.is_empty() {
            text.push_str(&limits(&course.limits));
        }
        if !course.classes.is_empty() {
            text.push_str(&classes(&course.classes));
        }
        if !course.trees.is_empty() {
            text.push_str(&trees(&course.trees));
        }
        if !course.locking.is_empty() {
            text.push_str(&locking(course));
        }
        text.push('\n');
    }
    text
}

/// The limit over time, and where it was in the second half: what it settled at.
fn limits(seen: &[LimitSeen]) -> String {
    let together = seen.len().div_ceil(SHOWN);
    let rows = seen.chunks(together).map(|part| {
        let last = part.last().map_or(0.0, |one| one.at_s);
        let tps = mean(part.iter().map(|one| one.tps));
        let limit = mean(part.iter().map(|one| f64::from(one.mpl)));
        vec![format!("{last:.1}"), format!("{limit:.0}"), format!("{tps:.1}")]
    });
    let head = ["until s", "limit", "tps"].map(str::to_owned).to_vec();
    let grid = Grid { head, rows: rows.collect() }.text();
    let settled = &seen[seen.len() / 2..];
    let limit = mean(settled.iter().map(|one| f64::from(one.mpl)));
    let lowest = settled.iter().map(|one| one.mpl).min().unwrap_or(0);
    let highest = settled.iter().map(|one| one.mpl).max().unwrap_or(0);
    format!("{grid}second half of the time: limit {limit:.0} in the mean, {lowest} to {highest}\n")
}

fn classes(seen: &[ClassSeen]) -> String {
    let row = |one: &ClassSeen| {
        vec![
            one.class.clone(),
            one.transactions.to_string(),
            format!("{:.2}", one.mean_ms),
            format!("{:.2}", one.p95_ms),
        ]
    };
    let head = ["class", "transactions", "mean ms", "p95 ms"].map(str::to_owned).to_vec();
    Grid { head, rows: seen.iter().map(row).collect() }.text()
}

/// What each kind of transaction locked, a transaction in the mean; the conflicts; pages and log.
fn locking(course: &ExecutionCourse) -> String {
    let row = |one: &LockingSeen| {
        let each = |sum: f64| format!("{:.3}", sum / (one.transactions as f64).max(1.0));
        let aborts = one.deadlocks + one.timeouts + one.preemptions;
        vec![
            one.kind.clone(),
            one.transactions.to_string(),
            format!("{:.3}", one.mean_ms),
            each(one.request_ms),
            each(one.block_ms),
            each(one.locks as f64),
            each(one.conversions as f64),
            one.escalations.to_string(),
            aborts.to_string(),
        ]
    };
    let head = [
        "transaction",
        "number",
        "mean ms",
        "requests ms",
        "blocked ms",
        "locks",
        "conversions",
        "escalations",
        "aborts",
    ];
    let head = head.map(str::to_owned).to_vec();
    let rows = course.locking.iter().map(row).collect();
    let mut text = Grid { head, rows }.text();
    for one in &course.conflicts {
        let _ = writeln!(text, "{} over {}: {}", one.cause, one.place, one.times);
    }
    for one in &course.store {
        let StoreSeen { page_reads, page_writes, log_syncs, .. } = one;
        let _ = writeln!(
            text,
            "pages read {page_reads}, written {page_writes}; syncs of the log {log_syncs}"
        );
    }
    text
}

/// Each tree at the first look and at the last, with what was read in between.
fn trees(seen: &[TreeSeen]) -> String {
    let (first, last) = (seen.first().map(|one| one.look), seen.last().map(|one| one.look));
    let at = |look| seen.iter().filter(move |one| Some(one.look) == look);
    let rows = at(last).map(|end| {
        let begin = at(first).find(|one| one.tree == end.tree).unwrap_or(end);
        let read = |of: fn(&TreeSeen) -> i64| (of(end) - of(begin)).to_string();
        vec![
            end.tree.clone(),
            format!("{} -> {}", begin.leaves, end.leaves),
            format!("{:.0} % -> {:.0} %", begin.fill * 100.0, end.fill * 100.0),
            read(|one| one.logical_reads),
            read(|one| one.physical_reads),
        ]
    });
    let head = ["tree", "leaves", "fill", "pages asked for", "pages read"];
    Grid { head: head.map(str::to_owned).to_vec(), rows: rows.collect() }.text()
}

fn mean(numbers: impl Iterator<Item = f64>) -> f64 {
    let (count, sum) = numbers.fold((0.0, 0.0), |(count, sum), one| (count + 1.0, sum + one));
    if count > 0.0 { sum / count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_with_where_they_settle() {
        let seen = |number: u32| LimitSeen {
            at_s: f64::from(number),
            mpl: 10 * number,
            next_mpl: 10 * number,
            tps: 100.0,
            reason: String::new(),
        };
        let limits: Vec<LimitSeen> = (1..=48).map(seen).collect();
        let course = ExecutionCourse { mpl: 10, limits, ..ExecutionCourse::default() };
        let text = text(&[course]);
        // 48 intervals are shown two by two; the second half is 250 to 480.
        assert_eq!(text.lines().filter(|line| line.contains("100.0")).count(), SHOWN, "{text}");
        assert!(text.contains("limit 365 in the mean, 250 to 480"), "{text}");
    }

    #[test]
    fn trees_are_compared_from_the_first_look_to_the_last() {
        let seen = |look, leaves, fill, logical_reads| TreeSeen {
            look,
            at_s: 0.0,
            tree: "orders".to_owned(),
            leaves,
            fill,
            logical_reads,
            physical_reads: 0,
        };
        let trees = vec![seen(1, 10, 0.94, 100), seen(2, 15, 0.7, 180), seen(3, 20, 0.5, 300)];
        let text = text(&[ExecutionCourse { trees, ..ExecutionCourse::default() }]);
        assert!(text.contains("10 -> 20"), "{text}");
        assert!(text.contains("94 % -> 50 %") && text.contains("200"), "{text}");
    }
}
