//! Dropping a tree.
//!
//! # Mechanism
//! 1. The tree, its indexes and, for an index, the tree that it belongs to are locked in X
//!    (`txn/dropping.rs`): all transactions that have changed them are over.
//! 2. One log record sets a flag in the tree's entry of the catalog. With it the tree is gone; the
//!    record is made durable. An index whose tree has the flag is gone as well, so that no second
//!    record is needed that a crash could come before.
//! 3. The locks are released, and the pages are freed, a record each (`btree/teardown.rs`), indexes
//!    first. The last record of each tree frees its root and removes its entry.
//!
//! After a crash before step 2 the tree is whole; after it, the opening does step 3 from where it
//! was. Each page is freed in the record that takes away the last link to it, so none is lost and
//! none is freed twice.
//!
//! The number of a tree is not used again, because handles and locks know a tree by it: the catalog
//! remembers a number above those of all dropped trees.
//!
//! # Limits
//! Each page of the tree is read once, to be freed. Trees are taken apart one after the other.

use super::{Core, StoreError};

impl Core {
    /// Frees the pages of all trees that were dropped. Returns how many trees there were.
    pub(crate) fn finish_drops(&self) -> Result<usize, StoreError> {
        let _turn = self.catalog.drops.lock();
        let mut finished = 0;
        // The last first: what belongs to a tree comes after it.
        while let Some(entry) = self.catalog.dropping().pop() {
            let tree = self.tree(&entry);
            while tree.free_last()? {}
            self.free_root(&entry)?;
            self.catalog.trees.write().dropping.retain(|other| other.id != entry.id);
            self.pool.forget_counters(entry.id);
            finished += 1;
        }
        Ok(finished)
    }
}
