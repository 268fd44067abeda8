//! Checkpoints: where recovery may begin.
//!
//! A checkpoint is *fuzzy*: others go on meanwhile. It notes where the log ends, then which pages
//! are changed and not written and which transactions are under way, and logs these tables. When
//! they are durable the head is told. Recovery reads the tables and then all records from the noted
//! place on, so that what happened while the tables were made is not missed.
//!
//! Tables that are longer than a log segment are logged in parts, each of which says where the one
//! before it is; the head is told of the last.

use super::{Checkpoint, Core, StoreError};
use crate::record::{CheckpointTables, Record};
use crate::wal::Lsn;

impl Core {
    /// Takes a checkpoint and gives up the log before what is still needed.
    pub(crate) fn checkpoint(&self) -> Result<(), StoreError> {
        // One at a time, or an older one could be taken for the latest.
        let mut head = self.head.lock();
        let begin = self.log.end();
        let (active, first) = self.transactions.active();
        // Who announces a change reads the log's end first. That may be the end of a full segment,
        // or a checkpoint may come in between; what was before it can have been given up since.
        let kept_from = self.log.begin();
        let dirty = self.pool.dirty().into_iter();
        let tables = CheckpointTables {
            earlier: Lsn::ZERO,
            begin,
            next_transaction: self.transactions.next(),
            dirty: dirty.map(|(page, since)| (page, since.max(kept_from))).collect(),
            active,
        };
        let oldest = tables.dirty.iter().map(|&(_, since)| since).chain(first).min();
        let needed = oldest.map_or(begin, |oldest| oldest.min(begin)).max(kept_from);
        let record = self.log_tables(&tables)?;
        debug_assert!(needed <= begin && begin <= record, "recovery reads from what is needed on");
        self.log.force(record)?;
        let written = head.set_checkpoint(Checkpoint { record, needed });
        // It is unknown which checkpoint the disk has now, and a second sync would not tell.
        written.inspect_err(|error| self.log.stop(&error.to_string()))?;
        drop(head);
        self.log.truncate_before(needed)?;
        Ok(())
    }

    /// Logs the tables of a checkpoint. Returns the last record.
    fn log_tables(&self, tables: &CheckpointTables) -> Result<Lsn, StoreError> {
        let mut earlier = Lsn::ZERO;
        for part in tables.split(self.log.payload_max()) {
            let record = Record::Checkpoint(CheckpointTables { earlier, ..part });
            earlier = self.log.append_with(1024, |out| record.encode(out))?;
        }
        Ok(earlier)
    }
}
