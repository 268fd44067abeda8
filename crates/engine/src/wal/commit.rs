//! Where threads meet: appending, and making durable in groups.
//!
//! One mutex guards the batch that is being filled. A thread that needs something durable, and
//! finds no leader, becomes it: it takes the whole batch, gives the mutex back, writes and syncs,
//! and wakes those for whom that was enough. While a leader syncs, the next batch fills, and its
//! threads wait. When the leader comes back it first wakes one of these, and only then those who
//! are done. The one woken leads the next sync, unless [`GroupWait`](super::append::GroupWait) has
//! it wait for more; then the one that completes the group leads.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_runtime::clock;
use tidegate_runtime::sync::{Condvar, LongMutex, Mutex, MutexGuard};
use tidegate_runtime::thread::{self, JoinHandle};
use tidegate_runtime::work::{self, Operation};
use tracing::error;

use super::append::{Batch, LogState};
use super::record::{Checksum, Content, Parsed, parse, stored_length};
use super::segment::{SegmentWriter, Segments};
use super::waiters::{Signal, WaitGoal};
use super::{Access, LogError, LogSettings, Lsn};

/// What is read without the mutex, away from what it guards.
#[repr(align(128))]
struct Published {
    durable: AtomicU64,
    failed: AtomicBool,
}

/// The log, without its thread.
pub(super) struct LogInner {
    published: Published,
    pub(super) state: Mutex<LogState>,
    /// Used by the leader only, so never waited for.
    writer: LongMutex<SegmentWriter>,
    pub(super) segments: Segments,
    pub(super) checksum: Checksum,
    access: Access,
}

impl LogInner {
    /// Returns a log whose files hold durable records up to `end`. `is_marked` says whether a mark
    /// in the log says so.
    pub(super) fn new(
        segments: Segments,
        settings: &LogSettings,
        end: Lsn,
        is_marked: bool,
        access: Access,
    ) -> LogInner {
        let (layout, checksum) = (segments.layout(), Checksum::of_log(settings.id));
        let state = LogState::new(layout, checksum, settings.buffer_bytes, end, is_marked);
        let (durable, failed) = (AtomicU64::new(end.0), AtomicBool::new(false));
        LogInner {
            published: Published { durable, failed },
            state: Mutex::new(state),
            writer: LongMutex::new(SegmentWriter::default()),
            segments,
            checksum,
            access,
        }
    }

    pub(super) fn end(&self) -> Lsn {
        self.state.lock().end()
    }

    pub(super) fn durable(&self) -> Lsn {
        Lsn(self.published.durable.load(Ordering::Acquire))
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
        if self.published.failed.load(Ordering::Acquire) {
            self.state.lock().check()
        } else {
            Ok(())
        }
    }

    pub(super) fn append(&self, payload: &[u8]) -> Result<Lsn, LogError> {
        let limit = self.segments.layout().payload_max();
        if payload.len() > limit {
            return Err(LogError::TooLong { length: payload.len(), limit });
        }
        self.check_access()?;
        let checksum = self.checksum.with(payload);
        let length = stored_length(payload.len());
        work::count(Operation::LogRecord, 1);
        work::count(Operation::LogByte, length as u64);
        let mut state = self.state.lock();
        state.check()?;
        while !state.has_room(length) {
            state = self.make_room(state)?;
        }
        Ok(state.append(payload, length, checksum))
    }

    /// Writes the batch that is full, or waits until another thread takes it.
    #[cold]
    fn make_room<'a>(
        &'a self,
        state: MutexGuard<'a, LogState>,
    ) -> Result<MutexGuard<'a, LogState>, LogError> {
        if state.has_leader() {
            LogInner::wait(state, WaitGoal::Room);
        } else {
            self.lead(state, false)?;
        }
        let state = self.state.lock();
        state.check()?;
        Ok(state)
    }

    /// Waits until no thread writes. After [`LogInner::stop`] no thread begins to.
    pub(super) fn wait_for_leader(&self) {
        while self.state.lock().has_leader() {
            thread::yield_now();
        }
    }

    /// Makes durable every record that begins at `up_to` or before.
    pub(super) fn force(&self, up_to: Lsn) -> Result<(), LogError> {
        if self.durable() > up_to {
            return Ok(());
        }
        let mut state = self.state.lock();
        let goal = WaitGoal::Durable(state.after(up_to));
        if state.is_reached(goal) {
            return Ok(());
        }
        state.statistics.forces += 1;
        loop {
            state.check()?;
            let signal = if state.has_leader() {
                LogInner::wait(state, goal)
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

    /// Writes every record that begins at `up_to` or before to its file.
    pub(super) fn write_out(&self, up_to: Lsn) -> Result<(), LogError> {
        let mut state = self.state.lock();
        let goal = WaitGoal::Written(state.after(up_to));
        while !state.is_reached(goal) {
            state.check()?;
            if !state.has_leader() {
                return self.lead(state, false);
            }
            if LogInner::wait(state, goal) == Signal::Reached {
                return Ok(());
            }
            state = self.state.lock();
        }
        Ok(())
    }

    /// Waits until the goal is reached or a thread has to lead.
    fn wait(mut state: MutexGuard<'_, LogState>, goal: WaitGoal) -> Signal {
        let slot = state.waiters.add(goal);
        drop(state);
        slot.wait()
    }

    /// Waits while a group gathers, and watches the time if no other thread does.
    fn watch(
        &self,
        mut state: MutexGuard<'_, LogState>,
        goal: WaitGoal,
        timeout: Duration,
    ) -> Signal {
        if state.has_watch {
            return LogInner::wait(state, goal);
        }
        state.has_watch = true;
        let slot = state.waiters.add(goal);
        drop(state);
        match slot.wait_for(timeout) {
            Some(signal) => signal,
            None if self.state.lock().waiters.remove(&slot) => Signal::Look,
            None => slot.wait(),
        }
    }

    /// Writes everything that was appended so far.
    fn lead(&self, mut state: MutexGuard<'_, LogState>, syncs: bool) -> Result<(), LogError> {
        debug_assert!(!state.has_leader(), "one thread writes at a time");
        let batch = state.take(syncs);
        let wakeups = state.wakeups();
        drop(state);
        wakeups.send();

        let began_sync = syncs.then(clock::now);
        let result = self.write(&batch, syncs);

        let mut state = self.state.lock();
        state.give_back(batch, began_sync, &result);
        self.published.durable.store(state.durable.0, Ordering::Release);
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
        if lsn < state.written {
            drop(state);
            return self.segments.read(lsn, self.checksum);
        }
        let buffered = state.buffered(lsn);
        match buffered.map(|bytes| parse(bytes, lsn, bytes.len(), self.checksum)) {
            Some(Parsed::Whole { content: Content::Record(payload), .. }) => Ok(payload.to_vec()),
            _ => state.check().and(Err(LogError::NoRecord { lsn })),
        }
    }

    /// Gives up what is wholly before `lsn` and durable.
    pub(super) fn truncate_before(&self, lsn: Lsn) -> Result<(), LogError> {
        let Some(spares) = self.segments.give_up_before(lsn.min(self.durable()))? else {
            return Ok(());
        };
        // After a failed sync it is unknown which names are durable.
        self.segments.sync_directory().inspect_err(|error| self.stop(&error.to_string()))?;
        self.segments.keep_spares(spares);
        Ok(())
    }
}

/// Forces the log within a time after it was asked to; started when it is first asked.
pub(super) struct Flusher {
    request: Arc<Request>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Time from the request to the sync.
    delay: Duration,
}

#[derive(Default)]
struct Request {
    is_asked: AtomicBool,
    is_stopped: Mutex<bool>,
    changed: Condvar,
}

impl Flusher {
    /// Returns a flusher that is not running yet. `bound` is the time within which a sync has begun
    /// and, as a rule, ended.
    pub(super) fn new(bound: Duration) -> Flusher {
        let request = Arc::default();
        Flusher { request, thread: Mutex::new(None), delay: bound / 2 }
    }

    /// Asks for a sync of everything that was appended before.
    pub(super) fn ask(&self, log: &Arc<LogInner>) -> io::Result<()> {
        if self.request.is_asked.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut running = self.thread.lock();
        if running.is_none() {
            let (log, request, delay) = (Arc::clone(log), Arc::clone(&self.request), self.delay);
            let started = thread::spawn("log-flusher", move || request.serve(&log, delay));
            *running = Some(started.inspect_err(|_| {
                self.request.is_asked.store(false, Ordering::Release);
            })?);
        }
        drop(running);
        // Taken so that the thread is either before its look at the request or asleep.
        drop(self.request.is_stopped.lock());
        self.request.changed.notify_one();
        Ok(())
    }
}

impl Request {
    fn serve(&self, log: &LogInner, delay: Duration) {
        let mut is_stopped = self.is_stopped.lock();
        loop {
            while !*is_stopped && !self.is_asked.load(Ordering::Acquire) {
                self.changed.wait(&mut is_stopped);
            }
            let due = clock::now() + delay;
            while !*is_stopped && self.changed.wait_until(&mut is_stopped, due) {}
            let is_asked = self.is_asked.swap(false, Ordering::AcqRel);
            let is_last = *is_stopped;
            if is_asked {
                // An error closes the log, and the next that uses it is told.
                let forced = MutexGuard::unlocked(&mut is_stopped, || log.force(log.end()));
                if forced.is_err() {
                    return;
                }
            }
            if is_last {
                return;
            }
        }
    }
}

impl Flusher {
    /// Ends the thread, which first does what it was asked to.
    pub(super) fn finish(&self) {
        *self.request.is_stopped.lock() = true;
        self.request.changed.notify_one();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.finish();
    }
}
