//! When a sync begins: at once, or when those have come who are about to come.
//!
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

use std::time::{Duration, Instant};

/// At most so many syncs in a row begin at once after waits in vain.
const REST_MAX: u32 = 63;

/// What a sync is thought to take before any was measured, and at least.
const SYNC_MIN: Duration = Duration::from_micros(20);

/// Decides how long a sync waits for a larger group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gather {
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

impl Gather {
    pub(super) fn new(now: Instant) -> Gather {
        Gather { crowd: 1, sync: SYNC_MIN, ended: now, rest: 0, last_rest: 0 }
    }

    /// How long those who need a sync wait for others; `None` when it begins now.
    pub(super) fn wait(&self, count: usize, now: Instant) -> Option<Duration> {
        if self.rest > 0 || count >= self.crowd {
            return None;
        }
        let left = self.sync.saturating_sub(now.saturating_duration_since(self.ended));
        (!left.is_zero()).then_some(left)
    }

    /// A sync begins, which `count` threads need.
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

    /// A sync ended that took so long; as many as the `crowd` were served or wait for the next.
    pub(super) fn end(&mut self, crowd: usize, took: Duration, now: Instant) {
        self.sync = took.min(2 * self.sync).max(SYNC_MIN);
        self.crowd = crowd;
        self.ended = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(microseconds: u64) -> Duration {
        Duration::from_micros(microseconds)
    }

    /// After a long series of syncs of 100 µs that ended at the given time.
    fn steady(crowd: usize, ended: Instant) -> Gather {
        let mut gather = Gather::new(ended);
        (0..5).for_each(|_| gather.end(crowd, us(100), ended));
        gather
    }

    #[test]
    fn the_example_of_the_module_holds() {
        let start = Instant::now();
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
        let start = Instant::now();
        assert_eq!(Gather::new(start).wait(1, start), None);
        assert_eq!(steady(1, start).wait(1, start), None);
    }

    #[test]
    fn nobody_waits_longer_than_a_sync_takes() {
        let start = Instant::now();
        let gather = steady(8, start);
        assert_eq!(gather.wait(1, start + us(99)), Some(us(1)));
        assert_eq!(gather.wait(1, start + us(100)), None);
        assert_eq!(gather.wait(1, start + us(1_000_000)), None);
    }

    #[test]
    fn waits_in_vain_become_rare() {
        let start = Instant::now();
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
        let start = Instant::now();
        let mut gather = steady(2, start);
        gather.end(2, us(500_000), start);
        assert_eq!(gather.wait(1, start), Some(us(200)));
        gather.end(2, us(90), start);
        assert_eq!(gather.wait(1, start), Some(us(90)));
    }
}
