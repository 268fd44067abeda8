//! A file whose syncs several threads share.
//!
//! A sync makes durable what was written before it began. So a thread that asks while one runs
//! waits for the next, and the next is for all that have come by then: one of them makes it, and
//! the others return with it. No mutex is held while it runs.
//!
//! After a sync that failed all later ones fail: what the failed one had to write may be dropped,
//! and a second one that succeeds would vouch for it (`disk`).

use std::io;
use std::sync::Arc;

use tidegate_runtime::sync::{Condvar, Mutex};

use crate::disk::File;

/// A file whose syncs several threads share.
pub(super) struct SharedSync {
    file: Arc<dyn File>,
    state: Mutex<SyncState>,
    ended: Condvar,
}

#[derive(Default)]
struct SyncState {
    /// The number of the sync that began last.
    begun: u64,
    /// The number of the sync that succeeded last.
    done: u64,
    is_running: bool,
    failure: Option<(io::ErrorKind, String)>,
}

impl SharedSync {
    pub(super) fn new(file: Arc<dyn File>) -> SharedSync {
        SharedSync { file, state: Mutex::default(), ended: Condvar::new() }
    }

    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Makes durable what was written before the call.
    pub(super) fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        while state.is_running && state.done < wanted {
            self.ended.wait(&mut state);
        }
        if let Some((kind, message)) = &state.failure {
            return Err(io::Error::new(*kind, message.clone()));
        }
        if state.done >= wanted {
            return Ok(());
        }
        debug_assert!(state.begun + 1 == wanted, "who waited for a sync either has it or makes it");
        state.begun = wanted;
        state.is_running = true;
        drop(state);
        let result = self.file.sync();
        let mut state = self.state.lock();
        state.is_running = false;
        match &result {
            Ok(()) => state.done = wanted,
            Err(error) => state.failure = Some((error.kind(), error.to_string())),
        }
        drop(state);
        self.ended.notify_all();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tidegate_runtime::{Strategy, search, thread};

    use super::*;
    use crate::disk::{Disk, Faults, Open, SimulatedDisk};

    /// A file that counts writes, and how many of them were before the last sync began.
    #[derive(Default)]
    struct Counting {
        written: AtomicU64,
        synced: AtomicU64,
        syncs: AtomicU64,
    }

    impl File for Counting {
        fn len(&self) -> io::Result<u64> {
            Ok(0)
        }

        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
            Ok(())
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            Ok(())
        }

        fn sync(&self) -> io::Result<()> {
            let written = self.written.load(Ordering::SeqCst);
            self.syncs.fetch_add(1, Ordering::SeqCst);
            thread::yield_now();
            self.synced.fetch_max(written, Ordering::SeqCst);
            Ok(())
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_returns_has_a_sync_that_began_after_its_write() {
        let strategies = (0..300).map(|seed| Strategy::Random { seed });
        let found = search(strategies, || {
            let file = Arc::new(Counting::default());
            let shared = Arc::new(SharedSync::new(Arc::clone(&file) as Arc<dyn File>));
            let write = |_| {
                let (file, shared) = (Arc::clone(&file), Arc::clone(&shared));
                let body = move || {
                    for _ in 0..4 {
                        let own = file.written.fetch_add(1, Ordering::SeqCst) + 1;
                        shared.sync().expect("it never fails");
                        assert!(file.synced.load(Ordering::SeqCst) >= own, "write {own}");
                    }
                };
                thread::spawn("writer", body).expect("there is room")
            };
            let writers: Vec<_> = (0..4).map(write).collect();
            for writer in writers {
                writer.join().expect("no assertion failed");
            }
            assert!(file.syncs.load(Ordering::SeqCst) <= 16);
        });
        found.expect("no schedule fails");
    }

    #[test]
    fn after_a_failure_no_sync_succeeds() {
        let disk = SimulatedDisk::new(1, Faults::default());
        let file = disk.open("a", Open::New).expect("it is new");
        let shared = SharedSync::new(file);
        shared.sync().expect("no fault");
        disk.set_faults(Faults { sync_error: 1.0, ..Faults::default() });
        let first = shared.sync().expect_err("a fault").to_string();
        disk.set_faults(Faults::default());
        assert_eq!(shared.sync().expect_err("it has failed before").to_string(), first);
    }
}
