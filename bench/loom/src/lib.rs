//! Four small protocols of the engine under the orders that the memory model allows, with `loom`.
//!
//! A machine that draws its schedules runs one task at a time, so it finds no ordering that is too
//! weak. Here the engine's own source files are compiled a second time: what they call the runtime
//! and `lock_api` is this crate, whose locks, threads and atomics are the model's. What else they
//! need of the engine is stood in for by a few lines each.
//!
//! | protocol | file | what has to hold |
//! | --- | --- | --- |
//! | a seat of the log | `wal/waiters.rs` | who is signalled sees what the leader did before |
//! | the end of a wait | `lock/locker_state.rs` | who is granted a lock sees what its holder did |
//! | strong requests | `lock/intents.rs` | an intent is found, refused, or sees a strong holder |
//! | a page is written | `buffer/frame.rs` | who finds a page clean finds it on the disk |
//!
//! The data that a protocol protects is an atomic that is read and written `Relaxed`: only the
//! protocol puts the write before the read. `bench/planted.py` weakens an ordering in each file.

// The names by which the source files know what is the model's here.
extern crate self as lock_api;
extern crate self as tidegate_runtime;

pub mod clock;
pub mod sync;
pub mod thread;

pub use sync::RawRwLockApi as RawRwLock;

#[allow(dead_code, unused_unsafe, reason = "the engine uses more, and its raw locks are unsafe")]
mod buffer;
#[allow(dead_code, reason = "the engine uses more of its files than the models do")]
mod lock;
mod page;
#[allow(dead_code, reason = "the engine uses more of its files than the models do")]
mod wal;
