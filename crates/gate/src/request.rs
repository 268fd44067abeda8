//! What is asked of the gate, and what it answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_control::Mpl;

use crate::gate::{Permit, Ticket};
use crate::permits::PermitId;
use crate::queue::Class;
use crate::statistics::ClassTotals;

/// Called with the request's token when its ticket can be claimed: granted or expired.
///
/// It runs on the thread that made the change (gave a permit back, set the limit, let deadlines
/// pass), outside the gate's lock, and must be short and not panic. If the ticket is dropped at
/// that moment on another thread, the call may come after the drop.
pub type Waker = Arc<dyn Fn(u64) + Send + Sync>;

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it was asked for.
    Completed,
    /// It ended in an error, was rolled back, or its client went away.
    Failed,
}

/// The bounds of the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Permits that may be out at once, to begin with.
    pub mpl: Mpl,
    /// Permits that may be out at once, with those that do not count against the limit. A limit
    /// above it takes its place; with one equal to it nothing is discounted, and none is admitted
    /// for one that is lent.
    pub mpl_max: Mpl,
    /// Transactions that may wait at once, all classes together.
    pub waiting_max: usize,
}

/// One transaction that asks to run.
pub struct Request<'a> {
    /// Its scheduling class.
    pub class: Class,
    /// When it gives up waiting; `None` waits as long as it takes. Only
    /// [`expire`](crate::Gate::expire) looks at deadlines: a permit that comes free before that
    /// call is still granted.
    pub deadline: Option<Instant>,
    /// Handed to the waker, to tell the requester's transactions apart.
    pub token: u64,
    /// Called if the request had to wait.
    pub waker: &'a Waker,
}

/// The queue holds as many transactions as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull {
    /// Transactions waiting now.
    pub waiting: usize,
}

/// The gate's answer to a [`Request`].
#[derive(Debug)]
pub enum Admission {
    /// Run now.
    Granted(Permit),
    /// Wait; the waker will be called.
    Queued(Ticket),
    /// Neither now nor later.
    Refused(QueueFull),
}

/// What became of a queued request.
#[derive(Debug)]
pub enum Claim {
    /// Run now.
    Granted(Permit),
    /// Still waiting: keep the ticket.
    Waiting(Ticket),
    /// The deadline passed first.
    Expired,
}

/// The gate's state at one moment, for metrics.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The limit in force.
    pub limit: Mpl,
    /// Permits out, those that do not count against the limit among them.
    pub outstanding: u32,
    /// Permits out that are lent, because their clients are idle: they do not count.
    pub idle: u32,
    /// Permits out that do not count because they have been out far longer than usual.
    pub discounted: u32,
    /// How often a permit was lent, since the start.
    pub lendings: u64,
    /// Permits discounted, since the start.
    pub discounts: u64,
    /// Transactions waiting.
    pub waiting: usize,
    /// Requests refused because the queue was full, since the start.
    pub refused: u64,
    /// Requests whose deadline passed in the queue, since the start.
    pub expired: u64,
    /// Requests withdrawn while waiting, since the start.
    pub withdrawn: u64,
    /// By class, highest first, since the start.
    pub classes: Vec<ClassTotals>,
}

impl Snapshot {
    /// Returns the number of permits that count against the limit.
    ///
    /// # Panics
    /// More permits are lent or discounted than are out: not a snapshot of a gate.
    #[must_use]
    pub fn active(&self) -> u32 {
        let others = self.discounted + self.idle;
        self.outstanding.checked_sub(others).expect("a permit that is lent is out")
    }
}

/// A permit that has been discounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discounted {
    /// Which permit: that of [`Permit::id`].
    pub permit: PermitId,
    /// Its transaction's class.
    pub class: Class,
    /// How long it has counted without a break.
    pub age: Duration,
}
