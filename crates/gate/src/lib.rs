//! Who may run now: permits, classes, a bounded queue with deadlines, and a limit that a
//! controller moves.
//!
//! The gate knows nothing of SQL, sockets or protocols. Whoever wants to run a transaction asks it
//! for a [`Permit`] and gets one at once, a place in the queue, or a refusal. A [`Permit`] or a
//! [`Ticket`] that is dropped gives back what it holds, on every path.

mod gate;
mod governor;
pub mod journal;
mod keep;
mod permits;
mod queue;
mod request;
mod room;
mod statistics;

pub use gate::{Gate, Permit, Ticket};
pub use governor::{Adjustment, Control, DatabaseState, Governor};
pub use keep::{Keep, KeepError};
pub use permits::PermitId;
pub use queue::Class;
pub use request::{
    Admission, Claim, Discounted, Limits, Outcome, QueueFull, Request, Snapshot, Waker,
};
pub use statistics::{ClassTotals, DurationTotals};
