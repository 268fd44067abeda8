//! What the tests of this module share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tidegate_workload::workload::{Client, Condition, Depth, Kind, Transaction, Workload};
use tidegate_workload::{Ending, Running, Session, Statement, Table, Value};

use super::{Connecting, LoadOptions, LoadTarget};

/// More than any transaction of the tests has.
pub(super) const STATEMENTS: usize = 20;

/// A load of one client that goes nowhere.
pub(super) fn options(workload: Arc<dyn Workload>) -> LoadOptions<'static> {
    let connecting = Connecting::within(Duration::ZERO);
    LoadOptions::new(LoadTarget::Url { url: String::new(), connecting }, workload, 1)
}

/// Transactions of two statements, each a phase; all share the count of those that were told that
/// they last.
#[derive(Clone, Debug, Default)]
pub(super) struct TwoPhases {
    pub(super) committed: Arc<AtomicU32>,
}

impl Workload for TwoPhases {
    fn name(&self) -> &'static str {
        "two-phases"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind { name: "both", phases: &["I", "II"] }]
    }

    fn tables(&self) -> Vec<Table> {
        Vec::new()
    }

    fn rows(&self, _: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        Box::new(std::iter::empty())
    }

    fn client(&self, _: usize, _: usize, _: u64) -> Box<dyn Client> {
        Box::new(self.clone())
    }

    fn check<'d>(&self, _: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl Client for TwoPhases {
    fn next(&mut self) -> Arc<dyn Transaction> {
        Arc::new(self.clone())
    }
}

impl Transaction for TwoPhases {
    fn kind(&self) -> usize {
        0
    }

    fn committed(&self) {
        self.committed.fetch_add(1, Ordering::Relaxed);
    }

    fn run(self: Arc<Self>, session: Session<'_>) -> Running<'_> {
        Box::pin(async move {
            session.execute(&Statement::new("SELECT 1"), &[]).await?;
            std::thread::sleep(Duration::from_micros(5));
            session.phase(1);
            session.execute(&Statement::new("SELECT 2"), &[]).await?;
            std::thread::sleep(Duration::from_micros(5));
            Ok(Ending::Commit)
        })
    }
}
