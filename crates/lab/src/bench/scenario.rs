//! What clients do in the course of a run, and the tables they do it on.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;
use tidegate_workload::Workload;
use tidegate_workload::pgbench::{self, Scale};
use tidegate_workload::thrash::{self, Key, Rows, Thrash};

const FIFTY: Scale = Scale::new(50).expect("50 is within the range of scales");

/// A workload on tables of a known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// TPC-B on one branch: every transaction updates the same row.
    #[serde(rename = "tpcb-1")]
    Tpcb1,
    /// TPC-B on 50 branches: two transactions rarely want the same row.
    #[serde(rename = "tpcb-50")]
    Tpcb50,
    /// Range reads: nobody waits for a lock.
    ThrashRead,
    /// Range updates in a hot spot.
    ThrashUpdate,
}

impl Work {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Work::Tpcb1 => "tpcb-1",
            Work::Tpcb50 => "tpcb-50",
            Work::ThrashRead => "thrash-read",
            Work::ThrashUpdate => "thrash-update",
        }
    }

    /// What it is, in words.
    pub(super) fn about(self, rows: Rows) -> String {
        let ranges = |thrash: Thrash| {
            let (sf, rose) = (thrash.sf().percent(), thrash.rose().percent());
            format!("SF {sf} %, ROSE {rose} %, of two tables of {} rows with a key", rows.get())
        };
        match self {
            Work::Tpcb1 | Work::Tpcb50 => format!("TPC-B, scale {}", self.scale().get()),
            Work::ThrashRead => format!("range reads, {}", ranges(Thrash::read(rows))),
            Work::ThrashUpdate => format!("range updates, {}", ranges(Thrash::update(rows))),
        }
    }

    /// What the load runs; `rows` is the size of the thrash tables.
    pub(super) fn workload(self, rows: Rows) -> Workload {
        match self {
            Work::Tpcb1 | Work::Tpcb50 => Workload::Tpcb,
            Work::ThrashRead => Workload::Thrash(Thrash::read(rows)),
            Work::ThrashUpdate => Workload::Thrash(Thrash::update(rows)),
        }
    }

    /// The scale of pgbench's tables; 1 where there are none.
    pub(super) fn scale(self) -> Scale {
        match self {
            Work::Tpcb50 => FIFTY,
            Work::Tpcb1 | Work::ThrashRead | Work::ThrashUpdate => Scale::ONE,
        }
    }

    /// Whether the tables are pgbench's, with sums to be checked.
    pub(super) fn is_tpcb(self) -> bool {
        matches!(self, Work::Tpcb1 | Work::Tpcb50)
    }

    pub(super) fn load_statements(self, rows: Rows) -> Vec<String> {
        if self.is_tpcb() {
            pgbench::load_statements(self.scale())
        } else {
            thrash::load_statements(rows, Key::Primary)
        }
    }

    /// What gives the next run the same start as the one before.
    pub(super) fn level_statements(self) -> Vec<String> {
        if self.is_tpcb() {
            pgbench::LEVEL_STATEMENTS.map(str::to_owned).to_vec()
        } else {
            thrash::level_statements(Key::Primary)
        }
    }

    /// Seconds that it takes, roughly.
    pub(super) fn level_s(self, rows: Rows) -> f64 {
        match self {
            Work::Tpcb1 | Work::Tpcb50 => 0.2,
            Work::ThrashRead | Work::ThrashUpdate => f64::from(rows.get()) / 100_000.0,
        }
    }

    /// Seconds that loading takes, roughly.
    pub(super) fn load_s(self, rows: Rows) -> f64 {
        match self {
            Work::Tpcb1 | Work::Tpcb50 => 0.5 + f64::from(self.scale().get()) * 0.4,
            Work::ThrashRead | Work::ThrashUpdate => f64::from(rows.get()) / 60_000.0,
        }
    }
}

/// A run's workload, or several that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// [`Work::Tpcb1`] alone.
    Tpcb1,
    /// [`Work::Tpcb50`] alone.
    Tpcb50,
    /// [`Work::ThrashRead`] alone.
    ThrashRead,
    /// [`Work::ThrashUpdate`] alone.
    ThrashUpdate,
    /// From [`Work::Tpcb1`] to [`Work::ThrashRead`]: a low limit meets a workload that bears more.
    Switch,
    /// From [`Work::ThrashRead`] to [`Work::Tpcb1`]: a high limit meets a workload that collapses.
    SwitchBack,
}

impl Scenario {
    /// Every scenario.
    pub const ALL: [Scenario; 6] = [
        Scenario::Tpcb1,
        Scenario::Tpcb50,
        Scenario::ThrashRead,
        Scenario::ThrashUpdate,
        Scenario::Switch,
        Scenario::SwitchBack,
    ];

    /// The name on command lines and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Tpcb1 => Work::Tpcb1.name(),
            Scenario::Tpcb50 => Work::Tpcb50.name(),
            Scenario::ThrashRead => Work::ThrashRead.name(),
            Scenario::ThrashUpdate => Work::ThrashUpdate.name(),
            Scenario::Switch => "switch",
            Scenario::SwitchBack => "switch-back",
        }
    }

    /// What the clients do, phase by phase; no workload twice.
    #[must_use]
    pub fn phases(self) -> &'static [Work] {
        match self {
            Scenario::Tpcb1 => &[Work::Tpcb1],
            Scenario::Tpcb50 => &[Work::Tpcb50],
            Scenario::ThrashRead => &[Work::ThrashRead],
            Scenario::ThrashUpdate => &[Work::ThrashUpdate],
            Scenario::Switch => &[Work::Tpcb1, Work::ThrashRead],
            Scenario::SwitchBack => &[Work::ThrashRead, Work::Tpcb1],
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no scenario has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no workload is called `{name}`: use {}", Scenario::ALL.map(Scenario::name).join(", "))]
pub struct UnknownScenario {
    /// What was asked for.
    pub name: String,
}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(text: &str) -> Result<Self, UnknownScenario> {
        let known = Scenario::ALL.into_iter().find(|scenario| scenario.name() == text);
        known.ok_or_else(|| UnknownScenario { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_found_by_its_name() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.to_string().parse(), Ok(scenario));
        }
        let error = "tpcb".parse::<Scenario>().unwrap_err().to_string();
        assert!(error.contains("`tpcb`") && error.contains("tpcb-1, tpcb-50"), "{error}");
    }

    #[test]
    fn a_workload_says_its_parameters() {
        assert_eq!(Work::Tpcb50.about(Rows::SMALL), "TPC-B, scale 50");
        assert_eq!(
            Work::ThrashUpdate.about(Rows::SMALL),
            "range updates, SF 0.25 %, ROSE 25 %, of two tables of 30000 rows with a key"
        );
    }

    #[test]
    fn the_workloads_of_a_scenario_can_share_a_database() {
        for scenario in Scenario::ALL {
            let scales: Vec<_> = scenario.phases().iter().filter(|work| work.is_tpcb()).collect();
            assert!(scales.len() <= 1, "{scenario}: {scales:?}");
        }
    }
}
