//! Ours.

use std::ops::{Bound, Range};
use std::path::Path;
use std::sync::Arc;

use tidegate_engine::disk::{Disk, FileDisk, IoMode};
use tidegate_engine::wal::LogId;
use tidegate_engine::{
    Direction, Isolation, Store, StoreOptions, Transaction, TreeHandle, TxnError, TxnOptions,
};

use super::{Engine, Memory, Operation, Session, missing};
use crate::{Result, rows};

/// A store with a tree of rows.
pub(crate) struct Tidegate {
    store: Store,
    tree: TreeHandle,
}

impl Tidegate {
    /// Makes one in an empty directory.
    pub(crate) fn create(directory: &Path, memory: Memory) -> Result<Tidegate> {
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::create(directory, IoMode::Buffered)?);
        let options = StoreOptions::default()
            .buffer_bytes(memory.cache_bytes)
            .buffer_bytes_max(memory.cache_bytes);
        let store = Store::create(&disk, LogId(1), &options)?;
        let tree = store.create_tree("rows")?;
        Ok(Tidegate { store, tree })
    }
}

impl Engine for Tidegate {
    fn session(&self, isolation: Isolation) -> Result<Box<dyn Session + '_>> {
        let options = TxnOptions::default().isolation(isolation);
        Ok(Box::new(Thread { engine: self, options }))
    }

    fn settle(&self) -> Result<()> {
        Ok(self.store.flush()?)
    }
}

struct Thread<'e> {
    engine: &'e Tidegate,
    options: TxnOptions,
}

impl Thread<'_> {
    fn begin(&self) -> Transaction {
        self.engine.store.begin(self.options)
    }

    fn try_write(&self, operations: &[Operation]) -> std::result::Result<u64, TxnError> {
        let (mut transaction, tree) = (self.begin(), &self.engine.tree);
        let mut sum: u64 = 0;
        for &operation in operations {
            match operation {
                Operation::Read(key) => {
                    let value = transaction.get(tree, &rows::key_bytes(key))?;
                    sum = sum.wrapping_add(value.map_or(0, |value| rows::sum(&value)));
                }
                Operation::Replace(key, version) => {
                    let value = rows::value(key, version);
                    transaction.update(tree, &rows::key_bytes(key), &value)?;
                }
            }
        }
        transaction.commit()?;
        Ok(sum)
    }
}

impl Session for Thread<'_> {
    fn append(&mut self, keys: Range<u64>) -> Result<()> {
        let mut transaction = self.begin();
        for key in keys {
            let value = rows::value(key, 0);
            transaction.insert(&self.engine.tree, &rows::key_bytes(key), &value)?;
        }
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[u64]) -> Result<u64> {
        let mut transaction = self.begin();
        let mut sum: u64 = 0;
        for &key in keys {
            let value = transaction.get(&self.engine.tree, &rows::key_bytes(key))?;
            sum = sum.wrapping_add(rows::sum(&value.ok_or_else(|| missing(key))?));
        }
        transaction.commit()?;
        Ok(sum)
    }

    fn scan(&mut self, from: u64, rows: u64) -> Result<u64> {
        let mut transaction = self.begin();
        let from = rows::key_bytes(from);
        let range = (Bound::Included(&from[..]), Bound::Unbounded);
        let mut cursor = transaction.cursor(&self.engine.tree, range, Direction::Up)?;
        let mut sum: u64 = 0;
        for _ in 0..rows {
            let Some((key, value)) = cursor.next(&mut transaction)? else {
                break;
            };
            sum = sum.wrapping_add(rows::key_of(key)).wrapping_add(rows::sum(value));
        }
        transaction.commit()?;
        Ok(sum)
    }

    fn write(&mut self, operations: &[Operation]) -> Result<u64> {
        loop {
            match self.try_write(operations) {
                Err(error) if error.is_retryable() => {}
                done => return Ok(done?),
            }
        }
    }
}
