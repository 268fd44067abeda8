//! The workload of an experiment, as its file describes it.

mod ds2;
mod tpcc;
mod tpcw;
mod xmark;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_workload::pgbench::Scale;
use tidegate_workload::point_select::PointSelect;
use tidegate_workload::thrash::{ContradictoryOptions, Mix, Options, Placement, Share, Thrash};
use tidegate_workload::tpcb::Tpcb;
use tidegate_workload::workload::Workload;

pub use ds2::{Ds2Size, Ds2Spec};
pub use tpcc::TpccSpec;
pub use tpcw::TpcwSpec;
pub use xmark::{AccessSpec, PersonsSpec, XmarkSpec};

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum WorkloadSpec {
    /// pgbench's TPC-B-like transaction.
    Tpcb {
        /// Branches.
        #[serde(default = "one")]
        scale: u32,
        /// Whether each row is read before it is changed.
        #[serde(default)]
        reads_first: bool,
    },
    /// One read by primary key.
    PointSelect {
        /// Branches of pgbench's tables.
        #[serde(default = "one")]
        scale: u32,
    },
    /// The thrashing study's statements.
    Thrash(ThrashSpec),
    /// The DVD store.
    Ds2(Ds2Spec),
    /// A wholesale supplier's orders.
    Tpcc(TpccSpec),
    /// A book shop.
    Tpcw(TpcwSpec),
    /// An auction site in XML.
    Xmark(XmarkSpec),
}

/// The values of the thrashing study's statements.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ThrashSpec {
    #[serde(default = "small")]
    pub rows: u32,
    /// Whether `id1` is the primary key.
    #[serde(default = "yes")]
    pub primary_key: bool,
    /// The share of the rows that a transaction touches, in per cent.
    pub sf: f64,
    /// The share of the rows that it may touch, in per cent.
    #[serde(default = "all")]
    pub rose: f64,
    /// Where in that share they lie: `random`, `rotation` or `discrete`.
    #[serde(default)]
    pub placement: Placement,
    #[serde(default)]
    pub reads: u16,
    #[serde(default)]
    pub updates: u16,
    /// The weight of deletions and insertions.
    #[serde(default)]
    pub changes: u16,
    #[serde(default)]
    pub joins: u16,
}

#[derive(Clone, Debug, PartialEq, Error)]
pub enum WorkloadError {
    #[error("workload: a scale of {0}; give 1 to {max}", max = Scale::MAX)]
    Scale(u32),
    #[error("workload: {0} % is no share of the rows that can be told apart")]
    Share(f64),
    /// Values of the thrashing study that contradict each other.
    #[error(transparent)]
    Thrash(#[from] ContradictoryOptions),
    #[error("workload: {0}")]
    Ds2(#[from] tidegate_workload::ds2::ImpossibleSize),
    #[error("workload tpcc: {0}")]
    Tpcc(#[from] tidegate_workload::tpcc::TpccScaleError),
    #[error("workload tpcw: {0}")]
    Tpcw(#[from] tidegate_workload::tpcw::TpcwScaleError),
    #[error("workload xmark: a factor of {0}; give a number above 0")]
    XmarkFactor(f64),
    #[error("workload xmark: a skew of {0} %; give 0 to 100")]
    Skew(f64),
    #[error("workload xmark: {0}")]
    AuctionMix(#[from] tidegate_workload::xmark::AuctionMixError),
    #[error("workload {workload}: no mix is called `{name}`; there are {known}")]
    Mix { workload: &'static str, name: String, known: String },
}

fn one() -> u32 {
    1
}

fn small() -> u32 {
    Options::ROWS_SMALL
}

fn yes() -> bool {
    true
}

fn all() -> f64 {
    100.0
}

impl WorkloadSpec {
    /// A workload of the thrashing study: reads or updates of one range.
    pub fn thrash(rows: u32, primary_key: bool, sf: f64, rose: f64, updates: bool) -> Self {
        WorkloadSpec::Thrash(ThrashSpec {
            rows,
            primary_key,
            sf,
            rose,
            placement: Placement::Random,
            reads: u16::from(!updates),
            updates: u16::from(updates),
            changes: 0,
            joins: 0,
        })
    }

    /// The workload.
    pub fn build(&self) -> Result<Arc<dyn Workload>, WorkloadError> {
        let scale = |scale: u32| Scale::new(scale).ok_or(WorkloadError::Scale(scale));
        Ok(match self {
            WorkloadSpec::Tpcb { scale: of, reads_first } => {
                Arc::new(Tpcb { scale: scale(*of)?, reads_first: *reads_first })
            }
            WorkloadSpec::PointSelect { scale: of } => Arc::new(PointSelect { scale: scale(*of)? }),
            WorkloadSpec::Thrash(spec) => Arc::new(Thrash::new(spec.options()?)?),
            WorkloadSpec::Ds2(spec) => Arc::new(spec.build()?),
            WorkloadSpec::Tpcc(spec) => Arc::new(spec.build()?),
            WorkloadSpec::Tpcw(spec) => Arc::new(spec.build()?),
            WorkloadSpec::Xmark(spec) => Arc::new(spec.build()?),
        })
    }

    /// Workloads that follow each other on the same tables. Customers of TPC-W whose mix changes
    /// are in one shop, because the last transactions of the first meet those of the second.
    pub fn build_in_turn(specs: &[Self]) -> Result<Vec<Arc<dyn Workload>>, WorkloadError> {
        let Some(WorkloadSpec::Tpcw(spec)) = specs.first() else {
            return specs.iter().map(WorkloadSpec::build).collect();
        };
        let first = spec.build()?;
        let build = |spec: &WorkloadSpec| match spec {
            WorkloadSpec::Tpcw(spec) => Ok(Arc::new(spec.build()?.in_the_shop_of(&first)) as _),
            other => other.build(),
        };
        specs.iter().map(build).collect()
    }

    pub fn describe(&self) -> String {
        match self {
            WorkloadSpec::Tpcb { scale, reads_first } => {
                let form = if *reads_first { ", reads first" } else { "" };
                format!("tpcb, scale {scale}{form}")
            }
            WorkloadSpec::PointSelect { scale } => format!("point-select, scale {scale}"),
            WorkloadSpec::Thrash(spec) => spec.describe(),
            WorkloadSpec::Ds2(spec) => spec.describe(),
            WorkloadSpec::Tpcc(spec) => spec.describe(),
            WorkloadSpec::Tpcw(spec) => spec.describe(),
            WorkloadSpec::Xmark(spec) => spec.describe(),
        }
    }

    /// Rows of its tables, roughly: for an estimate of how long it takes to load them.
    pub fn rows(&self) -> u64 {
        match self {
            WorkloadSpec::Tpcb { scale, .. } | WorkloadSpec::PointSelect { scale } => {
                100_000 * u64::from(*scale)
            }
            WorkloadSpec::Thrash(spec) => 2 * u64::from(spec.rows),
            WorkloadSpec::Ds2(spec) => spec.rows(),
            WorkloadSpec::Tpcc(spec) => spec.rows(),
            WorkloadSpec::Tpcw(spec) => spec.rows(),
            WorkloadSpec::Xmark(spec) => spec.rows(),
        }
    }

    /// Whether another workload can run on the same tables, once they are as at the start.
    pub fn shares_tables_with(&self, other: &WorkloadSpec) -> bool {
        match (self, other) {
            (WorkloadSpec::Tpcb { scale, .. }, WorkloadSpec::PointSelect { scale: of })
            | (WorkloadSpec::PointSelect { scale }, WorkloadSpec::Tpcb { scale: of, .. }) => {
                scale == of
            }
            (WorkloadSpec::Thrash(one), WorkloadSpec::Thrash(other)) => {
                (one.rows, one.primary_key) == (other.rows, other.primary_key)
            }
            (WorkloadSpec::Ds2(one), WorkloadSpec::Ds2(other)) => one.shares_tables_with(*other),
            (WorkloadSpec::Tpcc(one), WorkloadSpec::Tpcc(other)) => one.shares_tables_with(other),
            (WorkloadSpec::Tpcw(one), WorkloadSpec::Tpcw(other)) => one.shares_tables_with(other),
            (WorkloadSpec::Xmark(one), WorkloadSpec::Xmark(other)) => one.shares_tables_with(other),
            _ => self == other,
        }
    }
}

impl ThrashSpec {
    fn describe(&self) -> String {
        let kinds = [
            (self.reads, "reads"),
            (self.updates, "updates"),
            (self.changes, "changes"),
            (self.joins, "joins"),
        ];
        let kinds: Vec<&str> =
            kinds.iter().filter(|(weight, _)| *weight > 0).map(|&(_, name)| name).collect();
        let ThrashSpec { rows, sf, rose, .. } = self;
        format!("thrash {}, SF {sf} %, ROSE {rose} % of {rows} rows", kinds.join(" and "))
    }

    fn options(&self) -> Result<Options, WorkloadError> {
        let share =
            |percent: f64| Share::from_percent(percent).ok_or(WorkloadError::Share(percent));
        Ok(Options {
            rows: self.rows,
            primary_key: self.primary_key,
            sf: share(self.sf)?,
            rose: share(self.rose)?,
            placement: self.placement,
            mix: Mix {
                reads: self.reads,
                updates: self.updates,
                changes: self.changes,
                joins: self.joins,
            },
        })
    }
}
