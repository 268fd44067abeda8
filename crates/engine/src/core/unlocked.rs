//! An assertion: in a tree whose keys the client locks, no key is changed by two transactions that
//! are under way.
//!
//! Undo finds a change by its key and takes for granted that nothing has changed it since. Where
//! the engine locks no keys this is the client's to see to, so builds with assertions remember who
//! has changed which key. Other builds remember nothing.

use std::collections::HashMap;

use tidegate_runtime::sync::Mutex;

use crate::page::TreeId;
use crate::record::TxnId;

/// Who has changed the keys of trees without locks, in builds with assertions.
#[derive(Default)]
pub(crate) struct UnlockedWrites {
    by_key: Mutex<HashMap<(TreeId, Vec<u8>), TxnId>>,
}

impl UnlockedWrites {
    /// Notes that a transaction changes a key.
    ///
    /// # Panics
    /// Another transaction has changed it and is under way, in builds with assertions.
    pub(crate) fn note(&self, tree: TreeId, key: &[u8], writer: TxnId) {
        if cfg!(debug_assertions) {
            let before = self.by_key.lock().insert((tree, key.to_vec()), writer);
            let other = before.filter(|&before| before != writer);
            debug_assert_eq!(other, None, "the client's locks keep two writers of a key apart");
        }
    }

    /// Forgets a transaction that has ended and still holds the client's locks.
    pub(crate) fn forget(&self, writer: TxnId) {
        if cfg!(debug_assertions) {
            self.by_key.lock().retain(|_, other| *other != writer);
        }
    }
}
