//! What clients do in the course of a run, and the tables they do it on.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::Serialize;
use thiserror::Error;
use tidegate_subject::database::{Dbms, Gate};
use tidegate_workload::pgbench::Scale;
use tidegate_workload::thrash::{ContradictoryOptions, Options, Thrash};
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
    pub fn new(rows: u32) -> Result<Self, ContradictoryOptions> {
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
pub enum BenchWork {
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

impl BenchWork {
    pub fn name(self) -> &'static str {
        match self {
            BenchWork::Tpcb1 => "tpcb-1",
            BenchWork::Tpcb10 => "tpcb-10",
            BenchWork::Tpcb50 => "tpcb-50",
            BenchWork::ThrashRead => "thrash-read",
            BenchWork::ThrashUpdate => "thrash-update",
        }
    }

    pub(super) fn about(self, thrash: &Ranges) -> String {
        let ranges = |study: &Thrash| {
            let Options { sf, rose, rows, .. } = study.options();
            let (sf, rose) = (sf.percent(), rose.percent());
            format!("SF {sf} %, ROSE {rose} %, of two tables of {rows} rows with a key")
        };
        match self {
            BenchWork::Tpcb1 | BenchWork::Tpcb10 | BenchWork::Tpcb50 => {
                format!("TPC-B, scale {}", self.scale().get())
            }
            BenchWork::ThrashRead => format!("range reads, {}", ranges(&thrash.read)),
            BenchWork::ThrashUpdate => format!("range updates, {}", ranges(&thrash.update)),
        }
    }

    /// What the load runs. On the embedded engine TPC-B is that of a program which reads what it is
    /// about to change, so that deadlocks are what it collapses by.
    pub(super) fn workload(self, options: &BenchOptions) -> Arc<dyn Workload> {
        match self {
            BenchWork::Tpcb1 | BenchWork::Tpcb10 | BenchWork::Tpcb50 => {
                let reads_first = options.database.dbms.gate == Gate::Own;
                Arc::new(Tpcb { scale: self.scale(), reads_first })
            }
            BenchWork::ThrashRead => options.thrash.read.clone(),
            BenchWork::ThrashUpdate => options.thrash.update.clone(),
        }
    }

    /// The scale of pgbench's tables; 1 where there are none.
    fn scale(self) -> Scale {
        match self {
            BenchWork::Tpcb10 => TEN,
            BenchWork::Tpcb50 => FIFTY,
            BenchWork::Tpcb1 | BenchWork::ThrashRead | BenchWork::ThrashUpdate => Scale::ONE,
        }
    }

    /// Whether the tables are pgbench's, with sums to be checked.
    pub(super) fn is_tpcb(self) -> bool {
        matches!(self, BenchWork::Tpcb1 | BenchWork::Tpcb10 | BenchWork::Tpcb50)
    }

    /// Seconds that it takes to give the next run the same start as the one before, roughly.
    pub(super) fn level_s(self, thrash: &Ranges) -> f64 {
        match self {
            BenchWork::Tpcb1 | BenchWork::Tpcb10 | BenchWork::Tpcb50 => 0.2,
            BenchWork::ThrashRead | BenchWork::ThrashUpdate => f64::from(thrash.rows()) / 100_000.0,
        }
    }

    /// Seconds that loading takes, roughly.
    pub(super) fn load_s(self, thrash: &Ranges) -> f64 {
        match self {
            BenchWork::Tpcb1 | BenchWork::Tpcb10 | BenchWork::Tpcb50 => {
                0.5 + f64::from(self.scale().get()) * 0.4
            }
            BenchWork::ThrashRead | BenchWork::ThrashUpdate => f64::from(thrash.rows()) / 60_000.0,
        }
    }
}

/// A run's workload, or several that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BenchScenario {
    /// [`BenchWork::Tpcb1`] alone.
    Tpcb1,
    /// [`BenchWork::Tpcb10`] alone.
    Tpcb10,
    /// [`BenchWork::Tpcb50`] alone.
    Tpcb50,
    /// [`BenchWork::ThrashRead`] alone.
    ThrashRead,
    /// [`BenchWork::ThrashUpdate`] alone.
    ThrashUpdate,
    /// From [`BenchWork::Tpcb1`] to [`BenchWork::ThrashRead`]: a low limit meets a workload that
    /// bears more.
    Switch,
    /// From [`BenchWork::ThrashRead`] to [`BenchWork::Tpcb1`]: a high limit meets a workload that
    /// collapses.
    SwitchBack,
}

impl BenchScenario {
    pub const ALL: [BenchScenario; 7] = [
        BenchScenario::Tpcb1,
        BenchScenario::Tpcb10,
        BenchScenario::Tpcb50,
        BenchScenario::ThrashRead,
        BenchScenario::ThrashUpdate,
        BenchScenario::Switch,
        BenchScenario::SwitchBack,
    ];

    /// Those of the whole benchmark on a database. The middle one of TPC-B differs, because the two
    /// databases thrash for different reasons: PostgreSQL by its processes, and most where they all
    /// want one row; the engine by deadlocks, which takes several.
    pub fn usual(dbms: &Dbms) -> Vec<BenchScenario> {
        let tpcb =
            if dbms.gate == Gate::Own { BenchScenario::Tpcb10 } else { BenchScenario::Tpcb50 };
        vec![
            BenchScenario::Tpcb1,
            tpcb,
            BenchScenario::ThrashRead,
            BenchScenario::ThrashUpdate,
            BenchScenario::Switch,
        ]
    }

    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            BenchScenario::Tpcb1 => BenchWork::Tpcb1.name(),
            BenchScenario::Tpcb10 => BenchWork::Tpcb10.name(),
            BenchScenario::Tpcb50 => BenchWork::Tpcb50.name(),
            BenchScenario::ThrashRead => BenchWork::ThrashRead.name(),
            BenchScenario::ThrashUpdate => BenchWork::ThrashUpdate.name(),
            BenchScenario::Switch => "switch",
            BenchScenario::SwitchBack => "switch-back",
        }
    }

    /// What the clients do, phase by phase; no workload twice.
    pub fn phases(self) -> &'static [BenchWork] {
        match self {
            BenchScenario::Tpcb1 => &[BenchWork::Tpcb1],
            BenchScenario::Tpcb10 => &[BenchWork::Tpcb10],
            BenchScenario::Tpcb50 => &[BenchWork::Tpcb50],
            BenchScenario::ThrashRead => &[BenchWork::ThrashRead],
            BenchScenario::ThrashUpdate => &[BenchWork::ThrashUpdate],
            BenchScenario::Switch => &[BenchWork::Tpcb1, BenchWork::ThrashRead],
            BenchScenario::SwitchBack => &[BenchWork::ThrashRead, BenchWork::Tpcb1],
        }
    }
}

impl BenchScenario {
    /// All its workloads, whose tables are there also when a run leaves some of them alone.
    pub(super) fn workloads(self, options: &BenchOptions) -> Vec<Arc<dyn Workload>> {
        self.phases().iter().map(|work| work.workload(options)).collect()
    }
}

impl fmt::Display for BenchScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no scenario has.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no workload is called `{name}`: use {}", names())]
pub struct UnknownBenchScenario {
    pub name: String,
}

fn names() -> String {
    BenchScenario::ALL.map(BenchScenario::name).join(", ")
}

impl FromStr for BenchScenario {
    type Err = UnknownBenchScenario;

    fn from_str(text: &str) -> Result<Self, UnknownBenchScenario> {
        let known = BenchScenario::ALL.into_iter().find(|scenario| scenario.name() == text);
        known.ok_or_else(|| UnknownBenchScenario { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_found_by_its_name() {
        for scenario in BenchScenario::ALL {
            assert_eq!(scenario.to_string().parse(), Ok(scenario));
        }
        let error = "tpcb".parse::<BenchScenario>().unwrap_err().to_string();
        assert!(error.contains("`tpcb`") && error.contains("tpcb-1, tpcb-10, tpcb-50"), "{error}");
    }

    #[test]
    fn a_workload_says_its_parameters() {
        let thrash = Ranges::new(30_000).unwrap();
        assert_eq!(BenchWork::Tpcb50.about(&thrash), "TPC-B, scale 50");
        assert_eq!(
            BenchWork::ThrashUpdate.about(&thrash),
            "range updates, SF 0.25 %, ROSE 25 %, of two tables of 30000 rows with a key"
        );
    }

    #[test]
    fn the_workloads_of_a_scenario_can_share_a_database() {
        for scenario in BenchScenario::ALL {
            let scales: Vec<_> = scenario.phases().iter().filter(|work| work.is_tpcb()).collect();
            assert!(scales.len() <= 1, "{scenario}: {scales:?}");
        }
    }
}
