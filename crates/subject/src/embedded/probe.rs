//! A look into the embedded store while it is at work, for experiments on how it changes over
//! time.
//!
//! The structural-deterioration study (Hoshino, Goda and Kitsuregawa) watches how full each leaf
//! is, in the order of keys (its Fig. 9), and what is read and written for each table (Figs. 10
//! to 13). The engine tells both while transactions go on. It can also be given another amount of
//! memory, and split full nodes otherwise, from now on.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{LeafFill, SplitPolicy, Store, StoreError, TreeHandle};
use tidegate_runtime::{is_virtual, thread};

use super::EmbeddedError;

/// How long a look waits for the end of a change of a page, on a machine in virtual time.
const CHANGE: Duration = Duration::from_micros(10);

/// See the module. It holds the store open: drop it before the store is to close.
pub struct Probe {
    store: Arc<Store>,
}

/// A tree as it was when it was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeState {
    /// Its name.
    pub name: String,
    /// How full each leaf is, from 0 to 1, in the order of keys.
    pub fills: Vec<f64>,
    /// Entries in the leaves.
    pub entries: u64,
    /// Pages asked for until now.
    pub logical_reads: u64,
    /// Pages read from disk until now.
    pub physical_reads: u64,
    /// Pages written to disk until now.
    pub writes: u64,
}

impl Probe {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Probe { store }
    }

    /// Every tree of the store.
    ///
    /// # Errors
    /// A page cannot be read.
    pub fn trees(&self) -> Result<Vec<TreeState>, EmbeddedError> {
        let names = self.store.trees();
        let trees = names.iter().filter_map(|name| self.store.tree(name));
        let states = trees.map(|tree| {
            // First, so that what looking costs is not counted.
            let io = tree.io();
            let leaves = fills(&tree)?;
            Ok(TreeState {
                name: tree.name().to_owned(),
                entries: leaves.iter().map(|leaf| leaf.entries as u64).sum(),
                fills: leaves.iter().map(|leaf| leaf.fill).collect(),
                logical_reads: io.logical_reads,
                physical_reads: io.physical_reads,
                writes: io.writes,
            })
        });
        states.collect::<Result<_, StoreError>>().map_err(EmbeddedError::from)
    }

    /// Gives the store another amount of memory for pages.
    ///
    /// # Errors
    /// Pages in memory that is given up cannot be written.
    pub fn set_buffer_bytes(&self, bytes: usize) -> Result<(), EmbeddedError> {
        Ok(self.store.set_buffer_bytes(bytes)?)
    }

    /// Splits full nodes of every tree in this way from now on.
    ///
    /// # Errors
    /// The store cannot write.
    pub fn set_split_policy(&self, policy: SplitPolicy) -> Result<(), EmbeddedError> {
        let names = self.store.trees();
        let mut trees = names.iter().filter_map(|name| self.store.tree(name));
        Ok(trees.try_for_each(|tree| tree.set_split_policy(policy))?)
    }
}

/// Returns how full the leaves of a tree are. On a machine in virtual time they are looked at while
/// time stands still and past the buffer, so that nothing else is different for it.
fn fills(tree: &TreeHandle) -> Result<Vec<LeafFill>, StoreError> {
    if !is_virtual() {
        return tree.fills();
    }
    loop {
        if let Some(fills) = thread::stand_still(|| tree.fills_now())? {
            return Ok(fills);
        }
        thread::sleep(CHANGE);
    }
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embedded::{Embedded, Options};

    #[test]
    fn trees_are_seen_and_settings_changed() {
        let options = Options { buffer_bytes: 1 << 20, ..Options::default() };
        let database = Embedded::start(options).unwrap();
        let tree = database.store.create_tree("t").unwrap();
        assert_ne!(tree.split_policy(), SplitPolicy::Half);
        let probe = database.probe();
        probe.set_split_policy(SplitPolicy::Half).unwrap();
        assert_eq!(tree.split_policy(), SplitPolicy::Half);
        probe.set_buffer_bytes(4 << 20).unwrap();
        let trees = probe.trees().unwrap();
        let found = trees.iter().find(|tree| tree.name == "t").unwrap();
        assert_eq!((found.entries, found.fills.len()), (0, 1));
        drop((tree, probe));
        database.stop().unwrap();
    }
}
