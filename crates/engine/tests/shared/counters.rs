//! A procedure that counts, for tests of the server.

use tidegate_engine::{Procedure, Store};

/// Adds to a counter in the store.
pub(crate) fn add(store: &Store) -> Procedure {
    let tree = store.create_tree("counters").unwrap();
    Box::new(move |transaction, key| {
        let old = transaction
            .get(&tree, key)?
            .map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
        transaction.put(&tree, key, &(old + 1).to_le_bytes())?;
        Ok((old + 1).to_le_bytes().to_vec())
    })
}
