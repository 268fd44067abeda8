//! A disk that stops in the middle of something, so that a process can be killed right there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tidegate_engine::disk::Disk;

use super::hooked::{Change, Hook, HookedDisk};

/// Counts changes of files down and, at the last, does half of a write, tells, and waits for the
/// end. Each thread that comes later waits as well.
struct Countdown {
    left: AtomicU64,
    tell: fn(),
}

/// No number of changes.
const NEVER: u64 = u64::MAX;

impl Countdown {
    /// Counts one change; `half` is what is done of the last.
    fn count(&self, half: impl FnOnce()) {
        let counted = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            (left != NEVER).then(|| left.saturating_sub(1))
        });
        match counted {
            Err(_) => return,
            Ok(left) if left > 1 => return,
            Ok(1) => {
                half();
                (self.tell)();
            }
            Ok(_) => {}
        }
        loop {
            thread::park();
        }
    }
}

/// A disk on the files of another that stops in the middle of the `after`th change, if it is
/// given, and calls `tell`. Also returns what keeps it from stopping later.
pub(crate) fn halting(
    disk: Arc<dyn Disk>,
    after: Option<u64>,
    tell: fn(),
) -> (HookedDisk, impl FnOnce()) {
    let left = AtomicU64::new(after.unwrap_or(NEVER));
    let countdown = Arc::new(Countdown { left, tell });
    let counted = Arc::clone(&countdown);
    let hook: Hook = Arc::new(move |change| {
        counted.count(|| {
            if let Change::Write { file, bytes, offset } = change {
                let _ = file.write_at(&bytes[..bytes.len() / 2], *offset);
            }
        });
        Ok(())
    });
    (HookedDisk { disk, hook }, move || countdown.left.store(NEVER, Ordering::SeqCst))
}
