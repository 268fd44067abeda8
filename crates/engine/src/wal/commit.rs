//! Where threads meet: appending, and making durable in groups.
//!
//! One mutex guards the batch that is being filled. A thread that needs something durable, and
//! finds no leader, becomes it: it takes the whole batch, gives the mutex back, writes and syncs,
//! and wakes those for whom that was enough. While a leader syncs, the next batch fills, and its
//! threads wait. When the leader comes back it first wakes one of these, and only then those who
//! are done. The one woken leads the next sync, unless [`Gather`](super::gather::Gather) has it
//! wait for more; then the one that completes the group leads.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tracing::error;

use super::batch::Batch;
use super::record::{Checksum, Content, Parsed, parse, stored_length};
use super::segment::Segments;
use super::state::State;
use super::waiters::{Goal, Signal};
use super::writer::Writer;
use super::{Access, LogError, LogSettings, LogStatistics, Lsn};

/// What is read without the mutex, away from what it guards.
#[repr(align(128))]
struct Published {
    durable: AtomicU64,
    failed: AtomicBool,
}

/// The log, without its thread.
pub(super) struct Core {
    published: Published,
    state: Mutex<State>,
    /// Used by the leader only, so never waited for.
    writer: Mutex<Writer>,
    segments: Segments,
    checksum: Checksum,
    access: Access,
}

impl Core {
    /// A log whose files hold durable records up to `end`; `is_marked` when the log says so.
    pub(super) fn new(
        segments: Segments,
        settings: &LogSettings,
        end: Lsn,
        is_marked: bool,
        access: Access,
    ) -> Core {
        let (layout, checksum) = (segments.layout(), Checksum::of_log(settings.id));
        let state = State::new(layout, checksum, settings.buffer_bytes, end, is_marked);
        let (durable, failed) = (AtomicU64::new(end.0), AtomicBool::new(false));
        Core {
            published: Published { durable, failed },
            state: Mutex::new(state),
            writer: Mutex::new(Writer::default()),
            segments,
            checksum,
            access,
        }
    }

    pub(super) fn segments(&self) -> &Segments {
        &self.segments
    }

    pub(super) fn checksum(&self) -> Checksum {
        self.checksum
    }

    pub(super) fn end(&self) -> Lsn {
        self.state.lock().end()
    }

    pub(super) fn durable(&self) -> Lsn {
        Lsn(self.published.durable.load(Ordering::Acquire))
    }

    pub(super) fn has_failed(&self) -> bool {
        self.published.failed.load(Ordering::Acquire)
    }

    pub(super) fn check_access(&self) -> Result<(), LogError> {
        match self.access {
            Access::Full => Ok(()),
            Access::ReadOnly => Err(LogError::ReadOnly),
        }
    }

    /// Closes the log for good and wakes all who wait.
    pub(super) fn stop(&self, reason: &str) {
        let mut state = self.state.lock();
        state.fail(reason);
        self.published.failed.store(true, Ordering::Release);
        let wakeups = state.wakeups();
        drop(state);
        wakeups.send();
    }

    pub(super) fn check(&self) -> Result<(), LogError> {
        self.state.lock().check()
    }

    pub(super) fn statistics(&self) -> LogStatistics {
        self.state.lock().statistics
    }

    pub(super) fn append(&self, payload: &[u8]) -> Result<Lsn, LogError> {
        let limit = self.segments.layout().payload_max();
        if payload.len() > limit {
            return Err(LogError::TooLong { length: payload.len(), limit });
        }
        self.check_access()?;
        let checksum = self.checksum.with(payload);
        let length = stored_length(payload.len());
        let mut state = self.state.lock();
        state.check()?;
        while !state.has_room(length) {
            state = self.make_room(state)?;
        }
        Ok(state.append(payload, length, checksum))
    }

    /// Writes the batch that is full, or waits until somebody else takes it.
    #[cold]
    fn make_room<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, LogError> {
        if state.has_leader() {
            Core::wait(state, Goal::Room);
        } else {
            self.lead(state, false)?;
        }
        let state = self.state.lock();
        state.check()?;
        Ok(state)
    }

    /// Returns when nobody writes. After [`Core::stop`] nobody will.
    pub(super) fn wait_for_leader(&self) {
        while self.state.lock().has_leader() {
            std::thread::yield_now();
        }
    }

    /// Everything that begins before or at `up_to`, to the disk.
    pub(super) fn force(&self, up_to: Lsn) -> Result<(), LogError> {
        if self.durable() > up_to {
            return Ok(());
        }
        let mut state = self.state.lock();
        let goal = Goal::Durable(state.after(up_to));
        if state.is_reached(goal) {
            return Ok(());
        }
        state.statistics.forces += 1;
        loop {
            state.check()?;
            let signal = if state.has_leader() {
                Core::wait(state, goal)
            } else if let Some(timeout) = state.gathering() {
                self.watch(state, goal, timeout)
            } else {
                return self.lead(state, true);
            };
            if signal == Signal::Reached {
                return Ok(());
            }
            state = self.state.lock();
            if state.is_reached(goal) {
                return Ok(());
            }
        }
    }

    /// Everything that begins before or at `up_to`, to the system.
    pub(super) fn write_out(&self, up_to: Lsn) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let goal = Goal::Written(state.after(up_to));
        while !state.is_reached(goal) {
            state.check()?;
            if !state.has_leader() {
                return self.lead(state, false);
            }
            if Core::wait(state, goal) == Signal::Reached {
                return Ok(());
            }
            state = self.state.lock();
        }
        Ok(())
    }

    /// Waits until the goal is reached or somebody has to lead.
    fn wait(mut state: MutexGuard<'_, State>, goal: Goal) -> Signal {
        let seat = state.waiters.add(goal);
        drop(state);
        seat.wait()
    }

    /// Waits while a group gathers, and watches the time if nobody else does.
    fn watch(&self, mut state: MutexGuard<'_, State>, goal: Goal, timeout: Duration) -> Signal {
        if state.has_watch {
            return Core::wait(state, goal);
        }
        state.has_watch = true;
        let seat = state.waiters.add(goal);
        drop(state);
        match seat.wait_for(timeout) {
            Some(signal) => signal,
            None if self.state.lock().waiters.remove(&seat) => Signal::Look,
            None => seat.wait(),
        }
    }

    /// Writes everything that was appended so far.
    fn lead(&self, mut state: MutexGuard<'_, State>, syncs: bool) -> Result<(), LogError> {
        let batch = state.take(syncs);
        let wakeups = state.wakeups();
        drop(state);
        wakeups.send();

        let began_sync = syncs.then(Instant::now);
        let result = self.write(&batch, syncs);

        let mut state = self.state.lock();
        state.give_back(batch, began_sync, &result);
        self.published.durable.store(state.durable().0, Ordering::Release);
        self.published.failed.store(state.has_failed(), Ordering::Release);
        let wakeups = state.wakeups();
        drop(state);
        wakeups.send();
        result.map(drop).inspect_err(|error| error!(%error, "log closed"))
    }

    fn write(&self, batch: &Batch, syncs: bool) -> Result<u64, LogError> {
        let mut writer = self.writer.lock();
        let mut written = 0;
        for (lsn, bytes) in batch.pieces() {
            written += writer.write(&self.segments, lsn, bytes)?;
        }
        if syncs {
            writer.sync()?;
        }
        Ok(written)
    }

    /// Forces everything and leaves a mark that says so.
    pub(super) fn seal(&self) -> Result<(), LogError> {
        self.force(self.end())?;
        let mut state = self.state.lock();
        state.check()?;
        let mark = state.mark();
        drop(state);
        mark.map_or(Ok(()), |lsn| self.force(lsn))
    }

    pub(super) fn read(&self, lsn: Lsn) -> Result<Vec<u8>, LogError> {
        let state = self.state.lock();
        if lsn < state.written() {
            drop(state);
            return self.segments.read(lsn, self.checksum);
        }
        let bytes = state.buffered(lsn).unwrap_or_default();
        match parse(bytes, lsn, bytes.len(), self.checksum) {
            Parsed::Whole { content: Content::Record(payload), .. } => Ok(payload.to_vec()),
            _ => state.check().and(Err(LogError::NoRecord { lsn })),
        }
    }

    /// Gives up what is wholly before `lsn` and durable.
    pub(super) fn truncate_before(&self, lsn: Lsn) -> Result<(), LogError> {
        let Some(spares) = self.segments.give_up_before(lsn.min(self.durable()))? else {
            return Ok(());
        };
        // After a failed sync nobody knows which names are durable.
        self.segments.sync_directory().inspect_err(|error| self.stop(&error.to_string()))?;
        self.segments.keep_spares(spares);
        Ok(())
    }
}
