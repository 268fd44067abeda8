//! A frame of the buffer pool: its page is written, found clean, and given away.

mod arena;
#[path = "../../../../crates/engine/src/buffer/frame.rs"]
mod frame;

#[cfg(test)]
mod models {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};

    use super::frame::Frame;
    use crate::page::PageId;
    use crate::wal::Lsn;

    /// A frame whose page was changed by the record 1, and what is on the disk of it.
    struct Pool {
        frame: Frame,
        disk: AtomicU32,
    }

    impl Pool {
        fn new() -> Arc<Pool> {
            let frame = Frame::new(std::ptr::null_mut());
            frame.lock_exclusive();
            frame.set_page(PageId(5));
            frame.set_dirty_since(Lsn(1));
            frame.unlock_exclusive();
            Arc::new(Pool { frame, disk: AtomicU32::new(0) })
        }

        /// Writes the page as a batch of one does. Returns whether it was this thread's to write.
        fn write(&self) -> bool {
            let frame = &self.frame;
            if !frame.is_dirty() {
                return false;
            }
            frame.lock_shared();
            let is_mine = frame.is_dirty() && frame.begin_writing();
            frame.unlock_shared();
            if !is_mine {
                return false;
            }
            let before = self.disk.load(Ordering::Relaxed);
            self.disk.store(before + 1, Ordering::Relaxed);
            if frame.try_lock_shared() {
                frame.was_written(Lsn(1), Lsn(1));
                frame.unlock_shared();
            }
            frame.end_writing();
            true
        }

        fn on_disk(&self) -> u32 {
            self.disk.load(Ordering::Relaxed)
        }
    }

    // The model looks for the last access to an atomic only: who reads it is started, and who reads
    // and writes it goes first.

    #[test]
    fn a_page_that_a_checkpoint_finds_clean_is_on_the_disk() {
        loom::model(|| {
            let pool = Pool::new();
            let theirs = Arc::clone(&pool);
            let checkpoint = loom::thread::spawn(move || {
                let is_clean = theirs.frame.since().is_none();
                assert!(!is_clean || theirs.on_disk() == 1, "it is clean, and not written");
            });
            assert!(pool.write());
            checkpoint.join().expect("no assertion failed");
        });
    }

    #[test]
    fn a_frame_that_is_given_away_was_written() {
        loom::model(|| {
            let pool = Pool::new();
            let theirs = Arc::clone(&pool);
            let victim = loom::thread::spawn(move || {
                let frame = &theirs.frame;
                if frame.try_lock_exclusive() {
                    if !frame.is_dirty() && !frame.is_being_written() {
                        assert_eq!(theirs.on_disk(), 1, "it is clean, and not written");
                        frame.set_page(PageId::NONE);
                    }
                    frame.unlock_exclusive();
                }
            });
            assert!(pool.write());
            victim.join().expect("no assertion failed");
        });
    }

    /// Both may write the page one after the other, as when the first could not say it was clean.
    #[test]
    fn two_that_write_a_page_do_so_one_after_the_other() {
        loom::model(|| {
            let pool = Pool::new();
            let theirs = Arc::clone(&pool);
            let other = loom::thread::spawn(move || theirs.write());
            let writes = u32::from(pool.write()) + u32::from(other.join().expect("no panic"));
            assert_eq!(pool.on_disk(), writes, "a write was lost");
            assert!(!pool.frame.is_being_written());
        });
    }
}
