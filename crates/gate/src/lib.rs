//! Who may run now: permits, classes, a bounded queue with deadlines, and a limit that a
//! controller moves.
//!
//! The gate knows nothing of SQL, sockets or protocols. A caller asks it for a [`Permit`] to run a
//! transaction and gets one at once, a [`Ticket`] in the queue, or a refusal. A permit or a ticket
//! that is dropped gives back what it holds, on every path. A [`Governor`] ends the gate's control
//! intervals and makes it obey a controller; the [`journal`] is the record of that.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Instant;
//!
//! use tidegate_control::Mpl;
//! use tidegate_gate::{Admission, Claim, Class, Gate, Limits, Outcome, Request, Waker};
//!
//! let now = Instant::now();
//! let limits = Limits { mpl: Mpl::ONE, mpl_max: Mpl::ONE, waiting_max: 100 };
//! let gate = Gate::new(limits, now);
//! let waker: Waker = Arc::new(|token| println!("request {token} can be claimed"));
//! let request = |token| Request::new(Class::Normal, token, &waker);
//!
//! // One transaction may run at a time, so the second one waits.
//! let Admission::Granted(first) = gate.request(&request(1), now) else { panic!("not granted") };
//! let Admission::Queued(second) = gate.request(&request(2), now) else { panic!("not queued") };
//!
//! // The permit that comes back is handed over, and the waker is called with the token 2.
//! first.finish(Outcome::Completed, now);
//! let Claim::Granted(second) = second.claim() else { panic!("not granted") };
//!
//! // A permit that is dropped ends a failed transaction.
//! drop(second);
//! assert_eq!(gate.snapshot().outstanding, 0);
//! ```

mod classes;
mod connections;
mod expectation;
mod gate;
mod goal;
mod governor;
pub mod journal;
mod outage;
mod permits;
mod queue;
mod request;
mod shares;
mod statistics;

pub use classes::{
    CLASSES_MAX, Class, ClassId, ClassName, ClassSettings, Classes, ClassesError, PermitBounds,
    Policy, QUOTAS_MAX, QuotaId, Quotas, WEIGHT_MAX, WaitingOrder,
};
pub use gate::{Gate, Permit, Ticket};
pub use goal::{ClassGoal, ClassGoalError, KeptGoal};
pub use governor::{Adjustment, Control, DatabaseState, Governor};
pub use permits::PermitId;
pub use request::{
    Admission, Claim, Discounted, Limits, Outcome, Refusal, RefusalReason, Request, Snapshot, Waker,
};
pub use statistics::{ClassTotals, DurationTotals};
