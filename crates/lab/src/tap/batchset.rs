//! Check 9: thrashing that did not last; see [`super::curve`] for what that is.

use super::check::{Check, Place, Violation};
use super::curve::{Rule, Transient};
use super::index::{Batchset, Index};

/// Check 9.
pub(super) fn transient_thrashing(index: &Index<'_>, rule: Rule) -> Vec<Violation> {
    let mut found = Vec::new();
    for (&key, batchset) in &index.batchsets {
        if let Some(Transient { from, to, recovery }) = transient(batchset, rule) {
            found.push(Violation {
                check: Check::TransientThrashing,
                place: Place::Batchset(key),
                observed: format!(
                    "{:.3} tps at MPL {}, after a fall to {:.3} at {}",
                    recovery.tps, recovery.mpl, to.tps, to.mpl
                ),
                expected: format!("below {:.3} tps, as at MPL {}", from.tps, from.mpl),
            });
        }
    }
    found
}

/// The first fall of a batchset instance's throughput, when it did not last.
pub(super) fn transient(batchset: &Batchset<'_>, rule: Rule) -> Option<Transient> {
    rule.transient(&batchset.curve()?)
}
