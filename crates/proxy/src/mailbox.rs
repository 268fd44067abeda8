//! Messages to an event loop from other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tidegate_wire::startup::CancelKey;

use crate::accounts::AskedWorkers;
use crate::auth_query::LookedUp;
use crate::capacity::Place;
use crate::client::{ClientSlot, Requester};
use crate::commands::Scope;
use crate::handover::arriving::Adoption;
use crate::handover::leaving::Successor;
use crate::inventory::{BusyInquiry, Report};
use crate::net::{Listener, Stream};
use crate::slots::PoolIndex;
use crate::upstream::PoolKey;
use crate::worker::OverdueHolder;

/// A message to a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// This client's ticket can be claimed.
    Admitted { client: ClientSlot },
    /// A client was accepted for this worker.
    Accepted(Stream),
    /// A cancel request for a client of this process has reached the other one of a hand-over.
    Forwarded(Stream),
    /// A client asks for the query of the client with this key to be cancelled.
    Cancel { key: CancelKey, requester: Requester },
    /// The cancel request that this client sent has been dealt with.
    CancelEnded { client: ClientSlot },
    /// The server was asked for the user that this client says it is.
    LookedUp { client: ClientSlot, looked_up: LookedUp },
    /// The user of the operating system at the other end of this client's socket, if it has a name.
    SystemUser { client: ClientSlot, name: Option<String> },
    /// A permit no longer counts against the limit: the worker that serves its holder names it in a
    /// warning.
    Discounted(OverdueHolder),
    /// A pool that has waited for a place gets it.
    Place { pool: PoolIndex, place: Place },
    /// Somebody waits for a place: close an idle connection whose place helps, or ask the event
    /// loops that have not been `asked`.
    GiveUpIdle { asked: AskedWorkers },
    /// A pool keeps connections open, a share of them in each event loop.
    KeepOpen { key: PoolKey },
    /// A connection to a server can be opened, after none could.
    ServerBack,
    /// Another configuration is in force.
    Reconfigured,
    /// Accept on these sockets as well, and no more on those with these numbers.
    Listeners { opened: Vec<(usize, Listener)>, closed: Vec<usize> },
    /// An administrator has given or changed orders.
    Ordered,
    /// End the clients of a database.
    Kill { scope: Scope },
    /// End the client with this number, and say so if there is one.
    KillClient { id: u64, found: Sender<()> },
    /// A message of this client of the console has been answered.
    ConsoleAnswer { client: ClientSlot, bytes: Vec<u8> },
    /// Say who is connected.
    Report { to: Sender<Report> },
    /// Take over what the old process has passed.
    Adopt(Box<Adoption>),
    /// The old process has nothing left.
    Arrived,
    /// Another process takes over: grant nothing and accept none any more.
    Leave(Arc<Successor>),
    /// The new process knows what is still granted here: pass on what is at rest.
    PassOn,
    /// What was passed with this number is the new process's.
    Passed { number: u64 },
    /// The new process has ended: take back what it has not confirmed, and go on.
    Stay,
    /// A client asks for the query of this one, which was adopted, to be cancelled.
    CancelAdopted { client: ClientSlot, key: CancelKey, requester: Requester },
    /// Say which clients hold a permit or wait.
    ReportBusy(BusyInquiry),
    /// Stop: no new clients; transactions may run until `deadline`.
    Shutdown { deadline: Instant },
}

/// A worker's mailbox. Posting wakes the worker only when it sleeps, so that a hand-over inside a
/// busy loop costs no system call.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    asleep: AtomicBool,
    waker: mio::Waker,
}

impl Mailbox {
    pub(crate) fn new(waker: mio::Waker) -> Mailbox {
        Mailbox { messages: Mutex::default(), asleep: AtomicBool::new(false), waker }
    }

    pub(crate) fn post(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        if self.asleep.swap(false, Ordering::SeqCst)
            && let Err(error) = self.waker.wake()
        {
            // The loop's periodic sweep reads the mailbox too, so the message is late, not lost.
            tracing::warn!(%error, "could not wake a worker");
        }
    }

    /// Announces that the worker is about to sleep; false if there is a message to read first.
    pub(crate) fn sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = self.messages.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
        if !empty {
            self.asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// Announces that the worker is up and will read its messages before it sleeps again.
    pub(crate) fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Moves all messages into `into`, which is empty and keeps its memory.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *messages, into);
    }
}
