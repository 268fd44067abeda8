//! What the threads of a log share under its mutex, without the waiting.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::gather::Gather;
use super::layout::Layout;
use super::record::{Checksum, KIND_MARK, KIND_RECORD, KIND_TURN, RECORD_HEADER, stored_length};
use super::waiters::{Goal, Waiters, Wakeups};
use super::{LogError, LogStatistics, Lsn};

/// * Positions are in the order `durable` ≤ `written` ≤ `end`.
/// * `batch` holds what is before `end`, and `writing` what is before that, from `written` on.
/// * There is a leader exactly while `writing` is there.
pub(super) struct State {
    layout: Layout,
    checksum: Checksum,
    buffer_bytes: usize,
    /// What is being filled.
    batch: Batch,
    /// What the leader writes.
    writing: Option<Arc<Batch>>,
    /// The memory of a batch that was written.
    spare: Option<Batch>,
    /// Where the next record begins, if it fits in the segment.
    end: Lsn,
    /// Bytes from there to the end of the segment.
    room: usize,
    written: Lsn,
    durable: Lsn,
    /// What a mark in the log already says to be durable.
    marked: Lsn,
    /// Why the log is closed.
    failed: Option<Arc<str>>,
    gather: Gather,
    /// Somebody watches the time while a group gathers.
    pub(super) has_watch: bool,
    pub(super) waiters: Waiters,
    pub(super) statistics: LogStatistics,
}

impl State {
    /// Everything before `end` is durable; `is_marked` when the log says so.
    pub(super) fn new(
        layout: Layout,
        checksum: Checksum,
        buffer_bytes: usize,
        end: Lsn,
        is_marked: bool,
    ) -> State {
        State {
            layout,
            checksum,
            buffer_bytes,
            batch: Batch::new(end, buffer_bytes),
            writing: None,
            spare: None,
            end,
            room: layout.room(end),
            written: end,
            durable: end,
            marked: if is_marked { end } else { Lsn::ZERO },
            failed: None,
            gather: Gather::new(Instant::now()),
            has_watch: false,
            waiters: Waiters::default(),
            statistics: LogStatistics::default(),
        }
    }

    pub(super) fn end(&self) -> Lsn {
        self.end
    }

    /// What has to be reached for the record at `lsn` and those before it to be whole: only ends of
    /// records are ever reached, so anything beyond its first byte will do.
    pub(super) fn after(&self, lsn: Lsn) -> Lsn {
        self.end.min(Lsn(lsn.0.saturating_add(1)))
    }

    pub(super) fn written(&self) -> Lsn {
        self.written
    }

    pub(super) fn durable(&self) -> Lsn {
        self.durable
    }

    pub(super) fn has_leader(&self) -> bool {
        self.writing.is_some()
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Closes the log for good. The first reason is kept.
    pub(super) fn fail(&mut self, reason: &str) {
        if self.failed.is_none() {
            self.failed = Some(reason.into());
        }
    }

    pub(super) fn check(&self) -> Result<(), LogError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(LogError::Failed { reason: Arc::clone(reason) }),
        }
    }

    pub(super) fn is_reached(&self, goal: Goal) -> bool {
        match goal {
            Goal::Room => self.batch.is_empty(),
            Goal::Written(lsn) => self.written >= lsn,
            Goal::Durable(lsn) => self.durable >= lsn,
        }
    }

    /// Whether a record of this stored length may be added to the batch. One that is longer than a
    /// batch may be has one for itself.
    pub(super) fn has_room(&self, length: usize) -> bool {
        self.batch.len() + length <= self.buffer_bytes || self.batch.is_empty()
    }

    /// Adds a record; `checksum` has the payload in it.
    pub(super) fn append(&mut self, payload: &[u8], length: usize, checksum: Checksum) -> Lsn {
        self.statistics.records += 1;
        self.statistics.record_bytes += length as u64;
        self.push(KIND_RECORD, payload, length, checksum)
    }

    fn push(&mut self, kind: u32, payload: &[u8], length: usize, checksum: Checksum) -> Lsn {
        if length > self.room {
            self.turn();
        }
        let lsn = self.end;
        self.batch.push(kind, lsn, payload, checksum);
        self.end = lsn.plus(length);
        self.room -= length;
        lsn
    }

    /// Goes on in the next segment.
    fn turn(&mut self) {
        if self.room >= RECORD_HEADER {
            self.batch.push(KIND_TURN, self.end, &[], self.checksum);
        }
        self.end = self.layout.turned(self.end);
        self.room = self.layout.room(self.end);
        self.batch.turn(self.end);
    }

    /// Appends what says how much is durable, unless a mark says so already.
    pub(super) fn mark(&mut self) -> Option<Lsn> {
        if self.durable <= self.marked {
            return None;
        }
        let is_last = self.durable == self.end;
        let payload = self.durable.0.to_le_bytes();
        let checksum = self.checksum.with(&payload);
        let lsn = self.push(KIND_MARK, &payload, stored_length(payload.len()), checksum);
        // When nothing is between what it vouches for and the mark, the mark itself need not be
        // vouched for by another.
        self.marked = if is_last { self.end } else { self.durable };
        Some(lsn)
    }

    /// How long a thread that needs a sync, and is not in the list, waits for others.
    pub(super) fn gathering(&self) -> Option<Duration> {
        self.gather.wait(1 + self.waiters.forcing(), Instant::now())
    }

    /// The batch for a leader, who is the caller.
    pub(super) fn take(&mut self, syncs: bool) -> Arc<Batch> {
        if syncs {
            self.gather.begin(1 + self.waiters.forcing());
        }
        self.has_watch = false;
        if !self.batch.is_empty() {
            self.mark();
        }
        let (end, bytes) = (self.end, self.buffer_bytes);
        let mut next = self.spare.take().unwrap_or_else(|| Batch::new(end, bytes));
        next.restart(end);
        let batch = Arc::new(std::mem::replace(&mut self.batch, next));
        self.writing = Some(Arc::clone(&batch));
        batch
    }

    /// The leader has written the batch, so many bytes, and synced if it began to at some time.
    pub(super) fn give_back(
        &mut self,
        batch: Arc<Batch>,
        began_sync: Option<Instant>,
        result: &Result<u64, LogError>,
    ) {
        match result {
            Ok(bytes) => {
                self.written = batch.end();
                self.statistics.written_bytes += bytes;
                if let Some(began) = began_sync {
                    self.durable = self.written;
                    self.statistics.syncs += 1;
                    // Those who are served are still in the list.
                    let (crowd, now) = (1 + self.waiters.forcing(), Instant::now());
                    self.gather.end(crowd, now.saturating_duration_since(began), now);
                }
            }
            Err(error) => self.fail(&error.to_string()),
        }
        self.writing = None;
        self.spare = Arc::into_inner(batch);
    }

    /// Whom to wake now: those whose goal is reached and, where there is no leader, one of the
    /// others; or all when the log has failed.
    pub(super) fn wakeups(&mut self) -> Wakeups {
        let mut waiters = std::mem::take(&mut self.waiters);
        let wakeups = if self.has_failed() {
            waiters.take_all()
        } else {
            waiters.take(|goal| self.is_reached(goal), !self.has_leader())
        };
        self.waiters = waiters;
        wakeups
    }

    /// The bytes of the log at `lsn`, as far as they are in memory.
    pub(super) fn buffered(&self, lsn: Lsn) -> Option<&[u8]> {
        let writing = || self.writing.as_ref().and_then(|batch| batch.at(lsn));
        self.batch.at(lsn).or_else(writing)
    }
}
