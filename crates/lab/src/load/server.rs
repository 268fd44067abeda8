//! What a server works while it is measured.
//!
//! A server may have a process for each client, and to look at a thousand takes some ten
//! milliseconds. At the beginning of the measured time the clients must not stand still for that,
//! so that look is a thread's own; at the end nothing counts any more, and none of the clients has
//! left yet, who take the time of their processes along.

use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use tidegate_subject::process::tree_cpu;

/// A server whose work is measured from now on.
pub(super) struct ServerClock {
    process: u32,
    before: JoinHandle<Option<Duration>>,
}

impl ServerClock {
    /// Begins with the tree of a process; `None` where no thread is to be had.
    pub(super) fn start(process: u32) -> Option<Self> {
        let look = Builder::new().name("server".to_owned()).spawn(move || tree_cpu(process));
        look.ok().map(|before| ServerClock { process, before })
    }

    /// The CPU time of the tree since then; `None` where it cannot be known.
    pub(super) fn read(self) -> Option<Duration> {
        let now = tree_cpu(self.process)?;
        now.checked_sub(self.before.join().ok()??)
    }
}

#[cfg(test)]
mod tests {
    use rustix::time::ClockId;

    use super::super::load_run::cpu;
    use super::*;

    #[test]
    fn work_is_counted_from_the_start() {
        let clock = ServerClock::start(std::process::id()).unwrap();
        while !clock.before.is_finished() {
            std::thread::yield_now();
        }
        let (since, work) = (cpu(ClockId::ProcessCPUTime), Duration::from_millis(100));
        while cpu(ClockId::ProcessCPUTime).saturating_sub(since) < work {}
        // The system counts in ticks.
        let seen = clock.read().unwrap();
        assert!(seen >= work / 2, "{seen:?}");
    }

    #[test]
    fn of_a_process_that_is_not_there_nothing_is_known() {
        assert_eq!(ServerClock::start(u32::MAX).and_then(ServerClock::read), None);
    }
}
