//! The log from one position forward.

use super::commit::Core;
use super::scan::{Found, Scanner};
use super::{LogError, Lsn};

/// The records from one position on, up to those that had been appended when it was made; see
/// [`Log::reader`](super::Log::reader).
pub struct LogReader<'a> {
    core: &'a Core,
    scanner: Scanner<'a>,
    from: Lsn,
    /// Where the log ended when this was made.
    stop: Lsn,
    is_started: bool,
}

impl<'a> LogReader<'a> {
    pub(super) fn new(core: &'a Core, from: Lsn) -> LogReader<'a> {
        let from = if from == Lsn::ZERO { core.segments().first_record() } else { from };
        let scanner = Scanner::new(core.segments(), core.checksum(), from);
        LogReader { core, scanner, from, stop: core.end(), is_started: false }
    }

    /// The next record and its payload, which is lent until the next call; `None` after the last.
    ///
    /// # Errors
    /// [`LogError::Truncated`] or [`LogError::NoRecord`] when the position to begin with is not one
    /// of a record that is kept, [`LogError::Damaged`] or [`LogError::Missing`] when a later record
    /// is not as it was written, and what keeps the buffered records from being written out.
    pub fn read_next(&mut self) -> Result<Option<(Lsn, &[u8])>, LogError> {
        if !self.is_started {
            self.start()?;
        }
        while self.scanner.at() < self.stop {
            match self.scanner.advance()? {
                Found::Record(lsn, payload) => return Ok(Some((lsn, self.scanner.bytes(payload)))),
                Found::Mark(..) => {}
                // Only a turn was left.
                Found::Nothing(_) if self.scanner.at() >= self.stop => {}
                Found::Nothing(flaw) => {
                    let lsn = self.scanner.at();
                    return Err(if lsn == self.from {
                        LogError::NoRecord { lsn }
                    } else {
                        self.core.segments().damaged(lsn, flaw.to_string())
                    });
                }
            }
        }
        Ok(None)
    }

    /// Sees to it that all is in the files.
    fn start(&mut self) -> Result<(), LogError> {
        let (lsn, begin) = (self.from, self.core.segments().first_record());
        let layout = self.core.segments().layout();
        // A full segment's very end is where the next begins, and its records come behind its
        // header; the full one may have been given up.
        let next = if layout.offset(lsn) == 0 { layout.turned(lsn) } else { lsn };
        if next < begin {
            return Err(LogError::Truncated { lsn, begin });
        }
        self.core.write_out(self.stop)?;
        self.is_started = true;
        Ok(())
    }
}

impl Iterator for LogReader<'_> {
    type Item = Result<(Lsn, Vec<u8>), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.read_next().transpose()?;
        Some(next.map(|(lsn, payload)| (lsn, payload.to_vec())))
    }
}
