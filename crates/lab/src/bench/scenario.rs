//! What clients do in the course of a run, and the tables they do it on.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;
use tidegate_subject::database::{Dbms, Gate};
use tidegate_workload::pgbench::Scale;
use tidegate_workload::thrash::{Impossible, Options, Thrash};
use tidegate_workload::tpcb::Tpcb;
use tidegate_workload::workload::Workload;

use super::BenchOptions;

const TEN: Scale = Scale::new(10).expect("10 is within the range of scales");
const FIFTY: Scale = Scale::new(50).expect("50 is within the range of scales");

/// The thrash study's reads and updates, on the same tables.
#[derive(Clone, Debug)]
pub struct Ranges {
    read: Arc<Thrash>,
    update: Arc<Thrash>,
}

impl Ranges {
    /// On tables of so many rows each.
    ///
    /// # Errors
    /// Tables of this size cannot be.
    pub fn new(rows: u32) -> Result<Self, Impossible> {
        Ok(Ranges {
            read: Arc::new(Thrash::new(Options { rows, ..Options::read() })?),
            update: Arc::new(Thrash::new(Options { rows, ..Options::update() })?),
        })
    }

    fn rows(&self) -> u32 {
        self.read.options().rows
    }
}

/// A workload on tables of a known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// TPC-B on one branch: every transaction updates the same row.
    #[serde(rename = "tpcb-1")]
    Tpcb1,
    /// TPC-B on 10 branches: many transactions want one of few rows.
    #[serde(rename = "tpcb-10")]
    Tpcb10,
    /// TPC-B on 50 branches: two transactions rarely want the same row.
    #[serde(rename = "tpcb-50")]
    Tpcb50,
    /// Range reads: nobody waits for a lock.
    ThrashRead,
    /// Range updates in a hot spot.
    ThrashUpdate,
}

impl Work {
    pub fn name(self) -> &'static str {
        match self {
            Work::Tpcb1 => "tpcb-1",
            Work::Tpcb10 => "tpcb-10",
            Work::Tpcb50 => "tpcb-50",
            Work::ThrashRead => "thrash-read",
            Work::ThrashUpdate => "thrash-update",
        }
    }

    pub(super) fn about(self, thrash: &Ranges) -> String {
        let ranges = |study: &Thrash| {
            let Options { sf, rose, rows, .. } = study.options();
            let (sf, rose) = (sf.percent(), rose.percent());
            format!("SF {sf} %, ROSE {rose} %, of two tables of {rows} rows with a key")
        };
        match self {
            Work::Tpcb1 | Work::Tpcb10 | Work::Tpcb50 => {
                format!("TPC-B, scale {}", self.scale().get())
            }
            Work::ThrashRead => format!("range reads, {}", ranges(&thrash.read)),
            Work::ThrashUpdate => format!("range updates, {}", ranges(&thrash.update)),
        }
    }

    /// What the load runs. On the embedded engine TPC-B is that of a program which reads what it is
    /// about to change, so that deadlocks are what it collapses by.
    pub(super) fn workload(self, options: &BenchOptions) -> Arc<dyn Workload> {
        match self {
            Work::Tpcb1 | Work::Tpcb10 | Work::Tpcb50 => {
                let reads_first = options.database.dbms.gate == Gate::Own;
                Arc::new(Tpcb { scale: self.scale(), reads_first })
            }
            Work::ThrashRead => options.thrash.read.clone(),
            Work::ThrashUpdate => options.thrash.update.clone(),
        }
    }

    /// The scale of pgbench's tables; 1 where there are none.
    fn scale(self) -> Scale {
        match self {
            Work::Tpcb10 => TEN,
            Work::Tpcb50 => FIFTY,
            Work::Tpcb1 | Work::ThrashRead | Work::ThrashUpdate => Scale::ONE,
        }
    }

    /// Whether the tables are pgbench's, with sums to be checked.
    pub(super) fn is_tpcb(self) -> bool {
        matches!(self, Work::Tpcb1 | Work::Tpcb10 | Work::Tpcb50)
    }

    /// Seconds that it takes to give the next run the same start as the one before, roughly.
    pub(super) fn level_s(self, thrash: &Ranges) -> f64 {
        match self {
            Work::Tpcb1 | Work::Tpcb10 | Work::Tpcb50 => 0.2,
            Work::ThrashRead | Work::ThrashUpdate => f64::from(thrash.rows()) / 100_000.0,
        }
    }

    /// Seconds that loading takes, roughly.
    pub(super) fn load_s(self, thrash: &Ranges) -> f64 {
        match self {
            Work::Tpcb1 | Work::Tpcb10 | Work::Tpcb50 => 0.5 + f64::from(self.scale().get()) * 0.4,
            Work::ThrashRead | Work::ThrashUpdate => f64::from(thrash.rows()) / 60_000.0,
        }
    }
}

/// A run's workload, or several that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// [`Work::Tpcb1`] alone.
    Tpcb1,
    /// [`Work::Tpcb10`] alone.
    Tpcb10,
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
    pub const ALL: [Scenario; 7] = [
        Scenario::Tpcb1,
        Scenario::Tpcb10,
        Scenario::Tpcb50,
        Scenario::ThrashRead,
        Scenario::ThrashUpdate,
        Scenario::Switch,
        Scenario::SwitchBack,
    ];

    /// Those of the whole benchmark on a database. The middle one of TPC-B differs, because the two
    /// databases thrash for different reasons: PostgreSQL by its processes, and most where they all
    /// want one row; the engine by deadlocks, which takes several.
    pub fn usual(dbms: &Dbms) -> Vec<Scenario> {
        let tpcb = if dbms.gate == Gate::Own { Scenario::Tpcb10 } else { Scenario::Tpcb50 };
        vec![Scenario::Tpcb1, tpcb, Scenario::ThrashRead, Scenario::ThrashUpdate, Scenario::Switch]
    }

    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Tpcb1 => Work::Tpcb1.name(),
            Scenario::Tpcb10 => Work::Tpcb10.name(),
            Scenario::Tpcb50 => Work::Tpcb50.name(),
            Scenario::ThrashRead => Work::ThrashRead.name(),
            Scenario::ThrashUpdate => Work::ThrashUpdate.name(),
            Scenario::Switch => "switch",
            Scenario::SwitchBack => "switch-back",
        }
    }

    /// What the clients do, phase by phase; no workload twice.
    pub fn phases(self) -> &'static [Work] {
        match self {
            Scenario::Tpcb1 => &[Work::Tpcb1],
            Scenario::Tpcb10 => &[Work::Tpcb10],
            Scenario::Tpcb50 => &[Work::Tpcb50],
            Scenario::ThrashRead => &[Work::ThrashRead],
            Scenario::ThrashUpdate => &[Work::ThrashUpdate],
            Scenario::Switch => &[Work::Tpcb1, Work::ThrashRead],
            Scenario::SwitchBack => &[Work::ThrashRead, Work::Tpcb1],
        }
    }
}

impl Scenario {
    /// All its workloads, whose tables are there also when a run leaves some of them alone.
    pub(super) fn workloads(self, options: &BenchOptions) -> Vec<Arc<dyn Workload>> {
        self.phases().iter().map(|work| work.workload(options)).collect()
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
        assert!(error.contains("`tpcb`") && error.contains("tpcb-1, tpcb-10, tpcb-50"), "{error}");
    }

    #[test]
    fn a_workload_says_its_parameters() {
        let thrash = Ranges::new(30_000).unwrap();
        assert_eq!(Work::Tpcb50.about(&thrash), "TPC-B, scale 50");
        assert_eq!(
            Work::ThrashUpdate.about(&thrash),
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
