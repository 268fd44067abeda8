//! Changes of pages that are logged together and made together.

use super::{Cause, encode_page};
use crate::buffer::{BufferError, Exclusive};
use crate::page::Change;
use crate::wal::{Log, Lsn};

/// Pages, all latched, with what is to be done to each. Nothing is done before
/// [`MiniTransaction::commit`]; one that is dropped has done nothing.
pub(crate) struct MiniTransaction<'p, 'c> {
    pages: Vec<(Exclusive<'p>, Vec<Change<'c>>)>,
}

impl<'p, 'c> MiniTransaction<'p, 'c> {
    pub(crate) fn new() -> MiniTransaction<'p, 'c> {
        MiniTransaction { pages: Vec::with_capacity(4) }
    }

    /// Adds a page and its changes, in this order.
    pub(crate) fn change(&mut self, page: Exclusive<'p>, changes: Vec<Change<'c>>) {
        debug_assert!(self.pages.iter().all(|(other, _)| other.id() != page.id()));
        self.pages.push((page, changes));
    }

    /// Logs the changes as one record and makes them. Returns the record's LSN.
    ///
    /// # Errors
    /// The log is closed or cannot be written: nothing was done. Or a change does not fit its page,
    /// which is a defect of ours: the pool then writes nothing any more.
    pub(crate) fn commit(mut self, log: &Log, cause: &Cause<'_>) -> Result<Lsn, BufferError> {
        for (page, _) in &mut self.pages {
            page.announce(log);
        }
        let lsn = log.append_with(256, |out| {
            cause.encode(out);
            for (page, changes) in &self.pages {
                encode_page(out, page.id(), changes);
            }
        })?;
        debug_assert!(!self.pages.is_empty(), "a record changes something");
        for (page, changes) in &mut self.pages {
            page.apply(changes, lsn)?;
        }
        Ok(lsn)
    }
}

/// Logs a change of one page and makes it. Returns the record's LSN.
pub(crate) fn log_change(
    log: &Log,
    cause: &Cause<'_>,
    page: &mut Exclusive<'_>,
    change: Change<'_>,
) -> Result<Lsn, BufferError> {
    let changes = [change];
    page.announce(log);
    let lsn = log.append_with(256, |out| {
        cause.encode(out);
        encode_page(out, page.id(), &changes);
    })?;
    page.apply(&changes, lsn)?;
    Ok(lsn)
}
