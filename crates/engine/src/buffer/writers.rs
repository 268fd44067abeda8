//! Threads that write pages to their places, as many at once as disks can take.
//!
//! Who writes a batch puts its runs of adjacent pages up as a [`WriteJob`] and takes part itself;
//! the threads take runs of the job that came first. They are started when first needed, here and
//! nowhere else, and end with the store. With a single writer there is no thread: who writes a
//! batch writes its runs one after another, so that what happens on a disk is the same each time.
//!
//! After a write that failed no further run of the job is begun. The job returns when no write of
//! it is under way, with the first error.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tidegate_runtime::sync::{Condvar, Mutex};
use tidegate_runtime::thread::{self, JoinHandle};

use crate::disk::File;

/// Bytes that go to one place of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Where they begin in the job's bytes.
    pub(super) start: usize,
    pub(super) len: usize,
    /// Where they go in the file.
    pub(super) offset: u64,
}

/// Runs that are to be written.
struct WriteJob {
    file: Arc<dyn File>,
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The first run that nobody has taken.
    next: AtomicUsize,
    has_failed: AtomicBool,
    progress: Mutex<JobProgress>,
    done: Condvar,
}

#[derive(Default)]
struct JobProgress {
    /// Runs that were written, failed, or were left out after a failure.
    ended: usize,
    error: Option<io::Error>,
}

impl WriteJob {
    fn is_taken(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.runs.len()
    }

    /// Writes runs until all are taken.
    fn work(&self) {
        while let Some(run) = self.runs.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            // Should a write panic, the others are not to wait for it.
            let panicked = || Err(io::Error::other("the thread that wrote it panicked"));
            let mut write = RunWrite { job: self, result: panicked() };
            write.result = if self.has_failed.load(Ordering::Acquire) {
                Ok(())
            } else {
                self.file.write_at(&self.bytes[run.start..run.start + run.len], run.offset)
            };
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut progress = self.progress.lock();
        while progress.ended < self.runs.len() {
            self.done.wait(&mut progress);
        }
        progress.error.take().map_or(Ok(()), Err)
    }
}

/// A run that is being written; it ends when this is dropped.
struct RunWrite<'j> {
    job: &'j WriteJob,
    result: io::Result<()>,
}

impl Drop for RunWrite<'_> {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(()));
        let mut progress = self.job.progress.lock();
        progress.ended += 1;
        if let Err(error) = result {
            self.job.has_failed.store(true, Ordering::Release);
            progress.error.get_or_insert(error);
        }
        let is_last = progress.ended == self.job.runs.len();
        drop(progress);
        if is_last {
            self.job.done.notify_all();
        }
    }
}

/// The threads.
pub(super) struct Writers {
    /// Writes at the same time, that of the caller among them.
    count: usize,
    queue: Arc<WriteQueue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct WriteQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    /// Jobs that may have runs that nobody has taken.
    jobs: VecDeque<Arc<WriteJob>>,
    is_stopped: bool,
}

impl Writers {
    /// Returns writers of which up to `count` write at the same time for a batch.
    pub(super) fn new(count: usize) -> Writers {
        Writers { count: count.max(1), queue: Arc::default(), threads: Mutex::default() }
    }

    /// Writes runs of `bytes`, and gives the memory back if no thread looks at it any more.
    pub(super) fn write(
        &self,
        file: &Arc<dyn File>,
        bytes: Vec<u8>,
        runs: Vec<Run>,
    ) -> (Vec<u8>, io::Result<()>) {
        let helpers = (self.count - 1).min(runs.len().saturating_sub(1));
        let job = Arc::new(WriteJob {
            file: Arc::clone(file),
            bytes,
            runs,
            next: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            progress: Mutex::default(),
            done: Condvar::new(),
        });
        if helpers > 0 {
            self.start_threads(helpers);
            self.queue.state.lock().jobs.push_back(Arc::clone(&job));
            for _ in 0..helpers {
                self.queue.changed.notify_one();
            }
        }
        job.work();
        let result = job.wait();
        if helpers > 0 {
            self.queue.state.lock().jobs.retain(|queued| !Arc::ptr_eq(queued, &job));
        }
        let bytes = Arc::into_inner(job).map_or(Vec::new(), |job| job.bytes);
        (bytes, result)
    }

    /// Has at least so many threads, or as many as the system allows.
    fn start_threads(&self, wanted: usize) {
        let mut threads = self.threads.lock();
        while threads.len() < wanted {
            let queue = Arc::clone(&self.queue);
            match thread::spawn("tidegate-pages", move || queue.serve()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    // Those who write batches do it themselves.
                    tracing::warn!("cannot start a thread that writes pages: {error}");
                    break;
                }
            }
        }
    }

    /// Ends the threads. No batch is being written. What is written later is written by the caller
    /// alone or by new threads, none of which gets anything to do once the log is closed.
    pub(super) fn stop(&self) {
        self.queue.state.lock().is_stopped = true;
        self.queue.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                tracing::error!("a thread that writes pages panicked");
            }
        }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl WriteQueue {
    fn serve(&self) {
        let mut state = self.state.lock();
        while !state.is_stopped {
            state.jobs.retain(|job| !job.is_taken());
            if let Some(job) = state.jobs.front().map(Arc::clone) {
                drop(state);
                job.work();
                drop(job);
                state = self.state.lock();
            } else {
                self.changed.wait(&mut state);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_runtime::{Strategy, search};

    use super::*;
    use crate::disk::{Disk, Faults, Open, SimulatedDisk};

    fn runs(count: usize) -> (Vec<u8>, Vec<Run>) {
        let bytes = (0..count * 8).map(|at| u8::try_from(at / 8 % 251).expect("a byte")).collect();
        let run = |index: usize| Run { start: index * 8, len: 8, offset: (index * 16) as u64 };
        (bytes, (0..count).map(run).collect())
    }

    #[test]
    fn every_run_is_written_to_its_place_by_any_number_of_writers() {
        for count in [1, 2, 7] {
            let disk = SimulatedDisk::new(1, Faults::default());
            let file = disk.open("a", Open::New).expect("it is new");
            let writers = Writers::new(count);
            for len in [0, 1, 2, 50] {
                let (bytes, wanted) = runs(len);
                writers.write(&file, bytes.clone(), wanted.clone()).1.expect("no fault");
                for run in wanted {
                    let mut found = [0; 8];
                    file.read_at(&mut found, run.offset).expect("it was written");
                    assert_eq!(found, bytes[run.start..run.start + 8], "{count} writers, {run:?}");
                }
            }
        }
    }

    /// Jobs of several threads, in which one write fails: that job fails and no other.
    #[test]
    fn one_failed_write_among_many_fails_its_job_and_no_other() {
        let strategies = (0..200).map(|seed| Strategy::Random { seed });
        let found = search(strategies, || {
            let disk = SimulatedDisk::new(1, Faults::default());
            let file = disk.open("a", Open::New).expect("it is new");
            disk.set_faults(Faults { fail_after: Some(5), ..Faults::default() });
            let writers = Arc::new(Writers::new(3));
            let write = |_| {
                let (file, writers) = (Arc::clone(&file), Arc::clone(&writers));
                let body = move || {
                    let (bytes, wanted) = runs(6);
                    writers.write(&file, bytes, wanted).1.is_err()
                };
                thread::spawn("batch", body).expect("there is room")
            };
            let jobs: Vec<_> = (0..3).map(write).collect();
            let failed = jobs.into_iter().map(|job| job.join().expect("it ends"));
            assert_eq!(failed.filter(|&failed| failed).count(), 1);
            writers.stop();
        });
        found.expect("no schedule fails");
    }
}
