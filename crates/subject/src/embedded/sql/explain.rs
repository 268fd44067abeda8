//! Plans in words.

use tidegate_engine::Direction;

use super::join::{Reading, Step};
use super::plan::Plan;

impl Plan {
    /// A line for each table, in the order in which they are read, and what is done with the rows.
    pub(super) fn explain(&self) -> String {
        let mut lines = Vec::new();
        match self {
            Plan::Insert(inserting) => {
                lines.push(format!("insert into {}", inserting.relation.name));
            }
            Plan::Update(updating) => {
                lines = explain(&updating.reading);
                let name = |&index: &usize| updating.relation.indexes[index].name;
                let indexes = updating.indexes.iter().map(name);
                let key = updating.changes_key.then_some("primary key");
                let changed: Vec<&str> = key.into_iter().chain(indexes).collect();
                lines.push(format!("update {}", changed.join(", ")).trim_end().to_owned());
            }
            Plan::Delete(deleting) => {
                lines = explain(&deleting.reading);
                lines.push("delete".to_owned());
            }
            Plan::Select(selecting) => {
                lines = explain(&selecting.reading);
                if let Some(grouping) = &selecting.grouping {
                    let first = if grouping.takes_first { ", of the first row" } else { "" };
                    lines.push(format!("group by {}{first}", grouping.by.len()));
                }
                if !selecting.output.order.is_empty() {
                    lines.push(format!("sort by {}", selecting.output.order.len()));
                }
                if selecting.output.limit.is_some() {
                    lines.push("limit".to_owned());
                }
            }
        }
        lines.join("\n")
    }
}

fn explain(reading: &Reading) -> Vec<String> {
    reading.steps.iter().map(|step| explain_step(step, reading.is_for_update)).collect()
}

fn explain_step(step: &Step, is_for_update: bool) -> String {
    let relation = &step.relation;
    let access = &step.access;
    let name = |column: &usize| relation.columns[*column].name;
    let mut line = format!("{}:", relation.name);
    let mut add = |words: &str| line = format!("{line} {words}");
    if access.equal.is_empty() && access.range.is_none() && access.index.is_none() {
        add("all rows");
    } else {
        add(step.index().map_or("primary key", |index| index.name));
    }
    let equal: Vec<&str> = access.equal.iter().map(|(column, _)| name(column)).collect();
    if !equal.is_empty() {
        add(&format!("{} {}", if access.is_point { "point" } else { "equal" }, equal.join(", ")));
    }
    if let Some(range) = &access.range {
        add(&format!("range {}", name(&range.column)));
    }
    if access.direction == Direction::Down {
        add("downward");
    }
    if let Some(hash) = &step.hash {
        add(&format!("once, hashed by {}", hash.keys.len()));
    }
    if is_for_update {
        add("for update");
    }
    line
}
