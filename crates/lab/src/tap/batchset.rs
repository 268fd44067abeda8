//! Check 9: thrashing that did not last; see [`super::curve`] for what that is.

use super::check::{Check, CheckPlace, Violation};
use super::curve::{Rule, Transient};
use super::index::{BatchsetRows, RowIndex};

/// Check 9.
pub(super) fn transient_thrashing(index: &RowIndex<'_>, rule: Rule) -> Vec<Violation> {
    let batchsets = index.batchsets.values();
    batchsets.filter_map(|batchset| violation(batchset, rule)).collect()
}

/// What a batchset instance's throughput says against it, when its first fall did not last.
pub(super) fn violation(batchset: &BatchsetRows<'_>, rule: Rule) -> Option<Violation> {
    let Transient { from, to, recovery } = rule.transient(&batchset.curve()?)?;
    Some(Violation {
        check: Check::TransientThrashing,
        place: CheckPlace::Batchset(batchset.key()),
        observed: format!(
            "{:.3} tps at MPL {}, after a fall to {:.3} at {}",
            recovery.tps, recovery.mpl, to.tps, to.mpl
        ),
        expected: format!("below {:.3} tps, as at MPL {}", from.tps, from.mpl),
    })
}
