//! Threads, locks, clocks and disks for code that has to run on two machines: the operating
//! system's, and one in virtual time.
//!
//! Code that waits uses this crate in place of the standard library: [`sync`] for locks, condition
//! variables and channels, [`thread`] to start, park and join, [`clock`] for the time, [`work`] to
//! count what it does, [`disk`] for the time that a disk takes. On a thread of the operating system
//! these are its own. Within [`Machine::run`] the same calls of the same program belong to the
//! machine:
//!
//! - Its tasks are fibers on one thread, so one runs at a time, to its next wait.
//! - Its clock stands still while a task runs and jumps to the next event when none can run.
//! - Work takes time on its processors, and pages take time on its disks ([`Hardware`]).
//! - Everything that is drawn comes from a seed. The same program and seed give the same run.
//!
//! With [`Machine::schedules`] the machine has no hardware. It switches between tasks at every
//! lock, wake-up and look at the clock, in an order drawn from a seed, and so finds the orders in
//! which a concurrent program fails.
//!
//! ```
//! use std::time::Duration;
//! use tidegate_runtime::{Hardware, Machine, clock, thread};
//!
//! let machine = Machine::new(Hardware::with_processors(2), 7);
//! let report = machine.run(|| {
//!     let began = clock::now();
//!     let tasks: Vec<_> = (0..4)
//!         .map(|_| thread::spawn("worker", || thread::work_for(Duration::from_secs(3600))))
//!         .collect();
//!     for task in tasks {
//!         task.unwrap().join().unwrap();
//!     }
//!     clock::now() - began
//! })?;
//! assert_eq!(report.value, Duration::from_secs(2 * 3600), "four hours of work on two processors");
//! # Ok::<(), tidegate_runtime::MachineError>(())
//! ```

pub mod clock;
pub mod disk;
mod fiber;
mod machine;
pub mod sync;
pub mod thread;
pub mod work;

pub use machine::{
    BadStrategy, Discipline, Explored, Failure, Hardware, Machine, MachineError, Priority, Report,
    Service, Strategy, Usage, explore, run_all, search,
};

/// Returns whether the caller is a task of a machine: in virtual time, or under drawn schedules.
#[must_use]
pub fn is_virtual() -> bool {
    fiber::is_active()
}

/// Returns how many processors the caller's machine has, at least 1.
#[must_use]
pub fn processors() -> usize {
    if fiber::is_active() {
        machine::processors()
    } else {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// Returns 64 random bits: on a machine in virtual time from its seed, so that the same run has the
/// same ones, else such as the standard library's hash tables begin with. They are no secret.
#[must_use]
pub fn entropy() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};

    if fiber::is_active() { machine::entropy() } else { RandomState::new().build_hasher().finish() }
}
