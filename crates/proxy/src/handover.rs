//! Hand-over: a new process takes this one's place, and no client notices.
//!
//! # Mechanism
//!
//! The old process starts the new one and gives it one end of a socket pair as standard input
//! ([`channel`]): the new process trusts that socket and no other, and no path names it. What goes
//! through it are frames ([`records`]) and, with them, sockets (`SCM_RIGHTS`).
//!
//! ```text
//! old                                        new
//! Hello + listening sockets  ------------->  checks its configuration, opens what is missing
//!                            <-------------  Ready, or Failed and why: then nothing has changed
//! grants no permit any more, accepts none
//! Begin, permits still out   ------------->  accepts; its limit less those permits is granted
//! Client + socket            ------------->  puts it into an event loop
//!                            <-------------  Adopted: from here on it is the new process's
//! Held: fewer permits out    ------------->  grants as many more
//! Done, and the old one ends ------------->  alone
//! ```
//!
//! A client is passed as soon as it has no transaction running: one that waits for a permit or a
//! connection with its unread request, so that it asks again in the new process. Running
//! transactions end where they are. `worker/leaving.rs` passes, `worker/arriving.rs` adopts.
//!
//! # Who owns a client
//!
//! Exactly one process does, whichever of the two dies when. The old one keeps all of a client that
//! it has passed, and does nothing with it, until [`Answer::Adopted`] has arrived. The new one does
//! nothing with a client before it has written that answer. A new process that dies loses those
//! whose answer it has written, as any process that dies loses its clients; the old one finds the
//! end of the channel behind the last answer, takes back what is unanswered, and goes on as before,
//! listening sockets included. If the old one dies first, what it has passed is the new one's.
//!
//! # TLS
//!
//! The state of a TLS session stays in the old process, which goes on as its end: the new process
//! gets a socket pair's end in place of the socket ([`relay`]). To it such a client is one in
//! clear; so all rules, and the limit, are the new process's alone, and it may be passed on again.
//! The old process ends when the last of them has gone.
//!
//! # One limit
//!
//! Both processes have a gate for a server. The old one grants nothing after Begin; the new one is
//! told how many permits of the old one count and grants what is left of the limit
//! ([`tidegate_gate::Gate::set_elsewhere`]). Connections to servers are counted alike
//! (`capacity.rs`), and those at rest are passed with what is prepared and set on them.
//!
//! # Cancel requests
//!
//! A client keeps its key. The new process finds a client that it has adopted by the whole key
//! ([`Adopted`]); a request for another goes to the old process, by the channel, as a client that
//! has just connected. The old process holds it while its client is being passed, and closes it
//! afterwards; the new one looks again then.

pub(crate) mod arriving;
pub(crate) mod channel;
pub(crate) mod leaving;
pub(crate) mod records;
pub(crate) mod relay;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;
use tidegate_wire::startup::CancelKey;

pub use arriving::Inheritance;
use channel::Channel;
use leaving::Successor;
pub use leaving::{Leave, Left};
use records::{Answer, Told};
use relay::Relays;

use crate::cancel_key::ClientKey;
use crate::client::Requester;

/// Why nothing has been handed over, or not everything.
#[derive(Debug, Error)]
pub enum HandoverError {
    /// Another hand-over has not ended.
    #[error(
        "a hand-over is under way: this process or the one before it still has transactions to \
         end; try again when they have"
    )]
    UnderWay,
    /// The new process has refused.
    #[error("the new process cannot start: {0}")]
    Refused(String),
    /// The new process has ended, or its end of the socket.
    #[error("the new process has ended before it was ready; its log says why")]
    Ended,
    /// It takes too long.
    #[error("the new process was not ready within {0} s")]
    Late(u64),
    /// The new process has ended in the middle.
    #[error("the new process has ended; this one goes on with the clients that it still has")]
    Lost,
    /// The two cannot understand each other.
    #[error(
        "the other process speaks version {other} of the hand-over, this one version {own}: \
         restart instead"
    )]
    Version {
        /// The version of this process.
        own: u32,
        /// That of the other.
        other: u32,
    },
    /// The socket.
    #[error("the socket between the two processes: {0}")]
    Io(#[from] std::io::Error),
}

/// What a process knows of hand-overs to it and from it.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// How many processes were there before, each of which has handed over to the next.
    pub(crate) generation: u64,
    /// The process from which this one takes over.
    predecessor: Mutex<Predecessor>,
    /// A hand-over from this process has begun.
    has_begun: AtomicBool,
    /// The process that takes over from this one.
    successor: Mutex<Option<Arc<Successor>>>,
    /// The clients that were adopted.
    pub(crate) adopted: Adopted,
    /// Clients whose TLS is this process's, and which are another's.
    pub(crate) relays: Arc<Relays>,
}

/// The process from which this one takes over.
#[derive(Debug, Default)]
struct Predecessor {
    /// Absent once it has nothing left.
    channel: Option<Arc<Channel>>,
    /// This process is being stopped, and adopts nothing any more.
    is_refused: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handover {
    /// Returns the state of a process that takes over by this channel.
    pub(crate) fn from_predecessor(generation: u64, channel: Arc<Channel>) -> Handover {
        let predecessor = Predecessor { channel: Some(channel), is_refused: false };
        Handover { generation, predecessor: Mutex::new(predecessor), ..Handover::default() }
    }

    /// Returns whether another process still has clients or connections that are to be this one's.
    pub(crate) fn is_arriving(&self) -> bool {
        lock(&self.predecessor).channel.is_some()
    }

    /// Returns whether another process takes over from this one.
    pub(crate) fn is_leaving(&self) -> bool {
        lock(&self.successor).is_some()
    }

    /// Returns whether a hand-over from this process can begin.
    fn may_begin(&self) -> bool {
        !self.has_begun.load(Ordering::SeqCst) && !self.is_arriving()
    }

    /// Gives the process before this one, or behind it, a connection that is for one of its
    /// clients.
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn forward(&self, connection: OwnedFd) -> std::io::Result<()> {
        if let Some(successor) = &*lock(&self.successor) {
            successor.tell(&Told::Connection, vec![connection]);
            return Ok(());
        }
        let Some(channel) = lock(&self.predecessor).channel.clone() else {
            return Err(std::io::Error::other("no other process"));
        };
        channel.send(&Answer::Connection, &[connection])
    }

    /// Says that a client or a connection is this process's from now on. It must not have been used
    /// before. Returns whether it is: not if this process is being stopped. If the other process
    /// cannot be told, it has died and cannot take it back.
    pub(crate) fn acknowledge(&self, number: u64) -> bool {
        // Locked until it has been written: what is confirmed is confirmed before a refusal.
        let predecessor = lock(&self.predecessor);
        if let Some(channel) = &predecessor.channel
            && !predecessor.is_refused
            && let Err(error) = channel.send(&Answer::Adopted { number }, &[])
        {
            tracing::debug!(%error, "the old process has gone");
        }
        !predecessor.is_refused
    }

    /// Tells the old process that this one is stopped, so that it stops too, and adopts nothing any
    /// more.
    pub(crate) fn stop_predecessor(&self) {
        let mut predecessor = lock(&self.predecessor);
        if let Some(channel) = predecessor.channel.take() {
            predecessor.is_refused = true;
            // One that has gone needs no word.
            let _ = channel.send(&Answer::Stopping, &[]);
        }
    }

    /// The old process has nothing left, or has gone.
    fn forget_predecessor(&self) {
        lock(&self.predecessor).channel = None;
    }

    fn set_successor(&self, successor: Option<Arc<Successor>>) {
        *lock(&self.successor) = successor;
    }
}

/// Where the clients are that were adopted: their keys name slots of another process.
#[derive(Debug, Default)]
pub(crate) struct Adopted(Mutex<HashMap<u32, Vec<(ClientKey, Requester)>>>);

impl Adopted {
    pub(crate) fn insert(&self, key: &ClientKey, client: Requester) {
        let process_id = key.shown().process_id;
        lock(&self.0).entry(process_id).or_default().push((key.clone(), client));
    }

    pub(crate) fn remove(&self, key: &ClientKey, client: Requester) {
        let mut all = lock(&self.0);
        let process_id = key.shown().process_id;
        if let Some(of_number) = all.get_mut(&process_id) {
            of_number.retain(|(_, other)| *other != client);
            if of_number.is_empty() {
                all.remove(&process_id);
            }
        }
    }

    /// Returns the client with this key, which may be that of a forwarded request.
    pub(crate) fn find(&self, key: &CancelKey) -> Option<Requester> {
        let all = lock(&self.0);
        let of_number = all.get(&crate::cancel_key::unforwarded(key.process_id))?;
        of_number.iter().find(|(known, _)| known.is(key)).map(|(_, client)| *client)
    }
}
