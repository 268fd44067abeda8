//! What clients of transaction mode left behind, by kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Kind as MetricKind, Page, WorkerCounters};
use crate::session_state::Kind;

/// A counter for each kind of session state that cannot follow a client.
#[derive(Debug, Default)]
pub(crate) struct KindCounters([AtomicU64; Kind::PINNING.len()]);

impl KindCounters {
    /// Counts one of this kind.
    pub(crate) fn count(&self, kind: Kind) {
        let counter = Kind::PINNING.iter().position(|&other| other == kind);
        if let Some(counter) = counter.and_then(|index| self.0.get(index)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What became of session state, and where that is counted.
type Outcome = (&'static str, fn(&WorkerCounters) -> &KindCounters);

pub(super) fn write(page: &mut Page, workers: &[Arc<WorkerCounters>]) {
    let name = "tidegate_session_state_total";
    let help = "Times that session state pinned a client, was removed or refused, by its kind.";
    page.family(name, MetricKind::Counter, help);
    let counters: [Outcome; 3] = [
        ("pinned", |worker| &worker.session_state_pinned),
        ("removed", |worker| &worker.session_state_removed),
        ("refused", |worker| &worker.session_state_refused),
    ];
    for (outcome, of) in counters {
        for (index, kind) in Kind::PINNING.iter().enumerate() {
            let count = |worker: &Arc<WorkerCounters>| of(worker).0[index].load(Ordering::Relaxed);
            let labels = [("kind", kind.label()), ("outcome", outcome)];
            page.sample(name, &labels, workers.iter().map(count).sum::<u64>());
        }
    }
}
