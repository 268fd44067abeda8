//! Reads by a transaction that will write: keys are locked in U from the first read.
//!
//! # Mechanism
//! Two that read a key in S and then write it wait for each other: each wants X, and the other's S
//! is in the way. Here the key is locked in U instead. U goes with the S of others, so readers that
//! came first are waited for at the write only; it does not go with another U, so the second who
//! means to write waits before it has seen anything. The lock stays to the end of the transaction,
//! at every isolation level. Gaps are locked as the level says.
//!
//! # Example
//! A counter is 5. T1 reads it for update, 5; T2 asks for the same and waits. T1 writes 6, commits;
//! T2 is handed 6.
//!
//! # Limits
//! A cursor locks every key it hands out, those as well that its caller then leaves as they are.

use std::ops::Bound;

use super::{Cursor, Direction, Isolation, Lockable, Part, Transaction, TxnError};
use crate::core::TreeHandle;
use crate::lock::multi_granularity::{IX, U};

impl Transaction {
    /// Returns the value of a key that is to be changed or removed. The key is locked in U, so that
    /// of two transactions that do so one waits.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn get_for_update(
        &mut self,
        tree: &TreeHandle,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, TxnError> {
        self.check_to_change(tree)?;
        self.read_value(tree, key, Part::All, true, |value, _| value.to_vec())
    }

    /// Returns a cursor over the keys of a range that are to be changed or removed. Each key is
    /// locked in the update mode U.
    ///
    /// # Errors
    /// See [`TxnError`].
    pub fn cursor_for_update(
        &mut self,
        tree: &TreeHandle,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
    ) -> Result<Cursor, TxnError> {
        self.check_to_change(tree)?;
        self.lock_parents(tree.entry(), IX)?;
        Ok(Cursor::new(self.owner(), tree, range, direction, true))
    }

    /// Locks a key that a cursor for update has come to.
    pub(super) fn lock_to_update(&mut self, key: &Lockable) -> Result<(), TxnError> {
        if self.options.isolation == Isolation::Serializable {
            return self.lock_key(key, self.core.range_modes.key_u);
        }
        self.lock_key(key, U)?;
        self.lock_gap(key)
    }
}
