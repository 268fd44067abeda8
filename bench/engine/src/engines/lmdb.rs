//! LMDB, by the crate heed.

use std::ops::{Bound, Range};
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions, PutFlags};
use tidegate_engine::Isolation;

use super::{Engine, Memory, Operation, Session, missing};
use crate::{Result, rows};

/// What the map's length is a multiple of, in bytes.
const MAP_STEP: usize = 1 << 20;

/// An environment and its one table.
pub(crate) struct Lmdb {
    environment: Env,
    table: Database<'static, Bytes, Bytes>,
}

impl Lmdb {
    /// Makes one in an empty directory.
    pub(crate) fn create(directory: &Path, memory: Memory) -> Result<Lmdb> {
        let mut options = EnvOpenOptions::new();
        options.map_size(memory.data_bytes.next_multiple_of(MAP_STEP));
        #[expect(
            unsafe_code,
            reason = "the map is sound as long as nobody else changes the file: it lies in a \
                      directory that this process has just made for itself and opens once"
        )]
        let environment = unsafe { options.open(directory)? };
        let transaction = environment.write_txn()?;
        let made =
            environment.create_databases_and_commit(transaction, |tables, transaction| {
                let table = tables.create_database::<Bytes, Bytes>(transaction, None);
                table.map(CommitOrAbort::<_, ()>::Commit)
            })?;
        let table = made.commit().ok_or("LMDB has not made the table")?;
        Ok(Lmdb { environment, table })
    }
}

impl Engine for Lmdb {
    fn session(&self, _: Isolation) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Thread { engine: self }))
    }

    fn settle(&self) -> Result<()> {
        Ok(self.environment.force_sync()?)
    }
}

struct Thread<'e> {
    engine: &'e Lmdb,
}

impl Session for Thread<'_> {
    fn append(&mut self, keys: Range<u64>) -> Result<()> {
        let mut transaction = self.engine.environment.write_txn()?;
        for key in keys {
            let (value, key) = (rows::value(key, 0), rows::key_bytes(key));
            let table = &self.engine.table;
            table.put_with_flags(&mut transaction, PutFlags::APPEND, &key, &value)?;
        }
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[u64]) -> Result<u64> {
        let transaction = self.engine.environment.read_txn()?;
        let mut sum: u64 = 0;
        for &key in keys {
            let value = self.engine.table.get(&transaction, &rows::key_bytes(key))?;
            sum = sum.wrapping_add(rows::sum(value.ok_or_else(|| missing(key))?));
        }
        Ok(sum)
    }

    fn scan(&mut self, from: u64, rows: u64) -> Result<u64> {
        let transaction = self.engine.environment.read_txn()?;
        let from = rows::key_bytes(from);
        let range = (Bound::Included(&from[..]), Bound::Unbounded);
        let mut entries = self.engine.table.range(&transaction, &range)?;
        let mut sum: u64 = 0;
        for _ in 0..rows {
            let Some((key, value)) = entries.next().transpose()? else {
                break;
            };
            sum = sum.wrapping_add(rows::key_of(key)).wrapping_add(rows::sum(value));
        }
        Ok(sum)
    }

    fn write(&mut self, operations: &[Operation]) -> Result<u64> {
        let mut transaction = self.engine.environment.write_txn()?;
        let mut sum: u64 = 0;
        for &operation in operations {
            match operation {
                Operation::Read(key) => {
                    let value = self.engine.table.get(&transaction, &rows::key_bytes(key))?;
                    sum = sum.wrapping_add(rows::sum(value.ok_or_else(|| missing(key))?));
                }
                Operation::Replace(key, version) => {
                    let (value, key) = (rows::value(key, version), rows::key_bytes(key));
                    self.engine.table.put(&mut transaction, &key, &value)?;
                }
            }
        }
        transaction.commit()?;
        Ok(sum)
    }
}
