//! Dropping a tree: what has to be locked for it. `core/dropping.rs` has the rest.

use std::sync::Arc;

use super::{Transaction, TxnError, TxnOptions};
use crate::btree::TreeEntry;
use crate::core::{Core, StoreError};
use crate::lock::multi_granularity::X;

/// See [`Store::drop_tree`](crate::Store::drop_tree).
pub(crate) fn drop_tree(core: &Arc<Core>, name: &str) -> Result<bool, TxnError> {
    core.log.check_writable().map_err(StoreError::from)?;
    if let Some(entry) = core.catalog.named(name) {
        match mark(core, &entry) {
            // Another thread was faster; the first one frees its pages.
            Err(TxnError::Store(StoreError::Dropped { .. })) => {}
            marked => marked?,
        }
    } else if !core.catalog.is_dropping(name) {
        return Ok(false);
    }
    core.finish_drops()?;
    Ok(true)
}

/// Records that a tree is dropped, when no transaction uses it.
fn mark(core: &Arc<Core>, entry: &Arc<TreeEntry>) -> Result<(), TxnError> {
    let mut transaction = Transaction::begin(core, TxnOptions::default());
    let owner = entry.indexed.and_then(|owner| core.catalog.numbered(owner));
    // From a tree to its indexes, as who changes a row does.
    for tree in owner.into_iter().chain([Arc::clone(entry)]) {
        transaction.lock_tree(&core.handle(tree), X)?;
    }
    for index in core.catalog.indexes_of(entry.id) {
        transaction.lock_tree(&core.handle(index), X)?;
    }
    core.mark_dropped(entry)?;
    let mut known = core.indexes.of.write();
    known.remove(&entry.id);
    if let Some(of_owner) = entry.indexed.and_then(|owner| known.get_mut(&owner)) {
        of_owner.retain(|index| index.entry.id != entry.id);
    }
    Ok(())
}
