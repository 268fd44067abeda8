//! Which host measured: check 11, and the factors that cannot be told from the hosts.
//!
//! # Mechanism
//! Check 11 finds the batchset instances that more than one host measured: a difference between
//! their levels may be one between the hosts.
//!
//! A factor is *confounded* with the hosts when its levels and the hosts fall apart into groups:
//! the levels of a group were measured by hosts that measured no level of another group. Then a
//! difference between levels of two groups may as well be one between the hosts, and no analysis
//! can separate them. Where levels and hosts hang together, by whatever path, all differences
//! between levels can be estimated with the host as a block: in the words of experimental design,
//! the design is connected.
//!
//! # Example
//! Hosts alpha and beta, processors 1, 2, 4 and 8. Where alpha measured 1 and 2 and beta 4 and 8,
//! nobody knows whether 4 are better than 2 or beta than alpha. Where beta measured 2, too, the two
//! hosts can be compared there.
//!
//! # Limits
//! Factors are looked at one by one. With many hosts and few runs each factor may be connected and
//! two of them together may still take up all that can be estimated.
//!
//! # Source
//! R. C. Bose: The design of experiments. Proceedings of the 34th Indian Science Congress (1947),
//! for connected designs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::check::{Check, CheckPlace, Violation};
use super::index::{BatchsetRows, RowIndex};

/// A factor whose levels cannot all be told from the hosts. Displayed, it is a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Confounded {
    /// The factor, as exports call it.
    pub factor: &'static str,
    /// The groups that levels and hosts fall apart into, at least two.
    pub groups: Vec<Group>,
}

/// Levels of a factor, and all hosts that measured any of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    pub levels: BTreeSet<String>,
    /// The hosts, which measured no other level.
    pub hosts: BTreeSet<String>,
}

impl fmt::Display for Confounded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |names: &BTreeSet<String>| {
            names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        };
        let groups = self.groups.iter().map(|group| {
            format!("{} was measured on {} only", joined(&group.levels), joined(&group.hosts))
        });
        let groups = groups.collect::<Vec<_>>().join("; ");
        write!(formatter, "{} is confounded with the host: {groups}", self.factor)
    }
}

/// Check 11.
pub(super) fn several_hosts(index: &RowIndex<'_>) -> Vec<Violation> {
    let found = index.batchsets.values().filter_map(|batchset| {
        let hosts = hosts_of(batchset);
        let names: Vec<&str> = hosts.iter().copied().collect();
        (hosts.len() > 1).then(|| Violation {
            check: Check::SeveralHosts,
            place: CheckPlace::Batchset(batchset.key()),
            observed: format!("measured by {} hosts: {}", hosts.len(), names.join(", ")),
            expected: "one host's".to_owned(),
        })
    });
    found.collect()
}

/// Returns all hosts that measured something.
pub(super) fn hosts(index: &RowIndex<'_>) -> BTreeSet<String> {
    index.batchsets.values().flat_map(hosts_of).map(str::to_owned).collect()
}

fn hosts_of<'a>(batchset: &BatchsetRows<'a>) -> BTreeSet<&'a str> {
    batchset.executions().map(|execution| execution.host.as_str()).collect()
}

/// The factors that are looked at, as exports call them.
pub(super) const FACTORS: [&str; 6] =
    ["subject", "processors", "primary_key", "mode", "sf_percent", "rose_percent"];

/// Returns the factors that are confounded with the hosts.
pub(super) fn confounded(index: &RowIndex<'_>) -> Vec<Confounded> {
    FACTORS.into_iter().filter_map(|factor| of_factor(index, factor)).collect()
}

fn of_factor(index: &RowIndex<'_>, factor: &'static str) -> Option<Confounded> {
    let mut by_level: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for batchset in index.batchsets.values() {
        let hosts = hosts_of(batchset).into_iter().map(str::to_owned);
        by_level.entry(level(batchset, factor)).or_default().extend(hosts);
    }
    let mut groups: Vec<Group> = Vec::new();
    for (level, hosts) in by_level {
        let mut merged = Group { levels: BTreeSet::from([level]), hosts };
        let is_apart = |group: &Group| group.hosts.is_disjoint(&merged.hosts);
        let (apart, together): (Vec<Group>, Vec<Group>) = groups.into_iter().partition(is_apart);
        for group in together {
            merged.levels.extend(group.levels);
            merged.hosts.extend(group.hosts);
        }
        groups = apart;
        groups.push(merged);
    }
    (groups.len() > 1).then_some(Confounded { factor, groups })
}

fn level(batchset: &BatchsetRows<'_>, factor: &str) -> String {
    let factors = &batchset.row.factors;
    match factor {
        "subject" => batchset.run.subject.clone(),
        "processors" => batchset.run.plan.num_procs.to_string(),
        "primary_key" => factors.primary_key.to_string(),
        "mode" => factors.group.clone(),
        "sf_percent" => (factors.selectivity * 100.0).to_string(),
        _ => (factors.rose * 100.0).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{EXPLORATORY, small};
    use super::super::{DataSet, Rule, analyse};
    use super::*;

    fn sentences(data: &DataSet) -> Vec<String> {
        let index = RowIndex::new(data).expect("sound rows");
        confounded(&index).iter().map(ToString::to_string).collect()
    }

    /// A design with one subject; `host` says who measured a run of so many processors, with keys
    /// or without.
    fn measured_by(host: impl Fn(u32, bool) -> &'static str) -> DataSet {
        let mut data = EXPLORATORY.data(&BTreeSet::new(), 3);
        data.runs.retain(|run| run.subject == "MySQL");
        let runs: BTreeSet<_> = data.runs.iter().map(|run| run.id).collect();
        data.batchsets.retain(|row| runs.contains(&row.key.run));
        data.executions.retain(|row| runs.contains(&row.key.run));
        let keys: BTreeMap<_, bool> =
            data.batchsets.iter().map(|row| (row.key.run, row.factors.primary_key)).collect();
        for row in &mut data.executions {
            host(row.num_procs, keys[&row.key.run]).clone_into(&mut row.host);
        }
        data
    }

    #[test]
    fn a_batchset_of_two_hosts_is_a_violation_and_a_caveat() {
        let mut data = small(1);
        "alpha".clone_into(&mut data.executions[0].host);
        let report = analyse(&data, Rule::default()).expect("sound rows");
        let found: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
        let name = &data.executions[1].host;
        let expected = format!(
            "run 1, batchset 1: measured by 2 hosts: alpha, {name}, but should be one host's"
        );
        assert_eq!(found, [expected]);
        assert!(!report.is_sound());
        let caveats = &report.retained[0].caveats;
        assert_eq!(caveats.iter().copied().collect::<Vec<_>>(), [Check::SeveralHosts]);
        assert_eq!((Check::SeveralHosts.number(), report.hosts.len()), (11, 2));
    }

    #[test]
    fn a_factor_that_is_the_hosts_is_named_with_its_levels() {
        let keys = measured_by(|_, has_key| if has_key { "alpha" } else { "beta" });
        let said = "primary_key is confounded with the host: false was measured on beta only; \
                    true was measured on alpha only";
        assert_eq!(sentences(&keys), [said]);
        let processors = measured_by(|count, _| if count < 4 { "alpha" } else { "beta" });
        let said = "processors is confounded with the host: 1, 2 was measured on alpha only; \
                    4, 8 was measured on beta only";
        assert_eq!(sentences(&processors), [said]);
    }

    #[test]
    fn what_hangs_together_can_be_told_from_the_hosts() {
        // One host, runs in a checkerboard, and 2 processors on both hosts.
        for data in [
            measured_by(|_, _| "alpha"),
            measured_by(|count, has_key| match (count, has_key) {
                (1 | 4, true) | (2 | 8, false) => "alpha",
                _ => "beta",
            }),
            measured_by(|count, has_key| match count {
                1 => "alpha",
                2 if has_key => "alpha",
                _ => "beta",
            }),
        ] {
            assert_eq!(sentences(&data), Vec::<String>::new());
        }
        let report = analyse(&measured_by(|_, _| "alpha"), Rule::default()).expect("sound rows");
        assert!(report.confounded.is_empty() && report.is_sound());
    }
}
