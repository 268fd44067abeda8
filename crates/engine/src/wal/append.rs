//! What the threads of a log share under its mutex, without the waiting: the batch of records that
//! are not written yet, and when the next sync begins.
//!
//! # When a sync begins: at once, or when those have come who are about to come
//! Threads that commit over and over fall into step: while one half is in a sync the other half
//! waits for the next, so each sync serves half of them. If the next sync waits for the half that
//! has just been served, it serves all. This pays when they come within the time of a sync: `n`
//! commits in a sync and a wait that is no longer are at least `n` / 2 in one sync alone. So the
//! next sync waits until as many threads need it as the last has served or left waiting (the
//! **crowd**), and at most as long as a sync takes.
//!
//! An example, with syncs of 100 µs and 8 threads. One sync has served 4 and 4 wait. The crowd is
//! 8. Those 4 come back within 30 µs, the last of them begins the next sync, and it serves 8; from
//! then on 8 every 130 µs instead of 4 every 100 µs.
//!
//! When the crowd does not come, the wait was in vain. Then as many syncs as 1, 3, 7, … after the
//! first, second, third time in a row begin at once, so that a crowd that cannot come, because its
//! threads do other work in between, costs little.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_runtime::clock;

use super::record::{
    Checksum, KIND_MARK, KIND_RECORD, KIND_TURN, RECORD_HEADER, encode, stored_length,
};
use super::segment::Layout;
use super::waiters::{WaitGoal, Waiters, Wakeups};
use super::{LogError, LogStatistics, Lsn};

/// * Positions are in the order `durable` ≤ `written` ≤ `end`.
/// * `batch` holds what is before `end`, and `writing` what is before that, from `written` on.
/// * There is a leader exactly while `writing` is there.
pub(super) struct LogState {
    layout: Layout,
    checksum: Checksum,
    buffer_bytes: usize,
    /// The batch that is being filled.
    batch: Batch,
    /// The batch that the leader writes.
    writing: Option<Arc<Batch>>,
    /// The memory of a batch that was written.
    spare: Option<Batch>,
    /// Where the next record begins, if it fits in the segment.
    end: Lsn,
    /// Bytes from there to the end of the segment.
    room: usize,
    pub(super) written: Lsn,
    pub(super) durable: Lsn,
    /// What a mark in the log already says to be durable.
    marked: Lsn,
    /// The reason why the log is closed.
    failed: Option<Arc<str>>,
    gather: GroupWait,
    /// A thread watches the time while a group gathers.
    pub(super) has_watch: bool,
    pub(super) waiters: Waiters,
    pub(super) statistics: LogStatistics,
}

impl LogState {
    /// Returns the state of a log of which everything before `end` is durable. `is_marked` says
    /// whether a mark in the log says so.
    pub(super) fn new(
        layout: Layout,
        checksum: Checksum,
        buffer_bytes: usize,
        end: Lsn,
        is_marked: bool,
    ) -> LogState {
        LogState {
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
            gather: GroupWait::new(clock::now()),
            has_watch: false,
            waiters: Waiters::default(),
            statistics: LogStatistics::default(),
        }
    }

    pub(super) fn end(&self) -> Lsn {
        self.end
    }

    /// Returns the position that has to be reached for the record at `lsn` and those before it to
    /// be whole. Only ends of records are ever reached, so any position beyond its first byte will
    /// do.
    pub(super) fn after(&self, lsn: Lsn) -> Lsn {
        self.end.min(Lsn(lsn.0.saturating_add(1)))
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

    pub(super) fn is_reached(&self, goal: WaitGoal) -> bool {
        match goal {
            WaitGoal::Room => self.batch.is_empty(),
            WaitGoal::Written(lsn) => self.written >= lsn,
            WaitGoal::Durable(lsn) => self.durable >= lsn,
        }
    }

    /// Returns whether a record of this stored length may be added to the batch. A record that is
    /// longer than a batch has one for itself.
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
        debug_assert!(length <= self.room, "the longest record fits into a segment");
        self.batch.push(kind, lsn, payload, checksum);
        self.end = lsn.plus(length);
        self.room -= length;
        debug_assert_eq!(self.batch.end(), self.end, "the batch goes up to the end");
        lsn
    }

    /// Goes on in the next segment.
    fn turn(&mut self) {
        if self.room >= RECORD_HEADER {
            self.batch.push(KIND_TURN, self.end, &[], self.checksum);
        }
        let turned = self.layout.turned(self.end);
        debug_assert!(turned > self.end, "the log goes forward");
        self.end = turned;
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

    /// Returns how long a thread that needs a sync, and is not in the list, waits for others.
    pub(super) fn gathering(&self) -> Option<Duration> {
        self.gather.wait(1 + self.waiters.forcing(), clock::now())
    }

    /// Returns the batch to the caller, who is the leader from now on.
    pub(super) fn take(&mut self, syncs: bool) -> Arc<Batch> {
        debug_assert!(self.writing.is_none(), "there is one leader");
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

    /// Records that the leader has written the batch, and has synced it if it began a sync.
    /// `result` is the number of bytes written.
    pub(super) fn give_back(
        &mut self,
        batch: Arc<Batch>,
        began_sync: Option<Instant>,
        result: &Result<u64, LogError>,
    ) {
        debug_assert!(self.has_leader(), "the leader gives back what it took");
        debug_assert!(batch.end() <= self.end, "a batch is part of the log");
        match result {
            Ok(bytes) => {
                debug_assert!(self.written <= batch.end(), "the log is written in order");
                self.written = batch.end();
                self.statistics.written_bytes += bytes;
                if let Some(began) = began_sync {
                    self.durable = self.written;
                    self.statistics.syncs += 1;
                    // Those who are served are still in the list.
                    let (crowd, now) = (1 + self.waiters.forcing(), clock::now());
                    self.gather.end(crowd, now.saturating_duration_since(began), now);
                }
            }
            Err(error) => self.fail(&error.to_string()),
        }
        self.writing = None;
        self.spare = Arc::into_inner(batch);
        debug_assert!(self.durable <= self.written && self.written <= self.end);
        debug_assert!(self.marked <= self.end, "a mark vouches for what is there");
    }

    /// Returns the threads to wake: those whose goal is reached and, where there is no leader, one
    /// of the others. Returns all when the log has failed.
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

    /// Returns the bytes of the log at `lsn`, as far as they are in memory.
    pub(super) fn buffered(&self, lsn: Lsn) -> Option<&[u8]> {
        let writing = || self.writing.as_ref().and_then(|batch| batch.at(lsn));
        self.batch.at(lsn).or_else(writing)
    }
}

/// Bytes of the log from one position on, as they will be in the files.
///
/// They follow each other without a gap, except where the log turns to the next segment.
#[derive(Debug)]
pub(super) struct Batch {
    start: Lsn,
    bytes: Vec<u8>,
    turns: Vec<Turn>,
}

/// From this place in the bytes on, they belong to a later position.
#[derive(Clone, Copy, Debug)]
struct Turn {
    at: usize,
    lsn: Lsn,
}

/// Room for marks and turns besides the records.
const MARGIN: usize = 256;

impl Batch {
    /// Returns an empty batch with room for `capacity` bytes of records.
    pub(super) fn new(start: Lsn, capacity: usize) -> Batch {
        Batch { start, bytes: Vec::with_capacity(capacity + MARGIN), turns: Vec::new() }
    }

    /// Empties it, to be filled from `start` on.
    pub(super) fn restart(&mut self, start: Lsn) {
        debug_assert!(self.end() <= start, "the log goes forward");
        self.start = start;
        self.bytes.clear();
        self.turns.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the position after the last byte.
    pub(super) fn end(&self) -> Lsn {
        let Turn { at, lsn } = self.turns.last().copied().unwrap_or(self.first());
        lsn.plus(self.bytes.len() - at)
    }

    /// Adds a record at the end, whose position is `lsn`.
    pub(super) fn push(&mut self, kind: u32, lsn: Lsn, payload: &[u8], checksum: Checksum) {
        debug_assert_eq!(self.end(), lsn, "records follow each other without a gap");
        encode(&mut self.bytes, kind, lsn, payload, checksum);
    }

    /// Sets the position of what is added from now on.
    pub(super) fn turn(&mut self, lsn: Lsn) {
        debug_assert!(self.end() <= lsn, "the log goes forward");
        self.turns.push(Turn { at: self.bytes.len(), lsn });
    }

    fn first(&self) -> Turn {
        Turn { at: 0, lsn: self.start }
    }

    /// Stretches without a gap, each within a segment and with its position; none is empty.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let begins = std::iter::once(self.first()).chain(self.turns.iter().copied());
        let ends = self.turns.iter().map(|turn| turn.at).chain([self.bytes.len()]);
        begins
            .zip(ends)
            .filter(|(begin, end)| begin.at < *end)
            .map(|(begin, end)| (begin.lsn, &self.bytes[begin.at..end]))
    }

    /// Returns the bytes at `lsn` and after it in the same segment.
    pub(super) fn at(&self, lsn: Lsn) -> Option<&[u8]> {
        self.pieces().find_map(|(start, bytes)| bytes.get(lsn.since(start)?..))
    }
}

/// At most so many syncs in a row begin at once after waits in vain.
const REST_MAX: u32 = 63;

/// What a sync is thought to take before any was measured, and at least.
const SYNC_MIN: Duration = Duration::from_micros(20);

/// Decides how long a sync waits for a larger group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupWait {
    /// As many threads as may need the next sync.
    crowd: usize,
    /// The length of a sync: it follows what is measured down at once and up by doubling, so that
    /// one that took very long does not count for much.
    sync: Duration,
    /// When the last sync ended.
    ended: Instant,
    /// So many syncs more begin at once.
    rest: u32,
    /// The rest after the last wait in vain; 0 when the last wait paid.
    last_rest: u32,
}

impl GroupWait {
    pub(super) fn new(now: Instant) -> GroupWait {
        GroupWait { crowd: 1, sync: SYNC_MIN, ended: now, rest: 0, last_rest: 0 }
    }

    /// Returns how long the threads that need a sync wait for others; `None` when it begins now.
    pub(super) fn wait(&self, count: usize, now: Instant) -> Option<Duration> {
        if self.rest > 0 || count >= self.crowd {
            return None;
        }
        let left = self.sync.saturating_sub(now.saturating_duration_since(self.ended));
        (!left.is_zero()).then_some(left)
    }

    /// Records that a sync begins, which `count` threads need.
    pub(super) fn begin(&mut self, count: usize) {
        if self.rest > 0 {
            self.rest -= 1;
        } else if count >= self.crowd {
            self.last_rest = 0;
        } else {
            self.last_rest = (2 * self.last_rest + 1).min(REST_MAX);
            self.rest = self.last_rest;
        }
    }

    /// Records that a sync ended and how long it took. `crowd` threads were served or wait for the
    /// next sync.
    pub(super) fn end(&mut self, crowd: usize, took: Duration, now: Instant) {
        debug_assert!(crowd > 0, "who syncs is one of them");
        self.sync = took.min(2 * self.sync).max(SYNC_MIN);
        self.crowd = crowd;
        self.ended = now;
    }
}

#[cfg(test)]
mod batch_tests {
    use super::*;
    use crate::wal::LogId;

    #[test]
    fn a_batch_knows_where_its_bytes_belong() {
        let checksum = Checksum::of_log(LogId(1));
        let mut batch = Batch::new(Lsn(1_000), 0);
        assert_eq!(batch.end(), Lsn(1_000));
        batch.push(KIND_RECORD, Lsn(1_000), b"", checksum);
        batch.turn(Lsn(2_000));
        assert_eq!(batch.end(), Lsn(2_000));
        batch.push(KIND_RECORD, Lsn(2_000), b"", checksum);
        batch.push(KIND_RECORD, Lsn(2_016), b"", checksum);
        assert_eq!(batch.end(), Lsn(2_032));

        let pieces: Vec<_> = batch.pieces().map(|(lsn, bytes)| (lsn, bytes.len())).collect();
        assert_eq!(pieces, [(Lsn(1_000), 16), (Lsn(2_000), 32)]);
        let left = |lsn| batch.at(Lsn(lsn)).map(<[u8]>::len);
        assert_eq!([left(1_000), left(2_000), left(2_016)], [Some(16), Some(32), Some(16)]);
        assert_eq!([left(999), left(1_500), left(3_000)], [None, None, None]);

        batch.restart(Lsn(3_000));
        batch.turn(Lsn(4_000));
        batch.push(KIND_RECORD, Lsn(4_000), b"", checksum);
        assert_eq!(batch.pieces().map(|(lsn, _)| lsn).collect::<Vec<_>>(), [Lsn(4_000)]);
    }
}

#[cfg(test)]
mod gather_tests {
    use super::*;

    const fn us(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    /// Returns the state after a long series of syncs of 100 µs that ended at the given time.
    fn steady(crowd: usize, ended: Instant) -> GroupWait {
        let mut gather = GroupWait::new(ended);
        (0..5).for_each(|_| gather.end(crowd, us(100), ended));
        gather
    }

    #[test]
    fn the_example_of_the_module_holds() {
        let start = clock::now();
        let mut gather = steady(8, start);
        assert_eq!(gather.wait(4, start), Some(us(100)));
        assert_eq!(gather.wait(7, start + us(29)), Some(us(71)));
        assert_eq!(gather.wait(8, start + us(30)), None);
        gather.begin(8);
        gather.end(8, us(100), start + us(130));
        assert_eq!(gather.wait(1, start + us(131)), Some(us(99)));
    }

    #[test]
    fn one_thread_alone_never_waits() {
        let start = clock::now();
        assert_eq!(GroupWait::new(start).wait(1, start), None);
        assert_eq!(steady(1, start).wait(1, start), None);
    }

    #[test]
    fn nobody_waits_longer_than_a_sync_takes() {
        let start = clock::now();
        let gather = steady(8, start);
        assert_eq!(gather.wait(1, start + us(99)), Some(us(1)));
        assert_eq!(gather.wait(1, start + us(100)), None);
        assert_eq!(gather.wait(1, start + us(1_000_000)), None);
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let start = clock::now();
        let mut gather = steady(8, start);
        let mut waited = Vec::new();
        for number in 0..150 {
            if gather.wait(4, start).is_some() {
                waited.push(number);
            }
            gather.begin(4);
        }
        assert_eq!(waited, [0, 2, 6, 14, 30, 62, 126]);
        // One that pays makes them frequent again.
        gather.rest = 0;
        gather.begin(8);
        gather.begin(4);
        gather.begin(4);
        assert!(gather.wait(4, start).is_some());
    }

    #[test]
    fn one_slow_sync_does_not_make_the_next_wait_long() {
        let start = clock::now();
        let mut gather = steady(2, start);
        gather.end(2, us(500_000), start);
        assert_eq!(gather.wait(1, start), Some(us(200)));
        gather.end(2, us(90), start);
        assert_eq!(gather.wait(1, start), Some(us(90)));
    }
}
