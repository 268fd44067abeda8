//! What is asked of the gate, and what it answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_control::Mpl;

use crate::classes::{ClassId, Quotas};
use crate::gate::{Permit, Ticket};
use crate::permits::PermitId;
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
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Its scheduling class, one of those of the gate.
    pub class: ClassId,
    /// The quotas that it is bound by beside its class.
    pub quotas: Quotas,
    /// When it gives up waiting; `None` waits as long as it takes. Only
    /// [`expire`](crate::Gate::expire) looks at the time: a permit that comes free before that
    /// call is still granted.
    pub wait_until: Option<Instant>,
    /// When it has to be done. A request that cannot be, judged from what its class has been
    /// measured to do, is refused at once, or when that turns out in the queue.
    pub finish_by: Option<Instant>,
    /// How long it is expected to take in the database, for
    /// [`ShortestExpected`](crate::WaitingOrder::ShortestExpected).
    pub expected: Option<Duration>,
    /// Handed to the waker, to tell the requester's transactions apart.
    pub token: u64,
    /// Called if the request had to wait.
    pub waker: &'a Waker,
}

impl<'a> Request<'a> {
    /// Returns a request that waits as long as it takes, bound by no quotas.
    #[must_use]
    pub fn new(class: impl Into<ClassId>, token: u64, waker: &'a Waker) -> Request<'a> {
        Request {
            class: class.into(),
            quotas: Quotas::default(),
            wait_until: None,
            finish_by: None,
            expected: None,
            token,
            waker,
        }
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// As many transactions wait as may.
    QueueFull,
    /// As many transactions of the class wait as may.
    ClassQueueFull,
    /// It cannot be done in time.
    Late,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [RefusalReason; 3] =
        [RefusalReason::QueueFull, RefusalReason::ClassQueueFull, RefusalReason::Late];

    /// Returns the word for it in metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            RefusalReason::QueueFull => "queue_full",
            RefusalReason::ClassQueueFull => "class_queue_full",
            RefusalReason::Late => "late",
        }
    }
}

/// A request that is refused, and what it met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: RefusalReason,
    /// Its class.
    pub class: ClassId,
    /// Transactions waiting now, of all classes.
    pub waiting: u32,
    /// Those of its class.
    pub class_waiting: u32,
    /// As many may wait: of its class with [`RefusalReason::ClassQueueFull`], else of all.
    pub waiting_max: u32,
    /// The limit in force.
    pub limit: Mpl,
    /// How long it would have waited, where that is known.
    pub expected_wait: Option<Duration>,
    /// How long transactions of its class take in the database, where that is known.
    pub in_database: Option<Duration>,
}

/// The gate's answer to a [`Request`].
#[derive(Debug)]
pub enum Admission {
    /// Run now.
    Granted(Permit),
    /// Wait; the waker will be called.
    Queued(Ticket),
    /// Neither now nor later.
    Refused(Refusal),
}

/// What became of a queued request.
#[derive(Debug)]
pub enum Claim {
    /// Run now.
    Granted(Permit),
    /// Still waiting: keep the ticket.
    Waiting(Ticket),
    /// It has waited for as long as it may ([`Request::wait_until`]).
    Expired,
    /// It can no longer be done in time ([`Request::finish_by`]).
    Late(Refusal),
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
    /// Requests refused at once, since the start.
    pub refused: u64,
    /// Requests that waited for as long as they may, or could no longer be done in time, since the
    /// start.
    pub expired: u64,
    /// Requests withdrawn while waiting, since the start.
    pub withdrawn: u64,
    /// By class, in the order of the gate's classes.
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
    pub class: ClassId,
    /// How long it has counted without a break.
    pub age: Duration,
}
