//! redb.

use std::ops::Range;
use std::path::Path;

use redb::{
    Database, Durability, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use tidegate_engine::Isolation;

use super::{Engine, Memory, Operation, Session, missing};
use crate::{Result, rows};

const ROWS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("rows");

/// A database with one table.
pub(crate) struct Redb {
    database: Database,
}

impl Redb {
    /// Makes one in an empty directory.
    pub(crate) fn create(directory: &Path, memory: Memory) -> Result<Redb> {
        let mut builder = Database::builder();
        builder.set_cache_size(memory.cache_bytes);
        Ok(Redb { database: builder.create(directory.join("rows.redb"))? })
    }

    fn begin_write(&self) -> Result<WriteTransaction> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        Ok(transaction)
    }
}

impl Engine for Redb {
    fn session(&self, _: Isolation) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Thread { engine: self }))
    }

    /// There is no log: a commit has written everything.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

struct Thread<'e> {
    engine: &'e Redb,
}

impl Session for Thread<'_> {
    fn append(&mut self, keys: Range<u64>) -> Result<()> {
        let transaction = self.engine.begin_write()?;
        let mut table = transaction.open_table(ROWS)?;
        for key in keys {
            table.insert(key, rows::value(key, 0).as_slice())?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn read(&mut self, keys: &[u64]) -> Result<u64> {
        let table = self.engine.database.begin_read()?.open_table(ROWS)?;
        let mut sum: u64 = 0;
        for &key in keys {
            let value = table.get(key)?.ok_or_else(|| missing(key))?;
            sum = sum.wrapping_add(rows::sum(value.value()));
        }
        Ok(sum)
    }

    fn scan(&mut self, from: u64, rows: u64) -> Result<u64> {
        let table = self.engine.database.begin_read()?.open_table(ROWS)?;
        let mut entries = table.range(from..)?;
        let mut sum: u64 = 0;
        for _ in 0..rows {
            let Some((key, value)) = entries.next().transpose()? else {
                break;
            };
            sum = sum.wrapping_add(key.value()).wrapping_add(rows::sum(value.value()));
        }
        Ok(sum)
    }

    fn write(&mut self, operations: &[Operation]) -> Result<u64> {
        let transaction = self.engine.begin_write()?;
        let mut table = transaction.open_table(ROWS)?;
        let mut sum: u64 = 0;
        for &operation in operations {
            match operation {
                Operation::Read(key) => {
                    let value = table.get(key)?.ok_or_else(|| missing(key))?;
                    sum = sum.wrapping_add(rows::sum(value.value()));
                }
                Operation::Replace(key, version) => {
                    table.insert(key, rows::value(key, version).as_slice())?;
                }
            }
        }
        drop(table);
        transaction.commit()?;
        Ok(sum)
    }
}
